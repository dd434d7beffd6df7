//! What a session is made with, and what its caller says of one update.

use std::net::SocketAddr;
use std::time::Duration;

use kasha_types::limits::OUTSTANDING_MAX;
use kasha_types::{ClusterId, CoreId, Tick};
use kasha_wire::{Said, Turn};

use crate::limits;

/// Some of the cluster's nodes, or its coordinator.
#[derive(Clone, Debug)]
pub enum Seeds {
    /// They are at these addresses.
    At(Vec<SocketAddr>),
    /// There are so many, and the shell knows the way to each: it looks their names up.
    Named(u16),
}

impl Seeds {
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::At(addresses) => addresses.len(),
            Self::Named(count) => usize::from(*count),
        }
    }
}

impl From<Vec<SocketAddr>> for Seeds {
    fn from(addresses: Vec<SocketAddr>) -> Self {
        Self::At(addresses)
    }
}

/// The options of a session.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// The session asks them for the configuration in turn.
    pub seeds: Seeds,
    /// The only cluster to talk to. `None`: the first cluster that answers.
    pub cluster: Option<ClusterId>,
    /// The seed of nonces and jitter. Two sessions of one cluster must not have the same seed.
    pub seed: u64,
    /// The time that a call may take if its caller gives no deadline.
    pub deadline: Duration,
    /// How much longer than its deadline a call may take whose caller asked for a cancellation there.
    pub cancel_grace: Duration,
    /// How long the first attempt waits for an answer; doubles with each attempt that gets none, up to a second.
    pub attempt_timeout: Duration,
    /// The greatest number of updates without a result under one client id, at most `OUTSTANDING_MAX`. Further updates
    /// wait for the lowest of them, or take another id of the session (R4.10).
    pub outstanding_max: u64,
    /// Whether a session of several shards has a second client id ready from its first update on (R4.10). Benchmarks
    /// with crowds of sessions set it to `false`.
    pub keeps_spare: bool,
    /// `false`: every retry is a new request, as in a client without exactly-once. For demonstrations.
    pub exactly_once: bool,
    /// `false`: record on no witness, and wait for the sync each time. For comparisons.
    pub fast_path: bool,
    /// The core of a node in which the session runs. What this core is primary of is recorded on no witness: the sync, which takes one round trip
    /// as well, is all that such an update waits for.
    pub beside: Option<CoreId>,
    /// When participants of transactions over several shards take locks. For comparisons.
    pub locking: Locking,
    /// `true`: the session is the master of a two-phase commit for each transaction over several shards that can fail. The nodes
    /// have to be of that mode, too (`kasha_node::Votes::ByClients`). For comparisons.
    pub two_phase: bool,
}

/// When participants of transactions over several shards take locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Locking {
    /// Where a part can fail; and where nothing can fail as long as nobody else uses the keys.
    #[default]
    WhenFree,
    /// Only where a part can fail.
    WhenNeeded,
    /// In any case.
    Always,
}

impl Locking {
    /// Whether a transaction asks for locks whatever its parts are. `has_no_choice`: its parts decide. `is_free`: nobody was met on its
    /// keys.
    pub(super) fn takes_locks(self, has_no_choice: bool, is_free: impl FnOnce() -> bool) -> bool {
        match self {
            Self::WhenNeeded => false,
            Self::WhenFree => !has_no_choice && is_free(),
            Self::Always => true,
        }
    }
}

impl SessionOptions {
    /// The defaults: exactly once, with the fast path, 30 s to a deadline.
    #[must_use]
    pub fn new(seeds: impl Into<Seeds>, seed: u64) -> Self {
        Self {
            seeds: seeds.into(),
            cluster: None,
            seed,
            deadline: limits::DEADLINE,
            cancel_grace: limits::CANCEL_GRACE,
            attempt_timeout: limits::ATTEMPT_TIMEOUT,
            outstanding_max: OUTSTANDING_MAX,
            keeps_spare: true,
            exactly_once: true,
            fast_path: true,
            beside: None,
            locking: Locking::default(),
            two_phase: false,
        }
    }
}

/// The options of one update.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallOptions<'a> {
    /// When the caller wants to be told "unknown" instead of waiting longer. `None`: after the session's default.
    pub deadline: Option<Tick>,
    /// The caller's own idempotency key and its time to live in milliseconds (R4.9).
    pub operation_key: Option<(&'a [u8], u64)>,
    /// What the operation key stands for, if that is not the update itself: only with an operation key.
    pub said: Option<Said>,
    /// Whether to cancel the update at the deadline. Then its outcome is known within a second more, if a shard
    /// answers.
    pub cancel_on_deadline: bool,
    /// Who tries it again if it meets another one.
    pub again: Again,
}

/// Who tries an update again that did not happen because it met another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Again {
    /// The session, until the deadline.
    #[default]
    BySession,
    /// Its caller, which reads again what the update checks. With the caller's turn ([`super::Session::turn`]), if it has lost before (0047).
    ByCaller(Option<Turn>),
}
