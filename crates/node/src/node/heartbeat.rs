//! What a core tells unasked: that it is alive, and news of the configuration.

use std::time::Duration;

use kasha_machine::{Effect, Effects, Endpoint, Gate};
use kasha_types::{ConfigVersion, CoreId, NodeId, ShardId, Tick, limits};
use kasha_wire::message::{ConfigurationIs, GetConfiguration, Heartbeat, Knowledge, NotLeader, ShardKnowledge};
use kasha_wire::{Configuration, GroupMember, Later, Message};

use crate::core::Core;
use crate::core::send::send;
use crate::core::told::Told;
use crate::node::Node;

/// A lease, in heartbeats.
const HEARTBEATS_IN_LEASE: u32 = 8;
/// The longest time between two heartbeats, whatever the flags say: the cluster's lease may be shorter by now than they say (R9.12), and who has no
/// lease does not learn of it. Two of these are within the shortest lease that an operator may order.
const BEAT_MAX: Duration = Duration::from_nanos(limits::NODE_LEASE.as_nanos() as u64 / HEARTBEATS_IN_LEASE as u64);
/// The coordinator answers nothing for so long, in leases, before another node is asked about it: an election takes less.
const UNANSWERED_LEASES: u32 = 6;

/// The time between two heartbeats, by this node's flags.
pub(crate) fn beat_of(heartbeat: Duration) -> Duration {
    heartbeat.min(BEAT_MAX)
}

impl Node {
    /// A lease of so many milliseconds was granted. It may be shorter than this node's flags say: heartbeats come often enough for that.
    pub(crate) fn beat_often_enough(&mut self, lease_millis: u64) {
        let enough = Duration::from_millis(lease_millis) / (HEARTBEATS_IN_LEASE - 1);
        if enough < self.beat {
            self.beat = enough;
            self.next_heartbeat = self.next_heartbeat.min(self.answered.after(enough));
        }
    }

    fn told_configuration(&self, configuration: &Configuration) -> ConfigurationIs {
        let Core { level, unix_origin, .. } = self.core;
        ConfigurationIs { configuration: configuration.clone(), level, unix_origin: Later::at(level, unix_origin) }
    }

    /// Tells the configuration, or, if the asker has it, the next one as soon as it is here.
    pub(crate) fn tell_configuration(&mut self, to: Endpoint, have: ConfigVersion, out: &mut Effects) {
        if let Some(configuration) = self.core.configuration.as_ref().filter(|known| known.version > have) {
            send(to, &self.told_configuration(configuration), Gate::Now, out);
            return;
        }
        // Whoever knows no configuration yet names those that may.
        if self.core.configuration.is_none() && !self.core.told.members.is_empty() {
            let (node, folder) = (NodeId(0), 0);
            let members = self.core.told.members.iter();
            let group = members.map(|&(member, address)| GroupMember { member, node, folder, address }).collect();
            send(to, &NotLeader { view: self.core.coordinator.view(), leader: None, group }, Gate::Now, out);
        }
        if let Endpoint::Conn(conn) = to {
            self.askers.wait(conn, have);
        }
    }

    /// Tells some of those who wait for it.
    pub(crate) fn tell_askers(&mut self, out: &mut Effects) {
        let Some(configuration) = self.core.configuration.as_ref().filter(|_| self.askers.is_telling()) else { return };
        let version = configuration.version;
        let mark = out.mark();
        self.told_configuration(configuration).encode(out.arena());
        let head = out.span_from(mark);
        for conn in self.askers.take(version, head.len as usize) {
            out.push(Effect::Send { to: Endpoint::Conn(conn), head, tail: None, gate: Gate::Now });
        }
    }

    /// Tells the coordinator that we are alive, and what it should know.
    pub(crate) fn heartbeat(&mut self, now: Tick, out: &mut Effects) {
        // A disk that hangs, and does not fail, stops every answer of ours: others must take over.
        if self.core.disk_hangs(now, self.core.options.patience) {
            self.next_heartbeat = now.after(self.beat);
            return;
        }
        self.links.look(&self.core, now, &self.replicas, out);
        let mut reports = self.links.reports().to_vec();
        self.witnesses.reports(&self.core, &mut reports);
        for replica in self.replicas.values() {
            reports.extend(replica.passed_report());
            if let Some(primary) = replica.role.primary() {
                primary.reports(replica.shard(), &mut reports);
            }
        }
        let news = reports.iter().any(|report| !self.reported.contains(report));
        if now < self.next_heartbeat && !news {
            return;
        }
        self.next_heartbeat = now.after(self.beat);
        let options = &self.core.options;
        let heartbeat = Heartbeat {
            core: options.core,
            incarnation: options.incarnation,
            boot: options.boot,
            sent: now,
            answered: self.answered,
            have: self.core.configuration.as_ref().map_or(ConfigVersion(0), |known| known.version),
            cluster_time: self.core.cluster_time,
            addresses: options.addresses.clone(),
            heard: self.links.heard(&self.core, now),
            reports: reports.clone(),
            knows: self.knowledge(),
            control: options.control,
            levels: options.levels,
        };
        self.reported = reports;
        // Nobody makes us a witness before our first file says that we never were one.
        let gate = if self.core.configuration.is_none() { self.core.durable_gate() } else { Gate::Now };
        for member in self.core.coordinator.all() {
            send(member, &heartbeat, gate, out);
        }
        self.ask_another_node(now, out);
    }

    /// The coordinator has answered nothing for long: perhaps its members are others by now, of whom another node knows.
    fn ask_another_node(&mut self, now: Tick, out: &mut Effects) {
        let lease = self.core.options.heartbeat * HEARTBEATS_IN_LEASE;
        let Some(configuration) = &self.core.configuration else { return };
        if now.since(self.answered) < lease * UNANSWERED_LEASES || now < self.next_question {
            return;
        }
        (self.next_question, self.questions) = (now.after(lease), self.questions + 1);
        let me = self.core.id().node;
        let others: Vec<NodeId> = configuration.nodes.iter().map(|info| info.node).filter(|&node| node != me).collect();
        if let Some(&node) = others.get(self.questions % others.len().max(1)) {
            let question = GetConfiguration { have: configuration.version };
            send(Endpoint::Core(CoreId { node, core: 0 }), &question, Gate::Now, out);
        }
    }

    /// Another node answers that.
    pub(crate) fn hear_of_coordinator(&mut self, configuration: &Configuration, out: &mut Effects) {
        let is_newer = self.core.configuration.as_ref().is_some_and(|known| configuration.version > known.version);
        if configuration.cluster == self.core.options.cluster && is_newer {
            let group = configuration.group.iter().map(|of| (of.member, of.address));
            self.core.coordinator.hear_of(configuration.coordinator, group, out);
        }
    }
}

impl Node {
    /// What the folder of this core knows.
    pub(crate) fn knowledge(&self) -> Knowledge {
        let &Told { configuration, clients_below, .. } = &self.core.told;
        let mut shards: Vec<ShardKnowledge> = (self.replicas.values())
            .filter(|replica| replica.copy.exists)
            .map(|replica| ShardKnowledge {
                shard: replica.shard(),
                promised: replica.copy.meta.promised,
                list: self.witnesses.newest_list(replica.shard()),
                set: replica.copy.meta.set,
            })
            .collect();
        let is_named = |shard: ShardId| self.replicas.get(&shard).is_some_and(|replica| replica.copy.exists);
        shards.extend(self.witnesses.newest_lists().filter(|&(shard, _)| !is_named(shard)).map(|(shard, list)| {
            ShardKnowledge { shard, list, promised: Default::default(), set: Default::default() }
        }));
        Knowledge { configuration, clients_below, shards }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r9_12_heartbeats_come_often_enough_for_a_lease_that_a_node_has_not_heard_of() {
        let shortest_ordered = Duration::from_millis(100);
        for flag in [1, 62, 1_250] {
            assert!(beat_of(Duration::from_millis(flag)) < shortest_ordered * 2 / 3);
        }
        assert_eq!(beat_of(Duration::from_millis(50)), Duration::from_millis(50));
    }
}
