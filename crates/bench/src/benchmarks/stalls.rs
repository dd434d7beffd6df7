//! For how long an event loop hears and answers nobody while its shard frees what it holds: ended all at once, overwritten, deleted,
//! a table dropped, under a light load.
//!
//! Two nodes, one the primary and one its backup, which holds the log and follows it. Each phase is followed by a pause in
//! which a client goes on, so that what is freed late counts too. The loops measure their turns themselves, without the
//! time that the system gives to others meanwhile: on a machine with fewer processors than threads nothing else is fair.
//! For the target the time for files is left out, too: a write may wait for what the disk is doing for others.

use std::time::Duration;

use anyhow::{Context, bail};
use kasha_client::session::Completion;
use kasha_runtime::Clock;
use kasha_types::{CoreId, ShardId, TableId, Tick};
use kasha_wire::message::TableOutcome;
use kasha_wire::status::LoopTurns;

use crate::ClusterSpec;
use crate::client::{Connect, call, create_table};
use crate::figure::Ticks;
use crate::harness::keys::Keys;
use crate::harness::load::{Limit, Workload};
use crate::harness::operation::Operation;
use crate::harness::probe::Probe;
use crate::harness::{Arm, BenchOptions, Clients, Run, turns};
use crate::section::Section;

const VALUE_BYTES: usize = 100;
const FAULTS: u8 = 1;
/// Few: turns are to be short but for what is freed in them.
const CLIENTS: usize = 8;
/// Clients that go on while something is freed that no client waits for.
const LIGHT: usize = 1;
/// Keys of the light load.
const LIGHT_KEYS: u32 = 1000;
/// Long enough for what is freed late: several flush intervals.
const PAUSE: Duration = Duration::from_secs(2);
/// Pauses until the table must be gone.
const PAUSES_MAX: u32 = 30;
/// One in so many of the values that end tells how fast they can be put.
const TRIED: u32 = 16;
/// Ends after the benchmark.
const FAR: Duration = Duration::from_secs(24 * 3600);
/// Bytes of log for each key: an object and a completion record, and half of a segment is free at times.
const KEY_BYTES: u64 = 264;

/// Of the processors' time in a phase: with more that the host took away, its longest turn decides nothing.
const STOLEN_MAX: f64 = 0.01;

struct Watched {
    name: &'static str,
    probe: Probe,
}

pub(super) fn run(options: &BenchOptions) -> anyhow::Result<Section> {
    let run = Run::begin("stalls", options);
    // The keys of two tables, twice each, and room.
    let keys = options.keys;
    let memory_mib = Some(((u64::from(keys) * KEY_BYTES * 8) >> 20) + 512);
    run.say("starting");
    let spec = ClusterSpec { memory_mib, ..run.spec("stalls", FAULTS) };
    let mut arm = Arm::start("stalls", spec, Clients::new(CLIENTS, true))?;
    let mut watched = watch(&arm)?;
    let (mut longest, mut stolen) = (Vec::new(), Vec::new());
    let mut phase = |run: &Run<'_>, arm: &mut Arm, name: &str, act: &mut dyn FnMut(&mut Arm) -> anyhow::Result<()>| {
        run.say(name);
        ask(&mut watched)?;
        let ticks = Ticks::now();
        act(arm)?;
        go_on(arm)?;
        stolen.push((name.to_owned(), Ticks::now().stolen_since(ticks)));
        for (at, turn) in ask(&mut watched)? {
            longest.push((name.to_owned(), at, turn));
        }
        anyhow::Ok(())
    };
    let puts = Workload::puts(VALUE_BYTES, Keys::Each);
    let mut ends = Clock::now();
    let mut ended = (0.0, 0.0);
    phase(&run, &mut arm, "filling what ends", &mut |arm| {
        ends = fill_what_ends(arm, &puts, keys)?;
        Ok(())
    })?;
    phase(&run, &mut arm, "ending", &mut |arm| {
        ended = let_end(arm, ends)?;
        Ok(())
    })?;
    let deletes = Workload { operation: Operation::Delete, ..puts.clone() };
    phase(&run, &mut arm, "filling", &mut |arm| arm.warm(CLIENTS, &puts, keys))?;
    phase(&run, &mut arm, "overwriting", &mut |arm| arm.warm(CLIENTS, &puts, keys))?;
    phase(&run, &mut arm, "deleting", &mut |arm| arm.warm(CLIENTS, &deletes, keys))?;
    phase(&run, &mut arm, "filling again", &mut |arm| arm.warm(CLIENTS, &puts, keys))?;
    let dropped = arm.table;
    arm.table = another_table(&arm, "light")?;
    go_on(&mut arm)?;
    phase(&run, &mut arm, "dropping the table", &mut |arm| drop_table(arm, dropped))?;
    drop(arm);

    let about = format!(
        "{keys} keys of {VALUE_BYTES} bytes that end in one moment; as many, overwritten, deleted, put again, their table dropped, by {CLIENTS} clients; the \
         longest turn of the event loops of the primary and of its backup"
    );
    let mut section = Section::new("stalls", about);
    let ending = longest.iter().filter(|(phase, ..)| phase == "ending");
    let busy = ending.map(|(.., turns)| turns::busy_micros(&turns.busiest_since_asked));
    section.ratio("stalls.ending.longest_us", busy.fold(0.0, f64::max));
    section.ratio("stalls.ending.during/before.p99", ended.0);
    section.ratio("stalls.ending.seconds", ended.1);
    let freeing = longest.iter().filter(|(phase, ..)| !phase.starts_with("filling"));
    let busy = freeing.map(|(.., turns)| turns::busy_micros(&turns.busiest_since_asked));
    section.ratio("stalls.freeing.longest_us", busy.fold(0.0, f64::max));
    refuse_disturbed(&mut section, &stolen);
    let named = |figure: &'static str| {
        longest.iter().map(move |(phase, at, turns)| {
            let name = format!("stalls.{}.{at}.{figure}", phase.replace(' ', "_"));
            (format!("{phase}, {at}"), name, turns)
        })
    };
    let rows = named("longest_us").map(|(phase, name, turns)| (phase, name, &turns.longest_since_asked));
    turns::show(&mut section, "Longest turns", turns::micros, rows);
    let rows = named("busiest_us").map(|(phase, name, turns)| (phase, name, &turns.busiest_since_asked));
    turns::show(&mut section, "Turns in which the loop itself did most", turns::busy_micros, rows);
    Ok(section.took(run.end()?, 1))
}

/// A turn lasts as long as the host lets it.
fn refuse_disturbed(section: &mut Section, stolen: &[(String, f64)]) {
    for (figure, is_of) in [
        ("stalls.ending.longest_us", (|phase| phase == "ending") as fn(&str) -> bool),
        ("stalls.freeing.longest_us", |phase| !phase.starts_with("filling")),
    ] {
        if stolen.iter().any(|(phase, stolen)| is_of(phase) && *stolen >= STOLEN_MAX) {
            section.refuse(figure);
        }
    }
}

/// The loops of the shard's members.
fn watch(arm: &Arm) -> anyhow::Result<Vec<Watched>> {
    let shard = arm.configuration.shard(ShardId(0)).context("there is a shard")?;
    let each = shard.members.iter().map(|member| {
        let name = if member.node == shard.primary { "primary" } else { "backup" };
        let core = arm.configuration.core_of(member.node, shard.shard).context("a member has a core")?;
        Ok(Watched { name, probe: Probe::connect(address(arm, core)?)? })
    });
    each.collect()
}

fn address(arm: &Arm, core: CoreId) -> anyhow::Result<std::net::SocketAddr> {
    arm.configuration.address_of(core).context("a core has an address")
}

/// The longest turn of each since this was asked last.
fn ask(watched: &mut [Watched]) -> anyhow::Result<Vec<(&'static str, LoopTurns)>> {
    watched.iter_mut().map(|each| Ok((each.name, each.probe.turns()?))).collect()
}

/// A client goes on for a while.
fn go_on(arm: &mut Arm) -> anyhow::Result<()> {
    let workload = Workload { prefix: "light-".to_owned(), ..Workload::puts(VALUE_BYTES, Keys::Uniform(LIGHT_KEYS)) };
    arm.run(LIGHT, &workload, Limit::Time(PAUSE))?;
    Ok(())
}

fn another_table(arm: &Arm, name: &str) -> anyhow::Result<TableId> {
    let mut event_loop = Connect::new(name, arm.children.seeds()).open()?;
    create_table(&mut event_loop, name)
}

/// Puts all values, which end in one moment, and returns that moment. A few of them are put twice: the first time tells how fast the
/// cluster is, and so how far ahead that moment has to be.
fn fill_what_ends(arm: &mut Arm, puts: &Workload, keys: u32) -> anyhow::Result<Tick> {
    let mut fill = |keys, ends| {
        let operation = Operation::PutEnding { value_bytes: VALUE_BYTES, ends };
        let workload = Workload { operation, prefix: "ending-".to_owned(), ..puts.clone() };
        arm.warm(CLIENTS, &workload, keys)
    };
    let begun = Clock::now();
    fill(keys.div_ceil(TRIED), begun.after(FAR))?;
    let all = Clock::now().since(begun) * TRIED;
    let ends = Clock::now().after(all + all / 2 + 6 * PAUSE);
    fill(keys, ends)?;
    Ok(ends)
}

/// All values end in one moment. Returns the p99 of the light load while they end, by that before, and the seconds after which all were
/// gone.
fn let_end(arm: &mut Arm, ends: Tick) -> anyhow::Result<(f64, f64)> {
    let light = Workload { prefix: "light-".to_owned(), ..Workload::puts(VALUE_BYTES, Keys::Uniform(LIGHT_KEYS)) };
    let left = ends.since(Clock::now());
    if left < PAUSE {
        bail!("the values were not put before they end: ask for fewer with --keys");
    }
    let before = arm.run(LIGHT, &light, Limit::Time(left))?;
    let during = arm.run(LIGHT, &light, Limit::Time(PAUSE / 4))?;
    for _ in 0..8 * PAUSES_MAX {
        let objects: u64 = arm.probe.status()?.replicas.iter().map(|replica| replica.objects).sum();
        if objects <= u64::from(LIGHT_KEYS) {
            let [before, during] = [before, during].map(|tally| tally.latency.value_at_percentile(99.0) as f64);
            return Ok((during / before, Clock::now().since(ends).as_secs_f64()));
        }
        arm.run(LIGHT, &light, Limit::Time(PAUSE / 8))?;
    }
    bail!("values that have ended are not gone");
}

/// Drops the table, and goes on until the primary has done so.
fn drop_table(arm: &mut Arm, table: TableId) -> anyhow::Result<()> {
    let name = arm.configuration.tables.iter().find(|info| info.table == table).context("the table is known")?;
    let name = name.name.clone();
    let mut event_loop = Connect::new("dropping", arm.children.seeds()).open()?;
    match call(&mut event_loop, |session, now, out| session.drop_table(now, &name, out))? {
        Completion::Table(TableOutcome::Dropped(_)) => {}
        other => bail!("cannot drop the table {name}: {other:?}"),
    }
    let mut objects = u64::MAX;
    for _ in 0..PAUSES_MAX {
        go_on(arm)?;
        objects = arm.probe.status()?.replicas.iter().map(|replica| replica.objects).sum();
        if objects <= u64::from(LIGHT_KEYS) {
            return Ok(());
        }
    }
    bail!("the table is not gone: {objects} keys are left");
}
