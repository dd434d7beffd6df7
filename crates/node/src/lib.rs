//! One core of one node: the only crate that composes the server-side protocols.
//!
//! A [`Node`] is a state machine ([`kasha_machine::Machine`]) that hosts the replicas and witness instances of the
//! shards that live on its core. The runtime and the simulator run the same one.
//!
//! | file | what it is |
//! |---|---|
//! | `request`, `request_path` | one update, from frame to answer, as one function |
//! | `operation_keys`, `expiry` | how a user's own keys name updates, and go; how values go whose time is over |
//! | `reads`, `scan` | one read; one page of a listing |
//! | `primary` | a primary's term: fence, take the log, replay, sync, serve |
//! | `serving`, `cleaner`, `relocation` | what a serving primary does besides: gc, expiry, freeing, cleaning, transactions |
//! | `backup` | the other end of replication |
//! | `replica`, `site` | a shard's replica: its copy of the log, its state, its role; what handlers of the role borrow |
//! | `copy`, `state`, `replay`, `unfinished`, `transactions` | a shard's log, what is derived from it, and how that follows the log |
//! | `witnessing` | the witness instances of this core |
//! | `ending` | the last turns of a process that was asked to stop |
//! | `configure` | obeying the committed configuration |
//! | `links` | which other nodes are heard |
//! | `core` | what is one for all shards of a core |
//! | `view`, `replay_check` | what a core says of itself; for the simulator, whether a replay comes to its state |
//! | `node`, `dispatch`, `heartbeat`, `told`, `told_time` | starts and turns; what comes from outside, what a core tells; what it was told (R9.13) |
//!
//! Invariants asserted here: **E4** (one entry group per update), **D3** (every answer carries a gate), **F1**/**F2**
//! (terms only grow; reads need a lease), **R7.1** (nothing is served that was not promoted to in this incarnation).

mod backup;
mod cleaner;
mod configure;
mod copy;
mod core;
mod dispatch;
mod ending;
mod expiry;
mod heartbeat;
mod links;
mod node;
mod operation_keys;
mod options;
mod primary;
mod reads;
mod relocation;
mod replay;
mod replay_check;
mod replica;
mod request;
mod request_path;
mod scan;
mod send;
mod serving;
mod site;
mod state;
mod told;
mod told_time;
mod transactions;
mod unfinished;
mod view;
mod witnessing;

pub use kasha_log::Buffers;
pub use kasha_replication::Pace;
pub use node::Node;
pub use options::{Answers, ExactlyOnce, NodeOptions, StartError, Votes};
