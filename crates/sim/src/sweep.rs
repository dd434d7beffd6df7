//! Many runs, on several threads.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::digest::Digest;
use crate::planted::Bug;
use crate::probes::Probes;
use crate::run::{RunReport, SimOptions, run};
use crate::scenario::Scenario;

/// What came of a sweep.
#[derive(Clone, Debug, Default)]
pub struct SweepReport {
    /// Runs that ended.
    pub runs: u64,
    /// Those with violations, in the order of seed and scenario.
    pub failed: Vec<RunReport>,
    /// What all reached together.
    pub probes: Probes,
    /// Operations asked for.
    pub operations: u64,
    digest: u64,
}

impl SweepReport {
    /// One number for all runs, in whatever order they ended.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest(self.digest)
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
        if !report.violations.is_empty() {
            self.failed.push(report);
        }
    }
}

/// Runs every seed with one of the scenarios, in turn. `progress` is told of each run that ended, from any thread; the
/// sweep ends early when it returns `false`.
pub fn sweep(
    seeds: Range<u64>,
    scenarios: &[Scenario],
    jobs: usize,
    planted: Option<Bug>,
    progress: impl Fn(&RunReport) -> bool + Sync,
) -> SweepReport {
    assert!(!scenarios.is_empty(), "a sweep has scenarios");
    let next = AtomicU64::new(seeds.start);
    let stopped = AtomicUsize::new(0);
    let total = Mutex::new(SweepReport::default());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while stopped.load(Ordering::Relaxed) == 0 {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let scenario = scenarios[usize::try_from(seed % scenarios.len() as u64).expect("few")];
                    let report = run(SimOptions { planted, ..SimOptions::new(scenario, seed) });
                    if !progress(&report) {
                        stopped.store(1, Ordering::Relaxed);
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
