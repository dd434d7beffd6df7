//! Which segment to clean next.
//!
//! Cleaning copies what lives in a segment to the head of the log; then the segment holds nothing, and is freed as any dead
//! one is. The owners of the kinds say what lives and move their references; this file knows bytes only.
//!
//! The score is RAMCloud's and LFS's, (1 − u) · age / (1 + u): what is gained, by how long it probably stays gained, by what
//! it costs. The age of a segment is how many segments were begun since.
//!
//! **R5.12** Only a sealed segment is cleaned, all of it synced; a group's checksum is verified before an entry of the group
//! is copied, or damage of the memory would leave with a new and valid checksum.

use kasha_types::{EntryOffset, Epoch, LogEnd, SegmentId};

use crate::format::GROUP_HEADER_BYTES;
use crate::segment::Segment;
use crate::verify::check_own_group;
use crate::{Full, Group, Log, Purpose};

/// A segment of which so little is dead is not worth cleaning: one part in so many of a segment.
pub(crate) const WORTH_PART: u32 = 64;
/// Bytes of entries in a group of copies, unless a single entry is larger.
const COPIES_BYTES_MAX: u32 = 16 * 1024;

/// A segment to be cleaned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Victim {
    /// The number of the segment.
    pub segment: SegmentId,
    /// Bytes of live entries in it.
    pub live_bytes: u32,
    /// Bytes of it that the log uses.
    pub used: u32,
}

/// Segments in memory, and why some of them cannot be cleaned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// All segments in memory.
    pub segments: u64,
    /// Nothing lives there, and their freeing is under way.
    pub leaving: u64,
    /// Sealed, and not synced.
    pub unsynced: u64,
    /// Sealed and synced, and too little there is dead.
    pub dense: u64,
}

/// Memory that does not hold what was written: the group that begins at this offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DamagedGroup {
    /// The offset at which the group begins.
    pub at: u64,
}

impl Log {
    /// The segment that is cleaned at the least cost for the most gain. `None`: no sealed and synced segment holds both
    /// live entries and enough that is dead.
    #[must_use]
    pub fn choose_victim(&self, synced: LogEnd) -> Option<Victim> {
        let head = self.head.as_ref()?.id;
        let whole = u64::from(self.config.segment_bytes);
        let score = |segment: &Segment| {
            let (live, age) = (u64::from(segment.live_bytes), u64::from(head.0 - segment.id.0));
            ((whole - live) * age, whole + live)
        };
        let sealed = self.order.iter().map(|id| &self.sealed[id]);
        let candidates = sealed.filter(|segment| segment.end() <= synced && self.is_worth_cleaning(segment));
        let best = candidates.reduce(|best, next| {
            let ((gain, cost), (best_gain, best_cost)) = (score(next), score(best));
            let is_better = u128::from(gain) * u128::from(best_cost) > u128::from(best_gain) * u128::from(cost);
            if is_better { next } else { best }
        });
        best.map(|best| Victim { segment: best.id, live_bytes: best.live_bytes, used: best.used })
    }

    /// Counts segments by what can be done about them.
    #[must_use]
    pub fn census(&self, synced: LogEnd) -> Census {
        let mut census = Census { segments: self.segments_held(), ..Census::default() };
        let graveyard = self.graveyard.len() as u64;
        census.leaving = graveyard;
        for segment in self.order.iter().map(|id| &self.sealed[id]) {
            match segment {
                segment if segment.live_bytes == 0 || segment.retired => census.leaving += 1,
                segment if segment.end() > synced => census.unsynced += 1,
                segment if !self.is_worth_cleaning(segment) => census.dense += 1,
                _ => {}
            }
        }
        census
    }

    /// The group of a sealed segment that follows this position, its checksum verified; `None` at the segment's end.
    ///
    /// # Errors
    /// The memory does not hold what was written there.
    ///
    /// # Panics
    /// If the segment is not here.
    pub fn verified_group(&self, segment: SegmentId, seen: LogEnd) -> Result<Option<Group<'_>>, DamagedGroup> {
        let segment = self.segment(segment).expect("the segment is here");
        if seen == segment.end() {
            return Ok(None);
        }
        let at = seen.0;
        let rest = &segment.bytes[segment.within(at)..segment.used as usize];
        let group = check_own_group(rest, at).ok_or(DamagedGroup { at })?;
        Ok(Some(Group { epoch: group.epoch, start: at, end: group.end(), entries: segment.entries(&group) }))
    }

    /// Whether the entry there is the newest epoch start.
    #[must_use]
    pub fn is_epoch_start(&self, at: EntryOffset) -> bool {
        self.epoch_start == Some(at)
    }

    /// Memory of segments that hold nothing any more, and whose freeing is under way.
    #[must_use]
    pub fn leaving_bytes(&self) -> u64 {
        let leaving = self.dead.len() + self.retired.len() + self.graveyard.len();
        leaving as u64 * u64::from(self.config.segment_bytes)
    }

    /// Flips a bit of the log's memory, as failing memory does. For tests and the simulator.
    ///
    /// # Panics
    /// If the byte is not in the log.
    #[doc(hidden)]
    pub fn flip_bit(&mut self, offset: u64, bit: u8) {
        let segment = self.segment_mut(self.segment_at(offset)).expect("the segment is here");
        let within = segment.within(offset);
        segment.bytes[within] ^= 1 << bit;
    }

    /// Whether memory comes back without a delete: something dead is there to be cleaned away, or on its way out.
    pub(crate) fn can_shrink(&self) -> bool {
        let sealed = self.order.iter().map(|id| &self.sealed[id]);
        self.leaving_bytes() > 0 || sealed.chain(&self.head).any(|segment| self.is_worth_cleaning(segment))
    }

    /// Whether the head would be worth cleaning, were it sealed.
    #[must_use]
    pub fn head_is_worth_cleaning(&self) -> bool {
        self.head.as_ref().is_some_and(|head| self.is_worth_cleaning(head))
    }

    /// Begins the next segment, so that the head can be cleaned: what is dead in a small log may all be there.
    ///
    /// # Errors
    /// If there is no room for another segment.
    pub fn seal_head(&mut self, epoch: Epoch) -> Result<(), Full> {
        self.find_room(0, true, Purpose::Cleaning)?;
        self.roll(epoch);
        Ok(())
    }

    /// Bytes of entries in a group of copies, unless a single entry is larger: small groups fill what room the head has left.
    #[must_use]
    pub fn copies_bytes_max(&self) -> u32 {
        COPIES_BYTES_MAX.min(self.config.segment_bytes / 8)
    }

    /// What copies of so many live bytes take besides: a digest where they begin a segment, and headers. The entry that frees
    /// what was cleaned is a group, too.
    pub(crate) fn copying_overhead(&self, live_bytes: u32) -> u64 {
        // Of two groups of copies that follow each other, the entries of both would not fit into one.
        let groups = 2 * u64::from(live_bytes / self.copies_bytes_max()) + 3;
        self.next_digest_bytes() + groups * u64::from(GROUP_HEADER_BYTES)
    }

    /// A segment that holds nothing but copies is never worth it: else a full log would be copied about for ever, and new data
    /// told to wait for it.
    fn is_worth_cleaning(&self, segment: &Segment) -> bool {
        let least = self.copying_overhead(segment.live_bytes) + u64::from(self.config.segment_bytes / WORTH_PART);
        let gained = u64::from(segment.used - segment.live_bytes);
        segment.live_bytes > 0 && !segment.retired && gained >= least
    }
}
