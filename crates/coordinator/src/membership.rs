//! The members of the group: it grows until there are as many as there are to be, and replaces a member whose node has been away for long
//! (R9.6, R9.14).
//!
//! A newcomer gets an id and a place in the state, is taught the log, and counts when it has caught up. One member becomes several in one
//! change: at two, the loss of one would stop the group for good. A member that is replaced leaves when its successor counts.
//! A folder becomes a member once: what it knows of its former membership would pass for what it knows of the next.

use std::collections::{BTreeMap, BTreeSet};

use kasha_types::{MemberId, NodeId, Tick};
use kasha_viewstamped::Change;
use kasha_wire::GroupMember;

use crate::lead::Leading;
use crate::ledger::Ledger;
use crate::{Command, CoordinatorOptions};

/// The nodes of our own process, if those are cut off whenever this leader is (R7.8): a leader that needs members of other processes for its
/// rounds is none as soon as it is cut off from these (R9.15).
pub(crate) fn nodes_cut_off_with_us(options: &CoordinatorOptions, ledger: &Ledger) -> BTreeSet<NodeId> {
    let group = &ledger.decided().configuration.group;
    let is_here = |member| {
        let node = group.iter().find(|of| of.member == member).map(|of| of.node);
        member == ledger.me() || node.is_some_and(|node| options.own_nodes.contains(&node))
    };
    if ledger.lists().is_quorum(is_here) { options.own_nodes.clone() } else { BTreeSet::new() }
}

impl Leading<'_> {
    /// One step towards the group that is wanted.
    pub(crate) fn see_to_members(&mut self, now: Tick) {
        let wanted = usize::from(self.decided().group_wanted);
        let members = self.member.ledger.lists().members;
        let gone = self.gone(now, &members);
        self.forget_those_that_left(&members);
        if members.len() > wanted {
            let leaves = gone.or_else(|| members.iter().rev().copied().find(|&of| of != self.member.ledger.me()));
            if let Some(member) = leaves {
                self.lead.changed |= self.member.ledger.change(now, &Change::Remove(member));
            }
        } else if members.len() < wanted || gone.is_some() {
            self.grow(now, &members, wanted.max(members.len() + usize::from(gone.is_some())));
        }
    }

    /// Invites who is missing, and takes in who has learnt everything.
    fn grow(&mut self, now: Tick, members: &BTreeSet<MemberId>, wanted: usize) {
        let group = self.decided().configuration.group.iter().map(|of| of.member);
        let mut invited: Vec<MemberId> = group.filter(|member| !members.contains(member)).collect();
        while members.len() + invited.len() < wanted
            && let Some(of) = self.candidate()
        {
            invited.push(of.member);
            self.decide(Command::MemberAt { of });
        }
        invited.retain(|&member| self.member.ledger.teach(member));
        let change = match invited.as_slice() {
            [] => return,
            _ if members.len() == 1 && invited.len() + 1 < wanted => return,
            _ if members.len() == 1 => Change::Grow(invited),
            [first, ..] => Change::Add(*first),
        };
        self.lead.changed |= self.member.ledger.change(now, &change);
    }

    /// The process of a node that is alive, can host a member, and hosts none. It is known by its folder, and not by its address: a folder
    /// that is new knows nothing of what was promised there (R9.6).
    fn candidate(&self) -> Option<GroupMember> {
        let state = self.decided();
        let hosts_none = |node: &NodeId| !state.configuration.group.iter().any(|of| of.node == *node);
        let as_member = |node: NodeId| {
            let address = *self.member.controls.get(&node)?;
            let folder = state.configuration.node(node)?.incarnation.identity();
            let is_new = !state.former_members.contains(&folder);
            is_new.then_some(GroupMember { member: state.next_member, node, folder, address })
        };
        state.alive_nodes().filter(hosts_none).find_map(as_member)
    }

    /// Whether the node of a member, or of one that was invited, is lost. A member without a node is in a process of its own.
    fn is_lost(&self, of: &GroupMember) -> bool {
        of.member != self.member.ledger.me() && of.node != NodeId(0) && !self.decided().is_alive(of.node)
    }

    /// The member whose node has been away for longest, if that is long enough.
    fn gone(&mut self, now: Tick, members: &BTreeSet<MemberId>) -> Option<MemberId> {
        let group = &self.decided().configuration.group;
        let lost: Vec<_> = group.iter().filter(|of| members.contains(&of.member) && self.is_lost(of)).collect();
        let before = &self.lead.away;
        let away: BTreeMap<MemberId, Tick> =
            lost.iter().map(|of| (of.member, before.get(&of.member).copied().unwrap_or(now))).collect();
        self.lead.away = away;
        let (member, since) = self.lead.away.iter().min_by_key(|(_, since)| **since)?;
        (now.since(*since) >= self.member.options.replaces_after).then_some(*member)
    }

    /// Who is no member any more, or was invited and is lost, is forgotten.
    fn forget_those_that_left(&mut self, members: &BTreeSet<MemberId>) {
        if !self.member.ledger.is_all_committed() {
            return; // a change of the list may be lost yet
        }
        let is_full = members.len() >= usize::from(self.decided().group_wanted) && self.lead.away.is_empty();
        let group = self.decided().configuration.group.clone();
        let left = group.into_iter().filter(|of| !members.contains(&of.member) && (is_full || self.is_lost(of)));
        for of in left.collect::<Vec<_>>() {
            self.decide(Command::MemberGone { member: of.member });
        }
    }
}
