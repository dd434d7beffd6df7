//! The cluster and the faults of each scenario.
//!
//! [`plan`] draws the shape of the cluster and of the load ([`Shape`]), and the faults ([`Intensity`]), from the seed
//! of a run. A scenario starts from the general draw and narrows it to what the scenario is for. docs/testing.md says
//! what each scenario is about.

use kasha_machine::Rng;
use kasha_types::limits::OUTSTANDING_MAX;
use kasha_wire::Durability;

use super::segments::{crowded, long_logs};
use super::{Scenario, Shape};
use crate::clock::millis;
use crate::front::Fronts;
use crate::intensity::{Acts, Intensity};
use crate::workload::LoadKind;

/// Nobody is told of a restart, so that the next frame finds another process.
fn silent_restarts(rng: &mut Rng, shape: &mut Shape, intensity: &mut Intensity) {
    (intensity.silent_close, intensity.loss) = (800_000, rng.between(10_000, 60_000));
    intensity.nemesis_every = millis(rng.between(100, 400));
    shape.duration = millis(10_000);
}

/// The cluster and the faults of a run.
#[must_use]
pub fn plan(scenario: Scenario, rng: &mut Rng) -> (Shape, Intensity) {
    let (mut shape, intensity) = of_scenario(scenario, rng);
    // Of its own, so that the draws of the other runs do not depend on this.
    let mut apart = Rng::new(rng.clone().next_u64());
    if is_general(scenario, &shape) && apart.chance(1, 2) {
        crowded(&mut apart, &mut shape);
    }
    (shape, intensity)
}

fn of_scenario(scenario: Scenario, rng: &mut Rng) -> (Shape, Intensity) {
    let mut shape = Shape::drawn(rng);
    shape.copy_bytes = shape.append_bytes / 4;
    let mut intensity = Intensity::drawn(rng);
    let every = intensity.nemesis_every;
    let quiet = |acts: Acts| Intensity { acts, nemesis_every: every, ..Intensity::calm() };
    let none = Acts::default();
    match scenario {
        Scenario::Swarm => {}
        Scenario::FastPath => fast_path(&mut shape, &mut intensity),
        Scenario::SlowAnswers => slow_answers(rng, &mut shape, &mut intensity),
        Scenario::BadNetwork => intensity.acts = none,
        Scenario::Crash => (shape.trusts_connections, intensity) = (true, quiet(Acts { crash: 1, ..none })),
        Scenario::FastRestart => {
            intensity = quiet(Acts { fast_restart: 1, ..none });
            fast_restart(rng, &mut shape, &mut intensity);
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
        Scenario::CoordinatorGroup => coordinator_group(&mut shape, &mut intensity),
        Scenario::GroupOrders => group_orders(&mut shape, &mut intensity),
        Scenario::LostMemory => lost_memory(rng, &mut shape, &mut intensity),
        Scenario::Lifetimes => lifetimes(rng, &mut shape, &mut intensity),
        Scenario::Elections => elections(rng, &mut shape, &mut intensity),
        Scenario::Transactions => transactions(rng, &mut shape, &mut intensity),
        Scenario::Snapshots => snapshots(rng, &mut shape, &mut intensity),
        Scenario::Distributed => distributed(rng, &mut shape, &mut intensity),
        Scenario::DistributedBlackout => distributed_blackout(rng, &mut shape, &mut intensity),
        Scenario::Wide => wide(rng, &mut shape, &mut intensity),
        Scenario::Interactive => interactive(rng, &mut shape, &mut intensity),
        Scenario::Redis => redis(Fronts::Alone, rng, &mut shape, &mut intensity),
        Scenario::RedisColocated => redis(Fronts::Colocated, rng, &mut shape, &mut intensity),
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

/// A member that comes back is attached when it reports, and attached again when its primary is told that it is back. Frames of the
/// first attachment may come after those of the second.
fn fast_restart(rng: &mut Rng, shape: &mut Shape, intensity: &mut Intensity) {
    (intensity.duplication, intensity.stray_delay) = (200_000, millis(rng.between(50, 400)));
    if rng.chance(1, 2) {
        silent_restarts(rng, shape, intensity);
    }
}

/// Whether the run may also have a memory that is nearly full: others measure how soon something succeeds, or say
/// themselves what their logs look like.
fn is_general(scenario: Scenario, shape: &Shape) -> bool {
    let has_its_own = matches!(
        scenario,
        Scenario::FastPath
            | Scenario::SlowAnswers
            | Scenario::Rebuild
            | Scenario::ColdStartWhileCopying
            | Scenario::DamagedFiles
    );
    !has_its_own && shape.kind == LoadKind::Mixed && !shape.prober && !shape.sharer
}

/// No faults: nearly all updates must take one round trip.
fn fast_path(shape: &mut Shape, intensity: &mut Intensity) {
    *intensity = Intensity::calm();
    shape.faults = shape.faults.max(1);
    shape.nodes = u16::from(shape.faults) + 2;
    (shape.witness_slots, shape.kind) = (512, LoadKind::Spread);
}

/// The coordinator is away often and briefly. Frames are in time, and clients do not stop: they must be right about the time.
fn lifetimes(rng: &mut Rng, shape: &mut Shape, intensity: &mut Intensity) {
    (shape.kind, shape.exact_time, shape.duration) = (LoadKind::Expiring, true, millis(12_000));
    (shape.clients, shape.pause) = (4, (millis(1), millis(rng.between(4, 40))));
    *intensity = Intensity::calm();
    intensity.nemesis_every = millis(rng.between(200, 1_200));
    let (coordinator_reboot, crash) = (rng.below(2), rng.below(2));
    intensity.acts = Acts { coordinator_restart: 6, coordinator_reboot, crash, ..Acts::default() };
}

/// The same with a group of coordinators.
fn elections(rng: &mut Rng, shape: &mut Shape, intensity: &mut Intensity) {
    lifetimes(rng, shape, intensity);
    (shape.coordinators, shape.nodes) = (3, shape.nodes.max(3));
}

/// Whatever can happen to the members of a group of coordinators, and nodes to decide about.
fn coordinator_group(shape: &mut Shape, intensity: &mut Intensity) {
    (shape.coordinators, shape.nodes) = (3, shape.nodes.max(3));
    intensity.acts = Acts {
        coordinator: 4,
        coordinator_restart: 3,
        coordinator_reboot: 1,
        leader_cut: 4,
        partition: 1,
        one_way: 1,
        crash: 2,
        fast_restart: 1,
        ..Acts::default()
    };
}

/// The same, while an operator changes the group: two more processes can be members.
fn group_orders(shape: &mut Shape, intensity: &mut Intensity) {
    coordinator_group(shape, intensity);
    (shape.coordinators, shape.standbys, shape.nodes) = (5, 2, 5);
    shape.operator = true;
}

/// Frames take so long that an answer comes after the first waiting time of an attempt, and a node's lease still holds.
fn slow_answers(rng: &mut Rng, shape: &mut Shape, intensity: &mut Intensity) {
    fast_path(shape, intensity);
    intensity.delay = (millis(rng.between(5, 30)), millis(rng.between(30, 60)));
    (shape.clients, shape.readers, shape.concurrency) = (4, 1, 20);
    (shape.pause, shape.duration) = ((millis(1), millis(10)), millis(10_000));
    shape.client_lease_millis = 300_000;
}

/// Of everything that can happen to a node.
fn transactions(rng: &mut Rng, shape: &mut Shape, intensity: &mut Intensity) {
    (shape.kind, shape.clients, shape.readers) = (LoadKind::Transactions, 4, 1);
    (shape.pause, shape.duration) = ((millis(1), millis(rng.between(4, 20))), millis(8_000));
    intensity.nemesis_every = millis(rng.between(300, 1_200));
    let killed = Acts { crash: 2, fast_restart: 1, torn_turn: 1, kill_all: 1, ..Acts::default() };
    intensity.acts = Acts { zombie: 1, depose: 2, ..killed };
}

/// The same faults, and more shards.
fn snapshots(rng: &mut Rng, shape: &mut Shape, intensity: &mut Intensity) {
    transactions(rng, shape, intensity);
    (shape.kind, shape.shards) = (LoadKind::Snapshots, u16::try_from(rng.between(2, 4)).expect("few"));
}

/// The same, and transactions over the shards.
fn distributed(rng: &mut Rng, shape: &mut Shape, intensity: &mut Intensity) {
    snapshots(rng, shape, intensity);
    shape.kind = LoadKind::Distributed;
}

/// The same, and programs that read before they write.
fn interactive(rng: &mut Rng, shape: &mut Shape, intensity: &mut Intensity) {
    distributed(rng, shape, intensity);
    shape.kind = LoadKind::Interactive;
}

/// Much is under way to the disks whenever the power is lost, of flushes too.
fn distributed_blackout(rng: &mut Rng, shape: &mut Shape, intensity: &mut Intensity) {
    distributed(rng, shape, intensity);
    shape.durability = Durability::Replicated;
    intensity.fsync = (millis(1), millis(rng.between(2, 30)));
    shape.pause = (millis(1), millis(rng.between(2, 8)));
    intensity.acts = Acts { blackout_replicated: 3, shard_blackout: 3, crash: 1, depose: 1, ..Acts::default() };
}

/// Members change within one epoch, and primaries are replaced, between the copy and its use.
fn lost_memory(rng: &mut Rng, shape: &mut Shape, intensity: &mut Intensity) {
    (shape.faults, shape.may_lack, shape.hosted) = (1 + u8::try_from(rng.below(2)).expect("small"), 0, false);
    (shape.nodes, shape.shards) = (u16::from(shape.faults) * 2 + 2, 1 + u16::try_from(rng.below(3)).expect("small"));
    shape.duration = millis(12_000);
    intensity.nemesis_every = millis(rng.between(500, 1_500));
    intensity.acts = Acts { lost_memory: 4, crash: 3, fast_restart: 1, depose: 1, ..Acts::default() };
}

/// No faults, and as many callers as keys meet all the time.
fn wide(rng: &mut Rng, shape: &mut Shape, intensity: &mut Intensity) {
    *intensity = Intensity::calm();
    shape.faults = shape.faults.max(1);
    (shape.nodes, shape.shards) = (u16::from(shape.faults) + 2, u16::try_from(rng.between(2, 4)).expect("small"));
    (shape.kind, shape.clients, shape.readers, shape.concurrency) = (LoadKind::Wide, 4, 0, 5);
    (shape.pause, shape.duration) = ((millis(0), millis(1)), millis(3_000));
}

/// Of everything that can happen to a node, to the hosts of programs, and between them. Other programs update keys of a table of their own.
fn redis(fronts: Fronts, rng: &mut Rng, shape: &mut Shape, intensity: &mut Intensity) {
    (shape.fronts, shape.kind, shape.drivers) = (fronts, LoadKind::Spread, 3);
    (shape.clients, shape.readers, shape.concurrency) = (1, 0, 1);
    (shape.pause, shape.duration) = ((millis(1), millis(rng.between(4, 20))), millis(10_000));
    intensity.nemesis_every = millis(rng.between(300, 1_200));
    let killed = Acts { crash: 3, fast_restart: 1, torn_turn: 1, client: 2, ..Acts::default() };
    let cut = Acts { partition: 2, one_way: 1, deaf_front: 3, ..killed };
    intensity.acts = Acts { zombie: 1, depose: 1, client_pause: 1, ..cut };
}

/// A minute is longer than every lease except those of clients. The load is small.
fn a_minute_without_coordinator(rng: &mut Rng, shape: &mut Shape, intensity: &mut Intensity) {
    (shape.quiet, shape.duration, shape.prober) = (millis(2_000), millis(70_000), true);
    (shape.concurrency, shape.pause) = (2, (millis(20), millis(100)));
    shape.client_lease_millis = 300_000;
    intensity.nemesis_every = millis(8_000);
    intensity.acts = Acts { coordinator_minute: 2, crash: rng.below(2), ..Acts::default() };
}

/// Primaries are replaced while operation keys are used again.
fn operation_keys(rng: &mut Rng, shape: &mut Shape, intensity: &mut Intensity) {
    (shape.load, shape.duration) = ((0, 40), millis(10_000));
    intensity.nemesis_every = millis(rng.between(400, 1200));
    (shape.clients, shape.pause) = (5, (millis(1), millis(6)));
    intensity.acts = Acts { crash: 1, torn_turn: 1, depose: 6, client: 1, ..Acts::default() };
}

/// Often, by whatever takes their place.
fn primaries_are_replaced(rng: &mut Rng, shape: &mut Shape, intensity: &mut Intensity) {
    shape.duration = millis(10_000);
    (shape.clients, shape.pause) = (5, (millis(1), millis(6)));
    intensity.nemesis_every = millis(rng.between(400, 1200));
    let lost = Acts { crash: 2, torn_turn: 1, depose: 6, ..Acts::default() };
    intensity.acts = Acts { coordinator: 1, client_pause: 1, ..lost };
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
        Scenario::OperationKeys => operation_keys(rng, shape, intensity),
        Scenario::Expiring | Scenario::Listing => {
            shape.kind = if scenario == Scenario::Expiring { LoadKind::Expiring } else { LoadKind::Listing };
            primaries_are_replaced(rng, shape, intensity);
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
    *intensity = Intensity { dial_pause: millis(50), ..Intensity::calm() };
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
