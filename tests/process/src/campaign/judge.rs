//! Shows a history to porcupine (`tests/porcupine`), a linearizability checker that shares no code with Kasha.

use std::path::Path;
use std::process::Command;

use super::{Failure, broken};

/// The environment variable with the path of the judge's program. If it is not set, the campaign says that nobody
/// judged.
pub const PROGRAM: &str = "KASHA_PORCUPINE";

/// Lets the judge decide about a saved history. Returns what it said, in one line.
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
