//! A figure and where it may lie, and the time that the host of this machine took away while it was measured.

use std::fs;

use serde::Serialize;

/// A figure that was found, and the range in which it lies, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// What was found.
    pub value: f64,
    /// `None`: the figure has no range. It was counted, found once, or taken of all rounds together.
    pub spread: Option<Spread>,
}

/// Where a figure may lie. In JSON: the two ends, or null.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Spread {
    /// From, to.
    Within([f64; 2]),
    /// Anywhere: the figure decides nothing.
    Anywhere,
}

/// The chance that the true median lies on one side outside a range. A measurement is looked at twice at most
/// ([`crate::harness::Run::rounds_that_decide`]). So a range that ends it is wrong with one chance in ten at most:
/// two looks, two sides.
const CHANCE_OUTSIDE: f64 = 0.025;

/// With fewer rounds, all of them may lie on one side of the median with a greater chance.
pub const DECIDING_ROUNDS_MIN: u32 = 6;

impl From<f64> for Figure {
    fn from(value: f64) -> Self {
        Self { value, spread: None }
    }
}

impl Figure {
    /// The median of what rounds found. The range needs no assumption about how the rounds' figures are distributed: each of them
    /// lies above the true median as often as below, like coins that are tossed. So a few rounds say nothing.
    #[must_use]
    pub fn median_of(rounds: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = rounds.collect();
        sorted.sort_by(f64::total_cmp);
        let Some(last) = sorted.len().checked_sub(1) else { return Self::from(0.0) };
        let value = f64::midpoint(sorted[last / 2], sorted[last.div_ceil(2)]);
        let ends = left_out(sorted.len()).map(|outside| [sorted[outside], sorted[last - outside]]);
        Self { value, spread: Some(ends.map_or(Spread::Anywhere, Spread::Within)) }
    }

    /// The figure, so many times.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        self.map(|number| number * factor)
    }

    /// The figure and its range, rounded alike: a value at an end of its range stays there.
    pub(crate) fn rounded(self, digits: usize) -> Self {
        self.map(|number| rounded(number, digits))
    }

    fn map(self, each: impl Fn(f64) -> f64) -> Self {
        let spread = self.spread.map(|spread| match spread {
            Spread::Within(ends) => Spread::Within(ends.map(&each)),
            Spread::Anywhere => Spread::Anywhere,
        });
        Self { value: each(self.value), spread }
    }
}

/// The number, rounded to this many digits behind the point.
pub(crate) fn rounded(number: f64, digits: usize) -> f64 {
    let scale = 10f64.powi(i32::try_from(digits).expect("a few digits"));
    (number * scale).round() / scale
}

/// How many of so many sorted figures, at each end, a range leaves out: the true median lies beyond the others with a chance of
/// [`CHANCE_OUTSIDE`] at most. `None`: even all of them are no range.
fn left_out(count: usize) -> Option<usize> {
    // The chance of exactly `outside` heads in `count` tosses, and of fewer. The former is a logarithm, since 2^-1075 is 0.
    let (mut outside, mut exactly, mut fewer) = (0, -(count as f64) * 2f64.ln(), 0.0);
    while fewer + exactly.exp() <= CHANCE_OUTSIDE {
        fewer += exactly.exp();
        exactly += ((count - outside) as f64 / (outside + 1) as f64).ln();
        outside += 1;
    }
    outside.checked_sub(1)
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
        assert_eq!(of(1), Figure { value: 1.0, spread: Some(Spread::Anywhere) });
        assert_eq!(of(DECIDING_ROUNDS_MIN - 1), Figure { value: 3.0, spread: Some(Spread::Anywhere) });
        // From tables of the sign test, one side, 2.5 %: 6 figures leave out none, 9 one, 12 two, 30 nine.
        let spreads = [DECIDING_ROUNDS_MIN, 9, 12, 30].map(|count| of(count).spread.unwrap());
        assert_eq!(spreads, [[1.0, 6.0], [2.0, 8.0], [3.0, 10.0], [10.0, 21.0]].map(Spread::Within));
        assert_eq!(of(6).times(2.0), Figure { value: 7.0, spread: Some(Spread::Within([2.0, 12.0])) });
        assert_eq!(of(1).times(2.0), Figure { value: 2.0, spread: Some(Spread::Anywhere) });
    }

    #[test]
    fn thousands_of_rounds_have_a_range() {
        // Near the normal distribution's: half of the rounds, less 1.96 times half of their root.
        for count in [1_074, 1_075, 2_000, 100_000] {
            let left_out = left_out(count).unwrap() as f64;
            let (half, root) = (count as f64 / 2.0, (count as f64).sqrt());
            assert!((left_out - (half - 0.98 * root)).abs() < 2.0, "{count}: {left_out}");
        }
    }

    #[test]
    fn what_the_host_takes_is_part_of_all_time() {
        let earlier = Ticks::parse("cpu  10 0 10 80 0 0 0 0 0 0\ncpu0 1").unwrap();
        let later = Ticks::parse("cpu  60 0 10 80 0 0 0 50 9 9").unwrap();
        assert_eq!((later.stolen_since(earlier), earlier.stolen_since(earlier)), (0.5, 0.0));
        assert_eq!([Ticks::parse(""), Ticks::parse("cpu  1 2"), Ticks::parse("intr 1")], [None; 3]);
    }
}
