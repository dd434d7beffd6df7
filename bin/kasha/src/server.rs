//! `kasha server`: one node. Settings come from flags, environment variables (`KASHA_…`) and a TOML file. Flags win
//! over the environment, and the environment over the file.

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use kasha_coordinator::Unchosen;
use kasha_runtime::say;
use kasha_types::NodeId;
use kasha_types::limits::NODE_LEASE;
use kasha_wire::Durability;
use serde::Deserialize;

use crate::duration::Written;
use crate::host::{
    ClusterSpec, Injected, NodeSpec, RunningNode, abort_on_panic, default_shards, default_spin, limits, memory_bytes,
    wait_and_stop,
};
use crate::place::Place;

#[derive(Args)]
pub struct ServerArguments {
    /// A TOML file with the settings below (with underscores); flags and environment variables win.
    #[arg(long, env = "KASHA_CONFIG")]
    config: Option<PathBuf>,
    /// This node's number, from 1; it belongs to the data folder for good.
    #[arg(long, env = "KASHA_NODE")]
    node: Option<u16>,
    /// This node's data folder.
    #[arg(long, env = "KASHA_DATA")]
    data: Option<PathBuf>,
    /// The address of each core, host:port; none for a process that only hosts the coordinator.
    #[arg(long, env = "KASHA_LISTEN", value_delimiter = ',')]
    listen: Vec<Place>,
    /// The same addresses as other machines reach them, if they differ.
    #[arg(long, env = "KASHA_ADVERTISE", value_delimiter = ',')]
    advertise: Vec<Place>,
    /// The coordinator's address.
    #[arg(long, env = "KASHA_COORDINATOR")]
    coordinator: Option<Place>,
    /// Host the coordinator in this process (one node of the cluster does).
    #[arg(long, env = "KASHA_HOST_COORDINATOR")]
    host_coordinator: bool,
    /// Nodes that must be there before a new cluster begins (where the coordinator is hosted).
    #[arg(long, env = "KASHA_NODES")]
    nodes: Option<u16>,
    /// Shards of a new cluster (where the coordinator is hosted).
    #[arg(long, env = "KASHA_SHARDS")]
    shards: Option<u16>,
    /// Crashes that every shard survives (where the coordinator is hosted).
    #[arg(long, env = "KASHA_FAULTS")]
    faults: Option<u8>,
    /// `replicated` or `fsync` (where the coordinator is hosted).
    #[arg(long, env = "KASHA_DURABILITY", value_parser = crate::host::parse_durability)]
    durability: Option<Durability>,
    /// The smallest number of members beside the primary with which updates are accepted; default: `faults` (where the
    /// coordinator is hosted).
    #[arg(long, env = "KASHA_MIN_BACKUPS")]
    min_backups: Option<u8>,
    /// Memory for the log of each replica, in MiB.
    #[arg(long, env = "KASHA_MEMORY_MIB")]
    memory_mib: Option<u64>,
    /// How long to wait for a silent node before its shards move; the same on all nodes.
    #[arg(long, env = "KASHA_LEASE", value_parser = crate::duration::parse)]
    lease: Option<Duration>,
    /// How long a loop polls before it blocks; by default 15us, or 0 where loops outnumber processors.
    #[arg(long, env = "KASHA_SPIN", value_parser = crate::duration::parse)]
    spin: Option<Duration>,
    /// How long written bytes may stay unflushed under `replicated`.
    #[arg(long, env = "KASHA_FLUSH_INTERVAL", value_parser = crate::duration::parse)]
    flush_interval: Option<Duration>,
    /// The process that started this one, and with which it ends.
    #[arg(long, hide = true)]
    parent: Option<u32>,
}

/// The TOML file. An unknown setting is an error: ignoring it silently would do more harm.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    node: Option<u16>,
    data: Option<PathBuf>,
    #[serde(default)]
    listen: Vec<Place>,
    #[serde(default)]
    advertise: Vec<Place>,
    coordinator: Option<Place>,
    #[serde(default)]
    host_coordinator: bool,
    nodes: Option<u16>,
    shards: Option<u16>,
    faults: Option<u8>,
    #[serde(default, deserialize_with = "durability")]
    durability: Option<Durability>,
    min_backups: Option<u8>,
    memory_mib: Option<u64>,
    lease: Option<Written>,
    spin: Option<Written>,
    flush_interval: Option<Written>,
}

fn durability<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Durability>, D::Error> {
    let text = String::deserialize(deserializer)?;
    crate::host::parse_durability(&text).map(Some).map_err(serde::de::Error::custom)
}

fn either(flag: &[Place], file: &[Place]) -> Vec<Place> {
    if flag.is_empty() { file.to_vec() } else { flag.to_vec() }
}

/// Others must be able to reach what they are told of.
fn check_reachable(place: &Place, what_to_do: &str) -> Result<()> {
    match place.address() {
        Some(address) if address.ip().is_unspecified() => {
            bail!("others cannot reach {address}: {what_to_do} (K0403)")
        }
        Some(_) | None => Ok(()),
    }
}

fn duration(flag: Option<Duration>, file: Option<Written>, default: Duration) -> Duration {
    flag.or(file.map(|Written(duration)| duration)).unwrap_or(default)
}

/// The cluster whose coordinator this process hosts.
fn hosted(arguments: &ServerArguments, file: &Settings, node: u16, cores: usize) -> Result<ClusterSpec> {
    let (nodes, shards) = (arguments.nodes.or(file.nodes), arguments.shards.or(file.shards));
    let (faults, min_backups) = (arguments.faults.or(file.faults), arguments.min_backups.or(file.min_backups));
    let durability = arguments.durability.or(file.durability);
    let unchosen = Unchosen {
        nodes: nodes.is_none(),
        shards: shards.is_none(),
        faults: faults.is_none(),
        durability: durability.is_none(),
        min_backups: min_backups.is_none(),
    };
    let nodes = nodes.unwrap_or(3);
    Ok(ClusterSpec {
        nodes,
        shards: match shards {
            Some(shards) => shards,
            None => default_shards(nodes, cores.max(1))?,
        },
        faults: faults.unwrap_or(1),
        durability: durability.unwrap_or(Durability::Replicated),
        min_backups,
        unchosen,
        own_nodes: (cores > 0).then_some(NodeId(node)).into_iter().collect(),
    })
}

fn spec(arguments: &ServerArguments) -> Result<NodeSpec> {
    let file: Settings = match &arguments.config {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| anyhow!("cannot read {}: {error}; check --config (K0402)", path.display()))?;
            toml::from_str(&text).map_err(|error| {
                anyhow!("{} is no valid configuration: correct this line of it (K0402)\n{error}", path.display())
            })?
        }
        None => Settings::default(),
    };
    let missing =
        |what: &str| format!("{what} is missing: give the flag, the environment variable or the setting (K0401)");
    let node = arguments.node.or(file.node).with_context(|| missing("--node"))?;
    if node == 0 {
        bail!("--node 0 is nobody: number nodes from 1 (K0403)");
    }
    let listen = either(&arguments.listen, &file.listen);
    let hosts_coordinator = arguments.host_coordinator || file.host_coordinator;
    // A process that hosts only the coordinator holds no data, and needs no core.
    if listen.is_empty() && !hosts_coordinator {
        bail!("{}", missing("--listen"));
    }
    let advertise = either(&arguments.advertise, &file.advertise);
    if !advertise.is_empty() && advertise.len() != listen.len() {
        bail!("--advertise has {} addresses, --listen {}: give one per core (K0403)", advertise.len(), listen.len());
    }
    for place in if advertise.is_empty() { &listen } else { &advertise } {
        check_reachable(place, "name the addresses that they use with --advertise")?;
    }
    let coordinator = arguments.coordinator.as_ref().or(file.coordinator.as_ref());
    let coordinator = coordinator.with_context(|| missing("--coordinator"))?.clone();
    check_reachable(&coordinator, "name the address that they use with --coordinator, on every node")?;
    let hosts = if hosts_coordinator { Some(hosted(arguments, &file, node, listen.len())?) } else { None };
    let loops = listen.len() + usize::from(hosts.is_some());
    Ok(NodeSpec {
        node,
        data: arguments.data.clone().or(file.data).with_context(|| missing("--data"))?,
        listen,
        advertise,
        coordinator,
        hosts,
        memory_bytes: memory_bytes(arguments.memory_mib.or(file.memory_mib).unwrap_or(1024))?,
        lease: duration(arguments.lease, file.lease, NODE_LEASE),
        flush_interval: duration(arguments.flush_interval, file.flush_interval, Duration::from_millis(100)),
        spin: duration(arguments.spin, file.spin, default_spin(loops)),
        limits: limits(loops)?,
        injected: Injected::default(),
    })
}

pub fn run(arguments: &ServerArguments) -> Result<()> {
    if let Some(parent) = arguments.parent {
        crate::processes::end_with(parent)?;
    }
    let spec = spec(arguments)?;
    abort_on_panic();
    let (ended, endings) = mpsc::channel();
    let node = RunningNode::start(&spec, &ended)?;
    let (cores, coordinator) = node.listens();
    let cores: Vec<_> = cores.iter().map(ToString::to_string).collect();
    match coordinator {
        // A port that nobody chose has to be told.
        Some(address) if cores.is_empty() || spec.coordinator.name().ends_with(":0") => {
            say!("the coordinator listens at {address}");
        }
        Some(_) | None => {}
    }
    if !cores.is_empty() {
        say!("node-{} listens at {}", spec.node, cores.join(" "));
    }
    wait_and_stop(vec![node], &endings)
}
