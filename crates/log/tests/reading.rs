//! Reading a log in slices, and telling how much two of them have in common. Their histories against models:
//! `crates/properties`, `log_history` and `log_replicas`.

use crate::common::{SEGMENT, append, config, files};
use kasha_log::{Cursor, Log, Screen, common_prefix};
use kasha_types::{LogEnd, SegmentId};
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_replay_in_slices_sees_every_group_once(sizes in prop::collection::vec(1..900_usize, 1..60)) {
        let mut log = crate::common::new_log();
        for len in sizes {
            append(&mut log, 1, &[&vec![1; len]]);
        }
        let all: Vec<u64> = log.groups().map(|group| group.start).collect();
        let (mut cursor, mut seen) = (Cursor::START, Vec::new());
        while let Some(group) = log.next_group(&mut cursor) {
            seen.push(group.start);
        }
        prop_assert_eq!(&seen, &all);
        prop_assert_eq!(cursor.offset, log.end().offset);
        append(&mut log, 1, &[b"more"]);
        prop_assert!(log.next_group(&mut cursor).is_some());
    }
}

fn prefix(a: &Log, b: &Log) -> LogEnd {
    common_prefix(a.epoch_history(), a.end().offset, b.epoch_history(), b.end().offset)
}

#[test]
fn freed_segments_leave_the_common_prefix_as_it_is() {
    let (mut a, mut b) = (crate::common::new_log(), crate::common::new_log());
    let mut objects = Vec::new();
    for epoch in 1..=6 {
        while a.segments().count() < epoch as usize {
            objects.extend(append(&mut a, epoch, &[&[1; 500]]).1);
        }
    }
    for slice in a.pieces(LogEnd::START, a.end().offset, SEGMENT) {
        b.append_raw(a.slice(slice), Screen::NONE).unwrap();
    }
    let both = a.end().offset;
    append(&mut b, 6, &[b"only the deposed primary"]);
    for id in [1, 2, 3] {
        crate::common::let_go(&mut a, 7, SegmentId(id), &objects);
        a.free(SegmentId(id));
    }
    let (a, report) = Log::load(crate::common::SHARD, config(64), files(&a).into_iter());
    assert_eq!(report.damage, None);
    assert_eq!(a.epoch_history().len(), 7, "the epochs of freed segments are in the digest");
    assert_eq!(prefix(&a, &b), both);
    assert_eq!(prefix(&b, &a), both);
}
