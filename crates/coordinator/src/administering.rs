//! What an operator orders about the coordinator's own group, and about the level of the cluster (R9.6, R9.14, R7.6).
//!
//! An order says what is to be, and its answer whether it is. So the operator's program gives it again until it is done: whoever leads by
//! then sees the same state, and what has begun goes on even if nobody asks again.

use std::collections::BTreeMap;
use std::time::Duration;

use kasha_types::{MemberId, NodeId, Tick};
use kasha_wire::message::{AdminOrder, AdminOutcome, Administer, Administered};
use kasha_wire::{GroupMember, Levels};

use crate::lead::Leading;
use crate::limits::GROUP_MAX;
use crate::timing::Timing;
use crate::{Command, State};

use AdminOutcome::{Done, Later, Refused};

impl Leading<'_> {
    pub(crate) fn on_administer(&mut self, now: Tick, question: &Administer) -> Administered {
        let &Administer { nonce, order } = question;
        let outcome = match order {
            AdminOrder::AddMember(node) => self.add_member(node),
            AdminOrder::RemoveMember(node) => self.remove_member(node),
            AdminOrder::RemoveLost(node) => self.remove_lost(now, node),
            AdminOrder::Lead(node) => self.let_lead(now, node),
            AdminOrder::GroupOf(members) => self.make_group_of(members),
            AdminOrder::Finalize => self.finalize(),
            AdminOrder::Lease(millis) => self.make_leases(millis),
            AdminOrder::MinBackups(number) => self.want_backups(number),
            AdminOrder::SayMinBackups => Done(said_backups(self.decided().configuration.min_backups)),
            AdminOrder::SayLease => Done(format!("node leases have {:?}", self.member.options.node_lease)),
        };
        Administered { nonce, outcome }
    }

    fn counts(&self, member: MemberId) -> bool {
        self.member.ledger.lists().members.contains(&member)
    }

    fn add_member(&mut self, node: NodeId) -> AdminOutcome {
        if let Some(of) = member_of(self.decided(), node) {
            let member = of.member;
            return match (self.decided().leaving.contains(&member), self.counts(member)) {
                (true, true) => self.begin(&[Command::MemberStays { member }], format!("the member of {node} stays")),
                (true, false) => refused(format!("the member of {node} is gone, and its folder becomes none again")),
                (false, true) => Done(format!("{node} hosts a member of the coordinator's group")),
                (false, false) => Later(format!("{node} learns what the group knows, and counts when it has that")),
            };
        }
        let Some(of) = self.candidates().find(|of| of.node == node) else {
            return refused(self.why_no_candidate(node));
        };
        let (wanted, staying) = (self.decided().group_wanted, staying(self.decided()));
        let mut commands = vec![Command::MemberAt { of }];
        if staying >= usize::from(wanted) {
            let (more, can_be) = (wanted + 2, staying + self.candidates().count());
            if more > GROUP_MAX {
                return refused(format!("the group has {wanted} members, and no group has more: remove one first"));
            }
            if can_be < usize::from(more) {
                return refused(format!(
                    "a group has an odd number of members, and besides {node} no other node can host one: start another node, or \
                     remove a member first"
                ));
            }
            commands.insert(0, Command::GroupWanted { members: more });
        }
        self.begin(&commands, format!("{node} becomes a member"))
    }

    /// Decides what an order needs, if all of that may be (R9.11).
    fn begin(&mut self, commands: &[Command], then: String) -> AdminOutcome {
        if let Some(why) = commands.iter().find_map(|command| self.decided().permits(command).err()) {
            return refused(format!("that cannot be now ({why}): try again when what was ordered before is done"));
        }
        commands.iter().for_each(|command| self.decide(command.clone()));
        Later(then)
    }

    /// A folder is gone, and the member with it; unless that is a mistake.
    fn remove_lost(&mut self, now: Tick, node: NodeId) -> AdminOutcome {
        let member = member_of(self.decided(), node).map(|of| of.member);
        let speaks =
            |member| member == self.member.ledger.me() || self.member.ledger.has_heard(now, member, self.silence());
        // R9.15: what was not heard yet is no silence.
        let silence = self.silence();
        if now.since(self.lead.since) < silence || self.member.ledger.is_cut_off(now, silence) {
            return Later(format!("the coordinator has just begun to lead, and listens for the member of {node}"));
        }
        match member.filter(|&member| speaks(member)) {
            Some(_) => refused(format!("the member of {node} is not lost: it speaks")),
            // A node that has taken its place may not have said yet that it can host a member.
            None if member.is_some_and(|of| self.counts(of)) && self.candidates().next().is_none() => {
                Later(format!("no other node can host a member in the place of {node} yet"))
            }
            None => self.remove_member(node),
        }
    }

    fn why_no_candidate(&self, node: NodeId) -> String {
        let state = self.decided();
        let former = state.configuration.node(node).map(|info| info.incarnation.identity());
        if !state.is_alive(node) {
            format!("{node} is not there: start it first")
        } else if former.is_some_and(|folder| state.former_members.contains(&folder)) {
            format!(
                "the folder of {node} was a member's, and becomes none again: take another node, or a new one with an empty folder"
            )
        } else {
            format!(
                "the process of {node} does not listen as a member: its log says why; start it with a --control address that is free"
            )
        }
    }

    fn remove_member(&mut self, node: NodeId) -> AdminOutcome {
        let Some(of) = member_of(self.decided(), node) else {
            return Done(format!("{node} hosts no member of the coordinator's group"));
        };
        if self.decided().leaving.contains(&of.member) {
            return Later(format!(
                "the member of {node} leaves when another one counts in its place (kasha admin coordinator add --node {} takes it back)",
                node.0
            ));
        }
        if !self.counts(of.member) {
            let ends = [Command::InvitationEnds { member: of.member }];
            return self.begin(&ends, format!("{node} was to become a member, and becomes none"));
        }
        let (left, wanted) = (staying(self.decided()) - 1, self.decided().group_wanted);
        if left == 0 {
            return refused(format!("{node} hosts the only member: add another one first"));
        }
        if left < usize::from(wanted) && self.candidates().next().is_none() {
            return refused(format!(
                "no other node can host a member in its place: start one, or make the group smaller first (kasha admin coordinator size {})",
                wanted.saturating_sub(2).max(1)
            ));
        }
        self.begin(&[Command::MemberLeaves { member: of.member }], format!("the member of {node} leaves"))
    }

    fn let_lead(&mut self, now: Tick, node: NodeId) -> AdminOutcome {
        let of = member_of(self.decided(), node).filter(|of| self.counts(of.member));
        let Some(GroupMember { member, .. }) = of else {
            return refused(format!(
                "{node} hosts no member of the coordinator's group: kasha status --verbose lists them"
            ));
        };
        if member == self.member.ledger.me() {
            return Done(format!("the member of {node} leads"));
        }
        if self.decided().leaving.contains(&member) {
            return refused(format!("the member of {node} is just leaving"));
        }
        if !self.member.ledger.has_heard(now, member, self.silence()) {
            return refused(format!("the member of {node} says nothing: start its process, and try again"));
        }
        match self.hand_over(now, member) {
            true => Later(format!("the member of {node} was asked to lead")),
            false => Later(format!("the member of {node} lacks something yet")),
        }
    }

    fn make_group_of(&mut self, members: u8) -> AdminOutcome {
        if State::permits_group_of(members).is_err() {
            return refused(format!("the group has an odd number of members, at most {GROUP_MAX}"));
        }
        let can_be = staying(self.decided()) + self.candidates().count();
        if usize::from(members) > can_be {
            return refused(format!(
                "only {can_be} nodes can host a member: start more, each with a --control address that is free"
            ));
        }
        if self.decided().group_wanted != members {
            self.decide(Command::GroupWanted { members });
        }
        let there = self.member.ledger.lists().members.len();
        let is_so = there == usize::from(members) && self.decided().leaving.is_empty();
        let leaving = match self.decided().leaving.is_empty() {
            true => "",
            false => "; a member is to leave, and nobody has taken its place yet",
        };
        let said = format!("the coordinator's group is of {there}, and is to be of {members}{leaving}");
        if is_so { Done(format!("the coordinator's group is of {members}")) } else { Later(said) }
    }

    /// Node leases have this term. A lead begins with a term, so another member leads next; one that is alone goes on until it starts again.
    fn make_leases(&mut self, millis: u64) -> AdminOutcome {
        let timing = Timing::of_lease(Duration::from_millis(millis));
        if let Err(why) = timing.may_be_ordered() {
            return refused(why);
        }
        if self.decided().timing != Some(timing) {
            return self.begin(&[Command::Timing { timing }], format!("node leases are to have {:?}", timing.lease()));
        }
        let members = self.member.ledger.lists().members;
        match self.member.options.timing() == timing {
            true => Done(format!("node leases have {:?}", timing.lease())),
            false if members.len() == 1 => Done(format!(
                "node leases have {:?} when the process of the coordinator starts again: its group has one member",
                timing.lease()
            )),
            false if self.others_that_may_lead(&members).is_empty() => Later(format!(
                "node leases have {:?} when another member leads, and there is none that speaks, and stays",
                timing.lease()
            )),
            false => Later(format!("node leases have {:?} when another member leads", timing.lease())),
        }
    }

    /// With fewer members beside its primary a shard takes no update.
    fn want_backups(&mut self, min_backups: u8) -> AdminOutcome {
        let config = &self.decided().configuration;
        if min_backups > config.faults {
            return refused(format!(
                "a shard has {} members beside its primary, and never {min_backups}",
                config.faults
            ));
        }
        if config.shards.is_empty() {
            return refused(
                "no shard has its place yet, and until then the flag of the first process counts: try again later"
                    .to_owned(),
            );
        }
        if config.min_backups != min_backups {
            let (address, nodes) = (config.coordinator, config.nodes_wanted);
            return self.begin(&[Command::Configure { address, min_backups, nodes }], said_backups(min_backups));
        }
        Done(said_backups(min_backups))
    }

    /// The level rises as far as every process of the cluster can go along. A node that is lost is not asked: if it comes back, and
    /// cannot work at the level, it is refused.
    fn finalize(&mut self) -> AdminOutcome {
        let (state, ours) = (self.decided(), self.member.options.levels);
        let of_nodes = state.alive_nodes().map(|node| (node.to_string(), self.member.levels.get(&node).copied()));
        let me = self.member.ledger.me();
        let of_members = state.configuration.group.iter().filter(|of| of.member != me).map(|of| {
            let levels = self.member.others.levels.get(&of.member).copied();
            (format!("the coordinator's member on {}", of.node), levels)
        });
        let all: BTreeMap<String, Option<Levels>> = of_nodes.chain(of_members).collect();
        if let Some((who, _)) = all.iter().find(|(_, levels)| levels.is_none()) {
            return Later(format!("{who} has not said yet at which levels it can work"));
        }
        let known = all.iter().filter_map(|(who, levels)| levels.map(|levels| (levels.latest(), who)));
        let lowest = known.min().filter(|(latest, _)| *latest < ours.latest());
        let (at, to) = (state.level, lowest.map_or(ours.latest(), |(latest, _)| latest));
        match lowest {
            _ if to > at => {
                self.decide(Command::Raise { level: to });
                Later(format!("the cluster rises to {to}"))
            }
            Some((latest, who)) => Refused(format!(
                "the cluster is at {at}, and {who} can work at none above {latest}: run the newest release there first (K0511)"
            )),
            None => Done(format!("the cluster is at {at}, the highest at which this release can work")),
        }
    }
}

fn said_backups(min_backups: u8) -> String {
    format!("a shard takes updates with {min_backups} members or more beside its primary")
}

fn refused(why: String) -> AdminOutcome {
    Refused(format!("{why} (K0510)"))
}

/// The member in the process of a node, whether or not it counts yet.
fn member_of(state: &State, node: NodeId) -> Option<GroupMember> {
    state.configuration.group.iter().find(|of| of.node == node).copied()
}

/// Members that are there or invited, and are to stay.
fn staying(state: &State) -> usize {
    state.configuration.group.len() - state.leaving.len()
}
