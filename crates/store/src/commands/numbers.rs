//! Commands of a string that is a number.

use kasha_commands::Item;

use super::{CommandError, Replied, integer};
use crate::draft::Value;
use crate::number::Number;
use crate::run::Run;

impl<'a> Run<'_, 'a> {
    /// `INCRBY`.
    pub(super) fn increase(&mut self, [key, delta]: [&'a [u8]; 2]) -> Replied {
        self.add_to(key, integer(delta)?)
    }

    /// `DECRBY`.
    pub(super) fn take_from(&mut self, [key, delta]: [&'a [u8]; 2]) -> Replied {
        let negated = integer(delta)?.checked_neg().ok_or(CommandError::of("ERR decrement would overflow"))?;
        self.add_to(key, negated)
    }

    pub(super) fn add_to(&mut self, key: &'a [u8], delta: i64) -> Replied {
        let seen = self.see(key);
        let old = match seen.value() {
            Some(current) => self.draft.number(self.log, current).ok_or(CommandError::NO_INTEGER)?,
            None => 0,
        };
        let sum = old.checked_add(delta).ok_or(CommandError::of("ERR increment or decrement would overflow"))?;
        self.put(key, seen, Value::Number(Number::new(sum)), seen.ends());
        self.reply(Item::Number(sum));
        Ok(())
    }
}
