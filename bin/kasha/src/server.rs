//! `kasha server`: one node. Settings come from flags, environment variables (`KASHA_…`) and a TOML file. Flags win
//! over the environment, and the environment over the file.

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use kasha_coordinator::Unchosen;
use kasha_gateway::RedisOptions;
use kasha_runtime::say;
use kasha_types::NodeId;
use kasha_types::limits::NODE_LEASE;
use kasha_wire::Durability;

use crate::duration::Written;
use crate::host::{
    ClusterSpec, Control, Injected, NodeSpec, RunningNode, abort_on_panic, default_group, default_shards, default_spin,
    limits, memory_bytes, wait_and_stop,
};
use crate::place::{Place, resolver};
use crate::redis::PortSpec;
use crate::settings::Settings;
use crate::stopping::StopRequest;

#[derive(Args)]
pub struct ServerArguments {
    /// A TOML file with the settings below (with underscores); flags and environment variables win.
    #[arg(long, env = "KASHA_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    /// The process that started this one, and with which it ends.
    #[arg(long, hide = true)]
    parent: Option<u32>,
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

/// The cluster whose coordinator this process hosts.
fn hosted(settings: &Settings, cores: usize) -> Result<ClusterSpec> {
    let Settings { nodes, shards, faults, min_backups, durability, group, .. } = *settings;
    let unchosen = Unchosen {
        nodes: nodes.is_none(),
        shards: shards.is_none(),
        faults: faults.is_none(),
        durability: durability.is_none(),
        min_backups: min_backups.is_none(),
        group: group.is_none(),
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
        group: group.unwrap_or_else(|| default_group(faults.unwrap_or(1), nodes)),
        unchosen,
    })
}

/// What flags, environment and file say together. An unknown setting of the file is an error: to ignore it silently would do more
/// harm.
fn settings(arguments: &ServerArguments) -> Result<Settings> {
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
    Ok(arguments.settings.clone().or(file))
}

fn spec(arguments: &ServerArguments) -> Result<NodeSpec> {
    let settings = settings(arguments)?;
    let missing =
        |what: &str| format!("{what} is missing: give the flag, the environment variable or the setting (K0401)");
    let node = settings.node.with_context(|| missing("--node"))?;
    if node == 0 {
        bail!("--node 0 is nobody: number nodes from 1 (K0403)");
    }
    let Settings { listen, advertise, host_coordinator: hosts_coordinator, .. } = settings.clone();
    // A process that hosts only the coordinator holds no data, and needs no core.
    if listen.is_empty() && !hosts_coordinator {
        bail!("{}", missing("--listen"));
    }
    if !advertise.is_empty() && advertise.len() != listen.len() {
        bail!("--advertise has {} addresses, --listen {}: give one per core (K0403)", advertise.len(), listen.len());
    }
    for place in if advertise.is_empty() { &listen } else { &advertise } {
        check_reachable(place, "name the addresses that they use with --advertise")?;
    }
    let coordinators = settings.coordinator.clone();
    if coordinators.is_empty() {
        bail!("{}", missing("--coordinator"));
    }
    for coordinator in &coordinators {
        check_reachable(coordinator, "name the address that they use with --coordinator, on every node")?;
    }
    let control = match (&settings.control, hosts_coordinator) {
        (Some(chosen), _) => Some(Control { place: chosen.clone(), is_chosen: true }),
        (None, true) => Some(Control { place: coordinators[0].clone(), is_chosen: true }),
        (None, false) => Control::beside(listen.first()),
    };
    let hosts = if hosts_coordinator { Some(hosted(&settings, listen.len())?) } else { None };
    // What only stands by takes no processor.
    let loops = listen.len() + usize::from(hosts.is_some());
    let (listen_count, has_control) = (listen.len(), control.is_some());
    let redis = match (&settings.redis, listen.is_empty()) {
        (Some(_), true) => bail!("--redis needs a node in this process: give --listen, too (K0403)"),
        (Some(place), false) => {
            let address = place.wait(&resolver()?)?;
            let options = RedisOptions { password: settings.redis_password.clone(), ..RedisOptions::default() };
            Some(PortSpec { address, options })
        }
        (None, _) => None,
    };
    Ok(NodeSpec {
        node,
        redis,
        data: settings.data.with_context(|| missing("--data"))?,
        listen,
        advertise,
        coordinators,
        control,
        hosts,
        own_nodes: (listen_count > 0).then_some(NodeId(node)).into_iter().collect(),
        memory_bytes: memory_bytes(settings.memory_mib.unwrap_or(1024))?,
        lease: settings.lease.map_or(NODE_LEASE, |Written(lease)| lease),
        flush_interval: settings.flush_interval.map_or(Duration::from_millis(100), |Written(interval)| interval),
        spin: settings.spin.map_or_else(|| default_spin(loops), |Written(spin)| spin),
        limits: limits(listen_count + usize::from(has_control))?,
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
    let asked = StopRequest::listen()?;
    let (cores, coordinator) = node.listens();
    let cores: Vec<_> = cores.iter().map(ToString::to_string).collect();
    match coordinator {
        // A port that nobody chose has to be told.
        Some(address) if cores.is_empty() || spec.coordinators[0].name().ends_with(":0") => {
            say!("the coordinator listens at {address}");
        }
        Some(_) | None => {}
    }
    if !cores.is_empty() {
        say!("node-{} listens at {}", spec.node, cores.join(" "));
    }
    if let Some(address) = node.redis() {
        say!("node-{} speaks the Redis protocol at {address}", spec.node);
    }
    wait_and_stop(vec![node], &endings, &asked)
}
