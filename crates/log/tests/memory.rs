//! The limit, the reserve, and freeing.

use crate::common::{SEGMENT, SHARD, append, config, fill, let_go, new_log};
use kasha_log::{AppendError, EntryKind, Full, Log, LogConfig, MemoryLeft, Part, Purpose, Screen, entry_bytes};
use kasha_types::{Epoch, LogEnd, SegmentId};
use proptest::prelude::*;

fn until_full(log: &mut Log, purpose: Purpose, payload: usize) -> Vec<kasha_log::EntryOffset> {
    let mut entries = Vec::new();
    while let Ok(mut group) = log.begin(Epoch(1), entry_bytes(payload), purpose) {
        let (at, bytes) = group.entry(EntryKind::Object, payload);
        bytes.fill(1);
        entries.push(at);
        group.commit();
    }
    entries
}

/// A limit that is no whole number of segments leaves nothing between what deletes may use and what shrinks.
#[test]
fn r5_16_every_purpose_has_a_limit_whatever_the_memory() {
    for bytes in (8 * u64::from(SEGMENT)..9 * u64::from(SEGMENT)).step_by(256) {
        let mut log = Log::new(SHARD, LogConfig { memory_max_bytes: bytes, ..config(8) });
        until_full(&mut log, Purpose::Normal, 8);
        until_full(&mut log, Purpose::Freeing, 8);
        until_full(&mut log, Purpose::Unblocking, 8);
        until_full(&mut log, Purpose::Shrinking, 8);
        assert!(!until_full(&mut log, Purpose::Cleaning, 8).is_empty(), "{bytes} bytes");
    }
}

/// R5.16: each purpose has room of its own behind that of the one before it.
#[test]
fn r5_16_a_reserve_is_kept_for_deletes_and_one_for_the_cleaner() {
    let mut log = Log::new(SHARD, config(8));
    let (segment, max) = (u64::from(SEGMENT), 8 * u64::from(SEGMENT));
    until_full(&mut log, Purpose::Normal, 8);
    let normal_end = log.end().offset.0;
    assert!(normal_end <= max - 2 * segment && normal_end > max - 2 * segment - 128);
    assert_eq!(log.begin(Epoch(1), entry_bytes(8), Purpose::Normal).err(), Some(Full::Cleaning), "headers are dead");
    assert!(!until_full(&mut log, Purpose::Freeing, 8).is_empty());
    assert!(log.end().offset.0 <= max && log.end().offset.0 > max - 128);
    assert!(!until_full(&mut log, Purpose::Unblocking, 8).is_empty());
    assert!(!until_full(&mut log, Purpose::Shrinking, 8).is_empty());
    let shrinking = max + segment - segment / 8;
    assert!(log.end().offset.0 <= shrinking && log.end().offset.0 > shrinking - segment);
    assert!(!until_full(&mut log, Purpose::Cleaning, 8).is_empty());
    let cleaning = max + 2 * segment - segment / 8;
    assert!(log.end().offset.0 <= cleaning && log.end().offset.0 > cleaning - segment);
    assert!(log.begin(Epoch(1), entry_bytes(8), Purpose::Own).is_ok(), "what frees a segment finds room");
}

/// Found by the simulator: a new primary found no room for ten requests that its witness held, since the cleaner of the primary
/// before it had filled the memory.
#[test]
fn r5_16_what_a_witness_holds_fits_into_a_log_that_the_cleaner_filled() {
    let mut log = Log::new(SHARD, config(8));
    until_full(&mut log, Purpose::Cleaning, 8);
    let mut bodies = 0;
    until_full(&mut log, Purpose::Own, 8);
    for payload in [100, 1000, 30].into_iter().cycle() {
        let Ok(mut group) = log.begin(Epoch(2), entry_bytes(payload), Purpose::Takeover) else { break };
        group.entry(EntryKind::Object, payload);
        group.commit();
        bodies += payload;
    }
    assert!(bodies >= SEGMENT as usize, "{bodies} bytes of bodies");
}

/// R5.16: a new primary above its limit may clean.
#[test]
fn r5_16_a_log_that_a_take_over_filled_can_be_cleaned() {
    let mut log = Log::new(SHARD, config(8));
    until_full(&mut log, Purpose::Cleaning, 8);
    assert!(log.begin(Epoch(1), 1200, Purpose::Cleaning).is_err());
    // A segment more, and a part of the next.
    for _ in 0..SEGMENT / 1200 + 1 {
        let mut group = log.begin(Epoch(2), entry_bytes(1200), Purpose::Takeover).expect("room for a take-over");
        group.entry(EntryKind::Object, 1200);
        group.commit();
    }
    assert!(log.begin(Epoch(2), entry_bytes(8), Purpose::Freeing).is_err(), "it is above its limit");
    assert!(log.begin(Epoch(2), 1200, Purpose::Cleaning).is_ok());
    assert!(log.begin(Epoch(2), entry_bytes(4), Purpose::Own).is_ok(), "what frees a segment finds room");
}

proptest! {
    /// R5.16: what is let in fits into what new data may fill, when all of it has been copied by the cleaner. With more, the
    /// cleaner would copy full segments about for ever.
    #[test]
    fn r5_16_what_is_let_in_fits_when_it_is_packed(
        segments in 8..64_u64, sizes in prop::collection::vec(1..440_usize, 1..20),
    ) {
        let mut packed = Log::new(SHARD, config(segments));
        let mut sizes = sizes.into_iter().cycle().peekable();
        loop {
            let (mut part, mut bytes) = (Vec::new(), 0);
            while let Some(payload) = sizes.next_if(|&payload| bytes + entry_bytes(payload) <= packed.copies_bytes_max() as usize) {
                bytes += entry_bytes(payload);
                part.push(payload);
            }
            if packed.live_bytes() + bytes as u64 > packed.live_bytes_max() {
                break;
            }
            let mut group = packed.begin(Epoch(1), bytes, Purpose::Cleaning).expect("the cleaner has room");
            part.iter().for_each(|&payload| _ = group.entry(EntryKind::Object, payload));
            group.commit();
        }
        let taken = (packed.segments().count() as u64 - 1) * u64::from(SEGMENT)
            + packed.segments().last().map_or(0, |(_, used)| u64::from(used));
        prop_assert!(taken <= packed.capacity_bytes(), "{taken} of {}", packed.capacity_bytes());
    }
}

/// Found from outside: status called a shard healthy, by whole segments of its memory, that refused every update.
#[test]
fn a_log_that_refuses_for_good_says_that_nothing_is_left() {
    let mut log = Log::new(SHARD, config(8));
    let (mut little, payload) = (false, 1200);
    assert_eq!(log.memory_left(), MemoryLeft::Enough);
    let refused = loop {
        match log.begin(Epoch(1), entry_bytes(payload), Purpose::Normal) {
            Ok(mut group) => {
                group.entry(EntryKind::Object, payload);
                group.commit();
            }
            Err(why) => break why,
        }
        little |= log.memory_left() == MemoryLeft::Little;
        let is_enough = log.live_bytes() < log.live_bytes_max() / 5 * 4;
        assert!(is_enough == (log.memory_left() == MemoryLeft::Enough) || log.memory_left() == MemoryLeft::Nothing);
    };
    assert_eq!(refused, Full::Memory, "everything lives, and next to nothing is dead");
    assert!(little, "{:?}", log.stats());
    assert_eq!(log.memory_left(), MemoryLeft::Nothing);
}

/// What is dead makes room sooner or later, so the memory is not full, however many segments are.
#[test]
fn a_log_full_of_dead_entries_refuses_until_it_is_cleaned() {
    let mut log = Log::new(SHARD, config(8));
    let (_, first) = append(&mut log, 1, &[&[1; 500]]);
    let refused = loop {
        match log.begin(Epoch(1), entry_bytes(500), Purpose::Normal) {
            Ok(mut group) => {
                let (at, _) = group.entry(EntryKind::Object, 500);
                group.commit();
                log.kill(at);
            }
            Err(why) => break why,
        }
    };
    assert_eq!(refused, Full::Cleaning);
    assert_eq!(log.memory_left(), MemoryLeft::Enough);
    log.kill(first[0]);
    assert_eq!(log.begin(Epoch(1), entry_bytes(500), Purpose::Normal).err(), Some(Full::Cleaning));
}

/// What is too large for the rest may be refused long before small updates are.
#[test]
fn a_log_that_refuses_a_large_group_says_so_until_that_fits() {
    let mut log = Log::new(SHARD, config(8));
    let large = log.group_payload_max();
    while log.begin(Epoch(1), large, Purpose::Normal).is_ok() {
        append(&mut log, 1, &[&[1; 1200]]);
        assert_ne!(log.memory_left(), MemoryLeft::Nothing);
    }
    assert_eq!(log.memory_left(), MemoryLeft::Nothing);
    assert!(log.begin(Epoch(1), entry_bytes(8), Purpose::Normal).is_ok(), "a small one fits");
}

#[test]
fn a_refused_or_dropped_group_leaves_no_trace() {
    let mut log = new_log();
    let (first, _) = append(&mut log, 1, &[b"first"]);
    let before = format!("{:?}", crate::common::snapshot(&log));
    let too_large = log.group_payload_max() + 8;
    assert_eq!(log.begin(Epoch(1), too_large, Purpose::Freeing).err(), Some(Full::Group));
    log.begin(Epoch(9), 400, Purpose::Normal).unwrap().entry(EntryKind::Object, 100).1.fill(7);
    assert_eq!(before, format!("{:?}", crate::common::snapshot(&log)));
    let (second, _) = append(&mut log, 1, &[b"second"]);
    assert_eq!(second.start.offset, first.end.offset.0);
}

#[test]
fn the_open_group_can_be_copied_from() {
    let mut log = new_log();
    let sealed = fill(&mut log, 1, 2)[0];
    let (_, committed) = append(&mut log, 1, &[b"committed"]);
    let mut group = log.begin(Epoch(1), 1000, Purpose::Normal).unwrap();
    let (fresh, payload) = group.entry(EntryKind::Object, 5);
    payload.copy_from_slice(b"fresh");
    assert_eq!(group.log().entry(committed[0]).kind, EntryKind::Object);
    let part = |at: kasha_log::EntryOffset, len| Part::Log { offset: at.payload(), len };
    let parts = [part(sealed, 2), Part::Bytes(b"-"), part(committed[0], 9), Part::Bytes(b"-"), part(fresh, 5)];
    let mixed = group.entry_parts(EntryKind::Completion, &parts);
    let room = group.room();
    assert_eq!(room, 1000 - entry_bytes(5) - entry_bytes(18));
    group.commit();
    assert_eq!(log.entry(mixed).payload, b"\x01\x01-committed-fresh");
}

#[test]
#[should_panic(expected = "more than was reserved")]
fn writing_past_the_reservation_is_a_bug() {
    let mut log = new_log();
    log.begin(Epoch(1), 16, Purpose::Normal).unwrap().entry(EntryKind::Object, 9);
}

#[test]
#[should_panic(expected = "died twice")]
fn dying_twice_is_a_bug() {
    let mut log = new_log();
    let (_, at) = append(&mut log, 1, &[b"one"]);
    fill(&mut log, 1, 2).into_iter().filter(|at| at.0 < u64::from(SEGMENT)).for_each(|at| log.kill(at));
    log.kill(at[0]);
    log.kill(at[0]);
}

#[test]
fn memory_goes_round() {
    let mut log = Log::new(SHARD, config(4));
    let mut entries = Vec::new();
    for segment in 0..50 {
        while log.segment_behind(log.end().offset) <= SegmentId(segment) {
            entries.extend(append(&mut log, 1, &[&[1; 300]]).1);
        }
        let_go(&mut log, 1, SegmentId(segment), &entries);
        assert_eq!(log.freeable(LogEnd::MAX), None, "the log says so already");
        let first = entries[0];
        log.free(SegmentId(segment));
        assert_eq!(log.entry(first).payload, [1; 300], "held effects may name it");
        entries.retain(|at| log.segment_of(*at) > SegmentId(segment));
        log.bury();
    }
    let stats = log.stats();
    assert!(stats.segments + stats.segments_pooled <= 4, "{stats:?}");
    assert_eq!(stats.segments_freed, 50);
    assert_eq!(log.groups().next().unwrap().start, 50 * u64::from(SEGMENT));
}

#[test]
fn a_segment_is_freeable_when_its_deaths_are_synced() {
    let mut log = new_log();
    let entries = fill(&mut log, 1, 2);
    let (last, first) = entries.split_last().unwrap();
    first.iter().for_each(|at| log.kill(*at));
    let died_at = log.end().offset;
    append(&mut log, 1, &[b"more"]);
    assert_eq!(log.segment_of(*last), SegmentId(1));
    assert_eq!(log.freeable(LogEnd(died_at.0 - 1)), None);
    assert_eq!(log.freeable(died_at), Some(SegmentId(0)));
    let mut group = log.begin(Epoch(1), entry_bytes(4), Purpose::Freeing).unwrap();
    group.segment_freed(SegmentId(0));
    let freed = group.commit();
    assert_eq!(log.retired(LogEnd(freed.end.offset.0 - 1)), None);
    assert_eq!(log.retired(freed.end.offset), Some(SegmentId(0)));
}

#[test]
fn only_the_newest_epoch_start_lives() {
    let mut log = new_log();
    let start = |log: &mut Log, epoch| {
        let mut group = log.begin(Epoch(epoch), entry_bytes(0), Purpose::Freeing).unwrap();
        group.entry(EntryKind::EpochStart, 0);
        group.commit();
    };
    start(&mut log, 1);
    let with_one = log.live_bytes();
    start(&mut log, 2);
    assert_eq!(log.live_bytes(), with_one);
    let entries = fill(&mut log, 2, 2);
    start(&mut log, 3);
    entries.into_iter().filter(|at| at.0 < u64::from(SEGMENT)).for_each(|at| log.kill(at));
    assert_eq!(log.freeable(log.end().offset), Some(SegmentId(0)));
}

#[test]
fn a_truncation_takes_back_what_the_tail_said() {
    let mut log = new_log();
    let entries = fill(&mut log, 1, 2);
    let (before, _) = append(&mut log, 1, &[b"before"]);
    let live = log.live_bytes();
    let_go(&mut log, 2, SegmentId(0), &entries);
    log.truncate(before.end.offset).unwrap();
    assert_eq!(log.retired(LogEnd::MAX), None);
    assert_eq!(log.freeable(LogEnd::MAX), None);
    assert_eq!(log.live_bytes(), live);
    assert_eq!((log.epoch_history(), log.end()), (&[(Epoch(1), LogEnd::START)][..], before.end));
}

#[test]
fn a_backup_has_slack_and_an_end_to_it() {
    let mut primary = new_log();
    fill(&mut primary, 1, 20);
    let mut backup = Log::new(SHARD, config(8));
    let refused = primary
        .pieces(LogEnd::START, primary.end().offset, SEGMENT)
        .find_map(|slice| backup.append_raw(primary.slice(slice), Screen::NONE).err());
    assert_eq!(refused, Some(AppendError::Full));
    assert_eq!(backup.segments().count(), 8 + 2 + 2 + 1);
}
