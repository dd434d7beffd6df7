//! The programs. Most of them are those of the design's plan that broke earlier texts of the rules.
//!
//! What misses a transaction that was answered is, in most of them, one that reads by votes and has a shard that has seen
//! nothing yet: so its timestamp can be low. A single-shard operation waits for whatever is pending where it runs.

use crate::distributed::program::{
    Forgets, PLAIN, Part, Program, X, Y, Z, coordinated, independent, interactive, part, reads, single,
};

/// The clock of s0 may be ahead, so that what s0 votes on is late at the others.
const AHEAD: Program = Program { ahead: 3, ahead_at: 1 << 0, ..PLAIN };

/// Both shards, x of each.
const BOTH: &[Part] = &[part(0, 0, X), part(1, 0, X)];

/// What one transaction saw of another is seen by the next, too, though the last of them is at another shard.
pub static CHAIN: Program = Program {
    name: "chain",
    about: "T0 writes s0 s1; T1 reads and writes s0, writes s2; T2 reads s2; then T3 reads s1 (and s3, by votes)",
    shards: 4,
    plans: &[
        independent(BOTH),
        independent(&[part(0, X, X), part(2, 0, X)]),
        single(&[part(2, X, 0)]),
        independent(&[part(1, X, 0), part(3, X, 0)]).after(2),
    ],
    ..AHEAD
};

/// The same with locks.
pub static LOCKED_CHAIN: Program = Program {
    name: "locked-chain",
    about: "the chain, with T1 coordinated",
    shards: 4,
    plans: &[
        independent(BOTH),
        coordinated(&[part(0, X, X), part(2, 0, X)]),
        single(&[part(2, X, 0)]),
        independent(&[part(1, X, 0), part(3, X, 0)]).after(2),
    ],
    ..AHEAD
};

/// What must settle is inherited within a shard.
pub static LOCAL_CHAIN: Program = Program {
    name: "local-chain",
    about: "T0 writes s0 s1; T1 at s0 reads x, writes y; T2 reads y of s0; then T3 reads s1 and s2; s0 may crash",
    shards: 3,
    plans: &[
        independent(BOTH),
        single(&[part(0, X, Y)]),
        single(&[part(0, Y, 0)]),
        independent(&[part(1, X, 0), part(2, X, 0)]).after(2),
    ],
    crashes: 1,
    crash_at: 1 << 0,
    ..AHEAD
};

/// A transaction that one shard has executed behind another one, which a third shard has not heard of.
pub static LATE_ARRIVAL: Program = Program {
    name: "late-arrival",
    about: "T0 writes s1 s2; T1 reads s0 and s1 by votes; T2 writes s0; then T3 reads s2",
    shards: 3,
    plans: &[
        independent(&[part(1, 0, X), part(2, 0, X)]),
        independent(&[part(0, X, 0), part(1, X, 0)]),
        single(&[part(0, 0, X)]),
        single(&[part(2, X, 0)]).after(2),
    ],
    ..PLAIN
};

/// The chain, and a crash.
pub static CHAIN_RECOVERED: Program = Program {
    name: "chain-recovered",
    about: "the chain; s1 may crash",
    crashes: 1,
    crash_at: 1 << 1,
    is_small: false,
    ..CHAIN
};

/// The chain, and a crash of the participant that told what a gate waits for (0030).
pub static CHAIN_TOLD: Program = Program {
    name: "chain-told",
    about: "the chain; s0 may crash",
    crashes: 1,
    crash_at: 1 << 0,
    is_small: false,
    ..CHAIN
};

/// A lock between two independent transactions.
pub static LOCK_AWAITED: Program = Program {
    name: "lock-awaited",
    about: "T0 coordinated on s0 s2; T1 writes s0 s1; T2 writes s1 s2",
    shards: 3,
    plans: &[
        coordinated(&[part(0, 0, X), part(2, 0, X)]),
        independent(&[part(0, 0, X), part(1, 0, X)]),
        independent(&[part(1, 0, X), part(2, 0, X)]),
    ],
    ..PLAIN
};

/// A write after a read.
pub static ANTI_DEPENDENCY: Program = Program {
    name: "anti-dependency",
    about: "T0 reads s0, writes s1; T1 writes s0; then T2 reads s1 and s2; s0 may crash",
    shards: 3,
    plans: &[
        independent(&[part(0, X, 0), part(1, 0, X)]),
        single(&[part(0, 0, X)]),
        independent(&[part(1, X, 0), part(2, X, 0)]).after(1),
    ],
    crashes: 1,
    crash_at: 1 << 0,
    ..AHEAD
};

/// An independent transaction that only reads.
pub static READ_ONLY: Program = Program {
    name: "read-only",
    about: "T0 reads s0 and s1 by votes; T1 writes s0; then T2 writes s1 and s2; one crash",
    shards: 3,
    plans: &[
        independent(&[part(0, X, 0), part(1, X, 0)]),
        single(&[part(0, 0, X)]),
        independent(&[part(1, 0, X), part(2, 0, X)]).after(1),
    ],
    crashes: 1,
    ..AHEAD
};

/// An update that waits for a pending transaction, and a crash.
pub static PENDING: Program = Program {
    name: "pending",
    about: "T0 writes s0 s1; T1 reads and writes s0; then T2 reads s0; one crash",
    plans: &[independent(BOTH), single(&[part(0, X, X)]), single(&[part(0, X, 0)]).after(1)],
    crashes: 1,
    ..PLAIN
};

/// Two independent transactions in one order at both shards.
pub static ORDER: Program = Program {
    name: "order",
    about: "T0 and T1 read and write both shards, clocks run apart; one crash",
    plans: &[independent(&[part(0, X, X), part(1, X, X)]), independent(&[part(0, X, X), part(1, X, X)])],
    crashes: 1,
    ahead: 3,
    ..PLAIN
};

/// One after the other, and a crash between.
pub static CEILING: Program = Program {
    name: "ceiling",
    about: "T0 writes s0 s1; then T1 writes s1 s2; the clock of s0 is ahead; one crash",
    shards: 3,
    plans: &[independent(BOTH), independent(&[part(1, 0, X), part(2, 0, X)]).after(0)],
    crashes: 1,
    ..AHEAD
};

/// Independent and coordinated transactions on the same keys.
pub static MIXED: Program = Program {
    name: "mixed",
    about: "T0 independent, T1 coordinated, both on both shards, clocks run apart; one crash",
    plans: &[independent(&[part(0, X, X), part(1, X, X)]), coordinated(&[part(0, X, X), part(1, X, X)])],
    crashes: 1,
    ahead: 3,
    ..PLAIN
};

/// A participant that decides against it, and one that never got its request.
pub static AGAINST: Program = Program {
    name: "against",
    about: "T0 coordinated, aborts at s1; T1 coordinated on s0 s1; a request may never arrive; one crash",
    plans: &[coordinated(&[part(0, X, X), part(1, X, X)]).aborts_at(1), coordinated(&[part(0, X, X), part(1, X, X)])],
    crashes: 1,
    refusals: true,
    ..PLAIN
};

/// A lock that another transaction waits for, which something unsettled waits for.
pub static RELEASES: Program = Program {
    name: "releases",
    about: "T0 writes s0 s2; T1 coordinated: reads x and writes y at s0, writes s1; T2 writes y at s0, and s2; the clock of s2 may be ahead",
    shards: 3,
    plans: &[
        independent(&[part(0, 0, X), part(2, 0, X)]),
        coordinated(&[part(0, X, Y), part(1, 0, X)]),
        independent(&[part(0, 0, Y), part(2, 0, X)]),
    ],
    ahead: 3,
    ahead_at: 1 << 2,
    ..PLAIN
};

/// A caller that gives up.
pub static CANCEL: Program = Program {
    name: "cancel",
    about: "T0 coordinated on s0 s1, and its caller may cancel at any time; one crash",
    plans: &[coordinated(&[part(0, X, X), part(1, X, X)])],
    crashes: 1,
    cancels: true,
    ..PLAIN
};

/// What an ABORT says of another transaction.
pub static ABORT: Program = Program {
    name: "abort",
    about: "T0 writes s0 s1; T1 coordinated on s0 s2, aborts at s0 by what it reads; then T2 reads s1 and s3",
    shards: 4,
    plans: &[
        independent(BOTH),
        coordinated(&[part(0, X, 0), part(2, 0, X)]).aborts_at(0),
        independent(&[part(1, X, 0), part(3, X, 0)]).after(1),
    ],
    ..AHEAD
};

/// An answer after the prepare, of what saw something that is not settled.
pub static EARLY: Program = Program {
    name: "early",
    about: "T0 writes s0 s1; T1 interactive: reads s0, writes s2; then T2 reads s1 and s3",
    shards: 4,
    plans: &[
        independent(BOTH),
        interactive(&[part(0, X, 0), part(2, 0, X)]),
        independent(&[part(1, X, 0), part(3, X, 0)]).after(1),
    ],
    ..AHEAD
};

/// The timestamp of a decision binds those that come later.
pub static DECISION: Program = Program {
    name: "decision",
    about: "T0 interactive on s0 s1; T1 writes s0 s2; T2 writes s1 s2; clocks run apart",
    shards: 3,
    plans: &[
        interactive(BOTH),
        independent(&[part(0, 0, X), part(2, 0, X)]),
        independent(&[part(1, 0, X), part(2, 0, X)]),
    ],
    ahead: 3,
    ahead_at: 1 << 1,
    ..PLAIN
};

/// A released lock is not a synced one.
pub static RELEASED: Program = Program {
    name: "released",
    about: "T0 coordinated on s0 s1, aborts at s1; T1 reads and writes s0; then T2 reads s0; s0 may crash",
    plans: &[coordinated(BOTH).aborts_at(1), single(&[part(0, X, X)]), single(&[part(0, X, 0)]).after(1)],
    crashes: 1,
    crash_at: 1 << 0,
    ..PLAIN
};

/// A lock that is released by a commit.
pub static RELEASED_BY_COMMIT: Program = Program {
    name: "released-by-commit",
    about: "T0 interactive on s0 s1; T1 reads and writes s0; then T2 reads s0; one crash",
    plans: &[interactive(BOTH), single(&[part(0, X, X)]), single(&[part(0, X, 0)]).after(1)],
    crashes: 1,
    ..PLAIN
};

/// A snapshot without votes.
pub static DOUBLE_READ: Program = Program {
    name: "double-read",
    about: "T0 reads s0 and s1 twice; T1 writes s0; then T2 writes s1; one crash",
    plans: &[reads(&[part(0, X, 0), part(1, X, 0)]), single(&[part(0, 0, X)]), single(&[part(1, 0, X)]).after(1)],
    crashes: 1,
    ..PLAIN
};

/// A snapshot of something that has not settled.
pub static DOUBLE_READ_UNSETTLED: Program = Program {
    name: "double-read-unsettled",
    about: "T0 writes s0 s1; T1 reads s0 and s2 twice; then T2 reads s1 and s3 by votes",
    shards: 4,
    plans: &[
        independent(BOTH),
        reads(&[part(0, X, 0), part(2, X, 0)]),
        independent(&[part(1, X, 0), part(3, X, 0)]).after(1),
    ],
    ..AHEAD
};

/// A snapshot beside a transaction that is pending again.
pub static DOUBLE_READ_PENDING: Program = Program {
    name: "double-read-pending",
    about: "T0 writes s0 s1 by votes; then T1 reads s0 and s1 twice; one crash",
    plans: &[independent(BOTH), reads(&[part(0, X, 0), part(1, X, 0)]).after(0)],
    crashes: 1,
    ..PLAIN
};

/// A snapshot that waits for one transaction, while another one is proposed.
pub static DOUBLE_READ_PASSED: Program = Program {
    name: "double-read-passed",
    about: "T0 writes s0 s1 by votes; T1 reads s0 and s1 twice; T2 writes s0 s1 by votes",
    plans: &[independent(BOTH), reads(&[part(0, X, 0), part(1, X, 0)]), independent(BOTH)],
    ..PLAIN
};

/// The same across a recovery.
pub static DOUBLE_READ_PASSED_RECOVERED: Program = Program {
    name: "double-read-passed-recovered",
    about: "the same; s1 may crash",
    crashes: 1,
    crash_at: 1 << 1,
    is_small: false,
    ..DOUBLE_READ_PASSED
};

/// A snapshot beside a transaction that has prepared, and an update that began when the transaction's client had been answered.
pub static DOUBLE_READ_EARLY: Program = Program {
    name: "double-read-early",
    about: "T0 interactive on x of s0 s1; T1 reads y of s0 and x of s1 twice; after T0, T2 writes y of s0",
    plans: &[interactive(BOTH), reads(&[part(0, Y, 0), part(1, X, 0)]), single(&[part(0, 0, Y)]).after(0)],
    ..PLAIN
};

/// The order of what a snapshot has seen, and of what was proposed while it waited.
pub static DOUBLE_READ_CHAIN: Program = Program {
    name: "double-read-chain",
    about: "T0 writes y of s0 and x of s1; T1 reads and writes y of s0, writes z of s1; T2 reads z of s0, and x and z of s1, twice",
    plans: &[
        independent(&[part(0, 0, Y), part(1, 0, X)]),
        independent(&[part(0, Y, Y), part(1, 0, Z)]),
        reads(&[part(0, Z, 0), part(1, X | Z, 0)]),
    ],
    is_small: false,
    ..AHEAD
};

/// A snapshot beside a transaction that has prepared, and whose client was answered.
pub static DOUBLE_READ_LOCKED: Program = Program {
    name: "double-read-locked",
    about: "T0 interactive on s0 s1; then T1 reads s0 and s1 twice",
    plans: &[interactive(BOTH), reads(&[part(0, X, 0), part(1, X, 0)]).after(0)],
    ..PLAIN
};

/// The gates of what was read, in a log whose reader is gone.
pub static FOOTPRINT: Program = Program {
    name: "footprint",
    about: "T0 writes s0 s1; T1 at s0 reads x z, writes y, and its record goes; T2 writes z of s0; then T3 reads s1 and s2",
    shards: 3,
    plans: &[
        independent(BOTH),
        single(&[part(0, X | Z, Y)]),
        single(&[part(0, 0, Z)]),
        independent(&[part(1, X, 0), part(2, X, 0)]).after(2),
    ],
    forgets: Forgets::Expired,
    forgotten: 1 << 1,
    ..AHEAD
};

/// The same across a recovery.
pub static FOOTPRINT_RECOVERED: Program = Program {
    name: "footprint-recovered",
    about: "the same; s0 may crash",
    crashes: 1,
    crash_at: 1 << 0,
    witnesses: false,
    is_small: false,
    ..FOOTPRINT
};

/// A commit in one round trip, and what comes after it.
pub static ONE_TRIP: Program = Program {
    name: "one-trip",
    about: "T0 interactive on s0 s1 in one round trip; then T1 reads s0; one crash",
    plans: &[interactive(&[part(0, X, X), part(1, X, X)]), single(&[part(0, X, 0)]).after(0)],
    crashes: 1,
    one_trip: true,
    ..PLAIN
};

/// Two commits in one round trip on the same keys.
pub static TWO_TRIPS: Program = Program {
    name: "two-one-trips",
    about: "T0 and T1 interactive on s0 s1, each in one round trip; one crash",
    plans: &[interactive(&[part(0, X, X), part(1, X, X)]), interactive(&[part(0, X, X), part(1, X, X)])],
    crashes: 1,
    one_trip: true,
    ..PLAIN
};

/// A commit in one round trip of what saw something that is not settled.
pub static ONE_TRIP_EARLY: Program =
    Program { name: "one-trip-early", about: "the same as early, in one round trip", one_trip: true, ..EARLY };

/// A commit in one round trip whose client dies.
pub static ONE_TRIP_DEAD: Program = Program {
    name: "one-trip-dead",
    about: "T0 interactive on s0 s1 in one round trip, and its client may die at any time; clocks run apart; one crash",
    crashes: 1,
    ahead: 3,
    plans: &[interactive(&[part(0, X, X), part(1, X, X)])],
    one_trip: true,
    refusals: true,
    forgets: Forgets::Expired,
    ..PLAIN
};

/// A commit in one round trip beside an independent transaction.
pub static ONE_TRIP_MIXED: Program = Program {
    name: "one-trip-mixed",
    about: "T0 interactive on s0 s1 in one round trip; T1 writes s0 s1; s0 may crash",
    plans: &[interactive(&[part(0, X, X), part(1, X, X)]), independent(BOTH)],
    crashes: 1,
    crash_at: 1 << 0,
    one_trip: true,
    ..PLAIN
};

/// A prepare that is lost, an update, and the prepare again.
pub static PREPARED_AGAIN: Program = Program {
    name: "prepared-again",
    about: "T0 interactive on s0 s1 in one round trip; T1 writes s0; s0 may crash",
    plans: &[interactive(&[part(0, X, X), part(1, X, X)]), single(&[part(0, 0, X)])],
    crashes: 1,
    crash_at: 1 << 0,
    one_trip: true,
    ..PLAIN
};

/// A decision and votes that say different timestamps.
pub static TWO_TIMESTAMPS: Program = Program {
    name: "two-timestamps",
    about: "T0 interactive on s0 s1 in one round trip; clocks run apart; a participant may worry; one crash",
    plans: &[interactive(BOTH)],
    crashes: 1,
    ahead: 3,
    one_trip: true,
    ..PLAIN
};

/// [`ONE_TRIP`], decided by votes.
pub static VOTED_TRIP: Program = Program {
    name: "voted-trip",
    about: "T0 coordinated on s0 s1 in one round trip; then T1 reads s0; one crash",
    plans: &[coordinated(&[part(0, X, X), part(1, X, X)]), single(&[part(0, X, 0)]).after(0)],
    ..ONE_TRIP
};

/// [`TWO_TRIPS`], decided by votes.
pub static TWO_VOTED_TRIPS: Program = Program {
    name: "two-voted-trips",
    about: "T0 and T1 coordinated on s0 s1, each in one round trip; one crash",
    plans: &[coordinated(&[part(0, X, X), part(1, X, X)]), coordinated(&[part(0, X, X), part(1, X, X)])],
    ..TWO_TRIPS
};

/// [`ONE_TRIP_EARLY`], decided by votes.
pub static VOTED_TRIP_EARLY: Program = Program {
    name: "voted-trip-early",
    about: "T0 writes s0 s1; T1 coordinated in one round trip: reads s0, writes s2; then T2 reads s1 and s3",
    plans: &[
        independent(BOTH),
        coordinated(&[part(0, X, 0), part(2, 0, X)]),
        independent(&[part(1, X, 0), part(3, X, 0)]).after(1),
    ],
    ..ONE_TRIP_EARLY
};

/// [`ONE_TRIP_DEAD`], decided by votes.
pub static VOTED_TRIP_DEAD: Program = Program {
    name: "voted-trip-dead",
    about: "T0 coordinated on s0 s1 in one round trip, and its client may die at any time; clocks run apart; one crash",
    plans: &[coordinated(&[part(0, X, X), part(1, X, X)])],
    ..ONE_TRIP_DEAD
};

/// [`ONE_TRIP_MIXED`], decided by votes.
pub static VOTED_TRIP_MIXED: Program = Program {
    name: "voted-trip-mixed",
    about: "T0 coordinated on s0 s1 in one round trip; T1 writes s0 s1; s0 may crash",
    plans: &[coordinated(&[part(0, X, X), part(1, X, X)]), independent(BOTH)],
    ..ONE_TRIP_MIXED
};

/// [`PREPARED_AGAIN`], decided by votes.
pub static VOTED_AGAIN: Program = Program {
    name: "voted-again",
    about: "T0 coordinated on s0 s1 in one round trip; T1 writes s0; s0 may crash",
    plans: &[coordinated(&[part(0, X, X), part(1, X, X)]), single(&[part(0, 0, X)])],
    ..PREPARED_AGAIN
};

/// Votes that imply others.
pub static IMPLIED: Program = Program {
    name: "implied",
    about: "T0 writes s0 s1 s2; T1 writes s0 s1; clocks run apart; votes arrive one by one",
    shards: 3,
    plans: &[independent(&[part(0, 0, X), part(1, 0, X), part(2, 0, X)]), independent(BOTH)],
    ahead: 3,
    ahead_at: 1 << 1,
    implies: true,
    ..PLAIN
};

/// Votes of one participant that arrive in another order.
pub static IMPLIED_OUT_OF_ORDER: Program = Program {
    name: "implied-out-of-order",
    about: "T0 and T1 write s0 s1; clocks run apart; votes arrive one by one, in any order",
    plans: &[independent(BOTH), independent(BOTH)],
    ahead: 3,
    implies: true,
    ..PLAIN
};

/// A transaction is forgotten while a participant may still need it.
pub static RETENTION: Program = Program {
    name: "retention",
    about: "T0 writes s0 s1, and its client acknowledges; one crash",
    plans: &[independent(BOTH)],
    crashes: 1,
    refusals: true,
    forgets: Forgets::Acknowledged,
    ..PLAIN
};

/// A decision that not every participant has heard.
pub static RETAINED_DECISION: Program = Program {
    name: "retained-decision",
    about: "T0 interactive on s0 s1, and its client acknowledges; one crash",
    plans: &[interactive(BOTH)],
    crashes: 1,
    refusals: true,
    forgets: Forgets::Acknowledged,
    ..PLAIN
};

/// A client that dies.
pub static DEAD_CLIENT: Program = Program {
    name: "dead-client",
    about: "T0 coordinated on s0 s1, and its client may die at any time; one crash",
    plans: &[coordinated(&[part(0, X, X), part(1, X, X)])],
    crashes: 1,
    refusals: true,
    forgets: Forgets::Expired,
    ..PLAIN
};

/// A transaction that is forgotten before it has settled.
pub static UNSETTLED: Program = Program {
    name: "unsettled-and-forgotten",
    about: "T0 writes s1 s2; T1 writes s0 s1, its client may die, and it is forgotten; T2 reads s0; then T3 reads s2 and s3",
    shards: 4,
    plans: &[
        independent(&[part(1, 0, X), part(2, 0, X)]),
        independent(&[part(0, 0, X), part(1, X, X)]),
        single(&[part(0, X, 0)]),
        independent(&[part(2, X, 0), part(3, X, 0)]).after(2),
    ],
    forgets: Forgets::Expired,
    forgotten: 1 << 1,
    forgets_at: 1 << 0,
    is_small: false,
    ahead: 3,
    ahead_at: 1 << 1,
    ..PLAIN
};

/// The same with two crashes.
pub static ORDER_TWICE: Program =
    Program { name: "order-twice", about: "the same as order, with two crashes", crashes: 2, ..ORDER };

/// The same with two crashes.
pub static MIXED_TWICE: Program =
    Program { name: "mixed-twice", about: "the same as mixed, with two crashes", crashes: 2, ..MIXED };

/// The same with two crashes.
pub static TWO_TIMESTAMPS_TWICE: Program = Program {
    name: "two-timestamps-twice",
    about: "the same as two-timestamps, with two crashes",
    crashes: 2,

    ..TWO_TIMESTAMPS
};

/// The same with two crashes.
pub static ONE_TRIP_DEAD_TWICE: Program = Program {
    name: "one-trip-dead-twice",
    about: "the same as one-trip-dead, with two crashes",
    crashes: 2,

    ..ONE_TRIP_DEAD
};

/// The same with two crashes.
pub static RETENTION_TWICE: Program =
    Program { name: "retention-twice", about: "the same as retention, with two crashes", crashes: 2, ..RETENTION };

/// The same with two crashes.
pub static DEAD_CLIENT_TWICE: Program = Program {
    name: "dead-client-twice",
    about: "the same as dead-client, with two crashes",
    crashes: 2,

    ..DEAD_CLIENT
};

/// The same with two crashes.
pub static PENDING_TWICE: Program =
    Program { name: "pending-twice", about: "the same as pending, with two crashes", crashes: 2, ..PENDING };

/// The same with two crashes.
pub static PREPARED_AGAIN_TWICE: Program = Program {
    name: "prepared-again-twice",
    about: "the same as prepared-again, with two crashes",
    crashes: 2,

    ..PREPARED_AGAIN
};

/// All programs.
pub static PROGRAMS: &[&Program] = &[
    &CHAIN,
    &LOCKED_CHAIN,
    &LOCAL_CHAIN,
    &CHAIN_RECOVERED,
    &CHAIN_TOLD,
    &LATE_ARRIVAL,
    &LOCK_AWAITED,
    &ANTI_DEPENDENCY,
    &READ_ONLY,
    &PENDING,
    &ORDER,
    &CEILING,
    &MIXED,
    &AGAINST,
    &RELEASES,
    &CANCEL,
    &ABORT,
    &EARLY,
    &DECISION,
    &RELEASED,
    &RELEASED_BY_COMMIT,
    &DOUBLE_READ,
    &DOUBLE_READ_UNSETTLED,
    &DOUBLE_READ_PENDING,
    &DOUBLE_READ_PASSED,
    &DOUBLE_READ_PASSED_RECOVERED,
    &DOUBLE_READ_EARLY,
    &DOUBLE_READ_CHAIN,
    &DOUBLE_READ_LOCKED,
    &FOOTPRINT,
    &FOOTPRINT_RECOVERED,
    &ONE_TRIP,
    &TWO_TRIPS,
    &PREPARED_AGAIN,
    &ONE_TRIP_EARLY,
    &ONE_TRIP_DEAD,
    &ONE_TRIP_MIXED,
    &TWO_TIMESTAMPS,
    &VOTED_TRIP,
    &TWO_VOTED_TRIPS,
    &VOTED_AGAIN,
    &VOTED_TRIP_EARLY,
    &VOTED_TRIP_DEAD,
    &VOTED_TRIP_MIXED,
    &IMPLIED,
    &IMPLIED_OUT_OF_ORDER,
    &RETENTION,
    &RETAINED_DECISION,
    &DEAD_CLIENT,
    &UNSETTLED,
    &ORDER_TWICE,
    &MIXED_TWICE,
    &TWO_TIMESTAMPS_TWICE,
    &ONE_TRIP_DEAD_TWICE,
    &RETENTION_TWICE,
    &DEAD_CLIENT_TWICE,
    &PENDING_TWICE,
    &PREPARED_AGAIN_TWICE,
];
