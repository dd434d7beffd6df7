//! Which keys a log's entries change, and up to where a log can be synced. Checkers use this to decide whether an
//! answer had to wait. It is read from written bytes and from acknowledgements, by their documented layouts.

use std::collections::BTreeMap;
use std::ops::Range;

use kasha_machine::FileName;
use kasha_types::{Epoch, KeyHash, NodeId, OperationName, ShardId, TableId, key_hash};
use kasha_wire::frame::Kind;
use kasha_wire::message::{Attach, AttachAt};
use kasha_wire::{Appended, ShardConfig, hot};

use crate::checkers::records::word;
use crate::configurations::{Configurations, Cores};
use crate::network::ProcessId;
use crate::world::{Sent, View};

const OBJECT_ENTRY: u8 = 1;
pub(crate) const TOMBSTONE_ENTRY: u8 = 2;
const OPERATION_KEY_ENTRY: u8 = 4;
/// A dropped table: everything after this entry overlaps with it (R5.1).
pub(crate) const TABLE_DROPPED_ENTRY: u8 = 9;
/// A version floor: keys without a value continue above it (R4.8).
pub(crate) const VERSION_FLOOR_ENTRY: u8 = 10;
const OPERATION_KEY_DROPPED_ENTRY: u8 = 11;

/// The key that an entry changes.
pub(crate) fn changed_key(kind: u8, entry: &[u8]) -> Option<KeyHash> {
    let short = |at: usize| Some(u16::from_le_bytes(entry.get(at..at + 2)?.try_into().ok()?));
    let name = |table_at: usize, operation_key, first_key| {
        let table = TableId(u32::from_le_bytes(entry.get(table_at..table_at + 4)?.try_into().ok()?));
        Some(OperationName { table, first_key, operation_key }.hash())
    };
    match kind {
        OBJECT_ENTRY | TOMBSTONE_ENTRY => {
            let table = TableId(u32::from_le_bytes(entry.get(..4)?.try_into().ok()?));
            Some(key_hash(table, entry.get(24..24 + usize::from(short(4)?))?))
        }
        OPERATION_KEY_ENTRY => {
            let (key, first) = (usize::from(*entry.get(3)?), usize::from(short(4)?));
            name(6, entry.get(42..42 + key)?, entry.get(42 + key..42 + key + first)?)
        }
        OPERATION_KEY_DROPPED_ENTRY => {
            let key = usize::from(*entry.get(3)?);
            name(4, entry.get(16..16 + key)?, entry.get(16 + key..)?)
        }
        _ => None,
    }
}

/// The version that an entry gives to its key, and whether the key has a value then.
pub(crate) fn version_in(kind: u8, entry: &[u8]) -> Option<(u64, bool)> {
    let is_versioned = matches!(kind, OBJECT_ENTRY | TOMBSTONE_ENTRY);
    Some((word(entry, 8).filter(|_| is_versioned)?, kind == OBJECT_ENTRY))
}

/// A change of a log.
pub(crate) enum Wrote {
    /// These bytes stand from this position on.
    Bytes { base: u64, bytes: Vec<u8> },
    /// The bytes that stood in these positions are gone, or may be gone.
    Gone(Range<u64>),
}

/// The change of a log that a write, or another change of a file (`len` 0), makes, if the file belongs to a log.
pub(crate) fn wrote(
    by: ProcessId,
    file: FileName,
    (offset, len): (u64, usize),
    segment_bytes: u64,
    view: &View<'_>,
) -> Option<(ShardId, Wrote)> {
    let FileName::Segment { shard, segment } = file else { return None };
    let base = u64::from(segment.0) * segment_bytes;
    let wrote = match view.processes[by.0].disk.cached(file) {
        Some(content) if len > 0 => Wrote::Bytes { base: base + offset, bytes: content.read(offset, len) },
        // The log is cut somewhere in this segment, so all later segments are removed, too.
        Some(_) => Wrote::Gone(base..u64::MAX),
        None => Wrote::Gone(base..base + segment_bytes),
    };
    Some((shard, wrote))
}

/// How far members may hold the logs of shards. Nothing above that can be synced.
#[derive(Debug, Default)]
pub(crate) struct SyncedAtMost {
    configurations: Configurations,
    cores: Cores,
    acked: BTreeMap<(ShardId, Epoch, NodeId), u64>,
}

impl SyncedAtMost {
    pub(crate) fn new(configurations: Configurations, cores: Cores) -> Self {
        Self { configurations, cores, acked: BTreeMap::new() }
    }

    /// A member holds the log up to here, or counts as if it did.
    pub(crate) fn acks(&mut self, shard: ShardId, epoch: Epoch, node: NodeId, end: u64) {
        let acked = self.acked.entry((shard, epoch, node)).or_default();
        *acked = end.max(*acked);
    }

    /// Updates this from a frame.
    pub(crate) fn on_sent(&mut self, sent: &Sent<'_>) {
        if sent.kind == Kind::Appended as u8 {
            if let Ok(Appended { shard, epoch, node, end, .. }) = hot::decode_small(sent.payload) {
                self.acks(shard, epoch, node, end.0);
            }
        } else if let Some(Attach { shard, epoch, start, .. }) = sent.message()
            && let Some(core) = sent.target.and_then(|target| self.cores.core(target))
        {
            // An attached member holds everything before this point, or counts as if it did.
            let (AttachAt::Keep(end) | AttachAt::Join(end)) = start;
            self.acks(shard, epoch, core.node, end.0);
        }
    }

    /// Up to where the log can be synced in a term by now, in the set for which this is highest. It only grows.
    pub(crate) fn of(&self, shard: ShardId, epoch: Epoch) -> u64 {
        let of_set = |config: &ShardConfig| {
            let others = config.members.iter().map(|member| member.node).filter(|&node| node != config.primary);
            let acked = others.map(|node| self.acked.get(&(shard, epoch, node)).copied().unwrap_or_default());
            acked.min().unwrap_or(u64::MAX)
        };
        self.configurations.of_term(shard, epoch).iter().map(|(_, config)| of_set(config)).max().unwrap_or(u64::MAX)
    }

    /// Up to where the log can be synced in any term by now. Synced bytes keep their positions.
    pub(crate) fn in_any_term(&self, shard: ShardId) -> u64 {
        let newest = self.configurations.latest().and_then(|latest| Some(latest.shard(shard)?.epoch));
        let terms = (0..=newest.unwrap_or_default().0).map(Epoch).filter(|&epoch| {
            // If nobody was told of a term, nobody holds anything of it.
            !self.configurations.of_term(shard, epoch).is_empty()
        });
        terms.map(|epoch| self.of(shard, epoch)).max().unwrap_or(u64::MAX)
    }
}
