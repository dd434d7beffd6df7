//! The rows, beside those of Redis 7.0 (`redis-7.0.txt`: what its `COMMAND` tells of each, one command a line; of a command that Kasha
//! does not have, its name alone).

use std::collections::{BTreeMap, BTreeSet};

use kasha_commands::keys::{self, KeySpec};
use kasha_commands::{Bound, Class, Command, CommandNumber, Flags, Frees, Row, Time, find, find_sub, find_told, later};

const REDIS: &str = include_str!("redis-7.0.txt");

/// Subcommands that Redis has since 7.2.
const NEWER: [&str; 2] = ["client|no-touch", "client|setinfo"];

/// Commands that Redis does not have, and never will: their names begin with Kasha's.
const OWN: [&str; 1] = ["kasha.once"];

fn sorted<'a>(names: impl Iterator<Item = &'a str>, between: &str) -> String {
    names.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(between)
}

fn spec(spec: &KeySpec) -> String {
    let flags: Vec<_> = spec.flags.names().collect();
    format!("{}@{}..{}/{}", flags.join(","), spec.first, spec.last, spec.step)
}

fn line(row: &Row) -> String {
    let (first, last, step) = keys::range(row);
    let columns = [
        row.name.to_owned(),
        row.arity.number().to_string(),
        sorted(row.flags.names(), " "),
        format!("{first} {last} {step}"),
        sorted(row.categories().names(), " "),
        sorted(row.tips.iter().copied(), "|"),
        row.keys.iter().map(spec).collect::<Vec<_>>().join(" "),
    ];
    columns.join("\t")
}

/// The same with a key's flags in one order.
fn with_sorted_flags(line: &str) -> String {
    let Some((before, specs)) = line.rsplit_once('\t') else { return line.to_owned() };
    let specs = specs.split_whitespace().map(|spec| {
        let (flags, range) = spec.split_once('@').expect("flags, and a range");
        format!("{}@{range}", sorted(flags.split(','), ","))
    });
    format!("{before}\t{}", specs.collect::<Vec<_>>().join(" "))
}

#[test]
fn every_row_says_what_redis_says() {
    let of_redis: BTreeMap<_, _> =
        REDIS.lines().map(|line| (line.split('\t').next().expect("a name"), with_sorted_flags(line))).collect();
    for row in Command::ALL {
        if OWN.contains(&row.name) {
            assert!(row.name.starts_with("kasha.") && !of_redis.contains_key(row.name), "{}", row.name);
        } else if !NEWER.contains(&row.name) {
            assert_eq!(Some(&with_sorted_flags(&line(row))), of_redis.get(row.name));
        }
    }
}

#[test]
fn every_command_of_redis_has_a_row_or_comes_later() {
    for name in REDIS.lines().filter_map(|line| line.split('\t').next()) {
        assert_ne!(find_told(name.as_bytes()).is_some(), later::is_later(name.as_bytes()), "{name}");
    }
    assert!(later::is_later(b"LPush") && !later::is_later(b"lpushy"));
}

#[test]
fn a_command_is_found_by_its_name_in_any_case() {
    for row in Command::ALL {
        assert_eq!(row.command.row().name, row.name);
        let upper = row.name.to_ascii_uppercase();
        assert_eq!(find_told(upper.as_bytes()).map(|found| found.command), Some(row.command));
        match row.container() {
            None => assert_eq!(find(upper.as_bytes()).map(|found| found.command), Some(row.command)),
            Some((container, name)) => {
                let container = find(container.as_bytes()).expect("a container");
                let found = find_sub(container, name.to_ascii_uppercase().as_bytes());
                assert_eq!(found.map(|found| found.command), Some(row.command));
                assert!(find(row.name.as_bytes()).is_none(), "{} is no word of a request", row.name);
            }
        }
    }
    for unknown in [&b""[..], b"gets", b"ge", b"get ", b"\xff"] {
        assert!(find(unknown).is_none());
    }
}

#[test]
fn names_and_summaries_are_as_they_should_be() {
    let mut names = BTreeSet::new();
    for row in Command::ALL {
        assert!(names.insert(row.name), "{} has two rows", row.name);
        let own = OWN.contains(&row.name).then(|| row.name.strip_prefix("kasha.").expect("an own name"));
        let name = own.unwrap_or(row.name);
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || b"|-_".contains(&byte)), "{}", row.name);
        assert!(!row.summary.is_empty() && !row.summary.ends_with('.'), "{}: {}", row.name, row.summary);
    }
}

fn positions(command: Command, words: usize) -> Vec<usize> {
    keys::positions(command.row(), words).map(|(at, _)| at).collect()
}

#[test]
fn keys_stand_where_the_row_says() {
    assert_eq!(positions(Command::Get, 2), [1]);
    assert_eq!(positions(Command::MGet, 4), [1, 2, 3]);
    assert_eq!(positions(Command::MSet, 7), [1, 3, 5]);
    assert_eq!(positions(Command::BitOp, 6), [2, 3, 4, 5]);
    assert_eq!(positions(Command::Rename, 3), [1, 2]);
    assert_eq!(positions(Command::Lcs, 5), [1, 2]);
    assert_eq!(positions(Command::Ping, 2), [0; 0]);
    for row in Command::ALL {
        for words in 0..8 {
            assert!(keys::positions(row, words).all(|(at, _)| (1..words).contains(&at)), "{} of {words}", row.name);
            for spec in row.keys {
                let has: Vec<_> = (0..words + 2).filter(|&at| spec.has(at, words)).collect();
                assert_eq!(has, spec.positions(words).collect::<Vec<_>>(), "{} of {words}", row.name);
            }
        }
    }
}

#[test]
fn a_shard_finds_a_command_by_its_number() {
    for row in Command::ALL {
        let Some(number) = row.class.number() else {
            assert!(row.keys.is_empty() || row.command == Command::Watch, "{} has keys", row.name);
            let said = (row.bound, row.time, row.frees);
            assert_eq!(said, (Bound::Front, Time::Never, Frees::Never), "{}", row.name);
            continue;
        };
        assert_eq!(Command::of_number(number).map(|found| found.command), Some(row.command));
        let is_of_table = row.command == Command::FlushDb;
        assert_eq!(
            (row.keys.is_empty(), row.is_of_table()),
            (is_of_table, is_of_table),
            "{} goes to the shard of its keys",
            row.name
        );
        assert_ne!(row.bound, Bound::Front, "{} is executed by shards", row.name);
        // What only frees goes on when memory is full, as in Redis.
        assert!(row.frees == Frees::Never || !row.flags.has(Flags::DENYOOM), "{}", row.name);
        assert_eq!(row.flags.has(Flags::WRITE), matches!(row.class, Class::Changes(_)), "{}", row.name);
    }
    assert!(Command::of_number(CommandNumber(0)).is_none() && Command::of_number(CommandNumber(u16::MAX)).is_none());
}

fn named(is_one: impl Fn(&Row) -> bool) -> Vec<&'static str> {
    Command::ALL.iter().filter(|row| is_one(row)).map(|row| row.name).collect()
}

/// What goes over several shards without coordination must write and answer little, whatever its keys hold (R8.13): a further one is judged here.
#[test]
fn r8_13_what_a_request_bounds() {
    let by_words = named(|row| row.bound == Bound::Words);
    let changes = ["decr", "decrby", "incr", "incrby", "psetex", "setex", "setnx"];
    let reads = ["strlen", "getbit", "expiretime", "pexpiretime", "pttl", "ttl", "type"];
    assert_eq!(by_words, [&changes[..], &reads, &["flushdb"]].concat());
    for row in by_words.iter().filter_map(|name| find(name.as_bytes())) {
        assert!(row.keys.iter().all(KeySpec::is_first), "{} writes to one key", row.name);
    }
}

#[test]
fn r10_12_what_knows_the_time() {
    assert_eq!(named(|row| row.time == Time::Begun), ["psetex", "setex", "expire", "pexpire", "pttl", "ttl"]);
    assert_eq!(named(|row| row.time == Time::Day), ["expiretime", "pexpiretime"]);
    assert_eq!(named(|row| row.time == Time::BegunAndDay), ["expireat", "pexpireat"]);
    assert_eq!(named(|row| row.time == Time::InOptions { behind: 1 }), ["getex"]);
    assert_eq!(named(|row| row.time == Time::InOptions { behind: 2 }), ["set"]);
    assert_eq!(named(|row| row.frees == Frees::Always), ["del", "unlink", "flushdb"]);
    assert_eq!(named(|row| row.frees == Frees::IfOver), ["expire", "pexpire"]);
}
