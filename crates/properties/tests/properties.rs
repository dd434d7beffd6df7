//! Checks every property: of its first inputs and changes of them, of drawn inputs, and of inputs that once broke it.

use std::path::{Path, PathBuf};

use kasha_properties::{TARGETS, Target};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};

fn regressions() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/regressions")
}

/// Changes of an input, as a fuzzer makes them: places, and the bytes that come there.
type Changes = Vec<(Index, Vec<u8>)>;

fn changed(mut input: Vec<u8>, changes: Changes) -> Vec<u8> {
    for (at, bytes) in changes {
        let at = at.index(input.len() + 1);
        match bytes.len() {
            0 => input.truncate(at),
            1..4 => input.splice(at..(at + bytes.len()).min(input.len()), bytes).for_each(drop),
            _ => input.splice(at..at, bytes).for_each(drop),
        }
    }
    input
}

/// Checks the property of drawn inputs. A failing one is made small and kept in a file.
fn check<S: Strategy<Value = Vec<u8>>>(target: &Target, cases: u32, inputs: S) {
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        max_shrink_time: 20_000,
        ..Config::default()
    };
    let failure = TestRunner::new(config).run(&inputs, |input| {
        (target.check)(&input);
        Ok::<(), TestCaseError>(())
    });
    let Err(TestError::Fail(reason, input)) = failure else { return failure.map_err(|e| e.to_string()).unwrap() };
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-failed", target.name));
    std::fs::write(&file, &input).expect("a file for the input");
    panic!(
        "{reason}\n{}\nthe input is in {}: once it is understood, it goes to fuzz/regressions/{}",
        (target.show)(&input),
        file.display(),
        target.name
    );
}

fn property(name: &str, cases: u32) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target of this name");
    let seeds = (target.seeds)();
    seeds.iter().for_each(|seed| (target.check)(seed));
    check(target, cases, vec(any::<u8>(), 0..target.input_bytes_max));
    let changes = vec((any::<Index>(), vec(prop_oneof![any::<u8>(), 0..4_u8], 0..6)), 1..4);
    let inputs = (proptest::sample::select(seeds), changes).prop_map(|(seed, changes)| changed(seed, changes));
    check(target, cases, inputs);
}

macro_rules! properties {
    ($($name:ident: $cases:literal,)*) => {
        $(#[test] fn $name() { property(stringify!($name), $cases); })*

        /// Each target has a test above, and a program that a fuzzer can run.
        #[test]
        fn no_target_is_forgotten() {
            let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
            let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/Cargo.toml");
            let manifest = std::fs::read_to_string(manifest).expect("the fuzzers' manifest");
            let programs = manifest.lines().filter_map(|line| line.strip_prefix("path = \"fuzz_targets/"));
            let programs: Vec<&str> = programs.filter_map(|rest| rest.strip_suffix(".rs\"")).collect();
            assert_eq!(names, programs);
        }
    };
}

properties! {
    frames: 2000,
    streams: 2000,
    payloads: 8000,
    bodies: 8000,
    results: 4000,
    log_history: 80,
    log_files: 200,
    log_appends: 100,
    log_replicas: 30,
    records: 4000,
    marks: 4000,
    tracker_history: 300,
    witness_history: 300,
    witness_file: 200,
    coordinator_files: 150,
    coordinator_records: 2000,
    coordinator_journal: 400,
    coordinator_operations: 300,
    coordinator_frames: 30,
    node_strangers: 10,
    node_peers: 20,
    redis_requests: 8000,
    redis_replies: 4000,
}

/// Inputs that once broke a property are checked again.
#[test]
fn regressions_stay_mended() {
    let mut replayed = 0;
    for folder in std::fs::read_dir(regressions()).expect("the folder of regressions") {
        let folder = folder.expect("an entry").path();
        if !folder.is_dir() {
            continue;
        }
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        let target = TARGETS.iter().find(|target| target.name == name);
        let target = target.unwrap_or_else(|| panic!("{name} is no target"));
        for file in std::fs::read_dir(&folder).expect("a folder") {
            let file = file.expect("an entry").path();
            println!("{}", file.display());
            (target.check)(&std::fs::read(&file).expect("a regression"));
            replayed += 1;
        }
    }
    println!("{replayed} regressions");
}
