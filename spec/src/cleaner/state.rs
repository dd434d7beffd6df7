//! A state: the primary's log, how much of it the follower has, and each member's files and memory.

use arrayvec::ArrayVec;

use crate::cleaner::memory::Memory;

/// Entries of a log.
pub const LOG_MAX: usize = 24;
/// Keys.
pub const KEYS_MAX: usize = 2;
/// Updates of the client.
pub const UPDATES_MAX: usize = 4;
/// Copies that are pending.
pub const PENDING_MAX: usize = 4;

/// Where an entry stands in the log.
pub type Place = u8;
/// A segment, from 0.
pub type SegmentIx = u8;
/// A key, from 0.
pub type KeyIx = u8;

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A key's value.
    Object { key: KeyIx, version: u8, oldest: SegmentIx },
    /// A key's removal.
    Tombstone { key: KeyIx, version: u8, oldest: SegmentIx, killed: SegmentIx },
    /// The client's update with this sequence has run.
    Record { sequence: u8, lease: u8, acknowledgement: u8 },
    /// This run under the operation key.
    OperationKey { run: u8, expires: u8 },
    /// The operation key had expired then.
    Dropped { at: u8 },
    /// Leases up to this time are over. The client's records before `first` are forgotten.
    ExpiryFloor { time: u8, names_client: bool, first: Place },
    /// Versions go on above this.
    VersionFloor { version: u8 },
    /// The segment is let go.
    Freed { segment: SegmentIx },
}

/// An entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Its segment.
    pub segment: SegmentIx,
    /// The cleaner wrote it.
    pub is_copy: bool,
    /// The last one of its group.
    pub ends_group: bool,
    /// What it says.
    pub kind: Kind,
}

/// A log.
pub type Log = ArrayVec<Entry, LOG_MAX>;

/// A copy whose reference has not been moved yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pending {
    /// What was copied.
    pub origin: Place,
    /// The copy.
    pub copy: Place,
}

/// A member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// The segments that it has, a bit each.
    pub held: u8,
    /// What it derived from its log.
    pub memory: Memory,
    /// Its memory was derived anew from the segments that were left.
    pub anew: bool,
}

/// Budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Left {
    /// Copies.
    pub copies: u8,
    /// Expiry floors.
    pub floors: u8,
    /// Version floors.
    pub version_floors: u8,
    /// Restarts of the follower.
    pub restarts: u8,
    /// Fail-overs.
    pub fail_overs: u8,
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The primary's log. It keeps the entries of segments that are gone, which no member can read any more.
    pub log: Log,
    /// The segment that is filled.
    pub head: SegmentIx,
    /// How many entries the follower has. These are synced.
    pub shipped: u8,
    /// The primary, and the follower.
    pub members: [Member; 2],
    /// Copies in the order of the log.
    pub pending: ArrayVec<Pending, PENDING_MAX>,
    /// An expiry floor that is logged, and not in force yet.
    pub pending_floor: Option<Place>,
    /// ClusterTime at the primary.
    pub now: u8,
    /// The change that comes next.
    pub next_change: u8,
    /// What may still happen.
    pub left: Left,
    /// The properties that do not hold, a bit each; found out when the state is reached.
    pub faults: u16,
}

/// The primary's place among the members.
pub const PRIMARY: usize = 0;
/// The follower's.
pub const FOLLOWER: usize = 1;

impl State {
    /// The end of a member's log.
    pub fn end_of(&self, member: usize) -> u8 {
        if member == PRIMARY { self.log.len() as u8 } else { self.shipped }
    }

    /// A member's log.
    pub fn log_of(&self, member: usize) -> &[Entry] {
        &self.log[..usize::from(self.end_of(member))]
    }
}

/// Segments that a log says are freed, a bit each. Its digests keep the word when the segment with the word is gone.
pub fn freed_by(log: &[Entry]) -> u8 {
    let freed = log.iter().filter_map(|entry| match entry.kind {
        Kind::Freed { segment } => Some(1u8 << segment),
        _ => None,
    });
    freed.fold(0, |all, bit| all | bit)
}

/// Whether a set of segments has this one.
pub fn has(segments: u8, segment: SegmentIx) -> bool {
    segments & 1 << segment != 0
}
