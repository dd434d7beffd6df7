//! One segment: its bytes, and what they amount to.

use kasha_types::{EntryOffset, LogEnd, SegmentId};

use crate::format::{EntryKind, GROUP_HEADER_BYTES, GroupHeader, GroupStart, entry_bytes, u32_at};
use crate::history::Digest;
use crate::verify::Entries;

/// A segment in memory. Bytes behind `used` mean nothing.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) id: SegmentId,
    pub(crate) base: u64,
    pub(crate) bytes: Vec<u8>,
    /// End of the last group.
    pub(crate) used: u32,
    /// End of what effects of this turn may still name: above `used` only after a truncation, until `bury`.
    pub(crate) named: u32,
    /// The group before our first.
    pub(crate) previous: GroupStart,
    /// Our last group.
    pub(crate) last: GroupStart,
    /// Bytes of all entries.
    pub(crate) entry_bytes: u32,
    /// Of these: digest and freed segments, needed only while this is the head.
    pub(crate) housekeeping_bytes: u32,
    /// Of these: epoch starts, of which only the log's newest is needed.
    pub(crate) epoch_start_bytes: u32,
    pub(crate) epoch_start: Option<EntryOffset>,
    /// Bytes of entries not known dead.
    pub(crate) live_bytes: u32,
    /// The log says that this segment is freed.
    pub(crate) retired: bool,
}

impl Segment {
    pub(crate) fn new(id: SegmentId, segment_bytes: u32, bytes: Vec<u8>) -> Self {
        Self {
            id,
            base: u64::from(id.0) * u64::from(segment_bytes),
            bytes,
            used: 0,
            named: 0,
            previous: GroupStart::default(),
            last: GroupStart::default(),
            entry_bytes: 0,
            housekeeping_bytes: 0,
            epoch_start_bytes: 0,
            epoch_start: None,
            live_bytes: 0,
            retired: false,
        }
    }

    /// End of the last group.
    pub(crate) fn end(&self) -> LogEnd {
        LogEnd(self.base + u64::from(self.used))
    }

    /// Where an offset of the log lies in `bytes`.
    pub(crate) fn within(&self, offset: u64) -> usize {
        usize::try_from(offset - self.base).expect("offset of this segment")
    }

    /// The group at `offset`, which must be one of ours.
    pub(crate) fn group(&self, offset: u64) -> GroupHeader {
        let header = GroupHeader::read(&self.bytes[self.within(offset)..self.used as usize]);
        assert_eq!(header.offset, offset, "a group begins here");
        header
    }

    pub(crate) fn entries(&self, group: &GroupHeader) -> Entries<'_> {
        let payload_at = group.offset + u64::from(GROUP_HEADER_BYTES);
        Entries::new(&self.bytes[self.within(payload_at)..][..group.payload_len as usize], payload_at)
    }

    /// Counts a group whose bytes are in place at the end. `own_kinds`: it may hold entries of the log's own kinds.
    pub(crate) fn count(&mut self, group: &GroupHeader, own_kinds: bool) {
        assert_eq!(group.offset, self.end().0);
        if self.used == 0 {
            self.previous = group.previous;
        }
        self.last = group.start();
        self.used += group.len();
        self.named = self.named.max(self.used);
        self.entry_bytes += group.payload_len;
        self.live_bytes += group.payload_len;
        if !own_kinds {
            return;
        }
        let (mut housekeeping, mut epoch_starts, mut newest) = (0, 0, self.epoch_start);
        for (offset, entry) in self.entries(group) {
            let bytes = u32::try_from(entry_bytes(entry.payload.len())).expect("within a segment");
            match entry.kind {
                EntryKind::Digest | EntryKind::SegmentFreed => housekeeping += bytes,
                EntryKind::EpochStart => {
                    epoch_starts += bytes;
                    newest = Some(offset);
                }
                _ => {}
            }
        }
        self.housekeeping_bytes += housekeeping;
        self.epoch_start_bytes += epoch_starts;
        self.epoch_start = newest;
    }

    /// Forgets all groups at or above `end`, the end of one of them, and everything known of liveness.
    pub(crate) fn cut(&mut self, end: LogEnd) {
        let named = self.named;
        let bytes = std::mem::take(&mut self.bytes);
        let mut fresh = Self { id: self.id, base: self.base, bytes, ..Self::new(self.id, 0, Vec::new()) };
        while fresh.end() < end {
            let header = GroupHeader::read(&fresh.bytes[fresh.used as usize..]);
            fresh.count(&header, true);
        }
        fresh.named = named;
        *self = fresh;
    }

    /// Whether `end` is the end of one of our groups.
    pub(crate) fn ends_a_group(&self, end: LogEnd) -> bool {
        let mut at = LogEnd(self.base);
        while at < end && at < self.end() {
            at = self.group(at.0).end();
        }
        at == end && end.0 > self.base
    }
}

/// Segments that live according to a segment's groups, ascending: its digest, which names all that lived when it was
/// opened, without what was freed since.
pub(crate) fn live_segments(groups: &[u8]) -> Vec<SegmentId> {
    let (mut live, mut at) = (Vec::new(), 0);
    while at < groups.len() {
        let len = GroupHeader::read(&groups[at..]).len() as usize;
        for (_, entry) in Entries::new(&groups[at + GROUP_HEADER_BYTES as usize..at + len], 0) {
            match entry.kind {
                EntryKind::Digest => live.extend(Digest::parse(entry.payload).expect("checked").segments()),
                EntryKind::SegmentFreed => {
                    let freed = SegmentId(u32_at(entry.payload, 0));
                    live.retain(|&id| id != freed);
                }
                _ => {}
            }
        }
        at += len;
    }
    live
}

/// Segments that the group of these bytes says are freed.
pub(crate) fn freed_segments(group: &[u8]) -> impl Iterator<Item = SegmentId> + '_ {
    let entries = Entries::new(&group[GROUP_HEADER_BYTES as usize..], 0);
    let freed = entries.filter(|(_, entry)| entry.kind == EntryKind::SegmentFreed);
    freed.map(|(_, entry)| SegmentId(u32_at(entry.payload, 0)))
}
