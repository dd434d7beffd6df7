//! What transactions cost beside what they are made of. A transaction on one shard takes one round trip, as an update does,
//! and more work at each end. A read of keys of two shards takes two round trips, as two reads in turn do. An update of two shards
//! takes a proposal, a sync and a vote; an update that waits for its sync is one whose value no witness takes.
//!
//! Each cluster is asked in turns for each. A transaction checks, reads and writes keys of its own, so that nearly all take
//! the fast path.

use std::time::Duration;

use crate::children::ClusterSpec;
use crate::harness::keys::Keys;
use crate::harness::load::{Limit, Operation, Workload};
use crate::harness::{Arm, BenchOptions, Clients, Measured, Run, in_turns};
use crate::section::{Cell, Section, Table};

const KEYS: u32 = 100_000;
const VALUE_BYTES: usize = 100;
/// More than a witness holds of a request.
const SYNCED_VALUE_BYTES: usize = 2100;
const FAULTS: u8 = 1;
const OPERATIONS: u64 = 500;
const LINK_DELAY: Duration = Duration::from_micros(200);
/// For processor time.
const CLIENTS: usize = 16;
/// Writes of the transactions, each with a check and a read besides.
const WRITES: [u32; 3] = [1, 2, 8];

struct Point {
    name: String,
    workload: Workload,
    alone: Measured,
    crowded: Measured,
}

impl Point {
    fn new(name: impl Into<String>, workload: Workload) -> Self {
        Self { name: name.into(), workload, alone: Measured::new(), crowded: Measured::new() }
    }
}

pub(super) fn run(options: &BenchOptions) -> anyhow::Result<Section> {
    let faults = options.faults.unwrap_or(FAULTS);
    let options = BenchOptions { link_delay: options.link_delay.or(Some(LINK_DELAY)), ..options.clone() };
    let run = Run::begin("transactions", &options);
    let puts = Workload::puts(VALUE_BYTES, Keys::Uniform(KEYS));
    let transactions = WRITES.map(|writes| {
        let operation = Operation::Transaction { writes, value_bytes: VALUE_BYTES };
        Point::new(format!("transaction of {writes}"), Workload { operation, ..Workload::puts(0, Keys::Uniform(KEYS)) })
    });
    let mut on_one = vec![Point::new("update", puts.clone())];
    on_one.extend(transactions);
    let reads = Workload { reads: 100, ..puts.clone() };
    let both = Workload { operation: Operation::ReadOfBothHalves, ..puts.clone() };
    let mut on_two = [Point::new("read", reads), Point::new("read of both shards", both)];
    let of_both = |is_checked| {
        let operation = Operation::UpdateOfBothHalves { is_checked, value_bytes: VALUE_BYTES };
        Workload { operation, ..puts.clone() }
    };
    let mut updates_on_two = [
        Point::new("update", puts.clone()),
        Point::new("update that waits for its sync", Workload::puts(SYNCED_VALUE_BYTES, Keys::Uniform(KEYS))),
        Point::new("independent, of both shards", of_both(false)),
        Point::new("coordinated, of both shards", of_both(true)),
    ];
    run.say("starting");
    let rounds = measure(&run, &options, run.spec("one", faults), &puts, &mut on_one)?;
    let two_shards = |name| ClusterSpec { shards: 2, ..run.spec(name, faults) };
    measure(&run, &options, two_shards("two"), &puts, &mut on_two)?;
    measure(&run, &options, two_shards("two-updates"), &puts, &mut updates_on_two)?;
    let about = format!(
        "transactions on one shard beside puts, and reads of two shards beside reads of one; {VALUE_BYTES} bytes, {KEYS} \
         keys, f = {faults}, {} µs each way; a transaction of n checks a key, reads a key and puts n",
        options.link_delay.unwrap_or_default().as_micros()
    );
    let mut section = Section::new("transactions", about);
    section.tables.push(table("On one shard", &on_one));
    section.tables.push(table("Reads, in a cluster of two shards", &on_two));
    section.tables.push(table("Updates, in a cluster of two shards", &updates_on_two));
    let (update, transactions) = on_one.split_first().expect("the update is the first");
    for (point, writes) in transactions.iter().zip(WRITES) {
        let name = |figure: &str| format!("transactions.single{writes}/update.{figure}");
        section.ratio(name("p50"), point.alone.relative_to(&update.alone, |round| round.p50_us));
        section.ratio(name("cpu"), point.crowded.relative_to(&update.crowded, |round| round.cpu_us));
    }
    let [read, both] = &on_two;
    let in_turn = both.alone.relative_to(&read.alone, |round| round.p50_us) / 2.0;
    section.ratio("transactions.reads2/in_turn.p50", in_turn);
    let [update, synced, independent, coordinated] = &updates_on_two;
    let p50 = |one: &Point, other: &Point| one.alone.relative_to(&other.alone, |round| round.p50_us);
    section.ratio("transactions.independent2/update.p50", p50(independent, update));
    section.ratio("transactions.independent2/synced.p50", p50(independent, synced));
    section.ratio("transactions.coordinated2/independent2.p50", p50(coordinated, independent));
    let throughput = independent.crowded.relative_to(&update.crowded, |round| round.throughput);
    section.ratio("transactions.independent2/update.throughput", throughput);
    Ok(section.took(run.end()?, rounds))
}

/// Asks a cluster in turns for what the points say.
fn measure(
    run: &Run,
    options: &BenchOptions,
    spec: ClusterSpec,
    puts: &Workload,
    points: &mut [Point],
) -> anyhow::Result<u32> {
    let mut arm = Arm::start("kasha", spec, Clients::new(CLIENTS, options.faults.unwrap_or(FAULTS) > 0))?;
    arm.warm(CLIENTS, puts, KEYS)?;
    let (few, time) = (Limit::Operations(OPERATIONS), Limit::Time(options.round));
    run.rounds(|round| {
        in_turns(round, points, |point| {
            arm.round_into(1, &point.workload, few, &mut point.alone)?;
            arm.round_into(CLIENTS, &point.workload, time, &mut point.crowded)
        })
    })
}

fn table(name: &str, points: &[Point]) -> Table {
    let columns = ["operation", "p50 µs", "p99 µs", "CPU µs", "operations/s", "fast"];
    let mut table = Table::new(name, &columns);
    for Point { name, alone, crowded, .. } in points {
        table.row([
            Cell::from(name.as_str()),
            Cell::Number(alone.percentile_us(50.0), 1),
            Cell::Number(alone.percentile_us(99.0), 1),
            Cell::Number(crowded.cpu_us(), 3),
            Cell::Number(crowded.throughput(), 0),
            if alone.tally.updates > 0 { Cell::Number(alone.fast_path_rate(), 4) } else { Cell::from("") },
        ]);
    }
    table
}
