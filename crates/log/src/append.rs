//! The primary's appends: one group at a time, written in place.
//!
//! [`Log::begin`] finds room for a group, and begins a new segment if the head has too little. [`GroupWriter`] then
//! takes entries, and its `commit` writes the group's header with length and checksum: until then the group is not part
//! of the log, and a writer that is dropped leaves no group (**E4**, **R4.1**). Each append names its [`Purpose`],
//! which decides how much of the memory it may use (**R5.16**, `room`).
//!
//! A backup's appends, which take bytes as they come, are in `raw`.

use kasha_types::{ENTRY_HEADER_BYTES, EntryOffset, Epoch, LogEnd, LogPosition, SegmentId};

use crate::Log;
use crate::format::{EntryKind, GROUP_HEADER_BYTES, GroupHeader, GroupStart, entry_bytes, frame_entry};
use crate::history::Digest;

/// What an append is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// New data: may use all memory but the reserves.
    Normal,
    /// Deletes, which in the end give memory back: may use the reserve, but for what the cleaner needs.
    Freeing,
    /// The end of an update for which others wait, when deletes have used up the reserve: a few bytes, that let a client acknowledge what
    /// came later, or another shard go on. May use half of what [`Purpose::Shrinking`] may: nobody promises that more is freed.
    Unblocking,
    /// What leaves less alive than there was, when deletes have used up the reserve: the way back (R5.16). May use what the
    /// cleaner has, but for a segment.
    Shrinking,
    /// What was promised, and for which room was kept ([`Log::keep_room`]). May use what the cleaner has, but for a segment.
    Promised,
    /// Copies of live entries, so that the segment that holds them can be freed: may use the whole reserve and a little more
    /// than the limit (R5.16).
    Cleaning,
    /// What must never fail for memory: floors, freed segments. May use a little more than the limit, as backups may.
    Own,
    /// What a new primary logs before it serves, or a full shard could not be recovered: epoch starts, and what a witness's replay
    /// executes. May use [`crate::TAKEOVER_SEGMENTS`] more, which nothing else may use before.
    Takeover,
}

/// Why an append was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Full {
    /// Memory is full for this purpose, and what is dead makes no room.
    Memory,
    /// Memory is full for this purpose until dead entries are cleaned away, or the freeing of a segment is synced.
    Cleaning,
    /// No segment ever takes a group of this size; see [`Log::group_payload_max`].
    Group,
}

/// Where a group went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// Where the group begins: the next group names it as its predecessor.
    pub start: GroupStart,
    /// Behind its last byte: what a gate waits for.
    pub end: LogPosition,
}

/// A piece of an entry's payload.
#[derive(Clone, Copy, Debug)]
pub enum Part<'b> {
    /// Bytes of the caller, which are copied.
    Bytes(&'b [u8]),
    /// Bytes of the log, or of an earlier entry of the open group: an old value within a new one, a relocated entry.
    Log {
        /// Offset of the first byte.
        offset: u64,
        /// The number of bytes.
        len: u32,
    },
}

impl Log {
    /// Bytes of entries (see [`entry_bytes`]) that a group can hold, whatever the log holds.
    #[must_use]
    pub fn group_payload_max(&self) -> usize {
        self.group_payload_max
    }

    /// Opens a group with room for `payload_bytes_max` bytes of entries; nothing fails once it is open. When the head
    /// has no room the next segment is opened, with its digest.
    ///
    /// # Errors
    /// The log is unchanged.
    ///
    /// # Panics
    /// If the epoch is older than the log's, or the log is incomplete: only complete copies may be elected (R7.2).
    pub fn begin(&mut self, epoch: Epoch, payload_bytes_max: usize, purpose: Purpose) -> Result<GroupWriter<'_>, Full> {
        assert!(epoch >= self.end.epoch, "{epoch} writes after {} (F2)", self.end.epoch);
        assert!(
            self.absent.is_empty() && (self.head.is_some() || self.end.offset == LogEnd::START),
            "an incomplete primary"
        );
        if payload_bytes_max > self.group_payload_max() {
            return Err(Full::Group);
        }
        let payload = u32::try_from(payload_bytes_max.next_multiple_of(8)).expect("within a segment");
        let group = GROUP_HEADER_BYTES + payload;
        let rolls = self.rolls(group);
        self.find_room(group, rolls, purpose)?;
        if rolls {
            self.roll(epoch);
        }
        let head = self.head.as_mut().expect("a head is open");
        let (start, at) = (head.used, head.used + GROUP_HEADER_BYTES);
        let is_copies = purpose == Purpose::Cleaning;
        Ok(GroupWriter { epoch, start, at, limit: start + group, entries: 0, own_kinds: false, is_copies, log: self })
    }

    /// Opens the next segment and writes its digest, a group of its own.
    pub(crate) fn roll(&mut self, epoch: Epoch) {
        let next = self.head.as_ref().map_or(0, |head| head.id.0.checked_add(1).expect("segments are exhausted"));
        let buffer = self.buffer();
        let inherited_end = self.end.offset;
        self.open_segment(SegmentId(next), buffer);
        self.history.note(epoch, inherited_end);

        let listed = |id: &SegmentId| !self.sealed[id].retired;
        let mut segments: Vec<SegmentId> = self.order.iter().copied().filter(listed).collect();
        segments.push(SegmentId(next));
        let epochs = self.history.as_slice();
        let payload_len = Digest::payload_len(segments.len(), epochs.len());
        let group = GroupHeader {
            payload_len: u32::try_from(entry_bytes(payload_len)).expect("within a segment"),
            entries: 1,
            offset: u64::from(next) * u64::from(self.config.segment_bytes),
            epoch,
            previous: self.last,
            is_copies: false,
        };
        let head = self.head.as_mut().expect("just opened");
        let bytes = &mut head.bytes[..group.len() as usize];
        let entry = &mut bytes[GROUP_HEADER_BYTES as usize..];
        frame_entry(entry, EntryKind::Digest, u32::try_from(payload_len).expect("within a segment"));
        let payload = &mut entry[ENTRY_HEADER_BYTES as usize..][..payload_len];
        Digest::write(payload, segments.into_iter(), epochs.iter().copied());
        group.seal(bytes);
        self.accept(&group, true);
    }
}

/// A group being written at the log's end. Dropped without [`GroupWriter::commit`] it was never there.
#[derive(Debug)]
pub struct GroupWriter<'a> {
    log: &'a mut Log,
    epoch: Epoch,
    start: u32,
    at: u32,
    limit: u32,
    entries: u32,
    own_kinds: bool,
    is_copies: bool,
}

impl<'a> GroupWriter<'a> {
    /// Adds an entry and hands out its payload to be filled: what the bytes held before is unspecified.
    ///
    /// # Panics
    /// If more is written than was reserved, or the kind is one that only the log writes.
    pub fn entry(&mut self, kind: EntryKind, payload_len: usize) -> (EntryOffset, &mut [u8]) {
        assert!(!matches!(kind, EntryKind::Digest | EntryKind::SegmentFreed), "{kind:?} is the log's own");
        self.add(kind, payload_len)
    }

    /// Adds an entry whose payload is these parts, one after the other.
    ///
    /// # Panics
    /// As [`GroupWriter::entry`], or if a part names bytes that are not there.
    pub fn entry_parts(&mut self, kind: EntryKind, parts: &[Part<'_>]) -> EntryOffset {
        let len = |part: &Part<'_>| match *part {
            Part::Bytes(bytes) => bytes.len(),
            Part::Log { len, .. } => len as usize,
        };
        let readable = self.start_offset() + u64::from(self.at - self.start);
        let (at, _) = self.entry(kind, parts.iter().map(len).sum());
        let head = self.log.head.as_ref().expect("a head is open");
        let mut to = head.within(at.0) + ENTRY_HEADER_BYTES as usize;
        for part in parts {
            let head = self.log.head.as_mut().expect("a head is open");
            match *part {
                Part::Bytes(bytes) => head.bytes[to..to + bytes.len()].copy_from_slice(bytes),
                Part::Log { len: 0, .. } => {} // its place may be the end of a full segment
                Part::Log { offset, len } if offset >= head.base => {
                    assert!(offset + u64::from(len) <= readable, "bytes that are not written yet");
                    let from = head.within(offset);
                    head.bytes.copy_within(from..from + len as usize, to);
                }
                Part::Log { offset, len } => {
                    let id =
                        SegmentId(u32::try_from(offset / u64::from(self.log.config.segment_bytes)).expect("below"));
                    let from = self.log.sealed.get(&id).expect("the segment is here");
                    let at = from.within(offset);
                    assert!(at + len as usize <= from.used as usize, "bytes beyond a segment's end");
                    head.bytes[to..to + len as usize].copy_from_slice(&from.bytes[at..at + len as usize]);
                }
            }
            to += len(part);
        }
        at
    }

    /// Says that a segment is freed (see [`Log::freeable`]).
    ///
    /// # Panics
    /// If it is not a sealed segment of this log, or holds a live entry.
    pub fn segment_freed(&mut self, id: SegmentId) -> EntryOffset {
        let segment = self.log.sealed.get(&id).expect("a sealed segment");
        assert_eq!(segment.live_bytes, 0, "{id:?} holds live entries");
        let (at, payload) = self.add(EntryKind::SegmentFreed, 4);
        payload.copy_from_slice(&id.0.to_le_bytes());
        at
    }

    /// The log as it was before this group.
    #[must_use]
    pub fn log(&self) -> &Log {
        self.log
    }

    /// Drops the group, and gives the log back.
    #[must_use]
    pub fn into_log(self) -> &'a mut Log {
        self.log
    }

    /// Whether it has no entry yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Bytes of entries that still fit.
    #[must_use]
    pub fn room(&self) -> usize {
        (self.limit - self.at) as usize
    }

    /// Seals the group: it is part of the log now.
    ///
    /// # Panics
    /// If it has no entry.
    pub fn commit(self) -> Appended {
        self.commit_and_release().1
    }

    /// As [`GroupWriter::commit`], and gives the log back.
    ///
    /// # Panics
    /// As [`GroupWriter::commit`].
    pub fn commit_and_release(self) -> (&'a mut Log, Appended) {
        assert!(self.entries > 0, "an empty group");
        let group = GroupHeader {
            payload_len: self.at - self.start - GROUP_HEADER_BYTES,
            entries: self.entries,
            offset: self.start_offset(),
            epoch: self.epoch,
            previous: self.log.last,
            is_copies: self.is_copies,
        };
        let head = self.log.head.as_mut().expect("a head is open");
        group.seal(&mut head.bytes[self.start as usize..self.at as usize]);
        self.log.accept(&group, self.own_kinds);
        let appended = Appended { start: group.start(), end: self.log.end };
        (self.log, appended)
    }

    fn start_offset(&self) -> u64 {
        self.log.end.offset.0
    }

    fn add(&mut self, kind: EntryKind, payload_len: usize) -> (EntryOffset, &mut [u8]) {
        assert!(entry_bytes(payload_len) <= self.room(), "more than was reserved");
        let (at, whole) = (self.at as usize, entry_bytes(payload_len));
        self.at += u32::try_from(whole).expect("within a segment");
        self.entries += 1;
        self.own_kinds |= matches!(kind, EntryKind::SegmentFreed | EntryKind::EpochStart);
        let head = self.log.head.as_mut().expect("a head is open");
        let entry = &mut head.bytes[at..at + whole];
        frame_entry(entry, kind, u32::try_from(payload_len).expect("within a segment"));
        let payload = &mut entry[ENTRY_HEADER_BYTES as usize..][..payload_len];
        (EntryOffset(head.base + at as u64), payload)
    }
}
