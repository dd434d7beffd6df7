//! The effect of each action on a state, with the rules that are switched on.

use crate::group::bounds::Change;
use crate::group::rules::Rule;
use crate::group::state::{Entry, Kind, NodeIx, Question, Round, State, ViewIx, bits};
use crate::group::{Action, Group};

impl Group {
    /// Applies an action to a state.
    pub(super) fn step(&self, state: &mut State, action: Action) {
        match action {
            Action::Wish(node, view) => {
                let wished = if self.keeps(Rule::CountedFromQuorum) { 0 } else { state.now };
                let this = state.view_mut(view);
                (this.leader, this.wished) = (Some(node), wished);
            }
            Action::Enter(node, view) => self.enter(state, node, view),
            Action::Merge(node, mask) => self.merge(state, node, mask),
            Action::OnNewView(node, view) => self.on_new_view(state, node, view),
            Action::Append(node) => {
                let number = self.bounds.operations - state.left.operations;
                state.left.operations -= 1;
                self.append(state, node, Kind::Operation(number));
            }
            Action::Write(node) => self.write(state, node),
            Action::OnPrepare(node, view) => self.on_prepare(state, node, view),
            Action::Commit(node) => self.commit(state, node),
            Action::Change(node, at) => self.change(state, node, at),
            Action::Ask(node) => ask(state, node),
            Action::BeginRound(node, time) => {
                if self.keeps(Rule::RoundIsYounger) {
                    ask(state, node);
                }
                begin_round(state, node, time);
            }
            Action::OnRound(node, member) => self.on_round(state, node, member),
            Action::Answer(node) => self.answer(state, node),
            Action::DeclareLost(node) => self.append(state, node, Kind::Lost),
            Action::ShortenLease(node) => self.append(state, node, Kind::ShorterLease),
            Action::LowerBound(node) => self.append(state, node, Kind::ShorterBound),
            Action::Tick => state.now += 1,
            Action::Snapshot(node) => self.snapshot(state, node),
            Action::Restart(node, left) => self.restart(state, node, left, false),
            Action::Reboot(node, left) => self.restart(state, node, left, true),
            Action::LoseFiles(node) => self.lose_files(state, node),
        }
    }

    /// A leader appends, and sends. Its own disk follows (R9.10). It follows at once if nothing can be lost with what
    /// the disk does not have: an own acknowledgement that is late is a late `Commit`.
    fn append(&self, state: &mut State, node: NodeIx, kind: Kind) {
        let this = state.member_mut(node);
        let view = this.view;
        this.log.push(Entry { view, kind });
        if self.bounds.restarts + self.bounds.reboots == 0 {
            self.write(state, node);
        }
        self.send(state, node);
    }

    /// What a leader has sent. The list that makes one three is sent when the leader's own disk has it: no quorum of
    /// that list needs the leader, and the leader alone is a quorum of the list before.
    pub(super) fn send(&self, state: &mut State, node: NodeIx) {
        let this = state.member(node);
        let grows = |at: usize| match this.log[at].kind {
            Kind::List(list) => self.list(&this.log[..at]).count_ones() == 1 && list.count_ones() > 2,
            Kind::Start | Kind::Operation(_) | Kind::Lost | Kind::ShorterLease | Kind::ShorterBound | Kind::Hole => {
                false
            }
        };
        let unwritten = usize::from(this.synced)..this.log.len();
        let waits = unwritten.clone().find(|&at| grows(at) && self.keeps(Rule::GrowsFromDisk));
        let (view, sent) = (this.view, this.log[..waits.unwrap_or(unwritten.end)].iter().copied().collect());
        state.view_mut(view).log = sent;
    }

    /// A member's disk has what is in its memory. It acknowledges what it could not before.
    fn write(&self, state: &mut State, node: NodeIx) {
        let this = state.member_mut(node);
        this.write();
        let (view, log_view, end) = (this.view, this.log_view, this.end());
        if log_view == view {
            acknowledge(state, view, node, end);
        }
        if state.lead(node).is_some() {
            self.send(state, node);
        }
    }

    fn on_prepare(&self, state: &mut State, node: NodeIx, view: ViewIx) {
        let at = state.member(node).log.len();
        let entry = state.view(view).log[at];
        let this = state.member_mut(node);
        this.log.push(entry);
        if self.keeps(Rule::AcknowledgedFromDisk) {
            this.write();
        }
        let end = this.end();
        acknowledge(state, view, node, end);
    }

    /// What is committed is told at once, which is the strictest case.
    fn commit(&self, state: &mut State, node: NodeIx) {
        let committed = self.committed(state, node, state.lead(node).expect("it leads"));
        let now = state.now;
        let log = state.member(node).log[..usize::from(committed)].to_vec();
        let lead = state.lead_mut(node);
        lead.committed = committed;
        // To know less of what is committed means the same.
        lead.acked.iter_mut().for_each(|acked| *acked = committed.max(*acked));
        if lead.shortened.is_none() && log.iter().any(|entry| entry.kind == Kind::ShorterLease) {
            lead.shortened = Some(now);
        }
        let told = &mut state.told;
        if told.log.iter().zip(&log).any(|(a, b)| a != b) {
            told.twice = true;
        } else if log.len() > told.log.len() {
            told.log = log.into_iter().collect();
        }
    }

    fn change(&self, state: &mut State, node: NodeIx, at: u8) {
        state.left.changes &= !(1 << at);
        let list = self.list(&state.member(node).log);
        let changed = match self.bounds.changes[usize::from(at)] {
            Change::Add(joiner) => list | 1 << joiner,
            Change::Remove(leaver) => list & !(1 << leaver),
            Change::Grow(list) => list,
        };
        self.append(state, node, Kind::List(changed));
    }

    /// R9.4: a member remembers the time of a round that it confirms.
    fn on_round(&self, state: &mut State, node: NodeIx, member: NodeIx) {
        let round = state.lead_mut(node).round.as_mut().expect("it is in flight");
        round.confirmed |= 1 << member;
        let time = round.time;
        if self.keeps(Rule::TimeRemembered) {
            let this = state.member_mut(member);
            this.time = this.time.max(Some(time));
        }
    }

    /// The answer leaves. It tells what was decided when its question came, the time, and the node's lease.
    fn answer(&self, state: &mut State, node: NodeIx) {
        let now = state.now;
        let this = state.member_mut(node);
        let log = this.log.clone();
        let lead = this.lead.as_mut().expect("it leads");
        let question = lead.question.take().expect("it was asked");
        let (time, committed) = (lead.round.take().map_or(lead.time, |round| round.time), lead.committed);
        let knows = if self.keeps(Rule::AnswerFollowsDecided) { question.basis } else { committed };
        if !log.iter().any(|entry| entry.kind == Kind::Lost) && self.bounds.now_max > 0 {
            lead.expires = lead.expires.max(now + self.bound(&log));
            let ends = question.asked + self.lease(&log[..usize::from(knows)]);
            state.lease_ends = state.lease_ends.max(ends);
        }
        let told = &mut state.told;
        told.stale |= !log[..usize::from(knows)].starts_with(&told.log[..usize::from(question.told)]);
        told.back |= time < question.time;
        told.time = told.time.max(time);
    }

    /// The length of a lease that is granted by this log.
    fn lease(&self, log: &[Entry]) -> u8 {
        if log.iter().any(|entry| entry.kind == Kind::ShorterLease) { 1 } else { self.bounds.lease }
    }

    /// The greatest length of a lease that may run, by this log.
    pub(super) fn bound(&self, log: &[Entry]) -> u8 {
        let lowers = if self.keeps(Rule::BoundLater) { Kind::ShorterBound } else { Kind::ShorterLease };
        if log.iter().any(|entry| entry.kind == lowers) { 1 } else { self.bounds.lease }
    }
}

/// The leader of this view, if it leads still, learns how much of its log the member has.
pub(super) fn acknowledge(state: &mut State, view: ViewIx, member: NodeIx, end: u8) {
    let leads = state.all().filter(|&node| state.member(node).view == view && state.lead(node).is_some());
    for node in bits(leads.map(|node| 1u8 << node).sum()) {
        let lead = state.lead_mut(node);
        lead.acked[usize::from(member)] = end.max(lead.committed);
    }
}

/// A question comes to a leader.
fn ask(state: &mut State, node: NodeIx) {
    state.left.questions -= 1;
    let (told, time) = (state.told.log.len() as u8, state.told.time);
    let question = Question { asked: state.now, told, time, basis: state.member(node).end() };
    state.lead_mut(node).question = Some(question);
}

fn begin_round(state: &mut State, node: NodeIx, time: u8) {
    let lead = state.lead_mut(node);
    lead.time = time;
    lead.round = Some(Round { confirmed: 1 << node, time });
    let this = state.member_mut(node);
    this.time = this.time.max(Some(time));
    state.told.time_begun = state.told.time_begun.max(time);
}
