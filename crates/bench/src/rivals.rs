//! Kasha beside etcd and Redis: the same update, on the same virtual network, with the same durability (section 12).
//!
//! - `kasha-fsync` and `etcd`: the update is on two of three machines' disks before the answer.
//! - `kasha-f1` and `redis-wait1`: the update is in files of two machines, flushed in the background (Redis:
//!   `appendonly`, `everysec`; `WAIT 1` in the same packet as the `SET`).
//! - `kasha-f2` and `redis-wait2`: the same on three machines.
//!
//! Each store has three hosts. The callers have the fourth host: one process on one tokio runtime, for all stores
//! alike. Each caller has connections of its own, or all share one client, as callers within one program do (not with
//! Redis, whose WAIT blocks the connection that it is sent on). All stores run at the same time and are measured in
//! turns, so that whatever else the machine does affects all of them alike.

mod etcd;
mod kasha;
mod load;
mod obstacle;
mod redis;
mod report;
mod section;
pub(crate) mod servers;

use std::fmt;
use std::num::ParseIntError;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use kasha_netlab::{Link, Netlab, NetlabOptions};
use kasha_runtime::Clock;

use crate::figure::Ticks;
use crate::harness::in_turns;
use crate::report::Machine;
use crate::section::Took;
use etcd::Etcd;
use kasha::Kasha;
use load::{Load, Round};
pub use obstacle::{Obstacle, Skipped};
use redis::Redis;
use report::{Effort, Measured, Mode};
pub use report::{Figures, NetworkFigures, RivalsReport};
use servers::Place;

/// Hosts with servers; the next host is the callers'.
const SERVERS: usize = 3;

/// The load runs for this share of a round's time before each measured round.
const WARM_UP_SHARE: u32 = 5;

/// The callers of a store, each with one update at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Callers {
    /// Number of callers.
    pub count: usize,
    /// Whether all use one client and its connections.
    pub is_shared: bool,
}

impl Callers {
    /// This many callers, each with a client of its own.
    #[must_use]
    pub fn apart(count: usize) -> Self {
        Self { count, is_shared: false }
    }
}

impl fmt::Display for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.count, if self.is_shared { "-shared" } else { "" })
    }
}

impl FromStr for Callers {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let count = text.strip_suffix("-shared");
        Ok(Self { count: count.unwrap_or(text).parse()?, is_shared: count.is_some() })
    }
}

/// The options of the comparison.
#[derive(Clone, Debug)]
pub struct RivalsOptions {
    /// The `kasha-lab` binary. `kasha`, whose servers are compared, lies beside it.
    pub exe: PathBuf,
    /// The folder in which to make the folder for all data, which is removed at the end; `None`: among temporary files.
    pub data: Option<PathBuf>,
    /// One-way delays of every link; each is a measurement of its own.
    pub delays: Vec<Duration>,
    /// The callers; each entry is a measurement of its own.
    pub callers: Vec<Callers>,
    /// Rounds; the stores take turns in each.
    pub rounds: u32,
    /// How long a store is measured in a round.
    pub round_time: Duration,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Keys, chosen uniformly.
    pub keys: u32,
    /// How long the network's switch spins before a packet is due ([`NetlabOptions::spin`]).
    pub spin: Duration,
    /// Show a bar (on a terminal only).
    pub progress: bool,
}

impl RivalsOptions {
    /// The usual measurement: 0.5 ms and 2 ms each way, 1 and 64 callers, 6 rounds of a second each.
    #[must_use]
    pub fn new(exe: PathBuf) -> Self {
        Self {
            exe,
            data: None,
            delays: vec![Duration::from_micros(500), Duration::from_millis(2)],
            callers: vec![Callers::apart(1), Callers::apart(64), Callers { count: 64, is_shared: true }],
            rounds: 6,
            round_time: Duration::from_secs(1),
            value_bytes: 100,
            keys: 100_000,
            spin: Duration::ZERO,
            progress: true,
        }
    }

    /// Number of clients that a store needs.
    fn clients(&self) -> usize {
        self.callers.iter().map(|callers| callers.count).max().unwrap_or(1)
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            !self.delays.is_empty() && !self.callers.is_empty(),
            "give at least one delay and one number of callers"
        );
        ensure!(self.callers.iter().all(|callers| (1..=500).contains(&callers.count)), "give 1 to 500 callers");
        ensure!(
            self.rounds > 0 && !self.round_time.is_zero(),
            "nothing to measure: give at least one round of some time"
        );
        ensure!(self.keys > 0 && self.value_bytes > 0, "at least one key and one byte of value are needed");
        ensure!(self.value_bytes <= kasha_types::limits::VALUE_BYTES_MAX, "that value is too large for Kasha");
        Ok(())
    }
}

/// Runs the comparison.
///
/// # Errors
/// [`Obstacle::NotHere`] if this machine can have no virtual network, one of the stores is not available, or temporary
/// files are not on a disk. [`Obstacle::Failed`] if a store does not start, dies or refuses an update, and on any other
/// failure.
pub fn rivals(options: &RivalsOptions) -> Result<RivalsReport, Obstacle> {
    options.check()?;
    Netlab::available().map_err(Obstacle::not_here)?;
    let parent = servers::find_disk(options.data.as_deref())?;
    servers::find_installed(&[servers::ETCD, servers::REDIS])?;
    let folder = parent.join(format!("kasha-rivals-{}-{:x}", std::process::id(), kasha_runtime::random_u64()));
    std::fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let measured = measure_all(options, &folder);
    // After a failure the logs stay, so that somebody can look for the reason.
    let report =
        measured.with_context(|| format!("the comparison broke off; logs are kept in {}", folder.display()))?;
    std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    Ok(report)
}

fn measure_all(options: &RivalsOptions, folder: &Path) -> anyhow::Result<RivalsReport> {
    let bar = progress_bar(options);
    let (began, ticks) = (Clock::now(), Ticks::now());
    let (mut measured, mut networks) = (Vec::new(), Vec::new());
    for &delay in &options.delays {
        let network =
            NetlabOptions { link: Link::delayed(delay), spin: options.spin, ..NetlabOptions::new(SERVERS + 1, 1) };
        let lab = Netlab::with(network)?;
        let place = Place { lab: &lab, folder: folder.join(format!("{}us", delay.as_micros())) };
        bar.set_message(format!("{delay:?} each way: starting"));
        // Sockets belong to the host on which they are made.
        measured.extend(lab.host(SERVERS).run(|| measure(options, &place, delay, &bar))?);
        networks.push(NetworkFigures::new(delay, &lab.totals()));
    }
    bar.finish_and_clear();
    let took = Took { time: Clock::now().since(began), stolen: Ticks::now().stolen_since(ticks) };
    Ok(RivalsReport::new(Machine::this(), options, took, networks, &measured))
}

fn progress_bar(options: &RivalsOptions) -> ProgressBar {
    if !options.progress {
        return ProgressBar::hidden();
    }
    // The bar hides itself if there is no terminal.
    let rounds = options.delays.len() * options.callers.len() * options.rounds as usize * Mode::ALL.len();
    let style = ProgressStyle::with_template("{elapsed_precise} {bar:40} {pos}/{len} turns, {msg}");
    ProgressBar::new(rounds as u64).with_style(style.expect("a valid template"))
}

/// All stores, running.
struct Stores {
    runtime: tokio::runtime::Runtime,
    kasha_fsync: Kasha,
    kasha_f1: Kasha,
    kasha_f2: Kasha,
    etcd: Etcd,
    redis: Redis,
}

impl Stores {
    fn start(options: &RivalsOptions, place: &Place<'_>) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start a runtime")?;
        let kasha = |mode| Kasha::start(options, place, &runtime, mode);
        Ok(Self {
            kasha_fsync: kasha(Mode::KashaFsync)?,
            kasha_f1: kasha(Mode::KashaF1)?,
            kasha_f2: kasha(Mode::KashaF2)?,
            etcd: Etcd::start(options, place, &runtime)?,
            redis: Redis::start(options, place, &runtime)?,
            runtime,
        })
    }

    /// One store's turn: a warm-up, and the part that counts.
    fn turn(&mut self, lab: &Netlab, mut load: Load, measured: &mut Measured) -> anyhow::Result<()> {
        let (mode, time) = (measured.mode, load.time);
        load.time = time / WARM_UP_SHARE;
        self.round(mode, &load)?;
        load.time = time;
        let before = self.effort(lab, mode)?;
        let round = self.round(mode, &load)?;
        ensure!(!round.latencies.is_empty(), "no update was done in {time:?}; give longer rounds");
        measured.add(&round, self.effort(lab, mode)? - before);
        Ok(())
    }

    fn round(&mut self, mode: Mode, load: &Load) -> anyhow::Result<Round> {
        match mode {
            Mode::KashaFsync => self.kasha_fsync.round(&self.runtime, load),
            Mode::KashaF1 => self.kasha_f1.round(&self.runtime, load),
            Mode::KashaF2 => self.kasha_f2.round(&self.runtime, load),
            Mode::Etcd => self.etcd.round(&self.runtime, load),
            Mode::RedisWait1 => self.redis.round(&self.runtime, load, 1),
            Mode::RedisWait2 => self.redis.round(&self.runtime, load, 2),
        }
    }

    fn effort(&self, lab: &Netlab, mode: Mode) -> anyhow::Result<Effort> {
        let servers = match mode {
            Mode::KashaFsync => &self.kasha_fsync.servers,
            Mode::KashaF1 => &self.kasha_f1.servers,
            Mode::KashaF2 => &self.kasha_f2.servers,
            Mode::Etcd => &self.etcd.servers,
            Mode::RedisWait1 | Mode::RedisWait2 => &self.redis.servers,
        };
        Ok(Effort { servers: servers.cpu_time()?, client: servers::thread_time(), packets: lab.totals().delivered })
    }
}

fn measure(
    options: &RivalsOptions,
    place: &Place<'_>,
    delay: Duration,
    bar: &ProgressBar,
) -> anyhow::Result<Vec<Measured>> {
    let mut stores = Stores::start(options, place)?;
    let mut all = Vec::new();
    for &callers in &options.callers {
        let mut measured = Mode::ALL.map(|mode| Measured::new(delay, callers, mode));
        for round in 0..options.rounds {
            bar.set_message(format!(
                "{delay:?} each way, {callers} callers, round {} of {}",
                round + 1,
                options.rounds
            ));
            in_turns(round, &mut measured, |measured| {
                let name = measured.mode.name();
                let load = Load::new(options, callers, u64::from(round));
                let turn = stores.turn(place.lab, load, measured);
                turn.with_context(|| format!("{name}, {delay:?} each way, {callers} callers"))?;
                bar.inc(1);
                Ok(())
            })?;
        }
        all.extend(measured);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_read_as_they_are_shown() {
        for text in ["1", "64", "64-shared"] {
            assert_eq!(text.parse::<Callers>().unwrap().to_string(), text);
        }
        assert!("many".parse::<Callers>().is_err());
    }

    #[test]
    fn impossible_options_are_refused_before_anything_starts() {
        let usual = RivalsOptions::new("kasha".into());
        assert!(usual.check().is_ok());
        for wrong in [
            RivalsOptions { delays: Vec::new(), ..usual.clone() },
            RivalsOptions { callers: vec![Callers::apart(1), Callers::apart(0)], ..usual.clone() },
            RivalsOptions { rounds: 0, ..usual.clone() },
            RivalsOptions { round_time: Duration::ZERO, ..usual.clone() },
            RivalsOptions { keys: 0, ..usual.clone() },
            RivalsOptions { value_bytes: usize::MAX, ..usual.clone() },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
