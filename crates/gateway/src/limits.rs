//! Everything has a limit; the reason stands beside it.

use std::time::Duration;

/// How long a command may take. After that it is cancelled, and a second later at most its connection is told what is known: programs
/// give up after two seconds or more. A front's session has it as its deadline, too.
pub const COMMAND_DEADLINE: Duration = Duration::from_millis(1200);

/// How much longer a command may take that is cancelled, until its connection is told that its outcome is unknown (R10.2).
pub const CANCEL_GRACE: Duration = Duration::from_millis(600);

/// A command that had to wait, or whose batch ended before it, goes together with others if that took no longer than this. They have the time that is left
/// to it, which is nearly all of theirs. Later it goes alone.
pub const GOES_ON_WITHIN: Duration = Duration::from_millis(100);

/// Within this a request of the Redis protocol is told something: Jedis gives up after two seconds (R10.2).
pub const REPLIED_WITHIN: Duration = Duration::from_millis(1800);

/// Keys of a page that `SCAN` or `KEYS` asks a shard for: about as many as a node looks at for one.
pub const SCAN_PAGE: u32 = 192;

/// Pages of one `SCAN`, whatever its `COUNT` is.
pub const SCAN_PAGES_MAX: u64 = 16;

/// Names that `KEYS` tells, together: a connection takes a reply in one piece.
pub const KEYS_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Bytes of effects with which a turn has said enough to all connections together: it ends, and goes on with the next one. A short request may have a
/// long reply, and thousands of connections may have sent some.
pub const TURN_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The longest pattern of names, in bytes: each byte of a name may be compared with all of it.
pub const PATTERN_BYTES_MAX: usize = 4096;

/// Requests of one connection that wait for earlier ones. From so many on no more is read from it, until half of them are begun.
pub const WAITING_REQUESTS_MAX: usize = 1024;

/// Bytes of these requests, and what they cost.
pub const WAITING_BYTES_MAX: usize = 1024 * 1024;

/// A shell may have read so much more before it stops: beyond this the connection is told that it is too much, and ends.
pub const WAITING_REQUESTS_LIMIT: usize = 64 * 1024;

/// The same in bytes: the largest request, and some turns' input.
pub const WAITING_BYTES_LIMIT: usize = 32 * 1024 * 1024;

/// The same of all connections together: a thousand of them, each within its own limit, are too much for a small machine.
pub const WAITING_BYTES_TOTAL_MAX: usize = 128 * 1024 * 1024;

/// Bytes of replies with which a connection has been told enough until the front goes on: a shell tells it between turns whether they have left, and
/// a turn has up to eight rounds. The largest reply comes on top.
pub const ROUND_REPLIES_MAX: usize = 256 * 1024;

/// What a request that waits takes beside its bytes: its place in a queue, and what an allocation takes.
pub const REQUEST_COST: usize = 64;
