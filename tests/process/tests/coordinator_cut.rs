//! The coordinator alone is cut off from all nodes for six seconds, on a virtual network, and comes back: nothing may
//! have moved (R7.8). Once it has a process of its own, and once it is beside node 1. The test waits in real time, like
//! the cut.
#![allow(missing_docs, clippy::disallowed_methods)]

use std::process::Child;
use std::thread::sleep;
use std::time::Duration;

use kasha_netlab::{Link, Netlab, NetlabOptions};
use kasha_process_tests::place::Folder;
use kasha_process_tests::process::{bare_command, list};
use kasha_process_tests::wait_for;
use serde_json::{Value as Json, json};

const NODES: usize = 3;
const COORDINATOR: usize = NODES;
const CLIENTS: usize = NODES + 1;
/// How long the coordinator is cut off: many leases.
/// The unix time is known so soon after all nodes are there.
const SETTLES_WITHIN: Duration = Duration::from_secs(1);
const CUT: Duration = Duration::from_secs(6);
/// Time for everything that the cut might cause afterwards.
const AFTER: Duration = Duration::from_secs(4);

/// Three nodes with default settings, each on a host of its own.
struct Cluster {
    lab: Netlab,
    children: Vec<Child>,
    hub: usize,
    // Dropped after the children: they end before it is removed.
    folder: Folder,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}

impl Cluster {
    /// The coordinator runs on host `hub`. None: there is no virtual network here.
    fn start(name: &str, hub: usize) -> Option<Self> {
        if let Err(why) = Netlab::available() {
            println!("SKIPPED: no link can be cut: {why}");
            return None;
        }
        let lab = Netlab::with(NetlabOptions::new(CLIENTS + 1, 12)).expect("a network");
        let mut cluster = Self { lab, children: Vec::new(), hub, folder: Folder::new(name) };
        let hosts = if hub == COORDINATOR { vec![hub, 0, 1, 2] } else { vec![0, 1, 2] };
        hosts.into_iter().for_each(|host| cluster.spawn(host));
        Some(cluster)
    }

    fn address(&self, host: usize, port: u16) -> String {
        format!("{}:{port}", self.lab.host(host).address())
    }

    fn spawn(&mut self, host: usize) {
        let (node, data) = ((host + 1).to_string(), self.folder.path().join(format!("host-{host}")));
        let (coordinator, listen) = (self.address(self.hub, 7400), self.address(host, 7401));
        let mut words = vec!["server", "--node", &node, "--data", data.to_str().expect("text")];
        words.extend(["--coordinator", &coordinator, "--memory-mib", "64"]);
        if host == self.hub {
            words.extend(["--host-coordinator", "--nodes", "3", "--shards", "6", "--group", "1"]);
        }
        if host < NODES {
            words.extend(["--listen", &listen]);
        }
        let child = self.lab.host(host).spawn(bare_command(&words)).expect("it starts");
        self.children.push(child);
    }

    fn says(&self, words: &[&str]) -> Result<String, String> {
        let addresses: Vec<String> = (0..NODES).map(|host| self.address(host, 7401)).collect();
        let mut command = bare_command(&[words, &["--address", &addresses.join(",")]].concat());
        let output = self.lab.host(CLIENTS).run(|| command.output()).map_err(|error| error.to_string())?;
        // 3: an answer that says no, or that a shard is ill.
        let is_answer = matches!(output.status.code(), Some(0 | 3));
        let said = String::from_utf8_lossy(if is_answer { &output.stdout } else { &output.stderr });
        if is_answer { Ok(said.into_owned()) } else { Err(said.into_owned()) }
    }

    /// The parts of the status that may not change, when the cluster is healthy.
    fn placement(&self) -> Json {
        let mut placement = Json::Null;
        wait_for("a healthy cluster", || {
            let status: Json = serde_json::from_str(&self.says(&["status", "--json"])?).map_err(|e| e.to_string())?;
            let shards = list(&status["shards"]);
            let alive = list(&status["nodes"]).iter().filter(|node| node["alive"] == true).count();
            let well = shards.iter().filter(|shard| shard["health"] == "healthy").count();
            if alive != NODES || well != 6 || status["coordinator_reachable"] != true {
                return Err(status.to_string());
            }
            let of_shard = |shard: &Json| {
                ["shard", "epoch", "primary", "members", "witnesses", "list"].map(|name| shard[name].clone())
            };
            let shards: Vec<_> = shards.iter().map(of_shard).collect();
            // A node that was lost and taken back, or a shard that moved and came back, has made new versions.
            placement = json!({ "version": status["configuration"], "shards": shards });
            Ok(())
        });
        placement
    }

    fn cut(&self, is_cut: bool) {
        let hub = self.hub;
        self.lab.change_links(move |from, to, link: &mut Link| {
            if (from == hub) != (to == hub) {
                link.is_cut = is_cut;
            }
        });
    }

    /// The placement once nothing is new any more: a cluster that has just begun makes one version more when it knows the unix time.
    fn settled_placement(&self) -> Json {
        loop {
            let placement = self.placement();
            sleep(SETTLES_WITHIN);
            if self.placement() == placement {
                return placement;
            }
        }
    }

    fn nothing_moves(&self) {
        let before = self.settled_placement();
        self.cut(true);
        sleep(CUT);
        self.cut(false);
        assert_eq!(self.placement(), before, "as soon as it is back");
        sleep(AFTER);
        assert_eq!(self.placement(), before, "later");
        assert_eq!(self.says(&["cli", "incr", "key"]).as_deref().map(str::trim), Ok("1"));
    }
}

#[test]
fn r7_8_a_coordinator_of_its_own_is_cut_off_and_nothing_moves() {
    if let Some(cluster) = Cluster::start("coordinator-cut", COORDINATOR) {
        cluster.nothing_moves();
    }
}

#[test]
fn r7_8_a_coordinator_is_cut_off_with_its_node_and_nothing_moves() {
    if let Some(cluster) = Cluster::start("coordinator-cut-hosted", 0) {
        cluster.nothing_moves();
    }
}
