//! Programs that cargo installs for this tool: each of one version, below the target folder, so that nobody's own version
//! is touched.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use crate::workspace::{Workspace, cargo};

/// Where this version of a program is. If it is not there, `install` runs the command that installs it; what may be
/// printed and how long it may take is the caller's business.
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
        // What is there is another version, or does not run: cargo would leave that one where it is.
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

/// The whole line: 0.2.0 is not 0.2.01.
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
