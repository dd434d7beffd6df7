//! The bytes of format version 3, and that older ones are refused. `UPDATE=1 cargo test -p kasha-log golden::` rewrites the file, which is wrong
//! unless the version changes too.

use std::fmt::Write;

use crate::common::{SEGMENT, config, files, let_go};
use kasha_log::{DamageKind, EntryKind, GROUP_HEADER_BYTES, GroupFault, Log, Part, Purpose, entry_bytes};
use kasha_types::{Epoch, SegmentId, ShardId};

fn sample() -> Log {
    let mut log = Log::new(ShardId(1), config(8));
    let mut group = log.begin(Epoch(3), 1024, Purpose::Normal).unwrap();
    let (_, payload) = group.entry(EntryKind::EpochStart, 4);
    payload.copy_from_slice(&3_u32.to_le_bytes());
    group.entry_parts(EntryKind::Object, &[Part::Bytes(b"key"), Part::Bytes(b"value")]);
    group.entry_parts(EntryKind::Completion, &[Part::Bytes(b"result")]);
    group.commit();
    for kind in 1..=u8::MAX {
        let Some(kind) = EntryKind::from_u8(kind) else { continue };
        if matches!(kind, EntryKind::Digest | EntryKind::SegmentFreed | EntryKind::EpochStart) {
            continue;
        }
        let mut group = log.begin(Epoch(3), 32, Purpose::Normal).unwrap();
        group.entry_parts(kind, &[Part::Bytes(format!("{kind:?}").as_bytes())]);
        group.commit();
    }
    let mut group = log.begin(Epoch(3), 512, Purpose::Normal).unwrap();
    group.entry(EntryKind::Object, 500).1.fill(b'x');
    group.commit();
    let too_big_for_the_rest = log.group_payload_max();
    let mut group = log.begin(Epoch(4), too_big_for_the_rest, Purpose::Normal).unwrap();
    group.entry_parts(EntryKind::Tombstone, &[Part::Bytes(b"gone")]);
    group.commit();
    let mut entries: Vec<_> = log.groups().flat_map(|group| group.entries).collect();
    entries.retain(|(_, entry)| !matches!(entry.kind, EntryKind::Digest | EntryKind::EpochStart));
    let entries: Vec<_> = entries.into_iter().map(|(at, _)| at).collect();
    let mut group = log.begin(Epoch(4), entry_bytes(0), Purpose::Normal).unwrap();
    group.entry(EntryKind::EpochStart, 0);
    group.commit();
    let moved = entries[0];
    let payload = log.entry(moved).payload.to_vec();
    let mut group = log.begin(Epoch(4), entry_bytes(payload.len()), Purpose::Cleaning).unwrap();
    group.entry_parts(EntryKind::Object, &[Part::Bytes(&payload)]);
    group.commit();
    let_go(&mut log, 4, SegmentId(0), &entries);
    log
}

fn lines(files: Vec<(SegmentId, Vec<u8>)>) -> String {
    let mut text = String::new();
    for (id, bytes) in files {
        for (line, bytes) in bytes.chunks(8).enumerate() {
            write!(text, "{:08x} ", u64::from(id.0) * u64::from(SEGMENT) + line as u64 * 8).unwrap();
            bytes.iter().for_each(|byte| write!(text, " {byte:02x}").unwrap());
            text.push('\n');
        }
    }
    text
}

#[test]
fn version_4() {
    let text = lines(files(&sample()));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/version_4.hex");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap());
}

/// Their operation keys meant something else, and so did the bodies in them.
#[test]
fn older_versions_are_refused() {
    for version in [1, 2] {
        let mut written = files(&sample());
        written.iter_mut().for_each(|(_, bytes)| bytes[2] = version);
        let (log, report) = Log::load(ShardId(1), config(8), written.into_iter());
        assert_eq!(log.groups().count(), 0, "nothing of it is read");
        assert_eq!(report.damage.unwrap().kind, DamageKind::Group(GroupFault::Version(version.into())));
    }
}

#[test]
fn fields_lie_where_the_documentation_says() {
    let log = sample();
    let group = log.groups().nth(1).unwrap();
    let digest_end = group.start;
    let bytes = log.bytes(group.start, group.bytes() as u32);
    assert_eq!(bytes[0..4], [0x47, 0x4B, 4, 0]);
    assert_eq!(bytes[4..8], (bytes.len() as u32 - GROUP_HEADER_BYTES).to_le_bytes());
    assert_eq!(bytes[8..12], crc32c::crc32c(&bytes[12..]).to_le_bytes());
    assert_eq!(bytes[12..16], 3_u32.to_le_bytes());
    assert_eq!(bytes[16..24], digest_end.to_le_bytes());
    assert_eq!(bytes[24..28], 3_u32.to_le_bytes());
    assert_eq!(bytes[28..32], 3_u32.to_le_bytes(), "the digest's epoch");
    assert_eq!(bytes[32..48], [0; 16], "the digest begins the log");
    assert_eq!(bytes[48..64], [6, 0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[64..80], *b"\x01\0\0\0\x08\0\0\0keyvalue");
    assert_eq!(bytes[80..96], *b"\x03\0\0\0\x06\0\0\0result\0\0");
}

#[test]
fn numbers_of_kinds() {
    let known: Vec<_> = (0..=u8::MAX).filter_map(EntryKind::from_u8).map(|kind| format!("{kind:?}")).collect();
    let names = "Object Tombstone Completion OperationKey ExpiryFloor EpochStart Digest SegmentFreed TableDropped \
                 VersionFloor OperationKeyDropped Whole TableFlushed DistributedProposed DistributedEnded TimestampCeiling \
                 DistributedForgotten Gate";
    assert_eq!(known.join(" "), names);
    assert_eq!((EntryKind::Object as u8, EntryKind::Whole as u8, EntryKind::Gate as u8), (1, 12, 36));
}
