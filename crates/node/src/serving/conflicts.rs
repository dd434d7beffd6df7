//! What is not synced, by what an operation can touch of it: keys, absent keys, dropped operation keys, everything. Reads and updates ask here
//! whether an answer must wait for a sync (C1). What waits for transactions over several shards is known to these
//! (`shard/distributed`).
//!
//! Where an entry stands in the log says nothing of that: the cleaner copies entries that were synced long ago to the log's
//! end.

use kasha_types::planted::{self, Bug};
use kasha_types::{KeyHash, LogEnd};

/// Places for keys: far more than there are unsynced keys at a time.
const PLACES: usize = 4096;

/// What changed last of the keys that share a place. Nothing is removed: what is synced conflicts with nobody.
#[derive(Clone, Copy, Debug, Default)]
struct Changed {
    by: Whose,
    /// Where the group of the last change ends.
    end: LogEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Key(KeyHash),
    /// Several keys changed here while none was synced: all keys of this place wait for the last.
    Several,
}

impl Default for Whose {
    fn default() -> Self {
        Self::Key(KeyHash(0))
    }
}

/// What an operation's result depends on, besides the keys that have a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sees {
    /// On values of keys only.
    Values,
    /// Also on a key's having no value: its next version comes from the version floor (R4.8).
    Absence,
}

/// What an operation must not be answered ahead of: keys and tables whose last change is not synced (C1).
#[derive(Debug)]
pub(crate) struct Conflicts {
    keys: Box<[Changed; PLACES]>,
    /// A change of everything ends here (R5.1).
    everything_until: LogEnd,
    /// The version floor's entry ends here.
    version_floor_until: LogEnd,
    /// An operation key's expiry ends here: whoever finds the key gone waits for it (R5.2).
    operation_keys_until: LogEnd,
}

impl Default for Conflicts {
    fn default() -> Self {
        let keys = vec![Changed::default(); PLACES].into_boxed_slice().try_into().expect("as many places");
        let (everything_until, version_floor_until, operation_keys_until) = Default::default();
        Self { keys, everything_until, version_floor_until, operation_keys_until }
    }
}

fn place(key: KeyHash) -> usize {
    key.0 as usize % PLACES
}

impl Conflicts {
    /// A group changed this key.
    pub fn change(&mut self, key: KeyHash, end: LogEnd, synced: LogEnd) {
        let place = &mut self.keys[place(key)];
        let is_shared = place.end > synced && place.by != Whose::Key(key);
        *place = Changed { by: if is_shared { Whose::Several } else { Whose::Key(key) }, end };
    }

    /// A group changed every key.
    pub fn change_everything(&mut self, end: LogEnd) {
        self.everything_until = end;
    }

    /// A group raised the version floor.
    pub fn raise_version_floor(&mut self, end: LogEnd) {
        self.version_floor_until = end;
    }

    /// A group dropped operation keys.
    pub fn drop_operation_keys(&mut self, end: LogEnd) {
        self.operation_keys_until = end;
    }

    /// The position up to which the log must be synced before anybody is told of these keys. At or below what is synced: at
    /// once.
    #[inline(always)] // on the way of each request, and few call it
    pub fn until(
        &self,
        keys: impl IntoIterator<Item = KeyHash>,
        sees: impl FnOnce() -> Sees,
        synced: LogEnd,
    ) -> LogEnd {
        let everything = if planted::is_on(Bug::EverythingUngated) { LogEnd::START } else { self.everything_until };
        let changed = |key: KeyHash| {
            let place = &self.keys[place(key)];
            if place.by == Whose::Key(key) || place.by == Whose::Several { place.end } else { LogEnd::START }
        };
        let keys = keys.into_iter().map(changed).max().unwrap_or(LogEnd::START);
        let is_floor_unsynced = self.version_floor_until > synced && !planted::is_on(Bug::VersionFloorUngated);
        let floor = if is_floor_unsynced && sees() == Sees::Absence { self.version_floor_until } else { LogEnd::START };
        everything.max(keys).max(floor)
    }

    /// Whether the drop of an operation key may be lost.
    pub fn has_dropped_operation_keys(&self, synced: LogEnd) -> bool {
        self.operation_keys_until > synced && !planted::is_on(Bug::DroppedKeyUngated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: KeyHash = KeyHash(7);
    const B: KeyHash = KeyHash(8);

    #[test]
    fn c1_a_key_waits_for_its_last_change() {
        let mut conflicts = Conflicts::default();
        conflicts.change(A, LogEnd(100), LogEnd(0));
        conflicts.change(B, LogEnd(200), LogEnd(0));
        conflicts.change(A, LogEnd(300), LogEnd(150));
        let until = |key| conflicts.until([key], || Sees::Values, LogEnd(150));
        assert_eq!([A, B, KeyHash(9)].map(until), [300, 200, 0].map(LogEnd));
        assert_eq!(conflicts.until([B, A], || Sees::Values, LogEnd(150)), LogEnd(300));
    }

    #[test]
    fn c1_keys_that_share_a_place_wait_for_each_other_until_both_are_synced() {
        let other = |number: u64| KeyHash(A.0 + number * PLACES as u64);
        let mut conflicts = Conflicts::default();
        conflicts.change(A, LogEnd(100), LogEnd(0));
        conflicts.change(other(1), LogEnd(200), LogEnd(0));
        assert_eq!(
            [A, other(1), other(2)].map(|key| conflicts.until([key], || Sees::Values, LogEnd(0))),
            [LogEnd(200); 3]
        );
        conflicts.change(other(2), LogEnd(300), LogEnd(200));
        assert_eq!(
            [A, other(1), other(2)].map(|key| conflicts.until([key], || Sees::Values, LogEnd(200))),
            [0, 0, 300].map(LogEnd)
        );
    }

    #[test]
    fn r4_8_whoever_sees_no_value_waits_for_the_version_floor() {
        let mut conflicts = Conflicts::default();
        conflicts.raise_version_floor(LogEnd(50));
        assert_eq!(conflicts.until([A], || Sees::Absence, LogEnd(0)), LogEnd(50));
        assert_eq!(conflicts.until([A], || Sees::Values, LogEnd(0)), LogEnd::START);
        assert_eq!(conflicts.until([A], || unreachable!("the floor is synced"), LogEnd(50)), LogEnd::START);
    }

    #[test]
    fn r5_1_everybody_waits_for_a_change_of_everything() {
        let mut conflicts = Conflicts::default();
        conflicts.change_everything(LogEnd(80));
        conflicts.change(A, LogEnd(90), LogEnd(0));
        assert_eq!([A, B].map(|key| conflicts.until([key], || Sees::Values, LogEnd(0))), [90, 80].map(LogEnd));
    }
}
