//! R8.7 \[M\]: the keys that a transaction touched and has freed, while its outcome is not synced. If the outcome is lost with the end of the log,
//! the transaction is pending again, and an update of these keys that was answered before would have run ahead of it.

use std::collections::BTreeMap;

use kasha_types::KeyHash;

use crate::footprint::{Access, Footprint};

#[derive(Debug, Default)]
struct Touched {
    read: u32,
    written: u32,
}

/// The keys of transactions with an unsynced outcome.
#[derive(Debug, Default)]
pub(crate) struct Fresh {
    keys: BTreeMap<KeyHash, Touched>,
}

impl Fresh {
    pub fn insert(&mut self, footprint: &Footprint) {
        for (key, access) in footprint.keys() {
            *self.keys.entry(key).or_default().of(access) += 1;
        }
    }

    pub fn remove(&mut self, footprint: &Footprint) {
        for (key, access) in footprint.keys() {
            let touched = self.keys.get_mut(&key).expect("what is fresh was inserted");
            *touched.of(access) -= 1;
            if touched.read == 0 && touched.written == 0 {
                self.keys.remove(&key);
            }
        }
    }

    /// Whether this conflicts with one of them.
    pub fn overlaps(&self, footprint: &Footprint) -> bool {
        let conflicts = |touched: &Touched, access| (touched.written > 0 || access == Access::Write).then_some(());
        !self.keys.is_empty() && footprint.find_met(&self.keys, conflicts).is_some()
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl Touched {
    fn of(&mut self, access: Access) -> &mut u32 {
        match access {
            Access::Read => &mut self.read,
            Access::Write => &mut self.written,
        }
    }
}
