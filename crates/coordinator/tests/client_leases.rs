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

/// A memory of many pieces: the next leader knows of all that a majority was told, and of nobody else. With `KASHA_CLIENTS=4186112`, in a
/// release build and with `--nocapture`, this prints how long the longest turns take with as many clients as there can be.
#[test]
fn r9_4_a_new_leader_gathers_the_leases_of_many_clients() {
    const ROUND: u64 = 8192;
    let clients = std::env::var("KASHA_CLIENTS").map_or(2 * ROUND, |count| count.parse().expect("a number"));
    let mut group = led();
    let leader = group.leaders()[0];
    for nonce in 0..clients {
        let now = group.now;
        group.member(leader).send_at(now, STRANGER, &OpenSession { nonce });
        if nonce % ROUND == ROUND - 1 {
            group.run(30);
            group.answers.clear();
        }
    }
    let last = open(&mut group);
    assert_eq!(last, ClientId(clients + 1));
    say_longest(&mut group, "sessions were opened");
    group.run(2_000);
    say_longest(&mut group, "nothing happened");
    group.kill(leader);
    group.run(5_000);
    say_longest(&mut group, "another member began to lead");
    group.run(TERM_MILLIS);
    say_longest(&mut group, "it gathered");
    for client in [ClientId(1), ClientId(clients / 2), last] {
        assert!(renews(&mut group, client), "it was granted before the former leader died: {client}");
    }
    assert!(
        is_expired(&mut group, ClientId(clients + 500)),
        "reserved, and granted to nobody: no bound speaks for it any more"
    );
}

fn say_longest(group: &mut Group, what: &str) {
    for world in group.members.iter_mut().flatten() {
        let longest = std::mem::take(&mut world.coordinator.longest);
        println!("longest turn while {what}: {longest:?}");
    }
}
