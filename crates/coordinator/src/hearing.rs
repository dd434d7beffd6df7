//! Who speaks to the coordinator, and whom its answers reach.

use kasha_machine::Endpoint;
use kasha_types::probe::{Probe, hit};
use kasha_types::{ConfigVersion, Tick};
use kasha_wire::message::Heartbeat;

use crate::Coordinator;

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
