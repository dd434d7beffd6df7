//! The one build that judges share: the whole workspace in the profile `ci`, with planted bugs and the hooks of tests.
//!
//! Cargo builds a crate again for each profile, and for each set of features that the chosen packages ask for. So each
//! stage of `cargo xtask test` takes its programs from this build, in which all packages are chosen, and none asks cargo for a package alone.
//! Only what is counted for users is built as they build it; and models that have changed, to be searched.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::watch::Watch;
use crate::workspace::{Workspace, cargo};
use crate::wrapper;

/// Rules that can be broken at run time, and servers whose files and clock a test can reach.
pub(crate) const FEATURES: &str = "kasha-lab/planted-bugs,kasha-node/planted-bugs,kasha-gateway/planted-bugs,kasha-distributed/planted-bugs,kasha-viewstamped/planted-bugs,kasha-coordinator/planted-bugs,kasha/test-faults";

/// The profile of this build, and of what is only checked.
pub(crate) const PROFILE: &str = "ci";

/// The example that plants bugs.
pub(crate) const MUTANTS: &str = "mutants";

/// The program with all tests in a crate's folder `tests`.
pub(crate) const ALL: &str = "all";

/// A program with tests.
pub(crate) struct Tests {
    /// The folder of its package, where cargo would run it.
    pub(crate) folder: PathBuf,
    pub(crate) name: String,
    program: PathBuf,
}

impl Tests {
    /// The command that runs them.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// What was built.
pub(crate) struct Build {
    folder: PathBuf,
    pub(crate) tests: Vec<Tests>,
}

impl Build {
    /// Builds, or finds everything built.
    pub(crate) fn new(workspace: &Workspace, watch: &Watch) -> Result<Self> {
        // The tests alone need no program. Examples for users are linted, and nobody runs them here.
        let mut command = whole("build", workspace)?;
        watch.run(command.args(["--bins", "--example", MUTANTS]))?;
        let mut command = whole("test", workspace)?;
        command.arg("--tests");
        let lines = watch.run_unseen(command.args(["--no-run", "--message-format", "json-render-diagnostics"]))?;
        let tests: Vec<Tests> = lines.iter().filter_map(|line| tests_in(line)).collect();
        ensure!(!tests.is_empty(), "cargo built no tests");
        Ok(Self { folder: workspace.target.join(PROFILE), tests })
    }

    /// A program of the workspace.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// An example.
    pub(crate) fn example(&self, name: &str) -> PathBuf {
        self.folder.join("examples").join(name)
    }

    /// The tests of a package, by its folder.
    pub(crate) fn tests_of(&self, folder: &Path) -> impl Iterator<Item = &Tests> {
        self.tests.iter().filter(move |tests| tests.folder == folder)
    }
}

/// The tests in the code of documents. Cargo builds and runs them in one.
pub(crate) fn doc_tests(workspace: &Workspace) -> Result<Command> {
    let mut command = whole("test", workspace)?;
    command.arg("--doc");
    Ok(command)
}

/// What cargo does with the whole workspace.
fn whole(verb: &str, workspace: &Workspace) -> Result<Command> {
    let mut command = cargo(&workspace.root);
    command.args([verb, "--profile", PROFILE, "--workspace", "--features", FEATURES]);
    wrapper::ask(&mut command)?;
    Ok(command)
}

/// The program that a line of cargo's is about, if it has tests.
fn tests_in(line: &str) -> Option<Tests> {
    let artifact: Value = serde_json::from_str(line).ok()?;
    let is_test = artifact["reason"] == "compiler-artifact" && artifact["profile"]["test"] == true;
    let program = artifact["executable"].as_str().filter(|_| is_test)?;
    let manifest = Path::new(artifact["manifest_path"].as_str()?);
    Some(Tests {
        folder: manifest.parent()?.to_path_buf(),
        name: artifact["target"]["name"].as_str()?.to_owned(),
        program: PathBuf::from(program),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_with_tests_are_found_in_what_cargo_says() {
        let line = |reason: &str, test: bool| {
            format!(
                r#"{{"reason": "{reason}", "manifest_path": "/r/crates/log/Cargo.toml", "target": {{"name": "memory"}},
                "profile": {{"test": {test}}}, "executable": "/t/ci/deps/memory-1"}}"#
            )
        };
        let tests = tests_in(&line("compiler-artifact", true)).unwrap();
        assert_eq!((tests.folder, &*tests.name), (PathBuf::from("/r/crates/log"), "memory"));
        assert!(
            tests_in(&line("compiler-artifact", false)).is_none() && tests_in(&line("build-finished", true)).is_none()
        );
        assert!(tests_in("   Compiling").is_none());
    }
}
