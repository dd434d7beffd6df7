//! Who gives way to whom (0047): what has lost to others before says so in its envelope, and those that are younger let it go first.
//!
//! - A transaction that takes locks and is younger is told of a conflict, as if the elder held its locks already.
//! - What takes no locks waits before it is proposed, unless it is proposed elsewhere already: then it would stand in the elder's way
//!   there.
//! - An update of one shard gives way once, and only to who reads before it writes: nobody else is held up by it.
//!
//! A witness's copy and a replay give way to nobody: no client waits for them, and nothing of turns outlives a term.

use kasha_distributed::{Age, Class, Footprint, Lost, Proposal};
use kasha_log::Log;
use kasha_types::probe::{Probe, hit};
use kasha_types::{LogEnd, RpcId};
use kasha_wire::{Body, OutcomeCode};

use crate::request::Condition;
use crate::request::commit::Completed;
use crate::request::path::{RequestPath, Stop};
use crate::request::{Caller, Origin, Received, Why, Wish};
use crate::shard::distributed::proposal_of;

impl Caller {
    /// Since when it waits for its turn, if it has lost before.
    fn age(&self, rpc: RpcId) -> Option<Age> {
        let turn = self.envelope.turn?;
        Some(Age { since: turn.since, client: rpc.client, number: turn.number })
    }

    /// It reads again if a check says no, and comes again.
    fn returns(&self) -> bool {
        self.envelope.turn.is_some_and(|turn| turn.returns)
    }
}

/// Its keys at this shard, each as if it were written.
fn keys_of(body: &Body<'_>) -> Footprint {
    let mut keys = Vec::new();
    body.footprint(&mut keys);
    Footprint::new([], keys)
}

impl RequestPath<'_> {
    /// Whom a transaction over several shards gives way to, now that it arrives. `Err`: it waits.
    pub(super) fn elder_of(&self, received: &Received<'_>, proposal: &Proposal) -> Result<Option<Age>, Stop> {
        let (Origin::Client(caller), Some(serving)) = (&received.origin, self.serving.as_deref()) else {
            return Ok(None);
        };
        let rpc = received.request.rpc;
        let Some(elder) = serving.turns.elder(caller.age(rpc), &proposal.footprint) else { return Ok(None) };
        match proposal.class {
            Class::Coordinated => {
                hit(Probe::TurnGivenWay);
                Ok(Some(elder))
            }
            Class::Independent if caller.gave_way || self.state.distributed.participant.is_spoken_of(rpc) => Ok(None),
            Class::Independent => Err(Stop::Nothing(Why::Parked(Condition::Turn(elder)))),
        }
    }

    /// Whom an update of this shard alone gives way to.
    #[inline]
    pub(super) fn elder_before(&self, received: &Received<'_>) -> Option<Age> {
        if self.is_quiet { None } else { self.find_elder_before(received) }
    }

    #[cold]
    #[inline(never)]
    fn find_elder_before(&self, received: &Received<'_>) -> Option<Age> {
        self.elder_of_keys(received, &keys_of(&received.body))
    }

    /// The same, with so much of its footprint.
    pub(super) fn elder_of_keys(&self, received: &Received<'_>, keys: &Footprint) -> Option<Age> {
        let (Origin::Client(caller), Some(serving)) = (&received.origin, self.serving.as_deref()) else { return None };
        if serving.turns.is_empty() || caller.gave_way || caller.wish == Wish::Cancel {
            return None;
        }
        serving.turns.elder_that_reads(caller.age(received.request.rpc), keys)
    }

    /// It is parked behind an elder. If it has lost before, those that are younger wait for it, too.
    pub(super) fn wait_behind_elder(&mut self, caller: &Caller, received: &Received<'_>) {
        hit(Probe::TurnParked);
        if let Some(age) = caller.age(received.request.rpc).filter(|_| caller.returns()) {
            self.serving().turns.wait(age, keys_of(&received.body), true, None);
        }
    }

    /// An update of this shard alone has run. If it has lost before, it is through, or will come again.
    #[cold]
    #[inline(never)]
    pub(super) fn end_turn_of(&mut self, log: &Log, caller: &Caller, received: &Received<'_>, completed: &Completed) {
        let Some(age) = caller.age(received.request.rpc) else { return };
        let (in_log, result) = completed.result(&received.memory);
        let result = in_log.map_or(result, |slice| log.slice(slice));
        let comes_again = caller.returns() && result.first() == Some(&(OutcomeCode::NotCommitted as u8));
        let turns = &mut self.serving().turns;
        match comes_again {
            true => turns.take(age, keys_of(&received.body)),
            false => turns.leave(age),
        }
    }

    /// A transaction over several shards arrives. Its client has given it up: nobody comes again.
    pub(super) fn note_given_up(&mut self, caller: &Caller, rpc: RpcId) {
        if let Some(age) = caller.age(rpc).filter(|_| caller.wish == Wish::Cancel) {
            self.serving().turns.leave(age);
        }
    }

    /// Its client asks again for what is told when its turn has come.
    pub(super) fn is_told_later(&mut self, caller: &Caller, rpc: RpcId) -> bool {
        let is_kept = caller.age(rpc).is_some_and(|age| self.serving().turns.keeps_answer_of(age, rpc));
        if is_kept {
            self.serving().distributed.callers.wait_for(rpc, *caller);
        }
        is_kept
    }

    /// It is proposed.
    pub(super) fn note_try(&mut self, caller: &Caller, rpc: RpcId) {
        if let Some(age) = caller.age(rpc) {
            self.serving().turns.tries(rpc, age);
        }
    }

    /// It does not happen, which this result says. True: its client hears that when its turn has come.
    pub(super) fn waits_for_turn(&mut self, caller: &Caller, body: &Body<'_>, (end, result): (LogEnd, &[u8])) -> bool {
        let rpc = body.head.rpc;
        let Some(age) = caller.age(rpc) else { return false };
        let proposal = proposal_of(body, self.shard).expect("we take part");
        let turns = &mut self.serving().turns;
        match result.first().copied().and_then(OutcomeCode::from_number) {
            Some(OutcomeCode::Conflict) => {
                turns.wait(age, proposal.footprint, caller.returns(), Some(Lost { rpc, end }))
            }
            Some(OutcomeCode::NotCommitted | OutcomeCode::RefusedElsewhere) if caller.returns() => {
                turns.take(age, proposal.footprint);
                false
            }
            _ => {
                turns.leave(age);
                false
            }
        }
    }
}
