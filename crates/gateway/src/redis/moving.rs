//! Commands whose keys are of several shards, and that write what they have read there: RENAME, COPY, BITOP, and MSETNX inside `MULTI` (REDIS 5).
//!
//! The front reads the keys, without locks, and then sends one transaction: it demands that each key that was read is what it was, and has the
//! parts that the commands come to. If a key has changed nothing is written, and the front reads again, until its deadline. So what is told was so
//! at one moment, at which everything was written (**R10.6**), and only what is unknown is told so (**R10.2**): each try before the last one has a
//! recorded conflict.
//!
//! A command has as many parts whatever was read, and its reply follows from what these say ([`super::calls::Merge::Moved`]), so that a record
//! alone tells it (**R10.4**). A value takes its end with it, and the target gets *its* next version (**R10.7**): it is set, as by `SET`.
//!
//! In `MULTI` the other commands run at their shards, between the parts of these ones. What they make of a key nobody knows here: a transaction that
//! changes a key and then reads it for another shard is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kasha_client::session::{CallId, Completion, Next as Then, Session, Tries, WhyNot};
use kasha_commands::bit_op::{COMBINED_BYTES_MAX, Combines};
use kasha_commands::{Class, Command as Name, Item, ReplyWriter, Row, copy_replaces};
use kasha_machine::Effects;
use kasha_types::planted::{self, Bug};
use kasha_types::{ClusterTime, TableId, Tick};
use kasha_wire::operation::ItemsBuffer;
use kasha_wire::outcome::Shape;
use kasha_wire::{Outcome, Read};

use super::calls::{self, Expected, Merge, NoCall, OperationKey, Sending, Split, Together};
use super::flush;
use super::unknown::{Key, Touched, Watched};

/// A command, as its connection said it.
#[derive(Debug)]
pub enum Asked {
    /// The front has answered it.
    Answered(Vec<u8>),
    /// It is on keys of this table.
    Command { table: TableId, row: &'static Row, words: Vec<Vec<u8>> },
}

/// What has to be known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    Value,
    /// And when the value ends.
    End,
}

/// A value, and when it ends. `None` outside: there is none.
type Value = Option<(Arc<[u8]>, Option<ClusterTime>)>;

/// What was read of a key.
#[derive(Debug)]
struct Held {
    version: u64,
    value: Value,
    /// Nothing more has to be known of it.
    is_whole: bool,
}

/// What is waited for.
#[derive(Debug)]
enum Stage {
    Values(Vec<Key>),
    End(Key),
    /// The unix time of ClusterTime 0.
    Time,
    Pause,
    Commit(Expected),
}

/// An operation that is under way.
#[derive(Debug)]
pub struct Moving {
    said: Vec<Asked>,
    watched: Vec<Watched>,
    is_exec: bool,
    needs: BTreeMap<Key, Need>,
    /// The operation key, and its time to live in milliseconds.
    once: Option<(Vec<u8>, u64)>,
    /// What the operation key stands for.
    fingerprint: u64,
    tries: Tries,
    read: BTreeMap<Key, Held>,
    stage: Stage,
}

/// What comes next.
#[derive(Debug)]
pub enum Next {
    /// This call has to end first. It may change something under these keys.
    Asks(CallId, Touched),
    /// It goes on then.
    Pauses(Tick),
    /// It is over, and this is its reply.
    Replies(Vec<u8>),
}

/// With what it goes on.
pub struct Going<'d> {
    pub now: Tick,
    pub session: &'d mut Session,
    pub out: &'d mut Effects,
}

fn error(text: &str) -> Next {
    let mut reply = Vec::new();
    ReplyWriter(&mut reply).item(Item::Error(text));
    Next::Replies(reply)
}

/// Why a command that moves something is wrong, whatever its keys hold.
pub fn error_of(row: &Row, words: &[&[u8]]) -> Option<&'static str> {
    match row.command {
        Name::Copy => copy_replaces(words[3..].iter().copied()).err(),
        Name::BitOp => Combines::parse(words[1], words.len() - 3).err(),
        Name::MSetNx => calls::error_of_pairs(words, "ERR wrong number of arguments for 'msetnx' command"),
        _ => None,
    }
}

/// What such a command has to know.
fn needs_of(row: &Row, words: &[&[u8]]) -> Vec<(usize, Need)> {
    match row.command {
        Name::Rename => vec![(1, Need::End)],
        Name::RenameNx | Name::Copy => vec![(1, Need::End), (2, Need::Value)],
        Name::BitOp => (3..words.len()).map(|at| (at, Need::Value)).collect(),
        _ => (1..words.len()).step_by(2).map(|at| (at, Need::Value)).collect(),
    }
}

fn refs(words: &[Vec<u8>]) -> Vec<&[u8]> {
    words.iter().map(Vec::as_slice).collect()
}

impl Moving {
    /// An operation of these commands, of which one at least moves something between shards. `watched`: it is `EXEC`, and demands this.
    ///
    /// `Err`: what it would move is known to nobody here, or keys have no owner.
    pub fn new(
        (said, watched): (Vec<Asked>, Option<Vec<Watched>>),
        once: Option<OperationKey<'_>>,
        until: Tick,
        session: &Session,
    ) -> Result<Self, NoCall> {
        let (mut needs, mut changed, mut is_flushed) = (BTreeMap::new(), BTreeSet::new(), false);
        for one in &said {
            let Asked::Command { table, row, words } = one else { continue };
            let words = refs(words);
            match calls::split(row, &words, *table, session) {
                Ok(_) if flush::is_one(row) => is_flushed = true,
                Ok(_) if matches!(row.class, Class::Changes(_)) => changed.extend(calls::keys_of(*table, row, &words)),
                Ok(_) => {}
                Err(NoCall::Moves) => {
                    for (at, need) in needs_of(row, &words) {
                        let key = (*table, words[at].to_vec());
                        if is_flushed || changed.contains(&key) {
                            return Err(NoCall::Refused(format!(
                                "ERR '{}' has keys of several shards, and reads what an earlier command of the transaction changes; give them a \
                                 common {{tag}}, or split the transaction (K0301)",
                                row.name
                            )));
                        }
                        let known = needs.entry(key).or_insert(need);
                        *known = need.max(*known);
                    }
                }
                Err(other) => return Err(other),
            }
        }
        let tries = Tries::new(until);
        let (is_exec, watched) = (watched.is_some(), watched.unwrap_or_default());
        let fingerprint = once.map_or(0, |once| once.fingerprint);
        let once = once.map(|once| (once.key.to_vec(), once.millis));
        Ok(Self { said, watched, is_exec, needs, once, fingerprint, tries, read: BTreeMap::new(), stage: Stage::Pause })
    }

    /// Asks for what is not known yet, or commits.
    pub fn ask(&mut self, on: &mut Going<'_>) -> Next {
        let until = Some(self.tries.until());
        let mut unread = self.needs.keys().filter(|key| !self.read.contains_key(*key));
        if let Some((table, _)) = unread.next() {
            let unread = self.needs.keys().filter(|key| key.0 == *table && !self.read.contains_key(*key));
            let (table, keys): (TableId, Vec<Key>) = (*table, unread.cloned().collect());
            let items = ItemsBuffer::keys(keys.iter().map(|(_, key)| &key[..]));
            let call = on.session.read(on.now, table, &Read::MultiGet { keys: items.as_items() }, until, on.out);
            self.stage = Stage::Values(keys);
            return Next::Asks(call, Touched::default());
        }
        if let Some((key, _)) = self.read.iter().find(|(_, held)| !held.is_whole) {
            let key = key.clone();
            let call = on.session.read(on.now, key.0, &Read::TimeToLive { key: &key.1 }, until, on.out);
            self.stage = Stage::End(key);
            return Next::Asks(call, Touched::default());
        }
        let mut ends = self.read.values().filter_map(|held| held.value.as_ref()?.1);
        if ends.next().is_some() && on.session.unix_origin().is_none() {
            if let Stage::Time = self.stage {
                return error("TRYAGAIN the cluster does not know the time of day yet");
            }
            self.stage = Stage::Time;
            return Next::Asks(on.session.refresh(on.now, on.out), Touched::default());
        }
        self.commit(on)
    }

    /// What it waited for has ended.
    pub fn next(&mut self, completion: &Completion, on: &mut Going<'_>) -> Next {
        match &self.stage {
            Stage::Values(..) | Stage::End(_) => self.on_read(completion, on),
            Stage::Time | Stage::Pause => self.ask(on),
            Stage::Commit(_) => self.on_commit(completion, on),
        }
    }

    fn on_read(&mut self, completion: &Completion, on: &mut Going<'_>) -> Next {
        const NOT_READ: &str = "ERR the server's result cannot be read; run the same version of Kasha everywhere";
        let shape = if let Stage::End(_) = self.stage { Shape::Expiry } else { Shape::Values };
        let outcome = match completion {
            Completion::Read { result } | Completion::TimeToLive { result, .. } => Outcome::decode(shape, result),
            failed => return error(&calls::failure(failed).0),
        };
        match (&self.stage, outcome) {
            (Stage::Values(keys), Ok(Outcome::Values(values))) if values.len() == keys.len() => {
                for (key, found) in keys.iter().zip(values) {
                    let is_whole = found.is_none() || self.needs[key] == Need::Value;
                    let version = found.as_ref().map_or(0, |(version, _)| *version);
                    let value = found.map(|(_, value)| (value.into(), None));
                    self.read.insert(key.clone(), Held { version, value, is_whole });
                }
            }
            (Stage::End(key), Ok(told @ (Outcome::Expiry(..) | Outcome::NotFound))) => {
                let held = self.read.get_mut(key).expect("it was read");
                match (told, &mut held.value) {
                    (Outcome::Expiry(version, found), Some((_, ends))) if version == held.version => {
                        (*ends, held.is_whole) = (found.filter(|_| !planted::is_on(Bug::EndLeftBehind)), true);
                    }
                    // It has changed since.
                    _ => return self.lose(on),
                }
            }
            _ => return error(NOT_READ),
        }
        self.ask(on)
    }

    fn commit(&mut self, on: &mut Going<'_>) -> Next {
        let (together, checks) = match self.together(on.session) {
            Ok(made) => made,
            Err(NoCall::Refused(text)) => return error(&text),
            Err(NoCall::Table | NoCall::Moves) => {
                return error("TRYAGAIN the table has changed meanwhile; nothing was executed");
            }
        };
        let again = self.tries.again(on.session, on.now);
        // What is demanded is another matter in each try, and nothing is kept of it.
        let (fingerprint, keeps_refusal) = (self.fingerprint, false);
        let once =
            self.once.as_ref().map(|(key, millis)| OperationKey { key, millis: *millis, fingerprint, keeps_refusal });
        let sending = Sending { until: self.tries.until(), once, again };
        match together.call(on.now, &sending, on.session, on.out) {
            Ok(called) => {
                self.stage = Stage::Commit(calls::expected(self.is_exec, checks, called.merges));
                Next::Asks(called.call, called.touched)
            }
            Err(why) => error(&format!("ERR {why}")),
        }
    }

    fn on_commit(&mut self, completion: &Completion, on: &mut Going<'_>) -> Next {
        let failed = match completion {
            Completion::Executed { result, .. } => calls::failed_part(result),
            Completion::NotExecuted(WhyNot::Conflict) => return self.lose(on),
            _ => None,
        };
        let watched = self.watched.len();
        if failed.is_some_and(|part| (watched..watched + self.needs.len()).contains(&part)) {
            return self.lose(on);
        }
        let Stage::Commit(expected) = &self.stage else { unreachable!("the caller looked") };
        let mut reply = Vec::new();
        calls::reply(completion, expected, &mut ReplyWriter(&mut reply));
        Next::Replies(reply)
    }

    /// Nothing was written, and that is recorded.
    fn lose(&mut self, on: &mut Going<'_>) -> Next {
        self.read.clear();
        self.stage = Stage::Pause;
        match self.tries.lose(on.now, on.session.draw()) {
            Then::Again(pause) if pause.is_zero() => self.ask(on),
            Then::Again(pause) => Next::Pauses(on.now.after(pause)),
            Then::GiveUp | Then::Return | Then::Fail => error(&format!("TRYAGAIN {}", WhyNot::Conflict)),
        }
    }

    /// The transaction: what is demanded, and then the parts of all commands. And how many demands these are.
    fn together(&self, session: &Session) -> Result<(Together, usize), NoCall> {
        let mut together = Together::default();
        self.watched.iter().for_each(|watched| together.check(watched));
        let is_unchecked = planted::is_on(Bug::MovedUnchecked);
        for ((table, key), held) in self.read.iter().filter(|_| !is_unchecked) {
            together.check(&Watched { table: *table, key: key.clone(), version: held.version });
        }
        let checks = self.watched.len() + if is_unchecked { 0 } else { self.read.len() };
        let mut written = BTreeMap::new();
        for one in &self.said {
            match one {
                Asked::Answered(reply) => together.push_answered(reply.clone()),
                Asked::Command { table, row, words } => {
                    let words = refs(words);
                    let split = match calls::split(row, &words, *table, session) {
                        Err(NoCall::Moves) => {
                            Move { moving: self, table: *table, session, written: &mut written, parts: Vec::new() }
                                .split(row, &words)?
                        }
                        split => split?,
                    };
                    together.push(&split);
                }
            }
        }
        Ok((together, checks))
    }
}

/// A command that moves something, while it becomes parts.
struct Move<'m> {
    moving: &'m Moving,
    table: TableId,
    session: &'m Session,
    /// What the commands before it leave, as far as they move something, too.
    written: &'m mut BTreeMap<Key, Value>,
    parts: calls::PlacedCommands,
}

impl Move<'_> {
    fn split(mut self, row: &Row, words: &[&[u8]]) -> Result<Split, NoCall> {
        match row.command {
            Name::Rename => {
                let source = self.seen(words[1]);
                self.remove(words[1])?;
                match source {
                    None => self.look(Name::Exists, words[2])?,
                    found => self.set(words[2], found)?,
                }
            }
            Name::RenameNx => {
                let (source, target) = (self.seen(words[1]), self.seen(words[2]));
                if source.is_some() && target.is_none() {
                    self.remove(words[1])?;
                    self.set(words[2], source)?;
                } else {
                    self.look(Name::Exists, words[1])?;
                    self.look(Name::Exists, words[2])?;
                }
            }
            Name::Copy => {
                let replaces =
                    copy_replaces(words[3..].iter().copied()).map_err(|text| NoCall::Refused(text.into()))?;
                let (source, target) = (self.seen(words[1]), self.seen(words[2]));
                self.look(Name::Exists, words[1])?;
                match source {
                    Some(_) if replaces || target.is_none() => self.set(words[2], source)?,
                    _ => self.look(Name::Exists, words[2])?,
                }
            }
            Name::BitOp => self.combine(words)?,
            _ => {
                let are_absent = words[1..].iter().step_by(2).all(|key| self.seen(key).is_none());
                for pair in words[1..].chunks_exact(2) {
                    match are_absent {
                        true => self.set(pair[0], Some((pair[1].into(), None)))?,
                        false => self.look(Name::Exists, pair[0])?,
                    }
                }
            }
        }
        let count = u32::try_from(self.parts.len()).expect("few parts");
        Ok(Split { parts: self.parts, merge: Merge::Moved(row.command, count) })
    }

    fn combine(&mut self, words: &[&[u8]]) -> Result<(), NoCall> {
        let combines = Combines::parse(words[1], words.len() - 3).map_err(|text| NoCall::Refused(text.into()))?;
        let strings = words[3..].iter().map(|key| self.seen(key).map_or_else(|| [].into(), |(value, _)| value));
        let strings: Vec<Arc<[u8]>> = strings.collect();
        if strings.iter().map(|string| string.len()).sum::<usize>() > COMBINED_BYTES_MAX {
            self.look(Name::Exists, words[2])?;
            return self.look(Name::Type, words[2]);
        }
        match combines.combine(&strings) {
            combined if combined.is_empty() => self.remove(words[2])?,
            combined => self.set(words[2], Some((combined.into(), None)))?,
        }
        self.look(Name::StrLen, words[2])
    }

    /// A key's value, as the commands before leave it.
    fn seen(&self, key: &[u8]) -> Value {
        let key = (self.table, key.to_vec());
        let read = || self.moving.read.get(&key).and_then(|held| held.value.clone());
        self.written.get(&key).cloned().unwrap_or_else(read)
    }

    fn push(&mut self, name: Name, words: &[&[u8]]) -> Result<(), NoCall> {
        let placed = calls::placed(name.row(), words, self.table, self.session)?;
        self.parts.push(placed);
        Ok(())
    }

    fn look(&mut self, name: Name, key: &[u8]) -> Result<(), NoCall> {
        self.push(name, &[key])
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), NoCall> {
        self.written.insert((self.table, key.to_vec()), None);
        self.push(Name::Del, &[key])
    }

    /// **R10.12** An end is said as the unix time that it is: exactly.
    fn set(&mut self, key: &[u8], value: Value) -> Result<(), NoCall> {
        let (bytes, ends) = value.clone().expect("there is one");
        self.written.insert((self.table, key.to_vec()), value);
        match ends {
            None => self.push(Name::Set, &[key, &bytes]),
            Some(ends) => {
                let origin = self.session.unix_origin().expect("it was asked for");
                let unix = (u128::from(origin.0) + u128::from(ends.0)).to_string();
                self.push(Name::Set, &[key, &bytes, b"PXAT", unix.as_bytes()])
            }
        }
    }
}
