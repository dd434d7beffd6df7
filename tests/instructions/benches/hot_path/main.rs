//! Counts how many instructions an operation costs on its way through a core: the frame's bytes are cut and decoded,
//! the node steps, and the turn ends in a shell that throws everything away. `cargo xtask instructions` runs this
//! (docs/benchmarks.md).
#![allow(missing_docs, reason = "the macros make public functions without any")]

mod core;
mod front;
mod load;
mod rehearsal;

use std::hint::black_box;

use gungraun::{Callgrind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main};
use kasha_types::NodeId;
use kasha_wire::frame::Kind;

use crate::core::{Core, Turn};
use crate::front::{Command, Programs};
use crate::load::Operation;
use crate::rehearsal::{Layout, Rehearsal};

/// Operations of each case. `cargo xtask instructions` divides by it.
const OPERATIONS: u64 = 1024;

/// Operations of one turn, unless a case says otherwise. A primary with 64 clients has about as many.
const BATCH: u64 = 16;

/// Updates of one client that are under way: more than those of all turns that are repeated.
const ALL_UNACKNOWLEDGED: u64 = 511;

/// A core in the state after its earlier turns, and the turns that are counted.
struct Run {
    core: Core,
    turns: Vec<Turn>,
    /// Frames that must be sent.
    expected: &'static [(Kind, std::ops::RangeInclusive<u64>)],
}

const ALL: std::ops::RangeInclusive<u64> = OPERATIONS..=OPERATIONS;

impl Run {
    /// The turns of this node: those before `first` make its state, the others are counted.
    fn of(rehearsal: &Rehearsal, node: u16, first: usize) -> Self {
        let (before, counted) = rehearsal.turns_of(node).split_at(first);
        let mut core = Core::start(NodeId(node));
        before.iter().for_each(|turn| core.turn(turn));
        core.sink = core::Sink::new();
        Self { core, turns: counted.to_vec(), expected: &[] }
    }

    /// Keeps only frames of these kinds: the others do not belong to what is counted.
    fn only(mut self, kinds: &[Kind]) -> Self {
        let is_one = |frame: &[u8]| kinds.iter().any(|kind| *kind as u8 == core::kind_of(frame));
        for turn in &mut self.turns {
            turn.received.retain(|(_, frame)| is_one(frame));
        }
        self
    }

    fn expecting(self, expected: &'static [(Kind, std::ops::RangeInclusive<u64>)]) -> Self {
        Self { expected, ..self }
    }
}

/// A primary without backups.
fn alone(operation: Operation, unacknowledged: u64, load: impl FnOnce(&mut Rehearsal)) -> Run {
    let mut rehearsal = Rehearsal::warm(Layout::Alone, operation);
    if unacknowledged > 0 {
        rehearsal.update(operation, OPERATIONS, BATCH, unacknowledged);
    }
    let first = rehearsal.turns_of(1).len();
    load(&mut rehearsal);
    Run::of(&rehearsal, 1, first)
}

/// A node of a cluster in which the primary has one backup, which is also its witness.
fn replicated(node: u16) -> Run {
    let mut rehearsal = Rehearsal::warm(Layout::Replicated, Operation::Put);
    let first = rehearsal.turns_of(node).len();
    rehearsal.update(Operation::Put, OPERATIONS, BATCH, 0);
    Run::of(&rehearsal, node, first)
}

fn update_alone() -> Run {
    alone(Operation::Put, 0, |load| load.update(Operation::Put, OPERATIONS, 1, 0)).expecting(&[(Kind::Answer, ALL)])
}

fn update_batch() -> Run {
    alone(Operation::Put, 0, |load| load.update(Operation::Put, OPERATIONS, 64, 0)).expecting(&[(Kind::Answer, ALL)])
}

fn increment() -> Run {
    let run = alone(Operation::Increment, 0, |load| load.update(Operation::Increment, OPERATIONS, BATCH, 0));
    run.expecting(&[(Kind::Answer, ALL)])
}

fn bounded() -> Run {
    let run = alone(Operation::Bounded, 0, |load| load.update(Operation::Bounded, OPERATIONS, BATCH, 0));
    run.expecting(&[(Kind::Answer, ALL)])
}

fn expiring() -> Run {
    let run = alone(Operation::Expiring, 0, |load| load.update(Operation::Expiring, OPERATIONS, BATCH, 0));
    run.expecting(&[(Kind::Answer, ALL)])
}

fn read() -> Run {
    alone(Operation::Put, 0, |load| load.read(OPERATIONS, BATCH)).expecting(&[(Kind::ReadAnswer, ALL)])
}

fn retry() -> Run {
    let again = |load: &mut Rehearsal| load.repeat(Operation::Put, OPERATIONS, BATCH, ALL_UNACKNOWLEDGED);
    alone(Operation::Put, ALL_UNACKNOWLEDGED, again).expecting(&[(Kind::Answer, ALL)])
}

fn update_kasha() -> Run {
    replicated(1).expecting(&[(Kind::Answer, ALL), (Kind::Append, 10..=64), (Kind::Message, 10..=64)])
}

fn record() -> Run {
    replicated(2).only(&[Kind::Record, Kind::Message]).expecting(&[(Kind::Recorded, ALL), (Kind::Message, 10..=64)])
}

fn append() -> Run {
    replicated(2).only(&[Kind::Append]).expecting(&[(Kind::Appended, 10..=64)])
}

/// One of two primaries: transfers between their keys, which both vote on.
fn coordinated() -> Run {
    let mut rehearsal = Rehearsal::new(Layout::TwoShards);
    rehearsal.transfer(OPERATIONS, BATCH);
    let first = rehearsal.turns_of(1).len();
    rehearsal.transfer(OPERATIONS, BATCH);
    Run::of(&rehearsal, 1, first).expecting(&[(Kind::Answer, ALL), (Kind::Message, 4..=1024)])
}

/// A core with a front, in the state after its earlier turns, and the turns that are counted.
struct RedisRun {
    core: Core<front::Both>,
    turns: Vec<Turn>,
    /// What must be sent to programs.
    reply_bytes: u64,
}

fn redis(command: Command) -> RedisRun {
    let mut programs = Programs::warm();
    let first = programs.turns().len();
    programs.send(command, OPERATIONS, BATCH);
    let (before, counted) = programs.turns().split_at(first);
    let mut core = front::core();
    before.iter().for_each(|turn| core.turn(turn));
    core.sink = core::Sink::new();
    RedisRun { core, turns: counted.to_vec(), reply_bytes: OPERATIONS * command.reply_bytes() }
}

fn redis_set() -> RedisRun {
    redis(Command::Set)
}

fn redis_get() -> RedisRun {
    redis(Command::Get)
}

fn check_redis(run: RedisRun) {
    assert_eq!(run.core.sink.reply_bytes, run.reply_bytes);
    black_box(run.core.sink.bytes);
}

// Commands of the Redis protocol, as many in a pipeline as are gathered into one call.
#[library_benchmark]
#[bench::redis_set(setup = redis_set, teardown = check_redis)]
#[bench::redis_get(setup = redis_get, teardown = check_redis)]
fn counted_redis(mut run: RedisRun) -> RedisRun {
    for turn in &run.turns {
        run.core.turn(turn);
    }
    run
}

/// A core that refuses everything would be fast, so the frames that it sent are checked.
fn check(run: Run) {
    let sent = &run.core.sink.frames;
    for (kind, expected) in run.expected {
        assert!(expected.contains(&sent[*kind as usize]), "{} frames {kind:?}", sent[*kind as usize]);
    }
    let others = (0..sent.len()).filter(|&kind| run.expected.iter().all(|(expected, _)| *expected as usize != kind));
    assert_eq!(others.map(|kind| sent[kind]).sum::<u64>(), 0, "{sent:?}");
    black_box(run.core.sink.bytes);
}

#[library_benchmark]
#[bench::update_alone(setup = update_alone, teardown = check)]
#[bench::update_batch(setup = update_batch, teardown = check)]
#[bench::update_kasha(setup = update_kasha, teardown = check)]
#[bench::increment(setup = increment, teardown = check)]
#[bench::bounded(setup = bounded, teardown = check)]
#[bench::expiring(setup = expiring, teardown = check)]
#[bench::read(setup = read, teardown = check)]
#[bench::retry(setup = retry, teardown = check)]
#[bench::coordinated(setup = coordinated, teardown = check)]
#[bench::record(setup = record, teardown = check)]
#[bench::append(setup = append, teardown = check)]
fn counted(mut run: Run) -> Run {
    for turn in &run.turns {
        run.core.turn(turn);
    }
    run
}

library_benchmark_group!(name = hot_path, benchmarks = [counted, counted_redis]);

main!(
    // Only instructions are counted; caches are not simulated.
    config = LibraryBenchmarkConfig::default().tool(Callgrind::with_args(["--cache-sim=no"])),
    library_benchmark_groups = hot_path
);
