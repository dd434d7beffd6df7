//! The environment variables of this program. One that is not known is refused, as an unknown line of a file of settings is: a
//! setting that has no effect does more harm than one that is missing.

use anyhow::{Result, anyhow, bail};
use clap::Command;
use tracing_subscriber::filter::{LevelFilter, Targets};

const LOG: &str = "KASHA_LOG";
const PREFIX: &str = "KASHA_";
/// Tests of this program set them.
const OF_TESTS: [&str; 3] = ["KASHA_TEST_", "KASHA_BIN", "KASHA_LAB"];

/// Wrong letters that are still taken for a slip.
const WRONG_LETTERS_MAX: usize = 2;

/// Kubernetes sets such variables for a service whose name is, or begins with, kasha.
fn is_of_kubernetes(name: &str) -> bool {
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT")
        || ["_TCP", "_UDP", "_SCTP"].iter().any(|protocol| name.contains("_PORT_") && name.contains(protocol))
}

fn names_in(command: &Command, into: &mut Vec<String>) {
    into.extend(command.get_arguments().filter_map(|argument| argument.get_env()?.to_str().map(str::to_owned)));
    command.get_subcommands().for_each(|command| names_in(command, into));
}

/// Refuses variables that no command knows.
pub fn check(commands: &[Command]) -> Result<()> {
    let mut known = vec![LOG.to_owned()];
    commands.iter().for_each(|command| names_in(command, &mut known));
    known.sort();
    known.dedup();
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        let is_ours = name.starts_with(PREFIX) && !OF_TESTS.iter().any(|prefix| name.starts_with(prefix));
        if is_ours && !known.iter().any(|known| *known == name) && !is_of_kubernetes(&name) {
            let near = known.iter().map(|known| (strsim::osa_distance(known, &name), known)).min();
            let meant = match near.filter(|(distance, _)| *distance <= WRONG_LETTERS_MAX) {
                Some((_, meant)) => format!("did you mean {meant}? Set that, or unset {name}"),
                None => format!("unset {name}, or call it otherwise if it is not for Kasha"),
            };
            bail!("the environment has {name}, which is no setting of Kasha's: {meant} (K0410)");
        }
    }
    Ok(())
}

/// What is logged, by `KASHA_LOG`.
pub fn log_filter() -> Result<Targets> {
    let text = std::env::var(LOG).unwrap_or_default();
    if text.trim().is_empty() {
        return Ok(Targets::new().with_default(LevelFilter::WARN));
    }
    let wrong = || anyhow!("{LOG}={text}: write off, error, warn, info, debug or trace (K0410)");
    // A word that is no level would be taken for the name of a module, and nothing would be logged.
    let is_level = |part: &str| part.contains('=') || part.trim().parse::<LevelFilter>().is_ok();
    if !text.split(',').all(is_level) {
        return Err(wrong());
    }
    text.parse().map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_service_of_kubernetes_sets_is_no_setting_of_ours() {
        for name in [
            "KASHA_SERVICE_HOST",
            "KASHA_SERVICE_PORT_HTTP",
            "KASHA_1_PORT",
            "KASHA_PORT_7400_TCP",
            "KASHA_PORT_7400_TCP_ADDR",
        ] {
            assert!(is_of_kubernetes(name), "{name}");
        }
        for name in ["KASHA_NODES", "KASHA_DATA", "KASHA_PORTS", "KASHA_SHARD"] {
            assert!(!is_of_kubernetes(name), "{name}");
        }
    }
}
