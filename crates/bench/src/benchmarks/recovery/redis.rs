//! How long programs of Redis wait when a node is killed: at a proxy, and at the port of another node.
//!
//! Three servers as users run them, and a proxy. Clients count, one INCR after the other, on keys of all shards. A node that does not host the
//! coordinator is killed with `kill -9`. Whoever then waits much longer than before wanted a shard of that node; its pause is the client's view:
//! from one number that it is told to the next one. Every kill is a cluster of its own.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use kasha_runtime::{Clock, random_u64};
use kasha_types::limits::NODE_LEASE;

use super::NODES;
use crate::benchmarks::redis::load::takes_updates;
use crate::children::{ends_with_this, program_beside};
use crate::harness::Run;
use crate::ports::free_ports;
use crate::rivals::servers::Servers;
use crate::section::{Cell, Section, Table};

const KILLS: usize = 5;

/// Clients at each place: so many that each shard has some.
const CLIENTS: usize = 12;

/// Before the kill everything runs steadily; after it, everybody must have been told something.
const QUIET: Duration = Duration::from_secs(2);
const AFTER: Duration = Duration::from_secs(4);

/// Between two tries of a client that was told an error.
const BETWEEN: Duration = Duration::from_millis(5);

/// Whoever waits for less than this did not wait for another primary: none takes over before half a lease has passed.
const PAUSE_MIN: Duration = NODE_LEASE.checked_div(2).expect("not by 0");

/// What the clients of one place saw of all kills.
#[derive(Debug, Default)]
struct View {
    /// Pauses of clients that wanted a shard of the node.
    pauses: Vec<Duration>,
    /// Errors that they were told instead of a number.
    errors: u64,
}

impl View {
    fn median(&mut self) -> Option<Duration> {
        self.pauses.sort_unstable();
        self.pauses.get(self.pauses.len() / 2).copied()
    }
}

/// Kills nodes, and adds what was seen to the section.
pub(super) fn measure(run: &Run<'_>, section: &mut Section) -> anyhow::Result<()> {
    const PLACES: [(&str, &str); 2] = [("proxy", "the proxy"), ("node", "another node's port")];
    let mut views = PLACES.map(|_| View::default());
    for number in 0..KILLS {
        run.say(&format!("clients of Redis, kill {} of {KILLS}", number + 1));
        kill(run, &run.folder(&format!("redis-{number}")), &mut views)?;
    }
    let columns = ["clients at", "pauses", "median s", "longest s", "errors told"];
    let mut table = Table::new("Clients of Redis, one INCR after the other, when a node is killed", &columns);
    for ((key, name), view) in PLACES.into_iter().zip(&mut views) {
        let median =
            view.median().with_context(|| format!("nobody at {name} wanted a shard of a node that was killed"))?;
        let longest = *view.pauses.last().expect("there is a median");
        table.row([
            Cell::from(name),
            Cell::from(view.pauses.len() as u64),
            Cell::Number(median.as_secs_f64(), 2),
            Cell::Number(longest.as_secs_f64(), 2),
            Cell::from(view.errors),
        ]);
        section.ratio(format!("recovery.redis.{key}.median_s"), median.as_secs_f64());
        section.detail(format!("recovery.redis.{key}.longest_s"), longest.as_secs_f64());
    }
    section.tables.push(table);
    Ok(())
}

/// Starts a cluster, lets clients count, and kills its last node.
fn kill(run: &Run<'_>, folder: &Path, views: &mut [View; 2]) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let kasha = program_beside(&run.options.exe)?;
    let ports = free_ports(2 + 2 * usize::from(NODES), random_u64())?;
    let (coordinator, proxy, own) = (ports[0], ports[1], &ports[2..]);
    let mut nodes = Vec::new();
    for (index, at) in own.as_chunks::<2>().0.iter().enumerate() {
        let logs = folder.join(format!("node-{}", index + 1));
        std::fs::create_dir_all(&logs).with_context(|| format!("cannot create {}", logs.display()))?;
        let mut server = Servers::new("kasha-server", &logs);
        spawn(&mut server, node(&kasha, folder, index + 1, coordinator, *at))?;
        nodes.push((server, at[1]));
    }
    let mut command = Command::new(&kasha);
    command.args(["proxy", "--address", &own[0].to_string(), "--redis", &proxy.to_string(), "--redis-spread"]);
    let mut beside = Servers::new("kasha-proxy", folder);
    spawn(&mut beside, command)?;
    beside.wait(|| takes_updates(proxy))?;
    let at_node = nodes[0].1;
    nodes[0].0.wait(|| takes_updates(at_node))?;

    let (is_over, killed) = (AtomicBool::new(false), nodes.pop().expect("three nodes"));
    std::thread::scope(|scope| {
        let count = |at, place, number| count(at, &format!("{place}-{number}"), &is_over);
        let clients = [(proxy, "proxy"), (at_node, "node")].map(|(at, place)| {
            let clients = (0..CLIENTS).map(|number| scope.spawn(move || count(at, place, number)));
            clients.collect::<Vec<_>>()
        });
        std::thread::sleep(QUIET);
        drop(killed);
        std::thread::sleep(AFTER);
        is_over.store(true, Ordering::Relaxed);
        for (clients, view) in clients.into_iter().zip(views) {
            for client in clients {
                let (pause, errors) = client.join().expect("it returns what goes wrong")?;
                view.pauses.extend((pause >= PAUSE_MIN).then_some(pause));
                view.errors += errors;
            }
        }
        Ok(())
    })
}

fn spawn(servers: &mut Servers, mut command: Command) -> anyhow::Result<()> {
    ends_with_this(&mut command);
    servers.spawn_with(command, |mut command| command.spawn())
}

/// A server, which listens at these addresses for Kasha's own protocol and for Redis'. The first one begins the cluster.
fn node(kasha: &Path, folder: &Path, number: usize, coordinator: SocketAddr, at: [SocketAddr; 2]) -> Command {
    let mut command = Command::new(kasha);
    command.arg("server").arg("--data").arg(folder.join(format!("data-{number}")));
    command.args(["--node", &number.to_string(), "--nodes", &NODES.to_string()]);
    command.args(["--shards", &NODES.to_string(), "--faults", "1", "--redis-spread", "--spin", "0"]);
    for (flag, at) in ["--coordinator", "--listen", "--redis"].into_iter().zip([coordinator, at[0], at[1]]) {
        command.args([flag, &at.to_string()]);
    }
    if number == 1 {
        command.arg("--host-coordinator");
    }
    command
}

/// Counts a key up until it is over. Returns the longest time from one number to the next, and how many errors were told instead.
fn count(at: SocketAddr, key: &str, is_over: &AtomicBool) -> anyhow::Result<(Duration, u64)> {
    let mut stream = TcpStream::connect(at).with_context(|| format!("cannot connect to {at}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(super::PATIENCE))?;
    let mut replies = BufReader::new(stream.try_clone()?);
    let request = format!("*2\r\n$4\r\nINCR\r\n${}\r\n{key}\r\n", key.len());
    let (mut longest, mut errors, mut last, mut line) = (Duration::ZERO, 0, None, String::new());
    while !is_over.load(Ordering::Relaxed) {
        stream.write_all(request.as_bytes())?;
        line.clear();
        replies.read_line(&mut line)?;
        if line.starts_with(':') {
            let now = Clock::now();
            longest = longest.max(last.map_or(Duration::ZERO, |last| now.since(last)));
            last = Some(now);
        } else {
            ensure!(line.starts_with('-'), "INCR was told {line:?}");
            errors += 1;
            std::thread::sleep(BETWEEN);
        }
    }
    Ok((longest, errors))
}
