//! Small logs for tests.
#![allow(dead_code, unreachable_pub)]

use kasha_log::{Appended, EntryKind, EntryOffset, Log, LogConfig, Part, Purpose, entry_bytes};
use kasha_types::{Epoch, LogEnd, SegmentId, ShardId};

pub const SHARD: ShardId = ShardId(7);
pub const SEGMENT: u32 = 4096;

pub fn config(segments: u64) -> LogConfig {
    LogConfig { segment_bytes: SEGMENT, memory_max_bytes: segments * u64::from(SEGMENT), reserve_percent: 5 }
}

pub fn new_log() -> Log {
    Log::new(SHARD, config(64))
}

/// Appends objects with these payloads as one group.
pub fn append(log: &mut Log, epoch: u32, payloads: &[&[u8]]) -> (Appended, Vec<EntryOffset>) {
    let bytes = payloads.iter().map(|payload| entry_bytes(payload.len())).sum();
    let mut group = log.begin(Epoch(epoch), bytes, Purpose::Normal).expect("memory");
    let at = payloads.iter().map(|payload| group.entry_parts(EntryKind::Object, &[Part::Bytes(payload)])).collect();
    (group.commit(), at)
}

/// Groups of an object each until `segments` segments are open; every entry.
pub fn fill(log: &mut Log, epoch: u32, segments: usize) -> Vec<EntryOffset> {
    let mut entries = Vec::new();
    while log.segments().count() < segments {
        let payload = vec![entries.len() as u8 | 1; 300 + entries.len() % 40];
        entries.extend(append(log, epoch, &[&payload]).1);
    }
    entries
}

/// Kills what is live of a segment and logs that it is freed.
pub fn let_go(log: &mut Log, epoch: u32, id: SegmentId, entries: &[EntryOffset]) {
    for &at in entries {
        if log.segment_of(at) == id {
            log.kill(at);
        }
    }
    assert_eq!(log.freeable(log.end().offset), Some(id));
    let mut group = log.begin(Epoch(epoch), entry_bytes(4), Purpose::Freeing).expect("the reserve");
    group.segment_freed(id);
    group.commit();
    assert!(log.retired(log.end().offset).is_some_and(|oldest| oldest <= id));
}

/// The segments as their files hold them.
pub fn files(log: &Log) -> Vec<(SegmentId, Vec<u8>)> {
    log.segments().map(|(id, used)| (id, log.bytes(u64::from(id.0) * u64::from(SEGMENT), used).to_vec())).collect()
}

/// All entries: offset, kind, payload.
pub fn entries(log: &Log) -> Vec<(u64, EntryKind, Vec<u8>)> {
    let groups = log.groups().flat_map(|group| group.entries);
    groups.map(|(at, entry)| (at.0, entry.kind, entry.payload.to_vec())).collect()
}

/// Everything that can be seen of a log.
pub fn snapshot(log: &Log) -> impl PartialEq + std::fmt::Debug {
    (log.stats(), log.epoch_history().to_vec(), log.absent().to_vec(), log.retired(LogEnd::MAX), files(log))
}

/// Makes the checksum of a whole group right again.
pub fn reseal(group: &mut [u8]) {
    let crc = crc32c::crc32c(&group[12..]);
    group[8..12].copy_from_slice(&crc.to_le_bytes());
}
