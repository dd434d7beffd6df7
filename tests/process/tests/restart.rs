//! `kasha start` is killed, stopped, and started again with the same folder: all data is there.
#![allow(missing_docs)]

use std::io::{Read, Write};
use std::net::TcpListener;

use kasha_process_tests::place::{Folder, free_ports, is_free};
use kasha_process_tests::process::{
    Process, bare_command, cli, cli_says, command, die_with_this_thread, wait_until_healthy,
};
use kasha_process_tests::wait_for;
use rustix::process::{Pid, Signal, kill_process};

fn start(folder: &Folder, port: u16) -> Process {
    let (data, port) = (folder.path().to_str().unwrap(), port.to_string());
    let mut process = Process::spawn(command(&["start", "--data", data, "--port", &port, "--memory-mib", "64"]));
    process.wait_until_it_says("ready");
    process
}

#[test]
fn everything_is_there_after_kill_9() {
    let (folder, port) = (Folder::new("kill"), free_ports(4));
    let process = start(&folder, port);
    assert_eq!(cli_says(port, &["put", "greeting", "hello"]), "done (version 1)");
    assert_eq!(cli_says(port, &["get", "greeting"]), "hello");
    assert_eq!(cli_says(port, &["incr", "visits", "5"]), "5");
    assert_eq!(cli_says(port, &["--once", "order-42", "incr", "visits", "5"]), "10");
    assert_eq!(cli_says(port, &["--once", "order-42", "incr", "visits", "5"]), "10");
    cli_says(port, &["create-table", "accounts"]);
    for number in 0..30 {
        cli_says(port, &["--table", "accounts", "put", &format!("key:{number}"), &format!("value {number}")]);
    }
    process.kill();
    assert!((port..port + 4).all(is_free));

    let process = start(&folder, port);
    assert_eq!(cli_says(port, &["get", "greeting"]), "hello");
    assert_eq!(cli_says(port, &["--once", "order-42", "incr", "visits", "5"]), "10", "it happened once, before");
    assert_eq!(cli_says(port, &["get", "visits"]), "10");
    assert_eq!(cli_says(port, &["incr", "visits"]), "11");
    for number in 0..30 {
        assert_eq!(
            cli_says(port, &["--table", "accounts", "get", &format!("key:{number}")]),
            format!("value {number}")
        );
    }
    let other = cli(port, &["--once", "order-42", "incr", "visits", "6"]);
    assert_eq!(other.status.code(), Some(3), "another request under the same key");
    wait_until_healthy(port, 3);

    // Killed again at once, and again while it starts.
    process.kill();
    let (data, text) = (folder.path().to_str().unwrap().to_owned(), port.to_string());
    Process::spawn(command(&["start", "--data", &data, "--port", &text, "--memory-mib", "64"])).kill();
    let _process = start(&folder, port);
    assert_eq!(cli_says(port, &["get", "visits"]), "11");
}

#[test]
fn sigterm_and_ctrl_c_end_it_well() {
    let (folder, port) = (Folder::new("stop"), free_ports(4));
    for (round, signal) in (1..).zip([Signal::TERM, Signal::INT, Signal::TERM]) {
        let process = start(&folder, port);
        assert_eq!(cli_says(port, &["incr", "rounds"]), round.to_string());
        process.stop(signal);
        assert!((port..port + 4).all(is_free), "its ports are free again");
    }
}

/// An operator's script may send SIGTERM as soon as the cluster answers, before the process has told anybody that it is ready.
/// Here the process cannot tell it: nobody reads its output, which is full.
#[test]
fn sigterm_ends_it_well_before_it_has_said_that_it_is_ready() {
    // Taken, by this test or by another: what a start says of that is not waited for either.
    let _taken = TcpListener::bind("127.0.0.1:6379");
    let (folder, port) = (Folder::new("stop-early"), free_ports(4));
    let (data, text) = (folder.path().to_str().unwrap(), port.to_string());
    let (mut output, mut full) = std::io::pipe().unwrap();
    let room = rustix::pipe::fcntl_getpipe_size(&full).unwrap();
    full.write_all(&vec![b'\n'; room]).unwrap();
    let mut command = bare_command(&["start", "--data", data, "--port", &text, "--memory-mib", "64"]);
    command.stdout(full);
    die_with_this_thread(&mut command);
    let mut process = command.spawn().unwrap();
    drop(command);
    wait_for("an answer", || {
        let put = cli(port, &["put", "greeting", "hello"]);
        if put.status.success() { Ok(()) } else { Err(format!("{put:?}")) }
    });
    kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
    let mut said = String::new();
    output.read_to_string(&mut said).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(0), "{}", said.trim());
    let _process = start(&folder, port);
    assert_eq!(cli_says(port, &["get", "greeting"]), "hello");
}
