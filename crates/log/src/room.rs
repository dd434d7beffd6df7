//! How much memory a log may still take, and for what (section 5, R5.16).
//!
//! ```text
//! 0 ───────── new data ─┬─ deletes ─┬─ what shrinks ─┬─ the cleaner ─┬─ what must never fail ─┬─ a take-over ─┐
//!                       │◀ reserve ▶│◀─── a 16th, and two segments ──────────────────────────▶│◀ two segments ▶│
//!                                   └ memory_max_bytes
//! ```
//!
//! Each purpose may also use what stands to its left. A reserve keeps the next purpose alive: deletes work in a log that takes no
//! new data, a delete or an acknowledgement that frees more than it takes still works when others have used up the reserve of
//! deletes, the cleaner works in a log in which deletes have used up their part, or which a recovery filled above its limit,
//! and the entry that frees what was cleaned always finds room. So does what a witness holds: a new primary executes that before
//! anything is synced, and so before the cleaner can give anything back ([`TAKEOVER_SEGMENTS`]). A log that a take-over has filled so
//! far is cleaned there, too: until it is smaller again, everything that stands left of the take-over ends where that ends.
//! The first half of what shrinks is also for small ends that others wait for: they promise room, and leave the rest to those who give it.
//!
//! New data is refused for good when *live* entries leave too little room, whatever the segments hold; as long as cleaning can
//! make room, the refusal is [`Full::Cleaning`] and passes.

use kasha_types::planted::{self, Bug};

use crate::cleaning::WORTH_PART;
use crate::format::{GROUP_HEADER_BYTES, entry_bytes};
use crate::history::Digest;
use crate::limits::{BACKUP_SLACK_PART, TAKEOVER_SEGMENTS};
use crate::{Full, Log, Purpose, limits};

/// How much memory new data finds ([`Log::memory_left`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryLeft {
    /// A fifth of what live entries may take, or more.
    Enough,
    /// Less than a fifth.
    Little,
    /// Less than was refused last, or than a small update needs.
    Nothing,
}

/// A small update.
const SMALL_GROUP_BYTES: u32 = 4096;
/// Live entries may take so much of what new data may take: the rest is what cleaning works with.
const LIVE_PERCENT_MAX: u64 = 92;
/// One part in so many of a segment is left at its end, because the next group did not fit: half of a large one.
const UNUSED_PART: u32 = 16;

impl Log {
    /// How much memory new data finds. What was refused last is remembered: a log that refuses never says anything else.
    #[must_use]
    pub fn memory_left(&self) -> MemoryLeft {
        let wanted = self.refused.max(SMALL_GROUP_BYTES.min(self.config.segment_bytes / 4));
        let is_full = !self.has_memory(wanted, self.rolls(wanted), Purpose::Normal) && !self.can_shrink();
        match self.find_room_for_live(wanted) {
            Err(_) => MemoryLeft::Nothing,
            Ok(()) if is_full => MemoryLeft::Nothing,
            Ok(()) if self.live_bytes >= self.live_bytes_max() / 5 * 4 => MemoryLeft::Little,
            Ok(()) => MemoryLeft::Enough,
        }
    }

    /// Bytes of live entries above which new data is refused: no more than what cleaned segments hold. With more, the reserve
    /// would be used up by what cannot be cleaned away, and no delete would ever find room again.
    #[must_use]
    pub fn live_bytes_max(&self) -> u64 {
        let (capacity, segment) = (self.limit_of(Purpose::Normal), self.config.segment_bytes);
        let unused = u64::from(segment / WORTH_PART) + u64::from(segment / UNUSED_PART);
        let lost = (self.copying_overhead(segment) + unused).min(u64::from(segment));
        (capacity / 100 * LIVE_PERCENT_MAX).min(capacity - capacity * lost / u64::from(segment))
    }

    /// Bytes of segments that new data may fill.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.limit_of(Purpose::Normal)
    }

    /// Bytes that new data can still take before something must be freed.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.capacity_bytes().saturating_sub(self.bytes_taken())
    }

    /// Whether entries of so many bytes find room for a purpose other than new data.
    #[must_use]
    pub fn has_room_for(&self, payload_bytes: usize, purpose: Purpose) -> bool {
        let payload = u32::try_from(payload_bytes.next_multiple_of(8)).unwrap_or(u32::MAX / 2);
        let group = GROUP_HEADER_BYTES + payload;
        self.has_memory(group, self.rolls(group), purpose)
    }

    /// Checks that a group of this size finds room; `rolls`: it begins a segment.
    pub(crate) fn find_room(&mut self, group: u32, rolls: bool, purpose: Purpose) -> Result<(), Full> {
        let found = match purpose {
            Purpose::Normal => self.find_room_for_live(group),
            Purpose::Freeing
            | Purpose::Unblocking
            | Purpose::Shrinking
            | Purpose::Promised
            | Purpose::Cleaning
            | Purpose::Own
            | Purpose::Takeover => Ok(()),
        };
        let found = found.and_then(|()| match self.has_memory(group, rolls, purpose) {
            true => Ok(()),
            false => Err(if self.can_shrink() { Full::Cleaning } else { Full::Memory }),
        });
        if purpose == Purpose::Normal && found == Err(Full::Memory) {
            self.refused = group;
        }
        found
    }

    /// Keeps so many bytes for what was promised, and will be appended as [`Purpose::Promised`].
    pub fn keep_room(&mut self, bytes: u64) {
        self.kept = bytes;
    }

    #[inline(always)]
    fn find_room_for_live(&self, group: u32) -> Result<(), Full> {
        if self.live_bytes + self.kept + u64::from(group) > self.known_live_bytes_max() {
            Err(Full::Memory)
        } else {
            Ok(())
        }
    }

    /// The same as [`Log::live_bytes_max`], computed once for each size of a segment's digest: each update asks.
    fn known_live_bytes_max(&self) -> u64 {
        let digest = self.next_digest_counts();
        if let Some((_, max)) = self.live_max.get().filter(|(known, _)| *known == digest) {
            return max;
        }
        let max = self.live_bytes_max();
        self.live_max.set(Some((digest, max)));
        max
    }

    /// Sealed segments count whole, the head as far as it is used, so that a small log has a reserve too.
    fn bytes_taken(&self) -> u64 {
        let Some(head) = &self.head else { return 0 };
        (self.segments_held() - 1) * u64::from(self.config.segment_bytes) + u64::from(head.used)
    }

    /// Whether a group of this size begins a new segment.
    pub(crate) fn rolls(&self, group: u32) -> bool {
        self.head.as_ref().is_none_or(|head| head.used + group > self.config.segment_bytes)
    }

    /// What new data may not use. Two segments at least: one that fills while the one before it is cleaned.
    fn reserve(&self) -> u64 {
        let (segment, max) = (u64::from(self.config.segment_bytes), self.config.memory_max_bytes);
        (max / 100 * u64::from(self.config.reserve_percent)).max(2 * segment).min(max / 2)
    }

    /// Bytes of segments, the head as far as it is used, that appends of this purpose may fill.
    fn limit_of(&self, purpose: Purpose) -> u64 {
        let (segment, max) = (u64::from(self.config.segment_bytes), self.config.memory_max_bytes);
        match purpose {
            Purpose::Normal if planted::is_on(Bug::ReserveShared) => self.limit_of(Purpose::Cleaning),
            Purpose::Normal => max - self.reserve(),
            Purpose::Freeing => max,
            // Where the limit is no whole number of segments there may be nothing between.
            Purpose::Unblocking => max + self.limit_of(Purpose::Shrinking).saturating_sub(max) / 2,
            Purpose::Shrinking | Purpose::Promised => self.limit_of(Purpose::Cleaning) - segment,
            Purpose::Cleaning => self.segments_max_of(Purpose::Cleaning) * segment - segment / 8,
            Purpose::Own | Purpose::Takeover => self.segments_max_of(purpose) * segment,
        }
    }

    /// What of the kept room an append of this purpose must leave: the cleaner makes room, and what was promised takes it.
    fn kept_from(&self, purpose: Purpose) -> u64 {
        match purpose {
            Purpose::Normal | Purpose::Freeing | Purpose::Unblocking | Purpose::Shrinking => self.kept,
            Purpose::Promised | Purpose::Cleaning | Purpose::Own | Purpose::Takeover => 0,
        }
    }

    fn segments_max_of(&self, purpose: Purpose) -> u64 {
        match purpose {
            Purpose::Normal if planted::is_on(Bug::ReserveShared) => self.segments_max_of(Purpose::Own),
            Purpose::Normal | Purpose::Freeing => self.segments_max(),
            Purpose::Unblocking | Purpose::Shrinking | Purpose::Promised => self.segments_max_of(Purpose::Cleaning) - 1,
            Purpose::Cleaning | Purpose::Own => match self.segments_held() > self.cleaned_segments_max() {
                true => self.segments_max_of(Purpose::Takeover), // a take-over filled it
                false => self.cleaned_segments_max(),
            },
            Purpose::Takeover => self.cleaned_segments_max() + TAKEOVER_SEGMENTS,
        }
    }

    /// Segments of a log that is being cleaned.
    fn cleaned_segments_max(&self) -> u64 {
        self.segments_max() + self.segments_max() / 16 + 2
    }

    /// Segments that a backup takes: see [`BACKUP_SLACK_PART`].
    pub(crate) fn backup_segments_max(&self) -> u64 {
        self.segments_max_of(Purpose::Takeover) + self.segments_max() / BACKUP_SLACK_PART + 1
    }

    /// Segments that a load keeps, those included that nothing needs if their freeing is synced: a new term still finds room
    /// for its first entries.
    pub(crate) fn loaded_segments_max(&self) -> usize {
        usize::try_from(self.cleaned_segments_max() - 1).expect("64-bit sizes")
    }

    fn has_memory(&self, group: u32, rolls: bool, purpose: Purpose) -> bool {
        let segment = u64::from(self.config.segment_bytes);
        let (mut limit, held) = (self.limit_of(purpose), self.segments_held());
        if self.kept > 0 {
            limit = limit.saturating_sub(self.kept_from(purpose));
        }
        if rolls {
            let begun = self.next_digest_bytes() + u64::from(group);
            held < self.segments_max_of(purpose) && begun <= segment && held * segment + begun <= limit
        } else {
            self.bytes_taken() + u64::from(group) <= limit
        }
    }

    pub(crate) fn next_digest_bytes(&self) -> u64 {
        let (segments, epochs) = self.next_digest_counts();
        u64::from(GROUP_HEADER_BYTES) + entry_bytes(Digest::payload_len(segments, epochs)) as u64
    }

    /// Segments and epochs in the digest of the next segment.
    fn next_digest_counts(&self) -> (usize, usize) {
        (self.order.len() + 2, (self.history.as_slice().len() + 1).min(limits::EPOCH_HISTORY_MAX))
    }
}
