//! The bytes of the two log entries of an operation key (R4.9): its record, and its logged expiry.
//!
//! Both entries have the whole identity: the table and the first key of the operation, and the operation key. They live, migrate and
//! are recovered by their slot: that of the first key, or, at a participant of a transaction over several shards that does not have
//! this key, that of the participant's own first key. The log entry around them has length and checksum. Format 2, all
//! numbers little-endian:
//!
//! | bytes of a record | field | | bytes of an expiry | field |
//! |---|---|---|---|---|
//! | 0 | format = 2 | | 0 | format = 2 |
//! | 1..3 | slot (u16, below 16384) | | 1..3 | slot (u16, below 16384) |
//! | 3 | k, bytes of the operation key (u8, at most 128) | | 3 | k, bytes of the operation key (u8, at most 128) |
//! | 4..6 | f, bytes of the first key (u16) | | 4..8 | table of the first key (u32) |
//! | 6..10 | table of the first key (u32) | | 8..16 | when it expired (u64, ClusterTime ms) |
//! | 10..18 | fingerprint (u64) | | 16..16+k | operation key |
//! | 18..26 | expires at (u64, ClusterTime ms) | | 16+k.. | first key, to the end |
//! | 26..34 | client id (u64) | | | |
//! | 34..42 | sequence (u64) | | | |
//! | 42..42+k | operation key | | | |
//! | 42+k..42+k+f | first key | | | |
//! | 42+k+f.. | result bytes, to the end | | | |

use kasha_types::limits::{KEY_BYTES_MAX, OPERATION_KEY_BYTES_MAX, RESULT_BYTES_MAX, SLOTS};
use kasha_types::{ClientId, ClusterTime, OperationName, RpcId, Sequence, Slot, TableId};

use crate::Fingerprint;
use crate::codec::{Reader, Writer};

const FORMAT: u8 = 2;
const RECORD_HEADER_BYTES: usize = 42;
const DROPPED_HEADER_BYTES: usize = 16;

fn is_within_limits(name: &OperationName<'_>) -> bool {
    name.operation_key.len() <= OPERATION_KEY_BYTES_MAX && name.first_key.len() <= KEY_BYTES_MAX
}

fn assert_within_limits(name: &OperationName<'_>) {
    let (operation_key, first_key) = (name.operation_key.len(), name.first_key.len());
    assert!(is_within_limits(name), "an operation key of {operation_key} bytes, a first key of {first_key}");
}

/// The result kept under a user's own operation key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationKeyRecord<'a> {
    /// Where it lives: what is kept moves with this slot.
    pub slot: Slot,
    /// Its identity.
    pub name: OperationName<'a>,
    /// Hash of the operation and its keys; another one under the same key is an error.
    pub fingerprint: Fingerprint,
    /// When the promise to remember ends.
    pub expires_at: ClusterTime,
    /// The update that ran.
    pub rpc: RpcId,
    /// The exact bytes of the answer; at most `RESULT_BYTES_MAX`.
    pub result: &'a [u8],
}

impl<'a> OperationKeyRecord<'a> {
    /// Where in the payload the result begins, so that an answer can name a slice of the log.
    #[must_use]
    pub fn result_offset(&self) -> usize {
        RECORD_HEADER_BYTES + self.name.operation_key.len() + self.name.first_key.len()
    }

    /// Bytes that [`Self::encode_into`] fills.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.result_offset() + self.result.len()
    }

    /// Writes the record.
    ///
    /// # Panics
    /// If `out` is not [`Self::encoded_len`] long, or a limit is exceeded.
    pub fn encode_into(&self, out: &mut [u8]) {
        let OperationName { table, first_key, operation_key } = self.name;
        assert_within_limits(&self.name);
        assert!(self.result.len() <= RESULT_BYTES_MAX, "a result of {} bytes", self.result.len());
        let mut writer = Writer::new(out);
        writer.u8(FORMAT);
        writer.u16(self.slot.0);
        writer.u8(u8::try_from(operation_key.len()).expect("within the limit"));
        writer.u16(u16::try_from(first_key.len()).expect("within the limit"));
        writer.u32(table.0);
        writer.u64(self.fingerprint.0);
        writer.u64(self.expires_at.0);
        writer.u64(self.rpc.client.0);
        writer.u64(self.rpc.sequence.0);
        writer.bytes(operation_key);
        writer.bytes(first_key);
        writer.bytes(self.result);
        writer.finish();
    }

    /// Reads a record's whole payload; `None` if it is not one of format 2.
    #[must_use]
    pub fn decode(payload: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        if reader.u8()? != FORMAT {
            return None;
        }
        let slot = Slot(reader.u16()?);
        let (key_len, first_key_len) = (usize::from(reader.u8()?), usize::from(reader.u16()?));
        let table = TableId(reader.u32()?);
        let fingerprint = Fingerprint(reader.u64()?);
        let expires_at = ClusterTime(reader.u64()?);
        let rpc = RpcId { client: ClientId(reader.u64()?), sequence: Sequence(reader.u64()?) };
        let (operation_key, first_key) = (reader.bytes(key_len)?, reader.bytes(first_key_len)?);
        let (name, result) = (OperationName { table, first_key, operation_key }, reader.rest());
        let within_limits = slot.0 < SLOTS && is_within_limits(&name) && result.len() <= RESULT_BYTES_MAX;
        within_limits.then_some(Self { slot, name, fingerprint, expires_at, rpc, result })
    }
}

/// An operation key's logged expiry: from here on a replay must not find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationKeyDropped<'a> {
    /// Where it lives: that of the record.
    pub slot: Slot,
    /// When it was found expired.
    pub at: ClusterTime,
    /// Its identity.
    pub name: OperationName<'a>,
}

impl<'a> OperationKeyDropped<'a> {
    /// Bytes that [`Self::encode_into`] fills.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        DROPPED_HEADER_BYTES + self.name.operation_key.len() + self.name.first_key.len()
    }

    /// Writes the entry.
    ///
    /// # Panics
    /// If `out` is not [`Self::encoded_len`] long, or a limit is exceeded.
    pub fn encode_into(&self, out: &mut [u8]) {
        let OperationName { table, first_key, operation_key } = self.name;
        assert_within_limits(&self.name);
        let mut writer = Writer::new(out);
        writer.u8(FORMAT);
        writer.u16(self.slot.0);
        writer.u8(u8::try_from(operation_key.len()).expect("within the limit"));
        writer.u32(table.0);
        writer.u64(self.at.0);
        writer.bytes(operation_key);
        writer.bytes(first_key);
        writer.finish();
    }

    /// Reads an entry's whole payload; `None` if it is not one of format 2.
    #[must_use]
    pub fn decode(payload: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        if reader.u8()? != FORMAT {
            return None;
        }
        let slot = Slot(reader.u16()?);
        let key_len = usize::from(reader.u8()?);
        let table = TableId(reader.u32()?);
        let at = ClusterTime(reader.u64()?);
        let operation_key = reader.bytes(key_len)?;
        let name = OperationName { table, first_key: reader.rest(), operation_key };
        (slot.0 < SLOTS && is_within_limits(&name)).then_some(Self { slot, at, name })
    }
}
