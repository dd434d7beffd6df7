//! Limits of a log; the reason stands beside each.

/// Smallest segment: a digest and a useful group must fit. Tests use it; production uses
/// [`kasha_types::limits::SEGMENT_BYTES`].
pub const SEGMENT_BYTES_MIN: u32 = 4096;

/// Largest segment: offsets within one are 32 bits with room to add two of them.
pub const SEGMENT_BYTES_MAX: u32 = 1 << 30;

/// Epochs that a digest names: bounds the digest. A replica more than this many fail-overs behind is copied anew.
pub const EPOCH_HISTORY_MAX: usize = 64;

/// Segments that a backup may hold above its memory limit: one in so many of the limit, and three. It frees a segment
/// only once it knows that the primary's record of the freeing is synced, so it always runs a little behind.
pub const BACKUP_SLACK_PART: u64 = 8;
