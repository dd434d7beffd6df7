//! Keys that are read together although they are of several shards, and updates of single ones among them.
//!
//! All keys of a group are replaced together: the checker `strictly_serializable` searches the history of a group as a whole.

use kasha_machine::Rng;
use kasha_wire::Update;

use super::{Ask, Workload};
use crate::history::{Action, Key};

/// Operations on one group of keys before the workload moves on to fresh ones.
const GROUP_USES_MAX: u32 = 50;
/// Keys of a group. They share no tag.
const KEYS: u64 = 4;

/// The groups of keys.
#[derive(Debug, Default)]
pub struct Snapshots {
    /// How many groups were used up, and the uses of the present one.
    used: (u32, u32),
    values: u64,
}

impl Snapshots {
    fn key(&self, index: u64) -> Key {
        format!("s{index}.{}", self.used.0).into_bytes()
    }

    /// Two or more keys, in any order.
    fn some(&self, rng: &mut Rng) -> Vec<Key> {
        let mut all: Vec<Key> = (0..KEYS).map(|index| self.key(index)).collect();
        let count = rng.between(2, KEYS);
        (0..count).map(|_| all.swap_remove(usize::try_from(rng.below(all.len() as u64)).expect("few"))).collect()
    }
}

impl Workload for Snapshots {
    fn next(&mut self, rng: &mut Rng) -> Ask {
        self.used.1 += 1;
        if self.used.1 > GROUP_USES_MAX {
            self.used = (self.used.0 + 1, 1);
        }
        self.values += 1;
        let (key, value) = (self.key(rng.below(KEYS)), self.values.to_string());
        let action = match rng.below(10) {
            0..4 => Action::multi_get(&self.some(rng)),
            4 => Action::get(&key),
            5 | 6 => Update::delete(&key).into(),
            7 => Action::count(&key),
            _ => Action::put(&key, value.as_bytes()),
        };
        action.into()
    }
}
