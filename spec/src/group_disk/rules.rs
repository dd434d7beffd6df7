//! The rules of this model that can be switched off: R9.5's rules of files.

use crate::Broken;
use crate::group_disk::bounds::{self, Bounds};

/// A rule that can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// A member acknowledges what is fsynced.
    AcknowledgedFromDisk,
    /// The log view is written together with its log.
    LogViewWithLog,
    /// A record continues the checksum of the one before it.
    ChainContinued,
    /// A file is zeroed before its next lap.
    ZeroedBeforeLap,
    /// A load zeroes what is behind the last good record, and a file whose snapshot is not whole.
    RestZeroed,
    /// A cut begins a new file.
    CutBeginsFile,
    /// A new file has the view that was entered, too.
    ViewCarried,
    /// The old file stays until the new one is on the disk.
    OldFileStays,
    /// A record counts when all of its pages are there.
    WholeRecords,
    /// A bad last record in the same boot is damage.
    DamageIsNotMissing,
    /// But not if its end is zeros.
    ZerosAreATornEnd,
}

const fn broken(name: &'static str, what: &'static str, code: &'static str) -> Broken {
    Broken { name, rule: "R9.5", what, code }
}

/// The name of the switch, the rule, the code that keeps it, and the bounds in which its absence shows.
pub const SWITCHES: &[(Rule, Broken, &Bounds)] = &[
    (
        Rule::AcknowledgedFromDisk,
        broken("file_not_synced", "a member acknowledges what is in its page cache", "viewstamped journal"),
        &bounds::CRASHES,
    ),
    (
        Rule::LogViewWithLog,
        broken("log_view_before_its_log", "a log view is on disk before the log that it names", "viewstamped journal"),
        &bounds::CRASHES,
    ),
    (
        Rule::ChainContinued,
        broken("old_lap_read", "a record's checksum is about that record only", "viewstamped journal"),
        &bounds::CRASHES,
    ),
    (
        Rule::ZeroedBeforeLap,
        broken("lap_not_zeroed", "a file keeps its records when its next lap begins", "viewstamped journal"),
        &bounds::CRASHES,
    ),
    (
        Rule::RestZeroed,
        broken(
            "torn_end_kept",
            "what a loss of power left behind the last good record stays there",
            "viewstamped journal",
        ),
        &bounds::CRASHES,
    ),
    (
        Rule::CutBeginsFile,
        broken("cut_in_place", "the log of a new view overwrites what it cuts", "viewstamped journal"),
        &bounds::CRASHES,
    ),
    (
        Rule::ViewCarried,
        broken("view_cut", "a new file lacks the view that was entered", "viewstamped journal"),
        &bounds::CRASHES,
    ),
    (
        Rule::OldFileStays,
        broken("old_file_zeroed_early", "a file is zeroed before the next one is on the disk", "viewstamped journal"),
        &bounds::CRASHES,
    ),
    (
        Rule::WholeRecords,
        broken("torn_record_counts", "a record counts when its first page is there", "viewstamped journal"),
        &bounds::CRASHES,
    ),
    (
        Rule::DamageIsNotMissing,
        broken("damage_taken_for_missing", "a bad last record counts as never written", "viewstamped journal"),
        &bounds::ROT,
    ),
    (
        Rule::ZerosAreATornEnd,
        broken("torn_end_taken_for_damage", "a record that a kill cut off counts as damage", "viewstamped journal"),
        &bounds::CRASHES,
    ),
];
