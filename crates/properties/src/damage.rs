//! Damage: the changes that bytes may suffer on their way to a file, in the file, and on a connection.

use arbitrary::{Arbitrary, Result, Unstructured};

use crate::draw;

/// A change of some bytes. Places are taken modulo the length.
#[derive(Clone, Debug)]
pub(crate) enum Damage {
    Flip {
        at: u32,
        bit: u8,
    },
    Set {
        at: u32,
        byte: u8,
    },
    /// Four bytes, such as an invented count or length.
    Word {
        at: u32,
        word: u32,
    },
    Cut {
        at: u32,
    },
    Extend {
        len: u8,
        byte: u8,
    },
    Remove {
        at: u32,
    },
    Insert {
        at: u32,
        byte: u8,
    },
    /// A page that never reached the file.
    Zero {
        at: u32,
        len: u16,
    },
}

impl<'a> Arbitrary<'a> for Damage {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let kind = draw::weighted(u, &[3, 2, 2, 2, 1, 1, 1, 1])?;
        let at = u.arbitrary()?;
        Ok(match kind {
            0 => Self::Flip { at, bit: u.int_in_range(0..=7)? },
            1 => Self::Set { at, byte: u.arbitrary()? },
            2 => Self::Word { at, word: *u.choose(&[u32::MAX, 1 << 31, 1 << 24, 4096, 1000, 17, 1, 0])? },
            3 => Self::Cut { at },
            4 => Self::Extend { len: u.arbitrary()?, byte: u.arbitrary()? },
            5 => Self::Remove { at },
            6 => Self::Insert { at, byte: u.arbitrary()? },
            _ => Self::Zero { at, len: u.arbitrary()? },
        })
    }
}

impl Damage {
    pub(crate) fn apply(&self, bytes: &mut Vec<u8>) {
        let len = bytes.len();
        let place = |at: u32, len: usize| at as usize % len.max(1);
        match *self {
            Self::Extend { len: more, byte } => bytes.resize(len + usize::from(more), byte),
            Self::Insert { at, byte } => bytes.insert(place(at, len + 1), byte),
            _ if len == 0 => {}
            Self::Flip { at, bit } => bytes[place(at, len)] ^= 1 << bit,
            Self::Set { at, byte } => bytes[place(at, len)] = byte,
            Self::Word { at, word } => {
                let at = place(at, len);
                let end = len.min(at + 4);
                bytes[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
            }
            Self::Cut { at } => bytes.truncate(place(at, len)),
            Self::Remove { at } => drop(bytes.remove(place(at, len))),
            Self::Zero { at, len: zeros } => {
                let at = place(at, len);
                bytes[at..len.min(at + usize::from(zeros))].fill(0);
            }
        }
    }
}

/// Damage that a checksum of 32 bits detects for certain: a run of at most 32 bits, within four bytes. A fuzzer that
/// may change more finds bytes that make a wrong checksum right, which proves nothing.
#[derive(Clone, Copy, Debug, Arbitrary)]
pub(crate) struct Burst {
    at: u32,
    mask: [u8; 4],
}

impl Burst {
    /// Changes some of `bytes`. Returns the first position that differs, if there is one.
    pub(crate) fn apply(self, bytes: &mut [u8]) -> Option<usize> {
        if bytes.is_empty() {
            return None;
        }
        let at = self.at as usize % bytes.len();
        bytes[at..].iter_mut().zip(self.mask).for_each(|(byte, mask)| *byte ^= mask);
        self.mask.iter().position(|&mask| mask != 0).map(|first| at + first).filter(|&first| first < bytes.len())
    }
}
