//! Which actions are possible in a state. An action that would change nothing is dropped by the model's `next_state`.

use crate::replicas::rules::Rule;
use crate::replicas::state::{LOG_MAX, Members, NodeIx, Primary, Report, Role, Stage, State};
use crate::replicas::{Action, Replicas};

impl Replicas {
    /// A primary's term, step by step.
    pub(super) fn term_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for node in state.all().filter(|&node| state.node(node).up) {
            actions.push(Action::OnConfiguration(node));
            let Some(primary) = state.primary(node) else { continue };
            match &primary.stage {
                Stage::Fencing => self.fence_actions(state, node, primary, actions),
                Stage::Fetching { from, until } => {
                    let source = state.node(*from);
                    let is_there = source.promised == primary.epoch && source.up && source.primary.is_none();
                    if is_there && source.report() == *until {
                        actions.push(Action::OnLogPiece(node, *from));
                    } else {
                        actions.push(Action::FenceAgain(node));
                    }
                }
                Stage::Replaying => actions.push(Action::BeginEpoch(node)),
                Stage::Syncing { target } => {
                    let is_newest = state.committed.epoch == primary.epoch && state.committed.primary == node;
                    if primary.synced >= *target && is_newest {
                        actions.push(Action::Recovered(node));
                    }
                }
                Stage::Serving => {
                    let has_room = state.node(node).log.len() + usize::from(state.left.terms) < LOG_MAX;
                    if state.left.writes > 0 && has_room {
                        actions.push(Action::Record(node));
                    }
                }
            }
        }
    }

    fn fence_actions(&self, state: &State, node: NodeIx, primary: &Primary, actions: &mut Vec<Action>) {
        for member in state.all().filter(|&member| member != node && primary.electorate & 1 << member != 0) {
            if self.follows(state, node, member) && primary.reports[usize::from(member)].is_none() {
                actions.push(Action::OnFence(node, member));
            }
        }
        match self.choice(state, node, primary) {
            Some(best) if best == node => actions.push(Action::Take(node)),
            Some(best) => actions.push(Action::CutToMatch(node, best)),
            None => {}
        }
    }

    /// `Election::choice`: the greatest of the logs that surely hold everything that was synced. If none is sure, the
    /// greatest of all complete logs, when every member has reported (R5.5).
    pub(crate) fn choice(&self, state: &State, node: NodeIx, primary: &Primary) -> Option<NodeIx> {
        if !self.keeps(Rule::GreatestTaken) {
            return Some(node);
        }
        let report = |member: NodeIx| {
            if member == node { Some(state.node(node).report()) } else { primary.reports[usize::from(member)].clone() }
        };
        let electorate = || state.all().filter(|member| primary.electorate & 1 << member != 0);
        let reports = || electorate().filter_map(|member| Some((member, report(member)?)));
        let complete = || reports().filter(|(_, report)| report.complete);
        let all = electorate().all(|member| report(member).is_some());
        let greatest = |(member, report): &(NodeIx, Report)| (report.greatness(), *member == node, *member);
        let sure = complete().filter(|(_, report)| report.intact || !self.keeps(Rule::BootId)).max_by_key(greatest);
        sure.or_else(|| complete().max_by_key(greatest).filter(|_| all)).map(|(member, _)| member)
    }

    /// `replica::follow`: whether a node obeys this primary.
    pub(super) fn follows(&self, state: &State, primary: NodeIx, node: NodeIx) -> bool {
        let Some(primary) = state.primary(primary) else { return false };
        let this = state.node(node);
        let leads = this.primary.as_ref().is_some_and(|other| other.epoch >= primary.epoch);
        this.up && this.promised <= primary.epoch && !leads
    }

    /// Frames between a primary and its members.
    pub(super) fn shipping_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for node in state.all().filter(|&node| state.node(node).up) {
            let Some(primary) = state.primary(node).filter(|primary| primary.has_begun()) else { continue };
            if state.node(node).held < state.node(node).end() {
                actions.push(Action::WriteLog(node));
            }
            for (member, _) in primary.others(node) {
                let peer = primary.peers[usize::from(member)];
                let is_attached = self.is_attached(state, node, member);
                if !is_attached && self.follows(state, node, member) {
                    actions.push(Action::OnAttach(node, member));
                }
                if self.takes_appends(state, node, member) && peer.acked < state.node(node).end() {
                    actions.push(Action::OnAppend(node, member));
                }
                let lacks = !state.node(member).complete && state.node(member).end() > state.node(member).base;
                if is_attached && lacks {
                    actions.push(Action::OnCopySegment(node, member));
                }
                self.report_copied(state, node, primary, member, actions);
                if !self.keeps(Rule::SetCommitted) && primary.stage == Stage::Serving {
                    actions.push(Action::AdvanceWithout(node, member));
                }
            }
            actions.push(Action::Advance(node));
        }
    }

    /// Whether the member's log is as this primary's newest attachment left it.
    fn is_attached(&self, state: &State, node: NodeIx, member: NodeIx) -> bool {
        let Some(primary) = state.primary(node) else { return false };
        let attached = Role::Backup { epoch: primary.epoch, attached: true };
        primary.peers[usize::from(member)].attached && state.node(member).up && state.node(member).role == attached
    }

    fn takes_appends(&self, state: &State, node: NodeIx, member: NodeIx) -> bool {
        let Some(primary) = state.primary(node) else { return false };
        let was_attached = primary.peers[usize::from(member)].attached;
        let is_unfenced = !self.keeps(Rule::EpochFenced) && was_attached && state.node(member).up;
        self.is_attached(state, node, member) || is_unfenced
    }

    fn report_copied(&self, state: &State, node: NodeIx, primary: &Primary, member: NodeIx, actions: &mut Vec<Action>) {
        let committed = &state.committed;
        let is_newest = committed.epoch == primary.epoch && committed.primary == node;
        let known = primary.members[usize::from(member)];
        let joins =
            committed.members[usize::from(member)].filter(|member| !member.complete) == known && known.is_some();
        let peer = primary.peers[usize::from(member)];
        if is_newest && joins && peer.copied && peer.acked >= primary.synced {
            actions.push(Action::Copied(node, member));
        }
    }

    /// The changes that the coordinator may decide.
    pub(super) fn coordinator_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let committed = &state.committed;
        if state.left.set_changes > 0 {
            for leaver in state.all().filter(|&node| committed.members[usize::from(node)].is_some()) {
                if leaver != committed.primary && self.may_let_go(state, leaver) {
                    let is_spare = |node: &NodeIx| {
                        let free = committed.members[usize::from(*node)].is_none();
                        free && state.node(*node).up && committed.recover_from & 1 << node == 0
                    };
                    actions.push(Action::SetMembers(leaver, None));
                    let spares = state.all().filter(is_spare);
                    actions.extend(spares.map(|joiner| Action::SetMembers(leaver, Some(joiner))));
                }
            }
            let size = committed.members.iter().flatten().count();
            if size <= usize::from(self.bounds.faults) {
                let is_spare = |node: &NodeIx| committed.members[usize::from(*node)].is_none() && state.node(*node).up;
                let joins = state.all().filter(is_spare).filter(|node| committed.recover_from & 1 << node == 0);
                actions.extend(joins.map(|joiner| Action::SetMembers(committed.primary, Some(joiner))));
            }
        }
        if state.left.terms > 0 {
            self.promotions(state, actions);
        }
    }

    /// Decision 0007, 6: a complete copy leaves a serving set only while its primary speaks to the coordinator.
    fn may_let_go(&self, state: &State, leaver: NodeIx) -> bool {
        let committed = &state.committed;
        let is_copy = committed.members[usize::from(leaver)].is_some_and(|member| member.complete);
        if is_copy && committed.serving && !self.is_within_promise(state, true) {
            return false;
        }
        let speaks = state.node(committed.primary).up
            && state.primary(committed.primary).is_some_and(|primary| primary.epoch == committed.epoch);
        !committed.serving || !is_copy || speaks || !self.keeps(Rule::CopyLetGoByTheLiving)
    }

    /// Kasha promises to survive f losses. A copy that was let go is one loss, until it is replaced.
    fn is_within_promise(&self, state: &State, lets_go: bool) -> bool {
        let spent = u32::from(self.bounds.power_losses - state.left.power_losses);
        let losses = state.lost.count_ones() + spent;
        losses < u32::from(self.bounds.faults) || lets_go && spent == 0
    }

    /// `repair::recover_from`: the members from whose logs a new term may recover.
    pub(super) fn recover_from(&self, state: &State) -> u8 {
        let committed = &state.committed;
        let is_complete = |node: &NodeIx| committed.members[usize::from(*node)].is_some_and(|member| member.complete);
        match committed.serving {
            true => state.all().filter(is_complete).map(|node| 1 << node).sum(),
            false => committed.recover_from,
        }
    }

    fn promotions(&self, state: &State, actions: &mut Vec<Action>) {
        let recover_from = self.recover_from(state);
        for primary in state.all().filter(|&node| state.node(node).up) {
            if recover_from & 1 << primary == 0 {
                continue;
            }
            let own = 1u8 << primary;
            for set in (0..1u8 << state.nodes.len()).filter(|set| set & own != 0) {
                let size = set.count_ones();
                let is_whole = size == u32::from(self.bounds.faults) + 1;
                if is_whole || size == u32::from(self.bounds.faults) && size > 0 {
                    actions.push(Action::Promote(primary, set));
                }
            }
        }
    }

    /// The faults that may happen.
    pub(super) fn fault_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for node in state.all().filter(|&node| state.node(node).up) {
            if state.left.restarts > 0 && state.node(node).role != Role::Idle {
                actions.push(Action::Restart(node));
            }
            if state.left.power_losses > 0 && self.is_within_promise(state, false) {
                let (base, end) = (state.node(node).base, state.node(node).end());
                actions.extend((base..=end).map(|left| Action::LosePower(node, left)));
            }
            if state.left.deaths > 0 {
                actions.push(Action::Die(node));
            }
        }
    }

    /// The members of a set that is promoted, and whether their copies are complete.
    pub(super) fn promoted_members(&self, state: &State, set: u8, recover_from: u8) -> Members {
        let mut members: Members = Default::default();
        for node in state.all().filter(|node| set & 1 << node != 0) {
            let complete = recover_from & 1 << node != 0;
            members[usize::from(node)] =
                Some(crate::replicas::state::Member { complete, since: state.committed.version + 1 });
        }
        members
    }
}
