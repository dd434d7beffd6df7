//! Who goes first: among those that have lost to others, who has waited longest (0047).
//!
//! A transaction that takes locks never waits for them (R8.3): it loses, and comes again. So one with many keys may lose for ever to
//! those with few. Whoever has lost says so when it comes again, and since when. If it loses again it *waits for its turn*: from
//! then on whoever is younger gives way to it on its keys, and it is told to come when they are free. Then it has its turn, for as long as
//! it takes to come.
//!
//! ```text
//! lost again ─▶ waits ─ oldest of all that wait for its keys, and these are free ─▶ has its turn ─ happens ─▶ gone
//!                 ▲                                                                  │   └── does not come in time ─▶ gone
//!                 └────────────────────────── loses once more ───────────────────────┘
//! ```
//!
//! Nobody holds anything while it waits: what it had proposed elsewhere has ended before. So turns cannot block one another for ever,
//! and the oldest gets through everywhere. They are a hint that is lost with the term. Nothing that is promised depends on them: who
//! gives way is one whose request might have come later, or one that is told of a conflict.

use std::collections::BTreeMap;

use kasha_types::planted::{self, Bug};
use kasha_types::{ClientId, ClusterTime, KeyHash, LogEnd, RpcId, Tick};

use crate::Footprint;
use crate::footprint::Access;

/// Those that wait at one shard. Beyond, whoever loses is told at once, and comes again by itself.
const WAITING_MAX: usize = 1024;

/// Since when somebody waits, and who it is. The same at all shards, and in all its tries: all shards put them into one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Age {
    /// When it had lost for the first time, as it says.
    pub since: ClusterTime,
    /// Its client, and a number that the client drew.
    pub client: ClientId,
    /// See `client`.
    pub number: u16,
}

/// The answer of the try that has lost: it leaves when the turn has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The try.
    pub rpc: RpcId,
    /// Where the entry of its outcome ends.
    pub end: LogEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It waits for its turn, and for this answer.
    Waits(Option<Lost>),
    /// It has its turn until then. `None`: its time has not begun.
    Has { until: Option<Tick> },
}

#[derive(Debug)]
struct Waiter {
    footprint: Footprint,
    stage: Stage,
    /// It reads before it comes: also updates of one shard give way to it.
    reads_first: bool,
}

/// Those that have lost to others at a shard, by age and by key.
#[derive(Debug, Default)]
pub struct Turns {
    waiters: BTreeMap<Age, Waiter>,
    keys: BTreeMap<KeyHash, BTreeMap<Age, Access>>,
    /// What is pending of them.
    tries: BTreeMap<RpcId, Age>,
    /// Somebody has come or gone since it was asked whose turn is next.
    has_changed: bool,
}

impl Turns {
    /// Whether there is nobody.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty() && self.tries.is_empty()
    }

    /// The oldest that has waited longer than this one, for a key that both touch. `None` as age: one that has not lost yet.
    #[must_use]
    pub fn elder(&self, age: Option<Age>, footprint: &Footprint) -> Option<Age> {
        self.elder_that(age, footprint, |_| true)
    }

    /// The same among those that read before they come.
    #[must_use]
    pub fn elder_that_reads(&self, age: Option<Age>, footprint: &Footprint) -> Option<Age> {
        self.elder_that(age, footprint, |waiter| waiter.reads_first)
    }

    fn elder_that(&self, age: Option<Age>, footprint: &Footprint, is_it: impl Fn(&Waiter) -> bool) -> Option<Age> {
        if self.waiters.is_empty() || planted::is_on(Bug::YoungGoesFirst) {
            return None;
        }
        let elder_at = |(key, access): (KeyHash, Access)| {
            let ages = self.keys.get(&key)?.iter();
            let elders = ages.take_while(|(other, _)| age.is_none_or(|own| **other < own));
            let mut in_the_way = elders.filter(|(_, other)| access.conflicts(**other));
            in_the_way.find(|(other, _)| is_it(&self.waiters[other])).map(|(&other, _)| other)
        };
        footprint.keys().filter_map(elder_at).min()
    }

    /// It has lost, and waits for its turn from now on; also if it had a turn before. False: there is no room for it.
    pub fn wait(&mut self, age: Age, footprint: Footprint, reads_first: bool, lost: Option<Lost>) -> bool {
        self.put(age, Waiter { footprint, stage: Stage::Waits(lost), reads_first })
    }

    /// It has its turn at once: nobody older waits for its keys, and it has found what makes it come again.
    pub fn take(&mut self, age: Age, footprint: Footprint) {
        self.put(age, Waiter { footprint, stage: Stage::Has { until: None }, reads_first: true });
    }

    fn put(&mut self, age: Age, waiter: Waiter) -> bool {
        self.leave(age);
        if self.waiters.len() >= WAITING_MAX {
            return false;
        }
        for (key, access) in waiter.footprint.keys() {
            self.keys.entry(key).or_default().insert(age, access);
        }
        self.waiters.insert(age, waiter);
        self.has_changed = true;
        true
    }

    /// It does not come again.
    pub fn leave(&mut self, age: Age) {
        let Some(waiter) = self.waiters.remove(&age) else { return };
        self.has_changed = true;
        for (key, _) in waiter.footprint.keys() {
            let ages = self.keys.get_mut(&key).expect("it waits for the key");
            ages.remove(&age);
            if ages.is_empty() {
                self.keys.remove(&key);
            }
        }
    }

    /// Whether it waits, or has its turn.
    #[must_use]
    pub fn has(&self, age: Age) -> bool {
        self.waiters.contains_key(&age)
    }

    /// Whether the answer of this try waits for a turn.
    #[must_use]
    pub fn keeps_answer_of(&self, age: Age, rpc: RpcId) -> bool {
        let stage = self.waiters.get(&age).map(|waiter| waiter.stage);
        matches!(stage, Some(Stage::Waits(Some(lost))) if lost.rpc == rpc)
    }

    /// It comes, and is pending under this id.
    pub fn tries(&mut self, rpc: RpcId, age: Age) {
        self.tries.insert(rpc, age);
    }

    /// Who it is that is pending under this id.
    #[must_use]
    pub fn who_tries(&self, rpc: RpcId) -> Option<Age> {
        self.tries.get(&rpc).copied()
    }

    /// What was pending under this id has happened.
    pub fn happened(&mut self, rpc: RpcId) {
        if let Some(age) = self.tries.remove(&rpc) {
            self.leave(age);
        }
    }

    /// What was pending under this id does not happen. `conflicts`: it has lost elsewhere; else a check has said no. If it had its turn,
    /// it has it still, until it had time to come.
    pub fn did_not_happen(&mut self, rpc: RpcId, conflicts: bool) {
        let Some(age) = self.tries.remove(&rpc) else { return };
        match self.waiters.get_mut(&age) {
            Some(waiter) if conflicts || waiter.reads_first => {
                if let Stage::Has { until } = &mut waiter.stage {
                    *until = None;
                }
            }
            Some(_) | None => self.leave(age),
        }
    }

    /// Whose turn comes next: nobody older waits for its keys, and these are free. It has its turn from now on. `are_freed`: some keys are
    /// free that were not when this was asked last.
    pub fn next(&mut self, are_freed: bool, is_free: impl Fn(&Footprint) -> bool) -> Option<(Age, Option<Lost>)> {
        if !are_freed && !self.has_changed {
            return None;
        }
        self.has_changed = false;
        let is_next = |age: &Age, waiter: &Waiter| {
            matches!(waiter.stage, Stage::Waits(_))
                && self.elder(Some(*age), &waiter.footprint).is_none()
                && is_free(&waiter.footprint)
        };
        let age = self.waiters.iter().find(|(age, waiter)| is_next(age, waiter)).map(|(&age, _)| age)?;
        let waiter = self.waiters.get_mut(&age).expect("just found");
        self.has_changed = true; // there may be another one
        match std::mem::replace(&mut waiter.stage, Stage::Has { until: None }) {
            Stage::Waits(lost) => Some((age, lost)),
            Stage::Has { .. } => None,
        }
    }

    /// Those that have had their turn, and have not come in time, are gone. How many. What is pending has come. `time`: how long each
    /// has, by whether it reads before it comes.
    pub fn lapse(&mut self, now: Tick, time: impl Fn(bool) -> std::time::Duration) -> usize {
        let mut late = Vec::new();
        for (&age, waiter) in &mut self.waiters {
            if let Stage::Has { until } = &mut waiter.stage {
                let until = *until.get_or_insert(now.after(time(waiter.reads_first)));
                if until <= now {
                    late.push(age);
                }
            }
        }
        if !late.is_empty() {
            let has_come = |age: &Age| self.tries.values().any(|known| known == age);
            late.retain(|age| !has_come(age));
        }
        late.iter().for_each(|&age| self.leave(age));
        late.len()
    }

    /// When the next turn is over.
    #[must_use]
    pub fn next_lapse(&self) -> Option<Tick> {
        let ends = self.waiters.values().filter_map(|waiter| match waiter.stage {
            Stage::Has { until } => until,
            Stage::Waits(_) => None,
        });
        ends.min()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kasha_types::Sequence;

    use super::*;

    const TIME: Duration = Duration::from_millis(10);

    fn age(since: u64) -> Age {
        Age { since: ClusterTime(since), client: ClientId(1), number: 0 }
    }

    fn writes<const N: usize>(keys: [u64; N]) -> Footprint {
        Footprint::new([], keys.map(KeyHash))
    }

    fn reads<const N: usize>(keys: [u64; N]) -> Footprint {
        Footprint::new(keys.map(KeyHash), [])
    }

    fn rpc(sequence: u64) -> RpcId {
        RpcId { client: ClientId(1), sequence: Sequence(sequence) }
    }

    fn tick(millis: u64) -> Tick {
        Tick(millis * 1_000_000)
    }

    #[test]
    fn the_younger_gives_way_on_the_keys_of_the_elder() {
        let mut turns = Turns::default();
        assert!(turns.wait(age(5), writes([1, 2]), false, None));
        assert_eq!(turns.elder(None, &writes([2, 3])), Some(age(5)));
        assert_eq!(turns.elder(Some(age(6)), &writes([2])), Some(age(5)));
        assert_eq!(turns.elder(Some(age(4)), &writes([2])), None, "it has waited longer");
        assert_eq!(turns.elder(Some(age(5)), &writes([2])), None, "it is itself");
        assert_eq!(turns.elder(None, &writes([3])), None, "another key");
        assert!(turns.wait(age(3), reads([2]), false, None));
        assert_eq!(turns.elder(None, &reads([2])), Some(age(5)), "readers share a key");
        assert_eq!(turns.elder(None, &writes([2])), Some(age(3)));
        assert_eq!(turns.elder_that_reads(None, &writes([2])), None);
        turns.leave(age(3));
        turns.leave(age(5));
        assert!(turns.is_empty() && turns.keys.is_empty());
    }

    #[test]
    fn turns_come_by_age_when_the_keys_are_free() {
        let mut turns = Turns::default();
        let lost = Lost { rpc: rpc(1), end: LogEnd(7) };
        assert!(turns.wait(age(2), writes([1]), false, Some(lost)));
        assert!(turns.wait(age(1), writes([1, 2]), false, None));
        assert!(turns.keeps_answer_of(age(2), rpc(1)) && !turns.keeps_answer_of(age(2), rpc(2)));
        let is_free = |footprint: &Footprint| !footprint.writes().contains(&KeyHash(2));
        assert_eq!(
            turns.next(true, is_free),
            None,
            "the elder's other key is not free, and the younger waits for the elder"
        );
        assert_eq!(turns.next(true, |_| true), Some((age(1), None)));
        assert_eq!(turns.next(true, |_| true), None, "it has its turn still");
        turns.tries(rpc(9), age(1));
        turns.happened(rpc(9));
        assert_eq!(turns.next(true, |_| true), Some((age(2), Some(lost))));
    }

    #[test]
    fn a_turn_lapses_unless_what_it_is_for_is_pending() {
        let mut turns = Turns::default();
        assert!(turns.wait(age(1), writes([1]), false, None));
        assert_eq!(turns.lapse(tick(100), |_| TIME), 0, "it waits for its turn");
        assert!(turns.next(true, |_| true).is_some());
        assert_eq!((turns.lapse(tick(100), |_| TIME), turns.next_lapse()), (0, Some(tick(110))));
        turns.tries(rpc(1), age(1));
        assert_eq!(turns.lapse(tick(200), |_| TIME), 0, "it has come");
        turns.did_not_happen(rpc(1), true);
        assert_eq!((turns.lapse(tick(201), |_| TIME), turns.next_lapse()), (0, Some(tick(211))), "it may come again");
        assert_eq!(turns.lapse(tick(211), |_| TIME), 1);
        assert!(turns.is_empty());
    }

    #[test]
    fn who_does_not_come_again_leaves() {
        let mut turns = Turns::default();
        assert!(turns.wait(age(1), writes([1]), false, None));
        turns.tries(rpc(1), age(1));
        turns.did_not_happen(rpc(1), false);
        assert!(turns.is_empty(), "a check has said no, and that is what its caller is told");
        turns.take(age(2), writes([1]));
        turns.tries(rpc(2), age(2));
        turns.did_not_happen(rpc(2), false);
        assert!(turns.has(age(2)), "it reads again");
    }

    #[test]
    fn they_are_bounded() {
        let mut turns = Turns::default();
        for since in 0..WAITING_MAX as u64 {
            assert!(turns.wait(age(since), writes([since]), false, None));
        }
        assert!(!turns.wait(age(u64::MAX), writes([1]), false, None));
        assert!(turns.wait(age(1), writes([7]), false, None), "it waits already");
    }
}
