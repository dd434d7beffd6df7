//! `kasha start`: a whole cluster in one process. The coordinator and all nodes are threads of this process.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use kasha_bench::say;
use kasha_client::{Client, ClientOptions};
use kasha_types::NodeId;
use kasha_wire::{Durability, ShardPhase};

use crate::host::{
    ClusterSpec, Injected, NodeSpec, RunningNode, abort_on_panic, default_shards, default_spin, limits, memory_bytes,
    wait_and_stop,
};

/// The first port of a cluster on one machine. The coordinator listens there; the nodes use the next ports.
pub const FIRST_PORT: u16 = 7400;

#[derive(Args)]
pub struct StartArguments {
    /// Folder for the cluster's data; a folder per node is made in it.
    #[arg(long, default_value = "kasha-data", env = "KASHA_DATA")]
    data: PathBuf,
    /// Number of nodes.
    #[arg(long, default_value_t = 3)]
    nodes: u16,
    /// Crashes that every shard survives: backups and witnesses of each.
    #[arg(long, default_value_t = 1)]
    faults: u8,
    /// Event loops of each node.
    #[arg(long, default_value_t = 1)]
    cores: u8,
    /// Number of shards; by default one for each core.
    #[arg(long)]
    shards: Option<u16>,
    /// First port: the coordinator's; the cores of the nodes take the next ones.
    #[arg(long, default_value_t = FIRST_PORT)]
    port: u16,
    /// `replicated`: answered updates survive crashes of processes; `fsync`: also a loss of power everywhere.
    #[arg(long, default_value = "replicated", value_parser = parse_durability)]
    durability: Durability,
    /// Memory for the log of each replica, in MiB.
    #[arg(long, default_value_t = 1024)]
    memory_mib: u64,
    /// How long to wait for a silent node before its shards move.
    #[arg(long, default_value = "500ms", value_parser = crate::duration::parse)]
    lease: Duration,
}

pub fn parse_durability(text: &str) -> Result<Durability, String> {
    match text {
        "replicated" => Ok(Durability::Replicated),
        "fsync" => Ok(Durability::Fsync),
        other => Err(format!("{other:?} is no durability: write replicated or fsync (K0403)")),
    }
}

/// The addresses of each node's cores: consecutive ports after the coordinator's.
fn addresses(arguments: &StartArguments) -> Result<Vec<Vec<SocketAddr>>> {
    let (nodes, cores) = (u32::from(arguments.nodes), u32::from(arguments.cores));
    for (flag, value) in [("--nodes", nodes), ("--cores", cores), ("--port", u32::from(arguments.port))] {
        if value == 0 {
            bail!("{flag} 0 makes no cluster: give a greater number (K0403)");
        }
    }
    let first = u32::from(arguments.port) + 1;
    if first + nodes * cores > 1 << 16 {
        bail!("{} ports from {} on do not exist: choose a lower --port (K0403)", nodes * cores + 1, arguments.port);
    }
    let of_node = |node: u32| {
        let first = first + node * cores;
        (first..first + cores).map(|port| SocketAddr::from(([127, 0, 0, 1], port as u16))).collect()
    };
    Ok((0..nodes).map(of_node).collect())
}

pub fn run(arguments: &StartArguments) -> Result<()> {
    let coordinator = SocketAddr::from(([127, 0, 0, 1], arguments.port));
    let memory_bytes = memory_bytes(arguments.memory_mib)?;
    let addresses = addresses(arguments)?;
    let shards = match arguments.shards {
        Some(shards) => shards,
        None => default_shards(arguments.nodes, usize::from(arguments.cores))?,
    };
    let loops = usize::from(arguments.nodes) * usize::from(arguments.cores) + 1;
    let limits = limits(loops)?;
    abort_on_panic();
    let (ended, endings) = mpsc::channel();
    let mut nodes = Vec::new();
    for (node, listen) in (1..).zip(&addresses) {
        let hosts = (node == 1).then_some(ClusterSpec {
            nodes: arguments.nodes,
            shards,
            faults: arguments.faults,
            durability: arguments.durability,
            min_backups: None,
            own_nodes: (1..=arguments.nodes).map(NodeId).collect(),
        });
        let spec = NodeSpec {
            node,
            data: arguments.data.join(format!("node-{node}")),
            advertise: listen.clone(),
            listen: listen.clone(),
            coordinator,
            hosts,
            memory_bytes,
            lease: arguments.lease,
            flush_interval: Duration::from_millis(100),
            spin: default_spin(loops),
            limits,
            injected: Injected::default(),
        };
        nodes.push(RunningNode::start(&spec, &ended)?);
    }
    wait_until_serving(coordinator, &endings)?;
    say!("ready");
    say!("  coordinator  {coordinator}");
    for (node, listen) in (1..).zip(&addresses) {
        let listen: Vec<_> = listen.iter().map(ToString::to_string).collect();
        say!("  node-{node:<7} {}", listen.join(" "));
    }
    let flag = if arguments.port == FIRST_PORT { String::new() } else { format!(" --address {coordinator}") };
    say!(
        "\nTry, in another terminal:\n  kasha cli{flag} put greeting hello\n  kasha cli{flag} get greeting\n  kasha status{flag}"
    );
    say!("Ctrl-C stops the cluster; its data stays in {}.", arguments.data.display());
    wait_and_stop(nodes, &endings)
}

/// Waits until every shard serves. If that takes long, prints what it waits for.
pub fn wait_until_serving(coordinator: SocketAddr, endings: &mpsc::Receiver<crate::host::Ended>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let options = ClientOptions { connect_timeout: Duration::from_secs(60), ..ClientOptions::default() };
        let client =
            Client::connect_with([coordinator.to_string()], options).await.context("the cluster does not come up")?;
        let mut told = std::time::Instant::now();
        loop {
            if let Ok((name, Err(error))) = endings.try_recv() {
                anyhow::bail!("{name}: {error}");
            }
            let configuration = client.fresh_configuration().await?;
            let waiting: Vec<_> = configuration
                .shards
                .iter()
                .filter(|shard| shard.phase != ShardPhase::Serving)
                .map(|s| s.shard)
                .collect();
            if !configuration.shards.is_empty() && waiting.is_empty() {
                return Ok(());
            }
            if told.elapsed() > Duration::from_secs(3) {
                told = std::time::Instant::now();
                let _ = writeln!(
                    crate::Log,
                    "kasha: waiting for {waiting:?} to be recovered; `kasha status` shows what each waits for"
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
}
