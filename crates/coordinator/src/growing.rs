//! The group grows: the leader makes processes of nodes members, until there are as many as there are to be (R9.6, R9.14).
//!
//! A newcomer gets an id and a place in the state, is taught the log, and counts when it has caught up. One member becomes several in one
//! change: at two, the loss of one would stop the group for good.

use std::net::SocketAddr;

use kasha_types::{MemberId, Tick};
use kasha_viewstamped::Change;

use crate::Command;
use crate::lead::Leading;

impl Leading<'_> {
    /// Invites who is missing, and takes in who has learnt everything.
    pub(crate) fn grow(&mut self, now: Tick) {
        let wanted = self.member.options.group;
        let members = self.member.ledger.lists().members;
        if members.len() >= wanted {
            return;
        }
        let group = self.decided().configuration.group.iter().map(|of| of.member);
        let mut invited: Vec<MemberId> = group.filter(|member| !members.contains(member)).collect();
        while members.len() + invited.len() < wanted
            && let Some(address) = self.free_place()
        {
            let member = self.decided().next_member;
            self.decide(Command::MemberAt { member, address });
            invited.push(member);
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

    /// Where a node that is alive can host a member, and hosts none.
    fn free_place(&self) -> Option<SocketAddr> {
        let state = self.decided();
        let is_free = |address: &&SocketAddr| !state.configuration.group.iter().any(|of| of.address == **address);
        state.alive_nodes().filter_map(|node| self.member.controls.get(&node)).find(is_free).copied()
    }
}
