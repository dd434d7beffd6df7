//! Minutes of full load, in which nobody is killed: no election, and no node called lost (0012).

use std::time::Duration;

use kasha_runtime::Clock;
use kasha_types::NodeId;

use crate::ClusterSpec;
use crate::group::Group;
use crate::harness::keys::Keys;
use crate::harness::load::{Limit, Tally, Workload};
use crate::harness::{Arm, Clients, Run, per};
use crate::limits;
use crate::section::{Cell, Section, Table};
use crate::watch::Watch;

const NODES: u16 = 3;
const FAULTS: u8 = 1;
/// As many as in decision 0012.
const CLIENTS: usize = 16;
const VALUE_BYTES: usize = 100;
const KEYS: u32 = 100_000;
/// Between two lines about how it goes.
const STRETCH: Duration = Duration::from_secs(5);

pub(super) fn measure(run: &Run<'_>, section: &mut Section) -> anyhow::Result<()> {
    let time = Duration::from_secs(60) * run.options.minutes;
    let members = (1..=NODES).map(NodeId).collect();
    let spec = ClusterSpec { nodes: NODES, shards: NODES, members, ..run.spec("steady", FAULTS) };
    let mut arm =
        Arm::start("minutes of load", spec, Clients { deadline: limits::DRAIN, ..Clients::new(CLIENTS, true) })?;
    let group = Group::of(&arm.children);
    group.wait_until_all_follow(limits::START)?;
    let watch = Watch::start(arm.children.seeds())?;
    let workload = Workload::puts(VALUE_BYTES, Keys::Uniform(KEYS));
    let (view, began) = (group.view()?, Clock::now());
    let mut tally = Tally::new();
    while let Some(left) = time.checked_sub(Clock::now().since(began)).filter(|left| !left.is_zero()) {
        run.say(&format!("full load: {} s to go, {} nodes lost so far", left.as_secs(), watch.seen().losses()));
        tally.add(&arm.run(CLIENTS, &workload, Limit::Time(left.min(STRETCH)))?);
    }
    group.wait_for_leader(limits::REPAIR)?;
    let (elections, losses) = (group.view()?.0 - view.0, watch.seen().losses());
    let columns = ["minutes", "updates", "updates/s", "longest s without an answer", "elections", "nodes called lost"];
    let mut table = Table::new("Full load, and nobody is killed", &columns);
    table.row([
        Cell::from(u64::from(run.options.minutes)),
        Cell::from(tally.updates),
        Cell::Number(per(tally.updates as f64, tally.elapsed.as_secs_f64()), 0),
        Cell::Number(tally.longest_gap.as_secs_f64(), 2),
        Cell::from(elections),
        Cell::from(losses),
    ]);
    section.tables.push(table);
    section.ratio("coordinator.steady.elections", elections as f64);
    section.ratio("coordinator.steady.false_alarms", losses as f64);
    Ok(())
}
