//! The properties of model (a): E1, E2, D1, C3, R2.2 and T3. They must hold in every state.

use stateright::Property;

use crate::updates::program::Kind;
use crate::updates::rules::Rule;
use crate::updates::state::{CallIx, Outcome, Stage, State, Term, TermStage};
use crate::updates::{Updates, program::Plan};

/// All properties, with their names.
pub fn all() -> Vec<Property<Updates>> {
    vec![
        Property::always("E1: an update runs once", |model: &Updates, state: &State| {
            state.terms.iter().all(|term| model.runs_once(term))
        }),
        Property::always("E1, R4.9: an operation key runs one action", |model: &Updates, state: &State| {
            state.terms.iter().all(|term| model.key_runs_once(term))
        }),
        Property::always("D1: no acknowledged update is lost", |model: &Updates, state: &State| {
            let holds = |call| authority(state).is_none_or(|term| model.is_held(term, call));
            model.acknowledged(state).all(|(call, _)| holds(call))
        }),
        Property::always("E2: a result, once told, never changes", |model: &Updates, state: &State| {
            model.acknowledged(state).all(|(call, told)| {
                let record = authority(state).and_then(|term| term.record(call));
                record.is_none_or(|(_, record)| record.outcome == told)
            })
        }),
        Property::always("R2.2: what is reported as not executed never runs", |model: &Updates, state: &State| {
            let is_over = |call: &CallIx| state.call(*call).stage == Stage::NotExecuted || state.call(*call).told_over;
            let ran = |call| authority(state).and_then(|term| term.record(call)).is_some_and(|(_, r)| r.executed);
            model.all_calls().filter(is_over).all(|call| !ran(call))
        }),
        Property::always(
            "C3: no update can complete on a list that recovery did not read",
            |model: &Updates, state| model.all_calls().all(|call| model.is_held_where_it_completes(state, call)),
        ),
        Property::always("T3: what clients saw is linearizable", |model: &Updates, state: &State| {
            model.is_linearizable(state)
        }),
    ]
}

/// The term that counts for the shard: it has replayed its log and its witness, or it serves.
fn authority(state: &State) -> Option<&Term> {
    let term = state.newest();
    match term.stage {
        TermStage::Witnessing => None,
        TermStage::Syncing | TermStage::Serving => Some(term),
    }
}

impl Updates {
    fn all_calls(&self) -> impl Iterator<Item = CallIx> + use<> {
        0..self.program.calls.len() as u8
    }

    /// Updates that were reported as executed, with the reported result.
    fn acknowledged<'s>(&'s self, state: &'s State) -> impl Iterator<Item = (CallIx, Outcome)> + 's {
        self.all_calls().filter(|&call| self.plan(call).kind == Kind::Increment).filter_map(|call| {
            match state.call(call).stage {
                Stage::Executed(outcome) => Some((call, outcome)),
                Stage::Waiting | Stage::Running | Stage::NotExecuted | Stage::Unknown => None,
            }
        })
    }

    /// Whether the record of the call is in the term's log, or, for a hit of an operation key, at least the record that
    /// it repeats.
    fn is_held(&self, term: &Term, call: CallIx) -> bool {
        let plan = self.plan(call);
        let repeats = |other: &Plan| plan.once.is_some() && other.once.is_some() && other.key == plan.key;
        let is_its = |other: CallIx| other == call || repeats(self.plan(other));
        term.records().any(|(_, record)| is_its(record.call))
    }

    fn runs_once(&self, term: &Term) -> bool {
        let mut seen = 0u8;
        term.records().all(|(_, record)| {
            let bit = 1 << record.call;
            let is_first = seen & bit == 0;
            seen |= bit;
            is_first
        })
    }

    /// A later action may run under the same operation key only if the key's time to live was over.
    fn key_runs_once(&self, term: &Term) -> bool {
        let mut until = None;
        term.records().filter(|(_, record)| record.executed).all(|(_, record)| {
            let Some(not_after) = self.plan(record.call).once else { return true };
            let is_right = until.is_none_or(|until| not_after > until);
            until = Some(not_after);
            is_right
        })
    }

    /// A client that can complete on the fast path, now or after messages that may still arrive, gets the right result.
    fn is_held_where_it_completes(&self, state: &State, call: CallIx) -> bool {
        let about_lists = [Rule::ListClosedFirst, Rule::ListSynced, Rule::ListChecked];
        if self.off.is_some_and(|off| !about_lists.contains(&off)) {
            return true; // what a client is told shows better what the other rules are for
        }
        let this = state.call(call);
        let list = this.current.list();
        let Some(told) = this.answers[usize::from(list)].filter(|_| list != 0) else { return true };
        let accepted = this.accepted[usize::from(list)].count_ones() == u32::from(self.program.faults);
        let is_superseded = list < state.list();
        let record = authority(state).and_then(|term| term.record(call));
        !accepted || !is_superseded || authority(state).is_none() || record.is_some_and(|(_, r)| r.outcome == told)
    }

    /// Whether some order of the calls explains the results that clients were told. A call that ended before another
    /// began must come first.
    pub fn is_linearizable(&self, state: &State) -> bool {
        if self.program.hours > 0 {
            return true; // when a key expires is not seen from outside; R4.9's property judges these programs
        }
        let executed: u8 = (self.all_calls())
            .filter(|&call| matches!(state.call(call).stage, Stage::Executed(_)))
            .map(|call| 1 << call)
            .sum();
        executed.count_ones() < 2 && !self.has_odd_result(state) || self.explains(state, executed, &mut Vec::new())
    }

    fn has_odd_result(&self, state: &State) -> bool {
        state
            .calls
            .iter()
            .any(|call| !matches!(call.stage, Stage::Executed(Outcome::Count(0 | 1)) | Stage::Waiting | Stage::Running))
    }

    /// Extends `order` by one call that may come next, until all in `wanted` are in it.
    fn explains(&self, state: &State, wanted: u8, order: &mut Vec<CallIx>) -> bool {
        if wanted == 0 {
            return true;
        }
        for call in self.all_calls().filter(|call| !order.contains(call)).collect::<Vec<_>>() {
            let this = state.call(call);
            let told = match this.stage {
                Stage::Executed(outcome) => Some(outcome),
                Stage::Running | Stage::Unknown => None,
                Stage::Waiting | Stage::NotExecuted => continue,
            };
            let comes_too_early = this.before & wanted != 0;
            if comes_too_early || told.is_some_and(|told| told != self.result_after(order, call)) {
                continue;
            }
            order.push(call);
            if self.explains(state, wanted & !(1 << call), order) {
                return true;
            }
            order.pop();
        }
        false
    }

    /// The result of a call after the calls in `order`, one after the other.
    fn result_after(&self, order: &[CallIx], call: CallIx) -> Outcome {
        let plan = self.plan(call);
        let ran = |at: usize| {
            let earlier = order[..at].iter().any(|&before| self.plan(before).once.is_some());
            let this = self.plan(order[at]);
            this.kind == Kind::Increment && !(this.once.is_some() && earlier)
        };
        let counted =
            |key: &str, upto: usize| (0..upto).filter(|&at| self.plan(order[at]).key == key && ran(at)).count() as u8;
        let used = order.iter().position(|&before| self.plan(before).once.is_some());
        match (plan, used) {
            (Plan { kind: Kind::Read, .. }, _) => Outcome::Count(counted(plan.key, order.len())),
            (Plan { once: Some(_), .. }, Some(used)) if self.plan(order[used]).key == plan.key => {
                Outcome::Count(counted(plan.key, used) + 1)
            }
            (Plan { once: Some(_), .. }, Some(_)) => Outcome::Mismatch,
            (Plan { .. }, _) => Outcome::Count(counted(plan.key, order.len()) + 1),
        }
    }
}
