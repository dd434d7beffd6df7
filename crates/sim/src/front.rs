//! Fronts that speak the Redis protocol: alone beside the cluster, and in one core with a node.
//!
//! What goes through the pipe between a node and a front in its core is shown to watchers as if it had been sent: a
//! checker of what clients and nodes say to each other need not know of pipes.

use kasha_client::session::{Session, SessionOptions};
use kasha_gateway::limits::{CANCEL_GRACE, COMMAND_DEADLINE};
use kasha_gateway::{RedisFront, RedisOptions};
use kasha_machine::{Colocated, Effect, Effects, Endpoint, Fronted, Gate, Input, Machine, colocated};
use kasha_node::Node;
use kasha_types::{ConnId, CoreId, LogSlice, Tick};
use kasha_wire::frame::split;
use kasha_wire::message::Placement;
use kasha_wire::status::CoreStatus;

use crate::network::ProcessId;
use crate::process::Actor;
use crate::world::{Arrived, Sent, World};

/// The fronts of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fronts {
    /// None.
    Nowhere,
    /// One, in a process of its own.
    Alone,
    /// One in the first core of each node.
    Colocated,
}

/// A front and its session.
pub type Front = Fronted<RedisFront, Session>;

/// A front over a session with these options.
pub fn front(options: SessionOptions, now: Tick, out: &mut Effects) -> Front {
    let options = SessionOptions { deadline: COMMAND_DEADLINE, cancel_grace: CANCEL_GRACE, ..options };
    // Which front makes a database decides: most are spread, so that commands have keys of several shards.
    let placement = if options.seed.is_multiple_of(4) { Placement::OneShard } else { Placement::Spread };
    let of_front = RedisOptions { placement, ..RedisOptions::default() };
    Fronted::new(RedisFront::new(of_front), Session::new(options, now, out))
}

/// A front in one core with a node.
pub type Beside = Colocated<Overheard, Node>;

/// A front in one core with this node.
pub fn beside(own: CoreId, node: Node, options: SessionOptions, now: Tick, out: &mut Effects) -> Beside {
    let options = SessionOptions { beside: Some(own), ..options };
    Colocated::new(own, split, node, out, |out| Overheard { front: front(options, now, out), own })
}

/// To nobody: what was said through a pipe is told in the order of a turn's effects.
pub(crate) const PIPED: Endpoint = Endpoint::Conn(ConnId(u64::MAX));

/// Which way a frame went through a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Way {
    ToNode,
    ToClient,
}

/// A front beside a node, which tells what goes through the pipe.
pub struct Overheard {
    front: Front,
    own: CoreId,
}

fn tell(way: Way, kind: u8, payload: &[u8], out: &mut Effects) {
    let head = out.span(&[&[way as u8, kind], payload].concat());
    out.push(Effect::Send { to: PIPED, head, tail: None, gate: Gate::Now });
}

impl Overheard {
    fn overhear(&mut self, out: &mut Effects, act: impl FnOnce(&mut Front, &mut Effects)) {
        let first = out.queue().len();
        act(&mut self.front, out);
        for index in first..out.queue().len() {
            if let Effect::Send { to: Endpoint::Core(core), head, .. } = out.queue()[index]
                && core == self.own
            {
                let frame = out.bytes(head).to_vec();
                let (kind, payload) = split(&frame);
                tell(Way::ToNode, kind, payload, out);
            }
        }
    }
}

impl Machine for Overheard {
    fn step(&mut self, now: Tick, input: Input<'_>, out: &mut Effects) {
        if let Input::Frame { from: Endpoint::Core(core), kind, payload } = input
            && core == self.own
        {
            tell(Way::ToClient, kind, payload, out);
        }
        self.overhear(out, |front, out| front.step(now, input, out));
    }
    fn end_turn(&mut self, now: Tick, out: &mut Effects) {
        self.overhear(out, |front, out| front.end_turn(now, out));
    }
    fn next_deadline(&self) -> Option<Tick> {
        self.front.next_deadline()
    }
    fn is_open(&self, gate: Gate) -> bool {
        self.front.is_open(gate)
    }
    fn log_bytes(&self, slice: LogSlice) -> &[u8] {
        self.front.log_bytes(slice)
    }
    fn assert_invariants(&self) {
        self.front.assert_invariants();
    }
}

impl World {
    /// Shows watchers a frame that went through the pipe of this process.
    pub(crate) fn piped(&mut self, id: ProcessId, told: &[u8]) {
        let (way, kind, payload) = (told[0], told[1], &told[2..]);
        // Whatever the names are, both stand for this process.
        let (pipe, core) = (Endpoint::Conn(colocated::PIPE), Endpoint::Coordinator);
        let (to, from) = if way == Way::ToClient as u8 { (pipe, core) } else { (core, pipe) };
        self.probes.hit("frames through a pipe");
        let sent = Sent { from: id, to, target: Some(id), kind, payload };
        self.notify(|watcher, view| watcher.sent(&sent, view));
        let arrived = Arrived { at: id, from, kind, payload };
        self.notify(|watcher, view| watcher.arrived(&arrived, view));
    }
}

impl Actor for Front {
    fn machine(&self) -> &dyn Machine {
        self
    }
    fn machine_mut(&mut self) -> &mut dyn Machine {
        self
    }
}

impl Actor for Beside {
    fn machine(&self) -> &dyn Machine {
        self
    }
    fn machine_mut(&mut self) -> &mut dyn Machine {
        self
    }
    fn status(&self) -> Option<CoreStatus> {
        Some(self.node().status(Tick(0)))
    }
    fn replay_equals_state(&self) -> Result<u64, String> {
        self.node().replay_equals_state()
    }
    fn begin_stop(&mut self) {
        self.node_mut().begin_stop();
    }
    fn has_stopped(&self) -> bool {
        self.node().has_stopped()
    }
    fn begin_end(&mut self) {
        self.node_mut().begin_end();
    }
    fn has_ended(&self) -> bool {
        self.node().has_ended()
    }
}
