//! Chooses a short list of runs that together reach everything.
//!
//! The list is committed (`regressions/reach.txt`) and CI does its runs. It is chosen from a long sweep. The cost of a
//! run is the number of its operations; the runs that add most for their cost are taken until a few runs reach
//! everything. A change of the code makes the same seeds draw other runs. So everything is reached several times over,
//! and a list that no longer reaches everything is made anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::run::RunReport;
use crate::scenario::Scenario;
use crate::sweep::must_reach;

/// For every path that must be reached, the runs that reached it.
#[derive(Clone, Debug, Default)]
pub struct Cover {
    runs: BTreeMap<(u64, Scenario), Reached>,
}

#[derive(Clone, Debug)]
struct Reached {
    names: BTreeSet<&'static str>,
    operations: u64,
}

impl Cover {
    /// Adds a run. Only runs without violations are worth repeating.
    pub fn add(&mut self, report: &RunReport) {
        if report.violations.is_empty() {
            let names = must_reach(true, true).filter(|name| report.probes.get(name) > 0).collect();
            let reached = Reached { names, operations: report.operations.max(1) as u64 };
            self.runs.insert((report.options.seed, report.options.scenario), reached);
        }
    }

    /// Runs that reach everything this many times, or as often as all runs together do. Each step takes the run that
    /// adds most for its operations; of equal ones, the first.
    #[must_use]
    pub fn choose(&self, times: u32) -> Vec<(Scenario, u64)> {
        let mut wanted: BTreeMap<&str, u32> = must_reach(true, true).map(|name| (name, times)).collect();
        let mut left = self.runs.clone();
        let mut chosen = Vec::new();
        loop {
            let gain = |reached: &Reached| reached.names.iter().filter(|name| wanted[*name] > 0).count() as u64;
            let worth = |reached: &Reached| (gain(reached) << 32) / reached.operations;
            let best = left.iter().max_by_key(|&(&key, reached)| (worth(reached), std::cmp::Reverse(key)));
            let Some((&(seed, scenario), reached)) = best.filter(|(_, reached)| gain(reached) > 0) else {
                return chosen;
            };
            for name in &reached.names {
                let count = wanted.get_mut(name).expect("it must be reached");
                *count = count.saturating_sub(1);
            }
            chosen.push((scenario, seed));
            left.remove(&(seed, scenario));
        }
    }
}

/// The list as text: a scenario and a seed on each line.
#[must_use]
pub fn to_text(runs: &[(Scenario, u64)]) -> String {
    let mut text = String::new();
    for (scenario, seed) in runs {
        writeln!(text, "{} {seed}", scenario.name()).expect("a string takes all");
    }
    text
}

/// Reads such a list.
///
/// # Errors
/// The first line that cannot be read, as text.
pub fn from_text(text: &str) -> Result<Vec<(Scenario, u64)>, String> {
    let run = |line: &str| {
        let (scenario, seed) = line.split_once(' ')?;
        Some((Scenario::by_name(scenario)?, seed.parse().ok()?))
    };
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| run(line).ok_or_else(|| format!("{line:?} is no scenario and seed"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SimTime;
    use crate::digest::Digest;
    use crate::probes::Probes;
    use crate::run::SimOptions;

    fn cover(runs: &[(u64, &[usize], usize)]) -> Cover {
        let names: Vec<_> = must_reach(true, true).collect();
        let mut cover = Cover::default();
        for &(seed, reached, operations) in runs {
            let mut probes = Probes::default();
            reached.iter().for_each(|&index| probes.hit(names[index]));
            let (options, digest) = (SimOptions::new(Scenario::Swarm, seed), Digest::default());
            cover.add(&RunReport { options, digest, violations: vec![], probes, operations, ended: SimTime(0) });
        }
        cover
    }

    #[test]
    fn runs_that_add_most_come_first_and_none_for_nothing() {
        let seeds = |cover: &Cover, times| cover.choose(times).iter().map(|run| run.1).collect::<Vec<_>>();
        let equal = cover(&[(1, &[0, 1], 9), (2, &[0, 1, 2], 9), (3, &[3], 9), (4, &[], 9)]);
        assert_eq!(seeds(&equal, 1), [2, 3]);
        assert_eq!(seeds(&equal, 2), [2, 1, 3]);
        let unequal = cover(&[(1, &[0, 1], 10), (2, &[0, 1, 2], 1_000), (3, &[2], 10)]);
        assert_eq!(seeds(&unequal, 1), [1, 3]);
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let runs = [(Scenario::Swarm, 7), (Scenario::Zombie, u64::MAX)];
        assert_eq!(from_text(&format!("# why\n\n{}", to_text(&runs))), Ok(runs.to_vec()));
        assert!(from_text("swarm").is_err() && from_text("nothing 1").is_err() && from_text("swarm x").is_err());
    }
}
