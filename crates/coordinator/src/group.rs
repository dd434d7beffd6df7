//! What the members of the group say to each other: the messages of their log, each in a frame of its own.
//!
//! A member dials the others at the addresses that the state names. Who has no address in the state as yet (a newcomer, or who
//! has not learnt of one) is answered on the connection on which it spoke last. Frames may be lost, doubled and late: the log
//! bears that.
//!
//! Who cannot be reached where the state says may listen elsewhere by now: all members may have started again at other addresses. So what is
//! for such a one goes to the addresses with which this process was started, too. A frame names its receiver, and whoever else gets it does
//! nothing.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use kasha_machine::{Effect, Effects, Endpoint};
use kasha_types::{Incarnation, MemberId, NodeId, Tick};
use kasha_viewstamped::Message;
use kasha_wire::message::{Grouped, NotLeader};
use kasha_wire::{Bytes, GroupMember, Levels};

use crate::State;
use crate::goodbye::Goodbye;
use crate::ledger::Basis;
use crate::limits::COUNT_MAX;
use crate::member::Member;
use crate::outbox::Out;

/// After a member was not reached where the state says, it is spoken to elsewhere, too, for so long: an attempt to reach it there takes less,
/// even if nothing comes back.
const UNREACHABLE_FOR: Duration = Duration::from_secs(30);

/// Where the other members are.
#[derive(Debug, Default)]
pub(crate) struct Others {
    /// The addresses that the shell knows.
    routes: BTreeMap<MemberId, SocketAddr>,
    /// When members were not reached where the state says.
    unreachable: BTreeMap<MemberId, Tick>,
    /// Where each spoke last.
    spoke: BTreeMap<MemberId, Endpoint>,
    /// The newest process of each that has spoken.
    processes: BTreeMap<MemberId, Incarnation>,
    /// The levels that the process of each can work at.
    pub(crate) levels: BTreeMap<MemberId, Levels>,
    /// How many nodes that are alive each hears, as it last said, and when it did.
    pub(crate) hear: BTreeMap<MemberId, (u16, Tick)>,
}

impl Others {
    /// Where to say something to a member: it is to get there once at least. `seeds`: further addresses at which members may be.
    fn endpoints(&self, now: Tick, member: MemberId, seeds: usize) -> Vec<Endpoint> {
        let routed = self.routes.contains_key(&member).then_some(Endpoint::Member(member));
        let is_tried = |then: &Tick| now.since(*then) >= UNREACHABLE_FOR;
        let was_reached = routed.is_some() && self.unreachable.get(&member).is_none_or(is_tried);
        let elsewhere = match self.spoke.get(&member) {
            _ if was_reached => Vec::new(),
            // That connection may be dead, and nobody has told us.
            Some(&spoke) => vec![spoke],
            None => (0..).take(seeds).map(Endpoint::Seed).collect(),
        };
        routed.into_iter().chain(elsewhere).collect()
    }

    /// A member speaks.
    fn note_heard(&mut self, now: Tick, from: Endpoint, said: &Grouped) {
        let member = said.from;
        self.spoke.insert(member, from);
        self.levels.insert(member, said.levels);
        self.hear.insert(member, (said.hears, now));
    }

    /// Whether no later start of the member's folder has spoken: an older copy of it may run, too.
    fn is_newest(&mut self, member: MemberId, process: Incarnation) -> bool {
        let newest = self.processes.entry(member).or_insert(process);
        *newest = (*newest).max(process);
        *newest == process
    }

    /// A connection is closed. Returns the member that is not reached any more.
    pub(crate) fn on_closed(&mut self, now: Tick, end: Endpoint) -> Option<MemberId> {
        let spoke = self.spoke.iter().find(|(_, known)| **known == end).map(|(member, _)| *member);
        self.spoke.retain(|_, known| *known != end);
        match end {
            Endpoint::Member(member) => {
                self.unreachable.insert(member, now);
                Some(member)
            }
            Endpoint::Conn(_) | Endpoint::Core(_) | Endpoint::Coordinator | Endpoint::Seed(_) => spoke,
        }
    }
}

/// A later start of this member's folder than this process, if this state has one: then this one is out of date for ever (R9.6). Whoever lags may know
/// of an older one, and the latest may have spoken to no leader yet: neither is refused for that.
fn later_start(state: &State, member: MemberId, process: Incarnation) -> Option<(NodeId, Incarnation)> {
    let of = state.configuration.group.iter().find(|of| of.member == member)?;
    let known = state.configuration.node(of.node)?.incarnation;
    (known.identity() == process.identity() && process < known).then_some((of.node, known))
}

impl Member {
    /// Another member speaks.
    ///
    /// # Errors
    /// If a later start of its folder is in the committed state, or its process cannot work at the level of the cluster. One that can work at
    /// none so low is no trouble: this member lags.
    pub(crate) fn on_grouped(&mut self, now: Tick, from: Endpoint, said: &Grouped) -> Result<(), Goodbye> {
        let &Grouped { from: member, process, to, folder, .. } = said;
        let ours = self.options.process.identity();
        if folder == ours {
            self.ledger.become_member(to, now);
        }
        // What is for another folder, or comes from a process that another one has followed, does nothing here.
        let is_for_us = to == self.ledger.me() && (folder == ours || folder == 0);
        if !is_for_us || member == to || !self.is_known(member, process) {
            return Ok(());
        }
        if let Some((node, later)) = later_start(self.ledger.committed(), member, process) {
            return Err(Goodbye::LaterStart(node, later));
        }
        // What is not committed, or only heard, is told to nobody. But such a process has no say.
        let is_late = later_start(self.ledger.decided(), member, process).is_some();
        if is_late || !self.others.is_newest(member, process) {
            return Ok(());
        }
        let level = self.ledger.committed().level;
        if said.levels.latest() < level {
            return Err(Goodbye::Level(said.levels, level));
        }
        let Ok(message) = Message::decode(&said.message.0) else { return Ok(()) };
        if message.view().number > COUNT_MAX {
            return Ok(());
        }
        self.others.note_heard(now, from, said);
        self.ledger.on_message(now, member, message);
        Ok(())
    }

    /// Whether a process may speak for this member: it has the member's folder, and the member has not left. Whoever lags may not know it
    /// yet.
    fn is_known(&self, member: MemberId, process: Incarnation) -> bool {
        let state = self.ledger.decided();
        match state.configuration.group.iter().find(|of| of.member == member) {
            Some(of) => [0, process.identity()].contains(&of.folder),
            None => state.configuration.group.is_empty() || member >= state.next_member,
        }
    }

    /// Says what the log wants said, to members whose place is known.
    pub(crate) fn talk(&mut self, out: &mut Effects) {
        let group = &self.ledger.decided().configuration.group;
        for &GroupMember { member, address, .. } in group {
            if member != self.ledger.me() && self.others.routes.insert(member, address) != Some(address) {
                self.others.unreachable.remove(&member);
                out.push(Effect::Route { to: Endpoint::Member(member), address });
            }
        }
        let folders: BTreeMap<_, _> = group.iter().map(|of| (of.member, of.folder)).collect();
        let (from, process, levels) = (self.ledger.me(), self.options.process, self.options.levels);
        let messages = self.ledger.take_messages();
        let hears = if messages.is_empty() { 0 } else { self.hears(self.last_step) };
        for (to, message) in messages {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            let folder = folders.get(&to).copied().unwrap_or(0);
            let mut out = Out::new(out);
            let frame = out.encode(&Grouped { from, process, to, folder, levels, hears, message: Bytes(bytes) });
            // The log says nothing before it may: what is on the disk is in the message.
            for end in self.others.endpoints(self.last_step, to, self.options.seeds.len()) {
                self.outbox.send(end, frame, Basis::NO_COMMAND, &mut out);
            }
        }
    }

    /// Whoever asks us asks the leader, and we do not lead. A newcomer knows of no group as yet.
    pub(crate) fn say_not_leader(&mut self, to: Endpoint, out: &mut Out<'_>) {
        let (view, leader) = self.ledger.whom_it_follows();
        let group = self.ledger.committed().configuration.group.clone();
        if group.len() > 1 {
            let frame = out.encode(&NotLeader { view, leader, group });
            self.outbox.send(to, frame, Basis::NO_COMMAND, out);
        }
    }
}
