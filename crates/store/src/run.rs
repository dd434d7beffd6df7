//! An operation while it is drafted: what it sees, and what it says.

use kasha_log::Log;
use kasha_types::{ClusterTime, TableId, UnixMillis};
use kasha_wire::OutcomeCode;

use crate::Store;
use crate::draft::{Draft, Seen};

/// When an operation was begun, and what it can know of the time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// What lifetimes count from.
    pub begun: ClusterTime,
    /// The unix time of ClusterTime 0 (R10.12). Who executes operations that say or tell a time of day knows it.
    pub origin: Option<UnixMillis>,
}

impl From<ClusterTime> for Moment {
    /// Of operations that know no time of day.
    fn from(begun: ClusterTime) -> Self {
        Self { begun, origin: None }
    }
}

/// An operation that is being drafted.
pub(crate) struct Run<'r, 'a> {
    pub store: &'r Store,
    pub log: &'r Log,
    pub table: TableId,
    pub moment: Moment,
    pub draft: Draft<'a>,
    /// What `LCS` has compared so far.
    pub cells: usize,
}

impl<'r, 'a> Run<'r, 'a> {
    pub fn see(&mut self, key: &[u8]) -> Seen<'r> {
        self.draft.see(self.store, self.log, self.table, key)
    }

    pub fn tell_value(&mut self, seen: &Seen<'_>) {
        if let Some(current) = seen.value() {
            self.draft.answer_value(self.log, current);
        }
    }

    pub fn done(&mut self) {
        self.draft.answer(OutcomeCode::Done);
    }

    pub fn tell(&mut self, number: u64) {
        self.draft.answer_bytes(&number.to_le_bytes());
    }

    pub fn tell_number(&mut self, value: i64, version: u64) {
        self.draft.answer_bytes(&value.to_le_bytes());
        self.tell(version);
    }
}
