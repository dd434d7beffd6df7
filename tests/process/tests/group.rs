//! A coordinator of three members: any one node may be lost, the leader's too, and nobody has to help.
#![allow(missing_docs)]

use std::collections::BTreeSet;
use std::fs;

use kasha_process_tests::cluster::Cluster;
use kasha_process_tests::group::{Group, NODES};
use kasha_process_tests::place::{Folder, free_ports, local};
use kasha_process_tests::process::{Process, cli, command, health, list, run};
use kasha_process_tests::wait_for;
use rustix::process::Signal;
use serde_json::Value as Json;

#[test]
fn the_leaders_node_is_killed_again_and_again_and_nobody_helps() {
    let mut group = Group::start("group", NODES);
    assert_eq!(group.members().len(), 3);
    let mut written = 0;
    for _ in 0..3 {
        let leader = group.leader();
        group.kill(leader);
        // A session begins, and values are written, while the leader is away: others lead.
        group.write(written, written + 5);
        written += 5;
        group.wait_until_well();
        group.start_node(leader);
        group.wait_until_healthy();
        group.all_is_there(written);
    }
}

#[test]
fn all_members_are_killed_and_two_of_them_come_back() {
    let mut group = Group::start("group-restart", NODES);
    group.write(0, 5);
    group.kill_all();
    [2, 3].into_iter().for_each(|node| group.start_node(node));
    group.wait_until_well();
    group.all_is_there(5);
    group.write(5, 8);
    group.start_node(1);
    group.wait_until_healthy();
    group.all_is_there(8);
}

/// The folder of the node that began the cluster is lost, too: that node had no other part in it than others.
#[test]
fn the_folder_of_any_node_may_be_lost() {
    for lost in [1, 3] {
        let mut group = Group::start("group-folder", NODES + 1);
        group.write(0, 5);
        group.kill(lost);
        fs::remove_dir_all(group.data(lost)).unwrap();
        group.wait_until_well();
        group.all_is_there(5);
        // A node of a new number takes the place of the one that is lost.
        group.start_node(NODES + 1);
        group.wait_until_healthy();
        group.write(5, 8);
        group.all_is_there(8);
    }
}

/// Its flags are those of the start that has begun the cluster, and its folder is new: it joins, and begins nothing.
#[test]
fn who_is_told_to_begin_a_cluster_that_there_is_joins_it() {
    let mut group = Group::start("group-begins", NODES);
    group.write(0, 3);
    group.kill(1);
    fs::remove_dir_all(group.data(1)).unwrap();
    group.start_node(1);
    // Its number is the lost node's, and its folder another one.
    group.take(1).fails_saying(&["K0502"]);
    group.wait_until_well();
    group.all_is_there(3);
}

/// Each node was given the address of one member, which is gone. A node that starts knows the others by its folder.
#[test]
fn by_default_any_node_may_be_lost_and_others_start_without_it() {
    let mut cluster = Cluster::start("group-default", "1s", NODES);
    let status = |cluster: &Cluster| -> Result<Json, String> {
        let output = run(&["status", "--json", "--address", &cluster.addresses().join(",")]);
        serde_json::from_slice(&output.stdout).map_err(|_| String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(list(&status(&cluster).unwrap()["group"]).len(), 3);
    cluster.kill(1);
    wait_for("others that serve", || {
        let status = status(&cluster)?;
        if status["well"] == true { Ok(()) } else { Err(status["summary"].to_string()) }
    });
    cluster.kill(2);
    cluster.start_node(2);
    wait_for("two nodes of three", || health(&status(&cluster)?, 2));
    assert_eq!(cli(cluster.port_of(3), &["incr", "count"]).status.code(), Some(0));
}

/// The member of the process says nothing for a moment, and others lead; then it is not in the group any more; and so on.
#[test]
fn an_operator_moves_members_and_the_lead() {
    let mut group = Group::start("group-orders", NODES + 1);
    group.start_node(NODES + 1);
    group.wait_until_healthy();
    for node in [2, 3, 1] {
        assert!(group.obeys(&["lead", "--node", &node.to_string()]).contains(&format!("node-{node} leads")));
        assert_eq!(group.leader(), node);
        group.write(5 * i64::from(node % 3), 5 * i64::from(node % 3));
    }
    group.write(0, 5);
    group.obeys(&["remove", "--node", "node-1"]);
    assert_ne!(group.leader(), 1);
    assert_eq!(group.members(), BTreeSet::from([2, 3, 4]));
    // The process of node 1 is a node and no member: whatever becomes of it, two more may not be lost.
    group.kill(1);
    group.write(5, 8);
    group.start_node(1);
    group.wait_until_healthy();
    let refused = group.order(&["add", "--node", "1"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("K0510"));
    let refused = group.order(&["size", "5"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("only 3 nodes"), "{refused:?}");
    group.obeys(&["size", "1"]);
    assert_eq!(group.members().len(), 1);
    group.all_is_there(8);
}

/// Each leads in turn. What the cluster was made with stays.
#[test]
fn flags_of_later_starts_change_nothing() {
    let mut group = Group::start("group-flags", NODES);
    group.write(0, 3);
    let made = |group: &Group| {
        let configuration = group.configuration();
        (configuration.faults, configuration.min_backups, configuration.nodes_wanted, configuration.group.len())
    };
    let before = made(&group);
    assert_eq!(before, (1, 1, NODES, 3));
    group.take(2).stop(Signal::TERM);
    group.start_node_with(2, &["--host-coordinator", "--nodes", "2", "--min-backups", "0", "--group", "1"]);
    group.wait_until_healthy();
    for leads in [2, 1, 2] {
        group.obeys(&["lead", "--node", &leads.to_string()]);
        group.write(3, 3);
        assert_eq!(made(&group), before, "node-{leads} leads");
    }
    group.all_is_there(3);
}

/// Folders are lost one after the other, each after another node has taken the place of the one before. Two at once are a majority.
#[test]
fn kasha_start_replaces_members_whose_folders_are_gone() {
    let (folder, port) = (Folder::new("group-start"), free_ports(6));
    let data = folder.path().join("d");
    let start_with = |flags: &[&str]| {
        let words = ["start", "--data", data.to_str().unwrap(), "--port", &port.to_string(), "--memory-mib", "64"];
        Process::spawn(command(&[&words, flags].concat()))
    };
    let start = || start_with(&[]);
    let members = |wanted: [u64; 3]| {
        wait_for("these members", || {
            let output = run(&["status", "--json", "--address", &local(port + 2).to_string()]);
            let status: Json = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
            let nodes: BTreeSet<u64> =
                list(&status["group"]).iter().filter_map(|member| member["node"].as_u64()).collect();
            // What was copied to a node that took a place is whole, too, before another folder is lost.
            health(&status, 3)?;
            if nodes == BTreeSet::from(wanted) { Ok(()) } else { Err(status["group"].to_string()) }
        });
    };
    for (lost, then) in [(None, [1, 2, 3]), (Some(3), [1, 2, 4]), (Some(1), [2, 4, 5])] {
        if let Some(lost) = lost {
            fs::remove_dir_all(data.join(format!("node-{lost}"))).unwrap();
        }
        let mut process = start();
        process.wait_until_it_says("ready");
        members(then);
        let status = run(&["status", "--verbose", "--address", &local(port + 2).to_string()]);
        let said = String::from_utf8_lossy(&status.stdout).into_owned();
        assert!(said.contains("3 members are on one machine") && said.contains("All is well"), "{said}");
        process.stop(Signal::TERM);
        // Whoever is left knows what the cluster was made for.
        start_with(&["--shards", "7"]).fails_saying(&["--shards 7", "shards = 3", "K0405"]);
    }
    for lost in [2, 4] {
        fs::rename(data.join(format!("node-{lost}")), folder.path().join(format!("node-{lost}"))).unwrap();
    }
    start().fails_saying(&["K0512", "node-2", "node-4"]);
    fs::rename(folder.path().join("node-2"), data.join("node-2")).unwrap();
    let mut process = start();
    process.wait_until_it_says("ready");
    process.stop(Signal::TERM);
}
