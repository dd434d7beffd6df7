//! Many runs, on several threads, and the paths that they must reach together.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kasha_types::probe::Probe;

use crate::digest::Digest;
use crate::planted::Bug;
use crate::probes::Probes;
use crate::run::{RunReport, SimOptions, run};
use crate::scenario::Scenario;
use crate::shares::Shares;

/// A sweep over all scenarios with this many runs must reach all of [`MUST_REACH`].
pub const RUNS_THAT_REACH_ALL: u64 = 500;

/// A sweep over all scenarios with this many runs must also hit every probe of the production code.
pub const RUNS_THAT_HIT_EVERY_PROBE: u64 = 5000;

/// The paths that every long sweep must reach: the simulator exists for their sake. Each is a probe.
pub const MUST_REACH: &[&str] = &[
    "executed: Fast",
    "executed: Synced",
    "fail-overs",
    "joiners",
    "witness list changes",
    "witness read: Sure",
    "witness read: PowerLost",
    "witness requests replayed",
    "requests named as suspects",
    "duplicates suppressed (since last start)",
    "resolved after the deadline",
    "unknown: LeaseLost",
    "time: a client hears it with an answer",
    "not executed: DeadlineCancelled",
    "not executed: OutOfMemory",
    "turns torn",
    "fsyncs failed",
    "logs cut short",
    "segments freed",
    "claims checked: replays",
    "node: live entries copied",
    "node: segment cleaned",
    "node: cleaning waits for a floor",
    "frames: SegmentCopied",
    "frames: LogPiece",
    "frames: LeaseVerdict",
    "recorded: Conflict",
    "recorded: NoSlot",
    "recorded: Frozen",
    "recorded: WrongList",
    "refused: OldWitnessList",
    "refused: TooFewMembers",
    "refused: Stale",
    "refused: WindowExceeded",
    "refused: Reused",
    "blackouts with something unsynced",
    "killed while a joiner copies",
    "nemesis: coordinator away for a minute",
    "nemesis: primary and witnesses apart",
    "claims checked: reads of something unsynced",
    "claims checked: executed at one timestamp",
    "claims checked: executed in the order of timestamps",
    "claims checked: forgotten when recorded everywhere",
    "claims checked: what is prepared is kept",
    "claims checked: round trips counted",
    "claims checked: nobody is overtaken for ever",
    "turn: told that it has come",
    "table names searched",
];

/// The path that most runs of a scenario must reach, if there are at least [`RUNS_OF_A_SCENARIO`] runs of it.
pub const MOST_REACH: &[(Scenario, &str)] = &[
    (Scenario::SharedSession, "client: shard held up"),
    (Scenario::SharedSession, "claims checked: round trips counted"),
    (Scenario::SlowAnswers, "client: silence as usual"),
    (Scenario::Zombie, "nemesis: zombie"),
    (Scenario::Blackout, "nemesis: blackout"),
    (Scenario::BlackoutReplicated, "blackouts with something unsynced"),
    (Scenario::ColdStart, "nemesis: kill all"),
    (Scenario::ColdStartWhileCopying, "killed while a joiner copies"),
    (Scenario::WithoutWitness, "nemesis: witness files gone"),
    (Scenario::DivergentTail, "logs cut short"),
    (Scenario::Rebuild, "frames: SegmentCopied"),
    (Scenario::Lifetimes, "coordinator: time goes on in the same boot"),
    (Scenario::Lifetimes, "times to live checked"),
    (Scenario::SmallMemory, "not executed: OutOfMemory"),
    (Scenario::Cleaning, "node: segment cleaned"),
    (Scenario::CleaningWhileCopying, "node: segment cleaned"),
    (Scenario::CleaningDivergent, "node: segment cleaned"),
    (Scenario::Redis, "redis: ends its side"),
    (Scenario::Redis, "redis: all answered, and then the end"),
    (Scenario::RedisColocated, "frames through a pipe"),
];

/// With fewer runs, "most of them" says nothing.
pub const RUNS_OF_A_SCENARIO: u64 = 15;

/// Of this many histories at most one may be too large to search. A history that nobody searched is not correct for
/// that reason.
pub const GIVEN_UP_AT_MOST: u64 = 50;

/// The paths that a sweep must reach: all of [`MUST_REACH`], every probe of the production code, or both.
pub fn must_reach(all: bool, probes: bool) -> impl Iterator<Item = &'static str> {
    let hidden = |owed: bool| if owed { usize::MAX } else { 0 };
    let probes = Probe::TABLE.iter().map(|&(_, name, _)| name).take(hidden(probes));
    MUST_REACH.iter().copied().take(hidden(all)).chain(probes)
}

/// The result of a sweep.
#[derive(Clone, Debug, Default)]
pub struct SweepReport {
    /// Runs that ended.
    pub runs: u64,
    /// Runs with violations, in the order of seed and scenario.
    pub failed: Vec<RunReport>,
    /// Counts of what all runs reached together.
    pub probes: Probes,
    /// Operations asked for.
    pub operations: u64,
    /// For each row of [`MOST_REACH`]: runs of the scenario, and runs that reached the path.
    most: [(u64, u64); MOST_REACH.len()],
    digest: u64,
}

impl SweepReport {
    /// One number for all runs, in whatever order they ended.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest(self.digest)
    }

    /// The paths that the sweep should have reached and did not, as text. Only a long sweep over all scenarios must
    /// reach all.
    #[must_use]
    pub fn unreached(&self, all_scenarios: bool) -> Vec<String> {
        let owes_all = all_scenarios && self.runs >= RUNS_THAT_REACH_ALL;
        let owes_probes = all_scenarios && self.runs >= RUNS_THAT_HIT_EVERY_PROBE;
        let all = must_reach(owes_all, owes_probes).filter(|name| self.probes.get(name) == 0);
        let most = MOST_REACH.iter().zip(&self.most);
        let few = most.filter(|(_, (runs, reached))| *runs >= RUNS_OF_A_SCENARIO && reached * 2 <= *runs);
        let few = few.map(|((scenario, name), (runs, reached))| {
            format!("{name}: in {reached} of {runs} runs of {} only", scenario.name())
        });
        let searches = [
            ("keys searched", "keys inconclusive"),
            ("groups of keys searched", "groups of keys inconclusive"),
            ("groups of Redis keys searched", "groups of Redis keys inconclusive"),
            ("table names searched", "table names inconclusive"),
        ];
        let given_up = searches.map(|(searched, name)| (name, self.probes.get(name), self.probes.get(searched)));
        let given_up = given_up.into_iter().filter(|(_, given_up, searched)| given_up * GIVEN_UP_AT_MOST > *searched);
        let given_up =
            given_up.map(|(name, given_up, searched)| format!("{name}: {given_up}, and {searched} searched"));
        all.map(|name| format!("{name}: in no run")).chain(few).chain(given_up).collect()
    }

    fn add(&mut self, report: RunReport) {
        let mut digest = Digest::default();
        digest.mix(report.options.seed);
        digest.mix_bytes(report.options.scenario.name().as_bytes());
        digest.mix(report.digest.0);
        self.digest = self.digest.wrapping_add(digest.0);
        self.runs += 1;
        self.operations += report.operations as u64;
        self.probes.merge(&report.probes);
        for ((scenario, name), (runs, reached)) in MOST_REACH.iter().zip(&mut self.most) {
            if *scenario == report.options.scenario {
                *runs += 1;
                *reached += u64::from(report.probes.get(name) > 0);
            }
        }
        if !report.violations.is_empty() {
            self.failed.push(report);
        }
    }
}

/// Runs every seed with one of the scenarios, in turn. `progress` is called for each run that ended, from any thread.
/// The sweep ends early when it returns `false`.
pub fn sweep(
    seeds: Range<u64>,
    scenarios: &[Scenario],
    jobs: usize,
    planted: Option<Bug>,
    progress: impl Fn(&RunReport) -> bool + Sync,
) -> SweepReport {
    assert!(!scenarios.is_empty(), "a sweep has scenarios");
    let scenario = |seed| scenarios[usize::try_from(seed % scenarios.len() as u64).expect("few")];
    run_each(seeds.map(|seed| SimOptions { planted, ..SimOptions::new(scenario(seed), seed) }), jobs, progress)
}

/// Does runs until the processor time is spent that `shares` has. `clock`: the processor time of the present thread.
pub fn sweep_for(
    shares: &Mutex<Shares>,
    jobs: usize,
    planted: Option<Bug>,
    clock: fn() -> Duration,
    progress: impl Fn(&RunReport) -> bool + Sync,
) -> SweepReport {
    let shares = || shares.lock().expect("nobody panics with it");
    let next = || shares().begin().map(|(scenario, seed)| SimOptions { planted, ..SimOptions::new(scenario, seed) });
    let timed = |options: SimOptions| {
        let began = clock();
        let report = run(options);
        shares().end(options.scenario, clock() - began);
        report
    };
    on_threads(jobs, next, timed, progress)
}

/// Does these runs, several at a time, until `progress` returns `false` for one.
pub fn run_each(
    runs: impl Iterator<Item = SimOptions> + Send,
    jobs: usize,
    progress: impl Fn(&RunReport) -> bool + Sync,
) -> SweepReport {
    let runs = Mutex::new(runs);
    on_threads(jobs, || runs.lock().expect("nobody panics with it").next(), run, progress)
}

fn on_threads(
    jobs: usize,
    next: impl Fn() -> Option<SimOptions> + Sync,
    run: impl Fn(SimOptions) -> RunReport + Sync,
    progress: impl Fn(&RunReport) -> bool + Sync,
) -> SweepReport {
    let stopped = AtomicBool::new(false);
    let total = Mutex::new(SweepReport::default());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while !stopped.load(Ordering::Relaxed)
                    && let Some(options) = next()
                {
                    let report = run(options);
                    if !progress(&report) {
                        stopped.store(true, Ordering::Relaxed);
                    }
                    total.lock().expect("nobody panics with it").add(report);
                }
            });
        }
    });
    let mut total = total.into_inner().expect("all threads have ended");
    total.failed.sort_by_key(|report| (report.options.seed, report.options.scenario));
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SimTime;
    use crate::run::SimOptions;

    fn report(scenario: Scenario, seed: u64, reached: &[&str]) -> RunReport {
        let mut probes = Probes::default();
        reached.iter().for_each(|name| probes.hit(name));
        let (options, digest) = (SimOptions::new(scenario, seed), Digest::default());
        RunReport { options, digest, violations: Vec::new(), probes, operations: 0, ended: SimTime(0) }
    }

    #[test]
    fn a_long_sweep_owes_every_probe() {
        let mut sweep = SweepReport::default();
        let but_one = &MUST_REACH[1..];
        (0..RUNS_THAT_REACH_ALL - 1).for_each(|seed| sweep.add(report(Scenario::Swarm, seed, but_one)));
        assert_eq!(sweep.unreached(true), Vec::<String>::new(), "too short");
        sweep.add(report(Scenario::Swarm, 0, but_one));
        assert_eq!(sweep.unreached(true), [format!("{}: in no run", MUST_REACH[0])]);
        assert_eq!(sweep.unreached(false), Vec::<String>::new(), "one scenario alone");
    }

    #[test]
    fn most_runs_of_a_scenario_reach_what_it_is_for() {
        let mut sweep = SweepReport::default();
        let scenario = MOST_REACH[0].0;
        let probes: Vec<&str> = MOST_REACH.iter().filter(|row| row.0 == scenario).map(|row| row.1).collect();
        (0..RUNS_OF_A_SCENARIO).for_each(|seed| sweep.add(report(scenario, seed, &probes[1..])));
        assert_eq!(sweep.unreached(false).len(), 1);
        (0..=RUNS_OF_A_SCENARIO).for_each(|seed| sweep.add(report(scenario, seed, &probes)));
        assert_eq!(sweep.unreached(false), Vec::<String>::new());
    }
}
