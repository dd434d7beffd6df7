//! What a newcomer reads first, tried: the README's program as a crate of its own, and what the shell says to slips.

use std::path::Path;
use std::process::{Command, Stdio};

use kasha_process_tests::cluster::Cluster;
use kasha_process_tests::place::{Folder, free_ports};
use kasha_process_tests::process::{Process, bare_command, cli, cli_says, command};

const README: &str = include_str!("../../../../README.md");

fn block(language: &str) -> &'static str {
    let block = README.split_once(&format!("```{language}\n")).expect("a block of it").1;
    block.split_once("```").expect("its end").0
}

/// Found by a newcomer: the README's lines of Rust were no program.
#[test]
fn the_readme_s_program_compiles_as_a_crate_of_its_own_and_books_once() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).canonicalize().expect("the repository");
    let folder = Folder::new("readme-crate");
    let client = root.join("crates/client");
    let dependencies = block("toml").replace("../kasha/crates/client", client.to_str().expect("text"));
    let manifest = format!("[package]\nname = \"mine\"\nedition = \"2024\"\n\n{dependencies}\n[workspace]\n");
    std::fs::create_dir_all(folder.path().join("src")).expect("a folder");
    std::fs::write(folder.path().join("Cargo.toml"), manifest).expect("a file");
    std::fs::write(folder.path().join("src/main.rs"), block("rust")).expect("a file");
    // The versions that this repository is tested with, which are here already.
    std::fs::copy(root.join("Cargo.lock"), folder.path().join("Cargo.lock")).expect("a file");
    let own = std::env::current_exe().expect("a test is a file");
    let target = own.ancestors().nth(3).expect("a test lies in a target folder").join("readme-crate");
    let cluster = Cluster::start("readme", "500ms", 3);
    cluster.wait_until_healthy();
    for calls in ["value: 1", "value: 2"] {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["run", "--quiet", "--offline", "--target-dir"]).arg(&target).current_dir(folder.path());
        let output = cargo.env("KASHA_ADDRESS", cluster.addresses().join(",")).stdin(Stdio::null()).output();
        let output = output.expect("cargo runs");
        let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{errors}");
        assert!(said.contains("alice has spent 10\n"), "order 42 is booked once: {said}");
        assert!(said.contains(calls), "{calls}: {said}");
    }
}

/// Found by a newcomer: ten seconds of silence.
#[test]
fn the_shell_says_soon_that_nobody_is_there_and_goes_on_when_somebody_comes() {
    let folder = Folder::new("nobody");
    let port = free_ports(4);
    let address = format!("127.0.0.1:{port}");
    let mut asks = Process::spawn(command(&["cli", "--address", &address, "get", "a"]));
    asks.wait_until_it_says(&format!("nobody answers at {address}: trying for two more seconds"));
    asks.fails_saying(&["no cluster answers", "kasha start", "K0208"]);
    // A frozen process listens, and does not answer: that is another thing.
    let data = folder.path().to_str().expect("text").to_owned();
    let mut start =
        Process::spawn(command(&["start", "--data", &data, "--port", &port.to_string(), "--memory-mib", "64"]));
    start.wait_until_it_says("ready");
    start.signal(rustix::process::Signal::STOP);
    let mut asks = Process::spawn(command(&["cli", "--address", &address, "get", "a"]));
    asks.wait_until_it_says("somebody listens at");
    start.signal(rustix::process::Signal::CONT);
    let (ended, said) = asks.wait();
    assert_eq!(ended.code(), Some(3), "there is no value: {said}");
}

#[test]
fn slips_are_answered_with_what_was_meant() {
    let cluster = Cluster::start("slips", "500ms", 1);
    let output = command(&["get", "a"]).output().expect("the binary starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("kasha cli get"), "{said}");
    assert!(cli_says(cluster.port(), &["put", "neg", "-5"]).starts_with("done"));
    assert_eq!(cli_says(cluster.port(), &["incr", "neg", "-2"]), "-7");
    assert_eq!(cli_says(cluster.port(), &["get", "neg"]), "-7");
    let output = cli(cluster.port(), &["put", "neg", "--no-such-flag"]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    // The shell reads the same variable as `Client::connect_env`.
    let mut by_name = bare_command(&["cli", "get", "neg"]);
    let output = by_name.env("KASHA_ADDRESS", cluster.addresses().join(",")).output().expect("the binary starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "-7\n");
}
