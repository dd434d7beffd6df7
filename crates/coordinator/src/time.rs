//! ClusterTime: one monotonic counter. It follows the clock of our machine's boot, and never exceeds what is reserved on
//! file (R4.7, F2).
//!
//! Beside the reservation stands an [`Anchor`]: what ClusterTime was when the clock of this boot showed something. A
//! coordinator that starts again in the same boot goes on exactly where ClusterTime is by then: lifetimes of values
//! and leases are neither shorter nor longer by that. In another boot, or if nothing says which boot it is, it begins
//! at the reservation. Then ClusterTime may stand still for up to a second: it goes on when at least as much time must
//! have passed since the anchor. So all starts together never move ClusterTime ahead of the time that has passed by
//! more than one reservation.

use std::time::Duration;

use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{BootId, ClusterTime, Tick};
use kasha_wire::wire_struct;

use crate::Command;
use crate::limits::TIME_AHEAD_MILLIS;

/// What ClusterTime was when the clock of a boot showed something. It is in the log, beside the reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Anchor {
    /// The boot; none if the machine does not tell.
    pub(crate) boot: Option<BootId>,
    /// What the clock of this boot showed.
    pub(crate) clock: Tick,
    /// What ClusterTime was then, if it did not stand still.
    pub(crate) time: ClusterTime,
    /// Nobody is told less: where ClusterTime stands still, or a time that somebody may know.
    pub(crate) least: ClusterTime,
}

wire_struct! {
    Anchor { boot, clock, time, least }
}

impl Anchor {
    /// Of a new cluster: of no boot.
    pub(crate) const NONE: Self = Self { boot: None, clock: Tick(0), time: ClusterTime(1), least: ClusterTime(1) };

    /// What ClusterTime is when a process starts that finds this, if it does not stand still at `reserved`.
    fn goes_on_at(&self, boot: Option<BootId>, now: Tick, reserved: ClusterTime) -> ClusterTime {
        let millis = |tick: Tick| u64::try_from(tick.since(Tick(0)).as_millis()).unwrap_or(u64::MAX);
        match (self.boot, boot) {
            (Some(then), Some(ours)) if then == ours && now >= self.clock => {
                hit(Probe::TimeGoesOnInBoot);
                self.at(now)
            }
            // The machine was down before this boot began. So at least as much time has passed as its clock shows.
            (Some(then), Some(ours)) if then != ours => self.time.after_millis(millis(now)).min(reserved),
            // A clock that went back, or a boot that nobody knows: no time at all may have passed.
            (Some(_) | None, Some(_) | None) => self.time.min(reserved),
        }
    }

    /// What ClusterTime is when the clock of the same boot shows `now`.
    fn at(&self, now: Tick) -> ClusterTime {
        self.time.after_millis(u64::try_from(now.since(self.clock).as_millis()).unwrap_or(u64::MAX))
    }
}

/// Keeps the cluster's time between two restarts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterClock {
    anchor: Anchor,
    handed_out: ClusterTime,
}

impl ClusterClock {
    /// The clock of a coordinator that starts, and the command that must be committed before anybody hears of a time.
    /// No earlier process told a time above its reservation, and none in this boot one above what its clock says now.
    pub(crate) fn start(
        found: Anchor,
        reserved: ClusterTime,
        boot: Option<BootId>,
        now: Tick,
    ) -> (Self, Option<Command>) {
        let reserved = if planted::is_on(Bug::ClusterTimeReused) { ClusterTime(0) } else { reserved };
        let time = match planted::is_on(Bug::TimeFromReservationInOneBoot) {
            true => reserved,
            false => found.goes_on_at(boot, now, reserved),
        };
        let is_same_boot = boot.is_some() && boot == found.boot && time == found.at(now) && now >= found.clock;
        // The anchor of this boot stays as it is, so that not even a part of a millisecond is lost.
        let handed_out = if is_same_boot { found.least.max(time.min(reserved)) } else { reserved };
        let anchor = if is_same_boot { found } else { Anchor { boot, clock: now, time, least: reserved } };
        let clock = Self { anchor, handed_out };
        let command = match is_same_boot {
            true => clock.reservation_due(now, reserved),
            false => Some(clock.reservation(now, reserved)),
        };
        (clock, command)
    }

    /// The present time, to tell others. [`Self::reservation_due`] has been asked before, so that it is exact.
    pub(crate) fn now(&mut self, now: Tick, reserved: ClusterTime) -> ClusterTime {
        self.handed_out = self.anchor.at(now).min(reserved).max(self.handed_out);
        assert!(self.handed_out <= reserved, "F2: ClusterTime stays within its reservation");
        self.handed_out
    }

    /// A node knows of this time. It cannot know of more than was reserved; a claim of more is cut to the reservation. If we
    /// did not know of it, our folder is an older copy. The command must be committed before anybody hears of a time.
    pub(crate) fn observe(&mut self, now: Tick, seen: ClusterTime, reserved: ClusterTime) -> Option<Command> {
        let seen = seen.min(reserved);
        if seen <= self.anchor.at(now).max(self.handed_out) {
            return None;
        }
        self.anchor = Anchor { time: seen, clock: now, ..self.anchor };
        Some(self.reservation(now, reserved))
    }

    /// The next reservation, when half of the last one is used up.
    pub(crate) fn reservation_due(&self, now: Tick, reserved: ClusterTime) -> Option<Command> {
        let is_due = self.anchor.at(now).after_millis(TIME_AHEAD_MILLIS / 2) > reserved;
        is_due.then(|| self.reservation(now, reserved))
    }

    /// A reservation counts from the time that has passed, not from a reservation at which ClusterTime stands still: else
    /// restarts would add up.
    fn reservation(&self, now: Tick, reserved: ClusterTime) -> Command {
        let Anchor { boot, clock: before, time: then, .. } = self.anchor;
        let time = self.anchor.at(now);
        // The anchor is at a whole millisecond, so that many anchors in a row lose nothing.
        let clock = before.after(Duration::from_millis(time.0 - then.0));
        let to = time.after_millis(TIME_AHEAD_MILLIS).max(reserved);
        Command::ReserveTime { to, boot, clock, time, least: self.handed_out }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: Option<BootId> = Some(BootId(7));
    const OTHER: Option<BootId> = Some(BootId(8));

    /// What a log holds, and a process that writes it.
    struct Process {
        clock: ClusterClock,
        reserved: ClusterTime,
        found: Anchor,
    }

    impl Process {
        fn start(found: Anchor, reserved: u64, boot: Option<BootId>, now: Tick) -> Self {
            let (clock, command) = ClusterClock::start(found, ClusterTime(reserved), boot, now);
            let mut process = Self { clock, reserved: ClusterTime(reserved), found };
            process.log(command);
            process
        }

        fn first(now: Tick) -> Self {
            Self::start(Anchor::NONE, 1, BOOT, now)
        }

        fn log(&mut self, command: Option<Command>) {
            if let Some(Command::ReserveTime { to, boot, clock, time, least }) = command {
                assert!(to >= self.reserved && least <= to, "F2");
                (self.reserved, self.found) = (to, Anchor { boot, clock, time, least });
            }
        }

        fn restarted(&self, boot: Option<BootId>, now: Tick) -> Self {
            Self::start(self.found, self.reserved.0, boot, now)
        }

        fn tells(&mut self, now: Tick) -> u64 {
            self.log(self.clock.reservation_due(now, self.reserved));
            self.clock.now(now, self.reserved).0
        }
    }

    fn at(micros: u64) -> Tick {
        Tick(5_000_000_000).after(Duration::from_micros(micros))
    }

    #[test]
    fn time_is_reserved_ahead_and_never_goes_back() {
        let mut process = Process::first(at(0));
        assert_eq!((process.tells(at(0)), process.reserved), (1, ClusterTime(1_001)));
        assert_eq!(process.tells(at(499_000)), 500);
        assert_eq!(process.reserved, ClusterTime(1_001));
        assert_eq!((process.tells(at(60_000_000)), process.reserved), (60_001, ClusterTime(61_001)));
        assert_eq!(process.tells(at(0)), 60_001);
    }

    #[test]
    fn restarts_in_one_boot_add_nothing_and_lose_nothing() {
        let mut process = Process::first(at(0));
        for restart in 1..=2_000 {
            let now = at(restart * 499_700);
            process = process.restarted(BOOT, now);
            assert_eq!(process.tells(now), 1 + restart * 4_997 / 10);
        }
        let later = at(2_000 * 499_700 + 3_600_000_000);
        assert_eq!(
            process.restarted(BOOT, later).tells(later),
            1 + 999_400 + 3_600_000,
            "an outage is part of the time"
        );
    }

    #[test]
    fn another_boot_begins_at_the_reservation() {
        let mut process = Process::first(at(0));
        process.tells(at(700_000));
        let mut process = process.restarted(OTHER, Tick(3_000_000_000));
        assert_eq!(process.tells(Tick(3_000_000_000)), 1_701);
        assert_eq!(process.tells(Tick(3_100_000_000)), 1_801, "and goes on from there");
        let mut again = process.restarted(OTHER, Tick(3_200_000_000));
        assert_eq!(again.tells(Tick(3_200_000_000)), 1_901);
    }

    #[test]
    fn boots_together_never_add_more_than_a_second() {
        for boot in [None, OTHER] {
            let mut process = Process::first(at(0));
            let mut told = 0;
            for restart in 1..=100 {
                let boot = boot.map(|_| BootId(100 + u128::from(restart)));
                // A boot of 0 ms, after which the process runs for 300 ms.
                process = process.restarted(boot, Tick(0));
                let now = process.tells(Tick(0));
                assert!(now >= told, "F2");
                told = now;
                let mut again = process.restarted(boot, Tick(1_000_000));
                assert!(again.tells(Tick(1_000_000)) >= told, "F2, where it stands still, too");
                told = again.tells(Tick(300_000_000));
                process = again;
                assert!(told <= restart * 300 + 1_001, "{told} ms after {} ms", restart * 300);
            }
        }
    }

    #[test]
    fn a_clock_that_went_back_is_another_boots() {
        let mut process = Process::first(at(0));
        let told = process.tells(at(10_000_000));
        for boot in [BOOT, None] {
            let mut process = process.restarted(boot, at(1_000));
            assert_eq!(process.tells(at(1_000)), process.found.time.0.max(told + 1_000), "the reservation");
            assert!(process.tells(at(1_001_000)) <= told + 1_001);
            assert_eq!(process.tells(at(3_001_000)), told + 3_000, "it counts from the anchor again");
        }
    }

    #[test]
    fn a_node_that_knows_more_is_believed_up_to_the_reservation() {
        let mut process = Process::first(at(0));
        let command = process.clock.observe(at(0), ClusterTime(u64::MAX), process.reserved);
        process.log(command);
        assert_eq!(process.tells(at(0)), 1_001);
        assert_eq!(process.clock.observe(at(0), ClusterTime(7), process.reserved), None);
        assert_eq!(process.restarted(BOOT, at(5_000)).tells(at(5_000)), 1_006, "a restart knows of it, too");
    }
}
