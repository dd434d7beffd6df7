//! The files of the log: every byte changed, a crash at every point, and damage of every kind.
#![allow(missing_docs)]

use std::collections::BTreeMap;

use crate::common::*;
use kasha_coordinator::{Command, StartError, State, Unchosen};
use kasha_machine::FileName;
use kasha_types::{ClientId, ClusterId, ConfigVersion, Tick};
use kasha_wire::message::TableCommand;
use kasha_wire::{Configuration, Reader, message};
use proptest::prelude::*;

fn start(files: &Files) -> Result<World, StartError> {
    World::try_new(
        options(3, 2, 1),
        MemoryDisk { durable: files.clone(), ..MemoryDisk::default() },
        Tick(9_000_000_000),
    )
}

/// A run with fail-overs and tables in one file, and every configuration on the way.
fn busy() -> (World, BTreeMap<ConfigVersion, Configuration>) {
    let mut world = World::new(options(3, 2, 1));
    let mut seen = BTreeMap::new();
    (1..=3).for_each(|id| world.add_node(id, 1));
    for round in 0..60 {
        world.run(100);
        match round {
            5 => drop(world.ask(CLIENT, &message::OpenSession { nonce: 1 })),
            10 => world.node(1).up = false,
            30 => world.node(1).up = true,
            40 => world.node(2).starts = 2,
            45 => {
                let command = TableCommand::Create("orders".into());
                world.send(CLIENT, &message::TableRequest { client: ClientId(1), sequence: 1, command });
            }
            _ => {}
        }
        seen.insert(world.config().version, world.config().clone());
    }
    (world, seen)
}

fn only_file(world: &World) -> (FileName, Vec<u8>) {
    assert_eq!(world.disk.durable.len(), 1, "the old files are gone");
    world.disk.durable.iter().map(|(&name, bytes)| (name, bytes.clone())).next().unwrap()
}

#[test]
fn a_file_cut_anywhere_holds_a_prefix() {
    let (world, seen) = busy();
    let (name, bytes) = only_file(&world);
    assert_eq!(name, FileName::Coordinator(1));
    let mut last = ConfigVersion(0);
    for len in 0..=bytes.len() {
        let restarted = start(&Files::from([(name, bytes[..len].to_vec())])).unwrap();
        let config = restarted.config();
        assert!(config.version >= last, "a longer file holds more");
        last = config.version;
        if let Some(known) = seen.get(&config.version) {
            assert_eq!(config, known);
        }
    }
    assert_eq!(last, world.config().version);
}

#[test]
fn damage_in_front_of_good_records_is_refused() {
    let (world, _) = busy();
    let (name, bytes) = only_file(&world);
    let whole = world.config().version;
    let (mut refused, mut dropped) = (0, 0);
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x10;
        match start(&Files::from([(name, bytes)])) {
            Ok(restarted) => {
                assert!(restarted.config().version <= whole);
                dropped += 1;
            }
            Err(StartError::Damaged { .. }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(dropped < 200, "only in the last record: {dropped}");
    assert!(refused > 500, "{refused}");
}

#[test]
fn a_first_start_may_be_torn_again_and_again() {
    let mut files = Files::new();
    for len in [1, 30, 100, 0, 60] {
        let disk = MemoryDisk { durable: files.clone(), ..MemoryDisk::default() };
        let world = World::try_with(options(3, 2, 1), disk, Tick(0), false).unwrap();
        assert_eq!(world.config().version, ConfigVersion(1));
        assert!(world.sent.is_empty());
        for change in &world.disk.since {
            let Change::Write(name, offset, bytes) = change else {
                apply_change(&mut files, change);
                continue;
            };
            apply_change(&mut files, &Change::Write(*name, *offset, bytes[..len.min(bytes.len())].to_vec()));
        }
    }
    assert_eq!(start(&files).unwrap().config().version, ConfigVersion(1));
}

#[test]
fn a_new_file_replaces_the_old_only_when_it_is_durable() {
    let mut world = World::serving(3, 2, 1);
    world.run(200);
    let (client, name) = (ClientId(1), "n".repeat(120));
    world.ask(CLIENT, &message::OpenSession { nonce: 1 });
    let mut sequence = 0;
    let mut change = |world: &mut World| {
        sequence += 1;
        let command =
            if sequence % 2 == 1 { TableCommand::Create(name.clone()) } else { TableCommand::Drop(name.clone()) };
        world.ask(CLIENT, &message::TableRequest { client, sequence, command });
    };
    let (first, second) = (FileName::Coordinator(1), FileName::Coordinator(2));
    while world.disk.durable[&first].len() < 1024 * 1024 - 4096 {
        change(&mut world);
    }
    world.fast_disk = false;
    let writes_second = |change: &Change| matches!(change, Change::Write(file, ..) if *file == second);
    let removes = |world: &World| world.disk.since.iter().any(|change| matches!(change, Change::Remove(_)));
    loop {
        change(&mut world);
        if world.disk.since.iter().any(writes_second) {
            break;
        }
        world.fsync();
    }
    assert!(!removes(&world), "the new file is not durable yet");
    assert_eq!(start(&world.disk.durable).unwrap().config().version, world.config().version);
    assert!(world.config().version < world.decided().version);
    world.fsync();
    assert!(removes(&world));
    world.fast_disk = true;
    change(&mut world);
    assert!(!world.disk.durable.contains_key(&first) && sequence_is_kept(&world));
    // A removal is not fsynced: the old file may be back after a loss of power. The newest one counts.
    world.disk.durable.insert(FileName::Coordinator(1), vec![1, 2, 3]);
    let before = world.config().clone();
    world.restart();
    assert_eq!(*world.config(), before);
}

/// A snapshot holds the effect of the commands before it.
fn sequence_is_kept(world: &World) -> bool {
    let restarted = start(&world.disk.durable).unwrap();
    restarted.config() == world.config()
        && restarted.coordinator.state().applied() >= world.coordinator.state().applied()
}

#[test]
fn other_clusters_and_versions_are_refused_with_a_text() {
    let (world, _) = busy();
    let (name, bytes) = only_file(&world);
    let files = Files::from([(name, bytes.clone())]);
    let disk = || MemoryDisk { durable: files.clone(), ..MemoryDisk::default() };
    let refused = |options| World::try_new(options, disk(), Tick(0)).err().unwrap();
    let mut other = options(3, 2, 1);
    other.cluster = ClusterId(5);
    assert!(matches!(refused(other), StartError::OtherCluster { .. }));
    let error = refused(options(3, 3, 1));
    assert_eq!(
        error.to_string(),
        "--shards 3: this cluster was created with shards = 2, which cannot be changed: leave --shards away, or give \
         --shards 2 (K0405)"
    );
    let mut unchosen = options(9, 3, 2);
    unchosen.unchosen = Unchosen { nodes: true, shards: true, faults: true, durability: true, min_backups: true };
    let kept = World::try_new(unchosen, disk(), Tick(0)).expect("nobody chose what the cluster is not");
    assert_eq!((kept.config().faults, kept.config().min_backups, kept.config().shards.len()), (1, 1, 2));
    assert_eq!(kept.config(), world.config(), "it is what it was made");
    let mut later = bytes;
    later[8] = 5;
    let crc = crc32c::crc32c(&later[..20]);
    later[20..24].copy_from_slice(&crc.to_le_bytes());
    assert!(matches!(start(&Files::from([(name, later)])).err(), Some(StartError::Version { stored: 5, .. })));
    let lost = Files::from([(FileName::Coordinator(7), vec![0; 100])]);
    assert!(matches!(start(&lost).err(), Some(StartError::Damaged { .. })), "an older file must have been there");
    let mut changed = options(3, 2, 1);
    changed.min_backups = 0;
    changed.address.set_port(1);
    let world = World::try_new(changed, disk(), Tick(0)).unwrap();
    assert_eq!((world.config().min_backups, world.config().coordinator.port()), (0, 1));
}

#[test]
fn the_format_is_what_it_was() {
    let (world, _) = busy();
    let (_, mut bytes) = only_file(&world);
    // The snapshot that a second start writes shows every field of the state.
    let second = start(&world.disk.durable).unwrap();
    bytes.extend_from_slice(&second.disk.durable[&FileName::Coordinator(2)]);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/log-v4.bin");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &bytes).unwrap();
    }
    let golden = std::fs::read(path).expect("run once with UPDATE=1");
    assert!(bytes == golden, "the log's format changed: a new FORMAT_VERSION, and UPDATE=1, are needed");
}

proptest! {
    #[test]
    fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Reader::new(&bytes).take::<Command>();
        let _ = Reader::new(&bytes).take::<State>();
        let file = Files::from([(FileName::Coordinator(1), bytes)]);
        prop_assert!(start(&file).is_ok(), "a first file that never was whole");
    }
}
