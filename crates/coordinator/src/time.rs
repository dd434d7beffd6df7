//! ClusterTime: one monotonic counter. It follows our clock, and never exceeds what is reserved on file (R4.7, F2).
//!
//! A restarted coordinator begins at the reservation. So time never goes back, at the price of a jump of at most the
//! reservation.

use kasha_types::planted::{self, Bug};
use kasha_types::{ClusterTime, Tick};

use crate::limits::TIME_AHEAD_MILLIS;

/// Keeps the cluster's time between two restarts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterClock {
    base: ClusterTime,
    base_at: Tick,
    handed_out: ClusterTime,
}

impl ClusterClock {
    /// The clock of a coordinator that starts. It begins at the reservation: no earlier process told a time above it.
    pub(crate) fn start(reserved: ClusterTime, now: Tick) -> Self {
        let reserved = if planted::is_on(Bug::ClusterTimeReused) { ClusterTime(0) } else { reserved };
        Self { base: reserved, base_at: now, handed_out: reserved }
    }

    fn by_our_clock(&self, now: Tick) -> ClusterTime {
        self.base.after_millis(u64::try_from(now.since(self.base_at).as_millis()).unwrap_or(u64::MAX))
    }

    /// The present time, to tell others.
    pub(crate) fn now(&mut self, now: Tick, reserved: ClusterTime) -> ClusterTime {
        self.handed_out = self.by_our_clock(now).min(reserved).max(self.handed_out);
        assert!(self.handed_out <= reserved, "F2: ClusterTime stays within its reservation");
        self.handed_out
    }

    /// A node knows of this time. It cannot know of more than was reserved; a claim of more is cut to the reservation.
    pub(crate) fn observe(&mut self, now: Tick, seen: ClusterTime, reserved: ClusterTime) {
        if seen > self.by_our_clock(now) {
            self.base = seen.min(reserved).max(self.by_our_clock(now));
            self.base_at = now;
        }
    }

    /// The next reservation, when half of the last one is used up.
    pub(crate) fn reservation_due(&self, now: Tick, reserved: ClusterTime) -> Option<ClusterTime> {
        let time = self.by_our_clock(now).max(self.handed_out);
        (time.after_millis(TIME_AHEAD_MILLIS / 2) > reserved).then(|| time.after_millis(TIME_AHEAD_MILLIS))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn time_stops_at_its_reservation_and_never_goes_back() {
        let start = Tick(5_000_000_000);
        let mut clock = ClusterClock::start(ClusterTime(100), start);
        let later = start.after(Duration::from_secs(60));
        assert_eq!(clock.now(later, ClusterTime(100)), ClusterTime(100));
        assert_eq!(clock.reservation_due(later, ClusterTime(100)), Some(ClusterTime(61_100)));
        assert_eq!(clock.now(later, ClusterTime(61_100)), ClusterTime(60_100));
        assert_eq!(clock.now(start, ClusterTime(61_100)), ClusterTime(60_100));
        assert_eq!(clock.reservation_due(later, ClusterTime(61_100)), None);
    }

    #[test]
    fn a_node_that_knows_more_is_believed_up_to_the_reservation() {
        let start = Tick(0);
        let mut clock = ClusterClock::start(ClusterTime(100), start);
        clock.observe(start, ClusterTime(u64::MAX), ClusterTime(5_000));
        assert_eq!(clock.now(start, ClusterTime(5_000)), ClusterTime(5_000));
        clock.observe(start, ClusterTime(7), ClusterTime(5_000));
        assert_eq!(clock.now(start, ClusterTime(5_000)), ClusterTime(5_000));
    }
}
