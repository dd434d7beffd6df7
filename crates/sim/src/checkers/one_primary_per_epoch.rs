//! One primary per term (F1, F2, R7.1, R7.2): in one term of a shard only one life of one core appends or answers, it
//! is the life that the coordinator committed, and the synced position only grows. A term that was over when a read was
//! asked does not answer it. No member obeys an older term than one that it has promised.

use std::collections::BTreeMap;

use kasha_types::{Epoch, LogEnd, RpcId, ShardId};
use kasha_wire::frame::Kind;
use kasha_wire::message::{Attached, ConfigurationIs, FenceReport};
use kasha_wire::{
    AnswerView, AppendView, Appended, Body, ReadAnswerView, ReadView, RequestView, ShardPhase, Synced, hot,
};

use crate::clock::SimTime;
use crate::configurations::{Configurations, Cores};
use crate::network::{Life, ProcessId};
use crate::probes::Probes;
use crate::world::{Sent, View, Watch};

/// The terms that a read was sent to, and when.
type Asks = BTreeMap<(ShardId, Epoch), SimTime>;

/// Watches which processes act as primary.
#[derive(Debug, Default)]
pub struct OnePrimaryPerEpoch {
    configurations: Configurations,
    cores: Cores,
    primaries: BTreeMap<(ShardId, Epoch), Life>,
    synced: BTreeMap<(ShardId, Epoch), LogEnd>,
    shards: BTreeMap<RpcId, ShardId>,
    /// Reads by asker and receiver. A read is asked again as long as it has no answer.
    reads: BTreeMap<(Life, u64, ProcessId), Asks>,
    /// Since when each term serves.
    serving: BTreeMap<(ShardId, Epoch), SimTime>,
    promised: BTreeMap<(ProcessId, ShardId), Epoch>,
    violations: Vec<String>,
    reads_checked: u64,
}

impl OnePrimaryPerEpoch {
    /// Watches these cores under these configurations.
    #[must_use]
    pub fn new(configurations: Configurations, cores: Cores) -> Self {
        Self { configurations, cores, ..Self::default() }
    }

    fn acts(&mut self, life: Life, shard: ShardId, epoch: Epoch, what: &str) {
        match self.primaries.get(&(shard, epoch)) {
            Some(&known) if known == life => {}
            Some(known) => self.violations.push(format!(
                "one_primary_per_epoch: {shard} {epoch}: {life:?} sent {what}, but {known:?} was primary (F1, R7.1)"
            )),
            None => {
                let term = self.configurations.of_term(shard, epoch);
                let node = self.cores.core(life.process).map(|core| core.node);
                if let (Some((_, committed)), Some(node)) = (term.first(), node)
                    && committed.primary != node
                {
                    self.violations.push(format!(
                        "one_primary_per_epoch: {node} sent {what} of {shard} {epoch}, whose primary is {} (F1)",
                        committed.primary
                    ));
                }
                self.primaries.insert((shard, epoch), life);
            }
        }
    }
}

impl OnePrimaryPerEpoch {
    /// A read is answered. The answer may be old if a later term served already when the read was first asked (F1). An
    /// answer that waited at its primary for a sync, which then came, is as good as one of that moment.
    fn on_read_answer(&mut self, asker: Life, read_id: u64, by: ProcessId) {
        let Some(asks) = self.reads.get(&(asker, read_id, by)) else { return };
        self.reads_checked += 1;
        let later = |&(shard, epoch): &(ShardId, Epoch), asked: &SimTime| {
            let mut later = self.serving.range((shard, epoch.next())..=(shard, Epoch(u32::MAX)));
            later.find(|(_, since)| *since < asked).map(|(&(_, newer), since)| {
                format!(
                    "one_primary_per_epoch: {shard} {epoch} answered a read that was asked at {asked}, but {newer} served \
                     since {since} (F1)"
                )
            })
        };
        let too_late: Option<Vec<String>> = asks.iter().map(|(term, asked)| later(term, asked)).collect();
        self.violations.extend(too_late.and_then(|texts| texts.into_iter().next()));
    }

    /// A member sends a frame that shows that it obeys this term.
    fn on_promise(&mut self, member: ProcessId, shard: ShardId, epoch: Epoch, what: &str) {
        let promised = self.promised.entry((member, shard)).or_insert(epoch);
        if *promised > epoch {
            self.violations.push(format!(
                "one_primary_per_epoch: {member:?} sent {what} of {shard} {epoch}, but has promised {promised} (F2, step 2)"
            ));
        }
        *promised = epoch.max(*promised);
    }

    fn on_message(&mut self, sent: &Sent<'_>, view: &View<'_>) {
        if sent.is::<ConfigurationIs>() {
            let latest = self.configurations.latest();
            for config in latest.iter().flat_map(|latest| &latest.shards) {
                if config.phase == ShardPhase::Serving {
                    self.serving.entry((config.shard, config.epoch)).or_insert(view.now);
                }
            }
        }
        if let Some(FenceReport { shard, epoch, .. }) = sent.message() {
            self.on_promise(sent.from, shard, epoch, "FenceReport");
        }
        if let Some(Attached { shard, epoch, .. }) = sent.message() {
            self.on_promise(sent.from, shard, epoch, "Attached");
        }
    }
}

impl Watch for OnePrimaryPerEpoch {
    fn sent(&mut self, sent: &Sent<'_>, view: &View<'_>) {
        let life = Life { process: sent.from, life: view.processes[sent.from.0].life };
        match Kind::from_number(sent.kind) {
            Some(Kind::Request | Kind::Cancel) => {
                if let Ok(request) = RequestView::decode(sent.payload)
                    && let Ok(body) = Body::decode(request.body)
                {
                    self.shards.insert(body.head.rpc, request.envelope.shard);
                }
            }
            Some(Kind::Append) => {
                if let Ok(append) = AppendView::decode(sent.payload) {
                    self.acts(life, append.shard, append.epoch, "Append");
                    let synced = self.synced.entry((append.shard, append.epoch)).or_default();
                    if append.synced < *synced {
                        self.violations.push(format!(
                            "one_primary_per_epoch: {} {}: synced to {synced}, then to {}",
                            append.shard, append.epoch, append.synced
                        ));
                    }
                    *synced = append.synced;
                }
            }
            Some(Kind::Answer) => {
                if let Ok(answer) = AnswerView::decode(sent.payload) {
                    self.acts(life, answer.shard, answer.epoch, "Answer");
                }
            }
            Some(Kind::Synced) => {
                if let Ok(synced) = hot::decode_small::<Synced>(sent.payload)
                    && let Some(&shard) = self.shards.get(&synced.rpc)
                {
                    self.acts(life, shard, synced.epoch, "Synced");
                }
            }
            Some(Kind::Appended) => {
                if let Ok(appended) = hot::decode_small::<Appended>(sent.payload) {
                    self.on_promise(sent.from, appended.shard, appended.epoch, "Appended");
                }
            }
            Some(Kind::Read) => {
                if let (Ok(read), Some(target)) = (ReadView::decode(sent.payload), sent.target) {
                    let asks = self.reads.entry((life, read.read_id, target)).or_default();
                    asks.entry((read.envelope.shard, read.envelope.epoch)).or_insert(view.now);
                }
            }
            Some(Kind::ReadAnswer) => {
                if let (Ok(answer), Some(asker)) = (ReadAnswerView::decode(sent.payload), sent.target) {
                    let asker = Life { process: asker, life: view.processes[asker.0].life };
                    self.on_read_answer(asker, answer.read_id, sent.from);
                }
            }
            Some(Kind::Message) => self.on_message(sent, view),
            _ => {}
        }
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("claims checked: reads", self.reads_checked);
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_primary_of_a_term_is_found() {
        let mut watch = OnePrimaryPerEpoch::default();
        let life = |process, life| Life { process: ProcessId(process), life };
        watch.acts(life(0, 1), ShardId(0), Epoch(1), "Append");
        watch.acts(life(1, 1), ShardId(0), Epoch(2), "Append");
        watch.acts(life(0, 1), ShardId(0), Epoch(1), "Answer");
        assert!(watch.take_violations().is_empty());
        watch.acts(life(1, 1), ShardId(0), Epoch(1), "Answer");
        assert_eq!(watch.take_violations().len(), 1);
        watch.acts(life(0, 2), ShardId(0), Epoch(1), "Answer");
        assert_eq!(watch.take_violations().len(), 1, "a restarted process has no term");
    }

    #[test]
    fn f1_a_read_is_not_answered_by_a_term_that_is_over() {
        let (asker, by) = (Life { process: ProcessId(9), life: 1 }, ProcessId(1));
        let mut watch = OnePrimaryPerEpoch::default();
        watch.serving.insert((ShardId(0), Epoch(2)), SimTime(10));
        let asks = [(1, 1, 10), (2, 1, 11), (3, 1, 11), (3, 2, 11)];
        for (read_id, epoch, at) in asks {
            let asks = watch.reads.entry((asker, read_id, by)).or_default();
            asks.insert((ShardId(0), Epoch(epoch)), SimTime(at));
        }
        watch.on_read_answer(asker, 1, by);
        watch.on_read_answer(asker, 3, by);
        watch.on_read_answer(asker, 2, ProcessId(2));
        assert_eq!(watch.take_violations(), Vec::<String>::new());
        watch.on_read_answer(asker, 2, by);
        assert_eq!(watch.take_violations().len(), 1);
    }

    #[test]
    fn f2_a_member_obeys_no_older_term_than_it_has_promised() {
        let mut watch = OnePrimaryPerEpoch::default();
        watch.on_promise(ProcessId(1), ShardId(0), Epoch(2), "FenceReport");
        watch.on_promise(ProcessId(1), ShardId(0), Epoch(3), "Attached");
        assert_eq!(watch.take_violations(), Vec::<String>::new());
        watch.on_promise(ProcessId(1), ShardId(0), Epoch(2), "Appended");
        assert_eq!(watch.take_violations().len(), 1);
    }
}
