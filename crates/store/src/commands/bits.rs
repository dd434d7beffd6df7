//! Commands of the bits of a string: the first bit of a byte is its highest.

use kasha_commands::Item;
use kasha_commands::bit_op::{COMBINED_BYTES_MAX, COMBINES_TOO_MUCH, Combines};
use kasha_types::limits::VALUE_BYTES_MAX;
use kasha_wire::operation::Words;

use super::{CommandError, Replied, integer, range};
use crate::run::Run;

const BITS: usize = u8::BITS as usize;

/// The place of a bit. `unit`: a number behind `#` counts in units of so many bits.
pub(super) fn bit_offset(word: &[u8], unit: Option<usize>) -> Result<usize, CommandError> {
    const INVALID: CommandError = CommandError::of("ERR bit offset is not an integer or out of range");
    let (digits, factor) = match (word.strip_prefix(b"#"), unit) {
        (Some(digits), Some(unit)) => (digits, unit),
        (Some(_) | None, _) => (word, 1),
    };
    let number = integer(digits).ok().and_then(|number| usize::try_from(number).ok()).ok_or(INVALID)?;
    let offset = number.checked_mul(factor).ok_or(INVALID)?;
    // Redis' limit: half a gigabyte. A bit behind the store's limit is refused when it is set.
    if offset / BITS < 512 * 1024 * 1024 { Ok(offset) } else { Err(INVALID) }
}

pub(super) fn bit_at(string: &[u8], offset: usize) -> bool {
    string.get(offset / BITS).is_some_and(|byte| byte >> (BITS - 1 - offset % BITS) & 1 == 1)
}

/// Sets a bit of a string that is long enough.
pub(super) fn put_bit(string: &mut [u8], offset: usize, bit: bool) {
    let mask = 1 << (BITS - 1 - offset % BITS);
    let byte = &mut string[offset / BITS];
    *byte = if bit { *byte | mask } else { *byte & !mask };
}

/// Makes a string long enough for its bits up to there.
pub(super) fn reach(string: &mut Vec<u8>, bits: usize) -> Replied {
    let bytes = bits.div_ceil(BITS);
    if bytes > VALUE_BYTES_MAX {
        return Err(CommandError::TOO_LONG);
    }
    string.resize(string.len().max(bytes), 0);
    Ok(())
}

/// What the words behind a key name of its string.
#[derive(Clone, Copy, Debug)]
struct Between {
    start: i64,
    end: i64,
    by_bits: bool,
}

impl Between {
    fn of_bits(self, string: &[u8]) -> std::ops::Range<usize> {
        let unit = if self.by_bits { 1 } else { BITS };
        let found = range(self.start, self.end, string.len() * BITS / unit);
        found.start * unit..found.end * unit
    }
}

fn unit_of(word: Option<&[u8]>) -> Result<bool, CommandError> {
    match word.map(<[u8]>::to_ascii_uppercase).as_deref() {
        None | Some(b"BYTE") => Ok(false),
        Some(b"BIT") => Ok(true),
        Some(_) => Err(CommandError::SYNTAX),
    }
}

/// How many bits of a range are set.
fn count_bits(string: &[u8], bits: std::ops::Range<usize>) -> usize {
    let (first, last) = (bits.start.div_ceil(BITS), bits.end / BITS);
    if first > last {
        return bits.filter(|&at| bit_at(string, at)).count();
    }
    let whole: usize = string[first..last].iter().map(|byte| byte.count_ones() as usize).sum();
    let edges = (bits.start..first * BITS).chain(last * BITS..bits.end);
    whole + edges.filter(|&at| bit_at(string, at)).count()
}

/// The first bit of a range that is so.
fn find_bit(string: &[u8], bits: std::ops::Range<usize>, bit: bool) -> Option<usize> {
    let dull = if bit { 0 } else { u8::MAX };
    let mut at = bits.start;
    while at < bits.end {
        if at.is_multiple_of(BITS) && at + BITS <= bits.end && string[at / BITS] == dull {
            at += BITS;
        } else if bit_at(string, at) == bit {
            return Some(at);
        } else {
            at += 1;
        }
    }
    None
}

impl<'a> Run<'_, 'a> {
    pub(super) fn get_bit(&mut self, [key, offset]: [&'a [u8]; 2]) -> Replied {
        let offset = bit_offset(offset, None)?;
        let seen = self.see(key);
        let bit = bit_at(&self.string(&seen), offset);
        self.reply_number(usize::from(bit));
        Ok(())
    }

    pub(super) fn set_bit(&mut self, [key, offset, bit]: [&'a [u8]; 3]) -> Replied {
        let offset = bit_offset(offset, None)?;
        let bit = match bit {
            b"0" => false,
            b"1" => true,
            _ => return Err(CommandError::of("ERR bit is not an integer or out of range")),
        };
        let seen = self.see(key);
        let mut string = self.string(&seen).into_owned();
        let (old, len) = (bit_at(&string, offset), string.len());
        reach(&mut string, offset + 1)?;
        // What changes nothing is no change to who watches the key, as in Redis.
        if string.len() > len || old != bit {
            put_bit(&mut string, offset, bit);
            self.put_made(key, seen, &string, seen.ends());
        }
        self.reply_number(usize::from(old));
        Ok(())
    }

    pub(super) fn bit_count(&mut self, mut words: Words<'a>) -> Replied {
        let [key] = words.take_array().expect("its arity");
        let seen = self.see(key);
        if seen.value().is_none() {
            self.reply_number(0);
            return Ok(());
        }
        let (between, crossed) = match words.collect::<Vec<_>>()[..] {
            [] => (Between { start: 0, end: -1, by_bits: false }, false),
            [start, end, ref unit @ ..] if unit.len() < 2 => {
                let (start, end) = (integer(start)?, integer(end)?);
                // As Redis has it: both from the end, and in the wrong order, is nothing, whatever they come to and follows.
                let are_crossed = start < 0 && end < 0 && start > end;
                let by_bits = !are_crossed && unit_of(unit.first().copied())?;
                (Between { start, end, by_bits }, are_crossed)
            }
            _ => return Err(CommandError::SYNTAX),
        };
        let count = {
            let string = self.string(&seen);
            if crossed { 0 } else { count_bits(&string, between.of_bits(&string)) }
        };
        self.reply_number(count);
        Ok(())
    }

    pub(super) fn bit_pos(&mut self, mut words: Words<'a>) -> Replied {
        let [key, bit] = words.take_array().expect("its arity");
        let bit = match integer(bit)? {
            0 => false,
            1 => true,
            _ => return Err(CommandError::of("ERR The bit argument must be 1 or 0.")),
        };
        let seen = self.see(key);
        if seen.value().is_none() {
            // A string that is not there is zeros without end.
            self.reply(Item::Number(if bit { -1 } else { 0 }));
            return Ok(());
        }
        let (between, has_end) = match words.collect::<Vec<_>>()[..] {
            [] => (Between { start: 0, end: -1, by_bits: false }, false),
            [start] => (Between { start: integer(start)?, end: -1, by_bits: false }, false),
            [start, end, ref unit @ ..] if unit.len() < 2 => {
                let start = integer(start)?;
                let by_bits = unit_of(unit.first().copied())?;
                (Between { start, end: integer(end)?, by_bits }, true)
            }
            _ => return Err(CommandError::SYNTAX),
        };
        let place = {
            let string = self.string(&seen);
            let bits = between.of_bits(&string);
            // Behind a string are zeros, unless an end was named.
            let behind = (!bit && !has_end && !bits.is_empty()).then_some(bits.end);
            find_bit(&string, bits, bit).or(behind)
        };
        match place {
            Some(place) => self.reply_number(place),
            None => self.reply(Item::Number(-1)),
        }
        Ok(())
    }

    pub(super) fn bit_op(&mut self, mut words: Words<'a>) -> Replied {
        let [operation, target] = words.take_array().expect("its arity");
        let combines = Combines::parse(operation, words.len()).map_err(CommandError::of)?;
        let seen: Vec<_> = words.map(|key| self.see(key)).collect();
        let total: usize = seen.iter().map(|seen| self.string(seen).len()).sum();
        if total > COMBINED_BYTES_MAX {
            return Err(CommandError::of(COMBINES_TOO_MUCH));
        }
        let strings: Vec<_> = seen.iter().map(|seen| self.string(seen).into_owned()).collect();
        let combined = combines.combine(&strings);
        let seen = self.see(target);
        match combined.len() {
            0 => self.remove_if_there(target, &seen),
            _ => self.put_made(target, seen, &combined, None),
        }
        self.reply_number(combined.len());
        Ok(())
    }
}
