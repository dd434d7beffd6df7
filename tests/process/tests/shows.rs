//! What a newcomer runs first: the demonstration, the benchmark, one sweep of the simulator.
#![allow(missing_docs)]

use kasha_process_tests::place::Folder;
use kasha_process_tests::process::run;
use serde_json::Value as Json;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_demonstration_loses_and_doubles_nothing() {
    let output = run(&["demo", "--seconds", "6"]);
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}\n{errors}");
    for words in ["nothing lost, nothing doubled", "kill -9", "still believes to be primary", "Without: "] {
        assert!(said.contains(words), "{words:?} in {said}");
    }
}

#[test]
fn the_benchmark_writes_its_ratios() {
    let folder = Folder::new("bench");
    let file = folder.path().join("latency.json");
    let path = file.to_str().unwrap();
    let output = run(&[
        "bench",
        "latency",
        "--faults",
        "1",
        "--link-delay",
        "200us",
        "--rounds",
        "2",
        "--operations",
        "100",
        "--json",
        path,
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Json = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    for ratio in ["kasha/unreplicated", "kasha/sync"] {
        assert!(json["ratios"][ratio].as_f64().is_some_and(|ratio| ratio > 0.0), "{json}");
    }
    // Pitfall 15: the fast path can be lost silently.
    assert!(json["fast_path_rate"].as_f64().is_some_and(|rate| rate >= 0.9), "{json}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let kasha = kasha_process_tests::process::binary().display();
    let piped = format!("{kasha} sim --seeds 3 | head -1; {kasha} sim --scenario list | head -1");
    let output = std::process::Command::new("sh").args(["-c", &piped]).output().unwrap();
    let said = text(&output.stderr);
    assert!(!said.contains("panicked"), "{said}");
}
