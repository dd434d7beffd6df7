//! The slot of a key, which decides the key's shard, and the hashes by which witnesses and primaries judge conflicts.
//!
//! All hashes are fixed: they appear on the wire, in the log and in witness files.

use std::fmt;

use crc::{CRC_16_XMODEM, Crc, Table};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::limits::SLOTS;
use crate::planted::{self, Bug};
use crate::{BodyHash, TableId};

/// A key's hash slot, as in Redis Cluster: CRC16 of the key, or of its `{tag}`, mod 16384.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Slot(pub u16);

/// 64-bit hash of (table, key): what witnesses and the index compare (CURP 4.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// Stands for all keys in the footprint of an operation that touches whatever is there (R10.15). A key whose own hash this is only waits for
    /// more.
    pub const EVERYTHING: Self = Self(u64::MAX);
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Takes sixteen bytes of a key at a time: each step of a table of one byte waits for the one before.
static SLOT_CRC: Crc<u16, Table<16>> = Crc::<u16, Table<16>>::new(&CRC_16_XMODEM);

/// The slot of `key`. Only the part between the first `{` and the next `}` counts, if it is not empty.
#[must_use]
pub fn slot_of(key: &[u8]) -> Slot {
    let hashed = if has_brace(key) { tag_of(key).unwrap_or(key) } else { key };
    Slot(SLOT_CRC.checksum(hashed) % SLOTS)
}

/// Whether there may be a tag. Most keys are short and have none: eight bytes are compared at a time, without a call.
#[inline]
fn has_brace(key: &[u8]) -> bool {
    let (eights, rest) = key.as_chunks::<8>();
    eights.iter().any(|eight| is_brace_in(u64::from_le_bytes(*eight))) || rest.contains(&b'{')
}

/// Whether one of eight bytes is a brace: a byte that is 0 borrows from the one above it.
#[inline]
fn is_brace_in(eight: u64) -> bool {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGHS: u64 = ONES << 7;
    let differs = eight ^ (ONES * b'{' as u64);
    differs.wrapping_sub(ONES) & !differs & HIGHS != 0
}

#[cold]
#[inline(never)]
fn tag_of(key: &[u8]) -> Option<&[u8]> {
    let rest = &key[memchr::memchr(b'{', key)? + 1..];
    memchr::memchr(b'}', rest).filter(|&len| len > 0).map(|len| &rest[..len])
}

/// The hash of a key in a table.
#[must_use]
pub fn key_hash(table: TableId, key: &[u8]) -> KeyHash {
    KeyHash(xxhash_rust::xxh3::xxh3_64_with_seed(key, u64::from(table.0)))
}

/// What an operation key names (section 4, R4.9): the operation whose first key this is, under this operation key. All of it is
/// compared, byte for byte: no hash and no slot decides whether two updates are one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OperationName<'a> {
    /// The table of the operation's first key.
    pub table: TableId,
    /// The operation's first key, as its client named them. At most `KEY_BYTES_MAX` bytes.
    pub first_key: &'a [u8],
    /// The user's own name. At most `OPERATION_KEY_BYTES_MAX` bytes.
    pub operation_key: &'a [u8],
}

impl OperationName<'_> {
    /// The name's hash, for footprints and tables. Its own seed keeps it apart from every table's keys.
    #[must_use]
    pub fn hash(&self) -> KeyHash {
        const OPERATION_KEYS: u64 = 0x6f70_6572_6174_696f;
        let mut hasher = Xxh3::with_seed(OPERATION_KEYS);
        if planted::is_on(Bug::OperationKeyBySlot) {
            hasher.update(&slot_of(self.first_key).0.to_le_bytes());
        } else {
            hasher.update(&self.table.0.to_le_bytes());
            hasher.update(&(self.first_key.len() as u64).to_le_bytes());
            hasher.update(self.first_key);
        }
        hasher.update(self.operation_key);
        KeyHash(hasher.digest())
    }

    /// Whether both are one name.
    #[must_use]
    pub fn is(&self, other: &OperationName<'_>) -> bool {
        if planted::is_on(Bug::OperationKeyBySlot) {
            return slot_of(self.first_key) == slot_of(other.first_key) && self.operation_key == other.operation_key;
        }
        (self.table, self.first_key, self.operation_key) == (other.table, other.first_key, other.operation_key)
    }
}

/// The hash of a request's body.
#[must_use]
pub fn body_hash(body: &[u8]) -> BodyHash {
    BodyHash(xxh3_64(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis_cluster() {
        assert_eq!(slot_of(b"123456789"), Slot(0x31C3 % SLOTS));
        assert_eq!(slot_of(b"foo"), Slot(12182));
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"{user1000}.followers"));
        assert_ne!(slot_of(b"foo{}{bar}"), slot_of(b"bar"), "an empty tag does not count");
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
    }

    #[test]
    fn a_tag_is_found_wherever_it_stands_and_nothing_else_is_taken_for_one() {
        for at in 0..40 {
            let key = [&vec![b'x'; at][..], b"{tag}", &vec![b'y'; 40 - at]].concat();
            assert_eq!(slot_of(&key), slot_of(b"tag"), "at {at}");
            for byte in (0..=u8::MAX).filter(|&byte| byte != b'{') {
                let key = [&vec![byte; at][..], &[byte, b'z', b'|', byte]].concat();
                assert!(!has_brace(&key), "{byte} {at} times");
            }
        }
    }

    /// CRC16/XMODEM bit by bit, as its polynomial defines it.
    fn crc_bit_by_bit(bytes: &[u8]) -> u16 {
        bytes.iter().fold(0, |crc, &byte| {
            (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| crc << 1 ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 })
        })
    }

    #[test]
    fn slots_of_keys_of_any_length_are_those_of_the_polynomial() {
        let bytes: Vec<u8> = (0..80).map(|at: u8| at.wrapping_mul(29) | 0x80).collect();
        for len in 0..=bytes.len() {
            assert_eq!(slot_of(&bytes[..len]), Slot(crc_bit_by_bit(&bytes[..len]) % SLOTS), "of {len} bytes");
        }
    }

    #[test]
    fn the_table_is_part_of_the_hash() {
        assert_ne!(key_hash(TableId(1), b"k"), key_hash(TableId(2), b"k"));
    }

    #[test]
    fn r4_9_an_operation_key_is_that_of_a_table_and_a_first_key() {
        let name = |table, first_key, operation_key| OperationName { table: TableId(table), first_key, operation_key };
        let one = name(1, b"{u}a", b"order");
        for other in [
            name(2, b"{u}a", b"order"),
            name(1, b"{u}b", b"order"),
            name(1, b"{u}a", b"other"),
            name(1, b"{u}ao", b"rder"),
        ] {
            assert!(!one.is(&other) && one.hash() != other.hash(), "{other:?}");
        }
        assert!(one.is(&one));
    }
}
