//! A few seeds of every scenario. `kasha-lab sim` runs more.

use kasha_sim::{Scenario, SimOptions, run, sweep};

fn scenarios() -> Vec<Scenario> {
    Scenario::TABLE.iter().map(|row| row.0).collect()
}

/// A third of them, because a run takes long without optimizations. CI does all of them, many times, in its stage `sim`.
#[test]
fn every_scenario_holds() {
    let scenarios: Vec<_> = scenarios().into_iter().step_by(3).collect();
    let total = sweep(0..scenarios.len() as u64, &scenarios, 2, None, |_| true);
    let failed: Vec<_> = total.failed.iter().map(|report| (report.line(), &report.violations)).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    for reached in ["fail-overs", "witness list changes", "joiners", "witness requests replayed", "executed: Fast"] {
        assert!(total.probes.get(reached) > 0, "no run reached: {reached}");
    }
}

#[test]
fn a_line_repeats_its_run() {
    let first = run(SimOptions::new(Scenario::Swarm, 7));
    assert_eq!(first.line(), "kasha-lab sim --scenario swarm --seed 7");
    assert_eq!(run(SimOptions::new(Scenario::Swarm, 7)), first);
    assert_ne!(run(SimOptions::new(Scenario::Swarm, 8)).digest, first.digest);
}

#[test]
fn a_sweep_has_one_digest_in_any_order() {
    let scenarios = [Scenario::FastPath, Scenario::Crash];
    let digest = |jobs| sweep(1..4, &scenarios, jobs, None, |_| true).digest();
    assert_eq!(digest(1), digest(3));
}
