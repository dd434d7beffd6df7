//! `cargo run --release -p kasha-sim --example sweep -- SCENARIO|all START COUNT [JOBS [BUG]]`: runs seeds and
//! prints what they came to.

#![allow(clippy::disallowed_methods, reason = "a tool that measures itself")]

use kasha_sim::{Bug, RunReport, Scenario, SimOptions, run, sweep};

fn print(report: &RunReport) {
    println!("{}  # {} operations, {}, digest {}", report.line(), report.operations, report.ended, report.digest);
    for violation in &report.violations {
        println!("  {violation}");
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let name = arguments.first().map_or("swarm", String::as_str);
    let number =
        |index: usize, default: u64| arguments.get(index).map_or(default, |text| text.parse().expect("a number"));
    let scenarios: Vec<Scenario> = match Scenario::by_name(name) {
        Some(scenario) => vec![scenario],
        None => Scenario::TABLE.iter().map(|row| row.0).collect(),
    };
    let (start, count, jobs) = (number(1, 0), number(2, 1), number(3, 2));
    let planted = arguments.get(4).map(|name| Bug::by_name(name).expect("a planted bug's name"));
    if count <= 1 {
        let report = run(SimOptions { trace: number(2, 1) == 0, planted, ..SimOptions::new(scenarios[0], start) });
        print(&report);
        report.probes.iter().for_each(|(name, count)| println!("  {count:>8} {name}"));
        return;
    }
    let began = std::time::Instant::now();
    let total = sweep(start..start + count, &scenarios, usize::try_from(jobs).expect("few"), planted, |report| {
        if !report.violations.is_empty() {
            print(report);
        }
        true
    });
    total.probes.iter().for_each(|(name, count)| println!("  {count:>8} {name}"));
    println!(
        "{} runs, {} failed, {} operations, {:?}",
        total.runs,
        total.failed.len(),
        total.operations,
        began.elapsed()
    );
}
