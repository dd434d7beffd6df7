//! The heartbeats of cores: who may speak for a node, whom our answers reach, and who gets a lease.

use kasha_machine::Endpoint;
use kasha_types::limits::{CORES_MAX, NODES_MAX};
use kasha_types::probe::{Probe, hit};
use kasha_types::{ConfigVersion, CoreId, Incarnation, NodeId, Tick};
use kasha_wire::message::{Heartbeat, HeartbeatAnswer};

use crate::goodbye::Goodbye;
use crate::leases::Assume;
use crate::outbox::Out;
use crate::{Command, Coordinator};

/// A core that speaks to us.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) end: Endpoint,
    /// The configuration that the core obeys, as it last said.
    pub(crate) have: ConfigVersion,
    /// Since when its heartbeats have named no answer of ours that is younger than a lease.
    unanswered_since: Option<Tick>,
}

impl Coordinator {
    pub(crate) fn on_heartbeat(&mut self, now: Tick, from: Endpoint, heartbeat: &Heartbeat, out: &mut Out<'_>) {
        let node = heartbeat.core.node;
        if let Err(why) = self.admit(now, heartbeat) {
            return self.say_goodbye(from, why, out);
        }
        let is_deaf = self.note_heard(now, from, heartbeat);
        if !is_deaf && self.leases.has_returned(now, node) {
            self.decide(seen(heartbeat));
            hit(Probe::TakenBack);
            self.leases.take_back(now, node);
        }
        if let Some(command) = self.clock.observe(now, heartbeat.cluster_time, self.decided().time_reserved) {
            self.decide(command);
        }
        for report in &heartbeat.reports {
            self.on_report(now, node, heartbeat.have, report);
        }
        self.changed |= self.has_waited_for(now, node);
        // Before a lease is granted: a new process's shards get new primaries at once, and the grant must know that
        // (F1).
        self.repair(now);
        let index = self.decided().node_index(node).expect("admitted");
        let knows_its_place = heartbeat.have >= self.decided().nodes[index].deposed;
        let may_lease = knows_its_place && !is_deaf && !self.is_moving_from(node);
        let lease_millis = if may_lease { self.leases.grant(now, heartbeat.core) } else { 0 };
        let answer = HeartbeatAnswer {
            sent: heartbeat.sent,
            lease_millis,
            cluster_time: self.cluster_time(now),
            clients_below: self.decided().clients_below,
        };
        self.send(from, &answer, out);
        if heartbeat.have < self.decided().configuration.version {
            self.push_to.insert(from);
        }
    }

    /// Whether this process may speak for its node. Registers a new process.
    fn admit(&mut self, now: Tick, heartbeat: &Heartbeat) -> Result<(), Goodbye> {
        let CoreId { node, core } = heartbeat.core;
        let cores = heartbeat.addresses.len();
        if node == NodeId(0) || cores > usize::from(CORES_MAX) || usize::from(core) >= cores {
            return Err(Goodbye::Heartbeat(node));
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
            std::cmp::Ordering::Equal if self.is_of_older_copy(index, heartbeat) => Err(Goodbye::OlderCopy(node)),
            std::cmp::Ordering::Equal if known.cores != heartbeat.addresses => Err(Goodbye::Addresses(node)),
            std::cmp::Ordering::Equal => Ok(()),
        }
    }

    fn on_new_process(&mut self, now: Tick, heartbeat: &Heartbeat) {
        let node = heartbeat.core.node;
        self.links.retain(|core, _| core.node != node);
        self.said.retain(|core, _| core.node != node);
        self.leases.register(now, node, heartbeat.addresses.len(), Assume::Fresh);
        self.evidence.forget(node);
        self.decide(seen(heartbeat));
    }

    /// Notes who speaks, and whom that one hears. Returns whether the core is deaf.
    pub(crate) fn note_heard(&mut self, now: Tick, from: Endpoint, heartbeat: &Heartbeat) -> bool {
        let node = heartbeat.core.node;
        let is_deaf = self.note_link(now, from, heartbeat);
        if !is_deaf {
            let was_silent = self.leases.any_silent(now, node);
            self.leases.hear(now, heartbeat.core, heartbeat.sent.since(heartbeat.answered));
            self.changed |= was_silent && !self.leases.any_silent(now, node);
        }
        self.changed |= self.evidence.hear(now, heartbeat.core, &heartbeat.heard);
        is_deaf
    }

    /// Remembers a core's endpoint. Returns whether the core is deaf: no answer of ours has reached it for two leases.
    fn note_link(&mut self, now: Tick, from: Endpoint, heartbeat: &Heartbeat) -> bool {
        let lags = heartbeat.sent.since(heartbeat.answered) > self.node_lease;
        let known = self.links.get(&heartbeat.core).and_then(|link| link.unanswered_since);
        // While our own disk delays our answers, their absence proves nothing.
        let begins = || self.ledger.is_all_committed().then_some(now);
        let unanswered_since = lags.then(|| known.or_else(begins)).flatten();
        let newest = (heartbeat.sent, heartbeat.have);
        self.said.entry(heartbeat.core).and_modify(|said| *said = (*said).max(newest)).or_insert(newest);
        self.links.insert(heartbeat.core, Link { end: from, have: heartbeat.have, unanswered_since });
        let is_deaf = unanswered_since.is_some_and(|since| now.since(since) > self.node_lease);
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
