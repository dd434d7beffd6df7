//! A program that was written from `docs/wire.md` alone connects, puts and gets.

use std::path::Path;
use std::process::{Command, Stdio};

use kasha_process_tests::cluster::Cluster;

/// The interpreter's command, if there is one that can do it.
fn python() -> Option<&'static str> {
    let runs = |name: &&str| {
        let asks = "import sys; sys.exit(sys.version_info < (3, 6))";
        Command::new(name).args(["-c", asks]).stdin(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    ["python3", "python"].into_iter().find(runs)
}

/// Found by outsiders: the page had all tables, and nobody could write a client from it.
#[test]
fn a_program_written_from_the_page_connects_puts_and_gets() {
    let Some(python) = python() else {
        eprintln!("left out: there is no Python 3 here");
        return;
    };
    let mut cluster = Cluster::start("wire-page", "500ms", 4);
    cluster.wait_until_healthy();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("wire_client.py");
    for (node, counted) in [(1, "counted from 0 to 5"), (2, "counted from 5 to 10")] {
        let address = format!("127.0.0.1:{}", cluster.port_of(node));
        let output = Command::new(python).arg(&program).arg(address).stdin(Stdio::null()).output().expect("it runs");
        let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{said}{errors}");
        assert!(said.contains(counted) && said.contains("all is well"), "{said}");
    }
    // What it has put is what every other client sees.
    assert_eq!(cluster.cli(&["--table", "wire_client", "get", "{key-1}count"]).trim(), "10");
    cluster.is_unharmed();
}
