//! Each rule of the group, left out, is noticed by the naive twin, or by the scenario that was written for the rule. Run this with
//! `cargo test --release -p kasha-viewstamped --features planted-bugs`.

#![cfg(feature = "planted-bugs")]

use std::iter;
use std::panic::catch_unwind;

use kasha_types::planted::{self, Bug};

use crate::{faults, rules};

/// How a bug is looked for.
enum Search {
    /// The groups under every fault: the seed that caught the bug when this was written, and so many seeds from 0.
    Random(fn(u64), u64, u64),
    /// One scenario.
    Directed(fn()),
}

use Search::{Directed, Random};

/// What the naive twin says if a member has committed something else.
const DIFFERS: &str = "assertion `left == right` failed: R9.1";
/// What it says if the group never serves again, behind the seed.
const STUCK: &str = "nothing is committed any more";

/// The bug, how it is looked for, and what may be said then: the beginning, or the end.
const CAUGHT: &[(Bug, Search, &[&str])] = &[
    (Bug::ToldBeforeQuorum, Random(faults::three, 2, 200), &[DIFFERS, "R9.2"]),
    (Bug::AnsweredWithoutRound, Random(faults::three, 2, 200), &["R9.2", "R9.4"]),
    (Bug::RoundUnderWayCounts, Random(faults::three, 172, 2_000), &["R9.2", "R9.4"]),
    (Bug::TimeOfOwnMemory, Random(faults::three, 178, 4_000), &["R9.4"]),
    (Bug::RoundUnheard, Random(faults::three, 0, 200), &["R9.4"]),
    (Bug::RestartKnowsLeases, Random(faults::three, 0, 200), &["R9.4"]),
    (Bug::OwnLeasesAlone, Random(faults::three, 1, 200), &["R9.4"]),
    (Bug::LeasesKeptOverLists, Directed(rules::r9_4_with_a_new_list_each_member_is_taught_again), &["R9.4"]),
    (Bug::SuffixForgotten, Random(faults::three, 0, 500), &["records follow each other"]),
    (Bug::ShortestLogTaken, Random(faults::three, 0, 500), &[STUCK]),
    (Bug::DecidedInSnapshot, Random(faults::three, 4, 500), &[DIFFERS]),
    (Bug::ViewForgotten, Random(faults::three, 2639, 20_000), &[DIFFERS, "R9.2", STUCK]),
    (Bug::LogViewAhead, Random(faults::three, 988, 2_000), &[DIFFERS, "R9.2", STUCK]),
    (Bug::NewcomerCountsEarly, Directed(rules::r9_6_a_newcomer_counts_when_it_has_caught_up), &["assertion"]),
    (Bug::OwnListElects, Directed(rules::r9_6_a_quorum_of_an_old_list_elects_nobody), &["assertion"]),
    (
        Bug::ListChangedEarly,
        Directed(rules::r9_6_members_change_only_when_an_operation_of_the_own_view_is_committed),
        &["assertion"],
    ),
    (Bug::ViewEnteredAlone, Directed(rules::r9_8_a_member_that_does_not_hear_elects_nobody), &["assertion"]),
    (Bug::LeaderKeepsOn, Directed(rules::r9_2_a_leader_that_is_cut_off_answers_nothing_and_gives_up), &["R9.8"]),
    (
        Bug::StuckLeaderStays,
        Directed(rules::r9_10_a_leader_whose_followers_do_not_write_gives_up_after_its_patience),
        &["assertion"],
    ),
    (Bug::StatesUncompared, Directed(rules::r9_11_whoever_differs_from_a_quorum_stops), &["assertion"]),
];

fn said(bug: Bug, run: impl FnOnce() + std::panic::UnwindSafe) -> Option<String> {
    let run = catch_unwind(move || {
        planted::plant(bug);
        run();
    });
    planted::clear();
    let panic = run.err()?;
    Some(match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(other) => other.downcast::<&str>().map_or_else(|_| String::new(), |text| (*text).to_owned()),
    })
}

#[test]
fn every_planted_bug_is_caught() {
    let mut escaped = Vec::new();
    for (bug, search, by) in CAUGHT {
        let (seed, said) = match *search {
            Directed(run) => (0, said(*bug, run)),
            // A change of what is drawn makes another run of the seed, and then all are tried.
            Random(run, before, seeds) => {
                let mut tried = iter::once(before).chain(0..seeds);
                let found = tried.find_map(|seed| Some((seed, said(*bug, move || run(seed))?)));
                found.map_or((seeds, None), |(seed, said)| (seed, Some(said)))
            }
        };
        println!("{:30} seed {seed:>5}  {said:?}", bug.name());
        let is_it = |said: &str| by.iter().any(|by| said.starts_with(by) || said.ends_with(by));
        let is_caught = said.as_deref().is_some_and(is_it);
        if !is_caught {
            escaped.push(format!("{}: {said:?}", bug.name()));
        }
    }
    assert!(escaped.is_empty(), "{}", escaped.join("\n"));
}

/// What is found in so many runs has a cause.
#[test]
fn without_a_bug_nothing_is_said() {
    for seed in 0..1_000 {
        faults::three(seed);
        faults::five(seed);
    }
}
