//! The benchmarks, one file each, and the list of them that `all` runs. docs/benchmarks.md says what each measures.

mod allocations;
mod batch;
mod cleaning;
mod clients;
mod coordinator;
mod counters;
mod exactly_once;
mod floor;
mod hot_key;
mod modes;
mod outage;
mod outsiders;
mod pending;
mod recovery;
pub(crate) mod redis;
mod rivals;
mod scan;
mod stalls;
mod sweeps;
pub(crate) mod throughput;
mod transactions;
mod witness;

use std::time::Duration;

use crate::harness::BenchOptions;
use crate::latency;
use crate::section::Section;

/// One benchmark, with its function.
#[derive(Clone, Copy, Debug)]
pub struct Benchmark {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it measures, in one line.
    pub about: &'static str,
    /// The benchmark's part of the time that `all` takes.
    share: u32,
    run: fn(&BenchOptions) -> anyhow::Result<Section>,
}

/// All benchmarks, in the order in which `all` runs them.
pub const BENCHMARKS: &[Benchmark] = &[
    Benchmark {
        name: "latency",
        about: "one update at a time: unreplicated, ordinary primary-backup, and Kasha, for f = 1, 2, 3",
        share: 100,
        run: latency::section,
    },
    Benchmark {
        name: "throughput",
        about: "1 to 64 clients in the same three modes, and the primary's processor time for an update",
        share: 110,
        run: throughput::run,
    },
    Benchmark {
        name: "exactly-once",
        about: "the same with and without completion records",
        share: 80,
        run: exactly_once::run,
    },
    Benchmark {
        name: "clients",
        about: "one client state on the primary against a million",
        share: 90,
        run: clients::run,
    },
    Benchmark { name: "floor", about: "an update against an empty request", share: 25, run: floor::run },
    Benchmark {
        name: "hot-key",
        about: "everybody on one key, and keys by Zipf's law, against uniform keys",
        share: 50,
        run: hot_key::run,
    },
    Benchmark { name: "batch", about: "how many bytes a sync waits for", share: 45, run: batch::run },
    Benchmark {
        name: "allocations",
        about: "heap allocations of an update on the primary's thread",
        share: 20,
        run: allocations::run,
    },
    Benchmark {
        name: "transactions",
        about: "transactions on one shard and on several, against updates and against two-phase commit",
        share: 150,
        run: transactions::run,
    },
    Benchmark {
        name: "counters",
        about: "a service of counters on several shards: timestamps, locks and two-phase commit, as in Granola's thesis",
        share: 110,
        run: counters::run,
    },
    Benchmark {
        name: "witness",
        about: "records a second on one thread, and when tables of several sizes reject",
        share: 30,
        run: witness::run,
    },
    Benchmark {
        name: "recovery",
        about: "how long a shard is away when its primary is killed, against bytes and operations",
        share: 150,
        run: recovery::run,
    },
    Benchmark {
        name: "outage",
        about: "what a shard that is away costs the updates of other shards in one session",
        share: 40,
        run: outage::run,
    },
    Benchmark {
        name: "coordinator",
        about: "the coordinator as a group of three: its leader, all its members and any one node are killed",
        share: 130,
        run: coordinator::run,
    },
    Benchmark {
        name: "outsiders",
        about: "times that outsiders found far off, each beside what is usual",
        share: 120,
        run: outsiders::run,
    },
    Benchmark {
        name: "cleaning",
        about: "updates while the log is cleaned, against updates with memory for all of them",
        share: 130,
        run: cleaning::run,
    },
    Benchmark {
        name: "stalls",
        about: "how long an event loop hears nobody while keys are overwritten and deleted, and a table is dropped",
        share: 60,
        run: stalls::run,
    },
    Benchmark {
        name: "scan",
        about: "increments with bounds against plain ones, and updates beside a listing of all keys",
        share: 50,
        run: scan::run,
    },
    Benchmark {
        name: "rivals",
        about: "Kasha beside etcd and Redis on a virtual network, in brief",
        share: 60,
        run: rivals::run,
    },
    Benchmark {
        name: "redis",
        about: "the Redis protocol, of a node's port and of the proxy, beside Redis",
        share: 110,
        run: redis::run,
    },
];

impl Benchmark {
    /// The benchmark of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        BENCHMARKS.iter().find(|benchmark| benchmark.name == name).copied()
    }

    /// Runs the benchmark.
    ///
    /// # Errors
    /// If a cluster cannot be started, or an operation is not done.
    pub fn run(self, options: &BenchOptions) -> anyhow::Result<Section> {
        (self.run)(options)
    }

    /// Runs the benchmark in its part of the time that is left for the benchmarks `left`.
    pub(crate) fn run_within(self, time: Duration, left: &[Self], options: &BenchOptions) -> anyhow::Result<Section> {
        let shares: u32 = left.iter().map(|benchmark| benchmark.share).sum();
        let patience = time * self.share / shares;
        self.run(&BenchOptions { patience, ..options.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_benchmark_is_found_by_its_name() {
        for benchmark in BENCHMARKS {
            assert_eq!(Benchmark::named(benchmark.name).map(|found| found.about), Some(benchmark.about));
        }
        assert!(Benchmark::named("nothing").is_none());
    }
}
