//! Planted bugs, and the checkers that catch them: a checker that cannot fail checks nothing.
//!
//! With the feature `planted-bugs` a run can be told to break one rule ([`crate::SimOptions::planted`]). Each row of
//! [`CAUGHT`] names a scenario, and the number of seeds within which the bug is found, and what finds it: a checker, or
//! an assertion of the code itself. `tests/planted.rs` checks the table.

pub use kasha_types::planted::{Bug, is_on};

use crate::scenario::Scenario;

/// How a bug is caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caught {
    /// The bug that is planted.
    pub bug: Bug,
    /// The scenario in which it is caught.
    pub scenario: Scenario,
    /// The number of seeds, from 0, within which it is caught. It is generous, so that the next change of a draw does
    /// not break the table.
    pub seeds: u64,
    /// The beginning of the violation's text, after its moment or place: the checker's name, or the text of an
    /// assertion.
    pub by: &'static str,
}

const fn caught(bug: Bug, scenario: Scenario, seeds: u64, by: &'static str) -> Caught {
    Caught { bug, scenario, seeds, by }
}

/// All bugs, each at least once.
pub const CAUGHT: &[Caught] = &[
    caught(Bug::GatesIgnored, Scenario::Swarm, 5, "gates_respected"),
    caught(Bug::FsyncLies, Scenario::Blackout, 5, "gates_respected"),
    caught(Bug::FsyncLies, Scenario::BlackoutReplicated, 20, "flushed_in_time"),
    caught(Bug::StaleNow, Scenario::Zombie, 20, "one_primary_per_epoch"),
    caught(Bug::HeldEffectsKept, Scenario::DivergentTail, 20, "gates_respected"),
    caught(Bug::HeldEffectsKept, Scenario::DivergentTail, 20, "whole_frames"),
    caught(Bug::AttemptsMixed, Scenario::DeposedPrimary, 20, "acknowledged_outcomes"),
    caught(Bug::AcceptancesMixed, Scenario::DeposedPrimary, 20, "acknowledged_outcomes"),
    caught(Bug::RetryRenamed, Scenario::Swarm, 5, "acknowledged_outcomes"),
    caught(Bug::NotExecutedAfterRefusal, Scenario::SmallMemory, 10, "acknowledged_outcomes"),
    caught(Bug::BodyRebuilt, Scenario::Swarm, 5, "gates_respected"),
    caught(Bug::HeldUpShardNumbered, Scenario::SharedSession, 3, "shared_session"),
    caught(Bug::IdentityRetiredEarly, Scenario::SharedSession, 3, "identities_kept"),
    caught(Bug::AbsentAwaited, Scenario::SharedSession, 3, "round_trips"),
    caught(Bug::PauseFixed, Scenario::SlowAnswers, 3, "sent_again"),
    caught(Bug::SyncInAnotherEpoch, Scenario::FastRestart, 300, "one_primary_per_epoch"),
    caught(Bug::RecordApart, Scenario::Swarm, 5, "one_group"),
    caught(Bug::RefusalRecorded, Scenario::DeposedPrimary, 150, "nothing_cancelled"),
    caught(Bug::WindowNotEnforced, Scenario::RogueClient, 5, "rogue_is_refused"),
    caught(Bug::LeaseNotProven, Scenario::RogueClient, 5, "rogue_is_refused"),
    caught(Bug::IdReuseAnswered, Scenario::RogueClient, 5, "rogue_is_refused"),
    caught(Bug::DuplicateUngated, Scenario::Swarm, 10, "gates_respected"),
    caught(Bug::RecordFreedEarly, Scenario::Swarm, 10, "linearizable_keys"),
    caught(Bug::FailedPartPassed, Scenario::Transactions, 3, "strictly_serializable"),
    caught(Bug::SkippedForTable, Scenario::Transactions, 300, "synced_survives"),
    caught(Bug::SnapshotUnvalidated, Scenario::Snapshots, 10, "strictly_serializable"),
    caught(Bug::AbsenceUnversioned, Scenario::Snapshots, 600, "strictly_serializable"),
    caught(Bug::DroppedUnderPending, Scenario::Distributed, 150, "prepared_kept"),
    caught(Bug::FloorRaisedOverPending, Scenario::Distributed, 40, "prepared_kept"),
    caught(Bug::YoungGoesFirst, Scenario::Wide, 5, "oldest_first"),
    caught(Bug::DurableUnflushed, Scenario::DistributedBlackout, 3, "durable_everywhere"),
    caught(Bug::FlushedWhenBegun, Scenario::DistributedBlackout, 3, "durable_everywhere"),
    caught(Bug::ExecutedUnsynced, Scenario::Distributed, 3, "proposed_everywhere"),
    caught(Bug::ExecutedOutOfOrder, Scenario::Distributed, 10, "timestamp_order"),
    caught(Bug::PrepareIgnoresPending, Scenario::Distributed, 10, "prepared_kept"),
    caught(Bug::RunsAheadOfPending, Scenario::Distributed, 10, "prepared_kept"),
    caught(Bug::PreparedOverOverlap, Scenario::Distributed, 10, "commutes"),
    caught(Bug::PartAttemptsMixed, Scenario::Distributed, 60, "acknowledged_outcomes"),
    caught(Bug::PartKeyUnlocked, Scenario::Distributed, 160, "replay_equals_state"),
    caught(Bug::PartResultUnkept, Scenario::Distributed, 3, "executed_once"),
    caught(Bug::PrepareNotReplayed, Scenario::Distributed, 60, "synced_survives"),
    caught(Bug::PreparedUnsynced, Scenario::Distributed, 10, "gates_respected"),
    caught(Bug::ForgottenUnsettled, Scenario::Distributed, 60, "convergence"),
    caught(Bug::ForgottenUnrecorded, Scenario::Distributed, 20, "retained"),
    caught(Bug::ForgottenUnrecorded, Scenario::Distributed, 600, "one_timestamp"),
    caught(Bug::ConflictUnsynced, Scenario::Distributed, 60, "retained"),
    caught(Bug::RepliesSwapped, Scenario::Redis, 3, "replies_in_order"),
    caught(Bug::UnknownAskedAgain, Scenario::Redis, 60, "redis_serializable"),
    caught(Bug::RetryProvoked, Scenario::Redis, 60, "redis_serializable"),
    caught(Bug::ClosedWhenUnknown, Scenario::Redis, 60, "nothing_provoked"),
    caught(Bug::NextOneNotHeldUp, Scenario::Redis, 20, "redis_serializable"),
    caught(Bug::ProtocolOfLater, Scenario::Redis, 10, "reply_forms"),
    caught(Bug::EndNotAwaited, Scenario::Redis, 10, "nothing_provoked"),
    caught(Bug::CommandRefusesMulti, Scenario::Redis, 10, "multi_is_one"),
    caught(Bug::MultiSplit, Scenario::Redis, 10, "multi_is_one"),
    caught(Bug::FlushForgetsVersions, Scenario::Redis, 120, "redis_serializable"),
    caught(Bug::WatchBlind, Scenario::Redis, 20, "redis_serializable"),
    caught(Bug::WatchFailedUnnoticed, Scenario::Redis, 300, "watch_sees"),
    caught(Bug::MovedUnchecked, Scenario::Redis, 200, "redis_serializable"),
    caught(Bug::EndLeftBehind, Scenario::Redis, 60, "redis_serializable"),
    caught(Bug::TimeOfRun, Scenario::Redis, 300, "replays_alike"),
    caught(Bug::UnixEndRounded, Scenario::Redis, 3, "ends_exact"),
    caught(Bug::LeaseCountedAtOnce, Scenario::Redis, 20, "ends_exact"),
    caught(Bug::EndsNotCounted, Scenario::Redis, 20, "ends_exact"),
    caught(Bug::PipeUngated, Scenario::RedisColocated, 5, "gates_respected"),
    caught(Bug::ReadsCommute, Scenario::Transactions, 10, "commutes"),
    caught(Bug::FreedBeforeSynced, Scenario::Rebuild, 40, "freed_when_synced"),
    caught(Bug::FreedBeforeSynced, Scenario::Cleaning, 20, "freed_when_synced"),
    caught(Bug::FloorNotCopied, Scenario::Cleaning, 40, "replay_equals_state"),
    caught(Bug::RecordNotCopied, Scenario::Cleaning, 10, "one_group"),
    caught(Bug::CopyNarrowsOldest, Scenario::Cleaning, 120, "replay_equals_state"),
    caught(Bug::ReserveShared, Scenario::Cleaning, 20, "convergence"),
    caught(Bug::ReplayIgnoresAcknowledgement, Scenario::Crash, 10, "E1: "),
    caught(Bug::StaleReplayed, Scenario::Crash, 10, "linearizable_keys"),
    caught(Bug::ReplayAcknowledges, Scenario::DivergentTail, 20, "linearizable_keys"),
    caught(Bug::ReplayWithoutLookUp, Scenario::Crash, 10, "E1: "),
    caught(Bug::ReplayedTwice, Scenario::Crash, 10, "linearizable_keys"),
    caught(Bug::ExpiryWithoutFloor, Scenario::ClientLeases, 20, "replays_alike"),
    caught(Bug::ExpiryByClock, Scenario::ClientLeases, 5, "expiry_by_verdict"),
    caught(Bug::FloorRefusalUngated, Scenario::ClientLeases, 40, "expiry_by_verdict"),
    caught(Bug::FloorSettledEarly, Scenario::ClientLeases, 40, "expiry_by_verdict"),
    caught(Bug::FloorIgnoredInReplay, Scenario::ClientLeases, 40, "linearizable_keys"),
    caught(Bug::FloorIgnoredByWitness, Scenario::ClientLeases, 20, "floors_bind"),
    caught(Bug::ExpiryInRecovery, Scenario::ClientLeases, 40, "synced_survives"),
    caught(Bug::LeasesNotExtended, Scenario::BlackoutReplicated, 40, "expiry_by_verdict"),
    caught(Bug::ClientIdsReused, Scenario::CoordinatorOutage, 10, "counts_grow"),
    caught(Bug::ClusterTimeReused, Scenario::CoordinatorOutage, 20, "R9.11"),
    caught(Bug::TimeFromReservationInOneBoot, Scenario::Lifetimes, 10, "time_goes_on"),
    caught(Bug::ToldBeforeQuorum, Scenario::CoordinatorGroup, 20, "replay_equals_state"),
    caught(Bug::SuffixForgotten, Scenario::CoordinatorGroup, 10, "coordinator"),
    caught(Bug::ShortestLogTaken, Scenario::CoordinatorGroup, 40, "replay_equals_state"),
    caught(Bug::TimeLeftFromOwnClock, Scenario::Lifetimes, 20, "time_goes_on"),
    caught(Bug::VersionFromPosition, Scenario::OldPrimary, 10, "replays_alike"),
    caught(Bug::VersionFloorUngated, Scenario::DamagedFiles, 20, "commutes"),
    caught(Bug::OperationKeyOverlapIgnored, Scenario::OperationKeys, 60, "commutes"),
    caught(Bug::OperationKeyBySlot, Scenario::OperationKeys, 5, "executed_once"),
    caught(Bug::NotAfterIgnored, Scenario::RogueClient, 5, "rogue_is_refused"),
    caught(Bug::HitWithoutRecord, Scenario::OperationKeys, 5, "gates_respected"),
    caught(Bug::TornTailAccepted, Scenario::BlackoutReplicated, 200, "replay_equals_state"),
    caught(Bug::DroppedKeyUngated, Scenario::OperationKeys, 60, "commutes"),
    caught(Bug::ExpiryInRead, Scenario::Expiring, 60, "linearizable_keys"),
    caught(Bug::ExpiryUngated, Scenario::Expiring, 20, "commutes"),
    caught(Bug::ExpiryInReplay, Scenario::Expiring, 60, "replays_alike"),
    caught(Bug::CursorSkips, Scenario::Listing, 10, "listed_once"),
    caught(Bug::ListingOverPending, Scenario::Listing, 40, "listed_once"),
    caught(Bug::ValueOfAnother, Scenario::Listing, 10, "listed_once"),
    caught(Bug::DuplicateRecordEarly, Scenario::Blackout, 10, "gates_respected"),
    caught(Bug::RecoveredUnflushed, Scenario::DivergentTail, 20, "synced_survives"),
    caught(Bug::FailedFsyncWorked, Scenario::FailingDisks, 10, "gates_respected"),
    caught(Bug::AcknowledgedEndIgnored, Scenario::DamagedFiles, 40, "intact_members"),
    caught(Bug::BootIgnored, Scenario::PowerLoss, 20, "intact_members"),
    caught(Bug::WitnessBootIgnored, Scenario::BlackoutReplicated, 20, "witness_keeps"),
    caught(Bug::PartialRequestLoaded, Scenario::Blackout, 60, "witness_keeps"),
    caught(Bug::PromiseForgotten, Scenario::OldPrimary, 30, "one_primary_per_epoch"),
    caught(Bug::PromiseForgotten, Scenario::OldPrimary, 20, "synced_survives"),
    caught(Bug::FreezeIgnored, Scenario::DeposedPrimary, 20, "witness_keeps"),
    caught(Bug::WitnessOverwrites, Scenario::SmallMemory, 20, "witness_keeps"),
    caught(Bug::WitnessComparesHashes, Scenario::Swarm, 5, "gates_respected"),
    caught(Bug::GcByHash, Scenario::DivergentTail, 20, "witness_keeps"),
    caught(Bug::SuspectDropped, Scenario::BadNetwork, 10, "gates_respected"),
    caught(Bug::ParkedIsRecorded, Scenario::Cleaning, 20, "gates_respected"),
    caught(Bug::UnsyncedRead, Scenario::Swarm, 10, "reads_wait"),
    caught(Bug::ShortListFast, Scenario::WitnessLoss, 10, "current_witness_list"),
    caught(Bug::GcBeforeSync, Scenario::Swarm, 5, "gates_respected"),
    caught(Bug::FileLagsAnswers, Scenario::WithoutWitness, 100, "linearizable_keys"),
    caught(Bug::MarkKeptByCut, Scenario::WithoutWitness, 20, "whole_logs"),
    caught(Bug::WholeBeforeReplay, Scenario::WithoutWitness, 20, "whole_logs"),
    caught(Bug::UnservedTermPreferred, Scenario::WithoutWitness, 60, "linearizable_keys"),
    caught(Bug::MarkSurvivesPowerLoss, Scenario::PowerLoss, 60, "whole_logs"),
    caught(Bug::NewsUntold, Scenario::SharedSession, 6, "news_travel"),
    caught(Bug::CleanEndKept, Scenario::SwitchedOff, 60, "intact_members"),
    caught(Bug::DamagedEndTaken, Scenario::DamagedFiles, 40, "intact_members"),
    caught(Bug::StopOnlyCloses, Scenario::WithoutWitness, 30, "current_witness_list"),
    caught(Bug::WitnessSkipped, Scenario::DivergentTail, 20, "synced_survives"),
    caught(Bug::ListUnchecked, Scenario::ListChange, 10, "current_witness_list"),
    caught(Bug::ListClosedUnsynced, Scenario::ListChange, 20, "current_witness_list"),
    caught(Bug::ClosingListAnswers, Scenario::ListChange, 20, "current_witness_list"),
    caught(Bug::ListChangedAtOnce, Scenario::ListChange, 5, "current_witness_list"),
    caught(Bug::FrozenForgotten, Scenario::OldPrimary, 60, "witness_keeps"),
    caught(Bug::OverlapIgnored, Scenario::DivergentTail, 20, "commutes"),
    caught(Bug::NotFoundUngated, Scenario::Blackout, 20, "reads_wait"),
    caught(Bug::NotFoundUngated, Scenario::Zombie, 20, "one_primary_per_epoch"),
    caught(Bug::DeletedKeyUngated, Scenario::Swarm, 10, "commutes"),
    caught(Bug::DeletedKeyUngated, Scenario::Swarm, 10, "reads_wait"),
    caught(Bug::EverythingUngated, Scenario::Tables, 10, "commutes"),
    caught(Bug::ReadWithoutLease, Scenario::Zombie, 20, "one_primary_per_epoch"),
    caught(Bug::LeaseFromReply, Scenario::Zombie, 40, "one_primary_per_epoch"),
    caught(Bug::CoordinatorDoesNotWait, Scenario::Tables, 60, "leases_lapse"),
    caught(Bug::SilenceOfOnesOwnCounts, Scenario::CoordinatorCut, 5, "coordinator_cut"),
    caught(Bug::HeardAgainJudgedAtOnce, Scenario::CoordinatorCut, 20, "coordinator_cut"),
    caught(Bug::MemoryLossUnnoticed, Scenario::LostMemory, 10, "counts_grow"),
    caught(Bug::DecidesBeforeListening, Scenario::LostMemory, 60, "configurations_grow"),
    caught(Bug::ToldUnnoted, Scenario::LostMemory, 80, "counts_grow"),
    caught(Bug::DropToldDuringFailOver, Scenario::Tables, 40, "tables"),
    caught(Bug::ToldBeforePersisted, Scenario::CoordinatorOutage, 120, "configurations_grow"),
    caught(Bug::EpochUnfenced, Scenario::OldPrimary, 20, "synced_survives"),
    caught(Bug::PredecessorUnchecked, Scenario::DivergentTail, 20, "convergence"),
    caught(Bug::ServedUnsynced, Scenario::DivergentTail, 20, "synced_survives"),
    caught(Bug::FastRestartServes, Scenario::FastRestart, 10, "one_primary_per_epoch"),
    caught(Bug::SilentMemberDropped, Scenario::Partition, 10, "gates_respected"),
    caught(Bug::SyncedAtAnyMember, Scenario::Swarm, 10, "gates_respected"),
    caught(Bug::JoinersUncounted, Scenario::Rebuild, 20, "gates_respected"),
    caught(Bug::JoinerElected, Scenario::Rebuild, 20, "an incomplete primary"),
    caught(Bug::JoinerElected, Scenario::ColdStartWhileCopying, 20, "convergence"),
    caught(Bug::TooFewMembersSync, Scenario::DivergentTail, 10, "gates_respected"),
    caught(Bug::ChosenTooEarly, Scenario::PowerLoss, 120, "linearizable_keys"),
];

/// Gives all machines of this thread a bug, or none.
///
/// # Panics
/// If there is a bug to plant, and this build has no planted bugs: otherwise the run would pass without having tried
/// anything.
pub fn plant(bug: Option<Bug>) {
    #[cfg(feature = "planted-bugs")]
    match bug {
        Some(bug) => kasha_types::planted::plant(bug),
        None => kasha_types::planted::clear(),
    }
    #[cfg(not(feature = "planted-bugs"))]
    assert!(bug.is_none(), "build with the feature planted-bugs");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The participants of distributed transactions are searched by themselves (`crates/distributed/tests/planted.rs`).
    const OF_PARTICIPANTS: &[Bug] = &[
        Bug::VoteUnsynced,
        Bug::ExecutedUnsynced,
        Bug::ConflictUnsynced,
        Bug::CeilingIgnored,
        Bug::ExecutedOutOfOrder,
        Bug::NeverFreesAtOnce,
        Bug::PrepareIgnoresPending,
        Bug::ProposedUnderLock,
        Bug::AntiDependencyUngated,
        Bug::GatesNotInherited,
        Bug::ReadOnlyWithoutGate,
        Bug::CoordinatedWithoutGate,
        Bug::SettledUngated,
        Bug::ToldGateIgnored,
        Bug::GateToldInPart,
        Bug::RunsAheadOfPending,
        Bug::PreparedUngated,
        Bug::PreparedUnsynced,
        Bug::ForgottenUnrecorded,
        Bug::ForgottenUnsettled,
        Bug::FreshIsNoOverlap,
        Bug::ReplayedOverPending,
        Bug::BodiesUncompared,
        Bug::OtherBodyUnsynced,
        Bug::AbortUngated,
        Bug::AbortToldByOthers,
    ];

    /// Directed tests notice these (`crates/node/tests/planted.rs`, `crates/gateway/tests/planted.rs`).
    const OF_STORIES: &[Bug] = &[
        Bug::DamageCopied,
        Bug::FloorCopiedAsNew,
        Bug::OperationKeyNotRecorded,
        Bug::RefusalKept,
        Bug::EarlyEndFast,
        Bug::EarlyEndUnrecorded,
        Bug::ReplayEndsEarly,
        Bug::ReplayEndsNothing,
        Bug::EndedToldUnsynced,
        Bug::LaterRunsAheadOfUnknown,
    ];

    /// The group's log is searched by itself, and has directed scenarios (`crates/viewstamped/tests/planted.rs`, `crates/coordinator/tests/planted.rs`).
    const OF_GROUPS: &[Bug] = &[
        Bug::AnsweredWithoutRound,
        Bug::RoundUnderWayCounts,
        Bug::TimeOfOwnMemory,
        Bug::RoundUnheard,
        Bug::LeasesKeptOverLists,
        Bug::RestartKnowsLeases,
        Bug::OwnLeasesAlone,
        Bug::DecidedInSnapshot,
        Bug::ViewForgotten,
        Bug::LogViewAhead,
        Bug::NewcomerCountsEarly,
        Bug::OwnListElects,
        Bug::ListChangedEarly,
        Bug::ViewEnteredAlone,
        Bug::LeaderKeepsOn,
        Bug::StuckLeaderStays,
        Bug::StatesUncompared,
        Bug::GoodbyeUngated,
        Bug::EvidenceForgotten,
        Bug::DeafLeaderJudges,
    ];

    #[test]
    fn every_bug_is_caught_somewhere() {
        let elsewhere = [OF_PARTICIPANTS, OF_STORIES, OF_GROUPS];
        let is_elsewhere = |bug| elsewhere.iter().any(|of| of.contains(bug));
        for (bug, name, _) in Bug::TABLE.iter().filter(|(bug, _, _)| !is_elsewhere(bug)) {
            assert!(CAUGHT.iter().any(|row| row.bug == *bug), "{name} has no row");
        }
    }
}
