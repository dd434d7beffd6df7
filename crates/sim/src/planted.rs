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
    /// Within how many seeds, from 0.
    pub seeds: u64,
    /// How the text of the violation begins: the checker's name, or an assertion's.
    pub by: &'static str,
}

const fn caught(bug: Bug, scenario: Scenario, seeds: u64, by: &'static str) -> Caught {
    Caught { bug, scenario, seeds, by }
}

/// Every bug, at least once.
pub const CAUGHT: &[Caught] = &[
    caught(Bug::GatesIgnored, Scenario::Swarm, 1, "gates_respected"),
    caught(Bug::FsyncLies, Scenario::Swarm, 1, "gates_respected"),
    caught(Bug::StaleNow, Scenario::Zombie, 2, "linearizable_keys"),
    caught(Bug::HeldEffectsKept, Scenario::Swarm, 17, "whole_frames"),
    caught(Bug::AttemptsMixed, Scenario::Swarm, 13, "linearizable_keys"),
    caught(Bug::BodyRebuilt, Scenario::Swarm, 1, "gates_respected"),
    caught(Bug::SyncInAnotherEpoch, Scenario::FastRestart, 3, "one_primary_per_epoch"),
    caught(Bug::ReplayAcknowledges, Scenario::Swarm, 3, "linearizable_keys"),
    caught(Bug::ReplayWithoutLookUp, Scenario::Swarm, 1, "panicked at crates/exactly_once/src/tracker.rs"),
    caught(Bug::ExpiryWithoutFloor, Scenario::ClientLeases, 2, "linearizable_keys"),
    caught(Bug::OperationKeyNotRecorded, Scenario::Swarm, 24, "executed_once"),
    caught(Bug::HitWithoutRecord, Scenario::Swarm, 1, "gates_respected"),
    caught(Bug::FreezeIgnored, Scenario::ClientLeases, 22, "synced_survives"),
    caught(Bug::GcBeforeSync, Scenario::Swarm, 1, "gates_respected"),
    caught(Bug::WitnessSkipped, Scenario::Swarm, 2, "linearizable_keys"),
    caught(Bug::ListUnchecked, Scenario::Swarm, 2, "current_witness_list"),
    caught(Bug::ListClosedUnsynced, Scenario::Swarm, 8, "current_witness_list"),
    caught(Bug::OverlapIgnored, Scenario::Swarm, 15, "linearizable_keys"),
    caught(Bug::NotFoundUngated, Scenario::Zombie, 1, "linearizable_keys"),
    caught(Bug::ReadWithoutLease, Scenario::Zombie, 1, "linearizable_keys"),
    caught(Bug::SyncedAtAnyMember, Scenario::Swarm, 4, "gates_respected"),
    caught(Bug::JoinersUncounted, Scenario::Swarm, 2, "gates_respected"),
    caught(Bug::JoinerElected, Scenario::Crash, 10, "panicked at crates/log/src/append.rs"),
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
        // Not caught yet by any scenario: a promise that is lost needs a zombie that comes back to exactly this member.
        for (bug, name, _) in Bug::TABLE.iter().filter(|(bug, ..)| *bug != Bug::PromiseForgotten) {
            assert!(CAUGHT.iter().any(|row| row.bug == *bug), "{name} has no row");
        }
    }
}
