//! Tombstones that the index leads to, and letting go of those that are needed no more.
//!
//! A tombstone is needed while a segment is here, other than its own, that may hold an older entry of its key. Each grave
//! waits for one such segment; when that one goes, the grave looks for the next. So the work is that of what changes, and
//! all of it is done in slices. What needs no segment any more goes once a version floor at or above its version is
//! logged behind it (R4.8, C1).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kasha_log::{EntryOffset, Log};
use kasha_types::{KeyHash, SegmentId};

/// A tombstone that the index leads to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grave {
    pub hash: KeyHash,
    pub version: u64,
    pub oldest: SegmentId,
    pub killed: SegmentId,
}

/// What a grave waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WaitsFor {
    /// The version floor of this number, counted here.
    Floor(u64),
    /// This segment goes.
    Segment(SegmentId),
}

/// A version floor, and where its entry is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Floor {
    pub version: u64,
    pub entry: Option<EntryOffset>,
}

impl Floor {
    /// Whether it takes a tombstone's place. For one that was written after the floor's entry, and may be unsynced, it
    /// does not: who asks for the key must still wait for it (C1).
    fn covers(self, at: EntryOffset, grave: &Grave) -> bool {
        grave.version <= self.version && Some(at) <= self.entry
    }
}

/// All graves of a shard.
#[derive(Debug, Default)]
pub(crate) struct Graves {
    /// By the tombstone's place.
    graves: BTreeMap<EntryOffset, (Grave, WaitsFor)>,
    /// Each grave, by what it waits for.
    waiting: BTreeSet<(WaitsFor, EntryOffset)>,
    /// Segments that are gone, for which graves still wait.
    gone: VecDeque<SegmentId>,
    /// The number of the next version floor.
    next_floor: u64,
    /// No grave that waits for the next floor has a greater version.
    greatest: u64,
}

impl Graves {
    pub fn count(&self) -> u64 {
        self.graves.len() as u64
    }

    pub fn bury(&mut self, log: &Log, at: EntryOffset, grave: Grave) {
        let waits_for = match needed_segment(log, at, &grave) {
            Some(segment) => WaitsFor::Segment(segment),
            None => self.next_floor_for(&grave),
        };
        let old = self.graves.insert(at, (grave, waits_for));
        assert!(old.is_none(), "two tombstones at {at:?}");
        self.waiting.insert((waits_for, at));
    }

    /// The index leads to this entry no more. If the entry is a tombstone, its grave goes.
    #[inline]
    pub fn remove(&mut self, at: EntryOffset) -> Option<Grave> {
        if self.graves.is_empty() {
            return None; // each update that replaces a value asks
        }
        let (grave, waits_for) = self.graves.remove(&at)?;
        assert!(self.waiting.remove(&(waits_for, at)), "the grave at {at:?} waits for {waits_for:?}");
        Some(grave)
    }

    /// A segment has gone from this replica: those that wait for it are to be looked at.
    pub fn segment_is_gone(&mut self, segment: SegmentId) {
        if self.first_of(WaitsFor::Segment(segment)).is_some() {
            self.gone.push_back(segment);
        }
    }

    /// Whether [`Graves::tend`] has something to do.
    pub fn are_to_be_tended(&self) -> bool {
        !self.gone.is_empty() || self.first_of_an_old_floor().is_some()
    }

    /// The version that a floor must cover for those that wait for one. `None` if none does, or some are still to be
    /// looked at.
    pub fn wanted_floor(&self) -> Option<u64> {
        let is_wanted = !self.are_to_be_tended() && self.first_of(WaitsFor::Floor(self.next_floor)).is_some();
        is_wanted.then_some(self.greatest)
    }

    /// There is a new floor.
    pub fn on_floor(&mut self) {
        self.next_floor += 1;
        self.greatest = 0;
    }

    /// Looks at some of those whose segment has gone, or lets some go that a floor covers: at most `most` altogether.
    pub fn tend(&mut self, log: &Log, floor: Floor, most: usize, mut gone: impl FnMut(EntryOffset, &Grave)) {
        for _ in 0..most {
            let Some(at) = self.next_to_tend() else { return };
            let grave = self.remove(at).expect("what waits is a grave");
            if needed_segment(log, at, &grave).is_none() && floor.covers(at, &grave) {
                gone(at, &grave);
            } else {
                self.bury(log, at, grave);
            }
        }
    }

    /// Lets some go of those in a segment that goes itself: at most `most`. Says whether that is all of them.
    pub fn forget(
        &mut self,
        log: &Log,
        segment: SegmentId,
        most: usize,
        mut gone: impl FnMut(EntryOffset, &Grave),
    ) -> bool {
        let its = log.entry_offsets(segment);
        for _ in 0..most {
            let Some((&at, _)) = self.graves.range(its.clone()).next() else { break };
            let grave = self.remove(at).expect("just seen");
            gone(at, &grave);
        }
        self.graves.range(its).next().is_none()
    }

    fn next_to_tend(&mut self) -> Option<EntryOffset> {
        while let Some(&segment) = self.gone.front() {
            let first = self.first_of(WaitsFor::Segment(segment));
            if first.is_some() {
                return first;
            }
            self.gone.pop_front();
        }
        self.first_of_an_old_floor()
    }

    fn first_of(&self, waits_for: WaitsFor) -> Option<EntryOffset> {
        let first = self.waiting.range((waits_for, EntryOffset(0))..).next();
        first.filter(|first| first.0 == waits_for).map(|&(_, at)| at)
    }

    /// One that waits for a floor that is here by now.
    fn first_of_an_old_floor(&self) -> Option<EntryOffset> {
        let first = self.waiting.first();
        first.filter(|first| first.0 < WaitsFor::Floor(self.next_floor)).map(|&(_, at)| at)
    }

    fn next_floor_for(&mut self, grave: &Grave) -> WaitsFor {
        self.greatest = self.greatest.max(grave.version);
        WaitsFor::Floor(self.next_floor)
    }
}

/// A segment for which the tombstone is needed. What its own segment holds comes and goes with the tombstone, so it is not
/// needed for that: else a segment whose keys came and went within it would stay for ever.
fn needed_segment(log: &Log, at: EntryOffset, grave: &Grave) -> Option<SegmentId> {
    let own = log.segment_of(at);
    let mut first = log.first_held(grave.oldest);
    if first == Some(own) {
        first = log.first_held(SegmentId(own.0 + 1));
    }
    first.filter(|&first| first <= grave.killed)
}
