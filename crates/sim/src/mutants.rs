//! Mutation testing of the design's rules: runs the rows of [`crate::planted::CAUGHT`], on several threads.
//!
//! A run has one bug at most, and the bug belongs to the run's thread. So rows and seeds can be mixed freely. The seeds
//! of a row are handed out in order. If one catch is enough, no more seeds of the row are handed out after it, and the
//! seeds that caught the rows last time ([`Hints`]) are tried before all others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use crate::planted::{Bug, Caught};
use crate::run::{RunReport, SimOptions, run};
use crate::scenario::Scenario;

/// Seeds that caught rows when they were last looked for (`regressions/caught.txt`). They spare the search for a bug
/// that few seeds catch. A hint that is out of date costs one run, and then the search finds what it would have found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints(Vec<(Caught, u64)>);

impl Hints {
    /// The first seed that caught each row.
    #[must_use]
    pub fn of(tried: &[Tried]) -> Self {
        Self(tried.iter().filter_map(|tried| Some((tried.row, *tried.caught.first()?))).collect())
    }

    /// The hints as text: a seed, a bug, a scenario and the text that catches the bug, on each line.
    #[must_use]
    pub fn to_text(&self) -> String {
        let line = |(row, seed): &(Caught, u64)| {
            format!("{seed} {} {} {}\n", row.bug.name(), row.scenario.name(), row.by.trim_end())
        };
        self.0.iter().map(line).collect()
    }

    /// Reads such a text.
    ///
    /// # Errors
    /// The first line that is of no row, or whose seed is beyond those of its row.
    pub fn from_text(text: &str, rows: &[Caught]) -> Result<Self, String> {
        let hint = |line: &str| {
            let (seed, name) = line.split_once(' ')?;
            let is_named =
                |row: &&Caught| name == format!("{} {} {}", row.bug.name(), row.scenario.name(), row.by.trim_end());
            let row = rows.iter().find(is_named)?;
            seed.parse().ok().filter(|&seed| seed < row.seeds).map(|seed| (*row, seed))
        };
        let hints = text.lines().map(|line| hint(line).ok_or_else(|| format!("no seed of a row: {line:?}")));
        hints.collect::<Result<_, _>>().map(Self)
    }

    fn seed(&self, row: &Caught) -> Option<u64> {
        self.0.iter().find(|(of, _)| of == row).map(|&(_, seed)| seed)
    }
}

/// How many seeds of each row to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Depth {
    /// No more seeds than it takes to catch the bug.
    First(Hints),
    /// All seeds, to see how often the bug is caught.
    All,
}

/// The result of a row.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The row, with the seeds that were allowed.
    pub row: Caught,
    /// Seeds that ran.
    pub runs: u64,
    /// Seeds in which the row's checker found the bug.
    pub caught: BTreeSet<u64>,
    /// How often other checkers found something when the row's checker did not, by the beginning of their text.
    pub others: BTreeMap<String, u64>,
}

/// The violations of a run, without their moments and without the place of a panic.
pub fn found(report: &RunReport) -> impl Iterator<Item = &str> {
    report.violations.iter().map(|text| {
        if text.starts_with("panicked at ") {
            return text.split_once('\n').map_or(text.as_str(), |(_, message)| message);
        }
        let has_moment = text.split_once("s: ").filter(|(moment, _)| moment.parse::<f64>().is_ok());
        has_moment.map_or(text.as_str(), |(_, rest)| rest)
    })
}

/// One run to do: of a row, or of a scenario without a bug.
struct Job {
    options: SimOptions,
    row: Option<usize>,
}

/// The work that is left, and what was found.
struct Work<'a> {
    rows: &'a [Caught],
    one_is_enough: bool,
    hinted: Vec<(usize, u64)>,
    /// The next seed of each row.
    next: Vec<u64>,
    honest: Vec<SimOptions>,
    tried: Vec<Tried>,
    dirty: Vec<RunReport>,
}

impl<'a> Work<'a> {
    fn new(rows: &'a [Caught], depth: &Depth, honest: Vec<SimOptions>) -> Self {
        let hints = if let Depth::First(hints) = depth { hints } else { &Hints::default() };
        let hinted = rows.iter().enumerate().filter_map(|(row, caught)| Some((row, hints.seed(caught)?)));
        let start = |&row: &Caught| Tried { row, runs: 0, caught: BTreeSet::new(), others: BTreeMap::new() };
        Self {
            rows,
            one_is_enough: *depth != Depth::All,
            hinted: hinted.rev().collect(),
            next: vec![0; rows.len()],
            honest,
            tried: rows.iter().map(start).collect(),
            dirty: Vec::new(),
        }
    }

    fn take(&mut self) -> Option<Job> {
        if let Some((row, seed)) = self.hinted.pop().or_else(|| self.search()) {
            let caught = self.rows[row];
            let options = SimOptions { planted: Some(caught.bug), ..SimOptions::new(caught.scenario, seed) };
            return Some(Job { options, row: Some(row) });
        }
        self.honest.pop().map(|options| Job { options, row: None })
    }

    fn search(&mut self) -> Option<(usize, u64)> {
        let is_open = |row: &usize| {
            let enough = self.one_is_enough && !self.tried[*row].caught.is_empty();
            self.next[*row] < self.rows[*row].seeds && !enough
        };
        let row = (0..self.rows.len()).find(is_open)?;
        self.next[row] += 1;
        Some((row, self.next[row] - 1))
    }

    fn put(&mut self, job: &Job, report: RunReport) {
        let Some(row) = job.row else {
            self.dirty.extend((!report.violations.is_empty()).then_some(report));
            return;
        };
        let tried = &mut self.tried[row];
        tried.runs += 1;
        let mut all = found(&report).peekable();
        let other: Option<String> =
            all.peek().map(|text| text.split(':').next().unwrap_or(text).chars().take(60).collect());
        if all.any(|text| text.starts_with(tried.row.by)) {
            tried.caught.insert(job.options.seed);
        } else if let Some(other) = other {
            *tried.others.entry(other).or_default() += 1;
        }
    }
}

/// Runs rows, and then, if `honest`, the same scenarios and seeds without a bug. `progress` is called for each run that
/// ended, from any thread. Returns the results of the rows, in their order, and the honest runs that found something.
pub fn try_all(
    rows: &[Caught],
    depth: &Depth,
    honest: bool,
    jobs: usize,
    progress: impl Fn() + Sync,
) -> (Vec<Tried>, Vec<RunReport>) {
    let mut longest: BTreeMap<Scenario, u64> = BTreeMap::new();
    for row in rows.iter().filter(|_| honest) {
        let seeds = longest.entry(row.scenario).or_default();
        *seeds = row.seeds.max(*seeds);
    }
    let honest =
        longest.iter().flat_map(|(&scenario, &seeds)| (0..seeds).map(move |seed| SimOptions::new(scenario, seed)));
    let work = Mutex::new(Work::new(rows, depth, honest.collect()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let Some(job) = work.lock().expect("nobody panics with it").take() else { break };
                    let report = run(job.options);
                    work.lock().expect("nobody panics with it").put(&job, report);
                    progress();
                }
            });
        }
    });
    let work = work.into_inner().expect("all threads have ended");
    (work.tried, work.dirty)
}

/// How many runs [`try_all`] does at most.
#[must_use]
pub fn runs_at_most(rows: &[Caught], honest: bool) -> u64 {
    let mut longest: BTreeMap<Scenario, u64> = BTreeMap::new();
    rows.iter().for_each(|row| {
        let seeds = longest.entry(row.scenario).or_default();
        *seeds = row.seeds.max(*seeds);
    });
    let planted: u64 = rows.iter().map(|row| row.seeds).sum();
    planted + if honest { longest.values().sum() } else { 0 }
}

/// The rule that a bug breaks: its description up to the colon.
#[must_use]
pub fn rule(bug: Bug) -> &'static str {
    let (_, _, what) = Bug::TABLE.iter().find(|row| row.0 == bug).expect("every bug is in the table");
    what.split_once(':').map_or("", |(rule, _)| rule.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SimTime;
    use crate::digest::Digest;
    use crate::probes::Probes;

    const ROW: Caught = Caught { bug: Bug::StaleNow, scenario: Scenario::Zombie, seeds: 3, by: "leases" };

    fn report(options: SimOptions, violations: &[&str]) -> RunReport {
        let violations = violations.iter().map(|&text| text.to_owned()).collect();
        let (digest, probes, ended) = (Digest::default(), Probes::default(), SimTime(0));
        RunReport { options, digest, violations, probes, operations: 0, ended }
    }

    #[test]
    fn what_was_found_has_no_moment_and_no_place() {
        let violations = ["1.25s: leases: one", "panicked at x.rs:1\nE1: two", "leases: three"];
        let report = report(SimOptions::new(Scenario::Zombie, 0), &violations);
        assert_eq!(found(&report).collect::<Vec<_>>(), ["leases: one", "E1: two", "leases: three"]);
        assert_eq!(rule(Bug::StaleNow), "Section 7");
    }

    #[test]
    fn no_more_seeds_run_than_are_asked_for() {
        let first = |hints: &[(Caught, u64)]| Depth::First(Hints(hints.to_vec()));
        let cases: [(Depth, &[u64]); 4] = [
            (first(&[]), &[0, 1]),
            (first(&[(ROW, 1)]), &[1]),
            (first(&[(ROW, 2)]), &[2, 0, 1]), // the seed has moved
            (Depth::All, &[0, 1, 2]),
        ];
        for (depth, seeds) in cases {
            let mut work = Work::new(&[ROW], &depth, vec![SimOptions::new(Scenario::Zombie, 0)]);
            let mut taken = Vec::new();
            while let Some(job) = work.take() {
                taken.push((job.row.is_some(), job.options.seed));
                let violations: &[&str] =
                    if job.options.seed == 1 { &["counts: x", "2s: leases: y"] } else { &["counts: x"] };
                let report = report(job.options, violations);
                work.put(&job, report);
            }
            let mut wanted: Vec<_> = seeds.iter().map(|&seed| (true, seed)).collect();
            wanted.push((false, 0));
            assert_eq!(taken, wanted);
            assert_eq!(work.tried[0].caught, BTreeSet::from([1]));
            assert_eq!(work.tried[0].others.get("counts").copied().unwrap_or(0), seeds.len() as u64 - 1);
            assert_eq!(work.dirty.len(), 1, "an honest run must find nothing");
        }
    }

    #[test]
    fn hints_are_of_rows_and_within_their_seeds() {
        let text = "2 stale_now zombie leases\n";
        let hints = Hints::from_text(text, &[ROW]).expect("a row");
        assert_eq!((hints.to_text().as_str(), hints.seed(&ROW)), (text, Some(2)));
        for wrong in ["3 stale_now zombie leases", "2 stale_now crash leases", "stale_now", ""] {
            assert!(Hints::from_text(&format!("{wrong}\n"), &[ROW]).is_err(), "{wrong:?}");
        }
    }
}
