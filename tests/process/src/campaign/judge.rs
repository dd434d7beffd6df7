//! Shows histories to judges that share no code with Kasha: single keys to porcupine (`tests/porcupine`), transactions to a judge
//! that looks for circles (`tests/cycles`).

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Output};

use super::{Failure, broken};

/// The environment variables with the paths of the judges' programs. If one is not set, the campaign says that nobody
/// judged.
pub const PORCUPINE: &str = "KASHA_PORCUPINE";
/// See [`PORCUPINE`].
pub const CYCLES: &str = "KASHA_CYCLES";

/// Lets porcupine decide about a saved history. Returns what it said, in one line.
///
/// # Errors
/// [`Failure::Wrong`] and [`Failure::Undecided`], as it decides.
pub fn judge(history: &Path) -> Result<String, Failure> {
    let drawing = history.with_extension("html");
    ask("porcupine", PORCUPINE, &["-html".into(), drawing.into(), history.into()])
}

/// Lets the other judge decide about a saved history of transactions. Returns what it said, in one line.
///
/// # Errors
/// [`Failure::Wrong`], as it decides.
pub fn judge_transactions(history: &Path) -> Result<String, Failure> {
    ask("cycles", CYCLES, &[history.into()])
}

fn ask(judge: &str, variable: &str, arguments: &[OsString]) -> Result<String, Failure> {
    let Some(program) = std::env::var_os(variable) else {
        return Ok(format!("SKIPPED: {variable} names no program, so this judge was not asked"));
    };
    let output = Command::new(program).args(arguments).output().map_err(broken("a judge does not start"))?;
    let Output { status, stdout, stderr } = output;
    let said = String::from_utf8_lossy(&stdout).into_owned();
    let complaint = String::from_utf8_lossy(&stderr).into_owned();
    let name = format!("{judge}: ");
    match status.code() {
        Some(0) => Ok(said.lines().map(|line| line.trim_start_matches(&name)).collect::<Vec<_>>().join("; ")),
        Some(1) => Err(Failure::Wrong(format!("{judge} finds no order\n{said}"))),
        Some(3) => Err(Failure::Undecided(said)),
        _ => Err(Failure::Broken(format!("{judge}: {status}\n{said}{complaint}"))),
    }
}
