//! The state that a session keeps of one call: its caller, its stage, its bytes, and what belongs to its kind.

use std::time::Duration;

use kasha_types::{ClusterTime, CoreId, Epoch, RpcId, ShardId, Slot, TableId, Tick};
use kasha_wire::message::Placement;
use kasha_wire::{Body, Level, Read, Turn};

use super::calls::CallId;
use super::completion::{WhyFailed, WhyNot};
use super::options::Again;
use super::participant::Participants;
use crate::limits::ANSWERS_APART_MAX;

/// A moment that never comes: no timer is set.
pub(super) const NEVER: Tick = Tick(u64::MAX);

/// One call of a session.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) kind: Kind,
    pub(super) stage: Stage,
    pub(super) participants: Participants,
    pub(super) caller: Caller,
    /// When the call's stage goes on by itself.
    pub(super) resume: Tick,
    /// Number of attempts that were sent; also the number of the last one.
    pub(super) attempts: u32,
    /// The primary to which the last attempt on keys was sent, and its epoch.
    pub(super) tried: Option<(Epoch, CoreId)>,
    /// Attempts that this primary has left without an answer.
    pub(super) silent: u32,
    /// Refusals by this primary since it was last silent.
    pub(super) refused: u32,
    /// When something was last sent for it.
    pub(super) sent_at: Tick,
    /// The attempt has been silent for a while, and a newer configuration was asked for.
    pub(super) is_doubted: bool,
    /// It was sent again because its primary's silence was over.
    pub(super) was_resumed: bool,
    /// The shard in whose share of the limits the call is counted.
    pub(super) owner: Option<ShardId>,
    /// The body (updates), arguments (reads) or name (tables).
    pub(super) bytes: Vec<u8>,
    /// The result of the running attempt.
    pub(super) result: Vec<u8>,
}

/// Who is told the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// A caller waits until this deadline.
    Waits { deadline: Tick },
    /// The caller was told "unknown". The outcome is kept until the caller asks for it (R2.2).
    WasToldUnknown,
    /// The caller is gone (pitfall 1). What was to happen at the deadline still happens.
    IsGone { deadline: Option<Tick> },
}

impl Caller {
    /// When the caller's deadline is; `NEVER` if it has passed.
    pub(super) fn deadline(self) -> Tick {
        match self {
            Self::Waits { deadline } | Self::IsGone { deadline: Some(deadline) } => deadline,
            Self::WasToldUnknown | Self::IsGone { deadline: None } => NEVER,
        }
    }

    /// Moves the deadline, if there is one.
    pub(super) fn wait_until(&mut self, at: Tick) {
        match self {
            Self::Waits { deadline } | Self::IsGone { deadline: Some(deadline) } => *deadline = at,
            Self::WasToldUnknown | Self::IsGone { deadline: None } => {}
        }
    }

    pub(super) fn leave(&mut self) {
        *self = match *self {
            Self::Waits { deadline } => Self::IsGone { deadline: Some(deadline) },
            Self::WasToldUnknown => Self::IsGone { deadline: None },
            Self::IsGone { deadline } => Self::IsGone { deadline },
        };
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Update(UpdateCall),
    Read(ReadCall),
    Table(TableChange),
    Status { core: CoreId, question: CoreQuestion },
    Refresh,
}

/// What is asked of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoreQuestion {
    /// A question for a core's status.
    Status,
    /// Which its longest turns were.
    Turns,
}

/// What a table request asks of the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableChange {
    Create(Placement),
    Drop,
}

/// The parts of an update besides its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UpdateCall {
    pub(super) keys: Keys,
    pub(super) key_count: u16,
    /// Time to live of the operation key in milliseconds.
    pub(super) operation_key_ttl: Option<u64>,
    /// The update's id, from just before anything is sent under it.
    pub(super) rpc: Option<RpcId>,
    pub(super) cancel: Cancel,
    pub(super) out_of_memory: u32,
    /// Who tries it again if it meets another one; and since when it has lost to others.
    pub(super) again: Again,
    pub(super) turn: Option<Turn>,
    /// The level of the cluster that it needs (R7.6).
    pub(super) level: Level,
}

/// The parts of a read besides its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadCall {
    pub(super) keys: Keys,
    pub(super) code: u8,
    /// The call on keys of several shards of which this one reads one shard.
    pub(super) part_of: Option<CallId>,
    /// When keys had changed between two rounds of a read of several shards, the last time.
    pub(super) changed: Option<Tick>,
}

/// The part that updates and reads share: the table of the first key, and all keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) table: TableId,
    pub(super) slots: Slots,
}

/// The slots of a call's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slots {
    /// All keys are in this slot of the call's table.
    One(Slot),
    /// Several slots or tables: they are computed from the bytes.
    Several,
}

/// Whether an update is to be executed at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cancel {
    Never,
    AtDeadline,
    /// From now on only `Cancel` is sent. If the outcome is a recorded `Cancelled`, this is the reason to report.
    Begun(WhyNot),
}

/// What a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its turn: a client id and room in the window (updates), or the end of the request in front (tables).
    Queued,
    /// The moment `resume`, or a newer configuration.
    Backoff { for_configuration: bool },
    /// The coordinator's own configuration.
    ForCoordinator,
    /// Its reads of several shards, which are calls of their own.
    Gathering,
    /// The answers to an attempt.
    InFlight,
}

impl Call {
    /// When this call must be examined next: at its deadline, or when its stage goes on.
    pub(super) fn wake(&self) -> Tick {
        self.resume.min(self.caller.deadline())
    }

    /// Something is sent. `patience`: how long silence is nothing to doubt about.
    pub(super) fn note_sent(&mut self, now: Tick, patience: Duration) {
        (self.sent_at, self.is_doubted) = (now, false);
        self.resume = now.after(patience);
    }

    /// Something was sent to a server. From now on "not executed" takes a recorded outcome (R2.2).
    pub(super) fn is_sent(&self) -> bool {
        self.attempts > 0
    }

    /// The part of an update.
    ///
    /// # Panics
    /// If the call is of another kind.
    pub(super) fn update(&mut self) -> &mut UpdateCall {
        match &mut self.kind {
            Kind::Update(update) => update,
            other => panic!("{other:?} is no update"),
        }
    }

    /// Whether it says since when it has lost, and may wait for its turn (0047).
    pub(super) fn has_turn(&self) -> bool {
        matches!(self.kind, Kind::Update(UpdateCall { turn: Some(_), .. }))
    }

    /// The turn of an update that has lost to others.
    pub(super) fn turn(&self) -> Option<Turn> {
        match &self.kind {
            Kind::Update(update) => update.turn,
            Kind::Read(_) | Kind::Table(_) | Kind::Status { .. } | Kind::Refresh => None,
        }
    }

    /// Its turn, for an envelope with this time. Time may have been set back since it had lost: then it has lost just now, and from now on
    /// says so in all its tries.
    pub(super) fn turn_at(&mut self, cluster_time: ClusterTime) -> Option<Turn> {
        let turn = self.update().turn.as_mut()?;
        turn.since = turn.since.min(cluster_time);
        Some(*turn)
    }

    /// Keys of several shards have changed between two looks at them.
    pub(super) fn note_changes(&mut self, now: Tick) {
        if let Kind::Read(read) = &mut self.kind {
            read.changed = Some(now);
        }
    }

    /// Why a read has no answer at its deadline: changes, if the last ones were seen a moment ago.
    pub(super) fn why_late(&self, now: Tick) -> WhyFailed {
        match self.kind {
            Kind::Read(ReadCall { changed: Some(changed), .. }) if now.since(changed) <= ANSWERS_APART_MAX => {
                WhyFailed::KeysChanged
            }
            _ => WhyFailed::DeadlinePassed,
        }
    }

    /// Calls `each` for every key of an operation and its table. Table requests and status questions have no keys.
    pub(super) fn for_each_key(&self, each: impl FnMut(TableId, &[u8])) {
        match self.kind {
            Kind::Update(update) => {
                Body::decode(&self.bytes).expect("encoded here").update.for_each_key(update.keys.table, each);
            }
            Kind::Read(ReadCall { keys, code, .. }) => {
                Read::decode(code, &self.bytes).expect("encoded here").for_each_key(keys.table, each);
            }
            Kind::Table(_) | Kind::Status { .. } | Kind::Refresh => {}
        }
    }
}

/// Whether a call reads a shard for another call.
pub(super) fn part_of(kind: Kind) -> Option<CallId> {
    match kind {
        Kind::Read(read) => read.part_of,
        Kind::Update(_) | Kind::Table(_) | Kind::Status { .. } | Kind::Refresh => None,
    }
}
