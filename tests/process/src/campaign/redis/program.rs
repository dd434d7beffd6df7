//! One program: what it says, and what it makes of the replies.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kasha_machine::Rng;

use super::super::book::{Asked, Ended, Told};
use super::super::lines::Step;
use super::accounts::{self, GROUPS};
use super::told::{Became, became, told_of};
use super::{KEYS, Shared, writes_of};
use crate::resp::{Connection, Lost, Reply, request};

/// Longest pause between two turns, in milliseconds.
const PAUSE_MAX_MS: u64 = 12;
/// How long a program waits for a reply of a node, which may be frozen or cut off: as drivers do, hardly longer than the node asks.
const NODE_PATIENCE: Duration = Duration::from_secs(3);
/// A proxy says something within two seconds, on any machine that is not stuck.
const PROXY_PATIENCE: Duration = Duration::from_secs(30);
/// Operations on a key before another key takes its place.
const OPERATIONS_PER_KEY: u64 = 100;
/// An unknown outcome counts as so many: each makes the search for an order longer.
const UNKNOWN_COUNTS: u64 = 15;
/// Counters that live through the whole round.
const SUMS: u64 = 8;
/// How often a transaction is tried again whose keys have changed.
const TRIES: u32 = 3;
/// One in so many times a program hangs up.
const HANGS_UP: u64 = 40;

/// The kinds of keys, by their place in `used`.
const REGISTERS: usize = 0;
const COUNTERS: usize = 1;
const LISTS: usize = 2;

/// Where a program connects.
#[derive(Clone, Debug)]
pub enum At {
    /// At the proxy.
    Proxy(SocketAddr),
    /// At one of the nodes' ports, and at the next one when the connection ends.
    Nodes(Vec<SocketAddr>),
}

/// A command on one key.
struct Command {
    asked: Asked,
    words: Vec<String>,
    /// Its kind, and its place among the keys of the kind.
    place: Option<(usize, usize)>,
}

/// What became of an `EXEC`.
enum Exec {
    Done(Vec<Reply>),
    /// A watched key has changed, or the front refuses: nothing has happened.
    Not,
    Unknown,
}

/// A program.
#[derive(Debug)]
pub struct Program {
    number: u32,
    at: At,
    /// The node that it is connected to, or tries next.
    node: usize,
    connection: Option<Connection>,
    shared: Arc<Shared>,
    rng: Rng,
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn is_list(key: &str) -> bool {
    key.starts_with("rlist")
}

/// What a read of a transaction's key says.
#[must_use]
pub fn read_of(key: &str, text: &str) -> Step {
    match is_list(key) {
        true => Step::of_list(key, text),
        false => Step { op: "read", key: key.to_owned(), value: text.to_owned(), ..Step::default() },
    }
}

/// Three numbers of a reply, in whatever form.
#[must_use]
pub fn numbers(reply: &Reply) -> Option<[i64; 3]> {
    let Reply::List(list) = reply else { return None };
    let number = |reply: &Reply| match reply {
        Reply::Number(number) => Some(*number),
        Reply::Text(text) => text.parse().ok(),
        Reply::Nil => Some(0),
        Reply::Word(_) | Reply::Error(_) | Reply::List(_) => None,
    };
    let all: Option<Vec<i64>> = list.iter().map(number).collect();
    all?.try_into().ok()
}

impl Program {
    /// A program that has said nothing.
    #[must_use]
    pub fn new(number: u32, at: At, shared: Arc<Shared>, rng: Rng) -> Self {
        Self { number, at, node: number as usize, connection: None, shared, rng }
    }

    /// Goes on until it is told to stop.
    pub fn run(mut self) {
        while !self.shared.stop.load(Ordering::Relaxed) {
            if self.is_connected() {
                match self.rng.below(20) {
                    0..10 => self.commands(),
                    10..13 => self.transaction(),
                    13..16 => self.watch_loop(),
                    16 => self.look(),
                    17 => self.watched_move(),
                    _ => self.do_move(),
                }
            }
            std::thread::sleep(Duration::from_millis(self.rng.below(PAUSE_MAX_MS)));
        }
    }

    fn is_connected(&mut self) -> bool {
        if self.connection.is_none() {
            let (at, patience) = match &self.at {
                At::Proxy(at) => (*at, PROXY_PATIENCE),
                At::Nodes(nodes) => (nodes[self.node % nodes.len()], NODE_PATIENCE),
            };
            match Connection::open(at, patience) {
                Ok(connection) => self.connection = Some(connection),
                Err(_) => self.node += 1,
            }
        }
        self.connection.is_some()
    }

    /// The connection is over. R10.2: the proxy ends none, and keeps nobody waiting.
    fn lose(&mut self, lost: &Lost) {
        self.connection = None;
        self.node += 1;
        match (&self.at, lost) {
            (At::Proxy(_), lost) => self.shared.book.complain(format!("redis: the proxy {lost} (R10.2)")),
            (At::Nodes(_), Lost::Nonsense(_)) => self.shared.book.complain(format!("redis: a node {lost}")),
            (At::Nodes(_), Lost::Closed(_) | Lost::Silent) => {}
        }
    }

    fn hang_up(&mut self) {
        std::thread::sleep(Duration::from_micros(self.rng.below(3000)));
        (self.connection, self.node) = (None, self.node + 1);
        self.shared.hung_up.fetch_add(1, Ordering::Relaxed);
    }

    /// Sends bytes, if there is a connection.
    fn send(&mut self, bytes: &[u8]) {
        let lost = self.connection.as_mut().and_then(|connection| connection.send(bytes).err());
        if let Some(lost) = lost {
            self.lose(&lost);
        }
    }

    /// The next reply; `None`: none comes any more.
    fn hear(&mut self) -> Option<Reply> {
        match self.connection.as_mut()?.hear() {
            Ok(reply) => Some(reply),
            Err(lost) => {
                self.lose(&lost);
                None
            }
        }
    }

    fn ask(&mut self, line: &str) -> Option<Reply> {
        self.send(&request(&words(line)));
        self.hear()
    }

    fn answered(&self) {
        self.shared.done[self.number as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn misanswered(&self, what: &str, reply: &Reply) {
        self.shared.book.complain(format!("redis: {what} was answered {reply:?}"));
    }

    fn value(&self) -> String {
        self.shared.values.fetch_add(1, Ordering::Relaxed).to_string()
    }

    /// A key of a kind that is in use at present, and its place.
    fn key(&mut self, kind: usize, name: &str) -> (String, (usize, usize)) {
        let place = usize::try_from(self.rng.below(KEYS)).expect("few");
        let generation = self.shared.used[kind][place].fetch_add(1, Ordering::Relaxed) / OPERATIONS_PER_KEY;
        (format!("{name}:{place}:{generation}"), (kind, place))
    }

    /// One command on one key.
    fn command(&mut self) -> Command {
        let kind = self.rng.below(8);
        let (model, (key, place)) = match kind {
            0..4 => ("redis", {
                let (key, place) = self.key(REGISTERS, "rregister");
                (key, Some(place))
            }),
            4..7 => ("redis-counter", {
                let (key, place) = self.key(COUNTERS, "rcounter");
                (key, Some(place))
            }),
            _ => ("redis-counter", (format!("sum:{}", self.rng.below(SUMS)), None)),
        };
        let mut asked = Asked { client: self.number, model, key, ..Asked::default() };
        let key = asked.key.clone();
        let line = match (model, self.rng.below(12)) {
            ("redis-counter", 0..3) if kind < 7 => {
                asked.op = "get";
                format!("GET {key}")
            }
            ("redis-counter", _) => {
                (asked.op, asked.delta) = ("increment", 1);
                format!("INCR {key}")
            }
            (_, 0..4) => {
                asked.op = "get";
                format!("GET {key}")
            }
            (_, 4) => {
                asked.op = "delete";
                format!("DEL {key}")
            }
            (_, 5) => {
                asked.op = "delete";
                format!("GETDEL {key}")
            }
            (_, how) => {
                (asked.op, asked.value) = ("put", format!("{}-{}", self.number, self.value()));
                let len = *self.rng.pick(&[20, 20, 200, 3000, 40_000]);
                let padded = format!("{:.<len$}", asked.value);
                asked.condition = if how == 6 { "absent" } else { "" };
                let option = [" NX", " GET"].get(how as usize - 6).unwrap_or(&"");
                format!("SET {key} {padded}{option}")
            }
        };
        Command { asked, words: words(&line), place }
    }

    /// One command, or several before there is a reply.
    fn commands(&mut self) {
        let count = if self.rng.chance(1, 4) { self.rng.between(2, 6) } else { 1 };
        let (mut bytes, mut asked) = (Vec::new(), VecDeque::new());
        for _ in 0..count {
            let Command { asked: one, words, place } = self.command();
            bytes.extend(request(&words));
            asked.push_back((self.shared.book.ask(one), place));
        }
        let hangs_up = self.rng.chance(1, HANGS_UP);
        if hangs_up && self.rng.chance(1, 2) {
            // What has not come whole does not run.
            bytes.truncate(bytes.len() - 1 - usize::try_from(self.rng.below(12)).expect("few"));
            let (half, _) = asked.pop_back().expect("one at least");
            self.shared.book.write(half, Ended::NotExecuted, Told::default());
        }
        self.send(&bytes);
        if hangs_up {
            self.hang_up();
        }
        for (asked, place) in asked {
            let became = became(self.hear());
            self.write(asked, place, became);
        }
    }

    fn write(&mut self, asked: Asked, place: Option<(usize, usize)>, became: Became) {
        let book = &self.shared.book;
        match became {
            Became::Ran(reply) => match told_of(&asked, &reply) {
                Some(told) => {
                    self.answered();
                    book.write(asked, Ended::Executed, told);
                }
                None => self.misanswered(&format!("{asked:?}"), &reply),
            },
            Became::NotExecuted => book.write(asked, Ended::NotExecuted, Told::default()),
            Became::Unknown => {
                if let Some((kind, place)) = place {
                    self.shared.used[kind][place].fetch_add(UNKNOWN_COUNTS, Ordering::Relaxed);
                }
                book.write(asked, Ended::Unknown, Told::default());
            }
        }
    }

    /// `MULTI`, the commands, and `EXEC`, in one piece or word by word; now and then it hangs up somewhere.
    fn exec(&mut self, commands: &[Vec<String>]) -> Exec {
        let queue: Vec<_> = std::iter::once(words("MULTI")).chain(commands.iter().cloned()).collect();
        let mut bytes: Vec<u8> = queue.iter().flat_map(|words| request(words)).collect();
        let exec = request(&["EXEC"]);
        let half = usize::try_from(self.rng.below(exec.len() as u64)).expect("short");
        match self.rng.below(3 * HANGS_UP) {
            // Inside `MULTI`, or in half of `EXEC`.
            0 => {
                let most = usize::try_from(self.rng.between(1, bytes.len() as u64)).expect("short");
                self.send(&bytes[..most]);
                self.hang_up();
                return Exec::Not;
            }
            1 => {
                bytes.extend(&exec[..half]);
                self.send(&bytes);
                self.hang_up();
                return Exec::Not;
            }
            // Behind `EXEC`, before its reply.
            2 => {
                bytes.extend(exec);
                self.send(&bytes);
                self.hang_up();
                return Exec::Unknown;
            }
            way if way % 2 == 0 => {
                for words in queue {
                    self.send(&request(&words));
                    if !self.is_queued(&words) {
                        return Exec::Not;
                    }
                }
                self.send(&exec);
            }
            _ => {
                bytes.extend(exec);
                self.send(&bytes);
                // If a reply is missing, the others are, too.
                if !queue.iter().all(|words| self.is_queued(words)) {
                    return Exec::Unknown;
                }
            }
        }
        self.executed(commands.len())
    }

    fn is_queued(&mut self, words: &[String]) -> bool {
        let Some(reply) = self.hear() else { return false };
        let expected = if words[0] == "MULTI" { "OK" } else { "QUEUED" };
        if reply != Reply::Word(expected.to_owned()) {
            self.misanswered(&words[0], &reply);
        }
        true
    }

    /// The reply to `EXEC`. R10.6: all of it ran, or nothing.
    fn executed(&mut self, commands: usize) -> Exec {
        match self.hear() {
            Some(Reply::Nil) => Exec::Not,
            Some(Reply::List(replies)) if replies.len() == commands => {
                self.answered();
                Exec::Done(replies)
            }
            Some(Reply::Error(text)) if text.starts_with("EXECABORT ") => Exec::Not,
            reply => match became(reply) {
                Became::NotExecuted => Exec::Not,
                Became::Unknown => Exec::Unknown,
                Became::Ran(reply) => {
                    self.misanswered("EXEC", &reply);
                    Exec::Unknown
                }
            },
        }
    }

    /// A few lists and registers, no two alike, and what is done with each: nothing but a read, or a new value.
    fn plan(&mut self) -> Vec<(String, Option<String>)> {
        let mut plan = Vec::new();
        for _ in 0..self.rng.between(1, 4) {
            let name = *self.rng.pick(&["rlist", "rvalue"]);
            let (key, _) = self.key(LISTS, name);
            if !plan.iter().any(|(other, _)| *other == key) {
                plan.push((key, self.rng.chance(1, 2).then(|| self.value())));
            }
        }
        plan
    }

    /// A transaction of several commands, or one command alone.
    fn transaction(&mut self) {
        let plan = self.plan();
        let command = |(key, value): &(String, Option<String>)| match value {
            None => words(&format!("GET {key}")),
            // A space stands behind each value of a list.
            Some(value) if is_list(key) => vec!["APPEND".to_owned(), key.clone(), format!("{value} ")],
            Some(value) => words(&format!("SET {key} {value}")),
        };
        let commands: Vec<_> = plan.iter().map(command).collect();
        let writes: Vec<_> = plan.iter().filter_map(write_of).collect();
        let shared = Arc::clone(&self.shared);
        let call = shared.lines.begin(self.number, &shared.book, writes.clone());
        let exec = match &commands[..] {
            [alone] if self.rng.chance(1, 2) => {
                self.send(&request(alone));
                match became(self.hear()) {
                    Became::Ran(reply) => {
                        self.answered();
                        Exec::Done(vec![reply])
                    }
                    Became::NotExecuted => Exec::Not,
                    Became::Unknown => Exec::Unknown,
                }
            }
            commands => self.exec(commands),
        };
        let end = |outcome, steps| shared.lines.write(self.number, &shared.book, call, outcome, steps);
        match exec {
            Exec::Not => end(Ended::NotExecuted, writes),
            Exec::Unknown => end(Ended::Unknown, writes),
            Exec::Done(replies) => {
                let mut steps = Vec::new();
                for (planned, reply) in plan.iter().zip(&replies) {
                    match (write_of(planned), reply) {
                        (None, Reply::Nil) => steps.push(read_of(&planned.0, "")),
                        (None, Reply::Text(text)) => steps.push(read_of(&planned.0, text)),
                        (Some(write), Reply::Word(_) | Reply::Number(_)) => steps.push(write),
                        _ => self.misanswered(&format!("a transaction's {planned:?}"), reply),
                    }
                }
                end(Ended::Executed, steps);
            }
        }
    }

    /// Watches keys, reads them, and replaces some if nobody has changed any; tries again otherwise.
    fn watch_loop(&mut self) {
        for _ in 0..TRIES {
            let plan = self.plan();
            let shared = Arc::clone(&self.shared);
            let call = shared.lines.begin(self.number, &shared.book, Vec::new());
            let writes: Vec<_> = plan.iter().filter_map(write_of).collect();
            let keys: Vec<&str> = plan.iter().map(|(key, _)| key.as_str()).collect();
            let exec = self.watched(&keys).map(|values| {
                let set = |(key, value): &(String, Option<String>), before: &Option<String>| {
                    let value = value.as_ref()?;
                    let before = before.as_deref().filter(|_| is_list(key)).unwrap_or_default();
                    let text = if is_list(key) { format!("{before}{value} ") } else { value.clone() };
                    Some(vec!["SET".to_owned(), key.clone(), text])
                };
                let commands: Vec<_> =
                    plan.iter().zip(&values).filter_map(|(planned, before)| set(planned, before)).collect();
                shared.lines.plans(call, writes.clone());
                let reads = plan.iter().zip(&values);
                let reads = reads.map(|((key, _), value)| read_of(key, value.as_deref().unwrap_or_default()));
                (self.exec(&commands), reads.collect::<Vec<_>>())
            });
            let end = |outcome, steps| shared.lines.write(self.number, &shared.book, call, outcome, steps);
            match exec {
                Some((Exec::Done(_), mut steps)) => {
                    steps.extend(writes);
                    return end(Ended::Executed, steps);
                }
                Some((Exec::Unknown, _)) => return end(Ended::Unknown, writes),
                Some((Exec::Not, steps)) => end(Ended::NotExecuted, writes_of(&steps)),
                None => end(Ended::NotExecuted, Vec::new()),
            }
            if self.connection.is_none() {
                return;
            }
        }
    }

    /// Watches keys, and reads them. `None`: they are not watched, or cannot be read.
    fn watched(&mut self, keys: &[&str]) -> Option<Vec<Option<String>>> {
        let mut reply = self.ask(&format!("WATCH {}", keys.join(" ")))?;
        let mut values = Vec::new();
        for key in keys {
            if matches!(reply, Reply::Error(_)) {
                break;
            }
            reply = self.ask(&format!("GET {key}"))?;
            match &reply {
                Reply::Text(text) => values.push(Some(text.clone())),
                Reply::Nil => values.push(None),
                Reply::Word(_) | Reply::Error(_) | Reply::Number(_) | Reply::List(_) => break,
            }
        }
        if values.len() == keys.len() {
            return Some(values);
        }
        if let Became::Ran(reply) = became(Some(reply)) {
            self.misanswered("a watched key", &reply);
        }
        let _ = self.ask("UNWATCH");
        None
    }

    fn group(&mut self) -> (usize, [String; 3], i64) {
        let group = usize::try_from(self.rng.below(GROUPS as u64)).expect("few");
        (group, accounts::keys(group), i64::try_from(self.rng.between(1, 100)).expect("small"))
    }

    /// Something moves from one account to the other one.
    fn do_move(&mut self) {
        let (group, [from, to, moves], amount) = self.group();
        let commands = [format!("DECRBY {from} {amount}"), format!("INCRBY {to} {amount}"), format!("INCR {moves}")]
            .map(|line| words(&line));
        match self.exec(&commands) {
            Exec::Done(replies) => self.moved(group, &Reply::List(replies)),
            Exec::Not => {}
            Exec::Unknown => self.shared.accounts.unknown(group),
        }
    }

    fn moved(&self, group: usize, reply: &Reply) {
        match numbers(reply) {
            Some(numbers) => self.shared.complain_of(self.shared.accounts.moved(group, numbers)),
            None => self.misanswered("a move", reply),
        }
    }

    /// The same by hand: the balances are read, and written if nobody has changed them.
    fn watched_move(&mut self) {
        let (group, keys, amount) = self.group();
        let Some(values) = self.watched(&keys.each_ref().map(String::as_str)) else { return };
        let values = values.into_iter().map(|value| value.map_or(Reply::Nil, Reply::Text)).collect();
        let Some([from, to, moves]) = numbers(&Reply::List(values)) else {
            return self.shared.book.complain(format!("redis: accounts {keys:?} hold no numbers"));
        };
        let after = [from - amount, to + amount, moves + 1];
        let commands: Vec<_> =
            keys.iter().zip(after).map(|(key, number)| words(&format!("SET {key} {number}"))).collect();
        match self.exec(&commands) {
            Exec::Done(_) => self.shared.complain_of(self.shared.accounts.moved(group, after)),
            Exec::Not => {}
            Exec::Unknown => self.shared.accounts.unknown(group),
        }
    }

    /// In one `EXEC`, or by `MGET`: no half of a move is there, and every move that was told before is.
    fn look(&mut self) {
        let (group, keys, _) = self.group();
        let before = self.shared.accounts.last(group);
        let reply = if self.rng.chance(1, 2) {
            match self.exec(&keys.each_ref().map(|key| words(&format!("GET {key}")))) {
                Exec::Done(replies) => Reply::List(replies),
                Exec::Not | Exec::Unknown => return,
            }
        } else {
            let reply = self.ask(&format!("MGET {}", keys.join(" ")));
            match became(reply) {
                Became::Ran(reply) => reply,
                Became::NotExecuted | Became::Unknown => return,
            }
        };
        match numbers(&reply) {
            Some(numbers) => self.shared.complain_of(self.shared.accounts.seen(group, numbers, before)),
            None => self.misanswered("a look at accounts", &reply),
        }
    }
}

/// What a plan writes.
fn write_of((key, value): &(String, Option<String>)) -> Option<Step> {
    let (op, value) = (if is_list(key) { "append" } else { "write" }, value.clone()?);
    Some(Step { op, key: key.clone(), value, ..Step::default() })
}
