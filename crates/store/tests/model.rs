//! The store against a map, on a real log: every result, and what a replay of the log makes of it.

mod common;

use std::collections::BTreeMap;

use common::Replica;
use kasha_types::TableId;
use kasha_types::limits::VALUE_BYTES_MAX;
use kasha_wire::operation::ItemsBuffer;
use kasha_wire::{Outcome, Read, Update};
use proptest::collection::vec;
use proptest::prelude::*;

const KEYS: [&[u8]; 6] = [b"a", b"b", b"{tag}c", b"", b"\0\xff", b"a longer key than the others"];
const TABLES: u32 = 2;

#[derive(Clone, Debug)]
enum Value {
    Number(i64),
    Bytes(u8, usize),
}

impl Value {
    fn bytes(&self) -> Vec<u8> {
        match *self {
            Self::Number(number) => number.to_string().into_bytes(),
            Self::Bytes(byte, len) => vec![byte; len],
        }
    }
}

/// Which version a condition names.
#[derive(Clone, Copy, Debug)]
enum Version {
    Current,
    Zero,
    Other(u64),
}

#[derive(Clone, Debug)]
enum Step {
    Put(usize, Value),
    PutIfVersion(usize, Version, Value),
    PutIfAbsent(usize, Value),
    Delete(usize),
    DeleteIfVersion(usize, Version),
    Increment(usize, i64),
    Append(usize, Value),
    MultiPut(Vec<(usize, Value)>),
    MultiDelete(Vec<usize>),
    MultiIncrement(Vec<(usize, i64)>),
    DropTable,
    Free,
    RaiseFloor,
    DropGraves,
    Follow,
    Restart,
    RestartBackup,
}

fn key() -> impl Strategy<Value = usize> {
    0..KEYS.len()
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => prop_oneof![-3..9_i64, Just(i64::MAX), Just(i64::MIN)].prop_map(Value::Number),
        3 => (any::<u8>(), 0..40_usize).prop_map(|(byte, len)| Value::Bytes(byte, len)),
        3 => (any::<u8>(), 2000..12_000_usize).prop_map(|(byte, len)| Value::Bytes(byte, len)),
    ]
}

fn delta() -> impl Strategy<Value = i64> {
    prop_oneof![8 => -5..6_i64, 1 => Just(i64::MAX), 1 => Just(i64::MIN)]
}

fn version() -> impl Strategy<Value = Version> {
    prop_oneof![4 => Just(Version::Current), 1 => Just(Version::Zero), 1 => (0..9_u64).prop_map(Version::Other)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        16 => (key(), value()).prop_map(|(key, value)| Step::Put(key, value)),
        6 => (key(), version(), value()).prop_map(|(key, version, value)| Step::PutIfVersion(key, version, value)),
        6 => (key(), value()).prop_map(|(key, value)| Step::PutIfAbsent(key, value)),
        10 => key().prop_map(Step::Delete),
        6 => (key(), version()).prop_map(|(key, version)| Step::DeleteIfVersion(key, version)),
        10 => (key(), delta()).prop_map(|(key, delta)| Step::Increment(key, delta)),
        8 => (key(), value()).prop_map(|(key, value)| Step::Append(key, value)),
        6 => vec((key(), value()), 1..5).prop_map(Step::MultiPut),
        6 => vec(key(), 1..5).prop_map(Step::MultiDelete),
        12 => vec((key(), delta()), 1..5).prop_map(Step::MultiIncrement),
        1 => Just(Step::DropTable),
        6 => Just(Step::Free),
        4 => Just(Step::RaiseFloor),
        4 => Just(Step::DropGraves),
        4 => Just(Step::Follow),
        1 => Just(Step::Restart),
        2 => Just(Step::RestartBackup),
    ]
}

/// A key that was ever written: deleted ones keep their version.
#[derive(Clone, Debug, Default)]
struct Cell {
    version: u64,
    value: Option<Vec<u8>>,
}

#[derive(Clone, Debug, Default)]
struct Model {
    cells: BTreeMap<(TableId, usize), Cell>,
    floor: u64,
}

impl Model {
    fn get(&self, table: TableId, key: usize) -> Option<(u64, Vec<u8>)> {
        let cell = self.cells.get(&(table, key))?;
        Some((cell.version, cell.value.clone()?))
    }

    fn current(&self, table: TableId, key: usize) -> u64 {
        self.get(table, key).map_or(0, |found| found.0)
    }

    fn set(&mut self, table: TableId, key: usize, value: Vec<u8>) -> u64 {
        let floor = self.floor;
        let cell = self.cells.entry((table, key)).or_default();
        cell.version = if cell.value.is_some() { cell.version } else { cell.version.max(floor) } + 1;
        cell.value = Some(value);
        cell.version
    }

    fn remove(&mut self, table: TableId, key: usize) -> Option<u64> {
        let cell = self.cells.get_mut(&(table, key)).filter(|cell| cell.value.is_some())?;
        cell.value = None;
        cell.version += 1;
        Some(cell.version - 1)
    }

    /// Redis's numbers: canonical decimal.
    fn increment(&mut self, table: TableId, key: usize, delta: i64) -> Result<(i64, u64), Outcome> {
        let old = match self.get(table, key) {
            None => 0,
            Some((_, bytes)) => {
                let text = String::from_utf8(bytes).map_err(|_| Outcome::NotANumber(0))?;
                let number: i64 = text.parse().map_err(|_| Outcome::NotANumber(0))?;
                if number.to_string() != text {
                    return Err(Outcome::NotANumber(0));
                }
                number
            }
        };
        let new = old.checked_add(delta).ok_or(Outcome::Overflow(0))?;
        let version = self.set(table, key, new.to_string().into_bytes());
        Ok((new, version))
    }

    fn multi_increment(&mut self, table: TableId, items: &[(usize, i64)]) -> Outcome {
        let before = self.clone();
        let mut numbers = Vec::new();
        for (index, &(key, delta)) in (0..).zip(items) {
            match self.increment(table, key, delta) {
                Ok(number) => numbers.push(number),
                Err(failed) => {
                    *self = before;
                    return match failed {
                        Outcome::Overflow(_) => Outcome::Overflow(index),
                        _ => Outcome::NotANumber(index),
                    };
                }
            }
        }
        Outcome::Numbers(numbers)
    }

    fn append(&mut self, table: TableId, key: usize, more: &[u8]) -> Outcome {
        let mut value = self.get(table, key).map(|found| found.1).unwrap_or_default();
        value.extend(more);
        if value.len() > VALUE_BYTES_MAX {
            return Outcome::TooLarge;
        }
        let len = value.len() as u64;
        Outcome::Length(len, self.set(table, key, value))
    }

    fn conditional(
        &mut self,
        table: TableId,
        key: usize,
        expected: u64,
        then: impl FnOnce(&mut Self) -> Outcome,
    ) -> Outcome {
        match self.current(table, key) {
            current if current != expected => Outcome::ConditionFailed(current),
            _ => then(self),
        }
    }

    fn delete(&mut self, table: TableId, key: usize) -> Outcome {
        self.remove(table, key).map_or(Outcome::NotFound, Outcome::Version)
    }
}

struct World {
    primary: Replica,
    backup: Replica,
    model: Model,
    table: TableId,
    tables_made: u32,
    tables: Vec<TableId>,
}

impl World {
    fn new() -> Self {
        Self {
            primary: Replica::default(),
            backup: Replica::default(),
            model: Model::default(),
            table: TableId(1),
            tables_made: TABLES,
            tables: (1..=TABLES).map(TableId).collect(),
        }
    }

    fn version(&self, key: usize, version: Version) -> u64 {
        match version {
            Version::Current => self.model.current(self.table, key),
            Version::Zero => 0,
            Version::Other(other) => other,
        }
    }

    /// Executes in the store; the model says what must come of it.
    fn update(&mut self, update: &Update<'_>, expected: Outcome) {
        assert_eq!(self.primary.execute(self.table, update), expected, "{update:?}");
    }

    fn multi_put(&mut self, items: &[(usize, Value)]) {
        let table = self.table;
        let items: Vec<_> = items.iter().map(|(key, value)| (*key, value.bytes())).collect();
        let set = |(key, value): &(usize, Vec<u8>)| self.model.set(table, *key, value.clone());
        let expected = Outcome::Versions(items.iter().map(set).collect());
        let list = ItemsBuffer::pairs(items.iter().map(|(key, value)| (KEYS[*key], &value[..])));
        self.update(&Update::MultiPut(list.as_items()), expected);
    }

    fn multi_delete(&mut self, keys: &[usize]) {
        let expected = keys.iter().map(|&key| self.model.remove(self.table, key).is_some()).collect();
        let list = ItemsBuffer::keys(keys.iter().map(|&key| KEYS[key]));
        self.update(&Update::MultiDelete(list.as_items()), Outcome::Flags(expected));
    }

    fn multi_increment(&mut self, items: &[(usize, i64)]) {
        let list = ItemsBuffer::deltas(items.iter().map(|&(key, delta)| (KEYS[key], delta)));
        let expected = self.model.multi_increment(self.table, items);
        let update = Update::MultiIncrement(list.as_items());
        let (result, changes) = self.primary.execute_raw(self.table, &update);
        let shape = kasha_wire::outcome::Shape::Numbers;
        assert_eq!(Outcome::decode(shape, &result), Ok(expected.clone()));
        assert_eq!(changes, matches!(expected, Outcome::Numbers(_)));
    }

    fn step(&mut self, step: &Step) {
        let table = self.table;
        match step {
            Step::Put(key, value) => {
                let expected = Outcome::Version(self.model.set(table, *key, value.bytes()));
                self.update(&Update::Put { key: KEYS[*key], value: &value.bytes() }, expected);
            }
            Step::PutIfVersion(key, version, value) => {
                let (version, value) = (self.version(*key, *version), value.bytes());
                let put = |model: &mut Model| Outcome::Version(model.set(table, *key, value.clone()));
                let expected = self.model.conditional(table, *key, version, put);
                self.update(&Update::PutIfVersion { key: KEYS[*key], version, value: &value }, expected);
            }
            Step::PutIfAbsent(key, value) => {
                let value = value.bytes();
                let put = |model: &mut Model| Outcome::Version(model.set(table, *key, value.clone()));
                let expected = self.model.conditional(table, *key, 0, put);
                self.update(&Update::PutIfAbsent { key: KEYS[*key], value: &value }, expected);
            }
            Step::Delete(key) => {
                let expected = self.model.delete(table, *key);
                self.update(&Update::Delete { key: KEYS[*key] }, expected);
            }
            Step::DeleteIfVersion(key, version) => {
                let version = self.version(*key, *version);
                let expected = self.model.conditional(table, *key, version, |model| model.delete(table, *key));
                self.update(&Update::DeleteIfVersion { key: KEYS[*key], version }, expected);
            }
            Step::Increment(key, delta) => {
                let expected = match self.model.increment(table, *key, *delta) {
                    Ok((value, version)) => Outcome::Number(value, version),
                    Err(failed) => failed,
                };
                self.update(&Update::Increment { key: KEYS[*key], delta: *delta }, expected);
            }
            Step::Append(key, value) if self.value_len(*key) < 20_000 => {
                let expected = self.model.append(table, *key, &value.bytes());
                self.update(&Update::Append { key: KEYS[*key], value: &value.bytes() }, expected);
            }
            Step::Append(..) => {} // a value of a test segment's size ends here
            Step::MultiPut(items) => self.multi_put(items),
            Step::MultiDelete(keys) => self.multi_delete(keys),
            Step::MultiIncrement(items) => self.multi_increment(items),
            Step::DropTable => self.drop_table(),
            Step::Free => {
                self.backup.follow(&self.primary.log); // a segment goes only when everything is synced
                self.primary.free_segments();
            }
            Step::RaiseFloor => {
                if let Some(floor) = self.primary.raise_floor() {
                    assert!(floor >= self.model.floor);
                    self.model.floor = floor;
                }
            }
            Step::DropGraves => drop(self.primary.drop_graves()),
            Step::Follow => self.backup.follow(&self.primary.log),
            Step::Restart => {
                self.backup.follow(&self.primary.log);
                self.primary = self.primary.restarted();
                self.primary.drop_tables_but(&self.tables);
            }
            Step::RestartBackup => self.backup = self.backup.restarted(),
        }
    }

    fn value_len(&self, key: usize) -> usize {
        self.model.get(self.table, key).map_or(0, |found| found.1.len())
    }

    /// A table's number is never used again.
    fn drop_table(&mut self) {
        let dropped = self.table;
        self.primary.drop_table(dropped);
        self.model.cells.retain(|&(table, _), _| table != dropped);
        self.tables_made += 1;
        self.tables.retain(|&table| table != dropped);
        self.tables.push(TableId(self.tables_made));
        self.table = self.tables[0];
        assert!(self.primary.values(dropped, &KEYS).iter().all(Option::is_none));
    }

    fn check_reads(&self, replica: &Replica) {
        for &table in &self.tables {
            let expected: Vec<_> = (0..KEYS.len()).map(|key| self.model.get(table, key)).collect();
            assert_eq!(replica.values(table, &KEYS), expected);
            for (key, expected) in expected.into_iter().enumerate() {
                let key = KEYS[key];
                let exists = Outcome::Flags(vec![expected.is_some()]);
                assert_eq!(replica.read(table, &Read::Exists { key }), exists);
                let got = expected.map_or(Outcome::NotFound, |(version, value)| Outcome::Value(version, value));
                assert_eq!(replica.read(table, &Read::Get { key }), got);
            }
        }
        assert_eq!(replica.store.version_floor(), self.model.floor);
    }

    fn check_leader(&self, replica: &Replica) {
        self.check_reads(replica);
        let objects = self.model.cells.values().filter(|cell| cell.value.is_some()).count();
        assert_eq!(replica.store.stats().objects, objects as u64);
        assert!(replica.store.tables().all(|table| self.tables.contains(&table)));
    }

    /// The log alone gives the same: reads, versions, counts, and what is dead.
    fn check_replay(&mut self) {
        self.check_reads(&self.primary.restarted());
        self.backup.follow(&self.primary.log);
        self.check_reads(&self.backup);
        self.primary.free_segments();
        self.backup.follow(&self.primary.log);
        let mut restarted = self.primary.restarted();
        self.check_reads(&restarted);
        assert!(restarted.store.stats().tombstones >= self.primary.store.stats().tombstones);
        for replica in [&mut self.primary, &mut self.backup, &mut restarted] {
            replica.drop_tables_but(&self.tables);
            replica.drop_graves();
        }
        for replica in [&self.primary, &self.backup, &restarted] {
            self.check_leader(replica);
            assert_eq!(replica.counts(), self.primary.counts());
            assert_eq!(replica.log.live_bytes(), self.primary.log.live_bytes());
        }
    }

    /// R4.8: each replica gives every key the same next version, whatever tombstones it dropped or never saw.
    fn check_next_versions(&mut self) {
        let restarted = self.primary.restarted();
        for mut replica in [std::mem::take(&mut self.primary), std::mem::take(&mut self.backup), restarted] {
            let mut model = self.model.clone();
            for &table in &self.tables {
                for (key, name) in KEYS.into_iter().enumerate() {
                    assert_eq!(replica.put(table, name, b"last"), model.set(table, key, b"last".to_vec()));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_store_is_a_map_and_so_is_its_replay(steps in vec((step(), 0..TABLES as usize), 1..200)) {
        let mut world = World::new();
        for (step, table) in &steps {
            world.table = world.tables[*table];
            world.step(step);
        }
        world.check_leader(&world.primary);
        world.check_replay();
        world.check_next_versions();
    }

    #[test]
    fn every_step_leaves_the_store_as_the_map(steps in vec((step(), 0..TABLES as usize), 1..40)) {
        let mut world = World::new();
        for (step, table) in &steps {
            world.table = world.tables[*table];
            world.step(step);
            world.check_leader(&world.primary);
            world.check_reads(&world.primary.restarted());
        }
    }
}
