//! Deterministic simulation of whole clusters.
//!
//! The same node, coordinator and client code as in production runs in a world of virtual time ([`world`]). One seed
//! decides everything: the network ([`network`]), the disks ([`disk`]), the clocks ([`clock`]), what fails and when
//! ([`faults`], [`intensity`]), and what clients ask for ([`workload`]). A [`Scenario`] says what kind of run it is.
//!
//! A run has two phases. In the first, anything may fail that the design promises to survive. In the second, everything
//! is healed and must converge ([`mod@run`]). Checkers ([`checkers`]) watch every frame and file while the run goes on,
//! check each claim of a process against the files, and search what clients were told at the end ([`history`]). They
//! know the wire and file formats by their documentation. Of a machine's state they know only its status.
//!
//! A failing run prints one line that repeats it. The same seed gives the same digest ([`digest`]). Rules can be broken
//! on purpose, to see that a checker notices ([`planted`]). More in `docs/testing.md`.

#![allow(clippy::disallowed_methods, reason = "sweeps run on several threads; a run itself has none")]

pub mod bad_links;
pub mod checkers;
pub mod clients;
pub mod clock;
pub mod cluster;
pub mod configurations;
pub mod coordinator_cut;
pub mod cover;
pub mod digest;
pub mod disk;
pub mod faults;
pub mod front;
pub mod history;
pub mod intensity;
pub mod interactive;
pub mod mutants;
pub mod network;
mod operator;
pub mod planted;
pub mod prober;
pub mod probes;
pub mod process;
pub mod redis;
pub mod rogue;
pub mod run;
pub mod scenario;
pub mod shared_session;
pub mod sharer;
pub mod shares;
pub mod stranger;
pub mod streams;
pub mod sweep;
pub mod trace;
pub mod traffic;
mod turning;
pub mod workload;
pub mod world;

pub use planted::Bug;
pub use run::{RunReport, SimOptions, run};
pub use scenario::Scenario;
pub use sweep::{SweepReport, sweep};
