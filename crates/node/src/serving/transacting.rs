//! Transactions over several shards at a serving primary (section 8): what the participant says is to be done next is done here,
//! and its words and answers leave.
//!
//! Once a turn, before the log is shipped. What the log says is in the shard's state ([`Transactions`]); what is lost with the
//! term is here: who waits for an answer, answers behind gates, and when the others are asked again.
//!
//! - **R8.1** A proposal is synced at once: the votes wait for it. **R8.4** Answers leave when their gates have opened.
//! - **R8.9** What nobody needs any more is forgotten, many at a time, with one entry.
//! - **R8.11** Of what is unknown here, a conflict is recorded, if it is new; else *never* is said, once that cannot be lost.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use kasha_exactly_once::{LookUp, Request};
use kasha_log::{EntryKind, Purpose};
use kasha_machine::{Effect, Effects, Endpoint, Gate};
use kasha_store::SpareDraft;
use kasha_transaction::{Class, Footprint, GateId, Proposal, Said, Step, Timestamp, Why, Word};
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{AckedBelow, BodyHash, ClusterTime, Epoch, LogEnd, LogPosition, RpcId, ShardId, Tick};
use kasha_wire::FRAME_HEADER_BYTES;
use kasha_wire::hot::{ReadAnswerView, ReadView};
use kasha_wire::message::{Told, WordOf, Words};
use kasha_wire::{AnswerView, Body, OutcomeCode, Update};

use super::{Sees, Serving, WaitsFor};
use crate::core::send;
use crate::primary::Term;
use crate::reads::{on_read, refuse_read};
use crate::replica::Site;
use crate::request_path::Caller;
use crate::transactions::{Ending, Entries, How, Proposed, Transactions, encode_ceiling, log_ending, request_of};

/// How long a participant waits before it asks the others again, and how often it looks for what its clients have let go.
const PATIENCE: Duration = Duration::from_millis(25);
/// How long a participant is asked about a transaction that never came before it records a conflict: the request may be on its
/// way, and the way to one shard longer than to another.
const PATIENCE_WITH_REQUESTS: Duration = Duration::from_millis(500);
/// Transactions that never came, and that others ask about.
const ASKED_ABOUT_MAX: usize = 4096;
/// How often it is logged what is forgotten, and how many are worth it earlier.
const FORGET_INTERVAL: Duration = Duration::from_millis(500);
const FORGOTTEN_MANY: usize = 256;
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

/// A read that waits for a transaction.
#[derive(Debug)]
struct WaitingRead {
    rpc: RpcId,
    to: Endpoint,
    payload: Box<[u8]>,
}

/// *Never* is said of this transaction once the log is synced to here.
#[derive(Debug)]
struct Never {
    end: LogEnd,
    body: u64,
}

/// What a term knows of transactions beside the shard's state.
#[derive(Debug)]
pub(crate) struct Transacting {
    /// The newest attempt of each client that waits for a transaction's outcome.
    callers: BTreeMap<RpcId, Caller>,
    held: BTreeMap<GateId, Vec<Held>>,
    held_bytes: usize,
    /// By transaction and participant: it may ask again before it can be answered.
    nevers: BTreeMap<(RpcId, ShardId), Never>,
    /// Since when others ask about transactions that never came.
    asked_about: BTreeMap<RpcId, Tick>,
    /// Reads of keys that something pending writes.
    reads: VecDeque<WaitingRead>,
    /// Transactions that an earlier term has proposed, and that may still be pending.
    inherited: Vec<RpcId>,
    /// Transactions that nobody needs, which no entry says yet.
    gone: Vec<RpcId>,
    ask_at: Tick,
    forget_at: Tick,
}

impl Default for Transacting {
    fn default() -> Self {
        Self {
            callers: BTreeMap::new(),
            held: BTreeMap::new(),
            held_bytes: 0,
            nevers: BTreeMap::new(),
            asked_about: BTreeMap::new(),
            reads: VecDeque::new(),
            inherited: Vec::new(),
            gone: Vec::new(),
            ask_at: Tick(0),
            forget_at: Tick(0),
        }
    }
}

impl Transacting {
    /// A term begins to serve.
    pub fn begin(transactions: &Transactions) -> Self {
        let inherited = transactions.known().map(|(rpc, _)| rpc).collect();
        // What an earlier term of this one has forgotten, and not logged.
        let is_gone = |rpc: &RpcId| transactions.participant.proposal_of(*rpc).is_none();
        let gone = transactions.known().map(|(rpc, _)| rpc).filter(is_gone).collect();
        Self { inherited, gone, ..Self::default() }
    }

    /// Whether something is pending that an earlier term has proposed. It may have been executed there, and its client told of
    /// it: it must come to the same here. So until then the version floor stays, from which a key without a value gets its
    /// version (R4.8).
    pub fn has_inherited(&mut self, transactions: &Transactions) -> bool {
        self.inherited.retain(|&rpc| transactions.participant.is_pending(rpc));
        !self.inherited.is_empty() && !planted::is_on(Bug::FloorRaisedOverPending)
    }

    /// When its next turn is, if the shard knows transactions.
    pub fn next_deadline(&self, transactions: &Transactions) -> Option<Tick> {
        (!transactions.is_idle()).then_some(self.ask_at)
    }

    /// A client waits for this transaction. Connections may deliver attempts out of order.
    pub fn wait_for(&mut self, rpc: RpcId, caller: Caller) {
        let known = self.callers.entry(rpc).or_insert(caller);
        if known.envelope.attempt <= caller.envelope.attempt {
            *known = caller;
        }
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

    /// Keeps a read until this transaction is pending no more. False: there is no room.
    pub fn park_read(&mut self, rpc: RpcId, to: Endpoint, view: &ReadView<'_>) -> bool {
        if self.reads.len() >= READS_MAX || view.arguments.len() > READ_BYTES_MAX {
            return false;
        }
        let mut frame = Vec::new();
        view.encode(&mut frame);
        self.reads.push_back(WaitingRead { rpc, to, payload: frame[FRAME_HEADER_BYTES..].into() });
        true
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

    fn release(&mut self, gates: &[GateId], out: &mut Effects) {
        for held in gates.iter().filter_map(|gate| self.held.remove(gate)).flatten() {
            self.held_bytes -= held.frame.len();
            let mark = out.mark();
            out.arena().extend_from_slice(&held.frame);
            let head = out.span_from(mark);
            out.push(Effect::Send { to: held.to, head, tail: None, gate: held.when });
        }
    }

    /// Answers the client of a transaction, if one waits.
    pub fn answer(
        &mut self,
        (shard, epoch, rpc): (ShardId, Epoch, RpcId),
        result: &[u8],
        (gate, when): (Option<GateId>, Gate),
        out: &mut Effects,
    ) {
        let Some(caller) = self.callers.remove(&rpc) else { return };
        let view = AnswerView { rpc, epoch, attempt: caller.envelope.attempt, synced: true, shard, result };
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

impl Serving {
    /// Once a turn, before what the turn appended is shipped.
    #[inline]
    pub fn transact(&mut self, term: &mut Term, site: &mut Site<'_>, now: Tick, out: &mut Effects) {
        if !site.state.transactions.is_idle() || !self.transacting.nevers.is_empty() {
            self.transact_some(term, site, now, out);
        }
    }

    #[cold]
    fn transact_some(&mut self, term: &mut Term, site: &mut Site<'_>, now: Tick, out: &mut Effects) {
        let synced = term.shipping.synced();
        site.state.transactions.participant.on_synced(synced);
        self.say_never(site, synced);
        loop {
            while let Some(step) = site.state.transactions.participant.next_step() {
                if !self.take_step(term, site, step, out) {
                    return site.copy.stop_for_memory(out);
                }
            }
            let released = site.state.transactions.participant.take_released();
            if !self.run_those_that_waited(term, site, &released, now, out) {
                break;
            }
        }
        self.open_gates(site, out);
        if now >= self.transacting.ask_at {
            // Who only waits for its client waits for nobody else.
            let is_quiet = site.state.transactions.participant.is_quiet();
            self.transacting.ask_at = now.after(if is_quiet { FORGET_INTERVAL } else { PATIENCE });
            site.state.transactions.participant.ask_again();
            note_let_go(site);
        }
        self.forget(term, site, now);
        speak(site, out);
    }

    fn open_gates(&mut self, site: &mut Site<'_>, out: &mut Effects) {
        let dead = &mut site.core.scratch.dead;
        dead.clear();
        let opened = site.state.transactions.take_opened(dead);
        site.copy.log.kill_all(dead);
        self.transacting.release(&opened, out);
    }

    /// Those that wait for these transactions come in again. False: there was none.
    fn run_those_that_waited(
        &mut self,
        term: &mut Term,
        site: &mut Site<'_>,
        released: &[RpcId],
        now: Tick,
        out: &mut Effects,
    ) -> bool {
        let mut ran = false;
        let reads = std::mem::take(&mut self.transacting.reads);
        let (free, waiting) = reads.into_iter().partition(|read| released.contains(&read.rpc));
        self.transacting.reads = waiting;
        for read in free {
            let view = ReadView::decode(&read.payload).expect("encoded here");
            if let Err(why) = on_read(term, self, site, now, read.to, &view, out) {
                refuse_read(read.to, &view, term.epoch, why, out);
            }
        }
        for &rpc in released {
            for _ in 0..self.parking.len() {
                let Some(parked) = self.parking.take(|waits_for| waits_for == WaitsFor::Transaction(rpc)) else {
                    break;
                };
                ran = true;
                self.run_parked(term, site, &parked, out);
            }
        }
        ran
    }

    /// False: there is no room for it, though room was reserved or the purpose is our own.
    fn take_step(&mut self, term: &mut Term, site: &mut Site<'_>, step: Step, out: &mut Effects) -> bool {
        match step {
            Step::Execute(rpc, at) => self.execute_transaction(term, site, rpc, at, out),
            Step::End(rpc, why) => self.end_transaction(term, site, rpc, why, out),
            Step::RaiseCeiling(ceiling) => {
                let payload = encode_ceiling(ceiling);
                let (log, dead) = (&mut site.copy.log, &mut site.core.scratch.dead);
                let entry = (EntryKind::TimestampCeiling, payload.len());
                let appended = log.append_one(term.epoch, entry, Purpose::Own, |out| out.copy_from_slice(&payload));
                let Ok((at, end)) = appended else { return false };
                dead.clear();
                let state = &mut *site.state;
                state.transactions.apply(log, &mut state.tracker, (at, entry.0, &payload), dead);
                log.kill_all(dead);
                term.shipping.want_synced(end);
                true
            }
        }
    }

    /// A transaction runs: nothing that conflicts can come before it any more (Granola 4.1).
    fn execute_transaction(
        &mut self,
        term: &mut Term,
        site: &mut Site<'_>,
        rpc: RpcId,
        at: Timestamp,
        out: &mut Effects,
    ) -> bool {
        let Site { copy, state, core } = site;
        let (shard, epoch, log) = (copy.shard, term.epoch, &mut copy.log);
        let (entry, _) = state.transactions.entry_of(rpc).expect("what is pending has a proposal");
        let payload = log.entry(entry).payload.to_vec();
        let (_, body) = Proposed::decode(&payload).expect("our own proposal");
        let parts = body.parts_at(shard).expect("we take part");
        let update = Update::Transaction { parts };
        let mut draft = state.store.draft(log, body.head.table, &update, SpareDraft::default());
        let is_done = draft.result().first() == Some(&(OutcomeCode::Done as u8));
        assert!(is_done, "R8.3: {rpc} was checked when it was proposed, and fails now");
        // A table that is gone stays empty; the others change with it.
        let configuration = core.configuration.as_deref().expect("a configuration promoted us");
        draft.withhold(|table| configuration.has_table(table));
        let proposal = state.transactions.participant.proposal_of(rpc).expect("it is pending").clone();
        let slots = slots_of(&body, shard);
        let result = draft.result().to_vec();
        let ending = Ending {
            request: request_of(&body),
            has_come: true,
            slots: &slots,
            result: &result,
            proposal,
            how: How::Executed(at),
        };
        let entries = Entries::new(state, &ending);
        let Ok(mut group) = log.begin(epoch, draft.bytes() + entries.bytes(), Purpose::Own) else { return false };
        let dead = &mut core.scratch.dead;
        dead.clear();
        state.store.write(&mut group, &mut draft, dead);
        let places = entries.write(&mut group);
        let end = group.commit().end.offset;
        let gate = entries.apply(state, places, end, dead);
        log.kill_all(dead);
        log.keep_room(state.transactions.reserved());
        hit(Probe::TransactionExecuted);
        let (changed, synced) = (draft.changed().map(|(key, _)| key), term.shipping.synced());
        self.executed((end, synced), rpc, changed, &[]);
        // Its proposal is durable at all participants, and with it what comes of it (R8.1), but for the version of a key that had
        // no value: that comes from the version floor, whose entry may be lost.
        let sees = || Sees::Absence;
        let floor_until = self.conflicts.until([], sees, synced);
        let when = match draft.sees_absence() && floor_until > synced {
            true => self.synced_gate(term, shard, floor_until),
            false => Gate::Now,
        };
        self.transacting.answer((shard, epoch, rpc), &result, (gate, when), out);
        true
    }

    /// A transaction that was proposed here does not happen.
    fn end_transaction(
        &mut self,
        term: &mut Term,
        site: &mut Site<'_>,
        rpc: RpcId,
        why: Why,
        out: &mut Effects,
    ) -> bool {
        let Site { copy, state, core } = site;
        let (shard, epoch, log) = (copy.shard, term.epoch, &mut copy.log);
        let (entry, _) = state.transactions.entry_of(rpc).expect("what is pending has a proposal");
        let payload = log.entry(entry).payload.to_vec();
        let (_, body) = Proposed::decode(&payload).expect("our own proposal");
        let result = [match why {
            Why::Conflict => OutcomeCode::Conflict,
            Why::Abort => OutcomeCode::RefusedElsewhere,
        } as u8];
        let proposal = state.transactions.participant.proposal_of(rpc).expect("it is pending").clone();
        let slots = slots_of(&body, shard);
        let (request, how) = (request_of(&body), How::Against(why));
        let ending = Ending { request, has_come: true, slots: &slots, result: &result, proposal, how };
        let dead = &mut core.scratch.dead;
        let Ok(outcome) = log_ending(log, state, epoch, &ending, Purpose::Own, dead) else { return false };
        hit(Probe::TransactionEnded);
        let when = self.synced_gate(term, shard, outcome.end);
        self.transacting.answer((shard, epoch, rpc), &result, (outcome.gate, when), out);
        true
    }

    /// The gate of an outcome that nobody else has recorded: it is told when it is synced.
    pub fn synced_gate(&self, term: &mut Term, shard: ShardId, end: LogEnd) -> Gate {
        term.shipping.want_synced(end);
        Gate::Synced { shard, position: LogPosition { epoch: term.epoch, offset: end } }
    }

    /// Logs which transactions are needed no more, and lets go of their entries (R8.9).
    fn forget(&mut self, term: &mut Term, site: &mut Site<'_>, now: Tick) {
        let Site { copy, state, core } = site;
        let own = &mut self.transacting;
        while let Some(rpc) = state.transactions.participant.next_forgotten() {
            own.callers.remove(&rpc);
            own.gone.push(rpc);
        }
        if own.gone.is_empty() || (now < own.forget_at && own.gone.len() < FORGOTTEN_MANY) {
            return;
        }
        own.forget_at = now.after(FORGET_INTERVAL);
        let (log, dead) = (&mut copy.log, &mut core.scratch.dead);
        let payload = state.transactions.forgotten_now(&own.gone).encode();
        let entry = (EntryKind::TransactionsForgotten, payload.len());
        let appended = log.append_one(term.epoch, entry, Purpose::Own, |out| out.copy_from_slice(&payload));
        let Ok((at, _)) = appended else { return };
        hit(Probe::TransactionsForgotten);
        dead.clear();
        state.transactions.apply(log, &mut state.tracker, (at, entry.0, &payload), dead);
        log.kill_all(dead);
        own.gone.clear();
    }

    /// Other participants speak.
    pub fn on_words(&mut self, term: &mut Term, site: &mut Site<'_>, now: Tick, words: Words) {
        for word in words.words {
            let (lease_expiry, word) = (word.lease_expiry, word_of(word));
            let unknown = site.state.transactions.participant.on_word(words.from, &word);
            if unknown.is_some() {
                self.on_unknown(term, site, now, (words.from, word, lease_expiry));
            }
        }
    }

    /// Whether a transaction that never came has had its time to come.
    fn has_waited_for_request(&mut self, rpc: RpcId, now: Tick) -> bool {
        let asked_about = &mut self.transacting.asked_about;
        if asked_about.len() >= ASKED_ABOUT_MAX {
            asked_about.clear(); // they ask again
        }
        let since = *asked_about.entry(rpc).or_insert(now);
        let has_waited = now.since(since) >= PATIENCE_WITH_REQUESTS && !self.parking.holds(rpc);
        if has_waited {
            self.transacting.asked_about.remove(&rpc);
        }
        has_waited
    }

    /// R8.11 \[M\]: a participant asks about a transaction of which nothing is known here.
    fn on_unknown(
        &mut self,
        term: &mut Term,
        site: &mut Site<'_>,
        now: Tick,
        (from, word, lease_expiry): (ShardId, Word, ClusterTime),
    ) {
        let Site { copy, state, core } = site;
        let shard = copy.shard;
        let end = copy.log.end().offset;
        let request =
            Request { rpc: word.rpc, body_hash: BodyHash(word.body), acknowledgement: AckedBelow(1), lease_expiry };
        let below_floor = self.leases.pending_floor().is_some_and(|(floor, _)| lease_expiry <= floor);
        let is_new = !below_floor && state.tracker.look_up_replayed(&request) == LookUp::New;
        let is_participant = word.participants.contains(&shard) && word.participants.contains(&from);
        if !is_new {
            hit(Probe::NeverSaid);
            term.shipping.want_synced(end);
            self.transacting.nevers.entry((word.rpc, from)).or_insert(Never { end, body: word.body });
            return;
        }
        if !is_participant || word.participants.len() > kasha_types::limits::PARTICIPANTS_MAX {
            return;
        }
        if !self.has_waited_for_request(word.rpc, now) {
            return;
        }
        hit(Probe::ConflictForUnknown);
        let Word { rpc, body, participants, .. } = word;
        let proposal = Proposal { class: Class::Coordinated, body, participants, footprint: Footprint::default() };
        let result = [OutcomeCode::Conflict as u8];
        let how = How::Against(Why::Conflict);
        let ending = Ending { request, has_come: false, slots: &[], result: &result, proposal, how };
        // Without room it is asked again.
        let (log, dead) = (&mut copy.log, &mut core.scratch.dead);
        if let Ok(outcome) = log_ending(log, state, term.epoch, &ending, Purpose::Freeing, dead) {
            term.shipping.want_synced(outcome.end);
            let _ = rpc;
        }
    }

    fn say_never(&mut self, site: &mut Site<'_>, synced: LogEnd) {
        let participant = &mut site.state.transactions.participant;
        self.transacting.nevers.retain(|&(rpc, to), never| {
            let is_sure = never.end <= synced;
            if is_sure {
                participant.say_never(to, rpc, never.body);
            }
            !is_sure
        });
    }
}

/// What clients have acknowledged, or what their leases are over of, they have let go (R8.9).
fn note_let_go(site: &mut Site<'_>) {
    let (state, end) = (&mut *site.state, site.copy.log.end().offset);
    let floor = state.tracker.floor();
    let is_let_go = |rpc: RpcId, lease_expiry: ClusterTime| {
        let acknowledged = state.tracker.acknowledgement_of(rpc.client);
        rpc.sequence.0 < acknowledged.0 || floor.refuses(lease_expiry)
    };
    let let_go: Vec<_> = state.transactions.known().filter(|&(rpc, expiry)| is_let_go(rpc, expiry)).collect();
    for (rpc, _) in let_go {
        state.transactions.participant.let_go(rpc, end);
    }
}

/// The participant's words leave, one message for each shard that hears some.
fn speak(site: &mut Site<'_>, out: &mut Effects) {
    let Site { copy, state, core } = site;
    let mut by_shard: BTreeMap<ShardId, Vec<WordOf>> = BTreeMap::new();
    for (to, word) in state.transactions.participant.take_words() {
        let lease_expiry = state.transactions.lease_expiry_of(word.rpc).unwrap_or(ClusterTime(0));
        by_shard.entry(to).or_default().push(told(word, lease_expiry));
    }
    let configuration = core.configuration.as_deref().expect("a configuration promoted us");
    for (to, words) in by_shard {
        let primary = configuration.shard(to).and_then(|config| configuration.core_of(config.primary, to));
        let Some(primary) = primary else { continue };
        let words = Words { to, from: copy.shard, words };
        if primary == core.id() {
            core.words.push(words);
        } else {
            send(Endpoint::Core(primary), &words, Gate::Now, out);
        }
    }
}

fn told(word: Word, lease_expiry: ClusterTime) -> WordOf {
    let told = match word.said {
        Said::Proposed(at) => Told::Proposed(at.0),
        Said::Executed { at, recorded, settled } => Told::Executed { at: at.0, recorded, settled },
        Said::Against(Why::Conflict) => Told::Conflict,
        Said::Against(Why::Abort) => Told::Abort,
        Said::Never => Told::Never,
    };
    let Word { rpc, body, asks, participants, .. } = word;
    WordOf { rpc, body: BodyHash(body), lease_expiry, told, asks, participants }
}

fn word_of(word: WordOf) -> Word {
    let said = match word.told {
        Told::Proposed(at) => Said::Proposed(Timestamp(at)),
        Told::Executed { at, recorded, settled } => Said::Executed { at: Timestamp(at), recorded, settled },
        Told::Conflict => Said::Against(Why::Conflict),
        Told::Abort => Said::Against(Why::Abort),
        Told::Never => Said::Never,
    };
    let WordOf { rpc, body, asks, participants, .. } = word;
    Word { rpc, body: body.0, said, asks, participants }
}

/// The slots of a participant's own keys.
pub(crate) fn slots_of(body: &Body<'_>, shard: ShardId) -> Vec<kasha_types::Slot> {
    let parts = body.parts_at(shard).expect("it takes part");
    let mut slots: Vec<_> = parts.iter().map(|part| kasha_types::slot_of(part.operation.key())).collect();
    slots.sort_unstable();
    slots.dedup();
    slots
}
