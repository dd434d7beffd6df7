//! The files of format 4: they are read as they were written, the journal takes over all that they hold, and they are
//! removed when it is durable.
#![allow(missing_docs)]

use crate::common::*;
use kasha_coordinator::{Command, StartError};
use kasha_machine::FileName;
use kasha_types::{ClientId, ClusterId, ConfigVersion, NodeId, Tick};
use kasha_wire::message::{self, TableCommand, TableOutcome};
use kasha_wire::{AnyMessage, Wire};
use proptest::prelude::*;

/// A busy coordinator's first file, and the second one, which the next start wrote.
const GOLDEN: &[u8] = include_bytes!("../golden/log-v4.bin");

fn split() -> (&'static [u8], &'static [u8]) {
    GOLDEN.split_at(GOLDEN.windows(8).rposition(|bytes| bytes == b"KASHACRD").unwrap())
}

/// The file with commands.
fn first() -> &'static [u8] {
    split().0
}

/// The file that is a snapshot.
pub fn second() -> &'static [u8] {
    split().1
}

fn files(number: u32, bytes: &[u8]) -> Files {
    Files::from([(FileName::Coordinator(number), bytes.to_vec())])
}

fn start(files: &Files) -> Result<World, StartError> {
    let disk = MemoryDisk { durable: files.clone(), ..MemoryDisk::default() };
    World::try_new(options(3, 2, 1), disk, Tick(9_000_000_000))
}

#[test]
fn a_coordinator_of_format_4_goes_on_as_a_journal_and_keeps_everything() {
    for found in [files(1, first()), files(2, second()), files(2, &[second(), b"torn"].concat())] {
        let before = stored(&found).unwrap();
        let mut world = start(&found).unwrap();
        assert_eq!(world.disk.durable.keys().copied().collect::<Vec<_>>(), [SECOND, FIRST], "the old ones are gone");
        let after = world.coordinator.state().clone();
        assert_eq!(after.configuration(), before.configuration());
        assert!(after.time_reserved() >= before.time_reserved() && after.clients_below() == before.clients_below());
        assert!(after.applied() > before.applied(), "it has reserved time");
        // The answer to a client's last table request is kept, too.
        for id in 1..=3 {
            world.add_node(id, 1);
            world.node(id).starts = 3;
        }
        world.run(1_000);
        let command = TableCommand::Create("orders".into());
        let answers = world.ask(CLIENT, &message::TableRequest { client: ClientId(1), sequence: 1, command });
        let created = before.configuration().table("orders").unwrap();
        let [AnyMessage::TableAnswer(answer)] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!(answer.outcome, TableOutcome::Created(created));
        let state = world.coordinator.state().clone();
        world.restart();
        assert_eq!(world.config(), state.configuration());
    }
}

#[test]
fn the_old_files_go_when_the_journal_is_durable_and_may_come_back() {
    let mut found = files(2, second());
    found.insert(FileName::Coordinator(1), first().to_vec());
    let disk = MemoryDisk { durable: found.clone(), ..MemoryDisk::default() };
    let mut world = World::try_with(options(3, 2, 1), disk, Tick(9_000_000_000), false).unwrap();
    let has_removed = |world: &World| world.disk.since.iter().any(|change| matches!(change, Change::Remove(_)));
    while !has_removed(&world) {
        assert!(found.keys().all(|name| world.disk.durable.contains_key(name)));
        world.fsync();
    }
    assert!(journal(&world.disk.durable).0.is_some(), "the first record is whole");
    world.fast_disk = true;
    world.tick(0);
    (1..=3).for_each(|id| world.add_node(id, 1));
    (1..=3).for_each(|id| world.node(id).starts = 3);
    world.run(1_000);
    let before = world.config().clone();
    assert!(before.version > stored(&found).unwrap().configuration().version);
    // A removal is not fsynced.
    let mut back = world.disk.durable.clone();
    back.extend(found);
    world.restart_from(back);
    assert_eq!(*world.config(), before);
    assert_eq!(world.disk.durable.len(), 2, "they are removed again");
}

#[test]
fn a_file_cut_anywhere_holds_a_prefix() {
    let mut last = ConfigVersion(0);
    for len in 0..=first().len() {
        let config = start(&files(1, &first()[..len])).unwrap().config().clone();
        assert!(config.version >= last, "a longer file holds more");
        last = config.version;
    }
    assert_eq!(last, stored(&files(2, second())).unwrap().configuration().version);
}

#[test]
fn damage_in_front_of_good_records_is_refused() {
    let (mut refused, mut dropped) = (0, 0);
    for at in 0..first().len() {
        let mut bytes = first().to_vec();
        bytes[at] ^= 0x10;
        match start(&files(1, &bytes)) {
            Ok(_) => dropped += 1,
            Err(error @ StartError::Damaged { .. }) => {
                assert!(error.to_string().starts_with("coordinator log file 1 is damaged at byte"), "{error}");
                refused += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(dropped < 200, "only in the last record: {dropped}");
    assert!(refused > 500, "{refused}");
}

#[test]
fn other_clusters_and_versions_are_refused() {
    let mut other = options(3, 2, 1);
    other.cluster = ClusterId(5);
    let disk = MemoryDisk { durable: files(2, second()), ..MemoryDisk::default() };
    let error = World::try_new(other, disk, Tick(0)).err().unwrap();
    assert!(matches!(error, StartError::OtherCluster { .. }), "{error}");
    // They are not removed beside a journal either.
    let mut beside = World::new(options(3, 2, 1)).disk.durable;
    let mut others = second().to_vec();
    others[12] += 1;
    let crc = crc32c::crc32c(&others[..20]);
    others[20..24].copy_from_slice(&crc.to_le_bytes());
    beside.insert(FileName::Coordinator(2), others);
    let error = start(&beside).err().unwrap();
    assert!(matches!(error, StartError::OtherCluster { .. }), "{error}");
    let mut later = first().to_vec();
    later[8] = 3;
    let crc = crc32c::crc32c(&later[..20]);
    later[20..24].copy_from_slice(&crc.to_le_bytes());
    assert!(matches!(start(&files(1, &later)).err(), Some(StartError::Version { stored: 3, .. })));
    let lost = files(7, &[0; 100]);
    assert!(matches!(start(&lost).err(), Some(StartError::Damaged { .. })), "an older file must have been there");
}

#[test]
fn an_impossible_command_under_a_right_checksum_is_refused() {
    let with = |commands: Vec<Command>| {
        let sequence = u64::from_le_bytes(second()[32..40].try_into().unwrap());
        let mut covered = (sequence + 1).to_le_bytes().to_vec();
        commands.put(&mut covered);
        let mut file = second().to_vec();
        file.extend_from_slice(&u32::try_from(covered.len() - 8).unwrap().to_le_bytes());
        file.extend_from_slice(&crc32c::crc32c(&covered).to_le_bytes());
        file.extend_from_slice(&covered);
        start(&files(2, &file))
    };
    assert!(with(vec![Command::NodeLost { node: NodeId(1) }]).is_ok());
    let error = with(vec![Command::NodeLost { node: NodeId(777) }]).err().unwrap();
    assert!(matches!(&error, StartError::Damaged { what, .. } if what.contains("not known")), "{error}");
}

proptest! {
    #[test]
    fn any_bytes_are_a_first_file_that_was_never_whole(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(start(&files(1, &bytes)).is_ok());
    }
}
