//! What a core is told when it starts.

use std::net::SocketAddr;
use std::time::Duration;

use kasha_types::{BootId, ClusterId, CoreId, Incarnation, limits};

/// When answers leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Answers {
    /// As the design says: at once without overlap, else when synced.
    #[default]
    Speculative,
    /// Always when synced: ordinary primary-backup replication. For benchmarks.
    Synced,
    /// Always at once, synced or not: an unreplicated store, which loses answers. For benchmarks only; no server
    /// configuration reaches it.
    Unreplicated,
}

/// A core's options.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The cluster.
    pub cluster: ClusterId,
    /// This core.
    pub core: CoreId,
    /// This process.
    pub incarnation: Incarnation,
    /// The machine's boot.
    pub boot: BootId,
    /// Addresses of all cores of this node.
    pub addresses: Vec<SocketAddr>,
    /// Where the coordinator listens.
    pub coordinator: SocketAddr,
    /// Bytes of a segment; the same on all nodes of a cluster.
    pub segment_bytes: u32,
    /// Memory for the log of each replica.
    pub replica_memory_max_bytes: u64,
    /// Slots of a witness instance.
    pub witness_slots: u32,
    /// Ways of a witness instance.
    pub witness_ways: u8,
    /// How often to tell the coordinator that we are alive.
    pub heartbeat: Duration,
    /// How long written bytes may stay unflushed under `replicated` durability.
    pub flush_interval: Duration,
    /// After how long an unanswered message to a peer is sent again.
    pub retry: Duration,
    /// How long updates that nobody waits for may stay unsynced: they are batched.
    pub sync_interval: Duration,
    /// How long a client's lease must be over, by its own last word, before the coordinator is asked about it.
    pub client_patience_millis: u64,
    /// When answers leave.
    pub answers: Answers,
    /// Seed of this core's draws.
    pub seed: u64,
}

impl NodeOptions {
    /// The usual options of a core.
    #[must_use]
    pub fn new(cluster: ClusterId, core: CoreId, addresses: Vec<SocketAddr>, coordinator: SocketAddr) -> Self {
        Self {
            cluster,
            core,
            incarnation: Incarnation(1),
            boot: BootId(0),
            addresses,
            coordinator,
            segment_bytes: limits::SEGMENT_BYTES,
            replica_memory_max_bytes: 1024 * 1024 * 1024,
            witness_slots: limits::WITNESS_SLOTS as u32,
            witness_ways: limits::WITNESS_WAYS as u8,
            heartbeat: limits::NODE_LEASE / 8,
            flush_interval: Duration::from_millis(100),
            retry: Duration::from_millis(25),
            sync_interval: Duration::from_millis(5),
            client_patience_millis: limits::CLIENT_LEASE_MILLIS,
            answers: Answers::Speculative,
            seed: 0,
        }
    }
}

/// Why a core cannot start.
#[derive(Debug)]
pub enum StartError {
    /// A file cannot be read.
    Read(kasha_machine::FileName, std::io::Error),
    /// A replica's files are of another cluster, shard or version.
    Replica(kasha_replication::MetaError),
    /// A witness's files are of another cluster, shard or version.
    Witness(kasha_witness::LoadError),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Read(file, error) => write!(f, "cannot read {file:?}: {error}"),
            Self::Replica(error) => write!(f, "{error}; was this data folder used by another cluster or version?"),
            Self::Witness(error) => write!(f, "{error}; was this data folder used by another cluster or version?"),
        }
    }
}

impl std::error::Error for StartError {}
