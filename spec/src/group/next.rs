//! Which actions are possible in a state. An action that would change nothing is dropped by the model's `next_state`.

use crate::group::bounds::Change;
use crate::group::rules::Rule;
use crate::group::state::{Kind, Lead, Member, NodeIx, Report, Round, State, ViewIx, bits, is_quorum, newest_list};
use crate::group::{Action, Group};

impl Group {
    /// The list of members that is in force by a log.
    pub(super) fn list(&self, log: &[crate::group::state::Entry]) -> u8 {
        newest_list(log).map_or(self.bounds.list, |(list, _)| list)
    }

    /// Whether frames of this view were sent to the member: it is, or was, in one of the lists of its log.
    fn is_addressed(&self, state: &State, view: ViewIx, node: NodeIx) -> bool {
        let names = |list: u8| list & 1 << node != 0;
        let log = &state.view(view).log;
        names(self.bounds.list) || (1..=log.len()).any(|end| names(self.list(&log[..end])))
    }

    /// View changes, and the log that reaches a member.
    pub(super) fn change_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for node in state.all_up() {
            let this = state.member(node);
            if this.synced < this.end() || this.behind.is_some() {
                actions.push(Action::Write(node));
            }
            for view in state.all_views().filter(|&view| view >= this.view) {
                self.view_actions(state, node, view, actions);
            }
            self.merge_actions(state, node, actions);
        }
    }

    fn view_actions(&self, state: &State, node: NodeIx, view: ViewIx, actions: &mut Vec<Action>) {
        let (this, of) = (state.member(node), state.view(view));
        if view > this.view {
            let knows_itself = self.list(&this.log) & 1 << node != 0;
            let may_wish = || self.bounds.wishes.get(usize::from(view) - 2).is_none_or(|&leader| leader == node);
            if of.leader.is_none() && knows_itself && may_wish() {
                actions.push(Action::Wish(node, view));
            }
            let is_asked = state.all_views().any(|view| self.is_addressed(state, view, node));
            // Who enters a view that is led already confirms its rounds without its log. Nothing else comes of it.
            let counts = !of.is_led() || self.bounds.questions > 0;
            if of.leader.is_some() && !of.over && is_asked && counts {
                actions.push(Action::Enter(node, view));
            }
        }
        let is_led_by_another = of.is_led() && of.leader != Some(node) && (this.lead.is_none() || view > this.view);
        if is_led_by_another && self.is_addressed(state, view, node) {
            if this.log_view < view {
                actions.push(Action::OnNewView(node, view));
            } else if this.view == view && this.behind.is_none() && this.log.len() < of.log.len() {
                actions.push(Action::OnPrepare(node, view));
            }
        }
    }

    /// Any reports of which its own is one, if they suffice. Reports may arrive late, or never.
    fn merge_actions(&self, state: &State, node: NodeIx, actions: &mut Vec<Action>) {
        let this = state.member(node);
        if this.view == 0 || this.lead.is_some() {
            return;
        }
        let of = state.view(this.view);
        let leads = of.leader == Some(node) && !of.is_led() || !self.keeps(Rule::ViewHasOneLeader);
        let reporters: u8 =
            (0u8..).zip(&of.reports).filter(|(_, report)| report.is_some()).map(|(at, _)| 1 << at).sum();
        let own = 1u8 << node;
        if !leads || of.over || reporters & own == 0 {
            return;
        }
        let chosen = (0..=reporters).filter(|mask| mask & !reporters == 0 && mask & own != 0);
        for mask in chosen {
            let merged = self.merged(state, this.view, mask);
            let counts = if self.keeps(Rule::QuorumOfMerged) { &merged.log } else { &this.log };
            if is_quorum(self.list(counts), mask) {
                actions.push(Action::Merge(node, mask));
            }
        }
    }

    /// The report with the greatest (log view, operation) of these.
    pub(super) fn merged<'a>(&self, state: &'a State, view: ViewIx, mask: u8) -> &'a Report {
        let reports = bits(mask).map(|node| state.view(view).reports[usize::from(node)].as_ref().expect("it reported"));
        let rank = |report: &&Report| {
            let length = i16::from(report.log.len() as u8);
            let log_view = if self.keeps(Rule::LogViewRanks) { report.log_view } else { 0 };
            (log_view, if self.keeps(Rule::LongestTaken) { length } else { -length })
        };
        reports.max_by_key(rank).expect("it has its own")
    }

    /// A leader's operations.
    pub(super) fn lead_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for node in state.all() {
            let this = state.member(node);
            let Some(lead) = this.lead.as_deref() else { continue };
            if state.left.operations > 0 {
                actions.push(Action::Append(node));
            }
            if self.committed(state, node, lead) > lead.committed {
                actions.push(Action::Commit(node));
            }
            let changes = bits(state.left.changes).filter(|&at| self.may_change(this, node, lead, at));
            actions.extend(changes.map(|at| Action::Change(node, at)));
            if self.bounds.now_max > 0 && state.now >= lead.expires && !this.says(Kind::Lost) {
                actions.push(Action::DeclareLost(node));
            }
            if self.bounds.shortens && !this.says(Kind::ShorterLease) {
                actions.push(Action::ShortenLease(node));
            }
            let is_over = lead.shortened.is_some_and(|at| state.now >= at + self.bounds.lease);
            if is_over && !this.says(Kind::ShorterBound) {
                actions.push(Action::LowerBound(node));
            }
        }
    }

    /// How much of the log a quorum of the list in force has on its disks.
    pub(super) fn committed(&self, state: &State, node: NodeIx, lead: &Lead) -> u8 {
        let this = state.member(node);
        if !self.keeps(Rule::QuorumBeforeTold) {
            return this.end();
        }
        let has = |member: NodeIx, end: u8| {
            // Without the rule, a leader that began again is told by others how long their logs of its view are.
            let other = state.member(member);
            let passes = !self.keeps(Rule::LedByOneProcess) && other.log_view == this.view && other.end() >= end;
            lead.acked[usize::from(member)] >= end || passes
        };
        let list = self.list(&this.log);
        let holders = |end: u8| state.all().filter(|&member| has(member, end)).map(|member| 1u8 << member).sum();
        (0..=this.end()).rev().find(|&end| is_quorum(list, holders(end))).unwrap_or(0)
    }

    fn may_change(&self, this: &Member, node: NodeIx, lead: &Lead, at: u8) -> bool {
        let list = self.list(&this.log);
        let fits = match self.bounds.changes[usize::from(at)] {
            Change::Add(joiner) => list & 1 << joiner == 0,
            Change::Remove(leaver) => list & 1 << leaver != 0 && leaver != node,
            Change::Grow(_) => list.count_ones() == 1,
        };
        let is_committed = newest_list(&this.log).is_none_or(|(_, at)| at < lead.committed);
        let own = this.log[..usize::from(lead.committed)].iter().any(|entry| entry.view == this.view);
        fits && (is_committed || !self.keeps(Rule::OneChange)) && (own || !self.keeps(Rule::ChangeAfterOwn))
    }

    /// Questions, rounds and answers.
    pub(super) fn round_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for node in state.all() {
            let this = state.member(node);
            let Some(lead) = this.lead.as_deref() else { continue };
            let list = self.list(&this.log);
            self.begin_actions(state, node, lead, actions);
            for member in state.all_up().filter(|member| list & 1 << member != 0) {
                let counts = |round: Round| {
                    // When a quorum has confirmed a round, only the memory of its time is of use.
                    let is_of_use = self.bounds.time_max > 0 || !is_quorum(list, round.confirmed);
                    round.confirmed & 1 << member == 0 && is_of_use
                };
                if lead.round.is_some_and(counts) && state.member(member).view == this.view {
                    actions.push(Action::OnRound(node, member));
                }
            }
            if self.may_answer(lead, list) {
                actions.push(Action::Answer(node));
            }
        }
        if state.now < self.bounds.now_max {
            actions.push(Action::Tick);
        }
    }

    /// The strictest round begins as soon as its question has come. Without one of the rules, a round begins before, or
    /// not at all.
    fn begin_actions(&self, state: &State, node: NodeIx, lead: &Lead, actions: &mut Vec<Action>) {
        if lead.question.is_some() || state.left.questions == 0 {
            return;
        }
        let (waits, is_younger) = (self.keeps(Rule::AnswerWaits), self.keeps(Rule::RoundIsYounger));
        if !waits || !is_younger && lead.round.is_some() {
            actions.push(Action::Ask(node));
        } else {
            let ahead = (lead.time + 1).min(self.bounds.time_max).min(lead.committed).max(lead.time);
            actions.extend((lead.time..=ahead).map(|time| Action::BeginRound(node, time)));
        }
    }

    fn may_answer(&self, lead: &Lead, list: u8) -> bool {
        let Some(question) = lead.question else { return false };
        let follows = lead.committed >= question.basis || !self.keeps(Rule::AnswerFollowsDecided);
        let is_confirmed = lead.round.is_some_and(|round| is_quorum(list, round.confirmed));
        follows && (is_confirmed || !self.keeps(Rule::AnswerWaits))
    }

    /// The faults that may happen.
    pub(super) fn fault_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for node in state.all_up() {
            let this = state.member(node);
            let leaves = if this.synced == this.end() { 1 } else { 2 };
            for left in [this.end(), this.synced].into_iter().take(leaves) {
                if state.left.restarts > 0 {
                    actions.push(Action::Restart(node, left));
                }
                if state.left.reboots > 0 {
                    actions.push(Action::Reboot(node, left));
                }
            }
            if state.left.files_lost > 0 {
                actions.push(Action::LoseFiles(node));
            }
            if state.left.snapshots > 0 && this.lead.is_some() {
                actions.push(Action::Snapshot(node));
            }
        }
    }
}
