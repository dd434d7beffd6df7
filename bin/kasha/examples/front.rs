//! A front that speaks the Redis protocol, in as little code as it takes.
//!
//! - `cargo run --release --example front -- 127.0.0.1:7401` next to a running `kasha start`: a front over a session, without a
//!   node. Give it one address of the cluster, or several.
//! - `cargo run --release --example front -- --node`: the same front in one core with a node, a cluster of its own that it forgets
//!   when it ends. What the front asks of that node goes through a pipe in the process.
//!
//! Then, in both cases: `redis-cli -p 7500`. With `--listen ADDRESS` it listens elsewhere.
// A program: threads, files and the clock are its business.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::error::Error;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use kasha_client::session::{Session, SessionOptions};
use kasha_coordinator::{Coordinator, CoordinatorOptions};
use kasha_gateway::limits::{CANCEL_GRACE, COMMAND_DEADLINE};
use kasha_gateway::{RedisFront, RedisOptions};
use kasha_machine::{Colocated, Effects, Fronted};
use kasha_node::{Node, NodeOptions};
use kasha_runtime::{
    ClusterCell, EventLoop, Framing, Identity, Listener, ListeningSocket, LoopOptions, Serve, boot_id, listen,
    random_u64, spawn_loop,
};
use kasha_types::{ClusterId, CoreId, Incarnation, NodeId, Tick};

use kasha_wire::{WireVersions, frame};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const CLUSTER: ClusterId = ClusterId(0x0066_726f_6e74);
const CORE: CoreId = CoreId { node: NodeId(1), core: 0 };
const SHARDS: u16 = 2;

fn main() -> Result<()> {
    let (mut seeds, mut with_node) = (Vec::new(), false);
    let mut at: SocketAddr = "127.0.0.1:7500".parse()?;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--node" => with_node = true,
            "--listen" => at = arguments.next().ok_or("--listen needs an address")?.parse()?,
            address => seeds.push(address.parse().map_err(|_| format!("{address} is no address of a cluster"))?),
        }
    }
    if seeds.is_empty() != with_node {
        return Err("say where the cluster is, as in 127.0.0.1:7401, or --node for one in this process".into());
    }
    let (socket, at) = listen(at)?;
    kasha_runtime::say!("the Redis protocol at {at}: redis-cli -h {} -p {}", at.ip(), at.port());
    let requests = Listener { socket: ListeningSocket::Tcp(socket), framing: Framing::Requests };
    if with_node { beside_node(requests) } else { alone(requests, seeds) }
}

fn front(seeds: Vec<SocketAddr>, now: Tick, out: &mut Effects) -> Fronted<RedisFront, Session> {
    let options = SessionOptions {
        deadline: COMMAND_DEADLINE,
        cancel_grace: CANCEL_GRACE,
        ..SessionOptions::new(seeds, random_u64())
    };
    Fronted::new(RedisFront::new(RedisOptions::default()), Session::new(options, now, out))
}

/// Front and session, and nothing else.
fn alone(requests: Listener, seeds: Vec<SocketAddr>) -> Result<()> {
    let options = LoopOptions { name: "front".into(), listen: vec![requests], ..LoopOptions::default() };
    let mut event_loop = EventLoop::new(options, |_, now, out| Ok(front(seeds, now, out)))?;
    event_loop.run(&mut Serve)?;
    Ok(())
}

/// Front, session and node in one core. The node listens for frames, the front for requests.
fn beside_node(requests: Listener) -> Result<()> {
    let folder = Folder::new()?;
    let local: SocketAddr = "127.0.0.1:0".parse()?;
    let ((to_coordinator, coordinator), (frames, own)) = (listen(local)?, listen(local)?);
    start_coordinator(&folder.0, to_coordinator, coordinator)?;
    let incarnation = Incarnation(1);
    let options = LoopOptions {
        name: CORE.to_string(),
        listen: vec![frames.into(), requests],
        identity: Identity {
            cluster: ClusterCell::new(CLUSTER),
            core: Some(CORE),
            incarnation,
            versions: WireVersions::OURS,
        },
        data_dir: Some(subfolder(&folder.0, "core")?),
        ..LoopOptions::default()
    };
    let boot = boot_id()?;
    let mut event_loop = EventLoop::new(options, |disk, now, out| {
        let options = NodeOptions {
            incarnation,
            boot,
            seed: random_u64(),
            ..NodeOptions::new(CLUSTER, CORE, vec![own], coordinator)
        };
        let node = Node::start(options, disk, now, out)?;
        Ok(Colocated::new(CORE, frame::split, node, out, |out| front(vec![own], now, out)))
    })?;
    event_loop.run(&mut Serve)?;
    Ok(())
}

fn start_coordinator(folder: &Path, socket: TcpListener, address: SocketAddr) -> Result<()> {
    let data_dir = Some(subfolder(folder, "coordinator")?);
    spawn_loop("coordinator", None, move || {
        let identity = Identity {
            cluster: ClusterCell::new(CLUSTER),
            core: None,
            incarnation: Incarnation(1),
            versions: WireVersions::OURS,
        };
        let options = LoopOptions {
            name: "coordinator".into(),
            listen: vec![socket.into()],
            identity,
            data_dir,
            ..LoopOptions::default()
        };
        let ended = EventLoop::new(options, |disk, now, out| {
            let options = CoordinatorOptions {
                boot: boot_id().ok(),
                seed: random_u64(),
                ..CoordinatorOptions::new(CLUSTER, 1, SHARDS, 0, address)
            };
            Coordinator::start(options, disk, now, out).map_err(Into::into)
        })
        .and_then(|mut event_loop| event_loop.run(&mut Serve));
        panic!("the coordinator has ended: {ended:?}");
    })?;
    Ok(())
}

/// A folder of this process.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("kasha-front-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn subfolder(folder: &Path, name: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    std::fs::create_dir_all(&path)?;
    Ok(path)
}
