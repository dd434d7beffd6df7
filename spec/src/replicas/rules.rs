//! The rules of this model that can be switched off, with the code that keeps each and the bounds in which its absence
//! shows.

use crate::Broken;
use crate::replicas::bounds::{self, Bounds};

/// A rule that can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// R7.2: a set is committed before syncs count against it.
    SetCommitted,
    /// R7.2: a sync counts every member.
    AllMembers,
    /// R7.2: joiners count.
    JoinersCounted,
    /// R7.2: only complete copies are elected.
    CompleteElected,
    /// Section 7, step 2: a member that has promised an epoch obeys no older one.
    EpochFenced,
    /// R5.3, F2: a promise survives a restart.
    PromiseDurable,
    /// Section 7, step 2: the greatest log is taken.
    GreatestTaken,
    /// Section 7, step 2: a member's log is cut where it differs from the primary's.
    TailCut,
    /// R5.5: a member that lost power does not count until it is copied again.
    BootId,
    /// Decision 0005: an epoch is begun by one process only.
    EpochBegunOnce,
    /// Decision 0007, 6: a copy is let go only on behalf of a primary that lives.
    CopyLetGoByTheLiving,
    /// Decision 0009: frames of another attachment do not count.
    AttachNumbered,
    /// Decision 0009: a set that is too small syncs nothing.
    FewestPeers,
    /// R7.2: a member that was let go keeps its copy until the set is whole without it.
    KeptUntilWhole,
    /// A joiner's log begins below everything unsynced.
    JoinBelowUnsynced,
}

/// The name of the switch, the rule, the code that keeps it, and the bounds in which its absence shows.
pub const SWITCHES: &[(Rule, Broken, &Bounds)] = &[
    (
        Rule::SetCommitted,
        Broken {
            name: "set_changed_uncommitted",
            rule: "R7.2 [M]",
            what: "a primary leaves a silent member out before the coordinator has",
            code: "replication Shipping::set_members",
        },
        &bounds::FENCING,
    ),
    (
        Rule::AllMembers,
        Broken {
            name: "synced_at_any_member",
            rule: "R7.2 [M]",
            what: "a sync counts when any member holds the log",
            code: "replication Shipping::advance",
        },
        &bounds::THREE_MEMBERS,
    ),
    (
        Rule::JoinersCounted,
        Broken {
            name: "joiners_uncounted",
            rule: "R7.2 [M]",
            what: "joiners do not count for syncs",
            code: "replication Shipping::advance",
        },
        &bounds::REPLACEMENT,
    ),
    (
        Rule::CompleteElected,
        Broken {
            name: "joiner_elected",
            rule: "R7.2 [M]",
            what: "a joiner that has the tail only passes for complete, and is elected",
            code: "node copying::end_of_copy, replication Shipping::copied",
        },
        &bounds::REPLACEMENT,
    ),
    (
        Rule::EpochFenced,
        Broken {
            name: "epoch_not_fenced",
            rule: "section 7, step 2",
            what: "who has promised an epoch takes appends of an older one",
            code: "node backup::on_append",
        },
        &bounds::FENCING,
    ),
    (
        Rule::PromiseDurable,
        Broken {
            name: "promise_forgotten",
            rule: "R5.3, F2",
            what: "a promise is forgotten at a restart",
            code: "node copy::promise",
        },
        &bounds::RESTARTS,
    ),
    (
        Rule::GreatestTaken,
        Broken {
            name: "own_log_taken",
            rule: "section 7, step 2",
            what: "a new primary takes its own log, whatever the others report",
            code: "replication Election::choice",
        },
        &bounds::POWER,
    ),
    (
        Rule::TailCut,
        Broken {
            name: "tail_kept",
            rule: "section 7, step 2",
            what: "a member keeps a tail that its primary's log does not have",
            code: "replication join_point, node backup::obey_attach",
        },
        &bounds::FENCING,
    ),
    (
        Rule::BootId,
        Broken {
            name: "power_loss_unnoticed",
            rule: "R5.5",
            what: "a member that lost power passes for intact",
            code: "node load::judge_boot",
        },
        &bounds::POWER,
    ),
    (
        Rule::EpochBegunOnce,
        Broken {
            name: "epoch_begun_twice",
            rule: "decision 0005",
            what: "a restarted primary begins its epoch again",
            code: "node replica::obey_primary",
        },
        &bounds::RESTARTS,
    ),
    (
        Rule::CopyLetGoByTheLiving,
        Broken {
            name: "copy_let_go_by_the_dead",
            rule: "decision 0007",
            what: "a complete copy leaves the set of a primary that is dead",
            code: "coordinator repair::may_drop_a_copy",
        },
        &bounds::DEATH,
    ),
    (
        Rule::AttachNumbered,
        Broken {
            name: "attachments_mixed",
            rule: "decision 0009",
            what: "an acknowledgement of an earlier attachment counts",
            code: "replication Shipping::peer_mut",
        },
        &bounds::REPLACEMENT,
    ),
    (
        Rule::FewestPeers,
        Broken {
            name: "too_few_members_sync",
            rule: "decision 0009",
            what: "a set that was reduced to too few lets answers out",
            code: "replication Shipping::require_peers",
        },
        &bounds::REPLACEMENT,
    ),
    (
        Rule::KeptUntilWhole,
        Broken {
            name: "copy_discarded_early",
            rule: "R7.2, D1",
            what: "who was let go discards its copy at once",
            code: "node configure::obey_shard",
        },
        &bounds::REPLACEMENT,
    ),
    (
        Rule::JoinBelowUnsynced,
        Broken {
            name: "joiner_above_unsynced",
            rule: "R7.2",
            what: "a joiner's log begins above what is not synced yet",
            code: "replication join_point",
        },
        &bounds::REPLACEMENT,
    ),
];
