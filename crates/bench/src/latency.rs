//! The time that one update takes: unreplicated, replicated synchronously, and as designed (CURP 5.2, figure 5).
//!
//! All three modes are the same programs, and are measured in turns of a few hundred updates, so that whatever else the
//! machine does affects all of them alike. The delay of a link is injected at each receiver, this client included,
//! since on loopback a round trip costs processor time and hardly any wire time (section 12).

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use kasha_types::limits::{FAULTS_MAX, VALUE_BYTES_MAX};

use crate::benchmarks::throughput;
use crate::harness::keys::Keys;
use crate::harness::load::{Limit, Workload};
use crate::harness::{BenchOptions, Run, in_turns};
use crate::report::{LatencyReport, Machine, Mode};
use crate::section::{Section, Took};

/// The options of the measurement.
#[derive(Clone, Debug)]
pub struct LatencyOptions {
    /// The options of every benchmark.
    pub bench: BenchOptions,
    /// Each `f` to measure, from 1.
    pub faults: Vec<u8>,
    /// Injected delay of each direction.
    pub link_delay: Duration,
    /// Updates in a round of each mode.
    pub operations: u32,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Keys, chosen uniformly.
    pub keys: u32,
}

impl LatencyOptions {
    /// The usual measurement: 20 rounds of 500 updates in each mode, 100-byte values, 100 000 keys, 200 µs each way.
    #[must_use]
    pub fn new(exe: PathBuf, faults: Vec<u8>) -> Self {
        Self {
            bench: BenchOptions::new(exe),
            faults,
            link_delay: Duration::from_micros(200),
            operations: 500,
            value_bytes: 100,
            keys: 100_000,
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.faults.is_empty(), "no number of faults is given; give one or more from 1 to {FAULTS_MAX}");
        for &faults in &self.faults {
            ensure!((1..=FAULTS_MAX).contains(&faults), "faults = {faults}: give 1 to {FAULTS_MAX}");
        }
        ensure!(
            self.bench.rounds > 0 && self.operations > 0,
            "nothing to measure: give at least one round of one operation"
        );
        ensure!(self.keys > 0, "at least one key is needed");
        ensure!(self.value_bytes <= VALUE_BYTES_MAX, "values are at most {VALUE_BYTES_MAX} bytes long");
        Ok(())
    }
}

/// Runs the measurement.
///
/// # Errors
/// If a cluster cannot be started or an update is not executed.
pub fn latency(options: &LatencyOptions) -> anyhow::Result<LatencyReport> {
    options.check()?;
    let bench = BenchOptions { link_delay: Some(options.link_delay), ..options.bench.clone() };
    let (mut measured, mut rounds, mut took) = (Vec::new(), u32::MAX, Took::default());
    for &faults in &options.faults {
        let run = Run::begin(&format!("latency-f{faults}"), &bench);
        let mut arms = Vec::new();
        for mode in Mode::ALL {
            run.say(&format!("starting {}", mode.name()));
            arms.push(throughput::start(&run, mode, faults, 1)?);
        }
        let workload = Workload::puts(options.value_bytes, Keys::Uniform(options.keys));
        let limit = Limit::Operations(u64::from(options.operations));
        let done = run.rounds(|round| in_turns(round, &mut arms, |arm| arm.round(1, &workload, limit)))?;
        measured.extend(Mode::ALL.into_iter().zip(&arms).map(|(mode, arm)| (faults, mode, arm.measured.clone())));
        drop(arms);
        let ended = run.end()?;
        rounds = rounds.min(done);
        took = Took { time: took.time + ended.time, stolen: took.stolen.max(ended.stolen) };
    }
    let link_delay_us = u64::try_from(options.link_delay.as_micros()).unwrap_or(u64::MAX);
    Ok(LatencyReport::new(Machine::this(), link_delay_us, options.value_bytes, &measured).took(took, rounds))
}

/// The same, as one of all benchmarks: for f = 1, 2, 3, in the time that is available.
pub(crate) fn section(options: &BenchOptions) -> anyhow::Result<Section> {
    let faults = options.faults.map_or_else(|| (1..=FAULTS_MAX).collect(), |faults| vec![faults]);
    let patience = options.patience / u32::try_from(faults.len()).expect("a few");
    let usual = LatencyOptions::new(options.exe.clone(), faults);
    let link_delay = options.link_delay.unwrap_or(usual.link_delay);
    let options = BenchOptions { patience, ..options.clone() };
    Ok(latency(&LatencyOptions { link_delay, bench: options, ..usual })?.section())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_options_are_refused_before_anything_starts() {
        let usual = LatencyOptions::new("kasha".into(), vec![1, 2, 3]);
        assert!(usual.check().is_ok());
        for wrong in [
            LatencyOptions { faults: Vec::new(), ..usual.clone() },
            LatencyOptions { faults: vec![0], ..usual.clone() },
            LatencyOptions { faults: vec![FAULTS_MAX + 1], ..usual.clone() },
            LatencyOptions { operations: 0, ..usual.clone() },
            LatencyOptions { keys: 0, ..usual.clone() },
            LatencyOptions { value_bytes: VALUE_BYTES_MAX + 1, ..usual.clone() },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
