//! Planted bugs of the session that take more than a condition. Without the feature `planted-bugs` nothing here is called.

use kasha_wire::{Body, BodyHead};
use kasha_witness::Attempt;

use super::Session;
use super::target::Target;

/// `acceptances_mixed`: a new attempt keeps the acceptances that the old one got.
pub(super) fn mix_acceptances(attempt: &mut Attempt, before: &Attempt, target: &Target) {
    let accepted = (0..target.witnesses.count()).filter(|&witness| before.has_accepted(witness));
    accepted.for_each(|witness| attempt.on_recorded(target.list, witness, true));
}

impl Session {
    /// `body_rebuilt`: a retry takes the newest acknowledgement and lease into the body.
    pub(super) fn rebuild_body(&mut self, slot: usize) {
        let body = &mut self.calls[slot].bytes;
        let head = Body::decode(body).expect("encoded here").head;
        let Some(identity) = self.identities.of(head.rpc.client) else { return };
        let head =
            BodyHead { acknowledgement: identity.window.acknowledgement(), lease_expiry: identity.expiry, ..head };
        Body::renumber(body, &head);
    }
}
