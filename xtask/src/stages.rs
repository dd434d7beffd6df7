//! `cargo xtask test`: everything that CI runs, in stages that each have a time budget.
//!
//! It stops at the first stage that fails, and says how to run that stage again (`schedule`). A stage that takes longer than its
//! budget gives a warning, in the table at the end, too. No time is a failure, so that no right change is refused
//! because a host is slow. Only a program that prints nothing for long is ended (`watch`).

use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, ensure};

use crate::ci::{self, Build, FEATURES, Tests};
use crate::instructions;
use crate::netlab;
use crate::process_tests::Rounds;
use crate::schedule::{self, Outcome, Stage, Turn};
use crate::tidy;
use crate::watch::Watch;
use crate::workspace::{Workspace, cargo, digest};

/// Which stages to run.
#[derive(PartialEq, Eq)]
pub(crate) enum Choice {
    All,
    /// The stages that are worth waiting for before each commit.
    Quick,
    One(String),
}

const fn stage(name: &'static str, budget: u64, run: fn(&Workspace, &Watch) -> Result<Outcome>) -> Stage {
    Stage { name, budget, is_quick: false, turn: Turn::Next, run }
}

const STAGES: &[Stage] = &[
    Stage { is_quick: true, ..stage("fmt", 5, fmt) },
    Stage { is_quick: true, ..stage("tidy", 5, run_tidy) },
    Stage { is_quick: true, ..stage("clippy", 60, clippy) },
    stage("build", 150, build),
    Stage { turn: Turn::Beside, ..stage("process", 120, process) },
    Stage { is_quick: true, ..stage("test", 75, test) },
    stage("docs", 20, docs),
    stage("models", 20, models),
    stage("sim", 190, sim),
    stage("instructions", 30, count_instructions),
    Stage { turn: Turn::Alone, ..stage("rounds", 45, rounds) },
];

/// The time that all stages together may take: ten minutes.
const TOTAL_BUDGET: u64 = 10 * 60;

/// Runs that together reach every probe of the production code.
const REACH: &str = "regressions/reach.txt";

/// Processor time of the fresh seeds of one simulator stage. No scenario has more than its share of it, and each has a few seeds
/// (`kasha_sim::shares`).
const SIM_SECONDS: &str = "360";

/// Minutes in which the stage `rounds` begins rounds.
const ROUNDS_MINUTES: &str = "0.4";

/// Programs with tests that are shown at the end, the slowest first.
const SLOWEST_SHOWN: usize = 10;

/// Packages with planted bugs that their own tests notice, in a module `planted`, and not the simulator.
const PLANTED_ELSEWHERE: [&str; 5] =
    ["crates/distributed", "crates/node", "crates/gateway", "crates/viewstamped", "crates/coordinator"];
/// The program that users run.
const PRODUCT: &str = "kasha";
/// What is linted without the features of tests: the programs that users build.
const PLAIN: [&str; 4] = ["-p", PRODUCT, "-p", LAB];
/// Programs of the judges.
const LAB: &str = "kasha-lab";
const MODELS: &str = "kasha-spec";
/// The library that searches the models.
const SEARCHER: &str = "stateright";
/// The digest of the models of which `spec/results` tells.
const SEARCHED: &str = "spec/results/searched.txt";
const PROCESS_TESTS: &str = "tests/process";

const _: () = {
    let (mut sum, mut index) = (0, 0);
    while index < STAGES.len() {
        let beside = matches!(STAGES[index].turn, Turn::Beside);
        sum += if beside { 0 } else { STAGES[index].budget };
        index += 1;
    }
    assert!(sum <= TOTAL_BUDGET);
};

/// The names of all stages, in order.
pub(crate) fn names() -> Vec<&'static str> {
    STAGES.iter().map(|stage| stage.name).collect()
}

/// Runs the chosen stages. The last printed line says how many tests passed.
pub(crate) fn run(workspace: &Workspace, choice: &Choice) -> Result<()> {
    let chosen: Vec<&Stage> = STAGES
        .iter()
        .filter(|stage| match choice {
            Choice::All => true,
            Choice::Quick => stage.is_quick,
            Choice::One(name) => stage.name == name,
        })
        .collect();
    ensure!(!chosen.is_empty(), "there is no such stage; there are: {}", names().join(" "));
    let report = schedule::run(&chosen, workspace)?;
    if *choice == Choice::All {
        println!("\n{}\n{}", report.table.join("\n"), schedule::row("total", report.seconds, TOTAL_BUDGET));
    }
    if let Some(passed) = report.passed {
        println!("{passed} passed, 0 failed");
    }
    Ok(())
}

fn fmt(workspace: &Workspace, watch: &Watch) -> Result<Outcome> {
    watch.run(cargo(&workspace.root).args(["fmt", "--all", "--check"]))?;
    Ok(Outcome::Done)
}

fn run_tidy(workspace: &Workspace, _: &Watch) -> Result<Outcome> {
    tidy::run(workspace)?;
    Ok(Outcome::Done)
}

/// Everything with the features of tests; then what users run without them. In the profile of the build that follows, which then has the
/// macros and the libraries of other languages.
fn clippy(workspace: &Workspace, watch: &Watch) -> Result<Outcome> {
    let everything = ["--workspace", "--all-targets", "--features", FEATURES];
    for chosen in [&everything[..], &PLAIN[..]] {
        watch.run(
            cargo(&workspace.root)
                .args(["clippy", "--profile", ci::PROFILE])
                .args(chosen)
                .args(["--", "-D", "warnings"]),
        )?;
    }
    Ok(Outcome::Done)
}

/// What the judges share. (What users run is checked by clippy, and the core of that is built for `instructions`.)
fn build(workspace: &Workspace, watch: &Watch) -> Result<Outcome> {
    Build::new(workspace, watch)?;
    Ok(Outcome::Done)
}

/// The number of passed tests, from the output of test programs.
fn passed_in(lines: &[String]) -> u64 {
    let count = |line: &String| {
        let (_, result) = line.strip_prefix("test result: ")?.split_once(". ")?;
        result.split_once(" passed;")?.0.parse::<u64>().ok()
    };
    lines.iter().filter_map(count).sum()
}

/// Runs programs with tests to the last, and only then says which of them failed.
fn run_tests<'t>(tests: impl Iterator<Item = &'t Tests>, watch: &Watch, prepare: impl Fn(&mut Command)) -> Result<u64> {
    let (mut passed, mut failed, mut times) = (0, Vec::new(), Vec::new());
    for program in tests {
        let (mut command, before) = (program.command(), watch.elapsed());
        prepare(&mut command);
        let name = format!("{}: {}", program.folder.file_name().unwrap_or_default().display(), program.name);
        watch.say(&name);
        match watch.run(&mut command) {
            Ok(lines) => passed += passed_in(&lines),
            Err(error) => failed.push(format!("{name}: {error:#}")),
        }
        times.push((watch.elapsed().saturating_sub(before).as_secs_f64(), name));
    }
    times.sort_by(|one, other| other.0.total_cmp(&one.0));
    for (seconds, name) in times.iter().take(SLOWEST_SHOWN) {
        watch.say(&format!("{seconds:>7.1} s  {name}"));
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    ensure!(passed > 0, "no test ran");
    Ok(passed)
}

/// All tests but those with real processes, which have a stage of their own; planted bugs and transcripts are among them.
fn test(workspace: &Workspace, watch: &Watch) -> Result<Outcome> {
    let built = Build::new(workspace, watch)?;
    let apart = workspace.root.join(PROCESS_TESTS);
    let passed = run_tests(built.tests.iter().filter(|tests| tests.folder != apart), watch, |_| ());
    let of_documents = watch.run(&mut ci::doc_tests(workspace)?)?;
    let passed = passed? + passed_in(&of_documents);
    // Without the network such a test passes silently.
    if let Some(notice) = netlab::notice() {
        println!("{notice}");
    }
    Ok(Outcome::Passed(passed))
}

/// Searches the models with these arguments.
pub(crate) fn search_models(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let status = search(workspace).args(arguments).status()?;
    ensure!(status.success(), "the models are not as they should be");
    if arguments.is_empty() && env::var_os("UPDATE").is_some() {
        fs::write(workspace.root.join(SEARCHED), digest_of_models(workspace)?)?;
    }
    Ok(())
}

/// What searches the models. They need no other package, so nothing else is built; and it is built when there is something to search.
fn search(workspace: &Workspace) -> Command {
    let mut command = cargo(&workspace.root);
    command.args(["run", "--quiet", "--release", "-p", MODELS, "--"]);
    command
}

/// All that the result of a search depends on: what is searched, and what searches it; not the product.
fn digest_of_models(workspace: &Workspace) -> Result<String> {
    let mut files = workspace.files()?;
    files.retain(|file| file.path.starts_with("spec/src/") || file.path == "spec/Cargo.toml");
    ensure!(!files.is_empty(), "there are no models");
    let lock = fs::read_to_string(workspace.root.join("Cargo.lock"))?;
    let searcher = instructions::locked_version(&lock, SEARCHER).context("Cargo.lock has no searcher")?;
    Ok(format!("{:016x} {SEARCHER} {searcher}\n", digest(&files)))
}

/// The small bounds: with all rules nothing goes wrong, and without any one rule something does. A search gives the same each time:
/// models that were searched as they are now are not searched again. (What ties them to the product is among the tests.)
fn models(workspace: &Workspace, watch: &Watch) -> Result<Outcome> {
    let digest = digest_of_models(workspace)?;
    if fs::read_to_string(workspace.root.join(SEARCHED)).is_ok_and(|searched| searched == digest) {
        println!("searched before, as they are: spec/results. `cargo xtask models` searches them again");
        return Ok(Outcome::Done);
    }
    watch.run(&mut search(workspace))?;
    println!("`UPDATE=1 cargo xtask models` notes that these models were searched ({SEARCHED})");
    Ok(Outcome::Done)
}

fn docs(workspace: &Workspace, watch: &Watch) -> Result<Outcome> {
    let mut command = cargo(&workspace.root);
    // In this profile the libraries of others have been checked: clippy needed them, too.
    command.args(["doc", "--profile", ci::PROFILE, "--workspace", "--no-deps", "--features", FEATURES]);
    watch.run(command.env("RUSTDOCFLAGS", "-D warnings"))?;
    Ok(Outcome::Done)
}

/// The lines with the digests: the report of one seed ends in a digest of everything that happened.
fn digest_lines(lines: &[String]) -> Vec<&String> {
    lines.iter().filter(|line| line.contains("digest")).collect()
}

fn sim(workspace: &Workspace, watch: &Watch) -> Result<Outcome> {
    let lab = Build::new(workspace, watch)?.program(LAB);
    // The seed depends on the tree. So the same tree gives the same run, and each change tries new seeds.
    let start = (digest(&workspace.files()?) >> 32).to_string();
    let simulate = |words: &[&str]| {
        println!("kasha-lab sim {}", words.join(" "));
        watch.run(Command::new(&lab).current_dir(&workspace.root).arg("sim").args(words))
    };
    let (first, second) =
        (simulate(&["--seeds", "1", "--start", &start])?, simulate(&["--seeds", "1", "--start", &start])?);
    let (first, second) = (digest_lines(&first), digest_lines(&second));
    ensure!(!first.is_empty(), "`kasha-lab sim` printed no line with a digest");
    ensure!(first == second, "seed {start} gave two different runs:\n{first:#?}\n{second:#?}");
    println!("seed {start} gave the same run twice");
    simulate(&["--processor-seconds", SIM_SECONDS, "--start", &start])?;
    simulate(&["--runs", REACH])?;
    Ok(Outcome::Done)
}

/// Plants every bug in turn. The program prints the table of which checker catches it. Without arguments, the bugs that are
/// planted outside the simulator follow; and so they do if the one that is asked for is none of the simulator.
pub(crate) fn mutants(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let watch = Watch::start();
    let built = Build::new(workspace, &watch)?;
    let status = Command::new(built.example(ci::MUTANTS)).current_dir(&workspace.root).args(arguments).status()?;
    ensure!(status.code() != Some(2), "nothing was planted: see above");
    let is_elsewhere = status.code() == Some(3);
    ensure!(status.success() || is_elsewhere, "not every planted bug is caught, or something was found without one");
    for package in PLANTED_ELSEWHERE.iter().filter(|_| arguments.is_empty() || is_elsewhere) {
        let folder = workspace.root.join(package);
        run_tests(built.tests_of(&folder), &watch, |command| {
            // Each bug that is caught panics: where says enough.
            command.args(["planted::", "--nocapture"]).env("RUST_BACKTRACE", "0");
        })?;
    }
    Ok(())
}

/// The directed tests with real processes.
fn process(workspace: &Workspace, watch: &Watch) -> Result<Outcome> {
    let built = Build::new(workspace, watch)?;
    let passed = run_tests(built.tests_of(&workspace.root.join(PROCESS_TESTS)), watch, |command| {
        command.env("KASHA_BIN", built.program(PRODUCT)).env("KASHA_LAB", built.program(LAB));
    })?;
    Ok(Outcome::Passed(passed))
}

/// Rounds of faults against real processes: they measure the seconds from fault to service.
fn rounds(workspace: &Workspace, watch: &Watch) -> Result<Outcome> {
    let rounds = Rounds::new(workspace, &Build::new(workspace, watch)?, watch)?;
    // As in the simulator's stage: the same tree tries the same faults, and each change tries new ones.
    let seed = (digest(&workspace.files()?) >> 32).to_string();
    watch.run(&mut rounds.command(&["--seed", &seed, "--beyond", "--rounds", "1"]))?;
    watch.run(&mut rounds.command(&["--seed", &seed, "--minutes", ROUNDS_MINUTES]))?;
    Ok(Outcome::Done)
}

fn count_instructions(workspace: &Workspace, watch: &Watch) -> Result<Outcome> {
    if workspace.package(instructions::FOLDER).is_none() {
        return Ok(Outcome::Skipped("there is no tests/instructions in the workspace"));
    }
    Ok(instructions::check(workspace, watch)?.map_or(Outcome::Done, Outcome::Skipped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_summaries_are_added_up() {
        let lines = [
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "a test that prints 9 passed; in the middle",
            "test result: ok. 40 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
        ];
        assert_eq!(passed_in(&lines.map(str::to_owned)), 43);
    }
}
