//! The scenarios: named kinds of runs. A scenario says what a run has, and the seed draws the rest.
//!
//! The table of scenarios is also in `docs/testing.md`; a test compares them.

use kasha_machine::Rng;
use kasha_types::limits::OUTSTANDING_MAX;
use kasha_wire::Durability;

use crate::clock::{micros, millis};
use crate::intensity::{Acts, Intensity};
use crate::workload::LoadKind;

/// A kind of run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the table below says what each is")]
pub enum Scenario {
    Swarm,
    FastPath,
    BadNetwork,
    Crash,
    FastRestart,
    Zombie,
    PowerLoss,
    SwitchedOff,
    Blackout,
    BlackoutReplicated,
    ColdStart,
    ColdStartWhileCopying,
    Partition,
    BadLinks,
    CoordinatorOutage,
    CoordinatorCut,
    TornTurns,
    WitnessLoss,
    WithoutWitness,
    DivergentTail,
    DeposedPrimary,
    OldPrimary,
    ListChange,
    ClientLeases,
    OperationKeys,
    Tables,
    Rebuild,
    SmallMemory,
    Cleaning,
    CleaningWhileCopying,
    CleaningDivergent,
    DamagedFiles,
    FailingDisks,
    BadInput,
    RogueClient,
    SharedSession,
}

impl Scenario {
    /// Every scenario, its name, and its description.
    pub const TABLE: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Swarm, "swarm", "any faults, drawn for each run"),
        (Self::FastPath, "fast_path", "no faults, and keys that hardly meet: nearly all updates take one round trip"),
        (Self::BadNetwork, "bad_network", "frames are lost, doubled, late and out of order"),
        (Self::Crash, "crash", "nodes are killed and come back"),
        (Self::FastRestart, "fast_restart", "nodes are killed and come back within their lease"),
        (Self::Zombie, "zombie", "nodes stop and go on, not knowing that others took over"),
        (Self::PowerLoss, "power_loss", "one node at a time loses power"),
        (
            Self::SwitchedOff,
            "switched_off",
            "one node at a time is asked to stop, and then, before or later its machine loses power",
        ),
        (Self::Blackout, "blackout", "all nodes lose power at once; everything is fsynced"),
        (
            Self::BlackoutReplicated,
            "blackout_replicated",
            "all nodes lose power at once; only the flushes in the background are fsynced",
        ),
        (Self::ColdStart, "cold_start", "all processes are killed at once; disks stay"),
        (
            Self::ColdStartWhileCopying,
            "cold_start_while_copying",
            "a member is lost, and all processes are killed while another node copies what it had",
        ),
        (Self::Partition, "partition", "hosts are cut off, both ways or one way"),
        (
            Self::BadLinks,
            "bad_links",
            "single links are cut for many leases: updates must go on before they are healed",
        ),
        (
            Self::CoordinatorOutage,
            "coordinator_outage",
            "the coordinator is away most of the time, or for a minute, and nodes crash",
        ),
        (
            Self::CoordinatorCut,
            "coordinator_cut",
            "the coordinator alone is cut off, for less and more than a lease: nothing may move",
        ),
        (Self::TornTurns, "torn_turns", "nodes die in the middle of a turn"),
        (Self::WitnessLoss, "witness_loss", "many nodes, few shards: those that die are mostly witnesses"),
        (
            Self::WithoutWitness,
            "without_witness",
            "witnesses lose their files for good while everything is down, stopped, or only the last primary is away",
        ),
        (
            Self::DivergentTail,
            "divergent_tail",
            "primaries cut off from their backups go on, are deposed, and come back",
        ),
        (
            Self::DeposedPrimary,
            "deposed_primary",
            "the same, with other nodes to take its place, and witnesses that are no members",
        ),
        (
            Self::OldPrimary,
            "old_primary",
            "a primary that was cut off meets its restarting successor, and no coordinator",
        ),
        (Self::ListChange, "list_change", "witnesses that the coordinator cannot see, and primaries that then die"),
        (
            Self::ClientLeases,
            "client_leases",
            "short client leases, clients that stop or die, frames that come very late",
        ),
        (Self::OperationKeys, "operation_keys", "operation keys: repeated, used twice, expiring; with crashes"),
        (Self::Tables, "tables", "tables are created, used and dropped; with crashes, or with primaries cut off"),
        (Self::Rebuild, "rebuild", "long logs in small segments, and losses that need new copies"),
        (
            Self::SmallMemory,
            "small_memory",
            "a few segments of memory for each replica: updates are refused, everything else goes on; with crashes",
        ),
        (
            Self::Cleaning,
            "cleaning",
            "small segments, of which most lives: the cleaner is always at work; with any faults",
        ),
        (Self::CleaningWhileCopying, "cleaning_while_copying", "the same, with losses that need new copies"),
        (Self::CleaningDivergent, "cleaning_divergent", "the same, with primaries that are cut off and deposed"),
        (Self::DamagedFiles, "damaged_files", "a file of a node that died is damaged or gone when it comes back"),
        (Self::FailingDisks, "failing_disks", "fsyncs fail, and with them what they were for; everything is fsynced"),
        (Self::BadInput, "bad_input", "a stranger sends random and damaged frames to every process"),
        (Self::RogueClient, "rogue_client", "a client numbers, names and dates its updates as no honest one does"),
        (
            Self::SharedSession,
            "shared_session",
            "one session for callers of many shards, one of which is away for long: the others' updates go on",
        ),
    ];

    /// The scenario's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::TABLE.iter().find(|row| row.0 == self).expect("every scenario is in the table").1
    }

    /// The scenario of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::TABLE.iter().find(|row| row.1 == name).map(|row| row.0)
    }
}

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
    /// Whether a program asks every shard all the time whether it takes updates.
    pub prober: bool,
}

impl Shape {
    fn drawn(rng: &mut Rng) -> Self {
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
            prober: false,
        }
    }
}

/// Nobody is told of a restart, so that the next frame finds another process.
fn silent_restarts(rng: &mut Rng, shape: &mut Shape, intensity: &mut Intensity) {
    (intensity.silent_close, intensity.loss) = (800_000, rng.between(10_000, 60_000));
    intensity.nemesis_every = millis(rng.between(100, 400));
    shape.duration = millis(10_000);
}

/// The cluster and the faults of a run.
#[must_use]
pub fn plan(scenario: Scenario, rng: &mut Rng) -> (Shape, Intensity) {
    let mut shape = Shape::drawn(rng);
    shape.copy_bytes = shape.append_bytes / 4;
    let mut intensity = Intensity::drawn(rng);
    let every = intensity.nemesis_every;
    let quiet = |acts: Acts| Intensity { acts, nemesis_every: every, ..Intensity::calm() };
    let none = Acts::default();
    match scenario {
        Scenario::Swarm => {}
        Scenario::FastPath => {
            intensity = Intensity::calm();
            shape.faults = shape.faults.max(1);
            shape.nodes = u16::from(shape.faults) + 2;
            (shape.witness_slots, shape.kind) = (512, LoadKind::Spread);
        }
        Scenario::BadNetwork => intensity.acts = none,
        Scenario::Crash => {
            shape.trusts_connections = true;
            intensity = quiet(Acts { crash: 1, ..none });
        }
        Scenario::FastRestart => {
            intensity = quiet(Acts { fast_restart: 1, ..none });
            // A member that comes back is attached when it reports, and attached again when its primary is told that it
            // is back. Frames of the first attachment may come after those of the second.
            (intensity.duplication, intensity.stray_delay) = (200_000, millis(rng.between(50, 400)));
            if rng.chance(1, 2) {
                silent_restarts(rng, &mut shape, &mut intensity);
            }
        }
        Scenario::Zombie => {
            (shape.clients, shape.readers, shape.duration) = (5, 2, millis(10_000));
            intensity.nemesis_every = millis(rng.between(500, 1_500));
            intensity.acts = Acts { zombie: 4, crash: 1, ..none };
        }
        Scenario::SwitchedOff => intensity.acts = Acts { orderly_stop: 3, power: 1, ..none },
        Scenario::PowerLoss => intensity.acts = Acts { power: 3, crash: 1, ..none },
        Scenario::Blackout => {
            shape.durability = Durability::Fsync;
            // Many writes are under way to the disks whenever the power is lost.
            (shape.concurrency, shape.pause) = (6, (millis(1), millis(rng.between(2, 6))));
            intensity.fsync = (millis(1), millis(rng.between(5, 30)));
            intensity.acts = Acts { blackout: 2, power: 2, torn_turn: 1, ..none };
        }
        Scenario::ColdStart => intensity.acts = Acts { kill_all: 1, ..none },
        Scenario::Partition => intensity.acts = Acts { partition: 3, one_way: 2, ..none },
        Scenario::BlackoutReplicated => {
            shape.durability = Durability::Replicated;
            // After a fail-over of two nodes, what was answered before is on one node.
            (shape.nodes, shape.faults) = if rng.chance(1, 2) { (2, 1) } else { (shape.nodes, shape.faults) };
            intensity.acts = Acts { blackout_replicated: 3, partition: 1, coordinator: 1, ..none };
        }
        // The share of these runs is such that, of three hundred sweeps of 500 runs, one does not reach every path that
        // it must.
        Scenario::CoordinatorOutage if rng.chance(1, 3) => {
            a_minute_without_coordinator(rng, &mut shape, &mut intensity)
        }
        Scenario::CoordinatorOutage => {
            intensity.acts = Acts { coordinator: 4, coordinator_telling: 3, crash: 2, fast_restart: 1, ..none };
        }
        Scenario::TornTurns => intensity.acts = Acts { torn_turn: 1, ..none },
        Scenario::WitnessLoss => {
            shape.faults = shape.faults.max(1);
            (shape.nodes, shape.shards) = (u16::from(shape.faults) * 2 + 2, 1);
            intensity.acts = Acts { crash: 2, fast_restart: 1, power: 1, ..none };
        }
        _ => directed(scenario, rng, &mut shape, &mut intensity),
    }
    (shape, intensity)
}

/// A minute is longer than every lease except those of clients. The load is small.
fn a_minute_without_coordinator(rng: &mut Rng, shape: &mut Shape, intensity: &mut Intensity) {
    (shape.quiet, shape.duration, shape.prober) = (millis(2_000), millis(70_000), true);
    (shape.concurrency, shape.pause) = (2, (millis(20), millis(100)));
    shape.client_lease_millis = 300_000;
    intensity.nemesis_every = millis(8_000);
    intensity.acts = Acts { coordinator_minute: 2, crash: rng.below(2), ..Acts::default() };
}

/// Scenarios that aim at one part of the protocol.
fn directed(scenario: Scenario, rng: &mut Rng, shape: &mut Shape, intensity: &mut Intensity) {
    let none = Acts::default();
    // Without backups and witnesses these parts do not exist.
    shape.faults = shape.faults.max(1);
    shape.nodes = shape.nodes.max(u16::from(shape.faults) + 1);
    match scenario {
        Scenario::DivergentTail | Scenario::DeposedPrimary => {
            // Without other nodes, a deposed primary is a member again, with the log that it has.
            let others = if scenario == Scenario::DeposedPrimary { shape.faults } else { 0 };
            shape.nodes = u16::from(shape.faults + others) + 1;
            if scenario == Scenario::DeposedPrimary && rng.chance(2, 3) {
                // The primary has always something to answer at once, however long it is cut off.
                (shape.witness_slots, shape.kind) = (512, LoadKind::Spread);
            }
            (shape.clients, shape.readers, shape.duration) = (5, 2, millis(12_000));
            intensity.nemesis_every = millis(rng.between(400, 1200));
            // Some frames outlive a term or two.
            (intensity.reordering, intensity.duplication) = (true, 60_000);
            (intensity.stray, intensity.stray_delay) = (10_000, millis(rng.between(1_500, 4_000)));
            intensity.acts = Acts { depose: 5, crash: 1, zombie: 1, ..none };
        }
        Scenario::WithoutWitness => without_witness(rng, shape, intensity),
        Scenario::OldPrimary => {
            (shape.nodes, shape.faults, shape.duration) = (3, 1, millis(12_000));
            (shape.clients, shape.readers) = (5, 1);
            intensity.nemesis_every = millis(rng.between(1_000, 2_000));
            intensity.acts = Acts { old_primary: 4, crash: 1, ..none };
        }
        Scenario::ListChange => {
            (shape.nodes, shape.shards) = (u16::from(shape.faults) * 2 + 2, 1);
            intensity.nemesis_every = millis(rng.between(800, 1600));
            intensity.acts = Acts { list_change: 4, depose: 1, ..none };
        }
        Scenario::ClientLeases => {
            shape.client_lease_millis = rng.between(150, 500);
            (shape.clients, shape.readers) = (4, 0);
            (intensity.stray, intensity.stray_delay) = (30_000, millis(rng.between(1_000, 4_000)));
            intensity.duplication = 30_000;
            intensity.nemesis_every = millis(rng.between(150, 500));
            intensity.acts = Acts { client: 3, client_pause: 3, crash: 1, ..none };
        }
        Scenario::OperationKeys => {
            (shape.load, shape.duration) = ((0, 40), millis(10_000));
            intensity.nemesis_every = millis(rng.between(400, 1200));
            (shape.clients, shape.pause) = (5, (millis(1), millis(6)));
            intensity.acts = Acts { crash: 1, torn_turn: 1, depose: 6, client: 1, ..none };
        }
        Scenario::Tables => {
            shape.load = (30, 0);
            let lost = Acts { unheard: 2, zombie: 1, partition: 2, depose: 2, ..none };
            intensity.acts = Acts { crash: 2, coordinator: 2, client_pause: 1, ..lost };
            if rng.chance(1, 2) {
                who_does_not_hear_of_a_drop(shape, intensity);
            }
        }
        Scenario::BadLinks => {
            // Enough nodes for every shard are left without any one node. The prober measures; the other clients only
            // check that nothing is lost.
            (shape.concurrency, shape.pause) = (2, (millis(10), millis(60)));
            shape.nodes = u16::from(shape.faults) + 2 + u16::try_from(rng.below(3)).expect("small");
            shape.prober = true;
            let network = Intensity::drawn_network(rng);
            *intensity = Intensity { loss: network.loss / 10, ..Intensity::calm() };
        }
        Scenario::CoordinatorCut => nothing_but_the_coordinator_is_cut_off(rng, shape, intensity),
        Scenario::SharedSession => share_a_session(shape, intensity),
        Scenario::BadInput | Scenario::FailingDisks | Scenario::RogueClient => unkind(scenario, rng, shape, intensity),
        _ => long_logs(scenario, rng, shape, intensity),
    }
}

/// Each node has a shard to serve. Other programs run beside the sharer. A window is soon used up, and a lease soon
/// over.
fn share_a_session(shape: &mut Shape, intensity: &mut Intensity) {
    *intensity = Intensity::calm();
    (shape.nodes, shape.cores, shape.shards, shape.faults) = (6, 1, 6, 1);
    (shape.sharer, shape.durability) = (true, Durability::Replicated);
    (shape.clients, shape.readers, shape.concurrency) = (2, 1, 1);
    (shape.pause, shape.outstanding_max) = ((millis(20), millis(60)), 64);
    (shape.client_lease_millis, shape.witness_slots) = (1_500, 512);
}

/// All frames arrive except those that are cut.
fn nothing_but_the_coordinator_is_cut_off(rng: &mut Rng, shape: &mut Shape, intensity: &mut Intensity) {
    (shape.hosted, shape.prober, shape.client_lease_millis) = (rng.chance(1, 2), true, 300_000);
    (shape.concurrency, shape.pause) = (2, (millis(10), millis(60)));
    shape.trusts_connections = rng.chance(1, 2);
    if rng.chance(1, 3) {
        shape.nodes = u16::from(shape.faults) + 1;
    }
    *intensity = Intensity { loss: 0, stray: 0, silent_close: 0, ..Intensity::drawn_network(rng) };
}

/// A shard is left without its witnesses while only its last primary has what was answered last.
fn without_witness(rng: &mut Rng, shape: &mut Shape, intensity: &mut Intensity) {
    // A node that is not a witness is elected, and there is always something that only the witnesses have.
    shape.nodes = u16::from(shape.faults) * 2 + 1 + u16::try_from(rng.below(2)).expect("small");
    (shape.clients, shape.readers, shape.concurrency) = (4, 1, 4);
    (shape.shards, shape.witness_slots, shape.kind) = (1, 512, LoadKind::Spread);
    (shape.pause, shape.duration) = ((millis(1), millis(6)), millis(14_000));
    shape.quiet = millis(500); // so that the first act finds something that was answered
    if rng.chance(1, 3) {
        shape.durability = Durability::Fsync;
    }
    intensity.nemesis_every = millis(rng.between(1_500, 3_000));
    intensity.acts = Acts { without_witness: 1, ..Acts::default() };
}

/// A primary goes on with its witnesses and some clients, which always have updates to make that need no sync, while
/// other clients drop the table.
fn who_does_not_hear_of_a_drop(shape: &mut Shape, intensity: &mut Intensity) {
    shape.faults = shape.faults.max(1);
    (shape.nodes, shape.shards, shape.kind) = (u16::from(shape.faults) * 2 + 3, 1, LoadKind::Tables);
    (shape.clients, shape.readers, shape.concurrency) = (5, 0, 20);
    (shape.witness_slots, shape.outstanding_max) = (512, OUTSTANDING_MAX);
    (shape.pause, shape.duration) = ((millis(5), millis(40)), millis(12_000));
    intensity.nemesis_every = millis(3_000);
    intensity.acts = Acts { apart: 1, ..Acts::default() };
}

/// Scenarios with bad disks, bad bytes or bad clients instead of failing hosts and links.
fn unkind(scenario: Scenario, rng: &mut Rng, shape: &mut Shape, intensity: &mut Intensity) {
    intensity.acts = Acts { crash: 1, ..Acts::default() };
    match scenario {
        Scenario::BadInput => shape.stranger = true,
        Scenario::RogueClient => shape.rogue = true,
        Scenario::FailingDisks => {
            shape.durability = Durability::Fsync;
            intensity.fsync_failure = rng.between(500, 5_000);
        }
        _ => unreachable!("{} has a plan of its own", scenario.name()),
    }
}

/// Scenarios in which segments matter: there are many of them, or few.
fn long_logs(scenario: Scenario, rng: &mut Rng, shape: &mut Shape, intensity: &mut Intensity) {
    let none = Acts::default();
    match scenario {
        Scenario::Rebuild => {
            (shape.nodes, shape.shards) = (u16::from(shape.faults) * 2 + 1, 1);
            (shape.segment_bytes, shape.concurrency) = (1 << 15, 6);
            (shape.pause, shape.duration) = ((millis(1), millis(3)), millis(8_000));
            shape.kind = if rng.chance(1, 2) { LoadKind::Churning } else { LoadKind::Mixed };
            intensity.nemesis_every = millis(rng.between(600, 1200));
            intensity.acts = Acts { crash: 3, depose: 2, power: 1, ..none };
            if rng.chance(1, 2) {
                who_comes_back(rng, shape, intensity);
            }
        }
        Scenario::ColdStartWhileCopying => {
            // If a member is lost, there is always another node to copy. Logs are long, in short segments.
            (shape.nodes, shape.shards) = (u16::from(shape.faults) * 2 + 1, 1);
            (shape.segment_bytes, shape.concurrency) = (1 << 15, 6);
            (shape.pause, shape.quiet, shape.duration) = ((millis(1), millis(3)), millis(3_000), millis(12_000));
            intensity.nemesis_every = millis(rng.between(1_000, 3_000));
            intensity.acts = Acts { kill_all_copying: 1, ..none };
        }
        Scenario::DamagedFiles => {
            (shape.nodes, shape.segment_bytes) = (u16::from(shape.faults) * 2 + 1, 1 << 15);
            (shape.pause, shape.quiet, shape.duration) = ((millis(2), millis(12)), millis(2_000), millis(20_000));
            // A loss is found and repaired before the next one.
            intensity.nemesis_every = millis(rng.between(1_000, 2_000));
            intensity.acts = Acts { damage: 1, ..none };
        }
        Scenario::SmallMemory => {
            (shape.segment_bytes, shape.memory_segments) = (1 << 15, rng.between(6, 8));
            (shape.kind, shape.shards, shape.concurrency) = (LoadKind::Bulky, 1, 2);
            // A new primary has room for everything that a witness holds.
            (shape.witness_slots, shape.client_lease_millis) = (16, 300_000);
            (shape.clients, shape.readers) = (4, 1);
            (shape.pause, shape.duration) = ((millis(1), millis(4)), millis(8_000));
            intensity.acts = Acts { crash: 3, depose: 1, kill_all: 1, ..none };
        }
        Scenario::Cleaning | Scenario::CleaningWhileCopying | Scenario::CleaningDivergent => {
            cleaning(scenario, rng, shape, intensity)
        }
        _ => unreachable!("{} has a plan of its own", scenario.name()),
    }
}

/// Small segments, and a load of which 70 to 90 of 100 bytes of the memory live. Client leases are so short that expiry
/// floors come while segments are cleaned.
fn cleaning(scenario: Scenario, rng: &mut Rng, shape: &mut Shape, intensity: &mut Intensity) {
    (shape.segment_bytes, shape.memory_segments) = (1 << rng.between(12, 14), rng.between(12, 24));
    (shape.shards, shape.concurrency) = (1, usize::try_from(rng.between(2, 6)).expect("small"));
    (shape.clients, shape.readers) = (5, 1);
    (shape.pause, shape.duration) = ((millis(1), millis(3)), millis(8_000));
    shape.client_lease_millis = if rng.chance(1, 2) { rng.between(150, 600) } else { 300_000 };
    (shape.append_bytes, shape.copy_bytes) = (1 << rng.between(11, 13), 1 << 11);
    shape.flush_interval = millis(rng.between(20, 100));
    crowd(rng, shape);
    intensity.nemesis_every = millis(rng.between(300, 1_200));
    let none = Acts::default();
    intensity.acts = match scenario {
        Scenario::CleaningWhileCopying => {
            shape.nodes = u16::from(shape.faults) * 2 + 1;
            Acts { crash: 3, depose: 1, power: 1, client: 1, client_pause: 1, ..none }
        }
        Scenario::CleaningDivergent => {
            shape.nodes = u16::from(shape.faults) + 1;
            Acts { depose: 5, crash: 1, zombie: 1, client_pause: 1, ..none }
        }
        _ => Acts {
            crash: 3,
            fast_restart: 1,
            torn_turn: 1,
            kill_all: 1,
            partition: 1,
            one_way: 1,
            client: 1,
            client_pause: 2,
            ..none
        },
    };
}

/// So many long values that 70 to 90 of 100 bytes that may live are theirs.
fn crowd(rng: &mut Rng, shape: &mut Shape) {
    let (segment, memory) = (u64::from(shape.segment_bytes), u64::from(shape.segment_bytes) * shape.memory_segments);
    let room = (memory - (memory / 20).max(2 * segment)) / 100 * 92 * u64::from(shape.shards);
    shape.kind = LoadKind::Crowded(room / 100 * rng.between(70, 90));
}

/// A member leaves and joins again in a log of which all but the newest segments are freed meanwhile, or at that
/// moment: a primary does its housekeeping seldom. Links are slow and windows narrow, so that the entry that frees a
/// segment arrives later than the list of segments, and later than everything that is copied.
fn who_comes_back(rng: &mut Rng, shape: &mut Shape, intensity: &mut Intensity) {
    (shape.kind, shape.faults, shape.may_lack, shape.nodes) = (LoadKind::Rewritten, 2, 1, 3);
    (shape.segment_bytes, shape.append_bytes) = (1 << rng.between(15, 17), 1 << 11);
    shape.copy_bytes = shape.segment_bytes;
    (shape.clients, shape.readers, shape.pause.1) = (5, 1, millis(rng.between(2, 12)));
    shape.flush_interval = millis(rng.between(300, 1_000));
    intensity.delay = (micros(500), millis(rng.between(2, 6)));
    (intensity.nemesis_every, shape.duration) = (millis(300), millis(10_000));
    intensity.acts = Acts { away: 8, crash: 1, power: 1, ..Acts::default() };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for &(scenario, name, _) in Scenario::TABLE {
            assert_eq!(Scenario::by_name(name), Some(scenario));
            assert_eq!(scenario.name(), name);
        }
        assert_eq!(Scenario::by_name("no such"), None);
    }
}
