//! The payloads of the hot path: fixed fields first, then bytes that are read in place.
//!
//! ```text
//! Request, Record, Cancel   envelope (32), body …
//! Read              envelope (32), read id u64, table u32, code u8, 3 reserved, arguments …
//! envelope          shard u16, turn u16, epoch u32, list version u64, ClusterTime u64, attempt u32, waited u32
//! Answer            rpc (16), epoch u32, attempt u32, synced u8 (0 or 1), 1 reserved, shard u16, 4 reserved, result …
//! ReadAnswer        read id u64, result …
//! Append            shard u16, 2 reserved, epoch u32, attachment u32, 4 reserved, from u64, synced offset u64, round u64, log bytes …
//! ```
//!
//! The small answers use the codec, fields in order.

use kasha_types::{AttachId, ClusterTime, Epoch, ListVersion, LogEnd, Round, RpcId, ShardId, TableId};

use crate::frame::{self, Kind};
use crate::{DecodeError, Reader, Wire, wire_struct};

const ENVELOPE_BYTES: usize = 32;

/// The part of a request that is rewritten for each attempt (R2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Whom it is for.
    pub shard: ShardId,
    /// The primary's term, as far as the client knows.
    pub epoch: Epoch,
    /// The witness list that the client records on; [`ListVersion::NONE`]: on none.
    pub list: ListVersion,
    /// What the client takes ClusterTime for; 0: it does not say. Never believed (R4.7): if it is wrong, the client is told.
    pub cluster_time: ClusterTime,
    /// Which attempt of the client this is; echoed in every answer.
    pub attempt: u32,
    /// Whose turn it may be, of an update that has lost to others before.
    pub turn: Option<Turn>,
}

/// What an update says that has lost to others before: since when, so that who has waited longest goes first (0047). It decides nothing
/// but who waits for whom, so that nothing has to believe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// When it had lost for the first time, as far as its client knows. The same in all its tries.
    pub since: ClusterTime,
    /// A number that the client draws for all its tries, below [`Turn::NUMBERS`].
    pub number: u16,
    /// It reads again and comes again, if a check of it says no.
    pub returns: bool,
}

impl Turn {
    /// How many numbers there are.
    pub const NUMBERS: u16 = 1 << 15;
    const RETURNS: u16 = 1 << 15;

    /// Number and mark in one; and how many milliseconds it has waited, plus one.
    fn fields(turn: Option<Self>, now: ClusterTime) -> (u16, u32) {
        let Some(turn) = turn else { return (0, 0) };
        let waited = u32::try_from(now.0.saturating_sub(turn.since.0)).unwrap_or(u32::MAX);
        (turn.number | if turn.returns { Self::RETURNS } else { 0 }, waited.saturating_add(1))
    }

    fn of_fields((number, waited): (u16, u32), now: ClusterTime) -> Result<Self, DecodeError> {
        let waited = waited.checked_sub(1).ok_or(DecodeError::Invalid("a turn"))?;
        let since = now.0.checked_sub(u64::from(waited)).map(ClusterTime);
        let since = since.ok_or(DecodeError::Invalid("a turn that began before all time"))?;
        Ok(Self { since, number: number & !Self::RETURNS, returns: number & Self::RETURNS != 0 })
    }
}

impl Wire for Envelope {
    fn put(&self, out: &mut Vec<u8>) {
        let (number, waited) = Turn::fields(self.turn, self.cluster_time);
        self.shard.put(out);
        number.put(out);
        self.epoch.put(out);
        self.list.put(out);
        self.cluster_time.put(out);
        self.attempt.put(out);
        waited.put(out);
    }
    #[inline]
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        // Of a length that the compiler knows, so that no field is checked against the end.
        let bytes = from.bytes(ENVELOPE_BYTES)?.first_chunk().ok_or(DecodeError::Truncated)?;
        let (envelope, turn) = Self::read(bytes)?;
        if turn == (0, 0) { Ok(envelope) } else { envelope.with_turn(turn) }
    }
}

impl Envelope {
    /// The envelope without its turn, and the fields of the turn, which are 0 for almost every request.
    #[inline]
    fn read(bytes: &[u8; ENVELOPE_BYTES]) -> Result<(Self, (u16, u32)), DecodeError> {
        let mut fields = Reader::new(bytes);
        let (shard, number): (_, u16) = (fields.take()?, fields.take()?);
        let (epoch, list, cluster_time, attempt) = (fields.take()?, fields.take()?, fields.take()?, fields.take()?);
        let waited: u32 = fields.take()?;
        Ok((Self { shard, epoch, list, cluster_time, attempt, turn: None }, (number, waited)))
    }

    #[cold]
    #[inline(never)]
    fn with_turn(self, turn: (u16, u32)) -> Result<Self, DecodeError> {
        Ok(Self { turn: Some(Turn::of_fields(turn, self.cluster_time)?), ..self })
    }
}

/// Payload of `Request`, `Record` and `Cancel`.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// This attempt's part.
    pub envelope: Envelope,
    /// The encoded body ([`crate::Body::decode`]).
    pub body: &'a [u8],
}

impl<'a> RequestView<'a> {
    /// Reads a payload.
    ///
    /// # Errors
    /// If it is none.
    pub fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let (envelope, body) = payload.split_first_chunk::<ENVELOPE_BYTES>().ok_or(DecodeError::Truncated)?;
        let (envelope, turn) = Envelope::read(envelope)?;
        // As a whole, so that a request without a turn is made in its place.
        if turn == (0, 0) { Ok(Self { envelope, body }) } else { Self::decode_with_turn(payload) }
    }

    #[cold]
    #[inline(never)]
    fn decode_with_turn(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        Ok(Self { envelope: reader.take()?, body: reader.rest() })
    }

    /// Appends a whole frame. `kind` is `Request`, `Record` or `Cancel`.
    pub fn encode(kind: Kind, envelope: &Envelope, body: &[u8], out: &mut Vec<u8>) {
        let start = frame::begin(out, kind);
        envelope.put(out);
        out.extend_from_slice(body);
        frame::end(out, start, &[]);
    }
}

/// Payload of `Answer`.
#[derive(Clone, Copy, Debug)]
pub struct AnswerView<'a> {
    /// The update that is answered.
    pub rpc: RpcId,
    /// The primary's term.
    pub epoch: Epoch,
    /// The attempt that asked.
    pub attempt: u32,
    /// Whether the update (of *prepared*: the proposal) is synced, so that the client needs no witness.
    pub synced: bool,
    /// The shard that answers. Each participant of an update over several shards answers by itself.
    pub shard: ShardId,
    /// The result: an outcome and what belongs to it.
    pub result: &'a [u8],
}

impl<'a> AnswerView<'a> {
    /// Reads a payload.
    ///
    /// # Errors
    /// If it is none.
    pub fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let (rpc, epoch, attempt, synced) = (reader.take()?, reader.take()?, reader.take()?, reader.take()?);
        reader.reserved(1)?;
        let shard = reader.take()?;
        reader.reserved(4)?;
        Ok(Self { rpc, epoch, attempt, synced, shard, result: reader.rest() })
    }

    /// Appends a whole frame's head; `tail` is the end of the result, sent from elsewhere.
    pub fn encode(&self, tail: &[u8], out: &mut Vec<u8>) {
        let start = frame::begin(out, Kind::Answer);
        // In one piece: a field at a time costs a check of the buffer's room for each.
        let mut head = [0; 32];
        head[..8].copy_from_slice(&self.rpc.client.0.to_le_bytes());
        head[8..16].copy_from_slice(&self.rpc.sequence.0.to_le_bytes());
        head[16..20].copy_from_slice(&self.epoch.0.to_le_bytes());
        head[20..24].copy_from_slice(&self.attempt.to_le_bytes());
        head[24] = u8::from(self.synced);
        head[26..28].copy_from_slice(&self.shard.0.to_le_bytes());
        out.extend_from_slice(&head);
        out.extend_from_slice(self.result);
        frame::end(out, start, tail);
    }
}

/// Payload of `Read`.
#[derive(Clone, Copy, Debug)]
pub struct ReadView<'a> {
    /// This attempt's part; the list version does not matter.
    pub envelope: Envelope,
    /// A number that the client chooses; the answer repeats it.
    pub read_id: u64,
    /// The table of the keys.
    pub table: TableId,
    /// The code of the operation ([`crate::Read`]).
    pub code: u8,
    /// The operation's arguments, encoded ([`crate::Read::decode`]).
    pub arguments: &'a [u8],
}

impl<'a> ReadView<'a> {
    /// Reads a payload.
    ///
    /// # Errors
    /// If it is none.
    pub fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let (envelope, read_id, table, code) = (reader.take()?, reader.take()?, reader.take()?, reader.take()?);
        reader.reserved(3)?;
        Ok(Self { envelope, read_id, table, code, arguments: reader.rest() })
    }

    /// Appends a whole frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = frame::begin(out, Kind::Read);
        self.envelope.put(out);
        self.read_id.put(out);
        self.table.put(out);
        out.extend_from_slice(&[self.code, 0, 0, 0]);
        out.extend_from_slice(self.arguments);
        frame::end(out, start, &[]);
    }
}

/// Payload of `ReadAnswer`.
#[derive(Clone, Copy, Debug)]
pub struct ReadAnswerView<'a> {
    /// The number that the client gave to the read.
    pub read_id: u64,
    /// The result: an outcome and what belongs to it.
    pub result: &'a [u8],
}

impl<'a> ReadAnswerView<'a> {
    /// Reads a payload.
    ///
    /// # Errors
    /// If it is none.
    pub fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        Ok(Self { read_id: reader.take()?, result: reader.rest() })
    }

    /// Appends a whole frame's head; `tail` is the end of the result, sent from elsewhere.
    pub fn encode(&self, tail: &[u8], out: &mut Vec<u8>) {
        let start = frame::begin(out, Kind::ReadAnswer);
        self.read_id.put(out);
        out.extend_from_slice(self.result);
        frame::end(out, start, tail);
    }
}

/// Payload of `Append`: log bytes of one segment, from a primary to a member of its replica set.
#[derive(Clone, Copy, Debug)]
pub struct AppendView<'a> {
    /// The shard of the log.
    pub shard: ShardId,
    /// The primary's term.
    pub epoch: Epoch,
    /// The attachment that this is part of.
    pub attach: AttachId,
    /// The position that the bytes follow.
    pub from: LogEnd,
    /// Up to where this set, or that of an earlier epoch, is known to have held the log as a whole.
    pub synced: LogEnd,
    /// The sync round that this belongs to.
    pub round: Round,
    /// Whole entry groups; empty for a sync that only confirms the epoch.
    pub bytes: &'a [u8],
}

impl<'a> AppendView<'a> {
    /// Reads a payload.
    ///
    /// # Errors
    /// If it is none.
    pub fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let shard = reader.take()?;
        reader.reserved(2)?;
        let (epoch, attach) = (reader.take()?, reader.take()?);
        reader.reserved(4)?;
        let (from, synced, round) = (reader.take()?, reader.take()?, reader.take()?);
        Ok(Self { shard, epoch, attach, from, synced, round, bytes: reader.rest() })
    }

    /// Appends a whole frame's head; the log bytes are `tail` (`self.bytes` is not looked at).
    pub fn encode(&self, tail: &[u8], out: &mut Vec<u8>) {
        let start = frame::begin(out, Kind::Append);
        self.shard.put(out);
        0u16.put(out);
        self.epoch.put(out);
        self.attach.put(out);
        0u32.put(out);
        self.from.put(out);
        self.synced.put(out);
        self.round.put(out);
        frame::end(out, start, tail);
    }
}

/// A replica holds the log up to `end`, on its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The shard of the log.
    pub shard: ShardId,
    /// The term in which it was taken.
    pub epoch: Epoch,
    /// The node that holds it.
    pub node: kasha_types::NodeId,
    /// The attachment in which it was taken.
    pub attach: AttachId,
    /// Up to here the replica's file holds the log.
    pub end: LogEnd,
    /// The round of the append that this answers.
    pub round: Round,
}

/// "Is this update synced, in this epoch?" (CURP's sync RPC; R2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncRequest {
    /// The shard whose primary is asked.
    pub shard: ShardId,
    /// The epoch whose answer the client holds. Refused in any other \[M\].
    pub epoch: Epoch,
    /// The update that the client asks about.
    pub rpc: RpcId,
    /// The attempt that asks; the answer repeats it.
    pub attempt: u32,
}

/// Answer to [`SyncRequest`]: the update is synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synced {
    /// The update that is synced.
    pub rpc: RpcId,
    /// The epoch of the primary that says so.
    pub epoch: Epoch,
    /// The attempt that asked.
    pub attempt: u32,
}

/// What a witness did with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordedVerdict {
    /// It holds the request until told otherwise.
    Accepted = 0,
    /// It holds a request that does not commute.
    Conflict = 1,
    /// No slot is free for one of the keys.
    NoSlot = 2,
    /// The request is longer than a slot, or has too many keys.
    TooLarge = 3,
    /// It serves another list, or none.
    WrongList = 4,
    /// A recovery read it: it takes nothing any more.
    Frozen = 5,
    /// The client's lease is below the expiry floor.
    LeaseExpired = 6,
    /// The same id with another body.
    Reused = 7,
}

impl Wire for RecordedVerdict {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match from.take::<u8>()? {
            0 => Self::Accepted,
            1 => Self::Conflict,
            2 => Self::NoSlot,
            3 => Self::TooLarge,
            4 => Self::WrongList,
            5 => Self::Frozen,
            6 => Self::LeaseExpired,
            7 => Self::Reused,
            _ => return Err(DecodeError::Invalid("a witness's verdict")),
        })
    }
}

/// A witness's answer to `Record`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The update that was to be recorded.
    pub rpc: RpcId,
    /// The shard whose witness answers: a node may be witness of several that take part in one transaction.
    pub shard: ShardId,
    /// The witness list of the record.
    pub list: ListVersion,
    /// The attempt that sent the record.
    pub attempt: u32,
    /// The node of the witness.
    pub node: kasha_types::NodeId,
    /// Whether the witness holds the request, or why it does not.
    pub verdict: RecordedVerdict,
}

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $value:literal),* $(,)?) => {
        /// Why a delivery ran nothing. Never recorded (R4.2); says nothing about other deliveries (R2.2).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Refusal { $($(#[$doc])* $name = $value),* }

        impl Wire for Refusal {
            fn put(&self, out: &mut Vec<u8>) {
                out.push(*self as u8);
            }
            fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                match from.take::<u8>()? {
                    $($value => Ok(Self::$name),)*
                    _ => Err(DecodeError::Invalid("a refusal")),
                }
            }
        }
    };
}

refusals! {
    /// This core is not the shard's primary in this epoch; the configuration has moved on.
    NotPrimary = 1,
    /// One of the keys belongs to another shard, or the table does not exist here.
    WrongShard = 2,
    /// The witness list is another one, or is being changed.
    OldWitnessList = 3,
    /// The client's lease is at or below the expiry floor (R4.6).
    LeaseExpired = 4,
    /// The primary does not know the client's lease yet and is asking the coordinator; try again.
    LeaseUnproven = 5,
    /// Too much is waiting; try again.
    Busy = 6,
    /// Memory is full; deletes and reads go on.
    OutOfMemory = 7,
    /// The id was used for another request.
    Reused = 8,
    /// The id was acknowledged: its result is gone.
    Stale = 9,
    /// More than `OUTSTANDING_MAX` above the acknowledgement (R4.3).
    WindowExceeded = 10,
    /// Past the operation key's time limit: cannot be proven new (R4.9).
    Unprovable = 11,
    /// The bytes are no request.
    BadRequest = 12,
    /// Too few members of the replica set are there to be safe.
    TooFewMembers = 13,
    /// The shard is being recovered; try again.
    Recovering = 14,
    /// The result or the request is too large for this cluster's segments.
    TooLarge = 15,
}

/// Payload of `Refuse`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The update that was refused.
    pub rpc: RpcId,
    /// The attempt that was refused.
    pub attempt: u32,
    /// The term of the replica that refuses.
    pub epoch: Epoch,
    /// The shard whose replica refuses.
    pub shard: ShardId,
    /// The reason of the refusal.
    pub why: Refusal,
}

/// Payload of `ReadRefuse`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRefused {
    /// The number that the client gave to the read.
    pub read_id: u64,
    /// The term of the replica that refuses.
    pub epoch: Epoch,
    /// The reason of the refusal.
    pub why: Refusal,
}

wire_struct! {
    Appended { shard, epoch, node, attach, end, round }
    SyncRequest { shard, epoch, rpc, attempt }
    Synced { rpc, epoch, attempt }
    Recorded { rpc, shard, list, attempt, node, verdict }
    Refused { rpc, attempt, epoch, shard, why }
    ReadRefused { read_id, epoch, why }
}

/// Appends a whole frame of a small answer.
pub fn encode_small(kind: Kind, value: &impl Wire, out: &mut Vec<u8>) {
    let start = frame::begin(out, kind);
    value.put(out);
    frame::end(out, start, &[]);
}

/// Reads the whole payload of a small answer.
///
/// # Errors
/// If it is none.
pub fn decode_small<T: Wire>(payload: &[u8]) -> Result<T, DecodeError> {
    let mut reader = Reader::new(payload);
    let value = reader.take()?;
    reader.finish()?;
    Ok(value)
}
