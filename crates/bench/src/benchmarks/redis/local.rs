//! One node of Kasha and one Redis, on loopback: f = 0.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use kasha_runtime::random_u64;

use super::load::{Arm, ask, takes_updates};
use crate::children::{ends_with_this, program_beside};
use crate::ports::free_ports;
use crate::rivals::servers::Servers;

pub(super) const KASHA: &str = "kasha";
pub(super) const EVERYSEC: &str = "redis-everysec";

/// Both servers, running, and what runs on them.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) arms: Vec<Arm>,
    /// Redis' own version.
    pub(super) version: String,
    // They end after the connections to them.
    _servers: [Servers; 2],
}

impl Local {
    pub(super) fn start(exe: &Path, folder: &Path, clients: usize) -> anyhow::Result<Self> {
        let ports = free_ports(4, random_u64())?;
        let mut kasha = Servers::new(KASHA, folder);
        spawn(&mut kasha, node(exe, &own(folder, KASHA)?, &ports)?)?;
        let mut redis = Servers::new(EVERYSEC, folder);
        spawn(&mut redis, everysec(&own(folder, EVERYSEC)?, ports[3]))?;
        kasha.wait(|| takes_updates(ports[2]))?;
        redis.wait(|| takes_updates(ports[3]))?;
        let mut arms =
            vec![Arm::connect(KASHA, ports[2], clients, false)?, Arm::connect(EVERYSEC, ports[3], clients, false)?];
        arms.iter_mut().try_for_each(|arm| arm.fill(true))?;
        Ok(Self { arms, version: version(ports[3])?, _servers: [kasha, redis] })
    }
}

fn own(folder: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let own = folder.join(name);
    std::fs::create_dir_all(&own).with_context(|| format!("cannot create {}", own.display()))?;
    Ok(own)
}

fn spawn(servers: &mut Servers, mut command: Command) -> anyhow::Result<()> {
    ends_with_this(&mut command);
    servers.spawn_with(command, |mut command| command.spawn())
}

/// One node with one shard: its port, the coordinator's and Redis'.
fn node(exe: &Path, data: &Path, ports: &[SocketAddr]) -> anyhow::Result<Command> {
    let mut command = Command::new(program_beside(exe)?);
    command.arg("server").arg("--data").arg(data).args(["--node", "1", "--host-coordinator"]);
    command.args(["--nodes", "1", "--shards", "1", "--faults", "0"]);
    for (flag, at) in ["--listen", "--coordinator", "--redis"].into_iter().zip(ports) {
        command.args([flag, &at.to_string()]);
    }
    // As beside other stores: the default is for a server that has processors of its own.
    command.args(["--spin", "0"]);
    Ok(command)
}

fn everysec(data: &Path, at: SocketAddr) -> Command {
    let mut command = Command::new("redis-server");
    command.arg("--dir").arg(data);
    command.args(["--port", &at.port().to_string(), "--bind", &at.ip().to_string()]);
    command.args(["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]);
    command
}

fn version(at: SocketAddr) -> anyhow::Result<String> {
    let said = ask(at, &[b"INFO", b"server"])?;
    let version = said.lines().find_map(|line| line.strip_prefix("redis_version:"));
    Ok(version.context("Redis does not say its version")?.to_owned())
}
