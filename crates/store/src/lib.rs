//! Objects, versions and tables: what an operation does to a shard's log and index.
//!
//! The log is the only storage. An object is an entry; a deleted key keeps a tombstone, through which its versions go on
//! when it is created again; the index maps a key's hash to the newest entry of either kind. Results and observable
//! state depend on parameters and the objects touched alone (R4.8): a witness's replay gives the same bytes.
//!
//! An update is drafted first, which writes nothing; then its size is known. The caller opens the entry group, so that
//! the completion record goes into the same one (R4.1, E4), and says what is dead afterwards. This crate knows nothing of
//! clients, replication or gates.
//!
//! Whether a key is unsynced (CURP 4.3) is not known here: the node notes it by key (decision 0019).

mod change;
mod commands;
mod draft;
mod entry;
mod execute;
mod expiries;
mod graves;
mod long_double;
mod near;
mod number;
mod read;
mod relocation;
mod run;
mod scan;
mod store;
mod tables;
mod write;

pub use draft::{Draft, SpareDraft};
pub use entry::{FLUSHED_BYTES, Flushed, Object, Tombstone};
pub use expiries::Ending;
pub use read::ReadResult;
pub use relocation::{LookUp, Movable, REWRITTEN_BYTES};
pub use run::Moment;
pub use store::{Store, StoreStats, is_sound};
