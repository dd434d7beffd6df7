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

impl ClusterTime {
    /// The moment `milliseconds` later; saturates.
    #[must_use]
    pub fn after_millis(self, milliseconds: u64) -> Self {
        Self(self.0.saturating_add(milliseconds))
    }
}

impl fmt::Debug for ClusterTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ct{}ms", self.0)
    }
}
