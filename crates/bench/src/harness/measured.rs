//! The measurements of one mode, round by round, and ratios between two modes.

use kasha_wire::status::{LongTurn, LoopTurns, LoopUsage};

use super::load::Tally;
use crate::figure::Figure;

/// The measurements of one mode: what its clients saw, and what its primary's event loop used meanwhile.
///
/// Latencies of all rounds are one distribution. Of processor time and throughput, which are sums, the median round
/// counts. So whatever else the machine did in one of the rounds does not count.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) tally: Tally,
    pub(crate) usage: LoopUsage,
    /// The primary's longest turn in any round.
    pub(crate) longest_turn: LongTurn,
    /// The longest turn of the last round.
    pub(crate) last_turns: LoopTurns,
    rounds: Vec<Round>,
}

/// The measurements of one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// Operations a second.
    pub(crate) throughput: f64,
    /// Processor time of the primary's event loop for one operation, in microseconds.
    pub(crate) cpu_us: f64,
    /// Median latency in microseconds.
    pub(crate) p50_us: f64,
}

impl Measured {
    pub(crate) fn new() -> Self {
        let (tally, usage) = (Tally::new(), LoopUsage::default());
        let (longest_turn, last_turns) = (LongTurn::default(), LoopTurns::default());
        Self { tally, usage, longest_turn, last_turns, rounds: Vec::new() }
    }

    pub(crate) fn operations(&self) -> f64 {
        self.tally.operations() as f64
    }

    /// Operations a second.
    pub(crate) fn throughput(&self) -> f64 {
        median(self.rounds.iter().map(|round| round.throughput))
    }

    /// Processor time of the primary's event loop for one operation, in microseconds.
    pub(crate) fn cpu_us(&self) -> f64 {
        median(self.rounds.iter().map(|round| round.cpu_us))
    }

    /// A figure of this mode divided by that of another: the median of the quotients of each round. In each round the
    /// two modes were measured soon after each other, and met the same machine. A minute later it may be half as fast.
    ///
    /// # Panics
    /// If the rounds are not pairs, or if one of them measured nothing: its ratio, 0, would meet any target.
    pub(crate) fn relative_to(&self, other: &Self, figure: fn(&Round) -> f64) -> Figure {
        assert_eq!(self.rounds.len(), other.rounds.len(), "modes that are compared are measured in the same rounds");
        let mut both = self.rounds.iter().chain(&other.rounds);
        assert!(both.all(|round| figure(round) > 0.0), "a round measured nothing");
        let pairs = self.rounds.iter().zip(&other.rounds);
        Figure::median_of(pairs.map(|(this, other)| per(figure(this), figure(other))))
    }

    /// The share of updates that were complete by their witnesses, in one round trip.
    pub(crate) fn fast_path_rate(&self) -> f64 {
        per(self.tally.fast as f64, self.tally.updates as f64)
    }

    /// Latency in microseconds.
    pub(crate) fn percentile_us(&self, percentile: f64) -> f64 {
        percentile_us(&self.tally, percentile)
    }

    /// Operations for each turn of the primary's event loop: what batching does.
    pub(crate) fn batch(&self) -> f64 {
        per(self.operations(), self.usage.turns as f64)
    }

    /// Adds a round. Modes that are compared are measured in the same rounds.
    pub(crate) fn add(&mut self, tally: &Tally, before: LoopUsage, after: LoopUsage) {
        let operations = tally.operations() as f64;
        self.rounds.push(Round {
            throughput: per(operations, tally.elapsed.as_secs_f64()),
            cpu_us: per((after.cpu_nanos - before.cpu_nanos) as f64 / 1000.0, operations),
            p50_us: percentile_us(tally, 50.0),
        });
        self.tally.add(tally);
        self.usage = LoopUsage {
            cpu_nanos: self.usage.cpu_nanos + after.cpu_nanos - before.cpu_nanos,
            allocations: self.usage.allocations + after.allocations - before.allocations,
            heap_bytes: after.heap_bytes,
            turns: self.usage.turns + after.turns - before.turns,
            frames_received: self.usage.frames_received + after.frames_received - before.frames_received,
            frames_sent: self.usage.frames_sent + after.frames_sent - before.frames_sent,
        };
    }
}

fn percentile_us(tally: &Tally, percentile: f64) -> f64 {
    tally.latency.value_at_percentile(percentile) as f64 / 1000.0
}

/// A quotient; 0 if the divisor is 0.
pub(crate) fn per(this: f64, other: f64) -> f64 {
    if other == 0.0 { 0.0 } else { this / other }
}

/// The middle value, or the mean of the two middle ones; 0 if there is none.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.get(sorted.len().saturating_sub(1) / 2..=sorted.len() / 2).unwrap_or_default();
    per(middle.iter().sum(), middle.len() as f64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn measured(rounds: &[(u64, u64)]) -> Measured {
        let mut measured = Measured::new();
        for &(updates, cpu_nanos) in rounds {
            let tally = Tally { updates, elapsed: Duration::from_millis(cpu_nanos / 1_000_000), ..Tally::new() };
            let before = measured.usage;
            measured.add(&tally, before, LoopUsage { cpu_nanos: before.cpu_nanos + cpu_nanos, ..before });
        }
        measured
    }

    #[test]
    fn the_median_round_counts() {
        assert_eq!(Measured::new().cpu_us(), 0.0);
        let measured = measured(&[(1000, 5_000_000), (1000, 900_000_000), (1000, 4_000_000)]);
        assert_eq!((measured.cpu_us(), measured.throughput(), measured.operations()), (5.0, 200_000.0, 3000.0));
    }

    #[test]
    fn modes_are_compared_round_by_round() {
        // A machine that gets slower meanwhile: the quotient of the medians, 8 and 10, is the quotient of no round.
        let one = measured(&[(1000, 4_000_000), (1000, 8_000_000), (1000, 30_000_000)]);
        let other = measured(&[(1000, 2_000_000), (1000, 10_000_000), (1000, 10_000_000)]);
        assert_eq!(one.relative_to(&other, |round| round.cpu_us).value, 2.0);
        assert_eq!(Measured::new().relative_to(&Measured::new(), |round| round.cpu_us).value, 0.0);
        let (one, other) = (measured(&[(1, 3_000_000), (1, 6_000_000)]), measured(&[(1, 1_000_000), (1, 6_000_000)]));
        assert_eq!(one.relative_to(&other, |round| round.cpu_us).value, 2.0, "between 3 and 1");
    }

    #[test]
    #[should_panic(expected = "a round measured nothing")]
    fn what_measured_nothing_is_no_figure() {
        let _ = measured(&[(1, 1_000_000)]).relative_to(&measured(&[(1, 0)]), |round| round.cpu_us);
    }

    #[test]
    #[should_panic(expected = "a round measured nothing")]
    fn what_measured_nothing_meets_no_target() {
        let _ = measured(&[(1, 0)]).relative_to(&measured(&[(1, 1_000_000)]), |round| round.cpu_us);
    }
}
