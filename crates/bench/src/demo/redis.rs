//! Drivers of Redis count through `kasha proxy` while nodes are killed, one after the other. In the end each counter must hold what its driver
//! was told (R10.1, R10.2). The programs are those that `cargo xtask drivers` runs (tests/drivers/README.md), with the drivers' default options.

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use kasha_runtime::{random_u64, say};
use kasha_types::NodeId;
use serde_json::Value as Json;

use super::DemoOptions;
use super::leader::MEMBERS;
use super::show::line;
use crate::benchmarks::redis::load::{ask, takes_updates};
use crate::children::{Children, ClusterSpec, ends_with_this, program_beside};
use crate::limits;
use crate::ports::free_ports;
use crate::rivals::servers::Servers;

/// Nodes, and as many shards.
const NODES: u16 = 3;

/// Connections of each driver.
const CONNECTIONS: usize = 4;

/// A node that is away for longer than its lease is replaced.
const AWAY: Duration = Duration::from_millis(1500);

/// Before and after each kill.
const QUIET: Duration = Duration::from_secs(1);

/// The counters' names begin so.
const PREFIX: &str = "demo";

/// A driver's program, as the project tests it.
#[derive(Clone, Copy, Debug)]
struct Driver {
    name: &'static str,
    /// The files of its folder.
    files: [(&'static str, &'static str); 2],
    /// What installs it there, and what runs it.
    install: &'static [&'static [&'static str]],
    run: [&'static str; 2],
}

const DRIVERS: [Driver; 2] = [
    Driver {
        name: "redis-py",
        files: [
            ("driver.py", include_str!("../../../../tests/drivers/redis-py/driver.py")),
            ("requirements.txt", include_str!("../../../../tests/drivers/redis-py/requirements.txt")),
        ],
        install: &[
            &["python3", "-m", "venv", "."],
            &["bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt"],
        ],
        run: ["bin/python", "driver.py"],
    },
    Driver {
        name: "ioredis",
        files: [
            ("driver.js", include_str!("../../../../tests/drivers/ioredis/driver.js")),
            ("package.json", include_str!("../../../../tests/drivers/ioredis/package.json")),
        ],
        install: &[&["npm", "install", "--silent", "--no-package-lock", "--no-audit", "--no-fund"]],
        run: ["node", "driver.js"],
    },
];

/// A command of these words in this folder. What lies there is named from there.
fn command(folder: &Path, words: &[&str]) -> Command {
    let program = folder.join(words[0]);
    let mut command = if program.is_file() { Command::new(program) } else { Command::new(words[0]) };
    command.args(&words[1..]).current_dir(folder).stdin(Stdio::null());
    command
}

impl Driver {
    /// Installs it below this folder.
    fn install(self, folder: &Path) -> anyhow::Result<PathBuf> {
        let folder = folder.join(self.name);
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let folder = folder.canonicalize().context("a folder that is there has a path")?;
        for (name, text) in self.files {
            fs::write(folder.join(name), text).with_context(|| format!("cannot write {name}"))?;
        }
        for words in self.install {
            let done = command(&folder, words).output().with_context(|| format!("cannot start {}", words[0]))?;
            let errors = String::from_utf8_lossy(&done.stderr);
            ensure!(done.status.success(), "`{}` fails: {}", words.join(" "), errors.trim_end());
        }
        Ok(folder)
    }
}

/// A driver's program, counting.
#[derive(Debug)]
struct Program {
    name: &'static str,
    process: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Program {
    /// Starts it, and waits until its connections are there.
    fn start(driver: Driver, folder: &Path, at: SocketAddr) -> anyhow::Result<Self> {
        let mut command = command(folder, &driver.run);
        let (host, port, connections) = (at.ip().to_string(), at.port().to_string(), CONNECTIONS.to_string());
        command.args(["incr", &host, &port, &connections, "default"]);
        let log = fs::File::create(folder.join("stderr.log")).context("cannot create a log file")?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        ends_with_this(&mut command);
        let mut process = command.spawn().with_context(|| format!("cannot start {}", driver.run[0]))?;
        let stdin = process.stdin.take().expect("it is piped");
        let stdout = BufReader::new(process.stdout.take().expect("it is piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let program = Self { name: driver.name, process, stdin, lines };
        program.hear()?;
        Ok(program)
    }

    fn tell(&mut self, what: &str) -> anyhow::Result<()> {
        writeln!(self.stdin, "{what}").with_context(|| format!("{} has ended", self.name))
    }

    fn hear(&self) -> anyhow::Result<Json> {
        let line = self.lines.recv_timeout(limits::DRAIN);
        let line = line.with_context(|| format!("{} says nothing; see its stderr.log", self.name))?;
        serde_json::from_str(&line).with_context(|| format!("{} says {line:?}", self.name))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself. In both cases it is gone after the wait.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What drivers were told, and what the counters hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    counters: u64,
    acknowledged: u64,
    /// `-UNKNOWN`, or no reply: each may count or not.
    unknown: u64,
    refused: u64,
    /// Numbers that came back and cannot be right.
    astray: u64,
    held: u64,
    lost: u64,
    doubled: u64,
}

impl Sum {
    /// Adds what was told of one counter by several programs, which holds this.
    fn add(&mut self, told: &[&Json], held: u64) {
        let count = |field: &str| told.iter().filter_map(|tally| tally[field].as_u64()).sum::<u64>();
        let (acknowledged, unknown) = (count("acknowledged"), count("unknown") + count("gave_up"));
        self.counters += 1;
        self.acknowledged += acknowledged;
        self.unknown += unknown;
        self.refused += count("refused");
        self.astray += count("astray");
        self.held += held;
        self.lost += acknowledged.saturating_sub(held);
        self.doubled += held.saturating_sub(acknowledged + unknown);
    }

    /// Counters of which nothing was acknowledged show nothing.
    fn is_right(self) -> bool {
        self.acknowledged > 0 && self.lost + self.doubled + self.astray == 0
    }

    fn show(self) {
        say!("");
        line("INCR acknowledged", self.acknowledged);
        line("  outcome never learned", self.unknown);
        line("  certainly not executed", self.refused);
        line("counters", self.counters);
        line("  their sum", self.held);
        line("  acknowledged INCR that do not count", self.lost);
        line("  INCR that count twice", self.doubled);
        line("  numbers that cannot be right", self.astray);
        say!("");
    }
}

/// Compares each counter with what was told of it.
fn judge(at: SocketAddr, told: &[(&'static str, Json)]) -> anyhow::Result<Sum> {
    let held = |key: String| -> anyhow::Result<u64> {
        let value = ask(at, &[b"GET", key.as_bytes()]).with_context(|| format!("the counter {key}"))?;
        value.parse().with_context(|| format!("the counter {key} holds {value:?}"))
    };
    let mut sum = Sum::default();
    for (name, said) in told {
        let own = said["own"].as_array().with_context(|| format!("{name} says nothing of its counters"))?;
        ensure!(own.len() == CONNECTIONS, "{name}: {} connections counted, not {CONNECTIONS}", own.len());
        for (number, tally) in own.iter().enumerate() {
            sum.add(&[tally], held(format!("{PREFIX}:{name}:{number}"))?);
        }
    }
    let shared: Vec<&Json> = told.iter().map(|(_, said)| &said["shared"]).collect();
    sum.add(&shared, held(format!("{PREFIX}:shared"))?);
    Ok(sum)
}

/// Shows that every acknowledged INCR counts, and none twice. Returns whether that is so.
pub(super) fn demo(options: &DemoOptions) -> anyhow::Result<bool> {
    say!("Installing drivers:");
    let mut installed = Vec::new();
    for driver in DRIVERS {
        match driver.install(&options.data) {
            Ok(folder) => installed.push((driver, folder)),
            Err(why) => say!("  {} is left out: {why:#}", driver.name),
        }
    }
    if installed.is_empty() {
        bail!("no driver could be installed: python3 with venv, or node and npm are needed, and their registries");
    }
    let sum = run(options, &installed).with_context(|| format!("the logs are in {}", options.data.display()))?;
    sum.show();
    if sum.is_right() {
        say!("{} INCR acknowledged, nothing lost, nothing counted twice.", sum.acknowledged);
    } else {
        say!("WRONG: see the figures above. Keep {} and report it.", options.data.display());
    }
    Ok(sum.is_right())
}

fn run(options: &DemoOptions, installed: &[(Driver, PathBuf)]) -> anyhow::Result<Sum> {
    let names: Vec<&str> = installed.iter().map(|(driver, _)| driver.name).collect();
    say!(
        "{NODES} processes, {NODES} shards, each with a backup and a witness. {CONNECTIONS} connections of each driver ({}) count through the proxy.\n",
        names.join(", ")
    );
    let spec = ClusterSpec::new(options.exe.clone(), options.data.join("cluster"), 1);
    let mut nodes = Children::start(ClusterSpec { nodes: NODES, shards: NODES, members: MEMBERS.into(), ..spec })?;
    let at = free_ports(1, random_u64())?[0];
    let seeds: Vec<String> = nodes.seeds().iter().map(SocketAddr::to_string).collect();
    let mut proxy = Servers::new("kasha-proxy", &options.data);
    let mut command = Command::new(program_beside(&options.exe)?);
    command.args(["proxy", "--address", &seeds.join(","), "--redis", &at.to_string()]);
    ends_with_this(&mut command);
    proxy.spawn_with(command, |mut command| command.spawn())?;
    proxy.wait(|| takes_updates(at))?;
    let start = |(driver, folder): &(Driver, PathBuf)| Program::start(*driver, folder, at);
    let mut programs: Vec<Program> = installed.iter().map(start).collect::<anyhow::Result<_>>()?;
    programs.iter_mut().try_for_each(|program| program.tell(&format!("count {PREFIX}")))?;
    strike(&mut nodes)?;
    programs.iter_mut().try_for_each(|program| program.tell("stop"))?;
    let told: anyhow::Result<Vec<_>> = programs.iter().map(|program| Ok((program.name, program.hear()?))).collect();
    judge(at, &told?)
}

/// Kills each node in turn, for longer than its lease.
fn strike(nodes: &mut Children) -> anyhow::Result<()> {
    std::thread::sleep(QUIET);
    for node in (1..=NODES).map(NodeId) {
        nodes.kill(node)?;
        say!("  kill -9 {node}; it is started again after {AWAY:?}");
        std::thread::sleep(AWAY);
        nodes.heal(limits::REPAIR)?;
        std::thread::sleep(QUIET);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sum(told: &[Json], held: u64) -> Sum {
        let mut sum = Sum::default();
        sum.add(&told.iter().collect::<Vec<_>>(), held);
        sum
    }

    #[test]
    fn a_counter_is_exact_if_nothing_is_unknown() {
        let told = [json!({ "acknowledged": 5, "refused": 3 }), json!({ "acknowledged": 2 })];
        assert!(sum(&told, 7).is_right());
        assert_eq!((sum(&told, 6).lost, sum(&told, 8).doubled), (1, 1));
        assert!(!sum(&told, 6).is_right() && !sum(&told, 8).is_right());
    }

    #[test]
    fn what_is_unknown_may_count_or_not() {
        let told = [json!({ "acknowledged": 5, "unknown": 1, "gave_up": 1 })];
        assert!((5..=7).all(|held| sum(&told, held).is_right()));
        assert!(!sum(&told, 4).is_right() && !sum(&told, 8).is_right());
    }

    #[test]
    fn what_shows_nothing_is_not_right() {
        assert!(!sum(&[json!({})], 0).is_right());
        assert!(!sum(&[json!({ "acknowledged": 1, "astray": 1 })], 1).is_right());
    }
}
