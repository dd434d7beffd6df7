//! The coordinator as a group of three (STORAGE B): what the loss of its leader, of all its members, and of any one node
//! costs, one file each in `coordinator/`.
//!
//! What concerns the group alone is measured where no shard has a part on what is killed ([`elections`], [`apart`]): so no fail-over
//! of a shard is in those figures. What concerns nodes is measured on three nodes that hold shards and members alike, as users run them.

mod apart;
mod ballast;
mod elections;
mod nodes;
mod restarts;
mod steady;
mod updates;

use crate::harness::{BenchOptions, Run};
use crate::section::Section;

pub(super) fn run(options: &BenchOptions) -> anyhow::Result<Section> {
    let run = Run::begin("coordinator", options);
    let about = format!(
        "a group of three members, a lease of {:?}; a node is killed with kill -9, and silent after SIGSTOP",
        kasha_types::limits::NODE_LEASE
    );
    let mut section = Section::new("coordinator", about);
    elections::measure(&run, &mut section)?;
    let mut apart = apart::Apart::start(&run)?;
    let rounds = updates::measure(&run, &mut apart, &mut section)?;
    restarts::measure(&run, &mut apart, &mut section)?;
    drop(apart);
    nodes::measure(&run, &mut section)?;
    if options.minutes > 0 {
        steady::measure(&run, &mut section)?;
    }
    Ok(section.took(run.end()?, rounds))
}
