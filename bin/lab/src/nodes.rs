//! The demonstration (`kasha-lab demo`), and the node that it and benchmarks run as a child process
//! (`kasha-lab internal-node`).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use kasha_bench::Kill;
use kasha_coordinator::Unchosen;
use kasha_node::Baseline;
use kasha_replication::Pace;
use kasha_runtime::FrameFaults;
use kasha_types::NodeId;
use kasha_wire::Durability;

use kasha::host::{
    ClusterSpec, Control, Injected, NodeSpec, RunningNode, abort_on_panic, limits, memory_bytes, wait_and_stop,
};
use kasha::place::Place;
use kasha::stopping::StopRequest;

#[derive(Args)]
pub struct DemoArguments {
    /// Folder for the demonstration's data; the data is removed afterwards unless this is given.
    #[arg(long)]
    data: Option<PathBuf>,
    /// How long clients run.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Number of clients.
    #[arg(long, default_value_t = 4)]
    clients: u32,
    /// Seed of the faults.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What is killed: `nodes` that lead shards, while the coordinator is spared; or `coordinator`, the process that hosts the leader
    /// of the coordinator's group.
    #[arg(long, default_value = "nodes", value_parser = parse_kill)]
    kill: Kill,
    /// Drivers of Redis (redis-py and ioredis, which it installs) count through `kasha proxy`, while each node is killed in turn.
    #[arg(long, conflicts_with_all = ["seconds", "clients", "seed"])]
    redis: bool,
}

impl DemoArguments {
    fn kill(&self) -> Result<Kill> {
        match (self.redis, self.kill) {
            (true, Kill::Nodes) => Ok(Kill::NodesUnderDrivers),
            (true, _) => bail!("--redis is for --kill node: leave --kill away"),
            (false, kill) => Ok(kill),
        }
    }
}

fn parse_kill(text: &str) -> Result<Kill, String> {
    match text {
        "nodes" | "node" => Ok(Kill::Nodes),
        "coordinator" => Ok(Kill::Coordinator),
        other => Err(format!("{other:?} cannot be killed: write nodes or coordinator")),
    }
}

#[derive(Args)]
pub struct InternalNodeArguments {
    #[arg(long)]
    node: u16,
    #[arg(long)]
    nodes: u16,
    #[arg(long)]
    shards: u16,
    #[arg(long)]
    faults: u8,
    #[arg(long)]
    data: PathBuf,
    #[arg(long, value_delimiter = ',')]
    listen: Vec<SocketAddr>,
    /// Where the members of the coordinator's group listen.
    #[arg(long, value_delimiter = ',', required = true)]
    coordinator: Vec<SocketAddr>,
    #[arg(long)]
    host_coordinator: bool,
    /// Where this process listens as a member of that group, or as one that may become a member.
    #[arg(long)]
    control: Option<SocketAddr>,
    /// Members of that group, where the cluster begins.
    #[arg(long, default_value_t = 1)]
    group: u8,
    /// What benchmarks compare with.
    #[arg(long, default_value = "none", value_parser = parse_baseline)]
    baseline: Baseline,
    /// Number of unsynced bytes that begin a sync although nobody waits.
    #[arg(long)]
    sync_bytes: Option<u64>,
    #[arg(long, default_value = "replicated", value_parser = kasha::host::parse_durability)]
    durability: Durability,
    #[arg(long, default_value = "0", value_parser = kasha::duration::parse)]
    link_delay: Duration,
    #[arg(long, default_value_t = 0)]
    drop_per_mille: u16,
    #[arg(long, default_value_t = 0)]
    duplicate_per_mille: u16,
    #[arg(long, default_value_t = 0)]
    fault_seed: u64,
    #[arg(long, default_value = "500ms", value_parser = kasha::duration::parse)]
    lease: Duration,
    #[arg(long, default_value = "0", value_parser = kasha::duration::parse)]
    spin: Duration,
    #[arg(long, default_value_t = 256)]
    memory_mib: u64,
}

fn parse_baseline(text: &str) -> Result<Baseline, String> {
    let found = Baseline::ALL.into_iter().find(|(name, _)| *name == text);
    found.map(|(_, baseline)| baseline).ok_or_else(|| format!("{text:?} is no baseline"))
}

pub fn internal_node(arguments: &InternalNodeArguments) -> Result<()> {
    let pace = Pace::default();
    let faulty = arguments.drop_per_mille > 0 || arguments.duplicate_per_mille > 0;
    let spec = NodeSpec {
        node: arguments.node,
        data: arguments.data.clone(),
        listen: arguments.listen.iter().copied().map(Place::from).collect(),
        advertise: Vec::new(),
        coordinators: arguments.coordinator.iter().copied().map(Place::from).collect(),
        control: arguments.control.map(Control::chosen),
        redis: None,
        hosts: arguments.host_coordinator.then_some(ClusterSpec {
            nodes: arguments.nodes,
            shards: arguments.shards,
            faults: arguments.faults,
            durability: arguments.durability,
            min_backups: None,
            group: arguments.group,
            unchosen: Unchosen::default(),
        }),
        own_nodes: [NodeId(arguments.node)].into(),
        memory_bytes: memory_bytes(arguments.memory_mib)?,
        lease: arguments.lease,
        flush_interval: Duration::from_millis(100),
        spin: arguments.spin,
        limits: limits(arguments.listen.len() + usize::from(arguments.control.is_some()))?,
        injected: Injected {
            baseline: arguments.baseline,
            pace: Pace { sync_bytes: arguments.sync_bytes.unwrap_or(pace.sync_bytes), ..pace },
            link_delay: arguments.link_delay,
            faults: faulty.then_some(FrameFaults {
                drop_per_mille: arguments.drop_per_mille,
                duplicate_per_mille: arguments.duplicate_per_mille,
                seed: arguments.fault_seed,
            }),
        },
    };
    abort_on_panic();
    let (ended, endings) = mpsc::channel();
    let node = RunningNode::start(&spec, &ended)?;
    wait_and_stop(vec![node], &endings, &StopRequest::listen()?)
}

pub fn demo(arguments: &DemoArguments) -> Result<()> {
    let exe = std::env::current_exe()?;
    let own_folder = std::env::temp_dir().join(format!("kasha-demo-{}", std::process::id()));
    let data = arguments.data.clone().unwrap_or_else(|| own_folder.clone());
    let mut options = kasha_bench::DemoOptions::new(exe, data);
    (options.seconds, options.clients, options.seed) = (arguments.seconds, arguments.clients, arguments.seed);
    options.kill = arguments.kill()?;
    let right = kasha_bench::demo(options)?;
    if !right {
        bail!("something was lost or doubled: see the report above");
    }
    if arguments.data.is_none() {
        let _ = std::fs::remove_dir_all(&own_folder);
    }
    Ok(())
}
