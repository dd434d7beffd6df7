//! Updates of a shard whose log is cleaned, against updates of a shard with memory for all that is written.
//!
//! Each pair holds the same keys and gets the same updates, so that the index is as large in both. Before the rounds
//! begin, the cleaned log goes round once. That segments were really freed and copied is read from the log's end, which
//! lies beyond the memory, and from the bytes that the log grew by for each update.

use std::time::Duration;

use anyhow::ensure;
use kasha_node::Baseline;
use kasha_types::Work;
use kasha_wire::status::{LongTurn, ReplicaStatus};

use crate::children::ClusterSpec;
use crate::harness::keys::{Keys, Zipf};
use crate::harness::load::{Limit, Workload};
use crate::harness::{Arm, BenchOptions, Clients, Measured, Run, in_turns, per, turns};
use crate::limits;
use crate::section::{Cell, Section, Table};

const CLIENTS: usize = 64;
const VALUE_BYTES: usize = 100;
/// A live key: header of an entry, fields of an object, the key and its value, padded.
const KEY_BYTES: u64 = 144;
const FEW_KEYS: u32 = 200_000;
const SKEW: f64 = 0.99;
/// Part of the greatest load at which latencies are compared.
const PACED: f64 = 0.6;

/// A cluster, and how much of its memory lives.
struct Shard {
    arm: Arm,
    keys: u32,
    memory: u64,
}

/// One load of a shard, and what it found.
struct Case {
    name: &'static str,
    key: &'static str,
    /// Which shard, and which case has memory for everything.
    shard: usize,
    ample: usize,
    workload: Workload,
    is_paced: bool,
    measured: Measured,
    /// What the log grew by, and by how many updates.
    grown: u64,
    appended: u64,
    /// Requests that were refused, to be sent again or for good.
    busy: u64,
    /// The turn in which the loop did most, of those in which the cleaner worked. The time for files is the disk's.
    cleaning: LongTurn,
}

impl Shard {
    fn start(run: &Run<'_>, name: &str, memory_mib: u64, keys: u32) -> anyhow::Result<Self> {
        run.say(&format!("starting {name}"));
        let (faults, baseline) = match run.options.faults {
            None => (0, Baseline::Unreplicated),
            Some(faults) => (faults, Baseline::None),
        };
        let spec = ClusterSpec { baseline, memory_mib: Some(memory_mib), ..run.spec(name, faults) };
        let mut arm = Arm::start(name, spec, Clients::new(CLIENTS, faults > 0))?;
        run.say(&format!("filling {name}"));
        arm.warm(CLIENTS, &Workload::puts(VALUE_BYTES, Keys::Each), keys)?;
        Ok(Self { arm, keys, memory: memory_mib << 20 })
    }

    fn status(&mut self) -> anyhow::Result<ReplicaStatus> {
        let status = self.arm.probe.status()?;
        let primary = status.replicas.into_iter().find(|replica| replica.primary);
        let primary = primary.ok_or_else(|| anyhow::anyhow!("the node is no primary any more"))?;
        ensure!(primary.objects == u64::from(self.keys), "{} keys instead of {}", primary.objects, self.keys);
        Ok(primary)
    }

    /// Overwrites until the log has gone round once.
    fn go_round(&mut self, workload: &Workload) -> anyhow::Result<()> {
        let mut scratch = Measured::new();
        while self.status()?.end.offset.0 < 2 * self.memory {
            self.arm.round_into(CLIENTS, workload, Limit::Time(Duration::from_millis(500)), &mut scratch)?;
        }
        Ok(())
    }
}

fn puts(keys: Keys) -> Workload {
    Workload { counts_refusals: true, ..Workload::puts(VALUE_BYTES, keys) }
}

const AMPLE: usize = 0;
const LIVE_70: usize = 1;
const LIVE_80: usize = 2;
const AMPLE_FEW: usize = 3;
const FEW: usize = 4;

fn shards(run: &Run<'_>) -> anyhow::Result<Vec<Shard>> {
    let mebibytes = run.options.memory_mib;
    let keys =
        |percent: u64| u32::try_from((mebibytes << 20) * percent / 100 / KEY_BYTES).expect("keys of some gibibytes");
    let ample = limits::BENCH_MEMORY_MIB.max(mebibytes * 16);
    let shards = [
        ("ample", ample, keys(80)),
        ("live-70", mebibytes, keys(70)),
        ("live-80", mebibytes, keys(80)),
        ("ample-few", ample, FEW_KEYS),
        ("few", mebibytes, FEW_KEYS),
    ];
    shards.into_iter().map(|(name, memory, keys)| Shard::start(run, name, memory, keys)).collect()
}

fn cases(shards: &[Shard]) -> Vec<Case> {
    let uniform = |shard: usize| puts(Keys::Uniform(shards[shard].keys));
    let zipf = |shard: usize| puts(Keys::Zipf(Zipf::new(shards[shard].keys, SKEW)));
    let case = |name, key, shard, ample, workload, is_paced| Case {
        name,
        key,
        shard,
        ample,
        workload,
        is_paced,
        measured: Measured::new(),
        grown: 0,
        appended: 0,
        busy: 0,
        cleaning: LongTurn::default(),
    };
    vec![
        case("ample memory, uniform", "ample_uniform", AMPLE, 0, uniform(AMPLE), false),
        case("70 % live, uniform", "live70_uniform", LIVE_70, 0, uniform(LIVE_70), false),
        case("80 % live, uniform", "live80_uniform", LIVE_80, 0, uniform(LIVE_80), false),
        case("ample memory, Zipf", "ample_zipf", AMPLE, 3, zipf(AMPLE), false),
        case("80 % live, Zipf", "live80_zipf", LIVE_80, 3, zipf(LIVE_80), false),
        case("ample memory, 200 000 keys, Zipf", "ample_few", AMPLE_FEW, 5, zipf(AMPLE_FEW), false),
        case("200 000 keys, Zipf", "few", FEW, 5, zipf(FEW), false),
        case("ample memory, 60 % load", "ample_paced", AMPLE, 7, uniform(AMPLE), true),
        case("80 % live, 60 % load", "live80_paced", LIVE_80, 7, uniform(LIVE_80), true),
    ]
}

impl Case {
    fn round(&mut self, shards: &mut [Shard], time: Duration) -> anyhow::Result<()> {
        let shard = &mut shards[self.shard];
        let before = shard.status()?;
        shard.arm.round_into(CLIENTS, &self.workload, Limit::Time(time), &mut self.measured)?;
        let after = shard.status()?;
        self.grown += after.end.offset.bytes_since(before.end.offset);
        self.appended += after.updates - before.updates;
        self.busy += after.refusals - before.refusals;
        let turn = &self.measured.last_turns.busiest_since_asked;
        if turn.work.contains(&Work::Clean) {
            turns::note(&mut self.cleaning, turn, turns::busy_micros);
        }
        Ok(())
    }

    /// Bytes that the log grew by for each update.
    fn bytes_each(&self) -> f64 {
        per(self.grown as f64, self.appended as f64)
    }
}

pub(super) fn run(options: &BenchOptions) -> anyhow::Result<Section> {
    let run = Run::begin("cleaning", options);
    let mut shards = shards(&run)?;
    let mut cases = cases(&shards);
    for index in [LIVE_70, LIVE_80, FEW] {
        let workload = puts(Keys::Uniform(shards[index].keys));
        run.say("overwriting until the log has gone round");
        shards[index].go_round(&workload)?;
    }
    let rounds = run.rounds(|round| {
        let greatest = cases[2].measured.throughput();
        in_turns(round, &mut cases, |case| {
            if case.is_paced {
                // The first round finds out how much the shard can take.
                let rate = if greatest > 0.0 { greatest * PACED } else { 1000.0 };
                case.workload.pace = Some(Duration::from_secs_f64(1.0 / rate));
            }
            case.round(&mut shards, options.round)
        })
    })?;
    let section = report(options, &mut shards, &cases)?;
    drop(shards);
    Ok(section.took(run.end()?, rounds))
}

fn report(options: &BenchOptions, shards: &mut [Shard], cases: &[Case]) -> anyhow::Result<Section> {
    let about = format!(
        "{CLIENTS} clients, puts of {VALUE_BYTES} bytes, {} MiB of memory, f = {}; what lives is counted in percent of the memory",
        options.memory_mib,
        options.faults.unwrap_or(0)
    );
    let mut section = Section::new("cleaning", about);
    for (index, shard) in shards.iter_mut().enumerate() {
        let end = shard.status()?.end.offset.0;
        let is_cleaned = end > shard.memory;
        ensure!(is_cleaned != matches!(index, AMPLE | AMPLE_FEW), "{}: the log ends at {end}", shard.arm.name);
    }
    section.tables.push(table(shards, cases));
    for case in cases {
        let ample = &cases[case.ample];
        if case.key == ample.key {
            continue;
        }
        let name = |figure: &str| format!("cleaning.{}/ample.{figure}", case.key);
        if case.is_paced {
            section.ratio(name("p99"), per(case.measured.percentile_us(99.0), ample.measured.percentile_us(99.0)));
        } else {
            section.ratio(name("throughput"), case.measured.relative_to(&ample.measured, |round| round.throughput));
            section.detail(name("cpu"), case.measured.relative_to(&ample.measured, |round| round.cpu_us));
        }
        section.ratio(name("bytes"), per(case.bytes_each(), ample.bytes_each()));
        section.detail(format!("cleaning.{}.busy", case.key), case.busy as f64);
        section.detail(format!("cleaning.{}.refused", case.key), case.measured.tally.refused as f64);
    }
    let longest = cases.iter().map(|case| {
        (case.name.to_owned(), format!("cleaning.{}.longest_turn_us", case.key), &case.measured.longest_turn)
    });
    turns::show(&mut section, "Longest turns", turns::micros, longest);
    let cleaning = cases.iter().filter(|case| case.cleaning.nanos > 0).map(|case| {
        (format!("{}, cleaning", case.name), format!("cleaning.{}.longest_cleaning_turn_us", case.key), &case.cleaning)
    });
    turns::show(&mut section, "Turns in which the loop itself did most, and cleaned", turns::busy_micros, cleaning);
    let longest = cases.iter().map(|case| turns::busy_micros(&case.cleaning)).fold(0.0, f64::max);
    section.ratio("cleaning.longest_cleaning_turn_us", longest);
    Ok(section)
}

fn table(shards: &[Shard], cases: &[Case]) -> Table {
    let columns =
        ["load", "updates/s", "p50 µs", "p99 µs", "CPU µs", "log bytes/update", "times round", "busy", "no memory"];
    let mut table = Table::new("Updates while the log is cleaned", &columns);
    for case in cases {
        table.row([
            Cell::from(case.name),
            Cell::Number(case.measured.throughput(), 0),
            Cell::Number(case.measured.percentile_us(50.0), 1),
            Cell::Number(case.measured.percentile_us(99.0), 1),
            Cell::Number(case.measured.cpu_us(), 2),
            Cell::Number(case.bytes_each(), 0),
            Cell::Number(per(case.grown as f64, shards[case.shard].memory as f64), 2),
            Cell::from(case.busy),
            Cell::from(case.measured.tally.refused),
        ]);
    }
    table
}
