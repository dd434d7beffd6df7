//! `MULTI`, `EXEC`, `DISCARD`, `WATCH`, `UNWATCH`.

use std::collections::BTreeMap;

use kasha_client::session::{Completion, WhyFailed};
use kasha_commands::{Class, Command as Name, Item, ReplyWriter, Row};
use kasha_types::limits::{OPERATION_KEYS_MAX, RESULT_BYTES_MAX, VALUE_BYTES_MAX};
use kasha_types::planted::{self, Bug};
use kasha_types::{ConnId, ShardId, Tick, slot_of};
use kasha_wire::outcome::Shape;
use kasha_wire::requests::Request;
use kasha_wire::{Outcome, Refusal};

use super::calls::{self, Expected, NoCall, OperationKey, Sending, Together};
use super::connection::{Blocked, Connection, Outstanding, Queued, TablesAsked, Waiting};
use super::doing::{Begun, Doing};
use super::flush;
use super::local;
use super::moving::Asked;
use super::once;
use super::rows::row_of;
use super::unknown::{Key, Touched, Watched};

/// Commands of one `MULTI`, at most, and their bytes: what a transaction takes.
const QUEUED_MAX: usize = 1024;
const QUEUED_BYTES_MAX: usize = kasha_types::limits::BODY_BYTES_MAX;

/// So many keys are looked at together whatever their values are.
const LARGE_KEYS: usize = RESULT_BYTES_MAX / VALUE_BYTES_MAX - 1;

/// A command, and its words.
type Given<'w> = (&'static Row, &'w [&'w [u8]]);

/// Begins what belongs to a transaction: one of these commands, or any command after `MULTI`. Nothing: it is another one.
pub(super) fn begin(
    doing: &mut Doing<'_>,
    (conn, connection): (ConnId, &mut Connection),
    (row, words): Given<'_>,
    request: &Waiting,
) -> Option<Begun> {
    let in_multi = connection.queued.is_some();
    Some(match row.command {
        Name::Multi if in_multi => doing.reply(Item::Error("ERR MULTI calls can not be nested")),
        Name::Multi => {
            connection.queued = Some(Queued::default());
            doing.reply(Item::Ok)
        }
        Name::Exec => execute(doing, (conn, connection), request, None),
        Name::KashaOnce => once::begin(doing, (conn, connection), words, request),
        Name::Discard => match connection.queued.take() {
            None => doing.reply(Item::Error("ERR DISCARD without MULTI")),
            Some(_) => {
                connection.forget_watched();
                doing.reply(Item::Ok)
            }
        },
        Name::Watch if in_multi => doing.reply(Item::Error("ERR WATCH inside MULTI is not allowed")),
        Name::Watch => watch(doing, (conn, connection), words, request),
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
        Class::Composed if !flush::is_one(row) => {
            Some(format!("ERR '{}' is not allowed in a transaction: it is of no key", row.name))
        }
        // Its subcommand is none.
        Class::Local if is_alone && words.len() > 1 => {
            doing.answer(row, words, connection);
            connection.spoil();
            return Begun::Answered(None);
        }
        Class::Composed | Class::Reads(_) | Class::Changes(_) | Class::Local => None,
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

/// What is demanded of the keys that are watched.
fn demands(connection: &Connection) -> Vec<Watched> {
    let is_blind = planted::is_on(Bug::WatchBlind);
    connection.watched.iter().filter(|watched| !is_blind || watched.version == 0).cloned().collect()
}

/// What stands since `MULTI`. What is of no key is answered now. `Err`: this database has no table yet.
fn said(doing: &Doing<'_>, connection: &mut Connection) -> Result<Vec<Asked>, u8> {
    let requests = connection.queued.as_ref().expect("the caller looked").requests.clone();
    let said = requests.iter().map(|request| {
        let words: Vec<_> = Request::of_kept(request).words().collect();
        let row = row_of(&words).expect("looked at when it was queued");
        if row.class == Class::Local {
            let mut reply = Vec::new();
            local::answer(row, &words, doing.known(), connection, &mut ReplyWriter(&mut reply));
            return Ok(Asked::Answered(reply));
        }
        let table = doing.table(connection.database).ok_or(connection.database)?;
        Ok(Asked::Command { table, row, words: words.iter().map(|word| word.to_vec()).collect() })
    });
    said.collect()
}

/// What the operation key of a transaction stands for.
fn fingerprint(connection: &Connection, said: &[Asked]) -> u64 {
    let watched = connection.watched.iter().map(|watched| (watched.table, &watched.key[..]));
    let commands = said.iter().filter_map(|one| match one {
        Asked::Answered(_) => None,
        Asked::Command { table, row, words } => Some((*table, *row, words.iter().map(Vec::as_slice).collect())),
    });
    once::fingerprint(watched, commands)
}

/// The parts of all commands behind what is demanded; and whether some of them move something between shards, and have no parts yet.
fn put_together(doing: &Doing<'_>, said: &mut [Asked], watched: &[Watched]) -> Result<(Together, bool), NoCall> {
    let (mut together, mut moves) = (Together::default(), false);
    watched.iter().for_each(|watched| together.check(watched));
    for one in said {
        let (table, row, words) = match &*one {
            Asked::Answered(reply) => {
                together.push_answered(reply.clone());
                continue;
            }
            Asked::Command { table, row, words } => (*table, *row, words.iter().map(Vec::as_slice).collect::<Vec<_>>()),
        };
        match calls::split(row, &words, table, doing.session) {
            Ok(split) => together.push(&split),
            Err(NoCall::Moves) => {
                moves = true;
                together.name(calls::keys_of(table, row, &words));
            }
            // A wrong option is its reply, as in Redis.
            Err(NoCall::Refused(text)) if flush::is_one(row) => {
                let mut reply = Vec::new();
                ReplyWriter(&mut reply).item(Item::Error(&text));
                together.push_answered(reply.clone());
                *one = Asked::Answered(reply);
            }
            Err(other) => return Err(other),
        }
    }
    Ok((together, moves))
}

/// What must not be (R10.6): each command is an operation of its own.
fn one_by_one(doing: &mut Doing<'_>, connection: &mut Connection, is_answered: Option<bool>) -> Begun {
    let requests = connection.queued.take().expect("the caller looked").requests;
    doing.reply(Item::List(u32::try_from(requests.len()).expect("a limit")));
    let begins_anew =
        |bytes| Waiting { bytes, is_cut: false, since: doing.now, is_answered: None, goes_alone: false, begun: None };
    requests.into_iter().rev().for_each(|bytes| connection.push_front(begins_anew(bytes)));
    Begun::Answered(is_answered)
}

/// **R10.6** All commands are one operation, under an operation key or none. Watched keys are checked before them.
pub(super) fn execute(
    doing: &mut Doing<'_>,
    (conn, connection): (ConnId, &mut Connection),
    request: &Waiting,
    once: Option<(&[u8], u64)>,
) -> Begun {
    let Some(queued) = &connection.queued else { return doing.reply(Item::Error("ERR EXEC without MULTI")) };
    if queued.is_spoiled || connection.is_unwatched {
        connection.end_multi();
        return doing.reply(Item::Error("EXECABORT Transaction discarded because of previous errors."));
    }
    if planted::is_on(Bug::MultiSplit) && connection.watched.is_empty() {
        return one_by_one(doing, connection, request.is_answered);
    }
    if connection.tables != TablesAsked::Answered && queued.requests.iter().any(|request| flush::is_of_all(request)) {
        return Begun::Blocked(Blocked::Tables);
    }
    // What they change of the connection counts only if `EXEC` runs.
    let before = connection.settings();
    let mut said = match said(doing, connection) {
        Ok(said) => said,
        Err(missing) => {
            connection.restore(before);
            return Begun::Blocked(Blocked::Table(missing));
        }
    };
    let watched = demands(connection);
    let once = once.map(|(key, millis)| {
        let (fingerprint, keeps_refusal) = (fingerprint(connection, &said), watched.is_empty());
        OperationKey { key, millis, fingerprint, keeps_refusal }
    });
    let (together, moves) = match put_together(doing, &mut said, &watched) {
        Ok(made) => made,
        Err(NoCall::Refused(text)) => {
            connection.restore(before);
            connection.end_multi();
            return doing.reply(Item::Error(&text));
        }
        Err(NoCall::Table | NoCall::Moves) => {
            connection.restore(before);
            return Begun::Blocked(Blocked::Table(connection.database));
        }
    };
    if doing.unknown.has(conn, || together.touched().keys.clone())
        || (together.touched().flushes && doing.unknown.has_any())
    {
        connection.restore(before);
        return Begun::Blocked(Blocked::Unknown);
    }
    connection.end_multi();
    if together.is_answered() && !moves {
        return answer(doing, together.into_merges());
    }
    connection.before_exec = Some(before);
    if moves {
        return doing.begin_moving(connection, (said, Some(watched)), request, once);
    }
    let is_answered = request.is_answered.unwrap_or_else(|| connection.is_answered());
    let Some(until) = doing.deadline(request, is_answered) else {
        return doing.too_late(connection, request, is_answered);
    };
    match together.call(doing.now, &Sending::new(until, once), doing.session, doing.out) {
        Ok(called) => {
            let expected = Expected::Whole { checks: watched.len(), commands: called.merges };
            let (call, touched) = (called.call, called.touched);
            Begun::Waits(Outstanding::Call { call, expected, is_answered, touched })
        }
        Err(why) => doing.reply(Item::Error(&format!("ERR {why}"))),
    }
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
    request: &Waiting,
) -> Begun {
    let Some(table) = doing.table(connection.database) else {
        return Begun::Blocked(Blocked::Table(connection.database));
    };
    // More could not be checked, and each is kept.
    if connection.watched.len() + words.len() - 1 > OPERATION_KEYS_MAX {
        connection.is_unwatched = true;
        return doing.reply(Item::Error("ERR a transaction watches at most 1024 keys; EXEC runs nothing (K0305)"));
    }
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
    let is_answered = request.is_answered.unwrap_or_else(|| connection.is_answered());
    let Some(until) = doing.deadline(request, is_answered) else {
        return doing.too_late(connection, request, is_answered);
    };
    look(doing, (by_shard.into_values().collect(), until), is_answered)
}

/// Looks at the keys of one shard, and then at those of the others, all until then: a connection waits no longer for many shards than for one.
pub(super) fn look(doing: &mut Doing<'_>, (mut keys, until): (Vec<Vec<Key>>, Tick), is_answered: bool) -> Begun {
    let now = keys.pop().expect("a key is watched");
    let call = calls::look_at((doing.now, until), &now, doing.session, doing.out);
    let expected = Expected::Versions { now, later: keys, until };
    Begun::Waits(Outstanding::Call { call, expected, is_answered, touched: Touched::default() })
}

/// What was seen of keys that are to be watched. A key that is watched twice is checked as it was when it was first looked at; what could not be
/// looked at keeps `EXEC` from running.
/// Values that are too large together are looked at a few at a time, with the `later` ones.
pub(super) fn note_versions(
    connection: &mut Connection,
    keys: &[Key],
    completion: &Completion,
    later: &mut Vec<Vec<Key>>,
) -> bool {
    if keys.len() > LARGE_KEYS && matches!(completion, Completion::ReadFailed(WhyFailed::Refused(Refusal::TooLarge))) {
        later.extend(keys.chunks(LARGE_KEYS).map(<[Key]>::to_vec));
        return true;
    }
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
