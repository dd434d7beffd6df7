//! The effect of each action on a state, with the rules that are switched on. An action that changes nothing is not
//! possible.

use crate::updates::primary::{Origin, Ran, Refusal};
use crate::updates::rules::Rule;
use crate::updates::state::{
    Attempt, CallIx, Entry, Lease, Outcome, Record, Stage, State, Term, TermStage, Witness, WitnessList,
};
use crate::updates::{Action, Updates};

impl Updates {
    /// Applies an action to a state. Returns false if it changes nothing.
    pub fn step(&self, state: &mut State, action: &Action) -> bool {
        match *action {
            Action::StartUpdate { call, attempt } => self.start_update(state, call, attempt),
            Action::OnAnswer { call, list } => {
                let Some(outcome) = state.call(call).answers[usize::from(list)] else { return false };
                end(state, call, outcome)
            }
            Action::OnSyncedAnswer { call, epoch } => {
                let Some((_, record)) = state.term(epoch).record(call) else { return false };
                end(state, call, record.outcome)
            }
            Action::OnSynced { call, list, .. } => {
                let Some(outcome) = state.call(call).answers[usize::from(list)] else { return false };
                end(state, call, outcome)
            }
            Action::OnHit { call, epoch } => {
                let Some(outcome) = self.unrecorded_hit(state, state.term(epoch), call) else { return false };
                end(state, call, outcome)
            }
            Action::OnRefused { call } => finish(state, call, Stage::NotExecuted),
            Action::Cancel { call } => !std::mem::replace(&mut state.call_mut(call).cancelled, true),
            Action::OnRequest { call, attempt } => self.on_request(state, call, attempt),
            Action::OnRead { call, epoch } => self.on_read(state, call, epoch),
            Action::OnReadSynced { call } => {
                let Some((value, ..)) = state.call(call).read else { return false };
                end(state, call, Outcome::Count(value))
            }
            Action::OnRecord { call, list, witness } => self.on_record(state, call, list, witness),
            Action::Advance { epoch, to } => self.advance(state, epoch, to),
            Action::OnGc { call, list, witness, .. } => {
                let held = &mut self.witness(state, list, witness).held;
                let before = *held;
                *held &= !(1 << call);
                *held != before
            }
            Action::OnSuspect { call, epoch } => {
                let before = state.term(epoch).end();
                self.run(state, epoch, call, Origin::Suspect, false);
                state.term(epoch).end() != before
            }
            Action::CloseList | Action::ObeyClosing | Action::OpenList | Action::ObeyOpened => {
                self.change_list(state, action)
            }
            Action::Promote { from, end } => self.promote(state, from, end),
            Action::OnWitnessHolds { witness, ref order } => self.on_witness_holds(state, witness, order),
            Action::SkipWitness => self.on_witness_holds(state, u8::MAX, &[]),
            Action::Recovered => self.recovered(state),
            Action::OnLeaseVerdict { epoch } => self.on_lease_verdict(state, epoch),
            Action::LeaseBack => std::mem::replace(&mut state.lease, Lease::Back) != Lease::Back,
            Action::Tick => {
                state.time += 1;
                true
            }
            Action::Restart { list, witness } => {
                state.restarts -= 1;
                let accepted = self.ever_accepted(state, list, witness);
                let witness = self.witness(state, list, witness);
                let before = witness.held;
                witness.held |= accepted;
                witness.held != before
            }
            Action::LosePower { list, witness } => {
                state.power_losses -= 1;
                let witness = self.witness(state, list, witness);
                (witness.held, witness.power_lost) = (0, true);
                true
            }
        }
    }

    fn witness<'s>(&self, state: &'s mut State, list: u8, witness: u8) -> &'s mut Witness {
        &mut state.lists[usize::from(list) - 1].witnesses[usize::from(witness)]
    }

    /// The updates that a witness has said it accepted.
    pub fn ever_accepted(&self, state: &State, list: u8, witness: u8) -> u8 {
        let accepted = |call: &crate::updates::state::Call| call.accepted[usize::from(list)] & 1 << witness != 0;
        (0..).zip(&state.calls).filter(|(_, call)| accepted(call)).map(|(call, _)| 1 << call).sum()
    }

    fn start_update(&self, state: &mut State, call: CallIx, attempt: Attempt) -> bool {
        let plan = self.plan(call);
        let is_executed = |stage: &Stage| matches!(stage, Stage::Executed(_));
        let before = (0..).zip(&state.calls).filter(|(_, c)| is_executed(&c.stage)).map(|(c, _)| 1 << c).sum();
        let ended = |client: u8, sequence: u8| {
            let of_client = |(other, call): (&crate::updates::program::Plan, &crate::updates::state::Call)| {
                let is_it = (other.client, other.sequence) == (client, sequence);
                is_it && !matches!(call.stage, Stage::Waiting | Stage::Running)
            };
            self.program.calls.iter().zip(&state.calls).any(of_client)
        };
        let acknowledgement = 1 + (1..).take_while(|&sequence| ended(plan.client, sequence)).count() as u8;
        let lease = if plan.client == 1 && state.lease == Lease::Back { 2 } else { 1 };
        let this = state.call_mut(call);
        if this.stage == Stage::Waiting {
            (this.stage, this.before, this.acknowledgement, this.lease) =
                (Stage::Running, before, acknowledgement, lease);
        } else if !self.keeps(Rule::BodyFrozen) {
            this.lease = lease;
        }
        this.sent |= 1 << attempt.0;
        this.current = attempt;
        true
    }

    fn on_request(&self, state: &mut State, call: CallIx, attempt: Attempt) -> bool {
        let epoch = state.epoch_of(attempt);
        let cancel = attempt.list() == 0 && state.call(call).cancelled;
        let before = state.term(epoch).end();
        match self.run(state, epoch, call, Origin::Client, cancel) {
            Ran::Recorded { outcome, at_once } => {
                let answer = &mut state.call_mut(call).answers[usize::from(attempt.list())];
                let speaks = at_once && attempt.list() != 0 && answer.is_none() && !self.is_last_list(attempt.list());
                if speaks {
                    *answer = Some(outcome);
                }
                speaks && state.call(call).stage == Stage::Running || state.term(epoch).end() != before
            }
            Ran::Refused(Refusal::Expired) => {
                let term = state.term(epoch);
                let (at, _) = term.floor().expect("it refused");
                let is_told = at < term.synced.max(term.base) || !self.keeps(Rule::FloorRefusalSynced);
                let never_ran = state.terms.iter().all(|term| term.record(call).is_none());
                if is_told && state.call(call).stage == Stage::Running {
                    state.call_mut(call).told_over = never_ran;
                    return finish(state, call, Stage::Unknown);
                }
                false
            }
            Ran::Completed | Ran::Refused(Refusal::Stale) => false,
            // The operation key may have been dropped by this step.
            Ran::Refused(Refusal::Unprovable) => state.term(epoch).end() != before,
        }
    }

    fn on_read(&self, state: &mut State, call: CallIx, epoch: u8) -> bool {
        let Some((value, waits)) = self.read(state, epoch, call) else { return false };
        let until = state.term(epoch).end();
        if waits {
            state.call_mut(call).read.replace((value, epoch, until)) != Some((value, epoch, until))
        } else {
            end(state, call, Outcome::Count(value))
        }
    }

    fn on_record(&self, state: &mut State, call: CallIx, list: u8, witness: u8) -> bool {
        let conflicts = self.conflicts(call);
        let freezes = self.keeps(Rule::Frozen);
        let this = self.witness(state, list, witness);
        if this.frozen && freezes || this.held & conflicts != 0 {
            return false;
        }
        let was_held = this.held;
        this.held |= 1 << call;
        let now_held = this.held;
        let accepted = &mut state.call_mut(call).accepted[usize::from(list)];
        let was_accepted = *accepted;
        *accepted |= 1 << witness;
        now_held != was_held || *accepted != was_accepted
    }

    fn advance(&self, state: &mut State, epoch: u8, to: u8) -> bool {
        let spares = self.keeps(Rule::FloorSparesRevived);
        let term = state.term_mut(epoch);
        term.synced = to;
        if let Some((at, _)) = term.floor().filter(|&(at, _)| at < to && at >= term.base)
            && term.forgotten <= at
        {
            // R4.6: now the records may be dropped. Records behind the floor's entry are those of a client that came
            // back.
            term.forgotten = if spares { at + 1 } else { term.end() };
        }
        true
    }

    fn change_list(&self, state: &mut State, action: &Action) -> bool {
        let (epoch, list) = (state.epoch(), state.list());
        match action {
            Action::CloseList => {
                state.list_changes -= 1;
                state.closing = true;
            }
            Action::ObeyClosing => {
                let term = state.term_mut(epoch);
                (term.list, term.closing_at) = (0, Some(term.end()));
            }
            Action::OpenList => {
                if !state.closing {
                    state.list_changes -= 1; // the rule is broken
                }
                state.closing = false;
                state.lists.push(WitnessList { epoch, witnesses: Default::default() });
            }
            _ => {
                let term = state.term_mut(epoch);
                (term.list, term.closing_at) = (list, None);
            }
        }
        true
    }

    /// Commits a new term, whose primary fences its members, takes a log and replays it (section 7, steps 1 to 3).
    fn promote(&self, state: &mut State, from: u8, end: u8) -> bool {
        let mut log: arrayvec::ArrayVec<Entry, { crate::updates::state::LOG_MAX }> = Default::default();
        log.try_extend_from_slice(&state.term(from).log[..usize::from(end)]).expect("no longer than it was");
        for entry in &mut log {
            if let Entry::Record(Record { acknowledgement, stored, .. }) = entry {
                *acknowledgement = *stored;
            }
        }
        for term in &mut state.terms {
            term.deposed = true;
        }
        (state.serving, state.closing) = (false, false);
        let mut term = Term {
            stage: TermStage::Witnessing,
            log,
            base: end,
            synced: 0,
            deposed: false,
            list: 0,
            closing_at: None,
            forgotten: 0,
        };
        term.forgotten = term.floor().map_or(0, |(at, _)| at + 1);
        state.terms.push(term);
        true
    }

    /// A witness is frozen, and what it holds goes through `look_up` (step 4).
    fn on_witness_holds(&self, state: &mut State, witness: u8, order: &[CallIx]) -> bool {
        let (epoch, list) = (state.epoch(), state.list());
        if witness != u8::MAX {
            self.witness(state, list, witness).frozen = true;
        }
        for &call in order {
            self.run(state, epoch, call, Origin::Replay, false);
        }
        state.term_mut(epoch).stage = TermStage::Syncing;
        true
    }

    /// The coordinator commits that the new primary serves, under a fresh list (step 5).
    fn recovered(&self, state: &mut State) -> bool {
        let epoch = state.epoch();
        state.lists.push(WitnessList { epoch, witnesses: Default::default() });
        state.serving = true;
        let list = state.list();
        let term = state.term_mut(epoch);
        (term.stage, term.list) = (TermStage::Serving, list);
        true
    }

    fn on_lease_verdict(&self, state: &mut State, epoch: u8) -> bool {
        if state.lease == Lease::Held {
            state.lease = Lease::Over;
        }
        let logs = self.keeps(Rule::FloorLogged);
        let term = state.term_mut(epoch);
        if logs {
            term.log.push(Entry::Floor(1));
        } else {
            term.forgotten = term.end();
        }
        true
    }
}

/// A recorded outcome is durable, and its caller learns of it.
fn end(state: &mut State, call: CallIx, outcome: Outcome) -> bool {
    let stage = if outcome == Outcome::Cancelled { Stage::NotExecuted } else { Stage::Executed(outcome) };
    finish(state, call, stage)
}

fn finish(state: &mut State, call: CallIx, stage: Stage) -> bool {
    let this = state.call_mut(call);
    (this.stage, this.current, this.answers, this.read) = (stage, Attempt::NONE, Default::default(), None);
    true
}
