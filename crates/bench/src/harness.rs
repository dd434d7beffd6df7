//! The part that all benchmarks of clusters share: a cluster of child processes for each mode, its clients, its rounds.
//!
//! The modes of a benchmark all run at the same time, and are measured in turns of a fraction of a second. So whatever
//! else the machine does affects all of them alike, and only their ratios have a meaning. Every mode is the same
//! program with the same batching. Before each round its clients warm up. Before and after the round, the primary's
//! event loop is asked what it has used.

pub(crate) mod crowd;
pub(crate) mod keys;
pub(crate) mod lifetime;
pub(crate) mod load;
mod measured;
pub(crate) mod operation;
pub(crate) mod probe;
pub(crate) mod turns;

use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use kasha_client::session::Session;
use kasha_machine::Rng;
use kasha_node::Baseline;
use kasha_runtime::{Clock, EventLoop, LoopOptions, random_u64};
use kasha_types::{ShardId, TableId, Tick, slot_of};
use kasha_wire::Configuration;

use crate::children::{Children, ClusterSpec};
use crate::client::{Connect, create_table, look};
use crate::figure::{Figure, Ticks};
use crate::section::Took;
use crate::{limits, targets};
use crowd::Crowd;
use keys::Keys;
use load::{Limit, Load, Tally, Workload};
pub(crate) use measured::{Measured, median, per};
use probe::Probe;

/// The options of every benchmark.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// The `kasha-lab` binary, which runs nodes for benchmarks. `kasha` lies beside it.
    pub exe: PathBuf,
    /// The folder in which to make the folder for the clusters' data, which is removed at the end; `None`: among
    /// temporary files.
    pub data: Option<PathBuf>,
    /// Show a bar (on a terminal only).
    pub progress: bool,
    /// Injected delay of each direction; `None`: the benchmark's own.
    pub link_delay: Option<Duration>,
    /// `f`, if a benchmark has one; `None`: the benchmark's own.
    pub faults: Option<u8>,
    /// Rounds of each mode.
    pub rounds: u32,
    /// How long a round lasts.
    pub round: Duration,
    /// Client states, for `clients`.
    pub states: u32,
    /// Keys, for `stalls` and `scan`.
    pub keys: u32,
    /// Bytes of the largest shard, for `recovery`.
    pub bytes: u64,
    /// MiB of memory of a replica, for `cleaning`.
    pub memory_mib: u64,
    /// Minutes of full load in which nobody is killed, for `coordinator`; 0: not measured. For `redis`: how long to measure, unless 0.
    pub minutes: u32,
    /// No round but the first two begins after this time.
    pub patience: Duration,
}

impl BenchOptions {
    /// 30 rounds of 250 ms, a million clients, a shard of 1 GiB.
    #[must_use]
    pub fn new(exe: PathBuf) -> Self {
        Self {
            exe,
            data: None,
            progress: true,
            link_delay: None,
            faults: None,
            rounds: 30,
            round: Duration::from_millis(250),
            states: 1_000_000,
            keys: 300_000,
            bytes: 1 << 30,
            memory_mib: 1024,
            minutes: 0,
            patience: Duration::from_secs(120),
        }
    }
}

/// So many times the rounds that were asked for, if those decide nothing.
const MORE_ROUNDS: u32 = 4;

/// One run of one benchmark: its folder, its progress bar, its time limit.
#[derive(Debug)]
pub(crate) struct Run<'o> {
    pub(crate) options: &'o BenchOptions,
    folder: PathBuf,
    bar: ProgressBar,
    began: Tick,
    ticks: Ticks,
}

impl<'o> Run<'o> {
    pub(crate) fn begin(name: &str, options: &'o BenchOptions) -> Self {
        let parent = options.data.clone().unwrap_or_else(std::env::temp_dir);
        let folder = parent.join(format!("kasha-{name}-{}-{:x}", std::process::id(), random_u64()));
        // The bar hides itself if there is no terminal.
        let bar = if options.progress { ProgressBar::new(1) } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{elapsed_precise} {bar:30} {prefix}: {msg}");
        bar.set_style(style.expect("a valid template"));
        bar.set_prefix(name.to_owned());
        bar.set_position(0);
        Self { options, folder, bar, began: Clock::now(), ticks: Ticks::now() }
    }

    pub(crate) fn say(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// A folder of its own for one of the clusters.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The options of a cluster in this mode.
    pub(crate) fn spec(&self, name: &str, faults: u8) -> ClusterSpec {
        let link_delay = self.options.link_delay.unwrap_or_default();
        let memory_mib = Some(limits::BENCH_MEMORY_MIB);
        ClusterSpec { link_delay, memory_mib, ..ClusterSpec::new(self.options.exe.clone(), self.folder(name), faults) }
    }

    /// Does each round: as many as were asked for, or as many as the time allows, but two at least. Returns how many.
    pub(crate) fn rounds(&self, each: impl FnMut(u32) -> anyhow::Result<()>) -> anyhow::Result<u32> {
        self.rounds_until(self.began.after(self.options.patience), 0..self.options.rounds, each)
    }

    /// The same for a part of a benchmark, in this percentage of the benchmark's time; and more rounds, if there is time, if the
    /// figures that those lead to do not decide their targets.
    ///
    /// The figures are looked at twice at most: after the rounds that were asked for, and at the end. If the first range that
    /// decides ended the rounds, whatever their number, that range would be wrong more often than it says.
    pub(crate) fn rounds_that_decide(
        &self,
        percent: u32,
        mut each: impl FnMut(u32) -> anyhow::Result<Vec<(String, Figure)>>,
    ) -> anyhow::Result<u32> {
        let part = Clock::now().after(self.options.patience / 100 * percent);
        let end = part.min(self.began.after(self.options.patience));
        let asked = self.options.rounds;
        let (mut done, mut is_decided) = (0, false);
        for look in [asked, asked.saturating_mul(MORE_ROUNDS)] {
            if !is_decided {
                done = self.rounds_until(end, done..look, |round| {
                    let figures = each(round)?;
                    is_decided = figures.iter().all(|(name, figure)| targets::is_decided(name, *figure));
                    Ok(())
                })?;
            }
        }
        Ok(done)
    }

    /// The same for a part of a benchmark, in this percentage of the benchmark's time.
    pub(crate) fn rounds_within(
        &self,
        percent: u32,
        each: impl FnMut(u32) -> anyhow::Result<()>,
    ) -> anyhow::Result<u32> {
        let end = Clock::now().after(self.options.patience / 100 * percent);
        self.rounds_until(end, 0..self.options.rounds, each)
    }

    /// Returns the number of rounds that are done, with those before.
    fn rounds_until(
        &self,
        end: Tick,
        rounds: Range<u32>,
        mut each: impl FnMut(u32) -> anyhow::Result<()>,
    ) -> anyhow::Result<u32> {
        self.bar.set_length(u64::from(rounds.end));
        for round in rounds.clone() {
            self.bar.set_position(u64::from(round));
            if round >= limits::ROUNDS_MIN && Clock::now() >= end {
                return Ok(round);
            }
            self.say(&format!("round {} of {}", round + 1, rounds.end));
            each(round)?;
        }
        self.bar.set_position(u64::from(rounds.end));
        Ok(rounds.end)
    }

    /// Whether the time is over, so that optional parts are left out.
    pub(crate) fn is_out_of_patience(&self) -> bool {
        Clock::now().since(self.began) >= self.options.patience
    }

    /// Ends a successful run. (After a failure the logs stay, so that somebody can look for the reason.)
    pub(crate) fn end(self) -> anyhow::Result<Took> {
        self.bar.finish_and_clear();
        remove(&self.folder)?;
        Ok(Took { time: Clock::now().since(self.began), stolen: Ticks::now().stolen_since(self.ticks) })
    }
}

fn remove(folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    Ok(())
}

/// The order of the modes in a round: forwards in one round, backwards in the next, so that no mode always follows the
/// same one.
pub(crate) fn in_turns<T>(
    round: u32,
    all: &mut [T],
    mut each: impl FnMut(&mut T) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if round.is_multiple_of(2) {
        all.iter_mut().try_for_each(each)
    } else {
        all.iter_mut().rev().try_for_each(&mut each)
    }
}

/// The options of a cluster's clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clients {
    pub(crate) count: usize,
    /// Whether to record on witnesses; otherwise each update waits for its sync.
    pub(crate) fast_path: bool,
    /// How long one operation may take.
    pub(crate) deadline: Duration,
    /// Whether each client has a second client id ready (R4.10), as sessions of several shards do.
    pub(crate) keeps_spare: bool,
}

impl Clients {
    pub(crate) fn new(count: usize, fast_path: bool) -> Self {
        Self { count, fast_path, deadline: limits::OPERATION, keeps_spare: false }
    }
}

/// One mode: a running cluster and its clients.
#[derive(Debug)]
pub(crate) struct Arm {
    pub(crate) name: String,
    // Dropped before the cluster, because it talks to the cluster.
    pub(crate) event_loop: EventLoop<Crowd>,
    pub(crate) probe: Probe,
    pub(crate) table: TableId,
    pub(crate) configuration: Configuration,
    pub(crate) measured: Measured,
    rng: Rng,
    filled: u64,
    pub(crate) children: Children,
}

impl Arm {
    /// Starts a cluster and its clients. The probe asks the primary of shard 0.
    pub(crate) fn start(name: &str, spec: ClusterSpec, clients: Clients) -> anyhow::Result<Self> {
        Self::try_start(name, spec, clients).with_context(|| format!("the cluster for {name}"))
    }

    fn try_start(name: &str, spec: ClusterSpec, clients: Clients) -> anyhow::Result<Self> {
        let (link_delay, two_phase) = (spec.link_delay, spec.baseline == Baseline::TwoPhase);
        let children = Children::start(spec)?;
        let seeds = children.seeds();
        let (table, configuration) = prepare(seeds.clone())?;
        let primary = primary_address(&configuration, ShardId(0))?;
        let mut connect = Connect::new(name, seeds);
        connect.link_delay = link_delay;
        (connect.session.fast_path, connect.session.deadline) = (clients.fast_path, clients.deadline);
        (connect.session.keeps_spare, connect.session.two_phase) = (clients.keeps_spare, two_phase);
        Ok(Self {
            name: name.to_owned(),
            event_loop: open_crowd(connect, clients.count)?,
            probe: Probe::connect(primary)?,
            table,
            configuration,
            measured: Measured::new(),
            rng: Rng::new(1),
            filled: 0,
            children,
        })
    }

    /// One measured round of some of the clients, after a warm-up. Adds to `measured`.
    pub(crate) fn round(&mut self, clients: usize, workload: &Workload, limit: Limit) -> anyhow::Result<()> {
        let mut measured = std::mem::replace(&mut self.measured, Measured::new());
        let done = self.round_into(clients, workload, limit, &mut measured);
        self.measured = measured;
        done
    }

    /// One measured round; adds to `measured`.
    pub(crate) fn round_into(
        &mut self,
        clients: usize,
        workload: &Workload,
        limit: Limit,
        measured: &mut Measured,
    ) -> anyhow::Result<()> {
        self.run(clients, workload, Limit::Operations(u64::from(limits::WARM_UP_OPERATIONS)))?;
        self.probe.turns()?; // what was long before the round is told with the next question
        let before = self.probe.usage()?;
        let tally = self.run(clients, workload, limit)?;
        ensure!(tally.operations() > 0, "nothing was done in a whole round; give longer rounds");
        measured.add(&tally, before, self.probe.usage()?);
        measured.last_turns = self.probe.turns()?;
        turns::note(&mut measured.longest_turn, &measured.last_turns.longest_since_asked, turns::micros);
        Ok(())
    }

    /// Makes this many keys, so that the measurement finds them there. (A growing table is another measurement.)
    pub(crate) fn warm(&mut self, clients: usize, workload: &Workload, keys: u32) -> anyhow::Result<()> {
        let each = Workload { keys: Keys::Each, reads: 0, ..workload.clone() };
        self.filled = 0;
        self.fill(clients, &each, u64::from(keys))
    }

    /// Touches this many of the next keys of [`Keys::Each`].
    pub(crate) fn fill(&mut self, clients: usize, workload: &Workload, count: u64) -> anyhow::Result<()> {
        let Self { event_loop, rng, .. } = self;
        let load = Load::new(self.table, clients, workload, Limit::Operations(count), rng);
        let mut load = load.starting_at(self.filled);
        event_loop.run(&mut load)?;
        let failure = load.failure.take();
        self.filled += count;
        self.check(failure)
    }

    /// A tag whose keys all belong to this shard.
    pub(crate) fn tag_of(&self, shard: ShardId) -> anyhow::Result<String> {
        let mut tags = (0..1000).map(|number| format!("{{{number}}}"));
        let is_its = |tag: &String| self.configuration.owner(self.table, slot_of(tag.as_bytes())) == Some(shard);
        tags.find(is_its).with_context(|| format!("{shard} owns hardly any key"))
    }

    /// Starts killed nodes again, and waits until the cluster is whole.
    pub(crate) fn heal(&mut self) -> anyhow::Result<()> {
        self.configuration = self.children.heal(limits::REPAIR)?;
        Ok(())
    }

    /// A load that nobody measures.
    pub(crate) fn run(&mut self, clients: usize, workload: &Workload, limit: Limit) -> anyhow::Result<Tally> {
        let mut load = Load::new(self.table, clients, workload, limit, &mut self.rng);
        self.event_loop.run(&mut load)?;
        let (tally, failure) = (load.tally, load.failure);
        self.check(failure)?;
        Ok(tally)
    }

    fn check(&mut self, failure: Option<String>) -> anyhow::Result<()> {
        if let Some(failure) = failure {
            self.children.check()?;
            bail!("{}: an operation was not done: {failure}", self.name);
        }
        Ok(())
    }
}

/// The address of a shard's primary.
pub(crate) fn primary_address(configuration: &Configuration, shard: ShardId) -> anyhow::Result<SocketAddr> {
    let primary = configuration.shard(shard).and_then(|known| configuration.core_of(known.primary, shard));
    primary.and_then(|core| configuration.address_of(core)).with_context(|| format!("{shard} has no primary"))
}

/// Makes the table, and gets the configuration that has it.
fn prepare(seeds: Vec<SocketAddr>) -> anyhow::Result<(TableId, Configuration)> {
    let mut event_loop: EventLoop<Session> = Connect::new("preparing", seeds).open()?;
    let table = create_table(&mut event_loop, "bench")?;
    let deadline = Clock::now().after(limits::DRAIN);
    loop {
        look(&mut event_loop, limits::LOOK)?;
        let newest = event_loop.machine().configuration().filter(|known| {
            let slot = slot_of(b"");
            known.owner(table, slot).is_some()
        });
        if let Some(newest) = newest {
            return Ok((table, newest.clone()));
        }
        if Clock::now() >= deadline {
            bail!("the cluster does not tell of its new table");
        }
    }
}

fn open_crowd(connect: Connect, count: usize) -> anyhow::Result<EventLoop<Crowd>> {
    let Connect { name, session, link_delay, faults, spin } = connect;
    let options = LoopOptions { name, link_delay, faults, spin, ..LoopOptions::default() };
    let make = |now, out: &mut kasha_machine::Effects| {
        let sessions = (0..count).map(|_| {
            let session = kasha_client::session::SessionOptions { seed: random_u64(), ..session.clone() };
            Session::new(session, now, out)
        });
        Crowd::new(sessions.collect())
    };
    let mut event_loop = EventLoop::new(options, |_, now, out| Ok(make(now, out))).context("cannot start clients")?;
    crowd::open(&mut event_loop)?;
    Ok(event_loop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Spread;

    #[test]
    fn turns_go_forwards_and_backwards() {
        let mut order = Vec::new();
        for round in 0..2 {
            in_turns(round, &mut [1, 2, 3], |each| {
                order.push(*each);
                Ok(())
            })
            .unwrap();
        }
        assert_eq!(order, [1, 2, 3, 3, 2, 1]);
    }

    #[test]
    fn a_measurement_is_looked_at_after_the_rounds_asked_for_and_at_the_end() {
        let options = BenchOptions { rounds: 6, progress: false, ..BenchOptions::new("kasha".into()) };
        let rounds_if = |decides: fn(u32) -> bool, patience| {
            let options = BenchOptions { patience, ..options.clone() };
            let rounds = Run::begin("test", &options).rounds_that_decide(50, |round| {
                let to = if decides(round + 1) { 1.2 } else { 1.3 };
                let figure = Figure { value: 1.2, spread: Some(Spread::Within([1.1, to])) };
                Ok(vec![("floor.update/empty.p50".to_owned(), figure)])
            });
            rounds.unwrap()
        };
        let long = Duration::from_secs(600);
        assert_eq!(rounds_if(|done| done == 6, long), 6);
        assert_eq!(rounds_if(|done| done == 5 || done == 7, long), 24, "nobody looks then");
        assert_eq!(rounds_if(|_| false, Duration::ZERO), limits::ROUNDS_MIN);
    }
}
