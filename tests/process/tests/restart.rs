//! `kasha start` is killed, stopped, and started again with the same folder: all data is there.
#![allow(missing_docs)]

use kasha_process_tests::place::{Folder, free_ports, is_free};
use kasha_process_tests::process::{Process, cli, cli_says, command, wait_until_healthy};
use rustix::process::Signal;

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
