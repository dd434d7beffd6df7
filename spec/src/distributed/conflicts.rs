//! What conflicts with what at a shard, what a transaction waits for there, and what its answer waits for.

use crate::distributed::Distributed;
use crate::distributed::program::Class;
use crate::distributed::rules::Rule;
use crate::distributed::state::{
    Entry, Executed, KEYS_MAX, Progress, Seen, Set, Shard, ShardIx, State, Timestamp, TxnIx, members,
};

impl Distributed {
    /// Whether one of the two writes what the other touches.
    pub(super) fn conflicts(&self, one: TxnIx, other: TxnIx, shard: ShardIx) -> bool {
        let (Some(one), Some(other)) = (self.plan(one).part(shard), self.plan(other).part(shard)) else {
            return false;
        };
        one.writes & (other.reads | other.writes) != 0 || one.reads & other.writes != 0
    }

    /// The transactions of these classes that have proposed here and have no outcome, and conflict with this one.
    fn in_the_way(
        &self,
        there: &Shard,
        txn: TxnIx,
        shard: ShardIx,
        locks: bool,
    ) -> impl Iterator<Item = (TxnIx, Timestamp)> {
        self.txns()
            .filter_map(move |other| match there.progress(other) {
                Progress::Pending(at) if self.plan(other).locks() == locks => Some((other, at)),
                _ => None,
            })
            .filter(move |&(other, _)| other != txn && self.conflicts(txn, other, shard))
    }

    /// Whether a key is locked by another.
    pub(super) fn is_locked(&self, there: &Shard, txn: TxnIx, shard: ShardIx) -> bool {
        self.in_the_way(there, txn, shard, true).next().is_some()
    }

    /// Whether an independent transaction that conflicts is to be executed still.
    pub(super) fn is_pending(&self, there: &Shard, txn: TxnIx, shard: ShardIx) -> bool {
        self.in_the_way(there, txn, shard, false).next().is_some()
    }

    /// Whether a single-shard operation waits.
    pub(super) fn waits(&self, there: &Shard, txn: TxnIx, shard: ShardIx) -> bool {
        self.is_locked(there, txn, shard) || self.is_pending(there, txn, shard)
    }

    /// What a read must wait for that comes now.
    pub(super) fn awaited(&self, there: &Shard, txn: TxnIx, shard: ShardIx) -> Set {
        let in_the_way = |locks| self.in_the_way(there, txn, shard, locks);
        in_the_way(true).chain(in_the_way(false)).fold(0, |awaited, (other, _)| awaited | 1 << other)
    }

    /// Whether one of these has no outcome here.
    pub(super) fn is_any_pending(&self, there: &Shard, these: Set) -> bool {
        members(these).any(|txn| matches!(there.progress(txn), Progress::Pending(_)))
    }

    /// R8.7, judged when the update executes: something that conflicts is not synced.
    pub(super) fn overlaps(&self, there: &Shard, txn: TxnIx, shard: ShardIx) -> bool {
        let unsynced = there.log.iter().skip(usize::from(there.synced));
        unsynced.into_iter().any(|entry| {
            let counts = match *entry {
                Entry::Executed(Executed { is_read, .. }) => !is_read,
                Entry::Ended(_) => true,
                Entry::Proposed(..) | Entry::Conflict(_) | Entry::Abort(..) | Entry::Floor(_) => false,
            };
            let is_forgiven = !self.keeps(Rule::OutcomeOverlaps) && matches!(entry, Entry::Ended(_));
            counts && !is_forgiven && self.conflicts(txn, entry.txn(), shard)
        })
    }

    /// Whether everything that a read saw is synced.
    pub(super) fn saw_synced(&self, there: &Shard, txn: TxnIx, shard: ShardIx) -> bool {
        let own = there.place(txn).unwrap_or(there.log.len() as u8);
        let is_unsynced_update = |(at, entry): (u8, &Entry)| {
            let is_update = matches!(*entry, Entry::Executed(Executed { is_read: false, .. }));
            at >= there.synced && at < own && is_update && self.conflicts(txn, entry.txn(), shard)
        };
        !(0..).zip(&there.log).any(is_unsynced_update)
    }

    /// R8.4: what must settle before the answer of a transaction that executes now.
    pub(super) fn gate(&self, there: &Shard, txn: TxnIx, shard: ShardIx) -> Set {
        let mut gate = 0;
        for Executed { txn: earlier, .. } in there.executions() {
            if *earlier == txn || !self.conflicts(txn, *earlier, shard) {
                continue;
            }
            let plan = self.plan(*earlier);
            let part = plan.part(shard).expect("it was executed here");
            let own = self.plan(txn).part(shard).expect("it executes here");
            let is_written = part.writes & (own.reads | own.writes) != 0;
            let is_left_out = !self.keeps(Rule::AntiDependencyGated) && !is_written
                || !self.keeps(Rule::CoordinatedGates) && plan.locks()
                || !self.keeps(Rule::ReadOnlyGates) && !plan.writes();
            let is_forgotten = there.forgotten & 1 << earlier != 0;
            if plan.is_distributed() && !is_left_out && !is_forgotten {
                gate |= 1 << earlier;
            }
            if self.keeps(Rule::GatesInherited) {
                gate |= there.gates[usize::from(*earlier)];
            }
        }
        gate & !(1 << txn)
    }

    /// What must settle before a participant that has prepared may say so without a gate.
    pub(super) fn gate_of_prepared(&self, state: &State, txn: TxnIx, shard: ShardIx) -> Set {
        self.gate(state.shard(shard), txn, shard) & !self.settled(state)
    }

    /// The transactions that every participant has executed and settled.
    pub(super) fn settled(&self, state: &State) -> Set {
        let is_settled = |&txn: &TxnIx| {
            let participants = self.plan(txn).participants();
            let votes = state.votes(txn);
            self.plan(txn).is_distributed() && (votes.settled | votes.never) & participants == participants
        };
        self.txns().filter(is_settled).map(|txn| 1 << txn).sum()
    }

    /// What a transaction finds in the keys that it reads.
    pub(super) fn seen(&self, there: &Shard, txn: TxnIx, shard: ShardIx) -> Seen {
        let reads = self.plan(txn).part(shard).map_or(0, |part| part.reads);
        let mut seen = [0; KEYS_MAX];
        for key in members(reads) {
            let wrote = |executed: &&Executed| {
                self.plan(executed.txn).part(shard).is_some_and(|part| part.writes & 1 << key != 0)
            };
            seen[usize::from(key)] = there.executions().rev().find(wrote).map_or(0, |executed| executed.txn + 1);
        }
        seen
    }

    /// A new proposal is above this.
    pub(super) fn floor(&self, there: &Shard) -> Timestamp {
        let of = |entry: &Entry| match *entry {
            // R8.8: the timestamp of a decision, too.
            Entry::Executed(Executed { txn, at, .. }) => {
                let is_final = self.plan(txn).is_distributed();
                let counts = self.plan(txn).class != Class::Interactive || self.keeps(Rule::DecisionRaisesFloor);
                if is_final && counts { at } else { 0 }
            }
            Entry::Proposed(_, at, _) => at,
            Entry::Conflict(_) | Entry::Abort(..) | Entry::Ended(_) | Entry::Floor(_) => 0,
        };
        there.log.iter().map(of).max().unwrap_or(0).max(there.floor)
    }

    /// The final timestamp, if this participant can know it.
    pub(super) fn highest_vote(&self, state: &State, txn: TxnIx, shard: ShardIx) -> Option<Timestamp> {
        let Progress::Pending(own) = state.shard(shard).progress(txn) else { return None };
        let mut highest = own;
        for peer in members(self.plan(txn).participants()).filter(|&peer| peer != shard) {
            let is_heard = !self.program.implies || state.shard(shard).heard[usize::from(txn)] & 1 << peer != 0;
            match state.votes(txn).proposed[usize::from(peer)] {
                at if at > 0 && is_heard => highest = highest.max(at),
                _ => return None,
            }
        }
        Some(highest)
    }

    /// R8.2: the final timestamp is above this, as votes on other transactions say.
    fn implied(&self, state: &State, txn: TxnIx, shard: ShardIx) -> Timestamp {
        let heard = state.shard(shard).heard;
        let is_missing =
            |&peer: &ShardIx| heard[usize::from(txn)] & 1 << peer == 0 || !self.keeps(Rule::ImpliedIfMissing);
        let peers = members(self.plan(txn).participants()).filter(|&peer| peer != shard);
        let by = |peer: ShardIx| {
            let mut votes = state.shard(peer).log.iter().filter_map(|entry| match *entry {
                Entry::Proposed(other, at, _) if self.plan(other).part(shard).is_some() => Some((other, at)),
                _ => None,
            });
            let arrived = |&(other, _): &(TxnIx, Timestamp)| heard[usize::from(other)] & 1 << peer != 0;
            if self.keeps(Rule::ImpliedInOrder) {
                votes.take_while(arrived).last().map_or(0, |(_, at)| at)
            } else {
                votes.rfind(arrived).map_or(0, |(_, at)| at)
            }
        };
        peers.filter(is_missing).map(by).max().unwrap_or(0)
    }

    /// In one round trip: what it proposes is recorded at witnesses, so that its client may count on that before it is durable.
    pub(super) fn is_recorded(&self, txn: TxnIx) -> bool {
        self.program.one_trip && self.plan(txn).locks()
    }

    /// Votes leave only when somebody worries, and until then the client's decision counts.
    pub(super) fn is_by_client(&self, txn: TxnIx) -> bool {
        self.program.one_trip && self.plan(txn).class == Class::Interactive
    }

    /// Granola 4.2: no conflicting transaction can come before this one.
    pub(super) fn is_first(&self, state: &State, txn: TxnIx, shard: ShardIx, at: Timestamp) -> bool {
        let there = state.shard(shard);
        let comes_later = |(other, proposed): (TxnIx, Timestamp)| {
            let at_least = || if self.program.implies { self.implied(state, other, shard) + 1 } else { 0 };
            let known = self.highest_vote(state, other, shard).unwrap_or_else(|| proposed.max(at_least()));
            (known, other) > (at, txn)
        };
        let is_free = self.keeps(Rule::LockAwaited) || !self.is_locked(there, txn, shard);
        is_free && self.in_the_way(there, txn, shard, false).all(comes_later)
    }
}
