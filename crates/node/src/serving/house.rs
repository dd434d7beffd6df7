//! What a serving primary does now and then: it frees segments, drops tombstones that are needed no more, expires operation
//! keys and values, and drops tables that the configuration no longer has.

use std::collections::BTreeSet;
use std::time::Duration;

use kasha_log::{EntryKind, Purpose};
use kasha_machine::Effects;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{LogEnd, SegmentId, Tick, Work};

use crate::serving::Serving;
use crate::shard::operation_keys;
use crate::shard::site::Site;
use crate::shard::term::Term;

/// Segments that a turn says are freed.
const FREED_WORDS_PER_TURN: usize = 8;
/// Tombstones that a turn looks at or forgets.
const GRAVES_PER_TURN: usize = 256;

/// When, and what there is to do.
#[derive(Debug)]
pub(super) struct House {
    due_at: Tick,
    /// Segments were freed, or one was filled: some tombstones may be needed no more.
    graves_due: bool,
    /// The segment that was being filled at the last time.
    filling: SegmentId,
}

impl Default for House {
    fn default() -> Self {
        Self { due_at: Tick(0), graves_due: true, filling: SegmentId(0) }
    }
}

impl House {
    pub fn due_at(&self) -> Tick {
        self.due_at
    }

    /// Whether it is time. The next time is so much later.
    pub fn is_due(&mut self, now: Tick, interval: Duration) -> bool {
        let is_due = now >= self.due_at;
        if is_due {
            self.due_at = now.after(interval);
        }
        is_due
    }

    /// Segments without a live byte are freed here, and, when the word of it is synced, everywhere (section 5).
    fn free_segments(&mut self, term: &Term, site: &mut Site<'_>, synced: LogEnd) {
        let synced = if planted::is_on(Bug::FreedBeforeSynced) { LogEnd::MAX } else { synced };
        site.copy.known_synced = site.copy.known_synced.max(synced);
        let retired = site.copy.log.retired(synced).is_some();
        site.free_retired(synced);
        let Site { copy, state, core } = site;
        let log = &mut copy.log;
        let filling = log.segment_behind(log.end().offset);
        let filled = std::mem::replace(&mut self.filling, filling) != filling;
        self.graves_due |= retired || filled;
        for _ in 0..FREED_WORDS_PER_TURN {
            let Some(segment) = log.freeable(synced) else { return };
            if state.commit_freed(log, term.epoch, segment, &mut core.scratch.dead).is_err() {
                return;
            }
        }
    }

    fn wanted_version_floor(&self, site: &Site<'_>) -> Option<u64> {
        self.graves_due.then(|| site.state.store.wanted_version_floor()).flatten()
    }

    /// For tombstones that name only segments that are gone: a version floor takes over, and whoever is told a version that
    /// it decides waits for its entry, whose end is returned (R4.8).
    fn raise_version_floor(&mut self, term: &mut Term, site: &mut Site<'_>) -> Option<LogEnd> {
        let floor = self.wanted_version_floor(site)?;
        self.graves_due = false;
        let Site { copy, state, core } = site;
        let (entry, dead) = ((EntryKind::VersionFloor, 8), &mut core.scratch.dead);
        let fill = |payload: &mut [u8]| payload.copy_from_slice(&floor.to_le_bytes());
        let end = state.commit_own(&mut copy.log, (term.epoch, Purpose::Own), entry, dead, fill).ok()?;
        term.shipping.want_synced(end); // before somebody waits for it
        hit(Probe::VersionFloor);
        Some(end)
    }
}

/// Goes on with a dropped table, or with tombstones whose segments are gone.
fn tidy_up(site: &mut Site<'_>) {
    if site.state.has_unfinished() {
        site.go_on();
    } else if site.state.store.has_graves_to_tend() {
        let Site { copy, state, core } = site;
        core.work.add(Work::Graves);
        let dead = &mut core.scratch.dead;
        dead.clear();
        state.store.tend_graves(&copy.log, GRAVES_PER_TURN, |at| dead.push(at));
        copy.log.kill_all(dead);
    }
}

impl Serving {
    /// What every turn does a part of.
    pub(super) fn tidy_up(&mut self, term: &Term, site: &mut Site<'_>) {
        let synced = term.shipping.synced();
        self.house.free_segments(term, site, synced);
        // The cleaner waits for it (R5.11).
        self.leases.settle_floor(site, synced);
        self.expire_operation_keys(term, site);
        self.expiry.go_on(term, site, &mut self.conflicts);
        tidy_up(site);
    }

    pub(super) fn keep_house(&mut self, term: &mut Term, site: &mut Site<'_>, out: &mut Effects) {
        let is_wanted = self.house.wanted_version_floor(site).is_some();
        if self.distributed.lets_floor_rise(&site.state.distributed, is_wanted)
            && let Some(end) = self.house.raise_version_floor(term, site)
        {
            self.conflicts.raise_version_floor(end);
        }
        self.drop_tables(term, site);
        self.leases.ask(term, site, out);
    }

    fn expire_operation_keys(&mut self, term: &Term, site: &mut Site<'_>) {
        let (log, dead) = (&mut site.copy.log, &mut site.core.scratch.dead);
        let now = site.core.cluster_time;
        if let Some(end) = operation_keys::drop_some_expired(log, site.state, term.epoch, now, dead) {
            self.conflicts.drop_operation_keys(end);
        }
    }

    /// Tables that the configuration no longer has: what they held goes, and until that is synced everything overlaps
    /// with it (R5.1).
    pub fn drop_tables(&mut self, term: &Term, site: &mut Site<'_>) {
        let Site { copy, state, core } = site;
        let Some(configuration) = core.configuration.clone() else { return };
        let gone: Vec<_> = (state.store.tables())
            .filter(|&table| !configuration.has_table(table))
            .filter(|&table| !state.is_dropping(table))
            .collect();
        if gone.is_empty() {
            return;
        }
        // What is pending was checked against what its tables hold, and comes to the same when it is executed. No later one can
        // name the table, so the drop comes soon.
        let pending = match planted::is_on(Bug::DroppedUnderPending) {
            true => BTreeSet::new(),
            false => state.distributed.pending_tables(&copy.log),
        };
        for table in gone.into_iter().filter(|table| !pending.contains(table)) {
            let (entry, dead) = ((EntryKind::TableDropped, 4), &mut core.scratch.dead);
            let fill = |payload: &mut [u8]| payload.copy_from_slice(&table.0.to_le_bytes());
            let at = (term.epoch, Purpose::Own);
            let Ok(end) = state.commit_own(&mut copy.log, at, entry, dead, fill) else { return };
            hit(Probe::TableDropped);
            self.conflicts.change_everything(end);
        }
    }
}
