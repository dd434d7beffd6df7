//! Gates respected (D1, D3, R5.3): whoever says that something is held is taken at its word, against the disks.
//!
//! "Accepted": the witness's file holds the body. "Appended": the replica's files hold the bytes. "Synced", or an answer
//! that says so: in one committed set of that term, every complete member's log holds the completion record. With fsync
//! durability, the platters are looked at instead of the page cache. The checker reads the files by their documented
//! layouts, not through the code that wrote them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use kasha_machine::FileName;
use kasha_types::{ClientId, Epoch, ListVersion, RpcId, SegmentId, Sequence, ShardId};
use kasha_wire::frame::Kind;
use kasha_wire::{
    AnswerView, AppendView, Appended, Body, Durability, MemberState, Message, Recorded, RecordedVerdict, RequestView,
    Synced, hot,
};

use crate::configurations::{Configurations, Cores};
use crate::disk::{Content, SimDisk};
use crate::network::ProcessId;
use crate::probes::Probes;
use crate::world::{Sent, View, Watch};

const GROUP_MAGIC: [u8; 2] = *b"GK";
const GROUP_HEADER: usize = 48;
const ENTRY_HEADER: usize = 8;
const COMPLETION_ENTRY: u8 = 3;
const WITNESS_BLOCK: usize = 4096;
const WITNESS_BODY: usize = 64;

/// Pieces of a shard's log that are remembered; replicas acknowledge soon or not at all.
const PIECES_KEPT: usize = 64;

struct Piece {
    epoch: Epoch,
    from: u64,
    bytes: Rc<[u8]>,
}

/// Watches claims.
pub struct GatesRespected {
    configurations: Configurations,
    cores: Cores,
    durability: Durability,
    segment_bytes: u64,
    /// Completion records in each file, as the page cache has it.
    records: BTreeMap<(ProcessId, FileName), BTreeSet<RpcId>>,
    bodies: BTreeMap<RpcId, (ShardId, Rc<[u8]>)>,
    /// What each process was sent last, for each shard.
    pieces: BTreeMap<(ProcessId, ShardId), VecDeque<Piece>>,
    /// Requests that a primary has told witnesses to drop.
    collected: BTreeSet<RpcId>,
    violations: Vec<String>,
    accepted: u64,
    appended: u64,
    synced: u64,
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize)
}

/// The updates whose completion records stand in these groups; stops where no group begins.
pub(crate) fn records_in(bytes: &[u8], found: &mut BTreeSet<RpcId>) {
    let mut at = 0;
    while bytes.get(at..at + 2) == Some(&GROUP_MAGIC[..]) {
        let Some(payload) = half(bytes, at + 4) else { return };
        let end = at + GROUP_HEADER + payload;
        let mut entry = at + GROUP_HEADER;
        while entry + ENTRY_HEADER <= end.min(bytes.len()) {
            let Some(len) = half(bytes, entry + 4) else { return };
            if bytes[entry] == COMPLETION_ENTRY {
                let record = entry + ENTRY_HEADER;
                if let (Some(client), Some(sequence)) = (word(bytes, record + 3), word(bytes, record + 11)) {
                    found.insert(RpcId { client: ClientId(client), sequence: Sequence(sequence) });
                }
            }
            entry += ENTRY_HEADER + len.next_multiple_of(8);
        }
        at = end.max(at + 8);
    }
}

impl GatesRespected {
    /// Watches these cores under these configurations.
    #[must_use]
    pub fn new(configurations: Configurations, cores: Cores, durability: Durability, segment_bytes: u32) -> Self {
        Self {
            configurations,
            cores,
            durability,
            segment_bytes: u64::from(segment_bytes),
            records: BTreeMap::new(),
            bodies: BTreeMap::new(),
            pieces: BTreeMap::new(),
            collected: BTreeSet::new(),
            violations: Vec::new(),
            accepted: 0,
            appended: 0,
            synced: 0,
        }
    }

    fn file<'a>(&self, disk: &'a SimDisk, file: FileName) -> Option<&'a Content> {
        match self.durability {
            Durability::Replicated => disk.cached(file),
            Durability::Fsync => disk.durable(file),
        }
    }

    fn rescan(&mut self, process: ProcessId, file: FileName, disk: &SimDisk) {
        let mut found = BTreeSet::new();
        if let Some(content) = disk.cached(file) {
            records_in(&content.bytes(), &mut found);
        }
        self.records.insert((process, file), found);
    }

    fn has_record(&self, process: ProcessId, shard: ShardId, rpc: RpcId) -> bool {
        let first = FileName::Segment { shard, segment: SegmentId(0) };
        let last = FileName::Segment { shard, segment: SegmentId(u32::MAX) };
        self.records.range((process, first)..=(process, last)).any(|(_, records)| records.contains(&rpc))
    }

    fn on_synced(&mut self, rpc: RpcId, epoch: Epoch) {
        let Some(&(shard, _)) = self.bodies.get(&rpc) else { return };
        self.synced += 1;
        let sets = self.configurations.of_term(shard, epoch);
        let holds = |set: &(Rc<kasha_wire::Configuration>, kasha_wire::ShardConfig)| {
            let complete = set.1.members.iter().filter(|member| member.state == MemberState::Complete);
            complete
                .filter_map(|member| self.cores.host_of(&set.0, member.node, shard))
                .all(|process| self.has_record(process, shard, rpc))
        };
        if !sets.is_empty() && !sets.iter().any(holds) {
            let members: Vec<_> = sets.iter().map(|(_, set)| &set.members).collect();
            self.violations.push(format!(
                "gates_respected: {rpc} was called synced in {shard} {epoch}, but in no committed set of that term do \
                 all hold it: {members:?} (D3)"
            ));
        }
    }

    fn on_recorded(&mut self, recorded: &Recorded, disk: &SimDisk, name: &str) {
        let Some((shard, body)) = self.bodies.get(&recorded.rpc) else { return };
        // It may be dropped in the turn in which it was accepted, or before the acceptance is durable.
        if recorded.verdict != RecordedVerdict::Accepted || self.collected.contains(&recorded.rpc) {
            return;
        }
        self.accepted += 1;
        let file = FileName::Witness { shard: *shard, list: recorded.list };
        // An acceptance on a list whose successor is committed completes nothing that is not synced (R6.2).
        let latest = self.configurations.latest();
        let newest = latest.and_then(|latest| Some(latest.shard(*shard)?.list));
        if disk.cached(file).is_none() && newest.is_some_and(|newest| newest > recorded.list) {
            return;
        }
        // One block to a slot: a page of ours.
        let at_slot = |page: &[u8; WITNESS_BLOCK]| page[WITNESS_BODY..].starts_with(body);
        let holds = self.file(disk, file).is_some_and(|content| content.any_page(at_slot));
        if !holds {
            self.violations.push(format!(
                "gates_respected: {name} accepted {} for {shard} {}, but its file does not hold it (D3, R5.3)",
                recorded.rpc, recorded.list
            ));
        }
    }

    fn on_appended(&mut self, appended: &Appended, from: ProcessId, disk: &SimDisk, name: &str) {
        let Some(pieces) = self.pieces.get(&(from, appended.shard)) else { return };
        let covered =
            |piece: &&Piece| piece.epoch == appended.epoch && piece.from + piece.bytes.len() as u64 <= appended.end;
        let Some(last) = pieces.iter().rev().filter(|piece| !piece.bytes.is_empty()).find(covered) else { return };
        self.appended += 1;
        let segment = SegmentId(u32::try_from(last.from / self.segment_bytes).expect("few segments"));
        let file = FileName::Segment { shard: appended.shard, segment };
        let within = last.from % self.segment_bytes;
        if !self.file(disk, file).is_some_and(|content| content.holds(within, &last.bytes)) {
            self.violations.push(format!(
                "gates_respected: {name} acknowledged {} {} to {}, but {file:?} does not hold the {} bytes that were sent \
                 from {} (D3); it has {:?}",
                appended.shard,
                appended.epoch,
                appended.end,
                last.bytes.len(),
                last.from,
                self.file(disk, file).map(|content| (content.len(), content.read(within, last.bytes.len()).iter().zip(&last.bytes[..]).position(|(a, b)| a != b)))
            ));
        }
    }
}

impl Watch for GatesRespected {
    fn sent(&mut self, sent: &Sent<'_>, view: &View<'_>) {
        let process = &view.processes[sent.from.0];
        match Kind::from_number(sent.kind) {
            Some(Kind::Request | Kind::Record) => {
                if let Ok(request) = RequestView::decode(sent.payload)
                    && let Ok(body) = Body::decode(request.body)
                {
                    let shard = request.envelope.shard;
                    let known = self.bodies.entry(body.head.rpc).or_insert_with(|| (shard, request.body.into()));
                    if *known.1 != *request.body {
                        let text = format!("gates_respected: {} was sent with another body (R2.1)", body.head.rpc);
                        self.violations.push(text);
                    }
                }
            }
            Some(Kind::Append) => {
                if let (Ok(append), Some(target)) = (AppendView::decode(sent.payload), sent.target) {
                    let pieces = self.pieces.entry((target, append.shard)).or_default();
                    pieces.push_back(Piece { epoch: append.epoch, from: append.from, bytes: append.bytes.into() });
                    if pieces.len() > PIECES_KEPT {
                        pieces.pop_front();
                    }
                }
            }
            Some(Kind::Appended) => {
                if let Ok(appended) = hot::decode_small::<Appended>(sent.payload) {
                    self.on_appended(&appended, sent.from, &process.disk, &process.name);
                }
            }
            Some(Kind::Recorded) => {
                if let Ok(recorded) = hot::decode_small::<Recorded>(sent.payload)
                    && recorded.list != ListVersion::NONE
                {
                    self.on_recorded(&recorded, &process.disk, &process.name);
                }
            }
            Some(Kind::Answer) => {
                if let Ok(answer) = AnswerView::decode(sent.payload)
                    && answer.synced
                {
                    self.on_synced(answer.rpc, answer.epoch);
                }
            }
            // 43 is the table's number of `Gc`.
            Some(Kind::Message) if sent.payload.first() == Some(&43) => {
                if let Ok(Message::Gc { entries, .. }) = Message::decode(sent.payload) {
                    self.collected.extend(entries.iter().map(|entry| entry.rpc));
                }
            }
            Some(Kind::Synced) => {
                if let Ok(synced) = hot::decode_small::<Synced>(sent.payload) {
                    self.on_synced(synced.rpc, synced.epoch);
                }
            }
            _ => {}
        }
    }

    fn wrote(&mut self, by: ProcessId, file: FileName, offset: u64, len: usize, view: &View<'_>) {
        let FileName::Segment { .. } = file else { return };
        let disk = &view.processes[by.0].disk;
        let bytes = disk.cached(file).map(|content| content.read(offset, len)).unwrap_or_default();
        if bytes.starts_with(&GROUP_MAGIC) {
            records_in(&bytes, self.records.entry((by, file)).or_default());
        } else {
            self.rescan(by, file, disk);
        }
    }

    fn started(&mut self, process: ProcessId, view: &View<'_>) {
        if self.cores.core(process).is_none() {
            return;
        }
        self.records.retain(|(of, _), _| *of != process);
        self.pieces.retain(|(to, _), _| *to != process);
        let disk = &view.processes[process.0].disk;
        let segments: Vec<FileName> =
            disk.files().map(|(name, _)| name).filter(|name| matches!(name, FileName::Segment { .. })).collect();
        for file in segments {
            self.rescan(process, file, disk);
        }
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("claims checked: accepted", self.accepted);
        probes.add("claims checked: appended", self.appended);
        probes.add("claims checked: synced", self.synced);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use kasha_types::{CoreId, NodeId};

    use super::*;
    use crate::configurations::ConfigurationsGrow;
    use crate::configurations::tests::configuration;

    const SHARD: ShardId = ShardId(0);
    const RPC: RpcId = RpcId { client: ClientId(7), sequence: Sequence(9) };

    fn group(rpc: RpcId) -> Vec<u8> {
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

    fn gates() -> GatesRespected {
        let configurations = Configurations::default();
        let mut grow = ConfigurationsGrow::new(configurations.clone());
        let message = kasha_wire::Message::ConfigurationIs { configuration: configuration(1, 1, 1) };
        let mut payload = Vec::new();
        kasha_wire::Wire::put(&message, &mut payload);
        let sent = Sent {
            from: ProcessId(0),
            to: kasha_machine::Endpoint::Coordinator,
            target: None,
            kind: Kind::Message as u8,
            payload: &payload,
        };
        grow.sent(&sent, &View { now: crate::clock::SimTime(0), processes: &[] });
        let mut cores = Cores::default();
        for node in 1..=3 {
            cores.add(ProcessId(usize::from(node)), CoreId { node: NodeId(node), core: 0 });
        }
        let mut gates = GatesRespected::new(configurations, cores, Durability::Replicated, 1 << 16);
        gates.bodies.insert(RPC, (SHARD, Rc::from(&b"a body"[..])));
        gates
    }

    fn segment() -> FileName {
        FileName::Segment { shard: SHARD, segment: SegmentId(0) }
    }

    #[test]
    fn synced_means_that_all_members_hold_the_record() {
        let mut gates = gates();
        let mut disk = SimDisk::new();
        disk.write(segment(), 0, &group(RpcId { sequence: Sequence(8), ..RPC }));
        disk.write(segment(), 104, &group(RPC));
        gates.rescan(ProcessId(1), segment(), &disk);
        gates.on_synced(RPC, Epoch(1));
        assert_eq!(gates.take_violations().len(), 1, "the other member lacks it");
        gates.rescan(ProcessId(2), segment(), &disk);
        gates.on_synced(RPC, Epoch(1));
        assert_eq!(gates.take_violations(), Vec::<String>::new());
    }

    #[test]
    fn accepted_means_that_the_witness_file_holds_the_body() {
        let mut gates = gates();
        let mut disk = SimDisk::new();
        let recorded = Recorded {
            rpc: RPC,
            list: ListVersion(1),
            attempt: 1,
            node: NodeId(3),
            verdict: RecordedVerdict::Accepted,
        };
        gates.on_recorded(&recorded, &disk, "three");
        assert_eq!(gates.take_violations().len(), 1);
        disk.write(FileName::Witness { shard: SHARD, list: ListVersion(1) }, 8192 + 64, b"a body");
        gates.on_recorded(&recorded, &disk, "three");
        assert_eq!(gates.take_violations(), Vec::<String>::new());
        gates.durability = Durability::Fsync;
        gates.on_recorded(&recorded, &disk, "three");
        assert_eq!(gates.take_violations().len(), 1, "not yet on the platter");
    }

    #[test]
    fn appended_means_that_the_replica_holds_the_bytes() {
        let mut gates = gates();
        let mut disk = SimDisk::new();
        let piece = Piece { epoch: Epoch(1), from: 8, bytes: Rc::from(&b"log bytes"[..]) };
        gates.pieces.entry((ProcessId(2), SHARD)).or_default().push_back(piece);
        let appended = Appended { shard: SHARD, epoch: Epoch(1), node: NodeId(2), end: 17, round: 1 };
        gates.on_appended(&Appended { end: 16, ..appended }, ProcessId(2), &disk, "two");
        assert_eq!(gates.take_violations(), Vec::<String>::new(), "says nothing of this piece");
        gates.on_appended(&appended, ProcessId(2), &disk, "two");
        assert_eq!(gates.take_violations().len(), 1);
        disk.write(segment(), 8, b"log bytes");
        gates.on_appended(&appended, ProcessId(2), &disk, "two");
        assert_eq!(gates.take_violations(), Vec::<String>::new());
    }
}
