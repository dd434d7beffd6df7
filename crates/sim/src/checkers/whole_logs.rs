//! Whole logs (R7.7): a mark or a log entry that says that a log is whole says so only of a log that is whole.
//!
//! - While the mark of a replica says that its log is whole for a term, nothing of that term or of an earlier one is
//!   cut.
//! - Under `replicated`: if a process starts with a mark on file, and its log has lost some of what the mark covers,
//!   the mark is never written again.
//! - Behind the entry `Whole`, which says that a term took everything that was answered under its list, that term
//!   replays nothing more.

use std::collections::BTreeMap;

use kasha_machine::FileName;
use kasha_types::{Epoch, SegmentId, ShardId};
use kasha_wire::{Durability, ShardPhase};

use crate::checkers::records::{COMPLETION_ENTRY, Group, groups_in};
use crate::configurations::Configurations;
use crate::disk::Content;
use crate::network::ProcessId;
use crate::probes::Probes;
use crate::world::{View, Watch};

/// Kind of the entry `Whole`: a term took everything that was answered under its list.
const WHOLE_ENTRY: u8 = 12;
/// Where `replica.meta` keeps the mark.
const MARK_AT: usize = 20;

/// The position of an entry: the segment, the group's end in it, and the entry's number in the group.
type Position = (SegmentId, u64, usize);

/// Watches logs and marks.
#[derive(Debug, Default)]
pub struct WholeLogs {
    configurations: Configurations,
    /// Where the groups of each segment end in its file, and their epochs.
    groups: BTreeMap<(ProcessId, ShardId, SegmentId), Vec<(u64, Epoch)>>,
    /// The last term that logged `Whole` in this replica, and where.
    took_all: BTreeMap<(ProcessId, ShardId), (Epoch, Position)>,
    /// After a loss of power only answered updates must be there, not everything that was written.
    is_fsync: bool,
    /// Marks that are false because something was lost.
    false_marks: BTreeMap<(ProcessId, ShardId), Epoch>,
    violations: Vec<String>,
    cuts: u64,
    losses: u64,
    marks: u64,
}

fn mark_of(view: &View<'_>, process: ProcessId, shard: ShardId) -> Epoch {
    let meta =
        view.processes[process.0].disk.cached(FileName::Replica(shard)).map(|content| content.read(MARK_AT as u64, 4));
    let bytes = meta.and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
    Epoch(bytes.map_or(0, u32::from_le_bytes))
}

impl WholeLogs {
    /// Watches under these configurations.
    #[must_use]
    pub fn new(configurations: Configurations, durability: Durability) -> Self {
        Self { configurations, is_fsync: durability == Durability::Fsync, ..Self::default() }
    }

    fn on_group(&mut self, (process, shard, segment): (ProcessId, ShardId, SegmentId), at: u64, group: &Group<'_>) {
        if self.is_behind((process, shard, segment), at, group) && self.recovers(shard, group.epoch) {
            self.violations.push(format!(
                "whole_logs: {process:?} replayed an update of {shard} in {} behind the entry that says it took all (R7.7)",
                group.epoch
            ));
        }
    }

    /// Adds a group. Returns whether an update in it stands behind the `Whole` of its term. A group that a member is
    /// sent again, because it had lost it, has its old position.
    fn is_behind(
        &mut self,
        (process, shard, segment): (ProcessId, ShardId, SegmentId),
        at: u64,
        group: &Group<'_>,
    ) -> bool {
        self.groups.entry((process, shard, segment)).or_default().push((at + group.end, group.epoch));
        let mut is_behind = false;
        for (number, &(kind, _)) in group.entries.iter().enumerate() {
            let position = (segment, at + group.end, number);
            if kind == WHOLE_ENTRY {
                self.marks += 1;
                self.took_all.insert((process, shard), (group.epoch, position));
            } else if kind == COMPLETION_ENTRY {
                let took_all = self.took_all.get(&(process, shard));
                is_behind |= took_all.is_some_and(|&(epoch, taken)| epoch == group.epoch && taken < position);
            }
        }
        is_behind
    }

    fn recovers(&self, shard: ShardId, epoch: Epoch) -> bool {
        self.configurations.latest().is_some_and(|latest| {
            latest.shard(shard).is_some_and(|config| config.epoch == epoch && config.phase == ShardPhase::Recovering)
        })
    }

    /// A segment is shorter, or gone. Returns the epoch of the first group that it lacks now. A segment that is removed
    /// before a later one is freed, not cut.
    fn cut(&mut self, (process, shard, segment): (ProcessId, ShardId, SegmentId), len: u64) -> Option<Epoch> {
        let of_log = (process, shard, SegmentId(segment.0 + 1))..=(process, shard, SegmentId(u32::MAX));
        let is_freed = len == 0 && self.groups.range(of_log).next().is_some();
        let groups = self.groups.get_mut(&(process, shard, segment))?;
        let first_cut = groups.iter().find(|(end, _)| *end > len).map(|&(_, epoch)| epoch);
        groups.retain(|(end, _)| *end <= len);
        if groups.is_empty() {
            self.groups.remove(&(process, shard, segment));
        }
        first_cut.filter(|_| !is_freed)
    }

    fn on_cut(&mut self, (process, shard, segment): (ProcessId, ShardId, SegmentId), len: u64, mark: Epoch) {
        if let Some(epoch) = self.cut((process, shard, segment), len) {
            self.cuts += 1;
            if epoch <= mark {
                self.violations.push(format!(
                    "whole_logs: {process:?} cut what {epoch} wrote in the log of {shard}, and its marks say that the log \
                     is whole for {mark} (R7.7)"
                ));
            }
        }
    }

    fn on_lost(&mut self, (process, shard, segment): (ProcessId, ShardId, SegmentId), len: u64, mark: Epoch) {
        if self.cut((process, shard, segment), len).is_some_and(|epoch| epoch <= mark) && !self.is_fsync {
            self.losses += 1;
            self.false_marks.insert((process, shard), mark);
        }
    }

    fn on_marks(&mut self, (process, shard): (ProcessId, ShardId), mark: Epoch) {
        if self.false_marks.get(&(process, shard)) == Some(&mark) {
            self.violations.push(format!(
                "whole_logs: {process:?} has lost some of what its log of {shard} held, and its marks still say that it is \
                 whole for {mark} (R7.7)"
            ));
        }
    }
}

impl Watch for WholeLogs {
    fn wrote(&mut self, by: ProcessId, file: FileName, offset: u64, len: usize, view: &View<'_>) {
        if let FileName::Replica(shard) = file {
            return self.on_marks((by, shard), mark_of(view, by, shard));
        }
        let FileName::Segment { shard, segment } = file else { return };
        let content = view.processes[by.0].disk.cached(file);
        if len == 0 {
            let len = content.map_or(0, Content::len);
            return self.on_cut((by, shard, segment), len, mark_of(view, by, shard));
        }
        let bytes = content.map(|content| content.read(offset, len)).unwrap_or_default();
        groups_in(&bytes, |group| self.on_group((by, shard, segment), offset, &group));
    }

    /// What damage or a loss of power took was not cut by the process. The marks are still those from before.
    fn started(&mut self, process: ProcessId, view: &View<'_>) {
        let disk = &view.processes[process.0].disk;
        let known: Vec<_> = self.groups.keys().copied().filter(|(of, ..)| *of == process).collect();
        for (_, shard, segment) in known {
            let len = disk.cached(FileName::Segment { shard, segment }).map_or(0, Content::len);
            self.on_lost((process, shard, segment), len, mark_of(view, process, shard));
        }
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("claims checked: logs cut", self.cuts);
        probes.add("claims checked: logs that lost something", self.losses);
        probes.add("claims checked: whole logs", self.marks);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: (ProcessId, ShardId, SegmentId) = (ProcessId(1), ShardId(0), SegmentId(3));

    fn group(end: u64, epoch: u32, kinds: &[u8]) -> (u64, Epoch, Vec<(u8, &'static [u8])>) {
        (end, Epoch(epoch), kinds.iter().map(|&kind| (kind, &[][..])).collect())
    }

    fn logged(watch: &mut WholeLogs, (end, epoch, entries): &(u64, Epoch, Vec<(u8, &'static [u8])>)) {
        watch.on_group(LOG, 0, &Group { end: *end, epoch: *epoch, is_copies: false, entries });
    }

    #[test]
    fn an_update_behind_the_entry_is_seen_and_a_second_append_is_none() {
        let (replayed, both) = (&[COMPLETION_ENTRY][..], &[COMPLETION_ENTRY, WHOLE_ENTRY][..]);
        let after_all = &[WHOLE_ENTRY, COMPLETION_ENTRY][..];
        for (appended, found) in [
            (&[(100, both), (200, replayed)][..], 1),
            (&[(100, after_all)], 1),
            (&[(100, both), (100, both)], 0),
            (&[(100, replayed), (200, both), (100, replayed), (200, both)], 0),
        ] {
            let mut watch = WholeLogs::default();
            let behind = appended.iter().filter(|(end, kinds)| {
                let (end, epoch, entries) = group(*end, 2, kinds);
                watch.is_behind(LOG, 0, &Group { end, epoch, is_copies: false, entries: &entries })
            });
            assert_eq!(behind.count(), found, "{appended:?}");
        }
    }

    #[test]
    fn a_cut_of_what_the_mark_speaks_of_is_seen() {
        for (mark, found) in [(0, 0), (1, 0), (2, 1)] {
            let mut watch = WholeLogs::default();
            logged(&mut watch, &group(100, 1, &[]));
            logged(&mut watch, &group(200, 2, &[]));
            watch.on_cut(LOG, 100, Epoch(mark));
            assert_eq!(watch.take_violations().len(), found, "{mark}");
        }
    }

    #[test]
    fn a_mark_that_outlives_what_it_speaks_of_is_seen() {
        for (is_fsync, mark, found) in [(false, 2, 1), (false, 0, 0), (false, 3, 0), (true, 2, 0)] {
            let mut watch = WholeLogs { is_fsync, ..WholeLogs::default() };
            logged(&mut watch, &group(100, 1, &[]));
            logged(&mut watch, &group(200, 2, &[]));
            watch.on_lost(LOG, 100, Epoch(2));
            watch.on_marks((LOG.0, LOG.1), Epoch(mark));
            assert_eq!(watch.take_violations().len(), found, "{is_fsync} {mark}");
        }
    }

    #[test]
    fn a_freed_segment_is_not_cut() {
        let mut watch = WholeLogs::default();
        logged(&mut watch, &group(100, 1, &[]));
        watch.groups.insert((LOG.0, LOG.1, SegmentId(4)), vec![(50, Epoch(1))]);
        watch.on_cut(LOG, 0, Epoch(1));
        assert_eq!(watch.take_violations(), Vec::<String>::new());
    }
}
