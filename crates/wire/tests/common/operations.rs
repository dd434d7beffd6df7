//! Bodies, operations and results.

use kasha_types::{ClientId, ClusterTime, RpcId, Sequence, TableId};
use kasha_wire::operation::arguments::Source;
use kasha_wire::operation::{
    Bounds, Check, CommandBuffer, Condition, Item, ItemKind, Items, ItemsBuffer, Lifetime, PartOperation, Parts,
    PartsBuffer, Row, ScanCursor,
};
use kasha_wire::outcome::{ScannedPage, Shape};
use kasha_wire::{Body, BodyHead, Outcome, Read, Update};
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy};
use proptest::strategy::{BoxedStrategy, Union};

use super::*;

/// An operation that owns its arguments.
#[derive(Clone, Debug)]
pub struct Operation {
    pub code: u8,
    pub version: u64,
    /// Which of the terms and ends that it may have.
    pub which: u32,
    pub items: Vec<(Vec<u8>, Vec<u8>, i64)>,
    lists: [ItemsBuffer; 3],
    parts: PartsBuffer,
    queries: PartsBuffer,
    batch: PartsBuffer,
}

/// A command on this key.
fn command(name: &str, key: &[u8]) -> CommandBuffer {
    let row = kasha_commands::find(name.as_bytes()).expect("a command");
    CommandBuffer::new(row, [key]).expect("a key is all that it has")
}

/// A part of each kind that only reads, for each of these items.
fn queries_of(items: &[(Vec<u8>, Vec<u8>, i64)]) -> PartsBuffer {
    let mut parts = PartsBuffer::default();
    for (key, ..) in items {
        parts.push(FIRST_TABLE, &PartOperation::Read(Read::Exists { key }));
        parts.push(FIRST_TABLE, &PartOperation::Command(command("strlen", key).as_command()));
    }
    parts
}

/// Parts of one table, for each of these items.
fn batch_of(items: &[(Vec<u8>, Vec<u8>, i64)]) -> PartsBuffer {
    let mut parts = PartsBuffer::default();
    for (key, value, _) in items {
        parts.push(FIRST_TABLE, &PartOperation::Command(command("incr", key).as_command()));
        parts.push(FIRST_TABLE, &PartOperation::Read(Read::Get { key }));
        parts.push(FIRST_TABLE, &PartOperation::Update(Update::append(key, value)));
    }
    parts
}

/// The table of the first part of each transaction, and the difference between its tables.
pub const FIRST_TABLE: TableId = TableId(0x0403_0201);

/// One part of each kind for each of these items.
fn parts_of(version: u64, items: &[(Vec<u8>, Vec<u8>, i64)]) -> PartsBuffer {
    let mut parts = PartsBuffer::default();
    for (number, (key, value, delta)) in (0..).zip(items) {
        let table = TableId(FIRST_TABLE.0 + number);
        parts.push(table, &PartOperation::Update(Update::increment(key, *delta)));
        parts.push(table, &PartOperation::Read(Read::Get { key }));
        parts.push(table, &PartOperation::Check(Check::Meets { key, condition: Condition::Version(version) }));
        parts.push(table, &PartOperation::Check(Check::Meets { key, condition: Condition::Value(value) }));
        parts.push(table, &PartOperation::Update(Update::get_and_put(key, value)));
        parts.push(table, &PartOperation::Command(command("incr", key).as_command()));
    }
    parts
}

impl Operation {
    pub fn new(code: u8, (version, which): (u64, u32), items: Vec<(Vec<u8>, Vec<u8>, i64)>) -> Self {
        let list = |kind| {
            let mut list = ItemsBuffer::new(kind);
            items.iter().for_each(|(key, value, delta)| list.push(&Item { key, value, delta: *delta }));
            list
        };
        let lists = [ItemKind::Key, ItemKind::KeyValue, ItemKind::KeyDelta].map(list);
        let (parts, queries, batch) = (parts_of(version, &items), queries_of(&items), batch_of(&items));
        Self { code, version, which, items, lists, parts, queries, batch }
    }

    pub fn update(&self) -> Update<'_> {
        Update::build(self.code, &mut &*self).expect("an update's code")
    }

    pub fn read(&self) -> Read<'_> {
        Read::build(self.code, &mut &*self).expect("a read's code")
    }

    pub fn any(rows: &'static [Row]) -> BoxedStrategy<Self> {
        let bytes = |len| vec(proptest::prelude::any::<u8>(), 0..len);
        let items = vec((bytes(20), bytes(60), any()), 1..5);
        (Union::new(rows.iter().map(|row| Just(row.code))), (any(), 0..64_u32), items)
            .prop_map(|(code, version, items)| Self::new(code, version, items))
            .boxed()
    }

    /// `which`: of the terms and ends that it may have.
    pub fn one(code: u8, which: u32) -> Self {
        let items = vec![(b"key".to_vec(), b"value".to_vec(), -2), (b"k2".to_vec(), b"v".to_vec(), 3)];
        Self::new(code, (0x0102_0304_0506_0708, which), items)
    }
}

/// The arguments of one key are the first item's; what is expected is the last one's value.
impl<'a> Source<'a> for &'a Operation {
    type Error = &'static str;

    fn no_such_operation(what: &'static str) -> &'static str {
        what
    }
    fn key(&mut self) -> Result<&'a [u8], &'static str> {
        Ok(&self.items[0].0)
    }
    fn value(&mut self) -> Result<&'a [u8], &'static str> {
        Ok(&self.items[0].1)
    }
    fn expected(&mut self) -> Result<&'a [u8], &'static str> {
        Ok(&self.items.last().expect("one at least").1)
    }
    fn version(&mut self) -> Result<u64, &'static str> {
        Ok(self.version)
    }
    fn which(&mut self, of: &[u8]) -> Result<u8, &'static str> {
        // The byte of the axes, and which condition and answer.
        let which = if of.len() >= 4 { self.which } else { self.which / 16 };
        Ok(of[usize::try_from(which).expect("small") % of.len()])
    }
    fn delta(&mut self) -> Result<i64, &'static str> {
        Ok(self.items[0].2)
    }
    fn bounds(&mut self) -> Result<Bounds, &'static str> {
        Ok(Bounds::new(-7, self.items[0].2.max(-7)).expect("in order"))
    }
    fn lifetime(&mut self) -> Result<Lifetime, &'static str> {
        Ok(Lifetime::from_millis(self.version.max(1)).expect("not 0"))
    }
    fn cursor(&mut self) -> Result<ScanCursor, &'static str> {
        Ok(ScanCursor::from_number(self.version % (1 << 40)).expect("a slot"))
    }
    fn most(&mut self) -> Result<u32, &'static str> {
        Ok(self.version as u32)
    }
    fn items(&mut self, kind: ItemKind) -> Result<Items<'a>, &'static str> {
        Ok(self.lists[kind as usize].as_items())
    }
    fn parts(&mut self) -> Result<Parts<'a>, &'static str> {
        Ok(self.parts.as_parts())
    }
    fn queries(&mut self) -> Result<Parts<'a>, &'static str> {
        Ok(self.queries.as_parts())
    }
    fn batch(&mut self) -> Result<Parts<'a>, &'static str> {
        Ok(self.batch.as_parts())
    }
}

/// The code of a transaction.
pub const TRANSACTION: u8 = 32;
/// The code of a batch.
pub const BATCH: u8 = 35;

/// A body that owns its parts.
#[derive(Clone, Debug)]
pub struct OwnedBody {
    pub head: BodyHead,
    pub operation_key: Option<Vec<u8>>,
    pub operation: Operation,
}

impl OwnedBody {
    pub fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        Body::encode(&self.head, self.operation_key.as_deref(), &self.operation.update(), &mut out);
        out
    }

    pub fn any() -> BoxedStrategy<Self> {
        let head = fields_any!(BodyHead { rpc, acknowledgement, lease_expiry, not_after, begun, table });
        let key = proptest::option::of(vec(proptest::prelude::any::<u8>(), 1..20));
        let operation = Operation::any(Update::ALL);
        (head, key, operation)
            .prop_map(|(mut head, operation_key, operation)| {
                head.rpc.client.0 = head.rpc.client.0.max(1);
                head.rpc.sequence.0 = head.rpc.sequence.0.max(1);
                head.acknowledgement.0 %= head.rpc.sequence.0;
                // The parts of a batch may run apart.
                let operation_key = operation_key.filter(|_| operation.update().code() != BATCH);
                head.not_after.0 = if operation_key.is_some() { head.not_after.0.max(1) } else { 0 };
                if matches!(operation.update().code(), TRANSACTION | BATCH) {
                    head.table = FIRST_TABLE;
                }
                head.begun.0 *= u64::from(operation.update().says_begun());
                Self { head, operation_key, operation }
            })
            .boxed()
    }

    pub fn one(code: u8, operation_key: Option<&[u8]>) -> Self {
        Self::one_with(code, operation_key, 0)
    }

    /// With terms and an end, as [`Operation::which`] says.
    pub fn one_with(code: u8, operation_key: Option<&[u8]>, which: u32) -> Self {
        let next = &mut Count(0);
        let mut head = fields_one!(next, BodyHead { rpc, acknowledgement, lease_expiry, not_after, begun, table });
        head.rpc = RpcId { client: ClientId(0x0807_0605_0403_0201), sequence: Sequence(0x1817_1615_1413_1211) };
        head.acknowledgement.0 = 0x1817_1615_1413_1201;
        let operation_key = operation_key.filter(|_| code != BATCH);
        if operation_key.is_none() {
            head.not_after.0 = 0;
        }
        if matches!(code, TRANSACTION | BATCH) {
            head.table = FIRST_TABLE;
        }
        let operation = Operation::one(code, which);
        head.begun.0 *= u64::from(operation.update().says_begun());
        Self { head, operation_key: operation_key.map(<[u8]>::to_vec), operation }
    }
}

pub const SHAPES: [(Shape, &str); 16] = [
    (Shape::Version, "put"),
    (Shape::Number, "increment"),
    (Shape::Length, "append"),
    (Shape::Versions, "multi-put"),
    (Shape::Flags, "multi-delete"),
    (Shape::Numbers, "multi-increment"),
    (Shape::Value, "get"),
    (Shape::Replaced, "put telling old value"),
    (Shape::Flag, "exists"),
    (Shape::Values, "multi-get"),
    (Shape::Observed, "observe"),
    (Shape::Expiry, "time-to-live"),
    (Shape::Keys, "scan"),
    (Shape::KeysAndValues, "scan-values"),
    (Shape::Parts, "transaction"),
    (Shape::Reply, "a command as a part"),
];

fn done(shape: Shape) -> BoxedStrategy<Outcome> {
    let value = || vec(proptest::prelude::any::<u8>(), 0..30);
    let cursor =
        || proptest::option::of((1..1u64 << 46).prop_map(|next| ScanCursor::from_number(next).expect("a slot")));
    match shape {
        Shape::Version => any().prop_map(Outcome::Version).boxed(),
        Shape::Number => (any(), any()).prop_map(|(value, version)| Outcome::Number(value, version)).boxed(),
        Shape::Length => (any(), any()).prop_map(|(len, version)| Outcome::Length(len, version)).boxed(),
        Shape::Versions => any().prop_map(Outcome::Versions).boxed(),
        Shape::Flags => any().prop_map(Outcome::Flags).boxed(),
        Shape::Flag => any().prop_map(|flag| Outcome::Flags(vec![flag])).boxed(),
        Shape::Numbers => vec((any(), any()), 0..5).prop_map(Outcome::Numbers).boxed(),
        Shape::Value => (any(), value()).prop_map(|(version, value)| Outcome::Value(version, value)).boxed(),
        Shape::Replaced => (any(), proptest::option::of((1..u64::MAX, value())))
            .prop_map(|(version, old)| Outcome::Replaced(version, old))
            .boxed(),
        Shape::Values => vec(proptest::option::of((1..u64::MAX, value())), 0..5).prop_map(Outcome::Values).boxed(),
        Shape::Observed => vec((1..u64::MAX, proptest::option::of(value())), 0..5).prop_map(Outcome::Observed).boxed(),
        Shape::Expiry => (any(), proptest::option::of((1..u64::MAX).prop_map(ClusterTime)))
            .prop_map(|(version, ends)| Outcome::Expiry(version, ends))
            .boxed(),
        Shape::Keys => (cursor(), any(), vec((any(), value()), 0..5))
            .prop_map(|(next, in_shard, keys)| Outcome::Keys(ScannedPage { next, in_shard, keys }))
            .boxed(),
        Shape::KeysAndValues => (cursor(), any(), vec((any(), value(), value()), 0..5))
            .prop_map(|(next, in_shard, keys)| Outcome::KeysAndValues(ScannedPage { next, in_shard, keys }))
            .boxed(),
        Shape::Reply => any::<i64>()
            .prop_map(|number| {
                let mut reply = Vec::new();
                kasha_commands::ReplyWriter(&mut reply).item(kasha_commands::Item::Number(number));
                Outcome::Reply(reply)
            })
            .boxed(),
        Shape::Parts => {
            let shapes = [
                Shape::Version,
                Shape::Number,
                Shape::Length,
                Shape::Value,
                Shape::Replaced,
                Shape::Flag,
                Shape::Reply,
            ];
            let part = Union::new(shapes.map(done));
            let failed = (any(), any())
                .prop_map(|(index, version)| Outcome::NotCommitted(index, Box::new(Outcome::ConditionFailed(version))));
            Union::new([vec(part, 0..5).prop_map(Outcome::Parts).boxed(), failed.boxed()]).boxed()
        }
    }
}

pub fn any_outcome(shape: Shape) -> BoxedStrategy<Outcome> {
    let index = match shape {
        Shape::Numbers => any::<u32>(),
        _ => Just(0).boxed(),
    };
    let failed = (0..7_u8, any(), index).prop_map(move |(which, version, index)| match which {
        0 if shape == Shape::Replaced && version == 0 => Outcome::NotReplaced(None),
        0 if shape == Shape::Replaced => Outcome::NotReplaced(Some((version, version.to_le_bytes().to_vec()))),
        0 => Outcome::ConditionFailed(version),
        1 => Outcome::NotFound,
        2 => Outcome::Overflow(index),
        3 => Outcome::NotANumber(index),
        4 => Outcome::TooLarge,
        5 => Outcome::Cancelled,
        _ => Outcome::OperationKeyMismatch,
    });
    Union::new([done(shape), failed.boxed()]).boxed()
}

/// Fixed results by name.
pub fn outcomes() -> Vec<(&'static str, Shape, Outcome)> {
    vec![
        ("Version", Shape::Version, Outcome::Version(1)),
        ("Number", Shape::Number, Outcome::Number(-2, 3)),
        ("Length", Shape::Length, Outcome::Length(4, 5)),
        ("Versions", Shape::Versions, Outcome::Versions(vec![6, 7])),
        ("Flags", Shape::Flags, Outcome::Flags(vec![true, false])),
        ("Flag", Shape::Flag, Outcome::Flags(vec![true])),
        ("Numbers", Shape::Numbers, Outcome::Numbers(vec![(-8, 9), (10, 11)])),
        ("Value", Shape::Value, Outcome::Value(12, b"value".to_vec())),
        ("Replaced", Shape::Replaced, Outcome::Replaced(15, Some((16, b"old".to_vec())))),
        ("Replaced.nothing", Shape::Replaced, Outcome::Replaced(17, None)),
        ("Values", Shape::Values, Outcome::Values(vec![Some((13, b"v".to_vec())), None])),
        ("Observed", Shape::Observed, Outcome::Observed(vec![(19, Some(b"v".to_vec())), (20, None)])),
        ("Expiry", Shape::Expiry, Outcome::Expiry(21, Some(ClusterTime(22)))),
        ("Expiry.never", Shape::Expiry, Outcome::Expiry(23, None)),
        (
            "Keys",
            Shape::Keys,
            Outcome::Keys(ScannedPage {
                next: ScanCursor::from_number(24),
                in_shard: 25,
                keys: vec![(26, b"k".to_vec()), (27, vec![])],
            }),
        ),
        (
            "KeysAndValues",
            Shape::KeysAndValues,
            Outcome::KeysAndValues(ScannedPage {
                next: ScanCursor::from_number(28),
                in_shard: 29,
                keys: vec![(30, b"k".to_vec(), b"value".to_vec()), (31, vec![], vec![])],
            }),
        ),
        ("Keys.end", Shape::Keys, Outcome::Keys(ScannedPage { next: None, in_shard: 0, keys: vec![] })),
        ("ConditionFailed", Shape::Version, Outcome::ConditionFailed(14)),
        ("NotReplaced", Shape::Replaced, Outcome::NotReplaced(Some((32, b"old".to_vec())))),
        ("NotReplaced.nothing", Shape::Replaced, Outcome::NotReplaced(None)),
        ("NotFound", Shape::Value, Outcome::NotFound),
        ("Overflow", Shape::Number, Outcome::Overflow(0)),
        ("Overflow.item", Shape::Numbers, Outcome::Overflow(1)),
        ("NotANumber", Shape::Number, Outcome::NotANumber(0)),
        ("NotANumber.item", Shape::Numbers, Outcome::NotANumber(1)),
        ("OutOfBounds", Shape::Number, Outcome::OutOfBounds(-19, 20)),
        ("TooLarge", Shape::Length, Outcome::TooLarge),
        ("Cancelled", Shape::Version, Outcome::Cancelled),
        ("OperationKeyMismatch", Shape::Version, Outcome::OperationKeyMismatch),
        ("Parts", Shape::Parts, Outcome::Parts(vec![Outcome::Number(-2, 3), Outcome::NotFound])),
        ("NotCommitted", Shape::Parts, Outcome::NotCommitted(1, Box::new(Outcome::ConditionFailed(18)))),
        ("Conflict", Shape::Parts, Outcome::Conflict),
        ("RefusedElsewhere", Shape::Parts, Outcome::RefusedElsewhere),
    ]
}
