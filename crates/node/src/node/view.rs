//! Status: what a core tells of itself to whoever asks.

use kasha_log::MemoryLeft;
use kasha_types::{CorePort, LogEnd, ShardId, Tick};
use kasha_wire::Later;
use kasha_wire::status::{
    CleanerState, Cleaning, CoreStatus, Memory, ReplicaStatus, TransactionsStatus, WitnessStatus,
};

use crate::node::Node;
use crate::primary::Primary;
use crate::serving::Serving;
use crate::serving::cleaner::Cleaner;
use crate::shard::copy::LogCopy;
use crate::shard::{Replica, Role};

impl Node {
    /// Whether the coordinator answers, so that reads may be answered at once (F1).
    #[must_use]
    pub fn has_lease(&self, now: Tick) -> bool {
        self.core.has_lease(now)
    }

    /// The shards whose primary is this node, by the newest configuration that this core has.
    #[must_use]
    pub fn leads(&self) -> Vec<ShardId> {
        let node = self.core.options.core.node;
        let shards = self.core.configuration.iter().flat_map(|configuration| &configuration.shards);
        shards.filter(|config| config.primary == node).map(|config| config.shard).collect()
    }

    /// This core's status.
    #[must_use]
    pub fn status(&self, now: Tick) -> CoreStatus {
        CoreStatus {
            core: self.core.id(),
            incarnation: self.core.options.incarnation,
            configuration: self.core.configuration.as_ref().map_or_else(Default::default, |c| c.version),
            lease: self.core.has_lease(now),
            // A discarded replica is a promise and nothing else.
            replicas: (self.replicas.values())
                .filter(|replica| {
                    let is_used = replica.copy.log.end().offset > LogEnd::START || replica.passed.is_some();
                    is_used || !matches!(replica.role, Role::Idle)
                })
                .map(|replica| {
                    let status = status(replica, self.core.options.replica_memory_max_bytes);
                    ReplicaStatus { state: status.state + &self.links.describe(replica.shard()), ..status }
                })
                .collect(),
            witnesses: self
                .witnesses
                .instances
                .iter()
                .map(|(&(shard, list), instance)| WitnessStatus {
                    shard,
                    list,
                    frozen: instance.witness.is_frozen(),
                    held: u64::from(instance.witness.stats().occupied),
                    accepted: instance.witness.stats().accepted,
                    rejected: instance.witness.stats().rejected_total(),
                })
                .collect(),
            port: Later::at(self.core.level, self.core.options.port.as_ref().map(CorePort::of_core)),
        }
    }
}

fn status(replica: &Replica, memory_max_bytes: u64) -> ReplicaStatus {
    let Replica { copy, state, role, .. } = replica;
    let primary = role.primary();
    let serving = primary.and_then(Primary::serving);
    let counters = serving.map(|serving| serving.counters).unwrap_or_default();
    let tracker = state.tracker.stats();
    ReplicaStatus {
        shard: copy.shard,
        epoch: copy.meta.promised,
        primary: primary.is_some(),
        complete: copy.meta.intact && copy.meta.complete,
        state: describe(replica),
        end: copy.log.end(),
        synced: primary.map_or(LogEnd::START, |primary| primary.term.shipping.synced()),
        unsynced_operations: serving.map_or(0, |serving| serving.unsynced_operations()) as u64,
        objects: state.store.stats().objects,
        memory_bytes: copy.log.memory_used(),
        memory_max_bytes,
        memory: match copy.log.memory_left() {
            MemoryLeft::Enough => Memory::Enough,
            MemoryLeft::Little => Memory::Low,
            MemoryLeft::Nothing => Memory::Full,
        },
        cleaning: cleaning(copy, primary),
        transactions: transactions(replica, serving),
        clients: tracker.clients,
        completion_records: tracker.records,
        updates: counters.updates,
        reads: counters.reads,
        fast_answers: counters.fast_answers,
        gated_answers: counters.gated_answers,
        duplicates_suppressed: counters.duplicates_suppressed,
        repeats_suppressed: counters.repeats_suppressed,
        refusals: counters.refusals,
        syncs: primary.map_or(0, |primary| primary.term.shipping.confirmed().0),
    }
}

fn transactions(replica: &Replica, serving: Option<&Serving>) -> TransactionsStatus {
    let known = &replica.state.distributed;
    let (pending, all) = (known.pending(), known.known().count() as u64);
    TransactionsStatus {
        pending,
        kept: all.saturating_sub(pending),
        held_answers: serving.map_or(0, |serving| serving.waiting.held_answers()),
        oldest: serving.map(|serving| serving.oldest_distributed(known)).unwrap_or_default(),
    }
}

fn cleaning(copy: &LogCopy, primary: Option<&Primary>) -> Cleaning {
    let synced = primary.map_or(copy.known_synced, |primary| primary.term.shipping.synced());
    let census = copy.log.census(synced);
    let cleaner = primary.and_then(Primary::serving).map(|serving| &serving.cleaner);
    let cleaned = cleaner.map(|cleaner| cleaner.cleaned).unwrap_or_default();
    Cleaning {
        live_bytes: copy.log.live_bytes(),
        live_max_bytes: copy.log.live_bytes_max(),
        segments: census.segments,
        leaving: census.leaving,
        unsynced: census.unsynced,
        dense: census.dense,
        cleaner: cleaner.map_or(CleanerState::Follows, Cleaner::state),
        cleaned_segments: cleaned.segments,
        copied_bytes: cleaned.copied_bytes,
    }
}

fn describe(replica: &Replica) -> String {
    let Replica { copy, role, passed, .. } = replica;
    match role {
        Role::Idle if passed.is_some() => format!(
            "waits to be primary of a later epoch than {}, which it has promised before; if that lasts, the coordinator's \
             folder is an older copy (K0430)",
            copy.meta.promised
        ),
        Role::Idle => "waits for a primary".to_string(),
        Role::Backup(backup) if backup.attached.is_none() => "waits to be attached".to_string(),
        Role::Backup(_) if !copy.meta.complete => "joining: older data is being copied".to_string(),
        Role::Backup(_) if !replica.is_replayed() => "following, replaying".to_string(),
        Role::Backup(_) => "following".to_string(),
        Role::Primary(primary) if primary.is_fencing() && !copy.meta.complete => {
            format!("{}; what this node holds is not whole (K0112)", primary.describe())
        }
        Role::Primary(primary) => primary.describe().to_string(),
    }
}
