//! Limits of this crate, with their reasons. Limits that several crates share are in `kasha_types::limits`.

use std::time::Duration;

/// Client ids of one session (R4.10). While the coordinator answers, one shard fewer than this may stop, one after the
/// other, without stopping the other shards.
pub const IDENTITIES_MAX: usize = 4;

/// Calls of one session that have not ended, queued ones included. This bounds the memory that a stuck cluster costs
/// its client. The calls of one shard may take no more of this limit, and of [`CALL_BYTES_MAX`], than they leave to all
/// others.
pub const CALLS_MAX: usize = 16 * 1024;

/// Bytes of the requests of these calls.
pub const CALL_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Results that arrived after their deadline and are kept until their caller resolves them. The oldest are dropped
/// first. All calls under way can end in one turn (when a lease is lost), and each of them must be announced.
pub const RESOLVED_MAX: usize = 4096;
const _: () = assert!(RESOLVED_MAX as u64 >= IDENTITIES_MAX as u64 * kasha_types::limits::OUTSTANDING_MAX);

/// Bytes of these results.
pub const RESOLVED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Keys of an update that is recorded on witnesses: each key costs a slot on each witness (section 6).
pub const FAST_PATH_KEYS_MAX: u16 = 16;

/// A call's deadline unless its caller says otherwise.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// How long the first attempt waits for an answer; doubles with each attempt that gets none.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(50);

/// The longest time that an attempt waits for an answer.
pub const ATTEMPT_TIMEOUT_MAX: Duration = Duration::from_secs(1);

/// No server is waited for longer than this because it usually takes long.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// How long at least the first attempt waits for an answer if the update waits for its turn (0047); and how much longer than its deadline
/// its caller may wait to hear that it did not happen.
pub const TURN_PATIENCE: Duration = Duration::from_millis(200);

/// The pause after a first refusal; doubles with each refusal.
pub const BACKOFF: Duration = Duration::from_millis(1);

/// The longest pause after a refusal. The end of a fail-over is noticed within this time.
pub const BACKOFF_MAX: Duration = Duration::from_millis(100);

/// Time between two questions for the configuration.
pub const REFRESH_INTERVAL: Duration = Duration::from_millis(20);

/// How long a call that needs the coordinator's configuration waits before it asks again.
pub const ASK_COORDINATOR_INTERVAL: Duration = Duration::from_millis(250);

/// A call whose caller asked for a cancellation at the deadline may take this much longer than its deadline, unless the session's options say
/// otherwise.
pub const CANCEL_GRACE: Duration = Duration::from_secs(1);

/// Refusals for lack of memory before an update is cancelled (R2.2).
pub const OUT_OF_MEMORY_REFUSALS_MAX: u32 = 3;

/// The longest buffer of a finished call that is kept for later calls.
pub const BUFFER_KEPT_BYTES: usize = 16 * 1024;

/// How long the session waits, after the coordinator could not be reached, before it asks the nodes where the coordinator
/// is: it may be away for a minute, and the same nodes have many clients.
pub const COORDINATOR_SOUGHT_INTERVAL: Duration = Duration::from_secs(1);

/// How long a connection may be unused before it is closed. The next call to its server pays a round trip for a new one.
pub const IDLE_MAX: Duration = Duration::from_secs(10);

/// The same for a connection to an address that a program gave, if it serves nothing else.
pub const SEED_IDLE_MAX: Duration = Duration::from_secs(2);

/// How often connections are looked at for that.
pub const IDLE_LOOK: Duration = Duration::from_secs(1);

/// Addresses of one name that are tried.
pub const ANSWERS_MAX: usize = 64;

/// How long a name's look-up may take.
pub const LOOK_UP_PATIENCE: Duration = Duration::from_secs(5);

/// Names that a process looks up at once: each takes a thread.
pub const LOOK_UPS_MAX: usize = 16;

/// How long ago a shard may have been asked whose answer is a part of one outcome, or of one snapshot. Its machines may have lost power
/// since, and with that what it said; so this bounds for how long a caller may still be told of it (R8.17).
pub(crate) const ANSWERS_APART_MAX: Duration = Duration::from_secs(1);
