//! How long a shard is away when its primary is killed (CURP 4.6; RAMCloud's recovery), by the bytes and by the
//! operations that it holds.
//!
//! Three nodes with default settings. A shard whose primary is not beside the coordinator is filled, clients keep
//! updating it, and its primary is killed with `kill -9`. The time runs from the last answer before the kill to the
//! first answer after it. It includes the lease that must run out. Every point is a cluster of its own. And how long programs of Redis wait ([`redis`]).

mod redis;

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use kasha_machine::{Effects, Rng};
use kasha_runtime::{Application, Clock, Control};
use kasha_types::limits::NODE_LEASE;
use kasha_types::{NodeId, ShardId, Tick};

use crate::children::{COORDINATOR, Children};
use crate::harness::crowd::Crowd;
use crate::harness::keys::Keys;
use crate::harness::load::{Limit, Load, Tally, Workload};
use crate::harness::probe::Probe;
use crate::harness::{Arm, BenchOptions, Clients, Run, primary_address};
use crate::plot::{Axis, Plot, Series};
use crate::section::{Cell, Section, Table};
use crate::{ClusterSpec, limits};

const NODES: u16 = 3;
const FAULTS: u8 = 1;
const CLIENTS: usize = 32;
/// Clients that go on while the primary is killed.
const WATCHERS: usize = 4;
/// The usual value.
const VALUE_BYTES: usize = 1024;
/// Values of the points that differ by the number of their operations.
const OTHER_VALUES: [usize; 2] = [100, 16 * 1024];
/// Updates between two checks of the log's length.
const FILLED_AT_ONCE: u64 = 4096;
/// Time before the kill, so that the clients run steadily; and after the first answer, so that it is not the only one.
const STRIDE: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(60);

/// A shard's size, and how long it was away.
struct Point {
    bytes: u64,
    value_bytes: usize,
    operations: u64,
    away: Duration,
}

pub(super) fn run(options: &BenchOptions) -> anyhow::Result<Section> {
    let run = Run::begin("recovery", options);
    let largest = options.bytes;
    // The largest first: it has a target.
    let mut wanted: Vec<(u64, usize)> = [largest, largest / 4, largest / 16].map(|bytes| (bytes, VALUE_BYTES)).into();
    wanted.extend(OTHER_VALUES.map(|value_bytes| (largest / 4, value_bytes)));
    let mut points = Vec::new();
    for (bytes, value_bytes) in wanted {
        if !points.is_empty() && run.is_out_of_patience() {
            break;
        }
        points.push(measure(&run, bytes, value_bytes)?);
    }
    let about = format!(
        "{NODES} nodes, f = {FAULTS}, a lease of {NODE_LEASE:?}, {WATCHERS} clients that go on; the primary is killed, and \
         the time is that from the last answer before to the first one after"
    );
    let mut section = Section::new("recovery", about);
    let columns = ["log MiB", "value bytes", "operations", "seconds away", "beyond the lease", "leases"];
    let mut table = Table::new("By bytes and operations", &columns);
    for point in &points {
        let seconds = point.away.as_secs_f64();
        let (beyond, leases) = (seconds - NODE_LEASE.as_secs_f64(), seconds / NODE_LEASE.as_secs_f64());
        table.row([
            Cell::from(point.bytes >> 20),
            Cell::from(point.value_bytes as u64),
            Cell::from(point.operations),
            Cell::Number(seconds, 2),
            Cell::Number(beyond, 2),
            Cell::Number(leases, 2),
        ]);
        let name = format!("recovery.{}MiB.{}B", point.bytes >> 20, point.value_bytes);
        section.detail(format!("{name}.seconds"), seconds);
        section.detail(format!("{name}.leases"), leases);
    }
    section.ratio("recovery.largest.leases", points[0].away.as_secs_f64() / NODE_LEASE.as_secs_f64());
    section.tables.push(table);
    section.plots.push(plot(&points));
    redis::measure(&run, &mut section)?;
    Ok(section.took(run.end()?, 0))
}

fn plot(points: &[Point]) -> Plot {
    let mut same: Vec<&Point> = points.iter().filter(|point| point.value_bytes == VALUE_BYTES).collect();
    same.sort_by_key(|point| point.bytes);
    let at = |point: &&Point| ((point.bytes >> 20) as f64, point.away.as_secs_f64());
    Plot {
        file: "recovery".to_owned(),
        title: "A shard without its primary".to_owned(),
        x: "MiB of log",
        y: "seconds from the last answer to the next",
        axis: Axis::Linear,
        series: vec![Series { name: "values of 1 KiB".to_owned(), points: same.iter().map(at).collect() }],
    }
}

fn measure(run: &Run<'_>, bytes: u64, value_bytes: usize) -> anyhow::Result<Point> {
    let name = format!("{} MiB of {value_bytes} bytes", bytes >> 20);
    run.say(&format!("{name}: starting"));
    let folder = run.folder(&format!("{}-{value_bytes}", bytes >> 20));
    let spec = ClusterSpec {
        nodes: NODES,
        shards: NODES,
        data: folder.clone(),
        memory_mib: Some(((bytes * 2) >> 20).max(limits::BENCH_MEMORY_MIB)),
        ..run.spec("", FAULTS)
    };
    let clients = Clients { deadline: PATIENCE, ..Clients::new(CLIENTS, true) };
    let mut arm = Arm::start(&name, spec, clients)?;
    let (shard, primary) = victim(&arm)?;
    arm.probe = Probe::connect(primary_address(&arm.configuration, shard)?)?;
    let prefix = format!("{}key-", arm.tag_of(shard)?);
    let workload = Workload { prefix, ..Workload::puts(value_bytes, Keys::Each) };
    let (mut length, mut operations) = (0, 0);
    while length < bytes {
        run.say(&format!("{name}: {} MiB are there", length >> 20));
        arm.fill(CLIENTS, &workload, FILLED_AT_ONCE.min(bytes / value_bytes as u64 / 8 + 1))?;
        (length, operations) = log_of(&mut arm, shard)?;
    }
    run.say(&format!("{name}: killing the primary"));
    let keys = u32::try_from(operations).unwrap_or(u32::MAX);
    let updates = Workload { keys: Keys::Uniform(keys), ..workload };
    let tally = kill(&mut arm, primary, &updates)?;
    let away = tally.longest_gap;
    drop(arm);
    // The data of a gigabyte is removed at once, and not kept until the end.
    std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    Ok(Point { bytes: length, value_bytes, operations, away })
}

/// A shard whose primary can be killed alone.
fn victim(arm: &Arm) -> anyhow::Result<(ShardId, NodeId)> {
    let shards = arm.configuration.shards.iter();
    let mut away = shards.filter(|shard| shard.primary != COORDINATOR).map(|shard| (shard.shard, shard.primary));
    away.next().context("every primary is beside the coordinator")
}

/// How long the shard's log is, and how many updates made it so.
fn log_of(arm: &mut Arm, shard: ShardId) -> anyhow::Result<(u64, u64)> {
    let status = arm.probe.status()?;
    let replica = status.replicas.iter().find(|replica| replica.shard == shard && replica.primary);
    replica.map(|replica| (replica.end.offset.0, replica.updates)).with_context(|| format!("{shard} lost its primary"))
}

/// Clients go on, the primary is killed, and clients go on with the next primary.
fn kill(arm: &mut Arm, primary: NodeId, workload: &Workload) -> anyhow::Result<Tally> {
    let mut rng = Rng::new(1);
    let load = Load::new(arm.table, WATCHERS, workload, Limit::Time(PATIENCE), &mut rng);
    let kill_at = Clock::now().after(STRIDE);
    let mut fail_over = FailOver { load, children: &mut arm.children, primary, stage: Stage::Before { kill_at } };
    arm.event_loop.run(&mut fail_over)?;
    let FailOver { load, stage, .. } = fail_over;
    if let Some(failure) = load.failure {
        bail!("an update was not done after its primary was killed: {failure}");
    }
    ensure!(matches!(stage, Stage::After { .. }), "nobody took over within {PATIENCE:?}");
    Ok(load.tally)
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Before {
        kill_at: Tick,
    },
    /// Answers that were under way may still arrive from sockets' buffers.
    Killed {
        answers: u64,
        since: Tick,
    },
    After {
        end_at: Tick,
    },
}

/// The clients, and what is done to their primary.
struct FailOver<'a> {
    load: Load<'a>,
    children: &'a mut Children,
    primary: NodeId,
    stage: Stage,
}

impl FailOver<'_> {
    fn advance(&mut self, now: Tick) {
        let answers = self.load.tally.updates;
        self.stage = match self.stage {
            Stage::Before { kill_at } if now >= kill_at => {
                if let Err(error) = self.children.kill(self.primary) {
                    self.load.failure.get_or_insert(format!("{error:#}"));
                }
                Stage::Killed { answers, since: Clock::now() }
            }
            // No node takes over before half a lease has passed.
            Stage::Killed { since, .. } if now.since(since) < NODE_LEASE / 2 => Stage::Killed { answers, since },
            Stage::Killed { answers: before, .. } if answers > before => Stage::After { end_at: now.after(STRIDE) },
            Stage::After { end_at } if now >= end_at => {
                self.load.end();
                self.stage
            }
            Stage::Before { .. } | Stage::Killed { .. } | Stage::After { .. } => self.stage,
        };
    }
}

impl Application<Crowd> for FailOver<'_> {
    fn turn(&mut self, now: Tick, crowd: &mut Crowd, out: &mut Effects) -> Control {
        self.advance(now);
        self.load.turn(now, crowd, out)
    }

    fn next_wake(&self) -> Option<Tick> {
        match self.stage {
            Stage::Before { kill_at } => Some(kill_at),
            Stage::Killed { .. } => None,
            Stage::After { end_at } => Some(end_at),
        }
    }
}
