//! `kasha status` and what it may not hide: a node that died a moment ago, a primary that is none, a cluster that has not begun.

use std::process::Output;

use kasha_process_tests::cluster::Cluster;
use kasha_process_tests::place::{Folder, free_ports};
use kasha_process_tests::process::{Process, bare_command, cli, cli_says, command, list, run, status};
use kasha_process_tests::wait_for;
use rustix::process::Signal;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn status_of(port: u16, flags: &[&str]) -> Output {
    run(&[&["status", "--address", &format!("127.0.0.1:{port}")], flags].concat())
}

/// The first screen, of a terminal that is so wide.
fn screen(port: u16, width: usize, flags: &[&str]) -> String {
    let address = format!("127.0.0.1:{port}");
    let mut command = bare_command(&[&["status", "--address", &address], flags].concat());
    text(&command.env("COLUMNS", width.to_string()).output().expect("the binary starts").stdout)
}

#[test]
fn the_first_screen_is_short_and_its_exit_code_says_whether_all_is_well() {
    let cluster = Cluster::start("first-screen", "500ms", 3);
    cluster.wait_until_healthy();
    let output = status_of(cluster.port(), &[]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let words = ["NODE", "SHARD", "All is well: 3 nodes are alive, 3 shards are healthy"];
    assert!(words.iter().all(|words| said.contains(words)), "{said}");
    assert!(said.lines().count() <= 12 && !said.contains("LONGEST TURN") && !said.contains("EPOCH"), "{said}");
    let verbose = text(&status_of(cluster.port(), &["--verbose"]).stdout);
    for word in ["EPOCH", "FAST PATH", "DUPLICATES", "REPEATS", "CLEANER", "LONGEST TURN", "All is well"] {
        assert!(verbose.contains(word), "{word} in {verbose}");
    }
}

#[test]
fn a_terminal_of_forty_columns_can_be_read() {
    let cluster = Cluster::start("forty-columns", "500ms", 2);
    cluster.wait_until_healthy();
    for (width, flags) in [(40, &[][..]), (40, &["--verbose"]), (20, &[]), (200, &["--verbose"])] {
        let said = screen(cluster.port(), width, flags);
        let widest = said.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(widest <= width, "{widest} columns of {width}:\n{said}");
        for word in ["node-3", "127.0.0.1", "shard-1", "healthy", "well:"] {
            assert!(said.contains(word), "{word} in {said}");
        }
    }
}

#[test]
fn a_node_that_was_killed_a_moment_ago_makes_its_shards_ill() {
    // So long a lease that the coordinator's word stands for the whole test.
    let mut cluster = Cluster::start("killed-now", "20s", 3);
    cluster.wait_until_healthy();
    cluster.kill(3);
    let output = status_of(cluster.port(), &["--json"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let json = status(cluster.port()).expect("JSON with an exit code of 3, too");
    let (summary, shards) = (json["summary"].as_str().unwrap_or_default(), list(&json["shards"]));
    assert!(json["well"] == false && summary.starts_with("NOT well"), "{summary}");
    for shard in shards {
        let uses = |name: &str| list(&shard[name]).iter().any(|it| *it == 3 || it["node"] == 3);
        let is_hit = uses("members") || uses("witnesses");
        assert_eq!(shard["well"] == false, is_hit, "{shard:#}");
        assert_eq!(shard["health"] == "healthy", !is_hit, "{shard:#}");
    }
    assert!(shards.iter().any(|shard| shard["health"] == "primary silent"), "{json:#}");
}

#[test]
fn a_process_that_restarted_within_its_lease_is_no_primary_until_it_is_promoted() {
    let mut cluster = Cluster::start("restarted", "500ms", 3);
    cluster.wait_until_healthy();
    cluster.kill(1); // the coordinator's: nobody else is promoted
    cluster.kill(2);
    cluster.start_node(2);
    // It hosts no coordinator, and has lost its memory: it must not be called well on the word of others.
    let said = wait_for("a node that answers", || {
        let output = run(&["status", "--json", "--address", &format!("127.0.0.1:{}", cluster.port_of(3))]);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
        let is_asked = list(&json["cores"]).iter().any(|core| core["node"] == 2);
        if is_asked { Ok((output.status.code(), json)) } else { Err(json.to_string()) }
    });
    let (code, json) = said;
    assert_eq!(code, Some(3), "{json:#}");
    let led: Vec<_> = list(&json["shards"]).iter().filter(|shard| shard["primary"] == 2).collect();
    assert!(!led.is_empty() && led.iter().all(|shard| shard["well"] == false), "{json:#}");
    cluster.start_node(1);
    cluster.wait_until_healthy();
}

#[test]
fn who_waits_for_health_is_told_what_is_missing_and_when_it_is_there() {
    let mut cluster = Cluster::start("wait-healthy", "500ms", 3);
    cluster.wait_until_healthy();
    let address = format!("127.0.0.1:{}", cluster.port());
    cluster.kill(2);
    let mut waits = Process::spawn(command(&["status", "--wait", "healthy", "--address", &address]));
    let (ended, said) = waits.wait();
    assert_eq!(ended.code(), Some(0), "{said}");
    assert!(said.contains("waiting: NOT well") && said.contains("All is well"), "{said}");
    // Bounded: with the coordinator away it never is.
    cluster.kill(1);
    let seeds = cluster.addresses().join(",");
    let mut waits =
        Process::spawn(command(&["status", "--wait", "healthy", "--wait-at-most", "1s", "--address", &seeds]));
    let (ended, said) = waits.wait();
    assert_eq!(ended.code(), Some(3), "{said}");
    assert!(said.contains("NOT well"), "{said}");
    let nobody = format!("127.0.0.1:{}", free_ports(1));
    let mut waits =
        Process::spawn(command(&["status", "--wait", "healthy", "--wait-at-most", "1s", "--address", &nobody]));
    let (ended, said) = waits.wait();
    assert_eq!(ended.code(), Some(1), "{said}");
    assert!(said.contains("waiting: no cluster answers yet") && said.contains("K0208"), "{said}");
}

#[test]
fn repeats_under_an_operation_key_by_other_clients_are_counted() {
    let cluster = Cluster::start("repeats", "500ms", 1);
    cluster.wait_until_healthy();
    let repeats = || {
        let json = status(cluster.port()).expect("a cluster");
        list(&json["shards"])[0]["status"]["repeats_suppressed"].as_u64().expect("a count")
    };
    assert_eq!(repeats(), 0);
    for _ in 0..3 {
        assert_eq!(cli_says(cluster.port(), &["--once", "order-42", "incr", "visits", "5"]), "5");
    }
    assert_eq!(repeats(), 2, "two of the three");
}

#[test]
fn a_cluster_that_has_not_begun_says_how_many_nodes_it_waits_for() {
    let mut cluster = Cluster::new("not-begun", "500ms", 3);
    cluster.start_node(1);
    let port = cluster.port();
    wait_for("the first node", || {
        let json = status(port)?;
        if list(&json["nodes"]).len() == 1 { Ok(()) } else { Err(json.to_string()) }
    });
    let output = status_of(port, &[]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("this cluster begins when 2 more nodes are there"), "{said}");
    for words in
        [&["put", "a", "1"][..], &["get", "a"], &["create-table", "orders"], &["--table", "orders", "get", "a"]]
    {
        let output = cli(port, words);
        let said = text(&output.stderr);
        assert!(
            said.contains("this cluster begins when 2 more nodes are there: start them (K0302)"),
            "{words:?}: {said}"
        );
        assert!(!said.contains("create it first") && output.status.code() == Some(1), "{said}");
    }
    cluster.start_node(2);
    wait_for("the second node", || {
        let said = text(&status_of(port, &[]).stdout);
        if said.contains("when 1 more node is there") { Ok(()) } else { Err(said) }
    });
    cluster.start_node(3);
    cluster.wait_until_healthy();
    assert!(text(&cli(port, &["--table", "orders", "get", "a"]).stderr).contains("create it first"));
}

/// `kasha start` in the folder of a cluster, on ports of its own.
fn start(folder: &Folder, flags: &[&str]) -> (Process, u16) {
    let (data, port) = (folder.path().to_str().expect("text").to_owned(), free_ports(4));
    let port_text = port.to_string();
    let words = [&["start", "--data", &data, "--port", &port_text, "--memory-mib", "64"], flags].concat();
    let mut process = Process::spawn(command(&words));
    process.wait_until_it_says("Ctrl-C stops");
    (process, port)
}

/// The number of a node's process, as the output says it.
fn process_of(said: &str, node: u16) -> i32 {
    let line =
        said.lines().find(|line| line.trim_start().starts_with(&format!("node-{node} ")) && line.contains("process "));
    let number = line.and_then(|line| line.rsplit(' ').next()).unwrap_or_else(|| panic!("node {node} in: {said}"));
    number.parse().expect("a number")
}

#[test]
fn each_node_in_a_process_of_its_own_can_be_killed_and_nothing_is_lost() {
    let folder = Folder::new("processes");
    let (process, port) = start(&folder, &["--processes"]);
    assert_eq!(cli_says(port, &["incr", "visits", "5"]), "5");
    for node in [2, 3] {
        let victim = process_of(&process.said(), node);
        let pid = rustix::process::Pid::from_raw(victim).expect("a process");
        rustix::process::kill_process(pid, Signal::KILL).expect("it runs");
        assert_eq!(cli_says(port, &["--once", "order-42", "incr", "visits", "5"]), "10", "node {node} is away");
        wait_for("words about the end", || {
            let said = process.said();
            if said.contains(&format!("node-{node} (process {victim}) was killed")) { Ok(()) } else { Err(said) }
        });
        wait_for("a new process", || {
            let said = process.said();
            if said.contains(&format!("node-{node} is started again: process ")) { Ok(()) } else { Err(said) }
        });
        let well = status_of(port, &["--wait", "healthy"]);
        assert_eq!(well.status.code(), Some(0), "{}", text(&well.stdout));
    }
    assert_eq!(cli_says(port, &["get", "visits"]), "10");
    // The same folder is a cluster in one process, too, and the other way round.
    process.stop(Signal::TERM);
    let (process, port) = start(&folder, &[]);
    assert_eq!(cli_says(port, &["get", "visits"]), "10");
    process.stop(Signal::TERM);
}

#[test]
fn no_process_outlives_the_one_that_started_it() {
    let folder = Folder::new("outlived");
    let (process, port) = start(&folder, &["--processes"]);
    let nodes: Vec<i32> = (1..4).map(|node| process_of(&process.said(), node)).collect();
    process.kill();
    for node in nodes {
        wait_for("the end of a node", || {
            // Ended and not waited for by whom it was left to is ended.
            let state = std::fs::read_to_string(format!("/proc/{node}/stat")).unwrap_or_default();
            let runs = !state.is_empty() && !state.contains(") Z ");
            if runs { Err(state) } else { Ok(()) }
        });
    }
    assert_eq!(cli(port, &["--deadline", "100ms", "get", "a"]).status.code(), Some(1));
}
