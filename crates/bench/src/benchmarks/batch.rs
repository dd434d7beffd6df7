//! How many bytes to gather before a sync that nobody waits for (CURP 5.2, figure 15; decision 0006).
//!
//! Small batches cost the primary processor time for every update, and their rounds coincide with the client's next
//! update. Large batches keep keys unsynced for longer, so that more updates conflict.

use crate::ClusterSpec;
use crate::harness::keys::{Keys, Zipf};
use crate::harness::load::{Limit, Workload};
use crate::harness::{Arm, BenchOptions, Clients, Measured, Run, in_turns};
use crate::plot::{Axis, Plot, Series};
use crate::section::{Cell, Section, Table};

/// Bytes; 1 begins a sync after every turn that changed something.
const BATCHES: [u64; 5] = [1, 2048, 16 * 1024, 64 * 1024, 256 * 1024];
const CLIENTS: usize = 32;
const KEYS: u32 = 100_000;
const VALUE_BYTES: usize = 100;
const FAULTS: u8 = 1;

struct Point {
    bytes: u64,
    arm: Arm,
    alone: Measured,
    crowded: Measured,
    skewed: Measured,
}

pub(super) fn run(options: &BenchOptions) -> anyhow::Result<Section> {
    let faults = options.faults.unwrap_or(FAULTS);
    let run = Run::begin("batch", options);
    let uniform = Workload::puts(VALUE_BYTES, Keys::Uniform(KEYS));
    let zipf = Workload::puts(VALUE_BYTES, Keys::Zipf(Zipf::new(KEYS, 0.99)));
    let mut points = Vec::new();
    for bytes in BATCHES {
        run.say(&format!("starting {bytes} bytes"));
        let spec = ClusterSpec { sync_bytes: Some(bytes), ..run.spec(&format!("batch-{bytes}"), faults) };
        let mut arm = Arm::start(&format!("{bytes} bytes"), spec, Clients::new(CLIENTS, true))?;
        arm.warm(CLIENTS, &uniform, KEYS)?;
        points.push(Point { bytes, arm, alone: Measured::new(), crowded: Measured::new(), skewed: Measured::new() });
    }
    let limit = Limit::Time(options.round / 2);
    let rounds = run.rounds(|round| {
        in_turns(round, &mut points, |Point { arm, alone, crowded, skewed, .. }| {
            arm.round_into(1, &uniform, limit, alone)?;
            arm.round_into(CLIENTS, &uniform, limit, crowded)?;
            arm.round_into(CLIENTS, &zipf, limit, skewed)
        })
    })?;
    let about = format!(
        "unsynced bytes that begin a sync nobody waits for; puts of {VALUE_BYTES} bytes to {KEYS} keys, f = {faults}; \
         latency of one client, the rest with {CLIENTS} clients, uniform and by Zipf's law (0.99)"
    );
    let mut section = Section::new("batch", about);
    section.tables.push(table(&points));
    let default = points.iter().find(|point| point.bytes == 16 * 1024).expect("the default is among them");
    for point in &points {
        let name = |figure: &str| format!("batch.{}/default.{figure}", point.bytes);
        section.ratio(name("p50"), point.alone.relative_to(&default.alone, |round| round.p50_us));
        section.ratio(name("cpu"), point.crowded.relative_to(&default.crowded, |round| round.cpu_us));
    }
    section.plots.push(plot(&points));
    drop(points);
    Ok(section.took(run.end()?, rounds))
}

fn table(points: &[Point]) -> Table {
    let columns = ["bytes", "p50 µs, 1 client", "updates/s", "CPU µs", "fast path", "fast path, Zipf", "p99 µs, Zipf"];
    let mut table = Table::new("By the bytes that begin a sync", &columns);
    for Point { bytes, alone, crowded, skewed, .. } in points {
        table.row([
            Cell::from(*bytes),
            Cell::Number(alone.percentile_us(50.0), 1),
            Cell::Number(crowded.throughput(), 0),
            Cell::Number(crowded.cpu_us(), 2),
            Cell::Share(crowded.fast_path_rate()),
            Cell::Share(skewed.fast_path_rate()),
            Cell::Number(skewed.percentile_us(99.0), 1),
        ]);
    }
    table
}

fn plot(points: &[Point]) -> Plot {
    let line = |name: &str, of: fn(&Point) -> f64| Series {
        name: name.to_owned(),
        points: points.iter().map(|point| (point.bytes as f64, of(point))).collect(),
    };
    Plot {
        file: "batch".to_owned(),
        title: "The primary's processor time, by batch".to_owned(),
        x: "bytes that begin a sync",
        y: "µs for an update",
        axis: Axis::Logarithmic,
        series: vec![
            line("uniform keys", |point| point.crowded.cpu_us()),
            line("Zipf 0.99", |point| point.skewed.cpu_us()),
        ],
    }
}
