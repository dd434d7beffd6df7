//! `KASHA.ONCE` beside a cluster of two shards whose nodes a test speaks for: what goes to them, and what is told of their answers.

use kasha_machine::Endpoint;
use kasha_types::ClusterTime;
use kasha_types::limits::OPERATION_KEY_TTL_MILLIS;
use kasha_wire::frame::FRAME_HEADER_BYTES;
use kasha_wire::hot::{AnswerView, ReadAnswerView, ReadView, RequestView};
use kasha_wire::hot::{Refused, encode_small};
use kasha_wire::{Body, Kind, Level, OutcomeCode, Refusal, Update};

use super::pages::World;
use super::redis::told;

/// What the cluster's time is when a world begins.
const NOW: ClusterTime = ClusterTime(1_000);

/// An update that was sent.
pub(super) struct Sent {
    to: Endpoint,
    pub(super) payload: Vec<u8>,
}

impl Sent {
    pub(super) fn body(&self) -> Body<'_> {
        let view = RequestView::decode(&self.payload).expect("a request");
        Body::decode(view.body).expect("a body")
    }

    fn operation_key(&self) -> (&str, u64, u64) {
        let body = self.body();
        let key = std::str::from_utf8(body.operation_key.expect("it has one")).expect("text");
        (key, body.head.not_after.0 - NOW.0, body.fingerprint())
    }
}

impl World {
    pub(super) fn updates(&mut self) -> Vec<Sent> {
        let requests = self.sent.drain(..).filter(|(_, frame)| frame[12] == Kind::Request as u8);
        requests.map(|(to, frame)| Sent { to, payload: frame[FRAME_HEADER_BYTES..].to_vec() }).collect()
    }

    /// The only update that these words become.
    fn update(&mut self, words: &[&str]) -> Sent {
        self.ask(words);
        let mut updates = self.updates();
        assert_eq!((updates.len(), &self.said[..]), (1, ""), "{words:?}");
        updates.remove(0)
    }

    /// A key is watched, and has a value of this version.
    fn watch(&mut self, key: &str, version: u64) {
        self.ask(&["WATCH", key]);
        let mut reads = self.sent.drain(..).filter(|(_, frame)| frame[12] == Kind::Read as u8);
        let (to, frame) = reads.next().expect("it looks at the key");
        drop(reads);
        let read_id = ReadView::decode(&frame[FRAME_HEADER_BYTES..]).expect("a read").read_id;
        let mut result = vec![OutcomeCode::Done as u8];
        result.extend_from_slice(&1_u32.to_le_bytes());
        result.extend_from_slice(&version.to_le_bytes());
        result.push(u8::from(true));
        result.extend_from_slice(&1_u32.to_le_bytes());
        result.push(b'5');
        let mut answer = Vec::new();
        ReadAnswerView { read_id, result: &result }.encode(&[], &mut answer);
        self.frame(to, Kind::ReadAnswer, &answer);
        assert_eq!(self.said, "+OK\r\n+PONG\r\n");
    }

    fn refuse(&mut self, update: &Sent, why: Refusal) {
        let view = RequestView::decode(&update.payload).expect("a request");
        let (rpc, envelope) = (update.body().head.rpc, view.envelope);
        let (epoch, attempt, shard) = (envelope.epoch, envelope.attempt, envelope.shard);
        let mut frame = Vec::new();
        encode_small(Kind::Refuse, &Refused { rpc, attempt, epoch, shard, why }, &mut frame);
        self.frame(update.to, Kind::Refuse, &frame);
    }

    pub(super) fn answer(&mut self, update: &Sent, result: &[u8]) {
        let view = RequestView::decode(&update.payload).expect("a request");
        let (rpc, envelope) = (update.body().head.rpc, view.envelope);
        let (epoch, attempt, shard) = (envelope.epoch, envelope.attempt, envelope.shard);
        let mut frame = Vec::new();
        AnswerView { rpc, epoch, attempt, synced: true, shard, result }.encode(&[], &mut frame);
        self.frame(update.to, Kind::Answer, &frame);
    }
}

fn world() -> World {
    World::at(Level::COMMANDS, None)
}

/// The result of a transaction whose only part told this number.
fn number(number: i64) -> Vec<u8> {
    let mut reply = Vec::new();
    kasha_commands::ReplyWriter(&mut reply).item(kasha_commands::Item::Number(number));
    let mut result = vec![OutcomeCode::Done as u8];
    result.extend_from_slice(&1_u32.to_le_bytes());
    result.push(0);
    result.extend_from_slice(&u32::try_from(reply.len() + 1).expect("short").to_le_bytes());
    result.push(OutcomeCode::Done as u8);
    result.extend_from_slice(&reply);
    result
}

#[test]
fn r4_9_a_command_goes_under_its_key_and_a_mismatch_is_told() {
    let mut world = world();
    let first = world.update(&["KASHA.ONCE", "order-42", "INCR", "visits"]);
    let (key, millis, fingerprint) = first.operation_key();
    assert_eq!((key, millis), ("order-42", OPERATION_KEY_TTL_MILLIS));
    world.answer(&first, &number(7));
    assert_eq!(world.said, ":7\r\n+PONG\r\n");
    // The same command is the same whatever its case, and however long its key is remembered.
    let again = world.update(&["kasha.once", "order-42", "Ttl", "60", "incr", "visits"]);
    assert_eq!(again.operation_key(), ("order-42", 60_000, fingerprint));
    world.answer(&again, &number(7));
    let other = world.update(&["KASHA.ONCE", "order-42", "INCRBY", "visits", "2"]);
    assert_ne!(other.operation_key().2, fingerprint);
    world.answer(&other, &[OutcomeCode::OperationKeyMismatch as u8]);
    assert!(world.said.starts_with("-MISMATCH ") && world.said.contains("(K0334)\r\n+PONG\r\n"), "{}", world.said);
}

/// A query keeps nothing: what only reads goes as an update, too.
#[test]
fn what_only_reads_is_an_update_under_a_key() {
    let mut world = world();
    let read = world.update(&["KASHA.ONCE", "order-42", "TTL", "visits"]);
    assert_eq!(read.operation_key().0, "order-42");
    world.answer(&read, &number(-2));
    assert_eq!(world.said, ":-2\r\n+PONG\r\n");
}

#[test]
fn keys_of_several_shards_are_one_operation() {
    let mut world = world();
    world.ask(&["KASHA.ONCE", "order-42", "MSET", "a", "1", "b", "2", "c", "3", "d", "4"]);
    let updates = world.updates();
    assert_eq!(updates.len(), 2, "each shard is asked");
    assert_eq!(updates[0].operation_key(), updates[1].operation_key());
    assert_eq!(updates[0].body().first_key().1, b"a");
}

#[test]
fn exec_goes_under_its_key_and_leaves_the_transaction() {
    let mut world = world();
    for words in [&["MULTI"][..], &["INCR", "visits"]] {
        world.ask(words);
    }
    // PING was queued twice.
    let exec = world.update(&["KASHA.ONCE", "order-42", "EXEC"]);
    assert_eq!(exec.operation_key().0, "order-42");
    world.answer(&exec, &number(1));
    assert_eq!(world.said, "*3\r\n+PONG\r\n:1\r\n+PONG\r\n+PONG\r\n");
    let plain = world.update(&["INCR", "visits"]);
    assert_eq!(plain.body().operation_key, None);
}

/// Who is refused because a watched key has changed, and tries again with what it is now, hears of no mismatch: versions do not count, and
/// nothing is kept.
#[test]
fn r4_9_watched_keys_are_demanded_and_their_refusal_is_not_kept() {
    let mut world = world();
    let exec = |world: &mut World, watched: &[(&str, u64)], command: &[&str]| {
        watched.iter().for_each(|(key, version)| world.watch(key, *version));
        world.ask(&["MULTI"]);
        world.ask(command);
        world.update(&["KASHA.ONCE", "order-42", "EXEC"])
    };
    let first = exec(&mut world, &[("visits", 3)], &["INCR", "visits"]);
    let Update::Transaction { parts } = first.body().update else { panic!("{:?}", first.body().update) };
    assert_eq!(parts.count(), 2, "a demand, and a command");
    assert!(!first.body().keeps_refusal());
    let mut refused = vec![OutcomeCode::NotCommitted as u8, 0, 0, 0, 0, 0, OutcomeCode::ConditionFailed as u8];
    refused.extend_from_slice(&4_u64.to_le_bytes());
    world.answer(&first, &refused);
    assert_eq!(world.said, "*-1\r\n+PONG\r\n");
    let elsewhere = exec(&mut world, &[("{visits}b", 3), ("{visits}a", 2)], &["INCR", "visits"]);
    assert_eq!(elsewhere.body().first_key().1, b"visits", "what is demanded has no part in the key's name");
    world.answer(&elsewhere, &refused);
    let again = exec(&mut world, &[("visits", 4)], &["INCR", "visits"]);
    assert_eq!(again.operation_key(), first.operation_key());
    world.answer(&again, &refused);
    // What is watched counts, and what is said.
    let other = exec(&mut world, &[("{visits}", 4)], &["INCR", "visits"]);
    assert_ne!(other.operation_key(), first.operation_key());
    world.answer(&other, &refused);
    let other = exec(&mut world, &[("visits", 4)], &["DECR", "visits"]);
    assert_ne!(other.operation_key(), first.operation_key());
    world.answer(&other, &refused);
    let unwatched = exec(&mut world, &[], &["INCR", "visits"]);
    assert!(unwatched.body().keeps_refusal());
    world.answer(&unwatched, &number(1));
}

/// **R11.13** What a key stands for has the command's name, and no number: a release in which the same command has another number is told the
/// receipt. This value is a part of what is kept, and must not change.
#[test]
fn r11_13_a_key_stands_for_names_and_words() {
    let mut world = world();
    let update = world.update(&["KASHA.ONCE", "order-42", "inCR", "visits"]);
    let mut bytes = Vec::new();
    let word = |word: &[u8], bytes: &mut Vec<u8>| {
        bytes.extend_from_slice(&(word.len() as u64).to_le_bytes());
        bytes.extend_from_slice(word);
    };
    bytes.extend_from_slice(&0_u64.to_le_bytes());
    bytes.extend_from_slice(&7_u32.to_le_bytes());
    bytes.extend_from_slice(&2_u64.to_le_bytes());
    word(b"incr", &mut bytes);
    word(b"visits", &mut bytes);
    assert_eq!(update.operation_key().2, kasha_types::body_hash(&bytes).0);
    assert!(update.body().keeps_refusal() && update.body().said().is_some());
}

#[test]
fn what_has_no_record_is_refused_by_its_name() {
    for words in ["PING", "SCAN 0", "MULTI", "WATCH k", "UNWATCH", "DISCARD", "CONFIG GET x", "SELECT 1", "QUIT"] {
        let said = told(format!("KASHA.ONCE o {words}\r\n").as_bytes());
        let name = words.split(' ').next().expect("a word").to_ascii_lowercase();
        assert!(said.starts_with(&format!("-ERR '{name}' cannot go under KASHA.ONCE")), "{said}");
    }
    for (words, refusal) in [
        ("OBJECT ENCODING k", "-ERR 'object' cannot go under KASHA.ONCE"),
        ("KASHA.ONCE p INCR k", "-ERR 'kasha.once' cannot go under KASHA.ONCE"),
        ("EXEC", "-ERR EXEC without MULTI\r\n"),
        ("GET", "-ERR wrong number of arguments for 'get' command\r\n"),
        ("nonsense k", "-ERR unknown command 'nonsense'"),
        ("LPUSH k 1", "-ERR 'lpush' is a command of Redis that Kasha does not know yet"),
        ("TTL x INCR k", "-ERR value is not an integer or out of range\r\n"),
        ("TTL 0 INCR k", "-ERR invalid expire time in 'kasha.once' command\r\n"),
        ("TTL 9223372036854775807 INCR k", "-ERR invalid expire time in 'kasha.once' command\r\n"),
    ] {
        let said = told(format!("KASHA.ONCE o {words}\r\n").as_bytes());
        assert!(said.starts_with(refusal), "{said}");
    }
    assert_eq!(told(b"KASHA.ONCE o\r\n"), "-ERR wrong number of arguments for 'kasha.once' command\r\n");
    let long = "o".repeat(129);
    for key in [&b"\"\""[..], long.as_bytes()] {
        let said = told(&[b"KASHA.ONCE ", key, b" INCR k\r\n"].concat());
        assert!(said.starts_with("-ERR an operation key has 1 to 128 bytes") && said.contains("(K0308)"), "{said}");
    }
}

#[test]
fn in_a_transaction_it_stands_before_exec_alone() {
    let spoiled = "-EXECABORT Transaction discarded because of previous errors.\r\n";
    let said = told(b"MULTI\r\nKASHA.ONCE o INCR k\r\nKASHA.ONCE o EXEC\r\nEXEC\r\n");
    let lines: Vec<_> = said.split_inclusive("\r\n").collect();
    assert!(lines[1].starts_with("-ERR KASHA.ONCE is not allowed in a transaction, except before EXEC"), "{said}");
    assert_eq!((lines[2], lines[3]), (spoiled, "-ERR EXEC without MULTI\r\n"));
    let said = told(b"MULTI\r\nKASHA.ONCE o nonsense\r\nEXEC\r\n");
    assert!(said.ends_with(spoiled), "{said}");
    // What is not asked of a shard is not kept: the front answers it each time.
    assert_eq!(told(b"MULTI\r\nPING\r\nKASHA.ONCE o TTL 9 EXEC\r\n"), "+OK\r\n+QUEUED\r\n*1\r\n+PONG\r\n");
    let said = told(b"MULTI\r\nPING\r\nKASHA.ONCE o TTL -9 EXEC\r\nEXEC\r\n");
    assert!(
        said.ends_with("-ERR invalid expire time in 'kasha.once' command\r\n-ERR EXEC without MULTI\r\n"),
        "{said}"
    );
}

/// A query may end early (R10.17), and `EXEC` never does.
#[test]
fn r10_6_exec_of_reads_is_one_transaction() {
    let mut world = world();
    for words in [&["MULTI"][..], &["GET", "{a}x"], &["GET", "{a}y"]] {
        world.ask(words);
    }
    let sent = world.update(&["EXEC"]);
    let Update::Transaction { parts } = sent.body().update else { panic!("{:?}", sent.body().update) };
    assert_eq!(parts.count(), 2);
}

/// Found by two reviews: such an outcome is never named, and its keys were refused for ever.
#[test]
fn r10_18_what_nobody_will_ever_know_is_in_nobodys_way() {
    let mut world = world();
    let set = world.update(&["INCR", "visits"]);
    world.refuse(&set, Refusal::LeaseExpired);
    assert!(world.said.starts_with("-UNKNOWN ") && world.said.ends_with("+PONG\r\n"), "{}", world.said);
    world.ask(&["INCR", "visits"]);
    for _ in 0..25 {
        world.tick(100);
    }
    assert!(!world.said.starts_with("-TRYAGAIN it waited for what others do not answer"), "{}", world.said);
}

/// The result of a batch that ended before its first part.
fn early() -> Vec<u8> {
    [&[OutcomeCode::Done as u8][..], &0_u32.to_le_bytes()].concat()
}

/// A batch may end early late. Then its commands have not begun anew, for whoever sent them waits all the while.
#[test]
fn r10_2_a_command_that_did_not_run_with_others_has_the_time_that_is_left() {
    for early_at in [90, 110, 1_100] {
        let mut world = world();
        world.ask_each(&[&["INCR", "{a}x"], &["INCR", "{a}y"]]);
        let mut last = world.updates().remove(0);
        world.tick(early_at);
        last = world.updates().pop().unwrap_or(last); // the session asks again
        world.answer(&last, &early());
        assert_eq!(
            (world.updates().len(), &world.said[..]),
            (2, ""),
            "both go again: the first, and what was behind it"
        );
        let mut passed = early_at;
        while world.said.matches("-UNKNOWN ").count() < 2 {
            world.tick(10);
            passed += 10;
        }
        assert!((1_800..=1_810).contains(&passed), "told after {passed} ms: {}", world.said);
    }
}

#[test]
fn r10_2_what_did_not_run_in_its_time_is_told_so_and_what_nobody_waits_for_goes_on() {
    for (is_answered, said) in [(true, "-TRYAGAIN "), (false, "")] {
        let mut world = world();
        if !is_answered {
            world.ask(&["CLIENT", "REPLY", "OFF"]);
        }
        world.ask(&["INCR", "visits"]);
        let last = world.updates().remove(0);
        world.tick(1_250); // it is cancelled, and has come to nothing all the same
        world.sent.clear();
        world.answer(&last, &early());
        assert!(world.said.starts_with(said), "{}", world.said);
        assert_eq!(world.updates().is_empty(), is_answered);
    }
}

/// What nobody knows the outcome of keeps it from beginning for longer than it may take.
#[test]
fn r10_2_what_begins_too_late_is_refused_and_a_transaction_with_it() {
    for (request, then) in [
        (&["WATCH", "visits"][..], "-EXECABORT "),
        (&["RENAME", "visits", "{visits}2"], "*"),
        (&["MULTI", "INCR visits", "EXEC"], "-ERR EXEC without MULTI"),
    ] {
        let mut world = world();
        world.ask(&["INCR", "visits"]);
        let mut last = world.updates().remove(0);
        while !world.said.contains("-UNKNOWN ") {
            world.tick(10);
            last = world.updates().pop().unwrap_or(last);
        }
        match request {
            ["MULTI", middle, exec] => {
                world.ask(&["MULTI"]);
                world.ask(&middle.split(' ').collect::<Vec<_>>());
                world.ask(&[exec]);
            }
            alone => world.ask(alone),
        }
        for _ in 0..125 {
            world.tick(10);
            last = world.updates().pop().unwrap_or(last);
        }
        world.said.clear();
        world.sent.clear();
        world.answer(&last, &[OutcomeCode::Cancelled as u8]);
        assert!(world.said.starts_with("-TRYAGAIN "), "{request:?}: {}", world.said);
        if request[0] == "WATCH" || request[0] == "RENAME" {
            world.ask(&["MULTI"]);
        }
        world.said.clear();
        world.ask(&["EXEC"]);
        assert!(world.said.starts_with(then), "{request:?}: {}", world.said);
        assert!(world.updates().is_empty(), "nothing was sent");
    }
}

/// More could not be checked, and each is kept.
#[test]
fn r10_7_so_many_keys_are_watched_and_no_more() {
    let mut world = world();
    let keys: Vec<_> = (0..1025).map(|key| format!("k{key}")).collect();
    let words: Vec<_> = std::iter::once("WATCH").chain(keys.iter().map(String::as_str)).collect();
    world.ask(&words);
    assert!(world.said.starts_with("-ERR a transaction watches at most 1024 keys"), "{}", world.said);
    world.ask(&["MULTI"]);
    world.ask(&["EXEC"]);
    assert!(world.said.starts_with("-EXECABORT "), "{}", world.said);
}

/// Found by a review: what came next went into a database that its program had not chosen.
#[test]
fn r10_6_what_exec_chooses_counts_only_if_it_runs() {
    for (runs, database) in [(false, " db=0 "), (true, " db=3 ")] {
        let mut world = world();
        if !runs {
            world.watch("w", 5);
        }
        for words in [&["MULTI"][..], &["INCR", "w"], &["SELECT", "3"]] {
            world.ask(words);
        }
        let exec = world.update(&["EXEC"]);
        let refused = [&[OutcomeCode::NotCommitted as u8][..], &0_u32.to_le_bytes(), &[0, 0]].concat();
        world.answer(&exec, &if runs { number(6) } else { refused });
        assert!(world.said.starts_with(if runs { "*5\r\n" } else { "*-1\r\n" }), "{}", world.said);
        world.ask(&["CLIENT", "INFO"]);
        assert!(world.said.contains(database), "{}", world.said);
    }
}

/// Found by a review: a driver gives up before the front does, and what it says next on another connection was done first.
pub(super) fn what_its_connection_does_not_wait_for_is_in_the_way_too() {
    for words in [&["SET", "k", "1"][..], &["KASHA.ONCE", "name", "SET", "k", "1"]] {
        let mut world = world();
        let first = world.update(words);
        world.hang_up();
        world.ask(&["SET", "k", "2"]);
        assert!(world.updates().is_empty(), "{words:?}: it ran ahead of what is not known");
        world.answer(&first, &number(1));
        assert_eq!(world.updates().len(), 1, "{words:?}");
    }
}

#[test]
fn r10_18_what_its_connection_does_not_wait_for_is_in_the_way_too() {
    what_its_connection_does_not_wait_for_is_in_the_way_too();
}
