//! The body of an update: the part of a request that never changes (R2.1). Witnesses store it, logs hash it.
//!
//! ```text
//! offset  bytes  field
//!      0      8  client id
//!      8      8  sequence
//!     16      8  acknowledgement: every sequence below this one has its result
//!     24      8  lease expiry (ClusterTime milliseconds)
//!     32      8  not after (ClusterTime milliseconds; 0 = no operation key), R4.9
//!     40      8  begun (ClusterTime milliseconds): what lifetimes of keys count from (R5.2)
//!     48      1  operation code (see the operation module); 33, 34: a transaction over several shards
//!     49      1  bytes of the operation key, 0 = none
//!     50      2  of a transaction over several shards with an operation key: which part its client named first; else 0
//!     52      4  table (of a transaction: its first part's)
//!     56      …  operation key
//!      …      …  of a transaction over several shards: its participants ([`Participants`])
//!      …      …  the operation's arguments
//! ```

use kasha_types::limits::{BODY_BYTES_MAX, OPERATION_KEY_BYTES_MAX};
use kasha_types::{
    AckedBelow, BodyHash, ClientId, ClusterTime, KeyHash, RpcId, Sequence, ShardId, Slot, TableId, key_hash,
    operation_key_hash, slot_of,
};

use crate::operation::{Participants, ParticipantsBuffer, Parts};
use crate::{DecodeError, Reader, Update};

/// Bytes before the operation key.
pub const BODY_HEAD_BYTES: usize = 56;

/// The code of a transaction over several shards. Its arguments are a transaction's, behind the participants.
const DISTRIBUTED_CODE: u8 = 33;
/// The same, if participants take locks whatever the parts are.
const COORDINATED_CODE: u8 = 34;
/// The code of a transaction.
const TRANSACTION_CODE: u8 = 32;
/// Where the operation's code stands.
const CODE_AT: usize = 48;
/// Where it stands which part was named first.
const FIRST_PART_AT: usize = 50;

fn is_distributed(code: u8) -> bool {
    matches!(code, DISTRIBUTED_CODE | COORDINATED_CODE)
}

/// When the participants of a transaction over several shards take locks and vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coordination {
    /// If a part can fail, or there is an operation key.
    AsPartsNeed,
    /// In any case.
    Always,
}

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
    /// When the client gave the update its number, by what it knew of ClusterTime. Lifetimes of keys count from here: it is no
    /// part of the operation, so that the same operation under the same operation key is the same at any time.
    pub begun: ClusterTime,
    /// The table of all keys; of a transaction, whose parts name their tables, that of the first part.
    pub table: TableId,
}

impl BodyHead {
    /// What a body begins with.
    fn words(&self) -> [u64; 6] {
        let RpcId { client, sequence } = self.rpc;
        [client.0, sequence.0, self.acknowledgement.0, self.lease_expiry.0, self.not_after.0, self.begun.0]
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
        let (lease_expiry, not_after, begun) = (reader.take()?, reader.take()?, reader.take()?);
        let (code, key_len, first_part): (u8, u8, u16) = (reader.take()?, reader.take()?, reader.take()?);
        let table = reader.take()?;
        if rpc.client == ClientId(0) || rpc.sequence == Sequence(0) {
            return Err(DecodeError::Invalid("a request id of 0"));
        }
        if acknowledgement.0 > rpc.sequence.0 {
            return Err(DecodeError::Invalid("an acknowledgement above its own sequence"));
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
            DISTRIBUTED_CODE | COORDINATED_CODE => Participants::decode_before(arguments, TRANSACTION_CODE)?.1,
            _ => Update::decode(code, arguments)?,
        };
        if first_part != 0 {
            let parts = match update {
                Update::Transaction { parts } if is_distributed(code) && operation_key.is_some() => parts.count(),
                _ => 0,
            };
            if u32::from(first_part) >= parts {
                return Err(DecodeError::Invalid("the part that was named first"));
            }
        }
        if let Update::Transaction { parts } = update
            && parts.first_table() != Some(table)
        {
            return Err(DecodeError::Invalid("a transaction's table"));
        }
        Ok(Self {
            head: BodyHead { rpc, acknowledgement, lease_expiry, not_after, begun, table },
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

    /// Encodes a transaction over several shards at the end of `out`. `parts` are those of the participants in `list`, in its
    /// order. `first_part`: which of them the client named first.
    ///
    /// # Panics
    /// If the operation key exceeds its limit, or a number its field: the client checks them first.
    pub fn encode_distributed(
        head: &BodyHead,
        operation_key: Option<&[u8]>,
        class: Coordination,
        (list, parts, first_part): (&ParticipantsBuffer, Parts<'_>, usize),
        out: &mut Vec<u8>,
    ) {
        let begin = out.len();
        let code = match class {
            Coordination::AsPartsNeed => DISTRIBUTED_CODE,
            Coordination::Always => COORDINATED_CODE,
        };
        Self::begin(head, operation_key, code, out);
        if operation_key.is_some() {
            let first_part = u16::try_from(first_part).expect("few parts");
            out[begin + FIRST_PART_AT..][..2].copy_from_slice(&first_part.to_le_bytes());
        }
        list.encode(out);
        Update::Transaction { parts }.encode_arguments(out);
    }

    /// Changes whether participants take locks, in an encoded transaction over several shards that nobody was sent under its id.
    ///
    /// # Panics
    /// If `body` is shorter than a head.
    pub fn set_coordination(body: &mut [u8], class: Coordination) {
        debug_assert!(is_distributed(body[CODE_AT]), "no other body has a class");
        body[CODE_AT] = match class {
            Coordination::AsPartsNeed => DISTRIBUTED_CODE,
            Coordination::Always => COORDINATED_CODE,
        };
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

    /// Replaces what a client learns only when it sends an encoded body: its id, acknowledgement, lease expiry, time
    /// limit and beginning. Everything else stays, the table too.
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
        is_distributed(self.bytes[CODE_AT])
    }

    /// Whether it is a transaction over several shards whose participants take locks and vote, since one of them might refuse it.
    #[must_use]
    pub fn is_coordinated(&self) -> bool {
        let Update::Transaction { parts } = self.update else { return false };
        self.is_distributed()
            && (self.bytes[CODE_AT] == COORDINATED_CODE || self.operation_key.is_some() || !parts.cannot_fail())
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

    /// The participant that keeps the operation key of a transaction over several shards: the owner of the key that was named first.
    #[must_use]
    pub fn keeper(&self) -> Option<ShardId> {
        let mut first_part = u32::from(u16::from_le_bytes([self.bytes[FIRST_PART_AT], self.bytes[FIRST_PART_AT + 1]]));
        let mut participants = self.participants().filter(|_| self.operation_key.is_some())?.iter();
        let has_it = |&(_, parts): &(ShardId, u32)| {
            let has_it = first_part < parts;
            first_part = first_part.saturating_sub(parts);
            has_it
        };
        participants.find(has_it).map(|(shard, _)| shard)
    }

    /// How many parts stand before those of this participant.
    #[must_use]
    pub fn parts_before(&self, shard: ShardId) -> Option<u32> {
        let mut before = 0;
        for (participant, parts) in self.participants()?.iter() {
            if participant == shard {
                return Some(before);
            }
            before += parts;
        }
        None
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

    /// The slot of the operation's first key, as the client named them: where an operation key lives.
    #[must_use]
    pub fn first_slot(&self) -> Slot {
        let first_part = u16::from_le_bytes([self.bytes[FIRST_PART_AT], self.bytes[FIRST_PART_AT + 1]]);
        let (mut first, mut before) = (None, first_part);
        self.for_each_key(|_, _, slot| {
            if before == 0 {
                first = first.or(Some(slot));
            }
            before = before.saturating_sub(1);
        });
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
        hashes.extend(self.operation_key_hash());
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
            begun: ClusterTime(number + 4),
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
