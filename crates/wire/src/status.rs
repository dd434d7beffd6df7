//! What a core tells of itself to whoever asks (`kasha status`). Costs nothing until asked.

use kasha_types::{
    ConfigVersion, CoreId, Epoch, Incarnation, ListVersion, LogEnd, LogPosition, PortUse, RpcId, ShardId, Work,
};

use crate::configuration::wire_enum;
use crate::{Later, wire_struct};

/// One core's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreStatus {
    /// The core that answers.
    pub core: CoreId,
    /// The process of the core.
    pub incarnation: Incarnation,
    /// The configuration it obeys.
    pub configuration: ConfigVersion,
    /// Whether its lease runs: reads need no sync.
    pub lease: bool,
    /// The replicas it hosts.
    pub replicas: Vec<ReplicaStatus>,
    /// The witness instances it hosts.
    pub witnesses: Vec<WitnessStatus>,
    /// What the core does of the node's Redis port, if the node has one.
    pub port: Later<2, Option<PortUse>>,
}

/// One replica's status. Counters are zero at members that are not the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// The shard of the replica.
    pub shard: ShardId,
    /// The newest epoch that the replica has promised.
    pub epoch: Epoch,
    /// Whether it is the primary.
    pub primary: bool,
    /// Whether its copy of the log is one that a new primary may go on with: nothing of it is missing or damaged.
    pub complete: bool,
    /// What the replica is doing, in words for a person.
    pub state: String,
    /// End of its log.
    pub end: LogPosition,
    /// Up to where the set holds the log.
    pub synced: LogEnd,
    /// Operations above the synced position.
    pub unsynced_operations: u64,
    /// Keys that have a value.
    pub objects: u64,
    /// Bytes of segments in memory.
    pub memory_bytes: u64,
    /// The memory limit of the log in bytes (`memory_mib`).
    pub memory_max_bytes: u64,
    /// How much of that memory new data finds.
    pub memory: Memory,
    /// How much of the log lives, and what the cleaner does about the rest.
    pub cleaning: Cleaning,
    /// Transactions over several shards.
    pub transactions: TransactionsStatus,
    /// Clients with state here.
    pub clients: u64,
    /// Completion records here.
    pub completion_records: u64,
    /// Updates executed since this primary began to serve.
    pub updates: u64,
    /// Reads executed since this primary began to serve.
    pub reads: u64,
    /// Answers that left without waiting for a sync.
    pub fast_answers: u64,
    /// Answers that waited for a sync.
    pub gated_answers: u64,
    /// Requests answered from a completion record.
    pub duplicates_suppressed: u64,
    /// Updates answered with what an operation key keeps: they repeat an update that another request has executed.
    pub repeats_suppressed: u64,
    /// Updates refused since this primary began to serve.
    pub refusals: u64,
    /// Sync rounds that have ended in this term.
    pub syncs: u64,
}

/// What a replica knows of transactions over several shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransactionsStatus {
    /// Proposed here, and without an outcome.
    pub pending: u64,
    /// With an outcome that somebody may still ask for.
    pub kept: u64,
    /// Answers that are held until what they have seen is settled everywhere.
    pub held_answers: u64,
    /// Those that are pending longest, the oldest first. Only a serving primary names them.
    pub oldest: Vec<PendingTransaction>,
}

/// A transaction without an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingTransaction {
    /// The request id of the transaction.
    pub rpc: RpcId,
    /// How long this primary has known it, to about half a second.
    pub millis: u64,
    /// Participants that have not voted. If there are none, it waits for earlier ones, for a sync, or for room.
    pub waits_for: Vec<ShardId>,
    /// Updates and reads of this shard that wait for it.
    pub waiting: u32,
}

/// How much memory new data finds in a replica's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// A fifth of what new data may take, or more.
    Enough,
    /// Less than a fifth.
    Low,
    /// Updates that need more are refused.
    Full,
}

/// What of a replica's log lives, and what the cleaner does about the rest. Segments are counted whole, the one that is being
/// filled too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaning {
    /// Bytes of live entries.
    pub live_bytes: u64,
    /// New data is refused if live entries would take more than this.
    pub live_max_bytes: u64,
    /// Segments in memory.
    pub segments: u64,
    /// Segments in which nothing lives, and which leave as soon as all members know that.
    pub leaving: u64,
    /// Segments that cannot be cleaned yet: not all members hold them.
    pub unsynced: u64,
    /// Segments that are not worth cleaning: too little in them is dead.
    pub dense: u64,
    /// What the cleaner is at.
    pub cleaner: CleanerState,
    /// Segments that the cleaner has emptied since the term began.
    pub cleaned_segments: u64,
    /// Bytes of entries that it has copied for that.
    pub copied_bytes: u64,
}

/// What the cleaner of a replica is at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CleanerState {
    /// This replica is not a serving primary: it frees what its primary has cleaned.
    #[default]
    Follows,
    /// Enough memory is free.
    Rests,
    /// It copies what lives in a segment.
    Cleans,
    /// Copies, or the freeing of a segment, are not on all members yet.
    WaitsForSync,
    /// A floor is being raised, or a table dropped.
    WaitsForFloor,
    /// No segment is worth cleaning: delete something, or raise the limit.
    FindsNothing,
    /// There is no memory for copies.
    FindsNoRoom,
}

/// One witness instance's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessStatus {
    /// The shard whose updates the witness records.
    pub shard: ShardId,
    /// The version of the witness list.
    pub list: ListVersion,
    /// Whether a recovery has read the instance, which then takes nothing more.
    pub frozen: bool,
    /// Slots in use: a request takes one for each of its keys.
    pub held: u64,
    /// Requests newly held since the instance was made or loaded.
    pub accepted: u64,
    /// Requests rejected since the instance was made or loaded, for any reason.
    pub rejected: u64,
}

/// What an event loop's thread has used up since it began. For benchmarks: the difference of two, over the operations
/// between them, is what one operation costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopUsage {
    /// Processor time of the thread, in nanoseconds (`CLOCK_THREAD_CPUTIME_ID`).
    pub cpu_nanos: u64,
    /// Heap allocations of the thread; 0 where the program does not count them.
    pub allocations: u64,
    /// Bytes that the thread has allocated and not freed; 0 where the program does not count them.
    pub heap_bytes: u64,
    /// Turns of the loop.
    pub turns: u64,
    /// Frames received, handshakes excepted.
    pub frames_received: u64,
    /// Frames given to a connection.
    pub frames_sent: u64,
}

/// The longest turns of an event loop: nothing else that it does is heard or answered meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopTurns {
    /// Turns since its start.
    pub turns: u64,
    /// Of these, those that took more than 250 µs ([`LongTurn::nanos`]).
    pub long_turns: u64,
    /// The longest since its start.
    pub longest: LongTurn,
    /// The longest since this was asked last, by whomever.
    pub longest_since_asked: LongTurn,
    /// The same by what the loop itself did: without the time for effects on files, which may be the disk's.
    pub busiest: LongTurn,
    /// The same since this was asked last.
    pub busiest_since_asked: LongTurn,
}

/// A turn of an event loop, and what it did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LongTurn {
    /// How long ago it ended.
    pub millis_ago: u64,
    /// What it took, in nanoseconds: without the time for which the system gave the processor to others, as far as known.
    pub nanos: u64,
    /// From its beginning to its end, in nanoseconds.
    pub elapsed_nanos: u64,
    /// Of these, until all its inputs were handled.
    pub hearing_nanos: u64,
    /// For what a turn ends with: replay, freeing, heartbeats.
    pub closing_nanos: u64,
    /// For effects on files.
    pub files_nanos: u64,
    /// For giving sockets what was to be sent.
    pub sending_nanos: u64,
    /// It waited for a lock or for the disk.
    pub blocked: bool,
    /// Frames that it handled.
    pub frames: u32,
    /// The kinds of work that the turn did.
    pub work: Vec<Work>,
}

wire_enum! {
    Work, "a kind of work" { Replay = 0, Free = 1, Forget = 2, Graves = 3, DropTable = 4, Remove = 5, Copy = 6, Role = 7,
        Configure = 8, Clean = 9, Expire = 10 }
    Memory, "a state of memory" { Enough = 0, Low = 1, Full = 2 }
}

wire_enum! {
    CleanerState, "a state of a cleaner" {
        Follows = 0, Rests = 1, Cleans = 2, WaitsForSync = 3, WaitsForFloor = 4, FindsNothing = 5, FindsNoRoom = 6,
    }
}

wire_struct! {
    Cleaning {
        live_bytes, live_max_bytes, segments, leaving, unsynced, dense, cleaner, cleaned_segments, copied_bytes,
    }
}

wire_struct! {
    LoopTurns { turns, long_turns, longest, longest_since_asked, busiest, busiest_since_asked }
    LongTurn { millis_ago, nanos, elapsed_nanos, hearing_nanos, closing_nanos, files_nanos, sending_nanos, blocked, frames,
        work }
    LoopUsage { cpu_nanos, allocations, heap_bytes, turns, frames_received, frames_sent }
    CoreStatus { core, incarnation, configuration, lease, replicas, witnesses, port }
    PortUse { connections, accepted, refused, commands, bytes_in, bytes_out }
    ReplicaStatus { shard, epoch, primary, complete, state, end, synced, unsynced_operations, objects, memory_bytes,
        memory_max_bytes, memory, cleaning, transactions, clients, completion_records, updates, reads, fast_answers, gated_answers,
        duplicates_suppressed, repeats_suppressed, refusals, syncs }
    TransactionsStatus { pending, kept, held_answers, oldest }
    PendingTransaction { rpc, millis, waits_for, waiting }
    WitnessStatus { shard, list, frozen, held, accepted, rejected }
}
