//! A follower's state follows its log, a slice a turn; freed segments go once it has.

use kasha_log::EntryOffset;
use kasha_types::Work;
use kasha_types::probe::{Probe, hit};

use crate::replica::Site;

/// Bytes of log that a replica replays in one turn: a long replay must not keep the core from its heartbeats.
const REPLAY_BYTES_PER_TURN: u64 = 2 * 1024 * 1024;

impl Site<'_> {
    /// Replays a slice of the log into the state. A joiner waits until its copy is complete.
    pub fn replay_slice(&mut self) {
        // A joiner's state is empty, and so is what freeing would take from it.
        if !self.copy.meta.complete || self.copy.is_replayed() {
            return self.free_retired(self.copy.known_synced);
        }
        let Self { copy, state, core } = self;
        core.work.add(Work::Replay);
        let mut dead = std::mem::take(&mut core.scratch.dead);
        let mut entries: Vec<EntryOffset> = Vec::new();
        let mut bytes = 0;
        while bytes < REPLAY_BYTES_PER_TURN {
            let Some(group) = copy.log.next_group(&mut copy.replayed) else {
                copy.replayed.offset = copy.replayed.offset.max(copy.log.end().offset);
                break;
            };
            bytes += group.end - group.start;
            entries.clear();
            entries.extend(group.entries.map(|(at, _)| at));
            for &at in &entries {
                dead.clear();
                state.replay(&copy.log, at, &mut dead);
                for &at in &dead {
                    copy.log.kill(at);
                }
            }
        }
        core.scratch.dead = dead;
        core.learn_cluster_time(state.cluster_time);
        // An entry that is not synced may be cut off again, and then the segment must still be here.
        self.free_retired(self.copy.replayed.offset.min(self.copy.known_synced));
    }

    /// Lets go of segments that the log says are freed, once the state has followed the log to where it says so.
    pub fn free_retired(&mut self, up_to: u64) {
        let Self { copy, state, core } = self;
        while let Some(segment) = copy.log.retired(up_to) {
            hit(Probe::SegmentRetired);
            core.work.add(Work::Free);
            state.forget_segment(&copy.log, segment);
            copy.log.free(segment);
            copy.remove_later(core, segment);
        }
    }
}
