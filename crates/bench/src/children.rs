//! A cluster of child processes on this machine.
//!
//! Each node is one `kasha-lab internal-node`. The coordinator's only member is in the process of node 1, unless the
//! options name the nodes whose processes host a group of them. Nodes can be killed, stopped, continued
//! and restarted. They end with this process, however it ends: they are killed when [`Children`] is dropped, and the
//! kernel kills them when the thread that started them dies. So the thread that starts or restarts a child must live as
//! long as the child is needed.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use kasha_node::Baseline;
use kasha_runtime::{Clock, random_u64};
use kasha_types::NodeId;
use kasha_wire::{Configuration, Durability};
use rustix::process::{Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal};

use crate::client::{Connect, is_whole};
use crate::limits;
use crate::ports::free_ports;

/// The node that hosts the coordinator, where it is alone: benchmarks and the demo do not disturb it.
pub(crate) const COORDINATOR: NodeId = NodeId(1);

/// The options of a cluster of children.
#[derive(Clone, Debug)]
pub struct ClusterSpec {
    /// The `kasha-lab` binary.
    pub exe: PathBuf,
    /// Folder for data and logs; created if it is missing.
    pub data: PathBuf,
    /// Number of processes.
    pub nodes: u16,
    /// Number of shards.
    pub shards: u16,
    /// Event loops of each process.
    pub cores: u8,
    /// `f`, the number of crashes to survive.
    pub faults: u8,
    /// What "hold" means (R5.3).
    pub durability: Durability,
    /// What is compared with.
    pub baseline: Baseline,
    /// Injected delay of each received frame.
    pub link_delay: Duration,
    /// Of a thousand received frames, how many are lost.
    pub drop_per_mille: u16,
    /// Of a thousand received frames, how many come twice.
    pub duplicate_per_mille: u16,
    /// The seed that decides which frames these are.
    pub fault_seed: u64,
    /// A node's lease: how soon a silent node is replaced.
    pub lease: Duration,
    /// Memory for the log of each replica, in MiB; `None`: the default of an internal node.
    pub memory_mib: Option<u64>,
    /// Unsynced bytes that begin a sync although nobody waits; `None`: the default.
    pub sync_bytes: Option<u64>,
    /// The nodes whose processes host the members of the coordinator's group. The first one begins the cluster. If its number is above
    /// `nodes`, its process hosts nothing else.
    pub members: Vec<NodeId>,
}

impl ClusterSpec {
    /// One shard, one core, `faults + 1` nodes (witnesses live with the backups), no injected faults or delays.
    #[must_use]
    pub fn new(exe: PathBuf, data: PathBuf, faults: u8) -> Self {
        Self {
            exe,
            data,
            nodes: u16::from(faults) + 1,
            shards: 1,
            cores: 1,
            faults,
            durability: Durability::Replicated,
            baseline: Baseline::None,
            link_delay: Duration::ZERO,
            drop_per_mille: 0,
            duplicate_per_mille: 0,
            fault_seed: 0,
            lease: kasha_types::limits::NODE_LEASE,
            memory_mib: None,
            sync_bytes: None,
            members: vec![COORDINATOR],
        }
    }

    fn node_folder(&self, node: NodeId) -> PathBuf {
        self.data.join(format!("node-{}", node.0))
    }

    fn log_file(&self, node: NodeId) -> PathBuf {
        self.data.join(format!("node-{}.log", node.0))
    }

    /// The arguments of `node`'s process, which listens at `listen`. `controls`: where the members of the coordinator's group listen,
    /// in their order.
    #[must_use]
    pub fn arguments(&self, node: NodeId, listen: &[SocketAddr], controls: &[SocketAddr]) -> Vec<String> {
        let mut arguments = vec!["internal-node".to_owned()];
        let mut flag = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
        flag("node", node.0.to_string());
        flag("nodes", self.nodes.to_string());
        flag("shards", self.shards.to_string());
        flag("faults", self.faults.to_string());
        flag("data", self.node_folder(node).display().to_string());
        if !listen.is_empty() {
            flag("listen", joined(listen));
        }
        flag("coordinator", joined(controls));
        flag("baseline", self.baseline.name().to_owned());
        let durability = match self.durability {
            Durability::Replicated => "replicated",
            Durability::Fsync => "fsync",
        };
        flag("durability", durability.to_owned());
        flag("link-delay", microseconds(self.link_delay));
        flag("drop-per-mille", self.drop_per_mille.to_string());
        flag("duplicate-per-mille", self.duplicate_per_mille.to_string());
        flag("fault-seed", self.fault_seed.wrapping_add(u64::from(node.0)).to_string());
        flag("lease", microseconds(self.lease));
        if let Some(mebibytes) = self.memory_mib {
            flag("memory-mib", mebibytes.to_string());
        }
        if let Some(bytes) = self.sync_bytes {
            flag("sync-bytes", bytes.to_string());
        }
        if let Some(control) = self.members.iter().zip(controls).find_map(|(&of, at)| (of == node).then_some(at)) {
            flag("control", control.to_string());
        }
        if self.members.first() == Some(&node) {
            flag("group", self.members.len().to_string());
            arguments.push("--host-coordinator".to_owned());
        }
        arguments
    }
}

fn joined(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",")
}

fn microseconds(duration: Duration) -> String {
    format!("{}us", duration.as_micros())
}

/// A node and its process, if it runs.
#[derive(Debug)]
struct Slot {
    node: NodeId,
    listen: Vec<SocketAddr>,
    process: Option<Child>,
}

/// A running cluster.
#[derive(Debug)]
pub struct Children {
    spec: ClusterSpec,
    /// Where the members of the coordinator's group listen.
    controls: Vec<SocketAddr>,
    slots: Vec<Slot>,
}

impl Children {
    /// Starts a cluster and waits until all its shards serve with all their members and witnesses.
    ///
    /// # Errors
    /// If the binary cannot be started, a child ends, or the cluster does not serve in time. The error has the last
    /// lines of the child's log.
    pub fn start(spec: ClusterSpec) -> anyhow::Result<Self> {
        ensure!(spec.nodes > u16::from(spec.faults), "{} faults need {} nodes", spec.faults, spec.faults + 1);
        ensure!(spec.cores > 0 && spec.shards > 0, "a cluster has at least one shard, and a node one core");
        let folder = spec.data.display().to_string();
        fs::create_dir_all(&spec.data).with_context(|| format!("cannot create the folder {folder}"))?;
        let is_node = |member: &NodeId| (1..=spec.nodes).contains(&member.0);
        let first = *spec.members.first().context("a cluster has a coordinator")?;
        ensure!(spec.members[1..].iter().all(is_node), "only the first member may have a process of its own");
        let (cores, nodes) = (usize::from(spec.cores), usize::from(spec.nodes));
        let mut ports = free_ports(nodes * cores + spec.members.len(), random_u64())?;
        let controls = ports.split_off(nodes * cores);
        let slot = |(node, listen): (NodeId, &[SocketAddr])| Slot { node, listen: listen.to_vec(), process: None };
        let mut slots: Vec<Slot> = (1..=spec.nodes).map(NodeId).zip(ports.chunks(cores)).map(slot).collect();
        if !is_node(&first) {
            slots.insert(0, slot((first, &[])));
        }
        let mut children = Self { spec, controls, slots };
        for index in 0..children.slots.len() {
            children.spawn(index)?;
        }
        children.wait_until_whole(limits::START)?;
        Ok(children)
    }

    /// The options that the cluster was started with.
    #[must_use]
    pub fn spec(&self) -> &ClusterSpec {
        &self.spec
    }

    /// Addresses for clients: each node's first core.
    #[must_use]
    pub fn seeds(&self) -> Vec<SocketAddr> {
        self.slots.iter().filter_map(|slot| slot.listen.first().copied()).collect()
    }

    /// The members of the coordinator's group whose processes run: their nodes, and where they listen.
    pub(crate) fn members(&self) -> Vec<(NodeId, SocketAddr)> {
        let runs = |node| self.slots.iter().any(|slot| slot.node == node && slot.process.is_some());
        let members = self.spec.members.iter().copied().zip(self.controls.iter().copied());
        members.filter(|(node, _)| runs(*node)).collect()
    }

    /// Kills a node's process (`kill -9`) and waits for its end.
    ///
    /// # Errors
    /// If there is no such process.
    pub fn kill(&mut self, node: NodeId) -> anyhow::Result<()> {
        let slot = self.slot(node)?;
        let mut child = slot.process.take().with_context(|| format!("{node} does not run"))?;
        child.kill().with_context(|| format!("cannot kill {node}"))?;
        child.wait().with_context(|| format!("cannot wait for the end of {node}"))?;
        Ok(())
    }

    /// Starts a killed node again, with its data folder and addresses.
    ///
    /// # Errors
    /// If it runs, or cannot be started.
    pub fn restart(&mut self, node: NodeId) -> anyhow::Result<()> {
        let index = self.index(node)?;
        ensure!(self.slots[index].process.is_none(), "{node} runs; kill it first");
        self.spawn(index)
    }

    /// Starts all killed nodes again and waits until all shards serve with all their members and witnesses.
    ///
    /// # Errors
    /// If a child ends, or the cluster is not whole in time.
    pub(crate) fn heal(&mut self, patience: Duration) -> anyhow::Result<Configuration> {
        let killed = (0..self.slots.len()).filter(|&index| self.slots[index].process.is_none());
        killed.collect::<Vec<_>>().into_iter().try_for_each(|index| self.spawn(index))?;
        self.wait_until_whole(patience)
    }

    /// Suspends a node's process, which does not notice it.
    ///
    /// # Errors
    /// If there is no such process.
    pub fn stop(&mut self, node: NodeId) -> anyhow::Result<()> {
        self.signal(node, Signal::STOP)
    }

    /// Lets a suspended process go on.
    ///
    /// # Errors
    /// If there is no such process.
    pub fn cont(&mut self, node: NodeId) -> anyhow::Result<()> {
        self.signal(node, Signal::CONT)
    }

    fn signal(&mut self, node: NodeId, signal: Signal) -> anyhow::Result<()> {
        let child = self.slot(node)?.process.as_ref().with_context(|| format!("{node} does not run"))?;
        kill_process(Pid::from_child(child), signal).with_context(|| format!("cannot send {signal:?} to {node}"))
    }

    /// Checks that every child that was started and not killed still runs.
    ///
    /// # Errors
    /// How the first child ended, with the last lines of its log.
    pub fn check(&mut self) -> anyhow::Result<()> {
        for slot in &mut self.slots {
            let Some(child) = &mut slot.process else { continue };
            let ended = child.try_wait().with_context(|| format!("cannot look after {}", slot.node))?;
            if let Some(status) = ended {
                slot.process = None;
                let log = self.spec.log_file(slot.node);
                bail!("{} ended by itself ({status}). The end of {}:\n{}", slot.node, log.display(), tail(&log));
            }
        }
        Ok(())
    }

    fn wait_until_whole(&mut self, patience: Duration) -> anyhow::Result<Configuration> {
        let mut event_loop = Connect::new("starting", self.seeds()).open()?;
        let deadline = Clock::now().after(patience);
        loop {
            crate::client::look(&mut event_loop, limits::LOOK)?;
            let session = event_loop.machine();
            if let Some(whole) = session.configuration().filter(|known| session.is_open() && is_whole(known)) {
                return Ok(whole.clone());
            }
            self.check()?;
            if Clock::now() >= deadline {
                let log = self.spec.log_file(NodeId(1));
                let seen = event_loop.machine().configuration().map_or_else(
                    || "no node gives a configuration".to_owned(),
                    |configuration| format!("last seen: {:?}", configuration.shards),
                );
                bail!(
                    "the cluster does not serve after {patience:?} ({seen}). The logs are in {}; the end of node 1's:\n{}",
                    self.spec.data.display(),
                    tail(&log)
                );
            }
        }
    }

    fn spawn(&mut self, index: usize) -> anyhow::Result<()> {
        let slot = &mut self.slots[index];
        let path = self.spec.log_file(slot.node);
        let log = File::options().create(true).append(true).open(&path);
        let log = log.with_context(|| format!("cannot write {}", path.display()))?;
        let mut command = Command::new(&self.spec.exe);
        command
            .args(self.spec.arguments(slot.node, &slot.listen, &self.controls))
            .stdin(Stdio::null())
            .stderr(log.try_clone().context("cannot share a log file")?)
            .stdout(log);
        ends_with_this(&mut command);
        let exe = self.spec.exe.display();
        slot.process = Some(command.spawn().map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                anyhow::anyhow!("there is no binary {exe}: build it with `cargo build --release -p kasha-lab`")
            }
            ErrorKind::PermissionDenied => anyhow::anyhow!("{exe} may not be executed: check its permissions"),
            _ => anyhow::anyhow!("cannot start {exe}: {error}"),
        })?);
        Ok(())
    }

    fn index(&self, node: NodeId) -> anyhow::Result<usize> {
        self.slots.iter().position(|slot| slot.node == node).with_context(|| format!("there is no {node}"))
    }

    fn slot(&mut self, node: NodeId) -> anyhow::Result<&mut Slot> {
        let index = self.index(node)?;
        Ok(&mut self.slots[index])
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        let mut killed: Vec<Child> = self.slots.iter_mut().filter_map(|slot| slot.process.take()).collect();
        for child in &mut killed {
            // It may have ended by itself. In both cases it is gone after the wait.
            let _ = child.kill();
        }
        for mut child in killed {
            let _ = child.wait();
        }
    }
}

/// Makes it a process that is killed when the thread that starts it ends, in whatever way.
pub(crate) fn ends_with_this(command: &mut Command) {
    // A process group of its own: Ctrl-C reaches only this process, and its end is also that of the children.
    command.process_group(0);
    let parent = getpid();
    // SAFETY: the closure makes two system calls, and touches no memory of this process.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // It may have died before it was watched.
            if getppid() == Some(parent) { Ok(()) } else { Err(ErrorKind::BrokenPipe.into()) }
        });
    }
}

fn tail(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let from = bytes.len().saturating_sub(limits::LOG_TAIL_BYTES);
    String::from_utf8_lossy(&bytes[from..]).into_owned()
}

/// The program that users run, beside the one that benchmarks are.
pub(crate) fn program_beside(exe: &Path) -> anyhow::Result<PathBuf> {
    let program = exe.with_file_name("kasha");
    if program.is_file() {
        Ok(program)
    } else {
        anyhow::bail!("there is no {}: build it with `cargo build --release -p kasha`", program.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_becomes_arguments() {
        let spec = ClusterSpec {
            shards: 3,
            baseline: Baseline::Synced,
            durability: Durability::Fsync,
            link_delay: Duration::from_micros(200),
            drop_per_mille: 10,
            duplicate_per_mille: 20,
            fault_seed: 100,
            lease: Duration::from_secs(1),
            ..ClusterSpec::new("kasha".into(), "folder".into(), 2)
        };
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let arguments = spec.arguments(NodeId(2), &[at(7001), at(7002)], &[at(7000)]).join(" ");
        assert_eq!(
            arguments,
            "internal-node --node 2 --nodes 3 --shards 3 --faults 2 --data folder/node-2 \
             --listen 127.0.0.1:7001,127.0.0.1:7002 --coordinator 127.0.0.1:7000 --baseline synced --durability fsync \
             --link-delay 200us --drop-per-mille 10 --duplicate-per-mille 20 --fault-seed 102 --lease 1000000us"
        );
        let first = spec.arguments(NodeId(1), &[at(7003)], &[at(7000)]).join(" ");
        assert!(first.ends_with("--control 127.0.0.1:7000 --group 1 --host-coordinator"), "node 1 hosts it: {first}");
        assert!(!arguments.contains("host-coordinator"));
    }

    #[test]
    fn the_first_of_several_members_begins_the_cluster() {
        let spec = ClusterSpec {
            nodes: 4,
            members: [4, 2, 3].map(NodeId).into(),
            ..ClusterSpec::new("kasha".into(), "folder".into(), 1)
        };
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let controls = [at(7000), at(7001), at(7002)];
        let arguments = |node, listen: &[SocketAddr]| spec.arguments(NodeId(node), listen, &controls).join(" ");
        let [first, second, fourth] = [1, 2, 4].map(|node| arguments(node, &[at(7003)]));
        assert!(!arguments(4, &[]).contains("--listen"), "a process of its own has no cores");
        assert!(fourth.ends_with("--control 127.0.0.1:7000 --group 3 --host-coordinator"), "{fourth}");
        assert!(second.ends_with("--control 127.0.0.1:7001") && !first.contains("--control"), "{second}; {first}");
        assert!(first.contains("--coordinator 127.0.0.1:7000,127.0.0.1:7001,127.0.0.1:7002"), "{first}");
    }

    #[test]
    fn what_cannot_start_says_why() {
        let data = std::env::temp_dir().join(format!("kasha-bench-test-{}", std::process::id()));
        let start = |exe: &str| Children::start(ClusterSpec::new(exe.into(), data.clone(), 0));
        let error = format!("{:#}", start("/no/such/binary").unwrap_err());
        assert!(error.contains("/no/such/binary"), "{error}");
        let error = format!("{:#}", start("/bin/false").unwrap_err());
        assert!(error.contains("ended by itself"), "{error}");
        fs::remove_dir_all(&data).unwrap();
    }
}
