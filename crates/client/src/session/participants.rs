//! Attempts at the participants of a transaction over several shards, and when what a participant says counts.
//!
//! A transaction that takes locks is committed when every participant has *prepared* it (R8.8). The session records it at the
//! witnesses of each participant, too. What a participant says before the proposal is durable there counts when all witnesses of
//! that participant have accepted the same attempt (R2.1; section 8, one round trip).

use kasha_machine::{Effects, Endpoint};
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{CoreId, ListVersion, ShardId, Tick};
use kasha_wire::{AnswerView, Envelope, Kind as FrameKind, OutcomeCode, Recorded, RecordedVerdict, RequestView};
use kasha_witness::{Attempt, Verdict};

use super::Session;
use super::call::{Cancel, InFlight, Stage};
use super::frames::Known;
use super::frames::send;
use super::participant::{Answer, Asked, Participant};
use super::target::Target;

impl Session {
    /// What participants have said is about the id that they were asked under.
    pub(super) fn forget_answers(&mut self, slot: usize) {
        if let Some(open) = self.distributed.get_mut(&self.calls.id(slot)) {
            open.forget_answers();
        }
    }

    /// The participants that have not answered, if they serve. One that has prepared is asked from the second attempt on: another
    /// one, which cannot be reached, may have refused the transaction, and then this one knows.
    pub(super) fn silent_participants(&self, slot: usize) -> Vec<Target> {
        let open = &self.distributed[&self.calls.id(slot)];
        let is_first = self.calls[slot].attempts == 0;
        let silent = open.participants.iter().filter(|participant| match participant.answer {
            Answer::None | Answer::Speculative(_) => true,
            Answer::Prepared(..) => !is_first,
            Answer::RefusedElsewhere | Answer::Done(_) | Answer::Repeated(..) => false,
        });
        silent.filter_map(|participant| self.target_at(participant.shard).ok()).collect()
    }

    /// One attempt: the same body to all of these, and to their witnesses. What earlier attempts were told, and was not durable, is
    /// nothing any more (R2.1).
    pub(super) fn send_to_participants(&mut self, slot: usize, targets: &[Target], now: Tick, out: &mut Effects) {
        let first = targets[0];
        let patience = self.patience_with(slot, &first).max(self.patience_for_turn(slot));
        let call = &mut self.calls[slot];
        self.stats.attempts += 1;
        self.stats.retries += u64::from(call.is_sent());
        call.attempts += 1;
        let update = *call.update();
        let is_coordinated = self.distributed[&self.calls.id(slot)].is_coordinated;
        for &target in targets {
            let target = if is_coordinated && !self.options.two_phase {
                self.with_witnesses(target, slot, &update)
            } else {
                target
            };
            self.send_to_participant(slot, target, now, out);
        }
        if let Some(open) = self.distributed.get_mut(&self.calls.id(slot)) {
            open.asked = targets.to_vec();
        }
        let call = &mut self.calls[slot];
        let attempt = Attempt::new(first.epoch, ListVersion::NONE, 0);
        call.stage = Stage::InFlight(InFlight { target: first, attempt, sync_sent: false });
        call.note_sent(now, patience);
        self.timers.arm(&mut self.calls, slot);
    }

    fn send_to_participant(&mut self, slot: usize, target: Target, now: Tick, out: &mut Effects) {
        let cluster_time = self.cluster.time_taken(now);
        let call = &mut self.calls[slot];
        let is_cancelling = matches!(call.update().cancel, Cancel::Begun(_));
        let kind = if is_cancelling { FrameKind::Cancel } else { FrameKind::Request };
        let Target { shard, epoch, primary, list, witnesses } = target;
        let turn = call.turn_at(cluster_time);
        let envelope = Envelope { shard, epoch, list, cluster_time, attempt: call.attempts, turn };
        let mark = out.mark();
        RequestView::encode(kind, &envelope, &call.bytes, out.arena());
        send(Endpoint::Core(primary), mark, out);
        self.send_records(slot, &envelope, &witnesses, out);
        let mut asked = Asked {
            target,
            number: envelope.attempt,
            attempt: Attempt::new(epoch, list, witnesses.count()),
            sent: now,
        };
        self.stats.rejected += self.reject_for_absent(&target, &mut asked.attempt);
        let open = self.distributed.get_mut(&self.calls.id(slot)).expect("it is sent");
        let participant = open.participants.iter_mut().find(|participant| participant.shard == shard);
        let participant = participant.expect("one of its own");
        if let Answer::Speculative(_) = participant.answer {
            match planted::is_on(Bug::PartAttemptsMixed) {
                true => asked.attempt.on_answer(epoch, false),
                false => participant.answer = Answer::None,
            }
        }
        participant.asked = Some(asked);
    }

    /// Nobody waits for the call any more, and it will not come when its turn is: the participants hear that, so that others need not wait
    /// for it (0047). What they have recorded stays.
    pub(super) fn give_up_turn(&mut self, slot: usize, now: Tick) {
        let cluster_time = self.cluster.time_taken(now);
        let Some(turn) = self.calls[slot].turn_at(cluster_time) else { return };
        let attempt = self.calls[slot].attempts;
        for participant in &self.distributed[&self.calls.id(slot)].participants {
            let Ok(Target { shard, epoch, primary, list, .. }) = self.target_at(participant.shard) else { continue };
            let envelope = Envelope { shard, epoch, list, cluster_time, attempt, turn: Some(turn) };
            let mut frame = Vec::new();
            RequestView::encode(FrameKind::Cancel, &envelope, &self.calls[slot].bytes, &mut frame);
            self.farewells.push((primary, frame));
        }
    }

    /// See [`Self::give_up_turn`].
    pub(super) fn say_farewells(&mut self, out: &mut Effects) {
        for (to, frame) in std::mem::take(&mut self.farewells) {
            let mark = out.mark();
            out.arena().extend_from_slice(&frame);
            send(Endpoint::Core(to), mark, out);
        }
    }

    /// The participant's attempt with this number, if it is under way.
    fn asked_under(&mut self, slot: usize, shard: ShardId, number: u32) -> Option<&mut Participant> {
        let open = self.distributed.get_mut(&self.calls.id(slot))?;
        let participant = open.participants.iter_mut().find(|participant| participant.shard == shard)?;
        participant.asked.is_some_and(|asked| asked.number == number).then_some(participant)
    }

    /// Whether this is the last attempt at that participant.
    pub(super) fn is_last_attempt(&mut self, slot: usize, shard: ShardId, number: u32) -> bool {
        self.asked_under(slot, shard, number).is_some()
    }

    /// A participant has prepared, and that is not durable there.
    pub(super) fn on_speculative(
        &mut self,
        slot: usize,
        answer: &AnswerView<'_>,
        now: Tick,
        out: &mut Effects,
    ) -> Known {
        let Some(participant) = self.asked_under(slot, answer.shard, answer.attempt) else { return Known::No };
        let asked = participant.asked.as_mut().expect("just seen");
        if answer.epoch != asked.target.epoch || answer.result.first() != Some(&(OutcomeCode::Prepared as u8)) {
            return Known::No;
        }
        asked.attempt.on_answer(answer.epoch, false);
        participant.has_spoken = true;
        if let Answer::None = participant.answer {
            participant.answer = Answer::Speculative(answer.result.to_vec());
        }
        self.judge_participant(slot, answer.shard, now, out);
        Known::Yes
    }

    /// A witness of a participant has recorded it, or has not.
    pub(super) fn on_part_recorded(&mut self, slot: usize, recorded: &Recorded, now: Tick, out: &mut Effects) -> Known {
        let Some(participant) = self.asked_under(slot, recorded.shard, recorded.attempt) else { return Known::No };
        let asked = participant.asked.as_mut().expect("just seen");
        let Some(witness) = asked.target.witnesses.number_of(recorded.node) else { return Known::No };
        asked.attempt.on_recorded(recorded.list, witness, recorded.verdict == RecordedVerdict::Accepted);
        self.judge_participant(slot, recorded.shard, now, out);
        Known::Yes
    }

    /// A witness cannot be reached: it will not accept.
    pub(super) fn on_witness_of_some_gone(&mut self, slot: usize, core: CoreId, now: Tick, out: &mut Effects) {
        let configuration = self.cluster.configuration.as_ref().expect("something is in flight");
        let open = self.distributed.get_mut(&self.calls.id(slot)).expect("the caller looked");
        let mut shards = Vec::new();
        for participant in &mut open.participants {
            let shard = participant.shard;
            let Some(asked) = participant.asked.as_mut() else { continue };
            let witness = asked.target.witnesses.number_of(core.node);
            if let Some(witness) = witness.filter(|_| configuration.core_of(core.node, shard) == Some(core)) {
                hit(Probe::WitnessGone);
                asked.attempt.on_recorded(asked.target.list, witness, false);
                self.stats.rejected += 1;
                shards.push(shard);
            }
        }
        for shard in shards {
            if self.is_distributed(slot) {
                self.judge_participant(slot, shard, now, out);
            }
        }
    }

    /// The cores that have said nothing to the last attempt at a participant which has not answered: first primaries, then
    /// witnesses.
    pub(super) fn silent_at_participants(&self, slot: usize) -> (Vec<CoreId>, Vec<CoreId>) {
        let (mut primaries, mut witnesses) = (Vec::new(), Vec::new());
        let Some(open) = self.distributed.get(&self.calls.id(slot)) else { return (primaries, witnesses) };
        for participant in &open.participants {
            let Some(asked) = participant.asked else { continue };
            match participant.answer {
                Answer::None => primaries.push(asked.target.primary),
                Answer::Speculative(_) => {}
                Answer::RefusedElsewhere | Answer::Prepared(..) | Answer::Done(_) | Answer::Repeated(..) => continue,
            }
            witnesses.extend(self.silent_witnesses(&asked.target, &asked.attempt));
        }
        (primaries, witnesses)
    }

    /// What a participant has said may count now, or never.
    fn judge_participant(&mut self, slot: usize, shard: ShardId, now: Tick, out: &mut Effects) {
        let open = self.distributed.get_mut(&self.calls.id(slot)).expect("the caller looked");
        let participant = open.participants.iter_mut().find(|participant| participant.shard == shard);
        let participant = participant.expect("the caller looked");
        let (Answer::Speculative(result), Some(asked)) = (&mut participant.answer, participant.asked) else { return };
        match asked.attempt.verdict() {
            Verdict::Complete(path) => {
                participant.answer = Answer::Prepared(std::mem::take(result), path, asked.sent);
                open.forget_what_does_not_happen();
                self.end_if_all_say_so(slot, now);
            }
            // The participant answers the next attempt when it has executed the transaction (0032).
            Verdict::NeedSync => {
                participant.answer = Answer::None;
                match self.target_at(shard) {
                    Ok(target) => {
                        self.calls[slot].attempts += 1;
                        self.stats.attempts += 1;
                        self.stats.retries += 1;
                        self.send_to_participant(slot, target, now, out);
                    }
                    Err(_) => self.pause(slot, true, now),
                }
            }
            Verdict::Wait => {}
        }
    }
}
