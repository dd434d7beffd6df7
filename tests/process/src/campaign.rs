//! The campaign: rounds of faults against real processes, under a load whose whole history is judged afterwards.
//!
//! `plan` draws a cluster and its faults from a seed. `field` has the processes and causes the faults, on the network
//! of `net` and the disks of `power` and `damage`. `load` is the clients, which write every call and its answer into
//! `book`; `redis` has programs of Redis, in every other round. `alone` has the faults with a phase of their own, in which `probe` measures the seconds until service for
//! `table`. `ballast` fills the shards of
//! half of the rounds, so that their logs are cleaned. `sums` adds up the counters, and `judge` shows the histories to porcupine and to `tests/cycles`. `round` is one round from
//! beginning to end. See docs/testing.md, "Real processes, real faults".

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub mod alone;
pub mod ballast;
pub mod book;
pub mod damage;
pub mod field;
pub mod judge;
pub mod lines;
pub mod lives;
pub mod load;
pub mod machine;
pub mod net;
pub mod plan;
pub mod power;
pub mod probe;
pub mod redis;
pub mod round;
pub mod sums;
pub mod table;
pub mod transactions;
pub mod transfers;

/// The reason why a round failed. Each has an exit code of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The test itself could not continue.
    Broken(String),
    /// An update was lost, doubled, or told differently.
    Wrong(String),
    /// Half of a transaction is there. No loss of power excuses that.
    Half(String),
    /// No fault was left, and something still did not happen.
    Stuck(String),
    /// A process ended by itself.
    Crashed(String),
    /// Porcupine did not decide in time.
    Undecided(String),
}

impl Failure {
    /// The exit code of the program.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::Broken(_) => 1,
            Self::Wrong(_) | Self::Half(_) => 3,
            Self::Stuck(_) => 4,
            Self::Crashed(_) => 5,
            Self::Undecided(_) => 6,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Broken(why) => write!(f, "THE TEST IS BROKEN: {why}"),
            Self::Wrong(why) => write!(f, "WRONG: {why}"),
            Self::Half(why) => write!(f, "HALF OF A TRANSACTION: {why}"),
            Self::Stuck(why) => write!(f, "NO PROGRESS: {why}"),
            Self::Crashed(why) => write!(f, "CRASH: {why}"),
            Self::Undecided(why) => write!(f, "UNDECIDED: {why}"),
        }
    }
}

/// Waits until a thread has come so far that `is_done` says so. False: the thread has ended before.
pub(crate) fn wait_for<T>(
    thread: &JoinHandle<T>,
    patience: Duration,
    stuck: &str,
    is_done: impl Fn() -> bool,
) -> Result<bool, Failure> {
    let began = Instant::now();
    while !is_done() {
        if thread.is_finished() {
            return Ok(false);
        }
        if began.elapsed() > patience {
            return Err(Failure::Stuck(format!("{stuck}, though the cluster is whole")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(true)
}

/// An operation on files, processes or networks failed, so that the test cannot continue.
pub(crate) fn broken(what: &str) -> impl FnOnce(std::io::Error) -> Failure + use<'_> {
    move |error| Failure::Broken(format!("{what}: {error}"))
}
