//! Draws what programs say to a front: commands on few keys, some of them together, and all that is about the connection.
//!
//! Keys of one group are used together, and replaced together: a group's history is searched as a whole. They have no tag, so that they are of
//! any shards. No value is written twice.

use std::collections::VecDeque;

use kasha_machine::Rng;
use kasha_reference::redis;
use kasha_types::UnixMillis;

use super::Words;

/// Operations on one group of keys before programs move on to fresh ones.
const GROUP_USES_MAX: u32 = 18;

/// Keys of each kind in a group.
const KEYS: u64 = 3;

/// Values with an end that is said, of which programs may still ask.
const ENDING: usize = 6;

/// What a program says next, in pieces: each waits until the one before is answered.
pub type Pieces = Vec<Vec<Words>>;

/// Draws for all programs.
#[derive(Debug)]
pub struct Draw {
    rng: Rng,
    group: u32,
    uses: u32,
    values: u64,
    /// Keys of values with an end that is said.
    ending: VecDeque<String>,
}

/// A command of these words.
pub fn words(line: &str) -> Words {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// The group of a key.
#[must_use]
pub fn group_of(key: &[u8]) -> Option<u32> {
    std::str::from_utf8(key).ok()?.split('.').next()?.parse().ok()
}

/// Whether money is kept under a key: it is moved, and nothing else.
#[must_use]
pub fn is_account(key: &[u8]) -> bool {
    key.iter().skip_while(|&&byte| byte != b'.').nth(1) == Some(&b'a')
}

/// Without the commands that move what one before them may have changed: in a database that is spread, a front refuses them by name.
fn without_refused(drawn: Vec<Words>) -> Vec<Words> {
    let mut before: Vec<Vec<u8>> = Vec::new();
    let mut kept: Vec<Words> = Vec::new();
    for words in drawn {
        let keys: Vec<_> = redis::keys(&words).into_iter().map(<[u8]>::to_vec).collect();
        let moves = matches!(&words[0][..], b"RENAME" | b"RENAMENX" | b"COPY" | b"MSETNX" | b"BITOP");
        let is_flushed = kept.iter().any(|words| matches!(&words[0][..], b"FLUSHDB" | b"FLUSHALL"));
        if !(moves && (is_flushed || keys.iter().any(|key| before.contains(key)))) {
            before.extend(keys);
            kept.push(words);
        }
    }
    kept
}

/// Whether the value under a key gets an end when it is written, once: nobody else writes there.
#[must_use]
pub fn is_ending(key: &[u8]) -> bool {
    key.iter().skip_while(|&&byte| byte != b'.').nth(1) == Some(&b'e')
}

/// A question for all accounts of a group.
#[must_use]
pub fn all_accounts(group: u32) -> Words {
    let keys: Vec<_> = (0..KEYS).map(|index| format!("{group}.a{index}")).collect();
    words(&format!("MGET {}", keys.join(" ")))
}

/// A question for all values of a group.
#[must_use]
pub fn all_values(group: u32) -> Words {
    let keys = ["n", "s", "a"].map(|kind| (0..KEYS).map(move |index| format!("{group}.{kind}{index}")));
    words(&format!("MGET {}", keys.into_iter().flatten().collect::<Vec<_>>().join(" ")))
}

impl Draw {
    /// Nothing was drawn yet.
    #[must_use]
    pub fn new(rng: Rng) -> Self {
        Self { rng, group: 0, uses: 0, values: 0, ending: VecDeque::new() }
    }

    /// Groups that were used.
    #[must_use]
    pub fn groups(&self) -> u32 {
        self.group + 1
    }

    /// Whether this is the group that is used now.
    #[must_use]
    pub fn is_present(&self, key: &[u8]) -> bool {
        group_of(key) == Some(self.group)
    }

    /// Something that was said is said again.
    pub fn again(&mut self) {
        self.uses += 1;
    }

    fn value(&mut self) -> String {
        self.values += 1;
        format!("v{};", self.values)
    }

    fn key(&mut self, kind: char) -> String {
        format!("{}.{kind}{}", self.group, self.rng.below(KEYS))
    }

    /// A number's key, or that of a text. Some texts are where numbers should be.
    fn any_key(&mut self) -> String {
        let kind = if self.rng.chance(1, 2) { 'n' } else { 's' };
        self.key(kind)
    }

    /// Several keys, no two alike.
    fn some_keys(&mut self) -> Vec<String> {
        let mut all: Vec<String> = ['n', 's']
            .into_iter()
            .flat_map(|kind| (0..KEYS).map(move |index| (kind, index)))
            .map(|(kind, index)| format!("{}.{kind}{index}", self.group))
            .collect();
        let count = self.rng.between(2, 4);
        (0..count).map(|_| all.swap_remove(usize::try_from(self.rng.below(all.len() as u64)).expect("few"))).collect()
    }

    /// One command on keys, or on all of them.
    fn command(&mut self) -> Words {
        self.uses += 1;
        if self.rng.chance(1, 80) {
            return words(if self.rng.chance(1, 2) { "FLUSHDB" } else { "FLUSHALL" });
        }
        let (key, value) = (self.any_key(), self.value());
        let millis = self.rng.between(1, 400);
        let line = match self.rng.below(40) {
            0..5 => format!("GET {key}"),
            5..8 => format!("SET {key} {value}"),
            8 => format!("SET {key} {value} NX"),
            9 => format!("SET {key} {value} XX"),
            10..14 => format!("INCR {}", self.key('n')),
            14 => format!("INCR {}", self.key('s')),
            15 => format!("INCRBY {} {}", self.key('n'), self.rng.between(2, 9)),
            16 => format!("SET {} {}", self.key('n'), self.rng.below(1000)),
            17..20 => format!("APPEND {} {value}", self.key('s')),
            20 => format!("GETSET {key} {value}"),
            21 => format!("GETDEL {key}"),
            22 | 23 => format!("DEL {key}"),
            24 => format!("DEL {}", self.some_keys().join(" ")),
            25 => format!("EXISTS {}", self.some_keys().join(" ")),
            26 | 27 => format!("MGET {}", self.some_keys().join(" ")),
            28 => {
                let pairs: Vec<_> = self.some_keys().into_iter().map(|key| format!("{key} {}", self.value())).collect();
                format!("MSET {}", pairs.join(" "))
            }
            29 => format!("SET {key} {value} PX {millis}"),
            30 => format!("PEXPIRE {key} {millis}"),
            31 if self.rng.chance(1, 2) => format!("PERSIST {key}"),
            31 => format!("PTTL {key}"),
            _ => return self.moving(),
        };
        words(&line)
    }

    /// A command that makes something of one key at another one.
    fn moving(&mut self) -> Words {
        let mut keys = self.some_keys();
        let line = match self.rng.below(8) {
            0..3 => format!("RENAME {} {}", keys[0], keys[1]),
            3 => format!("RENAMENX {} {}", keys[0], keys[1]),
            4 => format!("COPY {} {}", keys[0], keys[1]),
            5 => format!("COPY {} {} REPLACE", keys[0], keys[1]),
            6 => {
                keys.iter_mut().for_each(|key| *key = format!("{key} {}", self.value()));
                format!("MSETNX {}", keys.join(" "))
            }
            _ if self.rng.chance(1, 2) => format!("BITOP OR {}", keys.join(" ")),
            _ => format!("LCS {} {} LEN", keys[0], keys[1]),
        };
        words(&line)
    }

    /// What one account loses another one gains.
    fn transfer(&mut self) -> Vec<Words> {
        let (amount, from) = (self.rng.between(1, 9), self.rng.below(KEYS));
        let to = (from + self.rng.between(1, KEYS - 1)) % KEYS;
        let account = |index: u64| format!("{}.a{index}", self.group);
        let out = words(&format!("DECRBY {} {amount}", account(from)));
        vec![out, words(&format!("INCRBY {} {amount}", account(to)))]
    }

    /// All that stands between `MULTI` and `EXEC`.
    fn queued(&mut self) -> Vec<Words> {
        self.uses += 1;
        let mut queued = match self.rng.below(4) {
            0 | 1 => self.transfer(),
            2 => {
                let drawn = (0..self.rng.between(0, 4)).map(|_| self.command()).collect();
                without_refused(drawn)
            }
            _ => vec![all_accounts(self.group)],
        };
        self.uses -= u32::try_from(queued.len()).map_or(0, |len| len.min(self.uses));
        if self.rng.chance(1, 4) {
            // A command that errs: it is its own reply.
            let wrong = [format!("SET {} {}", self.key('s'), self.value()), format!("INCR {}", self.key('s'))];
            queued.extend(wrong.iter().map(|line| words(line)));
        }
        if self.rng.chance(1, 6) {
            queued.push(words("PING"));
        }
        if self.rng.chance(1, 30) {
            // No command: `EXEC` runs nothing.
            queued.push(words("NONSENSE"));
        }
        queued
    }

    fn multi(&mut self, piece: &mut Vec<Words>) {
        let ends = if self.rng.chance(1, 20) { "DISCARD" } else { "EXEC" };
        piece.push(words("MULTI"));
        piece.extend(self.queued());
        piece.push(words(ends));
    }

    /// `WATCH`, perhaps a look, and then what runs only if nothing has changed.
    fn watched(&mut self) -> Pieces {
        let mut watch = words(&format!("WATCH {}", self.any_key()));
        if self.rng.chance(1, 3) {
            watch = words(&format!("WATCH {}", self.some_keys().join(" ")));
        }
        self.uses += u32::try_from(watch.len() - 1).expect("few");
        let key = String::from_utf8_lossy(&watch[1]).into_owned();
        let mut first = vec![watch];
        match self.rng.below(4) {
            0 => first.push(words(&format!("GET {key}"))),
            // The program's own change counts, too.
            1 if self.rng.chance(1, 3) => first.push(words(&format!("SET {key} {}", self.value()))),
            _ => {}
        }
        let mut second = Vec::new();
        if self.rng.chance(1, 12) {
            second.push(words("UNWATCH"));
        }
        self.multi(&mut second);
        if self.rng.chance(1, 3) {
            // Somebody changes the key and puts it back, in the program's own back.
            let other = format!("DEL {key}");
            first.extend(self.rng.chance(1, 8).then(|| words(&other)));
        }
        if self.rng.chance(1, 2) {
            return vec![first, second];
        }
        first.extend(second);
        vec![first]
    }

    /// Something about the connection.
    fn local(&mut self, piece: &mut Vec<Words>) {
        let value = self.value();
        let line = match self.rng.below(10) {
            0..3 => "PING".to_owned(),
            3..6 => format!("ECHO {value}"),
            6 => format!("HELLO {}", self.rng.between(2, 3)),
            7 => "NONSENSE".to_owned(),
            8 => {
                piece.push(words("CLIENT REPLY SKIP"));
                return piece.push(self.command());
            }
            _ => {
                piece.push(words("CLIENT REPLY OFF"));
                piece.extend((0..self.rng.between(0, 3)).map(|_| self.command()));
                "CLIENT REPLY ON".to_owned()
            }
        };
        piece.push(words(&line));
    }

    /// A key that is made, watched, and made again behind a flush.
    fn watched_over_a_flush(&mut self) -> Vec<Words> {
        self.uses += 6;
        let key = self.any_key();
        let set = |value: String| format!("SET {key} {value}");
        let all = [
            "FLUSHDB".to_owned(),
            set(self.value()),
            format!("WATCH {key}"),
            "FLUSHALL".to_owned(),
            set(self.value()),
            "MULTI".to_owned(),
            format!("GET {key}"),
            "EXEC".to_owned(),
        ];
        all.iter().map(|line| words(line)).collect()
    }

    /// A value that ends, somewhere else a moment later.
    fn moves_with_its_end(&mut self) -> Vec<Words> {
        self.uses += 3;
        let keys = self.some_keys();
        let set = format!("SET {} {} PX {}", keys[0], self.value(), self.rng.between(200, 400));
        let moves = if self.rng.chance(1, 2) { "RENAME" } else { "RENAMENX" };
        let all = [set, format!("{moves} {} {}", keys[0], keys[1]), format!("PTTL {}", keys[1])];
        all.iter().map(|line| words(line)).collect()
    }

    /// A value that ends at a time of day, or a look at one.
    fn ending(&mut self, wall: UnixMillis, piece: &mut Vec<Words>) {
        if self.ending.is_empty() || self.rng.chance(1, 4) {
            let value = self.value();
            let key = format!("{}.e{}", self.group, self.values);
            let ends = wall.0 + self.rng.between(300, 3_000);
            if self.rng.chance(1, 2) {
                piece.push(words(&format!("SET {key} {value} PXAT {ends}")));
            } else {
                let lines = ["MULTI", &format!("SET {key} {value}"), &format!("PEXPIREAT {key} {ends}"), "EXEC"];
                piece.extend(lines.map(words));
            }
            self.ending.push_back(key);
            if self.ending.len() > ENDING {
                self.ending.pop_front();
            }
            return;
        }
        let key = self.ending[usize::try_from(self.rng.below(self.ending.len() as u64)).expect("few")].clone();
        let name = *self.rng.pick(&["GET", "PEXPIRETIME", "PEXPIRETIME", "EXISTS"]);
        piece.push(words(&format!("{name} {key}")));
    }

    /// What a program says next, when the clocks on walls show this.
    pub fn pieces(&mut self, wall: UnixMillis) -> Pieces {
        if self.uses >= GROUP_USES_MAX {
            (self.group, self.uses) = (self.group + 1, 0);
        }
        if self.rng.chance(1, 8) {
            return self.watched();
        }
        if self.rng.chance(1, 24) {
            return vec![self.moves_with_its_end()];
        }
        if self.rng.chance(1, 100) {
            return vec![self.watched_over_a_flush()];
        }
        let most = if self.rng.chance(1, 16) { 16 } else { 5 };
        let mut piece = Vec::new();
        while piece.len() < usize::try_from(self.rng.between(1, most)).expect("few") {
            match self.rng.below(14) {
                12..14 => self.ending(wall, &mut piece),
                0..8 => piece.push(self.command()),
                8 | 9 => self.multi(&mut piece),
                10 => {
                    self.uses += 1;
                    piece.push(all_accounts(self.group));
                }
                _ => self.local(&mut piece),
            }
        }
        vec![piece]
    }
}
