//! Kasha beside etcd and Redis: the same update, on the same virtual network, with the same durability (section 12).
//!
//! - `kasha-fsync` and `etcd`: on two of three machines' disks before the answer.
//! - `kasha-f1` and `redis-wait1`: in files of two machines, flushed in the background (Redis: `appendonly`,
//!   `everysec`; `WAIT 1` in the same packet as the `SET`).
//! - `kasha-f2` and `redis-wait2`: the same on three machines.
//!
//! Each has three hosts, and the callers have the fourth: one process on one tokio runtime, for all stores alike. Each
//! caller has connections of its own; with `shared`, all use one client, as callers within one program do (not with
//! Redis, whose WAIT blocks the connection that it is sent on). All stores run at once and are measured in turns, so
//! that whatever else the machine does falls on all alike.

mod etcd;
mod kasha;
mod load;
mod redis;
mod report;
mod servers;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use kasha_netlab::{Link, Netlab, NetlabOptions};

use crate::report::Machine;
use etcd::Etcd;
use kasha::Kasha;
use load::{Load, Round};
use redis::Redis;
pub use report::{Figures, NetworkFigures, RivalsReport};
use report::{Measured, Mode};
use servers::Place;

/// Hosts with servers; the one after them is the client's.
const SERVERS: usize = 3;

/// Before each measured round the same load runs for this share of its time.
const WARM_UP_SHARE: u32 = 5;

/// What to measure.
#[derive(Clone, Debug)]
pub struct RivalsOptions {
    /// The `kasha` binary.
    pub exe: PathBuf,
    /// Where to make the folder for all data, which is removed at the end; `None`: among temporary files.
    pub data: Option<PathBuf>,
    /// One-way delays of every link; each is a measurement of its own.
    pub delays: Vec<Duration>,
    /// Numbers of callers; each is a measurement of its own.
    pub clients: Vec<usize>,
    /// Rounds; the stores take turns in each.
    pub rounds: u32,
    /// How long a store is measured in a round.
    pub round_time: Duration,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Keys, chosen uniformly.
    pub keys: u32,
    /// All callers of Kasha and of etcd share one client and its connections.
    pub shared: bool,
    /// See [`NetlabOptions::spin`].
    pub spin: Duration,
    /// Show a bar (on a terminal only).
    pub progress: bool,
}

impl RivalsOptions {
    /// The usual measurement: 0.5 ms and 2 ms each way, 1 and 64 callers, 8 rounds of a second each.
    #[must_use]
    pub fn new(exe: PathBuf) -> Self {
        Self {
            exe,
            data: None,
            delays: vec![Duration::from_micros(500), Duration::from_millis(2)],
            clients: vec![1, 64],
            rounds: 8,
            round_time: Duration::from_secs(1),
            value_bytes: 100,
            keys: 100_000,
            shared: false,
            spin: Duration::ZERO,
            progress: true,
        }
    }

    /// Clients of each store that can share connections.
    fn connections(&self) -> usize {
        if self.shared { 1 } else { self.clients.iter().copied().max().unwrap_or(1) }
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            !self.delays.is_empty() && !self.clients.is_empty(),
            "give at least one delay and one number of clients"
        );
        ensure!(self.clients.iter().all(|clients| (1..=500).contains(clients)), "give 1 to 500 clients");
        ensure!(
            self.rounds > 0 && !self.round_time.is_zero(),
            "nothing to measure: give at least one round of some time"
        );
        ensure!(self.keys > 0 && self.value_bytes > 0, "at least one key and one byte of value are needed");
        ensure!(self.value_bytes <= kasha_types::limits::VALUE_BYTES_MAX, "that value is too large for Kasha");
        Ok(())
    }
}

/// Measures.
///
/// # Errors
/// If there can be no virtual network, a store is not installed or does not start, or an update is refused.
pub fn rivals(options: &RivalsOptions) -> anyhow::Result<RivalsReport> {
    options.check()?;
    servers::find_installed()?;
    let parent = options.data.clone().unwrap_or_else(std::env::temp_dir);
    servers::ensure_disk(&parent)?;
    let folder = parent.join(format!("kasha-rivals-{}-{:x}", std::process::id(), kasha_runtime::random_u64()));
    let bar = progress_bar(options);
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
    // On failure the logs stay for whoever wants to know why.
    std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    Ok(RivalsReport::new(Machine::this(), options, networks, &measured))
}

fn progress_bar(options: &RivalsOptions) -> ProgressBar {
    if !options.progress {
        return ProgressBar::hidden();
    }
    // Hides itself where there is no terminal.
    let rounds = options.delays.len() * options.clients.len() * options.rounds as usize * Mode::ALL.len();
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

    /// One store's turn: a warm-up, and what counts.
    fn turn(&mut self, mut load: Load, measured: &mut Measured) -> anyhow::Result<()> {
        let (mode, time) = (measured.mode, load.time);
        load.time = time / WARM_UP_SHARE;
        self.round(mode, &load)?;
        load.time = time;
        let before = self.cpu_time(mode)?;
        let round = self.round(mode, &load)?;
        measured.add(&round, self.cpu_time(mode)?.saturating_sub(before));
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

    fn cpu_time(&self, mode: Mode) -> anyhow::Result<Duration> {
        match mode {
            Mode::KashaFsync => &self.kasha_fsync.servers,
            Mode::KashaF1 => &self.kasha_f1.servers,
            Mode::KashaF2 => &self.kasha_f2.servers,
            Mode::Etcd => &self.etcd.servers,
            Mode::RedisWait1 | Mode::RedisWait2 => &self.redis.servers,
        }
        .cpu_time()
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
    for &clients in &options.clients {
        let mut measured = Mode::ALL.map(|mode| Measured::new(delay, clients, mode));
        for round in 0..options.rounds {
            bar.set_message(format!(
                "{delay:?} each way, {clients} clients, round {} of {}",
                round + 1,
                options.rounds
            ));
            for measured in &mut measured {
                let load = Load::new(options, clients, u64::from(round));
                let name = measured.mode.name();
                let turn = stores.turn(load, measured);
                turn.with_context(|| format!("{name}, {delay:?} each way, {clients} clients"))?;
                bar.inc(1);
            }
        }
        all.extend(measured);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_options_are_refused_before_anything_starts() {
        let usual = RivalsOptions::new("kasha".into());
        assert!(usual.check().is_ok());
        for wrong in [
            RivalsOptions { delays: Vec::new(), ..usual.clone() },
            RivalsOptions { clients: vec![1, 0], ..usual.clone() },
            RivalsOptions { rounds: 0, ..usual.clone() },
            RivalsOptions { round_time: Duration::ZERO, ..usual.clone() },
            RivalsOptions { keys: 0, ..usual.clone() },
            RivalsOptions { value_bytes: usize::MAX, ..usual.clone() },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
