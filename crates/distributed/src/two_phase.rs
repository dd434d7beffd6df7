//! Votes that clients carry, as the master of a two-phase commit does: for comparisons only.
//!
//! A participant tells its vote on a coordinated transaction to the client alone, and the client tells it to the other participants
//! (Sinfonia; Granola's thesis, 6.1.2). All other words stay as they are. A client that does not do its part is no danger:
//! participants that have waited ask each other, and a word that asks has the vote in it (R8.11).

use crate::participant::Participant;
use crate::record::Distributed;
use crate::{Class, Said};

impl Participant {
    /// From now on clients carry the votes on coordinated transactions.
    pub fn leave_votes_to_clients(&mut self) {
        self.votes_are_clients = true;
    }

    /// Whether the client tells the other participants this. What a new primary says first asks, and is told in any case.
    pub(crate) fn is_clients_to_tell(&self, known: &Distributed, said: Said) -> bool {
        let is_vote = match said {
            Said::Proposed(_) | Said::Against(_) => true,
            Said::Executed { .. } | Said::Never => false,
        };
        self.votes_are_clients && is_vote && known.proposal.class == Class::Coordinated && !known.asks
    }
}
