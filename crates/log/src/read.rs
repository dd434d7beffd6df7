//! Going through a log: for replay in slices, and for shipping.

use kasha_types::{Epoch, LogEnd, LogSlice, SegmentId};

use crate::Log;
use crate::segment::Segment;
use crate::verify::Entries;

/// How far a replay has come. Borrows nothing: the log may grow and segments may be freed between two slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cursor {
    /// Everything before it has been seen.
    pub offset: LogEnd,
}

impl Cursor {
    /// Nothing has been seen.
    pub const START: Self = Self { offset: LogEnd::START };
}

/// One group of the log.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// Whose primary wrote it.
    pub epoch: Epoch,
    /// Offset of its first byte.
    pub start: u64,
    /// Offset behind its last byte.
    pub end: LogEnd,
    /// The entries of the group.
    pub entries: Entries<'a>,
}

impl Group<'_> {
    /// Bytes of the group, its header included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end.0 - self.start
    }
}

impl Log {
    /// The first group at or above the cursor, which moves behind it; `None` at the log's end. Freed segments are
    /// passed over.
    ///
    /// # Panics
    /// If no group begins at the cursor's offset although its segment is here.
    pub fn next_group(&self, cursor: &mut Cursor) -> Option<Group<'_>> {
        let (segment, at) = self.at_or_above(cursor.offset)?;
        let group = segment.group(at);
        cursor.offset = group.end();
        Some(Group { epoch: group.epoch, start: at, end: group.end(), entries: segment.entries(&group) })
    }

    /// All groups, from the beginning of the log.
    pub fn groups(&self) -> impl Iterator<Item = Group<'_>> {
        self.groups_from(LogEnd::START)
    }

    /// The groups from `offset` on.
    pub fn groups_from(&self, offset: LogEnd) -> impl Iterator<Item = Group<'_>> {
        let mut cursor = Cursor { offset };
        std::iter::from_fn(move || self.next_group(&mut cursor))
    }

    /// Whether a group ends or the log begins there: what a peer says of positions may be false. Walks a segment.
    #[must_use]
    pub fn is_boundary(&self, end: LogEnd) -> bool {
        let ends = |segment: &Segment| {
            let mut at = LogEnd(segment.base);
            while at < end && at < segment.end() {
                at = segment.group(at.0).end();
            }
            at == end
        };
        // A segment's end may lie where the next begins.
        let before = || end.last_byte().and_then(|within| self.segment(self.checked_segment_of(within)?));
        end <= self.end.offset && (end.is_segment_base(self.config.segment_bytes) || before().is_some_and(ends))
    }

    /// The log's bytes from one group boundary to another, in pieces for shipping and for files: each within one
    /// segment, whole groups, and at most `piece_bytes_max` long unless a single group is longer.
    ///
    /// # Panics
    /// As [`Log::next_group`].
    pub fn pieces(&self, from: LogEnd, to: LogEnd, piece_bytes_max: u32) -> impl Iterator<Item = LogSlice> + '_ {
        debug_assert!(to == self.end.offset || self.is_boundary(to), "pieces end with a group, not at {to}");
        let mut from = from;
        std::iter::from_fn(move || {
            let (segment, start) = self.at_or_above(from).filter(|(_, start)| *start < to.0)?;
            let limit = to.min(segment.end());
            let mut end = limit;
            if limit.0 - start > u64::from(piece_bytes_max) {
                end = segment.group(start).end();
                while end < limit {
                    let next = segment.group(end.0).end();
                    if next.0 - start > u64::from(piece_bytes_max) {
                        break;
                    }
                    end = next;
                }
            }
            from = end;
            let len = u32::try_from(end.0 - start).expect("within a segment");
            Some(LogSlice { shard: self.shard, offset: start, len })
        })
    }

    /// The segment that holds the first group that does not end before `from`, and where that group begins.
    fn at_or_above(&self, from: LogEnd) -> Option<(&Segment, u64)> {
        if from >= self.end.offset {
            return None;
        }
        let id = self.segment_behind(from);
        if let Some(segment) = self.segment(id).filter(|segment| from < segment.end()) {
            return Some((segment, from.0));
        }
        let next = self.order.partition_point(|&held| held <= id);
        let next: Option<SegmentId> = self.order.get(next).copied();
        let segment = next.map(|id| &self.sealed[&id]).or(self.head.as_ref())?;
        Some((segment, segment.base))
    }
}
