//! Times that outsiders measured and found far off: each beside what is usual, one file each in `outsiders/`.
//!
//! Each measurement starts what it needs, appends its table and its ratios to the section, and ends what it started.

mod crowd;
mod lifetimes;
mod resends;
mod wide;
mod witness_gone;

use crate::harness::{BenchOptions, Run};
use crate::section::Section;

/// Measures, and appends what was found.
type Measure = fn(&Run<'_>, &mut Section) -> anyhow::Result<()>;

/// The measurements by their names, in the order in which they run.
const MEASUREMENTS: &[(&str, Measure)] = &[
    ("a lifetime, after restarts of the coordinator", lifetimes::run),
    ("a crowd", crowd::run),
    ("a witness that is gone", witness_gone::measure),
    ("requests that come twice", resends::measure),
    ("wide transactions", wide::measure),
];

pub(super) fn run(options: &BenchOptions) -> anyhow::Result<Section> {
    let run = Run::begin("outsiders", options);
    let mut section = Section::new("outsiders", "what outsiders found far off, each beside what is usual");
    for (name, measure) in MEASUREMENTS {
        run.say(name);
        measure(&run, &mut section)?;
    }
    Ok(section.took(run.end()?, 1))
}
