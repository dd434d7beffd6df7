//! Durability in one round trip (CURP): the witness store, and the client's rule for when an update is complete.
//!
//! [`Witness`] is the server half: one instance per (shard, list version), a set-associative table of requests that
//! the shard's backups may not hold yet (CURP 4.1, 4.2, C.2). [`Attempt`] is the client half: it says when an answer
//! and the acceptances of one attempt make an update durable (R2.1).
//!
//! What this crate refuses to know: messages, connections, files, and what a request means. It judges commutativity by
//! key hashes alone. Its caller checks shard, list version and epoch, performs the writes that
//! [`Witness::drain_records`] names, and lets no acceptance leave before they are durable (R5.3).
//!
//! Invariants: **C2** what a witness holds commutes pairwise; **C3** no update completes on a list that recovery will
//! not read: a frozen witness never accepts, and acceptances count only within one list version. A held request is
//! never overwritten; it goes only by full identity, (key hash, RpcId) (DESIGN 13.10).

mod completion;
mod layout;
pub mod limits;
mod marks;
mod persistence;
mod stats;
mod suspects;
mod witness;

pub use completion::{Attempt, Path, Verdict};
pub use layout::{FILE_HEADER_BYTES, FILE_SLOT_BYTES, FORMAT_VERSION, Identity, LoadError, Sizes};
pub use marks::{Ledger, Mode};
pub use stats::Stats;
pub use witness::{Recorded, Why, Witness};
