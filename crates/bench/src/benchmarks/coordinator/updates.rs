//! Updates of connected clients while the group elects another leader, beside the same before: they need no coordinator.
//!
//! Each round has three windows. In the first two nothing happens, which shows how much two windows of this machine differ. The third
//! begins with the kill of the leader, and ends when another member that leads has answered.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, bail};
use kasha_machine::{Effects, Rng};
use kasha_runtime::{Application, Control};
use kasha_types::Tick;

use super::apart::{Apart, CLIENTS};
use crate::figure::Figure;
use crate::group::Group;
use crate::harness::crowd::Crowd;
use crate::harness::keys::Keys;
use crate::harness::load::{Limit, Load, Tally, Workload};
use crate::harness::{Arm, Run, per};
use crate::limits;
use crate::section::{Cell, Section, Table};

/// Percent of the benchmark's time.
const PERCENT: u32 = 24;
/// That of the windows without an election: about as long as one with it.
const WINDOW: Duration = Duration::from_millis(750);
const VALUE_BYTES: usize = 100;
const KEYS: u32 = 10_000;
/// After a process has started again: else the first window would be slower than the second.
const WARM_UP: Duration = Duration::from_millis(500);

/// One round.
struct Windows {
    first: Tally,
    before: Tally,
    during: Tally,
}

/// One of the three.
type Window = fn(&Windows) -> &Tally;

/// Returns the number of rounds.
pub(super) fn measure(run: &Run<'_>, apart: &mut Apart, section: &mut Section) -> anyhow::Result<u32> {
    let workload = Workload::puts(VALUE_BYTES, Keys::Uniform(KEYS));
    apart.arm.warm(CLIENTS, &workload, KEYS)?;
    let mut windows = Vec::new();
    let rounds = run.rounds_within(PERCENT, |_| {
        windows.push(windows_of(apart, &workload)?);
        apart.heal()
    })?;
    let columns =
        ["round", "updates/s", "p99 µs", "updates/s in the election", "p99 µs", "during/before", "before/before"];
    let mut table = Table::new(&format!("Updates of {CLIENTS} connected clients while the leader is killed"), &columns);
    for (round, each) in windows.iter().enumerate() {
        table.row([
            Cell::from(round as u64 + 1),
            Cell::Number(rate(&each.before), 0),
            Cell::Number(p99_us(&each.before), 0),
            Cell::Number(rate(&each.during), 0),
            Cell::Number(p99_us(&each.during), 0),
            Cell::Number(per(rate(&each.during), rate(&each.before)), 3),
            Cell::Number(per(rate(&each.before), rate(&each.first)), 3),
        ]);
    }
    section.tables.push(table);
    let ratio = |this: Window, other: Window| {
        Figure::median_of(windows.iter().map(|each| per(rate(this(each)), rate(other(each)))))
    };
    let together = |of: Window| {
        let mut all = Tally::new();
        windows.iter().for_each(|each| all.add(of(each)));
        p99_us(&all)
    };
    let [first, before, during]: [Window; 3] = [|each| &each.first, |each| &each.before, |each| &each.during];
    section.ratio("coordinator.updates.during/before.throughput", ratio(during, before));
    section.ratio("coordinator.updates.before/before.throughput", ratio(before, first));
    section.ratio("coordinator.updates.during/before.p99", per(together(during), together(before)));
    section.ratio("coordinator.updates.before/before.p99", per(together(before), together(first)));
    Ok(rounds)
}

/// Updates a second.
fn rate(tally: &Tally) -> f64 {
    per(tally.updates as f64, tally.elapsed.as_secs_f64())
}

fn p99_us(tally: &Tally) -> f64 {
    tally.latency.value_at_percentile(99.0) as f64 / 1000.0
}

fn windows_of(apart: &mut Apart, workload: &Workload) -> anyhow::Result<Windows> {
    let leader = apart.leader()?;
    let arm = &mut apart.arm;
    arm.run(CLIENTS, workload, Limit::Time(WARM_UP))?;
    let first = arm.run(CLIENTS, workload, Limit::Time(WINDOW))?;
    let before = arm.run(CLIENTS, workload, Limit::Time(WINDOW))?;
    let Arm { event_loop, children, table, .. } = arm;
    let (mut rng, over) = (Rng::new(1), AtomicBool::new(false));
    let load = Load::new(*table, CLIENTS, workload, Limit::Time(limits::DRAIN), &mut rng);
    let mut load = UntilOver { load, over: &over };
    // On a thread of its own: the clients must not wait until the process has ended.
    let (elected, ran) = thread::scope(|scope| {
        let elected = scope.spawn(|| {
            let killed = children.kill(leader);
            let elected = killed.and_then(|()| Group::of(children).wait_for_leader(limits::DRAIN));
            over.store(true, Ordering::Release);
            elected
        });
        let ran = event_loop.run(&mut load);
        (elected.join(), ran)
    });
    elected.map_err(|_| anyhow!("the thread that kills the leader has panicked"))??;
    ran?;
    let Load { tally: during, failure, .. } = load.load;
    match failure {
        Some(failure) => bail!("an update was not done while the coordinator's group elected a leader: {failure}"),
        None => Ok(Windows { first, before, during }),
    }
}

/// A load that ends when somebody else says so.
struct UntilOver<'a> {
    load: Load<'a>,
    over: &'a AtomicBool,
}

impl Application<Crowd> for UntilOver<'_> {
    fn turn(&mut self, now: Tick, crowd: &mut Crowd, out: &mut Effects) -> Control {
        if self.over.load(Ordering::Acquire) {
            self.load.end();
        }
        self.load.turn(now, crowd, out)
    }

    fn next_wake(&self) -> Option<Tick> {
        self.load.next_wake()
    }
}
