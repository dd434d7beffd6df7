//! Transactions that touch all of a few keys, among many that touch two of them: who goes first?
//!
//! The same keys all the time, so that whoever is overtaken may be overtaken for ever. No search of histories ends on them; the checker
//! `oldest_first` counts instead.

use kasha_machine::Rng;
use kasha_wire::operation::{Item, ItemKind, ItemsBuffer, PartOperation, PartsBuffer};
use kasha_wire::{Read, Update};

use super::{Ask, Workload};
use crate::history::{Action, DEFAULT_TABLE, Key};

/// They share no tag.
const KEYS: u64 = 10;
/// One in so many calls touches all keys.
const WIDE: u64 = 30;

/// See the module's header.
#[derive(Debug, Default)]
pub struct Wide {
    values: u64,
}

fn key(index: u64) -> Key {
    format!("w{index}").into_bytes()
}

fn two(rng: &mut Rng) -> [Key; 2] {
    let first = rng.below(KEYS);
    [first, (first + rng.between(1, KEYS - 1)) % KEYS].map(key)
}

impl Workload for Wide {
    fn next(&mut self, rng: &mut Rng) -> Ask {
        self.values += 1;
        let mut parts = PartsBuffer::default();
        if rng.chance(1, WIDE) {
            let writes = rng.chance(1, 2);
            for key in (0..KEYS).map(key) {
                let operation = match writes {
                    true => PartOperation::Update(Update::increment(&key, 1)),
                    false => PartOperation::Read(Read::Get { key: &key }),
                };
                parts.push(DEFAULT_TABLE, &operation);
            }
            return Action::from(Update::Transaction { parts: parts.as_parts() }).into();
        }
        let pair = two(rng);
        if rng.chance(1, 4) {
            let mut pairs = ItemsBuffer::new(ItemKind::KeyValue);
            let value = self.values.to_string();
            pair.iter().for_each(|key| pairs.push(&Item { key, value: value.as_bytes(), delta: 0 }));
            return Action::from(Update::MultiPut { pairs: pairs.as_items() }).into();
        }
        for (key, delta) in pair.iter().zip([1, -1]) {
            parts.push(DEFAULT_TABLE, &PartOperation::Update(Update::increment(key, delta)));
        }
        Action::from(Update::Transaction { parts: parts.as_parts() }).into()
    }
}
