//! Rules of the coordinator's group that the simulator notices seldom: each, left out, fails the scenario that was written for the rule. Run this
//! with `cargo test --release -p kasha-coordinator --features planted-bugs`.

#![cfg(feature = "planted-bugs")]

use std::panic::catch_unwind;

use kasha_types::planted::{self, Bug};

use crate::{client_leases, decided, group, hears_most};

const CAUGHT: &[(Bug, fn())] = &[
    (Bug::RoundUnheard, group::r9_4_elections_do_not_move_cluster_time),
    (Bug::RestartKnowsLeases, client_leases::r9_4_after_a_restart_of_all_no_living_client_loses_its_lease),
    (Bug::EvidenceForgotten, group::r9_13_who_has_overheard_all_nodes_need_not_listen_when_it_leads),
    (Bug::DeafLeaderJudges, hears_most::r9_15_the_lead_goes_to_whoever_hears_the_nodes),
    (Bug::AnsweredWithoutRound, group::r9_2_a_leader_that_is_cut_off_answers_nobody),
    (Bug::GoodbyeUngated, decided::d3_a_goodbye_waits_for_the_process_that_it_follows_from),
];

#[test]
fn every_planted_bug_is_caught() {
    let escaped = CAUGHT.iter().filter(|(bug, scenario)| {
        let run = catch_unwind(|| {
            planted::plant(*bug);
            scenario();
        });
        planted::clear();
        println!("{:30} {}", bug.name(), if run.is_err() { "caught" } else { "escaped" });
        run.is_ok()
    });
    assert_eq!(escaped.map(|(bug, _)| bug.name()).collect::<Vec<_>>(), Vec::<&str>::new());
}
