//! What a copy takes from a peer, which may be mistaken or hostile.

use kasha_log::{AppendError, Screen};
use kasha_machine::Effects;
use kasha_types::{Epoch, LogEnd, SegmentId, Work};

use crate::core::Core;
use crate::shard::copy::LogCopy;

/// No log of the smallest segments is longer: an offset beyond is a mistake or an attack.
pub(crate) const LOG_END_MAX: LogEnd = LogEnd(1 << 43);

/// "From the base of your head segment."
pub(crate) const FETCH_FROM_HEAD: LogEnd = LogEnd::MAX;

/// What is taken from a peer that speaks in this epoch.
pub(crate) fn screen(epoch: Epoch) -> Screen {
    Screen { epoch_max: epoch, is_sound: crate::shard::state::is_sound }
}

/// Puts an older segment where it lacks. False: it does not fit.
pub(crate) fn install(
    copy: &mut LogCopy,
    core: &mut Core,
    epoch: Epoch,
    segment: SegmentId,
    bytes: &[u8],
    out: &mut Effects,
) -> bool {
    match copy.log.install_segment(segment, bytes, screen(epoch)) {
        Ok(()) => {
            core.work.add(Work::Copy);
            copy.write_segment(core, segment, u32::try_from(bytes.len()).expect("within a segment"), out);
            true
        }
        Err(
            AppendError::Full // what was freed goes first; the primary sends again
            | AppendError::NotAbsent
            | AppendError::Group { .. }
            | AppendError::Gap { .. }
            | AppendError::Overlap { .. }
            | AppendError::PredecessorMismatch { .. },
        ) => false,
    }
}
