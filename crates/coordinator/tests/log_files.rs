//! The files of the journal: every byte changed, a crash at every point, and damage of every kind.
#![allow(missing_docs)]

use std::cell::Cell;
use std::collections::BTreeMap;

use crate::common::*;
use kasha_coordinator::{Command, Coordinator, CoordinatorOptions, StartError, State, Unchosen};
use kasha_machine::{Disk, FileName};
use kasha_types::{BootId, ClientId, ClusterId, ConfigVersion, Tick};
use kasha_wire::message::TableCommand;
use kasha_wire::{Configuration, Level, Levels, Reader, message};
use proptest::prelude::*;

fn start(files: &Files) -> Result<World, StartError> {
    World::try_new(
        options(3, 2, 1),
        MemoryDisk { durable: files.clone(), ..MemoryDisk::default() },
        Tick(9_000_000_000),
    )
}

/// A run with fail-overs and tables in one lap of the journal, and every configuration on the way.
fn busy() -> (World, BTreeMap<ConfigVersion, Configuration>) {
    busy_at(Levels::OURS)
}

fn busy_at(levels: Levels) -> (World, BTreeMap<ConfigVersion, Configuration>) {
    let mut world = World::new(CoordinatorOptions { levels, ..options(3, 2, 1) });
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

/// The bytes of the journal's only lap.
fn only_file(world: &World) -> Vec<u8> {
    let files = &world.disk.durable;
    assert_eq!(files.keys().copied().collect::<Vec<_>>(), [SECOND, FIRST], "there are no others");
    assert!(used(&files[&SECOND]).is_empty(), "no second lap was begun");
    used(&files[&FIRST]).to_vec()
}

#[test]
fn a_file_cut_anywhere_holds_a_prefix() {
    let (world, seen) = busy();
    let bytes = only_file(&world);
    // What a crash leaves is a file that ends there, or zeros.
    for len_after in [0, world.disk.durable[&FIRST].len()] {
        let mut last = ConfigVersion(0);
        for len in 0..=bytes.len() {
            let mut cut = bytes[..len].to_vec();
            cut.resize(len.max(len_after), 0);
            let restarted = start(&Files::from([(FIRST, cut)])).unwrap();
            let config = restarted.config();
            assert!(config.version >= last, "a longer file holds more");
            last = config.version;
            if let Some(known) = seen.get(&config.version) {
                assert_eq!(config, known);
            }
        }
        assert_eq!(last, world.config().version);
    }
}

#[test]
fn damage_in_front_of_good_records_is_refused() {
    let (world, _) = busy();
    let bytes = only_file(&world);
    let whole = world.config().version;
    let (mut refused, mut dropped) = (0, 0);
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x10;
        match start(&Files::from([(FIRST, bytes)])) {
            Ok(restarted) => {
                assert!(restarted.config().version <= whole && restarted.config().shards.len() == 2);
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
    torn_again_and_again(None);
    torn_again_and_again(Some(BootId(1)));
}

fn torn_again_and_again(boot: Option<BootId>) {
    let mut files = Files::new();
    let options = || CoordinatorOptions { boot, ..options(3, 2, 1) };
    let torn = [(0, 1), (0, 30), (1, 100), (1, 0), (2, 20), (2, 60), (1, 60), (2, 400), (0, 30), (2, 200), (0, 0)];
    for (fsyncs, len) in torn {
        let disk = MemoryDisk { durable: files.clone(), ..MemoryDisk::default() };
        let mut world = World::try_with(options(), disk, Tick(0), false).unwrap();
        assert_eq!(world.config().version, ConfigVersion(1));
        (0..fsyncs).for_each(|_| world.fsync());
        assert!(world.sent.is_empty());
        files = world.disk.durable.clone();
        for change in &world.disk.since {
            let Change::Write(name, offset, bytes) = change else { panic!("{change:?}") };
            apply_change(&mut files, &Change::Write(*name, *offset, bytes[..len.min(bytes.len())].to_vec()));
        }
    }
    let disk = MemoryDisk { durable: files, ..MemoryDisk::default() };
    assert_eq!(World::try_new(options(), disk, Tick(0)).unwrap().config().version, ConfigVersion(1));
}

/// Goes through a start, one fsync after the other, and kills it at each point: with nothing of what was written since, with all
/// of it, and with a part. Returns how many fsyncs there were.
fn kill_everywhere(files: &Files, expected: &State) -> usize {
    let disk = MemoryDisk { durable: files.clone(), ..MemoryDisk::default() };
    let mut world = World::try_with(options(3, 2, 1), disk, Tick(9_000_000_000), false).unwrap();
    let mut fsyncs = 0;
    while !world.disk.commits.is_empty() {
        for parts in 0..=8 {
            let mut files = world.disk.durable.clone();
            for change in &world.disk.since {
                match change {
                    Change::Write(name, offset, bytes) => {
                        let part = bytes[..bytes.len() * parts / 8].to_vec();
                        apply_change(&mut files, &Change::Write(*name, *offset, part));
                    }
                    Change::Truncate(..) | Change::Remove(_) => apply_change(&mut files, change),
                }
            }
            let state = start(&files).unwrap_or_else(|error| panic!("after {fsyncs} fsyncs, {parts}/8: {error}"));
            let (found, expected) = (state.coordinator.state(), expected.configuration());
            assert_eq!(found.configuration(), expected, "after {fsyncs} fsyncs, {parts}/8");
        }
        assert!(world.sent.is_empty());
        world.fsync();
        fsyncs += 1;
    }
    fsyncs
}

#[test]
fn a_kill_between_any_two_fsyncs_of_a_start_loses_nothing() {
    let (world, _) = busy();
    let state = world.coordinator.state().clone();
    // A new lap: the log, and a mark in the place of the lap before; then the first commands of the lead, and zeros.
    assert_eq!(kill_everywhere(&world.disk.durable, &state), 4);
    let mut again = start(&world.disk.durable).unwrap();
    again.restart();
    assert_eq!(kill_everywhere(&again.disk.durable, &state), 4);
    // A crash came before the mark.
    again.fast_disk = false;
    again.restart();
    again.fsync();
    let half = again.disk.durable.clone();
    assert!(!used(&half[&FIRST]).is_empty() && !used(&half[&SECOND]).is_empty());
    assert_eq!(kill_everywhere(&half, &state), 6);
    // Before the very first lap there are no zeros, and its header has an fsync of its own.
    let format4 = Files::from([(FileName::Coordinator(2), crate::format4::second().to_vec())]);
    assert_eq!(kill_everywhere(&format4, &stored(&format4).unwrap()), 6);
}

#[test]
fn a_new_lap_replaces_the_old_only_when_it_is_durable() {
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
    world.fast_disk = false;
    let mut laps = 0;
    for _ in 0..400 {
        // The file of the lap before is marked.
        let is_mark = |change: &Change| matches!(change, Change::Write(_, 0, bytes) if bytes == b"KASHAOLD");
        laps += usize::from(world.disk.since.iter().any(is_mark));
        let on_disk = stored(&world.disk.durable).unwrap();
        let versions = world.config().version..=world.decided().version;
        assert!(versions.contains(&on_disk.configuration().version), "what is committed is on the disk");
        change(&mut world);
        world.fsync();
    }
    assert!(laps > 3, "{laps}");
    while !world.disk.commits.is_empty() {
        world.fsync();
    }
    let before = world.coordinator.state().clone();
    assert_eq!(stored(&world.disk.durable), Some(before.clone()));
    world.restart();
    assert!(world.coordinator.state().applied() >= before.applied());
    assert_eq!(world.config(), before.configuration());
}

/// A log whose snapshot alone fills a file does not begin a lap with each command.
#[test]
fn a_log_that_is_longer_than_a_file_still_has_room() {
    let mut small = options(3, 2, 1);
    small.journal_bytes = 64;
    let mut world = World::try_new(small, MemoryDisk::default(), Tick(1_000_000_000)).unwrap();
    (1..=3).for_each(|id| world.add_node(id, 1));
    world.run(2_000);
    let before = world.config().clone();
    assert_eq!(before.shards.len(), 2);
    world.restart();
    assert_eq!(*world.config(), before);
}

#[test]
fn other_clusters_and_versions_are_refused_with_a_text() {
    let (world, _) = busy();
    let files = world.disk.durable.clone();
    let disk = || MemoryDisk { durable: files.clone(), ..MemoryDisk::default() };
    let refused = |options| World::try_new(options, disk(), Tick(0)).err().unwrap();
    let mut other = options(3, 2, 1);
    other.cluster = ClusterId(5);
    assert!(matches!(refused(other), StartError::OtherCluster { stored: ClusterId(77), given: ClusterId(5) }));
    let error = refused(options(3, 3, 1));
    assert_eq!(
        error.to_string(),
        "--shards 3: this cluster was created with shards = 2, which cannot be changed: leave --shards away, or give \
         --shards 2 (K0405)"
    );
    let mut unchosen = options(9, 3, 2);
    unchosen.unchosen =
        Unchosen { nodes: true, shards: true, faults: true, durability: true, min_backups: true, group: true };
    let kept = World::try_new(unchosen, disk(), Tick(0)).expect("nobody chose what the cluster is not");
    assert_eq!((kept.config().faults, kept.config().min_backups, kept.config().shards.len()), (1, 1, 2));
    assert_eq!(kept.config(), world.config(), "it is what it was made");
    let later = rewritten(&files, |stored| stored.snapshot.state[0] = 6);
    let error = start(&later).err().unwrap();
    assert!(matches!(error, StartError::Version { stored: 6, .. }) && error.to_string().contains("K0104"), "{error}");
    let mut changed = options(3, 2, 1);
    changed.min_backups = 0;
    changed.address.set_port(1);
    let world = World::try_new(changed, disk(), Tick(0)).unwrap();
    assert_eq!(
        (world.config().min_backups, world.config().coordinator.port()),
        (1, 1),
        "R9.12: flags seed a new cluster"
    );
}

/// Damaged is not missing (R9.5): neither a new cluster nor an older file takes the journal's place.
#[test]
fn r9_5_a_damaged_journal_is_not_a_missing_one() {
    let (world, _) = busy();
    let later = start(&world.disk.durable).unwrap().disk.durable;
    for lost in [FIRST, SECOND] {
        let mut files = if lost == FIRST { world.disk.durable.clone() } else { later.clone() };
        assert!(files.remove(&lost).is_some_and(|bytes| !used(&bytes).is_empty()));
        assert!(matches!(start(&files).err(), Some(StartError::Damaged { .. })), "{lost:?} is lost");
    }
    for file in [Vec::new(), crate::format4::second().to_vec()] {
        let mut files = world.disk.durable.clone();
        files.insert(FileName::Coordinator(2), file);
        assert_eq!(start(&files).unwrap().config(), world.config(), "an older file that is back counts no more");
        for at in [0, 9, 43, 60, 300] {
            let mut files = files.clone();
            files.get_mut(&FIRST).unwrap()[at] ^= 1;
            let error = start(&files).err().unwrap_or_else(|| panic!("byte {at}"));
            let is_told = error.to_string().contains("coordinator journal file 1 is damaged at byte");
            assert!(is_told && error.to_string().contains("K0109"), "{error}");
        }
    }
}

/// A program that only looks reads the files one after the other, while a coordinator writes them.
#[test]
fn who_looks_while_a_lap_begins_finds_the_log() {
    struct Moving {
        before: Files,
        after: Files,
        reads: Cell<u32>,
    }

    impl Disk for Moving {
        fn list(&self) -> Vec<FileName> {
            vec![SECOND, FIRST]
        }
        fn read(&self, file: FileName) -> std::io::Result<Option<Vec<u8>>> {
            self.reads.set(self.reads.get() + 1);
            let files = if self.reads.get() == 1 { &self.before } else { &self.after };
            Ok(files.get(&file).cloned())
        }
    }

    let (world, _) = busy();
    let (before, state) = (world.disk.durable.clone(), world.coordinator.state().clone());
    let after = start(&before).unwrap().disk.durable;
    let moving = Moving { before, after, reads: Cell::new(0) };
    let found = Coordinator::stored(&moving, ClusterId(77)).unwrap().expect("a log");
    assert_eq!(found.configuration(), state.configuration());
    assert_eq!(moving.reads.get(), 4, "the first look found two files of which none was whole");
}

/// At the first level it is what the releases write that know no other one.
#[test]
fn the_format_is_what_it_was() {
    let (world, _) = busy_at(Levels::new(Level::FIRST, Level::FIRST).unwrap());
    let mut bytes = only_file(&world);
    // The snapshot that a second start writes shows every field of the state.
    let second = start(&world.disk.durable).unwrap();
    bytes.extend_from_slice(used(&second.disk.durable[&SECOND]));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/log-v5.bin");
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
        for name in [FIRST, SECOND] {
            match start(&Files::from([(name, bytes.clone())])) {
                Ok(_) | Err(StartError::Damaged { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}
