//! The data of a request on its way through the stages of [`crate::request::run`]: who brought it, what the stages find out of it, and
//! why it goes no further.
//!
//! - **R4.2** Nothing is recorded of what is refused or waits. It has not run, and a witness must not drop it (`Why::replayed`).

mod admit;
mod answer;
mod commit;
mod distributed;
mod draft;
mod order;
mod path;
pub(crate) mod reads;
pub(crate) mod run;
pub(crate) mod scan;
mod turns;
mod two_phase;
mod wrong;

use std::ops::RangeInclusive;

use kasha_distributed::{Age, GateId};
use kasha_exactly_once::Request;
use kasha_log::{EntryOffset, Full};
use kasha_machine::{Effect, Effects, Endpoint, Gate};
use kasha_store::SpareDraft;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{ClientId, Epoch, KeyHash, LogEnd, RpcId, Slot};
use kasha_wire::frame::Kind;
use kasha_wire::hot::Envelope;
use kasha_wire::{Body, Reader, Refusal, Refused, Update, hot};

/// A client that waits for the answer to this attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub to: Endpoint,
    pub envelope: Envelope,
    pub wish: Wish,
    /// It has given way to somebody, and does not do so again (0047).
    pub gave_way: bool,
}

/// What a client wants of its update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Run,
    /// If it has not run, it never shall (R2.2).
    Cancel,
}

/// Who brought a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin {
    Client(Caller),
    /// A witness that has held it for long; nobody waits.
    Suspect,
    /// The witness that a new primary reads; nobody waits.
    Replay,
}

/// What became of a request from a witness.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replayed {
    /// Its completion record is in the log, or its proposal, now or already.
    Completed,
    /// Stale, expired, unprovable, with a key that is not ours, or behind what it must not run ahead of. That is for good in this term: it may be forgotten.
    Skipped,
    /// There is no room for it now, and it must not be forgotten.
    NoRoom,
    /// It waits for something else than room, and must not be forgotten.
    NotNow,
}

/// A decoded request.
pub(crate) struct Received<'a> {
    pub origin: Origin,
    pub body: Body<'a>,
    pub request: Request,
    pub memory: Box<Memory>,
}

impl Received<'_> {
    /// A client wants it run, and it is a batch, which may end early (R10.17). A witness's copy runs whole, or not at all.
    fn is_batch_of_client(&self) -> bool {
        let is_clients = match self.origin {
            Origin::Client(caller) => caller.wish == Wish::Run,
            Origin::Replay if planted::is_on(Bug::ReplayEndsEarly) => true,
            Origin::Suspect | Origin::Replay => false,
        };
        is_clients && matches!(self.body.update, Update::Batch { .. })
    }
}

/// What a request's stages find out of it. The memory is the core's, and goes back there when the request is done.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// `admit`: of its keys, in order, each once.
    pub slots: Vec<Slot>,
    /// `draft`: the hashes under which witnesses hold it ([`kasha_wire::Body::footprint`]).
    pub footprint: Vec<KeyHash>,
    /// `commit`: entries that are dead once its group is in the log.
    pub dead: Vec<EntryOffset>,
    /// For its draft. When that is done, the result.
    pub draft: SpareDraft,
}

/// What something waits for in the waiting room (`serving::waiting`). Whoever makes it hold opens it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Condition {
    /// The coordinator's verdict on this client's lease (R4.3).
    Lease(ClientId),
    /// Memory that the cleaner can gain (section 5).
    Memory,
    /// A transaction over several shards is pending no more (R8.3).
    Distributed(RpcId),
    /// Who has waited longer has had its turn (0047).
    Turn(Age),
    /// What an answer must not run ahead of is settled (R8.4).
    Gate(GateId),
}

impl Condition {
    /// All turns.
    pub fn turns() -> RangeInclusive<Self> {
        Self::Turn(Age::MIN)..=Self::Turn(Age::MAX)
    }

    /// What a client is told for whose update there is no place.
    pub fn refusal(self) -> Refusal {
        match self {
            Self::Lease(_) => Refusal::LeaseUnproven,
            Self::Memory | Self::Distributed(_) | Self::Turn(_) | Self::Gate(_) => Refusal::Busy,
        }
    }
}

/// Why a delivery runs nothing.
pub(crate) enum Why {
    /// It runs: its answer will come.
    InProgress,
    /// It ran nothing, and nothing is recorded of it (R4.2).
    Refused(Refusal),
    /// Below a logged expiry floor, whose entry ends here and may not be synced (R4.6).
    BelowFloor { floor_end: LogEnd },
    /// It ran nothing, and may run when what it waits for has come. Nothing is recorded of it.
    Parked(Condition),
    /// R8.10 \[M\]: a witness held it, and it conflicts with a transaction that is pending in the recovered log, or its checks fail
    /// there. So no client was told of it before it was durable, and a new primary waits for nobody.
    RunsAhead,
}

impl Why {
    pub fn for_room(full: Full) -> Self {
        match full {
            Full::Memory => Self::Refused(Refusal::OutOfMemory),
            Full::Cleaning => {
                hit(Probe::CleaningBehind);
                Self::Parked(Condition::Memory)
            }
            Full::Group => Self::Refused(Refusal::TooLarge),
        }
    }
}

impl Why {
    pub fn replayed(&self, origin: Origin, may_become_ours: bool) -> Replayed {
        match self {
            Self::InProgress => Replayed::Completed,
            Self::Parked(_) if planted::is_on(Bug::ParkedIsRecorded) => Replayed::Completed,
            // There may be room later. And that somebody waits for the same is no record of it (R4.2).
            Self::Refused(Refusal::OutOfMemory) | Self::Parked(Condition::Memory) => Replayed::NoRoom,
            Self::Refused(Refusal::Busy) | Self::Parked(_) => Replayed::NotNow,
            // Values may be shorter later, and then its client may be told fast: the witness must keep it until then (C3).
            Self::Refused(Refusal::TooLarge) if matches!(origin, Origin::Suspect) => Replayed::NotNow,
            Self::RunsAhead => Replayed::Skipped,
            Self::Refused(Refusal::WrongShard) if may_become_ours => {
                hit(Probe::SuspectOfNewerTable);
                Replayed::NotNow
            }
            Self::Refused(_) | Self::BelowFloor { .. } => Replayed::Skipped,
        }
    }
}

pub(crate) fn refuse(caller: &Caller, rpc: RpcId, epoch: Epoch, why: Refusal, gate: Gate, out: &mut Effects) {
    let mark = out.mark();
    let Envelope { attempt, shard, .. } = caller.envelope;
    let refused = Refused { rpc, attempt, epoch, shard, why };
    hot::encode_small(Kind::Refuse, &refused, out.arena());
    let head = out.span_from(mark);
    out.push(Effect::Send { to: caller.to, head, tail: None, gate });
}

/// Refuses a request that was not decoded, if at least its id can be read.
pub(crate) fn refuse_undecoded(caller: &Caller, body: &[u8], epoch: Epoch, why: Refusal, out: &mut Effects) {
    let mut reader = Reader::new(body);
    if let (Ok(client), Ok(sequence)) = (reader.take(), reader.take()) {
        refuse(caller, RpcId { client, sequence }, epoch, why, Gate::Now, out);
    }
}
