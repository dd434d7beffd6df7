//! The members of the group: it grows until there are as many as there are to be, and replaces a member that has been silent for long
//! (R9.6, R9.14).
//!
//! A newcomer gets an id and a place in the state, is taught the log, and counts when it has caught up. One member becomes several in one
//! change: at two, the loss of one would stop the group for good. A member that is replaced leaves when its successor counts.
//! A folder becomes a member once: what it knows of its former membership would pass for what it knows of the next.

use std::collections::BTreeSet;
use std::time::Duration;

use kasha_types::{MemberId, NodeId, Tick};
use kasha_viewstamped::{Change, MEMBERS_MAX};
use kasha_wire::GroupMember;

use crate::lead::Leading;
use crate::ledger::Ledger;
use crate::limits::{FORMING_LEASES, SILENT_LEASES};
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
        let members = self.member.ledger.lists().members;
        self.forget_who_has_left(&members);
        self.note_silent(now);
        self.note_addresses();
        self.hand_over_for_timing(now, &members);
        self.fit_the_group_to_the_nodes(now, &members);
        let wanted = usize::from(self.decided().group_wanted);
        let replaced_by = self.member.options.replaces_after;
        let gone = self.longest_silent(&members).filter(|(_, since)| now.since(*since) >= replaced_by);
        let is_replaced = gone.is_some() || self.decided().leaving.iter().any(|of| members.contains(of));
        if members.len() > wanted {
            self.shrink(now, &members);
        } else if members.len() < wanted || is_replaced {
            self.grow(now, &members, wanted.max(members.len() + usize::from(is_replaced)));
        } else {
            // Whoever they were to replace is back, or the group is to be smaller by now.
            let needless: Vec<_> = self.invited(&members).collect();
            needless.into_iter().for_each(|member| self.decide(Command::InvitationEnds { member }));
        }
    }

    /// An earlier leader has removed a member, and the word that it is gone was lost with the lead. It has counted, so it is no invitation that ends.
    fn forget_who_has_left(&mut self, members: &BTreeSet<MemberId>) {
        let has_left = |of: &MemberId| !members.contains(of);
        let left: Vec<_> = self.decided().leaving.iter().copied().filter(has_left).collect();
        left.into_iter().for_each(|member| self.decide(Command::MemberGone { member }));
    }

    /// Those that were invited and do not count yet.
    fn invited(&self, members: &BTreeSet<MemberId>) -> impl Iterator<Item = MemberId> {
        let group = self.decided().configuration.group.iter().map(|of| of.member);
        group.filter(|of| !members.contains(of))
    }

    /// A size that nobody chose is at most what the nodes of a new cluster can host (R9.14). All of them are there, and each has said
    /// whether it can host a member. Perhaps it says so, and is not reached where it listens: then it cannot.
    fn fit_the_group_to_the_nodes(&mut self, now: Tick, members: &BTreeSet<MemberId>) {
        let state = self.decided();
        let is_forming = state.configuration.shards.is_empty()
            && state.alive_nodes().count() >= usize::from(state.nodes_wanted())
            && self.member.options.unchosen.group;
        if !is_forming {
            return;
        }
        let patience = self.member.options.node_lease * FORMING_LEASES;
        let is_awaited = |of: &MemberId| self.lead.silent.get(of).is_none_or(|since| now.since(*since) < patience);
        let come = self.invited(members).filter(is_awaited).count();
        // Who does not come is not invited a second time.
        let not_come: Vec<_> = self.invited(members).filter(|of| !is_awaited(of)).collect();
        let more = if not_come.is_empty() { self.candidates().count() } else { 0 };
        let can_be = members.len() + come + more;
        if can_be < usize::from(state.group_wanted) {
            let fits = u8::try_from(can_be - (can_be + 1) % 2).expect("fewer than are wanted");
            self.decide(Command::GroupWanted { members: fits });
            not_come.into_iter().for_each(|member| self.decide(Command::InvitationEnds { member }));
        }
    }

    /// Invites who is missing, and takes in who has learnt everything.
    fn grow(&mut self, now: Tick, members: &BTreeSet<MemberId>, wanted: usize) {
        let mut invited: Vec<MemberId> = self.invited(members).collect();
        if members.len() + invited.len() >= wanted {
            self.give_up_an_invitation(now, &invited);
        }
        while members.len() + invited.len() < wanted
            && let Some(of) = self.candidate().filter(|of| !self.may_come_on_another_machine(of))
        {
            invited.push(of.member);
            self.decide(Command::MemberAt { of });
        }
        // An id that is not committed may be another folder's in the end.
        let committed: BTreeSet<_> =
            self.member.ledger.committed().configuration.group.iter().map(|of| of.member).collect();
        invited.retain(|member| committed.contains(member) && self.member.ledger.teach(*member));
        let change = match invited.as_slice() {
            [] => return,
            _ if members.len() == 1 && invited.len() + 1 < wanted => return,
            _ if members.len() == 1 => Change::Grow(invited),
            [first, ..] => Change::Add(*first),
        };
        self.lead.changed |= self.member.ledger.change(now, &change);
    }

    /// One member leaves: one that an operator wants to leave, or else the one that has been silent for longest, or else the last one. Not if
    /// those that are left, and speak, would be no majority: the change could never be committed then, and nobody could lead.
    fn shrink(&mut self, now: Tick, members: &BTreeSet<MemberId>) {
        let me = self.member.ledger.me();
        let leaving: Vec<_> = self.decided().leaving.iter().copied().filter(|of| members.contains(of)).collect();
        if leaving == [me] {
            return self.hand_over_to_anybody(now, members);
        }
        let silent = self.longest_silent(members).map(|(member, _)| member);
        let last = members.iter().rev().copied().find(|&of| of != me);
        let may_leave = leaving.into_iter().filter(|&of| of != me).chain(silent).chain(last);
        let leaves_a_majority = |leaves: &MemberId| {
            let left = members.iter().filter(|of| *of != leaves);
            let speak = left.clone().filter(|of| !self.lead.silent.contains_key(of)).count();
            2 * speak > left.count()
        };
        // Who has just begun to lead has not heard everybody yet.
        let knows = now.since(self.lead.since) >= self.silence();
        let leaves = may_leave.filter(|_| knows).find(leaves_a_majority);
        let Some(member) = leaves else { return };
        // The state says that it has counted, before it is out of the list.
        if !self.decided().leaving.contains(&member) {
            return self.decide(Command::MemberLeaves { member });
        }
        if self.member.ledger.change(now, &Change::Remove(member)) {
            self.decide(Command::MemberGone { member });
        }
    }

    /// Other members that speak, and stay: whoever follows the one that was asked last to lead comes first, since the disk of one may hang.
    pub(crate) fn others_that_may_lead(&self, members: &BTreeSet<MemberId>) -> Vec<MemberId> {
        let (me, leaving) = (self.member.ledger.me(), &self.decided().leaving);
        let may_lead = |of: &&MemberId| **of != me && !leaving.contains(of) && !self.lead.silent.contains_key(of);
        let asked = self.lead.handed_over.map_or(MemberId(0), |(asked, _)| asked);
        let behind = members.range(MemberId(asked.0 + 1)..).chain(members.range(..=asked));
        behind.filter(may_lead).copied().collect()
    }

    /// Another member is to lead, any: this leader is to leave, or a setting counts from the beginning of a lead.
    fn hand_over_to_anybody(&mut self, now: Tick, members: &BTreeSet<MemberId>) {
        if !self.has_just_handed_over(now) {
            let others = self.others_that_may_lead(members);
            let _ = others.into_iter().find(|&to| self.hand_over(now, to));
        }
    }

    /// An operator has changed the lease: the next lead begins with that (R9.12). A leader that lacked the order would begin with the one before.
    fn hand_over_for_timing(&mut self, now: Tick, members: &BTreeSet<MemberId>) {
        let wanted = self.member.ledger.committed().timing;
        if members.len() > 1 && wanted.is_some_and(|timing| timing != self.member.options.timing()) {
            self.hand_over_to_anybody(now, members);
        }
    }

    /// Whether a member was asked to lead and may yet do so.
    fn has_just_handed_over(&self, now: Tick) -> bool {
        let pause = self.member.options.node_lease / 2;
        self.lead.handed_over.is_some_and(|(_, then)| now.since(then) < pause)
    }

    /// Asks another member to lead: not again and again while it does not answer. Returns whether it may lead by what it has.
    pub(crate) fn hand_over(&mut self, now: Tick, to: MemberId) -> bool {
        if self.has_just_handed_over(now) {
            return true;
        }
        let may = self.member.ledger.hand_over(to);
        if may {
            self.lead.handed_over = Some((to, now));
        }
        may
    }

    /// Somebody was invited who does not come, while another one could: that one is invited next.
    fn give_up_an_invitation(&mut self, now: Tick, invited: &[MemberId]) {
        let waited = |member: &MemberId| {
            let since = self.lead.silent.get(member);
            since.is_some_and(|since| now.since(*since) >= self.member.options.replaces_after)
        };
        if let Some(&member) = invited.iter().find(|member| waited(member))
            && self.candidate().is_some()
        {
            self.decide(Command::InvitationEnds { member });
        }
    }

    /// A process that may be a member has started elsewhere: it is the same folder.
    fn note_addresses(&mut self) {
        let (state, controls) = (self.decided(), &self.member.controls);
        let moved = state.configuration.group.iter().find_map(|of| {
            let address = *controls.get(&of.node)?;
            let folder = state.configuration.node(of.node)?.incarnation.identity();
            let is_elsewhere = of.member != self.member.ledger.me() && folder == of.folder && address != of.address;
            is_elsewhere.then_some(GroupMember { address, ..*of })
        });
        if let Some(of) = moved {
            self.decide(Command::MemberAt { of });
        }
    }

    /// For how long a member says nothing that is silent.
    pub(crate) fn silence(&self) -> Duration {
        self.member.options.node_lease * SILENT_LEASES
    }

    /// Notes which others say nothing, and since when this leader knows that.
    fn note_silent(&mut self, now: Tick) {
        let (me, silence) = (self.member.ledger.me(), self.silence());
        let others = self.decided().configuration.group.iter().map(|of| of.member).filter(|&of| of != me);
        let silent: Vec<_> = others.filter(|&of| !self.member.ledger.has_heard(now, of, silence)).collect();
        let since = |member| (member, self.lead.silent.get(&member).copied().unwrap_or(now));
        self.lead.silent = silent.into_iter().map(since).collect();
    }

    fn longest_silent(&self, members: &BTreeSet<MemberId>) -> Option<(MemberId, Tick)> {
        let silent = self.lead.silent.iter().filter(|(member, _)| members.contains(member));
        silent.min_by_key(|(_, since)| **since).map(|(&member, &since)| (member, since))
    }

    fn candidate(&self) -> Option<GroupMember> {
        self.candidates().next()
    }

    /// The processes of nodes that are alive, can host a member, and host none, each as the next member: first those on machines that have
    /// no member yet, as their addresses tell (R9.14). A process is known by its folder, and not by its address: a folder that is new knows
    /// nothing of what was promised there (R9.6). One that was invited before, and did not count, is invited as the same member, and after
    /// the others.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = GroupMember> {
        let state = self.decided();
        let group = &state.configuration.group;
        let hosts_none = |node: &NodeId| group.len() < MEMBERS_MAX && !group.iter().any(|of| of.node == *node);
        let as_member = |node: NodeId| {
            let address = *self.member.controls.get(&node)?;
            let folder = state.configuration.node(node)?.incarnation.identity();
            let is_new = !state.former_members.contains(&folder);
            let member = state.was_invited_as(folder).unwrap_or(state.next_member);
            is_new.then_some(GroupMember { member, node, folder, address })
        };
        let mut all: Vec<_> = state.alive_nodes().filter(hosts_none).filter_map(as_member).collect();
        all.sort_by_key(|of| (of.member < state.next_member, self.shares_machine(of)));
        all.into_iter()
    }

    /// Whether a member that stays is on the same machine.
    fn shares_machine(&self, of: &GroupMember) -> bool {
        let (state, last_step) = (self.decided(), self.member.last_step);
        let is_gone = |since: &Tick| last_step.since(*since) >= self.member.options.replaces_after;
        let stays =
            |member: &MemberId| !state.leaving.contains(member) && !self.lead.silent.get(member).is_some_and(is_gone);
        let mut others =
            state.configuration.group.iter().filter(|known| known.member != of.member && stays(&known.member));
        others.any(|known| known.address.ip() == of.address.ip())
    }

    /// Whether it is too early to invite somebody from a machine that has a member: nothing is placed before all nodes of a new cluster are
    /// there, and one of them may come on another machine.
    fn may_come_on_another_machine(&self, of: &GroupMember) -> bool {
        let state = self.decided();
        let all_are_there = state.alive_nodes().count() >= usize::from(state.nodes_wanted());
        state.configuration.shards.is_empty() && !all_are_there && self.shares_machine(of)
    }
}
