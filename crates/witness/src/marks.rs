//! What is kept of an instance besides its slots: its mode, and that it was begun at all. Both are replaced as a whole
//! and fsynced in every durability mode (R5.3).
//!
//! ```text
//! mode     0 magic "KWMO"  4 format u8  5 flags u8: 1 frozen, 2 sure  8 boot u128  24 crc32c of 0..24
//! ledger   0 magic "KWLL"  4 format u8  5 cores u8  8 cluster u64  16 count u32  20 (shard u16, list u64) each
//!          and at the end the crc32c of all before it
//! ```
//!
//! All numbers are little-endian; what is not named is zero. The ledger is what tells an instance that never was from
//! one whose files are gone: an empty answer of the first is as good as any, one of the second would lose updates.

use std::collections::BTreeMap;

use kasha_types::{BootId, ClusterId, ListVersion, ShardId};

use crate::LoadError;

const MODE_MAGIC: &[u8; 4] = b"KWMO";
const MODE_FORMAT: u8 = 2;
const MODE_BYTES: usize = 28;

const LEDGER_MAGIC: &[u8; 4] = b"KWLL";
const LEDGER_FORMAT: u8 = 1;
const LEDGER_HEAD_BYTES: usize = 20;
const LEDGER_ENTRY_BYTES: usize = 10;
const CRC_BYTES: usize = 4;

/// An instance's mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// A recovery has read it, or may have.
    pub frozen: bool,
    /// It began empty when its list came into force, and lost nothing since but what a loss of power may have taken.
    pub sure: bool,
    /// The machine's boot in which it began.
    pub boot: BootId,
}

impl Mode {
    /// The content of the mode's file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MODE_MAGIC.to_vec();
        bytes.extend_from_slice(&[MODE_FORMAT, u8::from(self.frozen) | u8::from(self.sure) << 1, 0, 0]);
        bytes.extend_from_slice(&self.boot.0.to_le_bytes());
        seal(bytes)
    }

    /// The mode that a file holds.
    ///
    /// # Errors
    /// If it is no mode file, of another version, or damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, LoadError> {
        let body = unseal(bytes, *MODE_MAGIC, MODE_FORMAT)?;
        if bytes.len() != MODE_BYTES {
            return Err(LoadError::WrongLength { bytes: bytes.len() as u64, expected: MODE_BYTES as u64 });
        }
        if body[5] > 3 || body[6..8] != [0; 2] {
            return Err(LoadError::CorruptHeader);
        }
        let boot = BootId(u128::from_le_bytes(body[8..].try_into().expect("16 bytes")));
        Ok(Self { frozen: body[5] & 1 != 0, sure: body[5] & 2 != 0, boot })
    }
}

/// The newest list of each shard of which an instance was begun on this core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    cluster: ClusterId,
    /// Shards move between cores when a node's number of cores changes: then another ledger speaks of them.
    cores: u8,
    newest: BTreeMap<ShardId, ListVersion>,
}

impl Ledger {
    /// A ledger that names nothing.
    #[must_use]
    pub fn new(cluster: ClusterId, cores: u8) -> Self {
        Self { cluster, cores, newest: BTreeMap::new() }
    }

    /// The node's cores when the ledger was written.
    #[must_use]
    pub fn cores(&self) -> u8 {
        self.cores
    }

    /// An instance of this list, and so perhaps of any before it, was begun. Whether that is news.
    pub fn enter(&mut self, shard: ShardId, list: ListVersion) -> bool {
        let newest = self.newest.entry(shard).or_default();
        let news = list > *newest;
        *newest = list.max(*newest);
        news
    }

    /// The newest list of each shard for which an instance was begun.
    pub fn newest(&self) -> impl Iterator<Item = (ShardId, ListVersion)> + '_ {
        self.newest.iter().map(|(&shard, &list)| (shard, list))
    }

    /// Whether an instance of this list may have been begun.
    #[must_use]
    pub fn may_name(&self, shard: ShardId, list: ListVersion) -> bool {
        self.newest.get(&shard).is_some_and(|&newest| list <= newest)
    }

    /// The content of the ledger's file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = LEDGER_MAGIC.to_vec();
        bytes.extend_from_slice(&[LEDGER_FORMAT, self.cores, 0, 0]);
        bytes.extend_from_slice(&self.cluster.0.to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(self.newest.len()).expect("at most 65,536").to_le_bytes());
        for (shard, list) in &self.newest {
            bytes.extend_from_slice(&shard.0.to_le_bytes());
            bytes.extend_from_slice(&list.0.to_le_bytes());
        }
        seal(bytes)
    }

    /// The ledger that a file holds.
    ///
    /// # Errors
    /// If it is no ledger, of another version or cluster, or damaged.
    pub fn decode(cluster: ClusterId, bytes: &[u8]) -> Result<Self, LoadError> {
        let body = unseal(bytes, *LEDGER_MAGIC, LEDGER_FORMAT)?;
        let Some((head, entries)) = body.split_at_checked(LEDGER_HEAD_BYTES) else {
            return Err(LoadError::CorruptHeader);
        };
        let count = u32::from_le_bytes(head[16..20].try_into().expect("4 bytes"));
        let entry = |entry: &[u8]| {
            let (shard, list) = entry.split_at(2);
            let shard = ShardId(u16::from_le_bytes(shard.try_into().expect("2 bytes")));
            (shard, ListVersion(u64::from_le_bytes(list.try_into().expect("8 bytes"))))
        };
        let named = || entries.chunks_exact(LEDGER_ENTRY_BYTES).map(entry);
        let found = ClusterId(u64::from_le_bytes(head[8..16].try_into().expect("8 bytes")));
        if head[6..8] != [0; 2]
            || entries.len() as u64 != u64::from(count) * LEDGER_ENTRY_BYTES as u64
            || !named().is_sorted_by(|before, after| before.0 < after.0)
        {
            return Err(LoadError::CorruptHeader);
        }
        if found != cluster {
            return Err(LoadError::OtherCluster(found));
        }
        Ok(Self { cluster, cores: head[5], newest: named().collect() })
    }
}

fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = kasha_types::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// What was sealed, if it is of this kind and whole.
fn unseal(bytes: &[u8], magic: [u8; 4], format: u8) -> Result<&[u8], LoadError> {
    if !bytes.starts_with(&magic) {
        return Err(LoadError::ForeignMagic);
    }
    // The checksum first, whatever the format: a changed bit there is damage, not another version's file.
    match bytes.split_last_chunk::<CRC_BYTES>() {
        Some((body, crc)) if body.len() >= 8 && kasha_types::crc32c(body) == u32::from_le_bytes(*crc) => {
            match body[4] {
                found if found != format => Err(LoadError::OtherFormat(u32::from(found))),
                _ => Ok(body),
            }
        }
        Some(_) | None => Err(LoadError::CorruptHeader),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CLUSTER: ClusterId = ClusterId(5);

    proptest! {
        #[test]
        fn modes_come_back(frozen: bool, sure: bool, boot: u128) {
            let mode = Mode { frozen, sure, boot: BootId(boot) };
            prop_assert_eq!(Mode::decode(&mode.encode()), Ok(mode));
        }

        #[test]
        fn ledgers_come_back(entries in prop::collection::vec((0..9_u16, 1..99_u64), 0..20), cores: u8) {
            let mut ledger = Ledger::new(CLUSTER, cores);
            for &(shard, list) in &entries {
                ledger.enter(ShardId(shard), ListVersion(list));
            }
            for &(shard, list) in &entries {
                prop_assert!((1..=list).all(|list| ledger.may_name(ShardId(shard), ListVersion(list))));
            }
            let greatest = |shard| entries.iter().filter(|entry| entry.0 == shard).map(|entry| entry.1).max();
            for shard in 0..9 {
                let beyond = ListVersion(greatest(shard).unwrap_or(0) + 1);
                prop_assert!(!ledger.may_name(ShardId(shard), beyond));
            }
            prop_assert_eq!(Ledger::decode(CLUSTER, &ledger.encode()), Ok(ledger));
        }

        #[test]
        fn hostile_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..80), head in 0..3_u8) {
            let head: &[u8] = [&b""[..], b"KWMO\x02", b"KWLL\x01"][usize::from(head)];
            let bytes = [head, &bytes].concat();
            prop_assert!(Mode::decode(&bytes).is_err() && Ledger::decode(CLUSTER, &bytes).is_err());
            // Even if somebody has computed the checksum.
            let (_, _) = (Mode::decode(&seal(bytes.clone())), Ledger::decode(CLUSTER, &seal(bytes)));
        }

        #[test]
        fn a_changed_bit_is_noticed(at in 0..28_usize, bit in 0..8_u8) {
            let mut bytes = Mode { frozen: false, sure: false, boot: BootId(7) }.encode();
            bytes[at] ^= 1 << bit;
            let is_damage = matches!(Mode::decode(&bytes), Err(LoadError::CorruptHeader | LoadError::ForeignMagic));
            prop_assert!(is_damage);
        }
    }

    #[test]
    fn another_clusters_ledger_is_named() {
        let bytes = Ledger::new(ClusterId(6), 1).encode();
        assert_eq!(Ledger::decode(CLUSTER, &bytes), Err(LoadError::OtherCluster(ClusterId(6))));
    }
}
