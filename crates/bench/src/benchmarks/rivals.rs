//! A short form of the comparison with other stores, as a part of all benchmarks. `kasha-lab bench rivals` runs the full
//! comparison.
//!
//! It needs root and two packages. If they are not available, the report says so, and the other benchmarks count. A
//! store that dies is a failure here too.

use std::time::Duration;

use crate::harness::BenchOptions;
use crate::rivals::{Callers, Obstacle, RivalsOptions, RivalsReport, rivals};
use crate::section::Section;

const DELAY: Duration = Duration::from_micros(500);
const ROUNDS: u32 = 3;
const ROUND: Duration = Duration::from_millis(500);

pub(super) fn run(options: &BenchOptions) -> anyhow::Result<Section> {
    let brief = RivalsOptions {
        data: options.data.clone(),
        delays: vec![DELAY],
        callers: vec![Callers::apart(1), Callers::apart(64)],
        rounds: ROUNDS,
        round_time: ROUND,
        progress: options.progress,
        ..RivalsOptions::new(options.exe.clone())
    };
    section_of(rivals(&brief))
}

fn section_of(found: Result<RivalsReport, Obstacle>) -> anyhow::Result<Section> {
    match found {
        Ok(report) => Ok(report.section()),
        Err(Obstacle::NotHere(skipped)) => Ok(Section::new("rivals", skipped.to_string())),
        Err(Obstacle::Failed(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;
    use crate::rivals::Skipped;

    #[test]
    fn what_cannot_be_had_is_skipped_and_what_breaks_is_a_failure() {
        let skipped = section_of(Err(Obstacle::not_here("no root"))).unwrap().to_string();
        assert!(skipped.contains(Skipped::PREFIX) && skipped.contains("no root"), "{skipped}");
        let broken = section_of(Err(anyhow!("etcd died").context("etcd, 500µs each way").into())).unwrap_err();
        assert_eq!(format!("{broken:#}"), "etcd, 500µs each way: etcd died");
    }
}
