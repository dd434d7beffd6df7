//! The simulated world by itself, with small machines: it is deterministic, gates hold, and crashes and losses of power
//! have the effects that they should have.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use kasha_machine::{Disk, Effect, Effects, Endpoint, FileName, Gate, Input, Machine, Rng};
use kasha_sim::clock::SimTime;
use kasha_sim::intensity::Intensity;
use kasha_sim::network::HostId;
use kasha_sim::process::{Actor, Spawn};
use kasha_sim::world::World;
use kasha_types::{LocalPosition, LogSlice, ShardId, Tick};
use kasha_wire::frame::{self, Kind};

const COUNT: FileName = FileName::Replica(ShardId(0));

/// A machine that answers every number with its successor when that is fsynced, or asks every 5 ms.
struct Counting {
    number: u64,
    asks: bool,
    next_ask: Tick,
    written: u64,
    durable: u64,
    /// The greatest answer that was received.
    heard: Rc<Cell<u64>>,
}

fn send(out: &mut Effects, to: Endpoint, number: u64, gate: Gate) {
    let mut bytes = Vec::new();
    let start = frame::begin(&mut bytes, Kind::Message);
    bytes.extend_from_slice(&number.to_le_bytes());
    frame::end(&mut bytes, start, &[]);
    let head = out.span(&bytes);
    out.push(Effect::Send { to, head, tail: None, gate });
}

impl Machine for Counting {
    fn step(&mut self, now: Tick, input: Input<'_>, out: &mut Effects) {
        match input {
            Input::Frame { from: from @ Endpoint::Conn(_), payload, .. } => {
                let asked = u64::from_le_bytes(payload.try_into().expect("eight bytes"));
                self.number = self.number.max(asked) + 1;
                self.written += 1;
                let data = out.span(&self.number.to_le_bytes());
                out.push(Effect::Replace { file: COUNT, data });
                out.push(Effect::Commit { to: LocalPosition(self.written), fsync: true });
                send(out, from, self.number, Gate::Durable(LocalPosition(self.written)));
            }
            Input::Frame { payload, .. } => {
                let answer = u64::from_le_bytes(payload.try_into().expect("eight bytes"));
                self.number = self.number.max(answer);
                self.heard.set(self.heard.get().max(answer));
            }
            Input::Durable(to) => self.durable = to.0,
            Input::Tick if self.asks => {
                self.next_ask = now.after(std::time::Duration::from_millis(5));
                send(out, Endpoint::Coordinator, self.number, Gate::Now);
            }
            Input::Closed(_) | Input::Unreachable(_) | Input::LogsFlushed | Input::UnixTime(_) | Input::Tick => {}
            Input::Request { .. } | Input::RequestsEnd { .. } | Input::Backlog { .. } => {
                unreachable!("it listens for frames")
            }
        }
    }
    fn end_turn(&mut self, _now: Tick, _out: &mut Effects) {}
    fn next_deadline(&self) -> Option<Tick> {
        self.asks.then_some(self.next_ask)
    }
    fn is_open(&self, gate: Gate) -> bool {
        matches!(gate, Gate::Durable(to) if to.0 <= self.durable)
    }
    fn log_bytes(&self, _slice: LogSlice) -> &[u8] {
        unreachable!("no log")
    }
}

impl Actor for Counting {
    fn machine(&self) -> &dyn Machine {
        self
    }
    fn machine_mut(&mut self) -> &mut dyn Machine {
        self
    }
}

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 7000))
}

fn spawn(spawn: &Spawn<'_>, asks: bool, heard: Rc<Cell<u64>>) -> Box<dyn Actor> {
    let stored = spawn.disk.read(COUNT).expect("readable").unwrap_or_default();
    let number = stored.try_into().map_or(0, u64::from_le_bytes);
    Box::new(Counting { number, asks, next_ask: spawn.now, written: 0, durable: 0, heard })
}

fn world(seed: u64, intensity: Intensity) -> (World, HostId, HostId) {
    world_of(seed, intensity, &Rc::default())
}

fn world_of(seed: u64, intensity: Intensity, heard: &Rc<Cell<u64>>) -> (World, HostId, HostId) {
    let mut world = World::new(Rng::new(seed), intensity);
    let (server, asker) = (world.add_host("server"), world.add_host("asker"));
    world.add_process(server, "server", address(1), Box::new(|start, _| Ok(spawn(&start, false, Rc::default()))));
    let heard = heard.clone();
    let asker_factory = move |start: Spawn<'_>, out: &mut Effects| {
        out.push(Effect::Route { to: Endpoint::Coordinator, address: address(1) });
        Ok(spawn(&start, true, heard.clone()))
    };
    world.add_process(asker, "asker", address(2), Box::new(asker_factory));
    world.start(server);
    world.start(asker);
    (world, server, asker)
}

fn stored(world: &World) -> u64 {
    let bytes = world.processes()[0].disk.read(COUNT).expect("readable").unwrap_or_default();
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

#[test]
fn one_seed_is_one_run() {
    let digest = |seed| {
        let (mut world, server, _) = world(seed, Intensity::drawn_network(&mut Rng::new(seed)));
        world.run_until(SimTime(500_000_000));
        world.lose_power(server);
        world.start(server);
        world.run_until(SimTime(1_000_000_000));
        assert_eq!(world.violations, []);
        world.digest
    };
    for seed in 0..20 {
        assert_eq!(digest(seed), digest(seed));
        assert_ne!(digest(seed), digest(seed + 1));
    }
}

#[test]
fn what_was_answered_behind_a_gate_survives_a_loss_of_power() {
    for seed in 0..50 {
        let heard = Rc::default();
        let (mut world, server, asker) = world_of(seed, Intensity::drawn_network(&mut Rng::new(seed)), &heard);
        for round in 1..20 {
            world.run_until(SimTime(round * 31_000_000 + seed * 1000));
            world.lose_power(server);
            world.kill(asker);
            world.start(server);
            world.start(asker);
            assert!(stored(&world) >= heard.get(), "seed {seed}: {} was answered", heard.get());
        }
        assert_eq!(world.violations, []);
        assert!(heard.get() > 20, "seed {seed}: {} says little", heard.get());
    }
}

#[test]
fn a_crash_keeps_what_was_written() {
    let (mut world, server, _) = world(1, Intensity::calm());
    world.run_until(SimTime(100_000_000));
    let before = stored(&world);
    assert!(before > 5, "{before}");
    world.kill(server);
    assert!(!world.is_up(server));
    assert_eq!(stored(&world), before);
}

#[test]
fn a_stopped_process_hears_later_and_a_cut_one_never() {
    let (mut world, server, asker) = world(1, Intensity::calm());
    world.run_until(SimTime(100_000_000));
    world.pause(server);
    let before = stored(&world);
    world.run_until(SimTime(200_000_000));
    assert_eq!(stored(&world), before);
    world.resume(server);
    world.run_until(SimTime(201_000_000));
    assert!(stored(&world) >= before + 15, "all that was asked meanwhile");
    world.network.cut(asker, server);
    world.run_until(SimTime(210_000_000));
    let before = stored(&world);
    world.run_until(SimTime(300_000_000));
    assert_eq!(stored(&world), before);
    world.network.join_all();
    world.run_until(SimTime(400_000_000));
    assert!(stored(&world) > before);
}
