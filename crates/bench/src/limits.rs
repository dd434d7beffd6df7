//! Time limits and sizes of this crate, with their reasons.

use std::time::Duration;

/// Processes of an idle machine serve within a second; a loaded build machine takes longer.
pub const START: Duration = Duration::from_secs(30);

/// A lost replica must be copied back within this; the demo's logs are a few megabytes.
pub const REPAIR: Duration = Duration::from_secs(30);

/// Every update must be resolved within this time after the load has ended. It covers many fail-overs.
pub const DRAIN: Duration = Duration::from_secs(60);

/// Time between two checks of children and configuration while something is waited for.
pub const LOOK: Duration = Duration::from_millis(20);

/// Time between two questions for every core's status. The counters die with the process.
pub const STATUS_INTERVAL: Duration = Duration::from_millis(100);

/// One measured operation. If one takes longer, the benchmark fails.
pub const OPERATION: Duration = Duration::from_secs(10);

/// Operations before each measured round, so that caches are in the state that they have in the round.
pub const WARM_UP_OPERATIONS: u32 = 50;

/// Updates of one demo client under way. A stuck shard must not block the load of the other shards: with 256, three shards of four that
/// waited for a fail-over stopped the fourth one after half a second.
pub const DEMO_OUTSTANDING_MAX: usize = 2048;

/// Bytes of a child's log that are shown when it could not start.
pub const LOG_TAIL_BYTES: usize = 2000;

/// The longest time that a histogram can hold, in nanoseconds; longer times count as this.
pub const LATENCY_MAX_NANOS: u64 = 60_000_000_000;

/// Rounds of each mode, whatever time they take: a single round says nothing about the noise.
pub const ROUNDS_MIN: u32 = 2;

/// Memory for the log of each replica. Overwritten values keep their memory until all of their segment is dead, so a
/// benchmark needs room for much of what it writes. Memory that it does not write costs at most one segment per log.
pub const BENCH_MEMORY_MIB: u64 = 4096;
