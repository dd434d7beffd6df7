//! What waits at a primary for transactions over several shards: answers behind gates, clients, and reads.
//!
//! - **R8.4** An answer leaves when its gate has opened. All of it is bounded, and lost with the term: clients ask again.

use std::collections::BTreeMap;

use kasha_machine::{Effect, Effects, Endpoint, Gate};
use kasha_transaction::GateId;
use kasha_types::probe::{Probe, hit};
use kasha_types::{Epoch, RpcId, ShardId};
use kasha_wire::hot::{ReadAnswerView, ReadView};
use kasha_wire::{AnswerView, FRAME_HEADER_BYTES};

use crate::request::Caller;

/// Bytes of answers that are kept behind gates.
const HELD_BYTES_MAX: usize = 16 << 20;
/// Reads that wait for transactions, and bytes of one.
const READS_MAX: usize = 1024;
const READ_BYTES_MAX: usize = 64 << 10;

/// An answer behind a gate.
#[derive(Debug)]
struct Held {
    to: Endpoint,
    frame: Vec<u8>,
    /// What it waits for when the gate has opened.
    when: Gate,
}

/// A read that waits for transactions.
#[derive(Debug)]
pub(in crate::serving) struct WaitingRead {
    /// Those that are pending still.
    rpcs: Vec<RpcId>,
    pub to: Endpoint,
    read_id: u64,
    pub payload: Box<[u8]>,
}

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// The newest attempt of each client that waits for a transaction's outcome.
    callers: BTreeMap<RpcId, Caller>,
    /// Of clients that were told that a transaction is prepared, and are to hear it if it does not happen.
    callers_of_ends: BTreeMap<RpcId, Caller>,
    held: BTreeMap<GateId, Vec<Held>>,
    held_bytes: usize,
    /// Reads of keys that something pending writes.
    reads: Vec<WaitingRead>,
}

impl Waiting {
    /// A client waits for this transaction. Connections may deliver attempts out of order.
    pub fn wait_for(&mut self, rpc: RpcId, caller: Caller) {
        let known = self.callers.entry(rpc).or_insert(caller);
        if known.envelope.attempt <= caller.envelope.attempt {
            *known = caller;
        }
    }

    /// A client waits for this transaction if it does not happen.
    pub fn wait_for_end(&mut self, rpc: RpcId, caller: Caller) {
        self.callers_of_ends.insert(rpc, caller);
    }

    /// The transaction is decided.
    pub(super) fn decided(&mut self, rpc: RpcId, happens: bool) {
        if let Some(caller) = self.callers_of_ends.remove(&rpc).filter(|_| !happens) {
            self.wait_for(rpc, caller);
        }
    }

    /// Nobody waits for this transaction any more.
    pub(super) fn forget(&mut self, rpc: RpcId) {
        self.callers.remove(&rpc);
        self.callers_of_ends.remove(&rpc);
    }

    /// Keeps an answer until this gate has opened. False: there is no room for it.
    pub fn hold(&mut self, gate: GateId, to: Endpoint, frame: Vec<u8>, when: Gate) -> bool {
        hit(Probe::AnswerBehindGate);
        if self.held_bytes + frame.len() > HELD_BYTES_MAX {
            return false;
        }
        self.held_bytes += frame.len();
        self.held.entry(gate).or_default().push(Held { to, frame, when });
        true
    }

    /// Answers that wait for gates.
    pub fn held_answers(&self) -> u64 {
        self.held.values().map(Vec::len).sum::<usize>() as u64
    }

    /// How many reads wait for this transaction.
    pub(super) fn reads_of(&self, rpc: RpcId) -> usize {
        self.reads.iter().filter(|read| read.rpcs.contains(&rpc)).count()
    }

    /// Whether an answer of so many bytes finds room.
    pub fn has_room_for(&self, bytes: usize) -> bool {
        self.held_bytes + bytes + FRAME_HEADER_BYTES <= HELD_BYTES_MAX
    }

    /// The same for the answer of a read, the end of whose result is `tail`.
    pub fn hold_read(
        &mut self,
        gate: GateId,
        to: Endpoint,
        (answer, tail): (ReadAnswerView<'_>, &[u8]),
        when: Gate,
    ) -> bool {
        let mut frame = Vec::new();
        answer.encode(tail, &mut frame);
        frame.extend_from_slice(tail);
        self.hold(gate, to, frame, when)
    }

    /// Keeps a read until these transactions are pending no more. False: there is no room.
    pub fn park_read(&mut self, rpcs: Vec<RpcId>, to: Endpoint, view: &ReadView<'_>) -> bool {
        // Its client has asked again: the same read, later.
        let is_known = |read: &WaitingRead| read.to == to && read.read_id == view.read_id;
        if let Some(known) = self.reads.iter().position(is_known) {
            self.reads.swap_remove(known);
        }
        if self.reads.len() >= READS_MAX || view.arguments.len() > READ_BYTES_MAX {
            return false;
        }
        let mut frame = Vec::new();
        view.encode(&mut frame);
        self.reads.push(WaitingRead { rpcs, to, read_id: view.read_id, payload: frame[FRAME_HEADER_BYTES..].into() });
        true
    }

    /// The reads that wait for nothing more now that these transactions are pending no more.
    pub(in crate::serving) fn take_reads(&mut self, released: &[RpcId]) -> Vec<WaitingRead> {
        if released.is_empty() || self.reads.is_empty() {
            return Vec::new();
        }
        let mut reads = std::mem::take(&mut self.reads);
        reads.iter_mut().for_each(|read| read.rpcs.retain(|rpc| !released.contains(rpc)));
        let (free, waiting) = reads.into_iter().partition(|read| read.rpcs.is_empty());
        self.reads = waiting;
        free
    }

    /// These gates have opened.
    pub(super) fn release(&mut self, gates: &[GateId], out: &mut Effects) {
        for held in gates.iter().filter_map(|gate| self.held.remove(gate)).flatten() {
            self.held_bytes -= held.frame.len();
            let mark = out.mark();
            out.arena().extend_from_slice(&held.frame);
            let head = out.span_from(mark);
            out.push(Effect::Send { to: held.to, head, tail: None, gate: held.when });
        }
    }

    /// Answers the client of a transaction, if one waits. `synced`: the result cannot be lost when it leaves.
    pub fn answer(
        &mut self,
        (shard, epoch, rpc): (ShardId, Epoch, RpcId),
        (result, synced): (&[u8], bool),
        (gate, when): (Option<GateId>, Gate),
        out: &mut Effects,
    ) {
        let Some(caller) = self.callers.remove(&rpc) else { return };
        let view = AnswerView { rpc, epoch, attempt: caller.envelope.attempt, synced, shard, result };
        match gate {
            Some(gate) => {
                let mut frame = Vec::new();
                view.encode(&[], &mut frame);
                self.hold(gate, caller.to, frame, when);
            }
            None => {
                let mark = out.mark();
                view.encode(&[], out.arena());
                let head = out.span_from(mark);
                out.push(Effect::Send { to: caller.to, head, tail: None, gate: when });
            }
        }
    }
}
