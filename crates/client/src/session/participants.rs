//! Attempts at the participants of an update, and when what a participant says counts (DESIGN section 2, CURP 3.2.1).
//!
//! One participant is the usual number. Its answer is the update's result. When the answer is not durable, it counts once all
//! witnesses have accepted the same attempt (**R2.1**), or, if they do not, once the primary has synced it.
//!
//! A transaction over several shards that takes locks is committed when every participant has *prepared* it (R8.8). The session
//! records it at the witnesses of each participant, too, and the same rule says when each word of *prepared* counts (section 8,
//! one round trip). A participant whose witnesses do not all accept is asked again instead of for a sync.

use kasha_machine::{Effect, Effects, Endpoint, Gate};
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{CoreId, ShardId, Tick};
use kasha_wire::hot::{decode_small, encode_small};
use kasha_wire::{AnswerView, Body, DecodeError, Envelope, Kind as FrameKind, OutcomeCode};
use kasha_wire::{Recorded, RecordedVerdict, RequestView, SyncRequest};
use kasha_witness::Verdict;

use super::Session;
use super::attempt::Attempt;
use super::call::{Cancel, Stage};
use super::frames::{Known, send};
use super::participant::{Answer, Participants};
use super::target::{Target, Witnesses};
use super::wrong::mix_acceptances;

impl Session {
    /// What participants have said is about the id that they were asked under.
    pub(super) fn forget_answers(&mut self, slot: usize) {
        if let Some(open) = self.calls[slot].participants.several_mut() {
            open.forget_answers();
        }
    }

    /// The participants that have not answered, if they serve. One that has prepared is asked from the second attempt on: another
    /// one, which cannot be reached, may have refused the transaction, and then this one knows.
    pub(super) fn silent_participants(&self, slot: usize) -> Vec<Target> {
        let open = self.calls[slot].participants.several().expect("the caller looked");
        let is_first = self.calls[slot].attempts == 0;
        let silent = open.participants.iter().filter(|participant| match participant.answer {
            Answer::None | Answer::Speculative(_) => true,
            Answer::Prepared(..) => !is_first,
            Answer::RefusedElsewhere | Answer::Done(_) | Answer::Repeated(..) => false,
        });
        silent.filter_map(|participant| self.target_at(participant.shard).ok()).collect()
    }

    /// One attempt: the same body under a new envelope, to each of these primaries and to all their witnesses at once.
    pub(super) fn send_update(&mut self, slot: usize, targets: &[Target], now: Tick, out: &mut Effects) {
        let patience = self.patience_with(slot, &targets[0]).max(self.patience_for_turn(slot));
        if self.calls[slot].is_sent() && planted::is_on(Bug::BodyRebuilt) {
            self.rebuild_body(slot);
        }
        let call = &mut self.calls[slot];
        self.stats.attempts += 1;
        self.stats.retries += u64::from(call.is_sent());
        call.attempts += 1;
        let update = *call.update();
        let is_recorded = match &mut call.participants {
            Participants::One(_) => true,
            Participants::Several(open) => {
                open.round = call.attempts;
                !self.options.two_phase && Body::decode(&call.bytes).expect("encoded here").is_coordinated()
            }
        };
        for &target in targets {
            let target = if is_recorded { self.with_witnesses(target, slot, &update) } else { target };
            self.send_attempt(slot, target, now, out);
        }
        let call = &mut self.calls[slot];
        call.stage = Stage::InFlight;
        call.note_sent(now, patience);
        self.timers.arm(&mut self.calls, slot);
    }

    /// What earlier attempts at this participant were told, and was not durable, is nothing any more (R2.1).
    fn send_attempt(&mut self, slot: usize, target: Target, now: Tick, out: &mut Effects) {
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
        let mut attempt = Attempt::new(target, envelope.attempt, now);
        self.stats.rejected += self.reject_for_absent(&target, &mut attempt.told);
        let call = &mut self.calls[slot];
        let (last, keeps_answer) = match &mut call.participants {
            Participants::One(last) => {
                let is_answered = last.is_some_and(|before| before.told.is_answered());
                let keeps_answer = planted::is_on(Bug::AttemptsMixed) && is_answered;
                if !keeps_answer {
                    call.result.clear();
                }
                (last, keeps_answer)
            }
            Participants::Several(open) => {
                let participant = open.of(shard).expect("one of its own");
                let is_answered = matches!(participant.answer, Answer::Speculative(_));
                let keeps_answer = planted::is_on(Bug::PartAttemptsMixed) && is_answered;
                if is_answered && !keeps_answer {
                    participant.answer = Answer::None;
                }
                (&mut participant.attempt, keeps_answer)
            }
        };
        if keeps_answer {
            attempt.told.on_answer(epoch, false);
        }
        if let Some(before) = last.filter(|_| planted::is_on(Bug::AcceptancesMixed)) {
            mix_acceptances(&mut attempt.told, &before.told, &target);
        }
        *last = Some(attempt);
    }

    /// The same body to every witness.
    #[inline]
    fn send_records(&self, slot: usize, envelope: &Envelope, witnesses: &Witnesses, out: &mut Effects) {
        if witnesses.count() == 0 {
            return;
        }
        let mark = out.mark();
        RequestView::encode(FrameKind::Record, envelope, &self.calls[slot].bytes, out.arena());
        let head = out.span_from(mark);
        let configuration = self.cluster.configuration.as_ref().expect("there is a target");
        for &node in witnesses.nodes() {
            let core = configuration.core_of(node, envelope.shard).expect("checked with the target");
            out.push(Effect::Send { to: Endpoint::Core(core), head, tail: None, gate: Gate::Now });
        }
    }

    /// Asks the only participant to make its answer durable, since the witnesses do not.
    pub(super) fn send_sync(&mut self, slot: usize, now: Tick, out: &mut Effects) {
        let patience = self.patience(self.calls[slot].silent);
        let call = &mut self.calls[slot];
        let rpc = call.update().rpc.expect("numbered before it was sent");
        let Participants::One(Some(attempt)) = &mut call.participants else { unreachable!("several are asked again") };
        attempt.sync_sent = true;
        let (Target { shard, epoch, primary, .. }, number) = (attempt.target, attempt.number);
        call.note_sent(now, patience);
        self.stats.sync_requests += 1;
        let mark = out.mark();
        encode_small(FrameKind::Sync, &SyncRequest { shard, epoch, rpc, attempt: number }, out.arena());
        send(Endpoint::Core(primary), mark, out);
        self.timers.arm(&mut self.calls, slot);
    }

    /// One of several has answered, its answer is not durable, and its witnesses will not all accept: it answers the next attempt when it
    /// has executed the transaction (0032).
    fn send_again_to(&mut self, slot: usize, shard: ShardId, now: Tick, out: &mut Effects) {
        if let Some(participant) = self.calls[slot].participants.several_mut().and_then(|open| open.of(shard)) {
            participant.answer = Answer::None;
        }
        match self.target_at(shard) {
            Ok(target) => {
                self.calls[slot].attempts += 1;
                self.stats.attempts += 1;
                self.stats.retries += 1;
                self.send_attempt(slot, target, now, out);
            }
            Err(_) => self.pause(slot, true, now),
        }
    }

    /// Nobody waits for the call any more, and it will not come when its turn is: the participants hear that, so that others need not wait
    /// for it (0047). What they have recorded stays.
    pub(super) fn give_up_turn(&mut self, slot: usize, now: Tick) {
        let cluster_time = self.cluster.time_taken(now);
        let Some(turn) = self.calls[slot].turn_at(cluster_time) else { return };
        let attempt = self.calls[slot].attempts;
        let open = self.calls[slot].participants.several().expect("it met another one");
        for participant in &open.participants {
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

    /// The last attempt at this participant, if it has this number.
    fn attempt(&mut self, slot: usize, shard: ShardId, number: u32) -> Option<&mut Attempt> {
        let attempt = self.calls[slot].participants.attempt(shard, number);
        if attempt.is_none() {
            hit(Probe::OldAttempt);
        }
        attempt
    }

    /// A primary has answered this attempt, and that is not durable there. One of several has prepared.
    pub(super) fn on_speculative(
        &mut self,
        slot: usize,
        answer: &AnswerView<'_>,
        now: Tick,
        out: &mut Effects,
    ) -> Known {
        let is_prepared = answer.result.first() == Some(&(OutcomeCode::Prepared as u8));
        let is_of_one = self.calls[slot].participants.several().is_none();
        let Some(attempt) = self.attempt(slot, answer.shard, answer.attempt) else { return Known::No };
        if answer.epoch != attempt.target.epoch || !is_of_one && !is_prepared {
            return Known::No;
        }
        let is_first = !attempt.told.is_answered();
        attempt.told.on_answer(answer.epoch, false);
        if let Some(participant) = self.calls[slot].participants.several_mut().and_then(|open| open.of(answer.shard)) {
            participant.has_spoken = true;
            if let Answer::None = participant.answer {
                participant.answer = Answer::Speculative(answer.result.to_vec());
            }
        } else if is_first {
            self.take_result(slot, answer.result);
        }
        self.judge(slot, answer.shard, now, out);
        Known::Yes
    }

    /// A witness has recorded it, or has not.
    pub(super) fn on_recorded(
        &mut self,
        from: CoreId,
        payload: &[u8],
        now: Tick,
        out: &mut Effects,
    ) -> Result<Known, DecodeError> {
        let recorded: Recorded = decode_small(payload)?;
        let Some(slot) = self.identities.slot_of(recorded.rpc) else { return Ok(Known::No) };
        if from.node != recorded.node {
            return Ok(Known::No);
        }
        self.note_answer_time(slot, from, false, now, out);
        let Some(attempt) = self.attempt(slot, recorded.shard, recorded.attempt) else { return Ok(Known::No) };
        let Some(witness) = attempt.target.witnesses.number_of(recorded.node) else { return Ok(Known::No) };
        attempt.told.on_recorded(recorded.list, witness, recorded.verdict == RecordedVerdict::Accepted);
        self.note_verdict(recorded.verdict);
        self.judge(slot, recorded.shard, now, out);
        Ok(Known::Yes)
    }

    fn note_verdict(&mut self, verdict: RecordedVerdict) {
        if verdict == RecordedVerdict::Accepted {
            self.stats.accepted += 1;
        } else {
            self.stats.rejected += 1;
        }
        if matches!(verdict, RecordedVerdict::WrongList | RecordedVerdict::Frozen) {
            self.cluster.want_configuration();
        }
    }

    /// A witness that cannot be reached will not accept, so no attempt waits for it.
    pub(super) fn on_witness_gone(&mut self, slot: usize, core: CoreId, now: Tick, out: &mut Effects) {
        let configuration = self.cluster.configuration.as_ref().expect("something is in flight");
        let mut shards = Vec::new();
        for Attempt { target, told, .. } in self.calls[slot].participants.attempts() {
            let witness = target.witnesses.number_of(core.node);
            if let Some(witness) = witness.filter(|_| configuration.core_of(core.node, target.shard) == Some(core)) {
                hit(Probe::WitnessGone);
                told.on_recorded(target.list, witness, false);
                self.stats.rejected += 1;
                shards.push(target.shard);
            }
        }
        let id = self.calls.id(slot);
        for shard in shards {
            if self.calls.find(id) == Some(slot) {
                self.judge(slot, shard, now, out);
            }
        }
    }

    /// What a participant has said may count now, or never.
    pub(super) fn judge(&mut self, slot: usize, shard: ShardId, now: Tick, out: &mut Effects) {
        let participants = &mut self.calls[slot].participants;
        match (participants.verdict(shard), participants) {
            (None | Some(Verdict::Wait), _) => {}
            (Some(Verdict::Complete(path)), Participants::One(_)) => self.complete(slot, path),
            (Some(Verdict::Complete(path)), Participants::Several(open)) => {
                open.note_prepared(shard, path);
                self.end_if_all_say_so(slot, now);
            }
            (Some(Verdict::NeedSync), Participants::One(Some(Attempt { sync_sent: true, .. }))) => {}
            (Some(Verdict::NeedSync), Participants::One(_)) => self.send_sync(slot, now, out),
            (Some(Verdict::NeedSync), Participants::Several(_)) => self.send_again_to(slot, shard, now, out),
        }
    }
}
