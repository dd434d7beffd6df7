//! What a stage's time went into that says nothing of the change that is tested: builds, and processors that the host took away.

use std::fs;

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

    /// Of a hundred ticks since then, how many the host of this machine took away.
    pub(crate) fn stolen_percent_since(self, earlier: Self) -> u64 {
        let all = self.all.saturating_sub(earlier.all).max(1);
        100 * self.stolen.saturating_sub(earlier.stolen) / all
    }
}

/// The seconds that cargo says a build took, if this line of its output says so: `Finished ... in 1m 02s`.
pub(crate) fn build_seconds(line: &str) -> Option<f64> {
    let (_, time) = line.trim().strip_prefix("Finished ")?.rsplit_once(" in ")?;
    time.split(' ').try_fold(0.0, |sum, part| {
        let (number, unit) = part.split_at(part.find(|letter: char| letter.is_ascii_alphabetic())?);
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            _ => return None,
        };
        Some(sum + seconds * number.parse::<f64>().ok()?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_takes_is_part_of_all_time() {
        let earlier = Ticks::parse("cpu  10 0 10 80 0 0 0 0 0 0\ncpu0 1").unwrap();
        let later = Ticks::parse("cpu  60 0 10 80 0 0 0 50 9 9").unwrap();
        assert_eq!(later.stolen_percent_since(earlier), 50);
        assert_eq!(earlier.stolen_percent_since(earlier), 0);
        assert_eq!([Ticks::parse(""), Ticks::parse("cpu  1 2"), Ticks::parse("intr 1")], [None; 3]);
    }

    #[test]
    fn cargo_tells_how_long_a_build_took() {
        let found = |line: &str| build_seconds(line);
        assert_eq!(found("    Finished `release` profile [optimized] target(s) in 1m 02s"), Some(62.0));
        assert_eq!(found("    Finished `test` profile [unoptimized] target(s) in 0.25s"), Some(0.25));
        assert_eq!([found("   Compiling kasha"), found("Finished in x"), found("")], [None; 3]);
    }
}
