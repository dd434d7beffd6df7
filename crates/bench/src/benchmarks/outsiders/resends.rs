//! Requests that come twice when there is the least room for them: one session with thousands of puts under way, on a
//! machine with twice as many busy threads as processors, beside the cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::Context;
use kasha_client::{Client, SessionStats, Table as ClientTable};

use crate::ClusterSpec;
use crate::children::Children;
use crate::harness::{Run, per};
use crate::section::{Cell, Section, Table};

const NODES: u16 = 3;
const FAULTS: u8 = 1;
const PUTS: usize = 20_000;
const IN_FLIGHT: usize = 4_000;
const VALUE: [u8; 100] = [b'v'; 100];
/// Threads that only compute, for each processor.
const LOAD: usize = 2;

/// Measures it, and adds the table and the ratio to the section.
pub(super) fn measure(run: &Run<'_>, section: &mut Section) -> anyhow::Result<()> {
    let spec = ClusterSpec { nodes: NODES, shards: NODES, ..run.spec("resends", FAULTS) };
    let children = Children::start(spec)?;
    let columns = ["machine", "puts per s", "sent again", "of them %", "silent in time"];
    let title = format!("{PUTS} puts of one session, {IN_FLIGHT} at a time, values of {} bytes", VALUE.len());
    let mut table = Table::new(&title, &columns);
    for (name, figure, load) in
        [("quiet", "outsiders.resends.quiet", 0), ("loaded twice over", "outsiders.resends.loaded", LOAD)]
    {
        let busy = Busy::begin(load)?;
        let found = puts_of_one_session(&children)?;
        drop(busy);
        let again = per(found.stats.retries as f64, found.stats.updates as f64);
        table.row([
            Cell::from(name),
            Cell::Number(found.per_second, 0),
            Cell::from(found.stats.retries),
            Cell::Number(again * 100.0, 2),
            Cell::from(found.stats.timeouts),
        ]);
        section.ratio(figure, again);
    }
    section.tables.push(table);
    Ok(())
}

struct Found {
    per_second: f64,
    stats: SessionStats,
}

/// Each measurement has a session of its own, which knows nothing of how fast the cluster is.
fn puts_of_one_session(children: &Children) -> anyhow::Result<Found> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = Client::connect(children.seeds().iter().map(ToString::to_string)).await?;
        let table = client.create_table("resends").await?;
        let before = client.stats().await?;
        let began = Instant::now();
        let callers = (0..IN_FLIGHT).map(|caller| tokio::spawn(puts_of(table.clone(), caller)));
        for caller in callers.collect::<Vec<_>>() {
            caller.await.context("a caller ended")??;
        }
        let per_second = PUTS as f64 / began.elapsed().as_secs_f64();
        let mut stats = client.stats().await?;
        stats.updates -= before.updates;
        stats.retries -= before.retries;
        stats.timeouts -= before.timeouts;
        Ok(Found { per_second, stats })
    })
}

async fn puts_of(table: ClientTable, caller: usize) -> anyhow::Result<()> {
    for number in 0..PUTS / IN_FLIGHT {
        table.put(format!("key-{caller}-{number}"), VALUE).await?;
    }
    Ok(())
}

/// Threads that only compute, until this is dropped.
struct Busy {
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Busy {
    fn begin(for_each_processor: usize) -> anyhow::Result<Self> {
        let processors = thread::available_parallelism().context("how many processors there are")?.get();
        let stop = Arc::new(AtomicBool::new(false));
        let compute = |stop: Arc<AtomicBool>| {
            move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::black_box((0..10_000u64).fold(1, |sum: u64, number| sum.wrapping_mul(31) ^ number));
                }
            }
        };
        let threads = (0..processors * for_each_processor).map(|_| thread::spawn(compute(Arc::clone(&stop)))).collect();
        Ok(Self { stop, threads })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It only computes, and does not panic.
            let _ = thread.join();
        }
    }
}
