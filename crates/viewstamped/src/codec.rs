//! Messages and records as bytes: little-endian numbers, and a count before what repeats.
//!
//! A byte string that is no message is refused with a sentence; it never panics, and takes no more memory than it has bytes.

use std::collections::BTreeSet;

use crate::log::{Base, Entry, Piece, Snapshot};
use crate::message::{Message, PieceAt};
use crate::output::{Record, Stored};
use crate::{Lists, MemberId, OpNumber, RoundNumber, View};

/// What has a form in bytes.
pub(crate) trait Codec: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(from: &mut &[u8]) -> Result<Self, Malformed>;
}

/// Bytes that are no message or record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

fn cut<'a>(from: &mut &'a [u8], len: usize) -> Result<&'a [u8], Malformed> {
    from.split_off(..len).ok_or(Malformed("it ends too early"))
}

impl Codec for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        Ok(Self::from_le_bytes(cut(from, 8)?.try_into().expect("eight bytes")))
    }
}

impl Codec for u8 {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        Ok(cut(from, 1)?[0])
    }
}

impl Codec for Vec<u8> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        out.extend_from_slice(self);
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        let len = u64::take(from)?;
        Ok(cut(from, usize::try_from(len).map_err(|_| Malformed("a length without end"))?)?.to_vec())
    }
}

/// Items with a count before them.
fn put_all<'a, T: Codec + 'a>(items: impl ExactSizeIterator<Item = &'a T>, out: &mut Vec<u8>) {
    (items.len() as u64).put(out);
    items.for_each(|item| item.put(out));
}

fn take_all<T: Codec>(from: &mut &[u8]) -> Result<Vec<T>, Malformed> {
    let count = u64::take(from)?;
    // Each item has a byte at least, so that a count alone takes no memory.
    if count > from.len() as u64 {
        return Err(Malformed("more items than bytes"));
    }
    (0..count).map(|_| T::take(from)).collect()
}

impl<T: Codec> Codec for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        u8::from(self.is_some()).put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        match u8::take(from)? {
            0 => Ok(None),
            1 => T::take(from).map(Some),
            _ => Err(Malformed("neither something nor nothing")),
        }
    }
}

impl<A: Codec, B: Codec> Codec for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        Ok((A::take(from)?, B::take(from)?))
    }
}

macro_rules! numbers {
    ($($number:ident),*) => { $(
        impl Codec for $number {
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }

            fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
                u64::take(from).map(Self)
            }
        }
    )* };
}

numbers!(MemberId, OpNumber, RoundNumber);

macro_rules! structs {
    ($($name:ident { $($field:ident),* })*) => { $(
        impl Codec for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
                Ok(Self { $($field: Codec::take(from)?),* })
            }
        }
    )* };
}

structs! {
    View { number, leader }
    Lists { members, grown_from }
    Snapshot { op, lists, state }
    Piece { base, entries }
    PieceAt { behind, nonce }
    Stored { view, log_view, snapshot, entries, committed }
}

impl Codec for BTreeSet<MemberId> {
    fn put(&self, out: &mut Vec<u8>) {
        put_all(self.iter(), out);
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        Ok(take_all(from)?.into_iter().collect())
    }
}

macro_rules! lists {
    ($($item:ident),*) => { $(
        impl Codec for Vec<$item> {
            fn put(&self, out: &mut Vec<u8>) {
                put_all(self.iter(), out);
            }

            fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
                take_all(from)
            }
        }
    )* };
}

lists!(MemberId, Entry);

macro_rules! enums {
    ($($name:ident { $($variant:ident = $value:literal $(($($item:ident),*))? $({ $($field:ident),* })?,)* })*) => { $(
        impl Codec for $name {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant $(($($item),*))? $({ $($field),* })? => {
                        out.push($value);
                        $($($item.put(out);)*)?
                        $($($field.put(out);)*)?
                    })*
                }
            }

            fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
                match u8::take(from)? {
                    $($value => Ok(Self::$variant
                        $(({ $(let $item = Codec::take(from)?;)* $($item)* }))?
                        $({ $($field: Codec::take(from)?),* })?),)*
                    _ => Err(Malformed(concat!("no ", stringify!($name), " has this number"))),
                }
            }
        }
    )* };
}

enums! {
    Entry {
        Operation = 1 (bytes),
        Begin = 2,
        Lists = 3 (lists),
    }
    Base {
        Behind = 1 (op),
        Snapshot = 2 (snapshot),
    }
    Record {
        Entered = 1 (view),
        Appended = 2 { behind, entries },
        Committed = 3 (op),
        Whole = 4 (stored),
    }
    Message {
        Wish = 1 { view, heard },
        Support = 2 { view },
        Enter = 3 { view },
        Vote = 4 { view, log_view, end, committed, memory },
        Newer = 5 { view },
        GetLog = 6 { view, behind },
        Log = 7 { view, log_view, piece, committed },
        Prepare = 8 { view, behind, entries, committed },
        Prepared = 9 { view, end },
        Round = 10 { view, round, value, committed, agreed },
        RoundOk = 11 { view, round, end, digest },
        Lead = 12 { view },
        GetMemory = 13 { view, at },
        Memory = 14 { view, at, piece, next },
    }
}

fn whole<T: Codec>(mut bytes: &[u8]) -> Result<T, Malformed> {
    let value = T::take(&mut bytes)?;
    if bytes.is_empty() { Ok(value) } else { Err(Malformed("something stands behind it")) }
}

impl Message {
    /// The message as bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.put(out);
    }

    /// The message that these bytes are.
    ///
    /// # Errors
    /// If they are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        whole(bytes)
    }
}

impl Record {
    /// The record, and the note that stands beside it.
    pub(crate) fn decode(mut bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        Self::take(&mut bytes).map(|record| (record, bytes))
    }
}
