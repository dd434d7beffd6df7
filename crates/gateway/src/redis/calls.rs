//! Commands as calls of a session, and what their results are to them: what goes together with nobody else's ([`super::gathered`]).
//!
//! A command on keys of several shards has a part for each key, whose replies become one.

use std::collections::BTreeSet;

use kasha_client::session::{Again, CallId, CallOptions, Completion, Session, TransactionParts, WhyFailed, WhyNot};
use kasha_commands::bit_op::COMBINES_TOO_MUCH;
use kasha_commands::reply::check;
use kasha_commands::{
    Class, Command as Name, Item, Items, LCS_CELLS_MAX, LCS_CELLS_OF_ALL_MAX, LCS_TOO_MUCH, LikenessOptions,
    ReplyWriter, Row, lcs_cells,
};
use kasha_machine::Effects;
use kasha_types::limits::VALUE_BYTES_MAX;
use kasha_types::planted::{self, Bug};
use kasha_types::{ShardId, TableId, Tick, slot_of};
use kasha_wire::operation::{Check, CommandBuffer, Condition, ItemsBuffer, PartOperation};
use kasha_wire::outcome::each_part;
use kasha_wire::{OutcomeCode, Read, Said};

use super::flush;
use super::moving::{self, Moving};
use super::unknown::{Key, Touched, Watched};
use super::whole::Whole;

/// An operation key, its time to live in milliseconds, what it stands for, and whether a refusal is kept under it.
#[derive(Clone, Copy)]
pub struct OperationKey<'k> {
    pub key: &'k [u8],
    pub millis: u64,
    pub fingerprint: u64,
    pub keeps_refusal: bool,
}

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
    /// Two strings are compared: `LCS`.
    Common(LikenessOptions),
    /// So many parts say what became of a command that moves something between shards ([`moving`]), or sets keys if none of them is there.
    Moved(Name, u32),
}

impl Merge {
    fn parts(&self) -> usize {
        match *self {
            Self::Fixed(_) => 0,
            Self::One => 1,
            Self::Common(_) => 2,
            Self::Sum(parts) | Self::Ok(parts) | Self::List(parts) | Self::Moved(_, parts) => parts as usize,
        }
    }
}

/// What comes back of a call.
#[derive(Debug)]
pub enum Expected {
    /// The reply of a command, behind so many checks: those of `MSETNX`, or of an operation that goes on until none of them fails.
    One { checks: usize, merge: Merge },
    /// The replies of commands, as one list; before them as many checks. `EXEC`.
    Whole { checks: usize, commands: Vec<Merge> },
    /// Pages of this table, for a command of no key.
    Pages(TableId, Box<Whole>),
    /// What the next step is of an operation that reads and then commits.
    Moving(Box<Moving>),
    /// Versions of keys that are to be watched: of those of one shard, and then the others, all until then.
    Versions { now: Vec<Key>, later: Vec<Vec<Key>>, until: Tick },
}

/// What comes back of commands: of one, or of all of `EXEC`.
pub fn expected(is_exec: bool, checks: usize, mut commands: Vec<Merge>) -> Expected {
    match is_exec {
        true => Expected::Whole { checks, commands },
        false => Expected::One { checks, merge: commands.pop().expect("one command") },
    }
}

/// Commands, each with the shard of its keys.
pub type PlacedCommands = Vec<Placed>;

/// A command and what it is made of: it is refused before anything is sent, or has parts.
pub struct Split {
    pub parts: PlacedCommands,
    pub merge: Merge,
}

/// A command, and where it goes.
pub struct Placed {
    pub shard: ShardId,
    pub table: TableId,
    pub command: CommandBuffer,
}

impl Split {
    /// Words that are wrong whatever the keys hold.
    fn wrong(text: &str) -> Self {
        let mut reply = Vec::new();
        ReplyWriter(&mut reply).item(Item::Error(text));
        Self { parts: Vec::new(), merge: Merge::Fixed(reply) }
    }
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
    /// What it does to keys of one shard depends on those of another one: [`moving`].
    Moves,
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
    if flush::is_one(row) {
        return flush::split(row, words, table, session);
    }
    let configuration = session.configuration().ok_or(NoCall::Table)?;
    let owner = |key: &[u8]| configuration.owner(table, slot_of(key)).ok_or(NoCall::Table);
    let keys: Vec<_> = kasha_commands::keys::positions(row, words.len()).map(|(at, _)| at).collect();
    let owners = keys.iter().map(|&at| owner(words[at])).collect::<Result<Vec<ShardId>, NoCall>>()?;
    let whole = |shard: ShardId| -> Result<Split, NoCall> {
        let command = command_of(row, &words[1..])?;
        Ok(Split { parts: vec![Placed { shard, table, command }], merge: Merge::One })
    };
    let Some(&first) = owners.first() else { return Err(NoCall::Refused(format!("ERR '{}' has no keys", row.name))) };
    if owners.iter().all(|&shard| shard == first) {
        return whole(first);
    }
    let count = u32::try_from(keys.len()).expect("a limit");
    let (each, merge, width) = match row.command {
        Name::MSet => match error_of_pairs(words, "ERR wrong number of arguments for 'mset' command") {
            Some(text) => return Ok(Split::wrong(text)),
            None => (Name::Set, Merge::Ok(count), 2),
        },
        Name::MGet => (Name::Get, Merge::List(count), 1),
        Name::Del | Name::Unlink | Name::Exists | Name::Touch => (row.command, Merge::Sum(count), 1),
        Name::Lcs => match LikenessOptions::parse(words[3..].iter().copied()) {
            Err(text) => return Ok(Split::wrong(text)),
            Ok(options) => (Name::Get, Merge::Common(options), 1),
        },
        Name::Rename | Name::RenameNx | Name::Copy | Name::BitOp | Name::MSetNx => {
            return moving::error_of(row, words).map_or(Err(NoCall::Moves), |text| Ok(Split::wrong(text)));
        }
        _ => {
            return Err(NoCall::Refused(format!(
                "ERR the keys of '{}' are of several shards; give them a common {{tag}} (K0301)",
                row.name
            )));
        }
    };
    let parts = keys
        .iter()
        .zip(owners)
        .map(|(&at, shard)| Ok(Placed { shard, table, command: command_of(each.row(), &words[at..at + width])? }));
    Ok(Split { parts: parts.collect::<Result<_, NoCall>>()?, merge })
}

/// What is wrong with keys and values in turn. `odd`: the last key has no value.
pub fn error_of_pairs(words: &[&[u8]], odd: &'static str) -> Option<&'static str> {
    let are_long = words[1..].chunks_exact(2).any(|pair| pair[1].len() > VALUE_BYTES_MAX);
    let is_odd = words.len().is_multiple_of(2).then_some(odd);
    are_long.then_some("ERR string exceeds maximum allowed size (proto-max-bulk-len)").or(is_odd)
}

/// A command whose first word is its only key, with its shard.
pub fn placed(row: &'static Row, words: &[&[u8]], table: TableId, session: &Session) -> Result<Placed, NoCall> {
    let configuration = session.configuration().ok_or(NoCall::Table)?;
    let shard = configuration.owner(table, slot_of(words[0])).ok_or(NoCall::Table)?;
    Ok(Placed { shard, table, command: command_of(row, words)? })
}

/// `MSETNX` of keys of several shards: the demands that none of them is there, and what sets them.
pub fn if_none(words: &[&[u8]], table: TableId, session: &Session) -> Result<(Vec<Watched>, Split), NoCall> {
    let pairs = words[1..].chunks_exact(2);
    let demands = pairs.clone().map(|pair| Watched { table, key: pair[0].to_vec(), version: 0 }).collect();
    let parts = pairs.map(|pair| placed(Name::Set.row(), pair, table, session)).collect::<Result<Vec<_>, _>>()?;
    let merge = Merge::Moved(Name::MSetNx, u32::try_from(parts.len()).expect("a limit"));
    Ok((demands, Split { parts, merge }))
}

fn command_of(row: &'static Row, words: &[&[u8]]) -> Result<CommandBuffer, NoCall> {
    CommandBuffer::new(row, words.iter().copied()).ok_or_else(|| NoCall::Refused(too_long(row)))
}

/// How a call is made.
#[derive(Clone, Copy)]
pub struct Sending<'k> {
    pub until: Tick,
    pub once: Option<OperationKey<'k>>,
    /// Who tries it again if it meets another one.
    pub again: Again,
}

impl<'k> Sending<'k> {
    /// Once, and until then.
    pub fn new(until: Tick, once: Option<OperationKey<'k>>) -> Self {
        Self { until, once, again: Again::BySession }
    }
}

/// Commands that are put together.
#[derive(Default)]
pub struct Together {
    parts: TransactionParts,
    merges: Vec<Merge>,
    shards: BTreeSet<ShardId>,
    changes: bool,
    touched: Touched,
    /// So many parts are demands, which come first.
    checks: u16,
}

impl Together {
    pub fn push(&mut self, split: &Split) {
        for Placed { shard, table, command } in &split.parts {
            let command = command.as_command();
            self.shards.insert(*shard);
            self.changes |= matches!(command.row().class, Class::Changes(_));
            match command.is_of_table() {
                true => self.touched.flushes = true,
                false => command.for_each_key(|key| self.touched.keys.push((*table, key.to_vec()))),
            }
            self.parts.push(*table, &PartOperation::Command(command));
        }
        self.merges.push(split.merge.clone());
    }

    /// More keys, of what becomes parts later.
    pub fn name(&mut self, keys: Vec<Key>) {
        self.touched.keys.extend(keys);
    }

    /// One that the front has answered.
    pub fn push_answered(&mut self, reply: Vec<u8>) {
        self.merges.push(Merge::Fixed(reply));
    }

    /// A demand on a watched key.
    pub fn check(&mut self, watched: &Watched) {
        let Watched { table, key, version } = watched;
        (self.changes, self.checks) = (true, self.checks + 1);
        self.touched.keys.push((*table, key.clone()));
        self.parts.push(*table, &PartOperation::Check(Check::Meets { key, condition: Condition::Version(*version) }));
    }

    /// Whether nothing has to be asked.
    pub fn is_answered(&self) -> bool {
        self.shards.is_empty() && !self.changes
    }

    pub fn touched(&self) -> &Touched {
        &self.touched
    }

    pub fn into_merges(self) -> Vec<Merge> {
        self.merges
    }

    /// The operation key belongs to the first key of the first command, if there is one: not to what is demanded, which may be another thing the next
    /// time.
    fn said(&self, once: &OperationKey<'_>) -> Said {
        let OperationKey { fingerprint, keeps_refusal, .. } = *once;
        let has_commands = self.parts.count() > u32::from(self.checks);
        Said { fingerprint, keeps_refusal, first_part: if has_commands { self.checks } else { 0 } }
    }

    /// Makes the call. One command that only reads keys of one shard is a query. Several of them are a transaction, as what changes something: a
    /// query may end early (R10.17), and `EXEC` never does (R10.6). So are keys of several shards, and what has an operation key.
    pub fn call(
        self,
        now: Tick,
        sending: &Sending<'_>,
        session: &mut Session,
        out: &mut Effects,
    ) -> Result<Called, WhyNot> {
        let Sending { until, once, again } = *sending;
        let deadline = Some(until);
        let is_alone = self.parts.count() == 1 && self.shards.len() == 1;
        let is_query = !self.changes && is_alone && once.is_none();
        let call = match is_query {
            false => {
                let (table, operation) = self.parts.operation();
                let (operation_key, said) =
                    (once.map(|once| (once.key, once.millis)), once.map(|once| self.said(&once)));
                let options = CallOptions { deadline, operation_key, said, cancel_on_deadline: true, again };
                session.update_encoded(now, table, &operation?, &options, out)
            }
            true => {
                let (table, operation) = self.parts.query();
                session.read_encoded(now, table, &operation?, deadline, out)
            }
        };
        let touched = if is_query { Touched::default() } else { self.touched };
        Ok(Called { call, merges: self.merges, touched })
    }
}

/// A call that was made.
pub struct Called {
    pub call: CallId,
    pub merges: Vec<Merge>,
    /// What it may change.
    pub touched: Touched,
}

/// Looks at keys of one shard that are to be watched.
pub fn look_at((now, until): (Tick, Tick), keys: &[Key], session: &mut Session, out: &mut Effects) -> CallId {
    let items = ItemsBuffer::keys(keys.iter().map(|(_, key)| &key[..]));
    let read = Read::Observe { keys: items.as_items() };
    session.read(now, keys[0].0, &read, Some(until), out)
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
            Expected::One { checks, .. } if fails_a_check(result, *checks) => out.item(Item::Number(0)),
            Expected::One { .. }
            | Expected::Whole { .. }
            | Expected::Versions { .. }
            | Expected::Pages(..)
            | Expected::Moving(_) => out.item(Item::Error(TOO_LARGE)),
        };
    }
    let parts = each_part(result);
    match expected {
        Expected::One { checks, merge } => merged(&mut parts.skip(*checks), merge, out),
        Expected::Whole { checks, commands } => {
            out.item(Item::List(u32::try_from(commands.len()).expect("a limit")));
            let (mut parts, mut cells) = (parts.skip(*checks), 0);
            commands.iter().for_each(|merge| merged_with(&mut parts, merge, &mut cells, out));
        }
        Expected::Versions { later, .. } if later.is_empty() => out.item(Item::Ok),
        Expected::Versions { .. } => {}
        Expected::Pages(..) | Expected::Moving(_) => unreachable!("they are taken one by one"),
    }
}

/// What a request is told that came to something else than what it says.
const TOO_LARGE: &str = "ERR the request or its result is too large; split it (K0307)";

/// The part that kept all others from running.
pub fn failed_part(result: &[u8]) -> Option<usize> {
    match result {
        [code, index @ ..] if *code == OutcomeCode::NotCommitted as u8 => {
            index.first_chunk().map(|index| u32::from_le_bytes(*index) as usize)
        }
        _ => None,
    }
}

/// Whether the part that failed is one of the first ones, which are demands on keys.
fn fails_a_check(result: &[u8], checks: usize) -> bool {
    failed_part(result).is_some_and(|part| part < checks)
}

/// Writes the reply of one command, out of those of its parts.
///
/// What a node has said is looked at before it is told: who sends half a reply makes an error, and no other connection suffers.
pub fn merged<'r>(parts: &mut impl Iterator<Item = &'r [u8]>, merge: &Merge, out: &mut ReplyWriter<'_>) {
    merged_with(parts, merge, &mut 0, out);
}

/// The same of one of several commands. `cells`: what `LCS` has compared so far (R11.14).
fn merged_with<'r>(
    parts: &mut impl Iterator<Item = &'r [u8]>,
    merge: &Merge,
    cells: &mut usize,
    out: &mut ReplyWriter<'_>,
) {
    const UNREADABLE: Item<'_> =
        Item::Error("ERR the server's result cannot be read; run the same version of Kasha everywhere");
    let is_readable = |reply: &&[u8]| check(reply).is_ok();
    if let Merge::One = merge {
        return match parts.next().filter(is_readable) {
            Some(reply) => out.0.extend_from_slice(reply),
            None => out.item(UNREADABLE),
        };
    }
    let replies: Vec<&[u8]> = parts.take(merge.parts()).collect();
    if replies.len() < merge.parts() || !replies.iter().all(is_readable) {
        return out.item(UNREADABLE);
    }
    match merge {
        Merge::Fixed(reply) => out.0.extend_from_slice(reply),
        Merge::One => unreachable!("told above"),
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
        Merge::Common(options) => {
            let string = |at: usize| match Items::of(replies[at]).next() {
                Some(Ok(Item::Bytes(bytes))) => bytes,
                _ => &[],
            };
            let (strings, own) = ([string(0), string(1)], lcs_cells(string(0), string(1)));
            *cells = cells.saturating_add(own);
            match *cells > LCS_CELLS_OF_ALL_MAX && own <= LCS_CELLS_MAX {
                true => out.item(Item::Error(LCS_TOO_MUCH)),
                false => options.reply(strings, ReplyWriter(out.0)),
            }
        }
        Merge::Moved(command, _) => out.item(moved(*command, &replies)),
    }
}

/// The reply to a command that its parts stand for ([`moving`]).
fn moved<'r>(command: Name, replies: &[&'r [u8]]) -> Item<'r> {
    let part = |at: usize| replies.get(at).and_then(|reply| Items::of(reply).next()?.ok());
    let number = |is_one: bool| Item::Number(i64::from(is_one));
    let none = Some(Item::Number(0));
    match (command, part(0), part(1)) {
        (Name::Rename | Name::RenameNx, first, _) if first == none => Item::Error("ERR no such key"),
        (Name::Rename, ..) => Item::Ok,
        (Name::BitOp, _, Some(len @ Item::Number(_))) => len,
        (Name::BitOp, ..) => Item::Error(COMBINES_TOO_MUCH),
        (Name::RenameNx | Name::Copy, _, second) => number(second == Some(Item::Ok)),
        (_, first, _) => number(first == Some(Item::Ok)),
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
