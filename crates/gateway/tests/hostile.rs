//! Whatever comes on a connection: answers leave one line each, in the order of the lines, and nothing is left behind. The cluster
//! does not answer here.

use kasha_client::session::{Session, SessionOptions};
use kasha_gateway::LineFront;
use kasha_gateway::limits::{COMMAND_DEADLINE, WAITING_BYTES_MAX, WAITING_BYTES_TOTAL_MAX, WAITING_REQUESTS_MAX};
use kasha_machine::{Effect, Effects, Endpoint, Fronted, Input, Machine, RequestsEnd};
use kasha_types::{ConnId, Tick};
use proptest::prelude::*;

struct World {
    front: Fronted<LineFront, Session>,
    effects: Effects,
    now: Tick,
    said: Vec<(ConnId, String)>,
    closed: Vec<ConnId>,
}

const A: ConnId = ConnId(1);
const B: ConnId = ConnId(2);

impl World {
    fn new() -> Self {
        let (now, mut effects) = (Tick(1_000_000_000), Effects::new());
        let seed = "127.0.0.1:1".parse().expect("an address");
        let options = SessionOptions { deadline: COMMAND_DEADLINE, ..SessionOptions::new(vec![seed], 1) };
        let front = Fronted::new(LineFront::new(), Session::new(options, now, &mut effects));
        Self { front, effects, now, said: Vec::new(), closed: Vec::new() }
    }

    fn give(&mut self, input: Input<'_>) {
        self.front.step(self.now, input, &mut self.effects);
    }

    fn line(&mut self, from: ConnId, line: &[u8]) {
        self.give(Input::Request { from, bytes: line, is_whole: true });
    }

    fn end_turn(&mut self) {
        self.front.end_turn(self.now, &mut self.effects);
        for &effect in self.effects.queue() {
            match effect {
                Effect::Send { to: Endpoint::Conn(conn), head, .. } => {
                    let text = String::from_utf8_lossy(self.effects.bytes(head)).into_owned();
                    assert!(text.ends_with('\n') && !text[..text.len() - 1].contains('\n'), "one line: {text:?}");
                    self.said.push((conn, text));
                }
                Effect::Disconnect(Endpoint::Conn(conn)) => self.closed.push(conn),
                _ => {}
            }
        }
        self.effects.clear();
        self.front.assert_invariants();
    }

    /// Long enough for every call to end.
    fn wait(&mut self) {
        for _ in 0..30 {
            self.now = self.now.after(std::time::Duration::from_millis(100));
            self.give(Input::Tick);
            self.end_turn();
        }
    }

    fn said_to(&self, conn: ConnId) -> Vec<&str> {
        self.said.iter().filter(|(to, _)| *to == conn).map(|(_, text)| &text[..3]).collect()
    }
}

#[test]
fn r10_1_what_is_answered_at_once_waits_for_what_is_not() {
    let mut world = World::new();
    for line in [&b"nonsense"[..], b"GET t k", b"", b"QUIT", b"GET t k"] {
        world.line(A, line);
    }
    world.line(B, b"quit");
    world.end_turn();
    assert_eq!((world.said_to(A), world.said_to(B)), (vec!["ERR"], vec!["BYE"]));
    assert_eq!(world.closed, [B]);
    world.wait();
    assert_eq!(world.said_to(A), ["ERR", "ERR", "ERR", "BYE"], "and nothing behind QUIT");
    assert_eq!(world.closed, [B, A]);
}

#[test]
fn a_line_too_long_and_too_many_lines_are_refused_behind_earlier_answers() {
    let mut world = World::new();
    world.line(A, b"PUT t k v");
    world.give(Input::RequestsEnd { from: A, why: RequestsEnd::Bad("too long") });
    world.line(A, b"never");
    world.line(B, b"GET t k");
    for _ in 0..WAITING_REQUESTS_MAX + 9 {
        world.line(B, b"x");
    }
    world.end_turn();
    assert!(world.said_to(A).is_empty() && world.closed.is_empty(), "the first one is under way");
    world.wait();
    assert_eq!(world.said_to(A), ["ERR", "ERR"]);
    let last = &world.said.iter().rfind(|(to, _)| *to == B).expect("told").1;
    assert!(last.contains("wait for answers"), "{last}");
    assert_eq!(world.closed.len(), 2);
}

#[test]
fn all_connections_together_have_a_bound() {
    let mut world = World::new();
    let long = [&b"PUT t k "[..], &vec![b'x'; 60_000]].concat();
    let (each, all) = (WAITING_BYTES_MAX / 61_000, WAITING_BYTES_TOTAL_MAX / 60_000);
    for number in 0..=all {
        world.line(ConnId((number / each) as u64 + 1), &long);
    }
    world.end_turn();
    let last = ConnId((all / each) as u64 + 1);
    for _ in 0..=all % each {
        world.wait();
    }
    let refused: Vec<_> = world.said.iter().filter(|(_, text)| text.contains("of all connections")).collect();
    assert_eq!(refused.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [last], "whoever is one too many is told");
    assert_eq!(world.closed.first(), Some(&last));
}

#[test]
fn who_has_said_all_is_answered_before_the_connection_ends() {
    let mut world = World::new();
    world.line(A, b"INCR t k 1");
    world.line(A, b"GET t k");
    for conn in [A, B] {
        world.give(Input::RequestsEnd { from: conn, why: RequestsEnd::HalfClosed });
    }
    world.line(A, b"GET t never");
    world.end_turn();
    assert_eq!((world.said.len(), &world.closed[..]), (0, &[B][..]), "nothing was asked there");
    world.wait();
    world.wait();
    assert_eq!((world.said_to(A), &world.closed[..]), (vec!["ERR", "ERR"], &[B, A][..]));
}

#[test]
fn r10_5_who_hangs_up_leaves_nothing_behind() {
    let mut world = World::new();
    world.line(A, b"INCR t k 1");
    world.line(A, b"INCR t k 1");
    world.end_turn();
    world.give(Input::Closed(A));
    world.give(Input::Closed(B));
    world.end_turn();
    assert_eq!(world.front.front().connections(), 0);
    world.wait();
    assert_eq!((world.said.len(), world.front.session().outstanding()), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Each line has one answer, in order, whatever its bytes are.
    #[test]
    fn any_bytes_are_answered(lines in proptest::collection::vec(
        prop_oneof![
            proptest::collection::vec(any::<u8>().prop_filter("no end", |byte| *byte != b'\n'), 0..40),
            "(GET|PUT|INCR|get) [a-z]{0,3}( [a-z0-9-]{0,3}){0,3}".prop_map(String::into_bytes),
        ],
        0..12,
    )) {
        let mut world = World::new();
        let mut expected = lines.len();
        for (index, line) in lines.iter().enumerate() {
            world.line(A, line);
            if line.eq_ignore_ascii_case(b"quit") {
                expected = expected.min(index + 1);
            }
        }
        world.end_turn();
        world.wait();
        for _ in 0..lines.len() {
            world.wait();
        }
        prop_assert_eq!(world.said_to(A).len(), expected);
    }
}
