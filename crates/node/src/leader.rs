//! A primary's term, from promotion to serving (section 7; CURP 3.3 and 4.6).
//!
//! ```text
//! Fencing ─▶ Fetching ─▶ Replaying ─▶ Witnessing ─▶ Syncing ─▶ Reporting ─▶ Serving
//!   step 2     step 2      step 3       step 4       step 5      step 5
//!    ▲                                    │
//!    └──── no witness is sure (R5.5) ◀────┘
//! ```
//!
//! No step falls through: without one sure member, or without one witness of the current list, the term waits. Nothing is
//! written in the term's epoch before it is known which log it goes on with, and which witness.

use std::borrow::Cow;

use kasha_log::{EntryKind, Purpose, common_prefix};
use kasha_machine::{Effects, Endpoint, Gate};
use kasha_replication::{Choice, Election, FenceReport, MemberCore, Quorum, Shipping, history_of};
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{AttachId, CoreId, Epoch, ListVersion, LocalPosition, LogPosition, NodeId, ShardId, Tick};
use kasha_wire::codec::Bytes;
use kasha_wire::message::{Holding, Message, Report};
use kasha_wire::{MemberState, ShardConfig};

use crate::backup::{FETCH_FROM_HEAD, LOG_BYTES_MAX, screen};
use crate::core::{Core, send};
use crate::replica::{Replica, Role};
use crate::request_path::Replayed;
use crate::serving::Serving;

/// What a witness handed out.
#[derive(Debug)]
pub(crate) struct WitnessAnswer {
    pub node: NodeId,
    pub holding: Holding,
    pub requests: Vec<Bytes>,
}

/// What the answers of a list's witnesses allow. The rule stands in `witnessing`.
#[derive(Debug, PartialEq, Eq)]
enum Replayable {
    /// This answer is sure.
    Sure(usize),
    /// All have answered, none is sure, and this one holds the most (R5.5).
    Fullest(usize),
    /// Something better may come.
    None,
}

fn replayable(answers: &[WitnessAnswer], witnesses: usize) -> Replayable {
    if let Some(sure) = answers.iter().position(|answer| answer.holding == Holding::Sure) {
        return Replayable::Sure(sure);
    }
    let all = answers.iter().filter(|answer| answer.holding != Holding::NeverHad).count() == witnesses;
    (answers.iter().enumerate())
        .filter(|(_, answer)| all && answer.holding == Holding::PowerLost)
        .max_by_key(|(_, answer)| answer.requests.len())
        .map_or(Replayable::None, |(index, _)| Replayable::Fullest(index))
}

/// What a term waits for that no witness has helped yet, for a person.
fn describe_witnesses(witnesses: &[CoreId], answers: &[WitnessAnswer]) -> String {
    let each = witnesses.iter().map(|core| {
        let answer = answers.iter().find(|answer| answer.node == core.node);
        let says = match answer.map(|answer| answer.holding) {
            None => "does not answer: start it",
            Some(Holding::NeverHad) => "does not know the current configuration yet",
            Some(Holding::PowerLost) => "lost power, and counts when all have answered and every member has reported",
            Some(Holding::Damaged) => "has lost the witness files: restore them, and start it again",
            Some(Holding::Sure) => "is being replayed",
        };
        format!("{} {says}", core.node)
    });
    format!("waits for a witness of the current list: {}", each.collect::<Vec<_>>().join("; "))
}

/// Where a term is.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Members of the set that last served promise our epoch and report.
    Fencing { election: Election, asked: Option<Tick> },
    /// Another member has the greater log: take what we lack.
    Fetching(Fetching),
    /// The log goes into the state.
    Replaying,
    /// One witness of the current list is frozen, and what it holds goes through `look_up`.
    Witnessing { asked: Option<Tick>, answers: Vec<WitnessAnswer> },
    /// Everything so far goes to the committed set, and is flushed here with this commit.
    Syncing { target: u64, flushed: Option<LocalPosition> },
    /// The coordinator is to commit that we serve, under a fresh witness list.
    Reporting,
    /// Clients are served.
    Serving(Serving),
}

/// Taking another member's log.
#[derive(Debug)]
pub(crate) struct Fetching {
    from: NodeId,
    /// Its end, as it reported: less is not all.
    until: LogPosition,
    /// What we hold joins it; otherwise its head is asked for first.
    begun: bool,
    asked: Option<Tick>,
    /// Questions without an answer.
    unanswered: u32,
}

/// Questions to one member before another is looked for.
const UNANSWERED_MAX: u32 = 20;

/// The primary of one epoch.
#[derive(Debug)]
pub(crate) struct Leader {
    pub epoch: Epoch,
    pub shipping: Shipping,
    pub stage: Stage,
    /// The list that is replayed, and later served under.
    pub list: ListVersion,
    /// Our promise of this epoch: nothing is written in it before the promise is on our file, or a new incarnation of
    /// this process could begin the same epoch again.
    promise: LocalPosition,
    /// Whose reports it needs.
    quorum: Quorum,
    witnesses: Vec<CoreId>,
    /// The members that may hold the log, and where they are.
    recover_from: Vec<NodeId>,
    electorate: Vec<CoreId>,
}

/// The cores of these nodes that host the shard.
fn cores_of(core: &Core, shard: ShardId, nodes: impl IntoIterator<Item = NodeId>) -> Vec<CoreId> {
    let configuration = core.configuration.as_ref().expect("a configuration promoted us");
    nodes.into_iter().filter_map(|node| configuration.core_of(node, shard)).collect()
}

pub(crate) fn members_of(core: &Core, config: &ShardConfig) -> Vec<MemberCore> {
    let configuration = core.configuration.as_ref().expect("a configuration named them");
    let members = config.members.iter();
    members
        .filter_map(|member| {
            let core = configuration.core_of(member.node, config.shard)?;
            let incarnation = configuration.node(member.node)?.incarnation;
            Some(MemberCore { core, joining: member.state == MemberState::Joining, since: member.since, incarnation })
        })
        .collect()
}

/// Members besides the primary without which nothing is synced while it serves.
pub(crate) fn fewest_peers(core: &Core) -> usize {
    let configuration = core.configuration.as_ref().expect("a configuration promoted us");
    usize::from(configuration.min_backups)
}

impl Leader {
    pub fn serving(&self) -> Option<&Serving> {
        match &self.stage {
            Stage::Serving(serving) => Some(serving),
            Stage::Fencing { .. }
            | Stage::Fetching(_)
            | Stage::Replaying
            | Stage::Witnessing { .. }
            | Stage::Syncing { .. }
            | Stage::Reporting => None,
        }
    }

    /// The state is ahead of replay from here on.
    pub fn executes(&self) -> bool {
        match &self.stage {
            Stage::Fencing { .. } | Stage::Fetching(_) | Stage::Replaying | Stage::Witnessing { .. } => false,
            Stage::Syncing { .. } | Stage::Reporting | Stage::Serving(_) => true,
        }
    }

    pub fn into_serving(self) -> Option<Serving> {
        match self.stage {
            Stage::Serving(serving) => Some(serving),
            Stage::Fencing { .. }
            | Stage::Fetching(_)
            | Stage::Replaying
            | Stage::Witnessing { .. }
            | Stage::Syncing { .. }
            | Stage::Reporting => None,
        }
    }

    pub fn describe(&self) -> Cow<'static, str> {
        let text = match &self.stage {
            Stage::Fencing { election, .. } if self.quorum == Quorum::Everyone => {
                let missing: Vec<_> = election.missing().map(|node| node.to_string()).collect();
                return format!("no witness is sure: waits for every member; start {}", missing.join(", ")).into();
            }
            Stage::Fencing { .. } => "fencing: waits for a member that surely holds the log",
            Stage::Fetching(_) => "fetching the rest of the log from another member",
            Stage::Replaying => "replaying the log",
            Stage::Witnessing { answers, .. } => return describe_witnesses(&self.witnesses, answers).into(),
            Stage::Syncing { .. } => "syncing with the new members",
            Stage::Reporting => "waits for the coordinator's commit",
            Stage::Serving(_) => "serving",
        };
        text.into()
    }

    pub fn reports(&self, shard: ShardId, reports: &mut Vec<Report>) {
        let epoch = self.epoch;
        match &self.stage {
            Stage::Reporting => reports.push(Report::Recovered { shard, epoch }),
            Stage::Serving(serving) => {
                if serving.list_is_closed(self.shipping.synced()) {
                    reports.push(Report::ListClosed { shard, epoch, list: self.list });
                }
            }
            Stage::Fencing { .. }
            | Stage::Fetching(_)
            | Stage::Replaying
            | Stage::Witnessing { .. }
            | Stage::Syncing { .. } => return,
        }
        reports.extend(self.shipping.copied().map(|node| Report::Copied { shard, epoch, node }));
    }

    fn overdue(core: &Core, now: Tick, asked: Option<Tick>) -> bool {
        asked.is_none_or(|asked| now.since(asked) >= core.options.pace.retry)
    }

    pub fn next_deadline(&self, core: &Core) -> Option<Tick> {
        match &self.stage {
            Stage::Fencing { asked, .. }
            | Stage::Fetching(Fetching { asked, .. })
            | Stage::Witnessing { asked, .. } => {
                Some(asked.map_or(Tick(0), |asked| asked.after(core.options.pace.retry)))
            }
            // The replica replays by itself; our promise comes from the disk.
            Stage::Replaying => None,
            Stage::Syncing { .. } | Stage::Reporting => self.shipping.next_deadline(),
            Stage::Serving(serving) => {
                [self.shipping.next_deadline(), serving.next_deadline()].into_iter().flatten().min()
            }
        }
    }
}

impl Replica {
    /// The configuration made us primary of this epoch (step 1). Whatever we were, we begin anew.
    pub fn begin_term(&mut self, core: &mut Core, config: &ShardConfig, out: &mut Effects) {
        assert!(self.leader().is_none_or(|leader| leader.epoch < config.epoch), "a term begins once");
        self.lose_role(out);
        let never_served = config.recover_from.is_empty();
        if never_served {
            self.reset_log(core, 0, out);
            (self.meta.intact, self.meta.complete) = (true, true);
        }
        self.promise(core, config.epoch, out);
        let promise = core.commit_position();
        let stage = match never_served {
            true => Stage::Replaying,
            false => {
                let election = Election::new(config.epoch, config.recover_from.clone(), Quorum::OneSure);
                Stage::Fencing { election, asked: None }
            }
        };
        let mut shipping = Shipping::new(self.shard, config.epoch, core.id(), core.options.pace, 0);
        shipping.set_members(members_of(core, config));
        let witnesses = if never_served { Vec::new() } else { config.witnesses.clone() };
        self.role = Role::Leader(Box::new(Leader {
            epoch: config.epoch,
            shipping,
            stage,
            list: config.list,
            promise,
            quorum: Quorum::OneSure,
            witnesses: cores_of(core, self.shard, witnesses),
            recover_from: config.recover_from.clone(),
            electorate: cores_of(core, self.shard, config.recover_from.iter().copied()),
        }));
    }

    /// What we hold, as a report of our own fence.
    pub fn fence_report(&self, node: NodeId) -> FenceReport {
        FenceReport {
            node,
            end: self.log.end(),
            history: history_of(&self.log),
            intact: self.exists && self.meta.intact,
            complete: self.exists && self.meta.complete,
        }
    }

    /// Moves the term on as far as it goes now. Called once a turn.
    pub fn advance_term(&mut self, core: &mut Core, now: Tick, out: &mut Effects) {
        let replayed = self.is_replayed();
        let Some(leader) = self.leader_mut() else { return };
        match &mut leader.stage {
            Stage::Fencing { .. } => self.fence(core, now, out),
            Stage::Fetching(_) => self.fetch(core, now, out),
            Stage::Replaying if replayed && core.local_durable >= leader.promise => {
                self.log_is_replayed(core, now, out)
            }
            Stage::Replaying => {}
            Stage::Witnessing { .. } => self.ask_witnesses(core, now, out),
            Stage::Syncing { target, flushed } => {
                // A shard that never served has no other copies: its first members must all be complete before it does.
                let whole = !leader.recover_from.is_empty() || leader.shipping.all_copied();
                let is_synced = leader.shipping.synced() >= *target || planted::is_on(Bug::ServedUnsynced);
                if is_synced && whole {
                    // What a witness held was answered long ago. Its file goes with the report, so under `replicated` ours
                    // must have it on the disk, or a loss of power everywhere takes more than was told last (section 5).
                    let commit = *flushed.get_or_insert_with(|| core.fsynced_commit());
                    if core.local_durable >= commit || planted::is_on(Bug::RecoveredUnflushed) {
                        leader.stage = Stage::Reporting;
                    }
                }
            }
            Stage::Reporting | Stage::Serving(_) => {}
        }
        if let Some(leader) = self.leader()
            && matches!(leader.stage, Stage::Syncing { .. } | Stage::Reporting | Stage::Serving(_))
        {
            self.pump(core, now, out);
        }
    }

    /// Ships what is due.
    fn pump(&mut self, core: &mut Core, now: Tick, out: &mut Effects) {
        let held = self.held;
        let Self { log, role: Role::Leader(leader), .. } = self else { return };
        leader.shipping.on_own_durable(held);
        match &leader.stage {
            Stage::Serving(serving) => leader.shipping.want_synced(serving.wanted_synced()),
            Stage::Fencing { .. }
            | Stage::Fetching(_)
            | Stage::Replaying
            | Stage::Witnessing { .. }
            | Stage::Syncing { .. }
            | Stage::Reporting => leader.shipping.want_synced(log.end().offset), // the whole shard waits
        }
        leader.shipping.pump(now, log, out);
        if leader.shipping.is_in_flight() {
            self.write_log(core, out); // our own file is a member's, and gets the round's bytes with the others
        }
    }

    fn fence(&mut self, core: &mut Core, now: Tick, out: &mut Effects) {
        let own = self.fence_report(core.id().node);
        let shard = self.shard;
        let Some(leader) = self.leader_mut() else { return };
        let (epoch, promise, electorate) = (leader.epoch, leader.promise, leader.electorate.clone());
        let Stage::Fencing { election, asked } = &mut leader.stage else { return };
        let is_promised = core.local_durable >= promise;
        if is_promised {
            election.on_report(own);
        }
        // Nothing is cut or fetched before our own log has its say.
        let choice = if is_promised { election.choice() } else { Choice::Wait };
        match choice {
            Choice::Take(node) if node == core.id().node => {
                leader.stage = Stage::Replaying;
                if !self.meta.intact {
                    hit(Probe::IntactByAllReports);
                    self.meta.intact = true; // everybody has reported: what we hold is all there is (R5.5)
                    self.meta.acknowledged = self.meta.acknowledged.min(self.log.end().offset);
                    self.save_meta(core, out);
                }
            }
            Choice::Take(node) => {
                let best = election.report(node).expect("a report was taken").clone();
                self.cut_to_match(core, &best, out);
            }
            Choice::Wait if Leader::overdue(core, now, *asked) => {
                *asked = Some(now);
                for to in electorate.into_iter().filter(|&to| to != core.id()) {
                    let message = Message::Fence { shard, epoch, primary: core.id(), attach: AttachId(0) };
                    send(Endpoint::Core(to), &message, Gate::Now, out);
                }
            }
            Choice::Wait => {}
        }
    }

    /// Another member's log is greater: keep what both share, and fetch the rest.
    fn cut_to_match(&mut self, core: &mut Core, best: &FenceReport, out: &mut Effects) {
        let theirs: Vec<_> = best.history.iter().map(|start| (start.epoch, start.offset)).collect();
        let end = self.log.end().offset;
        let prefix = common_prefix(self.log.epoch_history(), end, &theirs, best.end.offset);
        let usable = self.meta.complete && prefix > 0;
        let whole = !usable || !self.truncate_log(core, prefix, out) || !self.meta.complete;
        hit(if whole { Probe::LogFetchedWhole } else { Probe::LogFetchedFromPrefix });
        if whole {
            // The marks say first that what is here does not count; then it goes.
            (self.meta.intact, self.meta.complete) = (false, false);
            self.save_meta(core, out);
            self.reset_log(core, 0, out);
        }
        let leader = self.leader_mut().expect("fencing");
        let (from, until) = (best.node, best.end);
        leader.stage = Stage::Fetching(Fetching { from, until, begun: !whole, asked: None, unanswered: 0 });
    }

    /// Asks all again: a member does not answer, or no longer holds what it reported, or more reports are needed.
    fn fence_again(&mut self) {
        hit(Probe::FenceAgain);
        let leader = self.leader_mut().expect("it fenced before");
        let election = Election::new(leader.epoch, leader.recover_from.clone(), leader.quorum);
        leader.stage = Stage::Fencing { election, asked: None };
    }

    fn fetch(&mut self, core: &Core, now: Tick, out: &mut Effects) {
        let (shard, end) = (self.shard, self.log.end().offset);
        let absent = self.log.absent().first().map(|&segment| self.log.segment_base(segment));
        let Some(leader) = self.leader_mut() else { return };
        let epoch = leader.epoch;
        let Stage::Fetching(fetching) = &mut leader.stage else { return };
        if Leader::overdue(core, now, fetching.asked) {
            fetching.asked = Some(now);
            fetching.unanswered += 1;
            if fetching.unanswered > UNANSWERED_MAX {
                return self.fence_again();
            }
            let offset = if fetching.begun { absent.unwrap_or(end) } else { FETCH_FROM_HEAD };
            let configuration = core.configuration.as_ref().expect("a configuration promoted us");
            if let Some(to) = configuration.core_of(fetching.from, shard) {
                send(Endpoint::Core(to), &Message::FetchLog { shard, epoch, from: offset }, Gate::Now, out);
            }
        }
    }

    /// A piece of the greater log: its head first if we share nothing, then older segments, then what follows our end.
    pub fn on_log_piece(&mut self, core: &mut Core, epoch: Epoch, from: u64, bytes: &[u8], out: &mut Effects) {
        let aligned = from.is_multiple_of(u64::from(core.options.segment_bytes));
        let Some(leader) = self.leader_mut().filter(|leader| leader.epoch == epoch) else { return };
        let Stage::Fetching(fetching) = &mut leader.stage else { return };
        // Not what was asked for.
        if from > fetching.until.offset.min(LOG_BYTES_MAX) || (!fetching.begun && (!aligned || bytes.is_empty())) {
            return;
        }
        let (began, until) = (std::mem::replace(&mut fetching.begun, true), fetching.until);
        fetching.asked = None;
        if !began {
            self.reset_log(core, from, out);
        }
        let segment = self.log.segment_of(from);
        if self.log.absent().contains(&segment) {
            hit(Probe::LogFetchedSegment);
            let installed = self.install(core, epoch, segment, bytes, out);
            self.note_progress(installed);
        } else if !bytes.is_empty() {
            // A piece that does not fit is an old or a repeated one: the next question asks from our end.
            let appended = self.log.append_raw(bytes, screen(epoch)).is_ok();
            self.write_log(core, out);
            self.note_progress(appended);
        } else if from == self.log.end().offset && self.log.end() != until {
            self.fence_again();
        } else if from == self.log.end().offset && self.log.absent().is_empty() && self.held == from {
            // It came from a member that counted: ours is as good.
            (self.meta.intact, self.meta.complete) = (true, true);
            self.save_meta(core, out);
            self.leader_mut().expect("fetching").stage = Stage::Replaying;
        }
    }

    /// A piece that did not fit counts as no answer: after some the fence begins anew.
    fn note_progress(&mut self, progress: bool) {
        if let Some(Stage::Fetching(fetching)) = self.leader_mut().map(|leader| &mut leader.stage)
            && progress
        {
            fetching.unanswered = 0;
        }
    }

    pub fn on_fence_report(
        &mut self,
        now: Tick,
        (epoch, attach): (Epoch, AttachId),
        exists: bool,
        report: &FenceReport,
        out: &mut Effects,
    ) {
        let Self { log, role: Role::Leader(leader), .. } = self else { return };
        if leader.epoch != epoch {
            return;
        }
        match &mut leader.stage {
            Stage::Fencing { election, .. } => {
                let sure = exists && report.end.epoch <= epoch && report.end.offset <= LOG_BYTES_MAX;
                let report =
                    FenceReport { intact: report.intact && sure, complete: report.complete && sure, ..report.clone() };
                election.on_report(report);
            }
            Stage::Fetching(_) | Stage::Replaying | Stage::Witnessing { .. } => {}
            Stage::Syncing { .. } | Stage::Reporting | Stage::Serving(_) => {
                leader.shipping.on_fence_report(now, log, attach, report, out);
            }
        }
    }

    /// The log is whole and replayed.
    fn log_is_replayed(&mut self, core: &mut Core, now: Tick, out: &mut Effects) {
        let leader = self.leader_mut().expect("its term goes on");
        if leader.witnesses.is_empty() || planted::is_on(Bug::WitnessSkipped) {
            hit(Probe::NoWitnessToReplay);
            return self.begin_epoch(core, &[], out);
        }
        leader.stage = Stage::Witnessing { asked: None, answers: Vec::new() };
        self.ask_witnesses(core, now, out);
    }

    /// It is known which log we go on with, and what a witness has to add: our epoch begins.
    fn begin_epoch(&mut self, core: &mut Core, requests: &[Bytes], out: &mut Effects) {
        let Self { log, role: Role::Leader(leader), .. } = self else { return };
        leader.shipping.begin_epoch(log.end().offset);
        let mut group = match log.begin(leader.epoch, 64, Purpose::Own) {
            Ok(group) => group,
            Err(_) => return self.stop_for_memory(out),
        };
        group.entry(EntryKind::EpochStart, 0);
        group.commit();
        leader.stage = Stage::Syncing { target: u64::MAX, flushed: None };
        for request in requests {
            if self.replay_request(core, &request.0) == Replayed::NotNow {
                return self.stop_for_memory(out); // it may have been completed: never skipped
            }
        }
        let target = self.log.end().offset;
        self.leader_mut().expect("it begins its epoch").stage = Stage::Syncing { target, flushed: None };
    }

    fn ask_witnesses(&mut self, core: &Core, now: Tick, out: &mut Effects) {
        let shard = self.shard;
        let Some(leader) = self.leader_mut() else { return };
        let (epoch, list, witnesses) = (leader.epoch, leader.list, leader.witnesses.clone());
        let Stage::Witnessing { asked, answers } = &mut leader.stage else { return };
        if Leader::overdue(core, now, *asked) {
            *asked = Some(now);
            // What was lost with the power stays lost; all else may get better.
            let is_settled = |node| answers.iter().any(|a| a.node == node && a.holding == Holding::PowerLost);
            for to in witnesses.into_iter().filter(|core| !is_settled(core.node)) {
                send(Endpoint::Core(to), &Message::FreezeWitness { shard, list, epoch }, Gate::Now, out);
            }
        }
    }

    /// A witness froze and handed out what it holds: replay one, and only one (step 4).
    pub fn on_witness_holds(
        &mut self,
        core: &mut Core,
        epoch: Epoch,
        list: ListVersion,
        answer: WitnessAnswer,
        out: &mut Effects,
    ) {
        let Some(leader) = self.leader_mut().filter(|leader| leader.epoch == epoch && leader.list == list) else {
            return;
        };
        let is_witness = leader.witnesses.iter().any(|core| core.node == answer.node);
        let all = leader.witnesses.len();
        let Stage::Witnessing { answers, .. } = &mut leader.stage else { return };
        match answers.iter_mut().find(|known| known.node == answer.node) {
            Some(known) => *known = answer,
            None if is_witness => answers.push(answer),
            None => return,
        }
        let chosen = match replayable(answers, all) {
            Replayable::Sure(chosen) => chosen,
            Replayable::Fullest(chosen) if leader.quorum == Quorum::Everyone => {
                hit(Probe::FullestWitness);
                chosen
            }
            Replayable::Fullest(_) => {
                // What it lost may be in the log of a member that nobody has asked yet (R5.5).
                hit(Probe::EveryoneMustReport);
                leader.quorum = Quorum::Everyone;
                return self.fence_again();
            }
            Replayable::None => return,
        };
        let requests = std::mem::take(&mut answers[chosen].requests);
        self.begin_epoch(core, &requests, out);
    }

    /// The coordinator committed that we serve.
    pub fn begin_serving(&mut self, core: &Core, config: &ShardConfig) {
        let end = self.log.end().offset;
        let Some(leader) = self.leader_mut() else { return };
        assert_eq!(leader.epoch, config.epoch, "the configuration speaks of our term");
        leader.list = config.list;
        leader.shipping.require_peers(fewest_peers(core));
        leader.shipping.set_members(members_of(core, config));
        leader.stage = Stage::Serving(Serving::new(core, config, end));
    }

    /// What every member holds, as a position of this term. `None`: we lead nothing.
    pub fn synced(&self) -> Option<LogPosition> {
        let leader = self.leader()?;
        Some(LogPosition { epoch: leader.epoch, offset: leader.shipping.synced() })
    }
}
