//! Every planted bug is caught, by whom the table says, in as many seeds as it says. Run it with
//! `cargo test --release -p kasha-sim --features planted-bugs --test planted`.

#![cfg(feature = "planted-bugs")]

use kasha_sim::planted::{CAUGHT, Caught};
use kasha_sim::{RunReport, SimOptions, run};

/// What a run was stopped for, without the moment at which it was found, or the place of a panic.
fn found(report: &RunReport) -> Option<&str> {
    let text = report.violations.first()?.as_str();
    if text.starts_with("panicked at ") {
        return text.split_once('\n').map(|(_, message)| message);
    }
    let has_moment = text.split_once("s: ").filter(|(moment, _)| moment.parse::<f64>().is_ok());
    Some(has_moment.map_or(text, |(_, rest)| rest))
}

fn is_caught(row: &Caught) -> Result<u64, String> {
    let mut others = Vec::new();
    for seed in 0..row.seeds {
        let report = run(SimOptions { planted: Some(row.bug), ..SimOptions::new(row.scenario, seed) });
        match found(&report) {
            Some(text) if text.starts_with(row.by) => return Ok(seed),
            Some(text) => others.push(format!("seed {seed}: {text:.200}")),
            None => {}
        }
    }
    let (bug, scenario) = (row.bug.name(), row.scenario.name());
    Err(format!("{bug} was not caught by {} in {} seeds of {scenario}; {others:#?}", row.by, row.seeds))
}

#[test]
fn every_planted_bug_is_caught() {
    let mut escaped = Vec::new();
    for row in CAUGHT {
        match is_caught(row) {
            Ok(seed) => println!("{:26} {:16} seed {seed:2}  {}", row.bug.name(), row.scenario.name(), row.by),
            Err(why) => escaped.push(why),
        }
    }
    assert!(escaped.is_empty(), "{}", escaped.join("\n"));
}

#[test]
fn a_planted_bug_ends_with_its_run() {
    let row = &CAUGHT[0];
    let honest = run(SimOptions::new(row.scenario, 0));
    let planted = run(SimOptions { planted: Some(row.bug), ..SimOptions::new(row.scenario, 0) });
    assert!(planted.line().ends_with(&format!("--planted {}", row.bug.name())));
    assert_ne!(honest.digest, planted.digest);
    assert_eq!(run(SimOptions::new(row.scenario, 0)), honest);
}
