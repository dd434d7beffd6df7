//! Thousands of transactions that are pending when the primary of one of their two shards dies. All of them wait for its
//! successor. Measured: how long after the first answer the last one comes.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use kasha_client::session::{CallId, CallOptions, Completion};
use kasha_machine::Effects;
use kasha_runtime::{Application, Clock, Control};
use kasha_types::limits::NODE_LEASE;
use kasha_types::{TableId, Tick};
use kasha_wire::operation::{PartOperation, PartsBuffer};
use kasha_wire::{OutcomeCode, ShardConfig, Update};

use crate::ClusterSpec;
use crate::children::COORDINATOR;
use crate::harness::crowd::Crowd;
use crate::harness::probe::Probe;
use crate::harness::{Arm, Clients, Run, median};
use crate::section::{Cell, Section, Table};

/// And shards: enough for two that have no node in common, and for both to be whole again after a node is lost.
const NODES: u16 = 6;
const FAULTS: u8 = 1;
const TRANSACTIONS: usize = 10_000;
/// Each has 250 of them under way.
const SESSIONS: usize = 40;
const VALUE: [u8; 100] = [b'v'; 100];
/// No node takes over from a dead one within half a lease: until then nothing is answered.
const SENDING: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(60);

/// What was measured in one fail-over.
struct FailOver {
    /// Pending at the other primary, shortly before the fail-over.
    pending: u64,
    /// From the loss of the primary to the first answer.
    first: Duration,
    last: Duration,
}

/// Measures it, and adds the table and the ratio to the section.
pub(super) fn measure(run: &Run<'_>, section: &mut Section) -> anyhow::Result<()> {
    let mut found = Vec::new();
    run.rounds(|_| {
        found.push(fail_over(run)?);
        anyhow::Ok(())
    })?;
    let columns = ["round", "pending", "first answer ms", "last answer ms", "between ms"];
    let mut table = Table::new("Transactions that are pending when the primary of one of their shards dies", &columns);
    let millis = |time: Duration| time.as_secs_f64() * 1000.0;
    for (round, each) in found.iter().enumerate() {
        table.row([
            Cell::from(round as u64 + 1),
            Cell::from(each.pending),
            Cell::Number(millis(each.first), 0),
            Cell::Number(millis(each.last), 0),
            Cell::Number(millis(each.last - each.first), 0),
        ]);
    }
    section.tables.push(table);
    let between = median(found.iter().map(|each| millis(each.last - each.first)));
    section.ratio("transactions.fail_over.between_answers/lease", between / millis(NODE_LEASE));
    Ok(())
}

fn fail_over(run: &Run<'_>) -> anyhow::Result<FailOver> {
    let spec = ClusterSpec { nodes: NODES, shards: NODES, ..run.spec("pending", FAULTS) };
    let clients = Clients { deadline: PATIENCE, ..Clients::new(SESSIONS, true) };
    let mut arm = Arm::start("pending", spec, clients)?;
    let (lost, left) = lost_and_left(&arm.configuration.shards)?;
    let tags = [arm.tag_of(lost.shard)?, arm.tag_of(left.shard)?];
    let core = arm.configuration.core_of(left.primary, left.shard).context("a primary has a core")?;
    let mut probe = Probe::connect(arm.configuration.address_of(core).context("a core has an address")?)?;
    call(&mut arm, &mut Calling::new(SESSIONS, &tags, "warm", None))?;

    let (began, lost) = (Clock::now(), lost.primary);
    arm.children.kill(lost)?;
    let mut calling = Calling::new(TRANSACTIONS, &tags, "key", Some(began.after(SENDING)));
    call(&mut arm, &mut calling)?;
    let status = probe.status()?;
    let pending = status.replicas.iter().map(|replica| replica.transactions.pending).max().unwrap_or(0);
    ensure!(calling.first.is_none(), "a transaction was answered although the primary of one of its shards is dead");
    calling.end_at = None;
    call(&mut arm, &mut calling)?;
    let (first, last) = calling.first.zip(calling.last).context("nothing was answered")?;
    Ok(FailOver { pending, first: first.since(began), last: last.since(began) })
}

/// A shard whose primary can be lost, and another one that is not touched by that.
fn lost_and_left(shards: &[ShardConfig]) -> anyhow::Result<(ShardConfig, ShardConfig)> {
    let is_touched = |lost: &ShardConfig, left: &ShardConfig| {
        left.members.iter().any(|member| member.node == lost.primary) || left.witnesses.contains(&lost.primary)
    };
    let mut pairs = shards.iter().flat_map(|lost| shards.iter().map(move |left| (lost, left)));
    let pair =
        pairs.find(|(lost, left)| lost.shard != left.shard && lost.primary != COORDINATOR && !is_touched(lost, left));
    let (lost, left) = pair.context("no two shards are apart from each other")?;
    Ok((lost.clone(), left.clone()))
}

fn call(arm: &mut Arm, calling: &mut Calling) -> anyhow::Result<()> {
    calling.table = arm.table;
    arm.event_loop.run(calling)?;
    if let Some(failure) = calling.failure.take() {
        arm.children.check()?;
        bail!("a transaction was not done: {failure}");
    }
    Ok(())
}

/// Transactions that put a key on each of two shards.
struct Calling {
    table: TableId,
    /// The keys that are not sent yet.
    unsent: Vec<[String; 2]>,
    under_way: Vec<Vec<CallId>>,
    first: Option<Tick>,
    last: Option<Tick>,
    end_at: Option<Tick>,
    failure: Option<String>,
}

impl Calling {
    fn new(transactions: usize, tags: &[String; 2], name: &str, end_at: Option<Tick>) -> Self {
        let keys = |number| tags.each_ref().map(|tag| format!("{tag}{name}-{number}"));
        Self {
            table: TableId(0),
            unsent: (0..transactions).map(keys).collect(),
            under_way: vec![Vec::new(); SESSIONS],
            first: None,
            last: None,
            end_at,
            failure: None,
        }
    }

    fn on_answer(&mut self, completion: Completion) {
        match completion {
            Completion::Executed { result, .. } if result.first() == Some(&(OutcomeCode::Done as u8)) => {
                let now = Clock::now();
                self.first.get_or_insert(now);
                self.last = Some(now);
            }
            other => self.failure = Some(format!("{other:?}")),
        }
    }
}

impl Application<Crowd> for Calling {
    fn turn(&mut self, _: Tick, crowd: &mut Crowd, out: &mut Effects) -> Control {
        for (index, session) in crowd.sessions().iter_mut().enumerate() {
            while let Some((call, completion)) = session.poll_completed() {
                if let Some(at) = self.under_way[index].iter().position(|ours| *ours == call) {
                    self.under_way[index].swap_remove(at);
                    self.on_answer(completion);
                }
            }
        }
        for number in 0..self.unsent.len() {
            let Some(keys) = self.unsent.pop() else { break };
            let mut parts = PartsBuffer::default();
            for key in &keys {
                let put = Update::put(key.as_bytes(), &VALUE);
                parts.push(self.table, &PartOperation::Update(put));
            }
            let index = number % SESSIONS;
            let update = Update::Transaction { parts: parts.as_parts() };
            let session = &mut crowd.sessions()[index];
            let call = session.update(Clock::now(), self.table, &update, &CallOptions::default(), out);
            self.under_way[index].push(call);
        }
        let is_idle = self.under_way.iter().all(Vec::is_empty);
        let is_over = self.failure.is_some() || is_idle || self.end_at.is_some_and(|end| Clock::now() >= end);
        if is_over { Control::Exit } else { Control::Continue }
    }

    fn next_wake(&self) -> Option<Tick> {
        self.end_at
    }
}
