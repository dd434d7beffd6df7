//! Names of the files a core owns, and how a machine reads them when it starts.

use kasha_types::{ListVersion, SegmentId, ShardId};

/// A file of one core. The shell maps it to a path; the simulator to a map entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileName {
    /// A segment of a shard's replica.
    Segment {
        /// Whose.
        shard: ShardId,
        /// Which.
        segment: SegmentId,
    },
    /// Epochs, fences and marks of a shard's replica (replaced atomically).
    Replica(ShardId),
    /// A witness instance's slots.
    Witness {
        /// Whose.
        shard: ShardId,
        /// Which list.
        list: ListVersion,
    },
    /// A witness instance's mode (replaced atomically).
    WitnessMode {
        /// Whose.
        shard: ShardId,
        /// Which list.
        list: ListVersion,
    },
    /// Which witness instances were ever begun on this core (replaced atomically).
    Core,
    /// A file of the coordinator's log.
    Coordinator(u32),
}

/// Reads a core's files before its machine runs. Writing goes through effects.
///
/// What is read is durable: a killed process leaves bytes in the page cache that were never fsynced, and its successor
/// must not vouch for them before they are. The shell fsyncs a file before it hands it out.
pub trait Disk {
    /// Every file that is there, in order of name.
    fn list(&self) -> Vec<FileName>;

    /// A file's whole content; `None` if it is not there. A file that cannot be read is an error for the operator.
    ///
    /// # Errors
    /// What the system said.
    fn read(&self, file: FileName) -> std::io::Result<Option<Vec<u8>>>;
}
