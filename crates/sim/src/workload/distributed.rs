//! Updates of keys of several shards: transactions, transfers, and operations on many keys; beside them reads of several shards, and
//! operations on single keys.
//!
//! All keys of a group are replaced together: the checker `strictly_serializable` searches the history of a group as a whole.

use kasha_machine::Rng;
use kasha_types::TableId;
use kasha_wire::operation::{Answer, Check, Condition, Item, ItemKind, ItemsBuffer, PartOperation, PartsBuffer, Terms};
use kasha_wire::{Read, Update};

use super::{Ask, Workload};
use crate::history::{Action, DEFAULT_TABLE, Key, Told};

/// Operations on one group of keys before the workload moves on to fresh ones.
const GROUP_USES_MAX: u32 = 40;
/// Keys of a group. They share no tag.
const KEYS: u64 = 4;
/// Operations between two drops of the second table, about.
const LEDGER_USES: u64 = 100;
/// Recent updates under operation keys, which may be repeated.
const REPEATABLE_MAX: usize = 8;
/// The longest of the short times to live of operation keys, in milliseconds.
const SHORT_MILLIS_MAX: u64 = 200;
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
    /// What was asked for under operation keys, and how many there were.
    repeatable: Vec<Ask>,
    operation_keys: u64,
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
        let operation = match rng.below(11) {
            10 => {
                let terms = Terms::only_if(Condition::Version(rng.below(3))).answering(Answer::Old);
                PartOperation::Update(Update::put(key, &value).with_terms(terms))
            }
            0..3 => PartOperation::Update(Update::put(key, &value)),
            3 => PartOperation::Update(Update::delete(key)),
            4 => PartOperation::Update(Update::increment(key, 1)),
            5 => PartOperation::Update(Update::get_and_put(key, &value)),
            6 => PartOperation::Read(Read::Exists { key }),
            7 | 8 => PartOperation::Read(Read::Get { key }),
            _ => PartOperation::Check(Check::Meets { key, condition: Condition::Version(rng.below(3)) }),
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
            parts.push(DEFAULT_TABLE, &PartOperation::Update(Update::increment(key, delta)));
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

    /// Now and then with an operation key.
    fn maybe_under_key(&mut self, rng: &mut Rng, ask: Ask) -> Ask {
        if !rng.chance(1, 4) {
            return ask;
        }
        self.operation_keys += 1;
        let time_to_live_millis = rng.chance(1, 5).then(|| rng.between(1, SHORT_MILLIS_MAX));
        let ask = Ask { operation_key: Some(self.operation_keys), time_to_live_millis, ..ask };
        if self.repeatable.len() == REPEATABLE_MAX {
            self.repeatable.remove(usize::try_from(rng.below(REPEATABLE_MAX as u64)).expect("small"));
        }
        self.repeatable.push(ask.clone());
        ask
    }

    /// The same again, or something else under the same operation key (R4.9). The newest is often still under way.
    fn repeat(&mut self, rng: &mut Rng) -> Ask {
        let newest = self.repeatable.last().expect("the caller looked");
        let ask = if rng.chance(1, 2) { newest.clone() } else { rng.pick(&self.repeatable).clone() };
        if ask.time_to_live_millis.is_some() || rng.chance(3, 4) {
            return ask;
        }
        let first = ask.action.keys().first().map(|key| key.to_vec()).expect("it has keys");
        let action = Action::put(&first, &self.value(rng));
        Ask { action, ..ask }
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
        if !self.repeatable.is_empty() && rng.chance(1, 10) {
            return self.repeat(rng);
        }
        let action = match rng.below(20) {
            0..4 => {
                let action = self.multi_put(rng);
                return self.maybe_under_key(rng, action.into());
            }
            4 => self.multi_delete(rng),
            5 | 6 => {
                let action = Action::count_all(&self.some(rng));
                return self.maybe_under_key(rng, action.into());
            }
            7..10 => {
                let ask = self.transaction(rng);
                return self.maybe_under_key(rng, ask);
            }
            10 | 11 => {
                let action = self.transfer(rng);
                return self.maybe_under_key(rng, action.into());
            }
            12..15 => Action::multi_get(&self.some(rng)),
            15 => Action::get(&self.any_key(rng)),
            16 => Update::delete(&self.any_key(rng)).into(),
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
