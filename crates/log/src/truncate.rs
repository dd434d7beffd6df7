//! Cutting off a tail that the shard's history does not contain (section 7, step 2).

use kasha_types::{LogEnd, LogPosition, SegmentId};

use crate::{GroupStart, Log};

/// What a truncation removed; the owner makes its files so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Truncated {
    /// The new head and the bytes of it in use; `None` if the log is empty now.
    pub head: Option<(SegmentId, u32)>,
    /// Segments that are gone as a whole, ascending.
    pub removed: Vec<SegmentId>,
}

/// The offset is not where a group of this log ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotABoundary;

impl Log {
    /// Whether [`Log::truncate`] can cut here.
    #[must_use]
    pub fn ends_a_group(&self, end: LogEnd) -> bool {
        let Some(last_byte) = end.last_byte() else { return true };
        self.segment(self.segment_at(last_byte)).is_some_and(|segment| segment.ends_a_group(end))
    }

    /// Cuts the log at the end of a group, or at its start for everything (see [`crate::common_prefix`]).
    ///
    /// If anything is cut, all entries are live again except what the log itself knows dead: the owners rebuild what
    /// they derive from the log. Effects of this turn that name removed bytes can still read them, until
    /// [`Log::bury`].
    ///
    /// # Errors
    /// The log is unchanged.
    pub fn truncate(&mut self, end: LogEnd) -> Result<Truncated, NotABoundary> {
        if end == self.end.offset {
            let head = self.head.as_ref().map(|head| (head.id, head.used));
            return Ok(Truncated { head, removed: Vec::new() });
        }
        let holder = match end.last_byte() {
            None => None,
            Some(last_byte) if end < self.end.offset => {
                let id = self.segment_at(last_byte);
                self.segment(id).filter(|segment| segment.ends_a_group(end)).ok_or(NotABoundary)?;
                Some(id)
            }
            Some(_) => return Err(NotABoundary),
        };
        let kept = holder.map_or(0, |id| self.order.partition_point(|&held| held < id));
        let mut removed = self.order.split_off(kept);
        let mut segments: Vec<_> = removed.iter().filter_map(|id| self.sealed.remove(id)).collect();
        segments.extend(self.head.take());
        removed.clear();
        for segment in segments {
            if Some(segment.id) == holder {
                self.head = Some(segment);
            } else {
                removed.push(segment.id);
                self.graveyard.push(segment);
            }
        }
        self.cut_to(end);
        let head = self.head.as_ref().map(|head| (head.id, head.used));
        Ok(Truncated { head, removed })
    }

    fn cut_to(&mut self, end: LogEnd) {
        if let Some(head) = &mut self.head {
            head.cut(end);
            self.last = head.last;
            self.end = LogPosition { epoch: head.last.epoch, offset: end };
        } else {
            self.last = GroupStart::default();
            self.end = LogPosition::default();
        }
        self.widen_head();
        self.history.truncate(end);
        for (id, _) in self.retired.iter().filter(|(_, said_at)| *said_at > end) {
            if let Some(segment) = self.sealed.get_mut(id) {
                segment.retired = false;
            }
        }
        let sealed = &self.sealed;
        self.retired.retain(|(id, said_at)| *said_at <= end && sealed.contains_key(id));
        self.find_absent();
        self.reset_liveness();
    }
}
