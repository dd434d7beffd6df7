//! Turns of those that have lost to others (0047), once a turn of the loop: whose turn has come is told, and what gave way comes in
//! again.

use std::time::Duration;

use kasha_distributed::{Footprint, Lost, Patience};
use kasha_machine::{Effects, Gate};
use kasha_types::probe::{Probe, hit};
use kasha_types::{Epoch, LogPosition, ShardId, Tick};
use kasha_wire::OutcomeCode;

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
        !self.turns.is_empty() || self.waiting.has_those_that_gave_way()
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
        for lost in self.turns.lapse(now, PATIENCE) {
            hit(Probe::TurnLapsed);
            self.tell_lost((site.copy.shard, term.epoch), lost, out);
        }
        let mut ran = false;
        for _ in 0..self.waiting.updates() {
            if !self.waiting.let_first_through(|elder| !self.turns.has(elder)) {
                break;
            }
            ran |= self.run_ready(term, site, now, out);
        }
        let participant = &site.state.distributed.participant;
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
        self.answer((shard, epoch, rpc), (&result, true), (None, when), out);
    }
}
