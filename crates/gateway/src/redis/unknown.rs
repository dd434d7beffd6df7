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
    calls: BTreeMap<CallId, (Vec<ConnId>, Vec<Key>)>,
    /// How many of the calls have each key.
    keys: BTreeMap<Key, usize>,
}

impl Unknown {
    /// The outcome of a call of these connections is not known.
    pub fn note(&mut self, call: CallId, conns: Vec<ConnId>, keys: Vec<Key>) {
        for key in &keys {
            *self.keys.entry(key.clone()).or_default() += 1;
        }
        self.calls.insert(call, (conns, keys));
    }

    /// A call has ended.
    pub fn forget(&mut self, call: CallId) {
        let Some((_, keys)) = self.calls.remove(&call) else { return };
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
            && (self.calls.values().any(|(of, _)| of.contains(&conn))
                || keys().into_iter().any(|key| self.keys.contains_key(&key)))
    }
}
