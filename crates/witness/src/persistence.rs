//! The instance on file, without doing any IO (R5.3, R5.5).
//!
//! The caller preallocates `Sizes::file_bytes` zeroed bytes, writes the header block once, and at the end of each turn
//! performs the writes that `drain_records` names and commits them before any acceptance leaves.
//!
//! Dropped requests are emptied on file late or never. One that reappears after a crash is harmless: it was dropped
//! because the primary named it in a gc, hence after the sync that covers its outcome, so the look-up of every later
//! replay finds it completed, stale or below the expiry floor and does not run it again (R4.5, R4.6). Until the primary
//! drops it again as a suspect it may cost rejections. Conversely a torn slot was never acknowledged: its write had not
//! been committed, and what it overwrote had been dropped. A slot may be torn, and one of several be missing, after a mere
//! kill too: whoever performs the writes need not do so in one piece.

use std::collections::{BTreeMap, BTreeSet};

use kasha_types::RpcId;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};

use crate::Witness;
use crate::layout::{self, EMPTY_SLOT, FILE_HEADER_BYTES, FILE_SLOT_BYTES, MEMORY_SLOT_BYTES, SLOT_HEADER_BYTES};
use crate::layout::{Identity, LoadError, Sizes, SlotContent, SlotHeader};
use crate::limits::EMPTIED_PER_TURN_MAX;
use crate::witness::{HELD, Head, LEFTOVER, LOADED, UNWRITTEN};

impl Witness {
    /// The file's first block, to be written at offset 0 when the file is made.
    #[must_use]
    pub fn header_bytes(&self) -> [u8; FILE_HEADER_BYTES] {
        layout::encode_file_header(self.identity, self.sizes)
    }

    /// Whether dropped requests may still be on file. Nobody waits for their going.
    #[must_use]
    pub fn has_leftovers(&self) -> bool {
        !self.leftover.is_empty()
    }

    /// Names, once, each write (file offset, bytes) that an acceptance waits for: all slots recorded since the last
    /// call. Each lies within one slot's block. A write that fails is fatal for the instance (R5.4): it is not named
    /// again.
    pub fn drain_records(&mut self, mut write: impl FnMut(u64, &[u8])) {
        for &slot in &self.unwritten {
            let head = &mut self.heads[slot as usize];
            head.flags &= !UNWRITTEN;
            let bytes = if head.is(HELD) {
                let len = SLOT_HEADER_BYTES + usize::from(head.body_bytes);
                &self.bytes[slot as usize * MEMORY_SLOT_BYTES..][..len]
            } else {
                &EMPTY_SLOT
            };
            write(file_offset(slot), bytes);
        }
        self.unwritten.clear();
    }

    /// Names what [`Witness::drain_records`] names, and up to [`EMPTIED_PER_TURN_MAX`] slots that a gc dropped: for when
    /// nobody waits.
    pub fn drain_dirty(&mut self, mut write: impl FnMut(u64, &[u8])) {
        self.drain_records(&mut write);
        let kept = self.leftover.len().saturating_sub(EMPTIED_PER_TURN_MAX);
        for slot in self.leftover.drain(kept..) {
            let head = &mut self.heads[slot as usize];
            head.flags &= !LEFTOVER;
            if !head.is(HELD) {
                write(file_offset(slot), &EMPTY_SLOT);
            }
        }
    }

    /// The instance that `file` holds. Torn slots are dropped, and so are requests that lack one of their slots (R5.5):
    /// they were never acknowledged, or a gc has dropped a part of them. `frozen` is the mode that the caller kept.
    ///
    /// # Errors
    /// If the file is not that of this instance, or not whole.
    ///
    /// # Panics
    /// For list version `NONE`.
    pub fn load(identity: Identity, sizes: Sizes, file: &[u8], frozen: bool) -> Result<Self, LoadError> {
        layout::check_file(identity, sizes, file)?;
        let mut witness = Self::new(identity, sizes);
        witness.frozen = frozen;
        let mut found = BTreeMap::<RequestKey, Found>::new();
        for (number, slot) in (0..sizes.slots()).zip(file[FILE_HEADER_BYTES..].chunks_exact(FILE_SLOT_BYTES)) {
            match layout::decode_slot(witness.identity_crc, number, slot) {
                SlotContent::Empty => {}
                SlotContent::Held(header, body) if witness.set_of(header.hash).contains(&(number as usize)) => {
                    witness.adopt(number, &header, slot, body);
                    let key = RequestKey { rpc: header.rpc, keys: header.keys, body };
                    let request = found.entry(key).or_default();
                    // The same record, gc'ed and then received once more: one of the two is enough.
                    let twice = !request.key_indexes.insert(header.key_index);
                    if twice { witness.vacate(number) } else { request.slots.push(number) }
                }
                SlotContent::Held(..) | SlotContent::Torn => {
                    witness.stats.torn_at_load += 1;
                    witness.heads[number as usize].flags |= LEFTOVER;
                    witness.leftover.push(number);
                }
            }
        }
        for (request, found) in found {
            let is_whole = found.key_indexes.len() >= usize::from(request.keys);
            if !is_whole && !planted::is_on(Bug::PartialRequestLoaded) {
                hit(Probe::WitnessPartDropped);
                found.slots.iter().for_each(|&slot| witness.vacate(slot));
                witness.stats.incomplete_at_load += found.slots.len() as u32;
            }
        }
        Ok(witness)
    }

    /// Takes a slot over from the file, as it stands there.
    fn adopt(&mut self, number: u32, header: &SlotHeader, slot: &[u8], body: &[u8]) {
        let len = SLOT_HEADER_BYTES + body.len();
        self.bytes[number as usize * MEMORY_SLOT_BYTES..][..len].copy_from_slice(&slot[..len]);
        self.heads[number as usize] = Head {
            hash: header.hash,
            rpc: header.rpc,
            since: self.gcs,
            body_bytes: body.len() as u16,
            key_index: header.key_index,
            flags: HELD | LOADED,
        };
        self.stats.occupied += 1;
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct RequestKey<'a> {
    rpc: RpcId,
    keys: u8,
    body: &'a [u8],
}

#[derive(Default)]
struct Found {
    key_indexes: BTreeSet<u8>,
    slots: Vec<u32>,
}

fn file_offset(slot: u32) -> u64 {
    FILE_HEADER_BYTES as u64 + u64::from(slot) * FILE_SLOT_BYTES as u64
}

#[cfg(test)]
mod tests {
    use kasha_types::{ClientId, ClusterId, ClusterTime, KeyHash, ListVersion, Sequence, ShardId};
    use proptest::prelude::*;

    use super::*;

    const IDENTITY: Identity = Identity { cluster: ClusterId(1), shard: ShardId(2), list: ListVersion(3) };

    proptest! {
        /// Slots that no crash leaves behind, but whose checksums are right.
        #[test]
        fn r5_5_load_hands_out_whole_requests_only(
            slots in prop::collection::vec((0..16_u32, 0..16_u64, 0..3_u64, 0..3_u8, 1..4_u8, 0..2_u8), 0..24),
        ) {
            let sizes = Sizes::new(16, 4);
            let empty = Witness::new(IDENTITY, sizes);
            let mut file = vec![0; usize::try_from(sizes.file_bytes()).unwrap()];
            file[..FILE_HEADER_BYTES].copy_from_slice(&empty.header_bytes());
            for (number, hash, sequence, key_index, keys, body) in slots {
                let rpc = RpcId { client: ClientId(1), sequence: Sequence(sequence) };
                let lease_expiry = ClusterTime(1);
                let header = SlotHeader { hash: KeyHash(hash), rpc, lease_expiry, key_index, keys };
                let slot = &mut file[usize::try_from(file_offset(number)).unwrap()..][..FILE_SLOT_BYTES];
                layout::encode_slot(empty.identity_crc, number, &header, &[body], slot);
            }
            let mut witness = Witness::load(IDENTITY, sizes, &file, false).unwrap();
            witness.assert_invariants();
            let mut requests = Vec::new();
            witness.requests(|rpc, body| requests.push((rpc, body.to_vec())));
            for (rpc, body) in &requests {
                let indexes = |keys: &u8| (0..*keys).all(|index| (0..16).any(|slot| {
                    let head = &witness.heads[slot as usize];
                    let on_file = witness.bytes[slot as usize * MEMORY_SLOT_BYTES + 6];
                    head.is(HELD) && head.rpc == *rpc && witness.body(slot) == body
                        && head.key_index == index && on_file == *keys
                }));
                prop_assert!([1, 2, 3].iter().any(indexes), "{rpc} lacks a slot");
            }
            // Every slot that was not taken over goes from the file, so that a second load sees the same.
            witness.drain_dirty(|offset, bytes| {
                file[usize::try_from(offset).unwrap()..][..bytes.len()].copy_from_slice(bytes);
            });
            prop_assert!(!witness.has_leftovers());
            let again = Witness::load(IDENTITY, sizes, &file, false).unwrap();
            prop_assert_eq!(again.stats().occupied, witness.stats().occupied);
            prop_assert_eq!((again.stats().torn_at_load, again.stats().incomplete_at_load), (0, 0));
        }
    }
}
