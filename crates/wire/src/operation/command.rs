//! A Redis command as a part of an operation: its number, and the words behind its name.
//!
//! Encoded as the number (`u16`), a count of words (`u32`), and each word by its length (`u32`) and its bytes. A command whose arity forbids so
//! many words, or that no shard executes, is none; so whoever executes one finds its arguments.

use std::fmt;

use kasha_commands::{Class, CommandNumber, Frees, KeySpec, Row, TimeOfDay};
use kasha_types::limits::{KEY_BYTES_MAX, OPERATION_KEYS_MAX};

use super::excess::Excess;
use crate::requests::number;
use crate::{DecodeError, Reader};

/// A command, still encoded; checked, so that going through its words cannot fail.
#[derive(Clone, Copy)]
pub struct Command<'a> {
    row: &'static Row,
    count: u32,
    words: &'a [u8],
}

impl PartialEq for Command<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.row.command == other.row.command && self.words == other.words
    }
}

impl Eq for Command<'_> {}

impl fmt::Debug for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row.name)?;
        self.words().try_for_each(|word| write!(f, " {}", word.escape_ascii()))
    }
}

fn take_word<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let len = reader.take::<u32>()?;
    reader.bytes(len as usize)
}

impl<'a> Command<'a> {
    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let command = Self::take_checked(reader)?;
        let Self { row, count, .. } = command;
        if !row.arity.allows(count as usize + 1) || (row.is_of_table() && count != 1) {
            return Err(DecodeError::Invalid("the number of a command's words"));
        }
        command.check_limits().map_err(|_| DecodeError::TooLarge("a key of a command, or their number"))?;
        Ok(command)
    }

    /// One that was checked when it was decoded.
    pub(super) fn take_checked(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (number, count) = (CommandNumber(reader.take()?), reader.take::<u32>()?);
        let row = kasha_commands::Command::of_number(number).ok_or(DecodeError::Invalid("a command's number"))?;
        let before = reader.rest();
        for _ in 0..count {
            take_word(reader)?;
        }
        Ok(Self { row, count, words: &before[..before.len() - reader.rest().len()] })
    }

    /// What is said of it.
    #[must_use]
    pub fn row(&self) -> &'static Row {
        self.row
    }

    /// Whether it may change something.
    #[must_use]
    pub fn changes(&self) -> bool {
        matches!(self.row.class, Class::Changes(_))
    }

    /// Whether it says or tells a time of day: what it does depends on the unix time of ClusterTime 0 (R10.12).
    #[must_use]
    pub fn knows_time_of_day(&self) -> bool {
        let behind = match self.row.time_of_day() {
            TimeOfDay::Never => return false,
            TimeOfDay::Always => return true,
            TimeOfDay::InOptions { behind } => behind,
        };
        // A time, or what is no option, may look like one: then it only waits for what all clusters come to know.
        self.words().skip(behind).any(|word| word.eq_ignore_ascii_case(b"exat") || word.eq_ignore_ascii_case(b"pxat"))
    }

    /// Whether it can only give memory back: it deletes, or its time says that the value's is over.
    #[must_use]
    pub fn only_frees(&self) -> bool {
        match self.row.frees {
            Frees::Never => false,
            Frees::Always => true,
            Frees::IfOver => self.words().nth(1).is_some_and(|time| number(time).is_some_and(|n| n <= 0)),
        }
    }

    /// How many words stand behind its name.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The words behind its name, in order.
    #[must_use]
    pub fn words(&self) -> Words<'a> {
        Words { bytes: self.words, left: self.count as usize }
    }

    /// Whether it touches all keys of its table; its only word is a key that says in which shard.
    #[must_use]
    pub fn is_of_table(&self) -> bool {
        self.row.is_of_table()
    }

    /// Calls `each` with every key, in the order of the row's ranges.
    pub fn for_each_key(&self, mut each: impl FnMut(&'a [u8])) {
        if self.is_of_table() {
            return self.words().for_each(each);
        }
        let whole = self.count as usize + 1;
        for spec in self.row.keys {
            if spec.is_first() {
                self.words().take(1).for_each(&mut each);
                continue;
            }
            self.words().enumerate().filter(|&(at, _)| spec.has(at + 1, whole)).for_each(|(_, key)| each(key));
        }
    }

    /// How many keys it has; the same key may come twice.
    #[must_use]
    pub fn keys(&self) -> usize {
        if self.is_of_table() {
            return 1;
        }
        self.row.keys.iter().map(|spec: &KeySpec| spec.count(self.count as usize + 1)).sum()
    }

    /// Bytes of its words, with their lengths.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.words.len()
    }

    #[inline]
    pub(super) fn check_limits(&self) -> Result<(), Excess> {
        if let [key] = self.row.keys
            && key.is_first()
            && let Some(key) = self.words().next()
        {
            return if key.len() <= KEY_BYTES_MAX { Ok(()) } else { Err(Excess::Key) };
        }
        self.check_limits_of_keys()
    }

    fn check_limits_of_keys(&self) -> Result<(), Excess> {
        if !(1..=OPERATION_KEYS_MAX).contains(&self.keys()) {
            return Err(Excess::KeyCount);
        }
        let mut are_short = true;
        self.for_each_key(|key| are_short &= key.len() <= KEY_BYTES_MAX);
        if are_short { Ok(()) } else { Err(Excess::Key) }
    }

    /// Encodes the command of this row with these words behind its name at the end of `out`. `None`: no shard executes it, or its arity or a
    /// limit forbids the words.
    pub(super) fn encode_new<'w>(
        row: &'static Row,
        words: impl IntoIterator<Item = &'w [u8]>,
        out: &'a mut Vec<u8>,
    ) -> Option<Self> {
        out.extend_from_slice(&row.class.number()?.0.to_le_bytes());
        let (count_at, mut count) = (out.len(), 0u32);
        out.extend_from_slice(&[0; 4]);
        for word in words {
            count += 1;
            out.extend_from_slice(&u32::try_from(word.len()).ok()?.to_le_bytes());
            out.extend_from_slice(word);
        }
        out[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
        let command = Self { row, count, words: &out[count_at + 4..] };
        let are_right = row.arity.allows(count as usize + 1) && (!row.is_of_table() || count == 1);
        let is_one = are_right && command.check_limits().is_ok();
        is_one.then_some(command)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let number = self.row.class.number().expect("a shard executes it");
        out.extend_from_slice(&number.0.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(self.words);
    }
}

/// Words of a command, in order.
#[derive(Clone, Debug)]
pub struct Words<'a> {
    /// Those that are left, encoded.
    bytes: &'a [u8],
    left: usize,
}

impl<'a> Words<'a> {
    /// So many words, which are all that are left.
    ///
    /// # Panics
    /// If there are not so many: the command's arity says how many there are.
    #[must_use]
    pub fn all<const N: usize>(mut self) -> [&'a [u8]; N] {
        assert_eq!(self.left, N, "the arity of a command");
        std::array::from_fn(|_| self.next().expect("counted above"))
    }

    /// The next words, if there are so many.
    pub fn take_array<const N: usize>(&mut self) -> Option<[&'a [u8]; N]> {
        (self.left >= N).then(|| std::array::from_fn(|_| self.next().expect("counted above")))
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        let (len, rest) = self.bytes.split_first_chunk().expect("checked when decoded");
        let (word, rest) = rest.split_at(u32::from_le_bytes(*len) as usize);
        self.bytes = rest;
        Some(word)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Words<'_> {}

/// A command that is put together.
#[derive(Clone, Debug)]
pub struct CommandBuffer {
    row: &'static Row,
    count: u32,
    words: Vec<u8>,
}

impl CommandBuffer {
    /// The command of this row with these words behind its name. `None`: no shard executes it, or its arity or a limit forbids the words.
    #[must_use]
    pub fn new<'w>(row: &'static Row, words: impl IntoIterator<Item = &'w [u8]>) -> Option<Self> {
        row.class.number()?;
        let mut buffer = Self { row, count: 0, words: Vec::new() };
        for word in words {
            buffer.count += 1;
            buffer.words.extend_from_slice(&u32::try_from(word.len()).ok()?.to_le_bytes());
            buffer.words.extend_from_slice(word);
        }
        let is_one = row.arity.allows(buffer.count as usize + 1) && buffer.as_command().check_limits().is_ok();
        is_one.then_some(buffer)
    }

    /// The command that these words are, its name first. `None`: they are none, or none that a shard executes.
    #[must_use]
    pub fn of_words(words: &[&[u8]]) -> Option<Self> {
        let (name, words) = words.split_first()?;
        Self::new(kasha_commands::find(name)?, words.iter().copied())
    }

    /// Bytes of its words, with their lengths.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.words.len()
    }

    /// The command, as a part's operation.
    #[must_use]
    pub fn as_command(&self) -> Command<'_> {
        Command { row: self.row, count: self.count, words: &self.words }
    }
}
