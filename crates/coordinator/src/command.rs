//! What the log consists of. A command carries every choice that was made, so that applying it needs no judgement and
//! a later version with other placement rules still replays an old log to the same state.

use std::net::SocketAddr;

use kasha_types::{BootId, ClientId, ClusterTime, Epoch, Incarnation, ListVersion, NodeId, ShardId};
use kasha_wire::message::TableCommand;
use kasha_wire::{DecodeError, Member, Reader, ShardConfig, Wire};

macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident = $value:literal { $($(#[$field_doc:meta])* $field:ident: $ty:ty),* $(,)? }),* $(,)?) => {
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
    };
}

commands! {
    /// The operator changed what may be changed.
    Configure = 1 {
        /// Where the coordinator listens.
        address: SocketAddr,
        /// Fewest members beside the primary for updates to be taken.
        min_backups: u8,
        /// How many nodes the first placement waits for.
        nodes: u16,
    },
    /// A node is alive: for the first time, again, or with a new process.
    NodeSeen = 2 {
        /// Which.
        node: NodeId,
        /// Its process.
        incarnation: Incarnation,
        /// Its machine's boot.
        boot: BootId,
        /// One address per core.
        addresses: Vec<SocketAddr>,
    },
    /// Every lease of the node has lapsed.
    NodeLost = 3 {
        /// Which.
        node: NodeId,
    },
    /// The first placement; creates the table "default".
    Place = 4 {
        /// Every shard, in order.
        shards: Vec<ShardConfig>,
    },
    /// A new term with a new primary (section 7, step 1).
    Promote = 5 {
        /// Which shard.
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
        /// Which shard.
        shard: ShardId,
        /// In which term.
        epoch: Epoch,
        /// The witness list that is in force now.
        list: ListVersion,
        /// Its nodes.
        witnesses: Vec<NodeId>,
    },
    /// Another replica set in the same term (R7.2). Nobody becomes complete by it.
    SetMembers = 7 {
        /// Which shard.
        shard: ShardId,
        /// In which term.
        epoch: Epoch,
        /// The set, the primary first.
        members: Vec<Member>,
    },
    /// A joiner's copy is complete.
    Copied = 8 {
        /// Which shard.
        shard: ShardId,
        /// In which term.
        epoch: Epoch,
        /// Who joined.
        node: NodeId,
    },
    /// The witness list must change: the primary is to close it (R6.2).
    CloseList = 9 {
        /// Which shard.
        shard: ShardId,
        /// Which list.
        list: ListVersion,
    },
    /// The primary has closed the old list: the next one is in force.
    OpenList = 10 {
        /// Which shard.
        shard: ShardId,
        /// The new list.
        list: ListVersion,
        /// Its nodes.
        witnesses: Vec<NodeId>,
    },
    /// ClusterTime may be handed out up to here (R4.7).
    ReserveTime = 11 {
        /// The last moment.
        to: ClusterTime,
    },
    /// Client ids may be granted below here (R4.7).
    ReserveClients = 12 {
        /// The first id that may not.
        below: ClientId,
    },
    /// A client's table request.
    Table = 13 {
        /// Who asks.
        client: ClientId,
        /// Its count.
        sequence: u64,
        /// What.
        command: TableCommand,
    },
    /// The primary's process stops, and has synced everything: no recovery needs the list's witnesses (R7.7).
    EmptyList = 15 {
        /// Which shard.
        shard: ShardId,
        /// The new list, which names nobody.
        list: ListVersion,
    },
    /// The operator gives the witnesses up that a recovery waits for: a new term goes on without them (R7.7).
    GiveUpWitnesses = 16 {
        /// Which shard.
        shard: ShardId,
        /// The new term. The list keeps its version, so that a log that is whole under it still counts.
        epoch: Epoch,
    },
    /// The operator gives members up that a recovery waits for: a new term goes on with what the others hold (R7.7).
    GiveUpMembers = 17 {
        /// Which shard.
        shard: ShardId,
        /// The new term. Its witnesses are still to be asked.
        epoch: Epoch,
        /// Whose logs it may recover from: the others.
        recover_from: Vec<NodeId>,
    },
    /// Every node lease that still runs ends within so long, by the coordinator's count (F1).
    BoundLeases = 14 {
        /// Milliseconds: a lease's term and the drift bound.
        millis: u64,
    },
}
