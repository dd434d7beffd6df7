//! What an operation of a load does, and how a session is asked for it.
//!
//! Operations of several shards have a key with the same name on each of them. Which shards these are follows from the key's number,
//! so that uniform keys are uniform over the shards, too.

use kasha_client::session::{CallId, CallOptions, Session};
use kasha_machine::Effects;
use kasha_runtime::Clock;
use kasha_types::{TableId, Tick};
use kasha_wire::operation::{Bounds, Check, Condition, ItemsBuffer, Lifetime, PartOperation, PartsBuffer};
use kasha_wire::outcome::Shape;
use kasha_wire::{Outcome, Read, Update};

/// What an operation does, unless it is a plain read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    /// Puts a value of this many bytes.
    Put(usize),
    /// Puts a value of so many bytes that ends then.
    PutEnding {
        /// Bytes of the value.
        value_bytes: usize,
        /// When all of them end, by the clock of this process.
        ends: Tick,
    },
    /// Adds one, and gets the sum.
    Increment,
    /// The same, with a bound that is never reached.
    IncrementBounded,
    /// Deletes a key.
    Delete,
    /// A transaction: checks that a key has no value, reads a key, and puts so many others.
    Transaction {
        /// The number of keys that are put.
        writes: u32,
        /// Bytes of each value.
        value_bytes: usize,
    },
    /// Reads a key on each of two shards together.
    ReadOfTwoShards,
    /// Adds one to counters on each of some shards. The sums might not fit, so the participants have to agree.
    IncrementOnEach(Spread),
    /// Puts keys on each of some shards.
    PutOnEach {
        /// Where the keys are.
        spread: Spread,
        /// Whether it also checks that as many others have no value, so that the participants have to agree.
        is_checked: bool,
        /// Bytes of each value.
        value_bytes: usize,
    },
    /// Reads keys on each of some shards, and then puts all of them if nobody has changed one. Else it begins again.
    Interactive {
        /// Where the keys are.
        spread: Spread,
        /// Bytes of each value.
        value_bytes: usize,
    },
}

/// Keys on several shards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    /// The number of shards, at most four.
    pub(crate) shards: u8,
    /// The number of keys on each.
    pub(crate) keys: u8,
}

impl Spread {
    /// A key on each of so many shards.
    pub(crate) const fn over(shards: u8) -> Self {
        Self { shards, keys: 1 }
    }
}

impl Operation {
    pub(crate) fn value_bytes(self) -> usize {
        match self {
            Self::Put(bytes) | Self::Transaction { value_bytes: bytes, .. } => bytes,
            Self::PutEnding { value_bytes, .. } => value_bytes,
            Self::PutOnEach { value_bytes, .. } | Self::Interactive { value_bytes, .. } => value_bytes,
            Self::Increment
            | Self::IncrementBounded
            | Self::IncrementOnEach(_)
            | Self::Delete
            | Self::ReadOfTwoShards => 0,
        }
    }

    /// The shards on which it does something: so many operations it is by the count of Granola's thesis (6.4).
    pub(crate) fn shards(self) -> u8 {
        match self {
            Self::Put(_)
            | Self::PutEnding { .. }
            | Self::Increment
            | Self::IncrementBounded
            | Self::Delete
            | Self::Transaction { .. } => 1,
            Self::ReadOfTwoShards => 2,
            Self::IncrementOnEach(spread) | Self::PutOnEach { spread, .. } | Self::Interactive { spread, .. } => {
                spread.shards
            }
        }
    }
}

/// Tags of four slots, one in each quarter of all slots. Any two that follow each other, the last and the first too, are in different
/// halves. So they are on different shards of a cluster of two or four.
const TAGS: [&str; 4] = ["b", "a", "c", "d"];

/// A session, and what it is asked about.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) session: &'a mut Session,
    pub(crate) out: &'a mut Effects,
    pub(crate) table: TableId,
    /// The key, and its number.
    pub(crate) key: &'a str,
    pub(crate) number: u64,
    /// Bytes for a value, at least as many as the operation puts.
    pub(crate) value: &'a [u8],
}

impl Asked<'_> {
    /// A plain read of the key.
    pub(crate) fn read(&mut self) -> CallId {
        self.ask_for_read(&Read::Get { key: self.key.as_bytes() })
    }

    /// The operation, or the first step of it.
    pub(crate) fn begin(&mut self, operation: Operation) -> CallId {
        let key = self.key.as_bytes();
        match operation {
            Operation::Put(bytes) => self.update(&Update::put(key, &self.value[..bytes])),
            Operation::PutEnding { value_bytes, ends } => {
                let millis = u64::try_from(ends.since(Clock::now()).as_millis()).unwrap_or(u64::MAX).max(1);
                let lifetime = Lifetime::from_millis(millis).expect("not 0");
                self.update(&Update::put_expiring(key, lifetime, &self.value[..value_bytes]))
            }
            Operation::Increment => self.update(&Update::increment(key, 1)),
            Operation::IncrementBounded => {
                let bounds = Bounds::new(0, i64::MAX - 1).expect("in order");
                self.update(&Update::increment_within(key, 1, bounds))
            }
            Operation::Delete => self.update(&Update::delete(key)),
            Operation::Transaction { writes, value_bytes } => {
                let parts = self.on_one_shard(writes, value_bytes);
                self.update(&Update::Transaction { parts: parts.as_parts() })
            }
            Operation::ReadOfTwoShards => self.read_on_each(Spread::over(2)),
            Operation::Interactive { spread, .. } => self.read_on_each(spread),
            Operation::IncrementOnEach(spread) => {
                let keys = self.on_each(spread, "");
                let deltas = ItemsBuffer::deltas(keys.iter().map(|key| (key.as_bytes(), 1)));
                self.update(&Update::MultiIncrement { deltas: deltas.as_items() })
            }
            Operation::PutOnEach { spread, is_checked, value_bytes } => {
                let keys = self.on_each(spread, "");
                let absent = if is_checked { self.on_each(spread, "absent") } else { Vec::new() };
                let checks =
                    absent.iter().map(|key| Check::Meets { key: key.as_bytes(), condition: Condition::ABSENT });
                self.put_all(&keys, checks, value_bytes)
            }
        }
    }

    /// The commit of an interactive transaction which has read this.
    pub(crate) fn commit(&mut self, spread: Spread, value_bytes: usize, read: &[u8]) -> CallId {
        let keys = self.on_each(spread, "");
        let read = Outcome::decode(Shape::Values, read);
        let Ok(Outcome::Values(values)) = read else { panic!("values were asked for, not {read:?}") };
        let versions = values.iter().map(|value| value.as_ref().map_or(0, |(version, _)| *version));
        let checks = keys
            .iter()
            .zip(versions)
            .map(|(key, version)| Check::Meets { key: key.as_bytes(), condition: Condition::Version(version) });
        self.put_all(&keys, checks, value_bytes)
    }

    fn put_all<'c>(&mut self, keys: &[String], checks: impl Iterator<Item = Check<'c>>, value_bytes: usize) -> CallId {
        let mut parts = PartsBuffer::default();
        checks.for_each(|check| parts.push(self.table, &PartOperation::Check(check)));
        for key in keys {
            let put = Update::put(key.as_bytes(), &self.value[..value_bytes]);
            parts.push(self.table, &PartOperation::Update(put));
        }
        self.update(&Update::Transaction { parts: parts.as_parts() })
    }

    /// The parts of a transaction: its keys are the operation's key with endings, and in one slot.
    fn on_one_shard(&self, writes: u32, value_bytes: usize) -> PartsBuffer {
        let mut parts = PartsBuffer::default();
        let (absent, seen) = (format!("{{{}}}absent", self.key), format!("{{{}}}0", self.key));
        let check = Check::Meets { key: absent.as_bytes(), condition: Condition::ABSENT };
        parts.push(self.table, &PartOperation::Check(check));
        parts.push(self.table, &PartOperation::Read(Read::Get { key: seen.as_bytes() }));
        for number in 0..writes {
            let key = format!("{{{}}}{number}", self.key);
            let put = Update::put(key.as_bytes(), &self.value[..value_bytes]);
            parts.push(self.table, &PartOperation::Update(put));
        }
        parts
    }

    /// The names of keys on each of some shards. `what`: which keys.
    fn on_each(&self, Spread { shards, keys }: Spread, what: &str) -> Vec<String> {
        assert!(usize::from(shards) <= TAGS.len(), "an operation is of at most {} shards", TAGS.len());
        let first = (self.number % TAGS.len() as u64) as usize;
        let tags = TAGS.into_iter().cycle().skip(first).take(usize::from(shards));
        let name = |tag: &str, number: u8| match number {
            0 => format!("{{{tag}}}{what}{}", self.key),
            more => format!("{{{tag}}}{what}{}-{more}", self.key),
        };
        tags.flat_map(|tag| (0..keys).map(move |number| name(tag, number))).collect()
    }

    fn read_on_each(&mut self, spread: Spread) -> CallId {
        let keys = self.on_each(spread, "");
        let keys = ItemsBuffer::keys(keys.iter().map(String::as_bytes));
        self.ask_for_read(&Read::MultiGet { keys: keys.as_items() })
    }

    fn ask_for_read(&mut self, read: &Read<'_>) -> CallId {
        self.session.read(Clock::now(), self.table, read, None, self.out)
    }

    fn update(&mut self, update: &Update<'_>) -> CallId {
        self.session.update(Clock::now(), self.table, update, &CallOptions::default(), self.out)
    }
}

#[cfg(test)]
mod tests {
    use kasha_types::limits::SLOTS;
    use kasha_types::slot_of;

    use super::*;

    #[test]
    fn the_tags_are_of_all_quarters_and_neighbours_of_different_halves() {
        let quarters = TAGS.map(|tag| slot_of(format!("{{{tag}}}key").as_bytes()).0 / (SLOTS / 4));
        let mut sorted = quarters;
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3]);
        for (this, next) in quarters.iter().zip(quarters.iter().cycle().skip(1)) {
            assert_ne!(this / 2, next / 2, "{quarters:?}");
        }
    }
}
