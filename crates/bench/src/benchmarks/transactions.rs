//! What transactions cost beside what they are made of. A transaction on one shard takes one round trip, as an update does,
//! and more work at each end. A read of keys of two shards takes two round trips, as two reads in turn do. An independent update of
//! two shards takes a proposal, a sync and a vote. A coordinated one takes one round trip, if nobody else uses its keys. A two-phase
//! commit takes three, one of them with a sync. An update that waits for its sync is one whose value no witness takes.
//!
//! Clusters are asked in turns for each. A transaction checks, reads and writes keys of its own, so that nearly all take
//! the fast path. The sweeps at the end show how the modes compare with more participants, conflicts or callers.

use std::time::Duration;

use super::modes::{Clusters, Mode, on_same_keys};
use super::sweeps::{self, Kind, OnMore, OnTwo};
use crate::harness::keys::Keys;
use crate::harness::load::{Beside, Limit, Workload};
use crate::harness::operation::{Operation, Spread};
use crate::harness::{BenchOptions, Measured, Run, in_turns};
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
const BOTH: Spread = Spread::over(2);
/// Of the benchmark's time: what is measured on one shard, reads, updates, those beside others, those of a crowd, and sweeps on two
/// shards and on four.
const PERCENT: [u32; 7] = [9, 5, 24, 28, 14, 14, 6];

struct Point {
    name: String,
    mode: Mode,
    workload: Workload,
    /// Clients at a time, for latencies.
    clients: usize,
    alone: Measured,
    crowded: Measured,
}

impl Point {
    fn new(name: impl Into<String>, workload: Workload) -> Self {
        let (mode, alone, crowded) = (Mode::Timestamps, Measured::new(), Measured::new());
        Self { name: name.into(), mode, workload, clients: 1, alone, crowded }
    }

    /// An update of both shards in this mode.
    fn of_both(mode: Mode, puts: &Workload) -> Self {
        Self { mode, ..Self::new(name_of(mode), of_both(mode, puts)) }
    }

    fn of_few(self) -> Self {
        Self { clients: FEW_CLIENTS, ..self }
    }
}

fn of_both(mode: Mode, puts: &Workload) -> Workload {
    Workload { operation: mode.puts(BOTH, VALUE_BYTES), ..puts.clone() }
}

fn name_of(mode: Mode) -> &'static str {
    match mode {
        Mode::Timestamps => "independent, of both shards",
        Mode::AsSent => "the same as clients send it",
        Mode::Locks => "coordinated, of both shards",
        Mode::TwoPhase => "the same by two-phase commit",
        Mode::Interactive => "interactive, of both shards",
    }
}

/// What takes locks has keys of its own: where modes are mixed, others do not meet it.
fn prefix_of(operation: Operation) -> &'static str {
    match operation {
        Operation::PutOnEach { is_checked: true, .. } => "checked-",
        Operation::Interactive { .. } => "read-",
        _ => "key-",
    }
}

pub(super) fn run(options: &BenchOptions) -> anyhow::Result<Section> {
    let faults = options.faults.unwrap_or(FAULTS);
    let options = BenchOptions { link_delay: options.link_delay.or(Some(LINK_DELAY)), ..options.clone() };
    let run = Run::begin("transactions", &options);
    let mut all = Points::new();
    let about = format!(
        "transactions on one shard beside puts, and those of several shards in each mode; {VALUE_BYTES} bytes, {KEYS} keys, \
         f = {faults}, {} µs each way; a transaction of n checks a key, reads a key and puts n",
        options.link_delay.unwrap_or_default().as_micros()
    );
    let mut section = Section::new("transactions", about);
    run.say("starting");
    let [one, reads, updates, beside, crowded, sweeps_on_two, sweeps_on_four] = PERCENT;
    let start = |shards: u16, clients: usize, modes: &[Mode]| {
        let all = modes.iter().map(|&mode| (shards, mode));
        let name = format!("{clients}-on");
        let mut clusters = Clusters::start(&run, &name, faults, clients, all)?;
        clusters.warm(clients, &all_puts(), KEYS)?;
        anyhow::Ok(Measuring { run: &run, clusters, shards, clients })
    };
    start(1, CLIENTS, &[Mode::Timestamps])?.measure(one, &mut all.on_one)?;
    let mut on_two = start(2, CLIENTS, &Mode::ALL)?;
    on_two.measure(reads, &mut all.reads_on_two)?;
    let rounds = on_two.measure(updates, &mut all.updates_on_two)?;
    on_two.measure(beside, &mut all.beside_others)?;
    drop(on_two);
    start(2, CROWD, &Mode::ALL)?.measure(crowded, &mut all.crowded_on_two)?;
    section.tables.push(table("On one shard", &all.on_one));
    section.tables.push(table("Reads, in a cluster of two shards", &all.reads_on_two));
    section.tables.push(table("Updates, in a cluster of two shards", &all.updates_on_two));
    section.tables.push(table("Beside others, in a cluster of two shards", &all.beside_others));
    section.tables.push(table(&format!("By {CROWD} callers, in a cluster of two shards"), &all.crowded_on_two));
    all.compare(&mut section);
    sweep(&run, faults, [sweeps_on_two, sweeps_on_four], &mut section)?;
    run.say("failing over");
    super::pending::measure(&run, &mut section)?;
    Ok(section.took(run.end()?, rounds))
}

fn all_puts() -> Workload {
    Workload::puts(VALUE_BYTES, Keys::Uniform(KEYS))
}

/// The modes by callers, shares, conflicts, locks and participants.
fn sweep(run: &Run<'_>, faults: u8, percent: [u32; 2], section: &mut Section) -> anyhow::Result<()> {
    let kind = Kind {
        name: "transactions",
        one: Operation::Put(VALUE_BYTES),
        each: |mode, spread| mode.puts(spread, VALUE_BYTES),
        prefix: prefix_of,
        keys: KEYS,
    };
    let (mut on_two, mut on_four) = (OnTwo::new(&kind), OnMore::of_four(&kind));
    sweeps::measure(run, ("sweeps", faults), &kind, percent[0], &mut on_two.all())?;
    let mut four: Vec<_> = on_four.all().collect();
    sweeps::measure(run, ("sweeps-more", faults), &kind, percent[1], &mut four)?;
    let all = on_two.all().into_iter().chain(on_four.all());
    section.tables.extend(all.map(|figure| sweeps::table(figure)));
    Ok(())
}

/// Everything that is measured, by clusters.
struct Points {
    on_one: Vec<Point>,
    reads_on_two: [Point; 2],
    updates_on_two: [Point; 7],
    beside_others: [Point; 10],
    crowded_on_two: [Point; 7],
}

impl Points {
    fn new() -> Self {
        let puts = all_puts();
        let transactions = WRITES.map(|writes| {
            let operation = Operation::Transaction { writes, value_bytes: VALUE_BYTES };
            let workload = Workload { operation, ..Workload::puts(0, Keys::Uniform(KEYS)) };
            Point::new(format!("transaction of {writes}"), workload)
        });
        let reads = Workload { reads: 100, ..puts.clone() };
        let both = Workload { operation: Operation::ReadOfTwoShards, ..puts.clone() };
        let mut on_one = vec![Point::new("update", puts.clone())];
        on_one.extend(transactions);
        Self {
            on_one,
            reads_on_two: [Point::new("read", reads), Point::new("read of both shards", both)],
            updates_on_two: Self::updates(&puts),
            crowded_on_two: Self::updates(&puts),
            beside_others: Self::beside(&puts, &of_both(Mode::Timestamps, &puts), &of_both(Mode::Locks, &puts)),
        }
    }

    fn updates(puts: &Workload) -> [Point; 7] {
        let synced = Workload::puts(SYNCED_VALUE_BYTES, Keys::Uniform(KEYS));
        let [timestamps, as_sent, locks, two_phase, interactive] = Mode::ALL.map(|mode| Point::of_both(mode, puts));
        [
            Point::new("update", puts.clone()),
            Point::new("update that waits for its sync", synced),
            timestamps,
            as_sent,
            locks,
            two_phase,
            interactive,
        ]
    }

    fn beside(puts: &Workload, independent: &Workload, coordinated: &Workload) -> [Point; 10] {
        let beside = |workload: &Workload, share, other: &Workload| Workload {
            beside: Some(Beside { share, operation: other.operation, keys: other.keys.clone(), prefix: "beside-" }),
            ..workload.clone()
        };
        let as_sent = |name, workload: Workload| Point { mode: Mode::AsSent, ..Point::new(name, workload) };
        [
            Point::new("update", puts.clone()).of_few(),
            Point::new("update, beside 20 % independent", beside(puts, 200, independent)).of_few(),
            Point::new("update, beside 20 % coordinated", beside(puts, 200, coordinated)).of_few(),
            Point::new("independent", independent.clone()),
            Point::new("independent, all of the same two keys", on_same_keys(independent)),
            Point::new("independent, beside 1 % coordinated", beside(independent, 10, coordinated)),
            Point::new("coordinated", coordinated.clone()),
            Point::new("coordinated, all of the same two keys", on_same_keys(coordinated)),
            as_sent("as clients send it", independent.clone()),
            as_sent("as clients send it, all of the same two keys", on_same_keys(independent)),
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
        section.ratio("transactions.reads2/in_turn.p50", p50(both, read).times(0.5));
        self.compare_modes(section);
        let [
            update,
            beside_free,
            beside_locks,
            independent,
            same,
            with_locks,
            coordinated,
            locked,
            as_sent,
            as_sent_same,
        ] = &self.beside_others;
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
        section.ratio("transactions.as_sent2_same/as_sent2.throughput", faster(as_sent_same, as_sent));
        section.ratio("transactions.as_sent2_same/independent2.throughput", faster(as_sent_same, independent));
        section.ratio("transactions.as_sent2_same/coordinated2_same.throughput", faster(as_sent_same, locked));
    }

    fn compare_modes(&self, section: &mut Section) {
        let p50 = |one: &Point, other: &Point| one.alone.relative_to(&other.alone, |round| round.p50_us);
        let faster = |one: &Point, other: &Point| one.crowded.relative_to(&other.crowded, |round| round.throughput);
        let [update, synced, independent, as_sent, coordinated, two_phase, interactive] = &self.updates_on_two;
        section.ratio("transactions.independent2/update.p50", p50(independent, update));
        section.ratio("transactions.independent2/synced.p50", p50(independent, synced));
        section.ratio("transactions.independent2/two_phase2.p50", p50(independent, two_phase));
        section.ratio("transactions.as_sent2/update.p50", p50(as_sent, update));
        section.ratio("transactions.as_sent2/synced.p50", p50(as_sent, synced));
        section.ratio("transactions.as_sent2/two_phase2.p50", p50(as_sent, two_phase));
        section.ratio("transactions.as_sent2.fast", as_sent.crowded.fast_path_rate());
        section.ratio("transactions.coordinated2/independent2.p50", p50(coordinated, independent));
        section.ratio("transactions.coordinated2/two_phase2.p50", p50(coordinated, two_phase));
        // An interactive transaction commits by such checks and writes (0029).
        section.ratio("transactions.coordinated2/synced.p50", p50(coordinated, synced));
        section.ratio("transactions.coordinated2/update.p50", p50(coordinated, update));
        section.ratio("transactions.coordinated2.fast", coordinated.crowded.fast_path_rate());
        section.ratio("transactions.interactive2/update.p50", p50(interactive, update));
        section.ratio("transactions.independent2/two_phase2.throughput", faster(independent, two_phase));
        let mut by_updates = |name: &str, point: &Point, update: &Point| {
            let throughput = faster(point, update);
            section.ratio(format!("transactions.{name}/update.throughput"), throughput);
            // As Granola's thesis counts them (6.4): it does something on both shards.
            section.ratio(format!("transactions.{name}/update.operations"), throughput.times(f64::from(BOTH.shards)));
        };
        by_updates("independent2", independent, update);
        by_updates("as_sent2", as_sent, update);
        let [update, synced, independent, as_sent, coordinated, two_phase, _] = &self.crowded_on_two;
        let modes = [
            (independent, "independent2"),
            (as_sent, "as_sent2"),
            (coordinated, "coordinated2"),
            (two_phase, "two_phase2"),
        ];
        for (point, name) in modes {
            by_updates(&format!("c{CROWD}.{name}"), point, update);
        }
        for (point, name) in [(independent, "independent2"), (coordinated, "coordinated2")] {
            section.ratio(format!("transactions.c{CROWD}.{name}/synced.throughput"), faster(point, synced));
        }
    }
}

/// Clusters of one size, and their clients.
struct Measuring<'r> {
    run: &'r Run<'r>,
    clusters: Clusters,
    shards: u16,
    clients: usize,
}

impl Measuring<'_> {
    /// Asks the clusters in turns for what the points say, for this percentage of the benchmark's time.
    fn measure(&mut self, percent: u32, points: &mut [Point]) -> anyhow::Result<u32> {
        let (few, time) = (Limit::Operations(OPERATIONS), Limit::Time(self.run.options.round));
        self.run.rounds_within(percent, |round| {
            in_turns(round, points, |point| {
                let (place, workload) = ((self.shards, point.mode), &point.workload);
                self.clusters.round_into(place, point.clients, (workload, few), &mut point.alone)?;
                self.clusters.round_into(place, self.clients, (workload, time), &mut point.crowded)
            })
        })
    }
}

fn table(name: &str, points: &[Point]) -> Table {
    let columns = ["operation", "p50 µs", "p99 µs", "CPU µs", "calls/s", "fast", "fast at load", "in vain"];
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
