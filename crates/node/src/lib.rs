//! One core of one node: the only crate that composes the server-side protocols.
//!
//! A [`Node`] is a state machine ([`kasha_machine::Machine`]) that hosts the replicas and witness instances of the
//! shards that live on its core. The runtime and the simulator run the same one.
//!
//! | folder | what is in it |
//! |---|---|
//! | `node` | a core's turns: what comes from outside, the committed configuration, heartbeats, links, the stop, what it says of itself |
//! | `core` | what is one for all shards of a core: files, clocks, configuration, what the coordinator told (R9.13) |
//! | `shard` | a shard's replica and its role; below that its copy of the log, what is derived from the log and how that follows it, its term |
//! | `request` | one update, from frame to answer, as one function (`run`); one read; one page of a listing |
//! | `primary` | how a term begins: fence, take the log, replay, sync, serve |
//! | `serving` | what a serving primary does besides: what waited comes in again, gc, expiry, cleaning, transactions |
//! | `backup` | the other end of replication |
//! | `witnessing` | the witness instances of this core |
//!
//! Imports run from the steps of a role to data below: no circle of files is larger than six, and each is inside one folder
//! (`cargo xtask tidy`).
//!
//! Invariants asserted here: **E4** (one entry group per update), **D3** (every answer carries a gate), **F1**/**F2**
//! (terms only grow; reads need a lease), **R7.1** (nothing is served that was not promoted to in this incarnation).

mod backup;
mod core;
mod node;
mod primary;
mod request;
mod serving;
mod shard;
mod witnessing;

pub use crate::node::Node;
pub use crate::node::options::{Baseline, NodeOptions, StartError};
pub use kasha_log::Buffers;
pub use kasha_replication::Pace;
