//! ClusterTime: one monotonic counter. It follows the clock of our machine's boot, and never exceeds what is reserved on
//! file (R4.7, F2).
//!
//! Beside the reservation stands an [`Anchor`]: what ClusterTime was when the clock of the leader's boot showed something. Who begins
//! to lead in the same boot, in another process, too, goes on exactly where ClusterTime is by then: lifetimes of values
//! and leases are neither shorter nor longer by that. On another machine a new leader goes on from what its quorum remembers (R9.4). If
//! not all of that quorum remember, it begins at the reservation. Then ClusterTime may stand still for up to a second: it goes on when at
//! least as much time must have passed since the anchor. So all starts together never move ClusterTime ahead of the time that has passed
//! by more than one reservation.
//!
//! **R10.12** The unix time of ClusterTime 0 is in the state, taken from the clock on the wall of the first leader. Where ClusterTime is away from what
//! such a clock shows, it goes there: never back, and half a percent slower or faster at most.

use std::time::Duration;

use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{BootId, ClusterTime, Tick};
use kasha_wire::wire_struct;

use crate::Command;
use crate::limits::{STEERED_PART, TIME_AHEAD_MILLIS, WALL_NEAR_MILLIS};
use crate::remembered::{Recalled, Told};

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

    /// What ClusterTime is if the clock of our boot has made this.
    fn by_clock_of(&self, boot: Option<BootId>, now: Tick) -> Option<ClusterTime> {
        let is_ours = boot.is_some() && boot == self.boot && now >= self.clock;
        if !is_ours || planted::is_on(Bug::TimeFromReservationInOneBoot) {
            return None;
        }
        hit(Probe::TimeGoesOnInBoot);
        Some(self.at(now))
    }

    /// What ClusterTime is at least when another clock has made this, and whoever begins finds it.
    fn goes_on_at(&self, boot: Option<BootId>, now: Tick, reserved: ClusterTime, is_alone: bool) -> ClusterTime {
        let millis = |tick: Tick| u64::try_from(tick.since(Tick(0)).as_millis()).unwrap_or(u64::MAX);
        match (self.boot, boot) {
            _ if planted::is_on(Bug::TimeFromReservationInOneBoot) => reserved,
            // Whoever is alone has made this on the same machine, which was down before this boot began. So at least as much time has
            // passed as its clock shows.
            (Some(then), Some(ours)) if then != ours && is_alone => self.time.after_millis(millis(now)).min(reserved),
            // Another machine, a clock that went back, or a boot that nobody knows: no time at all may have passed.
            (Some(_) | None, Some(_) | None) => self.time.min(reserved),
        }
    }

    /// What ClusterTime is when the clock of the same boot shows `now`.
    fn at(&self, now: Tick) -> ClusterTime {
        self.time.after_millis(u64::try_from(now.since(self.clock).as_millis()).unwrap_or(u64::MAX))
    }
}

/// What there is to go on from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// The last anchor of the log, and the last reservation.
    pub(crate) anchor: Anchor,
    pub(crate) reserved: ClusterTime,
    /// Whether the group has one member: nobody else has led it.
    pub(crate) is_alone: bool,
    pub(crate) recalled: Recalled,
}

/// Keeps the cluster's time between two leads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterClock {
    anchor: Anchor,
    handed_out: ClusterTime,
    /// By how many milliseconds the clock on the wall is ahead, as far as that is not made up for (R10.12).
    behind_wall: i64,
}

impl ClusterClock {
    /// The clock of a coordinator that begins to lead, and the command that must be committed before anybody hears of a time.
    /// No earlier leader told a time above its reservation, none whose clock was ours one above what that clock says now, and none at all
    /// one above what each of a quorum remembers.
    pub(crate) fn start(found: Found, boot: Option<BootId>, now: Tick) -> (Self, Option<Command>) {
        let Found { anchor: found, reserved, is_alone, recalled } = found;
        let reserved = if planted::is_on(Bug::ClusterTimeReused) { ClusterTime(0) } else { reserved };
        let Told { time: passed, most } =
            recalled.greatest.unwrap_or(Told { time: ClusterTime(0), most: ClusterTime(0) });
        // Nobody is told more than is reserved, nor is more reserved: a greater time is nobody's.
        let most = most.min(reserved.max(passed.after_millis(TIME_AHEAD_MILLIS)));
        let by_our_clock = found.by_clock_of(boot, now);
        let (time, least) = match by_our_clock {
            Some(time) => (time.max(passed), found.least.max(time.min(reserved)).max(most)),
            None if recalled.by_all => (passed.max(found.time.min(reserved)), most.max(found.least.min(reserved))),
            None => (found.goes_on_at(boot, now, reserved, is_alone).max(passed), reserved.max(most)),
        };
        // The anchor of this boot stays as it is, so that not even a part of a millisecond is lost.
        let keeps_anchor = by_our_clock == Some(time);
        let anchor = if keeps_anchor { found } else { Anchor { boot, clock: now, time, least } };
        let mut clock = Self { anchor, handed_out: least, behind_wall: 0 };
        let command = match keeps_anchor && least <= reserved {
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

    /// ClusterTime by the time that has passed: less than what is told where that stands still.
    pub(crate) fn passed(&self, now: Tick) -> ClusterTime {
        self.anchor.at(now)
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
    pub(crate) fn reservation_due(&mut self, now: Tick, reserved: ClusterTime) -> Option<Command> {
        let is_due = self.anchor.at(now).after_millis(TIME_AHEAD_MILLIS / 2) > reserved;
        is_due.then(|| self.reservation(now, reserved))
    }

    /// The clock on the wall shows what makes ClusterTime this, in milliseconds. ClusterTime goes there slowly, from one reservation to the next. If it is far
    /// away, one of the two is wrong, and nobody knows which: ClusterTime goes on by the clock of the boot. Returns by how much the wall is
    /// ahead.
    pub(crate) fn see_wall(&mut self, now: Tick, by_wall: i64) -> i64 {
        let behind = by_wall.saturating_sub(i64::try_from(self.anchor.at(now).0).unwrap_or(i64::MAX));
        self.behind_wall = if behind.unsigned_abs() <= WALL_NEAR_MILLIS { behind } else { 0 };
        behind
    }

    /// By how much the next anchor is moved, after so many milliseconds: half a percent of these at most, so it never goes back.
    fn steer(&mut self, passed: u64) -> i64 {
        let most = i64::try_from(passed / STEERED_PART).unwrap_or(i64::MAX);
        let by = self.behind_wall.clamp(-most, most);
        self.behind_wall -= by;
        by
    }

    /// A reservation counts from the time that has passed, not from a reservation at which ClusterTime stands still: else
    /// restarts would add up.
    fn reservation(&mut self, now: Tick, reserved: ClusterTime) -> Command {
        let Anchor { boot, clock: before, time: then, .. } = self.anchor;
        let time = self.anchor.at(now);
        // The anchor is at a whole millisecond, so that many anchors in a row lose nothing.
        let clock = before.after(Duration::from_millis(time.0 - then.0));
        let time = ClusterTime(time.0.saturating_add_signed(self.steer(time.0 - then.0)));
        self.anchor = Anchor { boot, clock, time, least: self.handed_out };
        let to = time.after_millis(TIME_AHEAD_MILLIS).max(reserved).max(self.handed_out);
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
            Self::elected(found, reserved, boot, now, true, Recalled::NOTHING)
        }

        fn elected(
            anchor: Anchor,
            reserved: u64,
            boot: Option<BootId>,
            now: Tick,
            is_alone: bool,
            recalled: Recalled,
        ) -> Self {
            let found = Found { anchor, reserved: ClusterTime(reserved), is_alone, recalled };
            let (clock, command) = ClusterClock::start(found, boot, now);
            let mut process = Self { clock, reserved: ClusterTime(reserved), found: anchor };
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
            let command = self.clock.reservation_due(now, self.reserved);
            self.log(command);
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
    fn r9_4_another_machine_goes_on_from_what_its_quorum_remembers() {
        let mut process = Process::first(at(0));
        process.tells(at(700_000));
        let next = |greatest: Option<(u64, u64)>, by_all| {
            let greatest = greatest.map(|(time, most)| Told { time: ClusterTime(time), most: ClusterTime(most) });
            let recalled = Recalled { greatest, by_all };
            Process::elected(process.found, process.reserved.0, OTHER, Tick(9_000_000_000), false, recalled)
        };
        let told =
            |mut process: Process, micros| process.tells(Tick(9_000_000_000).after(Duration::from_micros(micros)));
        assert_eq!(process.reserved, ClusterTime(1_701));
        assert_eq!(told(next(Some((730, 730)), true), 0), 730);
        assert_eq!(told(next(Some((730, 730)), true), 5_000_000), 5_730);
        assert_eq!(told(next(Some((1_900, 1_900)), true), 0), 1_900, "the reservation was not committed");
        assert_eq!(told(next(Some((730, 730)), false), 0), 1_701, "one of them may have been told more");
        assert_eq!(told(next(Some((730, 730)), false), 2_000_000), 2_730, "it stood still");
        assert_eq!(told(next(Some((730, 900)), true), 0), 900, "where it stood");
        assert_eq!(told(next(Some((730, 900)), true), 1_000_000), 1_730, "and goes on with the time that has passed");
        assert_eq!(told(next(None, false), 0), 1_701);
        assert_eq!(told(next(None, false), 2_000_000), 2_701, "from the anchor: no machine was down");
        let mut again =
            Process::elected(process.found, process.reserved.0, BOOT, at(800_000), false, Recalled::NOTHING);
        assert_eq!(again.tells(at(800_000)), 801, "the clock is the one of the last leader");
    }

    /// Half a percent of the time that passes, and never back.
    #[test]
    fn r10_12_time_goes_to_the_clock_on_the_wall() {
        for (ahead, ends) in
            [(900, 900), (-900, -900), (9_000, 1_000), (10_001, 0), (-10_001, 0), (i64::MAX, 0), (i64::MIN, 0)]
        {
            let mut process = Process::first(at(0));
            let (mut told, mut wall) = (0, 0);
            for second in 1..=200_u64 {
                wall = 1 + i64::try_from(second * 1_000).unwrap();
                process.clock.see_wall(at(second * 1_000_000), wall.saturating_add(ahead));
                let now = process.tells(at(second * 1_000_000));
                assert!((995..=1_005).contains(&(now - told)) || second == 1, "{told}, then {now}");
                told = now;
            }
            let off = i64::try_from(told).unwrap() - wall;
            assert!((off - ends).abs() <= 5, "the wall is {ahead} ms ahead, and time went {off} ms");
        }
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

    /// Found by review: a member whose memory was wrong by more than a second stopped every leader for which it voted.
    #[test]
    fn r9_4_a_vote_with_an_absurd_time_stops_no_leader() {
        for (boot, clock, time) in [(OTHER, Tick(0), 5_000), (BOOT, at(0), 4_600)] {
            let told = Told { time: ClusterTime(time), most: ClusterTime(u64::MAX) };
            let recalled = Recalled { greatest: Some(told), by_all: true };
            let anchor = Anchor { boot, clock, time: ClusterTime(4_500), least: ClusterTime(4_500) };
            let mut process = Process::elected(anchor, 5_500, BOOT, at(200_000), false, recalled);
            assert!(process.tells(at(200_000)) <= process.reserved.0);
        }
    }
}
