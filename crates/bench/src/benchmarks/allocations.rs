//! Heap allocations of updates on the primary's thread, over keys that are all there (section 12: none in steady
//! state).
//!
//! The count includes everything else that the loop does meanwhile: heartbeats, syncs, garbage collection of witnesses,
//! new segments. An idle primary is counted for the same time, and its allocations are subtracted.
//! segments. An idle primary is counted for as long beside it, and what it allocates is taken off.

use std::time::Duration;

use crate::harness::keys::Keys;
use crate::harness::load::{Limit, Workload};
use crate::harness::{Arm, BenchOptions, Clients, Measured, Run, per};
use crate::section::{Cell, Section, Table, rounded};
use kasha_types::limits::SEGMENT_BYTES;

const KEYS: u32 = 10_000;
const VALUE_BYTES: usize = 100;
const CLIENTS: usize = 8;
const UPDATES: u64 = 100_000;
const FAULTS: u8 = 1;

pub(super) fn run(options: &BenchOptions) -> anyhow::Result<Section> {
    let faults = options.faults.unwrap_or(FAULTS);
    let run = Run::begin("allocations", options);
    run.say("starting");
    let mut arm = Arm::start("kasha", run.spec("kasha", faults), Clients::new(CLIENTS, true))?;
    run.say("warming up");
    let workload = Workload::puts(VALUE_BYTES, Keys::Uniform(KEYS));
    arm.warm(CLIENTS, &workload, KEYS)?;
    arm.round(CLIENTS, &workload, Limit::Operations(UPDATES))?;
    arm.measured = Measured::new();
    run.say("counting");
    let log = |arm: &mut Arm| -> anyhow::Result<u64> {
        let status = arm.probe.status()?;
        Ok(status.replicas.iter().filter(|replica| replica.primary).map(|replica| replica.end.offset.0).sum())
    };
    let before = log(&mut arm)?;
    arm.round(CLIENTS, &workload, Limit::Operations(UPDATES))?;
    let segments = (log(&mut arm)? - before) / u64::from(SEGMENT_BYTES);
    let idle = idle_allocations(&mut arm)?;
    let measured = &arm.measured;
    let allocations = measured.usage.allocations as f64;
    let in_background = idle * measured.tally.elapsed.as_secs_f64();
    let about = format!(
        "{UPDATES} puts of {VALUE_BYTES} bytes over {KEYS} keys that are there, {CLIENTS} clients, f = {faults}, on the \
         primary's event loop"
    );
    let mut section = Section::new("allocations", about);
    let columns = ["updates", "allocations", "of these idle", "segments begun", "for an update"];
    let mut table = Table::new("Heap allocations", &columns);
    let each = per((allocations - in_background).max(0.0), measured.operations());
    table.row([
        Cell::from(measured.tally.updates),
        Cell::Number(allocations, 0),
        Cell::Number(in_background, 0),
        Cell::from(segments),
        Cell::Number(each, 4),
    ]);
    section.tables.push(table);
    // Two digits: one new segment in a hundred thousand updates is not an allocation for each.
    section.detail("allocations.per_update", rounded(each, 2));
    section.detail("allocations.total", allocations);
    drop(arm);
    Ok(section.took(run.end()?, 1))
}

/// Allocations a second of an idle primary.
fn idle_allocations(arm: &mut Arm) -> anyhow::Result<f64> {
    const TIME: Duration = Duration::from_secs(2);
    let before = arm.probe.usage()?;
    std::thread::sleep(TIME);
    let after = arm.probe.usage()?;
    Ok((after.allocations - before.allocations) as f64 / TIME.as_secs_f64())
}
