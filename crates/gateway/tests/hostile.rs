//! What a front may meet: more than it keeps, sides that end, programs that hang up. The cluster does not answer here.

use kasha_gateway::RedisOptions;
use kasha_gateway::limits::{ROUND_REPLIES_MAX, WAITING_BYTES_TOTAL_MAX};
use kasha_machine::{Input, Machine, RequestsEnd};
use kasha_types::{ConnId, CorePort};

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

/// What the shell says of the replies to a connection.
fn backlog(world: &mut World, of: ConnId, is_full: bool) {
    world.front.step(world.now, Input::Backlog { of, is_full }, &mut world.effects);
    world.end_turn();
}

#[test]
fn who_reads_no_replies_is_answered_no_further_and_loses_none() {
    let mut world = World::new();
    world.send(A, b"PING\r\n");
    backlog(&mut world, A, true);
    for number in 0..10_000 {
        world.send(A, format!("ECHO {number:05}\r\n").as_bytes());
    }
    world.send(B, b"PING\r\n");
    world.wait();
    assert_eq!((&world.said_to(A)[..], &world.said_to(B)[..]), ("+PONG\r\n", "+PONG\r\n"));
    assert_eq!((&world.unheard[..], &world.closed[..]), (&[A][..], &[][..]), "it is read no further");
    backlog(&mut world, A, false);
    world.wait();
    let expected: String = (0..10_000).map(|number| format!("$5\r\n{number:05}\r\n")).collect();
    assert!(world.said_to(A) == ["+PONG\r\n", &expected].concat(), "each reply, in order");
    assert_eq!((&world.unheard[..], &world.closed[..]), (&[][..], &[][..]));
}

/// The shell says between turns only that replies wait: those of one turn have a bound of their own.
#[test]
fn one_turn_tells_a_connection_no_more_than_its_bound() {
    const REPLIES: usize = 60;
    let (mut world, mut told, echo) = (World::new(), 0, vec![b'x'; 100_000]);
    let one = [format!("*2\r\n$4\r\nECHO\r\n${}\r\n", echo.len()).as_bytes(), &echo, b"\r\n"].concat();
    world.send(A, &one.repeat(REPLIES));
    for turn in 0.. {
        assert!(turn < REPLIES, "it goes on");
        let now = world.said_to(A).len();
        assert!(now - told <= 8 * (ROUND_REPLIES_MAX + one.len()), "{} in one turn", now - told);
        told = now;
        if world.said_to(A).matches("$100000").count() == REPLIES {
            assert!(turn > 0, "more than one turn's");
            return;
        }
        assert!(world.front.next_deadline().is_some_and(|at| at <= world.now), "the next turn comes at once");
        world.end_turn();
    }
}

#[test]
fn what_a_port_does_is_counted_and_info_tells_the_same() {
    let of_core = CorePort::of_cores(2);
    let mut world = World::with(RedisOptions { counted: Some(of_core[0].clone()), ..RedisOptions::default() });
    of_core[0].note_connections(3, 7, 1);
    of_core[1].note_connections(10, 20, 30);
    of_core[1].note_commands(100, 1000, 10_000);
    world.send(A, b"PING\r\nnonsense\r\nCLIENT REPLY SKIP\r\nECHO skipped\r\nMULTI\r\nPING\r\nEXEC\r\n");
    world.send(B, b"GET k\r\n");
    let said: usize = world.said.iter().map(|(_, text)| text.len()).sum();
    let port = of_core[0].of_core();
    assert_eq!((port.connections, port.accepted, port.refused), (3, 7, 1));
    assert_eq!((port.commands, port.bytes_out), (7, said as u64), "what waits for the cluster is not answered yet");
    let bytes_of = |requests: &[&[&str]]| -> u64 {
        let bytes = requests.iter().map(|words| 4 + words.iter().map(|word| word.len() as u64 + 6).sum::<u64>());
        bytes.sum()
    };
    let asked = bytes_of(&[
        &["PING"],
        &["nonsense"],
        &["CLIENT", "REPLY", "SKIP"],
        &["ECHO", "skipped"],
        &["MULTI"],
        &["PING"],
        &["EXEC"],
        &["GET", "k"],
    ]);
    assert_eq!(port.bytes_in, asked);
    world.wait();
    assert_eq!(of_core[0].of_core().commands, 8);
    world.send(A, b"INFO stats\r\nINFO clients\r\n");
    let info = world.said_to(A);
    for told in [
        "connected_clients:13".to_owned(),
        "total_connections_received:27".to_owned(),
        "rejected_connections:31".to_owned(),
        "total_commands_processed:108".to_owned(),
    ] {
        assert!(info.contains(&told), "{told}: {info}");
    }
    let bytes_in = asked + bytes_of(&[&["INFO", "stats"], &["INFO", "clients"]]) + 1000;
    assert!(info.contains(&format!("total_net_input_bytes:{bytes_in}")), "{bytes_in}: {info}");
}

/// Each is told Redis' own error, or one that names the command, and the connection goes on.
#[test]
fn bad_requests_are_told_so_and_leave_the_connection_in_order() {
    let cases: [(&[u8], &str); 13] = [
        (b"HELLO 4\r\n", "-NOPROTO unsupported protocol version\r\n"),
        (b"HELLO three\r\n", "-ERR Protocol version is not an integer or out of range\r\n"),
        (
            b"AUTH wrong\r\nAUTH default wrong\r\n",
            "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?\r\n+OK\r\n",
        ),
        (b"SUBSCRIBE channel\r\n", "-ERR 'subscribe' is a command of Redis that Kasha does not know yet\r\n"),
        (b"BLPOP list 0\r\n", "-ERR 'blpop' is a command of Redis that Kasha does not know yet\r\n"),
        (b"EVAL x 0\r\n", "-ERR 'eval' is a command of Redis that Kasha does not know yet\r\n"),
        (b"CLUSTER SLOTS\r\n", "-ERR This instance has cluster support disabled\r\n"),
        (b"CLUSTER\r\n", "-ERR wrong number of arguments for 'cluster' command\r\n"),
        (b"MSET a\r\n", "-ERR wrong number of arguments for 'mset' command\r\n"),
        (b"SELECT 16\r\n", "-ERR DB index is out of range\r\n"),
        (b"EXEC\r\nDISCARD\r\n", "-ERR EXEC without MULTI\r\n-ERR DISCARD without MULTI\r\n"),
        (
            b"MULTI\r\nMULTI\r\nWATCH k\r\nDISCARD\r\n",
            "+OK\r\n-ERR MULTI calls can not be nested\r\n-ERR WATCH inside MULTI is not allowed\r\n+OK\r\n",
        ),
        (
            b"MULTI\r\nSUBSCRIBE channel\r\nEXEC\r\n",
            "+OK\r\n-ERR 'subscribe' is a command of Redis that Kasha does not know yet\r\n-EXECABORT Transaction discarded because of previous errors.\r\n",
        ),
    ];
    let mut world = World::new();
    for (number, (request, told)) in (1u64..).zip(cases) {
        world.send(ConnId(number), request);
        world.send(ConnId(number), b"PING\r\n");
        assert_eq!(world.said_to(ConnId(number)), [told, "+PONG\r\n"].concat(), "{}", request.escape_ascii());
    }
    assert!(world.closed.is_empty());
    // A million empty requests are none.
    world.send(B, &[&b"*0\r\n".repeat(1_000_000)[..], b"*-1\r\nPING\r\n"].concat());
    assert!(world.said_to(B).ends_with("+PONG\r\n+PONG\r\n"), "{}", world.said_to(B));
    // These end it, behind what was said before.
    let ends: [(&[u8], &str); 4] = [
        (b"MULTI\r\nSET k v\r\nQUIT\r\nPING\r\n", "+OK\r\n+QUEUED\r\n+OK\r\n"),
        (b"PING\r\n*1\r\n$-2\r\n", "+PONG\r\n-ERR Protocol error: invalid bulk length\r\n"),
        (b"*2\r\n$3\r\nGET\r\n$537919488\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1048577\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
    ];
    for (number, (request, told)) in (101u64..).zip(ends) {
        world.send(ConnId(number), request);
        assert_eq!(world.said_to(ConnId(number)), told, "{}", request.escape_ascii());
        assert!(world.closed.contains(&ConnId(number)));
    }
}
