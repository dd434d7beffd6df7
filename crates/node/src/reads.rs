//! Reads at the primary (section 6). Under an unexpired lease a read leaves at once, or, if it overlaps with something
//! unsynced, when that is synced. Without a lease it also waits for a sync round that began after it arrived: nobody
//! can have become primary before.

use kasha_machine::{Effect, Effects, Endpoint, Gate};
use kasha_store::ReadResult;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{LogPosition, LogSlice, Tick};
use kasha_wire::frame::Kind;
use kasha_wire::hot::{self, ReadAnswerView, ReadRefused, ReadView};
use kasha_wire::{OutcomeCode, Read, Refusal};

use crate::Answers;
use crate::core::Core;
use crate::primary::Stage;
use crate::replica::{Replica, Role};

impl Replica {
    /// One read, from frame to answer.
    pub fn on_read(&mut self, core: &mut Core, now: Tick, to: Endpoint, view: &ReadView<'_>, out: &mut Effects) {
        match self.try_read(core, now, view) {
            Ok((tail, gate)) => {
                let mark = out.mark();
                let answer = ReadAnswerView { read_id: view.read_id, result: &core.scratch.result };
                answer.encode(tail.map_or(&[][..], |slice| self.log.slice(slice)), out.arena());
                let head = out.span_from(mark);
                out.push(Effect::Send { to, head, tail, gate });
            }
            Err(why) => refuse_read(to, view, self.meta.promised, why, out),
        }
    }

    /// Executes a read into the scratch buffer and says when it may leave.
    fn try_read(
        &mut self,
        core: &mut Core,
        now: Tick,
        view: &ReadView<'_>,
    ) -> Result<(Option<LogSlice>, Gate), Refusal> {
        let Role::Primary(primary) = &mut self.role else { return Err(Refusal::NotPrimary) };
        let Stage::Serving(serving) = &mut primary.stage else { return Err(Refusal::Recovering) };
        if view.envelope.epoch != primary.epoch {
            return Err(Refusal::NotPrimary);
        }
        let read = Read::decode(view.code, view.arguments).map_err(|_| Refusal::BadRequest)?;
        let configuration = core.configuration.as_ref().ok_or(Refusal::NotPrimary)?;
        let everything = if planted::is_on(Bug::EverythingUngated) { 0 } else { serving.everything_until };
        let (mut owned, mut newest) = (true, everything);
        read.for_each_key(|key| {
            owned &= configuration.owner(view.table, kasha_types::slot_of(key)) == Some(self.shard);
            if let Some(at) = self.state.store.newest(&self.log, view.table, key) {
                newest = newest.max(at.0 + 1);
            }
        });
        if !owned {
            return Err(Refusal::WrongShard);
        }
        let tail = match self.state.store.read(&self.log, view.table, &read, &mut core.scratch.result) {
            ReadResult::Whole => None,
            ReadResult::Tail(slice) => Some(slice),
            ReadResult::TooLarge => return Err(Refusal::TooLarge),
        };
        serving.counters.reads += 1;
        let (shard, epoch) = (self.shard, primary.epoch);
        let absent = core.scratch.result.first() == Some(&(OutcomeCode::NotFound as u8));
        let gate = if core.options.answers == Answers::Unreplicated || absent && planted::is_on(Bug::NotFoundUngated) {
            Gate::Now
        } else if !core.has_lease(now) && !planted::is_on(Bug::ReadWithoutLease) {
            // A round that begins from now on also covers everything unsynced.
            hit(Probe::ReadConfirmed);
            Gate::Confirmed { shard, round: primary.shipping.want_confirmation() }
        } else if newest > primary.shipping.synced() && !planted::is_on(Bug::UnsyncedRead) {
            primary.shipping.want_synced(newest);
            Gate::Synced { shard, position: LogPosition { epoch, offset: newest } }
        } else {
            Gate::Now
        };
        Ok((tail, gate))
    }
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
