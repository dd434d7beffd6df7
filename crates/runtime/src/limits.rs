//! Everything has a limit; the reason stands beside it.

use std::time::Duration;

/// The limits of one event loop. The defaults suit production; tests lower them.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Accepted connections, those that are being closed included. Each costs a file descriptor and its buffers.
    pub connections: usize,
    /// Accepted connections of the Redis protocol, which are counted apart: programs that fill these keep nobody else out.
    pub requesters: usize,
    /// Whether `connections` are as many as anybody may want; otherwise the process has no more descriptors for them.
    pub has_descriptors: bool,
    /// Connections beyond these that are being told why they are refused; for the next one, the first of those is ended.
    pub told: usize,
    /// Dialled connections that there is always room for; more take the place of accepted ones.
    pub dialled: usize,
    /// Files kept open; the least recently used is closed.
    pub open_files: usize,
    /// Files written and not fsynced above which a background fsync starts by itself: each keeps a descriptor. A file
    /// beyond twice as many waits for the fsync of another.
    pub dirty_files: usize,
    /// Bytes queued to an accepted connection above which it is not read any more: who does not read is not served.
    pub output_pause_bytes: usize,
    /// Bytes queued to a connection above which it is closed.
    pub output_close_bytes: usize,
    /// Bytes that wait for all connections together; above, those with the most are closed (looked at once a [`SWEEP`]).
    pub backlog_total_bytes: usize,
    /// Replies of the Redis protocol that have not left, of all connections together: above, each that has more than `replies_least_bytes` is
    /// neither read nor answered any further.
    pub replies_total_bytes: usize,
    /// What each such connection may leave unread, however much others do.
    pub replies_least_bytes: usize,
    /// Memory of requests of the Redis protocol that have not ended, of all connections together; above, some are given up.
    pub halves_total_bytes: usize,
    /// Bytes queued to a peer while its connection is being made; what does not fit is dropped.
    pub dial_buffer_bytes: usize,
    /// How long the network may take to make a connection: a packet that a cut swallowed is sent again seconds later only.
    pub connect: Duration,
    /// How long a handshake may take, on either side.
    pub handshake: Duration,
    /// How long a half frame may stand without growing, and queued output without shrinking.
    pub stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            requesters: 10_000,
            has_descriptors: true,
            told: 64,
            dialled: 512,
            open_files: OPEN_FILES_MAX,
            dirty_files: 256,
            output_pause_bytes: 4 * 1024 * 1024,
            output_close_bytes: 64 * 1024 * 1024,
            backlog_total_bytes: 512 * 1024 * 1024,
            replies_total_bytes: 256 * 1024 * 1024,
            replies_least_bytes: 16 * 1024,
            halves_total_bytes: 256 * 1024 * 1024,
            dial_buffer_bytes: 1024 * 1024,
            connect: Duration::from_millis(600),
            handshake: Duration::from_secs(5),
            stall: Duration::from_secs(30),
        }
    }
}

/// Connections of one loop, dialled ones included: the slot is 16 bits of the connection's id.
pub const CONNECTION_SLOTS_MAX: usize = 1 << 16;

/// Bytes of one read: large enough for a batch, small enough to stay in the cache while it is processed.
pub const READ_BYTES: usize = 128 * 1024;

/// Bytes read from one connection in one turn, so that the others get theirs.
pub const TURN_CONNECTION_BYTES: usize = 256 * 1024;

/// Bytes read in one turn: bounds how long its first answer waits.
pub const TURN_INPUT_BYTES: usize = 2 * 1024 * 1024;

/// Bytes that the effects of one turn may name before it takes no more input.
pub const TURN_OUTPUT_BYTES: usize = 8 * 1024 * 1024;

/// Connections accepted in one turn.
pub const TURN_ACCEPTS: usize = 64;

/// How often one turn feeds completed commits back before it goes on: a commit that causes a commit each time must
/// not keep the loop from its sockets.
pub const TURN_COMMIT_ROUNDS: usize = 8;

/// A log slice from this size on is written from the segment itself; copying a smaller one is cheaper than a system
/// call of its own.
pub const GATHER_BYTES: usize = 32 * 1024;

/// Bytes in the delay queue above which nothing is read until it has drained.
pub const DELAYED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// First and greatest pause between two attempts to reach a peer. What is sent to the peer meanwhile is dropped, so a
/// peer that is back goes unnoticed for the greatest pause at most.
pub const BACKOFF: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));

/// How often handshakes, half frames and closing connections are looked at, while there are any.
pub const SWEEP: Duration = Duration::from_millis(250);

/// How long a closed connection's last words may take to be read before it is dropped.
pub const LINGER: Duration = Duration::from_secs(2);

/// After how long without acknowledgement the kernel gives up a connection that others made.
pub const USER_TIMEOUT: Duration = Duration::from_secs(15);

/// The same for one that we made: the kernel's pauses between two attempts double, so that after a cut of six seconds the
/// old connection may stand still for six more. A new one is there at once (R7.8).
pub const DIALLED_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause before accepting again when the system gives no connection.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Goodbyes of the coordinator's in a row after which this process ends: it is not wanted, and its operator must know.
pub const REFUSALS_MAX: u8 = 3;

/// Files that a loop keeps open where descriptors abound.
pub const OPEN_FILES_MAX: usize = 256;

/// How often it is told that connections are refused: whoever is refused comes again and again.
pub const REFUSALS_TOLD: Duration = Duration::from_secs(60);

/// How long a name's answer is given to whoever asks: loops that dial together, or one that dials ten times a second.
pub const ANSWER_AGE: Duration = Duration::from_millis(500);

/// Questions for names that wait for the thread that looks them up.
pub const LOOKUPS_MAX: usize = 64;

/// Names whose answers are kept.
pub const NAMES_MAX: usize = 1024;

/// Addresses of one name that are tried.
pub const ANSWERS_MAX: usize = 64;

/// How many different reasons are told why a peer is not whom we wanted, before it is reached.
pub const WRONG_PEERS_TOLD: usize = 8;

/// How often it is told who knocked that is no Kasha.
pub const STRANGERS_TOLD: Duration = Duration::from_secs(60);

/// Connections that may wait to be accepted: the system makes of it as many as it allows (`somaxconn`).
pub const BACKLOG: i32 = i32::MAX;
