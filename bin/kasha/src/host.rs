//! Hosts one node in this process: its folder, its event loops, and a member of the coordinator's group, or a process that may become
//! one. Starts and stops them in order.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use kasha_coordinator::{Coordinator, CoordinatorOptions, GROUP_MAX, Timing, Unchosen};
use kasha_gateway::RedisOptions;
use kasha_machine::{Colocated, Effects, Endpoint, Trash};
use kasha_node::{Baseline, Buffers, Node, NodeOptions};
use kasha_replication::Pace;
use kasha_runtime::limits::Limits;
use kasha_runtime::{
    Application, ClusterCell, DataDir, EventLoop, FrameFaults, Identity, LoopHandle, LoopOptions, Names, Resolver,
    TrashThread, WarmBuffers, boot_id, raise_descriptor_limit, random_u64, spawn_loop,
};
use kasha_types::limits::CORES_MAX;
use kasha_types::limits::NODE_LEASE;
use kasha_types::{ClusterId, ConfigVersion, CoreId, Incarnation, NodeId};
use kasha_wire::link::ToClient;
use kasha_wire::message::GetConfiguration;
use kasha_wire::{Durability, WireVersions, frame};

use crate::folder::stored_in;
use crate::place::{Place, resolver};
use crate::redis::{Port, PortSpec, TellBoth, front};
use crate::stopping::StopRequest;
use crate::talk::Talk;
use crate::telling::{Ended, TellCommits, TellLease};

/// The options of one node.
#[derive(Clone, Debug)]
pub struct NodeSpec {
    pub node: u16,
    pub data: PathBuf,
    /// Where the cores listen. Port 0 takes a free one.
    pub listen: Vec<Place>,
    /// The same places, as other machines reach them, if they differ. Port 0 is the port that was taken.
    pub advertise: Vec<Place>,
    /// Where members of the coordinator's group are.
    pub coordinators: Vec<Place>,
    /// Where this process listens as a member of that group; `None`: it hosts none.
    pub control: Option<Control>,
    /// Where the node speaks the Redis protocol, if it does.
    pub redis: Option<PortSpec>,
    /// The options of a new cluster, if this process is to begin one.
    pub hosts: Option<ClusterSpec>,
    /// The nodes whose cores run in this process.
    pub own_nodes: BTreeSet<NodeId>,
    pub memory_bytes: u64,
    pub lease: Duration,
    pub flush_interval: Duration,
    pub spin: Duration,
    /// The limits of each loop; see [`limits`].
    pub limits: Limits,
    /// Options that no server's configuration can set: for demonstrations and benchmarks.
    pub injected: Injected,
}

/// The options of a cluster, used when it is created.
#[derive(Clone, Debug)]
pub struct ClusterSpec {
    pub nodes: u16,
    pub shards: u16,
    pub faults: u8,
    pub durability: Durability,
    pub min_backups: Option<u8>,
    /// Members of the coordinator's group.
    pub group: u8,
    /// Which of these nobody chose: a cluster that exists keeps its own.
    pub unchosen: Unchosen,
}

/// Where a process listens as a member of the coordinator's group.
#[derive(Clone, Debug)]
pub struct Control {
    pub place: Place,
    /// Whether somebody chose the place. Else the process does without if something else is there.
    pub is_chosen: bool,
}

impl Control {
    /// At this address, and nowhere else.
    pub fn chosen(address: SocketAddr) -> Self {
        Self { place: address.into(), is_chosen: true }
    }

    /// Beside the first core of a node, a thousand ports further, if there are so many.
    pub fn beside(first: Option<&Place>) -> Option<Self> {
        let (host, port) = first?.name().rsplit_once(':')?;
        let port = match port.parse::<u16>().ok()? {
            0 => 0,
            port => port.checked_add(1000)?,
        };
        Some(Self { place: format!("{host}:{port}").parse().ok()?, is_chosen: false })
    }

    /// `is_needed`: there is a member in the folder. Then a port that nobody chose is as good as another, since the others learn of it.
    fn listen(&self, resolver: &Resolver, is_needed: bool) -> Result<Option<(TcpListener, SocketAddr)>> {
        match self.place.listen(resolver) {
            Ok(listens) => Ok(Some(listens)),
            Err(error) if self.is_chosen => Err(error),
            Err(error) if is_needed => {
                let any = self.place.name().rsplit_once(':').map_or("", |(host, _)| host);
                let (listener, address) = format!("{any}:0").parse::<Place>().map_err(|_| error)?.listen(resolver)?;
                tracing::warn!(
                    "{} is taken, so the coordinator's member of this process listens at {address}; name a free address with --control",
                    self.place
                );
                Ok(Some((listener, address)))
            }
            Err(error) => {
                tracing::warn!(
                    "this process hosts no member of the coordinator's group, unless --control names a free address: {error:#}"
                );
                Ok(None)
            }
        }
    }
}

/// Delays, faults and modes that no server's configuration can set.
#[derive(Clone, Copy, Debug, Default)]
pub struct Injected {
    pub baseline: Baseline,
    pub pace: Pace,
    pub link_delay: Duration,
    pub faults: Option<FrameFaults>,
}

/// Stops the process at the first panic of any thread. A node that found its own bug must not send anything more, and
/// its supervisor sees that it ended.
pub fn abort_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        let _ = writeln!(
            crate::stderr::Log,
            "kasha: that is a bug, and this process stops rather than go on: please report it (K0409)"
        );
        std::process::abort();
    }));
}

/// The memory of a replica's log. A log needs a few segments at least, and its index has a limit.
pub fn memory_bytes(mebibytes: u64) -> Result<u64> {
    const RANGE: std::ops::RangeInclusive<u64> = 64..=1024 * 1024;
    if !RANGE.contains(&mebibytes) {
        bail!(
            "{mebibytes} MiB is no size for a replica's memory: give one from {} to {} (K0403)",
            RANGE.start(),
            RANGE.end()
        );
    }
    Ok(mebibytes * 1024 * 1024)
}

/// The number of cores: one for each address that the node listens at. A process of the coordinator alone has none.
fn cores_of(listen: &[Place]) -> Result<u8> {
    match u8::try_from(listen.len()) {
        Ok(cores @ 0..=CORES_MAX) => Ok(cores),
        Ok(_) | Err(_) => {
            bail!("{} addresses are too many: a node has at most {CORES_MAX} cores, one for each (K0403)", listen.len())
        }
    }
}

/// The default number of shards of a cluster: one for each core.
pub fn default_shards(nodes: u16, cores: usize) -> Result<u16> {
    let shards = u16::try_from(usize::from(nodes) * cores).ok();
    shards.with_context(|| {
        format!("{nodes} nodes of {cores} cores are too many for one shard each: give --shards (K0403)")
    })
}

/// The default number of members of the coordinator's group (R9.14): enough to survive as many losses as each shard does, odd, at most
/// as many as there are nodes.
pub fn default_group(faults: u8, nodes: u16) -> u8 {
    let most = u16::from(faults).saturating_mul(2).saturating_add(1).min(nodes).min(u16::from(GROUP_MAX)).max(1);
    u8::try_from(most - (most + 1) % 2).expect("at most GROUP_MAX")
}

/// The limits of each loop of a process. The loops share the process's file descriptors.
pub fn limits(loops: usize) -> Result<Limits> {
    Ok(Limits::within(raise_descriptor_limit(), loops)?)
}

/// How long a loop polls by default (section 12): a little if every loop can have a processor of its own, not at all if
/// loops would take processors from each other.
pub fn default_spin(loops: usize) -> Duration {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if processors > 1 && loops <= processors { Duration::from_micros(15) } else { Duration::ZERO }
}

/// The operating system refused to start a thread.
const NO_THREAD: &str = "cannot start a thread: raise this user's limit of processes (ulimit -u) (K0408)";

/// A running node.
pub struct RunningNode {
    node: u16,
    cluster: ClusterId,
    handles: Vec<LoopHandle>,
    threads: Vec<JoinHandle<()>>,
    /// Number of cores. Their loops end by themselves when they are asked to.
    cores: usize,
    /// The cluster began in this process, and other nodes may run elsewhere.
    hosts_coordinator: bool,
    /// A member of the coordinator's group runs here, and others need it.
    is_member: Arc<AtomicBool>,
    asked_to_stop: Arc<AtomicBool>,
    data: Arc<Mutex<DataDir>>,
    listens: Vec<SocketAddr>,
    /// Where they speak the Redis protocol.
    redis: Option<SocketAddr>,
    /// The coordinator's address, unless it has a name.
    coordinator: Option<SocketAddr>,
    /// Where the process listens as a member of the coordinator's group.
    control: Option<SocketAddr>,
}

/// What the cores of a node have in common.
struct Shared {
    cluster: ClusterId,
    /// The addresses of all of them.
    addresses: Vec<SocketAddr>,
    /// Those members of the coordinator's group that have names.
    names: Option<Names>,
    /// Where other members reach the one of this process.
    control: Option<SocketAddr>,
    /// The port of the Redis protocol.
    redis: Option<Port>,
    trash: TrashThread,
}

impl RunningNode {
    /// Starts a node's loops. Each loop that ends is reported to `ended`.
    pub fn start(spec: &NodeSpec, ended: &mpsc::Sender<Ended>) -> Result<Self> {
        let cores = cores_of(&spec.listen)?;
        let mut data = DataDir::open_or_create(&spec.data, NodeId(spec.node), cores)?;
        let resolver = resolver()?;
        let (mut listeners, mut bound) = (Vec::new(), Vec::new());
        for place in &spec.listen {
            let (listener, address) = place.listen(&resolver)?;
            listeners.push(listener);
            bound.push(address);
        }
        let redis = spec.redis.as_ref().map(|redis| Port::listen(redis, cores.into())).transpose()?;
        let addresses = advertised(spec, &bound, &resolver)?;
        let control = match &spec.control {
            Some(control) => control.listen(&resolver, stored_in(&data)?.is_some())?,
            None => None,
        };
        let own = control.as_ref().map(|(_, address)| *address);
        // Our own member is nobody's as yet, and does not answer.
        let others: Vec<_> = (spec.coordinators.iter())
            .filter(|place| place.address().is_none_or(|address| Some(address) != own))
            .cloned()
            .collect();
        let (cluster, begins) = cluster_of(spec, &data, &others, &resolver)?;
        data.join(cluster)?;
        let coordinator = if begins { own } else { spec.coordinators[0].address() };
        let mut running = Self {
            node: spec.node,
            cluster,
            handles: Vec::new(),
            threads: Vec::new(),
            cores: usize::from(cores),
            hosts_coordinator: spec.hosts.is_some(),
            is_member: Arc::default(),
            asked_to_stop: Arc::default(),
            data: Arc::new(Mutex::new(data)),
            listens: bound,
            redis: redis.as_ref().map(|(_, address)| *address),
            coordinator,
            control: own,
        };
        let trash = TrashThread::start(&format!("n{}-trash", spec.node)).context(NO_THREAD)?;
        let control_address = match own {
            Some(bound) => advertised_control(spec, bound, &addresses)?,
            None => None,
        };
        if let (Some((listener, _)), Some(address)) = (control, control_address) {
            let has_files = {
                let data = running.folder();
                let has_files = stored_in(&data)?.is_some();
                data.check_coordinator(has_files)?;
                has_files
            };
            let hosts = spec.hosts.as_ref().filter(|_| begins || has_files);
            let others = Others::of(&others, address, &resolver);
            running.spawn_coordinator(spec, hosts, cluster, (listener, address, others), ended)?;
        }
        let named = (spec.coordinators.iter().enumerate()).filter(|(index, place)| match index {
            0 => coordinator.is_none(),
            _ => place.address().is_none(),
        });
        let of: Vec<_> = named.map(|(index, place)| (seed(index), place.name().into())).collect();
        let names = (!of.is_empty()).then_some(Names { resolver, of });
        let redis = redis.map(|(port, _)| port);
        let shared = Shared { cluster, addresses, names, control: control_address, redis, trash };
        for (index, listener) in (0u8..).zip(listeners) {
            running.spawn_core(spec, index, listener, &shared, ended)?;
        }
        Ok(running)
    }

    fn folder(&self) -> MutexGuard<'_, DataDir> {
        self.data.lock().expect("nobody panics with it")
    }

    /// Where the cores listen, and the coordinator if it runs here: port 0 has become the port that was taken.
    pub fn listens(&self) -> (&[SocketAddr], Option<SocketAddr>) {
        (&self.listens, self.coordinator.filter(|_| self.hosts_coordinator))
    }

    /// Where the cores speak the Redis protocol.
    pub fn redis(&self) -> Option<SocketAddr> {
        self.redis
    }

    /// Whether a loop of this name is one of its cores', or that of its member of the coordinator's group.
    fn has_loop(&self, name: &str) -> bool {
        let hosts = self.hosts_coordinator && name == "coordinator";
        hosts || name == format!("n{}-member", self.node) || name.starts_with(&format!("n{}c", self.node))
    }

    /// The cluster that it has joined, or begun.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Where the process listens as a member of the coordinator's group.
    pub fn control(&self) -> Option<SocketAddr> {
        self.control
    }

    /// Asks the cores to sync everything that they answered, to have their witness lists emptied, and to end (R7.7).
    pub fn begin_stop(&self) {
        self.asked_to_stop.store(true, Ordering::Release);
        self.handles.iter().for_each(LoopHandle::wake);
    }

    /// Asks every loop to end at once, and waits until they have ended.
    pub fn stop(self) {
        for handle in &self.handles {
            handle.stop();
        }
        for thread in self.threads {
            let _ = thread.join();
        }
    }

    fn spawn_coordinator(
        &mut self,
        spec: &NodeSpec,
        hosts: Option<&ClusterSpec>,
        cluster: ClusterId,
        (listener, address, others): (TcpListener, SocketAddr, Others),
        ended: &mpsc::Sender<Ended>,
    ) -> Result<()> {
        let incarnation = self.folder().incarnation();
        let folder = self.folder().coordinator();
        // Who begins no cluster takes all of that from the cluster.
        let nothing =
            Unchosen { nodes: true, shards: true, faults: true, durability: true, min_backups: true, group: true };
        let made = hosts.map(|hosts| CoordinatorOptions {
            durability: hosts.durability,
            min_backups: hosts.min_backups.unwrap_or(hosts.faults),
            unchosen: hosts.unchosen,
            group: hosts.group,
            ..CoordinatorOptions::new(cluster, hosts.nodes, hosts.shards, hosts.faults, address)
        });
        let options = CoordinatorOptions {
            node_lease: spec.lease,
            drift_bound: spec.lease / 20,
            own_nodes: spec.own_nodes.clone(),
            seeds: others.seeds,
            boot: boot_id().ok(),
            begins: hosts.is_some(),
            node: NodeId(spec.node),
            process: incarnation,
            seed: random_u64(),
            ..made.unwrap_or_else(|| CoordinatorOptions {
                unchosen: nothing,
                ..CoordinatorOptions::new(cluster, 1, 1, 0, address)
            })
        };
        let name = if hosts.is_some() { "coordinator".to_owned() } else { format!("n{}-member", spec.node) };
        let loop_options = LoopOptions {
            name: name.clone(),
            listen: vec![listener.into()],
            identity: Identity {
                cluster: ClusterCell::new(cluster),
                core: None,
                incarnation,
                versions: WireVersions::OURS,
            },
            data_dir: Some(folder),
            names: others.names,
            link_delay: spec.injected.link_delay,
            limits: spec.limits,
            ..LoopOptions::default()
        };
        let (lease, min_backups) = (spec.lease, hosts.and_then(|hosts| hosts.min_backups));
        let make = move || {
            EventLoop::new(loop_options, |disk, now, out| {
                let coordinator = Coordinator::start(options, disk, now, out)?;
                warn_of_settings(&coordinator, lease, min_backups);
                Ok(coordinator)
            })
        };
        let is_whole = hosts.is_some_and(|hosts| spec.own_nodes.len() == usize::from(hosts.nodes));
        let gives_up = (is_whole || spec.own_nodes.len() > 1).then(|| ended.clone());
        let telling = TellCommits::new(Arc::clone(&self.data), Arc::clone(&self.is_member), gives_up);
        self.spawn(name, make, telling, ended)
    }

    fn spawn_core(
        &mut self,
        spec: &NodeSpec,
        index: u8,
        listener: TcpListener,
        shared: &Shared,
        ended: &mpsc::Sender<Ended>,
    ) -> Result<()> {
        let core = CoreId { node: NodeId(spec.node), core: index };
        let incarnation: Incarnation = self.folder().incarnation();
        let name = format!("n{}c{index}", spec.node);
        let warm = WarmBuffers::start(&name).context(NO_THREAD)?;
        let Shared { cluster, addresses, names, control, redis, trash } = shared;
        let (cluster, memory_goes_to) = (*cluster, trash.clone());
        let port = redis.as_ref().map(|redis| redis.counted(index.into()));
        let options = NodeOptions {
            incarnation,
            boot: boot_id().context("cannot read the kernel's boot id: give this process /proc (K0408)")?,
            replica_memory_max_bytes: spec.memory_bytes,
            buffers: Buffers::new(move |bytes| warm.take(bytes)),
            trash: Trash::new(move |value| memory_goes_to.throw(value)),
            heartbeat: spec.lease / 8,
            flush_interval: spec.flush_interval,
            baseline: spec.injected.baseline,
            pace: spec.injected.pace,
            seed: random_u64(),
            control: *control,
            seeds: spec.coordinators[1..].iter().map(Place::address).collect(),
            port: port.clone(),
            ..NodeOptions::new(cluster, core, addresses.clone(), self.coordinator)
        };
        let loop_options = LoopOptions {
            name: format!("{core}"),
            listen: vec![listener.into()],
            identity: identity(cluster, core, incarnation),
            spin: spec.spin,
            data_dir: Some(self.folder().core(index)),
            link_delay: spec.injected.link_delay,
            faults: spec.injected.faults,
            heap: Some(crate::allocator::heap_use),
            names: names.clone(),
            trash: Some(trash.clone()),
            limits: spec.limits,
            port,
        };
        let (asked, tells) = (Arc::clone(&self.asked_to_stop), index == 0);
        let Some(port) = redis else {
            let make = move || {
                EventLoop::new(loop_options, |disk, now, out| Node::start(options, disk, now, out).map_err(Into::into))
            };
            return self.spawn(name, make, TellLease::new(asked, tells), ended);
        };
        let mut loop_options = loop_options;
        loop_options.listen.extend(port.listeners()?);
        loop_options.limits = loop_options.limits.with_requesters();
        let requesters = loop_options.limits.requesters * self.cores;
        let of_front = RedisOptions { clients_max: requesters, ..port.options(index.into()) };
        // The front asks its own node first, and then the others' for whom the cluster has a place.
        let seeds: Vec<_> = addresses.iter().copied().chain(self.coordinator).collect();
        let make = move || {
            EventLoop::new(loop_options, |disk, now, out| {
                let node = Node::start(options, disk, now, out)?;
                let make = |out: &mut Effects| front(seeds.into(), Some(core), of_front, now, out);
                Ok(Colocated::new(core, frame::split, node, out, make))
            })
        };
        self.spawn(name, make, TellBoth::new(asked, tells), ended)
    }

    /// Makes a loop on a thread of its own and runs it there. (A machine stays on the thread that made it.)
    fn spawn<M: kasha_machine::Machine + 'static>(
        &mut self,
        name: String,
        make: impl FnOnce() -> Result<EventLoop<M>, kasha_runtime::LoopError> + Send + 'static,
        mut telling: impl Application<M> + Send + 'static,
        ended: &mpsc::Sender<Ended>,
    ) -> Result<()> {
        let (ready, made) = mpsc::channel();
        let (ended, loop_name) = (ended.clone(), name.clone());
        let thread = spawn_loop(&name, None, move || {
            let mut event_loop = match make() {
                Ok(event_loop) => event_loop,
                Err(error) => {
                    let _ = ready.send(Err(error.to_string()));
                    return;
                }
            };
            let _ = ready.send(Ok(event_loop.handle()));
            let result = event_loop.run(&mut telling).map(|_| ()).map_err(|error| error.to_string());
            let _ = ended.send((loop_name, result));
        })
        .context(NO_THREAD)?;
        self.threads.push(thread);
        match made.recv() {
            Ok(Ok(handle)) => self.handles.push(handle),
            Ok(Err(error)) => bail!("{name}: {error}"),
            Err(_) => bail!("{name}: its thread ended while it started, which is a bug: please report it (K0409)"),
        }
        Ok(())
    }
}

/// What the loop of a core tells its peers about itself.
fn identity(cluster: ClusterId, core: CoreId, incarnation: Incarnation) -> Identity {
    Identity { cluster: ClusterCell::new(cluster), core: Some(core), incarnation, versions: WireVersions::OURS }
}

/// Where other members of the coordinator's group may be, by what this process was started with.
struct Others {
    seeds: Vec<Option<SocketAddr>>,
    names: Option<Names>,
}

impl Others {
    fn of(places: &[Place], own: SocketAddr, resolver: &Resolver) -> Self {
        let places: Vec<_> = places.iter().filter(|place| place.address() != Some(own)).collect();
        let numbered = (0..).map(Endpoint::Seed).zip(&places);
        let of: Vec<_> = numbered
            .filter(|(_, place)| place.address().is_none())
            .map(|(end, place)| (end, place.name().into()))
            .collect();
        let names = (!of.is_empty()).then(|| Names { resolver: resolver.clone(), of });
        Self { seeds: places.into_iter().map(Place::address).collect(), names }
    }
}

/// Where other machines reach the cores that listen at `bound`.
fn advertised(spec: &NodeSpec, bound: &[SocketAddr], resolver: &Resolver) -> Result<Vec<SocketAddr>> {
    let mut addresses = Vec::new();
    for (index, &bound) in bound.iter().enumerate() {
        let mut address = match spec.advertise.get(index) {
            Some(place) => place.wait(resolver)?,
            None => bound,
        };
        if address.port() == 0 {
            address.set_port(bound.port());
        }
        if address.ip().is_unspecified() {
            bail!("others cannot reach {address}: name the addresses that they use with --advertise (K0403)");
        }
        addresses.push(address);
    }
    Ok(addresses)
}

/// The cluster of a process, and whether this process may begin it. `others`: where other members of the coordinator's group are.
fn cluster_of(spec: &NodeSpec, data: &DataDir, others: &[Place], resolver: &Resolver) -> Result<(ClusterId, bool)> {
    Ok(match (data.cluster(), &spec.hosts) {
        (ClusterId(0), Some(_)) if spec.coordinators.len() == 1 => (ClusterId(random_u64().max(1)), true),
        (ClusterId(0), Some(_)) => match ask_cluster(others, resolver, None) {
            // It has begun already, and this folder is new.
            Ok(cluster) => (cluster, false),
            Err(_) => (ClusterId(random_u64().max(1)), true),
        },
        (ClusterId(0), None) => (discover_cluster(others, resolver)?, false),
        // While the coordinator is away nobody answers, and a node that knows its cluster need not wait.
        (known, None) => (ask_cluster(others, resolver, Some(known)).unwrap_or(known), false),
        (known, Some(_)) => (known, stored_in(data)?.is_some() || !has_begun(others, known, resolver)),
    })
}

/// Where other members reach the one that listens at `bound`: beside the cores, if others reach these elsewhere. Without cores, or an
/// address that means any, nowhere.
fn advertised_control(spec: &NodeSpec, bound: SocketAddr, cores: &[SocketAddr]) -> Result<Option<SocketAddr>> {
    let is_chosen = spec.control.as_ref().is_some_and(|control| control.is_chosen);
    let has_own = !bound.ip().is_unspecified() && (spec.advertise.is_empty() || is_chosen);
    let ip = if has_own { Some(bound.ip()) } else { cores.first().map(SocketAddr::ip) };
    if ip.is_none() && spec.hosts.is_some() {
        bail!("others cannot reach the coordinator at {bound}: name its own address with --control (K0403)");
    }
    Ok(ip.map(|ip| SocketAddr::new(ip, bound.port())))
}

/// The endpoint of an address with which a process was started.
fn seed(index: usize) -> Endpoint {
    match index.checked_sub(1) {
        None => Endpoint::Coordinator,
        Some(seed) => Endpoint::Seed(u16::try_from(seed).expect("a few addresses")),
    }
}

/// Asks which cluster the coordinator has. Waits until a member is up, and its name has an address.
fn discover_cluster(coordinators: &[Place], resolver: &Resolver) -> Result<ClusterId> {
    const PATIENCE: Duration = Duration::from_secs(60);
    const SILENCE: Duration = Duration::from_secs(1);
    let names: Vec<_> = coordinators.iter().map(ToString::to_string).collect();
    let (began, mut told, names) = (Instant::now(), false, names.join(", "));
    loop {
        let problem = match ask_cluster(coordinators, resolver, None) {
            Ok(cluster) => return Ok(cluster),
            Err(error) => error,
        };
        if began.elapsed() > PATIENCE {
            bail!(
                "no coordinator answers at {names} ({problem:#}): start the nodes that host members of its group first (of a new \
                 cluster: the one with --host-coordinator), or correct the addresses (K0406)"
            );
        }
        if !told && began.elapsed() > SILENCE {
            told = true;
            let _ = writeln!(crate::stderr::Log, "kasha: waiting for the coordinator at {names} ({problem:#}) …");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Asks the members of the coordinator's group, one after the other, until one answers.
fn ask_cluster(coordinators: &[Place], resolver: &Resolver, wanted: Option<ClusterId>) -> Result<ClusterId> {
    let mut problem = anyhow!("no address was given");
    for coordinator in coordinators {
        let addresses = coordinator.addresses(resolver).map_err(|why| anyhow!("{why} (K0420)"));
        match addresses.and_then(|addresses| Talk::connect_to_one_of(&addresses, wanted)) {
            Ok(talk) => return Ok(talk.cluster),
            Err(error) => problem = error,
        }
    }
    Err(problem)
}

/// Whether another member knows that this cluster has begun. One that waits to become a member says nothing.
fn has_begun(others: &[Place], cluster: ClusterId, resolver: &Resolver) -> bool {
    let addresses = others.iter().filter_map(|place| place.addresses(resolver).ok()).flatten();
    let mut talks = addresses.filter_map(|address| Talk::connect(address).ok()).filter(|talk| talk.cluster == cluster);
    let question = GetConfiguration { have: ConfigVersion(0) };
    talks.any(|mut talk| matches!(talk.ask(&question), Ok(ToClient::ConfigurationIs(_) | ToClient::NotLeader(_))))
}

/// Runs nodes until the operator asks them to stop, or one of their loops fails.
pub fn wait_and_stop(nodes: Vec<RunningNode>, ended: &mpsc::Receiver<Ended>, asked: &StopRequest) -> Result<()> {
    let mut failure = loop {
        if asked.came() {
            break None;
        }
        match ended.recv_timeout(Duration::from_millis(50)) {
            Ok((name, Err(error))) => {
                let its = nodes.iter().find(|node| node.has_loop(&name));
                if let Some(Err(why)) = its.filter(|_| is_older_copy(&error)).map(|node| node.folder().set_back()) {
                    tracing::error!("the folder could pass for a newer one after more starts, so remove it: {why}");
                }
                break Some(format!("{name}: {error}"));
            }
            Ok((name, Ok(()))) => {
                break Some(format!("{name}: its loop ended unasked, which is a bug: please report it (K0409)"));
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => break None,
        }
    };
    if failure.is_none() {
        failure = stop_in_order(&nodes, ended);
    }
    for node in nodes {
        node.stop();
    }
    match failure {
        None => Ok(()),
        Some(failure) => bail!("{failure}"),
    }
}

/// Whether the coordinator refused a process because its folder counts less than one that it knows, or the same.
fn is_older_copy(refusal: &str) -> bool {
    ["(K0503)", "(K0507)"].iter().any(|code| refusal.contains(code))
}

/// Ends the cores in good order while the coordinator still runs. Each core gives up by itself after a while. Returns
/// what failed meanwhile.
fn stop_in_order(nodes: &[RunningNode], ended: &mpsc::Receiver<Ended>) -> Option<String> {
    /// Longer than the time that a core allows itself.
    const PATIENCE: Duration = Duration::from_secs(4);
    /// How long a coordinator alone goes on, for nodes that are stopped at the same moment.
    const FOR_OTHERS: Duration = Duration::from_millis(300);
    nodes.iter().for_each(RunningNode::begin_stop);
    let cores: usize = nodes.iter().map(|node| node.cores).sum();
    let until = std::time::Instant::now() + PATIENCE;
    for _ in 0..cores {
        let left = until.saturating_duration_since(std::time::Instant::now());
        match ended.recv_timeout(left) {
            Ok((_, Ok(()))) => {}
            Ok((name, Err(error))) => return Some(format!("{name}: {error}")),
            Err(_) => return None,
        }
    }
    let is_needed = |node: &RunningNode| node.hosts_coordinator || node.is_member.load(Ordering::Acquire);
    if nodes.len() == 1 && is_needed(&nodes[0]) {
        std::thread::sleep(FOR_OTHERS);
    }
    None
}

/// Reads the word for a durability.
pub fn parse_durability(text: &str) -> Result<Durability, String> {
    match text {
        "replicated" => Ok(Durability::Replicated),
        "fsync" => Ok(Durability::Fsync),
        other => Err(format!("{other:?} is no durability: write replicated or fsync (K0403)")),
    }
}

/// A cluster that exists keeps what it has (R9.12).
fn warn_of_settings(coordinator: &Coordinator, chosen: Duration, min_backups: Option<u8>) {
    let state = coordinator.state();
    let timing = state.timing().map(Timing::lease);
    if let Some(lease) = timing.filter(|&lease| lease != chosen && chosen != NODE_LEASE) {
        tracing::warn!(
            "the cluster has a lease of {lease:?}, so lease = {chosen:?} counts for nothing here: an operator changes it (kasha admin coordinator \
             lease)"
        );
    }
    let config = state.configuration();
    if let Some(given) = min_backups.filter(|&given| given != config.min_backups && !config.shards.is_empty()) {
        tracing::warn!(
            "the cluster has min-backups = {}, so min-backups = {given} counts for nothing here: an operator changes it (kasha admin \
             coordinator min-backups)",
            config.min_backups
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_make_no_sense_are_refused() {
        assert_eq!(memory_bytes(64).unwrap(), 1 << 26);
        for wrong in [0, 8, 1 << 21, u64::MAX >> 20, u64::MAX] {
            assert!(memory_bytes(wrong).unwrap_err().to_string().contains("K0403"));
        }
        let place = Place::from(SocketAddr::from(([127, 0, 0, 1], 1)));
        assert_eq!((cores_of(&[]).unwrap(), cores_of(&vec![place.clone(); 64]).unwrap()), (0, 64));
        for wrong in [65, 256] {
            assert!(cores_of(&vec![place.clone(); wrong]).unwrap_err().to_string().contains("K0403"));
        }
        assert_eq!(default_shards(3, 2).unwrap(), 6);
        assert!(default_shards(u16::MAX, 2).is_err());
        let groups = [(0, 3), (1, 1), (1, 2), (1, 3), (2, 3), (2, 5), (3, 9)]
            .map(|(faults, nodes)| default_group(faults, nodes));
        assert_eq!(groups, [1, 1, 1, 3, 3, 5, 5]);
    }

    #[test]
    fn a_panic_in_any_thread_ends_the_process() {
        const CHILD: &str = "KASHA_TEST_PANICS";
        if std::env::var_os(CHILD).is_some() {
            abort_on_panic();
            let _ = spawn_loop("panics", None, || panic!("an assertion")).unwrap().join();
            std::thread::sleep(Duration::from_secs(60));
            return;
        }
        let name = "host::tests::a_panic_in_any_thread_ends_the_process";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let output = child.args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(6), "SIGABRT: {said}");
        assert!(said.contains("an assertion") && said.contains("K0409"), "{said}");
    }
}
