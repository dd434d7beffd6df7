//! Which run comes next in a sweep that has so much processor time: scenarios differ by a factor of fifty in what a run takes.
//!
//! Each scenario goes through its own seeds in their order. What runs take decides only how far it gets: first every
//! scenario has a few runs, and then always the one that has spent least is next.

use std::time::Duration;

use crate::scenario::Scenario;

/// Every scenario has so many runs, whatever they take.
pub const RUNS_AT_LEAST: u64 = 3;

/// The processor time of a sweep, and what scenarios have spent of it.
#[derive(Clone, Debug)]
pub struct Shares {
    budget: Duration,
    shares: Vec<Share>,
}

/// What one scenario has had.
#[derive(Clone, Debug)]
struct Share {
    scenario: Scenario,
    next_seed: u64,
    begun: u64,
    ended: u64,
    spent: Duration,
}

impl Share {
    /// What the runs take that have begun, if those under way are like those that have ended.
    fn estimate(&self) -> Duration {
        let open = u32::try_from(self.begun - self.ended).expect("a few threads");
        let mean = self.spent.checked_div(u32::try_from(self.ended).expect("few")).unwrap_or_default();
        self.spent + mean * open
    }
}

impl Shares {
    /// Nothing is spent. As in a sweep without a budget, a seed belongs to one scenario: the seed modulo the number of
    /// scenarios.
    #[must_use]
    pub fn new(scenarios: &[Scenario], start: u64, budget: Duration) -> Self {
        let count = scenarios.len() as u64;
        let share = |(index, &scenario): (usize, &Scenario)| {
            let next_seed = start + (index as u64 + count - start % count) % count;
            Share { scenario, next_seed, begun: 0, ended: 0, spent: Duration::ZERO }
        };
        Self { budget, shares: scenarios.iter().enumerate().map(share).collect() }
    }

    /// The next run: a scenario and a seed. `None` when the time is spent.
    pub fn begin(&mut self) -> Option<(Scenario, u64)> {
        let left = self.budget.saturating_sub(self.shares.iter().map(Share::estimate).sum());
        let count = self.shares.len() as u64;
        let least = |share: &&mut Share| match share.begun < RUNS_AT_LEAST {
            true => (share.begun, Duration::ZERO),
            false => (RUNS_AT_LEAST, share.estimate()),
        };
        let share = self.shares.iter_mut().min_by_key(least)?;
        if share.begun >= RUNS_AT_LEAST && left.is_zero() {
            return None;
        }
        let seed = share.next_seed;
        share.next_seed += count;
        share.begun += 1;
        Some((share.scenario, seed))
    }

    /// A run of this scenario has ended, and took so much processor time.
    pub fn end(&mut self, scenario: Scenario, took: Duration) {
        let share = self.shares.iter_mut().find(|share| share.scenario == scenario).expect("it was begun here");
        share.ended += 1;
        share.spent += took;
    }

    /// The processor time of the runs that have ended.
    #[must_use]
    pub fn spent(&self) -> Duration {
        self.shares.iter().map(|share| share.spent).sum()
    }

    /// The scenario with the fewest runs and the one with the most, and how many these are.
    #[must_use]
    pub fn fewest_and_most(&self) -> Option<[(Scenario, u64); 2]> {
        let runs = |share: &Share| (share.scenario, share.ended);
        let fewest = self.shares.iter().min_by_key(|share| share.ended)?;
        Some([fewest, self.shares.iter().max_by_key(|share| share.ended)?].map(runs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: [(Scenario, u64); 4] =
        [(Scenario::Swarm, 1), (Scenario::Crash, 2), (Scenario::SharedSession, 40), (Scenario::Zombie, 1)];

    /// The seeds of each scenario, if a run takes so many times as long as `COSTS` says.
    fn sweep(start: u64, budget: u64, times: u64, jobs: usize) -> (Shares, [Vec<u64>; 4]) {
        let mut shares = Shares::new(&COSTS.map(|row| row.0), start, Duration::from_secs(budget));
        let (mut open, mut seeds) = (std::collections::VecDeque::new(), [const { Vec::new() }; 4]);
        loop {
            while open.len() < jobs
                && let Some((scenario, seed)) = shares.begin()
            {
                let index = COSTS.iter().position(|row| row.0 == scenario).unwrap();
                seeds[index].push(seed);
                open.push_back(index);
            }
            let Some(index) = open.pop_front() else { return (shares, seeds) };
            shares.end(COSTS[index].0, Duration::from_secs(COSTS[index].1 * times));
        }
    }

    #[test]
    fn no_scenario_has_more_than_its_share_and_each_has_a_few_runs() {
        for jobs in [1, 2, 5] {
            let (shares, seeds) = sweep(0, 400, 1, jobs);
            let runs = seeds.each_ref().map(Vec::len);
            assert_eq!(runs[2], 3, "{runs:?}");
            assert!(runs[0].abs_diff(2 * runs[1]) < 8 && runs[0].abs_diff(runs[3]) < 4, "{runs:?}");
            assert!((395..=410).contains(&shares.spent().as_secs()), "{:?}", shares.spent());
            assert_eq!(shares.fewest_and_most().unwrap()[0], (Scenario::SharedSession, 3));
        }
    }

    #[test]
    fn a_slow_machine_goes_through_the_same_seeds_and_gets_less_far() {
        let ((_, fast), (_, slow)) = (sweep(77, 400, 1, 2), sweep(77, 400, 3, 1));
        for (index, (fast, slow)) in fast.iter().zip(&slow).enumerate() {
            assert!(slow.len() >= 3 && fast[..slow.len()] == slow[..]);
            assert!(fast.iter().all(|seed| *seed >= 77 && seed % 4 == index as u64));
        }
        assert!(slow[0].len() < fast[0].len());
    }
}
