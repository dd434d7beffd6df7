//! Ids, configuration, status and the small answers.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use kasha_types::*;
use kasha_wire::codec::Bytes;
use kasha_wire::message::{
    AdminOrder, AdminOutcome, AttachAt, BehindWhat, GcEntry, Holding, Knowledge, LeaseInfo, Missing, Placement, Report,
    ShardKnowledge, TableCommand, TableOutcome, Told, WordOf,
};
use kasha_wire::status::{
    CleanerState, Cleaning, CoreStatus, LongTurn, LoopTurns, LoopUsage, Memory, PendingTransaction, ReplicaStatus,
    TransactionsStatus, WitnessStatus,
};
use kasha_wire::*;
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy};
use proptest::strategy::{BoxedStrategy, Union};

use super::*;

macro_rules! integers {
    ($($ty:ty),*) => {$(
        impl Sample for $ty {
            fn any() -> BoxedStrategy<Self> {
                proptest::prelude::prop_oneof![2 => proptest::prelude::any::<$ty>(), 1 => 0..3 as $ty].boxed()
            }
            fn one(next: &mut Count) -> Self {
                Self::from_le_bytes(next.bytes())
            }
        }
    )*};
}
integers!(u8, u16, u32, u64, u128, i64);

macro_rules! newtypes {
    ($($ty:ident),*) => {$(
        impl Sample for $ty {
            fn any() -> BoxedStrategy<Self> {
                super::any().prop_map($ty).boxed()
            }
            fn one(next: &mut Count) -> Self {
                Self(Sample::one(next))
            }
        }
    )*};
}
newtypes!(
    AckedBelow,
    BodyHash,
    BootId,
    ClientId,
    ClusterId,
    ClusterTime,
    ConfigVersion,
    Epoch,
    Incarnation,
    KeyHash,
    AttachId,
    Level,
    ListVersion,
    MemberId,
    ViewNumber,
    LogEnd,
    NodeId,
    Round,
    SegmentId,
    Sequence,
    ShardId,
    Slot,
    TableId,
    Tick,
    UnixMillis
);

macro_rules! structs {
    ($($ty:ident { $($field:ident),* $(,)? })*) => {$(
        impl Sample for $ty {
            fn any() -> BoxedStrategy<Self> {
                fields_any!($ty { $($field),* })
            }
            fn one(next: &mut Count) -> Self {
                fields_one!(next, $ty { $($field),* })
            }
        }
    )*};
}
/// A turn is as old as ClusterTime allows.
impl Sample for WireVersion {
    fn any() -> BoxedStrategy<Self> {
        any().prop_map(Self).boxed()
    }
    fn one(next: &mut Count) -> Self {
        Self(Sample::one(next))
    }
}

impl Sample for WireVersions {
    fn any() -> BoxedStrategy<Self> {
        let ordered = |(one, other): (WireVersion, WireVersion)| Self::new(one.min(other), one.max(other));
        (any(), any()).prop_map(move |both| ordered(both).expect("in order")).boxed()
    }
    fn one(next: &mut Count) -> Self {
        Self::new(Sample::one(next), Sample::one(next)).expect("they ascend")
    }
}

impl Sample for Levels {
    fn any() -> BoxedStrategy<Self> {
        let ordered = |(one, other): (Level, Level)| Self::new(one.min(other), one.max(other));
        (any(), any()).prop_map(move |both| ordered(both).expect("in order")).boxed()
    }
    fn one(next: &mut Count) -> Self {
        Self::new(Sample::one(next), Sample::one(next)).expect("they ascend")
    }
}

/// As messages of a cluster at the level have it: below that it is absent, and a message ends before it.
impl<const LEVEL: u16, T: Sample> Sample for Later<LEVEL, T> {
    fn any() -> BoxedStrategy<Self> {
        super::any().prop_map(|value| Self::at(Level(LEVEL), value)).boxed()
    }
    fn one(next: &mut Count) -> Self {
        Self::at(Level(LEVEL), Sample::one(next))
    }
}

impl Sample for Envelope {
    fn any() -> BoxedStrategy<Self> {
        type Drawn = Option<(u64, u16, bool)>;
        let turn = proptest::option::of((0..1000u64, 0..Turn::NUMBERS, proptest::prelude::any::<bool>()));
        let fields = (super::any(), super::any(), super::any(), super::any(), super::any(), turn);
        let envelope = |(shard, epoch, list, cluster_time, attempt, turn): (_, _, _, _, _, Drawn)| {
            let ClusterTime(now) = cluster_time;
            let of = |(waited, number, returns)| {
                let since = ClusterTime(now.saturating_sub(waited));
                Turn { since, number, returns }
            };
            Self { shard, epoch, list, cluster_time, attempt, turn: turn.map(of) }
        };
        fields.prop_map(envelope).boxed()
    }
    fn one(next: &mut Count) -> Self {
        let (shard, epoch, list) = (Sample::one(next), Sample::one(next), Sample::one(next));
        let (cluster_time, attempt, number): (ClusterTime, u32, u16) =
            (Sample::one(next), Sample::one(next), Sample::one(next));
        let turn = Turn { since: ClusterTime(cluster_time.0 - 0x0102), number: number % Turn::NUMBERS, returns: true };
        Self { shard, epoch, list, cluster_time, attempt, turn: Some(turn) }
    }
}

structs! {
    RpcId { client, sequence }
    CoreId { node, core }
    LogPosition { epoch, offset }
    Appended { shard, epoch, node, attach, end, round }
    SyncRequest { shard, epoch, rpc, attempt }
    Synced { rpc, epoch, attempt }
    Recorded { rpc, shard, list, attempt, node, verdict }
    Refused { rpc, attempt, epoch, shard, why }
    ReadRefused { read_id, epoch, why }
    Member { node, state, since }
    Served { epoch, primary }
    ShardConfig { shard, epoch, primary, phase, members, members_since, recover_from, witnesses, list, closing, served }
    NodeInfo { node, incarnation, cores, alive }
    TableInfo { table, name }
    Tablet { table, first, last, shard }
    GroupMember { member, node, folder, address }
    LeaseInfo { client, expiry }
    Missing { epoch, members, witnesses }
    Knowledge { configuration, clients_below, shards }
    ShardKnowledge { shard, promised, list, set }
    GcEntry { key, rpc }
    CoreStatus { core, incarnation, configuration, lease, replicas, witnesses, port }
    PortUse { connections, accepted, refused, commands, bytes_in, bytes_out }
    ReplicaStatus { shard, epoch, primary, complete, state, end, synced, unsynced_operations, objects, memory_bytes,
        memory_max_bytes, memory, cleaning, transactions, clients, completion_records, updates, reads, fast_answers, gated_answers,
        duplicates_suppressed, repeats_suppressed, refusals, syncs }
    Cleaning { live_bytes, live_max_bytes, segments, leaving, unsynced, dense, cleaner, cleaned_segments, copied_bytes }
    TransactionsStatus { pending, kept, held_answers, oldest }
    PendingTransaction { rpc, millis, waits_for, waiting }
    WitnessStatus { shard, list, frozen, held, accepted, rejected }
    LoopTurns { turns, long_turns, longest, longest_since_asked, busiest, busiest_since_asked }
    LongTurn { millis_ago, nanos, elapsed_nanos, hearing_nanos, closing_nanos, files_nanos, sending_nanos, blocked, frames,
        work }
    LoopUsage { cpu_nanos, allocations, heap_bytes, turns, frames_received, frames_sent }
}

/// What a configuration's decoder asks of it.
fn in_order(mut configuration: Configuration) -> Configuration {
    configuration.faults %= limits::FAULTS_MAX + 1;
    for (index, shard) in (0..).zip(&mut configuration.shards) {
        shard.shard = ShardId(index);
    }
    configuration.group.sort_by_key(|of| of.member);
    configuration.group.dedup_by_key(|of| of.member);
    configuration.tablets.sort_by_key(|tablet| (tablet.table, tablet.first));
    configuration
}

impl Sample for Configuration {
    fn any() -> BoxedStrategy<Self> {
        let any = fields_any!(Configuration {
            cluster,
            version,
            faults,
            durability,
            min_backups,
            nodes_wanted,
            coordinator,
            group,
            nodes,
            shards,
            tables,
            tablets
        });
        any.prop_map(in_order).boxed()
    }
    fn one(next: &mut Count) -> Self {
        in_order(fields_one!(
            next,
            Configuration {
                cluster,
                version,
                faults,
                durability,
                min_backups,
                nodes_wanted,
                coordinator,
                group,
                nodes,
                shards,
                tables,
                tablets
            }
        ))
    }
}

/// Enums without data, or whose variants are listed by hand.
macro_rules! variants {
    ($($ty:ident: |$next:ident| [$($any:expr => $one:expr),* $(,)?])*) => {$(
        impl Sample for $ty {
            fn any() -> BoxedStrategy<Self> {
                Union::new([$($any.boxed()),*]).boxed()
            }
            fn one($next: &mut Count) -> Self {
                Self::all($next).swap_remove(0)
            }
            fn all($next: &mut Count) -> Vec<Self> {
                let _ = &$next;
                vec![$($one),*]
            }
        }
    )*};
}
macro_rules! plain {
    ($($ty:ident { $($variant:ident),* })*) => { variants! { $($ty: |next| [$(Just($ty::$variant) => $ty::$variant),*])* } };
}
plain! {
    Durability { Replicated, Fsync }
    MemberState { Complete, Joining }
    ShardPhase { Recovering, Serving }
    Memory { Enough, Low, Full }
    CleanerState { Follows, Rests, Cleans, WaitsForSync, WaitsForFloor, FindsNothing, FindsNoRoom }
    Work { Replay, Free, Forget, Graves, DropTable, Remove, Copy, Role, Configure, Clean }
    Placement { Spread, OneShard }
    Holding { Sure, PowerLost, Damaged, NeverHad }
    RecordedVerdict { Accepted, Conflict, NoSlot, TooLarge, WrongList, Frozen, LeaseExpired, Reused }
    Refusal { NotPrimary, WrongShard, OldWitnessList, LeaseExpired, LeaseUnproven, Busy, OutOfMemory, Reused, Stale,
        WindowExceeded, Unprovable, BadRequest, TooFewMembers, Recovering, TooLarge }
}
variants! {
    bool: |next| [Just(true) => true, Just(false) => false]
    TableCommand: |next| [
        super::any().prop_map(TableCommand::Create) => TableCommand::Create(Sample::one(next)),
        super::any().prop_map(TableCommand::Drop) => TableCommand::Drop(Sample::one(next)),
        (super::any(), super::any()).prop_map(|(name, at)| TableCommand::CreateAt(name, at)) =>
            TableCommand::CreateAt(Sample::one(next), Sample::one(next)),
    ]
    TableOutcome: |next| [
        super::any().prop_map(TableOutcome::Created) => TableOutcome::Created(Sample::one(next)),
        super::any().prop_map(TableOutcome::Exists) => TableOutcome::Exists(Sample::one(next)),
        super::any().prop_map(TableOutcome::Dropped) => TableOutcome::Dropped(Sample::one(next)),
        Just(TableOutcome::NotFound) => TableOutcome::NotFound,
        super::any().prop_map(TableOutcome::Refused) => TableOutcome::Refused(Sample::one(next)),
    ]
    AdminOrder: |next| [
        super::any().prop_map(AdminOrder::AddMember) => AdminOrder::AddMember(Sample::one(next)),
        super::any().prop_map(AdminOrder::RemoveMember) => AdminOrder::RemoveMember(Sample::one(next)),
        super::any().prop_map(AdminOrder::Lead) => AdminOrder::Lead(Sample::one(next)),
        super::any().prop_map(AdminOrder::GroupOf) => AdminOrder::GroupOf(Sample::one(next)),
        Just(AdminOrder::Finalize) => AdminOrder::Finalize,
        super::any().prop_map(AdminOrder::RemoveLost) => AdminOrder::RemoveLost(Sample::one(next)),
        super::any().prop_map(AdminOrder::Lease) => AdminOrder::Lease(Sample::one(next)),
        Just(AdminOrder::SayLease) => AdminOrder::SayLease,
        super::any().prop_map(AdminOrder::MinBackups) => AdminOrder::MinBackups(Sample::one(next)),
        Just(AdminOrder::SayMinBackups) => AdminOrder::SayMinBackups,
    ]
    AdminOutcome: |next| [
        super::any().prop_map(AdminOutcome::Done) => AdminOutcome::Done(Sample::one(next)),
        super::any().prop_map(AdminOutcome::Later) => AdminOutcome::Later(Sample::one(next)),
        super::any().prop_map(AdminOutcome::Refused) => AdminOutcome::Refused(Sample::one(next)),
    ]
    Told: |next| [
        super::any().prop_map(Told::Proposed) => Told::Proposed(Sample::one(next)),
        (super::any(), super::any(), super::any())
            .prop_map(|(at, recorded, settled)| Told::Executed { at, recorded, settled })
            => Told::Executed { at: Sample::one(next), recorded: Sample::one(next), settled: Sample::one(next) },
        Just(Told::Conflict) => Told::Conflict,
        Just(Told::Abort) => Told::Abort,
        Just(Told::Never) => Told::Never,
    ]
    AttachAt: |next| [
        super::any().prop_map(AttachAt::Keep) => AttachAt::Keep(Sample::one(next)),
        super::any().prop_map(AttachAt::Join) => AttachAt::Join(Sample::one(next)),
    ]
    Report: |next| [
        (super::any(), super::any()).prop_map(|(shard, epoch)| Report::Recovered { shard, epoch })
            => Report::Recovered { shard: Sample::one(next), epoch: Sample::one(next) },
        (super::any(), super::any(), super::any()).prop_map(|(shard, epoch, node)| Report::Copied { shard, epoch, node })
            => Report::Copied { shard: Sample::one(next), epoch: Sample::one(next), node: Sample::one(next) },
        (super::any(), super::any(), super::any())
            .prop_map(|(shard, epoch, list)| Report::ListClosed { shard, epoch, list })
            => Report::ListClosed { shard: Sample::one(next), epoch: Sample::one(next), list: Sample::one(next) },
        (super::any(), super::any(), super::any())
            .prop_map(|(shard, epoch, node)| Report::Unanswered { shard, epoch, node })
            => Report::Unanswered { shard: Sample::one(next), epoch: Sample::one(next), node: Sample::one(next) },
        (super::any(), super::any()).prop_map(|(shard, epoch)| Report::Stuck { shard, epoch })
            => Report::Stuck { shard: Sample::one(next), epoch: Sample::one(next) },
        (super::any(), super::any()).prop_map(|(shard, list)| Report::WitnessLost { shard, list })
            => Report::WitnessLost { shard: Sample::one(next), list: Sample::one(next) },
        (super::any(), super::any(), super::any())
            .prop_map(|(shard, epoch, list)| Report::Stopping { shard, epoch, list })
            => Report::Stopping { shard: Sample::one(next), epoch: Sample::one(next), list: Sample::one(next) },
        (super::any(), super::any(), super::any(), super::any())
            .prop_map(|(shard, epoch, unheard_members, unheard_witnesses)| {
                Report::NeedsWitness { shard, epoch, unheard_members, unheard_witnesses }
            })
            => Report::NeedsWitness {
                shard: Sample::one(next),
                epoch: Sample::one(next),
                unheard_members: Sample::one(next),
                unheard_witnesses: Sample::one(next),
            },
        (super::any(), super::any(), super::any(), super::any())
            .prop_map(|(shard, epoch, unheard, has_copy)| Report::NeedsMembers { shard, epoch, unheard, has_copy })
            => Report::NeedsMembers {
                shard: Sample::one(next),
                epoch: Sample::one(next),
                unheard: Sample::one(next),
                has_copy: Sample::one(next),
            },
        (super::any(), super::any(), super::any())
            .prop_map(|(shard, epoch, promised)| Report::PromisedBefore { shard, epoch, promised })
            => Report::PromisedBefore { shard: Sample::one(next), epoch: Sample::one(next), promised: Sample::one(next) },
    ]
    SocketAddr: |next| [
        (super::any::<u32>(), super::any::<u16>()).prop_map(|(ip, port)| (Ipv4Addr::from(ip), port).into())
            => (Ipv4Addr::from(next.bytes::<4>()), Sample::one(next)).into(),
        (super::any::<u128>(), super::any::<u16>()).prop_map(|(ip, port)| (Ipv6Addr::from(ip), port).into())
            => (Ipv6Addr::from(next.bytes::<16>()), Sample::one(next)).into(),
    ]
}

impl<T: Sample> Sample for Option<T> {
    fn any() -> BoxedStrategy<Self> {
        proptest::option::of(T::any()).boxed()
    }
    fn one(next: &mut Count) -> Self {
        Some(T::one(next))
    }
    fn all(next: &mut Count) -> Vec<Self> {
        vec![Some(T::one(next)), None]
    }
}

impl<T: Sample> Sample for Box<T> {
    fn any() -> BoxedStrategy<Self> {
        any::<T>().prop_map(Self::new).boxed()
    }
    fn one(next: &mut Count) -> Self {
        Self::new(T::one(next))
    }
}
impl<T: Sample> Sample for Vec<T> {
    fn any() -> BoxedStrategy<Self> {
        vec(T::any(), 0..4).boxed()
    }
    fn one(next: &mut Count) -> Self {
        T::all(next)
    }
}

impl Sample for Bytes {
    fn any() -> BoxedStrategy<Self> {
        vec(proptest::prelude::any::<u8>(), 0..40).prop_map(Self).boxed()
    }
    fn one(next: &mut Count) -> Self {
        Self(next.bytes::<3>().to_vec())
    }
}

impl Sample for String {
    fn any() -> BoxedStrategy<Self> {
        vec(proptest::prelude::any::<char>(), 0..12).prop_map(Self::from_iter).boxed()
    }
    fn one(_: &mut Count) -> Self {
        "text".to_owned()
    }
}

impl Sample for WordOf {
    fn any() -> BoxedStrategy<Self> {
        let rpc = (1..u64::MAX, 1..u64::MAX);
        let rpc = rpc.prop_map(|(client, sequence)| RpcId { client: ClientId(client), sequence: Sequence(sequence) });
        let reason = vec(proptest::prelude::any::<u8>(), 0..limits::REASON_BYTES_MAX);
        let words = (rpc, super::any(), super::any(), super::any(), super::any(), super::any(), super::any(), reason);
        words
            .prop_map(|(rpc, body, lease_expiry, told, asks, participants, behind, reason)| Self {
                rpc,
                body,
                lease_expiry,
                told,
                asks,
                participants,
                behind,
                reason,
            })
            .boxed()
    }
    fn one(next: &mut Count) -> Self {
        Self {
            rpc: Sample::one(next),
            body: Sample::one(next),
            lease_expiry: Sample::one(next),
            told: Sample::one(next),
            asks: Sample::one(next),
            participants: Sample::one(next),
            behind: Sample::one(next),
            reason: Sample::one(next),
        }
    }
}

impl Sample for BehindWhat {
    fn any() -> BoxedStrategy<Self> {
        let rpc = (1..u64::MAX, 1..u64::MAX);
        let rpc = rpc.prop_map(|(client, sequence)| RpcId { client: ClientId(client), sequence: Sequence(sequence) });
        (rpc, super::any()).prop_map(|(rpc, body)| Self { rpc, body }).boxed()
    }
    fn one(next: &mut Count) -> Self {
        Self { rpc: Sample::one(next), body: Sample::one(next) }
    }
}

/// Calls a generic function with every type of the codec and its name.
#[allow(unused_macros)]
macro_rules! every_type {
    ($each:ident) => {
        every_type!($each: u8, u16, u32, u64, u128, i64, bool, Option<u32>, Vec<u16>, String, Bytes, SocketAddr,
            AckedBelow, BodyHash, BootId, ClientId, ClusterId, ClusterTime, ConfigVersion, Epoch, Incarnation, KeyHash,
            AttachId, ListVersion, MemberId, ViewNumber, NodeId, SegmentId, Sequence, ShardId, Slot, TableId, Tick, UnixMillis, RpcId, CoreId, LogPosition,
            Envelope, Appended, SyncRequest, Synced, Recorded, RecordedVerdict, Refusal, Refused, ReadRefused,
            Durability, MemberState, ShardPhase, Memory, Member, ShardConfig, NodeInfo, TableInfo, Tablet, GroupMember, Configuration,
            Placement, TableCommand, TableOutcome, AdminOrder, AdminOutcome, Report, LeaseInfo, Missing, Knowledge, ShardKnowledge, GcEntry, Told, WordOf, BehindWhat, AttachAt, Holding, CoreStatus, PortUse,
            ReplicaStatus, TransactionsStatus, PendingTransaction, Cleaning, CleanerState, WitnessStatus, LoopUsage, LoopTurns, LongTurn, Work, AnyMessage)
    };
    ($each:ident: $($ty:ty),*) => { $($each::<$ty>(stringify!($ty));)* };
}
#[allow(unused_imports)]
pub(crate) use every_type;
