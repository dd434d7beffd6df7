//! The bytes of the two log entries of an operation key (R4.9): its record, and its logged expiry.
//!
//! Both entries live, migrate and are recovered by their slot, the slot of the operation's first key. The log entry
//! around them has length and checksum. Format 1, all numbers little-endian:
//!
//! | bytes of a record | field | | bytes of an expiry | field |
//! |---|---|---|---|---|
//! | 0 | format = 1 | | 0 | format = 1 |
//! | 1..3 | slot (u16, below 16384) | | 1..3 | slot (u16, below 16384) |
//! | 3 | k, bytes of the operation key (u8, at most 128) | | 3..11 | when it expired (u64, ClusterTime ms) |
//! | 4..12 | fingerprint (u64) | | 11.. | operation key, to the end (at most 128) |
//! | 12..20 | expires at (u64, ClusterTime ms) | | | |
//! | 20..28 | client id (u64) | | | |
//! | 28..36 | sequence (u64) | | | |
//! | 36..36+k | operation key | | | |
//! | 36+k.. | result bytes, to the end | | | |

use kasha_types::limits::{OPERATION_KEY_BYTES_MAX, RESULT_BYTES_MAX, SLOTS};
use kasha_types::{ClientId, ClusterTime, RpcId, Sequence, Slot};

use crate::Fingerprint;
use crate::codec::{Reader, Writer};

const FORMAT: u8 = 1;
const RECORD_HEADER_BYTES: usize = 36;
const DROPPED_HEADER_BYTES: usize = 11;

/// The result kept under a user's own operation key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationKeyRecord<'a> {
    /// Slot of the operation's first key: with the operation key, its identity.
    pub slot: Slot,
    /// The operation key, at most `OPERATION_KEY_BYTES_MAX` bytes.
    pub operation_key: &'a [u8],
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
        RECORD_HEADER_BYTES + self.operation_key.len()
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
        assert!(self.operation_key.len() <= OPERATION_KEY_BYTES_MAX, "a key of {} bytes", self.operation_key.len());
        assert!(self.result.len() <= RESULT_BYTES_MAX, "a result of {} bytes", self.result.len());
        let mut writer = Writer::new(out);
        writer.u8(FORMAT);
        writer.u16(self.slot.0);
        writer.u8(u8::try_from(self.operation_key.len()).expect("within the limit"));
        writer.u64(self.fingerprint.0);
        writer.u64(self.expires_at.0);
        writer.u64(self.rpc.client.0);
        writer.u64(self.rpc.sequence.0);
        writer.bytes(self.operation_key);
        writer.bytes(self.result);
        writer.finish();
    }

    /// Reads a record's whole payload; `None` if it is not one of format 1.
    #[must_use]
    pub fn decode(payload: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        if reader.u8()? != FORMAT {
            return None;
        }
        let slot = Slot(reader.u16()?);
        let key_len = usize::from(reader.u8()?);
        let fingerprint = Fingerprint(reader.u64()?);
        let expires_at = ClusterTime(reader.u64()?);
        let rpc = RpcId { client: ClientId(reader.u64()?), sequence: Sequence(reader.u64()?) };
        let operation_key = reader.bytes(key_len)?;
        let result = reader.rest();
        let within_limits = slot.0 < SLOTS && key_len <= OPERATION_KEY_BYTES_MAX && result.len() <= RESULT_BYTES_MAX;
        within_limits.then_some(Self { slot, operation_key, fingerprint, expires_at, rpc, result })
    }
}

/// An operation key's logged expiry: from here on a replay must not find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationKeyDropped<'a> {
    /// Slot of the operation's first key.
    pub slot: Slot,
    /// When it was found expired.
    pub at: ClusterTime,
    /// The operation key, at most `OPERATION_KEY_BYTES_MAX` bytes.
    pub operation_key: &'a [u8],
}

impl<'a> OperationKeyDropped<'a> {
    /// Bytes that [`Self::encode_into`] fills.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        DROPPED_HEADER_BYTES + self.operation_key.len()
    }

    /// Writes the entry.
    ///
    /// # Panics
    /// If `out` is not [`Self::encoded_len`] long, or a limit is exceeded.
    pub fn encode_into(&self, out: &mut [u8]) {
        assert!(self.operation_key.len() <= OPERATION_KEY_BYTES_MAX, "a key of {} bytes", self.operation_key.len());
        let mut writer = Writer::new(out);
        writer.u8(FORMAT);
        writer.u16(self.slot.0);
        writer.u64(self.at.0);
        writer.bytes(self.operation_key);
        writer.finish();
    }

    /// Reads an entry's whole payload; `None` if it is not one of format 1.
    #[must_use]
    pub fn decode(payload: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        if reader.u8()? != FORMAT {
            return None;
        }
        let slot = Slot(reader.u16()?);
        let at = ClusterTime(reader.u64()?);
        let operation_key = reader.rest();
        let within_limits = slot.0 < SLOTS && operation_key.len() <= OPERATION_KEY_BYTES_MAX;
        within_limits.then_some(Self { slot, at, operation_key })
    }
}
