//! Leases of clients where leaders die all the time (R9.4).
#![allow(missing_docs)]

use crate::group::{Group, STRANGER};
use kasha_types::ClientId;
use kasha_wire::message::{LeaseQuery, LeaseVerdict, OpenSession, RenewLease, SessionOpened};
use kasha_wire::{AnyMessage, Message};

const TERM_MILLIS: u64 = 30_000;

/// Asks the leader, and returns the answer.
fn ask<T>(group: &mut Group, message: &impl Message, answer: impl Fn(&AnyMessage) -> Option<T>) -> T {
    for _ in 0..100 {
        group.answers.clear();
        if let [leader] = group.leaders()[..] {
            let now = group.now;
            group.member(leader).send_at(now, STRANGER, message);
            group.settle();
        }
        group.run(50);
        if let Some(answer) = group.answers.iter().find_map(|(_, message)| answer(message)) {
            return answer;
        }
    }
    panic!("nobody answers");
}

fn open(group: &mut Group) -> ClientId {
    ask(group, &OpenSession { nonce: 1 }, |answer| match answer {
        AnyMessage::SessionOpened(SessionOpened { client, .. }) => Some(*client),
        _ => None,
    })
}

/// Whether the client was told that its lease goes on.
fn renews(group: &mut Group, client: ClientId) -> bool {
    ask(group, &RenewLease { client }, |answer| match answer {
        AnyMessage::LeaseRenewed(_) => Some(true),
        AnyMessage::LeaseLost(_) => Some(false),
        _ => None,
    })
}

fn is_expired(group: &mut Group, client: ClientId) -> bool {
    ask(group, &LeaseQuery { clients: vec![client] }, |answer| match answer {
        AnyMessage::LeaseVerdict(LeaseVerdict { expired, .. }) => Some(expired.contains(&client)),
        _ => None,
    })
}

/// The leader dies, and starts again when another one leads.
fn elect(group: &mut Group) {
    let leader = group.leaders()[0];
    group.kill(leader);
    group.run(2_500);
    assert_eq!(group.leaders().len(), 1);
    group.start(leader);
}

fn led() -> Group {
    let mut group = Group::with(|options| options.client_lease_millis = TERM_MILLIS);
    group.client_lease_millis = TERM_MILLIS;
    group.run(3_000);
    group
}

#[test]
fn r9_4_elections_all_the_time_keep_no_dead_client_and_lose_no_living_one() {
    let mut group = led();
    let (dead, alive) = (open(&mut group), open(&mut group));
    let since = group.now;
    let mut ended = None;
    // An election in each fifth of a term.
    while ended.is_none() {
        elect(&mut group);
        assert!(renews(&mut group, alive), "the client has renewed in time");
        group.run(TERM_MILLIS / 5 - 2_500);
        let passed = group.now.since(since).as_millis();
        ended = is_expired(&mut group, dead).then_some(passed);
        assert!(passed < 3 * u128::from(TERM_MILLIS), "the dead client's records stay for ever");
        assert!(!is_expired(&mut group, alive));
    }
    assert!(ended >= Some(2 * u128::from(TERM_MILLIS)), "its last request may be under way for so long: {ended:?}");
}

/// Members that start again remember no client: their leader must take every client for alive.
#[test]
pub(crate) fn r9_4_after_a_restart_of_all_no_living_client_loses_its_lease() {
    let mut group = led();
    let client = open(&mut group);
    for _ in 0..12 {
        group.run(TERM_MILLIS / 4);
        (0..3).for_each(|index| group.kill(index));
        (0..3).for_each(|index| group.start(index));
        group.run(5_000);
        elect(&mut group);
    }
    assert!(!is_expired(&mut group, client) && renews(&mut group, client));
}

/// Nobody could renew for more than two terms.
#[test]
fn r9_4_an_outage_is_not_held_against_clients() {
    let mut group = led();
    let client = open(&mut group);
    let leader = group.leaders()[0];
    let others: Vec<_> = (0..3).filter(|index| *index != leader).collect();
    others.iter().for_each(|index| group.kill(*index));
    group.run(3 * TERM_MILLIS);
    assert!(group.leaders().is_empty());
    others.iter().for_each(|index| group.start(*index));
    group.run(5_000);
    assert!(renews(&mut group, client));
}

/// Four million clients, and the leader dies. `cargo test --release -p kasha-coordinator four_million -- --ignored --nocapture` prints how long
/// the longest turns have taken.
#[test]
#[ignore = "it measures"]
fn four_million_clients_and_a_new_leader() {
    const CLIENTS: u64 = 4 * 1024 * 1024 - 8192;
    let mut group = Group::with(|_| ());
    group.run(3_000);
    let leader = group.leaders()[0];
    for nonce in 0..CLIENTS {
        let now = group.now;
        group.member(leader).send_at(now, STRANGER, &OpenSession { nonce });
        if nonce % 8192 == 8191 {
            group.run(30);
            group.answers.clear();
        }
    }
    group.run(5_000);
    println!("{:?} while {CLIENTS} sessions were opened", group.member(leader).coordinator.longest);
    (0..3).for_each(|index| group.member(index).coordinator.longest = std::time::Duration::ZERO);
    group.run(5_000);
    println!("{:?} in five seconds at rest", group.member(leader).coordinator.longest);
    (0..3).for_each(|index| group.member(index).coordinator.longest = std::time::Duration::ZERO);
    group.kill(leader);
    for seconds in [5, 60, 300] {
        group.run(seconds * 1_000);
        let next = group.leaders()[0];
        for index in (0..3).filter(|index| *index != leader) {
            let what = if index == next { "leader" } else { "follower" };
            println!(
                "{:?}: the longest turn of the {what}, after {seconds} s more",
                group.member(index).coordinator.longest
            );
        }
    }
    let first = ClientId(1);
    assert!(is_expired(&mut group, first) || renews(&mut group, first));
}
