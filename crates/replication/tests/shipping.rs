//! A primary attaches members, ships the log to them and moves the synced position: the rules step by step, without a
//! network.

use kasha_log::{EntryKind, Log, LogConfig, Purpose};
use kasha_machine::{Effect, Effects};
use kasha_replication::{CLOSING_MARK, Company, FenceReport, MemberCore, Pace, Peer, PeerState, Shipping, history_of};
use kasha_types::{
    AttachId, ConfigVersion, CoreId, Epoch, Incarnation, LogEnd, LogPosition, NodeId, Round, SegmentId, ShardId, Tick,
};
use kasha_wire::AnyMessage;
use kasha_wire::Message;
use kasha_wire::frame::{FRAME_HEADER_BYTES, Kind};
use kasha_wire::hot::{AppendView, Appended};
use kasha_wire::message::{self, AttachAt};

const SHARD: ShardId = ShardId(0);
const EPOCH: Epoch = Epoch(1);

fn member(node: u16, joining: bool, since: u64) -> MemberCore {
    let core = CoreId { node: NodeId(node), core: 0 };
    MemberCore { core, joining, since: ConfigVersion(since), incarnation: Incarnation(1) }
}

fn shipping() -> Shipping {
    Shipping::new(SHARD, EPOCH, member(1, false, 0).core, Pace::default(), LogEnd::START)
}

fn log(groups: usize) -> Log {
    let mut log = Log::new(SHARD, LogConfig { segment_bytes: 4096, memory_max_bytes: 1 << 20, reserve_percent: 5 });
    for _ in 0..groups {
        append(&mut log);
    }
    log
}

fn append(log: &mut Log) {
    let mut group = log.begin(EPOCH, 1008, Purpose::Normal).expect("room");
    group.entry(EntryKind::Object, 1000);
    group.commit();
}

fn at(millis: u64) -> Tick {
    Tick(1_000_000_000 + millis * 1_000_000)
}

#[derive(Debug)]
enum Sent {
    Append { to: LogEnd, round: Round, synced: LogEnd },
    Copy { segment: SegmentId, total: u32, upto: u32 },
    Fence,
    Attach,
}

fn pump(shipping: &mut Shipping, log: &Log, now: Tick) -> Vec<Sent> {
    let mut out = Effects::new();
    shipping.pump(now, log, &mut out);
    let send = |effect: &Effect| match *effect {
        Effect::Send { head, tail, .. } => {
            let bytes = out.bytes(head);
            let payload = &bytes[FRAME_HEADER_BYTES..];
            Some(match Kind::from_number(bytes[12]).expect("a kind") {
                Kind::Append => {
                    let view = AppendView::decode(payload).expect("an append");
                    let len = tail.map_or(0, |slice| u64::from(slice.len));
                    Sent::Append { to: LogEnd(view.from.0 + len), round: view.round, synced: view.synced }
                }
                _ => match AnyMessage::decode(payload).expect("a message") {
                    AnyMessage::CopySegment(message::CopySegment { segment, total, offset, bytes, .. }) => {
                        Sent::Copy { segment, total, upto: offset + u32::try_from(bytes.0.len()).expect("a part") }
                    }
                    AnyMessage::Fence(_) => Sent::Fence,
                    AnyMessage::Attach(_) => Sent::Attach,
                    other => panic!("{other:?}"),
                },
            })
        }
        _ => None,
    };
    out.queue().iter().filter_map(send).collect()
}

fn empty_report(node: u16) -> FenceReport {
    FenceReport {
        node: NodeId(node),
        end: LogPosition::default(),
        history: Vec::new(),
        intact: false,
        complete: false,
        whole: false,
    }
}

fn peer(shipping: &Shipping, node: u16) -> &Peer {
    shipping.peers().iter().find(|peer| peer.core.node == NodeId(node)).expect("a member")
}

fn report(shipping: &mut Shipping, log: &Log, report: &FenceReport) {
    let attach = peer(shipping, report.node.0).attach();
    shipping.on_fence_report(at(0), log, attach, report, &mut Effects::new());
}

fn attach(shipping: &mut Shipping, log: &Log, node: u16) -> LogEnd {
    report(shipping, log, &empty_report(node));
    let peer = peer(shipping, node);
    let PeerState::Attaching(AttachAt::Join(base)) = peer.state() else { panic!("{:?}", peer.state()) };
    shipping.on_attached(at(0), NodeId(node), peer.attach());
    base
}

fn acknowledge(shipping: &mut Shipping, node: u16, end: LogEnd, round: Round) {
    acknowledge_in(shipping, node, peer(shipping, node).attach(), end, round);
}

fn acknowledge_in(shipping: &mut Shipping, node: u16, attach: AttachId, end: LogEnd, round: Round) {
    let appended = Appended { shard: SHARD, epoch: EPOCH, node: NodeId(node), attach, end, round };
    shipping.on_appended(at(1), &appended);
}

/// Found by the simulator: a member that had been away held more segments than its primary, which had let them go in an earlier
/// epoch and said nothing of that in its own: the member found no room for what it lacked, and stopped.
#[test]
fn what_an_earlier_epoch_synced_is_told_before_anything_is_synced_in_ours() {
    let told = |settled: fn(LogEnd) -> LogEnd| {
        let (mut shipping, log) = (shipping(), log(4));
        let end = log.end().offset;
        shipping.set_members([member(1, false, 0), member(2, false, 0)]);
        attach(&mut shipping, &log, 2);
        shipping.begin_epoch(end, settled(end));
        shipping.want_synced(end);
        let appended = pump(&mut shipping, &log, at(1)).iter().find_map(|sent| match *sent {
            Sent::Append { synced, .. } => Some(synced),
            _ => None,
        });
        assert_eq!(shipping.synced(), LogEnd::START, "nothing is synced in this epoch");
        (appended.expect("a round began"), settled(end), end)
    };
    let (synced, settled, _) = told(|end| LogEnd(end.0 / 2));
    assert_eq!(synced, settled);
    let (synced, _, end) = told(|_| LogEnd::MAX);
    assert_eq!(synced, end, "never beyond the log");
}

#[test]
fn r7_2_a_sync_counts_every_member_of_the_committed_set() {
    let (mut shipping, log) = (shipping(), log(2));
    let end = log.end().offset;
    shipping.set_members([member(1, false, 0), member(2, false, 0), member(3, true, 0)]);
    for node in [2, 3] {
        attach(&mut shipping, &log, node);
    }
    shipping.want_synced(end);
    let round = pump(&mut shipping, &log, at(1)).iter().find_map(|sent| match sent {
        Sent::Append { round, .. } => Some(*round),
        _ => None,
    });
    let round = round.expect("a round began");
    shipping.on_own_durable(end);
    acknowledge(&mut shipping, 2, end, round);
    assert_eq!(shipping.synced(), LogEnd::START, "the joiner counts too");
    assert_eq!(shipping.confirmed().next(), round);
    acknowledge(&mut shipping, 3, end, round);
    assert_eq!((shipping.synced(), shipping.confirmed()), (end, round));
}

#[test]
fn d1_a_set_that_is_reduced_for_a_moment_syncs_nothing() {
    let (mut shipping, log) = (shipping(), log(2));
    let end = log.end().offset;
    shipping.require_peers(1);
    shipping.set_members([member(1, false, 0), member(2, false, 0)]);
    attach(&mut shipping, &log, 2);
    shipping.want_synced(end);
    pump(&mut shipping, &log, at(1));
    shipping.on_own_durable(end);
    shipping.set_members([member(1, false, 0)]);
    assert_eq!(shipping.synced(), LogEnd::START, "one copy");
    shipping.set_members([member(1, false, 0), member(3, true, 2)]);
    attach(&mut shipping, &log, 3);
    pump(&mut shipping, &log, at(2));
    acknowledge(&mut shipping, 3, end, Round(1));
    assert_eq!(shipping.synced(), end);
}

#[test]
fn r7_2_a_joiner_of_an_idle_shard_is_not_complete_before_it_holds_anything() {
    let (mut shipping, log) = (shipping(), log(8));
    let end = log.end().offset;
    shipping.set_members([member(1, false, 0)]);
    shipping.want_synced(end);
    pump(&mut shipping, &log, at(1));
    shipping.on_own_durable(end);
    assert_eq!(shipping.synced(), end);
    // Nothing is written any more when a joiner comes.
    shipping.set_members([member(1, false, 0), member(2, true, 2)]);
    let base = attach(&mut shipping, &log, 2);
    assert!(base > LogEnd::START);
    let mut appended = false;
    for millis in 2..60 {
        for sent in pump(&mut shipping, &log, at(millis)) {
            match sent {
                Sent::Append { to, .. } => appended |= to == end,
                Sent::Copy { .. } => panic!("its head comes first: from it the joiner learns what it lacks"),
                Sent::Fence | Sent::Attach => {}
            }
        }
        assert_eq!(shipping.copied().count(), 0);
    }
    assert!(appended, "the tail is sent although nobody waits for a sync");
    acknowledge(&mut shipping, 2, end, Round(2));
    let mut copied = Vec::new();
    for millis in 60..200 {
        for sent in pump(&mut shipping, &log, at(millis * 30)) {
            let Sent::Copy { segment, total, .. } = sent else { continue };
            copied.push(segment);
            let attach = peer(&shipping, 2).attach();
            shipping.on_segment_copied(at(millis * 30), (NodeId(2), attach), (segment, total), &log);
        }
    }
    assert_eq!(copied.last(), Some(&CLOSING_MARK));
    assert_eq!(shipping.copied().collect::<Vec<_>>(), [NodeId(2)]);
}

/// A primary with a log of many segments, which node 2 joins; and the attachment. Parts of segments are small.
fn joined_by_node_2() -> (Shipping, Log, AttachId) {
    let pace = Pace { copy_bytes: 1024, ..Pace::default() };
    let mut shipping = Shipping::new(SHARD, EPOCH, member(1, false, 0).core, pace, LogEnd::START);
    let log = log(40);
    let end = log.end().offset;
    shipping.set_members([member(1, false, 0)]);
    shipping.want_synced(end);
    pump(&mut shipping, &log, at(1));
    shipping.on_own_durable(end);
    shipping.set_members([member(1, false, 0), member(2, true, 2)]);
    attach(&mut shipping, &log, 2);
    let attach = peer(&shipping, 2).attach();
    (shipping, log, attach)
}

/// The link is cut for half a minute while a part is under way. That part's age says nothing about how long parts take: the next one
/// is lost, too, and sent again soon; and sooner when the transport says that it may be lost.
#[test]
fn after_a_cut_a_lost_part_of_a_segment_is_soon_sent_again() {
    let (mut shipping, log, attach) = joined_by_node_2();
    let parts = |shipping: &mut Shipping, millis: std::ops::Range<u64>| -> Vec<(SegmentId, u32)> {
        let mut parts = Vec::new();
        for millis in millis {
            for sent in pump(shipping, &log, at(millis)) {
                match sent {
                    Sent::Copy { segment, upto, .. } => parts.push((segment, upto)),
                    Sent::Append { to, round, .. } => acknowledge(shipping, 2, to, round),
                    Sent::Fence | Sent::Attach => {}
                }
            }
        }
        parts
    };
    let lost = parts(&mut shipping, 3..30_000);
    assert!((5..20).contains(&lost.len()) && lost.iter().all(|part| *part == lost[0]), "{lost:?}");
    shipping.on_segment_copied(at(30_000), (NodeId(2), attach), lost[0], &log);
    let next = parts(&mut shipping, 30_000..40_000);
    assert!(next.len() == 2 && next.iter().all(|part| *part != lost[0]), "{next:?}");
    let core = member(2, true, 2).core;
    shipping.on_interrupted(at(40_000), core);
    shipping.on_interrupted(at(40_050), core);
    assert_eq!(parts(&mut shipping, 40_000..40_150), [next[0]], "once, when the transport may have dialled again");
}

/// A part that is sent again while it is under way makes a slow link slower. One part teaches how long parts take; the last one of a
/// segment is short, and the link is one after the other.
#[test]
fn on_a_slow_link_parts_of_segments_are_sent_once() {
    for part_takes_millis in [30, 300, 600, 800] {
        let (mut shipping, log, attach) = joined_by_node_2();
        let mut under_way = std::collections::VecDeque::new();
        let mut times_sent: Vec<((SegmentId, u32), u32)> = Vec::new();
        let (mut now, mut link_is_free) = (at(3), at(3));
        while shipping.copied().count() == 0 {
            let mut has_acknowledged = false;
            for sent in pump(&mut shipping, &log, now) {
                let (segment, total, upto) = match sent {
                    Sent::Copy { segment, total, upto } => (segment, total, upto),
                    Sent::Append { to, round, .. } => {
                        acknowledge(&mut shipping, 2, to, round);
                        has_acknowledged = true;
                        continue;
                    }
                    Sent::Fence | Sent::Attach => continue,
                };
                let from = upto.saturating_sub(1) / 1024 * 1024;
                let micros = u64::from(upto - from) * part_takes_millis * 1000 / 1024 + 1000;
                link_is_free = link_is_free.max(now).after(std::time::Duration::from_micros(micros));
                under_way.push_back((link_is_free, segment, upto.min(total)));
                match times_sent.iter_mut().find(|(sent, _)| *sent == (segment, upto)) {
                    Some((_, times)) => *times += 1,
                    None => times_sent.push(((segment, upto), 1)),
                }
            }
            if has_acknowledged {
                // A turn ends after each frame.
                continue;
            }
            let arrives = under_way.front().map(|&(arrives, ..)| arrives);
            now =
                [arrives, shipping.next_deadline()].into_iter().flatten().min().expect("something is awaited").max(now);
            assert!(now < at(600_000), "it does not end: {times_sent:?}");
            if let Some((_, segment, upto)) = under_way.pop_front_if(|(arrives, ..)| *arrives <= now) {
                shipping.on_segment_copied(now, (NodeId(2), attach), (segment, upto), &log);
            }
        }
        let again: Vec<_> = times_sent.iter().enumerate().filter(|(_, (_, times))| *times > 1).collect();
        assert!(times_sent.len() > 30, "{times_sent:?}");
        // What was sent too often before anything was known delays the next part, too.
        assert!(again.iter().all(|(place, (_, times))| *place < 2 && *times <= 4), "{part_takes_millis} ms: {again:?}");
    }
}

#[test]
fn a_member_that_left_and_came_back_begins_anew() {
    let (mut shipping, log) = (shipping(), log(1));
    shipping.set_members([member(1, false, 0), member(2, true, 2)]);
    attach(&mut shipping, &log, 2);
    assert_eq!(shipping.peers()[0].state(), PeerState::Attached);
    shipping.set_members([member(1, false, 0), member(2, true, 5)]);
    assert_eq!(shipping.peers()[0].state(), PeerState::Asking);
}

#[test]
fn what_nobody_waits_for_is_batched_and_what_somebody_waits_for_is_not() {
    let (mut shipping, mut log) = (shipping(), log(1));
    shipping.set_members([member(1, false, 0)]);
    assert!(!shipping.is_in_flight());
    pump(&mut shipping, &log, at(1));
    assert!(!shipping.is_in_flight(), "nobody waits");
    assert_eq!(shipping.next_deadline(), Some(at(6)));
    pump(&mut shipping, &log, at(6));
    assert!(shipping.is_in_flight(), "but not for ever");
    shipping.on_own_durable(log.end().offset);
    append(&mut log);
    shipping.want_synced(log.end().offset);
    pump(&mut shipping, &log, at(7));
    assert!(shipping.is_in_flight(), "somebody waits");
}

/// What was named to nobody for want of company would hold witnesses' slots for ever.
#[test]
fn company_is_waited_for_only_while_a_round_is_near() {
    let (mut shipping, mut log) = (shipping(), log(2));
    shipping.set_members([member(1, false, 0), member(2, false, 0)]);
    attach(&mut shipping, &log, 2);
    assert_eq!(shipping.company(log.end().offset), Company::None, "little is unsynced: the next round may be far");
    while log.end().offset.0 <= Pace::default().sync_bytes / 4 {
        append(&mut log);
    }
    assert_eq!(shipping.company(log.end().offset), Company::Soon, "the next round comes within `sync_interval`");
    shipping.want_synced(log.end().offset);
    pump(&mut shipping, &log, at(1));
    assert_eq!(shipping.company(log.end().offset), Company::Now, "it leaves in this turn");
    pump(&mut shipping, &log, at(1));
    assert_eq!(shipping.company(log.end().offset), Company::Soon, "it has left");
    shipping.on_own_durable(log.end().offset);
    acknowledge(&mut shipping, 2, log.end().offset, Round(1));
    assert_eq!(shipping.company(log.end().offset), Company::None, "all is synced");
}

#[test]
fn a_mismatch_is_heard_in_every_state() {
    let (mut shipping, log) = (shipping(), log(1));
    shipping.set_members([member(1, false, 0), member(2, false, 0)]);
    report(&mut shipping, &log, &empty_report(2));
    let first = peer(&shipping, 2).attach();
    assert!(matches!(peer(&shipping, 2).state(), PeerState::Attaching(_)));
    shipping.on_mismatch(NodeId(2), first);
    assert_eq!(peer(&shipping, 2).state(), PeerState::Asking);
    attach(&mut shipping, &log, 2);
    shipping.on_mismatch(NodeId(2), first);
    assert_eq!(peer(&shipping, 2).state(), PeerState::Attached, "it spoke of an earlier attachment");
}

#[test]
fn r5_5_a_member_in_a_new_process_is_asked_again_although_nothing_is_written() {
    let (mut shipping, log) = (shipping(), log(1));
    shipping.set_members([member(1, false, 0), member(2, false, 0)]);
    attach(&mut shipping, &log, 2);
    let restarted = MemberCore { incarnation: Incarnation(2), ..member(2, false, 0) };
    shipping.set_members([member(1, false, 0), restarted]);
    assert_eq!(shipping.peers()[0].state(), PeerState::Asking);
    assert!(!shipping.all_copied());
    attach(&mut shipping, &log, 2);
    shipping.set_members([member(1, false, 0), restarted]);
    assert_eq!(shipping.peers()[0].state(), PeerState::Attached, "once for each process");
}

#[test]
fn d1_what_was_acknowledged_in_an_earlier_attachment_counts_for_nothing() {
    let (mut shipping, log) = (shipping(), log(3));
    let end = log.end().offset;
    let all = [member(1, false, 0), member(2, false, 0), member(3, true, 2)];
    shipping.set_members(all);
    attach(&mut shipping, &log, 2);
    attach(&mut shipping, &log, 3);
    shipping.want_synced(end);
    pump(&mut shipping, &log, at(1));
    shipping.on_own_durable(end);
    let earlier = peer(&shipping, 3).attach();
    // Its acknowledgement is late; meanwhile it leaves, forgets everything, and comes back.
    shipping.set_members([all[0], all[1]]);
    shipping.set_members([all[0], all[1], member(3, true, 5)]);
    attach(&mut shipping, &log, 3);
    pump(&mut shipping, &log, at(3));
    acknowledge(&mut shipping, 2, end, Round(1));
    acknowledge_in(&mut shipping, 3, earlier, end, Round(1));
    shipping.on_segment_copied(at(5), (NodeId(3), earlier), (CLOSING_MARK, 0), &log);
    assert_eq!(shipping.synced(), LogEnd::START, "it holds nothing");
    assert!(!shipping.all_copied());
    acknowledge(&mut shipping, 3, end, Round(1));
    assert_eq!(shipping.synced(), end);
}

#[test]
fn positions_that_cannot_be_are_not_believed() {
    let mut log = Log::new(SHARD, LogConfig { segment_bytes: 8 << 20, memory_max_bytes: 64 << 20, reserve_percent: 5 });
    (0..3000).for_each(|_| append(&mut log));
    let mut shipping = shipping();
    shipping.set_members([member(1, false, 0), member(2, false, 0)]);
    let false_end = LogPosition { epoch: EPOCH, offset: LogEnd(100_001) };
    let said =
        FenceReport { end: false_end, history: history_of(&log), intact: true, complete: true, ..empty_report(2) };
    report(&mut shipping, &log, &said);
    assert!(matches!(peer(&shipping, 2).state(), PeerState::Attaching(AttachAt::Join(_))), "no group ends there");
    let first = peer(&shipping, 2).attach();
    shipping.on_attached(at(0), NodeId(2), first);
    shipping.want_synced(log.end().offset);
    pump(&mut shipping, &log, at(1));
    acknowledge(&mut shipping, 2, LogEnd(100_001), Round(1));
    for millis in 2..100 {
        pump(&mut shipping, &log, at(millis));
    }
    assert!(peer(&shipping, 2).attach() > first, "asked again");
}

#[test]
fn a_silent_member_is_sent_the_same_ever_more_slowly() {
    let (mut shipping, log) = (shipping(), log(1));
    shipping.set_members([member(1, false, 0), member(2, false, 0)]);
    attach(&mut shipping, &log, 2);
    shipping.want_synced(log.end().offset);
    let appends = |shipping: &mut Shipping, millis: std::ops::Range<u64>| -> usize {
        let is_append = |sent: &Sent| matches!(sent, Sent::Append { .. });
        millis.map(|millis| pump(shipping, &log, at(millis)).iter().filter(|sent| is_append(sent)).count()).sum()
    };
    assert!((5..=8).contains(&appends(&mut shipping, 1..1000)), "25 ms, doubling");
    assert!(appends(&mut shipping, 1000..6000) <= 6, "to a second");
    acknowledge(&mut shipping, 2, LogEnd(log.end().offset.0 - 8), Round(0));
    assert!(shipping.next_deadline().is_some());
}

/// A member lags, and the segment that follows what it was sent is freed. (Two configurations ago it was no member.) It is
/// attached anew, to what is there.
#[test]
fn d4_a_member_that_lacks_what_was_freed_meanwhile_is_attached_anew() {
    let (mut shipping, mut log) = (shipping(), log(3));
    shipping.set_members([member(1, false, 0), member(2, true, 1)]);
    attach(&mut shipping, &log, 2);
    let held = log.end().offset;
    shipping.want_synced(held);
    let round = pump(&mut shipping, &log, at(1)).iter().find_map(|sent| match sent {
        Sent::Append { round, .. } => Some(*round),
        _ => None,
    });
    shipping.on_own_durable(held);
    acknowledge(&mut shipping, 2, held, round.expect("a round began"));
    let next = SegmentId(1);
    (0..9).for_each(|_| append(&mut log));
    let groups = log.groups_from(log.end_before(next)).take_while(|group| group.start < log.segment_base(SegmentId(2)));
    let objects = groups.flat_map(|group| group.entries).filter(|(_, entry)| entry.kind == EntryKind::Object);
    let mut dead: Vec<_> = objects.map(|(at, _)| at).collect();
    log.kill_all(&mut dead);
    assert_eq!(log.freeable(LogEnd::MAX), Some(next));
    let mut group = log.begin(EPOCH, 16, Purpose::Own).expect("room");
    group.segment_freed(next);
    group.commit();
    log.free(next);
    let attached = peer(&shipping, 2).attach();
    shipping.want_synced(log.end().offset);
    pump(&mut shipping, &log, at(2));
    assert_ne!(peer(&shipping, 2).attach(), attached, "another attachment");
    assert!(matches!(peer(&shipping, 2).state(), PeerState::Asking), "{:?}", peer(&shipping, 2).state());
}
