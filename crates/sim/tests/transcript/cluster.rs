//! All hosts, a network that moves nothing by itself, and one clock. A connection belongs to one life of each of its
//! ends: frames that were sent to a dead process are lost.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use kasha_coordinator::{Coordinator, CoordinatorOptions};
use kasha_machine::{Effects, Endpoint, FileName, Gate, Held, Input, Rng, turn};
use kasha_node::{Node, NodeOptions};
use kasha_types::{BootId, ClusterId, ConnId, CoreId, Incarnation, NodeId, Tick};
use kasha_wire::frame::FRAME_HEADER_BYTES;

use super::host::{Host, HostShell, Party, Running, Watched};

const CLUSTER: ClusterId = ClusterId(7);
/// So long that the rounds of a script fit into one lease.
const LEASE: Duration = Duration::from_secs(2);
/// Rounds of one turn in which commits are reported. A machine that needs more spins.
const ROUNDS_MAX: usize = 100;

/// One connection: which life dialled which other one, by which name.
struct Connection {
    dialer: (Party, u64),
    acceptor: (Party, u64),
    name: Endpoint,
}

/// A frame that is under way.
#[derive(Clone)]
pub struct Letter {
    pub from: Party,
    pub to: Party,
    pub kind: u8,
    pub payload: Vec<u8>,
    connection: usize,
}

/// What a turn did, for the transcript.
#[derive(Default)]
pub struct Turn {
    pub files: Vec<(FileName, bool)>,
    pub sent: Vec<Letter>,
    pub waits: Vec<(Party, Gate, Vec<u8>)>,
    pub loses_role: bool,
    pub stopped: Option<String>,
}

pub struct Shape {
    pub nodes: u16,
    pub coordinator: CoordinatorOptions,
    pub segment_bytes: u32,
}

pub struct Cluster {
    pub now: Tick,
    pub hosts: BTreeMap<Party, Host>,
    pub network: VecDeque<Letter>,
    connections: Vec<Connection>,
    shape: Shape,
}

fn address() -> std::net::SocketAddr {
    ([127, 0, 0, 1], 1).into()
}

impl Shape {
    pub fn new(nodes: u16, faults: u8) -> Self {
        // A silent node has died: scripts leave frames out, and close no connection.
        let coordinator = CoordinatorOptions {
            node_lease: LEASE,
            drift_bound: LEASE / 20,
            trusts_connections: false,
            ..CoordinatorOptions::new(CLUSTER, nodes, 1, faults, address())
        };
        Self { nodes, coordinator, segment_bytes: 1 << 16 }
    }
}

impl Cluster {
    /// All hosts, none of them started.
    pub fn new(shape: Shape) -> Self {
        let parties = (1..=shape.nodes).map(Party::Node).chain([Party::Coordinator]);
        let hosts = parties.map(|party| (party, Host::new())).collect();
        Self { now: Tick(1_000_000_000), hosts, network: VecDeque::new(), connections: Vec::new(), shape }
    }

    pub fn host(&mut self, party: Party) -> &mut Host {
        self.hosts.get_mut(&party).unwrap_or_else(|| panic!("there is no {party}"))
    }

    /// Starts a process from its files. An error has a text for the operator.
    pub fn start(&mut self, party: Party) -> Result<Turn, String> {
        let now = self.now;
        let shape = (self.shape.segment_bytes, self.shape.coordinator.clone());
        let host = self.host(party);
        assert!(host.running.is_none(), "{party} runs");
        host.life += 1;
        host.disk.settle(); // what a process reads is durable (`kasha_machine::Disk`)
        let mut out = Effects::new();
        let running = match party {
            Party::Coordinator => Coordinator::start(shape.1, &host.disk, now, &mut out)
                .map(|machine| Running::Coordinator(Box::new(machine)))
                .map_err(|error| error.to_string())?,
            Party::Node(node) => {
                let core = CoreId { node: NodeId(node), core: 0 };
                let options = NodeOptions {
                    incarnation: Incarnation::new(u32::try_from(host.life).expect("few"), u32::from(node)),
                    boot: BootId(host.boot),
                    segment_bytes: shape.0,
                    replica_memory_max_bytes: u64::from(shape.0) * 64,
                    witness_slots: 64,
                    heartbeat: LEASE / 8,
                    client_lease_millis: shape.1.client_lease_millis,
                    ..NodeOptions::new(CLUSTER, core, vec![address()], address())
                };
                Node::start(options, &host.disk, now, &mut out)
                    .map(|machine| Running::Node(Box::new(machine)))
                    .map_err(|error| error.to_string())?
            }
            Party::Client(_) => panic!("clients are the script's"),
        };
        host.running = Some(running);
        Ok(self.end_turn(party, out))
    }

    /// Kills a process. Its files stay as the page cache has them.
    pub fn kill(&mut self, party: Party) {
        let host = self.host(party);
        (host.running, host.held, host.frozen) = (None, Held::new(), false);
        host.commits.clear();
        host.flushing_logs = None;
    }

    /// The machine loses power: everything that was not fsynced is gone, and the next boot is another one.
    pub fn lose_power(&mut self, party: Party) {
        self.kill(party);
        let host = self.host(party);
        // A draw that keeps nothing is the worst case, and the same in each run.
        let mut nothing = (0..).map(Rng::new).find(|rng| rng.clone().below(4) == 0).expect("one in four");
        host.disk.lose_power(&mut nothing);
        host.boot += 1;
    }

    /// Gives a process an input, or lets only time pass.
    fn step(&mut self, party: Party, input: Input<'_>) -> Turn {
        let mut out = Effects::new();
        let now = self.now;
        self.host(party).running.as_mut().expect("it runs").machine().step(now, input, &mut out);
        self.end_turn(party, out)
    }

    fn end_turn(&mut self, party: Party, mut out: Effects) -> Turn {
        let now = self.now;
        let host = self.host(party);
        let mut running = host.running.take().expect("it runs");
        let mut held = std::mem::take(&mut host.held);
        let slow = host.slow_disk;
        let (mut sent, mut turn, mut gated) = (Vec::new(), Turn::default(), Vec::new());
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "{party}: a turn that does not end");
            let host = self.host(party);
            let (disk, files) = (&mut host.disk, std::mem::take(&mut turn.files));
            let mut shell = HostShell {
                disk,
                sent: Vec::new(),
                files,
                commits: Vec::new(),
                flushes: false,
                flushes_logs: None,
                stopped: None,
            };
            let holds = !held.is_empty();
            let mut machine = Watched { machine: running.machine(), gated: Vec::new(), loses_role: false };
            turn::finish(now, &mut machine, &mut out, &mut held, &mut shell);
            turn.loses_role |= machine.loses_role && holds;
            gated.append(&mut machine.gated);
            sent.append(&mut shell.sent);
            turn.files = shell.files;
            turn.stopped = turn.stopped.or(shell.stopped);
            let (commits, flushes, flushes_logs) = (shell.commits, shell.flushes, shell.flushes_logs);
            host.commits.extend(commits);
            host.flushing_logs = flushes_logs.or(host.flushing_logs);
            if flushes && !slow {
                let all = host.disk.mark();
                host.disk.synced(all);
            }
            if !host.report_commits(&mut running, now, slow, &mut out) {
                break;
            }
        }
        running.machine().assert_invariants();
        gated.retain(|(_, gate, _)| !running.machine().is_open(*gate));
        let host = self.host(party);
        (host.held, host.running) = (held, Some(running));
        for (to, bytes) in sent {
            if let Some(letter) = self.letter(party, to, &bytes) {
                self.network.push_back(letter.clone());
                turn.sent.push(letter);
            }
        }
        turn.waits = (gated.into_iter())
            .filter_map(|(to, gate, bytes)| self.letter(party, to, &bytes).map(|letter| (letter.to, gate, bytes)))
            .collect();
        if turn.stopped.is_some() {
            self.kill(party);
        }
        turn
    }

    fn life(&self, party: Party) -> u64 {
        self.hosts.get(&party).map_or(1, |host| host.life)
    }

    /// A frame for an endpoint, on the connection that it names; `None`: that connection is gone.
    fn letter(&mut self, from: Party, to: Endpoint, frame: &[u8]) -> Option<Letter> {
        let dialer = (from, self.life(from));
        let dialed = match to {
            Endpoint::Conn(_) => None,
            Endpoint::Core(core) => Some(Party::Node(core.node.0)),
            Endpoint::Coordinator | Endpoint::Member(_) => Some(Party::Coordinator),
            Endpoint::Seed(_) => unreachable!("only sessions have seeds"),
        };
        let (connection, to) = match (to, dialed) {
            (Endpoint::Conn(ConnId(id)), _) => {
                let index = usize::try_from(id).expect("few") - 1;
                let connection = &self.connections[index];
                assert_eq!(connection.acceptor, dialer, "a process names its own connections");
                (index, connection.dialer.0)
            }
            (name, Some(party)) => {
                let acceptor = (party, self.life(party));
                let is_it = |c: &Connection| c.dialer == dialer && c.acceptor == acceptor;
                let known = self.connections.iter().position(is_it);
                let index = known.unwrap_or_else(|| {
                    self.connections.push(Connection { dialer, acceptor, name });
                    self.connections.len() - 1
                });
                (index, party)
            }
            (_, None) => unreachable!("only accepted connections have no party"),
        };
        let payload = frame[FRAME_HEADER_BYTES..].to_vec();
        let letter = Letter { from, to, kind: frame[12], payload, connection };
        self.reaches(&letter).then_some(letter)
    }

    /// Sends a client's frame.
    pub fn send(&mut self, client: u16, to: Party, frame: &[u8]) -> Option<Letter> {
        let to = match to {
            Party::Coordinator => Endpoint::Coordinator,
            Party::Node(node) => Endpoint::Core(CoreId { node: NodeId(node), core: 0 }),
            Party::Client(_) => panic!("clients do not talk to each other"),
        };
        let letter = self.letter(Party::Client(client), to, frame);
        self.network.extend(letter.clone());
        letter
    }

    /// Whether the process that a frame is for still lives.
    pub fn reaches(&self, letter: &Letter) -> bool {
        let connection = &self.connections[letter.connection];
        let (to, life) = if connection.dialer.0 == letter.to { connection.dialer } else { connection.acceptor };
        self.life(to) == life && self.hosts.get(&to).is_none_or(|host| host.running.is_some())
    }

    /// A frame arrives at a machine.
    pub fn arrive(&mut self, letter: &Letter) -> Turn {
        let connection = &self.connections[letter.connection];
        let from = match connection.dialer.0 == letter.to {
            true => connection.name,
            false => Endpoint::Conn(ConnId(letter.connection as u64 + 1)),
        };
        self.step(letter.to, Input::Frame { from, kind: letter.kind, payload: &letter.payload })
    }

    /// Every machine whose deadline is reached has a turn.
    pub fn tick(&mut self) -> Vec<(Party, Turn)> {
        let (now, mut turns) = (self.now, Vec::new());
        for _ in 0..ROUNDS_MAX {
            let due = |(&party, host): (&Party, &Host)| {
                let deadline = host.running.as_ref().filter(|_| !host.frozen)?.next_deadline()?;
                (deadline <= now).then_some(party)
            };
            let due: Vec<Party> = self.hosts.iter().filter_map(due).collect();
            if due.is_empty() {
                return turns;
            }
            turns.extend(due.into_iter().map(|party| (party, self.step(party, Input::Tick))));
        }
        panic!("somebody's deadline does not pass")
    }

    /// Lets time pass to the next deadline, at most to `until`.
    pub fn pass(&mut self, until: Tick) -> Vec<(Party, Turn)> {
        let alive = self.hosts.values().filter(|host| !host.frozen);
        let next = alive.filter_map(|host| host.running.as_ref()?.next_deadline()).min();
        self.now = next.unwrap_or(until).clamp(self.now, until);
        self.tick()
    }

    /// The fsyncs that wait are done.
    pub fn fsync(&mut self, party: Party) -> Turn {
        let now = self.now;
        let host = self.host(party);
        let mut running = host.running.take().expect("it runs");
        let mut out = Effects::new();
        host.report_commits(&mut running, now, false, &mut out);
        host.running = Some(running);
        self.end_turn(party, out)
    }

    pub fn segment_bytes(&self) -> u64 {
        u64::from(self.shape.segment_bytes)
    }

    pub fn after(&self, time: Duration) -> Tick {
        self.now.after(time)
    }
}
