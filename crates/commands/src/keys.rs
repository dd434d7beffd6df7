//! Where a command's keys stand among its words.

use crate::Row;
use crate::bits::set_of_names;

set_of_names! {
    /// What a command does with a key, in Redis' words.
    KeyFlags;
    /// It reads it.
    RO "RO";
    /// It reads and changes it.
    RW "RW";
    /// It overwrites it.
    OW "OW";
    /// It removes it.
    RM "RM";
    /// It tells something of the value.
    ACCESS "access";
    /// It changes the value.
    UPDATE "update";
    /// It makes a value, or adds to one.
    INSERT "insert";
    /// It deletes from the value, or all of it.
    DELETE "delete";
    /// What it does depends on its arguments.
    VARIABLE "variable_flags";
}

/// A range of words that are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// What the command does with them.
    pub flags: KeyFlags,
    /// The first word; 1 stands behind the command's name.
    pub first: u8,
    /// The last word: so many behind the first, or, if it is negative, counted from the end of the request (-1: its last word).
    pub last: i8,
    /// From one key to the next.
    pub step: u8,
}

impl KeySpec {
    /// One key, at this word.
    #[must_use]
    pub const fn at(first: u8, flags: KeyFlags) -> Self {
        Self { flags, first, last: 0, step: 1 }
    }

    /// All words from this one on.
    #[must_use]
    pub const fn from(first: u8, flags: KeyFlags) -> Self {
        Self { flags, first, last: -1, step: 1 }
    }

    /// The first of each two words, from the first word on.
    #[must_use]
    pub const fn pairs(flags: KeyFlags) -> Self {
        Self { flags, first: 1, last: -1, step: 2 }
    }

    /// The last word, as [`crate::describe`] tells it of a whole command: from the beginning of the request or, if it is negative, from its end.
    #[must_use]
    pub const fn absolute_last(&self) -> i64 {
        if self.last < 0 { self.last as i64 } else { self.first as i64 + self.last as i64 }
    }

    /// Whether the word at this position is one of the keys of a request of so many words.
    #[must_use]
    pub fn has(&self, at: usize, words: usize) -> bool {
        let first = usize::from(self.first);
        at >= first && at < self.end(words) && (at - first).is_multiple_of(usize::from(self.step))
    }

    /// The first position behind the last key.
    fn end(&self, words: usize) -> usize {
        match self.absolute_last() {
            last @ 0.. => (last as usize + 1).min(words),
            last => (words + 1).saturating_sub(last.unsigned_abs() as usize),
        }
    }

    /// How many keys a request of so many words has.
    #[must_use]
    #[inline]
    pub fn count(&self, words: usize) -> usize {
        let positions = self.end(words).saturating_sub(usize::from(self.first));
        // A division costs more than all the rest.
        if self.step == 1 { positions } else { positions.div_ceil(usize::from(self.step)) }
    }

    /// Whether its only key is the word behind the command's name.
    #[must_use]
    #[inline]
    pub fn is_first(&self) -> bool {
        self.first == 1 && self.last == 0
    }

    /// The positions of the keys in a request of so many words. A request that its arity forbids may have keys that are not there:
    /// those are left out.
    pub fn positions(&self, words: usize) -> impl Iterator<Item = usize> + use<> {
        (usize::from(self.first)..self.end(words)).step_by(usize::from(self.step))
    }
}

/// First key, last key and the step between keys, as Redis tells them of a whole command: 0 three times if it has none.
#[must_use]
pub fn range(row: &Row) -> (i64, i64, i64) {
    let Some(first) = row.keys.first() else { return (0, 0, 0) };
    // A later range of the same command goes on where the one before ends, with the same step.
    let last = row.keys.last().map_or(0, KeySpec::absolute_last);
    (i64::from(first.first), last, i64::from(first.step))
}

/// The positions of all keys in a request of so many words, in the order of the row's ranges.
pub fn positions(row: &Row, words: usize) -> impl Iterator<Item = (usize, KeyFlags)> + use<> {
    row.keys.iter().flat_map(move |spec| spec.positions(words).map(|at| (at, spec.flags)))
}
