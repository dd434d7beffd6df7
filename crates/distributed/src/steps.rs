//! What a participant does next, by what it knows.
//!
//! Three decisions are made here, each from the facts in `participant` alone: what becomes of a new request
//! ([`Arrival`]), what the caller must log or execute now ([`Step`]), and which words go to other participants, and
//! when they are repeated. A transaction is executed only when its proposal is durable here and its final timestamp is
//! known (**R8.1**), and an independent one only when nothing that conflicts can still come before it (**T2**, Granola
//! 4.1). A ceiling is logged ahead of the timestamps that need it.

use kasha_types::planted::{self, Bug};
use kasha_types::{RpcId, ShardId};

use crate::participant::Participant;
use crate::record::{Distributed, Executed, Peer, Phase, Work};
use crate::{Behind, Class, Proposal, Said, Timestamp, Why, Word};

/// Timestamps that are reserved at a time: a second, if timestamps follow a clock of microseconds. A new primary is ahead of the
/// clock by as much.
const CEILING_STEP: u64 = 1_000_000;

/// Calls of [`Participant::ask_again`] between two questions about a transaction that has been here for long.
const ASKED_AT_LEAST_EVERY: u32 = 32;

/// What becomes of a request for a transaction that is new here.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Log it as a proposal of this timestamp, and call [`Participant::proposed`]. If a check of it says no, log that instead, and
    /// call [`Participant::aborted`].
    Propose(Timestamp),
    /// It conflicts. Log that, and call [`Participant::ended`].
    Conflict,
    /// A key is locked by this transaction: try again when that has an outcome (R8.3).
    Wait(RpcId),
}

/// What the caller is to do now, before it asks again.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Execute it, log that, and call [`Participant::executed`].
    Execute(RpcId, Timestamp),
    /// It does not happen: log that, and call [`Participant::ended`].
    End(RpcId, Why),
    /// Log this ceiling, and call [`Participant::ceiling_logged`].
    RaiseCeiling(Timestamp),
}

impl Distributed {
    /// What may be said of it, if anything is durable (R8.1, R8.17).
    fn word(&self, durable: kasha_types::LogEnd) -> Option<Said> {
        let is_there = |end| end <= durable;
        match self.phase {
            Phase::Pending(at) => {
                (is_there(self.proposed_until) || planted::is_on(Bug::VoteUnsynced)).then_some(Said::Proposed(at))
            }
            Phase::Executed(Executed { at, gate, .. }) => {
                let settled = gate.is_none() || planted::is_on(Bug::SettledUngated);
                Some(Said::Executed { at, recorded: is_there(self.outcome_until), settled })
            }
            Phase::Against(why) => {
                (is_there(self.outcome_until) || planted::is_on(Bug::ConflictUnsynced)).then_some(Said::Against(why))
            }
        }
    }

    /// The timestamp at which it is executed, once every participant has voted.
    pub(crate) fn final_timestamp(&self) -> Option<Timestamp> {
        let Phase::Pending(own) = self.phase else { return None };
        if let Some(known) = self.peers.iter().find_map(|peer| peer.executed) {
            return Some(known);
        }
        self.peers.iter().try_fold(own, |highest, peer| Some(highest.max(peer.voted?)))
    }

    /// Why it cannot happen any more. A check that said no counts first: it is nobody else's to tell (R8.5). What another
    /// participant has executed has happened, though one that has lost its proposal be against it.
    fn refused(&self) -> Option<Why> {
        if self.peers.iter().any(|peer| peer.executed.is_some()) {
            return None;
        }
        let against = |why| self.peers.iter().any(|peer| peer.against == Some(why));
        let is_never = || self.peers.iter().any(|peer| peer.says_never);
        match against(Why::Abort) {
            true => Some(Why::Abort),
            false => (against(Why::Conflict) || is_never()).then_some(Why::Conflict),
        }
    }

    /// Whether another participant has said all that this one needs.
    fn has_said_all(&self, peer: &Peer) -> bool {
        match self.phase {
            Phase::Pending(_) => peer.voted.is_some() || peer.executed.is_some(),
            Phase::Executed(_) => (peer.recorded && peer.settled) || peer.says_never,
            Phase::Against(_) => peer.recorded || peer.says_never,
        }
    }
}

impl Participant {
    /// A request arrives for a transaction that was looked up as new. `clock`: cluster time, which the timestamp follows unless
    /// the order needs a later one.
    ///
    /// # Panics
    /// If the transaction is known.
    pub fn on_request(&self, rpc: RpcId, proposal: &Proposal, clock: Timestamp) -> Arrival {
        assert!(!self.transactions.contains_key(&rpc), "{rpc} was looked up");
        let locked_by = self.pending.locked_by(&proposal.footprint);
        match proposal.class {
            Class::Independent => {
                if let Some(locked) = locked_by.filter(|_| !planted::is_on(Bug::ProposedUnderLock)) {
                    return Arrival::Wait(locked);
                }
            }
            Class::Coordinated if planted::is_on(Bug::PrepareIgnoresPending) => {
                if locked_by.is_some() {
                    return Arrival::Conflict;
                }
            }
            Class::Coordinated => {
                if self.pending.in_the_way(&proposal.footprint).is_some() {
                    return Arrival::Conflict;
                }
            }
        }
        Arrival::Propose(clock.max(self.floor.next()))
    }

    /// The next thing to do, if there is one: to be asked until there is none. What was done makes more possible.
    pub fn next_step(&mut self) -> Option<Step> {
        while let Some(rpc) = self.work.next_look() {
            if let Some(step) = self.step_of(rpc) {
                return Some(step); // and it is looked at again
            }
            self.work.remove(Work::Look, rpc);
            self.tell(rpc);
            self.settle_if_all_say_so(rpc);
            if self.is_done(rpc) {
                self.work.add(Work::Forget, rpc);
            }
        }
        None
    }

    fn step_of(&self, rpc: RpcId) -> Option<Step> {
        let known = self.transactions.get(&rpc)?;
        let Phase::Pending(_) = known.phase else { return None };
        if known.is_put_off {
            return None; // it is looked at again when it is taken up
        }
        if let Some(why) = known.refused() {
            return Some(Step::End(rpc, why));
        }
        let is_durable = known.proposed_until <= self.durable || planted::is_on(Bug::ExecutedUnsynced);
        let at = known.final_timestamp().filter(|_| is_durable)?;
        // Granola 4.1: nothing that conflicts can be executed before this timestamp any more.
        if known.proposal.class == Class::Independent
            && !self.pending.is_first((at, rpc), &known.proposal.footprint)
            && !planted::is_on(Bug::ExecutedOutOfOrder)
        {
            return None;
        }
        if at.next() > self.ceiling && !planted::is_on(Bug::CeilingIgnored) {
            let is_coming = at.next() <= self.logged_ceiling.0;
            return (!is_coming).then_some(Step::RaiseCeiling(Timestamp(at.0.saturating_add(CEILING_STEP))));
        }
        Some(Step::Execute(rpc, at))
    }

    /// Says to all what is new of it.
    pub(crate) fn tell(&mut self, rpc: RpcId) {
        let Some(known) = self.transactions.get(&rpc) else { return };
        let Some(said) = known.word(self.durable).filter(|&said| known.said != Some(said)) else { return };
        if self.is_clients_to_tell(known, said) {
            self.transactions.get_mut(&rpc).expect("just seen").said = Some(said);
            return;
        }
        let behind: Vec<_> = known.peers.iter().map(|peer| (peer.shard, self.behind_for(known, peer.shard))).collect();
        let has_voted = known.said.is_some();
        let told_gate = matches!(known.phase, Phase::Executed(executed) if executed.told_gate);
        let is_news = |behind: &[Behind]| match said {
            // That it is executed says nothing new to those that have this participant's vote, but for what it is behind.
            Said::Executed { recorded: false, settled: false, .. } => !has_voted || !behind.is_empty(),
            // Who knows what its gate waited for knows that it has opened. Whoever does not (a new primary, or one that has
            // missed a word) hears it soon, with the outcome's being recorded.
            Said::Executed { recorded: false, settled: true, .. } => !told_gate,
            Said::Executed { recorded: true, .. } | Said::Proposed(_) | Said::Against(_) | Said::Never => true,
        };
        if !behind.iter().any(|(_, behind)| is_news(behind)) {
            return;
        }
        let known = self.transactions.get_mut(&rpc).expect("just seen");
        known.said = Some(said);
        if let Phase::Executed(executed) = &mut known.phase {
            executed.told_gate |= executed.gate.is_some() && behind.iter().all(|(_, behind)| !behind.is_empty());
        }
        let (asks, body) = (std::mem::take(&mut known.asks), known.proposal.body);
        for (to, behind) in behind.into_iter().filter(|(_, behind)| is_news(behind)) {
            let participants = if asks { known.proposal.participants.clone() } else { Vec::new() };
            self.words.push((to, Word { rpc, body, said, asks, participants, behind }));
        }
    }

    /// Answers a participant that asks. What is not durable yet is said when it is.
    pub(crate) fn answer(&mut self, to: ShardId, rpc: RpcId) {
        let known = &self.transactions[&rpc];
        let Some(said) = known.word(self.durable) else { return };
        let (body, behind) = (known.proposal.body, self.behind_for(known, to));
        self.words.push((to, Word { rpc, body, said, asks: false, participants: Vec::new(), behind }));
    }

    /// Asks those that have not said all that is needed, of transactions that were here at the last call already (R8.11: after
    /// a patience, which is the time between two calls). Of what has been here for long, they are asked less and less often.
    pub fn ask_again(&mut self) {
        self.age_early_words();
        let mut words = Vec::new();
        for (&rpc, known) in &self.transactions {
            let age = known.age;
            if !(age.is_power_of_two() || age > 0 && age.is_multiple_of(ASKED_AT_LEAST_EVERY)) {
                continue;
            }
            let Some(said) = known.word(self.durable) else { continue };
            for peer in known.peers.iter().filter(|peer| !known.has_said_all(peer)) {
                let (body, participants) = (known.proposal.body, known.proposal.participants.clone());
                let behind = self.behind_for(known, peer.shard);
                words.push((peer.shard, Word { rpc, body, said, asks: true, participants, behind }));
            }
        }
        self.words.append(&mut words);
        self.transactions.values_mut().for_each(|known| known.age = known.age.saturating_add(1));
    }
}
