//! The bytes of a log (all numbers little endian).
//!
//! A group, at an offset that is a multiple of 8, never across segments:
//!
//! ```text
//!  0  u16  magic 0x4B47 ("GK")              16  u64  offset of this group since the log began
//!  2  u16  format version, 4                24  u32  epoch whose primary wrote it
//!  4  u32  payload bytes, multiple of 8     28  u32  epoch of the group before it
//!  8  u32  CRC-32C of bytes 12 to the end   32  u64  offset of the group before it (0 for the first of all)
//! 12  u32  number of entries, from 1        40  u64  flags: bit 0 = copies, others 0
//! 48  the entries
//! ```
//!
//! A group of copies holds what the cleaner copied from older segments, and nothing that happened. Replay does not look at the
//! flag: for readers of a log.
//!
//! An entry, and the payloads that this crate reads itself (the others belong to the crates that own the kinds):
//!
//! ```text
//! entry          0 u8 kind │ 1 [u8; 3] reserved, 0 │ 4 u32 payload bytes │ 8 payload, zeros to a multiple of 8
//! Digest         0 u32 n │ 4 u32 m │ 8 n × u32 live segments, ascending, the last is its own
//!                then m × (u32 epoch, u64 end of the log that this epoch's primary took over), ascending
//! SegmentFreed   0 u32 segment
//! ```

use std::fmt;

use kasha_types::{ENTRY_HEADER_BYTES, Epoch, LogEnd};

/// Bytes of a group's header.
pub const GROUP_HEADER_BYTES: u32 = 48;
/// Version of the layout above, and of what stands in the entries. Another one is refused, never guessed at: logs up to version 2
/// had operation keys of a slot, and bodies of another layout.
pub const FORMAT_VERSION: u16 = 4;

const FLAG_COPIES: u64 = 1;

pub(crate) const MAGIC: u16 = 0x4B47;
pub(crate) const ALIGN: u32 = 8;
const CRC_FROM: usize = 12;

/// Names a group, as the group behind it does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GroupStart {
    /// The epoch whose primary wrote it.
    pub epoch: Epoch,
    /// Offset of its first byte.
    pub offset: u64,
}

impl fmt::Debug for GroupStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.offset, self.epoch)
    }
}

macro_rules! entry_kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// What an entry is. The numbers are on disk: never reuse one.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum EntryKind {
            $($(#[$doc])* $name = $number,)*
        }

        impl EntryKind {
            /// The kind of this number.
            #[must_use]
            pub fn from_u8(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

entry_kinds! {
    /// A key's value.
    Object = 1,
    /// A key's removal.
    Tombstone = 2,
    /// Completion record of an update (RIFL 3, R4.1).
    Completion = 3,
    /// A user's own idempotency key and its result (section 4).
    OperationKey = 4,
    /// Clients whose leases ended at or before it are forgotten (R4.6).
    ExpiryFloor = 5,
    /// A primary's term begins. Payload: the owner's. Dead when a later one is logged.
    EpochStart = 6,
    /// Live segments and epochs so far; first entry of every segment. Dead when the next segment opens.
    Digest = 7,
    /// A segment whose entries are all dead is let go. Dead when the next segment opens, whose digest omits it.
    SegmentFreed = 8,
    /// A table was dropped.
    TableDropped = 9,
    /// No object version at or below it is given out again (R4.8).
    VersionFloor = 10,
    /// An operation key ran out or was removed.
    OperationKeyDropped = 11,
    /// The log up to here holds every update that was answered under a witness list (R7.7). Payload: the list, a u64. Dead
    /// at once: the term that logs it frees nothing before it serves, and then under another list.
    Whole = 12,
    /// A table was flushed (R10.7): each of its values ends whose version is not above the entry's. Dead when a later one of the table is logged,
    /// or the table is dropped.
    TableFlushed = 13,
    /// A transaction over several shards, and the timestamp that this one proposed (R8.1). Dead when it has an outcome.
    DistributedProposed = 32,
    /// The outcome of a transaction over several shards (R8.1, R8.15). Lives until nobody needs the transaction (R8.9).
    DistributedEnded = 33,
    /// Nothing is executed above this timestamp before the entry is synced. Dead when a later one is logged.
    TimestampCeiling = 34,
    /// The transactions that are needed no more (R8.9). Dead when a later one is logged.
    DistributedForgotten = 35,
    /// What the answer of an update of this shard alone waits for (R8.15). Dead when the gate has opened.
    Gate = 36,
}

/// Bytes that an entry with this payload takes in a group, header and padding included.
#[must_use]
pub fn entry_bytes(payload_len: usize) -> usize {
    ENTRY_HEADER_BYTES as usize + payload_len.next_multiple_of(ALIGN as usize)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GroupHeader {
    pub(crate) payload_len: u32,
    pub(crate) entries: u32,
    pub(crate) offset: u64,
    pub(crate) epoch: Epoch,
    /// The group before this one.
    pub(crate) previous: GroupStart,
    /// The group holds copies that the cleaner made.
    pub(crate) is_copies: bool,
}

impl GroupHeader {
    /// Bytes of the whole group.
    pub(crate) fn len(&self) -> u32 {
        GROUP_HEADER_BYTES + self.payload_len
    }

    pub(crate) fn end(&self) -> LogEnd {
        LogEnd(self.offset + u64::from(self.len()))
    }

    pub(crate) fn start(&self) -> GroupStart {
        GroupStart { epoch: self.epoch, offset: self.offset }
    }

    /// Completes a group whose payload is in place.
    pub(crate) fn seal(&self, group: &mut [u8]) {
        assert_eq!(group.len(), self.len() as usize);
        let head = group.first_chunk_mut::<{ GROUP_HEADER_BYTES as usize }>().expect("a header");
        head[0..2].copy_from_slice(&MAGIC.to_le_bytes());
        head[2..4].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        head[4..8].copy_from_slice(&self.payload_len.to_le_bytes());
        head[12..16].copy_from_slice(&self.entries.to_le_bytes());
        head[16..24].copy_from_slice(&self.offset.to_le_bytes());
        head[24..28].copy_from_slice(&self.epoch.0.to_le_bytes());
        head[28..32].copy_from_slice(&self.previous.epoch.0.to_le_bytes());
        head[32..40].copy_from_slice(&self.previous.offset.to_le_bytes());
        head[40..48].copy_from_slice(&(u64::from(self.is_copies) * FLAG_COPIES).to_le_bytes());
        let crc = kasha_types::crc32c(&group[CRC_FROM..]);
        group[8..12].copy_from_slice(&crc.to_le_bytes());
    }

    /// The fields, whatever they are. `group` must hold a header.
    pub(crate) fn read(group: &[u8]) -> Self {
        let group = group.first_chunk::<{ GROUP_HEADER_BYTES as usize }>().expect("a header");
        Self {
            payload_len: u32_at(group, 4),
            entries: u32_at(group, 12),
            offset: u64_at(group, 16),
            epoch: Epoch(u32_at(group, 24)),
            previous: GroupStart { epoch: Epoch(u32_at(group, 28)), offset: u64_at(group, 32) },
            is_copies: u64_at(group, 40) & FLAG_COPIES != 0,
        }
    }

    /// Whether there are these flags.
    pub(crate) fn flags_are_known(group: &[u8]) -> bool {
        u64_at(group, 40) & !FLAG_COPIES == 0
    }
}

/// Whether the checksum of this whole group is right.
pub(crate) fn checksum_holds(group: &[u8]) -> bool {
    u32_at(group, 8) == kasha_types::crc32c(&group[CRC_FROM..])
}

/// Writes an entry's header and zeroes its last word, which holds the padding; then the payload is the caller's to write.
pub(crate) fn frame_entry(entry: &mut [u8], kind: EntryKind, payload_len: u32) {
    *entry.last_chunk_mut().expect("a header") = [0; ALIGN as usize];
    let header = entry.first_chunk_mut::<{ ENTRY_HEADER_BYTES as usize }>().expect("a header");
    header[..4].copy_from_slice(&[kind as u8, 0, 0, 0]);
    header[4..].copy_from_slice(&payload_len.to_le_bytes());
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
