//! Settings of a member, and what drives its time-outs.

use std::collections::VecDeque;
use std::time::Duration;

use kasha_machine::Rng;
use kasha_types::Tick;

use crate::limits::{ELECTIONS_REMEMBERED_LEASES, LEASES_MAX, PATIENCE};

/// Settings of a member. All members should have the same.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The unit of all time-outs: after so long a silence of the leader the others wish for another one.
    pub lease: Duration,
    /// How long a question waits for others that share its round.
    pub gather: Duration,
    /// How long an operation may be uncommitted before the leader gives up, though rounds complete (R9.10).
    pub patience: Duration,
}

impl Options {
    /// Settings by the lease alone.
    #[must_use]
    pub fn new(lease: Duration) -> Self {
        Self { lease, gather: lease / 64, patience: PATIENCE.max(lease) }
    }

    /// Between two rounds of a leader that nobody asks, and between two tries of what got no answer.
    pub(crate) fn beat(&self) -> Duration {
        self.lease / 8
    }
}

/// How long a member waits before it wishes (R9.7).
#[derive(Debug)]
pub(crate) struct Timeouts {
    rng: Rng,
    /// When views were entered.
    elections: VecDeque<Tick>,
}

impl Timeouts {
    pub fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), elections: VecDeque::new() }
    }

    pub fn note_election(&mut self, now: Tick, lease: Duration) {
        self.elections.push_back(now);
        let old = lease * ELECTIONS_REMEMBERED_LEASES;
        while self.elections.front().is_some_and(|&then| now.since(then) > old) {
            self.elections.pop_front();
        }
    }

    /// The leader is silent.
    pub fn silent(&mut self, now: Tick, lease: Duration) -> Duration {
        let old = lease * ELECTIONS_REMEMBERED_LEASES;
        let recent = self.elections.iter().filter(|then| now.since(**then) <= old).count();
        let leases = 1_u32.checked_shl(u32::try_from(recent).unwrap_or(u32::MAX)).unwrap_or(LEASES_MAX);
        let least = lease * leases.clamp(1, LEASES_MAX);
        self.between(least, least + lease / 2)
    }

    /// The connection to the leader is closed.
    pub fn closed(&mut self, lease: Duration) -> Duration {
        self.between(lease / 4, lease / 2)
    }

    fn between(&mut self, low: Duration, high: Duration) -> Duration {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).expect("leases are short");
        Duration::from_nanos(self.rng.between(nanos(low), nanos(high)))
    }
}
