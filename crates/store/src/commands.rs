//! Redis' commands: what each of them does to its keys, and answers.
//!
//! A command never refuses (**R10.6**): what is wrong with it is its reply, and it changes nothing then. Its reply is a function of its words, of
//! what its keys hold, and of when the request was begun (**R10.11**), in the form that [`kasha_commands::reply`] describes (**R10.4**).
//!
//! | file | commands |
//! |---|---|
//! | `strings` | of a whole string, or a part of it |
//! | `numbers` | of a string that is a number |
//! | `bits`, `fields` | of the bits of a string |
//! | `keys` | of keys, whatever their values are |
//! | `ends` | of when values end |
//! | `likeness` | LCS |

mod bits;
mod ends;
mod fields;
mod keys;
mod likeness;
mod numbers;
mod strings;

use std::borrow::Cow;

use kasha_commands::{Command as Name, Item};
use kasha_types::ClusterTime;
use kasha_types::limits::VALUE_BYTES_MAX;
use kasha_types::planted::{self, Bug};
use kasha_wire::OutcomeCode;
use kasha_wire::operation::{Command, Words};

use crate::draft::{Seen, Value};
use crate::run::Run;

/// Why a command does nothing: the text of its reply, in Redis' words.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CommandError(Cow<'static, str>);

impl CommandError {
    const SYNTAX: Self = Self::of("ERR syntax error");
    const NO_INTEGER: Self = Self::of("ERR value is not an integer or out of range");
    const TOO_LONG: Self = Self::of("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    const NO_KEY: Self = Self::of("ERR no such key");

    const fn of(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

type Replied = Result<(), CommandError>;

impl<'r, 'a> Run<'r, 'a> {
    /// Executes a command. Its reply is the result of its part.
    pub fn command(&mut self, command: &Command<'a>) {
        self.done();
        if let Err(CommandError(text)) = self.execute(command) {
            // Whatever it said, it is a command on all its keys (C1), as witnesses take it for one.
            command.for_each_key(|key| _ = self.see(key));
            self.reply(Item::Error(&text));
            if planted::is_on(Bug::CommandRefusesMulti) {
                self.draft.answer(OutcomeCode::NotANumber);
            }
        }
    }

    fn execute(&mut self, command: &Command<'a>) -> Replied {
        let words = command.words();
        match command.row().command {
            Name::Append => self.append(words.all()),
            Name::BitCount => self.bit_count(words),
            Name::BitField => self.bit_field(words, false),
            Name::BitFieldRo => self.bit_field(words, true),
            Name::BitOp => self.bit_op(words),
            Name::BitPos => self.bit_pos(words),
            Name::Copy => self.copy(words),
            Name::Decr => self.add_to(words.all::<1>()[0], -1),
            Name::DecrBy => self.take_from(words.all()),
            Name::Del | Name::Unlink => self.del(words),
            Name::Exists | Name::Touch => self.exists(words),
            Name::Expire => self.expire(words, ends::Given::SECONDS),
            Name::ExpireAt => self.expire(words, ends::Given::UNIX_SECONDS),
            Name::ExpireTime => self.tell_end(words.all(), ends::Told::UNIX_SECONDS),
            Name::FlushDb => {
                self.flush();
                Ok(())
            }
            Name::Get => self.get(words.all()),
            Name::GetBit => self.get_bit(words.all()),
            Name::GetDel => self.get_and_delete(words.all()),
            Name::GetEx => self.get_and_end(words),
            Name::GetRange | Name::SubStr => self.get_range(words.all()),
            Name::GetSet => self.get_and_set(words.all()),
            Name::Incr => self.add_to(words.all::<1>()[0], 1),
            Name::IncrBy => self.increase(words.all()),
            Name::IncrByFloat => self.increase_by_fraction(words.all()),
            Name::Lcs => self.longest_common(words),
            Name::MGet => self.get_several(words),
            Name::MSet => self.set_several(words),
            Name::MSetNx => self.set_several_if_absent(words),
            Name::ObjectEncoding => self.encoding(behind_name(words)),
            Name::ObjectFreq => self.use_count(behind_name(words)),
            Name::ObjectIdleTime => self.idle_time(behind_name(words)),
            Name::ObjectRefCount => self.references(behind_name(words)),
            Name::Persist => self.persist(words.all()),
            Name::PExpire => self.expire(words, ends::Given::MILLIS),
            Name::PExpireAt => self.expire(words, ends::Given::UNIX_MILLIS),
            Name::PExpireTime => self.tell_end(words.all(), ends::Told::UNIX_MILLIS),
            Name::PSetEx => self.set_and_end(words.all(), ends::Given::MILLIS),
            Name::PTtl => self.tell_end(words.all(), ends::Told::MILLIS),
            Name::Rename => self.rename(words.all()),
            Name::RenameNx => self.rename_if_absent(words.all()),
            Name::Set => self.set(words),
            Name::SetBit => self.set_bit(words.all()),
            Name::SetEx => self.set_and_end(words.all(), ends::Given::SECONDS),
            Name::SetNx => self.set_if_absent(words.all()),
            Name::SetRange => self.set_range(words.all()),
            Name::StrLen => self.string_length(words.all()),
            Name::Ttl => self.tell_end(words.all(), ends::Told::SECONDS),
            Name::Type => self.type_of(words.all()),
            other => unreachable!("{other:?} is executed by no shard"),
        }
    }

    /// **R10.15** All values of the table end, here.
    fn flush(&mut self) {
        self.draft.flush(self.store, self.log, self.table);
        self.reply(Item::Ok);
    }

    fn reply(&mut self, item: Item<'_>) {
        self.draft.replies().item(item);
    }

    fn reply_number(&mut self, number: usize) {
        self.reply(Item::Number(i64::try_from(number).expect("it is in memory")));
    }

    /// Replies with a key's string, or nothing.
    fn reply_string(&mut self, seen: &Seen<'_>) {
        match seen.value() {
            Some(current) => self.draft.reply_value(self.log, current),
            None => self.reply(Item::Nil),
        }
    }

    /// A key's string; empty without a value.
    fn string(&self, seen: &Seen<'r>) -> Cow<'_, [u8]> {
        match seen.value().map(|current| self.draft.pieces(self.log, current)) {
            None => Cow::Borrowed(&[]),
            Some([bytes, []]) => Cow::Borrowed(bytes),
            Some(pieces) => Cow::Owned(pieces.concat()),
        }
    }

    /// Gives a key a string that no word has.
    ///
    /// The string is within the limit of values: who makes a longer one has refused it.
    fn put_made(&mut self, key: &'a [u8], seen: Seen<'r>, string: &[u8], ends: Option<ClusterTime>) {
        debug_assert!(string.len() <= VALUE_BYTES_MAX, "refused before");
        let value = self.draft.make_value(string);
        self.put(key, seen, value, ends);
    }

    /// Gives a key a string that is one of the command's words.
    fn put_word(&mut self, key: &'a [u8], seen: Seen<'r>, word: &'a [u8], ends: Option<ClusterTime>) -> Replied {
        check_len(word.len())?;
        self.put(key, seen, Value::Bytes(word), ends);
        Ok(())
    }
}

/// The key of a subcommand, whose own name is its first word.
fn behind_name(words: Words<'_>) -> [&[u8]; 1] {
    let [_, key] = words.all();
    [key]
}

/// Whether a string of so many bytes can be a value.
fn check_len(bytes: usize) -> Replied {
    if bytes <= VALUE_BYTES_MAX { Ok(()) } else { Err(CommandError::TOO_LONG) }
}

/// A number as Redis reads one from a word.
fn integer(word: &[u8]) -> Result<i64, CommandError> {
    crate::number::Number::parse(word).ok_or(CommandError::NO_INTEGER)
}

/// The part of a list of so many items that two numbers name, the second one included; negative ones count from the end.
fn range(start: i64, end: i64, items: usize) -> std::ops::Range<usize> {
    let count = i64::try_from(items).expect("it is in memory");
    let from_end = |at: i64| if at < 0 { (count.saturating_add(at)).max(0) } else { at };
    let (first, behind) = (from_end(start), from_end(end).saturating_add(1).min(count));
    if first >= behind {
        return 0..0;
    }
    let at = |at: i64| usize::try_from(at).expect("between 0 and the count");
    at(first)..at(behind)
}
