//! What the log holds of transactions over several shards. The log entry around a record has length and checksum; its fields
//! follow one another in the order below (little endian, a list behind its `u32` count). A [`Proposed`] ends with the body.

use kasha_distributed::{Class, Footprint, Proposal, Timestamp, Why};
use kasha_types::planted::{self, Bug};
use kasha_types::{BodyHash, ClusterTime, KeyHash, RpcId, ShardId};
use kasha_wire::{Body, DecodeError, Reader, Wire, wire_struct};

/// Every record begins with it.
const FORMAT: u8 = 1;

/// A shard's own number of a transaction. Numbers only grow, and are never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Number(pub u64);

/// `DistributedProposed`: a request, and the timestamp that this shard has proposed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proposed<'a> {
    pub number: Number,
    pub at: Timestamp,
    /// Bytes that its execution may add to the log (R8.13).
    pub reserved: u64,
    /// The body of the request, which names all participants.
    pub body: &'a [u8],
}

/// How a transaction has ended at this shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Executed(Timestamp),
    /// It was refused here or elsewhere.
    Against(Why),
    /// A check of this shard says no: it was never proposed here.
    AbortedHere,
}

/// `DistributedEnded`: an outcome, and all that the shard still has to know of the transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub number: Number,
    pub rpc: RpcId,
    pub lease_expiry: ClusterTime,
    pub how: How,
    pub proposal: Proposal,
    /// What the answer waits for (R8.15).
    pub gate: Vec<RpcId>,
    /// Of what was aborted here: what the keeper of its operation key has to hear.
    pub reason: Option<Reason>,
}

/// Which check said no, for the participant that keeps the operation key (R4.9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reason {
    pub keeper: ShardId,
    pub result: Vec<u8>,
}

/// `DistributedForgotten`: nobody needs the transactions below this number any more, but for these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Forgotten {
    pub below: Number,
    /// Numbers below `below` that are still needed, ascending.
    pub except: Vec<Number>,
}

/// `Gate`: what the answer of an update of this shard alone waits for (R8.15).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gated {
    pub rpc: RpcId,
    pub footprint: Footprint,
    pub gate: Vec<RpcId>,
}

/// What this participant is to know of a transaction. `None`: the body is none of a transaction in which the shard takes part.
pub(crate) fn proposal_of(body: &Body<'_>, shard: ShardId) -> Option<Proposal> {
    let (participants, own) = (body.participants()?, body.parts_at(shard)?);
    let class = if body.is_coordinated() { Class::Coordinated } else { Class::Independent };
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    for part in own.iter() {
        let keys = if part.operation.changes_its_keys() { &mut writes } else { &mut reads };
        part.operation.for_each_key(|key| keys.push(kasha_types::key_hash(part.table, key)));
        writes.extend(part.operation.touches_everything().then_some(kasha_types::KeyHash::EVERYTHING));
    }
    writes.extend(body.operation_key_hash().filter(|_| !planted::is_on(Bug::PartKeyUnlocked)));
    let participants = participants.iter().map(|(shard, _)| shard).collect();
    Some(Proposal { class, body: body.hash().0, participants, footprint: Footprint::new(reads, writes) })
}

/// What most records take, of two participants and a few keys.
const USUAL_BYTES: usize = 192;

fn begin(payload: &[u8]) -> Option<Reader<'_>> {
    let mut reader = Reader::new(payload);
    (reader.take::<u8>().ok()? == FORMAT).then_some(reader)
}

fn encoded(record: &impl Wire) -> Vec<u8> {
    let mut out = Vec::with_capacity(USUAL_BYTES);
    out.push(FORMAT);
    record.put(&mut out);
    out
}

fn decoded<T: Wire>(payload: &[u8]) -> Option<T> {
    let mut reader = begin(payload)?;
    let record = reader.take().ok()?;
    reader.finish().ok()?;
    Some(record)
}

impl<'a> Proposed<'a> {
    const HEAD_BYTES: usize = 25;

    pub fn encoded_len(&self) -> usize {
        Self::HEAD_BYTES + self.body.len()
    }

    pub fn encode_into(&self, out: &mut [u8]) {
        out[0] = FORMAT;
        out[1..9].copy_from_slice(&self.number.0.to_le_bytes());
        out[9..17].copy_from_slice(&self.at.0.to_le_bytes());
        out[17..25].copy_from_slice(&self.reserved.to_le_bytes());
        out[Self::HEAD_BYTES..].copy_from_slice(self.body);
    }

    /// Reads a record, and the body in it.
    pub fn decode(payload: &'a [u8]) -> Option<(Self, Body<'a>)> {
        let mut reader = begin(payload)?;
        let (number, at) = (reader.take().ok()?, Timestamp(reader.take().ok()?));
        let reserved = reader.take().ok()?;
        let body = Body::decode(reader.rest()).ok()?;
        body.participants()?;
        Some((Self { number, at, reserved, body: reader.rest() }, body))
    }
}

impl Ended {
    pub fn encode(&self) -> Vec<u8> {
        encoded(self)
    }

    pub fn decode(payload: &[u8]) -> Option<Self> {
        decoded(payload)
    }

    /// Whose record it is, from the first fields: for whoever only looks whether the entry lives.
    pub fn rpc_of(payload: &[u8]) -> Option<RpcId> {
        let mut reader = begin(payload)?;
        reader.take::<u64>().ok()?;
        reader.take().ok()
    }
}

impl Forgotten {
    pub fn encode(&self) -> Vec<u8> {
        encoded(self)
    }

    pub fn decode(payload: &[u8]) -> Option<Self> {
        decoded(payload)
    }

    pub fn covers(&self, number: Number) -> bool {
        number < self.below && self.except.binary_search(&number).is_err()
    }
}

impl Gated {
    pub fn encode(&self) -> Vec<u8> {
        encoded(self)
    }

    pub fn decode(payload: &[u8]) -> Option<Self> {
        decoded(payload)
    }

    pub fn rpc_of(payload: &[u8]) -> Option<RpcId> {
        begin(payload)?.take().ok()
    }
}

/// The timestamp in a `TimestampCeiling`, above which nothing is executed. `None`: the bytes are no such record.
pub(crate) fn ceiling_of(payload: &[u8]) -> Option<Timestamp> {
    decoded(payload).map(Timestamp)
}

pub(crate) fn encode_ceiling(ceiling: Timestamp) -> Vec<u8> {
    encoded(&ceiling.0)
}

impl Wire for Number {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        from.take().map(Self)
    }
}

wire_struct! { Forgotten { below, except } }

impl Wire for Gated {
    fn put(&self, out: &mut Vec<u8>) {
        self.rpc.put(out);
        put_footprint(&self.footprint, out);
        self.gate.put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { rpc: from.take()?, footprint: take_footprint(from)?, gate: from.take()? })
    }
}

impl Wire for Ended {
    fn put(&self, out: &mut Vec<u8>) {
        self.number.put(out);
        self.rpc.put(out);
        self.lease_expiry.put(out);
        let (how, at) = match self.how {
            How::Executed(at) => (1u8, at.0),
            How::Against(Why::Conflict) => (2, 0),
            How::Against(Why::Abort) => (3, 0),
            How::AbortedHere if self.reason.is_some() => (5, 0),
            How::AbortedHere => (4, 0),
        };
        how.put(out);
        at.put(out);
        (self.proposal.class == Class::Coordinated).put(out);
        BodyHash(self.proposal.body).put(out);
        self.proposal.participants.put(out);
        put_footprint(&self.proposal.footprint, out);
        self.gate.put(out);
        if let (How::AbortedHere, Some(Reason { keeper, result })) = (self.how, &self.reason) {
            keeper.put(out);
            result.put(out);
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (number, rpc, lease_expiry) = (from.take()?, from.take()?, from.take()?);
        let (code, at) = (from.take::<u8>()?, Timestamp(from.take()?));
        let how = match code {
            1 => How::Executed(at),
            2 => How::Against(Why::Conflict),
            3 => How::Against(Why::Abort),
            4 | 5 => How::AbortedHere,
            _ => return Err(DecodeError::Invalid("how a transaction ended")),
        };
        let class = if from.take()? { Class::Coordinated } else { Class::Independent };
        let body: BodyHash = from.take()?;
        let (participants, footprint) = (from.take()?, take_footprint(from)?);
        let proposal = Proposal { class, body: body.0, participants, footprint };
        let gate = from.take()?;
        let reason = match code {
            5 => Some(Reason { keeper: from.take()?, result: from.take()? }),
            _ => None,
        };
        Ok(Self { number, rpc, lease_expiry, how, proposal, gate, reason })
    }
}

fn put_footprint(footprint: &Footprint, out: &mut Vec<u8>) {
    for keys in [footprint.reads(), footprint.writes()] {
        u32::try_from(keys.len()).expect("an update has few keys").put(out);
        keys.iter().for_each(|key| key.put(out));
    }
}

fn take_footprint(from: &mut Reader<'_>) -> Result<Footprint, DecodeError> {
    let (reads, writes): (Vec<KeyHash>, Vec<KeyHash>) = (from.take()?, from.take()?);
    Ok(Footprint::new(reads, writes))
}
