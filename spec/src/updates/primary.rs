//! The request path of a primary: `look_up → order → overlap → execute → record`. Requests come from clients and from
//! witnesses.
//!
//! It mirrors `request` of `node`; `conformance.rs` compares `look_up` with the code.

use crate::updates::Updates;
use crate::updates::program::Kind;
use crate::updates::rules::Rule;
use crate::updates::state::{CallIx, Entry, LOG_MAX, Outcome, Record, State, Term};

/// The sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The client of the update.
    Client,
    /// A witness that has held it for long.
    Suspect,
    /// The witness that a new primary reads.
    Replay,
}

/// What the log knows about an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It never ran here.
    New,
    /// Its record is here.
    Completed(u8),
    /// The update is below its client's acknowledgement.
    Stale,
    /// The update's lease is at or below the expiry floor.
    Expired,
}

/// The result of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// The update ran. Its answer leaves at once, or when it is synced.
    Recorded { outcome: Outcome, at_once: bool },
    /// The update had run before: the saved result leaves when it is synced.
    Completed,
    /// Nothing was recorded.
    Refused(Refusal),
}

/// The reason why nothing was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The update is below its client's acknowledgement.
    Stale,
    /// The client's lease is over.
    Expired,
    /// The operation key's time to live is over.
    Unprovable,
}

/// What to do with a request, by its operation key.
enum Order {
    Execute,
    Repeat(Outcome),
    Mismatch,
    Unprovable,
}

impl Updates {
    /// `exactly_once::Tracker::look_up` and `look_up_replayed`, in the first `upto` entries of a term's log.
    pub fn look_up(&self, state: &State, term: &Term, upto: u8, call: CallIx, origin: Origin) -> Found {
        let (plan, lease) = (self.plan(call), state.call(call).lease);
        let from = if plan.client == 1 { term.forgotten } else { 0 };
        let known = || term.records().filter(|&(at, _)| at >= from && at < upto);
        let of_client = |record: &Record| self.plan(record.call).client == plan.client;
        let acknowledged =
            known().filter(|(_, record)| of_client(record)).map(|(_, record)| record.acknowledgement).max();
        let heeds = origin != Origin::Replay || self.keeps(Rule::ReplayHeeds);
        if plan.sequence < acknowledged.unwrap_or(1) {
            return if heeds { Found::Stale } else { Found::New };
        }
        let looks = origin != Origin::Replay || self.keeps(Rule::ReplayLooksUp);
        if let Some((at, _)) = known().find(|(_, record)| looks && record.call == call) {
            return Found::Completed(at);
        }
        let floor = term.floor().filter(|&(at, floor)| at < upto && lease <= floor);
        if floor.is_some() && (origin != Origin::Replay || self.keeps(Rule::FloorInReplay)) {
            return Found::Expired;
        }
        Found::New
    }

    /// Runs a request through the path of an epoch's primary.
    pub fn run(&self, state: &mut State, epoch: u8, call: CallIx, origin: Origin, cancel: bool) -> Ran {
        let term = state.term(epoch);
        match self.look_up(state, term, term.end(), call, origin) {
            Found::Completed(_) => return Ran::Completed,
            Found::Stale => return Ran::Refused(Refusal::Stale),
            Found::Expired => return Ran::Refused(Refusal::Expired),
            Found::New => {}
        }
        let order = self.order(state, epoch, call, origin, cancel);
        let overlaps = self.overlaps(state.term(epoch), call, &order);
        let (outcome, executed) = match order {
            Order::Execute if cancel => (Outcome::Cancelled, false),
            Order::Execute => (Outcome::Count(self.count(state.term(epoch), call) + 1), true),
            Order::Repeat(outcome) if !self.keeps(Rule::HitRecorded) => {
                return Ran::Recorded { outcome, at_once: !overlaps };
            }
            Order::Repeat(outcome) => (outcome, false),
            Order::Mismatch => (Outcome::Mismatch, false),
            Order::Unprovable => return Ran::Refused(Refusal::Unprovable),
        };
        self.record(state, epoch, call, origin, outcome, executed);
        Ran::Recorded { outcome, at_once: !overlaps && !cancel }
    }

    /// What follows from the operation key (R4.9). May log that the key has expired (R5.2).
    fn order(&self, state: &mut State, epoch: u8, call: CallIx, origin: Origin, cancel: bool) -> Order {
        let Some(not_after) = self.plan(call).once.filter(|_| !cancel) else { return Order::Execute };
        let now = match origin {
            Origin::Replay => state.term(epoch).log.iter().map(key_dropped).max().unwrap_or(0),
            Origin::Client | Origin::Suspect => state.time,
        };
        let mut kept = self.kept(state.term(epoch));
        if kept.is_some_and(|kept| self.plan(kept.call).once < Some(now)) {
            state.term_mut(epoch).log.push(Entry::KeyDropped(now));
            kept = None;
        }
        match kept {
            Some(kept) if self.plan(kept.call).key == self.plan(call).key => Order::Repeat(kept.outcome),
            Some(_) => Order::Mismatch,
            None if now > not_after && self.keeps(Rule::NotAfter) => Order::Unprovable,
            None => Order::Execute,
        }
    }

    /// The record that the operation key leads to.
    fn kept(&self, term: &Term) -> Option<Record> {
        let mut kept = None;
        for entry in &term.log {
            match entry {
                Entry::Record(record) if record.executed && self.plan(record.call).once.is_some() => {
                    kept = Some(*record)
                }
                Entry::KeyDropped(_) => kept = None,
                Entry::Record(_) | Entry::Floor(_) => {}
            }
        }
        kept
    }

    /// C1: whether the call touches anything unsynced.
    fn overlaps(&self, term: &Term, call: CallIx, order: &Order) -> bool {
        if !self.keeps(Rule::OverlapGated) {
            return false;
        }
        let plan = self.plan(call);
        let by_order = match order {
            Order::Execute => plan.once.is_some() && term.log[term.synced.into()..].iter().any(|e| key_dropped(e) > 0),
            Order::Repeat(_) | Order::Mismatch => self.keeps(Rule::HitGated),
            Order::Unprovable => true,
        };
        by_order || self.touches_unsynced(term, call)
    }

    /// Whether the newest version of a call's key is not synced.
    pub fn touches_unsynced(&self, term: &Term, call: CallIx) -> bool {
        let key = self.plan(call).key;
        term.records().any(|(at, record)| at >= term.synced && record.executed && self.plan(record.call).key == key)
    }

    /// The counter of a call's key.
    pub fn count(&self, term: &Term, call: CallIx) -> u8 {
        let key = self.plan(call).key;
        let is_one = |record: &Record| record.executed && self.plan(record.call).key == key;
        term.records().filter(|(_, record)| is_one(record)).count() as u8
    }

    fn record(&self, state: &mut State, epoch: u8, call: CallIx, origin: Origin, outcome: Outcome, executed: bool) {
        let body = state.call(call);
        let (sent, lease) = (body.acknowledgement, body.lease);
        let term = state.term(epoch);
        let client = self.plan(call).client;
        let from = if client == 1 { term.forgotten } else { 0 };
        let of_client = |(at, record): &(u8, Record)| *at >= from && self.plan(record.call).client == client;
        let of_the_log = term.records().filter(of_client).map(|(_, record)| record.acknowledgement).max().unwrap_or(1);
        let (acknowledgement, stored) = match origin {
            Origin::Client => (sent, sent),
            Origin::Suspect | Origin::Replay if !self.keeps(Rule::ReplayRaisesNothing) => (sent, sent),
            Origin::Suspect | Origin::Replay if !self.keeps(Rule::ReplayStoresOwn) => (of_the_log, sent),
            Origin::Suspect | Origin::Replay => (of_the_log, of_the_log),
        };
        let record = Record { call, acknowledgement, stored, lease, outcome, executed };
        state.term_mut(epoch).log.push(Entry::Record(record));
    }

    /// `reads::execute`: the value, and whether it must wait for a sync.
    pub fn read(&self, state: &State, epoch: u8, call: CallIx) -> Option<(u8, bool)> {
        let term = state.term(epoch);
        let may_read = !term.deposed || !self.keeps(Rule::ReadLeased);
        let waits = self.touches_unsynced(term, call) && self.keeps(Rule::ReadGated);
        (may_read && self.plan(call).kind == Kind::Read).then(|| (self.count(term, call), waits))
    }

    /// Whether the first `upto` entries settle a request for good, so that a witness may forget it.
    pub fn is_settled(&self, state: &State, term: &Term, upto: u8, call: CallIx) -> bool {
        match self.look_up(state, term, upto, call, Origin::Suspect) {
            Found::Completed(_) | Found::Stale | Found::Expired => true,
            Found::New => {
                let is_over = self.plan(call).once.is_some_and(|not_after| state.time > not_after);
                is_over && self.kept(term).is_none() && term.record(call).is_none()
            }
        }
    }

    /// Whether a term's log has room for what a step may add.
    pub fn has_room(&self, term: &Term) -> bool {
        term.log.len() + 2 <= LOG_MAX
    }

    /// The answer to a hit of the operation key that leaves no record: the key's result, when it is synced.
    pub fn unrecorded_hit(&self, state: &State, term: &Term, call: CallIx) -> Option<Outcome> {
        let not_after = self.plan(call).once?;
        let (kept, is_alive) = (self.kept(term)?, state.time <= not_after);
        let (at, _) = term.record(kept.call)?;
        let is_hit = self.plan(kept.call).key == self.plan(call).key && self.plan(kept.call).once >= Some(state.time);
        (is_hit && is_alive && at < term.synced).then_some(kept.outcome)
    }
}

fn key_dropped(entry: &Entry) -> u8 {
    match entry {
        Entry::KeyDropped(at) => *at,
        Entry::Record(_) | Entry::Floor(_) => 0,
    }
}
