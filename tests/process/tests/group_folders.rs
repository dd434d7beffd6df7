//! The files of one member of the coordinator's group are older ones, or gone, or damaged. The others go on, and nobody has to help them.
#![allow(missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};

use kasha_process_tests::group::{Group, NODES};
use kasha_process_tests::place::{Folder, copy_folder, free_ports};
use kasha_process_tests::process::{Process, cli_says, command};
use rustix::process::Signal;

/// The leader is killed: whoever leads next does so with the member whose files are of another time.
#[test]
fn an_older_copy_of_a_members_files_is_put_back_and_it_learns_the_rest() {
    let mut group = Group::start("group-older", NODES);
    let mut written = 0;
    for member in [1, 3] {
        let (own, older) = (group.files_of_member(member), group.data(member).with_extension("older"));
        group.kill(member);
        copy_folder(&own, &older);
        group.start_node(member);
        group.wait_until_healthy();
        // Views, sessions and terms of which the copy knows nothing.
        for leads in [member, 2] {
            group.obeys(&["lead", "--node", &leads.to_string()]);
            group.write(written, written + 5);
            written += 5;
        }
        group.kill(member);
        group.wait_until_well();
        fs::remove_dir_all(&own).unwrap();
        fs::rename(&older, &own).unwrap();
        group.start_node(member);
        group.wait_until_healthy();
        group.all_is_there(written);
        let leader = group.leader();
        group.kill(leader);
        group.wait_until_well();
        group.write(written, written + 3);
        written += 3;
        group.start_node(leader);
        group.wait_until_healthy();
        group.all_is_there(written);
    }
}

/// The file of a journal that is in use: the other one is spent.
fn journal_in(files: &Path) -> PathBuf {
    let mut files = fs::read_dir(files).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| fs::read(path).unwrap().starts_with(b"KASHAVSR")).expect("a journal")
}

/// A member's files suffer harm while its process is away, and the process says so with these words. Another node takes its place, and then
/// any one of the members may be lost again.
fn the_others_go_on_after(name: &str, harm: impl Fn(&Path), words: &[&str]) {
    let mut group = Group::start(name, NODES + 1);
    group.write(0, 5);
    let harmed = group.leader();
    group.kill(harmed);
    harm(&group.files_of_member(harmed));
    for _ in 0..2 {
        group.spawn(harmed, &[]).fails_saying(words);
    }
    group.wait_until_well();
    group.all_is_there(5);
    group.write(5, 8);
    group.start_node(NODES + 1);
    group.wait_until_healthy();
    group.obeys(&["remove", "--node", &harmed.to_string()]);
    let members = group.members();
    assert!(members.len() == 3 && members.contains(&(NODES + 1)), "{members:?}");
    let leader = group.leader();
    group.kill(leader);
    group.write(8, 10);
    group.all_is_there(10);
}

#[test]
fn the_files_of_a_member_alone_are_lost() {
    let lose = |files: &Path| fs::remove_dir_all(files).unwrap();
    the_others_go_on_after("group-files", lose, &["/coordinator", "K0117"]);
}

#[test]
fn the_last_record_of_a_members_journal_is_damaged() {
    let damage = |files: &Path| {
        let journal = journal_in(files);
        let mut bytes = fs::read(&journal).unwrap();
        // Zeros follow the end mark of the last record.
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        bytes[end - 8..end].iter_mut().for_each(|byte| *byte ^= 0x5A);
        fs::write(&journal, bytes).unwrap();
    };
    the_others_go_on_after("group-record", damage, &["coordinator journal file", "is damaged", "K0109"]);
}

/// All members are in one process, which refuses to go on without one of them, and names what to put back.
#[test]
fn kasha_start_names_the_files_of_a_member_that_are_lost() {
    let (folder, port) = (Folder::new("group-files-start"), free_ports(6));
    let data = folder.path().join("d");
    let start = || {
        let words = ["start", "--data", data.to_str().unwrap(), "--port", &port.to_string(), "--memory-mib", "64"];
        Process::spawn(command(&words))
    };
    let mut first = start();
    first.wait_until_it_says("ready");
    cli_says(port, &["put", "kept", "v"]);
    first.stop(Signal::TERM);
    for node in [1, 3] {
        let (own, aside) = (data.join(format!("node-{node}/coordinator")), folder.path().join("aside"));
        fs::rename(&own, &aside).unwrap();
        start().fails_saying(&[&format!("node-{node}/coordinator"), "put back the newest copy", "K0117"]);
        let _ = fs::remove_dir_all(&own);
        fs::rename(&aside, &own).unwrap();
        let mut again = start();
        again.wait_until_it_says("ready");
        assert_eq!(cli_says(port, &["get", "kept"]), "v");
        again.stop(Signal::TERM);
    }
}
