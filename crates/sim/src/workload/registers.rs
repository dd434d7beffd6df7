//! Registers: values that are put, deleted and read, with and without conditions.

use std::collections::BTreeMap;

use kasha_machine::Rng;
use kasha_wire::operation::{Condition, Item, ItemKind, ItemsBuffer};
use kasha_wire::outcome::Outcome;
use kasha_wire::{Read, Update};

use super::drawn::{Drawn, bounds, several};
use super::{Ask, HotKeys, Workload};
use crate::history::{Action, Key, Told, Value};

/// The updates of [`Registers::any_update`], by their names. Another row of the wire's table moves no draw.
const OPERATIONS: [&str; 19] = [
    "put",
    "put-if-version",
    "put-if-absent",
    "delete",
    "delete-if-version",
    "increment",
    "append",
    "get-and-put",
    "get-and-delete",
    "compare-and-put",
    "get-and-put-if-version",
    "get-and-delete-if-value",
    "increment-within",
    "increment-if-version",
    "get-and-append",
    "multi-put",
    "multi-delete",
    "multi-increment",
    "persist",
];

/// The keys, and the values that were read from them.
pub struct Registers {
    keys: HotKeys,
    versions: BTreeMap<Key, u64>,
    /// Values that were read, for conditions.
    seen: BTreeMap<Key, Value>,
    values: u64,
}

impl Registers {
    /// This many keys with each tag.
    #[must_use]
    pub fn new(per_tag: u64) -> Self {
        Self { keys: HotKeys::new("r", per_tag), versions: BTreeMap::new(), seen: BTreeMap::new(), values: 0 }
    }

    fn value(&mut self, rng: &mut Rng) -> Value {
        self.values += 1;
        let mut value = format!("v{}", self.values).into_bytes();
        if rng.chance(1, 20) {
            // Some values are longer than a witness's slot.
            value.resize(usize::try_from(rng.between(100, 3000)).expect("small"), b'.');
        }
        value
    }

    /// A random update of one key.
    fn any_update(&mut self, rng: &mut Rng, key: &Key) -> Action {
        let (value, version) = (self.value(rng), self.version(rng, key));
        let expected = self.seen.get(key).filter(|_| rng.chance(3, 4)).unwrap_or(&value);
        let keys = self.keys.some(rng);
        let lists = [ItemKind::Key, ItemKind::KeyValue, ItemKind::KeyDelta].map(|kind| {
            let mut list = ItemsBuffer::new(kind);
            keys.iter().for_each(|key| list.push(&Item { key, value: &value, delta: 1 }));
            list
        });
        let (name, bounds) = (*rng.pick(&OPERATIONS), bounds(rng));
        let drawn = Drawn { key, value: &value, expected, version, delta: 1, bounds };
        several(name, &lists).unwrap_or_else(|| drawn.update(name)).into()
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
            0..18 => Action::put(&key, &self.value(rng)),
            18..30 => self.any_update(rng, &key),
            30..55 => Action::get(&key),
            55..67 => {
                let version = self.version(rng, &key);
                Update::put_if(&key, Condition::Version(version), &self.value(rng)).into()
            }
            67..72 => Update::put_if(&key, Condition::ABSENT, &self.value(rng)).into(),
            72..78 => Update::delete(&key).into(),
            78..82 => {
                let version = self.version(rng, &key);
                Update::delete_if(&key, Condition::Version(version)).into()
            }
            82..84 => Read::Exists { key: &key }.into(),
            84..86 => Action::count(&key),
            86..92 => {
                let keys = self.keys.some(rng);
                let pairs: Vec<_> = keys.into_iter().map(|key| (key, self.value(rng))).collect();
                Action::multi_put(pairs.iter().map(|(key, value)| (&key[..], &value[..])))
            }
            92..95 => Action::multi_delete(&self.keys.some(rng)),
            _ => Action::multi_get(&self.keys.some(rng)),
        };
        action.into()
    }

    fn told(&mut self, action: &Action, told: &Told) {
        let Told::Executed { outcome, .. } = told else { return };
        let keys = action.keys();
        if let (Outcome::Value(_, value), [key]) = (outcome, &keys[..]) {
            self.seen.insert(key.to_vec(), value.clone());
        }
        match (outcome, &keys[..]) {
            (Outcome::Version(version) | Outcome::Value(version, _) | Outcome::ConditionFailed(version), [key]) => {
                self.versions.insert(key.to_vec(), *version);
            }
            (Outcome::Versions(versions), keys) => {
                for (key, version) in keys.iter().zip(versions) {
                    self.versions.insert(key.to_vec(), *version);
                }
            }
            _ => {}
        }
    }
}
