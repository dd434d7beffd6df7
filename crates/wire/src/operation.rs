//! Operations and their arguments.
//!
//! A key is a `u16` length and its bytes; a value is a `u32` length and its bytes; a list begins with a `u32` count.
//!
//! | code | update | arguments |
//! |---|---|---|
//! | 1 | put | key, value |
//! | 2 | put-if-version | key, version `u64`, value |
//! | 3 | put-if-absent | key, value |
//! | 4 | delete | key |
//! | 5 | delete-if-version | key, version `u64` |
//! | 6 | increment | key, delta `i64` |
//! | 7 | append | key, value |
//! | 16 | multi-put | count, (key, value)… |
//! | 17 | multi-delete | count, key… |
//! | 18 | multi-increment | count, (key, delta)… |
//! | 64, 65, 80 | reads: get, exists, multi-get | key; key; count, key… |

use kasha_types::limits::{KEY_BYTES_MAX, OPERATION_KEYS_MAX, VALUE_BYTES_MAX};

use crate::{DecodeError, Reader};

/// An operation that changes something, or may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the table above says what each has")]
pub enum Update<'a> {
    Put { key: &'a [u8], value: &'a [u8] },
    PutIfVersion { key: &'a [u8], version: u64, value: &'a [u8] },
    PutIfAbsent { key: &'a [u8], value: &'a [u8] },
    Delete { key: &'a [u8] },
    DeleteIfVersion { key: &'a [u8], version: u64 },
    Increment { key: &'a [u8], delta: i64 },
    Append { key: &'a [u8], value: &'a [u8] },
    MultiPut(Items<'a>),
    MultiDelete(Items<'a>),
    MultiIncrement(Items<'a>),
}

/// An operation that changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the table above says what each has")]
pub enum Read<'a> {
    Get { key: &'a [u8] },
    Exists { key: &'a [u8] },
    MultiGet(Items<'a>),
}

/// What the items of a list hold beside their key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemKind {
    Key,
    KeyValue,
    KeyDelta,
}

/// One item of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value, empty where the list has none.
    pub value: &'a [u8],
    /// The delta, 0 where the list has none.
    pub delta: i64,
}

/// A list of items, still encoded; checked, so that going through it cannot fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Items<'a> {
    kind: ItemKind,
    count: u32,
    bytes: &'a [u8],
}

fn take_key<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let len = reader.take::<u16>()?;
    if usize::from(len) > KEY_BYTES_MAX {
        return Err(DecodeError::TooLarge("a key"));
    }
    reader.bytes(usize::from(len))
}

fn take_value<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let len = reader.take::<u32>()? as usize;
    if len > VALUE_BYTES_MAX {
        return Err(DecodeError::TooLarge("a value"));
    }
    reader.bytes(len)
}

fn put_key(key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&u16::try_from(key.len()).expect("the client checks the limit").to_le_bytes());
    out.extend_from_slice(key);
}

fn put_value(value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&u32::try_from(value.len()).expect("the client checks the limit").to_le_bytes());
    out.extend_from_slice(value);
}

fn take_item<'a>(reader: &mut Reader<'a>, kind: ItemKind) -> Result<Item<'a>, DecodeError> {
    let key = take_key(reader)?;
    Ok(match kind {
        ItemKind::Key => Item { key, value: &[], delta: 0 },
        ItemKind::KeyValue => Item { key, value: take_value(reader)?, delta: 0 },
        ItemKind::KeyDelta => Item { key, value: &[], delta: reader.take()? },
    })
}

impl<'a> Items<'a> {
    fn decode(kind: ItemKind, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let count = reader.take::<u32>()?;
        if count == 0 {
            return Err(DecodeError::Invalid("an operation without keys"));
        }
        if count as usize > OPERATION_KEYS_MAX {
            return Err(DecodeError::TooLarge("the number of keys"));
        }
        let bytes = reader.rest();
        for _ in 0..count {
            take_item(reader, kind)?;
        }
        Ok(Self { kind, count, bytes: &bytes[..bytes.len() - reader.rest().len()] })
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Each item, in order.
    pub fn iter(&self) -> impl Iterator<Item = Item<'a>> + use<'a> {
        let (mut reader, kind) = (Reader::new(self.bytes), self.kind);
        (0..self.count).map(move |_| take_item(&mut reader, kind).expect("checked when decoded"))
    }

    fn encode(&self, kind: ItemKind, out: &mut Vec<u8>) {
        assert_eq!(self.kind, kind, "a list of another operation");
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(self.bytes);
    }
}

/// Builds the list of an operation on several keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemsBuffer {
    kind: ItemKind,
    count: u32,
    bytes: Vec<u8>,
}

impl ItemsBuffer {
    fn new(kind: ItemKind) -> Self {
        Self { kind, count: 0, bytes: Vec::new() }
    }

    /// Keys alone: [`Update::MultiDelete`] and [`Read::MultiGet`].
    pub fn keys<'k>(keys: impl IntoIterator<Item = &'k [u8]>) -> Self {
        let mut buffer = Self::new(ItemKind::Key);
        for key in keys {
            buffer.count += 1;
            put_key(key, &mut buffer.bytes);
        }
        buffer
    }

    /// Keys with values: [`Update::MultiPut`].
    pub fn pairs<'k>(pairs: impl IntoIterator<Item = (&'k [u8], &'k [u8])>) -> Self {
        let mut buffer = Self::new(ItemKind::KeyValue);
        for (key, value) in pairs {
            buffer.count += 1;
            put_key(key, &mut buffer.bytes);
            put_value(value, &mut buffer.bytes);
        }
        buffer
    }

    /// Keys with deltas: [`Update::MultiIncrement`].
    pub fn deltas<'k>(deltas: impl IntoIterator<Item = (&'k [u8], i64)>) -> Self {
        let mut buffer = Self::new(ItemKind::KeyDelta);
        for (key, delta) in deltas {
            buffer.count += 1;
            put_key(key, &mut buffer.bytes);
            buffer.bytes.extend_from_slice(&delta.to_le_bytes());
        }
        buffer
    }

    /// The list, as an operation's argument.
    #[must_use]
    pub fn as_items(&self) -> Items<'_> {
        Items { kind: self.kind, count: self.count, bytes: &self.bytes }
    }
}

impl<'a> Update<'a> {
    /// Its number in the table above.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::Put { .. } => 1,
            Self::PutIfVersion { .. } => 2,
            Self::PutIfAbsent { .. } => 3,
            Self::Delete { .. } => 4,
            Self::DeleteIfVersion { .. } => 5,
            Self::Increment { .. } => 6,
            Self::Append { .. } => 7,
            Self::MultiPut(_) => 16,
            Self::MultiDelete(_) => 17,
            Self::MultiIncrement(_) => 18,
        }
    }

    /// Decodes the arguments of the update with this code; they must fill `bytes`.
    ///
    /// # Errors
    /// If they do not, or exceed a limit.
    pub fn decode(code: u8, bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let r = &mut reader;
        let update = match code {
            1 => Self::Put { key: take_key(r)?, value: take_value(r)? },
            2 => Self::PutIfVersion { key: take_key(r)?, version: r.take()?, value: take_value(r)? },
            3 => Self::PutIfAbsent { key: take_key(r)?, value: take_value(r)? },
            4 => Self::Delete { key: take_key(r)? },
            5 => Self::DeleteIfVersion { key: take_key(r)?, version: r.take()? },
            6 => Self::Increment { key: take_key(r)?, delta: r.take()? },
            7 => Self::Append { key: take_key(r)?, value: take_value(r)? },
            16 => Self::MultiPut(Items::decode(ItemKind::KeyValue, r)?),
            17 => Self::MultiDelete(Items::decode(ItemKind::Key, r)?),
            18 => Self::MultiIncrement(Items::decode(ItemKind::KeyDelta, r)?),
            _ => return Err(DecodeError::Invalid("an update's code")),
        };
        reader.finish()?;
        Ok(update)
    }

    /// Encodes the arguments at the end of `out`.
    ///
    /// # Panics
    /// If its list is one of another operation: pairs for a multi-delete, for instance.
    pub fn encode_arguments(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Put { key, value } | Self::PutIfAbsent { key, value } | Self::Append { key, value } => {
                put_key(key, out);
                put_value(value, out);
            }
            Self::PutIfVersion { key, version, value } => {
                put_key(key, out);
                out.extend_from_slice(&version.to_le_bytes());
                put_value(value, out);
            }
            Self::Delete { key } => put_key(key, out),
            Self::DeleteIfVersion { key, version } => {
                put_key(key, out);
                out.extend_from_slice(&version.to_le_bytes());
            }
            Self::Increment { key, delta } => {
                put_key(key, out);
                out.extend_from_slice(&delta.to_le_bytes());
            }
            Self::MultiPut(items) => items.encode(ItemKind::KeyValue, out),
            Self::MultiDelete(items) => items.encode(ItemKind::Key, out),
            Self::MultiIncrement(items) => items.encode(ItemKind::KeyDelta, out),
        }
    }

    /// Calls `each` with every key, in order.
    pub fn for_each_key(&self, mut each: impl FnMut(&'a [u8])) {
        match *self {
            Self::Put { key, .. }
            | Self::PutIfVersion { key, .. }
            | Self::PutIfAbsent { key, .. }
            | Self::Delete { key }
            | Self::DeleteIfVersion { key, .. }
            | Self::Increment { key, .. }
            | Self::Append { key, .. } => each(key),
            Self::MultiPut(items) | Self::MultiDelete(items) | Self::MultiIncrement(items) => {
                items.iter().for_each(|item| each(item.key));
            }
        }
    }

    /// Whether it can only give memory back: it may use the reserve when memory is full (section 5).
    #[must_use]
    pub fn only_frees(&self) -> bool {
        match self {
            Self::Delete { .. } | Self::DeleteIfVersion { .. } | Self::MultiDelete(_) => true,
            Self::Put { .. }
            | Self::PutIfVersion { .. }
            | Self::PutIfAbsent { .. }
            | Self::Increment { .. }
            | Self::Append { .. }
            | Self::MultiPut(_)
            | Self::MultiIncrement(_) => false,
        }
    }
}

impl<'a> Read<'a> {
    /// Its number in the table above.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::Get { .. } => 64,
            Self::Exists { .. } => 65,
            Self::MultiGet(_) => 80,
        }
    }

    /// Decodes the arguments of the read with this code; they must fill `bytes`.
    ///
    /// # Errors
    /// If they do not, or exceed a limit.
    pub fn decode(code: u8, bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let read = match code {
            64 => Self::Get { key: take_key(&mut reader)? },
            65 => Self::Exists { key: take_key(&mut reader)? },
            80 => Self::MultiGet(Items::decode(ItemKind::Key, &mut reader)?),
            _ => return Err(DecodeError::Invalid("a read's code")),
        };
        reader.finish()?;
        Ok(read)
    }

    /// Encodes the arguments at the end of `out`.
    ///
    /// # Panics
    /// If its list is one of another operation: pairs for a multi-delete, for instance.
    pub fn encode_arguments(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Get { key } | Self::Exists { key } => put_key(key, out),
            Self::MultiGet(items) => items.encode(ItemKind::Key, out),
        }
    }

    /// Calls `each` with every key, in order.
    pub fn for_each_key(&self, mut each: impl FnMut(&'a [u8])) {
        match *self {
            Self::Get { key } | Self::Exists { key } => each(key),
            Self::MultiGet(items) => items.iter().for_each(|item| each(item.key)),
        }
    }
}
