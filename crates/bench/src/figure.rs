//! A figure and where it may lie, and the time that the host of this machine took away while it was measured.

use std::fs;

/// A figure that was found, and the range in which it lies with nine chances in ten, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// What was found.
    pub value: f64,
    /// `None`: it was counted, or found once.
    pub spread: Option<Spread>,
}

/// From, to.
pub type Spread = [f64; 2];

/// The chance that the true value lies on one side outside a [`Spread`].
const CHANCE_OUTSIDE: f64 = 0.05;

/// With fewer rounds, all of them may lie on one side of the median with a greater chance.
const ROUNDS_MIN: usize = 5;

/// A figure that says nothing: it may be anything.
pub(crate) const ANYTHING: Spread = [0.0, f64::INFINITY];

impl From<f64> for Figure {
    fn from(value: f64) -> Self {
        Self { value, spread: None }
    }
}

impl Figure {
    /// The median of what rounds found. The range needs no assumption about how the rounds' figures are distributed: each of them
    /// lies above the true median as often as below, like coins that are tossed. So fewer than five rounds say nothing.
    #[must_use]
    pub fn median_of(rounds: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = rounds.collect();
        sorted.sort_by(f64::total_cmp);
        let Some(last) = sorted.len().checked_sub(1) else { return Self::from(0.0) };
        let value = f64::midpoint(sorted[last / 2], sorted[last.div_ceil(2)]);
        let outside = left_out(sorted.len());
        let spread = if sorted.len() < ROUNDS_MIN { ANYTHING } else { [sorted[outside], sorted[last - outside]] };
        Self { value, spread: Some(spread) }
    }

    /// The figure, so many times.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        let times = |[from, to]: Spread| [from * factor, to * factor];
        Self { value: self.value * factor, spread: self.spread.map(times) }
    }
}

/// How many of so many sorted figures, at each end, the true median lies beyond with less than [`CHANCE_OUTSIDE`].
fn left_out(count: usize) -> usize {
    // The chance of exactly `outside` heads in `count` tosses, and of as many or fewer.
    let (mut outside, mut exactly) = (0, 0.5f64.powi(i32::try_from(count).unwrap_or(i32::MAX)));
    let mut at_most = exactly;
    while at_most <= CHANCE_OUTSIDE {
        outside += 1;
        exactly *= (count + 1 - outside) as f64 / outside as f64;
        at_most += exactly;
    }
    outside.saturating_sub(1)
}

/// Processor time of the whole machine since its boot, in ticks of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticks {
    all: u64,
    stolen: u64,
}

impl Ticks {
    /// The present count. Nothing, where the kernel does not tell.
    pub(crate) fn now() -> Self {
        fs::read_to_string("/proc/stat").ok().and_then(|text| Self::parse(&text)).unwrap_or_default()
    }

    /// Reads the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal.
    fn parse(text: &str) -> Option<Self> {
        let numbers = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
        let counts: Vec<u64> = numbers.map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(Self { all: counts.iter().sum(), stolen: *counts.get(7)? })
    }

    /// The share of the processors that the host took away since then.
    pub(crate) fn stolen_since(self, earlier: Self) -> f64 {
        let all = self.all.saturating_sub(earlier.all).max(1);
        self.stolen.saturating_sub(earlier.stolen) as f64 / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_rounds_the_narrower_the_range() {
        let of = |count: u32| Figure::median_of((1..=count).map(f64::from));
        assert_eq!(Figure::median_of([].into_iter()), Figure::from(0.0));
        assert_eq!(of(1), Figure { value: 1.0, spread: Some(ANYTHING) });
        assert_eq!(of(4), Figure { value: 2.5, spread: Some(ANYTHING) });
        // From tables of the sign test, one side, 5 %: 5 figures leave out none, 8 one, 11 two, 30 ten.
        let spreads = [5, 8, 11, 30].map(|count| of(count).spread.unwrap());
        assert_eq!(spreads, [[1.0, 5.0], [2.0, 7.0], [3.0, 9.0], [11.0, 20.0]]);
        assert_eq!(of(5).times(2.0), Figure { value: 6.0, spread: Some([2.0, 10.0]) });
    }

    #[test]
    fn what_the_host_takes_is_part_of_all_time() {
        let earlier = Ticks::parse("cpu  10 0 10 80 0 0 0 0 0 0\ncpu0 1").unwrap();
        let later = Ticks::parse("cpu  60 0 10 80 0 0 0 50 9 9").unwrap();
        assert_eq!((later.stolen_since(earlier), earlier.stolen_since(earlier)), (0.5, 0.0));
        assert_eq!([Ticks::parse(""), Ticks::parse("cpu  1 2"), Ticks::parse("intr 1")], [None; 3]);
    }
}
