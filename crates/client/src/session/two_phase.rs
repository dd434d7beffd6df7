//! The session as the master of a two-phase commit, for comparisons only (`SessionOptions::two_phase`).
//!
//! ```text
//! to all: prepare ─▶ each is durable, with locks: Prepared, and a timestamp ─▶ to each: the votes of the others ─▶ all are Done
//!                                └▶ one says no ─▶ to the others: that vote
//! ```
//!
//! It is Sinfonia's protocol (Granola's thesis, 6.1.2) made of Kasha's parts, and takes six message delays: the client is the master.
//! With a master of its own it would be seven. The decision may get lost: participants that have waited ask each other (R8.11).

use kasha_machine::{Effects, Endpoint};
use kasha_types::{ShardId, Tick};
use kasha_wire::message::{Told, WordOf, Words};
use kasha_wire::{AnswerView, Body, OutcomeCode};

use super::Session;
use super::frames::send_message;
use super::participant::{Answer, Participant, Participants};

impl Session {
    /// A participant answers, for good: what the others have to know of it is told to them.
    pub(super) fn on_participant_as_master(
        &mut self,
        slot: usize,
        answer: &AnswerView<'_>,
        now: Tick,
        out: &mut Effects,
    ) {
        let code = answer.result.first().copied().and_then(OutcomeCode::from_number);
        let against = match code {
            Some(OutcomeCode::Conflict | OutcomeCode::Cancelled) => Some(Told::Conflict),
            Some(OutcomeCode::NotCommitted) => Some(Told::Abort),
            _ => None,
        };
        if let Some(told) = against {
            self.tell_others(slot, answer.shard, told, out);
        }
        let id = self.calls.id(slot);
        self.on_participant(slot, answer, now);
        if code == Some(OutcomeCode::Prepared)
            && let Some(votes) = self.calls.find(id).and_then(|slot| votes(&self.calls[slot].participants))
        {
            votes.into_iter().for_each(|(shard, at)| self.tell_others(slot, shard, Told::Proposed(at), out));
        }
    }

    /// What one participant says is told to all others, in its name.
    fn tell_others(&self, slot: usize, from: ShardId, told: Told, out: &mut Effects) {
        let body = Body::decode(&self.calls[slot].bytes).expect("encoded here");
        let (rpc, lease_expiry, hash) = (body.head.rpc, body.head.lease_expiry, body.hash());
        let open = self.calls[slot].participants.several().expect("a participant answered");
        for to in open.participants.iter().map(|participant| participant.shard).filter(|&shard| shard != from) {
            let Ok(target) = self.target_at(to) else { continue };
            let (participants, behind, reason) = (Vec::new(), Vec::new(), Vec::new());
            let word = WordOf { rpc, body: hash, lease_expiry, told, asks: false, participants, behind, reason };
            send_message(Endpoint::Core(target.primary), &Words { to, from, words: vec![word] }, out);
        }
    }
}

/// The votes of all, if all have prepared.
fn votes(participants: &Participants) -> Option<Vec<(ShardId, u64)>> {
    let vote = |participant: &Participant| match &participant.answer {
        Answer::Prepared(result, ..) => Some((participant.shard, vote_behind(result)?)),
        Answer::None | Answer::Speculative(_) | Answer::RefusedElsewhere | Answer::Done(_) | Answer::Repeated(..) => {
            None
        }
    };
    participants.several()?.participants.iter().map(vote).collect()
}

/// The timestamp behind the results of a participant's parts. `None`: the participant tells the others itself.
fn vote_behind(result: &[u8]) -> Option<u64> {
    let (count, mut rest) = result.get(1..)?.split_first_chunk::<4>()?;
    for _ in 0..u32::from_le_bytes(*count) {
        let (head, behind) = rest.split_first_chunk::<5>()?;
        let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
        rest = behind.get(len as usize..)?;
    }
    rest.try_into().ok().map(u64::from_le_bytes)
}
