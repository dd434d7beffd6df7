//! Helpers of these tests: a network, or a notice that there can be none here; and waiting for a condition.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::time::{Duration, Instant};

use kasha_netlab::Netlab;

/// Longer than anything here takes on the slowest machine; only a failure waits for so long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A network, or a notice that there can be none here.
pub fn lab(hosts: usize, seed: u64) -> Option<Netlab> {
    match Netlab::available() {
        Ok(()) => Some(Netlab::start(hosts, seed).unwrap()),
        Err(reason) => {
            eprintln!("SKIPPED: {reason}");
            None
        }
    }
}

/// Waits until something holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
