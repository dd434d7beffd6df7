//! Demonstrations and benchmarks, and the node that they run as a child process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use kasha_bench::say;
use kasha_node::Answers;
use kasha_runtime::FrameFaults;
use kasha_wire::Durability;

use crate::host::{ClusterSpec, Injected, NodeSpec, RunningNode, abort_on_panic, memory_bytes, wait_and_stop};

#[derive(Args)]
pub struct DemoArguments {
    /// Where the demonstration's cluster keeps its data; removed afterwards unless given.
    #[arg(long)]
    data: Option<PathBuf>,
    /// How long clients run.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Clients.
    #[arg(long, default_value_t = 4)]
    clients: u32,
    /// Seed of the faults.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
pub struct BenchArguments {
    #[command(subcommand)]
    what: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// Latency of an update: unreplicated, ordinary primary-backup, and Kasha, interleaved.
    Latency(LatencyArguments),
    /// Kasha beside etcd and Redis, on a virtual network (root; needs the packages etcd-server and redis-server).
    Rivals(RivalsArguments),
}

#[derive(Args)]
struct LatencyArguments {
    /// Crashes to survive: a number, or a range like 1..3 (both ends included).
    #[arg(long, default_value = "1..3", value_parser = parse_faults)]
    faults: Faults,
    /// One-way delay of each link.
    #[arg(long, default_value = "200us", value_parser = crate::duration::parse)]
    link_delay: Duration,
    /// Updates per mode and round.
    #[arg(long, default_value_t = 500)]
    operations: u32,
    /// Rounds; the modes take turns in each.
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// Write the result to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Args)]
struct RivalsArguments {
    /// One-way delays of every link.
    #[arg(long, default_value = "500us,2ms", value_delimiter = ',', value_parser = crate::duration::parse)]
    delays: Vec<Duration>,
    /// Numbers of callers, each with one update at a time and a client of its own; `-shared`: with one client for all.
    #[arg(long, default_value = "1,64,64-shared", value_delimiter = ',')]
    callers: Vec<kasha_bench::rivals::Callers>,
    /// Rounds; the stores take turns in each.
    #[arg(long, default_value_t = 6)]
    rounds: u32,
    /// How long a store is measured in a round.
    #[arg(long, default_value = "1s", value_parser = crate::duration::parse)]
    round_time: Duration,
    /// How long the network's switch spins before a packet is due, rather than sleep.
    #[arg(long, default_value = "0", value_parser = crate::duration::parse)]
    spin: Duration,
    /// Where the stores keep their data, on a disk; removed afterwards. Default: among temporary files.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Write the result to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Clone, Debug)]
struct Faults(Vec<u8>);

fn parse_faults(text: &str) -> Result<Faults, String> {
    let number =
        |text: &str| text.parse::<u8>().ok().filter(|n| (1..=3).contains(n)).ok_or("faults are 1, 2 or 3".to_owned());
    match text.split_once("..") {
        Some((low, high)) => Ok(Faults((number(low)?..=number(high.trim_start_matches('='))?).collect())),
        None => Ok(Faults(vec![number(text)?])),
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
    #[arg(long)]
    coordinator: SocketAddr,
    #[arg(long)]
    host_coordinator: bool,
    #[arg(long, default_value = "speculative", value_parser = parse_answers)]
    answers: Answers,
    #[arg(long, default_value = "replicated", value_parser = crate::start::parse_durability)]
    durability: Durability,
    #[arg(long, default_value = "0", value_parser = crate::duration::parse)]
    link_delay: Duration,
    #[arg(long, default_value_t = 0)]
    drop_per_mille: u16,
    #[arg(long, default_value_t = 0)]
    duplicate_per_mille: u16,
    #[arg(long, default_value_t = 0)]
    fault_seed: u64,
    #[arg(long, default_value = "2s", value_parser = crate::duration::parse)]
    lease: Duration,
    #[arg(long, default_value = "0", value_parser = crate::duration::parse)]
    spin: Duration,
    #[arg(long, default_value_t = 256)]
    memory_mib: u64,
}

fn parse_answers(text: &str) -> Result<Answers, String> {
    match text {
        "speculative" => Ok(Answers::Speculative),
        "synced" => Ok(Answers::Synced),
        "unreplicated" => Ok(Answers::Unreplicated),
        other => Err(format!("{other:?}: speculative, synced or unreplicated")),
    }
}

pub fn internal_node(arguments: &InternalNodeArguments) -> Result<()> {
    let faulty = arguments.drop_per_mille > 0 || arguments.duplicate_per_mille > 0;
    let spec = NodeSpec {
        node: arguments.node,
        data: arguments.data.clone(),
        listen: arguments.listen.clone(),
        advertise: arguments.listen.clone(),
        coordinator: arguments.coordinator,
        hosts: arguments.host_coordinator.then_some(ClusterSpec {
            nodes: arguments.nodes,
            shards: arguments.shards,
            faults: arguments.faults,
            durability: arguments.durability,
            min_backups: None,
        }),
        memory_bytes: memory_bytes(arguments.memory_mib)?,
        lease: arguments.lease,
        flush_interval: Duration::from_millis(100),
        spin: arguments.spin,
        injected: Injected {
            answers: arguments.answers,
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
    wait_and_stop(vec![node], &endings)
}

pub fn demo(arguments: &DemoArguments) -> Result<()> {
    let exe = std::env::current_exe()?;
    let own_folder = std::env::temp_dir().join(format!("kasha-demo-{}", std::process::id()));
    let data = arguments.data.clone().unwrap_or_else(|| own_folder.clone());
    let mut options = kasha_bench::DemoOptions::new(exe, data);
    (options.seconds, options.clients, options.seed) = (arguments.seconds, arguments.clients, arguments.seed);
    let right = kasha_bench::demo(options)?;
    if !right {
        bail!("something was lost or doubled: see the report above");
    }
    if arguments.data.is_none() {
        let _ = std::fs::remove_dir_all(&own_folder);
    }
    Ok(())
}

pub fn bench(arguments: &BenchArguments) -> Result<()> {
    match &arguments.what {
        Bench::Latency(arguments) => latency(arguments),
        Bench::Rivals(arguments) => rivals(arguments),
    }
}

fn latency(arguments: &LatencyArguments) -> Result<()> {
    let options = kasha_bench::LatencyOptions {
        link_delay: arguments.link_delay,
        rounds: arguments.rounds,
        operations: arguments.operations,
        ..kasha_bench::LatencyOptions::new(std::env::current_exe()?, arguments.faults.0.clone())
    };
    let report = kasha_bench::latency(options)?;
    say!("{report}");
    write_json(arguments.json.as_deref(), &report.to_json())
}

fn rivals(arguments: &RivalsArguments) -> Result<()> {
    if let Err(reason) = kasha_netlab::Netlab::available() {
        say!("SKIPPED the comparison with other stores: {reason}");
        return Ok(());
    }
    let options = kasha_bench::rivals::RivalsOptions {
        delays: arguments.delays.clone(),
        callers: arguments.callers.clone(),
        rounds: arguments.rounds,
        round_time: arguments.round_time,
        spin: arguments.spin,
        data: arguments.data.clone(),
        ..kasha_bench::rivals::RivalsOptions::new(std::env::current_exe()?)
    };
    let report = kasha_bench::rivals::rivals(&options)?;
    say!("{report}");
    write_json(arguments.json.as_deref(), &report.to_json())
}

fn write_json(path: Option<&Path>, json: &str) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    std::fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))
}
