//! What a command answers, in a form without a protocol (**R10.4**).
//!
//! A reply is one item, and the items in it stand behind it. Each item is a byte that names its kind, and what the kind has:
//!
//! | byte | kind | behind it |
//! |---|---|---|
//! | 0 | nothing | |
//! | 1 | no list: what Redis answers with where a list was to be expected | |
//! | 2 | OK | |
//! | 3 | a word, such as a state or a type | `u32` length, UTF-8 |
//! | 4 | an error: its code in capital letters, then a text | `u32` length, UTF-8 |
//! | 5 | a number | `i64` |
//! | 6 | bytes | `u32` length, bytes |
//! | 7 | a text for people | `u32` length, UTF-8 |
//! | 8 | a list | `u32` count; so many replies |
//! | 9 | a set | `u32` count; so many replies |
//! | 10 | a map | `u32` count; so many times two replies, a key and its value |
//!
//! Numbers are little-endian. Words, errors and texts have no line ends.

/// Lists within lists, at most, in a reply that [`check`] accepts.
pub const DEPTH_MAX: usize = 8;

/// One item of a reply. Of a list, set or map: how much follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// Nothing.
    Nil,
    /// No list.
    NoList,
    /// OK.
    Ok,
    /// A word.
    Word(&'a str),
    /// An error.
    Error(&'a str),
    /// A number.
    Number(i64),
    /// Bytes.
    Bytes(&'a [u8]),
    /// A text for people.
    Text(&'a str),
    /// A list of so many replies.
    List(u32),
    /// A set of so many replies.
    Set(u32),
    /// A map of so many keys, each with its value.
    Map(u32),
}

impl Item<'_> {
    /// Replies that belong to this one.
    fn children(self) -> u64 {
        match self {
            Self::List(count) | Self::Set(count) => u64::from(count),
            Self::Map(count) => 2 * u64::from(count),
            Self::Nil
            | Self::NoList
            | Self::Ok
            | Self::Word(_)
            | Self::Error(_)
            | Self::Number(_)
            | Self::Bytes(_)
            | Self::Text(_) => 0,
        }
    }
}

/// Writes a reply, item by item, behind what is there.
#[derive(Debug)]
pub struct ReplyWriter<'o>(pub &'o mut Vec<u8>);

impl ReplyWriter<'_> {
    /// Writes one item.
    ///
    /// # Panics
    /// If it is longer than 4 GiB.
    pub fn item(&mut self, item: Item<'_>) {
        match item {
            Item::Nil => self.0.push(0),
            Item::NoList => self.0.push(1),
            Item::Ok => self.0.push(2),
            Item::Word(word) => self.line(3, word),
            Item::Error(text) => self.line(4, text),
            Item::Number(number) => {
                self.0.push(5);
                self.0.extend_from_slice(&number.to_le_bytes());
            }
            Item::Bytes(bytes) => self.bytes(6, bytes),
            Item::Text(text) => self.bytes(7, text.as_bytes()),
            Item::List(count) => self.count(8, count),
            Item::Set(count) => self.count(9, count),
            Item::Map(count) => self.count(10, count),
        }
    }

    /// Writes bytes that lie in two places.
    ///
    /// # Panics
    /// If they are longer than 4 GiB.
    pub fn bytes_in(&mut self, pieces: [&[u8]; 2]) {
        self.count(6, u32::try_from(pieces[0].len() + pieces[1].len()).expect("a reply is shorter than 4 GiB"));
        pieces.iter().for_each(|piece| self.0.extend_from_slice(piece));
    }

    /// Writes a list of words or names.
    pub fn each<'a>(&mut self, list: Item<'_>, items: impl IntoIterator<Item = Item<'a>>) {
        self.item(list);
        for item in items {
            self.item(item);
        }
    }

    /// A text of one line: a line end becomes a space, as Redis has it.
    fn line(&mut self, kind: u8, text: &str) {
        let begin = self.0.len() + 1 + size_of::<u32>();
        self.bytes(kind, text.as_bytes());
        for byte in &mut self.0[begin..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
    }

    fn count(&mut self, kind: u8, count: u32) {
        self.0.push(kind);
        self.0.extend_from_slice(&count.to_le_bytes());
    }

    fn bytes(&mut self, kind: u8, bytes: &[u8]) {
        self.count(kind, u32::try_from(bytes.len()).expect("a reply is shorter than 4 GiB"));
        self.0.extend_from_slice(bytes);
    }
}

/// Why bytes are no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadReply {
    /// They end within an item, or before a list has all of its replies.
    Truncated,
    /// There is no such kind.
    Kind(u8),
    /// A word, an error or a text is no UTF-8, or has a line end.
    Text,
    /// Lists are nested deeper than [`DEPTH_MAX`].
    Depth,
    /// Something stands behind the reply.
    Trailing,
}

/// The items of encoded replies, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Items<'a>(&'a [u8]);

impl<'a> Items<'a> {
    /// Those in these bytes.
    #[must_use]
    pub const fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], BadReply> {
        let (first, rest) = self.0.split_first_chunk().ok_or(BadReply::Truncated)?;
        self.0 = rest;
        Ok(*first)
    }

    fn count(&mut self) -> Result<u32, BadReply> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn bytes(&mut self) -> Result<&'a [u8], BadReply> {
        let len = self.count()? as usize;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(BadReply::Truncated)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn text(&mut self) -> Result<&'a str, BadReply> {
        std::str::from_utf8(self.bytes()?).map_err(|_| BadReply::Text)
    }

    fn line(&mut self) -> Result<&'a str, BadReply> {
        let text = self.text()?;
        if text.contains(['\r', '\n']) { Err(BadReply::Text) } else { Ok(text) }
    }

    fn item(&mut self) -> Result<Item<'a>, BadReply> {
        let [kind] = self.take()?;
        Ok(match kind {
            0 => Item::Nil,
            1 => Item::NoList,
            2 => Item::Ok,
            3 => Item::Word(self.line()?),
            4 => Item::Error(self.line()?),
            5 => Item::Number(i64::from_le_bytes(self.take()?)),
            6 => Item::Bytes(self.bytes()?),
            7 => Item::Text(self.text()?),
            8 => Item::List(self.count()?),
            9 => Item::Set(self.count()?),
            10 => Item::Map(self.count()?),
            kind => return Err(BadReply::Kind(kind)),
        })
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<Item<'a>, BadReply>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let item = self.item();
        if item.is_err() {
            self.0 = &[];
        }
        Some(item)
    }
}

/// Checks that bytes are exactly one reply.
///
/// # Errors
/// What is wrong with them first.
pub fn check(bytes: &[u8]) -> Result<(), BadReply> {
    let mut items = Items::of(bytes);
    let mut children = items.item()?.children();
    // How many replies each list still lacks, from the outside in; the whole is one. What is no list, as most replies, takes no memory.
    let mut lacking = if children > 0 { vec![0, children] } else { Vec::new() };
    while let Some(top) = lacking.last_mut() {
        if *top == 0 {
            lacking.pop();
            continue;
        }
        *top -= 1;
        children = items.item()?.children();
        if children > 0 {
            if lacking.len() > DEPTH_MAX {
                return Err(BadReply::Depth);
            }
            lacking.push(children);
        }
    }
    if items.0.is_empty() { Ok(()) } else { Err(BadReply::Trailing) }
}
