//! The recipes of docs/recipes.md, as they are in the client's examples, beside nodes that are killed and come back. Each recipe checks
//! by itself what it promises.
#![allow(missing_docs, dead_code, reason = "the mains of the examples are not called")]

use kasha_client::Client;
use kasha_process_tests::apart::{block_on, seconds};
use kasha_process_tests::cluster::Cluster;

#[path = "../../../crates/client/examples/charge.rs"]
mod charge;
#[path = "../../../crates/client/examples/jobs.rs"]
mod jobs;
#[path = "../../../crates/client/examples/locks.rs"]
mod locks;
#[path = "../../../crates/client/examples/quota.rs"]
mod quota;
#[path = "../../../crates/client/examples/sessions.rs"]
mod sessions;
#[path = "../../../crates/client/examples/wallet.rs"]
mod wallet;

const SHARDS: u16 = 3;

async fn run_all(addresses: Vec<String>) {
    let client = Client::connect(addresses).await.expect("a cluster");
    quota::run(&client).await.expect("quota");
    charge::run(&client).await.expect("charge");
    wallet::run(&client).await.expect("wallet");
    sessions::run(&client).await.expect("sessions");
    locks::run(&client).await.expect("locks");
    jobs::run(&client).await.expect("jobs");
    // The same orders, sent again.
    charge::run(&client).await.expect("charge");
}

#[test]
fn recipes_keep_what_they_promise_while_nodes_are_killed() {
    let mut cluster = Cluster::start("recipes", "500ms", SHARDS);
    let addresses = cluster.addresses();
    #[allow(clippy::disallowed_methods, reason = "a test of processes")]
    let recipes = std::thread::spawn(move || block_on(run_all(addresses)));
    // Not node 1: it hosts the coordinator.
    for node in [2, 3].into_iter().cycle() {
        if recipes.is_finished() {
            break;
        }
        cluster.kill(node);
        seconds(1);
        cluster.start_node(node);
        cluster.wait_until_healthy();
    }
    recipes.join().expect("every recipe keeps its promise");
}
