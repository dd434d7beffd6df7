//! What each action does.

use arrayvec::ArrayVec;

use crate::distributed::program::Class;
use crate::distributed::rules::Rule;
use crate::distributed::state::{
    Entry, Executed, Progress, Seen, Set, Shard, ShardIx, Stage, State, Timestamp, TxnIx, members,
};
use crate::distributed::{Action, Distributed};

impl Distributed {
    pub(super) fn step(&self, state: &mut State, action: &Action) {
        match action {
            &Action::Begin(txn) => begin(state, txn),
            &Action::OnRequest(txn, shard, at) => self.on_request(state, txn, shard, at),
            &Action::OnRecord(txn, shard) => self.on_record(state, txn, shard),
            &Action::OnAsked(txn, shard) => self.on_asked(state, txn, shard),
            &Action::Advance(shard, to) => state.shard_mut(shard).synced = to,
            &Action::OnVote(txn, from, shard) => state.shard_mut(shard).heard[usize::from(txn)] |= 1 << from,
            &Action::SendVote(txn, shard) => self.send_vote(state, txn, shard),
            &Action::Execute(txn, shard, at) => self.execute(state, txn, shard, at),
            &Action::OnVoteAgainst(txn, shard) => state.shard_mut(shard).log.push(Entry::Ended(txn)),
            &Action::Answer(txn, shard) => self.answer(state, txn, shard),
            &Action::AnswerPrepared(txn, older) => self.answer_prepared(state, txn, older),
            &Action::AnswerAbort(txn, shard) => answer_abort(state, txn, shard),
            &Action::AnswerConflict(txn) => state.txn_mut(txn).stage = Stage::NotCommitted,
            &Action::Read(txn, shard) => {
                state.txn_mut(txn).told[usize::from(shard)] = Some(self.seen(state.shard(shard), txn, shard));
            }
            &Action::Ask(txn, shard) => {
                let waits = self.keeps(Rule::SecondReadWaits);
                let awaited = if waits { self.awaited(state.shard(shard), txn, shard) } else { 0 };
                state.txn_mut(txn).awaits[usize::from(shard)] = Some(awaited);
            }
            &Action::ReadAgain(txn, shard) => self.read_again(state, txn, shard),
            &Action::LetGo(txn) => state.txn_mut(txn).is_let_go = true,
            &Action::LogFloor(txn, shard) => state.shard_mut(shard).log.push(Entry::Floor(txn)),
            &Action::Forget(txn, shard) => state.shard_mut(shard).forgotten |= 1 << txn,
            Action::Crash(shard, kept, replayed, is_ahead) => self.crash(state, *shard, *kept, replayed, *is_ahead),
        }
        for shard in (0..self.program.shards).filter(|&shard| !self.may_crash(state, shard)).collect::<Vec<_>>() {
            let there = state.shard_mut(shard);
            there.synced = there.log.len() as u8;
        }
        self.tell_peers(state);
    }

    pub(super) fn may_crash(&self, state: &State, shard: ShardIx) -> bool {
        state.crashes > 0 && self.program.crash_at & 1 << shard != 0
    }

    /// Client's request, at a participant to which the transaction is new.
    fn on_request(&self, state: &mut State, txn: TxnIx, shard: ShardIx, at: Timestamp) {
        let plan = self.plan(txn);
        match plan.class {
            Class::Single => self.run_single(state.shard_mut(shard), txn, shard),
            Class::Independent => {
                state.shard_mut(shard).log.push(Entry::Proposed(txn, at, Seen::default()));
            }
            Class::Coordinated | Class::Interactive => self.prepare(state.shard_mut(shard), txn, shard, at),
            Class::Reads => unreachable!("it is read, and leaves nothing"),
        }
    }

    /// R8.3: it votes at once.
    fn prepare(&self, there: &mut Shard, txn: TxnIx, shard: ShardIx, at: Timestamp) {
        let seen = self.seen(there, txn, shard);
        let is_refused = self.is_locked(there, txn, shard)
            || self.keeps(Rule::PrepareSeesPending) && self.is_pending(there, txn, shard);
        let is_fast = !self.overlaps(there, txn, shard) || !self.keeps(Rule::FastPrepareAlone);
        let entry = if is_refused {
            Entry::Conflict(txn)
        } else if self.plan(txn).aborts_at == Some(shard) {
            Entry::Abort(txn, seen)
        } else {
            there.fast |= Set::from(is_fast) << txn;
            Entry::Proposed(txn, at, seen)
        };
        there.log.push(entry);
    }

    fn send_vote(&self, state: &mut State, txn: TxnIx, shard: ShardIx) {
        if let Progress::Pending(at) = state.shard(shard).progress(txn) {
            state.votes_mut(txn).proposed[usize::from(shard)] = at;
        }
    }

    /// A single-shard operation executes at once.
    fn run_single(&self, there: &mut Shard, txn: TxnIx, shard: ShardIx) {
        let is_read = !self.plan(txn).writes();
        let executed = Executed {
            txn,
            at: self.floor(there) + 1,
            seen: self.seen(there, txn, shard),
            is_fast: !is_read && !self.overlaps(there, txn, shard),
            is_read,
            gate: 0,
        };
        self.push_execution(there, executed, shard);
    }

    fn push_execution(&self, there: &mut Shard, executed: Executed, shard: ShardIx) {
        let gate = self.gate(there, executed.txn, shard);
        there.gates[usize::from(executed.txn)] = gate;
        there.ceiling = there.ceiling.max(executed.at);
        there.log.push(Entry::Executed(Executed { gate, ..executed }));
    }

    /// What a new primary makes of an execution in its log. Of what was cleaned, only the logged gate is left.
    fn recover(&self, there: &mut Shard, executed: Executed, shard: ShardIx) {
        let Executed { txn, gate: logged, .. } = executed;
        there.gates[usize::from(txn)] = match there.forgotten & 1 << txn != 0 {
            _ if !self.keeps(Rule::GatesRecovered) => 0,
            true if self.keeps(Rule::GateLogged) => logged,
            true => 0,
            false => self.gate(there, txn, shard),
        };
        there.log.push(Entry::Executed(executed));
    }

    /// C2: the witness takes what commutes with what it holds. A gc has taken what is synced.
    fn on_record(&self, state: &mut State, txn: TxnIx, shard: ShardIx) {
        if !self.keeps(Rule::OneAttempt) {
            let votes = state.votes_mut(txn);
            votes.accepted |= 1 << shard;
            votes.promised[usize::from(shard)] =
                votes.promised[usize::from(shard)].or(votes.spoken[usize::from(shard)]);
        }
        let there = state.shard(shard);
        let kept = members(there.witness).filter(|&held| !there.is_synced(held)).map(|held| 1 << held).sum::<Set>();
        state.shard_mut(shard).witness = kept | 1 << txn;
    }

    /// R8.11: a peer asks a participant to which the transaction is new.
    fn on_asked(&self, state: &mut State, txn: TxnIx, shard: ShardIx) {
        if state.shard(shard).progress(txn) == Progress::Stale && self.keeps(Rule::StaleIsNever) {
            state.votes_mut(txn).never |= 1 << shard;
        } else if self.keeps(Rule::ConflictRecorded) {
            state.shard_mut(shard).log.push(Entry::Conflict(txn));
        } else {
            state.votes_mut(txn).against |= 1 << shard;
        }
    }

    fn execute(&self, state: &mut State, txn: TxnIx, shard: ShardIx, at: Timestamp) {
        let seen = if self.plan(txn).locks() {
            prepared(state.shard(shard), txn)
        } else {
            self.seen(state.shard(shard), txn, shard)
        };
        let executed = Executed { txn, at, seen, is_fast: false, is_read: false, gate: 0 };
        self.push_execution(state.shard_mut(shard), executed, shard);
    }

    fn answer(&self, state: &mut State, txn: TxnIx, shard: ShardIx) {
        let Progress::Executed(executed) = state.shard(shard).progress(txn) else { unreachable!("it is executed") };
        state.txn_mut(txn).told[usize::from(shard)] = Some(executed.seen);
        let is_told = |shard| state.txn(txn).told[usize::from(shard)].is_some();
        if members(self.plan(txn).participants()).all(is_told) {
            state.txn_mut(txn).stage = Stage::Committed;
        }
    }

    /// R8.8: every participant has prepared, and every gate is open. The client may hold what a participant said before
    /// it failed over, or what its successor said.
    fn answer_prepared(&self, state: &mut State, txn: TxnIx, older: Set) {
        let mut decision = 0;
        for shard in members(self.plan(txn).participants()) {
            let votes = state.votes(txn);
            let said = if older & 1 << shard != 0 { votes.older } else { votes.promised }[usize::from(shard)];
            let (at, seen) = said.unwrap_or_else(|| (0, prepared(state.shard(shard), txn)));
            decision = decision.max(at);
            state.txn_mut(txn).told[usize::from(shard)].get_or_insert(seen);
        }
        let call = state.txn_mut(txn);
        (call.stage, call.decision) = (Stage::Committed, decision);
    }

    fn read_again(&self, state: &mut State, txn: TxnIx, shard: ShardIx) {
        let there = state.shard(shard);
        let seen = self.seen(there, txn, shard);
        let participants = self.plan(txn).participants();
        let call = state.txn_mut(txn);
        if call.told[usize::from(shard)] != Some(seen) {
            call.stage = Stage::NotCommitted;
            return;
        }
        call.again |= 1 << shard;
        if call.again == participants {
            call.stage = Stage::Committed;
        }
    }

    /// The primary dies. A new one has this much of its log, replays what the witness holds in this order, syncs, and
    /// serves.
    fn crash(&self, state: &mut State, shard: ShardIx, kept: u8, replayed: &[TxnIx], is_ahead: bool) {
        state.crashes -= 1;
        let old = state.shard(shard);
        let survives = |entry: &Entry| match *entry {
            Entry::Executed(Executed { is_read, .. }) => !is_read,
            // R8.1: a transaction that only reads is logged, too.
            Entry::Proposed(txn, ..) => self.plan(txn).writes() || self.keeps(Rule::ReadOnlyLogged),
            Entry::Conflict(_) | Entry::Abort(..) | Entry::Ended(_) | Entry::Floor(_) => true,
        };
        let log: Vec<Entry> = old.log.iter().take(usize::from(kept)).copied().filter(survives).collect();
        let ceiling = old.ceiling;
        let mut new = Shard {
            log: ArrayVec::new(),
            synced: 0,
            gates: Default::default(),
            ceiling,
            floor: if self.keeps(Rule::Ceiling) { ceiling } else { 0 },
            witness: 0,
            forgotten: old.forgotten,
            heard: Default::default(),
            fast: 0,
        };
        for entry in log {
            match entry {
                Entry::Executed(executed) => self.recover(&mut new, executed, shard),
                _ => new.log.push(entry),
            }
        }
        for &txn in replayed {
            // R8.10
            let is_skipped = self.keeps(Rule::ReplaySkips) && self.waits(&new, txn, shard);
            match self.plan(txn).class {
                Class::Single if !is_skipped => self.run_single(&mut new, txn, shard),
                Class::Coordinated | Class::Interactive if !is_skipped && self.keeps(Rule::PrepareReplayed) => {
                    let at = self.floor(&new) + if is_ahead { self.program.ahead } else { 1 };
                    self.prepare(&mut new, txn, shard, at);
                }
                _ => {}
            }
        }
        new.synced = new.log.len() as u8;
        *state.shard_mut(shard) = new;
        // Whoever waited there asks the new primary.
        self.txns().for_each(|txn| state.txn_mut(txn).awaits[usize::from(shard)] = None);
        if self.program.one_trip {
            self.txns().filter(|&txn| self.is_by_client(txn)).for_each(|txn| self.send_vote(state, txn, shard));
        }
    }

    /// Everything that may leave a participant, and what settles by that.
    fn tell_peers(&self, state: &mut State) {
        for shard in 0..self.program.shards {
            let there = state.shard(shard);
            let durable = usize::from(there.synced);
            let all = there.log.len();
            let votes = if self.keeps(Rule::VoteDurable) { durable } else { all };
            let conflicts = if self.keeps(Rule::ConflictDurable) { durable } else { all };
            for (at, entry) in there.log.clone().into_iter().enumerate() {
                match entry {
                    Entry::Proposed(txn, proposed, _) if at < votes && !self.is_by_client(txn) => {
                        // R8.5
                        if !self.keeps(Rule::VotesUngated) && self.gate_of_prepared(state, txn, shard) != 0 {
                            continue;
                        }
                        state.votes_mut(txn).proposed[usize::from(shard)] = proposed;
                    }
                    Entry::Conflict(txn) | Entry::Abort(txn, _) if at < conflicts => {
                        state.votes_mut(txn).against |= 1 << shard;
                    }
                    _ => {}
                }
            }
            for txn in self.txns() {
                let there = state.shard(shard);
                let is_outcome = matches!(there.progress(txn), Progress::Executed(_) | Progress::Against);
                if is_outcome && there.is_synced(txn) {
                    let outcome = match there.progress(txn) {
                        Progress::Executed(executed) if self.is_by_client(txn) => executed.at,
                        _ => 0,
                    };
                    let votes = state.votes_mut(txn);
                    votes.recorded |= 1 << shard;
                    votes.outcome = votes.outcome.max(outcome);
                }
                if self.is_recorded(txn) {
                    self.promise(state, txn, shard);
                }
            }
        }
        while self.settle(state) {}
    }

    /// One round trip, conditions (a), (b) and (d): what the client may count on.
    fn promise(&self, state: &mut State, txn: TxnIx, shard: ShardIx) {
        let there = state.shard(shard);
        let Progress::Pending(at) = there.progress(txn) else { return };
        let seen = prepared(there, txn);
        let (is_fast, is_durable) = (there.fast & 1 << txn != 0, there.is_proposal_synced(txn));
        let is_accepted = there.witness & 1 << txn != 0;
        let is_open = self.gate_of_prepared(state, txn, shard) == 0 || !self.keeps(Rule::PreparedSettled);
        let votes = state.votes_mut(txn);
        let promised = &mut votes.promised[usize::from(shard)];
        if is_open && (is_fast && is_accepted || is_durable) {
            if promised.is_some_and(|old| old != (at, seen)) {
                votes.older[usize::from(shard)] = *promised;
            }
            *promised = Some((at, seen));
        }
        if is_open && is_fast && !self.keeps(Rule::OneAttempt) {
            votes.spoken[usize::from(shard)] = Some((at, seen));
        }
    }

    /// 0030: whether those who were told of a gate take it for open.
    fn is_open_to_others(&self, unsettled: Set) -> bool {
        unsettled == 0 || !self.keeps(Rule::ToldGateHeeded)
    }

    /// R8.4: true if something has settled.
    fn settle(&self, state: &mut State) -> bool {
        let mut is_new = false;
        let settled = self.settled(state);
        for shard in 0..self.program.shards {
            for txn in self.txns().filter(|&txn| self.plan(txn).is_distributed()) {
                let there = state.shard_mut(shard);
                there.gates[usize::from(txn)] &= !settled;
                let is_open = there.gates[usize::from(txn)] == 0 || !self.keeps(Rule::SettledGated);
                let is_executed = matches!(there.progress(txn), Progress::Executed(_));
                let gate = there.gates[usize::from(txn)];
                let votes = state.votes_mut(txn);
                let behind = &mut votes.behind[usize::from(shard)];
                if is_executed && !is_open && behind.is_none() {
                    *behind = Some(gate);
                }
                let is_open =
                    is_executed && is_open || behind.is_some_and(|behind| self.is_open_to_others(behind & !settled));
                if is_open && votes.settled & 1 << shard == 0 {
                    votes.settled |= 1 << shard;
                    is_new = true;
                }
            }
            for gate in &mut state.shard_mut(shard).gates {
                *gate &= !settled;
            }
        }
        is_new
    }
}

fn begin(state: &mut State, txn: TxnIx) {
    let ended = |txn: &TxnIx| matches!(state.txn(*txn).stage, Stage::Committed | Stage::Aborted(_));
    let before = (0..state.txns.len() as u8).filter(ended).map(|txn| 1 << txn).sum();
    let call = state.txn_mut(txn);
    (call.stage, call.before) = (Stage::Running, before);
}

fn answer_abort(state: &mut State, txn: TxnIx, shard: ShardIx) {
    let abort = |entry: &Entry| match *entry {
        Entry::Abort(of, seen) if of == txn => Some(seen),
        _ => None,
    };
    let seen = state.shard(shard).log.iter().find_map(abort);
    let call = state.txn_mut(txn);
    call.told[usize::from(shard)] = seen;
    call.stage = Stage::Aborted(shard);
}

/// What a transaction read when it prepared.
fn prepared(there: &Shard, txn: TxnIx) -> Seen {
    let proposal = |entry: &Entry| match *entry {
        Entry::Proposed(of, _, seen) if of == txn => Some(seen),
        _ => None,
    };
    there.log.iter().find_map(proposal).expect("it has prepared")
}
