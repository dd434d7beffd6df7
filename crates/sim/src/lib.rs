//! Deterministic simulation of whole clusters.
//!
//! The same node, coordinator and client code as in production runs in a world of virtual time, where one seed decides
//! everything: the network, the disks, the clocks, what fails and when, and what clients ask for. Checkers watch the
//! frames and files, and search the clients' histories.

#![allow(clippy::disallowed_methods, reason = "sweeps run on several threads; a run itself has none")]

pub mod checkers;
pub mod clients;
pub mod clock;
pub mod cluster;
pub mod configurations;
pub mod digest;
pub mod disk;
pub mod faults;
pub mod history;
pub mod intensity;
pub mod network;
pub mod planted;
pub mod probes;
pub mod process;
pub mod run;
pub mod scenario;
pub mod stranger;
pub mod sweep;
pub mod tags;
pub mod trace;
pub mod traffic;
mod turning;
pub mod workload;
pub mod world;

pub use planted::Bug;
pub use run::{RunReport, SimOptions, run};
pub use scenario::Scenario;
pub use sweep::{SweepReport, sweep};
