//! What is not synced, by what an operation can touch of it. Reads and updates ask here, and nowhere else, whether an answer
//! must wait (C1).
//!
//! Where an entry stands in the log says nothing of that: the cleaner copies entries that were synced long ago to the log's
//! end.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use kasha_types::KeyHash;
use kasha_types::planted::{self, Bug};

/// A key that an unsynced update changed, and where the group of the last one ends.
#[derive(Clone, Copy, Debug)]
struct Changed {
    key: KeyHash,
    end: u64,
}

/// What an operation's result depends on, besides the keys that have a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sees {
    /// Only values.
    Values,
    /// Also that a key has none: the key's next version comes from the version floor (R4.8).
    Absence,
}

/// Everything unsynced.
#[derive(Debug, Default)]
pub(crate) struct Conflicts {
    keys: HashTable<Changed>,
    /// A change of everything ends here (R5.1).
    everything_until: u64,
    /// The version floor's entry ends here.
    version_floor_until: u64,
    /// An operation key's expiry ends here: whoever finds the key gone waits for it (R5.2).
    operation_keys_until: u64,
}

impl Conflicts {
    /// A group changed this key.
    pub fn change(&mut self, key: KeyHash, end: u64) {
        match self.keys.entry(key.0, |known| known.key == key, |known| known.key.0) {
            Entry::Occupied(mut known) => known.get_mut().end = end,
            Entry::Vacant(vacant) => {
                vacant.insert(Changed { key, end });
            }
        }
    }

    /// A group changed every key.
    pub fn change_everything(&mut self, end: u64) {
        self.everything_until = end;
    }

    /// A group raised the version floor.
    pub fn raise_version_floor(&mut self, end: u64) {
        self.version_floor_until = end;
    }

    /// A group dropped operation keys.
    pub fn drop_operation_keys(&mut self, end: u64) {
        self.operation_keys_until = end;
    }

    /// Forgets what changed this key, if that is synced. Called once for each change, in the log's order.
    pub fn forget(&mut self, key: KeyHash, synced: u64) {
        if let Ok(known) = self.keys.find_entry(key.0, |known| known.key == key && known.end <= synced) {
            known.remove();
        }
    }

    /// The position up to which the log must be synced before anybody is told of these keys. At or below what is synced: at
    /// once.
    pub fn until(&self, keys: impl IntoIterator<Item = KeyHash>, sees: impl FnOnce() -> Sees, synced: u64) -> u64 {
        let everything = if planted::is_on(Bug::EverythingUngated) { 0 } else { self.everything_until };
        let changed = |key: KeyHash| self.keys.find(key.0, |known| known.key == key).map_or(0, |known| known.end);
        let keys = match self.keys.is_empty() {
            true => 0,
            false => keys.into_iter().map(changed).max().unwrap_or(0),
        };
        let is_floor_unsynced = self.version_floor_until > synced && !planted::is_on(Bug::VersionFloorUngated);
        let floor = if is_floor_unsynced && sees() == Sees::Absence { self.version_floor_until } else { 0 };
        everything.max(keys).max(floor)
    }

    /// Whether the drop of an operation key may be lost.
    pub fn has_dropped_operation_keys(&self, synced: u64) -> bool {
        self.operation_keys_until > synced && !planted::is_on(Bug::DroppedKeyUngated)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: KeyHash = KeyHash(7);
    const B: KeyHash = KeyHash(8);

    #[test]
    fn c1_a_key_waits_for_its_last_change_until_that_is_synced() {
        let mut conflicts = Conflicts::default();
        let until = |conflicts: &Conflicts, key| conflicts.until([key], || Sees::Values, 0);
        conflicts.change(A, 100);
        conflicts.change(B, 200);
        conflicts.change(A, 300);
        assert_eq!([A, B, KeyHash(9)].map(|key| until(&conflicts, key)), [300, 200, 0]);
        conflicts.forget(A, 250); // its first change
        conflicts.forget(B, 250);
        assert_eq!([A, B].map(|key| until(&conflicts, key)), [300, 0]);
        conflicts.forget(A, 300);
        assert_eq!((until(&conflicts, A), conflicts.len()), (0, 0));
    }

    #[test]
    fn r4_8_whoever_sees_no_value_waits_for_the_version_floor() {
        let mut conflicts = Conflicts::default();
        conflicts.raise_version_floor(50);
        assert_eq!(conflicts.until([A], || Sees::Absence, 0), 50);
        assert_eq!(conflicts.until([A], || Sees::Values, 0), 0);
        assert_eq!(conflicts.until([A], || unreachable!("the floor is synced"), 50), 0);
    }

    #[test]
    fn r5_1_everybody_waits_for_a_change_of_everything() {
        let mut conflicts = Conflicts::default();
        conflicts.change_everything(80);
        conflicts.change(A, 90);
        assert_eq!([A, B].map(|key| conflicts.until([key], || Sees::Values, 0)), [90, 80]);
    }
}
