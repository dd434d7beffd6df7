//! The modes in which several shards change together, swept as in Granola's thesis (chapter 6): by callers, by the share that is of
//! several shards, by how often they meet, by how many of them take locks, by participants, and by shards.
//!
//! `transactions` and `counters` each give their operations. A table, and plots, of each sweep come of them.

use super::modes::{Clusters, Mode};
use crate::harness::keys::Keys;
use crate::harness::load::{Beside, Limit, Workload};
use crate::harness::operation::{Operation, Spread};
use crate::harness::{Measured, Run, in_turns, per};
use crate::plot::{Axis, Plot, Series};
use crate::section::{Cell, Table};

/// Callers of a sweep by callers. The last number is enough to keep the processors busy.
pub(super) const CALLERS: [usize; 5] = [1, 4, 16, 64, 256];
/// Callers of all other sweeps.
pub(super) const MANY: usize = 64;
/// Callers of a sweep where latency is looked at.
const FEW: usize = 1;
/// Of a thousand operations, how many are of several shards.
const DISTRIBUTED: [u64; 5] = [0, 10, 100, 500, 1000];
/// Of a thousand, how many are of the same keys.
const CONFLICTS: [u64; 5] = [0, 10, 100, 500, 1000];
/// Of a thousand, how many take locks.
const LOCKING: [u64; 4] = [0, 10, 50, 200];
/// The same with how many callers.
const LOCKING_CALLERS: [usize; 3] = [16, MANY, 256];
/// Keys on each shard.
const LOCKED_KEYS: [u8; 4] = [1, 2, 4, 8];
const PARTICIPANTS: [u8; 4] = [1, 2, 3, 4];
/// Shards of a sweep by shards.
const SHARDS: [u16; 3] = [1, 2, 4];
/// Of a thousand, how many are of two shards there.
const DISTRIBUTED_BY_SHARDS: [u64; 3] = [0, 10, 100];

/// What a benchmark sweeps.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    /// The first part of the names of plots.
    pub(super) name: &'static str,
    /// An operation of one shard.
    pub(super) one: Operation,
    /// One of several shards in this mode.
    pub(super) each: fn(Mode, Spread) -> Operation,
    /// The text before the keys of an operation: what is counted and what is written have different keys.
    pub(super) prefix: fn(Operation) -> &'static str,
    pub(super) keys: u32,
}

impl Kind {
    /// The operation of two shards in this mode.
    fn both(&self, mode: Mode) -> Operation {
        (self.each)(mode, Spread::over(2))
    }

    fn uniform(&self) -> Keys {
        Keys::Uniform(self.keys)
    }

    pub(super) fn on(&self, keys: Keys, operation: Operation) -> Workload {
        Workload { operation, prefix: (self.prefix)(operation).to_owned(), ..Workload::increments(keys) }
    }

    /// Of so many in a thousand the operation, or its keys, are others.
    fn mixed(&self, operation: Operation, share: u64, (other, keys): (Operation, Keys)) -> Workload {
        match share {
            0 => self.on(self.uniform(), operation),
            1000 => self.on(keys, other),
            _ => {
                let beside = Beside { share, operation: other, keys, prefix: (self.prefix)(other) };
                Workload { beside: Some(beside), ..self.on(self.uniform(), operation) }
            }
        }
    }
}

/// One place of a line.
pub(super) struct Point {
    x: f64,
    callers: usize,
    shards: u16,
    mode: Mode,
    workload: Workload,
    measured: Measured,
}

impl Point {
    fn new(x: f64, callers: usize, (shards, mode): (u16, Mode), workload: Workload) -> Self {
        Self { x, callers, shards, mode, workload, measured: Measured::new() }
    }

    /// Operations of one transaction. What each shard does counts: one of two shards is two operations (Granola's thesis, 6.4).
    fn operations_each(&self) -> f64 {
        let tally = &self.measured.tally;
        let of = |operation: Operation, count: u64| u64::from(operation.shards()) * count;
        let beside = self.workload.beside.as_ref().map_or(0, |beside| of(beside.operation, tally.beside));
        let operations = of(self.workload.operation, tally.updates + tally.reads) + beside;
        per(operations as f64, self.measured.operations())
    }

    fn operations_per_second(&self) -> f64 {
        self.measured.throughput() * self.operations_each()
    }

    fn median_us(&self) -> f64 {
        self.measured.percentile_us(50.0)
    }
}

/// A line of a figure.
pub(super) struct Line {
    name: String,
    points: Vec<Point>,
}

impl Line {
    /// Operations a second at the last point, by those at the first.
    pub(super) fn last_by_first(&self) -> crate::figure::Figure {
        self.by_first(self.points.len() - 1)
    }

    /// The same at this point.
    pub(super) fn by_first(&self, point: usize) -> crate::figure::Figure {
        let (first, point) = (&self.points[0], &self.points[point]);
        let faster = point.measured.relative_to(&first.measured, |round| round.throughput);
        faster.times(per(point.operations_each(), first.operations_each()))
    }
}

/// What a figure shows, and what its plots are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shows {
    Operations,
    Latency,
    Both,
}

/// A sweep.
pub(super) struct Figure {
    file: String,
    title: &'static str,
    x: &'static str,
    axis: Axis,
    shows: Shows,
    pub(super) lines: Vec<Line>,
}

/// Sweeps in a cluster of two shards.
pub(super) struct OnTwo {
    pub(super) callers: Figure,
    pub(super) distributed: Figure,
    pub(super) lock_cost: Figure,
    pub(super) conflicts: Figure,
    pub(super) locking: Figure,
}

impl OnTwo {
    pub(super) fn new(kind: &Kind) -> Self {
        Self {
            callers: by_callers(kind),
            distributed: by_share(kind),
            lock_cost: by_keys(kind),
            conflicts: by_conflicts(kind),
            locking: by_locks(kind),
        }
    }

    pub(super) fn all(&mut self) -> [&mut Figure; 5] {
        let Self { callers, distributed, lock_cost, conflicts, locking } = self;
        [callers, distributed, lock_cost, conflicts, locking]
    }
}

fn by_callers(kind: &Kind) -> Figure {
    let line = |name: &str, mode, operation| {
        let point = |callers| Point::new(callers as f64, callers, (2, mode), kind.on(kind.uniform(), operation));
        Line { name: name.to_owned(), points: CALLERS.map(point).into() }
    };
    let mut lines = vec![line("one shard", Mode::Timestamps, kind.one)];
    lines.extend(Mode::ALL.map(|mode| line(mode.name(), mode, kind.both(mode))));
    Figure {
        file: format!("{}-callers", kind.name),
        title: "By callers: one shard, and both shards (6.2 to 6.5)",
        x: "callers",
        axis: Axis::Logarithmic,
        shows: Shows::Both,
        lines,
    }
}

fn by_share(kind: &Kind) -> Figure {
    let line = |mode: Mode| {
        let point = |share: u64| {
            let workload = kind.mixed(kind.one, share, (kind.both(mode), kind.uniform()));
            Point::new(share as f64 / 10.0, MANY, (2, mode), workload)
        };
        Line { name: mode.name().to_owned(), points: DISTRIBUTED.map(point).into() }
    };
    Figure {
        file: format!("{}-distributed", kind.name),
        title: "By the share of both shards (6.8)",
        x: "% of both shards",
        axis: Axis::Linear,
        shows: Shows::Operations,
        lines: Mode::OF_ONE_ROUND.map(line).into(),
    }
}

fn by_keys(kind: &Kind) -> Figure {
    let line = |mode: Mode| {
        let point = |keys: u8| {
            let workload = kind.on(kind.uniform(), (kind.each)(mode, Spread { shards: 2, keys }));
            Point::new(f64::from(keys), MANY, (2, mode), workload)
        };
        Line { name: mode.name().to_owned(), points: LOCKED_KEYS.map(point).into() }
    };
    Figure {
        file: format!("{}-lock-cost", kind.name),
        title: "Both shards, by keys on each: what locks cost (6.9)",
        x: "keys on each shard",
        axis: Axis::Linear,
        shows: Shows::Operations,
        lines: Mode::OF_ONE_ROUND.map(line).into(),
    }
}

fn by_conflicts(kind: &Kind) -> Figure {
    let line = |mode: Mode| {
        let operation = kind.both(mode);
        let point = |share: u64| {
            let workload = kind.mixed(operation, share, (operation, Keys::One));
            Point::new(share as f64 / 10.0, MANY, (2, mode), workload)
        };
        Line { name: mode.name().to_owned(), points: CONFLICTS.map(point).into() }
    };
    Figure {
        file: format!("{}-conflicts", kind.name),
        title: "Both shards, by the share of the same two keys (6.10)",
        x: "% of the same two keys",
        axis: Axis::Linear,
        shows: Shows::Operations,
        lines: Mode::OF_ONE_ROUND.map(line).into(),
    }
}

fn by_locks(kind: &Kind) -> Figure {
    let [free, locked] = [Mode::Timestamps, Mode::Locks].map(|mode| kind.both(mode));
    let line = |callers: usize| {
        let point = |share: u64| {
            let workload = kind.mixed(free, share, (locked, kind.uniform()));
            Point::new(share as f64 / 10.0, callers, (2, Mode::Timestamps), workload)
        };
        Line { name: format!("{callers} callers"), points: LOCKING.map(point).into() }
    };
    Figure {
        file: format!("{}-locking", kind.name),
        title: "Both shards, by the share that locks (6.13, 6.14)",
        x: "% with locks, on other keys",
        axis: Axis::Linear,
        shows: Shows::Operations,
        lines: LOCKING_CALLERS.map(line).into(),
    }
}

/// Sweeps that need clusters of other sizes.
pub(super) struct OnMore {
    pub(super) latency: Figure,
    pub(super) participants: Figure,
    pub(super) shards: Option<Figure>,
}

impl OnMore {
    pub(super) fn new(kind: &Kind) -> Self {
        Self {
            latency: by_participants(kind, FEW),
            participants: by_participants(kind, MANY),
            shards: Some(by_shards(kind)),
        }
    }

    /// Without the sweep by shards.
    pub(super) fn of_four(kind: &Kind) -> Self {
        Self { shards: None, ..Self::new(kind) }
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Figure> {
        [&mut self.latency, &mut self.participants].into_iter().chain(&mut self.shards)
    }
}

fn by_participants(kind: &Kind, callers: usize) -> Figure {
    let line = |mode: Mode| {
        let point = |shards: u8| {
            let workload = kind.on(kind.uniform(), (kind.each)(mode, Spread::over(shards)));
            Point::new(f64::from(shards), callers, (4, mode), workload)
        };
        Line { name: mode.name().to_owned(), points: PARTICIPANTS.map(point).into() }
    };
    let (file, title, shows) = match callers {
        FEW => ("participants-latency", "By participants, one caller", Shows::Latency),
        _ => ("participants", "By participants, 64 callers", Shows::Operations),
    };
    Figure {
        file: format!("{}-{file}", kind.name),
        title,
        x: "participants",
        axis: Axis::Linear,
        shows,
        lines: Mode::OF_ONE_ROUND.map(line).into(),
    }
}

fn by_shards(kind: &Kind) -> Figure {
    let line = |share: u64| {
        let mode = Mode::Timestamps;
        let point = |shards: u16| {
            let workload = kind.mixed(kind.one, share, (kind.both(mode), kind.uniform()));
            Point::new(f64::from(shards), MANY, (shards, mode), workload)
        };
        // What is of two shards needs two.
        let shards = SHARDS.into_iter().filter(|&shards| share == 0 || shards > 1);
        Line { name: format!("{} % of two shards", share / 10), points: shards.map(point).collect() }
    };
    Figure {
        file: format!("{}-shards", kind.name),
        title: "By shards, all on the same processors (6.6, 6.7)",
        x: "shards",
        axis: Axis::Linear,
        shows: Shows::Operations,
        lines: DISTRIBUTED_BY_SHARDS.map(line).into(),
    }
}

/// Starts the clusters that these sweeps need, and measures them in turns for this percentage of the benchmark's time.
pub(super) fn measure(
    run: &Run<'_>,
    (name, faults): (&str, u8),
    kind: &Kind,
    percent: u32,
    figures: &mut [&mut Figure],
) -> anyhow::Result<u32> {
    let lines = figures.iter_mut().flat_map(|figure| &mut figure.lines);
    let mut points: Vec<&mut Point> = lines.flat_map(|line| &mut line.points).collect();
    let most = points.iter().map(|point| point.callers).max().expect("some points");
    let all: Vec<_> = points.iter().map(|point| (point.shards, point.mode)).collect();
    let mut clusters = Clusters::start(run, name, faults, most, all)?;
    clusters.warm(MANY.min(most), &kind.on(kind.uniform(), kind.one), kind.keys)?;
    let limit = Limit::Time(run.options.round);
    run.rounds_within(percent, |round| {
        in_turns(round, &mut points, |point| {
            let Point { callers, shards, mode, workload, measured, .. } = &mut **point;
            clusters.round_into((*shards, *mode), *callers, (workload, limit), measured)
        })
    })
}

pub(super) fn table(figure: &Figure) -> Table {
    let columns = ["kind", "x", "transactions/s", "operations/s", "p50 µs", "p99 µs", "CPU µs", "in vain"];
    let mut table = Table::new(figure.title, &columns);
    for (line, point) in figure.lines.iter().flat_map(|line| line.points.iter().map(move |point| (line, point))) {
        let measured = &point.measured;
        table.row([
            Cell::from(line.name.as_str()),
            Cell::Number(point.x, 0),
            Cell::Number(measured.throughput(), 0),
            Cell::Number(point.operations_per_second(), 0),
            Cell::Number(point.median_us(), 1),
            Cell::Number(measured.percentile_us(99.0), 1),
            Cell::Number(measured.cpu_us(), 3),
            Cell::from(measured.tally.conflicts),
        ]);
    }
    table
}

pub(super) fn plots(figure: &Figure) -> Vec<Plot> {
    let plot = |file: String, y, of: fn(&Point) -> f64| Plot {
        file,
        title: figure.title.to_owned(),
        x: figure.x,
        y,
        axis: figure.axis,
        series: (figure.lines.iter())
            .map(|line| Series {
                name: line.name.clone(),
                points: line.points.iter().map(|point| (point.x, of(point))).collect(),
            })
            .collect(),
    };
    let operations = || plot(figure.file.clone(), "operations/s", Point::operations_per_second);
    let latency = |file: String| plot(file, "µs, median", Point::median_us);
    match figure.shows {
        Shows::Operations => vec![operations()],
        Shows::Latency => vec![latency(figure.file.clone())],
        Shows::Both => vec![operations(), latency(format!("{}-latency", figure.file))],
    }
}
