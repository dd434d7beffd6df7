//! A few runs have the digests that are committed, in every build: planted bugs that are not planted, the hooks of tests,
//! assertions and optimizations change nothing of what happens. `UPDATE=1 cargo test -p kasha-sim digests::` writes the list anew
//! after a change of what happens.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;

use kasha_sim::cover::from_text;
use kasha_sim::sweep::run_each;
use kasha_sim::{Scenario, SimOptions};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/digests.txt");
const HEAD: &str =
    "# A scenario, a seed, the digest of the run: `UPDATE=1 cargo test -p kasha-sim digests::` writes this file.\n";

/// What the list says, without the digests.
fn runs(text: &str) -> Vec<(Scenario, u64)> {
    let runs =
        text.lines().map(|line| line.rsplit_once(' ').filter(|_| !line.starts_with('#')).map_or("", |run| run.0));
    from_text(&runs.collect::<Vec<_>>().join("\n")).expect("a scenario, a seed and a digest in each line")
}

#[test]
fn a_run_has_one_digest_in_every_build() {
    let committed = std::fs::read_to_string(FILE).expect("the list is committed");
    let listed = runs(&committed);
    assert!(listed.len() >= 5, "the list is too short to say much");
    let digests = Mutex::new(BTreeMap::new());
    let options = listed.iter().map(|&(scenario, seed)| SimOptions::new(scenario, seed));
    let report = run_each(options, 2, |run| {
        digests.lock().unwrap().insert((run.options.scenario, run.options.seed), run.digest);
        true
    });
    assert!(report.failed.is_empty(), "{:#?}", report.failed);
    let (digests, mut now) = (digests.into_inner().unwrap(), HEAD.to_owned());
    for run in listed {
        writeln!(now, "{} {} {}", run.0.name(), run.1, digests[&run]).unwrap();
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(FILE, &now).expect("the list can be written");
        return;
    }
    assert_eq!(
        now, committed,
        "runs differ from the list: in this build only, or since a change (UPDATE=1 writes it anew)"
    );
}
