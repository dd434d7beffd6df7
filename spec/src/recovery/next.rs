//! Which actions are possible in a state. An action that would change nothing is dropped by the model's `next_state`.

use crate::recovery::bounds::Durability;
use crate::recovery::rules::Rule;
use crate::recovery::state::{Kind, LISTS_MAX, LOG_MAX, List, NodeIx, Primary, Report, Stage, State, bits};
use crate::recovery::{Action, Recovery};

impl Recovery {
    /// Whether a member's log is whole, so that it needs no witness, by R7.7 (e).
    pub(super) fn is_whole(&self, state: &State, node: NodeIx) -> bool {
        let this = state.node(node);
        let says = |kind: Kind| match kind {
            Kind::Whole(list) => list == state.list() || !self.keeps(Rule::WholeOfCurrentList),
            Kind::Start | Kind::Update(_) => false,
        };
        let (epoch, primary) = state.committed.served;
        let is_served = this.mark == epoch && node == primary;
        let is_marked = is_served || this.mark != 0 && !self.keeps(Rule::MarkOfServedEpoch);
        this.intact && (is_marked || this.log.iter().any(|entry| says(entry.kind)))
    }

    /// What a member reports to a fence.
    pub(super) fn report(&self, state: &State, node: NodeIx) -> Report {
        let this = state.node(node);
        Report { log: this.log.clone(), intact: this.intact, whole: self.is_whole(state, node) }
    }

    /// `Election::choice`, and whether the chosen log needs no witness. The primary's own log is taken as it is now.
    pub(super) fn choice(&self, state: &State, own: NodeIx, primary: &Primary) -> Option<(NodeIx, bool)> {
        let own_report = self.report(state, own);
        let report =
            |node: NodeIx| if node == own { Some(&own_report) } else { primary.reports[usize::from(node)].as_ref() };
        let electorate = bits(state.committed.recover_from);
        let reports = || electorate.clone().filter_map(|node| Some((node, report(node)?)));
        let greatest = |(node, report): &(NodeIx, &Report)| (report.greatness(), *node == own, *node);
        let sure = || reports().filter(|(_, report)| report.intact);
        let all = reports().count() == electorate.clone().count();
        let fallback = || reports().max_by_key(greatest).filter(|_| all);
        let taken = sure().max_by_key(greatest).or_else(fallback)?.0;
        let whole = sure().filter(|(_, report)| report.whole).max_by_key(greatest);
        match whole {
            Some(_) if !self.keeps(Rule::WholePreferred) => Some((taken, true)),
            Some((whole, _)) => Some((whole, true)),
            // R6.1: nothing was answered under a list without witnesses.
            None => Some((taken, state.lists[usize::from(state.list()) - 1].empty)),
        }
    }

    /// A term, from its fence to its report.
    pub(super) fn term_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for node in state.all() {
            let Some(primary) = state.primary(node) else { continue };
            match primary.stage {
                Stage::Fencing => {
                    self.fence_actions(state, node, primary, actions);
                    if let Some((from, _)) = self.choice(state, node, primary) {
                        actions.push(if from == node { Action::Take(node) } else { Action::CutToMatch(node, from) });
                    }
                }
                Stage::Fetching { from, .. } => {
                    let source = state.node(from);
                    let reported = primary.reports[usize::from(from)].as_ref().expect("it was chosen");
                    let is_there = source.up && source.promised == primary.epoch && source.log == reported.log;
                    actions.push(if is_there { Action::OnLogPiece(node, from) } else { Action::FenceAgain(node) });
                }
                Stage::Replaying => {
                    actions.push(Action::BeginEpoch(node));
                    self.replays(state, node, primary, actions); // it may ask one nevertheless
                }
                Stage::Witnessing => {
                    if self.keeps(Rule::FencesOn) {
                        self.fence_actions(state, node, primary, actions);
                        if let Some((from, true)) = self.choice(state, node, primary) {
                            actions.push(if from == node {
                                Action::Take(node)
                            } else {
                                Action::CutToMatch(node, from)
                            });
                        }
                    }
                    self.replays(state, node, primary, actions);
                }
                Stage::Syncing => {
                    let end = state.node(node).end();
                    if primary.synced == end && state.node(node).held == end {
                        actions.push(Action::Mark(node));
                    }
                }
                Stage::Reporting => {
                    let committed = &state.committed;
                    let is_newest = (committed.epoch, committed.primary) == (primary.epoch, node);
                    if is_newest && !committed.serving && state.lists.len() < LISTS_MAX {
                        actions.push(Action::Recovered(node));
                    }
                }
                Stage::Serving => self.serving_actions(state, node, primary, actions),
            }
            self.shipping_actions(state, node, primary, actions);
        }
    }

    fn replays(&self, state: &State, node: NodeIx, primary: &Primary, actions: &mut Vec<Action>) {
        let List { empty, witnesses } = &state.lists[usize::from(primary.list) - 1];
        let there = (0..self.bounds.faults).filter(|&at| !empty && !witnesses[usize::from(at)].lost);
        actions.extend(there.map(|witness| Action::OnWitnessHolds(node, witness)));
    }

    fn fence_actions(&self, state: &State, node: NodeIx, primary: &Primary, actions: &mut Vec<Action>) {
        for member in bits(state.committed.recover_from).filter(|&member| member != node) {
            if primary.reports[usize::from(member)].is_none() && follows(state, primary, member) {
                actions.push(Action::OnFence(node, member));
            }
        }
    }

    fn shipping_actions(&self, state: &State, node: NodeIx, primary: &Primary, actions: &mut Vec<Action>) {
        let this = state.node(node);
        if !matches!(primary.stage, Stage::Syncing | Stage::Reporting | Stage::Serving) {
            return;
        }
        if this.held < this.end() {
            actions.push(Action::WriteLog(node));
        }
        let may_attach = this.held >= primary.whole_end || !self.keeps(Rule::AttachAfterFile);
        for member in bits(primary.members).filter(|&member| member != node) {
            if !follows(state, primary, member) {
                continue;
            }
            if state.node(member).attached != primary.epoch {
                if may_attach {
                    actions.push(Action::OnAttach(node, member));
                }
            } else if state.node(member).end() < this.end() {
                actions.push(Action::OnAppend(node, member));
            }
        }
    }

    fn serving_actions(&self, state: &State, node: NodeIx, primary: &Primary, actions: &mut Vec<Action>) {
        // There must also be room for the entries of later terms.
        let needs = usize::from(state.left.terms) * (2 + usize::from(self.bounds.updates));
        for update in 0..self.bounds.updates {
            if state.node(node).place(update).is_none() && state.node(node).log.len() + needs < LOG_MAX {
                actions.push(Action::OnRequest(node, update));
            }
        }
        let committed = &state.committed;
        if (committed.epoch, committed.primary) != (primary.epoch, node) || state.lists.len() == LISTS_MAX {
            return;
        }
        let Some(closing_at) = primary.closing_at else {
            if state.left.list_changes > 0 && !primary.stops {
                actions.push(Action::CloseList(node));
            }
            if state.left.stops > 0 && !primary.stops {
                actions.push(Action::Stop(node));
            }
            return;
        };
        if primary.synced >= closing_at || primary.stops && !self.keeps(Rule::StopSynced) {
            actions.push(Action::OpenList(node));
        }
    }

    /// Clients record their updates at the witnesses of any list under which a primary serves or has answered.
    pub(super) fn client_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for list in 1..=state.list() {
            let serves = |node: NodeIx| {
                state.primary(node).is_some_and(|primary| primary.stage == Stage::Serving && primary.list == list)
            };
            let is_served = state.all().any(serves);
            for update in 0..self.bounds.updates {
                let known = &state.updates[usize::from(update)];
                if known.done || !is_served && known.answered & 1 << list == 0 {
                    continue;
                }
                for witness in 0..self.bounds.faults {
                    let List { empty, witnesses } = &state.lists[usize::from(list) - 1];
                    let there = &witnesses[usize::from(witness)];
                    if !empty && !there.frozen && !there.lost && there.held & 1 << update == 0 {
                        actions.push(Action::OnRecord(update, list, witness));
                    }
                }
            }
        }
    }

    /// The promotions that the coordinator may decide.
    pub(super) fn promotions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.left.terms == 0 {
            return;
        }
        let recover_from = state.committed.recover_from;
        for primary in bits(recover_from).filter(|&node| state.node(node).up) {
            for set in 1..1u8 << state.nodes.len() {
                let is_set = set & !recover_from == 0 && set & 1 << primary != 0;
                if is_set && (set.count_ones() > u32::from(self.bounds.min_backups) || set == recover_from) {
                    actions.push(Action::Promote(primary, set));
                }
            }
        }
    }

    /// The faults that may happen.
    pub(super) fn fault_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for node in state.all().filter(|&node| state.node(node).up) {
            let this = state.node(node);
            if state.left.kills > 0 && this.primary.is_some() {
                actions.extend((this.held..=this.end()).map(|left| Action::Kill(node, left)));
            }
            if state.left.losses == 0 || !self.is_within_promise(state) {
                continue;
            }
            if self.bounds.deaths {
                actions.push(Action::Die(node));
            }
            if self.bounds.power_losses {
                let least = match self.bounds.durability {
                    Durability::Replicated => 0,
                    Durability::Fsync => this.flushed,
                };
                actions.extend((least..=this.held).map(|left| Action::LosePower(node, left)));
            }
            if self.bounds.damage && this.primary.is_none() && self.only_it_holds_its_end(state, node) {
                actions.push(Action::Damage(node));
            }
        }
        if self.bounds.witness_losses && state.left.losses > 0 && self.is_within_promise(state) {
            let witnesses = &state.lists[state.lists.len() - 1].witnesses;
            let there = (0..self.bounds.faults).filter(|&at| !witnesses[usize::from(at)].lost);
            actions.extend(there.map(Action::LoseWitness));
        }
    }

    /// Whether only this primary holds the end of its log. If others hold it too, it was acknowledged, and damage to it
    /// is about R5.5. This model is about the end that only the primary holds.
    fn only_it_holds_its_end(&self, state: &State, node: NodeIx) -> bool {
        let last = state.node(node).log.last();
        let others = state.all().filter(|&other| other != node);
        state.committed.served.1 == node
            && others.into_iter().all(|other| !last.is_some_and(|last| state.node(other).log.contains(last)))
    }

    /// f losses are tried. A set with fewer than f + 1 members has used up some of them.
    fn is_within_promise(&self, state: &State) -> bool {
        let is_spare = |node: &NodeIx| state.node(*node).up && state.committed.recover_from & 1 << node == 0;
        usize::from(state.left.losses) > state.all().filter(is_spare).count()
    }
}

/// `replica::follow`: whether a member obeys this primary.
fn follows(state: &State, primary: &Primary, member: NodeIx) -> bool {
    let this = state.node(member);
    let leads = this.primary.as_ref().is_some_and(|other| other.epoch >= primary.epoch);
    this.up && this.promised <= primary.epoch && !leads
}
