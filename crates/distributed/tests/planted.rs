//! Each rule of a participant, left out, is noticed by the search, and by what should notice it. Run this with
//! `cargo test --release -p kasha-distributed --features planted-bugs`.

#![cfg(feature = "planted-bugs")]

use std::iter;
use std::ops::Range;
use std::panic::catch_unwind;

use crate::world::World;
use kasha_types::planted::{self, Bug};

/// The bug, the seed that caught it when this was written, the seeds within which it is caught, and the beginnings of what may be said
/// then. Seeds that do not begin with 0 are for what is found once in a million runs.
const CAUGHT: &[(Bug, u64, Range<u64>, &[&str])] = &[
    (Bug::VoteUnsynced, 1, 0..200_000, &["T1", "D1"]),
    (Bug::ExecutedUnsynced, 54, 0..200_000, &["T1", "D1"]),
    (Bug::ConflictUnsynced, 73, 0..200_000, &["T1"]),
    (Bug::CeilingIgnored, 1160, 0..200_000, &["T3", "E2"]),
    (Bug::ExecutedOutOfOrder, 46, 0..200_000, &["T3", "T4"]),
    (Bug::NeverFreesAtOnce, 628_813, 620_000..640_000, &["T3", "E2", "D1"]),
    (Bug::PrepareIgnoresPending, 32, 0..200_000, &["T3", "T4", "E2"]),
    (Bug::ProposedUnderLock, 490, 0..200_000, &["T3", "T4", "E2"]),
    (Bug::AntiDependencyUngated, 620, 0..200_000, &["T3"]),
    (Bug::GatesNotInherited, 1279, 0..200_000, &["T3"]),
    (Bug::ReadOnlyWithoutGate, 620, 0..200_000, &["T3"]),
    (Bug::CoordinatedWithoutGate, 114_431, 0..200_000, &["T3"]),
    (Bug::SettledUngated, 213, 0..200_000, &["T3"]),
    (Bug::ToldGateIgnored, 5391, 0..400_000, &["T3"]),
    (Bug::GateToldInPart, 28_871, 0..400_000, &["T3"]),
    (Bug::RunsAheadOfPending, 88, 0..200_000, &["T3", "E2"]),
    (Bug::PreparedUngated, 20_524, 0..200_000, &["T3"]),
    (Bug::PreparedUnsynced, 7, 0..200_000, &["D1", "T1", "E2"]),
    (Bug::ForgottenUnrecorded, 137, 0..200_000, &["T1"]),
    (Bug::ForgottenUnsettled, 62, 0..200_000, &["T3", "T4"]),
    (Bug::FreshIsNoOverlap, 896, 0..200_000, &["D1", "E2", "T3"]),
    (Bug::ReplayedOverPending, 281, 0..200_000, &["T3", "T4", "E2"]),
    (Bug::BodiesUncompared, 7, 0..200_000, &["R8.11"]),
    (Bug::OtherBodyUnsynced, 9258, 0..400_000, &["T1"]),
    (Bug::AbortUngated, 5090, 0..400_000, &["T3"]),
    (Bug::AbortToldByOthers, 5090, 0..400_000, &["T3"]),
];

/// What is found, and in which run. The seed that caught the bug before comes first. A change of what is drawn makes that another run, and then
/// all seeds are tried.
fn found(bug: Bug, before: u64, seeds: Range<u64>) -> Option<(u64, String)> {
    assert!(seeds.contains(&before), "{}: seed {before}", bug.name());
    iter::once(before).chain(seeds).find_map(|seed| {
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
    for (bug, before, seeds, by) in CAUGHT {
        let line = match found(*bug, *before, seeds.clone()) {
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
