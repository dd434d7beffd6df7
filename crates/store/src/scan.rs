//! Listing a table's keys, a part at a time.

use kasha_log::{Enough, Log, ScanPosition};
use kasha_types::TableId;

use crate::Store;
use crate::entry::{Found, Object};
use crate::store::decode;

impl Store {
    /// Visits the objects of a table among about so many entries of the index, of all tables, from a position on, until `visit` has
    /// enough. Returns where to go on; `None`: there are no more. Each object that stays is visited once, on whichever replica each part is.
    pub fn scan<'l>(
        &self,
        log: &'l Log,
        table: TableId,
        from: ScanPosition,
        entries: usize,
        mut visit: impl FnMut(&Object<'l>) -> Enough,
    ) -> Option<ScanPosition> {
        let touch = |at| {
            std::hint::black_box(log.entry(at));
        };
        self.index.scan(from, entries, touch, |at| match decode(log.entry(at), at) {
            Found::Object(at, object)
                if object.table == table && !self.tables.is_flushed(table, object.version, at) =>
            {
                visit(&object)
            }
            Found::Object(..) | Found::Tombstone(..) => Enough::No,
        })
    }
}
