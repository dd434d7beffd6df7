//! Values that are put, deleted and read, with and without conditions.

use std::collections::BTreeMap;

use kasha_machine::Rng;
use kasha_wire::outcome::Outcome;

use super::{Ask, HotKeys, Workload};
use crate::history::{Action, Key, Told, Value};

/// Registers.
pub struct Registers {
    keys: HotKeys,
    versions: BTreeMap<Key, u64>,
    values: u64,
}

impl Registers {
    /// This many to a tag.
    #[must_use]
    pub fn new(per_tag: u64) -> Self {
        Self { keys: HotKeys::new("r", per_tag), versions: BTreeMap::new(), values: 0 }
    }

    fn value(&mut self, rng: &mut Rng) -> Value {
        self.values += 1;
        let mut value = format!("v{}", self.values).into_bytes();
        if rng.chance(1, 20) {
            // Some are longer than a witness's slot.
            value.resize(usize::try_from(rng.between(100, 3000)).expect("small"), b'.');
        }
        value
    }

    fn version(&self, rng: &mut Rng, key: &Key) -> u64 {
        let known = self.versions.get(key).copied().unwrap_or(1);
        if rng.chance(1, 5) { known + rng.below(3) } else { known }
    }
}

impl Workload for Registers {
    fn next(&mut self, rng: &mut Rng) -> Ask {
        let draw = rng.below(100);
        let key = self.keys.one(rng);
        let action = match draw {
            0..30 => Action::Put(key, self.value(rng)),
            30..55 => Action::Get(key),
            55..67 => {
                let version = self.version(rng, &key);
                Action::PutIfVersion(key, version, self.value(rng))
            }
            67..72 => Action::PutIfAbsent(key, self.value(rng)),
            72..78 => Action::Delete(key),
            78..82 => {
                let version = self.version(rng, &key);
                Action::DeleteIfVersion(key, version)
            }
            82..84 => Action::Exists(key),
            84..86 => Action::Increment(key, 1),
            86..92 => {
                let keys = self.keys.some(rng);
                Action::MultiPut(keys.into_iter().map(|key| (key, self.value(rng))).collect())
            }
            92..95 => Action::MultiDelete(self.keys.some(rng)),
            _ => Action::MultiGet(self.keys.some(rng)),
        };
        action.into()
    }

    fn told(&mut self, action: &Action, told: &Told) {
        let Told::Executed { outcome, .. } = told else { return };
        let keys = action.keys();
        match (outcome, &keys[..]) {
            (Outcome::Version(version) | Outcome::Value(version, _) | Outcome::ConditionFailed(version), [key]) => {
                self.versions.insert((*key).clone(), *version);
            }
            (Outcome::Versions(versions), keys) => {
                for (key, version) in keys.iter().zip(versions) {
                    self.versions.insert((*key).clone(), *version);
                }
            }
            _ => {}
        }
    }
}
