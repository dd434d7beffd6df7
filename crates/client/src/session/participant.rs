//! The participants of a call. Of an update over several shards: what each has said, and what all of that comes to.

use kasha_types::{ShardId, Tick};
use kasha_wire::OutcomeCode;
use kasha_witness::{Path, Verdict};

use super::attempt::Attempt;
use super::target::Target;
use crate::limits::ANSWERS_APART_MAX;

/// Those that a call on keys is sent to. One is the usual number.
#[derive(Debug)]
pub(super) enum Participants {
    /// The shard that has all keys, and the attempt that is under way.
    One(Option<Attempt>),
    /// The shards of an update's keys, each with what it has said so far.
    Several(Box<Distributed>),
}

/// One update, as its participants see it.
#[derive(Debug)]
pub(super) struct Distributed {
    pub(super) participants: Vec<Participant>,
    pub(super) form: Form,
    pub(super) parts: usize,
    pub(super) has_keeper: bool,
    /// It would go without locks, too: nothing in it can fail.
    pub(super) tries_locks: bool,
    /// How often it met another one.
    pub(super) conflicts: u32,
    /// The number under which the last attempts at all silent participants were sent. What was sent later was sent to one of them.
    pub(super) round: u32,
}

/// The operation that became a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    Transaction,
    MultiPut,
    MultiDelete,
    MultiIncrement,
}

/// One participant, and what it has said.
#[derive(Debug)]
pub(super) struct Participant {
    pub(super) shard: ShardId,
    /// Which of the update's keys are its own.
    pub(super) places: Vec<usize>,
    pub(super) answer: Answer,
    /// The last attempt at this participant.
    pub(super) attempt: Option<Attempt>,
    /// It has said something under this id, whatever it was.
    pub(super) has_spoken: bool,
}

#[derive(Debug)]
pub(super) enum Answer {
    None,
    /// Another participant refuses the transaction, and tells why.
    RefusedElsewhere,
    /// Prepared, but not durable there: counts as `Prepared` once all witnesses of this participant have accepted the last attempt.
    Speculative(Vec<u8>),
    /// The results of its parts, if no other participant refuses the transaction (R8.8), how that became durable, and when the
    /// attempt was sent.
    Prepared(Vec<u8>, Path, Tick),
    /// The results of its parts.
    Done(Vec<u8>),
    /// What it has recorded under the operation key before: the request that ran, and the results of its parts. Counts if all others
    /// name the same request.
    Repeated([u8; 16], Vec<u8>),
}

impl Participants {
    pub(super) fn several(&self) -> Option<&Distributed> {
        match self {
            Self::One(_) => None,
            Self::Several(open) => Some(open),
        }
    }

    pub(super) fn several_mut(&mut self) -> Option<&mut Distributed> {
        match self {
            Self::One(_) => None,
            Self::Several(open) => Some(open),
        }
    }

    /// The attempt at the only participant, if it is under way.
    pub(super) fn one(&self) -> Option<&Attempt> {
        match self {
            Self::One(attempt) => attempt.as_ref(),
            Self::Several(_) => None,
        }
    }

    /// The last attempts at all participants.
    pub(super) fn attempts(&mut self) -> impl Iterator<Item = &mut Attempt> {
        let (one, several) = match self {
            Self::One(attempt) => (attempt.as_mut(), [].as_mut_slice()),
            Self::Several(open) => (None, open.participants.as_mut_slice()),
        };
        one.into_iter().chain(several.iter_mut().filter_map(|participant| participant.attempt.as_mut()))
    }

    /// The last attempt at this participant, if it has this number.
    pub(super) fn attempt(&mut self, shard: ShardId, number: u32) -> Option<&mut Attempt> {
        self.attempts().find(|attempt| attempt.target.shard == shard && attempt.number == number)
    }

    /// The receivers of the attempts that are under way.
    pub(super) fn targets(&self) -> impl Iterator<Item = &Target> {
        let (one, round, several) = match self {
            Self::One(attempt) => (attempt.as_ref(), 0, [].as_slice()),
            Self::Several(open) => (None, open.round, open.participants.as_slice()),
        };
        let several = several.iter().filter_map(|participant| participant.attempt.as_ref());
        one.into_iter().chain(several).filter(move |attempt| attempt.number >= round).map(|attempt| &attempt.target)
    }

    /// What is to be done about this participant's attempt. `None`: it has said nothing, or has answered for good.
    pub(super) fn verdict(&self, shard: ShardId) -> Option<Verdict> {
        let attempt = match self {
            Self::One(attempt) => attempt.as_ref(),
            Self::Several(open) => {
                let is_speculative =
                    |of: &&Participant| of.shard == shard && matches!(of.answer, Answer::Speculative(_));
                open.participants.iter().find(is_speculative)?.attempt.as_ref()
            }
        };
        attempt.map(|attempt| attempt.told.verdict())
    }

    /// The call waits for something else than answers. What the attempt at one participant collected is dropped (R2.1). Several are asked
    /// again one by one, and what the others say counts.
    pub(super) fn leave(&mut self) {
        if let Self::One(attempt) = self {
            *attempt = None;
        }
    }
}

impl Distributed {
    /// The participant with this shard.
    pub(super) fn of(&mut self, shard: ShardId) -> Option<&mut Participant> {
        self.participants.iter_mut().find(|participant| participant.shard == shard)
    }

    /// Whether each participant has answered under this id.
    pub(super) fn have_all_spoken(&self) -> bool {
        self.participants.iter().all(|participant| participant.has_spoken)
    }

    /// What this participant has said before it was durable counts now.
    pub(super) fn note_prepared(&mut self, shard: ShardId, path: Path) {
        if let Some(Participant { answer, attempt: Some(attempt), .. }) = self.of(shard)
            && let Answer::Speculative(result) = answer
        {
            *answer = Answer::Prepared(std::mem::take(result), path, attempt.sent);
        }
        self.forget_what_does_not_happen();
    }

    /// What failed, as this participant tells it. It counts its own parts. With an operation key that keeps it, it is the keeper of
    /// the key, and counts all parts in the body's order.
    pub(super) fn failure(&self, shard: ShardId, result: &[u8]) -> Option<Vec<u8>> {
        let counted = self.participants.iter().filter(|participant| self.has_keeper || participant.shard == shard);
        let places: Vec<_> = counted.flat_map(|participant| participant.places.iter().copied()).collect();
        failure(self.form, &places, result)
    }

    /// If a participant does not agree, what others have prepared does not happen.
    pub(super) fn forget_what_does_not_happen(&mut self) {
        let is_against = |participant: &Participant| match participant.answer {
            Answer::RefusedElsewhere | Answer::Repeated(..) => true,
            Answer::None | Answer::Speculative(_) | Answer::Prepared(..) | Answer::Done(_) => false,
        };
        if !self.participants.iter().any(is_against) {
            return;
        }
        for participant in &mut self.participants {
            if let Answer::Speculative(_) | Answer::Prepared(..) = participant.answer {
                participant.answer = Answer::None;
            }
        }
    }

    /// What is prepared may be lost with the power of all machines of the participant (section 5): after a while it has to say that
    /// again. False: none is old.
    pub(super) fn forget_what_is_old(&mut self, now: Tick) -> bool {
        let mut any = false;
        for participant in &mut self.participants {
            if let Answer::Prepared(_, _, sent) = participant.answer
                && now.since(sent) > ANSWERS_APART_MAX
            {
                (participant.answer, any) = (Answer::None, true);
            }
        }
        any
    }

    pub(super) fn forget_answers(&mut self) {
        for participant in &mut self.participants {
            (participant.answer, participant.attempt, participant.has_spoken) = (Answer::None, None, false);
        }
    }

    /// What one shard with all the keys would have answered.
    pub(super) fn merge(&self) -> Option<Vec<u8>> {
        let mut results: Vec<Option<(u8, &[u8])>> = vec![None; self.parts];
        for participant in &self.participants {
            let (Answer::Done(answer) | Answer::Repeated(_, answer) | Answer::Prepared(answer, ..)) =
                &participant.answer
            else {
                return None;
            };
            let mut rest = answer.get(5..)?;
            for &place in &participant.places {
                let (head, behind) = rest.split_first_chunk::<5>()?;
                let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
                let (result, behind) = behind.split_at_checked(len as usize)?;
                results[place] = Some((head[0], result));
                rest = behind;
            }
        }
        let mut merged = vec![OutcomeCode::Done as u8];
        merged.extend_from_slice(&u32::try_from(self.parts).ok()?.to_le_bytes());
        for part in results {
            let (code, result) = part?;
            match self.form {
                Form::Transaction => {
                    merged.push(code);
                    merged.extend_from_slice(&u32::try_from(result.len()).ok()?.to_le_bytes());
                    merged.extend_from_slice(result);
                }
                Form::MultiPut | Form::MultiIncrement => merged.extend_from_slice(result.get(1..)?),
                Form::MultiDelete => {
                    merged.push(u8::from(result.first() == Some(&(OutcomeCode::Done as u8))));
                }
            }
        }
        Some(merged)
    }
}

/// The part of the update that failed, and how: of one participant's answer. `places`: of the parts that the answer counts.
fn failure(form: Form, places: &[usize], result: &[u8]) -> Option<Vec<u8>> {
    let (head, rest) = result.split_first_chunk::<6>()?;
    let own = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
    let place = u32::try_from(*places.get(own as usize)?).ok()?.to_le_bytes();
    let mut failed = Vec::new();
    match form {
        Form::Transaction => {
            failed.push(head[0]);
            failed.extend_from_slice(&place);
            failed.push(head[5]);
            failed.extend_from_slice(rest);
        }
        // As the operation itself would say it: what went wrong, and with which key.
        Form::MultiPut | Form::MultiDelete | Form::MultiIncrement => {
            failed.push(*rest.first()?);
            failed.extend_from_slice(&place);
        }
    }
    Some(failed)
}
