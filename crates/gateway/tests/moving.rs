//! Commands that move something between shards, beside a cluster of two shards that a test plays: what is sent, and what is told, when answers are
//! lost, somebody is faster, and time goes by.

use std::collections::BTreeMap;

use kasha_commands::{Command as Name, Item, ReplyWriter};
use kasha_machine::Endpoint;
use kasha_types::{RpcId, ShardId, UnixMillis, slot_of};
use kasha_wire::frame::FRAME_HEADER_BYTES;
use kasha_wire::hot::{AnswerView, ReadAnswerView, ReadView, RequestView};
use kasha_wire::operation::{Check, Command, Condition, Items, PartOperation};
use kasha_wire::{Body, Kind, Level, OutcomeCode, Read};

use super::pages::{SPLIT, World};

const ORIGIN: u64 = 1_700_000_000_000;

/// A value, its version, and when it ends: ClusterTime, 0 for never.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    version: u64,
    value: Vec<u8>,
    ends: u64,
}

/// Who was first under an operation key, its fingerprint, and what each shard has told.
type Kept = (RpcId, u64, BTreeMap<ShardId, Vec<u8>>);

/// The two shards, as one.
#[derive(Default)]
struct Shards {
    held: BTreeMap<Vec<u8>, Held>,
    versions: u64,
    /// What each transaction came to, at each shard.
    told: BTreeMap<RpcId, BTreeMap<ShardId, Vec<u8>>>,
    /// What is kept under operation keys: the request that ran, what it stands for, and the results.
    kept: BTreeMap<Vec<u8>, Kept>,
    /// So many answers to transactions are lost.
    lost: u32,
    /// Before so many transactions somebody else changes this key.
    meddles: Vec<&'static str>,
    /// Parts of all transactions that were executed.
    parts: Vec<String>,
    silent: bool,
}

fn shard_of(key: &[u8]) -> ShardId {
    ShardId(u16::from(slot_of(key).0 >= SPLIT))
}

fn part(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(0);
    out.extend_from_slice(&u32::try_from(bytes.len() + 1).expect("short").to_le_bytes());
    out.push(OutcomeCode::Done as u8);
    out.extend_from_slice(bytes);
}

impl Shards {
    fn put(&mut self, key: &[u8], value: &[u8], ends: u64) {
        self.versions += 1;
        self.held.insert(key.to_vec(), Held { version: self.versions, value: value.to_vec(), ends });
    }

    fn read(&self, read: &Read<'_>) -> Vec<u8> {
        let mut result = vec![OutcomeCode::Done as u8];
        let mut list = |keys: Items<'_>, is_observed: bool| {
            result.extend_from_slice(&keys.count().to_le_bytes());
            for item in keys.iter() {
                let held = self.held.get(item.key);
                let value = held.map_or(&[][..], |held| &held.value);
                let absent = if is_observed { self.versions } else { 0 };
                result.extend_from_slice(&held.map_or(absent, |held| held.version).to_le_bytes());
                result.extend(is_observed.then_some(u8::from(held.is_some())));
                result.extend_from_slice(&u32::try_from(value.len()).expect("short").to_le_bytes());
                result.extend_from_slice(value);
            }
        };
        match *read {
            Read::MultiGet { keys } => list(keys, false),
            Read::Observe { keys } => list(keys, true),
            Read::TimeToLive { key } => match self.held.get(key) {
                None => return vec![OutcomeCode::NotFound as u8],
                Some(held) => {
                    result.extend_from_slice(&held.version.to_le_bytes());
                    result.extend_from_slice(&held.ends.to_le_bytes());
                }
            },
            _ => panic!("{read:?}"),
        }
        result
    }

    fn command(&mut self, command: &Command<'_>) -> Vec<u8> {
        let words: Vec<&[u8]> = command.words().collect();
        let held = self.held.get(words[0]).cloned();
        let number = |number: usize| Item::Number(i64::try_from(number).expect("small"));
        let item = match (command.row().command, &words[1..]) {
            (Name::Del, []) => {
                self.held.remove(words[0]);
                number(usize::from(held.is_some()))
            }
            (Name::Exists, []) => number(usize::from(held.is_some())),
            (Name::StrLen, []) => number(held.as_ref().map_or(0, |held| held.value.len())),
            (Name::Get, []) => held.as_ref().map_or(Item::Nil, |held| Item::Bytes(&held.value)),
            (Name::Set, [value]) => {
                self.put(words[0], value, 0);
                Item::Ok
            }
            (Name::Set, [value, option, unix]) if *option == b"PXAT" => {
                let unix: u64 = std::str::from_utf8(unix).expect("text").parse().expect("a number");
                self.put(words[0], value, unix - ORIGIN);
                Item::Ok
            }
            (other, _) => panic!("{other:?}"),
        };
        let mut reply = Vec::new();
        ReplyWriter(&mut reply).item(item);
        reply
    }

    /// What the transaction comes to at each shard, perhaps under an operation key.
    fn decide(&mut self, body: &Body<'_>) -> BTreeMap<ShardId, Vec<u8>> {
        let Some(name) = body.operation_name() else { return self.execute(body) };
        let key = &[name.first_key, b" ", name.operation_key].concat()[..];
        if let Some((run, fingerprint, kept)) = self.kept.get(key) {
            let participants = body.participants().expect("of several shards").iter();
            let repeated = |shard: ShardId| match *fingerprint == body.fingerprint() {
                false => vec![OutcomeCode::OperationKeyMismatch as u8],
                true => {
                    let run = [run.client.0.to_le_bytes(), run.sequence.0.to_le_bytes()].concat();
                    [&[OutcomeCode::Repeated as u8], &run[..], &kept[&shard]].concat()
                }
            };
            return participants.map(|(shard, _)| (shard, repeated(shard))).collect();
        }
        let told = self.execute(body);
        let is_done = told.values().all(|result| result[0] == OutcomeCode::Done as u8);
        if is_done {
            self.kept.insert(key.to_vec(), (body.head.rpc, body.fingerprint(), told.clone()));
        }
        assert!(is_done || !body.keeps_refusal(), "the keeper would keep it, and this one knows none");
        told
    }

    fn execute(&mut self, body: &Body<'_>) -> BTreeMap<ShardId, Vec<u8>> {
        if let Some(key) = self.meddles.pop() {
            self.put(key.as_bytes(), b"meddled", 0);
        }
        let shards: Vec<ShardId> =
            body.participants().expect("of several shards").iter().map(|(shard, _)| shard).collect();
        for &shard in &shards {
            for (index, part) in body.parts_at(shard).expect("it takes part").iter().enumerate() {
                let PartOperation::Check(Check::Meets { key, condition: Condition::Version(version) }) = part.operation
                else {
                    continue;
                };
                assert_eq!(shard_of(key), shard);
                let found = self.held.get(key).map_or(0, |held| held.version);
                if found != version {
                    let mut failed = vec![OutcomeCode::NotCommitted as u8];
                    failed.extend_from_slice(&u32::try_from(index).expect("few").to_le_bytes());
                    failed.extend_from_slice(&[0, OutcomeCode::ConditionFailed as u8]);
                    failed.extend_from_slice(&found.to_le_bytes());
                    let told = |of: ShardId| match of == shard {
                        true => failed.clone(),
                        false => vec![OutcomeCode::RefusedElsewhere as u8],
                    };
                    return shards.iter().map(|&of| (of, told(of))).collect();
                }
            }
        }
        let mut told = BTreeMap::new();
        for &shard in &shards {
            let parts = body.parts_at(shard).expect("it takes part");
            let mut result = vec![OutcomeCode::Done as u8];
            result.extend_from_slice(&parts.count().to_le_bytes());
            for own in parts.iter() {
                match own.operation {
                    PartOperation::Check(Check::Meets { condition: Condition::Version(version), .. }) => {
                        part(&version.to_le_bytes(), &mut result);
                    }
                    PartOperation::Command(command) => {
                        self.parts.push(command.to_string());
                        part(&self.command(&command), &mut result);
                    }
                    other => panic!("{other:?}"),
                }
            }
            told.insert(shard, result);
        }
        told
    }
}

/// A front, and the cluster that it has.
struct Play {
    world: World,
    shards: Shards,
}

impl Play {
    fn new() -> Self {
        Self { world: World::at(Level::COMMANDS, Some(UnixMillis(ORIGIN))), shards: Shards::default() }
    }

    /// Answers what was asked, until nothing more is.
    fn answer(&mut self) {
        while !self.shards.silent && !self.world.sent.is_empty() {
            for (to, frame) in std::mem::take(&mut self.world.sent) {
                let payload = &frame[FRAME_HEADER_BYTES..];
                if frame[12] == Kind::Read as u8 {
                    self.answer_read(to, payload);
                } else if frame[12] == Kind::Request as u8 {
                    self.answer_update(to, payload);
                }
            }
        }
    }

    fn answer_read(&mut self, to: Endpoint, payload: &[u8]) {
        let view = ReadView::decode(payload).expect("a read");
        let result = self.shards.read(&Read::decode(view.code, view.arguments).expect("a read"));
        let mut answer = Vec::new();
        ReadAnswerView { read_id: view.read_id, result: &result }.encode(&[], &mut answer);
        self.world.frame(to, Kind::ReadAnswer, &answer);
    }

    /// Answers the last try of the read that is under way, and forgets what else was sent.
    fn answer_last_read(&mut self) {
        let sent = std::mem::take(&mut self.world.sent);
        let mut reads = sent.iter().rev().filter(|(_, frame)| frame[12] == Kind::Read as u8);
        let (to, frame) = reads.next().expect("it reads");
        self.answer_read(*to, &frame[FRAME_HEADER_BYTES..]);
    }

    fn answer_update(&mut self, to: Endpoint, payload: &[u8]) {
        let view = RequestView::decode(payload).expect("a request");
        let body = Body::decode(view.body).expect("a body");
        let (rpc, envelope) = (body.head.rpc, view.envelope);
        if !self.shards.told.contains_key(&rpc) {
            let told = self.shards.decide(&body);
            self.shards.told.insert(rpc, told);
        }
        if self.shards.lost > 0 {
            self.shards.lost -= 1;
            return;
        }
        let result = &self.shards.told[&rpc][&envelope.shard];
        let (epoch, attempt, shard) = (envelope.epoch, envelope.attempt, envelope.shard);
        let mut answer = Vec::new();
        AnswerView { rpc, epoch, attempt, synced: true, shard, result }.encode(&[], &mut answer);
        self.world.frame(to, Kind::Answer, &answer);
    }

    /// What a request is told, and the PING behind it, whatever has to be waited for.
    fn told(&mut self, line: &str) -> String {
        self.world.ask(&line.split(' ').collect::<Vec<_>>());
        for _ in 0..400 {
            self.answer();
            if self.world.said.ends_with("+PONG\r\n") || self.world.said.ends_with("+QUEUED\r\n") {
                break;
            }
            self.world.pass(10);
        }
        self.world.said.strip_suffix("+PONG\r\n").unwrap_or(&self.world.said).to_owned()
    }

    /// What `EXEC` tells of these commands.
    fn exec(&mut self, lines: &[&str]) -> String {
        for line in [&["MULTI"], lines].concat() {
            self.world.ask(&line.split(' ').collect::<Vec<_>>());
        }
        // A PING is queued behind each of them.
        self.told("EXEC").replace("+PONG\r\n", "")
    }

    fn value(&self, key: &str) -> Option<(&str, u64)> {
        let held = self.shards.held.get(key.as_bytes())?;
        Some((std::str::from_utf8(&held.value).expect("text"), held.ends))
    }
}

/// Keys of the first shard, and of the second.
fn keys() -> ([String; 2], [String; 2]) {
    let of = |shard: u16| {
        let mut found = (0..).map(|n| format!("k{n}")).filter(move |key| shard_of(key.as_bytes()) == ShardId(shard));
        [found.next().expect("one"), found.next().expect("another")]
    };
    (of(0), of(1))
}

#[test]
fn a_value_moves_with_its_end_and_the_target_gets_its_own_version() {
    let ([a, _], [b, _]) = keys();
    let mut play = Play::new();
    play.shards.put(b.as_bytes(), b"old", 0);
    play.shards.put(a.as_bytes(), b"v", 5_000);
    assert_eq!(play.told(&format!("RENAME {a} {b}")), "+OK\r\n");
    assert_eq!((play.value(&a), play.value(&b)), (None, Some(("v", 5_000))));
    assert_eq!(play.shards.held[b.as_bytes()].version, 3, "R10.7");
    assert_eq!(play.told(&format!("RENAME {a} {b}")), "-ERR no such key\r\n");
    assert_eq!(play.value(&b), Some(("v", 5_000)));
}

#[test]
fn replies_are_those_of_one_shard() {
    let ([a, c], [b, d]) = keys();
    let mut play = Play::new();
    for (line, reply) in [
        ("RENAMENX a b", "-ERR no such key\r\n"),
        ("COPY a b", ":0\r\n"),
        ("MSETNX a 1 b 2", ":1\r\n"),
        ("MSETNX c 1 b 3", ":0\r\n"),
        ("MSETNX c 1 b", "-ERR wrong number of arguments for 'msetnx' command\r\n"),
        ("MSET c 1 b", "-ERR wrong number of arguments for 'mset' command\r\n"),
        ("RENAMENX a b", ":0\r\n"),
        ("COPY a b", ":0\r\n"),
        ("COPY a b REPLACE", ":1\r\n"),
        ("COPY a b nonsense", "-ERR syntax error\r\n"),
        ("COPY a b DB 1", "-ERR COPY works within one database: Kasha does not know DB\r\n"),
        ("RENAMENX a d", ":1\r\n"),
        ("BITOP OR c b d", ":1\r\n"),
        ("BITOP XOR a b d", ":1\r\n"),
        ("BITOP AND d a x", ":1\r\n"),
        ("BITOP NOT d a b", "-ERR BITOP NOT must be called with a single source key.\r\n"),
        ("LCS b c", "$1\r\n1\r\n"),
        ("LCS b c LEN", ":1\r\n"),
        ("LCS b a nonsense", "-ERR syntax error\r\n"),
        ("BITOP AND d x y", ":0\r\n"),
    ] {
        let named = |word: &str| match word {
            "a" => a.clone(),
            "b" => b.clone(),
            "c" => c.clone(),
            "d" => d.clone(),
            "x" => "absent".to_owned(),
            "y" => "none".to_owned(),
            other => other.to_owned(),
        };
        let said = line.split(' ').map(named).collect::<Vec<_>>().join(" ");
        assert_eq!(play.told(&said), reply, "{line}");
    }
    assert_eq!(
        (play.value(&a), play.value(&b), play.value(&c), play.value(&d)),
        (Some(("\0", 0)), Some(("1", 0)), Some(("1", 0)), None)
    );
}

#[test]
fn who_was_overtaken_reads_again() {
    let ([a, _], [b, _]) = keys();
    let mut play = Play::new();
    let a_key: &'static str = a.clone().leak();
    play.shards.put(a.as_bytes(), b"v", 0);
    play.shards.meddles = vec![a_key; 3];
    assert_eq!(play.told(&format!("RENAME {a} {b}")), "+OK\r\n");
    assert_eq!((play.value(&a), play.value(&b)), (None, Some(("meddled", 0))));
    assert_eq!(play.shards.told.len(), 4, "each try is another transaction");
}

#[test]
fn r10_2_who_is_overtaken_until_its_deadline_is_told_that_nothing_was_executed() {
    let ([a, _], [b, _]) = keys();
    let mut play = Play::new();
    let a_key: &'static str = a.clone().leak();
    play.shards.put(a.as_bytes(), b"v", 0);
    play.shards.meddles = vec![a_key; 100_000];
    let told = play.told(&format!("COPY {a} {b}"));
    assert!(told.starts_with("-TRYAGAIN ") && told.contains("(K0317)"), "{told}");
    assert_eq!(play.value(&b), None);
}

#[test]
fn a_lost_answer_is_asked_for_again_and_nothing_is_executed_twice() {
    let ([a, _], [b, _]) = keys();
    for lost in 1..4 {
        let mut play = Play::new();
        play.shards.put(a.as_bytes(), b"v", 0);
        play.shards.lost = lost;
        assert_eq!(play.told(&format!("RENAME {a} {b}")), "+OK\r\n");
        assert_eq!((play.value(&b), play.shards.told.len()), (Some(("v", 0)), 1));
    }
}

#[test]
fn r10_18_what_nobody_answers_is_unknown_and_stays_in_the_way() {
    let ([a, _], [b, _]) = keys();
    let mut play = Play::new();
    play.shards.put(a.as_bytes(), b"v", 0);
    play.shards.lost = u32::MAX;
    let told = play.told(&format!("RENAME {a} {b}"));
    assert!(told.starts_with("-UNKNOWN "), "{told}");
    let later = play.told(&format!("GET {b}"));
    assert!(later.starts_with("-TRYAGAIN "), "{later}");
    play.shards.lost = 0;
    assert_eq!(play.shards.told.len(), 1);
}

#[test]
fn r10_6_in_multi_all_is_one_transaction() {
    let ([a, c], [b, d]) = keys();
    let mut play = Play::new();
    play.shards.put(a.as_bytes(), b"v", 700);
    let told = play.exec(&[
        &format!("GET {a}"),
        &format!("RENAME {a} {b}"),
        &format!("RENAME {a} {b}"),
        &format!("RENAMENX {b} {c}"),
        &format!("GET {c}"),
        &format!("SET {d} w"),
        &format!("MSETNX {a} 1 {b} 2"),
        &format!("COPY {b} {c}"),
    ]);
    let told: Vec<_> = told.split("\r\n").collect();
    assert_eq!(told[1..], ["$1", "v", "+OK", "-ERR no such key", ":1", "$1", "v", "+OK", ":1", ":0", ""]);
    assert_eq!((play.value(&a), play.value(&b), play.value(&c)), (Some(("1", 0)), Some(("2", 0)), Some(("v", 700))));
    assert_eq!(play.shards.told.len(), 1);
}

#[test]
fn r11_14_one_transaction_compares_only_so_much() {
    let ([a, _], [b, _]) = keys();
    let mut play = Play::new();
    play.shards.put(a.as_bytes(), &[b'x'; 1000], 0);
    play.shards.put(b.as_bytes(), &[b'x'; 1000], 0);
    let lcs = format!("LCS {a} {b} LEN");
    let told = play.exec(&[&lcs[..]; 6]);
    assert_eq!((told.matches(":1000").count(), told.matches("send it alone").count()), (4, 2), "{told}");
}

#[test]
fn in_multi_what_was_changed_before_is_not_moved() {
    let ([a, c], [b, _]) = keys();
    let mut play = Play::new();
    let told = play.exec(&[&format!("APPEND {a} x"), &format!("RENAME {a} {b}")]);
    assert!(told.starts_with("-ERR 'rename' has keys of several shards") && told.contains("(K0301)"), "{told}");
    assert!(play.shards.held.is_empty());
    assert_eq!(play.told("EXEC"), "-ERR EXEC without MULTI\r\n");
    let told = play.exec(&["FLUSHDB", &format!("RENAME {a} {b}")]);
    assert!(told.starts_with("-ERR 'rename' has keys of several shards"), "{told}");
    // What changes nothing is no change.
    let told = play.exec(&["FLUSHDB nonsense", &format!("RENAME {a} {b}")]);
    assert!(told.contains("-ERR syntax error\r\n-ERR no such key\r\n"), "{told}");
    // What it overwrites is another matter.
    play.shards.put(c.as_bytes(), b"v", 0);
    let told = play.exec(&[&format!("SET {b} x"), &format!("RENAME {c} {b}")]);
    assert!(told.contains("+OK\r\n+OK\r\n"), "{told}");
    assert_eq!(play.value(&b), Some(("v", 0)));
}

#[test]
fn r10_7_watched_keys_of_both_shards_keep_exec_from_running() {
    let ([a, c], [b, d]) = keys();
    for meddles in [None, Some(&c), Some(&d)] {
        for moves in [false, true] {
            let mut play = Play::new();
            play.shards.put(a.as_bytes(), b"v", 0);
            play.shards.put(d.as_bytes(), b"v", 0);
            assert_eq!(play.told(&format!("WATCH {c} {d}")), "+OK\r\n");
            if let Some(key) = meddles {
                play.shards.put(key.as_bytes(), b"x", 0);
            }
            let line = if moves { format!("RENAME {a} {b}") } else { format!("MSET {a} 1 {b} 2") };
            let told = play.exec(&[&line]);
            match meddles {
                None => assert!(told.contains("+OK"), "{told}"),
                Some(_) => assert_eq!((&told[..], play.value(&b)), ("*-1\r\n", None)),
            }
            // The keys are not watched any more.
            assert!(play.exec(&[&format!("MSET {c} y {b} z")]).contains("+OK"), "{line}");
        }
    }
}

#[test]
fn r10_2_keys_of_several_shards_are_watched_within_the_time_of_one() {
    let ([a, _], [b, _]) = keys();
    let mut play = Play::new();
    play.shards.silent = true;
    play.world.ask(&["WATCH", &a, &b]);
    let mut waited = 0;
    while play.world.said.is_empty() {
        play.world.pass(10);
        waited += 10;
        if waited == 1_000 {
            // The first shard answers late, and the second one never.
            play.answer_last_read();
        }
    }
    assert!(waited <= 1_800 && play.world.said.starts_with("-TRYAGAIN"), "{waited} {}", play.world.said);
}

#[test]
fn r4_9_what_moved_under_a_key_moves_once_and_is_told_again() {
    let ([a, c], [b, d]) = keys();
    let mut play = Play::new();
    play.shards.put(a.as_bytes(), b"v", 900);
    for (key, line, reply) in [
        ("1", format!("RENAME {a} {b}"), "+OK\r\n"),
        ("2", format!("RENAMENX {a} {b}"), "-ERR no such key\r\n"),
        ("3", format!("COPY {b} {a}"), ":1\r\n"),
        ("4", format!("COPY {b} {a}"), ":0\r\n"),
        ("5", format!("BITOP XOR {c} {a} {b} {d}"), ":1\r\n"),
        ("6", format!("MSETNX {d} 1 {{{a}}}n 2"), ":1\r\n"),
        ("7", format!("LCS {a} {b}"), "$1\r\nv\r\n"),
    ] {
        assert_eq!(play.told(&format!("KASHA.ONCE {key} {line}")), reply, "{line}");
        let (runs, held) = (play.shards.kept.len(), play.shards.held.clone());
        // Whatever the keys hold by now.
        for key in [&a, &b, &c, &d] {
            play.shards.put(key.as_bytes(), b"w", 0);
        }
        assert_eq!(play.told(&format!("KASHA.ONCE {key} {line}")), reply, "{line}, again");
        play.shards.held.clear();
        assert_eq!(play.told(&format!("kasha.once {key} TTL 9 {line}")), reply, "{line}, with nothing there");
        assert_eq!(play.shards.kept.len(), runs, "nothing ran");
        play.shards.held = held;
    }
    assert!(play.told(&format!("KASHA.ONCE 1 RENAME {a} {d}")).starts_with("-MISMATCH "));
    assert!(
        play.shards.kept.contains_key(format!("{a} 1").as_bytes())
            && play.shards.kept.contains_key(format!("{b} 3").as_bytes())
    );
}

#[test]
fn r4_9_who_is_overtaken_under_a_key_keeps_nothing() {
    let ([a, c], [b, d]) = keys();
    let (mut play, a_key) = (Play::new(), &*a.clone().leak());
    play.shards.put(a.as_bytes(), b"v", 0);
    play.shards.meddles = vec![a_key; 3];
    assert_eq!(play.told(&format!("KASHA.ONCE k RENAME {a} {b}")), "+OK\r\n");
    assert_eq!(play.value(&b), Some(("meddled", 0)));
    // All of `EXEC`, with watched keys at both shards.
    let exec = |play: &mut Play| {
        assert_eq!(play.told(&format!("WATCH {c} {d}")), "+OK\r\n");
        for line in ["MULTI".to_owned(), format!("RENAME {b} {a}"), format!("SET {d} x")] {
            play.world.ask(&line.split(' ').collect::<Vec<_>>());
        }
        play.told("KASHA.ONCE all EXEC").replace("+PONG\r\n", "")
    };
    play.shards.meddles = vec![&*c.clone().leak()];
    assert_eq!(exec(&mut play), "*-1\r\n");
    assert_eq!(play.value(&a), None);
    for _ in 0..2 {
        assert_eq!(exec(&mut play), "*5\r\n+OK\r\n+OK\r\n");
        assert_eq!((play.value(&a), play.value(&b), play.shards.kept.len()), (Some(("meddled", 0)), None, 2));
    }
}
