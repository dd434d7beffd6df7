//! The real binary as real processes on loopback, for the tests beside this file.
//!
//! `process` runs the binary and reads its output. `cluster` is three servers, each configured in another way. `apart`
//! is a cluster of any size with a coordinator of its own, `group` one whose coordinator is a group of three. `load` is a client that keeps account of what it was told;
//! `session` is one that waits for nobody else. `greeting` is a client's first frame, `resp` a connection in the Redis protocol. `place` has folders and ports. `campaign` draws faults from a seed, and
//! has the whole history judged (`cargo xtask process-tests`). Nothing here measures time: every wait polls, and gives
//! up after [`PATIENCE`], which only a hang reaches.
// The tests are about processes, clocks and sleeps.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod apart;
pub mod campaign;
pub mod cluster;
pub mod greeting;
pub mod group;
pub mod load;
pub mod place;
pub mod process;
pub mod resp;
pub mod session;

use std::time::{Duration, Instant};

use kasha_client::ClientOptions;

/// How long anything may take on a slow machine before it counts as stuck.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// A client that gives up only when something hangs.
#[must_use]
pub fn patient() -> ClientOptions {
    ClientOptions { connect_timeout: PATIENCE, deadline: PATIENCE, ..ClientOptions::default() }
}

/// Polls until there is an answer.
///
/// # Panics
/// If there is none within [`PATIENCE`], with the last error.
pub fn wait_for<T>(what: &str, mut poll: impl FnMut() -> Result<T, String>) -> T {
    let started = Instant::now();
    loop {
        match poll() {
            Ok(found) => return found,
            Err(complaint) => assert!(started.elapsed() < PATIENCE, "no {what} yet: {complaint}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
