//! Commands of when values end.
//!
//! **R10.12** A value ends at a ClusterTime. A time that a program says, and one that it is told, is the unix time that is that ClusterTime: the
//! two differ by a number that never changes. So `EXPIRETIME` tells what `EXPIREAT` was told.

use kasha_commands::Item;
use kasha_types::ClusterTime;
use kasha_types::planted::{self, Bug};
use kasha_wire::operation::Words;

use super::{CommandError, Replied, integer};
use crate::run::Run;

const MILLIS_A_SECOND: i64 = 1000;

/// No clock shows more unix milliseconds in this century. So a value ends at a unix time that a word can say.
const UNIX_MOST: i64 = 1 << 42;

/// What a word says of an end: in which unit, and from when on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Given {
    millis: i64,
    is_unix: bool,
}

impl Given {
    pub const SECONDS: Self = Self { millis: MILLIS_A_SECOND, is_unix: false };
    pub const MILLIS: Self = Self { millis: 1, is_unix: false };
    pub const UNIX_SECONDS: Self = Self { millis: MILLIS_A_SECOND, is_unix: true };
    pub const UNIX_MILLIS: Self = Self { millis: 1, is_unix: true };

    /// What an option of `SET` or `GETEX` says, in capital letters.
    pub fn of_option(option: &[u8]) -> Option<Self> {
        match option {
            b"EX" => Some(Self::SECONDS),
            b"PX" => Some(Self::MILLIS),
            b"EXAT" => Some(Self::UNIX_SECONDS),
            b"PXAT" => Some(Self::UNIX_MILLIS),
            _ => None,
        }
    }
}

/// In which unit an end is told, and from when on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told(Given);

impl Told {
    pub const SECONDS: Self = Self(Given::SECONDS);
    pub const MILLIS: Self = Self(Given::MILLIS);
    pub const UNIX_SECONDS: Self = Self(Given::UNIX_SECONDS);
    pub const UNIX_MILLIS: Self = Self(Given::UNIX_MILLIS);
}

/// When a value ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Then.
    At(ClusterTime),
    /// When the request was begun it was over.
    Over,
}

/// Which end `EXPIRE` and its like may replace.
#[derive(Clone, Copy, Debug, Default)]
struct Which {
    none: bool,
    some: bool,
    later: bool,
    sooner: bool,
}

impl Which {
    fn parse(words: Words<'_>) -> Result<Self, CommandError> {
        let mut which = Self::default();
        for word in words {
            match &word.to_ascii_uppercase()[..] {
                b"NX" => which.none = true,
                b"XX" => which.some = true,
                b"GT" => which.later = true,
                b"LT" => which.sooner = true,
                _ => {
                    let option = String::from_utf8_lossy(word).replace(['\r', '\n'], " ");
                    return Err(CommandError(format!("ERR Unsupported option {option}").into()));
                }
            }
        }
        if which.none && (which.some || which.later || which.sooner) {
            return Err(CommandError::of("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if which.later && which.sooner {
            return Err(CommandError::of("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(which)
    }

    /// A value without an end ends later than any other.
    fn allows(self, old: Option<i128>, new: i128) -> bool {
        (!self.none || old.is_none())
            && (!self.some || old.is_some())
            && (!self.later || old.is_some_and(|old| new > old))
            && (!self.sooner || old.is_none_or(|old| new < old))
    }
}

impl<'a> Run<'_, 'a> {
    /// The unix time of ClusterTime 0.
    fn origin(&self) -> i128 {
        let origin = self.moment.origin.expect("R10.12: what knows the time of day is refused before the primary does");
        i128::from(origin.0)
    }

    /// What a word says of an end, in milliseconds of ClusterTime, which may be before its begin. `invalid`: the reply to one that is out of
    /// range.
    ///
    /// What is not said as a time of day does not depend on it, its range neither: a primary that knows the time of day replays what one has
    /// answered that did not (R10.11).
    fn when(&self, given: Given, word: &[u8], invalid: &'static str) -> Result<i128, CommandError> {
        let invalid = CommandError::of(invalid);
        let millis = integer(word)?.checked_mul(given.millis).ok_or_else(|| invalid.clone())?;
        if given.is_unix {
            let rounded = millis / MILLIS_A_SECOND * MILLIS_A_SECOND;
            let millis = if planted::is_on(Bug::UnixEndRounded) { rounded } else { millis };
            return Ok(i128::from(millis) - self.origin());
        }
        if millis > i64::MAX - UNIX_MOST {
            return Err(invalid);
        }
        Ok(i128::from(self.moment.begun.0) + i128::from(millis))
    }

    fn end_of(&self, when: i128) -> End {
        if when <= i128::from(self.moment.begun.0) {
            return End::Over;
        }
        // A client may say that it has begun at the end of all time: then the value lives on until then, as with a lifetime of a native operation.
        End::At(ClusterTime(u64::try_from(when).unwrap_or(u64::MAX)))
    }

    /// When a value ends whose end a word says, which must not be nothing or less.
    pub(super) fn end(&self, given: Given, word: &[u8], invalid: &'static str) -> Result<End, CommandError> {
        if integer(word)? <= 0 {
            return Err(CommandError::of(invalid));
        }
        Ok(self.end_of(self.when(given, word, invalid)?))
    }

    /// `EXPIRE`, `PEXPIRE`, `EXPIREAT`, `PEXPIREAT`.
    pub(super) fn expire(&mut self, mut words: Words<'a>, given: Given) -> Replied {
        let [key, time] = words.take_array().expect("its arity");
        let which = Which::parse(words)?;
        let invalid = match (given.is_unix, given.millis) {
            (false, MILLIS_A_SECOND) => "ERR invalid expire time in 'expire' command",
            (false, _) => "ERR invalid expire time in 'pexpire' command",
            (true, MILLIS_A_SECOND) => "ERR invalid expire time in 'expireat' command",
            (true, _) => "ERR invalid expire time in 'pexpireat' command",
        };
        let when = self.when(given, time, invalid)?;
        let seen = self.see(key);
        let old = seen.ends().map(|ends| i128::from(ends.0));
        let may = seen.value().is_some() && which.allows(old, when);
        if may {
            match self.end_of(when) {
                End::At(ends) => self.end_at(key, seen, Some(ends)),
                End::Over => self.remove_if_there(key, &seen),
            }
        }
        self.reply_number(usize::from(may));
        Ok(())
    }

    pub(super) fn persist(&mut self, [key]: [&'a [u8]; 1]) -> Replied {
        let seen = self.see(key);
        let ends = seen.ends().is_some();
        if ends {
            self.end_at(key, seen, None);
        }
        self.reply_number(usize::from(ends));
        Ok(())
    }

    /// `TTL`, `PTTL`, `EXPIRETIME`, `PEXPIRETIME`.
    pub(super) fn tell_end(&mut self, [key]: [&'a [u8]; 1], Told(told): Told) -> Replied {
        /// What is told of a key without a value.
        const ABSENT: i64 = -2;
        /// What is told of a value that does not end.
        const ENDLESS: i64 = -1;
        let seen = self.see(key);
        let number = match (seen.value(), seen.ends()) {
            (None, _) => ABSENT,
            (Some(_), None) => ENDLESS,
            (Some(_), Some(ends)) => {
                let millis = match told.is_unix {
                    true => i128::from(ends.0) + self.origin(),
                    false => i128::from(ends.0.saturating_sub(self.moment.begun.0)),
                };
                let millis = i64::try_from(millis).unwrap_or(i64::MAX);
                millis.saturating_add(told.millis / 2) / told.millis
            }
        };
        self.reply(Item::Number(number));
        Ok(())
    }
}
