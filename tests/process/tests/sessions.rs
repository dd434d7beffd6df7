//! R4.10: one session over many shards, one of which is away. Updates to the other shards go on as before.
#![allow(missing_docs)]

use std::time::Duration;

use kasha_client::{Client, Error, Table};
use kasha_process_tests::PATIENCE;
use kasha_process_tests::apart::{Apart, Size, block_on};
use kasha_process_tests::place::{Folder, free_ports, local};
use kasha_process_tests::process::{Process, command, list, wait_until_healthy};
use kasha_types::{ShardId, slot_of};
use serde_json::Value as Json;

/// More updates than the window of a client id has room for.
const UPDATES: u32 = 600;

fn server(folder: &Folder, port: u16, node: u16) -> Process {
    let data = folder.path().join(format!("node-{node}")).into_os_string().into_string().unwrap();
    let (number, listen, coordinator) = (node.to_string(), local(port + node).to_string(), local(port).to_string());
    let words = ["server", "--node", &number, "--data", &data, "--listen", &listen, "--coordinator", &coordinator];
    let hosts: &[&str] =
        if node == 1 { &["--host-coordinator", "--nodes", "5", "--shards", "5", "--group", "1"] } else { &[] };
    let rest = ["--memory-mib", "64", "--lease", "1s"];
    let mut process = Process::spawn(command(&[&words[..], &rest, hosts].concat()));
    process.wait_until_it_says(&format!("node-{node} listens at"));
    process
}

/// The shards whose primary is node 1, and those that have no member there.
fn sides(status: &Json) -> (Vec<ShardId>, Vec<ShardId>) {
    let shards = list(&status["shards"]);
    let number = |shard: &Json| ShardId(shard["shard"].as_u64().unwrap().try_into().unwrap());
    let is_member = |shard: &Json| list(&shard["members"]).iter().any(|member| member["node"] == 1);
    let led = shards.iter().filter(|shard| shard["primary"] == 1).map(number).collect();
    (led, shards.iter().filter(|shard| !is_member(shard)).map(number).collect())
}

/// The coordinator, which grants client ids, stops together with node 1.
async fn write_until_the_second_id_is_there(client: &Client, table: &Table, key: &str) {
    while client.stats().await.unwrap().client_ids < 2 {
        table.put(key, "before").await.unwrap();
    }
}

/// No node fails over, because the coordinator is gone too. One put to a shard of node 1 stays unknown. Then more
/// updates than the window holds go to healthy shards.
#[test]
fn r4_10_an_unfinished_update_to_a_stopped_shard_does_not_stop_the_others() {
    let (folder, port) = (Folder::new("window"), free_ports(6));
    let mut nodes: Vec<_> = (1..=5).map(|node| server(&folder, port, node)).collect();
    let status = wait_until_healthy(port, 5);
    let (away, well) = sides(&status);
    block_on(async {
        let client = Client::connect((1..=5).map(|node| local(port + node).to_string())).await.unwrap();
        let table = client.table("default").await.unwrap();
        let configuration = client.fresh_configuration().await.unwrap();
        let id = configuration.table("default").unwrap();
        let key_of = |shards: &[ShardId], number: u32| {
            let mut names = (0u32..).map(|salt| format!("key:{number}:{salt}"));
            let is_theirs =
                |name: &String| shards.contains(&configuration.owner(id, slot_of(name.as_bytes())).unwrap());
            names.find(is_theirs).unwrap()
        };
        write_until_the_second_id_is_there(&client, &table, &key_of(&away, 0)).await;
        nodes.remove(0).kill();
        let unknown = table.put(key_of(&away, 1), "never?").deadline(Duration::from_secs(1)).await.unwrap_err();
        assert!(matches!(unknown, Error::Unknown { .. }), "{unknown}");
        for number in 0..UPDATES {
            let put = table.put(key_of(&well, number), "x").deadline(PATIENCE).await;
            put.unwrap_or_else(|error| panic!("update {number} to a shard that is well: {error}"));
        }
        // When its shard is back, the outcome of the first update becomes known.
        nodes.push(server(&folder, port, 1));
        let Error::Unknown { call, .. } = unknown else { panic!("it was unknown") };
        tokio::time::timeout(PATIENCE, call.resolve()).await.expect("its shard is back").unwrap();
    });
}

/// The coordinator answers, but the shard cannot fail over: both of its members are gone.
#[test]
fn r4_10_a_shard_that_stays_away_does_not_stop_the_others() {
    let size = Size { nodes: 5, faults: 1, shards: 5, lease: "1s" };
    let mut cluster = Apart::start("away", size);
    let status = cluster.status().unwrap();
    let members = |shard: &Json| -> Vec<u16> {
        let nodes = list(&shard["members"]).iter().map(|member| member["node"].as_u64().unwrap());
        nodes.map(|node| node.try_into().unwrap()).collect()
    };
    let number = |shard: &Json| ShardId(shard["shard"].as_u64().unwrap().try_into().unwrap());
    let shards = list(&status["shards"]);
    let gone = members(&shards[0]);
    let is_well = |shard: &&Json| members(shard).iter().all(|node| !gone.contains(node));
    let well: Vec<ShardId> = shards.iter().filter(is_well).map(number).collect();
    block_on(async {
        let keys = cluster.keys("key", UPDATES as usize).await;
        let table = cluster.table().await;
        let stopped = &keys[&number(&shards[0])];
        table.put(&stopped[0], "before").await.unwrap();
        gone.iter().for_each(|node| cluster.kill(*node));
        let unknown = table.put(&stopped[1], "never?").deadline(Duration::from_secs(1)).await.unwrap_err();
        assert!(matches!(unknown, Error::Unknown { .. }), "{unknown}");
        for (number, key) in well.iter().flat_map(|shard| &keys[shard]).take(UPDATES as usize).enumerate() {
            let put = table.put(key, "x").deadline(PATIENCE).await;
            put.unwrap_or_else(|error| panic!("update {number} to a shard that is well: {error}"));
        }
        gone.iter().for_each(|node| cluster.start_node(*node));
        let Error::Unknown { call, .. } = unknown else { panic!("it was unknown") };
        tokio::time::timeout(PATIENCE, call.resolve()).await.expect("its shard is back").unwrap();
    });
}

/// Many more updates than may wait, all to the stopped shard: these get a clear error, and the others go on.
#[test]
fn r4_10_a_flood_for_a_stopped_shard_is_refused_clearly_and_the_others_go_on() {
    const FLOOD: u32 = 1_000_000;
    const AT_ONCE: u32 = 50_000;
    let check = |error: String| {
        assert!(["K0309", "K0310", "K0321"].iter().any(|code| error.contains(code)), "{error}");
    };
    let (folder, port) = (Folder::new("flood"), free_ports(6));
    let mut nodes: Vec<_> = (1..=5).map(|node| server(&folder, port, node)).collect();
    let status = wait_until_healthy(port, 5);
    let (away, well) = sides(&status);
    block_on(async {
        let client = Client::connect((1..=5).map(|node| local(port + node).to_string())).await.unwrap();
        let table = client.table("default").await.unwrap();
        let configuration = client.fresh_configuration().await.unwrap();
        let id = configuration.table("default").unwrap();
        let key_of = |shards: &[ShardId]| {
            let mut names = (0u32..).map(|salt| format!("key:{salt}"));
            let is_theirs =
                |name: &String| shards.contains(&configuration.owner(id, slot_of(name.as_bytes())).unwrap());
            names.find(is_theirs).unwrap()
        };
        let (stopped, healthy) = (key_of(&away), key_of(&well));
        write_until_the_second_id_is_there(&client, &table, &healthy).await;
        nodes.remove(0).kill();
        let mut flood = tokio::task::JoinSet::new();
        for _ in 0..FLOOD / AT_ONCE {
            for _ in 0..AT_ONCE {
                let put = table.put(&stopped, "x").deadline(Duration::from_secs(20));
                flood.spawn(async move { put.await.map(|_| ()).unwrap_err().to_string() });
            }
            tokio::task::yield_now().await;
            while let Some(refused) = flood.try_join_next() {
                check(refused.unwrap());
            }
            let put = table.put(&healthy, "x").deadline(PATIENCE).await;
            put.unwrap_or_else(|error| panic!("an update to a shard that is well: {error}"));
        }
        for number in 0..UPDATES {
            let put = table.put(&healthy, "x").deadline(PATIENCE).await;
            put.unwrap_or_else(|error| panic!("update {number} to a shard that is well: {error}"));
        }
        while let Some(error) = flood.join_next().await {
            check(error.unwrap());
        }
    });
}
