//! A store as a map: runs whole updates and reads, as the branches of their keys say.

use std::collections::BTreeMap;

use kasha_types::{ClusterTime, TableId};
use kasha_wire::outcome::Shape;
use kasha_wire::{Outcome, Read, Update};

use crate::{Branch, Effect, Ends, Part, Requires, branches, parts, parts_in};

/// A key that was ever written. A key whose value was deleted keeps its version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The version of the key's last change.
    pub version: u64,
    /// The key's value, if it has one.
    pub value: Option<Vec<u8>>,
    /// When the value ends; `None`: never.
    pub ends: Option<ClusterTime>,
}

impl Cell {
    /// The version of the key's value; 0 if it has none.
    fn current(&self) -> u64 {
        if self.value.is_some() { self.version } else { 0 }
    }

    fn takes(&self, branch: &Branch) -> bool {
        match branch.requires {
            Requires::Nothing => true,
            Requires::Version(version) => self.current() == version,
            Requires::AnotherVersion(version) => self.current() != version,
        }
    }

    /// The outcome on this key, and the key afterwards.
    fn after(&self, part: &Part<'_>, floor: u64, begun: ClusterTime) -> (Outcome, Self) {
        let mut branches = branches(part, self.value.as_deref()).into_iter();
        let Branch { effect, says, .. } = branches.find(|branch| self.takes(branch)).expect("something comes of it");
        let next = match effect {
            Effect::Keep => self.clone(),
            Effect::Put(value, ends) => {
                let before = if self.value.is_some() { self.version } else { self.version.max(floor) };
                let ends = match ends {
                    Ends::Never => None,
                    Ends::AsBefore => self.ends,
                    Ends::After(lifetime) => Some(ClusterTime(begun.0.saturating_add(lifetime.millis()))),
                };
                Self { version: before + 1, value: Some(value), ends }
            }
            Effect::Remove => Self { version: self.version + 1, value: None, ends: None },
        };
        (says.with((self.current(), self.ends), next.version), next)
    }
}

/// Keys by table, and a floor: a key without a version gets one above the floor.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// All keys that were ever written.
    pub cells: BTreeMap<(TableId, Vec<u8>), Cell>,
    /// A caller that forgets versions of deleted keys may raise this.
    pub floor: u64,
    /// Versions of the keys of a table that was flushed go on above this, too.
    floors: BTreeMap<TableId, u64>,
    /// When the updates begin that are executed from now on.
    pub begun: ClusterTime,
}

impl Model {
    /// The present state of a key.
    #[must_use]
    pub fn cell(&self, table: TableId, key: &[u8]) -> Cell {
        self.cells.get(&(table, key.to_vec())).cloned().unwrap_or_default()
    }

    /// Ends all values of a table. Versions of its keys go on above this one.
    ///
    /// # Panics
    /// If one of the keys has a greater version.
    pub fn flush(&mut self, table: TableId, version: u64) {
        self.cells.retain(|(of, _), cell| {
            *of != table || {
                assert!(cell.version <= version, "R10.7: {} is not above {cell:?}", version);
                false
            }
        });
        self.floors.insert(table, version);
    }

    /// Versions of the table's keys without a value go on above this.
    #[must_use]
    pub fn floor_of(&self, table: TableId) -> u64 {
        self.floors.get(&table).map_or(self.floor, |flushed| self.floor.max(*flushed))
    }

    /// Executes an update. If it cannot be executed on one of its keys, nothing changes.
    ///
    /// Says nothing of transactions that write or answer too many bytes.
    pub fn update(&mut self, table: TableId, update: &Update<'_>) -> Outcome {
        if let Update::Transaction { .. } = update {
            return self.transaction(table, update);
        }
        if let Update::Batch { .. } = update {
            return self.batch(table, update);
        }
        let before = self.cells.clone();
        let mut told = Vec::new();
        for (index, (key, part)) in (0..).zip(parts(&Part::Update(*update))) {
            let cell = self.cell(table, key);
            let (outcome, next) = cell.after(&part, self.floor_of(table), self.begun);
            let failed = match outcome {
                Outcome::Overflow(_) => Outcome::Overflow(index),
                Outcome::NotANumber(_) => Outcome::NotANumber(index),
                done => {
                    told.push(done);
                    if next != cell {
                        self.cells.insert((table, key.to_vec()), next);
                    }
                    continue;
                }
            };
            self.cells = before;
            return failed;
        }
        joined(update.shape(), told)
    }

    fn transaction(&mut self, table: TableId, update: &Update<'_>) -> Outcome {
        let before = self.cells.clone();
        let mut results = Vec::new();
        for (index, (table, key, part)) in (0..).zip(parts_in(table, &Part::Update(*update))) {
            let cell = self.cell(table, key);
            let (outcome, next) = cell.after(&part, self.floor_of(table), self.begun);
            if outcome.is_failure() {
                self.cells = before;
                // What a transaction fails at is told in a few bytes.
                let told = match outcome {
                    Outcome::NotReplaced(found) => Outcome::ConditionFailed(found.map_or(0, |(version, _)| version)),
                    outcome => outcome,
                };
                return Outcome::NotCommitted(index, Box::new(told));
            }
            results.push(outcome);
            if next != cell {
                self.cells.insert((table, key.to_vec()), next);
            }
        }
        Outcome::Parts(results)
    }

    /// All parts of a batch, each for itself.
    fn batch(&mut self, table: TableId, update: &Update<'_>) -> Outcome {
        let mut results = Vec::new();
        for (table, key, part) in parts_in(table, &Part::Update(*update)) {
            let cell = self.cell(table, key);
            let (outcome, next) = cell.after(&part, self.floor_of(table), self.begun);
            results.push(outcome);
            if next != cell {
                self.cells.insert((table, key.to_vec()), next);
            }
        }
        Outcome::Parts(results)
    }

    /// Deletes the values whose time is over.
    pub fn expire(&mut self, now: ClusterTime) {
        for cell in self.cells.values_mut().filter(|cell| cell.ends.is_some_and(|ends| ends <= now)) {
            *cell = Cell { version: cell.version + 1, value: None, ends: None };
        }
    }

    /// Executes a read.
    #[must_use]
    pub fn read(&self, table: TableId, read: &Read<'_>) -> Outcome {
        let told = parts(&Part::Read(*read))
            .iter()
            .map(|(key, part)| self.cell(table, key).after(part, 0, self.begun).0)
            .collect();
        joined(read.shape(), told)
    }
}

/// The result of an operation whose keys had these results.
fn joined(shape: Shape, mut told: Vec<Outcome>) -> Outcome {
    let other = |other: Outcome| -> ! { panic!("{other:?} of one of several keys") };
    match shape {
        Shape::Versions => Outcome::Versions(
            told.into_iter()
                .map(|one| if let Outcome::Version(version) = one { version } else { other(one) })
                .collect(),
        ),
        Shape::Flags => Outcome::Flags(
            told.into_iter().flat_map(|one| if let Outcome::Flags(flags) = one { flags } else { other(one) }).collect(),
        ),
        Shape::Numbers => Outcome::Numbers(
            told.into_iter()
                .map(|one| if let Outcome::Number(sum, version) = one { (sum, version) } else { other(one) })
                .collect(),
        ),
        Shape::Values => Outcome::Values(
            told.into_iter()
                .map(|one| match one {
                    Outcome::Value(version, value) => Some((version, value)),
                    Outcome::NotFound => None,
                    one => other(one),
                })
                .collect(),
        ),
        Shape::Observed => unreachable!("the model does not know the versions of absent keys"),
        _ => told.pop().expect("one key"),
    }
}
