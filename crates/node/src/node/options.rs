//! What a core is told when it starts.

use std::net::SocketAddr;
use std::time::Duration;

use kasha_log::Buffers;
use kasha_machine::Trash;
use kasha_replication::{MetaError, Pace};
use kasha_types::{BootId, ClusterId, CoreId, CorePort, Incarnation, limits};
use kasha_wire::{Level, Levels};
use kasha_witness::LoadError;

/// Another design, or a part of this one left out, for benchmarks to compare with. No configuration of a server reaches any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Baseline {
    /// As the design says.
    #[default]
    None,
    /// Every answer leaves when it is synced: ordinary primary-backup replication.
    Synced,
    /// Every answer leaves at once, synced or not: an unreplicated store, which loses answers.
    Unreplicated,
    /// No completion record, no look-up: what is sent again runs again.
    WithoutRecords,
    /// An unreplicated store without completion records.
    UnreplicatedWithoutRecords,
    /// The client carries the votes on a transaction over several shards that can fail, as the master of a two-phase commit. Its session
    /// has to be of that mode, too (`SessionOptions::two_phase`).
    TwoPhase,
}

impl Baseline {
    /// Each, by its name.
    pub const ALL: [(&'static str, Self); 6] = [
        ("none", Self::None),
        ("synced", Self::Synced),
        ("unreplicated", Self::Unreplicated),
        ("without-records", Self::WithoutRecords),
        ("unreplicated-without-records", Self::UnreplicatedWithoutRecords),
        ("two-phase", Self::TwoPhase),
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|&(_, each)| each == self).map_or("", |(name, _)| name)
    }

    /// Whether updates have completion records.
    #[inline]
    pub(crate) fn has_records(self) -> bool {
        !matches!(self, Self::WithoutRecords | Self::UnreplicatedWithoutRecords)
    }

    /// Whether nothing waits for other machines.
    #[inline]
    pub(crate) fn is_unreplicated(self) -> bool {
        matches!(self, Self::Unreplicated | Self::UnreplicatedWithoutRecords)
    }
}

/// A core's options.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The cluster. Files of another cluster are refused.
    pub cluster: ClusterId,
    /// The node, and which of its cores this is.
    pub core: CoreId,
    /// The start of the process that runs this core. It is greater than every earlier one of the node.
    pub incarnation: Incarnation,
    /// The boot id of the machine: a new one means that its page cache was lost (R5.5).
    pub boot: BootId,
    /// Addresses of all cores of this node.
    pub addresses: Vec<SocketAddr>,
    /// Where this process can host a member of the group of coordinators; `None`: nowhere.
    pub control: Option<SocketAddr>,
    /// The levels that this process can work at.
    pub levels: Levels,
    /// Where the coordinator listens. `None`: the shell knows its name.
    pub coordinator: Option<SocketAddr>,
    /// Further addresses of members of the group of coordinators, as the process was started with them.
    pub seeds: Vec<Option<SocketAddr>>,
    /// Bytes of a segment; the same on all nodes of a cluster.
    pub segment_bytes: u32,
    /// Memory for the log of each replica.
    pub replica_memory_max_bytes: u64,
    /// Where that memory comes from.
    pub buffers: Buffers,
    /// Where logs and states go that are begun anew.
    pub trash: Trash,
    /// Slots of a witness instance.
    pub witness_slots: u32,
    /// Ways of a witness instance.
    pub witness_ways: u8,
    /// How often to tell the coordinator that we are alive.
    pub heartbeat: Duration,
    /// For how long a disk, a member or a witness may do nothing of what is wanted.
    pub patience: Duration,
    /// How long written bytes may stay unflushed under `replicated` durability.
    pub flush_interval: Duration,
    /// How fast members and witnesses are sent what they lack.
    pub pace: Pace,
    /// Term of a client's lease, in milliseconds, as the coordinator grants it. What ends later than one and a half
    /// from now is no lease; one that has been over for a term, by the client's last word, is asked about.
    pub client_lease_millis: u64,
    /// What the core counts of the node's Redis port, if the node has one: for whoever asks for the core's status.
    pub port: Option<CorePort>,
    /// What benchmarks compare with.
    pub baseline: Baseline,
    /// Seed of this core's draws.
    pub seed: u64,
}

impl NodeOptions {
    /// The usual options of a core.
    #[must_use]
    pub fn new(
        cluster: ClusterId,
        core: CoreId,
        addresses: Vec<SocketAddr>,
        coordinator: impl Into<Option<SocketAddr>>,
    ) -> Self {
        Self {
            cluster,
            core,
            incarnation: Incarnation(1),
            boot: BootId(1),
            addresses,
            control: None,
            levels: Levels::OURS,
            coordinator: coordinator.into(),
            seeds: Vec::new(),
            segment_bytes: limits::SEGMENT_BYTES,
            replica_memory_max_bytes: 1024 * 1024 * 1024,
            buffers: Buffers::default(),
            trash: Trash::default(),
            witness_slots: limits::WITNESS_SLOTS as u32,
            witness_ways: limits::WITNESS_WAYS as u8,
            heartbeat: limits::NODE_LEASE / 8,
            patience: limits::PATIENCE,
            flush_interval: Duration::from_millis(100),
            pace: Pace::default(),
            client_lease_millis: limits::CLIENT_LEASE_MILLIS,
            port: None,
            baseline: Baseline::None,
            seed: 0,
        }
    }
}

/// Why a core cannot start.
#[derive(Debug)]
pub enum StartError {
    /// A file cannot be read.
    Read(kasha_machine::FileName, std::io::Error),
    /// The cluster is at a level at which this program cannot work (R7.6).
    Level {
        /// The levels at which it can.
        levels: Levels,
        /// The cluster's.
        level: Level,
    },
    /// A replica's files are of another cluster, shard or version.
    Replica(MetaError),
    /// A witness's files are of another cluster, shard or version.
    Witness(LoadError),
}

const OTHER_CLUSTER: &str = "give this node the folder that it had in its own cluster, or an empty one (K0105)";
const OTHER_VERSION: &str =
    "start the program version that wrote it, or give this node a new number and an empty folder (K0104)";
const MISPLACED: &str = "files of this folder were moved or replaced; restore them, or give this node a new number and an empty folder \
                         and let it copy its data from the others (K0110)";

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            // A real disk's error names the path and what to do, with its own code.
            Self::Read(file, error) => write!(f, "{file:?}: {error}"),
            Self::Level { levels, level } => write!(
                f,
                "this process can work at {levels}, and the cluster is at {level}: run a release of Kasha that can work at {level} (K0511)"
            ),
            Self::Replica(error) => match error {
                MetaError::Cluster(_) => write!(f, "{error}: {OTHER_CLUSTER}"),
                MetaError::Format(_) => write!(f, "{error}: {OTHER_VERSION}"),
                MetaError::Shard(_) | MetaError::Damaged => write!(f, "{error}: {MISPLACED}"),
            },
            Self::Witness(error) => match error {
                LoadError::OtherCluster(_) => write!(f, "{error}: {OTHER_CLUSTER}"),
                LoadError::OtherFormat(_) => write!(f, "{error}: {OTHER_VERSION}"),
                LoadError::ForeignMagic
                | LoadError::CorruptHeader
                | LoadError::OtherShard(_)
                | LoadError::OtherList(_)
                | LoadError::OtherSizes { .. }
                | LoadError::WrongLength { .. } => write!(f, "{error}: {MISPLACED}"),
            },
        }
    }
}

impl std::error::Error for StartError {}
