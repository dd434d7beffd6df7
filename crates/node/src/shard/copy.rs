//! A shard's log on this core: in memory and on file, and how far each of them goes.
//!
//! | file | what it is |
//! |---|---|
//! | `copy` | the marks, and what changes the log as a whole |
//! | `copy/load` | reading the files, and what their state says of what they held (R5.5) |
//! | `copy/receive` | what is taken from a peer |
//! | `copy/files` | new bytes to the files, and files that go |
//! | `copy/whole` | which logs surely hold every update that was answered (R7.7) |
//!
//! ```text
//! 0 ─────────────┬───────────────┬──────────────────┬──▶ bytes since the log began
//!              held      ≤    written       ≤      end
//!                └ on file       └ given to the file
//! ```
//!
//! `flushed`, up to where the file survives a loss of power, is at most what is written, too: a primary asks for that where
//! transactions over several shards need it. Under `fsync` what is held is flushed.
//!
//! `replayed`, up to where a follower's state has followed the log, is at most the end, too. `known_synced` may be anywhere:
//! a primary says how far all members hold *its* log, and a member that is being attached or copied lags.
//!
//! What is derived from the log lives beside it (`state`), and follows it: [`Site`] changes both together.

mod files;
mod load;
pub(crate) mod receive;
mod whole;

use std::collections::VecDeque;

use kasha_log::{Cursor, Log, LogConfig};
use kasha_machine::{Effects, Endpoint, FileName, Gate};
use kasha_replication::{FenceReport, ReplicaMeta, history_of};
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{
    AttachId, BootId, ConfigVersion, Epoch, ListVersion, LocalPosition, LogEnd, NodeId, SegmentId, ShardId, Work,
};
use kasha_wire::Served;
use kasha_wire::message;

use crate::NodeOptions;
use crate::core::Core;
use crate::core::send::send;
use crate::shard::site::Site;
use crate::shard::state::ShardState;

/// A shard's log.
#[derive(Debug)]
pub(crate) struct LogCopy {
    pub shard: ShardId,
    pub log: Log,
    /// The marks: what its file says of it.
    pub meta: ReplicaMeta,
    /// Whether files of it were ever there: a replica that was lost must not pass for an empty one.
    pub exists: bool,
    /// Up to where a follower's state has followed the log.
    pub replayed: Cursor,
    /// Up to where the log was given to the file.
    written: LogEnd,
    /// Up to where the file holds the log.
    pub held: LogEnd,
    /// Up to where this file's log survives a loss of power, as far as that was asked for (R8.17).
    pub flushed: LogEnd,
    /// Up to where a flush covers it that is under way.
    flushing: Option<LogEnd>,
    /// Up to where every member is known to hold the log.
    pub known_synced: LogEnd,
    /// Ends of the log at commits that are not known to hold yet.
    commits: VecDeque<(LocalPosition, LogEnd)>,
    /// Segments on file that are not part of the log: behind damage, or without marks. They go with the log.
    stray: Vec<SegmentId>,
    /// The files hold less than they did, and it is not judged yet what that means.
    lost_something: bool,
    /// Segments that are freed, whose files go when the fsync holds that covers their `SegmentFreed` entries; `None`: it has
    /// not begun.
    freed: VecDeque<(SegmentId, Option<LocalPosition>)>,
}

fn log_config(options: &NodeOptions) -> LogConfig {
    LogConfig {
        segment_bytes: options.segment_bytes,
        memory_max_bytes: options.replica_memory_max_bytes,
        reserve_percent: 2,
    }
}

impl LogCopy {
    /// The log of a replica that was never here.
    pub fn fresh(options: &NodeOptions, shard: ShardId) -> Self {
        Self {
            shard,
            log: Log::new(shard, log_config(options)).with_buffers(options.buffers.clone()),
            meta: ReplicaMeta {
                intact: false,
                complete: false,
                ..ReplicaMeta::fresh(options.cluster, shard, options.boot)
            },
            exists: false,
            replayed: Cursor::START,
            written: LogEnd::START,
            held: LogEnd::START,
            flushed: LogEnd::START,
            flushing: None,
            known_synced: LogEnd::START,
            commits: VecDeque::new(),
            stray: Vec::new(),
            lost_something: false,
            freed: VecDeque::new(),
        }
    }

    /// Whether there is anything of it.
    pub fn is_used(&self) -> bool {
        self.log.end().offset > LogEnd::START || !self.stray.is_empty()
    }

    /// Whether a follower's state has come to the end; what an entry began may be unfinished ([`Site::is_replayed`]).
    pub fn is_followed(&self) -> bool {
        self.replayed.offset >= self.log.end().offset
    }

    /// Promises to obey no smaller epoch (F2). Durable with the turn's commit.
    pub fn promise(&mut self, core: &mut Core, epoch: Epoch, out: &mut Effects) {
        assert!(epoch >= self.meta.promised, "F2: {} promised {}, now {epoch}", self.shard, self.meta.promised);
        self.meta.promised = epoch;
        self.save_meta(core, out);
    }

    /// A configuration made a set of members that this replica is one of: its folder knows (R9.13).
    pub fn note_set(&mut self, core: &mut Core, since: ConfigVersion, out: &mut Effects) {
        if self.exists && since > self.meta.set && !planted::is_on(Bug::ToldUnnoted) {
            self.meta.set = since;
            self.save_meta(core, out);
        }
    }

    /// The marks say that what is here does not count. They do so before it goes.
    pub fn discount(&mut self, core: &mut Core, out: &mut Effects) {
        (self.meta.intact, self.meta.complete) = (false, false);
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

    fn meta_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64);
        self.meta.encode(&mut bytes);
        bytes
    }

    /// Notes durably how far the log was surely acknowledged, at its beginning and then once a segment: an end below it
    /// means damage (R5.5).
    pub fn note_acknowledged(&mut self, core: &mut Core, out: &mut Effects) {
        // Before the configuration has come nobody knows whether a loss of power matters: the marks stay as they are.
        let judged = core.configuration.is_some();
        let noted = self.meta.acknowledged;
        // Without the first note a log whose only segment is gone would pass for an empty one.
        let is_due = match noted {
            LogEnd::START => self.held > LogEnd::START,
            _ => self.log.segment_behind(self.held) > self.log.segment_behind(noted),
        };
        if judged && self.exists && is_due {
            self.meta.acknowledged = self.held;
            self.save_meta(core, out);
        }
    }

    /// The marks say that the process ended in good order, if they say anything good at all.
    pub fn note_clean_end(&mut self, core: &mut Core, out: &mut Effects) {
        // Before the configuration has come nobody has judged what a loss of power took.
        if self.exists && self.meta.intact && core.configuration.is_some() {
            self.meta.ended_cleanly();
            core.replace(FileName::Replica(self.shard), &self.meta_bytes(), out);
        }
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

    /// What came in an attachment does not fit what we hold.
    pub fn mismatch(&self, core: &Core, to: Endpoint, (epoch, attach): (Epoch, AttachId), out: &mut Effects) {
        let message = message::Mismatch { shard: self.shard, epoch, node: core.id().node, attach };
        send(to, &message, Gate::Now, out);
    }

    /// Forgets the log, in memory and on file.
    fn reset(&mut self, core: &mut Core, base: LogEnd, out: &mut Effects) {
        core.work.add(Work::Role);
        self.unmark_whole(core, LogEnd::START, out);
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
            LogEnd::START => Log::new(self.shard, log_config(&core.options)),
            base => Log::begin_at(self.shard, log_config(&core.options), base),
        };
        let gone = std::mem::replace(&mut self.log, empty.with_buffers(core.options.buffers.clone()));
        core.options.trash.throw(gone);
        self.meta.base = base;
        self.meta.acknowledged = LogEnd::START;
        (self.written, self.held, self.known_synced) = (base, base, LogEnd::START);
        (self.flushed, self.flushing) = (base, None);
        self.commits.clear();
    }

    /// Cuts the log at a group boundary before its end. False: there is none.
    fn cut(&mut self, core: &mut Core, at: LogEnd, out: &mut Effects) -> bool {
        if at > self.log.end().offset || !self.log.ends_a_group(at) {
            return false;
        }
        core.work.add(Work::Role);
        let log = &self.log;
        out.copy_log_bytes(self.shard, |slice| log.slice(slice));
        if at < self.meta.acknowledged {
            // What is cut was never synced. The marks say so first, or the shorter log would pass for a damaged one.
            hit(Probe::CutBelowAcknowledged);
            self.meta.acknowledged = at;
            self.save_meta(core, out);
        }
        self.unmark_whole(core, at, out);
        let Ok(cut) = self.log.truncate(at) else { return false };
        hit(Probe::LogCut);
        // Newest first: a crash in between must not leave a hole.
        for &segment in cut.removed.iter().rev() {
            core.remove(FileName::Segment { shard: self.shard, segment }, out);
        }
        if let Some((segment, used)) = cut.head {
            core.truncate(FileName::Segment { shard: self.shard, segment }, u64::from(used), out);
        }
        core.fsync = true;
        self.meta.acknowledged = self.meta.acknowledged.min(at);
        self.written = self.written.min(at);
        self.held = self.held.min(at);
        self.flushed = self.flushed.min(at);
        self.flushing = self.flushing.map(|end| end.min(at));
        for (_, end) in &mut self.commits {
            *end = (*end).min(at);
        }
        // A file of a segment whose freeing is cut off now may have been damaged at the last start: then it is copied again.
        self.meta.complete &= self.log.absent().is_empty();
        true
    }

    /// The order that is drawn above. Checked whenever new bytes go to the file.
    pub fn assert_invariants(&self) {
        let end = self.log.end().offset;
        assert!(self.held <= self.written && self.written <= end, "{}: file ahead of log", self.shard);
        assert!(self.flushed.max(self.flushing.unwrap_or(LogEnd::START)) <= self.written, "{}: R8.17", self.shard);
        assert!(self.replayed.offset <= end || end == LogEnd::START, "{}", self.shard);
    }
}

impl Site<'_> {
    /// Forgets the log, and the state with it.
    pub fn reset_log(&mut self, base: LogEnd, out: &mut Effects) {
        self.copy.reset(self.core, base, out);
        self.forget_state();
    }

    /// Cuts the log at a group boundary. False: there is none.
    pub fn truncate_log(&mut self, at: LogEnd, out: &mut Effects) -> bool {
        // What stands there from now on is another log's, also where nothing stands yet: a member hears up to where others hold the
        // log before it holds that itself.
        self.copy.known_synced = self.copy.known_synced.min(at);
        if at == self.copy.log.end().offset {
            return true;
        }
        let cut = self.copy.cut(self.core, at, out);
        if cut {
            self.forget_state();
        }
        cut
    }

    /// The state is built anew from the log.
    fn forget_state(&mut self) {
        let fresh = ShardState::new(self.copy.shard);
        self.core.options.trash.throw(std::mem::replace(self.state, fresh));
        self.copy.replayed = Cursor::START;
        self.copy.log.reset_liveness();
    }
}
