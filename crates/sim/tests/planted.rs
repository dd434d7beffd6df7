//! Every planted bug is caught by the checker that the table names, within as many seeds as it says. Run this with
//! `cargo test --release -p kasha-sim --features planted-bugs planted::`; `cargo xtask mutants` shows how often.

#![cfg(feature = "planted-bugs")]

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use kasha_sim::mutants::{Depth, Hints, Tried, try_all};
use kasha_sim::planted::{CAUGHT, Caught};
use kasha_sim::{SimOptions, run};

fn escaped(tried: &Tried) -> Option<String> {
    let Caught { bug, scenario, seeds, by } = tried.row;
    let text = || {
        let others = &tried.others;
        format!("{} was not caught by {by} in {seeds} seeds of {}; {others:#?}", bug.name(), scenario.name())
    };
    tried.caught.is_empty().then(text)
}

#[test]
fn every_planted_bug_is_caught() {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let hints =
        Hints::from_text(include_str!("../../../regressions/caught.txt"), CAUGHT).expect("the list is of CAUGHT");
    // A search for seeds that have moved takes long, and a test says nothing before its end. So this goes past the test's
    // captured output: who waits must see that the search goes on.
    let runs = AtomicU64::new(0);
    let (tried, _) = try_all(CAUGHT, &Depth::First(hints.clone()), false, jobs, || {
        let runs = runs.fetch_add(1, Ordering::Relaxed) + 1;
        if runs.is_multiple_of(50) {
            let _ = writeln!(
                std::io::stderr(),
                "planted bugs: {runs} runs, of about {} where no seed has moved",
                CAUGHT.len()
            );
        }
    });
    for Tried { row, caught, .. } in &tried {
        let seed = caught.first().map_or("never".to_owned(), u64::to_string);
        println!("{:30} {:24} seed {seed:>5}  {}", row.bug.name(), row.scenario.name(), row.by);
    }
    if Hints::of(&tried) != hints {
        println!("seeds have moved: cargo xtask mutants --first --hints regressions/caught.txt saves the search");
    }
    let escaped: Vec<String> = tried.iter().filter_map(escaped).collect();
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
