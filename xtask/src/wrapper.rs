//! What cargo runs in place of rustc for the crates of this workspace, in the build that judges share (`ci`).
//!
//! A crate with unit tests is compiled twice: as a library, and once more with its tests. To optimize takes three times as
//! long as all else that rustc does, and nearly all tests take less time than that. A profile of cargo cannot tell the two apart. So the
//! library, of which the simulator's programs are made, is optimized as the profile says, and a program with tests is not, unless it
//! searches.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

/// Set for cargo, and so for the wrapper: this program is to behave as rustc.
const ASKED: &str = "KASHA_XTASK_IS_RUSTC";

/// Programs with tests that search for minutes, by the folders of their roots.
const SEARCHES: [&str; 4] =
    ["crates/distributed/tests/", "crates/properties/tests/", "crates/sim/tests/", "crates/viewstamped/tests/"];

/// Makes cargo run this program in place of rustc.
pub(crate) fn ask(cargo: &mut Command) -> Result<()> {
    let own = env::current_exe().context("this program has no path")?;
    cargo.env("RUSTC_WORKSPACE_WRAPPER", own).env(ASKED, "1");
    Ok(())
}

/// Becomes rustc, if cargo asks for it. Returns only if not, or if there is no rustc.
pub(crate) fn become_rustc() -> Option<ExitCode> {
    env::var_os(ASKED)?;
    let words: Vec<OsString> = env::args_os().skip(1).collect();
    let (program, words) = words.split_first()?;
    let mut rustc = Command::new(program);
    rustc.args(words).env_remove(ASKED);
    if has_tests(words) && !searches(words) {
        // The last one counts.
        rustc.args(["-C", "opt-level=0"]);
    }
    let error = rustc.exec();
    eprintln!("error: {error}: {}", program.display());
    Some(ExitCode::FAILURE)
}

fn has_tests(words: &[OsString]) -> bool {
    words.iter().any(|word| word == "--test")
}

fn searches(words: &[OsString]) -> bool {
    let root = words.iter().filter_map(|word| word.to_str()).find(|word| word.ends_with(".rs"));
    root.is_some_and(|root| SEARCHES.iter().any(|folder| root.contains(folder)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_searches_are_optimized_among_programs_with_tests() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let library = words("--crate-name kasha_store --edition=2024 crates/store/src/lib.rs -C opt-level=3");
        assert!(!has_tests(&library));
        let units = words("--crate-name kasha_distributed --edition=2024 crates/distributed/src/lib.rs --test");
        assert!(has_tests(&units) && !searches(&units));
        let search = words("--crate-name kasha_distributed --edition=2024 crates/distributed/tests/all.rs --test");
        assert!(has_tests(&search) && searches(&search));
    }
}
