//! Older copies of members' folders: what they lack was promised, so they neither vote nor lead.
#![allow(missing_docs)]

use kasha_coordinator::CoordinatorOptions;
use kasha_types::BootId;

use crate::common::{Files, MemoryDisk, World};
use crate::group::{Group, SIZE, address, first_identity, process_options};

impl Group {
    /// The files of a member as they are now.
    fn copy_of(&mut self, index: usize) -> Files {
        self.member(index).disk.durable.clone()
    }

    /// The process of a node ends, and starts again.
    fn restart(&mut self, index: usize) {
        self.kill(index);
        self.start(index);
        self.node_is_up(index, true);
    }

    /// A process with a copy of this member's folder, which counts it as this start, on a machine at this place.
    fn start_copy(&mut self, index: usize, files: Files, starts: u32, place: usize) {
        let disk = MemoryDisk { durable: files, ..MemoryDisk::default() };
        let options = CoordinatorOptions {
            address: address(place),
            boot: Some(BootId(200 + place as u128)),
            ..process_options(index, starts, first_identity(index))
        };
        self.members.resize_with(self.members.len().max(place + 1), || None);
        self.members[place] = Some(World::try_new(options, disk, self.now).unwrap());
    }

    /// Nobody leads in all that time, not for a moment.
    fn nobody_leads(&mut self, millis: u64) {
        for _ in 0..millis / 10 {
            self.run(10);
            assert_eq!(self.leaders(), [], "one of three members is there, and an older copy of another one");
        }
    }

    /// Everybody but the member at this place was told nothing, and that one that it is out of date.
    fn only_this_one_is_sent_away(&mut self, place: usize) -> bool {
        let is_told = |(told, why): &(usize, String)| *told == place && why.contains("(K0503)");
        let told = std::mem::take(&mut self.sent_away);
        !told.is_empty() && told.iter().all(is_told) && self.goodbyes.is_empty()
    }
}

/// Elsewhere, or where the newer process listened.
#[test]
fn r9_6_an_older_start_has_no_vote_and_is_told_why() {
    for (others_restart, is_elsewhere) in [(false, false), (false, true), (true, false), (true, true)] {
        an_older_start(others_restart, is_elsewhere);
    }
}

fn an_older_start(others_restart: bool, is_elsewhere: bool) {
    let mut group = Group::serving();
    let leader = group.leaders()[0];
    let (right, third) = ((leader + 1) % SIZE, (leader + 2) % SIZE);
    let older = group.copy_of(right);
    (0..2).for_each(|_| group.restart(right));
    group.run(4_000);
    assert!(group.leaders() == [leader] && group.sent_away.is_empty());
    let place = if is_elsewhere { SIZE } else { right };
    if is_elsewhere {
        // Beside the newer process.
        group.start_copy(right, older.clone(), 2, place);
        group.run(2_000);
        assert!(group.only_this_one_is_sent_away(place) && group.leaders() == [leader]);
    }
    group.kill(right);
    group.kill(third);
    if others_restart {
        group.restart(leader);
    }
    if !is_elsewhere {
        group.start_copy(right, older, 2, place);
    }
    group.sent_away.clear();
    // A leader that has lost its majority needs a while to give up.
    group.run(if others_restart { 0 } else { 4_000 });
    group.nobody_leads(10_000);
    // Who has just started does not know what of its log is committed.
    assert!(others_restart || group.only_this_one_is_sent_away(place));
    group.start(third);
    group.run(5_000);
    let [next] = group.leaders()[..] else { panic!("{:?}", group.leaders()) };
    assert!(next != place && group.answers(next));
    assert!(group.only_this_one_is_sent_away(place));
    // The member's own folder, which has been started more often than anybody knows, is welcome.
    group.members[place] = None;
    group.start(right);
    group.run(3_000);
    assert_eq!(group.sent_away, []);
    let leader = group.leaders()[0];
    assert!(group.config(right).version == group.config(leader).version);
    group.kill((0..SIZE).find(|other| ![leader, right].contains(other)).unwrap());
    group.run(3_000);
    let leader = group.leaders()[0];
    assert!(group.answers(leader), "it has a vote");
}

/// The newest process may be one that no leader has seen: whoever was heard before it has no say any more, and is told nothing that a majority does
/// not know.
#[test]
fn r9_6_of_a_start_that_is_not_committed_nobody_is_told() {
    let mut group = Group::serving();
    let leader = group.leaders()[0];
    let (right, third) = ((leader + 1) % SIZE, (leader + 2) % SIZE);
    let older = group.copy_of(right);
    for _ in 0..2 {
        group.kill(right);
        group.start(right); // its cores say nothing of that
        group.run(500);
    }
    group.start_copy(right, older, 2, SIZE);
    group.run(2_000);
    group.kill(right);
    group.kill(third);
    group.run(4_000);
    group.nobody_leads(6_000);
    assert_eq!(group.sent_away, []);
    group.start(right);
    group.run(3_000);
    assert_eq!((group.leaders().len(), &group.sent_away[..]), (1, &[][..]));
}
