//! Commands as calls of a session, and what their results are to them: what goes together with nobody else's ([`super::gathered`]).
//!
//! A command on keys of several shards has a part for each key, whose replies become one.

use std::collections::BTreeSet;

use kasha_client::session::{CallId, CallOptions, Completion, Session, TransactionParts, WhyFailed, WhyNot};
use kasha_commands::reply::check;
use kasha_commands::{Class, Command as Name, Item, Items, ReplyWriter, Row};
use kasha_machine::Effects;
use kasha_types::planted::{self, Bug};
use kasha_types::{ShardId, TableId, Tick, slot_of};
use kasha_wire::operation::{Check, CommandBuffer, Condition, ItemsBuffer, PartOperation};
use kasha_wire::outcome::each_part;
use kasha_wire::{OutcomeCode, Read};

use super::connection::Watched;
use super::unknown::Key;
use super::whole::Whole;
use crate::limits::COMMAND_DEADLINE;

/// An operation key and its time to live in milliseconds.
pub type OperationKey<'k> = (&'k [u8], u64);

/// The reply to a request whose operation key stands for another one.
pub const MISMATCH: &str =
    "MISMATCH the operation key was used with a different request; use a new key for a new operation (K0334)";

/// How the replies of a command's parts become one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merge {
    /// There is no part: the front has answered.
    Fixed(Vec<u8>),
    /// There is one part.
    One,
    /// So many numbers are added.
    Sum(u32),
    /// So many times OK is OK.
    Ok(u32),
    /// So many replies are a list.
    List(u32),
}

impl Merge {
    fn parts(&self) -> usize {
        match *self {
            Self::Fixed(_) => 0,
            Self::One => 1,
            Self::Sum(parts) | Self::Ok(parts) | Self::List(parts) => parts as usize,
        }
    }
}

/// What comes back of a call.
#[derive(Debug)]
pub enum Expected {
    /// The reply of a command.
    One(Merge),
    /// The replies of commands, as one list; before them as many checks. `EXEC`.
    Whole { checks: usize, commands: Vec<Merge> },
    /// Pages of this table, for a command of no key.
    Pages(TableId, Box<Whole>),
    /// Versions of keys that are to be watched: of those of one shard, and then the others.
    Versions { now: Vec<Key>, later: Vec<Vec<Key>> },
}

/// A command and what it is made of: it is refused before anything is sent, or has parts.
pub struct Split {
    pub parts: Vec<(ShardId, CommandBuffer)>,
    pub merge: Merge,
}

/// The keys of a command, in this table.
pub fn keys_of(table: TableId, row: &Row, words: &[&[u8]]) -> Vec<Key> {
    kasha_commands::keys::positions(row, words.len()).map(|(at, _)| (table, words[at].to_vec())).collect()
}

/// Why a command cannot become a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoCall {
    /// This is its reply.
    Refused(String),
    /// Its keys have no owner, as far as the session knows.
    Table,
}

/// The shard of all keys of a command. `None`: they are of several.
pub fn shard_of(row: &Row, words: &[&[u8]], table: TableId, session: &Session) -> Result<Option<ShardId>, NoCall> {
    let configuration = session.configuration().ok_or(NoCall::Table)?;
    let mut found = None;
    for (at, _) in kasha_commands::keys::positions(row, words.len()) {
        let owner = configuration.owner(table, slot_of(words[at])).ok_or(NoCall::Table)?;
        if *found.get_or_insert(owner) != owner {
            return Ok(None);
        }
    }
    found.map(Some).ok_or_else(|| NoCall::Refused(format!("ERR '{}' has no keys", row.name)))
}

/// What is told of a command that exceeds a limit.
pub fn too_long(row: &Row) -> String {
    format!("ERR '{}' has a key that is too long (K0303), or too many keys (K0305); split it", row.name)
}

/// Takes a command apart by the shards of its keys.
pub fn split(row: &'static Row, words: &[&[u8]], table: TableId, session: &Session) -> Result<Split, NoCall> {
    let configuration = session.configuration().ok_or(NoCall::Table)?;
    let owner = |key: &[u8]| configuration.owner(table, slot_of(key)).ok_or(NoCall::Table);
    let keys: Vec<_> = kasha_commands::keys::positions(row, words.len()).map(|(at, _)| at).collect();
    let owners = keys.iter().map(|&at| owner(words[at])).collect::<Result<Vec<ShardId>, NoCall>>()?;
    let whole = |shard: ShardId| -> Result<Split, NoCall> {
        let command = command_of(row, &words[1..])?;
        Ok(Split { parts: vec![(shard, command)], merge: Merge::One })
    };
    let Some(&first) = owners.first() else { return Err(NoCall::Refused(format!("ERR '{}' has no keys", row.name))) };
    if owners.iter().all(|&shard| shard == first) {
        return whole(first);
    }
    let count = u32::try_from(keys.len()).expect("a limit");
    let (each, merge, width) = match row.command {
        Name::MSet if words.len().is_multiple_of(2) => {
            return Err(NoCall::Refused("ERR wrong number of arguments for 'mset' command".to_owned()));
        }
        Name::MSet => (Name::Set, Merge::Ok(count), 2),
        Name::MGet => (Name::Get, Merge::List(count), 1),
        Name::Del | Name::Unlink | Name::Exists | Name::Touch => (row.command, Merge::Sum(count), 1),
        _ => {
            return Err(NoCall::Refused(format!(
                "ERR the keys of '{}' are of several shards; give them a common {{tag}} (K0301)",
                row.name
            )));
        }
    };
    let parts =
        keys.iter().zip(owners).map(|(&at, shard)| Ok((shard, command_of(each.row(), &words[at..at + width])?)));
    Ok(Split { parts: parts.collect::<Result<_, NoCall>>()?, merge })
}

fn command_of(row: &'static Row, words: &[&[u8]]) -> Result<CommandBuffer, NoCall> {
    CommandBuffer::new(row, words.iter().copied()).ok_or_else(|| NoCall::Refused(too_long(row)))
}

/// Commands that are put together.
#[derive(Default)]
pub struct Together {
    parts: TransactionParts,
    merges: Vec<Merge>,
    shards: BTreeSet<ShardId>,
    changes: bool,
    keys: Vec<Key>,
}

impl Together {
    pub fn push(&mut self, table: TableId, split: &Split) {
        for (shard, command) in &split.parts {
            let command = command.as_command();
            self.shards.insert(*shard);
            self.changes |= matches!(command.row().class, Class::Changes(_));
            command.for_each_key(|key| self.keys.push((table, key.to_vec())));
            self.parts.push(table, &PartOperation::Command(command));
        }
        self.merges.push(split.merge.clone());
    }

    /// One that the front has answered.
    pub fn push_answered(&mut self, reply: Vec<u8>) {
        self.merges.push(Merge::Fixed(reply));
    }

    /// A demand on a watched key.
    pub fn check(&mut self, watched: &Watched) {
        let Watched { table, key, version } = watched;
        self.changes = true;
        self.parts.push(*table, &PartOperation::Check(Check::Meets { key, condition: Condition::Version(*version) }));
    }

    /// Whether nothing has to be asked.
    pub fn is_answered(&self) -> bool {
        self.shards.is_empty() && !self.changes
    }

    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    pub fn into_merges(self) -> Vec<Merge> {
        self.merges
    }

    /// Makes the call. One command that only reads keys of one shard is a query. Several of them are a transaction, as what changes something: a
    /// query may end early (R10.17), and `EXEC` never does (R10.6). So are keys of several shards, and what has an operation key.
    pub fn call(
        self,
        now: Tick,
        once: Option<OperationKey<'_>>,
        session: &mut Session,
        out: &mut Effects,
    ) -> Result<Called, WhyNot> {
        let deadline = Some(now.after(COMMAND_DEADLINE));
        let is_alone = self.parts.count() == 1 && self.shards.len() == 1;
        let is_query = !self.changes && is_alone && once.is_none();
        let call = match is_query {
            false => {
                let (table, operation) = self.parts.operation();
                let options =
                    CallOptions { deadline, operation_key: once, cancel_on_deadline: true, ..CallOptions::default() };
                session.update_encoded(now, table, &operation?, &options, out)
            }
            true => {
                let (table, operation) = self.parts.query();
                session.read_encoded(now, table, &operation?, deadline, out)
            }
        };
        let keys = if is_query { Vec::new() } else { self.keys };
        Ok(Called { call, merges: self.merges, keys })
    }
}

/// A call that was made.
pub struct Called {
    pub call: CallId,
    pub merges: Vec<Merge>,
    /// The keys of what may change something.
    pub keys: Vec<Key>,
}

/// Looks at keys of one shard that are to be watched.
pub fn look_at(now: Tick, keys: &[Key], session: &mut Session, out: &mut Effects) -> CallId {
    let items = ItemsBuffer::keys(keys.iter().map(|(_, key)| &key[..]));
    let read = Read::Observe { keys: items.as_items() };
    session.read(now, keys[0].0, &read, Some(now.after(COMMAND_DEADLINE)), out)
}

/// Whether a call has done what was asked for.
pub fn is_done(completion: &Completion) -> bool {
    match completion {
        Completion::Executed { result, .. } | Completion::Read { result } => {
            result.first() == Some(&(OutcomeCode::Done as u8))
        }
        _ => false,
    }
}

/// Writes the reply that a completed call is to what was asked for.
pub fn reply(completion: &Completion, expected: &Expected, out: &mut ReplyWriter<'_>) {
    let result = match completion {
        Completion::Executed { result, .. } | Completion::Read { result } => &result[..],
        failed => return out.item(Item::Error(&failure(failed).0)),
    };
    if result.first() == Some(&(OutcomeCode::OperationKeyMismatch as u8)) {
        return out.item(Item::Error(MISMATCH));
    }
    if result.first() != Some(&(OutcomeCode::Done as u8)) {
        return match expected {
            Expected::Whole { checks, .. } if fails_a_check(result, *checks) => out.item(Item::NoList),
            Expected::One(_) | Expected::Whole { .. } | Expected::Versions { .. } | Expected::Pages(..) => {
                out.item(Item::Error(TOO_LARGE));
            }
        };
    }
    let mut parts = each_part(result);
    match expected {
        Expected::One(merge) => merged(&mut parts, merge, out),
        Expected::Whole { checks, commands } => {
            out.item(Item::List(u32::try_from(commands.len()).expect("a limit")));
            let mut parts = parts.skip(*checks);
            commands.iter().for_each(|merge| merged(&mut parts, merge, out));
        }
        Expected::Versions { later, .. } if later.is_empty() => out.item(Item::Ok),
        Expected::Versions { .. } => {}
        Expected::Pages(..) => unreachable!("they are taken one by one"),
    }
}

/// What a request is told that came to something else than what it says.
const TOO_LARGE: &str = "ERR the request or its result is too large; split it (K0307)";

/// Whether the part that failed is one of the first ones, which are the demands on watched keys.
fn fails_a_check(result: &[u8], checks: usize) -> bool {
    match result {
        [code, index @ ..] if *code == OutcomeCode::NotCommitted as u8 => {
            index.first_chunk().is_some_and(|index| (u32::from_le_bytes(*index) as usize) < checks)
        }
        _ => false,
    }
}

/// Writes the reply of one command, out of those of its parts.
///
/// What a node has said is looked at before it is told: who sends half a reply makes an error, and no other connection suffers.
pub fn merged<'r>(parts: &mut impl Iterator<Item = &'r [u8]>, merge: &Merge, out: &mut ReplyWriter<'_>) {
    let replies: Vec<&[u8]> = parts.take(merge.parts()).collect();
    if replies.len() < merge.parts() || replies.iter().any(|reply| check(reply).is_err()) {
        return out
            .item(Item::Error("ERR the server's result cannot be read; run the same version of Kasha everywhere"));
    }
    match merge {
        Merge::Fixed(reply) => out.0.extend_from_slice(reply),
        Merge::One => out.0.extend_from_slice(replies[0]),
        Merge::Sum(_) => {
            let number = |reply: &&[u8]| match Items::of(reply).next() {
                Some(Ok(Item::Number(number))) => number,
                _ => 0,
            };
            out.item(Item::Number(replies.iter().map(number).sum()));
        }
        Merge::Ok(_) => match replies.iter().find(|reply| Items::of(reply).next() != Some(Ok(Item::Ok))) {
            Some(error) => out.0.extend_from_slice(error),
            None => out.item(Item::Ok),
        },
        Merge::List(count) => {
            out.item(Item::List(*count));
            replies.iter().for_each(|reply| out.0.extend_from_slice(reply));
        }
    }
}

/// The reply to what has no result (R10.2): `TRYAGAIN` and `OOM` were certainly not executed, `UNKNOWN` may have been. And whether it never can be as
/// it is.
pub fn failure(completion: &Completion) -> (String, bool) {
    match completion {
        Completion::NotExecuted(WhyNot::OutOfMemory) => {
            ("OOM command not allowed when used memory > 'maxmemory'. (K0312)".to_owned(), true)
        }
        Completion::NotExecuted(
            why @ (WhyNot::Conflict
            | WhyNot::Overloaded
            | WhyNot::Level
            | WhyNot::DeadlineBeforeSend(_)
            | WhyNot::DeadlineCancelled
            | WhyNot::Cancelled),
        ) => (format!("TRYAGAIN {why}"), false),
        Completion::NotExecuted(why) => (format!("ERR {why}"), true),
        Completion::Unknown(why) if planted::is_on(Bug::RetryProvoked) => (format!("TRYAGAIN {why}"), false),
        Completion::Unknown(why) => (format!("UNKNOWN {why}"), false),
        Completion::ReadFailed(WhyFailed::NotPossible(why @ WhyNot::Level)) => (format!("TRYAGAIN {why}"), false),
        Completion::ReadFailed(why @ (WhyFailed::NotPossible(_) | WhyFailed::Refused(_))) => {
            (format!("ERR {why}"), true)
        }
        Completion::ReadFailed(why) => (format!("TRYAGAIN {why}"), false),
        Completion::Executed { .. } | Completion::Read { .. } => (TOO_LARGE.to_owned(), true),
        other => (format!("ERR a call of another kind ended: {other:?}"), false),
    }
}
