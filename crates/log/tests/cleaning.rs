//! Which segment is cleaned, and what of it can be read.

use crate::common::{SEGMENT, append, fill, let_go, new_log};
use kasha_log::{DamagedGroup, EntryKind, EntryOffset, GROUP_HEADER_BYTES, Log, Part, Purpose, entry_bytes};
use kasha_types::{Epoch, LogEnd, SegmentId};

fn of_segment(entries: &[EntryOffset], segment: u64) -> Vec<EntryOffset> {
    let base = segment * u64::from(SEGMENT);
    entries.iter().copied().filter(|at| (base..base + u64::from(SEGMENT)).contains(&at.0)).collect()
}

fn chosen(log: &Log, synced: LogEnd) -> Option<u32> {
    log.choose_victim(synced).map(|victim| victim.segment.0)
}

#[test]
fn the_emptiest_is_chosen_and_of_two_alike_the_older() {
    let mut log = new_log();
    let entries = fill(&mut log, 1, 6);
    let end = log.end().offset;
    let first_three = |segment| of_segment(&entries, segment).into_iter().take(3);
    first_three(3).for_each(|at| log.kill(at));
    assert_eq!(chosen(&log, end), Some(3), "others have next to nothing dead");
    first_three(1).for_each(|at| log.kill(at));
    assert_eq!(chosen(&log, end), Some(1));
    of_segment(&entries, 2).into_iter().skip(1).for_each(|at| log.kill(at));
    assert_eq!(chosen(&log, end), Some(2), "much emptier, though younger");
}

#[test]
fn r5_12_neither_the_head_nor_what_is_not_synced_is_chosen() {
    let mut log = new_log();
    let entries = fill(&mut log, 1, 3);
    let end_of_first = log.segments().map(|(_, used)| u64::from(used)).next().unwrap();
    for segment in [0, 1, 2] {
        of_segment(&entries, segment).into_iter().skip(1).for_each(|at| log.kill(at));
    }
    assert_eq!(chosen(&log, LogEnd(end_of_first - 1)), None);
    assert_eq!(chosen(&log, LogEnd(end_of_first)), Some(0));
    of_segment(&entries, 0).into_iter().take(1).for_each(|at| log.kill(at));
    assert_eq!(chosen(&log, log.end().offset), Some(1), "what is wholly dead needs no cleaning");
    of_segment(&entries, 1).into_iter().take(1).for_each(|at| log.kill(at));
    assert_eq!(chosen(&log, log.end().offset), None, "the head is no candidate");
}

#[test]
fn r5_12_damage_of_the_memory_is_found_before_anything_is_copied() {
    let mut log = new_log();
    let (damaged, _) = append(&mut log, 1, &[b"precious"]);
    fill(&mut log, 1, 2);
    let ends = |log: &Log| {
        let (mut at, mut groups) = (LogEnd::START, 0);
        while let Some(group) = log.verified_group(SegmentId(0), at)? {
            (at, groups) = (group.end, groups + 1);
        }
        Ok(groups)
    };
    assert!(ends(&log).unwrap() > 2);
    let len = damaged.end.offset.0 - damaged.start.offset;
    // The length of its payload, its own offset, an entry, padding: whichever bit it is.
    for byte in 0..len {
        log.flip_bit(damaged.start.offset + byte, 3);
        assert_eq!(ends(&log), Err::<u32, _>(DamagedGroup { at: damaged.start.offset }), "byte {byte}");
        log.flip_bit(damaged.start.offset + byte, 3);
    }
}

#[test]
fn a_group_of_copies_is_read_as_any_other_and_says_what_it_is() {
    let mut log = new_log();
    let (_, at) = append(&mut log, 1, &[b"moves on"]);
    fill(&mut log, 1, 2);
    let payload = log.entry(at[0]).payload.len();
    let mut group = log.begin(Epoch(1), entry_bytes(payload), Purpose::Cleaning).unwrap();
    let copy = group.entry_parts(EntryKind::Object, &[Part::Log { offset: at[0].payload(), len: payload as u32 }]);
    let start = group.commit().start.offset;
    log.kill(at[0]);
    assert_eq!(log.entry(copy).payload, b"moves on");
    assert_eq!(log.bytes(start, 48)[40..], [1, 0, 0, 0, 0, 0, 0, 0]);
    let (loaded, report) =
        Log::load(crate::common::SHARD, crate::common::config(64), crate::common::files(&log).into_iter());
    assert_eq!(report.damage, None);
    assert_eq!(crate::common::entries(&loaded), crate::common::entries(&log));
}

/// Such an entry may end where its segment ends, and the next segment may be gone.
#[test]
fn an_entry_without_a_payload_is_copied_from_the_end_of_a_full_segment() {
    let mut log = new_log();
    let term_begins = |log: &mut Log, payload: usize| {
        let mut group = log.begin(Epoch(1), entry_bytes(payload), Purpose::Own).unwrap();
        let (at, _) = group.entry(EntryKind::EpochStart, payload);
        group.commit();
        at
    };
    term_begins(&mut log, 0);
    let smallest = GROUP_HEADER_BYTES as usize + entry_bytes(0);
    term_begins(&mut log, SEGMENT as usize / 2);
    let left = SEGMENT as usize - usize::try_from(log.end().offset.0).unwrap();
    term_begins(&mut log, left - 2 * smallest);
    let last = term_begins(&mut log, 0);
    assert_eq!(last.payload(), u64::from(SEGMENT), "the segment is full");
    let entries = fill(&mut log, 1, 3);
    let_go(&mut log, 1, SegmentId(1), &entries);
    log.free(SegmentId(1));
    let mut group = log.begin(Epoch(1), entry_bytes(0), Purpose::Cleaning).unwrap();
    let copy = group.entry_parts(EntryKind::EpochStart, &[Part::Log { offset: last.payload(), len: 0 }]);
    group.commit();
    assert!(log.is_epoch_start(copy));
}
