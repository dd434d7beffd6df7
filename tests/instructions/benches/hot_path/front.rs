//! A front beside a node, in one core, and a coordinator: programs that speak the Redis protocol.
//!
//! As in a rehearsal, the load is played once, uncounted, and the counted core is given the same turns.

use kasha_client::session::{Session, SessionOptions};
use kasha_coordinator::{Coordinator, CoordinatorOptions};
use kasha_gateway::limits::{CANCEL_GRACE, COMMAND_DEADLINE};
use kasha_gateway::{RedisFront, RedisOptions};
use kasha_machine::colocated::FIRST_PEER;
use kasha_machine::{Colocated, Effects, Endpoint, Fronted};
use kasha_node::Node;
use kasha_types::{ClusterId, ConnId, CoreId, NodeId, Tick};
use kasha_wire::frame;

use crate::core::{Core, FIRST_REQUESTER, NoFiles, Turn, address, node};
use crate::load::KEYS;

/// A core with a front.
pub type Both = Colocated<Fronted<RedisFront, Session>, Node>;

/// The time of a turn: far below what causes a heartbeat.
const TURN_NANOS: u64 = 20_000;
/// Until the cluster serves, and the front has its table and its identity.
const SETTLING_NANOS: u64 = 5_000_000;
const SETTLING_TURNS: u32 = 400;
/// Where the coordinator hears the node; behind it, the peers of the front.
const NODE: ConnId = ConnId(1);

/// This number shares no divisor with `KEYS`: a walk in such steps meets each key once.
const STEP: u64 = 7919;
const VALUE: [u8; 100] = [b'v'; 100];

/// What programs send.
#[derive(Clone, Copy)]
pub enum Command {
    Set,
    Get,
}

impl Command {
    fn nth(self, n: u64) -> Vec<u8> {
        let key = format!("user{:012}", n * STEP % KEYS);
        let words: &[&[u8]] = match self {
            Self::Set => &[b"SET", key.as_bytes(), &VALUE],
            Self::Get => &[b"GET", key.as_bytes()],
        };
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    }

    /// Bytes of its reply.
    pub fn reply_bytes(self) -> u64 {
        match self {
            Self::Set => "+OK\r\n".len() as u64,
            Self::Get => ("$100\r\n".len() + VALUE.len() + "\r\n".len()) as u64,
        }
    }
}

pub fn core() -> Core<Both> {
    let own = CoreId { node: NodeId(1), core: 0 };
    let front = |out: &mut Effects| {
        let options = SessionOptions {
            deadline: COMMAND_DEADLINE,
            cancel_grace: CANCEL_GRACE,
            beside: Some(own),
            ..SessionOptions::new(vec![address()], 1)
        };
        Fronted::new(RedisFront::new(RedisOptions::default()), Session::new(options, Tick(1), out))
    };
    Core::of(|effects| {
        let node = node(own.node, effects);
        Colocated::new(own, frame::split, node, effects, front)
    })
}

/// A cluster of one such core and a coordinator.
pub struct Programs {
    core: Core<Both>,
    coordinator: Core<Coordinator>,
    arriving: Vec<(Endpoint, Vec<u8>)>,
    turns: Vec<Turn>,
    now: Tick,
}

impl Programs {
    /// A cluster in which every key is written.
    pub fn warm() -> Self {
        let coordinator = Core::of(|effects| {
            let options = CoordinatorOptions::new(ClusterId(1), 1, 1, 0, address());
            Coordinator::start(options, &NoFiles, Tick(1), effects).expect("there are no files to refuse")
        });
        let (mut core, now) = (core(), Tick(1_000_000_000));
        core.sink.kept = Some(Vec::new());
        let mut this = Self { core, coordinator, arriving: Vec::new(), turns: Vec::new(), now };
        this.coordinator.sink.kept = Some(Vec::new());
        this.settle();
        this.send(Command::Set, KEYS, 16);
        this.settle();
        assert_eq!(this.core.sink.reply_bytes, KEYS * Command::Set.reply_bytes(), "every key is written");
        this
    }

    fn settle(&mut self) {
        (0..SETTLING_TURNS).for_each(|_| self.turn(SETTLING_NANOS, Vec::new()));
    }

    /// One program sends so many commands, `batch` at once.
    pub fn send(&mut self, command: Command, count: u64, batch: u64) {
        for first in (0..count).step_by(usize::try_from(batch).expect("few")) {
            let bytes = (first..(first + batch).min(count)).flat_map(|n| command.nth(n)).collect();
            self.turn(TURN_NANOS, vec![(FIRST_REQUESTER, bytes)]);
        }
    }

    /// The turns of the core so far.
    pub fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// The core and the coordinator have a turn. Frames that are sent in it arrive in the core's next one.
    fn turn(&mut self, nanos: u64, requests: Vec<(ConnId, Vec<u8>)>) {
        self.now = Tick(self.now.0 + nanos);
        let turn = Turn { now: self.now, received: std::mem::take(&mut self.arriving), requests };
        self.core.turn(&turn);
        self.turns.push(turn);
        let sent = self.core.sink.kept.iter_mut().flat_map(|kept| kept.drain(..));
        let received = sent.map(|(to, frame)| match to {
            Endpoint::Coordinator => (Endpoint::Conn(NODE), frame),
            Endpoint::Seed(peer @ FIRST_PEER..) => {
                (Endpoint::Conn(ConnId(NODE.0 + 1 + u64::from(peer - FIRST_PEER))), frame)
            }
            other => panic!("a cluster of one core sends nothing to {other:?}"),
        });
        let turn = Turn { now: self.now, received: received.collect(), requests: Vec::new() };
        self.coordinator.turn(&turn);
        for (to, frame) in self.coordinator.sink.kept.iter_mut().flat_map(|kept| kept.drain(..)) {
            let Endpoint::Conn(conn) = to else { panic!("a coordinator alone dials nobody: {to:?}") };
            let from = match conn.0 - NODE.0 {
                0 => Endpoint::Coordinator,
                peer => Endpoint::Seed(FIRST_PEER + u16::try_from(peer - 1).expect("few")),
            };
            self.arriving.push((from, frame));
        }
    }
}
