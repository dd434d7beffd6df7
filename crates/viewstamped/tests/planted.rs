//! Each rule of the group, left out, is noticed by the naive twin, or by the scenario that was written for the rule. Run this with
//! `cargo test --release -p kasha-viewstamped --features planted-bugs`.

#![cfg(feature = "planted-bugs")]

use std::panic::catch_unwind;

use kasha_types::planted::{self, Bug};

use crate::{faults, rules};

/// How a bug is looked for.
enum Search {
    /// The groups under every fault, by seeds from 0.
    Random(fn(u64), u64),
    /// One scenario.
    Directed(fn()),
}

use Search::{Directed, Random};

/// The bug, how it is looked for, and the beginnings of what may be said then.
const CAUGHT: &[(Bug, Search, &[&str])] = &[
    (Bug::ToldBeforeQuorum, Random(faults::three, 200), &["R9.1", "R9.2"]),
    (Bug::AnsweredWithoutRound, Random(faults::three, 200), &["R9.2", "R9.4"]),
    (Bug::RoundUnderWayCounts, Random(faults::three, 2_000), &["R9.2", "R9.4"]),
    (Bug::TimeOfOwnMemory, Random(faults::three, 200), &["R9.4"]),
    (Bug::RoundUnheard, Random(faults::three, 200), &["R9.4"]),
    (Bug::RestartKnowsLeases, Random(faults::three, 200), &["R9.4"]),
    (Bug::OwnLeasesAlone, Random(faults::three, 200), &["R9.4"]),
    (Bug::LeasesKeptOverLists, Directed(rules::r9_4_with_a_new_list_each_member_is_taught_again), &["R9.4"]),
    (Bug::SuffixForgotten, Random(faults::three, 500), &["R9.1", "R9.2"]),
    (Bug::ShortestLogTaken, Random(faults::three, 500), &["R9.1", "R9.2"]),
    (Bug::DecidedInSnapshot, Random(faults::three, 500), &["R9.1"]),
    (Bug::ViewForgotten, Random(faults::three, 2_000), &["R9.1", "R9.2", "R9.8"]),
    (Bug::LogViewAhead, Random(faults::three, 2_000), &["R9.1", "R9.2"]),
    (Bug::NewcomerCountsEarly, Directed(rules::r9_6_a_newcomer_counts_when_it_has_caught_up), &["assertion"]),
    (Bug::OwnListElects, Random(faults::five, 4_000), &["R9.1", "R9.2"]),
    (Bug::ListChangedEarly, Random(faults::five, 4_000), &["R9.1", "R9.2"]),
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
            Random(run, seeds) => {
                let found = (0..seeds).find_map(|seed| Some((seed, said(*bug, move || run(seed))?)));
                found.map_or((seeds, None), |(seed, said)| (seed, Some(said)))
            }
        };
        println!("{:30} seed {seed:>5}  {said:?}", bug.name());
        let is_caught = said.as_ref().is_some_and(|said| by.iter().any(|by| said.starts_with(by)));
        if !is_caught {
            escaped.push(format!("{}: {said:?}", bug.name()));
        }
    }
    assert!(escaped.is_empty(), "{}", escaped.join("\n"));
}
