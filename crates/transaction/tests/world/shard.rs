//! One shard: what its primary does with a participant, over a log that is synced up to somewhere.

use std::collections::{BTreeMap, BTreeSet};

use kasha_transaction::{Arrival, GateId, Participant, Said, Step, Timestamp, Word};
use kasha_types::{LogEnd, RpcId};

use super::program::{Class, Program};
use super::{Message, Seen, rpc, shard_id, txn};

#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    Proposed(usize, Timestamp),
    Against(usize),
    Executed { txn: usize, at: Timestamp, seen: Seen, gate: Vec<RpcId> },
    Single { txn: usize, seen: Seen, gate: Vec<RpcId> },
    Ceiling(Timestamp),
    LetGo(usize),
}

pub struct Shard {
    shard: usize,
    /// How far its clock is ahead.
    skew: u64,
    pub participant: Participant,
    pub log: Vec<Entry>,
    pub synced: usize,
    /// Transactions of which only what they wrote is left.
    pub forgotten: BTreeSet<usize>,
    /// The writers of each key, in order.
    pub writers: BTreeMap<u64, Vec<usize>>,
    /// Gates of what was executed.
    gates: BTreeMap<usize, GateId>,
    /// Somebody waits for the answer of these.
    asked: BTreeSet<usize>,
    /// Reads that are executed, and up to where what they saw must be synced.
    reads: BTreeMap<usize, (Seen, usize)>,
    /// Requests that wait, each for a transaction.
    parked: BTreeMap<usize, RpcId>,
    opened: BTreeSet<GateId>,
    pub answers: Vec<Message>,
}

impl Shard {
    pub fn new(shard: usize, skew: u64) -> Self {
        Self {
            shard,
            skew,
            participant: Participant::new(shard_id(shard)),
            log: Vec::new(),
            synced: 0,
            forgotten: BTreeSet::new(),
            writers: BTreeMap::new(),
            gates: BTreeMap::new(),
            asked: BTreeSet::new(),
            reads: BTreeMap::new(),
            parked: BTreeMap::new(),
            opened: BTreeSet::new(),
            answers: Vec::new(),
        }
    }

    fn push(&mut self, entry: Entry) -> LogEnd {
        self.log.push(entry);
        LogEnd(self.log.len() as u64)
    }

    fn entries_of(&self, call: usize) -> impl DoubleEndedIterator<Item = (usize, &Entry)> {
        self.log.iter().enumerate().filter(move |(_, entry)| match entry {
            Entry::Proposed(txn, _) | Entry::Against(txn) => *txn == call,
            Entry::Executed { txn, .. } | Entry::Single { txn, .. } => *txn == call,
            Entry::Ceiling(_) | Entry::LetGo(_) => false,
        })
    }

    fn is_let_go(&self, call: usize) -> bool {
        self.log.contains(&Entry::LetGo(call))
    }

    fn seen(&self, call: usize, program: &Program) -> Seen {
        let part = program.plans[call].part(self.shard).expect("a part");
        part.reads.iter().map(|key| (*key, self.writers.get(key).and_then(|all| all.last()).copied())).collect()
    }

    fn write(&mut self, call: usize, program: &Program) {
        for key in &program.plans[call].part(self.shard).expect("a part").writes {
            self.writers.entry(*key).or_default().push(call);
        }
    }

    pub fn on_request(&mut self, call: usize, program: &Program, now: u64) {
        self.asked.insert(call);
        if self.entries_of(call).next().is_some() || self.reads.contains_key(&call) {
            return; // it is answered when it can be
        }
        if self.is_let_go(call) || self.forgotten.contains(&call) {
            return; // stale
        }
        let plan = &program.plans[call];
        match plan.class {
            Class::Single => self.run_single(call, program),
            Class::Independent | Class::Coordinated => {
                let proposal = plan.proposal(self.shard);
                match self.participant.on_request(rpc(call), &proposal, Timestamp(now + self.skew)) {
                    Arrival::Propose(at) => {
                        let end = self.push(Entry::Proposed(call, at));
                        self.participant.proposed(rpc(call), proposal, at, end);
                    }
                    Arrival::Conflict => {
                        let end = self.push(Entry::Against(call));
                        self.participant.ended(rpc(call), proposal, end);
                    }
                    Arrival::Wait(by) => {
                        self.parked.insert(call, by);
                    }
                }
            }
        }
    }

    fn run_single(&mut self, call: usize, program: &Program) {
        let plan = &program.plans[call];
        let footprint = plan.footprint(self.shard);
        if let Some(by) = self.participant.blocked_by(&footprint) {
            self.parked.insert(call, by);
            return;
        }
        let seen = self.seen(call, program);
        let gate = self.participant.pass(&footprint, &[]);
        self.gates.extend(gate.as_ref().map(|(gate, _)| (call, *gate)));
        if footprint.only_reads() {
            self.reads.insert(call, (seen, self.log.len()));
        } else {
            let gate = gate.map(|(_, members)| members).unwrap_or_default();
            self.push(Entry::Single { txn: call, seen, gate });
            self.write(call, program);
        }
    }

    pub fn on_word(&mut self, from: usize, word: &Word, program: &Program) {
        let Some(asked) = self.participant.on_word(shard_id(from), word) else { return };
        let call = txn(asked);
        let is_stale = self.forgotten.contains(&call) || self.is_let_go(call);
        if is_stale {
            // What is stale only by an entry that may be lost is not said yet.
            let is_sure = self.forgotten.contains(&call) || self.log[..self.synced].contains(&Entry::LetGo(call));
            if is_sure {
                self.participant.say_never(shard_id(from), asked);
            }
        } else if !matches!(word.said, Said::Never) {
            self.parked.remove(&call);
            let end = self.push(Entry::Against(call));
            self.participant.ended(asked, program.plans[call].proposal(self.shard), end);
        }
    }

    pub fn sync(&mut self, more: usize) {
        self.synced += more;
        self.participant.on_synced(LogEnd(self.synced as u64));
    }

    /// Everything that can be done now.
    pub fn work(&mut self, program: &Program, let_go: &[bool]) {
        while let Some(step) = self.participant.next_step() {
            match step {
                Step::Execute(id, at) => {
                    let call = txn(id);
                    let seen = self.seen(call, program);
                    self.write(call, program);
                    let end = LogEnd(self.log.len() as u64 + 1);
                    let gate = self.participant.executed(id, at, end, &[]);
                    self.gates.extend(gate.as_ref().map(|(gate, _)| (call, *gate)));
                    let gate = gate.map(|(_, members)| members).unwrap_or_default();
                    self.push(Entry::Executed { txn: call, at, seen, gate });
                }
                Step::End(id) => {
                    let end = self.push(Entry::Against(txn(id)));
                    self.participant.ended(id, program.plans[txn(id)].proposal(self.shard), end);
                }
                Step::RaiseCeiling(to) => {
                    let end = self.push(Entry::Ceiling(to));
                    self.participant.ceiling_logged(to, end);
                }
            }
        }
        let released = self.participant.take_released();
        let woken = self.parked.iter().filter(|(_, by)| released.contains(by)).map(|(call, _)| *call);
        for call in woken.collect::<Vec<_>>() {
            self.parked.remove(&call);
            self.on_request(call, program, 0);
        }
        for call in (0..let_go.len()).filter(|&call| let_go[call]) {
            if program.plans[call].part(self.shard).is_some() && !self.is_let_go(call) {
                let end = self.push(Entry::LetGo(call));
                self.participant.let_go(rpc(call), end);
            }
        }
        while let Some(id) = self.participant.next_forgotten() {
            self.forgotten.insert(txn(id));
        }
        self.opened.extend(self.participant.take_opened());
        self.answer(program);
    }

    fn answer(&mut self, program: &Program) {
        for call in self.asked.clone() {
            if self.gates.get(&call).is_some_and(|gate| !self.opened.contains(gate)) {
                continue;
            }
            let is_single = program.plans[call].class == Class::Single;
            let answer = match self.entries_of(call).next_back() {
                Some((_, Entry::Executed { seen, .. })) => Some(Message::Answer(call, self.shard, seen.clone())),
                Some((at, Entry::Single { seen, .. })) if at < self.synced => {
                    Some(Message::Answer(call, self.shard, seen.clone()))
                }
                Some((at, Entry::Against(_))) if at < self.synced => Some(Message::Refusal(call)),
                Some(_) => None,
                None if is_single => self
                    .reads
                    .get(&call)
                    .filter(|(_, end)| *end <= self.synced)
                    .map(|(seen, _)| Message::Answer(call, self.shard, seen.clone())),
                None => None,
            };
            if let Some(answer) = answer {
                self.asked.remove(&call);
                self.answers.push(answer);
            }
        }
    }

    /// A caller gives up: where it has not proposed, it never shall (R8.14).
    pub fn cancel(&mut self, call: usize, program: &Program) {
        let plan = &program.plans[call];
        let is_known = self.entries_of(call).next().is_some() || self.is_let_go(call) || self.forgotten.contains(&call);
        if plan.class == Class::Single || plan.part(self.shard).is_none() || is_known {
            return;
        }
        self.parked.remove(&call);
        self.asked.insert(call);
        let end = self.push(Entry::Against(call));
        self.participant.ended(rpc(call), plan.proposal(self.shard), end);
    }

    /// A new primary replays the log without so many entries that were not synced. Transactions that were forgotten may come back
    /// with it: a set of bits. Returns the old primary.
    pub fn fail_over(&mut self, lost: usize, comes_back: usize, program: &Program) -> Self {
        let log = self.log[..self.log.len() - lost].to_vec();
        let forgotten = self.forgotten.iter().copied().filter(|call| comes_back >> call & 1 == 0).collect();
        let new = Self { forgotten, ..Self::new(self.shard, self.skew) };
        let old = std::mem::replace(self, new);
        for entry in log {
            let end = LogEnd(self.log.len() as u64 + 1);
            match &entry {
                &Entry::Proposed(call, at) if !self.forgotten.contains(&call) => {
                    self.participant.proposed(rpc(call), program.plans[call].proposal(self.shard), at, end);
                }
                &Entry::Against(call) if !self.forgotten.contains(&call) => {
                    self.participant.ended(rpc(call), program.plans[call].proposal(self.shard), end);
                }
                Entry::Executed { txn: call, at, gate, .. } => {
                    self.write(*call, program);
                    if !self.forgotten.contains(call) {
                        let gate = self.participant.executed(rpc(*call), *at, end, gate);
                        self.gates.extend(gate.map(|(gate, _)| (*call, gate)));
                    }
                }
                Entry::Single { txn: call, gate, .. } => {
                    let footprint = program.plans[*call].footprint(self.shard);
                    self.write(*call, program);
                    let gate = self.participant.pass(&footprint, gate);
                    self.gates.extend(gate.map(|(gate, _)| (*call, gate)));
                }
                &Entry::Ceiling(to) => self.participant.ceiling_logged(to, end),
                &Entry::LetGo(call) => self.participant.let_go(rpc(call), end),
                Entry::Proposed(..) | Entry::Against(_) => {}
            }
            self.log.push(entry);
        }
        self.synced = self.log.len();
        self.participant.begin_serving(LogEnd(self.synced as u64));
        old
    }
}
