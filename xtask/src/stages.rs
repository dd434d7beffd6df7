//! `cargo xtask test`: everything that CI runs, in stages that each have a time budget.
//!
//! It stops at the first stage that fails, and says how to run that stage again. A stage that takes longer than its
//! budget gives a warning, in the table at the end, too. No time is a failure, so that no right change is refused
//! because a host is slow. Only a program that prints nothing for long is ended (`watch`).

use std::process::Command;

use anyhow::{Result, anyhow, ensure};

use crate::instructions;
use crate::netlab;
use crate::process_tests::Built;
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

enum Outcome {
    Done,
    /// The number of tests that passed.
    Passed(u64),
    /// The reason why there was nothing to do.
    Skipped(&'static str),
}

struct Stage {
    name: &'static str,
    /// The budget in seconds, from an empty target folder on two cores.
    budget: u64,
    is_quick: bool,
    run: fn(&Workspace, &Watch) -> Result<Outcome>,
}

const STAGES: &[Stage] = &[
    Stage { name: "fmt", budget: 15, is_quick: true, run: fmt },
    Stage { name: "tidy", budget: 10, is_quick: true, run: run_tidy },
    Stage { name: "clippy", budget: 200, is_quick: true, run: clippy },
    Stage { name: "build", budget: 140, is_quick: false, run: build },
    Stage { name: "test", budget: 360, is_quick: true, run: test },
    Stage { name: "models", budget: 100, is_quick: false, run: models },
    Stage { name: "docs", budget: 45, is_quick: false, run: docs },
    Stage { name: "sim", budget: 110, is_quick: false, run: sim },
    Stage { name: "planted", budget: 120, is_quick: false, run: planted },
    Stage { name: "process", budget: 300, is_quick: false, run: process },
    Stage { name: "instructions", budget: 100, is_quick: false, run: count_instructions },
];

/// The time that all stages together may take: 25 minutes.
const TOTAL_BUDGET: u64 = 25 * 60;

/// Runs that together reach every probe of the production code.
const REACH: &str = "regressions/reach.txt";

/// Seeds of one simulator stage.
const SIM_SEEDS: u64 = 600;

/// Minutes in which the process stage begins rounds.
const PROCESS_MINUTES: &str = "0.4";

const SIMULATOR: &str = "crates/sim";
/// Packages with planted bugs that their own tests notice, and not the simulator.
const PLANTED_ELSEWHERE: [&str; 2] = ["crates/transaction", "crates/node"];
/// What users run, and what judges that.
const BINARIES: [&str; 2] = ["bin/kasha", LAB];
const LAB: &str = "bin/lab";
const MODELS: &str = "spec";
const RUNTIME: &str = "crates/runtime";
/// Without this feature no test can reach a server's files and clock.
const TEST_FAULTS: &str = "test-faults";
const PROCESS_TESTS: &str = "tests/process";
/// Without this feature no bug can be planted.
const PLANTED_BUGS: &str = "planted-bugs";

const _: () = {
    let (mut sum, mut index) = (0, 0);
    while index < STAGES.len() {
        sum += STAGES[index].budget;
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
    let mut passed = None;
    let mut total = 0.0;
    let mut table = Vec::new();
    for Stage { name, budget, run, .. } in chosen {
        println!("== {name}");
        let watch = Watch::start();
        let result = run(workspace, &watch);
        let seconds = watch.elapsed().as_secs_f64();
        total += seconds;
        let outcome = result.map_err(|error| {
            anyhow!(
                "{error:#}\nstage {name} failed after {seconds:.1} s; run it again: cargo xtask test --stage {name}"
            )
        })?;
        let note = match outcome {
            Outcome::Done => String::new(),
            Outcome::Passed(count) => {
                passed = Some(passed.unwrap_or(0) + count);
                format!("  {count} passed")
            }
            Outcome::Skipped(why) => format!("  skipped: {why}"),
        };
        table.push(format!("{}{}{note}", row(name, seconds, *budget), watch.apart()));
        println!("{}", table[table.len() - 1]);
    }
    if *choice == Choice::All {
        println!("\n{}\n{}", table.join("\n"), row("total", total, TOTAL_BUDGET));
    }
    if let Some(passed) = passed {
        println!("{passed} passed, 0 failed");
    }
    Ok(())
}

/// A line of the table. A time over the budget is a warning, and no failure.
fn row(name: &str, seconds: f64, budget: u64) -> String {
    let warning = if seconds > budget as f64 { "  warning: over its budget" } else { "" };
    format!("{name:<13}{seconds:>7.1} s, budget {budget:>4} s{warning}")
}

fn fmt(workspace: &Workspace, watch: &Watch) -> Result<Outcome> {
    watch.run(cargo(&workspace.root).args(["fmt", "--all", "--check"]))?;
    Ok(Outcome::Done)
}

fn run_tidy(workspace: &Workspace, _: &Watch) -> Result<Outcome> {
    tidy::run(workspace)?;
    Ok(Outcome::Done)
}

fn clippy(workspace: &Workspace, watch: &Watch) -> Result<Outcome> {
    watch.run(cargo(&workspace.root).args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    if let Some(package) = workspace.package(SIMULATOR) {
        let mut command = cargo(&workspace.root);
        command.args(["clippy", "-p", &package.name, "--features", PLANTED_BUGS, "--all-targets"]);
        watch.run(command.args(["--", "-D", "warnings"]))?;
    }
    if let Some(package) = workspace.package(RUNTIME) {
        let mut command = cargo(&workspace.root);
        command.args(["clippy", "-p", &package.name, "--features", TEST_FAULTS, "--all-targets"]);
        watch.run(command.args(["--", "-D", "warnings"]))?;
    }
    Ok(Outcome::Done)
}

fn build(workspace: &Workspace, watch: &Watch) -> Result<Outcome> {
    let mut command = cargo(&workspace.root);
    command.args(["build", "--release"]);
    for package in BINARIES.iter().filter_map(|folder| workspace.package(folder)) {
        command.args(["-p", &package.name]);
    }
    watch.run(&mut command)?;
    Ok(Outcome::Done)
}

/// The number of passed tests, from the output of cargo.
fn passed_in(lines: &[String]) -> u64 {
    let count = |line: &String| {
        let (_, result) = line.strip_prefix("test result: ")?.split_once(". ")?;
        result.split_once(" passed;")?.0.parse::<u64>().ok()
    };
    lines.iter().filter_map(count).sum()
}

fn test(workspace: &Workspace, watch: &Watch) -> Result<Outcome> {
    let mut command = cargo(&workspace.root);
    command.args(["test", "--workspace", "--no-fail-fast"]);
    if let Some(package) = workspace.package(PROCESS_TESTS) {
        // These tests have a stage of their own, with a release build of the program.
        command.args(["--exclude", &package.name]);
    }
    let passed = passed_in(&watch.run(&mut command)?);
    ensure!(passed > 0, "no test ran");
    // Without the network such a test passes silently.
    if let Some(notice) = netlab::notice() {
        println!("{notice}");
    }
    Ok(Outcome::Passed(passed))
}

/// `cargo xtask models`, in the profile of the tests. That package is optimized in this profile, so that one build is
/// enough.
fn models_command(workspace: &Workspace) -> Option<Command> {
    let package = workspace.package(MODELS)?;
    let mut command = cargo(&workspace.root);
    command.args(["run", "--quiet", "-p", &package.name, "--"]);
    Some(command)
}

/// Searches the models with these arguments.
pub(crate) fn search_models(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let mut command = models_command(workspace).ok_or_else(|| anyhow!("spec is not in the workspace"))?;
    ensure!(command.args(arguments).status()?.success(), "the models are not as they should be");
    Ok(())
}

/// The small bounds: with all rules nothing goes wrong, and without any one rule something does.
fn models(workspace: &Workspace, watch: &Watch) -> Result<Outcome> {
    match models_command(workspace) {
        Some(mut command) => watch.run(&mut command).map(|_| Outcome::Done),
        None => Ok(Outcome::Skipped("spec is not in the workspace")),
    }
}

fn docs(workspace: &Workspace, watch: &Watch) -> Result<Outcome> {
    let mut command = cargo(&workspace.root);
    watch.run(command.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))?;
    Ok(Outcome::Done)
}

/// The lines with the digests: the report of one seed ends in a digest of everything that happened.
fn digest_lines(lines: &[String]) -> Vec<&String> {
    lines.iter().filter(|line| line.contains("digest")).collect()
}

fn sim(workspace: &Workspace, watch: &Watch) -> Result<Outcome> {
    if workspace.package(SIMULATOR).is_none() || workspace.package(LAB).is_none() {
        return Ok(Outcome::Skipped("crates/sim and bin/lab are not both in the workspace"));
    }
    build(workspace, watch)?;
    // The seed depends on the tree. So the same tree gives the same run, and each change tries new seeds.
    let start = (digest(&workspace.files()?) >> 32).to_string();
    let simulate = |seeds: u64| {
        let mut command = Command::new(workspace.target.join("release/kasha-lab"));
        command.current_dir(&workspace.root).args(["sim", "--seeds", &seeds.to_string(), "--start", &start]);
        println!("kasha-lab sim --seeds {seeds} --start {start}");
        watch.run(&mut command)
    };
    let (first, second) = (simulate(1)?, simulate(1)?);
    let (first, second) = (digest_lines(&first), digest_lines(&second));
    ensure!(!first.is_empty(), "`kasha-lab sim` printed no line with a digest");
    ensure!(first == second, "seed {start} gave two different runs:\n{first:#?}\n{second:#?}");
    println!("seed {start} gave the same run twice");
    simulate(SIM_SEEDS)?;
    println!("kasha-lab sim --runs {REACH}");
    let mut command = Command::new(workspace.target.join("release/kasha-lab"));
    watch.run(command.current_dir(&workspace.root).args(["sim", "--runs", REACH]))?;
    Ok(Outcome::Done)
}

/// Every planted bug must be found by its checker and noticed by its transcripts. This needs a build of its own.
fn planted(workspace: &Workspace, watch: &Watch) -> Result<Outcome> {
    let Some(package) = workspace.package(SIMULATOR) else {
        return Ok(Outcome::Skipped("crates/sim is not in the workspace"));
    };
    let mut command = cargo(&workspace.root);
    command.args(["test", "--release", "-p", &package.name, "--features", PLANTED_BUGS]);
    command.args(["--test", "planted", "--test", "transcripts"]);
    let mut passed = passed_in(&watch.run(&mut command)?);
    for package in PLANTED_ELSEWHERE.iter().filter_map(|package| workspace.package(package)) {
        passed += passed_in(&watch.run(&mut planted_in(workspace, &package.name))?);
    }
    ensure!(passed > 0, "no test ran");
    Ok(Outcome::Passed(passed))
}

/// The test of a package that plants bugs and notices them.
fn planted_in(workspace: &Workspace, package: &str) -> Command {
    let mut command = cargo(&workspace.root);
    command.args(["test", "--release", "-p", package, "--features", PLANTED_BUGS, "--test", "planted"]);
    command
}

/// Plants every bug in turn, in one build. The program prints the table of which checker catches it. Without arguments, the bugs
/// that are planted outside the simulator follow.
pub(crate) fn mutants(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let package = workspace.package(SIMULATOR).ok_or_else(|| anyhow!("{SIMULATOR} is not in the workspace"))?;
    let mut command = cargo(&workspace.root);
    command.args(["run", "--release", "-p", &package.name, "--features", PLANTED_BUGS, "--example", "mutants", "--"]);
    let status = command.args(arguments).status()?;
    ensure!(status.code() != Some(2), "nothing was planted: see above");
    ensure!(status.success(), "not every planted bug is caught, or something was found without one");
    let elsewhere = PLANTED_ELSEWHERE.iter().filter_map(|package| workspace.package(package));
    for package in elsewhere.filter(|_| arguments.is_empty()) {
        let status = planted_in(workspace, &package.name).args(["--", "--nocapture"]).status()?;
        ensure!(status.success(), "a bug that is planted in {} is not noticed", package.name);
    }
    Ok(())
}

fn process(workspace: &Workspace, watch: &Watch) -> Result<Outcome> {
    let Some(package) = workspace.package(PROCESS_TESTS) else {
        return Ok(Outcome::Skipped("there is no tests/process in the workspace"));
    };
    build(workspace, watch)?;
    let lines = watch.run(cargo(&workspace.root).args(["test", "--release", "-p", &package.name]))?;
    let built = Built::new(workspace, watch)?;
    // As in the simulator's stage: the same tree tries the same faults, and each change tries new ones.
    let seed = (digest(&workspace.files()?) >> 32).to_string();
    watch.run(&mut built.command(&["--seed", &seed, "--beyond", "--rounds", "1"]))?;
    watch.run(&mut built.command(&["--seed", &seed, "--minutes", PROCESS_MINUTES]))?;
    Ok(Outcome::Passed(passed_in(&lines)))
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

    /// A stage that took ten times its budget used to be a failure.
    #[test]
    fn time_over_a_budget_is_a_warning_in_the_table() {
        assert_eq!(row("build", 139.9, 140), "build          139.9 s, budget  140 s");
        assert!(row("build", 1400.0, 140).ends_with("warning: over its budget"));
    }

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
