//! What a transaction on one shard costs beside an update: one round trip as well, and more work at each end.
//!
//! One cluster, asked in turns for puts and for transactions of several sizes. Each transaction checks, reads and writes
//! keys of its own, so that nearly all take the fast path.

use std::time::Duration;

use crate::harness::keys::Keys;
use crate::harness::load::{Limit, Operation, Workload};
use crate::harness::{Arm, BenchOptions, Clients, Measured, Run, in_turns};
use crate::section::{Cell, Section, Table};

const KEYS: u32 = 100_000;
const VALUE_BYTES: usize = 100;
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

pub(super) fn run(options: &BenchOptions) -> anyhow::Result<Section> {
    let faults = options.faults.unwrap_or(FAULTS);
    let options = BenchOptions { link_delay: options.link_delay.or(Some(LINK_DELAY)), ..options.clone() };
    let run = Run::begin("transactions", &options);
    let point =
        |name: String, workload: Workload| Point { name, workload, alone: Measured::new(), crowded: Measured::new() };
    let puts = Workload::puts(VALUE_BYTES, Keys::Uniform(KEYS));
    let transactions = WRITES.map(|writes| {
        let operation = Operation::Transaction { writes, value_bytes: VALUE_BYTES };
        point(format!("transaction of {writes}"), Workload { operation, ..Workload::puts(0, Keys::Uniform(KEYS)) })
    });
    let mut points = vec![point("update".to_owned(), puts.clone())];
    points.extend(transactions);
    run.say("starting");
    let mut arm = Arm::start("kasha", run.spec("kasha", faults), Clients::new(CLIENTS, faults > 0))?;
    arm.warm(CLIENTS, &puts, KEYS)?;
    let (few, time) = (Limit::Operations(OPERATIONS), Limit::Time(options.round));
    let rounds = run.rounds(|round| {
        in_turns(round, &mut points, |point| {
            arm.round_into(1, &point.workload, few, &mut point.alone)?;
            arm.round_into(CLIENTS, &point.workload, time, &mut point.crowded)
        })
    })?;
    let about = format!(
        "transactions on one shard beside puts, {VALUE_BYTES} bytes, {KEYS} keys, f = {faults}, {} µs each way; a \
         transaction of n checks a key, reads a key and puts n",
        options.link_delay.unwrap_or_default().as_micros()
    );
    let mut section = Section::new("transactions", about);
    let columns = ["operation", "p50 µs", "p99 µs", "CPU µs", "operations/s", "fast"];
    let mut table = Table::new("On one shard", &columns);
    for Point { name, alone, crowded, .. } in &points {
        table.row([
            Cell::from(name.as_str()),
            Cell::Number(alone.percentile_us(50.0), 1),
            Cell::Number(alone.percentile_us(99.0), 1),
            Cell::Number(crowded.cpu_us(), 3),
            Cell::Number(crowded.throughput(), 0),
            Cell::Number(alone.fast_path_rate(), 4),
        ]);
    }
    section.tables.push(table);
    let (update, transactions) = points.split_first().expect("the update is the first");
    for (point, writes) in transactions.iter().zip(WRITES) {
        let name = |figure: &str| format!("transactions.single{writes}/update.{figure}");
        section.ratio(name("p50"), point.alone.relative_to(&update.alone, |round| round.p50_us));
        section.ratio(name("cpu"), point.crowded.relative_to(&update.crowded, |round| round.cpu_us));
    }
    drop(arm);
    Ok(section.took(run.end()?, rounds))
}
