//! A cluster that plays a load once, uncounted, and writes down the inputs of each core.
//!
//! A core is a deterministic machine: another core that is given the same turns does the same. So the counted core
//! receives the acknowledgements of a member and the gcs of a primary at the moments when they come in production, and
//! nothing but the core itself runs while it is counted.

use kasha_machine::Endpoint;
use kasha_types::{ClientId, ClusterId, ClusterTime, ConfigVersion, CoreId, Incarnation, NodeId, Slot, Tick, limits};
use kasha_wire::frame::Kind;
use kasha_wire::{
    Configuration, Durability, Member, MemberState, Message, NodeInfo, ShardConfig, ShardPhase, TableInfo, Tablet,
    message,
};

use crate::core::{Core, Turn, address};
use crate::load::{EPOCH, HALF, KEYS, LIST, Nth, OTHER, Operation, SHARD, TABLE};

/// The time of a turn: far below what causes a heartbeat, or a sync that nobody waits for.
const TURN_NANOS: u64 = 20_000;

/// Turns of 10 ms until members are attached and witnesses are in service.
const SETTLING_TURNS: u32 = 40;
const SETTLING_NANOS: u64 = 10_000_000;
/// The time of a turn in which a flush may be due.
const FLUSHING_NANOS: u64 = 1_000_000;

/// Operations of one turn while keys are written for the first time.
const WARM_BATCH: u64 = 64;

/// What the nodes of a cluster are for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// A primary.
    Alone,
    /// A primary, and its backup and witness.
    Replicated,
    /// The primaries of two shards, without backups.
    TwoShards,
}

impl Layout {
    fn nodes(self) -> u16 {
        if self == Self::Alone { 1 } else { 2 }
    }

    fn faults(self) -> u8 {
        u8::from(self == Self::Replicated)
    }
}

/// The cluster. Node 1 is a primary; what node 2 is, if there is one, the layout says.
pub struct Rehearsal {
    cores: Vec<Core>,
    /// The frames that each core will receive in its next turn.
    arriving: Vec<Vec<(Endpoint, Vec<u8>)>>,
    /// The inputs of each core so far.
    turns: Vec<Vec<Turn>>,
    now: Tick,
    layout: Layout,
    /// Operations so far.
    operations: u64,
}

impl Rehearsal {
    /// A cluster that serves.
    pub fn new(layout: Layout) -> Self {
        let ids = 1..=layout.nodes();
        let mut cores: Vec<Core> = ids.map(|id| Core::start(NodeId(id))).collect();
        cores.iter_mut().for_each(|core| core.sink.kept = Some(Vec::new()));
        let (arriving, turns) = (vec![Vec::new(); cores.len()], vec![Vec::new(); cores.len()]);
        let mut this = Self { cores, arriving, turns, now: Tick(1_000_000_000), layout, operations: 0 };
        for (version, phase) in [(1, ShardPhase::Recovering), (2, ShardPhase::Serving)] {
            let configuration = configuration(layout, version, phase);
            this.everybody_hears(&message::ConfigurationIs {
                level: kasha_wire::Level::FIRST,
                unix_origin: kasha_wire::Later::absent(),
                configuration,
            });
            this.everybody_hears(&message::HeartbeatAnswer {
                sent: this.now,
                lease_millis: 60_000,
                cluster_time: this.cluster_time(),
                clients_below: ClientId(1000),
                view: kasha_types::ViewNumber(1),
            });
            for _ in 0..SETTLING_TURNS {
                this.turn(SETTLING_NANOS);
            }
        }
        this
    }

    /// A cluster that serves, with every key written.
    pub fn warm(layout: Layout, operation: Operation) -> Self {
        let mut this = Self::new(layout);
        this.update(operation, KEYS, WARM_BATCH, 0);
        // The writes are synced, and the witness has dropped them.
        for _ in 0..SETTLING_TURNS {
            this.turn(SETTLING_NANOS);
        }
        this
    }

    /// Makes this many updates, `batch` in a turn. Each reaches the primary and the witness at the same time.
    pub fn update(&mut self, operation: Operation, count: u64, batch: u64, unacknowledged: u64) {
        for n in self.operations..self.operations + count {
            let list = if self.layout.faults() > 0 { LIST } else { kasha_types::ListVersion::NONE };
            let nth = Nth(n, self.cluster_time());
            let frame = |kind| (nth.connection(), nth.update(kind, operation, list, unacknowledged));
            self.arriving[0].push(frame(Kind::Request));
            for witness in &mut self.arriving[1..] {
                witness.push(frame(Kind::Record));
            }
            if (n + 1 - self.operations).is_multiple_of(batch) {
                self.turn(TURN_NANOS);
            }
        }
        self.turn(TURN_NANOS);
        self.operations += count;
    }

    /// Makes this many transfers between keys of both shards. Each reaches both primaries at the same time.
    pub fn transfer(&mut self, count: u64, batch: u64) {
        for n in self.operations..self.operations + count {
            let nth = Nth(n, self.cluster_time());
            for (arriving, shard) in self.arriving.iter_mut().zip([SHARD, OTHER]) {
                arriving.push((nth.connection(), nth.transfer(shard)));
            }
            if (n + 1 - self.operations).is_multiple_of(batch) {
                self.turn(TURN_NANOS);
            }
        }
        // The last are settled, too: flushed, executed, and known to be so by both.
        (0..SETTLING_TURNS).for_each(|_| self.turn(FLUSHING_NANOS));
        self.operations += count;
    }

    /// Makes this many reads.
    pub fn read(&mut self, count: u64, batch: u64) {
        for n in 0..count {
            let nth = Nth(n, self.cluster_time());
            self.arriving[0].push((nth.connection(), nth.read()));
            if (n + 1).is_multiple_of(batch) {
                self.turn(TURN_NANOS);
            }
        }
    }

    /// Sends the last `count` updates again.
    pub fn repeat(&mut self, operation: Operation, count: u64, batch: u64, unacknowledged: u64) {
        self.operations -= count;
        self.update(operation, count, batch, unacknowledged);
    }

    /// The turns of a node so far.
    pub fn turns_of(&self, node: u16) -> &[Turn] {
        &self.turns[usize::from(node) - 1]
    }

    fn cluster_time(&self) -> ClusterTime {
        ClusterTime(self.now.0 / 1_000_000)
    }

    fn everybody_hears(&mut self, message: &impl Message) {
        let mut frame = Vec::new();
        message.encode(&mut frame);
        self.arriving.iter_mut().for_each(|arriving| arriving.push((Endpoint::Coordinator, frame.clone())));
    }

    /// Every core has a turn. Frames that are sent in it arrive in the next.
    fn turn(&mut self, nanos: u64) {
        self.now = Tick(self.now.0 + nanos);
        let arrived: Vec<_> = self.arriving.iter_mut().map(std::mem::take).collect();
        for (index, received) in arrived.into_iter().enumerate() {
            let turn = Turn { now: self.now, received, requests: Vec::new() };
            self.cores[index].turn(&turn);
            self.turns[index].push(turn);
            let from = Endpoint::Core(core_id(index));
            for (to, frame) in self.cores[index].sink.kept.iter_mut().flat_map(|kept| kept.drain(..)) {
                if let Some(to) = (0..self.arriving.len()).find(|&other| to == Endpoint::Core(core_id(other))) {
                    self.arriving[to].push((from, frame));
                }
            }
        }
    }
}

fn core_id(index: usize) -> CoreId {
    CoreId { node: NodeId(u16::try_from(index + 1).expect("a few nodes")), core: 0 }
}

fn configuration(layout: Layout, version: u64, phase: ShardPhase) -> Configuration {
    let ids = || (1..=layout.nodes()).map(NodeId);
    let node = |node| NodeInfo { node, incarnation: Incarnation(1), cores: vec![address()], alive: true };
    let is_served = phase == ShardPhase::Serving;
    let shard = |shard, members: Vec<NodeId>| ShardConfig {
        shard,
        epoch: EPOCH,
        primary: members[0],
        phase,
        witnesses: members.iter().copied().skip(1).filter(|_| is_served).collect(),
        members: members
            .into_iter()
            .map(|node| Member { node, state: MemberState::Complete, since: ConfigVersion(1) })
            .collect(),
        members_since: ConfigVersion(0),
        recover_from: Vec::new(),
        list: LIST,
        closing: false,
        served: None,
    };
    let tablet = |shard, first, last| Tablet { table: TABLE, first: Slot(first), last: Slot(last), shard };
    let last = limits::SLOTS - 1;
    let (shards, tablets) = match layout {
        Layout::Alone | Layout::Replicated => (vec![shard(SHARD, ids().collect())], vec![tablet(SHARD, 0, last)]),
        Layout::TwoShards => (
            vec![shard(SHARD, vec![NodeId(1)]), shard(OTHER, vec![NodeId(2)])],
            vec![tablet(SHARD, 0, HALF - 1), tablet(OTHER, HALF, last)],
        ),
    };
    Configuration {
        cluster: ClusterId(1),
        version: ConfigVersion(version),
        faults: layout.faults(),
        durability: Durability::Replicated,
        min_backups: 0,
        nodes_wanted: 1,
        coordinator: address(),
        group: Vec::new(),
        nodes: ids().map(node).collect(),
        shards,
        tables: vec![TableInfo { table: TABLE, name: "default".into() }],
        tablets,
    }
}
