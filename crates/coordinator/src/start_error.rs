//! The reasons for which a coordinator does not start.

use kasha_machine::FileName;
use kasha_types::{ClusterId, MemberId};
use kasha_wire::{Level, Levels};

/// Version of commands and states as bytes.
pub(crate) const FORMAT_VERSION: u32 = 5;

/// Version of the files before the journal, which are read, too.
pub(crate) const FORMAT_BEFORE: u32 = 4;

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The offset of a byte.
    Byte(u64),
    /// The number of an operation.
    Operation(u64),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Byte(offset) => write!(f, "byte {offset}"),
            Self::Operation(op) => write!(f, "operation {op}"),
        }
    }
}

/// Why a coordinator does not start. Each text says what is wrong and what to do.
#[derive(Debug)]
pub enum StartError {
    /// The options contradict each other.
    Options(String),
    /// The data folder belongs to another cluster.
    OtherCluster {
        /// The cluster of the folder.
        stored: ClusterId,
        /// The cluster that was asked for.
        given: ClusterId,
    },
    /// The files are those of a member whose folder is another one.
    OtherFolder {
        /// The member.
        member: MemberId,
        /// The identity of its folder.
        stored: u32,
        /// The identity of the folder in which the files are.
        given: u32,
    },
    /// An option that is fixed when a cluster is created was given another value.
    Fixed {
        /// The option's name.
        what: &'static str,
        /// The cluster's value.
        stored: String,
        /// The value that was asked for.
        given: String,
    },
    /// The cluster is at a level at which this program cannot work (R7.6).
    Level {
        /// The levels at which it can.
        levels: Levels,
        /// The cluster's.
        level: Level,
    },
    /// Another version wrote the log.
    Version {
        /// The file.
        file: FileName,
        /// The file's format version.
        stored: u32,
    },
    /// The log is damaged where it was complete: going on would forget committed configurations.
    Damaged {
        /// The file.
        file: FileName,
        /// Where the record with the first bad byte begins, or the first bad operation stands.
        at: Place,
        /// What is wrong there.
        what: String,
    },
    /// A file cannot be read.
    Read {
        /// The file.
        file: FileName,
        /// The operating system's error.
        error: std::io::Error,
    },
}

/// What a file of ours is called in a text.
fn name(file: FileName) -> String {
    match file {
        FileName::Coordinator(number) => format!("coordinator log file {number}"),
        FileName::Journal(number) => format!("coordinator journal file {number}"),
        FileName::Segment { .. }
        | FileName::Replica(_)
        | FileName::Witness { .. }
        | FileName::WitnessMode { .. }
        | FileName::Core
        | FileName::Told => unreachable!("a coordinator has no such file: {file:?}"),
    }
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Options(text) => write!(f, "the coordinator's options are impossible: {text} (K0404)"),
            Self::OtherCluster { stored, given } => write!(
                f,
                "the coordinator's data folder belongs to {stored}, but {given} was asked for: \
                 start it with the folder of {given}, or with an empty one for a new cluster (K0105)"
            ),
            Self::OtherFolder { member, stored, given } => write!(
                f,
                "the coordinator's files are those of {member}, which belong into the data folder with identity = {stored} in its \
                 kasha.toml, and this one has {given}: put them back there, and start this node without them (K0105)"
            ),
            Self::Fixed { what, stored, given } => write!(
                f,
                "--{what} {given}: this cluster was created with {what} = {stored}, which cannot be changed: leave --{what} \
                 away, or give --{what} {stored} (K0405)"
            ),
            Self::Level { levels, level } => write!(
                f,
                "this process can work at {levels}, and the cluster is at {level}: run a release of Kasha that can work at {level} (K0511)"
            ),
            Self::Version { file, stored } => write!(
                f,
                "{} has format version {stored}, but this program reads versions {} and {}: start the program version that \
                 wrote it (K0104)",
                name(*file),
                FORMAT_BEFORE,
                FORMAT_VERSION
            ),
            Self::Damaged { file, at, what } => write!(
                f,
                "{} is damaged at {at} ({what}): it was complete once, so nothing may be dropped. If the coordinator has other \
                 members, give this folder up as a lost one; else restore it as it was (K0109)",
                name(*file)
            ),
            // A real disk's error names the path and what to do, with its own code.
            Self::Read { file, error } => write!(f, "{}: {error}", name(*file)),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { error, .. } => Some(error),
            Self::Options(_)
            | Self::OtherCluster { .. }
            | Self::OtherFolder { .. }
            | Self::Fixed { .. }
            | Self::Level { .. }
            | Self::Version { .. }
            | Self::Damaged { .. } => None,
        }
    }
}
