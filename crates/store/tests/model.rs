//! The store against a map, on a real log: every result, and what a replay of the log makes of it.

use std::cell::Cell;

use crate::common::Replica;
use kasha_log::IndexCursor;
use kasha_reference::Model;
use kasha_types::{ClusterTime, TableId};
use kasha_wire::operation::arguments::Source;
use kasha_wire::operation::{
    Bounds, Check, Item, ItemKind, Items, ItemsBuffer, Lifetime, PartOperation, Parts, PartsBuffer,
};
use kasha_wire::{Read, Update};
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

/// Which value a condition names.
#[derive(Clone, Debug)]
enum Expected {
    Current,
    Other(Value),
}

/// An update of the table of operations: those of one key have the first item's.
#[derive(Clone, Debug)]
struct Drawn {
    code: u8,
    items: Vec<(usize, Value, i64)>,
    version: Version,
    expected: Expected,
    /// Of a transaction, the operation and the table of each item.
    parts: Vec<(u8, usize)>,
    /// What the terms and ends of its operations are drawn from.
    which: u64,
}

/// Bytes of a value that a transaction finds or writes: all of it must fit a test segment.
const PART_VALUE_BYTES_MAX: usize = 1000;
const FOUND_VALUE_BYTES_MAX: usize = 2500;

#[derive(Clone, Debug)]
enum Step {
    Update(Drawn),
    Wait(u64),
    Expire,
    DropTable,
    Flush,
    Sweep,
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

fn expected() -> impl Strategy<Value = Expected> {
    prop_oneof![3 => Just(Expected::Current), 1 => value().prop_map(Expected::Other)]
}

fn update() -> impl Strategy<Value = Step> {
    let code = prop_oneof![1 => Just(Update::put(b"", b"").code()), 5 => select_code()];
    let parts = vec((part_code(), 0..TABLES as usize), 4);
    (code, vec((key(), value(), delta()), 1..5), version(), expected(), parts, any::<u64>()).prop_map(
        |(code, items, version, expected, parts, which)| {
            Step::Update(Drawn { code, items, version, expected, parts, which })
        },
    )
}

/// The code of an operation that can be a part of a transaction.
fn part_code() -> impl Strategy<Value = u8> {
    let rows = Update::ALL.iter().chain(Read::ALL).chain(Check::ALL).filter(|row| row.has_one_key());
    prop::sample::select(rows.map(|row| row.code).collect::<Vec<_>>())
}

fn select_code() -> impl Strategy<Value = u8> {
    prop::sample::select(Update::ALL).prop_map(|row| row.code)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        78 => update(),
        4 => (1..4_u64).prop_map(Step::Wait),
        4 => Just(Step::Expire),
        1 => Just(Step::DropTable),
        2 => Just(Step::Flush),
        4 => Just(Step::Sweep),
        6 => Just(Step::Free),
        4 => Just(Step::RaiseFloor),
        4 => Just(Step::DropGraves),
        4 => Just(Step::Follow),
        1 => Just(Step::Restart),
        2 => Just(Step::RestartBackup),
    ]
}

/// The arguments of an update.
struct Given {
    key: &'static [u8],
    values: Vec<Vec<u8>>,
    version: u64,
    expected: Vec<u8>,
    delta: i64,
    bounds: Bounds,
    lifetime: Lifetime,
    lists: [ItemsBuffer; 3],
    parts: PartsBuffer,
    /// The same that are of the first one's table and demand nothing.
    batch: PartsBuffer,
    /// The last draw of terms and ends.
    which: Cell<u64>,
}

impl<'a> Source<'a> for &'a Given {
    type Error = &'static str;

    fn no_such_operation(what: &'static str) -> &'static str {
        what
    }
    fn key(&mut self) -> Result<&'a [u8], &'static str> {
        Ok(self.key)
    }
    fn value(&mut self) -> Result<&'a [u8], &'static str> {
        Ok(&self.values[0])
    }
    fn expected(&mut self) -> Result<&'a [u8], &'static str> {
        Ok(&self.expected)
    }
    fn version(&mut self) -> Result<u64, &'static str> {
        Ok(self.version)
    }
    fn which(&mut self, of: &[u8]) -> Result<u8, &'static str> {
        // Mostly nothing of what may be there.
        self.which.set(self.which.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        let drawn = (self.which.get() >> 33) as usize;
        Ok(of[if drawn.is_multiple_of(2) { 0 } else { drawn / 2 % of.len() }])
    }
    fn delta(&mut self) -> Result<i64, &'static str> {
        Ok(self.delta)
    }
    fn bounds(&mut self) -> Result<Bounds, &'static str> {
        Ok(self.bounds)
    }
    fn lifetime(&mut self) -> Result<Lifetime, &'static str> {
        Ok(self.lifetime)
    }
    fn items(&mut self, kind: ItemKind) -> Result<Items<'a>, &'static str> {
        Ok(self.lists[kind as usize].as_items())
    }
    fn parts(&mut self) -> Result<Parts<'a>, &'static str> {
        Ok(self.parts.as_parts())
    }
    fn batch(&mut self) -> Result<Parts<'a>, &'static str> {
        Ok(self.batch.as_parts())
    }
}

struct World {
    primary: Replica,
    backup: Replica,
    model: Model,
    table: TableId,
    tables_made: u32,
    tables: Vec<TableId>,
    has_restarted: bool,
    sweeping: IndexCursor,
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
            has_restarted: false,
            sweeping: IndexCursor::default(),
        }
    }

    /// What an update is given that has this item for its first, and this table.
    fn given(&self, table: TableId, drawn: &Drawn, first: usize) -> Given {
        let (key, _, delta) = drawn.items[first];
        let cell = self.model.cell(table, KEYS[key]);
        Given {
            key: KEYS[key],
            values: drawn.items[first..].iter().map(|(_, value, _)| value.bytes()).collect(),
            version: match drawn.version {
                Version::Current if cell.value.is_some() => cell.version,
                Version::Current | Version::Zero => 0,
                Version::Other(other) => other,
            },
            expected: match &drawn.expected {
                Expected::Current => cell.value.clone().unwrap_or_default(),
                Expected::Other(value) => value.bytes(),
            },
            delta,
            bounds: match drawn.which % 3 {
                0 => Bounds::new(-(drawn.items.len() as i64), 3).expect("in order"),
                _ => Bounds::NONE,
            },
            lifetime: Lifetime::from_millis(1 + delta.unsigned_abs() % 8).expect("not 0"),
            lists: [ItemKind::Key, ItemKind::KeyValue, ItemKind::KeyDelta].map(|kind| {
                let mut list = ItemsBuffer::new(kind);
                for (key, value, delta) in &drawn.items {
                    list.push(&Item { key: KEYS[*key], value: &value.bytes(), delta: *delta });
                }
                list
            }),
            parts: PartsBuffer::default(),
            batch: PartsBuffer::default(),
            which: Cell::new(drawn.which.wrapping_add(first as u64)),
        }
    }

    fn parts(&self, drawn: &Drawn) -> PartsBuffer {
        let mut parts = PartsBuffer::default();
        for (item, &(code, table)) in drawn.parts.iter().enumerate().take(drawn.items.len()) {
            let table = self.tables[table];
            let mut given = self.given(table, drawn, item);
            given.values[0].truncate(PART_VALUE_BYTES_MAX);
            let operation = PartOperation::build(code, &mut &given).expect("a code of a part");
            parts.push(table, &operation);
        }
        parts
    }

    /// Executes in the store; the model says what must come of it.
    fn update(&mut self, drawn: &Drawn) {
        let (parts, mut batch) = (self.parts(drawn), PartsBuffer::default());
        let of_batch = parts.as_parts().iter().filter(|part| !matches!(part.operation, PartOperation::Check(_)));
        of_batch.for_each(|part| batch.push(self.table, &part.operation));
        batch.push(self.table, &PartOperation::Read(Read::Exists { key: KEYS[0] }));
        let given = Given { parts, batch, ..self.given(self.table, drawn, 0) };
        let update = Update::build(drawn.code, &mut &given).expect("a code of the table");
        // A test segment ends soon after.
        let is_longer =
            |table, key: &[u8], max| self.model.cell(table, key).value.is_some_and(|value| value.len() > max);
        let mut is_too_long = false;
        update.for_each_key(self.table, |table, key| {
            is_too_long |= match update {
                Update::Append { .. } => is_longer(table, key, 20_000),
                Update::Transaction { .. } | Update::Batch { .. } => is_longer(table, key, FOUND_VALUE_BYTES_MAX),
                _ => false,
            };
        });
        if is_too_long {
            return;
        }
        let before = self.model.cells.clone();
        let expected = self.model.update(self.table, &update);
        let (outcome, changes) = self.primary.execute(self.table, &update);
        assert_eq!(outcome, expected, "{update:?}");
        assert_eq!(changes, self.model.cells != before, "{update:?}");
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Update(drawn) => self.update(drawn),
            Step::Wait(millis) => {
                self.model.begun.0 += millis;
                self.primary.now = self.model.begun;
            }
            Step::Expire => {
                self.model.expire(self.model.begun);
                self.primary.sweep_all(); // the walk waits for what was flushed
                self.primary.expire();
                assert!(!self.primary.store.has_due(self.primary.now));
            }
            Step::DropTable => self.drop_table(),
            Step::Flush => {
                if let Some(version) = self.primary.flush(self.table) {
                    self.model.flush(self.table, version);
                }
            }
            Step::Sweep => {
                if self.primary.sweep(&mut self.sweeping) {
                    self.sweeping = IndexCursor::default();
                }
            }
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
                self.has_restarted = true;
                self.primary.drop_tables_but(&self.tables);
            }
            Step::RestartBackup => self.backup = self.backup.restarted(),
        }
    }

    /// A table's number is never used again.
    fn drop_table(&mut self) {
        let dropped = self.table;
        self.primary.drop_table(dropped);
        self.model.cells.retain(|(table, _), _| *table != dropped);
        self.tables_made += 1;
        self.tables.retain(|&table| table != dropped);
        self.tables.push(TableId(self.tables_made));
        self.table = self.tables[0];
        assert!(self.primary.values(dropped, &KEYS).iter().all(Option::is_none));
    }

    fn check_reads(&self, replica: &Replica) {
        for &table in &self.tables {
            let all = ItemsBuffer::keys(KEYS);
            let all = Read::MultiGet { keys: all.as_items() };
            let each =
                KEYS.into_iter().flat_map(|key| [Read::Exists { key }, Read::Get { key }, Read::TimeToLive { key }]);
            for read in each.chain([all]) {
                assert_eq!(replica.read(table, &read), self.model.read(table, &read), "{read:?}");
            }
        }
        assert_eq!(replica.store.version_floor(), self.model.floor);
        for &table in &self.tables {
            let observed = match replica.read(table, &Read::Observe { keys: ItemsBuffer::keys(KEYS).as_items() }) {
                kasha_wire::Outcome::Observed(observed) => observed,
                other => panic!("{other:?}"),
            };
            for ((version, value), key) in observed.into_iter().zip(KEYS) {
                let cell = self.model.cells.get(&(table, key.to_vec()));
                assert_eq!(value.as_ref(), cell.and_then(|cell| cell.value.as_ref()));
                // R4.8: what is written next is above it.
                let last = cell.map_or(0, |cell| cell.version);
                let expected = if value.is_some() { last } else { last.max(self.model.floor_of(table)) };
                assert_eq!(version, expected, "{key:?}");
            }
        }
    }

    fn check_leader(&self, replica: &Replica) {
        self.check_reads(replica);
        let objects = self.model.cells.values().filter(|cell| cell.value.is_some()).count();
        assert_eq!(replica.store.stats().objects, objects as u64);
        assert!(replica.store.tables().all(|table| self.tables.contains(&table)));
        let ending: Vec<_> = self.model.cells.values().filter_map(|cell| cell.ends).collect();
        if replica.store.has_flushed() {
            return; // what was flushed counts until it leaves the index
        }
        assert_eq!(replica.store.stats().ending, ending.len() as u64);
        let first = ending.into_iter().min();
        assert!(
            first.is_none_or(|first| {
                replica.store.has_due(first) && !replica.store.has_due(ClusterTime(first.0 - 1))
            })
        );
    }

    /// The log alone gives the same: reads, versions, counts, and what is dead.
    fn check_replay(&mut self) {
        self.check_reads(&self.primary.restarted());
        self.check_reads(&self.primary);
        self.primary.sweep_all();
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
        }
        self.check_same_counts(&restarted);
        // A primary that has restarted may have found tombstones again that its backup has let go.
        if self.tables_made == TABLES || !self.has_restarted {
            self.check_same_counts(&self.backup);
        }
    }

    /// A value kills the tombstone before it, and may leave with its segment when its table is dropped: then a replay finds
    /// that tombstone again, and keeps it until what it names is gone.
    fn check_same_counts(&self, replica: &Replica) {
        let (of_replica, of_primary) = (replica.counts(), self.primary.counts());
        if self.tables_made == TABLES {
            assert_eq!(of_replica, of_primary);
            assert_eq!(replica.log.live_bytes(), self.primary.log.live_bytes());
        } else {
            assert_eq!(of_replica.0, of_primary.0);
            assert!(of_replica.1 >= of_primary.1);
        }
    }

    /// R4.8: each replica gives every key the same next version, whatever tombstones it dropped or never saw.
    fn check_next_versions(&mut self) {
        let restarted = self.primary.restarted();
        for mut replica in [std::mem::take(&mut self.primary), std::mem::take(&mut self.backup), restarted] {
            let mut model = self.model.clone();
            for &table in &self.tables {
                for key in KEYS {
                    let put = Update::put(key, b"last");
                    assert_eq!(replica.execute(table, &put).0, model.update(table, &put));
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
