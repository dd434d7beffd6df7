//! Turns of those that have lost to others (0047), once a turn of the loop: whose turn has come is told, and what gave way comes in
//! again.

use std::time::Duration;

use kasha_machine::{Effects, Gate};
use kasha_transaction::{Footprint, Lost};
use kasha_types::probe::{Probe, hit};
use kasha_types::{LogPosition, RpcId, Tick};
use kasha_wire::OutcomeCode;

use super::{Serving, WaitsFor};
use crate::primary::Term;
use crate::replica::Site;

/// How long those that are younger wait for one that was told that its turn has come: a round trip and the busiest moment of its machine.
/// A client that is dead costs them this.
const TURN: Duration = Duration::from_millis(25);
/// The same for one that reads before it comes.
const TURN_OF_READER: Duration = Duration::from_millis(50);

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
        for _ in 0..self.turns.lapse(now, |reads_first| if reads_first { TURN_OF_READER } else { TURN }) {
            hit(Probe::TurnLapsed);
        }
        ran |= self.run_those_that_gave_way(term, site, out);
        let (shard, epoch) = (site.copy.shard, term.epoch);
        let participant = &site.state.transactions.participant;
        let is_free = |footprint: &Footprint| participant.blocked_by(footprint).is_none();
        while let Some((_, lost)) = self.turns.next(are_freed, is_free) {
            hit(Probe::TurnTold);
            if let Some(Lost { rpc, end }) = lost {
                let when = Gate::Flushed { shard, position: LogPosition { epoch, offset: end } };
                let result = [OutcomeCode::Conflict as u8];
                self.transacting.waiting.answer((shard, epoch, rpc), (&result, true), (None, when), out);
            }
        }
        self.turns.lapse(now, |reads_first| if reads_first { TURN_OF_READER } else { TURN });
        ran
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
