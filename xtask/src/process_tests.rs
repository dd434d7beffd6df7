//! `cargo xtask process-tests`: builds a server with the hooks of tests, the judges, and the program that tests the one and asks
//! the other, and runs that program (docs/testing.md).
//!
//! The server is that of the shared build (`ci`), which has the feature `test-faults`. The judges need Go: Go is installed if
//! possible; otherwise they are left out, and a notice says so.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};

use crate::ci::{self, Build};
use crate::watch::Watch;
use crate::workspace::Workspace;

/// The judges of histories, by the folders of their programs, and the variables that tell the campaign where those are.
const JUDGES: [(&str, &str); 2] = [("porcupine", "KASHA_PORCUPINE"), ("cycles", "KASHA_CYCLES")];
const PROGRAM: &str = "kasha-process-tests";
const FOLDER: &str = "tests/process";

/// The module with the directed tests of what outsiders found: `--only` takes it beside the faults.
const OUTSIDERS: &str = "outsiders";

/// Builds everything and runs the program. Its exit code says what was wrong.
pub(crate) fn run(workspace: &Workspace, words: &[String]) -> Result<ExitCode> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let watch = Watch::start();
    let built = Build::new(workspace, &watch)?;
    if words == ["--only", OUTSIDERS] {
        let folder = workspace.root.join(FOLDER);
        let tests = built.tests_of(&folder).find(|tests| tests.name == ci::ALL).context("there are none")?;
        let lab = built.program("kasha-lab");
        let mut command = tests.command();
        command.arg(format!("{OUTSIDERS}::")).env("KASHA_BIN", built.program("kasha")).env("KASHA_LAB", lab);
        let status = command.status()?;
        return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let rounds = Rounds::new(workspace, &built, &watch)?;
    let status = rounds.command(&words).status().context("the program does not start")?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// The programs that rounds need.
pub(crate) struct Rounds {
    program: PathBuf,
    server: PathBuf,
    /// `None`: it could not be built.
    judges: Vec<(&'static str, Option<PathBuf>)>,
}

impl Rounds {
    /// Takes the server with the hooks of tests, and builds the judges.
    pub(crate) fn new(workspace: &Workspace, built: &Build, watch: &Watch) -> Result<Self> {
        let folder = workspace.target.join("process-tests");
        fs::create_dir_all(&folder).context("no folder below the target folder")?;
        let mut judges = Vec::new();
        for (name, variable) in JUDGES {
            judges.push((variable, judge(workspace, watch, name, folder.join(name))?));
        }
        Ok(Self { program: built.program(PROGRAM), server: built.program("kasha"), judges })
    }

    /// The command that runs rounds.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).env("KASHA_BIN", &self.server);
        for (variable, judge) in &self.judges {
            match judge {
                Some(judge) => command.env(variable, judge),
                None => command.env_remove(variable),
            };
        }
        command
    }
}

/// Whether a program exists and succeeds with these arguments.
pub(crate) fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A judge's program, built and tested; `None`, with a notice, if it cannot be built.
fn judge(workspace: &Workspace, watch: &Watch, name: &str, program: PathBuf) -> Result<Option<PathBuf>> {
    if !succeeds("go", &["version"]) {
        println!("Go is not installed; trying: apt-get install golang-go");
        let _ = succeeds("apt-get", &["update"]) && succeeds("apt-get", &["install", "--yes", "golang-go"]);
    }
    let go = |arguments: &[&str]| {
        let mut command = Command::new("go");
        command.current_dir(workspace.root.join("tests").join(name)).args(arguments).env("GOTOOLCHAIN", "local");
        command
    };
    let has_modules = go(&["mod", "download"]).status().is_ok_and(|status| status.success());
    if !has_modules {
        println!("SKIPPED: {name}. It needs Go (Debian: apt-get install golang-go) and its module proxy;");
        println!("SKIPPED: histories are not judged by it");
        return Ok(None);
    }
    watch.run(&mut go(&["test", "./..."]))?;
    watch.run(go(&["build", "-buildvcs=false", "-o"]).arg(&program).arg("."))?;
    ensure!(program.is_file(), "Go built no {}", program.display());
    Ok(Some(program))
}
