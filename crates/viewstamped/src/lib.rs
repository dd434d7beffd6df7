//! A replicated log for a small group, in the manner of Viewstamped Replication (STORAGE B; Granola 5.1).
//!
//! A [`Replica`] is one member. It has no clock, no network and no disk: messages, ticks and finished writes go in, and
//! [`Output`]s come out. One member leads a [`View`]; an operation that the leader proposes is committed when a quorum has
//! it on its disks, and then every member applies it. A question is answered by a leader that has made a round *since* (R9.2). When the
//! leader is gone another one is elected, and has all that was committed.
//!
//! ```text
//!            propose          fsync of a quorum                      question          quorum answers
//! leader   ─ Prepare ─▶ others ─ Prepared ─▶ committed     leader  ─ Round ─▶ others ─ RoundOk ─▶ confirmed
//!            silence            quorum                fsync                 quorum of the newest list
//! any      ─ Wish ─▶ others ─ Support ─▶ Enter ─▶ others ─ Vote ─▶ leads, with the greatest log
//! ```
//!
//! Rules kept here: R9.1, R9.2, R9.3 ([`Output::Leads`]), R9.4 ([`Memory`]), R9.5 to R9.8, R9.10, R9.11. Who uses the crate holds back
//! what follows from an operation until [`Replica::committed_to`] has it, and what answers a question until
//! [`Replica::is_confirmed`]; sees to the links; and names members by one life of their folders.
//!
//! `tests/` has a group under every fault, and a naive twin. The model of the same rules is `spec`, `group`.

mod change;
mod election;
mod ids;
mod limits;
mod lists;
mod log;
mod message;
mod normal;
mod options;
mod output;
mod replica;
mod rounds;
mod state;
mod transfer;
mod wishes;

pub use change::ChangeError;
pub use ids::{MemberId, OpNumber, RoundNumber, View, WriteNumber};
pub use limits::MEMBERS_MAX;
pub use lists::{Change, Lists};
pub use log::{Base, Entry, Piece, Snapshot};
pub use message::Message;
pub use options::Options;
pub use output::{Output, Record, Stored, Trouble};
pub use replica::Replica;
pub use state::{Memory, State};
