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
mod interactive;
mod listing;
mod mix;
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
pub use interactive::Interactive;
pub use listing::Listing;
pub use mix::{LoadKind, Mix};
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
    /// If the caller runs the transaction itself: how.
    pub interactively: Option<Interactively>,
}

/// How a program reads what its transaction asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interactively {
    /// One key after the other.
    OneByOne,
    /// All that it reads of a table at one moment.
    Together,
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
            interactively: None,
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
