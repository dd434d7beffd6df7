//! Retained until recorded everywhere (R8.9): a participant forgets a transaction only when every other participant that has
//! proposed has an outcome, which all members of one of its sets have held, in any term. Until then that participant may
//! ask for it.
//!
//! A proposal counts once all members of its shard hold it. A participant that lost its proposal may hear that the
//! transaction is long over, and that needs no outcome there. What a process has written before it started anew is not
//! known here.

use std::collections::{BTreeMap, BTreeSet};

use kasha_machine::FileName;
use kasha_types::{RpcId, ShardId};

use crate::checkers::changes::{Wrote, wrote};
use crate::checkers::endings::{
    ENDED_ENTRY, Ended, FORGOTTEN_ENTRY, PROPOSED_ENTRY, PROPOSED_RPC, ended, forgotten, rpc_at,
};
use crate::checkers::records::{Record, Records, groups_in};
use crate::configurations::{Configurations, Cores};
use crate::network::ProcessId;
use crate::probes::Probes;
use crate::world::{View, Watch};

/// An outcome in a log.
#[derive(Debug)]
struct Numbered {
    /// Where the group ends that holds the outcome.
    end: u64,
    rpc: RpcId,
    participants: Vec<ShardId>,
}

/// Watches segment files.
#[derive(Debug, Default)]
pub struct Retained {
    configurations: Configurations,
    cores: Cores,
    records: Records,
    segment_bytes: u64,
    /// Outcomes in each log, by the log's numbers.
    numbered: BTreeMap<(ProcessId, ShardId), BTreeMap<u64, Numbered>>,
    /// Proposals that all members of a shard held at once.
    proposed: BTreeSet<(ShardId, RpcId)>,
    violations: Vec<String>,
    checked: u64,
}

impl Retained {
    /// Watches these cores under these configurations.
    #[must_use]
    pub fn new(configurations: Configurations, cores: Cores, records: Records, segment_bytes: u32) -> Self {
        Self { configurations, cores, records, segment_bytes: u64::from(segment_bytes), ..Self::default() }
    }

    fn on_bytes(&mut self, (by, shard): (ProcessId, ShardId), base: u64, bytes: &[u8]) {
        groups_in(bytes, |group| {
            for &(kind, entry) in group.entries {
                match kind {
                    PROPOSED_ENTRY => {
                        let is_held = |&rpc: &RpcId| {
                            self.records.is_held_by_all(&self.configurations, &self.cores, shard, Record::Part(rpc))
                        };
                        let proposed = rpc_at(entry, PROPOSED_RPC).filter(is_held);
                        self.proposed.extend(proposed.map(|rpc| (shard, rpc)));
                    }
                    ENDED_ENTRY => {
                        if let Some(Ended { number, rpc, participants, .. }) = ended(entry) {
                            let numbered = self.numbered.entry((by, shard)).or_default();
                            numbered.insert(number, Numbered { end: base + group.end, rpc, participants });
                        }
                    }
                    FORGOTTEN_ENTRY if !group.is_copies => {
                        if let Some((below, except)) = forgotten(entry) {
                            self.on_forgotten((by, shard), below, &except);
                        }
                    }
                    _ => {}
                }
            }
        });
    }

    fn on_forgotten(&mut self, log: (ProcessId, ShardId), below: u64, except: &[u64]) {
        let numbered = self.numbered.entry(log).or_default();
        let (forgotten, kept) = std::mem::take(numbered)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(number, _)| *number < below && !except.contains(number));
        *numbered = kept;
        for Numbered { rpc, participants, .. } in forgotten.into_values() {
            for other in participants.into_iter().filter(|&other| other != log.1) {
                self.checked += 1;
                let is_lacking = |record| {
                    self.records.lacked_in_all_terms(&self.configurations, &self.cores, other, record).is_some()
                };
                let has_proposed = self.proposed.contains(&(other, rpc));
                if has_proposed && is_lacking(Record::Executed(rpc)) && is_lacking(Record::Against(rpc)) {
                    self.violations.push(format!(
                        "retained: {} has forgotten {rpc}, but {other} has proposed, and in no committed set of any term of \
                         {other} do all hold an outcome (R8.9)",
                        log.1
                    ));
                }
            }
        }
    }
}

impl Watch for Retained {
    fn wrote(&mut self, by: ProcessId, file: FileName, offset: u64, len: usize, view: &View<'_>) {
        match wrote(by, file, (offset, len), self.segment_bytes, view) {
            Some((shard, Wrote::Bytes { base, bytes })) => self.on_bytes((by, shard), base, &bytes),
            Some((shard, Wrote::Gone(gone))) => {
                let numbered = self.numbered.entry((by, shard)).or_default();
                numbered.retain(|_, outcome| !gone.contains(&(outcome.end - 1)));
            }
            None => {}
        }
    }

    fn started(&mut self, process: ProcessId, _view: &View<'_>) {
        self.numbered.retain(|(of, _), _| *of != process);
    }

    /// What was proposed may be lost, and then needs no outcome.
    fn blackout(&mut self, _view: &View<'_>) {
        self.proposed.clear();
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("claims checked: forgotten when recorded everywhere", self.checked);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::endings::tests::group;
    use crate::checkers::records::tests::{SHARD, hold_bytes, segment, three_cores};
    use crate::configurations::tests::{configuration, tell};

    /// Everything below this number is forgotten.
    fn forget(below: u64) -> Vec<u8> {
        let mut record = vec![1];
        record.extend_from_slice(&below.to_le_bytes());
        record.extend_from_slice(&[0; 4]);
        group(FORGOTTEN_ENTRY, &record)
    }

    #[test]
    fn r8_9_what_is_forgotten_is_recorded_everywhere() {
        let (configurations, records) = (Configurations::default(), Records::default());
        tell(&configurations, &configuration(1, 1, 1));
        let mut watch = Retained::new(configurations, three_cores(), records.clone(), 1 << 16);
        let log = (ProcessId(1), ShardId(1));
        let forgets = |watch: &mut Retained| {
            watch.on_bytes(log, 0, &Ended::of(9, Some(4)).encode());
            watch.on_bytes(log, 1000, &forget(9));
            assert_eq!(watch.take_violations(), Vec::<String>::new(), "it is not below that number");
            watch.on_bytes(log, 2000, &forget(10));
            watch.take_violations().len()
        };
        let mut record = vec![0; PROPOSED_RPC];
        record.extend_from_slice(&7u64.to_le_bytes());
        record.extend_from_slice(&9u64.to_le_bytes());
        let proposal = group(PROPOSED_ENTRY, &record);
        for (process, found) in [(1, 0), (2, 1)] {
            hold_bytes(&records, process, segment(0), &proposal);
            watch.on_bytes((ProcessId(process), SHARD), 0, &proposal);
            assert_eq!(forgets(&mut watch), found, "{process} of two members hold the other's proposal");
        }
        for process in [1, 2] {
            hold_bytes(&records, process, segment(1), &Ended::of(9, None).encode());
        }
        assert_eq!(forgets(&mut watch), 0);
    }
}
