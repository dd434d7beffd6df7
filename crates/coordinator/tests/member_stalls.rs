//! Members whose disks hang, and members that stand still.
#![allow(missing_docs)]

use kasha_wire::message::{TableCommand, TableRequest};

use crate::group::{Group, SIZE, STRANGER};

impl Group {
    /// The disk of a member does nothing from now on, or goes on.
    fn hang_disk(&mut self, index: usize, hangs: bool) {
        self.member(index).fast_disk = !hangs;
    }

    fn others(&self, leader: usize) -> [usize; 2] {
        [(leader + 1) % SIZE, (leader + 2) % SIZE]
    }
}

/// The disks of the others are a quorum (R9.10).
#[test]
fn r9_10_a_leader_whose_disk_hangs_goes_on_and_nothing_is_lost_when_it_dies() {
    let mut group = Group::serving();
    let client = group.open_session();
    let leader = group.leaders()[0];
    group.hang_disk(leader, true);
    let before = group.copy_of(leader);
    for sequence in 1..=10 {
        group.create_table(client, sequence);
        group.run(1_000);
        assert_eq!(group.leaders(), [leader]);
    }
    assert!(group.copy_of(leader) == before, "nothing has reached its disk");
    group.kill(leader);
    group.run(4_000);
    let next = group.leaders()[0];
    assert!((1..=10).all(|sequence| group.has_table(next, sequence)) && group.answers(next));
    group.start(leader);
    group.run(3_000);
    assert!((1..=10).all(|sequence| group.has_table(leader, sequence)));
}

/// One of the others is down, so that the leader's own disk is needed. It hangs: nothing is committed any more.
#[test]
fn r9_10_a_leader_whose_disk_hangs_and_is_needed_answers_nobody_and_the_others_elect() {
    let mut group = Group::serving();
    let client = group.open_session();
    let leader = group.leaders()[0];
    let [one, other] = group.others(leader);
    group.kill(other);
    group.create_table(client, 1);
    group.hang_disk(leader, true);
    group.answers.clear();
    let (now, told) = (group.now, group.told.len());
    let command = TableCommand::Create("table-2".into());
    group.member(leader).send_at(now, STRANGER, &TableRequest { client, sequence: 2, command });
    group.settle();
    let leases = group.leases.clone();
    group.run(8_000);
    // It gives up after its patience, and neither of the two can lead: one waits for its disk, and the other one is alone.
    group.nobody_leads(6_000);
    assert!(group.answers.is_empty() && group.leases == leases && group.told.len() == told, "{:?}", group.answers);
    group.start(other);
    group.run(4_000);
    let next = group.leaders()[0];
    assert!([one, other].contains(&next) && group.answers(next) && !group.answers(leader));
    let client = group.open_session();
    group.create_table(client, 3);
    assert!(group.has_table(next, 1) && group.has_table(next, 3));
    // It has learnt that, and has nothing of it on its disk. So it counts for nothing.
    group.kill(if next == one { other } else { one });
    group.run(8_000);
    group.nobody_leads(6_000);
    // Its disk goes on.
    group.hang_disk(leader, false);
    group.run(4_000);
    let last = group.leaders()[0];
    assert!(group.answers(last) && group.has_table(leader, 3) && group.has_table(last, 1));
}

/// The disk of the one that is to lead next hangs: it enters the view, and never says so.
#[test]
fn a_member_whose_disk_hangs_is_elected_by_nobody() {
    let mut group = Group::serving();
    let client = group.open_session();
    group.create_table(client, 1);
    let leader = group.leaders()[0];
    let others = group.others(leader);
    for (hangs, other) in [(others[0], others[1]), (others[1], others[0])] {
        group.hang_disk(hangs, true);
        group.run(500);
        let leader = group.leaders()[0];
        if leader == hangs {
            group.hang_disk(hangs, false);
            continue;
        }
        group.kill(leader);
        group.nobody_leads(10_000);
        group.start(leader);
        group.run(6_000);
        let next = group.leaders()[0];
        assert!([leader, other].contains(&next) && group.answers(next) && group.has_table(next, 1));
        group.hang_disk(hangs, false);
        group.run(6_000);
        assert!(group.leaders() == [next] && group.has_table(hangs, 1));
    }
}
