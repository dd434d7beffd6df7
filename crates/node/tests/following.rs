//! A member that follows: what it obeys, what it keeps, what it refuses.

use crate::common::{CONN, Core, SHARD, configuration};
use kasha_exactly_once::ExpiryFloorEntry;
use kasha_log::{EntryKind, Log, LogConfig, Purpose};
use kasha_machine::{Endpoint, FileName, Input, Machine};
use kasha_types::limits::SEGMENT_BYTES;
use kasha_types::{
    AttachId, BootId, ClusterTime, ConfigVersion, CoreId, Epoch, Incarnation, LogEnd, LogPosition, NodeId, Round,
    SegmentId,
};
use kasha_wire::codec::Bytes;
use kasha_wire::frame::{FRAME_HEADER_BYTES, Kind};
use kasha_wire::hot::{self, AppendView, Appended};
use kasha_wire::message::AttachAt;
use kasha_wire::{AnyMessage, Configuration, Member, MemberState, Message, ShardPhase, message};

const PRIMARY: CoreId = CoreId { node: NodeId(2), core: 0 };

/// Node 2 leads; we are node 1.
fn of_two(version: u64, members: &[(u16, MemberState, u64)]) -> Configuration {
    let mut configuration = configuration(version, 1, ShardPhase::Serving);
    configuration.faults = 1;
    configuration.shards[0].primary = NodeId(2);
    let member = |&(node, state, since)| Member { node: NodeId(node), state, since: ConfigVersion(since) };
    configuration.shards[0].members = members.iter().map(member).collect();
    configuration
}

fn their_log(groups: usize) -> Log {
    let config = LogConfig { segment_bytes: SEGMENT_BYTES, memory_max_bytes: 1 << 30, reserve_percent: 5 };
    let mut log = Log::new(SHARD, config);
    for _ in 0..groups {
        let mut group = log.begin(Epoch(1), 64, Purpose::Own).expect("room");
        group.entry(EntryKind::EpochStart, 0);
        group.commit();
    }
    log
}

fn send_log(core: &mut Core, log: &Log, attach: u32) {
    send_from(core, log, attach, LogEnd::START);
}

/// What the log holds from there on, in one piece.
fn send_from(core: &mut Core, log: &Log, attach: u32, from: LogEnd) {
    let bytes = log.bytes(from.0, u32::try_from(log.end().offset.bytes_since(from)).unwrap()).to_vec();
    let (epoch, attach) = (Epoch(1), AttachId(attach));
    let view = AppendView { shard: SHARD, epoch, attach, from, synced: LogEnd::START, round: Round(1), bytes: &[] };
    let mut frame = Vec::new();
    view.encode(&bytes, &mut frame);
    frame.extend_from_slice(&bytes);
    core.shell.sent.clear();
    core.frame(Kind::Append, &frame);
}

fn acknowledged(core: &Core) -> Option<Appended> {
    let to_primary = core.shell.sent.iter().rev().filter(|(to, _)| *to == Endpoint::Core(PRIMARY));
    to_primary
        .map(|(_, frame)| frame)
        .find(|frame| frame[12] == Kind::Appended as u8)
        .map(|frame| hot::decode_small(&frame[FRAME_HEADER_BYTES..]).expect("an acknowledgement"))
}

fn said<M: Message>(core: &Core) -> impl Iterator<Item = M> + '_ {
    core.shell.sent.iter().filter_map(|(_, frame)| M::from_frame(frame[12], &frame[FRAME_HEADER_BYTES..]))
}

fn attach(core: &mut Core, attach: u32, since: u64, expected: LogPosition, start: AttachAt) {
    core.shell.sent.clear();
    core.message_from(
        CONN,
        message::Attach {
            shard: SHARD,
            epoch: Epoch(1),
            primary: PRIMARY,
            attach: AttachId(attach),
            since: ConfigVersion(since),
            expected,
            must_hold: expected.offset,
            start,
        },
    );
}

/// What it reports when it is asked: its end, and whether its copy is complete.
fn fence(core: &mut Core) -> (LogPosition, bool) {
    core.shell.sent.clear();
    core.message_from(
        CONN,
        message::Fence {
            shard: SHARD,
            epoch: Epoch(1),
            primary: PRIMARY,
            attach: AttachId(9),
            served: None,
            list: kasha_types::ListVersion::NONE,
        },
    );
    let message::FenceReport { end, complete, .. } = said(core).next().expect("a report");
    (end, complete)
}

/// Whether it says that it surely holds all that it acknowledged.
fn is_intact(core: &mut Core) -> bool {
    fence(core);
    said(core).any(|report: message::FenceReport| report.intact)
}

/// It is to be the next primary of a log that the other member may hold, too.
fn promoted() -> Core {
    let mut core = Core::start(crate::common::Files::default(), 1 << 30);
    let mut recovering = configuration(3, 2, ShardPhase::Recovering);
    recovering.shards[0].recover_from = vec![NodeId(1), NodeId(2)];
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: recovering,
    });
    core
}

/// What that other member says: its log ends here.
fn report_of(end: LogPosition) -> message::FenceReport {
    message::FenceReport {
        shard: SHARD,
        epoch: Epoch(2),
        node: NodeId(2),
        attach: AttachId(0),
        exists: true,
        end,
        history: vec![LogPosition { epoch: Epoch(1), offset: LogEnd::START }],
        intact: true,
        complete: true,
        whole: false,
    }
}

/// A complete member that holds the primary's whole log, since configuration 1, in attachment 1.
fn backup(log: &Log) -> Core {
    let mut core = Core::start(crate::common::Files::default(), 1 << 30);
    let members = [(2, MemberState::Complete, 1), (1, MemberState::Complete, 1)];
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: of_two(1, &members),
    });
    let (end, _) = fence(&mut core);
    attach(&mut core, 1, 1, end, AttachAt::Join(LogEnd::START));
    send_log(&mut core, log, 1);
    let (epoch, attach) = (Epoch(1), AttachId(1));
    let (segment, bytes) = (SegmentId(u32::MAX), Bytes(Vec::new()));
    let closing = message::CopySegment { shard: SHARD, epoch, attach, segment, total: 0, offset: 0, bytes };
    core.message_from(CONN, closing);
    core
}

#[test]
fn r7_2_a_late_configuration_does_not_empty_a_member_that_was_attached_again_where_it_was() {
    let log = their_log(5);
    let mut core = backup(&log);
    let (end, complete) = fence(&mut core);
    assert_eq!((end, complete), (log.end(), true));
    // Configuration 2 dropped it, 3 took it back: the primary knows both, this node none yet.
    attach(&mut core, 2, 3, end, AttachAt::Keep(end.offset));
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: of_two(2, &[(2, MemberState::Complete, 1)]),
    });
    let members = [(2, MemberState::Complete, 1), (1, MemberState::Complete, 3)];
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: of_two(4, &members),
    });
    assert_eq!(fence(&mut core), (log.end(), true), "a complete member has thrown its log away");
}

#[test]
fn an_earlier_attachment_s_frames_are_not_obeyed() {
    let log = their_log(5);
    let mut core = backup(&log);
    send_log(&mut core, &log, 1);
    let acknowledgement = acknowledged(&core).expect("it holds all this");
    assert_eq!((acknowledgement.attach, acknowledgement.end), (AttachId(1), log.end().offset));
    let (end, _) = fence(&mut core);
    attach(&mut core, 3, 1, end, AttachAt::Keep(end.offset));
    attach(&mut core, 2, 1, end, AttachAt::Join(LogEnd::START));
    assert_eq!(said::<AnyMessage>(&core).count(), 0, "an old order is not even answered");
    send_log(&mut core, &log, 2);
    assert_eq!(acknowledged(&core), None);
    assert_eq!(fence(&mut core), (log.end(), true));
}

#[test]
fn a_segment_that_begins_too_early_does_not_end_the_attachment() {
    let mut log = their_log(5);
    let mut core = backup(&log);
    let first = log.end();
    let next = log.end_before(SegmentId(1));
    while log.end().offset < next {
        const ROOM: usize = 512 * 1024;
        let left = usize::try_from(next.bytes_since(log.end().offset)).unwrap();
        let mut group = log.begin(Epoch(1), ROOM, Purpose::Own).expect("room");
        group.entry(EntryKind::EpochStart, if left < ROOM { 0 } else { ROOM / 2 }); // one without a payload is sound
        group.commit();
    }
    send_from(&mut core, &log, 1, next);
    assert_eq!((said::<AnyMessage>(&core).count(), acknowledged(&core)), (0, None), "what lies between comes again");
    assert_eq!(fence(&mut core), (first, true));
}

#[test]
fn a_group_with_an_entry_that_nobody_can_read_is_refused_not_kept_and_replayed() {
    let mut log = their_log(1);
    let mut group = log.begin(Epoch(1), 64, Purpose::Own).unwrap();
    group.entry(EntryKind::Completion, 1);
    group.commit();
    let mut core = backup(&log);
    assert_eq!(fence(&mut core).0, LogPosition::default());
}

#[test]
fn a_group_of_an_epoch_that_its_sender_cannot_know_is_refused() {
    let mut log = their_log(1);
    let mut group = log.begin(Epoch(7), 64, Purpose::Own).unwrap();
    group.entry(EntryKind::EpochStart, 0);
    group.commit();
    let mut core = backup(&log);
    assert_eq!(fence(&mut core).0, LogPosition::default());
}

#[test]
fn a_log_piece_from_beyond_what_was_asked_for_is_ignored() {
    let mut core = promoted();
    core.message_from(CONN, report_of(LogPosition { epoch: Epoch(1), offset: LogEnd(1 << 20) }));
    let bytes = Bytes(vec![0]);
    core.message_from(CONN, message::LogPiece { shard: SHARD, epoch: Epoch(2), from: LogEnd(1 << 60), bytes });
    assert_eq!(core.shell.stopped, None);
}

#[test]
fn a_log_goes_only_when_the_shard_has_all_its_members_without_it() {
    let log = their_log(5);
    let mut core = backup(&log);
    let alone = [(2, MemberState::Complete, 1)];
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: of_two(2, &alone),
    });
    assert_eq!(fence(&mut core), (log.end(), true), "it may be asked next, and then copies what it lacks");
    let full = [(2, MemberState::Complete, 1), (3, MemberState::Complete, 3)];
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: of_two(3, &full),
    });
    assert_eq!(fence(&mut core).0.offset, LogEnd::START);
}

/// Found by a model (`spec/results/b-copy_discarded_early.txt`): the primary heard of the new set later than the member
/// that left, and answered by its acknowledgement when nobody but the primary held the update any more.
#[test]
fn d1_what_was_acknowledged_is_kept_until_the_set_is_whole_without_it() {
    let log = their_log(5);
    let mut core = backup(&log);
    send_log(&mut core, &log, 1);
    assert_eq!(acknowledged(&core).map(|acknowledgement| acknowledgement.end), Some(log.end().offset));
    let joined = [(2, MemberState::Complete, 1), (3, MemberState::Joining, 2)];
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: of_two(2, &joined),
    });
    assert_eq!(fence(&mut core), (log.end(), true), "the joiner does not hold it yet");
}

/// Found by a review: such a report let such a piece in, and no segment has so high a number.
#[test]
fn a_report_and_a_piece_from_beyond_any_log_are_ignored() {
    let mut core = promoted();
    core.tick(25);
    core.message_from(CONN, report_of(LogPosition { epoch: Epoch(1), offset: LogEnd::MAX }));
    core.tick(25);
    core.message_from(
        CONN,
        message::LogPiece { shard: SHARD, epoch: Epoch(2), from: LogEnd(1 << 60), bytes: Bytes(vec![0]) },
    );
    assert_eq!(core.shell.stopped, None);
}

/// Found by a review: it was on file by then, and every member died of it at each start.
#[test]
fn a_floor_that_goes_down_is_passed_over() {
    let mut log = their_log(1);
    for floor in [1000, 10] {
        let entry = ExpiryFloorEntry { floor: ClusterTime(floor), clients: &[] };
        let mut group = log.begin(Epoch(1), 128, Purpose::Own).expect("room");
        let (_, payload) = group.entry(EntryKind::ExpiryFloor, entry.encoded_len());
        entry.encode_into(payload);
        group.commit();
    }
    let mut core = backup(&log);
    core.tick(25);
    assert_eq!(fence(&mut core), (log.end(), true));
}

/// Found by the process tests, seed 101: the file of a log's first segment was gone, and the log passed for an empty one
/// that lacks nothing. It was taken, and the other members were cut to match it.
#[test]
fn r5_5_a_log_whose_only_segment_is_gone_is_not_an_empty_one() {
    let mut files = files_of_five();
    files.0.retain(|file, _| !matches!(file, FileName::Segment { .. }));
    let mut core = again(files, None);
    assert!(!is_intact(&mut core), "it has lost all that it acknowledged, and says that it has not");
    assert!(!fence(&mut core).1, "nobody may take it for the whole log, though nobody else be left");
}

/// Found by a review: the good rest was deleted before anybody could look at it, and if no other copy was left, what
/// precedes the damage was served.
#[test]
fn r5_5_a_damaged_log_is_nobodys_log_and_stays_on_file_unless_power_was_lost() {
    let segment = FileName::Segment { shard: SHARD, segment: SegmentId(0) };
    let mut files = files_of_five();
    files.0.get_mut(&segment).expect("a segment")[60] ^= 1;
    let mut core = again(files.clone(), None);
    assert_eq!((is_intact(&mut core), fence(&mut core).1), (false, false));
    assert_eq!(core.shell.files.0[&segment], files.0[&segment], "whoever can read more of it");
    // A loss of power may have left such a file, under `replicated`: then what all others hold decides (R5.5).
    let mut core = again(files, Some(BootId(77)));
    assert_eq!((is_intact(&mut core), fence(&mut core).1), (false, true));
}

/// A killed process leaves the beginning of its last write. Other bytes there are damage, like anywhere else, unless power was
/// lost.
#[test]
fn r5_5_a_last_group_with_other_bytes_is_damaged_and_a_cut_one_is_what_a_kill_leaves() {
    let segment = FileName::Segment { shard: SHARD, segment: SegmentId(0) };
    let whole = files_of_five();
    let end = whole.0[&segment].len();
    let mut damaged = whole.clone();
    damaged.0.get_mut(&segment).expect("a segment")[end - 1] ^= 1;
    let mut core = again(damaged.clone(), None);
    assert_eq!((is_intact(&mut core), fence(&mut core).1), (false, false));
    let mut core = again(damaged, Some(BootId(77)));
    assert_eq!((is_intact(&mut core), fence(&mut core).1), (false, true), "a loss of power may leave that");
    let mut cut = whole;
    let sixth = their_log(6).bytes(end as u64, 40).to_vec();
    cut.0.get_mut(&segment).expect("a segment").extend(sixth);
    let mut core = again(cut, None);
    assert_eq!((is_intact(&mut core), fence(&mut core).1), (true, true));
}

/// The marks are noted once all else is on the disk, and taken back by the next process.
#[test]
fn r5_3_a_machine_that_is_switched_off_after_an_orderly_end_has_not_lost_power() {
    let boot_noted = |core: &Core| core.shell.files.0[&FileName::Replica(SHARD)][40..56].to_vec();
    let mut core = backup(&their_log(5));
    core.slow_disk = true;
    core.node.begin_end();
    for _ in 0..3 {
        core.tick(25);
        assert_ne!(boot_noted(&core), [0; 16], "an fsync is under way");
    }
    assert!(!core.node.has_ended());
    core.slow_disk = false;
    core.tick(25);
    assert!(core.node.has_ended());
    assert_eq!(boot_noted(&core), [0; 16]);

    let mut next = again(core.shell.files, Some(BootId(77)));
    assert!(is_intact(&mut next));
    assert_eq!(boot_noted(&next)[0], 77, "it has begun to write");
    assert!(!is_intact(&mut again(next.shell.files, Some(BootId(78)))), "it was killed, and power was lost");
}

/// What a backup of five groups has on file, whole.
fn files_of_five() -> crate::common::Files {
    let mut core = backup(&their_log(5));
    assert!(is_intact(&mut core));
    let files = core.shell.files;
    assert!(is_intact(&mut again(files.clone(), None)));
    files
}

/// The next process of that backup, after a loss of power if its boot is another one.
fn again(files: crate::common::Files, boot: Option<BootId>) -> Core {
    let mut core = Core::start_with(files, 1 << 30, |options| {
        (options.incarnation, options.boot) = (Incarnation((2 << 32) | 1), boot.unwrap_or(options.boot));
    });
    let members = [(2, MemberState::Complete, 1), (1, MemberState::Complete, 1)];
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: of_two(1, &members),
    });
    core
}

/// Found by the simulator (`zombie` 99, `partition` 11, 45, 49): it left when the disk held what its replica had thrown
/// away.
#[test]
fn r3_1_an_acknowledgement_goes_with_the_replica_that_said_it() {
    let log = their_log(5);
    let mut core = backup(&log);
    core.slow_disk = true;
    send_from(&mut core, &their_log(6), 1, log.end().offset);
    let full = [(2, MemberState::Complete, 1), (3, MemberState::Complete, 3)];
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: of_two(3, &full),
    });
    core.slow_disk = false;
    core.tick(25);
    assert_eq!(acknowledged(&core), None);
}

/// Found by the simulator (`zombie` 12, `swarm` 19): what was to be written lay in a log that a later frame of the same
/// turn threw away, and was not there any more when the turn ended.
#[test]
fn what_a_turn_writes_is_there_although_a_later_frame_of_it_drops_the_log() {
    let log = their_log(5);
    let mut core = promoted();
    core.message_from(CONN, report_of(log.end()));
    // The greater log comes; and in the same turn the next primary attaches this node, with nothing.
    let bytes = Bytes(log.bytes(0, u32::try_from(log.end().offset.0).unwrap()).to_vec());
    let piece = message::LogPiece { shard: SHARD, epoch: Epoch(2), from: LogEnd::START, bytes };
    let order = message::Attach {
        shard: SHARD,
        epoch: Epoch(3),
        primary: PRIMARY,
        attach: AttachId(1),
        since: ConfigVersion(3),
        expected: log.end(),
        must_hold: log.end().offset,
        start: AttachAt::Join(LogEnd::START),
    };
    for message in [AnyMessage::from(piece), order.into()] {
        let mut frame = Vec::new();
        message.encode(&mut frame);
        let input = Input::Frame { from: CONN, kind: Kind::Message as u8, payload: &frame[FRAME_HEADER_BYTES..] };
        core.node.step(core.now, input, &mut core.effects);
    }
    core.finish();
    assert!(
        said(&core).any(|message| matches!(message, AnyMessage::Attached(message::Attached { epoch: Epoch(3), .. })))
    );
    assert!(!core.shell.files.0.contains_key(&FileName::Segment { shard: SHARD, segment: SegmentId(0) }));
}
