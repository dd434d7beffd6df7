//! Which logs surely hold every update that was answered, so that no witness is needed (R7.7).
//!
//! A backup's log holds what was synced. What was answered on the fast path and not synced is on the witnesses and in the
//! log of the primary that answered. So two kinds of log are *whole*:
//!
//! - **The log of the primary that served last**, if its marks say `whole = e` for the term `e` that served last. A fast
//!   answer waits for the primary's own file. The mark is fsynced before the term is reported recovered, and cleared, fsynced,
//!   before anything of that term or of an earlier one is cut. Damage, a torn end and, under `replicated`, a loss of power
//!   clear the mark too.
//! - **A log with a `Whole` entry for the current list**. A term that took a whole log, or replayed one sure witness to
//!   its end, logs the entry behind the last replayed request. If that term never serves, its log still is whole for the
//!   next one.
//!
//! The election also counts a log that goes on where a whole one ends. Who calls: `primary` and `backup`.

use kasha_log::EntryKind;
use kasha_machine::Effects;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{Epoch, ListVersion, LogEnd, NodeId};
use kasha_wire::Served;

use crate::core::Core;
use crate::shard::copy::LogCopy;

impl LogCopy {
    /// Whether our log surely holds every update that was answered, given the term that served last and the current list.
    pub fn is_whole(&self, node: NodeId, served: Option<Served>, list: ListVersion) -> bool {
        let Some(served) = served else { return false };
        let served_here = served.primary == node && served.epoch == self.meta.whole;
        served_here || self.took_everything_under(list, served.epoch)
    }

    /// Whether a term after the one that served last logged that it took everything answered under this list. Such terms
    /// have not served, so what they wrote is short.
    fn took_everything_under(&self, list: ListVersion, served: Epoch) -> bool {
        let later = self.log.epoch_history().iter().find(|(epoch, _)| *epoch > served);
        later.is_some_and(|&(_, from)| {
            let mut entries = self.log.groups_from(from).flat_map(|group| group.entries);
            entries.any(|(_, entry)| entry.kind == EntryKind::Whole && entry.payload == list.0.to_le_bytes())
        })
    }

    /// The term that we lead is about to be reported recovered. Durable with an fsynced commit of this turn.
    pub fn mark_whole(&mut self, core: &mut Core, epoch: Epoch, out: &mut Effects) {
        self.meta.whole = epoch;
        self.save_meta(core, out);
    }

    /// The log is about to be cut at `end`: what the mark speaks of may go. The marks say so first.
    pub fn unmark_whole(&mut self, core: &mut Core, end: LogEnd, out: &mut Effects) {
        let marked = self.meta.whole;
        if marked == Epoch(0) || planted::is_on(Bug::MarkKeptByCut) {
            return;
        }
        let later = self.log.epoch_history().iter().find(|(epoch, _)| *epoch > marked);
        if end < later.map_or(self.log.end().offset, |&(_, from)| from) {
            hit(Probe::WholeUnmarked);
            self.meta.whole = Epoch(0);
            self.save_meta(core, out);
        }
    }
}
