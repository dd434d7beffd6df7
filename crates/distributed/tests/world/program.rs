//! The transactions of a run.

use kasha_distributed::{Class as Voting, Footprint, Proposal};
use kasha_types::KeyHash;

use super::{Rng, shard_id};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Single,
    Independent,
    Coordinated,
}

#[derive(Clone, Debug)]
pub struct Part {
    pub shard: usize,
    pub reads: Vec<u64>,
    pub writes: Vec<u64>,
    /// It says that it touches everything: what it writes, and more than that.
    pub everything: bool,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub class: Class,
    pub parts: Vec<Part>,
    /// It begins when this one has ended.
    pub after: Option<usize>,
    /// A check of its first part: what it reads there was written by nobody.
    pub checks: bool,
    /// Its client asks for different things under its id.
    pub lies: bool,
}

#[derive(Clone, Debug)]
pub struct Program {
    pub shards: usize,
    pub plans: Vec<Plan>,
    /// Words of the first shard to the second one are late: most of the directed programs need that.
    pub is_slow: bool,
}

impl Part {
    pub fn conflicts(&self, other: &Self) -> bool {
        let is_touched = |key: &u64| other.reads.contains(key) || other.writes.contains(key);
        self.writes.iter().any(is_touched) || other.writes.iter().any(|key| self.reads.contains(key))
    }
}

impl Plan {
    pub fn part(&self, shard: usize) -> Option<&Part> {
        self.parts.iter().find(|part| part.shard == shard)
    }

    /// What its check reads at a shard.
    pub fn checked(&self, shard: usize) -> Footprint {
        let part = self.parts.first().filter(|part| part.shard == shard && self.checks);
        Footprint::new(part.map(|part| part.reads.clone()).unwrap_or_default().into_iter().map(KeyHash), [])
    }

    pub fn footprint(&self, shard: usize) -> Footprint {
        let part = self.part(shard);
        let keys = |keys: Option<&Vec<u64>>| keys.cloned().unwrap_or_default().into_iter().map(KeyHash);
        if part.is_some_and(|part| part.everything) {
            return Footprint::new(keys(part.map(|part| &part.reads)), [KeyHash::EVERYTHING]);
        }
        Footprint::new(keys(part.map(|part| &part.reads)), keys(part.map(|part| &part.writes)))
    }

    pub fn proposal(&self, shard: usize, body: u64) -> Proposal {
        let class = match self.class {
            Class::Independent => Voting::Independent,
            Class::Coordinated => Voting::Coordinated,
            Class::Single => unreachable!("it votes on nothing"),
        };
        let participants = self.parts.iter().map(|part| shard_id(part.shard)).collect();
        Proposal { class, body, participants, footprint: self.footprint(shard) }
    }
}

const X: u64 = 0;
const Y: u64 = 1;

fn part(shard: usize, reads: &[u64], writes: &[u64]) -> Part {
    let keys = |keys: &[u64]| keys.iter().map(|key| shard as u64 * 10 + key).collect();
    Part { shard, reads: keys(reads), writes: keys(writes), everything: false }
}

fn plan<const N: usize>(class: Class, parts: [Part; N]) -> Plan {
    Plan { class, parts: parts.into(), after: None, checks: false, lies: false }
}

impl Plan {
    fn after(self, before: usize) -> Self {
        Self { after: Some(before), ..self }
    }
}

/// Small programs that broke earlier texts of the rules; the clock of shard 0 is ahead. What misses a transaction that was
/// answered is one that votes and has a shard that has seen nothing yet, so that its timestamp can be low.
fn directed(at: usize) -> Program {
    use Class::{Coordinated, Independent, Single};
    let both = || plan(Independent, [part(0, &[], &[X]), part(1, &[], &[X])]);
    let plans = match at {
        // The chain, with a second transaction that votes, or locks.
        0 | 1 => vec![
            both(),
            plan([Independent, Coordinated][at], [part(0, &[X], &[X]), part(2, &[], &[X])]),
            plan(Single, [part(2, &[X], &[])]),
            plan(Independent, [part(1, &[X], &[]), part(3, &[X], &[])]).after(2),
        ],
        // The local chain.
        2 => vec![
            both(),
            plan(Single, [part(0, &[X], &[Y])]),
            plan(Single, [part(0, &[Y], &[])]),
            plan(Independent, [part(1, &[X], &[]), part(2, &[X], &[])]).after(2),
        ],
        // A write after a read.
        3 => vec![
            plan(Independent, [part(0, &[X], &[]), part(1, &[], &[X])]),
            plan(Single, [part(0, &[], &[X])]),
            plan(Independent, [part(1, &[X], &[]), part(2, &[X], &[])]).after(1),
        ],
        // A transaction that only reads.
        4 => vec![
            plan(Independent, [part(0, &[X], &[]), part(1, &[X], &[])]),
            plan(Single, [part(0, &[], &[X])]),
            plan(Independent, [part(1, &[], &[X]), part(2, &[], &[X])]).after(1),
        ],
        // One that a shard has executed behind another one, which a third shard has not heard of.
        5 => vec![
            plan(Independent, [part(1, &[], &[X]), part(0, &[], &[X])]),
            plan(Independent, [part(2, &[X], &[]), part(1, &[X], &[])]),
            plan(Single, [part(2, &[], &[X])]),
            plan(Single, [part(0, &[X], &[])]).after(2),
        ],
        // A coordinated one is in gates, too.
        6 => vec![
            plan(Coordinated, [part(0, &[], &[X]), part(1, &[], &[X])]),
            plan(Single, [part(0, &[X], &[])]),
            plan(Independent, [part(1, &[X], &[]), part(2, &[X], &[])]).after(1),
        ],
        // A check that finds what is not settled, and what begins when it has said no.
        7 => vec![
            both(),
            Plan { checks: true, ..plan(Coordinated, [part(0, &[X], &[Y]), part(2, &[], &[Y])]) },
            plan(Independent, [part(1, &[X], &[]), part(3, &[X], &[])]).after(1),
        ],
        _ => later_directed(at),
    };
    Program { shards: 4, plans, is_slow: false }
}

fn later_directed(at: usize) -> Vec<Plan> {
    use Class::{Coordinated, Independent, Single};
    let both = || plan(Independent, [part(0, &[], &[X]), part(1, &[], &[X])]);
    match at {
        // A row of which the third shard knows the end, and not the beginning, which the second shard has not executed.
        8 => vec![
            both(),
            plan(Independent, [part(0, &[X], &[X]), part(2, &[], &[Y])]),
            plan(Independent, [part(0, &[X], &[X]), part(2, &[], &[X])]),
            plan(Single, [part(2, &[X], &[])]),
            plan(Independent, [part(1, &[X], &[]), part(3, &[X], &[])]).after(3),
        ],
        // One behind two others, of which the third shard knows one.
        9 => vec![
            both(),
            plan(Independent, [part(0, &[], &[Y]), part(2, &[], &[Y])]),
            plan(Independent, [part(0, &[X, Y], &[]), part(2, &[], &[X])]),
            plan(Single, [part(2, &[X], &[])]),
            plan(Independent, [part(1, &[X], &[]), part(3, &[X], &[])]).after(3),
        ],
        // One after the other, and a crash between.
        10 => vec![both(), plan(Independent, [part(1, &[], &[X]), part(2, &[], &[X])]).after(0)],
        // What a client is told when its transaction is prepared, which has seen what is not settled.
        _ => vec![
            both(),
            plan(Coordinated, [part(0, &[X], &[]), part(2, &[], &[X])]),
            plan(Independent, [part(1, &[X], &[]), part(3, &[X], &[])]).after(1),
        ],
    }
}

impl Program {
    /// One of the directed programs.
    pub fn directed(rng: &mut Rng) -> Self {
        let program = directed(rng.below(12));
        Self { is_slow: rng.one_in(2), ..program }
    }

    /// Some of what is written at a shard becomes a write of all its keys, as of a table that is flushed.
    pub fn with_flushes(mut self, rng: &mut Rng) -> Self {
        let parts = || self.plans.iter().flat_map(|plan| &plan.parts);
        let keys: Vec<_> = parts().flat_map(|part| part.reads.iter().chain(&part.writes)).copied().collect();
        for part in self.plans.iter_mut().flat_map(|plan| &mut plan.parts) {
            if !part.writes.is_empty() && rng.one_in(3) {
                let here = keys.iter().copied().filter(|key| *key / 10 == part.shard as u64);
                part.writes = here.collect::<std::collections::BTreeSet<_>>().into_iter().collect();
                part.everything = true;
            }
        }
        self
    }

    pub fn draw(rng: &mut Rng) -> Self {
        let shards = 2 + rng.below(2);
        let keys = 1 + rng.below(2) as u64;
        let plans = (0..4 + rng.below(4)).map(|at| Self::plan(rng, at, shards, keys)).collect();
        Self { shards, plans, is_slow: false }
    }

    fn plan(rng: &mut Rng, at: usize, shards: usize, keys: u64) -> Plan {
        let class =
            [Class::Single, Class::Single, Class::Independent, Class::Independent, Class::Coordinated][rng.below(5)];
        let parts = if class == Class::Single { 1 } else { 2 + rng.below(shards - 1) };
        let mut free: Vec<usize> = (0..shards).collect();
        let is_read_only = rng.one_in(5);
        let parts = (0..parts).map(|_| {
            let shard = free.swap_remove(rng.below(free.len()));
            let mut part = Part { shard, reads: Vec::new(), writes: Vec::new(), everything: false };
            for key in 0..keys {
                let key = shard as u64 * 10 + key;
                match rng.below(4) {
                    0 => part.reads.push(key),
                    1 | 2 if !is_read_only => part.writes.push(key),
                    1 | 2 => part.reads.push(key),
                    _ => {}
                }
                // Who writes a key reads it first, half the time.
                if part.writes.contains(&key) && rng.one_in(2) {
                    part.reads.push(key);
                }
            }
            if part.reads.is_empty() && part.writes.is_empty() {
                part.reads.push(shard as u64 * 10);
            }
            part
        });
        let parts: Vec<_> = parts.collect();
        let after = (at > 0 && rng.one_in(2)).then(|| rng.below(at));
        let checks = class == Class::Coordinated && rng.one_in(2);
        Plan { class, parts, after, checks, lies: class != Class::Single && rng.one_in(15) }
    }
}
