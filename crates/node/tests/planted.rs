//! Rules that are left out: a story that a test tells ends otherwise. In the simulator nothing damages memory, clients hardly ever come
//! back in the moment that matters, and two operations under one key hardly ever differ only at another shard. Run this with
//! `cargo test --release -p kasha-node --features planted-bugs planted::`.

#![cfg(feature = "planted-bugs")]

use std::panic::{catch_unwind, set_hook, take_hook};

use crate::common::{batches, ended, stories};
use kasha_types::planted::{self, Bug};

/// The bug, the story, and what the story says then.
const NOTICED: &[(Bug, fn(), &str)] = &[
    (Bug::DamageCopied, stories::a_damaged_segment_stops_its_node, "it was not found"),
    (Bug::FloorCopiedAsNew, stories::the_copy_of_a_floor_forgets_nobody, "a replay loses Completion"),
    (Bug::OperationKeyNotRecorded, stories::a_witness_keeps_one_of_two_under_one_operation_key, "nothing holds it up"),
    (Bug::RefusalKept, stories::a_refused_demand_leaves_its_operation_key_free, "a refusal is kept"),
    (Bug::EarlyEndFast, batches::an_early_end_is_told_when_it_is_synced, "told before it was synced"),
    (Bug::EarlyEndUnrecorded, batches::how_far_it_came_is_an_outcome, "a delayed copy has run"),
    (Bug::ReplayEndsEarly, batches::a_replay_runs_it_whole_or_not_at_all, "a replay has ended early"),
    (
        Bug::ReplayEndsNothing,
        ended::a_replay_ends_what_was_over_when_its_request_was_begun,
        "a replay has seen what was over long before",
    ),
    (Bug::EndedToldUnsynced, ended::who_has_seen_what_was_over_is_told_it_synced, "told without a sync"),
];

#[test]
fn every_rule_that_is_left_out_is_noticed() {
    NOTICED.iter().for_each(|(_, story, _)| story());
    let hook = take_hook();
    set_hook(Box::new(|_| ()));
    let mut unnoticed = Vec::new();
    for (bug, story, says) in NOTICED {
        let told = catch_unwind(|| {
            planted::plant(*bug);
            story();
        });
        planted::clear();
        let said = told.err().map(|panic| match panic.downcast::<String>() {
            Ok(text) => *text,
            Err(panic) => (*panic.downcast::<&str>().unwrap_or_default()).to_owned(),
        });
        match said {
            Some(said) if said.contains(says) => println!("{:26} noticed: {said}", bug.name()),
            other => unnoticed.push((bug.name(), other)),
        }
    }
    set_hook(hook);
    assert!(unnoticed.is_empty(), "not noticed: {unnoticed:?}");
}
