//! The heartbeats of cores: who may speak for a node, whom our answers reach, and who gets a lease.

use kasha_machine::Endpoint;
use kasha_types::limits::{CORES_MAX, NODES_MAX};
use kasha_types::probe::{Probe, hit};
use kasha_types::{CoreId, Incarnation, NodeId, Tick};
use kasha_wire::message::{Heartbeat, HeartbeatAnswer};

use crate::Command;
use crate::goodbye::Goodbye;
use crate::lead::Leading;
use crate::leases::Assume;
use crate::outbox::Out;

impl Leading<'_> {
    pub(crate) fn on_heartbeat(&mut self, now: Tick, from: Endpoint, heartbeat: &Heartbeat, out: &mut Out<'_>) {
        let node = heartbeat.core.node;
        if let Err(why) = self.admit(now, heartbeat) {
            return self.say_goodbye(from, why, out);
        }
        let is_deaf = self.note_heard(now, from, heartbeat);
        if !is_deaf && self.lead.leases.has_returned(now, node) {
            self.decide(seen(heartbeat));
            hit(Probe::TakenBack);
            self.lead.leases.take_back(now, node);
        }
        if let Some(command) = self.lead.clock.observe(now, heartbeat.cluster_time, self.decided().time_reserved) {
            self.decide(command);
        }
        for report in &heartbeat.reports {
            self.on_report(now, node, heartbeat.have, report);
        }
        self.lead.changed |= self.has_waited_for(now, node);
        // Before a lease is granted: a new process's shards get new primaries at once, and the grant must know that
        // (F1).
        self.repair(now);
        let index = self.decided().node_index(node).expect("admitted");
        let knows_its_place = heartbeat.have >= self.decided().nodes[index].deposed;
        let may_lease = knows_its_place && !is_deaf && !self.is_moving_from(node);
        let lease_millis = if may_lease { self.lead.leases.grant(now, heartbeat.core) } else { 0 };
        let answer = HeartbeatAnswer {
            sent: heartbeat.sent,
            lease_millis,
            cluster_time: self.cluster_time(now),
            clients_below: self.decided().clients_below,
            view: self.member.ledger.view(),
        };
        self.member.send(from, &answer, out);
        if heartbeat.have < self.decided().configuration.version {
            self.lead.push_to.insert(from);
        }
    }

    /// Whether this process may speak for its node. Registers a new process.
    fn admit(&mut self, now: Tick, heartbeat: &Heartbeat) -> Result<(), Goodbye> {
        let CoreId { node, core } = heartbeat.core;
        let cores = heartbeat.addresses.len();
        if node == NodeId(0) || cores > usize::from(CORES_MAX) || usize::from(core) >= cores {
            return Err(Goodbye::Heartbeat(node));
        }
        let level = self.member.ledger.committed().level;
        if !heartbeat.levels.include(level) {
            return Err(Goodbye::Level(heartbeat.levels, level));
        }
        let Some(index) = self.decided().node_index(node) else {
            if self.decided().nodes.len() >= NODES_MAX {
                return Err(Goodbye::TooManyNodes(node));
            }
            self.on_new_process(now, heartbeat);
            return Ok(());
        };
        let known = &self.decided().configuration.nodes[index];
        if identity(known.incarnation) != identity(heartbeat.incarnation) {
            return Err(Goodbye::IdTaken(node));
        }
        match heartbeat.incarnation.cmp(&known.incarnation) {
            std::cmp::Ordering::Less => Err(Goodbye::Outdated(node, known.incarnation)),
            std::cmp::Ordering::Greater => {
                self.on_new_process(now, heartbeat);
                Ok(())
            }
            std::cmp::Ordering::Equal if self.member.is_of_older_copy(index, heartbeat) => {
                Err(Goodbye::OlderCopy(node))
            }
            std::cmp::Ordering::Equal if known.cores != heartbeat.addresses => Err(Goodbye::Addresses(node)),
            std::cmp::Ordering::Equal => Ok(()),
        }
    }

    fn on_new_process(&mut self, now: Tick, heartbeat: &Heartbeat) {
        let node = heartbeat.core.node;
        self.lead.unanswered.retain(|core, _| core.node != node);
        self.lead.leases.register(now, node, heartbeat.addresses.len(), Assume::Fresh);
        self.decide(seen(heartbeat));
    }

    /// Notes who speaks, and whom that one hears. Returns whether the core is deaf.
    pub(crate) fn note_heard(&mut self, now: Tick, from: Endpoint, heartbeat: &Heartbeat) -> bool {
        let node = heartbeat.core.node;
        self.lead.changed |= self.member.hear(now, from, heartbeat);
        let is_deaf = self.is_deaf(now, from, heartbeat);
        if !is_deaf {
            let was_silent = self.lead.leases.any_silent(now, node);
            self.lead.leases.hear(now, heartbeat.core, heartbeat.sent.since(heartbeat.answered));
            self.lead.changed |= was_silent && !self.lead.leases.any_silent(now, node);
        }
        is_deaf
    }

    /// Whether the core is deaf: no answer of ours has reached it for two leases.
    fn is_deaf(&mut self, now: Tick, from: Endpoint, heartbeat: &Heartbeat) -> bool {
        let (core, lease) = (heartbeat.core, self.member.options.node_lease);
        let lags = heartbeat.sent.since(heartbeat.answered) > lease;
        let known = self.lead.unanswered.remove(&core).map(|(_, since)| since);
        // While our own disk delays our answers, their absence proves nothing.
        let begins = || self.member.ledger.is_all_committed().then_some(now);
        let Some(since) = lags.then(|| known.or_else(begins)).flatten() else { return false };
        self.lead.unanswered.insert(core, (from, since));
        let is_deaf = now.since(since) > lease;
        if is_deaf {
            hit(Probe::DeafNode);
        }
        is_deaf
    }
}

/// The command that records what a heartbeat says about its node.
fn seen(heartbeat: &Heartbeat) -> Command {
    Command::NodeSeen {
        node: heartbeat.core.node,
        incarnation: heartbeat.incarnation,
        boot: heartbeat.boot,
        addresses: heartbeat.addresses.clone(),
    }
}

/// The identity of the data folder: the low half of an incarnation. The high half counts the starts.
fn identity(incarnation: Incarnation) -> u32 {
    (incarnation.0 & u64::from(u32::MAX)) as u32
}
