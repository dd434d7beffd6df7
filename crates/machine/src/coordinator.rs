//! Where a machine that needs the coordinator finds it. Only this knows how many members the coordinator's group has, and who leads.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use kasha_types::{MemberId, Tick, ViewNumber};

use crate::{Effect, Effects, Endpoint};

/// The links to the members of the coordinator's group. A member that is alone is [`Endpoint::Coordinator`], like the address that a
/// process was started with.
#[derive(Clone, Debug, Default)]
pub struct CoordinatorLinks {
    /// Where [`Endpoint::Coordinator`] is.
    address: Option<SocketAddr>,
    /// So many further addresses the process was started with: [`Endpoint::Seed`]s. Any of them may be of a member.
    seeds: u16,
    /// A configuration has said where the coordinator is, so that seeds are of no use any more.
    is_learned: bool,
    /// The members of a group of several.
    members: BTreeMap<MemberId, SocketAddr>,
    leader: Option<MemberId>,
    /// The latest view in which a leader has given us an order. Who only says that another one leads has perhaps entered a view that nobody
    /// else will ever be in: a member that was removed does not know that.
    view: ViewNumber,
    /// The latest view of which one has told that does not lead, since a leader spoke last.
    told: ViewNumber,
    /// Since when nobody has answered.
    asked: Option<Tick>,
}

/// How long a leader may be silent before another member is asked who leads: an answer takes a round.
const PATIENCE: Duration = Duration::from_millis(500);

impl CoordinatorLinks {
    /// Whoever leads, as far as is known: questions go there. Any member says who that is.
    #[must_use]
    pub fn leader(&self) -> Endpoint {
        let somebody = self.leader.or_else(|| self.members.keys().next().copied());
        somebody.map_or(Endpoint::Coordinator, Endpoint::Member)
    }

    /// Whom to ask now. Who has not answered for long may be frozen: another member says who leads.
    pub fn ask(&mut self, now: Tick) -> Endpoint {
        if self.asked.is_some_and(|since| now.since(since) > PATIENCE) {
            self.note_unreachable(self.leader());
        }
        self.asked.get_or_insert(now);
        self.leader()
    }

    /// The latest view in which a leader has given us an order.
    #[must_use]
    pub fn view(&self) -> ViewNumber {
        self.view
    }

    /// A leader gives an order in this view. Whether it may: nobody has led a later one (R9.2).
    pub fn obeys(&mut self, from: Endpoint, view: ViewNumber) -> bool {
        let is_current = view >= self.view;
        self.view = self.view.max(view);
        if is_current {
            self.note_leader(from);
        }
        is_current
    }

    /// Where the members of a group of several are.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.members.values().copied()
    }

    /// Only a leader says what this endpoint has said.
    pub fn note_leader(&mut self, from: Endpoint) {
        self.told = ViewNumber(0);
        if let Endpoint::Member(member) = from {
            self.asked = None;
            self.leader = Some(member).filter(|member| self.members.contains_key(member)).or(self.leader);
        }
    }

    /// This member cannot be reached. If it leads, as far as is known, another one is asked who does.
    pub fn note_unreachable(&mut self, lost: Endpoint) {
        if lost == self.leader()
            && let Endpoint::Member(lost) = lost
        {
            let next = self.members.range(lost..).nth(1).or_else(|| self.members.iter().next());
            self.leader = next.map(|(&member, _)| member);
            self.asked = None;
        }
    }

    /// Everybody who may lead, or may do so soon: heartbeats go there (R9.9).
    pub fn all(&self) -> impl Iterator<Item = Endpoint> {
        let seeds = if self.is_learned { 0 } else { self.seeds };
        let alone = (self.members.is_empty() || !self.is_learned).then_some(Endpoint::Coordinator);
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

    /// A member that does not lead says who does, if it knows that, and who the members are, as far as it knows.
    pub fn redirect(
        &mut self,
        view: ViewNumber,
        leader: Option<MemberId>,
        group: impl IntoIterator<Item = (MemberId, SocketAddr)>,
        out: &mut Effects,
    ) {
        let told: BTreeMap<MemberId, SocketAddr> = group.into_iter().collect();
        if view < self.view || view < self.told || told.len() < 2 {
            return;
        }
        self.told = view;
        // Who knows of no leader has perhaps left, and does not know that: another one is asked after a while.
        self.asked = self.asked.filter(|_| leader.is_none());
        // It may lag, and lack a member of whom we know.
        let members = self.members.iter().map(|(&member, &address)| (member, address)).chain(told).collect();
        self.set_members(members, out);
        self.leader = leader.filter(|leader| self.members.contains_key(leader)).or(self.leader);
    }

    /// Another node obeys a newer configuration, which says so: these may be members by now, and none of those that we know. Who leads they say
    /// themselves.
    pub fn hear_of(
        &mut self,
        leader: SocketAddr,
        group: impl IntoIterator<Item = (MemberId, SocketAddr)>,
        out: &mut Effects,
    ) {
        let told: BTreeMap<MemberId, SocketAddr> = group.into_iter().collect();
        if told.len() < 2 && self.members.is_empty() && self.address.replace(leader) != Some(leader) {
            out.push(Effect::Route { to: Endpoint::Coordinator, address: leader });
        }
        let members = self.members.iter().map(|(&member, &address)| (member, address)).chain(told).collect();
        self.set_members(members, out);
    }

    /// The leader listens at this address, and these are the members. Tells the shell what is new.
    pub fn learn(
        &mut self,
        leader: SocketAddr,
        group: impl IntoIterator<Item = (MemberId, SocketAddr)>,
        out: &mut Effects,
    ) {
        let mut members: BTreeMap<MemberId, SocketAddr> = group.into_iter().collect();
        self.is_learned = !members.is_empty();
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
        let mut obeys = |view| links.obeys(Endpoint::Coordinator, ViewNumber(view));
        assert_eq!([3, 3, 5, 4, 5].map(&mut obeys), [true, true, true, false, true]);
    }

    #[test]
    fn heartbeats_go_to_all_members_and_questions_to_the_leader() {
        let (mut links, mut out) = (CoordinatorLinks::with_seeds(1), Effects::new());
        let seeds = [Endpoint::Coordinator, Endpoint::Seed(0)];
        assert!(links.all().eq(seeds) && seeds.into_iter().all(|seed| links.is_leader(seed)));
        assert!(!links.is_leader(Endpoint::Seed(1)));
        links.redirect(ViewNumber(2), None, group(&[1, 2, 3]), &mut out);
        let members = [1, 2, 3].map(|member| Endpoint::Member(MemberId(member)));
        assert!(links.all().eq(seeds.into_iter().chain(members)), "a member may be one of long ago");
        assert_eq!(links.leader(), members[0], "any of them says who leads");
        links.note_unreachable(members[0]);
        assert_eq!(links.leader(), members[1], "and another one if that one is gone");
        links.redirect(ViewNumber(2), Some(MemberId(3)), group(&[1, 2, 3]), &mut out);
        assert_eq!(links.leader(), members[2]);
        links.redirect(ViewNumber(1), Some(MemberId(1)), group(&[1, 2]), &mut out);
        assert_eq!(links.leader(), members[2], "an earlier view says nothing");
        links.redirect(ViewNumber(9), None, group(&[1, 2, 3]), &mut out);
        assert!(links.obeys(members[2], ViewNumber(2)), "what one says that does not lead makes no order an old one");
        links.redirect(ViewNumber(2), None, group(&[1, 2, 3]), &mut out);
        links.redirect(ViewNumber(2), None, group(&[1, 2, 3]), &mut out);
        assert_eq!(links.leader(), members[2], "nor does who knows of no leader");
        links.learn(([10, 0, 0, 1], 2).into(), group(&[2, 3, 4]), &mut out);
        assert_eq!((links.leader(), links.all().count()), (members[1], 3));
        assert!(links.obeys(members[2], ViewNumber(7)));
        assert_eq!(links.leader(), members[2], "who gives orders leads");
        let at = |millis| Tick(0).after(Duration::from_millis(millis));
        let mut late = links.clone();
        late.ask(at(0));
        late.redirect(ViewNumber(7), Some(MemberId(2)), group(&[2, 3, 4]), &mut out);
        assert_eq!(late.ask(at(5_000)), members[1], "who was just named is asked, however late that is");
        assert_eq!(
            [0, 400, 600, 900].map(|millis| links.ask(at(millis))),
            [members[2], members[2], Endpoint::Member(MemberId(4)), Endpoint::Member(MemberId(4))]
        );
        let mut alone = CoordinatorLinks::default();
        alone.redirect(ViewNumber(1), None, group(&[1, 2, 3]), &mut out);
        for (millis, asked) in [(0, members[0]), (400, members[0]), (600, members[1]), (1_200, members[2])] {
            assert_eq!(alone.ask(at(millis)), asked, "who has left, and does not know that, is not asked for ever");
            alone.redirect(ViewNumber(1), None, group(&[1, 2, 3]), &mut out);
        }
        links.hear_of(([10, 0, 0, 1], 8).into(), group(&[8]), &mut out);
        assert!(links.all().any(|end| end == Endpoint::Member(MemberId(8))), "it may lead by now");
        links.learn(([10, 0, 0, 1], 9).into(), group(&[9]), &mut out);
        assert!(links.all().eq([Endpoint::Coordinator]), "one that is alone, and known");
        links.hear_of(([10, 0, 0, 1], 4).into(), group(&[4, 5, 6]), &mut out);
        assert_eq!(links.all().count(), 3, "three took its place");
    }
}
