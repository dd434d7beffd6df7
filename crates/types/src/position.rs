//! Positions in logs and files.
//!
//! **F2** An epoch's positions only grow. A position in a log names its epoch, so that positions of two histories
//! cannot be confused.

use std::fmt;

use crate::{Epoch, ShardId};

/// A place in a shard's log: the epoch whose primary wrote there, and the offset in bytes since the log began.
///
/// Offsets never restart: a new epoch goes on where the log it inherited ends, so positions of one history compare
/// by offset, and positions of two histories compare by epoch first (section 7: "the greatest (last entry's epoch,
/// end)").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LogPosition {
    /// The epoch whose primary wrote there.
    pub epoch: Epoch,
    /// Bytes since the log began.
    pub offset: u64,
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
