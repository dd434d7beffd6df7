//! `cargo xtask process-tests`: builds a server that a test can get at, the judge, and the program that sets one on the
//! other, and runs it (docs/testing.md).
//!
//! The server is built with the feature `test-faults` and moved away from where the real one is built, so that nobody
//! takes it for that. The judge needs Go: it is installed where that is possible, and otherwise visibly left out.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::watch::Watch;
use crate::workspace::{Workspace, cargo};

const JUDGE: &str = "tests/porcupine";
const PROGRAM: &str = "kasha-process-tests";

/// A run of one's own: nobody waits for it but who asked.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// Builds everything and runs it; its exit code tells what was wrong.
pub(crate) fn run(workspace: &Workspace, words: &[String]) -> Result<ExitCode> {
    let built = Built::new(workspace, &Watch::start(PATIENCE))?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let status = built.command(&words).status().context("the program does not start")?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// What a run needs.
pub(crate) struct Built {
    program: PathBuf,
    server: PathBuf,
    judge: Option<PathBuf>,
}

impl Built {
    /// Builds it all.
    pub(crate) fn new(workspace: &Workspace, watch: &Watch) -> Result<Self> {
        let folder = workspace.target.join("process-tests");
        fs::create_dir_all(&folder).context("no folder below the target folder")?;
        let build = |words: &[&str]| {
            let mut command = cargo(&workspace.root);
            watch.run(command.args(["build", "--release"]).args(words).arg("--target-dir").arg(&workspace.target))
        };
        build(&["-p", PROGRAM])?;
        build(&["-p", "kasha", "--features", "test-faults"])?;
        let server = folder.join("kasha");
        fs::rename(workspace.target.join("release/kasha"), &server).context("the server is not where it was built")?;
        let judge = judge(workspace, watch, folder.join("porcupine"))?;
        Ok(Self { program: workspace.target.join("release").join(PROGRAM), server, judge })
    }

    /// The command that runs rounds.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).env("KASHA_BIN", &self.server);
        match &self.judge {
            Some(judge) => command.env("KASHA_PORCUPINE", judge),
            None => command.env_remove("KASHA_PORCUPINE"),
        };
        command
    }
}

/// Whether a program is there and does what it is asked.
pub(crate) fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The judge's program, tested; `None`, with a notice, where it cannot be built.
fn judge(workspace: &Workspace, watch: &Watch, program: PathBuf) -> Result<Option<PathBuf>> {
    if !succeeds("go", &["version"]) {
        println!("Go is not installed; trying: apt-get install golang-go");
        let _ = succeeds("apt-get", &["update"]) && succeeds("apt-get", &["install", "--yes", "golang-go"]);
    }
    let go = |arguments: &[&str]| {
        let mut command = Command::new("go");
        command.current_dir(workspace.root.join(JUDGE)).args(arguments).env("GOTOOLCHAIN", "local");
        command
    };
    let has_modules = go(&["mod", "download"]).status().is_ok_and(|status| status.success());
    if !has_modules {
        println!("SKIPPED: porcupine. It needs Go (Debian: apt-get install golang-go) and its module proxy;");
        println!("SKIPPED: histories are judged by their sums only");
        return Ok(None);
    }
    watch.run(&mut go(&["test", "./..."]))?;
    watch.run(go(&["build", "-buildvcs=false", "-o"]).arg(&program).arg("."))?;
    ensure!(program.is_file(), "Go built no {}", program.display());
    Ok(Some(program))
}
