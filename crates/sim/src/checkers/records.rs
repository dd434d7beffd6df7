//! Which records are in which files: read from the bytes that processes write, by the log's documented layout, and not
//! through the code that wrote them. The checkers that ask which process holds what share this.
//!
//! These records count: an update's completion record, and a participant's part of a transaction over several shards,
//! which is its proposal or, later, its outcome (R8.1).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kasha_machine::FileName;
use kasha_types::{ClusterTime, Epoch, NodeId, RpcId, SegmentId, ShardId};
use kasha_wire::{Configuration, MemberState, ShardConfig, ShardPhase};

use crate::checkers::endings::{ENDED_ENTRY, ENDED_RPC, PROPOSED_ENTRY, PROPOSED_RPC, is_executed, rpc_at};
use crate::configurations::{Configurations, Cores};
use crate::disk::SimDisk;
use crate::network::ProcessId;
use crate::world::{View, Watch};

const GROUP_MAGIC: [u8; 2] = *b"GK";
const GROUP_HEADER: usize = 48;
const ENTRY_HEADER: usize = 8;
/// Kind of an entry that holds an update's result.
pub(crate) const COMPLETION_ENTRY: u8 = 3;
/// Where a completion record has the id of its update.
pub(crate) const COMPLETION_RPC: usize = 3;
/// Kind of an entry that says which clients' leases are over.
pub(crate) const EXPIRY_FLOOR_ENTRY: u8 = 5;
/// Kind of an entry with which a primary's term begins.
pub(crate) const EPOCH_START_ENTRY: u8 = 6;
/// Kind of an entry that names a freed segment.
pub(crate) const SEGMENT_FREED_ENTRY: u8 = 8;

/// A record of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Record {
    /// Its completion record.
    Completion(RpcId),
    /// A participant's proposal or outcome of a transaction over several shards.
    Part(RpcId),
    /// A participant's outcome: it has executed the transaction.
    Executed(RpcId),
    /// A participant's outcome: the transaction is not executed.
    Against(RpcId),
}

/// Records in each segment file, as the page cache has it, and in each replica, at any time so far.
#[derive(Clone, Debug, Default)]
pub struct Records(Rc<RefCell<Index>>);

#[derive(Debug, Default)]
struct Index {
    files: BTreeMap<(ProcessId, FileName), BTreeSet<Record>>,
    /// A member may have lost synced records by now, with its power.
    ever: BTreeMap<(ProcessId, ShardId), BTreeSet<Record>>,
    /// The segment that was taken in last. A joiner that begins its copy anew has none for a moment.
    last: BTreeMap<(ProcessId, ShardId), FileName>,
    /// The greatest expiry floor that any replica of a shard ever held.
    floors: BTreeMap<ShardId, ClusterTime>,
}

impl Index {
    fn take_in(&mut self, process: ProcessId, file: FileName, found: BTreeSet<Record>) {
        let FileName::Segment { shard, .. } = file else { return };
        self.ever.entry((process, shard)).or_default().extend(&found);
        self.last.insert((process, shard), file);
        self.files.entry((process, file)).or_default().extend(found);
    }
}

/// The id and the result of a completion record.
pub(crate) fn result_of(record: &[u8]) -> Option<(RpcId, &[u8])> {
    let slots = u16::from_le_bytes(*record.get(1..)?.first_chunk()?);
    Some((rpc_at(record, COMPLETION_RPC)?, record.get(43 + 2 * usize::from(slots)..)?))
}

/// The number at this offset.
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize)
}

/// The records that stand in these groups; stops where no group begins.
pub(crate) fn records_in(bytes: &[u8], found: &mut BTreeSet<Record>) {
    entries_in(bytes, |kind, record| match kind {
        COMPLETION_ENTRY => found.extend(rpc_at(record, COMPLETION_RPC).map(Record::Completion)),
        PROPOSED_ENTRY => found.extend(rpc_at(record, PROPOSED_RPC).map(Record::Part)),
        ENDED_ENTRY => {
            if let (Some(rpc), Some(is_executed)) = (rpc_at(record, ENDED_RPC), is_executed(record)) {
                found.insert(Record::Part(rpc));
                found.insert(if is_executed { Record::Executed(rpc) } else { Record::Against(rpc) });
            }
        }
        _ => {}
    });
}

/// The records of a shard that would survive a loss of power.
pub(crate) fn records_on(disk: &SimDisk, shard: ShardId) -> BTreeSet<Record> {
    let mut found = BTreeSet::new();
    for (file, _) in disk.files() {
        if let (FileName::Segment { shard: of, .. }, Some(content)) = (file, disk.durable(file))
            && of == shard
        {
            records_in(&content.bytes(), &mut found);
        }
    }
    found
}

/// Shows every entry of these groups, its kind and its payload; stops where no group begins.
pub(crate) fn entries_in(bytes: &[u8], mut show: impl FnMut(u8, &[u8])) {
    groups_in(bytes, |group| group.entries.iter().for_each(|&(kind, entry)| show(kind, entry)));
}

/// A group within some bytes.
pub(crate) struct Group<'b> {
    /// Where the group ends in these bytes.
    pub(crate) end: u64,
    /// The epoch of the primary that wrote it.
    pub(crate) epoch: Epoch,
    /// It holds the cleaner's copies: nothing happened in it.
    pub(crate) is_copies: bool,
    /// Kinds and payloads.
    pub(crate) entries: &'b [(u8, &'b [u8])],
}

/// Shows each group; stops where none begins.
pub(crate) fn groups_in(bytes: &[u8], mut show: impl FnMut(Group<'_>)) {
    let mut at = 0;
    while bytes.get(at..at + 2) == Some(&GROUP_MAGIC[..]) {
        let (Some(payload), Some(epoch)) = (half(bytes, at + 4), half(bytes, at + 24)) else { return };
        let end = at + GROUP_HEADER + payload;
        let (mut entry, mut entries) = (at + GROUP_HEADER, Vec::new());
        while entry + ENTRY_HEADER <= end.min(bytes.len()) {
            let Some(len) = half(bytes, entry + 4) else { return };
            let from = entry + ENTRY_HEADER;
            entries.push((bytes[entry], &bytes[from..bytes.len().min(from + len)]));
            entry = from + len.next_multiple_of(8);
        }
        let epoch = Epoch(u32::try_from(epoch).expect("four bytes"));
        let is_copies = word(bytes, at + 40).is_some_and(|flags| flags & 1 != 0);
        show(Group { end: end as u64, epoch, is_copies, entries: &entries });
        at = end.max(at + 8);
    }
}

fn segments_of(process: ProcessId, shard: ShardId) -> std::ops::RangeInclusive<(ProcessId, FileName)> {
    let segment = |segment| (process, FileName::Segment { shard, segment });
    segment(SegmentId(0))..=segment(SegmentId(u32::MAX))
}

impl Records {
    pub(crate) fn rescan(&self, process: ProcessId, file: FileName, disk: &SimDisk) {
        let mut index = self.0.borrow_mut();
        index.files.remove(&(process, file));
        if let Some(content) = disk.cached(file) {
            let mut found = BTreeSet::new();
            records_in(&content.bytes(), &mut found);
            index.take_in(process, file, found);
        }
    }

    /// Whether a process's files hold this record.
    #[must_use]
    pub fn has(&self, process: ProcessId, shard: ShardId, record: Record) -> bool {
        self.0.borrow().files.range(segments_of(process, shard)).any(|(_, records)| records.contains(&record))
    }

    /// Whether a process's files ever held this record.
    #[must_use]
    pub fn ever_had(&self, process: ProcessId, shard: ShardId, record: Record) -> bool {
        self.0.borrow().ever.get(&(process, shard)).is_some_and(|records| records.contains(&record))
    }

    /// The greatest expiry floor that any replica of a shard ever held (R4.6).
    #[must_use]
    pub fn floor(&self, shard: ShardId) -> ClusterTime {
        self.0.borrow().floors.get(&shard).copied().unwrap_or_default()
    }

    /// Where a process's files hold this record.
    fn segment_of(&self, process: ProcessId, shard: ShardId, record: Record) -> Option<FileName> {
        let index = self.0.borrow();
        let mut files = index.files.range(segments_of(process, shard));
        files.find(|(_, records)| records.contains(&record)).map(|(&(_, file), _)| file)
    }

    /// A member of this set that never held this record of `primary`'s log, so that the record was not synced. A joiner counts only from the beginning of its copy on, but for everything from there (R7.2).
    #[must_use]
    fn lacking(
        &self,
        cores: &Cores,
        (configuration, config): (&Configuration, &ShardConfig),
        primary: Option<ProcessId>,
        record: Record,
    ) -> Option<NodeId> {
        let shard = config.shard;
        let at = primary.and_then(|primary| self.segment_of(primary, shard, record));
        let lacks = |member: &&kasha_wire::Member| {
            let Some(process) = cores.host_of(configuration, member.node, shard) else { return false };
            let index = self.0.borrow();
            if index.ever.get(&(process, shard)).is_some_and(|records| records.contains(&record)) {
                return false;
            }
            match member.state {
                MemberState::Complete => true,
                MemberState::Joining => {
                    let newest = index.files.range(segments_of(process, shard)).next_back().map(|(&(_, file), _)| file);
                    let newest = newest.or_else(|| index.last.get(&(process, shard)).copied());
                    // Between its oldest and its newest segment a joiner may lack segments that are still to be copied.
                    at.is_some_and(|at| {
                        newest.is_none_or(|newest| at > newest) || index.files.contains_key(&(process, at))
                    })
                }
            }
        };
        config.members.iter().find(lacks).map(|member| member.node)
    }

    /// A member that lacks the record, if there is one in each set that was committed in a term: then the record was
    /// never synced in that term.
    #[must_use]
    pub fn lacked_in_all_sets(
        &self,
        configurations: &Configurations,
        cores: &Cores,
        (shard, epoch): (ShardId, Epoch),
        record: Record,
    ) -> Option<String> {
        let sets = configurations.of_term(shard, epoch);
        let mut lacking: Vec<String> = Vec::new();
        for (configuration, config) in &sets {
            // While the shard serves, such a small set syncs nothing, even if all members hold the record (R7.2).
            let is_too_small = config.members.len() <= usize::from(configuration.min_backups);
            if is_too_small && config.phase == ShardPhase::Serving {
                lacking.push(format!("too few are in {:?}", config.members));
                continue;
            }
            let primary = cores.host_of(configuration, config.primary, shard);
            let node = self.lacking(cores, (configuration, config), primary, record)?;
            lacking.push(format!("{node} of {:?}", config.members));
        }
        lacking.dedup();
        (!sets.is_empty()).then(|| lacking.join("; "))
    }

    /// Whether all members of the newest set, which serves, hold the record at this moment, and are enough to sync anything: then no later
    /// primary lacks it, but for a loss of power.
    #[must_use]
    pub fn is_held_by_all(
        &self,
        configurations: &Configurations,
        cores: &Cores,
        shard: ShardId,
        record: Record,
    ) -> bool {
        let Some(latest) = configurations.latest() else { return false };
        let Some(config) = latest.shard(shard) else { return false };
        let mut hosts = config.members.iter().map(|member| cores.host_of(&latest, member.node, shard));
        // A term that never served may be given up, with all that its members took over.
        config.phase == ShardPhase::Serving
            && config.members.len() > usize::from(latest.min_backups)
            && hosts.all(|host| host.is_some_and(|process| self.has(process, shard, record)))
    }

    /// For each term of a shard, a member of each committed set that lacks the record: then the record was never synced
    /// in any term, and perhaps never will be.
    #[must_use]
    pub fn lacked_in_all_terms(
        &self,
        configurations: &Configurations,
        cores: &Cores,
        shard: ShardId,
        record: Record,
    ) -> Option<String> {
        let lacked_in = |epoch| self.lacked_in_all_sets(configurations, cores, (shard, epoch), record);
        let lacking: Option<Vec<_>> = configurations.terms_of(shard).into_iter().map(lacked_in).collect();
        lacking.map(|lacking| lacking.join("; "))
    }
}

/// Keeps [`Records`] up to date. It is the first watcher, so that the others see what the turn wrote.
pub struct RecordsWatch {
    records: Records,
    cores: Cores,
}

impl RecordsWatch {
    /// Reads the files of these cores.
    #[must_use]
    pub fn new(records: Records, cores: Cores) -> Self {
        Self { records, cores }
    }
}

impl Watch for RecordsWatch {
    fn wrote(&mut self, by: ProcessId, file: FileName, offset: u64, len: usize, view: &View<'_>) {
        let FileName::Segment { shard, .. } = file else { return };
        let disk = &view.processes[by.0].disk;
        let bytes = disk.cached(file).map(|content| content.read(offset, len)).unwrap_or_default();
        entries_in(&bytes, |kind, entry| {
            if let (EXPIRY_FLOOR_ENTRY, Some(time)) = (kind, word(entry, 3)) {
                let mut index = self.records.0.borrow_mut();
                let floor = index.floors.entry(shard).or_default();
                *floor = ClusterTime(time).max(*floor);
            }
        });
        if bytes.starts_with(&GROUP_MAGIC) {
            let mut found = BTreeSet::new();
            records_in(&bytes, &mut found);
            self.records.0.borrow_mut().take_in(by, file, found);
        } else {
            self.records.rescan(by, file, disk);
        }
    }

    fn started(&mut self, process: ProcessId, view: &View<'_>) {
        if self.cores.core(process).is_none() {
            return;
        }
        self.records.0.borrow_mut().files.retain(|(of, _), _| *of != process);
        let disk = &view.processes[process.0].disk;
        for (file, _) in disk.files().filter(|(name, _)| matches!(name, FileName::Segment { .. })) {
            self.records.rescan(process, file, disk);
        }
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use kasha_types::{ClientId, CoreId, Sequence};

    use super::*;
    use crate::configurations::tests::configuration;

    pub(crate) const SHARD: ShardId = ShardId(0);
    pub(crate) const RPC: RpcId = RpcId { client: ClientId(7), sequence: Sequence(9) };

    /// A group with one completion record.
    pub(crate) fn group(rpc: RpcId) -> Vec<u8> {
        let mut record = vec![1, 0, 0];
        record.extend_from_slice(&rpc.client.0.to_le_bytes());
        record.extend_from_slice(&rpc.sequence.0.to_le_bytes());
        record.resize(48, 0);
        let mut bytes = vec![0; GROUP_HEADER];
        bytes[..2].copy_from_slice(&GROUP_MAGIC);
        bytes[4..8].copy_from_slice(&56u32.to_le_bytes());
        bytes.extend_from_slice(&[COMPLETION_ENTRY, 0, 0, 0, 48, 0, 0, 0]);
        bytes.extend_from_slice(&record);
        bytes
    }

    /// A group with one participant's outcome.
    pub(crate) fn group_of_part(rpc: RpcId) -> Vec<u8> {
        let mut bytes = group(rpc);
        bytes[GROUP_HEADER] = ENDED_ENTRY;
        let ids = GROUP_HEADER + ENTRY_HEADER + 3..GROUP_HEADER + ENTRY_HEADER + 19;
        bytes.copy_within(ids, GROUP_HEADER + ENTRY_HEADER + 9);
        bytes
    }

    pub(crate) fn segment(segment: u32) -> FileName {
        FileName::Segment { shard: SHARD, segment: SegmentId(segment) }
    }

    /// Nodes 1 to 3 are processes 1 to 3, with one core each.
    pub(crate) fn three_cores() -> Cores {
        let mut cores = Cores::default();
        for node in 1..=3 {
            cores.add(ProcessId(usize::from(node)), CoreId { node: NodeId(node), core: 0 });
        }
        cores
    }

    /// Writes the record of an update to a process's log.
    pub(crate) fn hold(records: &Records, process: usize, file: FileName, rpc: RpcId) {
        let mut disk = SimDisk::new();
        disk.write(file, 0, &group(RpcId { sequence: Sequence(8), ..RPC }));
        disk.write(file, 104, &group(rpc));
        records.rescan(ProcessId(process), file, &disk);
    }

    /// Writes these groups to a process's log.
    pub(crate) fn hold_bytes(records: &Records, process: usize, file: FileName, bytes: &[u8]) {
        let mut disk = SimDisk::new();
        disk.write(file, 0, bytes);
        records.rescan(ProcessId(process), file, &disk);
    }

    /// Writes a participant's outcome to a process's log.
    pub(crate) fn hold_part(records: &Records, process: usize, file: FileName, rpc: RpcId) {
        let mut disk = SimDisk::new();
        disk.write(file, 0, &group_of_part(rpc));
        records.rescan(ProcessId(process), file, &disk);
    }

    #[test]
    fn complete_members_hold_all_and_joiners_what_is_new() {
        let (records, cores) = (Records::default(), three_cores());
        let mut whole = configuration(1, 1, 1);
        let lacking = |whole: &Configuration| {
            records.lacking(&cores, (whole, &whole.shards[0]), Some(ProcessId(1)), Record::Completion(RPC))
        };
        hold(&records, 1, segment(3), RPC);
        assert_eq!(lacking(&whole), Some(NodeId(2)));
        whole.shards[0].members[1].state = MemberState::Joining;
        assert_eq!(lacking(&whole), Some(NodeId(2)), "it has nothing, so nothing counts");
        let other = RpcId { sequence: Sequence(1), ..RPC };
        hold(&records, 2, segment(4), other);
        assert_eq!(lacking(&whole), None, "older than its copy");
        records.rescan(ProcessId(2), segment(4), &SimDisk::new());
        assert_eq!(lacking(&whole), None, "it begins its copy anew, and what was synced stays synced");
        hold(&records, 2, segment(3), other);
        assert_eq!(lacking(&whole), Some(NodeId(2)), "it has the segment, without the record");
        hold(&records, 2, segment(3), RPC);
        assert_eq!(lacking(&whole), None);
    }
}
