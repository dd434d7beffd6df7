//! How a shard's log gets onto its replica set, and back from it (DESIGN sections 5 and 7).
//!
//! - [`ReplicaMeta`]: what a replica remembers beside its log: the epoch that it promised, and whether it surely holds
//!   everything that it ever acknowledged (R5.5).
//! - [`Election`]: the reports of a fenced set, and the log that a new primary must take.
//! - [`Shipping`]: a primary's view of its members: attach, ship, copy, and the synced position.
//!
//! Invariants: **R7.2** syncs count only against the committed set: [`Shipping`] takes its members from the
//! configuration, and from nothing else. **D2** synced data survives. **F2** promised epochs only grow.
//!
//! `node` calls this crate. The crate knows nothing of what entries mean.

mod election;
mod meta;
mod peer;
mod progress;
mod shipping;

pub use election::{Choice, Election, FenceReport, Quorum};
pub use meta::{MetaError, ReplicaMeta};
pub use peer::{MemberCore, Peer, PeerProgress, PeerState};
pub use shipping::{CLOSING_MARK, Company, Pace, Shipping, history_of};
