//! Reads at the primary (section 6). Under an unexpired lease a read leaves at once, or, if it overlaps with something
//! unsynced, when that is synced. Without a lease it also waits for a sync round that began after it arrived: nobody
//! can have become primary before.

use kasha_machine::{Effect, Effects, Endpoint, Gate};
use kasha_store::ReadResult;
use kasha_transaction::{Footprint, GateId, Origin};
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{KeyHash, LogEnd, LogPosition, LogSlice, RpcId, TableId, Tick, key_hash};
use kasha_wire::frame::Kind;
use kasha_wire::hot::{self, ReadAnswerView, ReadRefused, ReadView};
use kasha_wire::outcome::Shape;
use kasha_wire::{OutcomeCode, Read, Refusal};

use crate::request::scan::{Shows, Wanted, scan};
use crate::serving::{Sees, Serving};
use crate::shard::expiry;
use crate::shard::site::Site;
use crate::shard::state::ShardState;
use crate::shard::term::Term;

/// Of a read's answer.
const READ_ID_BYTES: usize = 8;
/// Transactions that a listing waits for: all that are pending when it comes.
const WAITED_FOR_MAX: usize = 1024;

/// Whether a read has waited for transactions already.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comes {
    First,
    Again,
}

/// One read, from frame to answer.
pub(crate) fn on_read(
    term: &mut Term,
    serving: &mut Serving,
    site: &mut Site<'_>,
    now: Tick,
    (to, view, comes): (Endpoint, &ReadView<'_>, Comes),
    out: &mut Effects,
) -> Result<(), Refusal> {
    if view.envelope.epoch != term.epoch {
        return Err(Refusal::NotPrimary);
    }
    let (tail, gate) = match execute(term, serving, site, now, (view, comes))? {
        Executed::Read { tail, gate } => (tail, gate),
        Executed::MustWait(rpcs) => {
            site.core.log_flush.hurry();
            hit(Probe::ReadMeetsPending);
            return if serving.transacting.waiting.park_read(rpcs, to, view) { Ok(()) } else { Err(Refusal::Busy) };
        }
    };
    let behind = match footprint_to_gate(site) {
        None => None,
        Some(footprint) => {
            let bytes = site.core.scratch.result.len() + tail.map_or(0, |slice| slice.len as usize);
            if !serving.transacting.waiting.has_room_for(bytes + READ_ID_BYTES) {
                return Err(Refusal::Busy); // before somebody waits for the read
            }
            gate_behind(site, view.code, &footprint)
        }
    };
    if let Some(behind) = behind {
        let answer = ReadAnswerView { read_id: view.read_id, result: &site.core.scratch.result };
        let tail = tail.map_or(&[][..], |slice| site.copy.log.slice(slice));
        return match serving.transacting.waiting.hold_read(behind, to, (answer, tail), gate) {
            true => Ok(()),
            false => Err(Refusal::Busy),
        };
    }
    let tail = match tail {
        Some(slice) if !gate.may_name_log() => {
            site.core.scratch.result.extend_from_slice(site.copy.log.slice(slice));
            None
        }
        found => found,
    };
    let answer = ReadAnswerView { read_id: view.read_id, result: &site.core.scratch.result };
    let mark = out.mark();
    answer.encode(tail.map_or(&[][..], |slice| site.copy.log.slice(slice)), out.arena());
    let head = out.span_from(mark);
    out.push(Effect::Send { to, head, tail, gate });
    Ok(())
}

/// What came of a read.
enum Executed {
    /// Its result is in the scratch buffer, and behind it this.
    Read { tail: Option<LogSlice>, gate: Gate },
    /// It waits for these transactions.
    MustWait(Vec<RpcId>),
}

/// Executes a read into the scratch buffer and says when it may leave.
fn execute(
    term: &mut Term,
    serving: &mut Serving,
    site: &mut Site<'_>,
    now: Tick,
    (view, comes): (&ReadView<'_>, Comes),
) -> Result<Executed, Refusal> {
    let read = Read::decode(view.code, view.arguments).map_err(|_| Refusal::BadRequest)?;
    if let Read::Scan { cursor, most, prefix } | Read::ScanValues { cursor, most, prefix } = read {
        if comes == Comes::First
            && let Some(rpcs) = writers_before(site.state)?
        {
            return Ok(Executed::MustWait(rpcs));
        }
        let shows = if matches!(read, Read::ScanValues { .. }) { Shows::Values } else { Shows::Keys };
        scan(term, serving, site, Wanted { table: view.table, from: cursor, most, prefix, shows })?;
        serving.counters.reads += 1;
        let end = site.copy.log.end().offset;
        return Ok(Executed::Read { tail: None, gate: gate_at(term, site, now, end) });
    }
    let Site { copy, state, core } = site;
    let configuration = core.configuration.as_ref().ok_or(Refusal::NotPrimary)?;
    let (mut owned, footprint) = (true, &mut core.scratch.footprint);
    footprint.clear();
    read.for_each_key(view.table, |table, key| {
        owned &= configuration.owner(table, kasha_types::slot_of(key)) == Some(copy.shard);
        footprint.push(key_hash(table, key));
    });
    if !owned {
        return Err(Refusal::WrongShard);
    }
    if let Some(rpc) = pending_before(state, &core.scratch.footprint) {
        return Ok(Executed::MustWait(vec![rpc]));
    }
    let is_over = state.store.has_due(core.cluster_time) && expire(term, serving, site, view.table, &read);
    let Site { copy, state, core } = site;
    let tail = match state.store.read(&copy.log, view.table, &read, &mut core.scratch.result) {
        ReadResult::Whole => None,
        ReadResult::Tail(slice) => Some(slice),
        ReadResult::TooLarge => return Err(Refusal::TooLarge),
    };
    serving.counters.reads += 1;
    if is_over && planted::is_on(Bug::ExpiryInRead) && matches!(read, Read::Get { .. }) {
        core.scratch.result.clear();
        core.scratch.result.push(OutcomeCode::NotFound as u8);
        return Ok(Executed::Read { tail: None, gate: Gate::Now });
    }
    // Only who observes a key is told a version of the key while it has no value.
    let sees = || if matches!(read, Read::Observe { .. }) { Sees::Absence } else { Sees::Values };
    let until = serving.conflicts.until(core.scratch.footprint.iter().copied(), sees, term.shipping.synced());
    let absent = core.scratch.result.first() == Some(&(OutcomeCode::NotFound as u8));
    let gate = match absent && planted::is_on(Bug::NotFoundUngated) {
        true => Gate::Now,
        false => gate_at(term, site, now, until),
    };
    Ok(Executed::Read { tail, gate })
}

/// When a read may leave that has seen changes up to here.
fn gate_at(term: &mut Term, site: &Site<'_>, now: Tick, until: LogEnd) -> Gate {
    let (shard, epoch, synced) = (site.copy.shard, term.epoch, term.shipping.synced());
    if site.core.options.baseline.is_unreplicated() {
        Gate::Now
    } else if !site.core.has_lease(now) && !planted::is_on(Bug::ReadWithoutLease) {
        // A round that begins from now on also covers everything unsynced.
        hit(Probe::ReadConfirmed);
        Gate::Confirmed { shard, round: term.shipping.want_confirmation() }
    } else if until > synced && !planted::is_on(Bug::UnsyncedRead) {
        term.shipping.want_synced(until);
        Gate::Synced { shard, position: LogPosition { epoch, offset: until } }
    } else {
        Gate::Now
    }
}

/// R5.2: whoever finds a key gone finds the delete in the log. Says whether the time of a value was over.
#[cold]
fn expire(term: &Term, serving: &mut Serving, site: &mut Site<'_>, table: TableId, read: &Read<'_>) -> bool {
    let Site { copy, state, core } = site;
    let (now, mut is_due, mut keys) = (core.cluster_time, false, Vec::new());
    read.for_each_key(table, |table, key| {
        is_due |= state.store.is_due(&copy.log, table, key, now);
        keys.push((table, key));
    });
    let at = (term.epoch, term.shipping.synced());
    if is_due && !planted::is_on(Bug::ExpiryInRead) {
        let gone = expiry::delete_due(&mut copy.log, state, core, &mut serving.conflicts, at, keys.into_iter());
        expiry::note_seen(gone);
    }
    is_due
}

/// A transaction over several shards that is pending, and writes one of these keys: the read would tell of a moment that is over for
/// somebody else (R8.3).
#[inline]
fn pending_before(state: &ShardState, keys: &[KeyHash]) -> Option<RpcId> {
    if state.transactions.is_quiet() {
        return None; // nearly always
    }
    state.transactions.participant.blocked_by(&Footprint::new(keys.iter().copied(), []))
}

/// What a listing waits for: all that is pending and writes. What is proposed while it waits need not be on its page, or else a
/// listing might wait for ever.
fn writers_before(state: &ShardState) -> Result<Option<Vec<RpcId>>, Refusal> {
    if state.transactions.is_quiet() || planted::is_on(Bug::ListingOverPending) {
        return Ok(None);
    }
    let writers = state.transactions.participant.writers(WAITED_FOR_MAX).ok_or(Refusal::Busy)?;
    Ok((!writers.is_empty()).then(|| writers.into_iter().collect()))
}

/// What the answer of the read that has just run must wait for besides (R8.4). Who comes after it waits for that, too, but for
/// whoever comes after a read of two rounds (R8.16) or a listing: neither waits for all that is pending, so that what they left to
/// writers here could wait for what is left there, in a circle.
fn gate_behind(site: &mut Site<'_>, code: u8, footprint: &Footprint) -> Option<GateId> {
    let participant = &mut site.state.transactions.participant;
    match Read::row_of(code).map(|row| row.shape) {
        Some(Shape::Observed | Shape::Keys | Shape::KeysAndValues) => participant.wait_as(footprint),
        _ => participant.pass(footprint, Origin::Now).map(|(gate, _)| gate),
    }
}

/// What the read that has just run has touched, if its answer must wait for transactions.
#[inline]
fn footprint_to_gate(site: &Site<'_>) -> Option<Footprint> {
    if site.state.transactions.is_quiet() {
        return None; // nearly always
    }
    let footprint = Footprint::new(site.core.scratch.footprint.iter().copied(), []);
    site.state.transactions.participant.is_gated(&footprint).then_some(footprint)
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
