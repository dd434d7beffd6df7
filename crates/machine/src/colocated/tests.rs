//! The pipe against a naive twin: a client and a node, each with effects of its own and a queue of frames between them, in which
//! nothing is ever dropped or limited.

use std::collections::VecDeque;

use kasha_types::{Epoch, LogEnd, LogPosition, NodeId, ShardId};
use proptest::prelude::*;

use super::*;
use crate::turn::{self, Shell};
use crate::{Data, FileName};

const OWN: CoreId = CoreId { node: NodeId(1), core: 0 };
const OTHER: CoreId = CoreId { node: NodeId(2), core: 0 };
const SHARD: ShardId = ShardId(3);

fn send(to: Endpoint, bytes: &[u8], gate: Gate, out: &mut Effects) {
    let head = out.span(bytes);
    out.push(Effect::Send { to, head, tail: None, gate });
}

fn gate(end: u64) -> Gate {
    Gate::Synced { shard: SHARD, position: LogPosition { epoch: Epoch(1), offset: LogEnd(end) } }
}

/// Asks the node of its core for each line, and another one too, and tells what is answered. An answer `?` makes it ask again.
#[derive(Default)]
struct Asker {
    turns: usize,
}

impl Machine for Asker {
    fn step(&mut self, _: Tick, input: Input<'_>, out: &mut Effects) {
        match input {
            Input::Request { bytes: line, .. } => {
                send(Endpoint::Core(OWN), &[&b"c"[..], line].concat(), Gate::Now, out);
                send(Endpoint::Core(OTHER), &[&b"o"[..], line].concat(), Gate::Now, out);
            }
            Input::Frame { from, kind, payload } => {
                if payload.first() == Some(&b'?') {
                    send(Endpoint::Core(OWN), &[b'c', payload[1]], Gate::Now, out);
                }
                let from = if from == Endpoint::Core(OWN) { "own" } else { "other" };
                send(Endpoint::Conn(ConnId(7)), format!("{from} {kind} {payload:?}").as_bytes(), Gate::Now, out);
            }
            Input::Unreachable(Endpoint::Core(OWN)) => send(Endpoint::Conn(ConnId(7)), b"lost", Gate::Now, out),
            Input::Unreachable(_) | Input::Closed(_) => {}
            Input::RequestsEnd { .. }
            | Input::Backlog { .. }
            | Input::Durable(_)
            | Input::LogsFlushed
            | Input::UnixTime(_)
            | Input::Tick => {
                unreachable!("{input:?}")
            }
        }
    }
    fn end_turn(&mut self, _: Tick, _: &mut Effects) {
        self.turns += 1;
    }
    fn next_deadline(&self) -> Option<Tick> {
        None
    }
    fn is_open(&self, gate: Gate) -> bool {
        gate == Gate::Now
    }
    fn log_bytes(&self, _: LogSlice) -> &[u8] {
        unreachable!("no log")
    }
}

/// Answers as the second byte says: at once, behind a gate, with a question, by closing; loses its role, or opens gates.
#[derive(Default)]
struct Answerer {
    opened: u64,
    closed: usize,
    turns: usize,
}

impl Machine for Answerer {
    fn step(&mut self, _: Tick, input: Input<'_>, out: &mut Effects) {
        let Input::Frame { from, payload, .. } = input else {
            self.closed += usize::from(matches!(input, Input::Closed(_)));
            return;
        };
        let number = payload.first().copied().unwrap_or(0);
        match number % 8 {
            0 | 1 => send(from, &[b'n', b'a', number], Gate::Now, out),
            2 | 3 => send(from, &[b'n', b'g', number], gate(u64::from(number)), out),
            4 => send(from, &[b'n', b'?', number / 8 * 2], Gate::Now, out),
            5 => self.opened = self.opened.max(u64::from(number)),
            6 => out.push(Effect::DropHeld(SHARD)),
            _ => {
                let data = Data::Span(out.span(&[number]));
                out.push(Effect::Write { file: FileName::Core, offset: 0, data });
            }
        }
    }
    fn end_turn(&mut self, _: Tick, _: &mut Effects) {
        self.turns += 1;
    }
    fn next_deadline(&self) -> Option<Tick> {
        None
    }
    fn is_open(&self, gate: Gate) -> bool {
        match gate {
            Gate::Now => true,
            Gate::Synced { position, .. } => position.offset.0 <= self.opened,
            _ => unreachable!("{gate:?}"),
        }
    }
    fn log_bytes(&self, _: LogSlice) -> &[u8] {
        unreachable!("nothing is in the log")
    }
}

fn split(frame: &[u8]) -> (u8, &[u8]) {
    (frame[0], &frame[1..])
}

/// What leaves, in order.
#[derive(Default)]
struct Seen {
    sent: Vec<(Endpoint, Vec<u8>)>,
    written: Vec<Vec<u8>>,
    /// Endpoints, and whom they stand for.
    routes: Vec<(Endpoint, Endpoint)>,
}

impl Shell for Seen {
    fn send(&mut self, to: Endpoint, head: &[u8], tail: &[u8]) {
        self.sent.push((to, [head, tail].concat()));
    }
    fn write(&mut self, _: FileName, _: u64, bytes: &[u8]) {
        self.written.push(bytes.to_vec());
    }
    fn replace(&mut self, _: FileName, _: &[u8]) {}
    fn truncate(&mut self, _: FileName, _: u64) {}
    fn remove(&mut self, _: FileName) {}
    fn commit(&mut self, _: kasha_types::LocalPosition, _: bool) {}
    fn flush(&mut self) {}
    fn flush_logs(&mut self) {}
    fn route(&mut self, to: Endpoint, _: std::net::SocketAddr) {
        self.routes.push((to, to));
    }
    fn route_as(&mut self, to: Endpoint, who: Endpoint, _: std::net::SocketAddr) {
        self.routes.push((to, who));
    }
    fn disconnect(&mut self, _: Endpoint) {}
    fn stop(&mut self, _: &str) {}
}

struct Both {
    machine: Colocated<Asker, Answerer>,
    effects: Effects,
    held: Held,
    seen: Seen,
}

impl Both {
    fn new() -> Self {
        let mut effects = Effects::new();
        let address = "127.0.0.1:9".parse().expect("an address");
        let machine = Colocated::new(OWN, split, Answerer::default(), &mut effects, |out| {
            for to in [Endpoint::Seed(0), Endpoint::Core(OWN), Endpoint::Core(OTHER)] {
                out.push(Effect::Route { to, address });
            }
            Asker::default()
        });
        Self { machine, effects, held: Held::new(), seen: Seen::default() }
    }

    fn give(&mut self, input: Input<'_>) {
        self.machine.step(Tick(1), input, &mut self.effects);
    }

    fn turn(&mut self) {
        let Self { machine, effects, held, seen } = self;
        turn::finish(Tick(1), machine, effects, held, seen);
        machine.assert_invariants();
    }

    fn turns(&mut self) {
        self.turn();
        while self.machine.next_deadline().is_some() {
            self.turn();
        }
    }

    fn told(&self) -> Vec<String> {
        let to_line = |(to, bytes): &(Endpoint, Vec<u8>)| {
            (*to == Endpoint::Conn(ConnId(7))).then(|| String::from_utf8_lossy(bytes).into_owned())
        };
        self.seen.sent.iter().filter_map(to_line).collect()
    }
}

fn line(bytes: &[u8]) -> Input<'_> {
    Input::Request { from: ConnId(7), bytes, is_whole: true }
}

#[test]
fn a_request_and_its_answer_take_one_turn_and_no_socket() {
    let mut both = Both::new();
    both.give(line(&[0]));
    both.turn();
    assert_eq!(both.told(), ["own 110 [97, 0]"]);
    // The client's peers are seeds to the shell, which knows who must be there; its own core is none.
    let (seed, other) = (Endpoint::Seed(FIRST_PEER), Endpoint::Seed(FIRST_PEER + 1));
    assert_eq!(both.seen.routes, [(seed, seed), (other, Endpoint::Core(OTHER))]);
    assert_eq!(both.seen.sent[0], (other, vec![b'o', 0]));
    both.give(Input::Frame { from: other, kind: 9, payload: &[] });
    both.turn();
    assert_eq!(both.told()[1], "other 9 []");
    // A seed of the node's own is none of them.
    both.give(Input::Frame { from: Endpoint::Seed(1), kind: 9, payload: &[] });
    both.turn();
    assert_eq!(both.told().len(), 2);
}

#[test]
fn d3_what_a_gate_holds_back_stays_in_the_pipe_until_it_opens() {
    let mut both = Both::new();
    both.give(line(&[10]));
    both.give(line(&[18]));
    both.turns();
    assert_eq!(both.told(), Vec::<String>::new());
    both.give(line(&[13]));
    both.turns();
    assert_eq!(both.told(), ["own 110 [103, 10]"]);
    both.give(line(&[21]));
    both.turns();
    assert_eq!(both.told().len(), 2);
}

#[test]
fn r3_1_a_lost_role_drops_what_was_held_before_and_nothing_else() {
    let mut both = Both::new();
    for number in [10, 6, 18, 21] {
        both.give(line(&[number]));
    }
    both.turns();
    assert_eq!(both.told(), ["own 110 [103, 18]"]);
}

#[test]
fn a_question_in_an_answer_is_asked_within_the_turn() {
    let mut both = Both::new();
    both.give(line(&[4]));
    both.turn();
    assert_eq!(both.machine.client().turns, 3, "it asks, asks what the answer says, and is told");
    // 36 asks 8, and so on: a chain is as long as its number allows.
    both.give(line(&[0b1010_0100]));
    both.turns();
    assert!(both.told().len() > 2);
}

#[test]
fn the_turn_of_the_node_ends_once_however_often_frames_go_back_and_forth() {
    let mut both = Both::new();
    for turns in 1..4 {
        both.give(line(&[0b1010_0100]));
        both.turn();
        assert_eq!(
            both.machine.node().turns,
            turns,
            "what it names in this turn stays until the effects are performed"
        );
    }
    assert!(both.machine.client().turns > 6);
}

#[test]
fn what_is_too_much_for_one_turn_goes_on_in_the_next_in_order() {
    let mut both = Both::new();
    let (most, all) = (TURN_BYTES / FRAME_LEAST, 3 * TURN_BYTES / FRAME_LEAST);
    for number in 0..all {
        // Every answer comes at once, and says which question it answers.
        both.give(line(&[u8::try_from(number % 32).expect("small") * 8]));
    }
    let (mut turns, mut told) = (0, 0);
    while turns == 0 || both.machine.next_deadline().is_some() {
        both.turn();
        (turns, told) = (turns + 1, both.told().len());
        assert!(told <= turns * most, "{told} in {turns} turns");
    }
    assert_eq!((told, turns), (all, 6), "each frame counts on both ways");
    let number = |index: usize| index % 32 * 8;
    assert!(both.told().iter().enumerate().all(|(at, told)| *told == format!("own 110 [97, {}]", number(at))));
}

#[test]
fn a_node_that_closes_the_pipe_is_told_and_so_is_the_client() {
    let mut both = Both::new();
    both.give(line(&[10]));
    both.turn();
    both.effects.push(Effect::Disconnect(Endpoint::Conn(PIPE)));
    both.turns();
    assert_eq!(both.told(), ["lost"]);
    assert_eq!(both.machine.node().closed, 1);
    both.give(line(&[13]));
    both.turns();
    assert_eq!(both.told(), ["lost"], "what waited in the pipe is gone with it");
}

/// The same by other means: everything in one queue, and all gated answers in a list, whose gates are looked at when the turn ends.
fn naive(turns: &[Vec<u8>]) -> (Vec<String>, Vec<Vec<u8>>) {
    let (mut node, mut told, mut written) = (Answerer::default(), Vec::new(), Vec::new());
    let mut waiting: Vec<(u64, Vec<u8>)> = Vec::new();
    for numbers in turns {
        let mut asked: VecDeque<u8> = numbers.iter().copied().collect();
        while !asked.is_empty() {
            let mut answers = Vec::new();
            for number in std::mem::take(&mut asked) {
                let mut out = Effects::new();
                let from = Endpoint::Conn(PIPE);
                node.step(Tick(1), Input::Frame { from, kind: b'c', payload: &[number] }, &mut out);
                for &effect in out.queue() {
                    match effect {
                        Effect::Send { head, gate: Gate::Now, .. } => answers.push(out.bytes(head)[1..].to_vec()),
                        Effect::Send { head, .. } => waiting.push((u64::from(number), out.bytes(head)[1..].to_vec())),
                        Effect::DropHeld(_) => waiting.clear(),
                        Effect::Write { .. } => written.push(vec![number]),
                        _ => unreachable!("{effect:?}"),
                    }
                }
            }
            for answer in answers {
                if answer[0] == b'?' {
                    asked.push_back(answer[1]);
                }
                told.push(format!("own 110 {answer:?}"));
            }
        }
        let open = waiting.iter().take_while(|(end, _)| *end <= node.opened).count();
        told.extend(waiting.drain(..open).map(|(_, answer)| format!("own 110 {answer:?}")));
    }
    (told, written)
}

proptest! {
    #[test]
    fn it_does_what_its_naive_twin_does(turns in proptest::collection::vec(
        proptest::collection::vec(any::<u8>(), 0..8), 0..20,
    )) {
        let mut both = Both::new();
        for numbers in &turns {
            for number in numbers {
                both.give(line(&[*number]));
            }
            both.turns();
        }
        let (told, written) = naive(&turns);
        prop_assert_eq!(both.told(), told);
        prop_assert_eq!(&both.seen.written, &written);
    }
}
