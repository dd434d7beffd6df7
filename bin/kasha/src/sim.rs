//! `kasha sim`: whole clusters in a deterministic world.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, bail};
use clap::Args;
use kasha_sim::{Scenario, SimOptions, sweep};

#[derive(Args)]
pub struct SimArguments {
    /// How many seeds to run.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    start: u64,
    /// Run this seed alone.
    #[arg(long)]
    seed: Option<u64>,
    /// Run this scenario alone; `list` names them all.
    #[arg(long)]
    scenario: Option<String>,
    /// Runs at a time.
    #[arg(long)]
    jobs: Option<usize>,
}

pub fn run(arguments: &SimArguments) -> Result<()> {
    if arguments.scenario.as_deref() == Some("list") {
        for (_, name, what) in Scenario::TABLE {
            println!("{name:20} {what}");
        }
        return Ok(());
    }
    let scenarios: Vec<Scenario> = match arguments.scenario.as_deref() {
        None => Scenario::TABLE.iter().map(|&(scenario, _, _)| scenario).collect(),
        Some(name) => match Scenario::by_name(name) {
            Some(scenario) => vec![scenario],
            None => bail!("there is no scenario {name:?}; `kasha sim --scenario list` names them"),
        },
    };
    if let Some(seed) = arguments.seed {
        let index = usize::try_from(seed % scenarios.len() as u64)?;
        let report = kasha_sim::run(SimOptions { scenario: scenarios[index], seed });
        println!("{}", report.line());
        for violation in &report.violations {
            println!("  {violation}");
        }
        if !report.violations.is_empty() {
            bail!("seed {seed}: {} violations", report.violations.len());
        }
        return Ok(());
    }
    sweep_all(arguments, &scenarios)
}

fn sweep_all(arguments: &SimArguments, scenarios: &[Scenario]) -> Result<()> {
    let jobs = arguments.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let seeds = arguments.start..arguments.start + arguments.seeds;
    println!("commit {}, seeds {}..{}, {} scenarios", commit(), seeds.start, seeds.end, scenarios.len());
    let done = AtomicU64::new(0);
    let bar = indicatif::ProgressBar::new(arguments.seeds);
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
    }
    let report = sweep(seeds, scenarios, jobs, |run| {
        done.fetch_add(1, Ordering::Relaxed);
        bar.inc(1);
        if !run.violations.is_empty() {
            bar.suspend(|| println!("FAILED {}", run.line()));
        }
        true
    });
    bar.finish_and_clear();
    println!("{} runs, {} operations, digest {}", report.runs, report.operations, report.digest());
    println!("reached:");
    for (name, count) in report.probes.iter() {
        println!("  {count:>10}  {name}");
    }
    if report.failed.is_empty() {
        println!("no violation");
        return Ok(());
    }
    for run in &report.failed {
        println!("{}", run.line());
        for violation in run.violations.iter().take(5) {
            println!("  {violation}");
        }
    }
    bail!("{} of {} runs broke a promise; each line above repeats one", report.failed.len(), report.runs)
}

/// The commit this was run in, if there is a checkout here.
fn commit() -> String {
    let output = std::process::Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    match output {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Ok(_) | Err(_) => "unknown".to_owned(),
    }
}
