//! A primary's term, from promotion to serving (section 7; CURP 3.3 and 4.6).
//!
//! ```text
//! Fencing ─▶ Fetching ─▶ Replaying ─▶ Witnessing ─▶ Syncing ─▶ Reporting ─▶ Serving
//!   step 2     step 2      step 3       step 4       step 5      step 5
//!    ▲                                    │
//!    └──── no witness is sure (R5.5) ◀────┘
//! ```
//!
//! No step falls through: without one sure member, or without a whole log or one witness of the current list, the term
//! waits (R7.7). Nothing is written in the term's epoch before it is known which log it goes on with, and which witness.

use std::borrow::Cow;

use kasha_log::{EntryKind, Purpose, common_prefix};
use kasha_machine::{Effects, Endpoint, Gate};
use kasha_replication::{Election, FenceReport, MemberCore, Quorum, Shipping, history_of};
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{AttachId, CoreId, Epoch, ListVersion, LocalPosition, LogPosition, NodeId, ShardId, Tick, Work};
use kasha_wire::codec::Bytes;
use kasha_wire::message::{Message, Report};
use kasha_wire::{MemberState, Served, ShardConfig};

use crate::backup::{FETCH_FROM_HEAD, LOG_BYTES_MAX, screen};
use crate::core::{Core, send};
use crate::fencing::Fencing;
use crate::replica::{Replica, Role};
use crate::request_path::Replayed;
use crate::serving::Serving;
use crate::witness_replay::{Asking, Took};

/// Where a term is.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Members of the set that last served promise our epoch and report.
    Fencing(Fencing),
    /// Another member has the greater log: take what we lack.
    Fetching(Fetching),
    /// The log goes into the state.
    Replaying,
    /// One witness of the current list is frozen, and what it holds goes through `look_up`.
    Witnessing(Asking),
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
pub(crate) struct Primary {
    pub epoch: Epoch,
    pub shipping: Shipping,
    pub stage: Stage,
    /// The list that is replayed, and later served under.
    pub list: ListVersion,
    /// Our promise of this epoch: nothing is written in it before the promise is on our file, or a new incarnation of
    /// this process could begin the same epoch again.
    pub promise: LocalPosition,
    /// Whose reports it needs.
    pub quorum: Quorum,
    pub witnesses: Vec<CoreId>,
    /// The term that last served, before ours.
    pub served: Option<Served>,
    /// The log that we go on with holds every update that was answered (R7.7).
    pub is_whole: bool,
    /// The members that may hold the log, and where they are.
    pub recover_from: Vec<NodeId>,
    pub electorate: Vec<CoreId>,
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

impl Primary {
    pub fn serving(&self) -> Option<&Serving> {
        match &self.stage {
            Stage::Serving(serving) => Some(serving),
            Stage::Fencing(_)
            | Stage::Fetching(_)
            | Stage::Replaying
            | Stage::Witnessing(_)
            | Stage::Syncing { .. }
            | Stage::Reporting => None,
        }
    }

    /// The state is ahead of replay from here on.
    pub fn executes(&self) -> bool {
        match &self.stage {
            Stage::Fencing(_) | Stage::Fetching(_) | Stage::Replaying | Stage::Witnessing(_) => false,
            Stage::Syncing { .. } | Stage::Reporting | Stage::Serving(_) => true,
        }
    }

    pub fn into_serving(self) -> Option<Serving> {
        match self.stage {
            Stage::Serving(serving) => Some(serving),
            Stage::Fencing(_)
            | Stage::Fetching(_)
            | Stage::Replaying
            | Stage::Witnessing(_)
            | Stage::Syncing { .. }
            | Stage::Reporting => None,
        }
    }

    pub fn describe(&self) -> Cow<'static, str> {
        let text = match &self.stage {
            Stage::Fencing(fencing) => return fencing.describe(self.quorum).into(),
            Stage::Fetching(_) => "fetching the rest of the log from another member",
            Stage::Replaying => "replaying the log",
            Stage::Witnessing(asking) => return self.describe_witnesses(asking).into(),
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
                    let list = self.list;
                    reports.push(match serving.is_stopping() {
                        true => Report::Stopping { shard, epoch, list },
                        false => Report::ListClosed { shard, epoch, list },
                    });
                }
            }
            Stage::Fencing(fencing) => return reports.extend(fencing.needs_members(shard, epoch)),
            Stage::Witnessing(asking) => return reports.extend(asking.needs_witness(self, shard)),
            Stage::Fetching(_) | Stage::Replaying | Stage::Syncing { .. } => return,
        }
        reports.extend(self.shipping.copied().map(|node| Report::Copied { shard, epoch, node }));
    }

    pub fn overdue(core: &Core, now: Tick, asked: Option<Tick>) -> bool {
        asked.is_none_or(|asked| now.since(asked) >= core.options.pace.retry)
    }

    /// Begins an election without reports.
    pub fn fence_anew(&mut self) -> &mut Election {
        let election = Election::new(self.epoch, self.recover_from.clone(), self.quorum);
        self.stage = Stage::Fencing(Fencing::new(election));
        match &mut self.stage {
            Stage::Fencing(fencing) => &mut fencing.election,
            _ => unreachable!("set above"),
        }
    }

    pub fn next_deadline(&self, core: &Core) -> Option<Tick> {
        match &self.stage {
            Stage::Fencing(Fencing { asked, .. })
            | Stage::Fetching(Fetching { asked, .. })
            | Stage::Witnessing(Asking { asked, .. }) => {
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
        assert!(self.primary().is_none_or(|primary| primary.epoch < config.epoch), "a term begins once");
        core.work.add(Work::Role);
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
                Stage::Fencing(Fencing::new(election))
            }
        };
        let mut shipping = Shipping::new(self.shard, config.epoch, core.id(), core.options.pace, 0);
        shipping.set_members(members_of(core, config));
        let witnesses = if never_served { Vec::new() } else { config.witnesses.clone() };
        self.role = Role::Primary(Box::new(Primary {
            epoch: config.epoch,
            shipping,
            stage,
            list: config.list,
            promise,
            quorum: Quorum::OneSure,
            witnesses: cores_of(core, self.shard, witnesses),
            served: config.served,
            is_whole: false,
            recover_from: config.recover_from.clone(),
            electorate: cores_of(core, self.shard, config.recover_from.iter().copied()),
        }));
    }

    /// What we hold, as a report of a fence that follows this term and list.
    pub fn fence_report(&self, node: NodeId, served: Option<Served>, list: ListVersion) -> FenceReport {
        FenceReport {
            node,
            end: self.log.end(),
            history: history_of(&self.log),
            intact: self.exists && self.meta.intact,
            complete: self.exists && self.meta.complete,
            whole: self.exists && self.is_whole(node, served, list),
        }
    }

    /// Moves the term on as far as it goes now. Called once a turn.
    pub fn advance_term(&mut self, core: &mut Core, now: Tick, out: &mut Effects) {
        let replayed = self.is_replayed();
        let Some(primary) = self.primary_mut() else { return };
        match &mut primary.stage {
            Stage::Fencing(_) => self.fence(core, now, out),
            Stage::Fetching(_) => self.fetch(core, now, out),
            Stage::Replaying if replayed && core.local_durable >= primary.promise => {
                self.log_is_replayed(core, now, out)
            }
            Stage::Replaying => {}
            Stage::Witnessing(_) => self.ask_witnesses(core, now, out),
            Stage::Syncing { .. } => self.end_recovery(core, out),
            Stage::Reporting | Stage::Serving(_) => {}
        }
        let Some(primary) = self.primary() else { return };
        match &primary.stage {
            // No member is cut before our own file holds what its log had: else a crash of ours could take the only copy of
            // an update that was answered (R7.7).
            Stage::Syncing { target, .. } if self.held < *target => {
                self.write_log(core, out);
            }
            Stage::Syncing { .. } | Stage::Reporting | Stage::Serving(_) => self.pump(core, now, out),
            Stage::Fencing(_) | Stage::Fetching(_) | Stage::Replaying | Stage::Witnessing(_) => {}
        }
    }

    /// What was recovered is synced: it is flushed here, with the mark that our log is whole, and then reported.
    fn end_recovery(&mut self, core: &mut Core, out: &mut Effects) {
        let Some(primary) = self.primary_mut() else { return };
        let epoch = primary.epoch;
        let Stage::Syncing { target, flushed } = &primary.stage else { return };
        let (is_synced, flushed) = (primary.shipping.synced() >= *target, *flushed);
        // A shard that never served has no other copies: its first members must all be complete before it does.
        let has_copies = !primary.recover_from.is_empty() || primary.shipping.all_copied();
        if !has_copies || !(is_synced || planted::is_on(Bug::ServedUnsynced)) {
            return;
        }
        // What a witness held was answered long ago. Its file goes with the report, so under `replicated` ours must have
        // it on the disk, or a loss of power everywhere takes more than was told last (section 5).
        let commit = flushed.unwrap_or_else(|| {
            self.mark_whole(core, epoch, out);
            core.fsynced_commit()
        });
        let Some(primary) = self.primary_mut() else { return };
        if core.local_durable >= commit || planted::is_on(Bug::RecoveredUnflushed) {
            primary.stage = Stage::Reporting;
        } else if let Stage::Syncing { flushed, .. } = &mut primary.stage {
            *flushed = Some(commit);
        }
    }

    /// Ships what is due.
    fn pump(&mut self, core: &mut Core, now: Tick, out: &mut Effects) {
        let held = self.held;
        let Self { log, role: Role::Primary(primary), .. } = self else { return };
        primary.shipping.on_own_durable(held);
        match &primary.stage {
            Stage::Serving(serving) => primary.shipping.want_synced(serving.wanted_synced()),
            Stage::Fencing(_)
            | Stage::Fetching(_)
            | Stage::Replaying
            | Stage::Witnessing(_)
            | Stage::Syncing { .. }
            | Stage::Reporting => primary.shipping.want_synced(log.end().offset), // the whole shard waits
        }
        primary.shipping.pump(now, log, out);
        // Our own file is a member's, and gets the round's bytes with the others; what is answered at once, at once (R7.7).
        let answers_wait = match &mut primary.stage {
            Stage::Serving(serving) => std::mem::take(&mut serving.writes_own_file),
            _ => false,
        };
        if primary.shipping.is_in_flight() || answers_wait {
            self.write_log(core, out);
        }
    }

    /// Another member's log is greater: keep what both share, and fetch the rest.
    pub fn cut_to_match(&mut self, core: &mut Core, best: &FenceReport, out: &mut Effects) {
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
        let primary = self.primary_mut().expect("fencing");
        let (from, until) = (best.node, best.end);
        primary.stage = Stage::Fetching(Fetching { from, until, begun: !whole, asked: None, unanswered: 0 });
    }

    /// Asks all again: a member does not answer, or no longer holds what it reported, or more reports are needed.
    pub fn fence_again(&mut self) {
        hit(Probe::FenceAgain);
        self.primary_mut().expect("it fenced before").fence_anew();
    }

    fn fetch(&mut self, core: &Core, now: Tick, out: &mut Effects) {
        let (shard, end) = (self.shard, self.log.end().offset);
        let absent = self.log.absent().first().map(|&segment| self.log.segment_base(segment));
        let Some(primary) = self.primary_mut() else { return };
        let epoch = primary.epoch;
        let Stage::Fetching(fetching) = &mut primary.stage else { return };
        if Primary::overdue(core, now, fetching.asked) {
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
        let Some(primary) = self.primary_mut().filter(|primary| primary.epoch == epoch) else { return };
        let Stage::Fetching(fetching) = &mut primary.stage else { return };
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
            self.primary_mut().expect("fetching").stage = Stage::Replaying;
        }
    }

    /// A piece that did not fit counts as no answer: after some the fence begins anew.
    fn note_progress(&mut self, progress: bool) {
        if let Some(Stage::Fetching(fetching)) = self.primary_mut().map(|primary| &mut primary.stage)
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
        let Self { log, role: Role::Primary(primary), .. } = self else { return };
        if primary.epoch != epoch {
            return;
        }
        match &mut primary.stage {
            Stage::Fencing(fencing) => {
                let sure = exists && report.end.epoch <= epoch && report.end.offset <= LOG_BYTES_MAX;
                let report =
                    FenceReport { intact: report.intact && sure, complete: report.complete && sure, ..report.clone() };
                fencing.election.on_report(report);
            }
            Stage::Fetching(_) | Stage::Replaying => {}
            Stage::Witnessing(_) => {
                let is_asked = primary.recover_from.contains(&report.node) && report.end.offset <= LOG_BYTES_MAX;
                if is_asked && attach == AttachId(0) {
                    let whole = report.whole && report.intact && report.complete && exists;
                    self.on_report_while_witnessing(FenceReport { whole, ..report.clone() });
                }
            }
            Stage::Syncing { .. } | Stage::Reporting | Stage::Serving(_) => {
                primary.shipping.on_fence_report(now, log, attach, report, out);
            }
        }
    }

    /// The log is whole and replayed.
    fn log_is_replayed(&mut self, core: &mut Core, now: Tick, out: &mut Effects) {
        let primary = self.primary_mut().expect("its term goes on");
        if primary.witnesses.is_empty() || planted::is_on(Bug::WitnessSkipped) {
            hit(Probe::NoWitnessToReplay);
            return self.begin_epoch(core, &[], Took::Remains, out);
        }
        primary.stage = Stage::Witnessing(Asking::default());
        self.ask_witnesses(core, now, out);
    }

    /// It is known which log we go on with, and what a witness has to add: our epoch begins.
    pub fn begin_epoch(&mut self, core: &mut Core, requests: &[Bytes], took: Took, out: &mut Effects) {
        let Self { log, role: Role::Primary(primary), .. } = self else { return };
        primary.shipping.begin_epoch(log.end().offset);
        let mut group = match log.begin(primary.epoch, 64, Purpose::Own) {
            Ok(group) => group,
            Err(_) => return self.stop_for_memory(out),
        };
        group.entry(EntryKind::EpochStart, 0);
        group.commit();
        primary.stage = Stage::Syncing { target: u64::MAX, flushed: None };
        let too_early = took == Took::Everything && planted::is_on(Bug::WholeBeforeReplay);
        if too_early && !self.log_whole() {
            return self.stop_for_memory(out);
        }
        for request in requests {
            if self.replay_request(core, &request.0) == Replayed::NotNow {
                return self.stop_for_memory(out); // it may have been completed: never skipped
            }
        }
        // Behind the last request: a log that was cut short lacks the entry (R7.7).
        if took == Took::Everything && !self.log_whole() {
            return self.stop_for_memory(out);
        }
        let target = self.log.end().offset;
        self.primary_mut().expect("it begins its epoch").stage = Stage::Syncing { target, flushed: None };
    }

    /// The coordinator committed that we serve.
    pub fn begin_serving(&mut self, core: &Core, config: &ShardConfig) {
        let end = self.log.end().offset;
        let Some(primary) = self.primary_mut() else { return };
        assert_eq!(primary.epoch, config.epoch, "the configuration speaks of our term");
        primary.list = config.list;
        primary.shipping.require_peers(fewest_peers(core));
        primary.shipping.set_members(members_of(core, config));
        let mut serving = Serving::new(core, config, end);
        if core.stopping {
            serving.begin_stop(core, config, end);
        }
        primary.stage = Stage::Serving(serving);
    }

    /// The process is asked to stop: a serving primary closes its list for good.
    pub fn begin_stop(&mut self, core: &Core, config: &ShardConfig) {
        let end = self.log.end().offset;
        let Some(primary) = self.primary_mut().filter(|primary| primary.epoch == config.epoch) else { return };
        if let Stage::Serving(serving) = &mut primary.stage {
            serving.begin_stop(core, config, end);
        }
    }

    /// What every member holds, as a position of this term. `None`: we lead nothing.
    pub fn synced(&self) -> Option<LogPosition> {
        let primary = self.primary()?;
        Some(LogPosition { epoch: primary.epoch, offset: primary.shipping.synced() })
    }
}
