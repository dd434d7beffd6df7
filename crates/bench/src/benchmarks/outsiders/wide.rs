//! Who waits for whom: a transaction of twenty keys against sixteen writers of pairs of them, and against callers that give up;
//! and programs that read two numbers and put both.

use std::time::{Duration, Instant};

use anyhow::Context;
use kasha_client::{Client, Error, Table, TransactionOutcome};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::ClusterSpec;
use crate::children::Children;
use crate::harness::Run;
use crate::section::{Cell, Section, Table as Shown};

const NODES: u16 = 3;
const SHARDS: u16 = 4;
const FAULTS: u8 = 1;
const KEYS: usize = 20;
const WRITERS: usize = 16;
const READS: usize = 50;
/// Writers run for so long before the first read.
const WARM_UP: Duration = Duration::from_millis(300);
/// Of those that do not give up: whoever starves is to be seen in the table.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a caller waits that gives up.
const IMPATIENCE: Duration = Duration::from_millis(3);
const PROGRAMS: usize = 24;
/// How long programs run.
const PROGRAMS_RUN: Duration = Duration::from_secs(4);

/// What the twenty keys meet.
#[derive(Clone, Copy)]
enum Others {
    /// Writers of pairs: nothing in it can fail.
    Put,
    /// Writers of pairs whose transactions take locks.
    Increment,
    /// The same, by callers that stop waiting.
    GiveUp,
}

impl Others {
    const ALL: [(Self, &'static str, &'static str); 3] = [
        (Self::Put, "16 writers put pairs", "puts"),
        (Self::Increment, "16 writers increment pairs", "increments"),
        (Self::GiveUp, "16 writers that give up after 3 ms", "given_up"),
    ];
}

/// A cluster, and what its clients know of it.
struct Cluster {
    runtime: Runtime,
    addresses: Vec<String>,
    name: String,
    _children: Children,
}

/// Measures, and adds the tables and the ratios.
pub(super) fn measure(run: &Run<'_>, section: &mut Section) -> anyhow::Result<()> {
    let spec = ClusterSpec { nodes: NODES, shards: SHARDS, ..run.spec("wide", FAULTS) };
    let cluster = Cluster::start(spec)?;
    cluster.runtime.block_on(async {
        measure_wide(&cluster, section).await?;
        measure_programs(&cluster, section).await
    })
}

impl Cluster {
    fn start(spec: ClusterSpec) -> anyhow::Result<Self> {
        let children = Children::start(spec)?;
        let addresses = children.seeds().iter().map(ToString::to_string).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
        let cluster = Self { runtime, addresses, name: "wide".to_owned(), _children: children };
        cluster.runtime.block_on(async {
            let client = Client::connect(&cluster.addresses).await?;
            client.create_table(&cluster.name).await
        })?;
        Ok(cluster)
    }

    /// A client of its own, as each program has one.
    async fn client(&self) -> anyhow::Result<(Client, Table)> {
        let client = Client::connect(&self.addresses).await?;
        let table = client.table(&self.name).await?;
        Ok((client, table))
    }
}

fn key(index: usize) -> String {
    format!("wide:{}", index % KEYS)
}

/// A writer of pairs, until it is aborted.
async fn write_pairs((client, table): (Client, Table), writer: usize, others: Others) -> Result<(), Error> {
    for step in 0.. {
        let (first, second) = (key(writer + step), key(writer + step * 3 + 1 + KEYS / 2));
        if first == second {
            continue;
        }
        let mut pair = client.transaction();
        match others {
            Others::Put => {
                pair.put(&table, &first, "1");
                pair.put(&table, &second, "1");
            }
            Others::Increment | Others::GiveUp => {
                pair.increment(&table, &first, 1);
                pair.increment(&table, &second, 1);
            }
        }
        let patience = if matches!(others, Others::GiveUp) { IMPATIENCE } else { PATIENCE };
        if let Ok(outcome) = tokio::time::timeout(patience, pair.commit().deadline(PATIENCE).into_future()).await {
            outcome?;
        }
    }
    Ok(())
}

/// A transaction that reads all keys, at one moment.
async fn read_all(client: &Client, table: &Table) -> anyhow::Result<Duration> {
    let (mut all, began) = (client.transaction(), Instant::now());
    for index in 0..KEYS {
        all.get(table, key(index));
    }
    let outcome = all.commit().deadline(PATIENCE).await?;
    anyhow::ensure!(matches!(outcome, TransactionOutcome::Committed(_)), "a transaction that only reads failed");
    Ok(began.elapsed())
}

async fn measure_wide(cluster: &Cluster, section: &mut Section) -> anyhow::Result<()> {
    let columns = ["against", "median ms", "longest of 50 ms", "pairs/s"];
    let mut shown = Shown::new("A transaction that reads 20 keys of 4 shards", &columns);
    let (client, table) = cluster.client().await?;
    for index in 0..KEYS {
        table.put(key(index), "0").await?;
    }
    for (others, name, figure) in Others::ALL {
        let mut writers: Vec<JoinHandle<Result<(), Error>>> = Vec::new();
        for writer in 0..WRITERS {
            writers.push(tokio::spawn(write_pairs(cluster.client().await?, writer, others)));
        }
        tokio::time::sleep(WARM_UP).await;
        let (mut times, began, before) = (Vec::new(), Instant::now(), written(&table).await?);
        for _ in 0..READS {
            times.push(read_all(&client, &table).await?);
        }
        let rate = (written(&table).await? - before) / began.elapsed().as_secs_f64();
        for writer in writers {
            anyhow::ensure!(!writer.is_finished(), "a writer has failed");
            writer.abort();
        }
        let (median, longest) = median_and_longest(&mut times);
        shown.row([Cell::from(name), millis(median), millis(longest), Cell::Number(rate, 0)]);
        section.ratio(format!("outsiders.wide.{figure}.longest_ms"), longest.as_secs_f64() * 1e3);
    }
    section.tables.push(shown);
    Ok(())
}

/// How often pairs were written, by the versions of the keys.
async fn written(table: &Table) -> anyhow::Result<f64> {
    let mut versions = 0;
    for index in 0..KEYS {
        versions += table.get(key(index)).await?.map_or(0, |value| value.version);
    }
    Ok(versions as f64 / 2.0)
}

/// Reads two numbers and puts both, until the time is over. How long each took.
async fn program((client, table): (Client, Table), until: Instant) -> Result<Vec<Duration>, Error> {
    let mut times = Vec::new();
    while Instant::now() < until {
        let (began, table) = (Instant::now(), &table);
        let both = client.in_transaction(|both| async move {
            let left = both.get_number(table, "left").await?.unwrap_or(0);
            let right = both.get_number(table, "right").await?.unwrap_or(0);
            both.put(table, "left", (left + 1).to_string());
            both.put(table, "right", (right - 1).to_string());
            Ok::<_, Error>(())
        });
        both.await?;
        times.push(began.elapsed());
    }
    Ok(times)
}

async fn programs(cluster: &Cluster, count: usize) -> anyhow::Result<Vec<Duration>> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(cluster.client().await?);
    }
    let until = Instant::now() + PROGRAMS_RUN;
    let running: Vec<_> = clients.into_iter().map(|client| tokio::spawn(program(client, until))).collect();
    let mut times = Vec::new();
    for program in running {
        times.extend(program.await.context("a program has panicked")??);
    }
    Ok(times)
}

async fn measure_programs(cluster: &Cluster, section: &mut Section) -> anyhow::Result<()> {
    let columns = ["clients", "commits/s", "median ms", "longest ms"];
    let mut shown = Shown::new("Programs that read two numbers and put both", &columns);
    let mut rates = Vec::new();
    for count in [1, PROGRAMS] {
        let mut times = programs(cluster, count).await?;
        rates.push(times.len() as f64 / PROGRAMS_RUN.as_secs_f64());
        let (median, longest) = median_and_longest(&mut times);
        let rate = *rates.last().expect("just pushed");
        shown.row([Cell::from(count as u64), Cell::Number(rate, 0), millis(median), millis(longest)]);
        if count > 1 {
            let spread = longest.as_secs_f64() / median.as_secs_f64();
            section.ratio("outsiders.in_transaction.longest/median", spread);
        }
    }
    section.ratio("outsiders.in_transaction.24_clients/1.throughput", rates[1] / rates[0]);
    section.tables.push(shown);
    Ok(())
}

fn median_and_longest(times: &mut [Duration]) -> (Duration, Duration) {
    times.sort_unstable();
    (times[times.len() / 2], times[times.len() - 1])
}

fn millis(time: Duration) -> Cell {
    Cell::Number(time.as_secs_f64() * 1e3, 1)
}
