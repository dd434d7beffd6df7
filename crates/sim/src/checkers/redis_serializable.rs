//! The history of what programs asked fronts for has a linear order of whole operations, in which every reply is right.
//!
//! An `EXEC` is one operation (R10.6), and comes to nothing exactly if a watched key has changed (R10.7). What a driver may repeat was not executed
//! (R10.2). Beside the order in which programs were told and asked, the order has to agree with two more:
//!
//! - **R10.3** of two requests of a connection that have keys of one slot the first one comes first, and whatever stands behind a `WATCH` or before
//!   it stays there;
//! - **R10.18** what was told to be unknown comes before all that is asked for later, through the same front, for its keys.
//!
//! Keys that are used together are searched together. A flush is in the history of each of these groups: what else its `EXEC` does stands in the
//! history of one.

use std::collections::{BTreeMap, BTreeSet};

use kasha_reference::redis::{self, Database, Reply};
use kasha_types::slot_of;

use crate::checkers::order::{Checked, Found, OPERATIONS_MAX, Step, search_within};
use crate::clock::SimTime;
use crate::redis::draw::group_of;
use crate::redis::history::{Commands, Operation, Told, What};

/// States that are visited of a group: those of a few that are too hard are given up.
const VISITS_MAX: usize = 1_000_000;

/// Commands whose reply is the same whether they change something.
const TOLD_ALIKE: [&[u8]; 8] = [b"FLUSHDB", b"FLUSHALL", b"SET", b"MSET", b"GETSET", b"COPY", b"BITOP", b"RENAME"];

/// An operation, or the end that it gave the value of a key.
struct Whole<'h> {
    number: usize,
    operation: &'h Operation,
    ends: Option<&'h [u8]>,
    keys: Vec<&'h [u8]>,
    before: u128,
    /// It is another group's, and flushes this one.
    only_flushes: bool,
}

impl Whole<'_> {
    fn told(&self) -> Option<&Reply> {
        match &self.operation.told {
            Told::Result(reply) => Some(reply),
            Told::Unknown | Told::NotExecuted => None,
        }
    }

    fn run(&self, database: &mut Database) -> Option<()> {
        let giver = u32::try_from(self.number).expect("few");
        if let Some(key) = self.ends {
            return database.end(key, giver).then_some(());
        }
        if self.only_flushes {
            database.run(&[b"FLUSHDB"], giver);
            return Some(());
        }
        match &self.operation.what {
            What::Command(words) => {
                let expected = database.run(words, giver);
                self.told().is_none_or(|told| expected.is(told)).then_some(())
            }
            What::Watch(key) => {
                database.watch(self.number, key);
                Some(())
            }
            What::Exec { commands, watched } => {
                let (mut is_refused, mut is_sure) = (false, true);
                for watch in watched {
                    match database.unwatch(*watch) {
                        Some(has_changed) => is_refused |= has_changed,
                        // Nobody knows whether it is watched.
                        None => is_sure = false,
                    }
                }
                match self.told() {
                    Some(Reply::Nil) => (is_refused || !is_sure).then_some(()),
                    _ if is_refused => None,
                    told => {
                        let expected: Vec<_> = commands.iter().map(|words| database.run(words, giver)).collect();
                        let Some(Reply::List(list)) = told else { return Some(()) };
                        expected.iter().zip(list).all(|(expected, told)| expected.is(told)).then_some(())
                    }
                }
            }
        }
    }
}

impl Step for Whole<'_> {
    type State = Database;

    fn asked(&self) -> SimTime {
        self.operation.asked
    }

    fn told_at(&self) -> Option<SimTime> {
        self.operation.told_at.filter(|_| self.ends.is_none())
    }

    fn comes_before(&self) -> u128 {
        self.before
    }

    fn meets(&self, other: &Self) -> bool {
        self.keys.iter().any(|key| other.keys.contains(key))
    }

    fn says_what_it_changes(&self) -> bool {
        let is_told_alike = |words: &crate::redis::Words| TOLD_ALIKE.contains(&&words[0][..]);
        self.ends.is_none() && !self.operation.commands().any(is_told_alike)
    }

    fn after(&self, state: &Database) -> Option<Database> {
        let mut after = state.clone();
        self.run(&mut after)?;
        Some(after)
    }
}

/// Whether the first operation has to come before the second one, which was asked for later.
fn is_before(first: &Operation, second: &Operation, all: &[Operation]) -> bool {
    let shares = |same: fn(&[u8], &[u8]) -> bool| {
        let others = second.keys(all);
        first.keys(all).iter().any(|key| others.iter().any(|other| same(key, other)))
    };
    let flushes = first.flushes() || second.flushes();
    if first.connection == second.connection {
        let is_watch = [first, second].iter().any(|operation| matches!(operation.what, What::Watch(_)));
        return is_watch || flushes || shares(|key, other| slot_of(key) == slot_of(other));
    }
    let is_unknown = first.unknown_at.is_some_and(|at| at <= second.asked);
    is_unknown && first.front.is_some() && first.front == second.front && (flushes || shares(|key, other| key == other))
}

/// Whether the operation belongs into the order: what changes nothing and was not told says nothing.
fn counts(operation: &Operation) -> bool {
    let changes = |name: &[u8]| !matches!(name, b"GET" | b"MGET" | b"EXISTS" | b"PTTL" | b"LCS" | b"PING");
    match operation.told {
        Told::Result(_) => true,
        Told::NotExecuted => false,
        Told::Unknown => operation.commands().any(|words| changes(&words[0])),
    }
}

/// The keys whose values get an end of the operation, or may have moved there with theirs.
fn keys_with_ends(operation: &Operation) -> Vec<&[u8]> {
    let gives = |words: &crate::redis::Words| words[0] == b"PEXPIRE" || words.get(3).is_some_and(|word| word == b"PX");
    let keys = operation.commands().flat_map(|words| match &words[0][..] {
        b"RENAME" | b"RENAMENX" | b"COPY" => vec![&words[2][..]],
        _ if gives(words) => redis::keys(words),
        _ => Vec::new(),
    });
    let mut keys: Vec<_> = keys.collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// The steps of a group.
fn steps<'h>(group: u32, numbers: &[usize], all: &'h [Operation]) -> Vec<Whole<'h>> {
    let mut steps: Vec<Whole<'h>> = Vec::new();
    let is_own = |number: usize| all[number].keys(all).first().is_some_and(|key| group_of(key) == Some(group));
    let own = || numbers.iter().filter(|number| is_own(**number));
    let keys_of_group: BTreeSet<&[u8]> = own().flat_map(|number| all[*number].keys(all)).collect();
    for (place, &number) in numbers.iter().enumerate() {
        let operation = &all[number];
        let later = numbers.iter().enumerate().skip(place + 1).take(OPERATIONS_MAX);
        let before = later.filter(|(_, other)| is_before(operation, &all[**other], all));
        let before = before.filter(|(bit, _)| *bit < OPERATIONS_MAX).fold(0, |bits, (bit, _)| bits | 1 << bit);
        let keys = match operation.flushes() {
            true => keys_of_group.iter().copied().collect(),
            false => operation.keys(all),
        };
        steps.push(Whole { number, operation, ends: None, keys, before, only_flushes: !is_own(number) });
    }
    for &number in own() {
        let operation = &all[number];
        let ends = keys_with_ends(operation).into_iter().map(|key| Whole {
            number,
            operation,
            ends: Some(key),
            keys: vec![key],
            before: 0,
            only_flushes: false,
        });
        steps.extend(ends);
    }
    steps
}

/// Adds the flushes to a group's operations: those that may have come between two of them.
fn with_flushes(numbers: &mut Vec<usize>, all: &[Operation], flushes: &[usize]) {
    let first = numbers.iter().map(|number| all[*number].asked).min();
    let last = numbers.iter().map(|number| all[*number].told_at.unwrap_or(SimTime(u64::MAX))).max();
    let is_between = |number: &&usize| {
        let Operation { asked, told_at, .. } = all[**number];
        Some(asked) <= last && (told_at.is_none() || told_at >= first)
    };
    numbers.extend(flushes.iter().filter(is_between));
    numbers.sort_unstable();
    numbers.dedup();
}

/// Checks every group of keys.
#[must_use]
pub fn check(history: &Commands) -> Checked {
    let all = history.operations();
    let mut groups: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    let mut watches: BTreeSet<usize> = BTreeSet::new();
    for operation in all.iter().filter(|operation| counts(operation)) {
        if let What::Exec { watched, .. } = &operation.what {
            watches.extend(watched);
        }
    }
    let says = |number: &usize, operation: &Operation| {
        counts(operation) && (!matches!(operation.what, What::Watch(_)) || watches.contains(number))
    };
    for (number, operation) in all.iter().enumerate().filter(|(number, operation)| says(number, operation)) {
        if let Some(group) = operation.keys(all).first().and_then(|key| group_of(key)) {
            groups.entry(group).or_default().push(number);
        }
    }
    // One that was answered by nothing at all was refused by its watches.
    let is_flush =
        |operation: &Operation| counts(operation) && operation.flushes() && operation.told != Told::Result(Reply::Nil);
    let flushes: Vec<_> = (0..all.len()).filter(|number| is_flush(&all[*number])).collect();
    let mut checked = Checked::default();
    for (group, mut numbers) in groups {
        with_flushes(&mut numbers, all, &flushes);
        let steps = steps(group, &numbers, all);
        let found: Found = search_within(VISITS_MAX, &steps, &Database::default());
        checked.add(&found, || {
            let described = described(&numbers, all);
            format!("redis_serializable: no order explains the keys of group {group}:{described}")
        });
    }
    checked
}

fn described(numbers: &[usize], all: &[Operation]) -> String {
    let mut text = String::new();
    for &number in numbers {
        let Operation { connection, asked, told, told_at, unknown_at, .. } = &all[number];
        let what = match &all[number].what {
            What::Watch(key) => format!("WATCH {}", key.escape_ascii()),
            What::Command(words) => words.join(&b' ').escape_ascii().to_string(),
            What::Exec { commands, watched } => {
                let each = commands.iter().map(|words| words.join(&b' ').escape_ascii().to_string());
                format!("EXEC of {:?}, watching {watched:?}", each.collect::<Vec<_>>())
            }
        };
        let told_at = match (told_at, unknown_at) {
            (Some(at), _) => at.to_string(),
            (None, Some(at)) => format!("UNKNOWN {at}"),
            (None, None) => "unknown".to_owned(),
        };
        text += &format!("\n    {number}: connection {connection} {asked} .. {told_at}  {what}: {told:?}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::draw::words;

    /// Asked for on this connection, at this time, and told this at that time.
    type Asked<'t> = (u64, &'t str, u64, u64, &'t str);

    fn reply(text: &str) -> Told {
        let one = |text: &str| match text.split_once(':') {
            Some(("", number)) => Reply::Number(number.parse().expect("a number")),
            _ if text == "nil" => Reply::Nil,
            _ if text == "OK" => Reply::Word("OK".to_owned()),
            _ => Reply::Bytes(text.as_bytes().to_vec()),
        };
        match text {
            "unknown" => Told::Unknown,
            "not" => Told::NotExecuted,
            list if list.contains('/') => {
                Told::Result(Reply::List(list.split('/').filter(|each| !each.is_empty()).map(one).collect()))
            }
            text => Told::Result(one(text)),
        }
    }

    fn is_fine(operations: &[Asked<'_>]) -> bool {
        let mut history = Commands::default();
        let mut watched: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for &(connection, line, asked, told_at, told) in operations {
            let what = match line.split_once(' ') {
                Some(("WATCH", key)) => What::Watch(key.as_bytes().to_vec()),
                Some(("EXEC", commands)) => What::Exec {
                    commands: commands.split(", ").map(words).collect(),
                    watched: watched.remove(&connection).unwrap_or_default(),
                },
                _ => What::Command(words(line)),
            };
            let is_watch = matches!(what, What::Watch(_));
            let number = history.ask(connection, what, SimTime(asked));
            if is_watch {
                watched.entry(connection).or_default().push(number);
            }
            let front = Some((std::net::SocketAddr::from(([10, 0, 0, 1], 1)), 1));
            history.tell(number, reply(told), SimTime(told_at), front);
        }
        let checked = check(&history);
        assert_eq!((checked.searched, checked.inconclusive), (1, 0));
        checked.violations.is_empty()
    }

    #[test]
    fn replies_have_an_order() {
        let set = (1, "SET 0.a x", 0, 1, "OK");
        assert!(is_fine(&[set, (2, "GET 0.a", 2, 3, "x")]));
        assert!(!is_fine(&[set, (2, "GET 0.a", 2, 3, "nil")]));
        assert!(!is_fine(&[(1, "SET 0.a x", 0, 1, "not"), (2, "GET 0.a", 2, 3, "x")]), "R10.2: it was executed");
        assert!(is_fine(&[(1, "SET 0.a x PX 5", 0, 1, "OK"), (2, "GET 0.a", 2, 3, "nil")]), "its time is over");
    }

    #[test]
    fn r10_3_a_connection_reads_its_own_writes() {
        let both = |reader| [(1, "SET 0.a x", 0, 5, "OK"), (reader, "GET 0.a", 0, 5, "nil")];
        assert!(is_fine(&both(2)));
        assert!(!is_fine(&both(1)));
    }

    #[test]
    fn what_is_unknown_may_have_come_before_who_sees_no_difference() {
        let told = [
            (1, "SET 0.a x", 0, 1, "OK"),
            (1, "APPEND 0.a y", 2, 3, "unknown"),
            (1, "EXISTS 0.a 0.b", 2, 3, ":1"),
            (2, "SET 0.c z", 4, 5, "OK"),
            (2, "GET 0.a", 6, 7, "xy"),
        ];
        assert!(is_fine(&told));
    }

    #[test]
    fn r10_6_a_transaction_is_seen_whole() {
        let exec = (1, "EXEC SET 0.a x, INCR 0.b", 0, 5, "OK/:1");
        assert!(is_fine(&[exec, (2, "MGET 0.a 0.b", 0, 5, "x/1")]));
        assert!(!is_fine(&[exec, (2, "MGET 0.a 0.b", 0, 5, "x/nil")]));
    }

    #[test]
    fn r10_7_exec_runs_exactly_if_nothing_has_changed() {
        let with = |between: &[Asked<'static>], told| {
            let (first, last) = ((1, "WATCH 0.a", 2, 3, "OK"), (1, "EXEC SET 0.a y, GET 0.a", 8, 9, told));
            is_fine(&[&[(3, "SET 0.a x", 0, 1, "OK"), first], between, &[last]].concat())
        };
        let again = [(2, "DEL 0.a", 4, 5, ":1"), (2, "SET 0.a x", 6, 7, "OK")];
        assert!(with(&[], "OK/y") && !with(&[], "nil"));
        assert!(with(&again, "nil") && !with(&again, "OK/y"));
        assert!(with(&[(2, "SET 0.b x", 4, 5, "OK")], "OK/y"));
        let made_and_deleted = [(2, "SET 0.a x", 2, 3, "OK"), (2, "DEL 0.a", 4, 5, ":1")];
        let absent = [&[(1, "WATCH 0.a", 0, 1, "OK")][..], &made_and_deleted, &[(1, "EXEC INCR 0.a", 8, 9, ":1/")]];
        assert!(is_fine(&absent.concat()), "absent then and now");
    }

    #[test]
    fn r10_7_a_flush_ends_all_and_is_a_change() {
        let (set, flush) = ((1, "SET 0.a x", 0, 1, "OK"), (2, "FLUSHDB", 2, 3, "OK"));
        let get = |told| (3, "GET 0.a", 4, 5, told);
        assert!(is_fine(&[set, flush, get("nil")]) && !is_fine(&[set, flush, get("x")]));
        assert!(is_fine(&[set, (2, "FLUSHALL", 2, 9, "OK"), get("x")]), "it may come later");
        let watched = |told| {
            let (watch, exec) = ((1, "WATCH 0.a", 2, 3, "OK"), (1, "EXEC GET 0.a", 8, 9, told));
            is_fine(&[set, watch, (2, "FLUSHDB", 4, 5, "OK"), (2, "SET 0.a x", 6, 7, "OK"), exec])
        };
        assert!(watched("nil") && !watched("x/"));
        let exec = (1, "EXEC SET 0.a x, FLUSHDB, SET 0.b y", 0, 1, "OK/OK/OK");
        assert!(is_fine(&[exec, (2, "MGET 0.a 0.b", 2, 3, "nil/y")]));
        assert!(!is_fine(&[exec, (2, "MGET 0.a 0.b", 2, 3, "x/y")]));
    }

    #[test]
    fn what_moves_takes_its_end_along_and_was_what_it_is_at_one_moment() {
        let set = (1, "SET 0.a x PX 5", 0, 1, "OK");
        let renamed = (1, "RENAME 0.a 0.b", 2, 3, "OK");
        assert!(is_fine(&[set, renamed, (2, "MGET 0.a 0.b", 4, 5, "nil/x")]));
        assert!(is_fine(&[set, renamed, (2, "MGET 0.a 0.b", 4, 5, "nil/nil")]), "its time is over");
        assert!(!is_fine(&[set, renamed, (2, "PTTL 0.b", 4, 5, ":-1")]), "R10.12");
        assert!(!is_fine(&[set, renamed, (2, "MGET 0.a 0.b", 4, 5, "x/x")]));
        let between = [(1, "SET 0.a x", 0, 1, "OK"), (2, "APPEND 0.a y", 2, 3, ":2"), (1, "COPY 0.a 0.b", 2, 9, ":1")];
        let seen =
            |told| is_fine(&[&between[..], &[(3, "APPEND 0.a z", 4, 5, ":3"), (1, "GET 0.b", 10, 11, told)]].concat());
        assert!(seen("x") && seen("xy") && seen("xyz") && !seen("y"));
        assert!(!is_fine(&[(1, "MSETNX 0.a x 0.b y", 0, 1, ":1"), (1, "COPY 0.b 0.a REPLACE", 2, 3, ":0")]));
    }

    /// What ends nothing where it is tried first may end something later.
    #[test]
    fn a_flush_of_nothing_may_have_come_later() {
        let all = [
            (1, "FLUSHDB", 0, 9, "OK"),
            (2, "SET 0.a x", 1, 2, "OK"),
            (2, "GET 0.a", 3, 4, "x"),
            (2, "GET 0.a", 7, 8, "nil"),
        ];
        assert!(is_fine(&all));
    }

    #[test]
    fn r10_18_nothing_runs_ahead_of_what_is_unknown() {
        let unknown = (1, "SET 0.a x", 0, 1, "unknown");
        let later =
            |by| [unknown, (by, "GET 0.a", 2, 3, "nil"), (by, "SET 0.b y", 4, 5, "OK"), (9, "GET 0.a", 6, 7, "x")];
        assert!(!is_fine(&later(1)) && !is_fine(&later(2)));
        assert!(is_fine(&[unknown, (2, "GET 0.a", 0, 3, "nil"), (9, "GET 0.a", 6, 7, "x")]), "asked for before");
    }
}
