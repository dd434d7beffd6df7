//! Freed when synced (R4.4, D4): a replica frees a segment only when the log entry that says so cannot be cut off any
//! more. The entries that replaced the segment's content stand before that entry, so they cannot be cut off either.
//! Otherwise a log that is cut back would miss them.
//!
//! A replica gives up its log, or cuts it, from its end. So a segment that is removed before a newer one is freed, not
//! cut. A process that starts may remove what its own log says is freed: it is copied anew if that entry is lost.

use std::collections::{BTreeMap, BTreeSet};

use kasha_machine::FileName;
use kasha_types::{SegmentId, ShardId};
use kasha_wire::frame::Kind;
use kasha_wire::message::FenceReport;

use crate::checkers::changes::{SyncedAtMost, Wrote, wrote};
use crate::checkers::records::{SEGMENT_FREED_ENTRY, groups_in};
use crate::configurations::{Configurations, Cores};
use crate::network::ProcessId;
use crate::probes::Probes;
use crate::world::{Sent, View, Watch};

/// Watches the files of logs.
#[derive(Debug, Default)]
pub struct FreedWhenSynced {
    segment_bytes: u64,
    synced: SyncedAtMost,
    /// Where the group ends, in a replica's log, that says that a segment is freed.
    words: BTreeMap<(ProcessId, ShardId, SegmentId), u64>,
    /// Processes that have sent nothing about logs since they started: they still check what they found.
    silent: BTreeSet<ProcessId>,
    violations: Vec<String>,
    checked: u64,
}

impl FreedWhenSynced {
    /// Watches these cores under these configurations.
    #[must_use]
    pub fn new(configurations: Configurations, cores: Cores, segment_bytes: u32) -> Self {
        let synced = SyncedAtMost::new(configurations, cores);
        Self { segment_bytes: u64::from(segment_bytes), synced, ..Self::default() }
    }

    fn on_groups(&mut self, by: ProcessId, shard: ShardId, base: u64, bytes: &[u8]) {
        groups_in(bytes, |group| {
            for (_, payload) in group.entries.iter().filter(|&&(kind, _)| kind == SEGMENT_FREED_ENTRY) {
                if let Some(&id) = payload.first_chunk() {
                    self.words.insert((by, shard, SegmentId(u32::from_le_bytes(id))), base + group.end);
                }
            }
        });
    }

    fn on_freed(&mut self, by: ProcessId, shard: ShardId, segment: SegmentId) {
        let Some(&word) = self.words.get(&(by, shard, segment)).filter(|_| !self.silent.contains(&by)) else { return };
        self.checked += 1;
        let synced = self.synced.in_any_term(shard);
        if word > synced {
            self.violations.push(format!(
                "freed_when_synced: {by:?} let go of {segment:?} of {shard} by a word that ends at {word}, and the log was \
                 synced to {synced} at most (R4.4, D4)"
            ));
        }
    }
}

impl Watch for FreedWhenSynced {
    fn sent(&mut self, sent: &Sent<'_>, _view: &View<'_>) {
        let is_of_a_log = [Kind::Append as u8, Kind::Appended as u8].contains(&sent.kind);
        if is_of_a_log || sent.is::<FenceReport>() {
            self.silent.remove(&sent.from);
        }
        self.synced.on_sent(sent);
    }

    fn wrote(&mut self, by: ProcessId, file: FileName, offset: u64, len: usize, view: &View<'_>) {
        match wrote(by, file, (offset, len), self.segment_bytes, view) {
            Some((shard, Wrote::Bytes { base, bytes })) => self.on_groups(by, shard, base, &bytes),
            Some((shard, Wrote::Gone(gone))) => {
                let disk = &view.processes[by.0].disk;
                if let FileName::Segment { segment, .. } = file
                    && disk.cached(file).is_none()
                    && disk.is_sealed(shard, segment)
                {
                    self.on_freed(by, shard, segment);
                }
                self.words.retain(|&(of, whose, _), end| (of, whose) != (by, shard) || !gone.contains(&(*end - 1)));
            }
            None => {}
        }
    }

    fn started(&mut self, process: ProcessId, _view: &View<'_>) {
        self.silent.insert(process);
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("claims checked: segments freed", self.checked);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use kasha_types::{Epoch, NodeId};

    use super::*;
    use crate::checkers::records::tests::{SHARD, three_cores};
    use crate::configurations::tests::{configuration, tell};

    fn watch(acked: u64) -> FreedWhenSynced {
        let configurations = Configurations::default();
        tell(&configurations, &configuration(1, 1, 1));
        let mut watch = FreedWhenSynced::new(configurations, three_cores(), 1 << 16);
        watch.synced.acks(SHARD, Epoch(1), NodeId(2), acked);
        watch.words.insert((ProcessId(1), SHARD, SegmentId(0)), 100);
        watch
    }

    /// Found by a sweep (`rebuild` 2256): the process learns from the coordinator whether its power was lost, and may
    /// give up its log.
    #[test]
    fn who_judges_what_it_found_may_let_go_of_it() {
        let mut watch = watch(99);
        watch.silent.insert(ProcessId(1));
        watch.on_freed(ProcessId(1), SHARD, SegmentId(0));
        assert_eq!(watch.take_violations(), Vec::<String>::new());
    }

    #[test]
    fn r4_4_a_segment_goes_when_the_word_of_it_is_synced() {
        for (acked, found) in [(99, 1), (100, 0)] {
            let mut watch = watch(acked);
            watch.on_freed(ProcessId(1), SHARD, SegmentId(1));
            assert_eq!(watch.take_violations(), Vec::<String>::new(), "nothing is known of it");
            watch.on_freed(ProcessId(1), SHARD, SegmentId(0));
            assert_eq!(watch.take_violations().len(), found, "synced to {acked}");
        }
    }
}
