//! Which nodes this core hears, whom its shards get no answers from, and which of its recoveries are stuck: what a
//! heartbeat tells the coordinator besides "we are alive" (pitfall 9; decision 0007).
//!
//! Looked at once a heartbeat, off the path of any request. Nothing here is believed by anybody for more than a while,
//! and nothing that is safe depends on it.

use std::collections::BTreeMap;

use kasha_machine::{Effects, Endpoint, Gate};
use kasha_replication::PeerProgress;
use kasha_types::{CoreId, Epoch, LogEnd, NodeId, ShardId, Tick};
use kasha_wire::message::{self, Report};

use crate::core::Core;
use crate::core::send::send;
use crate::primary::{Primary, Stage};
use crate::shard::Replica;

/// A lease, in heartbeats.
const LEASE: u32 = 8;
/// A ping's answer says that a node is heard for so long: shorter than a lease, or its loss would be noticed late.
const HEARD: u32 = LEASE / 2;
/// A node that answered no ping for so long may have missed other things, too.
const MISSED: u32 = 2;
/// A recovery that gets no further for so many halves of the patience is reported.
const STUCK_HALVES: u32 = 5;

/// What a node is to a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Member,
    Witness,
}

/// Somebody of whom something is wanted.
#[derive(Clone, Copy, Debug)]
struct Watched {
    epoch: Epoch,
    /// What it had done when last looked at; `None`: a witness, of which pings say enough.
    progress: Option<PeerProgress>,
    /// Since when it has done nothing that was wanted.
    since: Tick,
    seen: Tick,
}

/// A recovery under way: how far its log goes, how many older segments it lacks, whether it has come to the witnesses, and
/// since when it got no further.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    epoch: Epoch,
    has_log: bool,
    end: LogEnd,
    absent: usize,
    since: Tick,
}

/// All that is known.
#[derive(Debug)]
pub(crate) struct Links {
    next_look: Tick,
    looked: Tick,
    /// When the newest ping was sent that a node answered.
    heard: BTreeMap<NodeId, Tick>,
    watched: BTreeMap<(ShardId, NodeId, Part), Watched>,
    recoveries: BTreeMap<ShardId, Recovery>,
    reports: Vec<Report>,
}

impl Links {
    pub fn new(now: Tick) -> Self {
        Self {
            next_look: now,
            looked: now,
            heard: BTreeMap::new(),
            watched: BTreeMap::new(),
            recoveries: BTreeMap::new(),
            reports: Vec::new(),
        }
    }

    pub fn next_deadline(&self) -> Tick {
        self.next_look
    }

    /// What the coordinator should know, as of the last look.
    pub fn reports(&self) -> &[Report] {
        &self.reports
    }

    /// Who does not answer a shard of ours, in words; empty: everybody does.
    pub fn describe(&self, shard: ShardId) -> String {
        let silent = self.reports.iter().filter_map(|report| match report {
            Report::Unanswered { shard: of, node, .. } if *of == shard => Some(format!("; {node} does not answer")),
            _ => None,
        });
        silent.collect()
    }

    /// A node answered a ping. Whether it did not for a while: what it was sent meanwhile may be lost.
    pub fn on_pong(&mut self, core: &Core, now: Tick, node: NodeId, sent: Tick) -> bool {
        // Only nodes of the cluster: a stranger's answers must not fill our memory.
        let is_known = core.configuration.as_ref().is_some_and(|known| known.node(node).is_some());
        if !is_known || sent > now {
            return false;
        }
        let heard = self.heard.entry(node).or_insert(sent);
        let was_silent = sent.since(*heard) > core.options.heartbeat * MISSED;
        *heard = (*heard).max(sent);
        was_silent
    }

    /// The nodes that this core hears.
    pub fn heard(&self, core: &Core, now: Tick) -> Vec<NodeId> {
        let recent = core.options.heartbeat * HEARD;
        self.heard.iter().filter(|&(_, &sent)| now.since(sent) <= recent).map(|(&node, _)| node).collect()
    }

    /// Looks around, once a heartbeat.
    pub fn look(&mut self, core: &Core, now: Tick, replicas: &BTreeMap<ShardId, Replica>, out: &mut Effects) {
        if now < self.next_look {
            return;
        }
        self.next_look = now.after(core.options.heartbeat);
        if now.since(self.looked) > core.options.heartbeat * HEARD {
            // We were stopped, not the others.
            self.watched.clear();
            self.recoveries.clear();
        }
        self.looked = now;
        self.ping(core, now, out);
        self.reports.clear();
        for (&shard, replica) in replicas {
            if let Some(primary) = replica.role.primary() {
                self.watch_members(core, now, shard, primary);
                self.watch_witnesses(core, now, shard, primary);
                self.watch_recovery(core, now, replica, primary);
            }
        }
        self.watched.retain(|_, watched| watched.seen == now);
        self.recoveries.retain(|shard, _| replicas.get(shard).is_some_and(|replica| replica.role.primary().is_some()));
    }

    /// Asks every other node, at the core that hosts the same shards.
    fn ping(&mut self, core: &Core, now: Tick, out: &mut Effects) {
        let Some(configuration) = &core.configuration else { return };
        let own = core.id();
        for info in configuration.nodes.iter().filter(|info| info.alive && info.node != own.node) {
            let cores = u8::try_from(info.cores.len()).unwrap_or(u8::MAX).max(1);
            let to = CoreId { node: info.node, core: own.core % cores };
            send(Endpoint::Core(to), &message::Ping { sent: now }, Gate::Now, out);
        }
    }

    fn watch_members(&mut self, core: &Core, now: Tick, shard: ShardId, primary: &Primary) {
        match &primary.stage {
            Stage::Syncing(_) | Stage::Reporting | Stage::Serving(_) => {}
            // Members are not asked for anything yet.
            Stage::Fencing(_) | Stage::Fetching(_) | Stage::Replaying | Stage::Witnessing(_) => return,
        }
        for peer in primary.term.shipping.peers() {
            let progress = peer.progress();
            self.watch(core, now, (shard, peer.core.node, Part::Member), primary.term.epoch, Some(progress));
        }
    }

    fn watch_witnesses(&mut self, core: &Core, now: Tick, shard: ShardId, primary: &Primary) {
        let config = core.configuration.as_ref().and_then(|known| known.shard(shard));
        let Some(config) = config.filter(|config| config.epoch == primary.term.epoch) else { return };
        if primary.serving().is_some() {
            for &node in &config.witnesses {
                self.watch(core, now, (shard, node, Part::Witness), primary.term.epoch, None);
            }
        }
    }

    fn watch(
        &mut self,
        core: &Core,
        now: Tick,
        (shard, node, part): (ShardId, NodeId, Part),
        epoch: Epoch,
        progress: Option<PeerProgress>,
    ) {
        let new = Watched { epoch, progress, since: now, seen: now };
        let watched = self.watched.entry((shard, node, part)).or_insert(new);
        let did_something = match (progress, watched.progress) {
            (Some(progress), Some(before)) => !progress.waits || is_further(&progress, &before),
            (Some(_), None) => true,
            (None, _) => {
                let recent = core.options.heartbeat * HEARD;
                self.heard.get(&node).is_some_and(|&sent| now.since(sent) <= recent)
            }
        };
        if watched.epoch != epoch || did_something {
            watched.since = now;
        }
        (watched.epoch, watched.progress, watched.seen) = (epoch, progress, now);
        if now.since(watched.since) >= core.options.patience {
            self.reports.push(Report::Unanswered { shard, epoch, node });
        }
    }

    fn watch_recovery(&mut self, core: &Core, now: Tick, replica: &Replica, primary: &Primary) {
        let has_log = match &primary.stage {
            Stage::Fencing(_) | Stage::Fetching(_) => false,
            Stage::Witnessing(_) => true,
            Stage::Replaying | Stage::Syncing(_) | Stage::Reporting | Stage::Serving(_) => {
                self.recoveries.remove(&replica.shard());
                return;
            }
        };
        let (shard, epoch, end) = (replica.shard(), primary.term.epoch, replica.copy.log.end().offset);
        let absent = replica.copy.log.absent().len();
        let new = Recovery { epoch, has_log, end, absent, since: now };
        let recovery = self.recoveries.entry(shard).or_insert(new);
        let is_another = recovery.epoch != epoch || recovery.has_log != has_log;
        if is_another || end > recovery.end || absent < recovery.absent {
            *recovery = new;
        }
        (recovery.end, recovery.absent) = (end, absent);
        if now.since(recovery.since) >= core.options.patience / 2 * STUCK_HALVES {
            self.reports.push(Report::Stuck { shard, epoch });
        }
    }
}

/// Whether a member did something that was wanted. Being asked again from the beginning is nothing.
fn is_further(now: &PeerProgress, before: &PeerProgress) -> bool {
    let attached = now.attached && !before.attached;
    let copied = match (now.copying, before.copying) {
        (Some((left, done)), Some((left_before, done_before))) => {
            left < left_before || (left == left_before && done > done_before)
        }
        (None, Some(_)) => now.attached,
        (_, None) => false,
    };
    attached || copied || (now.attached && (now.held > before.held || now.round > before.round))
}

#[cfg(test)]
mod tests {
    use kasha_types::Round;

    use super::*;

    fn progress(attached: bool, held: u64, copying: Option<(usize, u32)>) -> PeerProgress {
        PeerProgress { waits: true, attached, held: LogEnd(held), round: Round(0), copying }
    }

    #[test]
    fn only_what_was_wanted_counts_as_progress() {
        let before = progress(true, 100, Some((2, 50)));
        assert!(!is_further(&before, &before));
        assert!(is_further(&progress(true, 101, Some((2, 50))), &before));
        assert!(is_further(&progress(true, 100, Some((2, 51))), &before));
        assert!(is_further(&progress(true, 100, Some((1, 0))), &before));
        assert!(is_further(&progress(true, 100, None), &before));
        assert!(!is_further(&progress(false, 0, None), &before), "it begins anew");
        assert!(is_further(&progress(true, 0, Some((9, 0))), &progress(false, 0, None)));
        assert!(!is_further(&progress(false, 0, None), &progress(false, 0, None)));
    }
}
