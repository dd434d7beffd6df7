//! The bytes of the log entries that the node writes itself. `UPDATE=1 cargo test -p kasha-node golden::` rewrites
//! the file, which is wrong unless the log's format version changes too.

use crate::common::{Core, Files, SHARD, TABLE, configuration};
use kasha_log::{EntryKind, Log, LogConfig};
use kasha_machine::FileName;
use kasha_types::{ConfigVersion, TableId};
use kasha_wire::{ShardPhase, TableInfo, Tablet, Update, message};

const SEGMENT_BYTES: u32 = 1 << 20;

/// The payloads of all entries of a kind.
fn payloads(files: &Files, kind: EntryKind) -> Vec<Vec<u8>> {
    let segments = files.0.iter().filter_map(|(name, bytes)| match name {
        FileName::Segment { segment, .. } => Some((*segment, bytes.clone())),
        _ => None,
    });
    let config = LogConfig { segment_bytes: SEGMENT_BYTES, memory_max_bytes: 1 << 26, reserve_percent: 5 };
    let (log, _) = Log::load(SHARD, config, segments);
    let entries = log.groups().flat_map(|group| group.entries).filter(|(_, entry)| entry.kind == kind);
    entries.map(|(_, entry)| entry.payload.to_vec()).collect()
}

/// A log with every kind that this crate writes: a table is dropped, and a tombstone goes.
fn sample() -> Files {
    let mut core = Core::serving_with(1 << 26);
    let (mut with, without) = (configuration(3, 1, ShardPhase::Serving), configuration(4, 1, ShardPhase::Serving));
    let other = TableId(0x0102_0304);
    with.tables.push(TableInfo { table: other, name: "other".into() });
    with.tablets.push(Tablet { table: other, ..with.tablets[0] });
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: with,
    });
    let put = Update::put(b"k", b"v");
    let body = Core::body_with((1, 1), 1, None, &put, |head| head.table = other);
    core.send(kasha_wire::frame::Kind::Request, &body);
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: without,
    });

    let value = vec![b'x'; 100_000];
    let mut sequence = 1;
    let mut update = |core: &mut Core, update: &Update<'_>| {
        sequence += 1;
        assert!(core.update((1, sequence), sequence, update).is_some());
    };
    let fill_a_segment = |core: &mut Core, update: &mut dyn FnMut(&mut Core, &Update<'_>)| {
        (0..11).for_each(|_| update(core, &Update::put(b"filler", &value)));
    };
    fill_a_segment(&mut core, &mut update);
    (0..3).for_each(|_| update(&mut core, &Update::put(b"gone", b"v")));
    fill_a_segment(&mut core, &mut update);
    update(&mut core, &Update::delete(b"gone"));
    fill_a_segment(&mut core, &mut update);
    for _ in 0..10 {
        core.tick(100);
    }
    assert_eq!(TABLE, TableId(1));
    assert_eq!(core.node.status(core.now).configuration, ConfigVersion(4));
    core.shell.files
}

#[test]
fn entries_of_the_node() {
    let files = sample();
    let mut text = String::new();
    for kind in [EntryKind::TableDropped, EntryKind::VersionFloor] {
        for payload in payloads(&files, kind) {
            let bytes: Vec<_> = payload.iter().map(|byte| format!("{byte:02x}")).collect();
            text += &format!("{kind:?}: {}\n", bytes.join(" "));
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/entries.hex");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap());
}
