//! Members with damaged files, and members that do not do what the others do.
#![allow(missing_docs)]

use kasha_coordinator::StartError;
use kasha_machine::FileName;

use crate::common::{FIRST, Files, MemoryDisk, SECOND, World, used};
use crate::group::{Group, SIZE, first_identity, process_options};

/// The file of the journal that is in use: the other one is spent.
fn in_use(files: &Files) -> FileName {
    let is_spent = |name: &FileName| files.get(name).is_none_or(|bytes| bytes.starts_with(b"KASHAOLD"));
    if is_spent(&FIRST) { SECOND } else { FIRST }
}

impl Group {
    /// Why a process with these files of a member does not start.
    fn refuses_to_start(&mut self, index: usize, files: Files) -> Option<StartError> {
        let disk = MemoryDisk { durable: files, ..MemoryDisk::default() };
        World::try_new(process_options(index, 70, first_identity(index)), disk, self.now).err()
    }
}

/// Only the leader and one other member have the last commands, and what that one wrote last is damaged: taken for a write that was cut short, they
/// would be forgotten by the next leader.
#[test]
fn r9_5_a_member_whose_last_record_is_damaged_has_no_vote_and_is_no_obstacle() {
    let mut group = Group::serving();
    let client = group.open_session();
    let leader = group.leaders()[0];
    let (damaged, lags) = ((leader + 1) % SIZE, (leader + 2) % SIZE);
    group.isolate(lags);
    (1..=3).for_each(|sequence| group.create_table(client, sequence));
    group.kill(damaged);
    let whole = group.folders.remove(&damaged).unwrap();
    group.kill(leader);
    group.cuts.clear();
    let file = in_use(&whole);
    let end = used(&whole[&file]).len();
    for before_end in 2..60 {
        let mut files = whole.clone();
        files.get_mut(&file).unwrap()[end - before_end] ^= 1;
        let refused = group.refuses_to_start(damaged, files);
        let Some(why @ StartError::Damaged { .. }) = refused else { panic!("{before_end}: {refused:?}") };
        assert!(why.to_string().contains("K0109"));
    }
    group.nobody_leads(10_000);
    let lacked = |group: &mut Group| {
        let now = group.now;
        let coordinator = &group.member(lags).coordinator;
        coordinator.lacks(now, std::time::Duration::from_secs(2)).iter().map(|of| of.node.0).collect::<Vec<_>>()
    };
    let mut others = [leader, damaged].map(|index| index as u16 + 1);
    others.sort_unstable();
    assert_eq!(lacked(&mut group), others);
    // With the one that is whole it goes on, and nothing is lost.
    group.start(leader);
    group.run(5_000);
    let next = group.leaders()[0];
    assert!((1..=3).all(|sequence| group.has_table(next, sequence)) && group.answers(next));
    group.create_table(client, 4);
    // Its folder is restored as it was when its process ended.
    group.folders.insert(damaged, whole);
    group.start(damaged);
    group.run(3_000);
    assert!((1..=4).all(|sequence| group.has_table(damaged, sequence)));
    group.kill(next);
    group.run(5_000);
    let last = group.leaders()[0];
    assert!(group.answers(last), "it has a vote again");
}

/// Its folder is given up, and the node comes back under another number, with a folder that is new.
#[test]
fn a_member_whose_files_are_damaged_for_good_is_replaced() {
    let mut group = Group::serving_of(4);
    let client = group.open_session();
    let leader = group.leaders()[0];
    let damaged = (0..SIZE).find(|index| *index != leader).unwrap();
    group.kill(damaged);
    group.node_is_up(damaged, false);
    group.create_table(client, 1);
    group.run(30_000);
    let members: Vec<u64> = group.member(leader).coordinator.members().into_iter().map(|of| of.0).collect();
    assert!(members.len() == SIZE && members.contains(&4) && !members.contains(&(damaged as u64 + 1)), "{members:?}");
    let other = (0..SIZE).find(|index| ![leader, damaged].contains(index)).unwrap();
    group.kill(other);
    group.run(3_000);
    let client = group.open_session();
    group.create_table(client, 2);
    assert!(group.has_table(3, 1) && group.has_table(3, 2));
}
