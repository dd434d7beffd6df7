//! The Redis protocol, as servers write it: a reply of a command ([`kasha_commands::reply`]) in the protocol that its connection speaks.
//!
//! Which one that is does not matter before the reply is written (**R10.4**): what a record keeps of a command can be told to a connection that
//! has changed its protocol meanwhile.

use kasha_commands::{Item, Items};

/// A version of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// The one with which each connection begins.
    #[default]
    Resp2,
    /// The one that `HELLO 3` chooses: it has sets, maps, and a nothing of its own.
    Resp3,
}

impl Protocol {
    /// The protocol with the number that `HELLO` takes.
    #[must_use]
    pub fn from_number(number: i64) -> Option<Self> {
        match number {
            2 => Some(Self::Resp2),
            3 => Some(Self::Resp3),
            _ => None,
        }
    }

    /// The number that `HELLO` takes.
    #[must_use]
    pub fn number(self) -> i64 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// Writes encoded replies, one behind the other.
///
/// # Panics
/// If the bytes are none: whoever takes replies from others checks them ([`kasha_commands::reply::check`]).
pub fn write(replies: &[u8], protocol: Protocol, out: &mut Vec<u8>) {
    for item in Items::of(replies) {
        write_item(item.expect("checked"), protocol, out);
    }
}

fn write_item(item: Item<'_>, protocol: Protocol, out: &mut Vec<u8>) {
    let is_new = protocol == Protocol::Resp3;
    match item {
        Item::Nil | Item::NoList if is_new => out.extend_from_slice(b"_\r\n"),
        Item::Nil => out.extend_from_slice(b"$-1\r\n"),
        Item::NoList => out.extend_from_slice(b"*-1\r\n"),
        Item::Ok => out.extend_from_slice(b"+OK\r\n"),
        Item::Word(word) => line(b'+', word.as_bytes(), out),
        Item::Error(text) => line(b'-', text.as_bytes(), out),
        Item::Number(number) => number_line(b':', number, out),
        Item::Bytes(bytes) => bulk(&[bytes], out),
        Item::Text(text) if is_new => {
            number_line(b'=', len(b"txt:".len() + text.len()), out);
            out.extend_from_slice(b"txt:");
            out.extend_from_slice(text.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        Item::Text(text) => bulk(&[text.as_bytes()], out),
        Item::List(count) => number_line(b'*', i64::from(count), out),
        Item::Set(count) => number_line(if is_new { b'~' } else { b'*' }, i64::from(count), out),
        Item::Map(count) if is_new => number_line(b'%', i64::from(count), out),
        Item::Map(count) => number_line(b'*', 2 * i64::from(count), out),
    }
}

fn len(bytes: usize) -> i64 {
    i64::try_from(bytes).expect("it is in memory")
}

fn line(kind: u8, text: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

fn number_line(kind: u8, number: i64, out: &mut Vec<u8>) {
    let mut digits = itoa::Buffer::new();
    line(kind, digits.format(number).as_bytes(), out);
}

fn bulk(pieces: &[&[u8]], out: &mut Vec<u8>) {
    number_line(b'$', pieces.iter().map(|piece| len(piece.len())).sum(), out);
    for piece in pieces {
        out.extend_from_slice(piece);
    }
    out.extend_from_slice(b"\r\n");
}
