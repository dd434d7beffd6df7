//! Which actions are possible in a state.

use arrayvec::ArrayVec;

use crate::distributed::program::{Class, Forgets};
use crate::distributed::rules::Rule;
use crate::distributed::state::{Entry, Progress, Set, ShardIx, Stage, State, Timestamp, TxnIx, members};
use crate::distributed::{Action, Distributed};
use crate::orders;

impl Distributed {
    pub(super) fn client_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for txn in self.txns() {
            let plan = self.plan(txn);
            match state.txn(txn).stage {
                Stage::Waiting if plan.after.is_none_or(|after| state.txn(after).stage.is_over()) => {
                    actions.push(Action::Begin(txn));
                }
                Stage::Waiting => {}
                Stage::Running if plan.class == Class::Reads => self.read_actions(state, txn, actions),
                Stage::Running => {
                    self.requests(state, txn, actions);
                    self.answers(state, txn, actions);
                }
                Stage::Committed | Stage::Aborted(_) | Stage::NotCommitted => self.requests(state, txn, actions),
            }
            let call = state.txn(txn);
            let may_let_go = match self.program.forgets {
                Forgets::Nothing => false,
                Forgets::Acknowledged => call.stage.is_over(),
                Forgets::Expired => call.stage != Stage::Waiting,
            };
            if may_let_go && !call.is_let_go && self.program.forgotten & 1 << txn != 0 {
                actions.push(Action::LetGo(txn));
            }
        }
    }

    /// Requests that may arrive, whatever became of the call.
    fn requests(&self, state: &State, txn: TxnIx, actions: &mut Vec<Action>) {
        let plan = self.plan(txn);
        for part in plan.parts {
            let shard = part.shard;
            let there = state.shard(shard);
            let is_witnessed = plan.class == Class::Single && plan.writes() || self.is_recorded(txn);
            if is_witnessed && self.may_record(state, txn, shard) {
                actions.push(Action::OnRecord(txn, shard));
            }
            let is_late = state.txn(txn).stage.is_over() && plan.class == Class::Single && !plan.writes();
            if there.progress(txn) != Progress::New || there.log.is_full() || is_late {
                continue;
            }
            let floor = self.floor(there);
            let proposals = || {
                let ahead = if self.program.ahead_at & 1 << shard != 0 { self.program.ahead } else { 1 };
                (floor + 1..=floor + ahead).filter(move |at| [floor + 1, floor + ahead].contains(at))
            };
            match plan.class {
                Class::Single => {
                    let is_ahead = !self.keeps(Rule::WaitsForPending) && !self.is_locked(there, txn, shard);
                    if is_ahead || !self.waits(there, txn, shard) {
                        actions.push(Action::OnRequest(txn, shard, 0));
                    }
                }
                Class::Independent => {
                    if !self.keeps(Rule::LockAwaited) || !self.is_locked(there, txn, shard) {
                        actions.extend(proposals().map(|at| Action::OnRequest(txn, shard, at)));
                    }
                }
                Class::Coordinated | Class::Interactive => {
                    actions.extend(proposals().map(|at| Action::OnRequest(txn, shard, at)));
                }
                Class::Reads => {}
            }
        }
    }

    fn may_record(&self, state: &State, txn: TxnIx, shard: ShardIx) -> bool {
        let there = state.shard(shard);
        let is_held = |&held: &TxnIx| !there.is_synced(held) && self.conflicts(txn, held, shard);
        let may_have_crashed = self.is_recorded(txn) && self.program.crash_at & 1 << shard != 0;
        let is_used = self.program.witnesses && self.may_crash(state, shard) || may_have_crashed;
        is_used
            && there.witness & 1 << txn == 0
            && !there.is_synced(txn)
            && !members(there.witness).any(|held| is_held(&held))
    }

    fn answers(&self, state: &State, txn: TxnIx, actions: &mut Vec<Action>) {
        let plan = self.plan(txn);
        let votes = state.votes(txn);
        for shard in members(plan.participants()) {
            let there = state.shard(shard);
            let is_told = state.txn(txn).told[usize::from(shard)].is_some();
            if !is_told && self.may_answer(state, txn, shard) {
                actions.push(Action::Answer(txn, shard));
            }
            let aborts = |entry: &Entry| matches!(*entry, Entry::Abort(of, _) if of == txn);
            if there.is_synced(txn) && there.log.iter().any(aborts) {
                let is_open = self.gate_of_prepared(state, txn, shard) == 0;
                if is_open || !self.keeps(Rule::AbortGated) {
                    actions.push(Action::AnswerAbort(txn, shard));
                }
            }
        }
        let decided = |entry: &Entry| matches!(*entry, Entry::Abort(of, _) if of == txn);
        if members(votes.against).any(|shard| !state.shard(shard).log.iter().any(decided)) {
            actions.push(Action::AnswerConflict(txn));
        }
        if plan.locks() && votes.against == 0 && self.have_all_prepared(state, txn) {
            let older =
                (0..).zip(&votes.older).filter(|(_, said)| said.is_some()).map(|(shard, _)| 1 << shard).sum::<Set>();
            let subsets = (0..=older).filter(|some| some & !older == 0);
            actions.extend(subsets.map(|some| Action::AnswerPrepared(txn, some)));
        }
    }

    /// The result that a participant has may leave.
    fn may_answer(&self, state: &State, txn: TxnIx, shard: ShardIx) -> bool {
        let (plan, there) = (self.plan(txn), state.shard(shard));
        let Progress::Executed(executed) = there.progress(txn) else { return false };
        if there.gates[usize::from(txn)] != 0 {
            return false;
        }
        match plan.class {
            Class::Single if executed.is_read => self.saw_synced(there, txn, shard),
            Class::Single => there.is_synced(txn) || executed.is_fast && there.witness & 1 << txn != 0,
            // R8.1: what is durable is the proposal.
            Class::Independent | Class::Coordinated | Class::Interactive => true,
            Class::Reads => false,
        }
    }

    /// Every proposal is durable, and every gate is open.
    fn have_all_prepared(&self, state: &State, txn: TxnIx) -> bool {
        if self.is_recorded(txn) {
            return members(self.plan(txn).participants())
                .all(|shard| state.votes(txn).promised[usize::from(shard)].is_some());
        }
        members(self.plan(txn).participants()).all(|shard| {
            let is_open = self.gate_of_prepared(state, txn, shard) == 0 || !self.keeps(Rule::PreparedSettled);
            let is_there =
                !matches!(state.shard(shard).progress(txn), Progress::New | Progress::Against | Progress::Stale);
            state.votes(txn).proposed[usize::from(shard)] != 0 && is_open && is_there
        })
    }

    fn read_actions(&self, state: &State, txn: TxnIx, actions: &mut Vec<Action>) {
        let call = state.txn(txn);
        let is_told = |shard: u8| call.told[usize::from(shard)].is_some();
        let participants = || members(self.plan(txn).participants());
        let are_told = participants().all(is_told);
        for shard in participants().filter(|&shard| call.again & 1 << shard == 0) {
            match call.awaits[usize::from(shard)] {
                None if are_told || !self.keeps(Rule::SecondReadLate) => actions.push(Action::Ask(txn, shard)),
                Some(awaited) if are_told && !self.is_any_pending(state.shard(shard), awaited) => {
                    actions.push(Action::ReadAgain(txn, shard));
                }
                None | Some(_) => {}
            }
        }
        if are_told {
            return;
        }
        for shard in participants().filter(|&shard| !is_told(shard)) {
            let there = state.shard(shard);
            let is_open = self.gate_of_prepared(state, txn, shard) == 0 || !self.keeps(Rule::FirstReadGated);
            let is_synced = self.saw_synced(there, txn, shard) || !self.keeps(Rule::FirstReadSynced);
            if is_open && is_synced {
                actions.push(Action::Read(txn, shard));
            }
        }
    }

    pub(super) fn shard_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for shard in 0..self.program.shards {
            let there = state.shard(shard);
            if usize::from(there.synced) < there.log.len() {
                actions.push(Action::Advance(shard, there.synced + 1));
            }
            for txn in self.txns() {
                self.outcomes(state, txn, shard, actions);
                let forgets = self.program.forgets_at & 1 << shard != 0 && self.plan(txn).part(shard).is_some();
                if state.txn(txn).is_let_go && forgets {
                    self.forgetting(state, txn, shard, actions);
                }
            }
        }
    }

    fn outcomes(&self, state: &State, txn: TxnIx, shard: ShardIx, actions: &mut Vec<Action>) {
        let (plan, there, votes) = (self.plan(txn), state.shard(shard), state.votes(txn));
        if self.program.implies && plan.part(shard).is_some() {
            let is_new = |peer: &ShardIx| {
                *peer != shard
                    && votes.proposed[usize::from(*peer)] != 0
                    && there.heard[usize::from(txn)] & 1 << peer == 0
            };
            let votes = members(plan.participants()).filter(is_new);
            actions.extend(votes.map(|peer| Action::OnVote(txn, peer, shard)));
        }
        match there.progress(txn) {
            Progress::Pending(_) => {
                let is_durable = there.is_proposal_synced(txn) || !self.keeps(Rule::ExecutedDurable);
                let mut timestamps: ArrayVec<Timestamp, 3> = ArrayVec::new();
                timestamps.extend(self.highest_vote(state, txn, shard));
                if self.is_by_client(txn) {
                    let is_sent = votes.proposed[usize::from(shard)] != 0;
                    if !is_sent && is_durable {
                        actions.push(Action::SendVote(txn, shard));
                    }
                    // One round trip, condition (e).
                    let decision = state.txn(txn).decision;
                    timestamps.extend((!is_sent || !self.keeps(Rule::SentVoteDecides)).then_some(decision));
                    timestamps.push(votes.outcome);
                }
                for at in timestamps.into_iter().filter(|&at| at > 0 && is_durable) {
                    // R8.5
                    let is_kept = !self.keeps(Rule::ReleasesUngated) && self.gate_of_prepared(state, txn, shard) != 0;
                    if plan.locks() && !is_kept || !plan.locks() && self.is_first(state, txn, shard, at) {
                        actions.push(Action::Execute(txn, shard, at));
                    }
                }
                let is_cancelled = self.program.cancels && !self.keeps(Rule::CancelOnlyNew);
                if (votes.against | votes.never) & !(1 << shard) != 0 || is_cancelled {
                    actions.push(Action::OnVoteAgainst(txn, shard));
                }
            }
            Progress::New | Progress::Stale => {
                let is_durable = there.progress(txn) == Progress::New || there.is_floor_synced(txn);
                let is_asked = members(plan.participants()).any(|peer| votes.proposed[usize::from(peer)] != 0);
                let is_answered = (votes.against | votes.never) & 1 << shard != 0;
                let takes_part = plan.part(shard).is_some();
                let is_asked = self.program.refusals && is_asked && self.keeps(Rule::PeersAsked);
                let is_cancelled = self.program.cancels && state.txn(txn).stage != Stage::Waiting;
                if takes_part && (is_asked || is_cancelled) && is_durable && !is_answered && !there.log.is_full() {
                    actions.push(Action::OnAsked(txn, shard));
                }
            }
            Progress::Executed(_) | Progress::Against => {}
        }
    }

    /// R8.9: when an acknowledgement or the end of a lease is logged, and when what is known of a transaction goes.
    fn forgetting(&self, state: &State, txn: TxnIx, shard: ShardIx, actions: &mut Vec<Action>) {
        let (plan, there, votes) = (self.plan(txn), state.shard(shard), state.votes(txn));
        if !there.has_floor(txn) {
            if !there.log.is_full() {
                actions.push(Action::LogFloor(txn, shard));
            }
            return;
        }
        if there.forgotten & 1 << txn != 0 || !there.is_floor_synced(txn) {
            return;
        }
        let is_over = match there.progress(txn) {
            Progress::Executed(_) | Progress::Against => {
                there.is_synced(txn) || !self.keeps(Rule::RetainedUntilRecorded)
            }
            Progress::Pending(_) => !self.keeps(Rule::PreparedOutlivesLease),
            Progress::New | Progress::Stale => false,
        };
        let participants = plan.participants();
        let everywhere = |told: Set| (told | votes.never) & participants == participants;
        let is_recorded = everywhere(votes.recorded) || !self.keeps(Rule::RetainedUntilRecorded);
        let is_executed = matches!(there.progress(txn), Progress::Executed(_));
        let is_settled = everywhere(votes.settled) || !is_executed || !self.keeps(Rule::RetainedUntilSettled);
        let is_pending = matches!(there.progress(txn), Progress::Pending(_));
        if is_over && (is_pending || !plan.is_distributed() || is_recorded && is_settled) {
            actions.push(Action::Forget(txn, shard));
        }
    }

    pub(super) fn crashes(&self, state: &State, actions: &mut Vec<Action>) {
        for shard in (0..self.program.shards).filter(|&shard| self.may_crash(state, shard)) {
            let there = state.shard(shard);
            if there.log.is_empty() && there.witness == 0 {
                continue;
            }
            for kept in there.synced..=there.log.len() as u8 {
                let is_kept = |txn: u8| there.log.iter().take(usize::from(kept)).any(|entry| entry.txn() == txn);
                let lost: Vec<_> = members(there.witness).filter(|&txn| !is_kept(txn)).collect();
                let has_prepares = lost.iter().any(|&txn| self.is_recorded(txn)) && self.program.ahead > 1;
                for order in orders(lost.iter().copied()) {
                    if has_prepares {
                        actions.push(Action::Crash(shard, kept, order.clone(), true));
                    }
                    actions.push(Action::Crash(shard, kept, order, false));
                }
            }
        }
    }
}
