//! An update whose witness is dead takes two round trips, whatever else its session waits for.
//!
//! The node of the coordinator is killed, so that nobody replaces it. Of two sessions one has a call to a shard whose
//! primary was there. Both put keys of a shard whose witness was there, now and then: so a connection that cannot be made
//! is dialled again at once in the one session, and in the other one it is always in the pause before the next dial.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use kasha_client::{Client, Table as ClientTable};
use kasha_types::{ShardId, slot_of};
use kasha_wire::{Configuration, ShardConfig};

use crate::ClusterSpec;
use crate::children::{COORDINATOR, Children};
use crate::harness::{Run, per};
use crate::section::{Cell, Section, Table};

const NODES: u16 = 4;
const SHARDS: u16 = 12;
const FAULTS: u8 = 1;
/// Puts of each session, before and after the node is killed.
const PUTS: usize = 100;
/// Between two puts of a session: longer than the longest pause before a dial.
const PAUSE: Duration = Duration::from_millis(60);
/// How long the call to the shard that is away may wait.
const PATIENCE: Duration = Duration::from_secs(120);
const TABLE: &str = "outsiders";

/// Measures it, and adds the table and the ratio to the section.
pub(super) fn measure(run: &Run<'_>, section: &mut Section) -> anyhow::Result<()> {
    let spec = ClusterSpec { nodes: NODES, shards: SHARDS, ..run.spec("witness-gone", FAULTS) };
    let mut children = Children::start(spec)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let [before, without, with] = runtime.block_on(measure_both(&mut children))?;
    let columns = ["session", "p50 µs", "p90 µs", "longest ms"];
    let mut table = Table::new("An update whose witness is dead, with the node of the coordinator", &columns);
    let mut p90 = Vec::new();
    let sessions = [
        ("before the node is killed", before),
        ("without a call to a shard that is away", without),
        ("with one", with),
    ];
    for (name, mut times) in sessions {
        times.sort_unstable();
        let at = |percent: usize| times[times.len() * percent / 100].as_secs_f64() * 1e6;
        p90.push(at(90));
        let longest = times.last().context("it has put something")?.as_secs_f64() * 1e3;
        table.row([Cell::from(name), Cell::Number(at(50), 0), Cell::Number(at(90), 0), Cell::Number(longest, 1)]);
    }
    section.tables.push(table);
    section.ratio("outsiders.witness_gone.with_call/without.p90", per(p90[2], p90[1]));
    section.ratio("outsiders.witness_gone.without/before.p90", per(p90[1], p90[0]));
    Ok(())
}

/// One session and what it puts.
struct Writer {
    client: Client,
    table: ClientTable,
    keys: Vec<String>,
    times: Vec<Duration>,
}

impl Writer {
    async fn connect(children: &Children) -> anyhow::Result<Self> {
        let client = Client::connect(children.seeds().iter().map(ToString::to_string)).await?;
        let table = client.create_table(TABLE).await?;
        Ok(Self { client, table, keys: Vec::new(), times: Vec::new() })
    }

    async fn put(&mut self) -> anyhow::Result<()> {
        let key = &self.keys[self.times.len() % self.keys.len()];
        let began = Instant::now();
        self.table.put(key, "v").await?;
        self.times.push(began.elapsed());
        Ok(())
    }
}

/// Both put as often as one of them should.
async fn put_in_turns(writers: &mut [Writer; 2]) -> anyhow::Result<[Vec<Duration>; 2]> {
    while writers[1].times.len() < PUTS {
        for writer in &mut *writers {
            writer.put().await?;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(writers.each_mut().map(|writer| std::mem::take(&mut writer.times)))
}

async fn measure_both(children: &mut Children) -> anyhow::Result<[Vec<Duration>; 3]> {
    let mut writers = [Writer::connect(children).await?, Writer::connect(children).await?];
    let configuration = writers[0].client.fresh_configuration().await?;
    let (away, well) = away_and_well(&configuration)?;
    for (number, writer) in writers.iter_mut().enumerate() {
        writer.keys = keys_of(&configuration, well, &format!("{number}"), PUTS)?;
        // Both have their client ids before the coordinator dies.
        while writer.client.stats().await?.client_ids < 2 {
            writer.table.put(&writer.keys[0], "before").await?;
        }
    }
    let [before, _] = put_in_turns(&mut writers).await?;
    children.kill(COORDINATOR)?;
    let key = keys_of(&configuration, away, "away", 1)?.remove(0);
    let table = writers[1].table.clone();
    let waiting = tokio::spawn(async move { table.put(key, "v").deadline(PATIENCE).await.map(drop) });
    tokio::time::sleep(Duration::from_millis(500)).await;
    let [without, with] = put_in_turns(&mut writers).await?;
    if waiting.is_finished() {
        bail!("the call to the shard that is away has ended: {:?}", waiting.await?);
    }
    waiting.abort();
    Ok([before, without, with])
}

/// A shard whose primary is the coordinator's node, and one whose witness is, which has no member there.
fn away_and_well(configuration: &Configuration) -> anyhow::Result<(ShardId, ShardId)> {
    let is_away = |shard: &&ShardConfig| shard.primary == COORDINATOR;
    let is_well = |shard: &&ShardConfig| {
        shard.witnesses.contains(&COORDINATOR) && shard.members.iter().all(|member| member.node != COORDINATOR)
    };
    let away = configuration.shards.iter().find(is_away).context("no shard is led by the coordinator's node")?;
    let well = configuration.shards.iter().find(is_well).context("no shard has its witness only at that node")?;
    Ok((away.shard, well.shard))
}

fn keys_of(configuration: &Configuration, shard: ShardId, name: &str, count: usize) -> anyhow::Result<Vec<String>> {
    let table = configuration.table(TABLE).context("it was just created")?;
    let keys = (0..1_000_000).map(|number| format!("{name}-{number}"));
    let keys = keys.filter(|key| configuration.owner(table, slot_of(key.as_bytes())) == Some(shard));
    Ok(keys.take(count).collect())
}
