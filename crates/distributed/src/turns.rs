//! Who goes first: among those that have lost to others, who has waited longest (0047).
//!
//! A transaction that takes locks never waits for them (R8.3): it loses, and comes again. So one with many keys may lose for ever to
//! those with few. Whoever has lost says so when it comes again, and since when. If it loses again it *waits for its turn*: from
//! then on whoever is younger gives way to it on its keys, and it is told to come when they are free. Then it has its turn, for as long as
//! it takes to come.
//!
//! ```text
//! lost again ─▶ waits ─ oldest of all that wait for its keys, and these are free ─▶ has its turn ─ happens ─▶ gone
//!                 ▲ └── for too long: told to come, and gone                         │   └── does not come in time ─▶ gone
//!                 └────────────────────────── loses once more ───────────────────────┘
//! ```
//!
//! Nobody holds anything while it waits: what it had proposed elsewhere has ended before. So turns cannot block one another for ever,
//! and the oldest gets through everywhere. They are a hint that is lost with the term. Nothing that is promised depends on them: who
//! gives way is one whose request might have come later, or one that is told of a conflict.

use std::collections::BTreeMap;
use std::time::Duration;

use kasha_types::planted::{self, Bug};
use kasha_types::{ClientId, ClusterTime, KeyHash, LogEnd, RpcId, Tick};

use crate::Footprint;
use crate::footprint::Access;

/// Those that wait at one shard. Beyond, whoever loses is told at once, and comes again by itself.
const WAITING_MAX: usize = 1024;
/// Their keys, of all together.
const KEYS_MAX: usize = 16 * 1024;
/// So often a turn is begun anew by one that comes and loses elsewhere, or finds what it has read changed. Then its place is gone, and
/// those that gave way come in: so nobody holds up the others for ever, whatever it says of its age.
const RENEWALS_MAX: u8 = 8;

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

impl Age {
    /// Before all others.
    pub const MIN: Self = Self { since: ClusterTime(0), client: ClientId(0), number: 0 };
    /// Behind all others.
    pub const MAX: Self = Self { since: ClusterTime(u64::MAX), client: ClientId(u64::MAX), number: u16::MAX };
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
    /// It has its turn.
    Has,
}

/// How long each stage may last.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Waiting: a client that is gone, or a key that is not freed for long, holds up those that want its other keys only so long.
    pub waits: Duration,
    /// Whoever has waited in vain holds up nobody for so long after that, though it may wait again.
    pub weak: Duration,
    /// Its turn.
    pub turn: Duration,
    /// The turn of one that reads before it comes.
    pub turn_of_reader: Duration,
}

#[derive(Debug)]
struct Waiter {
    footprint: Footprint,
    stage: Stage,
    /// When the stage is over. `None`: its time has not begun.
    until: Option<Tick>,
    /// It reads before it comes: also updates of one shard give way to it.
    reads_first: bool,
    /// How often its turn was begun anew.
    renewals: u8,
    /// It has waited in vain not long ago: nobody gives way to it while it waits again.
    is_weak: bool,
}

impl Waiter {
    fn new(footprint: Footprint, stage: Stage, reads_first: bool) -> Self {
        Self { footprint, stage, until: None, reads_first, renewals: 0, is_weak: false }
    }
}

/// Those that have lost to others at a shard, by age and by key.
#[derive(Debug, Default)]
pub struct Turns {
    waiters: BTreeMap<Age, Waiter>,
    keys: BTreeMap<KeyHash, BTreeMap<Age, Access>>,
    /// How many these are.
    keys_of_all: usize,
    /// Those that have waited in vain, and when that was.
    in_vain: BTreeMap<Age, Tick>,
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

    /// The same among those that read before they come. One that has not lost yet gives way only to who has its turn: who still waits
    /// has nothing of what it has read to lose.
    #[must_use]
    pub fn elder_that_reads(&self, age: Option<Age>, footprint: &Footprint) -> Option<Age> {
        self.elder_that(age, footprint, |waiter| {
            waiter.reads_first && (age.is_some() || matches!(waiter.stage, Stage::Has))
        })
    }

    fn elder_that(&self, age: Option<Age>, footprint: &Footprint, is_it: impl Fn(&Waiter) -> bool) -> Option<Age> {
        if self.waiters.is_empty() || planted::is_on(Bug::YoungGoesFirst) {
            return None;
        }
        let mut eldest: Option<Age> = None;
        footprint.each_met(&self.keys, |ages, access| {
            eldest = eldest.into_iter().chain(self.elder_at((ages, access), age, &is_it)).min();
        });
        eldest
    }

    fn elder_at(
        &self,
        (ages, access): (&BTreeMap<Age, Access>, Access),
        age: Option<Age>,
        is_it: impl Fn(&Waiter) -> bool,
    ) -> Option<Age> {
        let elders = ages.iter().take_while(|(other, _)| age.is_none_or(|own| **other < own));
        let mut in_the_way = elders.filter(|(_, other)| access.conflicts(**other));
        in_the_way.find(|(other, _)| is_it(&self.waiters[other])).map(|(&other, _)| other)
    }

    fn has_elder(&self, age: Age, footprint: &Footprint) -> bool {
        !planted::is_on(Bug::YoungGoesFirst)
            && footprint
                .find_met(&self.keys, |ages, access| self.elder_at((ages, access), Some(age), |_| true))
                .is_some()
    }

    /// It has lost, and waits for its turn from now on; also if it had a turn before. False: there is no room for it.
    pub fn wait(&mut self, age: Age, footprint: Footprint, reads_first: bool, lost: Option<Lost>) -> bool {
        let (renewals, is_weak) = (self.renewals(age), self.in_vain.contains_key(&age));
        // Whoever asks again and again waits no longer for that.
        let before = self.waiters.get(&age).filter(|waiter| matches!(waiter.stage, Stage::Waits(_)));
        let until = before.and_then(|waiter| waiter.until);
        self.put(age, Waiter { renewals, is_weak, until, ..Waiter::new(footprint, Stage::Waits(lost), reads_first) })
    }

    /// It has its turn at once: nobody older waits for its keys, and it has found what makes it come again.
    pub fn take(&mut self, age: Age, footprint: Footprint) {
        let renewals = self.renewals(age) + 1;
        match renewals <= RENEWALS_MAX {
            true => _ = self.put(age, Waiter { renewals, ..Waiter::new(footprint, Stage::Has, true) }),
            false => self.leave(age),
        }
    }

    fn renewals(&self, age: Age) -> u8 {
        self.waiters.get(&age).map_or(0, |waiter| waiter.renewals)
    }

    fn put(&mut self, age: Age, waiter: Waiter) -> bool {
        self.leave(age);
        let keys = if waiter.is_weak { 0 } else { waiter.footprint.keys().count() };
        if self.waiters.len() >= WAITING_MAX || self.keys_of_all + keys > KEYS_MAX {
            return false;
        }
        self.keys_of_all += keys;
        for (key, access) in waiter.footprint.keys().filter(|_| !waiter.is_weak) {
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
        if waiter.is_weak {
            return;
        }
        self.keys_of_all -= waiter.footprint.keys().count();
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
            // A later try of it has lost here meanwhile, and waits.
            Some(Waiter { stage: Stage::Waits(Some(lost)), .. }) if lost.rpc != rpc => {}
            Some(waiter) if (conflicts || waiter.reads_first) && waiter.renewals < RENEWALS_MAX => {
                if let Stage::Has = waiter.stage {
                    waiter.until = None;
                    waiter.renewals += 1;
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
                && !self.has_elder(*age, &waiter.footprint)
                && is_free(&waiter.footprint)
        };
        let age = self.waiters.iter().find(|(age, waiter)| is_next(age, waiter)).map(|(&age, _)| age)?;
        let waiter = self.waiters.get_mut(&age).expect("just found");
        self.has_changed = true; // there may be another one
        waiter.until = None;
        match std::mem::replace(&mut waiter.stage, Stage::Has) {
            Stage::Waits(lost) => Some((age, lost)),
            Stage::Has => None,
        }
    }

    /// Those whose time is over are gone: who has had its turn, and has not come; and who has waited too long, which is told what it waits
    /// for. What is pending has come, and has its turn until it ends.
    pub fn lapse(&mut self, now: Tick, patience: Patience) -> Vec<Option<Lost>> {
        self.in_vain.retain(|_, since| now.since(*since) < patience.weak);
        let mut late = Vec::new();
        for (&age, waiter) in &mut self.waiters {
            let time = match (waiter.stage, waiter.reads_first) {
                (Stage::Waits(_), _) => patience.waits,
                (Stage::Has, false) => patience.turn,
                (Stage::Has, true) => patience.turn_of_reader,
            };
            let until = *waiter.until.get_or_insert(now.after(time));
            if until <= now {
                late.push((age, now.after(time)));
            }
        }
        late.into_iter().filter_map(|(age, anew)| self.end_turn(age, anew, now)).collect()
    }

    /// See [`Self::lapse`]. `None`: it has come.
    fn end_turn(&mut self, age: Age, anew: Tick, now: Tick) -> Option<Option<Lost>> {
        let waiter = self.waiters.get_mut(&age).expect("it is late");
        let lost = match waiter.stage {
            Stage::Has if self.tries.values().any(|known| *known == age) => {
                waiter.until = Some(anew);
                return None;
            }
            Stage::Has => None,
            Stage::Waits(lost) => lost,
        };
        if matches!(waiter.stage, Stage::Waits(_)) && self.in_vain.len() < WAITING_MAX {
            self.in_vain.insert(age, now);
        }
        self.leave(age);
        Some(lost)
    }

    /// When the next time is over.
    #[must_use]
    pub fn next_lapse(&self) -> Option<Tick> {
        self.waiters.values().filter_map(|waiter| waiter.until).min()
    }
}

#[cfg(test)]
mod tests {
    use kasha_types::Sequence;

    use super::*;

    const PATIENCE: Patience = Patience {
        waits: Duration::from_millis(1000),
        weak: Duration::from_millis(3000),
        turn: Duration::from_millis(10),
        turn_of_reader: Duration::from_millis(20),
    };

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

    fn lapsed(turns: &mut Turns, millis: u64) -> (usize, Option<Tick>) {
        (turns.lapse(tick(millis), PATIENCE).len(), turns.next_lapse())
    }

    #[test]
    fn a_turn_lapses_unless_what_it_is_for_is_pending() {
        let mut turns = Turns::default();
        assert!(turns.wait(age(1), writes([1]), false, None));
        assert_eq!(lapsed(&mut turns, 100), (0, Some(tick(1100))), "it waits for its turn");
        assert!(turns.next(true, |_| true).is_some());
        assert_eq!(lapsed(&mut turns, 100), (0, Some(tick(110))));
        turns.tries(rpc(1), age(1));
        assert_eq!(
            lapsed(&mut turns, 200),
            (0, Some(tick(210))),
            "it has come, and no time that is over wakes the core"
        );
        turns.did_not_happen(rpc(1), true);
        assert_eq!(lapsed(&mut turns, 201), (0, Some(tick(211))), "it may come again");
        assert_eq!(lapsed(&mut turns, 211), (1, None));
        assert!(turns.is_empty());
    }

    /// A participant that is gone for long blocks only what conflicts with it (section 8).
    #[test]
    fn who_waits_too_long_is_told_and_holds_up_nobody_any_more() {
        let mut turns = Turns::default();
        let lost = Lost { rpc: rpc(1), end: LogEnd(7) };
        assert!(turns.wait(age(1), writes([1, 2]), false, Some(lost)));
        assert_eq!(turns.next(true, |_| false), None, "a key is not free");
        assert_eq!(lapsed(&mut turns, 0).0, 0);
        assert_eq!(turns.elder(None, &writes([2])), Some(age(1)));
        assert_eq!(turns.lapse(tick(1000), PATIENCE), [Some(lost)]);
        assert_eq!(turns.elder(None, &writes([2])), None);
        assert!(turns.is_empty());
        // It comes again at once, and loses again.
        assert!(turns.wait(age(1), writes([1, 2]), false, Some(lost)));
        assert_eq!(turns.elder(None, &writes([2])), None, "it has held up others for long enough");
        assert_eq!(turns.lapse(tick(1500), PATIENCE), []);
        assert_eq!(turns.next(true, |_| true), Some((age(1), Some(lost))), "but it is told when its keys are free");
        turns.leave(age(1));
        assert_eq!(turns.lapse(tick(4000), PATIENCE), []);
        assert!(turns.wait(age(1), writes([1, 2]), false, None));
        assert_eq!(turns.elder(None, &writes([2])), Some(age(1)));
        turns.leave(age(1));
        assert!(turns.keys.is_empty() && turns.keys_of_all == 0);
    }

    /// Its vote on an earlier try comes late.
    #[test]
    fn what_waits_is_not_forgotten_because_of_an_earlier_try() {
        let mut turns = Turns::default();
        let lost = Lost { rpc: rpc(2), end: LogEnd(7) };
        turns.tries(rpc(1), age(1));
        assert!(turns.wait(age(1), writes([1]), false, Some(lost)));
        turns.did_not_happen(rpc(1), false);
        assert!(turns.keeps_answer_of(age(1), rpc(2)));
    }

    #[test]
    fn nobody_has_its_turn_for_ever() {
        let mut turns = Turns::default();
        for _ in 0..RENEWALS_MAX {
            turns.take(age(1), writes([1]));
            assert!(turns.has(age(1)));
        }
        turns.take(age(1), writes([1]));
        assert!(!turns.has(age(1)), "what it reads was changed again and again");
        assert!(turns.wait(age(2), writes([1]), false, None) && turns.next(true, |_| true).is_some());
        for sequence in 0..=u64::from(RENEWALS_MAX) {
            assert!(turns.has(age(2)));
            turns.tries(rpc(sequence), age(2));
            turns.did_not_happen(rpc(sequence), true);
        }
        assert!(!turns.has(age(2)), "it has lost elsewhere again and again");
    }

    #[test]
    fn updates_of_one_shard_give_way_only_to_a_program_that_has_its_turn() {
        let mut turns = Turns::default();
        assert!(turns.wait(age(1), writes([1]), true, None));
        assert_eq!(turns.elder_that_reads(None, &writes([1])), None, "it has read nothing yet");
        assert_eq!(turns.elder_that_reads(Some(age(2)), &writes([1])), Some(age(1)), "programs come by age");
        assert!(turns.next(true, |_| true).is_some());
        assert_eq!(turns.elder_that_reads(None, &writes([1])), Some(age(1)));
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
        let mut turns = Turns::default();
        let many = || Footprint::new([], (0..KEYS_MAX as u64).map(KeyHash));
        assert!(turns.wait(age(1), many(), false, None) && !turns.wait(age(2), writes([1]), false, None));
        assert!(turns.wait(age(1), writes([1]), false, None) && turns.wait(age(2), writes([1]), false, None));
    }
}
