//! The ways in which keys of several shards can change together, to be compared in one run, and the clusters for them.
//!
//! Two-phase commit needs nodes of its own mode. So there are two clusters of each size, which run at the same time and are measured
//! in turns.

use std::collections::BTreeMap;

use kasha_client::session::Locking;
use kasha_node::Baseline;

use crate::children::ClusterSpec;
use crate::harness::keys::Keys;
use crate::harness::load::{Limit, Workload};
use crate::harness::operation::{Operation, Spread};
use crate::harness::{Arm, Clients, Measured, Run};

/// How a change of several shards comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Independent transactions: timestamps, and no locks.
    Timestamps,
    /// What clients send: with locks as long as nobody else uses the keys, and without them if somebody does (0034).
    AsSent,
    /// Everything is coordinated: all participants lock, and vote.
    Locks,
    /// The two-phase commit of Sinfonia, made of the same parts. The client is the master.
    TwoPhase,
    /// The client reads, and then writes if nothing has changed.
    Interactive,
}

impl Mode {
    pub(super) const ALL: [Self; 5] = [Self::Timestamps, Self::AsSent, Self::Locks, Self::TwoPhase, Self::Interactive];

    /// Those that send the whole change at once.
    pub(super) const OF_ONE_ROUND: [Self; 4] = [Self::Timestamps, Self::AsSent, Self::Locks, Self::TwoPhase];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Timestamps => "timestamps",
            Self::AsSent => "as sent",
            Self::Locks => "locks",
            Self::TwoPhase => "two-phase",
            Self::Interactive => "interactive",
        }
    }

    /// Puts keys on each of some shards.
    pub(super) fn puts(self, spread: Spread, value_bytes: usize) -> Operation {
        match self {
            Self::Timestamps | Self::AsSent => Operation::PutOnEach { spread, is_checked: false, value_bytes },
            // Whatever can fail takes locks.
            Self::Locks | Self::TwoPhase => Operation::PutOnEach { spread, is_checked: true, value_bytes },
            Self::Interactive => Operation::Interactive { spread, value_bytes },
        }
    }

    /// Adds to counters on each of some shards. What must not fail is written instead.
    pub(super) fn increments(self, spread: Spread, value_bytes: usize) -> Operation {
        match self {
            Self::Locks | Self::TwoPhase => Operation::IncrementOnEach(spread),
            Self::Timestamps | Self::AsSent | Self::Interactive => self.puts(spread, value_bytes),
        }
    }
}

/// Running clusters, by their shards and by whether they are of the two-phase mode.
pub(super) struct Clusters(BTreeMap<(u16, bool), Arm>);

impl Clusters {
    /// Starts a cluster for each of these sizes and modes. Each shard has its primary on a node of its own.
    pub(super) fn start(
        run: &Run<'_>,
        name: &str,
        faults: u8,
        clients: usize,
        all: impl IntoIterator<Item = (u16, Mode)>,
    ) -> anyhow::Result<Self> {
        let mut clusters = BTreeMap::new();
        for (shards, mode) in all {
            let two_phase = mode == Mode::TwoPhase;
            if clusters.contains_key(&(shards, two_phase)) {
                continue;
            }
            let name = format!("{name}-{shards}-{}", if two_phase { "two-phase" } else { "usual" });
            let usual = run.spec(&name, faults);
            let baseline = if two_phase { Baseline::TwoPhase } else { Baseline::None };
            let spec = ClusterSpec { shards, nodes: usual.nodes.max(shards), baseline, ..usual };
            clusters.insert((shards, two_phase), Arm::start(&name, spec, Clients::new(clients, faults > 0))?);
        }
        Ok(Self(clusters))
    }

    /// Makes this many keys in each.
    pub(super) fn warm(&mut self, clients: usize, workload: &Workload, keys: u32) -> anyhow::Result<()> {
        self.0.values_mut().try_for_each(|arm| arm.warm(clients, workload, keys))
    }

    /// One measured round in the cluster that this mode needs.
    pub(super) fn round_into(
        &mut self,
        (shards, mode): (u16, Mode),
        clients: usize,
        (workload, limit): (&Workload, Limit),
        measured: &mut Measured,
    ) -> anyhow::Result<()> {
        let arm = self.0.get_mut(&(shards, mode == Mode::TwoPhase)).expect("it was started");
        let locking = if mode == Mode::AsSent { Locking::WhenFree } else { Locking::WhenNeeded };
        arm.round_into(clients, &Workload { locking, ..workload.clone() }, limit, measured)
    }
}

/// The same operation on one and the same keys.
pub(super) fn on_same_keys(workload: &Workload) -> Workload {
    Workload { keys: Keys::One, ..workload.clone() }
}
