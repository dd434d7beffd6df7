//! A shard's memory runs full. `kasha status` says so before, and as long as updates are refused.
#![allow(missing_docs)]

use kasha_client::{Client, Error};
use kasha_process_tests::place::{Folder, free_ports, local};
use kasha_process_tests::process::{Process, command, list, run, status};
use rustix::process::Signal;

/// The health of the only shard, as text and in JSON, and the state of its memory.
fn health(port: u16) -> (String, String) {
    let json = status(port).unwrap();
    let [shard] = list(&json["shards"]) else { panic!("one shard: {json}") };
    let text = |json: &serde_json::Value| json.as_str().unwrap_or_else(|| panic!("text: {json}")).to_owned();
    (text(&shard["health"]), text(&shard["status"]["memory"]))
}

/// Found from outside: `healthy 56/64 MiB`, while every put failed with K0312.
#[test]
fn status_warns_before_updates_are_refused_and_says_full_when_they_are() {
    let (folder, port) = (Folder::new("memory"), free_ports(5));
    let (data, first) = (folder.path().to_str().unwrap(), port.to_string());
    let arguments = ["start", "--data", data, "--port", &first, "--shards", "1", "--memory-mib", "64"];
    let mut process = Process::spawn(command(&arguments));
    process.wait_until_it_says("ready");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let table = runtime.block_on(async {
        let client = Client::connect([local(port).to_string()]).await.unwrap();
        client.table("default").await.unwrap()
    });
    let (mut seen, value) = (Vec::new(), vec![7; 1 << 20]);
    let refused = (0..64).find_map(|number| {
        let now = health(port);
        if seen.last() != Some(&now) {
            seen.push(now);
        }
        runtime.block_on(async { table.put(format!("key:{number}"), &value).await }).err()
    });
    let refused = refused.expect("64 MiB are full");
    assert!(matches!(refused, Error::NotExecuted(_)) && refused.to_string().contains("K0312"), "{refused}");
    let pair = |health: &str, memory: &str| (health.to_owned(), memory.to_owned());
    assert_eq!(seen, [pair("healthy", "enough"), pair("memory low", "low")]);
    assert_eq!(health(port), pair("memory full", "full"));
    let output = run(&["status", "--address", &local(port).to_string()]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("memory full"));
    // Operations that free memory go on.
    runtime.block_on(async { table.delete("key:1").await }).unwrap();
    process.stop(Signal::TERM);
}
