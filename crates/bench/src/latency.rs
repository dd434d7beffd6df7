//! How long one update takes: unreplicated, replicated synchronously, and as designed (CURP 5.2, figure 5).
//!
//! All three are the same programs, and are measured in turns of a few hundred updates, so that whatever else the
//! machine does falls on all of them alike. The delay of a link is injected at each receiver, this client included,
//! since on loopback a round trip costs processor time and hardly any wire time (section 12).

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use kasha_client::Path;
use kasha_client::session::{CallId, CallOptions, Completion, Session};
use kasha_machine::{Effects, Rng};
use kasha_runtime::{Application, Clock, Control, EventLoop};
use kasha_types::limits::{FAULTS_MAX, VALUE_BYTES_MAX};
use kasha_types::{TableId, Tick};
use kasha_wire::Update;

use crate::children::{Answers, Children, ClusterSpec};
use crate::client::{Connect, create_table};
use crate::limits;
use crate::report::{LatencyReport, Machine, Measured, Mode};

/// What to measure.
#[derive(Clone, Debug)]
pub struct LatencyOptions {
    /// The `kasha` binary.
    pub exe: PathBuf,
    /// Where to make the folder for the clusters' data, which is removed at the end; `None`: among temporary files.
    pub data: Option<PathBuf>,
    /// Each `f` to measure, from 1.
    pub faults: Vec<u8>,
    /// Injected delay of each direction.
    pub link_delay: Duration,
    /// Rounds of each mode.
    pub rounds: u32,
    /// Updates in a round of each mode.
    pub operations: u32,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Keys, chosen uniformly.
    pub keys: u32,
    /// How long this client and nobody else polls before it blocks.
    pub spin: Duration,
    /// Show a bar (on a terminal only).
    pub progress: bool,
}

impl LatencyOptions {
    /// The usual measurement: 20 rounds of 500 updates in each mode, 100-byte values, 100 000 keys, 200 µs each way.
    #[must_use]
    pub fn new(exe: PathBuf, faults: Vec<u8>) -> Self {
        Self {
            exe,
            data: None,
            faults,
            link_delay: Duration::from_micros(200),
            rounds: 20,
            operations: 500,
            value_bytes: 100,
            keys: 100_000,
            spin: Duration::ZERO,
            progress: true,
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.faults.is_empty(), "no number of faults is given; give one or more from 1 to {FAULTS_MAX}");
        for &faults in &self.faults {
            ensure!((1..=FAULTS_MAX).contains(&faults), "faults = {faults}: give 1 to {FAULTS_MAX}");
        }
        ensure!(self.rounds > 0 && self.operations > 0, "nothing to measure: give at least one round of one operation");
        ensure!(self.keys > 0, "at least one key is needed");
        ensure!(self.value_bytes <= VALUE_BYTES_MAX, "values are at most {VALUE_BYTES_MAX} bytes long");
        Ok(())
    }
}

/// Measures.
///
/// # Errors
/// If a cluster cannot be started or an update is not executed.
pub fn latency(options: LatencyOptions) -> anyhow::Result<LatencyReport> {
    options.check()?;
    // A folder of our own, as it is removed at the end.
    let parent = options.data.clone().unwrap_or_else(std::env::temp_dir);
    let folder = parent.join(format!("kasha-latency-{}-{:x}", std::process::id(), kasha_runtime::random_u64()));
    let bar = progress_bar(&options);
    let mut measured = Vec::new();
    for &faults in &options.faults {
        bar.set_message(format!("f = {faults}: starting clusters"));
        let mut setups = Vec::new();
        for mode in Mode::ALL {
            let data = folder.join(format!("f{faults}-{}", mode.name()));
            let setup = Setup::start(&options, data, faults, mode);
            setups.push(setup.with_context(|| format!("the cluster for {} (f = {faults})", mode.name()))?);
        }
        for round in 0..options.rounds {
            bar.set_message(format!("f = {faults}, round {} of {}", round + 1, options.rounds));
            for setup in &mut setups {
                setup.round(&options)?;
                bar.inc(u64::from(options.operations));
            }
        }
        measured.extend(setups.into_iter().map(|setup| setup.measured));
    }
    bar.finish_and_clear();
    // On failure the logs stay for whoever wants to know why.
    std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    let link_delay_us = u64::try_from(options.link_delay.as_micros()).unwrap_or(u64::MAX);
    Ok(LatencyReport::new(Machine::this(), link_delay_us, options.value_bytes, &measured))
}

fn progress_bar(options: &LatencyOptions) -> ProgressBar {
    if !options.progress {
        return ProgressBar::hidden();
    }
    // Hides itself where there is no terminal.
    let total = u64::from(options.rounds) * u64::from(options.operations);
    let bar = ProgressBar::new(total * (Mode::ALL.len() * options.faults.len()) as u64);
    let style = ProgressStyle::with_template("{elapsed_precise} {bar:40} {pos}/{len} updates, {msg}");
    bar.with_style(style.expect("a valid template"))
}

/// One mode's cluster and client.
struct Setup {
    // Dropped first: it talks to the cluster.
    client: EventLoop<Session>,
    load: Load,
    measured: Measured,
    _children: Children,
}

impl Setup {
    fn start(options: &LatencyOptions, data: PathBuf, faults: u8, mode: Mode) -> anyhow::Result<Self> {
        let (cluster_faults, answers) = match mode {
            Mode::Unreplicated => (0, Answers::Unreplicated),
            Mode::Sync => (faults, Answers::Synced),
            Mode::Kasha => (faults, Answers::Speculative),
        };
        let spec = ClusterSpec {
            answers,
            link_delay: options.link_delay,
            ..ClusterSpec::new(options.exe.clone(), data, cluster_faults)
        };
        let children = Children::start(spec)?;
        let mut connect = Connect::new(mode.name(), children.seeds());
        (connect.link_delay, connect.spin) = (options.link_delay, options.spin);
        connect.session.fast_path = mode == Mode::Kasha;
        connect.session.deadline = limits::OPERATION;
        let mut client = connect.open()?;
        let table = create_table(&mut client, "latency")?;
        let load = Load {
            table,
            rng: Rng::new(u64::from(faults)),
            keys: options.keys,
            value: vec![b'v'; options.value_bytes],
            key: String::new(),
            under_way: None,
            left: 0,
            unmeasured: 0,
            results: Vec::new(),
            failure: None,
        };
        Ok(Self { client, load, measured: Measured::new(faults, mode), _children: children })
    }

    fn round(&mut self, options: &LatencyOptions) -> anyhow::Result<()> {
        let load = &mut self.load;
        (load.left, load.unmeasured) = (limits::WARM_UP_OPERATIONS + options.operations, limits::WARM_UP_OPERATIONS);
        self.client.run(load)?;
        if let Some(failure) = load.failure.take() {
            bail!("{}: an update was not executed: {failure}", self.measured.mode.name());
        }
        for (nanos, path, attempts) in load.results.drain(..) {
            self.measured.record(nanos, path == Path::Fast, attempts);
        }
        Ok(())
    }
}

/// One update at a time.
#[derive(Debug)]
struct Load {
    table: TableId,
    rng: Rng,
    keys: u32,
    value: Vec<u8>,
    key: String,
    under_way: Option<(CallId, Tick)>,
    /// Updates still to be sent in this round.
    left: u32,
    /// The first of them that do not count.
    unmeasured: u32,
    results: Vec<(u64, Path, u32)>,
    failure: Option<String>,
}

impl Load {
    fn on_completed(&mut self, started: Tick, completion: Completion, session: &mut Session) {
        let nanos = u64::try_from(Clock::now().since(started).as_nanos()).unwrap_or(u64::MAX);
        match completion {
            Completion::Executed { result, path, attempts } => {
                session.recycle(result);
                match self.unmeasured.checked_sub(1) {
                    Some(left) => self.unmeasured = left,
                    None => self.results.push((nanos, path, attempts)),
                }
            }
            other => self.failure = Some(format!("{other:?}")),
        }
    }

    fn send(&mut self, session: &mut Session, out: &mut Effects) {
        use std::fmt::Write as _;
        self.left -= 1;
        self.key.clear();
        write!(self.key, "key-{:08}", self.rng.below(u64::from(self.keys))).expect("a string takes it");
        let update = Update::Put { key: self.key.as_bytes(), value: &self.value };
        let now = Clock::now();
        let call = session.update(now, self.table, &update, &CallOptions::default(), out);
        self.under_way = Some((call, now));
    }
}

impl Application<Session> for Load {
    fn turn(&mut self, _: Tick, session: &mut Session, out: &mut Effects) -> Control {
        while let Some((call, completion)) = session.poll_completed() {
            if let Some((_, started)) = self.under_way.take_if(|(ours, _)| *ours == call) {
                self.on_completed(started, completion, session);
            }
        }
        if self.under_way.is_some() {
            return Control::Continue;
        }
        if self.left == 0 || self.failure.is_some() {
            return Control::Exit;
        }
        self.send(session, out);
        Control::Continue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_options_are_refused_before_anything_starts() {
        let usual = LatencyOptions::new("kasha".into(), vec![1, 2, 3]);
        assert!(usual.check().is_ok());
        for wrong in [
            LatencyOptions { faults: Vec::new(), ..usual.clone() },
            LatencyOptions { faults: vec![0], ..usual.clone() },
            LatencyOptions { faults: vec![FAULTS_MAX + 1], ..usual.clone() },
            LatencyOptions { rounds: 0, ..usual.clone() },
            LatencyOptions { keys: 0, ..usual.clone() },
            LatencyOptions { value_bytes: VALUE_BYTES_MAX + 1, ..usual.clone() },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
