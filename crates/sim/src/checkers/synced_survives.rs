//! Synced survives (D1, D2): when a new primary serves, it holds every update that was promised to anybody before.
//!
//! A promise is an update that a primary called synced, or that it answered while all witnesses of the attempt's list
//! had accepted it. Of a transaction over several shards that is what a participant has prepared. And if one of the
//! participants called it executed, each of them holds the proposal or the outcome, from which all come to the same
//! (R8.1). A record may be gone if its client has acknowledged it or lost its lease, or with its table; and under
//! `replicated` durability, if the update was promised shortly before every machine lost power (section 5). So updates
//! that were promised longer ago than that are on the new primary's disk: their witnesses are not needed any more.

use std::collections::{BTreeMap, BTreeSet};

use kasha_types::{ClientId, ConfigVersion, Epoch, RpcId, ShardId};
use kasha_wire::message::{ConfigurationIs, LeaseVerdict};
use kasha_wire::{Configuration, OutcomeCode, ShardPhase};

use crate::checkers::promises::{Promise, Promises};
use crate::checkers::records::{Record, Records, records_on};
use crate::clock::SimTime;
use crate::configurations::{Configurations, Cores};
use crate::network::ProcessId;
use crate::probes::Probes;
use crate::world::{Sent, View, Watch};

/// Watches promises and new primaries.
#[derive(Debug, Default)]
pub struct SyncedSurvives {
    promises: Promises,
    cores: Cores,
    records: Records,
    seen: ConfigVersion,
    /// The promised updates, and since when they are promised.
    promised: BTreeMap<ShardId, BTreeMap<RpcId, SimTime>>,
    /// How long before a blackout a promise may be lost, if not everything is fsynced.
    forgets: Option<u64>,
    expired: BTreeSet<ClientId>,
    served: BTreeMap<ShardId, Epoch>,
    violations: Vec<String>,
    checked: u64,
}

impl SyncedSurvives {
    /// Watches these cores under these configurations.
    #[must_use]
    pub fn new(configurations: Configurations, cores: Cores, records: Records) -> Self {
        Self { promises: Promises::new(configurations), cores, records, ..Self::default() }
    }

    /// A blackout may take back what was promised this many nanoseconds before it.
    #[must_use]
    pub fn forgetting(self, forgets: Option<u64>) -> Self {
        Self { forgets, ..self }
    }

    fn promise(&mut self, promise: Promise, now: SimTime) {
        let (rpc, shards) = match promise {
            Promise::Update(rpc) => (rpc, self.promises.updates.get(&rpc).map(|(shard, _)| [*shard].into())),
            Promise::Outcome(rpc, _, OutcomeCode::Done) => (rpc, self.promises.participants.get(&rpc).cloned()),
            Promise::Outcome(rpc, shard, _) => (rpc, Some([shard].into())),
        };
        for shard in shards.into_iter().flatten() {
            self.promised.entry(shard).or_default().entry(rpc).or_insert(now);
        }
    }

    /// The records of which a shard must have one.
    fn records_of(&self, rpc: RpcId) -> impl Iterator<Item = Record> {
        let is_distributed = self.promises.participants.contains_key(&rpc);
        std::iter::once(Record::Completion(rpc)).chain(is_distributed.then_some(Record::Part(rpc)))
    }

    fn on_blackout(&mut self, now: SimTime) {
        let Some(forgets) = self.forgets else { return };
        self.promised.values_mut().for_each(|promised| promised.retain(|_, at| at.after(forgets) < now));
    }

    /// `on_disk`: the records of a shard that a process would still have after a loss of power.
    fn on_configuration(
        &mut self,
        configuration: &Configuration,
        now: SimTime,
        on_disk: impl Fn(ProcessId, ShardId) -> BTreeSet<Record>,
    ) {
        self.seen = configuration.version;
        for config in configuration.shards.iter().filter(|config| config.phase == ShardPhase::Serving) {
            let shard = config.shard;
            if self.served.insert(shard, config.epoch) == Some(config.epoch) {
                continue;
            }
            let Some(primary) = self.cores.host_of(configuration, config.primary, shard) else { continue };
            let (promises, expired) = (&self.promises, &self.expired);
            let is_owed = |rpc: &RpcId| {
                let has_table = promises.updates[rpc].1.iter().any(|&table| configuration.has_table(table));
                promises.is_unacknowledged(*rpc) && !expired.contains(&rpc.client) && has_table
            };
            let mut promised = self.promised.remove(&shard).unwrap_or_default();
            promised.retain(|rpc, _| is_owed(rpc));
            self.checked += promised.len() as u64;
            let has = |rpc| self.records_of(rpc).any(|record| self.records.has(primary, shard, record));
            let lost: Vec<_> = promised.keys().copied().filter(|&rpc| !has(rpc)).collect();
            for rpc in lost {
                self.violations.push(format!(
                    "synced_survives: {} serves {shard} {} without {rpc}, which was promised before (D1, D2)",
                    config.primary, config.epoch
                ));
            }
            if let Some(forgets) = self.forgets {
                let flushed = on_disk(primary, shard);
                let is_flushed = |rpc| self.records_of(rpc).any(|record| flushed.contains(&record));
                let is_old = |at: &SimTime| at.after(forgets) < now;
                let unflushed = promised.iter().filter(|&(&rpc, at)| is_old(at) && !is_flushed(rpc));
                let unflushed: Vec<_> = unflushed.map(|(&rpc, _)| rpc).collect();
                for rpc in unflushed {
                    self.violations.push(format!(
                        "synced_survives: {} serves {shard} {} and has {rpc}, which was promised long before, not on its disk \
                         (section 5)",
                        config.primary, config.epoch
                    ));
                }
            }
            for &rpc in promised.keys() {
                let term = (shard, config.epoch);
                let lacked =
                    |record| self.records.lacked_in_all_sets(&self.promises.configurations, &self.cores, term, record);
                let lacking: Option<Vec<_>> = self.records_of(rpc).map(lacked).collect();
                if let Some(lacking) = lacking {
                    self.violations.push(format!(
                        "synced_survives: {shard} {} is served, but {rpc}, which was promised before, is not synced \
                         (section 7, step 5): {}",
                        config.epoch,
                        lacking.join("; ")
                    ));
                }
            }
            self.promised.insert(shard, promised);
        }
    }
}

impl Watch for SyncedSurvives {
    fn sent(&mut self, sent: &Sent<'_>, view: &View<'_>) {
        if let Some(promise) = self.promises.take_in(sent) {
            self.promise(promise, view.now);
        }
        if sent.is::<ConfigurationIs>()
            && let Some(latest) = self.promises.configurations.latest().filter(|latest| latest.version > self.seen)
        {
            let disk = |process: ProcessId| &view.processes[process.0].disk;
            self.on_configuration(&latest, view.now, |process, shard| records_on(disk(process), shard));
        }
        if let Some(LeaseVerdict { expired, .. }) = sent.message() {
            self.expired.extend(expired);
        }
    }

    fn blackout(&mut self, view: &View<'_>) {
        self.on_blackout(view.now);
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("claims checked: survived", self.checked);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use kasha_types::{AckedBelow, ListVersion, NodeId, TableId};

    use super::*;
    use crate::checkers::promises::Attempt;
    use crate::checkers::records::tests::{RPC, SHARD, hold, segment, three_cores};
    use crate::configurations::tests::{configuration, tell};

    fn configured(watch: &mut SyncedSurvives, configuration: &Configuration) {
        watch.on_configuration(configuration, SimTime(0), |_, _| BTreeSet::new());
    }

    fn watch() -> SyncedSurvives {
        let mut watch = SyncedSurvives::new(Configurations::default(), three_cores(), Records::default());
        watch.promises.updates.insert(RPC, (SHARD, [TableId(1)].into()));
        tell(&watch.promises.configurations, &configuration(1, 1, 1));
        configured(&mut watch, &configuration(1, 1, 1));
        watch
    }

    #[test]
    fn a_new_primary_holds_what_was_promised() {
        let mut lost = watch();
        lost.promise(Promise::Update(RPC), SimTime(0));
        configured(&mut lost, &configuration(2, 1, 1));
        assert_eq!(lost.take_violations(), Vec::<String>::new(), "the same term");
        configured(&mut lost, &configuration(3, 2, 2));
        assert_eq!(lost.take_violations().len(), 1);
        let mut kept = watch();
        kept.promise(Promise::Update(RPC), SimTime(0));
        hold(&kept.records, 2, segment(0), RPC);
        configured(&mut kept, &configuration(2, 2, 2));
        assert_eq!(kept.take_violations(), Vec::<String>::new());
    }

    #[test]
    fn what_was_promised_long_ago_is_on_a_new_primary_s_disk() {
        for (now, flushed, found) in [(150, false, 0), (151, false, 1), (151, true, 0)] {
            let mut watch = watch().forgetting(Some(100));
            watch.promise(Promise::Update(RPC), SimTime(50));
            hold(&watch.records, 2, segment(0), RPC);
            let on_disk = |_, _| if flushed { BTreeSet::from([Record::Completion(RPC)]) } else { BTreeSet::new() };
            watch.on_configuration(&configuration(2, 2, 2), SimTime(now), on_disk);
            assert_eq!(watch.take_violations().len(), found, "at {now}, flushed: {flushed}");
        }
    }

    #[test]
    fn an_answer_that_all_witnesses_accepted_is_a_promise() {
        let mut watch = watch();
        let judged = |watch: &mut SyncedSurvives| {
            let promise = watch.promises.judge((RPC, SHARD, 1));
            promise.into_iter().for_each(|promise| watch.promise(promise, SimTime(0)));
        };
        let attempt = |accepted| Attempt {
            list: ListVersion(1),
            answered: Some(Epoch(1)),
            accepted: BTreeSet::from_iter(accepted),
        };
        watch.promises.attempts.insert((RPC, SHARD, 1), attempt(None));
        judged(&mut watch);
        configured(&mut watch, &configuration(2, 2, 2));
        assert_eq!(watch.take_violations(), Vec::<String>::new(), "promised nothing");
        watch.promises.attempts.insert((RPC, SHARD, 1), attempt(Some(NodeId(3))));
        judged(&mut watch);
        configured(&mut watch, &configuration(3, 3, 1));
        assert_eq!(watch.take_violations().len(), 1);
    }

    #[test]
    fn acknowledged_or_expired_is_not_owed() {
        let mut watch = watch();
        watch.promise(Promise::Update(RPC), SimTime(0));
        watch.promises.acknowledged.insert(RPC.client, AckedBelow(RPC.sequence.0 + 1));
        configured(&mut watch, &configuration(2, 2, 2));
        assert_eq!(watch.take_violations(), Vec::<String>::new());
        watch.promises.acknowledged.clear();
        watch.promise(Promise::Update(RPC), SimTime(0));
        watch.expired.insert(RPC.client);
        configured(&mut watch, &configuration(3, 3, 1));
        assert_eq!(watch.take_violations(), Vec::<String>::new());
    }

    #[test]
    fn a_blackout_takes_back_what_was_promised_shortly_before() {
        let lost_after = |now| {
            let mut watch = watch().forgetting(Some(100));
            watch.promise(Promise::Update(RPC), SimTime(50));
            watch.on_blackout(SimTime(now));
            configured(&mut watch, &configuration(2, 2, 2));
            watch.take_violations().len()
        };
        assert_eq!((lost_after(150), lost_after(151)), (0, 1));
    }
}
