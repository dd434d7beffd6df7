//! What is true of a list of parts, found while it is decoded: so nobody goes through the parts again to know it.

use super::parts::PartOperation;
use crate::version::Level;

/// What is true of some of the parts, or of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Summary {
    /// One of them gives its key a lifetime.
    pub have_lifetime: bool,
    /// One of them says or tells a time of day.
    pub know_time_of_day: bool,
    /// All of them can only give memory back.
    pub only_free: bool,
    /// The level that all of them need (R7.6).
    pub level: Level,
}

impl Summary {
    /// Of no part.
    pub const EMPTY: Self =
        Self { have_lifetime: false, know_time_of_day: false, only_free: true, level: Level::FIRST };

    /// One more part.
    pub fn add(&mut self, part: &PartOperation<'_>) {
        self.have_lifetime |= part.has_lifetime();
        self.know_time_of_day |= part.knows_time_of_day();
        self.only_free &= part.only_frees();
        self.level = self.level.max(part.row().level);
    }
}

impl Default for Summary {
    fn default() -> Self {
        Self::EMPTY
    }
}
