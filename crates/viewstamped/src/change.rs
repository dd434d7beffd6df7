//! Changes of the list of members (R9.6 \[M\]).
//!
//! One at a time, and only after an operation of the own view is committed: else two leaders could each have changed a list by one
//! member, and these two lists have quorums that do not meet. A newcomer learns first, and counts when it has caught up.

use std::fmt;

use kasha_types::Tick;
use kasha_types::planted::{self, Bug};

use crate::limits::MEMBERS_MAX;
use crate::lists::Change;
use crate::log::Entry;
use crate::replica::{Replica, Role};
use crate::{MemberId, Memory, OpNumber, State};

/// Why the list cannot change now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeError {
    /// This member does not lead.
    NotLeader,
    /// No operation of this view is committed, or an earlier change is not.
    TooEarly,
    /// A newcomer has not caught up.
    Learning(MemberId),
    /// The leader would leave: it hands over the lead first.
    Leader,
    /// It changes nothing, leaves nobody, or makes the group too large.
    Impossible,
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLeader => write!(f, "this member does not lead"),
            Self::TooEarly => write!(f, "an earlier change, or the beginning of the view, is not committed yet"),
            Self::Learning(member) => write!(f, "{member} has not caught up yet"),
            Self::Leader => write!(f, "the leader cannot leave: hand over the lead first"),
            Self::Impossible => write!(f, "the change adds or removes nobody, or makes the group too large"),
        }
    }
}

impl<S: State, M: Memory> Replica<S, M> {
    /// A newcomer learns: it gets the log, and does not count. If all places are taken, the newcomer that has been silent for longest
    /// leaves, and may be taught again.
    pub fn teach(&mut self, member: MemberId) {
        let members = self.lists().members;
        let Role::Leads(lead) = &mut self.role else { return };
        if lead.progress.len() >= MEMBERS_MAX && !lead.progress.contains_key(&member) {
            let newcomers = lead.progress.keys().filter(|known| !members.contains(known));
            let Some(silent) = newcomers.min_by_key(|known| self.heard.get(known)).copied() else { return };
            lead.progress.remove(&silent);
        }
        lead.progress.entry(member).or_default();
    }

    /// Whether a member or a newcomer has all that is committed on its disk.
    #[must_use]
    pub fn has_caught_up(&self, member: MemberId) -> bool {
        match &self.role {
            Role::Leads(lead) => lead.acknowledged(member) >= Some(self.committed_to),
            Role::Follows | Role::Elects(_) | Role::Stopped => false,
        }
    }

    /// Changes the list. The new list is in force when it is in the log.
    ///
    /// # Errors
    /// If it cannot change now.
    pub fn change(&mut self, now: Tick, change: &Change) -> Result<OpNumber, ChangeError> {
        let Role::Leads(lead) = &self.role else { return Err(ChangeError::NotLeader) };
        let is_committed = |op: OpNumber| op <= self.committed_to;
        let may_change = is_committed(lead.begin) || planted::is_on(Bug::ListChangedEarly);
        if !may_change || !self.log.changed_at().is_none_or(is_committed) {
            return Err(ChangeError::TooEarly);
        }
        let newcomers = match change {
            Change::Add(member) => std::slice::from_ref(member),
            Change::Grow(members) => members,
            Change::Remove(member) if *member == self.me => return Err(ChangeError::Leader),
            Change::Remove(_) => &[],
        };
        let has_caught_up = |member| self.has_caught_up(member) || planted::is_on(Bug::NewcomerCountsEarly);
        if let Some(member) = newcomers.iter().find(|member| !has_caught_up(**member)) {
            return Err(ChangeError::Learning(*member));
        }
        let lists = self.lists().after(change).filter(|lists| lists.members.len() <= MEMBERS_MAX);
        let lists = lists.ok_or(ChangeError::Impossible)?;
        if let Change::Remove(member) = change
            && let Role::Leads(lead) = &mut self.role
        {
            lead.progress.remove(member); // else those that left would keep out newcomers
        }
        if let Role::Leads(lead) = &mut self.role {
            lead.gathering = None; // what it gathers was remembered by quorums of the list before
        }
        let op = self.append(now, Entry::Lists(lists));
        self.flush();
        Ok(op)
    }
}
