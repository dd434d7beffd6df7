//! `BITFIELD`: numbers of some bits each, among the bits of a string.

use kasha_commands::{Item, ReplyWriter};
use kasha_wire::operation::Words;

use super::bits::{bit_at, bit_offset, put_bit, reach};
use super::{CommandError, Replied, integer};
use crate::run::Run;

/// The type of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    is_signed: bool,
    bits: usize,
}

/// What becomes of a number that its field cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    Wraps,
    Saturates,
    Fails,
}

/// What is done to a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Get,
    Set(i64),
    Add(i64),
}

/// One step of the command.
struct Step {
    field: Field,
    offset: usize,
    act: Act,
    overflow: Overflow,
}

impl Field {
    fn parse(word: &[u8]) -> Result<Self, CommandError> {
        let invalid = CommandError::of(
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
        );
        let (is_signed, most) = match word.first() {
            Some(b'i') => (true, 64),
            Some(b'u') => (false, 63),
            _ => return Err(invalid),
        };
        match integer(&word[1..]) {
            Ok(bits) if (1..=most).contains(&bits) => Ok(Self { is_signed, bits: bits as usize }),
            _ => Err(invalid),
        }
    }

    fn least(self) -> i128 {
        if self.is_signed { -(1 << (self.bits - 1)) } else { 0 }
    }

    fn most(self) -> i128 {
        let bits = if self.is_signed { self.bits - 1 } else { self.bits };
        (1 << bits) - 1
    }

    fn get(self, string: &[u8], offset: usize) -> i128 {
        let bits = (offset..offset + self.bits).map(|at| bit_at(string, at));
        let number = bits.fold(0, |number, bit| number << 1 | i128::from(bit));
        self.wrapped(number)
    }

    fn put(self, string: &mut [u8], offset: usize, number: i128) {
        for bit in 0..self.bits {
            put_bit(string, offset + bit, number >> (self.bits - 1 - bit) & 1 == 1);
        }
    }

    /// The number that has the same lowest bits.
    fn wrapped(self, number: i128) -> i128 {
        let low = number & ((1 << self.bits) - 1);
        if low > self.most() { low - (1 << self.bits) } else { low }
    }

    /// What the field holds of a number.
    fn held(self, number: i128, overflow: Overflow) -> Option<i128> {
        let is_within = (self.least()..=self.most()).contains(&number);
        match overflow {
            _ if is_within => Some(number),
            Overflow::Wraps => Some(self.wrapped(number)),
            Overflow::Saturates => Some(number.clamp(self.least(), self.most())),
            Overflow::Fails => None,
        }
    }
}

fn parse(mut words: Words<'_>) -> Result<Vec<Step>, CommandError> {
    let (mut steps, mut overflow) = (Vec::new(), Overflow::Wraps);
    while let Some(word) = words.next() {
        let name = word.to_ascii_uppercase();
        if name == b"OVERFLOW" && words.len() >= 1 {
            overflow = match &words.next().expect("counted").to_ascii_uppercase()[..] {
                b"WRAP" => Overflow::Wraps,
                b"SAT" => Overflow::Saturates,
                b"FAIL" => Overflow::Fails,
                _ => return Err(CommandError::of("ERR Invalid OVERFLOW type specified")),
            };
            continue;
        }
        let takes = match &name[..] {
            b"GET" => 2,
            b"SET" | b"INCRBY" => 3,
            _ => return Err(CommandError::SYNTAX),
        };
        if words.len() < takes {
            return Err(CommandError::SYNTAX);
        }
        let [field, offset] = words.take_array().expect("counted");
        let field = Field::parse(field)?;
        let offset = bit_offset(offset, Some(field.bits))?;
        let act = match &name[..] {
            b"GET" => Act::Get,
            b"SET" => Act::Set(integer(words.next().expect("counted"))?),
            _ => Act::Add(integer(words.next().expect("counted"))?),
        };
        steps.push(Step { field, offset, act, overflow });
    }
    Ok(steps)
}

impl<'a> Run<'_, 'a> {
    /// `BITFIELD`, and `BITFIELD_RO`, which only reads.
    pub(super) fn bit_field(&mut self, mut words: Words<'a>, only_reads: bool) -> Replied {
        let [key] = words.take_array().expect("its arity");
        let seen = self.see(key);
        let steps = parse(words)?;
        if only_reads && steps.iter().any(|step| step.act != Act::Get) {
            return Err(CommandError::of("ERR BITFIELD_RO only supports the GET subcommand"));
        }
        let mut string = self.string(&seen).into_owned();
        let len = string.len();
        for step in steps.iter().filter(|step| step.act != Act::Get) {
            reach(&mut string, step.offset + step.field.bits)?;
        }
        // What changes nothing is no change to who watches the key, as in Redis.
        let mut is_changed = string.len() > len;
        let mut replies = Vec::new();
        let mut out = ReplyWriter(&mut replies);
        out.item(Item::List(u32::try_from(steps.len()).expect("its limit")));
        for Step { field, offset, act, overflow } in steps {
            let old = field.get(&string, offset);
            let (new, told) = match act {
                Act::Get => (None, Some(old)),
                Act::Set(number) => {
                    // A number for a field without sign is taken for one without sign, as Redis does.
                    let number = if field.is_signed { i128::from(number) } else { i128::from(number as u64) };
                    let held = field.held(number, overflow);
                    (held, held.map(|_| old))
                }
                Act::Add(number) => {
                    let held = field.held(old + i128::from(number), overflow);
                    (held, held)
                }
            };
            if let Some(new) = new {
                field.put(&mut string, offset, new);
                is_changed |= field.get(&string, offset) != old;
            }
            out.item(told.map_or(Item::Nil, |told| Item::Number(i64::try_from(told).expect("64 bits"))));
        }
        if is_changed {
            self.put_made(key, seen, &string, seen.ends());
        }
        self.draft.answer_bytes(&replies);
        Ok(())
    }
}
