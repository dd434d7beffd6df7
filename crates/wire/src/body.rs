//! The body of an update: the part of a request that never changes (R2.1). Witnesses store it, logs hash it.
//!
//! ```text
//! offset  bytes  field
//!      0      8  client id
//!      8      8  sequence
//!     16      8  acknowledgement: every sequence below this one has its result
//!     24      8  lease expiry (ClusterTime milliseconds)
//!     32      8  not after (ClusterTime milliseconds; 0 = no operation key), R4.9
//!     40      1  operation code (see the operation module); 33: a transaction over several shards
//!     41      1  bytes of the operation key, 0 = none
//!     42      2  reserved, 0
//!     44      4  table (of a transaction: its first part's)
//!     48      …  operation key
//!      …      …  of a transaction over several shards: its participants ([`Participants`])
//!      …      …  the operation's arguments
//! ```

use kasha_types::limits::{BODY_BYTES_MAX, OPERATION_KEY_BYTES_MAX};
use kasha_types::{
    AckedBelow, BodyHash, ClientId, ClusterTime, KeyHash, RpcId, Sequence, ShardId, Slot, TableId, key_hash,
    operation_key_hash, slot_of,
};

use crate::operation::{Participants, Parts};
use crate::{DecodeError, Reader, Update};

/// Bytes before the operation key.
pub const BODY_HEAD_BYTES: usize = 48;

/// The code of a transaction over several shards. Its arguments are a transaction's, behind the participants.
pub const DISTRIBUTED_CODE: u8 = 33;
/// The code of a transaction.
const TRANSACTION_CODE: u8 = 32;
/// Where the operation's code stands.
const CODE_AT: usize = 40;

/// The fixed fields of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyHead {
    /// The update's name.
    pub rpc: RpcId,
    /// Every sequence below has its result.
    pub acknowledgement: AckedBelow,
    /// When the client's lease ended as far as it knew when it made the body.
    pub lease_expiry: ClusterTime,
    /// Past this time the request is refused as unprovable; 0 without an operation key (R4.9).
    pub not_after: ClusterTime,
    /// The table of all keys; of a transaction, whose parts name their tables, that of the first part.
    pub table: TableId,
}

impl BodyHead {
    /// What a body begins with.
    fn words(&self) -> [u64; 5] {
        [self.rpc.client.0, self.rpc.sequence.0, self.acknowledgement.0, self.lease_expiry.0, self.not_after.0]
    }
}

/// A decoded body that borrows its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Body<'a> {
    /// The fields that every body has.
    pub head: BodyHead,
    /// The user's name for the update, if it has one: 1 to `OPERATION_KEY_BYTES_MAX` bytes.
    pub operation_key: Option<&'a [u8]>,
    /// What to do; of a transaction over several shards, at all of them.
    pub update: Update<'a>,
    bytes: &'a [u8],
}

impl<'a> Body<'a> {
    /// Decodes and checks a body completely: what follows cannot fail.
    ///
    /// # Errors
    /// If the bytes are no body, or exceed a limit.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        if bytes.len() > BODY_BYTES_MAX {
            return Err(DecodeError::TooLarge("the request"));
        }
        // Of a length that the compiler knows, so that no field is checked against the end.
        let (head, rest) = bytes.split_first_chunk::<BODY_HEAD_BYTES>().ok_or(DecodeError::Truncated)?;
        let mut reader = Reader::new(head);
        let rpc = RpcId { client: reader.take()?, sequence: reader.take()? };
        let acknowledgement: AckedBelow = reader.take()?;
        let (lease_expiry, not_after) = (reader.take()?, reader.take()?);
        let (code, key_len, reserved): (u8, u8, u16) = (reader.take()?, reader.take()?, reader.take()?);
        let table = reader.take()?;
        if rpc.client == ClientId(0) || rpc.sequence == Sequence(0) {
            return Err(DecodeError::Invalid("a request id of 0"));
        }
        if acknowledgement.0 > rpc.sequence.0 {
            return Err(DecodeError::Invalid("an acknowledgement above its own sequence"));
        }
        if reserved != 0 {
            return Err(DecodeError::Invalid("a reserved field"));
        }
        if usize::from(key_len) > OPERATION_KEY_BYTES_MAX {
            return Err(DecodeError::TooLarge("the operation key"));
        }
        let (operation_key, arguments) = rest.split_at_checked(usize::from(key_len)).ok_or(DecodeError::Truncated)?;
        let operation_key = (!operation_key.is_empty()).then_some(operation_key);
        if operation_key.is_some() != (not_after != ClusterTime(0)) {
            return Err(DecodeError::Invalid("an operation key without its time limit, or the reverse"));
        }
        let update = match code {
            DISTRIBUTED_CODE => Participants::decode_before(arguments, TRANSACTION_CODE)?.1,
            _ => Update::decode(code, arguments)?,
        };
        if let Update::Transaction { parts } = update
            && parts.first_table() != Some(table)
        {
            return Err(DecodeError::Invalid("a transaction's table"));
        }
        Ok(Self {
            head: BodyHead { rpc, acknowledgement, lease_expiry, not_after, table },
            operation_key,
            update,
            bytes,
        })
    }

    /// Encodes a body at the end of `out`.
    ///
    /// # Panics
    /// If the operation key exceeds its limit: the client checks it first.
    pub fn encode(head: &BodyHead, operation_key: Option<&[u8]>, update: &Update<'_>, out: &mut Vec<u8>) {
        Self::begin(head, operation_key, update.code(), out);
        update.encode_arguments(out);
    }

    /// Encodes a body up to the arguments, which are to follow.
    ///
    /// # Panics
    /// If the operation key exceeds its limit: the client checks it first.
    pub fn begin(head: &BodyHead, operation_key: Option<&[u8]>, code: u8, out: &mut Vec<u8>) {
        let operation_key = operation_key.unwrap_or_default();
        assert!(operation_key.len() <= OPERATION_KEY_BYTES_MAX, "checked by the client");
        for word in head.words() {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&[code, u8::try_from(operation_key.len()).expect("at most 128"), 0, 0]);
        out.extend_from_slice(&head.table.0.to_le_bytes());
        out.extend_from_slice(operation_key);
    }

    /// Replaces what a client learns only when it sends an encoded body: its id, acknowledgement, lease expiry and time
    /// limit. Everything else stays, the table too.
    ///
    /// # Panics
    /// If `body` is shorter than a head.
    pub fn renumber(body: &mut [u8], head: &BodyHead) {
        for (place, word) in body[..BODY_HEAD_BYTES].chunks_exact_mut(8).zip(head.words()) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        debug_assert_eq!(Body::decode(body).map(|body| body.head), Ok(*head), "the rest of the head is the same");
    }

    /// Whether it is a transaction over several shards.
    #[inline]
    #[must_use]
    pub fn is_distributed(&self) -> bool {
        self.bytes[CODE_AT] == DISTRIBUTED_CODE
    }

    /// The participants, if it is a transaction over several shards. The list never changes (R8.11). It is decoded anew: few
    /// bodies have one, and none carries its place.
    #[must_use]
    pub fn participants(&self) -> Option<Participants<'a>> {
        let arguments = BODY_HEAD_BYTES + self.operation_key.map_or(0, <[u8]>::len);
        let decoded =
            self.is_distributed().then(|| Participants::decode_before(&self.bytes[arguments..], TRANSACTION_CODE));
        decoded.map(|decoded| decoded.expect("checked when decoded").0)
    }

    /// What a transaction over several shards does at this one. `None`: it does nothing there, or is none.
    #[must_use]
    pub fn parts_at(&self, shard: ShardId) -> Option<Parts<'a>> {
        let Update::Transaction { parts } = self.update else { return None };
        self.participants()?.parts_of(shard, parts)
    }

    /// The bytes it was decoded from.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Its hash, by which a reused id is told from a retry.
    #[must_use]
    pub fn hash(&self) -> BodyHash {
        kasha_types::body_hash(self.bytes)
    }

    /// Fingerprint of operation and keys (R4.9): everything behind the operation key, table and code included.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let arguments = BODY_HEAD_BYTES + self.operation_key.map_or(0, <[u8]>::len);
        let code = u64::from(self.bytes[CODE_AT]) << 32 | u64::from(self.head.table.0);
        kasha_types::body_hash(&self.bytes[arguments..]).0 ^ code.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    /// Calls `each` with every key, its table and its slot, in the operation's order.
    pub fn for_each_key(&self, mut each: impl FnMut(TableId, &'a [u8], Slot)) {
        self.update.for_each_key(self.head.table, |table, key| each(table, key, slot_of(key)));
    }

    /// The slot of the operation's first key: where an operation key lives.
    #[must_use]
    pub fn first_slot(&self) -> Slot {
        let mut first = None;
        self.for_each_key(|_, _, slot| first = first.or(Some(slot)));
        first.expect("every update has a key")
    }

    /// Identity of the operation key, if there is one.
    #[must_use]
    pub fn operation_key_hash(&self) -> Option<KeyHash> {
        self.operation_key.map(|key| operation_key_hash(self.first_slot(), key))
    }

    /// Collects the footprint's hashes: every key, and the operation key (R4.9). May hold duplicates.
    pub fn footprint(&self, hashes: &mut Vec<KeyHash>) {
        hashes.clear();
        self.update.for_each_key(self.head.table, |table, key| hashes.push(key_hash(table, key)));
        hashes.extend(self.operation_key_hash());
    }

    /// The same of what it does at one shard: what that shard's witnesses hold it under.
    pub fn footprint_at(&self, shard: ShardId, hashes: &mut Vec<KeyHash>) {
        if !self.is_distributed() {
            return self.footprint(hashes);
        }
        hashes.clear();
        let own = self.parts_at(shard).into_iter().flat_map(|parts| parts.iter());
        hashes.extend(own.map(|part| key_hash(part.table, part.operation.key())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renumbered_body_is_the_body_of_its_head() {
        let head = |number| BodyHead {
            rpc: RpcId { client: ClientId(number), sequence: Sequence(number + 1) },
            acknowledgement: AckedBelow(number),
            lease_expiry: ClusterTime(number + 2),
            not_after: ClusterTime(number + 3),
            table: TableId(3),
        };
        let update = Update::Put { key: b"k", value: b"v" };
        let (mut renumbered, mut encoded) = (Vec::new(), Vec::new());
        Body::encode(&head(7), Some(b"order-42"), &update, &mut renumbered);
        Body::renumber(&mut renumbered, &head(1000));
        Body::encode(&head(1000), Some(b"order-42"), &update, &mut encoded);
        assert_eq!(renumbered, encoded);
    }
}
