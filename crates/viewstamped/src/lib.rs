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
//! [`Replica::is_confirmed`]; gives what is to be written to a [`Writer`], and does its [`journal::Step`]s; sees to the links; and names members by one life of their folders.
//!
//! `tests/` has a group under every fault, and a naive twin. The model of the same rules is `spec`, `group`.
//!
//! A counter on three members, over a network that loses nothing, and disks that take no time:
//!
//! ```
//! # use std::time::Duration;
//! # use kasha_types::Tick;
//! use kasha_viewstamped::{Lists, MemberId, Options, Output, Replica, State, Stored};
//!
//! #[derive(Clone)]
//! struct Counter(u64);
//!
//! impl State for Counter {
//!     fn permits(&self, operation: &[u8]) -> Result<(), String> {
//!         if operation == b"+1" { Ok(()) } else { Err("a counter counts".into()) }
//!     }
//!     fn apply(&mut self, _: &[u8]) {
//!         self.0 += 1;
//!     }
//!     fn digest(&self) -> u64 {
//!         self.0
//!     }
//!     fn snapshot(&self) -> Vec<u8> {
//!         self.0.to_le_bytes().to_vec()
//!     }
//!     fn restore(bytes: &[u8]) -> Result<Self, String> {
//!         Ok(Self(u64::from_le_bytes(bytes.try_into().map_err(|_| "eight bytes")?)))
//!     }
//! }
//!
//! let (mut now, options) = (Tick(0), Options::new(Duration::from_millis(500)));
//! let ids = [1, 2, 3].map(MemberId);
//! let mut members = ids.map(|id| {
//!     let disk = Stored::new(Lists::new(ids), Counter(0).snapshot());
//!     Replica::<Counter, ()>::start(id, options, disk, (), id.0, now).unwrap()
//! });
//! let mut proposed = false;
//! while members.iter().any(|member| member.committed().0 == 0) {
//!     now = now.after(Duration::from_millis(1));
//!     for index in 0..3 {
//!         members[index].on_tick(now);
//!         if members[index].leads() && !proposed {
//!             proposed = members[index].propose(now, b"+1".to_vec()).is_some();
//!             members[index].flush();
//!         }
//!         for output in members[index].take_output() {
//!             match output {
//!                 Output::Send { to, message } => members[to.0 as usize - 1].on_message(now, ids[index], message),
//!                 Output::Write { number, .. } => members[index].on_durable(now, number),
//!                 Output::Leads { .. } | Output::Deposed { .. } | Output::Stops(_) => {}
//!             }
//!         }
//!     }
//! }
//! assert!(members.iter().all(|member| member.committed().0 == 1));
//! ```

mod change;
mod codec;
mod election;
mod gathering;
mod ids;
pub mod journal;
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
mod writer;

pub use change::ChangeError;
pub use codec::Malformed;
pub use ids::{MemberId, OpNumber, RoundNumber, View, WriteNumber};
pub use limits::MEMBERS_MAX;
pub use lists::{Change, Lists};
pub use log::{Base, Entry, Piece, Snapshot};
pub use message::{Message, PieceAt};
pub use options::Options;
pub use output::{Output, Record, Stored, Trouble};
pub use replica::Replica;
pub use state::{Memory, State};
pub use writer::Writer;
