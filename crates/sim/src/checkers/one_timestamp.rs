//! One timestamp (T1): whatever logs say that a transaction over several shards was executed say the same timestamp, and no
//! transaction is executed at one shard and against at another.
//!
//! A timestamp is compared wherever an execution was ever written, in the log of a deposed primary, too: it comes from
//! proposals that are durable (R8.1), also if every machine loses power (R8.17). That a participant is against counts once all its members hold that: of what a deposed
//! primary alone has written, nobody was told (R8.1, R8.11).

use std::collections::{BTreeMap, BTreeSet};

use kasha_machine::FileName;
use kasha_types::{RpcId, ShardId};

use crate::checkers::endings::{ENDED_ENTRY, Ended, ended};
use crate::checkers::records::{Record, Records, entries_in};
use crate::configurations::{Configurations, Cores};
use crate::network::ProcessId;
use crate::probes::Probes;
use crate::world::{View, Watch};

/// A transaction: its id, and the checksum of its body.
type Txn = (RpcId, u64);

/// Watches segment files.
#[derive(Debug, Default)]
pub struct OneTimestamp {
    configurations: Configurations,
    cores: Cores,
    records: Records,
    executed: BTreeMap<Txn, (u64, ShardId)>,
    against: BTreeMap<Txn, BTreeSet<ShardId>>,
    violations: Vec<String>,
    checked: u64,
}

impl OneTimestamp {
    /// Watches these cores under these configurations.
    #[must_use]
    pub fn new(configurations: Configurations, cores: Cores, records: Records) -> Self {
        Self { configurations, cores, records, ..Self::default() }
    }

    fn on_ended(&mut self, shard: ShardId, ended: &Ended) {
        let txn = (ended.rpc, ended.body);
        match ended.executed {
            Some(at) => {
                let &mut (first, by) = self.executed.entry(txn).or_insert((at, shard));
                self.checked += u64::from(by != shard);
                if first != at {
                    self.violations.push(format!(
                        "one_timestamp: {} was executed at timestamp {first} by {by}, and at {at} by {shard} (T1)",
                        ended.rpc
                    ));
                }
            }
            None => {
                self.against.entry(txn).or_default().insert(shard);
            }
        }
        let (Some((at, by)), Some(against)) = (self.executed.get(&txn), self.against.get(&txn)) else { return };
        let record = Record::Against(ended.rpc);
        let is_held =
            |&&shard: &&ShardId| self.records.is_held_by_all(&self.configurations, &self.cores, shard, record);
        if let Some(other) = against.iter().find(is_held) {
            self.violations.push(format!(
                "one_timestamp: {} was executed at timestamp {at} by {by}, and all members of {other} hold that it is not \
                 executed (T1)",
                ended.rpc
            ));
        }
    }

    fn on_bytes(&mut self, shard: ShardId, bytes: &[u8]) {
        entries_in(bytes, |kind, entry| {
            if let Some(ended) = (kind == ENDED_ENTRY).then(|| ended(entry)).flatten() {
                self.on_ended(shard, &ended);
            }
        });
    }
}

impl Watch for OneTimestamp {
    fn wrote(&mut self, by: ProcessId, file: FileName, offset: u64, len: usize, view: &View<'_>) {
        let FileName::Segment { shard, .. } = file else { return };
        if let Some(content) = view.processes[by.0].disk.cached(file) {
            self.on_bytes(shard, &content.read(offset, len));
        }
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("claims checked: executed at one timestamp", self.checked);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::records::tests::{hold_bytes, segment, three_cores};
    use crate::configurations::tests::{configuration, tell};

    fn watch() -> (OneTimestamp, Records) {
        let (configurations, records) = (Configurations::default(), Records::default());
        tell(&configurations, &configuration(1, 1, 1));
        (OneTimestamp::new(configurations, three_cores(), records.clone()), records)
    }

    #[test]
    fn t1_an_execution_has_one_timestamp() {
        let (mut watch, _) = watch();
        watch.on_bytes(ShardId(0), &Ended::of(9, Some(4)).encode());
        watch.on_bytes(ShardId(1), &Ended::of(9, Some(4)).encode());
        watch.on_bytes(ShardId(1), &Ended { body: 5, ..Ended::of(9, Some(6)) }.encode());
        assert_eq!(watch.take_violations(), Vec::<String>::new(), "another body is another transaction");
        watch.on_bytes(ShardId(1), &Ended::of(9, Some(5)).encode());
        assert_eq!(watch.take_violations().len(), 1);
    }

    #[test]
    fn t1_what_is_executed_is_against_nowhere() {
        let (mut watch, records) = watch();
        let against = Ended::of(9, None).encode();
        watch.on_bytes(ShardId(1), &Ended::of(9, Some(4)).encode());
        hold_bytes(&records, 1, segment(0), &against);
        watch.on_bytes(ShardId(0), &against);
        assert_eq!(watch.take_violations(), Vec::<String>::new(), "one of two members holds it");
        hold_bytes(&records, 2, segment(0), &against);
        watch.on_bytes(ShardId(0), &against);
        assert_eq!(watch.take_violations().len(), 1);
    }
}
