//! Many clients at once: each has one connection to an address, all are served, and whoever is refused is told why.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{TcpListener, TcpStream};

use kasha_client::Client;
use kasha_process_tests::greeting::hello;
use kasha_process_tests::place::{Folder, free_ports, local};
use kasha_process_tests::process::{Process, cli_says, command};
use kasha_process_tests::{PATIENCE, patient, wait_for};

/// A cluster in one process: its folder, its first port.
fn start(name: &str) -> (Process, Folder, u16) {
    let (folder, port) = (Folder::new(name), free_ports(5));
    let (data, first) = (folder.path().to_str().expect("text"), port.to_string());
    let mut process = Process::spawn(command(&["start", "--data", data, "--port", &first, "--memory-mib", "64"]));
    process.wait_until_it_says("ready");
    (process, folder, port)
}

/// This process has both ends of nothing, and one end of thousands.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("its own limit");
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Connections of this process to each of these ports, by what the kernel says.
fn connections(ports: std::ops::Range<u16>) -> BTreeMap<u16, usize> {
    const ESTABLISHED: &str = "01";
    let own: BTreeSet<String> = fs::read_dir("/proc/self/fd")
        .expect("/proc")
        .flatten()
        .filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned()))
        .collect();
    // The kernel writes the list in pieces while it changes, and may write a socket twice.
    let mut found: BTreeMap<u16, BTreeSet<&str>> = BTreeMap::new();
    let list = fs::read_to_string("/proc/self/net/tcp").expect("/proc");
    for line in list.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let remote = fields[2].rsplit_once(':').and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
        let is_own = || own.contains(&format!("socket:[{}]", fields[9]));
        if let Some(port) = remote.filter(|port| ports.contains(port) && fields[3] == ESTABLISHED && is_own()) {
            found.entry(port).or_default().insert(fields[9]);
        }
    }
    found.into_iter().map(|(port, sockets)| (port, sockets.len())).collect()
}

/// Every task has had a few turns: a connection that was given up just now is closed by its own task.
async fn given_up_is_closed() {
    for _ in 0..16 {
        tokio::task::yield_now().await;
    }
}

/// As it was tried: a client took two connections to each seed, and kept both.
#[test]
fn a_client_has_one_connection_to_an_address_and_closes_what_it_does_not_use() {
    let (_process, _folder, port) = start("one-each");
    let seeds: Vec<String> = (port..port + 4).map(|port| local(port).to_string()).collect();
    runtime().block_on(async {
        let client = Client::connect_with(seeds, patient()).await.expect("it connects");
        let table = client.table("default").await.expect("a table");
        for nth in 0..100 {
            table.put(format!("key-{nth}"), "value").await.expect("an update");
            client.fresh_configuration().await.expect("an answer");
        }
        let found = connections(port..port + 4);
        assert!(found.len() >= 3 && found.values().all(|count| *count == 1), "{found:?}");
        wait_for_async("end of all connections", async || {
            let found = connections(port..port + 4);
            if found.is_empty() { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
        table.put("key", "after").await.expect("it dials again");
        assert_eq!(table.get("key").await.expect("an answer").expect("a value").as_str(), Some("after"));
    });
}

async fn wait_for_async(what: &str, poll: impl AsyncFn() -> Result<(), String>) {
    let began = std::time::Instant::now();
    while let Err(complaint) = poll().await {
        assert!(began.elapsed() < PATIENCE, "no {what} yet: {complaint}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

#[test]
fn two_thousand_clients_connect_and_put_together() {
    const CLIENTS: usize = 2000;
    raise_descriptor_limit();
    let (mut process, _folder, port) = start("crowd");
    runtime().block_on(async {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|nth| {
                tokio::spawn(async move {
                    let client = Client::connect_with([local(port).to_string()], patient()).await?;
                    client.table("default").await?.put(format!("client-{nth}"), "here").await?;
                    Ok::<_, kasha_client::Error>(client)
                })
            })
            .collect();
        let mut kept = Vec::new();
        for client in clients {
            kept.push(client.await.expect("no panic").expect("nobody fails"));
        }
        given_up_is_closed().await;
        let found = connections(port..port + 4);
        assert!(found.values().all(|count| *count <= CLIENTS), "one for a client and an address: {found:?}");
    });
    assert_eq!(cli_says(port, &["count"]), CLIENTS.to_string());
    assert!(process.is_running());
}

/// One program opens more connections than a core may have. Whoever comes then is told so, and all is well when it has gone.
#[test]
fn a_program_with_five_thousand_connections_does_no_harm() {
    raise_descriptor_limit();
    let (mut process, _folder, port) = start("five-thousand");
    let target = local(port + 1);
    let mut greeted = Vec::new();
    let hello = hello();
    let mut refused = Vec::new();
    for _ in 0..5000 {
        let Ok(mut stream) = TcpStream::connect(target) else { continue };
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let _ = std::io::Write::write_all(&mut stream, &hello);
        let mut first = [0; 6];
        match std::io::Read::read_exact(&mut stream, &mut first) {
            Ok(()) if &first == b"KASHA " => {
                let mut said = String::new();
                let _ = std::io::Read::read_to_string(&mut stream, &mut said);
                refused.push(said);
            }
            Ok(()) => greeted.push(stream),
            Err(error) => panic!("neither welcomed nor told why: {error}"),
        }
    }
    assert!(!greeted.is_empty() && greeted.len() + refused.len() == 5000, "{} {}", greeted.len(), refused.len());
    assert!(
        !refused.is_empty() && refused.iter().all(|said| said.contains("K0205") || said.contains("K0408")),
        "{refused:?}"
    );
    let output = kasha_process_tests::process::run(&["cli", "--address", &target.to_string(), "get", "key"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("K0205") || said.contains("K0408"), "{said}");
    // The others are served: the coordinator and two nodes have room.
    drop(greeted);
    wait_for("room", || {
        let output = kasha_process_tests::process::cli(port + 1, &["put", "key", "value"]);
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    });
    assert_eq!(cli_says(port + 1, &["get", "key"]), "value");
    assert!(process.is_running());
}

/// The system's limit is what counts: connections that nobody has accepted yet.
#[test]
fn the_backlog_is_as_large_as_the_system_allows() {
    let allowed: usize =
        fs::read_to_string("/proc/sys/net/core/somaxconn").expect("/proc").trim().parse().expect("a number");
    let (process, _folder, port) = start("backlog");
    let output = std::process::Command::new("ss").args(["-Hltn", &format!("sport = :{}", port + 1)]).output();
    let Ok(output) = output else { return eprintln!("SKIPPED: there is no ss here") };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let backlog: usize = said.split_whitespace().nth(2).expect("a line").parse().expect("a number");
    assert_eq!(backlog, allowed, "{said}");
    drop((process, TcpListener::bind("127.0.0.1:0")));
}
