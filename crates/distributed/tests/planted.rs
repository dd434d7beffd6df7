//! Each rule of a participant, left out, is noticed by the search, and by what should notice it. Run this with
//! `cargo test --release -p kasha-distributed --features planted-bugs`.

#![cfg(feature = "planted-bugs")]

use std::ops::Range;
use std::panic::catch_unwind;

use crate::world::World;
use kasha_types::planted::{self, Bug};

/// The bug, the seeds within which it is caught, and the beginnings of what may be said then. Seeds that do not begin with 0 are for
/// what is found once in a million runs.
const CAUGHT: &[(Bug, Range<u64>, &[&str])] = &[
    (Bug::VoteUnsynced, 0..200_000, &["T1", "D1"]),
    (Bug::ExecutedUnsynced, 0..200_000, &["T1", "D1"]),
    (Bug::ConflictUnsynced, 0..200_000, &["T1"]),
    (Bug::CeilingIgnored, 0..200_000, &["T3", "E2"]),
    (Bug::ExecutedOutOfOrder, 0..200_000, &["T3", "T4"]),
    (Bug::NeverFreesAtOnce, 620_000..640_000, &["T3", "E2", "D1"]),
    (Bug::PrepareIgnoresPending, 0..200_000, &["T3", "T4", "E2"]),
    (Bug::ProposedUnderLock, 0..200_000, &["T3", "T4", "E2"]),
    (Bug::AntiDependencyUngated, 0..200_000, &["T3"]),
    (Bug::GatesNotInherited, 0..200_000, &["T3"]),
    (Bug::ReadOnlyWithoutGate, 0..200_000, &["T3"]),
    (Bug::CoordinatedWithoutGate, 0..200_000, &["T3"]),
    (Bug::SettledUngated, 0..200_000, &["T3"]),
    (Bug::ToldGateIgnored, 0..400_000, &["T3"]),
    (Bug::GateToldInPart, 0..400_000, &["T3"]),
    (Bug::RunsAheadOfPending, 0..200_000, &["T3", "E2"]),
    (Bug::PreparedUngated, 0..200_000, &["T3"]),
    (Bug::PreparedUnsynced, 0..200_000, &["D1", "T1", "E2"]),
    (Bug::ForgottenUnrecorded, 0..200_000, &["T1"]),
    (Bug::ForgottenUnsettled, 0..200_000, &["T3", "T4"]),
    (Bug::FreshIsNoOverlap, 0..200_000, &["D1", "E2", "T3"]),
    (Bug::ReplayedOverPending, 0..200_000, &["T3", "T4", "E2"]),
    (Bug::BodiesUncompared, 0..200_000, &["R8.11"]),
    (Bug::OtherBodyUnsynced, 0..400_000, &["T1"]),
    (Bug::AbortUngated, 0..400_000, &["T3"]),
    (Bug::AbortToldByOthers, 0..400_000, &["T3"]),
];

/// What is found first, and in which run.
fn found(bug: Bug, mut seeds: Range<u64>) -> Option<(u64, String)> {
    seeds.find_map(|seed| {
        let run = catch_unwind(|| {
            planted::plant(bug);
            World::new(seed).run()
        });
        planted::clear();
        match run {
            Ok(Ok(())) => None,
            Ok(Err(why)) => Some((seed, why)),
            Err(panic) => Some((seed, *panic.downcast::<String>().unwrap_or_default())),
        }
    })
}

#[test]
fn every_rule_that_is_left_out_is_noticed() {
    std::panic::set_hook(Box::new(|_| ()));
    let mut wrong = Vec::new();
    for (bug, seeds, by) in CAUGHT {
        let line = match found(*bug, seeds.clone()) {
            Some((seed, why)) => format!("{:26} run {seed:>6}: {}", bug.name(), &why[..why.len().min(100)]),
            None => format!("{:26} never", bug.name()),
        };
        println!("{line}");
        if !by.iter().any(|by| line.contains(by)) {
            wrong.push(line);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
