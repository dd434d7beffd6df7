//! One shard: what its primary does with a participant, over a log that is synced up to somewhere.

use std::collections::{BTreeMap, BTreeSet};

use kasha_distributed::{Arrival, GateId, Origin, Participant, Said, Step, Timestamp, Why, Word};
use kasha_types::planted::{self, Bug};
use kasha_types::{LogEnd, RpcId};

use super::program::{Class, Program};
use super::{Message, Seen, rpc, shard_id, txn};

#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// What was asked for, and when it is to be.
    Proposed(usize, u64, Timestamp),
    Against(usize, u64, Why),
    Aborted {
        txn: usize,
        body: u64,
        seen: Seen,
        gate: Vec<RpcId>,
    },
    /// `version`: the order in which it was executed.
    Executed {
        txn: usize,
        at: Timestamp,
        version: usize,
        seen: Seen,
        gate: Vec<RpcId>,
    },
    Single {
        txn: usize,
        version: usize,
        seen: Seen,
        gate: Vec<RpcId>,
    },
    Ceiling(Timestamp),
    LetGo(usize),
    /// Here was what has been copied to the end.
    Freed,
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
    /// Prepared transactions whose clients may be told what the transactions come to, once the proposals are synced.
    prepared: BTreeMap<usize, Seen>,
    /// Somebody waits for the answer of these.
    asked: BTreeSet<usize>,
    /// Reads that are executed, and up to where what they saw must be synced.
    reads: BTreeMap<usize, (Seen, usize)>,
    /// Requests that wait, each for a transaction.
    parked: BTreeMap<usize, (RpcId, u64)>,
    opened: BTreeSet<GateId>,
    /// Updates of this shard alone that its witness holds.
    witness: BTreeSet<usize>,
    /// Entries that were copied, and up to where the copies must be synced before they go.
    copied: Vec<(usize, Vec<usize>)>,
    version: usize,
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
            prepared: BTreeMap::new(),
            asked: BTreeSet::new(),
            reads: BTreeMap::new(),
            parked: BTreeMap::new(),
            opened: BTreeSet::new(),
            witness: BTreeSet::new(),
            copied: Vec::new(),
            version: 0,
            answers: Vec::new(),
        }
    }

    fn push(&mut self, entry: Entry) -> LogEnd {
        self.log.push(entry);
        LogEnd(self.log.len() as u64)
    }

    fn entries_of(&self, call: usize) -> impl DoubleEndedIterator<Item = (usize, &Entry)> {
        self.log.iter().enumerate().filter(move |(_, entry)| match entry {
            Entry::Proposed(txn, ..) | Entry::Against(txn, ..) | Entry::Aborted { txn, .. } => *txn == call,
            Entry::Executed { txn, .. } | Entry::Single { txn, .. } => *txn == call,
            Entry::Ceiling(_) | Entry::LetGo(_) | Entry::Freed => false,
        })
    }

    /// What was asked for under the call's id.
    pub fn body_of(&self, call: usize) -> Option<u64> {
        self.log.iter().find_map(|entry| match entry {
            Entry::Proposed(txn, body, _) | Entry::Against(txn, body, _) | Entry::Aborted { txn, body, .. }
                if *txn == call =>
            {
                Some(*body)
            }
            _ => None,
        })
    }

    fn is_let_go(&self, call: usize) -> bool {
        self.log.contains(&Entry::LetGo(call))
    }

    fn seen(&self, call: usize, program: &Program) -> Seen {
        let part = program.plans[call].part(self.shard).expect("a part");
        part.reads.iter().map(|key| (*key, self.writers.get(key).and_then(|all| all.last()).copied())).collect()
    }

    /// What the check of a transaction finds here.
    fn checked(&self, call: usize, program: &Program) -> Seen {
        let part =
            program.plans[call].parts.first().filter(|part| part.shard == self.shard && program.plans[call].checks);
        let reads = part.map(|part| &part.reads).into_iter().flatten();
        reads.map(|key| (*key, self.writers.get(key).and_then(|all| all.last()).copied())).collect()
    }

    fn says_no(&self, call: usize, program: &Program) -> bool {
        self.checked(call, program).values().any(Option::is_some)
    }

    fn write(&mut self, call: usize, program: &Program) {
        for key in &program.plans[call].part(self.shard).expect("a part").writes {
            self.writers.entry(*key).or_default().push(call);
        }
    }

    pub fn on_request(&mut self, call: usize, body: u64, program: &Program, now: u64) {
        self.asked.insert(call);
        if self.entries_of(call).next().is_some() || self.reads.contains_key(&call) {
            return; // it is answered when it can be
        }
        if self.is_let_go(call) || self.forgotten.contains(&call) {
            return; // stale
        }
        let plan = &program.plans[call];
        match plan.class {
            Class::Single => {
                self.record(call, program);
                self.run_single(call, program);
            }
            Class::Independent | Class::Coordinated => {
                let proposal = plan.proposal(self.shard, body);
                match self.participant.on_request(rpc(call), &proposal, Timestamp(now + self.skew)) {
                    Arrival::Propose(_) if self.says_no(call, program) => {
                        let checked = plan.checked(self.shard);
                        let end = LogEnd(self.log.len() as u64 + 1);
                        let gate = self.participant.aborted(rpc(call), proposal, &checked, end, Origin::Now);
                        self.gates.extend(gate.as_ref().map(|(gate, _)| (call, *gate)));
                        let gate = gate.map(|(_, members)| members).unwrap_or_default();
                        self.push(Entry::Aborted { txn: call, body, seen: self.checked(call, program), gate });
                    }
                    Arrival::Propose(at) => {
                        let end = self.push(Entry::Proposed(call, body, at));
                        self.participant.proposed(rpc(call), proposal, at, end);
                        if self.participant.may_tell_prepared(rpc(call)) {
                            self.prepared.insert(call, self.seen(call, program));
                        }
                    }
                    Arrival::Conflict => {
                        let end = self.push(Entry::Against(call, body, Why::Conflict));
                        self.participant.ended(rpc(call), proposal, Why::Conflict, end);
                    }
                    Arrival::Wait(by) => {
                        self.parked.insert(call, (by, body));
                    }
                }
            }
        }
    }

    fn run_single(&mut self, call: usize, program: &Program) {
        let plan = &program.plans[call];
        let footprint = plan.footprint(self.shard);
        if let Some(by) = self.participant.blocked_by(&footprint) {
            self.parked.insert(call, (by, 0));
            return;
        }
        let seen = self.seen(call, program);
        let overlaps = self.participant.overlaps(&footprint) || self.overlaps_with_unsynced(call, program);
        let gate = self.participant.pass(None, &footprint, Origin::Now);
        self.gates.extend(gate.as_ref().map(|(gate, _)| (call, *gate)));
        if footprint.only_reads() {
            self.reads.insert(call, (seen, self.log.len()));
            return;
        }
        if !overlaps && gate.is_none() && self.witness.contains(&call) {
            self.answers.push(Message::Answer(call, self.shard, seen.clone())); // fast
        }
        let gate = gate.map(|(_, members)| members).unwrap_or_default();
        let version = self.next_version();
        self.push(Entry::Single { txn: call, version, seen, gate });
        self.write(call, program);
    }

    fn next_version(&mut self) -> usize {
        self.version += 1;
        self.version
    }

    /// The witness holds what commutes with all that it holds.
    fn record(&mut self, call: usize, program: &Program) {
        let part = program.plans[call].part(self.shard).expect("a part");
        let conflicts = |other: &usize| program.plans[*other].part(self.shard).expect("a part").conflicts(part);
        if !part.writes.is_empty() && !self.witness.iter().any(conflicts) {
            self.witness.insert(call);
        }
    }

    fn overlaps_with_unsynced(&self, call: usize, program: &Program) -> bool {
        let part = program.plans[call].part(self.shard).expect("a part");
        self.log[self.synced..].iter().any(|entry| match entry {
            Entry::Single { txn, .. } => program.plans[*txn].part(self.shard).expect("a part").conflicts(part),
            _ => false,
        })
    }

    /// Copies what is known of a transaction to the end of the log; what was copied goes when the copy is synced. A proposal
    /// stays before its outcome.
    pub fn copy(&mut self, call: usize) {
        let is_copied = |at: &usize| self.copied.iter().any(|(_, old)| old.contains(at));
        let old: Vec<_> = self.entries_of(call).map(|(at, _)| at).collect();
        if old.is_empty() || old.iter().any(|at| is_copied(at) || *at >= self.synced) {
            return;
        }
        for &at in &old {
            self.push(self.log[at].clone());
        }
        self.copied.push((self.log.len(), old));
    }

    pub fn on_word(&mut self, from: usize, word: &Word, program: &Program) {
        let asked = self.participant.on_word(shard_id(from), word);
        self.participant.assert_invariants();
        let Some(asked) = asked else { return };
        let call = txn(asked);
        let is_stale = self.forgotten.contains(&call) || self.is_let_go(call);
        if is_stale {
            // What is stale only by an entry that may be lost is said when that is synced.
            let let_go = || self.log.iter().position(|entry| *entry == Entry::LetGo(call)).expect("it is let go");
            let until = if self.forgotten.contains(&call) { 0 } else { let_go() as u64 + 1 };
            self.participant.say_never(shard_id(from), asked, word.body, LogEnd(until));
            self.participant.on_durable(LogEnd(self.synced as u64));
        } else if !matches!(word.said, Said::Never) {
            self.parked.remove(&call);
            let end = self.push(Entry::Against(call, word.body, Why::Conflict));
            let proposal = program.plans[call].proposal(self.shard, word.body);
            self.participant.ended(asked, proposal, Why::Conflict, end);
        }
    }

    pub fn sync(&mut self, more: usize) {
        self.synced += more;
        self.participant.on_durable(LogEnd(self.synced as u64));
        for (_, old) in self.copied.extract_if(.., |(end, _)| *end <= self.synced) {
            old.into_iter().for_each(|at| self.log[at] = Entry::Freed);
        }
        let synced = &self.log[..self.synced];
        self.witness
            .retain(|call| !synced.iter().any(|entry| matches!(entry, Entry::Single { txn, .. } if txn == call)));
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
                    let gate = self.participant.executed(id, at, end, Origin::Now);
                    self.gates.extend(gate.as_ref().map(|(gate, _)| (call, *gate)));
                    let gate = gate.map(|(_, members)| members).unwrap_or_default();
                    let version = self.next_version();
                    self.push(Entry::Executed { txn: call, at, version, seen, gate });
                }
                Step::End(id, why) => {
                    let body = self.participant.body_of(id).expect("it is known");
                    let end = self.push(Entry::Against(txn(id), body, why));
                    self.participant.ended(id, program.plans[txn(id)].proposal(self.shard, body), why, end);
                }
                Step::RaiseCeiling(to) => {
                    let end = self.push(Entry::Ceiling(to));
                    self.participant.ceiling_logged(to, end);
                }
            }
        }
        let released = self.participant.take_released();
        for (call, (_, body)) in self.parked.extract_if(.., |_, (by, _)| released.contains(by)).collect::<Vec<_>>() {
            self.on_request(call, body, program, 0);
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
        self.opened.extend(self.participant.take_opened().into_iter().map(|(gate, _)| gate));
        self.answer(program);
    }

    /// R8.8: their clients hear what they come to, unless that is known already.
    fn tell_prepared(&mut self) {
        let synced = &self.log[..self.synced];
        let is_durable =
            |call: usize| synced.iter().any(|entry| matches!(entry, Entry::Proposed(txn, ..) if *txn == call));
        let told = |call: &usize, _: &mut Seen| is_durable(*call) || planted::is_on(Bug::PreparedUnsynced);
        for (call, seen) in self.prepared.extract_if(.., told).collect::<Vec<_>>() {
            self.answers.push(Message::Prepared(call, self.shard, seen));
        }
    }

    fn answer(&mut self, program: &Program) {
        self.tell_prepared();
        for call in self.asked.clone() {
            if self.gates.get(&call).is_some_and(|gate| !self.opened.contains(gate)) {
                continue;
            }
            let is_single = program.plans[call].class == Class::Single;
            let outcome = |(_, entry): &(usize, &Entry)| !matches!(entry, Entry::Proposed(..));
            let answer = match self.entries_of(call).find(outcome) {
                Some((_, Entry::Executed { seen, .. })) => Some(Message::Answer(call, self.shard, seen.clone())),
                Some((at, Entry::Single { seen, .. })) if at < self.synced => {
                    Some(Message::Answer(call, self.shard, seen.clone()))
                }
                Some((at, Entry::Against(_, _, why))) if at < self.synced => match why {
                    Why::Conflict => Some(Message::Refusal(call)),
                    Why::Abort => planted::is_on(Bug::AbortToldByOthers).then_some(Message::AbortedElsewhere(call)),
                },
                Some((at, Entry::Aborted { seen, .. })) if at < self.synced => {
                    Some(Message::Aborted(call, self.shard, seen.clone()))
                }
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
        let end = self.push(Entry::Against(call, 0, Why::Conflict));
        self.participant.ended(rpc(call), plan.proposal(self.shard, 0), Why::Conflict, end);
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
            self.replay(&entry, end, program);
            self.log.push(entry);
        }
        self.order_writers(program);
        self.synced = self.log.len();
        for at in 0..self.log.len() {
            if let Entry::LetGo(call) = self.log[at] {
                self.participant.let_go(rpc(call), LogEnd(at as u64 + 1));
            }
        }
        self.participant.begin_serving(LogEnd(self.synced as u64));
        self.replay_witness(&old.witness, program);
        old
    }

    fn replay(&mut self, entry: &Entry, end: LogEnd, program: &Program) {
        match entry {
            &Entry::Proposed(call, body, at) if !self.forgotten.contains(&call) => {
                if self.participant.body_of(rpc(call)).is_none() {
                    self.participant.proposed(rpc(call), program.plans[call].proposal(self.shard, body), at, end);
                }
            }
            &Entry::Against(call, body, why) if !self.forgotten.contains(&call) => {
                if self.participant.is_pending(rpc(call)) || self.participant.body_of(rpc(call)).is_none() {
                    self.participant.ended(rpc(call), program.plans[call].proposal(self.shard, body), why, end);
                }
            }
            Entry::Aborted { txn: call, body, gate, .. } if !self.forgotten.contains(call) => {
                if self.participant.body_of(rpc(*call)).is_none() {
                    let plan = &program.plans[*call];
                    let (proposal, checked) = (plan.proposal(self.shard, *body), plan.checked(self.shard));
                    let gate = self.participant.aborted(rpc(*call), proposal, &checked, end, Origin::Log { gate });
                    self.gates.extend(gate.map(|(gate, _)| (*call, gate)));
                }
            }
            Entry::Executed { txn: call, at, gate, .. } => {
                if self.participant.is_pending(rpc(*call)) {
                    let gate = self.participant.executed(rpc(*call), *at, end, Origin::Log { gate });
                    self.gates.extend(gate.map(|(gate, _)| (*call, gate)));
                }
            }
            Entry::Single { txn: call, gate, .. } if self.entries_of(*call).next().is_none() => {
                let footprint = program.plans[*call].footprint(self.shard);
                let gate = self.participant.pass(None, &footprint, Origin::Log { gate });
                self.gates.extend(gate.map(|(gate, _)| (*call, gate)));
            }
            &Entry::Ceiling(to) => self.participant.ceiling_logged(to, end),
            Entry::Proposed(..)
            | Entry::Against(..)
            | Entry::Aborted { .. }
            | Entry::Single { .. }
            | Entry::LetGo(_)
            | Entry::Freed => {}
        }
    }

    /// Versions say what was written after what, wherever it stands in the log.
    fn order_writers(&mut self, program: &Program) {
        let versions: BTreeMap<usize, usize> = (self.log.iter())
            .filter_map(|entry| match entry {
                Entry::Executed { txn, version, .. } | Entry::Single { txn, version, .. } => Some((*version, *txn)),
                _ => None,
            })
            .collect();
        self.version = versions.last_key_value().map_or(0, |(version, _)| *version);
        versions.into_values().for_each(|call| self.write(call, program));
    }

    /// R8.10: what conflicts with something pending was never answered fast, and fail-over waits for nobody.
    fn replay_witness(&mut self, witness: &BTreeSet<usize>, program: &Program) {
        self.witness.clone_from(witness); // until what it replays is synced
        for &call in witness {
            let footprint = program.plans[call].footprint(self.shard);
            let is_there = self.entries_of(call).next().is_some() || self.is_let_go(call);
            let is_skipped =
                self.participant.blocked_by(&footprint).is_some() && !planted::is_on(Bug::ReplayedOverPending);
            if !(is_there || is_skipped) {
                let seen = self.seen(call, program);
                let gate = self.participant.pass(None, &footprint, Origin::Now);
                self.gates.extend(gate.as_ref().map(|(gate, _)| (call, *gate)));
                let gate = gate.map(|(_, members)| members).unwrap_or_default();
                let version = self.next_version();
                self.push(Entry::Single { txn: call, version, seen, gate });
                self.write(call, program);
            }
        }
    }
}
