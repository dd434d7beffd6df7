//! Which entries are still needed, and letting go of segments that hold none.
//!
//! The owners of the kinds say what is dead ([`Log::kill`]); of its own kinds the log knows it. A segment's way out:
//! all dead, and the deaths synced ([`Log::freeable`]) → the primary logs it ([`crate::GroupWriter::segment_freed`])
//! → the record is synced ([`Log::retired`]) → [`Log::free`] on every replica, with its file → one turn later, when
//! no held effect can name it any more, its memory is used again ([`Log::bury`]).

use kasha_types::{EntryOffset, LogEnd, SegmentId};

use crate::Log;
use crate::format::{EntryKind, GroupHeader, entry_bytes, u32_at};
use crate::segment::{Segment, live_segments};

impl Log {
    /// The entry is needed no more: what replaced or ended it is in the log already. Once per entry.
    ///
    /// # Panics
    /// If its segment is gone, or more died there than was written: then an entry died twice.
    pub fn kill(&mut self, at: EntryOffset) {
        self.mark_dead(self.segment_of(at), |segment| {
            let entry = &segment.bytes[segment.within(at.0)..segment.used as usize];
            debug_assert!(EntryKind::from_u8(entry[0]).is_some(), "no entry begins at {at:?}");
            let bytes = entry_bytes(u32_at(entry, 4) as usize);
            assert!(bytes <= entry.len(), "no entry ends behind {at:?}");
            u32::try_from(bytes).expect("within a segment")
        });
    }

    /// The same for all of these. Leaves the list empty.
    pub fn kill_all(&mut self, dead: &mut Vec<EntryOffset>) {
        for at in dead.drain(..) {
            self.kill(at);
        }
    }

    /// A sealed segment without a live byte, all of which died at or below the synced position, and that the log does
    /// not say to be freed yet. The one longest dead first.
    #[must_use]
    pub fn freeable(&self, synced: LogEnd) -> Option<SegmentId> {
        self.dead.front().filter(|(_, died_at)| *died_at <= synced).map(|&(id, _)| id)
    }

    /// A segment still here that the log, at or below the synced position, says is freed: [`Log::free`] it, and remove
    /// its file.
    #[must_use]
    pub fn retired(&self, synced: LogEnd) -> Option<SegmentId> {
        self.retired.front().filter(|(_, said_at)| *said_at <= synced).map(|&(id, _)| id)
    }

    /// Lets go of a retired segment. Its bytes can be read until [`Log::bury`]; replay no longer sees it.
    ///
    /// # Panics
    /// If the log does not say that it is freed.
    pub fn free(&mut self, id: SegmentId) {
        let segment = self.sealed.remove(&id).expect("a sealed segment");
        assert!(segment.retired, "{id:?} is freed before the log says so");
        self.order.retain(|&held| held != id);
        self.retired.retain(|&(held, _)| held != id);
        self.live_bytes -= u64::from(segment.live_bytes); // a replica that tracks no liveness frees on the log's word
        self.epoch_start = self.epoch_start.filter(|at| self.segment_of(*at) != id);
        self.segments_freed += 1;
        self.graveyard.push(segment);
    }

    /// No effect names what was freed or truncated before the last turn ended: its memory may be used again.
    pub fn bury(&mut self) {
        for segment in self.graveyard.drain(..) {
            if segment.bytes.len() == self.config.segment_bytes as usize {
                self.pool.push(segment.bytes);
            }
        }
        if let Some(head) = &mut self.head {
            head.named = head.used;
        }
    }

    fn mark_dead(&mut self, id: SegmentId, bytes: impl FnOnce(&Segment) -> u32) {
        let is_head = self.head.as_ref().is_some_and(|head| head.id == id);
        let died_at = self.end.offset;
        let segment = self.segment_mut(id).unwrap_or_else(|| panic!("something died in {id:?}, which is gone"));
        let bytes = bytes(segment);
        assert!(segment.live_bytes >= bytes, "an entry of {id:?} died twice");
        segment.live_bytes -= bytes;
        if segment.live_bytes == 0 && !segment.retired && !is_head {
            self.dead.push_back((id, died_at));
        }
        self.live_bytes -= u64::from(bytes);
    }

    /// The head has its digest: what the segment before it said of the log's segments is needed no more.
    pub(crate) fn end_housekeeping_of_previous(&mut self) {
        if let Some(&previous) = self.order.last() {
            self.mark_dead(previous, |segment| segment.housekeeping_bytes);
        }
    }

    pub(crate) fn accept_own_kinds(&mut self, group: &GroupHeader) {
        enum Own {
            Started(EntryOffset),
            Freed(SegmentId),
        }
        let head = self.head.as_ref().expect("a head is open");
        let own = head.entries(group).filter_map(|(at, entry)| match entry.kind {
            EntryKind::EpochStart => Some(Own::Started(at)),
            EntryKind::SegmentFreed => Some(Own::Freed(SegmentId(u32_at(entry.payload, 0)))),
            _ => None,
        });
        for own in own.collect::<Vec<_>>() {
            match own {
                Own::Started(at) => {
                    if let Some(older) = self.epoch_start.replace(at) {
                        self.kill(older);
                    }
                }
                Own::Freed(id) => self.retire(id, group.end()),
            }
        }
    }

    fn retire(&mut self, id: SegmentId, said_at: LogEnd) {
        self.absent.retain(|&absent| absent != id);
        let Some(segment) = self.sealed.get_mut(&id) else { return };
        if !std::mem::replace(&mut segment.retired, true) {
            self.dead.retain(|&(dead, _)| dead != id);
            self.retired.push_back((id, said_at));
        }
    }

    /// A counted segment takes its place behind the head; its key is in `order`.
    pub(crate) fn install_counted(&mut self, mut segment: Segment) {
        let (id, newest) = (segment.id, segment.epoch_start);
        self.live_bytes += u64::from(segment.live_bytes);
        let mut dead = segment.housekeeping_bytes + segment.epoch_start_bytes;
        segment.retired = false;
        self.sealed.insert(id, segment);
        if let Some(at) = newest.filter(|at| self.epoch_start.is_none_or(|known| known < *at)) {
            dead -= u32::try_from(entry_bytes(self.entry(at).payload.len())).expect("within a segment");
            if let Some(older) = self.epoch_start.replace(at) {
                self.kill(older);
            }
        }
        self.mark_dead(id, |_| dead);
    }

    /// After a load or a truncation: what is absent follows from the head alone.
    pub(crate) fn find_absent(&mut self) {
        let live = self.head.as_ref().map_or_else(Vec::new, |head| live_segments(&head.bytes[..head.used as usize]));
        self.absent = live.into_iter().filter(|&id| self.segment(id).is_none()).collect();
    }

    /// Everything is live again except what the log itself knows dead: the owners rebuild what they derive from the log
    /// and say anew what is dead.
    pub fn reset_liveness(&mut self) {
        let newest = self.order.iter().rev().filter_map(|id| self.sealed[id].epoch_start);
        self.epoch_start = self.head.as_ref().and_then(|head| head.epoch_start).or(newest.into_iter().next());
        let kept = self.epoch_start.map(|at| (self.segment_of(at), entry_bytes(self.entry(at).payload.len())));
        let (mut live_bytes, end) = (0, self.end.offset);
        self.dead.clear();
        let sealed = self.order.iter().map(|id| (*id, true));
        let head = self.head.as_ref().map(|head| (head.id, false));
        for (id, is_sealed) in sealed.chain(head).collect::<Vec<_>>() {
            let segment = self.segment_mut(id).expect("listed");
            segment.live_bytes = segment.entry_bytes - segment.epoch_start_bytes;
            if is_sealed {
                segment.live_bytes -= segment.housekeeping_bytes;
            }
            if let Some((_, bytes)) = kept.filter(|(holder, _)| *holder == id) {
                segment.live_bytes += u32::try_from(bytes).expect("within a segment");
            }
            live_bytes += u64::from(segment.live_bytes);
            if is_sealed && segment.live_bytes == 0 && !segment.retired {
                self.dead.push_back((id, end));
            }
        }
        self.live_bytes = live_bytes;
    }
}
