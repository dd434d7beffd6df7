//! How long a key's value lives.

use std::num::NonZeroU64;

use kasha_types::ClusterTime;

/// Milliseconds from when a client began an update to when a value of the update ends. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime(NonZeroU64);

impl Lifetime {
    /// Longer than any clock goes.
    pub const LONGEST: Self = Self(NonZeroU64::MAX);

    /// `None`: a value that lives for no time is none.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Option<Self> {
        match NonZeroU64::new(millis) {
            Some(millis) => Some(Self(millis)),
            None => None,
        }
    }

    /// In milliseconds.
    #[must_use]
    pub const fn millis(self) -> u64 {
        self.0.get()
    }

    /// When a value ends whose update began then. A value whose end no clock reaches ends when clocks do.
    #[must_use]
    pub fn ends(self, begun: ClusterTime) -> ClusterTime {
        begun.after_millis(self.millis())
    }
}
