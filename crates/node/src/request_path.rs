//! One update at its primary, from frame to answer (section 2), as one function: `RequestPath::run`.
//!
//! ```text
//!                  admit        look_up     expire       order       draft      execute      record
//! frame ─▶ Received ──▶ Admitted ──▶ Fresh ──▶ Current ──▶ Ordered ──▶ Drafted ──▶ Executed ──▶ Completed ─▶ answer
//!              └────────────┴──────────┴─────────┴───────────┴───────────┴─▶ Stop: answered with what was saved, refused, or dropped
//! ```
//!
//! Each stage consumes one type and yields the next, which no other stage can make, so that none can be skipped. All of them
//! refer to one [`Received`], which owns whatever the stages find out, in [`Memory`] of its own; of the socket it borrows the
//! frame alone. Requests come by three doors: from clients, from witnesses, which keep copies of them (R4.5), and from where
//! a client's request that had to wait was parked, with a copy of its body (`serving::parking`). The path is the same.
//!
//! | file | stages | rules kept there |
//! |---|---|---|
//! | `admit` | `admit`, `look_up` | E1, C3, R4.2, R4.3, R4.5, R4.6 |
//! | `order` | `expire`, `order`, `overlap` | C1, R4.9, R5.1, R5.2 |
//! | `execute` | `draft`, `execute` | E4, R4.8 |
//! | `record` | `record` | E4, R4.1, R4.5 |
//! | `answer` | `answer`, `refuse` | C1, D3, R2.2, R4.6, R6.1, R8.4 |
//! | `turns` | who gives way to whom | |
//! | `distributed` | a transaction over several shards, up to its proposal | R8.3, R8.5, R8.8, R8.11, R8.13, R8.14 |

mod admit;
mod answer;
mod distributed;
mod execute;
mod order;
mod record;
mod turns;
mod two_phase;
mod wrong;

pub(crate) use answer::{refuse, refuse_undecoded};

use kasha_exactly_once::Request;
use kasha_log::{EntryOffset, Full, Log};
use kasha_machine::{Effects, Endpoint};
use kasha_replication::Shipping;
use kasha_store::SpareDraft;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{Epoch, KeyHash, LogEnd, ShardId, Slot};
use kasha_wire::hot::Envelope;
use kasha_wire::{Body, Refusal};

use self::record::Completed;
use crate::core::Core;
use crate::primary::Term;
use crate::replica::Site;
use crate::serving::{Serving, WaitsFor};
use crate::state::ShardState;

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
enum Origin {
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
    /// It cannot be executed now, and must not be forgotten.
    NotNow,
}

/// A decoded request.
struct Received<'a> {
    origin: Origin,
    body: Body<'a>,
    request: Request,
    memory: Box<Memory>,
}

/// What a request's stages find out of it. The memory is the core's, and goes back there when the request is done.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// `admit`: of its keys, in order, each once.
    slots: Vec<Slot>,
    /// `draft`: the hashes under which witnesses hold it ([`kasha_wire::Body::footprint`]).
    footprint: Vec<KeyHash>,
    /// `execute`: entries that are dead once its group is in the log.
    dead: Vec<EntryOffset>,
    /// For its draft. When that is done, the result.
    draft: SpareDraft,
}

/// This delivery goes no further.
enum Stop {
    /// The update has run before: this is its recorded result.
    Completed(Completed),
    /// The delivery runs nothing.
    Nothing(Why),
}

impl Stop {
    fn refuse(why: Refusal) -> Self {
        Self::Nothing(Why::Refused(why))
    }
}

/// Why a delivery runs nothing.
enum Why {
    /// It runs: its answer will come.
    InProgress,
    /// It ran nothing, and nothing is recorded of it (R4.2).
    Refused(Refusal),
    /// Below a logged expiry floor, whose entry ends here and may not be synced (R4.6).
    BelowFloor { floor_end: LogEnd },
    /// It ran nothing, and may run when what it waits for has come. Nothing is recorded of it.
    Parked(WaitsFor),
    /// R8.10 \[M\]: a witness held it, and it conflicts with a transaction that is pending in the recovered log, or its checks fail
    /// there. So no client was told of it before it was durable, and a new primary waits for nobody.
    RunsAhead,
}

impl Why {
    fn for_room(full: Full) -> Self {
        match full {
            Full::Memory => Self::Refused(Refusal::OutOfMemory),
            Full::Cleaning => {
                hit(Probe::CleaningBehind);
                Self::Parked(WaitsFor::Room)
            }
            Full::Group => Self::Refused(Refusal::TooLarge),
        }
    }
}

/// Everything a request can touch beside the log, which an open group borrows.
pub(crate) struct RequestPath<'p> {
    shard: ShardId,
    epoch: Epoch,
    state: &'p mut ShardState,
    /// No transaction over several shards is to be looked at (nearly always).
    is_quiet: bool,
    shipping: &'p mut Shipping,
    /// `None` while a new primary replays a witness.
    serving: Option<&'p mut Serving>,
    core: &'p mut Core,
}

impl<'p> RequestPath<'p> {
    fn new(term: &'p mut Term, serving: Option<&'p mut Serving>, site: &'p mut Site<'_>) -> (Self, &'p mut Log) {
        let Site { copy, state, core } = site;
        let (shard, epoch) = (copy.shard, term.epoch);
        let is_quiet = state.transactions.is_quiet() && serving.as_ref().is_none_or(|serving| serving.turns.is_empty());
        (Self { shard, epoch, state, is_quiet, shipping: &mut term.shipping, serving, core }, &mut copy.log)
    }

    /// One update from a client, from frame to answer.
    pub fn on_request(
        term: &mut Term,
        serving: &mut Serving,
        site: &mut Site<'_>,
        caller: Caller,
        body: &[u8],
        out: &mut Effects,
    ) {
        let Some(mut received) = Received::decode(site.core, Origin::Client(caller), body) else {
            return refuse_undecoded(&caller, body, term.epoch, Refusal::BadRequest, out);
        };
        if received.body.is_distributed() {
            return RequestPath::on_distributed(term, serving, site, received, out);
        }
        let (mut path, log) = RequestPath::new(term, Some(serving), site);
        let ran = path.run(log, &mut received);
        if caller.envelope.turn.is_some()
            && let Ok(completed) = &ran
        {
            path.end_turn_of(log, &caller, &received, completed);
        }
        match ran {
            Ok(completed) | Err(Stop::Completed(completed)) => path.answer(log, &caller, completed, &received, out),
            Err(Stop::Nothing(why)) => path.turn_away(&caller, &received, &why, out),
        }
        path.core.spare(received.memory);
    }

    /// One update that a new primary's witness held (section 7, step 4). Before it serves, a new primary executes nothing
    /// else: a client's update would carry an acknowledgement past some of them (R4.5).
    pub fn on_replay(term: &mut Term, site: &mut Site<'_>, body: &[u8]) -> Replayed {
        let (path, log) = RequestPath::new(term, None, site);
        path.run_for_witness(log, Origin::Replay, body)
    }

    /// One update that a witness names because no gc has dropped it (section 6).
    pub fn on_suspect(term: &mut Term, serving: &mut Serving, site: &mut Site<'_>, body: &[u8]) -> Replayed {
        let (path, log) = RequestPath::new(term, Some(serving), site);
        path.run_for_witness(log, Origin::Suspect, body)
    }

    fn run_for_witness(mut self, log: &mut Log, origin: Origin, body: &[u8]) -> Replayed {
        let Some(mut received) = Received::decode(self.core, origin, body) else { return Replayed::Skipped };
        // A serving primary may hear late of a new table, and then run what its client sends again, which is complete when
        // the witnesses, which still hold it, accept it again: no word of ours to drop it may be under way (C3). What a
        // new primary's configuration does not know its predecessor has not run.
        let may_become_ours = matches!(origin, Origin::Suspect) && self.names_newer_table(&received.body);
        let outcome = match received.body.is_distributed() {
            true if planted::is_on(Bug::PrepareNotReplayed) => return Replayed::Skipped,
            true => self.propose(log, &mut received).map(|_| ()),
            false => self.run(log, &mut received).map(|_| ()),
        };
        note_replayed(origin, &outcome);
        self.core.spare(received.memory);
        match outcome {
            Ok(()) | Err(Stop::Completed(_)) => Replayed::Completed,
            Err(Stop::Nothing(why)) => why.replayed(origin, may_become_ours),
        }
    }
}

impl Why {
    fn replayed(&self, origin: Origin, may_become_ours: bool) -> Replayed {
        match self {
            Self::InProgress => Replayed::Completed,
            Self::Parked(_) if planted::is_on(Bug::ParkedIsRecorded) => Replayed::Completed,
            // There may be room later. And that somebody waits for the same is no record of it (R4.2).
            Self::Refused(Refusal::OutOfMemory | Refusal::Busy) | Self::Parked(_) => Replayed::NotNow,
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

/// Counts what the door of the witnesses leads to.
fn note_replayed(origin: Origin, outcome: &Result<(), Stop>) {
    match (origin, outcome) {
        (Origin::Replay, Err(Stop::Completed(_))) => hit(Probe::ReplayCompleted),
        (Origin::Replay, Err(Stop::Nothing(Why::Refused(Refusal::Stale)))) => hit(Probe::ReplayStale),
        (Origin::Replay, Err(Stop::Nothing(Why::Refused(Refusal::LeaseExpired)))) => hit(Probe::ReplayBelowFloor),
        (Origin::Suspect, Ok(())) => hit(Probe::SuspectExecuted),
        (Origin::Client(_) | Origin::Replay | Origin::Suspect, Ok(()) | Err(_)) => {}
    }
}

impl<'a> Received<'a> {
    #[inline(always)] // else it is copied to its caller
    fn decode(core: &mut Core, origin: Origin, bytes: &'a [u8]) -> Option<Self> {
        let body = Body::decode(bytes).ok()?;
        let request = Request {
            rpc: body.head.rpc,
            body_hash: body.hash(),
            acknowledgement: body.head.acknowledgement,
            lease_expiry: body.head.lease_expiry,
        };
        Some(Self { origin, body, request, memory: core.request_memory() })
    }
}

impl RequestPath<'_> {
    /// Every update of one shard runs here and nowhere else, from clients and from witnesses. (Of several shards:
    /// [`RequestPath::propose`].)
    fn run(&mut self, log: &mut Log, received: &mut Received<'_>) -> Result<Completed, Stop> {
        let admitted = self.admit(received)?;
        let fresh = self.look_up(log, admitted)?;
        let current = self.expire(log, fresh)?;
        let ordered = self.order(log, current)?;
        let drafted = self.draft(log, ordered);
        let overlap = self.overlap(&drafted);
        let executed = self.execute(log, drafted)?;
        Ok(self.record(executed, overlap))
    }

    /// Whether one of its tables may be one that the coordinator has created and we have not heard of. Their ids only grow.
    fn names_newer_table(&self, body: &Body<'_>) -> bool {
        let mut newest = body.head.table;
        body.for_each_key(|table, _, _| newest = newest.max(table));
        self.core.newest_table < Some(newest)
    }

    /// What only a serving primary has: it alone hears clients (R7.1).
    fn serving(&mut self) -> &mut Serving {
        self.serving.as_deref_mut().expect("R7.1: clients are heard while it serves")
    }
}
