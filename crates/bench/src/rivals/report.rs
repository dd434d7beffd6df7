//! The comparison's report: a table for people, and JSON for the record of measurements.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Sub;
use std::time::Duration;

use hdrhistogram::Histogram;
use kasha_netlab::Counters;
use serde::Serialize;

use super::load::Round;
use super::{Callers, RivalsOptions};
use crate::limits::LATENCY_MAX_NANOS;
use crate::report::Machine;
use crate::section::Took;
use crate::targets::verdicts;

/// A store and how it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    KashaFsync,
    Etcd,
    KashaF1,
    RedisWait1,
    KashaF2,
    RedisWait2,
}

impl Mode {
    /// All modes, in the order in which they take turns and are shown.
    pub(super) const ALL: [Self; 6] =
        [Self::KashaFsync, Self::Etcd, Self::KashaF1, Self::RedisWait1, Self::KashaF2, Self::RedisWait2];

    /// The pairs of modes that promise the same.
    const PAIRS: [(Self, Self); 3] =
        [(Self::KashaFsync, Self::Etcd), (Self::KashaF1, Self::RedisWait1), (Self::KashaF2, Self::RedisWait2)];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::KashaFsync => "kasha-fsync",
            Self::Etcd => "etcd",
            Self::KashaF1 => "kasha-f1",
            Self::RedisWait1 => "redis-wait1",
            Self::KashaF2 => "kasha-f2",
            Self::RedisWait2 => "redis-wait2",
        }
    }
}

/// Counters that run from the start; they are compared before and after a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Effort {
    pub(super) servers: Duration,
    pub(super) client: Duration,
    pub(super) packets: u64,
}

impl Sub for Effort {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            servers: self.servers.saturating_sub(before.servers),
            client: self.client.saturating_sub(before.client),
            packets: self.packets - before.packets,
        }
    }
}

/// One store's rounds at one delay with one number of callers.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) mode: Mode,
    delay: Duration,
    callers: Callers,
    latency: Histogram<u64>,
    time: Duration,
    effort: Effort,
    fast: u64,
}

impl Measured {
    pub(super) fn new(delay: Duration, callers: Callers, mode: Mode) -> Self {
        let latency = Histogram::new_with_bounds(1, LATENCY_MAX_NANOS, 3).expect("valid bounds");
        Self { mode, delay, callers, latency, time: Duration::ZERO, effort: Effort::default(), fast: 0 }
    }

    pub(super) fn add(&mut self, round: &Round, effort: Effort) {
        round.latencies.iter().for_each(|nanos| self.latency.saturating_record(*nanos));
        self.time += round.time;
        self.effort.servers += effort.servers;
        self.effort.client += effort.client;
        self.effort.packets += effort.packets;
        self.fast += round.fast;
    }
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// One-way delay of each link, in microseconds.
    pub delay_us: u64,
    /// Callers, each with one update at a time: `64` apart, or `64-shared`.
    pub callers: String,
    /// The store and how it is used.
    pub mode: &'static str,
    /// Median, in microseconds.
    pub p50_us: f64,
    /// 99th percentile, in microseconds.
    pub p99_us: f64,
    /// Updates a second.
    pub throughput: f64,
    /// Processor time that all servers of the store took for one update, in microseconds. The kernel's work for a
    /// received packet is done by the virtual network's switch, and is not included.
    pub server_cpu_us: f64,
    /// Processor time that the callers' process took for one update, without the network's switch, in microseconds.
    pub client_cpu_us: f64,
    /// Packets on the whole network for one update.
    pub packets: f64,
    /// Number of updates that were measured.
    pub operations: u64,
    /// The share of updates that were complete in one round trip, by their witnesses; 0 for stores other than Kasha.
    pub fast_path_rate: f64,
}

impl From<&Measured> for Figures {
    fn from(measured: &Measured) -> Self {
        let Measured { mode, delay, callers, latency, time, effort, fast } = measured;
        let operations = latency.len();
        let each = |total: f64| if operations == 0 { 0.0 } else { total / operations as f64 };
        let percentile = |percentile| rounded(latency.value_at_percentile(percentile) as f64 / 1000.0);
        Self {
            delay_us: u64::try_from(delay.as_micros()).unwrap_or(u64::MAX),
            callers: callers.to_string(),
            mode: mode.name(),
            p50_us: percentile(50.0),
            p99_us: percentile(99.0),
            throughput: if time.is_zero() { 0.0 } else { rounded(operations as f64 / time.as_secs_f64()) },
            server_cpu_us: rounded(each(effort.servers.as_secs_f64() * 1e6)),
            client_cpu_us: rounded(each(effort.client.as_secs_f64() * 1e6)),
            packets: rounded(each(effort.packets as f64)),
            operations,
            fast_path_rate: each(*fast as f64),
        }
    }
}

fn rounded(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

/// How exact the virtual network was at one delay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NetworkFigures {
    /// One-way delay of each link, in microseconds.
    pub delay_us: u64,
    /// Number of packets that were forwarded.
    pub packets: u64,
    /// Packets that no link was to lose and that were lost all the same. There must be none.
    pub dropped: u64,
    /// How much later than due packets were forwarded, on average, in microseconds.
    pub late_mean_us: f64,
    /// The greatest such delay, in microseconds.
    pub late_max_us: f64,
}

impl NetworkFigures {
    pub(super) fn new(delay: Duration, seen: &Counters) -> Self {
        Self {
            delay_us: u64::try_from(delay.as_micros()).unwrap_or(u64::MAX),
            packets: seen.delivered,
            dropped: seen.overflowed + seen.refused,
            late_mean_us: rounded(seen.late_mean().as_secs_f64() * 1e6),
            late_max_us: rounded(seen.late_max.as_secs_f64() * 1e6),
        }
    }
}

/// What the comparison found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RivalsReport {
    /// The machine of the measurement.
    pub machine: Machine,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// How exact the network was.
    pub networks: Vec<NetworkFigures>,
    /// Every store at every delay and number of callers.
    pub results: Vec<Figures>,
    /// `rivals.500us.kasha-fsync/etcd.p50` and so on for `p99`, `throughput` and `cpu`. With more than one caller:
    /// `rivals.500us.c64.…` or `rivals.500us.c64-shared.…`.
    pub ratios: BTreeMap<String, f64>,
    /// Rounds of each store.
    pub rounds: u32,
    #[serde(skip)]
    pub(super) took: Took,
}

impl RivalsReport {
    pub(super) fn new(
        machine: Machine,
        options: &RivalsOptions,
        took: Took,
        networks: Vec<NetworkFigures>,
        measured: &[Measured],
    ) -> Self {
        let results: Vec<Figures> = measured.iter().map(Figures::from).collect();
        let mut ratios = BTreeMap::new();
        for ours in &results {
            let is_beside = |other: &&Figures| (other.delay_us, &other.callers) == (ours.delay_us, &ours.callers);
            for theirs in results.iter().filter(is_beside).filter(|other| is_pair(ours.mode, other.mode)) {
                let callers = if ours.callers == "1" { String::new() } else { format!("c{}.", ours.callers) };
                let prefix = format!("rivals.{}us.{callers}{}/{}", ours.delay_us, ours.mode, theirs.mode);
                for (what, ours, theirs) in [
                    ("p50", ours.p50_us, theirs.p50_us),
                    ("p99", ours.p99_us, theirs.p99_us),
                    ("throughput", ours.throughput, theirs.throughput),
                    ("cpu", ours.server_cpu_us, theirs.server_cpu_us),
                ] {
                    ratios.insert(format!("{prefix}.{what}"), ratio(ours, theirs));
                }
            }
        }
        let (value_bytes, rounds) = (options.value_bytes, options.rounds);
        Self { machine, value_bytes, networks, results, ratios, rounds, took }
    }

    /// The report as JSON, for the record of measurements.
    ///
    /// # Panics
    /// Never: JSON can express all of it.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and texts")
    }
}

fn is_pair(ours: &str, theirs: &str) -> bool {
    Mode::PAIRS.iter().any(|(one, other)| (one.name(), other.name()) == (ours, theirs))
}

fn ratio(this: f64, other: f64) -> f64 {
    if other == 0.0 { 0.0 } else { (this / other * 1000.0).round() / 1000.0 }
}

impl fmt::Display for RivalsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, value_bytes, networks, results, ratios, .. } = self;
        writeln!(
            f,
            "One update of {value_bytes} bytes, three servers, {} cores ({}).\n\
             Times in µs; cpu (of all servers together, of the callers) and packets (of the whole network): for one update.",
            machine.cores, machine.processor
        )?;
        for NetworkFigures { delay_us, packets, dropped, late_mean_us, late_max_us } in networks {
            writeln!(
                f,
                "\n{delay_us} µs each way: {packets} packets, {late_mean_us} µs later than due in the mean, {late_max_us} at most, \
                 {dropped} dropped"
            )?;
            writeln!(
                f,
                "{:>9}  {:<12} {:>9} {:>9} {:>9} {:>8} {:>8} {:>7} {:>9} {:>9}",
                "callers", "store", "p50", "p99", "updates/s", "servers", "callers", "packets", "updates", "fast path"
            )?;
            for result in results.iter().filter(|result| result.delay_us == *delay_us) {
                let is_ours = result.mode.starts_with("kasha");
                let fast = if is_ours { format!("{:.2} %", result.fast_path_rate * 100.0) } else { "-".to_owned() };
                writeln!(
                    f,
                    "{:>9}  {:<12} {:>9.1} {:>9.1} {:>9.0} {:>8.1} {:>8.1} {:>7.1} {:>9} {fast:>9}",
                    result.callers,
                    result.mode,
                    result.p50_us,
                    result.p99_us,
                    result.throughput,
                    result.server_cpu_us,
                    result.client_cpu_us,
                    result.packets,
                    result.operations
                )?;
            }
        }
        writeln!(f, "\n{:<58} {:>7}", "ratio", "figure")?;
        for (key, ratio) in ratios {
            writeln!(f, "{key:<58} {ratio:>7.3}")?;
        }
        write!(f, "\n{}", verdicts(&self.section()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::{Verdict, judge};

    fn report() -> RivalsReport {
        report_with(0.0)
    }

    fn report_with(stolen: f64) -> RivalsReport {
        let options = RivalsOptions::new("kasha".into());
        let mut measured = Vec::new();
        for callers in [Callers::apart(1), Callers::apart(64)] {
            for (index, mode) in (1..).zip(Mode::ALL) {
                let mut one = Measured::new(Duration::from_micros(500), callers, mode);
                let round = Round { latencies: vec![index * 1_000_000; 100], time: Duration::from_secs(1), fast: 50 };
                let servers = Duration::from_millis(index);
                one.add(&round, Effort { servers, client: Duration::from_millis(2), packets: 400 });
                measured.push(one);
            }
        }
        let counters = Counters { delivered: 10, late_total: Duration::from_micros(50), ..Counters::default() };
        let networks = vec![NetworkFigures::new(Duration::from_micros(500), &counters)];
        RivalsReport::new(
            Machine { cores: 2, processor: "p".into(), kernel: "6".into() },
            &options,
            Took { stolen, ..Took::default() },
            networks,
            &measured,
        )
    }

    #[test]
    fn every_pair_has_its_ratios_and_targets_are_judged() {
        let report = report();
        assert_eq!(report.ratios.len(), 3 * 4 * 2);
        let near = |key: &str, wanted: f64| assert!((report.ratios[key] - wanted).abs() < 0.003, "{key}");
        near("rivals.500us.kasha-fsync/etcd.p50", 0.5);
        near("rivals.500us.kasha-f1/redis-wait1.p99", 0.75);
        near("rivals.500us.c64.kasha-f2/redis-wait2.throughput", 1.0);
        near("rivals.500us.c64.kasha-f2/redis-wait2.cpu", 5.0 / 6.0);
        let verdicts =
            |report: &RivalsReport| judge(&[report.section()]).iter().map(|judged| judged.verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(&report), [Verdict::Met, Verdict::Missed, Verdict::Met]);
        assert!(report.to_string().contains("MISSED"));
        let disturbed = report_with(0.5);
        assert_eq!(verdicts(&disturbed), [Verdict::Undecided; 3]);
        assert!(disturbed.to_string().contains("NO VERDICT") && !disturbed.to_string().contains("MISSED"));
        assert!((report.results[0].server_cpu_us - 10.0).abs() < 1e-9, "a millisecond for a hundred updates");
        assert!(
            (report.results[0].client_cpu_us - 20.0).abs() < 1e-9 && (report.results[0].packets - 4.0).abs() < 1e-9
        );
        assert!((report.networks[0].late_mean_us - 5.0).abs() < 1e-9);
    }

    #[test]
    fn the_table_is_aligned_and_json_has_the_ledgers_keys() {
        let report = report();
        let text = report.to_string();
        let lines: Vec<&str> = text.lines().skip(4).take(13).collect();
        assert!(lines.iter().all(|line| line.chars().count() == lines[0].chars().count()), "{text}");
        let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(json["results"].as_array().unwrap().len(), 12);
        assert_eq!(json["results"][1]["mode"], "etcd");
        assert!(json["ratios"]["rivals.500us.kasha-fsync/etcd.p50"].is_f64());
    }

    #[test]
    fn a_delay_has_its_table_and_its_plot() {
        let section = report().section();
        assert_eq!((section.tables.len(), section.tables[0].rows.len()), (1, 12));
        let [plot] = &section.plots[..] else { panic!("{:?}", section.plots) };
        assert_eq!(plot.file, "rivals-500us");
        let callers = |points: &[(f64, f64)]| points.iter().map(|point| point.0).collect::<Vec<_>>();
        assert!(plot.series.iter().all(|series| callers(&series.points) == [1.0, 64.0]), "{plot:?}");
    }
}
