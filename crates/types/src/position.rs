//! Positions in logs and files.
//!
//! ```text
//!    a group            a group                     the number line of a log: bytes since the log began
//!  ├───┬────┬─────┤├───┬─────┬─────┤
//!      ▲          ▲    ▲           ▲
//!      │          │    │           └ LogEnd: everything before it is written, held, synced …
//!      │          │    └ EntryOffset: an entry begins here
//!      │          └ LogEnd
//!      └ EntryOffset                                a LogEnd covers an entry if it is greater
//! ```
//!
//! Groups are atomic, so a log ends where a group ends. A bare number is a byte's offset, or a number of bytes.
//!
//! **F2** An epoch's positions only grow. A position in a log names its epoch, so that positions of two histories
//! cannot be confused.

use std::fmt;

use crate::{Epoch, ShardId};

/// Bytes of the header of a log entry, which stands in front of the entry's payload.
pub const ENTRY_HEADER_BYTES: u32 = 8;

/// Place of an entry's header: bytes since the log began. What an index holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EntryOffset(pub u64);

impl EntryOffset {
    /// Where the entry's payload lies, for naming it in a [`LogSlice`].
    #[inline]
    #[must_use]
    pub fn payload(self) -> u64 {
        self.0 + u64::from(ENTRY_HEADER_BYTES)
    }

    /// The least position that covers the entry. No group ends there. But logs are held and synced in whole groups, so
    /// whoever waits for this position waits for the end of the entry's group.
    #[inline]
    #[must_use]
    pub fn end_after(self) -> LogEnd {
        LogEnd(self.0 + 1)
    }
}

/// A position up to which a log is meant: "written to here", "synced to here". The offset just behind the last byte.
///
/// An entry's place is none, and neither is a number of bytes:
///
/// ```compile_fail,E0308
/// # use kasha_types::{EntryOffset, LogEnd};
/// fn is_synced(synced: LogEnd, entry: EntryOffset) -> bool {
///     synced >= entry // `synced.covers(entry)`
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LogEnd(pub u64);

impl LogEnd {
    /// Where a log begins: nothing lies before it, and nobody needs to wait for it.
    pub const START: Self = Self(0);
    /// Behind everything that a log ever holds.
    pub const MAX: Self = Self(u64::MAX);

    /// Whether the entry lies before this position, and so does its whole group.
    #[inline]
    #[must_use]
    pub fn covers(self, entry: EntryOffset) -> bool {
        entry.0 < self.0
    }

    /// Offset of the last byte before it. `None`: nothing is before it.
    #[inline]
    #[must_use]
    pub fn last_byte(self) -> Option<u64> {
        self.0.checked_sub(1)
    }

    /// Whether a segment begins here, if segments have so many bytes.
    #[inline]
    #[must_use]
    pub fn is_segment_base(self, segment_bytes: u32) -> bool {
        self.0.is_multiple_of(u64::from(segment_bytes))
    }

    /// Bytes from `earlier` to here; 0 if `earlier` is the later one.
    #[inline]
    #[must_use]
    pub fn bytes_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Debug for LogEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for LogEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// How far a shard's log goes: the epoch whose primary wrote the last group, and where that group ends.
///
/// Offsets never restart: a new epoch goes on where the log it inherited ends, so positions of one history compare
/// by offset, and positions of two histories compare by epoch first (section 7: "the greatest (last entry's epoch,
/// end)").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LogPosition {
    /// The epoch whose primary wrote the last group.
    pub epoch: Epoch,
    /// Where the group ends.
    pub offset: LogEnd,
}

impl fmt::Debug for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.offset, self.epoch)
    }
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Number of a segment: the segment holds the log's offsets from `number * segment_bytes`, the node's option.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SegmentId(pub u32);

impl fmt::Debug for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment-{}", self.0)
    }
}

/// Bytes in one shard's log, named instead of copied. Never crosses a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSlice {
    /// The shard whose log it is.
    pub shard: ShardId,
    /// Offset of the first byte since the log began.
    pub offset: u64,
    /// Number of bytes.
    pub len: u32,
}

impl LogSlice {
    /// The position just before its first byte.
    #[inline]
    #[must_use]
    pub fn start(self) -> LogEnd {
        LogEnd(self.offset)
    }

    /// The position just behind its last byte.
    #[inline]
    #[must_use]
    pub fn end(self) -> LogEnd {
        LogEnd(self.offset + u64::from(self.len))
    }
}

/// Number of a primary's sync round, from 1. It grows by one with each round of the epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Round(pub u64);

impl Round {
    /// The round after this one.
    #[inline]
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Debug for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// One core's count of file commits: everything that was written before commit `n` is on its file when `Durable(n)` was
/// reported.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LocalPosition(pub u64);

impl LocalPosition {
    /// The commit after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Debug for LocalPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "local-{}", self.0)
    }
}
