//! Several benchmarks in one run, and the file that the run writes.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use kasha_runtime::Clock;
use serde::Serialize;

use crate::benchmarks::BENCHMARKS;
use crate::harness::BenchOptions;
use crate::page::page;
use crate::report::Machine;
use crate::section::{Section, rounded};
use crate::targets::{Judged, judge, table};

/// The settings of the run.
#[derive(Clone, Debug, Serialize)]
struct Settings {
    version: &'static str,
    rounds: u32,
    round_ms: u128,
    link_delay_us: Option<u128>,
    faults: Option<u8>,
    client_states: u32,
    shard_bytes: u64,
}

/// The findings of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The machine of the run.
    pub machine: Machine,
    settings: Settings,
    /// The time that the run took.
    pub seconds: f64,
    /// Every figure by its name, those of all benchmarks together.
    pub ratios: BTreeMap<String, f64>,
    /// The targets, also those that were not measured.
    pub targets: Vec<Judged>,
    /// The findings of each benchmark.
    pub sections: Vec<Section>,
}

impl Report {
    /// The report of these benchmarks.
    #[must_use]
    pub fn new(options: &BenchOptions, sections: Vec<Section>) -> Self {
        let ratios: BTreeMap<String, f64> = sections.iter().flat_map(|section| section.ratios.clone()).collect();
        let settings = Settings {
            version: env!("CARGO_PKG_VERSION"),
            rounds: options.rounds,
            round_ms: options.round.as_millis(),
            link_delay_us: options.link_delay.map(|delay| delay.as_micros()),
            faults: options.faults,
            client_states: options.states,
            shard_bytes: options.bytes,
        };
        let seconds = rounded(sections.iter().map(|section| section.seconds).sum(), 1);
        Self { machine: Machine::this(), settings, seconds, targets: judge(&sections), ratios, sections }
    }

    /// The report as JSON, for other programs.
    ///
    /// # Panics
    /// Never: JSON can express all of it.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and texts")
    }

    /// Writes the [`page`] of this report.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_markdown(&self, path: &Path) -> anyhow::Result<()> {
        std::fs::write(path, page(&self.to_json())?).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Draws the plots into a folder.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write_plots(&self, folder: &Path) -> anyhow::Result<()> {
        self.sections.iter().flat_map(|section| &section.plots).try_for_each(|plot| plot.write(folder))
    }
}

impl Report {
    /// The machine, the time and the targets, as text.
    #[must_use]
    pub fn summary(&self) -> String {
        let place = format!("{}; {} s\n", self.machine, self.seconds);
        if self.targets.is_empty() { place } else { format!("{place}\n{}", table(&self.targets)) }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sections.iter().try_for_each(|section| writeln!(f, "{section}"))?;
        f.write_str(&self.summary())
    }
}

/// Runs all benchmarks within this time, and calls `show` for each when it is done. A benchmark that fails does not stop
/// the others: its section says why, and its error is returned beside the report.
pub fn all(options: &BenchOptions, time: Duration, mut show: impl FnMut(&Section)) -> (Report, Vec<anyhow::Error>) {
    let end = Clock::now().after(time);
    let (mut sections, mut failed) = (Vec::new(), Vec::new());
    for benchmark in BENCHMARKS {
        // Time that one benchmark leaves over, or takes too much, is added to that of the others, or taken from it.
        let left = end.since(Clock::now()).min(time);
        let section = benchmark.run_within(left, &BENCHMARKS[sections.len()..], options);
        let section = section.unwrap_or_else(|error| {
            let error = error.context(format!("the benchmark {}", benchmark.name));
            let section = Section::new(benchmark.name, format!("FAILED: {error:#}"));
            failed.push(error);
            section
        });
        show(&section);
        sections.push(section);
    }
    (Report::new(options, sections), failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_has_all_figures_and_targets() {
        let mut sections = vec![Section::new("clients", "a test"), Section::new("floor", "another")];
        sections[0].ratio("clients.bytes_each", 100.0);
        sections[1].ratio("floor.update/empty.p50", 1.3);
        let report = Report::new(&BenchOptions::new("kasha".into()), sections);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["ratios"]["clients.bytes_each"], 100.0);
        let targets = json["targets"].as_array().unwrap();
        let texts =
            |target: &serde_json::Value| ["figure", "verdict"].map(|name| target[name].as_str().unwrap().to_owned());
        let verdicts: Vec<_> = targets.iter().map(texts).collect();
        let expected = [
            ["clients.many/one.p50", "not_measured"],
            ["clients.bytes_each", "met"],
            ["floor.update/empty.p50", "missed"],
        ];
        assert_eq!(verdicts, expected);
        assert_eq!(json["sections"].as_array().unwrap().len(), 2);
        assert!(report.to_string().contains("MISSED"));
    }
}
