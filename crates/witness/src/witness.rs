//! The table of held requests (CURP 3.2.2, 4.1, 4.2).
//!
//! A request takes one slot for each distinct key hash, in the set that the hash selects; all slots or none. The
//! headers that a record scans lie apart from the bodies: a set of four is 128 bytes. All memory is taken when
//! the instance is made; recording, gc and writing allocate nothing.
//!
//! Modes: normal, then frozen, for good (CURP 4.6). The expiry floor lives in memory only: a restarted witness learns
//! it with the next gc, and until then may accept requests that the primary and every replay refuse (R4.6).

use std::ops::Range;

use kasha_types::limits::{SUSPECT_AFTER_GCS, WITNESS_BODY_BYTES_MAX};
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{ClientId, ClusterTime, KeyHash, ListVersion, RpcId, Sequence};

use crate::layout::{self, Identity, MEMORY_SLOT_BYTES, SLOT_HEADER_BYTES, Sizes, SlotHeader};
use crate::limits::{MARKED_MAX, REQUEST_KEYS_MAX};
use crate::stats::Stats;

/// The outcome of [`Witness::record`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// Held. The acceptance may leave once every write that [`Witness::drain_records`] names up to the end of this turn
    /// is durable. That goes for a repeated record too: the first one's write may still be under way (R5.3).
    Accepted,
    /// Not held by this call.
    Rejected(Why),
}

/// Why a request was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// Another request on one of its keys is held, or only some of its own slots are left (a gc named the others, so
    /// the primary has synced it).
    Conflict,
    /// A set that it needs is full.
    NoSlot,
    /// Its body is longer than `WITNESS_BODY_BYTES_MAX`.
    TooLarge,
    /// It names more than `REQUEST_KEYS_MAX` key hashes.
    TooManyKeys,
    /// It names no key: `Everything` commutes with nothing and never takes the fast path.
    NoKeys,
    /// A recovery has read this instance, or may be reading it (CURP 4.6).
    Frozen,
    /// Its client's lease ends at or below the expiry floor that a gc told (R4.6).
    LeaseExpired,
    /// Its RpcId is held with another body on one of its keys.
    ReusedId,
}

impl Why {
    /// Every reason, in order of declaration.
    pub const ALL: [Self; 8] = [
        Self::Conflict,
        Self::NoSlot,
        Self::TooLarge,
        Self::TooManyKeys,
        Self::NoKeys,
        Self::Frozen,
        Self::LeaseExpired,
        Self::ReusedId,
    ];
}

/// One instance: the requests of one shard recorded under one version of its witness list.
#[derive(Debug)]
pub struct Witness {
    pub(crate) identity: Identity,
    pub(crate) sizes: Sizes,
    pub(crate) identity_crc: u32,
    pub(crate) frozen: bool,
    pub(crate) floor: ClusterTime,
    /// Gcs so far; wraps.
    pub(crate) gcs: u32,
    pub(crate) heads: Vec<Head>,
    /// For each slot `MEMORY_SLOT_BYTES`: header and body as they go to the file.
    pub(crate) bytes: Vec<u8>,
    /// Slots to write before an acceptance may leave.
    pub(crate) unwritten: Vec<u32>,
    /// Slots that may hold a dropped request on file.
    pub(crate) leftover: Vec<u32>,
    /// Slots that a rejection found to be old.
    pub(crate) marked: Vec<u32>,
    /// Where the next scan for suspects starts.
    pub(crate) scan: u32,
    pub(crate) stats: Stats,
}

/// The part of a slot that a record scans.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub(crate) struct Head {
    pub(crate) hash: KeyHash,
    pub(crate) rpc: RpcId,
    /// `Witness::gcs` when it was recorded.
    pub(crate) since: u32,
    pub(crate) body_bytes: u16,
    pub(crate) key_index: u8,
    pub(crate) flags: u8,
}

const _: () = assert!(std::mem::size_of::<Head>() == 32);

/// The slot holds a request.
pub(crate) const HELD: u8 = 1;
/// The slot is in `unwritten`.
pub(crate) const UNWRITTEN: u8 = 2;
/// The slot is in `leftover`.
pub(crate) const LEFTOVER: u8 = 4;
/// The slot is in `marked` for the request it holds.
pub(crate) const MARKED: u8 = 8;
/// The request came from the file: a gc'ed one may have reappeared beside its successor on the same key.
pub(crate) const LOADED: u8 = 16;

impl Head {
    pub(crate) const EMPTY: Self = Self {
        hash: KeyHash(0),
        rpc: RpcId { client: ClientId(0), sequence: Sequence(0) },
        since: 0,
        body_bytes: 0,
        key_index: 0,
        flags: 0,
    };

    pub(crate) fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn holds(&self, hash: KeyHash) -> bool {
        self.hash == hash && self.is(HELD)
    }
}

/// Where an acceptable request is, or is to go.
enum Place {
    Held,
    /// As many slots as it has keys were found.
    Free {
        keys: u8,
    },
}

impl Witness {
    /// An empty instance in normal mode.
    ///
    /// # Panics
    /// For list version `NONE`, which means "no witness".
    #[must_use]
    pub fn new(identity: Identity, sizes: Sizes) -> Self {
        assert!(identity.list != ListVersion::NONE, "an instance for no list");
        let slots = sizes.slots() as usize;
        Self {
            identity,
            sizes,
            identity_crc: layout::identity_crc(identity, sizes),
            frozen: false,
            floor: ClusterTime(0),
            gcs: 0,
            heads: vec![Head::EMPTY; slots],
            bytes: vec![0; slots * MEMORY_SLOT_BYTES],
            unwritten: Vec::with_capacity(slots),
            leftover: Vec::with_capacity(slots),
            marked: Vec::with_capacity(MARKED_MAX),
            scan: 0,
            stats: Stats::default(),
        }
    }

    /// The shard and list version whose requests this instance holds.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Slots and ways.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// What the instance has done since it was made or loaded.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Holds a request if it commutes with all that is held and every key finds a slot (CURP 4.2). `keys` are the
    /// hashes of all keys it reads or writes; a hash named twice counts once. The same body again is accepted as long
    /// as all its slots are there.
    pub fn record(&mut self, rpc: RpcId, keys: &[KeyHash], body: &[u8], lease_expiry: ClusterTime) -> Recorded {
        let mut slots = [0; REQUEST_KEYS_MAX];
        match self.place(rpc, keys, body, lease_expiry, &mut slots) {
            Ok(Place::Held) => {
                hit(Probe::WitnessRepeated);
                self.stats.repeated += 1;
            }
            Ok(Place::Free { keys: count }) => {
                for (key_index, (&slot, hash)) in (0..count).zip(slots.iter().zip(distinct(keys))) {
                    self.fill(slot, &SlotHeader { hash, rpc, lease_expiry, key_index, keys: count }, body);
                }
                self.stats.accepted += 1;
            }
            Err(why) => {
                self.stats.rejected[why as usize] += 1;
                return Recorded::Rejected(why);
            }
        }
        Recorded::Accepted
    }

    /// Stops accepting and dropping, for good: what is held may now be read for a recovery (CURP 4.6). The caller keeps
    /// the mode durably and gives it back to [`Witness::load`].
    pub fn freeze(&mut self) {
        self.frozen = true;
    }

    /// Whether [`Witness::freeze`] was called, by this process or an earlier one.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Every held request once, in order of its first key's slot: the recovery data (CURP 4.6). A request of which a
    /// gc dropped the first key's slot is left out: the primary has synced it.
    ///
    /// Some may be synced already, and after [`Witness::load`] even a pair on one key may appear, of which the older is
    /// synced: the replay's look-up finds those completed or stale (R4.5).
    pub fn requests(&self, mut each: impl FnMut(RpcId, &[u8])) {
        for (slot, head) in (0..).zip(&self.heads) {
            if head.is(HELD) && head.key_index == 0 {
                each(head.rpc, self.body(slot));
            }
        }
    }

    /// Whether a read of these keys commutes with everything held, so that a backup's value is current (CURP 3.7): for
    /// reads from backups. A frozen instance no longer hears of updates, so it always says no.
    #[must_use]
    pub fn commutes_with_read(&self, keys: &[KeyHash]) -> bool {
        !self.frozen && keys.iter().all(|&key| !self.heads[self.set_of(key)].iter().any(|head| head.holds(key)))
    }

    /// Checks what must hold between calls.
    ///
    /// # Panics
    /// Where it does not.
    pub fn assert_invariants(&self) {
        let mut occupied = 0;
        for (slot, head) in (0..).zip(&self.heads) {
            if !head.is(HELD) {
                assert!(!head.is(MARKED | LOADED), "slot {slot}");
                continue;
            }
            occupied += 1;
            let set = self.set_of(head.hash);
            assert!(set.contains(&(slot as usize)), "slot {slot} holds a key of another set");
            let commutes = self.heads[set]
                .iter()
                .all(|other| !other.holds(head.hash) || other.rpc == head.rpc || (other.is(LOADED) && head.is(LOADED)));
            assert!(commutes, "C2: two requests on {:?}", head.hash);
        }
        assert_eq!(occupied, self.stats.occupied);
        for (list, flag) in [(&self.unwritten, UNWRITTEN), (&self.leftover, LEFTOVER)] {
            assert!(list.iter().all(|&slot| self.heads[slot as usize].is(flag)), "a listed slot is flagged");
            assert_eq!(list.len(), self.heads.iter().filter(|head| head.is(flag)).count(), "once, and no other");
        }
    }

    /// Judges a request and finds its slots; changes nothing but the marks of old requests in its way.
    fn place(
        &mut self,
        rpc: RpcId,
        keys: &[KeyHash],
        body: &[u8],
        lease_expiry: ClusterTime,
        slots: &mut [u32; REQUEST_KEYS_MAX],
    ) -> Result<Place, Why> {
        if self.frozen {
            return Err(Why::Frozen);
        }
        if keys.is_empty() {
            return Err(Why::NoKeys);
        }
        if keys.len() > REQUEST_KEYS_MAX {
            return Err(Why::TooManyKeys);
        }
        if body.len() > WITNESS_BODY_BYTES_MAX {
            return Err(Why::TooLarge);
        }
        if lease_expiry <= self.floor && !planted::is_on(Bug::FloorIgnoredByWitness) {
            return Err(Why::LeaseExpired);
        }
        let (mut count, mut held) = (0, 0);
        for key in distinct(keys) {
            count += 1;
            held += u8::from(self.holds_own(rpc, key, body)?);
        }
        if held > 0 {
            return if held == count { Ok(Place::Held) } else { Err(Why::Conflict) };
        }
        for (taken, key) in distinct(keys).enumerate() {
            let free = self.free_slot(key, &slots[..taken]).or_else(|| self.overwritten_slot(key, &slots[..taken]));
            let Some(slot) = free else {
                self.mark_old(self.set_of(key), |_| true);
                return Err(Why::NoSlot);
            };
            slots[taken] = slot;
        }
        Ok(Place::Free { keys: count })
    }

    /// Whether this request itself holds a slot for `key`; an error if something else stands in its way there.
    fn holds_own(&mut self, rpc: RpcId, key: KeyHash, body: &[u8]) -> Result<bool, Why> {
        let set = self.set_of(key);
        if !self.heads[set.clone()].iter().any(|head| head.holds(key)) {
            return Ok(false);
        }
        let mut own = false;
        let mut reused = false;
        for slot in set.clone() {
            let head = &self.heads[slot];
            if !head.holds(key) {
                continue;
            }
            if planted::is_on(Bug::WitnessComparesHashes) {
                return Ok(true);
            }
            if head.rpc != rpc {
                self.mark_old(set, |head| head.holds(key));
                return Err(Why::Conflict);
            }
            own = true;
            reused |= self.body(slot as u32) != body;
        }
        if reused {
            hit(Probe::WitnessReused);
            return Err(Why::ReusedId);
        }
        Ok(own)
    }

    fn free_slot(&self, key: KeyHash, taken: &[u32]) -> Option<u32> {
        let set = self.set_of(key);
        let mut slots = (set.start as u32..).zip(&self.heads[set]);
        slots.find(|(slot, head)| !head.is(HELD) && !taken.contains(slot)).map(|(slot, _)| slot)
    }

    /// What [`Bug::WitnessOverwrites`] takes when no slot is free.
    fn overwritten_slot(&mut self, key: KeyHash, taken: &[u32]) -> Option<u32> {
        let set = self.set_of(key);
        let mut slots = (set.start as u32..set.end as u32).filter(|slot| !taken.contains(slot));
        let slot = slots.next().filter(|_| planted::is_on(Bug::WitnessOverwrites))?;
        self.vacate(slot);
        Some(slot)
    }

    fn fill(&mut self, slot: u32, header: &SlotHeader, body: &[u8]) {
        let bytes = &mut self.bytes[slot as usize * MEMORY_SLOT_BYTES..][..MEMORY_SLOT_BYTES];
        layout::encode_slot(self.identity_crc, slot, header, body, bytes);
        let head = &mut self.heads[slot as usize];
        assert!(!head.is(HELD), "a held request is never overwritten");
        if !head.is(UNWRITTEN) {
            self.unwritten.push(slot);
        }
        *head = Head {
            hash: header.hash,
            rpc: header.rpc,
            since: self.gcs,
            body_bytes: body.len() as u16,
            key_index: header.key_index,
            flags: head.flags | HELD | UNWRITTEN,
        };
        self.stats.occupied += 1;
    }

    /// Empties a slot in memory. On file the request may stay a while (see `persistence`).
    pub(crate) fn vacate(&mut self, slot: u32) {
        let head = &mut self.heads[slot as usize];
        assert!(head.is(HELD), "slot {slot} is empty");
        head.flags &= !(HELD | MARKED | LOADED);
        if !head.is(UNWRITTEN | LEFTOVER) {
            head.flags |= LEFTOVER;
            self.leftover.push(slot);
        }
        self.stats.occupied -= 1;
    }

    pub(crate) fn set_of(&self, key: KeyHash) -> Range<usize> {
        let set = (key.0 & u64::from(self.sizes.sets() - 1)) as usize;
        let ways = usize::from(self.sizes.ways());
        set * ways..(set + 1) * ways
    }

    pub(crate) fn body(&self, slot: u32) -> &[u8] {
        let start = slot as usize * MEMORY_SLOT_BYTES + SLOT_HEADER_BYTES;
        &self.bytes[start..start + usize::from(self.heads[slot as usize].body_bytes)]
    }

    pub(crate) fn is_old(&self, head: &Head) -> bool {
        head.is(HELD) && self.gcs.wrapping_sub(head.since) >= SUSPECT_AFTER_GCS
    }
}

/// Each hash at its first mention. Quadratic, over at most `REQUEST_KEYS_MAX`.
fn distinct(keys: &[KeyHash]) -> impl Iterator<Item = KeyHash> {
    keys.iter().enumerate().filter(|&(at, key)| !keys[..at].contains(key)).map(|(_, &key)| key)
}
