//! The cleaner: copies what lives in a segment to the head of the log, so that the segment can be freed (RAMCloud; RIFL report IV-D).
//!
//! ```text
//! little is free ─▶ a segment is chosen ─▶ its groups are walked, some a turn: what lives is copied to the head
//!        ▲                                                     │
//!        └─ freed, on every member ◀─ logged ◀─ synced ◀─ nothing lives there any more
//! ```
//!
//! Only a serving primary cleans; its followers see entries and the freeing of segments, as ever.
//!
//! Pacing is by debt: what is appended obliges the cleaner to gain as much again, so that what is free stays what it was. A turn
//! walks no more than it can in about a tenth of a millisecond, and an idle core goes on until enough is free.
//!
//! **R5.12** What is copied is synced, and its checksum verified. **R5.16** A pass uses less than it gains: a segment is
//! worth it or is left alone; copies that are not synced yet take one segment at most.

use kasha_log::{DamagedGroup, EntryOffset, GroupWriter, Log, Purpose, Victim};
use kasha_store::LookUp;
use kasha_types::probe::{Probe, hit};
use kasha_types::{Epoch, LogEnd, SegmentId};
use kasha_wire::status::CleanerState;

use crate::serving::relocation::Moving;
use crate::shard::commit::Entries;
use crate::shard::state::ShardState;

/// Entries that one turn looks at.
const LOOKED_AT_MAX: u32 = 512;
/// Bytes of entries that one turn copies, unless a single one is larger.
const COPIED_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a segment that an idle turn walks.
const IDLE_BYTES: u64 = 16 * 1024;
/// What is free when the cleaner rests, in segments, and as one part of the memory in so many.
const FREE_SEGMENTS: u64 = 2;
const FREE_PART: u64 = 64;

/// What the cleaner has done in this term, for status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cleaned {
    /// Bytes of entries that were copied.
    pub copied_bytes: u64,
    /// Segments that were walked to their ends.
    pub segments: u64,
}

/// What the cleaner is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// Enough is free.
    Rests,
    /// It copies what lives in this segment.
    Cleans(SegmentId),
    /// What was copied, or the freeing of a segment, is not synced yet.
    WaitsForSync,
    /// A floor waits for its sync, or a table is being dropped (R5.11).
    WaitsForFloor,
    /// No segment has enough that is dead.
    FindsNothing,
    /// Copies find no memory.
    FindsNoRoom,
}

/// Walking through a segment.
#[derive(Clone, Copy, Debug)]
struct Walk {
    victim: Victim,
    /// The next group.
    at: LogEnd,
}

/// A serving primary's cleaner.
#[derive(Debug)]
pub(crate) struct Cleaner {
    walk: Option<Walk>,
    /// The end of the log when the cleaner last looked.
    seen: LogEnd,
    /// The end of what was copied last.
    copied_until: LogEnd,
    doing: Doing,
    pub cleaned: Cleaned,
    /// What this turn copies, and where to: memory that is used again.
    batch: Vec<Moving>,
    places: Vec<EntryOffset>,
    look_ups: Vec<LookUp>,
}

impl Cleaner {
    pub fn new(end: LogEnd) -> Self {
        Self {
            walk: None,
            seen: end,
            copied_until: LogEnd::START,
            doing: Doing::Rests,
            cleaned: Cleaned::default(),
            batch: Vec::new(),
            places: Vec::new(),
            look_ups: Vec::new(),
        }
    }

    /// Whether it goes on although nothing else happens.
    pub fn is_busy(&self) -> bool {
        matches!(self.doing, Doing::Cleans(_))
    }

    /// What the cleaner is at, for status.
    pub fn state(&self) -> CleanerState {
        match self.doing {
            Doing::Rests => CleanerState::Rests,
            Doing::Cleans(_) => CleanerState::Cleans,
            Doing::WaitsForSync => CleanerState::WaitsForSync,
            Doing::WaitsForFloor => CleanerState::WaitsForFloor,
            Doing::FindsNothing => CleanerState::FindsNothing,
            Doing::FindsNoRoom => CleanerState::FindsNoRoom,
        }
    }

    /// Nothing may be copied in this turn.
    pub fn wait_for_floor(&mut self) {
        self.doing = Doing::WaitsForFloor;
    }

    /// One turn's part. `synced`: up to where every member holds the log.
    pub fn clean(
        &mut self,
        log: &mut Log,
        state: &mut ShardState,
        epoch: Epoch,
        synced: LogEnd,
    ) -> Result<(), DamagedGroup> {
        let end = log.end().offset;
        let appended = end.bytes_since(std::mem::replace(&mut self.seen, end));
        self.doing = self.look(log, synced);
        // In a small log what is dead may all be in the head.
        if self.doing == Doing::FindsNothing && log.head_is_worth_cleaning() && log.seal_head(epoch).is_ok() {
            self.doing = Doing::WaitsForSync;
            self.copied_until = log.end().offset;
        }
        let Doing::Cleans(_) = self.doing else { return Ok(()) };
        let mut walk = self.walk.expect("what is cleaned is being walked");
        let mut bytes = owed(&walk.victim, appended, log);
        let mut looked_at = 0;
        while bytes > 0 && looked_at < LOOKED_AT_MAX {
            let begun = walk.at;
            let is_through = !self.collect(log, state, &mut walk, bytes, &mut looked_at)?;
            if !self.copy(log, state, epoch) {
                self.doing = Doing::FindsNoRoom;
                break; // the walk stays where it was
            }
            self.walk = Some(walk);
            bytes = bytes.saturating_sub(walk.at.bytes_since(begun));
            if is_through {
                self.end_walk(log, walk.victim.segment);
                break;
            }
        }
        self.seen = log.end().offset;
        Ok(())
    }

    /// What is to be done now; chooses the next segment.
    fn look(&mut self, log: &Log, synced: LogEnd) -> Doing {
        if log.free_bytes() + log.leaving_bytes() >= free_wanted(log) {
            return Doing::Rests;
        }
        // Copies that nobody can sync must not fill the memory.
        if self.copied_until.bytes_since(synced) > u64::from(log.segment_bytes()) / 2 {
            return Doing::WaitsForSync;
        }
        // What is walked through may have died meanwhile.
        self.walk = self.walk.filter(|walk| log.live_bytes_in(walk.victim.segment) > 0);
        if self.walk.is_none() {
            self.walk = log.choose_victim(synced).map(|victim| Walk { victim, at: log.end_before(victim.segment) });
        }
        match &self.walk {
            Some(walk) => Doing::Cleans(walk.victim.segment),
            None if log.leaving_bytes() > 0 => Doing::WaitsForSync,
            None => Doing::FindsNothing,
        }
    }

    /// Goes through groups and notes what lives in them. False: the segment ends here.
    fn collect(
        &mut self,
        log: &Log,
        state: &ShardState,
        walk: &mut Walk,
        bytes: u64,
        looked_at: &mut u32,
    ) -> Result<bool, DamagedGroup> {
        let begun = walk.at;
        let held = log.segments().next().map_or(SegmentId(0), |(oldest, _)| oldest);
        let mut copied = 0;
        while walk.at.bytes_since(begun) < bytes && *looked_at < LOOKED_AT_MAX && copied < COPIED_BYTES_MAX {
            let Some(group) = log.verified_group(walk.victim.segment, walk.at)? else { return Ok(false) };
            let known = self.batch.len();
            state.collect_movable(log, &group.entries, held, &mut self.look_ups, &mut self.batch);
            copied += self.batch[known..].iter().map(Moving::bytes).sum::<usize>();
            *looked_at += group.entries.count() as u32;
            walk.at = group.end;
        }
        Ok(true)
    }

    /// Copies what was collected. False: there is no room.
    fn copy(&mut self, log: &mut Log, state: &mut ShardState, epoch: Epoch) -> bool {
        let mut batch = std::mem::take(&mut self.batch);
        let group_bytes_max = log.copies_bytes_max() as usize;
        let mut rest = &batch[..];
        while !rest.is_empty() {
            let mut sum = 0;
            let fits = |moving: &&Moving| {
                sum += moving.bytes();
                sum <= group_bytes_max
            };
            let (part, left) = rest.split_at(rest.iter().take_while(fits).count().max(1));
            if !self.copy_group(log, state, epoch, part) {
                break;
            }
            rest = left;
        }
        let is_done = rest.is_empty();
        batch.clear();
        self.batch = batch;
        is_done
    }

    fn copy_group(&mut self, log: &mut Log, state: &mut ShardState, epoch: Epoch, part: &[Moving]) -> bool {
        let copies = Copies { part, places: &mut self.places };
        let bytes = copies.bytes(&[]);
        let committed = state.commit_entries(log, (epoch, Purpose::Cleaning), copies, &mut Vec::new());
        let Ok((end, ())) = committed else { return false };
        self.copied_until = end;
        self.cleaned.copied_bytes += bytes as u64;
        hit(Probe::EntriesCopied);
        true
    }

    fn end_walk(&mut self, log: &mut Log, segment: SegmentId) {
        self.walk = None;
        self.cleaned.segments += 1;
        hit(Probe::SegmentCleaned);
        assert_eq!(
            log.live_bytes_in(segment),
            0,
            "{segment:?} was cleaned, and something lives there that nobody owns"
        );
    }
}

/// Entries that are copied, as they are.
struct Copies<'c> {
    part: &'c [Moving],
    places: &'c mut Vec<EntryOffset>,
}

impl Entries for Copies<'_> {
    type Places = ();
    type Done = ();

    fn bytes(&self, _: &[u8]) -> usize {
        self.part.iter().map(Moving::bytes).sum()
    }

    fn write(&mut self, group: &mut GroupWriter<'_>, _: &[u8]) {
        self.places.clear();
        self.places.extend(self.part.iter().map(|moving| moving.write(group)));
    }

    fn apply(self, state: &mut ShardState, log: &mut Log, (): (), _: LogEnd, _: &mut Vec<EntryOffset>) {
        for (moving, &to) in self.part.iter().zip(&*self.places) {
            state.moved(log, moving, to);
        }
    }
}

/// What shall be free.
fn free_wanted(log: &Log) -> u64 {
    let (segment, capacity) = (u64::from(log.segment_bytes()), log.capacity_bytes());
    (FREE_SEGMENTS * segment).max(capacity / FREE_PART).min(capacity / 4)
}

/// How many bytes of a segment are to be walked for what was appended.
fn owed(victim: &Victim, appended: u64, log: &Log) -> u64 {
    let (used, gained) = (u64::from(victim.used), u64::from(victim.used - victim.live_bytes).max(1));
    let (wanted, free) = (free_wanted(log), log.free_bytes() + log.leaving_bytes());
    // The nearer the end, the faster.
    let haste = 1 + 3 * (wanted - free.min(wanted)) / wanted.max(1);
    (appended * used / gained * haste).max(IDLE_BYTES)
}
