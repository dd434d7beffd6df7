//! Which actions are possible in a state. An action that would change nothing is left out where that is easy to see.

use crate::orders;
use crate::updates::primary::{Found, Origin};
use crate::updates::program::Kind;
use crate::updates::rules::Rule;
use crate::updates::state::{Attempt, CALLS_MAX, CallIx, LISTS_MAX, Lease, Stage, State, TERMS_MAX, Term, TermStage};
use crate::updates::{Action, Updates};

impl Updates {
    fn calls(&self) -> impl Iterator<Item = CallIx> + use<> {
        0..self.program.calls.len() as u8
    }

    fn all_witnesses(&self) -> u8 {
        (1 << self.program.faults) - 1
    }

    pub(super) fn client_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for call in self.calls() {
            match state.call(call).stage {
                Stage::Waiting => {
                    let is_free = |before: u8| !matches!(state.call(before).stage, Stage::Waiting | Stage::Running);
                    let has_lease = self.plan(call).client != 1 || state.lease != Lease::Over;
                    if has_lease && self.plan(call).after.is_none_or(is_free) {
                        self.attempts(state, call, actions);
                    }
                }
                Stage::Running => {
                    self.attempts(state, call, actions);
                    self.ends(state, call, actions);
                }
                Stage::Executed(_) | Stage::NotExecuted | Stage::Unknown => {}
            }
        }
    }

    /// A client's configuration may be any that was committed, but never becomes older.
    fn attempts(&self, state: &State, call: CallIx, actions: &mut Vec<Action>) {
        let this = state.call(call);
        let newest = state.sent(call).map(|attempt| attempt.list()).max().unwrap_or(0);
        let mut push = |attempt: Attempt| actions.push(Action::StartUpdate { call, attempt });
        if !this.cancelled {
            (newest + 1..=state.list()).map(Attempt).for_each(&mut push);
        }
        let bare = Attempt::without_list(state.epoch());
        if (state.closing && state.serving || this.cancelled) && this.sent & 1 << bare.0 == 0 {
            push(bare);
        }
        if !self.keeps(Rule::BodyFrozen) && state.lease == Lease::Back && this.lease == 1 && newest > 0 {
            push(Attempt(newest));
        }
        if self.plan(call).may_cancel && !this.cancelled && newest > 0 {
            actions.push(Action::Cancel { call });
        }
    }

    /// The actions that may end a call.
    fn ends(&self, state: &State, call: CallIx, actions: &mut Vec<Action>) {
        let this = state.call(call);
        let list = this.current.list();
        let accepted = this.accepted[usize::from(list)];
        let enough = if self.keeps(Rule::AllAccept) { accepted == self.all_witnesses() } else { accepted != 0 };
        let answered = |list: &u8| this.answers[usize::from(*list)].is_some();
        let answers = |list: u8| if self.keeps(Rule::AttemptsApart) { list..=list } else { 1..=list };
        if list != 0 && enough {
            actions.extend(answers(list).filter(answered).map(|list| Action::OnAnswer { call, list }));
        }
        for epoch in 1..=state.epoch() {
            let term = state.term(epoch);
            let Some((at, record)) = term.record(call) else {
                self.end_unrecorded(state, call, epoch, actions);
                continue;
            };
            if self.is_told_as_synced(state, term, at) && state.sent(call).any(|sent| state.epoch_of(sent) == epoch) {
                actions.push(Action::OnSyncedAnswer { call, epoch });
            }
            // While the rule is switched on, this says the same as the gated answer.
            let is_other = |list: &u8| this.answers[usize::from(*list)].is_some_and(|told| told != record.outcome);
            if !self.keeps(Rule::SyncOfItsEpoch) && at < term.synced {
                actions.extend((1..=list).filter(is_other).map(|list| Action::OnSynced { call, list, epoch }));
            }
        }
        if let Some((_, epoch, until)) = this.read
            && state.term(epoch).synced >= until
        {
            actions.push(Action::OnReadSynced { call });
        }
        if !self.keeps(Rule::RefusalNoOutcome) && state.sent(call).any(|sent| self.is_refused(state, sent)) {
            actions.push(Action::OnRefused { call });
        }
    }

    /// A hit of an operation key that left no record is answered with the key's result when that is synced.
    fn end_unrecorded(&self, state: &State, call: CallIx, epoch: u8, actions: &mut Vec<Action>) {
        let term = state.term(epoch);
        let arrives = term.stage == TermStage::Serving && state.sent(call).any(|sent| state.epoch_of(sent) == epoch);
        if !self.keeps(Rule::HitRecorded) && arrives && self.unrecorded_hit(state, term, call).is_some() {
            actions.push(Action::OnHit { call, epoch });
        }
    }

    /// D3: an answer that is gated leaves when its record is synced, in its own term (R3.1).
    fn is_told_as_synced(&self, state: &State, term: &Term, at: u8) -> bool {
        let newest = state.newest();
        let leaks = !self.keeps(Rule::HeldDropped) && term.deposed && at < newest.synced;
        term.stage == TermStage::Serving && (at < term.synced || leaks)
    }

    fn is_refused(&self, state: &State, attempt: Attempt) -> bool {
        let term = state.term(state.epoch_of(attempt));
        term.stage != TermStage::Serving || attempt.list() != 0 && attempt.list() != term.list
    }

    /// Requests and records that may arrive.
    pub(super) fn network_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for call in self.calls() {
            let kind = self.plan(call).kind;
            for attempt in state.sent(call) {
                let epoch = state.epoch_of(attempt);
                let term = state.term(epoch);
                let is_ours =
                    [0, term.list].contains(&attempt.list()) || !self.keeps(Rule::ListChecked) && term.list != 0;
                let serves = term.stage == TermStage::Serving && is_ours && self.has_room(term);
                match kind {
                    Kind::Increment if serves => actions.push(Action::OnRequest { call, attempt }),
                    Kind::Read if serves && state.call(call).stage == Stage::Running => {
                        actions.push(Action::OnRead { call, epoch });
                    }
                    Kind::Increment | Kind::Read => {}
                }
                if attempt.list() != 0 && kind == Kind::Increment && !self.is_last_list(attempt.list()) {
                    let to = |witness| Action::OnRecord { call, list: attempt.list(), witness };
                    actions.extend((0..self.program.faults).map(to));
                }
            }
        }
    }

    pub(super) fn primary_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for epoch in 1..=state.epoch() {
            let term = state.term(epoch);
            match term.stage {
                TermStage::Witnessing => {}
                TermStage::Syncing if term.synced < term.end() && !term.deposed => {
                    actions.push(Action::Advance { epoch, to: term.end() });
                }
                TermStage::Syncing => {}
                TermStage::Serving => {
                    if !term.deposed {
                        let from = if self.is_last_list(term.list) {
                            term.end().max(term.synced + 1)
                        } else {
                            term.synced + 1
                        };
                        actions.extend((from..=term.end()).map(|to| Action::Advance { epoch, to }));
                    }
                    self.garbage(state, epoch, actions);
                    if self.program.leases && self.may_expire(term) && self.has_room(term) {
                        actions.push(Action::OnLeaseVerdict { epoch });
                    }
                }
            }
        }
    }

    /// Whether the tracker knows client 1, and believes that its lease is over.
    fn may_expire(&self, term: &Term) -> bool {
        let of_client_1 =
            || term.records().filter(|(at, record)| *at >= term.forgotten && self.plan(record.call).client == 1);
        term.floor().is_none() && of_client_1().count() > 0 && of_client_1().all(|(_, record)| record.lease == 1)
    }

    fn garbage(&self, state: &State, epoch: u8, actions: &mut Vec<Action>) {
        let term = state.term(epoch);
        for (list, of) in (1..).zip(&state.lists).filter(|(_, of)| of.epoch == epoch) {
            for witness in 0..self.program.faults {
                let there = &of.witnesses[usize::from(witness)];
                let ever_accepted = self.ever_accepted(state, list, witness);
                for call in self.calls() {
                    let bit = 1 << call;
                    if there.held & bit != 0 && !there.frozen && self.may_collect(state, term, call) {
                        actions.push(Action::OnGc { epoch, call, list, witness });
                    }
                    if self.program.suspects && ever_accepted & bit != 0 && self.has_room(term) && term.list == list {
                        actions.push(Action::OnSuspect { call, epoch });
                    }
                }
            }
        }
    }

    fn may_collect(&self, state: &State, term: &Term, call: CallIx) -> bool {
        let too_early = match self.look_up(state, term, term.end(), call, Origin::Suspect) {
            Found::Completed(_) => !self.keeps(Rule::GcAfterSync),
            Found::Stale => !self.keeps(Rule::SuspectAfterSync),
            Found::New | Found::Expired => false,
        };
        too_early || self.is_settled(state, term, term.synced, call)
    }

    pub(super) fn cluster_actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.list_actions(state, actions);
        if usize::from(self.program.terms) > state.terms.len() && state.terms.len() < TERMS_MAX {
            self.promotions(state, actions);
        }
        self.recovery_actions(state, actions);
        if self.program.leases && state.lease == Lease::Over {
            actions.push(Action::LeaseBack);
        }
        if state.time < self.program.hours {
            actions.push(Action::Tick);
        }
        for (list, of) in (1..).zip(&state.lists) {
            for witness in 0..self.program.faults {
                let there = &of.witnesses[usize::from(witness)];
                if state.restarts > 0
                    && !there.power_lost
                    && self.ever_accepted(state, list, witness) & !there.held != 0
                {
                    actions.push(Action::Restart { list, witness });
                }
                if state.power_losses > 0 && list == state.list() {
                    actions.push(Action::LosePower { list, witness });
                }
            }
        }
    }

    fn list_actions(&self, state: &State, actions: &mut Vec<Action>) {
        if !state.serving || state.newest().stage != TermStage::Serving {
            return;
        }
        let term = state.newest();
        let has_room = state.lists.len() < LISTS_MAX;
        let may_change = state.list_changes > 0 && !state.closing && has_room;
        if may_change && self.keeps(Rule::ListClosedFirst) {
            actions.push(Action::CloseList);
        } else if may_change {
            actions.push(Action::OpenList);
        }
        if state.closing && term.list != 0 {
            actions.push(Action::ObeyClosing);
        }
        let is_closed = term.closing_at.is_some_and(|at| term.synced >= at || !self.keeps(Rule::ListSynced));
        if state.closing && is_closed && has_room {
            actions.push(Action::OpenList);
        }
        if !state.closing && term.list != state.list() {
            actions.push(Action::ObeyOpened);
        }
    }

    /// A new primary takes over a log that holds everything that was synced in the last term that served, or what a
    /// recovery since then has made of such a log.
    fn promotions(&self, state: &State, actions: &mut Vec<Action>) {
        let served = (1..=state.epoch()).rev().find(|&epoch| state.term(epoch).stage == TermStage::Serving);
        let served = served.expect("the first term served");
        let term = state.term(served);
        actions.extend((term.synced..=term.end()).map(|end| Action::Promote { from: served, end }));
        for from in served + 1..=state.epoch() {
            let term = state.term(from);
            actions.extend((term.base + 1..=term.end()).map(|end| Action::Promote { from, end }));
        }
    }

    fn recovery_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let term = state.newest();
        match term.stage {
            TermStage::Witnessing => {
                for (witness, there) in (0..self.program.faults).zip(&state.lists[state.lists.len() - 1].witnesses) {
                    if !there.power_lost || !self.keeps(Rule::PowerLostUnsure) {
                        let replayed = |order| Action::OnWitnessHolds { witness, order };
                        actions.extend(
                            orders((0..CALLS_MAX as CallIx).filter(|call| there.held & 1 << call != 0))
                                .into_iter()
                                .map(replayed),
                        );
                    }
                }
                if !self.keeps(Rule::WitnessAwaited) {
                    actions.push(Action::SkipWitness);
                }
            }
            TermStage::Syncing if term.synced == term.end() && state.lists.len() < LISTS_MAX => {
                actions.push(Action::Recovered);
            }
            TermStage::Syncing | TermStage::Serving => {}
        }
    }
}
