//! The Redis protocol: a node's port and `kasha proxy`, beside Redis itself.
//!
//! Two parts. With f = 0, one node beside one Redis on loopback, whose append-only file is flushed once a second: both have a command in a
//! file before they answer. With f = 1, a cluster beside a Redis with a replica and WAIT 1, on a virtual network: both have a command in
//! files of two machines. There also is a Redis that keeps nothing.
//!
//! All servers of a part run at the same time and are measured in turns.

pub(crate) mod load;
mod local;
mod network;
mod resp;

use std::path::Path;
use std::time::Duration;

use kasha_netlab::{Link, Netlab, NetlabOptions};
use kasha_wire::status::LoopUsage;

use crate::figure::Figure;
use crate::harness::{BenchOptions, Measured, Run, in_turns, per};
use crate::rivals::Obstacle;
use crate::rivals::servers::{REDIS, find_disk, find_installed};
use crate::section::{Cell, Section, Table};
use load::{Arm, Load, Request, VALUE_BYTES};
use local::{EVERYSEC, KASHA, Local};
use network::{CALLERS, HOSTS, NODE, NOT_DURABLE, Network, PROXY, WAIT1};

/// One way, on every link of the network.
const LINK_DELAY: Duration = Duration::from_micros(250);

const CLIENTS: usize = 50;

const DEPTH: usize = 16;

/// Of a benchmark's time.
const LOCAL_PERCENT: u32 = 50;

/// Rounds of a minute, at most: `--minutes` asks for time and not for rounds.
const ROUNDS_A_MINUTE: u32 = 60;

const ONE_SET: Load = Load::new(Request::Set, 1, 1);
const ONE_MULTI: Load = Load::new(Request::Multi, 1, 1);

/// What two loads are compared by.
#[derive(Clone, Copy, Debug)]
enum By {
    P50,
    Throughput,
}

/// One load of one server, and what it came to.
#[derive(Debug)]
struct Case {
    arm: &'static str,
    load: Load,
    measured: Measured,
    /// Processor time of the load itself.
    cpu: Duration,
}

/// A figure: one case by another.
#[derive(Debug)]
struct Comparison {
    figure: String,
    this: usize,
    other: usize,
    by: By,
}

/// What is measured in one part, and compared.
#[derive(Debug, Default)]
struct Plan {
    cases: Vec<Case>,
    comparisons: Vec<Comparison>,
}

impl Plan {
    /// One by another. Cases that are compared are measured one after the other.
    fn compare(&mut self, figure: impl Into<String>, this: (&'static str, Load), other: (&'static str, Load), by: By) {
        let [this, other] = [this, other].map(|(arm, load)| self.case(arm, load));
        self.comparisons.push(Comparison { figure: figure.into(), this, other, by });
    }

    fn case(&mut self, arm: &'static str, load: Load) -> usize {
        let known = self.cases.iter().position(|case| case.arm == arm && case.load == load);
        known.unwrap_or_else(|| {
            self.cases.push(Case { arm, load, measured: Measured::new(), cpu: Duration::ZERO });
            self.cases.len() - 1
        })
    }

    /// f = 0.
    fn local() -> Self {
        let mut plan = Self::default();
        plan.compare("redis.f0.multi4/set.p50", (KASHA, ONE_MULTI), (KASHA, ONE_SET), By::P50);
        plan.compare("redis.f0.set.kasha/everysec.p50", (KASHA, ONE_SET), (EVERYSEC, ONE_SET), By::P50);
        for (depth, clients) in [(1, "c50"), (DEPTH, "c50d16")] {
            for (request, name) in [(Request::Set, "set"), (Request::Get, "get"), (Request::Incr, "incr")] {
                let load = Load::new(request, CLIENTS, depth);
                let figure = format!("redis.f0.{clients}.{name}.kasha/everysec.throughput");
                plan.compare(figure, (KASHA, load), (EVERYSEC, load), By::Throughput);
            }
        }
        plan
    }

    /// f = 1.
    fn network() -> Self {
        let mut plan = Self::default();
        plan.compare("redis.f1.multi4/set.p50", (NODE, ONE_MULTI), (NODE, ONE_SET), By::P50);
        plan.compare("redis.f1.node/wait1.p50", (NODE, ONE_SET), (WAIT1, ONE_SET), By::P50);
        plan.compare("redis.f1.proxy/wait1.p50", (PROXY, ONE_SET), (WAIT1, ONE_SET), By::P50);
        plan.compare("redis.f1.proxy/not_durable.p50", (PROXY, ONE_SET), (NOT_DURABLE, ONE_SET), By::P50);
        for (depth, clients) in [(1, "c50"), (DEPTH, "c50d16")] {
            let load = Load::new(Request::Set, CLIENTS, depth);
            for (arm, name) in [(NODE, "node"), (PROXY, "proxy")] {
                let figure = format!("redis.f1.{clients}.{name}/wait1.throughput");
                plan.compare(figure, (arm, load), (WAIT1, load), By::Throughput);
            }
        }
        plan
    }

    fn figures(&self) -> Vec<(String, Figure)> {
        let figure = |comparison: &Comparison| {
            let [this, other] = [comparison.this, comparison.other].map(|case| &self.cases[case].measured);
            match comparison.by {
                By::P50 => this.relative_to(other, |round| round.p50_us),
                By::Throughput => this.relative_to(other, |round| round.throughput),
            }
        };
        self.comparisons.iter().map(|comparison| (comparison.figure.clone(), figure(comparison))).collect()
    }

    /// Measures all cases in turns. Returns the number of rounds.
    fn measure(&mut self, run: &Run<'_>, arms: &mut [Arm], percent: u32) -> anyhow::Result<u32> {
        run.rounds_that_decide(percent, |round| {
            in_turns(round, &mut self.cases, |case| {
                let arm = arms.iter_mut().find(|arm| arm.name == case.arm).expect("every case has its server");
                let (tally, cpu) = arm.turn(case.load, run.options.round)?;
                case.cpu += cpu;
                // No server but ours tells what its event loop used.
                case.measured.add(&tally, LoopUsage::default(), LoopUsage::default());
                Ok(())
            })?;
            Ok(self.figures())
        })
    }

    fn show(&self, title: &str, section: &mut Section) {
        let columns = ["server", "command", "clients", "depth", "p50 µs", "p99 µs", "commands/s", "load's CPU"];
        let mut table = Table::new(title, &columns);
        for Case { arm, load, measured, cpu } in &self.cases {
            table.row([
                Cell::from(*arm),
                Cell::from(load.request.name()),
                Cell::from(load.clients as u64),
                Cell::from(load.depth as u64),
                Cell::Number(measured.percentile_us(50.0), 1),
                Cell::Number(measured.percentile_us(99.0), 1),
                Cell::Number(measured.throughput(), 0),
                Cell::Share(per(cpu.as_secs_f64(), measured.tally.elapsed.as_secs_f64())),
            ]);
        }
        section.tables.push(table);
        self.figures().into_iter().for_each(|(name, figure)| section.ratio(name, figure));
    }
}

pub(super) fn run(options: &BenchOptions) -> anyhow::Result<Section> {
    let ready = find_disk(options.data.as_deref()).and_then(|_| find_installed(&[REDIS]));
    match ready {
        Ok(()) => measure(&timed(options)),
        Err(Obstacle::NotHere(skipped)) => Ok(Section::new("redis", skipped.to_string())),
        Err(Obstacle::Failed(error)) => Err(error),
    }
}

/// With `--minutes`, as many rounds as that time has.
fn timed(options: &BenchOptions) -> BenchOptions {
    let (mut timed, minutes) = (options.clone(), options.minutes);
    if minutes > 0 {
        timed.patience = Duration::from_secs(60) * minutes;
        timed.rounds = minutes.saturating_mul(ROUNDS_A_MINUTE);
    }
    timed
}

fn measure(options: &BenchOptions) -> anyhow::Result<Section> {
    let run = Run::begin("redis", options);
    let mut about = String::new();
    let mut local = Plan::local();
    let (mut rounds, version) = measure_local(&run, &mut local)?;
    let network = match Netlab::available() {
        Ok(()) => {
            let mut network = Plan::network();
            rounds = rounds.min(measure_network(&run, &mut network)?);
            Some(network)
        }
        Err(why) => {
            about = format!("; f = 1 was not measured: {why}");
            None
        }
    };
    let about = format!("beside Redis {version}; values of {VALUE_BYTES} bytes, keys drawn evenly{about}");
    let mut section = Section::new("redis", about);
    local.show(
        "One node, one shard, f = 0, beside Redis with AOF everysec; on loopback; latencies of pipelines",
        &mut section,
    );
    if let Some(network) = network {
        let title =
            format!("f = 1, beside Redis with a replica, {:?} each way; latencies of pipelines", delay(options));
        network.show(&title, &mut section);
    }
    Ok(section.took(run.end()?, rounds))
}

fn delay(options: &BenchOptions) -> Duration {
    options.link_delay.unwrap_or(LINK_DELAY)
}

fn measure_local(run: &Run<'_>, plan: &mut Plan) -> anyhow::Result<(u32, String)> {
    run.say("starting, f = 0");
    let mut local = Local::start(&run.options.exe, &run.folder("local"), CLIENTS)?;
    Ok((plan.measure(run, &mut local.arms, LOCAL_PERCENT)?, local.version))
}

fn measure_network(run: &Run<'_>, plan: &mut Plan) -> anyhow::Result<u32> {
    run.say("starting, f = 1");
    let options = NetlabOptions { link: Link::delayed(delay(run.options)), ..NetlabOptions::new(HOSTS, 1) };
    let lab = Netlab::with(options)?;
    let folder = run.folder("network");
    let exe: &Path = &run.options.exe;
    // Sockets belong to the host on which they are made.
    lab.host(CALLERS).run(|| {
        let mut network = Network::start(exe, &lab, &folder, CLIENTS)?;
        plan.measure(run, &mut network.arms, 100 - LOCAL_PERCENT)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::TARGETS;

    #[test]
    fn every_target_is_a_figure_of_a_plan() {
        let plans = [Plan::local(), Plan::network()];
        let figures: Vec<&str> =
            plans.iter().flat_map(|plan| &plan.comparisons).map(|comparison| comparison.figure.as_str()).collect();
        let targets = TARGETS.iter().filter(|target| target.figure.starts_with("redis."));
        let missing: Vec<_> = targets.clone().filter(|target| !figures.contains(&target.figure)).collect();
        assert!(missing.is_empty() && targets.count() > 0, "{missing:?}");
    }

    #[test]
    fn minutes_are_time_and_not_rounds() {
        let usual = BenchOptions::new("kasha-lab".into());
        assert_eq!((timed(&usual).rounds, timed(&usual).patience), (usual.rounds, usual.patience));
        let long = timed(&BenchOptions { minutes: 10, ..usual });
        assert_eq!((long.rounds, long.patience), (600, Duration::from_secs(600)));
    }
}
