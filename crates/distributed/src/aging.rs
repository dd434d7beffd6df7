//! What was heard of transactions whose requests may never come: the older half goes when there is too much of it.

use std::collections::BTreeMap;

use kasha_types::RpcId;

/// A map by transaction that forgets.
#[derive(Debug)]
pub struct Aging<V> {
    young: BTreeMap<RpcId, V>,
    old: BTreeMap<RpcId, V>,
    most: usize,
}

impl<V: Default> Aging<V> {
    /// One that holds about so many at most.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { young: BTreeMap::new(), old: BTreeMap::new(), most }
    }

    /// Changes what is young of a transaction, or adds that.
    pub fn note(&mut self, rpc: RpcId, change: impl FnOnce(&mut V)) {
        change(self.young.entry(rpc).or_default());
        if self.young.len() >= self.most / 2 {
            self.age();
        }
    }

    /// What is old goes, and what was young is old.
    pub fn age(&mut self) {
        self.old = std::mem::take(&mut self.young);
    }

    /// The younger that is known of a transaction.
    #[must_use]
    pub fn get(&self, rpc: RpcId) -> Option<&V> {
        self.young.get(&rpc).or_else(|| self.old.get(&rpc))
    }

    /// Whether something is known of it.
    #[must_use]
    pub fn contains(&self, rpc: RpcId) -> bool {
        self.get(rpc).is_some()
    }

    /// Forgets a transaction. Returns what was known, the older first.
    pub fn remove(&mut self, rpc: RpcId) -> impl Iterator<Item = V> + use<V> {
        [self.old.remove(&rpc), self.young.remove(&rpc)].into_iter().flatten()
    }
}
