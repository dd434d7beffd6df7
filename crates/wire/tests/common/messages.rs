//! Every message, with the names of its fields.

use kasha_wire::Message;
use proptest::prelude::{Just, Strategy};
use proptest::strategy::{BoxedStrategy, Union};

use super::*;

/// A message's name, the names of its fields, arbitrary ones, and the fixed one.
pub struct Described {
    pub name: &'static str,
    pub fields: &'static [&'static str],
    pub any: BoxedStrategy<Message>,
    pub one: Message,
}

macro_rules! messages {
    ($($name:ident { $($field:ident),* $(,)? })*) => {
        pub fn described() -> Vec<Described> {
            vec![$(Described {
                name: stringify!($name),
                fields: &[$(stringify!($field)),*],
                any: fields_any!(Message::$name { $($field),* }),
                one: {
                    let next = &mut Count(0);
                    fields_one!(next, Message::$name { $($field),* })
                },
            }),*]
        }
    };
}

messages! {
    Hello { cluster, from, incarnation, to }
    Welcome { cluster, core, incarnation }
    Goodbye { reason }
    GetConfiguration { have }
    ConfigurationIs { configuration }
    OpenSession { nonce }
    SessionOpened { nonce, client, lease_expiry, cluster_time }
    RenewLease { client }
    LeaseRenewed { client, lease_expiry, cluster_time }
    LeaseLost { client }
    TableRequest { client, sequence, command }
    TableAnswer { client, sequence, outcome }
    GetStatus { id }
    StatusIs { id, status }
    GetUsage { id }
    UsageIs { id, usage }
    GiveUp { nonce, shard, seen }
    GivenUp { nonce, missing, refused }
    Heartbeat { heartbeat }
    HeartbeatAnswer { sent, lease_millis, cluster_time, clients_below }
    LeaseQuery { clients }
    LeaseVerdict { cluster_time, expired, alive }
    Ping { sent }
    Pong { sent, node }
    GetTurns { id }
    TurnsAre { id, turns }
    Fence { shard, epoch, primary, attach, served, list }
    FenceReport { shard, epoch, node, attach, exists, end, history, intact, complete, whole }
    Attach { shard, epoch, primary, attach, since, expected, must_hold, start }
    Attached { shard, epoch, node, attach }
    Mismatch { shard, epoch, node, attach }
    CopySegment { shard, epoch, attach, segment, total, offset, bytes }
    SegmentCopied { shard, epoch, node, attach, segment, offset }
    FetchLog { shard, epoch, from }
    LogPiece { shard, epoch, from, bytes }
    FreezeWitness { shard, list, epoch }
    WitnessHolds { shard, list, epoch, node, holding, requests }
    Gc { shard, list, round, floor, entries }
    GcDone { shard, list, round, node, suspects }
}

impl Sample for Message {
    fn any() -> BoxedStrategy<Self> {
        Union::new(described().into_iter().map(|message| message.any)).boxed()
    }
    fn one(_: &mut Count) -> Self {
        described().swap_remove(0).one
    }
}
