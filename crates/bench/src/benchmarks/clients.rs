//! A million clients: how much memory their states take, and whether other clients notice them (RIFL 7.3; pitfall 6).
//!
//! The states are real. A plain event loop takes a million client ids from the coordinator, each with its lease, and
//! sends one update under each to the shard's primary, like a million clients that never come again. The primary keeps
//! a completion record and an entry for each, and so do the backups. The other cluster has only the clients that
//! measure. The weight is the memory that the primary's thread holds on the heap, without the segments of its log.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context, ensure};
use kasha_machine::{Effect, Effects, Endpoint, Gate, Input, Machine};
use kasha_runtime::{Application, Clock, Control, EventLoop, LoopOptions};
use kasha_types::{
    AckedBelow, ClientId, ClusterTime, CoreId, Epoch, ListVersion, LogSlice, RpcId, Sequence, ShardId, TableId, Tick,
};
use kasha_wire::{Body, BodyHead, Envelope, Kind, Message, Reader, RequestView, Update, message};

use crate::harness::keys::Keys;
use crate::harness::load::{Limit, Workload};
use crate::harness::{Arm, BenchOptions, Clients, Measured, Run, in_turns, per};
use crate::limits;
use crate::section::{Cell, Section, Table, rounded};

const KEYS: u32 = 10_000;
const VALUE_BYTES: usize = 100;
const CLIENTS: usize = 16;
const FAULTS: u8 = 1;
/// Questions under way: fewer than any queue of a server's, more than a turn takes.
const WINDOW: usize = 512;
/// Keys that the many clients write: so few that objects take no memory worth counting.
const MANY_KEYS: u64 = 64;
/// How long to wait before a refused update is sent again.
const AGAIN: Duration = Duration::from_millis(20);
/// A heartbeat tells nodes which ids were granted. Before that they would have to ask about each id.
const HEARTBEATS: Duration = Duration::from_secs(1);

/// Many clients of one update each.
#[derive(Debug)]
struct Multitude {
    primary: CoreId,
    epoch: Epoch,
    table: TableId,
    wanted: usize,
    asked: usize,
    /// Ids and leases, in order: the coordinator grants upwards.
    granted: Vec<(ClientId, ClusterTime)>,
    /// The first client that has not sent its update.
    next: usize,
    /// Clients whose update must be sent again.
    refused: VecDeque<usize>,
    again_at: Tick,
    done: usize,
    updating: bool,
    body: Vec<u8>,
}

impl Multitude {
    fn send_update(&mut self, index: usize, out: &mut Effects) {
        let (client, lease_expiry) = self.granted[index];
        let rpc = RpcId { client, sequence: Sequence(1) };
        let head = BodyHead {
            rpc,
            acknowledgement: AckedBelow(1),
            lease_expiry,
            not_after: ClusterTime(0),
            begun: ClusterTime(0),
            table: self.table,
        };
        let key = (index as u64 % MANY_KEYS).to_le_bytes();
        self.body.clear();
        Body::encode(&head, None, &Update::put(&key, b"v"), &mut self.body);
        let envelope = Envelope {
            shard: ShardId(0),
            epoch: self.epoch,
            list: ListVersion::NONE,
            cluster_time: ClusterTime(0),
            attempt: 1,
            turn: None,
        };
        let mark = out.mark();
        RequestView::encode(Kind::Request, &envelope, &self.body, out.arena());
        let head = out.span_from(mark);
        out.push(Effect::Send { to: Endpoint::Core(self.primary), head, tail: None, gate: Gate::Now });
    }

    fn index_of(&self, payload: &[u8]) -> Option<usize> {
        let client: ClientId = Reader::new(payload).take().ok()?;
        self.granted.binary_search_by_key(&client, |(granted, _)| *granted).ok()
    }

    fn under_way(&self) -> usize {
        self.next - self.done - self.refused.len()
    }
}

impl Machine for Multitude {
    fn step(&mut self, now: Tick, input: Input<'_>, _: &mut Effects) {
        let Input::Frame { kind, payload, .. } = input else { return };
        match Kind::from_number(kind) {
            Some(Kind::Message) => {
                if let Ok(message::SessionOpened { client, lease_expiry, .. }) = Message::decode(payload) {
                    self.granted.push((client, lease_expiry));
                }
            }
            Some(Kind::Answer) => self.done += 1,
            Some(Kind::Refuse) => {
                if let Some(index) = self.index_of(payload) {
                    self.refused.push_back(index);
                    self.again_at = now.after(AGAIN);
                }
            }
            _ => {}
        }
    }

    fn end_turn(&mut self, now: Tick, out: &mut Effects) {
        while !self.updating && self.asked < self.wanted && self.asked - self.granted.len() < WINDOW {
            self.asked += 1;
            let mark = out.mark();
            message::OpenSession { nonce: self.asked as u64 }.encode(out.arena());
            let head = out.span_from(mark);
            out.push(Effect::Send { to: Endpoint::Coordinator, head, tail: None, gate: Gate::Now });
        }
        if self.updating && now >= self.again_at {
            for _ in 0..self.refused.len().min(WINDOW.saturating_sub(self.under_way())) {
                let index = self.refused.pop_front().expect("as many as counted");
                self.send_update(index, out);
            }
        }
        while self.updating && self.next < self.granted.len() && self.under_way() < WINDOW {
            self.next += 1;
            self.send_update(self.next - 1, out);
        }
    }

    fn next_deadline(&self) -> Option<Tick> {
        (!self.refused.is_empty()).then_some(self.again_at)
    }
    fn is_open(&self, _: Gate) -> bool {
        true
    }
    fn log_bytes(&self, slice: LogSlice) -> &[u8] {
        unreachable!("clients have no log: {slice:?}")
    }
}

/// Runs until there is nothing left to do, or nothing moves any more.
struct UntilDone {
    seen: usize,
    give_up: Tick,
}

impl Application<Multitude> for UntilDone {
    fn turn(&mut self, now: Tick, multitude: &mut Multitude, _: &mut Effects) -> Control {
        let done = if multitude.updating { multitude.done } else { multitude.granted.len() };
        if done > self.seen {
            (self.seen, self.give_up) = (done, now.after(limits::OPERATION));
        }
        if done >= multitude.wanted || now >= self.give_up { Control::Exit } else { Control::Continue }
    }
    fn next_wake(&self) -> Option<Tick> {
        Some(self.give_up)
    }
}

/// Makes this many clients known to the shard.
fn populate(run: &Run<'_>, arm: &Arm, states: u32) -> anyhow::Result<()> {
    let known = &arm.configuration;
    let shard = known.shard(ShardId(0)).context("a cluster without a shard")?;
    let primary = known.core_of(shard.primary, ShardId(0)).context("a shard without a primary")?;
    let address = known.address_of(primary).context("a primary without an address")?;
    let (coordinator, wanted) = (known.coordinator, states as usize);
    let multitude = Multitude {
        primary,
        epoch: shard.epoch,
        table: arm.table,
        wanted,
        asked: 0,
        granted: Vec::with_capacity(wanted),
        next: 0,
        refused: VecDeque::new(),
        again_at: Tick(0),
        done: 0,
        updating: false,
        body: Vec::new(),
    };
    let options = LoopOptions { name: "multitude".to_owned(), ..LoopOptions::default() };
    let mut event_loop = EventLoop::new(options, |_, _, out| {
        out.push(Effect::Route { to: Endpoint::Coordinator, address: coordinator });
        out.push(Effect::Route { to: Endpoint::Core(primary), address });
        Ok(multitude)
    })?;
    for updating in [false, true] {
        run.say(if updating { "an update of each client" } else { "leases for each client" });
        let mut until = UntilDone { seen: 0, give_up: Clock::now().after(limits::OPERATION) };
        event_loop.run(&mut Begin { updating, until: &mut until })?;
        let reached = until.seen;
        ensure!(reached >= wanted, "{reached} of {wanted} clients got through; see the logs of the cluster");
        std::thread::sleep(HEARTBEATS);
    }
    Ok(())
}

/// Switches to a phase, and runs it.
struct Begin<'u> {
    updating: bool,
    until: &'u mut UntilDone,
}

impl Application<Multitude> for Begin<'_> {
    fn turn(&mut self, now: Tick, multitude: &mut Multitude, out: &mut Effects) -> Control {
        multitude.updating = self.updating;
        self.until.turn(now, multitude, out)
    }
    fn next_wake(&self) -> Option<Tick> {
        self.until.next_wake()
    }
}

/// What a primary reports about its memory.
#[derive(Clone, Copy, Debug, Default)]
struct Weight {
    clients: u64,
    heap_bytes: u64,
    log_bytes: u64,
}

fn weigh(arm: &mut Arm) -> anyhow::Result<Weight> {
    let (usage, status) = (arm.probe.usage()?, arm.probe.status()?);
    let replica = status.replicas.iter().find(|replica| replica.primary).context("no primary")?;
    Ok(Weight { clients: replica.clients, heap_bytes: usage.heap_bytes, log_bytes: replica.memory_bytes })
}

pub(super) fn run(options: &BenchOptions) -> anyhow::Result<Section> {
    let faults = options.faults.unwrap_or(FAULTS);
    let run = Run::begin("clients", options);
    let workload = Workload::puts(VALUE_BYTES, Keys::Uniform(KEYS));
    let mut arms = Vec::new();
    for name in ["one", "many"] {
        run.say(&format!("starting {name}"));
        let mut arm = Arm::start(name, run.spec(name, faults), Clients::new(CLIENTS, true))?;
        arm.warm(CLIENTS, &workload, KEYS)?;
        arms.push((arm, Measured::new(), Measured::new()));
    }
    let before = weigh(&mut arms[1].0)?;
    populate(&run, &arms[1].0, options.states)?;
    let after = weigh(&mut arms[1].0)?;
    let limit = Limit::Time(options.round);
    let rounds = run.rounds(|round| {
        in_turns(round, &mut arms, |(arm, alone, crowded)| {
            arm.round_into(1, &workload, limit, alone)?;
            arm.round_into(CLIENTS, &workload, limit, crowded)
        })
    })?;
    let about = format!(
        "{} client states on the primary, each with its completion record, against those of the clients that measure; puts \
         of {VALUE_BYTES} bytes to {KEYS} keys, latency of one client, the rest with {CLIENTS}; f = {faults}",
        options.states
    );
    let mut section = Section::new("clients", about);
    let columns = ["client states", "p50 µs", "p99 µs", "CPU µs", "updates/s", "fast path"];
    let mut table = Table::new("By the number of client states", &columns);
    for (arm, alone, crowded) in &mut arms {
        table.row([
            Cell::from(weigh(arm)?.clients),
            Cell::Number(alone.percentile_us(50.0), 1),
            Cell::Number(alone.percentile_us(99.0), 1),
            Cell::Number(crowded.cpu_us(), 2),
            Cell::Number(crowded.throughput(), 0),
            Cell::Share(crowded.fast_path_rate()),
        ]);
    }
    section.tables.push(table);
    weigh_up(&mut section, before, after);
    let [(_, one, one_crowded), (_, many, many_crowded)] = &arms[..] else { unreachable!("two arms") };
    section.ratio("clients.many/one.p50", many.relative_to(one, |round| round.p50_us));
    section.ratio("clients.many/one.p99", per(many.percentile_us(99.0), one.percentile_us(99.0)));
    section.ratio("clients.many/one.cpu", many_crowded.relative_to(one_crowded, |round| round.cpu_us));
    drop(arms);
    Ok(section.took(run.end()?, rounds))
}

fn weigh_up(section: &mut Section, before: Weight, after: Weight) {
    let more = |of: fn(&Weight) -> u64| of(&after) as f64 - of(&before) as f64;
    let clients = more(|weight| weight.clients);
    let (heap, log) = (more(|weight| weight.heap_bytes), more(|weight| weight.log_bytes));
    let columns = ["clients", "heap bytes", "of these segments", "the rest, each", "log, each"];
    let mut table = Table::new("What the primary's thread holds more than before", &columns);
    let each = per(heap - log, clients);
    table.row([
        Cell::Number(clients, 0),
        Cell::Number(heap, 0),
        Cell::Number(log, 0),
        Cell::Number(each, 1),
        Cell::Number(per(log, clients), 1),
    ]);
    section.tables.push(table);
    section.detail("clients.bytes_each", rounded(each, 1));
    section.detail("clients.states", clients);
}
