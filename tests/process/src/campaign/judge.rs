//! Shows a history to porcupine (`tests/porcupine`), which shares no code with Kasha.

use std::path::Path;
use std::process::Command;

use super::{Failure, broken};

/// Where the judge's program is; without it nobody is asked, and that is said.
pub const PROGRAM: &str = "KASHA_PORCUPINE";

/// Judges a saved history. What it said, in one line.
///
/// # Errors
/// [`Failure::Wrong`] and [`Failure::Undecided`], as it decides.
pub fn judge(history: &Path) -> Result<String, Failure> {
    let Some(program) = std::env::var_os(PROGRAM) else {
        return Ok(format!("SKIPPED: {PROGRAM} names no program, so porcupine was not asked"));
    };
    let mut command = Command::new(program);
    command.arg("-html").arg(history.with_extension("html")).arg(history);
    let output = command.output().map_err(broken("porcupine does not start"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        Some(0) => Ok(said.lines().map(|line| line.trim_start_matches("porcupine: ")).collect::<Vec<_>>().join("; ")),
        Some(1) => Err(Failure::Wrong(format!("porcupine finds no order\n{said}"))),
        Some(3) => Err(Failure::Undecided(said)),
        _ => Err(Failure::Broken(format!("porcupine: {}\n{said}{complaint}", output.status))),
    }
}
