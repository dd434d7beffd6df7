//! `kasha-lab sim`: whole clusters in a deterministic world. Runs are in `kasha_sim`; this parses flags and prints reports.

use std::io::IsTerminal;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use indicatif::ProgressBar;
use kasha_runtime::{say, thread_cpu_nanos};
use kasha_sim::cover::{self, Cover};
use kasha_sim::shares::Shares;
use kasha_sim::sweep::{must_reach, run_each, sweep_for};
use kasha_sim::{Bug, RunReport, Scenario, SimOptions, SweepReport, sweep};

/// How many runs of a chosen list should reach each path, if the sweep has so many: after the next change of the code
/// some of them will not reach it any more.
const COVER_TIMES: u32 = 3;

#[derive(Args)]
pub struct SimArguments {
    /// How many seeds to run.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Run seeds until they have taken so much processor time, of which each scenario has its share.
    #[arg(long, conflicts_with_all = ["seed", "seeds"])]
    processor_seconds: Option<u64>,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    start: u64,
    /// Run this seed alone.
    #[arg(long)]
    seed: Option<u64>,
    /// Run this scenario alone; `list` names them all.
    #[arg(long)]
    scenario: Option<String>,
    /// Number of runs at a time.
    #[arg(long)]
    jobs: Option<usize>,
    /// Print every frame, write and start of the one run to standard error.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Do the runs that this file lists, a scenario and a seed on each line, and fail if they do not reach every path.
    #[arg(long, conflicts_with_all = ["seed", "seeds", "processor_seconds", "scenario"])]
    runs: Option<PathBuf>,
    /// Write such a file: a few of the runs, which together reach everything that the whole sweep reaches.
    #[arg(long, conflicts_with = "seed")]
    cover: Option<PathBuf>,
    /// Break this rule, to see that a checker notices; `list` names them all.
    #[cfg(feature = "planted-bugs")]
    #[arg(long)]
    planted: Option<String>,
}

impl SimArguments {
    /// The bug to plant; an error in a build without planted bugs.
    fn planted(&self) -> Result<Option<Bug>> {
        #[cfg(feature = "planted-bugs")]
        let name = self.planted.as_deref();
        #[cfg(not(feature = "planted-bugs"))]
        let name: Option<&str> = None;
        let Some(name) = name else { return Ok(None) };
        match Bug::by_name(name) {
            Some(bug) => Ok(Some(bug)),
            None => bail!("there is no planted bug {name:?}; there are:\n{}", planted_bugs()),
        }
    }
}

fn planted_bugs() -> String {
    Bug::TABLE.iter().map(|(_, name, what)| format!("{name:28}{}\n", what.trim())).collect()
}

pub fn run(arguments: &SimArguments) -> Result<()> {
    if arguments.scenario.as_deref() == Some("list") {
        for (_, name, what) in Scenario::TABLE {
            say!("{name:28}{what}");
        }
        return Ok(());
    }
    #[cfg(feature = "planted-bugs")]
    if arguments.planted.as_deref() == Some("list") {
        say!("{}", planted_bugs().trim_end());
        return Ok(());
    }
    let scenarios: Vec<Scenario> = match arguments.scenario.as_deref() {
        None => Scenario::TABLE.iter().map(|&(scenario, _, _)| scenario).collect(),
        Some(name) => match Scenario::by_name(name) {
            Some(scenario) => vec![scenario],
            None => bail!("there is no scenario {name:?}; `kasha-lab sim --scenario list` names them"),
        },
    };
    let planted = arguments.planted()?;
    if let Some(seed) = arguments.seed {
        let scenario = scenarios[usize::try_from(seed % scenarios.len() as u64)?];
        let options = SimOptions { trace: arguments.trace, planted, ..SimOptions::new(scenario, seed) };
        return show(&kasha_sim::run(options));
    }
    if let Some(file) = &arguments.runs {
        return run_list(arguments, file, planted);
    }
    sweep_all(arguments, &scenarios, planted)
}

/// Shows everything that is known about one run.
fn show(report: &RunReport) -> Result<()> {
    say!("{}", to_paste(report.line()));
    say!("{} operations, {} simulated, digest {}", report.operations, report.ended, report.digest);
    for (name, count) in report.probes.iter() {
        say!("  {count:>10}  {name}");
    }
    for violation in &report.violations {
        say!("  {violation}");
    }
    if report.violations.is_empty() {
        say!("no violation");
        return Ok(());
    }
    bail!("seed {}: {} violations", report.options.seed, report.violations.len())
}

fn sweep_all(arguments: &SimArguments, scenarios: &[Scenario], planted: Option<Bug>) -> Result<()> {
    let cover = Mutex::new(Cover::default());
    let bar = progress_bar(arguments.processor_seconds.is_none().then_some(arguments.seeds));
    let progress = |run: &RunReport| {
        cover.lock().expect("nobody panics with it").add(run);
        note(&bar, run)
    };
    let report = match arguments.processor_seconds {
        Some(seconds) => sweep_for_seconds(arguments, seconds, scenarios, planted, progress)?,
        None => {
            let seeds = seeds_from(arguments.start, arguments.seeds)?;
            say!("commit {}, seeds {}..{}, {} scenarios", commit(), seeds.start, seeds.end, scenarios.len());
            sweep(seeds, scenarios, jobs(arguments), planted, progress)
        }
    };
    bar.finish_and_clear();
    write_cover(arguments, cover)?;
    let unreached = match planted {
        None => report.unreached(arguments.scenario.is_none()),
        Some(_) => Vec::new(),
    };
    conclude(&report, &unreached)
}

/// The most seeds of a sweep with a budget of time.
const SEEDS_IN_TIME: u64 = 1 << 40;

fn seeds_from(start: u64, count: u64) -> Result<Range<u64>> {
    let end = start.checked_add(count).context("there are not so many seeds behind the first one: begin earlier")?;
    Ok(start..end)
}

/// Runs every scenario with its seeds until the time is spent, and says how far that was.
fn sweep_for_seconds(
    arguments: &SimArguments,
    seconds: u64,
    scenarios: &[Scenario],
    planted: Option<Bug>,
    progress: impl Fn(&RunReport) -> bool + Sync,
) -> Result<SweepReport> {
    let start = seeds_from(arguments.start, SEEDS_IN_TIME)?.start;
    say!("commit {}, {seconds} processor seconds of seeds from {start}, {} scenarios", commit(), scenarios.len());
    let shares = Mutex::new(Shares::new(scenarios, start, Duration::from_secs(seconds)));
    let clock = || Duration::from_nanos(thread_cpu_nanos());
    let report = sweep_for(&shares, jobs(arguments), planted, clock, progress);
    let shares = shares.into_inner().expect("all threads have ended");
    let [fewest, most] = shares
        .fewest_and_most()
        .expect("there are scenarios")
        .map(|(scenario, runs)| format!("{runs} of {}", scenario.name()));
    say!("{} runs in {} processor seconds: {fewest} to {most}", report.runs, shares.spent().as_secs());
    Ok(report)
}

/// Writes the list of runs that the user asked for.
fn write_cover(arguments: &SimArguments, cover: Mutex<Cover>) -> Result<()> {
    let Some(file) = &arguments.cover else { return Ok(()) };
    let chosen = cover.into_inner().expect("all threads have ended").choose(COVER_TIMES);
    std::fs::write(file, cover::to_text(&chosen)).with_context(|| format!("cannot write {}", file.display()))?;
    say!("{} runs that reach as much are in {}", chosen.len(), file.display());
    Ok(())
}

/// Does the runs of a list, which together must reach everything.
fn run_list(arguments: &SimArguments, file: &Path, planted: Option<Bug>) -> Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let list = cover::from_text(&text).map_err(|why| anyhow!("{}: {why}", file.display()))?;
    say!("commit {}, {} runs of {}", commit(), list.len(), file.display());
    let bar = progress_bar(Some(list.len() as u64));
    let runs = list.into_iter().map(|(scenario, seed)| SimOptions { planted, ..SimOptions::new(scenario, seed) });
    let cover = Mutex::new(Cover::default());
    let report = run_each(runs, jobs(arguments), |run| {
        cover.lock().expect("nobody panics with it").add(run);
        note(&bar, run)
    });
    bar.finish_and_clear();
    write_cover(arguments, cover)?;
    let missed = must_reach(true, true).filter(|name| report.probes.get(name) == 0);
    let missed: Vec<_> = missed.map(|name| format!("{name}: in no run")).collect();
    if !missed.is_empty() {
        say!(
            "the code draws other runs now: make the list anew with `kasha-lab sim --seeds 5000 --cover {}`",
            file.display()
        );
    }
    conclude(&report, &missed)
}

fn jobs(arguments: &SimArguments) -> usize {
    arguments.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// `runs`: how many there will be, if that is known.
fn progress_bar(runs: Option<u64>) -> ProgressBar {
    let bar = runs.map_or_else(ProgressBar::no_length, ProgressBar::new);
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
    }
    bar
}

/// Where nobody sees the bar, a line a minute says that the runs go on.
fn note(bar: &ProgressBar, run: &RunReport) -> bool {
    static MINUTES_TOLD: AtomicU64 = AtomicU64::new(0);
    bar.inc(1);
    let minutes = bar.elapsed().as_secs() / 60;
    if bar.is_hidden() && MINUTES_TOLD.swap(minutes, Ordering::Relaxed) != minutes {
        say!("{} runs in {minutes} min", bar.position());
    }
    if !run.violations.is_empty() {
        bar.suspend(|| say!("FAILED {}", to_paste(run.line())));
    }
    true
}

fn conclude(report: &SweepReport, unreached: &[String]) -> Result<()> {
    say!("{} runs, {} operations, digest {}", report.runs, report.operations, report.digest());
    say!("reached:");
    for (name, count) in report.probes.iter() {
        say!("  {count:>10}  {name}");
    }
    unreached.iter().for_each(|what| say!("NOT REACHED {what}"));
    if report.failed.is_empty() {
        say!("no violation");
        if !unreached.is_empty() {
            bail!(
                "{} of the paths that such a sweep must reach were not reached: it proves too little",
                unreached.len()
            );
        }
        return Ok(());
    }
    for run in &report.failed {
        say!("{}", to_paste(run.line()));
        for violation in run.violations.iter().take(5) {
            say!("  {violation}");
        }
    }
    bail!("{} of {} runs broke a promise; each line above repeats one", report.failed.len(), report.runs)
}

/// The command that repeats a run, in a form that the user can paste: the program of a checkout is not on the path.
fn to_paste(line: String) -> String {
    let profiles = ["release", "ci"];
    let is_built_by_cargo =
        |exe: PathBuf| profiles.iter().any(|profile| exe.parent().is_some_and(|dir| dir.ends_with(profile)));
    let in_checkout = std::env::current_exe().is_ok_and(is_built_by_cargo);
    match line.strip_prefix("kasha-lab ") {
        Some(rest) if in_checkout => cargo_run(rest),
        Some(_) | None => line,
    }
}

fn cargo_run(arguments: &str) -> String {
    let features = if arguments.contains(" --planted ") { " --features planted-bugs" } else { "" };
    format!("cargo run --release -p kasha-lab{features} -- {arguments}")
}

/// The commit of the checkout that this runs in, if there is one.
fn commit() -> String {
    let output = std::process::Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    match output {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Ok(_) | Err(_) => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_to_paste_builds_what_it_needs() {
        assert_eq!(
            cargo_run("sim --scenario crash --seed 1"),
            "cargo run --release -p kasha-lab -- sim --scenario crash --seed 1"
        );
        assert_eq!(
            cargo_run("sim --scenario crash --seed 1 --planted stale_now"),
            "cargo run --release -p kasha-lab --features planted-bugs -- sim --scenario crash --seed 1 --planted stale_now"
        );
    }
}
