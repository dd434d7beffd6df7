//! The rules of this model that can be switched off: R9.1 to R9.6, clause by clause, and what their text leaves open.

use crate::Broken;
use crate::group::bounds::{self, Bounds};

/// A rule that can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// R9.1: nothing is told before a quorum has it on disk.
    QuorumBeforeTold,
    /// R9.2: an answer waits for a round.
    AnswerWaits,
    /// R9.2: the round began after the question came.
    RoundIsYounger,
    /// Decision 0054: an answer waits for all that was decided when its question came.
    AnswerFollowsDecided,
    /// A leader begins with an operation of its own view.
    LeadBegins,
    /// R9.3: leases are counted from when the leader holds its quorum.
    CountedFromQuorum,
    /// R9.3: also for a node that never spoke to this leader.
    CountedForTheSilent,
    /// R9.3: a lower lease lowers the bound one old bound later.
    BoundLater,
    /// R9.4: members remember the times of rounds.
    TimeRemembered,
    /// R9.4: a new leader goes on from the greatest time of its quorum.
    TimeOfQuorum,
    /// R9.4: whoever forgot the time says the reservation of the merged log.
    ReservationOfMerged,
    /// R9.4: only then the reservation is taken.
    ReservationOnlyThen,
    /// R9.4: a process that restarted in one boot counts the time since its last record fast.
    RestartCountsFast,
    /// R9.5, R9.8: a view is on disk before its member says anything in it.
    ViewOnDisk,
    /// R9.5: an operation is on disk before it is acknowledged.
    AcknowledgedFromDisk,
    /// R9.5: the log view is written together with its log.
    LogViewWithLog,
    /// R9.5: a new file begins with committed operations only.
    SnapshotOfCommitted,
    /// R9.5: a new file has the operations that are not committed yet, too.
    SnapshotWithSuffix,
    /// R9.5: the log of the greatest log view is taken.
    LogViewRanks,
    /// R9.5: of one log view, the longest log is taken.
    LongestTaken,
    /// A view is (number, leader).
    ViewHasOneLeader,
    /// A process that restarted does not go on leading its view.
    LedByOneProcess,
    /// R9.6: a view change needs a quorum of the newest list in its merged log.
    QuorumOfMerged,
    /// R9.6: one change of members at a time.
    OneChange,
    /// R9.6: a change waits for an operation of the leader's own view.
    ChangeAfterOwn,
    /// R9.6: a newcomer counts when it has caught up.
    NewcomerCaughtUp,
    /// R9.6: one becomes three when the one has that on its own disk.
    GrowsFromDisk,
    /// R9.6: whoever lost its files never votes.
    FilesNeeded,
}

const fn broken(name: &'static str, rule: &'static str, what: &'static str, code: &'static str) -> Broken {
    Broken { name, rule, what, code }
}

/// The name of the switch, the rule, the code that keeps it, and the bounds in which its absence shows.
pub const SWITCHES: &[(Rule, Broken, &Bounds)] = &[
    (
        Rule::QuorumBeforeTold,
        broken(
            "told_before_quorum",
            "R9.1",
            "an operation is told when its leader has appended it",
            "coordinator Ledger::is_committed",
        ),
        &bounds::VIEWS,
    ),
    (
        Rule::AnswerWaits,
        broken("answered_at_once", "R9.2 [M]", "an answer waits for no round", "viewstamped rounds::is_confirmed"),
        &bounds::LEASE,
    ),
    (
        Rule::RoundIsYounger,
        broken(
            "round_too_old",
            "R9.2 [M]",
            "an answer waits for a round that began before its question came",
            "viewstamped rounds::is_confirmed",
        ),
        &bounds::LEASE,
    ),
    (
        Rule::AnswerFollowsDecided,
        broken(
            "answer_of_the_committed_state",
            "R9.2, decision 0054",
            "a leader answers from what it knows as committed, and waits for its round only",
            "coordinator Basis",
        ),
        &bounds::ROUNDS,
    ),
    (
        Rule::LeadBegins,
        broken(
            "led_without_an_operation",
            "R9.2, R9.3",
            "a new leader appends nothing, and answers by what its predecessors had committed",
            "coordinator Lead::begin",
        ),
        &bounds::LEASE,
    ),
    (
        Rule::CountedFromQuorum,
        broken(
            "counted_from_the_wish",
            "R9.3 [M]",
            "a new leader counts leases from its wish for the view",
            "coordinator NodeLeases",
        ),
        &bounds::LEASE,
    ),
    (
        Rule::CountedForTheSilent,
        broken(
            "silent_node_has_no_lease",
            "R9.3 [M]",
            "a node that never spoke to this leader is taken to have no lease",
            "coordinator NodeLeases::register",
        ),
        &bounds::LEASE,
    ),
    (
        Rule::BoundLater,
        broken(
            "bound_lowered_at_once",
            "R9.3 [M]",
            "a lower lease lowers the bound with the same operation",
            "coordinator settings",
        ),
        &bounds::SHORTER_LEASE,
    ),
    (
        Rule::TimeRemembered,
        broken(
            "time_forgotten",
            "R9.4 [M]",
            "members do not remember the times of rounds",
            "viewstamped rounds::on_round",
        ),
        &bounds::TIME,
    ),
    (
        Rule::TimeOfQuorum,
        broken(
            "time_from_own_memory",
            "R9.4 [M]",
            "a new leader goes on from the time that it remembers itself",
            "coordinator Lead::begin",
        ),
        &bounds::TIME,
    ),
    (
        Rule::ReservationOfMerged,
        broken(
            "reservation_ignored",
            "R9.4 [M]",
            "a member that has forgotten the time counts as one that heard of none",
            "coordinator Lead::begin",
        ),
        &bounds::TIME,
    ),
    (
        Rule::ReservationOnlyThen,
        broken(
            "time_from_the_reservation",
            "R9.4 [M]",
            "every new leader goes on from the reservation of its log",
            "coordinator Lead::begin",
        ),
        &bounds::TIME,
    ),
    (
        Rule::RestartCountsFast,
        broken(
            "restart_counts_slow",
            "R9.4",
            "a process that restarted counts the time since its last record by a clock that may be slow",
            "coordinator time",
        ),
        &bounds::TIME_RESTARTS,
    ),
    (
        Rule::ViewOnDisk,
        broken("view_forgotten", "R9.5, R9.8", "a view is entered without an fsync", "viewstamped election::enter"),
        &bounds::RESTARTS,
    ),
    (
        Rule::AcknowledgedFromDisk,
        broken(
            "acknowledged_before_fsync",
            "R9.5",
            "a member acknowledges an operation that is not on its disk yet",
            "viewstamped normal::on_prepare",
        ),
        &bounds::RESTARTS,
    ),
    (
        Rule::LogViewWithLog,
        broken(
            "log_view_ahead_of_its_log",
            "R9.5",
            "the log view is written before the log that it names",
            "viewstamped election::take_log",
        ),
        &bounds::RESTARTS_TWO_OPERATIONS,
    ),
    (
        Rule::SnapshotOfCommitted,
        broken(
            "decided_in_snapshot",
            "R9.5",
            "a new file begins with a snapshot of what is decided",
            "coordinator storage",
        ),
        &bounds::SNAPSHOT,
    ),
    (
        Rule::SnapshotWithSuffix,
        broken("suffix_forgotten", "R9.5", "a new file lacks what is not committed yet", "coordinator storage"),
        &bounds::SNAPSHOT,
    ),
    (
        Rule::LogViewRanks,
        broken(
            "log_view_ignored",
            "R9.5",
            "the log with the most operations is taken, whatever its log view",
            "viewstamped election::decide_election",
        ),
        &bounds::VIEWS,
    ),
    (
        Rule::LongestTaken,
        broken(
            "shortest_log",
            "R9.5",
            "of the logs of one log view the shortest is taken",
            "viewstamped election::decide_election",
        ),
        &bounds::VIEWS,
    ),
    (
        Rule::ViewHasOneLeader,
        broken(
            "view_without_leader",
            "part B, shape",
            "a view is a number, and two members take it for theirs",
            "viewstamped View",
        ),
        &bounds::VIEWS,
    ),
    (
        Rule::LedByOneProcess,
        broken(
            "view_led_twice",
            "R9.5, R9.10",
            "a leader that restarts goes on leading its view, with the log of its disk",
            "viewstamped journal::read",
        ),
        &bounds::RESTARTS_TWO_OPERATIONS,
    ),
    (
        Rule::QuorumOfMerged,
        broken(
            "own_list_s_quorum",
            "R9.6 [M]",
            "a view change counts the list in the leader's own log",
            "viewstamped election::decide_election",
        ),
        &bounds::MEMBERS,
    ),
    (
        Rule::OneChange,
        broken(
            "two_changes_at_once",
            "R9.6 [M]",
            "a change of members does not wait for the one before it",
            "viewstamped change::change",
        ),
        &bounds::MEMBERS,
    ),
    (
        Rule::ChangeAfterOwn,
        broken(
            "change_before_own_operation",
            "R9.6 [M]",
            "a change of members does not wait for an operation of the leader's view",
            "viewstamped change::change",
        ),
        &bounds::FOUR_MEMBERS,
    ),
    (
        Rule::NewcomerCaughtUp,
        broken(
            "newcomer_counts_early",
            "R9.6",
            "a newcomer takes and acknowledges the newest operation without those before it",
            "viewstamped transfer::on_log",
        ),
        &bounds::MEMBERS,
    ),
    (
        Rule::GrowsFromDisk,
        broken(
            "growth_not_on_own_disk",
            "R9.6, R9.10",
            "the one that becomes three sends the list before its own disk has it",
            "viewstamped change::change",
        ),
        &bounds::ONE_BECOMES_THREE,
    ),
    (
        Rule::FilesNeeded,
        broken(
            "memory_loss_unnoticed",
            "R9.6",
            "a member that lost its files goes on with empty ones",
            "coordinator storage",
        ),
        &bounds::FILES_LOST,
    ),
];
