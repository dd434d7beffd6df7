//! What the coordinator hears while it decides nothing: while it listens, and when it has forgotten something (R9.13).

use kasha_machine::Endpoint;
use kasha_types::{ClientId, ClusterTime, CoreId, Tick};
use kasha_wire::NodeInfo;
use kasha_wire::link::ToCoordinator;
use kasha_wire::message::{GetConfiguration, Heartbeat, HeartbeatAnswer, OpenSession};

use crate::Coordinator;
use crate::goodbye::Goodbye;
use crate::outbox::Out;

impl Coordinator {
    /// Goes on, once it has listened.
    pub(crate) fn listen(&mut self, now: Tick, out: &mut Out<'_>) {
        let Some(listened) = self.memory.has_listened(now, self.ledger.decided(), self.node_lease) else { return };
        for (from, heartbeat) in listened.heard.into_values() {
            self.on_heartbeat(now, from, &heartbeat, out);
        }
        for (from, nonce) in listened.sessions {
            self.on_open_session(now, from, nonce, out);
        }
    }

    fn on_heartbeat_unled(&mut self, now: Tick, from: Endpoint, heartbeat: &Heartbeat, out: &mut Out<'_>) {
        if self.memory.hear(from, heartbeat, self.ledger.decided()) {
            // The core that knew more takes that back: what was not heard meanwhile was no silence.
            self.leases.extend_all(now);
            return self.on_heartbeat(now, from, heartbeat, out);
        }
        if self.memory.loss().is_some() {
            return;
        }
        // It speaks, and is heard: whether others are silent is judged by that. The answer has no lease, and tells nothing.
        let CoreId { node, core } = heartbeat.core;
        let is_its =
            |info: &&NodeInfo| info.incarnation == heartbeat.incarnation && usize::from(core) < info.cores.len();
        if self.decided().configuration.node(node).filter(is_its).is_some() {
            self.note_heard(now, from, heartbeat);
        }
        let (sent, cluster_time, clients_below) = (heartbeat.sent, ClusterTime(0), ClientId(0));
        self.send(from, &HeartbeatAnswer { sent, lease_millis: 0, cluster_time, clients_below }, out);
    }

    /// Whether a message of this kind is handled. Before its first placement a coordinator may have lost its folder, and have
    /// heard of no node that knows more: it must say nothing of clients then, neither grant an id again nor call a lease over.
    pub(crate) fn may_hear(&self, message: &ToCoordinator) -> bool {
        let is_placed = !self.decided().configuration.shards.is_empty();
        let is_of_clients = match message {
            ToCoordinator::OpenSession(_)
            | ToCoordinator::RenewLease(_)
            | ToCoordinator::LeaseQuery(_)
            | ToCoordinator::TableRequest(_) => true,
            ToCoordinator::Heartbeat(_)
            | ToCoordinator::GetConfiguration(_)
            | ToCoordinator::GiveUp(_)
            | ToCoordinator::Handshake(_) => false,
        };
        self.memory.may_lead() && (is_placed || !is_of_clients)
    }

    /// A message while the coordinator decides nothing.
    pub(crate) fn on_message_unled(&mut self, now: Tick, from: Endpoint, message: ToCoordinator, out: &mut Out<'_>) {
        match message {
            ToCoordinator::Heartbeat(heartbeat) => self.on_heartbeat_unled(now, from, &heartbeat, out),
            ToCoordinator::GetConfiguration(GetConfiguration { have }) if self.memory.loss().is_none() => {
                self.on_get_configuration(from, have);
            }
            ToCoordinator::OpenSession(OpenSession { nonce }) if self.memory.loss().is_none() => {
                self.memory.remember_session(from, nonce);
            }
            ToCoordinator::GetConfiguration(_)
            | ToCoordinator::OpenSession(_)
            | ToCoordinator::RenewLease(_)
            | ToCoordinator::TableRequest(_)
            | ToCoordinator::GiveUp(_) => {
                // While it only listens, it will soon answer who asks again.
                if let Some(loss) = self.memory.loss() {
                    self.say_goodbye(from, Goodbye::MemoryLost(loss), out);
                }
            }
            // A node would take goodbyes for the end of its process (K0503): it learns from the silence.
            ToCoordinator::LeaseQuery(_) | ToCoordinator::Handshake(_) => {}
        }
    }
}
