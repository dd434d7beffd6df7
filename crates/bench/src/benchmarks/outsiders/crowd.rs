//! Many clients that connect and put together, beside the same clients some at a time. Each has a session and connections of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use kasha_client::{Client, ClientOptions};
use tokio::sync::Semaphore;

use crate::children::program_beside;
use crate::harness::Run;
use crate::section::{Cell, Section, Table};

const CLIENTS: usize = 2000;
const AT_A_TIME: usize = 50;
/// Longer than anybody has taken: who takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster in one process, as a newcomer starts it.
struct Started {
    process: Child,
    coordinator: SocketAddr,
    /// The ports of the coordinator and of the nodes.
    ports: Vec<u16>,
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn start(run: &Run<'_>, name: &str) -> anyhow::Result<Started> {
    let mut command = Command::new(program_beside(&run.options.exe)?);
    command.args(["start", "--port", "0", "--memory-mib", "64", "--data"]).arg(run.folder(name));
    let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let said = BufReader::new(process.stdout.take().context("a pipe")?);
    let mut started = Started { process, coordinator: SocketAddr::from(([127, 0, 0, 1], 0)), ports: Vec::new() };
    for line in said.lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["coordinator", address] => started.coordinator = address.parse()?,
            [node, addresses @ ..] if node.starts_with("node-") => {
                let ports: Result<Vec<SocketAddr>, _> = addresses.iter().map(|address| address.parse()).collect();
                started.ports.extend(ports?.iter().map(SocketAddr::port));
            }
            ["Ctrl-C", ..] => {
                started.ports.push(started.coordinator.port());
                return Ok(started);
            }
            _ => {}
        }
    }
    bail!("a cluster in one process ended before it was ready")
}

/// What one side came to.
struct Side {
    took: Duration,
    failed: usize,
    /// The most connections to one address, for each client.
    connections: f64,
}

async fn connect_and_put(address: SocketAddr, nth: usize) -> anyhow::Result<Client> {
    let options = ClientOptions { connect_timeout: PATIENCE, deadline: PATIENCE, ..ClientOptions::default() };
    let client = Client::connect_with([address.to_string()], options).await?;
    client.table("default").await?.put(format!("client-{nth}"), "here").await?;
    Ok(client)
}

async fn measure(cluster: &Started, at_a_time: usize) -> anyhow::Result<Side> {
    let (address, places) = (cluster.coordinator, Arc::new(Semaphore::new(at_a_time)));
    let began = Instant::now();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|nth| {
            let places = Arc::clone(&places);
            tokio::spawn(async move {
                let _place = places.acquire().await?;
                connect_and_put(address, nth).await
            })
        })
        .collect();
    let mut kept = Vec::new();
    for client in clients {
        kept.extend(client.await?);
    }
    let took = began.elapsed();
    let most = connections(&cluster.ports)?.into_values().max().unwrap_or(0);
    Ok(Side { took, failed: CLIENTS - kept.len(), connections: most as f64 / kept.len().max(1) as f64 })
}

/// Connections of this process to each of these ports, by what the kernel says.
fn connections(ports: &[u16]) -> anyhow::Result<BTreeMap<u16, usize>> {
    const ESTABLISHED: &str = "01";
    let links = fs::read_dir("/proc/self/fd")?.flatten().flat_map(|entry| fs::read_link(entry.path()));
    let own: BTreeSet<String> = links.map(|link| link.to_string_lossy().into_owned()).collect();
    let mut found = BTreeMap::new();
    for line in fs::read_to_string("/proc/self/net/tcp")?.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let remote = fields.get(2).and_then(|remote| u16::from_str_radix(remote.rsplit_once(':')?.1, 16).ok());
        let is_own = fields.get(9).is_some_and(|inode| own.contains(&format!("socket:[{inode}]")));
        let is_up = fields.get(3) == Some(&ESTABLISHED);
        if let Some(port) = remote.filter(|port| ports.contains(port) && is_own && is_up) {
            *found.entry(port).or_default() += 1;
        }
    }
    Ok(found)
}

pub(super) fn run(run: &Run<'_>, section: &mut Section) -> anyhow::Result<()> {
    kasha_runtime::raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let side = |name: &str, at_a_time: usize| -> anyhow::Result<Side> {
        let cluster = start(run, name)?;
        runtime.block_on(measure(&cluster, at_a_time))
    };
    let few = side("few", AT_A_TIME)?;
    let all = side("all", CLIENTS)?;
    let columns = ["clients at a time", "seconds for 2,000", "failed", "connections to an address, each"];
    let mut table = Table::new("Clients of one process that connect to `kasha start` and put", &columns);
    for (at_a_time, side) in [(AT_A_TIME, &few), (CLIENTS, &all)] {
        let figures = [side.took.as_secs_f64(), side.failed as f64, side.connections];
        table.row(std::iter::once(at_a_time as f64).chain(figures).map(|figure| Cell::from(format!("{figure:.2}"))));
    }
    section.tables.push(table);
    section.ratio("outsiders.crowd.together/50.seconds", all.took.as_secs_f64() / few.took.as_secs_f64());
    section.ratio("outsiders.crowd.failed", (few.failed + all.failed) as f64);
    section.ratio("outsiders.crowd.connections_each", few.connections.max(all.connections));
    Ok(())
}
