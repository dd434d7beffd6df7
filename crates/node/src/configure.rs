//! Obeying the committed configuration. The configuration says what should be; this makes it so, step by step, and
//! reports what is done.

use std::rc::Rc;

use kasha_machine::{Effect, Effects, Endpoint};
use kasha_types::planted::{self, Bug};
use kasha_types::{Tick, Work};
use kasha_wire::{Configuration, MemberState, ShardConfig, ShardPhase};

use crate::node::Node;
use crate::primary::{Stage, fewest_peers, members_of};
use crate::replica::{Replica, Role};

impl Node {
    /// A configuration from the coordinator. Older ones, and another cluster's, are ignored.
    pub(crate) fn on_configuration(&mut self, now: Tick, configuration: Configuration, out: &mut Effects) {
        let known = self.core.configuration.as_ref().map(|known| known.version);
        if configuration.cluster != self.core.options.cluster
            || known.is_some_and(|known| configuration.version <= known)
        {
            return;
        }
        self.core.work.add(Work::Configure);
        for info in &configuration.nodes {
            for (index, &address) in info.cores.iter().enumerate() {
                let core = kasha_types::CoreId { node: info.node, core: index as u8 };
                out.push(Effect::Route { to: Endpoint::Core(core), address });
            }
        }
        let newest_table = configuration.tables.iter().map(|known| known.table).max();
        self.core.newest_table = self.core.newest_table.max(newest_table);
        let configuration = Rc::new(configuration);
        self.core.configuration = Some(Rc::clone(&configuration));
        if known.is_none() {
            self.witnesses.on_first_configuration(&mut self.core, &configuration, out);
            for replica in self.replicas.values_mut() {
                replica.judge_boot(&mut self.core, out);
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
            return;
        }
        let Some(replica) = self.replicas.get_mut(&config.shard) else { return };
        if replica.primary().is_some_and(|primary| primary.epoch < config.epoch) {
            replica.lose_role(out); // somebody else is primary now
        }
        let wanted = config.member(node).is_some() || config.recover_from.contains(&node);
        // One that obeys a later term, or was attached by who knows more, is not told by an old configuration.
        let old = config.epoch < replica.meta.promised || replica.was_attached_after(configuration.version);
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

impl Replica {
    fn obey_primary(&mut self, core: &mut crate::core::Core, config: &ShardConfig, out: &mut Effects) {
        let end = self.log.end().offset;
        let leads = self.primary().is_some_and(|primary| primary.epoch == config.epoch);
        if !leads {
            // Serving in a term that this process did not begin: it waits to be promoted anew (R7.1).
            if config.phase == ShardPhase::Recovering && self.may_begin(config) {
                self.begin_term(core, config, out);
            } else if planted::is_on(Bug::FastRestartServes) && config.epoch >= self.meta.promised {
                self.begin_term(core, config, out);
                self.begin_serving(core, config);
            }
            return;
        }
        let Role::Primary(primary) = &mut self.role else { return };
        if let Stage::Serving(_) = &primary.stage {
            primary.shipping.require_peers(fewest_peers(core)); // the operator may have lowered it
        }
        primary.shipping.set_members(members_of(core, config));
        match &mut primary.stage {
            Stage::Serving(serving) => {
                primary.list = config.list;
                serving.update(core, config, end);
                self.drop_tables(core);
            }
            Stage::Reporting if config.phase == ShardPhase::Serving => {
                self.begin_serving(core, config);
                self.drop_tables(core);
            }
            Stage::Fencing(_)
            | Stage::Fetching(_)
            | Stage::Replaying
            | Stage::Witnessing { .. }
            | Stage::Syncing { .. }
            | Stage::Reporting => {}
        }
    }

    /// Whether a term may begin here. Only the primary of an epoch asks for promises of it, so an epoch that was promised
    /// was begun: perhaps by an earlier incarnation, whose bytes in that epoch must stay the only ones.
    fn may_begin(&self, config: &ShardConfig) -> bool {
        config.epoch > self.meta.promised
    }
}
