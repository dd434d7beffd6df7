//! Time: the world's own, and what the clock of each host shows.
//!
//! Host clocks run at a constant rate that differs from the world's by at most [`DRIFT_PPM_MAX`], well within the bound
//! that leases assume (section 7). They begin at any value, and at 0 when the machine boots again. A pause
//! of the host does not stop its clock: that makes zombies.

use kasha_machine::Rng;
use kasha_types::{Tick, UnixMillis};

/// How much a host's clock may differ from the world's, in millionths. The coordinator assumes a twentieth (50 000);
/// two clocks drift apart by twice this.
pub const DRIFT_PPM_MAX: u64 = 20_000;

const MILLION: i128 = 1_000_000;

/// What all clocks on walls show when the world begins.
const WALL_AT_FIRST: u64 = 1_700_000_000_000;

/// A moment of the simulated world, in nanoseconds since it began. No process sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SimTime(pub u64);

impl SimTime {
    /// The moment this many nanoseconds later.
    #[must_use]
    pub fn after(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }
}

impl std::fmt::Display for SimTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:06}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000 / 1000)
    }
}

/// This many microseconds, in nanoseconds.
pub(crate) const fn micros(count: u64) -> u64 {
    count * 1000
}

/// This many milliseconds, in nanoseconds.
pub(crate) const fn millis(count: u64) -> u64 {
    count * 1_000_000
}

/// One host's clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// When the machine booted.
    since: SimTime,
    /// What the clock showed then.
    offset: u64,
    drift_ppm: i64,
}

impl Clock {
    /// A clock that shows `offset` when the world begins, and gains `drift_ppm` millionths.
    #[must_use]
    pub fn new(offset: u64, drift_ppm: i64) -> Self {
        Self { since: SimTime(0), offset, drift_ppm }
    }

    /// Any clock within the bounds.
    pub fn drawn(rng: &mut Rng) -> Self {
        let drift = i64::try_from(rng.below(2 * DRIFT_PPM_MAX + 1)).expect("small");
        Self::new(rng.below(1 << 40), drift - DRIFT_PPM_MAX as i64)
    }

    /// The clock of a machine that boots at this moment.
    pub fn booted(at: SimTime, rng: &mut Rng) -> Self {
        Self { since: at, offset: 0, ..Self::drawn(rng) }
    }

    /// What the clock shows at a moment.
    #[must_use]
    pub fn read(&self, at: SimTime) -> Tick {
        let elapsed = i128::from(at.0.saturating_sub(self.since.0)) * (MILLION + i128::from(self.drift_ppm)) / MILLION;
        Tick(self.offset.saturating_add(u64::try_from(elapsed).expect("time within 500 years")))
    }

    /// What the clock on the wall of the same machine shows: it runs as fast as this one, and a boot does not set it back.
    #[must_use]
    pub fn wall(&self, at: SimTime) -> UnixMillis {
        let elapsed = i128::from(at.0) * (MILLION + i128::from(self.drift_ppm)) / MILLION / 1_000_000;
        UnixMillis(WALL_AT_FIRST + u64::try_from(elapsed).expect("time within 500 years"))
    }

    /// The first moment at which the clock shows at least `tick`.
    #[must_use]
    pub fn when(&self, tick: Tick) -> SimTime {
        let local = i128::from(tick.0.saturating_sub(self.offset));
        let guess = u64::try_from(local * MILLION / (MILLION + i128::from(self.drift_ppm))).unwrap_or(u64::MAX);
        let guess = guess.saturating_add(self.since.0);
        (guess.saturating_sub(1)..=guess.saturating_add(2))
            .map(SimTime)
            .find(|&at| guess > u64::MAX / 4 || self.read(at) >= tick)
            .unwrap_or(SimTime(guess.saturating_add(3)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_reached_at_the_first_moment_that_shows_it() {
        let mut rng = Rng::new(3);
        for _ in 0..2000 {
            let since = SimTime(rng.below(1 << 44));
            let clock = if rng.chance(1, 2) { Clock::drawn(&mut rng) } else { Clock::booted(since, &mut rng) };
            let tick =
                clock.read(since.after(rng.below(1 << 45))).after(std::time::Duration::from_nanos(rng.below(99)));
            let at = clock.when(tick);
            assert!(clock.read(at) >= tick);
            assert!(at <= clock.since || clock.read(SimTime(at.0 - 1)) < tick, "{clock:?} {tick:?}");
        }
    }

    #[test]
    fn the_end_of_time_is_far() {
        let clock = Clock::new(5, -100);
        assert!(clock.when(Tick(u64::MAX)).0 > 1 << 60);
        assert_eq!(clock.when(Tick(0)), SimTime(0));
    }
}
