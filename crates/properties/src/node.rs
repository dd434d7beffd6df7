//! Properties of cores of nodes, and of the frames that they receive (crate `node`; E1, E2, D1).

mod peers;
mod strangers;

pub use peers::NodePeers;
pub use strangers::NodeStrangers;

#[path = "../../node/tests/common/mod.rs"]
mod common;

use arbitrary::{Result, Unstructured};
use kasha_types::{LogPosition, TableId};
use kasha_wire::operation::arguments::Source;
use kasha_wire::operation::{Bounds, ItemKind, Items, ItemsBuffer, Lifetime, PartOperation, Parts, PartsBuffer};
use kasha_wire::{Read, Update};

use self::common::Heard;
use self::common::cluster::{Cluster, LIST};
use crate::draw;

/// A client that counts. What it is told must be what happened, whatever others send.
struct Honest {
    sequence: u64,
}

const HONEST: u64 = 1;
const KEY: &[u8] = b"the honest client's counter";

impl Honest {
    fn new() -> Self {
        Self { sequence: 0 }
    }

    /// Adds one, and asks for it until there is an answer.
    fn increment(&mut self, cluster: &mut Cluster) {
        self.sequence += 1;
        let increment = Update::increment(KEY, 1);
        let list = cluster.configuration.shards[0].list;
        for _ in 0..40 {
            let heard = cluster.update((HONEST, self.sequence), list, &increment);
            cluster.settle();
            for heard in heard.into_iter().chain(cluster.heard(HONEST)) {
                match heard {
                    Heard::Answer { result, .. } => {
                        let sum = i64::try_from(self.sequence).expect("few").to_le_bytes();
                        assert_eq!(result.get(1..9), Some(&sum[..]), "E1, E2");
                        return;
                    }
                    Heard::Refused(_) => {}
                    other => panic!("{other:?} answers no update"),
                }
            }
        }
        panic!("everything else goes on, but not the honest client");
    }
}

/// Arguments of one key.
struct Drawn<'d, 'u, 'a> {
    u: &'d mut Unstructured<'u>,
    key: &'a [u8],
    value: &'a [u8],
    lists: &'a [ItemsBuffer; 3],
    parts: &'a PartsBuffer,
    batch: &'a PartsBuffer,
}

impl<'a> Source<'a> for Drawn<'_, '_, 'a> {
    type Error = arbitrary::Error;

    fn no_such_operation(what: &'static str) -> Self::Error {
        unreachable!("{what} comes from the table")
    }
    fn key(&mut self) -> Result<&'a [u8]> {
        Ok(self.key)
    }
    fn value(&mut self) -> Result<&'a [u8]> {
        Ok(self.value)
    }
    fn version(&mut self) -> Result<u64> {
        self.u.int_in_range(0..=3)
    }
    fn which(&mut self, of: &[u8]) -> Result<u8> {
        self.u.choose(of).copied()
    }
    fn delta(&mut self) -> Result<i64> {
        self.u.arbitrary()
    }
    fn bounds(&mut self) -> Result<Bounds> {
        Ok(Bounds::new(self.u.arbitrary()?, self.u.arbitrary()?).unwrap_or(Bounds::NONE))
    }
    fn lifetime(&mut self) -> Result<Lifetime> {
        Ok(Lifetime::from_millis(self.u.arbitrary()?).unwrap_or(Lifetime::LONGEST))
    }
    fn items(&mut self, kind: ItemKind) -> Result<Items<'a>> {
        Ok(self.lists[kind as usize].as_items())
    }
    fn parts(&mut self) -> Result<Parts<'a>> {
        Ok(self.parts.as_parts())
    }
    fn batch(&mut self) -> Result<Parts<'a>> {
        Ok(self.batch.as_parts())
    }
}

/// What any client may ask: bodies of clients that are not the honest one.
fn some_body(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let (client, sequence) = (u.int_in_range(2..=4)?, u.int_in_range(1..=600)?);
    let acknowledged = u.int_in_range(0..=sequence)?;
    let (key, value) = (*u.choose(&[&b"a"[..], b"b", b"{a}c", b""])?, draw::bytes(u, 20)?);
    let lists = [ItemsBuffer::keys([key]), ItemsBuffer::pairs([(key, &value[..])]), ItemsBuffer::deltas([(key, 1)])];
    let row = u.choose(Update::ALL)?;
    let mut parts = PartsBuffer::default();
    let table = TableId(u.int_in_range(1..=2)?);
    parts.push(table, &PartOperation::Read(Read::Get { key: b"a" }));
    parts.push(common::TABLE, &PartOperation::Update(Update::append(key, &value)));
    let mut batch = PartsBuffer::default();
    batch.push(common::TABLE, &PartOperation::Update(Update::append(key, &value)));
    batch.push(common::TABLE, &PartOperation::Read(Read::Get { key: b"a" }));
    let arguments = &mut Drawn { u, key, value: &value, lists: &lists, parts: &parts, batch: &batch };
    let update = Update::build(row.code, arguments)?;
    let is_batch = matches!(update, Update::Batch { .. });
    let operation_key = if draw::one_in(u, 3)? && !is_batch { Some(&b"order-42"[..]) } else { None };
    let odd = draw::one_in(u, 4)?.then_some(u.arbitrary::<[u64; 2]>()?);
    Ok(common::Core::body_with((client, sequence), acknowledged, operation_key, &update, |head| {
        if let Some([lease, table]) = odd {
            (head.lease_expiry.0, head.begun.0) = (lease, lease);
            head.table.0 = (table % 3) as u32;
        }
    }))
}

/// Where the cores' logs end, in all epochs.
fn positions(cluster: &Cluster) -> Vec<LogPosition> {
    let status = |core: &common::Core| {
        let status = core.node.status(core.now);
        status.replicas.into_iter().map(|replica| replica.end).collect::<Vec<_>>()
    };
    cluster.cores.iter().flat_map(status).collect()
}

/// What happens besides: clients ask, time passes, frames arrive or are late, terms change.
fn go_on(cluster: &mut Cluster, honest: &mut Honest, u: &mut Unstructured<'_>) -> Result<()> {
    match draw::weighted(u, &[6, 6, 3, 6, 6, 1])? {
        0 => honest.increment(cluster),
        1 => drop(cluster.send(2, LIST, &some_body(u)?)),
        2 => drop(cluster.get_default(3, b"a")),
        3 => cluster.tick(u.int_in_range(0..=200)?),
        4 => cluster.carry(),
        _ => cluster.fail_over_to(u.int_in_range(1..=3)?),
    }
    Ok(())
}
