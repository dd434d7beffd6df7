//! Values whose time is over, at a primary (section 5).
//!
//! **R5.2** A value ends by a delete in the log, appended before the operation that finds the key gone; that operation overlaps
//! with the delete, and waits until both are synced. No read compares clocks, and nothing ends in a replay that the log does
//! not say has ended. So a value that somebody saw gone stays gone, whoever becomes primary, and whatever that one's clock says.
//!
//! What is pending over several shards was told what its keys hold: a value that it touches ends when it is done.

use kasha_log::{Log, Purpose};
use kasha_store::{Ending, SpareDraft};
use kasha_transaction::Footprint;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{ClusterTime, Epoch, LogEnd, TableId, Work, key_hash};

use crate::core::Core;
use crate::primary::Term;
use crate::replica::Site;
use crate::serving::Conflicts;
use crate::state::ShardState;

/// Values whose time is over that a turn looks at.
const LOOKED_AT_PER_TURN: usize = 32;
/// Nobody waits for the deletes, so nothing else keeps them from running ahead of the backups.
const UNSYNCED_BYTES_MAX: u64 = 1 << 20;

/// Deletes those of these keys whose time is over, in one group. What is pending, and a lack of room, let them live on. Says
/// whether some are gone.
#[cold]
pub(crate) fn delete_due<'k>(
    log: &mut Log,
    state: &mut ShardState,
    core: &mut Core,
    conflicts: &mut Conflicts,
    (epoch, synced): (Epoch, LogEnd),
    keys: impl Iterator<Item = (TableId, &'k [u8])>,
) -> bool {
    let participant = &state.transactions.participant;
    let is_free = |&(table, key): &(TableId, &[u8])| {
        participant.blocked_by(&Footprint::new([], [key_hash(table, key)])).is_none()
    };
    let spare = SpareDraft::default();
    let mut draft = state.store.draft_expired(log, keys.filter(is_free), core.cluster_time, spare);
    if draft.is_empty() {
        return false;
    }
    // Each tombstone is shorter than what it deletes.
    let purpose = match log.has_room_for(draft.bytes(), Purpose::Freeing) {
        true => Purpose::Freeing,
        false => Purpose::Shrinking,
    };
    let Ok(mut group) = log.begin(epoch, draft.bytes(), purpose) else { return false };
    let dead = &mut core.scratch.dead;
    dead.clear();
    state.store.write(&mut group, &mut draft, dead);
    let end = group.commit().end.offset;
    log.kill_all(dead);
    hit(Probe::ValueExpired);
    if !planted::is_on(Bug::ExpiryUngated) {
        draft.changed().for_each(|(key, _)| conflicts.change(key, end, synced));
    }
    true
}

/// The walk of a primary through the values whose time is over.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    /// Where it goes on.
    after: Option<Ending>,
    /// It found nothing more to do then, and synced up to there.
    rests: Option<(ClusterTime, LogEnd)>,
}

impl Expiry {
    /// Whether [`Self::go_on`] has something to do.
    pub fn is_due(&self, state: &ShardState, now: ClusterTime, synced: LogEnd) -> bool {
        state.store.has_due(now) && self.rests != Some((now, synced)) && !planted::is_on(Bug::ExpiryInRead)
    }

    /// Deletes some of the values whose time is over.
    pub fn go_on(&mut self, term: &Term, site: &mut Site<'_>, conflicts: &mut Conflicts) {
        let (now, synced) = (site.core.cluster_time, term.shipping.synced());
        if !self.is_due(site.state, now, synced) {
            return;
        }
        let Site { copy, state, core } = site;
        let unsynced = copy.log.end().offset.0.saturating_sub(synced.0);
        // The log, which is about to grow, has the keys.
        let (mut bytes, mut looked_at) = (Vec::new(), Vec::new());
        if unsynced < UNSYNCED_BYTES_MAX {
            for (ending, table, key) in state.store.due(&copy.log, self.after, now).take(LOOKED_AT_PER_TURN) {
                self.after = Some(ending);
                bytes.extend_from_slice(key);
                looked_at.push((table, bytes.len() - key.len()..bytes.len()));
            }
        }
        if looked_at.len() < LOOKED_AT_PER_TURN {
            self.after = None;
            self.rests = Some((now, synced));
        }
        let keys = looked_at.into_iter().map(|(table, key)| (table, &bytes[key]));
        if delete_due(&mut copy.log, state, core, conflicts, (term.epoch, synced), keys) {
            core.work.add(Work::Expire);
        }
    }
}
