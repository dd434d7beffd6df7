//! The coordinator: the cluster's configuration, committed one change at a time (DESIGN section 9).
//!
//! [`State`] is a deterministic state machine over a durable log of [`Command`]s. Every choice (which node becomes
//! primary, which nodes are witnesses) is made before and stands in the command, so that consensus can take the log's
//! place later. [`Coordinator`] is the machine around the state. It judges leases, decides commands, appends them, and
//! answers only when they are committed: when they are on its file (persist, then notify).
//!
//! It refuses to know what a shard holds, how a log is recovered or how a witness is replayed. It commits which node
//! may do that, and believes the primary's report of what is done. It is never on the path of an update.
//!
//! Invariants: **F1** a primary that has served in its term is replaced only when no core of its node can hold a lease,
//! or its process is dead; **F2** epochs, list versions, configuration versions, ClusterTime and client ids only grow,
//! across restarts too; **R6.2** a new witness list is committed only after the primary's report; **R7.2** only
//! complete members of the set that last served are elected; **R4.6**, **R4.7** leases, verdicts and reservations;
//! **R9.13** a coordinator that has forgotten something decides nothing; **D3** nothing leaves before it is committed.
//! Papers: RIFL section 5 (ClusterTime, leases), CURP 3.5 (reconfiguration).

mod check;
mod clients;
mod command;
mod evidence;
mod giving_up;
mod goodbye;
mod hearing;
mod lead;
mod leases;
mod ledger;
pub mod limits;
mod listening;
mod machine;
mod member;
mod memory;
mod mending;
mod options;
mod outbox;
mod overtaken;
mod placement;
mod repair;
mod reports;
mod sessions;
mod state;
mod storage;
mod tables;
mod time;

pub use command::Command;
pub use machine::Coordinator;
pub use memory::{Forgotten, Loss};
pub use options::{CoordinatorOptions, StartError, Unchosen};
pub use overtaken::Overtaken;
pub use state::State;
