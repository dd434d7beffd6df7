//! `kasha start --processes`: the cluster of `kasha start`, with each node in a process of its own, so that one of them can be
//! killed. A node whose process ends is started again after a while: node 1 at once, if the coordinator has no other member. When this process ends, however that happens, the system ends the others.

use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kasha_runtime::say;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::admin::orders;
use crate::folder::cluster_in;
use crate::forming::{Formed, wait_until_serving};
use crate::start::tell_ports;
use crate::stopping::StopRequest;

/// A killed node stays away for so long, that one can see what its cluster does meanwhile.
const STAYS_AWAY: Duration = Duration::from_secs(5);
/// Without the coordinator nothing fails over, if it is alone.
const COORDINATOR_STAYS_AWAY: Duration = Duration::from_millis(100);
/// Between two looks at the processes.
const LOOKS_EVERY: Duration = Duration::from_millis(50);
/// A process that was asked to stop needs less, and is killed then.
const STOPS_WITHIN: Duration = Duration::from_secs(8);

/// How to start one node.
#[derive(Debug)]
pub struct Spec {
    pub node: u16,
    /// The words behind `kasha server`.
    pub words: Vec<String>,
    pub addresses: Vec<SocketAddr>,
    /// Where it speaks the Redis protocol.
    pub redis: Option<SocketAddr>,
    /// The password there, which no command line shows.
    pub password: Option<String>,
}

/// The members of the coordinator's group.
#[derive(Debug)]
pub struct Whose {
    /// Where they listen.
    pub members: Vec<SocketAddr>,
    /// The nodes whose members are gone with their folders.
    pub lost: Vec<u16>,
}

/// A node, and its process.
#[derive(Debug)]
struct Node {
    spec: Spec,
    process: Process,
    stays_away: Duration,
}

#[derive(Debug)]
enum Process {
    Runs(Child),
    /// It has ended, and is started again then.
    Ended(Instant),
}

impl Spec {
    fn start(&self) -> Result<Child> {
        let own = std::env::current_exe().context("this program's own file is gone: build it again (K0408)")?;
        let mut command = Command::new(own);
        // What the environment says to this process is in the words already.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("KASHA_") && name != "KASHA_LOG" {
                command.env_remove(name);
            }
        }
        if let Some(password) = &self.password {
            command.env("KASHA_REDIS_PASSWORD", password);
        }
        command.arg("server").args(&self.words).args(["--parent", &std::process::id().to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().context("cannot start a process: raise this user's limit of processes (ulimit -u) (K0408)")
    }
}

/// Ends this process when its parent ends. The parent may have ended already.
pub fn end_with(parent: u32) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let is_there =
        rustix::process::getppid().is_some_and(|pid| u32::try_from(pid.as_raw_nonzero().get()) == Ok(parent));
    if !is_there {
        bail!("the process that started this one has ended (K0403)");
    }
    Ok(())
}

/// Starts all nodes, and looks after them until it is told to stop, or one of them fails.
pub fn run(specs: Vec<Spec>, Whose { members, lost }: &Whose, flag: &str, data: &Path) -> Result<()> {
    let asked = StopRequest::listen()?;
    let mut nodes = Vec::new();
    for spec in specs {
        let process = Process::Runs(spec.start()?);
        let is_coordinator = spec.node == 1 && members.len() == 1;
        let stays_away = if is_coordinator { COORDINATOR_STAYS_AWAY } else { STAYS_AWAY };
        nodes.push(Node { spec, process, stays_away });
    }
    let of_cluster = loop {
        if asked.came() {
            return stop(nodes);
        }
        if let Some(cluster) = cluster_in(data)? {
            break cluster;
        }
        if let Err(error) = nodes.iter_mut().try_for_each(|node| node.look().map(|_| ())) {
            let _ = stop(nodes);
            return Err(error);
        }
        std::thread::sleep(LOOKS_EVERY);
    };
    let formed = wait_until_serving(of_cluster, members, &asked, || {
        nodes.iter_mut().try_for_each(|node| node.look().map(|_| ()))
    });
    match formed {
        Ok(Formed::Serving) => {
            orders::of_a_start(of_cluster, members.clone(), lost);
            tell_ready(&nodes, members[0], flag, data);
        }
        Ok(Formed::AskedToStop) => {}
        Err(error) => {
            let _ = stop(nodes);
            return Err(error);
        }
    }
    loop {
        if asked.came() {
            return stop(nodes);
        }
        let looked: Result<Vec<_>> = nodes.iter_mut().map(Node::look).collect();
        match looked {
            Ok(news) => news.into_iter().flatten().for_each(|news| say!("{news}")),
            Err(error) => {
                let _ = stop(nodes);
                return Err(error);
            }
        }
        std::thread::sleep(LOOKS_EVERY);
    }
}

fn tell_ready(nodes: &[Node], coordinator: SocketAddr, flag: &str, data: &Path) {
    say!("ready");
    say!("  coordinator  {coordinator}");
    for Node { spec, process, .. } in nodes {
        let listen: Vec<_> = spec.addresses.iter().map(ToString::to_string).collect();
        let process = match process {
            Process::Runs(child) => format!("process {}", child.id()),
            Process::Ended(_) => "is started again".to_owned(),
        };
        say!("  node-{:<7} {}  {process}", spec.node, listen.join(" "));
    }
    let ports: Vec<_> = nodes.iter().filter_map(|node| node.spec.redis).collect();
    tell_ports(&ports);
    say!("\nTry, in another terminal:\n  kasha cli{flag} put greeting hello\n  kasha status{flag}");
    if let Some(Node { spec, process: Process::Runs(child), .. }) = nodes.get(1) {
        say!("Kill node-{}, and see that nothing is lost:", spec.node);
        say!("  kill -9 {}; kasha status{flag} --wait healthy; kasha cli{flag} get greeting", child.id());
    }
    say!("Ctrl-C stops the cluster; its data stays in {}.", data.display());
}

impl Node {
    /// Starts the node again if it is time. Returns what there is to tell.
    ///
    /// # Errors
    /// If its process has ended by itself: it has said why.
    fn look(&mut self) -> Result<Option<String>> {
        let node = self.spec.node;
        match &mut self.process {
            Process::Runs(child) => {
                let Some(status) = child.try_wait()? else { return Ok(None) };
                let away = self.stays_away;
                let how = ended(status).with_context(|| format!("node-{node} ended: its error is above"))?;
                let news = format!("node-{node} (process {}) {how}; it is started again in {away:?}", child.id());
                self.process = Process::Ended(Instant::now() + away);
                Ok(Some(news))
            }
            Process::Ended(again) if Instant::now() >= *again => {
                let child = self.spec.start()?;
                let news = format!("node-{node} is started again: process {}", child.id());
                self.process = Process::Runs(child);
                Ok(Some(news))
            }
            Process::Ended(_) => Ok(None),
        }
    }
}

/// How somebody ended a process; `None`: it ended by itself, with an error.
fn ended(status: ExitStatus) -> Option<String> {
    const ASKED: [i32; 3] = [9, SIGTERM, SIGINT];
    match (status.code(), status.signal()) {
        (Some(0), _) => Some("was stopped".to_owned()),
        (_, Some(signal)) if ASKED.contains(&signal) => Some(format!("was killed (signal {signal})")),
        _ => None,
    }
}

/// Stops all nodes in good order, at once: they need one another for that.
fn stop(nodes: Vec<Node>) -> Result<()> {
    let mut running: Vec<(u16, Child)> = nodes
        .into_iter()
        .filter_map(|node| match node.process {
            Process::Runs(child) => Some((node.spec.node, child)),
            Process::Ended(_) => None,
        })
        .collect();
    for (_, child) in &running {
        let _ = kill_process(Pid::from_child(child), Signal::TERM);
    }
    let until = Instant::now() + STOPS_WITHIN;
    let mut failed = None;
    for (node, child) in &mut running {
        loop {
            match child.try_wait()? {
                // One that has just been started does not hear the signal yet, and ends by it.
                Some(status) if status.success() || status.signal() == Some(SIGTERM) => break,
                Some(status) => {
                    failed = Some(format!("node-{node} did not stop in good order ({status}): its error is above"));
                    break;
                }
                None if Instant::now() >= until => {
                    child.kill()?;
                    child.wait()?;
                    failed = Some(format!("node-{node} did not stop within {STOPS_WITHIN:?}, and was killed (K0409)"));
                    break;
                }
                None => std::thread::sleep(LOOKS_EVERY),
            }
        }
    }
    match failed {
        None => Ok(()),
        Some(failed) => bail!("{failed}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_killed_is_started_again_and_who_failed_is_not() {
        let by_signal = ExitStatus::from_raw(9);
        assert_eq!(ended(by_signal).as_deref(), Some("was killed (signal 9)"));
        assert_eq!(ended(ExitStatus::from_raw(0)).as_deref(), Some("was stopped"));
        assert_eq!(ended(ExitStatus::from_raw(1 << 8)), None, "an error");
        assert_eq!(ended(ExitStatus::from_raw(6)), None, "a panic");
    }
}
