//! The cluster that drivers speak with: three servers, each a process of its own, and a proxy (`kasha proxy`).

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::process::{Interrupt, Server};

/// Servers. Every shard survives the loss of one.
pub(crate) const NODES: u16 = 3;

/// A cluster that takes longer to be whole is not on its way.
const WHOLE_WITHIN: Duration = Duration::from_secs(90);

/// A counter is told after an update that is unknown has ended, too.
const TOLD_WITHIN: Duration = Duration::from_secs(30);

/// The servers, and the proxy.
pub(crate) struct Cluster<'a> {
    kasha: &'a Path,
    folder: &'a Path,
    interrupt: &'a Interrupt,
    /// Members of the coordinator's group listen from here on, then the nodes, then the nodes for drivers, then the proxy.
    first: u16,
    nodes: Vec<Option<Server>>,
    proxy: Option<Server>,
}

impl<'a> Cluster<'a> {
    /// Starts it in a new folder, and waits until all is well.
    pub(crate) fn start(kasha: &'a Path, folder: &'a Path, interrupt: &'a Interrupt) -> Result<Self> {
        let nodes = (0..NODES).map(|_| None).collect();
        let mut cluster = Self { kasha, folder, interrupt, first: free_ports(3 * NODES + 1)?, nodes, proxy: None };
        for node in 0..NODES {
            cluster.start_node(node)?;
        }
        cluster.wait_until_whole()?;
        cluster.start_proxy()?;
        Ok(cluster)
    }

    /// Starts the proxy, and waits until it serves.
    pub(crate) fn start_proxy(&mut self) -> Result<()> {
        let mut proxy = self.command(&["proxy", "--address", &self.addresses_of_nodes()]);
        proxy.args(["--redis", &self.proxy().to_string()]);
        self.proxy = Some(Server::start(&mut proxy, &self.folder.join("proxy.log"))?);
        self.value("is-there").map(|_| ())
    }

    /// Ends the proxy by SIGKILL.
    pub(crate) fn kill_proxy(&mut self) {
        self.proxy = None;
    }

    /// Where drivers find the proxy.
    pub(crate) fn proxy(&self) -> SocketAddr {
        local(self.first + 3 * NODES)
    }

    /// Where drivers find the nodes.
    pub(crate) fn ports(&self) -> Vec<SocketAddr> {
        (0..NODES).map(|node| self.port(node)).collect()
    }

    fn port(&self, node: u16) -> SocketAddr {
        local(self.first + 2 * NODES + node)
    }

    fn member(&self, node: u16) -> SocketAddr {
        local(self.first + node)
    }

    fn node(&self, node: u16) -> SocketAddr {
        local(self.first + NODES + node)
    }

    fn addresses_of_nodes(&self) -> String {
        list((0..NODES).map(|node| self.node(node)))
    }

    /// The program, without settings of this process's environment.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.kasha);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("KASHA_")) {
            command.env_remove(name);
        }
        command.args(words);
        command
    }

    /// Starts a node. The first one begins the cluster.
    pub(crate) fn start_node(&mut self, node: u16) -> Result<()> {
        let number = node + 1;
        let mut server = self.command(&["server", "--node", &number.to_string(), "--memory-mib", "256"]);
        server.arg("--data").arg(self.folder.join(format!("node-{number}")));
        server.args(["--listen", &self.node(node).to_string(), "--control", &self.member(node).to_string()]);
        server.args(["--coordinator", &list((0..NODES).map(|node| self.member(node)))]);
        server.args(["--redis", &self.port(node).to_string()]);
        // The system ends it with this process.
        server.args(["--parent", &std::process::id().to_string()]);
        if node == 0 {
            server.args(["--host-coordinator", "--nodes", &NODES.to_string(), "--group", &NODES.to_string()]);
        }
        let log = self.folder.join(format!("node-{number}.log"));
        self.nodes[usize::from(node)] = Some(Server::start(&mut server, &log)?);
        Ok(())
    }

    /// Ends a node's process by SIGKILL.
    pub(crate) fn kill(&mut self, node: u16) {
        self.nodes[usize::from(node)] = None;
    }

    /// Waits until each shard has all its copies, so that the next node may be lost.
    pub(crate) fn wait_until_whole(&mut self) -> Result<()> {
        let interrupt = self.interrupt;
        interrupt.until(WHOLE_WITHIN, || self.is_whole()).context("the cluster is not whole")?;
        self.check()
    }

    /// Fails if a process has ended that nobody killed.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.nodes.iter_mut().chain([&mut self.proxy]).flatten().try_for_each(Server::check)
    }

    fn is_whole(&self) -> Result<()> {
        let output = self.command(&["status", "--json", "--address", &self.addresses_of_nodes()]).output()?;
        let status: Value = serde_json::from_slice(&output.stdout).context("no status")?;
        let alive = items(&status["nodes"]).filter(|node| node["alive"] == true).count();
        let ill = items(&status["shards"]).filter(|shard| shard["health"] != "healthy").count();
        let is_led = status["coordinator_reachable"] == true && items(&status["shards"]).count() > 0;
        ensure!(alive == usize::from(NODES) && ill == 0 && is_led, "{alive} nodes are alive, {ill} shards are ill");
        Ok(())
    }

    /// The value of a counter, through the proxy. A counter that is not there is 0.
    pub(crate) fn value(&self, key: &str) -> Result<u64> {
        self.interrupt.until(TOLD_WITHIN, || get(self.proxy(), key)).with_context(|| format!("no value of {key}"))
    }
}

/// Starts the distribution's own server, which keeps nothing on disk, and waits until it serves.
pub(crate) fn redis(folder: &Path, interrupt: &Interrupt) -> Result<(Server, SocketAddr)> {
    let address = local(free_ports(1)?);
    let mut command = Command::new("redis-server");
    command.args(["--port", &address.port().to_string(), "--bind", "127.0.0.1", "--save", ""]);
    let server = Server::start(command.current_dir(folder), &folder.join("redis.log"))?;
    interrupt.until(TOLD_WITHIN, || get(address, "is-there")).context("redis-server does not serve")?;
    Ok((server, address))
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn list(addresses: impl Iterator<Item = SocketAddr>) -> String {
    addresses.map(|address| address.to_string()).collect::<Vec<_>>().join(",")
}

/// Adjacent ports at which nobody listens. They are below those of outgoing connections, one of which could else be
/// given the port of a node that is away.
fn free_ports(count: u16) -> Result<u16> {
    const FIRST: u16 = 10_240;
    const END: u16 = 32_768;
    // Two runs side by side begin at different places.
    let begin = FIRST + u16::try_from(std::process::id() % 20_000).expect("below the end");
    let is_free = |port: u16| TcpListener::bind(local(port)).is_ok();
    let mut candidates = (begin..END - count).step_by(usize::from(count));
    candidates.find(|first| (*first..first + count).all(is_free)).context("no neighbouring ports are free")
}

/// Asks for a number.
fn get(address: SocketAddr, key: &str) -> Result<u64> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len())?;
    read_number(&mut BufReader::new(stream))
}

fn read_number(reply: &mut impl BufRead) -> Result<u64> {
    let mut line = String::new();
    reply.read_line(&mut line)?;
    let line = line.trim_end();
    match line.split_at_checked(1) {
        Some(("$", "-1")) => Ok(0),
        Some(("$", length)) => {
            let mut text = vec![0; length.parse::<usize>()?.min(64)];
            reply.read_exact(&mut text)?;
            Ok(std::str::from_utf8(&text)?.parse()?)
        }
        _ => bail!("instead of a value: {line}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_read() {
        let read = |text: &str| read_number(&mut text.as_bytes());
        assert_eq!(read("$2\r\n42\r\n").unwrap(), 42);
        assert_eq!(read("$-1\r\n").unwrap(), 0);
        for wrong in ["", "-UNKNOWN x\r\n", "$4\r\ntext\r\n", "$9\r\n1", "+OK\r\n"] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
