//! The parts of a transaction: operations on one key each, in the order in which they run. A list of parts begins with a
//! `u32` count; a part is its table (`u32`), the operation's code (`u8`) and the operation's arguments.

use std::collections::BTreeSet;

use kasha_types::TableId;
use kasha_types::limits::OPERATION_KEYS_MAX;

use super::arguments::{OneKey, Source, Visitor};
use super::command::Command;
use super::condition::Condition;
use super::excess::Excess;
use super::terms::{Axes, Terms};
use super::{Check, Read, Row, Update};
use crate::outcome::Shape;
use crate::version::Level;
use crate::{DecodeError, Reader};

/// What a part does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartOperation<'a> {
    /// It changes its key, or may. Where alone it would change nothing because of a condition or an error, the
    /// transaction changes nothing.
    Update(Update<'a>),
    /// It reads its key, as the parts before it leave the key.
    Read(Read<'a>),
    /// It demands something of its key, or the transaction changes nothing.
    Check(Check<'a>),
    /// It is a command, which has one key or several, of one shard. What is wrong with it is its reply: it never keeps the transaction from
    /// changing what other parts change (R10.6).
    Command(Command<'a>),
}

/// The code of a part that is a command.
const COMMAND_CODE: u8 = 112;

static COMMAND_ROW: Row =
    Row { code: COMMAND_CODE, name: "command", level: Level(2), shape: Shape::Reply, only_frees: false };

/// One part of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The table of the part's key.
    pub table: TableId,
    /// What the part does to the key, or demands of the key.
    pub operation: PartOperation<'a>,
}

/// What is true of some of the parts, or of all: found while they are decoded, so that nobody goes through them again to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Summary {
    /// One of them gives its key a lifetime.
    have_lifetime: bool,
    /// One of them is a command.
    have_commands: bool,
    /// One of them says or tells a time of day.
    know_time_of_day: bool,
    /// All of them can only give memory back.
    only_free: bool,
    /// The level that all of them need (R7.6).
    level: Level,
    /// All are of one table, and none demands something that keeps the others from running (R10.17).
    can_be_a_batch: bool,
    /// None may change anything, or demands something.
    only_read: bool,
    /// One of them touches all keys of its table.
    touch_everything: bool,
}

impl Summary {
    /// Of no part.
    const EMPTY: Self = Self {
        have_lifetime: false,
        have_commands: false,
        know_time_of_day: false,
        only_free: true,
        level: Level::FIRST,
        can_be_a_batch: true,
        only_read: true,
        touch_everything: false,
    };

    /// One more part; `first`: the table of the first.
    #[inline]
    fn add(&mut self, part: &Part<'_>, first: TableId) {
        let (is_check, only_reads) = match part.operation {
            PartOperation::Read(_) => (false, true),
            PartOperation::Command(command) => return self.add_command(&command, part.table == first),
            PartOperation::Update(_) => (false, false),
            PartOperation::Check(_) => (true, false),
        };
        self.have_lifetime |= part.operation.has_lifetime();
        self.know_time_of_day |= part.operation.knows_time_of_day();
        self.only_free &= part.operation.only_frees();
        self.level = self.level.max(part.operation.row().level);
        self.can_be_a_batch &= part.table == first && !is_check;
        self.only_read &= only_reads;
    }

    /// One more part, a command. `is_of_first`: of the same table as the first part.
    #[inline]
    fn add_command(&mut self, command: &Command<'_>, is_of_first: bool) {
        let is_of_table = command.is_of_table();
        self.have_lifetime |= command.row().knows_time();
        self.have_commands = true;
        self.know_time_of_day |= command.knows_time_of_day();
        self.only_free &= command.only_frees();
        self.level = self.level.max(COMMAND_ROW.level);
        self.touch_everything |= is_of_table;
        self.can_be_a_batch &= is_of_first && !is_of_table;
        self.only_read &= !command.changes();
    }
}

impl Summary {
    /// Of some parts and of others.
    fn and(self, other: Self) -> Self {
        Self {
            have_lifetime: self.have_lifetime | other.have_lifetime,
            have_commands: self.have_commands | other.have_commands,
            know_time_of_day: self.know_time_of_day | other.know_time_of_day,
            only_free: self.only_free & other.only_free,
            level: self.level.max(other.level),
            can_be_a_batch: self.can_be_a_batch & other.can_be_a_batch,
            only_read: self.only_read & other.only_read,
            touch_everything: self.touch_everything | other.touch_everything,
        }
    }
}

impl Default for Summary {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// The parts of a transaction, still encoded; checked, so that going through them cannot fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts<'a> {
    count: u32,
    summary: Summary,
    bytes: &'a [u8],
}

impl Row {
    /// Whether the operation has exactly one key, and so can be a part of a transaction.
    #[must_use]
    pub fn has_one_key(&self) -> bool {
        self.shape.is_of_one_key()
    }
}

impl<'a> PartOperation<'a> {
    /// What is said of the operation with this code, if it can be a part.
    #[must_use]
    pub fn row_of(code: u8) -> Option<&'static Row> {
        if code == COMMAND_CODE {
            return Some(&COMMAND_ROW);
        }
        let row = Update::row_of(code).or_else(|| Read::row_of(code)).or_else(|| Check::row_of(code));
        row.filter(|row| row.has_one_key())
    }

    /// The operation's code on the wire.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::Update(update) => update.code(),
            Self::Read(read) => read.code(),
            Self::Check(check) => check.code(),
            Self::Command(_) => COMMAND_CODE,
        }
    }

    /// What is said of operations with its code.
    ///
    /// # Panics
    /// If it is an operation on several keys, which no part is.
    #[must_use]
    pub fn row(&self) -> &'static Row {
        Self::row_of(self.code()).expect("it can be a part")
    }

    /// What its result looks like where it did what it says.
    #[must_use]
    pub fn shape(&self) -> Shape {
        match self {
            Self::Update(update) => update.shape(),
            Self::Read(_) | Self::Check(_) | Self::Command(_) => self.row().shape,
        }
    }

    /// Whether it demands a version that its key has.
    fn demands_version(&self) -> bool {
        let condition = match *self {
            Self::Update(update) => update.terms().condition,
            Self::Check(Check::Meets { condition, .. }) => Some(condition),
            Self::Read(_) | Self::Command(_) => None,
        };
        matches!(condition, Some(Condition::Version(1..)))
    }

    /// The operation with this code, its arguments taken from `source` in their order. The code is looked at first: no part
    /// holds parts.
    ///
    /// # Errors
    /// If the source has them not, or no part has such a code.
    pub fn build<S: Source<'a>>(code: u8, source: &mut S) -> Result<Self, S::Error> {
        if Self::row_of(code).is_none() {
            return Err(S::no_such_operation("a part's code"));
        }
        Ok(if code == COMMAND_CODE {
            Self::Command(source.command()?)
        } else if Update::row_of(code).is_some() {
            Self::Update(Update::build(code, source)?)
        } else if Read::row_of(code).is_some() {
            Self::Read(Read::build(code, source)?)
        } else {
            Self::Check(Check::build(code, source)?)
        })
    }

    /// Checks the limits that a decoder refuses to go beyond.
    ///
    /// # Errors
    /// The first one that is exceeded.
    pub fn check_limits(&self) -> Result<(), Excess> {
        match self {
            Self::Update(update) => update.check_limits(),
            Self::Read(read) => read.check_limits(),
            Self::Check(check) => check.check_limits(),
            Self::Command(command) => command.check_limits(),
        }
    }

    /// Whether it gives its key a lifetime.
    #[must_use]
    pub fn has_lifetime(&self) -> bool {
        match self {
            Self::Update(update) => update.has_lifetime(),
            Self::Read(_) | Self::Check(_) => false,
            Self::Command(command) => command.row().knows_time(),
        }
    }

    /// Whether it says or tells a time of day: what it does depends on the unix time of ClusterTime 0 (R10.12).
    #[must_use]
    pub fn knows_time_of_day(&self) -> bool {
        match self {
            Self::Update(_) | Self::Read(_) | Self::Check(_) => false,
            Self::Command(command) => command.knows_time_of_day(),
        }
    }

    /// Whether it can only give memory back.
    #[must_use]
    pub fn only_frees(&self) -> bool {
        match self {
            Self::Update(update) => update.only_frees(),
            // What a read answers takes memory in the record.
            Self::Read(_) | Self::Check(_) => false,
            Self::Command(command) => command.only_frees(),
        }
    }

    /// Whether it may change its keys.
    #[must_use]
    pub fn changes_its_keys(&self) -> bool {
        match self {
            Self::Update(_) => true,
            Self::Read(_) | Self::Check(_) => false,
            Self::Command(command) => command.changes(),
        }
    }

    /// The operation's key; of a command, which may have several, the first.
    ///
    /// # Panics
    /// If it has none, which no part has.
    #[must_use]
    pub fn first_key(&self) -> &'a [u8] {
        let mut first = None;
        self.for_each_key(|key| first = first.or(Some(key)));
        first.expect("a part has a key")
    }

    /// Calls `each` with each of its keys, in order. The same one may come twice.
    pub fn for_each_key(&self, mut each: impl FnMut(&'a [u8])) {
        if let Self::Command(command) = self {
            return command.for_each_key(each);
        }
        let mut found = OneKey(None);
        self.visit(&mut found);
        each(found.0.expect("a part has a key"));
    }

    /// Whether it touches all keys of its table.
    #[must_use]
    pub fn touches_everything(&self) -> bool {
        matches!(self, Self::Command(command) if command.is_of_table())
    }

    /// How many keys it has.
    fn keys(&self) -> usize {
        match self {
            Self::Update(_) | Self::Read(_) | Self::Check(_) => 1,
            Self::Command(command) => command.keys(),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.row().code);
        match self {
            Self::Update(update) => update.encode_arguments(out),
            Self::Read(read) => read.encode_arguments(out),
            Self::Check(check) => check.encode_arguments(out),
            Self::Command(command) => command.encode(out),
        }
    }

    pub(super) fn visit(&self, visitor: &mut impl Visitor<'a>) {
        match self {
            Self::Update(update) => update.visit(visitor),
            Self::Read(read) => read.visit(visitor),
            Self::Check(check) => check.visit(visitor),
            Self::Command(command) => visitor.command(*command),
        }
    }
}

fn take_part<'a>(reader: &mut Reader<'a>) -> Result<Part<'a>, DecodeError> {
    let (table, code) = (reader.take()?, reader.take()?);
    Ok(Part { table, operation: PartOperation::build(code, reader)? })
}

/// A part of those that were checked when they were decoded.
fn take_checked<'a>(reader: &mut Reader<'a>) -> Result<Part<'a>, DecodeError> {
    let (table, code) = (reader.take()?, reader.take()?);
    let operation = match code {
        COMMAND_CODE => PartOperation::Command(Command::take_checked(reader)?),
        _ => PartOperation::build(code, reader)?,
    };
    Ok(Part { table, operation })
}

impl<'a> Parts<'a> {
    /// Apart, so that the decoding of other operations is compiled into its callers.
    #[cold]
    #[inline(never)]
    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let count = reader.take::<u32>()?;
        if count == 0 {
            return Err(DecodeError::Invalid("a transaction without parts"));
        }
        if count as usize > OPERATION_KEYS_MAX {
            return Err(DecodeError::TooLarge("the number of parts"));
        }
        let (bytes, mut summary, mut keys, mut first) = (reader.rest(), Summary::EMPTY, 0, None);
        for _ in 0..count {
            let (table, code) = (reader.take()?, reader.take()?);
            let first = *first.get_or_insert(table);
            // A command is not made a part, which is large, before somebody needs one.
            if code == COMMAND_CODE {
                let command = Command::decode(reader)?;
                summary.add_command(&command, table == first);
                keys += command.keys();
            } else {
                let part = Part { table, operation: PartOperation::build(code, reader)? };
                summary.add(&part, first);
                keys += part.operation.keys();
            }
        }
        if keys > OPERATION_KEYS_MAX {
            return Err(DecodeError::TooLarge("the number of keys"));
        }
        Ok(Self { count, summary, bytes: &bytes[..bytes.len() - reader.rest().len()] })
    }

    /// The number of parts.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether one of them gives its key a lifetime.
    #[must_use]
    pub fn have_lifetime(&self) -> bool {
        self.summary.have_lifetime
    }

    /// Whether one of them is a command.
    #[must_use]
    pub fn have_commands(&self) -> bool {
        self.summary.have_commands
    }

    /// Whether one of them says or tells a time of day: what they do depends on the unix time of ClusterTime 0 (R10.12).
    #[must_use]
    pub fn know_time_of_day(&self) -> bool {
        self.summary.know_time_of_day
    }

    /// Whether all of them can only give memory back.
    #[must_use]
    pub fn only_free(&self) -> bool {
        self.summary.only_free
    }

    /// The level that all of them need (R7.6).
    #[must_use]
    pub fn level(&self) -> Level {
        self.summary.level
    }

    /// Whether a value exceeds its limit, which no decoded part's does: then nobody can go through the parts.
    pub(super) fn holds_too_much(&self) -> bool {
        let mut reader = Reader::new(self.bytes);
        (0..self.count).any(|_| take_part(&mut reader).is_err())
    }

    /// Each part, in order.
    ///
    /// # Panics
    /// If a value exceeds its limit: see [`Update::check_limits`].
    pub fn iter(&self) -> impl Iterator<Item = Part<'a>> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        (0..self.count).map(move |_| take_checked(&mut reader).expect("checked when decoded"))
    }

    /// Calls `each` with every key and its table. Apart, and not visited as an operation's key is, so that the visit of another
    /// operation's keys is compiled into its callers.
    #[cold]
    #[inline(never)]
    pub(super) fn for_each_key(&self, each: &mut dyn FnMut(TableId, &'a [u8])) {
        let mut reader = Reader::new(self.bytes);
        (0..self.count)
            .try_for_each(|_| {
                let (table, code) = (reader.take()?, reader.take()?);
                match code {
                    COMMAND_CODE => Command::take_checked(&mut reader)?.for_each_key(|key| each(table, key)),
                    _ => PartOperation::build(code, &mut reader)?.for_each_key(|key| each(table, key)),
                }
                Ok::<_, DecodeError>(())
            })
            .expect("checked when decoded");
    }

    /// The table of the first part. `None`: there is no part.
    #[must_use]
    pub fn first_table(&self) -> Option<TableId> {
        Reader::new(self.bytes).take().ok()
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(self.bytes);
    }

    /// Bytes of all of them, encoded.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// So many parts behind the first ones.
    pub(super) fn slice(&self, first: u32, count: u32) -> Self {
        let (mut reader, mut summary) = (Reader::new(self.bytes), Summary::EMPTY);
        let mut skip = |parts: u32| {
            (summary, _) = (0..parts).fold((Summary::EMPTY, None), |(mut summary, mut first), _| {
                let part = take_checked(&mut reader).expect("checked when decoded");
                summary.add(&part, *first.get_or_insert(part.table));
                (summary, first)
            });
            reader.rest().len()
        };
        let (from, to) = (self.bytes.len() - skip(first), self.bytes.len() - skip(count));
        Self { count, summary, bytes: &self.bytes[from..to] }
    }

    /// Whether a condition is about the version that a part before it gives its key.
    #[must_use]
    pub fn check_own_versions(&self) -> bool {
        if !self.iter().any(|part| part.operation.demands_version()) {
            return false;
        }
        let mut changed = BTreeSet::new();
        self.iter().any(|part| {
            let operation = part.operation;
            let is_own = operation.demands_version() && changed.contains(&(part.table, operation.first_key()));
            if operation.changes_its_keys() {
                operation.for_each_key(|key| _ = changed.insert((part.table, key)));
            }
            is_own
        })
    }

    /// Whether none of them may change anything, or demands something.
    #[must_use]
    pub fn only_read(&self) -> bool {
        self.summary.only_read
    }

    /// Whether one of them touches all keys of its table: then their footprint has [`KeyHash::EVERYTHING`].
    ///
    /// [`KeyHash::EVERYTHING`]: kasha_types::KeyHash::EVERYTHING
    #[must_use]
    pub fn touch_everything(&self) -> bool {
        self.summary.touch_everything
    }

    /// Whether they are of one table, and none demands something that keeps the others from running (R10.17).
    #[must_use]
    pub fn can_be_a_batch(&self) -> bool {
        self.summary.can_be_a_batch
    }

    /// Whether nothing in these parts can fail, whatever their keys hold, and all of them answer a few bytes.
    #[must_use]
    pub fn cannot_fail(&self) -> bool {
        self.iter().all(|part| match part.operation {
            PartOperation::Update(Update::Put { axes, .. }) => axes == Axes::NONE,
            PartOperation::Update(Update::Delete { terms, .. }) => terms == Terms::NONE,
            PartOperation::Read(Read::Exists { .. }) => true,
            PartOperation::Command(command) => command.row().is_bounded(),
            PartOperation::Update(_) | PartOperation::Read(_) | PartOperation::Check(_) => false,
        })
    }
}

/// Builds the parts of a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartsBuffer {
    count: u32,
    summary: Summary,
    bytes: Vec<u8>,
}

impl PartsBuffer {
    /// One more part.
    ///
    /// # Panics
    /// If the operation has several keys, or a length does not fit its field.
    pub fn push(&mut self, table: TableId, operation: &PartOperation<'_>) {
        let first = self.as_parts().first_table().unwrap_or(table);
        self.count += 1;
        self.summary.add(&Part { table, operation: *operation }, first);
        self.bytes.extend_from_slice(&table.0.to_le_bytes());
        operation.encode(&mut self.bytes);
    }

    /// One more part, a command of this row with these words behind its name, and how many keys it has. `None`: no shard executes it, or its
    /// arity or a limit forbids the words, and nothing is added.
    pub fn push_command<'w>(
        &mut self,
        table: TableId,
        row: &'static kasha_commands::Row,
        words: impl IntoIterator<Item = &'w [u8]>,
    ) -> Option<usize> {
        let (first, before) = (self.as_parts().first_table().unwrap_or(table), self.bytes.len());
        self.bytes.extend_from_slice(&table.0.to_le_bytes());
        self.bytes.push(COMMAND_CODE);
        let begin = self.bytes.len();
        let Some(command) = Command::encode_new(row, words, &mut self.bytes) else {
            self.bytes.truncate(before);
            return None;
        };
        let keys = command.keys();
        self.summary.add_command(&command, table == first);
        debug_assert!(Command::decode(&mut Reader::new(&self.bytes[begin..])).is_ok());
        self.count += 1;
        Some(keys)
    }

    /// All parts of another one behind those that are there.
    pub fn append(&mut self, other: &Self) {
        let [first, others] = [&*self, other].map(|parts| parts.as_parts().first_table());
        let is_one_table = first.is_none() || others.is_none() || first == others;
        self.summary = self.summary.and(other.summary);
        self.summary.can_be_a_batch &= is_one_table;
        self.count += other.count;
        self.bytes.extend_from_slice(&other.bytes);
    }

    /// Forgets all parts, and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        (self.count, self.summary) = (0, Summary::EMPTY);
    }

    /// The parts, as an operation's argument.
    #[must_use]
    pub fn as_parts(&self) -> Parts<'_> {
        Parts { count: self.count, summary: self.summary, bytes: &self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::super::CommandBuffer;
    use super::*;

    const PUT: PartOperation<'_> = PartOperation::Update(Update::put(b"k", b"v"));
    const OTHER: PartOperation<'_> = PartOperation::Update(Update::put(b"other", b"v"));
    const HAS: PartOperation<'_> = PartOperation::Check(Check::Meets { key: b"k", condition: Condition::Version(1) });
    const PUT_IF: PartOperation<'_> = PartOperation::Update(Update::put_if(b"k", Condition::Version(1), b"v"));

    fn check_own_versions(parts: &[(u32, PartOperation<'_>)]) -> bool {
        let mut buffer = PartsBuffer::default();
        parts.iter().for_each(|(table, operation)| buffer.push(TableId(*table), operation));
        buffer.as_parts().check_own_versions()
    }

    #[test]
    fn parts_only_free_memory_if_each_of_them_does() {
        const DELETE: PartOperation<'_> = PartOperation::Update(Update::delete(b"k"));
        let command = |words: &[&[u8]]| CommandBuffer::of_words(words).expect("a command");
        let only_free = |parts: &[PartOperation<'_>]| {
            let mut buffer = PartsBuffer::default();
            parts.iter().for_each(|operation| buffer.push(TableId(1), operation));
            let parts = buffer.as_parts();
            assert_eq!(parts.slice(0, parts.count()), parts);
            parts.only_free()
        };
        let (del, unlink) = (command(&[b"del", b"k", b"other"]), command(&[b"unlink", b"k"]));
        let (over, soon) = (command(&[b"expire", b"k", b"-1"]), command(&[b"pexpire", b"k", b"1"]));
        let frees = [&del, &unlink, &over].map(|buffer| PartOperation::Command(buffer.as_command()));
        assert!(only_free(&frees) && only_free(&[DELETE]) && only_free(&[DELETE, frees[0]]));
        let get_del = command(&[b"getdel", b"k"]);
        for other in [HAS, PUT, PartOperation::Command(soon.as_command()), PartOperation::Command(get_del.as_command())]
        {
            assert!(!only_free(&[other]) && !only_free(&[frees[0], other]), "{other:?}");
        }
    }

    #[test]
    fn r10_12_what_depends_on_the_time_of_day_says_so() {
        for (name, words, knows) in [
            ("expireat", &[&b"k"[..], b"1"][..], true),
            ("pexpireat", &[b"k", b"1"], true),
            ("expiretime", &[b"k"], true),
            ("pexpiretime", &[b"k"], true),
            ("set", &[b"k", b"v", b"ExAt", b"1"], true),
            ("set", &[b"k", b"v", b"get", b"pxat", b"1"], true),
            ("set", &[b"k", b"exat"], false),
            ("set", &[b"k", b"v", b"ex", b"1"], false),
            ("getex", &[b"k", b"pxat", b"1"], true),
            ("getex", &[b"exat", b"px", b"1"], false),
            ("expire", &[b"k", b"1"], false),
            ("ttl", &[b"k"], false),
        ] {
            let row = kasha_commands::find(name.as_bytes()).expect("a command");
            let command = CommandBuffer::new(row, words.iter().copied()).expect("within the limits");
            assert_eq!(command.as_command().knows_time_of_day(), knows, "{name} {words:?}");
            let mut buffer = PartsBuffer::default();
            buffer.push(TableId(1), &PUT);
            assert_eq!((buffer.as_parts().know_time_of_day(), buffer.as_parts().level()), (false, Level::FIRST));
            buffer.push(TableId(1), &PartOperation::Command(command.as_command()));
            assert_eq!((buffer.as_parts().know_time_of_day(), buffer.as_parts().level()), (knows, Level(2)));
        }
    }

    #[test]
    fn a_condition_on_a_version_of_its_own_is_one_behind_a_change_of_the_same_key() {
        assert!(check_own_versions(&[(1, PUT), (1, HAS)]));
        assert!(check_own_versions(&[(1, PUT), (1, OTHER), (1, PUT_IF)]));
        assert!(!check_own_versions(&[(1, HAS), (1, PUT)]), "it is about the version before");
        assert!(!check_own_versions(&[(1, OTHER), (1, HAS)]));
        assert!(!check_own_versions(&[(1, PUT), (2, HAS)]), "another table");
        assert!(check_own_versions(&[(1, PUT_IF), (1, HAS)]));
    }
}
