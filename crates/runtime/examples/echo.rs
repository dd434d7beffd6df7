//! Two loops in one process, one asking the other: prints round trips per second. `echo [seconds] [spin µs] [depth]`.
// A measurement: it reads the clock by design.
#![allow(clippy::disallowed_methods)]

use std::time::Duration;

use kasha_machine::{Effect, Effects, Endpoint, Gate, Input, Machine};
use kasha_runtime::{Application, Clock, Control, EventLoop, LoopOptions, Serve, listen, spawn_loop};
use kasha_types::{LogSlice, Tick};
use kasha_wire::{Kind, frame};

const PAYLOAD: [u8; 112] = [7; 112];

/// Answers every frame with one of its own.
#[derive(Default)]
struct Echo {
    received: u64,
    answers: bool,
}

fn send(out: &mut Effects, to: Endpoint) {
    let mark = out.mark();
    let start = frame::begin(out.arena(), Kind::Read);
    out.arena().extend_from_slice(&PAYLOAD);
    frame::end(out.arena(), start, &[]);
    let head = out.span_from(mark);
    out.push(Effect::Send { to, head, tail: None, gate: Gate::Now });
}

impl Machine for Echo {
    fn step(&mut self, _: Tick, input: Input<'_>, out: &mut Effects) {
        if let Input::Frame { from, .. } = input {
            self.received += 1;
            if self.answers {
                send(out, from);
            }
        }
    }
    fn end_turn(&mut self, _: Tick, _: &mut Effects) {}
    fn next_deadline(&self) -> Option<Tick> {
        None
    }
    fn is_open(&self, _: Gate) -> bool {
        true
    }
    fn log_bytes(&self, _: LogSlice) -> &[u8] {
        &[]
    }
}

/// Keeps `depth` frames under way until the end.
struct Load {
    depth: u64,
    sent: u64,
    end: Tick,
}

impl Application<Echo> for Load {
    fn turn(&mut self, now: Tick, machine: &mut Echo, out: &mut Effects) -> Control {
        if now >= self.end {
            return Control::Exit;
        }
        while self.sent < machine.received + self.depth {
            send(out, Endpoint::Seed(0));
            self.sent += 1;
        }
        Control::Continue
    }
    fn next_wake(&self) -> Option<Tick> {
        Some(self.end)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let seconds = arguments.next().unwrap_or(Ok(2))?;
    let spin = Duration::from_micros(arguments.next().unwrap_or(Ok(20))?);
    let depths = arguments.next().map_or(Ok(vec![1, 16, 128]), |depth| depth.map(|depth| vec![depth]))?;

    let (listener, address) = listen("127.0.0.1:0".parse()?)?;
    let options = LoopOptions { name: "server".into(), listen: vec![listener.into()], spin, ..LoopOptions::default() };
    let mut server = EventLoop::new(options, |_, _, _| Ok(Echo { received: 0, answers: true }))?;
    let handle = server.handle();
    let thread = spawn_loop("server", None, move || server.run(&mut Serve).map(|_| server.turns()))?;
    for depth in depths {
        let options = LoopOptions { name: "client".into(), spin, ..LoopOptions::default() };
        let mut client = EventLoop::new(options, |_, _, out| {
            out.push(Effect::Route { to: Endpoint::Seed(0), address });
            Ok(Echo::default())
        })?;
        let start = Clock::now();
        client.run(&mut Load { depth, sent: 0, end: start.after(Duration::from_secs(seconds)) })?;
        let (trips, elapsed) = (client.machine().received, Clock::now().since(start));
        let rate = trips as f64 / elapsed.as_secs_f64();
        println!("depth {depth:4}: {rate:10.0} round trips per second, {} turns", client.turns());
    }
    handle.stop();
    let turns = thread.join().expect("the server's thread")?;
    println!("server: {turns} turns");
    Ok(())
}
