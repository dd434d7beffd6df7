//! **R10.18** Calls whose outcome nobody knows: until they end, nothing that this front has for their keys is sent. Else a later command would run
//! ahead of one that its connection was told is unknown.

use std::collections::BTreeMap;

use kasha_client::session::CallId;
use kasha_types::planted::{self, Bug};
use kasha_types::{ConnId, TableId};

/// A key of a database.
pub type Key = (TableId, Vec<u8>);

/// A key whose changes keep `EXEC` from running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    pub table: TableId,
    pub key: Vec<u8>,
    /// Its version when it was looked at; 0: it had no value.
    pub version: u64,
}

/// The calls, and their keys.
#[derive(Debug, Default)]
pub struct Unknown {
    calls: BTreeMap<CallId, (Vec<ConnId>, Touched)>,
    /// How many of the calls each connection was told of.
    conns: BTreeMap<ConnId, usize>,
    /// How many of the calls have each key.
    keys: BTreeMap<Key, usize>,
    /// How many of them are on all keys of a table.
    flushes: usize,
}

/// What a call may change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    pub keys: Vec<Key>,
    /// All keys of a table, besides.
    pub flushes: bool,
}

impl From<Vec<Key>> for Touched {
    fn from(keys: Vec<Key>) -> Self {
        Self { keys, flushes: false }
    }
}

impl Unknown {
    /// The outcome of a call of these connections is not known. A call may be noted again, with more that it touches.
    pub fn note(&mut self, call: CallId, conns: Vec<ConnId>, touched: Touched) {
        for key in &touched.keys {
            *self.keys.entry(key.clone()).or_default() += 1;
        }
        for conn in &conns {
            *self.conns.entry(*conn).or_default() += 1;
        }
        let (all, known) = self.calls.entry(call).or_default();
        self.flushes += usize::from(touched.flushes && !known.flushes);
        all.extend(conns);
        known.keys.extend(touched.keys);
        known.flushes |= touched.flushes;
    }

    /// A call has ended. Says whether it was noted.
    pub fn forget(&mut self, call: CallId) -> bool {
        let Some((conns, Touched { keys, flushes })) = self.calls.remove(&call) else { return false };
        self.flushes -= usize::from(flushes);
        keys.into_iter().for_each(|key| count_down(&mut self.keys, &key));
        conns.into_iter().for_each(|conn| count_down(&mut self.conns, &conn));
        true
    }

    /// Whether the outcome of a call of this connection, or on one of these keys, is not known.
    pub fn has<I: IntoIterator<Item = Key>>(&self, conn: ConnId, keys: impl FnOnce() -> I) -> bool {
        !self.calls.is_empty()
            && !planted::is_on(Bug::LaterRunsAheadOfUnknown)
            && (self.flushes > 0
                || self.conns.contains_key(&conn)
                || keys().into_iter().any(|key| self.keys.contains_key(&key)))
    }

    /// The same for what touches all keys of a table: whatever is unknown may be of them.
    pub fn has_any(&self) -> bool {
        !self.calls.is_empty() && !planted::is_on(Bug::LaterRunsAheadOfUnknown)
    }
}

fn count_down<K: Ord>(counted: &mut BTreeMap<K, usize>, which: &K) {
    let left = counted.get_mut(which).expect("counted when it was noted");
    *left -= 1;
    if *left == 0 {
        counted.remove(which);
    }
}
