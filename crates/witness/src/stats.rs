//! Counters of one instance: a fast path can be lost silently (DESIGN 13.15), so every rejection has its reason.

use crate::Why;

/// Counters since the instance was made or loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests newly held.
    pub accepted: u64,
    /// Requests accepted again because they were held already.
    pub repeated: u64,
    /// Slots that gcs emptied.
    pub dropped: u64,
    /// Suspects named to the primary.
    pub suspects: u64,
    /// Slots in use now.
    pub occupied: u32,
    /// Slots that could not be read at load. After a crash these are torn writes, never acknowledged.
    pub torn_at_load: u32,
    /// Slots dropped at load because the request lacked another of its slots (R5.5).
    pub incomplete_at_load: u32,
    pub(crate) rejected: [u64; Why::ALL.len()],
}

impl Stats {
    /// Requests rejected for this reason.
    #[must_use]
    pub fn rejected(&self, why: Why) -> u64 {
        self.rejected[why as usize]
    }

    /// Requests rejected for any reason.
    #[must_use]
    pub fn rejected_total(&self) -> u64 {
        self.rejected.iter().sum()
    }
}
