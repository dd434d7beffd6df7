//! **R10.18** Calls whose outcome nobody knows: until they end, nothing that this front has for their keys is sent. Else a later command would run
//! ahead of one that its connection was told is unknown.

use std::collections::BTreeMap;

use kasha_client::session::CallId;
use kasha_types::planted::{self, Bug};
use kasha_types::{ConnId, TableId};

/// A key of a database.
pub type Key = (TableId, Vec<u8>);

/// The calls, and their keys.
#[derive(Debug, Default)]
pub struct Unknown {
    calls: BTreeMap<CallId, (Vec<ConnId>, Touched)>,
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
    /// The outcome of a call of these connections is not known.
    pub fn note(&mut self, call: CallId, conns: Vec<ConnId>, touched: Touched) {
        for key in &touched.keys {
            *self.keys.entry(key.clone()).or_default() += 1;
        }
        self.flushes += usize::from(touched.flushes);
        self.calls.insert(call, (conns, touched));
    }

    /// A call has ended.
    pub fn forget(&mut self, call: CallId) {
        let Some((_, Touched { keys, flushes })) = self.calls.remove(&call) else { return };
        self.flushes -= usize::from(flushes);
        for key in keys {
            let left = self.keys.get_mut(&key).expect("counted when it was noted");
            *left -= 1;
            if *left == 0 {
                self.keys.remove(&key);
            }
        }
    }

    /// Whether the outcome of a call of this connection, or on one of these keys, is not known.
    pub fn has<I: IntoIterator<Item = Key>>(&self, conn: ConnId, keys: impl FnOnce() -> I) -> bool {
        !self.calls.is_empty()
            && !planted::is_on(Bug::LaterRunsAheadOfUnknown)
            && (self.flushes > 0
                || self.calls.values().any(|(of, _)| of.contains(&conn))
                || keys().into_iter().any(|key| self.keys.contains_key(&key)))
    }

    /// The same for what touches all keys of a table: whatever is unknown may be of them.
    pub fn has_any(&self) -> bool {
        !self.calls.is_empty() && !planted::is_on(Bug::LaterRunsAheadOfUnknown)
    }
}
