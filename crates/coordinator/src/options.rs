//! The options of a coordinator, which the operator sets.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use kasha_types::limits::{FAULTS_MAX, NODES_MAX, SHARDS_MAX};
use kasha_types::{BootId, ClusterId, Incarnation, MemberId, NodeId, limits};
use kasha_wire::{Durability, GroupMember, Levels};

use crate::limits::{ALONE_LEASES, GROUP_MAX, JOURNAL_BYTES, MEMBER_REPLACED_AFTER, PROMOTIONS_MAX};
use crate::start_error::StartError;
use crate::state::State;
use crate::timing::Timing;

/// Options that nobody chose. A cluster that exists keeps its own; a new one has what stands in [`CoordinatorOptions`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unchosen {
    /// [`CoordinatorOptions::nodes`].
    pub nodes: bool,
    /// [`CoordinatorOptions::shards`].
    pub shards: bool,
    /// [`CoordinatorOptions::faults`].
    pub faults: bool,
    /// [`CoordinatorOptions::durability`].
    pub durability: bool,
    /// [`CoordinatorOptions::min_backups`].
    pub min_backups: bool,
    /// [`CoordinatorOptions::group`].
    pub group: bool,
}

/// A coordinator's options. `cluster`, `shards`, `faults` and `durability` are fixed when the cluster is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordinatorOptions {
    /// The cluster's id.
    pub cluster: ClusterId,
    /// The number of nodes that must have registered before the shards are first placed: at least `faults + 1`.
    pub nodes: u16,
    /// The number of shards, at least 1.
    pub shards: u16,
    /// `f`: backups and witnesses of each shard.
    pub faults: u8,
    /// What "hold" means (R5.3). The coordinator itself always fsyncs.
    pub durability: Durability,
    /// The smallest number of members beside the primary with which updates are accepted; at most `faults`.
    pub min_backups: u8,
    /// Which of these nobody chose.
    pub unchosen: Unchosen,
    /// The address at which this coordinator listens.
    pub address: SocketAddr,
    /// Where other members may be, whatever the state says: the addresses with which the process was started. `None`: the shell knows its name.
    pub seeds: Vec<Option<SocketAddr>>,
    /// The boot id of our machine, if it tells: in the same boot ClusterTime goes on exactly.
    pub boot: Option<BootId>,
    /// The term of a node's lease, by our clock, for a new cluster: later the state has it (R9.12). Leases that were granted before are
    /// waited for.
    pub node_lease: Duration,
    /// How far two clocks may drift apart in one lease. The node subtracts it, and we add it.
    pub drift_bound: Duration,
    /// Term of a client's lease, in ClusterTime milliseconds.
    pub client_lease_millis: u64,
    /// How long a node may do nothing of what its peers ask before they complain. The nodes have an option of the same
    /// name.
    pub patience: Duration,
    /// Whether a silent node whose connection is open has two leases more, like a silent node that others hear. A
    /// process that dies closes its connections; a process that its disk stops for half a second does not.
    pub trusts_connections: bool,
    /// The nodes of this process. If the coordinator is cut off, they are too, so they are no witnesses of silence
    /// (R7.8).
    pub own_nodes: BTreeSet<NodeId>,
    /// Leases without hearing another node after which a node of this process goes on alone, where `faults` allows that
    /// (R7.8).
    pub alone_leases: u32,
    /// New terms in one lease: recoveries must not starve the serving shards (pitfall 9).
    pub promotions_max: u32,
    /// Whether this process may begin a new cluster. Another one without files waits until a leader makes it a member of its group.
    pub begins: bool,
    /// How many members the group of coordinators is to have: an odd number (R9.14). Nothing is placed before it has them.
    pub group: u8,
    /// A member whose node has been lost for so long is replaced, if there is a node that hosts none.
    pub replaces_after: Duration,
    /// The levels that this process can work at.
    pub levels: Levels,
    /// The node whose process this is.
    pub node: NodeId,
    /// This process.
    pub process: Incarnation,
    /// How long a file of the journal is from the beginning. With less a file is begun anew more often.
    pub journal_bytes: usize,
    /// Randomness. A group draws its election timeouts from it; a member that is alone needs none.
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
            unchosen: Unchosen::default(),
            address,
            seeds: Vec::new(),
            boot: None,
            node_lease: limits::NODE_LEASE,
            drift_bound: limits::NODE_LEASE / 20,
            client_lease_millis: limits::CLIENT_LEASE_MILLIS,
            patience: limits::PATIENCE,
            trusts_connections: true,
            own_nodes: BTreeSet::new(),
            alone_leases: ALONE_LEASES,
            promotions_max: PROMOTIONS_MAX,
            begins: true,
            group: 1,
            replaces_after: MEMBER_REPLACED_AFTER,
            levels: Levels::OURS,
            node: NodeId(0),
            process: Incarnation(0),
            journal_bytes: JOURNAL_BYTES,
            seed: 0,
        }
    }

    /// This process as a member of the group.
    pub(crate) fn as_member(&self, member: MemberId) -> GroupMember {
        GroupMember { member, node: self.node, folder: self.process.identity(), address: self.address }
    }

    pub(crate) fn timing(&self) -> Timing {
        Timing::new(self.node_lease, self.drift_bound)
    }

    /// The longest time that a lease may run after its grant, by our clock and with any drift, in milliseconds.
    pub(crate) fn lease_bound_millis(&self) -> u64 {
        let bound = self.node_lease + self.drift_bound;
        u64::try_from(bound.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }

    /// What nobody chose, as the cluster has it.
    ///
    /// # Errors
    /// If somebody chose otherwise what is fixed when a cluster is created.
    pub(crate) fn of_cluster(self, state: &State) -> Result<Self, StartError> {
        let (config, unchosen) = (&state.configuration, self.unchosen);
        let faults = if unchosen.faults { config.faults } else { self.faults };
        let options = Self {
            nodes: if unchosen.nodes { state.nodes_wanted() } else { self.nodes },
            shards: if unchosen.shards { state.shards_wanted } else { self.shards },
            faults,
            durability: if unchosen.durability { config.durability } else { self.durability },
            min_backups: if unchosen.min_backups { config.min_backups.min(faults) } else { self.min_backups },
            group: if unchosen.group { state.group_wanted } else { self.group },
            node_lease: state.timing.map_or(self.node_lease, Timing::lease),
            drift_bound: state.timing.map_or(self.drift_bound, Timing::drift),
            ..self
        };
        let fixed = |what, stored: String, given: String| {
            if stored == given { Ok(()) } else { Err(StartError::Fixed { what, stored, given }) }
        };
        let name = |durability| format!("{durability:?}").to_lowercase();
        if options.levels.latest() < state.level {
            return Err(StartError::Level { levels: options.levels, level: state.level });
        }
        fixed("shards", state.shards_wanted.to_string(), options.shards.to_string())?;
        fixed("faults", config.faults.to_string(), options.faults.to_string())?;
        fixed("durability", name(config.durability), name(options.durability))?;
        Ok(options)
    }

    /// R9.6: a member of a group is one folder: another one may lack what was promised there.
    pub(crate) fn check_folder(&self, member: MemberId, state: &State) -> Result<(), StartError> {
        let (group, given) = (&state.configuration.group, self.process.identity());
        match group.iter().find(|of| of.member == member) {
            Some(&GroupMember { folder: stored, .. }) if group.len() > 1 && stored != given => {
                Err(StartError::OtherFolder { member, stored, given })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// # Errors
    /// If an option is impossible; the text says what to change.
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
        if self.group.is_multiple_of(2) || self.group > GROUP_MAX {
            return wrong(format!(
                "a group of {}: the coordinator has an odd number of members, at most {GROUP_MAX}",
                self.group
            ));
        }
        if u16::from(self.group) > self.nodes && !self.unchosen.group {
            return wrong(format!(
                "a group of {} and {} nodes: each member is in the process of a node, so lower it, or start more nodes",
                self.group, self.nodes
            ));
        }
        if let Err(why) = self.timing().check() {
            return wrong(format!("{why}: choose another lease"));
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
