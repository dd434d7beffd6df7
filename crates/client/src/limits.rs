//! This crate's limits; those it shares with others are in `kasha_types::limits`.

use std::time::Duration;

/// Client ids of one session (R4.10): one more than the shards that may stop one after the other without stopping the
/// rest, while the coordinator answers.
pub const IDENTITIES_MAX: usize = 4;

/// Calls of one session that are not finished, queued ones included: memory that a stuck cluster may cost its client.
/// The calls of one shard may take no more of it, and of [`CALL_BYTES_MAX`], than they leave to all others.
pub const CALLS_MAX: usize = 16 * 1024;

/// Bytes of the requests of those calls.
pub const CALL_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Results that arrived after their deadline and are kept until somebody resolves them; the oldest go first.
/// All that is under way can end in one turn (a lost lease), and all of it must be announced.
pub const RESOLVED_MAX: usize = 4096;
const _: () = assert!(RESOLVED_MAX as u64 >= IDENTITIES_MAX as u64 * kasha_types::limits::OUTSTANDING_MAX);

/// Bytes of those results.
pub const RESOLVED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Keys of an update that is recorded on witnesses: each costs a slot on each of them (section 6).
pub const FAST_PATH_KEYS_MAX: u16 = 16;

/// A call's deadline unless its caller says otherwise.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// The first attempt's patience; doubles with each silent one.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(50);

/// The most patience of an attempt.
pub const ATTEMPT_TIMEOUT_MAX: Duration = Duration::from_secs(1);

/// The pause after a first refusal; doubles with each.
pub const BACKOFF: Duration = Duration::from_millis(1);

/// The longest pause after a refusal: a fail-over is noticed within it.
pub const BACKOFF_MAX: Duration = Duration::from_millis(100);

/// Between two questions for the configuration.
pub const REFRESH_INTERVAL: Duration = Duration::from_millis(20);

/// How long a call that the coordinator's configuration must decide waits before it asks again.
pub const ASK_COORDINATOR_INTERVAL: Duration = Duration::from_millis(250);

/// How much longer than its deadline a call may take whose caller asked for a cancellation at the deadline.
pub const CANCEL_GRACE: Duration = Duration::from_secs(1);

/// Refusals for lack of memory before an update is cancelled (R2.2).
pub const OUT_OF_MEMORY_REFUSALS_MAX: u32 = 3;

/// Buffers of finished calls kept for the next ones are at most this long each.
pub const BUFFER_KEPT_BYTES: usize = 16 * 1024;
