//! Many clients on few keys: the cost of conflicts (CURP 5.4). A conflict never delays execution, only the answer. So a
//! hundred increments of one key run back to back, and their answers leave together with the next sync (section 3).

use crate::harness::keys::{Keys, Zipf};
use crate::harness::load::{Limit, Workload};
use crate::harness::{Arm, BenchOptions, Clients, Measured, Run, in_turns, turns};
use crate::plot::{Axis, Plot, Series};
use crate::section::{Cell, Section, Table};

const CLIENTS: usize = 64;
const KEYS: u32 = 100_000;
const VALUE_BYTES: usize = 100;
const FAULTS: u8 = 1;
const SKEWS: [f64; 6] = [0.5, 0.6, 0.7, 0.8, 0.9, 0.99];

/// A load, its name in the table and in the ratios, and its skew if it has one.
struct Point {
    name: String,
    key: String,
    skew: Option<f64>,
    workload: Workload,
    measured: Measured,
}

/// The index of the loads with uniform keys; the load after each has one key.
const PUTS: usize = 0;
const INCREMENTS: usize = 2;

fn points() -> Vec<Point> {
    let point = |name: &str, key: &str, skew, workload| Point {
        name: name.to_owned(),
        key: key.to_owned(),
        skew,
        workload,
        measured: Measured::new(),
    };
    let mut points = vec![
        point("puts, uniform keys", "uniform_puts", None, Workload::puts(VALUE_BYTES, Keys::Uniform(KEYS))),
        point("puts, one key", "puts", None, Workload::puts(VALUE_BYTES, Keys::One)),
        point("increments, uniform keys", "uniform_increments", None, Workload::increments(Keys::Uniform(KEYS))),
        point("increments, one key", "increments", None, Workload::increments(Keys::One)),
    ];
    for skew in SKEWS {
        let puts = Workload::puts(VALUE_BYTES, Keys::Zipf(Zipf::new(KEYS, skew)));
        let key = format!("zipf{:.0}", skew * 100.0);
        let half = Workload { reads: 50, ..puts.clone() };
        points.push(point(&format!("puts, Zipf {skew}"), &key, Some(skew), puts));
        points.push(point(&format!("half reads, Zipf {skew}"), &format!("{key}_half_reads"), Some(skew), half));
    }
    points
}

pub(super) fn run(options: &BenchOptions) -> anyhow::Result<Section> {
    let faults = options.faults.unwrap_or(FAULTS);
    let run = Run::begin("hot-key", options);
    run.say("starting");
    let mut arm = Arm::start("kasha", run.spec("kasha", faults), Clients::new(CLIENTS, true))?;
    let mut points = points();
    run.say("warming up");
    arm.warm(CLIENTS, &points[PUTS].workload, KEYS)?;
    arm.warm(CLIENTS, &points[INCREMENTS].workload, KEYS)?;
    let limit = Limit::Time(options.round / 2);
    let rounds = run.rounds(|round| {
        in_turns(round, &mut points, |point| arm.round_into(CLIENTS, &point.workload, limit, &mut point.measured))
    })?;
    drop(arm);
    let about = format!(
        "{CLIENTS} clients in closed loops, values of {VALUE_BYTES} bytes, {KEYS} keys, f = {faults}; the fast path is the \
         share of updates that took one round trip"
    );
    let mut section = Section::new("hot-key", about);
    let columns = ["load", "operations/s", "p50 µs", "p99 µs", "CPU µs", "fast path"];
    let mut table = Table::new("Few keys against many", &columns);
    for Point { name, measured, .. } in &points {
        table.row([
            Cell::from(name.as_str()),
            Cell::Number(measured.throughput(), 0),
            Cell::Number(measured.percentile_us(50.0), 1),
            Cell::Number(measured.percentile_us(99.0), 1),
            Cell::Number(measured.cpu_us(), 2),
            Cell::Share(measured.fast_path_rate()),
        ]);
    }
    section.tables.push(table);
    for point in &points {
        section.detail(format!("hot_key.{}.fast_path", point.key), point.measured.fast_path_rate());
    }
    for uniform in [PUTS, INCREMENTS] {
        let (uniform, one) = (&points[uniform], &points[uniform + 1]);
        let ratio = one.measured.relative_to(&uniform.measured, |round| round.throughput);
        section.ratio(format!("hot_key.{}/uniform.throughput", one.key), ratio);
    }
    let figure = |key: &str| format!("hot_key.{key}.longest_turn_us");
    let longest = points.iter().map(|point| (point.name.clone(), figure(&point.key), &point.measured.longest_turn));
    turns::show(&mut section, "Longest turns of the primary's event loop", turns::micros, longest);
    section.plots.push(plot(&points));
    Ok(section.took(run.end()?, rounds))
}

fn plot(points: &[Point]) -> Plot {
    let line = |ending: &str, name: &str| {
        let chosen = points.iter().filter(|point| point.key.ends_with("_half_reads") == (ending == "_half_reads"));
        let at = |point: &Point| Some((point.skew?, point.measured.fast_path_rate() * 100.0));
        Series { name: name.to_owned(), points: chosen.filter_map(at).collect() }
    };
    Plot {
        file: "hot-key".to_owned(),
        title: "Updates in one round trip, by skew".to_owned(),
        x: "Zipf's exponent",
        y: "% of updates",
        axis: Axis::Linear,
        series: vec![line("", "updates only"), line("_half_reads", "half reads")],
    }
}
