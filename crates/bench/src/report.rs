//! The latency benchmark's report: a table for people, and JSON for the record of measurements.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::figure::Spread;
use crate::harness::{Measured, per};
use crate::plot::{Axis, Plot, Series};
use crate::section::{Cell, RATIO_DIGITS, Section, Table, Took, rounded};
use crate::targets::verdicts;

/// How updates are made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Not durable: one node, which answers at once.
    Unreplicated,
    /// By ordinary primary-backup replication: answered when the backups hold it.
    Sync,
    /// As designed: the primary answers at once, and the witnesses hold the update.
    Kasha,
}

impl Mode {
    /// All modes, in the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::Unreplicated, Self::Sync, Self::Kasha];

    /// The mode's name in tables and keys.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unreplicated => "unreplicated",
            Self::Sync => "sync",
            Self::Kasha => "kasha",
        }
    }
}

/// The machine of a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Processors that this process may use.
    pub cores: usize,
    /// The name of the processors, as the operating system reports it.
    pub processor: String,
    /// The kernel's release.
    pub kernel: String,
}

impl Machine {
    /// The machine that this process runs on.
    #[must_use]
    pub fn this() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let information = read("/proc/cpuinfo");
        let processor = information.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: processor.unwrap_or("unknown").to_owned(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cores, processor, kernel } = self;
        write!(f, "{cores} processors ({processor}), kernel {kernel}")
    }
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModeResult {
    /// `f`, the number of crashes that the mode survives.
    pub faults: u8,
    /// The mode that was measured.
    pub mode: Mode,
    /// Median, in microseconds.
    pub p50_us: f64,
    /// 99th percentile, in microseconds.
    pub p99_us: f64,
    /// 99.9th percentile, in microseconds.
    pub p999_us: f64,
    /// Mean, in microseconds.
    pub mean_us: f64,
    /// Number of updates that were measured.
    pub operations: u64,
    /// The share of updates that were complete in one round trip, by their witnesses.
    pub fast_path_rate: f64,
    /// The share of updates that took more than one attempt.
    pub retried_rate: f64,
    /// Processor time of the primary's event loop for one update, in microseconds.
    pub cpu_us: f64,
}

impl ModeResult {
    fn new(faults: u8, mode: Mode, measured: &Measured) -> Self {
        let percentile = |percentile| rounded(measured.percentile_us(percentile), 2);
        Self {
            faults,
            mode,
            p50_us: percentile(50.0),
            p99_us: percentile(99.0),
            p999_us: percentile(99.9),
            mean_us: rounded(measured.tally.latency.mean() / 1000.0, 2),
            operations: measured.tally.updates,
            fast_path_rate: measured.fast_path_rate(),
            retried_rate: per(measured.tally.retried as f64, measured.tally.updates as f64),
            cpu_us: rounded(measured.cpu_us(), 2),
        }
    }
}

/// What the latency benchmark found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencyReport {
    /// The machine of the measurement.
    pub machine: Machine,
    /// Injected delay of each direction, in microseconds.
    pub link_delay_us: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Every mode at every `f`.
    pub results: Vec<ModeResult>,
    /// `latency.f2.kasha/sync.p50` and so on, for every `f`: the median of the rounds' ratios of medians. For p99: the ratio of
    /// the 99th percentiles of all rounds. `kasha/sync` and `kasha/unreplicated` are those of the medians at the largest `f`.
    pub ratios: BTreeMap<String, f64>,
    /// Where those of the medians may lie. With a host that disturbed the measurement, every one decides nothing.
    pub spreads: BTreeMap<String, Spread>,
    /// The fast-path rate of mode `kasha` at the largest `f`.
    pub fast_path_rate: f64,
    /// Rounds of each mode.
    pub rounds: u32,
    #[serde(skip)]
    took: Took,
}

impl LatencyReport {
    pub(crate) fn new(
        machine: Machine,
        link_delay_us: u64,
        value_bytes: usize,
        measured: &[(u8, Mode, Measured)],
    ) -> Self {
        let result = |(faults, mode, measured): &(u8, Mode, Measured)| ModeResult::new(*faults, *mode, measured);
        let results: Vec<ModeResult> = measured.iter().map(result).collect();
        let (mut ratios, mut spreads) = (BTreeMap::new(), BTreeMap::new());
        let of = |result: &ModeResult| {
            let is_it = |(faults, mode, _): &&(u8, Mode, Measured)| (*faults, *mode) == (result.faults, result.mode);
            &measured.iter().find(is_it).expect("each result was measured").2
        };
        let mut fast_path_rate = 0.0;
        let largest = results.iter().map(|result| result.faults).max();
        for kasha in results.iter().filter(|result| result.mode == Mode::Kasha) {
            let is_largest = Some(kasha.faults) == largest;
            if is_largest {
                fast_path_rate = kasha.fast_path_rate;
            }
            let others = results.iter().filter(|other| other.faults == kasha.faults && other.mode != Mode::Kasha);
            for other in others {
                let pair = format!("kasha/{}", other.mode.name());
                let name = |figure: &str| format!("latency.f{}.{pair}.{figure}", kasha.faults);
                let p50 = of(kasha).relative_to(of(other), |round| round.p50_us).rounded(RATIO_DIGITS);
                spreads.extend(p50.spread.map(|spread| (name("p50"), spread)));
                ratios.insert(name("p50"), p50.value);
                ratios.insert(name("p99"), rounded(per(kasha.p99_us, other.p99_us), RATIO_DIGITS));
                if is_largest {
                    ratios.insert(pair, p50.value);
                }
            }
        }
        let (rounds, took) = (0, Took::default());
        Self { machine, link_delay_us, value_bytes, results, ratios, spreads, fast_path_rate, rounds, took }
    }

    /// Notes the time and the number of rounds.
    pub(crate) fn took(mut self, took: Took, rounds: u32) -> Self {
        (self.took, self.rounds) = (took, rounds);
        self.spreads = self.section().spreads;
        self
    }

    /// The report as the findings of one benchmark. Keys without an `f` are left out: they repeat others.
    #[must_use]
    pub fn section(&self) -> Section {
        let about = format!(
            "one client, one update at a time: values of {} bytes, {} µs each way",
            self.value_bytes, self.link_delay_us
        );
        let mut section = Section::new("latency", about);
        let columns = ["f", "mode", "p50 µs", "p99 µs", "p99.9 µs", "mean µs", "CPU µs", "updates", "fast path"];
        let mut table = Table::new("Latency of an update", &columns);
        for result in &self.results {
            table.row([
                Cell::from(u64::from(result.faults)),
                Cell::from(result.mode.name()),
                Cell::Number(result.p50_us, 1),
                Cell::Number(result.p99_us, 1),
                Cell::Number(result.p999_us, 1),
                Cell::Number(result.mean_us, 1),
                Cell::Number(result.cpu_us, 2),
                Cell::from(result.operations),
                if result.mode == Mode::Kasha { Cell::Share(result.fast_path_rate) } else { Cell::Nothing },
            ]);
        }
        section.tables.push(table);
        let line = |mode: Mode| Series {
            name: mode.name().to_owned(),
            points: (self.results.iter().filter(|result| result.mode == mode))
                .map(|result| (f64::from(result.faults), result.p50_us))
                .collect(),
        };
        section.plots.push(Plot {
            file: "latency".to_owned(),
            title: "Median latency of an update".to_owned(),
            x: "crashes survived (f)",
            y: "µs",
            axis: Axis::Linear,
            series: Mode::ALL.map(line).into(),
        });
        section.spreads.clone_from(&self.spreads);
        section.ratios.clone_from(&self.ratios);
        section.ratios.retain(|name, _| name.starts_with("latency."));
        section.took(self.took, self.rounds)
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

impl fmt::Display for LatencyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, link_delay_us, value_bytes, results, .. } = self;
        writeln!(
            f,
            "Latency of one update in µs: one client, one update at a time, values of {value_bytes} bytes, {} µs each way, \
             {} cores ({}).\n",
            link_delay_us, machine.cores, machine.processor
        )?;
        writeln!(
            f,
            "{:>6}  {:<12}  {:>9}  {:>9}  {:>9}  {:>9}  {:>10}  {:>9}",
            "faults", "mode", "p50", "p99", "p99.9", "mean", "operations", "fast path"
        )?;
        for result in results {
            let fast = match result.mode {
                Mode::Kasha => format!("{:.2} %", result.fast_path_rate * 100.0),
                Mode::Unreplicated | Mode::Sync => "-".to_owned(),
            };
            writeln!(
                f,
                "{:>6}  {:<12}  {:>9.1}  {:>9.1}  {:>9.1}  {:>9.1}  {:>10}  {:>9}",
                result.faults,
                result.mode.name(),
                result.p50_us,
                result.p99_us,
                result.p999_us,
                result.mean_us,
                result.operations,
                fast
            )?;
        }
        writeln!(f, "\n{:>6}  {:<20}  {:>7}  {:>7}", "faults", "ratio", "p50", "p99")?;
        for kasha in results.iter().filter(|result| result.mode == Mode::Kasha) {
            for other in [Mode::Unreplicated, Mode::Sync] {
                let pair = format!("kasha/{}", other.name());
                let of = |percentile: &str| {
                    let known = self.ratios.get(&format!("latency.f{}.{pair}.{percentile}", kasha.faults));
                    known.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"))
                };
                writeln!(f, "{:>6}  {:<20}  {:>7}  {:>7}", kasha.faults, pair, of("p50"), of("p99"))?;
            }
        }
        write!(f, "\n{}", verdicts(&self.section()))
    }
}

#[cfg(test)]
mod tests {
    use kasha_wire::status::LoopUsage;

    use super::*;
    use crate::harness::load::Tally;

    /// In six rounds. The machine is ten times slower in the last two.
    fn measured(faults: u8, mode: Mode, micros: u64) -> (u8, Mode, Measured) {
        let mut measured = Measured::new();
        for round in 0..6 {
            let mut tally = Tally::new();
            for n in 0..1000u64 {
                // One in a thousand is slow, and not fast.
                let slow = if n == 999 { 100 } else { 1 };
                let busy = if round >= 4 { 10 } else { 1 };
                tally.latency.saturating_record(micros * slow * busy * 1000);
                tally.updates += 1;
                tally.fast += u64::from(mode == Mode::Kasha && slow == 1);
            }
            measured.add(&tally, LoopUsage::default(), LoopUsage::default());
        }
        (faults, mode, measured)
    }

    fn report() -> LatencyReport {
        let machine = Machine { cores: 2, processor: "a processor".into(), kernel: "6".into() };
        let mut all = Vec::new();
        for faults in [1, 2] {
            all.push(measured(faults, Mode::Unreplicated, 400));
            all.push(measured(faults, Mode::Sync, 900 * u64::from(faults)));
            all.push(measured(faults, Mode::Kasha, 440));
        }
        LatencyReport::new(machine, 200, 100, &all)
    }

    #[test]
    fn plain_keys_are_those_of_the_largest_f() {
        let report = report();
        assert!((report.fast_path_rate - 0.999).abs() < 1e-9);
        let keys: Vec<&str> = report.ratios.keys().map(String::as_str).collect();
        assert_eq!(
            keys,
            [
                "kasha/sync",
                "kasha/unreplicated",
                "latency.f1.kasha/sync.p50",
                "latency.f1.kasha/sync.p99",
                "latency.f1.kasha/unreplicated.p50",
                "latency.f1.kasha/unreplicated.p99",
                "latency.f2.kasha/sync.p50",
                "latency.f2.kasha/sync.p99",
                "latency.f2.kasha/unreplicated.p50",
                "latency.f2.kasha/unreplicated.p99",
            ]
        );
        // The histogram keeps three digits.
        let near = |key: &str, wanted: f64| assert!((report.ratios[key] - wanted).abs() < 0.003, "{key}");
        near("kasha/unreplicated", 1.1);
        near("kasha/sync", 440.0 / 1800.0);
        near("latency.f1.kasha/sync.p50", 440.0 / 900.0);
    }

    #[test]
    fn a_ratio_lies_in_its_range_and_decides_unless_the_host_disturbed_it() {
        let report = report();
        let name = "latency.f1.kasha/unreplicated.p50";
        let Spread::Within([from, to]) = report.spreads[name] else { panic!("{:?}", report.spreads) };
        assert!((from..=to).contains(&report.ratios[name]), "{report:?}");
        assert!(report.spreads.contains_key("latency.f2.kasha/sync.p50"));
        let took = |stolen| report.clone().took(Took { stolen, ..Took::default() }, 6);
        assert_eq!(took(0.0).spreads, report.spreads);
        assert_eq!((took(0.5).spreads[name], took(0.5).rounds), (Spread::Anywhere, 6));
        assert!(took(0.0).to_string().contains("  met") && !took(0.0).to_string().contains("NO VERDICT"));
        let disturbed = took(0.5).to_string();
        assert!(disturbed.contains("NO VERDICT") && disturbed.contains("undecided"), "{disturbed}");
        assert!(!disturbed.contains("  met") && !disturbed.contains("MISSED"), "{disturbed}");
    }

    #[test]
    fn json_has_the_ledgers_keys() {
        let json: serde_json::Value = serde_json::from_str(&report().to_json()).unwrap();
        assert_eq!(json["machine"]["cores"], 2);
        assert_eq!(json["link_delay_us"], 200);
        assert_eq!(json["results"].as_array().unwrap().len(), 6);
        let first = &json["results"][0];
        for key in ["faults", "mode", "p50_us", "p99_us", "p999_us", "operations", "fast_path_rate"] {
            assert!(!first[key].is_null(), "{key}");
        }
        assert_eq!(first["mode"], "unreplicated");
        assert!(json["ratios"]["kasha/sync"].is_f64() && json["fast_path_rate"].is_f64());
    }

    #[test]
    fn the_table_is_aligned() {
        let text = report().to_string();
        let lines: Vec<&str> = text.lines().collect();
        let modes = &lines[2..9];
        assert!(modes.iter().all(|line| line.chars().count() == modes[0].chars().count()), "{text}");
        assert!(text.contains("99.90 %"), "{text}");
    }

    #[test]
    fn nothing_measured_is_no_panic() {
        let empty = [(1, Mode::Kasha, Measured::new()), (1, Mode::Sync, Measured::new())];
        let report = LatencyReport::new(Machine::this(), 0, 0, &empty);
        assert!(report.ratios["kasha/sync"].abs() < 1e-9);
    }
}
