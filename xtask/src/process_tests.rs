//! `cargo xtask process-tests`: builds a server with test hooks, the judges, and the program that tests the one and asks
//! the other, and runs that program (docs/testing.md).
//!
//! The server is built with the feature `test-faults` and moved away from the place where the real server is built. The
//! real one is put back, so that nobody takes one for the other. The judges need Go: Go is installed if possible;
//! otherwise they are left out, and a notice says so.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};

use crate::watch::Watch;
use crate::workspace::{Workspace, cargo};

/// The judges of histories, by the folders of their programs, and the variables that tell the campaign where those are.
const JUDGES: [(&str, &str); 2] = [("porcupine", "KASHA_PORCUPINE"), ("cycles", "KASHA_CYCLES")];
const PROGRAM: &str = "kasha-process-tests";

/// The directed tests of what outsiders found, beside the faults that `--only` takes.
const OUTSIDERS: &str = "outsiders";

/// Builds everything and runs the program. Its exit code says what was wrong.
pub(crate) fn run(workspace: &Workspace, words: &[String]) -> Result<ExitCode> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if words == ["--only", OUTSIDERS] {
        let mut command = cargo(&workspace.root);
        command.args(["test", "--release", "-p", PROGRAM, "--test", OUTSIDERS]);
        let status = command.status().context("cargo does not start")?;
        return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let built = Built::new(workspace, &Watch::start())?;
    let status = built.command(&words).status().context("the program does not start")?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// The programs that a run needs.
pub(crate) struct Built {
    program: PathBuf,
    server: PathBuf,
    /// `None`: it could not be built.
    judges: Vec<(&'static str, Option<PathBuf>)>,
}

impl Built {
    /// Builds the programs.
    pub(crate) fn new(workspace: &Workspace, watch: &Watch) -> Result<Self> {
        let folder = workspace.target.join("process-tests");
        fs::create_dir_all(&folder).context("no folder below the target folder")?;
        let build = |words: &[&str]| {
            let mut command = cargo(&workspace.root);
            watch.run(command.args(["build", "--release"]).args(words).arg("--target-dir").arg(&workspace.target))
        };
        build(&["-p", PROGRAM])?;
        let server = folder.join("kasha");
        build_beside(&workspace.target.join("release/kasha"), &server, || {
            build(&["-p", "kasha", "--features", "test-faults"]).map(drop)
        })?;
        let mut judges = Vec::new();
        for (name, variable) in JUDGES {
            judges.push((variable, judge(workspace, watch, name, folder.join(name))?));
        }
        Ok(Self { program: workspace.target.join("release").join(PROGRAM), server, judges })
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

/// Builds another program at the path of the real one, and moves it to `other`. The real one stays, if there is one.
fn build_beside(real: &Path, other: &Path, build: impl FnOnce() -> Result<()>) -> Result<()> {
    let aside = other.with_extension("real");
    let was_there = real.exists();
    if was_there {
        fs::rename(real, &aside).context("the real program cannot be put aside")?;
    }
    let built = build().and_then(|()| fs::rename(real, other).context("the server is not where it was built"));
    if was_there {
        fs::rename(&aside, real).context("the real program cannot be put back")?;
    }
    built
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Found from outside: after all tests the program itself was gone.
    #[test]
    fn the_real_program_stays_where_it_is() {
        let folder = std::env::temp_dir().join(format!("kasha-xtask-beside-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (real, other) = (folder.join("kasha"), folder.join("other"));
        let build = || Ok(fs::write(&real, "for tests")?);
        build_beside(&real, &other, build).unwrap();
        assert!(!real.exists(), "there was none");
        fs::write(&real, "real").unwrap();
        build_beside(&real, &other, build).unwrap();
        build_beside(&real, &other, || anyhow::bail!("it does not compile")).unwrap_err();
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        assert_eq!((read(&real), read(&other)), ("real".to_owned(), "for tests".to_owned()));
        fs::remove_dir_all(&folder).unwrap();
    }
}
