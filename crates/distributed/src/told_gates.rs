//! Settling a row at once (R8.4, decision 0030).
//!
//! A transaction is settled once every participant has executed it and each one's gate has opened. In a row on the same keys
//! each gate waits for the transaction before. If participants said only that a gate has opened, a row would settle one by one, a
//! message apart. So who has executed a transaction says what its gate waits for, and who knows all of that as settled knows
//! that the gate has opened, or is about to.
//!
//! ```text
//!                  here                         the other participant
//!  executed      T1 ◀─ T2 ◀─ T3                 T1 ◀─ T2 ◀─ T3
//!                  │                              │ says: T1, T2 behind T1, T3 behind T2
//!                  ◀──────────────────────────────┘
//!  all three settle here in one step
//! ```
//!
//! What is told of a gate stays true if the participant that tells it loses the execution of the transaction, T. The proposal of T is
//! durable, so T is pending at each later primary, until it is executed there, at the same timestamp. What can come before it there
//! came before it here:
//!
//! 1. what stands before the proposal of T in the log. An operation of one shard that conflicts stands nowhere else: it waits
//!    for T (R8.3, R8.10);
//! 2. what had proposed, and has a smaller final timestamp: T was executed here after it;
//! 3. nothing new: what proposes later is above the ceiling, and T is not (R8.1).
//!
//! The gate at the next primary may name more (0027), but only what the named ones wait for themselves.

use kasha_types::limits::BEHIND_MAX;
use kasha_types::planted::{self, Bug};
use kasha_types::{RpcId, ShardId};

use crate::participant::Participant;
use crate::record::{Distributed, Executed, Peer, Phase, Work};
use crate::{Behind, Said};

/// What the gate of a transaction waits for at another participant, as far as that was told.
fn waits(peer: &Peer) -> impl Iterator<Item = Work> {
    peer.behind.iter().map(|behind| Work::WaitsFor { awaited: behind.rpc, told_by: peer.shard })
}

impl Participant {
    /// What a participant is told of this one's gate: all that the gate waits for, or nothing.
    pub(crate) fn behind_for(&self, known: &Distributed, to: ShardId) -> Vec<Behind> {
        let members = match known.phase {
            Phase::Executed(Executed { gate: Some(gate), .. }) => self.gates.waits_for(gate),
            _ => None,
        };
        let Some(members) = members.filter(|members| members.len() <= BEHIND_MAX) else { return Vec::new() };
        let told = members.iter().map(|&rpc| {
            let proposal = &self.transactions.get(&rpc)?.proposal;
            proposal.participants.contains(&to).then_some(Behind { rpc, body: proposal.body })
        });
        if planted::is_on(Bug::GateToldInPart) {
            return told.flatten().collect();
        }
        told.collect::<Option<_>>().unwrap_or_default()
    }

    /// A participant has executed a transaction, and says what its gate waits for.
    ///
    /// What is not known here is not taken for settled, although it may have been forgotten: a deposed primary may never have
    /// heard of it.
    pub(crate) fn on_behind(&mut self, from: ShardId, rpc: RpcId, said: Said, behind: &[Behind]) {
        let Said::Executed { settled, .. } = said else { return };
        let is_settled = |behind: &&Behind| {
            let known = self.transactions.get(&behind.rpc).filter(|known| known.proposal.body == behind.body);
            known.is_some_and(Distributed::is_settled) || planted::is_on(Bug::ToldGateIgnored)
        };
        let left: Vec<_> = behind.iter().filter(|behind| !is_settled(behind)).copied().collect();
        let known = self.transactions.get_mut(&rpc);
        let Some(peer) = known.and_then(|known| known.peers.iter_mut().find(|peer| peer.shard == from)) else { return };
        peer.settled |= settled || (left.is_empty() && !behind.is_empty());
        if !peer.settled && behind.is_empty() {
            return; // what an earlier word said is still true
        }
        waits(peer).for_each(|work| self.work.remove(work, rpc));
        peer.behind = if peer.settled { Vec::new() } else { left };
        waits(peer).for_each(|work| self.work.add(work, rpc));
    }

    /// A transaction is settled: gates of other participants that waited for it may have opened.
    pub(crate) fn open_told_gates(&mut self, settled: Behind) {
        let by = |told_by| Work::WaitsFor { awaited: settled.rpc, told_by };
        for (_, rpc) in self.work.take(by(ShardId(0))..=by(ShardId(u16::MAX))) {
            let Some(known) = self.transactions.get_mut(&rpc) else { continue };
            for peer in known.peers.iter_mut().filter(|peer| peer.behind.contains(&settled)) {
                peer.behind.retain(|behind| *behind != settled);
                peer.settled |= peer.behind.is_empty();
            }
            self.work.add(Work::Look, rpc);
        }
    }

    /// A transaction is forgotten, and what was told of its gates.
    pub(crate) fn forget_told_gates(&mut self, known: &Distributed, rpc: RpcId) {
        known.peers.iter().flat_map(waits).for_each(|work| self.work.remove(work, rpc));
    }
}
