//! The expiry floor (R4.6): leases that end at the floor or before it are over for good.
//!
//! Clients' records are dropped only after an [`ExpiryFloorEntry`] that covers their leases is in the log and synced.
//! From then on, a request that the shard does not know is refused if its lease expires at the floor or before it. So it
//! is the floor that makes forgetting safe. The list of clients in an entry only repeats the forgetting at replay. So an
//! older entry may be cleaned when a later one is synced, and a copy of an entry names no clients. A replay that finds a
//! record of such a client again keeps the record, and its request is answered with the old result, which is true, instead
//! of being refused. This module does not know which clients are expired: the coordinator decides that.
//!
//! Format 1, all numbers little-endian:
//!
//! | bytes | field |
//! |---|---|
//! | 0 | format = 1 |
//! | 1..3 | n, number of clients (u16, at most 1000) |
//! | 3..11 | floor (u64, ClusterTime ms) |
//! | 11..11+8n | client ids (u64 each) |

use kasha_types::{ClientId, ClusterTime};

use crate::codec::{Reader, Writer};

const FORMAT: u8 = 1;
const HEADER_BYTES: usize = 11;

/// Clients named in one entry: bounds the work of the turn that applies it. More clients take more entries.
pub const CLIENTS_PER_FLOOR_ENTRY_MAX: usize = 1000;

/// A ClusterTime that only grows; leases up to it are over. Kept by whoever must refuse: the shard, its witnesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ExpiryFloor(ClusterTime);

impl ExpiryFloor {
    /// Whether a request with this lease expiry must be refused.
    #[must_use]
    pub fn refuses(self, lease_expiry: ClusterTime) -> bool {
        lease_expiry <= self.0
    }

    /// Raises the floor; a lower one changes nothing, so entries may be applied twice and in any order.
    pub fn raise(&mut self, floor: ClusterTime) {
        self.0 = self.0.max(floor);
    }

    /// The floor's time.
    #[must_use]
    pub fn time(self) -> ClusterTime {
        self.0
    }
}

/// A floor entry to be written.
#[derive(Clone, Copy, Debug)]
pub struct ExpiryFloorEntry<'a> {
    /// At or above the last lease expiry of every client named.
    pub floor: ClusterTime,
    /// Whose records go; at most [`CLIENTS_PER_FLOOR_ENTRY_MAX`].
    pub clients: &'a [ClientId],
}

impl ExpiryFloorEntry<'_> {
    /// Bytes that [`Self::encode_into`] fills.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        HEADER_BYTES + 8 * self.clients.len()
    }

    /// Writes the entry.
    ///
    /// # Panics
    /// If `out` is not [`Self::encoded_len`] long, or there are too many clients.
    pub fn encode_into(&self, out: &mut [u8]) {
        assert!(self.clients.len() <= CLIENTS_PER_FLOOR_ENTRY_MAX, "{} clients", self.clients.len());
        let mut writer = Writer::new(out);
        writer.u8(FORMAT);
        writer.u16(u16::try_from(self.clients.len()).expect("within the limit"));
        writer.u64(self.floor.0);
        for client in self.clients {
            writer.u64(client.0);
        }
        writer.finish();
    }
}

/// A floor entry read in place.
#[derive(Clone, Copy, Debug)]
pub struct ExpiryFloorEntryRef<'a> {
    /// The floor to be raised to.
    pub floor: ClusterTime,
    clients: &'a [u8],
}

impl<'a> ExpiryFloorEntryRef<'a> {
    /// Reads an entry's whole payload; `None` if it is not one of format 1.
    #[must_use]
    pub fn decode(payload: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        if reader.u8()? != FORMAT {
            return None;
        }
        let count = usize::from(reader.u16()?);
        let floor = ClusterTime(reader.u64()?);
        let clients = reader.rest();
        (count <= CLIENTS_PER_FLOOR_ENTRY_MAX && clients.len() == 8 * count).then_some(Self { floor, clients })
    }

    /// The clients whose completion records go.
    pub fn clients(&self) -> impl ExactSizeIterator<Item = ClientId> + use<'a> {
        self.clients.chunks_exact(8).map(|bytes| ClientId(u64::from_le_bytes(bytes.try_into().expect("8 bytes"))))
    }
}
