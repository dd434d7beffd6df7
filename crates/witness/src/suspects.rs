//! Garbage collection and suspects (CURP 3.4, 4.5).
//!
//! A request stays behind when its client died before reaching the primary, or when its record arrived after its gc. It
//! would reject everything on its keys for ever, so a request that survived `SUSPECT_AFTER_GCS` gcs is named to the
//! primary, which looks it up, syncs and gcs it. It is named, not dropped: the witness cannot know that it is synced.
//!
//! Suspects are found where they hurt, when one stands in the way of a record, and by a scan of a few slots a gc that
//! comes round to every slot.

use std::ops::Range;

use kasha_types::planted::{self, Bug};
use kasha_types::{ClientId, ClusterTime, KeyHash, RpcId, Sequence};

use crate::Witness;
use crate::limits::{MARKED_MAX, SCANNED_PER_GC_MAX, SUSPECTS_PER_GC_MAX};
use crate::witness::{HELD, Head, MARKED};

impl Witness {
    /// Drops the slots of synced requests by full identity, raises the expiry floor (R4.6), and names suspects. Entries
    /// that are not held are ignored: their records were rejected, or are still on their way. Does nothing once frozen.
    ///
    /// `suspects` is called at most [`SUSPECTS_PER_GC_MAX`] times, once for a request.
    pub fn gc(&mut self, entries: &[(KeyHash, RpcId)], floor: ClusterTime, suspects: &mut impl FnMut(RpcId, &[u8])) {
        if self.frozen {
            return;
        }
        self.gcs = self.gcs.wrapping_add(1);
        self.floor = self.floor.max(floor);
        for &(hash, rpc) in entries {
            for slot in self.set_of(hash) {
                let head = &self.heads[slot];
                if head.holds(hash) && (head.rpc == rpc || planted::is_on(Bug::GcByHash)) {
                    self.vacate(slot as u32);
                    self.stats.dropped += 1;
                }
            }
        }
        self.name_suspects(suspects);
    }

    /// Queues the old ones among these slots' requests for the next gc's answer.
    pub(crate) fn mark_old(&mut self, slots: Range<usize>, which: impl Fn(&Head) -> bool) {
        for slot in slots {
            let head = self.heads[slot];
            if self.marked.len() < MARKED_MAX && !head.is(MARKED) && which(&head) && self.is_old(&head) {
                self.heads[slot].flags |= MARKED;
                self.marked.push(slot as u32);
            }
        }
    }

    fn name_suspects(&mut self, suspects: &mut impl FnMut(RpcId, &[u8])) {
        let mut named = Named::default();
        while let Some(slot) = self.marked.pop() {
            // Not if this very gc has dropped it.
            if self.heads[slot as usize].is(MARKED) {
                self.heads[slot as usize].flags &= !MARKED;
                self.name(slot, &mut named, suspects);
            }
        }
        for _ in 0..SCANNED_PER_GC_MAX.min(self.sizes.slots()) {
            if named.count == SUSPECTS_PER_GC_MAX {
                break;
            }
            let slot = self.scan;
            self.scan = (slot + 1) % self.sizes.slots();
            if self.is_old(&self.heads[slot as usize]) {
                self.name(slot, &mut named, suspects);
            }
        }
        self.stats.suspects += named.count as u64;
    }

    fn name(&self, slot: u32, named: &mut Named, suspects: &mut impl FnMut(RpcId, &[u8])) {
        let head = &self.heads[slot as usize];
        assert!(head.is(HELD), "an empty slot is no suspect");
        if named.insert(head.rpc) {
            suspects(head.rpc, self.body(slot));
        }
    }
}

/// Who was named by this gc: a request on several keys is met at each of its slots.
struct Named {
    rpcs: [RpcId; SUSPECTS_PER_GC_MAX],
    count: usize,
}

impl Default for Named {
    fn default() -> Self {
        Self { rpcs: [RpcId { client: ClientId(0), sequence: Sequence(0) }; SUSPECTS_PER_GC_MAX], count: 0 }
    }
}

impl Named {
    fn insert(&mut self, rpc: RpcId) -> bool {
        let new = !self.rpcs[..self.count].contains(&rpc);
        if new {
            self.rpcs[self.count] = rpc;
            self.count += 1;
        }
        new
    }
}
