//! Which epoch's primary wrote which part of a log.
//!
//! An epoch is written by one primary (F2), which took over one log up to one offset. So two logs that both contain a
//! group of epoch `e` are equal up to where one of them stops following `e`'s primary. The history notes, for each
//! epoch, *the end of the log taken over*, not where the epoch's first group lies: that group may open a new segment,
//! and a deposed primary may have written into the room left unused before it.
//!
//! Every digest carries the history, so that holes left by freed segments, and the missing past of a joiner, lose none
//! of it. Caller: replication, which makes diverged replicas equal (section 7, step 2).

use kasha_types::{Epoch, LogEnd, SegmentId};

use crate::format::{GroupHeader, u32_at, u64_at};
use crate::limits::EPOCH_HISTORY_MAX;

const EPOCH_BYTES: usize = 12;
const DIGEST_HEADER_BYTES: usize = 8;

/// The newest epochs of a log, ascending: (epoch, end of the log that its primary took over).
#[derive(Clone, Debug, Default)]
pub(crate) struct EpochHistory(Vec<(Epoch, LogEnd)>);

impl EpochHistory {
    pub(crate) fn as_slice(&self) -> &[(Epoch, LogEnd)] {
        &self.0
    }

    /// The epoch begins in a log that ends at `end`, unless it has begun.
    pub(crate) fn note(&mut self, epoch: Epoch, end: LogEnd) {
        match self.0.last() {
            Some(&(last, _)) if last >= epoch => assert_eq!(last, epoch, "epochs only grow (F2)"),
            _ => {
                if self.0.len() == EPOCH_HISTORY_MAX {
                    self.0.remove(0);
                }
                self.0.push((epoch, end));
            }
        }
    }

    /// Learns what a digest says about epochs whose groups are not here.
    pub(crate) fn merge(&mut self, digest: &Digest<'_>) {
        for (epoch, end) in digest.epochs() {
            if self.0.last().is_none_or(|&(last, _)| last < epoch) {
                self.note(epoch, end);
            }
        }
    }

    /// Forgets epochs that begin at or after `end`.
    pub(crate) fn truncate(&mut self, end: LogEnd) {
        self.0.retain(|&(_, start)| start < end);
    }
}

/// The position up to which two logs of one shard are equal, from their epoch histories and ends. The start when they
/// share no epoch that both still remember: then one must be copied as a whole.
///
/// It is the end of a group in both logs.
#[must_use]
pub fn common_prefix(a: &[(Epoch, LogEnd)], a_end: LogEnd, b: &[(Epoch, LogEnd)], b_end: LogEnd) -> LogEnd {
    let end_after = |history: &[(Epoch, LogEnd)], at: usize, end| history.get(at + 1).map_or(end, |&(_, start)| start);
    for (at, span) in a.iter().enumerate().rev() {
        if let Some(there) = b.iter().position(|other| other == span) {
            return end_after(a, at, a_end).min(end_after(b, there, b_end));
        }
    }
    LogEnd::START
}

/// A digest's payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digest<'a> {
    segments: &'a [u8],
    epochs: &'a [u8],
}

impl<'a> Digest<'a> {
    pub(crate) fn payload_len(segments: usize, epochs: usize) -> usize {
        DIGEST_HEADER_BYTES + segments * 4 + epochs * EPOCH_BYTES
    }

    pub(crate) fn write(
        payload: &mut [u8],
        segments: impl ExactSizeIterator<Item = SegmentId>,
        epochs: impl ExactSizeIterator<Item = (Epoch, LogEnd)>,
    ) {
        payload[..4].copy_from_slice(&u32::try_from(segments.len()).expect("few segments").to_le_bytes());
        payload[4..8].copy_from_slice(&u32::try_from(epochs.len()).expect("few epochs").to_le_bytes());
        let (ids, spans) = payload[DIGEST_HEADER_BYTES..].split_at_mut(segments.len() * 4);
        for (slot, id) in ids.chunks_exact_mut(4).zip(segments) {
            slot.copy_from_slice(&id.0.to_le_bytes());
        }
        for (slot, (epoch, start)) in spans.chunks_exact_mut(EPOCH_BYTES).zip(epochs) {
            slot[..4].copy_from_slice(&epoch.0.to_le_bytes());
            slot[4..].copy_from_slice(&start.0.to_le_bytes());
        }
    }

    pub(crate) fn parse(payload: &'a [u8]) -> Result<Self, &'static str> {
        let (header, lists) = payload.split_at_checked(DIGEST_HEADER_BYTES).ok_or("digest is short")?;
        let (segments, epochs) = (u32_at(header, 0) as usize, u32_at(header, 4) as usize);
        if Self::payload_len(segments, epochs) != payload.len() {
            return Err("length of a digest");
        }
        let (segments, epochs) = lists.split_at(segments * 4);
        Ok(Self { segments, epochs })
    }

    pub(crate) fn segments(&self) -> impl DoubleEndedIterator<Item = SegmentId> + 'a {
        self.segments.chunks_exact(4).map(|id| SegmentId(u32_at(id, 0)))
    }

    pub(crate) fn epochs(&self) -> impl DoubleEndedIterator<Item = (Epoch, LogEnd)> + 'a {
        self.epochs.chunks_exact(EPOCH_BYTES).map(|span| (Epoch(u32_at(span, 0)), LogEnd(u64_at(span, 4))))
    }

    pub(crate) fn check(&self, group: &GroupHeader, own: SegmentId) -> Result<(), &'static str> {
        if !self.segments().is_sorted_by(|a, b| a < b) || self.segments().next_back() != Some(own) {
            return Err("segments of a digest");
        }
        let newest = self.epochs().next_back();
        if !self.epochs().is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1)
            || self.epochs.len() > EPOCH_HISTORY_MAX * EPOCH_BYTES
            || newest.is_none_or(|(epoch, start)| epoch != group.epoch || start.0 > group.offset)
        {
            return Err("epochs of a digest");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn began(epoch: u32, end: u64) -> (Epoch, LogEnd) {
        (Epoch(epoch), LogEnd(end))
    }

    #[test]
    fn room_left_unused_by_a_new_primary_is_not_common() {
        // Both held epoch 1 to 4000. Its primary then wrote a small group there; epoch 2 began in the next segment.
        let (a, b) = ([began(1, 0), began(2, 4000)], [began(1, 0)]);
        assert_eq!(common_prefix(&a, LogEnd(4200), &b, LogEnd(4080)), LogEnd(4000));
        assert_eq!(common_prefix(&b, LogEnd(4080), &a, LogEnd(4200)), LogEnd(4000));
    }

    #[test]
    fn logs_without_a_common_epoch_share_nothing() {
        assert_eq!(common_prefix(&[began(2, 0)], LogEnd(80), &[began(3, 0)], LogEnd(80)), LogEnd::START);
        assert_eq!(common_prefix(&[], LogEnd::START, &[began(3, 0)], LogEnd(80)), LogEnd::START);
    }

    #[test]
    fn the_history_forgets_its_oldest_epochs() {
        let mut history = EpochHistory::default();
        for epoch in 1..=EPOCH_HISTORY_MAX as u32 + 1 {
            history.note(Epoch(epoch), LogEnd(u64::from(epoch) * 8));
        }
        assert_eq!(history.as_slice().len(), EPOCH_HISTORY_MAX);
        assert_eq!(history.as_slice()[..2], [began(2, 16), began(3, 24)]);
    }
}
