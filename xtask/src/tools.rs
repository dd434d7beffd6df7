//! Programs that cargo installs for this tool. Each is installed in one version below the target folder, so that the
//! user's own versions are not touched.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use crate::workspace::{Workspace, cargo};

/// The path of this version of a program. If it is missing, `install` runs the command that installs it. The caller
/// decides what that command may print, and how long it may take.
pub(crate) fn install(
    workspace: &Workspace,
    name: &str,
    version: &str,
    install: impl FnOnce(&mut Command) -> Result<()>,
) -> Result<PathBuf> {
    let tools = workspace.target.join("tools");
    let program = tools.join("bin").join(name);
    if !is_version(&program, name, version) {
        let mut command = cargo(&workspace.root);
        // The existing program has another version, or does not run: without `--force` cargo would leave it there.
        command.args(["install", "--force", "--locked", "--version", version, "--root"]).arg(&tools).arg(name);
        install(&mut command)?;
        ensure!(is_version(&program, name, version), "{} is not {name} {version}", program.display());
    }
    Ok(program)
}

fn is_version(program: &Path, name: &str, version: &str) -> bool {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    output.is_ok_and(|output| says(&String::from_utf8_lossy(&output.stdout), name, version))
}

/// Compares the whole line: 0.2.0 is not 0.2.01.
fn says(text: &str, name: &str, version: &str) -> bool {
    text.trim_end() == format!("{name} {version}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_exact() {
        assert!(says("cargo-fuzz 0.13.1\n", "cargo-fuzz", "0.13.1"));
        assert!(!says("cargo-fuzz 0.13.10\n", "cargo-fuzz", "0.13.1"));
        assert!(!says("cargo-fuzz 10.13.1\n", "cargo-fuzz", "0.13.1"));
        assert!(!says("other 0.13.1\n", "cargo-fuzz", "0.13.1") && !says("", "cargo-fuzz", "0.13.1"));
    }

    #[test]
    fn who_is_not_there_has_no_version() {
        assert!(!is_version(Path::new("/nowhere/cargo-fuzz"), "cargo-fuzz", "0.13.1"));
    }
}
