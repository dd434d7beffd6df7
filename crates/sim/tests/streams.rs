//! Streams of bytes in the simulated world: requests come in order and once, however bad the network is; a stream that breaks loses its
//! end and nothing else; whoever has ended its side is answered still, and told of the end behind the last reply.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use kasha_machine::{Effect, Effects, Endpoint, Gate, Input, Machine, RequestsEnd, Rng};
use kasha_sim::clock::SimTime;
use kasha_sim::intensity::Intensity;
use kasha_sim::network::HostId;
use kasha_sim::process::{Actor, Spawn};
use kasha_sim::world::World;
use kasha_types::{LogSlice, Tick};
use kasha_wire::requests::Request;

const LINES: u64 = 60;
const TO: Endpoint = Endpoint::Seed(0);

/// What a speaker was told.
#[derive(Default)]
struct Heard {
    lines: Vec<u64>,
    /// The line that has not ended.
    rest: Vec<u8>,
    /// The other side has closed the stream.
    is_closed: bool,
    is_over: bool,
}

/// Says the word of every request back, and closes behind the last one.
struct Echo;

/// Says numbers, and then no more.
struct Speaker {
    next: u64,
    next_at: Tick,
    heard: Rc<RefCell<Heard>>,
}

fn send(to: Endpoint, text: &[u8], out: &mut Effects) {
    let head = out.span(text);
    out.push(Effect::Send { to, head, tail: None, gate: Gate::Now });
}

macro_rules! small_machine {
    ($machine:ty, $deadline:expr, $step:expr) => {
        impl Machine for $machine {
            fn step(&mut self, now: Tick, input: Input<'_>, out: &mut Effects) {
                ($step)(self, now, input, out);
            }
            fn end_turn(&mut self, _: Tick, _: &mut Effects) {}
            fn next_deadline(&self) -> Option<Tick> {
                ($deadline)(self)
            }
            fn is_open(&self, _: Gate) -> bool {
                true
            }
            fn log_bytes(&self, _: LogSlice) -> &[u8] {
                unreachable!("no log")
            }
        }
        impl Actor for $machine {
            fn machine(&self) -> &dyn Machine {
                self
            }
            fn machine_mut(&mut self) -> &mut dyn Machine {
                self
            }
        }
    };
}

small_machine!(Echo, |_: &Self| None, |_: &mut Self, _, input: Input<'_>, out: &mut Effects| match input {
    Input::Request { from, bytes, .. } => {
        let word = Request::of_kept(bytes).words().next().expect("a word");
        send(Endpoint::Conn(from), &[word, b"\n"].concat(), out);
    }
    Input::RequestsEnd { from, why: RequestsEnd::HalfClosed } => out.push(Effect::Disconnect(Endpoint::Conn(from))),
    Input::Closed(_) | Input::Tick => {}
    other => unreachable!("{other:?}"),
});

small_machine!(
    Speaker,
    |this: &Self| (this.next <= LINES).then_some(this.next_at),
    |this: &mut Self, now: Tick, input: Input<'_>, out: &mut Effects| match input {
        Input::Frame { from: TO, payload, .. } => {
            let heard = &mut *this.heard.borrow_mut();
            heard.is_closed |= payload.is_empty();
            heard.rest.extend_from_slice(payload);
            while let Some(end) = heard.rest.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = heard.rest.drain(..=end).collect();
                let number = std::str::from_utf8(&line).expect("text").trim().parse().expect("a number");
                heard.lines.push(number);
            }
        }
        Input::Unreachable(TO) => this.heard.borrow_mut().is_over = true,
        Input::Tick if this.next <= LINES => {
            let text = if this.next == LINES { String::new() } else { format!("{}\n", this.next) };
            send(TO, text.as_bytes(), out);
            (this.next, this.next_at) = (this.next + 1, now.after(Duration::from_millis(3)));
        }
        Input::Tick => {}
        other => unreachable!("{other:?}"),
    }
);

fn world(seed: u64, intensity: Intensity) -> (World, HostId, HostId, Rc<RefCell<Heard>>) {
    let at = |last| SocketAddr::from(([10, 0, 0, last], 7000));
    let mut world = World::new(Rng::new(seed), intensity);
    let (server, speaker) = (world.add_host("server"), world.add_host("speaker"));
    let echo = world.add_process(server, "server", at(1), Box::new(|_, _| Ok(Box::new(Echo) as Box<dyn Actor>)));
    world.listen_for_requests(echo, at(2));
    let heard: Rc<RefCell<Heard>> = Rc::default();
    let shared = heard.clone();
    let start = move |spawn: Spawn<'_>, out: &mut Effects| {
        out.push(Effect::Route { to: TO, address: at(2) });
        Ok(Box::new(Speaker { next: 0, next_at: spawn.now, heard: shared.clone() }) as Box<dyn Actor>)
    };
    world.add_process(speaker, "speaker", at(3), Box::new(start));
    world.start(server);
    world.start(speaker);
    (world, server, speaker, heard)
}

fn unkind(seed: u64) -> Intensity {
    Intensity { silent_close: 0, ..Intensity::drawn_network(&mut Rng::new(seed)) }
}

#[test]
fn every_request_is_answered_once_and_in_order_and_then_the_stream_ends() {
    for seed in 0..40 {
        let (mut world, _, _, heard) = world(seed, unkind(seed));
        world.run_until(SimTime(30_000_000_000));
        assert_eq!(world.violations, []);
        assert_eq!(heard.borrow().lines, (0..LINES).collect::<Vec<_>>(), "seed {seed}");
        assert!(heard.borrow().is_closed && heard.borrow().is_over, "seed {seed}");
    }
}

#[test]
fn what_breaks_a_stream_takes_its_end_and_nothing_else() {
    let mut answered = 0;
    for seed in 0..40 {
        let (mut world, server, speaker, heard) = world(seed, unkind(seed));
        world.run_until(SimTime(20_000_000 + seed * 3_000_000));
        if seed % 2 == 0 {
            world.kill(server);
        } else {
            world.network.cut(server, speaker);
        }
        world.run_until(SimTime(30_000_000_000));
        assert_eq!(world.violations, []);
        let Heard { lines, is_over, is_closed, .. } = &*heard.borrow();
        assert!(*is_over && !is_closed, "seed {seed}: nobody has closed it");
        assert_eq!(*lines, (0..lines.len() as u64).collect::<Vec<_>>(), "seed {seed}");
        answered += lines.len();
    }
    assert!(answered > 100, "{answered}");
}
