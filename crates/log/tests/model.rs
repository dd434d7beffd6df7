//! Logs against simple models: one replica through all it can go through, and several that diverge.

mod common;

use common::{SEGMENT, SHARD, append, config, entries, files};
use kasha_log::{Cursor, EntryKind, EntryOffset, Log, Purpose, Screen, common_prefix, entry_bytes};
use kasha_types::{Epoch, SegmentId};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<u16>),
    NewEpoch,
    Kill(usize),
    Free,
    Truncate(usize),
    Reload,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => prop::collection::vec(0..600_u16, 1..4).prop_map(Step::Append),
        1 => Just(Step::NewEpoch),
        20 => any::<usize>().prop_map(Step::Kill),
        4 => Just(Step::Free),
        1 => (0..6_usize).prop_map(Step::Truncate),
        1 => Just(Step::Reload),
    ]
}

/// An object as the model knows it.
#[derive(Clone, Debug)]
struct Object {
    at: EntryOffset,
    payload: Vec<u8>,
    group_end: u64,
    dead: bool,
}

struct Model {
    log: Log,
    epoch: u32,
    objects: Vec<Object>,
    made: u8,
    synced: u64,
}

impl Model {
    fn step(&mut self, step: Step) {
        match step {
            Step::Append(lens) => {
                let payloads: Vec<Vec<u8>> = lens.iter().map(|&len| vec![self.made; usize::from(len)]).collect();
                self.made = self.made.wrapping_add(1);
                let (appended, at) =
                    append(&mut self.log, self.epoch, &payloads.iter().map(Vec::as_slice).collect::<Vec<_>>());
                let group_end = appended.end.offset;
                let fresh = at.into_iter().zip(payloads);
                self.objects.extend(fresh.map(|(at, payload)| Object { at, payload, group_end, dead: false }));
            }
            Step::NewEpoch => {
                self.epoch += 1;
                let mut group = self.log.begin(Epoch(self.epoch), entry_bytes(4), Purpose::Freeing).unwrap();
                group.entry(EntryKind::EpochStart, 4).1.fill(1);
                group.commit();
            }
            Step::Kill(which) if !self.objects.is_empty() => {
                let which = which % self.objects.len().min(20); // the oldest, so that segments empty
                let object = &mut self.objects[which];
                if !std::mem::replace(&mut object.dead, true) {
                    self.log.kill(object.at);
                }
            }
            Step::Kill(_) => {}
            Step::Free => self.free(),
            Step::Truncate(groups) => {
                let mut ends: Vec<u64> = self.log.groups_from(self.synced).map(|group| group.end).collect();
                ends.truncate(ends.len().saturating_sub(groups).max(1));
                let Some(&end) = ends.last() else { return };
                let before = self.log.end().offset;
                self.log.truncate(end).unwrap();
                self.objects.retain(|object| object.group_end <= end);
                if end < before {
                    self.kill_again();
                }
            }
            Step::Reload => {
                let held = entries(&self.log);
                let (log, report) = Log::load(SHARD, config(100), files(&self.log).into_iter());
                assert_eq!((report.damage, report.torn_bytes, report.valid_end), (None, 0, self.log.end()));
                assert_eq!(log.epoch_history(), self.log.epoch_history());
                self.log = log;
                self.synced = self.log.end().offset;
                let retired = |held: &(u64, EntryKind, Vec<u8>)| report.useless.contains(&self.log.segment_of(held.0));
                assert!(held.iter().filter(|held| !retired(held)).cloned().eq(entries(&self.log)));
                self.objects.retain(|object| !report.useless.contains(&self.log.segment_of(object.at.0)));
                self.kill_again();
            }
        }
    }

    fn kill_again(&mut self) {
        self.objects.iter().filter(|object| object.dead).for_each(|object| self.log.kill(object.at));
    }

    fn free(&mut self) {
        self.log.bury();
        self.synced = self.log.end().offset;
        if let Some(id) = self.log.freeable(self.synced) {
            assert!(self.objects.iter().all(|object| object.dead || self.log.segment_of(object.at.0) != id));
            let mut group = self.log.begin(Epoch(self.epoch), entry_bytes(4), Purpose::Freeing).unwrap();
            group.segment_freed(id);
            group.commit();
        }
        if let Some(id) = self.log.retired(self.synced) {
            self.log.free(id);
            self.objects.retain(|object| self.log.segment_of(object.at.0) != id);
        }
    }

    fn check(&self) {
        let objects = entries(&self.log).into_iter().filter(|(_, kind, _)| *kind == EntryKind::Object);
        let model = self.objects.iter().map(|object| (object.at.0, EntryKind::Object, object.payload.clone()));
        assert!(objects.eq(model));
        let live: usize = self.objects.iter().filter(|o| !o.dead).map(|o| entry_bytes(o.payload.len())).sum();
        let own: usize =
            entries(&self.log).iter().filter(|e| e.1 != EntryKind::Object).map(|e| entry_bytes(e.2.len())).sum();
        let counted = self.log.live_bytes() as usize;
        assert!((live..=live + own).contains(&counted), "{live} + {own}: {counted}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_log_behaves_as_a_list(steps in prop::collection::vec(step(), 1..250)) {
        let mut model = Model { log: Log::new(SHARD, config(100)), epoch: 1, objects: Vec::new(), made: 0, synced: 0 };
        for step in steps {
            model.step(step);
            model.check();
        }
    }

    #[test]
    fn a_replay_in_slices_sees_every_group_once(sizes in prop::collection::vec(1..900_usize, 1..60)) {
        let mut log = common::new_log();
        for len in sizes {
            append(&mut log, 1, &[&vec![1; len]]);
        }
        let all: Vec<u64> = log.groups_from(0).map(|group| group.start).collect();
        let (mut cursor, mut seen) = (Cursor { offset: 0 }, Vec::new());
        while let Some(group) = log.next_group(&mut cursor) {
            seen.push(group.start);
        }
        prop_assert_eq!(&seen, &all);
        prop_assert_eq!(cursor.offset, log.end().offset);
        append(&mut log, 1, &[b"more"]);
        prop_assert!(log.next_group(&mut cursor).is_some());
    }

    /// Replicas take over from each other, lag, diverge and are made equal; the common prefix by histories is the one
    /// by bytes.
    #[test]
    fn the_common_prefix_is_that_of_the_bytes(
        steps in prop::collection::vec((0..4_u8, 0..3_usize, 0..3_usize, 0..1500_usize), 1..60),
    ) {
        let mut replicas: Vec<Log> = (0..3).map(|_| Log::new(SHARD, config(100))).collect();
        let (mut epoch, mut primary) = (0, None);
        for (kind, one, other, len) in steps {
            match (kind, primary) {
                (0, _) => {
                    (epoch, primary) = (epoch + 1, Some(one));
                    append(&mut replicas[one], epoch, &[&[1]]);
                }
                (1 | 2, Some(primary)) => drop(append(&mut replicas[primary], epoch, &[&vec![1; len]])),
                (3, Some(primary)) if other != primary => {
                    let common = prefix(&replicas[primary], &replicas[other]);
                    replicas[other].truncate(common).unwrap();
                    let (from, to) = if primary < other {
                        let (left, right) = replicas.split_at_mut(other);
                        (&left[primary], &mut right[0])
                    } else {
                        let (left, right) = replicas.split_at_mut(primary);
                        (&right[0], &mut left[other])
                    };
                    let pieces: Vec<_> = from.pieces(common, from.end().offset, 1 + len as u32).collect();
                    for slice in pieces.iter().take(1 + len % 7) {
                        to.append_raw(from.slice(*slice), Screen::NONE).unwrap();
                    }
                }
                _ => {}
            }
            for a in &replicas {
                for b in &replicas {
                    prop_assert_eq!(prefix(a, b), common_by_bytes(a, b));
                }
            }
        }
    }
}

fn prefix(a: &Log, b: &Log) -> u64 {
    common_prefix(a.epoch_history(), a.end().offset, b.epoch_history(), b.end().offset)
}

fn common_by_bytes(a: &Log, b: &Log) -> u64 {
    let bytes = |log: &Log, start: u64, end: u64| log.bytes(start, (end - start) as u32).to_vec();
    let groups = |log: &Log| log.groups_from(0).map(|group| (group.start, group.end)).collect::<Vec<_>>();
    let pairs = groups(a).into_iter().zip(groups(b));
    let same = pairs.take_while(|(x, y)| x == y && bytes(a, x.0, x.1) == bytes(b, y.0, y.1));
    same.last().map_or(0, |(group, _)| group.1)
}

#[test]
fn freed_segments_leave_the_common_prefix_as_it_is() {
    let (mut a, mut b) = (common::new_log(), common::new_log());
    let mut objects = Vec::new();
    for epoch in 1..=6 {
        while a.segments().count() < epoch as usize {
            objects.extend(append(&mut a, epoch, &[&[1; 500]]).1);
        }
    }
    for slice in a.pieces(0, a.end().offset, SEGMENT) {
        b.append_raw(a.slice(slice), Screen::NONE).unwrap();
    }
    let both = a.end().offset;
    append(&mut b, 6, &[b"only the deposed primary"]);
    for id in [1, 2, 3] {
        common::let_go(&mut a, 7, SegmentId(id), &objects);
        a.free(SegmentId(id));
    }
    let (a, report) = Log::load(SHARD, config(64), files(&a).into_iter());
    assert_eq!(report.damage, None);
    assert_eq!(a.epoch_history().len(), 7, "the epochs of freed segments are in the digest");
    assert_eq!(prefix(&a, &b), both);
    assert_eq!(prefix(&b, &a), both);
}
