//! `kasha start`: a whole cluster in one process. The coordinator and all nodes are threads of this process.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use kasha_coordinator::Unchosen;
use kasha_gateway::RedisOptions;
use kasha_runtime::limits::Limits;
use kasha_runtime::say;
use kasha_runtime::{foreign_in, listen, make_folder_of_nodes};
use kasha_types::NodeId;
use kasha_wire::Durability;

use crate::admin::orders;
use crate::folder::{Nodes, node_folder};
use crate::forming::{Formed, wait_until_serving};
use crate::host::{
    ClusterSpec, Control, Injected, NodeSpec, RunningNode, abort_on_panic, default_shards, default_spin, limits,
    memory_bytes, wait_and_stop,
};
use crate::place::Place;
use crate::processes::{Spec, Whose};
use crate::redis::{FIRST_REDIS, FirstPort, PortSpec, placement};
use crate::stopping::StopRequest;

/// The first port of a cluster on one machine. The coordinator listens there; the nodes use the next ports.
pub const FIRST_PORT: u16 = 7400;

#[derive(Args)]
pub struct StartArguments {
    /// Folder for the cluster's data; a folder per node is made in it.
    #[arg(long, default_value = "kasha-data", env = "KASHA_DATA")]
    data: PathBuf,
    /// Use the folder although there are files in it that are not Kasha's.
    #[arg(long)]
    force: bool,
    /// Number of nodes of a new cluster [default: 3], or of one that is to have more.
    #[arg(long, env = "KASHA_NODES")]
    nodes: Option<u16>,
    /// Crashes that every shard of a new cluster survives: backups and witnesses of each [default: 1].
    #[arg(long, env = "KASHA_FAULTS")]
    faults: Option<u8>,
    /// Event loops of each node of a new cluster [default: 1].
    #[arg(long)]
    cores: Option<u8>,
    /// Number of shards of a new cluster; by default one for each core.
    #[arg(long, env = "KASHA_SHARDS")]
    shards: Option<u16>,
    /// Members of the coordinator's group: 1, 3 or 5.
    #[arg(long, env = "KASHA_GROUP")]
    group: Option<u8>,
    /// First port: the coordinator's; the cores of the nodes take the next ones. 0: each takes a free one.
    #[arg(long, default_value_t = FIRST_PORT)]
    port: u16,
    /// `replicated`, the default of a new cluster: answered updates survive crashes of processes; `fsync`: also a loss of power
    /// everywhere.
    #[arg(long, env = "KASHA_DURABILITY", value_parser = crate::host::parse_durability)]
    durability: Option<Durability>,
    /// Memory for the log of each replica, in MiB.
    #[arg(long, env = "KASHA_MEMORY_MIB", default_value_t = 1024)]
    memory_mib: u64,
    /// How long a new cluster waits for a node whose process died: 10ms to 1m. Later: kasha admin coordinator lease.
    #[arg(long, env = "KASHA_LEASE", default_value = "500ms", value_parser = crate::duration::parse)]
    lease: Duration,
    /// Where the first node speaks the Redis protocol, the others at the next ports; `off`: none does [default: 127.0.0.1:6379, if these ports
    /// are free].
    #[arg(long, env = "KASHA_REDIS", value_parser = crate::redis::parse_first)]
    redis: Option<FirstPort>,
    /// The password that programs have to say there (`AUTH`); better in the environment, since others see command lines.
    #[arg(long, env = "KASHA_REDIS_PASSWORD", hide_env_values = true)]
    redis_password: Option<String>,
    /// Databases that are made there are spread over all shards; by default each is in one shard, as in one server of Redis.
    #[arg(long, env = "KASHA_REDIS_SPREAD")]
    redis_spread: bool,
    /// Run each node in a process of its own, so that one of them can be killed. A killed node is started again after 5 s.
    #[arg(long)]
    processes: bool,
}

/// A folder that has something else in it is not the one that was meant, whatever Kasha would leave alone in it.
fn check_folder(arguments: &StartArguments) -> Result<()> {
    match foreign_in(&arguments.data)? {
        Some(name) if !arguments.force => bail!(
            "{} is not a data folder of Kasha's, since it holds {name:?}: name an empty or new folder, or the right one; or give \
             --force, and Kasha makes its folders beside what is there (K0102)",
            arguments.data.display()
        ),
        Some(_) | None => Ok(()),
    }
}

/// Takes each address and leaves it again: nothing is made if a node cannot run.
fn are_free(coordinator: SocketAddr, addresses: &[Vec<SocketAddr>]) -> Result<()> {
    for &address in [coordinator].iter().chain(addresses.iter().flatten()) {
        listen(address)?;
    }
    Ok(())
}

/// The addresses of each node's cores: consecutive ports after the coordinator's, by the numbers of the nodes; or port 0 for each.
fn addresses(arguments: &StartArguments, nodes: &Nodes) -> Result<Vec<Vec<SocketAddr>>> {
    let (numbers, cores) = (&nodes.numbers, u32::from(nodes.cores));
    let last = numbers.iter().max().copied().map_or(0, u32::from);
    for (flag, value) in [("--nodes", last), ("--cores", cores)] {
        if value == 0 {
            bail!("{flag} 0 makes no cluster: give a greater number (K0403)");
        }
    }
    if arguments.port == 0 && arguments.processes {
        bail!("--port 0 with --processes: each process has to be told the coordinator's port, so give one (K0403)");
    }
    if arguments.port == 0 {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        return Ok(numbers.iter().map(|_| vec![any; usize::from(nodes.cores)]).collect());
    }
    let first = u32::from(arguments.port) + 1;
    if first + last * cores > 1 << 16 {
        bail!("{} ports from {} on do not exist: choose a lower --port (K0403)", last * cores + 1, arguments.port);
    }
    let of_node = |&number: &u16| {
        let first = first + (u32::from(number) - 1) * cores;
        (first..first + cores).map(|port| SocketAddr::from(([127, 0, 0, 1], port as u16))).collect()
    };
    Ok(numbers.iter().map(of_node).collect())
}

fn cluster(arguments: &StartArguments, nodes: &Nodes) -> Result<ClusterSpec> {
    let Nodes { numbers, cores, group, .. } = nodes;
    let count = u16::try_from(numbers.len())?;
    Ok(ClusterSpec {
        nodes: count,
        shards: match arguments.shards {
            Some(shards) => shards,
            None => default_shards(count, usize::from(*cores))?,
        },
        faults: arguments.faults.unwrap_or(1),
        durability: arguments.durability.unwrap_or(Durability::Replicated),
        min_backups: None,
        group: *group,
        unchosen: Unchosen {
            // All of them are started here.
            nodes: false,
            shards: arguments.shards.is_none(),
            faults: arguments.faults.is_none(),
            durability: arguments.durability.is_none(),
            min_backups: true,
            group: arguments.group.is_none(),
        },
    })
}

pub fn run(arguments: &StartArguments) -> Result<()> {
    let coordinator = SocketAddr::from(([127, 0, 0, 1], arguments.port));
    let memory_bytes = memory_bytes(arguments.memory_mib)?;
    check_folder(arguments)?;
    let of_folder = Nodes::of(&arguments.data, arguments.nodes, arguments.cores, arguments.faults, arguments.group)?;
    let addresses = addresses(arguments, &of_folder)?;
    let cluster = cluster(arguments, &of_folder)?;
    let loops = of_folder.numbers.len() * usize::from(of_folder.cores) + 1;
    let limits = limits(loops)?;
    are_free(coordinator, &addresses)?;
    let redis = redis_addresses(arguments, &of_folder)?;
    make_folder_of_nodes(&arguments.data)?;
    if arguments.processes {
        let members = controls(arguments, &of_folder, &addresses);
        let specs = specs(arguments, &of_folder, &addresses, &members, &redis);
        let members = members.into_values().flatten().collect();
        let whose = Whose { members, lost: of_folder.lost_members };
        return crate::processes::run(specs, &whose, &flag(arguments, coordinator), &arguments.data);
    }
    abort_on_panic();
    let (ended, endings) = mpsc::channel();
    let mut nodes: Vec<RunningNode> = Vec::new();
    // Any of them may lead, and the folder of any may be gone.
    let mut members = controls(arguments, &of_folder, &addresses);
    for (&node, listen) in of_folder.numbers.iter().zip(&addresses) {
        let spec = NodeSpec {
            memory_bytes,
            limits,
            hosts: (node == of_folder.host).then(|| cluster.clone()),
            own_nodes: of_folder.numbers.iter().copied().map(NodeId).collect(),
            spin: default_spin(loops),
            redis: redis.get(&node).map(|&address| port_at(address, arguments)),
            ..spec_of(arguments, &of_folder, node, listen, &members)
        };
        let running = RunningNode::start(&spec, &ended)?;
        // Where it really listens: whoever starts later finds it there.
        members.insert(node, running.control());
        nodes.push(running);
    }
    let of_cluster = nodes[0].cluster();
    let members: Vec<SocketAddr> = members.into_values().flatten().collect();
    let coordinator = nodes.iter().find_map(RunningNode::control).unwrap_or(coordinator);
    let asked = StopRequest::listen()?;
    let formed = wait_until_serving(of_cluster, &members, &asked, || match endings.try_recv() {
        Ok((name, Err(error))) => bail!("{name}: {error}"),
        Ok((_, Ok(()))) | Err(_) => Ok(()),
    })?;
    if formed == Formed::AskedToStop {
        return wait_and_stop(nodes, &endings, &asked);
    }
    orders::of_a_start(of_cluster, members, &of_folder.lost_members);
    say!("ready");
    say!("  coordinator  {coordinator}");
    for (number, node) in of_folder.numbers.iter().zip(&nodes) {
        let listen: Vec<_> = node.listens().0.iter().map(ToString::to_string).collect();
        say!("  node-{number:<7} {}", listen.join(" "));
    }
    let ports: Vec<_> = nodes.iter().filter_map(RunningNode::redis).collect();
    tell_ports(&ports);
    let flag = flag(arguments, coordinator);
    say!(
        "\nTry, in another terminal:\n  kasha cli{flag} put greeting hello\n  kasha cli{flag} get greeting\n  kasha status{flag}"
    );
    say!("Ctrl-C stops the cluster; its data stays in {}.", arguments.data.display());
    wait_and_stop(nodes, &endings, &asked)
}

/// Where each node speaks the Redis protocol. Ports that nobody chose are taken together or not at all: one of another server beside two of
/// this cluster would be taken for its first.
fn redis_addresses(arguments: &StartArguments, nodes: &Nodes) -> Result<BTreeMap<u16, SocketAddr>> {
    let (first, is_chosen) = match arguments.redis {
        Some(FirstPort::Off) => return Ok(BTreeMap::new()),
        Some(FirstPort::At(first)) => (first, true),
        None if arguments.port == 0 => (SocketAddr::from(([127, 0, 0, 1], 0)), false),
        None => (FIRST_REDIS, false),
    };
    if first.port() == 0 && arguments.processes {
        return Ok(BTreeMap::new()); // nobody would learn which ports these are
    }
    let mut addresses = BTreeMap::new();
    for &node in &nodes.numbers {
        let mut address = first;
        if first.port() != 0 {
            let port = u16::try_from(u32::from(first.port()) + u32::from(node) - 1);
            address.set_port(
                port.map_err(|_| anyhow!("node {node} has no port behind {first}: choose a lower --redis (K0403)"))?,
            );
        }
        match listen(address) {
            Ok(_) => _ = addresses.insert(node, address),
            Err(error) if is_chosen => return Err(error.into()),
            Err(_) => {
                // No reader of the standard output holds up a cluster that has not begun.
                tracing::warn!(
                    "{address} is taken, so this cluster does not speak the Redis protocol; name another port with --redis"
                );
                return Ok(BTreeMap::new());
            }
        }
    }
    Ok(addresses)
}

fn port_at(address: SocketAddr, arguments: &StartArguments) -> PortSpec {
    let (password, placement) = (arguments.redis_password.clone(), placement(arguments.redis_spread));
    PortSpec { address, options: RedisOptions { password, placement, ..RedisOptions::default() } }
}

/// Says where Redis clients connect.
pub fn tell_ports(ports: &[SocketAddr]) {
    if !ports.is_empty() {
        let ports: Vec<_> = ports.iter().map(ToString::to_string).collect();
        say!("  redis        {}", ports.join(" "));
    }
}

/// A node of a cluster in one process. The rest of what it is told is the same for all.
fn spec_of(arguments: &StartArguments, nodes: &Nodes, node: u16, listen: &[SocketAddr], members: &Members) -> NodeSpec {
    let listen: Vec<_> = listen.iter().copied().map(Place::from).collect();
    let control = match members.get(&node) {
        // It begins the cluster, and is told where.
        Some(&Some(address)) => Some(Control { place: address.into(), is_chosen: node == 1 }),
        Some(None) => None,
        None if node == 1 => Some(Control::chosen(SocketAddr::from(([127, 0, 0, 1], 0)))),
        None => Control::beside(listen.first()).filter(|_| nodes.may_host(node)),
    };
    let known: Vec<Place> = members.values().flatten().copied().map(Place::from).collect();
    let own = control.iter().map(|control| control.place.clone());
    NodeSpec {
        node,
        data: node_folder(&arguments.data, node),
        advertise: Vec::new(),
        coordinators: if known.is_empty() { own.collect() } else { known },
        listen,
        control,
        redis: None,
        hosts: None,
        own_nodes: BTreeSet::new(),
        memory_bytes: 0,
        lease: arguments.lease,
        flush_interval: Duration::from_millis(100),
        spin: Duration::ZERO,
        limits: Limits::default(),
        injected: Injected::default(),
    }
}

/// Where each node listens as a member of the coordinator's group, as far as that is known: at its own place, or somewhere else if that one
/// is taken.
type Members = BTreeMap<u16, Option<SocketAddr>>;

/// Ports that are yet to be taken are not known.
fn controls(arguments: &StartArguments, nodes: &Nodes, addresses: &[Vec<SocketAddr>]) -> Members {
    if arguments.port == 0 {
        return Members::new();
    }
    let is_free =
        |address: SocketAddr| !addresses.iter().flatten().any(|other| *other == address) && listen(address).is_ok();
    let of_node = |(&number, addresses): (&u16, &Vec<SocketAddr>)| {
        let own = match number {
            1 => Some(SocketAddr::from(([127, 0, 0, 1], arguments.port))),
            _ if !nodes.may_host(number) => None,
            _ => {
                let beside = Control::beside(addresses.first().copied().map(Place::from).as_ref());
                let place = beside.and_then(|control| control.place.address()).filter(|address| is_free(*address));
                place.or_else(free_address)
            }
        };
        (number, own)
    };
    nodes.numbers.iter().zip(addresses).map(of_node).collect()
}

/// An address of this machine where nobody listens now.
fn free_address() -> Option<SocketAddr> {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    listen(any).ok().map(|(_, address)| address)
}

/// What a client's command line needs to reach the cluster.
fn flag(arguments: &StartArguments, coordinator: SocketAddr) -> String {
    if arguments.port == FIRST_PORT { String::new() } else { format!(" --address {coordinator}") }
}

/// How each node is started as a process of its own.
fn specs(
    arguments: &StartArguments,
    nodes: &Nodes,
    addresses: &[Vec<SocketAddr>],
    members: &Members,
    redis: &BTreeMap<u16, SocketAddr>,
) -> Vec<Spec> {
    let listens: Vec<String> = members.values().flatten().map(ToString::to_string).collect();
    let spec = |(&node, addresses): (&u16, &Vec<SocketAddr>)| {
        let listen: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        let mut words = vec![
            format!("--node={node}"),
            format!("--data={}", node_folder(&arguments.data, node).display()),
            format!("--listen={}", listen.join(",")),
            format!("--coordinator={}", listens.join(",")),
            format!("--memory-mib={}", arguments.memory_mib),
            format!("--lease={}ms", arguments.lease.as_millis()),
        ];
        if node == nodes.host {
            words.extend(["--host-coordinator".to_owned(), format!("--nodes={}", nodes.numbers.len())]);
            words.extend(arguments.group.map(|group| format!("--group={group}")));
            words.extend(arguments.shards.map(|shards| format!("--shards={shards}")));
            words.extend(arguments.faults.map(|faults| format!("--faults={faults}")));
            words.extend(arguments.durability.map(|durability| format!("--durability={durability:?}").to_lowercase()));
        }
        if nodes.numbers.iter().all(|&node| nodes.may_host(node)) {
            words.extend(members.get(&node).copied().flatten().map(|member| format!("--control={member}")));
        }
        let redis = redis.get(&node).copied();
        words.extend(redis.map(|address| format!("--redis={address}")));
        if redis.is_some() && arguments.redis_spread {
            words.push("--redis-spread".to_owned());
        }
        let password = arguments.redis_password.clone().filter(|_| redis.is_some());
        Spec { node, words, addresses: addresses.clone(), redis, password }
    };
    nodes.numbers.iter().zip(addresses).map(spec).collect()
}
