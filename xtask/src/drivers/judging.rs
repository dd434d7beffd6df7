//! What a program says, and whether a counter agrees with it: acknowledged ≤ value ≤ acknowledged + what may have been executed besides.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// The steps that every program goes through (tests/drivers).
pub(crate) const STEPS: [&str; 8] = ["connect", "strings", "expiry", "pipeline", "multi", "watch", "scan", "errors"];

/// How the steps of a program went.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Steps {
    /// The version that the driver says it has.
    pub(crate) version: String,
    pub(crate) passed: usize,
    pub(crate) skipped: Vec<String>,
    /// What went wrong, by step.
    pub(crate) failed: Vec<(String, String)>,
}

impl Steps {
    /// Reads the line that a program prints. A step may be skipped only if it needs a feature that is not there yet.
    pub(crate) fn parse(line: &str, features: &[&str]) -> Result<Self> {
        let said: Value = serde_json::from_str(line).with_context(|| format!("no JSON: {line}"))?;
        let texts = |list: &Value| list.as_array().map(|list| list.iter().filter_map(text).collect::<Vec<_>>());
        let version = text(&said["version"]).context("no version")?;
        let passed = texts(&said["passed"]).context("no list of what passed")?;
        let skipped = texts(&said["skipped"]).context("no list of what was skipped")?;
        let failed = said["failed"].as_object().context("nothing of what failed")?;
        let mut failed: Vec<_> = failed.iter().map(|(step, why)| (step.clone(), said_or(why))).collect();
        for step in STEPS {
            let has = |list: &[String]| list.iter().any(|name| name == step);
            if has(&skipped) && (step != "scan" || features.contains(&step)) {
                failed.push((step.to_owned(), "was skipped".to_owned()));
            } else if !has(&passed) && !has(&skipped) && !failed.iter().any(|(name, _)| name == step) {
                failed.push((step.to_owned(), "was forgotten".to_owned()));
            }
        }
        Ok(Self { version, passed: passed.len(), skipped, failed })
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn said_or(value: &Value) -> String {
    text(value).unwrap_or_else(|| value.to_string())
}

/// INCRs of one counter, by what the driver was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) acknowledged: u64,
    /// `-UNKNOWN` came (R10.2).
    pub(crate) unknown: u64,
    /// No reply came, or none in the driver's own time.
    pub(crate) gave_up: u64,
    /// Certainly not executed.
    pub(crate) refused: u64,
    /// Numbers that came back and cannot be right.
    pub(crate) astray: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.acknowledged += other.acknowledged;
        self.unknown += other.unknown;
        self.gave_up += other.gave_up;
        self.refused += other.refused;
        self.astray += other.astray;
    }
}

/// How far a counter is from what was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// INCRs that were acknowledged, and do not count.
    pub(crate) lost: u64,
    /// INCRs that count, and that nobody asked for.
    pub(crate) doubled: u64,
}

impl AddAssign for Verdict {
    fn add_assign(&mut self, other: Self) {
        self.lost += other.lost;
        self.doubled += other.doubled;
    }
}

impl Tally {
    fn parse(said: &Value) -> Result<Self> {
        let mut tally = Self::default();
        for (field, count) in said.as_object().context("a tally is no object")? {
            let count = count.as_u64().with_context(|| format!("{field} is no count"))?;
            match field.as_str() {
                "acknowledged" => tally.acknowledged = count,
                "unknown" => tally.unknown = count,
                "gave_up" => tally.gave_up = count,
                "refused" => tally.refused = count,
                "astray" => tally.astray = count,
                _ => bail!("a tally has no {field}"),
            }
        }
        Ok(tally)
    }

    /// Compares with the counter. If nothing is unknown, the two are equal.
    pub(crate) fn judge(self, value: u64) -> Verdict {
        let most = self.acknowledged + self.unknown + self.gave_up;
        Verdict { lost: self.acknowledged.saturating_sub(value), doubled: value.saturating_sub(most) }
    }
}

/// What a program was told in one round.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Of each connection.
    pub(crate) own: Vec<Tally>,
    /// Of all connections together.
    pub(crate) shared: Tally,
    pub(crate) errors: BTreeMap<String, u64>,
}

impl Counted {
    /// Reads the line that a program prints after a round.
    pub(crate) fn parse(line: &str, connections: usize) -> Result<Self> {
        let said: Value = serde_json::from_str(line).with_context(|| format!("no JSON: {line}"))?;
        let own = said["own"].as_array().context("no list of the connections' own counters")?;
        let own = own.iter().map(Tally::parse).collect::<Result<Vec<_>>>()?;
        ensure!(own.len() == connections, "{} connections counted, not {connections}", own.len());
        let shared = Tally::parse(&said["shared"])?;
        let errors = said["errors"].as_object().context("nothing of errors")?;
        let errors = errors.iter().map(|(text, count)| (text.clone(), count.as_u64().unwrap_or(1))).collect();
        Ok(Self { own, shared, errors })
    }

    /// The sum over all counters.
    pub(crate) fn sum(&self) -> Tally {
        let mut sum = self.shared;
        self.own.iter().for_each(|tally| sum += *tally);
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(acknowledged: u64, unknown: u64, gave_up: u64) -> Tally {
        Tally { acknowledged, unknown, gave_up, ..Tally::default() }
    }

    #[test]
    fn a_counter_is_exact_if_nothing_is_unknown() {
        let right = Verdict::default();
        assert_eq!(tally(7, 0, 0).judge(7), right);
        assert_eq!(tally(7, 0, 0).judge(6), Verdict { lost: 1, doubled: 0 });
        assert_eq!(tally(7, 0, 0).judge(8), Verdict { lost: 0, doubled: 1 });
    }

    #[test]
    fn what_is_unknown_may_count_or_not() {
        for value in 7..=10 {
            assert_eq!(tally(7, 2, 1).judge(value), Verdict::default());
        }
        assert_eq!(tally(7, 2, 1).judge(5), Verdict { lost: 2, doubled: 0 });
        assert_eq!(tally(7, 2, 1).judge(11), Verdict { lost: 0, doubled: 1 });
        // What was refused was not executed.
        let refused = Tally { refused: 5, ..tally(7, 0, 0) };
        assert_eq!(refused.judge(8), Verdict { lost: 0, doubled: 1 });
    }

    #[test]
    fn a_round_is_read() {
        let line = r#"{"own": [{"acknowledged": 3}, {"acknowledged": 4, "unknown": 1, "astray": 2}],
            "shared": {"acknowledged": 7, "gave_up": 1, "refused": 2}, "errors": {"UNKNOWN": 2}}"#;
        let counted = Counted::parse(line, 2).unwrap();
        assert_eq!((counted.own[0], counted.shared.gave_up), (tally(3, 0, 0), 1));
        assert_eq!(counted.errors["UNKNOWN"], 2);
        let sum = Tally { refused: 2, astray: 2, ..tally(14, 1, 1) };
        assert_eq!(counted.sum(), sum);
        for (wrong, connections) in [
            (line, 3),
            (r#"{"own": [{"acknowledged": -1}], "shared": {}, "errors": {}}"#, 1),
            (r#"{"own": [{"acknowleged": 1}], "shared": {}, "errors": {}}"#, 1),
            (r#"{"own": [], "errors": {}}"#, 0),
            ("Traceback", 1),
        ] {
            assert!(Counted::parse(wrong, connections).is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_step_is_forgotten() {
        let line = |passed: &str, skipped: &str, failed: &str| {
            format!(
                r#"{{"driver": "d", "version": "1", "passed": {passed}, "skipped": {skipped}, "failed": {failed}}}"#
            )
        };
        let six = r#"["connect", "strings", "expiry", "pipeline", "multi", "watch"]"#;
        let steps = Steps::parse(&line(six, r#"["scan"]"#, r#"{"errors": "why"}"#), &[]).unwrap();
        assert_eq!((steps.passed, &*steps.version), (6, "1"));
        assert_eq!(steps.failed, [("errors".to_owned(), "why".to_owned())]);
        let failed = |said: &str, features: &[&str]| {
            let steps = Steps::parse(said, features).unwrap();
            steps.failed.into_iter().map(|(step, why)| format!("{step} {why}")).collect::<Vec<_>>()
        };
        assert_eq!(failed(&line(six, r#"["scan"]"#, "{}"), &["scan"]), ["scan was skipped", "errors was forgotten"]);
        assert_eq!(failed(&line(six, r#"["errors", "scan"]"#, "{}"), &[]), ["errors was skipped"]);
        assert!(Steps::parse("{}", &[]).is_err() && Steps::parse("no", &[]).is_err());
    }
}
