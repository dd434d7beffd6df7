//! Listing a table's keys, alone or with their values: the waiting, and the pages as values of programs.

use std::collections::VecDeque;
use std::time::Duration;

use kasha_wire::Outcome;
use kasha_wire::outcome::ScannedPage;

use super::{Error, Table, Value};
use crate::session::{Count, Cursor, Listing, Shows, WhyFailed, WhyNot};

/// A listing of a table's keys, page after page. It is no snapshot: each key that has a value from the first call to the last comes
/// exactly once, whatever fails meanwhile; a key that comes or goes meanwhile may come or not. What comes is durable.
///
/// It lists keys, or after [`Scan::values`] keys with their values: each value as it was when its page was made.
#[derive(Debug)]
#[must_use = "nothing is listed until it is asked for"]
pub struct Scan<T = ScannedKey> {
    table: Table,
    listing: Listing,
    deadline: Option<Duration>,
    keys: VecDeque<T>,
}

/// What a listing lists: [`ScannedKey`] or [`ScannedValue`].
pub trait Listed: Sized + private::FromPage {}

mod private {
    use super::{Outcome, ScannedPage, Shows};

    /// What a page of it shows, and what the answer is.
    pub trait FromPage: Sized + Send + 'static {
        const SHOWS: Shows;
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
    const SHOWS: Shows = Shows::Keys;

    fn page_of(outcome: Outcome) -> Option<ScannedPage<Self>> {
        let ScannedPage { next, in_shard, keys } = keys_of(outcome)?;
        let keys = keys.into_iter().map(|(version, key)| Self { key, version }).collect();
        Some(ScannedPage { next, in_shard, keys })
    }
}

impl Listed for ScannedValue {}

impl private::FromPage for ScannedValue {
    const SHOWS: Shows = Shows::Values;

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

fn not_possible(why: WhyNot) -> Error {
    Error::Failed(WhyFailed::NotPossible(why))
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
        Scan { table: self.clone(), listing: Listing::new(self.id()), deadline: None, keys: VecDeque::new() }
    }

    /// How many keys of the table have a value. The shards are asked one after the other, so it is no number of one moment while
    /// keys come and go.
    ///
    /// # Errors
    /// If a shard does not answer.
    pub async fn count(&self) -> Result<u64, Error> {
        let mut count = Count::default();
        while let Some(read) = count.read() {
            count.on_page(&self.read(&read, keys_of).await?);
        }
        Ok(count.keys())
    }
}

impl Scan {
    /// Lists each key with its value, too: from where the listing is, without keys of a page that [`Self::next_key`] has not returned
    /// yet. A page has about 64 KiB of keys and values, and one value more.
    pub fn values(self) -> Scan<ScannedValue> {
        let Self { table, listing, deadline, keys: _ } = self;
        Scan { table, listing, deadline, keys: VecDeque::new() }
    }
}

impl<T: Listed> Scan<T> {
    /// Only keys that begin with these bytes. All keys are looked at.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.listing.set_prefix(prefix.as_ref());
        self
    }

    /// Goes on where another listing of the same table was.
    ///
    /// # Errors
    /// [`WhyNot::Cursor`] if the cursor is of another table, or of one that was dropped.
    pub fn resume(mut self, cursor: Cursor) -> Result<Self, Error> {
        self.listing.resume(cursor).map_err(not_possible)?;
        Ok(self)
    }

    /// About how many keys are asked for at once. A page may have fewer, or none, and not be the last.
    pub fn page(mut self, keys: u32) -> Self {
        self.listing.set_page(keys);
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
        self.listing.cursor()
    }

    /// The next page, which may be empty; `None`: there are no more.
    ///
    /// # Errors
    /// If a shard does not answer. The same page can be asked for again.
    pub async fn next_page(&mut self) -> Result<Option<Vec<T>>, Error> {
        let Some(read) = self.listing.read(T::SHOWS).map_err(not_possible)? else { return Ok(None) };
        let call = self.table.read(&read, T::page_of);
        let page = match self.deadline {
            Some(deadline) => call.deadline(deadline).await?,
            None => call.await?,
        };
        Ok(Some(self.listing.on_page(page)))
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
