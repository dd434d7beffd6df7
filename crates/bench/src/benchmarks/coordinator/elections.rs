//! The process of the leader is killed: how soon a new session is open, and whether a lifetime that spans the election is as
//! long as it should be. First with a quiet disk, then beside a thread that writes and syncs without a pause.
//!
//! The process hosts nothing else, so that no shard has to fail over, and no node is missing when the next leader listens to
//! what the nodes remember (R9.13). Only the process that begins a cluster can be like that. So each kill is of a cluster of its own.
//! (`nodes` has the same for a leader beside a node.)

use std::thread;
use std::time::Duration;

use anyhow::{anyhow, ensure};
use kasha_runtime::Clock;
use kasha_types::NodeId;

use super::ballast::{Ballast, median_sync_ms};
use crate::client::{Connect, create_table, open_session};
use crate::group::Group;
use crate::harness::lifetime::Ending;
use crate::harness::{Run, median};
use crate::section::{Cell, Section, Table};
use crate::{Children, ClusterSpec, limits};

/// Percent of the benchmark's time for each of the two.
const PERCENT: u32 = 16;
const NODES: u16 = 3;
const FAULTS: u8 = 1;
/// The first one has a process of its own, and leads at first.
const MEMBERS: [NodeId; 3] = [NodeId(4), NodeId(1), NodeId(2)];
/// A value that is put, and ends, before anybody is killed.
const LIFETIME_WITHOUT: Duration = Duration::from_millis(500);
/// The other value is put so long before the kill.
const BEFORE: Duration = Duration::from_millis(200);
const LIFETIME: Duration = Duration::from_secs(2);
/// A value that ends sooner than this after the election may end later by the length of the election, and does not count.
const APART: Duration = Duration::from_millis(200);

/// What one kill of the leader came to, each time counted from the kill.
struct Election {
    /// Another member that leads has answered.
    elected: Duration,
    /// A session that began with the kill had a client id.
    opened: Duration,
    /// By how much a value of 2 s lived too long, or too short if this is negative; `None`: it ended too soon to count.
    longer_by_ms: Option<f64>,
    /// The same of one that ended before the kill.
    without_ms: f64,
}

pub(super) fn measure(run: &Run<'_>, section: &mut Section) -> anyhow::Result<()> {
    section.ratio("coordinator.quiet_disk.sync.median_ms", median_sync_ms(&run.folder("syncs"))?);
    let quiet = elections(run, "quiet disk")?;
    let ballast = Ballast::start(&run.folder("ballast"))?;
    section.ratio("coordinator.loaded_disk.sync.median_ms", median_sync_ms(&run.folder("syncs"))?);
    let loaded = elections(run, "loaded disk")?;
    section.ratio("coordinator.loaded_disk.written_mib_per_second", ballast.end()?);
    let columns =
        ["disk", "kill", "s to a leader", "s to a new session", "a lifetime is longer by ms", "the one before by ms"];
    let mut table = Table::new("The process of the leader is killed, which hosts nothing else", &columns);
    let (mut off_by_ms, mut without_ms) = (Vec::new(), Vec::new());
    for (name, elections) in [("quiet", &quiet), ("loaded", &loaded)] {
        for (number, each) in elections.iter().enumerate() {
            table.row([
                Cell::from(name),
                Cell::from(number as u64 + 1),
                Cell::Number(each.elected.as_secs_f64(), 3),
                Cell::Number(each.opened.as_secs_f64(), 3),
                each.longer_by_ms.map_or(Cell::Nothing, |by| Cell::Number(by, 1)),
                Cell::Number(each.without_ms, 1),
            ]);
        }
        off_by_ms.extend(elections.iter().filter_map(|each| each.longer_by_ms).map(f64::abs));
        without_ms.extend(elections.iter().map(|each| each.without_ms.abs()));
        let opened = || elections.iter().map(|each| each.opened.as_secs_f64());
        section.ratio(format!("coordinator.{name}_disk.session.longest_s"), opened().fold(0.0, f64::max));
        section.ratio(format!("coordinator.{name}_disk.session.median_s"), median(opened()));
        let elected = elections.iter().map(|each| each.elected.as_secs_f64());
        section.ratio(format!("coordinator.{name}_disk.leader.median_s"), median(elected));
    }
    section.tables.push(table);
    for (name, off_by_ms) in [("over_election", off_by_ms), ("without_election", without_ms)] {
        if let Some(most) = off_by_ms.into_iter().max_by(f64::total_cmp) {
            section.ratio(format!("coordinator.lifetime_{name}.off_by_ms"), most);
        }
    }
    Ok(())
}

fn elections(run: &Run<'_>, name: &str) -> anyhow::Result<Vec<Election>> {
    let mut elections = Vec::new();
    run.rounds_within(PERCENT, |round| {
        run.say(&format!("{name}: the leader is killed for the {}. time", round + 1));
        elections.push(elect(run, &format!("{name}-{round}"))?);
        Ok(())
    })?;
    Ok(elections)
}

fn elect(run: &Run<'_>, name: &str) -> anyhow::Result<Election> {
    let spec = ClusterSpec { nodes: NODES, members: MEMBERS.into(), ..run.spec(name, FAULTS) };
    let mut children = Children::start(spec)?;
    let group = Group::of(&children);
    group.wait_until_all_follow(limits::START)?;
    let leader = MEMBERS[0];
    ensure!(group.leader() == Some(leader), "somebody else than {leader} leads before anybody is killed");
    let seeds = children.seeds();
    let mut client = Connect::new("lifetimes", seeds.clone()).open()?;
    let table = create_table(&mut client, "lifetimes")?;
    let value = Ending::put(&mut client, table, "before", LIFETIME_WITHOUT)?;
    let lived = value.wait(&mut client, table)?;
    let without_ms = value.longer_by_ms(lived);
    let value = Ending::put(&mut client, table, "across", LIFETIME)?;
    thread::sleep(BEFORE);
    let others = group.without(leader);
    let killed = Clock::now();
    children.kill(leader)?;
    let (elected, opened) = thread::scope(|scope| {
        let elected = scope.spawn(|| others.wait_for_leader(limits::DRAIN));
        let opened = open_session("newcomer", seeds, limits::DRAIN).map(|_| Clock::now());
        (elected.join(), opened)
    });
    let (_, elected) = elected.map_err(|_| anyhow!("the thread that asks who leads has panicked"))??;
    let (elected, opened) = (elected.since(killed), opened?.since(killed));
    let has_time_left = value.age() + APART < LIFETIME;
    let lived = value.wait(&mut client, table)?;
    let longer_by_ms = has_time_left.then(|| value.longer_by_ms(lived));
    Ok(Election { elected, opened, longer_by_ms, without_ms })
}
