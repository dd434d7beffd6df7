//! Rules that are left out: a story that a test tells ends otherwise. In the simulator a connection is seldom lost in the moment that
//! matters, while another program asks for the same key. Run this with
//! `cargo test --release -p kasha-gateway --features planted-bugs planted::`.

#![cfg(feature = "planted-bugs")]

use std::panic::{catch_unwind, set_hook, take_hook};

use super::once;
use kasha_types::planted::{self, Bug};

/// The bug, the story, and what the story says then.
const NOTICED: &[(Bug, fn(), &str)] = &[(
    Bug::LaterRunsAheadOfUnknown,
    once::what_its_connection_does_not_wait_for_is_in_the_way_too,
    "it ran ahead of what is not known",
)];

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
