//! `kasha admin give-up`: the operator gives up what a shard waits for and what is lost for good. The command is
//! refused where it is not needed.
#![allow(missing_docs)]

use std::process::Output;

use kasha_process_tests::apart::{Apart, Size, Told, seconds, waiting};
use kasha_process_tests::process::list;
use kasha_process_tests::wait_for;

/// Node 1 is the shard's primary, node 2 its backup, node 3 its witness, node 4 a spare.
const SIZE: Size = Size { nodes: 4, faults: 1, shards: 1, lease: "500ms" };

/// A healthy cluster with values that the backup has too, in which every process was killed.
fn killed(name: &str) -> (Apart, Told) {
    let mut cluster = Apart::start(name, SIZE);
    let told = cluster.fill("before", 50);
    let status = cluster.status().unwrap();
    let shard = &list(&status["shards"])[0];
    let numbers = |of: &str| list(&shard[of]).iter().map(|node| node.as_u64().unwrap()).collect::<Vec<_>>();
    let members: Vec<_> = list(&shard["members"]).iter().map(|member| member["node"].as_u64().unwrap()).collect();
    assert_eq!((members, numbers("witnesses")), (vec![1, 2], vec![3]), "{shard}");
    seconds(1); // acknowledged updates reach the backup within milliseconds
    cluster.kill_all();
    (cluster, told)
}

fn start(cluster: &mut Apart, nodes: &[u16]) {
    cluster.start_coordinator();
    nodes.iter().for_each(|&node| cluster.start_node(node));
}

fn words(output: &Output) -> String {
    [&output.stdout[..], &output.stderr[..]].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// Checks that the command is refused, and that nothing has changed.
fn refused(cluster: &Apart, why: &str) {
    let output = cluster.give_up(0);
    let said = words(&output);
    assert!(!output.status.success() && said.contains(why) && said.contains("(K0"), "{why:?} is not in: {said}");
}

/// Checks that the status names the command. Gives it, and checks its output.
fn gives_up(cluster: &Apart, status_says: &str, says: &[&str]) {
    wait_for("a status that names the command", || {
        let waits = waiting(&cluster.status()?).join("\n");
        let is_named = waits.contains("kasha admin give-up") && waits.contains(status_says);
        if is_named { Ok(()) } else { Err(waits) }
    });
    // A node that is called alive must be heard first: nobody knows yet that it is gone.
    let said = wait_for("a give-up that is not refused", || {
        let output = cluster.give_up(0);
        let said = words(&output);
        if output.status.success() {
            return Ok(said);
        }
        let is_alive = said.contains("is alive, and has not said") || said.contains("goes on, or waits for something");
        assert!(is_alive, "{said}");
        Err(said)
    });
    for word in says {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
}

#[test]
fn a_shard_that_serves_gives_nothing_up() {
    let cluster = Apart::start("give-up-serving", SIZE);
    let told = cluster.fill("before", 20);
    refused(&cluster, "shard-0 serves: there is nothing to give up (K0506)");
    let output = cluster.give_up(7);
    assert!(!output.status.success() && words(&output).contains("there is no shard-7 (K0506)"), "{}", words(&output));
    cluster.serves_all(&told);
}

/// The witness is gone for good, but the last primary is there, and its log is all that the shard needs.
#[test]
fn nothing_is_given_up_that_is_not_needed() {
    let (mut cluster, told) = killed("give-up-unneeded");
    cluster.lose_folder(3);
    start(&mut cluster, &[2, 4]);
    // The backup waits for the last primary or the witness. At first both count as alive.
    cluster.start_node(1);
    cluster.serves_all(&told);
    refused(&cluster, "shard-0 serves");
}

#[test]
fn the_last_primary_and_the_witness_are_lost() {
    let (mut cluster, told) = killed("give-up-witness");
    cluster.lose_folder(1);
    cluster.lose_folder(3);
    start(&mut cluster, &[2, 4]);
    let says = ["waits for a witness of list-", ": node-3", "Start node-1 instead", "What may be lost: updates"];
    gives_up(&cluster, "node-3 does not answer", &says);
    cluster.serves_all(&told);
    refused(&cluster, "shard-0 serves");
}

/// The backup's machine lost power, and the last primary's machine never returns. The witness kept what it held.
#[test]
fn a_member_is_lost_and_the_other_one_lost_power() {
    let (mut cluster, told) = killed("give-up-member");
    cluster.lose_folder(1);
    cluster.lose_power(2);
    start(&mut cluster, &[2, 3, 4]);
    let says =
        ["waits for the log of node-1", "with the logs of node-2", "What may be lost: whatever only these logs hold"];
    gives_up(&cluster, "waits for a member that surely holds the log; start node-1", &says);
    cluster.serves_all(&told);
}

/// The witness lost power, so the log of the last primary may hold what the witness lost. That primary never returns.
#[test]
fn a_member_is_lost_and_the_witness_lost_power() {
    let (mut cluster, told) = killed("give-up-unsure");
    cluster.lose_folder(1);
    cluster.lose_power(3);
    start(&mut cluster, &[2, 3, 4]);
    gives_up(&cluster, "no witness is sure: waits for every member; start node-1", &["waits for the log of node-1"]);
    cluster.serves_all(&told);
}

/// All machines lost power, and only the backup comes back: the log of the last primary is given up first, then the
/// witness.
#[test]
fn only_a_backup_that_lost_power_is_left() {
    let (mut cluster, told) = killed("give-up-both");
    cluster.lose_folder(1);
    cluster.lose_folder(3);
    cluster.lose_power(2);
    start(&mut cluster, &[2, 4]);
    gives_up(&cluster, "start node-1", &["waits for the log of node-1"]);
    gives_up(&cluster, "node-3 does not answer", &["waits for a witness of list-"]);
    cluster.serves_all(&told);
}
