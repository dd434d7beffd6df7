//! What transactions cost beside what they are made of. A transaction on one shard takes one round trip, as an update does,
//! and more work at each end. A read of keys of two shards takes two round trips, as two reads in turn do. An independent update of
//! two shards takes a proposal, a sync and a vote. A coordinated one takes one round trip, if nobody else uses its keys. An update
//! that waits for its sync is one whose value no witness takes.
//!
//! Each cluster is asked in turns for each. A transaction checks, reads and writes keys of its own, so that nearly all take
//! the fast path.

use std::time::Duration;

use crate::children::ClusterSpec;
use crate::harness::keys::Keys;
use crate::harness::load::{Beside, Limit, Operation, Workload};
use crate::harness::{Arm, BenchOptions, Clients, Measured, Run, in_turns};
use crate::section::{Cell, Section, Table};

const KEYS: u32 = 100_000;
const VALUE_BYTES: usize = 100;
/// More than a witness holds of a request.
const SYNCED_VALUE_BYTES: usize = 2100;
const FAULTS: u8 = 1;
const OPERATIONS: u64 = 500;
const LINK_DELAY: Duration = Duration::from_micros(200);
/// Clients at once, where processor time is measured.
const CLIENTS: usize = 16;
/// So many that latency does not limit them, but the processors do.
const CROWD: usize = 256;
/// Of updates that others are beside: so few that nothing but the others can make them wait.
const FEW_CLIENTS: usize = 4;
/// Writes of the transactions, each with a check and a read besides.
const WRITES: [u32; 3] = [1, 2, 8];

struct Point {
    name: String,
    workload: Workload,
    /// Clients at a time, for latencies.
    clients: usize,
    alone: Measured,
    crowded: Measured,
}

impl Point {
    fn new(name: impl Into<String>, workload: Workload) -> Self {
        Self { name: name.into(), workload, clients: 1, alone: Measured::new(), crowded: Measured::new() }
    }

    fn of_few(self) -> Self {
        Self { clients: FEW_CLIENTS, ..self }
    }
}

pub(super) fn run(options: &BenchOptions) -> anyhow::Result<Section> {
    let faults = options.faults.unwrap_or(FAULTS);
    let options = BenchOptions { link_delay: options.link_delay.or(Some(LINK_DELAY)), ..options.clone() };
    let run = Run::begin("transactions", &options);
    let mut all = Points::new();
    run.say("starting");
    let measure = |spec, clients, points: &mut [Point]| measure(&run, &options, spec, clients, &all.puts, points);
    let rounds = measure(run.spec("one", faults), CLIENTS, &mut all.on_one)?;
    let two_shards = |name| ClusterSpec { shards: 2, ..run.spec(name, faults) };
    measure(two_shards("two"), CLIENTS, &mut all.reads_on_two)?;
    measure(two_shards("two-updates"), CLIENTS, &mut all.updates_on_two)?;
    measure(two_shards("two-beside"), CLIENTS, &mut all.beside_others)?;
    measure(two_shards("two-crowded"), CROWD, &mut all.crowded_on_two)?;
    let about = format!(
        "transactions on one shard beside puts, and reads of two shards beside reads of one; {VALUE_BYTES} bytes, {KEYS} \
         keys, f = {faults}, {} µs each way; a transaction of n checks a key, reads a key and puts n",
        options.link_delay.unwrap_or_default().as_micros()
    );
    let mut section = Section::new("transactions", about);
    section.tables.push(table("On one shard", &all.on_one));
    section.tables.push(table("Reads, in a cluster of two shards", &all.reads_on_two));
    section.tables.push(table("Updates, in a cluster of two shards", &all.updates_on_two));
    section.tables.push(table("Beside others, in a cluster of two shards", &all.beside_others));
    section.tables.push(table(&format!("By {CROWD} callers, in a cluster of two shards"), &all.crowded_on_two));
    all.compare(&mut section);
    run.say("failing over");
    super::pending::measure(&run, &mut section)?;
    Ok(section.took(run.end()?, rounds))
}

/// Everything that is measured, by clusters.
struct Points {
    puts: Workload,
    on_one: Vec<Point>,
    reads_on_two: [Point; 2],
    updates_on_two: [Point; 4],
    beside_others: [Point; 8],
    crowded_on_two: [Point; 4],
}

impl Points {
    fn new() -> Self {
        let puts = Workload::puts(VALUE_BYTES, Keys::Uniform(KEYS));
        let transactions = WRITES.map(|writes| {
            let operation = Operation::Transaction { writes, value_bytes: VALUE_BYTES };
            let workload = Workload { operation, ..Workload::puts(0, Keys::Uniform(KEYS)) };
            Point::new(format!("transaction of {writes}"), workload)
        });
        let of_both = |is_checked| {
            let operation = Operation::UpdateOfBothHalves { is_checked, value_bytes: VALUE_BYTES };
            Workload { operation, ..puts.clone() }
        };
        let (independent, coordinated) = (of_both(false), of_both(true));
        let reads = Workload { reads: 100, ..puts.clone() };
        let both = Workload { operation: Operation::ReadOfBothHalves, ..puts.clone() };
        let synced = Workload::puts(SYNCED_VALUE_BYTES, Keys::Uniform(KEYS));
        let mut on_one = vec![Point::new("update", puts.clone())];
        on_one.extend(transactions);
        Self {
            on_one,
            reads_on_two: [Point::new("read", reads), Point::new("read of both shards", both)],
            updates_on_two: [
                Point::new("update", puts.clone()),
                Point::new("update that waits for its sync", synced),
                Point::new("independent, of both shards", independent.clone()),
                Point::new("coordinated, of both shards", coordinated.clone()),
            ],
            crowded_on_two: [
                Point::new("update", puts.clone()),
                Point::new("update that waits for its sync", Workload::puts(SYNCED_VALUE_BYTES, Keys::Uniform(KEYS))),
                Point::new("independent, of both shards", independent.clone()),
                Point::new("coordinated, of both shards", coordinated.clone()),
            ],
            beside_others: Self::beside(&puts, &independent, &coordinated),
            puts,
        }
    }

    fn beside(puts: &Workload, independent: &Workload, coordinated: &Workload) -> [Point; 8] {
        let beside = |workload: &Workload, share, other: &Workload| Workload {
            beside: Some(Beside { share, operation: other.operation, keys: other.keys.clone(), prefix: "beside-" }),
            ..workload.clone()
        };
        let on_same = |workload: &Workload| Workload { keys: Keys::One, ..workload.clone() };
        [
            Point::new("update", puts.clone()).of_few(),
            Point::new("update, beside 20 % independent", beside(puts, 200, independent)).of_few(),
            Point::new("update, beside 20 % coordinated", beside(puts, 200, coordinated)).of_few(),
            Point::new("independent", independent.clone()),
            Point::new("independent, all of the same two keys", on_same(independent)),
            Point::new("independent, beside 1 % coordinated", beside(independent, 10, coordinated)),
            Point::new("coordinated", coordinated.clone()),
            Point::new("coordinated, all of the same two keys", on_same(coordinated)),
        ]
    }

    fn compare(&self, section: &mut Section) {
        let p50 = |one: &Point, other: &Point| one.alone.relative_to(&other.alone, |round| round.p50_us);
        let faster = |one: &Point, other: &Point| one.crowded.relative_to(&other.crowded, |round| round.throughput);
        let (update, transactions) = self.on_one.split_first().expect("the update is the first");
        for (point, writes) in transactions.iter().zip(WRITES) {
            let name = |figure: &str| format!("transactions.single{writes}/update.{figure}");
            section.ratio(name("p50"), p50(point, update));
            section.ratio(name("cpu"), point.crowded.relative_to(&update.crowded, |round| round.cpu_us));
        }
        let [read, both] = &self.reads_on_two;
        section.ratio("transactions.reads2/in_turn.p50", p50(both, read) / 2.0);
        let [update, synced, independent, coordinated] = &self.updates_on_two;
        section.ratio("transactions.independent2/update.p50", p50(independent, update));
        section.ratio("transactions.independent2/synced.p50", p50(independent, synced));
        section.ratio("transactions.coordinated2/independent2.p50", p50(coordinated, independent));
        // An interactive transaction commits by such checks and writes (0029).
        section.ratio("transactions.coordinated2/synced.p50", p50(coordinated, synced));
        section.ratio("transactions.coordinated2/update.p50", p50(coordinated, update));
        section.ratio("transactions.coordinated2.fast", coordinated.crowded.fast_path_rate());
        section.ratio("transactions.independent2/update.throughput", faster(independent, update));
        let [update, beside_free, beside_locks, independent, same, with_locks, coordinated, locked] =
            &self.beside_others;
        for (point, name) in [(beside_free, "independent20"), (beside_locks, "coordinated20")] {
            section.ratio(format!("transactions.update_beside_{name}/update.p50"), p50(point, update));
            let fast = point.alone.fast_path_rate() / update.alone.fast_path_rate();
            section.ratio(format!("transactions.update_beside_{name}/update.fast"), fast);
        }
        section.ratio("transactions.independent2_same/independent2.throughput", faster(same, independent));
        let beside_one = "transactions.independent2_beside_coordinated1/independent2.throughput";
        section.ratio(beside_one, faster(with_locks, independent));
        section.ratio("transactions.independent2_same/coordinated2_same.throughput", faster(same, locked));
        section.ratio("transactions.coordinated2_same/coordinated2.throughput", faster(locked, coordinated));
        let [update, synced, independent, coordinated] = &self.crowded_on_two;
        for (point, name) in [(independent, "independent2"), (coordinated, "coordinated2")] {
            section.ratio(format!("transactions.c{CROWD}.{name}/update.throughput"), faster(point, update));
            section.ratio(format!("transactions.c{CROWD}.{name}/synced.throughput"), faster(point, synced));
        }
    }
}

/// Asks a cluster in turns for what the points say.
fn measure(
    run: &Run,
    options: &BenchOptions,
    spec: ClusterSpec,
    clients: usize,
    puts: &Workload,
    points: &mut [Point],
) -> anyhow::Result<u32> {
    let mut arm = Arm::start("kasha", spec, Clients::new(clients, options.faults.unwrap_or(FAULTS) > 0))?;
    arm.warm(clients, puts, KEYS)?;
    let (few, time) = (Limit::Operations(OPERATIONS), Limit::Time(options.round));
    run.rounds(|round| {
        in_turns(round, points, |point| {
            arm.round_into(point.clients, &point.workload, few, &mut point.alone)?;
            arm.round_into(clients, &point.workload, time, &mut point.crowded)
        })
    })
}

fn table(name: &str, points: &[Point]) -> Table {
    let columns = ["operation", "p50 µs", "p99 µs", "CPU µs", "operations/s", "fast", "fast at load", "in vain"];
    let mut table = Table::new(name, &columns);
    for Point { name, alone, crowded, .. } in points {
        table.row([
            Cell::from(name.as_str()),
            Cell::Number(alone.percentile_us(50.0), 1),
            Cell::Number(alone.percentile_us(99.0), 1),
            Cell::Number(crowded.cpu_us(), 3),
            Cell::Number(crowded.throughput(), 0),
            if alone.tally.updates > 0 { Cell::Number(alone.fast_path_rate(), 4) } else { Cell::from("") },
            if crowded.tally.updates > 0 { Cell::Number(crowded.fast_path_rate(), 4) } else { Cell::from("") },
            Cell::Number((alone.tally.conflicts + crowded.tally.conflicts) as f64, 0),
        ]);
    }
    table
}
