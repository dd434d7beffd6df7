//! Freed segments, joiners that copy, and what a loss of power leaves.

use std::time::Duration;

use crate::common::cluster::{Cluster, LIST, member};
use crate::common::{Core, Files, Heard, SHARD, configuration};
use kasha_log::{EntryKind, Log, LogConfig, Purpose, entry_bytes};
use kasha_machine::{Effect, Effects, Endpoint, FileName};
use kasha_replication::{FenceReport, MemberCore, Pace, Shipping};
use kasha_types::{BootId, ConfigVersion, CoreId, Epoch, Incarnation, LogEnd, NodeId, Round, SegmentId, Tick};
use kasha_wire::frame::{FRAME_HEADER_BYTES, Kind};
use kasha_wire::hot::{self, AppendView, Appended};
use kasha_wire::{AnyMessage, Member, MemberState, Message, ShardPhase, Update, message};

fn segments(files: &Files) -> Vec<SegmentId> {
    let name = |file: &FileName| match file {
        FileName::Segment { segment, .. } => Some(*segment),
        _ => None,
    };
    files.0.keys().filter_map(name).collect()
}

/// Found by a review: the removal of a freed segment's file could reach the disk before the word of it, and after a loss
/// of power the log ended at the hole.
#[test]
fn d4_a_freed_segment_s_file_goes_after_an_fsync_of_the_word_of_it() {
    let mut core = Core::serving_with(64 << 20);
    let mut sequence = 0;
    let mut put = |core: &mut Core, key: &[u8], value: &[u8]| {
        sequence += 1;
        assert!(core.update((1, sequence), sequence, &Update::put(key, value)).is_some());
    };
    let value = vec![7; 100_000];
    (0..24).for_each(|_| put(&mut core, b"hot", &value));
    put(&mut core, b"cold", b"precious");
    (0..20).for_each(|_| put(&mut core, b"hot", &value));
    let before = segments(&core.shell.files);
    let mut disk = core.shell.files.clone(); // all of it is on the platter
    for _ in 0..20 {
        core.tick(50);
        if core.shell.fsyncs > 0 {
            disk = core.shell.files.clone();
            core.shell.fsyncs = 0;
        }
        // Of what is not fsynced yet, removals reach the platter, and nothing else does.
        let after_power_loss = |name: &FileName| core.shell.files.0.contains_key(name);
        disk.0.retain(|name, _| after_power_loss(name));
        let mut again = Core::start_with(disk.clone(), 64 << 20, |options| {
            options.boot = BootId(2);
            options.incarnation = Incarnation((2 << 32) | 1);
        });
        let mut recovering = configuration(3, 2, ShardPhase::Recovering);
        recovering.shards[0].recover_from = vec![NodeId(1)];
        again.message(message::ConfigurationIs {
            level: kasha_wire::Level::FIRST,
            unix_origin: kasha_wire::Later::absent(),
            configuration: recovering,
        });
        (0..5).for_each(|_| again.tick(30));
        again.message(message::ConfigurationIs {
            level: kasha_wire::Level::FIRST,
            unix_origin: kasha_wire::Later::absent(),
            configuration: configuration(4, 2, ShardPhase::Serving),
        });
        again.heartbeat_answered();
        again.epoch = Epoch(2);
        let Some(Heard::Read(read)) = again.get(b"cold") else { panic!("it serves") };
        assert!(read.ends_with(b"precious"), "it was flushed long before: {read:?}");
    }
    assert!(segments(&core.shell.files).len() < before.len(), "none was freed: {before:?}");
}

/// Keys that come and go within a segment, as jobs and locks do: a tombstone in the very segment that it is needed for held
/// that segment for ever, and a shard filled up with nothing.
#[test]
fn a_segment_of_keys_that_came_and_went_is_freed() {
    let mut core = Core::serving_with(64 << 20);
    let value = vec![7; 100_000];
    for number in 0..1000_u64 {
        let key = format!("job {number}");
        let key = key.as_bytes();
        let sequence = 2 * number + 1;
        assert!(core.update((1, sequence), sequence, &Update::put(key, &value)).is_some());
        assert!(core.update((1, sequence + 1), sequence + 1, &Update::delete(key)).is_some(), "job {number}");
        core.tick(20);
    }
    assert!(segments(&core.shell.files).len() <= 4, "{:?}", segments(&core.shell.files));
    // Who reads the log again finds none of them either.
    let mut recovering = configuration(3, 2, ShardPhase::Recovering);
    recovering.shards[0].recover_from = vec![NodeId(1)];
    let files = core.shell.files.clone();
    let mut again = Core::start_with(files, 64 << 20, |options| options.incarnation = Incarnation((2 << 32) | 1));
    again.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: recovering,
    });
    (0..5).for_each(|_| again.tick(30));
    again.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: configuration(4, 2, ShardPhase::Serving),
    });
    again.heartbeat_answered();
    again.epoch = Epoch(2);
    for number in 0..1000_u64 {
        let read = again.get(format!("job {number}").as_bytes());
        assert!(matches!(&read, Some(Heard::Read(read)) if read.len() == 1), "job {number}: {read:?}");
    }
}

const PRIMARY: CoreId = CoreId { node: NodeId(2), core: 0 };
const JOINER: CoreId = CoreId { node: NodeId(1), core: 0 };

/// A primary by hand, which copies its log to a joiner.
struct Primary {
    epoch: Epoch,
    log: Log,
    shipping: Shipping,
    now: Tick,
}

impl Primary {
    fn new() -> Self {
        let config = LogConfig { segment_bytes: 1 << 20, memory_max_bytes: 1 << 28, reserve_percent: 5 };
        let mut log = Log::new(SHARD, config);
        while log.segments().last().is_none_or(|(id, _)| id < SegmentId(7)) {
            let mut group = log.begin(Epoch(1), 100_000, Purpose::Own).expect("room");
            group.entry(EntryKind::EpochStart, 99_000);
            group.commit();
        }
        let mut shipping = Shipping::new(SHARD, Epoch(1), PRIMARY, Pace::default(), log.end().offset);
        let since = ConfigVersion(1);
        shipping.set_members([MemberCore { core: JOINER, joining: true, since, incarnation: Incarnation(1) }]);
        Self { epoch: Epoch(1), log, shipping, now: Tick(1_000_000_000) }
    }

    fn say(&mut self, group_bytes: usize, what: impl FnOnce(&mut kasha_log::GroupWriter<'_>)) {
        let mut group = self.log.begin(self.epoch, group_bytes, Purpose::Own).expect("room");
        what(&mut group);
        group.commit();
    }

    fn carry(&self, out: &Effects, joiner: &mut Core) {
        for effect in out.queue() {
            let Effect::Send { head, tail, .. } = *effect else { continue };
            let mut frame = out.bytes(head).to_vec();
            frame.extend_from_slice(tail.map_or(&[][..], |slice| self.log.slice(slice)));
            joiner.frame_from(Endpoint::Core(PRIMARY), Kind::from_number(frame[12]).expect("a frame"), &frame);
        }
    }

    fn hear(&mut self, frame: &[u8], out: &mut Effects) {
        let (now, payload) = (self.now, &frame[FRAME_HEADER_BYTES..]);
        if frame[12] == Kind::Appended as u8 {
            return self.shipping.on_appended(now, &hot::decode_small::<Appended>(payload).expect("an ack"));
        }
        match AnyMessage::decode(payload).expect("a message") {
            AnyMessage::FenceReport(report) => {
                let message::FenceReport { node, attach, end, history, intact, complete, whole, .. } = report;
                let report = FenceReport { node, end, history, intact, complete, whole };
                self.shipping.on_fence_report(now, &self.log, attach, &report, out);
            }
            AnyMessage::Attached(message::Attached { node, attach, .. }) => {
                self.shipping.on_attached(now, node, attach)
            }
            AnyMessage::SegmentCopied(message::SegmentCopied { node, attach, segment, offset, .. }) => {
                self.shipping.on_segment_copied(now, (node, attach), (segment, offset), &self.log);
            }
            _ => {}
        }
    }

    fn turn(&mut self, joiner: &mut Core) {
        self.now = self.now.after(Duration::from_millis(5));
        joiner.now = self.now;
        self.shipping.on_own_durable(self.log.end().offset);
        let mut out = Effects::new();
        self.shipping.pump(self.now, &self.log, &mut out);
        self.carry(&out, joiner);
        joiner.tick(0);
        for (to, frame) in std::mem::take(&mut joiner.shell.sent) {
            if to == Endpoint::Core(PRIMARY) {
                let mut out = Effects::new();
                self.hear(&frame, &mut out);
                self.carry(&out, joiner);
            }
        }
        assert_eq!(joiner.shell.stopped, None);
    }
}

/// A member that joins the scripted primary.
fn joiner(memory_max_bytes: u64) -> Core {
    let mut joiner = Core::start(Files::default(), memory_max_bytes);
    let mut config = configuration(1, 1, ShardPhase::Serving);
    config.faults = 1;
    config.shards[0].primary = PRIMARY.node;
    let member = |node, state| Member { node, state, since: ConfigVersion(1) };
    config.shards[0].members =
        vec![member(PRIMARY.node, MemberState::Complete), member(JOINER.node, MemberState::Joining)];
    joiner.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: config,
    });
    joiner
}

/// Found by a review: the parts that had come were thrown away with the last one, and only that was sent again, for ever.
#[test]
fn a_joiner_without_room_for_a_segment_gets_it_when_there_is_room() {
    let mut joiner = joiner(2 << 20); // two segments of 1 MiB, and five that a backup may hold besides
    let mut primary = Primary::new();
    (0..100).for_each(|_| primary.turn(&mut joiner));
    assert!(!primary.shipping.all_copied(), "there is no room for all of it");
    for id in 0..3 {
        primary.say(entry_bytes(4), |group| {
            group.segment_freed(SegmentId(id));
        });
    }
    (0..100).for_each(|_| primary.turn(&mut joiner));
    while let Some(id) = primary.log.retired(primary.shipping.synced()) {
        primary.log.free(id);
    }
    for _ in 0..10 {
        primary.say(64, |group| {
            group.entry(EntryKind::EpochStart, 0);
        });
        (0..20).for_each(|_| primary.turn(&mut joiner));
    }
    assert!(primary.shipping.all_copied(), "{:?}", primary.shipping.peers()[0].progress());
}

/// The scripted primary begins its next term with this member and with one that nobody hears.
fn next_term(primary: &mut Primary) -> MemberCore {
    let of_set = |core| MemberCore { core, joining: false, since: ConfigVersion(2), incarnation: Incarnation(1) };
    primary.epoch = Epoch(2);
    primary.shipping = Shipping::new(SHARD, Epoch(2), PRIMARY, Pace::default(), LogEnd::START);
    primary.shipping.set_members([of_set(JOINER), of_set(CoreId { node: NodeId(3), core: 0 })]);
    of_set(JOINER)
}

/// Found by the simulator, `rebuild` 324, with the checker `freed_when_synced`: a member let go of what its primary had freed by
/// a word that other members lacked. A log that was cut before that word was a copy with a hole.
#[test]
fn r4_4_what_a_primary_freed_stays_at_a_member_until_the_word_of_it_is_synced() {
    let mut member = joiner(64 << 20);
    let mut primary = Primary::new();
    (0..100).for_each(|_| primary.turn(&mut member));
    assert!(primary.shipping.all_copied());
    // The next term begins with a log that says so, and with a member that nobody hears.
    primary.say(entry_bytes(4), |group| {
        group.segment_freed(SegmentId(0));
    });
    primary.log.free(SegmentId(0));
    let own = next_term(&mut primary);
    (0..100).for_each(|_| primary.turn(&mut member));
    assert_eq!(primary.shipping.peers()[0].acknowledged(), primary.log.end().offset, "it holds the word");
    assert!(segments(&member.shell.files).contains(&SegmentId(0)), "the word is not synced");
    primary.shipping.set_members([own]);
    for _ in 0..20 {
        primary.say(64, |group| {
            group.entry(EntryKind::EpochStart, 0);
        });
        (0..20).for_each(|_| primary.turn(&mut member));
    }
    assert!(!segments(&member.shell.files).contains(&SegmentId(0)), "now it goes");
}

/// Found by a review: what was synced before its log was cut passed for synced in what it got instead.
#[test]
fn r4_4_a_word_where_something_synced_was_cut_off_is_not_synced_for_that() {
    let mut member = joiner(64 << 20);
    let mut primary = Primary::new();
    (0..100).for_each(|_| primary.turn(&mut member));
    // Every machine but the member's loses power, and what was flushed last.
    let ends: Vec<_> = primary.log.groups().map(|group| group.end).collect();
    primary.log.truncate(ends[ends.len() - 2]).expect("a group ends there");
    let own = next_term(&mut primary);
    primary.say(entry_bytes(4), |group| {
        group.segment_freed(SegmentId(0));
    });
    (0..100).for_each(|_| primary.turn(&mut member));
    assert_eq!(primary.shipping.peers()[0].acknowledged(), primary.log.end().offset, "it holds the word");
    assert!(segments(&member.shell.files).contains(&SegmentId(0)), "the word is not synced");
    primary.shipping.set_members([own]);
    (0..100).for_each(|_| primary.turn(&mut member));
    primary.say(64, |group| {
        group.entry(EntryKind::EpochStart, 0);
    });
    (0..100).for_each(|_| primary.turn(&mut member));
    assert!(!segments(&member.shell.files).contains(&SegmentId(0)), "now it goes");
}

/// Found by a review: a member that lagged had heard how far others held the log, and took that for true of another log, which went
/// on where its own ended.
#[test]
fn r4_4_what_a_lagging_member_heard_of_a_log_says_nothing_of_the_one_that_replaces_it() {
    let mut member = joiner(64 << 20);
    let mut primary = Primary::new();
    (0..100).for_each(|_| primary.turn(&mut member));
    let (end, attach) = (primary.log.end().offset, primary.shipping.peers()[0].attach());
    let far = LogEnd(end.0 + 100_000);
    let mut lagging = Vec::new();
    let append =
        AppendView { shard: SHARD, epoch: Epoch(1), attach, from: far, synced: far, round: Round(99), bytes: &[] };
    append.encode(&[], &mut lagging);
    member.frame_from(Endpoint::Core(PRIMARY), Kind::Append, &lagging);
    // Those who held that lose power, and it. The next log goes on where the member's ends.
    let own = next_term(&mut primary);
    primary.say(entry_bytes(4), |group| {
        group.segment_freed(SegmentId(0));
    });
    (0..100).for_each(|_| primary.turn(&mut member));
    assert_eq!(primary.shipping.peers()[0].acknowledged(), primary.log.end().offset, "it holds the word");
    assert!(segments(&member.shell.files).contains(&SegmentId(0)), "the word is not synced");
    primary.shipping.set_members([own]);
    (0..100).for_each(|_| primary.turn(&mut member));
    primary.say(64, |group| {
        group.entry(EntryKind::EpochStart, 0);
    });
    (0..100).for_each(|_| primary.turn(&mut member));
    assert!(!segments(&member.shell.files).contains(&SegmentId(0)), "now it goes");
}

/// Whether nothing is missing in a node's files, for who reads them now.
fn is_whole(cluster: &Cluster, node: u16) -> bool {
    let config = LogConfig { segment_bytes: 1 << 20, memory_max_bytes: 1 << 26, reserve_percent: 5 };
    Log::load(SHARD, config, cluster.segments(node)).1.damage.is_none()
}

/// Found by a review: it let go of them at once, and until the words of it came its log passed for one that lacks them.
#[test]
fn d4_what_was_freed_while_a_member_was_away_stays_until_it_has_the_words_of_it() {
    let mut cluster = Cluster::serving();
    let value = vec![b'x'; 100_000];
    let put = |cluster: &mut Cluster, sequence, key: &[u8]| {
        cluster.update((1, sequence), LIST, &Update::put(key, &value));
        cluster.carry();
    };
    for sequence in 1..=60 {
        put(&mut cluster, sequence, if sequence == 20 { b"holds its segment" } else { b"k" });
    }
    cluster.settle();
    let before = cluster.segments_on_file(3);
    cluster.commit(|configuration| configuration.shards[0].members.truncate(2));
    put(&mut cluster, 61, b"holds its segment");
    cluster.settle();
    cluster.settle();
    let freed = before.iter().filter(|segment| !cluster.segments_on_file(1).contains(segment));
    assert!(freed.count() > 0, "none was freed: {before:?}");
    cluster.commit(|configuration| {
        let since = configuration.version;
        configuration.shards[0].members.push(Member { state: MemberState::Joining, since, ..member(3) });
    });
    // It is attached; the log does not come yet.
    let mut is_attached = false;
    for _ in 0..3 {
        while let Some(carried) = cluster.on_the_way.pop_front() {
            let attached = message::Attached::decode(&carried.frame[FRAME_HEADER_BYTES..]);
            is_attached |= attached.is_ok_and(|attached| attached.node == NodeId(3));
            if (carried.kind, carried.to) != (Kind::Append, NodeId(3)) {
                cluster.arrive(carried);
            }
        }
        cluster.tick(30);
    }
    assert!(is_attached);
    assert_eq!(cluster.segments_on_file(3), before);
    assert!(is_whole(&cluster, 3));
    for sequence in 1..=3 {
        cluster.settle();
        cluster.update((2, sequence), LIST, &Update::put(b"other", b"v"));
    }
    cluster.settle();
    assert_eq!(cluster.segments_on_file(3), cluster.segments_on_file(1), "now they go");
    assert!(is_whole(&cluster, 3));
}

/// Found by the simulator (`coordinator_outage` 2684993558): a primary was killed when it had logged that a segment is
/// freed, and before anybody else knew. When it started again, it removed the segment's file. The next term cut the entry
/// off, and the log had a hole.
#[test]
fn a_killed_primary_keeps_the_segment_whose_freeing_nobody_has_heard_of() {
    let mut cluster = Cluster::serving();
    let value = vec![b'x'; 100_000];
    let put = Update::put(b"k", &value);
    let freed = |cluster: &Cluster, node| {
        cluster.entries_on_file(node).iter().filter(|kind| **kind == EntryKind::SegmentFreed).count()
    };
    let mut sequence = 0;
    // Nothing that the primary sends from then on arrives.
    while freed(&cluster, 1) == 0 {
        cluster.carry();
        sequence += 1;
        cluster.update((1, sequence), LIST, &put);
        cluster.on(1, |core| core.tick(6));
        assert!(sequence < 100, "no segment is freed");
    }
    cluster.on_the_way.clear();
    assert_eq!((freed(&cluster, 2), freed(&cluster, 3)), (0, 0));
    let held = cluster.segments_on_file(1);
    let files = cluster.cores[0].shell.files.clone();
    cluster.cores[0] = Core::start_with(files, 1 << 26, |options| {
        options.incarnation = Incarnation((2 << 32) | 1);
        options.witness_slots = 64;
    });
    cluster.on(1, |core| core.tick(0));
    assert_eq!(cluster.segments_on_file(1), held);

    cluster.epoch = cluster.epoch.next();
    let epoch = cluster.epoch;
    cluster.commit(|configuration| {
        let shard = &mut configuration.shards[0];
        (shard.epoch, shard.primary, shard.phase) = (epoch, NodeId(2), ShardPhase::Recovering);
        shard.recover_from = vec![NodeId(1), NodeId(2), NodeId(3)];
    });
    for _ in 0..10 {
        cluster.tick(30);
        while let Some(carried) = cluster.on_the_way.pop_front() {
            let says =
                (carried.kind == Kind::Message).then(|| AnyMessage::decode(&carried.frame[FRAME_HEADER_BYTES..]));
            assert!(!matches!(says, Some(Ok(AnyMessage::Mismatch(_)))), "node {} lacks something", carried.from.0);
            cluster.arrive(carried);
        }
    }
    let sizes = |node| cluster.segments(node).map(|(segment, bytes)| (segment, bytes.len())).collect::<Vec<_>>();
    assert_eq!(sizes(1), sizes(2));
}
