//! The commands that a new user runs first: the demonstration, the benchmarks, one sweep of the simulator.
#![allow(missing_docs)]

use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use kasha_bench::rivals::Skipped;
use kasha_process_tests::place::Folder;
use kasha_process_tests::process::{lab, lab_command};
use serde_json::Value as Json;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn lab_run(words: &[&str]) -> Output {
    lab_command(words).output().expect("the binary starts")
}

#[test]
fn the_demonstration_loses_and_doubles_nothing() {
    // On a busy machine all primaries may come to the node that it spares. Then it says so, and asks for another seed.
    let tries = ["1", "2", "3"].map(|seed| move || lab_run(&["demo", "--seconds", "6", "--seed", seed]));
    let is_done = |output: &Output| !text(&output.stderr).contains("with another --seed");
    let output = tries.iter().map(|demo| demo()).find(is_done).expect("one of three has a primary to strike");
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}\n{errors}");
    for words in ["nothing lost, nothing doubled", "kill -9", "still believes to be primary", "Without: "] {
        assert!(said.contains(words), "{words:?} in {said}");
    }
}

#[test]
fn a_demonstration_without_any_driver_shows_nothing() {
    let folder = Folder::new("drivers");
    // Nothing that installs a driver is there.
    let mut demo = lab_command(&["demo", "--redis", "--kill", "node"]);
    let output = demo.env("PATH", folder.path()).env("TMPDIR", folder.path()).output().unwrap();
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(!output.status.success() && errors.contains("no driver could be installed"), "{said}\n{errors}");
    for driver in ["redis-py", "ioredis"] {
        assert!(said.contains(&format!("{driver} is left out: cannot start ")), "{said}");
    }
}

#[test]
fn the_benchmark_writes_its_ratios() {
    let folder = Folder::new("bench");
    let file = folder.path().join("latency.json");
    let path = file.to_str().unwrap();
    let output = lab_run(&[
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
        "--svg",
        folder.path().to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(folder.path().join("latency.svg").exists());
    let json: Json = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    for ratio in ["kasha/unreplicated", "kasha/sync"] {
        assert!(json["ratios"][ratio].as_f64().is_some_and(|ratio| ratio > 0.0), "{json}");
    }
    // Pitfall 15: the fast path can be lost silently.
    assert!(json["fast_path_rate"].as_f64().is_some_and(|rate| rate >= 0.9), "{json}");
}

/// Whether this machine cannot run the comparison, and the output says so.
fn is_skipped(output: &Output) -> bool {
    let said = text(&output.stdout);
    let is_skipped = output.status.success() && said.starts_with(Skipped::PREFIX);
    if is_skipped {
        eprintln!("{said}");
    }
    is_skipped
}

/// All stores are there, or the output says why not.
#[test]
fn the_comparison_measures_every_store_or_says_what_is_missing() {
    let folder = Folder::new("rivals");
    let file = folder.path().join("rivals.json");
    let brief = ["--delays", "100us", "--callers", "1,4,4-shared", "--rounds", "2", "--round-time", "200ms"];
    let (path, plots) = (file.to_str().unwrap(), folder.path().to_str().unwrap());
    let output = lab_run(&[&["bench", "rivals", "--json", path, "--svg", plots], &brief[..]].concat());
    let said = text(&output.stdout);
    if is_skipped(&output) {
        return;
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Json = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let results = json["results"].as_array().unwrap();
    assert_eq!(results.len(), 3 * 6, "{said}");
    for result in results {
        let number = |name: &str| result[name].as_f64().unwrap();
        assert!(number("operations") > 0.0 && number("p50_us") >= 200.0, "no packet is early: {result}");
        let is_ours = result["mode"].as_str().unwrap().starts_with("kasha");
        assert!(!is_ours || number("fast_path_rate") >= 0.5, "pitfall 15: {result}");
    }
    assert_eq!(json["networks"][0]["dropped"], 0);
    assert!(folder.path().join("rivals-100us.svg").exists());
    assert!(json["ratios"]["rivals.100us.kasha-fsync/etcd.p50"].is_f64(), "{json}");
}

#[test]
fn a_store_that_cannot_be_installed_is_skipped_and_one_that_dies_is_a_failure() {
    let folder = Folder::new("stores");
    let mut rivals = lab_command(&["bench", "rivals", "--delays", "100us", "--callers", "1", "--rounds", "1"]);
    // Neither the stores nor a way to install them is there.
    rivals.env("PATH", folder.path());
    let output = rivals.output().unwrap();
    assert!(is_skipped(&output), "{}{}", text(&output.stdout), text(&output.stderr));
    // Programs that print their version, and do nothing else.
    for name in ["etcd", "redis-server"] {
        let program = folder.path().join(name);
        std::fs::write(&program, "#!/bin/sh\ntest \"$1\" = --version\n").unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    }
    rivals.env("TMPDIR", folder.path());
    let output = rivals.output().unwrap();
    if is_skipped(&output) {
        return;
    }
    let errors = text(&output.stderr);
    // The scheduler decides which of the three ends is seen first.
    let is_named = errors.contains("etcd on host ") && errors.contains(" ended by itself");
    assert!(!output.status.success() && is_named, "{errors}");
}

fn benchmark(arguments: &[&str]) -> Json {
    let folder = Folder::new("bench");
    let file = folder.path().join("report.json");
    let (tables, plots) = (folder.path().join("report.md"), folder.path().join("plots"));
    let [file_path, tables_path, plots_path] = [&file, &tables, &plots].map(|path| path.to_str().unwrap());
    let written = ["--json", file_path, "--markdown", tables_path, "--svg", plots_path];
    let output = lab_run(&[&["bench"], arguments, &["--rounds", "2", "--round", "50ms"], &written[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(std::fs::read_to_string(&tables).unwrap().contains("\nTargets:\n\n| figure |"));
    serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap()
}

#[test]
fn many_clients_are_really_there_and_weighed() {
    let json = benchmark(&["clients", "--states", "3000"]);
    assert_eq!(json["ratios"]["clients.states"], 3000.0, "{json}");
    assert!(json["ratios"]["clients.bytes_each"].as_f64().is_some_and(|bytes| bytes > 50.0), "{json}");
    assert!(json["ratios"]["clients.many/one.p50"].as_f64().is_some_and(|ratio| ratio > 0.0), "{json}");
    assert_eq!(json["targets"].as_array().unwrap().len(), 2, "{json}");
}

#[test]
fn a_recovery_is_one_of_a_shard_that_was_filled() {
    // The time is over after the first point.
    let json = benchmark(&["recovery", "--mebibytes", "16", "--patience", "1s"]);
    let row = &json["sections"][0]["tables"][0]["rows"][0];
    assert!(row["log MiB"].as_u64().is_some_and(|mebibytes| mebibytes >= 16), "{json}");
    assert!(row["operations"].as_u64().is_some_and(|operations| operations > 10_000), "{json}");
    assert!(json["ratios"]["recovery.largest.leases"].as_f64().is_some_and(|leases| leases > 0.0), "{json}");
}

#[test]
fn an_outage_is_one_that_some_keys_feel() {
    let json = benchmark(&["outage", "--patience", "1s"]);
    assert!(json["ratios"]["outage.neighbour.during/before.p50"].as_f64().is_some_and(|ratio| ratio > 0.0), "{json}");
    // The keys of the killed primary pause: no node takes over within half a lease.
    let row = &json["sections"][0]["tables"][1]["rows"][0];
    assert!(row["paused, own sessions"].as_u64().is_some_and(|keys| keys >= 4), "{json}");
}

/// Every server is there, or the report says what is missing.
#[test]
fn the_redis_protocol_is_measured_beside_redis() {
    let json = benchmark(&["redis", "--patience", "1s"]);
    let section = &json["sections"][0];
    let about = section["about"].as_str().unwrap();
    if about.starts_with(Skipped::PREFIX) {
        eprintln!("{about}");
        return;
    }
    let is_alone = about.contains("f = 1 was not measured");
    let tables = section["tables"].as_array().unwrap();
    assert_eq!(tables.len(), if is_alone { 1 } else { 2 }, "{json}");
    for row in tables.iter().flat_map(|table| table["rows"].as_array().unwrap()) {
        assert!(row["commands/s"].as_f64().is_some_and(|commands| commands > 0.0), "{row}");
    }
    let targets = json["targets"].as_array().unwrap();
    assert_eq!(targets.len(), 16, "{json}");
    let measured = targets.iter().filter(|target| target["found"].as_f64().is_some_and(|found| found > 0.0));
    assert_eq!(measured.count(), if is_alone { 8 } else { 16 }, "{json}");
    for row in tables.iter().skip(1).flat_map(|table| table["rows"].as_array().unwrap()) {
        let round_trips =
            if ["kasha-node", "redis-wait1"].contains(&row["server"].as_str().unwrap()) { 2.0 } else { 1.0 };
        assert!(row["p50 µs"].as_f64().unwrap() >= 500.0 * round_trips, "no packet is early: {row}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let kasha = lab().display();
    let piped = format!("{kasha} sim --seeds 3 | head -1; {kasha} sim --scenario list | head -1");
    let output = std::process::Command::new("sh").args(["-c", &piped]).output().unwrap();
    let said = text(&output.stderr);
    assert!(!said.contains("panicked"), "{said}");
}

/// A benchmark that measures nothing, or whose result could not be written, is refused.
#[test]
fn what_proves_nothing_is_refused() {
    let (folder, nowhere) = (Folder::new("nothing"), "/nonexistent/report.json");
    for (words, why) in [
        (&["bench", "floor", "--round", "0s"][..], "give longer rounds"),
        (&["bench", "floor", "--json", nowhere], "cannot write /nonexistent/report.json"),
        (&["bench", "all", "--markdown", nowhere], "cannot write /nonexistent/report.json"),
        (&["bench", "latency", "--svg", "/dev/null/plots"], "cannot create /dev/null/plots"),
        (&["demo", "--redis", "--kill", "coordinator"], "--redis is for --kill node"),
        (&["sim", "--seeds", "0"], "0 is not in 1.."),
        (&["sim", "--start", "18446744073709551615"], "begin earlier"),
    ] {
        let output = lab_command(words).env("TMPDIR", folder.path()).output().unwrap();
        let errors = text(&output.stderr);
        assert!(
            !output.status.success() && errors.contains(why) && !errors.contains("panicked"),
            "{words:?}: {errors}"
        );
        assert_eq!(text(&output.stdout), "", "{words:?}");
    }
}
