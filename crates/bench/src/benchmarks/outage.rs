//! How much the outage of one shard costs the other shards, in a session that all of them share (R4.10: a window
//! belongs to a client id, and a session has several ids).
//!
//! Six nodes, f = 1, six shards. Two things are measured, each several times. First: both replicas of a shard are
//! killed, and 64 updates of a session wait for it. An update of the same session to a healthy shard, which has nothing
//! on the killed nodes, is compared with the same update before. Second: one node is killed, and the pauses of 24 keys
//! of all shards are measured, in one session and, at the same time, in a session for each key.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use kasha_client::session::{CallId, CallOptions, Completion};
use kasha_machine::Effects;
use kasha_runtime::{Application, Clock, Control};
use kasha_types::limits::NODE_LEASE;
use kasha_types::{NodeId, ShardId, TableId, Tick};
use kasha_wire::{ShardConfig, Update};

use crate::ClusterSpec;
use crate::children::COORDINATOR;
use crate::harness::crowd::Crowd;
use crate::harness::{Arm, BenchOptions, Clients, Run, median, per};
use crate::section::{Cell, Section, Table};

const NODES: u16 = 6;
const FAULTS: u8 = 1;
/// Updates of the shared session that wait for the shard that is away.
const WAITING: usize = 64;
const KEYS_OF_A_SHARD: u16 = 4;
const VALUE: [u8; 100] = [b'v'; 100];
/// The index of the session that all callers share. The sessions after it have one key each.
const SHARED: usize = 0;
const WARM_UP: Duration = Duration::from_millis(300);
/// The usual time is measured for this long, and the outage lasts this long: many windows of 512 updates.
const BEFORE: Duration = Duration::from_secs(1);
const OUTAGE: Duration = Duration::from_secs(2);
/// A key that has no answer for this long has paused: no node takes over from a dead one within half a lease.
const PAUSE: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn run(options: &BenchOptions) -> anyhow::Result<Section> {
    let run = Run::begin("outage", options);
    run.say("starting");
    let spec = ClusterSpec { nodes: NODES, shards: NODES, ..run.spec("kasha", FAULTS) };
    let keys = usize::from(NODES * KEYS_OF_A_SHARD);
    let clients = Clients { deadline: PATIENCE, keeps_spare: true, ..Clients::new(1 + keys, true) };
    let mut arm = Arm::start("kasha", spec, clients)?;
    let (mut neighbour, mut pauses) = (Vec::new(), Vec::new());
    let rounds = run.rounds(|_| {
        neighbour.extend(measure_neighbour(&mut arm)?);
        arm.heal()?;
        pauses.push(measure_pauses(&mut arm)?);
        arm.heal()
    })?;
    drop(arm);
    ensure!(!neighbour.is_empty(), "in no round did a shard share no node with another one");
    let about = format!(
        "{NODES} nodes, f = {FAULTS}, {NODES} shards, a lease of {NODE_LEASE:?}, values of {} bytes; a key pauses that is not \
         answered for {PAUSE:?}",
        VALUE.len()
    );
    let mut section = Section::new("outage", about);
    section.tables.push(neighbour_table(&neighbour));
    section.tables.push(pauses_table(&pauses, keys));
    section.ratio("outage.neighbour.during/before.p50", median(neighbour.iter().map(Neighbour::ratio)));
    let sum = |count: fn(&Pauses) -> usize| pauses.iter().map(count).sum::<usize>() as f64;
    section.ratio("outage.paused_keys.shared/own", per(sum(|each| each.shared), sum(|each| each.own)));
    Ok(section.took(run.end()?, rounds))
}

/// An update to a healthy shard: medians in microseconds, and the longest time without an answer.
struct Neighbour {
    before_us: f64,
    during_us: f64,
    longest: Duration,
}

impl Neighbour {
    fn ratio(&self) -> f64 {
        per(self.during_us, self.before_us)
    }
}

fn neighbour_table(found: &[Neighbour]) -> Table {
    let columns = ["round", "p50 µs before", "p50 µs during", "during/before", "longest pause ms"];
    let mut table = Table::new("An update to a healthy shard, while another shard is away", &columns);
    for (round, each) in found.iter().enumerate() {
        table.row([
            Cell::from(round as u64 + 1),
            Cell::Number(each.before_us, 1),
            Cell::Number(each.during_us, 1),
            Cell::Number(each.ratio(), 3),
            Cell::Number(each.longest.as_secs_f64() * 1000.0, 1),
        ]);
    }
    table
}

/// Keys that paused when a node was killed.
struct Pauses {
    shared: usize,
    own: usize,
    shared_longest: Duration,
    own_longest: Duration,
}

fn pauses_table(found: &[Pauses], keys: usize) -> Table {
    let columns = ["round", "keys", "paused, one session", "paused, own sessions", "longest s", "longest s, own"];
    let mut table = Table::new("Keys that pause when one node of six is killed", &columns);
    for (round, each) in found.iter().enumerate() {
        table.row([
            Cell::from(round as u64 + 1),
            Cell::from(keys as u64),
            Cell::from(each.shared as u64),
            Cell::from(each.own as u64),
            Cell::Number(each.shared_longest.as_secs_f64(), 2),
            Cell::Number(each.own_longest.as_secs_f64(), 2),
        ]);
    }
    table
}

/// `None`: as the shards lie after earlier rounds, every shard shares a node with each other one.
fn measure_neighbour(arm: &mut Arm) -> anyhow::Result<Option<Neighbour>> {
    let shards = &arm.configuration.shards;
    let is_apart = |away: &ShardConfig, healthy: &ShardConfig| {
        nodes_of(healthy).all(|node| away.members.iter().all(|member| member.node != node))
    };
    let is_spared = |shard: &&ShardConfig| shard.members.iter().all(|member| member.node != COORDINATOR);
    let mut pairs = shards.iter().filter(is_spared).flat_map(|away| {
        shards.iter().filter(move |healthy| is_apart(away, healthy)).map(move |healthy| (away, healthy.shard))
    });
    let Some((away, healthy)) = pairs.next() else { return Ok(None) };
    let (lost, away) = (away.members.iter().map(|member| member.node).collect::<Vec<_>>(), away.shard);
    let healthy = Caller::new(SHARED, format!("{}healthy", arm.tag_of(healthy)?));
    let tag = arm.tag_of(away)?;
    call(arm, vec![healthy.clone()], &[], WARM_UP)?;
    let before = call(arm, vec![healthy.clone()], &[], BEFORE)?;
    let waiting = (0..WAITING).map(|number| Caller { waits: true, ..Caller::new(SHARED, format!("{tag}{number}")) });
    let during = call(arm, std::iter::once(healthy).chain(waiting).collect(), &lost, OUTAGE)?;
    let (before_us, during_us) = (before[0].median_us(), during[0].median_us());
    Ok(Some(Neighbour { before_us, during_us, longest: during[0].longest_gap }))
}

/// All nodes that this shard needs to be as it was.
fn nodes_of(shard: &ShardConfig) -> impl Iterator<Item = NodeId> + '_ {
    shard.members.iter().map(|member| member.node).chain(shard.witnesses.iter().copied())
}

fn measure_pauses(arm: &mut Arm) -> anyhow::Result<Pauses> {
    let primaries = arm.configuration.shards.iter().map(|shard| shard.primary);
    let lost =
        primaries.filter(|&node| node != COORDINATOR).max().context("every primary is beside the coordinator")?;
    let mut callers = Vec::new();
    for shard in 0..NODES {
        let tag = arm.tag_of(ShardId(shard))?;
        for number in 0..KEYS_OF_A_SHARD {
            let session = 1 + usize::from(shard * KEYS_OF_A_SHARD + number);
            callers.push(Caller::new(SHARED, format!("{tag}shared-{number}")));
            callers.push(Caller::new(session, format!("{tag}own-{number}")));
        }
    }
    call(arm, callers.clone(), &[], WARM_UP)?;
    let called = call(arm, callers, &[lost], OUTAGE)?;
    let (shared, own): (Vec<&Caller>, Vec<&Caller>) = called.iter().partition(|caller| caller.session == SHARED);
    let paused = |callers: &[&Caller]| callers.iter().filter(|caller| caller.longest_gap >= PAUSE).count();
    let longest = |callers: &[&Caller]| callers.iter().map(|caller| caller.longest_gap).max().unwrap_or_default();
    Ok(Pauses {
        shared: paused(&shared),
        own: paused(&own),
        shared_longest: longest(&shared),
        own_longest: longest(&own),
    })
}

/// Somebody who updates one key, one update after the other.
#[derive(Clone, Debug)]
struct Caller {
    session: usize,
    key: String,
    /// The caller of a shard that is away: it makes only one update.
    waits: bool,
    under_way: Option<(CallId, Tick)>,
    last_answer: Tick,
    nanos: Vec<u64>,
    longest_gap: Duration,
}

impl Caller {
    fn new(session: usize, key: String) -> Self {
        let (nanos, last_answer) = (Vec::new(), Clock::now());
        Self { session, key, waits: false, under_way: None, last_answer, nanos, longest_gap: Duration::ZERO }
    }

    fn median_us(&self) -> f64 {
        median(self.nanos.iter().map(|&nanos| nanos as f64 / 1000.0))
    }

    fn on_answer(&mut self, now: Tick) {
        let Some((_, sent)) = self.under_way.take() else { return };
        self.nanos.push(u64::try_from(now.since(sent).as_nanos()).unwrap_or(u64::MAX));
        self.pause_until(now);
        self.last_answer = now;
    }

    fn pause_until(&mut self, now: Tick) {
        self.longest_gap = self.longest_gap.max(now.since(self.last_answer));
    }

    fn is_waiting_for(&self, call: CallId) -> bool {
        self.under_way.is_some_and(|(ours, _)| ours == call)
    }

    fn is_free(&self) -> bool {
        self.under_way.is_none() && (!self.waits || self.nanos.is_empty())
    }
}

/// Kills these nodes, lets all callers run for this time, and returns what they saw.
fn call(arm: &mut Arm, callers: Vec<Caller>, lost: &[NodeId], time: Duration) -> anyhow::Result<Vec<Caller>> {
    let began = Clock::now();
    lost.iter().try_for_each(|&node| arm.children.kill(node))?;
    let callers = callers.into_iter().map(|caller| Caller { last_answer: began, ..caller }).collect();
    let mut calling = Calling { table: arm.table, callers, end_at: began.after(time), failure: None };
    arm.event_loop.run(&mut calling)?;
    let Calling { mut callers, failure, .. } = calling;
    if let Some(failure) = failure {
        arm.children.check()?;
        bail!("an update was not done: {failure}");
    }
    callers.iter_mut().for_each(|caller| caller.pause_until(Clock::now()));
    Ok(callers)
}

struct Calling {
    table: TableId,
    callers: Vec<Caller>,
    end_at: Tick,
    failure: Option<String>,
}

impl Application<Crowd> for Calling {
    fn turn(&mut self, _: Tick, crowd: &mut Crowd, out: &mut Effects) -> Control {
        for (index, session) in crowd.sessions().iter_mut().enumerate() {
            while let Some((call, completion)) = session.poll_completed() {
                // Calls that an earlier measurement left under way end here too.
                let is_its = |caller: &&mut Caller| caller.session == index && caller.is_waiting_for(call);
                let Some(caller) = self.callers.iter_mut().find(is_its) else { continue };
                match completion {
                    Completion::Executed { result, .. } => {
                        session.recycle(result);
                        caller.on_answer(Clock::now());
                    }
                    other => self.failure = Some(format!("{other:?}")),
                }
            }
        }
        for caller in self.callers.iter_mut().filter(|caller| caller.is_free()) {
            let (now, session) = (Clock::now(), &mut crowd.sessions()[caller.session]);
            let update = Update::put(caller.key.as_bytes(), &VALUE);
            let call = session.update(now, self.table, &update, &CallOptions::default(), out);
            caller.under_way = Some((call, now));
        }
        let is_over = self.failure.is_some() || Clock::now() >= self.end_at;
        if is_over { Control::Exit } else { Control::Continue }
    }

    fn next_wake(&self) -> Option<Tick> {
        Some(self.end_at)
    }
}
