//! Updates of keys of several shards (section 8): one body, which names all participants, goes to each of them; each answers for
//! its own keys, and the answers become one outcome.
//!
//! ```text
//! the update's keys, by shard ─▶ one transaction ─▶ to every participant that has not answered ─▶ all have ─▶ one result
//!                                     ▲                                                        └▶ one refused it ─▶ not committed
//!                                     └─ under a new id, after a pause ◀─ it met another one
//! ```
//!
//! What fails at one participant happens nowhere. A *conflict* is an outcome, too: it did not happen, and is tried again under
//! another id. The participants are part of the body, and stay what they are under one id (R8.11).

use std::collections::BTreeMap;
use std::time::Duration;

use kasha_types::limits::PARTICIPANTS_MAX;
use kasha_types::probe::{Probe, hit};
use kasha_types::{KeyHash, ShardId, TableId, Tick, key_hash, slot_of};
use kasha_wire::operation::{Part, PartOperation, ParticipantsBuffer, PartsBuffer};
use kasha_wire::{AnswerView, Body, BodyHead, Coordination, OutcomeCode, Turn, Update};
use kasha_witness::Path;

use super::attempt::Attempt;
use super::call::{Cancel, Stage};
use super::completion::{WhyNot, WhyUnknown};
use super::identity::Place;
use super::options::{Again, Locking};
use super::participant::{Answer, Distributed, Form, Participant, Participants};
use super::{Completion, Session};
use crate::limits;

/// So often whoever has lost comes at once when its turn has come. More often it hardly loses; then it pauses.
const TURNS_WITHOUT_PAUSE: u32 = 8;

/// Calls `each` with the parts of a transaction that does what this update does. `None`: no transaction does.
fn for_each_part<'a>(
    table: TableId,
    update: &Update<'a>,
    mut each: impl FnMut(TableId, PartOperation<'a>),
) -> Option<Form> {
    Some(match *update {
        Update::Transaction { parts } => {
            parts.iter().for_each(|part| each(part.table, part.operation));
            Form::Transaction
        }
        Update::MultiPut { pairs } => {
            for item in pairs.iter() {
                each(table, PartOperation::Update(Update::put(item.key, item.value)));
            }
            Form::MultiPut
        }
        Update::MultiDelete { keys } => {
            keys.iter().for_each(|item| each(table, PartOperation::Update(Update::delete(item.key))));
            Form::MultiDelete
        }
        Update::MultiIncrement { deltas } => {
            for item in deltas.iter() {
                each(table, PartOperation::Update(Update::increment(item.key, item.delta)));
            }
            Form::MultiIncrement
        }
        _ => return None,
    })
}

impl Session {
    /// Makes a transaction over several shards of an update that has not been sent. `Err`: it cannot be one.
    pub(super) fn distribute(&mut self, slot: usize) -> Result<(), WhyNot> {
        let configuration = self.cluster.configuration.as_ref().expect("the keys are known to be of several shards");
        let call = &self.calls[slot];
        let body = Body::decode(&call.bytes).expect("encoded here");
        let mut by_shard: BTreeMap<ShardId, (Vec<usize>, Vec<Part<'_>>)> = BTreeMap::new();
        let (mut parts, mut is_split) = (0, false);
        let form = for_each_part(body.head.table, &body.update, |table, part| {
            // The caller looked.
            let owner = configuration.owner(table, slot_of(part.first_key())).expect("every key has an owner");
            part.for_each_key(|key| is_split |= configuration.owner(table, slot_of(key)) != Some(owner));
            let (places, own) = by_shard.entry(owner).or_default();
            places.push(parts);
            own.push(Part { table, operation: part });
            parts += 1;
        });
        // A command is of one shard: whoever has one on keys of several takes it apart.
        let form = form.filter(|_| !is_split).ok_or(WhyNot::CrossShard)?;
        if by_shard.len() > PARTICIPANTS_MAX {
            return Err(WhyNot::TooManyShards);
        }
        let (mut list, mut all) = (ParticipantsBuffer::default(), PartsBuffer::default());
        for (&shard, (_, own)) in &by_shard {
            list.push(shard, u16::try_from(own.len()).expect("few keys"));
            own.iter().for_each(|part| all.push(part.table, &part.operation));
        }
        let table = all.as_parts().first_table().expect("some part");
        let head = BodyHead { table, ..body.head };
        let mut places = by_shard.values().flat_map(|(places, _)| places);
        let named = usize::from(body.first_part());
        let first_part = places.position(|&place| place == named).expect("some part was named first");
        let mut bytes = Vec::new();
        let (has_operation_key, arguments) = (body.operation_key.is_some(), (&list, all.as_parts(), first_part));
        Body::encode_distributed(&head, body.operation_key, Coordination::AsPartsNeed, arguments, &mut bytes);
        if let Some(said) = body.said() {
            Body::say(&mut bytes, said);
        }
        let has_keeper = has_operation_key && body.keeps_refusal();
        if bytes.len() > kasha_types::limits::BODY_BYTES_MAX {
            return Err(WhyNot::RequestTooLarge);
        }
        let needs_locks = Body::decode(&bytes).expect("just encoded").is_coordinated();
        let takes_locks = self.options.locking.takes_locks(needs_locks || !self.options.exactly_once, || {
            let keys = all.as_parts();
            let mut hashes = Vec::new();
            keys.iter().for_each(|part| part.operation.for_each_key(|key| hashes.push(key_hash(part.table, key))));
            self.contention.tries_locks(&hashes)
        });
        // The class is no part of what an operation key stands for.
        if takes_locks && !has_operation_key {
            Body::set_coordination(&mut bytes, Coordination::Always);
        }
        let participant = |(shard, (places, _)): (ShardId, (Vec<usize>, _))| Participant {
            shard,
            places,
            answer: Answer::None,
            attempt: None,
            has_spoken: false,
        };
        let participants = by_shard.into_iter().map(participant).collect();
        let tries_locks = takes_locks && !needs_locks && self.options.locking == Locking::WhenFree;
        self.calls.set_bytes(slot, bytes);
        self.calls[slot].update().keys.table = table;
        let open = Distributed { participants, form, parts, has_keeper, tries_locks, conflicts: 0, round: 0 };
        self.calls[slot].participants = Participants::Several(Box::new(open));
        Ok(())
    }

    pub(super) fn place_of_distributed(&self, slot: usize) -> (Place, Vec<ShardId>) {
        let open = self.calls[slot].participants.several().expect("the caller looked");
        let shards: Vec<_> = open.participants.iter().map(|participant| participant.shard).collect();
        (Place::several(shards.iter().copied()), shards)
    }

    /// A participant answers, for good.
    pub(super) fn on_participant(&mut self, slot: usize, answer: &AnswerView<'_>, now: Tick) {
        let (shard, result) = (answer.shard, answer.result);
        let Some(open) = self.calls[slot].participants.several_mut() else { return };
        let Some(participant) = open.of(shard) else { return };
        participant.has_spoken = true;
        match result.first().copied().and_then(OutcomeCode::from_number) {
            Some(OutcomeCode::Done) => participant.answer = Answer::Done(result.to_vec()),
            Some(OutcomeCode::Prepared) => {
                // Of an older attempt it is not known how old it is: it may have been on the way for long.
                let is_last = |attempt: &Attempt| attempt.number == answer.attempt;
                let Some(Attempt { sent, .. }) = participant.attempt.filter(is_last) else { return };
                match &mut participant.answer {
                    Answer::Prepared(known, _, before) if known == result => *before = sent,
                    // What it said before, it has lost with its power.
                    Answer::None | Answer::Speculative(_) | Answer::Prepared(..) => {
                        participant.answer = Answer::Prepared(result.to_vec(), Path::Synced, sent);
                    }
                    Answer::RefusedElsewhere | Answer::Done(_) | Answer::Repeated(..) => {}
                }
                open.forget_what_does_not_happen();
            }
            Some(OutcomeCode::RefusedElsewhere) => {
                participant.answer = Answer::RefusedElsewhere;
                // Those that have prepared will hear of it, too, and one of them may know why.
                open.forget_what_does_not_happen();
            }
            Some(OutcomeCode::Repeated) => {
                let Some((run, kept)) = result[1..].split_first_chunk::<16>() else { return };
                match kept.first().copied().and_then(OutcomeCode::from_number) {
                    Some(OutcomeCode::Done) => {
                        participant.answer = Answer::Repeated(*run, kept.to_vec());
                        open.forget_what_does_not_happen();
                    }
                    Some(OutcomeCode::NotCommitted) => {
                        let failed = open.failure(shard, kept);
                        return self.end_distributed(slot, failed);
                    }
                    _ => return, // nothing else is kept
                }
            }
            Some(OutcomeCode::OperationKeyMismatch) => return self.end_distributed(slot, Some(result.to_vec())),
            Some(OutcomeCode::Conflict) => return self.on_conflict(slot, now),
            Some(OutcomeCode::Cancelled) => return self.end_cancelled(slot),
            Some(OutcomeCode::NotCommitted) => {
                let failed = open.failure(shard, result);
                return self.end_distributed(slot, failed);
            }
            _ => return, // no participant answers that
        }
        self.end_if_all_say_so(slot, now);
    }

    pub(super) fn end_if_all_say_so(&mut self, slot: usize, now: Tick) {
        let open = self.calls[slot].participants.several_mut().expect("a participant answered");
        let has_said = |participant: &Participant| match participant.answer {
            Answer::None | Answer::Speculative(_) => false,
            // The master of a two-phase commit waits for the executions.
            Answer::Prepared(..) => !self.options.two_phase,
            Answer::RefusedElsewhere | Answer::Done(_) | Answer::Repeated(..) => true,
        };
        if !open.participants.iter().all(has_said) {
            return;
        }
        if open.forget_what_is_old(now) {
            return self.send_soon(slot, now);
        }
        let mut runs = open.participants.iter().map(|participant| match participant.answer {
            Answer::Repeated(run, _) => Some(run),
            _ => None,
        });
        let first = runs.next().expect("some participant");
        if runs.all(|run| run == first) {
            // If one is refused elsewhere, nobody has said why.
            let merged = open.merge();
            self.end_distributed(slot, merged);
        } else {
            // The time of the operation key is over for some of them, and in a moment for all (R5.2). It may have run again.
            self.on_conflict(slot, now);
        }
    }

    /// `None`: a participant answered what none answers. The update's outcome is not known then.
    fn end_distributed(&mut self, slot: usize, result: Option<Vec<u8>>) {
        let attempts = self.calls[slot].attempts;
        let open = self.calls[slot].participants.several().expect("a participant answered");
        let is_fast = |participant: &Participant| matches!(participant.answer, Answer::Prepared(_, Path::Fast, _));
        let path = if open.participants.iter().all(is_fast) { Path::Fast } else { Path::Synced };
        match path {
            Path::Fast => self.stats.fast += 1,
            Path::Synced => self.stats.synced += 1,
        }
        if open.tries_locks {
            let keys = self.hashes_of(slot);
            self.contention.met_nobody(&keys);
        }
        let completion = match result {
            Some(result) => Completion::Executed { result, path, attempts },
            None => Completion::Unknown(WhyUnknown::IdReused),
        };
        self.end(slot, completion);
    }

    fn end_cancelled(&mut self, slot: usize) {
        let why = match self.calls[slot].update().cancel {
            Cancel::Begun(why) => why,
            Cancel::Never | Cancel::AtDeadline => WhyNot::Cancelled,
        };
        self.end(slot, Completion::NotExecuted(why));
    }

    /// It did not happen, because it met another one. It is tried again under another id, unless it was given up meanwhile.
    fn on_conflict(&mut self, slot: usize, now: Tick) {
        hit(Probe::ConflictTriedAgain);
        self.stats.conflicts += 1;
        if !self.options.exactly_once {
            // What it met may have been its own earlier attempt, under another id.
            self.stats.unknown += 1;
            return self.end(slot, Completion::Unknown(WhyUnknown::DeadlinePassed));
        }
        if let Cancel::Begun(why) = self.calls[slot].update().cancel {
            self.give_up_turn(slot, now);
            return self.end(slot, Completion::NotExecuted(why));
        }
        let has_lost_before = self.calls[slot].has_turn();
        let open = self.calls[slot].participants.several_mut().expect("a participant answered");
        let leaves_locks = std::mem::take(&mut open.tries_locks);
        open.conflicts += u32::from(!leaves_locks);
        open.forget_answers();
        let conflicts = open.conflicts;
        // No longer than a turn is, which it would miss.
        let pauses = conflicts.saturating_sub(TURNS_WITHOUT_PAUSE).min(3);
        if !matches!(self.calls[slot].caller, super::Caller::Waits { .. }) {
            self.give_up_turn(slot, now);
        }
        self.give_back_number(slot, true);
        let call = &mut self.calls[slot];
        // Under the next id nothing was sent yet.
        (call.attempts, call.silent, call.refused) = (0, 0, pauses);
        let is_callers_to_try = matches!(call.update().again, Again::ByCaller(_));
        if !matches!(call.caller, super::Caller::Waits { .. }) || is_callers_to_try {
            if leaves_locks {
                let keys = self.hashes_of(slot);
                self.contention.met_others(&keys);
            }
            // Nobody waits for it any more: it is not begun again behind its caller's back. Or its caller does that.
            return self.end(slot, Completion::NotExecuted(WhyNot::Conflict));
        }
        self.join_queue(slot, now);
        if leaves_locks {
            self.leave_locks(slot, now);
        } else if has_lost_before && conflicts <= TURNS_WITHOUT_PAUSE {
            self.send_soon(slot, now); // it was told when its turn has come
        } else {
            self.pause(slot, false, now);
        }
    }

    /// It has lost. From now on it says since when (0047).
    fn join_queue(&mut self, slot: usize, now: Tick) {
        // The master of a two-phase commit has to hear at once what it tells the others.
        if self.calls[slot].update().turn.is_none() && !self.options.two_phase {
            let turn = Turn { returns: false, ..self.turn(now) };
            self.calls[slot].update().turn = Some(turn);
        }
    }

    /// A turn for a caller that reads before it updates, and has lost to others for the first time ([`Again::ByCaller`]): for all its
    /// next tries.
    pub fn turn(&mut self, now: Tick) -> Turn {
        let number = self.rng.below(u64::from(Turn::NUMBERS));
        Turn { since: self.cluster.time_taken(now), number: u16::try_from(number).expect("few numbers"), returns: true }
    }

    /// How long at least an attempt at several may be silent that has lost before: it may wait for its turn.
    pub(super) fn patience_for_turn(&self, slot: usize) -> Duration {
        let call = &self.calls[slot];
        let may_wait = call.has_turn() && call.participants.several().is_some();
        if may_wait { limits::TURN_PATIENCE } else { Duration::ZERO }
    }

    /// Nothing in it can fail, and somebody else has locks: it is sent without, at once.
    fn leave_locks(&mut self, slot: usize, now: Tick) {
        hit(Probe::LocksLeft);
        let keys = self.hashes_of(slot);
        self.contention.met_others(&keys);
        Body::set_coordination(&mut self.calls[slot].bytes, Coordination::AsPartsNeed);
        self.send_soon(slot, now);
    }

    /// The next attempt begins without a pause.
    fn send_soon(&mut self, slot: usize, now: Tick) {
        self.wait(slot, Stage::Backoff { for_configuration: false }, now);
    }

    fn hashes_of(&self, slot: usize) -> Vec<KeyHash> {
        let mut hashes = Vec::new();
        self.calls[slot].for_each_key(|table, key| hashes.push(key_hash(table, key)));
        hashes
    }

    /// Why an update that is under no id did not happen, if it was under one.
    pub(super) fn met_others(&self, slot: usize) -> bool {
        self.calls[slot].participants.several().is_some_and(|open| open.conflicts > 0)
    }
}
