//! Timestamp order (T2): in each log, transactions over several shards that conflict are executed in the order of their
//! timestamps, and of their ids where these are equal (Granola 4.2; R8.1, R8.3).
//!
//! Each log is looked at alone, that of a deposed primary, too, as far as its process has written it since it started. The
//! cleaner's copies are left out: nothing happened in them.

use std::collections::BTreeMap;

use kasha_machine::FileName;
use kasha_types::{RpcId, ShardId};

use crate::checkers::changes::{Wrote, wrote};
use crate::checkers::endings::{ENDED_ENTRY, ended};
use crate::checkers::records::groups_in;
use crate::network::ProcessId;
use crate::probes::Probes;
use crate::world::{View, Watch};

/// An execution that touched a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Touch {
    at: (u64, RpcId),
    writes: bool,
}

/// A log and a key.
type Place = (ProcessId, ShardId, u64);
/// Where a group ends in a log, and the number of the entry in the group.
type Position = (u64, usize);

/// Watches segment files.
#[derive(Debug, Default)]
pub struct TimestampOrder {
    segment_bytes: u64,
    touched: BTreeMap<Place, BTreeMap<Position, Touch>>,
    violations: Vec<String>,
    checked: u64,
}

impl TimestampOrder {
    /// Watches logs with segments of this size.
    #[must_use]
    pub fn new(segment_bytes: u32) -> Self {
        Self { segment_bytes: u64::from(segment_bytes), ..Self::default() }
    }

    fn on_touch(&mut self, place: Place, position: Position, touch: Touch) {
        let touches = self.touched.entry(place).or_default();
        touches.insert(position, touch);
        // Conflicting executions before the last write come before that write, and so on.
        let up_to_a_write = |seen: &mut bool, other: &Touch| {
            let is_last = std::mem::replace(seen, *seen || other.writes);
            (!is_last).then_some(*other)
        };
        let before = touches.range(..position).rev().map(|(_, other)| other).scan(false, up_to_a_write);
        let behind = touches.range(position..).skip(1).map(|(_, other)| other).scan(false, up_to_a_write);
        let conflicts = |other: &Touch| other.writes || touch.writes;
        let late = before.filter(conflicts).find(|other| other.at > touch.at);
        let early = behind.filter(conflicts).find(|other| other.at < touch.at);
        self.checked += u64::from(touches.len() > 1);
        for (first, then) in late.map(|late| (late, touch)).into_iter().chain(early.map(|early| (touch, early))) {
            let (process, shard, _) = place;
            self.violations.push(format!(
                "timestamp_order: in the log of {shard} at process {}, {} at timestamp {} comes behind {} at timestamp {}, with \
                 which it conflicts (T2)",
                process.0, then.at.1, then.at.0, first.at.1, first.at.0
            ));
        }
    }

    fn on_bytes(&mut self, (by, shard): (ProcessId, ShardId), base: u64, bytes: &[u8]) {
        let end = base + bytes.len() as u64;
        self.forget((by, shard), base + 1..end + 1);
        groups_in(bytes, |group| {
            if group.is_copies {
                return;
            }
            for (index, &(_, entry)) in group.entries.iter().enumerate().filter(|(_, entry)| entry.0 == ENDED_ENTRY) {
                let Some(ended) = ended(entry) else { continue };
                let Some(at) = ended.executed else { continue };
                let touches = |writes| Touch { at: (at, ended.rpc), writes };
                let reads = ended.reads.iter().map(|&key| (key, touches(false)));
                for (key, touch) in reads.chain(ended.writes.iter().map(|&key| (key, touches(true)))) {
                    self.on_touch((by, shard, key), (base + group.end, index), touch);
                }
            }
        });
    }

    fn forget(&mut self, (by, shard): (ProcessId, ShardId), gone: std::ops::Range<u64>) {
        for (_, touches) in self.touched.range_mut((by, shard, 0)..=(by, shard, u64::MAX)) {
            touches.retain(|(end, _), _| !gone.contains(end));
        }
    }
}

impl Watch for TimestampOrder {
    fn wrote(&mut self, by: ProcessId, file: FileName, offset: u64, len: usize, view: &View<'_>) {
        match wrote(by, file, (offset, len), self.segment_bytes, view) {
            Some((shard, Wrote::Bytes { base, bytes })) => self.on_bytes((by, shard), base, &bytes),
            Some((shard, Wrote::Gone(gone))) => self.forget((by, shard), gone.start + 1..gone.end.saturating_add(1)),
            None => {}
        }
    }

    fn started(&mut self, process: ProcessId, _view: &View<'_>) {
        self.touched.retain(|(of, ..), _| *of != process);
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("claims checked: executed in the order of timestamps", self.checked);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::endings::Ended;
    use crate::checkers::records::tests::SHARD;

    const LOG: (ProcessId, ShardId) = (ProcessId(1), SHARD);

    fn written(sequence: u64, at: u64, reads: &[u64], writes: &[u64]) -> Vec<u8> {
        Ended { reads: reads.to_vec(), writes: writes.to_vec(), ..Ended::of(sequence, Some(at)) }.encode()
    }

    #[test]
    fn t2_what_conflicts_is_executed_in_the_order_of_timestamps() {
        let mut watch = TimestampOrder::new(1 << 16);
        watch.on_bytes(LOG, 1000, &written(1, 5, &[10], &[11]));
        watch.on_bytes(LOG, 2000, &written(2, 3, &[10], &[12]));
        watch.on_bytes(LOG, 3000, &written(3, 5, &[], &[11]));
        assert_eq!(watch.take_violations(), Vec::<String>::new(), "reads do not conflict; ids order equal timestamps");
        watch.on_bytes(LOG, 4000, &written(4, 4, &[], &[10]));
        assert_eq!(watch.take_violations().len(), 1, "it comes behind a read with a greater timestamp");
        watch.on_bytes(LOG, 500, &written(5, 6, &[11], &[]));
        assert_eq!(watch.take_violations().len(), 1, "an older part of the log, which is copied later");
    }

    #[test]
    fn what_was_cut_off_or_copied_counts_no_more() {
        let mut watch = TimestampOrder::new(1 << 16);
        watch.on_bytes(LOG, 1000, &written(1, 5, &[], &[10]));
        watch.on_bytes(LOG, 2000, &written(2, 7, &[], &[10]));
        watch.on_bytes(LOG, 2000, &written(3, 6, &[], &[10]));
        let mut copy = written(1, 5, &[], &[10]);
        copy[40] = 1;
        watch.on_bytes(LOG, 3000, &copy);
        watch.forget(LOG, 0..u64::MAX);
        watch.on_bytes(LOG, 5000, &written(4, 1, &[], &[10]));
        watch.on_bytes((ProcessId(2), SHARD), 100, &written(5, 2, &[], &[10]));
        assert_eq!(watch.take_violations(), Vec::<String>::new());
    }
}
