//! `cargo xtask fuzz`: runs the programs in `fuzz/`, one after the other, and keeps what breaks them.
//!
//! With the stable toolchain they are built without a sanitizer, and a failed assertion, a panic, a hang or an allocation
//! over a limit is what there is to find; code that is not safe is looked at too where a nightly toolchain is installed
//! (AddressSanitizer). Inputs found earlier stay in `fuzz/corpus`, which git ignores; an input that breaks a property is
//! made small and put into `fuzz/regressions`, where every test run replays it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::tools;
use crate::workspace::{Workspace, cargo};

const CARGO_FUZZ: &str = "cargo-fuzz";
const CARGO_FUZZ_VERSION: &str = "0.13.1";

const SECONDS: u64 = 60;
/// One input may take this long; a machine that does other things besides is slow.
const INPUT_SECONDS_MAX: u64 = 60;
/// Tries to make a failing input smaller.
const SHRINK_SECONDS: u64 = 60;

/// What to run.
pub(crate) struct Choice {
    target: Option<String>,
    seconds: u64,
    /// `None`: the best that there is a toolchain for.
    sanitizer: Option<String>,
}

/// Reads the options; `None` if they are none.
pub(crate) fn parse(options: &[&str]) -> Option<Choice> {
    let mut choice = Choice { target: None, seconds: SECONDS, sanitizer: None };
    for pair in options.chunks(2) {
        match pair {
            ["--target", name] => choice.target = Some((*name).to_owned()),
            ["--sanitizer", name @ ("none" | "address")] => choice.sanitizer = Some((*name).to_owned()),
            ["--seconds", number] => choice.seconds = number.parse().ok()?,
            _ => return None,
        }
    }
    Some(choice)
}

struct Fuzz<'a> {
    workspace: &'a Workspace,
    folder: PathBuf,
    program: PathBuf,
    sanitizer: String,
    is_nightly: bool,
}

/// What libFuzzer says at the end.
#[derive(Debug, Default, PartialEq, Eq)]
struct Report {
    executions: u64,
    edges: u64,
    features: u64,
    inputs: u64,
}

/// Runs the chosen targets; fails if one of them found something.
pub(crate) fn run(workspace: &Workspace, choice: &Choice) -> Result<()> {
    let fuzz = Fuzz::prepare(workspace, choice)?;
    let targets = fuzz.targets()?;
    let chosen: Vec<&String> =
        targets.iter().filter(|name| choice.target.as_ref().is_none_or(|wanted| wanted == *name)).collect();
    ensure!(!chosen.is_empty(), "there is no such target; there are: {}", targets.join(" "));
    fuzz.write_seeds()?;
    println!("== build, sanitizer: {}", fuzz.sanitizer);
    fuzz.build(choice.target.as_deref())?;
    let (mut table, mut broken) = (Vec::new(), Vec::new());
    for name in chosen {
        println!("== {name}");
        let (report, found) = fuzz.search(name, choice.seconds)?;
        let Report { executions, edges, features, inputs } = report;
        let outcome = found.as_ref().map_or("held".to_owned(), |kept| format!("BROKEN, see {}", kept.display()));
        table.push(format!("{name:<20}{executions:>12}{edges:>9}{features:>10}{inputs:>8}  {outcome}"));
        broken.extend(found.map(|_| name.as_str()));
    }
    println!("\n{:<20}{:>12}{:>9}{:>10}{:>8}", "target", "executions", "edges", "features", "inputs");
    println!("{}", table.join("\n"));
    ensure!(broken.is_empty(), "broken: {}", broken.join(" "));
    Ok(())
}

impl<'a> Fuzz<'a> {
    fn prepare(workspace: &'a Workspace, choice: &Choice) -> Result<Self> {
        let has_nightly = Command::new("rustup")
            .args(["run", "nightly", "rustc", "--version"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .is_ok_and(|output| output.status.success());
        let sanitizer = match &choice.sanitizer {
            Some(name) => name.clone(),
            None if has_nightly => "address".to_owned(),
            None => {
                println!("NOTICE: no nightly toolchain (rustup toolchain install nightly): no sanitizer");
                "none".to_owned()
            }
        };
        let is_nightly = sanitizer != "none";
        let folder = workspace.root.join("fuzz");
        let program = tools::install(workspace, CARGO_FUZZ, CARGO_FUZZ_VERSION, |command| {
            println!("== install {CARGO_FUZZ} {CARGO_FUZZ_VERSION}");
            finish(command)
        })?;
        Ok(Self { workspace, folder, program, sanitizer, is_nightly })
    }

    fn cargo_fuzz(&self, what: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(&self.workspace.root).stdin(Stdio::null());
        // This program runs under the toolchain that cargo chose for it; the fuzzers choose their own.
        command.env_remove("CARGO").env_remove("RUSTC");
        command.env("RUSTUP_TOOLCHAIN", if self.is_nightly { "nightly" } else { "stable" });
        command.args(["fuzz", what, "--sanitizer", &self.sanitizer, "--target-dir"]);
        command.arg(self.workspace.target.join(format!("fuzz-{}", self.sanitizer)));
        command
    }

    fn targets(&self) -> Result<Vec<String>> {
        let manifest = fs::read_to_string(self.folder.join("Cargo.toml")).context("could not read fuzz/Cargo.toml")?;
        let paths = manifest.lines().filter_map(|line| line.strip_prefix("path = \"fuzz_targets/"));
        Ok(paths.filter_map(|path| path.strip_suffix(".rs\"")).map(str::to_owned).collect())
    }

    fn seeds(&self) -> PathBuf {
        self.workspace.target.join("fuzz-seeds")
    }

    fn write_seeds(&self) -> Result<()> {
        let mut command = cargo(&self.workspace.root);
        command.args(["run", "--quiet", "--package", "kasha-properties", "--example", "seeds", "--"]);
        finish(command.arg(self.seeds()))
    }

    fn build(&self, target: Option<&str>) -> Result<()> {
        finish(self.cargo_fuzz("build").args(target))
    }

    /// Runs one target; if it broke, the input that is kept.
    fn search(&self, name: &str, seconds: u64) -> Result<(Report, Option<PathBuf>)> {
        let regressions = self.folder.join("regressions").join(name);
        let corpus = self.folder.join("corpus").join(name);
        let artifacts = self.folder.join("artifacts").join(name);
        for folder in [&regressions, &corpus, &artifacts] {
            fs::create_dir_all(folder).with_context(|| format!("could not create {}", folder.display()))?;
        }
        let before = files_in(&artifacts)?;
        let mut command = self.cargo_fuzz("run");
        command.arg(name).args([&corpus, &self.seeds().join(name), &regressions]).arg("--");
        command.args([format!("-max_total_time={seconds}"), format!("-timeout={INPUT_SECONDS_MAX}")]);
        command.args(["-print_final_stats=1", "-rss_limit_mb=4096", "-len_control=0"]);
        let output =
            command.stdout(Stdio::inherit()).stderr(Stdio::piped()).output().context("could not run a target")?;
        let text = String::from_utf8_lossy(&output.stderr);
        let report = Report::read(&text);
        // A folder without a regression says nothing.
        let _ = fs::remove_dir(&regressions);
        let found: Vec<PathBuf> = files_in(&artifacts)?.into_iter().filter(|file| !before.contains(file)).collect();
        if output.status.success() {
            return Ok((report, None));
        }
        let tail: Vec<&str> = text.lines().rev().take(60).collect();
        eprintln!("{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
        let Some(input) = found.last() else { bail!("{name} ended with {} and left no input", output.status) };
        self.keep(name, input, &regressions).map(|kept| (report, Some(kept)))
    }

    /// Makes an input small, shows it, and puts it where it is replayed.
    fn keep(&self, name: &str, input: &Path, regressions: &Path) -> Result<PathBuf> {
        let small = input.with_extension("small");
        let mut shrink = self.cargo_fuzz("run");
        shrink.arg(name).arg(input).arg("--").args(["-minimize_crash=1", &format!("-max_total_time={SHRINK_SECONDS}")]);
        shrink.arg(format!("-exact_artifact_path={}", small.display()));
        let _ = shrink.stdout(Stdio::null()).stderr(Stdio::null()).status();
        let small = if small.exists() { small } else { input.to_path_buf() };
        fs::create_dir_all(regressions)?;
        let hash = crate::workspace::digest_of(&fs::read(&small)?);
        let kept = regressions.join(format!("{hash:016x}"));
        fs::copy(&small, &kept)?;
        let mut show = cargo(&self.workspace.root);
        show.args(["run", "--quiet", "--package", "kasha-properties", "--example", "seeds", "--", "--show", name]);
        finish(show.arg(&kept))?;
        println!("kept as {}: every test run replays it", kept.display());
        Ok(kept)
    }
}

impl Report {
    /// From lines like `#4096 pulse  cov: 512 ft: 900 corp: 60/2Kb …` and `stat::number_of_executed_units: 4096`.
    fn read(text: &str) -> Self {
        let mut report = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            for pair in words.windows(2) {
                let number = pair[1].split('/').next().and_then(|number| number.parse().ok());
                let (Some(number), field) = (number, pair[0]) else { continue };
                match field {
                    "cov:" => report.edges = number,
                    "ft:" => report.features = number,
                    "corp:" => report.inputs = number,
                    "stat::number_of_executed_units:" => report.executions = number,
                    _ => {}
                }
            }
        }
        report
    }
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<std::io::Result<_>>()?;
    files.sort();
    Ok(files)
}

fn finish(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("could not start {name}"))?;
    ensure!(status.success(), "{name} failed: {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let choice = parse(&["--seconds", "5", "--target", "frames"]).unwrap();
        assert_eq!((choice.target.as_deref(), choice.seconds), (Some("frames"), 5));
        assert_eq!(parse(&[]).unwrap().seconds, SECONDS);
        assert!(
            parse(&["--seconds"]).is_none()
                && parse(&["--seconds", "x"]).is_none()
                && parse(&["--sanitizer", "soap"]).is_none()
                && parse(&["frames"]).is_none()
        );
    }

    #[test]
    fn a_fuzzers_words_are_understood() {
        let text = "#2\tINITED cov: 1 ft: 2 corp: 1/1b exec/s: 0 rss: 30Mb\n\
                    #4096\tpulse  cov: 512 ft: 900 corp: 60/2Kb lim: 40 exec/s: 2048 rss: 33Mb\n\
                    Done 5000 runs in 2 second(s)\nstat::number_of_executed_units: 5000\n";
        let expected = Report { executions: 5000, edges: 512, features: 900, inputs: 60 };
        assert_eq!(Report::read(text), expected);
    }
}
