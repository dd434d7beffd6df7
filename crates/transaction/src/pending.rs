//! What has proposed here and is not executed, by key. A key in nobody's footprint has no entry.

use std::collections::BTreeMap;

use kasha_types::{KeyHash, RpcId};

use crate::footprint::{Access, Footprint};

/// The transactions that are pending at a shard.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    keys: BTreeMap<KeyHash, Vec<(RpcId, Access)>>,
}

impl Pending {
    pub fn insert(&mut self, rpc: RpcId, footprint: &Footprint) {
        for (key, access) in footprint.keys() {
            self.keys.entry(key).or_default().push((rpc, access));
        }
    }

    pub fn remove(&mut self, rpc: RpcId, footprint: &Footprint) {
        for (key, _) in footprint.keys() {
            if let Some(there) = self.keys.get_mut(&key) {
                there.retain(|&(other, _)| other != rpc);
                if there.is_empty() {
                    self.keys.remove(&key);
                }
            }
        }
    }

    /// What is pending and conflicts with this. Some may come more than once.
    pub fn in_the_way<'a>(&'a self, footprint: &'a Footprint) -> impl Iterator<Item = RpcId> + 'a {
        footprint.keys().flat_map(|(key, access)| {
            let there = self.keys.get(&key).into_iter().flatten();
            there.filter(move |(_, other)| access.conflicts(*other)).map(|&(rpc, _)| rpc)
        })
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}
