//! The cost of completion records (RIFL 7.2): the same updates with records and without, in the mode with the least
//! other work, where their share is greatest, and in the mode that servers use.
//!
//! Without records the node looks nothing up, and appends the change alone. Everything else is the same code.

use crate::ClusterSpec;
use crate::figure::Figure;
use crate::harness::keys::Keys;
use crate::harness::load::{Limit, Workload};
use crate::harness::{Arm, BenchOptions, Clients, Measured, Run, in_turns, turns};
use crate::section::{Cell, Section, Table};
use kasha_node::Baseline;

const KEYS: u32 = 100_000;
const VALUE_BYTES: usize = 100;
const FAULTS: u8 = 2;
/// So many that the primary works in batches, and so few that the clients do not.
const CLIENTS: usize = 16;

/// The mode without backups, in which the records' share is greatest. Its figures have the targets.
const UNREPLICATED: &str = "unreplicated";

/// Measured with one client, for latency, and with several.
struct Point {
    arm: Arm,
    alone: Measured,
    crowded: Measured,
}

pub(super) fn run(options: &BenchOptions) -> anyhow::Result<Section> {
    let faults = options.faults.unwrap_or(FAULTS);
    let run = Run::begin("exactly-once", options);
    let modes = [
        (UNREPLICATED, 0, [Baseline::Unreplicated, Baseline::UnreplicatedWithoutRecords]),
        ("kasha", faults, [Baseline::None, Baseline::WithoutRecords]),
    ];
    let workload = Workload::puts(VALUE_BYTES, Keys::Uniform(KEYS));
    let mut points = Vec::new();
    for (mode, faults, baselines) in modes {
        for (records, baseline) in ["on", "off"].into_iter().zip(baselines) {
            let name = format!("{mode} {records}");
            run.say(&format!("starting {name}"));
            let spec = ClusterSpec { baseline, ..run.spec(&name.replace(' ', "-"), faults) };
            let mut arm = Arm::start(&name, spec, Clients::new(CLIENTS, faults > 0))?;
            arm.warm(CLIENTS, &workload, KEYS)?;
            points.push(Point { arm, alone: Measured::new(), crowded: Measured::new() });
        }
    }
    let limit = Limit::Time(options.round);
    let rounds = run.rounds_that_decide(100, |round| {
        in_turns(round, &mut points, |Point { arm, alone, crowded }| {
            arm.round_into(1, &workload, limit, alone)?;
            arm.round_into(CLIENTS, &workload, limit, crowded)
        })?;
        Ok(figures(UNREPLICATED, &points[..2]).into())
    })?;
    let about = format!(
        "with completion records and look-ups, and without; puts of {VALUE_BYTES} bytes to {KEYS} keys; latency of one \
         client, processor time with {CLIENTS}; f = {faults} where replicated"
    );
    let mut section = Section::new("exactly-once", about);
    let columns = ["mode", "p50 µs", "p99 µs", "CPU µs", "CPU µs, 1 client", "updates/s"];
    let mut table = Table::new("With and without completion records", &columns);
    for Point { arm, alone, crowded } in &points {
        table.row([
            Cell::from(arm.name.as_str()),
            Cell::Number(alone.percentile_us(50.0), 1),
            Cell::Number(alone.percentile_us(99.0), 1),
            Cell::Number(crowded.cpu_us(), 3),
            Cell::Number(alone.cpu_us(), 3),
            Cell::Number(crowded.throughput(), 0),
        ]);
    }
    section.tables.push(table);
    for (pair, (mode, ..)) in points.chunks(2).zip(modes) {
        figures(mode, pair).into_iter().for_each(|(name, figure)| section.ratio(name, figure));
    }
    let figure = |name: &str| format!("exactly_once.{}.longest_turn_us", name.replace(' ', "."));
    let longest =
        points.iter().map(|Point { arm, crowded, .. }| (arm.name.clone(), figure(&arm.name), &crowded.longest_turn));
    turns::show(&mut section, "Longest turns of the primary's event loop", turns::micros, longest);
    drop(points);
    Ok(section.took(run.end()?, rounds))
}

/// A mode with records by the same mode without.
fn figures(mode: &str, pair: &[Point]) -> [(String, Figure); 3] {
    let [on, off] = pair else { unreachable!("pairs") };
    let name = |figure: &str| format!("exactly_once.{mode}.on/off.{figure}");
    [
        (name("p50"), on.alone.relative_to(&off.alone, |round| round.p50_us)),
        (name("cpu"), on.crowded.relative_to(&off.crowded, |round| round.cpu_us)),
        (name("updates"), on.crowded.relative_to(&off.crowded, |round| round.throughput)),
    ]
}
