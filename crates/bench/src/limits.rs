//! How long and how much, with the reasons.

use std::time::Duration;

/// A cluster of idle processes serves within a second; a loaded build machine takes longer.
pub const START: Duration = Duration::from_secs(30);

/// A lost replica must be copied back within this; the demo's logs are a few megabytes.
pub const REPAIR: Duration = Duration::from_secs(30);

/// Every update must be resolved within this after the load has ended: a fail-over, many times over.
pub const DRAIN: Duration = Duration::from_secs(60);

/// Between two looks at children and configuration while something is waited for.
pub const LOOK: Duration = Duration::from_millis(20);

/// Between two questions for every core's status: its counters die with the process.
pub const STATUS_INTERVAL: Duration = Duration::from_millis(100);

/// One measured operation: beyond it the benchmark has failed rather than found a slow one.
pub const OPERATION: Duration = Duration::from_secs(10);

/// Operations before each measured round, so that caches are as they are in the round.
pub const WARM_UP_OPERATIONS: u32 = 50;

/// Updates of one demo client under way. A stuck shard must not keep the load from the others at once.
pub const DEMO_OUTSTANDING_MAX: usize = 256;

/// Bytes of a child's log that are shown when it could not start.
pub const LOG_TAIL_BYTES: usize = 2000;

/// Longest time that a histogram can hold, in nanoseconds; longer ones count as this.
pub const LATENCY_MAX_NANOS: u64 = 60_000_000_000;

/// Rounds of each mode, whatever time they take: one alone says nothing of the noise.
pub const ROUNDS_MIN: u32 = 2;

/// Memory for the log of each replica. Overwritten values keep theirs until all of their segment is dead, so a
/// benchmark needs room for much of what it writes; what it does not write costs a segment of each log at most.
pub const BENCH_MEMORY_MIB: u64 = 4096;
