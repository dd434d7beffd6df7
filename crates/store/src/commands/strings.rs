//! Commands of a string as a whole, and of a part of it.

use kasha_commands::Item;
use kasha_types::ClusterTime;
use kasha_types::limits::{RESULT_BYTES_MAX, VALUE_BYTES_MAX};
use kasha_wire::operation::Words;

use super::ends::{End, Given};
use super::{CommandError, Replied, check_len, integer, range};
use crate::run::Run;

/// When `SET` changes a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum If {
    Always,
    Absent,
    Present,
}

/// The words of `SET` behind key and value.
struct SetOptions<'a> {
    when: If,
    tells_old: bool,
    keeps_end: bool,
    end: Option<(Given, &'a [u8])>,
}

impl<'a> SetOptions<'a> {
    fn parse(mut words: Words<'a>) -> Result<Self, CommandError> {
        let mut options = Self { when: If::Always, tells_old: false, keeps_end: false, end: None };
        while let Some(word) = words.next() {
            match &word.to_ascii_uppercase()[..] {
                b"NX" if options.when != If::Present => options.when = If::Absent,
                b"XX" if options.when != If::Absent => options.when = If::Present,
                b"GET" => options.tells_old = true,
                b"KEEPTTL" if options.end.is_none() => options.keeps_end = true,
                unit => {
                    // The same option may come twice; the last one counts.
                    let is_free =
                        |given: &Given| !options.keeps_end && options.end.is_none_or(|(old, _)| old == *given);
                    let given = Given::of_option(unit).filter(is_free).ok_or(CommandError::SYNTAX)?;
                    options.end = Some((given, words.next().ok_or(CommandError::SYNTAX)?));
                }
            }
        }
        Ok(options)
    }
}

impl<'a> Run<'_, 'a> {
    pub(super) fn get(&mut self, [key]: [&'a [u8]; 1]) -> Replied {
        let seen = self.see(key);
        self.reply_string(&seen);
        Ok(())
    }

    pub(super) fn string_length(&mut self, [key]: [&'a [u8]; 1]) -> Replied {
        let seen = self.see(key);
        let len = self.string(&seen).len();
        self.reply_number(len);
        Ok(())
    }

    pub(super) fn set(&mut self, mut words: Words<'a>) -> Replied {
        let [key, value] = words.take_array().expect("its arity");
        let seen = self.see(key);
        let options = SetOptions::parse(words)?;
        let end = match options.end {
            Some((given, word)) => Some(self.end(given, word, "ERR invalid expire time in 'set' command")?),
            None => None,
        };
        check_len(value.len())?;
        let may = match options.when {
            If::Always => true,
            If::Absent => seen.value().is_none(),
            If::Present => seen.value().is_some(),
        };
        match (options.tells_old, may) {
            (true, _) => self.reply_string(&seen),
            (false, true) => self.reply(Item::Ok),
            (false, false) => self.reply(Item::Nil),
        }
        match end {
            _ if !may => Ok(()),
            Some(End::Over) => {
                self.remove_if_there(key, &seen);
                Ok(())
            }
            Some(End::At(ends)) => self.put_word(key, seen, value, Some(ends)),
            None => self.put_word(key, seen, value, seen.ends().filter(|_| options.keeps_end)),
        }
    }

    pub(super) fn set_if_absent(&mut self, [key, value]: [&'a [u8]; 2]) -> Replied {
        let seen = self.see(key);
        check_len(value.len())?;
        let is_absent = seen.value().is_none();
        if is_absent {
            self.put_word(key, seen, value, None)?;
        }
        self.reply_number(usize::from(is_absent));
        Ok(())
    }

    /// `SETEX` and `PSETEX`.
    pub(super) fn set_and_end(&mut self, [key, time, value]: [&'a [u8]; 3], given: Given) -> Replied {
        let seen = self.see(key);
        let invalid = match given {
            Given::MILLIS => "ERR invalid expire time in 'psetex' command",
            _ => "ERR invalid expire time in 'setex' command",
        };
        let End::At(ends) = self.end(given, time, invalid)? else { return Err(CommandError::of(invalid)) };
        self.put_word(key, seen, value, Some(ends))?;
        self.reply(Item::Ok);
        Ok(())
    }

    pub(super) fn get_and_set(&mut self, [key, value]: [&'a [u8]; 2]) -> Replied {
        let seen = self.see(key);
        check_len(value.len())?;
        self.reply_string(&seen);
        self.put_word(key, seen, value, None)
    }

    pub(super) fn get_and_delete(&mut self, [key]: [&'a [u8]; 1]) -> Replied {
        let seen = self.see(key);
        self.reply_string(&seen);
        self.remove_if_there(key, &seen);
        Ok(())
    }

    /// `GETEX`.
    pub(super) fn get_and_end(&mut self, mut words: Words<'a>) -> Replied {
        let [key] = words.take_array().expect("its arity");
        let seen = self.see(key);
        let (mut persists, mut given) = (false, None);
        while let Some(word) = words.next() {
            match &word.to_ascii_uppercase()[..] {
                b"PERSIST" if given.is_none() => persists = true,
                unit => {
                    let is_free = |unit: &Given| !persists && given.is_none_or(|(old, _)| old == *unit);
                    let unit = Given::of_option(unit).filter(is_free).ok_or(CommandError::SYNTAX)?;
                    given = Some((unit, words.next().ok_or(CommandError::SYNTAX)?));
                }
            }
        }
        if seen.value().is_none() {
            self.reply(Item::Nil);
            return Ok(());
        }
        let end = match given {
            Some((unit, time)) => Some(self.end(unit, time, "ERR invalid expire time in 'getex' command")?),
            None => None,
        };
        self.reply_string(&seen);
        match end {
            Some(End::Over) => self.remove_if_there(key, &seen),
            Some(End::At(ends)) => self.end_at(key, seen, Some(ends)),
            None if persists && seen.ends().is_some() => self.end_at(key, seen, None),
            None => {}
        }
        Ok(())
    }

    pub(super) fn get_several(&mut self, keys: Words<'a>) -> Replied {
        self.reply(Item::List(u32::try_from(keys.len()).expect("its limit")));
        let mut is_too_large = false;
        for key in keys {
            let seen = self.see(key); // all of them, for what its answer waits for
            if !is_too_large {
                self.reply_string(&seen);
            }
            // Beyond that nobody is answered, and a thousand values would be a gigabyte.
            is_too_large |= self.draft.result().len() > RESULT_BYTES_MAX;
        }
        Ok(())
    }

    pub(super) fn set_several(&mut self, mut words: Words<'a>) -> Replied {
        Self::check_pairs(words.clone(), "ERR wrong number of arguments for 'mset' command")?;
        while let Some([key, value]) = words.take_array() {
            let seen = self.see(key);
            self.put_word(key, seen, value, None)?;
        }
        self.reply(Item::Ok);
        Ok(())
    }

    pub(super) fn set_several_if_absent(&mut self, mut words: Words<'a>) -> Replied {
        Self::check_pairs(words.clone(), "ERR wrong number of arguments for 'msetnx' command")?;
        let (mut keys, mut are_absent) = (words.clone(), true);
        while let Some([key, _]) = keys.take_array() {
            are_absent &= self.see(key).value().is_none();
        }
        while are_absent && let Some([key, value]) = words.take_array() {
            let seen = self.see(key);
            self.put_word(key, seen, value, None)?;
        }
        self.reply_number(usize::from(are_absent));
        Ok(())
    }

    fn check_pairs(mut words: Words<'_>, odd: &'static str) -> Replied {
        while let Some([_, value]) = words.take_array() {
            check_len(value.len())?;
        }
        if words.len() == 0 { Ok(()) } else { Err(CommandError::of(odd)) }
    }

    pub(super) fn append(&mut self, [key, more]: [&'a [u8]; 2]) -> Replied {
        let seen = self.see(key);
        let len = self.string(&seen).len() + more.len();
        check_len(len)?;
        let value = self.draft.appended(self.log, seen.value(), more);
        self.put(key, seen, value, seen.ends());
        self.reply_number(len);
        Ok(())
    }

    /// `GETRANGE`, and `SUBSTR`, which is its older name.
    pub(super) fn get_range(&mut self, [key, start, end]: [&'a [u8]; 3]) -> Replied {
        let (start, end) = (integer(start)?, integer(end)?);
        let seen = self.see(key);
        let part = {
            let string = self.string(&seen);
            // As Redis has it: both from the end, and in the wrong order, is nothing, whatever they come to.
            let are_crossed = start < 0 && end < 0 && start > end;
            if are_crossed { Vec::new() } else { string[range(start, end, string.len())].to_vec() }
        };
        self.reply(Item::Bytes(&part));
        Ok(())
    }

    pub(super) fn set_range(&mut self, [key, offset, part]: [&'a [u8]; 3]) -> Replied {
        let offset = integer(offset)?;
        let seen = self.see(key);
        let at = usize::try_from(offset).map_err(|_| CommandError::of("ERR offset is out of range"))?;
        let mut string = self.string(&seen).into_owned();
        if !part.is_empty() {
            let end = at.checked_add(part.len()).filter(|&end| end <= VALUE_BYTES_MAX).ok_or(CommandError::TOO_LONG)?;
            string.resize(string.len().max(end), 0);
            string[at..end].copy_from_slice(part);
            self.put_made(key, seen, &string, seen.ends());
        }
        self.reply_number(string.len());
        Ok(())
    }

    /// Gives a value another end.
    pub(super) fn end_at(&mut self, key: &'a [u8], seen: crate::draft::Seen<'_>, ends: Option<ClusterTime>) {
        let same = self.draft.appended(self.log, seen.value(), &[]);
        self.draft.put(self.table, key, &seen, (same, ends));
    }

    pub(super) fn remove_if_there(&mut self, key: &'a [u8], seen: &crate::draft::Seen<'_>) {
        if seen.value().is_some() {
            self.draft.remove(self.table, key, seen);
        }
    }
}
