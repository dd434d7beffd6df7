//! The group grows: the leader makes processes of nodes members, until there are as many as there are to be (R9.6, R9.14).
//!
//! A newcomer gets an id and a place in the state, is taught the log, and counts when it has caught up. One member becomes several in one
//! change: at two, the loss of one would stop the group for good.

use kasha_types::{MemberId, NodeId, Tick};
use kasha_viewstamped::Change;
use kasha_wire::GroupMember;

use crate::Command;
use crate::lead::Leading;

impl Leading<'_> {
    /// Invites who is missing, and takes in who has learnt everything.
    pub(crate) fn grow(&mut self, now: Tick) {
        let wanted = usize::from(self.decided().group_wanted);
        let members = self.member.ledger.lists().members;
        if members.len() >= wanted {
            return;
        }
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
            Some(GroupMember { member: state.next_member, node, folder, address })
        };
        state.alive_nodes().filter(hosts_none).find_map(as_member)
    }
}
