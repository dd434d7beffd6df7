//! R8.4 \[M\]: what must be settled before an answer leaves.
//!
//! An operation's gate is every distributed transaction that is not settled, conflicts with the operation, and was executed here
//! before it, *and* the gates of all conflicting operations before it, reads included. So each key remembers two sets: what a
//! reader of the key inherits (from its writers), and what only a writer inherits (from its readers).
//!
//! A distributed transaction leaves itself alone to the operations after it: it is not settled before its own gate has opened
//! here, so whoever waits for it waits for what it waited for. Gates stay small, however long the row on one key is.
//!
//! A key without unsettled transactions has no entry here: an operation on other keys pays for one look into an empty map.

use std::collections::{BTreeMap, BTreeSet};

use kasha_types::planted::{self, Bug};
use kasha_types::{KeyHash, RpcId};

use crate::footprint::{Access, Footprint};

/// A gate that is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GateId(u64);

/// Transactions that are not settled.
pub(crate) type Unsettled = BTreeSet<RpcId>;

/// Why something counts as executed.
#[derive(Clone, Copy, Debug)]
pub enum Origin<'a> {
    /// It is executed now, after all that was executed before.
    Now,
    /// It is read from the log, where it may stand elsewhere than it was executed.
    Log {
        /// The gate that was logged with it (R8.15).
        gate: &'a [RpcId],
    },
}

#[derive(Debug, Default)]
struct Key {
    /// What the writers of the key leave to everybody.
    written_under: Unsettled,
    /// What readers since the last write leave to writers.
    read_under: Unsettled,
}

/// Where an unsettled transaction is noted.
#[derive(Debug, Default)]
struct Holders {
    keys: BTreeSet<KeyHash>,
    gates: Vec<GateId>,
}

#[derive(Debug)]
struct Closed {
    waits_for: Unsettled,
    /// The update whose answer waits; `None`: a read's.
    answer_of: Option<RpcId>,
}

/// All gates of a shard.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    keys: BTreeMap<KeyHash, Key>,
    closed: BTreeMap<GateId, Closed>,
    holders: BTreeMap<RpcId, Holders>,
    next: u64,
}

/// A gate that has opened: its number, and the update whose answer waited.
pub(crate) type Opened = (GateId, Option<RpcId>);

impl Gates {
    /// An operation executes. `owner`: the distributed transaction that it is. Returns what its answer must wait for.
    pub fn pass(&mut self, owner: Option<RpcId>, footprint: &Footprint, origin: Origin<'_>) -> Unsettled {
        let gate = match origin {
            Origin::Now => self.inherited(footprint),
            Origin::Log { gate } => gate.iter().copied().collect(),
        };
        let left = match owner {
            Some(_) if footprint.only_reads() && planted::is_on(Bug::ReadOnlyWithoutGate) => Unsettled::new(),
            Some(own) => Unsettled::from([own]),
            None if planted::is_on(Bug::GatesNotInherited) => Unsettled::new(),
            None => gate.clone(),
        };
        if !left.is_empty() {
            for (key, access) in footprint.keys() {
                self.leave(key, access, &left, origin);
            }
        }
        gate
    }

    /// What an operation with this footprint must wait for.
    pub fn inherited(&self, footprint: &Footprint) -> Unsettled {
        let mut gate = Unsettled::new();
        footprint.each_met(&self.keys, |known, access| {
            gate.extend(&known.written_under);
            if access == Access::Write && !planted::is_on(Bug::AntiDependencyUngated) {
                gate.extend(&known.read_under);
            }
        });
        gate
    }

    fn leave(&mut self, key: KeyHash, access: Access, left: &Unsettled, origin: Origin<'_>) {
        let known = self.keys.entry(key).or_default();
        match (access, origin) {
            // Whoever waits for this waits for what the key's earlier readers and writers left.
            (Access::Write, Origin::Now) if !planted::is_on(Bug::GatesNotInherited) => {
                *known = Key { written_under: left.clone(), read_under: Unsettled::new() };
            }
            // What stands before it in the log may have been executed after it, and did not wait for it.
            (Access::Write, _) => known.written_under.extend(left),
            (Access::Read, _) => known.read_under.extend(left),
        }
        for rpc in left {
            self.holders.entry(*rpc).or_default().keys.insert(key);
        }
    }

    /// Keeps a gate that is not empty until it opens.
    pub fn close(&mut self, answer_of: Option<RpcId>, waits_for: Unsettled) -> GateId {
        let id = GateId(self.next);
        self.next += 1;
        for rpc in &waits_for {
            self.holders.entry(*rpc).or_default().gates.push(id);
        }
        self.closed.insert(id, Closed { waits_for, answer_of });
        id
    }

    /// A transaction is settled: nobody waits for it any more. Gates that open by that are added to `opened`.
    pub fn settle(&mut self, rpc: RpcId, opened: &mut Vec<Opened>) {
        let Some(Holders { keys, gates }) = self.holders.remove(&rpc) else { return };
        for key in keys {
            if let Some(known) = self.keys.get_mut(&key) {
                known.written_under.remove(&rpc);
                known.read_under.remove(&rpc);
                if known.written_under.is_empty() && known.read_under.is_empty() {
                    self.keys.remove(&key);
                }
            }
        }
        for gate in gates {
            if let Some(closed) = self.closed.get_mut(&gate) {
                closed.waits_for.remove(&rpc);
                if closed.waits_for.is_empty() {
                    let closed = self.closed.remove(&gate).expect("just seen");
                    opened.push((gate, closed.answer_of));
                }
            }
        }
    }

    /// What a closed gate waits for still.
    pub fn waits_for(&self, gate: GateId) -> Option<&Unsettled> {
        self.closed.get(&gate).map(|closed| &closed.waits_for)
    }

    pub fn is_open(&self, gate: GateId) -> bool {
        !self.closed.contains_key(&gate)
    }

    /// The transactions that somebody waits for, or would.
    pub fn waited_for(&self) -> impl Iterator<Item = RpcId> {
        self.holders.keys().copied()
    }

    /// Whether nothing is noted: all that was executed here is settled.
    pub fn are_all_open(&self) -> bool {
        self.keys.is_empty() && self.closed.is_empty() && self.holders.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use kasha_types::{ClientId, Sequence};

    use super::*;

    const T: RpcId = RpcId { client: ClientId(1), sequence: Sequence(1) };
    const U: RpcId = RpcId { client: ClientId(1), sequence: Sequence(2) };
    const X: KeyHash = KeyHash(10);
    const Y: KeyHash = KeyHash(11);

    fn gate(gates: &mut Gates, owner: Option<RpcId>, reads: &[KeyHash], writes: &[KeyHash]) -> Vec<RpcId> {
        let footprint = Footprint::new(reads.iter().copied(), writes.iter().copied());
        gates.pass(owner, &footprint, Origin::Now).into_iter().collect()
    }

    #[test]
    fn r8_4_a_reader_of_what_a_reader_wrote_inherits_the_gate() {
        let mut gates = Gates::default();
        assert_eq!(gate(&mut gates, Some(T), &[], &[X]), []);
        assert_eq!(gate(&mut gates, None, &[X], &[Y]), [T]);
        assert_eq!(gate(&mut gates, None, &[Y], &[]), [T]);
        gates.settle(T, &mut Vec::new());
        assert_eq!(gate(&mut gates, None, &[X, Y], &[]), []);
        assert!(gates.are_all_open());
    }

    #[test]
    fn r8_4_who_writes_what_was_read_waits_and_who_reads_it_does_not() {
        let mut gates = Gates::default();
        assert_eq!(gate(&mut gates, Some(T), &[X], &[Y]), []);
        assert_eq!(gate(&mut gates, None, &[X], &[]), []);
        assert_eq!(gate(&mut gates, None, &[], &[X]), [T]);
        assert_eq!(gate(&mut gates, None, &[X], &[]), [T], "it came after that writer");
    }

    #[test]
    fn a_gate_opens_with_the_last_that_it_waits_for() {
        let mut gates = Gates::default();
        let id = gates.close(Some(U), [T, U].into());
        let mut opened = Vec::new();
        gates.settle(U, &mut opened);
        assert!(opened.is_empty() && !gates.is_open(id));
        gates.settle(T, &mut opened);
        assert_eq!(opened, [(id, Some(U))]);
        assert!(gates.is_open(id));
    }
}
