//! The Redis protocol as a load generator needs it: commands as arrays of bulks, and replies of RESP2, which is what a connection speaks
//! that says nothing.

use std::io::Write as _;

use anyhow::{Context, bail, ensure};

/// Arrays in arrays in a reply, at most. No command of a benchmark has more than one.
const DEPTH_MAX: usize = 8;

/// A reply. Its bytes stay where they arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply<'b> {
    Text(&'b [u8]),
    Error(&'b [u8]),
    Number(i64),
    Bulk(&'b [u8]),
    /// A bulk or an array that is not there.
    Nothing,
    List(Vec<Self>),
}

impl<'b> Reply<'b> {
    /// The first reply and its length. `None`: more bytes must come first.
    ///
    /// # Errors
    /// If these bytes begin no reply.
    pub(super) fn first(bytes: &'b [u8]) -> anyhow::Result<Option<(Self, usize)>> {
        Self::nested(bytes, 0)
    }

    fn nested(bytes: &'b [u8], depth: usize) -> anyhow::Result<Option<(Self, usize)>> {
        ensure!(depth <= DEPTH_MAX, "a reply has more than {DEPTH_MAX} arrays in each other");
        let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
        let (Some((kind, line)), body) = (bytes[..end].split_first(), end + 2) else {
            bail!("a reply begins with an empty line");
        };
        Ok(match kind {
            b'+' => Some((Self::Text(line), body)),
            b'-' => Some((Self::Error(line), body)),
            b':' => Some((Self::Number(number(line)?), body)),
            b'$' => match length(line)? {
                None => Some((Self::Nothing, body)),
                Some(length) => Self::bulk(bytes, body, length)?,
            },
            b'*' => match length(line)? {
                None => Some((Self::Nothing, body)),
                Some(count) => Self::list(bytes, body, count, depth)?,
            },
            _ => bail!("no reply begins so: {:?}", String::from_utf8_lossy(&bytes[..end])),
        })
    }

    fn bulk(bytes: &'b [u8], body: usize, length: usize) -> anyhow::Result<Option<(Self, usize)>> {
        let Some(rest) = bytes[body..].get(length..length + 2) else { return Ok(None) };
        ensure!(rest == b"\r\n", "a bulk of {length} bytes has another length");
        Ok(Some((Self::Bulk(&bytes[body..body + length]), body + length + 2)))
    }

    fn list(bytes: &'b [u8], body: usize, count: usize, depth: usize) -> anyhow::Result<Option<(Self, usize)>> {
        let (mut items, mut end) = (Vec::new(), body);
        for _ in 0..count {
            let Some((item, length)) = Self::nested(&bytes[end..], depth + 1)? else { return Ok(None) };
            items.push(item);
            end += length;
        }
        Ok(Some((Self::List(items), end)))
    }
}

fn number(line: &[u8]) -> anyhow::Result<i64> {
    let text = std::str::from_utf8(line).context("a number of a reply is no text")?;
    text.parse().with_context(|| format!("a reply has {text:?} where a number should be"))
}

/// `None`: -1, which stands for what is not there.
fn length(line: &[u8]) -> anyhow::Result<Option<usize>> {
    match number(line)? {
        -1 => Ok(None),
        length => Ok(Some(usize::try_from(length).with_context(|| format!("a reply has the length {length}"))?)),
    }
}

/// The replies of one connection, as their bytes come.
#[derive(Debug, Default)]
pub(super) struct Replies {
    bytes: Vec<u8>,
    /// Before this, all replies were taken.
    taken: usize,
}

impl Replies {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next whole reply, if there is one.
    ///
    /// # Errors
    /// If what comes next is no reply.
    pub(super) fn take(&mut self) -> anyhow::Result<Option<Reply<'_>>> {
        let Some((reply, length)) = Reply::first(&self.bytes[self.taken..])? else { return Ok(None) };
        self.taken += length;
        Ok(Some(reply))
    }

    /// Whether nothing is left: not even a part of a reply.
    pub(super) fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }
}

/// Appends a command.
pub(super) fn command(to: &mut Vec<u8>, parts: &[&[u8]]) {
    write!(to, "*{}\r\n", parts.len()).expect("a vector takes it");
    for part in parts {
        write!(to, "${}\r\n", part.len()).expect("a vector takes it");
        to.extend_from_slice(part);
        to.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[u8] = b"+OK\r\n-ERR no\r\n:-7\r\n$5\r\na\r\nb\0\r\n$-1\r\n$0\r\n\r\n*-1\r\n*0\r\n*3\r\n+QUEUED\r\n*1\r\n:1\r\n$1\r\nv\r\n";

    fn all() -> Vec<Reply<'static>> {
        let inner = Reply::List(vec![Reply::Number(1)]);
        vec![
            Reply::Text(b"OK"),
            Reply::Error(b"ERR no"),
            Reply::Number(-7),
            Reply::Bulk(b"a\r\nb\0"),
            Reply::Nothing,
            Reply::Bulk(b""),
            Reply::Nothing,
            Reply::List(Vec::new()),
            Reply::List(vec![Reply::Text(b"QUEUED"), inner, Reply::Bulk(b"v")]),
        ]
    }

    /// Replies that come in pieces of so many bytes.
    fn in_pieces(bytes: usize) -> Vec<String> {
        let (mut replies, mut seen) = (Replies::default(), Vec::new());
        for piece in ALL.chunks(bytes) {
            replies.add(piece);
            while let Some(reply) = replies.take().unwrap() {
                seen.push(format!("{reply:?}"));
            }
        }
        assert!(replies.is_empty());
        seen
    }

    #[test]
    fn replies_are_the_same_in_whatever_pieces_they_come() {
        let whole: Vec<String> = all().iter().map(|reply| format!("{reply:?}")).collect();
        for bytes in 1..=ALL.len() {
            assert_eq!(in_pieces(bytes), whole, "in pieces of {bytes} bytes");
        }
    }

    #[test]
    fn a_part_of_a_reply_is_none() {
        let mut replies = Replies::default();
        for part in [&b""[..], b"$5", b"\r\nab", b"cde\r"] {
            replies.add(part);
            assert_eq!(replies.take().unwrap(), None, "{part:?}");
        }
        assert!(!replies.is_empty());
        replies.add(b"\n");
        assert_eq!(replies.take().unwrap(), Some(Reply::Bulk(b"abcde")));
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        let deep = b"*1\r\n".repeat(DEPTH_MAX + 2);
        for wrong in [
            &b"\r\n"[..],
            b"OK\r\n",
            b"%1\r\n",
            b":\r\n",
            b":1x\r\n",
            b"$-2\r\n",
            b"*-2\r\n",
            b"$1\r\nab\r\n",
            b"*1\r\nOK\r\n",
            b":\xff\r\n",
            &deep,
        ] {
            assert!(Reply::first(wrong).is_err(), "{:?}", String::from_utf8_lossy(wrong));
        }
    }

    #[test]
    fn a_command_is_an_array_of_bulks() {
        let mut bytes = Vec::new();
        command(&mut bytes, &[b"SET", b"key", b""]);
        assert_eq!(bytes, b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$0\r\n\r\n");
        let parts = Reply::List([&b"SET"[..], b"key", b""].map(Reply::Bulk).into());
        assert_eq!(Reply::first(&bytes).unwrap(), Some((parts, bytes.len())), "and reads as a reply does");
    }
}
