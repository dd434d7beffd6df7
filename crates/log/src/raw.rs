//! A backup's appends: whole groups that a primary wrote, checked before anything changes.

use kasha_types::planted::{self, Bug};
use kasha_types::{LogEnd, LogPosition, SegmentId};

use crate::Log;
use crate::format::{GroupHeader, GroupStart};
use crate::segment::Segment;
use crate::verify::{GroupFault, Screen, check_group};

/// Why bytes were not appended. The log is unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AppendError {
    /// The group at this offset of the log is not whole and right.
    Group {
        /// Where it should be.
        at: u64,
        /// What is wrong with the group.
        fault: GroupFault,
    },
    /// The bytes begin behind our end: something is missing in between.
    Gap {
        /// The end of our log, where the next bytes must begin.
        expected: LogEnd,
    },
    /// The bytes begin before our end: sent again, or ours diverged.
    Overlap {
        /// The end of our log.
        end: LogEnd,
    },
    /// The bytes begin at our end and follow another group than ours: ours diverged.
    PredecessorMismatch {
        /// Our last group.
        ours: GroupStart,
    },
    /// The segment was not asked for: see [`Log::absent`].
    NotAbsent,
    /// No memory for another segment, not even a backup's slack.
    Full,
}

/// Whole groups of one segment, one after the other.
struct Run {
    first: GroupHeader,
    last: GroupHeader,
    own_kinds: bool,
}

/// Checks that `bytes` are groups of one segment from `offset` on, each naming the one before it.
fn check_run(bytes: &[u8], offset: u64, segment_bytes: u32, screen: Screen) -> Result<Run, AppendError> {
    let segment_end = (offset / u64::from(segment_bytes) + 1) * u64::from(segment_bytes);
    let mut run: Option<Run> = None;
    let mut at = 0;
    while at < bytes.len() || run.is_none() {
        let place = offset + at as u64;
        let failed = |fault| AppendError::Group { at: place, fault };
        if place >= segment_end {
            return Err(failed(GroupFault::Malformed("groups of two segments")));
        }
        let (header, own_kinds) = check_group(&bytes[at..], place, segment_bytes, screen).map_err(failed)?;
        match &mut run {
            None => run = Some(Run { first: header, last: header, own_kinds }),
            Some(run) => {
                if header.previous != run.last.start() {
                    return Err(failed(GroupFault::Predecessor { names: header.previous }));
                }
                run.last = header;
                run.own_kinds |= own_kinds;
            }
        }
        at += header.len() as usize;
    }
    Ok(run.expect("one group at least"))
}

impl Log {
    /// Appends whole groups of one segment, as a primary wrote them; returns the new end.
    ///
    /// They begin at our end, or at the base of the next segment, and the first names our last group (section 7). A log
    /// made by [`Log::begin_at`] takes any predecessor for its first group.
    ///
    /// # Errors
    /// The log is unchanged.
    pub fn append_raw(&mut self, bytes: &[u8], screen: Screen) -> Result<LogPosition, AppendError> {
        let segment_bytes = self.config.segment_bytes;
        if bytes.len() < crate::GROUP_HEADER_BYTES as usize {
            return Err(AppendError::Group { at: self.end.offset.0, fault: GroupFault::Torn });
        }
        let offset = GroupHeader::read(bytes).offset;
        let next_base = self.head.as_ref().map_or(self.end.offset.0, |head| head.base + u64::from(segment_bytes));
        let opens = offset == next_base;
        if !opens && offset != self.end.offset.0 {
            // An offset that the checksum does not vouch for says nothing.
            check_group(bytes, offset, segment_bytes, Screen::NONE)
                .map_err(|fault| AppendError::Group { at: offset, fault })?;
            return Err(if offset < self.end.offset.0 {
                AppendError::Overlap { end: self.end.offset }
            } else {
                AppendError::Gap { expected: self.end.offset }
            });
        }
        let run = check_run(bytes, offset, segment_bytes, screen)?;
        let follows = run.first.previous == self.last || planted::is_on(Bug::PredecessorUnchecked);
        if !self.is_empty() && !follows {
            return Err(AppendError::PredecessorMismatch { ours: self.last });
        }
        if opens {
            if self.segments_held() >= self.backup_segments_max() {
                return Err(AppendError::Full);
            }
            let buffer = self.buffer();
            self.open_segment(self.segment_at(offset), buffer);
        }
        let head = self.head.as_mut().expect("a head is open");
        let at = head.within(offset);
        head.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.accept_in_place(run.last.end(), run.own_kinds);
        Ok(self.end)
    }

    /// Takes the checked groups whose bytes are in place from the head's end to `until`.
    pub(crate) fn accept_in_place(&mut self, until: LogEnd, own_kinds: bool) {
        loop {
            let head = self.head.as_ref().expect("a head is open");
            if head.end() == until {
                return;
            }
            let group = GroupHeader::read(&head.bytes[head.used as usize..]);
            self.accept(&group, own_kinds);
        }
    }

    /// Puts a whole older segment where a joiner lacks it (see [`Log::absent`]). `bytes` are all that its primary uses
    /// of it.
    ///
    /// # Errors
    /// The log is unchanged.
    pub fn install_segment(&mut self, id: SegmentId, bytes: &[u8], screen: Screen) -> Result<(), AppendError> {
        if !self.absent.contains(&id) {
            return Err(AppendError::NotAbsent);
        }
        if self.segments_held() >= self.backup_segments_max() {
            return Err(AppendError::Full);
        }
        let mut segment = Segment::new(id, self.config.segment_bytes, Vec::new());
        let run = check_run(bytes, segment.base, self.config.segment_bytes, screen)?;
        self.check_neighbours(id, &run)?;

        segment.bytes = self.buffer();
        segment.bytes[..bytes.len()].copy_from_slice(bytes);
        while (segment.used as usize) < bytes.len() {
            let group = GroupHeader::read(&segment.bytes[segment.used as usize..]);
            segment.count(&group, run.own_kinds);
        }
        let place = self.order.partition_point(|&held| held < id);
        self.order.insert(place, id);
        self.absent.retain(|&absent| absent != id);
        self.install_counted(segment);
        Ok(())
    }

    fn check_neighbours(&self, id: SegmentId, run: &Run) -> Result<(), AppendError> {
        let before = id.0.checked_sub(1).and_then(|before| self.segment(SegmentId(before)));
        if let Some(before) = before.filter(|before| before.last != run.first.previous) {
            return Err(AppendError::PredecessorMismatch { ours: before.last });
        }
        let last = run.last.start();
        let after = id.0.checked_add(1).and_then(|after| self.segment(SegmentId(after)));
        match after.filter(|after| after.previous != last) {
            Some(after) => Err(AppendError::PredecessorMismatch { ours: after.previous }),
            None => Ok(()),
        }
    }
}
