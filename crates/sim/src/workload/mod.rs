//! What clients ask for. Each run draws a mix of workloads.
//!
//! All workloads use a few hot keys, and move on to fresh ones before a key's history gets too long to search. Keys of
//! one group share a `{tag}`, so that an update of several keys stays within a shard.

mod bulk;
mod counters;
mod crowd;
mod distributed;
mod drawn;
mod expiring;
mod listing;
mod operation_keys;
mod registers;
mod rewritten;
mod snapshots;
mod spread;
mod tables;
mod tokens;
mod transactions;
mod wide;

use kasha_machine::Rng;
use kasha_types::TableId;

pub use bulk::Bulk;
pub use counters::Counters;
pub use crowd::Crowd;
pub use distributed::Distributed;
pub use expiring::Expiring;
pub use listing::Listing;
pub use operation_keys::OperationKeys;
pub use registers::Registers;
pub use rewritten::Rewritten;
pub use snapshots::Snapshots;
pub use spread::Spread;
pub use tables::Tables;
pub use tokens::Tokens;
pub use transactions::Transactions;
pub use wide::Wide;

use crate::history::{Action, DEFAULT_TABLE, Key, Told};

/// Operations on one key before the workload moves on to another key.
const KEY_USES_MAX: u32 = 40;

/// Keys of each client in a load in which most keys are soon deleted: enough for a few segments.
const CHURNING_KEYS: usize = 120;

/// Groups of keys that share a tag.
const TAGS: u64 = 6;

/// One call to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The action.
    pub action: Action,
    /// The table of the call.
    pub table: TableId,
    /// Number of the operation key, if it has one.
    pub operation_key: Option<u64>,
    /// The operation key's time to live, if it is to be short.
    pub time_to_live_millis: Option<u64>,
    /// When to stop waiting, in milliseconds.
    pub deadline_millis: Option<u64>,
    /// Whether the caller abandons the call at once.
    pub abandon: bool,
    /// Whether to cancel at the deadline.
    pub cancel: bool,
}

impl From<Action> for Ask {
    fn from(action: Action) -> Self {
        Self {
            action,
            table: DEFAULT_TABLE,
            operation_key: None,
            time_to_live_millis: None,
            deadline_millis: None,
            abandon: false,
            cancel: false,
        }
    }
}

/// A kind of load.
pub trait Workload {
    /// The next thing to ask for.
    fn next(&mut self, rng: &mut Rng) -> Ask;

    /// An earlier action had this outcome.
    fn told(&mut self, _action: &Action, _told: &Told) {}
}

/// A few hot keys. Each is replaced when it is used up.
#[derive(Debug)]
pub(crate) struct HotKeys {
    prefix: &'static str,
    per_tag: u64,
    used: Vec<(u32, u32)>,
}

impl HotKeys {
    pub(crate) fn new(prefix: &'static str, per_tag: u64) -> Self {
        let count = usize::try_from(TAGS * per_tag).expect("few");
        Self { prefix, per_tag, used: vec![(0, 0); count] }
    }

    fn key(&mut self, tag: u64, index: u64) -> Key {
        let slot = &mut self.used[usize::try_from(tag * self.per_tag + index).expect("few")];
        slot.1 += 1;
        if slot.1 > KEY_USES_MAX {
            *slot = (slot.0 + 1, 1);
        }
        format!("{{t{tag}}}{}{index}.{}", self.prefix, slot.0).into_bytes()
    }

    /// Any of the hot keys.
    pub(crate) fn one(&mut self, rng: &mut Rng) -> Key {
        let tag = rng.below(TAGS);
        self.one_of(rng, tag)
    }

    /// Any of the hot keys with this tag.
    pub(crate) fn one_of(&mut self, rng: &mut Rng, tag: u64) -> Key {
        let index = rng.below(self.per_tag);
        self.key(tag, index)
    }

    /// Several different keys with one tag.
    pub(crate) fn some(&mut self, rng: &mut Rng) -> Vec<Key> {
        let tag = rng.below(TAGS);
        self.some_of(rng, tag)
    }

    /// Several different keys with this tag.
    pub(crate) fn some_of(&mut self, rng: &mut Rng, tag: u64) -> Vec<Key> {
        let first = rng.below(self.per_tag);
        let count = rng.between(1, self.per_tag.min(3));
        (0..count).map(|step| self.key(tag, (first + step) % self.per_tag)).collect()
    }
}

/// The kind of a run's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadKind {
    /// All workloads, on a few hot keys.
    Mixed,
    /// Updates of so many keys that two of them hardly ever meet.
    Spread,
    /// Long values, more than a small memory holds.
    Bulky,
    /// Long values, of which few live long.
    Churning,
    /// Long values under a few keys: of a long log hardly anything but its end is needed.
    Rewritten,
    /// The mixed load, and beside it long values that live, all of them together about so many bytes.
    Crowded {
        /// Of the long values.
        bytes: u64,
        /// How many calls are about them, for each other one.
        weight: u64,
    },
    /// Transactions, and everything else on the same few keys.
    Transactions,
    /// Keys of several shards that are read together.
    Snapshots,
    /// Keys of several shards that are changed together.
    Distributed,
    /// Transactions of many keys among many of few.
    Wide,
    /// Values that end.
    Expiring,
    /// A table that is listed while keys come and go.
    Listing,
    /// Tables that come and go, each with so many keys that two updates hardly ever meet.
    Tables,
}

/// Draws from workloads by weight, and gives some calls short deadlines or impatient callers.
pub struct Mix {
    parts: Vec<(u64, Box<dyn Workload>)>,
    /// Per thousand: the deadline is within the time that faults take.
    pub short_deadlines: u64,
    /// Per thousand: nobody waits for the answer.
    pub abandoned: u64,
}

impl Mix {
    /// A random mix, with at least these weights of tables and of operation keys.
    pub fn drawn(rng: &mut Rng, kind: LoadKind, (tables, operation_keys): (u64, u64)) -> Self {
        let alone = |part: Box<dyn Workload>| Self { parts: vec![(1, part)], short_deadlines: 0, abandoned: 0 };
        match kind {
            LoadKind::Spread => return alone(Box::<Spread>::default()),
            LoadKind::Bulky => return alone(Box::<Bulk>::default()),
            LoadKind::Churning => return alone(Box::new(Bulk::churning(CHURNING_KEYS))),
            LoadKind::Rewritten => return alone(Box::<Rewritten>::default()),
            LoadKind::Wide => return Self { short_deadlines: rng.below(200), ..alone(Box::<Wide>::default()) },
            LoadKind::Tables => return alone(Box::new(Tables::spread())),
            LoadKind::Transactions
            | LoadKind::Snapshots
            | LoadKind::Distributed
            | LoadKind::Expiring
            | LoadKind::Listing => {
                let short_deadlines = if rng.chance(1, 2) { rng.below(200) } else { 0 };
                let abandoned = if rng.chance(1, 2) { rng.below(100) } else { 0 };
                let part: Box<dyn Workload> = match kind {
                    LoadKind::Snapshots => Box::<Snapshots>::default(),
                    LoadKind::Distributed => Box::<Distributed>::default(),
                    LoadKind::Listing => Box::<Listing>::default(),
                    LoadKind::Expiring => Box::new(Expiring::new(rng.between(1, 3))),
                    _ => Box::<Transactions>::default(),
                };
                return Self { short_deadlines, abandoned, ..alone(part) };
            }
            LoadKind::Mixed | LoadKind::Crowded { .. } => {}
        }
        let per_tag = rng.between(1, 3);
        let mut weight = |least: u64| least + rng.below(10);
        let weights = [weight(2), weight(1), weight(1), operation_keys + weight(0), weight(0), weight(0)];
        let tables = if rng.chance(1, 3) { tables.max(1) } else { tables };
        let mut parts: Vec<(u64, Box<dyn Workload>)> = vec![
            (weights[0], Box::new(Registers::new(per_tag))),
            (weights[1], Box::new(Counters::new(per_tag))),
            (weights[2], Box::new(Tokens::new(per_tag))),
            (weights[3], Box::new(OperationKeys::new(per_tag))),
            (weights[4], Box::new(Expiring::new(per_tag))),
            (weights[5], Box::<Listing>::default()),
            (tables, Box::new(Tables::new())),
        ];
        if let LoadKind::Crowded { bytes, weight } = kind {
            parts.push((weight * weights.iter().sum::<u64>(), Box::new(Crowd::new(bytes))));
        }
        let short_deadlines = if rng.chance(1, 2) { rng.below(200) } else { 0 };
        let abandoned = if rng.chance(1, 2) { rng.below(100) } else { 0 };
        Self { parts, short_deadlines, abandoned }
    }

    /// The next thing to ask for.
    ///
    /// # Panics
    /// If all weights are 0.
    pub fn next(&mut self, rng: &mut Rng) -> Ask {
        let mut draw = rng.below(self.parts.iter().map(|(weight, _)| weight).sum());
        let chosen = self.parts.iter_mut().find(|(weight, _)| {
            let here = draw < *weight;
            draw = draw.wrapping_sub(*weight);
            here
        });
        let mut ask = chosen.expect("a weight").1.next(rng);
        if rng.chance(self.short_deadlines, 1000) {
            ask.deadline_millis = Some(rng.between(1, 60));
            ask.cancel = rng.chance(1, 3);
        }
        let is_update = ask.action.update().is_some();
        ask.abandon = is_update && rng.chance(self.abandoned, 1000);
        ask
    }

    /// An earlier action had this outcome.
    pub fn told(&mut self, action: &Action, told: &Told) {
        self.parts.iter_mut().for_each(|(_, part)| part.told(action, told));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_one_update_share_a_slot_and_are_used_up() {
        let (mut keys, mut rng) = (HotKeys::new("k", 3), Rng::new(1));
        let mut uses = std::collections::BTreeMap::new();
        for _ in 0..2000 {
            let some = keys.some(&mut rng);
            let slots: Vec<_> = some.iter().map(|key| kasha_types::slot_of(key)).collect();
            assert!(slots.windows(2).all(|pair| pair[0] == pair[1]));
            some.into_iter().for_each(|key| *uses.entry(key).or_insert(0) += 1);
        }
        assert!(uses.values().all(|&uses| uses <= KEY_USES_MAX));
    }
}
