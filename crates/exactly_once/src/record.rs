//! The completion record: the durable result of an update (R4.1, RIFL 3).
//!
//! It is appended in one entry group with the changes of the update, lives as long as [`crate::Tracker`] says, and
//! moves with the slots that it names. This module knows its bytes only. The log entry around it has length and
//! checksum.
//!
//! Format 1, all numbers little-endian:
//!
//! | bytes | field |
//! |---|---|
//! | 0 | format = 1 |
//! | 1..3 | n, number of slots (u16, at most `OPERATION_KEYS_MAX`) |
//! | 3..11 | client id (u64) |
//! | 11..19 | sequence (u64) |
//! | 19..27 | body hash (u64) |
//! | 27..35 | acknowledgement (u64) |
//! | 35..43 | lease expiry (u64, ClusterTime ms) |
//! | 43..43+2n | slots (u16 each, below 16384) |
//! | 43+2n.. | result bytes, to the end |

use kasha_types::limits::{OPERATION_KEYS_MAX, RESULT_BYTES_MAX, SLOTS};
use kasha_types::{AckedBelow, BodyHash, ClientId, ClusterTime, RpcId, Sequence, Slot};

use crate::Request;
use crate::codec::{Reader, Writer};

const FORMAT: u8 = 1;
const HEADER_BYTES: usize = 43;

/// A completion record to be written.
#[derive(Clone, Copy, Debug)]
pub struct CompletionRecord<'a> {
    /// Whose result it is. For an update replayed from a witness, the acknowledgement in it is the shard's own,
    /// [`crate::Tracker::acknowledgement_of`] (R4.5).
    pub request: Request,
    /// All slots the operation touched; at most `OPERATION_KEYS_MAX`.
    pub slots: &'a [Slot],
    /// The exact bytes of the answer; at most `RESULT_BYTES_MAX`.
    pub result: &'a [u8],
}

impl CompletionRecord<'_> {
    /// Bytes of a record that names so many slots, with a result of so many bytes: to make room for one before the
    /// result is known.
    #[must_use]
    pub const fn encoded_len_of(slots: usize, result: usize) -> usize {
        HEADER_BYTES + 2 * slots + result
    }

    /// Where in the encoded record the result begins, so that an answer can name a slice of the log.
    #[must_use]
    pub fn result_offset(&self) -> usize {
        Self::encoded_len_of(self.slots.len(), 0)
    }

    /// Bytes that [`Self::encode_into`] fills.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        Self::encoded_len_of(self.slots.len(), self.result.len())
    }

    /// Writes the record.
    ///
    /// # Panics
    /// If `out` is not [`Self::encoded_len`] long, or a limit is exceeded.
    pub fn encode_into(&self, out: &mut [u8]) {
        assert!(self.slots.len() <= OPERATION_KEYS_MAX, "{} slots", self.slots.len());
        assert!(self.result.len() <= RESULT_BYTES_MAX, "a result of {} bytes", self.result.len());
        let Request { rpc, body_hash, acknowledgement, lease_expiry } = self.request;
        // Of a length that the compiler knows, so that no field is checked against the end.
        let (head, rest) = out.split_first_chunk_mut::<HEADER_BYTES>().expect("as long as the record");
        let mut writer = Writer::new(head);
        writer.u8(FORMAT);
        writer.u16(u16::try_from(self.slots.len()).expect("within the limit"));
        writer.u64(rpc.client.0);
        writer.u64(rpc.sequence.0);
        writer.u64(body_hash.0);
        writer.u64(acknowledgement.0);
        writer.u64(lease_expiry.0);
        writer.finish();
        let mut writer = Writer::new(rest);
        for slot in self.slots {
            writer.u16(slot.0);
        }
        writer.bytes(self.result);
        writer.finish();
    }
}

/// A completion record read in place.
#[derive(Clone, Copy, Debug)]
pub struct CompletionRecordRef<'a> {
    /// Whose result it is; what [`crate::Tracker::recover`] wants.
    pub request: Request,
    /// The exact bytes of the answer.
    pub result: &'a [u8],
    slots: &'a [u8],
}

impl<'a> CompletionRecordRef<'a> {
    /// Reads a record's whole payload; `None` if it is not one of format 1.
    #[must_use]
    pub fn decode(payload: &'a [u8]) -> Option<Self> {
        let (head, rest) = payload.split_first_chunk::<HEADER_BYTES>()?;
        let mut reader = Reader::new(head);
        if reader.u8()? != FORMAT {
            return None;
        }
        let slot_count = usize::from(reader.u16()?);
        let rpc = RpcId { client: ClientId(reader.u64()?), sequence: Sequence(reader.u64()?) };
        let body_hash = BodyHash(reader.u64()?);
        let acknowledgement = AckedBelow(reader.u64()?);
        let lease_expiry = ClusterTime(reader.u64()?);
        let (slots, result) = rest.split_at_checked(2 * slot_count)?;
        let request = Request { rpc, body_hash, acknowledgement, lease_expiry };
        let record = Self { request, result, slots };
        let within_limits = slot_count <= OPERATION_KEYS_MAX && result.len() <= RESULT_BYTES_MAX;
        (within_limits && record.slots().all(|slot| slot.0 < SLOTS)).then_some(record)
    }

    /// All slots the operation touched: the record goes wherever one of them goes (R4.1).
    pub fn slots(&self) -> impl ExactSizeIterator<Item = Slot> + use<'a> {
        self.slots.chunks_exact(2).map(|bytes| Slot(u16::from_le_bytes([bytes[0], bytes[1]])))
    }

    /// Where in the payload the result begins.
    #[must_use]
    pub fn result_offset(&self) -> usize {
        HEADER_BYTES + self.slots.len()
    }
}
