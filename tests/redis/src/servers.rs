//! The two servers of a stream.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::Arguments;
use crate::link::Link;

/// A process that ends with this value.
pub struct Server {
    child: Child,
    pub address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The two whose replies must be equal.
pub struct Pair {
    pub kasha: Server,
    pub redis: Server,
    /// What the proxy is a front of.
    _cluster: Server,
}

impl Pair {
    pub fn start(arguments: &Arguments, folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let redis = redis(folder)?;
        let (kasha, cluster) = kasha(&arguments.kasha, folder, arguments.spread)?;
        Ok(Self { kasha, redis, _cluster: cluster })
    }
}

/// The first of so many adjacent ports at which nobody listens. They are below those of outgoing connections.
fn free_ports(count: u16) -> Result<u16> {
    const FIRST: u16 = 10_240;
    const END: u16 = 32_768;
    // Two runs side by side begin at different places.
    let begin = FIRST + u16::try_from(std::process::id() % 20_000).expect("below the end");
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let mut candidates = (begin..END - count).step_by(usize::from(count));
    candidates.find(|first| (*first..first + count).all(is_free)).context("no neighbouring ports are free")
}

fn start(mut command: Command, address: String, log: &Path) -> Result<Server> {
    let log = std::fs::File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
    let name = command.get_program().to_string_lossy().into_owned();
    let server = Server { child: child.with_context(|| format!("cannot start {name}; is it installed?"))?, address };
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        if let Ok(mut link) = Link::connect(&server.address)
            && link
                .ask(&[b"set".to_vec(), b"is-there".to_vec(), b"1".to_vec()])
                .is_ok_and(|reply| format!("{reply:?}") == "+OK")
        {
            return Ok(server);
        }
        if Instant::now() > until {
            bail!("{name} does not serve at {}", server.address);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The distribution's own server, which keeps nothing on disk.
fn redis(folder: &Path) -> Result<Server> {
    let port = free_ports(1)?;
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    command.args(["--dir", &folder.display().to_string()]);
    start(command, format!("127.0.0.1:{port}"), &folder.join("redis.log"))
}

/// A cluster of one process, and a proxy to it. `is_spread`: its databases are in four shards.
fn kasha(program: &Path, folder: &Path, is_spread: bool) -> Result<(Server, Server)> {
    // Of the proxy; of the coordinator; of the nodes' cores.
    const PORTS: u16 = 32;
    let port = free_ports(PORTS)?;
    let base = port + 1;
    let mut command = Command::new(program);
    command.args([
        "start",
        "--shards",
        if is_spread { "4" } else { "1" },
        "--redis",
        "off",
        "--data",
        &folder.join("data").display().to_string(),
        "--port",
        &base.to_string(),
    ]);
    let log = std::fs::File::create(folder.join("kasha.log"))?;
    let child =
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn().context("cannot start kasha")?;
    let cluster = Server { child, address: format!("127.0.0.1:{}", base + 1) };
    let mut command = Command::new(program);
    command.args(["proxy", "--address", &cluster.address, "--redis", &format!("127.0.0.1:{port}")]);
    command.args(is_spread.then_some("--redis-spread"));
    let proxy = start(command, format!("127.0.0.1:{port}"), &folder.join("proxy.log"))?;
    Ok((proxy, cluster))
}
