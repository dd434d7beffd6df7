//! Names whose addresses change: the nodes of a cluster in a network of its own, where the test writes `/etc/hosts`.

use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;

use kasha_process_tests::place::Folder;
use kasha_process_tests::process::{Process, bare_command, die_with_this_thread, health};
use kasha_process_tests::wait_for;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const NAME: &str = "coordinator.test";

/// Namespaces of network and files that live as long as this. Its only device is a loopback with many addresses.
struct Machine {
    keeper: Process,
    folder: Folder,
}

impl Machine {
    /// `None`, with a notice, if this user may not make namespaces.
    fn new() -> Option<Self> {
        let folder = Folder::new("names");
        let hosts = folder.path().join("hosts");
        fs::write(&hosts, "127.0.0.1 localhost\n").expect("a file");
        let script = format!(
            "set -e; ip link set lo up; for n in 1 2 3 4 5 6; do ip address add 10.9.0.$n/32 dev lo; done; \
             mount --bind {} /etc/hosts; echo made; exec sleep 1000000",
            hosts.display()
        );
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "--propagation", "private", "sh", "-c", &script]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        die_with_this_thread(&mut command);
        let mut keeper = Process::spawn(command);
        wait_for("namespaces", || {
            if keeper.said().contains("made") || !keeper.is_running() { Ok(()) } else { Err(String::new()) }
        });
        if !keeper.is_running() {
            eprintln!("SKIPPED: this user may not make a network namespace, so no name can change: {}", keeper.said());
            return None;
        }
        Some(Self { keeper, folder })
    }

    /// The name has these addresses from now on. The file stays the same one, since it is mounted.
    fn say(&self, addresses: &[String]) {
        let lines: String = addresses.iter().map(|address| format!("{address} {NAME}\n")).collect();
        fs::write(self.folder.path().join("hosts"), format!("127.0.0.1 localhost\n{lines}")).expect("a file");
    }

    /// The same command, run there.
    fn enter(&self, bare: &Command) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.keeper.id().to_string(), "--net", "--mount", "--"]);
        command.arg(bare.get_program()).args(bare.get_args());
        for (name, value) in bare.get_envs() {
            if value.is_none() {
                command.env_remove(name);
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        die_with_this_thread(&mut command);
        command
    }

    /// Somebody who listens at port 7400 of this address, and says something that is no frame.
    fn stranger(&self, ip: &'static str) {
        let namespace = File::open(format!("/proc/{}/ns/net", self.keeper.id())).expect("it lives");
        let (up, is_up) = channel();
        std::thread::spawn(move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).expect("this user made it");
            let listener = TcpListener::bind((ip, 7400)).expect("a port");
            up.send(()).expect("somebody waits");
            while let Ok((mut stream, _)) = listener.accept() {
                let _ = stream.write_all(b"220 mail.test ESMTP\r\n");
            }
        });
        is_up.recv().expect("it listens");
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.enter(&bare_command(arguments)).output().expect("it runs")
    }

    fn server(&self, node: u16, ip: &str, more: &[&str]) -> Process {
        let data = self.folder.path().join(format!("node-{node}"));
        let (node, listen, coordinator) = (node.to_string(), format!("{ip}:7401"), format!("{NAME}:7400"));
        let mut arguments = vec!["server", "--node", &node, "--data", path(&data), "--listen", &listen];
        arguments.extend(["--coordinator", &coordinator, "--memory-mib", "64", "--lease", "1s"]);
        arguments.extend(more);
        Process::spawn(self.enter(&bare_command(&arguments)))
    }

    fn coordinator(&self, ip: &str) -> Process {
        self.server(1, ip, &["--host-coordinator", "--nodes", "3", "--shards", "3"])
    }

    /// Every node is alive and every shard healthy, as a client sees it that is given these addresses.
    fn is_healthy(&self, seeds: &str) -> Result<(), String> {
        let output = self.run(&["status", "--json", "--address", seeds]);
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        health(&serde_json::from_slice(&output.stdout).expect("JSON"), 3)
    }

    fn cli(&self, seeds: &str, arguments: &[&str]) -> Result<String, String> {
        let output = self.run(&[&["cli", "--address", seeds], arguments].concat());
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// As it was tried: the coordinator's node comes back under its name with another address. Before that the name has no address yet,
/// one at which nobody is, a stranger's, and twenty.
#[test]
fn the_coordinator_is_found_wherever_its_name_leads() {
    let Some(machine) = Machine::new() else { return };
    let mut two = machine.server(2, "10.9.0.2", &[]);
    two.wait_until_it_says(&format!("waiting for the coordinator at {NAME}:7400"));
    machine.say(&["10.9.0.77".to_owned()]);
    let mut one = machine.coordinator("10.9.0.1");
    one.wait_until_it_says(&format!("waiting for {NAME}:7400 to have an address of this machine"));
    machine.stranger("10.9.0.6");
    let mut twenty: Vec<String> = (0..18).map(|nth| format!("10.9.0.{}", 101 + nth)).collect();
    twenty.extend(["10.9.0.6".to_owned(), "10.9.0.1".to_owned()]);
    machine.say(&twenty);
    one.wait_until_it_says("node-1 listens at 10.9.0.1:7401");
    two.wait_until_it_says("node-2 listens at 10.9.0.2:7401");
    let mut three = machine.server(3, "10.9.0.3", &[]);
    three.wait_until_it_says("node-3 listens at 10.9.0.3:7401");
    wait_for("healthy cluster", || machine.is_healthy("10.9.0.2:7401"));
    let by_name = format!("{NAME}:7400");
    wait_for("answer under the name", || machine.cli(&by_name, &["put", "key", "before"]));

    one.kill();
    machine.say(&["10.9.0.5".to_owned()]);
    let mut one = machine.coordinator("10.9.0.5");
    one.wait_until_it_says("node-1 listens at 10.9.0.5:7401");
    wait_for("healthy cluster", || machine.is_healthy("10.9.0.2:7401"));
    for seeds in [by_name.as_str(), "10.9.0.2:7401", "10.9.0.3:7401"] {
        let value = wait_for("new session", || machine.cli(seeds, &["get", "key"]));
        assert_eq!(value, "before");
        wait_for("update of a new session", || machine.cli(seeds, &["put", "key", "before"]));
    }
    assert!(two.is_running() && three.is_running(), "nobody was restarted");
}

/// A server whose coordinator's name has no address says so and waits; a client says so when it gives up.
#[test]
fn a_name_without_an_address_is_told() {
    let Some(machine) = Machine::new() else { return };
    let mut one = machine.coordinator("10.9.0.1");
    one.wait_until_it_says(&format!("waiting for {NAME}:7400 to have an address of this machine"));
    let said = machine.cli(&format!("{NAME}:7400"), &["get", "key"]).expect_err("nobody is there");
    assert!(said.contains(NAME), "{said}");
    machine.say(&["10.9.0.4".to_owned()]);
    one.wait_until_it_says("node-1 listens at 10.9.0.1:7401");
}
