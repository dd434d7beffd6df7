//! The counter service of Granola's thesis (chapter 6): what transactions of several shards cost in each mode, by callers, by their
//! share, by how often they meet, by how many of them take locks, by participants and by shards.
//!
//! A counter is incremented on one shard; or two together, one on each shard: the sums might not fit, so that the participants have
//! to agree, and take locks. What cannot fail is written without locks instead.

use std::time::Duration;

use super::sweeps::{self, Kind, MANY, OnMore, OnTwo};
use crate::harness::operation::Operation;
use crate::harness::{BenchOptions, Run};
use crate::section::Section;

const KEYS: u32 = 100_000;
const VALUE_BYTES: usize = 8;
const FAULTS: u8 = 1;
/// A local network.
const LINK_DELAY: Duration = Duration::from_micros(100);
/// Of the benchmark's time: what is measured on two shards, and on more.
const PERCENT_ON_TWO: u32 = 65;
const PERCENT_ON_MORE: u32 = 35;

/// What is written is no number, and so has keys of its own.
fn prefix_of(operation: Operation) -> &'static str {
    match operation {
        Operation::PutOnEach { .. } => "written-",
        Operation::Interactive { .. } => "read-",
        _ => "counter-",
    }
}

pub(super) fn run(options: &BenchOptions) -> anyhow::Result<Section> {
    let faults = options.faults.unwrap_or(FAULTS);
    let options = BenchOptions { link_delay: options.link_delay.or(Some(LINK_DELAY)), ..options.clone() };
    let run = Run::begin("counters", &options);
    run.say("starting");
    let kind = Kind {
        name: "counters",
        one: Operation::Increment,
        each: |mode, spread| mode.increments(spread, VALUE_BYTES),
        prefix: prefix_of,
        keys: KEYS,
    };
    let (mut on_two, mut on_more) = (OnTwo::new(&kind), OnMore::new(&kind));
    let rounds = sweeps::measure(&run, ("two", faults), &kind, PERCENT_ON_TWO, &mut on_two.all())?;
    let mut more: Vec<_> = on_more.all().collect();
    sweeps::measure(&run, ("more", faults), &kind, PERCENT_ON_MORE, &mut more)?;
    let about = format!(
        "counters, {KEYS} keys, f = {faults}, {} µs each way, {MANY} callers and two shards where nothing else is said; where \
         kinds are mixed, latencies are those of what the share is not of; one of n shards is n operations",
        options.link_delay.unwrap_or_default().as_micros()
    );
    let mut section = Section::new("counters", about);
    let OnTwo { distributed, conflicts, locking, .. } = &on_two;
    let names = ["timestamps", "as_sent", "locks", "two_phase"];
    for (name, line) in names.iter().zip(&distributed.lines) {
        section.ratio(format!("counters.all_distributed_{name}/none.operations"), line.last_by_first());
    }
    for (name, line) in names.iter().zip(&conflicts.lines) {
        section.ratio(format!("counters.all_conflict_{name}/none.throughput"), line.last_by_first());
    }
    section.ratio("counters.locking1/none.throughput", locking.lines[1].by_first(1));
    for figure in on_two.all().into_iter().chain(on_more.all()) {
        section.tables.push(sweeps::table(figure));
        section.plots.extend(sweeps::plots(figure));
    }
    Ok(section.took(run.end()?, rounds))
}
