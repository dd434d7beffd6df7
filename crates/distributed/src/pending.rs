//! What has proposed here and is not executed, by key and in the order in which it can be executed. A key in nobody's footprint
//! has no entry. Of many that wait for one key, only those that may be next are looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use kasha_types::{KeyHash, RpcId};

use crate::footprint::{Access, Footprint};
use crate::{Class, Timestamp};

/// A place in the order of conflicting transactions: nothing is executed before it any more.
pub(crate) type Place = (Timestamp, RpcId);

#[derive(Debug, Default)]
struct Key {
    readers: BTreeSet<Place>,
    writers: BTreeSet<Place>,
    /// Those of them that hold a lock.
    locks: BTreeMap<RpcId, Access>,
}

impl Key {
    fn places(&mut self, access: Access) -> &mut BTreeSet<Place> {
        match access {
            Access::Read => &mut self.readers,
            Access::Write => &mut self.writers,
        }
    }

    /// The first place of another transaction that conflicts with this access.
    fn first_against(&self, access: Access, own: Option<RpcId>) -> Option<Place> {
        let first = |places: &BTreeSet<Place>| places.iter().copied().find(|&(_, rpc)| Some(rpc) != own);
        let writer = first(&self.writers);
        match access {
            Access::Read => writer,
            Access::Write => writer.into_iter().chain(first(&self.readers)).min(),
        }
    }
}

/// The transactions that are pending at a shard.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    keys: BTreeMap<KeyHash, Key>,
}

impl Pending {
    pub fn insert(&mut self, place: Place, class: Class, footprint: &Footprint) {
        for (key, access) in footprint.keys() {
            let key = self.keys.entry(key).or_default();
            key.places(access).insert(place);
            if class == Class::Coordinated {
                key.locks.insert(place.1, access);
            }
        }
    }

    pub fn remove(&mut self, place: Place, footprint: &Footprint) {
        for (key, access) in footprint.keys() {
            let Some(there) = self.keys.get_mut(&key) else { continue };
            there.places(access).remove(&place);
            there.locks.remove(&place.1);
            if there.readers.is_empty() && there.writers.is_empty() {
                self.keys.remove(&key);
            }
        }
    }

    /// A transaction has another place in the order now.
    pub fn move_to(&mut self, from: Place, to: Timestamp, footprint: &Footprint) {
        for (key, access) in footprint.keys() {
            let places = self.keys.get_mut(&key).expect("it is pending").places(access);
            places.remove(&from);
            places.insert((to, from.1));
        }
    }

    /// Something that is pending and conflicts with this.
    pub fn in_the_way(&self, footprint: &Footprint) -> Option<RpcId> {
        footprint.find_met(&self.keys, |key, access| key.first_against(access, None)).map(|(_, rpc)| rpc)
    }

    /// Something that holds a lock which conflicts with this.
    pub fn locked_by(&self, footprint: &Footprint) -> Option<RpcId> {
        footprint.find_met(&self.keys, |key, access| {
            key.locks.iter().find(|(_, lock)| access.conflicts(**lock)).map(|(&rpc, _)| rpc)
        })
    }

    /// Whether everything else that conflicts with this has a later place.
    pub fn is_first(&self, place: Place, footprint: &Footprint) -> bool {
        let before = footprint.find_met(&self.keys, |key, access| {
            key.first_against(access, Some(place.1)).filter(|other| *other <= place)
        });
        before.is_none()
    }

    /// Calls `next` with what may be the first now that a transaction with this footprint has left this place: of each key the first writer behind
    /// the place, and the readers between the two if the transaction was a writer. What stands before the place did not wait for it.
    pub fn next_in_line(&self, left: Place, footprint: &Footprint, mut next: impl FnMut(RpcId)) {
        footprint.each_met(&self.keys, |key, access| {
            let writer = key.writers.first().copied();
            let is_behind = writer.is_none_or(|writer| writer > left);
            let end = writer.map_or(Bound::Unbounded, Bound::Excluded);
            if let Some((_, rpc)) = writer.filter(|_| is_behind) {
                next(rpc);
            }
            if is_behind && access == Access::Write {
                key.readers.range((Bound::Excluded(left), end)).for_each(|&(_, rpc)| next(rpc));
            }
        });
    }

    /// Everything that conflicts with this.
    pub fn all_in_the_way(&self, footprint: &Footprint) -> BTreeSet<RpcId> {
        let mut all = BTreeSet::new();
        footprint.each_met(&self.keys, |key, access| {
            let readers = key.readers.iter().filter(|_| access == Access::Write);
            all.extend(key.writers.iter().chain(readers).map(|&(_, rpc)| rpc));
        });
        all
    }

    /// Everything that writes something. `None`: there are more than `most`.
    pub fn writers(&self, most: usize) -> Option<BTreeSet<RpcId>> {
        let mut writers = BTreeSet::new();
        for &(_, rpc) in self.keys.values().flat_map(|key| &key.writers) {
            if writers.insert(rpc) && writers.len() > most {
                return None;
            }
        }
        Some(writers)
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}
