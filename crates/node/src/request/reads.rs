//! One read at its primary (section 6), from frame to answer, as one function: `ReadPath::run`.
//!
//! ```text
//!        admit         order        execute       gate
//! frame ──▶ Admitted ──▶ Current ──▶ Executed ──▶ Gated ─▶ answer
//!    └──────────┴────────────┴───────────┴─▶ Stop: refused, or waits for what is pending
//! ```
//!
//! Under an unexpired lease a read leaves at once, or, if it overlaps with something unsynced, when that is synced. Without a
//! lease it also waits for a sync round that began after it arrived: nobody can have become primary before. What waits comes in
//! again at `admit`.

use kasha_distributed::{Footprint, GateId, Origin};
use kasha_machine::{Effect, Effects, Endpoint, Gate};
use kasha_store::ReadResult;
use kasha_types::limits::RESULT_BYTES_MAX;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{ClusterTime, KeyHash, LogEnd, LogPosition, LogSlice, RpcId, TableId, Tick, key_hash};
use kasha_wire::frame::Kind;
use kasha_wire::hot::{self, ReadAnswerView, ReadRefused, ReadView};
use kasha_wire::operation::Parts;
use kasha_wire::outcome::Shape;
use kasha_wire::{OutcomeCode, Read, Refusal};

use crate::request::scan::{Shows, Wanted, scan};
use crate::serving::waiting::WaitingAnswer;
use crate::serving::{Sees, Serving};
use crate::shard::expiry;
use crate::shard::site::Site;
use crate::shard::state::ShardState;
use crate::shard::term::Term;

/// Of a read's answer.
const READ_ID_BYTES: usize = 8;
/// Transactions that a listing, or a read of two rounds, waits for: all that are pending when it comes.
const WAITED_FOR_MAX: usize = 1024;

/// Whether a read has waited for transactions already.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comes {
    First,
    Again,
}

/// What the stages of a read work on.
pub(crate) struct ReadPath<'p, 's> {
    term: &'p mut Term,
    serving: &'p mut Serving,
    site: &'p mut Site<'s>,
    now: Tick,
}

/// This delivery goes no further.
enum Stop {
    Refused(Refusal),
    /// It waits for these transactions.
    Waits(Vec<RpcId>),
}

/// `admit`: a read of this term. Its keys are this shard's, and their hashes are in the scratch footprint; a listing, which names no key,
/// has none yet.
struct Admitted<'a> {
    table: TableId,
    code: u8,
    read: Read<'a>,
    comes: Comes,
    /// What its client took ClusterTime for.
    shown: ClusterTime,
}

/// `order`: nothing that is pending writes what it reads, but for a listing and a read of two rounds, which have waited for what was pending when
/// they came. `is_over`: the time of some value was over; it is gone now if there was room for that. `parts_max`: so many parts of a query run.
struct Current<'a> {
    read: Admitted<'a>,
    is_over: bool,
    parts_max: u32,
}

/// `execute`: its result is in the scratch buffer, and behind it `tail`.
struct Executed {
    code: u8,
    tail: Option<LogSlice>,
    gate: Gate,
}

/// `gate`: what the answer waits for. What it has seen may depend on transactions that are not settled (R8.4).
struct Gated {
    tail: Option<LogSlice>,
    gate: Gate,
    behind: Option<GateId>,
}

impl<'p, 's> ReadPath<'p, 's> {
    /// One read, from frame to answer.
    pub fn on_read(
        term: &'p mut Term,
        serving: &'p mut Serving,
        site: &'p mut Site<'s>,
        now: Tick,
        (to, view, comes): (Endpoint, &ReadView<'_>, Comes),
        out: &mut Effects,
    ) {
        if serving.waiting.has_read(to, view.read_id) && comes == Comes::First {
            return; // its client asks again: what is pending now is not waited for, too
        }
        let mut path = ReadPath { term, serving, site, now };
        let refused = match path.run(view, comes) {
            Ok(gated) => path.answer(gated, (to, view.read_id), out),
            Err(Stop::Waits(rpcs)) => path.park(rpcs, to, view),
            Err(Stop::Refused(why)) => Err(why),
        };
        if let Err(why) = refused {
            refuse_read(to, view, path.site.copy.meta.promised, why, out);
        }
    }

    #[inline]
    fn run(&mut self, view: &ReadView<'_>, comes: Comes) -> Result<Gated, Stop> {
        let admitted = self.admit(view, comes)?;
        let current = self.order(admitted)?;
        let executed = self.execute(current)?;
        self.gate(executed)
    }

    fn admit<'a>(&mut self, view: &ReadView<'a>, comes: Comes) -> Result<Admitted<'a>, Stop> {
        if view.envelope.epoch != self.term.epoch {
            return Err(Stop::Refused(Refusal::NotPrimary));
        }
        let read = Read::decode(view.code, view.arguments).map_err(|_| Stop::Refused(Refusal::BadRequest))?;
        let admitted = Admitted { table: view.table, code: view.code, read, comes, shown: view.envelope.cluster_time };
        let Site { copy, core, .. } = &mut *self.site;
        let configuration = core.configuration.as_ref().ok_or(Stop::Refused(Refusal::NotPrimary))?;
        let (mut owned, footprint) = (true, &mut core.scratch.footprint);
        footprint.clear();
        if page_of(&admitted).is_none() {
            admitted.read.for_each_key(view.table, |table, key| {
                owned &= configuration.owner(table, kasha_types::slot_of(key)) == Some(copy.shard);
                footprint.push(key_hash(table, key));
            });
        }
        if owned { Ok(admitted) } else { Err(Stop::Refused(Refusal::WrongShard)) }
    }

    /// R5.2, R8.3.
    fn order<'a>(&mut self, read: Admitted<'a>) -> Result<Current<'a>, Stop> {
        if page_of(&read).is_some() {
            if read.comes == Comes::First
                && let Some(rpcs) = writers_before(self.site.state).map_err(Stop::Refused)?
            {
                return Err(Stop::Waits(rpcs));
            }
            return Ok(Current { read, is_over: false, parts_max: 0 }); // `scan` deletes what is over
        }
        let Site { state, core, .. } = &mut *self.site;
        let mut parts_max = u32::MAX;
        if !state.distributed.is_quiet()
            && let Some(rpcs) = pending_before(state, &core.scratch.footprint, &read).map_err(Stop::Refused)?
        {
            match read.read {
                Read::Query { queries } if queries.count() > 1 => {
                    parts_max = parts_before_wait(state, queries, &mut core.scratch.footprint);
                }
                _ => return Err(Stop::Waits(rpcs)),
            }
        }
        let is_over = state.store.has_due(core.counted.time()) && self.expire(&read);
        Ok(Current { read, is_over, parts_max })
    }

    /// R5.2: whoever finds a key gone finds the delete in the log. Says whether the time of a value was over.
    #[cold]
    fn expire(&mut self, admitted: &Admitted<'_>) -> bool {
        let Site { copy, state, core } = &mut *self.site;
        let (now, mut is_due, mut keys) = (core.counted.time(), false, Vec::new());
        admitted.read.for_each_key(admitted.table, |table, key| {
            is_due |= state.store.is_due(&copy.log, table, key, now);
            keys.push((table, key));
        });
        let at = (self.term.epoch, self.term.shipping.synced(), now);
        if is_due && !planted::is_on(Bug::ExpiryInRead) {
            let gone =
                expiry::delete_due(&mut copy.log, state, core, &mut self.serving.conflicts, at, keys.into_iter());
            expiry::note_seen(gone);
        }
        is_due
    }

    /// Executes it into the scratch buffer, and says from when on what it has seen cannot be lost.
    fn execute(&mut self, current: Current<'_>) -> Result<Executed, Stop> {
        let Current { read: Admitted { table, code, ref read, shown, .. }, is_over, parts_max } = current;
        if let Some(wanted) = page_of(&current.read) {
            scan(self.term, self.serving, self.site, wanted).map_err(Stop::Refused)?;
            self.serving.counters.reads += 1;
            let end = self.site.copy.log.end().offset;
            return Ok(Executed { code, tail: None, gate: self.gate_at(end) });
        }
        let Site { copy, state, core } = &mut *self.site;
        if let Read::Query { queries } = *read {
            if !core.knows_enough_for(queries) {
                return Err(Stop::Refused(Refusal::Busy));
            }
            let spare = std::mem::take(&mut core.scratch.query);
            // R10.12: lifetimes count from what clients take the time for, and so does what is told of the rest. So nobody is told more
            // than it has said itself.
            let now = core.moment(core.told_time.nearest(shown).max(core.counted.time()));
            state.store.bring_near(&copy.log, core.scratch.footprint.iter().copied());
            let draft = state.store.query(&copy.log, now, (queries, parts_max), spare);
            let is_small = draft.result().len() <= RESULT_BYTES_MAX;
            core.scratch.result.clear();
            if is_small {
                core.scratch.result.extend_from_slice(draft.result());
            }
            core.scratch.query = draft.into_spare();
            if !is_small {
                return Err(Stop::Refused(Refusal::TooLarge));
            }
            self.serving.counters.reads += 1;
            let keys = core.scratch.footprint.iter().copied();
            let until = self.serving.conflicts.until(keys, || Sees::Values, self.term.shipping.synced());
            return Ok(Executed { code, tail: None, gate: self.gate_at(until) });
        }
        let tail = match state.store.read(&copy.log, table, read, &core.scratch.footprint, &mut core.scratch.result) {
            ReadResult::Whole => None,
            ReadResult::Tail(slice) => Some(slice),
            ReadResult::TooLarge => return Err(Stop::Refused(Refusal::TooLarge)),
        };
        self.serving.counters.reads += 1;
        if is_over && planted::is_on(Bug::ExpiryInRead) && matches!(read, Read::Get { .. }) {
            core.scratch.result.clear();
            core.scratch.result.push(OutcomeCode::NotFound as u8);
            return Ok(Executed { code, tail: None, gate: Gate::Now });
        }
        // Only who observes a key is told a version of the key while it has no value.
        let sees = || if matches!(read, Read::Observe { .. }) { Sees::Absence } else { Sees::Values };
        let keys = core.scratch.footprint.iter().copied();
        let until = self.serving.conflicts.until(keys, sees, self.term.shipping.synced());
        let absent = core.scratch.result.first() == Some(&(OutcomeCode::NotFound as u8));
        let gate = match absent && planted::is_on(Bug::NotFoundUngated) {
            true => Gate::Now,
            false => self.gate_at(until),
        };
        Ok(Executed { code, tail, gate })
    }

    /// When a read may leave that has seen changes up to here.
    fn gate_at(&mut self, until: LogEnd) -> Gate {
        let (shard, epoch, synced) = (self.site.copy.shard, self.term.epoch, self.term.shipping.synced());
        if self.site.core.options.baseline.is_unreplicated() {
            Gate::Now
        } else if !self.site.core.has_lease(self.now) && !planted::is_on(Bug::ReadWithoutLease) {
            // A round that begins from now on also covers everything unsynced.
            hit(Probe::ReadConfirmed);
            Gate::Confirmed { shard, round: self.term.shipping.want_confirmation() }
        } else if until > synced && !planted::is_on(Bug::UnsyncedRead) {
            self.term.shipping.want_synced(until);
            Gate::Synced { shard, position: LogPosition { epoch, offset: until } }
        } else {
            Gate::Now
        }
    }

    /// R8.4. There is a place for the answer before somebody waits for the read.
    #[inline]
    fn gate(&mut self, Executed { code, tail, gate }: Executed) -> Result<Gated, Stop> {
        let behind = match footprint_to_gate(self.site) {
            None => None,
            Some(footprint) => {
                let bytes = self.site.core.scratch.result.len() + tail.map_or(0, |slice| slice.len as usize);
                if !self.serving.waiting.has_place_for_answer(bytes + READ_ID_BYTES) {
                    return Err(Stop::Refused(Refusal::Busy));
                }
                gate_behind(self.site, code, &footprint)
            }
        };
        Ok(Gated { tail, gate, behind })
    }

    #[inline]
    fn answer(&mut self, gated: Gated, (to, read_id): (Endpoint, u64), out: &mut Effects) -> Result<(), Refusal> {
        let Gated { tail, gate, behind } = gated;
        if let Some(behind) = behind {
            return self.answer_behind(behind, (tail, gate), (to, read_id));
        }
        let Site { copy, core, .. } = &mut *self.site;
        let tail = match tail {
            Some(slice) if !gate.may_name_log() => {
                core.scratch.result.extend_from_slice(copy.log.slice(slice));
                None
            }
            found => found,
        };
        let answer = ReadAnswerView { read_id, result: &core.scratch.result };
        let mark = out.mark();
        answer.encode(tail.map_or(&[][..], |slice| copy.log.slice(slice)), out.arena());
        let head = out.span_from(mark);
        out.push(Effect::Send { to, head, tail, gate });
        Ok(())
    }

    #[cold]
    fn answer_behind(
        &mut self,
        behind: GateId,
        (tail, when): (Option<LogSlice>, Gate),
        (to, read_id): (Endpoint, u64),
    ) -> Result<(), Refusal> {
        let tail = tail.map_or(&[][..], |slice| self.site.copy.log.slice(slice));
        let mut frame = Vec::new();
        ReadAnswerView { read_id, result: &self.site.core.scratch.result }.encode(tail, &mut frame);
        frame.extend_from_slice(tail);
        let is_held = self.serving.waiting.hold(behind, WaitingAnswer { to, frame, when });
        if is_held { Ok(()) } else { Err(Refusal::Busy) }
    }

    #[cold]
    fn park(&mut self, rpcs: Vec<RpcId>, to: Endpoint, view: &ReadView<'_>) -> Result<(), Refusal> {
        self.site.core.log_flush.hurry();
        hit(Probe::ReadMeetsPending);
        if self.serving.waiting.park_read(rpcs, to, view) { Ok(()) } else { Err(Refusal::Busy) }
    }
}

/// The page that a listing asks for. `None`: it is no listing.
fn page_of<'a>(admitted: &Admitted<'a>) -> Option<Wanted<'a>> {
    let (cursor, most, prefix, shows) = match admitted.read {
        Read::Scan { cursor, most, prefix } => (cursor, most, prefix, Shows::Keys),
        Read::ScanValues { cursor, most, prefix } => (cursor, most, prefix, Shows::Values),
        _ => return None,
    };
    Some(Wanted { table: admitted.table, from: cursor, most, prefix, shows })
}

/// What a read waits for. Of the transactions over several shards that are pending and write one of these keys it is one: the read would
/// tell of a moment that is over for somebody else (R8.3). A read of two rounds waits for all that are pending when it comes (R8.16,
/// 0060); it leaves no gate behind, so that nobody waits for it in turn.
#[cold]
fn pending_before(state: &ShardState, keys: &[KeyHash], read: &Admitted<'_>) -> Result<Option<Vec<RpcId>>, Refusal> {
    let participant = &state.distributed.participant;
    let footprint = || Footprint::new(keys.iter().copied(), []);
    match read.read {
        Read::Observe { .. } if read.comes == Comes::Again || planted::is_on(Bug::RunsAheadOfPending) => Ok(None),
        Read::Observe { .. } => {
            let pending = participant.blocked_by_all(&footprint());
            if pending.len() > WAITED_FOR_MAX {
                return Err(Refusal::Busy);
            }
            Ok((!pending.is_empty()).then(|| pending.into_iter().collect()))
        }
        _ => Ok(participant.blocked_by(&footprint()).map(|rpc| vec![rpc])),
    }
}

/// So many parts of a query stand before the first that would have to wait: the client sends that one alone, and it waits (R10.17). Only they
/// run, and the footprint is theirs.
#[cold]
fn parts_before_wait(state: &ShardState, queries: Parts<'_>, footprint: &mut Vec<KeyHash>) -> u32 {
    footprint.clear();
    let mut count = 0;
    for part in queries.iter() {
        let before = footprint.len();
        part.operation.for_each_key(|key| footprint.push(key_hash(part.table, key)));
        let own = Footprint::new(footprint[before..].iter().copied(), []);
        if state.distributed.participant.blocked_by(&own).is_some() {
            footprint.truncate(before);
            break;
        }
        count += 1;
    }
    count
}

/// What a listing waits for: all that is pending and writes. What is proposed while it waits need not be on its page, or else a
/// listing might wait for ever.
fn writers_before(state: &ShardState) -> Result<Option<Vec<RpcId>>, Refusal> {
    if state.distributed.is_quiet() || planted::is_on(Bug::ListingOverPending) {
        return Ok(None);
    }
    let writers = state.distributed.participant.writers(WAITED_FOR_MAX).ok_or(Refusal::Busy)?;
    Ok((!writers.is_empty()).then(|| writers.into_iter().collect()))
}

/// What the answer of the read that has just run must wait for besides (R8.4). Who comes after it waits for that, too, but for
/// whoever comes after a read of two rounds (R8.16) or a listing: neither waits for all that is pending, so that what they left to
/// writers here could wait for what is left there, in a circle.
fn gate_behind(site: &mut Site<'_>, code: u8, footprint: &Footprint) -> Option<GateId> {
    let participant = &mut site.state.distributed.participant;
    match Read::row_of(code).map(|row| row.shape) {
        Some(Shape::Observed | Shape::Keys | Shape::KeysAndValues) => participant.wait_as(footprint),
        _ => participant.pass(None, footprint, Origin::Now).map(|(gate, _)| gate),
    }
}

/// What the read that has just run has touched, if its answer must wait for transactions.
#[inline]
fn footprint_to_gate(site: &Site<'_>) -> Option<Footprint> {
    if site.state.distributed.is_quiet() {
        return None; // nearly always
    }
    let footprint = Footprint::new(site.core.scratch.footprint.iter().copied(), []);
    site.state.distributed.participant.is_gated(&footprint).then_some(footprint)
}

/// Tells a client that its read ran nothing here.
pub(crate) fn refuse_read(
    to: Endpoint,
    view: &ReadView<'_>,
    epoch: kasha_types::Epoch,
    why: Refusal,
    out: &mut Effects,
) {
    let mark = out.mark();
    hot::encode_small(Kind::ReadRefuse, &ReadRefused { read_id: view.read_id, epoch, why }, out.arena());
    let head = out.span_from(mark);
    out.push(Effect::Send { to, head, tail: None, gate: Gate::Now });
}
