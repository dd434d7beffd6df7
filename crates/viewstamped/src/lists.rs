//! Who is a member, and what is a quorum (R9.6).
//!
//! The newest list of the log is in force as soon as it is in the log. Lists change by one member at a time, so that each quorum of
//! one list meets each quorum of the next. But one member becomes several at once, since at two the loss of one stops the group. Such quorums
//! need not meet: so until that change is known to be committed, the one member must agree as well.

use std::collections::BTreeSet;

use crate::MemberId;

/// A change of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A member that has caught up joins.
    Add(MemberId),
    /// A member leaves; not the leader.
    Remove(MemberId),
    /// One member becomes several: these join.
    Grow(Vec<MemberId>),
}

/// The members, and what else must agree.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Lists {
    /// The newest list.
    pub members: BTreeSet<MemberId>,
    /// The one member from which the newest list has grown, while it is not known that this is committed.
    pub grown_from: Option<MemberId>,
}

impl Lists {
    /// Of a group that begins.
    pub fn new(members: impl IntoIterator<Item = MemberId>) -> Self {
        Self { members: members.into_iter().collect(), grown_from: None }
    }

    /// Whether these are enough.
    #[must_use]
    pub fn is_quorum(&self, here: impl Fn(MemberId) -> bool) -> bool {
        let count = self.members.iter().filter(|member| here(**member)).count();
        count * 2 > self.members.len() && self.grown_from.is_none_or(&here)
    }

    /// The greatest value that a quorum has reached.
    #[must_use]
    pub fn reached<T: Ord + Copy>(&self, value: impl Fn(MemberId) -> T) -> Option<T> {
        let mut values: Vec<_> = self.members.iter().map(|&member| value(member)).collect();
        values.sort_unstable();
        let reached = *values.get(values.len().checked_sub(1)? / 2)?;
        Some(self.grown_from.map_or(reached, |one| reached.min(value(one))))
    }

    /// The list after a change. `None`: the change changes nothing, or leaves nobody.
    #[must_use]
    pub fn after(&self, change: &Change) -> Option<Self> {
        let mut members = self.members.clone();
        let mut grown_from = None;
        let changes = match change {
            Change::Add(member) => members.insert(*member),
            Change::Remove(member) => members.remove(member) && !members.is_empty(),
            Change::Grow(newcomers) => {
                grown_from = members.first().copied().filter(|_| members.len() == 1);
                members.extend(newcomers);
                grown_from.is_some() && members.len() > 1
            }
        };
        changes.then_some(Self { members, grown_from })
    }

    /// The change to this list is committed.
    pub(crate) fn settle(&mut self) {
        self.grown_from = None;
    }
}
