//! Durable everywhere (R8.17): when a shard has executed a transaction over several shards, the proposal of every participant,
//! or what it has become, is on the disk of some machine of that participant, where no loss of power takes it.
//!
//! After a loss of power a shard goes on with the greatest log of all its members. So whatever all machines lose, each
//! participant finds its part again, and all come to the same.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kasha_machine::FileName;
use kasha_types::{RpcId, ShardId};
use kasha_wire::message::Words;

use crate::checkers::endings::{ENDED_ENTRY, PROPOSED_ENTRY, PROPOSED_RPC, ended, rpc_at};
use crate::checkers::records::entries_in;
use crate::disk::SimDisk;
use crate::network::ProcessId;
use crate::probes::Probes;
use crate::world::{Sent, View, Watch};

/// So much of an entry is compared with what is on the disk.
const COMPARED_BYTES: usize = 64;

/// An entry in a file.
#[derive(Debug)]
struct Place {
    by: ProcessId,
    file: FileName,
    offset: u64,
    begins: Rc<[u8]>,
}

impl Place {
    fn is_durable(&self, disk: &SimDisk) -> bool {
        disk.durable(self.file).is_some_and(|content| content.holds(self.offset, &self.begins))
    }
}

/// Watches segment files.
#[derive(Debug, Default)]
pub struct DurableEverywhere {
    /// Where parts of transactions were written: proposals and outcomes.
    parts: BTreeMap<(RpcId, ShardId), Vec<Place>>,
    /// Parts that were on a disk when their shard spoke of them. A file that is damaged later is no loss of power.
    said: BTreeSet<(RpcId, ShardId)>,
    executed: BTreeSet<(RpcId, ShardId)>,
    violations: Vec<String>,
    checked: u64,
}

impl DurableEverywhere {
    fn is_durable<'v>(&self, part: (RpcId, ShardId), disk: impl Fn(ProcessId) -> &'v SimDisk) -> bool {
        self.parts.get(&part).into_iter().flatten().any(|place| place.is_durable(disk(place.by)))
    }

    fn on_bytes<'v>(
        &mut self,
        (by, file, shard): (ProcessId, FileName, ShardId),
        (offset, bytes): (u64, &[u8]),
        disk: impl Fn(ProcessId) -> &'v SimDisk,
    ) {
        let mut executed = Vec::new();
        entries_in(bytes, |kind, entry| {
            let ending = (kind == ENDED_ENTRY).then(|| ended(entry)).flatten();
            let proposed = (kind == PROPOSED_ENTRY).then(|| rpc_at(entry, PROPOSED_RPC)).flatten();
            let Some(rpc) = proposed.or(ending.as_ref().map(|ending| ending.rpc)) else { return };
            let within = entry.as_ptr().addr() - bytes.as_ptr().addr();
            let begins = entry[..entry.len().min(COMPARED_BYTES)].into();
            self.parts.entry((rpc, shard)).or_default().push(Place {
                by,
                file,
                offset: offset + within as u64,
                begins,
            });
            executed.extend(ending.filter(|ending| ending.executed.is_some()));
        });
        for ending in executed {
            // Whoever copies the entry, from its primary or from an older segment, executes nothing.
            if !self.executed.insert((ending.rpc, shard)) {
                continue;
            }
            for other in ending.participants {
                self.checked += 1;
                if !self.said.contains(&(ending.rpc, other)) && !self.is_durable((ending.rpc, other), &disk) {
                    self.violations.push(format!(
                        "durable_everywhere: {shard} has executed {}, and no disk of {other} surely has its part (R8.17)",
                        ending.rpc
                    ));
                }
            }
        }
    }
}

impl Watch for DurableEverywhere {
    fn wrote(&mut self, by: ProcessId, file: FileName, offset: u64, len: usize, view: &View<'_>) {
        let FileName::Segment { shard, .. } = file else { return };
        if let Some(content) = view.processes[by.0].disk.cached(file) {
            let bytes = content.read(offset, len);
            self.on_bytes((by, file, shard), (offset, &bytes), |process| &view.processes[process.0].disk);
        }
    }

    fn sent(&mut self, sent: &Sent<'_>, view: &View<'_>) {
        let Some(Words { from, words, .. }) = sent.message() else { return };
        for part in words.iter().map(|word| (word.rpc, from)) {
            if self.is_durable(part, |process| &view.processes[process.0].disk) {
                self.said.insert(part);
            }
        }
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("claims checked: durable everywhere", self.checked);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use kasha_types::SegmentId;

    use super::*;
    use crate::checkers::endings::{Ended, tests::group};

    #[test]
    fn r8_17_what_is_executed_is_on_a_disk_of_every_participant() {
        let (mut watch, mut disk) = (DurableEverywhere::default(), SimDisk::new());
        let file = |shard| FileName::Segment { shard: ShardId(shard), segment: SegmentId(0) };
        let mut record = vec![0; PROPOSED_RPC];
        record.extend_from_slice(&7u64.to_le_bytes());
        record.extend_from_slice(&9u64.to_le_bytes());
        let (one, bytes) = (ProcessId(1), group(PROPOSED_ENTRY, &record));
        for shard in [0, 1] {
            disk.write(file(shard), 0, &bytes);
            watch.on_bytes((one, file(shard), ShardId(shard)), (0, &bytes), |_| &disk);
        }
        let executed = Ended::of(9, Some(4)).encode();
        watch.on_bytes((one, file(0), ShardId(0)), (1000, &executed), |_| &disk);
        assert_eq!(watch.take_violations().len(), 2, "both are in the page cache only");
        disk.synced_logs(disk.mark());
        watch.on_bytes((one, file(0), ShardId(0)), (2000, &executed), |_| &disk);
        assert_eq!(watch.take_violations(), Vec::<String>::new(), "a copy");
        watch.on_bytes((one, file(1), ShardId(1)), (1000, &executed), |_| &disk);
        assert_eq!(watch.take_violations(), Vec::<String>::new());
        disk.write(file(1), 0, &[0; 100]);
        disk.synced_logs(disk.mark());
        watch.executed.clear();
        watch.on_bytes((one, file(1), ShardId(1)), (3000, &executed), |_| &disk);
        assert_eq!(watch.take_violations().len(), 1, "something else stands there now");
    }
}
