//! A member that lags by more than the window, the bytes that may be on the way to it.

use std::time::Duration;

use kasha_log::{EntryKind, Log, LogConfig, Purpose, Screen};
use kasha_machine::{Effect, Effects};
use kasha_replication::{FenceReport, MemberCore, Pace, Shipping};
use kasha_types::{ConfigVersion, CoreId, Epoch, Incarnation, LogEnd, LogPosition, NodeId, ShardId, Tick};
use kasha_wire::frame::{FRAME_HEADER_BYTES, Kind};
use kasha_wire::hot::{AppendView, Appended};

const SHARD: ShardId = ShardId(0);
const EPOCH: Epoch = Epoch(1);
const CONFIG: LogConfig = LogConfig { segment_bytes: 1 << 20, memory_max_bytes: 1 << 26, reserve_percent: 5 };
const PACE: Pace = Pace {
    retry: Duration::from_millis(25),
    hearing: Duration::from_millis(250),
    sync_interval: Duration::from_millis(5),
    sync_bytes: 16 * 1024,
    append_bytes: 10_000,
    copy_bytes: 10_000,
    window_bytes: 45_000,
};

fn member(node: u16) -> MemberCore {
    let core = CoreId { node: NodeId(node), core: 0 };
    MemberCore { core, joining: false, since: ConfigVersion(1), incarnation: Incarnation(1) }
}

fn at(millis: u64) -> Tick {
    Tick(1_000_000_000 + millis * 1_000_000)
}

fn say(log: &mut Log, payload: usize) {
    let mut group = log.begin(EPOCH, payload + 8, Purpose::Normal).expect("room");
    group.entry(EntryKind::Object, payload);
    group.commit();
}

/// Found by a review: the window ended inside a group, a torn piece was shipped, and the next one began where no group
/// does, which ended the primary's process. Whoever acknowledges all that came in one turn at once got it there.
#[test]
fn a_member_that_lags_by_more_than_the_window_is_sent_whole_groups_only() {
    let mut log = Log::new(SHARD, CONFIG);
    while log.end().offset.0 < 500_000 {
        say(&mut log, 1000);
    }
    let most = catch_up(&log).expect("it catches up");
    assert!(most < PACE.window_bytes + u64::from(PACE.append_bytes), "{most} bytes at once");
}

/// Found by a review: nothing went to anybody any more, and nobody noticed.
#[test]
fn a_gap_at_a_segment_s_end_that_is_wider_than_the_window_stops_nobody() {
    let mut log = Log::new(SHARD, CONFIG);
    while log.end().offset.0 < 500_000 {
        say(&mut log, 1000);
    }
    say(&mut log, 600_000);
    (0..100).for_each(|_| say(&mut log, 1000));
    catch_up(&log).expect("it catches up");
}

/// A member that has nothing gets the whole log, and acknowledges once a turn: the most bytes that came in one turn.
fn catch_up(log: &Log) -> Option<u64> {
    let mut shipping = Shipping::new(SHARD, EPOCH, member(1).core, PACE, LogEnd::START);
    shipping.set_members([member(1), member(2)]);
    shipping.on_own_durable(log.end().offset);
    let mut theirs = Log::new(SHARD, CONFIG);
    let mut out = Effects::new();
    shipping.pump(at(0), log, &mut out);
    let (node, end) = (NodeId(2), LogPosition::default());
    let attach = shipping.peers()[0].attach();
    let report = FenceReport { node, end, history: Vec::new(), intact: false, complete: false, whole: false };
    shipping.on_fence_report(at(0), log, attach, &report, &mut out);
    shipping.on_attached(at(0), node, attach);
    shipping.want_synced(log.end().offset);
    let mut most = 0;
    for turn in 1..50 {
        let mut out = Effects::new();
        shipping.pump(at(turn), log, &mut out);
        let (before, mut last_round) = (theirs.end().offset, None);
        for effect in out.queue() {
            let Effect::Send { head, tail, .. } = *effect else { continue };
            let bytes = out.bytes(head);
            if Kind::from_number(bytes[12]) != Some(Kind::Append) {
                continue;
            }
            last_round = Some(AppendView::decode(&bytes[FRAME_HEADER_BYTES..]).expect("an append").round);
            if let Some(slice) = tail {
                theirs.append_raw(log.slice(slice), Screen::NONE).expect("whole groups, which follow");
            }
        }
        let end = theirs.end().offset;
        most = most.max(end.bytes_since(before));
        if let Some(round) = last_round {
            shipping.on_appended(at(turn), &Appended { shard: SHARD, epoch: EPOCH, node, attach, end, round });
        }
        if shipping.synced() == log.end().offset {
            return Some(most);
        }
    }
    None
}
