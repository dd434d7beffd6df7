//! Servers with few file descriptors. They reserve descriptors for files, refuse connections beyond the rest, and say
//! so once.
#![allow(missing_docs)]

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use kasha_client::Client;
use kasha_process_tests::greeting::hello;
use kasha_process_tests::load::Load;
use kasha_process_tests::place::{Folder, free_ports, local};
use kasha_process_tests::process::{Process, binary, cli, command, wait_until_healthy};
use kasha_process_tests::{patient, wait_for};
use rustix::process::Signal;

/// A command that runs under limits of open files.
fn limited(limits: &str, arguments: &[&str]) -> Command {
    // What `command` sets, for a shell that becomes the binary.
    let inner = command(arguments);
    let mut shell = Command::new("sh");
    let words: Vec<_> = inner.get_args().collect();
    shell.args(["-c", &format!("{limits} && exec \"$0\" \"$@\"")]).arg(binary()).args(words);
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    kasha_process_tests::process::die_with_this_thread(&mut shell);
    shell.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    shell
}

/// The arguments of a server. The first of the three hosts the coordinator.
fn arguments(folder: &Folder, port: u16, node: u16) -> Vec<String> {
    let data = folder.path().join(format!("node-{node}")).into_os_string().into_string().unwrap();
    let (number, listen, coordinator) = (node.to_string(), local(port + node).to_string(), local(port).to_string());
    let mut words = ["server", "--node", &number, "--data", &data, "--listen", &listen, "--memory-mib", "64"]
        .map(str::to_owned)
        .to_vec();
    words.extend(["--coordinator".to_owned(), coordinator, "--lease".to_owned(), "1s".to_owned()]);
    if node == 1 {
        words.extend(["--host-coordinator", "--nodes", "3", "--shards", "3"].map(str::to_owned));
    }
    words
}

fn start(folder: &Folder, port: u16, node: u16, limits: &str) -> Process {
    let words = arguments(folder, port, node);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut process = Process::spawn(limited(limits, &words));
    process.wait_until_it_says(&format!("node-{node} listens at"));
    process
}

/// Writes so much that a few shards need new segments, of 8 MiB each.
fn fill(port: u16) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let nodes = [1, 2, 3].map(|node| local(port + node).to_string());
        let client = Client::connect_with(nodes, patient()).await.unwrap();
        let table = client.table("default").await.unwrap();
        let value = vec![7; 1 << 20];
        for number in 0..60 {
            table.put(format!("large:{number}"), &value).await.unwrap();
        }
    });
}

/// The report from outside tried 80 and 64 descriptors, where the hard limit allows many more.
#[test]
fn the_soft_limit_does_not_matter() {
    let (folder, port) = (Folder::new("soft"), free_ports(5));
    let mut nodes: Vec<_> = [(1, "ulimit -Sn 80"), (2, "ulimit -Sn 64"), (3, "ulimit -Sn 80")]
        .map(|(node, limits)| start(&folder, port, node, limits))
        .into();
    wait_until_healthy(port, 3);
    // Clients that have greeted: whoever says nothing is told of, if the filling takes long (K0202).
    let greets = |_| {
        let mut stream = TcpStream::connect(local(port + 2)).unwrap();
        stream.write_all(&hello()).unwrap();
        stream
    };
    let idle: Vec<_> = (0..200).map(greets).collect();
    fill(port);
    wait_until_healthy(port, 3);
    drop(idle);
    // Before any server stops: the first one takes the coordinator with it.
    nodes.iter().for_each(|node| assert!(!node.said().contains("WARN"), "{}", node.said()));
    nodes.drain(..).for_each(|node| node.stop(Signal::TERM));
}

#[test]
fn where_the_hard_limit_is_low_files_come_first_and_the_refused_are_told() {
    let (folder, port) = (Folder::new("hard"), free_ports(5));
    let mut nodes: Vec<_> = (1..=3).map(|node| start(&folder, port, node, "ulimit -n 128")).collect();
    wait_until_healthy(port, 3);
    let load = Load::start((1..=3).map(|node| local(port + node).to_string()).collect());
    load.goes_on(200);
    // More connections than there can be, repeatedly, because connections that send nothing are closed after a while.
    let mut idle = Vec::new();
    wait_for("warning", || {
        idle.truncate(200);
        idle.extend((0..100).filter_map(|_| TcpStream::connect(local(port + 2)).ok()));
        if nodes[1].said().contains("connections are refused") { Ok(()) } else { Err(nodes[1].said()) }
    });
    load.goes_on(200);
    // A client that is refused for lack of descriptors is told the reason.
    let output = wait_for("refusal", || {
        idle.extend((0..100).filter_map(|_| TcpStream::connect(local(port + 2)).ok()));
        let output = cli(port + 2, &["--deadline", "2s", "get", "key"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if said.contains("K0408") { Ok(said) } else { Err(said) }
    });
    assert!(output.contains("file descriptors"), "{output}");
    fill(port);
    load.goes_on(200);
    drop(idle);
    wait_until_healthy(port, 3);
    load.ends_exact();
    for (node, process) in (1..).zip(&mut nodes) {
        let said = process.said();
        assert!(process.is_running(), "node {node} ended:\n{said}");
        assert!(said.matches("connections are refused").count() <= 3, "once a minute:\n{said}");
        assert!(!said.contains("K0108"), "{said}");
    }
}

#[test]
fn a_limit_that_is_too_low_is_told_at_the_start() {
    let (folder, port) = (Folder::new("too-low"), free_ports(5));
    let words = arguments(&folder, port, 1);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Process::spawn(limited("ulimit -n 64", &words)).fails_saying(&["may open 64", "needs 96", "K0408"]);
}

/// A cluster in one process, to which `harm` is done. Checks how it ends when its log needs another file.
fn ends_after(harm: impl FnOnce(&Process, &Folder), words: &[&str]) {
    let (folder, port) = (Folder::new("ends"), free_ports(5));
    let (data, first) = (folder.path().to_str().unwrap(), port.to_string());
    let mut process =
        Process::spawn(command(&["start", "--data", data, "--port", &first, "--shards", "1", "--memory-mib", "64"]));
    process.wait_until_it_says("ready");
    // Connected before, because a process without descriptors accepts no connection.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let table = runtime.block_on(async {
        let client = Client::connect([local(port).to_string()]).await.unwrap();
        let table = client.table("default").await.unwrap();
        table.put("key", "first").await.unwrap();
        table
    });
    harm(&process, &folder);
    let value = "v".repeat(100_000);
    wait_for("its end", || {
        let put = async { table.put("key", &value).deadline(Duration::from_millis(200)).await };
        let _ = runtime.block_on(put);
        if process.is_running() { Err(process.said()) } else { Ok(()) }
    });
    process.fails_saying(words);
}

/// Lowering the limit of a running server takes the descriptors that it has reserved.
#[test]
fn a_file_that_finds_no_descriptor_does_not_blame_the_disk() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let lower = |process: &Process, _: &Folder| {
        let none = Rlimit { current: Some(3), maximum: Some(3) };
        prlimit(Pid::from_raw(process.id()), Resource::Nofile, none).unwrap();
    };
    ends_after(lower, &["Too many open files", "K0113"]);
}

/// A place that does not exist is no failing disk.
#[test]
fn a_path_that_does_not_exist_has_a_page_of_its_own() {
    let port = free_ports(5).to_string();
    let start = command(&["start", "--data", "/proc/nowhere", "--port", &port, "--memory-mib", "64"]);
    Process::spawn(start).fails_saying(&["/proc/nowhere", "there is no such path", "K0114"]);
    let remove = |_: &Process, folder: &Folder| std::fs::remove_dir_all(folder.path().join("node-1/core-00")).unwrap();
    ends_after(remove, &["node-1/core-00", "there is no such path", "K0114"]);
}
