//! A closed loop: each client has one operation under way, and sends the next one when it has the answer.
//!
//! The loop counts what clients saw: latencies, fast-path updates and retries.

use std::fmt::Write as _;
use std::time::Duration;

use hdrhistogram::Histogram;
use kasha_client::Path;
use kasha_client::session::{CallId, CallOptions, Completion, Session, WhyNot};
use kasha_machine::{Effects, Rng};
use kasha_runtime::{Application, Clock, Control};
use kasha_types::{TableId, Tick};
use kasha_wire::operation::{Check, ItemsBuffer, PartOperation, PartsBuffer};
use kasha_wire::{OutcomeCode, Read, Update};

use super::crowd::Crowd;
use super::keys::Keys;
use crate::limits::LATENCY_MAX_NANOS;

/// What an operation does, unless it is a plain read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    /// Puts a value of this many bytes.
    Put(usize),
    /// Adds one, and gets the sum.
    Increment,
    /// Deletes a key.
    Delete,
    /// A transaction: checks that a key has no value, reads a key, and puts so many others.
    Transaction {
        /// The number of keys that are put.
        writes: u32,
        /// Bytes of each value.
        value_bytes: usize,
    },
    /// Reads two keys together: one in the lower half of all slots, one in the upper half.
    ReadOfBothHalves,
    /// Adds one to such two counters together. The sums might not fit, so the participants have to agree.
    IncrementBothHalves,
    /// Puts such two keys together.
    UpdateOfBothHalves {
        /// Whether it also checks that two others have no value, so that its participants have to agree.
        is_checked: bool,
        /// Bytes of each value.
        value_bytes: usize,
    },
}

impl Operation {
    fn value_bytes(self) -> usize {
        match self {
            Self::Put(bytes) | Self::Transaction { value_bytes: bytes, .. } => bytes,
            Self::UpdateOfBothHalves { value_bytes, .. } => value_bytes,
            Self::Increment | Self::IncrementBothHalves | Self::Delete | Self::ReadOfBothHalves => 0,
        }
    }
}

/// The tags of two slots, one in each half of all slots.
const TAGS: [&str; 2] = ["b", "a"];

/// The operations that clients make.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) operation: Operation,
    pub(crate) keys: Keys,
    /// Other operations between these.
    pub(crate) beside: Option<Beside>,
    /// Of a hundred operations, how many read.
    pub(crate) reads: u64,
    /// The text before each key: a `{tag}` places all keys in one shard.
    pub(crate) prefix: String,
    /// Time between two operations; `None`: as fast as the answers come. An operation's latency counts from the time
    /// at which the operation was due.
    pub(crate) pace: Option<Duration>,
    /// Whether updates that find no memory are counted. Otherwise the first one fails the benchmark.
    pub(crate) counts_refusals: bool,
}

/// Operations of another kind, on keys of their own. The tally counts them apart, without their latencies.
#[derive(Clone, Debug)]
pub(crate) struct Beside {
    /// Of a thousand operations, how many.
    pub(crate) share: u64,
    pub(crate) operation: Operation,
    pub(crate) keys: Keys,
    pub(crate) prefix: &'static str,
}

impl Workload {
    /// Puts of this many bytes to these keys.
    pub(crate) fn puts(value_bytes: usize, keys: Keys) -> Self {
        Self::new(Operation::Put(value_bytes), keys, "key-")
    }

    /// Increments of these keys, which puts do not touch.
    pub(crate) fn increments(keys: Keys) -> Self {
        Self::new(Operation::Increment, keys, "counter-")
    }

    fn new(operation: Operation, keys: Keys, prefix: &str) -> Self {
        Self { operation, keys, beside: None, reads: 0, prefix: prefix.to_owned(), pace: None, counts_refusals: false }
    }
}

/// When clients stop.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    Operations(u64),
    Time(Duration),
}

/// What the clients saw.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// Latencies of updates and reads, in nanoseconds.
    pub(crate) latency: Histogram<u64>,
    pub(crate) updates: u64,
    pub(crate) reads: u64,
    /// Updates that were complete by their witnesses.
    pub(crate) fast: u64,
    /// Updates that took more than one attempt.
    pub(crate) retried: u64,
    /// Updates that found no memory, if the workload counts them.
    pub(crate) refused: u64,
    /// Operations of any kind that met others until their deadline, and did not happen.
    pub(crate) conflicts: u64,
    /// Operations of [`Workload::beside`] that were done.
    pub(crate) beside: u64,
    /// Time from the first question to the last answer.
    pub(crate) elapsed: Duration,
    /// The longest time without any answer.
    pub(crate) longest_gap: Duration,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            latency: Histogram::new_with_bounds(1, LATENCY_MAX_NANOS, 3).expect("valid bounds"),
            updates: 0,
            reads: 0,
            fast: 0,
            retried: 0,
            refused: 0,
            conflicts: 0,
            beside: 0,
            elapsed: Duration::ZERO,
            longest_gap: Duration::ZERO,
        }
    }

    /// All operations that were done.
    pub(crate) fn operations(&self) -> u64 {
        self.updates + self.reads + self.beside
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.latency.add(&other.latency).expect("the same bounds");
        self.updates += other.updates;
        self.reads += other.reads;
        self.fast += other.fast;
        self.retried += other.retried;
        self.refused += other.refused;
        self.conflicts += other.conflicts;
        self.beside += other.beside;
        self.elapsed += other.elapsed;
        self.longest_gap = self.longest_gap.max(other.longest_gap);
    }
}

#[derive(Clone, Copy, Debug)]
struct UnderWay {
    call: CallId,
    sent: Tick,
    /// It is of another kind than what is measured.
    is_beside: bool,
}

/// The loop of some clients of a crowd.
#[derive(Debug)]
pub(crate) struct Load<'w> {
    table: TableId,
    workload: &'w Workload,
    rng: &'w mut Rng,
    limit: Limit,
    under_way: Vec<Option<UnderWay>>,
    value: Vec<u8>,
    key: String,
    sent: u64,
    began: Tick,
    last_answer: Tick,
    pub(crate) tally: Tally,
    /// The first operation that was not done.
    pub(crate) failure: Option<String>,
}

impl<'w> Load<'w> {
    pub(crate) fn new(table: TableId, clients: usize, workload: &'w Workload, limit: Limit, rng: &'w mut Rng) -> Self {
        let beside = workload.beside.as_ref().map_or(0, |beside| beside.operation.value_bytes());
        let value_bytes = workload.operation.value_bytes().max(beside);
        let now = Clock::now();
        Self {
            table,
            workload,
            rng,
            limit,
            under_way: vec![None; clients],
            value: vec![b'v'; value_bytes],
            key: String::new(),
            sent: 0,
            began: now,
            last_answer: now,
            tally: Tally::new(),
            failure: None,
        }
    }

    /// The number of the first key of [`Keys::Each`].
    pub(crate) fn starting_at(mut self, first: u64) -> Self {
        self.limit = match self.limit {
            Limit::Operations(operations) => Limit::Operations(operations + first),
            time @ Limit::Time(_) => time,
        };
        self.sent = first;
        self
    }

    fn is_over(&self, now: Tick) -> bool {
        self.failure.is_some()
            || match self.limit {
                Limit::Operations(operations) => self.sent >= operations,
                Limit::Time(time) => now.since(self.began) >= time,
            }
    }

    /// Stops the loop when the operations under way are answered.
    pub(crate) fn end(&mut self) {
        self.limit = Limit::Operations(0);
    }

    fn on_completed(&mut self, done: UnderWay, completion: Completion, session: &mut Session) {
        let UnderWay { sent, is_beside, .. } = done;
        let now = Clock::now();
        match completion {
            Completion::Executed { result, .. } | Completion::Read { result } if is_beside => {
                if result.first() != Some(&(OutcomeCode::Done as u8)) {
                    self.failure.get_or_insert_with(|| format!("beside others nothing changed: {result:?}"));
                }
                self.tally.beside += 1;
                self.tally.elapsed = now.since(self.began);
                return session.recycle(result);
            }
            // It met others until its deadline.
            Completion::NotExecuted(WhyNot::Conflict) => {
                self.tally.conflicts += 1;
                self.tally.elapsed = now.since(self.began);
                return;
            }
            Completion::Executed { result, path, attempts } => {
                if !self.is_done(&result) {
                    self.failure.get_or_insert_with(|| format!("{:?} changed nothing: {result:?}", self.workload));
                }
                session.recycle(result);
                self.tally.updates += 1;
                self.tally.fast += u64::from(path == Path::Fast);
                self.tally.retried += u64::from(attempts > 1);
            }
            Completion::Read { result } => {
                session.recycle(result);
                self.tally.reads += 1;
            }
            Completion::NotExecuted(WhyNot::OutOfMemory) if self.workload.counts_refusals => {
                self.tally.refused += 1;
                return;
            }
            other => {
                self.failure.get_or_insert_with(|| format!("{other:?}"));
                return;
            }
        }
        let nanos = |since: Tick| u64::try_from(now.since(since).as_nanos()).unwrap_or(u64::MAX);
        self.tally.latency.saturating_record(nanos(sent));
        self.tally.longest_gap = self.tally.longest_gap.max(now.since(self.last_answer));
        self.last_answer = now;
        self.tally.elapsed = now.since(self.began);
    }

    /// Whether an update did what it says. (Deletes may find nothing.)
    fn is_done(&self, result: &[u8]) -> bool {
        result.first() == Some(&(OutcomeCode::Done as u8)) || matches!(self.workload.operation, Operation::Delete)
    }

    fn send(&mut self, session: &mut Session, out: &mut Effects) -> UnderWay {
        self.key.clear();
        let workload = self.workload;
        let beside = workload.beside.as_ref().filter(|beside| self.rng.chance(beside.share, 1000));
        let (operation, keys, prefix) = match beside {
            Some(beside) => (beside.operation, &beside.keys, beside.prefix),
            None => (workload.operation, &workload.keys, workload.prefix.as_str()),
        };
        let (number, is_beside) = (keys.draw(self.sent, self.rng), beside.is_some());
        write!(self.key, "{prefix}{number:08}").expect("a string takes it");
        let now = Clock::now();
        let due = self.due().unwrap_or(now);
        self.sent += 1;
        let key = self.key.as_bytes();
        let call = if !is_beside && self.workload.reads > 0 && self.rng.chance(self.workload.reads, 100) {
            session.read(now, self.table, &Read::Get { key }, None, out)
        } else if let Operation::ReadOfBothHalves = operation {
            let keys = TAGS.map(|tag| format!("{{{tag}}}{}", self.key));
            let keys = ItemsBuffer::keys(keys.iter().map(String::as_bytes));
            session.read(now, self.table, &Read::MultiGet { keys: keys.as_items() }, None, out)
        } else if let Operation::IncrementBothHalves = operation {
            let keys = TAGS.map(|tag| format!("{{{tag}}}{}", self.key));
            let deltas = ItemsBuffer::deltas(keys.iter().map(|key| (key.as_bytes(), 1)));
            let update = Update::MultiIncrement { deltas: deltas.as_items() };
            session.update(now, self.table, &update, &CallOptions::default(), out)
        } else if let Operation::UpdateOfBothHalves { is_checked, value_bytes } = operation {
            let parts = self.parts_of_both_halves(is_checked, value_bytes);
            let update = Update::Transaction { parts: parts.as_parts() };
            session.update(now, self.table, &update, &CallOptions::default(), out)
        } else if let Operation::Transaction { writes, value_bytes } = operation {
            let parts = self.parts(writes, value_bytes);
            let update = Update::Transaction { parts: parts.as_parts() };
            session.update(now, self.table, &update, &CallOptions::default(), out)
        } else {
            let update = match operation {
                Operation::Put(bytes) => Update::Put { key, value: &self.value[..bytes] },
                Operation::Increment => Update::Increment { key, delta: 1 },
                Operation::Delete => Update::Delete { key },
                Operation::Transaction { .. }
                | Operation::ReadOfBothHalves
                | Operation::IncrementBothHalves
                | Operation::UpdateOfBothHalves { .. } => unreachable!("made before"),
            };
            session.update(now, self.table, &update, &CallOptions::default(), out)
        };
        UnderWay { call, sent: due, is_beside }
    }

    /// The parts of a transaction: its keys are the operation's key with endings, and in one slot.
    fn parts(&self, writes: u32, value_bytes: usize) -> PartsBuffer {
        let mut parts = PartsBuffer::default();
        let (absent, seen) = (format!("{{{}}}absent", self.key), format!("{{{}}}0", self.key));
        let check = Check::HasVersion { key: absent.as_bytes(), version: 0 };
        parts.push(self.table, &PartOperation::Check(check));
        parts.push(self.table, &PartOperation::Read(Read::Get { key: seen.as_bytes() }));
        for number in 0..writes {
            let key = format!("{{{}}}{number}", self.key);
            let put = Update::Put { key: key.as_bytes(), value: &self.value[..value_bytes] };
            parts.push(self.table, &PartOperation::Update(put));
        }
        parts
    }

    fn parts_of_both_halves(&self, is_checked: bool, value_bytes: usize) -> PartsBuffer {
        let mut parts = PartsBuffer::default();
        for tag in TAGS {
            if is_checked {
                let absent = format!("{{{tag}}}absent{}", self.key);
                let check = Check::HasVersion { key: absent.as_bytes(), version: 0 };
                parts.push(self.table, &PartOperation::Check(check));
            }
            let key = format!("{{{tag}}}{}", self.key);
            let put = Update::Put { key: key.as_bytes(), value: &self.value[..value_bytes] };
            parts.push(self.table, &PartOperation::Update(put));
        }
        parts
    }

    /// When the next operation is due, if the load is paced.
    fn due(&self) -> Option<Tick> {
        let nanos = |pace: Duration| u64::try_from(pace.as_nanos()).unwrap_or(u64::MAX).saturating_mul(self.sent);
        self.workload.pace.map(|pace| self.began.after(Duration::from_nanos(nanos(pace))))
    }

    fn is_due(&self) -> bool {
        self.due().is_none_or(|due| due <= Clock::now())
    }
}

impl Application<Crowd> for Load<'_> {
    fn turn(&mut self, now: Tick, crowd: &mut Crowd, out: &mut Effects) -> Control {
        let mut busy = false;
        for (client, session) in crowd.sessions().iter_mut().take(self.under_way.len()).enumerate() {
            while let Some((call, completion)) = session.poll_completed() {
                if let Some(done) = self.under_way[client].take_if(|ours| ours.call == call) {
                    self.on_completed(done, completion, session);
                }
            }
            if self.under_way[client].is_none() && !self.is_over(now) && self.is_due() {
                self.under_way[client] = Some(self.send(session, out));
            }
            busy |= self.under_way[client].is_some();
        }
        if busy || !self.is_over(now) { Control::Continue } else { Control::Exit }
    }

    fn next_wake(&self) -> Option<Tick> {
        self.due().filter(|_| self.under_way.iter().any(Option::is_none))
    }
}

#[cfg(test)]
mod tests {
    use kasha_types::limits::SLOTS;
    use kasha_types::slot_of;

    use super::*;

    #[test]
    fn the_tags_are_of_both_halves() {
        let is_upper = TAGS.map(|tag| slot_of(format!("{{{tag}}}key").as_bytes()).0 >= SLOTS / 2);
        assert_eq!(is_upper, [false, true]);
    }
}
