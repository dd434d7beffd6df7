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
pub const CAUGHT: &[Caught] = &[caught(Bug::GatesIgnored, Scenario::Swarm, 3, "gates_respected")];

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
