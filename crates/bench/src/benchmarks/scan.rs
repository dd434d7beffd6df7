//! What the newer operations cost: increments with bounds beside plain ones, and everybody's updates beside a listing of all keys.
//!
//! One cluster has all keys. In every other round a client lists them, page after page, as fast as the answers come; the load is as
//! much as the cluster takes in all rounds.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use anyhow::{anyhow, bail};
use kasha_client::session::Completion;
use kasha_types::TableId;
use kasha_wire::operation::ScanCursor;
use kasha_wire::outcome::Shape;
use kasha_wire::{Outcome, Read};

use crate::ClusterSpec;
use crate::client::{Connect, call};
use crate::harness::keys::Keys;
use crate::harness::load::{Limit, Workload};
use crate::harness::operation::Operation;
use crate::harness::{Arm, BenchOptions, Clients, Measured, Run, in_turns};
use crate::section::{Cell, Section, Table};

const VALUE_BYTES: usize = 16;
const FAULTS: u8 = 1;
const CLIENTS: usize = 16;
/// Counters that are incremented.
const COUNTERS: u32 = 100_000;
/// Keys of a page, as the client asks for.
const PAGE: u32 = 128;
/// Bytes of log for each key: an object and a completion record that may be there still, and room to clean in.
const KEY_BYTES: u64 = 400;
/// The figure of an increment with a bound by one without.
const BOUNDED: &str = "scan.bounded/increment.p50";
/// Of the benchmark's time. The listing has the rest, with filling its keys.
const BOUNDED_PERCENT: u32 = 40;

pub(super) fn run(options: &BenchOptions) -> anyhow::Result<Section> {
    let run = Run::begin("scan", options);
    let keys = options.keys;
    run.say("starting");
    let memory_mib = Some(((u64::from(keys) * KEY_BYTES) >> 20) + 512);
    let spec = ClusterSpec { memory_mib, ..run.spec("scan", FAULTS) };
    let mut arm = Arm::start("scan", spec, Clients::new(CLIENTS, true))?;
    let about = format!(
        "increments with a bound and without, of {COUNTERS} counters; puts of {VALUE_BYTES} bytes by {CLIENTS} clients to {keys} keys, while a \
         client lists them and while none does; f = {FAULTS}"
    );
    let mut section = Section::new("scan", about);
    let rounds = bounded(&run, options, &mut arm, &mut section)?;
    let rounds = rounds.min(listed(&run, options, &mut arm, keys, &mut section)?);
    drop(arm);
    Ok(section.took(run.end()?, rounds))
}

/// Measured with one client, for latency, and with several.
struct Point {
    name: &'static str,
    workload: Workload,
    alone: Measured,
    crowded: Measured,
}

fn bounded(run: &Run<'_>, options: &BenchOptions, arm: &mut Arm, section: &mut Section) -> anyhow::Result<u32> {
    let point = |(name, operation)| {
        let puts = Workload::puts(VALUE_BYTES, Keys::Uniform(COUNTERS));
        let workload = Workload { operation, prefix: "n-".to_owned(), ..puts };
        Point { name, workload, alone: Measured::new(), crowded: Measured::new() }
    };
    let mut points =
        [("increment", Operation::Increment), ("increment with a bound", Operation::IncrementBounded)].map(point);
    arm.warm(CLIENTS, &points[0].workload, COUNTERS)?;
    let limit = Limit::Time(options.round);
    let by_plain = |[plain, with]: &[Point; 2]| with.alone.relative_to(&plain.alone, |round| round.p50_us);
    let rounds = run.rounds_that_decide(BOUNDED_PERCENT, |round| {
        in_turns(round, &mut points, |Point { workload, alone, crowded, .. }| {
            arm.round_into(1, workload, limit, alone)?;
            arm.round_into(CLIENTS, workload, limit, crowded)
        })?;
        Ok(vec![(BOUNDED.to_owned(), by_plain(&points))])
    })?;
    let mut table = Table::new("Increments with bounds", &["operation", "p50 µs", "p99 µs", "CPU µs", "updates/s"]);
    for Point { name, alone, crowded, .. } in &points {
        table.row([
            Cell::from(*name),
            Cell::Number(alone.percentile_us(50.0), 1),
            Cell::Number(alone.percentile_us(99.0), 1),
            Cell::Number(crowded.cpu_us(), 3),
            Cell::Number(crowded.throughput(), 0),
        ]);
    }
    section.tables.push(table);
    section.ratio(BOUNDED, by_plain(&points));
    let [plain, with] = &points;
    section.ratio("scan.bounded/increment.cpu", with.crowded.relative_to(&plain.crowded, |round| round.cpu_us));
    Ok(rounds)
}

fn listed(
    run: &Run<'_>,
    options: &BenchOptions,
    arm: &mut Arm,
    keys: u32,
    section: &mut Section,
) -> anyhow::Result<u32> {
    run.say(&format!("filling {keys} keys"));
    let puts = Workload::puts(VALUE_BYTES, Keys::Uniform(keys));
    arm.warm(CLIENTS, &puts, keys)?;
    let mut rounds = [(false, Measured::new()), (true, Measured::new())];
    let limit = Limit::Time(options.round);
    let (mut listed, mut seconds) = (0, 0.0);
    let count = run.rounds(|round| {
        in_turns(round, &mut rounds, |(is_listed, measured)| {
            let listing = is_listed.then(|| Listing::begin(arm.children.seeds(), arm.table));
            let done = arm.round_into(CLIENTS, &puts, limit, measured);
            if let Some(listing) = listing {
                listed += listing.end()?;
                seconds += options.round.as_secs_f64();
            }
            done
        })
    })?;
    let mut table = Table::new("Updates beside a listing", &["", "p50 µs", "p99 µs", "CPU µs", "updates/s"]);
    for (is_listed, measured) in &rounds {
        table.row([
            Cell::from(if *is_listed { "beside a listing" } else { "alone" }),
            Cell::Number(measured.percentile_us(50.0), 1),
            Cell::Number(measured.percentile_us(99.0), 1),
            Cell::Number(measured.cpu_us(), 3),
            Cell::Number(measured.throughput(), 0),
        ]);
    }
    section.tables.push(table);
    let [(_, alone), (_, beside)] = &rounds;
    section.ratio("scan.listed/alone.p99", beside.percentile_us(99.0) / alone.percentile_us(99.0));
    section.ratio("scan.listed/alone.updates", beside.relative_to(alone, |round| round.throughput));
    section.ratio("scan.listed_keys_per_second", listed as f64 / seconds);
    Ok(count)
}

/// A client that lists a table until it is asked to stop.
struct Listing {
    stop: Arc<AtomicBool>,
    keys: Arc<AtomicU64>,
    thread: JoinHandle<anyhow::Result<()>>,
}

impl Listing {
    fn begin(seeds: Vec<SocketAddr>, table: TableId) -> Self {
        let (stop, keys) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (stopped, seen) = (Arc::clone(&stop), Arc::clone(&keys));
        let thread = std::thread::spawn(move || {
            let mut event_loop = Connect::new("listing", seeds).open()?;
            let mut cursor = ScanCursor::START;
            while !stopped.load(Ordering::Acquire) {
                let read = Read::Scan { cursor, most: PAGE, prefix: b"" };
                let page = call(&mut event_loop, |session, now, out| session.read(now, table, &read, None, out))?;
                let Completion::Read { result } = page else { bail!("a page came to {page:?}") };
                let Ok(Outcome::Keys(page)) = Outcome::decode(Shape::Keys, &result) else { bail!("it is no page") };
                seen.fetch_add(page.keys.len() as u64, Ordering::Relaxed);
                cursor = page.next.unwrap_or(ScanCursor::START);
            }
            Ok(())
        });
        Self { stop, keys, thread }
    }

    /// The number of keys that it listed.
    fn end(self) -> anyhow::Result<u64> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().map_err(|_| anyhow!("the listing panicked"))??;
        Ok(self.keys.load(Ordering::Relaxed))
    }
}
