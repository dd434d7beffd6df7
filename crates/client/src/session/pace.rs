//! When a call goes on by itself: when an attempt has been silent for too long, after a pause, or at its deadline.
//!
//! Waiting times and pauses double up to their limits. They are jittered, so that clients which failed together do not
//! come back together.

use std::time::Duration;

use kasha_machine::Effects;
use kasha_types::Tick;

use super::call::{Cancel, InFlight, Kind, NEVER, Stage};
use super::route::Target;
use super::{Completion, Session, WhyNot, WhyUnknown};
use crate::limits;

impl Session {
    /// Gives up the running attempt. The next one comes after a pause, which doubles each time, or earlier with a newer
    /// configuration if that helps.
    pub(super) fn pause(&mut self, slot: usize, for_configuration: bool, now: Tick) {
        let refused = self.calls[slot].refused;
        let longest = limits::BACKOFF.saturating_mul(1 << refused.min(16)).min(limits::BACKOFF_MAX);
        let pause = self.jittered_below(longest);
        let call = &mut self.calls[slot];
        call.refused += 1;
        call.stage = Stage::Backoff { for_configuration };
        call.resume = now.after(pause);
        self.timers.arm(&mut self.calls, slot);
        if for_configuration {
            self.cluster.want_configuration();
        }
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
                    Stage::InFlight(in_flight) => self.on_silence(slot, in_flight, now, out),
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
                self.calls[slot].caller.wait_until(now.after(limits::CANCEL_GRACE));
                self.cancel(slot, WhyNot::DeadlineCancelled, now, out);
            }
            Cancel::Never | Cancel::Begun(_) => self.detach(slot),
        }
    }

    /// The attempt got no answer in time, or not enough acceptances.
    fn on_silence(&mut self, slot: usize, in_flight: InFlight, now: Tick, out: &mut Effects) {
        if in_flight.attempt.is_answered() && !in_flight.sync_sent {
            self.send_sync(slot, in_flight, now, out);
            return;
        }
        self.stats.timeouts += 1;
        let call = &mut self.calls[slot];
        call.silent += 1;
        call.refused = 0;
        self.cluster.want_configuration();
        self.start(slot, now, out);
    }
}
