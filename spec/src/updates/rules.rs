//! The rules of this model that can be switched off. Each names the code that keeps it, and the program in which its
//! absence shows.

use crate::Broken;
use crate::updates::program::{self, Program};

/// A rule that can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// R2.1: only answers and acceptances of one attempt count together.
    AttemptsApart,
    /// R2.1: a sync is confirmed by the term that executed the update.
    SyncOfItsEpoch,
    /// R2.1: a retry sends the same body.
    BodyFrozen,
    /// R2.2: a refusal is not an outcome.
    RefusalNoOutcome,
    /// R3.1: when a role is lost, everything that was held for it is dropped.
    HeldDropped,
    /// R4.5: replay looks up before it runs.
    ReplayLooksUp,
    /// R4.5: replay compares with the acknowledgement in this shard's log.
    ReplayHeeds,
    /// R4.5: replay does not raise that acknowledgement.
    ReplayRaisesNothing,
    /// R4.5: replay stores the log's acknowledgement, not the request's.
    ReplayStoresOwn,
    /// R4.6: records are dropped only under a floor that refuses the requests which they answered.
    FloorLogged,
    /// R4.6: replay skips requests that a floor refuses.
    FloorInReplay,
    /// R4.6: a client is told that its lease is over when the floor is synced.
    FloorRefusalSynced,
    /// R4.6: a client that came back keeps its records since then.
    FloorSparesRevived,
    /// R4.9: witnesses know the operation key as a part of the footprint.
    KeyOnWitness,
    /// R4.9: a hit has a completion record of its own.
    HitRecorded,
    /// R4.9: a hit or a mismatch waits for a sync.
    HitGated,
    /// R4.9: an update is refused after `not_after`.
    NotAfter,
    /// R5.5: a witness whose machine lost power is not sure.
    PowerLostUnsure,
    /// R6.2: a list is closed before the next one is committed.
    ListClosedFirst,
    /// R6.2: everything that was answered under a list is synced before the next list is committed.
    ListSynced,
    /// C3: requests of an older list are refused.
    ListChecked,
    /// C1: an update that overlaps with something unsynced is gated.
    OverlapGated,
    /// Pitfall 2: a read that overlaps is gated, too.
    ReadGated,
    /// F1: reads need a lease.
    ReadLeased,
    /// CURP 3.2.1: all witnesses must accept.
    AllAccept,
    /// CURP 4.6: a witness that was read accepts nothing.
    Frozen,
    /// Section 7, step 4: a recovery waits for a witness.
    WitnessAwaited,
    /// CURP 4.5: witnesses drop only what is synced.
    GcAfterSync,
    /// Section 6: a stale suspect is dropped when the entry that made it stale is synced.
    SuspectAfterSync,
}

/// The name of the switch, the rule, the code that keeps it, and the program in which its absence shows.
pub const SWITCHES: &[(Rule, Broken, &Program)] = &[
    (
        Rule::AttemptsApart,
        Broken {
            name: "attempts_mixed",
            rule: "R2.1 [M]",
            what: "an answer of one attempt and acceptances of another count together",
            code: "witness::Attempt, client replies::in_flight",
        },
        &program::FAIL_OVER,
    ),
    (
        Rule::SyncOfItsEpoch,
        Broken {
            name: "sync_in_another_epoch",
            rule: "R2.1 [M]",
            what: "a sync is confirmed by another term than the one that answered",
            code: "node replica::on_sync, client replies::on_synced",
        },
        &program::FAIL_OVER,
    ),
    (
        Rule::BodyFrozen,
        Broken {
            name: "body_rebuilt",
            rule: "R2.1 [M]",
            what: "a retry takes the client's newest lease into the body",
            code: "client updates::number",
        },
        &program::LEASES,
    ),
    (
        Rule::RefusalNoOutcome,
        Broken {
            name: "refusal_taken_for_an_outcome",
            rule: "R2.2",
            what: "a client reports a refused update as not executed",
            code: "client replies::on_refused",
        },
        &program::LIST_CHANGE,
    ),
    (
        Rule::HeldDropped,
        Broken {
            name: "held_effects_kept",
            rule: "R3.1",
            what: "a deposed primary's held answers leave when its successor has synced as far",
            code: "node replica::lose_role, machine::Held",
        },
        &program::FAIL_OVER,
    ),
    (
        Rule::ReplayLooksUp,
        Broken {
            name: "replay_without_look_up",
            rule: "R4.5 [M]",
            what: "a new primary runs what its witness holds without looking it up",
            code: "node request::look_up",
        },
        &program::FAIL_OVER,
    ),
    (
        Rule::ReplayHeeds,
        Broken {
            name: "replay_ignores_acknowledgement",
            rule: "R4.5 [M]",
            what: "replay takes an acknowledged update for a new one",
            code: "exactly_once Tracker::look_up_replayed",
        },
        &program::FAIL_OVER,
    ),
    (
        Rule::ReplayRaisesNothing,
        Broken {
            name: "replay_acknowledges",
            rule: "R4.5 [M]",
            what: "replay believes the acknowledgement of what it runs",
            code: "exactly_once Tracker::complete_replayed",
        },
        &program::FAIL_OVER,
    ),
    (
        Rule::ReplayStoresOwn,
        Broken {
            name: "replay_stores_acknowledgement",
            rule: "R4.5 [M]",
            what: "replay stores the request's acknowledgement in the record",
            code: "node request::commit",
        },
        &program::TWO_FAIL_OVERS,
    ),
    (
        Rule::FloorLogged,
        Broken {
            name: "expiry_without_floor",
            rule: "R4.6 [M]",
            what: "an expired client's records go without a floor",
            code: "node leases::on_verdict",
        },
        &program::LEASES,
    ),
    (
        Rule::FloorInReplay,
        Broken {
            name: "floor_ignored_in_replay",
            rule: "R4.6 [M]",
            what: "replay runs what a floor refuses",
            code: "exactly_once Tracker::look_up_replayed",
        },
        &program::LEASES,
    ),
    (
        Rule::FloorRefusalSynced,
        Broken {
            name: "floor_refusal_ungated",
            rule: "R4.6 [M]",
            what: "a client is told that its lease is over before the floor is synced",
            code: "node request::refuse_below_floor",
        },
        &program::LEASES,
    ),
    (
        Rule::FloorSparesRevived,
        Broken {
            name: "floor_drops_the_revived",
            rule: "R4.6",
            what: "a synced floor drops records of its client that are younger than it",
            code: "node state::raise_floor",
        },
        &program::LEASES,
    ),
    (
        Rule::KeyOnWitness,
        Broken {
            name: "operation_key_not_recorded",
            rule: "R4.9 [M]",
            what: "the operation key is missing in the witness's footprint",
            code: "node witnessing::on_record",
        },
        &program::OPERATION_KEYS,
    ),
    (
        Rule::HitRecorded,
        Broken {
            name: "hit_without_record",
            rule: "R4.9 [M]",
            what: "a hit of an operation key writes no completion record",
            code: "node request::order",
        },
        &program::KEYS_EXPIRE,
    ),
    (
        Rule::HitGated,
        Broken {
            name: "hit_ungated",
            rule: "R4.9 [M]",
            what: "a hit or a mismatch is answered at once",
            code: "node request::overlap",
        },
        &program::OPERATION_KEYS,
    ),
    (
        Rule::NotAfter,
        Broken {
            name: "unprovable_runs",
            rule: "R4.9 [M]",
            what: "a request runs after its operation key's time to live",
            code: "node request::order",
        },
        &program::KEYS_EXPIRE,
    ),
    (
        Rule::PowerLostUnsure,
        Broken {
            name: "power_lost_witness_is_sure",
            rule: "R5.5",
            what: "a recovery takes the word of a witness whose machine lost power",
            code: "node witnessing::holding, witnesses::replayable",
        },
        &program::TWO_WITNESSES,
    ),
    (
        Rule::ListClosedFirst,
        Broken {
            name: "list_changed_at_once",
            rule: "R6.2 [M]",
            what: "a new list is committed while the primary still answers under the old one",
            code: "coordinator repair::close_list",
        },
        &program::LIST_CHANGE,
    ),
    (
        Rule::ListSynced,
        Broken {
            name: "list_closed_unsynced",
            rule: "R6.2 [M]",
            what: "a list counts as closed before what was answered under it is synced",
            code: "node serving::list_is_closed",
        },
        &program::LIST_CHANGE,
    ),
    (
        Rule::ListChecked,
        Broken {
            name: "list_unchecked",
            rule: "C3",
            what: "the primary answers requests of an older list",
            code: "node request::admit_envelope",
        },
        &program::LIST_CHANGE,
    ),
    (
        Rule::OverlapGated,
        Broken {
            name: "overlap_ignored",
            rule: "C1",
            what: "an update that touches something unsynced is answered at once",
            code: "node request::overlap",
        },
        &program::FAIL_OVER,
    ),
    (
        Rule::ReadGated,
        Broken {
            name: "read_ungated",
            rule: "pitfall 2",
            what: "a read of something unsynced is answered at once",
            code: "node reads::execute",
        },
        &program::READS,
    ),
    (
        Rule::ReadLeased,
        Broken {
            name: "read_without_lease",
            rule: "F1",
            what: "a deposed primary answers reads",
            code: "node reads::execute",
        },
        &program::READS,
    ),
    (
        Rule::AllAccept,
        Broken {
            name: "one_acceptance_enough",
            rule: "CURP 3.2.1",
            what: "a client completes when one witness of two accepted",
            code: "witness Attempt::verdict",
        },
        &program::TWO_WITNESSES,
    ),
    (
        Rule::Frozen,
        Broken {
            name: "freeze_ignored",
            rule: "CURP 4.6",
            what: "a witness goes on accepting after a recovery has read it",
            code: "witness Witness::freeze",
        },
        &program::FAIL_OVER,
    ),
    (
        Rule::WitnessAwaited,
        Broken {
            name: "witness_skipped",
            rule: "section 7, step 4",
            what: "without a witness's word a recovery falls through",
            code: "node beginning::end_replay",
        },
        &program::FAIL_OVER,
    ),
    (
        Rule::GcAfterSync,
        Broken {
            name: "gc_before_sync",
            rule: "CURP 4.5",
            what: "a witness is told to drop what is not synced",
            code: "node garbage::collect",
        },
        &program::FAIL_OVER,
    ),
    (
        Rule::SuspectAfterSync,
        Broken {
            name: "stale_suspect_dropped_at_once",
            rule: "section 6",
            what: "a stale suspect is dropped before what made it stale is synced",
            code: "node serving::on_gc_done",
        },
        &program::SUSPECTS,
    ),
];
