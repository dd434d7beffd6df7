//! The log itself: what it holds, and reading it.
//!
//! A log is its sealed segments, the head segment that is being filled, and the numbers that describe them: the end,
//! the history of epochs, the live bytes of each segment. Offsets map to segments by division; they never restart.
//! Bytes that effects of a turn may still name stay in the graveyard until [`Log::bury`].
//!
//! Changes of a log are in modules of their own: `append` and `raw` add groups, `truncate` cuts, `liveness` notes what
//! is dead, `cleaning` copies, `room` says what finds memory, `load` rebuilds a log from files.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Range;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use kasha_types::{EntryOffset, Epoch, LogEnd, LogPosition, LogSlice, SegmentId, ShardId, limits};

use crate::format::{GROUP_HEADER_BYTES, GroupStart, entry_bytes};
use crate::history::{Digest, EpochHistory};
use crate::limits::{EPOCH_HISTORY_MAX, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
use crate::memory::Buffers;
use crate::segment::Segment;
use crate::verify::{Entry, read_entry};

/// Sizes of a log.
#[derive(Clone, Copy, Debug)]
pub struct LogConfig {
    /// Bytes of a segment: part of the format of every offset, the same on all replicas, a multiple of 8.
    pub segment_bytes: u32,
    /// Memory that a primary's log may take.
    pub memory_max_bytes: u64,
    /// Part of the memory that only [`crate::Purpose::Freeing`] may use (section 5); two segments at least, half of it at
    /// most.
    pub reserve_percent: u8,
}

impl LogConfig {
    /// The usual segments and reserve.
    #[must_use]
    pub fn new(memory_max_bytes: u64) -> Self {
        Self { segment_bytes: limits::SEGMENT_BYTES, memory_max_bytes, reserve_percent: 2 }
    }
}

/// A shard's log replica in memory. See the crate's documentation.
#[derive(Debug)]
pub struct Log {
    pub(crate) shard: ShardId,
    pub(crate) config: LogConfig,
    pub(crate) head: Option<Segment>,
    pub(crate) sealed: HashMap<SegmentId, Segment, FixedState>,
    /// Keys of `sealed`, ascending.
    pub(crate) order: Vec<SegmentId>,
    /// Named by the newest digest, not freed since, and not here: a joiner's missing past. Ascending.
    pub(crate) absent: Vec<SegmentId>,
    pub(crate) graveyard: Vec<Segment>,
    pub(crate) pool: Vec<Vec<u8>>,
    buffers: Buffers,
    /// Sealed segments without a live byte, and the log's end when the last one died. Ends ascend.
    pub(crate) dead: VecDeque<(SegmentId, LogEnd)>,
    /// Segments here that the log says are freed, and the end of the group that says so. Ends ascend.
    pub(crate) retired: VecDeque<(SegmentId, LogEnd)>,
    pub(crate) history: EpochHistory,
    /// The last group: the next one names it as its predecessor.
    pub(crate) last: GroupStart,
    pub(crate) end: LogPosition,
    pub(crate) epoch_start: Option<EntryOffset>,
    pub(crate) live_bytes: u64,
    pub(crate) groups_appended: u64,
    pub(crate) segments_freed: u64,
    /// Bytes of the last group of new data that found no memory; 0 if none did.
    pub(crate) refused: u32,
    /// What live entries may take, for a digest of so many segments and epochs.
    pub(crate) live_max: Cell<Option<((usize, usize), u64)>>,
    /// Bytes that [`crate::Purpose::Promised`] will take, and nobody else may.
    pub(crate) kept: u64,
    /// See [`Log::group_payload_max`]: each append asks.
    pub(crate) group_payload_max: usize,
}

/// What a log holds, for status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogStats {
    /// The position behind the last entry.
    pub end: LogPosition,
    /// Segments that hold the log.
    pub segments: usize,
    /// Freed ones that effects of this turn may still name.
    pub segments_in_graveyard: usize,
    /// Buffers kept for the next segments.
    pub segments_pooled: usize,
    /// See [`Log::memory_used`].
    pub memory_used: u64,
    /// See [`LogConfig::memory_max_bytes`].
    pub memory_max: u64,
    /// Bytes of entries not known dead.
    pub live_bytes: u64,
    /// Groups appended since the start of this process.
    pub groups_appended: u64,
    /// Segments freed since the start of this process.
    pub segments_freed: u64,
}

impl Log {
    /// The empty log of a new shard.
    ///
    /// # Panics
    /// If the sizes make no sense.
    #[must_use]
    pub fn new(shard: ShardId, config: LogConfig) -> Self {
        let size = config.segment_bytes;
        assert!((SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&size) && size.is_multiple_of(8), "segment size");
        assert!(config.reserve_percent < 100, "reserve");
        let mut log = Self {
            shard,
            config,
            head: None,
            sealed: HashMap::default(),
            order: Vec::new(),
            absent: Vec::new(),
            graveyard: Vec::new(),
            pool: Vec::new(),
            buffers: Buffers::default(),
            dead: VecDeque::new(),
            retired: VecDeque::new(),
            history: EpochHistory::default(),
            last: GroupStart::default(),
            end: LogPosition::default(),
            epoch_start: None,
            live_bytes: 0,
            groups_appended: 0,
            segments_freed: 0,
            refused: 0,
            live_max: Cell::new(None),
            kept: 0,
            group_payload_max: 0,
        };
        assert!(log.segments_max() >= 2, "memory for two segments");
        let beside_digest = u64::from(size).checked_sub(log.digest_bytes_max() + u64::from(GROUP_HEADER_BYTES));
        let payload = beside_digest.filter(|&payload| payload > u64::from(GROUP_HEADER_BYTES)).expect("a digest fits");
        log.group_payload_max = usize::try_from(payload).expect("64-bit sizes") & !7;
        log
    }

    /// A joiner's log, which takes the primary's live tail at once (R7.2): it begins where a segment
    /// does, with any predecessor. [`Log::absent`] then names what is still to be installed.
    ///
    /// # Panics
    /// If no segment begins there.
    #[must_use]
    pub fn begin_at(shard: ShardId, config: LogConfig, base: LogEnd) -> Self {
        let mut log = Self::new(shard, config);
        assert!(base.is_segment_base(config.segment_bytes), "a segment begins at {base}");
        log.end.offset = base;
        log
    }

    /// The same log, with the memory of its next segments from here.
    #[must_use]
    pub fn with_buffers(self, buffers: Buffers) -> Self {
        Self { buffers, ..self }
    }

    /// The shard of the log.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// Epoch of the last group, and where it ends.
    #[must_use]
    pub fn end(&self) -> LogPosition {
        self.end
    }

    /// The newest epochs, ascending, each with the end of the log that its primary took over. At most
    /// [`EPOCH_HISTORY_MAX`].
    #[must_use]
    pub fn epoch_history(&self) -> &[(Epoch, LogEnd)] {
        self.history.as_slice()
    }

    /// Segments that this replica lacks, ascending. Only a log without any is complete, and may be elected (R7.2).
    #[must_use]
    pub fn absent(&self) -> &[SegmentId] {
        &self.absent
    }

    /// Bytes of a segment.
    #[must_use]
    pub fn segment_bytes(&self) -> u32 {
        self.config.segment_bytes
    }

    /// The segment that holds this entry.
    #[must_use]
    pub fn segment_of(&self, at: EntryOffset) -> SegmentId {
        self.segment_at(at.0)
    }

    /// The segment that holds the byte just behind this position, or will.
    #[must_use]
    pub fn segment_behind(&self, end: LogEnd) -> SegmentId {
        self.segment_at(end.0)
    }

    /// The segment that holds the byte at this offset.
    #[must_use]
    pub fn segment_at(&self, offset: u64) -> SegmentId {
        self.checked_segment_of(offset).expect("offsets fit 2^32 segments")
    }

    pub(crate) fn checked_segment_of(&self, offset: u64) -> Option<SegmentId> {
        u32::try_from(offset / u64::from(self.config.segment_bytes)).ok().map(SegmentId)
    }

    /// Offset of a segment's first byte.
    #[must_use]
    pub fn segment_base(&self, id: SegmentId) -> u64 {
        u64::from(id.0) * u64::from(self.config.segment_bytes)
    }

    /// Where entries of this segment can begin.
    #[must_use]
    pub fn entry_offsets(&self, id: SegmentId) -> Range<EntryOffset> {
        let base = self.segment_base(id);
        EntryOffset(base)..EntryOffset(base + u64::from(self.config.segment_bytes))
    }

    /// The position that covers whatever older segments hold, and nothing of this one.
    #[must_use]
    pub fn end_before(&self, id: SegmentId) -> LogEnd {
        LogEnd(self.segment_base(id))
    }

    /// Segments here, ascending, each with the bytes in use: what a joiner must be sent, and how long its file is.
    pub fn segments(&self) -> impl Iterator<Item = (SegmentId, u32)> + '_ {
        let sealed = self.order.iter().map(|id| (*id, self.sealed[id].used));
        sealed.chain(self.head.as_ref().map(|head| (head.id, head.used)))
    }

    /// Bytes in use of a segment; `None`: it is not here.
    #[must_use]
    pub fn used_bytes(&self, id: SegmentId) -> Option<u32> {
        self.segment(id).map(|segment| segment.used)
    }

    /// Bytes of entries of a segment that are not known dead; 0 if it is not here.
    #[must_use]
    pub fn live_bytes_in(&self, id: SegmentId) -> u32 {
        self.segment(id).map_or(0, |segment| segment.live_bytes)
    }

    /// The first segment here that is this one or a later one.
    #[must_use]
    pub fn first_held(&self, from: SegmentId) -> Option<SegmentId> {
        let sealed = self.order.get(self.order.partition_point(|&id| id < from)).copied();
        sealed.or_else(|| self.head.as_ref().map(|head| head.id).filter(|&id| id >= from))
    }

    /// Bytes of the log, within one segment. Segments in the graveyard count as here.
    ///
    /// # Panics
    /// If they are gone or were never here.
    #[must_use]
    pub fn bytes(&self, offset: u64, len: u32) -> &[u8] {
        let holds = |segment: &&Segment| segment.within(offset) + len as usize <= segment.named as usize;
        let head = self.head.as_ref().filter(|head| offset >= head.base).filter(holds);
        let segment = head.unwrap_or_else(|| {
            let id = self.segment_at(offset);
            let segment = self.segment(id).filter(holds);
            let segment = segment.or_else(|| self.graveyard.iter().filter(|segment| segment.id == id).find(holds));
            segment.unwrap_or_else(|| panic!("{len} bytes at {offset} are not in the log"))
        });
        &segment.bytes[segment.within(offset)..][..len as usize]
    }

    /// The bytes that a slice names.
    ///
    /// # Panics
    /// As [`Log::bytes`], or if it is another shard's.
    #[must_use]
    pub fn slice(&self, slice: LogSlice) -> &[u8] {
        assert_eq!(slice.shard, self.shard);
        self.bytes(slice.offset, slice.len)
    }

    /// The entry there.
    ///
    /// # Panics
    /// If no committed entry can be there. An offset within an entry is not always noticed.
    #[must_use]
    pub fn entry(&self, at: EntryOffset) -> Entry<'_> {
        let segment = match &self.head {
            Some(head) if at.0 >= head.base => head,
            _ => self.segment(self.segment_of(at)).or_else(|| self.grave(at)).expect("the segment is here"),
        };
        read_entry(&segment.bytes[segment.within(at.0)..segment.used as usize])
    }

    /// Something of the entry there: whoever reads it has the entry's beginning in the processor's cache. 0: its segment is not here.
    #[must_use]
    #[inline]
    pub fn touch(&self, at: EntryOffset) -> u8 {
        let segment = match &self.head {
            Some(head) if at.0 >= head.base => Some(head),
            _ => self.segment(self.segment_of(at)),
        };
        segment.map_or(0, |segment| segment.bytes[segment.within(at.0)])
    }

    fn grave(&self, at: EntryOffset) -> Option<&Segment> {
        let id = self.segment_of(at);
        self.graveyard.iter().find(|segment| segment.id == id)
    }

    /// Segments, those in the graveyard included, at their full size.
    #[must_use]
    pub fn memory_used(&self) -> u64 {
        self.segments_held() * u64::from(self.config.segment_bytes)
    }

    /// Bytes of entries not known dead.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// What the log holds, in numbers for status output.
    #[must_use]
    pub fn stats(&self) -> LogStats {
        LogStats {
            end: self.end,
            segments: self.order.len() + usize::from(self.head.is_some()),
            segments_in_graveyard: self.graveyard.len(),
            segments_pooled: self.pool.len(),
            memory_used: self.memory_used(),
            memory_max: self.config.memory_max_bytes,
            live_bytes: self.live_bytes,
            groups_appended: self.groups_appended,
            segments_freed: self.segments_freed,
        }
    }

    pub(crate) fn segment(&self, id: SegmentId) -> Option<&Segment> {
        match &self.head {
            Some(head) if head.id == id => Some(head),
            _ => self.sealed.get(&id),
        }
    }

    pub(crate) fn segment_mut(&mut self, id: SegmentId) -> Option<&mut Segment> {
        match &mut self.head {
            Some(head) if head.id == id => Some(head),
            _ => self.sealed.get_mut(&id),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    pub(crate) fn segments_held(&self) -> u64 {
        (self.order.len() + self.graveyard.len() + usize::from(self.head.is_some())) as u64
    }

    pub(crate) fn segments_max(&self) -> u64 {
        self.config.memory_max_bytes / u64::from(self.config.segment_bytes)
    }

    /// Bytes of the greatest digest group.
    pub(crate) fn digest_bytes_max(&self) -> u64 {
        let segments = usize::try_from(self.backup_segments_max()).expect("64-bit sizes") + 1;
        u64::from(GROUP_HEADER_BYTES) + entry_bytes(Digest::payload_len(segments, EPOCH_HISTORY_MAX)) as u64
    }

    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.pool.pop().unwrap_or_else(|| self.buffers.take(self.config.segment_bytes as usize))
    }

    /// The head is full: `id` becomes the head. It stays without a group only within one append.
    pub(crate) fn open_segment(&mut self, id: SegmentId, bytes: Vec<u8>) {
        let fresh = Segment::new(id, self.config.segment_bytes, bytes);
        if let Some(full) = self.head.replace(fresh) {
            assert!(full.id < id);
            self.order.push(full.id);
            self.sealed.insert(full.id, full);
        }
    }

    /// Takes a group whose bytes are in place at the head's end: its place in the chain has been checked.
    pub(crate) fn accept(&mut self, group: &crate::format::GroupHeader, own_kinds: bool) {
        let head = self.head.as_mut().expect("a head is open");
        let opens = head.used == 0;
        let nothing_before = opens && self.order.is_empty();
        let (inherited_end, segment) = (self.end.offset, head.id);
        head.count(group, own_kinds);
        self.last = head.last;
        self.end = LogPosition { epoch: group.epoch, offset: group.end() };
        self.live_bytes += u64::from(group.payload_len);
        self.groups_appended += 1;
        if opens {
            let (_, first) = head.entries(group).next().expect("a digest");
            let digest = Digest::parse(first.payload).expect("checked");
            self.history.merge(&digest);
            if nothing_before {
                self.absent.extend(digest.segments().filter(|&id| id != segment));
            }
            self.end_housekeeping_of_previous();
        }
        self.history.note(group.epoch, inherited_end);
        if own_kinds {
            self.accept_own_kinds(group);
        }
    }
}
