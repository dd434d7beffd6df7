//! A term's epoch begins: what a witness has to add is executed, and everything goes to the new members (section 7, steps 3
//! to 5).

use kasha_log::{EntryKind, Purpose};
use kasha_machine::Effects;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{LocalPosition, LogEnd, Tick};
use kasha_wire::codec::Bytes;

use crate::node::options::Baseline;
use crate::primary::Stage;
use crate::primary::witnesses::{Asking, Took};
use crate::request::Replayed;
use crate::request::run::RequestPath;
use crate::shard::copy::LogCopy;
use crate::shard::site::Site;
use crate::shard::term::Term;

/// Everything so far goes to the committed set.
#[derive(Debug)]
pub(crate) struct Syncing {
    target: LogEnd,
    /// What was recovered is synced, and flushed here with this commit.
    flushed: Option<LocalPosition>,
}

impl Term {
    /// Once the log is whole and replayed, and our promise is on file.
    pub(super) fn end_replay(&mut self, site: &mut Site<'_>, now: Tick, out: &mut Effects) -> Option<Stage> {
        if !site.is_replayed() || site.core.local_durable < self.promise {
            return None;
        }
        if self.witnesses.is_empty() || planted::is_on(Bug::WitnessSkipped) {
            hit(Probe::NoWitnessToReplay);
            return self.begin_epoch(site, &[], Took::Remains, out);
        }
        let mut asking = Asking::default();
        let next = asking.advance(self, site, now, out);
        Some(next.unwrap_or(Stage::Witnessing(asking)))
    }

    /// It is known which log we go on with, and what a witness has to add: our epoch begins.
    pub(super) fn begin_epoch(
        &mut self,
        site: &mut Site<'_>,
        requests: &[Bytes],
        took: Took,
        out: &mut Effects,
    ) -> Option<Stage> {
        self.shipping.begin_epoch(site.copy.log.end().offset, site.copy.known_synced);
        let (at, start) = ((self.epoch, Purpose::Takeover), (EntryKind::EpochStart, 0));
        let Site { copy, state, core } = &mut *site;
        if state.commit_own(&mut copy.log, at, start, &mut core.scratch.dead, |_| ()).is_err() {
            site.copy.stop_for_memory(out);
            return None;
        }
        // What the log says of transactions is taken up before a witness adds to it (R8.10).
        let end = site.copy.log.end().offset;
        let dead = &mut site.core.scratch.dead;
        dead.clear();
        site.state.distributed.begin_serving(end, dead);
        if site.core.options.baseline == Baseline::TwoPhase {
            site.state.distributed.participant.leave_votes_to_clients();
        }
        site.copy.log.kill_all(dead);
        site.copy.log.keep_room(site.state.distributed.reserved());
        let target = match self.take(site, requests, took) {
            true => site.copy.log.end().offset,
            false => {
                site.copy.stop_for_memory(out);
                LogEnd::MAX
            }
        };
        Some(Stage::Syncing(Syncing { target, flushed: None }))
    }

    /// Executes what a witness held, and logs that this was everything. False: there is no room.
    fn take(&mut self, site: &mut Site<'_>, requests: &[Bytes], took: Took) -> bool {
        let took_everything = took == Took::Everything;
        if took_everything && planted::is_on(Bug::WholeBeforeReplay) && !log_whole(self, site) {
            return false;
        }
        // What finds no room may have been completed: it is never skipped.
        let is_taken = |request: &Bytes| match RequestPath::on_replay(self, site, &request.0) {
            Replayed::Completed | Replayed::Skipped => true,
            Replayed::NoRoom => false,
            Replayed::NotNow => unreachable!("R8.10: a new primary waits for nobody"),
        };
        if !requests.iter().all(is_taken) {
            return false;
        }
        // Behind the last request: a log that was cut short lacks the entry (R7.7).
        !took_everything || log_whole(self, site)
    }
}

/// Logs that this term took everything that was answered under its list. False: there is no room.
fn log_whole(term: &Term, site: &mut Site<'_>) -> bool {
    let Site { copy, state, core } = site;
    let (at, list) = ((term.epoch, Purpose::Takeover), term.list.0.to_le_bytes());
    let (entry, dead) = ((EntryKind::Whole, list.len()), &mut core.scratch.dead);
    state.commit_own(&mut copy.log, at, entry, dead, |payload| payload.copy_from_slice(&list)).is_ok()
}

impl Syncing {
    /// Whether our own file does not hold all of it yet.
    pub fn lacks_file(&self, copy: &LogCopy) -> bool {
        copy.held < self.target
    }

    /// What was recovered is synced: it is flushed here, with the mark that our log is whole, and then reported.
    pub fn advance(&mut self, term: &Term, site: &mut Site<'_>, out: &mut Effects) -> Option<Stage> {
        let Site { copy, core, .. } = site;
        let is_synced = term.shipping.synced() >= self.target;
        // A shard that never served has no other copies: its first members must all be complete before it does.
        let has_copies = !term.recover_from.is_empty() || term.shipping.all_copied();
        if !has_copies || !(is_synced || planted::is_on(Bug::ServedUnsynced)) {
            return None;
        }
        // What a witness held was answered long ago. Its file goes with the report, so under `replicated` ours must have
        // it on the disk, or a loss of power everywhere takes more than was told last (section 5).
        let commit = *self.flushed.get_or_insert_with(|| {
            copy.mark_whole(core, term.epoch, out);
            core.fsynced_commit()
        });
        let is_flushed = core.local_durable >= commit || planted::is_on(Bug::RecoveredUnflushed);
        if is_flushed {
            copy.fsynced_to(self.target);
        }
        is_flushed.then_some(Stage::Reporting)
    }
}
