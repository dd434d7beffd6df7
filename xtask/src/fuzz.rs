//! `cargo xtask fuzz`: runs the programs in `fuzz/`, one after the other, and keeps the inputs that break them.
//!
//! The toolchain in use builds them without a sanitizer. Then the fuzzer can find failed assertions, panics, hangs, and
//! allocations over a limit. If a nightly toolchain is installed, it builds with AddressSanitizer, which also checks
//! unsafe code. Inputs that were found earlier stay in `fuzz/corpus`, which git ignores. An input that breaks a
//! property is made small and put into `fuzz/regressions`, where every test run replays it.

mod report;

use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use self::report::{Report, last_words, watched, written_input};
use crate::tools;
use crate::workspace::{Workspace, cargo};

const CARGO_FUZZ: &str = "cargo-fuzz";
const CARGO_FUZZ_VERSION: &str = "0.13.1";

const SECONDS: u32 = 60;
/// Seconds that one input may take: a machine that does other things besides is slow.
const INPUT_SECONDS_MAX: u64 = 60;
/// Memory of the whole process, sanitizer included. A property may use less.
const MEMORY_MB_MAX: u64 = 4096;
/// Seconds in which a failing input is made smaller.
const SHRINK_SECONDS: u64 = 60;

/// The options of the command.
pub(crate) struct Choice {
    target: Option<String>,
    seconds: u32,
    /// `None`: the best sanitizer for which there is a toolchain.
    sanitizer: Option<String>,
}

/// Reads the options; `None` if they make no sense.
pub(crate) fn parse(options: &[&str]) -> Option<Choice> {
    let mut choice = Choice { target: None, seconds: SECONDS, sanitizer: None };
    for pair in options.chunks(2) {
        match pair {
            ["--target", name] => choice.target = Some((*name).to_owned()),
            ["--sanitizer", name @ ("none" | "address")] => choice.sanitizer = Some((*name).to_owned()),
            // To libFuzzer, 0 means for ever.
            ["--seconds", number] => choice.seconds = number.parse::<NonZeroU32>().ok()?.get(),
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
}

/// Runs the chosen targets. Fails if one of them found something.
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
        let (report, problem) = fuzz.search(name, choice.seconds)?;
        let Report { executions, edges, features, inputs } = report;
        let outcome = problem.as_deref().unwrap_or("held");
        table.push(format!("{name:<20}{executions:>12}{edges:>9}{features:>10}{inputs:>8}  {outcome}"));
        broken.extend(problem.is_some().then_some(name.as_str()));
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
        ensure!(has_nightly || sanitizer == "none", "a sanitizer needs: rustup toolchain install nightly");
        let folder = workspace.root.join("fuzz");
        let program = tools::install(workspace, CARGO_FUZZ, CARGO_FUZZ_VERSION, |command| {
            println!("== install {CARGO_FUZZ} {CARGO_FUZZ_VERSION}");
            finish(command)
        })?;
        Ok(Self { workspace, folder, program, sanitizer })
    }

    fn cargo_fuzz(&self, what: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(&self.workspace.root).stdin(Stdio::null());
        if self.sanitizer != "none" {
            // This must replace the toolchain that runs this program, which cargo passes on.
            command.env_remove("CARGO").env_remove("RUSTC").env("RUSTUP_TOOLCHAIN", "nightly");
        }
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

    /// Runs one target. If it broke, also returns the text to show.
    fn search(&self, name: &str, seconds: u32) -> Result<(Report, Option<String>)> {
        let corpus = self.folder.join("corpus").join(name);
        let regressions = self.folder.join("regressions").join(name);
        fs::create_dir_all(&corpus).with_context(|| format!("could not create {}", corpus.display()))?;
        let mut command = self.cargo_fuzz("run");
        command.arg(name).args([&corpus, &self.seeds().join(name)]);
        command.args(regressions.is_dir().then_some(&regressions)).arg("--");
        command.args([format!("-max_total_time={seconds}"), "-print_final_stats=1".to_owned()]);
        // Otherwise inputs begin short and grow slowly, and a short run sees only short ones.
        let (status, lines, report) = watched(command.arg("-len_control=0").args(limits()))?;
        if status.success() {
            return Ok((report, None));
        }
        eprintln!("{}", last_words(&lines).join("\n"));
        let problem = match written_input(&lines) {
            Some(input) => match self.keep(name, &input, &regressions) {
                Ok(kept) => format!("BROKEN, see {}", kept.display()),
                Err(error) => format!("BROKEN by {}, which could not be kept: {error:#}", input.display()),
            },
            None => format!("BROKEN: {status}, and no input is left"),
        };
        Ok((report, Some(problem)))
    }

    /// Makes an input small, shows it, and puts it where tests replay it.
    fn keep(&self, name: &str, input: &Path, regressions: &Path) -> Result<PathBuf> {
        let small = input.with_extension("small");
        // A file of an earlier run may break nothing any more.
        let _ = fs::remove_file(&small);
        println!("making {} small takes up to {SHRINK_SECONDS} s", input.display());
        let mut shrink = self.cargo_fuzz("run");
        shrink.arg(name).arg(input).arg("--").args(["-minimize_crash=1", &format!("-max_total_time={SHRINK_SECONDS}")]);
        shrink.arg(format!("-exact_artifact_path={}", small.display())).args(limits());
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

fn limits() -> [String; 2] {
    [format!("-timeout={INPUT_SECONDS_MAX}"), format!("-rss_limit_mb={MEMORY_MB_MAX}")]
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
                && parse(&["--seconds", "0"]).is_none()
                && parse(&["--sanitizer", "soap"]).is_none()
                && parse(&["frames"]).is_none()
        );
    }
}
