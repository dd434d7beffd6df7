//! A cluster of any size whose coordinator has a process of its own. Tests stop or kill it as a whole, take folders and
//! files from it while it is down, start it again, and check that every value is there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use kasha_client::{Client, Table};
use kasha_replication::ReplicaMeta;
use kasha_types::{BootId, ClusterId, ShardId, TableId, slot_of};
use kasha_witness::Mode;
use rustix::process::Signal;
use serde_json::Value as Json;

use crate::place::{Folder, free_ports, local};
use crate::process::{Process, command, list, run, status};
use crate::{PATIENCE, wait_for};

/// The coordinator's node number.
const COORDINATOR: u16 = 99;

/// The size and the settings of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Number of nodes; they are numbered from 1.
    pub nodes: u16,
    /// `f`, the number of crashes that each shard survives.
    pub faults: u16,
    /// Number of shards.
    pub shards: u16,
    /// The nodes' lease.
    pub lease: &'static str,
}

/// The acknowledged values, by key.
pub type Told = BTreeMap<String, String>;

/// The cluster and its processes.
#[derive(Debug)]
pub struct Apart {
    // Dropped before the folder: the children end before it is removed.
    coordinator: Option<Process>,
    nodes: BTreeMap<u16, Process>,
    size: Size,
    memory_mib: u32,
    folder: Folder,
    port: u16,
}

impl Apart {
    /// A cluster of which no process runs yet.
    #[must_use]
    pub fn new(name: &str, size: Size) -> Self {
        let (coordinator, nodes) = (None, BTreeMap::new());
        // Two more ports, for nodes that replace others.
        let (folder, port) = (Folder::new(name), free_ports(size.nodes + 3));
        Self { coordinator, nodes, size, memory_mib: 64, folder, port }
    }

    /// Starts the whole cluster, and waits until it is healthy.
    #[must_use]
    pub fn start(name: &str, size: Size) -> Self {
        let mut cluster = Self::new(name, size);
        cluster.start_all();
        cluster.wait_until_healthy();
        cluster
    }

    /// The nodes that are started from now on have this much memory for each log, instead of the least.
    pub fn set_memory_mib(&mut self, mib: u32) {
        self.memory_mib = mib;
    }

    /// Waits until every node is alive and every shard healthy.
    pub fn wait_until_healthy(&self) -> Json {
        crate::process::wait_until_healthy(self.port, usize::from(self.size.nodes))
    }

    /// Starts the first nodes and the coordinator, as far as they do not run.
    pub fn start_all(&mut self) {
        self.start_coordinator();
        (1..=self.size.nodes).for_each(|node| self.start_node(node));
    }

    /// Starts the coordinator, if it does not run.
    pub fn start_coordinator(&mut self) {
        if self.coordinator.is_some() {
            return;
        }
        let Size { nodes, faults, shards, .. } = self.size;
        let [nodes, faults, shards] = [nodes, faults, shards].map(|number| number.to_string());
        let new = ["--host-coordinator", "--nodes", &nodes, "--faults", &faults, "--shards", &shards];
        let hosts = [&new[..], &["--group", "1"]].concat();
        let mut process = self.spawn(COORDINATOR, &hosts);
        process.wait_until_it_says("the coordinator listens at");
        self.coordinator = Some(process);
    }

    fn spawn_node(&self, node: u16) -> Process {
        let (listen, memory) = (local(self.port + node).to_string(), self.memory_mib.to_string());
        self.spawn(node, &["--listen", &listen, "--memory-mib", &memory])
    }

    /// Starts a node, and checks that it ends with an error that has these words.
    pub fn refuses_node(&self, node: u16, words: &[&str]) {
        self.spawn_node(node).fails_saying(words);
    }

    /// Starts a node, if it does not run.
    pub fn start_node(&mut self, node: u16) {
        if self.nodes.contains_key(&node) {
            return;
        }
        let mut process = self.spawn_node(node);
        process.wait_until_it_says(&format!("node-{node} listens at"));
        self.nodes.insert(node, process);
    }

    fn spawn(&self, number: u16, rest: &[&str]) -> Process {
        let (data, coordinator) = (self.data(number).into_os_string().into_string().unwrap(), local(self.port));
        let (number, coordinator) = (number.to_string(), coordinator.to_string());
        let words = ["server", "--node", &number, "--data", &data, "--coordinator", &coordinator];
        Process::spawn(command(&[&words[..], &["--lease", self.size.lease], rest].concat()))
    }

    /// The data folder of a node.
    #[must_use]
    pub fn data(&self, node: u16) -> PathBuf {
        self.folder.path().join(format!("node-{node}"))
    }

    /// The addresses of the nodes, for clients.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        (1..=self.size.nodes).map(|node| local(self.port + node).to_string()).collect()
    }

    /// The coordinator's process.
    ///
    /// # Panics
    /// If it does not run.
    #[must_use]
    pub fn coordinator(&self) -> &Process {
        self.coordinator.as_ref().expect("it runs")
    }

    /// A node's process.
    ///
    /// # Panics
    /// If it does not run.
    pub fn node(&mut self, node: u16) -> &mut Process {
        self.nodes.get_mut(&node).expect("it runs")
    }

    /// Takes a node's process.
    ///
    /// # Panics
    /// If it was not started.
    #[must_use]
    pub fn take(&mut self, node: u16) -> Process {
        self.nodes.remove(&node).expect("it was started")
    }

    /// Kills a node with `kill -9`.
    pub fn kill(&mut self, node: u16) {
        self.take(node).kill();
    }

    /// Kills every process with `kill -9`.
    pub fn kill_all(&mut self) {
        let all = std::mem::take(&mut self.nodes).into_values().chain(self.coordinator.take());
        all.for_each(Process::kill);
    }

    /// Stops every process at once, as an operator would, and checks that each ends in good order.
    ///
    /// # Panics
    /// If one ends otherwise.
    pub fn stop_all(&mut self) {
        let all: Vec<_> = std::mem::take(&mut self.nodes).into_values().chain(self.coordinator.take()).collect();
        all.iter().for_each(|process| process.signal(Signal::TERM));
        for mut process in all {
            let (status, said) = process.wait();
            assert_eq!(status.code(), Some(0), "{said}");
        }
    }

    /// Removes the folder of a node for good.
    pub fn lose_folder(&self, node: u16) {
        fs::remove_dir_all(self.data(node)).expect("its folder");
    }

    /// The files of a node's shards with these endings; of one shard, or of all.
    #[must_use]
    pub fn files(&self, node: u16, shard: Option<u64>, endings: &[&str]) -> Vec<PathBuf> {
        let (mut found, mut left) = (Vec::new(), vec![self.data(node)]);
        while let Some(folder) = left.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                let text = path.to_string_lossy().into_owned();
                let is_shards = shard.is_none_or(|shard| text.contains(&format!("shard-{shard:04}")));
                if path.is_dir() {
                    left.push(path);
                } else if is_shards && endings.iter().any(|ending| text.ends_with(ending)) {
                    found.push(path);
                }
            }
        }
        found.sort();
        found
    }

    /// Removes all files of a node's witnesses.
    ///
    /// # Panics
    /// If there are none.
    pub fn lose_witnesses(&self, node: u16, shard: Option<u64>) {
        let files = self.files(node, shard, &[".slots", ".mode"]);
        assert!(!files.is_empty(), "node-{node} is a witness");
        files.iter().for_each(|file| fs::remove_file(file).expect("a file"));
    }

    /// Marks a node that is down as one that has lost power: its files get another boot id. Unflushed data is still
    /// there, as after a loss of power that took nothing, but nobody can know that.
    ///
    /// # Panics
    /// If there are no such files.
    pub fn lose_power(&self, node: u16) {
        let boot = BootId(0xB007);
        for file in self.files(node, None, &["replica.meta"]) {
            let bytes = fs::read(&file).expect("a file");
            let shard = u16::from_le_bytes(bytes[6..8].try_into().expect("two bytes"));
            let cluster = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
            let meta = ReplicaMeta::decode(&bytes, ClusterId(cluster), ShardId(shard)).expect("marks of a replica");
            // A process that ended in good order stays so.
            if meta.boot != BootId::ENDED {
                let mut bytes = Vec::new();
                ReplicaMeta { boot, ..meta }.encode(&mut bytes);
                fs::write(&file, bytes).expect("a file");
            }
        }
        for file in self.files(node, None, &[".mode"]) {
            let mode = Mode::decode(&fs::read(&file).expect("a file")).expect("a witness's marks");
            fs::write(&file, Mode { boot, ..mode }.encode()).expect("a file");
        }
    }

    /// Runs `kasha admin give-up --yes`.
    #[must_use]
    pub fn give_up(&self, shard: u16) -> Output {
        let (address, shard) = (self.addresses().join(","), shard.to_string());
        run(&["admin", "--address", &address, "give-up", "--shard", &shard, "--yes"])
    }

    /// The output of `kasha status --json`.
    ///
    /// # Errors
    /// The text that the command printed instead.
    pub fn status(&self) -> Result<Json, String> {
        status(self.port)
    }

    /// The default table, in a new session.
    pub async fn table(&self) -> Table {
        let options = kasha_client::ClientOptions { connect_timeout: PATIENCE, ..Default::default() };
        let client = Client::connect_with(self.addresses(), options).await.expect("a cluster");
        client.table("default").await.expect("the default table")
    }

    /// Puts this many values in each shard, all in one session.
    #[must_use]
    pub fn fill(&self, name: &str, each: usize) -> Told {
        let mut told = Told::new();
        block_on(async {
            let table = self.table().await;
            for key in self.keys(name, each).await.into_values().flatten() {
                let value = format!("{name} of {key}");
                table.put(&key, &value).await.expect("a healthy cluster");
                told.insert(key, value);
            }
        });
        told
    }

    /// This many keys of each shard.
    ///
    /// # Panics
    /// If the configuration is not known.
    pub async fn keys(&self, name: &str, each: usize) -> BTreeMap<ShardId, Vec<String>> {
        let client = Client::connect(self.addresses()).await.expect("a cluster");
        let configuration = client.fresh_configuration().await.expect("the coordinator answers");
        let table = configuration.table("default").unwrap_or(TableId(0));
        let mut keys: BTreeMap<ShardId, Vec<String>> =
            configuration.shards.iter().map(|shard| (shard.shard, Vec::new())).collect();
        for number in 0.. {
            let key = format!("{name}:{number}");
            let owner = configuration.owner(table, slot_of(key.as_bytes())).expect("every slot has an owner");
            let of_owner = keys.get_mut(&owner).expect("a shard of the configuration");
            if of_owner.len() < each {
                of_owner.push(key);
            }
            if keys.values().all(|keys| keys.len() == each) {
                break;
            }
        }
        keys
    }

    /// Waits until every shard serves, whatever nodes are lost. Checks that all values are there, and that updates go
    /// on.
    ///
    /// # Panics
    /// If a shard does not serve (with what it waits for), or if a value is missing.
    pub fn serves_all(&self, told: &Told) {
        wait_for("serving of every shard", || {
            let status = self.status()?;
            match waiting(&status) {
                words if words.is_empty() && !list(&status["shards"]).is_empty() => Ok(()),
                words => Err(words.join("\n")),
            }
        });
        block_on(async {
            let table = self.table().await;
            for (key, value) in told {
                let found = table.get(key).deadline(PATIENCE).await.unwrap_or_else(|error| panic!("{key}: {error}"));
                let found = found.map(|value| String::from_utf8_lossy(&value.bytes).into_owned());
                assert_eq!(found.as_ref(), Some(value), "{key}");
            }
            for key in self.keys("after", 1).await.into_values().flatten() {
                table.put(&key, "x").deadline(PATIENCE).await.unwrap_or_else(|error| panic!("{key}: {error}"));
            }
        });
    }
}

/// For each shard that does not serve, what it waits for.
#[must_use]
pub fn waiting(status: &Json) -> Vec<String> {
    let waits = |shard: &&Json| shard["serving"] != true || shard["status"]["state"] != "serving";
    let shards = list(&status["shards"]).iter().filter(waits);
    let words = shards.map(|shard| {
        let (number, primary, state) = (&shard["shard"], &shard["primary"], &shard["status"]["state"]);
        format!("shard-{number} {}, primary node-{primary}, epoch {}: {state}", shard["health"], shard["epoch"])
    });
    words.collect()
}

/// Runs a future on a runtime of its own.
///
/// # Panics
/// If no runtime can be made.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

/// Changes eight bytes in the middle of a file.
///
/// # Panics
/// If the file cannot be changed.
pub fn damage_eight_bytes(path: &Path) {
    let mut bytes = fs::read(path).expect("a file");
    let middle = bytes.len() / 2;
    let from = middle.saturating_sub(4);
    bytes[from..].iter_mut().take(8).for_each(|byte| *byte ^= 0x5A);
    fs::write(path, bytes).expect("a file");
}

/// Pauses for this many seconds. The test is about what happens meanwhile; nothing depends on the exact time.
pub fn seconds(seconds: u64) {
    std::thread::sleep(Duration::from_secs(seconds));
}
