//! Programs that read keys of several shards, and write and commit what they make of that; beside them updates and reads of the same keys.
//!
//! All keys of a group are replaced together: the checker `strictly_serializable` searches the history of a group as a whole.

use kasha_machine::Rng;
use kasha_wire::operation::{PartOperation, PartsBuffer};
use kasha_wire::{Read, Update};

use super::{Ask, Interactively, Workload};
use crate::history::{Action, DEFAULT_TABLE, Key};

/// Calls and programs on one group of keys before the workload moves on to fresh ones. A program is several operations.
const GROUP_USES_MAX: u32 = 16;
/// Keys of a group. They share no tag.
const KEYS: u64 = 4;

/// The groups of keys.
#[derive(Debug, Default)]
pub struct Interactive {
    /// How many groups were used up, and the uses of the present one.
    used: (u32, u32),
    values: u64,
}

impl Interactive {
    fn key(&self, index: u64) -> Key {
        format!("i{index}.{}", self.used.0).into_bytes()
    }

    /// Some keys, in any order.
    fn some(&self, rng: &mut Rng, least: u64) -> Vec<Key> {
        let mut all: Vec<Key> = (0..KEYS).map(|index| self.key(index)).collect();
        let count = rng.between(least, KEYS);
        (0..count).map(|_| all.swap_remove(usize::try_from(rng.below(all.len() as u64)).expect("few"))).collect()
    }

    /// Mostly numbers, so that sums exist.
    fn value(&mut self, rng: &mut Rng) -> Vec<u8> {
        self.values += 1;
        let word = if rng.chance(1, 10) { "w" } else { "" };
        format!("{word}{}", self.values).into_bytes()
    }

    /// Reads first, mostly. Some write what they have not read, some read what they have written, some write nothing.
    fn program(&mut self, rng: &mut Rng) -> Ask {
        let mut parts = PartsBuffer::default();
        let get = |parts: &mut PartsBuffer, key: &[u8]| {
            parts.push(DEFAULT_TABLE, &PartOperation::Read(Read::Get { key }));
        };
        self.some(rng, 1).iter().for_each(|key| get(&mut parts, key));
        for _ in 0..rng.below(3) {
            let (key, value) = (self.key(rng.below(KEYS)), self.value(rng));
            let key = &key[..];
            let update = match rng.below(5) {
                0 => Update::delete(key),
                1 | 2 => Update::increment(key, 1),
                _ => Update::put(key, &value),
            };
            parts.push(DEFAULT_TABLE, &PartOperation::Update(update));
            if rng.chance(1, 3) {
                get(&mut parts, key);
            }
        }
        let how = if rng.chance(1, 2) { Interactively::OneByOne } else { Interactively::Together };
        let transaction = Action::from(Update::Transaction { parts: parts.as_parts() });
        Ask { interactively: Some(how), ..transaction.into() }
    }
}

impl Workload for Interactive {
    fn next(&mut self, rng: &mut Rng) -> Ask {
        self.used.1 += 1;
        if self.used.1 > GROUP_USES_MAX {
            self.used = (self.used.0 + 1, 1);
        }
        match rng.below(12) {
            0..6 => self.program(rng),
            6 | 7 => {
                let pairs: Vec<_> = self.some(rng, 2).into_iter().map(|key| (key, self.value(rng))).collect();
                Action::multi_put(pairs.iter().map(|(key, value)| (&key[..], &value[..]))).into()
            }
            8 => Action::multi_get(&self.some(rng, 2)).into(),
            9 => Action::count(&self.key(rng.below(KEYS))).into(),
            _ => {
                let value = self.value(rng);
                Action::put(&self.key(rng.below(KEYS)), &value).into()
            }
        }
    }
}
