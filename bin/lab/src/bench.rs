//! `kasha-lab bench`: measurements, as ratios within one run. The benchmarks themselves are in `kasha_bench`.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use kasha_bench::rivals::{Callers, Obstacle, RivalsOptions, rivals};
use kasha_bench::{BenchOptions, Benchmark, DECIDING_ROUNDS_MIN, LatencyOptions, Report, all, latency, page};
use kasha_runtime::say;

use kasha::duration::parse;

#[derive(Args)]
pub struct BenchArguments {
    #[command(subcommand)]
    what: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// Latency of an update: unreplicated, ordinary primary-backup, and Kasha, interleaved.
    Latency(LatencyArguments),
    /// Updates a second of 1 to 64 clients in these modes, and the primary's processor time for each.
    Throughput(BenchmarkArguments),
    /// Updates with and without completion records.
    ExactlyOnce(BenchmarkArguments),
    /// A primary with one client state against a primary with a million.
    Clients(BenchmarkArguments),
    /// An unreplicated update against an empty request.
    Floor(BenchmarkArguments),
    /// All clients on one key, and keys by Zipf's law, against uniform keys.
    HotKey(BenchmarkArguments),
    /// Transactions on one shard and over several, against updates and against two-phase commit.
    Transactions(BenchmarkArguments),
    /// A service of counters on several shards: timestamps, locks and two-phase commit.
    Counters(BenchmarkArguments),
    /// How many unsynced bytes to gather before a sync that nobody waits for.
    Batch(BenchmarkArguments),
    /// Heap allocations of an update, on the primary's thread.
    Allocations(BenchmarkArguments),
    /// Records a second of a witness on one thread, and how full tables of several sizes get before they reject.
    Witness(BenchmarkArguments),
    /// How long a shard is away when its primary is killed, against bytes and operations.
    Recovery(BenchmarkArguments),
    /// How much an unreachable shard slows down updates of other shards, in a session that all share.
    Outage(BenchmarkArguments),
    /// The coordinator as a group of three: what the loss of its leader, of all its members and of any one node costs.
    Coordinator(BenchmarkArguments),
    /// Times that outsiders found far off, each beside what is usual.
    Outsiders(BenchmarkArguments),
    /// Updates while the log is cleaned, against updates with memory for all that is written.
    Cleaning(BenchmarkArguments),
    /// How long an event loop hears nobody while keys are overwritten and deleted, and a table is dropped.
    Stalls(BenchmarkArguments),
    /// Increments with bounds against plain ones, and updates beside a listing of all keys.
    Scan(BenchmarkArguments),
    /// Kasha beside etcd and Redis, on a virtual network (root; installs the packages etcd-server and redis-server).
    Rivals(RivalsArguments),
    /// The Redis protocol, of a node's port and of the proxy, beside Redis (root, for the part on a virtual network).
    Redis(BenchmarkArguments),
    /// Print the page of results that a file of `--json` makes.
    Page {
        /// A file of `all`, or of any other benchmark but `latency` and `rivals`.
        file: PathBuf,
    },
    /// All benchmarks, in one file, with their targets (as root it installs what `rivals` lacks).
    All(AllArguments),
}

impl Bench {
    /// The files that it writes, if any.
    fn output(&self) -> Option<&Output> {
        Some(match self {
            Self::Page { .. } => return None,
            Self::Latency(arguments) => &arguments.output,
            Self::Rivals(arguments) => &arguments.output,
            Self::All(arguments) => &arguments.each.output,
            Self::Throughput(arguments)
            | Self::ExactlyOnce(arguments)
            | Self::Clients(arguments)
            | Self::Floor(arguments)
            | Self::HotKey(arguments)
            | Self::Transactions(arguments)
            | Self::Counters(arguments)
            | Self::Batch(arguments)
            | Self::Allocations(arguments)
            | Self::Witness(arguments)
            | Self::Recovery(arguments)
            | Self::Outage(arguments)
            | Self::Coordinator(arguments)
            | Self::Outsiders(arguments)
            | Self::Cleaning(arguments)
            | Self::Stalls(arguments)
            | Self::Scan(arguments)
            | Self::Redis(arguments) => &arguments.output,
        })
    }
}

/// The files to write results to.
#[derive(Args)]
struct Output {
    /// Write the result to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Draw the plots into this folder.
    #[arg(long)]
    svg: Option<PathBuf>,
    /// Write the page of results to this file, as Markdown.
    #[arg(long)]
    markdown: Option<PathBuf>,
}

impl Output {
    /// Called before anything is measured: a file that cannot be written must not be found out at the end of eight
    /// minutes. The file's content stays.
    fn open(&self) -> Result<()> {
        for path in self.json.iter().chain(&self.markdown) {
            let opened = OpenOptions::new().create(true).append(true).open(path);
            opened.with_context(|| format!("cannot write {}", path.display()))?;
        }
        if let Some(folder) = &self.svg {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        Ok(())
    }

    /// The JSON is the report's own, or that of a benchmark with another form.
    fn write(&self, report: &Report, json: String) -> Result<()> {
        if let Some(path) = &self.json {
            std::fs::write(path, json + "\n").with_context(|| format!("cannot write {}", path.display()))?;
        }
        if let Some(folder) = &self.svg {
            report.write_plots(folder)?;
        }
        if let Some(path) = &self.markdown {
            report.write_markdown(path)?;
        }
        Ok(())
    }
}

#[derive(Args)]
struct BenchmarkArguments {
    #[command(flatten)]
    output: Output,
    /// Make the folder for the clusters' data in this folder; it is removed at the end.
    #[arg(long)]
    data: Option<PathBuf>,
    /// One-way delay of each link; by default 200us for latency and none elsewhere, where processors are measured.
    #[arg(long, value_parser = parse)]
    link_delay: Option<Duration>,
    /// Crashes to survive, where a benchmark has one such number.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=3))]
    faults: Option<u8>,
    /// Rounds; the modes take turns in each. Fewer than 6 decide no target about a median of rounds.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long a round lasts.
    #[arg(long, default_value = "250ms", value_parser = parse)]
    round: Duration,
    /// After this time no further round begins (the first two do).
    #[arg(long, default_value = "2m", value_parser = parse)]
    patience: Duration,
    /// Client states, for `clients`.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    states: u32,
    /// Keys, for `stalls` and `scan`.
    #[arg(long, default_value_t = 300_000, value_parser = clap::value_parser!(u32).range(1000..=10_000_000))]
    keys: u32,
    /// MiB of the largest shard, for `recovery`.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(16..=64 * 1024))]
    mebibytes: u64,
    /// MiB of memory for a replica's log, for `cleaning`.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(192..=4096))]
    memory_mib: u64,
    /// Minutes of full load in which nobody is killed, for `coordinator`; 0: not measured. For `redis`: how long to measure, in place
    /// of --rounds and --patience.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=24 * 60))]
    minutes: u32,
}

impl BenchmarkArguments {
    fn options(&self) -> Result<BenchOptions> {
        warn_of_few(self.rounds);
        Ok(BenchOptions {
            data: self.data.clone(),
            link_delay: self.link_delay,
            faults: self.faults,
            rounds: self.rounds,
            round: self.round,
            patience: self.patience,
            states: self.states,
            keys: self.keys,
            bytes: self.mebibytes << 20,
            memory_mib: self.memory_mib,
            minutes: self.minutes,
            ..BenchOptions::new(std::env::current_exe()?)
        })
    }
}

#[derive(Args)]
struct AllArguments {
    /// How long all benchmarks may take together; at most a minute more for those that have begun by then.
    #[arg(long, default_value = "14m", value_parser = parse)]
    time: Duration,
    #[command(flatten)]
    each: BenchmarkArguments,
}

#[derive(Args)]
struct LatencyArguments {
    /// Crashes to survive: a number, or a range like 1..3 (both ends included).
    #[arg(long, default_value = "1..3", value_parser = parse_faults)]
    faults: Faults,
    /// One-way delay of each link.
    #[arg(long, default_value = "200us", value_parser = parse)]
    link_delay: Duration,
    /// Updates per mode and round.
    #[arg(long, default_value_t = 500)]
    operations: u32,
    /// Rounds; the modes take turns in each. Fewer than 6 decide no target about a median of rounds.
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
struct RivalsArguments {
    /// One-way delays of every link.
    #[arg(long, default_value = "500us,2ms", value_delimiter = ',', value_parser = parse)]
    delays: Vec<Duration>,
    /// Numbers of callers, each with one update at a time and a client of its own; `-shared`: with one client for all.
    #[arg(long, default_value = "1,64,64-shared", value_delimiter = ',')]
    callers: Vec<Callers>,
    /// Rounds; the stores take turns in each.
    #[arg(long, default_value_t = 6)]
    rounds: u32,
    /// How long a store is measured in a round.
    #[arg(long, default_value = "1s", value_parser = parse)]
    round_time: Duration,
    /// How long the network's switch spins before a packet is due, instead of sleeping.
    #[arg(long, default_value = "0", value_parser = parse)]
    spin: Duration,
    /// Folder for the stores' data, on a disk; the data is removed afterwards. Default: among temporary files.
    #[arg(long)]
    data: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Debug)]
struct Faults(Vec<u8>);

fn parse_faults(text: &str) -> Result<Faults, String> {
    let number =
        |text: &str| text.parse::<u8>().ok().filter(|n| (1..=3).contains(n)).ok_or("faults are 1, 2 or 3".to_owned());
    match text.split_once("..") {
        Some((low, high)) => Ok(Faults((number(low)?..=number(high.trim_start_matches('='))?).collect())),
        None => Ok(Faults(vec![number(text)?])),
    }
}

pub fn run(arguments: &BenchArguments) -> Result<()> {
    arguments.what.output().map_or(Ok(()), Output::open)?;
    match &arguments.what {
        Bench::Latency(arguments) => run_latency(arguments),
        Bench::Throughput(arguments) => run_one("throughput", arguments),
        Bench::ExactlyOnce(arguments) => run_one("exactly-once", arguments),
        Bench::Clients(arguments) => run_one("clients", arguments),
        Bench::Floor(arguments) => run_one("floor", arguments),
        Bench::HotKey(arguments) => run_one("hot-key", arguments),
        Bench::Transactions(arguments) => run_one("transactions", arguments),
        Bench::Counters(arguments) => run_one("counters", arguments),
        Bench::Batch(arguments) => run_one("batch", arguments),
        Bench::Allocations(arguments) => run_one("allocations", arguments),
        Bench::Witness(arguments) => run_one("witness", arguments),
        Bench::Recovery(arguments) => run_one("recovery", arguments),
        Bench::Outage(arguments) => run_one("outage", arguments),
        Bench::Coordinator(arguments) => run_one("coordinator", arguments),
        Bench::Outsiders(arguments) => run_one("outsiders", arguments),
        Bench::Cleaning(arguments) => run_one("cleaning", arguments),
        Bench::Stalls(arguments) => run_one("stalls", arguments),
        Bench::Scan(arguments) => run_one("scan", arguments),
        Bench::Rivals(arguments) => run_rivals(arguments),
        Bench::Redis(arguments) => run_one("redis", arguments),
        Bench::Page { file } => show_page(file),
        Bench::All(arguments) => run_all(arguments),
    }
}

fn run_one(name: &str, arguments: &BenchmarkArguments) -> Result<()> {
    let options = arguments.options()?;
    let benchmark = Benchmark::named(name).context("every subcommand is a benchmark")?;
    let report = Report::new(&options, vec![benchmark.run(&options)?]);
    say!("{report}");
    arguments.output.write(&report, report.to_json())
}

fn show_page(file: &Path) -> Result<()> {
    let json = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let page = page(&json).with_context(|| file.display().to_string())?;
    say!("{}", page.trim_end());
    Ok(())
}

fn run_all(arguments: &AllArguments) -> Result<()> {
    let (report, failed) = all(&arguments.each.options()?, arguments.time, |section| say!("{section}"));
    say!("{}", report.summary());
    arguments.each.output.write(&report, report.to_json())?;
    let failed: Vec<String> = failed.iter().map(|error| format!("{error:#}")).collect();
    ensure!(failed.is_empty(), "the other benchmarks are done and written; failed: {}", failed.join("; "));
    Ok(())
}

fn warn_of_few(rounds: u32) {
    if rounds < DECIDING_ROUNDS_MIN {
        say!("{rounds} rounds decide no target about a median of rounds: that takes {DECIDING_ROUNDS_MIN}\n");
    }
}

fn run_latency(arguments: &LatencyArguments) -> Result<()> {
    warn_of_few(arguments.rounds);
    let usual = LatencyOptions::new(std::env::current_exe()?, arguments.faults.0.clone());
    let options = LatencyOptions {
        bench: BenchOptions { rounds: arguments.rounds, patience: Duration::MAX, ..usual.bench },
        link_delay: arguments.link_delay,
        operations: arguments.operations,
        ..usual
    };
    let report = latency(&options)?;
    say!("{report}");
    let json = report.to_json();
    arguments.output.write(&Report::new(&options.bench, vec![report.section()]), json)
}

fn run_rivals(arguments: &RivalsArguments) -> Result<()> {
    let options = RivalsOptions {
        delays: arguments.delays.clone(),
        callers: arguments.callers.clone(),
        rounds: arguments.rounds,
        round_time: arguments.round_time,
        spin: arguments.spin,
        data: arguments.data.clone(),
        ..RivalsOptions::new(std::env::current_exe()?)
    };
    let report = match rivals(&options) {
        Ok(report) => report,
        Err(Obstacle::NotHere(skipped)) => {
            say!("{skipped}");
            return Ok(());
        }
        Err(Obstacle::Failed(error)) => return Err(error),
    };
    say!("{report}");
    let whole = Report::new(&BenchOptions::new(options.exe), vec![report.section()]);
    arguments.output.write(&whole, report.to_json())
}
