//! How calls end. An update has one of three outcomes: executed, not executed, unknown. They are told apart at all
//! times (R2.2).
//!
//! The texts are shown to people. Each says what happened and what to do, and has the code of its page in
//! `docs/errors`.

use std::time::Duration;

use kasha_types::{NodeId, ShardId, limits};
use kasha_wire::message::TableOutcome;
use kasha_wire::status::{CoreStatus, LoopTurns};
use kasha_wire::{Configuration, Refusal};
use kasha_witness::Path;

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The update was executed, with this result, and is durable.
    Executed {
        /// Result bytes ([`kasha_wire::Outcome::decode`]); "condition failed" and the like are results too (R4.2).
        result: Vec<u8>,
        /// What made it durable.
        path: Path,
        /// How many attempts it took.
        attempts: u32,
    },
    /// The update was certainly not executed and never will be.
    NotExecuted(WhyNot),
    /// The update may or may not have been executed.
    Unknown(WhyUnknown),
    /// The read's result bytes.
    Read {
        /// The result, as in [`Completion::Executed`].
        result: Vec<u8>,
    },
    /// The read of when a value ends.
    TimeToLive {
        /// The result bytes: the end, in ClusterTime.
        result: Vec<u8>,
        /// What is left until then; `None`: the key has no value.
        left: Option<TimeToLive>,
    },
    /// A read or a status question has no answer.
    ReadFailed(WhyFailed),
    /// A table was created or dropped, or not.
    Table(TableOutcome),
    /// What a core says of itself.
    Status(CoreAnswer),
    /// The configuration is as new as the coordinator's.
    Refreshed,
}

/// When a value ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeToLive {
    /// Never.
    Forever,
    /// When this time is over, by the client's estimate of the cluster's clock; zero if it is over.
    For(Duration),
}

/// What a core says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreAnswer {
    /// The status of the core that was asked.
    Status(Box<CoreStatus>),
    /// Its event loop's longest turns.
    Turns(Box<LoopTurns>),
}

/// The reason why an update was certainly not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum WhyNot {
    /// Its keys live in several shards, and the operation has to be of one.
    #[error("its keys live in several shards, which this operation cannot span; give them a common {{tag}} (K0301)")]
    CrossShard,
    /// Its keys live in too many shards.
    #[error("its keys live in more than {} shards; split it (K0316)", limits::PARTICIPANTS_MAX)]
    TooManyShards,
    /// It met other transactions again and again.
    #[error("it met other transactions on the same keys until its deadline, and did not happen; try again (K0317)")]
    Conflict,
    /// The least number that it may lead to is above the greatest.
    #[error("its bounds contradict each other: the least is above the greatest; swap them (K0318)")]
    Bounds,
    /// There is no lifetime, or no value that could have one.
    #[error(
        "its lifetime is 0, or it leaves no value that could have one; give at least a millisecond, or none (K0319)"
    )]
    Lifetime,
    /// A cursor belongs to another table.
    #[error("the cursor is of another table, or of one that was dropped; begin the listing anew (K0320)")]
    Cursor,
    /// The coordinator knows no such table.
    #[error(
        "there is no such table; create it first, or look its name up again if it was dropped and created anew (K0302)"
    )]
    UnknownTable,
    /// A key is too long.
    #[error("a key is longer than {} bytes; use a shorter one (K0303)", limits::KEY_BYTES_MAX)]
    KeyTooLarge,
    /// A value is too long.
    #[error("a value is longer than {} bytes; split it (K0304)", limits::VALUE_BYTES_MAX)]
    ValueTooLarge,
    /// No key, or too many.
    #[error("an operation takes 1 to {} keys; split it (K0305)", limits::OPERATION_KEYS_MAX)]
    KeyCount,
    /// The whole request is longer than a request may be.
    #[error("the request is longer than {} bytes; split it (K0306)", limits::BODY_BYTES_MAX)]
    RequestTooLarge,
    /// The shard found that the request or its result is too large.
    #[error("the request or its result is too large for the cluster's segments; split it (K0307)")]
    ResultTooLarge,
    /// The operation key is empty or too long.
    #[error("an operation key has 1 to {} bytes; choose another one (K0308)", limits::OPERATION_KEY_BYTES_MAX)]
    OperationKey,
    /// Too many calls are waiting.
    #[error(
        "too many calls of this client, or of this shard, are waiting; slow down, or see why they are not answered (K0309)"
    )]
    Overloaded,
    /// The deadline passed before anything was sent.
    #[error("the deadline passed before anything was sent: it waited for {0}; try again (K0310)")]
    DeadlineBeforeSend(WaitsFor),
    /// Cancelled at its deadline, as its caller had asked.
    #[error("it was cancelled at its deadline; try again (K0311)")]
    DeadlineCancelled,
    /// Memory is full.
    #[error("the shard's memory is full; delete something, or add memory (K0312)")]
    OutOfMemory,
    /// The operation key's time to live is over, so that the update cannot be proven new.
    #[error("the operation key's time to live is over, so that the update cannot be proven new; use a new key (K0313)")]
    Unprovable,
    /// The shard cannot decode the request.
    #[error("the server cannot read the request; run the same version of Kasha on both sides (K0314)")]
    BadRequest,
    /// The cluster works as a release before this one does, until its operator says otherwise (R7.6).
    #[error(
        "the cluster works at the level of an earlier release, which does not know it; `kasha admin finalize` raises that (K0326)"
    )]
    Level,
    /// The update was cancelled, and this session does not know why.
    #[error("it was cancelled before it ran; send it again if it is still wanted (K0315)")]
    Cancelled,
}

/// What an update that was never sent waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum WaitsFor {
    /// Nothing: the deadline had passed when the caller asked for the update.
    #[error("nothing: the deadline was over at once")]
    Nothing,
    /// No node of the cluster has answered yet.
    #[error("an answer of any node")]
    Cluster,
    /// A client id, or the coordinator's list of tables.
    #[error("the coordinator")]
    Coordinator,
    /// The shard of its keys.
    #[error("{shard}, whose primary is {primary}")]
    Shard {
        /// The shard of the call's keys.
        shard: ShardId,
        /// The shard's primary, as far as the client knows.
        primary: NodeId,
    },
    /// Room in the window. An update to this shard holds it up.
    #[error("an earlier update to {shard}, whose primary is {primary}")]
    Window {
        /// The shard that does not answer.
        shard: ShardId,
        /// The shard's primary, as far as the client knows.
        primary: NodeId,
    },
}

impl WaitsFor {
    pub(super) fn shard(shard: ShardId, configuration: &Configuration) -> Self {
        Self::Shard { shard, primary: primary_of(shard, configuration) }
    }

    pub(super) fn window(shard: ShardId, configuration: &Configuration) -> Self {
        Self::Window { shard, primary: primary_of(shard, configuration) }
    }
}

fn primary_of(shard: ShardId, configuration: &Configuration) -> NodeId {
    configuration.shard(shard).map_or(NodeId(0), |config| config.primary)
}

/// The reason why it is unknown whether an update was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum WhyUnknown {
    /// The deadline passed first. The session keeps asking for the outcome.
    #[error(
        "the deadline passed while the update was under way; resolve it later, or read what it would have changed (K0321)"
    )]
    DeadlinePassed,
    /// The client's lease ended, and the saved results were dropped with it.
    #[error("the client's lease ended while the update was under way; read what it would have changed (K0322)")]
    LeaseLost,
    /// The server has another request under this id: a bug of the client.
    #[error(
        "the server has another request under the same id, which is a bug of this client; please report it (K0323)"
    )]
    IdReused,
    /// The table was dropped meanwhile.
    #[error("the table was dropped while the update was under way; nothing of it can be read any more (K0324)")]
    TableDropped,
    /// The session keeps nothing of this call any more.
    #[error("the session keeps nothing of this call any more; read what it would have changed (K0325)")]
    Forgotten,
}

/// The reason why a read or a question has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum WhyFailed {
    /// The deadline passed first.
    #[error("the deadline passed without an answer; try again (K0341)")]
    DeadlinePassed,
    /// Keys of several shards were changed between any two looks at them.
    #[error(
        "its keys are of several shards and were changed between any two looks, until the deadline; read fewer, or read \
         them in a transaction (K0345)"
    )]
    KeysChanged,
    /// A number was asked for.
    #[error("the value is no decimal 64-bit number; read it as it is, or use another key (K0332)")]
    NotANumber,
    /// The read can never succeed as it is.
    #[error("the request is not possible: {0}")]
    NotPossible(WhyNot),
    /// The server refused the read, and will refuse it again.
    #[error("the server refused it ({0:?}); the result may be too large: ask for less (K0342)")]
    Refused(Refusal),
}
