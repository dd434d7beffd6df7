//! When a call goes on by itself: when an attempt has been silent for too long, after a pause, or at its deadline.
//!
//! Waiting times and pauses double up to their limits. They are jittered, so that clients which failed together do not
//! come back together.
//!
//! An attempt that has been silent for its first waiting time is a reason to ask for a newer configuration. It is a reason
//! to send again only if the servers usually take less (`silence`): a busy machine has the least room for requests that
//! come twice.

use std::time::Duration;

use kasha_machine::Effects;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{CoreId, Tick};
use kasha_witness::Attempt as Told;

use super::attempt::Attempt;
use super::call::{Call, Cancel, Kind, NEVER, Stage};
use super::participant::{Answer, Participants};
use super::target::Target;
use super::{Completion, Session, WhyNot, WhyUnknown};
use crate::limits;

impl Session {
    /// Gives up the running attempt. The next one comes after a pause, which doubles each time, or earlier with a newer
    /// configuration if that helps.
    pub(super) fn pause(&mut self, slot: usize, for_configuration: bool, now: Tick) {
        let refused = self.calls[slot].refused;
        let longest = limits::BACKOFF.saturating_mul(1 << refused.min(16)).min(limits::BACKOFF_MAX);
        let pause = self.jittered_below(longest);
        self.calls[slot].refused += 1;
        self.wait(slot, Stage::Backoff { for_configuration }, now.after(pause));
        if for_configuration {
            self.cluster.want_configuration();
        }
    }

    /// The call waits for something else than answers, and goes on by itself at `resume`.
    pub(super) fn wait(&mut self, slot: usize, stage: Stage, resume: Tick) {
        let call = &mut self.calls[slot];
        (call.stage, call.resume) = (stage, resume);
        call.participants.leave();
        self.timers.arm(&mut self.calls, slot);
    }

    /// A random time between half of `longest` and `longest`.
    fn jittered_below(&mut self, longest: Duration) -> Duration {
        let nanos = u64::try_from(longest.as_nanos()).expect("short");
        Duration::from_nanos(self.rng.between(nanos / 2, nanos))
    }

    /// How long an attempt that is sent to this target now may be silent. The waiting time grows with each silent
    /// attempt to one primary in one epoch, and begins anew with another primary or epoch: then the outage is over. So
    /// what is lost on the way to a new primary is soon sent again, and calls that wait behind this one (R4.10) do not
    /// wait for an outage that is over.
    pub(super) fn patience_with(&mut self, slot: usize, target: &Target) -> Duration {
        let call = &mut self.calls[slot];
        let now_tried = Some((target.epoch, target.primary));
        if call.tried != now_tried {
            (call.tried, call.silent, call.refused) = (now_tried, 0, 0);
        }
        self.patience(self.calls[slot].silent)
    }

    /// How long an attempt may be silent after `silent` attempts without an answer.
    pub(super) fn patience(&mut self, silent: u32) -> Duration {
        let patience =
            self.options.attempt_timeout.saturating_mul(1 << silent.min(16)).min(limits::ATTEMPT_TIMEOUT_MAX);
        patience.max(Duration::from_micros(1)) + self.jittered_below(patience) / 4
    }

    pub(super) fn run_timers(&mut self, now: Tick, out: &mut Effects) {
        while let Some(slot) = self.timers.pop_due(&mut self.calls, now) {
            let id = self.calls.id(slot);
            if self.calls[slot].caller.deadline() <= now {
                self.on_deadline(slot, now, out);
            }
            if self.calls.find(id) != Some(slot) {
                continue;
            }
            if self.calls[slot].resume <= now {
                self.calls[slot].resume = NEVER;
                match self.calls[slot].stage {
                    Stage::InFlight => self.on_silence(slot, now, out),
                    Stage::Backoff { .. } | Stage::ForCoordinator => self.start(slot, now, out),
                    Stage::Queued | Stage::Gathering => {}
                }
            }
            if self.calls.find(id) == Some(slot) {
                assert!(self.calls[slot].wake() > now, "a call that was looked at waits for something later");
                self.timers.arm(&mut self.calls, slot);
            }
        }
    }

    fn on_deadline(&mut self, slot: usize, now: Tick, out: &mut Effects) {
        match self.calls[slot].kind {
            Kind::Update(_) if !self.calls[slot].is_sent() && self.met_others(slot) => {
                self.end_undone(slot, WhyNot::Conflict);
            }
            Kind::Update(_) | Kind::Table(_) if !self.calls[slot].is_sent() => {
                let waits_for = self.waits_for(slot);
                self.end_undone(slot, WhyNot::DeadlineBeforeSend(waits_for));
            }
            Kind::Update(update) => self.on_update_deadline(slot, update.cancel, now, out),
            Kind::Table(_) => self.detach(slot),
            Kind::Read(_) | Kind::Status { .. } | Kind::Refresh => {
                let why = self.calls[slot].why_late(now);
                self.end(slot, Completion::ReadFailed(why));
            }
        }
    }

    fn on_update_deadline(&mut self, slot: usize, cancel: Cancel, now: Tick, out: &mut Effects) {
        if !self.options.exactly_once {
            self.stats.unknown += 1;
            self.end(slot, Completion::Unknown(WhyUnknown::DeadlinePassed));
            return;
        }
        match cancel {
            Cancel::AtDeadline => {
                self.calls[slot].caller.wait_until(now.after(self.options.cancel_grace));
                self.cancel(slot, WhyNot::DeadlineCancelled, now, out);
            }
            // It may be waiting for its turn. Then it has not happened, and a shard says so.
            Cancel::Never if self.calls[slot].update().turn.is_some() => {
                self.calls[slot].caller.wait_until(now.after(limits::TURN_PATIENCE));
                self.cancel(slot, WhyNot::Conflict, now, out);
            }
            Cancel::Never | Cancel::Begun(_) => self.detach(slot),
        }
    }

    /// The attempt got no answer for a while, or not enough acceptances.
    fn on_silence(&mut self, slot: usize, now: Tick, out: &mut Effects) {
        let (primaries, witnesses) = self.silent_cores(slot);
        let Call { silent, sent_at, ref participants, .. } = self.calls[slot];
        let one = participants.one().copied();
        // Whether to send again is decided by primaries; if all have answered, witnesses decide when the sync is asked for.
        let usual = if let Some(Attempt { target, .. }) = one.filter(|_| primaries.is_empty()) {
            // A sync costs little, and is never wrong. So what the witness owes as a primary of others, or has taken there, is no
            // reason to wait longer than its primary takes.
            let most = self.options.attempt_timeout.max(self.silence.usual(target.primary, 0, sent_at));
            let usual = witnesses.iter().map(|&core| self.silence.measured(core)).max();
            usual.unwrap_or_default().min(most)
        } else {
            let deciding = if primaries.is_empty() { &witnesses } else { &primaries };
            deciding.iter().map(|&core| self.silence.usual(core, silent, sent_at)).max().unwrap_or_default()
        };
        let due = sent_at.after(usual);
        if due > now && !planted::is_on(Bug::PauseFixed) {
            let jitter = self.jittered_below(usual) / 4;
            return self.doubt(slot, due.after(jitter), now);
        }
        if primaries.is_empty() {
            witnesses.iter().for_each(|&core| self.silence.note_absent(core));
        }
        if one.is_some_and(|attempt| attempt.told.is_answered() && !attempt.sync_sent) {
            self.send_sync(slot, now, out);
            return;
        }
        if !self.calls[slot].has_turn() {
            primaries.iter().for_each(|&core| self.silence.note_timeout(core, self.options.attempt_timeout, now));
        }
        self.stats.timeouts += 1;
        self.unheard.get_or_insert(now);
        let call = &mut self.calls[slot];
        call.silent += 1;
        call.refused = 0;
        self.cluster.want_configuration();
        self.start(slot, now, out);
    }

    /// The servers usually take longer, so nothing is sent again yet. But if one of them is dead, its successor is heard of as
    /// soon as ever: the configuration is asked for now, and after twice the time again, since a question may be lost.
    fn doubt(&mut self, slot: usize, until: Tick, now: Tick) {
        hit(Probe::SilenceIsUsual);
        let call = &mut self.calls[slot];
        let passed = now.since(call.sent_at).max(self.options.attempt_timeout);
        (call.is_doubted, call.resume) = (true, until.min(now.after(passed)));
        self.cluster.want_configuration();
    }

    /// The cores that have said nothing to the attempt and could complete it: primaries, and witnesses. If a primary is silent,
    /// too, silence says nothing of witnesses: the reason may be here.
    fn silent_cores(&self, slot: usize) -> (Vec<CoreId>, Vec<CoreId>) {
        let (mut primaries, mut witnesses) = (Vec::new(), Vec::new());
        match &self.calls[slot].participants {
            Participants::One(None) => {}
            Participants::One(Some(Attempt { target, told, sync_sent, .. })) => {
                if *sync_sent || !told.is_answered() {
                    primaries.push(target.primary);
                }
                if !sync_sent {
                    witnesses = self.silent_witnesses(target, told);
                }
            }
            Participants::Several(open) => {
                for participant in &open.participants {
                    let Some(Attempt { target, told, .. }) = &participant.attempt else { continue };
                    match participant.answer {
                        Answer::None => primaries.push(target.primary),
                        Answer::Speculative(_) => {}
                        Answer::RefusedElsewhere | Answer::Prepared(..) | Answer::Done(_) | Answer::Repeated(..) => {
                            continue;
                        }
                    }
                    witnesses.extend(self.silent_witnesses(target, told));
                }
            }
        }
        (primaries, witnesses)
    }

    fn silent_witnesses(&self, target: &Target, told: &Told) -> Vec<CoreId> {
        let Some(configuration) = &self.cluster.configuration else { return Vec::new() };
        let nodes = target.witnesses.nodes().iter().zip(0..);
        let silent = nodes.filter(|&(_, number)| !told.has_spoken(number));
        silent.filter_map(|(&node, _)| configuration.core_of(node, target.shard)).collect()
    }

    /// Witnesses that are known not to answer are not waited for. Returns how many they are.
    pub(super) fn reject_for_absent(&self, target: &Target, told: &mut Told) -> u64 {
        if !self.silence.is_any_absent() || planted::is_on(Bug::AbsentAwaited) {
            return 0; // nearly always
        }
        let configuration = self.cluster.configuration.as_ref().expect("there is a target");
        let mut absent = 0;
        for (&node, number) in target.witnesses.nodes().iter().zip(0..) {
            if configuration.core_of(node, target.shard).is_some_and(|core| self.silence.is_absent(core)) {
                hit(Probe::AbsentWitness);
                told.on_recorded(target.list, number, false);
                absent += 1;
            }
        }
        absent
    }

    /// A core has answered the first attempt, or its sync. What was sent twice does not tell how long the core took: the
    /// answer may be to either (Karn's rule). And what waited for its turn says nothing of the core.
    pub(super) fn note_answer_time(&mut self, slot: usize, core: CoreId, to_sync: bool, now: Tick, out: &mut Effects) {
        let call = &self.calls[slot];
        if call.stage == Stage::InFlight
            && call.participants.one().is_some_and(|attempt| attempt.sync_sent) == to_sync
            && call.attempts == 1
            && !call.has_turn()
        {
            let usual = self.silence.measured(core);
            let ends_silence = self.silence.note_answer(core, now.since(call.sent_at), now);
            if ends_silence {
                self.end_silence(slot, core, usual, now, out);
            }
        }
    }

    /// The core was silent, and answers again. What was lost meanwhile has doubled its waiting time, and would hold up its client's
    /// acknowledgements while others are answered. So what has waited as long as the core usually takes is sent again now; once
    /// only, since a core may be silent about some calls, and answer others.
    #[cold]
    fn end_silence(&mut self, answered: usize, core: CoreId, usual: Duration, now: Tick, out: &mut Effects) {
        for slot in self.calls.slots().filter(|&slot| slot != answered) {
            let Some(call) = self.calls.get(slot) else { continue };
            let waits = call.stage == Stage::InFlight && !call.was_resumed && !call.has_turn();
            let is_late = (call.silent > 0 || call.is_doubted) && now.since(call.sent_at) >= usual;
            let asks_core = |attempt: &Attempt| attempt.target.primary == core && !attempt.told.is_answered();
            if waits && is_late && call.participants.one().is_some_and(asks_core) {
                hit(Probe::SilenceIsOver);
                self.calls[slot].was_resumed = true;
                self.start(slot, now, out);
            }
        }
    }
}
