//! This crate's limits; those it shares with others are in `kasha_types::limits`.

/// Key hashes of one request. Each takes a slot with a copy of the body: one request must not fill a table, nor hold
/// up a turn by more than 64 copies of 2 KiB.
pub const REQUEST_KEYS_MAX: usize = 64;

/// Slots of one instance: its file is read whole at start, 4 KiB a slot.
pub const SLOTS_MAX: u32 = 64 * 1024;

/// Ways of one set: they are scanned one by one.
pub const WAYS_MAX: u8 = 16;

/// Suspects named by one gc. The primary looks each up, so one answer must stay a small piece of work.
pub const SUSPECTS_PER_GC_MAX: usize = 16;

/// Suspects that rejections may queue for the next gc; the rest of its names are left to the scan, so that a hot key
/// cannot keep the scan from moving on.
pub const MARKED_MAX: usize = SUSPECTS_PER_GC_MAX / 2;

/// Slots that one gc scans for suspects: 4096 slots are seen in 64 gcs, within a second under load.
pub const SCANNED_PER_GC_MAX: u32 = 64;

/// Dropped slots that one turn empties on file. Under load a dropped slot is soon overwritten anyway, so emptying it
/// would double the writes for nothing; an idle witness catches up.
pub const EMPTIED_PER_TURN_MAX: usize = 64;
