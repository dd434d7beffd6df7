//! What one shard knows of distributed transactions, and how it comes to know it.

use std::collections::{BTreeMap, BTreeSet};

use kasha_types::planted::{self, Bug};
use kasha_types::{LogEnd, RpcId, ShardId};

use crate::gates::{Gates, Opened, Unsettled};
use crate::pending::Pending;
use crate::{Class, Footprint, GateId, Proposal, Said, Timestamp, Word};

/// Words that came before their transaction did. Beyond, the participants ask again.
const EARLY_MAX: usize = 4096;

/// How far a transaction is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It has proposed this.
    Pending(Timestamp),
    /// It is executed at this timestamp.
    Executed(Timestamp),
    /// It does not happen.
    Against,
}

/// What another participant has said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub shard: ShardId,
    pub voted: Option<Timestamp>,
    /// The final timestamp, from a participant that has executed it.
    pub executed: Option<Timestamp>,
    pub is_against: bool,
    pub says_never: bool,
    pub recorded: bool,
    pub settled: bool,
}

/// A transaction that is known here.
#[derive(Debug)]
pub(crate) struct Transaction {
    pub proposal: Proposal,
    pub phase: Phase,
    /// Where the entry of its proposal ends, or of the outcome if it never proposed.
    pub proposed_until: LogEnd,
    /// Where the entry of its outcome ends.
    pub outcome_until: LogEnd,
    /// Where the entry ends that says that the client has the result, or that its lease is over.
    pub let_go_until: Option<LogEnd>,
    pub peers: Vec<Peer>,
    /// The gate of its answer, while it is closed.
    pub gate: Option<GateId>,
    /// Every participant has executed it, and every gate has opened.
    pub is_settled: bool,
    /// What was last said to all.
    pub said: Option<Said>,
}

/// What one shard knows of distributed transactions. See the crate's documentation.
#[derive(Debug)]
pub struct Participant {
    pub(crate) shard: ShardId,
    pub(crate) transactions: BTreeMap<RpcId, Transaction>,
    pub(crate) pending: Pending,
    pub(crate) gates: Gates,
    /// The greatest timestamp that was proposed or executed here.
    pub(crate) floor: Timestamp,
    /// Nothing is executed above the part of this that is synced.
    pub(crate) ceiling: Timestamp,
    pub(crate) logged_ceiling: (Timestamp, LogEnd),
    pub(crate) synced: LogEnd,
    /// Transactions of which something has changed.
    pub(crate) changed: BTreeSet<RpcId>,
    /// Transactions of which something is not synced.
    pub(crate) unsynced: BTreeSet<(LogEnd, RpcId)>,
    early: BTreeMap<RpcId, Vec<(ShardId, Word)>>,
    pub(crate) words: Vec<(ShardId, Word)>,
    pub(crate) opened: Vec<Opened>,
}

impl Participant {
    /// Knows of no transaction.
    #[must_use]
    pub fn new(shard: ShardId) -> Self {
        Self {
            shard,
            transactions: BTreeMap::new(),
            pending: Pending::default(),
            gates: Gates::default(),
            floor: Timestamp(0),
            ceiling: Timestamp(0),
            logged_ceiling: (Timestamp(0), LogEnd::START),
            synced: LogEnd::START,
            changed: BTreeSet::new(),
            unsynced: BTreeSet::new(),
            early: BTreeMap::new(),
            words: Vec::new(),
            opened: Vec::new(),
        }
    }

    /// A proposal is logged; its entry ends here. A replay of the log calls this, too.
    ///
    /// # Panics
    /// If the transaction is known, or this shard is none of its participants.
    pub fn proposed(&mut self, rpc: RpcId, proposal: Proposal, at: Timestamp, end: LogEnd) {
        self.floor = self.floor.max(at);
        self.pending.insert(rpc, &proposal.footprint);
        self.insert(rpc, proposal, Phase::Pending(at), end);
        for (from, word) in self.early.remove(&rpc).into_iter().flatten() {
            let unknown = self.on_word(from, &word);
            assert!(unknown.is_none(), "it is known now");
        }
    }

    /// That it does not happen is logged: a CONFLICT, an ABORT, or the end of what was pending. A replay of the log calls this,
    /// too.
    ///
    /// # Panics
    /// If it was executed (T1).
    pub fn ended(&mut self, rpc: RpcId, proposal: Proposal, end: LogEnd) {
        self.early.remove(&rpc);
        match self.transactions.get_mut(&rpc) {
            Some(known) => {
                assert!(matches!(known.phase, Phase::Pending(_)), "T1: {rpc} has an outcome");
                (known.phase, known.outcome_until) = (Phase::Against, end);
                self.pending.remove(rpc, &known.proposal.footprint);
                let footprint = known.proposal.footprint.clone();
                self.note_unsynced(end, rpc);
                self.look_at_those_in_the_way_of(&footprint);
            }
            None => self.insert(rpc, proposal, Phase::Against, end),
        }
    }

    /// It is executed; its group ends here. Returns the gate of its answer, if it is closed. A replay of the log calls this, too,
    /// with the gate that was logged with it (R8.15).
    ///
    /// # Panics
    /// If it is not pending here.
    pub fn executed(&mut self, rpc: RpcId, at: Timestamp, end: LogEnd, logged_gate: &[RpcId]) -> Option<GateId> {
        let known = self.transactions.get_mut(&rpc).expect("what is executed has proposed");
        assert!(matches!(known.phase, Phase::Pending(_)), "T1: {rpc} has an outcome");
        (known.phase, known.outcome_until) = (Phase::Executed(at), end);
        let footprint = known.proposal.footprint.clone();
        let is_without = known.proposal.class == Class::Coordinated && planted::is_on(Bug::CoordinatedWithoutGate);
        self.floor = self.floor.max(at);
        self.pending.remove(rpc, &footprint);
        let inherited: Unsettled = logged_gate.iter().copied().collect();
        let gate = self.gates.pass((!is_without).then_some(rpc), &footprint, &inherited);
        let gate = (!gate.is_empty()).then(|| self.gates.close(Some(rpc), gate));
        self.transactions.get_mut(&rpc).expect("just seen").gate = gate;
        self.note_unsynced(end, rpc);
        self.changed.insert(rpc);
        self.look_at_those_in_the_way_of(&footprint);
        gate
    }

    /// A single-shard operation executes now. Returns the gate of its answer, if it is closed, and what the gate waits for, which
    /// is logged with an update (R8.15). A replay of the log calls this, too, with the gate that was logged.
    pub fn pass(&mut self, footprint: &Footprint, logged_gate: &[RpcId]) -> Option<(GateId, Vec<RpcId>)> {
        if self.gates.are_all_open() && logged_gate.is_empty() {
            return None;
        }
        let gate = self.gates.pass(None, footprint, &logged_gate.iter().copied().collect());
        let members = gate.iter().copied().collect();
        (!gate.is_empty()).then(|| (self.gates.close(None, gate), members))
    }

    /// What an operation of this shard alone must wait for before it executes (R8.3, R8.7).
    #[must_use]
    pub fn blocked_by(&self, footprint: &Footprint) -> Option<RpcId> {
        self.pending.in_the_way(footprint).next().filter(|_| !planted::is_on(Bug::RunsAheadOfPending))
    }

    /// An entry is logged that says: nothing is executed above this before the entry is synced.
    pub fn ceiling_logged(&mut self, ceiling: Timestamp, end: LogEnd) {
        self.logged_ceiling = (ceiling, end);
    }

    /// The log is synced up to here.
    pub fn on_synced(&mut self, synced: LogEnd) {
        self.synced = self.synced.max(synced);
        let (ceiling, end) = self.logged_ceiling;
        if end <= self.synced && ceiling > self.ceiling {
            self.ceiling = ceiling;
            self.look_at_all();
        }
        while let Some(&(end, rpc)) = self.unsynced.first()
            && end <= self.synced
        {
            self.unsynced.pop_first();
            self.changed.insert(rpc);
        }
    }

    /// A new primary begins to serve with what the log says, all of which is synced. It starts above the ceiling that it found,
    /// takes nothing as settled (R8.6), and votes again.
    pub fn begin_serving(&mut self, synced: LogEnd) {
        self.on_synced(synced);
        if !planted::is_on(Bug::CeilingIgnored) {
            self.floor = self.floor.max(self.ceiling).max(self.logged_ceiling.0);
        }
        // A logged gate may name what was forgotten since, which had settled by then (R8.9).
        for rpc in self.gates.waited_for().filter(|rpc| !self.transactions.contains_key(rpc)).collect::<Vec<_>>() {
            self.settle(rpc);
        }
        self.look_at_all();
    }

    /// Another participant speaks. Returns what it asks about, if that is not known here: it is new (R8.11: record a conflict,
    /// and call [`Self::ended`]), or stale ([`Self::say_never`]).
    #[must_use = "a participant that asks waits for an answer"]
    pub fn on_word(&mut self, from: ShardId, word: &Word) -> Option<RpcId> {
        let Some(known) = self.transactions.get_mut(&word.rpc) else {
            if word.asks {
                return Some(word.rpc);
            }
            self.keep_early(from, word);
            return None;
        };
        // A stranger is not heard.
        let peer = known.peers.iter_mut().find(|peer| peer.shard == from)?;
        match word.said {
            Said::Proposed(at) => peer.voted = Some(at),
            Said::Executed { at, recorded, settled } => {
                if let Phase::Executed(own) = known.phase {
                    assert_eq!(own, at, "T1: {} is executed at one timestamp", word.rpc);
                }
                peer.executed = Some(at);
                peer.recorded |= recorded;
                peer.settled |= settled;
            }
            Said::Against => (peer.is_against, peer.recorded) = (true, true),
            Said::Never => peer.says_never = true,
        }
        let footprint = known.proposal.footprint.clone();
        self.changed.insert(word.rpc);
        self.look_at_those_in_the_way_of(&footprint);
        if word.asks {
            self.answer(from, word.rpc);
        }
        None
    }

    /// Tells a participant that nothing is known of the transaction here, and nothing will be: its id is stale (R8.11).
    pub fn say_never(&mut self, to: ShardId, rpc: RpcId) {
        self.words.push((to, Word { rpc, said: Said::Never, asks: false, participants: Vec::new() }));
    }

    /// The words that are to leave now, and for whom. Each is durable.
    pub fn take_words(&mut self) -> Vec<(ShardId, Word)> {
        std::mem::take(&mut self.words)
    }

    /// The gates that have opened: the answers that waited for them leave.
    pub fn take_opened(&mut self) -> Vec<GateId> {
        self.opened.drain(..).map(|(gate, _)| gate).collect()
    }

    /// Whether a gate has opened.
    #[must_use]
    pub fn is_open(&self, gate: GateId) -> bool {
        self.gates.is_open(gate)
    }

    /// Whether nothing is pending, kept or waited for.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.transactions.is_empty() && self.pending.is_empty() && self.gates.are_all_open()
    }

    fn insert(&mut self, rpc: RpcId, proposal: Proposal, phase: Phase, end: LogEnd) {
        let is_own = |shard: &ShardId| *shard == self.shard;
        assert!(proposal.participants.iter().any(is_own), "{rpc} is none of {}", self.shard);
        let others = proposal.participants.iter().copied().filter(|shard| !is_own(shard));
        let silent = |shard| Peer {
            shard,
            voted: None,
            executed: None,
            is_against: false,
            says_never: false,
            recorded: false,
            settled: false,
        };
        let known = Transaction {
            peers: others.map(silent).collect(),
            proposal,
            phase,
            proposed_until: end,
            outcome_until: end,
            let_go_until: None,
            gate: None,
            is_settled: false,
            said: None,
        };
        let before = self.transactions.insert(rpc, known);
        assert!(before.is_none(), "E1: {rpc} was known");
        self.note_unsynced(end, rpc);
    }

    pub(crate) fn note_unsynced(&mut self, end: LogEnd, rpc: RpcId) {
        self.changed.insert(rpc);
        if end > self.synced {
            self.unsynced.insert((end, rpc));
        }
    }

    fn keep_early(&mut self, from: ShardId, word: &Word) {
        let words = self.early.entry(word.rpc).or_default();
        words.retain(|(known, _)| *known != from);
        words.push((from, word.clone()));
        if self.early.len() > EARLY_MAX {
            self.early.pop_first();
        }
    }

    pub(crate) fn look_at_those_in_the_way_of(&mut self, footprint: &Footprint) {
        self.changed.extend(self.pending.in_the_way(footprint));
    }

    fn look_at_all(&mut self) {
        self.changed.extend(self.transactions.keys());
    }
}
