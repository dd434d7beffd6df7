//! The effect of each action on a state, with the rules that are switched on.

use crate::recovery::bounds::Durability;
use crate::recovery::rules::Rule;
use crate::recovery::state::{
    Entry, FAULTS_MAX, Kind, List, NODES_MAX, Node, NodeIx, Primary, Report, Stage, State, UpdateIx, Witness, bits,
    common_prefix,
};
use crate::recovery::{Action, Recovery};

impl Recovery {
    pub(super) fn step(&self, state: &mut State, action: Action) {
        match action {
            Action::Promote(node, set) => self.promote(state, node, set),
            Action::OnFence(node, member) => {
                let epoch = state.primary(node).expect("it leads").epoch;
                obey(state.node_mut(member), epoch);
                let report = self.report(state, member);
                state.primary_mut(node).reports[usize::from(member)] = Some(report);
            }
            Action::Take(node) => {
                let primary = state.primary(node).expect("it leads");
                let (_, whole) = self.choice(state, node, primary).expect("it took");
                log_is_replayed(state, node, whole);
            }
            Action::CutToMatch(node, from) => self.cut_to_match(state, node, from),
            Action::OnLogPiece(node, from) => on_log_piece(state, node, from),
            Action::FenceAgain(node) => {
                let primary = state.primary_mut(node);
                (primary.stage, primary.reports) = (Stage::Fencing, Default::default());
            }
            Action::BeginEpoch(node) => self.begin_epoch(state, node, 0),
            Action::OnWitnessHolds(node, witness) => {
                let list = state.primary(node).expect("it leads").list;
                let there = &mut state.list_mut(list).witnesses[usize::from(witness)];
                there.frozen = true;
                let held = there.held;
                self.begin_epoch(state, node, held);
            }
            Action::WriteLog(node) => {
                let this = state.node_mut(node);
                this.held = this.end();
                self.answer(state, node);
                self.advance(state, node);
            }
            Action::OnAttach(node, member) => self.on_attach(state, node, member),
            Action::OnAppend(node, member) => self.on_append(state, node, member),
            Action::Mark(node) => self.mark(state, node),
            Action::Recovered(node) => self.recovered(state, node),
            Action::OnRequest(node, update) => self.on_request(state, node, update),
            Action::OnRecord(update, list, witness) => {
                state.list_mut(list).witnesses[usize::from(witness)].held |= 1 << update;
                state.updates[usize::from(update)].accepted[usize::from(list) - 1] |= 1 << witness;
                self.judge(state, update);
            }
            Action::CloseList(node) => {
                state.left.list_changes -= 1;
                close_list(state, node, false);
            }
            Action::Stop(node) => {
                state.left.stops -= 1;
                close_list(state, node, true);
            }
            Action::OpenList(node) => open_list(state, node),
            Action::Kill(..) | Action::LosePower(..) | Action::Damage(_) | Action::Die(_) | Action::LoseWitness(_) => {
                self.fault(state, action);
            }
        }
    }

    fn cut_to_match(&self, state: &mut State, node: NodeIx, from: NodeIx) {
        let primary = state.primary(node).expect("it leads");
        let (_, whole) = self.choice(state, node, primary).expect("it took");
        let reported = primary.reports[usize::from(from)].as_ref().expect("it was chosen");
        let to = common_prefix(&state.node(node).log, &reported.log);
        self.truncate_log(state.node_mut(node), to);
        state.primary_mut(node).stage = Stage::Fetching { from, whole };
    }

    /// R7.7 (c): the mark is on file before the report leaves.
    fn mark(&self, state: &mut State, node: NodeIx) {
        let epoch = state.primary(node).expect("it leads").epoch;
        let marks = self.keeps(Rule::MarkBeforeReport);
        let this = state.node_mut(node);
        this.flushed = this.end();
        if marks {
            this.mark = epoch;
        }
        state.primary_mut(node).stage = Stage::Reporting;
    }

    fn on_request(&self, state: &mut State, node: NodeIx, update: UpdateIx) {
        let gates_at_stop = self.keeps(Rule::StopGates);
        let primary = state.primary_mut(node);
        let entry = Entry { epoch: primary.epoch, kind: Kind::Update(update) };
        let is_gated = if primary.stops { gates_at_stop } else { primary.closing_at.is_some() };
        if !is_gated {
            primary.fast |= 1 << update;
        }
        state.node_mut(node).log.push(entry);
        self.answer(state, node);
    }

    fn fault(&self, state: &mut State, action: Action) {
        match action {
            Action::Kill(node, left) => {
                state.left.kills -= 1;
                restart(state, node, left);
                return;
            }
            Action::LosePower(node, left) => {
                restart(state, node, left);
                let this = state.node_mut(node);
                let is_replicated = self.bounds.durability == Durability::Replicated;
                this.intact &= !is_replicated;
                let clears = if is_replicated { Rule::MarkOfBoot } else { Rule::MarkOfBootFsync };
                if self.keeps(clears) {
                    this.mark = 0;
                }
            }
            Action::Damage(node) => {
                let end = state.node(node).end();
                restart(state, node, end - 1);
                let this = state.node_mut(node);
                // A log that ends below what was noted as acknowledged is detected. That does not cover the end of a
                // primary's own log.
                if self.keeps(Rule::MarkOfDamage) {
                    this.mark = 0;
                }
            }
            Action::Die(node) => {
                let held = state.node(node).held;
                restart(state, node, held);
                let this = state.node_mut(node);
                (this.up, this.intact, this.mark) = (false, false, 0);
                this.log.clear();
                (this.held, this.flushed) = (0, 0);
            }
            Action::LoseWitness(witness) => {
                let list = state.list();
                state.list_mut(list).witnesses[usize::from(witness)] = Witness { held: 0, frozen: true, lost: true };
            }
            other => unreachable!("no fault: {other:?}"),
        }
        state.left.losses -= 1;
    }

    fn promote(&self, state: &mut State, node: NodeIx, members: u8) {
        let committed = &mut state.committed;
        committed.epoch += 1;
        let epoch = committed.epoch;
        (committed.primary, committed.serving, committed.members) = (node, false, members);
        if !self.keeps(Rule::ServedUntouched) {
            committed.served = (epoch, node);
        }
        state.left.terms -= 1;
        let list = state.list();
        let this = state.node_mut(node);
        obey(this, epoch);
        this.primary = Some(Box::new(Primary {
            epoch,
            stage: Stage::Fencing,
            reports: Default::default(),
            members,
            acked: [None; NODES_MAX],
            synced: 0,
            whole_end: 0,
            list,
            closing_at: None,
            stops: false,
            fast: 0,
        }));
    }

    /// The new epoch begins: its start entry, the requests of a witness, and `Whole`.
    fn begin_epoch(&self, state: &mut State, node: NodeIx, held: u8) {
        let primary = state.primary(node).expect("it leads");
        let (epoch, list) = (primary.epoch, primary.list);
        let (logs_whole, is_last) = (self.keeps(Rule::WholeLogged), self.keeps(Rule::WholeLast));
        let looks_up = self.keeps(Rule::ReplayLooksUp);
        let this = state.node_mut(node);
        this.log.push(Entry { epoch, kind: Kind::Start });
        let whole = Entry { epoch, kind: Kind::Whole(list) };
        if logs_whole && !is_last {
            this.log.push(whole);
        }
        for update in bits(held) {
            if this.place(update).is_none() || !looks_up {
                this.log.push(Entry { epoch, kind: Kind::Update(update) });
            }
        }
        if logs_whole && is_last {
            this.log.push(whole);
        }
        let end = this.end();
        let primary = state.primary_mut(node);
        (primary.stage, primary.whole_end, primary.reports) = (Stage::Syncing, end, Default::default());
        self.advance(state, node);
    }

    /// R7.7 (c): the mark is cleared before any entry that it covers is removed.
    fn truncate_log(&self, this: &mut Node, to: u8) {
        let cut = this.log[usize::from(to)..].iter().any(|entry| entry.epoch <= this.mark);
        if cut && self.keeps(Rule::MarkClearedByCut) {
            this.mark = 0;
        }
        this.log.truncate(usize::from(to));
        (this.held, this.flushed) = (this.held.min(to), this.flushed.min(to));
    }

    fn on_attach(&self, state: &mut State, node: NodeIx, member: NodeIx) {
        let log = state.node(node).log.clone();
        let epoch = state.primary(node).expect("it leads").epoch;
        let this = state.node_mut(member);
        obey(this, epoch);
        let to = common_prefix(&this.log, &log);
        self.truncate_log(this, to);
        this.attached = epoch;
        let (end, is_sure) = (this.end(), this.intact);
        state.primary_mut(node).acked[usize::from(member)] = Some(end);
        if end == log.len() as u8 && !is_sure {
            state.node_mut(member).intact = true;
        }
        self.advance(state, node);
    }

    fn on_append(&self, state: &mut State, node: NodeIx, member: NodeIx) {
        let log = state.node(node).log.clone();
        let this = state.node_mut(member);
        this.log.push(log[this.log.len()]);
        let end = this.end();
        (this.held, this.flushed, this.intact) = (end, end, this.intact || end == log.len() as u8);
        state.primary_mut(node).acked[usize::from(member)] = Some(end);
        self.advance(state, node);
    }

    /// Every member of the set holds the log up to here (R7.2). Synced updates may be answered, and dropped by
    /// witnesses.
    fn advance(&self, state: &mut State, node: NodeIx) {
        let held = state.node(node).held;
        let primary = state.primary_mut(node);
        let others = bits(primary.members).filter(|&member| member != node);
        let least = others.map(|member| primary.acked[usize::from(member)].unwrap_or(0)).min();
        primary.synced = primary.synced.max(held.min(least.unwrap_or(held)));
        let (synced, serves, list) = (primary.synced, primary.stage == Stage::Serving, primary.list);
        if !serves {
            return;
        }
        let this = state.node_mut(node);
        this.flushed = this.flushed.max(synced);
        for update in 0..self.bounds.updates {
            if state.node(node).place(update).is_some_and(|at| at < synced) {
                state.updates[usize::from(update)].done = true;
                for witness in state.list_mut(list).witnesses.iter_mut().filter(|witness| !witness.frozen) {
                    witness.held &= !(1 << update);
                }
            }
        }
    }

    /// R7.7 (a): a fast answer leaves when the primary's own file holds its entry.
    fn answer(&self, state: &mut State, node: NodeIx) {
        let primary = state.primary(node).expect("it leads");
        if primary.stage != Stage::Serving {
            return;
        }
        let (held, list) = (state.node(node).held, primary.list);
        for update in bits(primary.fast) {
            let is_held = state.node(node).place(update).is_some_and(|at| at < held);
            if is_held || !self.keeps(Rule::AnswerOnFile) {
                state.updates[usize::from(update)].answered |= 1 << list;
                state.primary_mut(node).fast &= !(1 << update);
                self.judge(state, update);
            }
        }
    }

    /// An update is done when it was answered, and accepted by all witnesses of the same list.
    fn judge(&self, state: &mut State, update: UpdateIx) {
        let all = (1u8 << self.bounds.faults) - 1;
        let lists = 1..=state.list();
        let known = &mut state.updates[usize::from(update)];
        known.done |= lists
            .into_iter()
            .any(|list| known.answered & 1 << list != 0 && known.accepted[usize::from(list) - 1] == all);
    }

    fn recovered(&self, state: &mut State, node: NodeIx) {
        let epoch = state.primary(node).expect("it leads").epoch;
        let committed = &mut state.committed;
        (committed.serving, committed.recover_from) = (true, committed.members);
        if self.keeps(Rule::ServedUntouched) {
            committed.served = (epoch, node);
        }
        state.lists.push(List { empty: false, witnesses: [Witness::default(); FAULTS_MAX] });
        let list = state.list();
        let primary = state.primary_mut(node);
        (primary.list, primary.stage) = (list, Stage::Serving);
        // All losses are repaired, so f more losses may follow.
        if state.all().all(|node| state.node(node).intact && state.committed.members & 1 << node != 0) {
            state.left.losses = self.bounds.faults;
        }
        self.advance(state, node);
    }
}

/// The rest of another member's log arrives.
fn on_log_piece(state: &mut State, node: NodeIx, from: NodeIx) {
    let primary = state.primary(node).expect("it leads");
    let Stage::Fetching { whole, .. } = primary.stage else { unreachable!("it fetches") };
    let Report { log, .. } = primary.reports[usize::from(from)].clone().expect("it was chosen");
    let this = state.node_mut(node);
    this.log = log;
    (this.held, this.flushed) = (this.end(), this.end());
    log_is_replayed(state, node, whole);
}

/// R6.2: all answers are gated, and what was executed so far is synced before the list changes.
fn close_list(state: &mut State, node: NodeIx, stops: bool) {
    let end = state.node(node).end();
    let primary = state.primary_mut(node);
    (primary.closing_at, primary.stops, primary.fast) = (Some(end), stops, 0);
}

/// The coordinator commits another list, and the primary learns of it.
fn open_list(state: &mut State, node: NodeIx) {
    let primary = state.primary_mut(node);
    let empty = primary.stops;
    primary.closing_at = None;
    state.lists.push(List { empty, witnesses: Default::default() });
    let list = state.list();
    state.primary_mut(node).list = list;
}

/// The log that the term goes on with is known, and whether it needs a witness.
fn log_is_replayed(state: &mut State, node: NodeIx, whole: bool) {
    state.primary_mut(node).stage = if whole { Stage::Replaying } else { Stage::Witnessing };
    // The log came from a member that counted, or every member has reported (R5.5).
    state.node_mut(node).intact = true;
}

/// The member obeys a primary of this epoch: any other role is over, and no older epoch is obeyed.
fn obey(this: &mut Node, epoch: u8) {
    if this.promised < epoch || this.primary.is_some() {
        this.lose_role();
        this.promised = epoch;
    }
}

/// The process ends, and starts with this much of its log.
fn restart(state: &mut State, node: NodeIx, left: u8) {
    let this = state.node_mut(node);
    this.lose_role();
    this.log.truncate(usize::from(left));
    (this.held, this.flushed) = (left, this.flushed.min(left));
}
