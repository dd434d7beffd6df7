//! One participant of distributed transactions (Granola 4; DESIGN section 8).
//!
//! A transaction over several shards is proposed at each of its participants, which exchange votes. An *independent* one commits
//! if all participants propose, and is executed everywhere at the highest proposed timestamp, without locks. A *coordinated* one
//! locks its keys at each participant, which may also vote against it.
//!
//! ```text
//!            on_request       on_synced       votes of all       nothing that conflicts       gate opens       all say so
//! request ─▶ Propose ─ log ─▶ durable: vote ─▶ final timestamp ─▶ can come before: Execute ─▶ settled here ─▶ settled
//!              │                                                                                    │             │
//!              └▶ Wait, Conflict      a vote against ─▶ End                                      answered      forgotten
//! ```
//!
//! [`Participant`] keeps what one shard's primary knows. Its caller owns log, network and clocks: it logs what the participant
//! tells it to, says when that is synced, carries [`Word`]s between participants, executes, and sends answers when their gates
//! have opened. What is unknown here, the caller looks up: only it knows which ids are stale (R8.11).
//!
//! Rules kept here: R8.1, R8.3 to R8.9 and R8.11 of the design, and its invariants T1 (one timestamp), T2 (conflicts execute
//! in the order of timestamps), T3 (what was answered is strictly serializable), T4 (everything ends). Not here: votes that
//! imply others (R8.2). A client never decides (0032).
//!
//! `tests/` has the search that judges it, and the rules that are left out one at a time. The model of the same rules is `spec`,
//! `distributed`.

mod aging;
mod footprint;
mod fresh;
mod gates;
mod participant;
mod pending;
mod record;
mod retention;
mod steps;
mod told_gates;
mod turns;
mod two_phase;
mod word;

use std::fmt;

pub use aging::Aging;
pub use footprint::Footprint;
pub use gates::{GateId, Origin};
pub use participant::Participant;
pub use steps::{Arrival, Step};
pub use turns::{Age, Lost, Patience, Turns};
pub use word::{Behind, Said, Why, Word};

/// A place in the order of distributed transactions: microseconds of cluster time, or more if the order needs it. Equal ones are
/// ordered by request id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The timestamp after this one.
    ///
    /// # Panics
    /// After half a million years of microseconds.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("timestamps are exhausted"))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.0)
    }
}

/// How a transaction reaches its decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Each participant alone reaches the same decision: it commits. No lock is taken.
    Independent,
    /// Each participant votes, and its keys are locked from there to the outcome.
    Coordinated,
}

/// A distributed transaction, as one participant gets it. The participants are in the body, and never change (R8.11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Whether the participants need votes and locks.
    pub class: Class,
    /// A checksum of all that the client asks for, which is the same at each participant. If a client asks for different things
    /// under one id, a participant takes part in one of them at most.
    pub body: u64,
    /// All participants, this one too.
    pub participants: Vec<kasha_types::ShardId>,
    /// What it touches here.
    pub footprint: Footprint,
}
