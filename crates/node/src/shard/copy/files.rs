//! What goes to a log's files, and which files go.

use kasha_machine::{Effect, Effects, FileName};
use kasha_types::planted::{self, Bug};
use kasha_types::{LocalPosition, LogEnd, LogSlice, SegmentId};

use crate::core::Core;
use crate::shard::copy::LogCopy;

/// Bytes of one write of log bytes to a file.
const WRITE_BYTES_MAX: u32 = 1024 * 1024;
/// Files that a turn removes.
const REMOVED_PER_TURN: usize = 4;

impl LogCopy {
    /// Gives new log bytes to the file.
    pub fn write_log(&mut self, core: &mut Core, out: &mut Effects) {
        let end = self.log.end().offset;
        if self.written == end {
            return;
        }
        for slice in self.log.pieces(self.written, end, WRITE_BYTES_MAX) {
            let segment = self.log.segment_at(slice.offset);
            let file = FileName::Segment { shard: self.shard, segment };
            core.write_log(file, slice.offset - self.log.segment_base(segment), slice, out);
        }
        self.written = end;
        self.commits.push_back((core.commit_position(), end));
        self.assert_invariants();
    }

    /// Commits up to `to` hold.
    pub fn on_durable(&mut self, to: LocalPosition) {
        while let Some(&(position, end)) = self.commits.front() {
            if position > to {
                break;
            }
            self.held = self.held.max(end);
            self.commits.pop_front();
        }
    }

    /// A flush of log segments begins.
    pub fn begin_flush(&mut self) {
        self.flushing = Some(self.written);
        if planted::is_on(Bug::FlushedWhenBegun) {
            self.flushed = self.written;
        }
    }

    /// The flush is done.
    pub fn on_flushed(&mut self) {
        self.flushed = self.flushed.max(self.flushing.take().unwrap_or(LogEnd::START));
    }

    /// An fsync covers the log up to here.
    pub fn fsynced_to(&mut self, end: LogEnd) {
        self.flushed = self.flushed.max(end.min(self.held));
    }

    /// Gives an older segment, which was copied from another node, to its file.
    pub fn write_segment(&self, core: &mut Core, segment: SegmentId, len: u32, out: &mut Effects) {
        let slice = LogSlice { shard: self.shard, offset: self.log.segment_base(segment), len };
        core.write_log(FileName::Segment { shard: self.shard, segment }, 0, slice, out);
    }

    /// A power loss that keeps the removal of a file and not the word of it would leave a hole in the log (D4): the file
    /// goes after an fsync of all that was written before.
    pub fn remove_later(&mut self, core: &mut Core, segment: SegmentId) {
        self.freed.push_back((segment, None));
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

    /// Removes some of the files that nothing needs any more, whatever happens.
    pub fn remove_freed_files(&mut self, core: &mut Core, out: &mut Effects) {
        for _ in 0..REMOVED_PER_TURN {
            if !self.has_file_to_remove(core) {
                return;
            }
            let (segment, _) = self.freed.pop_front().expect("just seen");
            core.remove(FileName::Segment { shard: self.shard, segment }, out);
        }
    }

    /// Whether another turn would remove more.
    pub fn has_file_to_remove(&self, core: &Core) -> bool {
        self.freed.front().is_some_and(|(_, covered)| covered.is_some_and(|commit| commit <= core.local_durable))
    }

    /// Ends the process, which has no room for what it may not refuse.
    pub fn stop_for_memory(&self, out: &mut Effects) {
        let why = format!(
            "{}: the memory limit leaves no room for the shard's log: raise it and start this node again (K0407)",
            self.shard
        );
        let why = out.span(why.as_bytes());
        out.push(Effect::Stop(why));
    }
}
