//! The scenarios: named kinds of runs. A scenario says what a run has, and the seed draws the rest.
//!
//! | file | what it draws |
//! |---|---|
//! | `scenario/shape` | the size of a run's cluster |
//! | `scenario/plan` | the cluster and the faults of each scenario |
//! | `scenario/segments` | the same where segments matter, and how full the memory is |
//!
//! The table of scenarios is also in `docs/testing.md`; a test compares them.

mod plan;
mod segments;
mod shape;

pub use plan::plan;
pub use shape::Shape;

/// A kind of run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the table below says what each is")]
pub enum Scenario {
    Swarm,
    FastPath,
    SlowAnswers,
    BadNetwork,
    Crash,
    FastRestart,
    Zombie,
    PowerLoss,
    SwitchedOff,
    Blackout,
    BlackoutReplicated,
    ColdStart,
    ColdStartWhileCopying,
    Partition,
    BadLinks,
    CoordinatorOutage,
    CoordinatorCut,
    CoordinatorGroup,
    GroupOrders,
    LostMemory,
    TornTurns,
    WitnessLoss,
    WithoutWitness,
    DivergentTail,
    DeposedPrimary,
    OldPrimary,
    ListChange,
    ClientLeases,
    OperationKeys,
    Expiring,
    Lifetimes,
    Elections,
    Listing,
    Tables,
    Rebuild,
    SmallMemory,
    Cleaning,
    CleaningWhileCopying,
    CleaningDivergent,
    DamagedFiles,
    FailingDisks,
    BadInput,
    RogueClient,
    SharedSession,
    Transactions,
    Snapshots,
    Distributed,
    DistributedBlackout,
    Wide,
    Interactive,
    Redis,
    RedisColocated,
}

impl Scenario {
    /// Every scenario, its name, and its description.
    pub const TABLE: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Swarm, "swarm", "any faults, drawn for each run"),
        (Self::FastPath, "fast_path", "no faults, and keys that hardly meet: nearly all updates take one round trip"),
        (Self::SlowAnswers, "slow_answers", "no faults, and all frames take long: hardly any update is sent twice"),
        (Self::BadNetwork, "bad_network", "frames are lost, doubled, late and out of order"),
        (Self::Crash, "crash", "nodes are killed and come back"),
        (Self::FastRestart, "fast_restart", "nodes are killed and come back within their lease"),
        (Self::Zombie, "zombie", "nodes stop and go on, not knowing that others took over"),
        (Self::PowerLoss, "power_loss", "one node at a time loses power"),
        (
            Self::SwitchedOff,
            "switched_off",
            "one node at a time is asked to stop, and then, before or later its machine loses power",
        ),
        (Self::Blackout, "blackout", "all nodes lose power at once; everything is fsynced"),
        (
            Self::BlackoutReplicated,
            "blackout_replicated",
            "all nodes lose power at once; only the flushes in the background are fsynced",
        ),
        (Self::ColdStart, "cold_start", "all processes are killed at once; disks stay"),
        (
            Self::ColdStartWhileCopying,
            "cold_start_while_copying",
            "a member is lost, and all processes are killed while another node copies what it had",
        ),
        (Self::Partition, "partition", "hosts are cut off, both ways or one way"),
        (
            Self::BadLinks,
            "bad_links",
            "single links are cut for many leases: updates must go on before they are healed",
        ),
        (
            Self::CoordinatorOutage,
            "coordinator_outage",
            "the coordinator is away most of the time, or for a minute, and nodes crash",
        ),
        (
            Self::CoordinatorCut,
            "coordinator_cut",
            "the coordinator alone is cut off, for less and more than a lease: nothing may move",
        ),
        (
            Self::CoordinatorGroup,
            "coordinator_group",
            "three coordinators: they die, stand still, lose power and are cut off, and nodes crash",
        ),
        (
            Self::GroupOrders,
            "group_orders",
            "an operator adds, removes and chooses members of the coordinator's group, while they die, stand still and are cut off",
        ),
        (
            Self::LostMemory,
            "lost_memory",
            "the coordinator's folder is lost, or an older copy of it takes its place, and members change and nodes crash",
        ),
        (Self::TornTurns, "torn_turns", "nodes die in the middle of a turn"),
        (Self::WitnessLoss, "witness_loss", "many nodes, few shards: those that die are mostly witnesses"),
        (
            Self::WithoutWitness,
            "without_witness",
            "witnesses lose their files for good while everything is down, stopped, or only the last primary is away",
        ),
        (
            Self::DivergentTail,
            "divergent_tail",
            "primaries cut off from their backups go on, are deposed, and come back",
        ),
        (
            Self::DeposedPrimary,
            "deposed_primary",
            "the same, with other nodes to take its place, and witnesses that are no members",
        ),
        (
            Self::OldPrimary,
            "old_primary",
            "a primary that was cut off meets its restarting successor, and no coordinator",
        ),
        (Self::ListChange, "list_change", "witnesses that the coordinator cannot see, and primaries that then die"),
        (
            Self::ClientLeases,
            "client_leases",
            "short client leases, clients that stop or die, frames that come very late",
        ),
        (
            Self::OperationKeys,
            "operation_keys",
            "operation keys: repeated, used for something else and for other keys of a slot, expiring; with crashes",
        ),
        (
            Self::Expiring,
            "expiring",
            "values that end, on a few hot keys; with crashes and primaries that are replaced",
        ),
        (
            Self::Elections,
            "elections",
            "as lifetimes, with three coordinators: the leader changes again and again, and values and leases end when they should",
        ),
        (
            Self::Lifetimes,
            "lifetimes",
            "values that end, while the coordinator is restarted again and again, and sometimes its machine",
        ),
        (Self::Listing, "listing", "a table is listed while keys come and go, and while primaries are replaced"),
        (Self::Tables, "tables", "tables are created, used and dropped; with crashes, or with primaries cut off"),
        (Self::Rebuild, "rebuild", "long logs in small segments, and losses that need new copies"),
        (
            Self::SmallMemory,
            "small_memory",
            "a few segments of memory for each replica: updates are refused, everything else goes on; with crashes",
        ),
        (
            Self::Cleaning,
            "cleaning",
            "small segments, of which most lives: the cleaner is always at work; with any faults",
        ),
        (Self::CleaningWhileCopying, "cleaning_while_copying", "the same, with losses that need new copies"),
        (Self::CleaningDivergent, "cleaning_divergent", "the same, with primaries that are cut off and deposed"),
        (Self::DamagedFiles, "damaged_files", "a file of a node that died is damaged or gone when it comes back"),
        (Self::FailingDisks, "failing_disks", "fsyncs fail, and with them what they were for; everything is fsynced"),
        (Self::BadInput, "bad_input", "a stranger sends random and damaged frames to every process"),
        (Self::RogueClient, "rogue_client", "a client numbers, names and dates its updates as no honest one does"),
        (
            Self::SharedSession,
            "shared_session",
            "one session for callers of many shards, one of which is away for long: the others' updates go on",
        ),
        (
            Self::Transactions,
            "transactions",
            "transactions of two tables on a shard, and all other operations on their keys; with any faults",
        ),
        (
            Self::Snapshots,
            "snapshots",
            "keys of several shards that are read together, and updates of single ones of them; with any faults",
        ),
        (
            Self::Distributed,
            "distributed",
            "transactions over several shards, and all other operations on their keys; with any faults",
        ),
        (
            Self::DistributedBlackout,
            "distributed_blackout",
            "the same, while all machines, or those of one shard, lose power at once; only flushes in the background are fsynced",
        ),
        (
            Self::Wide,
            "wide",
            "transactions of many keys among many of few, and callers that give up; no faults: who has waited longest goes first",
        ),
        (
            Self::Interactive,
            "interactive",
            "programs that read keys of several shards, and write and commit what they make of that; with any faults",
        ),
        (
            Self::Redis,
            "redis",
            "programs speak the Redis protocol with a front beside the cluster, whose connections break; with any faults",
        ),
        (
            Self::RedisColocated,
            "redis_colocated",
            "the same, with a front in one core of each node, which dies with the node",
        ),
    ];

    /// The scenario's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::TABLE.iter().find(|row| row.0 == self).expect("every scenario is in the table").1
    }

    /// The scenario of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::TABLE.iter().find(|row| row.1 == name).map(|row| row.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for &(scenario, name, _) in Scenario::TABLE {
            assert_eq!(Scenario::by_name(name), Some(scenario));
            assert_eq!(scenario.name(), name);
        }
        assert_eq!(Scenario::by_name("no such"), None);
    }
}
