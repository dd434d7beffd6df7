//! The body of an update: the part of a request that never changes (R2.1). Witnesses store it, logs hash it.
//!
//! ```text
//! offset  bytes  field
//!      0      8  client id
//!      8      8  sequence
//!     16      8  acknowledgement: every sequence below this one has its result
//!     24      8  lease expiry (ClusterTime milliseconds)
//!     32      1  operation code (see the operation module); 33, 34: a transaction over several shards
//!     33      1  bytes of the operation key, 0 = none
//!     34      2  bit 15: it says when it was begun, as what has a lifetime or a command does; 14: its client says what the operation key stands for; 13: a refusal is not
//!                kept. The others: of a transaction with an operation key, which part its client named first; else 0
//!     36      4  table (of a transaction: its first part's)
//!     40      8  with an operation key only: not after (ClusterTime milliseconds), R4.9
//!      …      8  with bit 15 only: begun (ClusterTime milliseconds): what lifetimes of keys count from (R5.2, R10.12)
//!      …      8  with bit 14 only: what the operation key stands for, R11.13
//!      …      …  operation key
//!      …      …  of a transaction over several shards: its participants ([`Participants`])
//!      …      …  the operation's arguments
//! ```

use kasha_types::limits::{BODY_BYTES_MAX, OPERATION_KEY_BYTES_MAX};
use kasha_types::{
    AckedBelow, BodyHash, ClientId, ClusterTime, KeyHash, OperationName, RpcId, Sequence, ShardId, Slot, TableId,
    key_hash, slot_of,
};

use crate::operation::{Participants, ParticipantsBuffer, Parts};
use crate::{DecodeError, Reader, Update};

/// Bytes that every body begins with.
pub const BODY_HEAD_BYTES: usize = 40;

/// The code of a transaction over several shards. Its arguments are a transaction's, behind the participants.
const DISTRIBUTED_CODE: u8 = 33;
/// The same, if participants take locks whatever the parts are.
const COORDINATED_CODE: u8 = 34;
/// The code of a transaction.
const TRANSACTION_CODE: u8 = 32;
/// Where the operation's code stands.
const CODE_AT: usize = 32;
/// Where it stands how long the operation key is.
const KEY_LEN_AT: usize = 33;
/// Where it stands which part was named first, and, in the highest bits, what else there is.
const FLAGS_AT: usize = 34;
/// It says when it was begun.
const HAS_BEGUN: u16 = 1 << 15;
/// The client says what the operation key stands for.
const IS_SAID: u16 = 1 << 14;
/// What was refused keeps nothing under the operation key.
const FORGETS_REFUSAL: u16 = 1 << 13;
/// The other bits.
const FIRST_PART: u16 = FORGETS_REFUSAL - 1;
/// Bytes of each number that only some bodies have.
const NUMBER_BYTES: usize = 8;

/// What a client says of an operation key, of an update that is made of more than its program has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// What the key stands for: a hash of what the program has said (R11.13). Whoever comes with another one has another operation.
    pub fingerprint: u64,
    /// Whether it is kept under the key that a part has kept all others from running. If not, that was a demand that the program does not know
    /// of, or may make again.
    pub keeps_refusal: bool,
    /// Which part of a transaction has the key that the operation key belongs to: what stands before it are demands.
    pub first_part: u16,
}

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
    /// When the client gave the update its number, by what it knew of ClusterTime; 0 where [`Update::says_begun`] does not hold. Lifetimes of
    /// keys count from here, and what was over by then is over in a replay, too. It is no part of the operation, so that the same operation
    /// under the same operation key is the same at any time.
    pub begun: ClusterTime,
    /// The table of all keys; of a transaction, whose parts name their tables, that of the first part.
    pub table: TableId,
}

impl BodyHead {
    /// What a body begins with.
    fn words(&self) -> [u64; 4] {
        let RpcId { client, sequence } = self.rpc;
        [client.0, sequence.0, self.acknowledgement.0, self.lease_expiry.0]
    }
}

/// Where what follows the head and the numbers of a body begins. `head`: at least the head.
#[inline]
fn end_of_numbers(head: &[u8]) -> usize {
    let flags = head[FLAGS_AT + 1];
    let numbers = u8::from(head[KEY_LEN_AT] != 0) + (flags >> 7) + (flags >> 6 & 1);
    BODY_HEAD_BYTES + NUMBER_BYTES * usize::from(numbers)
}

fn flags_of(head: &[u8]) -> u16 {
    u16::from_le_bytes([head[FLAGS_AT], head[FLAGS_AT + 1]])
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
        let (acknowledgement, lease_expiry): (AckedBelow, _) = (reader.take()?, reader.take()?);
        let (code, key_len, flags): (u8, u8, u16) = (reader.take()?, reader.take()?, reader.take()?);
        let table = reader.take()?;
        if rpc.client == ClientId(0) || rpc.sequence == Sequence(0) {
            return Err(DecodeError::Invalid("a request id of 0"));
        }
        if acknowledgement.0 > rpc.sequence.0 {
            return Err(DecodeError::Invalid("an acknowledgement above its own sequence"));
        }
        // Most bodies have nothing more, and then begin with their arguments.
        let is_plain = key_len == 0 && flags == 0;
        let (optional, arguments) = match is_plain {
            true => (Optional::default(), rest),
            false => Optional::take(rest, key_len, flags)?,
        };
        let Optional { not_after, begun, operation_key } = optional;
        let update = match code {
            DISTRIBUTED_CODE | COORDINATED_CODE => Participants::decode_before(arguments, TRANSACTION_CODE)?.1,
            _ => Update::decode(code, arguments)?,
        };
        // Bodies with commands did not always say it.
        let is_fine = if flags & HAS_BEGUN == 0 { !update.has_lifetime() } else { update.says_begun() };
        if !is_fine {
            return Err(DecodeError::Invalid("a lifetime without its beginning, or the reverse"));
        }
        if flags & !HAS_BEGUN != 0 {
            check_flags(flags, code, operation_key, &update)?;
        }
        if let Update::Transaction { parts } | Update::Batch { batch: parts } = update
            && parts.first_table() != Some(table)
        {
            return Err(DecodeError::Invalid("a transaction's table"));
        }
        if let (Update::Batch { .. }, Some(_)) = (update, operation_key) {
            return Err(DecodeError::Invalid("an operation key of a batch, whose parts may run apart"));
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
        Self::begin(head, operation_key, update, out);
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
        let update = Update::Transaction { parts };
        Self::begin(head, operation_key, &update, out);
        out[begin + CODE_AT] = code;
        if operation_key.is_some() {
            let [low, high] = u16::try_from(first_part).expect("few parts").to_le_bytes();
            out[begin + FLAGS_AT] = low;
            out[begin + FLAGS_AT + 1] |= high;
        }
        list.encode(out);
        update.encode_arguments(out);
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
    pub fn begin(head: &BodyHead, operation_key: Option<&[u8]>, update: &Update<'_>, out: &mut Vec<u8>) {
        let operation_key = operation_key.unwrap_or_default();
        assert!(operation_key.len() <= OPERATION_KEY_BYTES_MAX, "checked by the client");
        for word in head.words() {
            out.extend_from_slice(&word.to_le_bytes());
        }
        let flags = if update.says_begun() { HAS_BEGUN } else { 0 };
        out.extend_from_slice(&[update.code(), u8::try_from(operation_key.len()).expect("at most 128")]);
        out.extend_from_slice(&flags.to_le_bytes());
        out.extend_from_slice(&head.table.0.to_le_bytes());
        if !operation_key.is_empty() {
            out.extend_from_slice(&head.not_after.0.to_le_bytes());
        }
        if flags != 0 {
            out.extend_from_slice(&head.begun.0.to_le_bytes());
        }
        out.extend_from_slice(operation_key);
    }

    /// Says what the operation key of an encoded body stands for, which does not say it yet. A transaction over several shards says already which
    /// part was named first.
    ///
    /// # Panics
    /// If it has no operation key.
    pub fn say(body: &mut Vec<u8>, said: Said) {
        assert!(body[KEY_LEN_AT] != 0 && flags_of(body) & IS_SAID == 0, "it has a key, and says nothing of it");
        let at = end_of_numbers(body);
        body.splice(at..at, said.fingerprint.to_le_bytes());
        let forgets = if said.keeps_refusal { 0 } else { FORGETS_REFUSAL };
        let first_part = if is_distributed(body[CODE_AT]) { flags_of(body) & FIRST_PART } else { said.first_part };
        let flags = flags_of(body) | IS_SAID | forgets | first_part;
        body[FLAGS_AT..FLAGS_AT + 2].copy_from_slice(&flags.to_le_bytes());
    }

    /// What its client has said of its operation key.
    #[must_use]
    pub fn said(&self) -> Option<Said> {
        let flags = flags_of(self.bytes);
        if flags & IS_SAID == 0 {
            return None;
        }
        let fingerprint = self.bytes[..end_of_numbers(self.bytes)].last_chunk().expect("it has the number");
        let (keeps_refusal, first_part) = (self.keeps_refusal(), self.first_part());
        Some(Said { fingerprint: u64::from_le_bytes(*fingerprint), keeps_refusal, first_part })
    }

    /// Whether it is kept under its operation key that one of its parts has kept the others from running.
    #[must_use]
    pub fn keeps_refusal(&self) -> bool {
        flags_of(self.bytes) & FORGETS_REFUSAL == 0
    }

    /// Replaces what a client learns only when it sends an encoded body: its id, acknowledgement, lease expiry, time
    /// limit and beginning, if it has these. Everything else stays, the table too.
    ///
    /// # Panics
    /// If `body` is shorter than a head.
    pub fn renumber(body: &mut [u8], head: &BodyHead) {
        for (place, word) in body[..BODY_HEAD_BYTES].chunks_exact_mut(8).zip(head.words()) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let has_key = body[KEY_LEN_AT] != 0;
        let times = BODY_HEAD_BYTES..end_of_numbers(body);
        let both = [(head.not_after, has_key), (head.begun, flags_of(body) & HAS_BEGUN != 0)];
        for (place, (time, _)) in
            body[times].chunks_exact_mut(NUMBER_BYTES).zip(both.iter().filter(|(_, has_it)| *has_it))
        {
            place.copy_from_slice(&time.0.to_le_bytes());
        }
        debug_assert!(Body::decode(body).is_ok_and(|body| {
            let begun = if flags_of(body.bytes) & HAS_BEGUN != 0 { head.begun } else { ClusterTime(0) };
            body.head == BodyHead { begun, ..*head }
        }));
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

    /// The participants, if it is a transaction over several shards. The list never changes (R8.11). Few bodies have one, and none
    /// carries its place.
    #[must_use]
    pub fn participants(&self) -> Option<Participants<'a>> {
        self.is_distributed().then(|| Participants::before_decoded(self.arguments()))
    }

    /// The participant that keeps, and tells, why a transaction over several shards under an operation key does not happen. `None`: nothing of that
    /// is kept, and whoever refuses it tells that.
    #[must_use]
    pub fn keeper_of_refusal(&self) -> Option<ShardId> {
        self.keeper().filter(|_| self.keeps_refusal())
    }

    /// The participant that keeps the operation key of a transaction over several shards: the owner of the key that was named first.
    #[must_use]
    pub fn keeper(&self) -> Option<ShardId> {
        let mut first_part = u32::from(self.first_part());
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

    /// Fingerprint of operation and keys (R4.9): what its client says, or everything behind the operation key, table and code included.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        if let Some(said) = self.said() {
            return said.fingerprint;
        }
        let code = u64::from(self.bytes[CODE_AT]) << 32 | u64::from(self.head.table.0);
        kasha_types::body_hash(self.arguments()).0 ^ code.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    /// Calls `each` with every key, its table and its slot, in the operation's order.
    pub fn for_each_key(&self, mut each: impl FnMut(TableId, &'a [u8], Slot)) {
        self.update.for_each_key(self.head.table, |table, key| each(table, key, slot_of(key)));
    }

    /// The operation's first key, as the client named them, and its table.
    ///
    /// # Panics
    /// Never: every update has a key.
    #[must_use]
    pub fn first_key(&self) -> (TableId, &'a [u8]) {
        if let Update::Transaction { parts } = self.update {
            let part = parts.iter().nth(usize::from(self.first_part())).expect("checked when it was decoded");
            return (part.table, part.operation.first_key());
        }
        let mut first = None;
        self.update.for_each_key(self.head.table, |table, key| first = first.or(Some((table, key))));
        first.expect("every update has a key")
    }

    /// What its operation key names, if there is one: the whole operation, at every shard where it does something.
    #[must_use]
    #[inline]
    pub fn operation_name(&self) -> Option<OperationName<'a>> {
        let operation_key = self.operation_key?; // few have one
        let (table, first_key) = self.first_key();
        Some(OperationName { table, first_key, operation_key })
    }

    /// The slot with which this shard keeps what it keeps under the operation key: that of the operation's first key where that is
    /// a key of the shard, and that of the first key that is one elsewhere. So what is kept has a place where its shard's keys have
    /// theirs.
    ///
    /// # Panics
    /// If the shard is no participant.
    #[must_use]
    pub fn slot_of_kept(&self, shard: ShardId) -> Slot {
        if !self.is_distributed() || self.keeper() == Some(shard) {
            return slot_of(self.first_key().1);
        }
        let own = self.parts_at(shard).and_then(|parts| parts.iter().next()).expect("it takes part");
        slot_of(own.operation.first_key())
    }

    /// Hash of what the operation key names, if there is one.
    #[must_use]
    pub fn operation_key_hash(&self) -> Option<KeyHash> {
        self.operation_name().map(|name| name.hash())
    }

    /// Which part the client of a transaction under an operation key named first.
    #[must_use]
    pub fn first_part(&self) -> u16 {
        flags_of(self.bytes) & FIRST_PART
    }

    /// Everything behind the operation key.
    fn arguments(&self) -> &'a [u8] {
        &self.bytes[end_of_numbers(self.bytes) + self.operation_key.map_or(0, <[u8]>::len)..]
    }

    /// Collects the footprint's hashes: every key, and the operation key (R4.9). May hold duplicates.
    pub fn footprint(&self, hashes: &mut Vec<KeyHash>) {
        hashes.clear();
        self.update.for_each_key(self.head.table, |table, key| hashes.push(key_hash(table, key)));
        hashes.extend(self.touches_everything().then_some(KeyHash::EVERYTHING));
        hashes.extend(self.operation_key_hash());
    }

    /// Whether it touches all keys of a table, at some shard.
    #[must_use]
    #[inline]
    pub fn touches_everything(&self) -> bool {
        self.update.touches_everything()
    }

    /// The same of what it does at one shard: what that shard's witnesses hold it under.
    pub fn footprint_at(&self, shard: ShardId, hashes: &mut Vec<KeyHash>) {
        if !self.is_distributed() {
            return self.footprint(hashes);
        }
        hashes.clear();
        for part in self.parts_at(shard).into_iter().flat_map(|parts| parts.iter()) {
            part.operation.for_each_key(|key| hashes.push(key_hash(part.table, key)));
            hashes.extend(part.operation.touches_everything().then_some(KeyHash::EVERYTHING));
        }
        hashes.extend(self.operation_key_hash());
    }
}

/// Checks what the flags say of an update that is there.
#[cold]
#[inline(never)]
fn check_flags(flags: u16, code: u8, key: Option<&[u8]>, update: &Update<'_>) -> Result<(), DecodeError> {
    if flags & FORGETS_REFUSAL != 0 && !matches!(update, Update::Transaction { .. }) {
        return Err(DecodeError::Invalid("what can be refused"));
    }
    let parts = match update {
        Update::Transaction { parts } if key.is_some() && (is_distributed(code) || flags & IS_SAID != 0) => {
            parts.count()
        }
        _ => 1,
    };
    match u32::from(flags & FIRST_PART) < parts {
        true => Ok(()),
        false => Err(DecodeError::Invalid("the part that was named first")),
    }
}

/// What only some bodies have.
#[derive(Clone, Copy, Default)]
struct Optional<'a> {
    not_after: ClusterTime,
    begun: ClusterTime,
    operation_key: Option<&'a [u8]>,
}

impl<'a> Optional<'a> {
    /// Takes it from what follows the head. The rest is the arguments.
    #[cold]
    #[inline(never)]
    fn take(bytes: &'a [u8], key_len: u8, flags: u16) -> Result<(Self, &'a [u8]), DecodeError> {
        if usize::from(key_len) > OPERATION_KEY_BYTES_MAX {
            return Err(DecodeError::TooLarge("the operation key"));
        }
        let (mut reader, mut optional) = (Reader::new(bytes), Self::default());
        if key_len != 0 {
            optional.not_after = reader.take()?;
            if optional.not_after == ClusterTime(0) {
                return Err(DecodeError::Invalid("an operation key without its time limit"));
            }
        }
        if flags & HAS_BEGUN != 0 {
            optional.begun = reader.take()?;
        }
        if flags & IS_SAID != 0 {
            reader.take::<u64>()?;
        }
        if flags & IS_SAID != 0 && key_len == 0 || flags & (IS_SAID | FORGETS_REFUSAL) == FORGETS_REFUSAL {
            return Err(DecodeError::Invalid("what an operation key stands for, without one"));
        }
        let rest = reader.rest();
        let (operation_key, arguments) = rest.split_at_checked(usize::from(key_len)).ok_or(DecodeError::Truncated)?;
        optional.operation_key = (!operation_key.is_empty()).then_some(operation_key);
        Ok((optional, arguments))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{Lifetime, PartOperation, PartsBuffer};

    #[test]
    fn r11_13_an_operation_key_stands_for_what_its_client_says() {
        let rpc = RpcId { client: ClientId(1), sequence: Sequence(1) };
        let lifetime = Lifetime::from_millis(5).expect("not 0");
        let mut parts = PartsBuffer::default();
        parts.push(TableId(3), &PartOperation::Update(Update::expire(b"k", lifetime)));
        parts.push(TableId(3), &PartOperation::Update(Update::delete(b"named")));
        let update = Update::Transaction { parts: parts.as_parts() };
        for (keeps_refusal, update) in [(true, Update::put(b"k", b"v")), (true, update), (false, update)] {
            let has_lifetime = update.has_lifetime();
            let head = BodyHead {
                rpc,
                acknowledgement: AckedBelow(1),
                lease_expiry: ClusterTime(9),
                not_after: ClusterTime(8),
                begun: ClusterTime(if has_lifetime { 7 } else { 0 }),
                table: TableId(3),
            };
            let mut bytes = Vec::new();
            Body::encode(&head, Some(b"order-42"), &update, &mut bytes);
            let first_part = u16::from(!keeps_refusal);
            let said = Said { fingerprint: 77, keeps_refusal, first_part };
            assert_eq!(Body::decode(&bytes).expect("encoded here").said(), None);
            Body::say(&mut bytes, said);
            Body::renumber(&mut bytes, &head);
            let body = Body::decode(&bytes).expect("encoded here");
            assert_eq!((body.head, body.operation_key, body.update), (head, Some(&b"order-42"[..]), update));
            assert_eq!((body.said(), body.fingerprint(), body.keeps_refusal()), (Some(said), 77, keeps_refusal));
            let first = if keeps_refusal { &b"k"[..] } else { b"named" };
            assert_eq!(body.first_key(), (TableId(3), first));
            for wrong in [IS_SAID, IS_SAID | FORGETS_REFUSAL] {
                let mut other = Vec::new();
                Body::encode(&BodyHead { not_after: ClusterTime(0), ..head }, None, &update, &mut other);
                let flags = flags_of(&other) | wrong;
                other[FLAGS_AT..FLAGS_AT + 2].copy_from_slice(&flags.to_le_bytes());
                assert!(Body::decode(&other).is_err(), "there is no key");
            }
        }
    }

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
        let lifetime = Lifetime::from_millis(5).expect("not 0");
        for update in [Update::put(b"k", b"v"), Update::expire(b"k", lifetime)] {
            for key in [None, Some(&b"order-42"[..])] {
                let not_after = |head: BodyHead| BodyHead {
                    not_after: if key.is_some() { head.not_after } else { ClusterTime(0) },
                    ..head
                };
                let (mut renumbered, mut encoded) = (Vec::new(), Vec::new());
                Body::encode(&not_after(head(7)), key, &update, &mut renumbered);
                Body::renumber(&mut renumbered, &not_after(head(1000)));
                Body::encode(&not_after(head(1000)), key, &update, &mut encoded);
                assert_eq!(renumbered, encoded);
                let begun = Body::decode(&encoded).expect("encoded here").head.begun;
                assert_eq!(begun, ClusterTime(if update.has_lifetime() { 1004 } else { 0 }));
            }
        }
    }
}
