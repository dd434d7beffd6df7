//! Commands of the Redis protocol at a core: which level they need (R7.6), what they know of the time of day (R10.12), and what they may use when
//! memory is full.

use crate::common::{Core, Heard, SHARD, TABLE, configuration};
use kasha_types::{ClusterTime, Epoch, ListVersion, NodeId, UnixMillis};
use kasha_wire::frame::Kind;
use kasha_wire::hot::{Envelope, ReadView};
use kasha_wire::operation::{CommandBuffer, PartOperation, PartsBuffer};
use kasha_wire::outcome::each_part;
use kasha_wire::{Later, Level, OutcomeCode, Read, Refusal, ShardPhase, Update, message};

const BUSY: Option<Heard> = Some(Heard::Refused(Refusal::Busy));

/// The unix time of ClusterTime 0.
const ORIGIN: UnixMillis = UnixMillis(1_700_000_000_000);

fn parts(commands: &[&str]) -> PartsBuffer {
    let mut parts = PartsBuffer::default();
    for command in commands {
        let words: Vec<_> = command.split(' ').map(str::as_bytes).collect();
        let buffer = CommandBuffer::of_words(&words).expect("a command");
        parts.push(TABLE, &PartOperation::Command(buffer.as_command()));
    }
    parts
}

fn body(rpc: (u64, u64), commands: &[&str], begun: u64) -> Vec<u8> {
    let parts = parts(commands);
    let update = Update::Transaction { parts: parts.as_parts() };
    Core::body_with(rpc, rpc.1, None, &update, |head| {
        head.begun = ClusterTime(if update.says_begun() { begun } else { 0 });
    })
}

/// What the commands reply, begun at ClusterTime 1000.
fn run(core: &mut Core, rpc: (u64, u64), commands: &[&str]) -> Option<Heard> {
    let body = body(rpc, commands, 1000);
    core.send(Kind::Request, &body)
}

fn query(core: &mut Core, commands: &[&str]) -> Option<Heard> {
    query_at(core, 0, commands)
}

/// The same, of a client that takes ClusterTime for this.
fn query_at(core: &mut Core, shown: u64, commands: &[&str]) -> Option<Heard> {
    let (parts, mut arguments) = (parts(commands), Vec::new());
    let read = Read::Query { queries: parts.as_parts() };
    read.encode_arguments(&mut arguments);
    let (shard, epoch, list) = (SHARD, core.epoch, ListVersion::NONE);
    let envelope = Envelope { shard, epoch, list, cluster_time: ClusterTime(shown), attempt: 1, turn: None };
    let mut frame = Vec::new();
    ReadView { envelope, read_id: 1, table: TABLE, code: read.code(), arguments: &arguments }.encode(&mut frame);
    core.shell.sent.clear();
    core.frame(Kind::Read, &frame);
    core.heard()
}

fn replies(heard: Option<Heard>) -> Vec<Vec<u8>> {
    let (Some(Heard::Answer { result, .. }) | Some(Heard::Read(result))) = heard else { panic!("{heard:?}") };
    assert_eq!(result[0], OutcomeCode::Done as u8);
    each_part(&result).map(<[u8]>::to_vec).collect()
}

// Replies, as results have them.
const NIL: &[u8] = &[0];
const OK: &[u8] = &[2];

fn number(number: i64) -> Vec<u8> {
    [&[5][..], &number.to_le_bytes()].concat()
}

fn bytes(bytes: &[u8]) -> Vec<u8> {
    let len = u32::try_from(bytes.len()).expect("short");
    [&[6][..], &len.to_le_bytes(), bytes].concat()
}

fn tell(core: &mut Core, version: u64, level: Level, origin: Option<UnixMillis>) {
    let (epoch, phase) = (core.epoch.0, ShardPhase::Serving);
    let unix_origin = Later::at(level, origin);
    core.message(message::ConfigurationIs { configuration: configuration(version, epoch, phase), level, unix_origin });
}

#[test]
fn r7_6_a_command_waits_until_the_cluster_has_its_level() {
    let mut core = Core::serving();
    assert_eq!(run(&mut core, (1, 1), &["set k v"]), BUSY);
    assert!(matches!(query(&mut core, &["get k"]), Some(Heard::ReadRefused)));
    tell(&mut core, 3, Level::COMMANDS, None);
    assert_eq!(replies(run(&mut core, (1, 1), &["set k v"])), [OK.to_vec()]);
    assert_eq!(replies(query(&mut core, &["get k"])), [bytes(b"v")]);
}

#[test]
fn r10_12_an_end_is_told_as_it_was_said() {
    let mut core = Core::serving();
    tell(&mut core, 3, Level::COMMANDS, None);
    // In 2024, and in September 2020.
    let (said, past) = ("1704067200123", "1600000000");
    assert_eq!(replies(run(&mut core, (1, 1), &["set k v", "expire k 100"])), [OK.to_vec(), number(1)]);
    let pexpireat = format!("pexpireat k {said}");
    for unknown in [&pexpireat[..], "pexpiretime k", "set k v exat 1704067200"] {
        assert_eq!(run(&mut core, (1, 2), &["set k w", unknown]), BUSY, "{unknown}");
    }
    assert!(matches!(query(&mut core, &["expiretime k"]), Some(Heard::ReadRefused)));
    assert_eq!(replies(query(&mut core, &["get k", "pttl k"])), [bytes(b"v"), number(100_000)]);
    tell(&mut core, 4, Level::COMMANDS, Some(ORIGIN));
    assert_eq!(
        replies(run(&mut core, (1, 2), &["pexpiretime k", &pexpireat, "pexpiretime k", "expiretime k", "pttl k"])),
        [number(1_700_000_101_000), number(1), number(1_704_067_200_123), number(1_704_067_200), number(4_067_199_123)]
    );
    // A later configuration says the same, and one that says something else is wrong.
    tell(&mut core, 5, Level::COMMANDS, Some(UnixMillis(1)));
    assert_eq!(replies(query(&mut core, &["pexpiretime k"])), [number(1_704_067_200_123)]);
    let over = format!("expireat k {past}");
    assert_eq!(replies(run(&mut core, (1, 3), &[&over, "exists k"])), [number(1), number(0)]);
}

/// Lifetimes count from what a client takes ClusterTime for, which may be ahead of what its primary has heard.
#[test]
fn r10_12_no_more_is_left_of_a_lifetime_than_was_said() {
    let mut core = Core::serving();
    tell(&mut core, 3, Level::COMMANDS, None);
    let left = |core: &mut Core, shown| replies(query_at(core, shown, &["pttl k"]));
    // `set` begins at 1000.
    assert_eq!(replies(run(&mut core, (1, 1), &["set k v px 1500"])), [OK.to_vec()]);
    assert_eq!(left(&mut core, 1_000), [number(1_500)]);
    core.tick(60);
    for (shown, is_left) in [(0, 1_500 - 35), (1_060, 1_440), (1_086, 1_414), (1_087, 1_414), (u64::MAX, 1_414)] {
        assert_eq!(left(&mut core, shown), [number(is_left)], "60 ms are over, and a client says {shown}");
    }
    // The core counts on, and is not set back by who shows less.
    core.coordinator_says_it_is(1_060);
    core.tick(40);
    for (shown, is_left) in [(0, 1_402), (1_098, 1_402), (1_100, 1_400)] {
        assert_eq!(left(&mut core, shown), [number(is_left)], "100 ms are over, and a client says {shown}");
    }
    // Nothing is left, and the value is there: it ends by the log alone.
    core.tick(1_400);
    assert_eq!(replies(query_at(&mut core, 2_500, &["pttl k", "get k"])), [number(0), bytes(b"v")]);
    core.coordinator_says_it_is(2_500);
    assert_eq!(left(&mut core, 2_500), [number(-2)]);
}

/// Who does not wait for the time of day is told that nothing was executed (R10.2).
#[test]
fn r2_2_what_waits_for_the_time_of_day_can_be_cancelled() {
    let mut core = Core::serving();
    tell(&mut core, 3, Level::COMMANDS, None);
    let commands = ["set k v exat 1704067200"];
    assert_eq!(run(&mut core, (1, 1), &commands), BUSY);
    let cancelled = core.send(Kind::Cancel, &body((1, 1), &commands, 1000));
    let is_cancelled = |heard: &Option<Heard>| matches!(heard, Some(Heard::Answer { result, .. }) if result[..] == [OutcomeCode::Cancelled as u8]);
    assert!(is_cancelled(&cancelled), "{cancelled:?}");
    tell(&mut core, 4, Level::COMMANDS, Some(ORIGIN));
    let late = run(&mut core, (1, 1), &commands);
    assert!(is_cancelled(&late), "{late:?}");
}

/// A primary promises `EXPIREAT` after one round trip, and dies. The next one has the time of day from the configuration that promotes it.
#[test]
fn r10_11_what_knows_the_time_of_day_replays_to_the_same() {
    let commands = ["set k v pxat 1700000500000", "pexpiretime k", "pexpire k 70000 gt", "pttl k", "pexpiretime k"];
    let mut core = Core::serving();
    tell(&mut core, 3, Level::COMMANDS, Some(ORIGIN));
    let first = run(&mut core, (1, 1), &commands);
    let restarted = |origin: Option<UnixMillis>| {
        let mut core = Core::serving();
        core = Core::start(core.shell.files, core.memory_max_bytes);
        let mut promoted = configuration(4, 2, ShardPhase::Recovering);
        promoted.shards[0].recover_from = vec![NodeId(1)];
        promoted.shards[0].witnesses = vec![NodeId(2)];
        let (level, unix_origin) = (Level::COMMANDS, Later::at(Level::COMMANDS, origin));
        core.message(message::ConfigurationIs { configuration: promoted, level, unix_origin });
        core.heartbeat_answered();
        core.epoch = Epoch(2);
        core.witness_holds(2, &[body((1, 1), &commands, 1000)]);
        tell(&mut core, 5, Level::COMMANDS, origin);
        core
    };
    let mut core = restarted(Some(ORIGIN));
    assert_eq!(replies(query(&mut core, &["pexpiretime k"])), [number(1_700_000_500_000)], "it was replayed");
    let again = run(&mut core, (1, 1), &commands);
    assert_eq!(replies(again), replies(first));
    // Nobody can have answered it if this one does not know the time of day: it runs when its client sends it again.
    let mut core = restarted(None);
    assert_eq!(replies(query(&mut core, &["get k"])), [NIL.to_vec()]);
    assert_eq!(run(&mut core, (1, 1), &commands), BUSY);
}

#[test]
fn commands_that_only_free_go_on_when_memory_is_full() {
    let mut core = Core::serving_with(8 << 20);
    tell(&mut core, 3, Level::COMMANDS, None);
    let mut sequence = 0;
    let mut next = |core: &mut Core, commands: &[&str]| {
        sequence += 1;
        run(core, (1, sequence), commands)
    };
    let full = Some(Heard::Refused(Refusal::OutOfMemory));
    // What large values leave is for smaller ones.
    for (name, bytes) in [("k", 100_000), ("m", 1_000), ("s", 1)] {
        let value = "x".repeat(bytes);
        let refused = (1..).find(|key| next(&mut core, &[&format!("set {name}{key} {value}")]) == full);
        assert!(refused.is_some());
    }
    for refused in [&["del k1", "set k2 v"][..], &["del k1", "get k2"], &["getdel k1"], &["pexpire k1 100"]] {
        assert_eq!(next(&mut core, refused), full, "{refused:?}");
    }
    let free = [&["del k3"][..], &["unlink k4 k5"], &["pexpire k6 -1"], &["del k7", "del k8"]];
    for commands in free {
        let told = replies(next(&mut core, commands));
        assert!(told.iter().all(|told| *told != number(0)), "{commands:?}");
    }
    // Their records alone are more than the memory; each leaves nothing behind.
    let absent = format!("del {}", "y".repeat(60_000));
    for _ in 0..300 {
        assert_eq!(replies(next(&mut core, &[&absent])), [number(0)]);
    }
}
