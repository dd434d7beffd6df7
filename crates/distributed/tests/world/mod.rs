//! Shards, each a participant over a log, clients with a few transactions, and a network that delays, doubles and loses. Primaries
//! die, or are deposed and do not know it; clients die and cancel. Drawn from a seed, and judged when everything has come to rest.

mod judge;
mod program;
mod shard;

use std::collections::{BTreeMap, BTreeSet};

use kasha_distributed::Word;
use kasha_types::{ClientId, RpcId, Sequence, ShardId};

use program::Program;
use shard::Shard;

/// For each key that is read, the transaction that wrote what was found.
pub type Seen = BTreeMap<u64, Option<usize>>;

/// A seeded generator (SplitMix64).
pub struct Rng(pub u64);

impl Rng {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    pub fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }
}

/// The ids of the transactions, by which equal timestamps are ordered, have another order than the program.
const IDS: [u64; 8] = [4, 1, 6, 3, 8, 5, 2, 7];

pub fn rpc(txn: usize) -> RpcId {
    RpcId { client: ClientId(IDS[txn]), sequence: Sequence(1) }
}

pub fn txn(rpc: RpcId) -> usize {
    IDS.iter().position(|&id| id == rpc.client.0).expect("a transaction of the program")
}

#[derive(Clone, Debug)]
pub enum Message {
    /// A call, a shard, and what is asked for.
    Request(usize, usize, u64),
    Word(usize, usize, Word),
    /// A participant's result.
    Answer(usize, usize, Seen),
    /// What a participant's result will be, if all agree.
    Prepared(usize, usize, Seen),
    /// It was not committed.
    Refusal(usize),
    /// Its check said no, at this shard and because of this.
    Aborted(usize, usize, Seen),
    /// Its check said no, says a participant whose check it was not.
    AbortedElsewhere(usize),
}

#[derive(Clone, Debug, Default)]
pub struct Call {
    pub begun: Option<u64>,
    pub told: BTreeMap<usize, Seen>,
    /// What shards have said that the results will be.
    pub prepared: BTreeMap<usize, Seen>,
    pub committed: Option<u64>,
    pub refused: bool,
    /// When its check was known to have said no. `told` says why.
    pub aborted: Option<u64>,
    /// Its client sends nothing any more.
    pub is_dead: bool,
}

impl Call {
    fn commit_if_all_say_so(&mut self, parts: usize, now: u64) {
        let shards: BTreeSet<usize> = self.told.keys().chain(self.prepared.keys()).copied().collect();
        if shards.len() == parts && !self.refused {
            self.committed.get_or_insert(now);
            for (&shard, seen) in &self.prepared {
                self.told.entry(shard).or_insert_with(|| seen.clone());
            }
        }
    }
}

pub struct World {
    pub program: Program,
    pub shards: Vec<Shard>,
    pub calls: Vec<Call>,
    pub messages: Vec<Message>,
    pub now: u64,
    rng: Rng,
    crashes: usize,
    /// Deposed primaries that hear and speak as before. Nothing of theirs is synced any more.
    zombies: Vec<(usize, Shard)>,
}

impl World {
    pub fn new(seed: u64) -> Self {
        Self::of(seed, |program, _| program)
    }

    /// The same, with operations that touch all keys of a shard.
    pub fn with_flushes(seed: u64) -> Self {
        Self::of(seed, Program::with_flushes)
    }

    fn of(seed: u64, change: impl FnOnce(Program, &mut Rng) -> Program) -> Self {
        let mut rng = Rng(seed);
        let is_directed = rng.one_in(2);
        let program = if is_directed { Program::directed(&mut rng) } else { Program::draw(&mut rng) };
        let program = change(program, &mut rng);
        let mut skew = |shard: usize| match is_directed {
            true => {
                if shard == 0 {
                    400
                } else {
                    0
                }
            }
            false => [0, 0, 40, 400][rng.below(4)],
        };
        let shards = (0..program.shards).map(|shard| Shard::new(shard, skew(shard))).collect();
        let calls = vec![Call::default(); program.plans.len()];
        let crashes = rng.below(5);
        Self { program, shards, calls, messages: Vec::new(), now: 1, rng, crashes, zombies: Vec::new() }
    }

    /// Runs to the end, and says what is wrong.
    pub fn run(mut self) -> Result<(), String> {
        for _ in 0..500 {
            self.step();
        }
        for call in &mut self.calls {
            call.is_dead |= call.begun.is_some() && self.rng.one_in(8);
        }
        self.zombies.clear();
        for round in 0..40 {
            self.come_to_rest(round);
        }
        judge::judge(&self)
    }

    fn step(&mut self) {
        self.now += 1;
        match self.rng.below(12) {
            0 => self.begin(),
            1..=6 if !self.messages.is_empty() => {
                let at = self.rng.below(self.messages.len());
                let is_late = self.program.is_slow && matches!(self.messages[at], Message::Word(0, 1, _));
                if is_late && !self.rng.one_in(12) {
                    return;
                }
                let is_doubled = self.rng.one_in(12);
                let message = if is_doubled { self.messages[at].clone() } else { self.messages.swap_remove(at) };
                if !self.rng.one_in(15) {
                    self.deliver(message);
                }
            }
            7 | 8 => {
                let shard = self.rng.below(self.shards.len());
                let most = self.shards[shard].log.len() - self.shards[shard].synced;
                let more = self.rng.below(most + 1);
                self.shards[shard].sync(more);
                self.work(shard);
            }
            9 if self.crashes > 0 && self.rng.one_in(4) => self.fail_over(),
            9 if self.rng.one_in(30) => {
                let call = self.rng.below(self.calls.len());
                self.calls[call].is_dead |= self.calls[call].begun.is_some();
            }
            9 if self.rng.one_in(10) => {
                let (call, shard) = (self.rng.below(self.calls.len()), self.rng.below(self.shards.len()));
                if self.calls[call].begun.is_some() {
                    self.shards[shard].cancel(call, &self.program);
                    self.work(shard);
                }
            }
            10 if self.rng.one_in(6) => {
                let shard = self.rng.below(self.shards.len());
                self.shards[shard].participant.ask_again();
                self.work(shard);
            }
            10 if self.rng.one_in(4) => {
                let (call, shard) = (self.rng.below(self.calls.len()), self.rng.below(self.shards.len()));
                self.shards[shard].copy(call);
                self.work(shard);
            }
            11 => self.send_again(),
            _ => {}
        }
    }

    /// The primary dies with what was not synced; what it has forgotten may come back with the log. Or it is deposed.
    fn fail_over(&mut self) {
        self.crashes -= 1;
        let shard = self.rng.below(self.shards.len());
        let lost = self.rng.below(self.shards[shard].log.len() - self.shards[shard].synced + 1);
        let comes_back = if self.rng.one_in(2) { self.rng.below(256) } else { 0 };
        let deposed = self.shards[shard].fail_over(lost, comes_back, &self.program);
        if self.rng.one_in(2) {
            self.zombies.push((shard, deposed));
        }
        self.work(shard);
    }

    fn begin(&mut self) {
        let call = self.rng.below(self.calls.len());
        let may_begin = self.program.plans[call].after.is_none_or(|before| {
            let before = &self.calls[before];
            before.committed.is_some() || before.refused
        });
        if self.calls[call].begun.is_none() && may_begin {
            self.calls[call].begun = Some(self.now);
            self.request(call);
        }
    }

    fn request(&mut self, call: usize) {
        for part in &self.program.plans[call].parts {
            let body = if self.program.plans[call].lies { self.rng.below(2) as u64 } else { 0 };
            self.messages.push(Message::Request(call, part.shard, body));
        }
    }

    fn is_open(&self, call: usize) -> bool {
        let call = &self.calls[call];
        call.begun.is_some() && call.committed.is_none() && !call.refused && !call.is_dead
    }

    fn send_again(&mut self) {
        let call = self.rng.below(self.calls.len());
        if self.is_open(call) {
            self.request(call);
        }
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Request(call, shard, body) => {
                self.for_zombies_of(shard, |zombie, program, now| zombie.on_request(call, body, program, now));
                self.shards[shard].on_request(call, body, &self.program, self.now);
                self.work(shard);
            }
            Message::Word(from, shard, word) => {
                self.for_zombies_of(shard, |zombie, program, _| zombie.on_word(from, &word, program));
                self.shards[shard].on_word(from, &word, &self.program);
                self.work(shard);
            }
            Message::Answer(call, shard, seen) => {
                let now = self.now;
                let plan = &self.program.plans[call];
                let is_read = plan.class == program::Class::Single && plan.parts[0].writes.is_empty();
                let parts = plan.parts.len();
                let call = &mut self.calls[call];
                if is_read && call.committed.is_some() {
                    return; // a read that is repeated may find more, and its caller has an answer already
                }
                call.told.insert(shard, seen);
                call.commit_if_all_say_so(parts, now);
            }
            // Who asks different things of different shards learns nothing from that.
            Message::Prepared(call, ..) if self.program.plans[call].lies || self.calls[call].refused => {}
            Message::Prepared(call, shard, seen) => {
                let (now, parts) = (self.now, self.program.plans[call].parts.len());
                let call = &mut self.calls[call];
                call.prepared.insert(shard, seen);
                call.commit_if_all_say_so(parts, now);
            }
            Message::Refusal(call) => self.calls[call].refused = true,
            Message::AbortedElsewhere(call) => {
                let now = self.now;
                let call = &mut self.calls[call];
                call.aborted.get_or_insert(now);
                call.refused = true;
            }
            Message::Aborted(call, shard, seen) => {
                let now = self.now;
                let call = &mut self.calls[call];
                call.told.insert(shard, seen);
                call.aborted.get_or_insert(now);
                call.refused = true;
            }
        }
    }

    fn let_go(&self) -> Vec<bool> {
        let is_let_go = |call: &Call| call.committed.is_some() || call.refused || call.is_dead;
        self.calls.iter().map(is_let_go).collect()
    }

    /// What a shard's primary does by itself, and what leaves it.
    fn work(&mut self, shard: usize) {
        let let_go = self.let_go();
        self.shards[shard].work(&self.program, &let_go);
        for (to, word) in self.shards[shard].participant.take_words() {
            self.messages.push(Message::Word(shard, usize::from(to.0), word));
        }
        self.messages.append(&mut self.shards[shard].answers);
    }

    /// Some messages reach deposed primaries, too. Their reads and updates of one shard need a lease, or a sync.
    fn for_zombies_of(&mut self, shard: usize, hear: impl Fn(&mut Shard, &Program, u64)) {
        let let_go = self.let_go();
        for (_, zombie) in self.zombies.iter_mut().filter(|(of, _)| *of == shard) {
            if self.rng.one_in(2) {
                continue;
            }
            hear(zombie, &self.program, self.now);
            zombie.work(&self.program, &let_go);
            for (to, word) in zombie.participant.take_words() {
                self.messages.push(Message::Word(shard, usize::from(to.0), word));
            }
            let is_distributed = |answer: &Message| match answer {
                Message::Answer(call, ..) => self.program.plans[*call].class != program::Class::Single,
                _ => true,
            };
            self.messages.extend(std::mem::take(&mut zombie.answers).into_iter().filter(is_distributed));
        }
    }

    fn come_to_rest(&mut self, round: usize) {
        for call in 0..self.calls.len() {
            if self.calls[call].begun.is_none() {
                self.calls[call].begun = Some(self.now);
            }
            if self.is_open(call) {
                self.request(call);
            }
        }
        for shard in 0..self.shards.len() {
            let more = self.shards[shard].log.len() - self.shards[shard].synced;
            self.shards[shard].sync(more);
            if round > 0 {
                self.shards[shard].participant.ask_again();
            }
            self.work(shard);
        }
        while let Some(message) = self.messages.pop() {
            self.now += 1;
            self.deliver(message);
        }
    }
}

pub fn shard_id(shard: usize) -> ShardId {
    ShardId(shard as u16)
}
