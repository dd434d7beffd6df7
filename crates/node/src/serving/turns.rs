//! Turns of those that have lost to others (0047), once a turn of the loop: whose turn has come is told, and what gave way comes in
//! again.

use std::time::Duration;

use kasha_machine::{Effects, Gate};
use kasha_transaction::{Footprint, Lost, Patience};
use kasha_types::probe::{Probe, hit};
use kasha_types::{Epoch, LogPosition, RpcId, ShardId, Tick};
use kasha_wire::OutcomeCode;

use crate::request::WaitsFor;
use crate::serving::Serving;
use crate::shard::site::Site;
use crate::shard::term::Term;

/// How long those that are younger wait for one that was told that its turn has come: a round trip and the busiest moment of its machine;
/// and for one that reads before it comes. A client that is dead costs them this, and if it waits still, what one may wait.
const PATIENCE: Patience = Patience {
    waits: Duration::from_millis(500),
    weak: Duration::from_secs(3),
    turn: Duration::from_millis(25),
    turn_of_reader: Duration::from_millis(50),
};

impl Serving {
    /// Whether anybody waits for a turn, or for one that has it.
    #[inline]
    pub(super) fn has_turns(&self) -> bool {
        !self.turns.is_empty() || !self.let_through.is_empty() || self.parking.has_those_that_gave_way()
    }

    /// Another participant has spoken of a transaction that gave way here: it stands in somebody's way there, and goes on.
    pub(super) fn let_through_if_it_gave_way(&mut self, rpc: RpcId) {
        if let Some(mut parked) = self.parking.take_if_it_gave_way(rpc) {
            parked.caller.gave_way = true;
            self.let_through.push(parked);
        }
    }

    /// When the next turn is over.
    pub(super) fn next_lapse(&self) -> Option<Tick> {
        self.turns.next_lapse()
    }

    /// What gave way to somebody that is gone comes in again, and then it is the turn of the next. True: something came. `are_freed`: some
    /// keys were freed in this turn of the loop.
    #[cold]
    pub(super) fn take_turns(
        &mut self,
        term: &mut Term,
        site: &mut Site<'_>,
        (now, are_freed): (Tick, bool),
        out: &mut Effects,
    ) -> bool {
        let mut ran = false;
        for parked in std::mem::take(&mut self.let_through) {
            ran = true;
            self.run_parked(term, site, &parked, out);
        }
        for lost in self.turns.lapse(now, PATIENCE) {
            hit(Probe::TurnLapsed);
            self.tell_lost((site.copy.shard, term.epoch), lost, out);
        }
        ran |= self.run_those_that_gave_way(term, site, out);
        let participant = &site.state.transactions.participant;
        let is_free = |footprint: &Footprint| participant.blocked_by(footprint).is_none();
        while let Some((_, lost)) = self.turns.next(are_freed, is_free) {
            hit(Probe::TurnTold);
            self.tell_lost((site.copy.shard, term.epoch), lost, out);
        }
        self.turns.lapse(now, PATIENCE); // the time of whose turn has come begins
        ran
    }

    /// The answer of the try that has lost leaves, once it is durable.
    fn tell_lost(&mut self, (shard, epoch): (ShardId, Epoch), lost: Option<Lost>, out: &mut Effects) {
        let Some(Lost { rpc, end }) = lost else { return };
        let when = Gate::Flushed { shard, position: LogPosition { epoch, offset: end } };
        let result = [OutcomeCode::Conflict as u8];
        self.transacting.waiting.answer((shard, epoch, rpc), (&result, true), (None, when), out);
    }

    /// Whether it gave way, and comes in again in this turn of the loop.
    pub(super) fn is_let_through(&self, rpc: RpcId) -> bool {
        self.let_through.iter().any(|parked| parked.rpc == rpc)
    }

    fn run_those_that_gave_way(&mut self, term: &mut Term, site: &mut Site<'_>, out: &mut Effects) -> bool {
        let mut ran = false;
        for _ in 0..self.parking.len() {
            let turns = &self.turns;
            let is_free = |waits_for| matches!(waits_for, WaitsFor::Turn(elder) if !turns.has(elder));
            let Some(mut parked) = self.parking.take(is_free) else { break };
            // Who has lost before goes by its age, and ends. Others would wait for one after the other.
            parked.caller.gave_way = parked.caller.envelope.turn.is_none();
            ran = true;
            self.run_parked(term, site, &parked, out);
        }
        ran
    }
}
