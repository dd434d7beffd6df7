//! What the coordinator hears while it decides nothing: while it listens, and when it has forgotten something (R9.13).

use kasha_machine::Endpoint;
use kasha_types::{ClientId, ClusterTime, Tick};
use kasha_wire::link::ToCoordinator;
use kasha_wire::message::{GetConfiguration, Heartbeat, HeartbeatAnswer, OpenSession};

use crate::goodbye::Goodbye;
use crate::lead::Leading;
use crate::outbox::Out;

impl Leading<'_> {
    /// Goes on, once it has listened.
    pub(crate) fn listen(&mut self, now: Tick, out: &mut Out<'_>) {
        let lease = self.member.options.node_lease;
        let Some(listened) = self.lead.memory.has_listened(now, self.member.ledger.decided(), lease) else { return };
        self.member.ledger.question(now);
        for (from, heartbeat) in listened.heard.into_values() {
            self.on_heartbeat(now, from, &heartbeat, out);
        }
        for (from, nonce) in listened.sessions {
            self.on_open_session(now, from, nonce, out);
        }
    }

    /// Whether the coordinator may decide something, after what the core's folder knows (R9.13).
    pub(crate) fn remembers(&mut self, from: Endpoint, heartbeat: &Heartbeat) -> bool {
        let may_decide = self.lead.memory.hear(from, heartbeat, self.member.ledger.decided());
        let is_lost = self.lead.memory.loss().is_some();
        let known = self.lead.loss_round.filter(|_| is_lost);
        self.lead.loss_round = known.or(is_lost.then(|| self.member.ledger.asked()));
        may_decide
    }

    fn on_heartbeat_deciding_nothing(&mut self, now: Tick, from: Endpoint, heartbeat: &Heartbeat, out: &mut Out<'_>) {
        if self.remembers(from, heartbeat) {
            // The core that knew more takes that back: what was not heard meanwhile was no silence.
            self.lead.leases.extend_all(now);
            return self.on_heartbeat(now, from, heartbeat, out);
        }
        if self.lead.memory.loss().is_some() {
            return;
        }
        // It speaks, and is heard: whether others are silent is judged by that. The answer has no lease, and tells nothing.
        if self.member.knows_process_of(heartbeat) {
            self.note_heard(now, from, heartbeat);
        }
        let (sent, cluster_time, clients_below) = (heartbeat.sent, ClusterTime(0), ClientId(0));
        let view = self.member.ledger.view();
        self.member.send(from, &HeartbeatAnswer { sent, lease_millis: 0, cluster_time, clients_below, view }, out);
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
            | ToCoordinator::Administer(_)
            | ToCoordinator::Grouped(_)
            | ToCoordinator::Handshake(_) => false,
        };
        self.lead.memory.may_decide() && (is_placed || !is_of_clients)
    }

    /// A message while the coordinator decides nothing.
    pub(crate) fn on_message_deciding_nothing(
        &mut self,
        now: Tick,
        from: Endpoint,
        message: ToCoordinator,
        out: &mut Out<'_>,
    ) {
        match message {
            ToCoordinator::Heartbeat(heartbeat) => self.on_heartbeat_deciding_nothing(now, from, &heartbeat, out),
            ToCoordinator::GetConfiguration(GetConfiguration { have }) if self.lead.memory.loss().is_none() => {
                self.on_get_configuration(from, have);
            }
            ToCoordinator::OpenSession(OpenSession { nonce }) if self.lead.memory.loss().is_none() => {
                self.lead.memory.remember_session(from, nonce);
            }
            ToCoordinator::GetConfiguration(_)
            | ToCoordinator::OpenSession(_)
            | ToCoordinator::RenewLease(_)
            | ToCoordinator::TableRequest(_)
            | ToCoordinator::GiveUp(_)
            | ToCoordinator::Administer(_) => {
                // While it only listens, it will soon answer who asks again.
                if let Some(loss) = self.lead.memory.loss() {
                    self.say_goodbye(from, Goodbye::MemoryLost(loss), out);
                }
            }
            // A node would take goodbyes for the end of its process (K0503): it learns from the silence.
            ToCoordinator::LeaseQuery(_) | ToCoordinator::Grouped(_) | ToCoordinator::Handshake(_) => {}
        }
    }
}
