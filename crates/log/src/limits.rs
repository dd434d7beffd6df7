//! Limits of a log; the reason stands beside each.

/// Smallest segment: a digest and a useful group must fit. Tests use it; production uses
/// [`kasha_types::limits::SEGMENT_BYTES`].
pub const SEGMENT_BYTES_MIN: u32 = 4096;

/// Largest segment: offsets within one are 32 bits with room to add two of them.
pub const SEGMENT_BYTES_MAX: u32 = 1 << 30;

/// Epochs that a digest names: bounds the digest. A replica more than this many fail-overs behind is copied anew.
pub const EPOCH_HISTORY_MAX: usize = 64;

/// Segments beyond those of the cleaner that a new primary may fill with what its witness holds. The bodies of puts fill one at most
/// ([`kasha_types::limits::SEGMENT_BYTES`]); their records, and the ends of segments that the next group did not fit into, take less
/// than another. An append logs its value anew, and an exchange the value before, so that many of them on large values can take more.
pub const TAKEOVER_SEGMENTS: u64 = 2;

/// Segments that a backup may hold above what a primary may: one in so many of the limit, and one. It frees a segment only
/// once it knows that the primary's record of the freeing is synced, so it always runs a little behind.
pub const BACKUP_SLACK_PART: u64 = 16;

const _: () = {
    use kasha_types::limits::{SEGMENT_BYTES, WITNESS_BODY_BYTES_MAX, WITNESS_SLOTS};
    assert!(WITNESS_SLOTS * WITNESS_BODY_BYTES_MAX <= SEGMENT_BYTES as usize, "TAKEOVER_SEGMENTS");
};
