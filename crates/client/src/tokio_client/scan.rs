//! Listing a table's keys, alone or with their values.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use kasha_types::TableId;
use kasha_types::limits::KEY_BYTES_MAX;
use kasha_wire::operation::ScanCursor;
use kasha_wire::outcome::ScannedPage;
use kasha_wire::{Outcome, Read};

use super::{Error, Table, Value};
use crate::session::{WhyFailed, WhyNot};

/// Keys of a page, unless told otherwise.
const PAGE: u32 = 128;

/// A listing of a table's keys, page after page. It is no snapshot: each key that has a value from the first call to the last comes
/// exactly once, whatever fails meanwhile; a key that comes or goes meanwhile may come or not. What comes is durable.
///
/// It lists keys, or after [`Scan::values`] keys with their values: each value as it was when its page was made.
#[derive(Debug)]
#[must_use = "nothing is listed until it is asked for"]
pub struct Scan<T = ScannedKey> {
    table: Table,
    prefix: Vec<u8>,
    next: Option<ScanCursor>,
    page: u32,
    deadline: Option<Duration>,
    keys: VecDeque<T>,
}

/// What a listing lists: [`ScannedKey`] or [`ScannedValue`].
pub trait Listed: Sized + private::FromPage {}

mod private {
    use kasha_wire::operation::ScanCursor;
    use kasha_wire::{Outcome, Read};

    use super::ScannedPage;

    /// How a page of it is asked for, and what the answer is.
    pub trait FromPage: Sized + Send + 'static {
        fn read(cursor: ScanCursor, most: u32, prefix: &[u8]) -> Read<'_>;
        fn page_of(outcome: Outcome) -> Option<ScannedPage<Self>>;
    }
}

/// A key that a listing has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedKey {
    /// The key's bytes.
    pub key: Vec<u8>,
    /// The key's version when its page was made.
    pub version: u64,
}

/// A key that a listing has found, and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedValue {
    /// The key's bytes.
    pub key: Vec<u8>,
    /// The key's version and value when its page was made.
    pub value: Value,
}

impl Listed for ScannedKey {}

impl private::FromPage for ScannedKey {
    fn read(cursor: ScanCursor, most: u32, prefix: &[u8]) -> Read<'_> {
        Read::Scan { cursor, most, prefix }
    }

    fn page_of(outcome: Outcome) -> Option<ScannedPage<Self>> {
        let ScannedPage { next, in_shard, keys } = keys_of(outcome)?;
        let keys = keys.into_iter().map(|(version, key)| Self { key, version }).collect();
        Some(ScannedPage { next, in_shard, keys })
    }
}

impl Listed for ScannedValue {}

impl private::FromPage for ScannedValue {
    fn read(cursor: ScanCursor, most: u32, prefix: &[u8]) -> Read<'_> {
        Read::ScanValues { cursor, most, prefix }
    }

    fn page_of(outcome: Outcome) -> Option<ScannedPage<Self>> {
        match outcome {
            Outcome::KeysAndValues(ScannedPage { next, in_shard, keys }) => {
                let listed = |(version, key, bytes)| Self { key, value: Value { version, bytes } };
                Some(ScannedPage { next, in_shard, keys: keys.into_iter().map(listed).collect() })
            }
            _ => None,
        }
    }
}

/// Where a listing goes on: a text that another process may use, at any later time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    table: TableId,
    at: ScanCursor,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.table.0, self.at.number())
    }
}

/// A text is no cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no cursor: give the one that the page before ended with (K0320)")]
pub struct NoCursor;

impl FromStr for Cursor {
    type Err = NoCursor;

    fn from_str(text: &str) -> Result<Self, NoCursor> {
        let (table, at) = text.split_once('-').ok_or(NoCursor)?;
        let at = at.parse().ok().and_then(ScanCursor::from_number).ok_or(NoCursor)?;
        Ok(Self { table: TableId(table.parse().map_err(|_| NoCursor)?), at })
    }
}

fn keys_of(outcome: Outcome) -> Option<ScannedPage> {
    match outcome {
        Outcome::Keys(page) => Some(page),
        _ => None,
    }
}

impl Table {
    /// A listing of the table's keys, from the beginning.
    pub fn scan(&self) -> Scan {
        let (prefix, next, keys) = (Vec::new(), Some(ScanCursor::START), VecDeque::new());
        Scan { table: self.clone(), prefix, next, page: PAGE, deadline: None, keys }
    }

    /// How many keys of the table have a value. The shards are asked one after the other, so it is no number of one moment while
    /// keys come and go.
    ///
    /// # Errors
    /// If a shard does not answer.
    pub async fn count(&self) -> Result<u64, Error> {
        let (mut next, mut count) = (Some(ScanCursor::START), 0);
        while let Some(cursor) = next {
            let page = self.read(&Read::Scan { cursor, most: 0, prefix: b"" }, keys_of).await?;
            (next, count) = (page.next, count + page.in_shard);
        }
        Ok(count)
    }
}

impl Scan {
    /// Lists each key with its value, too: from where the listing is, without keys of a page that [`Self::next_key`] has not returned
    /// yet. A page has about 64 KiB of keys and values, and one value more.
    pub fn values(self) -> Scan<ScannedValue> {
        let Self { table, prefix, next, page, deadline, keys: _ } = self;
        Scan { table, prefix, next, page, deadline, keys: VecDeque::new() }
    }
}

impl<T: Listed> Scan<T> {
    /// Only keys that begin with these bytes. All keys are looked at.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.prefix = prefix.as_ref().to_vec();
        self
    }

    /// Goes on where another listing of the same table was.
    ///
    /// # Errors
    /// [`WhyNot::Cursor`] if the cursor is of another table, or of one that was dropped.
    pub fn resume(mut self, cursor: Cursor) -> Result<Self, Error> {
        if cursor.table != self.table.id() {
            return Err(Error::Failed(WhyFailed::NotPossible(WhyNot::Cursor)));
        }
        self.next = Some(cursor.at);
        Ok(self)
    }

    /// About how many keys are asked for at once. A page may have fewer, or none, and not be the last.
    pub fn page(mut self, keys: u32) -> Self {
        self.page = keys.max(1);
        self
    }

    /// How long to wait for each page.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Where the listing goes on after the last page; `None`: it is at its end. Keys of that page that [`Self::next_key`] has not returned
    /// yet lie before it.
    #[must_use]
    pub fn cursor(&self) -> Option<Cursor> {
        self.next.map(|at| Cursor { table: self.table.id(), at })
    }

    /// The next page, which may be empty; `None`: there are no more.
    ///
    /// # Errors
    /// If a shard does not answer. The same page can be asked for again.
    pub async fn next_page(&mut self) -> Result<Option<Vec<T>>, Error> {
        let Some(cursor) = self.next else { return Ok(None) };
        if self.prefix.len() > KEY_BYTES_MAX {
            return Err(Error::Failed(WhyFailed::NotPossible(WhyNot::KeyTooLarge)));
        }
        let call = self.table.read(&T::read(cursor, self.page, &self.prefix), T::page_of);
        let page = match self.deadline {
            Some(deadline) => call.deadline(deadline).await?,
            None => call.await?,
        };
        self.next = page.next;
        Ok(Some(page.keys))
    }

    /// The next key; `None`: there are no more.
    ///
    /// # Errors
    /// If a shard does not answer. The listing can be gone on with.
    pub async fn next_key(&mut self) -> Result<Option<T>, Error> {
        while self.keys.is_empty() {
            match self.next_page().await? {
                Some(page) => self.keys.extend(page),
                None => return Ok(None),
            }
        }
        Ok(self.keys.pop_front())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_a_text() {
        let cursor = Cursor { table: TableId(7), at: ScanCursor::from_number(5 << 32 | 9).expect("a slot") };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for text in ["", "7", "7-", "-7", "7-x", "x-7", "7-18446744073709551615", "4294967296-0", "7-1-2"] {
            assert_eq!(text.parse::<Cursor>(), Err(NoCursor), "{text}");
        }
    }
}
