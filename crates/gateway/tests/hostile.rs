//! What a front may meet: more than it keeps, sides that end, programs that hang up. The cluster does not answer here.

use kasha_gateway::limits::WAITING_BYTES_TOTAL_MAX;
use kasha_machine::{Input, Machine, RequestsEnd};
use kasha_types::ConnId;

use crate::redis::{A, B, World};

/// Requests of this length, each of which waits for those before it.
fn long(bytes: usize) -> Vec<u8> {
    [format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${bytes}\r\n").as_bytes(), &vec![b'x'; bytes], b"\r\n"].concat()
}

#[test]
fn all_connections_together_have_a_bound() {
    let (mut world, request) = (World::new(), long(900_000));
    let all = WAITING_BYTES_TOTAL_MAX / 900_000;
    for number in 0..=all {
        world.send(ConnId(number as u64 + 1), &request);
    }
    let last = ConnId(all as u64 + 1);
    world.send(last, &request);
    world.wait();
    let refused: Vec<_> = world.said.iter().filter(|(_, text)| text.contains("or of all")).map(|(to, _)| *to).collect();
    assert_eq!((&refused[..], &world.closed[..]), (&[last][..], &[last][..]), "whoever is one too many is told");
}

#[test]
fn who_has_said_all_is_answered_before_the_connection_ends() {
    let mut world = World::new();
    world.send(A, b"INCR k\r\nGET k\r\n");
    for conn in [A, B] {
        world.front.step(
            world.now,
            Input::RequestsEnd { from: conn, why: RequestsEnd::HalfClosed },
            &mut world.effects,
        );
    }
    world.send(A, b"GET never\r\n");
    assert_eq!((world.said.len(), &world.closed[..]), (0, &[B][..]), "nothing was asked there");
    world.wait();
    world.wait();
    assert_eq!((world.said_to(A).matches("-TRYAGAIN").count(), &world.closed[..]), (2, &[B, A][..]));
}

#[test]
fn r10_5_who_hangs_up_leaves_nothing_behind() {
    let mut world = World::new();
    world.send(A, b"INCR k\r\nINCR k\r\n");
    for conn in [A, B] {
        world.front.step(world.now, Input::Closed(conn), &mut world.effects);
    }
    world.end_turn();
    assert_eq!(world.front.front().connections(), 0);
    world.wait();
    assert_eq!((world.said.len(), world.front.session().outstanding()), (0, 0));
}

#[test]
fn r10_7_exec_runs_nothing_if_its_keys_could_not_be_watched() {
    let mut world = World::new();
    world.send(A, b"WATCH k\r\nMULTI\r\nPING\r\nEXEC\r\nMULTI\r\nPING\r\nEXEC\r\n");
    world.wait();
    let said = world.said_to(A);
    assert!(said.starts_with("-TRYAGAIN"), "{said}");
    let (_, behind) = said.split_once("\r\n").expect("a line");
    let refused = "+OK\r\n+QUEUED\r\n-EXECABORT Transaction discarded because of previous errors.\r\n";
    assert_eq!(behind, [refused, "+OK\r\n+QUEUED\r\n*1\r\n+PONG\r\n"].concat());
}

#[test]
fn unwatch_within_multi_is_a_command_like_others() {
    let mut world = World::new();
    world.send(A, b"MULTI\r\nUNWATCH\r\nPING\r\nEXEC\r\n");
    world.wait();
    assert_eq!(world.said_to(A), "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n+PONG\r\n");
}

#[test]
fn r10_6_exec_that_does_not_run_changes_nothing_of_its_connection() {
    let mut world = World::new();
    world.send(A, b"MULTI\r\nCLIENT SETNAME other\r\nHELLO 3\r\nINCR k\r\nEXEC\r\nCLIENT GETNAME\r\n");
    world.wait();
    let said = world.said_to(A);
    let (_, behind) = said.split_once("-TRYAGAIN").expect("the cluster does not answer");
    assert!(behind.ends_with("\r\n$-1\r\n"), "{said}");
}
