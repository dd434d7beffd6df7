//! Kasha with f = 1 and Redis with a replica, on a virtual network whose links all have one delay, as in the comparison with other stores
//! (`crate::rivals`). The callers have a host of their own, and there runs the proxy.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use kasha_client::Client;
use kasha_netlab::Netlab;
use kasha_types::ShardId;

use super::load::{Arm, ask, takes_updates};
use crate::children::program_beside;
use crate::client::is_whole;
use crate::harness::primary_address;
use crate::rivals::servers::{Place, Servers};

pub(super) const NODE: &str = "kasha-node";
pub(super) const PROXY: &str = "kasha-proxy";
pub(super) const WAIT1: &str = "redis-wait1";
pub(super) const NOT_DURABLE: &str = "redis-not-durable";

/// Kasha's nodes: a primary and a backup, and one that holds a witness.
const NODES: usize = 3;

/// The callers' host.
pub(super) const CALLERS: usize = NODES;

pub(super) const HOSTS: usize = NODES + 1;

const COORDINATOR_PORT: u16 = 7000;
const NODE_PORT: u16 = 7001;
const KASHA_PORT: u16 = 7002;
const REDIS_PORT: u16 = 6379;
const NOT_DURABLE_PORT: u16 = 6380;

/// All servers, running, and what runs on them.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) arms: Vec<Arm>,
    // They end after the connections to them.
    _servers: Vec<Servers>,
}

impl Network {
    /// On the callers' host, to which the connections belong.
    pub(super) fn start(exe: &Path, lab: &Netlab, folder: &Path, clients: usize) -> anyhow::Result<Self> {
        let place = Place { lab, folder: folder.to_owned() };
        let at = |host, port| place.address(host, port);
        let (kasha, primary) = kasha(exe, &place)?;
        let proxy = proxy(exe, &place)?;
        let redis = [redis(&place, WAIT1, REDIS_PORT, 2)?, redis(&place, NOT_DURABLE, NOT_DURABLE_PORT, 1)?];
        let mut arms = vec![
            Arm::connect(NODE, primary, clients, false)?,
            Arm::connect(PROXY, at(CALLERS, REDIS_PORT), clients, false)?,
            Arm::connect(WAIT1, at(0, REDIS_PORT), clients, true)?,
            Arm::connect(NOT_DURABLE, at(0, NOT_DURABLE_PORT), clients, false)?,
        ];
        arms.iter_mut().try_for_each(|arm| arm.fill(false))?;
        Ok(Self { arms, _servers: [vec![kasha, proxy], redis.into()].into_iter().flatten().collect() })
    }
}

/// The cluster, and Redis' port of the node that is the primary of the only shard.
fn kasha(exe: &Path, place: &Place<'_>) -> anyhow::Result<(Servers, SocketAddr)> {
    let mut servers = Servers::new("kasha", &place.folder);
    for host in 0..NODES {
        let mut command = Command::new(program_beside(exe)?);
        command.arg("server").arg("--data").arg(place.folder("kasha", host)?);
        command.args(["--node", &(host + 1).to_string(), "--spin", "0"]);
        for (flag, at) in
            [("--listen", (host, NODE_PORT)), ("--coordinator", (0, COORDINATOR_PORT)), ("--redis", (host, KASHA_PORT))]
        {
            command.args([flag, &place.address(at.0, at.1).to_string()]);
        }
        if host == 0 {
            command.args(["--host-coordinator", "--nodes", &NODES.to_string(), "--shards", "1", "--faults", "1"]);
        }
        servers.spawn(place, command)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start a runtime")?;
    let seeds: Vec<String> = (0..NODES).map(|host| place.address(host, NODE_PORT).to_string()).collect();
    let (mut client, mut primary) = (None, None);
    servers.wait(|| {
        runtime.block_on(async {
            if client.is_none() {
                client = Some(Client::connect(&seeds).await?);
            }
            let known = client.as_ref().expect("connected").fresh_configuration().await?;
            primary = Some(primary_address(&known, ShardId(0))?);
            Ok(is_whole(&known))
        })
    })?;
    let primary = primary.context("a cluster that is whole has a primary")?;
    let port = SocketAddr::new(primary.ip(), KASHA_PORT);
    servers.wait(|| takes_updates(port))?;
    Ok((servers, port))
}

/// `kasha proxy` beside the callers.
fn proxy(exe: &Path, place: &Place<'_>) -> anyhow::Result<Servers> {
    let (mut servers, at) = (Servers::new(PROXY, &place.folder), place.address(CALLERS, REDIS_PORT));
    let nodes: Vec<String> = (0..NODES).map(|host| place.address(host, NODE_PORT).to_string()).collect();
    let mut command = Command::new(program_beside(exe)?);
    command.args(["proxy", "--address", &nodes.join(","), "--redis", &at.to_string()]);
    servers.spawn_with(command, |command| place.lab.host(CALLERS).spawn(command))?;
    servers.wait(|| takes_updates(at))?;
    Ok(servers)
}

/// A primary on the first host and, with a second server, its replica. As many copies as Kasha has with f = 1, and no more.
fn redis(place: &Place<'_>, name: &'static str, port: u16, servers: usize) -> anyhow::Result<Servers> {
    let mut running = Servers::new(name, &place.folder);
    let primary = place.address(0, port);
    for host in 0..servers {
        let mut command = Command::new("redis-server");
        command.arg("--dir").arg(place.folder(name, host)?);
        command.args(["--port", &port.to_string(), "--bind", &place.address(host, port).ip().to_string()]);
        command.args(["--protected-mode", "no", "--save", "", "--repl-diskless-sync-delay", "0"]);
        if servers > 1 {
            command.args(["--appendonly", "yes", "--appendfsync", "everysec"]);
        }
        if host > 0 {
            command.args(["--replicaof", &primary.ip().to_string(), &port.to_string()]);
        }
        running.spawn(place, command)?;
    }
    running.wait(|| {
        let said = ask(primary, &[b"INFO", b"replication"])?;
        Ok(said.matches("state=online").count() == servers - 1)
    })?;
    ensure!(takes_updates(primary)?, "Redis takes no updates");
    Ok(running)
}
