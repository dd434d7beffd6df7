//! All members end at once: with one that never comes back, and in the middle of their writes.
#![allow(missing_docs)]

use kasha_coordinator::CoordinatorOptions;
use kasha_machine::Rng;
use kasha_types::{BootId, ClientId};
use kasha_wire::AnyMessage;
use kasha_wire::message::{TableCommand, TableRequest};

use crate::common::{Change, Files, MemoryDisk, World, apply_change};
use crate::group::{Group, SIZE, STRANGER, first_identity, process_options};

/// How the processes end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// They are killed: what they have written is there, the last write perhaps in part.
    Kill,
    /// Their machines lose power: of what was not fsynced any pages are there.
    PowerLoss,
}

const PAGE: usize = 512;

impl World {
    /// What the files hold if its process ends now.
    fn files_after(&self, end: End, rng: &mut Rng) -> Files {
        let mut files = self.disk.durable.clone();
        let len = |change: &Change| if let Change::Write(_, _, bytes) = change { bytes.len() } else { 0 };
        let mut left = rng.below(self.disk.since.iter().map(len).sum::<usize>() as u64 + 1) as usize;
        for change in &self.disk.since {
            let Change::Write(file, offset, bytes) = change else { panic!("{change:?}") };
            match end {
                End::Kill => {
                    let part = bytes[..bytes.len().min(left)].to_vec();
                    left -= part.len();
                    apply_change(&mut files, &Change::Write(*file, *offset, part));
                }
                End::PowerLoss => {
                    let mut at = 0;
                    while at < bytes.len() {
                        let until = bytes.len().min(at + PAGE - (*offset as usize + at) % PAGE);
                        if rng.chance(1, 2) {
                            let page = bytes[at..until].to_vec();
                            apply_change(&mut files, &Change::Write(*file, *offset + at as u64, page));
                        }
                        at = until;
                    }
                }
            }
        }
        files
    }
}

impl Group {
    /// All members end at once.
    fn all_end(&mut self, end: End, rng: &mut Rng) {
        for index in 0..SIZE {
            let world = self.members[index].take().unwrap();
            self.folders.insert(index, world.files_after(end, rng));
        }
    }

    /// All members start at once, in this boot of their machines.
    fn all_start(&mut self, starts: u32, boot: u128, fast_disk: bool) {
        for index in 0..SIZE {
            let disk = MemoryDisk { durable: self.folders.remove(&index).unwrap(), ..MemoryDisk::default() };
            let boot = Some(BootId(boot * 10 + index as u128));
            let options = CoordinatorOptions { boot, ..process_options(index, starts, first_identity(index)) };
            let world = World::try_with(options, disk, self.now, fast_disk);
            self.members[index] = Some(world.unwrap_or_else(|refused| panic!("start {starts} of {index}: {refused}")));
        }
    }

    /// Some writes of some members become durable.
    fn some_writes_are_done(&mut self, rng: &mut Rng) {
        for _ in 0..rng.below(6) {
            let index = rng.below(SIZE as u64) as usize;
            if !self.member(index).disk.commits.is_empty() {
                self.member(index).fsync();
                self.member(index).deliver();
            }
            self.run(10);
        }
    }

    /// Until somebody leads, and the others have followed.
    fn run_until_led(&mut self) {
        for _ in 0..100 {
            self.run(100);
            if !self.leaders().is_empty() {
                return self.run(600);
            }
        }
        panic!("nobody leads");
    }

    /// Asks the leader for a table, and waits for no answer.
    fn wants_table(&mut self, client: ClientId, sequence: u64) {
        let Some(&leader) = self.leaders().first() else { return };
        let (now, command) = (self.now, TableCommand::Create(format!("table-{sequence}")));
        self.member(leader).send_at(now, STRANGER, &TableRequest { client, sequence, command });
        self.settle();
    }
}

#[test]
fn r9_5_all_members_are_killed_in_the_middle_of_their_writes_and_nothing_that_was_told_is_lost() {
    (1..=4).for_each(|seed| end_again_and_again(End::Kill, seed));
}

#[test]
fn r9_5_all_members_lose_power_in_the_middle_of_their_writes_and_nothing_that_was_told_is_lost() {
    (1..=4).for_each(|seed| end_again_and_again(End::PowerLoss, seed));
}

fn end_again_and_again(end: End, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut group = Group::serving();
    let (mut told, mut starts, mut boot) = (Vec::new(), 1, 1000);
    for round in 0..20 {
        let client = group.open_session();
        let (first, second) = (2 * round + 1, 2 * round + 2);
        group.create_table(client, first);
        told.push(first);
        group.members.iter_mut().flatten().for_each(|world| world.fast_disk = false);
        group.answers.clear();
        group.wants_table(client, second);
        group.some_writes_are_done(&mut rng);
        group.run(rng.below(4) * 100);
        let is_answer = |(_, answer): &(usize, AnyMessage)| matches!(answer, AnyMessage::TableAnswer(answer) if answer.sequence == second);
        told.extend(group.answers.iter().any(is_answer).then_some(second));
        // They end again while they begin new files.
        for _ in 0..rng.below(3) {
            group.all_end(end, &mut rng);
            (starts, boot) = (starts + 1, boot + u128::from(end == End::PowerLoss));
            group.all_start(starts, boot, false);
            group.some_writes_are_done(&mut rng);
        }
        group.all_end(end, &mut rng);
        (starts, boot) = (starts + 1, boot + u128::from(end == End::PowerLoss));
        group.all_start(starts, boot, true);
        group.run_until_led();
        let [leader] = group.leaders()[..] else { panic!("{:?}", group.leaders()) };
        assert!((0..SIZE).all(|index| group.member(index).coordinator.trouble().is_none()));
        assert!(told.iter().all(|table| group.has_table(leader, *table)), "round {round}: {told:?}");
        assert!((0..SIZE).all(|index| group.config(index).tables == group.config(leader).tables));
    }
}

#[test]
fn all_members_restart_at_once_with_one_away_for_good() {
    for away in 0..SIZE {
        let mut group = Group::serving_of(4);
        let client = group.open_session();
        group.create_table(client, 1);
        (0..SIZE).for_each(|index| group.kill(index));
        group.folders.remove(&away);
        group.node_is_up(away, false);
        let others: Vec<usize> = (0..SIZE).filter(|index| *index != away).collect();
        others.iter().for_each(|index| group.start(*index));
        group.run(8_000);
        let leader = group.leaders()[0];
        assert!(group.has_table(leader, 1) && group.answers(leader));
        assert!(!group.config(leader).node(kasha_types::NodeId(away as u16 + 1)).unwrap().alive);
        // Another one takes its place, so that the next loss is borne, too.
        group.run(25_000);
        let members: Vec<u64> = group.member(leader).coordinator.members().into_iter().map(|of| of.0).collect();
        assert!(members.len() == SIZE && members.contains(&4) && !members.contains(&(away as u64 + 1)), "{members:?}");
        group.kill(leader);
        group.run(6_000);
        let next = group.leaders()[0];
        assert!(group.has_table(next, 1) && group.answers(next));
    }
}
