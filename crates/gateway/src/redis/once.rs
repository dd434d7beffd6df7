//! `KASHA.ONCE`: a command, or the commands of `EXEC`, under an operation key (R4.9).
//!
//! It goes alone, as a transaction: the node keeps the result under the key, and gives it to whoever sends the same again. What only reads goes so,
//! too: else nothing would be kept. What a front answers by itself has no record, and is refused.

use kasha_client::session::WhyNot;
use kasha_commands::{Class, Command as Name, Item, Once, Row};
use kasha_types::ConnId;
use kasha_types::limits::{OPERATION_KEY_BYTES_MAX, OPERATION_KEY_TTL_MILLIS};

use super::calls::OperationKey;
use super::connection::{Blocked, Connection, Waiting};
use super::doing::{self, Begun, Doing};
use super::{calls, flush, local, multi};

/// The demands of `WATCH` would be a part of what the key stands for, and a refusal would be its result: who tries again, with what the keys are now,
/// would hear of a mismatch for ever.
const WATCHED: &str =
    "ERR KASHA.ONCE does not go with WATCH: a transaction that was refused would stay refused under its key";

fn operation_key<'k>(once: &Once<'k>) -> Result<OperationKey<'k>, String> {
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
            local::shown(words[0]).to_ascii_lowercase()
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
    let row = match doing::row_of(once.command) {
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
    let key = match refused.map_or_else(|| operation_key(&once), Err) {
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
    doing.begin_alone(connection, (row, once.command), table, request, Some(key))
}

/// Begins `EXEC`. If it is refused, its transaction is over, as after any other refusal.
fn begin_exec(
    doing: &mut Doing<'_>,
    (conn, connection): (ConnId, &mut Connection),
    once: &Once<'_>,
    request: &Waiting,
) -> Begun {
    let is_watching = connection.queued.is_some() && !connection.watched.is_empty();
    let key = if is_watching { Err(WATCHED.to_owned()) } else { operation_key(once) };
    match key {
        Ok(key) => multi::execute(doing, (conn, connection), request.is_answered, Some(key)),
        Err(text) => {
            connection.queued = None;
            connection.forget_watched();
            doing.reply(Item::Error(&text))
        }
    }
}
