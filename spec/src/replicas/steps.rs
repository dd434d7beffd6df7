//! The effect of each action on a state, with the rules that are switched on.

use crate::replicas::rules::Rule;
use crate::replicas::state::{Entry, Log, Member, NodeIx, Peer, Primary, Role, Stage, State, common_prefix};
use crate::replicas::{Action, Replicas};

impl Replicas {
    /// Applies an action to a state.
    pub fn step(&self, state: &mut State, action: Action) {
        match action {
            Action::Record(node) => {
                state.left.writes -= 1;
                append_own(state, node);
            }
            Action::WriteLog(node) => {
                let this = state.node_mut(node);
                this.held = this.end();
            }
            Action::OnFence(node, member) => on_fence(state, node, member),
            Action::Take(node) => {
                state.node_mut(node).intact = true; // it is, or everybody has reported
                primary_mut(state, node).stage = Stage::Replaying;
            }
            Action::CutToMatch(node, best) => cut_to_match(state, node, best),
            Action::OnLogPiece(node, from) => {
                let log = state.node(from).log.clone();
                let this = state.node_mut(node);
                (this.held, this.log, this.base) = (log.len() as u8, log, 0);
                (this.intact, this.complete) = (true, true);
                primary_mut(state, node).stage = Stage::Replaying;
            }
            Action::FenceAgain(node) => {
                let primary = primary_mut(state, node);
                (primary.stage, primary.reports) = (Stage::Fencing, Default::default());
            }
            Action::BeginEpoch(node) => {
                let start = state.node(node).end();
                append_own(state, node);
                let target = state.node(node).end();
                let primary = primary_mut(state, node);
                (primary.epoch_start, primary.stage) = (start, Stage::Syncing { target });
            }
            Action::OnAttach(node, member) => self.on_attach(state, node, member),
            Action::OnAppend(node, member) => on_append(state, node, member),
            Action::OnCopySegment(node, member) => self.on_copy_segment(state, node, member),
            Action::Advance(node) => self.advance(state, node, None),
            Action::AdvanceWithout(node, member) => self.advance(state, node, Some(member)),
            Action::Recovered(node) => self.recovered(state, node),
            Action::Copied(_, member) => {
                if let Some(joiner) = &mut state.committed.members[usize::from(member)] {
                    joiner.complete = true;
                    if state.committed.serving {
                        state.lost &= !(1 << member);
                    }
                }
            }
            Action::SetMembers(leaver, joiner) => set_members_committed(state, leaver, joiner),
            Action::Promote(node, set) => self.promote(state, node, set),
            Action::OnConfiguration(node) => self.on_configuration(state, node),
            Action::Restart(node) => {
                state.left.restarts -= 1;
                self.restart(state, node);
            }
            Action::LosePower(node, left) => self.lose_power(state, node, left),
            Action::Die(node) => {
                state.left.deaths -= 1;
                state.lost |= 1 << node;
                self.restart(state, node);
                state.node_mut(node).up = false;
            }
        }
    }

    fn recovered(&self, state: &mut State, node: NodeIx) {
        let recovered_from = std::mem::take(&mut state.committed.recover_from);
        state.committed.serving = true;
        let members = state.committed.members;
        self.set_members(state, node, members);
        primary_mut(state, node).stage = Stage::Serving;
        // From here on the entries that the term took over may be answered, on as many copies as there are (R7.2).
        let synced = primary_mut(state, node).synced;
        tell(state, node, synced);
        // Copies of the set that last served which are not in this set are let go.
        let is_copy = |other: &NodeIx| members[usize::from(*other)].is_some_and(|member| member.complete);
        let copies = state.all().filter(is_copy).map(|other| 1 << other).sum::<u8>();
        state.lost = (state.lost | recovered_from) & !copies;
    }

    fn lose_power(&self, state: &mut State, node: NodeIx, left: u8) {
        state.left.power_losses -= 1;
        self.restart(state, node);
        let keeps = !self.keeps(Rule::BootId);
        let this = state.node_mut(node);
        this.log.truncate(usize::from(left));
        this.held = this.end();
        this.intact &= keeps;
    }

    /// `join_point`, `on_attach`, `obey_attach`: the member's log is made to join the primary's.
    fn on_attach(&self, state: &mut State, node: NodeIx, member: NodeIx) {
        let log = state.node(node).log.clone();
        let primary = primary_mut(state, node);
        let (epoch, hold_from) = (primary.epoch, primary.synced.max(primary.epoch_start));
        let peer = &mut primary.peers[usize::from(member)];
        peer.late = peer.late.max(peer.acked);
        peer.attached = true;
        let (cuts, below) = (self.keeps(Rule::TailCut), self.keeps(Rule::JoinBelowUnsynced));
        let this = state.node_mut(member);
        this.lose_role();
        (this.promised, this.role) = (epoch, Role::Backup { epoch, attached: true });
        this.must_hold = log.len() as u8;
        let prefix = common_prefix(&this.log, &log);
        let joined = if this.complete && prefix > 0 {
            if cuts {
                this.log.truncate(usize::from(prefix));
            }
            this.end().min(log.len() as u8)
        } else {
            let head = log.len() as u8 - 1;
            this.base = if below { hold_from.min(head) } else { head };
            this.log = log[..usize::from(this.base)].iter().copied().collect();
            (this.intact, this.complete) = (false, this.base == 0);
            this.base
        };
        this.held = this.end();
        note_whole(state, member);
        let complete = state.node(member).complete;
        let peer = &mut primary_mut(state, node).peers[usize::from(member)];
        (peer.acked, peer.copied) = (joined, complete);
    }

    fn on_copy_segment(&self, state: &mut State, node: NodeIx, member: NodeIx) {
        let copies = self.keeps(Rule::CompleteElected);
        let this = state.node_mut(member);
        (this.base, this.complete) = (if copies { 0 } else { this.base }, true);
        primary_mut(state, node).peers[usize::from(member)].copied = true;
    }

    /// Every member of the committed set that the primary knows holds the log up to here (R7.2).
    fn advance(&self, state: &mut State, node: NodeIx, without: Option<NodeIx>) {
        let own = state.node(node).held;
        let primary = primary_mut(state, node);
        let counts_old = !self.keeps(Rule::AttachNumbered);
        let acked = |peer: Peer| if counts_old { peer.acked.max(peer.late) } else { peer.acked };
        let (serves, faults) = (primary.stage == Stage::Serving, self.bounds.faults);
        let others = primary.others(node).filter(|(member, _)| Some(*member) != without);
        let counted = others.filter(|(_, member)| member.complete || self.keeps(Rule::JoinersCounted));
        let held: Vec<u8> = counted.map(|(member, _)| acked(primary.peers[usize::from(member)])).collect();
        let peers = primary.others(node).count();
        if serves && peers < usize::from(faults) && self.keeps(Rule::FewestPeers) {
            return;
        }
        let least = if self.keeps(Rule::AllMembers) { held.iter().min() } else { held.iter().max() };
        let synced = least.map_or(own, |&least| least.min(own));
        if synced > primary.synced {
            primary.synced = synced;
            if serves {
                self.count_copies(state, node, synced);
                tell(state, node, synced);
            }
        }
    }

    /// An entry that is synced while the shard serves is on f + 1 nodes; after a death or a loss of power, on fewer for
    /// a while.
    fn count_copies(&self, state: &mut State, node: NodeIx, synced: u8) {
        let log = &state.node(node).log;
        let holds = |holder: NodeIx, at: u8| {
            let this = state.node(holder);
            this.holds(at, log[usize::from(at)]) && (holder != node || this.held > at)
        };
        let holders = |at: u8| state.all().filter(|&holder| holds(holder, at)).count();
        let spent = self.bounds.deaths - state.left.deaths + self.bounds.power_losses - state.left.power_losses;
        let enough = usize::from(self.bounds.faults + 1).saturating_sub(usize::from(spent));
        state.thin |= (state.told.len() as u8..synced).any(|at| holders(at) < enough);
    }

    /// `Shipping::set_members`: a member with another membership is another member.
    fn set_members(&self, state: &mut State, node: NodeIx, members: crate::replicas::state::Members) {
        let primary = primary_mut(state, node);
        for ((known, wanted), peer) in primary.members.iter_mut().zip(members).zip(&mut primary.peers) {
            let is_same = known.is_some_and(|known| wanted.is_some_and(|wanted| wanted.since == known.since));
            if !is_same {
                peer.late = peer.late.max(peer.acked);
                (peer.attached, peer.acked, peer.copied) = (false, 0, false);
            }
            *known = wanted;
        }
    }

    fn promote(&self, state: &mut State, primary: NodeIx, set: u8) {
        let recover_from = self.recover_from(state);
        let members = self.promoted_members(state, set, recover_from);
        let committed = &mut state.committed;
        committed.version += 1;
        committed.epoch += 1;
        (committed.primary, committed.serving) = (primary, false);
        (committed.members, committed.recover_from) = (members, recover_from);
        state.left.terms -= 1;
    }

    fn on_configuration(&self, state: &mut State, node: NodeIx) {
        let committed = state.committed.clone();
        let epoch = state.primary(node).map(|primary| primary.epoch);
        let may_begin = committed.epoch > state.node(node).promised
            || !self.keeps(Rule::EpochBegunOnce) && committed.epoch == state.node(node).promised && epoch.is_none();
        if committed.primary == node {
            if epoch == Some(committed.epoch) {
                self.set_members(state, node, committed.members);
            } else if !committed.serving && may_begin {
                begin_term(state, node);
            }
            return;
        }
        if epoch.is_some_and(|epoch| epoch < committed.epoch) {
            state.node_mut(node).lose_role();
        }
        let is_member = committed.members[usize::from(node)].is_some() || committed.recover_from & 1 << node != 0;
        let is_full = committed.members.iter().flatten().count() > usize::from(self.bounds.faults);
        let is_whole = committed.members.iter().flatten().all(|member| member.complete);
        let is_old = committed.epoch < state.node(node).promised;
        if !is_member && committed.serving && is_full && !is_old && (is_whole || !self.keeps(Rule::KeptUntilWhole)) {
            let this = state.node_mut(node);
            this.lose_role();
            if !this.log.is_empty() {
                (this.intact, this.complete, this.base, this.held) = (false, false, 0, 0);
                this.log.clear();
            }
        }
    }

    fn restart(&self, state: &mut State, node: NodeIx) {
        let keeps_promise = self.keeps(Rule::PromiseDurable);
        let this = state.node_mut(node);
        if this.primary.is_some() {
            this.log.truncate(usize::from(this.held));
            this.primary = None;
        }
        (this.role, this.restarts) = (Role::Idle, this.restarts + 1);
        if !keeps_promise {
            this.promised = 0;
        }
    }
}

/// Answers leave; what they promise is noted.
fn tell(state: &mut State, node: NodeIx, synced: u8) {
    let log: Log = state.node(node).log[..usize::from(synced)].iter().copied().collect();
    let shared = log.len().min(state.told.len());
    state.told_twice |= log[..shared] != state.told[..shared];
    if log.len() > state.told.len() && !state.told_twice {
        state.told = log;
    }
}

fn primary_mut(state: &mut State, node: NodeIx) -> &mut Primary {
    state.node_mut(node).primary.as_mut().expect("it leads")
}

/// A primary appends to its log in memory.
fn append_own(state: &mut State, node: NodeIx) {
    let this = state.node_mut(node);
    let epoch = this.primary.as_ref().expect("it leads").epoch;
    this.log.push(Entry { epoch, writer: this.restarts });
}

/// `replica::begin_term`: any other role is over, and the epoch is promised on file.
fn begin_term(state: &mut State, node: NodeIx) {
    let (epoch, members, electorate) = (state.committed.epoch, state.committed.members, state.committed.recover_from);
    let this = state.node_mut(node);
    this.lose_role();
    (this.promised, this.role) = (epoch, Role::Primary);
    this.primary = Some(Box::new(Primary {
        epoch,
        stage: Stage::Fencing,
        electorate,
        reports: Default::default(),
        members,
        peers: Default::default(),
        epoch_start: 0,
        synced: 0,
    }));
}

/// `backup::on_fence`, and the arrival of its report.
fn on_fence(state: &mut State, node: NodeIx, member: NodeIx) {
    let epoch = state.primary(node).expect("it leads").epoch;
    let this = state.node_mut(member);
    if !matches!(this.role, Role::Backup { epoch: followed, .. } if followed == epoch) {
        this.lose_role();
        (this.promised, this.role) = (epoch, Role::Backup { epoch, attached: false });
    }
    let report = this.report();
    primary_mut(state, node).reports[usize::from(member)] = Some(report);
}

/// `fetching::cut_to_match`: the part that both logs share stays; without a shared part, nothing stays.
fn cut_to_match(state: &mut State, node: NodeIx, best: NodeIx) {
    let reports = &state.primary(node).expect("it leads").reports;
    let until = reports[usize::from(best)].clone().expect("it was chosen");
    let this = state.node_mut(node);
    let prefix = common_prefix(&this.log, &until.log);
    if this.complete && prefix > 0 {
        this.log.truncate(usize::from(prefix));
    } else {
        (this.intact, this.complete, this.base) = (false, false, 0);
        this.log.clear();
    }
    this.held = this.end();
    primary_mut(state, node).stage = Stage::Fetching { from: best, until };
}

/// Log bytes from where the primary believes that the member's log ends. Bytes that the member already has count as the
/// same.
fn on_append(state: &mut State, node: NodeIx, member: NodeIx) {
    let acked = state.primary(node).expect("it leads").peers[usize::from(member)].acked;
    let log = state.node(node).log.clone();
    let this = state.node_mut(member);
    let end = this.end();
    if end < acked {
        return; // a gap: it is attached again
    }
    if let Some(&next) = log.get(usize::from(end)) {
        // The predecessor is named with its epoch.
        let fits = end == 0 || this.log[usize::from(end) - 1].epoch == log[usize::from(end) - 1].epoch;
        if !fits {
            return;
        }
        this.log.push(next);
        this.held = this.end();
    }
    note_whole(state, member);
    let end = state.node(member).end();
    let peer = &mut primary_mut(state, node).peers[usize::from(member)];
    peer.acked = peer.acked.max(end.min(log.len() as u8));
}

/// R5.5: the log is copied again, and on file.
fn note_whole(state: &mut State, member: NodeIx) {
    let this = state.node_mut(member);
    this.intact |= this.end() >= this.must_hold;
}

/// `repair::set_members` and its commit. If the primary itself is named as the leaver, no member leaves.
fn set_members_committed(state: &mut State, leaver: NodeIx, joiner: Option<NodeIx>) {
    let speaks = state.node(state.committed.primary).up;
    let committed = &mut state.committed;
    committed.version += 1;
    if leaver != committed.primary {
        let was = committed.members[usize::from(leaver)].take();
        if committed.serving && speaks && was.is_some_and(|member| member.complete) {
            state.lost |= 1 << leaver;
        }
    }
    if let Some(joiner) = joiner {
        committed.members[usize::from(joiner)] = Some(Member { complete: false, since: committed.version });
    }
    state.left.set_changes -= 1;
}
