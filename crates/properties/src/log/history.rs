//! The life of one replica, crashes included, compared with a list of objects.
//!
//! **D4**: a crash may leave any part of what was written since the last sync. Everything that was synced is kept.
//! Nothing is found that was not written. What is dropped silently is a torn tail, and no complete group is left behind
//! it.

use std::collections::BTreeSet;

use arbitrary::{Arbitrary, Result, Unstructured};
use kasha_log::{EntryKind, EntryOffset, LoadReport, Log, Purpose, entry_bytes};
use kasha_types::{Epoch, LogEnd, SegmentId};

use super::common::{SEGMENT, SHARD, append, config, entries, files};
use crate::damage::Burst;
use crate::draw;
use crate::property::Property;

const STEPS_MAX: usize = 250;

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<u16>),
    NewEpoch,
    Kill(u16),
    Sync,
    Free,
    Truncate(u8),
    /// The process stops, and what it wrote is on its files.
    Reload,
    Crash(Crash),
}

/// What becomes of the bytes behind the synced position. All of the other segments reached their files, or none of the
/// later ones.
#[derive(Clone, Debug, Arbitrary)]
struct Crash {
    /// Which of the segments with such bytes is not whole.
    segment: u8,
    later_lost: bool,
    /// Which byte is the first that did not reach its file, and what stands there instead.
    cut: u16,
    zeros_behind: bool,
    /// A page that did not, though a later one did.
    page: Option<(u16, u16)>,
    burst: Option<Burst>,
}

impl<'a> Arbitrary<'a> for Step {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(match draw::weighted(u, &[12, 1, 20, 2, 4, 1, 1, 2])? {
            0 => Self::Append((0..=draw::below(u, 3)?).map(|_| u.int_in_range(0..=600)).collect::<Result<_>>()?),
            1 => Self::NewEpoch,
            2 => Self::Kill(u.arbitrary()?),
            3 => Self::Sync,
            4 => Self::Free,
            5 => Self::Truncate(u.int_in_range(0..=5)?),
            6 => Self::Reload,
            _ => Self::Crash(u.arbitrary()?),
        })
    }
}

/// An object as the model knows it.
#[derive(Clone, Debug)]
struct Object {
    at: EntryOffset,
    payload: Vec<u8>,
    group_end: LogEnd,
    dead: bool,
}

struct Model {
    log: Log,
    epoch: u32,
    objects: Vec<Object>,
    made: u8,
    synced: LogEnd,
    /// Segments of which the log said that they are freed.
    let_go: BTreeSet<SegmentId>,
}

impl Model {
    fn step(&mut self, step: &Step) {
        match step {
            Step::Append(lens) => {
                let payloads: Vec<Vec<u8>> = lens.iter().map(|&len| vec![self.made; usize::from(len)]).collect();
                self.made = self.made.wrapping_add(1);
                let borrowed: Vec<_> = payloads.iter().map(Vec::as_slice).collect();
                let (appended, at) = append(&mut self.log, self.epoch, &borrowed);
                let group_end = appended.end.offset;
                let fresh = at.into_iter().zip(payloads);
                self.objects.extend(fresh.map(|(at, payload)| Object { at, payload, group_end, dead: false }));
            }
            Step::NewEpoch => {
                self.epoch += 1;
                let mut group = self.log.begin(Epoch(self.epoch), entry_bytes(4), Purpose::Freeing).expect("memory");
                group.entry(EntryKind::EpochStart, 4).1.fill(1);
                group.commit();
            }
            Step::Kill(which) if !self.objects.is_empty() => {
                // One of the oldest, so that segments empty.
                let which = usize::from(*which) % self.objects.len().min(20);
                let object = &mut self.objects[which];
                if !std::mem::replace(&mut object.dead, true) {
                    self.log.kill(object.at);
                }
            }
            Step::Kill(_) => {}
            Step::Sync => self.synced = self.log.end().offset,
            Step::Free => self.free(),
            Step::Truncate(groups) => self.truncate(usize::from(*groups)),
            Step::Reload => {
                let (log, report) = Log::load(SHARD, config(100), files(&self.log).into_iter());
                assert_eq!((report.damage, report.torn_bytes, report.valid_end), (None, 0, self.log.end()));
                assert_eq!(log.epoch_history(), self.log.epoch_history());
                let synced = self.synced; // that this process stopped says nothing of the other members
                self.adopt(log, &report);
                self.synced = synced;
            }
            Step::Crash(crash) => self.crash(crash),
        }
    }

    fn truncate(&mut self, groups: usize) {
        let unsynced = self.log.groups_from(self.synced).map(|group| group.end);
        let mut ends: Vec<_> = [self.synced].into_iter().chain(unsynced).collect();
        ends.truncate(ends.len().saturating_sub(groups).max(1));
        let Some(&end) = ends.last() else { return };
        let before = self.log.end().offset;
        self.log.truncate(end).expect("the end of a group");
        self.objects.retain(|object| object.group_end <= end);
        let absent = self.log.absent();
        assert!(absent.is_empty(), "an unsynced entry that freed {absent:?} is cut off, and they are gone (section 5)");
        if end < before {
            self.kill_again();
        }
    }

    fn crash(&mut self, crash: &Crash) {
        let groups: Vec<(u64, u64)> = self.log.groups().map(|group| (group.start, group.end.0)).collect();
        let (whole, mut left) = (files(&self.log), files(&self.log));
        let base = |id: SegmentId| u64::from(id.0) * u64::from(SEGMENT);
        let synced = left.partition_point(|(id, file)| base(*id) + file.len() as u64 <= self.synced.0);
        if synced == left.len() {
            return;
        }
        let spoiled = synced + usize::from(crash.segment) % (left.len() - synced);
        let (id, file) = &mut left[spoiled];
        let from = usize::try_from(self.synced.0.saturating_sub(base(*id))).expect("within a segment");
        let tail = spoil(file.split_off(from), crash);
        file.extend(tail);
        let same = file.iter().zip(&whole[spoiled].1).take_while(|(now, then)| now == then).count();
        let hit = base(*id) + same as u64;
        if crash.later_lost {
            left.truncate(spoiled + 1);
        }
        let is_whole = |&(start, end): &(u64, u64)| {
            let segment = whole.iter().position(|(id, _)| *id == self.log.segment_at(start)).expect("its segment");
            let at = |offset: u64| usize::try_from(offset - base(whole[segment].0)).expect("within a segment");
            left.get(segment)
                .is_some_and(|(_, file)| file.get(at(start)..at(end)) == whole[segment].1.get(at(start)..at(end)))
        };
        let resumes = groups.iter().any(|group| group.0 > hit && is_whole(group));
        let lost_nothing = groups.iter().all(is_whole);

        let (log, report) = Log::load(SHARD, config(100), left.clone().into_iter());
        let end = report.valid_end.offset.0;
        assert_eq!(log.end(), report.valid_end);
        let last = |below: u64| groups.iter().map(|group| group.1).filter(|end| *end <= below).max().unwrap_or(0);
        assert!(end >= last(self.synced.0), "D4: synced, and lost: {report:?}");
        assert!(end >= last(hit), "D4: nothing but a torn tail is dropped: {report:?}");
        assert!(lost_nothing || end <= hit, "a group that is not whole is kept: {report:?}");
        assert!(
            report.damage.is_some() || !resumes || lost_nothing,
            "D4: whole groups dropped without a word: {report:?}"
        );
        assert!(report.damage.is_none() || resumes || crash.burst.is_some(), "a torn tail is no damage: {report:?}");
        assert!(log.absent().is_empty(), "a crash leaves a log that can be led: {:?} absent, {report:?}", log.absent());
        self.adopt(log, &report);
    }

    /// Goes on with what a load found.
    fn adopt(&mut self, log: Log, report: &LoadReport) {
        let held = entries(&self.log);
        self.log = log;
        self.synced = self.log.end().offset;
        // A segment that is let go goes, if its file is not as it should be; after damage none is called useless.
        let is_let_go = |id: SegmentId| {
            report.useless.contains(&id)
                || report.damage.is_some() && self.let_go.contains(&id) && !self.log.segments().any(|held| held.0 == id)
        };
        let is_gone = |at| !self.synced.covers(at) || is_let_go(self.log.segment_of(at));
        assert!(held.iter().filter(|entry| !is_gone(EntryOffset(entry.0))).cloned().eq(entries(&self.log)));
        self.objects.retain(|object| !is_gone(object.at));
        self.epoch = self.epoch.max(self.log.end().epoch.0);
        self.kill_again();
    }

    fn kill_again(&mut self) {
        self.objects.iter().filter(|object| object.dead).for_each(|object| self.log.kill(object.at));
    }

    fn free(&mut self) {
        self.log.bury();
        self.synced = self.log.end().offset;
        if let Some(id) = self.log.freeable(self.synced) {
            assert!(self.objects.iter().all(|object| object.dead || self.log.segment_of(object.at) != id));
            let mut group = self.log.begin(Epoch(self.epoch), entry_bytes(4), Purpose::Freeing).expect("the reserve");
            group.segment_freed(id);
            group.commit();
            self.let_go.insert(id);
        }
        if let Some(id) = self.log.retired(self.synced) {
            self.log.free(id);
            self.objects.retain(|object| self.log.segment_of(object.at) != id);
        }
    }

    fn check(&self) {
        let held = entries(&self.log);
        let objects = held.iter().filter(|(_, kind, _)| *kind == EntryKind::Object);
        let model = self.objects.iter().map(|object| (object.at.0, EntryKind::Object, object.payload.clone()));
        assert!(objects.cloned().eq(model));
        let live: usize = self.objects.iter().filter(|o| !o.dead).map(|o| entry_bytes(o.payload.len())).sum();
        let own: usize = held.iter().filter(|e| e.1 != EntryKind::Object).map(|e| entry_bytes(e.2.len())).sum();
        let counted = usize::try_from(self.log.live_bytes()).expect("a small log");
        assert!((live..=live + own).contains(&counted), "{live} + {own}: {counted}");
    }
}

/// What a crash leaves of bytes that were written and not synced.
fn spoil(mut tail: Vec<u8>, crash: &Crash) -> Vec<u8> {
    let len = tail.len();
    let cut = usize::from(crash.cut) % (len + 1);
    tail.truncate(cut);
    if let Some((at, zeros)) = crash.page {
        let at = usize::from(at) % (cut + 1);
        tail[at..cut.min(at + usize::from(zeros))].fill(0);
    }
    if let Some(burst) = crash.burst {
        burst.apply(&mut tail);
    }
    if crash.zeros_behind {
        tail.resize(len, 0);
    }
    tail
}

/// See the module.
#[derive(Debug)]
pub struct LogHistory(Vec<Step>);

impl<'a> Arbitrary<'a> for LogHistory {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        draw::until_empty(u, STEPS_MAX).map(Self)
    }
}

impl Property for LogHistory {
    const NAME: &'static str = "log_history";
    const INPUT_BYTES_MAX: usize = 900;

    fn hold(self) {
        let log = Log::new(SHARD, config(100));
        let mut model =
            Model { log, epoch: 1, objects: Vec::new(), made: 0, synced: LogEnd::START, let_go: BTreeSet::new() };
        for step in &self.0 {
            model.step(step);
            model.check();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by the simulator: the process stopped when the log said that a segment is freed, and nobody had heard of it.
    #[test]
    fn what_is_freed_and_unsynced_lives_again() {
        let mut steps: Vec<Step> = (0..20).map(|_| Step::Append(vec![600])).collect();
        steps.extend((0..8).map(Step::Kill));
        steps.extend([Step::Free, Step::Reload, Step::Truncate(1), Step::Reload, Step::Append(vec![600])]);
        LogHistory(steps).hold();
    }
}
