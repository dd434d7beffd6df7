//! Dialled connections: lazily made, lost, made again, and never to the wrong core.
#![allow(clippy::disallowed_methods)]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{CLUSTER, CORE, Echo, Server, send};
use kasha_machine::{Effect, Effects, Endpoint, Gate, Input, Machine};
use kasha_runtime::{Application, Control, EventLoop, Exit, Identity, LoopError, LoopOptions, Names, Resolver, listen};
use kasha_types::{CoreId, LogSlice, NodeId, Tick};
use kasha_wire::{Message, WireVersion, WireVersions, message};

/// Keeps what came.
#[derive(Default)]
struct Sink {
    got: Vec<Vec<u8>>,
    unreachable: Vec<Endpoint>,
}

impl Machine for Sink {
    fn step(&mut self, _: Tick, input: Input<'_>, _: &mut Effects) {
        match input {
            Input::Frame { payload, .. } => self.got.push(payload.to_vec()),
            Input::Unreachable(peer) => self.unreachable.push(peer),
            Input::Closed(_) | Input::Durable(_) | Input::LogsFlushed | Input::UnixTime(_) | Input::Tick => {}
            Input::Request { .. } | Input::RequestsEnd { .. } | Input::Backlog { .. } => {
                unreachable!("it listens to nobody")
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

/// Sends the numbers to a peer until that many have come back, again every few milliseconds.
struct Ask {
    to: Endpoint,
    until: usize,
    unreachable_until: usize,
    next: Tick,
}

impl Ask {
    fn answers(to: Endpoint, until: usize) -> Self {
        Self { to, until, unreachable_until: usize::MAX, next: Tick(0) }
    }
    fn failures(to: Endpoint, unreachable_until: usize) -> Self {
        Self { to, until: usize::MAX, unreachable_until, next: Tick(0) }
    }
}

impl Application<Sink> for Ask {
    fn turn(&mut self, now: Tick, machine: &mut Sink, out: &mut Effects) -> Control {
        if machine.got.len() >= self.until || machine.unreachable.len() >= self.unreachable_until {
            return Control::Exit;
        }
        if now >= self.next {
            self.next = now.after(Duration::from_millis(3));
            send(out, self.to, b"ask", Gate::Now);
        }
        Control::Continue
    }
    fn next_wake(&self) -> Option<Tick> {
        Some(self.next)
    }
}

fn client(to: Endpoint, address: SocketAddr) -> EventLoop<Sink> {
    EventLoop::new(LoopOptions { spin: Duration::from_micros(20), ..LoopOptions::default() }, |_, _, out| {
        out.push(Effect::Route { to, address });
        Ok(Sink::default())
    })
    .unwrap()
}

#[test]
fn a_peer_is_dialled_when_needed_and_again_after_its_restart() {
    let to = Endpoint::Core(CORE);
    let first = Server::start(LoopOptions::default(), |_| Echo::new());
    let address = first.address;
    let mut this = client(to, address);
    assert_eq!(this.run(&mut Ask::answers(to, 20)).unwrap(), Exit::Application);
    assert_eq!(this.stats().dialled, 1);
    first.stop();
    assert_eq!(this.run(&mut Ask::failures(to, 3)).unwrap(), Exit::Application);
    assert_eq!(this.machine().unreachable[0], to);
    let before = this.machine().got.len();
    let second = Server::start_at(address, LoopOptions::default(), |_| Echo::new());
    this.run(&mut Ask::answers(to, before + 20)).unwrap();
    assert!(this.machine().got.iter().all(|got| got == b"ask"));
    second.stop();
}

/// What waits for the answer to the greeting goes in the version that is agreed on then, and so does what is sent later.
#[test]
fn a_peer_is_spoken_to_in_a_version_that_it_understands() {
    let to = Endpoint::Core(CORE);
    let speaking = |least, latest| {
        let versions = WireVersions::new(WireVersion(least), WireVersion(latest)).unwrap();
        Identity { versions, ..crate::support::server_identity() }
    };
    let anywhere = "127.0.0.1:0".parse().unwrap();
    let server = Server::start_as(speaking(12, 13), anywhere, LoopOptions::default(), |_| Echo::new());
    let address = server.address;
    let identity = Identity { core: None, ..speaking(11, 12) };
    let mut this = EventLoop::new(LoopOptions { identity, ..LoopOptions::default() }, |_, _, out| {
        out.push(Effect::Route { to, address });
        Ok(Sink::default())
    })
    .unwrap();
    this.run(&mut Ask::answers(to, 20)).unwrap();
    assert!(this.machine().got.iter().all(|got| got == b"ask"));
    assert_eq!((this.stats().dialled, this.stats().bad_frames), (1, 0));
    let stats = server.stop();
    assert_eq!((stats.refused, stats.bad_frames), (0, 0));
}

#[test]
fn the_wrong_core_gets_nothing() {
    let to = Endpoint::Core(CoreId { node: NodeId(2), core: 0 });
    let server = Server::start(LoopOptions::default(), |_| Echo::new());
    let mut this = client(to, server.address);
    this.run(&mut Ask::failures(to, 2)).unwrap();
    assert_eq!(this.machine().got.len(), 0);
    let stats = server.stop();
    assert_eq!((stats.frames_received, stats.refused > 0), (0, true));
}

#[test]
fn who_stands_for_a_core_must_be_that_core() {
    let server = Server::start(LoopOptions::default(), |_| Echo::new());
    let (to, address) = (Endpoint::Seed(3), server.address);
    for (who, is_there) in [(CoreId { node: NodeId(2), core: 0 }, false), (CORE, true)] {
        let mut this = EventLoop::new(LoopOptions::default(), |_, _, out| {
            out.push(Effect::RouteAs { to, who: Endpoint::Core(who), address });
            Ok(Sink::default())
        })
        .unwrap();
        this.run(&mut if is_there { Ask::answers(to, 2) } else { Ask::failures(to, 2) }).unwrap();
        assert_eq!(!this.machine().got.is_empty(), is_there);
        assert!(this.machine().unreachable.iter().all(|&lost| lost == to));
    }
    assert!(server.stop().refused > 0);
}

#[test]
fn a_seed_tells_the_cluster_and_a_new_route_moves_the_connection() {
    let to = Endpoint::Seed(0);
    let (one, two) = (
        Server::start(LoopOptions::default(), |_| Echo::new()),
        Server::start(LoopOptions::default(), |_| Echo { times: 2, ..Echo::new() }),
    );
    let options = LoopOptions::default();
    let cluster = options.identity.cluster.clone();
    let mut this = EventLoop::new(options, |_, _, out| {
        out.push(Effect::Route { to, address: one.address });
        Ok(Sink::default())
    })
    .unwrap();
    this.run(&mut Ask::answers(to, 3)).unwrap();
    assert_eq!(cluster.get(), CLUSTER);
    struct Move(SocketAddr, Ask);
    impl Application<Sink> for Move {
        fn turn(&mut self, now: Tick, machine: &mut Sink, out: &mut Effects) -> Control {
            out.push(Effect::Route { to: self.1.to, address: self.0 });
            self.1.turn(now, machine, out)
        }
        fn next_wake(&self) -> Option<Tick> {
            self.1.next_wake()
        }
    }
    let before = this.machine().got.len();
    this.run(&mut Move(two.address, Ask::answers(to, before + 3))).unwrap();
    assert_eq!(this.machine().got.last().unwrap(), b"askask");
    assert_eq!(this.machine().unreachable, [to], "what was on its way may be lost");
    one.stop();
    two.stop();
}

#[test]
fn who_listens_but_never_answers_is_given_up_and_little_is_kept_for_him() {
    let (silent, address) = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let to = Endpoint::Coordinator;
    let mut options = LoopOptions::default();
    options.limits.handshake = Duration::from_millis(100);
    let mut this = EventLoop::new(options, |_, _, out| {
        out.push(Effect::Route { to, address });
        Ok(Sink::default())
    })
    .unwrap();
    this.run(&mut Ask::failures(to, 2)).unwrap();
    assert!(this.machine().got.is_empty());
    assert_eq!(this.stats().dialled, 2);
    drop(silent);
}

/// A name that nobody knows yet, then one of a stranger, then one of twenty addresses, then one that has moved: the peer is found
/// each time, and a look-up that fails or hangs takes nothing away.
#[test]
fn a_named_peer_is_found_wherever_its_name_leads_when_it_is_dialled() {
    let to = Endpoint::Core(CORE);
    let one = Server::start(LoopOptions::default(), |_| Echo::new());
    let other = Identity { core: Some(CoreId { node: NodeId(2), core: 0 }), ..crate::support::server_identity() };
    let anywhere = "127.0.0.1:0".parse().unwrap();
    let stranger = Server::start_as(other, anywhere, LoopOptions::default(), |_| Echo::new());
    let gone: Vec<SocketAddr> = (1..=18).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect();
    let answers: Arc<Mutex<Option<Vec<SocketAddr>>>> = Arc::default();
    let known = Arc::clone(&answers);
    let resolver = Resolver::start(move |name| {
        assert_eq!(name, "node-1.example:7400");
        known.lock().unwrap().clone().ok_or(std::io::ErrorKind::NotFound.into())
    });
    let names = Names { resolver: resolver.unwrap(), of: vec![(to, "node-1.example:7400".into())] };
    let options = LoopOptions { names: Some(names), spin: Duration::from_micros(20), ..LoopOptions::default() };
    let mut this = EventLoop::new(options, |_, _, _| Ok(Sink::default())).unwrap();
    let say = |addresses: Option<Vec<SocketAddr>>| *answers.lock().unwrap() = addresses;
    this.run(&mut Ask::failures(to, 1)).unwrap();
    say(Some(vec![stranger.address]));
    this.run(&mut Ask::failures(to, 3)).unwrap();
    assert_eq!(this.machine().got.len(), 0, "a stranger is not talked to");
    say(Some([&gone[..9], &[stranger.address, one.address], &gone[9..]].concat()));
    this.run(&mut Ask::answers(to, 20)).unwrap();
    say(None);
    one.stop();
    let (failed, got) = (this.machine().unreachable.len(), this.machine().got.len());
    this.run(&mut Ask::failures(to, failed + 3)).unwrap();
    let two = Server::start(LoopOptions::default(), |_| Echo::new());
    say(Some(vec![two.address]));
    this.run(&mut Ask::answers(to, got + 20)).unwrap();
    stranger.stop();
    two.stop();
}

/// Says goodbye to whoever asks, but answers as many first.
struct Refuse {
    answers: usize,
}

impl Machine for Refuse {
    fn step(&mut self, _: Tick, input: Input<'_>, out: &mut Effects) {
        let Input::Frame { from, .. } = input else { return };
        if self.answers > 0 {
            self.answers -= 1;
            return send(out, from, b"answer", Gate::Now);
        }
        let mark = out.mark();
        message::Goodbye { reason: "your number is taken".into() }.encode(out.arena());
        let head = out.span_from(mark);
        out.push(Effect::Send { to: from, head, tail: None, gate: Gate::Now });
        out.push(Effect::Disconnect(from));
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

#[test]
fn a_process_that_the_coordinator_does_not_want_ends_and_says_why() {
    let identity = Identity { core: None, ..crate::support::server_identity() };
    let address = "127.0.0.1:0".parse().unwrap();
    let server = Server::start_as(identity, address, LoopOptions::default(), |_| Refuse { answers: 2 });
    let mut this = client(Endpoint::Coordinator, server.address);
    let error = this.run(&mut Ask::answers(Endpoint::Coordinator, usize::MAX)).unwrap_err();
    assert!(matches!(&error, LoopError::Refused(why) if why == "your number is taken"), "{error}");
    assert_eq!(this.stats().dialled, 3, "one goodbye may be a mistake");
    assert_eq!(this.machine().got.len(), 2);
    server.stop();
}
