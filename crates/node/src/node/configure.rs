//! Obeying the committed configuration. The configuration says what should be; this makes it so, step by step, and
//! reports what is done.

use std::rc::Rc;

use kasha_machine::{Effect, Effects, Endpoint};
use kasha_types::{Tick, UnixMillis, Work};
use kasha_wire::{Configuration, MemberState, ShardConfig, ShardPhase};

use crate::node::Node;
use crate::shard::Replica;

impl Node {
    /// A configuration from the coordinator. Older ones, and another cluster's, are ignored.
    pub(crate) fn on_configuration(
        &mut self,
        now: Tick,
        configuration: Configuration,
        unix_origin: Option<UnixMillis>,
        out: &mut Effects,
    ) {
        let known = self.core.configuration.as_ref().map(|known| known.version);
        if configuration.cluster != self.core.options.cluster
            || known.is_some_and(|known| configuration.version <= known)
        {
            return;
        }
        self.core.work.add(Work::Configure);
        // With the configuration that has it, and so before whoever it promotes replays anything (R10.12).
        self.core.unix_origin = self.core.unix_origin.or(unix_origin);
        for info in &configuration.nodes {
            for (index, &address) in info.cores.iter().enumerate() {
                let core = kasha_types::CoreId { node: info.node, core: index as u8 };
                out.push(Effect::Route { to: Endpoint::Core(core), address });
            }
        }
        // A member that is alone is where this process was told to look for it, if that was one place.
        if configuration.group.len() > 1 || !self.core.options.seeds.is_empty() {
            let group = configuration.group.iter().map(|of| (of.member, of.address));
            self.core.coordinator.learn(configuration.coordinator, group, out);
        }
        let newest_table = configuration.tables.iter().map(|known| known.table).max();
        self.core.newest_table = self.core.newest_table.max(newest_table);
        let configuration = Rc::new(configuration);
        self.core.configuration = Some(Rc::clone(&configuration));
        self.core.note_configuration(&configuration, out);
        if known.is_none() {
            self.witnesses.on_first_configuration(&mut self.core, &configuration, out);
            for replica in self.replicas.values_mut() {
                replica.copy.judge_boot(&mut self.core, out);
            }
        }
        for config in &configuration.shards {
            if configuration.core_of(self.core.id().node, config.shard) == Some(self.core.id()) {
                self.obey_shard(&configuration, config, out);
                self.obey_witness(config, out);
            }
        }
        self.askers.announce();
        self.next_heartbeat = now; // the coordinator wants to know who obeys what
    }

    fn obey_shard(&mut self, configuration: &Configuration, config: &ShardConfig, out: &mut Effects) {
        let node = self.core.id().node;
        let core = &mut self.core;
        if config.primary == node {
            let replica =
                (self.replicas.entry(config.shard)).or_insert_with(|| Replica::fresh(&core.options, config.shard));
            replica.obey_primary(core, config, out);
            replica.copy.note_set(core, config.members_since, out);
            return;
        }
        let Some(replica) = self.replicas.get_mut(&config.shard) else { return };
        replica.passed = None;
        if config.member(node).is_some() {
            replica.copy.note_set(core, config.members_since, out);
        }
        if replica.role.primary().is_some_and(|primary| primary.term.epoch < config.epoch) {
            replica.lose_role(out); // somebody else is primary now
        }
        let wanted = config.member(node).is_some() || config.recover_from.contains(&node);
        // One that obeys a later term, or was attached by who knows more, is not told by an old configuration.
        let old = config.epoch < replica.copy.meta.promised || replica.was_attached_after(configuration.version);
        // While it lacks members, or one of them lacks older data, we may be asked next, and then copy no more than what we
        // lack. And until then its primary may not know that we left, and answer by what we acknowledged (D1).
        let is_whole = config.members.len() > usize::from(configuration.faults)
            && config.members.iter().all(|member| member.state == MemberState::Complete);
        if !wanted && config.phase == ShardPhase::Serving && is_whole && !old {
            // The shard serves without us: what we hold is of no use to anybody.
            replica.discard(core, out);
        }
    }

    fn obey_witness(&mut self, config: &ShardConfig, out: &mut Effects) {
        let node = self.core.id().node;
        let old: Vec<_> = (self.witnesses.instances.keys().copied())
            .filter(|&(shard, list)| shard == config.shard && list < config.list)
            .collect();
        for (shard, list) in old {
            self.witnesses.end(&mut self.core, shard, list, out);
        }
        if config.witnesses.contains(&node) {
            self.witnesses.obey(&mut self.core, config, out);
        }
    }
}
