//! Any one node is killed, or falls silent: how long any shard is away. Three nodes, each of which leads a shard and hosts a member
//! of the coordinator's group.
//!
//! Each node in turn, on a cluster of its own: after a fail-over no shard moves back, and the next node would lead nothing. Node 1 has
//! begun the cluster, and leads the group. Only it and one other node fall silent: that takes long, and the others are alike.

use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use kasha_client::session::{CallId, CallOptions, Completion};
use kasha_machine::Effects;
use kasha_runtime::{Application, Clock, Control};
use kasha_types::{NodeId, ShardId, TableId, Tick};
use kasha_wire::Update;

use crate::client::open_session;
use crate::group::Group;
use crate::harness::crowd::Crowd;
use crate::harness::{Arm, Clients, Run};
use crate::section::{Cell, Section, Table};
use crate::{ClusterSpec, limits};

const NODES: u16 = 3;
const FAULTS: u8 = 1;
const VALUE: [u8; 100] = [b'v'; 100];
const WARM_UP: Duration = Duration::from_millis(300);
/// A shard that has answered since, and within so long, serves.
const LATELY: Duration = Duration::from_millis(200);
/// All shards are looked at for this long at least, since one may stop later than another.
const KILLED_AT_LEAST: Duration = Duration::from_millis(1500);
const SILENT_AT_LEAST: Duration = Duration::from_millis(2500);
const PATIENCE: Duration = Duration::from_secs(30);

/// What happens to a node.
#[derive(Clone, Copy)]
enum Blow {
    Killed,
    Silent,
}

pub(super) fn measure(run: &Run<'_>, section: &mut Section) -> anyhow::Result<()> {
    let columns =
        ["node", "", "of the group", "its shard is silent, s", "other shards are silent, s", "a new session, s"];
    let mut table = Table::new("A node of three is killed, or falls silent", &columns);
    for (blow, name, nodes) in [(Blow::Killed, "killed", 1..=NODES), (Blow::Silent, "silent", 1..=2)] {
        let mut longest = Duration::ZERO;
        for node in nodes.map(NodeId) {
            run.say(&format!("{node} {name}"));
            let Away { its, others, led, opened } = strike(run, blow, node, name)?;
            longest = longest.max(its).max(others);
            table.row([
                Cell::from(node.to_string()),
                Cell::from(name),
                Cell::from(if led { "the leader" } else { "a member" }),
                Cell::Number(its.as_secs_f64(), 2),
                Cell::Number(others.as_secs_f64(), 2),
                Cell::Number(opened.as_secs_f64(), 2),
            ]);
            if led {
                section.ratio(format!("coordinator.leaders_node_{name}.session_s"), opened.as_secs_f64());
            }
        }
        section.ratio(format!("coordinator.node_{name}.longest_s"), longest.as_secs_f64());
    }
    section.tables.push(table);
    Ok(())
}

/// How long shards were away: those that the node led, and the others.
struct Away {
    its: Duration,
    others: Duration,
    /// The node's process led the group.
    led: bool,
    /// When a session was open that began then.
    opened: Duration,
}

fn strike(run: &Run<'_>, blow: Blow, node: NodeId, name: &str) -> anyhow::Result<Away> {
    let members = (1..=NODES).map(NodeId).collect();
    let folder = format!("{node}-{name}");
    let spec = ClusterSpec { nodes: NODES, shards: NODES, members, ..run.spec(&folder, FAULTS) };
    let clients = Clients { deadline: PATIENCE, ..Clients::new(usize::from(NODES), true) };
    let mut arm = Arm::start(&folder, spec, clients)?;
    let group = Group::of(&arm.children);
    group.wait_until_all_follow(limits::START)?;
    let shards = (0..NODES).map(ShardId).map(|shard| {
        let known = arm.configuration.shard(shard).with_context(|| format!("there is no {shard}"))?;
        Ok((known.primary, format!("{}key", arm.tag_of(shard)?)))
    });
    let shards: Vec<(NodeId, String)> = shards.collect::<anyhow::Result<_>>()?;
    let keys = || shards.iter().map(|(_, key)| key.clone());
    watch(&mut arm, keys(), WARM_UP)?;
    let led = group.leader() == Some(node);
    let (struck, seeds) = (Clock::now(), arm.children.seeds());
    let least = match blow {
        Blow::Killed => {
            arm.children.kill(node)?;
            KILLED_AT_LEAST
        }
        Blow::Silent => {
            arm.children.stop(node)?;
            SILENT_AT_LEAST
        }
    };
    let (opened, gaps) = thread::scope(|scope| {
        let opened = scope.spawn(|| open_session("newcomer", seeds, PATIENCE).map(|_| Clock::now().since(struck)));
        let gaps = watch(&mut arm, keys(), least);
        (opened.join(), gaps)
    });
    let opened = opened.map_err(|_| anyhow!("the thread that opens a session has panicked"))??;
    let gaps = gaps?;
    let longest = |is_its: bool| {
        let of = shards.iter().zip(&gaps).filter(|((primary, _), _)| (*primary == node) == is_its);
        of.map(|(_, gap)| *gap).max().unwrap_or_default()
    };
    Ok(Away { its: longest(true), others: longest(false), led, opened })
}

/// A client for each key updates it. Returns the longest time without an answer of each, after at least this time, when all answer.
fn watch(arm: &mut Arm, keys: impl Iterator<Item = String>, least: Duration) -> anyhow::Result<Vec<Duration>> {
    let now = Clock::now();
    let of = |key| Shard { key, under_way: None, last_answer: now, longest_gap: Duration::ZERO };
    let mut watching = Watching { table: arm.table, shards: keys.map(of).collect(), began: now, least, failure: None };
    arm.event_loop.run(&mut watching)?;
    match watching.failure {
        Some(failure) => bail!("an update was not done: {failure}"),
        None => Ok(watching.shards.into_iter().map(|shard| shard.longest_gap).collect()),
    }
}

struct Shard {
    key: String,
    under_way: Option<CallId>,
    last_answer: Tick,
    longest_gap: Duration,
}

/// Each session of the crowd updates a shard of its own, one update after the other.
struct Watching {
    table: TableId,
    shards: Vec<Shard>,
    began: Tick,
    least: Duration,
    failure: Option<String>,
}

impl Watching {
    fn is_over(&self, now: Tick) -> bool {
        let serves = |shard: &Shard| shard.last_answer > self.began && now.since(shard.last_answer) < LATELY;
        self.failure.is_some() || now.since(self.began) >= self.least && self.shards.iter().all(serves)
    }
}

impl Application<Crowd> for Watching {
    fn turn(&mut self, _: Tick, crowd: &mut Crowd, out: &mut Effects) -> Control {
        for (shard, session) in self.shards.iter_mut().zip(crowd.sessions()) {
            while let Some((call, completion)) = session.poll_completed() {
                if shard.under_way.take_if(|ours| *ours == call).is_none() {
                    continue; // an earlier look has left it under way
                }
                match completion {
                    Completion::Executed { result, .. } => session.recycle(result),
                    other => self.failure = Some(format!("{other:?}")),
                }
                let now = Clock::now();
                shard.longest_gap = shard.longest_gap.max(now.since(shard.last_answer));
                shard.last_answer = now;
            }
            if shard.under_way.is_none() {
                let update = Update::put(shard.key.as_bytes(), &VALUE);
                shard.under_way = Some(session.update(Clock::now(), self.table, &update, &CallOptions::default(), out));
            }
        }
        if self.is_over(Clock::now()) { Control::Exit } else { Control::Continue }
    }

    fn next_wake(&self) -> Option<Tick> {
        Some(self.began.after(self.least).max(Clock::now().after(LATELY)))
    }
}
