//! `cargo xtask drivers`: drivers of Redis, installed from their registries, against Kasha (docs/redis.md, tests/drivers).
//!
//! Every driver goes through the same steps. Then all of them count at once while nodes are killed, and each counter must agree with what its driver
//! was told: what was acknowledged counts once, and nothing counts twice. At last connections break, which shows what a driver repeats by itself.

mod cluster;
mod counting;
mod installing;
mod judging;
mod process;
mod recipes;
mod relay;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process_tests::succeeds;
use crate::watch::Watch;
use crate::workspace::{Workspace, cargo};
use cluster::Cluster;
use counting::{Counting, Fault, Program, Repeats, Sum};
use installing::Driver;
use judging::{STEPS, Steps};
use process::Interrupt;

/// What some steps need, and Kasha has.
const FEATURES: &[&str] = &["scan", "exact-ends"];

/// What some steps need, and Redis has.
const FEATURES_OF_REDIS: &[&str] = &["scan", "exact-ends"];

/// The steps wait for values to end.
const STEPS_WITHIN: Duration = Duration::from_secs(60);

/// The arguments of the command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    kills: u32,
    only: Vec<Driver>,
}

/// Reads the arguments after `drivers`; `None` if they make no sense.
pub(crate) fn parse(arguments: &[&str]) -> Option<Choice> {
    let mut choice = Choice { kills: 0, only: Vec::new() };
    let (pairs, rest) = arguments.as_chunks::<2>();
    for [name, value] in pairs {
        match *name {
            "--kills" => choice.kills = value.parse().ok()?,
            "--only" => choice.only.push(Driver::ALL.into_iter().find(|driver| driver.name() == *value)?),
            _ => return None,
        }
    }
    if choice.only.is_empty() {
        choice.only = Driver::ALL.to_vec();
    }
    rest.is_empty().then_some(choice)
}

/// Where drivers connect.
struct Target {
    name: &'static str,
    addresses: Vec<SocketAddr>,
    /// What happens while drivers count. Where connections break, they must be told not to repeat what has been done.
    counts: Vec<(Repeats, Vec<Fault>)>,
}

fn targets(cluster: &Cluster<'_>, kills: u32) -> Vec<Target> {
    let counts = vec![(Repeats::Default, Fault::of_run(kills)), (Repeats::Off, Fault::of_broken_run(kills))];
    vec![
        Target { name: "the proxy", addresses: vec![cluster.proxy()], counts },
        Target { name: "the nodes", addresses: cluster.ports(), counts: vec![(Repeats::Off, Fault::of_run(kills))] },
    ]
}

/// Installs, starts, runs, compares; the exit code says whether all was well.
pub(crate) fn run(workspace: &Workspace, choice: &Choice) -> Result<ExitCode> {
    let kasha = build(workspace)?;
    let interrupt = Interrupt::listen()?;
    let (mut programs, mut problems) = (Vec::new(), Vec::new());
    for &driver in &choice.only {
        if let Some(missing) = driver.missing() {
            println!("SKIPPED: {} is not run: {missing}", driver.name());
            continue;
        }
        println!("installing {}", driver.name());
        match driver.install(workspace, &interrupt) {
            Ok(command) => programs.push(Program { driver, command }),
            Err(why) => problems.push(format!("{} was not run: {why:#}", driver.name())),
        }
    }
    if !programs.is_empty() {
        let folder = workspace.target.join("drivers/run");
        // Of an earlier run, if there was one.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).context("no folder below the target folder")?;
        let mut cluster = Cluster::start(&kasha, &folder, &interrupt)?;
        problems.extend(at_redis(&programs, &folder, &interrupt)?);
        for program in &programs {
            let name = program.driver.name();
            match recipes::run(workspace, program, cluster.proxy(), &folder, &interrupt) {
                Ok(true) => println!("{name}: the recipes keep what they promise"),
                Ok(false) => {}
                Err(why) => problems.push(format!("{name}, the recipes: {why:#}")),
            }
        }
        for target in targets(&cluster, choice.kills) {
            let at = At { target, programs: &programs, folder: &folder, interrupt: &interrupt };
            problems.extend(at.judge(&mut cluster)?);
        }
    }
    for problem in &problems {
        println!("PROBLEM: {problem}");
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Redis itself must pass all steps: else a program is wrong. Returns what was wrong.
fn at_redis(programs: &[Program], folder: &Path, interrupt: &Interrupt) -> Result<Vec<String>> {
    if !succeeds("redis-server", &["--version"]) {
        println!(
            "SKIPPED: the programs are not tried with Redis, which is not installed (apt-get install redis-server)"
        );
        return Ok(Vec::new());
    }
    let (_redis, address) = cluster::redis(folder, interrupt)?;
    let target = Target { name: "Redis", addresses: vec![address], counts: Vec::new() };
    let at = At { target, programs, folder, interrupt };
    println!("at Redis, which must pass:");
    let mut problems = Vec::new();
    for program in programs {
        at.steps(program, FEATURES_OF_REDIS, &mut problems);
    }
    Ok(problems)
}

/// The program that users run.
fn build(workspace: &Workspace) -> Result<std::path::PathBuf> {
    Watch::start().run(cargo(&workspace.root).args(["build", "--release", "-p", "kasha"]))?;
    let program = workspace.target.join("release/kasha");
    if !program.is_file() {
        bail!("cargo built no {}", program.display());
    }
    Ok(program)
}

/// All programs at one target.
struct At<'a> {
    target: Target,
    programs: &'a [Program],
    folder: &'a Path,
    interrupt: &'a Interrupt,
}

impl At<'_> {
    /// Runs everything, prints tables, and returns what was wrong.
    fn judge(&self, cluster: &mut Cluster<'_>) -> Result<Vec<String>> {
        println!("at {}:", self.target.name);
        let mut problems = Vec::new();
        let steps: Vec<_> = self.programs.iter().map(|program| self.steps(program, FEATURES, &mut problems)).collect();
        let (default, off) = (self.repeated(cluster, Repeats::Default)?, self.repeated(cluster, Repeats::Off)?);
        for (program, doubled) in self.programs.iter().zip(&off).filter(|(_, doubled)| **doubled > 0) {
            problems.push(format!("{} repeats {doubled} INCR although it must not", program.driver.name()));
        }
        for (repeats, faults) in &self.target.counts {
            if faults.is_empty() {
                continue;
            }
            let counting = self.count(cluster, *repeats, faults)?;
            let mut rows = Vec::new();
            for (index, (program, sum)) in self.programs.iter().zip(&counting.sums).enumerate() {
                let (name, (version, passed)) = (program.driver.name(), &steps[index]);
                rows.push(row(name, version, passed, sum, &format!("{} / {}", default[index], off[index])));
                problems.extend(sum.problem().map(|problem| format!("{name}: {problem}")));
            }
            rows.push(row("shared", "", "", &counting.shared, ""));
            problems.extend(counting.shared.problem().map(|problem| format!("the shared counter: {problem}")));
            print_table(&rows);
            for (program, sum) in self.programs.iter().zip(&counting.sums) {
                print_errors(program.driver.name(), sum);
            }
        }
        Ok(problems)
    }

    /// How many INCRs each driver sends again when its connection breaks.
    fn repeated(&self, cluster: &Cluster<'_>, repeats: Repeats) -> Result<Vec<u64>> {
        let prefix = format!("{}:breaks:{}", self.place(), repeats.word());
        let address = self.target.addresses[0];
        counting::repeated(self.programs, repeats, (cluster, address, &prefix), self.folder, self.interrupt)
    }

    /// The target's name, for keys.
    fn place(&self) -> String {
        self.target.name.replace(' ', "-")
    }

    /// Counts through all rounds.
    fn count(&self, cluster: &mut Cluster<'_>, repeats: Repeats, faults: &[Fault]) -> Result<Counting<'_>> {
        let addresses = &self.target.addresses;
        let mut counting = Counting::start(self.programs, addresses, repeats, self.folder, self.interrupt)?;
        println!("repeats of the drivers: {}", repeats.word());
        for (number, &fault) in faults.iter().enumerate() {
            let prefix = format!("{}:{}:{number}", self.place(), repeats.word());
            let line = counting.round(&prefix, fault, cluster)?;
            println!("  round {} of {}: {line}", number + 1, faults.len());
        }
        Ok(counting)
    }

    /// Goes through the steps of one program. Returns its version and how many steps it passed.
    fn steps(&self, program: &Program, features: &[&str], problems: &mut Vec<String>) -> (String, String) {
        let name = program.driver.name();
        let said = program.start("steps", self.target.addresses[0], features, self.folder);
        let said = said.and_then(|mut running| running.hear(self.interrupt, STEPS_WITHIN));
        match said.and_then(|line| Steps::parse(&line, features)) {
            Ok(steps) => {
                let skipped = if steps.skipped.is_empty() { "" } else { ", not yet " };
                let passed = format!("{} of {}{skipped}{}", steps.passed, STEPS.len(), steps.skipped.join(" "));
                println!("  {name} {}: {passed}", steps.version);
                let wrong = |(step, why): &(String, String)| format!("{name}, {}: {step}: {why}", self.target.name);
                problems.extend(steps.failed.iter().map(wrong));
                (steps.version, passed)
            }
            Err(why) => {
                problems.push(format!("{name}, {}: {why:#}", self.target.name));
                (String::new(), "0".to_owned())
            }
        }
    }
}

/// The columns of the table.
const HEAD: [&str; 10] = [
    "driver",
    "version",
    "steps",
    "acknowledged",
    "unknown",
    "given up",
    "refused",
    "lost",
    "doubled",
    "repeated (default / off)",
];

fn row(name: &str, version: &str, steps: &str, sum: &Sum, repeated: &str) -> [String; 10] {
    let (told, wrong) = (sum.told, sum.verdict);
    let counts = [told.acknowledged, told.unknown, told.gave_up, told.refused, wrong.lost, wrong.doubled];
    let [acknowledged, unknown, gave_up, refused, lost, doubled] = counts.map(|count| count.to_string());
    let [name, version, steps, repeated] = [name, version, steps, repeated].map(str::to_owned);
    [name, version, steps, acknowledged, unknown, gave_up, refused, lost, doubled, repeated]
}

fn print_table(rows: &[[String; 10]]) {
    let head = HEAD.map(str::to_owned);
    let lines: Vec<_> = [&head].into_iter().chain(rows).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    for line in &lines {
        let cells = line.iter().enumerate().map(|(column, cell)| format!("{cell:<width$}", width = width(column)));
        println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}

/// What a driver was told most often besides numbers.
fn print_errors(name: &str, sum: &Sum) {
    const SHOWN: usize = 4;
    let mut errors: Vec<_> = sum.errors.iter().collect();
    errors.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    for (text, count) in errors.into_iter().take(SHOWN) {
        println!("  {name}, {count} times: {}", first_of(text));
    }
}

/// The beginning of an error's text, in one line.
fn first_of(text: &str) -> String {
    const SHOWN: usize = 120;
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= SHOWN { line.to_owned() } else { line.chars().take(SHOWN).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_and_nonsense_is_refused() {
        assert_eq!(parse(&[]), Some(Choice { kills: 0, only: Driver::ALL.to_vec() }));
        let some = Choice { kills: 5, only: vec![Driver::Jedis, Driver::RedisPy] };
        assert_eq!(parse(&["--kills", "5", "--only", "jedis", "--only", "redis-py"]), Some(some));
        for nonsense in [&["--kills"][..], &["--kills", "-1"], &["--only", "hiredis"], &["--what", "1"]] {
            assert_eq!(parse(nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn long_errors_are_cut() {
        assert_eq!(first_of("one\ntwo"), "one");
        assert_eq!(first_of(&"ä".repeat(121)), format!("{}…", "ä".repeat(120)));
    }
}
