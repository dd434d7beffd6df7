//! A listing of a table's keys, page after page: which page comes next, and where the listing goes on.
//!
//! A listing sends nothing. Its program asks the session for [`Listing::read`], and gives the listing what came of that. The order of
//! the keys is the cursor's, which is good at any primary and for ever (0039). So a page that had no answer is asked for again.

use std::fmt;
use std::str::FromStr;

use kasha_types::TableId;
use kasha_types::limits::KEY_BYTES_MAX;
use kasha_wire::Read;
use kasha_wire::operation::ScanCursor;
use kasha_wire::outcome::ScannedPage;

use super::WhyNot;

/// Keys of a page, unless told otherwise.
const PAGE: u32 = 128;

/// Where a listing of a table is.
#[derive(Clone, Debug)]
pub struct Listing {
    table: TableId,
    prefix: Vec<u8>,
    next: Option<ScanCursor>,
    page: u32,
}

/// What a page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// Keys and their versions.
    Keys,
    /// Their values, too.
    Values,
}

impl Listing {
    /// A listing of all keys of this table, from the beginning.
    #[must_use]
    pub fn new(table: TableId) -> Self {
        Self { table, prefix: Vec::new(), next: Some(ScanCursor::START), page: PAGE }
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> TableId {
        self.table
    }

    /// Only keys that begin with these bytes.
    pub fn set_prefix(&mut self, prefix: &[u8]) {
        self.prefix = prefix.to_vec();
    }

    /// About how many keys are asked for at once, at least one.
    pub fn set_page(&mut self, keys: u32) {
        self.page = keys.max(1);
    }

    /// Goes on where another listing was.
    ///
    /// # Errors
    /// [`WhyNot::Cursor`] if that was one of another table.
    pub fn resume(&mut self, cursor: Cursor) -> Result<(), WhyNot> {
        if cursor.table != self.table {
            return Err(WhyNot::Cursor);
        }
        self.next = Some(cursor.at);
        Ok(())
    }

    /// Where it goes on after the last page; `None`: it is at its end.
    #[must_use]
    pub fn cursor(&self) -> Option<Cursor> {
        self.next.map(|at| Cursor { table: self.table, at })
    }

    /// The read of the next page; `None`: there is none.
    ///
    /// # Errors
    /// [`WhyNot::KeyTooLarge`] if no key can have the prefix.
    pub fn read(&self, shows: Shows) -> Result<Option<Read<'_>>, WhyNot> {
        let Some(cursor) = self.next else { return Ok(None) };
        let (most, prefix) = (self.page, &self.prefix[..]);
        match shows {
            _ if prefix.len() > KEY_BYTES_MAX => Err(WhyNot::KeyTooLarge),
            Shows::Keys => Ok(Some(Read::Scan { cursor, most, prefix })),
            Shows::Values => Ok(Some(Read::ScanValues { cursor, most, prefix })),
        }
    }

    /// The answer to [`Self::read`] has come. Returns what it shows.
    pub fn on_page<T>(&mut self, page: ScannedPage<T>) -> Vec<T> {
        self.next = page.next;
        page.keys
    }
}

/// How many keys of a table have a value: pages without keys, each of which says how many its shard has.
#[derive(Clone, Debug)]
pub struct Count {
    next: Option<ScanCursor>,
    keys: u64,
}

impl Default for Count {
    fn default() -> Self {
        Self { next: Some(ScanCursor::START), keys: 0 }
    }
}

impl Count {
    /// The next read; `None`: all shards have said it.
    #[must_use]
    pub fn read(&self) -> Option<Read<'static>> {
        self.next.map(|cursor| Read::Scan { cursor, most: 0, prefix: b"" })
    }

    /// The answer to [`Self::read`] has come.
    pub fn on_page<T>(&mut self, page: &ScannedPage<T>) {
        (self.next, self.keys) = (page.next, self.keys + page.in_shard);
    }

    /// The keys that were counted so far.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.keys
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

    #[test]
    fn a_listing_goes_on_where_its_last_page_ended() {
        let mut listing = Listing::new(TableId(7));
        listing.set_prefix(b"l");
        let page = |next| ScannedPage { next: ScanCursor::from_number(next), in_shard: 3, keys: vec![next] };
        let cursor = |listing: &Listing| match listing.read(Shows::Keys).expect("short") {
            Some(Read::Scan { cursor, most: PAGE, prefix: b"l" }) => cursor.number(),
            other => panic!("{other:?}"),
        };
        assert_eq!((cursor(&listing), cursor(&listing)), (0, 0), "asked for again");
        assert_eq!(listing.on_page(page(9)), [9]);
        assert_eq!(cursor(&listing), 9);
        let at = listing.cursor().expect("it goes on");
        assert_eq!(Listing::new(TableId(8)).resume(at), Err(WhyNot::Cursor));
        let mut other = Listing::new(TableId(7));
        other.resume(at).expect("of the same table");
        assert_eq!(other.cursor(), Some(at));
        listing.on_page(page(u64::MAX));
        assert_eq!((listing.read(Shows::Values), listing.cursor()), (Ok(None), None), "it is at its end");
        let mut count = Count::default();
        count.on_page(&page(9));
        count.on_page(&page(u64::MAX));
        assert_eq!((count.read(), count.keys()), (None, 6));
    }
}
