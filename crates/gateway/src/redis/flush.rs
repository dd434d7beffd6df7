//! `FLUSHDB` and `FLUSHALL`: one transaction, with a part for each shard of each table (**R10.15**), whose keys all end at one moment.
//!
//! A part names no key of the table. Its one word is a key that the shard would have, which is how the part finds its way.
//!
//! `FLUSHALL` needs to know which tables there are. A table that the session has not heard of may hold what its writer was told is done: so the
//! session asks first.

use kasha_client::session::Session;
use kasha_commands::{Command as Name, Row};
use kasha_types::{ShardId, TableId, slot_of};
use kasha_wire::operation::CommandBuffer;
use kasha_wire::requests::Request;

use super::calls::{Merge, NoCall, Placed, Split};
use super::rows::row_of;
use super::tables::{self, DATABASES};

/// Whether it is one of the two.
pub fn is_one(row: &Row) -> bool {
    matches!(row.command, Name::FlushDb | Name::FlushAll)
}

/// Whether a request is one of all databases.
pub fn is_of_all(request: &[u8]) -> bool {
    let words: Vec<_> = Request::of_kept(request).words().collect();
    row_of(&words).is_ok_and(|row| row.command == Name::FlushAll)
}

/// The parts of one that is begun in the database of this table.
pub fn split(row: &Row, words: &[&[u8]], table: TableId, session: &Session) -> Result<Split, NoCall> {
    let are_right = match words {
        [_] => true,
        [_, option] => option.eq_ignore_ascii_case(b"async") || option.eq_ignore_ascii_case(b"sync"),
        _ => false,
    };
    if !are_right {
        return Err(NoCall::Refused("ERR syntax error".to_owned()));
    }
    let tables: Vec<_> = match row.command {
        Name::FlushAll => (0..DATABASES).filter_map(|database| tables::table(database, session)).collect(),
        _ => vec![table],
    };
    let mut parts = Vec::new();
    for table in tables {
        for (shard, key) in keys_of_shards(table, session).ok_or(NoCall::Table)? {
            let command = CommandBuffer::new(Name::FlushDb.row(), [&key[..]]).expect("a short key");
            parts.push(Placed { shard, table, command });
        }
    }
    let merge = Merge::Ok(u32::try_from(parts.len()).expect("few tables"));
    Ok(Split { parts, merge })
}

/// A key of each shard that has a part of the table. `None`: the session does not know the table any more.
fn keys_of_shards(table: TableId, session: &Session) -> Option<Vec<(ShardId, Vec<u8>)>> {
    let configuration = session.configuration()?;
    let mut shards: Vec<_> = configuration.tablets_of(table).map(|tablet| tablet.shard).collect();
    shards.sort_unstable();
    shards.dedup();
    let mut keys = Vec::with_capacity(shards.len());
    for number in 0u32.. {
        if shards.is_empty() {
            break;
        }
        let key = number.to_string().into_bytes();
        let owner = configuration.owner(table, slot_of(&key))?;
        if let Some(at) = shards.iter().position(|shard| *shard == owner) {
            keys.push((shards.swap_remove(at), key));
        }
    }
    (!keys.is_empty()).then_some(keys)
}
