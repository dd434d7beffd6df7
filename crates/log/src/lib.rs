//! One shard's log replica in memory: fixed-size segments of atomic entry groups, as in RAMCloud (RIFL report II-B,
//! IV-A; DESIGN section 5).
//!
//! A primary appends groups in place ([`Log::begin`]), a backup the same bytes as they come ([`Log::append_raw`]), a
//! restarted process finds them in its files ([`Log::load`]). A group is all there or not at all (E4, R4.1). Segment
//! `n` holds the offsets from `n × segment_bytes`, its file is its bytes, and offsets never restart.
//!
//! Refuses to know what an entry means, but for its own kinds: digest, freed segment, epoch start. Which entries are
//! still needed is for the owners of the kinds to say ([`Log::kill`]). Knows no files, no peers, and no time: when
//! something is synced, the caller says.
//!
//! Invariants: **D4** a torn tail loses no synced group, and nothing but the torn tail is dropped unreported. **E4**
//! groups are atomic. **F2** epochs only grow along the log. A refused call changes nothing. No input of bytes panics.
//!
//! The bytes are described in [`mod@format`]. Callers: replication and node.

mod append;
mod cleaning;
pub mod format;
mod history;
mod index;
mod limits;
mod liveness;
mod load;
mod log;
mod memory;
mod raw;
mod read;
mod room;
mod segment;
mod truncate;
mod verify;

pub use append::{Appended, Full, GroupWriter, Part, Purpose};
pub use cleaning::{Census, DamagedGroup, Victim};
pub use format::{EntryKind, FORMAT_VERSION, GROUP_HEADER_BYTES, GroupStart, entry_bytes};
pub use history::common_prefix;
pub use index::{Enough, Index, IndexBucket, IndexCursor, ScanPosition};
pub use kasha_types::{ENTRY_HEADER_BYTES, EntryOffset};
pub use limits::{BACKUP_SLACK_PART, EPOCH_HISTORY_MAX, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, TAKEOVER_SEGMENTS};
pub use load::{Damage, DamageKind, LoadReport};
pub use log::{Log, LogConfig, LogStats};
pub use memory::Buffers;
pub use raw::AppendError;
pub use read::{Cursor, Group};
pub use room::MemoryLeft;
pub use truncate::{NotABoundary, Truncated};
pub use verify::{Entries, Entry, GroupFault, Screen};
