//! Names of the files that a core owns, and the trait through which a machine reads them when it starts.
//!
//! Writing goes through effects ([`crate::Effect::Write`] and others); a machine never opens a file.

use kasha_types::{ListVersion, SegmentId, ShardId};

/// A file of one core. The shell maps it to a path; the simulator to a map entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileName {
    /// A segment of a shard's replica.
    Segment {
        /// The shard of the replica.
        shard: ShardId,
        /// The segment's number.
        segment: SegmentId,
    },
    /// Epochs, fences and marks of a shard's replica (replaced atomically).
    Replica(ShardId),
    /// A witness instance's slots.
    Witness {
        /// The shard that the instance records for.
        shard: ShardId,
        /// The witness list that the instance belongs to.
        list: ListVersion,
    },
    /// A witness instance's mode (replaced atomically).
    WitnessMode {
        /// The shard that the instance records for.
        shard: ShardId,
        /// The witness list that the instance belongs to.
        list: ListVersion,
    },
    /// The ledger: the newest list of each shard for which an instance was begun on this core (replaced atomically).
    Core,
    /// What the coordinator told this core (replaced atomically).
    Told,
    /// A file of the coordinator's log, up to format 4.
    Coordinator(u32),
    /// One of the two files of the coordinator's journal: 0, that of the even laps, or 1.
    Journal(u8),
}

/// Reads a core's files before its machine runs. Writing goes through effects.
///
/// What is read is durable. A killed process leaves bytes in the page cache that were never fsynced, and its successor
/// must not report such bytes as held. So the shell fsyncs a file before it returns the content.
pub trait Disk {
    /// Every file that is there, in order of name.
    fn list(&self) -> Vec<FileName>;

    /// A file's whole content; `None` if it is not there. A file that cannot be read is an error for the operator.
    ///
    /// # Errors
    /// The operating system's error.
    fn read(&self, file: FileName) -> std::io::Result<Option<Vec<u8>>>;
}
