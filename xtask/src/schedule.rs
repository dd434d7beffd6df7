//! Runs stages in their order, and beside them those that wait more than they compute.
//!
//! The output of a stage beside others is printed in one piece, when the stage that it ran beside is over. When one stage fails, the
//! programs of the others are ended, and no other stage begins.

use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};
use std::time::Instant;

use anyhow::{Result, anyhow};

use crate::stop::Stop;
use crate::watch::Watch;
use crate::workspace::Workspace;

/// When a stage runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// After the stages above it.
    Next,
    /// It waits more than it computes: it begins after the stages above it, and runs beside those below it.
    Beside,
    /// It measures seconds: nothing runs beside it.
    Alone,
}

/// What came of a stage that did not fail.
pub(crate) enum Outcome {
    Done,
    /// The number of tests that passed.
    Passed(u64),
    /// The reason why there was nothing to do.
    Skipped(&'static str),
}

/// A stage of `cargo xtask test`.
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    /// The budget in seconds, from an empty target folder on two cores.
    pub(crate) budget: u64,
    pub(crate) is_quick: bool,
    pub(crate) turn: Turn,
    pub(crate) run: fn(&Workspace, &Watch) -> Result<Outcome>,
}

/// What all stages came to.
pub(crate) struct Report {
    /// A line for each stage.
    pub(crate) table: Vec<String>,
    pub(crate) seconds: f64,
    /// The number of tests that passed, if a stage has tests.
    pub(crate) passed: Option<u64>,
}

/// A stage that is over.
struct Ended {
    name: &'static str,
    /// Its output, if it was kept.
    kept: String,
    result: Result<Line>,
}

/// A line of the table, and the number of tests that passed.
type Line = (String, Option<u64>);

/// Runs the stages. The error is that of the first one that failed.
pub(crate) fn run(stages: &[&Stage], workspace: &Workspace) -> Result<Report> {
    let (started, stop) = (Instant::now(), Arc::new(Stop::default()));
    let mut all = Vec::new();
    thread::scope(|scope| {
        let mut beside: Vec<ScopedJoinHandle<'_, Ended>> = Vec::new();
        for (index, &stage) in stages.iter().enumerate() {
            if stage.turn == Turn::Alone {
                finish(&mut beside, |_| true, &mut all);
            }
            if stop.has_failed() {
                break;
            }
            if stage.turn == Turn::Beside && index + 1 < stages.len() {
                println!("== {} begins, beside the next stages", stage.name);
                let stop = &stop;
                beside.push(scope.spawn(move || perform(stage, workspace, stop, true)));
            } else {
                println!("== {}", stage.name);
                show(perform(stage, workspace, &stop, false), &mut all);
            }
            finish(&mut beside, ScopedJoinHandle::is_finished, &mut all);
        }
        finish(&mut beside, |_| true, &mut all);
    });
    let mut report = Report { table: Vec::new(), seconds: started.elapsed().as_secs_f64(), passed: None };
    for (line, passed) in all.into_iter().collect::<Result<Vec<_>>>()? {
        report.table.push(line);
        report.passed = passed.map_or(report.passed, |count| Some(report.passed.unwrap_or(0) + count));
    }
    Ok(report)
}

/// Waits for these of the stages that run beside others.
fn finish<'s>(
    beside: &mut Vec<ScopedJoinHandle<'s, Ended>>,
    which: impl Fn(&ScopedJoinHandle<'s, Ended>) -> bool,
    all: &mut Vec<Result<Line>>,
) {
    for handle in beside.extract_if(.., |handle| which(handle)) {
        show(handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), all);
    }
}

/// Prints what a stage came to; its error comes last of all.
fn show(ended: Ended, all: &mut Vec<Result<Line>>) {
    if !ended.kept.is_empty() {
        println!("== {}, beside the stages above\n{}", ended.name, ended.kept.trim_end());
    }
    if let Ok((line, _)) = &ended.result {
        println!("{line}");
    }
    all.push(ended.result);
}

/// Runs one stage to its end.
fn perform(stage: &Stage, workspace: &Workspace, stop: &Arc<Stop>, kept: bool) -> Ended {
    let Stage { name, budget, run, .. } = *stage;
    let watch = Watch::of_stage(stop, kept);
    let result = run(workspace, &watch);
    let seconds = watch.elapsed().as_secs_f64();
    let result = match result {
        Ok(outcome) => {
            let (note, passed) = match outcome {
                Outcome::Done => (String::new(), None),
                Outcome::Passed(count) => (format!("  {count} passed"), Some(count)),
                Outcome::Skipped(why) => (format!("  skipped: {why}"), None),
            };
            let beside = if kept { ", beside others" } else { "" };
            Ok((format!("{}{note}{beside}{}", row(name, seconds, budget), watch.apart()), passed))
        }
        Err(error) if stop.fail() => Err(anyhow!(
            "{error:#}\nstage {name} failed after {seconds:.1} s; run it again: cargo xtask test --stage {name}"
        )),
        Err(_) => Ok((format!("{name:<13}was ended, because another stage has failed"), None)),
    };
    Ended { name, kept: watch.kept(), result }
}

/// A line of the table. A time over the budget is a warning, and no failure.
pub(crate) fn row(name: &str, seconds: f64, budget: u64) -> String {
    let warning = if seconds > budget as f64 { "  warning: over its budget" } else { "" };
    format!("{name:<13}{seconds:>7.1} s, budget {budget:>4} s{warning}")
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn workspace() -> Workspace {
        let metadata = r#"{"workspace_root": "/r", "target_directory": "/t", "packages": []}"#;
        Workspace::parse(&serde_json::from_str(metadata).unwrap()).unwrap()
    }

    fn stage(name: &'static str, turn: Turn, run: fn(&Workspace, &Watch) -> Result<Outcome>) -> Stage {
        Stage { name, budget: 1, is_quick: false, turn, run }
    }

    fn shell(watch: &Watch, script: &str) -> Result<Outcome> {
        watch.run(Command::new("sh").args(["-c", script])).map(|lines| Outcome::Passed(lines.len() as u64))
    }

    /// A time over the budget, even ten times as long, used to be a failure.
    #[test]
    fn time_over_a_budget_is_a_warning_in_the_table() {
        assert_eq!(row("build", 139.9, 140), "build          139.9 s, budget  140 s");
        assert!(row("build", 1400.0, 140).ends_with("warning: over its budget"));
    }

    #[test]
    fn what_measures_seconds_has_the_machine_for_itself() {
        static ENDED: AtomicU64 = AtomicU64::new(0);
        let beside = stage("beside", Turn::Beside, |_, watch| {
            let outcome = shell(watch, "sleep 0.3; echo one; echo two >&2; echo three");
            assert_eq!(ENDED.fetch_add(1, Ordering::SeqCst), 1, "the next stage did not wait");
            outcome
        });
        let next = stage("next", Turn::Next, |_, _| {
            assert_eq!(ENDED.fetch_add(1, Ordering::SeqCst), 0);
            Ok(Outcome::Done)
        });
        let alone = stage("alone", Turn::Alone, |_, watch| {
            assert_eq!(ENDED.load(Ordering::SeqCst), 2);
            shell(watch, "echo four")
        });
        let report = run(&[&beside, &next, &alone], &workspace()).unwrap();
        assert_eq!(report.passed, Some(3));
        let names: Vec<_> = report.table.iter().map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(names, ["next", "beside", "alone"]);
    }

    #[test]
    fn the_output_of_a_stage_beside_others_is_kept() {
        let watch = Watch::of_stage(&Arc::default(), true);
        shell(&watch, "echo one; sleep 0.1; echo two >&2; sleep 0.1; echo three").unwrap();
        watch.say("four");
        assert_eq!(watch.kept(), "one\ntwo\nthree\nfour\n");
    }

    /// Whichever of them fails: the other one would go on for ten minutes.
    #[test]
    fn when_a_stage_fails_the_programs_of_the_others_are_ended() {
        if Watch::start().is_attended() {
            return;
        }
        let hangs = |_: &Workspace, watch: &Watch| shell(watch, "sleep 600 & sleep 600");
        let fails = |_: &Workspace, watch: &Watch| shell(watch, "sleep 0.2; exit 3");
        let never = stage("never", Turn::Next, |_, _| panic!("it began after a failure"));
        for (first, second) in [(hangs as fn(&_, &_) -> _, fails as fn(&_, &_) -> _), (fails, hangs)] {
            let (first, second) = (stage("one", Turn::Beside, first), stage("other", Turn::Next, second));
            let error = run(&[&first, &second, &never], &workspace()).err().unwrap().to_string();
            assert!(error.contains("exit 3") || error.contains("exit status: 3"), "{error}");
        }
    }
}
