//! Transactions of a few keys of two tables, and every other kind of operation on the same keys.
//!
//! The keys of a group share a tag, so that a transaction stays within a shard. All keys of a group are replaced together:
//! the checker `strictly_serializable` searches the history of a group as a whole.

use kasha_machine::Rng;
use kasha_types::TableId;
use kasha_wire::Update;
use kasha_wire::operation::{Item, ItemKind, ItemsBuffer, PartOperation, PartsBuffer};

use super::drawn::{Drawn, bounds};
use super::{Ask, TAGS, Workload};
use crate::history::{Action, DEFAULT_TABLE, Key, Told};

/// Operations on one group of keys before the workload moves on to fresh ones.
const GROUP_USES_MAX: u32 = 60;
/// Keys of a group in each table.
const KEYS: u64 = 2;
/// Parts of a transaction.
const PARTS_MAX: u64 = 5;
/// Operations between two drops of the second table, about: what transactions did to the other table stays.
const LEDGER_USES: u64 = 300;
/// The name of the second table.
const LEDGER: &str = "ledger";

/// The updates in transactions, by their names. Another row of the wire's table moves no draw.
const UPDATES: [&str; 16] = [
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
    "persist",
];
/// The reads in transactions.
const READS: [&str; 2] = ["get", "exists"];
/// What transactions demand.
const CHECKS: [&str; 2] = ["has-version", "has-value"];

/// The groups of keys.
#[derive(Debug, Default)]
pub struct Transactions {
    /// For each tag: how many groups were used up, and the uses of the present one.
    used: [(u32, u32); TAGS as usize],
    ledger: Option<TableId>,
    values: u64,
}

impl Transactions {
    /// A key of the group, and its table. No key is in two tables.
    fn key(&mut self, rng: &mut Rng, tag: u64) -> (TableId, Key) {
        let (index, generation) = (rng.below(KEYS), self.used[usize::try_from(tag).expect("few")].0);
        match self.ledger.filter(|_| rng.chance(1, 2)) {
            Some(ledger) => (ledger, format!("{{t{tag}}}y{index}.{generation}@{}", ledger.0).into_bytes()),
            None => (DEFAULT_TABLE, format!("{{t{tag}}}x{index}.{generation}").into_bytes()),
        }
    }

    /// Short numbers and words, of which some come again, so that conditions hold now and then and sums mostly exist.
    fn value(&mut self, rng: &mut Rng) -> Vec<u8> {
        self.values += 1;
        match rng.below(6) {
            0 => format!("w{}", self.values).into_bytes(),
            1 => b"1".to_vec(),
            _ => self.values.to_string().into_bytes(),
        }
    }

    fn part(&mut self, rng: &mut Rng, tag: u64, parts: &mut PartsBuffer) {
        let ((table, key), value) = (self.key(rng, tag), self.value(rng));
        // The version of a key that is about to be written first is 1.
        let (version, delta) = (rng.below(5), if rng.chance(1, 30) { i64::MAX } else { 1 });
        let drawn = Drawn { key: &key, value: &value, expected: &value, version, delta, bounds: bounds(rng) };
        let names: &[&str] = match rng.below(10) {
            0..6 => &UPDATES,
            6..9 => &READS,
            _ => &CHECKS,
        };
        parts.push(table, &drawn.operation(rng.pick::<&str>(names)));
    }

    fn transaction(&mut self, rng: &mut Rng, tag: u64) -> Ask {
        let mut parts = PartsBuffer::default();
        for _ in 0..rng.between(1, PARTS_MAX) {
            self.part(rng, tag, &mut parts);
        }
        of_parts(&parts)
    }

    /// What one key loses the other gains.
    fn transfer(&mut self, rng: &mut Rng, tag: u64) -> Ask {
        let mut parts = PartsBuffer::default();
        let amount = i64::try_from(rng.between(1, 9)).expect("small");
        for delta in [-amount, amount] {
            let (table, key) = self.key(rng, tag);
            parts.push(table, &PartOperation::Update(Update::increment(&key, delta)));
        }
        of_parts(&parts)
    }

    /// Both keys of the default table at once, without a transaction.
    fn of_both(&mut self, rng: &mut Rng, tag: u64) -> Action {
        let generation = self.used[usize::try_from(tag).expect("few")].0;
        let keys = (0..KEYS).map(|index| format!("{{t{tag}}}x{index}.{generation}").into_bytes());
        let keys: Vec<Key> = keys.collect();
        let mut pairs = ItemsBuffer::new(ItemKind::KeyValue);
        for key in &keys {
            pairs.push(&Item { key, value: &self.value(rng), delta: 0 });
        }
        match rng.below(4) {
            0 => Update::MultiPut { pairs: pairs.as_items() }.into(),
            1 => Action::count_all(&keys),
            _ => Action::multi_get(&keys),
        }
    }
}

fn of_parts(parts: &PartsBuffer) -> Ask {
    let parts = parts.as_parts();
    Ask { table: parts.first_table().expect("one at least"), ..Action::from(Update::Transaction { parts }).into() }
}

impl Workload for Transactions {
    fn next(&mut self, rng: &mut Rng) -> Ask {
        if self.ledger.is_none() && rng.chance(1, 4) {
            return Action::CreateTable(LEDGER.to_owned()).into();
        }
        if self.ledger.is_some() && rng.chance(1, LEDGER_USES) {
            return Action::DropTable(LEDGER.to_owned()).into();
        }
        let tag = rng.below(TAGS);
        let used = &mut self.used[usize::try_from(tag).expect("few")];
        used.1 += 1;
        if used.1 > GROUP_USES_MAX {
            *used = (used.0 + 1, 1);
        }
        match rng.below(20) {
            0..9 => self.transaction(rng, tag),
            9..12 => self.transfer(rng, tag),
            12..15 => self.of_both(rng, tag).into(),
            draw => {
                let (table, key) = self.key(rng, tag);
                let value = self.value(rng);
                let action = match draw {
                    15 => Action::put(&key, &value),
                    16 => Update::delete(&key).into(),
                    17 => Action::count(&key),
                    _ => Action::get(&key),
                };
                Ask { table, ..action.into() }
            }
        }
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
