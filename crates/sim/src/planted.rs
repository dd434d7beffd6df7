//! Planted bugs, and who catches them: a checker that cannot fail checks nothing.
//!
//! With the feature `planted-bugs` a run can be told to break one rule ([`crate::SimOptions::planted`]). Each row of
//! [`CAUGHT`] names a scenario in which that is found within so many seeds, and what finds it: a checker, or an
//! assertion of the code itself. `tests/planted.rs` holds the table to it.

pub use kasha_machine::planted::{Bug, is_on};

use crate::scenario::Scenario;

/// How a bug is caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caught {
    /// Which.
    pub bug: Bug,
    /// In which scenario.
    pub scenario: Scenario,
    /// Within how many seeds, from 0: generous, so that the next change of a draw does not break the table.
    pub seeds: u64,
    /// How the violation begins, after its moment or place: the checker's name, or the text of an assertion.
    pub by: &'static str,
}

const fn caught(bug: Bug, scenario: Scenario, seeds: u64, by: &'static str) -> Caught {
    Caught { bug, scenario, seeds, by }
}

/// Every bug, at least once.
pub const CAUGHT: &[Caught] = &[
    caught(Bug::GatesIgnored, Scenario::Swarm, 5, "gates_respected"),
    caught(Bug::FsyncLies, Scenario::Blackout, 5, "gates_respected"),
    caught(Bug::FsyncLies, Scenario::BlackoutReplicated, 20, "flushed_in_time"),
    caught(Bug::StaleNow, Scenario::Zombie, 60, "linearizable_keys"),
    caught(Bug::HeldEffectsKept, Scenario::DivergentTail, 60, "gates_respected"),
    caught(Bug::HeldEffectsKept, Scenario::DivergentTail, 60, "whole_frames"),
    caught(Bug::AttemptsMixed, Scenario::DeposedPrimary, 60, "linearizable_keys"),
    caught(Bug::BodyRebuilt, Scenario::Swarm, 5, "gates_respected"),
    caught(Bug::SyncInAnotherEpoch, Scenario::FastRestart, 60, "one_primary_per_epoch"),
    caught(Bug::ReplayAcknowledges, Scenario::DivergentTail, 20, "linearizable_keys"),
    caught(Bug::ReplayWithoutLookUp, Scenario::Crash, 5, "E1: "),
    caught(Bug::ExpiryWithoutFloor, Scenario::ClientLeases, 20, "linearizable_keys"),
    caught(Bug::OperationKeyNotRecorded, Scenario::OperationKeys, 60, "linearizable_keys"),
    caught(Bug::HitWithoutRecord, Scenario::OperationKeys, 5, "gates_respected"),
    caught(Bug::PromiseForgotten, Scenario::OldPrimary, 20, "linearizable_keys"),
    caught(Bug::PromiseForgotten, Scenario::OldPrimary, 20, "synced_survives"),
    caught(Bug::FreezeIgnored, Scenario::DeposedPrimary, 60, "synced_survives"),
    caught(Bug::GcBeforeSync, Scenario::Swarm, 5, "gates_respected"),
    caught(Bug::WitnessSkipped, Scenario::DivergentTail, 20, "synced_survives"),
    caught(Bug::ListUnchecked, Scenario::ListChange, 10, "current_witness_list"),
    caught(Bug::ListClosedUnsynced, Scenario::ListChange, 20, "current_witness_list"),
    caught(Bug::OverlapIgnored, Scenario::DivergentTail, 60, "linearizable_keys"),
    caught(Bug::NotFoundUngated, Scenario::DivergentTail, 60, "linearizable_keys"),
    caught(Bug::ReadWithoutLease, Scenario::Zombie, 30, "linearizable_keys"),
    caught(Bug::SyncedAtAnyMember, Scenario::Swarm, 60, "gates_respected"),
    caught(Bug::JoinersUncounted, Scenario::Rebuild, 20, "gates_respected"),
    caught(Bug::JoinerElected, Scenario::Rebuild, 20, "an incomplete primary"),
    caught(Bug::JoinerElected, Scenario::ColdStartWhileCopying, 20, "an incomplete primary"),
];

/// Gives all machines of this thread a bug, or none.
///
/// # Panics
/// If there is one, and this build has no planted bugs: a run would pass without having been tried.
pub fn plant(bug: Option<Bug>) {
    #[cfg(feature = "planted-bugs")]
    match bug {
        Some(bug) => kasha_machine::planted::plant(bug),
        None => kasha_machine::planted::clear(),
    }
    #[cfg(not(feature = "planted-bugs"))]
    assert!(bug.is_none(), "build with the feature planted-bugs");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_is_caught_somewhere() {
        for (bug, name, _) in Bug::TABLE {
            assert!(CAUGHT.iter().any(|row| row.bug == *bug), "{name} has no row");
        }
    }
}
