//! Members whose disks hang, and members that stand still.
#![allow(missing_docs)]

use kasha_machine::Endpoint;
use kasha_types::{ConfigVersion, Tick};
use kasha_wire::AnyMessage;
use kasha_wire::message::{GetConfiguration, LeaseQuery, OpenSession, RenewLease, TableCommand, TableRequest};

use crate::common::World;
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

impl Group {
    /// A member does nothing from now on. Whatever is said to it waits.
    fn stands_still(&mut self, index: usize) {
        self.still.insert(index, Vec::new());
    }

    /// A client's question waits for a member that stands still.
    fn asks_in_vain(&mut self, index: usize, question: impl Into<AnyMessage>) {
        self.still.get_mut(&index).unwrap().push((STRANGER, question.into()));
    }

    /// It goes on, and hears all that has waited, a frame in each turn.
    fn goes_on(&mut self, index: usize) {
        let now = self.now;
        for (from, message) in self.still.remove(&index).unwrap() {
            say_to(self.member(index), now, from, message);
            self.settle();
        }
    }
}

fn say_to(world: &mut World, now: Tick, from: Endpoint, message: AnyMessage) {
    match message {
        AnyMessage::Grouped(message) => world.send_at(now, from, &message),
        AnyMessage::Heartbeat(message) => world.send_at(now, from, &message),
        AnyMessage::GetConfiguration(message) => world.send_at(now, from, &message),
        AnyMessage::OpenSession(message) => world.send_at(now, from, &message),
        AnyMessage::RenewLease(message) => world.send_at(now, from, &message),
        AnyMessage::LeaseQuery(message) => world.send_at(now, from, &message),
        AnyMessage::TableRequest(message) => world.send_at(now, from, &message),
        other => panic!("{other:?}"),
    }
}

/// The connections of the others to it are open, and full.
#[test]
fn r9_2_a_leader_that_stood_still_for_a_minute_answers_nothing_from_before_and_follows() {
    let mut group = Group::serving();
    let client = group.open_session();
    let leader = group.leaders()[0];
    let questions = || {
        [
            AnyMessage::from(OpenSession { nonce: 2 }),
            GetConfiguration { have: ConfigVersion(0) }.into(),
            LeaseQuery { clients: vec![client] }.into(),
            RenewLease { client }.into(),
            TableRequest { client, sequence: 1, command: TableCommand::Create("table-1".into()) }.into(),
        ]
    };
    // It has read some, and the round that they wait for has not begun.
    group.answers.clear();
    let now = group.now;
    for question in questions() {
        say_to(group.member(leader), now, STRANGER, question);
    }
    group.stands_still(leader);
    let mut met = false;
    for second in 0..60 {
        group.run(1_000);
        questions().into_iter().for_each(|question| group.asks_in_vain(leader, question));
        if second == 30 {
            let next = *group.leaders().iter().find(|index| **index != leader).expect("the others elect");
            let now = group.now;
            group.member(next).send_at(now, STRANGER, &OpenSession { nonce: 7 });
            group.settle();
            group.run(200);
            met = group
                .answers
                .iter()
                .any(|(from, answer)| *from == next && matches!(answer, AnyMessage::SessionOpened(_)));
        }
    }
    assert!(met, "the next leader answers");
    group.answers.clear();
    let (leases, told) = (group.leases.clone(), group.told.len());
    group.goes_on(leader);
    assert!(group.leases == leases && group.told.len() == told);
    group.run(2_000);
    let is_harmless =
        |(from, answer): &(usize, AnyMessage)| *from == leader && matches!(answer, AnyMessage::NotLeader(_));
    assert!(!group.answers.is_empty() && group.answers.iter().all(is_harmless), "{:?}", group.answers);
    let [next] = group.leaders()[..] else { panic!("{:?}", group.leaders()) };
    assert!(next != leader && group.config(leader).version == group.config(next).version);
    assert!(group.config(next).nodes.iter().all(|info| info.alive));
}

#[test]
fn a_follower_that_stood_still_for_a_minute_follows_and_elects_nobody() {
    [false, true].into_iter().for_each(a_follower_stood_still);
}

fn a_follower_stood_still(hears_members_last: bool) {
    let mut group = Group::serving();
    let leader = group.leaders()[0];
    let [still, _] = group.others(leader);
    group.stands_still(still);
    for _ in 0..60 {
        group.run(1_000);
    }
    assert_eq!(group.leaders(), [leader]);
    let client = group.open_session();
    group.create_table(client, 1);
    if hears_members_last {
        let buffer = group.still.get_mut(&still).unwrap();
        buffer.sort_by_key(|(_, message)| matches!(message, AnyMessage::Grouped(_)));
    }
    group.goes_on(still);
    for _ in 0..400 {
        group.run(10);
        assert_eq!(group.leaders(), [leader]);
    }
    assert!(group.has_table(still, 1) && !group.answers(still));
    assert_eq!(group.member(still).coordinator.trouble(), None);
}

/// Two of three are a majority again, and one of these two has all.
#[test]
fn a_follower_that_stood_still_while_the_leader_died_elects_with_the_third_one() {
    let mut group = Group::serving();
    let client = group.open_session();
    let leader = group.leaders()[0];
    let [still, third] = group.others(leader);
    group.stands_still(still);
    group.create_table(client, 1);
    group.kill(leader);
    group.node_is_up(leader, false);
    group.run(60_000);
    assert_eq!(group.leaders(), []);
    group.goes_on(still);
    group.run(6_000);
    let [next] = group.leaders()[..] else { panic!("{:?}", group.leaders()) };
    assert!([still, third].contains(&next) && group.has_table(next, 1) && group.answers(next));
    let lost: Vec<_> = group.config(next).nodes.iter().filter(|info| !info.alive).map(|info| info.node.0).collect();
    assert_eq!(lost, [leader as u16 + 1], "what waited in its buffers is no sign of life for ever");
}

/// A silence of all nodes that is its own (pitfall 9), and a silence of all members.
#[test]
fn a_leader_that_stands_still_for_less_than_a_lease_leads_on_and_nobody_is_lost() {
    for millis in [200, 500, 700, 900] {
        let mut group = Group::serving();
        let leader = group.leaders()[0];
        for _ in 0..6 {
            group.stands_still(leader);
            group.run(millis);
            group.goes_on(leader);
            group.run(500);
            assert_eq!(group.leaders(), [leader], "{millis}");
        }
        assert!(group.config(leader).nodes.iter().all(|info| info.alive));
    }
}

/// Its own silence is no sign that it is cut off, whatever it hears first when it goes on (R9.8).
#[test]
fn r9_8_a_leader_that_stood_still_for_a_lease_leads_on_if_the_others_have_not_elected() {
    let mut led_on = 0;
    for millis in (1_500..3_000).step_by(100) {
        let mut group = Group::serving();
        let client = group.open_session();
        let leader = group.leaders()[0];
        // The others write what it has decided a moment ago, and tell it so while it stands still.
        let now = group.now;
        let command = TableCommand::Create("table-1".into());
        say_to(group.member(leader), now, STRANGER, TableRequest { client, sequence: 1, command }.into());
        group.stands_still(leader);
        group.run(millis);
        if group.leaders() != [leader] {
            continue;
        }
        group.goes_on(leader);
        for _ in 0..150 {
            group.run(10);
            assert_eq!(group.leaders(), [leader], "after {millis} ms");
            assert!(group.config(leader).nodes.iter().all(|info| info.alive), "after {millis} ms");
        }
        led_on += 1;
    }
    assert!(led_on > 3, "{led_on}");
}
