//! What an operator decides, and what can be wrong with it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use kasha_types::limits::{FAULTS_MAX, NODES_MAX, SHARDS_MAX};
use kasha_types::{ClusterId, NodeId, limits};
use kasha_wire::Durability;

use crate::limits::{ALONE_LEASES, PROMOTIONS_MAX};

/// A coordinator's options. `cluster`, `shards`, `faults` and `durability` are fixed when the cluster is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordinatorOptions {
    /// Whose configuration.
    pub cluster: ClusterId,
    /// How many nodes must have registered before the shards are first placed: at least `faults + 1`.
    pub nodes: u16,
    /// Shards, from 1.
    pub shards: u16,
    /// `f`: backups and witnesses of each shard.
    pub faults: u8,
    /// What "hold" means (R5.3). The coordinator itself always fsyncs.
    pub durability: Durability,
    /// Fewest members beside the primary for updates to be taken; at most `faults`.
    pub min_backups: u8,
    /// Where this coordinator listens.
    pub address: SocketAddr,
    /// How long a node's lease runs, by our count. It may change from start to start: leases of before are waited for.
    pub node_lease: Duration,
    /// How far two clocks may drift apart in one lease: taken off at the node, added here.
    pub drift_bound: Duration,
    /// Term of a client's lease, in ClusterTime milliseconds.
    pub client_lease_millis: u64,
    /// For how long a node may do nothing of what its peers want before they complain: their option of this name.
    pub patience: Duration,
    /// Whether a silent node whose connection is open has three leases more, as one that other nodes hear: a process that
    /// dies closes its connections, and one that its disk stops for half a second does not.
    pub trusts_connections: bool,
    /// The nodes of this process: whatever cuts the coordinator off cuts them off too, so they are no witnesses (R7.8).
    pub own_nodes: BTreeSet<NodeId>,
    /// Leases for which no other node is heard before one of this process goes on alone, where `faults` allows it (R7.8).
    pub alone_leases: u32,
    /// New terms in one lease: recoveries must not starve who serves (pitfall 9).
    pub promotions_max: u32,
    /// Randomness. This single-member log needs none; a replicated one draws its election timeouts from it.
    pub seed: u64,
}

impl CoordinatorOptions {
    /// Defaults for a cluster of `nodes` nodes.
    #[must_use]
    pub fn new(cluster: ClusterId, nodes: u16, shards: u16, faults: u8, address: SocketAddr) -> Self {
        Self {
            cluster,
            nodes,
            shards,
            faults,
            durability: Durability::Replicated,
            min_backups: faults,
            address,
            node_lease: limits::NODE_LEASE,
            drift_bound: limits::NODE_LEASE / 20,
            client_lease_millis: limits::CLIENT_LEASE_MILLIS,
            patience: limits::PATIENCE,
            trusts_connections: true,
            own_nodes: BTreeSet::new(),
            alone_leases: ALONE_LEASES,
            promotions_max: PROMOTIONS_MAX,
            seed: 0,
        }
    }

    /// How long after a grant a lease may run by our count, whatever the drift, in milliseconds.
    pub(crate) fn lease_bound_millis(&self) -> u64 {
        let bound = self.node_lease + self.drift_bound;
        u64::try_from(bound.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }

    /// # Errors
    /// What is impossible, and what to change.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        let wrong = |text: String| Err(StartError::Options(text));
        if self.faults > FAULTS_MAX {
            return wrong(format!("faults = {}: lower it, at most {FAULTS_MAX} are supported", self.faults));
        }
        if self.nodes < u16::from(self.faults) + 1 {
            return wrong(format!(
                "nodes = {}: to survive {} faults each shard needs {} nodes; start more nodes or lower faults",
                self.nodes,
                self.faults,
                self.faults + 1
            ));
        }
        if usize::from(self.nodes) > NODES_MAX {
            return wrong(format!("nodes = {}: lower it, at most {NODES_MAX} are supported", self.nodes));
        }
        if self.shards == 0 || self.shards > SHARDS_MAX {
            return wrong(format!("shards = {}: must be from 1 to {SHARDS_MAX}", self.shards));
        }
        if self.min_backups > self.faults {
            return wrong(format!(
                "min_backups = {}: lower it, a shard has only {} backups (faults)",
                self.min_backups, self.faults
            ));
        }
        if self.node_lease < Duration::from_millis(10) || self.drift_bound >= self.node_lease / 2 {
            return wrong(format!(
                "node lease {:?}, drift bound {:?}: the lease must be at least 10 ms and more than twice the bound",
                self.node_lease, self.drift_bound
            ));
        }
        if self.promotions_max == 0 {
            return wrong("0 new terms in a lease: raise it, nothing could ever be recovered".into());
        }
        if self.client_lease_millis == 0 {
            return wrong("client lease of 0 ms: raise it, clients could never update anything".into());
        }
        Ok(())
    }
}

/// Why a coordinator does not start. Each text says what is wrong and what to do.
#[derive(Debug)]
pub enum StartError {
    /// The options contradict themselves.
    Options(String),
    /// The data folder belongs to another cluster.
    OtherCluster {
        /// The folder's.
        stored: ClusterId,
        /// Asked for.
        given: ClusterId,
    },
    /// Something that is fixed when a cluster is created was given another value.
    Fixed {
        /// Which option.
        what: &'static str,
        /// The cluster's value.
        stored: String,
        /// Asked for.
        given: String,
    },
    /// Another version wrote the log.
    Version {
        /// File number.
        file: u32,
        /// Its format version.
        stored: u32,
    },
    /// The log is damaged where it was complete: going on would forget committed configurations.
    Damaged {
        /// File number.
        file: u32,
        /// Offset of the first bad byte's record.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// A file cannot be read.
    Read {
        /// File number.
        file: u32,
        /// What the system said.
        error: std::io::Error,
    },
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Options(text) => write!(f, "the coordinator's options are impossible: {text} (K0404)"),
            Self::OtherCluster { stored, given } => write!(
                f,
                "the coordinator's data folder belongs to {stored}, but {given} was asked for: \
                 start it with the folder of {given}, or with an empty one for a new cluster (K0105)"
            ),
            Self::Fixed { what, stored, given } => write!(
                f,
                "{what} = {given}, but this cluster was created with {what} = {stored}, which cannot be changed: \
                 start the coordinator with {what} = {stored} (K0405)"
            ),
            Self::Version { file, stored } => write!(
                f,
                "coordinator log file {file} has format version {stored}, but this program reads version {}: \
                 start the program version that wrote it (K0104)",
                crate::storage::FORMAT_VERSION
            ),
            Self::Damaged { file, offset, what } => write!(
                f,
                "coordinator log file {file} is damaged at byte {offset} ({what}): it was complete once, so nothing \
                 may be dropped; restore the folder from a copy (K0109)"
            ),
            // A real disk's error names the path and what to do, with its own code.
            Self::Read { file, error } => write!(f, "coordinator log file {file}: {error}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { error, .. } => Some(error),
            Self::Options(_)
            | Self::OtherCluster { .. }
            | Self::Fixed { .. }
            | Self::Version { .. }
            | Self::Damaged { .. } => None,
        }
    }
}
