//! The files of witnesses, which a node maps, under somebody else's hands.
#![allow(missing_docs)]

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

use kasha_process_tests::cluster::Cluster;
use kasha_process_tests::load::Load;
use kasha_process_tests::process::Process;

const SIGBUS: i32 = 7;

/// The files that a process has mapped as witnesses.
fn mapped(process: &Process) -> Vec<PathBuf> {
    let maps = fs::read_to_string(format!("/proc/{}/maps", process.id())).unwrap();
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
    paths.filter(|path| path.ends_with(".slots")).map(PathBuf::from).collect()
}

/// What is cut off cannot be stored to. The process dies as from a failing disk: it says so, and has acknowledged nothing that is
/// not there.
#[test]
fn a_witness_file_is_cut_while_it_is_in_use() {
    let mut cluster = Cluster::start("mapped", "1s", 6);
    let load = Load::start(cluster.addresses());
    load.goes_on(300);
    let mut process = cluster.take(2);
    let files = mapped(&process);
    if files.is_empty() {
        eprintln!("SKIPPED: temporary files lie on a file system whose files are not mapped");
        return;
    }
    for file in files {
        File::options().write(true).open(file).unwrap().set_len(4096).unwrap();
    }
    let (status, said) = process.wait();
    assert_eq!(status.signal(), Some(SIGBUS), "{said}");
    assert!(said.contains("kasha: a page of a mapped file") && said.contains("K0116"), "{said}");
    cluster.start_node(2);
    cluster.wait_until_healthy();
    load.goes_on(300);
    load.ends_exact();
}
