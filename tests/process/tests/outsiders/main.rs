//! Directed tests of what outsiders found, as they tried it: `cargo xtask process-tests --only outsiders`.
//!
//! One file for each subject. A test that needs a fault which the simulator can draw has a scenario there, too.
#![allow(missing_docs)]

mod lifetimes;
mod memory;
mod newcomer;
mod status;
