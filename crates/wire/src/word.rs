//! What participants of transactions over several shards tell each other (section 8).

use kasha_types::limits::{BEHIND_MAX, PARTICIPANTS_MAX, REASON_BYTES_MAX};
use kasha_types::{BodyHash, ClientId, ClusterTime, RpcId, Sequence, ShardId};

use crate::{DecodeError, Reader, Wire};

/// How far a transaction is at the participant that speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It proposed this timestamp: a vote to commit.
    Proposed(u64),
    /// The transaction is executed at the speaker.
    Executed {
        /// The timestamp at which it is executed.
        at: u64,
        /// Every member of the shard holds the outcome.
        recorded: bool,
        /// The transaction's gate at the speaker has opened.
        settled: bool,
    },
    /// It met another one, was cancelled, or was never heard of.
    Conflict,
    /// A check said no.
    Abort,
    /// It never happens there any more, or is long over (R8.11).
    Never,
}

/// One participant's word about one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WordOf {
    /// The request id of the transaction.
    pub rpc: RpcId,
    /// What its client asked the speaker for.
    pub body: BodyHash,
    /// When the client's lease ends as far as the speaker knows: who has never heard of the transaction judges by it whether the
    /// transaction may still come (R8.11).
    pub lease_expiry: ClusterTime,
    /// How far it is.
    pub told: Told,
    /// The speaker has waited, and wants to hear how far it is at the hearer.
    pub asks: bool,
    /// All participants; empty unless the speaker asks.
    pub participants: Vec<ShardId>,
    /// What the transaction's gate at the speaker waits for, at most [`BEHIND_MAX`]; empty: it is not told (R8.4).
    pub behind: Vec<BehindWhat>,
    /// Of [`Told::Abort`], for the participant that keeps the operation key: the result of the speaker, whose check it was, at most
    /// [`REASON_BYTES_MAX`]; empty: it is not told, or not yet.
    pub reason: Vec<u8>,
}

/// A transaction that a gate waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BehindWhat {
    /// The request id of the transaction.
    pub rpc: RpcId,
    /// What its client asked the speaker for.
    pub body: BodyHash,
}

fn take_id(from: &mut Reader<'_>) -> Result<RpcId, DecodeError> {
    let rpc: RpcId = from.take()?;
    if rpc.client == ClientId(0) || rpc.sequence == Sequence(0) {
        return Err(DecodeError::Invalid("a request id of 0"));
    }
    Ok(rpc)
}

impl Wire for BehindWhat {
    fn put(&self, out: &mut Vec<u8>) {
        self.rpc.put(out);
        self.body.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { rpc: take_id(from)?, body: from.take()? })
    }
}

impl Wire for WordOf {
    fn put(&self, out: &mut Vec<u8>) {
        self.rpc.put(out);
        self.body.put(out);
        self.lease_expiry.put(out);
        self.told.put(out);
        self.asks.put(out);
        self.participants.put(out);
        self.behind.put(out);
        self.reason.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let rpc = take_id(from)?;
        let (body, lease_expiry, told, asks) = (from.take()?, from.take()?, from.take()?, from.take()?);
        let participants: Vec<ShardId> = from.take()?;
        if participants.len() > PARTICIPANTS_MAX {
            return Err(DecodeError::TooLarge("the number of participants"));
        }
        let behind: Vec<BehindWhat> = from.take()?;
        if behind.len() > BEHIND_MAX {
            return Err(DecodeError::TooLarge("the number of transactions that a gate waits for"));
        }
        let reason: Vec<u8> = from.take()?;
        if reason.len() > REASON_BYTES_MAX {
            return Err(DecodeError::TooLarge("why a transaction does not happen"));
        }
        Ok(Self { rpc, body, lease_expiry, told, asks, participants, behind, reason })
    }
}

impl Wire for Told {
    fn put(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Proposed(at) => {
                out.push(1);
                at.put(out);
            }
            Self::Executed { at, recorded, settled } => {
                out.push(2);
                at.put(out);
                recorded.put(out);
                settled.put(out);
            }
            Self::Conflict => out.push(3),
            Self::Abort => out.push(4),
            Self::Never => out.push(5),
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match from.take::<u8>()? {
            1 => Self::Proposed(from.take()?),
            2 => Self::Executed { at: from.take()?, recorded: from.take()?, settled: from.take()? },
            3 => Self::Conflict,
            4 => Self::Abort,
            5 => Self::Never,
            _ => return Err(DecodeError::Invalid("how far a transaction is")),
        })
    }
}
