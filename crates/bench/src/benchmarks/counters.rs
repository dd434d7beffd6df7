//! The counter service of Granola's thesis (chapter 6), on two shards: what transactions of both cost, by callers, by their share,
//! by how often they meet, and by how many of them take locks.
//!
//! A counter is incremented on one shard; or two together, one on each shard: the sums might not fit, so that the participants have
//! to agree, and take locks. What cannot fail is written without locks instead.

use std::time::Duration;

use crate::children::ClusterSpec;
use crate::harness::keys::Keys;
use crate::harness::load::{Beside, Limit, Operation, Workload};
use crate::harness::{Arm, BenchOptions, Clients, Measured, Run, in_turns};
use crate::plot::{Axis, Plot, Series};
use crate::section::{Cell, Section, Table};

const KEYS: u32 = 100_000;
const VALUE_BYTES: usize = 8;
const FAULTS: u8 = 1;
/// A local network.
const LINK_DELAY: Duration = Duration::from_micros(100);
const CALLERS: [usize; 5] = [1, 4, 16, 64, 128];
/// Callers of all points but those.
const MANY: usize = 64;
/// Of a thousand operations, how many are of both shards.
const DISTRIBUTED: [u64; 6] = [0, 10, 50, 100, 500, 1000];
/// Of a thousand, how many are of the same two keys.
const CONFLICTS: [u64; 5] = [0, 10, 100, 500, 1000];
/// Of a thousand, how many take locks.
const LOCKING: [u64; 5] = [0, 10, 50, 100, 200];

struct Point {
    x: f64,
    callers: usize,
    workload: Workload,
    measured: Measured,
}

impl Point {
    fn new(x: f64, callers: usize, workload: Workload) -> Self {
        Self { x, callers, workload, measured: Measured::new() }
    }

    fn operations_per_second(&self) -> f64 {
        self.measured.throughput()
    }
}

/// A line of a figure.
struct Line {
    name: &'static str,
    points: Vec<Point>,
}

/// A figure of the thesis.
struct Figure {
    file: &'static str,
    title: &'static str,
    x: &'static str,
    axis: Axis,
    lines: Vec<Line>,
}

/// What is written without locks is no number, and so has keys of its own.
fn prefix_of(operation: Operation) -> &'static str {
    if matches!(operation, Operation::UpdateOfBothHalves { .. }) { "written-" } else { "counter-" }
}

fn on(keys: Keys, operation: Operation) -> Workload {
    Workload { operation, prefix: prefix_of(operation).to_owned(), ..Workload::increments(keys) }
}

fn uniform() -> Keys {
    Keys::Uniform(KEYS)
}

const ONE: Operation = Operation::Increment;
const LOCKED: Operation = Operation::IncrementBothHalves;
const FREE: Operation = Operation::UpdateOfBothHalves { is_checked: false, value_bytes: VALUE_BYTES };

fn figures() -> [Figure; 4] {
    let by_callers = |operation| {
        CALLERS.map(|callers| Point::new(callers as f64, callers, on(uniform(), operation))).into_iter().collect()
    };
    // Of so many in a thousand the operation or its keys are others.
    let mixed = |shares: &[u64], operation, other, keys: &Keys| {
        let point = |&share: &u64| {
            let beside = Beside { share, operation: other, keys: keys.clone(), prefix: prefix_of(other) };
            let workload = match share {
                0 => on(uniform(), operation),
                1000 => on(keys.clone(), other),
                _ => Workload { beside: Some(beside), ..on(uniform(), operation) },
            };
            Point::new(share as f64 / 10.0, MANY, workload)
        };
        shares.iter().map(point).collect()
    };
    [
        Figure {
            file: "counters-callers",
            title: "Counters, by callers (6.2 to 6.5)",
            x: "callers",
            axis: Axis::Logarithmic,
            lines: vec![
                Line { name: "one shard", points: by_callers(ONE) },
                Line { name: "both shards, no locks", points: by_callers(FREE) },
                Line { name: "both shards, locks", points: by_callers(LOCKED) },
            ],
        },
        Figure {
            file: "counters-distributed",
            title: "Counters, by the share of both shards (6.8)",
            x: "% of both shards",
            axis: Axis::Linear,
            lines: vec![
                Line { name: "no locks", points: mixed(&DISTRIBUTED, ONE, FREE, &uniform()) },
                Line { name: "locks", points: mixed(&DISTRIBUTED, ONE, LOCKED, &uniform()) },
            ],
        },
        Figure {
            file: "counters-conflicts",
            title: "Counters of both shards, by the share of the same two (6.10)",
            x: "% of the same two counters",
            axis: Axis::Linear,
            lines: vec![
                Line { name: "no locks", points: mixed(&CONFLICTS, FREE, FREE, &Keys::One) },
                Line { name: "locks", points: mixed(&CONFLICTS, LOCKED, LOCKED, &Keys::One) },
            ],
        },
        Figure {
            file: "counters-locking",
            title: "Counters of both shards, by the share that locks (6.13, 6.14)",
            x: "% with locks, on other counters",
            axis: Axis::Linear,
            lines: vec![Line { name: "all together", points: mixed(&LOCKING, FREE, LOCKED, &uniform()) }],
        },
    ]
}

pub(super) fn run(options: &BenchOptions) -> anyhow::Result<Section> {
    let faults = options.faults.unwrap_or(FAULTS);
    let options = BenchOptions { link_delay: options.link_delay.or(Some(LINK_DELAY)), ..options.clone() };
    let run = Run::begin("counters", &options);
    run.say("starting");
    let mut figures = figures();
    let spec = ClusterSpec { shards: 2, ..run.spec("counters", faults) };
    let most = CALLERS.into_iter().max().expect("some");
    let mut arm = Arm::start("kasha", spec, Clients::new(most, faults > 0))?;
    arm.warm(MANY, &on(uniform(), ONE), KEYS)?;
    let time = Limit::Time(options.round);
    let rounds = run.rounds(|round| {
        let lines = figures.iter_mut().flat_map(|figure| &mut figure.lines);
        let mut points: Vec<&mut Point> = lines.flat_map(|line| &mut line.points).collect();
        in_turns(round, &mut points, |point| arm.round_into(point.callers, &point.workload, time, &mut point.measured))
    })?;
    drop(arm);
    let about = format!(
        "counters on two shards, {KEYS} keys, f = {faults}, {} µs each way, {MANY} callers where nothing else is said; where \
         kinds are mixed, latencies are those of what the share is not of",
        options.link_delay.unwrap_or_default().as_micros()
    );
    let mut section = Section::new("counters", about);
    for figure in &figures {
        section.tables.push(table(figure));
        section.plots.extend(plots(figure));
    }
    let [_, distributed, conflicts, locking] = &figures;
    let last_by_first = |line: &Line| {
        let of = |point: Option<&Point>| point.map_or(0.0, Point::operations_per_second);
        of(line.points.last()) / of(line.points.first())
    };
    section.ratio("counters.all_distributed/none.throughput", last_by_first(&distributed.lines[0]));
    section.ratio("counters.all_conflict/none.throughput", last_by_first(&conflicts.lines[0]));
    section.ratio("counters.all_conflict_locking/none.throughput", last_by_first(&conflicts.lines[1]));
    let one_percent = &locking.lines[0].points[..2];
    let ratio = one_percent[1].operations_per_second() / one_percent[0].operations_per_second();
    section.ratio("counters.locking1/none.throughput", ratio);
    Ok(section.took(run.end()?, rounds))
}

fn table(figure: &Figure) -> Table {
    let mut table = Table::new(figure.title, &["kind", "x", "operations/s", "p50 µs", "p99 µs", "CPU µs", "in vain"]);
    for (line, point) in figure.lines.iter().flat_map(|line| line.points.iter().map(move |point| (line, point))) {
        let measured = &point.measured;
        table.row([
            Cell::from(line.name),
            Cell::Number(point.x, 0),
            Cell::Number(point.operations_per_second(), 0),
            Cell::Number(measured.percentile_us(50.0), 1),
            Cell::Number(measured.percentile_us(99.0), 1),
            Cell::Number(measured.cpu_us(), 3),
            Cell::from(measured.tally.conflicts),
        ]);
    }
    table
}

/// Operations a second; and latencies, where the callers differ.
fn plots(figure: &Figure) -> Vec<Plot> {
    let plot = |file: String, y, of: fn(&Point) -> f64| Plot {
        file,
        title: figure.title.to_owned(),
        x: figure.x,
        y,
        axis: figure.axis,
        series: (figure.lines.iter())
            .map(|line| Series {
                name: line.name.to_owned(),
                points: line.points.iter().map(|point| (point.x, of(point))).collect(),
            })
            .collect(),
    };
    let mut plots = vec![plot(figure.file.to_owned(), "operations/s", Point::operations_per_second)];
    if figure.axis == Axis::Logarithmic {
        let median = |point: &Point| point.measured.percentile_us(50.0);
        plots.push(plot(format!("{}-latency", figure.file), "µs, median", median));
    }
    plots
}
