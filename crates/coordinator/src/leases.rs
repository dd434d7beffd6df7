//! Node leases: who may be declared lost, and when (section 7; pitfall 9).
//!
//! A core counts its lease from sending a heartbeat, minus the drift bound; we count from answering, plus it. So when
//! our count has lapsed, the core's has (F1). A node's cores share its fate: while one of them is silent the others are
//! not renewed, and the node is lost when all have lapsed. Judged with hysteresis: if we were stalled ourselves, or if
//! more than half of the nodes look lost at once, we wait for another lease; and only so many nodes are declared lost
//! in one lease period, so that recoveries do not starve the rest.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use kasha_types::{CoreId, NodeId, Tick};

#[derive(Clone, Copy, Debug)]
struct CoreLease {
    /// When it last spoke; `None`: not since its node was lost.
    heard: Option<Tick>,
    /// Until when it may hold a lease, by our count.
    expires: Tick,
}

#[derive(Clone, Debug)]
struct NodeLease {
    cores: Vec<CoreLease>,
    lost: bool,
}

/// Whether a newly known process may already hold leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Assume {
    /// It just began: no answer of ours has reached it.
    Fresh,
    /// We just began: an earlier coordinator may have granted a lease a moment ago.
    Leased,
    /// It was lost, hence has none, and must be heard from before it counts as alive.
    Lost,
}

/// All node leases.
#[derive(Debug)]
pub(crate) struct NodeLeases {
    lease: Duration,
    drift: Duration,
    nodes: BTreeMap<NodeId, NodeLease>,
    /// More than half seemed lost: nobody is declared before this.
    distrust_until: Option<Tick>,
    /// When nodes were declared lost, within the last lease.
    declared: VecDeque<Tick>,
}

impl NodeLeases {
    pub(crate) fn new(lease: Duration, drift: Duration) -> Self {
        Self { lease, drift, nodes: BTreeMap::new(), distrust_until: None, declared: VecDeque::new() }
    }

    fn full(&self) -> Duration {
        self.lease + self.drift
    }

    /// A process of `node` with this many cores is known from now on.
    pub(crate) fn register(&mut self, now: Tick, node: NodeId, cores: usize, assume: Assume) {
        let core = match assume {
            Assume::Fresh => CoreLease { heard: Some(now), expires: now },
            Assume::Leased => CoreLease { heard: Some(now), expires: now.after(self.full()) },
            Assume::Lost => CoreLease { heard: None, expires: now },
        };
        self.nodes.insert(node, NodeLease { cores: vec![core; cores], lost: assume == Assume::Lost });
    }

    fn is_silent(&self, now: Tick, core: &CoreLease) -> bool {
        core.heard.is_none_or(|heard| heard.after(self.full()) <= now)
    }

    fn any_silent(&self, now: Tick, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|lease| lease.cores.iter().any(|core| self.is_silent(now, core)))
    }

    /// A core spoke.
    pub(crate) fn hear(&mut self, now: Tick, core: CoreId) {
        let lease = self.nodes.get_mut(&core.node).expect("registered first");
        lease.cores[usize::from(core.core)].heard = Some(now);
    }

    /// Whether a lost node can be taken back: all of its cores speak again.
    pub(crate) fn has_returned(&self, now: Tick, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|lease| lease.lost) && !self.any_silent(now, node)
    }

    /// The lost node is alive again. Its cores have no lease yet.
    pub(crate) fn take_back(&mut self, node: NodeId) {
        self.nodes.get_mut(&node).expect("registered first").lost = false;
    }

    /// Grants the core that just spoke a lease and returns its term in milliseconds as the core counts it; 0: none,
    /// because its node is lost or another of its cores is silent.
    pub(crate) fn grant(&mut self, now: Tick, core: CoreId) -> u64 {
        let expires = now.after(self.full());
        let silent = self.any_silent(now, core.node);
        let lease = self.nodes.get_mut(&core.node).expect("registered first");
        if lease.lost || silent {
            return 0;
        }
        lease.cores[usize::from(core.core)].expires = expires;
        u64::try_from((self.lease - self.drift).as_millis()).expect("leases are short")
    }

    /// We ourselves were stalled: silence proves nothing. Everybody gets another full lease to be heard.
    pub(crate) fn extend_all(&mut self, now: Tick) {
        let full = self.full();
        for lease in self.nodes.values_mut().filter(|lease| !lease.lost) {
            for core in &mut lease.cores {
                core.heard = core.heard.max(Some(now));
                core.expires = core.expires.max(now.after(full));
            }
        }
    }

    /// Whether any core of the node may hold a lease (F1).
    pub(crate) fn may_hold_lease(&self, now: Tick, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|lease| lease.cores.iter().any(|core| core.expires > now))
    }

    /// The nodes to declare lost now; they are marked so.
    pub(crate) fn judge(&mut self, now: Tick) -> Vec<NodeId> {
        let alive = self.nodes.values().filter(|lease| !lease.lost).count();
        let mut lapsed: Vec<NodeId> = (self.nodes.iter())
            .filter(|(_, lease)| !lease.lost)
            .map(|(&node, _)| node)
            .filter(|&node| !self.may_hold_lease(now, node) && self.any_silent(now, node))
            .collect();
        if lapsed.len() * 2 > alive {
            let until = *self.distrust_until.get_or_insert(now.after(self.lease));
            if now < until {
                return Vec::new();
            }
        } else {
            self.distrust_until = None;
        }
        while self.declared.front().is_some_and(|&then| now.since(then) >= self.lease) {
            self.declared.pop_front();
        }
        let at_once = (self.nodes.len() / 2).max(1);
        lapsed.truncate(at_once.saturating_sub(self.declared.len()));
        for node in &lapsed {
            self.declared.push_back(now);
            let lease = self.nodes.get_mut(node).expect("just listed");
            lease.lost = true;
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
        let mut leases = NodeLeases::new(LEASE, DRIFT);
        for node in 1..=nodes {
            leases.register(at(0), NodeId(node), cores, Assume::Fresh);
            for number in 0..cores {
                let id = core(node, u8::try_from(number).expect("few"));
                leases.hear(at(0), id);
                assert_eq!(leases.grant(at(0), id), 950);
            }
        }
        leases
    }

    fn beat(leases: &mut NodeLeases, now: Tick, id: CoreId) -> u64 {
        leases.hear(now, id);
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
        for id in [core(2, 0), core(2, 1), core(3, 0), core(3, 1)] {
            beat(&mut leases, at(1800), id);
        }
        assert_eq!(leases.judge(at(2049)), vec![], "F1: core 0 was granted a lease at 1000");
        assert_eq!(leases.judge(at(2050)), vec![NodeId(1)]);
        assert_eq!(leases.judge(at(2051)), vec![], "declared once");
        leases.hear(at(2060), core(1, 0));
        assert!(!leases.has_returned(at(2060), NodeId(1)), "its other core is silent still");
        leases.hear(at(2070), core(1, 1));
        assert!(leases.has_returned(at(2070), NodeId(1)));
    }

    #[test]
    fn a_core_that_speaks_again_in_time_saves_its_node() {
        let mut leases = with_nodes(3, 2);
        for id in [core(1, 0), core(2, 0), core(2, 1), core(3, 0), core(3, 1)] {
            beat(&mut leases, at(900), id);
        }
        assert_eq!(beat(&mut leases, at(1100), core(1, 0)), 0);
        assert_eq!(beat(&mut leases, at(1200), core(1, 1)), 950);
        assert_eq!(beat(&mut leases, at(1300), core(1, 0)), 950);
    }

    #[test]
    fn a_starved_cluster_does_not_declare_itself_dead() {
        let mut leases = with_nodes(4, 1);
        assert_eq!(leases.judge(at(1050)), vec![], "all four at once: waits one more lease");
        for node in 1..=4 {
            beat(&mut leases, at(1500), core(node, 0));
        }
        assert_eq!(leases.judge(at(2100)), vec![]);
        assert_eq!(leases.distrust_until, None);
    }

    #[test]
    fn losses_are_capped_in_each_lease_period() {
        let mut leases = with_nodes(5, 1);
        assert_eq!(leases.judge(at(1050)), vec![]);
        assert_eq!(leases.judge(at(2050)), vec![NodeId(1), NodeId(2)]);
        assert_eq!(leases.judge(at(2060)), vec![]);
        assert_eq!(leases.judge(at(3050)), vec![NodeId(3), NodeId(4)]);
    }

    #[test]
    fn a_stall_of_our_own_proves_nothing() {
        let mut leases = with_nodes(2, 1);
        leases.extend_all(at(9000));
        assert_eq!(leases.judge(at(10_049)), vec![]);
    }
}
