//! The coordinator: the cluster's configuration, committed one change at a time (DESIGN section 9).
//!
//! [`State`] is a deterministic state machine over a log of [`Command`]s, which a group replicates (`viewstamped`; the group
//! has one member as yet). Every choice (which node becomes primary, which nodes are witnesses) is made before and stands in the
//! command. [`Coordinator`] is the machine around the state. While it leads, it judges leases, decides commands, appends
//! them, and answers only when they are committed: when a quorum of the group has them on its disks.
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

mod administering;
mod check;
mod clients;
mod command;
mod evidence;
mod format4;
mod giving_up;
mod goodbye;
mod group;
mod hearing;
mod hears_most;
mod lead;
mod leases;
mod ledger;
pub mod limits;
mod listening;
mod machine;
mod member;
mod members;
mod membership;
mod memory;
mod mending;
mod options;
mod outbox;
mod overtaken;
mod placement;
mod remembered;
mod repair;
mod replicated;
mod reports;
mod sessions;
mod start_error;
mod state;
mod storage;
mod tables;
mod time;
mod timing;

pub use command::Command;
pub use limits::GROUP_MAX;
pub use machine::Coordinator;
pub use memory::{Forgotten, Loss};
pub use options::{CoordinatorOptions, Unchosen};
pub use overtaken::Overtaken;
pub use start_error::{Place, StartError};
pub use state::State;
pub use timing::Timing;
