//! D4: a torn tail is dropped, and nothing else unreported. Files in any state: `crates/properties`, `log_files`.

use crate::common::{SEGMENT, SHARD, append, config, entries, files, fill, let_go, new_log};
use kasha_log::{DamageKind, EntryKind, GroupFault, LoadReport, Log, Purpose, entry_bytes};
use kasha_types::{Epoch, LogEnd, SegmentId};

type Files = Vec<(SegmentId, Vec<u8>)>;

fn load(files: Files) -> (Log, LoadReport) {
    Log::load(SHARD, config(64), files.into_iter())
}

/// Three segments; and the same with a hole where the second of four was freed.
fn samples() -> [Log; 2] {
    let mut whole = new_log();
    fill(&mut whole, 1, 3);
    append(&mut whole, 2, &[b"in two", b"entries"]);
    let mut holed = new_log();
    let objects = fill(&mut holed, 1, 4);
    let_go(&mut holed, 1, SegmentId(1), &objects);
    holed.free(SegmentId(1));
    append(&mut holed, 2, &[b"the last"]);
    [whole, holed]
}

#[test]
fn a_whole_log_comes_back() {
    for log in samples() {
        let (loaded, report) = load(files(&log));
        assert_eq!((report.damage, report.torn_bytes, report.useless.len()), (None, 0, 0));
        assert_eq!(report.valid_end, log.end());
        assert_eq!(entries(&loaded), entries(&log));
        assert_eq!(loaded.epoch_history(), log.epoch_history());
    }
}

#[test]
fn a_torn_tail_is_dropped_at_every_byte() {
    for log in samples() {
        let last = log.groups().last().unwrap();
        let whole = files(&log);
        let base = u64::from(whole.last().unwrap().0.0) * u64::from(SEGMENT);
        let (from, to) = ((last.start - base) as usize, (last.end.0 - base) as usize);
        for cut in from..to {
            for zeros in [0, to - cut, SEGMENT as usize - cut] {
                let mut torn = whole.clone();
                let tail = &mut torn.last_mut().unwrap().1;
                let lost_only_zeros = zeros > 0 && tail[cut..].iter().all(|&byte| byte == 0);
                tail.truncate(cut);
                tail.resize(cut + zeros, 0);
                let (mut loaded, report) = load(torn);
                assert_eq!(report.damage, None, "cut at {cut}");
                if lost_only_zeros {
                    assert_eq!(report.valid_end, log.end());
                    continue;
                }
                assert_eq!(report.valid_end.offset, LogEnd(last.start));
                assert!(report.torn_bytes <= (cut - from) as u64);
                let kept = log.groups().map(|group| group.end).take_while(|end| end.0 <= last.start);
                assert!(loaded.groups().map(|group| group.end).eq(kept));
                append(&mut loaded, 3, &[b"goes on"]);
            }
        }
    }
}

#[test]
fn a_segment_that_is_torn_as_a_whole_is_useless() {
    let mut log = new_log();
    fill(&mut log, 1, 2);
    let mut torn = files(&log);
    torn.push((SegmentId(2), vec![0; 100]));
    let base = torn[1].1.len();
    torn[1].1[base - 1] ^= 1;
    let (_, report) = load(torn.clone());
    assert_eq!((report.damage, report.useless), (None, vec![SegmentId(2)]));
    torn[1].1.truncate(20);
    let (loaded, report) = load(torn);
    assert_eq!((report.damage, report.useless), (None, vec![SegmentId(1), SegmentId(2)]));
    assert_eq!(loaded.segments().count(), 1);
}

#[test]
fn every_flipped_bit_is_torn_off_or_reported() {
    for log in samples() {
        let (whole, all) = (files(&log), entries(&log));
        let last = log.groups().last().unwrap();
        for (index, (id, bytes)) in whole.iter().enumerate() {
            for at in 0..bytes.len() {
                let mut flipped = whole.clone();
                flipped[index].1[at] ^= 1 << (at * 5 % 8);
                let (loaded, report) = load(flipped);
                let offset = u64::from(id.0) * u64::from(SEGMENT) + at as u64;
                assert!(report.valid_end.offset.0 <= offset, "a flip at {offset} was not seen: {report:?}");
                assert!(report.damage.is_some() || offset >= last.start, "{offset} was dropped silently");
                assert!(all.starts_with(&entries(&loaded)));
            }
        }
    }
}

#[test]
fn missing_segments_are_reported() {
    for log in samples() {
        let whole = files(&log);
        for index in 0..whole.len() - 1 {
            let mut fewer = whole.clone();
            let (missing, _) = fewer.remove(index);
            let (loaded, report) = load(fewer);
            let damage = report.damage.unwrap();
            assert_eq!(damage.kind, DamageKind::Missing(missing));
            assert_eq!(damage.at, u64::from(missing.0) * u64::from(SEGMENT));
            assert_eq!(loaded.segments().count(), index);
        }
    }
}

/// Found by the simulator: the entry that freed a segment was cut off after a restart, and the segment was gone.
#[test]
fn a_freed_segment_whose_file_is_still_there_stays_until_the_freeing_is_synced() {
    let mut log = new_log();
    let objects = fill(&mut log, 1, 3);
    let before = log.end().offset;
    let_go(&mut log, 1, SegmentId(0), &objects);
    for segments in [3, 5] {
        fill(&mut log, 1, segments); // the later digests omit it
        let (mut loaded, report) = load(files(&log));
        assert_eq!((report.damage, report.useless), (None, Vec::new()));
        assert_eq!(entries(&loaded), entries(&log));
        assert_eq!((loaded.retired(log.end().offset), loaded.retired(before)), (Some(SegmentId(0)), None));
        loaded.truncate(before).unwrap();
        assert_eq!((loaded.retired(LogEnd::MAX), loaded.absent()), (None, &[][..]));
        fill(&mut loaded, 2, 6);
        let (mut again, report) = load(files(&loaded));
        assert_eq!((report.damage, again.segments().next().unwrap().0), (None, SegmentId(0)));
        again.reset_liveness();
        assert!(again.live_bytes_in(SegmentId(0)) > 0, "it lives again");
    }
    // Once the head does not name it, its file may be as bad as it likes, or gone.
    let (whole, last) = (files(&log), log.segments().last().unwrap().0);
    for spoil in [
        |file: &mut Vec<u8>| file.truncate(1000),
        |file: &mut Vec<u8>| file[1000] ^= 1,
        |file: &mut Vec<u8>| file.clear(),
    ] {
        let mut spoilt = whole.clone();
        spoil(&mut spoilt[0].1);
        let (loaded, report) = load(spoilt);
        assert_eq!((report.damage, report.useless), (None, vec![SegmentId(0)]));
        assert_eq!((loaded.segments().next().unwrap().0, loaded.end()), (SegmentId(1), log.end()));
    }
    let (loaded, report) = load(whole[1..].to_vec());
    assert_eq!((report.damage, report.useless, loaded.segments().last().unwrap().0), (None, Vec::new(), last));
}

/// Found by a review: one file that nobody needs took the others with it.
#[test]
fn of_freed_segments_each_is_kept_for_itself() {
    let mut log = new_log();
    let objects = fill(&mut log, 1, 5);
    let before = log.end().offset;
    [0, 2].map(SegmentId).into_iter().for_each(|id| let_go(&mut log, 1, id, &objects));
    let mut spoilt = files(&log);
    spoilt[0].1[1000] ^= 1;
    let (mut loaded, report) = load(spoilt);
    assert_eq!((report.damage, report.useless), (None, vec![SegmentId(0)]));
    assert_eq!(loaded.retired(LogEnd::MAX), Some(SegmentId(2)));
    loaded.truncate(before).unwrap();
    assert_eq!(loaded.absent(), [SegmentId(0)]);
}

/// Found by a review: what had left the memory, and not yet the disk, filled the memory at the next start.
#[test]
fn a_load_keeps_no_more_freed_segments_than_the_memory_holds() {
    let mut log = new_log();
    let (objects, mut gone) = (fill(&mut log, 1, 14), Vec::new());
    for id in (0..12).map(SegmentId) {
        let_go(&mut log, 1, id, &objects);
        gone.push(files(&log).swap_remove(0));
        log.free(id);
        log.bury();
    }
    fill(&mut log, 1, 14);
    let all = gone.into_iter().chain(files(&log));
    let (mut loaded, report) = Log::load(SHARD, config(16), all);
    let held: Vec<_> = loaded.segments().map(|(id, _)| id.0).collect();
    // A new term may have 19 segments, of which it needs one; of those that were freed, the last are kept.
    assert_eq!((report.damage, held), (None, (8..26).collect()));
    assert!(report.useless.iter().map(|id| id.0).eq(0..8));
    while loaded.segments().count() < 19 {
        let mut group = loaded.begin(Epoch(2), entry_bytes(900), Purpose::Own).expect("room for a new term's entries");
        group.entry(EntryKind::EpochStart, 900);
        group.commit();
    }
}

/// A segment that says that another one is freed is freed only once that is synced.
#[test]
fn a_segment_that_was_freed_by_a_freed_one_is_useless() {
    let mut log = new_log();
    let mut objects = fill(&mut log, 1, 3);
    let_go(&mut log, 1, SegmentId(0), &objects);
    objects.extend(fill(&mut log, 1, 5));
    let old = files(&log);
    log.free(SegmentId(0));
    for id in (1..3).map(SegmentId) {
        let_go(&mut log, 1, id, &objects);
        log.free(id);
    }
    let mut all = files(&log);
    all.push(old[0].clone());
    let (loaded, report) = load(all);
    assert_eq!((report.damage, report.useless), (None, vec![SegmentId(0)]));
    assert_eq!(files(&loaded), files(&log));
}

/// Found by the property `log_history`: the newest digest left out a segment that lives again where the log is cut.
#[test]
fn d4_what_was_let_go_behind_the_damage_is_there_again() {
    let mut log = new_log();
    let objects = fill(&mut log, 1, 3);
    let cut = log.end().offset;
    let_go(&mut log, 1, SegmentId(0), &objects);
    let word_in = log.segment_behind(cut);
    fill(&mut log, 1, 5);
    let mut torn = files(&log);
    let at = (cut.0 % u64::from(SEGMENT)) as usize;
    torn.iter_mut().find(|(id, _)| *id == word_in).unwrap().1.truncate(at);
    let (loaded, report) = load(torn);
    assert!(report.damage.is_some());
    assert_eq!((report.valid_end.offset, loaded.absent()), (cut, &[][..]));
    assert!(entries(&log).starts_with(&entries(&loaded)));
    // A file that is damaged itself is left out, and its segment is absent.
    let mut torn = files(&log);
    torn[0].1.truncate(1000);
    torn.iter_mut().find(|(id, _)| *id == word_in).unwrap().1.truncate(at);
    assert_eq!(load(torn).0.absent(), [SegmentId(0)]);
}

#[test]
fn another_version_or_segment_size_is_not_torn() {
    let mut log = new_log();
    fill(&mut log, 1, 2);
    let mut newer = files(&log);
    newer[1].1[2] = 9;
    assert_eq!(load(newer).1.damage.unwrap().kind, DamageKind::Group(GroupFault::Version(9)));
    let mut other = config(64);
    other.segment_bytes *= 2;
    let (_, report) = Log::load(SHARD, other, files(&log).into_iter());
    assert!(matches!(report.damage.unwrap().kind, DamageKind::Group(GroupFault::Misplaced { .. })));
}
