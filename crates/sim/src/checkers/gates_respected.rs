//! Gates respected (D1, D3, R5.3): a process that says that something is held is checked against the disks.
//!
//! "Accepted": the witness's file holds the body. "Appended": the replica's files hold the bytes. "Synced", or an
//! answer that says so: in one committed set of that term, every complete member's log holds the completion record, or
//! what a participant of a transaction over several shards has proposed.
//! Under fsync durability the checker looks at the platters instead of the page cache. It reads files by their
//! documented layouts, not through the code that wrote them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use kasha_machine::FileName;
use kasha_types::{AckedBelow, ClientId, Epoch, ListVersion, RpcId, SegmentId, ShardId};
use kasha_wire::frame::Kind;
use kasha_wire::message::{Gc, GcDone, GcEntry, LeaseVerdict};
use kasha_wire::{
    AnswerView, AppendView, Appended, Body, Durability, OutcomeCode, Recorded, RecordedVerdict, RequestView, Synced,
    hot,
};

use crate::checkers::records::{Record, Records};
use crate::configurations::{Configurations, Cores};
use crate::disk::{Content, SimDisk};
use crate::network::ProcessId;
use crate::probes::Probes;
use crate::process::Process;
use crate::rogue;
use crate::world::{Sent, View, Watch};

const WITNESS_BLOCK: usize = 4096;
const WITNESS_BODY: usize = 64;

/// Pieces of a shard's log that are remembered. A replica acknowledges soon or never.
const PIECES_KEPT: usize = 64;

struct Piece {
    epoch: Epoch,
    from: u64,
    bytes: Rc<[u8]>,
}

/// Watches the claims of processes.
pub struct GatesRespected {
    configurations: Configurations,
    cores: Cores,
    durability: Durability,
    segment_bytes: u64,
    records: Records,
    bodies: BTreeMap<RpcId, (ShardId, Rc<[u8]>)>,
    /// The pieces that each process was sent last, for each shard.
    pieces: BTreeMap<(ProcessId, ShardId), VecDeque<Piece>>,
    /// Requests that a primary has told witnesses to drop.
    collected: BTreeSet<(ShardId, RpcId)>,
    /// Requests that a witness named as suspects. Some of them are dropped although nobody ran them.
    suspects: BTreeSet<(ShardId, RpcId)>,
    acknowledged: BTreeMap<ClientId, AckedBelow>,
    expired: BTreeSet<ClientId>,
    violations: Vec<String>,
    accepted: u64,
    appended: u64,
    synced: u64,
    dropped: u64,
}

impl GatesRespected {
    /// Watches these cores under these configurations.
    #[must_use]
    pub fn new(
        configurations: Configurations,
        cores: Cores,
        records: Records,
        durability: Durability,
        segment_bytes: u32,
    ) -> Self {
        Self {
            configurations,
            cores,
            durability,
            segment_bytes: u64::from(segment_bytes),
            records,
            bodies: BTreeMap::new(),
            pieces: BTreeMap::new(),
            collected: BTreeSet::new(),
            suspects: BTreeSet::new(),
            acknowledged: BTreeMap::new(),
            expired: BTreeSet::new(),
            violations: Vec::new(),
            accepted: 0,
            appended: 0,
            synced: 0,
            dropped: 0,
        }
    }

    fn file<'a>(&self, disk: &'a SimDisk, file: FileName) -> Option<&'a Content> {
        match self.durability {
            Durability::Replicated => disk.cached(file),
            Durability::Fsync => disk.durable(file),
        }
    }

    /// A primary said `Synced`, or sent an answer that says so, or that the transaction is prepared (R8.8): all members that
    /// count for syncs in one committed set of that term hold the record, or the proposal.
    fn on_synced(&mut self, rpc: RpcId, record: Record, (shard, epoch): (ShardId, Epoch)) {
        if !self.bodies.contains_key(&rpc) {
            return;
        }
        self.synced += 1;
        if let Some(lacking) =
            self.records.lacked_in_all_sets(&self.configurations, &self.cores, (shard, epoch), record)
        {
            self.violations.push(format!(
                "gates_respected: {rpc} was called synced in {shard} {epoch}, but in no committed set of that term do \
                 all hold it (D3, R7.2): {lacking}"
            ));
        }
    }

    /// Whether this tells of a transaction over several shards that was executed: what is durable then is what all participants
    /// have proposed, and with that what comes of it (R8.1; see `proposed_everywhere`).
    fn is_executed_everywhere(&self, answer: &AnswerView<'_>) -> bool {
        self.is_distributed(answer.rpc) && answer.result.first() == Some(&(OutcomeCode::Done as u8))
    }

    fn is_distributed(&self, rpc: RpcId) -> bool {
        let body = self.bodies.get(&rpc).and_then(|(_, body)| Body::decode(body).ok());
        body.is_some_and(|body| body.is_distributed())
    }

    /// R2.1: a primary answers for the term in which the update ran.
    fn on_confirmed(&mut self, synced: &Synced, process: &Process) {
        let shard = self.bodies.get(&synced.rpc).map(|&(shard, _)| shard);
        let status = process.status().unwrap_or_else(|| unreachable!("{} is no core", process.name));
        let replica = status.replicas.iter().find(|replica| Some(replica.shard) == shard);
        if let Some(replica) = replica.filter(|replica| replica.epoch != synced.epoch) {
            self.violations.push(format!(
                "gates_respected: {} confirmed {} in {}, but its term is {} (R2.1)",
                process.name, synced.rpc, synced.epoch, replica.epoch
            ));
        }
    }

    /// A primary tells witnesses to drop what it has synced (section 6). A request whose record the primary does not
    /// hold itself was synced long ago, or refused.
    fn on_gc(&mut self, by: ProcessId, (process, shard): (&Process, ShardId), entries: &[GcEntry]) {
        let status = process.status();
        let replica = status.as_ref().and_then(|status| status.replicas.iter().find(|replica| replica.shard == shard));
        let Some(epoch) = replica.filter(|replica| replica.primary).map(|replica| replica.epoch) else { return };
        for rpc in entries.iter().map(|entry| entry.rpc) {
            // A transaction over several shards is synced when its proposal is.
            let record = if self.is_distributed(rpc) { Record::Part(rpc) } else { Record::Completion(rpc) };
            if self.suspects.contains(&(shard, rpc))
                && !self.records.ever_had(by, shard, record)
                && self.may_complete(rpc)
            {
                self.violations.push(format!(
                    "gates_respected: {} had witnesses drop the suspect {rpc} of {shard} {epoch}, which it has not run (C3)",
                    process.name
                ));
            }
            if !self.collected.insert((shard, rpc))
                || self.suspects.contains(&(shard, rpc))
                || !self.records.has(by, shard, record)
            {
                continue;
            }
            self.dropped += 1;
            let term = (shard, epoch);
            if let Some(lacking) = self.records.lacked_in_all_sets(&self.configurations, &self.cores, term, record) {
                self.violations.push(format!(
                    "gates_respected: {} had witnesses drop {rpc} of {shard} {epoch} before it was synced (CURP 4.5): \
                     {lacking}",
                    process.name
                ));
            }
        }
    }

    /// Whether a suspect may still run, and complete with what witnesses hold of it: it is not acknowledged and not
    /// below an expiry floor, its tables exist, and its operation key has not run out.
    fn may_complete(&self, rpc: RpcId) -> bool {
        let Some((shard, body)) = self.bodies.get(&rpc) else { return false };
        let Ok(body) = Body::decode(body) else { return false };
        let latest = self.configurations.latest();
        let mut has_tables = true;
        body.for_each_key(|table, _, _| has_tables &= latest.as_ref().is_some_and(|latest| latest.has_table(table)));
        let is_acknowledged = self.acknowledged.get(&rpc.client).is_some_and(|below| rpc.sequence.0 < below.0);
        let is_expired = self.expired.contains(&rpc.client) || body.head.lease_expiry <= self.records.floor(*shard);
        has_tables && !is_acknowledged && !is_expired && body.operation_key.is_none()
    }

    fn on_recorded(&mut self, recorded: &Recorded, disk: &SimDisk, name: &str) {
        let Some((_, body)) = self.bodies.get(&recorded.rpc) else { return };
        let shard = &recorded.shard;
        // It may be dropped in the turn in which it was accepted, or before the acceptance is durable.
        if recorded.verdict != RecordedVerdict::Accepted || self.collected.contains(&(*shard, recorded.rpc)) {
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
            |piece: &&Piece| piece.epoch == appended.epoch && piece.from + piece.bytes.len() as u64 <= appended.end.0;
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
                    let acknowledged = self.acknowledged.entry(body.head.rpc.client).or_insert(AckedBelow(1));
                    *acknowledged = body.head.acknowledgement.max(*acknowledged);
                    let known = self.bodies.entry(body.head.rpc).or_insert_with(|| (shard, request.body.into()));
                    if *known.1 != *request.body && !rogue::is_from(sent, view) {
                        let text = format!("gates_respected: {} was sent with another body (R2.1)", body.head.rpc);
                        self.violations.push(text);
                    }
                }
            }
            Some(Kind::Append) => {
                if let (Ok(append), Some(target)) = (AppendView::decode(sent.payload), sent.target) {
                    let pieces = self.pieces.entry((target, append.shard)).or_default();
                    pieces.push_back(Piece { epoch: append.epoch, from: append.from.0, bytes: append.bytes.into() });
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
                    && !self.is_executed_everywhere(&answer)
                {
                    let is_prepared = answer.result.first() == Some(&(OutcomeCode::Prepared as u8));
                    let record = if is_prepared { Record::Part(answer.rpc) } else { Record::Completion(answer.rpc) };
                    self.on_synced(answer.rpc, record, (answer.shard, answer.epoch));
                }
            }
            Some(Kind::Message) => {
                if let Some(Gc { shard, entries, .. }) = sent.message() {
                    self.on_gc(sent.from, (process, shard), &entries);
                } else if let Some(GcDone { shard, suspects, .. }) = sent.message() {
                    let bodies = suspects.iter().filter_map(|body| Body::decode(&body.0).ok());
                    self.suspects.extend(bodies.map(|body| (shard, body.head.rpc)));
                } else if let Some(LeaseVerdict { expired, .. }) = sent.message() {
                    self.expired.extend(expired);
                }
            }
            Some(Kind::Synced) => {
                if let Ok(synced) = hot::decode_small::<Synced>(sent.payload) {
                    if let Some(&(shard, _)) = self.bodies.get(&synced.rpc) {
                        self.on_synced(synced.rpc, Record::Completion(synced.rpc), (shard, synced.epoch));
                    }
                    self.on_confirmed(&synced, process);
                }
            }
            _ => {}
        }
    }

    fn started(&mut self, process: ProcessId, _view: &View<'_>) {
        self.pieces.retain(|(to, _), _| *to != process);
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("claims checked: accepted", self.accepted);
        probes.add("claims checked: appended", self.appended);
        probes.add("claims checked: synced", self.synced);
        probes.add("claims checked: dropped", self.dropped);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use kasha_types::{AttachId, LogEnd, NodeId, Round};

    use super::*;
    use crate::checkers::records::tests::{RPC, SHARD, hold, segment, three_cores};
    use crate::configurations::ConfigurationsGrow;
    use crate::configurations::tests::configuration;

    fn gates() -> GatesRespected {
        let configurations = Configurations::default();
        let mut grow = ConfigurationsGrow::new(configurations.clone());
        let message = kasha_wire::message::ConfigurationIs {
            level: kasha_wire::Level::FIRST,
            unix_origin: kasha_wire::Later::absent(),
            configuration: configuration(1, 1, 1),
        };
        let mut payload = Vec::new();
        kasha_wire::Wire::put(&message, &mut payload);
        let sent = Sent {
            from: ProcessId(0),
            to: kasha_machine::Endpoint::Coordinator,
            target: None,
            kind: Kind::Message as u8,
            payload: &payload,
        };
        grow.sent(&sent, &View { now: crate::clock::SimTime(0), processes: &[], hosts: &[] });
        let (cores, records) = (three_cores(), Records::default());
        let mut gates = GatesRespected::new(configurations, cores, records, Durability::Replicated, 1 << 16);
        gates.bodies.insert(RPC, (SHARD, Rc::from(&b"a body"[..])));
        gates
    }

    #[test]
    fn synced_means_that_all_members_hold_the_record() {
        let mut gates = gates();
        hold(&gates.records, 1, segment(0), RPC);
        gates.on_synced(RPC, Record::Completion(RPC), (SHARD, Epoch(1)));
        assert_eq!(gates.take_violations().len(), 1, "the other member lacks it");
        hold(&gates.records, 2, segment(0), RPC);
        gates.on_synced(RPC, Record::Completion(RPC), (SHARD, Epoch(1)));
        assert_eq!(gates.take_violations(), Vec::<String>::new());
    }

    #[test]
    fn accepted_means_that_the_witness_file_holds_the_body() {
        let mut gates = gates();
        let mut disk = SimDisk::new();
        let recorded = Recorded {
            rpc: RPC,
            shard: SHARD,
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
        let (epoch, node, attach) = (Epoch(1), NodeId(2), AttachId(1));
        let appended = Appended { shard: SHARD, epoch, node, attach, end: LogEnd(17), round: Round(1) };
        gates.on_appended(&Appended { end: LogEnd(16), ..appended }, ProcessId(2), &disk, "two");
        assert_eq!(gates.take_violations(), Vec::<String>::new(), "says nothing of this piece");
        gates.on_appended(&appended, ProcessId(2), &disk, "two");
        assert_eq!(gates.take_violations().len(), 1);
        disk.write(segment(0), 8, b"log bytes");
        gates.on_appended(&appended, ProcessId(2), &disk, "two");
        assert_eq!(gates.take_violations(), Vec::<String>::new());
    }
}
