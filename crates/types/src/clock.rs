//! The two clocks: the monotonic clock of one machine ([`Tick`]), and the clock of the cluster ([`ClusterTime`]).
//!
//! Neither type reads a clock. A machine gets both as arguments.

use std::fmt;
use std::time::Duration;

/// A reading of one machine's monotonic clock, in nanoseconds (`CLOCK_BOOTTIME` in production, virtual in simulation).
/// Meaningless on another machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tick(pub u64);

impl Tick {
    /// The moment `after` later; saturates at the end of time.
    #[must_use]
    pub fn after(self, after: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long ago `earlier` was; zero if it is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// The cluster's one monotonic counter, in milliseconds since the cluster was created, advanced by the coordinator
/// (RIFL 5). Client leases are measured in it. Taken only from the coordinator and from nodes (R4.7).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ClusterTime(pub u64);

/// What the clock on the wall shows: milliseconds since 1970 (UTC). It may be wrong, and it may jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct UnixMillis(pub u64);

impl ClusterTime {
    /// The moment `milliseconds` later; saturates.
    #[must_use]
    pub fn after_millis(self, milliseconds: u64) -> Self {
        Self(self.0.saturating_add(milliseconds))
    }
}

/// Where ClusterTime is, by the clock of one machine: between two bounds.
///
/// Nobody knows how long an answer was under way. A ClusterTime that was read between a question and its answer was no less when the
/// answer came, and no more when the question left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeBounds {
    /// By how many nanoseconds ClusterTime is ahead of the machine's clock.
    least: i64,
    most: i64,
}

impl TimeBounds {
    /// What an answer says that came at `now` to a question that was asked then.
    #[must_use]
    pub fn heard(time: ClusterTime, asked: Tick, now: Tick) -> Self {
        const MILLI: u64 = 1_000_000;
        let ahead = |time: u64, tick: Tick| {
            let nanos = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
            nanos(time.saturating_mul(MILLI)).saturating_sub(nanos(tick.0))
        };
        let least = ahead(time.0, now);
        // What was read is cut to whole milliseconds.
        Self { least, most: ahead(time.0.saturating_add(1), asked).max(least) }
    }

    /// The same after another answer. Answers that agree narrow the bounds. If one does not agree, ClusterTime goes on from elsewhere, or
    /// the clocks have drifted apart: then the newer one counts.
    #[must_use]
    pub fn narrowed(self, newer: Self) -> Self {
        let (least, most) = (self.least.max(newer.least), self.most.min(newer.most));
        if least <= most { Self { least, most } } else { newer }
    }

    /// The least and the greatest ClusterTime that it can be now.
    #[must_use]
    pub fn at(self, now: Tick) -> (ClusterTime, ClusterTime) {
        let time = |ahead: i64| ClusterTime(now.0.saturating_add_signed(ahead) / 1_000_000);
        (time(self.least), time(self.most))
    }
}

impl fmt::Debug for ClusterTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ct{}ms", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Tick {
        Tick(seconds * 1_000_000_000)
    }

    #[test]
    fn what_agrees_narrows_the_bounds_and_what_does_not_replaces_them() {
        let at = |bounds: TimeBounds, now| {
            let (least, most) = bounds.at(now);
            (least.0, most.0)
        };
        let first = TimeBounds::heard(ClusterTime(500), seconds(10), seconds(12));
        assert_eq!(at(first, seconds(12)), (500, 2_501));
        let narrow = first.narrowed(TimeBounds::heard(ClusterTime(1_500), seconds(12), seconds(12)));
        assert_eq!(at(narrow, seconds(14)), (3_500, 3_501));
        // It was under way for a minute, and tells nothing.
        let late = narrow.narrowed(TimeBounds::heard(ClusterTime(3_600), seconds(14), seconds(74)));
        assert_eq!(at(late, seconds(74)), (63_500, 63_501));
        let back = late.narrowed(TimeBounds::heard(ClusterTime(3_600), seconds(75), seconds(75)));
        assert_eq!(at(back, seconds(76)), (4_600, 4_601));
        let absurd = TimeBounds::heard(ClusterTime(u64::MAX), seconds(1), seconds(1));
        assert!(at(absurd, seconds(2)).0 > u64::MAX / 4_000_000);
    }
}
