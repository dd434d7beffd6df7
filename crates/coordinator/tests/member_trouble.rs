//! Members with damaged files, and members that do not do what the others do.
#![allow(missing_docs)]

use kasha_coordinator::StartError;
use kasha_machine::FileName;
use kasha_wire::message::{TableCommand, TableRequest};

use crate::common::{FIRST, Files, MemoryDisk, SECOND, World, rewritten, used};
use crate::group::{Group, SIZE, STRANGER, first_identity, process_options};

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

    /// Why a member takes no part any more.
    fn trouble(&mut self, index: usize) -> Option<String> {
        self.member(index).coordinator.trouble().map(ToString::to_string)
    }

    /// The files of a member that is down say that its state has become another one by the same commands.
    fn falsify(&mut self, index: usize) {
        let files = self.folders.remove(&index).unwrap();
        let digest = 4; // behind the number of the format
        self.folders.insert(index, rewritten(&files, |stored| stored.snapshot.state[digest] ^= 1));
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

#[test]
fn r9_11_a_member_that_refuses_a_command_takes_no_part_and_the_others_go_on() {
    let mut group = Group::serving();
    let client = group.open_session();
    let leader = group.leaders()[0];
    let (refuses, other) = ((leader + 1) % SIZE, (leader + 2) % SIZE);
    group.garbled.insert(refuses);
    group.create_table(client, 1);
    group.run(3_000);
    let why = group.trouble(refuses).expect("it has refused the command");
    assert!(why.contains("cannot apply"), "{why}");
    assert!(group.leaders() == [leader] && group.has_table(other, 1) && !group.has_table(refuses, 1));
    assert!(!group.answers(refuses));
    // It has no vote.
    group.kill(other);
    group.run(4_000);
    group.nobody_leads(6_000);
    // The files have nothing of what it refused: its next process may do as the others do.
    group.garbled.clear();
    group.kill(refuses);
    group.start(refuses);
    group.run(4_000);
    let next = group.leaders()[0];
    assert!(group.answers(next) && group.has_table(next, 1) && group.has_table(refuses, 1));
    assert_eq!(group.trouble(refuses), None);
}

/// Its node goes on.
#[test]
fn r9_11_a_member_that_takes_no_part_is_replaced() {
    let mut group = Group::serving_of(4);
    let client = group.open_session();
    let leader = group.leaders()[0];
    let refuses = (0..SIZE).find(|index| *index != leader).unwrap();
    group.garbled.insert(refuses);
    group.create_table(client, 1);
    group.run(30_000);
    assert!(group.trouble(refuses).is_some() && group.config(leader).nodes.iter().all(|info| info.alive));
    let members: Vec<u64> = group.member(leader).coordinator.members().into_iter().map(|of| of.0).collect();
    assert!(members.len() == SIZE && members.contains(&4) && !members.contains(&(refuses as u64 + 1)), "{members:?}");
}

/// A program that is alone with what it permits leads no more, and nobody hears of the command.
#[test]
fn r9_11_a_leader_whose_command_both_others_refuse_gives_up_and_tells_nobody() {
    let mut group = Group::serving();
    let client = group.open_session();
    let leader = group.leaders()[0];
    let others: Vec<usize> = (0..SIZE).filter(|index| *index != leader).collect();
    group.garbled.extend(&others);
    group.answers.clear();
    let (now, told) = (group.now, group.told.len());
    let command = TableCommand::Create("table-1".into());
    group.member(leader).send_at(now, STRANGER, &TableRequest { client, sequence: 1, command });
    group.settle();
    group.run(4_000);
    assert!(others.iter().all(|index| group.trouble(*index).is_some()) && group.trouble(leader).is_none());
    group.nobody_leads(20_000);
    assert!(group.answers.is_empty() && group.told.len() == told, "{:?}", group.answers);
    group.garbled.clear();
    for index in others {
        group.kill(index);
        group.start(index);
    }
    group.run(6_000);
    let client = group.open_session();
    group.create_table(client, 1);
    group.run(500);
    assert!((0..SIZE).all(|index| group.has_table(index, 1) && group.trouble(index).is_none()));
}

#[test]
fn r9_11_a_member_whose_state_differs_takes_no_part_and_the_others_go_on() {
    let mut group = Group::serving();
    let client = group.open_session();
    let leader = group.leaders()[0];
    let (differs, other) = ((leader + 1) % SIZE, (leader + 2) % SIZE);
    group.kill(differs);
    group.falsify(differs);
    group.start(differs);
    group.run(3_000);
    let why = group.trouble(differs).expect("a majority says otherwise");
    assert!(why.contains("is not that of the others"), "{why}");
    assert_eq!(group.leaders(), [leader]);
    group.create_table(client, 1);
    assert!(!group.has_table(differs, 1) && !group.answers(differs));
    group.kill(leader);
    group.run(4_000);
    group.nobody_leads(6_000);
    group.start(leader);
    group.run(4_000);
    let next = group.leaders()[0];
    assert!(group.has_table(leader, 1) && group.has_table(other, 1) && group.answers(next));
}

/// Of two nobody knows which one differs. The third one tells, and whoever differs stops, also if it leads.
#[test]
fn r9_11_which_of_two_members_differs_is_known_when_the_third_one_comes() {
    let mut led = [0, 0];
    for differs in 0..SIZE {
        for beside in (0..SIZE).filter(|index| *index != differs) {
            let mut group = Group::serving();
            (0..SIZE).for_each(|index| group.kill(index));
            group.falsify(differs);
            [differs, beside].into_iter().for_each(|index| group.start(index));
            group.run(8_000);
            assert!([differs, beside].iter().all(|index| group.trouble(*index).is_none()));
            let [leader] = group.leaders()[..] else { panic!("{:?}", group.leaders()) };
            led[usize::from(leader == differs)] += 1;
            let third = (0..SIZE).find(|index| ![differs, beside].contains(index)).unwrap();
            group.start(third);
            group.run(6_000);
            assert!(group.trouble(differs).is_some());
            let next = group.leaders()[0];
            assert!(next != differs && group.answers(next));
        }
    }
    assert!(led[0] > 0 && led[1] > 0, "{led:?}");
}
