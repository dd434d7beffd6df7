//! A backup takes exactly what follows its end, and nothing else changes it. Any bytes: `crates/properties`,
//! `log_appends`.

use crate::common::{SEGMENT, SHARD, append, config, entries, files, fill, let_go, new_log, reseal, snapshot};
use kasha_log::{AppendError, EntryKind, GroupFault, GroupStart, Log, Purpose, Screen, entry_bytes};
use kasha_types::{Epoch, LogEnd, SegmentId};

fn ship(from: &Log, to: &mut Log, piece: u32) -> Result<(), AppendError> {
    for slice in from.pieces(to.end().offset, from.end().offset, piece) {
        to.append_raw(from.slice(slice), Screen::NONE)?;
    }
    Ok(())
}

#[test]
fn a_backup_becomes_equal_in_pieces_of_any_size() {
    let mut primary = new_log();
    fill(&mut primary, 1, 4);
    append(&mut primary, 3, &[b"later", b"epoch"]);
    for piece in [1, 100, 777, 4096, u32::MAX] {
        let mut backup = new_log();
        ship(&primary, &mut backup, piece).unwrap();
        assert_eq!(files(&backup), files(&primary));
        assert_eq!((backup.end(), backup.epoch_history()), (primary.end(), primary.epoch_history()));
        assert_eq!(backup.live_bytes(), primary.live_bytes());
    }
}

#[test]
fn pieces_are_whole_groups_of_bounded_length() {
    let mut primary = new_log();
    fill(&mut primary, 1, 3);
    let starts: Vec<u64> = primary.groups().map(|group| group.start).collect();
    for slice in primary.pieces(LogEnd(starts[2]), primary.end().offset, 1000) {
        assert!(slice.len <= 1000 && starts.contains(&slice.offset));
    }
    let bytes: u64 = primary.pieces(LogEnd::START, primary.end().offset, 1000).map(|slice| u64::from(slice.len)).sum();
    assert_eq!(bytes, primary.segments().map(|(_, used)| u64::from(used)).sum());
}

#[test]
fn refusals_say_why() {
    let mut primary = new_log();
    let groups: Vec<_> = (0..4).map(|n| append(&mut primary, 1, &[&[n; 20]]).0).collect();
    let bytes_of = |n: usize| {
        let (start, end) = (groups[n].start.offset, groups[n].end.offset);
        primary.bytes(start, (end.0 - start) as u32).to_vec()
    };
    let first = primary.bytes(0, groups[1].end.offset.0 as u32).to_vec();
    let mut backup = new_log();
    backup.append_raw(&first, Screen::NONE).unwrap();
    let end = groups[1].end.offset;
    let group = |fault| Err(AppendError::Group { at: end.0, fault });

    assert_eq!(backup.append_raw(&first, Screen::NONE), Err(AppendError::Overlap { end }));
    assert_eq!(backup.append_raw(&bytes_of(3), Screen::NONE), Err(AppendError::Gap { expected: end }));
    assert_eq!(backup.append_raw(&[], Screen::NONE), group(GroupFault::Torn));
    assert_eq!(backup.append_raw(&bytes_of(2)[..60], Screen::NONE), group(GroupFault::Torn));
    let mut flipped = bytes_of(2);
    flipped[58] ^= 1;
    assert_eq!(backup.append_raw(&flipped, Screen::NONE), group(GroupFault::Checksum));
    flipped[58] ^= 1;
    flipped[28] = 0; // the predecessor's epoch
    reseal(&mut flipped);
    let ours = GroupStart { epoch: Epoch(1), offset: groups[1].start.offset };
    assert_eq!(backup.append_raw(&flipped, Screen::NONE), Err(AppendError::PredecessorMismatch { ours }));
    let skips = [bytes_of(2), bytes_of(2)].concat();
    let after = groups[2].end.offset.0;
    let misplaced = GroupFault::Misplaced { names: end.0 };
    assert_eq!(backup.append_raw(&skips, Screen::NONE), Err(AppendError::Group { at: after, fault: misplaced }));
    backup.append_raw(&[bytes_of(2), bytes_of(3)].concat(), Screen::NONE).unwrap();
    assert_eq!(entries(&backup), entries(&primary));
}

#[test]
fn groups_of_two_segments_are_not_one_piece() {
    let mut primary = new_log();
    fill(&mut primary, 1, 3);
    let pieces: Vec<_> = primary.pieces(LogEnd::START, primary.end().offset, u32::MAX).collect();
    let two: Vec<u8> = pieces[..2].iter().flat_map(|&piece| primary.slice(piece).to_vec()).collect();
    let mut backup = new_log();
    let refused = backup.append_raw(&two, Screen::NONE);
    assert!(matches!(refused, Err(AppendError::Group { .. })), "{refused:?}");
    assert_eq!(backup.end().offset, LogEnd::START);
}

#[test]
fn a_screen_keeps_out_what_is_whole_and_wrong() {
    let mut primary = new_log();
    append(&mut primary, 2, &[b"an object"]);
    let piece = primary.pieces(LogEnd::START, primary.end().offset, u32::MAX).next().unwrap();
    let mut backup = new_log();
    let later = Screen { epoch_max: Epoch(1), ..Screen::NONE };
    let unreadable = Screen { is_sound: |kind, _| kind != EntryKind::Object, ..Screen::NONE };
    for screen in [later, unreadable] {
        assert!(matches!(backup.append_raw(primary.slice(piece), screen), Err(AppendError::Group { .. })));
    }
    backup.append_raw(primary.slice(piece), Screen { epoch_max: Epoch(2), ..Screen::NONE }).unwrap();
}

#[test]
fn a_diverged_backup_is_cut_and_made_equal() {
    let mut old = new_log();
    append(&mut old, 1, &[b"both"]);
    let (mut new, mut backup) = (new_log(), new_log());
    ship(&old, &mut new, SEGMENT).unwrap();
    append(&mut old, 1, &[b"only the old primary and its backup"]);
    fill(&mut old, 1, 3);
    ship(&old, &mut backup, SEGMENT).unwrap();
    append(&mut new, 2, &[b"the new primary's"]);

    let common =
        kasha_log::common_prefix(new.epoch_history(), new.end().offset, backup.epoch_history(), backup.end().offset);
    assert!(matches!(ship(&new, &mut backup, SEGMENT), Ok(()))); // nothing to ship: it is behind
    let cut = backup.truncate(common).unwrap();
    assert_eq!(cut.removed, [SegmentId(1), SegmentId(2)]);
    assert_eq!(cut.head, Some((SegmentId(0), common.0 as u32)));
    ship(&new, &mut backup, SEGMENT).unwrap();
    assert_eq!(snapshot_without_memory(&backup), snapshot_without_memory(&new));
    assert_eq!(backup.truncate(LogEnd(common.0 + 8)), Err(kasha_log::NotABoundary));
    assert_eq!(backup.truncate(LogEnd::START).unwrap().head, None);
    ship(&new, &mut backup, SEGMENT).unwrap();
    assert_eq!(entries(&backup), entries(&new));
}

fn snapshot_without_memory(log: &Log) -> impl PartialEq + std::fmt::Debug {
    (log.end(), log.epoch_history().to_vec(), log.live_bytes(), files(log))
}

#[test]
fn effects_of_a_turn_can_read_what_it_cut() {
    let mut log = new_log();
    fill(&mut log, 1, 2);
    let slices: Vec<_> = log.pieces(LogEnd::START, log.end().offset, 500).collect();
    let before: Vec<Vec<u8>> = slices.iter().map(|slice| log.slice(*slice).to_vec()).collect();
    let keep = log.groups().nth(2).unwrap().end;
    log.truncate(keep).unwrap();
    assert!(slices.iter().zip(&before).all(|(slice, bytes)| log.slice(*slice) == bytes));
    log.bury();
    assert_eq!(log.stats().segments_in_graveyard, 0);
    assert_eq!(log.stats().segments_pooled, 1);
}

#[test]
fn a_joiner_takes_the_tail_first_and_then_the_past() {
    let mut primary = new_log();
    let mut objects = fill(&mut primary, 1, 3);
    let mut group = primary.begin(Epoch(2), entry_bytes(4), Purpose::Normal).unwrap();
    group.entry(EntryKind::EpochStart, 4).1.fill(2);
    group.commit();
    objects.extend(fill(&mut primary, 2, 5));
    let_go(&mut primary, 2, SegmentId(1), &objects);
    primary.free(SegmentId(1));
    fill(&mut primary, 2, 6);

    let base = primary.end_before(SegmentId(5));
    let mut joiner = Log::begin_at(SHARD, config(64), base);
    assert!(joiner.append_raw(primary.bytes(0, 100), Screen::NONE).is_err());
    ship(&primary, &mut joiner, SEGMENT).unwrap();
    assert_eq!(joiner.absent(), [0, 2, 3, 4].map(SegmentId));
    assert_eq!(joiner.epoch_history(), primary.epoch_history(), "known from the digest");
    let whole = files(&primary);
    assert_eq!(joiner.install_segment(SegmentId(1), &whole[0].1, Screen::NONE), Err(AppendError::NotAbsent));
    for (id, bytes) in [&whole[2], &whole[0], &whole[1], &whole[3]] {
        let before = format!("{:?}", snapshot(&joiner));
        assert!(joiner.install_segment(*id, &bytes[..bytes.len() - 8], Screen::NONE).is_err());
        assert!(joiner.install_segment(*id, &[&bytes[..], &[0; 8]].concat(), Screen::NONE).is_err());
        assert_eq!(before, format!("{:?}", snapshot(&joiner)));
        joiner.install_segment(*id, bytes, Screen::NONE).unwrap();
    }
    assert!(joiner.absent().is_empty());
    assert_eq!(entries(&joiner), entries(&primary));
    assert_eq!(joiner.live_bytes(), primary.live_bytes());
    append(&mut joiner, 3, &[b"may be elected now"]);
}

#[test]
fn a_segment_without_its_last_groups_does_not_fit_its_successor() {
    let mut primary = new_log();
    fill(&mut primary, 1, 3);
    let base = primary.end_before(SegmentId(2));
    let mut joiner = Log::begin_at(SHARD, config(64), base);
    ship(&primary, &mut joiner, SEGMENT).unwrap();
    let last = primary.groups().take_while(|group| group.end < base).last().unwrap();
    let short = primary.bytes(u64::from(SEGMENT), (last.start - u64::from(SEGMENT)) as u32);
    assert!(matches!(
        joiner.install_segment(SegmentId(1), short, Screen::NONE),
        Err(AppendError::PredecessorMismatch { .. })
    ));
}
