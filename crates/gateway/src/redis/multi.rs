//! `MULTI`, `EXEC`, `DISCARD`, `WATCH`, `UNWATCH`.

use std::collections::BTreeMap;

use kasha_client::session::Completion;
use kasha_commands::{Class, Command as Name, Item, ReplyWriter, Row};
use kasha_types::planted::{self, Bug};
use kasha_types::{ConnId, ShardId, slot_of};
use kasha_wire::Outcome;
use kasha_wire::outcome::Shape;
use kasha_wire::requests::Request;

use super::calls::{self, Expected, NoCall, OperationKey, Together};
use super::connection::{Blocked, Connection, Outstanding, Queued, Waiting, Watched};
use super::doing::{Begun, Doing};
use super::local;
use super::once;
use super::unknown::Key;

/// Commands of one `MULTI`, at most, and their bytes: what a transaction takes.
const QUEUED_MAX: usize = 1024;
const QUEUED_BYTES_MAX: usize = kasha_types::limits::BODY_BYTES_MAX;

/// A command, and its words.
type Given<'w> = (&'static Row, &'w [&'w [u8]]);

/// Begins what belongs to a transaction: one of these commands, or any command after `MULTI`. Nothing: it is another one.
pub(super) fn begin(
    doing: &mut Doing<'_>,
    (conn, connection): (ConnId, &mut Connection),
    (row, words): Given<'_>,
    request: &Waiting,
) -> Option<Begun> {
    let is_answered = request.is_answered;
    let in_multi = connection.queued.is_some();
    Some(match row.command {
        Name::Multi if in_multi => doing.reply(Item::Error("ERR MULTI calls can not be nested")),
        Name::Multi => {
            connection.queued = Some(Queued::default());
            doing.reply(Item::Ok)
        }
        Name::Exec => execute(doing, (conn, connection), is_answered, None),
        Name::KashaOnce => once::begin(doing, (conn, connection), words, request),
        Name::Discard => match connection.queued.take() {
            None => doing.reply(Item::Error("ERR DISCARD without MULTI")),
            Some(_) => {
                connection.forget_watched();
                doing.reply(Item::Ok)
            }
        },
        Name::Watch if in_multi => doing.reply(Item::Error("ERR WATCH inside MULTI is not allowed")),
        Name::Watch => watch(doing, (conn, connection), words, is_answered),
        Name::Unwatch if !in_multi => {
            connection.forget_watched();
            doing.reply(Item::Ok)
        }
        Name::Quit | Name::Reset => return None,
        _ if in_multi => queue(doing, connection, (row, words), &request.bytes),
        _ => return None,
    })
}

fn queue(doing: &mut Doing<'_>, connection: &mut Connection, (row, words): Given<'_>, request: &[u8]) -> Begun {
    let queued = connection.queued.as_mut().expect("the caller looked");
    let is_alone = Name::ALL.iter().any(|other| other.container().is_some_and(|(of, _)| of == row.name));
    let refusal = match row.class {
        _ if queued.requests.len() >= QUEUED_MAX || queued.bytes >= QUEUED_BYTES_MAX => {
            Some("ERR a transaction has at most 1024 commands and 4 MiB; split it".to_owned())
        }
        Class::Composed => Some(format!("ERR '{}' is not allowed in a transaction: it is of no key", row.name)),
        // Its subcommand is none.
        Class::Local if is_alone && words.len() > 1 => {
            doing.answer(row, words, connection);
            connection.spoil();
            return Begun::Answered(None);
        }
        Class::Reads(_) | Class::Changes(_) | Class::Local => None,
    };
    let queued = connection.queued.as_mut().expect("the caller looked");
    if let Some(text) = refusal {
        queued.is_spoiled = true;
        return doing.reply(Item::Error(&text));
    }
    queued.bytes += request.len();
    queued.requests.push(request.to_vec());
    doing.reply(Item::Word("QUEUED"))
}

/// What is demanded of the keys that are watched, and how many demands these are.
fn demands(connection: &Connection) -> (Together, usize) {
    let is_blind = planted::is_on(Bug::WatchBlind);
    let demands: Vec<_> = connection.watched.iter().filter(|watched| !is_blind || watched.version == 0).collect();
    let mut together = Together::default();
    demands.iter().for_each(|watched| together.check(watched));
    (together, demands.len())
}

/// **R10.6** All commands are one operation, under an operation key or none. Watched keys are checked before them.
pub(super) fn execute(
    doing: &mut Doing<'_>,
    (conn, connection): (ConnId, &mut Connection),
    is_answered: Option<bool>,
    once: Option<OperationKey<'_>>,
) -> Begun {
    let Some(queued) = &connection.queued else { return doing.reply(Item::Error("ERR EXEC without MULTI")) };
    if queued.is_spoiled || connection.is_unwatched {
        connection.queued = None;
        connection.forget_watched();
        return doing.reply(Item::Error("EXECABORT Transaction discarded because of previous errors."));
    }
    if planted::is_on(Bug::MultiSplit) && connection.watched.is_empty() {
        let requests = connection.queued.take().expect("looked at").requests;
        doing.reply(Item::List(u32::try_from(requests.len()).expect("a limit")));
        let begins_anew =
            |bytes| Waiting { bytes, is_cut: false, since: doing.now, is_answered: None, goes_alone: false };
        requests.into_iter().rev().for_each(|bytes| connection.push_front(begins_anew(bytes)));
        return Begun::Answered(is_answered);
    }
    let (mut together, checks) = demands(connection);
    let (before, requests) = (connection.settings(), queued.requests.clone());
    if let Err(why) = gather(doing, connection, &requests, &mut together) {
        let missing = connection.database;
        connection.restore(before);
        return match why {
            NoCall::Table => Begun::Blocked(Blocked::Table(missing)),
            NoCall::Refused(text) => {
                connection.queued = None;
                connection.forget_watched();
                doing.reply(Item::Error(&text))
            }
        };
    }
    if doing.unknown.has(conn, || together.keys().to_vec()) {
        connection.restore(before);
        return Begun::Blocked(Blocked::Unknown);
    }
    connection.queued = None;
    connection.forget_watched();
    if together.is_answered() {
        return answer(doing, together.into_merges());
    }
    match together.call(doing.now, once, doing.session, doing.out) {
        Ok(called) => {
            let expected = Expected::Whole { checks, commands: called.merges };
            let is_answered = is_answered.unwrap_or_else(|| connection.is_answered());
            let (call, keys) = (called.call, called.keys);
            connection.before_exec = Some(before);
            Begun::Waits(Outstanding::Call { call, expected, is_answered, keys })
        }
        Err(why) => {
            connection.restore(before);
            doing.reply(Item::Error(&format!("ERR {why}")))
        }
    }
}

/// Adds queued commands to what is done together, and answers those that the front answers.
fn gather(
    doing: &mut Doing<'_>,
    connection: &mut Connection,
    requests: &[Vec<u8>],
    together: &mut Together,
) -> Result<(), NoCall> {
    for request in requests {
        let words: Vec<_> = Request::of_kept(request).words().collect();
        let row = super::doing::row_of(&words).expect("looked at when it was queued");
        if row.class == Class::Local {
            let mut reply = Vec::new();
            local::answer(row, &words, doing.known(), connection, &mut ReplyWriter(&mut reply));
            together.push_answered(reply);
            continue;
        }
        let table = doing.table(connection.database).ok_or(NoCall::Table)?;
        together.push(table, &calls::split(row, &words, table, doing.session)?);
    }
    Ok(())
}

/// The replies of commands that the front has answered by itself.
fn answer(doing: &mut Doing<'_>, merges: Vec<calls::Merge>) -> Begun {
    doing.reply(Item::List(u32::try_from(merges.len()).expect("a limit")));
    for merge in merges {
        let calls::Merge::Fixed(reply) = merge else { unreachable!("nothing has to be asked") };
        doing.scratch.extend_from_slice(&reply);
    }
    Begun::Answered(None)
}

/// **R10.7** The versions of the keys are looked at; `EXEC` demands that they are what they were.
fn watch(
    doing: &mut Doing<'_>,
    (conn, connection): (ConnId, &mut Connection),
    words: &[&[u8]],
    is_answered: Option<bool>,
) -> Begun {
    let Some(table) = doing.table(connection.database) else {
        return Begun::Blocked(Blocked::Table(connection.database));
    };
    let configuration = doing.session.configuration().expect("it has the table");
    let mut by_shard: BTreeMap<ShardId, Vec<Key>> = BTreeMap::new();
    for key in &words[1..] {
        let Some(owner) = configuration.owner(table, slot_of(key)) else {
            return Begun::Blocked(Blocked::Table(connection.database));
        };
        by_shard.entry(owner).or_default().push((table, key.to_vec()));
    }
    if doing.unknown.has(conn, || by_shard.values().flatten().cloned().collect::<Vec<_>>()) {
        return Begun::Blocked(Blocked::Unknown);
    }
    let is_answered = is_answered.unwrap_or_else(|| connection.is_answered());
    look(doing, by_shard.into_values().collect(), is_answered)
}

/// Looks at the keys of one shard, and then at those of the others.
pub(super) fn look(doing: &mut Doing<'_>, mut keys: Vec<Vec<Key>>, is_answered: bool) -> Begun {
    let now = keys.pop().expect("a key is watched");
    let call = calls::look_at(doing.now, &now, doing.session, doing.out);
    let expected = Expected::Versions { now, later: keys };
    Begun::Waits(Outstanding::Call { call, expected, is_answered, keys: Vec::new() })
}

/// What was seen of keys that are to be watched. A key that is watched twice is checked as it was when it was first looked at; what could not be
/// looked at keeps `EXEC` from running.
pub(super) fn note_versions(connection: &mut Connection, keys: &[Key], completion: &Completion) -> bool {
    let observed = match completion {
        Completion::Read { result } => Outcome::decode(Shape::Observed, result).ok(),
        _ => None,
    };
    let Some(Outcome::Observed(observed)) = observed else {
        connection.is_unwatched = !planted::is_on(Bug::WatchFailedUnnoticed);
        return false;
    };
    for ((table, key), (version, value)) in keys.iter().zip(observed) {
        if !connection.watched.iter().any(|known| known.table == *table && known.key == *key) {
            let version = if value.is_some() { version } else { 0 };
            connection.watched.push(Watched { table: *table, key: key.clone(), version });
        }
    }
    true
}
