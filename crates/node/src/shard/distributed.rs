//! What a shard's log says of transactions over several shards (section 8): a part of the shard's state. A primary builds it by
//! executing, all others by replay.
//!
//! | entry | lives while | what a replay makes of it |
//! |---|---|---|
//! | proposed | the transaction has no outcome | the transaction is pending (R8.1) |
//! | ended | somebody may ask for the outcome (R8.9) | it has this outcome, whether its proposal was found or not |
//! | ceiling | it is the newest | nothing is executed above it before a later one |
//! | forgotten | it is the newest | what is below its number is needed no more, but for what it names |
//! | gate | the gate is closed | the answer of the update waits for it again (R8.6, R8.15) |
//!
//! A transaction has one live entry: the outcome replaces the proposal, and says all that is needed of it but for its values.
//! So a replay never finds an outcome without what it belongs to (R8.9). *Forgotten* is for proposals whose outcome is gone
//! already: a replay that found one would take the transaction up again. It names what is left instead of what is gone, so that
//! the newest entry says everything.

mod outcome;
mod record;

use std::collections::{BTreeMap, BTreeSet};

use kasha_distributed::{Class, Footprint, GateId, Origin, Participant, Timestamp};
use kasha_exactly_once::{Request, Tracker};
use kasha_log::{EntryKind, EntryOffset, Log};
use kasha_types::{ClusterTime, LogEnd, RpcId, ShardId, TableId};
use kasha_wire::Body;

pub(crate) use crate::shard::distributed::outcome::{Ending, OutcomeEntries, commit_ending};
pub(crate) use crate::shard::distributed::record::{
    Ended, Forgotten, Gated, How, Number, Proposed, Reason, encode_ceiling, proposal_of,
};

/// Transactions that are pending at a time.
const PENDING_MAX: usize = 16_384;

/// What is known of a transaction beside what the participant knows.
#[derive(Debug)]
struct Known {
    number: Number,
    /// Its one live entry.
    entry: EntryOffset,
    lease_expiry: ClusterTime,
    /// Room that its execution may need (R8.13).
    reserved: u64,
    /// Of one that was aborted here: what the keeper of its operation key has to hear.
    reason: Option<Reason>,
}

/// An update of this shard alone whose answer waits, or a transaction that was aborted here, whose participant keeps no gate.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    gate: GateId,
    /// Of an update, the entry that tells of its gate. The outcome of a transaction does that itself.
    entry: Option<EntryOffset>,
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Distributed {
    pub participant: Participant,
    known: BTreeMap<RpcId, Known>,
    gated: BTreeMap<RpcId, Waiting>,
    next: Number,
    reserved: u64,
    /// Transactions without an outcome: those for which room is reserved.
    pending: usize,
    ceiling: Option<(Timestamp, EntryOffset)>,
    forgotten: Option<(Forgotten, EntryOffset)>,
}

impl Distributed {
    pub fn new(shard: ShardId) -> Self {
        Self {
            participant: Participant::new(shard),
            known: BTreeMap::new(),
            gated: BTreeMap::new(),
            next: Number(1),
            reserved: 0,
            pending: 0,
            ceiling: None,
            forgotten: None,
        }
    }

    /// Whether nothing of it has to go on.
    pub fn is_idle(&self) -> bool {
        self.known.is_empty() && self.participant.is_idle()
    }

    /// Whether no operation of this shard alone has to look at anything here.
    #[inline(always)] // two words, for each update and each read
    pub fn is_quiet(&self) -> bool {
        (self.known.is_empty() && self.gated.is_empty()) || self.participant.is_quiet()
    }

    pub fn knows(&self, rpc: RpcId) -> bool {
        self.known.contains_key(&rpc)
    }

    /// Transactions without an outcome.
    pub fn pending(&self) -> u64 {
        self.pending as u64
    }

    pub fn has_room(&self) -> bool {
        self.pending < PENDING_MAX
    }

    /// All that is known, and when the leases of their clients end.
    pub fn known(&self) -> impl Iterator<Item = (RpcId, ClusterTime)> {
        self.known.iter().map(|(&rpc, known)| (rpc, known.lease_expiry))
    }

    /// The tables of all that is pending here.
    pub fn pending_tables(&self, log: &Log) -> BTreeSet<TableId> {
        let pending = self.known.iter().filter(|(rpc, _)| self.participant.is_pending(**rpc));
        let mut tables = BTreeSet::new();
        for (_, known) in pending {
            let (_, body) = Proposed::decode(log.entry(known.entry).payload).expect("our own proposal");
            body.for_each_key(|table, _, _| _ = tables.insert(table));
        }
        tables
    }

    /// Up to when its client's lease lasts, as far as its body says.
    pub fn lease_expiry_of(&self, rpc: RpcId) -> Option<ClusterTime> {
        self.known.get(&rpc).map(|known| known.lease_expiry)
    }

    /// The live entry of a transaction, and its number.
    pub fn entry_of(&self, rpc: RpcId) -> Option<(EntryOffset, Number)> {
        self.known.get(&rpc).map(|known| (known.entry, known.number))
    }

    pub fn next_number(&self) -> Number {
        self.next
    }

    /// Room that is reserved for executions (R8.13).
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// The gate behind which the answer of this update, of whatever kind, has to wait.
    pub fn gate_of_answer(&self, rpc: RpcId) -> Option<GateId> {
        let own = self.gated.get(&rpc).map(|waiting| waiting.gate);
        let gate = own.or_else(|| self.participant.gate_of_answer(rpc));
        gate.filter(|gate| !self.participant.is_open(*gate))
    }

    /// Transactions that the participant has forgotten, and no entry says so yet: in this term, or in an earlier one of this primary.
    pub fn gone(&self) -> usize {
        let needed = self.participant.count();
        self.known.len().checked_sub(needed).expect("all that the participant knows has an entry")
    }

    /// What has to be said of the transactions below the next number, without those that are gone.
    pub fn forgotten_now(&self) -> Forgotten {
        let left = self.known.iter().filter(|(rpc, _)| self.participant.proposal_of(**rpc).is_some());
        let mut except: Vec<_> = left.map(|(_, known)| known.number).collect();
        except.sort_unstable();
        Forgotten { below: self.next, except }
    }

    /// A transaction is proposed.
    pub fn note_proposed(
        &mut self,
        rpc: RpcId,
        number: Number,
        entry: EntryOffset,
        lease_expiry: ClusterTime,
        reserved: u64,
    ) {
        let before = self.note(rpc, Known { number, entry, lease_expiry, reserved, reason: None });
        assert!(before.is_none(), "E1: {rpc} was known");
    }

    /// A transaction has an outcome. Returns the entry of its proposal, which is dead. `reason`: what the keeper of its operation key has
    /// to hear.
    pub fn note_ended(
        &mut self,
        rpc: RpcId,
        (number, entry): (Number, EntryOffset),
        lease_expiry: ClusterTime,
        reason: Option<Reason>,
    ) -> Option<EntryOffset> {
        self.note(rpc, Known { number, entry, lease_expiry, reserved: 0, reason })
    }

    fn note(&mut self, rpc: RpcId, known: Known) -> Option<EntryOffset> {
        self.next = self.next.max(Number(known.number.0 + 1));
        self.reserved += known.reserved;
        self.pending += usize::from(known.reserved > 0);
        let before = self.known.insert(rpc, known);
        if let Some(before) = &before {
            self.release(before);
        }
        before.map(|known| known.entry)
    }

    fn release(&mut self, known: &Known) {
        self.reserved -= known.reserved;
        self.pending -= usize::from(known.reserved > 0);
    }

    /// The answer of an update waits behind this gate, and an entry says so.
    pub fn note_gate(&mut self, rpc: RpcId, entry: EntryOffset, gate: GateId) {
        self.gated.insert(rpc, Waiting { gate, entry: Some(entry) });
    }

    /// The answer of a transaction that was aborted here waits behind this gate.
    pub fn note_aborted(&mut self, rpc: RpcId, gate: GateId) {
        self.gated.insert(rpc, Waiting { gate, entry: None });
    }

    /// Whether the answer of a transaction that was aborted here waits. Until then others may come to know of it, and have to wait
    /// for the same.
    pub fn is_aborted_behind_gate(&self, rpc: RpcId) -> bool {
        self.gated.get(&rpc).is_some_and(|waiting| waiting.entry.is_none())
    }

    /// Whether this participant is to hear why a transaction was aborted here.
    pub fn has_reason_for(&self, to: ShardId, rpc: RpcId) -> bool {
        self.reason_of(to, rpc).is_some()
    }

    fn reason_of(&self, to: ShardId, rpc: RpcId) -> Option<&Reason> {
        self.known.get(&rpc)?.reason.as_ref().filter(|reason| reason.keeper == to)
    }

    /// Why a transaction was aborted here, if this participant is the one to hear it, and it may be told (R8.5).
    pub fn reason_for(&self, to: ShardId, rpc: RpcId) -> Option<&[u8]> {
        let reason = self.reason_of(to, rpc)?;
        self.gate_of_answer(rpc).is_none().then_some(&reason.result[..])
    }

    /// Gates have opened: the entries that tell of them are dead. Returns the gates.
    pub fn take_opened(&mut self, dead: &mut Vec<EntryOffset>) -> Vec<GateId> {
        let opened = self.participant.take_opened();
        for &(gate, rpc) in &opened {
            if let Some(rpc) = rpc.filter(|rpc| self.gated.get(rpc).is_some_and(|waiting| waiting.gate == gate)) {
                dead.extend(self.gated.remove(&rpc).and_then(|waiting| waiting.entry));
            }
        }
        opened.into_iter().map(|(gate, _)| gate).collect()
    }

    /// A new primary takes up what the log says, all of which it goes on with (R8.6).
    pub fn begin_serving(&mut self, end: LogEnd, dead: &mut Vec<EntryOffset>) {
        self.participant.begin_serving(end);
        drop(self.take_opened(dead));
    }

    fn is_forgotten(&self, number: Number) -> bool {
        self.forgotten.as_ref().is_some_and(|(forgotten, _)| forgotten.covers(number))
    }

    /// Replays an entry. Nobody waits for what is replayed.
    pub fn replay(
        &mut self,
        log: &Log,
        tracker: &mut Tracker,
        entry: (EntryOffset, EntryKind, &[u8]),
        dead: &mut Vec<EntryOffset>,
    ) {
        self.apply(log, tracker, entry, dead);
        drop(self.participant.take_released());
        drop(self.take_opened(dead));
    }

    /// Takes in an entry that stands in the log.
    pub fn apply(
        &mut self,
        log: &Log,
        tracker: &mut Tracker,
        (at, kind, payload): (EntryOffset, EntryKind, &[u8]),
        dead: &mut Vec<EntryOffset>,
    ) {
        match kind {
            EntryKind::DistributedProposed => self.replay_proposed(log.shard(), tracker, at, payload, dead),
            EntryKind::DistributedEnded => self.replay_ended(log.shard(), tracker, at, payload, dead),
            EntryKind::TimestampCeiling => self.replay_ceiling(at, payload, dead),
            EntryKind::DistributedForgotten => self.replay_forgotten(tracker, at, payload, dead),
            EntryKind::Gate => self.replay_gate(at, payload, dead),
            _ => unreachable!("{kind:?} is another owner's"),
        }
    }

    fn replay_proposed(
        &mut self,
        shard: ShardId,
        tracker: &mut Tracker,
        at: EntryOffset,
        payload: &[u8],
        dead: &mut Vec<EntryOffset>,
    ) {
        let (proposed, body) = Proposed::decode(payload).expect("our own proposal");
        let rpc = body.head.rpc;
        self.next = self.next.max(Number(proposed.number.0 + 1));
        let Some(proposal) = proposal_of(&body, shard).filter(|_| !self.is_forgotten(proposed.number)) else {
            return dead.push(at);
        };
        match self.known.get_mut(&rpc) {
            Some(known) if self.participant.is_pending(rpc) => {
                keep_newer(&mut known.entry, at, dead);
            }
            Some(_) => dead.push(at),
            None => {
                self.participant.proposed(rpc, proposal, proposed.at, at.end_after());
                self.note_proposed(rpc, proposed.number, at, body.head.lease_expiry, proposed.reserved);
                tracker.recover_begun(&request_of(&body));
            }
        }
    }

    fn replay_ended(
        &mut self,
        shard: ShardId,
        tracker: &mut Tracker,
        at: EntryOffset,
        payload: &[u8],
        dead: &mut Vec<EntryOffset>,
    ) {
        let ended = Ended::decode(payload).expect("our own outcome");
        let Ended { number, rpc, lease_expiry, how, proposal, gate, reason } = ended;
        self.next = self.next.max(Number(number.0 + 1));
        if self.is_forgotten(number) || !proposal.participants.contains(&shard) {
            return dead.push(at);
        }
        // Its completion record stands before it, or is needed no more.
        tracker.forget_begun(rpc);
        let is_pending = self.participant.is_pending(rpc);
        if !is_pending && let Some(known) = self.known.get_mut(&rpc) {
            return keep_newer(&mut known.entry, at, dead);
        }
        let (end, origin) = (at.end_after(), Origin::Log { gate: &gate });
        match how {
            How::Executed(timestamp) => {
                if !is_pending {
                    self.participant.proposed(rpc, proposal, timestamp, end);
                }
                drop(self.participant.executed(rpc, timestamp, end, origin));
            }
            How::Against(why) => self.participant.ended(rpc, proposal, why, end),
            How::AbortedHere => {
                let checked = proposal.footprint.clone();
                if let Some((gate, _)) = self.participant.aborted(rpc, proposal, &checked, end, origin) {
                    self.note_aborted(rpc, gate);
                }
            }
        }
        dead.extend(self.note_ended(rpc, (number, at), lease_expiry, reason));
    }

    fn replay_ceiling(&mut self, at: EntryOffset, payload: &[u8], dead: &mut Vec<EntryOffset>) {
        let ceiling = record::ceiling_of(payload).expect("our own ceiling");
        match self.ceiling {
            Some((known, _)) if known > ceiling => dead.push(at),
            before => {
                dead.extend(before.map(|(_, entry)| entry));
                self.ceiling = Some((ceiling, at));
                self.participant.ceiling_logged(ceiling, at.end_after());
            }
        }
    }

    fn replay_forgotten(
        &mut self,
        tracker: &mut Tracker,
        at: EntryOffset,
        payload: &[u8],
        dead: &mut Vec<EntryOffset>,
    ) {
        let forgotten = Forgotten::decode(payload).expect("our own word");
        if self.forgotten.as_ref().is_some_and(|(known, _)| known.below > forgotten.below) {
            return dead.push(at);
        }
        self.next = self.next.max(forgotten.below);
        let gone: Vec<_> =
            self.known.iter().filter(|(_, known)| forgotten.covers(known.number)).map(|(&rpc, _)| rpc).collect();
        for rpc in gone {
            let known = self.known.remove(&rpc).expect("just seen");
            self.release(&known);
            tracker.forget_begun(rpc);
            dead.push(known.entry);
            self.participant.forgotten(rpc);
            self.gated.remove(&rpc);
        }
        dead.extend(self.forgotten.replace((forgotten, at)).map(|(_, entry)| entry));
    }

    fn replay_gate(&mut self, at: EntryOffset, payload: &[u8], dead: &mut Vec<EntryOffset>) {
        let Gated { rpc, footprint, gate } = Gated::decode(payload).expect("our own gate");
        if let Some(Waiting { entry: Some(entry), .. }) = self.gated.get_mut(&rpc) {
            return keep_newer(entry, at, dead);
        }
        match self.participant.pass(Some(rpc), &footprint, Origin::Log { gate: &gate }) {
            Some((gate, _)) => self.note_gate(rpc, at, gate),
            None => dead.push(at),
        }
    }

    /// Whether an entry lives.
    pub fn is_live(&self, at: EntryOffset, kind: EntryKind, payload: &[u8]) -> bool {
        self.place_of(kind, payload) == Some(at)
    }

    /// Where the live entry is that stands for the same as this one.
    fn place_of(&self, kind: EntryKind, payload: &[u8]) -> Option<EntryOffset> {
        match kind {
            EntryKind::DistributedProposed => {
                let (_, body) = Proposed::decode(payload).expect("our own proposal");
                self.known.get(&body.head.rpc).map(|known| known.entry)
            }
            EntryKind::DistributedEnded => {
                self.known.get(&Ended::rpc_of(payload).expect("our own outcome")).map(|known| known.entry)
            }
            EntryKind::Gate => {
                self.gated.get(&Gated::rpc_of(payload).expect("our own gate")).and_then(|waiting| waiting.entry)
            }
            EntryKind::TimestampCeiling => self.ceiling.map(|(_, entry)| entry),
            EntryKind::DistributedForgotten => self.forgotten.as_ref().map(|(_, entry)| *entry),
            _ => None,
        }
    }

    /// A live entry was copied.
    pub fn relocate(&mut self, from: EntryOffset, to: EntryOffset, (kind, payload): (EntryKind, &[u8])) {
        assert_eq!(self.place_of(kind, payload), Some(from), "R5.7: it lived there");
        match kind {
            EntryKind::DistributedProposed | EntryKind::DistributedEnded => {
                let rpc = match kind {
                    EntryKind::DistributedProposed => Proposed::decode(payload).expect("just read").1.head.rpc,
                    _ => Ended::rpc_of(payload).expect("just read"),
                };
                self.known.get_mut(&rpc).expect("just seen").entry = to;
            }
            EntryKind::Gate => {
                let waiting = self.gated.get_mut(&Gated::rpc_of(payload).expect("just read")).expect("just seen");
                waiting.entry = Some(to);
            }
            EntryKind::TimestampCeiling => self.ceiling.as_mut().expect("just seen").1 = to,
            EntryKind::DistributedForgotten => self.forgotten.as_mut().expect("just seen").1 = to,
            _ => unreachable!("{kind:?} is another owner's"),
        }
    }

    /// The segment of this entry goes, as a later entry says. Says whether something led there: a replay of what was left
    /// may have found an entry that was dead.
    pub fn forget(&mut self, at: EntryOffset, kind: EntryKind, payload: &[u8]) -> bool {
        if !self.is_live(at, kind, payload) {
            return false;
        }
        match kind {
            EntryKind::DistributedProposed | EntryKind::DistributedEnded => {
                let rpc = match kind {
                    EntryKind::DistributedProposed => Proposed::decode(payload).expect("just read").1.head.rpc,
                    _ => Ended::rpc_of(payload).expect("just read"),
                };
                let known = self.known.remove(&rpc).expect("just seen");
                self.release(&known);
                self.participant.forgotten(rpc);
            }
            EntryKind::Gate => {
                self.gated.remove(&Gated::rpc_of(payload).expect("just read")).expect("just seen");
            }
            EntryKind::TimestampCeiling => self.ceiling = None,
            EntryKind::DistributedForgotten => self.forgotten = None,
            _ => unreachable!("{kind:?} is another owner's"),
        }
        true
    }
}

/// No number, timestamp or size in a record is above this: no clock says it, and no shard has so many.
const NUMBER_MAX: u64 = 1 << 62;

/// Whether the records can be read, and say what can be: what comes from a peer is looked at before it is kept.
pub(crate) fn is_sound(kind: EntryKind, payload: &[u8]) -> bool {
    match kind {
        EntryKind::DistributedProposed => Proposed::decode(payload).is_some_and(|(proposed, _)| {
            let Proposed { number, at, reserved, .. } = proposed;
            number.0 < NUMBER_MAX && at.0 < NUMBER_MAX && (1..1 << 40).contains(&reserved)
        }),
        EntryKind::DistributedEnded => Ended::decode(payload).is_some_and(|ended| {
            let is_sound = match ended.how {
                How::Executed(at) => at.0 < NUMBER_MAX,
                How::AbortedHere => ended.proposal.class == Class::Coordinated,
                How::Against(_) => true,
            };
            is_sound && ended.number.0 < NUMBER_MAX
        }),
        // It is reserved ahead of the timestamps.
        EntryKind::TimestampCeiling => record::ceiling_of(payload).is_some_and(|ceiling| ceiling.0 <= 2 * NUMBER_MAX),
        EntryKind::DistributedForgotten => Forgotten::decode(payload).is_some(),
        EntryKind::Gate => Gated::decode(payload).is_some(),
        _ => false,
    }
}

/// Of two copies of an entry the one further on stays.
fn keep_newer(known: &mut EntryOffset, at: EntryOffset, dead: &mut Vec<EntryOffset>) {
    dead.push(at.min(*known));
    *known = at.max(*known);
}

/// What a check of a transaction may have read: whatever it would lock.
pub(crate) fn checked_by(footprint: &Footprint) -> Footprint {
    Footprint::new(footprint.reads().iter().chain(footprint.writes()).copied(), [])
}

/// What exactly-once keeps of a transaction.
pub(crate) fn request_of(body: &Body<'_>) -> Request {
    Request {
        rpc: body.head.rpc,
        body_hash: body.hash(),
        acknowledgement: body.head.acknowledgement,
        lease_expiry: body.head.lease_expiry,
    }
}
