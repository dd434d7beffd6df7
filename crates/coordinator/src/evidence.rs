//! Reports of nodes about each other and about their shards (pitfall 9): which node hears which, which member does not
//! answer its primary, and which recovery is stuck. DESIGN section 7; decision 0007.
//!
//! The reports are kept in memory only. They guide choices, and each choice would be safe without them. A restarted
//! coordinator must be told of silences anew.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kasha_types::{CoreId, Epoch, NodeId, ShardId, Tick};
use kasha_wire::NodeInfo;

use crate::leases::NodeLeases;

/// Leases for which a node that did not answer a primary is kept out of its shard; doubles each time.
const AVOIDED_LEASES: u32 = 10;
/// The maximum of that number.
const AVOIDED_LEASES_MAX: u32 = 128;
/// Leases after one stuck term before the next may be called stuck; doubles each time.
const STUCK_LEASES: u32 = 5;
/// The maximum of that number.
const STUCK_LEASES_MAX: u32 = 80;

/// The nodes that a core hears, as it last reported.
#[derive(Debug)]
struct Heard {
    /// Since when the core has reported without a gap. A young process has heard no other node yet, and that proves
    /// nothing.
    since: Tick,
    at: Tick,
    nodes: Vec<NodeId>,
}

/// A node that did not answer a shard's primary.
#[derive(Clone, Copy, Debug)]
struct Avoided {
    by: NodeId,
    until: Tick,
    term: Duration,
    /// The end of this entry has been acted on.
    over: bool,
}

/// What a recovery waits for, as its primary reports (R7.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// The recovery lacks a witness of the list.
    Witness {
        /// Members that have not reported that their logs are not whole.
        unheard_members: Vec<NodeId>,
        /// Witnesses that have not reported that they lost something.
        unheard_witnesses: Vec<NodeId>,
    },
    /// The recovery lacks reports of members.
    Members {
        /// The members that have not reported.
        unheard: Vec<NodeId>,
        /// Another member has reported that it holds a complete copy.
        has_copy: bool,
    },
}

#[derive(Clone, Copy, Debug)]
struct Patience {
    not_before: Tick,
    next: Duration,
}

/// What nodes have reported of one another lately, and what follows from it.
#[derive(Debug)]
pub(crate) struct Evidence {
    lease: Duration,
    heard: BTreeMap<CoreId, Heard>,
    avoided: BTreeMap<(ShardId, NodeId), Avoided>,
    /// Shards whose primaries are to be replaced, and the terms of these primaries. They get no lease any more.
    moving: BTreeMap<ShardId, Epoch>,
    stuck: BTreeMap<ShardId, Patience>,
    /// Nodes whose process was asked to stop.
    stopping: BTreeSet<NodeId>,
    /// Recoveries that wait for something that may be lost for good: the term, when it last reported that, and what it
    /// lacks.
    waiting: BTreeMap<ShardId, (Epoch, Tick, Lack)>,
}

impl Evidence {
    /// Another lease, from now on.
    pub(crate) fn set_lease(&mut self, lease: Duration) {
        self.lease = lease;
    }

    pub(crate) fn new(lease: Duration) -> Self {
        Self {
            lease,
            heard: BTreeMap::new(),
            avoided: BTreeMap::new(),
            moving: BTreeMap::new(),
            stuck: BTreeMap::new(),
            stopping: BTreeSet::new(),
            waiting: BTreeMap::new(),
        }
    }

    /// A new process of this node runs: the reports of an earlier process mean nothing any more.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.heard.retain(|core, _| core.node != node);
        self.stopping.remove(&node);
    }

    /// A node's process was asked to stop: it gets no new witness lists.
    pub(crate) fn stops(&mut self, node: NodeId) {
        self.stopping.insert(node);
    }

    /// A term reports that it waits for something that may be lost for good (R7.7).
    pub(crate) fn lacks(&mut self, now: Tick, shard: ShardId, epoch: Epoch, lack: Lack) {
        self.waiting.insert(shard, (epoch, now, lack));
    }

    /// What a term has reported within the last lease that it waits for.
    pub(crate) fn lack(&self, now: Tick, shard: ShardId, epoch: Epoch) -> Option<&Lack> {
        let (term, at, lack) = self.waiting.get(&shard)?;
        (*term == epoch && now.since(*at) <= self.lease).then_some(lack)
    }

    /// A core reports which nodes it hears. Returns whether that has changed.
    pub(crate) fn hear(&mut self, now: Tick, core: CoreId, nodes: &[NodeId]) -> bool {
        let fresh = self.lease / 2;
        let known = self.heard.entry(core).or_insert_with(|| Heard { since: now, at: now, nodes: Vec::new() });
        if now.since(known.at) > fresh {
            known.since = now;
        }
        let was_young = known.at.since(known.since) < fresh;
        known.at = now;
        let news = was_young != (now.since(known.since) < fresh) || known.nodes != nodes;
        known.nodes.clear();
        known.nodes.extend_from_slice(nodes);
        news
    }

    fn fresh<'a>(&'a self, now: Tick, node: NodeId) -> impl Iterator<Item = &'a Heard> + 'a {
        let fresh = self.lease / 2;
        let of_node = CoreId { node, core: 0 }..=CoreId { node, core: u8::MAX };
        (self.heard.range(of_node).map(|(_, heard)| heard))
            .filter(move |heard| now.since(heard.at) <= fresh && heard.at.since(heard.since) >= fresh)
    }

    /// Whether `from` hears `to`; `None` if `from` has not reported lately.
    pub(crate) fn hears(&self, now: Tick, from: NodeId, to: NodeId) -> Option<bool> {
        let mut told = self.fresh(now, from).peekable();
        told.peek()?;
        Some(told.any(|heard| heard.nodes.contains(&to)))
    }

    /// Whether all cores of a node have spoken to us lately. Later than the half of a lease in which four heartbeats come, and before the end
    /// of the node's lease: so members that hear the same agree when that end comes.
    pub(crate) fn is_heard(&self, now: Tick, node: &NodeInfo) -> bool {
        let within = self.lease * 3 / 4;
        let is_heard = |core| self.heard.get(&core).is_some_and(|heard| now.since(heard.at) <= within);
        (0..).take(node.cores.len()).all(|core| is_heard(CoreId { node: node.node, core }))
    }

    /// Whether another node that we hear hears this one: then it is alive, even if we do not hear it.
    pub(crate) fn is_vouched_for(&self, now: Tick, node: NodeId) -> bool {
        let others = self.heard.keys().map(|core| core.node).filter(|&other| other != node);
        others.into_iter().any(|other| self.hears(now, other, node) == Some(true))
    }

    /// The primary `by` gets no answers from `node`. Returns whether that is new.
    pub(crate) fn avoid(&mut self, now: Tick, shard: ShardId, by: NodeId, node: NodeId) -> bool {
        let known = self.avoided.get(&(shard, node));
        if known.is_some_and(|known| known.by == by && now < known.until) {
            return false;
        }
        let term = match known {
            Some(known) => (known.term * 2).min(self.lease * AVOIDED_LEASES_MAX),
            None => self.lease * AVOIDED_LEASES,
        };
        let over = false;
        self.avoided.insert((shard, node), Avoided { by, until: now.after(term), term, over });
        true
    }

    /// A node has copied the shard's log: it answers. It is still known how long it was avoided.
    pub(crate) fn answers(&mut self, now: Tick, shard: ShardId, node: NodeId) {
        if let Some(avoided) = self.avoided.get_mut(&(shard, node)) {
            avoided.until = avoided.until.min(now);
        }
    }

    pub(crate) fn avoids(&self, now: Tick, shard: ShardId, by: NodeId, node: NodeId) -> bool {
        self.avoided.get(&(shard, node)).is_some_and(|avoided| avoided.by == by && now < avoided.until)
    }

    /// Drops old entries. Returns whether some node may be tried again.
    pub(crate) fn expire(&mut self, now: Tick) -> bool {
        let mut again = false;
        for avoided in self.avoided.values_mut().filter(|avoided| !avoided.over && now >= avoided.until) {
            avoided.over = true;
            again = true;
        }
        // An entry is forgotten when the node has done well for four times as long as it was avoided.
        self.avoided.retain(|_, avoided| now < avoided.until.after(avoided.term * 4));
        let lease = self.lease;
        self.stuck.retain(|_, patience| now < patience.not_before.after(lease * STUCK_LEASES_MAX));
        again
    }

    /// The shard's primary of this term is to be replaced.
    pub(crate) fn set_moving(&mut self, shard: ShardId, epoch: Epoch) {
        self.moving.insert(shard, epoch);
    }

    fn is_moving(&self, shard: ShardId, epoch: Epoch) -> bool {
        self.moving.get(&shard) == Some(&epoch)
    }

    pub(crate) fn moving(&self) -> impl Iterator<Item = (ShardId, Epoch)> + '_ {
        self.moving.iter().map(|(&shard, &epoch)| (shard, epoch))
    }

    pub(crate) fn stop_moving(&mut self, shard: ShardId) {
        self.moving.remove(&shard);
    }

    /// A recovery is stuck: whether another node may try now. If none of them makes progress, the turns become ever
    /// longer.
    pub(crate) fn may_try_another(&mut self, now: Tick, shard: ShardId) -> bool {
        let first = Patience { not_before: now, next: self.lease * STUCK_LEASES * 2 };
        let patience = self.stuck.entry(shard).or_insert(first);
        if now < patience.not_before {
            return false;
        }
        patience.not_before = now.after(patience.next);
        patience.next = (patience.next * 2).min(self.lease * STUCK_LEASES_MAX);
        true
    }
}

/// What a choice may look at besides the committed state: reports, leases and the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight<'a> {
    pub(crate) evidence: &'a Evidence,
    pub(crate) leases: &'a NodeLeases,
    pub(crate) now: Tick,
}

impl Sight<'_> {
    /// Whether a node speaks to us. A silent node may be alive, but it will not learn what it is to do.
    pub(crate) fn speaks(&self, node: NodeId) -> bool {
        !self.leases.any_silent(self.now, node)
    }

    /// Whether a core speaks to us at this moment: then it learns at once what is committed now.
    pub(crate) fn speaks_now(&self, core: CoreId) -> bool {
        self.leases.speaks_now(self.now, core)
    }

    /// Whether the shard's primary of this term is to be replaced.
    pub(crate) fn is_moving(&self, shard: ShardId, epoch: Epoch) -> bool {
        self.evidence.is_moving(shard, epoch)
    }

    /// Whether a node's process was asked to stop.
    pub(crate) fn is_stopping(&self, node: NodeId) -> bool {
        self.evidence.stopping.contains(&node)
    }

    /// Whether a shard's primary has reported that it gets no answers from a node.
    pub(crate) fn avoids(&self, shard: ShardId, primary: NodeId, node: NodeId) -> bool {
        self.evidence.avoids(self.now, shard, primary, node)
    }

    /// Whether one node hears another, as it has reported lately.
    pub(crate) fn hears(&self, from: NodeId, to: NodeId) -> bool {
        self.evidence.hears(self.now, from, to) == Some(true)
    }

    /// Whether one node hears another. True if nothing is known.
    pub(crate) fn may_hear(&self, from: NodeId, to: NodeId) -> bool {
        self.evidence.hears(self.now, from, to) != Some(false)
    }

    /// Whether a node can be of use to a shard under this primary: it speaks to us, and as far as we know it answers the
    /// primary, and the primary hears it.
    pub(crate) fn is_useful(&self, shard: ShardId, primary: NodeId, node: NodeId) -> bool {
        self.speaks(node) && !self.avoids(shard, primary, node) && self.may_hear(primary, node)
    }

    /// How many of these other nodes a node hears.
    pub(crate) fn count_heard(&self, from: NodeId, nodes: impl Iterator<Item = NodeId>) -> usize {
        nodes.filter(|&to| to != from && self.hears(from, to)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_millis(1000);
    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);
    const SHARD: ShardId = ShardId(0);

    fn at(millis: u64) -> Tick {
        Tick(millis * 1_000_000)
    }

    #[test]
    fn a_young_process_and_an_old_word_say_nothing() {
        let mut evidence = Evidence::new(LEASE);
        let core = CoreId { node: A, core: 0 };
        assert!(evidence.hear(at(0), core, &[]) || evidence.hears(at(0), A, B).is_none());
        evidence.hear(at(400), core, &[]);
        assert_eq!(evidence.hears(at(400), A, B), None, "it has only begun");
        assert!(evidence.hear(at(600), core, &[B]));
        assert_eq!(evidence.hears(at(600), A, B), Some(true));
        assert!(evidence.is_vouched_for(at(600), B) && !evidence.is_vouched_for(at(600), A));
        assert!(!evidence.hear(at(700), core, &[B]), "no news");
        assert!(evidence.hear(at(800), core, &[]));
        assert_eq!(evidence.hears(at(800), A, B), Some(false));
        assert_eq!(evidence.hears(at(1400), A, B), None, "long ago");
        evidence.hear(at(1400), core, &[B]);
        assert_eq!(evidence.hears(at(1400), A, B), None, "it was away");
    }

    #[test]
    fn who_does_not_answer_is_avoided_longer_each_time() {
        let mut evidence = Evidence::new(LEASE);
        assert!(evidence.avoid(at(0), SHARD, A, B));
        assert!(!evidence.avoid(at(5000), SHARD, A, B));
        assert!(evidence.avoids(at(9999), SHARD, A, B) && !evidence.avoids(at(9999), SHARD, B, B));
        assert!(!evidence.expire(at(9999)));
        assert!(evidence.expire(at(10_000)) && !evidence.expire(at(10_001)), "told once");
        assert!(evidence.avoid(at(11_000), SHARD, A, B));
        assert!(evidence.avoids(at(30_999), SHARD, A, B) && !evidence.avoids(at(31_000), SHARD, A, B));
        evidence.expire(at(31_000 + 80_000));
        assert!(evidence.avoid(at(112_000), SHARD, A, B));
        assert!(!evidence.avoids(at(122_000), SHARD, A, B), "it did well for long");
    }

    #[test]
    fn stuck_recoveries_take_turns_ever_more_slowly() {
        let mut evidence = Evidence::new(LEASE);
        assert!(evidence.may_try_another(at(0), SHARD));
        assert!(!evidence.may_try_another(at(9_999), SHARD));
        assert!(evidence.may_try_another(at(10_000), SHARD));
        assert!(!evidence.may_try_another(at(29_999), SHARD));
        assert!(evidence.may_try_another(at(30_000), SHARD));
    }
}
