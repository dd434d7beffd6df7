//! One update at its primary, from frame to answer (section 2), as one function: `RequestPath::run`.
//!
//! ```text
//!                  admit        look_up     expire       order       draft      commit
//! frame ─▶ Received ──▶ Admitted ──▶ Fresh ──▶ Current ──▶ Ordered ──▶ Drafted ──▶ Completed ─▶ answer
//!              └────────────┴──────────┴─────────┴───────────┴───────────┴─▶ Stop: answered with what was saved, refused, or dropped
//! ```
//!
//! Each stage consumes one type and yields the next, which no other stage can make, so that none can be skipped. All of them
//! refer to one [`Received`], which owns whatever the stages find out, in [`Memory`] of its own; of the socket it borrows the
//! frame alone. Requests come by three doors: from clients, from witnesses, which keep copies of them (R4.5), and from the
//! waiting room, which keeps copies of clients' requests (`serving::waiting`). The path is the same.
//!
//! | file | stages | rules kept there |
//! |---|---|---|
//! | `admit` | `admit`, `look_up` | E1, C3, R4.2, R4.3, R4.5, R4.6 |
//! | `order` | `expire`, `order`, `overlap` | C1, R4.9, R5.1, R5.2 |
//! | `draft` | `draft` | E4, R4.8 |
//! | `commit` | `commit` | E4, R4.1, R4.5 |
//! | `answer` | `answer`, `refuse` | C1, D3, R2.2, R4.6, R6.1, R8.4 |
//! | `turns` | who gives way to whom | |
//! | `distributed` | a transaction over several shards, up to its proposal | R8.3, R8.5, R8.8, R8.11, R8.13, R8.14 |

pub(crate) use crate::request::path::RequestPath;

use kasha_exactly_once::Request;
use kasha_log::Log;
use kasha_machine::Effects;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_wire::{Body, Refusal};

use crate::core::Core;
use crate::request::commit::Completed;
use crate::request::path::Stop;
use crate::request::{Caller, Origin, Received, Replayed, Why, refuse_undecoded};
use crate::serving::Serving;
use crate::shard::site::Site;
use crate::shard::term::Term;

impl<'p> RequestPath<'p> {
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
        if drafted.draft().is_early_end() && !drafted.ordered().received().is_batch_of_client() {
            return Err(Stop::refuse(Refusal::TooLarge)); // R10.17: a witness's copy runs whole, or not at all
        }
        let overlap = self.overlap(&drafted);
        self.commit(log, drafted, overlap)
    }

    /// Whether one of its tables may be one that the coordinator has created and we have not heard of. Their ids only grow.
    fn names_newer_table(&self, body: &Body<'_>) -> bool {
        let mut newest = body.head.table;
        body.for_each_key(|table, _, _| newest = newest.max(table));
        self.core.newest_table < Some(newest)
    }

    /// What only a serving primary has: it alone hears clients (R7.1).
    pub(super) fn serving(&mut self) -> &mut Serving {
        self.serving.as_deref_mut().expect("R7.1: clients are heard while it serves")
    }
}
