//! A follower's state follows its log, a slice a turn; freed segments go once it has.

use kasha_types::probe::{Probe, hit};
use kasha_types::{LogEnd, SegmentId, Work};

use crate::shard::copy::LogCopy;
use crate::shard::site::Site;
use crate::shard::state::ShardState;
use crate::shard::unfinished::STEPS_PER_TURN;

/// Bytes of log that a replica replays in one turn: a long replay must not keep the core from its heartbeats.
const REPLAY_BYTES_PER_TURN: u64 = 2 * 1024 * 1024;
/// Segments that a turn lets go of.
const FREED_PER_TURN: usize = 4;

impl Site<'_> {
    /// Replays a slice of the log into the state. A joiner waits until its copy is complete.
    pub fn replay_slice(&mut self) {
        if self.state.has_unfinished() {
            return self.go_on();
        }
        // A joiner's state is empty, and so is what freeing would take from it.
        if !self.copy.meta.complete || self.copy.is_followed() {
            return self.free_retired(self.copy.known_synced);
        }
        let Self { copy, state, core } = self;
        core.work.add(Work::Replay);
        let mut dead = std::mem::take(&mut core.scratch.dead);
        let mut bytes = 0;
        while bytes < REPLAY_BYTES_PER_TURN {
            let Some(group) = copy.log.next_group(&mut copy.replayed) else {
                copy.replayed.offset = copy.replayed.offset.max(copy.log.end().offset);
                break;
            };
            bytes += group.bytes();
            dead.clear();
            for (at, entry) in group.entries {
                state.replay(&copy.log, at, entry, &mut dead);
            }
            copy.log.kill_all(&mut dead);
            if state.has_unfinished() {
                break;
            }
        }
        core.scratch.dead = dead;
        core.learn_cluster_time(state.cluster_time);
        // An entry that is not synced may be cut off again, and then the segment must still be here.
        self.free_retired(self.copy.replayed.offset.min(self.copy.known_synced));
    }

    /// Whether a follower's state has followed the log to its end.
    pub fn is_replayed(&self) -> bool {
        self.copy.is_followed() && !self.state.has_unfinished()
    }

    /// Goes on with what an entry began.
    pub fn go_on(&mut self) {
        let Self { copy, state, core } = self;
        let done = state.go_on(&mut copy.log, &mut core.scratch.dead, STEPS_PER_TURN);
        done.into_iter().for_each(|work| core.work.add(work));
    }

    /// Lets go of some segments that the log says are freed, once the state has followed the log to where it says so.
    pub fn free_retired(&mut self, up_to: LogEnd) {
        let Self { copy, state, core } = self;
        for _ in 0..FREED_PER_TURN {
            let Some(segment) = next_retired(copy, state, up_to) else { return };
            hit(Probe::SegmentRetired);
            core.work.add(Work::Free);
            // A joiner's state is empty, and it knows nothing of what lives.
            let left = copy.log.live_bytes_in(segment);
            assert!(left == 0 || !copy.meta.complete, "{}: {left} bytes of {segment:?} live", copy.shard);
            copy.log.free(segment);
            state.store.segment_is_gone(segment);
            copy.remove_later(core, segment);
        }
    }
}

/// A segment that can be let go of now.
pub(crate) fn next_retired(copy: &LogCopy, state: &ShardState, up_to: LogEnd) -> Option<SegmentId> {
    copy.log.retired(up_to).filter(|_| !state.is_forgetting())
}
