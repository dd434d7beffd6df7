//! One participant of an update over several shards, and what it has said.

use kasha_types::{ShardId, Tick};
use kasha_witness::{Attempt, Path};

use super::target::Target;

#[derive(Debug)]
pub(super) struct Participant {
    pub(super) shard: ShardId,
    /// Which of the update's keys are its own.
    pub(super) places: Vec<usize>,
    pub(super) answer: Answer,
    /// The last attempt at this participant.
    pub(super) asked: Option<Asked>,
    /// It has said something under this id, whatever it was.
    pub(super) has_spoken: bool,
}

/// One attempt at one participant, and what came of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) target: Target,
    pub(super) number: u32,
    pub(super) attempt: Attempt,
    /// When it was sent.
    pub(super) sent: Tick,
}

impl Participant {
    /// When the last attempt was sent, if it has this number.
    pub(super) fn sent_as(&self, number: u32) -> Option<Tick> {
        self.asked.filter(|asked| asked.number == number).map(|asked| asked.sent)
    }
}

#[derive(Debug)]
pub(super) enum Answer {
    None,
    /// Another participant refuses the transaction, and tells why.
    RefusedElsewhere,
    /// Prepared, but not durable there: counts as `Prepared` once all witnesses of this participant have accepted the last attempt.
    Speculative(Vec<u8>),
    /// The results of its parts, if no other participant refuses the transaction (R8.8), how that became durable, and when the
    /// participant was asked.
    Prepared(Vec<u8>, Path, Tick),
    /// The results of its parts.
    Done(Vec<u8>),
    /// What it has recorded under the operation key before: the request that ran, and the results of its parts. Counts if all others
    /// name the same request.
    Repeated([u8; 16], Vec<u8>),
}
