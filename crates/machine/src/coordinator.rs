//! Where a machine that needs the coordinator finds it. Only this knows how many members the coordinator's group has, and who leads.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use kasha_types::{MemberId, ViewNumber};

use crate::{Effect, Effects, Endpoint};

/// The links to the members of the coordinator's group. A member that is alone is [`Endpoint::Coordinator`], like the address that a
/// process was started with.
#[derive(Clone, Debug, Default)]
pub struct CoordinatorLinks {
    /// Where [`Endpoint::Coordinator`] is.
    address: Option<SocketAddr>,
    /// So many further addresses the process was started with: [`Endpoint::Seed`]s. Any of them may be of a member.
    seeds: u16,
    /// The coordinator is alone, and it is known where.
    is_alone: bool,
    /// The members of a group of several.
    members: BTreeMap<MemberId, SocketAddr>,
    leader: Option<MemberId>,
    /// The latest view of which we have heard.
    view: ViewNumber,
}

impl CoordinatorLinks {
    /// Whoever leads, as far as is known: questions go there. Any member says who that is.
    #[must_use]
    pub fn leader(&self) -> Endpoint {
        let somebody = self.leader.or_else(|| self.members.keys().next().copied());
        somebody.map_or(Endpoint::Coordinator, Endpoint::Member)
    }

    /// The latest view of which we have heard.
    #[must_use]
    pub fn view(&self) -> ViewNumber {
        self.view
    }

    /// A leader gives an order in this view. Whether it may: nobody has led a later one (R9.2).
    pub fn obeys(&mut self, view: ViewNumber) -> bool {
        let is_current = view >= self.view;
        self.view = self.view.max(view);
        is_current
    }

    /// Everybody who may lead, or may do so soon: heartbeats go there (R9.9).
    pub fn all(&self) -> impl Iterator<Item = Endpoint> {
        let seeds = if self.members.is_empty() && !self.is_alone { self.seeds } else { 0 };
        let alone = self.members.is_empty().then_some(Endpoint::Coordinator);
        let alone = alone.into_iter().chain((0..seeds).map(Endpoint::Seed));
        alone.chain(self.members.keys().copied().map(Endpoint::Member))
    }

    /// Whether a frame from this endpoint is the coordinator's word: a member that does not lead says nothing.
    #[must_use]
    pub fn is_leader(&self, from: Endpoint) -> bool {
        match from {
            Endpoint::Coordinator | Endpoint::Member(_) => true,
            Endpoint::Seed(seed) => seed < self.seeds,
            Endpoint::Core(_) | Endpoint::Conn(_) => false,
        }
    }

    /// For a process that was started with so many addresses besides [`Endpoint::Coordinator`].
    #[must_use]
    pub fn with_seeds(seeds: u16) -> Self {
        Self { seeds, ..Self::default() }
    }

    /// A member that does not lead says who does, and who the members are.
    pub fn redirect(
        &mut self,
        view: ViewNumber,
        leader: Option<MemberId>,
        group: impl IntoIterator<Item = (MemberId, SocketAddr)>,
        out: &mut Effects,
    ) {
        let members: BTreeMap<MemberId, SocketAddr> = group.into_iter().collect();
        if view < self.view || members.len() < 2 {
            return;
        }
        self.view = view;
        self.set_members(members, out);
        self.leader = leader.filter(|leader| self.members.contains_key(leader));
    }

    /// The leader listens at this address, and these are the members. Tells the shell what is new.
    pub fn learn(
        &mut self,
        leader: SocketAddr,
        group: impl IntoIterator<Item = (MemberId, SocketAddr)>,
        out: &mut Effects,
    ) {
        let mut members: BTreeMap<MemberId, SocketAddr> = group.into_iter().collect();
        self.is_alone = members.len() == 1;
        if members.len() < 2 {
            members.clear();
        }
        if members.is_empty() && self.address.replace(leader) != Some(leader) {
            out.push(Effect::Route { to: Endpoint::Coordinator, address: leader });
        }
        self.leader = members.iter().find(|(_, address)| **address == leader).map(|(member, _)| *member);
        self.set_members(members, out);
    }

    fn set_members(&mut self, members: BTreeMap<MemberId, SocketAddr>, out: &mut Effects) {
        for (&member, &address) in &members {
            if self.members.get(&member) != Some(&address) {
                out.push(Effect::Route { to: Endpoint::Member(member), address });
            }
        }
        self.members = members;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(members: &[u64]) -> Vec<(MemberId, SocketAddr)> {
        members.iter().map(|&member| (MemberId(member), ([10, 0, 0, 1], member as u16).into())).collect()
    }

    #[test]
    fn r9_2_who_has_heard_of_a_later_view_obeys_no_earlier_one() {
        let mut links = CoordinatorLinks::default();
        assert!(links.obeys(ViewNumber(3)) && links.obeys(ViewNumber(3)) && links.obeys(ViewNumber(5)));
        assert!(!links.obeys(ViewNumber(4)) && links.obeys(ViewNumber(5)));
    }

    #[test]
    fn heartbeats_go_to_all_members_and_questions_to_the_leader() {
        let (mut links, mut out) = (CoordinatorLinks::with_seeds(1), Effects::new());
        let seeds = [Endpoint::Coordinator, Endpoint::Seed(0)];
        assert!(links.all().eq(seeds) && seeds.into_iter().all(|seed| links.is_leader(seed)));
        assert!(!links.is_leader(Endpoint::Seed(1)));
        links.redirect(ViewNumber(2), None, group(&[1, 2, 3]), &mut out);
        let members = [1, 2, 3].map(|member| Endpoint::Member(MemberId(member)));
        assert!(links.all().eq(members));
        assert_eq!(links.leader(), members[0], "any of them says who leads");
        links.redirect(ViewNumber(2), Some(MemberId(3)), group(&[1, 2, 3]), &mut out);
        assert_eq!(links.leader(), members[2]);
        links.redirect(ViewNumber(1), Some(MemberId(1)), group(&[1, 2]), &mut out);
        assert_eq!((links.leader(), links.all().count()), (members[2], 3), "an earlier view says nothing");
        links.learn(([10, 0, 0, 1], 2).into(), group(&[2, 3, 4]), &mut out);
        assert_eq!((links.leader(), links.all().count()), (members[1], 3));
        links.learn(([10, 0, 0, 1], 9).into(), group(&[9]), &mut out);
        assert!(links.all().eq([Endpoint::Coordinator]), "one that is alone, and known");
    }
}
