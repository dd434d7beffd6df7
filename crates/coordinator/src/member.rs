//! A member of the group of coordinators, with everything that it has whether or not it leads: options, ledger, outbox,
//! links and evidence.
//!
//! A member that does not lead hears heartbeats, and answers nothing (R9.9). So a member that begins to lead knows
//! already which cores speak, at which endpoints, and which nodes they hear. A fail-over need not wait for that.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use kasha_machine::{Effects, Endpoint};
use kasha_types::{ConfigVersion, CoreId, Incarnation, LocalPosition, NodeId, Tick};
use kasha_wire::link::ToCoordinator;
use kasha_wire::message::Heartbeat;
use kasha_wire::{Levels, Message};

use crate::CoordinatorOptions;
use crate::evidence::Evidence;
use crate::goodbye::Goodbye;
use crate::group::Others;
use crate::hears_most::LetsOthersJudge;
use crate::ledger::Ledger;
use crate::outbox::{Out, Outbox};
use crate::storage::Found;

/// A core that speaks to us.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) end: Endpoint,
    /// The configuration that the core obeys, as it last said.
    pub(crate) have: ConfigVersion,
}

/// A member of the group of coordinators.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) options: CoordinatorOptions,
    pub(crate) ledger: Ledger,
    pub(crate) outbox: Outbox,
    pub(crate) others: Others,
    pub(crate) links: BTreeMap<CoreId, Link>,
    /// The process of each node that has spoken last.
    processes: BTreeMap<NodeId, Incarnation>,
    /// Where each node can host a member, as it last said.
    pub(crate) controls: BTreeMap<NodeId, SocketAddr>,
    /// What each core said last, whoever led, and when: whoever leads next knows then what the folders of all nodes know (R9.13).
    pub(crate) overheard: BTreeMap<CoreId, (Tick, Heartbeat)>,
    /// The levels that each node's process can work at, as it last said.
    pub(crate) levels: BTreeMap<NodeId, Levels>,
    /// The newest configuration that each core has said it obeys, and when it said so, by its own clock.
    said: BTreeMap<CoreId, (Tick, ConfigVersion)>,
    pub(crate) evidence: Evidence,
    pub(crate) lets_others_judge: LetsOthersJudge,
    pub(crate) last_step: Tick,
}

impl Member {
    /// Goes on from what the files were found to hold, or begins a new cluster.
    pub(crate) fn start(options: CoordinatorOptions, found: Found, now: Tick) -> Self {
        Self {
            ledger: Ledger::start(&options, found, now),
            outbox: Outbox::default(),
            others: Others::default(),
            links: BTreeMap::new(),
            processes: BTreeMap::new(),
            controls: BTreeMap::new(),
            overheard: BTreeMap::new(),
            levels: BTreeMap::new(),
            said: BTreeMap::new(),
            evidence: Evidence::new(options.node_lease),
            lets_others_judge: LetsOthersJudge::default(),
            last_step: now,
            options,
        }
    }

    /// Takes over the lease that the state has by now (R9.12): a leader when its lead begins, the others at once.
    pub(crate) fn follow_timing(&mut self) {
        let Some(timing) = self.ledger.decided().timing.filter(|&timing| timing != self.options.timing()) else {
            return;
        };
        (self.options.node_lease, self.options.drift_bound) = (timing.lease(), timing.drift());
        self.ledger.set_lease(timing.lease());
        self.evidence.set_lease(timing.lease());
    }

    /// Notes the time. Returns whether the last step was so long ago that a leader, whose ticks come sooner, was stalled.
    pub(crate) fn note_time(&mut self, now: Tick) -> bool {
        let was_stalled = now.since(self.last_step) > self.options.node_lease / 2;
        self.last_step = self.last_step.max(now);
        was_stalled
    }

    /// Our own files hold everything up to here. That may commit it.
    pub(crate) fn on_durable(&mut self, now: Tick, position: LocalPosition, out: &mut Effects) {
        self.ledger.on_durable(now, position, out);
        self.tell_what_is_open(out);
    }

    /// Something was committed, or a round has ended: goodbyes that have waited for that leave.
    pub(crate) fn tell_what_is_open(&mut self, out: &mut Effects) {
        if self.ledger.has_opened() {
            self.outbox.on_committed(&self.ledger, &mut Out::new(out));
        }
    }

    /// Hears a message while another member leads. The leader answers it: whoever may not know the leader is told who that is.
    pub(crate) fn overhear(&mut self, now: Tick, from: Endpoint, message: &ToCoordinator, out: &mut Out<'_>) {
        match message {
            ToCoordinator::Heartbeat(heartbeat) if self.knows_process_of(heartbeat) => {
                self.hear(now, from, heartbeat);
            }
            ToCoordinator::Heartbeat(_)
            | ToCoordinator::GetConfiguration(_)
            | ToCoordinator::OpenSession(_)
            | ToCoordinator::RenewLease(_)
            | ToCoordinator::TableRequest(_)
            | ToCoordinator::LeaseQuery(_)
            | ToCoordinator::GiveUp(_)
            | ToCoordinator::Administer(_) => self.say_not_leader(from, out),
            ToCoordinator::Grouped(_) | ToCoordinator::Handshake(_) => {}
        }
    }

    /// Whether a heartbeat comes from a core that is in the configuration, and from the same process.
    pub(crate) fn knows_process_of(&self, heartbeat: &Heartbeat) -> bool {
        let CoreId { node, core } = heartbeat.core;
        let known = self.ledger.decided().configuration.node(node);
        known.is_some_and(|info| info.incarnation == heartbeat.incarnation && usize::from(core) < info.cores.len())
    }

    /// A core speaks. Returns whether it hears other nodes than it did before. What an earlier process of its node said means nothing
    /// any more.
    pub(crate) fn hear(&mut self, now: Tick, from: Endpoint, heartbeat: &Heartbeat) -> bool {
        let node = heartbeat.core.node;
        let before = self.processes.insert(node, heartbeat.incarnation);
        if before.is_some_and(|before| before != heartbeat.incarnation) {
            self.links.retain(|core, _| core.node != node);
            self.said.retain(|core, _| core.node != node);
            self.overheard.retain(|core, (_, said)| core.node != node || said.incarnation == heartbeat.incarnation);
            self.evidence.forget(node);
        }
        if self.ledger.lists().members.len() > 1 {
            self.overheard.insert(heartbeat.core, (now, heartbeat.clone()));
        }
        if let Some(control) = heartbeat.control {
            self.controls.insert(node, control);
        }
        self.levels.insert(node, heartbeat.levels);
        let newest = (heartbeat.sent, heartbeat.have);
        self.said.entry(heartbeat.core).and_modify(|said| *said = (*said).max(newest)).or_insert(newest);
        self.links.insert(heartbeat.core, Link { end: from, have: heartbeat.have });
        self.evidence.hear(now, heartbeat.core, &heartbeat.heard)
    }

    /// Whether another process than the known one claims to be the same start of the same folder (K0507). A folder
    /// counts the node's starts, so a process from an older copy of it has the number of a process that was seen before.
    /// But a process never forgets a configuration, and never outlives a boot of its machine. Frames may come late, so
    /// they are compared by the time at which they were sent.
    pub(crate) fn is_of_older_copy(&self, index: usize, heartbeat: &Heartbeat) -> bool {
        // Another member led when this process began, so what we have heard last may be of the one before.
        let is_its_own = self.processes.get(&heartbeat.core.node) == Some(&heartbeat.incarnation);
        let forgot =
            |&(sent, have): &(Tick, ConfigVersion)| is_its_own && sent < heartbeat.sent && heartbeat.have < have;
        let boot = self.ledger.decided().nodes[index].boot;
        boot != heartbeat.boot || self.said.get(&heartbeat.core).is_some_and(forgot)
    }

    /// Sends a message that may follow from all that is decided.
    pub(crate) fn send(&mut self, to: Endpoint, message: &impl Message, out: &mut Out<'_>) {
        let frame = out.encode(message);
        self.outbox.send(to, frame, self.ledger.all_decided(), out);
    }

    pub(crate) fn say_goodbye(&mut self, to: Endpoint, why: Goodbye, out: &mut Out<'_>) {
        self.on_closed(self.last_step, to);
        self.outbox.part(to, why.reason(), why.basis(&self.ledger), out);
    }

    pub(crate) fn on_closed(&mut self, now: Tick, end: Endpoint) {
        if let Some(member) = self.others.on_closed(now, end) {
            self.ledger.on_closed(now, member);
        }
        self.links.retain(|_, link| link.end != end);
        self.outbox.on_closed(end);
    }
}
