//! The rules of this model that can be switched off.

use crate::Broken;
use crate::distributed::program::Program;
use crate::distributed::programs;

/// A rule that can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// R8.1: a vote leaves when it is durable.
    VoteDurable,
    /// R8.1: a participant executes only after its own proposal is durable.
    ExecutedDurable,
    /// R8.1: CONFLICT is durable before it is told.
    ConflictDurable,
    /// R8.1: a transaction that votes is logged, even if it only reads.
    ReadOnlyLogged,
    /// R8.1: a new primary starts above the ceiling.
    Ceiling,
    /// R8.2: a vote implies something when all before it have arrived.
    ImpliedInOrder,
    /// R8.2: a vote implies something of those only whose vote has not arrived.
    ImpliedIfMissing,
    /// R8.3: a prepare conflicts with what has proposed and is not executed.
    PrepareSeesPending,
    /// R8.3: an independent transaction waits for a lock before it proposes.
    LockAwaited,
    /// R8.4: a write after a read has the read's transaction in its gate.
    AntiDependencyGated,
    /// R8.4: gates of earlier operations are inherited.
    GatesInherited,
    /// R8.4: word of settlement leaves under the gate.
    SettledGated,
    /// R8.4, 0030: a gate that others were told of opens when what it names has settled.
    ToldGateHeeded,
    /// R8.4: coordinated transactions are in gates.
    CoordinatedGates,
    /// R8.4: transactions that only read are in gates.
    ReadOnlyGates,
    /// R8.5: votes do not wait for settlement.
    VotesUngated,
    /// R8.5: locks are released without waiting for settlement.
    ReleasesUngated,
    /// R8.14: a cancel does nothing where the transaction has proposed.
    CancelOnlyNew,
    /// R8.5: ABORT is told under the gate of what its predicate read.
    AbortGated,
    /// R8.6: saved answers pass their gates again.
    GatesRecovered,
    /// R8.7: an outcome that is not synced is an overlap.
    OutcomeOverlaps,
    /// R8.7: an operation does not run ahead of a pending transaction.
    WaitsForPending,
    /// R8.8: the floor rises to the timestamp of a decision.
    DecisionRaisesFloor,
    /// R8.8: the client returns after the prepares only if every gate was open.
    PreparedSettled,
    /// R8.10: what a witness has is skipped if it conflicts with something pending.
    ReplaySkips,
    /// R8.11: a participant asks the others.
    PeersAsked,
    /// R8.11: a participant that is asked records CONFLICT.
    ConflictRecorded,
    /// R8.9: a transaction is kept until every participant has its outcome on every member.
    RetainedUntilRecorded,
    /// R8.9: a transaction is kept until it has settled.
    RetainedUntilSettled,
    /// R8.9: what is prepared outlives its client's lease.
    PreparedOutlivesLease,
    /// R8.11: for a stale transaction the answer is *never*, and nothing is recorded.
    StaleIsNever,
    /// R8.15: a gate that is not empty is logged, and stays until it has opened.
    GateLogged,
    /// One round trip (a): a prepare is answered fast only if nothing overlaps.
    FastPrepareAlone,
    /// One round trip (b): the answer and the acceptance are of one attempt.
    OneAttempt,
    /// One round trip (c): a recovery replays prepares before it serves.
    PrepareReplayed,
    /// One round trip (e): where a vote has left, a decision's timestamp does not count any more.
    SentVoteDecides,
    /// R8.16: the first read leaves under its gate.
    FirstReadGated,
    /// R8.16: the first read leaves when what it saw is synced.
    FirstReadSynced,
    /// R8.16: the second read waits for what is pending when it comes.
    SecondReadWaits,
    /// R8.16: the second read comes when all shards have answered the first.
    SecondReadLate,
}

const fn broken(name: &'static str, rule: &'static str, what: &'static str, code: &'static str) -> Broken {
    Broken { name, rule, what, code }
}

/// The name of the switch, the rule, the code that keeps it, and the program in which its absence shows.
pub const SWITCHES: &[(Rule, Broken, &Program)] = &[
    (
        Rule::VoteDurable,
        broken("vote_unsynced", "R8.1 [M]", "a vote leaves before it is durable", "distributed steps::word"),
        &programs::ORDER,
    ),
    (
        Rule::ExecutedDurable,
        broken(
            "executed_before_own_vote",
            "R8.1 [M]",
            "a participant executes before its own proposal is durable",
            "distributed steps::step_of",
        ),
        &programs::ORDER,
    ),
    (
        Rule::ConflictDurable,
        broken(
            "conflict_unsynced",
            "R8.1 [M]",
            "CONFLICT is told before it is durable",
            "distributed steps::word; node request::refuse_for_good, steps::end_transaction",
        ),
        &programs::AGAINST,
    ),
    (
        Rule::ReadOnlyLogged,
        broken(
            "read_only_unlogged",
            "R8.1 [M]",
            "a transaction that only reads is not logged",
            "node request::propose_at",
        ),
        &programs::READ_ONLY,
    ),
    (
        Rule::Ceiling,
        broken(
            "ceiling_ignored",
            "R8.1 [M]",
            "a new primary proposes below the ceiling",
            "distributed steps::step_of, participant::begin_serving; node steps::take_step",
        ),
        &programs::CEILING,
    ),
    (
        Rule::ImpliedInOrder,
        broken(
            "implied_out_of_order",
            "R8.2 [M]",
            "a vote implies others though one before it is missing",
            "not built: votes imply nothing (0028)",
        ),
        &programs::IMPLIED_OUT_OF_ORDER,
    ),
    (
        Rule::ImpliedIfMissing,
        broken(
            "implied_for_one_that_arrived",
            "R8.2 [M]",
            "a vote implies that another is higher than it was",
            "not built: votes imply nothing (0028)",
        ),
        &programs::IMPLIED,
    ),
    (
        Rule::PrepareSeesPending,
        broken(
            "prepare_ignores_pending",
            "R8.3 [M]",
            "a prepare asks for locks only",
            "distributed steps::on_request, pending::in_the_way",
        ),
        &programs::MIXED,
    ),
    (
        Rule::LockAwaited,
        broken(
            "proposed_under_a_lock",
            "R8.3 [M]",
            "an independent transaction proposes under a lock",
            "distributed steps::on_request; node request::propose",
        ),
        &programs::LOCK_AWAITED,
    ),
    (
        Rule::AntiDependencyGated,
        broken(
            "anti_dependency_ungated",
            "R8.4 [M]",
            "a write after a read does not wait for the reader to settle",
            "distributed gates::inherited",
        ),
        &programs::LATE_ARRIVAL,
    ),
    (
        Rule::GatesInherited,
        broken(
            "gates_not_inherited",
            "R8.4 [M]",
            "only what conflicts itself is in a gate",
            "distributed gates::pass, gates::leave: the last transaction alone (0027)",
        ),
        &programs::LOCAL_CHAIN,
    ),
    (
        Rule::SettledGated,
        broken(
            "settled_ungated",
            "R8.4 [M]",
            "word of settlement leaves before the gate opens",
            "distributed steps::word, retention::is_settled_everywhere",
        ),
        &programs::CHAIN,
    ),
    (
        Rule::ToldGateHeeded,
        broken(
            "told_gate_ignored",
            "R8.4, 0030",
            "a gate that others were told of is taken for open",
            "distributed told_gates::on_behind",
        ),
        &programs::CHAIN,
    ),
    (
        Rule::CoordinatedGates,
        broken(
            "coordinated_without_gate",
            "R8.4 [M]",
            "coordinated transactions are in no gate",
            "distributed participant::executed, gates::pass",
        ),
        &programs::LOCKED_CHAIN,
    ),
    (
        Rule::ReadOnlyGates,
        broken(
            "read_only_without_gate",
            "R8.4 [M]",
            "transactions that only read are in no gate",
            "distributed gates::pass, gates::leave",
        ),
        &programs::READ_ONLY,
    ),
    (
        Rule::VotesUngated,
        broken(
            "votes_wait_for_settlement",
            "R8.5 [M]",
            "a vote waits for what it conflicts with to settle",
            "distributed steps::word",
        ),
        &programs::ORDER,
    ),
    (
        Rule::ReleasesUngated,
        broken(
            "releases_wait_for_settlement",
            "R8.5 [M]",
            "a lock is kept until what was read has settled",
            "distributed steps::step_of, participant::executed",
        ),
        &programs::RELEASES,
    ),
    (
        Rule::CancelOnlyNew,
        broken(
            "cancel_after_proposing",
            "R8.14 [M]",
            "a cancel aborts what has proposed",
            "node request::look_up, request::propose",
        ),
        &programs::CANCEL,
    ),
    (
        Rule::AbortGated,
        broken(
            "abort_ungated",
            "R8.5 [M]",
            "ABORT is told before what its predicate read has settled",
            "distributed participant::aborted; node request::refuse_for_good",
        ),
        &programs::ABORT,
    ),
    (
        Rule::GatesRecovered,
        broken(
            "gates_forgotten_at_recovery",
            "R8.6 [M]",
            "a new primary answers without gates",
            "distributed participant::begin_serving; node distributed::replay_ended, replay_gate, request::answer",
        ),
        &programs::LOCAL_CHAIN,
    ),
    (
        Rule::OutcomeOverlaps,
        broken(
            "released_taken_for_synced",
            "R8.7 [M]",
            "an update is answered fast though the outcome that freed its keys is not synced",
            "distributed fresh::overlaps; node request::overlap",
        ),
        &programs::RELEASED,
    ),
    (
        Rule::WaitsForPending,
        broken(
            "pending_is_no_overlap",
            "R8.7 [M]",
            "an update runs ahead of a pending transaction",
            "node request::order; distributed participant::blocked_by",
        ),
        &programs::PENDING,
    ),
    (
        Rule::DecisionRaisesFloor,
        broken(
            "decision_keeps_the_floor",
            "R8.8 [M]",
            "a decision does not raise the floor",
            "distributed participant::executed: of a final timestamp, for no client decides (0029)",
        ),
        &programs::DECISION,
    ),
    (
        Rule::PreparedSettled,
        broken(
            "returned_unsettled",
            "R8.8 [M]",
            "the client returns after the prepares though a gate was shut",
            "distributed participant::may_tell_prepared; node request::tell_prepared",
        ),
        &programs::EARLY,
    ),
    (
        Rule::PreparedSettled,
        broken(
            "returned_unsettled_in_one_trip",
            "R8.8, one round trip (d) [M]",
            "the client returns after one round trip though a gate was shut",
            "distributed participant::may_tell_prepared (0032)",
        ),
        &programs::ONE_TRIP_EARLY,
    ),
    (
        Rule::ReplaySkips,
        broken(
            "replay_ahead_of_pending",
            "R8.10 [M]",
            "an update from a witness runs ahead of a recovered pending transaction",
            "node request::order, beginning::begin_epoch",
        ),
        &programs::PENDING,
    ),
    (
        Rule::ConflictRecorded,
        broken(
            "conflict_unrecorded",
            "R8.11 [M]",
            "CONFLICT for what is new is not recorded",
            "node words::on_unknown",
        ),
        &programs::AGAINST,
    ),
    (
        Rule::PeersAsked,
        broken(
            "nobody_asks",
            "R8.11 [M]",
            "a participant waits for a vote and asks nobody",
            "distributed steps::ask_again; node distributed::transact_some",
        ),
        &programs::DEAD_CLIENT,
    ),
    (
        Rule::RetainedUntilRecorded,
        broken(
            "forgotten_at_acknowledgement",
            "R8.9 [M]",
            "a transaction goes when its client acknowledges",
            "distributed retention::is_done",
        ),
        &programs::RETENTION,
    ),
    (
        Rule::RetainedUntilRecorded,
        broken(
            "acknowledged_before_the_decision",
            "R8.9 [M]",
            "an interactive transaction goes when its client acknowledges, before every decision is on every member",
            "distributed retention::is_done: of outcomes, for no client decides (0029)",
        ),
        &programs::RETAINED_DECISION,
    ),
    (
        Rule::RetainedUntilSettled,
        broken(
            "forgotten_before_settled",
            "R8.9 [M]",
            "a transaction goes before it has settled",
            "distributed retention::is_done",
        ),
        &programs::UNSETTLED,
    ),
    (
        Rule::PreparedOutlivesLease,
        broken(
            "prepared_expired_with_its_lease",
            "R8.9 [M]",
            "a lock goes when the client's lease ends",
            "distributed retention::is_done; exactly_once Tracker::raise_floor",
        ),
        &programs::DEAD_CLIENT,
    ),
    (
        Rule::StaleIsNever,
        broken(
            "conflict_for_a_stale_id",
            "R8.11 [M]",
            "CONFLICT is recorded for what was forgotten",
            "node words::on_unknown; distributed participant::say_never",
        ),
        &programs::RETENTION,
    ),
    (
        Rule::GateLogged,
        broken(
            "gate_cleaned",
            "R8.15 [M]",
            "a gate goes with its record",
            "node request::find_gate, request::commit, relocation::movable",
        ),
        &programs::FOOTPRINT_RECOVERED,
    ),
    (
        Rule::FastPrepareAlone,
        broken(
            "fast_prepare_over_an_overlap",
            "one round trip (a) [M]",
            "a prepare is answered fast over an overlap",
            "node request::overlap_of_prepared, release (0032)",
        ),
        &programs::TWO_TRIPS,
    ),
    (
        Rule::OneAttempt,
        broken(
            "attempts_of_a_prepare_mixed",
            "one round trip (b) [M]",
            "an answer and an acceptance of different attempts count",
            "client participants::Asked, judge_participant (0032)",
        ),
        &programs::PREPARED_AGAIN,
    ),
    (
        Rule::PrepareReplayed,
        broken(
            "prepare_not_replayed",
            "one round trip (c) [M]",
            "a recovery leaves prepares at the witness",
            "node request::propose, on_replay (0032)",
        ),
        &programs::ONE_TRIP,
    ),
    (
        Rule::SentVoteDecides,
        broken(
            "decision_after_a_sent_vote",
            "one round trip (e) [M]",
            "a decision's timestamp counts though the own vote has left",
            "none: participants decide by votes alone (0032)",
        ),
        &programs::TWO_TIMESTAMPS,
    ),
    (
        Rule::FirstReadGated,
        broken(
            "first_read_ungated",
            "R8.16 [M]",
            "the first of two reads leaves before its gate opens",
            "node reads::gate_behind; distributed participant::wait_as",
        ),
        &programs::DOUBLE_READ_UNSETTLED,
    ),
    (
        Rule::FirstReadSynced,
        broken(
            "first_read_unsynced",
            "R8.16 [M]",
            "the first of two reads saw what is not synced",
            "node reads::execute",
        ),
        &programs::DOUBLE_READ,
    ),
    (
        Rule::SecondReadWaits,
        broken(
            "second_read_past_a_pending",
            "R8.16 [M]",
            "the second of two reads passes something pending",
            "node reads::order, reads::all_pending_before: the read waits",
        ),
        &programs::DOUBLE_READ_PENDING,
    ),
    (
        Rule::SecondReadWaits,
        broken(
            "second_read_past_a_lock",
            "R8.16 [M]",
            "the second of two reads passes a lock",
            "node reads::order, reads::all_pending_before: the read waits",
        ),
        &programs::DOUBLE_READ_LOCKED,
    ),
    (
        Rule::SecondReadLate,
        broken(
            "second_read_asked_early",
            "R8.16 [M]",
            "the second of two reads comes to a shard before all shards have answered the first",
            "client snapshots::end_round",
        ),
        &programs::DOUBLE_READ_EARLY,
    ),
];
