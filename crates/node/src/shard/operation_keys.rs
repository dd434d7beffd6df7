//! Operation keys at a primary: what a request's key stands for, and how keys go (section 4).
//!
//! **R4.9** (table, first key, operation key) names one operation; another one under the same name is an error. The name is that of
//! the whole operation at every participant of a transaction over several shards; each keeps its part with a slot of its own keys.
//! **R5.2** Expiry is a logged delete, appended before the operation that observes it, never a look at a clock. Who
//! finds the key gone waits for that entry: whoever drops keys notes its end among the conflicts.

use kasha_exactly_once::{Fingerprint, OperationKeyDropped, OperationKeyRecord};
use kasha_log::{EntryKind, EntryOffset, Full, Log, Purpose};
use kasha_types::{ClusterTime, Epoch, KeyHash, LogEnd, OperationName, ShardId, Slot};
use kasha_wire::Body;

use crate::shard::state::ShardState;

/// Operation keys expired in one turn.
const EXPIRED_KEYS_MAX: usize = 32;
/// No further one is dropped after so many bytes that say so: each holds its first key.
const DROPPED_BYTES_MAX: usize = 8 * 1024;

/// The operation key of a request, and all that is derived from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationKey<'a> {
    pub name: OperationName<'a>,
    pub hash: KeyHash,
    /// With which it is kept at this shard.
    slot: Slot,
    /// Of the operation that came with it.
    pub fingerprint: Fingerprint,
}

impl<'a> OperationKey<'a> {
    /// `shard`: where the request is.
    #[inline]
    pub fn of(body: &Body<'a>, shard: ShardId) -> Option<Self> {
        let name = body.operation_name()?;
        let (hash, fingerprint) = (name.hash(), Fingerprint(body.fingerprint()));
        Some(Self { name, hash, slot: body.slot_of_kept(shard), fingerprint })
    }

    /// What is kept under it once `body`, which it came with, has run.
    pub fn record<'r>(&self, body: &Body<'_>, result: &'r [u8]) -> OperationKeyRecord<'r>
    where
        'a: 'r,
    {
        OperationKeyRecord {
            slot: self.slot,
            name: self.name,
            fingerprint: self.fingerprint,
            expires_at: body.head.not_after,
            rpc: body.head.rpc,
            result,
        }
    }
}

/// The record of an operation key that is held.
pub(crate) fn record_at(log: &Log, at: EntryOffset) -> OperationKeyRecord<'_> {
    OperationKeyRecord::decode(log.entry(at).payload).expect("our own operation key")
}

/// If the key's time is over, logs that and forgets it. `Some`: the end of that entry.
pub(crate) fn drop_if_expired(
    log: &mut Log,
    state: &mut ShardState,
    epoch: Epoch,
    now: ClusterTime,
    key: &OperationKey<'_>,
    dead: &mut Vec<EntryOffset>,
) -> Result<Option<LogEnd>, Full> {
    match state.operation_key_expiry(log, key.hash, &key.name) {
        Some((expiry, at)) if expiry < now => {
            // The record's slot: the request's own first key here may be another one than the record's.
            let dropped = OperationKeyDropped { slot: record_at(log, at).slot, at: now, name: key.name };
            drop_operation_key(log, state, epoch, &dropped, dead).map(Some)
        }
        Some(_) | None => Ok(None),
    }
}

/// Whether [`drop_some_expired`] would drop some.
pub(crate) fn have_expired(state: &ShardState, now: ClusterTime) -> bool {
    let before = ClusterTime(now.0.saturating_sub(1));
    state.operation_keys.next_expired(before, 1).next().is_some()
}

/// Drops some of the keys whose time is over. `Some`: the end of the last entry that says so.
pub(crate) fn drop_some_expired(
    log: &mut Log,
    state: &mut ShardState,
    epoch: Epoch,
    now: ClusterTime,
    dead: &mut Vec<EntryOffset>,
) -> Option<LogEnd> {
    if !have_expired(state, now) {
        return None;
    }
    let (mut end, mut bytes) = (None, 0);
    let expired: Vec<_> = state.operation_keys.next_expired(now, EXPIRED_KEYS_MAX).collect();
    for (_, place) in expired {
        let record = record_at(log, place);
        if record.expires_at >= now {
            continue;
        }
        let OperationName { table, first_key, operation_key } = record.name;
        let (slot, first_key, operation_key) = (record.slot, first_key.to_vec(), operation_key.to_vec());
        let name = OperationName { table, first_key: &first_key, operation_key: &operation_key };
        let dropped = OperationKeyDropped { slot, at: now, name };
        match drop_operation_key(log, state, epoch, &dropped, dead) {
            Ok(dropped) => end = Some(dropped),
            Err(_) => break, // no memory now: a later turn tries again
        }
        bytes += dropped.encoded_len();
        if bytes >= DROPPED_BYTES_MAX {
            break;
        }
    }
    end
}

/// Logs that an operation key has expired, and forgets it. Returns the end of the entry. `dead` is scratch.
fn drop_operation_key(
    log: &mut Log,
    state: &mut ShardState,
    epoch: Epoch,
    dropped: &OperationKeyDropped<'_>,
    dead: &mut Vec<EntryOffset>,
) -> Result<LogEnd, Full> {
    let entry = (EntryKind::OperationKeyDropped, dropped.encoded_len());
    state.commit_own(log, (epoch, Purpose::Own), entry, dead, |payload| dropped.encode_into(payload))
}
