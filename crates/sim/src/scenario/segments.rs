//! Scenarios in which segments matter, and runs of the others in which the memory is nearly full and the cleaner at work.

use kasha_machine::Rng;

use super::{Scenario, Shape};
use crate::clock::{micros, millis};
use crate::intensity::{Acts, Intensity};
use crate::workload::LoadKind;

/// Scenarios in which segments matter: there are many of them, or few.
pub(super) fn long_logs(scenario: Scenario, rng: &mut Rng, shape: &mut Shape, intensity: &mut Intensity) {
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
    if scenario == Scenario::CleaningDivergent {
        // Terms that end early write little, and that must fill the memory.
        (shape.segment_bytes, shape.memory_segments) = (1 << 12, shape.memory_segments.min(16));
    }
    (shape.shards, shape.concurrency) = (1, usize::try_from(rng.between(2, 6)).expect("small"));
    (shape.clients, shape.readers) = (5, 1);
    (shape.pause, shape.duration) = ((millis(1), millis(3)), millis(6_000));
    shape.client_lease_millis = if rng.chance(1, 2) { rng.between(150, 600) } else { 300_000 };
    (shape.append_bytes, shape.copy_bytes) = (1 << rng.between(11, 13), 1 << 11);
    shape.flush_interval = millis(rng.between(20, 100));
    // A new primary has room for everything that a witness holds.
    shape.witness_slots = 16;
    crowd(rng, shape, 3);
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

/// So many long values that 70 to 90 of 100 bytes that may live are theirs. `weight`: how many calls are about them, for
/// each other one.
fn crowd(rng: &mut Rng, shape: &mut Shape, weight: u64) {
    let (segment, count) = (u64::from(shape.segment_bytes), shape.memory_segments);
    let reserved = (count * segment / 20).max(2 * segment);
    // What headers and the unused ends of segments take: `Log::live_bytes_max`.
    let lost = count * (1_000 + segment / 13);
    let room = (count * segment - reserved - lost) * u64::from(shape.shards);
    shape.kind = LoadKind::Crowded { bytes: room / 100 * rng.between(70, 90), weight };
}

/// The memory is nearly full of values that are written over and over, so that whatever else happens to a run happens
/// while the cleaner copies.
pub(super) fn crowded(rng: &mut Rng, shape: &mut Shape) {
    shape.segment_bytes = 1 << rng.between(12, 13);
    shape.memory_segments = rng.between(10, 16);
    // A new primary has room for everything that a witness holds.
    shape.witness_slots = 16;
    crowd(rng, shape, 1);
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
