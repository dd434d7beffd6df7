//! The commands that the log consists of. A command contains every choice that was made. So applying it needs no
//! judgement, and a later version with other placement rules still replays an old log to the same state.

use std::net::SocketAddr;

use kasha_types::{
    BootId, ClientId, ClusterTime, Epoch, Incarnation, ListVersion, MemberId, NodeId, ShardId, Tick, UnixMillis,
};
use kasha_wire::message::TableCommand;
use kasha_wire::{DecodeError, GroupMember, Level, Member, Reader, ShardConfig, Wire};

use crate::timing::Timing;

/// The level of a row: the first one unless the row says another.
macro_rules! level {
    () => {
        Level::FIRST
    };
    ($level:literal) => {
        Level($level)
    };
}

macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident = $value:literal $(since $level:literal)? { $($(#[$field_doc:meta])* $field:ident: $ty:ty),* $(,)? }),* $(,)?) => {
        /// One committed change.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Command { $($(#[$doc])* $name { $($(#[$field_doc])* $field: $ty),* }),* }

        impl Wire for Command {
            fn put(&self, out: &mut Vec<u8>) {
                match self { $(Self::$name { $($field),* } => { out.push($value); $($field.put(out);)* })* }
            }
            fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                match from.take::<u8>()? {
                    $($value => Ok(Self::$name { $($field: from.take()?),* }),)*
                    _ => Err(DecodeError::Invalid("a command's number")),
                }
            }
        }

        impl Command {
            /// The level that it needs: below that no member decides it (R7.6).
            pub(crate) fn level(&self) -> Level {
                match self { $(Self::$name { .. } => level!($($level)?)),* }
            }
        }
    };
}

commands! {
    /// The operator changed options that may be changed.
    Configure = 1 {
        /// The address at which the coordinator listens.
        address: SocketAddr,
        /// The smallest number of members beside the primary with which updates are accepted.
        min_backups: u8,
        /// How many nodes the first placement waits for.
        nodes: u16,
    },
    /// A node is alive: for the first time, again, or with a new process.
    NodeSeen = 2 {
        /// The node.
        node: NodeId,
        /// The process that is running now.
        incarnation: Incarnation,
        /// The boot id of its machine.
        boot: BootId,
        /// One address per core.
        addresses: Vec<SocketAddr>,
    },
    /// Every lease of the node has lapsed.
    NodeLost = 3 {
        /// The node.
        node: NodeId,
    },
    /// The first placement; creates the table "default".
    Place = 4 {
        /// Every shard, in order.
        shards: Vec<ShardConfig>,
    },
    /// A new term with a new primary (section 7, step 1).
    Promote = 5 {
        /// The shard that gets a new primary.
        shard: ShardId,
        /// The new term.
        epoch: Epoch,
        /// The new primary.
        primary: NodeId,
        /// The new set, the primary first.
        members: Vec<Member>,
        /// The complete members of the set that last served.
        recover_from: Vec<NodeId>,
    },
    /// The primary has recovered; it serves (section 7, step 5).
    Recovered = 6 {
        /// The shard that recovered.
        shard: ShardId,
        /// The term that recovered.
        epoch: Epoch,
        /// The witness list that is in force now.
        list: ListVersion,
        /// The nodes of the list.
        witnesses: Vec<NodeId>,
    },
    /// Another replica set in the same term (R7.2). No copy becomes complete by this command.
    SetMembers = 7 {
        /// The shard whose set changes.
        shard: ShardId,
        /// The term in which it changes.
        epoch: Epoch,
        /// The set, the primary first.
        members: Vec<Member>,
    },
    /// A joiner's copy is complete.
    Copied = 8 {
        /// The shard of the copy.
        shard: ShardId,
        /// The term of the copy.
        epoch: Epoch,
        /// The joiner.
        node: NodeId,
    },
    /// The witness list must change: the primary is to close it (R6.2).
    CloseList = 9 {
        /// The shard of the list.
        shard: ShardId,
        /// The list to close.
        list: ListVersion,
    },
    /// The primary has closed the old list: the next one is in force.
    OpenList = 10 {
        /// The shard of the list.
        shard: ShardId,
        /// The new list.
        list: ListVersion,
        /// The nodes of the list.
        witnesses: Vec<NodeId>,
    },
    /// ClusterTime may be used up to here (R4.7), and goes on from here if the same boot of the machine goes on.
    ReserveTime = 11 {
        /// The last moment that is reserved.
        to: ClusterTime,
        /// The boot of the coordinator's machine; none if the machine does not tell.
        boot: Option<BootId>,
        /// What the clock of this boot showed.
        clock: Tick,
        /// What ClusterTime was then, if it did not stand still.
        time: ClusterTime,
        /// Nobody is told less.
        least: ClusterTime,
    },
    /// Client ids may be granted below here (R4.7).
    ReserveClients = 12 {
        /// The first id that may not be granted.
        below: ClientId,
    },
    /// A client's table request.
    Table = 13 {
        /// The client that asks.
        client: ClientId,
        /// The client's count of its table requests.
        sequence: u64,
        /// The request.
        command: TableCommand,
    },
    /// The primary's process stops, and has synced everything: no recovery needs the list's witnesses (R7.7).
    EmptyList = 15 {
        /// The shard of the primary.
        shard: ShardId,
        /// The new list, which names no witness.
        list: ListVersion,
    },
    /// The operator gives up the witnesses that a recovery waits for: a new term goes on without them (R7.7).
    GiveUpWitnesses = 16 {
        /// The shard that recovers.
        shard: ShardId,
        /// The new term. The list keeps its version, so that a log that is whole under it still counts.
        epoch: Epoch,
    },
    /// The operator gives up members that a recovery waits for: a new term goes on with the logs of the others (R7.7).
    GiveUpMembers = 17 {
        /// The shard that recovers.
        shard: ShardId,
        /// The new term. It asks the witnesses.
        epoch: Epoch,
        /// The members from whose logs the new term may recover: those that were not given up.
        recover_from: Vec<NodeId>,
    },
    /// A member of the group of coordinators, or one that is to become one, listens at this address.
    MemberAt = 18 {
        /// The member.
        of: GroupMember,
    },
    /// A member that has left, or that never came, is forgotten.
    MemberGone = 19 {
        /// The member. Its id is never used again.
        member: MemberId,
    },
    /// The group of coordinators is to have so many members (R9.12).
    GroupWanted = 20 {
        /// An odd number.
        members: u8,
    },
    /// The operator wants this member to leave: it goes when another one counts in its place.
    MemberLeaves = 21 {
        /// The member.
        member: MemberId,
    },
    /// The operator has thought better of it: this member stays.
    MemberStays = 23 {
        /// The member.
        member: MemberId,
    },
    /// Nobody with this id has come, and nobody is waited for any more. Unlike a member, its folder has promised nothing: it may be invited
    /// again, as the same member.
    InvitationEnds = 24 {
        /// The id.
        member: MemberId,
    },
    /// Every process of the cluster can work at this level: from now on what needs it may be said and written (R7.6).
    Raise = 22 {
        /// The new level.
        level: Level,
    },
    /// The unix time of ClusterTime 0: it is said once (R10.12).
    UnixOrigin = 25 {
        /// By the clock on the wall of the leader of that time.
        origin: UnixMillis,
    },
    /// The term of node leases, and how far two clocks may drift apart in one (R9.12). A lead begins with what is committed then.
    Timing = 26 {
        /// Both.
        timing: Timing,
    },
    /// Every node lease that still runs ends within this time, by the coordinator's clock (F1).
    BoundLeases = 14 {
        /// Milliseconds: the term of a lease plus the drift bound.
        millis: u64,
    },
}

impl Command {
    /// The shard that it changes, if it is one.
    pub(crate) fn shard(&self) -> Option<ShardId> {
        match *self {
            Self::Promote { shard, .. }
            | Self::Recovered { shard, .. }
            | Self::SetMembers { shard, .. }
            | Self::Copied { shard, .. }
            | Self::CloseList { shard, .. }
            | Self::OpenList { shard, .. }
            | Self::EmptyList { shard, .. }
            | Self::GiveUpWitnesses { shard, .. }
            | Self::GiveUpMembers { shard, .. } => Some(shard),
            Self::Configure { .. }
            | Self::NodeSeen { .. }
            | Self::NodeLost { .. }
            | Self::Place { .. }
            | Self::ReserveTime { .. }
            | Self::ReserveClients { .. }
            | Self::Table { .. }
            | Self::MemberAt { .. }
            | Self::MemberGone { .. }
            | Self::GroupWanted { .. }
            | Self::MemberLeaves { .. }
            | Self::MemberStays { .. }
            | Self::InvitationEnds { .. }
            | Self::Raise { .. }
            | Self::UnixOrigin { .. }
            | Self::Timing { .. }
            | Self::BoundLeases { .. } => None,
        }
    }
}
