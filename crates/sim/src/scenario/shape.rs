//! The size of a run's cluster.

use kasha_machine::Rng;
use kasha_types::limits::OUTSTANDING_MAX;
use kasha_wire::Durability;

use crate::clock::millis;
use crate::front::Fronts;
use crate::workload::LoadKind;

/// The size of a run's cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of nodes.
    pub nodes: u16,
    /// Event loops of each node.
    pub cores: u8,
    /// Number of shards.
    pub shards: u16,
    /// `f`: the crashes that each shard survives.
    pub faults: u8,
    /// How many of its `f` backups a shard may lack and still take updates.
    pub may_lack: u8,
    /// What "hold" means (R5.3).
    pub durability: Durability,
    /// Processes that can be members of the group of coordinators.
    pub coordinators: u16,
    /// Those of them that are none at first.
    pub standbys: u16,
    /// Whether an operator changes that group all the time.
    pub operator: bool,
    /// Whether the coordinator shares one process with node 1, so that both are cut off together.
    pub hosted: bool,
    /// Whether a silent node with an open connection has three leases more. If not, zombies are deposed as soon as a
    /// machine that lost power.
    pub trusts_connections: bool,
    /// Number of client programs.
    pub clients: usize,
    /// Number of client programs that only read.
    pub readers: usize,
    /// Calls that each program has open at the same time.
    pub concurrency: usize,
    /// Shortest and longest pause between two calls of a client.
    pub pause: (u64, u64),
    /// Bytes of a segment.
    pub segment_bytes: u32,
    /// Bytes of log in one message to a member. Four times as many bytes may be on the way to it.
    pub append_bytes: u32,
    /// Bytes of one part of a copied segment.
    pub copy_bytes: u32,
    /// Slots of a witness.
    pub witness_slots: u32,
    /// How often a node asks for an fsync of what nothing waits for, and how often a primary does its housekeeping.
    pub flush_interval: u64,
    /// The term of a node's lease.
    pub lease: u64,
    /// Term of a client's lease, in milliseconds.
    pub client_lease_millis: u64,
    /// How long nothing fails at first.
    pub quiet: u64,
    /// How long the faults last.
    pub duration: u64,
    /// The least weights of tables and of operation keys in the load.
    pub load: (u64, u64),
    /// The kind of load.
    pub kind: LoadKind,
    /// Segments of memory for each replica.
    pub memory_segments: u64,
    /// The greatest number of updates of a client without a result.
    pub outstanding_max: u64,
    /// New terms in one lease.
    pub promotions_max: u32,
    /// Whether a stranger sends bad frames.
    pub stranger: bool,
    /// Whether a client breaks the rules.
    pub rogue: bool,
    /// Whether a program shares one session over all shards.
    pub sharer: bool,
    /// The fronts that speak the Redis protocol.
    pub fronts: Fronts,
    /// Number of programs that use them.
    pub drivers: usize,
    /// Whether a program asks every shard all the time whether it takes updates.
    pub prober: bool,
    /// Whether clients must be right about ClusterTime: nothing delays frames for long.
    pub exact_time: bool,
}

impl Shape {
    pub(super) fn drawn(rng: &mut Rng) -> Self {
        let faults = match rng.below(16) {
            0..4 => 2,
            4 => 0,
            5 => 3,
            _ => 1,
        };
        let nodes = u16::from(faults) + u16::try_from(rng.between(1, 3)).expect("small");
        let clients = usize::try_from(rng.between(2, 5)).expect("small");
        Self {
            nodes,
            cores: u8::try_from(rng.between(1, 2)).expect("small"),
            shards: u16::try_from(rng.between(1, 3)).expect("small"),
            faults,
            may_lack: 0,
            durability: if rng.chance(1, 3) { Durability::Fsync } else { Durability::Replicated },
            coordinators: 1,
            standbys: 0,
            operator: false,
            hosted: false,
            trusts_connections: false,
            clients,
            readers: usize::from(clients > 2),
            concurrency: usize::try_from(rng.between(1, 6)).expect("small"),
            pause: (millis(1), millis(rng.between(2, 30))),
            segment_bytes: 1 << rng.between(15, 18),
            append_bytes: 1 << rng.between(11, 15),
            copy_bytes: 0,
            witness_slots: 4 << rng.between(2, 7),
            flush_interval: millis(100),
            lease: millis(400),
            client_lease_millis: if rng.chance(1, 4) { 3_000 } else { 300_000 },
            quiet: 0,
            duration: millis(rng.between(4_000, 10_000)),
            load: (0, 0),
            kind: LoadKind::Mixed,
            memory_segments: 256,
            outstanding_max: if rng.chance(1, 4) { rng.between(1, 8) } else { OUTSTANDING_MAX },
            promotions_max: if rng.chance(1, 4) { 1 } else { 64 },
            stranger: false,
            rogue: false,
            sharer: false,
            fronts: Fronts::Nowhere,
            drivers: 0,
            prober: false,
            exact_time: false,
        }
    }
}
