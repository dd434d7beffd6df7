//! Reads at the primary (section 6). Under an unexpired lease a read leaves at once, or, if it overlaps with something
//! unsynced, when that is synced. Without a lease it also waits for a sync round that began after it arrived: nobody
//! can have become primary before.

use kasha_machine::{Effect, Effects, Endpoint, Gate};
use kasha_store::ReadResult;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{LogPosition, LogSlice, Tick, key_hash};
use kasha_wire::frame::Kind;
use kasha_wire::hot::{self, ReadAnswerView, ReadRefused, ReadView};
use kasha_wire::{OutcomeCode, Read, Refusal};

use crate::Answers;
use crate::primary::Term;
use crate::replica::Site;
use crate::serving::{Sees, Serving};

/// One read, from frame to answer.
pub(crate) fn on_read(
    term: &mut Term,
    serving: &mut Serving,
    site: &mut Site<'_>,
    now: Tick,
    to: Endpoint,
    view: &ReadView<'_>,
    out: &mut Effects,
) -> Result<(), Refusal> {
    if view.envelope.epoch != term.epoch {
        return Err(Refusal::NotPrimary);
    }
    let (tail, gate) = execute(term, serving, site, now, view)?;
    let mark = out.mark();
    let answer = ReadAnswerView { read_id: view.read_id, result: &site.core.scratch.result };
    answer.encode(tail.map_or(&[][..], |slice| site.copy.log.slice(slice)), out.arena());
    let head = out.span_from(mark);
    out.push(Effect::Send { to, head, tail, gate });
    Ok(())
}

/// Executes a read into the scratch buffer and says when it may leave.
fn execute(
    term: &mut Term,
    serving: &mut Serving,
    site: &mut Site<'_>,
    now: Tick,
    view: &ReadView<'_>,
) -> Result<(Option<LogSlice>, Gate), Refusal> {
    let Site { copy, state, core } = site;
    let read = Read::decode(view.code, view.arguments).map_err(|_| Refusal::BadRequest)?;
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
    let tail = match state.store.read(&copy.log, view.table, &read, &mut core.scratch.result) {
        ReadResult::Whole => None,
        ReadResult::Tail(slice) => Some(slice),
        ReadResult::TooLarge => return Err(Refusal::TooLarge),
    };
    serving.counters.reads += 1;
    let (shard, epoch, synced) = (copy.shard, term.epoch, term.shipping.synced());
    // Only who observes a key is told a version of the key while it has no value.
    let sees = || if matches!(read, Read::Observe { .. }) { Sees::Absence } else { Sees::Values };
    let until = serving.conflicts.until(core.scratch.footprint.iter().copied(), sees, synced);
    let absent = core.scratch.result.first() == Some(&(OutcomeCode::NotFound as u8));
    let gate = if core.options.answers == Answers::Unreplicated || absent && planted::is_on(Bug::NotFoundUngated) {
        Gate::Now
    } else if !core.has_lease(now) && !planted::is_on(Bug::ReadWithoutLease) {
        // A round that begins from now on also covers everything unsynced.
        hit(Probe::ReadConfirmed);
        Gate::Confirmed { shard, round: term.shipping.want_confirmation() }
    } else if until > synced && !planted::is_on(Bug::UnsyncedRead) {
        term.shipping.want_synced(until);
        Gate::Synced { shard, position: LogPosition { epoch, offset: until } }
    } else {
        Gate::Now
    };
    Ok((tail, gate))
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
