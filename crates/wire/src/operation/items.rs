//! Keys, values and lists of them, as operations carry them: a key is a `u16` length and its bytes; a value is a `u32` length
//! and its bytes; a list begins with a `u32` count.

use kasha_types::limits::{KEY_BYTES_MAX, OPERATION_KEYS_MAX, VALUE_BYTES_MAX};

use crate::{DecodeError, Reader};

/// What the items of a list hold beside their key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// A key alone.
    Key,
    /// A key and a value.
    KeyValue,
    /// A key and a delta, which is added to its number.
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

pub(super) fn take_key<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let len = reader.take::<u16>()?;
    if usize::from(len) > KEY_BYTES_MAX {
        return Err(DecodeError::TooLarge("a key"));
    }
    reader.bytes(usize::from(len))
}

pub(super) fn take_value<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let len = reader.take::<u32>()? as usize;
    if len > VALUE_BYTES_MAX {
        return Err(DecodeError::TooLarge("a value"));
    }
    reader.bytes(len)
}

pub(super) fn put_key(key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&u16::try_from(key.len()).expect("the client checks the limit").to_le_bytes());
    out.extend_from_slice(key);
}

pub(super) fn put_value(value: &[u8], out: &mut Vec<u8>) {
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
    pub(super) fn decode(kind: ItemKind, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
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

    /// The number of items.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether a value exceeds its limit, which no decoded list's does: then nobody can go through the list.
    pub(super) fn holds_too_much(&self) -> bool {
        let mut reader = Reader::new(self.bytes);
        (0..self.count).any(|_| take_item(&mut reader, self.kind).is_err())
    }

    /// Each item, in order.
    ///
    /// # Panics
    /// If a value exceeds its limit: see the operation's `check_limits`.
    pub fn iter(&self) -> impl Iterator<Item = Item<'a>> + use<'a> {
        let (mut reader, kind) = (Reader::new(self.bytes), self.kind);
        (0..self.count).map(move |_| take_item(&mut reader, kind).expect("checked when decoded"))
    }

    pub(super) fn encode(&self, kind: ItemKind, out: &mut Vec<u8>) {
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
    /// An empty list, which no operation takes.
    #[must_use]
    pub fn new(kind: ItemKind) -> Self {
        Self { kind, count: 0, bytes: Vec::new() }
    }

    /// One more item; what its list does not hold is left out.
    pub fn push(&mut self, item: &Item<'_>) {
        self.count += 1;
        put_key(item.key, &mut self.bytes);
        match self.kind {
            ItemKind::Key => {}
            ItemKind::KeyValue => put_value(item.value, &mut self.bytes),
            ItemKind::KeyDelta => self.bytes.extend_from_slice(&item.delta.to_le_bytes()),
        }
    }

    fn all<'k>(kind: ItemKind, items: impl Iterator<Item = Item<'k>>) -> Self {
        let mut buffer = Self::new(kind);
        items.for_each(|item| buffer.push(&item));
        buffer
    }

    /// A list of keys alone.
    pub fn keys<'k>(keys: impl IntoIterator<Item = &'k [u8]>) -> Self {
        Self::all(ItemKind::Key, keys.into_iter().map(|key| Item { key, value: &[], delta: 0 }))
    }

    /// Keys with values.
    pub fn pairs<'k>(pairs: impl IntoIterator<Item = (&'k [u8], &'k [u8])>) -> Self {
        Self::all(ItemKind::KeyValue, pairs.into_iter().map(|(key, value)| Item { key, value, delta: 0 }))
    }

    /// Keys with deltas.
    pub fn deltas<'k>(deltas: impl IntoIterator<Item = (&'k [u8], i64)>) -> Self {
        Self::all(ItemKind::KeyDelta, deltas.into_iter().map(|(key, delta)| Item { key, value: &[], delta }))
    }

    /// The list, as an operation's argument.
    #[must_use]
    pub fn as_items(&self) -> Items<'_> {
        Items { kind: self.kind, count: self.count, bytes: &self.bytes }
    }
}
