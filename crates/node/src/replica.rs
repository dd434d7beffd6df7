//! One shard's replica on this core: its log, its files, and what is derived from them.

use std::collections::VecDeque;

use kasha_log::{Cursor, EntryOffset, LoadReport, Log, LogConfig};
use kasha_machine::{Disk, Effect, Effects, FileName};
use kasha_replication::{MetaError, ReplicaMeta};
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{BootId, Epoch, LocalPosition, LogPosition, RpcId, SegmentId, ShardId, Tick, Work};
use kasha_wire::Durability;

use crate::backup::Backup;
use crate::core::Core;
use crate::primary::Primary;
use crate::state::ShardState;
use crate::{NodeOptions, StartError};

/// Bytes of log that a replica replays in one turn: a long replay must not keep the core from its heartbeats.
const REPLAY_BYTES_PER_TURN: u64 = 2 * 1024 * 1024;
/// Bytes of one write of log bytes to a file.
const WRITE_BYTES_MAX: u32 = 1024 * 1024;

/// What this core is to a shard.
#[derive(Debug)]
pub(crate) enum Role {
    /// It holds files, and waits to be told more (R7.1).
    Idle,
    /// It follows a primary.
    Backup(Backup),
    /// It is the primary of an epoch, or is becoming it.
    Primary(Box<Primary>),
}

/// A shard's replica.
#[derive(Debug)]
pub(crate) struct Replica {
    pub shard: ShardId,
    pub log: Log,
    pub state: ShardState,
    /// Up to where the log is in the state.
    pub replayed: Cursor,
    pub meta: ReplicaMeta,
    /// Whether files of it were ever there: a replica that was lost must not pass for an empty one.
    pub exists: bool,
    pub role: Role,
    /// Up to where the log was given to the file.
    written: u64,
    /// Up to where the file holds the log.
    pub held: u64,
    /// Segments on file that are not part of the log: behind damage, or without marks. They go with the log.
    stray: Vec<SegmentId>,
    /// The files hold less than they did, and it is not judged yet what that means.
    lost_something: bool,
    /// Up to where every member is known to hold the log.
    pub known_synced: u64,
    /// Ends of the log at commits that are not known to hold yet.
    marks: VecDeque<(LocalPosition, u64)>,
    /// Segments that are freed, whose files go when the fsync that covers the word of it holds; `None`: it has not begun.
    freed: Vec<(SegmentId, Option<LocalPosition>)>,
}

fn log_config(options: &NodeOptions) -> LogConfig {
    LogConfig {
        segment_bytes: options.segment_bytes,
        memory_max_bytes: options.replica_memory_max_bytes,
        reserve_percent: 5,
    }
}

impl Replica {
    /// A replica that was never here.
    pub fn fresh(options: &NodeOptions, shard: ShardId) -> Self {
        Self {
            shard,
            log: Log::new(shard, log_config(options)).with_buffers(options.buffers.clone()),
            state: ShardState::default(),
            replayed: Cursor { offset: 0 },
            meta: ReplicaMeta {
                intact: false,
                complete: false,
                ..ReplicaMeta::fresh(options.cluster, shard, options.boot)
            },
            exists: false,
            role: Role::Idle,
            written: 0,
            held: 0,
            stray: Vec::new(),
            lost_something: false,
            known_synced: 0,
            marks: VecDeque::new(),
            freed: Vec::new(),
        }
    }

    /// Reads a replica's files.
    pub fn load(
        options: &NodeOptions,
        shard: ShardId,
        segments: Vec<SegmentId>,
        disk: &dyn Disk,
        out: &mut Effects,
    ) -> Result<Self, StartError> {
        let mut replica = Self::fresh(options, shard);
        let read = |file| disk.read(file).map_err(|error| StartError::Read(file, error));
        let Some(meta) = read(FileName::Replica(shard))? else {
            // Segments without marks: the folder lost a file. What it held cannot be vouched for.
            replica.stray = segments;
            return Ok(replica);
        };
        replica.meta = match ReplicaMeta::decode(&meta, options.cluster, shard) {
            Ok(meta) => meta,
            Err(MetaError::Damaged) => {
                replica.stray = segments;
                return Ok(replica); // as if they were not there
            }
            Err(error) => return Err(StartError::Replica(error)),
        };
        replica.exists = true;
        if planted::is_on(Bug::PromiseForgotten) {
            replica.meta.promised = Epoch(0);
        }
        let mut files = Vec::new();
        for segment in segments {
            let file = FileName::Segment { shard, segment };
            files.extend(read(file)?.map(|bytes| (segment, bytes)));
        }
        let seen: Vec<_> = files.iter().map(|&(segment, _)| segment).collect();
        let (log, report) = Log::load(shard, log_config(options), files.into_iter());
        replica.log = log.with_buffers(options.buffers.clone());
        for &segment in &report.useless {
            out.push(Effect::Remove { file: FileName::Segment { shard, segment } });
        }
        replica.judge_load(options, &report, seen, out);
        Ok(replica)
    }

    /// What the state of the files says of what they held (R5.5).
    fn judge_load(&mut self, options: &NodeOptions, report: &LoadReport, seen: Vec<SegmentId>, out: &mut Effects) {
        let end = self.log.end().offset;
        let lost_acknowledged = end < self.meta.acknowledged && !planted::is_on(Bug::AcknowledgedEndIgnored);
        for (is_so, probe) in [
            (lost_acknowledged, Probe::AcknowledgedLost),
            (report.torn_bytes > 0, Probe::TornTail),
            (report.damage.is_some(), Probe::DamagedLog),
        ] {
            if is_so {
                hit(probe);
            }
        }
        // A loss of power may leave any part of what was written last. A killed process leaves its beginning: all else is
        // damage, though it be of the last group only (R5.5).
        let power_lost = self.meta.lost_power(options.boot);
        let is_of_a_crash = power_lost || report.is_cut_short || planted::is_on(Bug::DamagedEndTaken);
        self.lost_something = report.damage.is_some() || lost_acknowledged || !is_of_a_crash;
        // What was answered is in the file (R7.7), and behind it may be what a kill cut short. What a loss of power took may
        // have been answered. The marks say so before the end is cut.
        let may_lack_answers = self.lost_something || (power_lost && report.torn_bytes > 0);
        if may_lack_answers && self.meta.whole != Epoch(0) {
            self.meta.whole = Epoch(0);
            let data = out.span(&self.meta_bytes());
            out.push(Effect::Replace { file: FileName::Replica(self.shard), data });
        }
        self.meta.intact &= !self.lost_something;
        self.meta.complete &= self.log.absent().is_empty();
        let held: Vec<_> = self.log.segments().map(|(segment, _)| segment).collect();
        self.stray = seen.into_iter().filter(|segment| !held.contains(segment)).collect();
        if report.torn_bytes > 0 && !self.lost_something {
            self.cut_head_file(out);
        }
        (self.written, self.held) = (end, end);
    }

    /// Bytes behind the log's end are none of it.
    fn cut_head_file(&self, out: &mut Effects) {
        if let Some((segment, used)) = self.log.segments().max_by_key(|&(id, _)| id) {
            let file = FileName::Segment { shard: self.shard, segment };
            out.push(Effect::Truncate { file, len: u64::from(used) });
        }
    }

    /// Once the durability is known: what a loss of power means, and what was lost besides (R5.5).
    pub fn judge_boot(&mut self, core: &mut Core, out: &mut Effects) {
        let durability = core.durability();
        let power_lost = self.meta.lost_power(core.options.boot);
        if durability == Durability::Replicated && power_lost && !planted::is_on(Bug::BootIgnored) {
            hit(Probe::ReplicaLostPower);
            let kept = if planted::is_on(Bug::MarkSurvivesPowerLoss) { self.meta.whole } else { Epoch(0) };
            (self.meta.intact, self.meta.whole) = (false, kept);
        }
        if !std::mem::take(&mut self.lost_something) {
            if self.meta.boot != core.options.boot && self.meta.intact {
                self.save_meta(core, out); // what is written from now on is of this boot
            }
            return;
        }
        // No loss of power takes what was fsynced, and nothing else of ours takes anything: the disk lies. What is left may
        // lack any part of what was synced. So it is nobody's log, though all others be lost, until it is copied anew; the
        // files stay as they are, for whoever can read more of them.
        let fsynced_is_lost = durability == Durability::Fsync && self.log.end().offset < self.meta.acknowledged;
        if !power_lost || fsynced_is_lost {
            hit(Probe::DamageUnexplained);
            self.meta.complete = false;
            return self.save_meta(core, out);
        }
        if self.meta.complete {
            // The marks say first that something was lost; then what lies behind the damage goes, newest first.
            self.save_meta(core, out);
            for segment in std::mem::take(&mut self.stray).into_iter().rev() {
                core.remove(FileName::Segment { shard: self.shard, segment }, out);
            }
            self.cut_head_file(out);
        }
    }

    pub fn primary(&self) -> Option<&Primary> {
        match &self.role {
            Role::Primary(primary) => Some(primary),
            Role::Idle | Role::Backup(_) => None,
        }
    }

    pub fn primary_mut(&mut self) -> Option<&mut Primary> {
        match &mut self.role {
            Role::Primary(primary) => Some(primary),
            Role::Idle | Role::Backup(_) => None,
        }
    }

    /// Gives up whatever role it has: nothing that was held may leave any more (R3.1).
    pub fn lose_role(&mut self, out: &mut Effects) {
        let executed = self.executes();
        let role = std::mem::replace(&mut self.role, Role::Idle);
        if !matches!(role, Role::Idle) && !planted::is_on(Bug::HeldEffectsKept) {
            out.push(Effect::DropHeld(self.shard));
        }
        if let Role::Primary(primary) = role
            && executed
        {
            // The state follows the log to its end, as a follower's would.
            hit(Probe::PrimaryDeposed);
            self.replayed.offset = self.log.end().offset;
            if let Some(serving) = primary.into_serving() {
                serving.settle_for_follower(&mut self.log, &mut self.state);
            }
        }
    }

    /// Whether the state is ahead of replay: this primary executes into it.
    fn executes(&self) -> bool {
        self.primary().is_some_and(Primary::executes)
    }

    /// Promises to obey no smaller epoch (F2). Durable with the turn's commit.
    pub fn promise(&mut self, core: &mut Core, epoch: Epoch, out: &mut Effects) {
        assert!(epoch >= self.meta.promised, "F2: {} promised {}, now {epoch}", self.shard, self.meta.promised);
        self.meta.promised = epoch;
        self.save_meta(core, out);
    }

    pub fn save_meta(&mut self, core: &mut Core, out: &mut Effects) {
        self.exists = true;
        let stays_ended = self.meta.boot == BootId::ENDED && planted::is_on(Bug::CleanEndKept);
        if self.meta.intact && !stays_ended {
            self.meta.boot = core.options.boot;
        }
        core.replace(FileName::Replica(self.shard), &self.meta_bytes(), out);
    }

    pub fn meta_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64);
        self.meta.encode(&mut bytes);
        bytes
    }

    /// Forgets the log, in memory and on file.
    pub fn reset_log(&mut self, core: &mut Core, base: u64, out: &mut Effects) {
        core.work.add(Work::Role);
        self.unmark_whole(core, 0, out);
        let log = &self.log;
        out.copy_log_bytes(self.shard, |slice| log.slice(slice));
        // Newest first: a crash in between must not leave a hole.
        let mut segments: Vec<_> = self.log.segments().map(|(segment, _)| segment).collect();
        segments.append(&mut self.stray);
        segments.extend(self.freed.drain(..).map(|(segment, _)| segment));
        segments.sort_unstable();
        for &segment in segments.iter().rev() {
            core.remove(FileName::Segment { shard: self.shard, segment }, out);
        }
        core.fsync = true;
        let empty = match base {
            0 => Log::new(self.shard, log_config(&core.options)),
            base => Log::begin_at(self.shard, log_config(&core.options), base),
        };
        let gone = std::mem::replace(&mut self.log, empty.with_buffers(core.options.buffers.clone()));
        core.options.trash.throw(gone);
        self.meta.base = base;
        self.meta.acknowledged = 0;
        (self.written, self.held, self.known_synced) = (base, base, 0);
        self.marks.clear();
        self.forget_state(core);
    }

    /// The shard serves without us: what we hold is of no use. The promise stays (F2).
    pub fn discard(&mut self, core: &mut Core, out: &mut Effects) {
        self.lose_role(out);
        if self.log.end().offset > 0 || !self.stray.is_empty() {
            (self.meta.intact, self.meta.complete) = (false, false);
            self.save_meta(core, out);
            self.reset_log(core, 0, out);
        }
    }

    /// The state is built anew from the log.
    pub fn forget_state(&mut self, core: &Core) {
        core.options.trash.throw(std::mem::take(&mut self.state));
        self.replayed = Cursor { offset: 0 };
        self.log.reset_liveness();
    }

    /// Cuts the log at a group boundary. False: there is none.
    pub fn truncate_log(&mut self, core: &mut Core, offset: u64, out: &mut Effects) -> bool {
        if offset == self.log.end().offset {
            return true;
        }
        if offset > self.log.end().offset || !self.log.ends_a_group(offset) {
            return false;
        }
        core.work.add(Work::Role);
        let log = &self.log;
        out.copy_log_bytes(self.shard, |slice| log.slice(slice));
        if offset < self.meta.acknowledged {
            // What is cut was never synced. The marks say so first, or the shorter log would pass for a damaged one.
            hit(Probe::CutBelowAcknowledged);
            self.meta.acknowledged = offset;
            self.save_meta(core, out);
        }
        self.unmark_whole(core, offset, out);
        let Ok(cut) = self.log.truncate(offset) else { return false };
        hit(Probe::LogCut);
        // Newest first: a crash in between must not leave a hole.
        for &segment in cut.removed.iter().rev() {
            core.remove(FileName::Segment { shard: self.shard, segment }, out);
        }
        if let Some((segment, used)) = cut.head {
            core.truncate(FileName::Segment { shard: self.shard, segment }, u64::from(used), out);
        }
        core.fsync = true;
        self.meta.acknowledged = self.meta.acknowledged.min(offset);
        self.written = self.written.min(offset);
        self.held = self.held.min(offset);
        // What stands there from now on is another log's.
        self.known_synced = self.known_synced.min(offset);
        for mark in &mut self.marks {
            mark.1 = mark.1.min(offset);
        }
        // A restart may have dropped a segment on a word that is cut off now: then older data must be copied again.
        self.meta.complete &= self.log.absent().is_empty();
        self.forget_state(core);
        true
    }

    /// Gives new log bytes to the file.
    pub fn write_log(&mut self, core: &mut Core, out: &mut Effects) {
        let end = self.log.end().offset;
        if self.written == end {
            return;
        }
        for slice in self.log.pieces(self.written, end, WRITE_BYTES_MAX) {
            let segment = self.log.segment_of(slice.offset);
            let file = FileName::Segment { shard: self.shard, segment };
            core.write_log(file, slice.offset - self.log.segment_base(segment), slice, out);
        }
        self.written = end;
        self.marks.push_back((core.commit_position(), end));
    }

    /// Commits up to `to` hold.
    pub fn on_durable(&mut self, to: LocalPosition) {
        while let Some(&(position, end)) = self.marks.front() {
            if position > to {
                break;
            }
            self.held = self.held.max(end);
            self.marks.pop_front();
        }
    }

    pub fn is_replayed(&self) -> bool {
        self.executes() || self.replayed.offset >= self.log.end().offset
    }

    /// Replays a slice of the log into the state. A joiner waits until its copy is complete.
    pub fn replay_slice(&mut self, core: &mut Core) {
        if !self.meta.complete {
            // A joiner's state is empty, and so is what freeing would take from it.
            return self.free_retired(core, self.known_synced);
        }
        if self.executes() {
            return;
        }
        if self.is_replayed() {
            return self.free_retired(core, self.known_synced);
        }
        core.work.add(Work::Replay);
        let mut dead = std::mem::take(&mut core.scratch.dead);
        let mut entries: Vec<EntryOffset> = Vec::new();
        let mut bytes = 0;
        while bytes < REPLAY_BYTES_PER_TURN {
            let Some(group) = self.log.next_group(&mut self.replayed) else {
                self.replayed.offset = self.replayed.offset.max(self.log.end().offset);
                break;
            };
            bytes += group.end - group.start;
            entries.clear();
            entries.extend(group.entries.map(|(at, _)| at));
            for &at in &entries {
                dead.clear();
                self.state.replay(&self.log, at, &mut dead);
                for &at in &dead {
                    self.log.kill(at);
                }
            }
        }
        core.scratch.dead = dead;
        core.learn_cluster_time(self.state.cluster_time);
        // A word that is not synced may be cut off again, and then the segment must still be here.
        self.free_retired(core, self.replayed.offset.min(self.known_synced));
    }

    /// Lets go of segments that the log says are freed, once the state has followed the log to that word.
    pub fn free_retired(&mut self, core: &mut Core, up_to: u64) {
        while let Some(segment) = self.log.retired(up_to) {
            hit(Probe::SegmentRetired);
            core.work.add(Work::Free);
            self.state.forget_segment(&self.log, segment);
            self.log.free(segment);
            self.remove_later(core, segment);
        }
    }

    /// A power loss that keeps the removal of a file and not the word of it would leave a hole in the log (D4): the file
    /// goes after an fsync of all that was written before.
    pub fn remove_later(&mut self, core: &mut Core, segment: SegmentId) {
        self.freed.push((segment, None));
        core.unflushed = true;
    }

    /// Whether files wait for an fsync.
    pub fn has_freed_files(&self) -> bool {
        self.freed.iter().any(|(_, covered)| covered.is_none())
    }

    /// This commit is fsynced: it covers all that was freed so far.
    pub fn fsync_covers_freed(&mut self, commit: LocalPosition) {
        for (_, covered) in &mut self.freed {
            covered.get_or_insert(commit);
        }
    }

    /// Removes the files that nothing needs any more, whatever happens.
    pub fn remove_freed_files(&mut self, core: &mut Core, out: &mut Effects) {
        let (shard, durable) = (self.shard, core.local_durable);
        for (segment, _) in self.freed.extract_if(.., |(_, covered)| covered.is_some_and(|commit| commit <= durable)) {
            core.remove(FileName::Segment { shard, segment }, out);
        }
    }
}

impl Replica {
    /// Where an update of this term is in the log (R2.1 \[M\]). `None`: another term, or not known here.
    pub fn position_of(&self, rpc: RpcId, epoch: Epoch) -> Option<LogPosition> {
        let is_of_term = |primary: &&Primary| primary.epoch == epoch || planted::is_on(Bug::SyncInAnotherEpoch);
        if self.primary().is_some_and(|primary| primary.epoch != epoch) {
            hit(Probe::SyncOfAnotherTerm);
        }
        let primary = self.primary().filter(|primary| is_of_term(primary) && primary.serving().is_some())?;
        let place = self.state.tracker.place_of(rpc)?;
        Some(LogPosition { epoch: primary.epoch, offset: place.0 + 1 })
    }

    /// Notes durably how far the log was surely acknowledged, at its beginning and then once a segment: an end below it
    /// means damage (R5.5).
    pub fn note_acknowledged(&mut self, core: &mut Core, out: &mut Effects) {
        // Before the configuration has come nobody knows whether a loss of power matters: the marks stay as they are.
        let judged = core.configuration.is_some();
        let noted = self.meta.acknowledged;
        // Without the first note a log whose only segment is gone would pass for an empty one.
        let is_due =
            if noted == 0 { self.held > 0 } else { self.log.segment_of(self.held) > self.log.segment_of(noted) };
        if judged && self.exists && is_due {
            self.meta.acknowledged = self.held;
            self.save_meta(core, out);
        }
    }

    pub fn next_deadline(&self, core: &Core) -> Option<Tick> {
        let replay = (self.meta.complete && !self.is_replayed()).then_some(Tick(0));
        let primary = self.primary().and_then(|primary| primary.next_deadline(core));
        [replay, primary].into_iter().flatten().min()
    }

    pub fn assert_invariants(&self) {
        assert!(
            self.held <= self.written && self.written <= self.log.end().offset,
            "{}: file ahead of log",
            self.shard
        );
        assert!(self.replayed.offset <= self.log.end().offset || self.log.end().offset == 0, "{}", self.shard);
        if let Some(primary) = self.primary() {
            assert_eq!(primary.epoch, self.meta.promised, "F2: {} is primary of what it promised", self.shard);
            assert!(primary.shipping.synced() <= self.log.end().offset, "{}: synced beyond the log", self.shard);
        }
        self.state.tracker.assert_invariants();
    }
}
