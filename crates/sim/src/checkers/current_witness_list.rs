//! Current witness list (C3, R6.2): no update completes on a list that the recovery will not read.
//!
//! An answer that is not synced counts only together with the witnesses of its attempt's list. So no such answer leaves
//! for a list that its primary has reported closed, or that has a successor in the same term. When a successor is
//! committed, the committed set holds everything that was answered in this way under the list before.

use std::collections::BTreeMap;

use kasha_types::{ConfigVersion, Epoch, ListVersion, RpcId, ShardId};
use kasha_wire::frame::Kind;
use kasha_wire::message::{ConfigurationIs, Gc, Heartbeat, Report};
use kasha_wire::{AnswerView, Body, Configuration, OutcomeCode, RequestView};

use crate::checkers::records::{Record, Records};
use crate::clock::SimTime;
use crate::configurations::{Configurations, Cores};
use crate::probes::Probes;
use crate::world::{Sent, View, Watch};

/// Watches answers and lists.
#[derive(Debug, Default)]
pub struct CurrentWitnessList {
    configurations: Configurations,
    cores: Cores,
    records: Records,
    seen: ConfigVersion,
    /// The list of each attempt.
    attempts: BTreeMap<(RpcId, ShardId, u32), ListVersion>,
    /// Updates that were answered under a list, and are not known to be synced.
    unsynced: BTreeMap<(ShardId, Epoch, ListVersion), BTreeMap<RpcId, Record>>,
    /// When a primary first reported that a list is closed. An answer that leaves at the same moment may have waited
    /// for the same file as the sync.
    closed_at: BTreeMap<(ShardId, Epoch, ListVersion), SimTime>,
    violations: Vec<String>,
    checked: u64,
}

impl CurrentWitnessList {
    /// Watches these cores under these configurations.
    #[must_use]
    pub fn new(configurations: Configurations, cores: Cores, records: Records) -> Self {
        Self { configurations, cores, records, ..Self::default() }
    }

    fn on_reports(&mut self, now: SimTime, reports: &[Report]) {
        for report in reports {
            if let Report::ListClosed { shard, epoch, list } = *report {
                self.closed_at.entry((shard, epoch, list)).or_insert(now);
            }
        }
    }

    fn on_fast_answer(&mut self, now: SimTime, answer: &AnswerView<'_>) {
        let &AnswerView { rpc, attempt, epoch, shard, .. } = answer;
        let Some(&list) = self.attempts.get(&(rpc, shard, attempt)) else { return };
        if self.closed_at.get(&(shard, epoch, list)).is_some_and(|&closed| closed < now) {
            self.violations.push(format!(
                "current_witness_list: {shard} {epoch} answered {rpc} under {list}, which it has reported closed (R6.2)"
            ));
        }
        let latest = self.configurations.latest();
        let newer = latest.as_ref().and_then(|latest| latest.shard(shard)).filter(|config| config.epoch == epoch);
        if let Some(newer) = newer.map(|config| config.list).filter(|&newest| newest > list) {
            self.violations.push(format!(
                "current_witness_list: {shard} {epoch} answered {rpc} under {list}, but {newer} is in force (C3)"
            ));
        }
        self.checked += 1;
        let is_prepared = answer.result.first() == Some(&(OutcomeCode::Prepared as u8));
        let record = if is_prepared { Record::Part(rpc) } else { Record::Completion(rpc) };
        self.unsynced.entry((shard, epoch, list)).or_default().insert(rpc, record);
    }

    fn on_configuration(&mut self, configuration: &Configuration) {
        self.seen = configuration.version;
        for config in &configuration.shards {
            let first = (config.shard, Epoch(0), ListVersion::NONE);
            let last = (config.shard, config.epoch, ListVersion(config.list.0 - 1));
            let old: Vec<_> = self.unsynced.range(first..=last).map(|(&key, _)| key).collect();
            for key in old {
                let answered = self.unsynced.remove(&key).expect("just seen");
                // Lists of older terms do not matter: their witnesses were replayed instead.
                for (rpc, record) in answered.into_iter().filter(|_| key.1 == config.epoch) {
                    let term = (config.shard, config.epoch);
                    let lacked = self.records.lacked_in_all_sets(&self.configurations, &self.cores, term, record);
                    if let Some(lacking) = lacked {
                        self.violations.push(format!(
                            "current_witness_list: {} {} replaced {} by {} before {rpc} was synced, which was answered \
                             (R6.2): {lacking}",
                            config.shard, config.epoch, key.2, config.list
                        ));
                    }
                }
            }
        }
    }
}

impl Watch for CurrentWitnessList {
    fn sent(&mut self, sent: &Sent<'_>, view: &View<'_>) {
        match Kind::from_number(sent.kind) {
            Some(Kind::Request) => {
                if let Ok(request) = RequestView::decode(sent.payload)
                    && let Ok(body) = Body::decode(request.body)
                {
                    let envelope = request.envelope;
                    self.attempts.insert((body.head.rpc, envelope.shard, envelope.attempt), envelope.list);
                }
            }
            Some(Kind::Answer) => {
                if let Ok(answer) = AnswerView::decode(sent.payload)
                    && !answer.synced
                {
                    self.on_fast_answer(view.now, &answer);
                }
            }
            Some(Kind::Message) => {
                if let Some(Gc { shard, entries, .. }) = sent.message() {
                    // Everything that a gc names is synced.
                    for (_, unsynced) in self.unsynced.iter_mut().filter(|((of, ..), _)| *of == shard) {
                        unsynced.retain(|rpc, _| entries.iter().all(|entry| entry.rpc != *rpc));
                    }
                } else if let Some(Heartbeat { reports, .. }) = sent.message() {
                    self.on_reports(view.now, &reports);
                } else if sent.is::<ConfigurationIs>()
                    && let Some(latest) = self.configurations.latest().filter(|latest| latest.version > self.seen)
                {
                    self.on_configuration(&latest);
                }
            }
            _ => {}
        }
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("claims checked: fast", self.checked);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::records::tests::{RPC, SHARD, hold, segment, three_cores};
    use crate::configurations::tests::{configuration, tell};

    const ANSWER: AnswerView<'_> =
        AnswerView { rpc: RPC, epoch: Epoch(1), attempt: 1, synced: false, shard: SHARD, result: &[] };

    fn watch() -> CurrentWitnessList {
        let mut watch = CurrentWitnessList::new(Configurations::default(), three_cores(), Records::default());
        watch.attempts.insert((RPC, SHARD, 1), ListVersion(1));
        watch
    }

    fn with_list(version: u64, list: u64) -> Configuration {
        let mut configuration = configuration(version, 1, 1);
        configuration.shards[0].list = ListVersion(list);
        configuration
    }

    #[test]
    fn no_answer_for_an_old_list() {
        let mut watch = watch();
        tell(&watch.configurations, &with_list(1, 1));
        watch.on_fast_answer(SimTime(1), &ANSWER);
        assert_eq!(watch.take_violations(), Vec::<String>::new());
        tell(&watch.configurations, &with_list(2, 2));
        watch.on_fast_answer(SimTime(1), &ANSWER);
        assert_eq!(watch.take_violations().len(), 1);
    }

    #[test]
    fn no_answer_once_the_list_is_reported_closed_but_in_that_turn() {
        let mut watch = watch();
        watch.on_fast_answer(SimTime(1), &ANSWER);
        watch.on_reports(SimTime(2), &[Report::ListClosed { shard: SHARD, epoch: Epoch(1), list: ListVersion(1) }]);
        for (now, found) in [(2, 0), (3, 1)] {
            watch.on_fast_answer(SimTime(now), &ANSWER);
            assert_eq!(watch.take_violations().len(), found, "at {now}");
        }
    }

    #[test]
    fn what_was_answered_is_synced_before_the_next_list() {
        for holders in [1..=1, 1..=2] {
            let mut watch = watch();
            watch.on_fast_answer(SimTime(1), &ANSWER);
            holders.clone().for_each(|process| hold(&watch.records, process, segment(0), RPC));
            tell(&watch.configurations, &with_list(2, 2));
            watch.on_configuration(&with_list(2, 2));
            let lacking = usize::from(holders.count() < 2);
            assert_eq!(watch.take_violations().len(), lacking, "the backup must hold it, too");
        }
    }
}
