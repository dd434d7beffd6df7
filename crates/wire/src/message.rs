//! Every message that is not on the hot path, in one table, and the structures that messages hold.
//!
//! A message is one row: name, number, fields. The macro makes a struct and its codec of each row; docs/wire.md is
//! compared with the table by a test. A number is never used again for another message. Which machine takes which
//! message is in `link`; payloads of the hot path are in `hot`.
//!
//! A *nonce* or *id* in a question is chosen by the asker and repeated in the answer. `shard` and `epoch` name the
//! shard and the term that a message is about. A receiver of another term ignores or refuses the message.

use std::net::SocketAddr;

use kasha_types::{
    AttachId, BootId, ClientId, ClusterId, ClusterTime, ConfigVersion, CoreId, Epoch, Incarnation, KeyHash,
    ListVersion, LogEnd, LogPosition, MemberId, NodeId, RpcId, SegmentId, ShardId, Tick, UnixMillis, ViewNumber,
};

use crate::codec::Bytes;
use crate::link::{Message, carries, unexpected};
use crate::status::{CoreStatus, LoopTurns, LoopUsage};
use crate::version::{Later, Level, Levels, WireVersion, WireVersions, level};
use crate::{Configuration, DecodeError, GroupMember, Kind, Reader, Served, Wire, wire_struct};

pub use crate::administering::{AdminOrder, AdminOutcome};
pub use crate::report::Report;
pub use crate::tables::{Placement, TableCommand, TableOutcome};
pub use crate::word::{BehindWhat, Told, WordOf};

/// Makes a struct of each row, and the enum of all of them.
macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident = $number:literal $(since $level:literal)? {
        $($(#[$field_doc:meta])* $field:ident: $ty:ty),* $(,)?
    }),* $(,)?) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Eq)]
            pub struct $name { $($(#[$field_doc])* pub $field: $ty),* }

            impl Wire for $name {
                fn put(&self, out: &mut Vec<u8>) {
                    out.push($number);
                    $(self.$field.put(out);)*
                }
                fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                    let number = from.take()?;
                    Self::take_fields(number, from)
                }
            }

            impl Message for $name {
                const CARRIED: u128 = 1 << $number;
                fn name(&self) -> &'static str {
                    stringify!($name)
                }
                fn take_fields(number: u8, from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                    if number == $number { Ok(Self { $($field: from.take()?),* }) } else { Err(unexpected(number)) }
                }
            }
        )*

        /// Names and numbers of all messages, in order.
        pub const TABLE: &[(&str, u8)] = &[$((stringify!($name), $number)),*];

        /// The level that each message needs (R7.6), in the same order: the first one, unless its row says `since` another. Nobody sends
        /// a message to a cluster that is at a lower level.
        pub const LEVELS: &[Level] = &[$(level!($($level)?)),*];

        carries! {
            /// Any message. For traces, checkers and tests, which see every link: a machine decodes only its own.
            AnyMessage { $($name),* }
        }
    };
}

impl Hello {
    /// The `Hello` of a frame, whatever later versions say behind these fields: the one message that comes before it is known what the
    /// other side understands.
    #[must_use]
    pub fn from_frame_of_any_version(kind: u8, payload: &[u8]) -> Option<Self> {
        if kind == Kind::Message as u8 { Reader::new(payload).take().ok() } else { None }
    }
}

/// Calls a macro with the table: names, numbers, and fields with their types. A number is below 128, and is never used
/// again for another message.
#[macro_export]
macro_rules! message_table {
    ($then:ident) => {
        $then! {
            /// First on every dialled connection: who speaks, in which versions, to whom. More fields may stand behind these
            /// ([`Hello::from_frame_of_any_version`]).
            Hello = 1 {
                /// The versions that the dialler speaks.
                versions: WireVersions,
                /// 0: not known yet (a client that bootstraps).
                cluster: ClusterId,
                /// The dialling core; `None`: a client.
                from: Option<CoreId>,
                /// The dialling process; 0 for a client.
                incarnation: Incarnation,
                /// The core it wants; `None`: whoever listens.
                to: Option<CoreId>,
            },
            /// Answer to `Hello`.
            Welcome = 2 {
                /// The version of every frame from now on, in both directions.
                version: WireVersion,
                /// The listener's cluster.
                cluster: ClusterId,
                /// The listener; `None`: the coordinator.
                core: Option<CoreId>,
                /// The process of the listener.
                incarnation: Incarnation,
            },
            /// The sender closes the connection. The text is for a person.
            Goodbye = 3 {
                /// What, why, what to do.
                reason: String,
            },

            /// Anyone to anyone who knows: the configuration, if newer than this; else as soon as there is a newer one.
            GetConfiguration = 8 {
                /// What the asker has; 0 = none.
                have: ConfigVersion,
            },
            /// The configuration; answer or push.
            ConfigurationIs = 9 {
                /// The whole configuration, in the version that the sender obeys.
                configuration: Configuration,
                /// The level of the cluster: nobody says or writes what needs a higher one.
                level: Level,
                /// The unix time of ClusterTime 0, once the coordinator has read a clock (R10.12): it never changes then, and every later
                /// configuration has it.
                unix_origin: Later<2, Option<UnixMillis>>,
            },
            /// Client to coordinator: a client id and a lease. Safe to repeat: an unused id costs nothing.
            OpenSession = 10 {
                /// A number that the client draws; `SessionOpened` repeats it.
                nonce: u64,
            },
            /// Coordinator to client: answer to `OpenSession`.
            SessionOpened = 11 {
                /// The number of the request.
                nonce: u64,
                /// The client id that was granted.
                client: ClientId,
                /// When the lease of this client id ends.
                lease_expiry: ClusterTime,
                /// The coordinator's ClusterTime when it answered.
                cluster_time: ClusterTime,
            },
            /// Client to coordinator, in the background.
            RenewLease = 12 {
                /// The client id whose lease is to be renewed.
                client: ClientId,
            },
            /// Coordinator to client: answer to `RenewLease`.
            LeaseRenewed = 13 {
                /// The client id whose lease was renewed.
                client: ClientId,
                /// When the renewed lease ends.
                lease_expiry: ClusterTime,
                /// The coordinator's ClusterTime when it answered.
                cluster_time: ClusterTime,
            },
            /// Coordinator to client: the lease has ended; what is outstanding is unknown.
            LeaseLost = 14 {
                /// The client id whose lease has ended.
                client: ClientId,
            },
            /// Client to coordinator: create or drop a table. Exactly once by (client, sequence), one at a time per client.
            TableRequest = 15 {
                /// The client id under which the request is numbered.
                client: ClientId,
                /// The number of the request among the client's table requests, from 1.
                sequence: u64,
                /// Create or drop, and the table's name.
                command: TableCommand,
            },
            /// Coordinator to client: answer to `TableRequest`.
            TableAnswer = 16 {
                /// The client id of the request.
                client: ClientId,
                /// The number of the request that is answered.
                sequence: u64,
                /// What the request has changed, or why it changed nothing.
                outcome: TableOutcome,
            },
            /// Any process to a core: asks for the core's status.
            GetStatus = 17 {
                /// A number that the asker chooses; `StatusIs` repeats it.
                id: u64,
            },
            /// Core to asker: answer to `GetStatus`.
            StatusIs = 18 {
                /// The number of the request.
                id: u64,
                /// The core's replicas and witnesses, and their counters.
                status: CoreStatus,
            },
            /// Anyone to an event loop: what have you used up? Answered by the loop itself, whatever its machine is.
            GetUsage = 19 {
                /// A number that the asker chooses; `UsageIs` repeats it.
                id: u64,
            },
            /// Answer to `GetUsage`.
            UsageIs = 20 {
                /// The number of the request.
                id: u64,
                /// What the event loop's thread has used up since it began.
                usage: LoopUsage,
            },

            /// Operator to coordinator: the recovery of this shard is to go on without what it waits for. Updates may be lost (R7.7).
            GiveUp = 21 {
                /// A number that the operator's program chooses; `GivenUp` repeats it.
                nonce: u64,
                /// The shard that is recovering.
                shard: ShardId,
                /// What the operator was told that it waits for, and gives up. `None`: only asks what it is.
                seen: Option<Missing>,
            },
            /// Coordinator to operator: answer to `GiveUp`.
            GivenUp = 22 {
                /// The number of the request.
                nonce: u64,
                /// What the recovery waits for; if the operator had seen it, it is given up now. `None`: refused.
                missing: Option<Missing>,
                /// Why nothing is, or would be, given up.
                refused: Option<String>,
            },

            /// Core to coordinator, every eighth of a lease: alive; and what it wants committed. Reports are repeated until the
            /// configuration shows them.
            Heartbeat = 24 {
                /// The core that sends the heartbeat.
                core: CoreId,
                /// The process of that core.
                incarnation: Incarnation,
                /// The boot id of that core's machine.
                boot: BootId,
                /// When it was sent, by the sender's clock; echoed.
                sent: Tick,
                /// When the newest answered heartbeat was sent; at first, when the process began.
                answered: Tick,
                /// The version of the configuration that the core obeys.
                have: ConfigVersion,
                /// The greatest ClusterTime it has seen.
                cluster_time: ClusterTime,
                /// Addresses of all cores of the node.
                addresses: Vec<SocketAddr>,
                /// Nodes that answered a ping of this core within the last half lease.
                heard: Vec<NodeId>,
                /// What it wants committed.
                reports: Vec<Report>,
                /// What its folder knows. A coordinator that knows less has lost its memory (R9.13).
                knows: Knowledge,
                /// Where its process can host a member of the group of coordinators; `None`: nowhere.
                control: Option<SocketAddr>,
                /// The levels that its process can work at.
                levels: Levels,
            },
            /// Coordinator to core: answer to `Heartbeat`.
            HeartbeatAnswer = 25 {
                /// When the heartbeat was sent, by its sender's clock.
                sent: Tick,
                /// How long the lease runs from then, in milliseconds, drift bound already taken off; 0 = no lease.
                lease_millis: u64,
                /// The coordinator's ClusterTime when it answered; 0: it tells none, for it only listens (R9.13).
                cluster_time: ClusterTime,
                /// Every client id that was ever granted is below this (R4.3: what a lease's claim is checked against); 0: it tells
                /// nothing.
                clients_below: ClientId,
                /// The view in which the coordinator leads. Who has heard of a later one obeys it no more (R9.2).
                view: ViewNumber,
            },
            /// Primary to coordinator: which of these clients have lost their lease?
            LeaseQuery = 26 {
                /// Client ids of which the primary has heard nothing for long.
                clients: Vec<ClientId>,
            },
            /// The coordinator's verdict (R4.6).
            LeaseVerdict = 27 {
                /// The coordinator's ClusterTime when it answered.
                cluster_time: ClusterTime,
                /// Those of the asked that will never be renewed again.
                expired: Vec<ClientId>,
                /// Those of the asked that are alive, with the end of their lease.
                alive: Vec<LeaseInfo>,
                /// The view in which the coordinator leads, as in `HeartbeatAnswer`.
                view: ViewNumber,
            },
            /// Core to core: do we hear each other? What is heard is told to the coordinator (pitfall 9).
            Ping = 28 {
                /// When it was sent, by the sender's clock; echoed.
                sent: Tick,
            },
            /// Answer to `Ping`.
            Pong = 29 {
                /// When the ping was sent, by its sender's clock.
                sent: Tick,
                /// The node that answers.
                node: NodeId,
            },
            /// Anyone to an event loop: which were your longest turns? Answered by the loop itself, as `GetUsage` is.
            GetTurns = 30 {
                /// A number that the asker chooses; `TurnsAre` repeats it.
                id: u64,
            },
            /// Answer to `GetTurns`.
            TurnsAre = 31 {
                /// The number of the request.
                id: u64,
                /// The longest turns of the event loop.
                turns: Box<LoopTurns>,
            },

            /// New primary to a replica: take no older epoch, and report (section 7, step 2).
            Fence = 32 {
                /// The shard whose log is fenced.
                shard: ShardId,
                /// The new term.
                epoch: Epoch,
                /// The new primary.
                primary: CoreId,
                /// Which attempt to attach it, of this primary's; 0: none yet, an election.
                attach: AttachId,
                /// The term that last served, as the coordinator committed it.
                served: Option<Served>,
                /// The witness list that the new term was promoted with.
                list: ListVersion,
            },
            /// Replica to new primary.
            FenceReport = 33 {
                /// The shard whose log is fenced.
                shard: ShardId,
                /// The term that the replica has promised.
                epoch: Epoch,
                /// The node of the replica.
                node: NodeId,
                /// The number of the attempt, as in the `Fence`.
                attach: AttachId,
                /// Whether it holds anything of this shard.
                exists: bool,
                /// Its last entry's epoch, and its end.
                end: LogPosition,
                /// Where each epoch begins in its log.
                history: Vec<LogPosition>,
                /// Whether it surely holds all that it ever acknowledged (R5.5).
                intact: bool,
                /// Whether its older data is all there.
                complete: bool,
                /// Whether its log surely holds every update that was answered, so that no witness is needed (R7.7).
                whole: bool,
            },
            /// Primary to replica: from now on appends of this epoch; cut your log to where we agree.
            Attach = 34 {
                /// The shard of the log.
                shard: ShardId,
                /// The primary's term.
                epoch: Epoch,
                /// The core of the primary.
                primary: CoreId,
                /// Which attempt this is. An earlier one is not obeyed.
                attach: AttachId,
                /// The configuration that made the replica a member: an older one that comes late must not make it forget.
                since: ConfigVersion,
                /// The end that the replica reported. With another end it must not obey: this message is an old one.
                expected: LogPosition,
                /// Where the primary's log ends: what was ever synced lies below. Who lost something holds all again from there on.
                must_hold: LogEnd,
                /// Which part of the replica's log stays.
                start: AttachAt,
            },
            /// Replica to primary: attached; its file holds the log to where it joins.
            Attached = 35 {
                /// The shard of the log.
                shard: ShardId,
                /// The primary's term.
                epoch: Epoch,
                /// The node of the replica.
                node: NodeId,
                /// The number of the attempt, as in the `Attach`.
                attach: AttachId,
            },
            /// Replica to primary: an append or attach does not fit what it holds.
            Mismatch = 36 {
                /// The shard of the log.
                shard: ShardId,
                /// The term of what does not fit.
                epoch: Epoch,
                /// The node of the replica.
                node: NodeId,
                /// The number of the attempt to which the refused frame belongs.
                attach: AttachId,
            },
            /// Primary to joiner: part of an older segment.
            CopySegment = 37 {
                /// The shard of the log.
                shard: ShardId,
                /// The primary's term.
                epoch: Epoch,
                /// The number of the attempt to attach the joiner.
                attach: AttachId,
                /// Which segment; `u32::MAX` with a `total` of 0.
                segment: SegmentId,
                /// Bytes of the whole segment; 0: there is no more to copy, the joiner is complete.
                total: u32,
                /// Where this part begins.
                offset: u32,
                /// The bytes of this part.
                bytes: Bytes,
            },
            /// Joiner to primary: the segment's file holds it up to here.
            SegmentCopied = 38 {
                /// The shard of the log.
                shard: ShardId,
                /// The primary's term.
                epoch: Epoch,
                /// The node of the joiner.
                node: NodeId,
                /// The number of the attempt to attach the joiner.
                attach: AttachId,
                /// Which segment; `u32::MAX`: all of them, the joiner's copy is complete.
                segment: SegmentId,
                /// Up to where; 0 with `u32::MAX`.
                offset: u32,
            },
            /// New primary to the member with the greatest log: give me what I lack.
            FetchLog = 39 {
                /// The shard of the log.
                shard: ShardId,
                /// The term of the new primary.
                epoch: Epoch,
                /// From where; [`LogEnd::MAX`]: from the head segment's beginning.
                from: LogEnd,
            },
            /// Part of a log; empty at its end.
            LogPiece = 40 {
                /// The shard of the log.
                shard: ShardId,
                /// The term of the new primary.
                epoch: Epoch,
                /// The position that the bytes follow (a later segment's base, if the asked for one ends).
                from: LogEnd,
                /// Whole entry groups of one segment; empty at the end of the log.
                bytes: Bytes,
            },
            /// New primary to a witness: freeze, and hand out what you hold (CURP's getRecoveryData).
            FreezeWitness = 41 {
                /// The shard that is recovering.
                shard: ShardId,
                /// The version of the witness list.
                list: ListVersion,
                /// The term that recovers.
                epoch: Epoch,
            },
            /// Witness to new primary.
            WitnessHolds = 42 {
                /// The shard that is recovering.
                shard: ShardId,
                /// The version of the witness list.
                list: ListVersion,
                /// The term that recovers.
                epoch: Epoch,
                /// The node of the witness.
                node: NodeId,
                /// Whether these are surely all that it accepted (R5.5).
                holding: Holding,
                /// Bodies; none if the instance is damaged or not there.
                requests: Vec<Bytes>,
            },
            /// Primary to witness: these are synced (CURP 4.5).
            Gc = 43 {
                /// The shard whose updates are synced.
                shard: ShardId,
                /// The version of the witness list.
                list: ListVersion,
                /// Counts the primary's gcs; one in flight.
                round: u64,
                /// Refuse leases that end at or below it (R4.6).
                floor: ClusterTime,
                /// The slots to empty.
                entries: Vec<GcEntry>,
            },
            /// Witness to primary: answer to `Gc`.
            GcDone = 44 {
                /// The shard.
                shard: ShardId,
                /// The version of the witness list.
                list: ListVersion,
                /// The number of the gc, as in the `Gc`.
                round: u64,
                /// The node of the witness.
                node: NodeId,
                /// Requests that survived three gcs: run them through `look_up` and sync.
                suspects: Vec<Bytes>,
            },
            /// Participants of transactions over several shards to each other, batched by turn.
            Words = 46 {
                /// The shard whose primary the words are for.
                to: ShardId,
                /// The shard whose primary sends the words.
                from: ShardId,
                /// One entry for each transaction.
                words: Vec<WordOf>,
            },
            /// Core to client: a request showed another ClusterTime than this core knows of. It comes before the answer.
            TimeIs = 47 {
                /// What the client took ClusterTime for when it sent the request.
                shown: ClusterTime,
                /// The least that ClusterTime can have been when the request came.
                least: ClusterTime,
                /// The most that it can have been.
                most: ClusterTime,
            },
            /// Members of the group of coordinators to each other.
            Grouped = 48 {
                /// Who says it.
                from: MemberId,
                /// The process of that member.
                process: Incarnation,
                /// To whom.
                to: MemberId,
                /// The identity of the folder of `to`, if the sender knows it; 0: it does not. A process with this folder that is no member as
                /// yet becomes one.
                folder: u32,
                /// The levels that the process of the sender can work at.
                levels: Levels,
                /// How many nodes that are alive the sender hears (R9.15).
                hears: u16,
                /// A message of the log that the group replicates.
                message: Bytes,
            },
            /// A member of the group of coordinators that does not lead, to whoever asks it as if it did.
            NotLeader = 49 {
                /// The view in which it is. Of two such answers the one with the greater view is newer.
                view: ViewNumber,
                /// Who leads that view, as far as it knows.
                leader: Option<MemberId>,
                /// All members.
                group: Vec<GroupMember>,
            },
            /// Operator to coordinator: something is to become so. The same order may be given again at any time: it says what is to be, and
            /// the answer says whether it is.
            Administer = 50 {
                /// A number that the operator's program chooses; `Administered` repeats it.
                nonce: u64,
                /// What is to become so.
                order: AdminOrder,
            },
            /// Coordinator to operator: answer to `Administer`.
            Administered = 51 {
                /// The number of the request.
                nonce: u64,
                /// Whether it is so.
                outcome: AdminOutcome,
            },
        }
    };
}
message_table!(messages);

/// What a recovery waits for, and cannot do without unless it is given up (R7.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The term that waits.
    pub epoch: Epoch,
    /// Members that have not said what they hold.
    pub members: Vec<NodeId>,
    /// The witnesses of the list, if none of them is of use.
    pub witnesses: Vec<NodeId>,
}

/// One client's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseInfo {
    /// The client id that has the lease.
    pub client: ClientId,
    /// When the lease ends.
    pub expiry: ClusterTime,
}

/// What a core's folder knows of its cluster (R9.13): facts that the coordinator had committed before it told them. The greatest
/// ClusterTime is a field of the heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knowledge {
    /// The newest configuration that was ever obeyed.
    pub configuration: ConfigVersion,
    /// Every client id that was granted, as far as was ever told, is below this.
    pub clients_below: ClientId,
    /// What it knows of the shards of which it has files.
    pub shards: Vec<ShardKnowledge>,
}

/// What a core's folder knows of a shard (R9.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardKnowledge {
    /// The shard.
    pub shard: ShardId,
    /// The term that was promised; 0: none.
    pub promised: Epoch,
    /// The newest witness list that was begun here; 0: none.
    pub list: ListVersion,
    /// The configuration that made the newest set of members which this core was one of; 0: none.
    pub set: ConfigVersion,
}

/// One slot to drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcEntry {
    /// The hash of the key whose slot is to be emptied.
    pub key: KeyHash,
    /// The request that the slot must hold. A slot with another request stays.
    pub rpc: RpcId,
}

/// Where a replica's log joins the primary's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachAt {
    /// Cut to this position, where both logs agree: the replica has all before it.
    Keep(LogEnd),
    /// Forget everything and begin at this segment base; older segments are copied.
    Join(LogEnd),
}

/// What an instance of a witness is worth to a recovery (R5.5). The rule stands in `kasha-node`'s `witnessing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Holding {
    /// It surely holds all that it accepted.
    Sure = 0,
    /// Power was lost: what it accepted last may be gone.
    PowerLost = 1,
    /// Its files are gone or damaged, or nobody knows whether it had any.
    Damaged = 2,
    /// It was never told to serve this list.
    NeverHad = 3,
}

impl Wire for Holding {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match from.take::<u8>()? {
            0 => Self::Sure,
            1 => Self::PowerLost,
            2 => Self::Damaged,
            3 => Self::NeverHad,
            _ => return Err(DecodeError::Invalid("a witness's holding")),
        })
    }
}

impl Wire for AttachAt {
    fn put(&self, out: &mut Vec<u8>) {
        let (tag, offset) = match *self {
            Self::Keep(offset) => (0u8, offset),
            Self::Join(offset) => (1, offset),
        };
        tag.put(out);
        offset.put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match from.take::<u8>()? {
            0 => Ok(Self::Keep(from.take()?)),
            1 => Ok(Self::Join(from.take()?)),
            _ => Err(DecodeError::Invalid("where to attach")),
        }
    }
}

wire_struct! {
    LeaseInfo { client, expiry }
    Missing { epoch, members, witnesses }
    Knowledge { configuration, clients_below, shards }
    ShardKnowledge { shard, promised, list, set }
    GcEntry { key, rpc }
}
