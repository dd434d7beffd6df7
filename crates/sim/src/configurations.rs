//! Every configuration that was sent to anybody, collected from frames, and the map from processes to cores.
//!
//! **F2**, **R10.12** [`ConfigurationsGrow`] checks that versions, terms and lists only grow, and that the unix time of ClusterTime 0 stays.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use kasha_types::{ConfigVersion, Epoch, NodeId, ShardId, UnixMillis};
use kasha_wire::message::ConfigurationIs;
use kasha_wire::{Configuration, Level, MemberState, ShardConfig, ShardPhase};

use crate::network::ProcessId;
use crate::probes::Probes;
use crate::world::{Sent, View, Watch};

/// All configurations that were sent, by version; shared by the checkers.
#[derive(Clone, Debug, Default)]
pub struct Configurations(Rc<RefCell<BTreeMap<ConfigVersion, Rc<Configuration>>>>);

impl Configurations {
    /// The newest configuration that was sent.
    #[must_use]
    pub fn latest(&self) -> Option<Rc<Configuration>> {
        self.0.borrow().last_key_value().map(|(_, configuration)| configuration.clone())
    }

    /// What each version that was sent says about a shard in one term, oldest first.
    #[must_use]
    pub fn of_term(&self, shard: ShardId, epoch: Epoch) -> Vec<(Rc<Configuration>, ShardConfig)> {
        let all = self.0.borrow();
        let of_shard = |configuration: &Rc<Configuration>| {
            configuration.shard(shard).filter(|s| s.epoch == epoch).map(|s| (configuration.clone(), s.clone()))
        };
        all.values().filter_map(of_shard).collect()
    }

    /// All terms of a shard, oldest first.
    #[must_use]
    pub fn terms_of(&self, shard: ShardId) -> Vec<Epoch> {
        let all = self.0.borrow();
        let mut terms: Vec<_> =
            all.values().filter_map(|configuration| Some(configuration.shard(shard)?.epoch)).collect();
        terms.dedup();
        terms
    }

    /// Whether the newest configuration shows every shard serving with `f + 1` complete members and, if there are
    /// enough nodes, a full list of witnesses.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.latest().is_some_and(|configuration| what_lacks(&configuration).is_none())
    }
}

/// What a configuration lacks to be whole, as text.
#[must_use]
pub fn what_lacks(configuration: &Configuration) -> Option<String> {
    let faults = usize::from(configuration.faults);
    let dead = configuration.nodes.iter().find(|node| !node.alive);
    if let Some(node) = dead {
        return Some(format!("{} is not alive", node.node));
    }
    if configuration.shards.is_empty() {
        return Some("the cluster has not begun: no shard is placed".to_owned());
    }
    for shard in &configuration.shards {
        let complete = shard.members.iter().filter(|member| member.state == MemberState::Complete).count();
        let lacks = match shard.phase {
            ShardPhase::Recovering => "is recovering",
            ShardPhase::Serving if complete <= faults => "lacks complete members",
            ShardPhase::Serving if shard.closing => "is changing its witnesses",
            ShardPhase::Serving if shard.witnesses.len() != faults => "lacks witnesses",
            ShardPhase::Serving => continue,
        };
        return Some(format!("{} {lacks}: {shard:?}", shard.shard));
    }
    None
}

/// Collects configurations. Checks that versions, terms and lists only grow (F2), and that each version has one
/// content.
#[derive(Debug, Default)]
pub struct ConfigurationsGrow {
    all: Configurations,
    /// The unix time of ClusterTime 0 with which each one was told.
    origins: BTreeMap<ConfigVersion, Option<UnixMillis>>,
    violations: Vec<String>,
    fail_overs: u64,
    list_changes: u64,
    joiners: u64,
}

impl ConfigurationsGrow {
    /// Collects into `all`.
    #[must_use]
    pub fn new(all: Configurations) -> Self {
        Self { all, ..Self::default() }
    }

    /// R10.12: from some configuration on the unix time of ClusterTime 0 is told, and then with each one, always the same. So whoever is promoted
    /// knows what the primary before it knew.
    fn take_origin(&mut self, version: ConfigVersion, level: Level, origin: Option<UnixMillis>) {
        if level < Level::COMMANDS || self.origins.insert(version, origin) == Some(origin) {
            return;
        }
        let known = self.origins.values().copied().skip_while(Option::is_none);
        if known.clone().any(|later| Some(later) != known.clone().next()) {
            self.violations.push(format!("configurations_grow: {:?} (R10.12)", self.origins));
        }
    }

    fn take(&mut self, configuration: Configuration) {
        let mut all = self.all.0.borrow_mut();
        if let Some(known) = all.get(&configuration.version) {
            if **known != configuration {
                self.violations.push(format!(
                    "configurations_grow: two of one version (F2):\n    {known:?}\n    {configuration:?}"
                ));
            }
            return;
        }
        if let Some((_, before)) = all.range(..configuration.version).next_back() {
            for (old, new) in before.shards.iter().zip(&configuration.shards) {
                self.fail_overs += u64::from(old.epoch < new.epoch);
                self.list_changes += u64::from(old.list < new.list);
                let joining = |shard: &ShardConfig| -> Vec<NodeId> {
                    let members = shard.members.iter().filter(|m| m.state == MemberState::Joining);
                    members.map(|member| member.node).collect()
                };
                self.joiners += joining(new).iter().filter(|node| !joining(old).contains(node)).count() as u64;
                if new.epoch < old.epoch || new.list < old.list {
                    let text = format!("configurations_grow: {old:?} was followed by {new:?} (F2)");
                    self.violations.push(text);
                }
            }
        }
        all.insert(configuration.version, Rc::new(configuration));
    }
}

impl Watch for ConfigurationsGrow {
    fn sent(&mut self, sent: &Sent<'_>, _view: &View<'_>) {
        if let Some(ConfigurationIs { configuration, level, unix_origin }) = sent.message() {
            self.take_origin(configuration.version, level, unix_origin.get().copied().flatten());
            self.take(configuration);
        }
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("fail-overs", self.fail_overs);
        probes.add("witness list changes", self.list_changes);
        probes.add("joiners", self.joiners);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// The core that each process is.
#[derive(Clone, Debug, Default)]
pub struct Cores {
    by_process: BTreeMap<ProcessId, kasha_types::CoreId>,
    by_core: BTreeMap<kasha_types::CoreId, ProcessId>,
}

impl Cores {
    /// Adds a process and its core.
    pub fn add(&mut self, process: ProcessId, core: kasha_types::CoreId) {
        self.by_process.insert(process, core);
        self.by_core.insert(core, process);
    }

    /// The core that a process is.
    #[must_use]
    pub fn core(&self, process: ProcessId) -> Option<kasha_types::CoreId> {
        self.by_process.get(&process).copied()
    }

    /// The process that hosts a node's replica of a shard.
    #[must_use]
    pub fn host_of(&self, configuration: &Configuration, node: NodeId, shard: ShardId) -> Option<ProcessId> {
        self.by_core.get(&configuration.core_of(node, shard)?).copied()
    }

    /// All processes and their cores, in order.
    pub fn iter(&self) -> impl Iterator<Item = (ProcessId, kasha_types::CoreId)> {
        self.by_process.iter().map(|(&process, &core)| (process, core))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use kasha_types::{ClusterId, ListVersion, TableId};
    use kasha_wire::{Durability, Member, NodeInfo, TableInfo};

    use super::*;

    pub(crate) fn configuration(version: u64, epoch: u32, primary: u16) -> Configuration {
        let address = std::net::SocketAddr::from(([10, 0, 0, 1], 1));
        let node = |node| NodeInfo {
            node: NodeId(node),
            incarnation: kasha_types::Incarnation(1 << 32 | 1),
            cores: vec![address],
            alive: true,
        };
        let complete = |node| Member { node: NodeId(node), state: MemberState::Complete, since: ConfigVersion(0) };
        Configuration {
            cluster: ClusterId(1),
            version: ConfigVersion(version),
            faults: 1,
            durability: Durability::Replicated,
            min_backups: 1,
            nodes_wanted: 3,
            coordinator: address,
            group: Vec::new(),
            nodes: vec![node(1), node(2), node(3)],
            shards: vec![ShardConfig {
                shard: ShardId(0),
                epoch: Epoch(epoch),
                primary: NodeId(primary),
                phase: ShardPhase::Serving,
                members: vec![complete(1), complete(2)],
                members_since: ConfigVersion(0),
                recover_from: Vec::new(),
                witnesses: vec![NodeId(3)],
                list: ListVersion(1),
                closing: false,
                served: None,
            }],
            tables: vec![TableInfo { table: TableId(1), name: "default".into() }],
            tablets: Vec::new(),
        }
    }

    /// Adds a configuration, as if it had been sent.
    pub(crate) fn tell(all: &Configurations, configuration: &Configuration) {
        all.0.borrow_mut().insert(configuration.version, Rc::new(configuration.clone()));
    }

    #[test]
    fn terms_that_shrink_are_found() {
        let mut watch = ConfigurationsGrow::default();
        watch.take(configuration(1, 1, 1));
        watch.take(configuration(2, 2, 2));
        watch.take(configuration(2, 2, 2));
        assert_eq!(watch.take_violations(), Vec::<String>::new());
        watch.take(configuration(3, 1, 2));
        assert_eq!(watch.take_violations().len(), 1);
        watch.take(configuration(2, 2, 1));
        assert_eq!(watch.take_violations().len(), 1, "another configuration of the same version");
        assert_eq!(watch.fail_overs, 1);
    }

    #[test]
    fn what_lacks_is_named() {
        assert_eq!(what_lacks(&configuration(1, 1, 1)), None);
        let mut lacking = configuration(1, 1, 1);
        lacking.shards[0].members.pop();
        assert!(what_lacks(&lacking).expect("a member").contains("complete members"));
        lacking.shards.clear();
        assert!(what_lacks(&lacking).expect("every shard").contains("has not begun"));
    }

    #[test]
    fn r10_12_the_unix_origin_is_told_once_and_then_always() {
        let violations = |told: &[(u64, u16, Option<u64>)]| {
            let mut grow = ConfigurationsGrow::default();
            for &(version, level, origin) in told {
                grow.take_origin(ConfigVersion(version), Level(level), origin.map(UnixMillis));
            }
            grow.take_violations().len()
        };
        assert_eq!(violations(&[(1, 1, None), (2, 2, None), (4, 2, Some(7)), (5, 2, Some(7)), (3, 2, None)]), 0);
        assert_eq!(violations(&[(1, 2, Some(7)), (2, 2, Some(8))]), 1, "another one");
        assert_eq!(violations(&[(1, 2, Some(7)), (2, 2, None)]), 1, "forgotten");
    }
}
