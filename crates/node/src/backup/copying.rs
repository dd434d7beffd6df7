//! Logs that are copied: older segments to a joiner, and a member's log to a new primary.

use kasha_machine::{Effects, Endpoint, Gate};
use kasha_replication::CLOSING_MARK;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{Epoch, LogEnd, SegmentId, Work};
use kasha_wire::codec::Bytes;
use kasha_wire::message::{CopySegment, LogPiece, SegmentCopied};

use crate::backup::Backup;
use crate::core::Core;
use crate::core::send::send;
use crate::shard::copy::LogCopy;
use crate::shard::copy::receive::{FETCH_FROM_HEAD, install};
use crate::shard::site::Site;

/// Bytes of a log piece that is handed to a new primary: a whole segment, so that a sealed one comes in one piece.
const PIECE_BYTES_MAX: u32 = u32::MAX;

impl Backup {
    /// Part of an older segment, for a joiner.
    pub fn on_copy_segment(&mut self, site: &mut Site<'_>, from: Endpoint, part: &CopySegment, out: &mut Effects) {
        let &CopySegment { epoch, attach, segment, total, .. } = part;
        let Site { copy, core, .. } = site;
        if self.epoch != epoch || total > core.options.segment_bytes {
            return;
        }
        match self.attached {
            Some(attached) if attach < attached => return,
            Some(attached) if attach == attached => {}
            // A new incarnation: attach us again.
            Some(_) | None => return copy.mismatch(core, from, (epoch, attach), out),
        }
        if copy.log.segments().next().is_none() {
            return; // the head's digest, which says what is missing, has not come yet
        }
        let arrived = match total {
            0 => Some(end_of_copy(copy, core, out)),
            // Installed already, or freed: nothing more is wanted of it.
            _ if !copy.log.absent().contains(&segment) => Some((segment, total)),
            _ => self.take_part(copy, core, part, out).map(|arrived| (segment, arrived)),
        };
        if let Some((segment, offset)) = arrived {
            let (shard, node) = (copy.shard, core.id().node);
            let message = SegmentCopied { shard, epoch, node, attach, segment, offset };
            send(from, &message, core.durable_gate_as(shard), out);
        }
    }

    /// How much of the segment has arrived. `None`: there is no room for it now.
    fn take_part(&mut self, copy: &mut LogCopy, core: &mut Core, part: &CopySegment, out: &mut Effects) -> Option<u32> {
        let &CopySegment { segment, total, offset, bytes: Bytes(ref bytes), .. } = part;
        let begun = self.arriving.take().filter(|(id, _)| *id == segment);
        let (_, mut whole) = begun.unwrap_or((segment, Vec::with_capacity(total as usize)));
        if whole.len() == offset as usize && whole.len() + bytes.len() <= total as usize {
            whole.extend_from_slice(bytes);
        }
        let arrived = u32::try_from(whole.len()).unwrap_or(u32::MAX);
        if arrived < total {
            hit(Probe::SegmentInParts);
        } else if install(copy, core, self.epoch, segment, &whole, out) {
            return Some(arrived);
        }
        self.arriving = Some((segment, whole));
        // There may be room for it when the part that completes it comes again.
        (arrived < total).then_some(arrived)
    }
}

/// Nothing older is left to copy, says the primary. What that is answered with.
fn end_of_copy(copy: &mut LogCopy, core: &mut Core, out: &mut Effects) -> (SegmentId, u32) {
    match copy.log.absent().first() {
        Some(&absent) if !planted::is_on(Bug::JoinerElected) => {
            hit(Probe::ClosingMarkTooEarly);
            (absent, 0)
        }
        Some(_) | None => {
            if !copy.meta.complete {
                copy.meta.complete = true;
                copy.save_meta(core, out);
            }
            (CLOSING_MARK, 0)
        }
    }
}

/// A new primary, whose log is shorter, asks for ours.
pub(crate) fn on_fetch_log(copy: &LogCopy, from: Endpoint, epoch: Epoch, at: LogEnd, out: &mut Effects) {
    if epoch != copy.meta.promised {
        return;
    }
    let (log, shard) = (&copy.log, copy.shard);
    // A log that shares nothing with ours is taken from our head on; then it asks for older segments.
    let head = log.segments().map(|(id, _)| id).max().unwrap_or_default();
    let at = if at == FETCH_FROM_HEAD { log.end_before(head) } else { at };
    let piece = log.pieces(at, log.end().offset, PIECE_BYTES_MAX).next();
    let (at, bytes) = piece.map_or((at, Vec::new()), |slice| (slice.start(), log.slice(slice).to_vec()));
    out.note(Work::Copy);
    send(from, &LogPiece { shard, epoch, from: at, bytes: Bytes(bytes) }, Gate::Now, out);
}
