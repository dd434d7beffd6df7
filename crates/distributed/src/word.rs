//! What participants tell each other.

use kasha_types::{RpcId, ShardId};

use crate::Timestamp;

/// What a participant says of a transaction. Only what is durable at it is said, but for an execution, what
/// its gate waits for, and *settled*.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// The request id of the transaction.
    pub rpc: RpcId,
    /// What the client asked the sender for: see [`crate::Proposal::body`]. A word about another body is not for this transaction.
    pub body: u64,
    /// How far it is at the sender.
    pub said: Said,
    /// The receiver is to say how far it is there: the sender has waited for that.
    pub asks: bool,
    /// All participants: a receiver that never got its request must tell the others, too (R8.11).
    pub participants: Vec<ShardId>,
    /// What the gate at the sender waits for, if it is executed there and the receiver takes part in all of that. Who knows that all
    /// these are settled knows that the gate has opened. Empty: it is not told.
    pub behind: Vec<Behind>,
}

/// A transaction that a gate waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Behind {
    /// The request id of the transaction.
    pub rpc: RpcId,
    /// What its client asked the sender for: another one may have the same id elsewhere (R8.11).
    pub body: u64,
}

/// How far a transaction is at a participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It proposed this timestamp: a vote to commit.
    Proposed(Timestamp),
    /// It is executed at this timestamp.
    Executed {
        /// The final timestamp.
        at: Timestamp,
        /// Every member of the sender's shard holds the outcome.
        recorded: bool,
        /// And its gate there has opened.
        settled: bool,
    },
    /// It does not happen: a vote against it was recorded there, or heard of. Every member of the shard holds that.
    Against(Why),
    /// It never happens there any more, or is long over (R8.11): nothing is known of it, and nothing will be.
    Never,
}

/// Why a transaction does not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It met another one, or a participant that had never got its request, or had heard something else under its id, or it was
    /// cancelled. Any participant may tell the client.
    Conflict,
    /// One of its checks said no. That tells what the check has read, so only the participant whose check it was tells the client,
    /// under its gate (R8.5 \[M\]).
    Abort,
}
