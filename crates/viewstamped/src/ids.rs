//! The quantities of a group.

use std::fmt;

pub use kasha_types::MemberId;

/// A view: a time in which one member leads. Nobody computes the leader from a list, which may just be changing. Two members that wish
/// for the same number wish for different views.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct View {
    /// Later views have greater numbers.
    pub number: u64,
    /// Who leads.
    pub leader: MemberId,
}

impl View {
    /// Before all views: nobody leads.
    pub const NONE: Self = Self { number: 0, leader: MemberId(0) };
}

/// A place in the log. The first operation has number 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct OpNumber(pub u64);

impl OpNumber {
    /// The place after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A round of a view. Numbers begin anew with each view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RoundNumber(pub u64);

/// A write to a member's disk. Numbers begin anew with each start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WriteNumber(pub u64);

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "view {} of {}", self.number, self.leader)
    }
}

impl fmt::Display for OpNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation {}", self.0)
    }
}
