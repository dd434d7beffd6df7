//! The leader is killed again and again: how soon a new session is open, and whether a lifetime that spans the election is as
//! long as it should be. First with a quiet disk, then beside a thread that writes and syncs without a pause.

use std::thread;
use std::time::Duration;

use anyhow::anyhow;
use kasha_runtime::Clock;

use super::apart::Apart;
use super::ballast::Ballast;
use crate::client::open_session;
use crate::harness::lifetime::Ending;
use crate::harness::{Run, median};
use crate::limits;
use crate::section::{Cell, Section, Table};

/// Percent of the benchmark's time for each of the two.
const PERCENT: u32 = 18;
/// The value is put so long before the kill.
const BEFORE: Duration = Duration::from_millis(200);
const LIFETIME: Duration = Duration::from_secs(2);
/// A value that ends sooner than this after the election may end later by the length of the election, and does not count.
const APART: Duration = Duration::from_millis(200);

/// What one kill of the leader came to, each time counted from the kill.
struct Election {
    /// The first member that led, when it answered.
    elected: Duration,
    /// A session that began with the kill had a client id.
    opened: Duration,
    /// By how much a value lived too long, or too short; `None`: it ended too soon to count.
    longer_by_ms: Option<f64>,
}

pub(super) fn measure(run: &Run<'_>, apart: &mut Apart, section: &mut Section) -> anyhow::Result<()> {
    let quiet = elections(run, apart, "quiet disk")?;
    let ballast = Ballast::start(&run.folder("ballast"))?;
    let loaded = elections(run, apart, "loaded disk")?;
    section.ratio("coordinator.loaded_disk.written_mib_per_second", ballast.end()?);
    let columns = ["disk", "kill", "s to a leader", "s to a new session", "a value of 2 s lived longer by ms"];
    let mut table = Table::new("The process of the leader is killed", &columns);
    let mut off_by_ms = Vec::new();
    for (name, elections) in [("quiet", &quiet), ("loaded", &loaded)] {
        for (number, each) in elections.iter().enumerate() {
            table.row([
                Cell::from(name),
                Cell::from(number as u64 + 1),
                Cell::Number(each.elected.as_secs_f64(), 3),
                Cell::Number(each.opened.as_secs_f64(), 3),
                each.longer_by_ms.map_or(Cell::Nothing, |by| Cell::Number(by, 1)),
            ]);
        }
        off_by_ms.extend(elections.iter().filter_map(|each| each.longer_by_ms).map(f64::abs));
        let opened = || elections.iter().map(|each| each.opened.as_secs_f64());
        section.ratio(format!("coordinator.{name}_disk.session.longest_s"), opened().fold(0.0, f64::max));
        section.ratio(format!("coordinator.{name}_disk.session.median_s"), median(opened()));
        let elected = elections.iter().map(|each| each.elected.as_secs_f64());
        section.ratio(format!("coordinator.{name}_disk.leader.median_s"), median(elected));
    }
    section.tables.push(table);
    if let Some(most) = off_by_ms.into_iter().max_by(f64::total_cmp) {
        section.ratio("coordinator.lifetime_over_election.off_by_ms", most);
    }
    Ok(())
}

fn elections(run: &Run<'_>, apart: &mut Apart, name: &str) -> anyhow::Result<Vec<Election>> {
    let mut elections = Vec::new();
    run.rounds_within(PERCENT, |round| {
        run.say(&format!("{name}: the leader is killed for the {}. time", round + 1));
        elections.push(elect(apart, &format!("{name}-{round}"))?);
        apart.heal()
    })?;
    Ok(elections)
}

fn elect(apart: &mut Apart, key: &str) -> anyhow::Result<Election> {
    let leader = apart.leader()?;
    let value = Ending::put(&mut apart.client, apart.table, key, LIFETIME)?;
    thread::sleep(BEFORE);
    let (seeds, others) = (apart.arm.children.seeds(), apart.group().without(leader));
    let killed = Clock::now();
    apart.arm.children.kill(leader)?;
    let (elected, opened) = thread::scope(|scope| {
        let elected = scope.spawn(|| others.wait_for_leader(limits::DRAIN));
        let opened = open_session("newcomer", seeds, limits::DRAIN).map(|_| Clock::now());
        (elected.join(), opened)
    });
    let (_, elected) = elected.map_err(|_| anyhow!("the thread that asks who leads has panicked"))??;
    let (elected, opened) = (elected.since(killed), opened?.since(killed));
    let has_time_left = value.age() + APART < LIFETIME;
    let lived = value.wait(&mut apart.client, apart.table)?;
    Ok(Election { elected, opened, longer_by_ms: has_time_left.then(|| value.longer_by_ms(lived)) })
}
