//! The cost of an update compared with the cost of any request: an unreplicated update against an empty request, which
//! goes through the same framing, event loop and machine, and does nothing there.

use anyhow::Context;
use hdrhistogram::Histogram;
use kasha_machine::{Effect, Effects, Endpoint, Gate, Input, Machine};
use kasha_node::Baseline;
use kasha_runtime::{Application, Clock, Control, EventLoop, LoopOptions};
use kasha_types::{LogSlice, ShardId, Tick};
use kasha_wire::{Message, message};

use crate::harness::keys::Keys;
use crate::harness::load::{Limit, Tally, Workload};
use crate::harness::{Arm, BenchOptions, Clients, Measured, Run, per, primary_address};
use crate::section::{Cell, Section, Table};
use crate::{ClusterSpec, limits};

const KEYS: u32 = 10_000;
const VALUE_BYTES: usize = 100;
const UPDATE_BY_EMPTY: &str = "floor.update/empty.p50";

/// The process that is asked.
const NODE: Endpoint = Endpoint::Seed(0);

/// Sends one ping after the other.
#[derive(Debug)]
struct Pinger {
    latency: Histogram<u64>,
    under_way: bool,
}

impl Pinger {
    fn send(&mut self, out: &mut Effects) {
        let mark = out.mark();
        message::Ping { sent: Clock::now() }.encode(out.arena());
        let head = out.span_from(mark);
        out.push(Effect::Send { to: NODE, head, tail: None, gate: Gate::Now });
        self.under_way = true;
    }
}

impl Machine for Pinger {
    fn step(&mut self, _: Tick, input: Input<'_>, _: &mut Effects) {
        let Input::Frame { payload, .. } = input else { return };
        if let Ok(message::Pong { sent, .. }) = Message::decode(payload) {
            let nanos = Clock::now().since(sent).as_nanos();
            self.latency.saturating_record(u64::try_from(nanos).unwrap_or(u64::MAX));
            self.under_way = false;
        }
    }
    fn end_turn(&mut self, _: Tick, _: &mut Effects) {}
    fn next_deadline(&self) -> Option<Tick> {
        None
    }
    fn is_open(&self, _: Gate) -> bool {
        true
    }
    fn log_bytes(&self, slice: LogSlice) -> &[u8] {
        unreachable!("a pinger has no log: {slice:?}")
    }
}

/// Sends pings until the time is over, or a ping is lost.
struct Pinging {
    until: Tick,
    give_up: Tick,
}

impl Application<Pinger> for Pinging {
    fn turn(&mut self, now: Tick, pinger: &mut Pinger, out: &mut Effects) -> Control {
        if now >= self.give_up {
            return Control::Exit;
        }
        if !pinger.under_way {
            if now >= self.until {
                return Control::Exit;
            }
            pinger.send(out);
        }
        Control::Continue
    }
    fn next_wake(&self) -> Option<Tick> {
        Some(self.give_up)
    }
}

fn ping(event_loop: &mut EventLoop<Pinger>, time: std::time::Duration) -> anyhow::Result<()> {
    let until = Clock::now().after(time);
    event_loop.run(&mut Pinging { until, give_up: until.after(limits::OPERATION) })?;
    anyhow::ensure!(!event_loop.machine().under_way, "a node does not answer a ping");
    Ok(())
}

pub(super) fn run(options: &BenchOptions) -> anyhow::Result<Section> {
    let run = Run::begin("floor", options);
    run.say("starting");
    let spec = ClusterSpec { baseline: Baseline::Unreplicated, ..run.spec("unreplicated", 0) };
    let link_delay = spec.link_delay;
    let mut arm = Arm::start("an update", spec, Clients::new(1, false))?;
    let address = primary_address(&arm.configuration, ShardId(0))?;
    let loop_options = LoopOptions { name: "pinger".to_owned(), link_delay, ..LoopOptions::default() };
    let mut pinger = EventLoop::new(loop_options, |_, _, out| {
        out.push(Effect::Route { to: NODE, address });
        Ok(Pinger { latency: Tally::new().latency, under_way: false })
    })?;
    let workload = Workload::puts(VALUE_BYTES, Keys::Uniform(KEYS));
    arm.warm(1, &workload, KEYS)?;
    // The first round connects.
    ping(&mut pinger, options.round / 10)?;
    let mut empty = Measured::new();
    let rounds = run.rounds_that_decide(100, |_| {
        let before = arm.probe.usage()?;
        let seen = pinger.machine().latency.clone();
        ping(&mut pinger, options.round)?;
        let mut latency = pinger.machine().latency.clone();
        latency.subtract(&seen).context("latencies of a round (fewer than before it)")?;
        let tally = Tally { reads: latency.len(), latency, ..Tally::new() };
        empty.add(&tally, before, arm.probe.usage()?);
        arm.round(1, &workload, Limit::Time(options.round))?;
        Ok(vec![(UPDATE_BY_EMPTY.to_owned(), arm.measured.relative_to(&empty, |round| round.p50_us))])
    })?;

    let about = format!(
        "one client, one request at a time: a put of {VALUE_BYTES} bytes to {KEYS} keys of an unreplicated node, and a \
         request that does nothing, over the same framing and event loops"
    );
    let mut section = Section::new("floor", about);
    let mut table =
        Table::new("An update and an empty request", &["request", "p50 µs", "p99 µs", "CPU µs", "requests"]);
    for (name, measured) in [("empty", &empty), ("update", &arm.measured)] {
        table.row([
            Cell::from(name),
            Cell::Number(measured.percentile_us(50.0), 1),
            Cell::Number(measured.percentile_us(99.0), 1),
            Cell::Number(measured.cpu_us(), 2),
            Cell::from(measured.tally.updates + measured.tally.reads),
        ]);
    }
    section.tables.push(table);
    let update = &arm.measured;
    section.ratio(UPDATE_BY_EMPTY, update.relative_to(&empty, |round| round.p50_us));
    section.ratio("floor.update/empty.p99", per(update.percentile_us(99.0), empty.percentile_us(99.0)));
    section.ratio("floor.update/empty.cpu", update.relative_to(&empty, |round| round.cpu_us));
    drop((arm, pinger));
    Ok(section.took(run.end()?, rounds))
}
