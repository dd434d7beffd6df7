//! The store of client states: 56 bytes each in chunks that never move, found through a hash index. It knows nothing of
//! what a state means.
//!
//! Budget (section 4): at most 116 bytes for an idle client. An index entry takes 17 bytes. The index is never less
//! than 7/16 full, so it costs at most 39 bytes a client, and 58 while it doubles and both halves exist. With the state
//! that is 75 to 95 bytes, and at most 114 while the index doubles. One table of whole states would reach 130 after
//! doubling.

use std::cell::Cell;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use kasha_types::{AckedBelow, ClientId, ClusterTime};

use crate::outstanding::Outstanding;

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: ClientId,
    /// Carried by a live completion record of a sequence at or above it (R4.4).
    pub(crate) acknowledged: AckedBelow,
    /// The latest seen. Only says whom to ask the coordinator about.
    pub(crate) lease_expiry: ClusterTime,
    pub(crate) outstanding: Outstanding,
}

#[derive(Debug)]
enum Slot {
    Vacant { next: Option<u32> },
    Occupied(Client),
}

const _: () = assert!(size_of::<Slot>() <= 56, "the memory budget counts on it");

/// Clients per chunk: 14 KiB, small beside what a shard holds, large beside an allocation's overhead.
const CHUNK: u32 = 256;

#[derive(Debug)]
pub(crate) struct Clients {
    index: HashMap<ClientId, u32, FixedState>,
    /// Who was found last: an update asks for its client before it runs and once it has.
    recent: Cell<Option<(ClientId, u32)>>,
    /// All full but the last.
    chunks: Vec<Vec<Slot>>,
    slots: u32,
    first_vacant: Option<u32>,
}

impl Clients {
    pub(crate) fn new() -> Self {
        // Client ids are granted by the coordinator, so nobody can choose them to collide: a fixed seed will do.
        let index = HashMap::with_hasher(FixedState::default());
        Self { index, recent: Cell::new(None), chunks: Vec::new(), slots: 0, first_vacant: None }
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    pub(crate) fn bytes(&self) -> usize {
        self.index.allocation_size()
            + self.chunks.capacity() * size_of::<Vec<Slot>>()
            + self.chunks.len() * CHUNK as usize * size_of::<Slot>()
    }

    pub(crate) fn get(&self, id: ClientId) -> Option<&Client> {
        self.at(self.slot_of(id)?)
    }

    pub(crate) fn get_mut(&mut self, id: ClientId) -> Option<&mut Client> {
        let slot = self.slot_of(id)?;
        Some(self.occupied_mut(slot))
    }

    fn slot_of(&self, id: ClientId) -> Option<u32> {
        if let Some((_, slot)) = self.recent.get().filter(|&(recent, _)| recent == id) {
            return Some(slot);
        }
        let slot = *self.index.get(&id)?;
        self.recent.set(Some((id, slot)));
        Some(slot)
    }

    /// The client in a slot below [`Self::slots`], if there is one.
    pub(crate) fn at(&self, slot: u32) -> Option<&Client> {
        match &self.chunks[(slot / CHUNK) as usize][(slot % CHUNK) as usize] {
            Slot::Occupied(client) => Some(client),
            Slot::Vacant { .. } => None,
        }
    }

    fn occupied_mut(&mut self, slot: u32) -> &mut Client {
        match self.slot_mut(slot) {
            Slot::Occupied(client) => client,
            Slot::Vacant { .. } => unreachable!("the index names occupied slots"),
        }
    }

    fn slot_mut(&mut self, slot: u32) -> &mut Slot {
        &mut self.chunks[(slot / CHUNK) as usize][(slot % CHUNK) as usize]
    }

    pub(crate) fn get_or_create(&mut self, id: ClientId) -> &mut Client {
        let slot = self.slot_of(id).unwrap_or_else(|| self.create(id));
        self.occupied_mut(slot)
    }

    fn create(&mut self, id: ClientId) -> u32 {
        let slot = self.take_slot();
        self.index.insert(id, slot);
        let (acknowledged, lease_expiry) = (AckedBelow(1), ClusterTime(0));
        *self.slot_mut(slot) =
            Slot::Occupied(Client { id, acknowledged, lease_expiry, outstanding: Outstanding::None });
        slot
    }

    fn take_slot(&mut self) -> u32 {
        if let Some(slot) = self.first_vacant {
            let Slot::Vacant { next } = *self.slot_mut(slot) else { unreachable!("a vacant slot") };
            self.first_vacant = next;
            return slot;
        }
        let slot = self.slots;
        self.slots = slot.checked_add(1).expect("2^32 clients of one shard");
        if slot.is_multiple_of(CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK as usize));
        }
        self.chunks.last_mut().expect("just ensured").push(Slot::Vacant { next: None });
        slot
    }

    pub(crate) fn remove(&mut self, id: ClientId) -> Option<Client> {
        self.recent.set(None);
        let slot = self.index.remove(&id)?;
        let next = self.first_vacant.replace(slot);
        match std::mem::replace(self.slot_mut(slot), Slot::Vacant { next }) {
            Slot::Occupied(client) => Some(client),
            Slot::Vacant { .. } => unreachable!("the index names occupied slots"),
        }
    }
}
