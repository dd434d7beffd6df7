//! The rules of this model that can be switched off.

use crate::Broken;
use crate::cleaner::bounds::{self, Bounds};

/// A rule that can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// A segment is freed only when all that lived in it stands further on.
    CopiedBeforeFreed,
    /// A member lets go of a segment when the word of it is synced.
    LetGoWhenSynced,
    /// What is copied is alive when its copy is appended.
    LiveWhenAppended,
    /// R5.7: a reference moves to the copy if it still leads to the origin.
    MovedIfLive,
    /// R5.8: what came after a floor is not forgotten by the floor's copy.
    FloorCopyForgetsNothing,
    /// No floor is copied while another is pending.
    NoFloorBehindPending,
    /// R5.9: a tombstone's range reaches to a pending copy of what it kills.
    TombstoneReachesCopy,
    /// R5.10: a copy's range begins no later than the oldest segment held.
    OldestHeld,
    /// R5.11: nothing of a client that a pending floor names is copied.
    NothingOfPendingFloor,
    /// R4.4: a record's copy carries the record's acknowledgement.
    AcknowledgementCopied,
    /// The newest word that an operation key had expired lives.
    DroppedKeyLives,
    /// A word that an operation key had expired ends no run that expires at that time.
    DroppedKeyTie,
    /// What has a pending copy is not copied again.
    OnePendingCopy,
    /// A pending copy is not given up.
    NoneAbandoned,
    /// A primary that is deposed settles its pending copies.
    DeposedSettles,
}

const fn broken(name: &'static str, rule: &'static str, what: &'static str, code: &'static str) -> Broken {
    Broken { name, rule, what, code }
}

/// What a rule's absence is called, the rule, who keeps it, and where its absence shows.
pub const SWITCHES: &[(Rule, Broken, &Bounds)] = &[
    (
        Rule::CopiedBeforeFreed,
        broken(
            "freed_before_copied",
            "section 5",
            "the word that a segment is freed stands before a copy of what lived in it",
            "log GroupWriter::segment_freed",
        ),
        &bounds::DELETED,
    ),
    (
        Rule::LetGoWhenSynced,
        broken(
            "freed_before_synced",
            "section 5",
            "a segment is let go before the word of it is synced",
            "node house::free_segments",
        ),
        &bounds::DELETED,
    ),
    (
        Rule::LiveWhenAppended,
        broken(
            "copy_judged_at_plan",
            "section 5",
            "an entry is copied that was alive when the cleaner planned the copy, and has died since",
            "node relocation::movable",
        ),
        &bounds::DELETED,
    ),
    (
        Rule::MovedIfLive,
        broken(
            "stale_copy_moved",
            "R5.7",
            "a reference moves to the copy although it leads elsewhere by then",
            "-: references move at once",
        ),
        &bounds::DELETED_LATER,
    ),
    (
        Rule::FloorCopyForgetsNothing,
        broken(
            "floor_copied_as_new",
            "R5.8",
            "a floor's copy names the client, and forgets what is recorded before the copy",
            "node relocation::Moving::write",
        ),
        &bounds::FLOOR,
    ),
    (
        Rule::NoFloorBehindPending,
        broken(
            "floor_copied_behind_pending",
            "R4.6, F2",
            "a floor is copied behind a later one that is not in force yet, and a replay takes the last",
            "node serving::clean; state::replay",
        ),
        &bounds::FLOORS,
    ),
    (
        Rule::TombstoneReachesCopy,
        broken(
            "pending_copy_without_tombstone",
            "R5.9",
            "a tombstone does not name the segment of a pending copy of what it kills",
            "-: references move at once",
        ),
        &bounds::DELETED_LATER,
    ),
    (
        Rule::OldestHeld,
        broken(
            "copy_narrows_oldest",
            "R5.10",
            "a copy says that no older entry of its key is left, although its original is",
            "store Store::movable",
        ),
        &bounds::DELETED,
    ),
    (
        Rule::NothingOfPendingFloor,
        broken(
            "record_of_pending_floor_copied",
            "R5.11",
            "a record is copied behind a floor that names its client and is not in force yet",
            "node serving::clean",
        ),
        &bounds::FLOOR,
    ),
    (
        Rule::AcknowledgementCopied,
        broken(
            "copy_without_acknowledgement",
            "R4.4",
            "a record's copy says nothing of what was acknowledged",
            "node relocation::Moving::write",
        ),
        &bounds::RECORDS,
    ),
    (
        Rule::DroppedKeyLives,
        broken(
            "dropped_key_not_copied",
            "R4.9, R5.2",
            "the newest word that an operation key had expired goes with its segment",
            "node relocation::movable",
        ),
        &bounds::OPERATION_KEY,
    ),
    (
        Rule::DroppedKeyTie,
        broken(
            "dropped_key_tie",
            "R4.9",
            "the copied word that a key had expired ends a later run that expires at the same time",
            "exactly_once OperationKeys::drop_key",
        ),
        &bounds::OPERATION_KEY,
    ),
    (
        Rule::OnePendingCopy,
        broken(
            "copied_twice",
            "R5.7",
            "an entry with a pending copy is copied again, and members lead to different copies",
            "-: references move at once",
        ),
        &bounds::DELETED_LATER,
    ),
    (
        Rule::NoneAbandoned,
        broken(
            "copies_abandoned",
            "R5.7",
            "a pass is given up, and its copies are taken for dead",
            "-: references move at once",
        ),
        &bounds::DELETED_LATER,
    ),
    (
        Rule::DeposedSettles,
        broken(
            "deposed_keeps_pending",
            "R5.7",
            "a deposed primary keeps its memory and does not settle its pending copies",
            "-: references move at once",
        ),
        &bounds::DELETED_LATER,
    ),
];
