//! Flushed in time (section 5, "what survives what"): under `replicated` durability, whenever every machine loses
//! power, nothing that waits for an fsync is older than the flush interval and one fsync.
//!
//! What was answered before that was on the platters of all members that hold it, so it must survive. What was answered
//! later may be lost, with all its effects. [`weakened`] takes the later answers back from a history, so that the
//! checkers of results hold the cluster to everything else that was told.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use kasha_machine::FileName;

use crate::clock::{SimTime, millis};
use crate::configurations::Cores;
use crate::disk::Mark;
use crate::history::{Action, History, Told};
use crate::network::ProcessId;
use crate::probes::Probes;
use crate::world::{View, Watch};

/// Slack for turns that come late, and clocks that run slowly.
pub const SLACK: u64 = millis(5);

/// A client may have received an answer, and handle it this much later.
const HEARD_LATE: u64 = millis(10);
/// A client makes an outcome of answers of several shards, of which one may come this much earlier than the last.
const ANSWERS_APART_MAX: u64 = millis(1_000);

/// The moments at which every machine lost power; shared with the run.
pub type Blackouts = Rc<RefCell<Vec<SimTime>>>;

/// Watches the files of cores.
pub struct FlushedInTime {
    cores: Cores,
    age_max: u64,
    blackouts: Blackouts,
    /// The changes of each process, by the count of its disk after the turn; oldest first.
    changed: BTreeMap<ProcessId, VecDeque<(Mark, SimTime)>>,
    violations: Vec<String>,
    oldest: u64,
    unsynced: u64,
}

impl FlushedInTime {
    /// Watches these cores: `age_max` is the flush interval and the longest fsync, in nanoseconds.
    #[must_use]
    pub fn new(cores: Cores, age_max: u64, blackouts: Blackouts) -> Self {
        let (changed, violations) = (BTreeMap::new(), Vec::new());
        Self { cores, age_max, blackouts, changed, violations, oldest: 0, unsynced: 0 }
    }

    fn note(&mut self, process: ProcessId, mark: Mark, covered: Mark, now: SimTime) {
        let changed = self.changed.entry(process).or_default();
        while changed.front().is_some_and(|(mark, _)| *mark <= covered) {
            changed.pop_front();
        }
        if mark > covered && changed.back().is_none_or(|(last, _)| *last < mark) {
            changed.push_back((mark, now));
        }
    }

    fn judge(&mut self, process: ProcessId, covered: Mark, now: SimTime) {
        let changed = self.changed.get(&process).into_iter().flatten();
        let Some(&(_, at)) = changed.clone().find(|(mark, _)| *mark > covered) else { return };
        self.unsynced += 1;
        let age = now.0 - at.0;
        self.oldest = self.oldest.max(age);
        if age > self.age_max {
            let core = self.cores.core(process);
            self.violations.push(format!(
                "flushed_in_time: {core:?} loses its power with changes of its files that have waited {} ms for an fsync; \
                 at most {} ms are promised (section 5)",
                age / millis(1),
                self.age_max / millis(1)
            ));
        }
    }
}

impl Watch for FlushedInTime {
    fn wrote(&mut self, by: ProcessId, _file: FileName, _offset: u64, len: usize, view: &View<'_>) {
        // A change that is not a write is fsynced before anybody learns of it (R5.3), or is done again by the next
        // start.
        if len > 0 && self.cores.core(by).is_some() {
            let disk = &view.processes[by.0].disk;
            self.note(by, disk.mark(), disk.covered(), view.now);
        }
    }

    fn blackout(&mut self, view: &View<'_>) {
        self.blackouts.borrow_mut().push(view.now);
        let cores: Vec<ProcessId> = self.cores.iter().map(|(process, _)| process).collect();
        // A process that is dead flushes nothing: it is one of those that may fail.
        for process in cores.into_iter().filter(|process| view.processes[process.0].is_running()) {
            self.judge(process, view.processes[process.0].disk.covered(), view.now);
        }
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("blackouts with something unsynced", self.unsynced);
        probes.add("blackouts: longest wait for an fsync (ms, summed)", self.oldest / millis(1));
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// The history without what was told within `age_max` before a blackout: such an update may have happened or not, and
/// the value that a read saw may be gone. Everything that the coordinator tells is fsynced.
#[must_use]
pub fn weakened(history: &History, blackouts: &[SimTime], age_max: u64) -> History {
    let mut weak = history.clone();
    weak.untell(|operation| {
        let of_table = matches!(operation.action, Action::CreateTable(_) | Action::DropTable(_));
        let late = match operation.has_several_slots() {
            true => HEARD_LATE + ANSWERS_APART_MAX,
            false => HEARD_LATE,
        };
        let within = |told_at: SimTime| {
            blackouts
                .iter()
                .any(|at| operation.asked <= *at && told_at.after(age_max) >= *at && told_at <= at.after(late))
        };
        if of_table || !operation.told_at.is_some_and(within) {
            return None;
        }
        Some(if operation.action.is_read() { Told::NotExecuted } else { Told::Unknown })
    });
    weak
}

#[cfg(test)]
mod tests {
    use kasha_wire::outcome::Outcome;

    use super::*;
    use crate::checkers::records::tests::three_cores;
    use crate::disk::SimDisk;

    const FILE: FileName = FileName::Replica(kasha_types::ShardId(1));

    #[test]
    fn what_waits_too_long_is_found() {
        let mut watch = FlushedInTime::new(three_cores(), 100, Blackouts::default());
        let (mut disk, one) = (SimDisk::new(), ProcessId(1));
        disk.write(FILE, 0, b"first");
        watch.note(one, disk.mark(), disk.covered(), SimTime(0));
        let flush = disk.mark();
        disk.write(FILE, 5, b"second");
        watch.note(one, disk.mark(), disk.covered(), SimTime(80));
        watch.judge(one, disk.covered(), SimTime(100));
        assert_eq!(watch.take_violations(), Vec::<String>::new());
        watch.judge(one, disk.covered(), SimTime(101));
        assert_eq!(watch.take_violations().len(), 1);
        disk.synced(flush);
        watch.judge(one, disk.covered(), SimTime(180));
        assert_eq!(watch.take_violations(), Vec::<String>::new(), "the second is young enough");
    }

    #[test]
    fn only_what_was_told_shortly_before_is_taken_back() {
        let mut history = History::default();
        let mut told = |action: Action, asked, at| {
            let id = history.ask(0, action, None, SimTime(asked));
            let outcome = Outcome::Version(1);
            history.tell(id, Told::Executed { outcome, bytes: Vec::new() }, SimTime(at)).expect("told once");
            id
        };
        let put = || Action::put(b"k", b"v");
        let (early, late, read) = (told(put(), 0, 10), told(put(), 11, 95), told(Action::get(b"k"), 96, 97));
        let after = told(put(), 101, 102);
        let weak = weakened(&history, &[SimTime(100)], 20);
        assert_eq!(weak.operation(early).told, history.operation(early).told);
        assert_eq!((&weak.operation(late).told, weak.operation(late).told_at), (&Told::Unknown, None));
        assert_eq!(weak.operation(read).told, Told::NotExecuted);
        assert_eq!(weak.operation(after).told, history.operation(after).told);
    }
}
