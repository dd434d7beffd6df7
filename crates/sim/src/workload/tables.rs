//! Tables that are created, used and dropped, under a few names.
//!
//! The checker `tables` reads the results; keys of different tables are never the same.

use std::collections::BTreeMap;

use kasha_machine::Rng;
use kasha_types::TableId;

use super::{Ask, HotKeys, Workload};
use crate::history::{Action, Key, Told};

/// Names that tables are given.
const NAMES: [&str; 3] = ["red", "green", "blue"];

/// How long a call waits for a table that may never exist.
const GUESS_MILLIS: u64 = 1_000;

/// The number of tables that were seen and may still be used. Some of them are dropped by now.
const KNOWN_MAX: usize = 6;

/// How long a call waits for a table that was dropped.
const DROPPED_MILLIS: u64 = 200;

/// Keys of a table in which two updates should hardly ever meet.
const SPREAD_KEYS: u64 = 1_000;

/// The tables that the workload knows.
pub struct Tables {
    is_spread: bool,
    /// The table that was dropped last.
    dropped: Option<TableId>,
    known: Vec<TableId>,
    keys: BTreeMap<TableId, HotKeys>,
    values: u64,
}

impl Tables {
    /// No table is known yet.
    #[must_use]
    pub fn new() -> Self {
        Self { is_spread: false, dropped: None, known: Vec::new(), keys: BTreeMap::new(), values: 0 }
    }

    /// Only puts that hardly ever meet, which need no sync, and tables with shorter lives.
    #[must_use]
    pub fn spread() -> Self {
        Self { is_spread: true, ..Self::new() }
    }

    fn next_spread(&mut self, rng: &mut Rng) -> Ask {
        if self.known.is_empty() || rng.chance(1, 20) {
            let name = (*rng.pick(&NAMES)).to_owned();
            return if rng.chance(1, 2) { Action::CreateTable(name) } else { Action::DropTable(name) }.into();
        }
        // Some clients go on with a dropped table. A client that knows that it is dropped would wait for a newer
        // configuration.
        let dropped = self.dropped.filter(|_| rng.chance(1, 4));
        let table = dropped.unwrap_or_else(|| *rng.pick(&self.known));
        let key = format!("s{}@{}", rng.below(SPREAD_KEYS), table.0).into_bytes();
        self.values += 1;
        let deadline_millis = dropped.map(|_| DROPPED_MILLIS);
        Ask { table, deadline_millis, ..Action::put(&key, format!("t{}", self.values).as_bytes()).into() }
    }

    /// A key that no other table has, so that a history can name it without its table.
    fn key(&mut self, rng: &mut Rng, table: TableId) -> Key {
        let mut key = self.keys.entry(table).or_insert_with(|| HotKeys::new("t", 1)).one(rng);
        key.extend_from_slice(format!("@{}", table.0).as_bytes());
        key
    }
}

impl Default for Tables {
    fn default() -> Self {
        Self::new()
    }
}

impl Workload for Tables {
    fn next(&mut self, rng: &mut Rng) -> Ask {
        if self.is_spread {
            return self.next_spread(rng);
        }
        let draw = rng.below(40);
        if self.known.is_empty() || draw < 2 {
            let name = (*rng.pick(&NAMES)).to_owned();
            return if rng.chance(2, 3) { Action::CreateTable(name) } else { Action::DropTable(name) }.into();
        }
        // The next table may exist already: a configuration names it before its creator is told.
        let next = TableId(1 + self.known.iter().map(|table| table.0).max().expect("some are known"));
        let is_guess = rng.chance(1, 12);
        let table = if is_guess { next } else { *rng.pick(&self.known) };
        let key = self.key(rng, table);
        self.values += 1;
        let action = match draw {
            2..18 => Action::put(&key, format!("t{}", self.values).as_bytes()),
            18..26 => Action::count(&key),
            _ => Action::get(&key),
        };
        Ask { table, deadline_millis: is_guess.then_some(GUESS_MILLIS), ..action.into() }
    }

    fn told(&mut self, action: &Action, told: &Told) {
        if let (true, Action::DropTable(_), Told::TableDone(table)) = (self.is_spread, action, told) {
            self.known.retain(|known| known != table);
            self.dropped = Some(*table);
        }
        if let (Action::CreateTable(_), Told::TableDone(table) | Told::TableExists(table)) = (action, told)
            && !self.known.contains(table)
        {
            if self.known.len() == KNOWN_MAX {
                self.known.remove(0);
            }
            self.known.push(*table);
        }
    }
}
