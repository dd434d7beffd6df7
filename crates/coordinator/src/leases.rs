//! Node leases: which node may be declared lost, and when (section 7; pitfall 9).
//!
//! **F1** A core counts its lease from the moment when it sends a heartbeat, minus the drift bound. We count from the
//! moment of our answer, plus the drift bound. So when our count has lapsed, the core's has lapsed too. The cores of a
//! node are judged together: while one of them is silent the others' leases are not renewed, and the node is lost when
//! all have lapsed.
//!
//! When a node is lost:
//! - If we were stalled ourselves, or if more than half of the nodes look lost at once, we wait for another lease.
//! - Only a limited number of nodes is declared lost in one lease period, so that recoveries do not starve the rest.
//! - A silent node that others hear, or whose connection is open, has some leases more. Its updates go on meanwhile.
//!   They count from when its lease ended by its last heartbeat, whoever led then.
//! - A lost node must speak for a full lease without a gap before it is taken back, and longer if it is lost again and
//!   again.
//!
//! **R7.8** A coordinator that hears nobody is cut off itself. A silence counts only where another node and we heard
//! each other for a full lease of it. Nodes of our own process do not count as such witnesses.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{CoreId, NodeId, Tick};

use crate::CoordinatorOptions;

/// What speaks for a silent node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vouches {
    /// Other nodes hear it.
    Others,
    /// Its connection is open: a process that ends closes its connections, whatever ended it.
    Connection,
    /// Nothing.
    Nothing,
}

impl Vouches {
    /// Leases that the node has besides its own.
    fn leases(self) -> u32 {
        match self {
            Self::Others => 3,
            Self::Connection => 2,
            Self::Nothing => 0,
        }
    }
}
/// The number of losses that make the way back longer; each doubles it.
const LOSSES_MAX: u32 = 4;
/// Leases without a loss after which earlier losses are forgotten.
const STEADY_LEASES: u32 = 64;

#[derive(Clone, Copy, Debug)]
struct CoreLease {
    /// Since when the core is silent: when it last spoke, or when a stall or a start of ours was over. `None`: it has
    /// not spoken since its node was lost.
    heard: Option<Tick>,
    /// When the core last spoke to this process.
    spoke: Option<Tick>,
    /// The time in which the core and we heard each other without a gap of half a lease: from, to.
    met: Option<(Tick, Tick)>,
    /// Since when the core has spoken without a gap of a lease.
    since: Option<Tick>,
    /// The moment until which the core may hold a lease, by our clock.
    expires: Tick,
    /// When its lease ended, or will end, by its last heartbeat: earlier than `expires` if another coordinator heard that.
    lapses: Tick,
}

#[derive(Clone, Debug)]
struct NodeLease {
    cores: Vec<CoreLease>,
    lost: bool,
    /// The node was lost while we heard nobody (R7.8). That does not delay its way back.
    excused: bool,
    /// How often this process was lost recently. `back_at`: when it was last taken back.
    losses: u32,
    back_at: Tick,
}

/// What to assume about the leases of a newly known process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Assume {
    /// The process has just begun: no answer of ours has reached it, so it holds no lease.
    Fresh,
    /// We have just begun: an earlier coordinator may have granted a lease a moment ago. It runs this long by our
    /// clock.
    Leased(Duration),
    /// The node was lost, so it has no lease. It must speak before it counts as alive.
    Lost,
}

/// The leases of all nodes.
#[derive(Debug)]
pub(crate) struct NodeLeases {
    lease: Duration,
    drift: Duration,
    /// Nodes in our own process. If we are cut off, they are cut off too.
    own: BTreeSet<NodeId>,
    /// If we hear no other node for this long, and at most this many nodes are silent, a node of our own process goes
    /// on.
    alone: (Duration, usize),
    /// When a node of another process that hears us last spoke to us; at first, when we began.
    contact: Tick,
    nodes: BTreeMap<NodeId, NodeLease>,
    /// More than half of the nodes seemed lost: no node is declared lost before this moment.
    distrust_until: Option<Tick>,
    /// The moments, within the last lease, at which nodes were declared lost.
    declared: VecDeque<Tick>,
}

impl NodeLeases {
    pub(crate) fn new(options: &CoordinatorOptions, faults: u8, now: Tick) -> Self {
        let alone = options.node_lease * options.alone_leases;
        Self {
            lease: options.node_lease,
            drift: options.drift_bound,
            own: options.own_nodes.clone(),
            alone: (alone, usize::from(faults)),
            contact: now,
            nodes: BTreeMap::new(),
            distrust_until: None,
            declared: VecDeque::new(),
        }
    }

    /// The nodes that are cut off whenever this leader is: they are no witnesses of silence.
    pub(crate) fn set_own(&mut self, own: BTreeSet<NodeId>) {
        self.own = own;
    }

    fn full(&self) -> Duration {
        self.lease + self.drift
    }

    /// From now on there is a process of `node` with this many cores.
    pub(crate) fn register(&mut self, now: Tick, node: NodeId, cores: usize, assume: Assume) {
        let (heard, expires) = match assume {
            Assume::Fresh => (Some(now), now),
            Assume::Leased(_) if planted::is_on(Bug::CoordinatorDoesNotWait) => (None, now),
            Assume::Leased(term) => (Some(now), now.after(term)),
            Assume::Lost => (None, now),
        };
        let core = CoreLease { heard, spoke: None, met: None, since: heard, expires, lapses: expires };
        let lost = assume == Assume::Lost;
        let cores = vec![core; cores];
        let lease = NodeLease { cores, lost, excused: false, losses: u32::from(lost), back_at: now };
        self.nodes.insert(node, lease);
    }

    /// Another coordinator led when the core spoke last, at this moment by our clock.
    pub(crate) fn note_overheard(&mut self, core: CoreId, at: Tick) {
        let lapses = at.after(self.full());
        let known = self.nodes.get_mut(&core.node).and_then(|lease| lease.cores.get_mut(usize::from(core.core)));
        if let Some(known) = known {
            known.lapses = known.lapses.min(lapses);
        }
    }

    fn is_silent(&self, now: Tick, core: &CoreLease) -> bool {
        core.heard.is_none_or(|heard| heard.after(self.full()) <= now)
    }

    pub(crate) fn any_silent(&self, now: Tick, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|lease| lease.cores.iter().any(|core| self.is_silent(now, core)))
    }

    /// A core spoke. It has received no answer of ours for the time `unanswered`. If that is more than half a lease,
    /// our answers may reach nobody, and the core does not count as a witness against other nodes (R7.8).
    pub(crate) fn hear(&mut self, now: Tick, core: CoreId, unanswered: Duration) {
        let gap_max = self.lease / 2;
        let hears_us = unanswered <= gap_max;
        if hears_us && !self.own.contains(&core.node) {
            self.note_contact(now);
        }
        let full = self.full();
        let lease = self.nodes.get_mut(&core.node).expect("registered first");
        let core = &mut lease.cores[usize::from(core.core)];
        if core.heard.is_none_or(|heard| heard.after(full) <= now) {
            core.since = Some(now);
        }
        (core.heard, core.spoke) = (Some(now), Some(now));
        let since = core.met.filter(|&(_, last)| now.since(last) <= gap_max).map_or(now, |(since, _)| since);
        core.met = if hears_us { Some((since, now)) } else { core.met };
    }

    /// A node of another process speaks. If none did for half a lease, which is four heartbeats, we were cut off. That
    /// silence counts against no node, and delays no node's way back (R7.8).
    fn note_contact(&mut self, now: Tick) {
        let gap = now.since(self.contact);
        if gap > self.lease / 2 && !planted::is_on(Bug::HeardAgainJudgedAtOnce) {
            hit(Probe::OwnSilence);
            let (full, contact) = (self.full(), self.contact);
            for core in self.nodes.values_mut().filter(|lease| lease.lost).flat_map(|lease| &mut lease.cores) {
                if core.heard.is_some_and(|heard| heard.after(full) > contact) {
                    (core.heard, core.since) = (Some(now), core.since.map(|since| since.after(gap).min(now)));
                }
            }
            self.extend_all(now);
        }
        self.contact = now;
    }

    /// The cores of other processes, which can be witnesses of silence, and the time in which each of them and we heard
    /// each other.
    fn witnesses(&self) -> impl Iterator<Item = (NodeId, Option<(Tick, Tick)>)> + '_ {
        let others = self.nodes.iter().filter(|(node, _)| !self.own.contains(node));
        others.flat_map(|(&node, lease)| lease.cores.iter().map(move |core| (node, core.met)))
    }

    /// Whether we may have been cut off at the time that a complaint is about (R7.8): no other process and we have
    /// heard each other without a gap for that time.
    pub(crate) fn was_cut_off(&self, now: Tick, patience: Duration) -> bool {
        let is_steady = |(since, last): (Tick, Tick)| now.since(last) <= self.lease / 2 && now.since(since) >= patience;
        self.witnesses().next().is_some() && !self.witnesses().any(|(_, met)| met.is_some_and(is_steady))
    }

    /// Whether the node is proven silent: for a full lease of its silence another node and we heard each other.
    fn is_proven_silent(&self, now: Tick, node: NodeId) -> bool {
        let is_planted = planted::is_on(Bug::SilenceOfOnesOwnCounts) || planted::is_on(Bug::CoordinatorDoesNotWait);
        if self.witnesses().next().is_none() || self.goes_on_alone(now) || is_planted {
            return self.any_silent(now, node);
        }
        let full = self.full();
        self.nodes[&node].cores.iter().any(|core| {
            let silent_since = core.heard.unwrap_or(Tick(0));
            let proves = |(since, last): (Tick, Tick)| {
                let begin = if planted::is_on(Bug::HeardAgainJudgedAtOnce) { Tick(0) } else { since };
                // The witness must have spoken just now, so that its report of which nodes it hears counts too.
                last.since(begin.max(silent_since)) >= full && now.since(last) <= self.lease / 2
            };
            self.witnesses().any(|(other, met)| other != node && met.is_some_and(proves))
        })
    }

    /// Whether a node of our own process goes on alone: we have heard no other node for long, and no more nodes are
    /// silent than the shards survive.
    fn goes_on_alone(&self, now: Tick) -> bool {
        let (patience, faults) = self.alone;
        let is_own = |node: &NodeId| self.own.contains(node);
        let alive = || self.nodes.iter().filter(|(_, lease)| !lease.lost).map(|(node, _)| node);
        now.since(self.contact) >= patience
            && alive().filter(|node| !is_own(node)).count() <= faults
            && alive().any(|&node| is_own(&node) && !self.any_silent(now, node))
    }

    /// Whether the core speaks at this moment.
    pub(crate) fn speaks_now(&self, now: Tick, core: CoreId) -> bool {
        let lease = self.nodes.get(&core.node).and_then(|lease| lease.cores.get(usize::from(core.core)));
        lease.is_some_and(|lease| lease.spoke == Some(now))
    }

    /// Whether a lost node can be taken back: all of its cores have spoken for long enough.
    pub(crate) fn has_returned(&self, now: Tick, node: NodeId) -> bool {
        let Some(lease) = self.nodes.get(&node).filter(|lease| lease.lost) else { return false };
        let wanted = if lease.excused { Duration::ZERO } else { self.full() * (1 << lease.losses.saturating_sub(1)) };
        let steady = |core: &CoreLease| core.since.is_some_and(|since| since.after(wanted) <= now);
        !self.any_silent(now, node) && lease.cores.iter().all(steady)
    }

    /// The lost node counts as alive again. Its cores have no lease yet.
    pub(crate) fn take_back(&mut self, now: Tick, node: NodeId) {
        let lease = self.nodes.get_mut(&node).expect("registered first");
        (lease.lost, lease.excused, lease.back_at) = (false, false, now);
    }

    /// Grants a lease to the core that has just spoken. Returns its term in milliseconds by the core's clock. 0 means
    /// none: the node is lost, or another of its cores is silent.
    pub(crate) fn grant(&mut self, now: Tick, core: CoreId) -> u64 {
        let expires = now.after(self.full());
        let silent = self.any_silent(now, core.node);
        let lease = self.nodes.get_mut(&core.node).expect("registered first");
        if lease.lost || silent {
            return 0;
        }
        let core = &mut lease.cores[usize::from(core.core)];
        core.expires = core.expires.max(expires); // an earlier process may have granted a longer one
        core.lapses = core.expires;
        u64::try_from((self.lease - self.drift).as_millis()).expect("leases are short")
    }

    /// We were stalled ourselves, so silence proves nothing. Every node gets another full lease in which to speak.
    pub(crate) fn extend_all(&mut self, now: Tick) {
        let full = self.full();
        for lease in self.nodes.values_mut().filter(|lease| !lease.lost) {
            for core in &mut lease.cores {
                core.heard = core.heard.max(Some(now));
                core.expires = core.expires.max(now.after(full));
                core.lapses = core.expires;
            }
        }
    }

    /// Whether any core of the node may hold a lease (F1).
    pub(crate) fn may_hold_lease(&self, now: Tick, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|lease| lease.cores.iter().any(|core| core.expires > now))
    }

    /// Whether the last lease of a node ended so long ago that what speaks for it does not help it any more.
    fn is_long_lapsed(&self, now: Tick, node: NodeId, vouches: Vouches) -> bool {
        let grace = self.full() * vouches.leases();
        self.nodes[&node].cores.iter().all(|core| core.lapses.after(grace) <= now)
    }

    /// The nodes whose leases have lapsed and whose silence is proven.
    fn lapsed(&self, now: Tick) -> impl Iterator<Item = NodeId> + '_ {
        let alive = self.nodes.iter().filter(|(_, lease)| !lease.lost).map(|(&node, _)| node);
        alive.filter(move |&node| {
            !self.may_hold_lease(now, node) && self.any_silent(now, node) && self.is_proven_silent(now, node)
        })
    }

    /// Whether a node that is alive has been silent until its last lease was over, proven or not.
    pub(crate) fn any_expired(&self, now: Tick) -> bool {
        let mut alive = self.nodes.iter().filter(|(_, lease)| !lease.lost).map(|(&node, _)| node);
        alive.any(|node| !self.may_hold_lease(now, node) && self.any_silent(now, node))
    }

    /// Whether there is a node to judge.
    pub(crate) fn any_lapsed(&self, now: Tick) -> bool {
        self.lapsed(now).next().is_some()
    }

    /// The nodes to declare lost now; they are marked as lost.
    pub(crate) fn judge(&mut self, now: Tick, vouches: impl Fn(NodeId) -> Vouches) -> Vec<NodeId> {
        let alive = self.nodes.values().filter(|lease| !lease.lost).count();
        let mut lapsed: Vec<NodeId> = self.lapsed(now).collect();
        if lapsed.len() * 2 > alive {
            let until = *self.distrust_until.get_or_insert(now.after(self.lease));
            if now < until {
                hit(Probe::ManySilent);
                return Vec::new();
            }
        } else {
            self.distrust_until = None;
        }
        lapsed.retain(|&node| {
            let stays = !self.is_long_lapsed(now, node, vouches(node));
            if stays {
                hit(Probe::VouchedFor);
            }
            !stays
        });
        while self.declared.front().is_some_and(|&then| now.since(then) >= self.lease) {
            self.declared.pop_front();
        }
        let at_once = (self.nodes.len() / 2).max(1);
        lapsed.truncate(at_once.saturating_sub(self.declared.len()));
        let steady = self.full() * STEADY_LEASES;
        let excused = self.goes_on_alone(now);
        if excused && !lapsed.is_empty() {
            hit(Probe::WentOnAlone);
        }
        for node in &lapsed {
            self.declared.push_back(now);
            let lease = self.nodes.get_mut(node).expect("just listed");
            let before = if now.since(lease.back_at) > steady { 0 } else { lease.losses };
            (lease.lost, lease.excused) = (true, excused);
            lease.losses = if excused { before } else { (before + 1).min(LOSSES_MAX) };
            // Its time of speaking begins anew: heartbeats from before the loss do not count for its way back.
            lease.cores.iter_mut().for_each(|core| core.since = core.since.and(Some(now)));
        }
        lapsed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_millis(1000);
    const DRIFT: Duration = Duration::from_millis(50);

    fn at(millis: u64) -> Tick {
        Tick(millis * 1_000_000)
    }

    fn core(node: u16, core: u8) -> CoreId {
        CoreId { node: NodeId(node), core }
    }

    fn with_nodes(nodes: u16, cores: usize) -> NodeLeases {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let mut options = CoordinatorOptions::new(kasha_types::ClusterId(1), nodes, 1, 0, address);
        (options.node_lease, options.drift_bound) = (LEASE, DRIFT);
        let mut leases = NodeLeases::new(&options, options.faults, at(0));
        for node in 1..=nodes {
            leases.register(at(0), NodeId(node), cores, Assume::Fresh);
            for number in 0..cores {
                let id = core(node, u8::try_from(number).expect("few"));
                leases.hear(at(0), id, Duration::ZERO);
                assert_eq!(leases.grant(at(0), id), 950);
            }
        }
        leases
    }

    fn beat(leases: &mut NodeLeases, now: Tick, id: CoreId) -> u64 {
        leases.hear(now, id, Duration::ZERO);
        leases.grant(now, id)
    }

    #[test]
    fn a_node_is_lost_only_when_every_core_has_lapsed() {
        let mut leases = with_nodes(3, 2);
        for millis in [500, 1000] {
            for id in [core(1, 0), core(2, 0), core(2, 1), core(3, 0), core(3, 1)] {
                assert_eq!(beat(&mut leases, at(millis), id), 950);
            }
        }
        assert_eq!(beat(&mut leases, at(1050), core(1, 0)), 0, "its other core is silent");
        for millis in [1500, 2000] {
            for id in [core(2, 0), core(2, 1), core(3, 0), core(3, 1)] {
                beat(&mut leases, at(millis), id);
            }
        }
        assert_eq!(leases.judge(at(2049), |_| Vouches::Nothing), vec![], "F1: core 0 was granted a lease at 1000");
        assert_eq!(leases.judge(at(2050), |_| Vouches::Nothing), vec![NodeId(1)]);
        assert_eq!(leases.judge(at(2051), |_| Vouches::Nothing), vec![], "declared once");
        leases.hear(at(2060), core(1, 0), Duration::ZERO);
        assert!(!leases.has_returned(at(2060), NodeId(1)), "its other core is silent still");
        leases.hear(at(2070), core(1, 1), Duration::ZERO);
        assert!(!leases.has_returned(at(2070), NodeId(1)), "it has only begun to speak");
        for millis in [2500, 3000, 3121] {
            leases.hear(at(millis), core(1, 0), Duration::ZERO);
            leases.hear(at(millis), core(1, 1), Duration::ZERO);
        }
        assert!(leases.has_returned(at(3121), NodeId(1)));
    }

    #[test]
    fn a_node_that_others_hear_has_three_leases_more() {
        let mut leases = with_nodes(3, 1);
        for millis in (500..5000).step_by(500) {
            beat(&mut leases, at(millis), core(2, 0));
            beat(&mut leases, at(millis), core(3, 0));
            if millis < 4200 {
                assert_eq!(
                    leases.judge(at(millis), |node| if node == NodeId(1) { Vouches::Others } else { Vouches::Nothing }),
                    vec![]
                );
            }
        }
        assert_eq!(leases.judge(at(4199), |_| Vouches::Others), vec![]);
        assert_eq!(leases.judge(at(4200), |_| Vouches::Others), vec![NodeId(1)]);
    }

    #[test]
    fn a_node_that_nobody_hears_has_two_leases_more_while_its_connection_is_open() {
        let mut leases = with_nodes(3, 1);
        for millis in (500..4000).step_by(500) {
            beat(&mut leases, at(millis), core(2, 0));
            beat(&mut leases, at(millis), core(3, 0));
        }
        assert_eq!(leases.judge(at(3149), |_| Vouches::Connection), vec![]);
        assert_eq!(leases.judge(at(3150), |_| Vouches::Connection), vec![NodeId(1)]);
    }

    /// A new leader has overheard it. Its own lease is waited for all the same (F1).
    #[test]
    fn what_speaks_for_a_node_counts_from_its_last_heartbeat_whoever_led_then() {
        let mut leases = with_nodes(3, 1);
        for millis in (250..2000).step_by(250) {
            beat(&mut leases, at(millis), core(2, 0));
            beat(&mut leases, at(millis), core(3, 0));
        }
        leases.register(at(2000), NodeId(1), 1, Assume::Leased(Duration::from_millis(1050)));
        leases.note_overheard(core(1, 0), at(500));
        for millis in (2000..4000).step_by(250) {
            beat(&mut leases, at(millis), core(2, 0));
            beat(&mut leases, at(millis), core(3, 0));
            if millis < 3050 {
                assert_eq!(leases.judge(at(millis), |_| Vouches::Nothing), vec![], "F1");
            }
        }
        assert_eq!(leases.judge(at(3649), |_| Vouches::Connection), vec![]);
        assert_eq!(leases.judge(at(3650), |_| Vouches::Connection), vec![NodeId(1)], "500 and three leases");
    }

    #[test]
    fn a_node_that_comes_and_goes_is_taken_back_later_each_time() {
        let mut leases = with_nodes(3, 1);
        let (mut now, mut waits) = (0, Vec::new());
        for _ in 0..3 {
            let others = |leases: &mut NodeLeases, now| {
                beat(leases, at(now), core(2, 0));
                beat(leases, at(now), core(3, 0));
            };
            while leases.judge(at(now), |_| Vouches::Nothing).is_empty() {
                now += 50;
                others(&mut leases, now);
            }
            let lost = now;
            while !leases.has_returned(at(now), NodeId(1)) {
                now += 50;
                others(&mut leases, now);
                leases.hear(at(now), core(1, 0), Duration::ZERO);
            }
            leases.take_back(at(now), NodeId(1));
            waits.push(now - lost);
        }
        assert!(waits[0] >= 1050 && waits[1] >= 2100 && waits[2] >= 4200, "{waits:?}");
    }

    #[test]
    fn a_core_that_speaks_again_in_time_saves_its_node() {
        let mut leases = with_nodes(3, 2);
        for millis in [450, 900] {
            for id in [core(1, 0), core(2, 0), core(2, 1), core(3, 0), core(3, 1)] {
                beat(&mut leases, at(millis), id);
            }
        }
        assert_eq!(beat(&mut leases, at(1100), core(1, 0)), 0);
        assert_eq!(beat(&mut leases, at(1200), core(1, 1)), 950);
        assert_eq!(beat(&mut leases, at(1300), core(1, 0)), 950);
    }

    #[test]
    fn a_starved_cluster_does_not_declare_itself_dead() {
        let mut leases = with_nodes(4, 1);
        assert_eq!(leases.judge(at(1050), |_| Vouches::Nothing), vec![], "all four at once: waits one more lease");
        for node in 1..=4 {
            beat(&mut leases, at(1500), core(node, 0));
        }
        assert_eq!(leases.judge(at(2100), |_| Vouches::Nothing), vec![]);
        assert_eq!(leases.distrust_until, None);
    }

    #[test]
    fn losses_are_capped_in_each_lease_period() {
        let mut leases = with_nodes(6, 1);
        let mut now = 0;
        let mut judge_at = |leases: &mut NodeLeases, millis| {
            while now < millis {
                now += 50;
                beat(leases, at(now), core(6, 0));
            }
            leases.judge(at(now), |_| Vouches::Nothing)
        };
        assert_eq!(judge_at(&mut leases, 1050), vec![], "five of six at once: waits one more lease");
        assert_eq!(judge_at(&mut leases, 2050), vec![NodeId(1), NodeId(2), NodeId(3)]);
        assert_eq!(judge_at(&mut leases, 2100), vec![]);
        assert_eq!(judge_at(&mut leases, 3050), vec![NodeId(4), NodeId(5)]);
    }

    #[test]
    fn a_stall_of_our_own_proves_nothing() {
        let mut leases = with_nodes(2, 1);
        leases.extend_all(at(9000));
        leases.hear(at(10_049), core(2, 0), Duration::ZERO);
        assert_eq!(leases.judge(at(10_049), |_| Vouches::Nothing), vec![]);
    }
}
