//! The meaning of a few commands of Redis, in the simplest form: those that simulated programs say.
//!
//! A value that ends does so when somebody says so ([`Database::end`]): of time the model knows nothing.

use std::collections::BTreeMap;

/// A reply, whatever protocol it came in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reply {
    /// A word of the server's own, such as `OK`.
    Word(String),
    /// An error.
    Error(String),
    /// A number.
    Number(i64),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Nothing.
    Nil,
    /// Several replies.
    List(Vec<Self>),
}

/// What the model says of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// It is this one.
    Exactly(Reply),
    /// It is a number of milliseconds, of which the model knows only that it is none below 0.
    Time,
}

impl Expected {
    /// Whether the reply is as the model says.
    #[must_use]
    pub fn is(&self, reply: &Reply) -> bool {
        match self {
            Self::Exactly(expected) => expected == reply,
            Self::Time => matches!(reply, Reply::Number(0..)),
        }
    }
}

/// A key that was ever written.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Cell {
    value: Option<Vec<u8>>,
    /// Who gave the value its end; `None`: it has none.
    ends: Option<u32>,
    /// Who moved the value here, or made it of others: two such operations leave different keys, even if they leave the same value.
    moved_by: Option<u32>,
}

/// A key that somebody watches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Watch {
    key: Vec<u8>,
    /// It had a value.
    was_there: bool,
    has_changed: bool,
}

/// Keys and their values, and who watches them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Database {
    cells: BTreeMap<Vec<u8>, Cell>,
    watches: BTreeMap<usize, Watch>,
}

const NO_KEY: &str = "ERR no such key";
const NOT_A_NUMBER: &str = "ERR value is not an integer or out of range";

fn number(count: usize) -> Expected {
    Expected::Exactly(Reply::Number(i64::try_from(count).expect("few")))
}

/// How long the longest sequence is that both have.
fn longest_common(first: &[u8], second: &[u8]) -> usize {
    let mut before = vec![0; second.len() + 1];
    for byte in first {
        let mut row = vec![0];
        for (at, other) in second.iter().enumerate() {
            row.push(if byte == other { before[at] + 1 } else { row[at].max(before[at + 1]) });
        }
        before = row;
    }
    before[second.len()]
}

fn ok() -> Expected {
    Expected::Exactly(Reply::Word("OK".to_owned()))
}

fn bulk(value: Option<&Vec<u8>>) -> Reply {
    value.map_or(Reply::Nil, |value| Reply::Bytes(value.clone()))
}

fn parsed(word: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(word).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == word).then_some(number)
}

impl Database {
    fn value(&self, key: &[u8]) -> Option<&Vec<u8>> {
        self.cells.get(key)?.value.as_ref()
    }

    /// From now on this watch sees what becomes of the key.
    pub fn watch(&mut self, number: usize, key: &[u8]) {
        let (key, was_there) = (key.to_vec(), self.value(key).is_some());
        self.watches.insert(number, Watch { key, was_there, has_changed: false });
    }

    /// A watch ends. Whether it has seen a change: one that came and went of a key without a value is none. Nothing if there is no such watch.
    pub fn unwatch(&mut self, number: usize) -> Option<bool> {
        let Watch { key, was_there, has_changed } = self.watches.remove(&number)?;
        Some(if was_there { has_changed } else { self.value(&key).is_some() })
    }

    fn change(&mut self, key: &[u8], value: Option<Vec<u8>>, ends: Option<u32>) {
        self.watches.values_mut().filter(|watch| watch.key == key).for_each(|watch| watch.has_changed = true);
        self.cells.insert(key.to_vec(), Cell { value, ends, moved_by: None });
    }

    /// The key gets a value that was another key's, or is made of others; its end, too, which `mover` gives from now on.
    fn put_moved(&mut self, key: &[u8], (value, ends): (Vec<u8>, bool), mover: u32) {
        self.change(key, Some(value), ends.then_some(mover));
        self.cells.get_mut(key).expect("just put").moved_by = Some(mover);
    }

    /// Gives a key another key's value and its end.
    fn copy(&mut self, from: &[u8], to: &[u8], mover: u32) {
        let cell = &self.cells[from];
        let moved = (cell.value.clone().expect("the caller looked"), cell.ends.is_some());
        self.put_moved(to, moved, mover);
    }

    fn rename(&mut self, from: &[u8], to: &[u8], mover: u32) {
        self.copy(from, to, mover);
        self.remove(from);
    }

    /// All strings, bit by bit, become one.
    fn bit_or(&mut self, to: &[u8], from: &[&[u8]], mover: u32) -> Expected {
        let strings: Vec<&[u8]> = from.iter().map(|key| self.value(key).map_or(&[][..], Vec::as_slice)).collect();
        let len = strings.iter().map(|string| string.len()).max().unwrap_or(0);
        let byte = |at: usize| strings.iter().fold(0, |all, string| all | string.get(at).copied().unwrap_or(0));
        let made: Vec<u8> = (0..len).map(byte).collect();
        match len {
            0 => {
                self.remove(to);
                self.cells.entry(to.to_vec()).or_default().moved_by = Some(mover);
            }
            _ => self.put_moved(to, (made, false), mover),
        }
        number(len)
    }

    /// The value changes, and its end does not.
    fn rewrite(&mut self, key: &[u8], value: Vec<u8>) {
        let ends = self.cells.get(key).and_then(|cell| cell.ends);
        self.change(key, Some(value), ends);
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        let is_there = self.value(key).is_some();
        if is_there {
            self.change(key, None, None);
        }
        is_there
    }

    /// The end that `giver` gave the key's value has come. Says whether the value still had it.
    pub fn end(&mut self, key: &[u8], giver: u32) -> bool {
        let has_it = self.cells.get(key).is_some_and(|cell| cell.ends == Some(giver));
        has_it && self.remove(key)
    }

    /// Runs a command. `giver`: who gives the ends that it gives.
    ///
    /// # Panics
    /// If it is none of the few commands, in the few forms, that the model knows.
    pub fn run<W: AsRef<[u8]>>(&mut self, words: &[W], giver: u32) -> Expected {
        let words: Vec<&[u8]> = words.iter().map(AsRef::as_ref).collect();
        let (name, rest) = words.split_first().expect("a command has a name");
        match (*name, rest) {
            (b"FLUSHDB" | b"FLUSHALL", []) => {
                let keys: Vec<_> = self.cells.keys().cloned().collect();
                keys.iter().for_each(|key| _ = self.remove(key));
                ok()
            }
            (b"PING", []) => Expected::Exactly(Reply::Word("PONG".to_owned())),
            (b"GET", [key]) => Expected::Exactly(bulk(self.value(key))),
            (b"MGET", keys) => Expected::Exactly(Reply::List(keys.iter().map(|key| bulk(self.value(key))).collect())),
            (b"EXISTS", keys) => number(keys.iter().filter(|key| self.value(key).is_some()).count()),
            (b"STRLEN", [key]) => number(self.value(key).map_or(0, Vec::len)),
            (b"SET", [key, value]) => self.set(key, value, None),
            (b"SET", [key, value, b"PX", _]) => self.set(key, value, Some(giver)),
            (b"SET", [key, value, b"NX"]) if self.value(key).is_none() => self.set(key, value, None),
            (b"SET", [key, value, b"XX"]) if self.value(key).is_some() => self.set(key, value, None),
            (b"SET", [_, _, b"NX" | b"XX"]) => Expected::Exactly(Reply::Nil),
            (b"MSET", pairs) => {
                for pair in pairs.chunks_exact(2) {
                    self.change(pair[0], Some(pair[1].to_vec()), None);
                }
                ok()
            }
            (b"GETSET", [key, value]) => {
                let before = bulk(self.value(key));
                self.change(key, Some(value.to_vec()), None);
                Expected::Exactly(before)
            }
            (b"GETDEL", [key]) => {
                let before = bulk(self.value(key));
                self.remove(key);
                Expected::Exactly(before)
            }
            (b"DEL", keys) => number(keys.iter().filter(|key| self.remove(key)).count()),
            (b"INCR", [key]) => self.add(key, 1),
            (b"INCRBY", [key, delta]) => self.add(key, parsed(delta).expect("a number")),
            (b"DECRBY", [key, delta]) => self.add(key, -parsed(delta).expect("a number")),
            (b"APPEND", [key, more]) => {
                let value = [self.value(key).map_or(&[][..], Vec::as_slice), more].concat();
                let len = value.len();
                self.rewrite(key, value);
                number(len)
            }
            (b"PEXPIRE", [key, _]) => self.give_end(key, Some(giver)),
            (b"PERSIST", [key]) if self.cells.get(*key).is_some_and(|cell| cell.ends.is_some()) => {
                self.give_end(key, None)
            }
            (b"PERSIST", [_]) => number(0),
            (b"PTTL", [key]) => match self.cells.get(*key) {
                Some(Cell { value: Some(_), ends: Some(_), .. }) => Expected::Time,
                Some(Cell { value: Some(_), ends: None, .. }) => Expected::Exactly(Reply::Number(-1)),
                Some(Cell { value: None, .. }) | None => Expected::Exactly(Reply::Number(-2)),
            },
            _ => self.run_moving(&words, giver),
        }
    }

    /// The same of the commands that make something of one key at another one.
    fn run_moving(&mut self, words: &[&[u8]], giver: u32) -> Expected {
        match (words[0], &words[1..]) {
            (b"MSETNX", pairs) => {
                let are_absent = pairs.iter().step_by(2).all(|key| self.value(key).is_none());
                for pair in pairs.chunks_exact(2).filter(|_| are_absent) {
                    self.change(pair[0], Some(pair[1].to_vec()), None);
                }
                number(usize::from(are_absent))
            }
            (b"RENAME" | b"RENAMENX", [from, _]) if self.value(from).is_none() => {
                Expected::Exactly(Reply::Error(NO_KEY.to_owned()))
            }
            (b"RENAMENX", [_, to]) if self.value(to).is_some() => number(0),
            (b"RENAME", [from, to]) => {
                self.rename(from, to, giver);
                ok()
            }
            (b"RENAMENX", [from, to]) => {
                self.rename(from, to, giver);
                number(1)
            }
            (b"COPY", [from, to, replaces @ ..]) => {
                let may = self.value(from).is_some() && (replaces == [b"REPLACE"] || self.value(to).is_none());
                if may {
                    self.copy(from, to, giver);
                }
                number(usize::from(may))
            }
            (b"BITOP", [b"OR", to, from @ ..]) => self.bit_or(to, from, giver),
            (b"LCS", [first, second, b"LEN"]) => number(longest_common(
                self.value(first).map_or(&[], Vec::as_slice),
                self.value(second).map_or(&[], Vec::as_slice),
            )),
            _ => panic!("the model does not know {:?}", words.join(&b' ').escape_ascii().to_string()),
        }
    }

    fn set(&mut self, key: &[u8], value: &[u8], ends: Option<u32>) -> Expected {
        self.change(key, Some(value.to_vec()), ends);
        ok()
    }

    fn add(&mut self, key: &[u8], delta: i64) -> Expected {
        let before = self.value(key).map_or(Some(0), |value| parsed(value));
        let Some(sum) = before.and_then(|before| before.checked_add(delta)) else {
            return Expected::Exactly(Reply::Error(NOT_A_NUMBER.to_owned()));
        };
        self.rewrite(key, sum.to_string().into_bytes());
        Expected::Exactly(Reply::Number(sum))
    }

    fn give_end(&mut self, key: &[u8], ends: Option<u32>) -> Expected {
        let Some(value) = self.value(key).cloned() else { return number(0) };
        self.change(key, Some(value), ends);
        number(1)
    }
}

/// The keys of a command that the model knows.
#[must_use]
pub fn keys<W: AsRef<[u8]>>(words: &[W]) -> Vec<&[u8]> {
    let (first, step, most) = match words[0].as_ref() {
        b"PING" | b"FLUSHDB" | b"FLUSHALL" => return Vec::new(),
        b"MSET" | b"MSETNX" => (1, 2, usize::MAX),
        b"MGET" | b"DEL" | b"EXISTS" => (1, 1, usize::MAX),
        b"RENAME" | b"RENAMENX" | b"COPY" | b"LCS" => (1, 1, 2),
        b"BITOP" => (2, 1, usize::MAX),
        _ => (1, 1, 1),
    };
    words[first..].iter().step_by(step).take(most).map(AsRef::as_ref).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(database: &mut Database, line: &str) -> Expected {
        database.run(&line.split(' ').collect::<Vec<_>>(), 7)
    }

    fn told(database: &mut Database, line: &str) -> Reply {
        match run(database, line) {
            Expected::Exactly(reply) => reply,
            Expected::Time => Reply::Number(0),
        }
    }

    #[test]
    fn commands_do_what_redis_says() {
        let database = &mut Database::default();
        let bytes = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
        for (line, reply) in [
            ("GET k", Reply::Nil),
            ("INCR k", Reply::Number(1)),
            ("DECRBY k 4", Reply::Number(-3)),
            ("APPEND k x", Reply::Number(3)),
            ("INCR k", Reply::Error(NOT_A_NUMBER.to_owned())),
            ("SET k 1 NX", Reply::Nil),
            ("GETSET k 1", bytes("-3x")),
            ("MSET a 1 b 2", Reply::Word("OK".to_owned())),
            ("MGET a b c", Reply::List(vec![bytes("1"), bytes("2"), Reply::Nil])),
            ("DEL a b c", Reply::Number(2)),
            ("PTTL k", Reply::Number(-1)),
            ("PTTL a", Reply::Number(-2)),
            ("SET a 1 XX", Reply::Nil),
            ("MSETNX a 1 k 2", Reply::Number(0)),
            ("MSETNX a 1 b 2", Reply::Number(1)),
            ("RENAME c a", Reply::Error(NO_KEY.to_owned())),
            ("RENAMENX a b", Reply::Number(0)),
            ("RENAMENX a c", Reply::Number(1)),
            ("RENAME b c", Reply::Word("OK".to_owned())),
            ("COPY c k", Reply::Number(0)),
            ("COPY c k REPLACE", Reply::Number(1)),
            ("MGET a b c k", Reply::List(vec![Reply::Nil, Reply::Nil, bytes("2"), bytes("2")])),
            ("SET a 1x", Reply::Word("OK".to_owned())),
            ("BITOP OR b a c", Reply::Number(2)),
            ("GET b", bytes("3x")),
            ("LCS a b LEN", Reply::Number(1)),
            ("BITOP OR b x y", Reply::Number(0)),
            ("GET b", Reply::Nil),
        ] {
            assert_eq!(told(database, line), reply, "{line}");
        }
    }

    #[test]
    fn what_is_watched_changes_with_every_change_and_with_its_end() {
        let database = &mut Database::default();
        for line in ["SET k 1", "PEXPIRE k 9", "INCR k", "PERSIST k", "SET k 1", "DEL k", "SET k 1 PX 9"] {
            database.watch(1, b"k");
            run(database, line);
            assert_eq!(database.unwatch(1), Some(true), "{line}");
        }
        database.watch(1, b"k");
        for line in ["GET k", "SET k 1 NX", "INCR l", "DEL l", "PERSIST l"] {
            run(database, line);
        }
        database.watch(2, b"k");
        assert_eq!((database.unwatch(1), database.unwatch(1)), (Some(false), None));
        assert_eq!(run(database, "PTTL k"), Expected::Time);
        assert!(!database.end(b"k", 8) && database.end(b"k", 7) && !database.end(b"k", 7));
        assert_eq!(database.unwatch(2), Some(true));
        run(database, "SET k 1 PX 9");
        database.watch(1, b"l");
        database.watch(2, b"k");
        database.run(&["RENAME", "k", "l"], 8);
        assert_eq!((database.unwatch(1), database.unwatch(2)), (Some(true), Some(true)));
        assert!(!database.end(b"k", 7) && !database.end(b"l", 7) && database.end(b"l", 8), "the end goes along");
        database.watch(1, b"k");
        run(database, "SET k 1");
        run(database, "DEL k");
        assert_eq!(database.unwatch(1), Some(false), "made and deleted between");
    }

    #[test]
    fn keys_are_those_of_each_command() {
        let of = |line: &'static str| keys(&line.split(' ').collect::<Vec<_>>()).concat();
        assert_eq!((of("COPY a b REPLACE"), of("BITOP OR a b c")), (b"ab".to_vec(), b"abc".to_vec()));
        assert_eq!((of("MSET a 1 b 2"), of("SET k v PX 9"), of("PING")), (b"ab".to_vec(), b"k".to_vec(), Vec::new()));
    }
}
