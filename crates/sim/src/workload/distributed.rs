//! Updates of keys of several shards: transactions, transfers, and operations on many keys; beside them reads of several shards, and
//! operations on single keys.
//!
//! All keys of a group are replaced together: the checker `strictly_serializable` searches the history of a group as a whole.

use kasha_machine::Rng;
use kasha_types::TableId;
use kasha_wire::operation::{Check, Item, ItemKind, ItemsBuffer, PartOperation, PartsBuffer};
use kasha_wire::{Read, Update};

use super::{Ask, Workload};
use crate::history::{Action, DEFAULT_TABLE, Key, Told};

/// Operations on one group of keys before the workload moves on to fresh ones.
const GROUP_USES_MAX: u32 = 40;
/// Keys of a group. They share no tag.
const KEYS: u64 = 4;
/// Operations between two drops of the second table, about.
const LEDGER_USES: u64 = 100;
/// The name of the second table.
const LEDGER: &str = "distributed-ledger";

/// The groups of keys.
#[derive(Debug, Default)]
pub struct Distributed {
    /// How many groups were used up, and the uses of the present one.
    used: (u32, u32),
    values: u64,
    /// A second table, which transactions use besides, and which comes and goes.
    ledger: Option<TableId>,
}

impl Distributed {
    fn key(&self, index: u64) -> Key {
        format!("d{index}.{}", self.used.0).into_bytes()
    }

    fn any_key(&self, rng: &mut Rng) -> Key {
        self.key(rng.below(KEYS))
    }

    /// Two or more keys, in any order.
    fn some(&self, rng: &mut Rng) -> Vec<Key> {
        let mut all: Vec<Key> = (0..KEYS).map(|index| self.key(index)).collect();
        let count = rng.between(2, KEYS);
        (0..count).map(|_| all.swap_remove(usize::try_from(rng.below(all.len() as u64)).expect("few"))).collect()
    }

    /// Mostly numbers, so that sums exist.
    fn value(&mut self, rng: &mut Rng) -> Vec<u8> {
        self.values += 1;
        let word = if rng.chance(1, 10) { "w" } else { "" };
        format!("{word}{}", self.values).into_bytes()
    }

    fn part(&mut self, rng: &mut Rng, parts: &mut PartsBuffer) {
        let ((table, key), value) = (self.key_of_a_table(rng), self.value(rng));
        let key = &key[..];
        let operation = match rng.below(10) {
            0..3 => PartOperation::Update(Update::Put { key, value: &value }),
            3 => PartOperation::Update(Update::Delete { key }),
            4 => PartOperation::Update(Update::Increment { key, delta: 1 }),
            5 => PartOperation::Update(Update::GetAndPut { key, value: &value }),
            6 => PartOperation::Read(Read::Exists { key }),
            7 | 8 => PartOperation::Read(Read::Get { key }),
            _ => PartOperation::Check(Check::HasVersion { key, version: rng.below(3) }),
        };
        parts.push(table, &operation);
    }

    /// No key is in two tables.
    fn key_of_a_table(&self, rng: &mut Rng) -> (TableId, Key) {
        let key = self.any_key(rng);
        match self.ledger.filter(|_| rng.chance(1, 4)) {
            Some(ledger) => (ledger, [&key[..], format!("@{}", ledger.0).as_bytes()].concat()),
            None => (DEFAULT_TABLE, key),
        }
    }

    fn transaction(&mut self, rng: &mut Rng) -> Ask {
        let mut parts = PartsBuffer::default();
        for _ in 0..rng.between(2, 5) {
            self.part(rng, &mut parts);
        }
        let table = parts.as_parts().first_table().expect("two at least");
        Ask { table, ..Action::from(Update::Transaction { parts: parts.as_parts() }).into() }
    }

    /// What one key loses the other gains.
    fn transfer(&mut self, rng: &mut Rng) -> Action {
        let (amount, mut parts) = (i64::try_from(rng.between(1, 9)).expect("small"), PartsBuffer::default());
        for (key, delta) in self.some(rng).iter().zip([-amount, amount]) {
            parts.push(DEFAULT_TABLE, &PartOperation::Update(Update::Increment { key, delta }));
        }
        Update::Transaction { parts: parts.as_parts() }.into()
    }

    fn multi_put(&mut self, rng: &mut Rng) -> Action {
        let mut pairs = ItemsBuffer::new(ItemKind::KeyValue);
        for key in self.some(rng) {
            pairs.push(&Item { key: &key, value: &self.value(rng), delta: 0 });
        }
        Update::MultiPut { pairs: pairs.as_items() }.into()
    }

    fn multi_delete(&self, rng: &mut Rng) -> Action {
        let mut keys = ItemsBuffer::new(ItemKind::Key);
        self.some(rng).iter().for_each(|key| keys.push(&Item { key, value: &[], delta: 0 }));
        Update::MultiDelete { keys: keys.as_items() }.into()
    }
}

impl Workload for Distributed {
    fn next(&mut self, rng: &mut Rng) -> Ask {
        self.used.1 += 1;
        if self.used.1 > GROUP_USES_MAX {
            self.used = (self.used.0 + 1, 1);
        }
        if self.ledger.is_none() && rng.chance(1, 4) {
            return Action::CreateTable(LEDGER.to_owned()).into();
        }
        if self.ledger.is_some() && rng.chance(1, LEDGER_USES) {
            return Action::DropTable(LEDGER.to_owned()).into();
        }
        let action = match rng.below(20) {
            0..4 => self.multi_put(rng),
            4 => self.multi_delete(rng),
            5 | 6 => Action::count_all(&self.some(rng)),
            7..10 => return self.transaction(rng),
            10 | 11 => self.transfer(rng),
            12..15 => Action::multi_get(&self.some(rng)),
            15 => Action::get(&self.any_key(rng)),
            16 => Update::Delete { key: &self.any_key(rng) }.into(),
            17 => Action::count(&self.any_key(rng)),
            _ => {
                let value = self.value(rng);
                Action::put(&self.any_key(rng), &value)
            }
        };
        action.into()
    }

    fn told(&mut self, action: &Action, told: &Told) {
        if let (Action::CreateTable(_), Told::TableDone(table) | Told::TableExists(table)) = (action, told) {
            self.ledger = Some(*table);
        }
        if let (Action::DropTable(_), Told::TableDone(table)) = (action, told) {
            self.ledger = self.ledger.filter(|ledger| ledger != table);
        }
    }
}
