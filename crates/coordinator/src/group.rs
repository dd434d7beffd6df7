//! What the members of the group say to each other: the messages of their log, each in a frame of its own.
//!
//! A member dials the others at the addresses that the state names. Who has no address in the state as yet (a newcomer, or who
//! has not learnt of one) is answered on the connection on which it spoke last. Frames may be lost, doubled and late: the log
//! bears that.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use kasha_machine::{Effect, Effects, Endpoint};
use kasha_types::{MemberId, Tick};
use kasha_viewstamped::Message;
use kasha_wire::message::Grouped;
use kasha_wire::{Bytes, GroupMember};

use crate::ledger::Basis;
use crate::member::Member;
use crate::outbox::Out;

/// Where the other members are.
#[derive(Debug, Default)]
pub(crate) struct Others {
    /// The addresses that the shell knows.
    routes: BTreeMap<MemberId, SocketAddr>,
    /// Where each spoke last.
    spoke: BTreeMap<MemberId, Endpoint>,
}

impl Others {
    fn endpoint(&self, member: MemberId) -> Option<Endpoint> {
        match self.routes.get(&member) {
            Some(_) => Some(Endpoint::Member(member)),
            None => self.spoke.get(&member).copied(),
        }
    }

    /// A connection is closed. Returns the member that is not reached any more.
    pub(crate) fn on_closed(&mut self, end: Endpoint) -> Option<MemberId> {
        let spoke = self.spoke.iter().find(|(_, known)| **known == end).map(|(member, _)| *member);
        self.spoke.retain(|_, known| *known != end);
        match end {
            Endpoint::Member(member) => Some(member),
            Endpoint::Conn(_) | Endpoint::Core(_) | Endpoint::Coordinator | Endpoint::Seed(_) => spoke,
        }
    }
}

impl Member {
    /// Another member speaks.
    pub(crate) fn on_grouped(&mut self, now: Tick, from: Endpoint, said: &Grouped) {
        self.ledger.become_member(said.to, now);
        // What is for another life of this folder, or for another folder, does nothing here.
        if said.to != self.ledger.me() || said.from == said.to {
            return;
        }
        let Ok(message) = Message::decode(&said.message.0) else { return };
        self.others.spoke.insert(said.from, from);
        self.ledger.on_message(now, said.from, message);
    }

    /// Says what the log wants said, to members whose place is known.
    pub(crate) fn talk(&mut self, out: &mut Effects) {
        for &GroupMember { member, address } in &self.ledger.decided().configuration.group {
            if member != self.ledger.me() && self.others.routes.insert(member, address) != Some(address) {
                out.push(Effect::Route { to: Endpoint::Member(member), address });
            }
        }
        let from = self.ledger.me();
        for (to, message) in self.ledger.take_messages() {
            let Some(end) = self.others.endpoint(to) else { continue };
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            let mut out = Out::new(out);
            let frame = out.encode(&Grouped { from, to, message: Bytes(bytes) });
            // The log says nothing before it may: what is on the disk is in the message.
            self.outbox.send(end, frame, Basis::NO_COMMAND, &mut out);
        }
    }
}
