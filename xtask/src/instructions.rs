//! `cargo xtask instructions`: counts what one operation costs on its way through a core, and fails if it costs more
//! than `tests/instructions/counts.txt` says (docs/benchmarks.md). `UPDATE=1` writes that file.
//!
//! Valgrind counts, and gungraun runs Valgrind. Both are installed if they are missing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::process_tests::succeeds;
use crate::tools;
use crate::watch::Watch;
use crate::workspace::{Workspace, cargo};

/// The package whose benchmarks are run.
pub(crate) const FOLDER: &str = "tests/instructions";
const COUNTS: &str = "tests/instructions/counts.txt";
const COUNTS_HEAD: &str = "# Instructions for one operation: `UPDATE=1 cargo xtask instructions` writes this file.";

const RUNNER: &str = "gungraun-runner";

/// Operations of a case: `OPERATIONS` in `tests/instructions/benches/hot_path/main.rs`.
const OPERATIONS: u64 = 1024;

/// The percentage by which a count may be higher. The processor decides how the C library copies bytes, and a new
/// version of the compiler is no regression.
const PERCENT_BORNE: u64 = 3;

type Counts = BTreeMap<String, u64>;

/// Runs the command for a person.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    check(workspace, &Watch::start()).map(|_| ())
}

/// Counts and compares. `Some`: the reason why nothing was counted.
pub(crate) fn check(workspace: &Workspace, watch: &Watch) -> Result<Option<&'static str>> {
    if let Some(why) = missing() {
        println!("SKIPPED: instruction counts. {why}");
        return Ok(Some(why));
    }
    let package = workspace.package(FOLDER).with_context(|| format!("{FOLDER} is not in the workspace"))?;
    let tools = install_runner(workspace, watch)?;
    let path = env::join_paths([tools].into_iter().chain(env::split_paths(&env::var_os("PATH").unwrap_or_default())))?;
    let mut command = cargo(&workspace.root);
    // Incremental builds split crates differently, so that other functions are inlined.
    command.env("PATH", path).env("CARGO_INCREMENTAL", "0").args(["bench", "-p", &package.name, "--"]);
    let lines = watch.run_unseen(command.args(["--output-format=json", "--parallel=2"]))?;
    let counted = counted_in(&lines)?;
    let file = workspace.root.join(COUNTS);
    if env::var_os("UPDATE").is_some_and(|update| update == "1") {
        fs::write(&file, format(&counted)).context("could not write the counts")?;
    }
    let committed = fs::read_to_string(&file).with_context(|| format!("could not read {COUNTS}"))?;
    compare(&counted, &parse(&committed)?).map(|()| None)
}

/// What is missing and cannot be installed, if anything.
fn missing() -> Option<&'static str> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Some("the committed ones are of Linux on x86-64");
    }
    if succeeds("valgrind", &["--version"]) {
        return None;
    }
    println!("Valgrind is not installed; trying: apt-get install valgrind");
    let _ = succeeds("apt-get", &["update"]) && succeeds("apt-get", &["install", "--yes", "valgrind"]);
    (!succeeds("valgrind", &["--version"])).then_some("they need Valgrind (Debian: apt-get install valgrind)")
}

/// The folder with the runner, in the version for which the benchmarks were built.
fn install_runner(workspace: &Workspace, watch: &Watch) -> Result<PathBuf> {
    let lock = fs::read_to_string(workspace.root.join("Cargo.lock")).context("could not read Cargo.lock")?;
    let version = locked_version(&lock, "gungraun").context("Cargo.lock has no gungraun")?;
    let runner = tools::install(workspace, RUNNER, version, |command| {
        // The runner starts Valgrind and reads its output. Only the time to build the runner matters.
        command.env("CARGO_PROFILE_DEV_DEBUG", "false").env("CARGO_INCREMENTAL", "0");
        watch.run(command.args(["--quiet", "--debug"])).map(|_| ())
    })?;
    runner.parent().map(Path::to_path_buf).context("a program without a folder")
}

pub(crate) fn locked_version<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let (_, rest) = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?;
    Some(rest.split_once('"')?.0)
}

/// The cost of one operation in each case, from one line of JSON per case.
fn counted_in(lines: &[String]) -> Result<Counts> {
    let mut counts = Counts::new();
    for line in lines.iter().filter(|line| line.starts_with('{')) {
        let case: Value = serde_json::from_str(line).context("not what the runner printed until now")?;
        let total = &case["profiles"][0]["data"]["total"]["metrics"]["Ir"]["values"]["new"];
        let (Some(name), Some(total)) = (case["id"].as_str(), total.as_u64()) else {
            bail!("a case without its name or its count: {line}");
        };
        counts.insert(name.to_owned(), (total + OPERATIONS / 2) / OPERATIONS);
    }
    ensure!(!counts.is_empty(), "nothing was counted");
    Ok(counts)
}

fn format(counts: &Counts) -> String {
    let lines = counts.iter().map(|(name, count)| format!("{name} {count}\n"));
    format!("{COUNTS_HEAD}\n{}", lines.collect::<String>())
}

fn parse(text: &str) -> Result<Counts> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let count = |line: &str| {
        let (name, count) = line.split_once(' ')?;
        Some((name.to_owned(), count.parse().ok()?))
    };
    lines.map(|line| count(line).with_context(|| format!("{COUNTS}: {line}"))).collect()
}

/// Prints the table. Fails if a case costs more than before, or has no count to be compared with.
fn compare(counted: &Counts, committed: &Counts) -> Result<()> {
    println!("{:<16}{:>14}{:>11}{:>12}", "case", "instructions", "committed", "difference");
    let (mut worse, mut is_better) = (Vec::new(), false);
    for (name, &count) in counted {
        let Some(&before) = committed.get(name) else {
            println!("{name:<16}{count:>14}{:>11}", "none");
            worse.push(name.as_str());
            continue;
        };
        let difference = 100.0 * (count as f64 / before as f64 - 1.0);
        println!("{name:<16}{count:>14}{before:>11}{difference:>+11.1} %");
        if count * 100 > before * (100 + PERCENT_BORNE) {
            worse.push(name);
        }
        is_better |= count * 100 < before * (100 - PERCENT_BORNE);
    }
    worse.extend(committed.keys().filter(|name| !counted.contains_key(*name)).map(String::as_str));
    let update = "UPDATE=1 cargo xtask instructions";
    if is_better {
        println!("some cost less than they did; so that it stays so: {update}");
    }
    ensure!(
        worse.is_empty(),
        "costs more than {COUNTS} says, or is in one of the two only: {}; if it must be so: {update}",
        worse.join(" ")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(list: &[(&str, u64)]) -> Counts {
        list.iter().map(|&(name, count)| (name.to_owned(), count)).collect()
    }

    #[test]
    fn a_few_percent_are_borne_and_more_are_not() {
        let committed = counts(&[("read", 1000), ("retry", 2000)]);
        assert!(compare(&counts(&[("read", 1030), ("retry", 1000)]), &committed).is_ok());
        let error = compare(&counts(&[("read", 1031), ("retry", 2000)]), &committed).unwrap_err().to_string();
        assert!(error.contains(": read;"), "{error}");
        let error = compare(&counts(&[("read", 1000), ("append", 1)]), &committed).unwrap_err().to_string();
        assert!(error.contains(": append retry;"), "{error}");
    }

    #[test]
    fn what_is_written_is_read() {
        let some = counts(&[("read", 2702), ("append", 3655)]);
        assert_eq!(parse(&format(&some)).unwrap(), some);
        assert!(parse("read\n").is_err() && parse("read many\n").is_err());
    }

    #[test]
    fn the_runners_lines_are_understood() {
        let line = r#"{"id":"read","profiles":[{"data":{"total":{"metrics":{"Ir":{"values":{"new":2766432}}}}}}]}"#;
        let lines = ["Finished".to_owned(), line.to_owned()];
        assert_eq!(counted_in(&lines).unwrap(), counts(&[("read", 2702)]));
        assert!(counted_in(&lines[..1]).is_err() && counted_in(&[r#"{"id":"read"}"#.to_owned()]).is_err());
    }

    #[test]
    fn the_lock_file_says_which_version() {
        let lock = "[[package]]\nname = \"gungraun-macros\"\nversion = \"0.1.0\"\n\n\
                    [[package]]\nname = \"gungraun\"\nversion = \"0.20.0\"\n";
        assert_eq!(locked_version(lock, "gungraun"), Some("0.20.0"));
    }
}
