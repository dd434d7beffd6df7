//! The bytes of objects and tombstones, format 1. `UPDATE=1 cargo test -p kasha-store golden::` rewrites the file,
//! which is wrong unless the format's number changes too.
#![allow(missing_docs)]

use std::fmt::Write;

use kasha_log::{EntryKind, Log, LogConfig, Purpose};
use kasha_store::{Object, SpareDraft, Store, Tombstone, is_sound};
use kasha_types::{ClusterTime, Epoch, SegmentId, ShardId, TableId};
use kasha_wire::Update;
use kasha_wire::operation::Lifetime;

const TABLE: TableId = TableId(0x0102_0304);
const SEGMENT: u32 = 64 * 1024;

fn update(log: &mut Log, store: &mut Store, update: &Update<'_>) {
    let mut dead = Vec::new();
    let mut draft = store.draft(log, (TABLE, ClusterTime(0x0102_0304).into()), update, SpareDraft::default());
    let mut group = log.begin(Epoch(1), draft.bytes(), Purpose::Normal).expect("room");
    store.write(&mut group, &mut draft, &mut dead);
    group.commit();
    dead.into_iter().for_each(|at| log.kill(at));
}

/// Objects of one key in two segments, and its tombstone in a third.
fn sample() -> Log {
    let config = LogConfig { segment_bytes: SEGMENT, memory_max_bytes: 64 << 20, reserve_percent: 5 };
    let (mut log, mut store) = (Log::new(ShardId(3), config), Store::new());
    let filler = vec![b'x'; 40_000];
    let put = |key, value| Update::put(key, value);
    update(&mut log, &mut store, &put(b"key", b"value"));
    update(&mut log, &mut store, &put(b"empty", b""));
    for _ in 0..2 {
        update(&mut log, &mut store, &put(b"filler", &filler));
    }
    update(&mut log, &mut store, &put(b"key", b"later"));
    update(&mut log, &mut store, &put(b"filler", &filler));
    update(&mut log, &mut store, &Update::delete(b"key"));
    update(&mut log, &mut store, &put(b"key", b"again"));
    let lifetime = Lifetime::from_millis(1000).expect("not 0");
    update(&mut log, &mut store, &Update::put_expiring(b"key", lifetime, b"ends"));
    log
}

#[test]
fn entries() {
    let (log, mut text) = (sample(), String::new());
    for (_, entry) in log.groups().flat_map(|group| group.entries) {
        if !matches!(entry.kind, EntryKind::Object | EntryKind::Tombstone) || entry.payload.len() > 100 {
            continue;
        }
        assert!(is_sound(entry.kind, entry.payload));
        write!(text, "{:?}:", entry.kind).unwrap();
        entry.payload.iter().for_each(|byte| write!(text, " {byte:02x}").unwrap());
        text.push('\n');
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/entries.hex");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap());
}

#[test]
fn fields_lie_where_the_documentation_says() {
    let log = sample();
    let entries = || log.groups().flat_map(|group| group.entries).map(|(_, entry)| entry);
    let object = entries().filter_map(|e| Object::decode(e.payload)).find(|o| o.value == b"later").expect("an object");
    assert_eq!((object.table, object.key, object.version, object.oldest), (TABLE, &b"key"[..], 2, SegmentId(0)));
    let tombstone = entries().find(|entry| entry.kind == EntryKind::Tombstone).expect("a tombstone");
    let tombstone = Tombstone::decode(tombstone.payload).expect("sound");
    assert_eq!((tombstone.table, tombstone.key, tombstone.version), (TABLE, &b"key"[..], 3));
    assert_eq!((tombstone.oldest, tombstone.killed), (SegmentId(0), SegmentId(1)));
}
