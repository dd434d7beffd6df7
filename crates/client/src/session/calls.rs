//! The slab that holds the calls. A place and the buffers of its last call are used again, so that nothing is allocated
//! in steady state. A generation number distinguishes the calls of one place.

use std::collections::VecDeque;

use kasha_types::{ClusterTime, ShardId, Tick};

use super::call::{Call, Caller, Kind, NEVER, Stage};
use super::participant::Participants;
use crate::limits;

/// Names one call of one session. An id is never used for another call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub(crate) u64);

impl CallId {
    fn new(slot: usize, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | slot as u64)
    }

    fn slot(self) -> usize {
        (self.0 & u64::from(u32::MAX)) as usize
    }

    fn generation(self) -> u32 {
        u32::try_from(self.0 >> 32).expect("32 bits")
    }
}

/// All calls; a place and its buffers are used again.
#[derive(Debug, Default)]
pub(super) struct Calls {
    slab: Vec<Place>,
    free: Vec<Vacant>,
    bytes: usize,
    shares: Vec<Share>,
}

/// The part of the limits that the calls of one shard take.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    calls: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Place {
    generation: u32,
    /// The moment for which the timer heap holds this place; `NEVER` if it does not hold it. Outlives the call.
    armed: Tick,
    call: Option<Call>,
}

/// A place without a call, with the buffers of its last call.
#[derive(Debug)]
struct Vacant {
    slot: u32,
    bytes: Vec<u8>,
    result: Vec<u8>,
}

impl Calls {
    /// A call whose `bytes` are filled in by `fill`.
    pub(super) fn insert(&mut self, kind: Kind, deadline: Tick, fill: impl FnOnce(&mut Vec<u8>)) -> usize {
        let Vacant { slot, mut bytes, result } = self.free.pop().unwrap_or_else(|| {
            let slot = u32::try_from(self.slab.len()).expect("far below 2^32 calls");
            self.slab.push(Place { generation: 0, armed: NEVER, call: None });
            Vacant { slot, bytes: Vec::new(), result: Vec::new() }
        });
        fill(&mut bytes);
        self.bytes += bytes.len();
        self.slab[slot as usize].call = Some(Call {
            kind,
            stage: Stage::Queued,
            participants: Participants::One(None),
            caller: Caller::Waits { deadline },
            resume: NEVER,
            attempts: 0,
            tried: None,
            silent: 0,
            refused: 0,
            sent_at: Tick(0),
            is_doubted: false,
            was_resumed: false,
            owner: None,
            bytes,
            result,
        });
        slot as usize
    }

    pub(super) fn remove(&mut self, slot: usize) {
        let place = &mut self.slab[slot];
        let Call { mut bytes, mut result, owner, .. } = place.call.take().expect("a call ends once");
        place.generation = place.generation.wrapping_add(1);
        self.bytes -= bytes.len();
        if let Some(shard) = owner {
            let share = &mut self.shares[usize::from(shard.0)];
            (share.calls, share.bytes) = (share.calls - 1, share.bytes - bytes.len());
        }
        for buffer in [&mut bytes, &mut result] {
            buffer.clear();
            buffer.shrink_to(limits::BUFFER_KEPT_BYTES);
        }
        self.free.push(Vacant { slot: u32::try_from(slot).expect("far below 2^32 calls"), bytes, result });
    }

    /// Gives the call another body.
    pub(super) fn set_bytes(&mut self, slot: usize, bytes: Vec<u8>) {
        let call = self.slab[slot].call.as_mut().expect("a call that has not ended");
        self.bytes = self.bytes - call.bytes.len() + bytes.len();
        if let Some(shard) = call.owner {
            let share = &mut self.shares[usize::from(shard.0)];
            share.bytes = share.bytes - call.bytes.len() + bytes.len();
        }
        call.bytes = bytes;
    }

    pub(super) fn id(&self, slot: usize) -> CallId {
        CallId::new(slot, self.slab[slot].generation)
    }

    /// The slot of a call that has not ended.
    pub(super) fn find(&self, id: CallId) -> Option<usize> {
        let place = self.slab.get(id.slot())?;
        (place.call.is_some() && place.generation == id.generation()).then_some(id.slot())
    }

    /// The call in this slot, if there is one.
    pub(super) fn get(&self, slot: usize) -> Option<&Call> {
        self.slab[slot].call.as_ref()
    }

    /// Puts a call at the end of a queue.
    pub(super) fn enqueue(&self, slot: usize, queue: &mut VecDeque<CallId>) {
        self.prune(queue);
        queue.push_back(self.id(slot));
    }

    /// Puts an update that has lost to others behind those in the queue that have lost earlier, and before all the rest.
    pub(super) fn enqueue_by_age(&self, slot: usize, since: ClusterTime, queue: &mut VecDeque<CallId>) {
        self.prune(queue);
        // An entry of a call that has ended stands for nobody, and its neighbours may have waited longer.
        let is_before = |id: &&CallId| match self.find(**id).map(|slot| self[slot].turn()) {
            None => true,
            Some(turn) => turn.is_some_and(|turn| turn.since <= since),
        };
        let place = queue.iter().take_while(is_before).count();
        queue.insert(place, self.id(slot));
    }

    /// Entries of ended calls are skipped when their turn comes. They are removed earlier if they would pile up: at least half of the
    /// entries are of calls that have not ended.
    fn prune(&self, queue: &mut VecDeque<CallId>) {
        const QUEUE_MIN: usize = 64;
        if queue.len() >= QUEUE_MIN && queue.len() >= 2 * self.len() {
            queue.retain(|&id| self.find(id).is_some());
        }
    }

    /// From now on the call counts against this shard.
    pub(super) fn attribute(&mut self, slot: usize, shard: ShardId) {
        let call = self.slab[slot].call.as_mut().expect("a call that has not ended");
        if call.owner.is_some() {
            return;
        }
        call.owner = Some(shard);
        let bytes = call.bytes.len();
        let index = usize::from(shard.0);
        if index >= self.shares.len() {
            self.shares.resize(index + 1, Share::default());
        }
        let share = &mut self.shares[index];
        (share.calls, share.bytes) = (share.calls + 1, share.bytes + bytes);
    }

    /// Whether there is room for this call, which is counted already. The calls of one shard may take no more than they
    /// leave to all others. So a first shard that does not answer takes half of the room at most, and a second one half
    /// of the rest.
    pub(super) fn has_room_for(&self, slot: usize) -> bool {
        let (Some(calls_left), Some(bytes_left)) =
            (limits::CALLS_MAX.checked_sub(self.len()), limits::CALL_BYTES_MAX.checked_sub(self.bytes))
        else {
            return false;
        };
        let Some(shard) = self[slot].owner else { return true };
        let share = self.shares[usize::from(shard.0)];
        share.calls <= calls_left && share.bytes <= bytes_left
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len() - self.free.len()
    }

    /// Every slot that was ever used; see [`Self::get`].
    pub(super) fn slots(&self) -> std::ops::Range<usize> {
        0..self.slab.len()
    }

    /// When the timer heap holds this slot.
    pub(super) fn armed(&self, slot: usize) -> Tick {
        self.slab[slot].armed
    }

    pub(super) fn set_armed(&mut self, slot: usize, at: Tick) {
        self.slab[slot].armed = at;
    }
}

impl std::ops::Index<usize> for Calls {
    type Output = Call;
    fn index(&self, slot: usize) -> &Call {
        self.slab[slot].call.as_ref().expect("a call that has not ended")
    }
}

impl std::ops::IndexMut<usize> for Calls {
    fn index_mut(&mut self, slot: usize) -> &mut Call {
        self.slab[slot].call.as_mut().expect("a call that has not ended")
    }
}
