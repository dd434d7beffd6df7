//! Result bytes: what an operation's completion record holds and a client is told, byte for byte, also on a replay.
//!
//! The first byte is the [`OutcomeCode`]; what follows depends on it and on the result's [`Shape`], which the table of
//! operations and the answer that a change asks for name:
//!
//! | shape | done | other outcomes |
//! |---|---|---|
//! | version | version `u64` | condition failed: current version `u64`, 0 = absent; not found |
//! | number | value `i64`, version `u64` | overflow; not a number; out of bounds: the value `i64` and its version `u64`, 0 = absent |
//! | length | length `u64`, version `u64` | too large |
//! | value | version `u64`, the value | not found |
//! | replaced | version `u64`, version of what was there `u64` (0 = nothing), its value | those of the usual answer, but condition failed: version of what is there `u64` (0 = nothing), its value |
//! | flag | flag `u8` | |
//! | versions | count `u32`, version `u64` each | |
//! | flags | count `u32`, flag `u8` each: was there | |
//! | numbers | count `u32`, (value `i64`, version `u64`) each | overflow, not a number: index `u32`; nothing changed |
//! | values | count `u32`, (version `u64`, 0 = absent; length `u32`; value) each | |
//! | expiry | version `u64`, when the value ends `u64` (ClusterTime milliseconds, 0 = never) | not found |
//! | keys | cursor of what follows `u64` (0 = nothing does), keys with a value here `u64`, count `u32`, (version `u64`, key) each | |
//! | observed | count `u32`, (version `u64`; has a value `u8`; length `u32`; value) each: the version of a key without a value grows with each change, too | |
//! | parts | count `u32`, (number of the result's shape `u8`, length `u32`, the part's result) each | not committed: the part's index `u32`, its shape `u8`, its result; nothing changed |
//!
//! Of a transaction over several shards each participant answers for its own parts: a result of the shape parts, *conflict*,
//! *refused elsewhere*, *repeated*, or *prepared*, which is no outcome.

use kasha_types::ClusterTime;

use crate::operation::ScanCursor;
use crate::{DecodeError, Reader};

/// What came of an operation. Recorded, gated and replayed like any result (R4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OutcomeCode {
    /// It did what it says.
    Done = 0,
    /// The condition did not hold; nothing changed.
    ConditionFailed = 1,
    /// There is no such key.
    NotFound = 2,
    /// The sum does not fit 64 bits; nothing changed.
    Overflow = 3,
    /// The value is no decimal 64-bit number; nothing changed.
    NotANumber = 4,
    /// The value would exceed its limit; nothing changed.
    TooLarge = 5,
    /// The client cancelled the update before it ran: it never will.
    Cancelled = 6,
    /// The operation key was used with another request.
    OperationKeyMismatch = 7,
    /// One part of a transaction failed; nothing changed.
    NotCommitted = 8,
    /// A transaction over several shards met another one, and nothing changed: it may be tried again under another id.
    Conflict = 9,
    /// A transaction over several shards was refused by another participant, which says why; nothing changed.
    RefusedElsewhere = 10,
    /// This participant of a transaction over several shards has proposed. The results that follow are those of its later *done*.
    /// The transaction is committed when all participants have said so and that counts (R8.8). No log holds this code.
    Prepared = 11,
    /// The operation key was used with the same transaction over several shards. What follows is the id of the request that ran then
    /// (client, sequence), and the result that this participant recorded: *done* with the results of its parts, or *not committed*.
    Repeated = 12,
    /// The sum would be outside its bounds; nothing changed.
    OutOfBounds = 13,
}

impl OutcomeCode {
    /// The outcome with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Done,
            1 => Self::ConditionFailed,
            2 => Self::NotFound,
            3 => Self::Overflow,
            4 => Self::NotANumber,
            5 => Self::TooLarge,
            6 => Self::Cancelled,
            7 => Self::OperationKeyMismatch,
            8 => Self::NotCommitted,
            9 => Self::Conflict,
            10 => Self::RefusedElsewhere,
            11 => Self::Prepared,
            12 => Self::Repeated,
            13 => Self::OutOfBounds,
            _ => return None,
        })
    }
}

/// A decoded result. Which of the fields are meant follows from the operation that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Put, delete and their conditional forms.
    Version(u64),
    /// Increment: the new value, and its version.
    Number(i64, u64),
    /// Append: the new length, and the version.
    Length(u64, u64),
    /// Multi-put: the new version of each key, in the order of the request.
    Versions(Vec<u64>),
    /// Exists and multi-delete: for each key whether it has, or had, a value.
    Flags(Vec<bool>),
    /// Multi-increment: for each key the new value, and its version.
    Numbers(Vec<(i64, u64)>),
    /// Get and get-and-delete: version and value.
    Value(u64, Vec<u8>),
    /// A change that tells the old value: the version that it would tell without, then version and value of what was there.
    Replaced(u64, Option<(u64, Vec<u8>)>),
    /// Multi-get: for each key the version and the value, if it has one.
    Values(Vec<Option<(u64, Vec<u8>)>>),
    /// Observe: for each key its version, and its value if it has one.
    Observed(Vec<(u64, Option<Vec<u8>>)>),
    /// Time-to-live: version, and when the value ends; `None`: never.
    Expiry(u64, Option<ClusterTime>),
    /// Scan: a page of keys.
    Keys(ScannedPage),
    /// Scan-values: a page of keys with their values.
    KeysAndValues(ScannedPage<(u64, Vec<u8>, Vec<u8>)>),
    /// The condition did not hold; the key's version, 0 = absent.
    ConditionFailed(u64),
    /// The condition of a change that tells the old value did not hold: version and value that are there.
    NotReplaced(Option<(u64, Vec<u8>)>),
    /// There is no such key.
    NotFound,
    /// Index of the item whose sum does not fit; 0 for a single increment.
    Overflow(u32),
    /// Index of the item that is no number; 0 for a single increment.
    NotANumber(u32),
    /// The sum would be outside its bounds: the number as it is, and its version, 0 = there is no value, which counts as 0.
    OutOfBounds(i64, u64),
    /// The value would exceed its limit.
    TooLarge,
    /// Cancelled before it ran.
    Cancelled,
    /// The operation key was used with another request.
    OperationKeyMismatch,
    /// A command as a part: its reply, encoded ([`kasha_commands::reply`]).
    Reply(Vec<u8>),
    /// Transaction: what came of each part.
    Parts(Vec<Outcome>),
    /// Transaction: the index of the first part that failed, and what came of the part. Nothing changed.
    NotCommitted(u32, Box<Outcome>),
    /// A transaction over several shards met another one. Nothing changed.
    Conflict,
    /// Another participant of the transaction refused it, and says why. Nothing changed.
    RefusedElsewhere,
}

/// A page of a listing of a table's keys: of each its version, its bytes and, if they were asked for, those of its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedPage<T = (u64, Vec<u8>)> {
    /// Where the listing goes on; `None`: it is at its end.
    pub next: Option<ScanCursor>,
    /// How many keys of the table have a value at the shard, of whatever slots and names. Of a shard that owns several tablets of the
    /// table only the first says so; the others say 0.
    pub in_shard: u64,
    /// The keys, each with its version first.
    pub keys: Vec<T>,
}

macro_rules! shapes {
    ($($(#[$doc:meta])* $code:literal $name:ident;)+) => {
        /// What a result with [`OutcomeCode::Done`] looks like. The results of a transaction's parts name theirs by number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Shape { $($(#[$doc])* $name = $code,)+ }

        impl Shape {
            /// The shape with this number.
            #[must_use]
            pub fn from_number(number: u8) -> Option<Self> {
                Some(match number {
                    $($code => Self::$name,)+
                    _ => return None,
                })
            }
        }
    };
}

shapes! {
    /// A version: put, delete.
    1 Version;
    /// A number and a version: increment.
    2 Number;
    /// A length and a version: append.
    3 Length;
    /// A version for each key: multi-put.
    4 Versions;
    /// A byte, 0 or 1, for each key: multi-delete.
    5 Flags;
    /// One byte, 0 or 1: exists.
    6 Flag;
    /// A number and a version for each key: multi-increment.
    7 Numbers;
    /// A version and a value: get.
    8 Value;
    /// The version of the usual answer, and what the key had before: a change that tells the old value.
    9 Replaced;
    /// A version and a value for each key that has one: multi-get.
    10 Values;
    /// A version for each key, and the value if the key has one: observe.
    11 Observed;
    /// A version, and when the value ends: time-to-live.
    12 Expiry;
    /// A version for each key, and where to go on: scan.
    13 Keys;
    /// The same with values: scan-values.
    14 KeysAndValues;
    /// The result of each part: transaction.
    15 Parts;
    /// What a command answers, in the form of [`kasha_commands::reply`]: a command as a part.
    16 Reply;
}

impl Shape {
    /// Of what an operation on one key answers.
    #[must_use]
    pub fn is_of_one_key(self) -> bool {
        match self {
            Self::Version | Self::Number | Self::Length | Self::Flag | Self::Value | Self::Replaced | Self::Expiry => {
                true
            }
            Self::Versions
            | Self::Flags
            | Self::Numbers
            | Self::Values
            | Self::Observed
            | Self::Keys
            | Self::KeysAndValues
            | Self::Parts
            | Self::Reply => false,
        }
    }

    /// Of what a part of a transaction answers: an operation on one key, or a command.
    #[must_use]
    pub fn is_of_a_part(self) -> bool {
        self.is_of_one_key() || self == Self::Reply
    }
}

/// The results of the parts of a transaction or a query that is done, in order, without their outcome: what stands behind it. Of bytes that are no
/// such result, those that can be read.
pub fn each_part(result: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = match result.split_first_chunk::<5>() {
        Some(([code, ..], rest)) if *code == OutcomeCode::Done as u8 => rest,
        _ => &[],
    };
    std::iter::from_fn(move || {
        let ([_, len @ ..], behind) = rest.split_first_chunk::<5>()?;
        let (part, behind) = behind.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        rest = behind;
        part.get(1..)
    })
}

fn take_list<T>(
    reader: &mut Reader<'_>,
    mut item: impl FnMut(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let count = reader.take::<u32>()? as usize;
    if count > reader.rest().len() {
        return Err(DecodeError::Truncated);
    }
    (0..count).map(|_| item(reader)).collect()
}

/// A version and, to the end, a value; nothing if the version is 0.
fn take_rest(reader: &mut Reader<'_>) -> Result<Option<(u64, Vec<u8>)>, DecodeError> {
    let version = reader.take()?;
    let value = reader.bytes(reader.rest().len())?;
    if version == 0 && !value.is_empty() {
        return Err(DecodeError::Invalid("the value of an absent key"));
    }
    Ok((version != 0).then(|| (version, value.to_vec())))
}

/// An item of a multi-get.
fn take_value(reader: &mut Reader<'_>) -> Result<Option<(u64, Vec<u8>)>, DecodeError> {
    let (version, len): (u64, u32) = (reader.take()?, reader.take()?);
    let value = reader.bytes(len as usize)?;
    if version == 0 && len != 0 {
        return Err(DecodeError::Invalid("the value of an absent key"));
    }
    Ok((version != 0).then(|| (version, value.to_vec())))
}

/// A key that is observed.
fn take_observed(reader: &mut Reader<'_>) -> Result<(u64, Option<Vec<u8>>), DecodeError> {
    let (version, has_value, len): (u64, bool, u32) = (reader.take()?, reader.take()?, reader.take()?);
    let value = reader.bytes(len as usize)?;
    if !has_value && len != 0 || has_value && version == 0 {
        return Err(DecodeError::Invalid("the value of an absent key"));
    }
    Ok((version, has_value.then(|| value.to_vec())))
}

fn take_page<T>(
    r: &mut Reader<'_>,
    take: impl FnMut(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<ScannedPage<T>, DecodeError> {
    let next = ScanCursor::from_number(r.take()?).ok_or(DecodeError::Invalid("a cursor"))?;
    let (next, in_shard) = ((next != ScanCursor::START).then_some(next), r.take()?);
    Ok(ScannedPage { next, in_shard, keys: take_list(r, take)? })
}

/// A key's version and its bytes.
fn take_scanned_key(r: &mut Reader<'_>) -> Result<(u64, Vec<u8>), DecodeError> {
    let (version, len): (u64, u16) = (r.take()?, r.take()?);
    Ok((version, r.bytes(usize::from(len))?.to_vec()))
}

impl Outcome {
    /// Decodes result bytes of an operation with this shape.
    ///
    /// # Errors
    /// If the bytes are no result of it.
    pub fn decode(shape: Shape, bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let r = &mut reader;
        let code = OutcomeCode::from_number(r.take()?).ok_or(DecodeError::Invalid("an outcome"))?;
        let index = |r: &mut Reader<'_>| match shape {
            Shape::Numbers => r.take::<u32>(),
            Shape::Version
            | Shape::Number
            | Shape::Length
            | Shape::Versions
            | Shape::Flags
            | Shape::Flag
            | Shape::Value
            | Shape::Replaced
            | Shape::Values
            | Shape::Observed
            | Shape::Expiry
            | Shape::Keys
            | Shape::KeysAndValues
            | Shape::Parts
            | Shape::Reply => Ok(0),
        };
        let outcome = match code {
            OutcomeCode::Done => Self::decode_done(shape, r)?,
            OutcomeCode::ConditionFailed if shape == Shape::Replaced => Self::NotReplaced(take_rest(r)?),
            OutcomeCode::ConditionFailed => Self::ConditionFailed(r.take()?),
            OutcomeCode::NotFound => Self::NotFound,
            OutcomeCode::Overflow => Self::Overflow(index(r)?),
            OutcomeCode::NotANumber => Self::NotANumber(index(r)?),
            OutcomeCode::OutOfBounds if matches!(shape, Shape::Number | Shape::Length | Shape::Replaced) => {
                Self::OutOfBounds(r.take()?, r.take()?)
            }
            OutcomeCode::OutOfBounds => return Err(DecodeError::Invalid("bounds of something that is no increment")),
            OutcomeCode::TooLarge => Self::TooLarge,
            OutcomeCode::Cancelled => Self::Cancelled,
            OutcomeCode::OperationKeyMismatch => Self::OperationKeyMismatch,
            OutcomeCode::NotCommitted
            | OutcomeCode::Conflict
            | OutcomeCode::RefusedElsewhere
            | OutcomeCode::Repeated
                if shape != Shape::Parts =>
            {
                return Err(DecodeError::Invalid("an outcome of something that is no transaction"));
            }
            OutcomeCode::Prepared => return Err(DecodeError::Invalid("the outcome of what has none yet")),
            OutcomeCode::Repeated => Self::decode_repeated(shape, r)?,
            OutcomeCode::Conflict => Self::Conflict,
            OutcomeCode::RefusedElsewhere => Self::RefusedElsewhere,
            OutcomeCode::NotCommitted => {
                let (index, shape) = (r.take()?, r.take()?);
                Self::NotCommitted(index, Box::new(Self::decode_part(shape, r.bytes(r.rest().len())?)?))
            }
        };
        reader.finish()?;
        Ok(outcome)
    }

    fn decode_done(shape: Shape, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match shape {
            Shape::Version => Self::Version(r.take()?),
            Shape::Number => Self::Number(r.take()?, r.take()?),
            Shape::Length => Self::Length(r.take()?, r.take()?),
            Shape::Versions => Self::Versions(take_list(r, |r| r.take())?),
            Shape::Flags => Self::Flags(take_list(r, |r| r.take())?),
            Shape::Flag => Self::Flags(vec![r.take()?]),
            Shape::Numbers => Self::Numbers(take_list(r, |r| Ok((r.take()?, r.take()?)))?),
            Shape::Value => {
                let version = r.take()?;
                let value = r.bytes(r.rest().len())?.to_vec();
                Self::Value(version, value)
            }
            Shape::Replaced => {
                let version = r.take()?;
                Self::Replaced(version, take_rest(r)?)
            }
            Shape::Values => Self::Values(take_list(r, take_value)?),
            Shape::Observed => Self::Observed(take_list(r, take_observed)?),
            Shape::Keys => Self::Keys(take_page(r, take_scanned_key)?),
            Shape::KeysAndValues => Self::KeysAndValues(take_page(r, |r| {
                let (version, key) = take_scanned_key(r)?;
                let len: u32 = r.take()?;
                Ok((version, key, r.bytes(len as usize)?.to_vec()))
            })?),
            Shape::Expiry => {
                let (version, ends): (u64, ClusterTime) = (r.take()?, r.take()?);
                Self::Expiry(version, (ends != ClusterTime(0)).then_some(ends))
            }
            Shape::Reply => {
                let reply = r.bytes(r.rest().len())?;
                kasha_commands::reply::check(reply).map_err(|_| DecodeError::Invalid("a command's reply"))?;
                Self::Reply(reply.to_vec())
            }
            Shape::Parts => Self::Parts(take_list(r, |r| {
                let (shape, len): (u8, u32) = (r.take()?, r.take()?);
                Self::decode_part(shape, r.bytes(len as usize)?)
            })?),
        })
    }

    /// It is what it was.
    fn decode_repeated(shape: Shape, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (_, _): (u64, u64) = (r.take()?, r.take()?);
        let kept = r.bytes(r.rest().len())?;
        match kept.first().copied().and_then(OutcomeCode::from_number) {
            Some(OutcomeCode::Done | OutcomeCode::NotCommitted) => Self::decode(shape, kept),
            _ => Err(DecodeError::Invalid("what no operation key keeps")),
        }
    }

    /// Whether a transaction of which a part came to this changes nothing.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        let is_bound = matches!(self, Self::Overflow(_) | Self::OutOfBounds(..) | Self::TooLarge);
        is_bound || matches!(self, Self::ConditionFailed(_) | Self::NotReplaced(_) | Self::NotANumber(_))
    }

    /// No part has parts.
    fn decode_part(shape: u8, bytes: &[u8]) -> Result<Self, DecodeError> {
        let shape = Shape::from_number(shape).filter(|shape| shape.is_of_a_part());
        Self::decode(shape.ok_or(DecodeError::Invalid("the shape of a part's result"))?, bytes)
    }
}
