//! One primary per term (F1, R7.1, R7.2): in one term of a shard only one life of one core appends or answers, it is
//! the one that the coordinator committed, and what it says is synced only grows.

use std::collections::BTreeMap;

use kasha_types::{Epoch, RpcId, ShardId};
use kasha_wire::frame::Kind;
use kasha_wire::{AnswerView, AppendView, Body, RequestView, Synced, hot};

use crate::configurations::{Configurations, Cores};
use crate::network::Life;
use crate::world::{Sent, View, Watch};

/// Watches who acts as primary.
#[derive(Debug, Default)]
pub struct OnePrimaryPerEpoch {
    configurations: Configurations,
    cores: Cores,
    primaries: BTreeMap<(ShardId, Epoch), Life>,
    synced: BTreeMap<(ShardId, Epoch), u64>,
    shards: BTreeMap<RpcId, ShardId>,
    violations: Vec<String>,
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
                if let Ok(answer) = AnswerView::decode(sent.payload)
                    && let Some(&shard) = self.shards.get(&answer.rpc)
                {
                    self.acts(life, shard, answer.epoch, "Answer");
                }
            }
            Some(Kind::Synced) => {
                if let Ok(synced) = hot::decode_small::<Synced>(sent.payload)
                    && let Some(&shard) = self.shards.get(&synced.rpc)
                {
                    self.acts(life, shard, synced.epoch, "Synced");
                }
            }
            _ => {}
        }
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
    use crate::network::ProcessId;

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
}
