//! `KASHA.ONCE`: a command, or the commands of `EXEC`, under an operation key (R4.9).
//!
//! It goes alone, as a transaction: the node keeps the result under the key, and gives it to whoever sends the same again. What only reads goes so,
//! too: else nothing would be kept. What a front answers by itself has no record, and is refused.
//!
//! A demand that fails, on a watched key or on one that was read to move it, is not kept: the key is free for who tries again, with what the keys
//! are then. It stands for what was said, without versions. So who asks for what was done is told that, whatever the keys are by now.

use std::collections::BTreeSet;

use kasha_client::session::WhyNot;
use kasha_commands::{Class, Command as Name, Item, Once, Row};
use kasha_types::limits::{OPERATION_KEY_BYTES_MAX, OPERATION_KEY_TTL_MILLIS};
use kasha_types::{ConnId, TableId};

use super::calls::OperationKey;
use super::connection::{Blocked, Connection, Waiting};
use super::doing::{Begun, Doing};
use super::{calls, flush, multi, rows};

fn operation_key<'k>(once: &Once<'k>) -> Result<(&'k [u8], u64), String> {
    if !(1..=OPERATION_KEY_BYTES_MAX).contains(&once.key.len()) {
        return Err(format!("ERR {}", WhyNot::OperationKey));
    }
    let Some(seconds) = once.seconds else { return Ok((once.key, OPERATION_KEY_TTL_MILLIS)) };
    let Some(seconds) = kasha_wire::requests::number(seconds) else {
        return Err("ERR value is not an integer or out of range".to_owned());
    };
    match seconds.checked_mul(1000) {
        Some(millis @ 1..) => Ok((once.key, millis.unsigned_abs())),
        _ => Err("ERR invalid expire time in 'kasha.once' command".to_owned()),
    }
}

/// **R11.13** What a key stands for: the names and words of the commands, as they were said, and the names of the watched keys. Neither the numbers of
/// commands, nor what commands on keys of several shards become, nor versions: these are others when somebody tries again.
pub(super) fn fingerprint<'w>(
    watched: impl Iterator<Item = (TableId, &'w [u8])>,
    commands: impl Iterator<Item = (TableId, &'static Row, Vec<&'w [u8]>)>,
) -> u64 {
    let mut bytes = Vec::new();
    let word = |word: &[u8], bytes: &mut Vec<u8>| {
        bytes.extend_from_slice(&(word.len() as u64).to_le_bytes());
        bytes.extend_from_slice(word);
    };
    let watched: BTreeSet<_> = watched.collect();
    bytes.extend_from_slice(&(watched.len() as u64).to_le_bytes());
    for (table, key) in watched {
        bytes.extend_from_slice(&table.0.to_le_bytes());
        word(key, &mut bytes);
    }
    for (table, row, words) in commands {
        bytes.extend_from_slice(&table.0.to_le_bytes());
        bytes.extend_from_slice(&(words.len() as u64).to_le_bytes());
        word(row.name.as_bytes(), &mut bytes);
        words[1..].iter().for_each(|argument| word(argument, &mut bytes));
    }
    kasha_types::body_hash(&bytes).0
}

/// Why a command cannot be named, if it is not `EXEC`.
fn refusal(row: &Row, words: &[&[u8]], in_multi: bool) -> Option<String> {
    let is_of_keys = matches!(row.class, Class::Reads(_) | Class::Changes(_)) && row.container().is_none();
    match (in_multi, is_of_keys) {
        (true, _) => Some(
            "ERR KASHA.ONCE is not allowed in a transaction, except before EXEC: it names the whole transaction"
                .to_owned(),
        ),
        (false, false) => Some(format!(
            "ERR '{}' cannot go under KASHA.ONCE: only EXEC, and commands on keys that are no subcommands, can",
            rows::shown(words[0]).to_ascii_lowercase()
        )),
        (false, true) => None,
    }
}

/// Begins a command that is named, inside `MULTI` or not.
pub(super) fn begin(
    doing: &mut Doing<'_>,
    (conn, connection): (ConnId, &mut Connection),
    words: &[&[u8]],
    request: &Waiting,
) -> Begun {
    let once = Once::of(words);
    let row = match rows::row_of(once.command) {
        Ok(row) => row,
        Err(text) => {
            connection.spoil();
            return doing.reply(Item::Error(&text));
        }
    };
    if row.command == Name::Exec {
        return begin_exec(doing, (conn, connection), &once, request);
    }
    let refused = refusal(row, once.command, connection.queued.is_some());
    let (key, millis) = match refused.map_or_else(|| operation_key(&once), Err) {
        Ok(key) => key,
        Err(text) => {
            connection.spoil();
            return doing.reply(Item::Error(&text));
        }
    };
    let database = connection.database;
    let Some(table) = doing.table(database) else { return Begun::Blocked(Blocked::Table(database)) };
    let is_held_up = flush::is_one(row) && doing.unknown.has_any();
    if is_held_up || doing.unknown.has(conn, || calls::keys_of(table, row, once.command)) {
        return Begun::Blocked(Blocked::Unknown);
    }
    let commands = std::iter::once((table, row, once.command.to_vec()));
    let fingerprint = fingerprint(std::iter::empty(), commands);
    let once_key = OperationKey { key, millis, fingerprint, keeps_refusal: true };
    doing.begin_alone(connection, (row, once.command), table, request, Some(once_key))
}

/// Begins `EXEC`. If it is refused, its transaction is over, as after any other refusal.
fn begin_exec(
    doing: &mut Doing<'_>,
    (conn, connection): (ConnId, &mut Connection),
    once: &Once<'_>,
    request: &Waiting,
) -> Begun {
    match operation_key(once) {
        Ok(key) => multi::execute(doing, (conn, connection), request, Some(key)),
        Err(text) => {
            connection.end_multi();
            doing.reply(Item::Error(&text))
        }
    }
}
