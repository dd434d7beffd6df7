//! The effect of the actions of a view change, and of faults.

use crate::group::Group;
use crate::group::rules::Rule;
use crate::group::state::{Entry, Kind, Lead, Log, Member, NODES_MAX, NodeIx, Report, State, ViewIx, end};
use crate::group::steps::acknowledge;

impl Group {
    /// The view goes to the disk, with all that the member has. Then it reports. Whatever it led is over.
    pub(super) fn enter(&self, state: &mut State, node: NodeIx, view: ViewIx) {
        let is_fsynced = self.keeps(Rule::ViewOnDisk);
        let this = state.member_mut(node);
        (this.lead, this.view) = (None, view);
        this.write();
        if is_fsynced {
            this.view_on_disk = view;
        }
        let report = Report { log_view: this.log_view, log: this.log.clone(), time: this.time };
        state.view_mut(view).reports[usize::from(node)] = Some(report);
    }

    /// The leader holds its quorum. It writes the greatest log of the quorum together with its log view, and begins to
    /// lead with an operation of its own.
    pub(super) fn merge(&self, state: &mut State, node: NodeIx, mask: u8) {
        let view = state.member(node).view;
        let mut log = self.merged(state, view, mask).log.clone();
        let time = self.time_of_quorum(state, view, node, mask, end(&log));
        let committed = if self.keeps(Rule::LeadBegins) {
            log.push(Entry { view, kind: Kind::Start });
            0
        } else {
            // A leader begins with what its predecessors told it of what is committed.
            log.iter().zip(&state.told.log).take_while(|(a, b)| a == b).count() as u8
        };
        let counts_from = if self.keeps(Rule::CountedFromQuorum) { state.now } else { state.view(view).wished };
        let bound = if self.keeps(Rule::CountedForTheSilent) { self.bound(&log) } else { 0 };
        self.adopt(state.member_mut(node), view, &log);
        let this = state.member_mut(node);
        let mut acked = [committed; NODES_MAX];
        acked[usize::from(node)] = if this.behind.is_none() { this.end() } else { committed };
        this.time = this.time.max(Some(time));
        this.lead = Some(Box::new(Lead {
            acked,
            committed,
            round: None,
            question: None,
            time,
            expires: counts_from + bound,
            shortened: None,
        }));
        state.view_mut(view).base = end(&log);
        self.send(state, node);
    }

    /// R9.4: the time from which a new leader goes on.
    fn time_of_quorum(&self, state: &mut State, view: ViewIx, own: NodeIx, mask: u8, merged_end: u8) -> u8 {
        let reported = |node: NodeIx| state.view(view).reports[usize::from(node)].as_ref().expect("it reported").time;
        let is_asked = |node: &NodeIx| mask & 1 << node != 0 && (self.keeps(Rule::TimeOfQuorum) || *node == own);
        let asked: Vec<_> = state.all().filter(is_asked).map(reported).collect();
        let forgot = asked.contains(&None);
        let greatest = asked.into_iter().flatten().max().unwrap_or(0);
        // Each operation that is committed reserves one more tick: nobody told more than there are operations.
        let reservation = merged_end.min(self.bounds.time_max);
        let is_taken = forgot && self.keeps(Rule::ReservationOfMerged) || !self.keeps(Rule::ReservationOnlyThen);
        let time = if is_taken { reservation.max(greatest) } else { greatest };
        state.told.jumped |= !forgot && time > state.told.time_begun;
        state.told.time_begun = state.told.time_begun.max(time);
        time
    }

    /// One write: the view, the log view, and the log.
    fn adopt(&self, this: &mut Member, view: ViewIx, log: &Log) {
        let in_one_write = self.keeps(Rule::LogViewWithLog);
        let on_disk: Log = match this.behind.take() {
            Some(behind) => behind,
            None => this.log[..usize::from(this.synced)].iter().copied().collect(),
        };
        let kept = usize::from(this.snapshot);
        let rest = log.iter().skip(kept).copied();
        this.log = this.log[..kept].iter().copied().chain(rest).collect();
        (this.view, this.view_on_disk, this.log_view) = (view, view, view);
        if in_one_write {
            this.write();
        } else {
            (this.behind, this.synced) = (Some(on_disk), this.end());
        }
    }

    /// The merged log arrives. What the leader appended since follows.
    pub(super) fn on_new_view(&self, state: &mut State, node: NodeIx, view: ViewIx) {
        let of = state.view(view);
        let mut log: Log = of.log[..usize::from(of.base.min(end(&of.log)))].iter().copied().collect();
        if state.member(node).log_view == 0 && !self.keeps(Rule::NewcomerCaughtUp) {
            log = of.log.clone();
            let missing = log.len() - 1;
            log[..missing].fill(Entry { view: 0, kind: Kind::Hole });
        }
        let this = state.member_mut(node);
        this.lead = None;
        self.adopt(this, view, &log);
        let this = state.member(node);
        if this.behind.is_none() {
            let end = this.end();
            acknowledge(state, view, node, end);
        }
    }

    /// A new file: a snapshot of what is committed, and the rest of the log behind it.
    pub(super) fn snapshot(&self, state: &mut State, node: NodeIx) {
        state.left.snapshots -= 1;
        let this = state.member_mut(node);
        let committed = this.lead.as_ref().expect("it leads").committed;
        this.snapshot = if self.keeps(Rule::SnapshotOfCommitted) { committed } else { this.end() };
        this.synced = if self.keeps(Rule::SnapshotWithSuffix) { this.end() } else { this.snapshot };
        // The new file is fsynced, so what it has is acknowledged as before.
        let (end, lead) = (this.synced, this.lead.as_mut().expect("it leads"));
        let acked = &mut lead.acked[usize::from(node)];
        *acked = (*acked).max(end);
        self.send(state, node);
    }

    /// The process ends. What it wished or led is over, and nobody leads that view any more.
    pub(super) fn restart(&self, state: &mut State, node: NodeIx, left: u8, reboots: bool) {
        let (counts_fast, leads_on) = (self.keeps(Rule::RestartCountsFast), !self.keeps(Rule::LedByOneProcess));
        if reboots {
            state.left.reboots -= 1;
        } else {
            state.left.restarts -= 1;
        }
        let this = state.member_mut(node);
        match this.behind.take() {
            Some(behind) => this.log = behind,
            None => this.log.truncate(usize::from(left)),
        }
        this.synced = this.end();
        this.view = this.view_on_disk;
        this.time = match (reboots, counts_fast) {
            (true, _) => None,
            (false, true) => this.time,
            (false, false) => this.time.map(|_| 0),
        };
        let was_leading = this.lead.take();
        if let Some(lead) = was_leading.filter(|_| leads_on) {
            let mut acked = [0; NODES_MAX];
            acked[usize::from(node)] = this.end();
            let (round, question) = (None, None);
            this.lead = Some(Box::new(Lead { acked, committed: 0, round, question, ..*lead }));
        }
        end_wishes(state, node);
    }

    /// R9.6: `kasha.toml` says that it was a member, so without its files it is none.
    pub(super) fn lose_files(&self, state: &mut State, node: NodeIx) {
        state.left.files_lost -= 1;
        *state.member_mut(node) = Member { up: !self.keeps(Rule::FilesNeeded), ..Member::empty() };
        end_wishes(state, node);
    }
}

/// A wish is in memory, and reports that did not arrive yet come to nobody.
fn end_wishes(state: &mut State, node: NodeIx) {
    for view in state.all_views() {
        let this = state.view_mut(view);
        this.over |= this.leader == Some(node) && !this.is_led();
    }
}
