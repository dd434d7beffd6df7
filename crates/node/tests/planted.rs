//! Rules of the cleaner, left out: a story that a test tells ends otherwise. In the simulator nothing damages memory, and clients
//! hardly ever come back in the moment that matters. Run this with
//! `cargo test --release -p kasha-node --features planted-bugs --test planted`.

#![cfg(feature = "planted-bugs")]

mod common;

use std::panic::catch_unwind;

use common::stories;
use kasha_types::planted::{self, Bug};

const NOTICED: &[(Bug, fn())] = &[
    (Bug::DamageCopied, stories::a_damaged_segment_stops_its_node),
    (Bug::FloorCopiedAsNew, stories::the_copy_of_a_floor_forgets_nobody),
];

#[test]
fn every_rule_that_is_left_out_is_noticed() {
    NOTICED.iter().for_each(|(_, story)| story());
    std::panic::set_hook(Box::new(|_| ()));
    let mut unnoticed = Vec::new();
    for (bug, story) in NOTICED {
        let told = catch_unwind(|| {
            planted::plant(*bug);
            story();
        });
        planted::clear();
        match told {
            Ok(()) => unnoticed.push(bug.name()),
            Err(_) => println!("{:26} noticed", bug.name()),
        }
    }
    assert!(unnoticed.is_empty(), "not noticed: {unnoticed:?}");
}
