//! Values whose time is over, at a primary (section 5).
//!
//! **R5.2** A value ends by a delete in the log, appended before the operation that finds the key gone; that operation overlaps
//! with the delete, and waits until both are synced. No read compares clocks, and nothing ends in a replay but what the log says
//! has ended, and what was over when the replayed request was begun (R10.12). So a value that somebody saw gone stays gone, whoever
//! becomes primary, and whatever that one's clock says.
//!
//! What is pending over several shards was told what its keys hold, and what is executed and not settled has seen them, too: whoever
//! finds the key gone must wait for that (R8.4). So a value that a transaction touches ends when the transaction is settled. Until
//! then no further transaction over several shards is let in that touches the value: it would go on for ever under a steady load.

use kasha_distributed::Footprint;
use kasha_log::{Full, Log, MemoryLeft, Purpose};
use kasha_store::{Ending, SpareDraft};
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{ClusterTime, Epoch, LogEnd, TableId, Work, key_hash};

use crate::core::Core;
use crate::serving::Conflicts;
use crate::shard::site::Site;
use crate::shard::state::ShardState;
use crate::shard::term::Term;

/// Values whose time is over that a turn of the walk looks at.
const LOOKED_AT_PER_TURN: usize = 32;
/// Deletes of the walk that are not synced: nobody waits for them, and they must not fill the table of conflicts, in which others
/// would meet them.
const UNSYNCED_MAX: u32 = 256;
/// So many where memory is short: then what ends must be gone as fast as the backups hear of it.
const UNSYNCED_IF_SHORT: u32 = 1024;
/// So many while clients change little: each takes time from them. Measured with a million values that end at once.
const UNSYNCED_FEW: u32 = 96;
/// A delete for so many unsynced bytes: two for a small update, so that values go at least as fast as they come.
const BYTES_PER_DELETE: u64 = 128;
/// Bytes of the keys that are deleted in one group.
const GROUP_KEY_BYTES: usize = 256 * 1024;

/// Deletes the values of these keys whose time is over then. What is pending, and a lack of room, let them live on. Returns how many
/// are gone. `at`: in this epoch, with this much synced.
#[cold]
pub(crate) fn delete_due<'k>(
    log: &mut Log,
    state: &mut ShardState,
    core: &mut Core,
    conflicts: &mut Conflicts,
    at: (Epoch, LogEnd, ClusterTime),
    keys: impl Iterator<Item = (TableId, &'k [u8])>,
) -> Result<u32, Full> {
    let keys: Vec<_> = keys.filter(|(table, key)| may_end(state, *table, key)).collect();
    let (mut rest, mut gone) = (&keys[..], 0);
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |(_, key): &&(TableId, &[u8])| {
            bytes += key.len();
            bytes <= GROUP_KEY_BYTES
        };
        let (group, others) = rest.split_at(rest.iter().take_while(fits).count().max(1));
        gone += delete_group(log, state, core, conflicts, at, group)?;
        rest = others;
    }
    if gone > 0 {
        hit(Probe::ValueExpired);
    }
    Ok(gone)
}

/// Whether no transaction over several shards has touched the key that is not settled.
pub(crate) fn may_end(state: &ShardState, table: TableId, key: &[u8]) -> bool {
    let participant = &state.distributed.participant;
    let touched = || Footprint::new([], [key_hash(table, key)]);
    state.distributed.is_quiet() || (participant.blocked_by(&touched()).is_none() && !participant.is_gated(&touched()))
}

/// An operation found values whose time was over. Without room for their deletes they live on.
pub(crate) fn note_seen(gone: Result<u32, Full>) {
    if matches!(gone, Ok(1..)) {
        hit(Probe::ExpiredValueSeen);
    }
}

fn delete_group(
    log: &mut Log,
    state: &mut ShardState,
    core: &mut Core,
    conflicts: &mut Conflicts,
    (epoch, synced, then): (Epoch, LogEnd, ClusterTime),
    keys: &[(TableId, &[u8])],
) -> Result<u32, Full> {
    let mut draft = state.store.draft_expired(log, keys.iter().copied(), then, SpareDraft::default());
    if draft.is_empty() {
        return Ok(0);
    }
    // Each tombstone is shorter than what it deletes.
    let purpose = match log.has_room_for(draft.bytes(), Purpose::Freeing) {
        true => Purpose::Freeing,
        false => Purpose::Shrinking,
    };
    let (end, ()) = state.commit(log, (epoch, purpose), &mut draft, (), &mut core.scratch.dead)?;
    if !planted::is_on(Bug::ExpiryUngated) {
        draft.changed().for_each(|(key, _)| conflicts.change(key, end, synced));
    }
    Ok(u32::try_from(draft.changed().count()).expect("few"))
}

/// The walk of a primary through the values whose time is over.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    /// Where it goes on.
    after: Option<Ending>,
    /// Deletes since all were synced, and up to where the log must be synced for that.
    unsynced: (u32, LogEnd),
    /// It found nothing more to do then, and synced up to there.
    rests: Option<(ClusterTime, LogEnd)>,
}

impl Expiry {
    /// Whether [`Self::go_on`] has something to do.
    pub fn is_due(&self, state: &ShardState, now: ClusterTime, synced: LogEnd) -> bool {
        state.store.has_due(now) && self.rests != Some((now, synced)) && !planted::is_on(Bug::ExpiryInRead)
    }

    /// How many of its deletes may be unsynced.
    fn unsynced_max(log: &Log, synced: LogEnd) -> u32 {
        if log.memory_left() != MemoryLeft::Enough {
            return UNSYNCED_IF_SHORT;
        }
        let unsynced = log.end().offset.0 - synced.0;
        u32::try_from(unsynced / BYTES_PER_DELETE).unwrap_or(UNSYNCED_MAX).clamp(UNSYNCED_FEW, UNSYNCED_MAX)
    }

    /// Deletes some of the values whose time is over.
    pub fn go_on(&mut self, term: &Term, site: &mut Site<'_>, conflicts: &mut Conflicts) {
        let (now, synced) = (site.core.counted.time(), term.shipping.synced());
        if !self.is_due(site.state, now, synced) {
            return;
        }
        if synced >= self.unsynced.1 {
            self.unsynced.0 = 0;
        }
        if self.unsynced.0 >= Self::unsynced_max(&site.copy.log, synced) {
            self.rests = Some((now, synced));
            return;
        }
        let Site { copy, state, core } = site;
        // The log, which is about to grow, has the keys.
        let (mut bytes, mut looked_at) = (Vec::new(), Vec::new());
        for (ending, table, key) in state.store.due(&copy.log, self.after, now).take(LOOKED_AT_PER_TURN) {
            self.after = Some(ending);
            bytes.extend_from_slice(key);
            looked_at.push((table, bytes.len() - key.len()..bytes.len()));
        }
        let is_last = looked_at.len() < LOOKED_AT_PER_TURN;
        let keys = looked_at.into_iter().map(|(table, key)| (table, &bytes[key]));
        let gone = delete_due(&mut copy.log, state, core, conflicts, (term.epoch, synced, now), keys);
        if is_last || gone.is_err() {
            self.after = None;
            self.rests = Some((now, synced));
        }
        if let Ok(gone @ 1..) = gone {
            self.unsynced = (self.unsynced.0 + gone, copy.log.end().offset);
            core.work.add(Work::Expire);
        }
    }
}
