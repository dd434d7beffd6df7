//! Reductions: fewer states that mean the same.
//!
//! - `forget`: facts that can never matter any more are cleared. An answer to an attempt that its client has given up
//!   does not count (R2.1). The witnesses that accepted an ended call matter only to suspects and restarts.
//! - `canonical`: two witnesses of one list are interchangeable, and so are two clients that do the same. One state
//!   stands for all states that differ only in their names.
//! - [`Updates::is_last_list`]: nobody reads what witnesses hold under the last list that a program can reach. A term
//!   of that list answers when it has synced, so no earlier answer can be lost.
//!
//! The last two are for the search with all rules: in a counterexample the names should stay as they are. The large
//! bounds search without the third.

use crate::updates::Updates;
use crate::updates::rules::Rule;
use crate::updates::state::{CallIx, Entry, Stage, State, Term, WitnessList};

impl Updates {
    /// No recovery and no change of the list can follow, so nobody reads what this list's witnesses hold.
    pub fn is_last_list(&self, list: u8) -> bool {
        let last = self.program.terms + self.program.list_changes;
        self.thrift.last_list && list == last && last > 1
    }

    pub(super) fn forget(&self, state: &mut State) {
        let remembers = self.program.suspects || self.program.restarts > 0;
        let apart = self.keeps(Rule::AttemptsApart) && self.keeps(Rule::SyncOfItsEpoch);
        for call in &mut state.calls {
            let current = match call.stage {
                Stage::Running => usize::from(call.current.list()),
                Stage::Waiting | Stage::Executed(_) | Stage::NotExecuted | Stage::Unknown => 0,
            };
            for list in (1..call.answers.len()).filter(|list| apart && *list != current) {
                call.answers[list] = None;
                if !remembers {
                    call.accepted[list] = 0;
                }
            }
        }
    }

    pub(super) fn canonical(&self, state: &mut State) {
        if self.program.faults == 2 {
            for list in 1..=state.lists.len() {
                let accepted = |bit: u8| -> u8 {
                    let has =
                        |(at, call): (CallIx, &crate::updates::state::Call)| (call.accepted[list] >> bit & 1) << at;
                    (0..).zip(&state.calls).map(has).sum()
                };
                let rank = |witness: usize, bit| {
                    let w = state.lists[list - 1].witnesses[witness];
                    (w.held, w.frozen, w.power_lost, accepted(bit))
                };
                if rank(0, 0) > rank(1, 1) {
                    state.lists[list - 1].witnesses.swap(0, 1);
                    for call in &mut state.calls {
                        let mask = call.accepted[list];
                        call.accepted[list] = mask >> 1 & 1 | (mask & 1) << 1;
                    }
                }
            }
        }
        if self.program.twins && state.calls[0] > state.calls[1] {
            swap_twins(state);
        }
    }
}

/// Exchanges calls 0 and 1.
fn swap_twins(state: &mut State) {
    let swap = |mask: u8| mask & !3 | mask >> 1 & 1 | (mask & 1) << 1;
    state.calls.swap(0, 1);
    for call in &mut state.calls {
        call.before = swap(call.before);
    }
    for Term { log, .. } in &mut state.terms {
        for entry in log {
            if let Entry::Record(record) = entry
                && record.call < 2
            {
                record.call ^= 1;
            }
        }
    }
    for WitnessList { witnesses, .. } in &mut state.lists {
        for witness in witnesses {
            witness.held = swap(witness.held);
        }
    }
}
