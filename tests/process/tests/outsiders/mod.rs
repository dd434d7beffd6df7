//! Directed tests of what outsiders found, as they tried it: `cargo xtask process-tests --only outsiders`.
//!
//! One file for each subject. A test that needs a fault which the simulator can draw has a scenario there, too.
// The tests are about processes, clocks and sleeps.
#![allow(clippy::disallowed_methods)]

mod crowd;
mod fork;
mod lifetimes;
mod listening;
mod memory;
mod names;
mod newcomer;
mod operation_keys;
mod status;
mod strangers;
mod wide;
mod wire_page;
