//! One group (E4, R4.1): a change and the completion record of the update that made it are in one entry group, so that
//! no crash keeps one without the other.
//!
//! Read from the bytes that are written to segment files. Whatever changes an object or keeps an operation key's result is
//! an update, or the cleaner's copy of what an update wrote: a group of copies holds nothing that some log of the shard did not
//! hold before, byte for byte, but for the oldest segment that an object or a tombstone names (R5.10). A group of
//! tombstones may have no record if each deletes a value that ends (R5.2). The outcome of a transaction over several shards stands for
//! its record where the shard's log says that the client has acknowledged it: clients are told before the execution (R8.8).

use std::collections::{BTreeMap, BTreeSet};

use kasha_machine::FileName;
use kasha_types::{ClientId, ShardId};

use crate::checkers::endings::{ENDED_ENTRY, ENDED_RPC, rpc_at};
use crate::checkers::records::{COMPLETION_ENTRY, COMPLETION_RPC, groups_in, word};
use crate::network::ProcessId;
use crate::probes::Probes;
use crate::world::{View, Watch};

const OBJECT_ENTRY: u8 = 1;
const TOMBSTONE_ENTRY: u8 = 2;
const OPERATION_KEY_ENTRY: u8 = 4;
/// Where an object or a tombstone names its oldest segment.
const OLDEST: std::ops::Range<usize> = 16..20;
/// Where a completion record has what its client acknowledges.
const COMPLETION_ACKNOWLEDGEMENT: usize = 27;

/// An entry's kind and what it says.
type Said = (u8, Vec<u8>);

/// Watches segment files.
#[derive(Debug, Default)]
pub struct OneGroup {
    violations: Vec<String>,
    groups: u64,
    copies: u64,
    /// What logs of a shard have said.
    known: BTreeSet<(ShardId, Said)>,
    /// Values that end: the shard, the key with its table, and the version.
    ending: BTreeSet<(ShardId, Vec<u8>, u64)>,
    /// Below which sequence a client has acknowledged, as far as the shard's records say.
    acknowledged: BTreeMap<(ShardId, ClientId), u64>,
}

/// The key of an object or a tombstone, its table before it, and the version.
fn key_in(payload: &[u8]) -> Option<(Vec<u8>, u64)> {
    let len = usize::from(u16::from_le_bytes(payload.get(4..6)?.try_into().ok()?));
    Some(([payload.get(..4)?, payload.get(24..24 + len)?].concat(), word(payload, 8)?))
}

/// Where an object says whether its value ends.
const ENDS: usize = 7;

fn said(kind: u8, payload: &[u8]) -> Said {
    let mut bytes = payload.to_vec();
    if matches!(kind, OBJECT_ENTRY | TOMBSTONE_ENTRY)
        && let Some(oldest) = bytes.get_mut(OLDEST)
    {
        oldest.fill(0);
    }
    (kind, bytes)
}

impl OneGroup {
    /// Whether these are deletes of values that end, and nothing else.
    fn are_ends(&self, shard: ShardId, entries: &[(u8, &[u8])]) -> bool {
        entries.iter().all(|&(kind, entry)| {
            let deleted = key_in(entry).filter(|_| kind == TOMBSTONE_ENTRY);
            deleted.is_some_and(|(key, version)| self.ending.contains(&(shard, key, version.wrapping_sub(1))))
        })
    }

    /// Whether this is the outcome of what its client has acknowledged.
    fn is_acknowledged(&self, shard: ShardId, entries: &[(u8, &[u8])]) -> bool {
        let ended =
            entries.iter().find(|(kind, _)| *kind == ENDED_ENTRY).and_then(|(_, entry)| rpc_at(entry, ENDED_RPC));
        let below = ended.and_then(|rpc| Some((rpc, *self.acknowledged.get(&(shard, rpc.client))?)));
        below.is_some_and(|(rpc, below)| rpc.sequence.0 < below)
    }

    fn note_acknowledged(&mut self, shard: ShardId, entries: &[(u8, &[u8])]) {
        for (_, entry) in entries.iter().filter(|(kind, _)| *kind == COMPLETION_ENTRY) {
            if let (Some(rpc), Some(below)) = (rpc_at(entry, COMPLETION_RPC), word(entry, COMPLETION_ACKNOWLEDGEMENT)) {
                let known = self.acknowledged.entry((shard, rpc.client)).or_default();
                *known = below.max(*known);
            }
        }
    }

    fn on_bytes(&mut self, by: &str, file: FileName, bytes: &[u8]) {
        let FileName::Segment { shard, .. } = file else { return };
        groups_in(bytes, |group| {
            let is_change = |kind: u8| matches!(kind, OBJECT_ENTRY | TOMBSTONE_ENTRY | OPERATION_KEY_ENTRY);
            let entries = group.entries.iter().filter(|entry| is_change(entry.0) || entry.0 == COMPLETION_ENTRY);
            let entries: Vec<_> = entries.map(|&(kind, payload)| (shard, said(kind, payload))).collect();
            let records = entries.iter().filter(|(_, (kind, _))| *kind == COMPLETION_ENTRY).count();
            let changes = entries.len() - records;
            self.groups += u64::from(changes > 0);
            if group.is_copies {
                self.copies += 1;
                let new = entries.iter().filter(|entry| !self.known.contains(*entry)).count();
                if new > 0 {
                    self.violations.push(format!(
                        "one_group: {by} wrote a group of copies to {file:?}, {new} of which are copies of nothing (E4)"
                    ));
                }
            } else if records > 1
                || (records == 0
                    && changes > 0
                    && !self.are_ends(shard, group.entries)
                    && !self.is_acknowledged(shard, group.entries))
            {
                self.violations.push(format!(
                    "one_group: {by} wrote a group with {changes} changes and {records} completion records to {file:?} \
                     (E4, R4.1)"
                ));
            }
            let ending =
                group.entries.iter().filter(|(kind, entry)| *kind == OBJECT_ENTRY && entry.get(ENDS) == Some(&1));
            let ending = ending.filter_map(|(_, entry)| key_in(entry)).map(|(key, version)| (shard, key, version));
            self.ending.extend(ending);
            self.known.extend(entries);
            self.note_acknowledged(shard, group.entries);
        });
    }
}

impl Watch for OneGroup {
    fn wrote(&mut self, by: ProcessId, file: FileName, offset: u64, len: usize, view: &View<'_>) {
        let FileName::Segment { .. } = file else { return };
        let process = &view.processes[by.0];
        if let Some(content) = process.disk.cached(file) {
            self.on_bytes(&process.name, file, &content.read(offset, len));
        }
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("claims checked: groups", self.groups);
        probes.add("claims checked: groups of copies", self.copies);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::records::tests::{RPC, group, group_of_part, segment};

    #[test]
    fn a_change_without_its_record_is_found() {
        let mut watch = OneGroup::default();
        let record = group(RPC);
        watch.on_bytes("one", segment(0), &record);
        assert_eq!(watch.take_violations(), Vec::<String>::new());
        let mut change = record.clone();
        change[48] = OBJECT_ENTRY;
        watch.on_bytes("one", segment(0), &[record, change.clone()].concat());
        assert_eq!(watch.take_violations().len(), 1);
        let mut copy = change.clone();
        copy[40] = 1;
        watch.on_bytes("one", segment(1), &copy);
        assert_eq!(watch.take_violations(), Vec::<String>::new(), "a copy");
        copy[60] = 9;
        watch.on_bytes("one", segment(1), &copy);
        assert_eq!(watch.take_violations().len(), 1, "a copy of nothing");
    }

    #[test]
    fn an_outcome_needs_no_record_once_the_shard_knows_that_its_client_has_it() {
        let outcome = |changed: u8| {
            let mut bytes = group(RPC);
            bytes[48] = OBJECT_ENTRY;
            bytes[100] = changed;
            bytes.extend_from_slice(&group_of_part(RPC)[48..]);
            bytes[4..8].copy_from_slice(&112u32.to_le_bytes());
            bytes
        };
        let acknowledging = |below: u64| {
            let mut bytes = group(RPC);
            bytes[56 + COMPLETION_ACKNOWLEDGEMENT..][..8].copy_from_slice(&below.to_le_bytes());
            bytes
        };
        let mut watch = OneGroup::default();
        watch.on_bytes("one", segment(0), &outcome(1));
        assert_eq!(watch.take_violations().len(), 1, "nobody has acknowledged it");
        watch.on_bytes("one", segment(0), &acknowledging(RPC.sequence.0));
        watch.on_bytes("one", segment(0), &outcome(2));
        assert_eq!(watch.take_violations().len(), 1, "what is below has been acknowledged");
        watch.on_bytes("one", segment(0), &acknowledging(RPC.sequence.0 + 1));
        watch.on_bytes("one", segment(0), &outcome(3));
        assert_eq!(watch.take_violations(), Vec::<String>::new());
        let mut change = group(RPC);
        change[48] = OBJECT_ENTRY;
        watch.on_bytes("one", segment(0), &change);
        assert_eq!(watch.take_violations().len(), 1, "no outcome");
    }
}
