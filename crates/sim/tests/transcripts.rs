//! Runs all transcripts ([`transcript`]): directed scenarios as text files. With planted bugs, each bug must change the
//! transcripts that the table below names for it.

#[test]
fn every_transcript_is_what_happens() {
    crate::transcript::check_all();
}

/// A transcript that stays the same when the rule is broken shows nothing of the rule.
#[cfg(feature = "planted-bugs")]
mod planted {
    use kasha_sim::Bug;
    use kasha_sim::planted::plant;

    /// Bugs, and the transcripts about the rules that they break. The other bugs break parts that transcripts do not
    /// have (the shell, the disk, time that passes within a turn, the session), or only a sweep finds them.
    const NOTICED: &[(Bug, &[&str])] = &[
        (Bug::HeldEffectsKept, &["zombie_primary_cannot_complete_an_update"]),
        (Bug::SyncInAnotherEpoch, &["r2_1_sync_is_answered_in_the_epoch_of_the_answer"]),
        (Bug::ReplayAcknowledges, &["r4_5_replay_does_not_acknowledge"]),
        (Bug::ReplayWithoutLookUp, &["r4_5_synced_requests_are_not_run_again"]),
        (Bug::ExpiryWithoutFloor, &["r4_6_expiry_floor"]),
        (Bug::OperationKeyBySlot, &["r4_9_operation_key_hit_is_recorded"]),
        (Bug::HitWithoutRecord, &["r4_9_operation_key_hit_is_recorded"]),
        (Bug::PromiseForgotten, &["r5_3_promise_survives_power_loss", "r7_1_restarted_primary_answers_nothing"]),
        (Bug::FreezeIgnored, &["zombie_primary_cannot_complete_an_update"]),
        (Bug::GcBeforeSync, &["fast_path_in_one_round_trip"]),
        (Bug::WitnessSkipped, &["r4_5_replay_does_not_acknowledge", "r4_5_synced_requests_are_not_run_again"]),
        (Bug::ListUnchecked, &["r6_2_list_change_refuses_then_syncs_then_commits"]),
        (Bug::ListClosedUnsynced, &["r6_2_list_change_refuses_then_syncs_then_commits"]),
        (Bug::OverlapIgnored, &["c1_overlapping_updates_wait_for_the_sync"]),
        (Bug::NotFoundUngated, &["c1_overlapping_updates_wait_for_the_sync"]),
        (Bug::ReadWithoutLease, &["coordinator_restart_waits_a_lease", "zombie_primary_cannot_complete_an_update"]),
        (Bug::SyncedAtAnyMember, &["r7_2_sync_counts_only_against_the_committed_set"]),
        (
            Bug::JoinersUncounted,
            &["r7_2_joiner_counts_but_is_not_elected", "r7_2_sync_counts_only_against_the_committed_set"],
        ),
        (Bug::JoinerElected, &["cold_start_after_partial_re_replication", "r7_2_joiner_counts_but_is_not_elected"]),
    ];

    #[test]
    fn each_transcript_notices_the_bugs_it_is_about() {
        let mut unnoticed = Vec::new();
        for &(bug, transcripts) in NOTICED {
            plant(Some(bug));
            unnoticed
                .extend(transcripts.iter().filter(|name| !crate::transcript::differs(name)).map(|name| (bug, name)));
        }
        plant(None);
        assert!(unnoticed.is_empty(), "{unnoticed:#?}");
    }

    #[test]
    fn no_bug_has_two_rows() {
        for (bug, name, _) in Bug::TABLE {
            assert!(NOTICED.iter().filter(|row| row.0 == *bug).count() <= 1, "{name}");
        }
    }
}
