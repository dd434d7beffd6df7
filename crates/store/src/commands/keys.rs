//! Commands of keys, whatever their values are.

use kasha_commands::Item;
use kasha_wire::operation::Words;

use super::{CommandError, Replied};
use crate::run::Run;

/// Strings of up to so many bytes Redis keeps beside their key.
const EMBEDDED_BYTES: usize = 44;

impl<'a> Run<'_, 'a> {
    pub(super) fn del(&mut self, keys: Words<'a>) -> Replied {
        let mut deleted = 0;
        for key in keys {
            let seen = self.see(key);
            deleted += usize::from(seen.value().is_some());
            self.remove_if_there(key, &seen);
        }
        self.reply_number(deleted);
        Ok(())
    }

    pub(super) fn exists(&mut self, keys: Words<'a>) -> Replied {
        let count = keys.filter(|key| self.see(key).value().is_some()).count();
        self.reply_number(count);
        Ok(())
    }

    pub(super) fn type_of(&mut self, [key]: [&'a [u8]; 1]) -> Replied {
        let is_there = self.see(key).value().is_some();
        self.reply(Item::Word(if is_there { "string" } else { "none" }));
        Ok(())
    }

    pub(super) fn rename(&mut self, [from, to]: [&'a [u8]; 2]) -> Replied {
        let seen = self.see(from);
        if seen.value().is_none() {
            self.see(to);
            return Err(CommandError::NO_KEY);
        }
        if from != to {
            self.move_value(from, to);
        }
        self.reply(Item::Ok);
        Ok(())
    }

    pub(super) fn rename_if_absent(&mut self, [from, to]: [&'a [u8]; 2]) -> Replied {
        let (source, target) = (self.see(from), self.see(to));
        if source.value().is_none() {
            return Err(CommandError::NO_KEY);
        }
        let may = target.value().is_none();
        if may {
            self.move_value(from, to);
        }
        self.reply_number(usize::from(may));
        Ok(())
    }

    /// Moves a value and its end to another key. **R10.7** The target's version is the one behind its own last one.
    fn move_value(&mut self, from: &'a [u8], to: &'a [u8]) {
        self.copy_value(from, to);
        let source = self.see(from);
        self.draft.remove(self.table, from, &source);
    }

    fn copy_value(&mut self, from: &'a [u8], to: &'a [u8]) {
        let source = self.see(from);
        let ends = source.ends();
        let string = self.string(&source).into_owned();
        let target = self.see(to);
        self.put_made(to, target, &string, ends);
    }

    pub(super) fn copy(&mut self, mut words: Words<'a>) -> Replied {
        let [from, to] = words.take_array().expect("its arity");
        let (source, target) = (self.see(from), self.see(to));
        let replaces = kasha_commands::copy_replaces(words).map_err(CommandError::of)?;
        if from == to {
            return Err(CommandError::of("ERR source and destination objects are the same"));
        }
        let may = source.value().is_some() && (replaces || target.value().is_none());
        if may {
            self.copy_value(from, to);
        }
        self.reply_number(usize::from(may));
        Ok(())
    }

    /// `OBJECT ENCODING`: what Redis would say.
    pub(super) fn encoding(&mut self, [key]: [&'a [u8]; 1]) -> Replied {
        let seen = self.see(key);
        let Some(current) = seen.value() else {
            self.reply(Item::Nil);
            return Ok(());
        };
        let name = match self.draft.number(self.log, current) {
            Some(_) => "int",
            None if self.string(&seen).len() <= EMBEDDED_BYTES => "embstr",
            None => "raw",
        };
        self.reply(Item::Bytes(name.as_bytes()));
        Ok(())
    }

    pub(super) fn references(&mut self, [key]: [&'a [u8]; 1]) -> Replied {
        self.reply_of_key(key, 1);
        Ok(())
    }

    /// `OBJECT IDLETIME`: nobody notes when a value was used.
    pub(super) fn idle_time(&mut self, [key]: [&'a [u8]; 1]) -> Replied {
        self.reply_of_key(key, 0);
        Ok(())
    }

    pub(super) fn use_count(&mut self, [key]: [&'a [u8]; 1]) -> Replied {
        match self.see(key).value() {
            Some(_) => Err(CommandError::of(
                "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at \
                 runtime LRU and LFU data will take some time to adjust.",
            )),
            None => {
                self.reply(Item::Nil);
                Ok(())
            }
        }
    }

    fn reply_of_key(&mut self, key: &'a [u8], number: i64) {
        let item = if self.see(key).value().is_some() { Item::Number(number) } else { Item::Nil };
        self.reply(item);
    }
}
