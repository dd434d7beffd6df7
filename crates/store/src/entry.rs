//! Layout of objects and tombstones, and of the two small records that tables and versions need.
//!
//! ```text
//! object          tombstone
//!  0  4 table      0  4 table
//!  4  2 key bytes  4  2 key bytes
//!  6  1 format 1   6  1 format 1
//!  7  1 ends        7  1 0
//!  8  8 version    8  8 version
//! 16  4 oldest    16  4 oldest
//! 20  4 value len 20  4 killed: segment of what it kills
//! 24  … key       24  … key
//!  …  … value
//! ```
//!
//! `ends`: 1 = the value ends at a ClusterTime (`u64`) that stands behind the value; 0 = it does not.
//!
//! `oldest` is the first segment that may still hold an older entry of the key. A tombstone is needed until every
//! segment from `oldest` to `killed` but its own is gone, on the backups too: else a replay would bring an old version back.

use kasha_log::EntryOffset;
use kasha_types::{ClusterTime, SegmentId, TableId};

const FORMAT: u8 = 1;

/// Bytes before the key.
pub(crate) const HEAD_BYTES: usize = 24;
/// Where `oldest` stands, in both.
pub(crate) const OLDEST_AT: usize = 16;

/// A key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object<'a> {
    /// The table of the key.
    pub table: TableId,
    /// The key.
    pub key: &'a [u8],
    /// Grows with each change of the key, also across a delete.
    pub version: u64,
    /// First segment that may hold an older entry of the key.
    pub oldest: SegmentId,
    /// The value.
    pub value: &'a [u8],
    /// When the value ends; `None`: never.
    pub ends: Option<ClusterTime>,
}

/// A deleted key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tombstone<'a> {
    /// The table of the key.
    pub table: TableId,
    /// The key.
    pub key: &'a [u8],
    /// Version of the deletion.
    pub version: u64,
    /// First segment that may hold an older entry of the key.
    pub oldest: SegmentId,
    /// Segment of the object it kills.
    pub killed: SegmentId,
}

/// Bytes of the entry of a flush.
pub const FLUSHED_BYTES: usize = 12;

/// The entry of a flush: the table, four bytes; the version up to which its values end, eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flushed {
    /// The table that was flushed.
    pub table: TableId,
    /// Of the table's values those end whose version is not above this.
    pub version: u64,
}

impl Flushed {
    /// Reads the payload.
    #[must_use]
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let (table, version) = payload.split_first_chunk::<4>()?;
        let version = u64::from_le_bytes(version.try_into().ok()?);
        Some(Self { table: TableId(u32::from_le_bytes(*table)), version })
    }

    /// The payload.
    #[must_use]
    pub fn encode(self) -> [u8; FLUSHED_BYTES] {
        let mut payload = [0; FLUSHED_BYTES];
        payload[..4].copy_from_slice(&self.table.0.to_le_bytes());
        payload[4..].copy_from_slice(&self.version.to_le_bytes());
        payload
    }
}

fn u32_at(head: &[u8; HEAD_BYTES], at: usize) -> u32 {
    u32::from_le_bytes(*head[at..].first_chunk().expect("a place within the head"))
}

fn u64_at(head: &[u8; HEAD_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(*head[at..].first_chunk().expect("a place within the head"))
}

/// The head, the key, and what stands behind the key.
fn split(payload: &[u8]) -> Option<(&[u8; HEAD_BYTES], &[u8], &[u8])> {
    let (head, rest) = payload.split_first_chunk::<HEAD_BYTES>()?;
    let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([head[4], head[5]])))?;
    (head[6] == FORMAT).then_some((head, key, rest))
}

/// The end of a value, behind the value.
const ENDS_BYTES: usize = 8;
/// Where it stands whether there is one.
const ENDS_AT: usize = 7;

/// Bytes behind the value.
pub(crate) fn ends_bytes(ends: Option<ClusterTime>) -> usize {
    if ends.is_some() { ENDS_BYTES } else { 0 }
}

/// The head of an object whose value ends.
pub(crate) fn ending(mut head: [u8; HEAD_BYTES]) -> [u8; HEAD_BYTES] {
    head[ENDS_AT] = 1;
    head
}

pub(crate) fn head(table: TableId, key: &[u8], version: u64, oldest: SegmentId, last: u32) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&table.0.to_le_bytes());
    head[4..6].copy_from_slice(&u16::try_from(key.len()).expect("the decoder checks the limit").to_le_bytes());
    head[6] = FORMAT;
    head[8..16].copy_from_slice(&version.to_le_bytes());
    head[OLDEST_AT..OLDEST_AT + 4].copy_from_slice(&oldest.0.to_le_bytes());
    head[20..24].copy_from_slice(&last.to_le_bytes());
    head
}

impl<'a> Object<'a> {
    /// Reads an object's payload.
    #[must_use]
    pub fn decode(payload: &'a [u8]) -> Option<Self> {
        let (head, key, rest) = split(payload)?;
        let (value, ends) = match head[ENDS_AT] {
            0 => (rest, None),
            1 => rest.split_last_chunk().map(|(value, ends)| (value, Some(ClusterTime(u64::from_le_bytes(*ends)))))?,
            _ => return None,
        };
        let object = Self {
            table: TableId(u32_at(head, 0)),
            key,
            version: u64_at(head, 8),
            oldest: SegmentId(u32_at(head, OLDEST_AT)),
            value,
            ends,
        };
        (u32_at(head, 20) as usize == value.len()).then_some(object)
    }

    /// Where the value begins within the payload.
    #[must_use]
    pub fn value_offset(&self) -> usize {
        HEAD_BYTES + self.key.len()
    }
}

impl<'a> Tombstone<'a> {
    /// Reads a tombstone's payload.
    #[must_use]
    pub fn decode(payload: &'a [u8]) -> Option<Self> {
        let (head, key, rest) = split(payload)?;
        let tombstone = Self {
            table: TableId(u32_at(head, 0)),
            key,
            version: u64_at(head, 8),
            oldest: SegmentId(u32_at(head, OLDEST_AT)),
            killed: SegmentId(u32_at(head, 20)),
        };
        rest.is_empty().then_some(tombstone)
    }
}

/// What the index leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    Object(EntryOffset, Object<'a>),
    Tombstone(EntryOffset, Tombstone<'a>),
}

impl<'a> Found<'a> {
    /// When the value ends, if it has an end.
    pub(crate) fn ends(&self) -> Option<ClusterTime> {
        match self {
            Self::Object(_, object) => object.ends,
            Self::Tombstone(..) => None,
        }
    }

    pub(crate) fn table(&self) -> TableId {
        match self {
            Self::Object(_, object) => object.table,
            Self::Tombstone(_, tombstone) => tombstone.table,
        }
    }

    pub(crate) fn key(&self) -> &'a [u8] {
        match self {
            Self::Object(_, object) => object.key,
            Self::Tombstone(_, tombstone) => tombstone.key,
        }
    }

    pub(crate) fn version(&self) -> u64 {
        match self {
            Self::Object(_, object) => object.version,
            Self::Tombstone(_, tombstone) => tombstone.version,
        }
    }

    pub(crate) fn at(&self) -> EntryOffset {
        match *self {
            Self::Object(at, _) | Self::Tombstone(at, _) => at,
        }
    }
}
