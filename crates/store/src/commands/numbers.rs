//! Commands of a string that is a number.

use kasha_commands::Item;

use super::{CommandError, Replied, integer};
use crate::draft::Value;
use crate::long_double::LongDouble;
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

    /// `INCRBYFLOAT`.
    pub(super) fn increase_by_fraction(&mut self, [key, delta]: [&'a [u8]; 2]) -> Replied {
        const NO_FLOAT: CommandError = CommandError::of("ERR value is not a valid float");
        let seen = self.see(key);
        let pieces = seen.value().map(|current| self.draft.pieces(self.log, current));
        let old = pieces.map_or(Some(LongDouble::ZERO), LongDouble::parse_pieces).ok_or(NO_FLOAT)?;
        let delta = LongDouble::parse(delta).ok_or(NO_FLOAT)?;
        let sum = old.plus(delta).ok_or(CommandError::of("ERR increment would produce NaN or Infinity"))?.digits();
        self.put_made(key, seen, sum.as_bytes(), seen.ends());
        self.reply(Item::Bytes(sum.as_bytes()));
        Ok(())
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
