//! What one shard knows of distributed transactions, and how it comes to know it.
//!
//! [`Participant`] has a [`Distributed`] (`record`) for each transaction that it needs: its phase here, and what each other
//! participant has said of it. This module takes in facts: what the caller has logged (`proposed`, `ended`,
//! `executed`), what is synced, and the words of other participants. What follows from the facts is in `steps`; which
//! transaction may be next is in `pending`; what an answer waits for is in `gates`.
//!
//! Rules kept here: a word may come before its request, late or twice; a word about another body is about another
//! transaction (**R8.11**); a word with another final timestamp than follows from the votes is not believed (**T1**).

use std::collections::{BTreeMap, BTreeSet};

use kasha_types::planted::{self, Bug};
use kasha_types::{LogEnd, RpcId, ShardId};

use crate::aging::Aging;
use crate::fresh::Fresh;
use crate::gates::{Gates, Opened};
use crate::pending::{Pending, Place};
use crate::record::{Distributed, Executed, Keys, Peer, Phase, Work, WorkList};
use crate::{Class, Footprint, GateId, Origin, Proposal, Said, Timestamp, Why, Word};

/// Transactions whose words came before their requests did. Beyond, the oldest half goes, and the participants ask again.
const EARLY_MAX: usize = 4096;
/// A timestamp above this is nobody's: no clock says it, and the order never needs it.
const TIMESTAMP_MAX: Timestamp = Timestamp(1 << 62);

/// What one shard knows of distributed transactions. See the crate's documentation.
#[derive(Debug)]
pub struct Participant {
    pub(crate) shard: ShardId,
    pub(crate) transactions: BTreeMap<RpcId, Distributed>,
    pub(crate) pending: Pending,
    pub(crate) fresh: Fresh,
    pub(crate) gates: Gates,
    /// The greatest timestamp that was proposed or executed here.
    pub(crate) floor: Timestamp,
    /// Nothing is executed above the part of this that is durable.
    pub(crate) ceiling: Timestamp,
    pub(crate) logged_ceiling: (Timestamp, LogEnd),
    /// Every member holds the log up to here.
    pub(crate) synced: LogEnd,
    /// Up to here nothing of the log is lost any more, also if every machine loses power (R8.17).
    pub(crate) durable: LogEnd,
    pub(crate) work: WorkList,
    /// Words that came before their requests.
    early: Aging<Vec<(ShardId, Word)>>,
    /// Transactions that were pending, and are no more.
    pub(crate) released: Vec<RpcId>,
    pub(crate) words: Vec<(ShardId, Word)>,
    /// Words that say another timestamp than the one at which a transaction was executed here.
    contradicted: u64,
    /// How often another participant was against what is executed here: it has lost its proposal, more than a loss of power takes
    /// (R8.17). Nobody waits for it.
    torn: u64,
    pub(crate) opened: Vec<Opened>,
    /// See [`Self::leave_votes_to_clients`].
    pub(crate) votes_are_clients: bool,
}

impl Participant {
    /// Knows of no transaction.
    #[must_use]
    pub fn new(shard: ShardId) -> Self {
        Self {
            shard,
            transactions: BTreeMap::new(),
            pending: Pending::default(),
            fresh: Fresh::default(),
            gates: Gates::default(),
            floor: Timestamp(0),
            ceiling: Timestamp(0),
            logged_ceiling: (Timestamp(0), LogEnd::START),
            synced: LogEnd::START,
            durable: LogEnd::START,
            work: WorkList::default(),
            early: Aging::new(EARLY_MAX),
            released: Vec::new(),
            words: Vec::new(),
            contradicted: 0,
            torn: 0,
            opened: Vec::new(),
            votes_are_clients: false,
        }
    }

    /// A proposal is logged; its entry ends here. A replay of the log calls this, too.
    ///
    /// # Panics
    /// If the transaction is known, or this shard is none of its participants.
    pub fn proposed(&mut self, rpc: RpcId, proposal: Proposal, at: Timestamp, end: LogEnd) {
        self.floor = self.floor.max(at);
        self.pending.insert((at, rpc), proposal.class, &proposal.footprint);
        let body = proposal.body;
        self.insert(rpc, proposal, Phase::Pending(at), end);
        for (from, word) in self.early.remove(rpc).flatten().filter(|(_, word)| word.body == body) {
            let unknown = self.on_word(from, &word);
            assert!(unknown.is_none(), "it is known now");
        }
    }

    /// That it does not happen is logged: a CONFLICT, or the end of what was pending. A replay of the log calls this, too. (A check
    /// of this shard that says no: see [`Self::aborted`].)
    ///
    /// If only *never* says so, its keys are free when the end is synced. Another primary may have executed it meanwhile, settled
    /// it and let it go; then its participants rightly say *never*. This one is deposed, does not know it, and will sync nothing.
    ///
    /// # Panics
    /// If it was executed (T1).
    pub fn ended(&mut self, rpc: RpcId, proposal: Proposal, why: Why, end: LogEnd) {
        drop(self.early.remove(rpc));
        match self.transactions.get_mut(&rpc) {
            Some(known) => {
                assert!(matches!(known.phase, Phase::Pending(_)), "T1: {rpc} has an outcome");
                (known.phase, known.outcome_until) = (Phase::Against(why), end);
                let is_sure = end <= self.synced || known.peers.iter().any(|peer| peer.against.is_some());
                if is_sure || planted::is_on(Bug::NeverFreesAtOnce) {
                    self.release(rpc);
                } else {
                    self.move_to(rpc, Timestamp(0));
                }
                self.note_logged(end, rpc);
            }
            None => self.insert(rpc, proposal, Phase::Against(why), end),
        }
    }

    /// A check of a coordinated transaction that could be proposed says no, and that is logged as its outcome. `checked`: what the
    /// checks of this shard read. Returns the gate of the answer, if it is closed, and what the gate waits for, which is logged with
    /// it (R8.5, R8.15). A replay of the log calls this, too. The transaction may be forgotten before the gate opens, if it is let go
    /// (see [`Self::let_go`]): nobody waits for its answer then. What `checked` writes is what others find of it, its operation key.
    ///
    /// A check must not read what is pending: it would run ahead of it, and leave a gate that what is pending has to wait for, which
    /// it may wait for itself. So only what holds locks has checks, on its own keys.
    ///
    /// # Panics
    /// If the transaction is known or not coordinated, or if a check reads a key that is not in its footprint.
    pub fn aborted(
        &mut self,
        rpc: RpcId,
        proposal: Proposal,
        checked: &Footprint,
        end: LogEnd,
        origin: Origin<'_>,
    ) -> Option<(GateId, Vec<RpcId>)> {
        assert!(proposal.class == Class::Coordinated, "{rpc} holds no locks");
        assert!(!self.transactions.contains_key(&rpc), "{rpc} has voted, or has an outcome");
        assert!(proposal.footprint.covers(checked), "{rpc} checks what it has not locked");
        self.ended(rpc, proposal, Why::Abort, end);
        self.pass(Some(rpc), checked, origin).filter(|_| !planted::is_on(Bug::AbortUngated))
    }

    /// It is executed; its group ends here. Returns the gate of its answer, if it is closed, and what the gate waits for, which is
    /// logged with it (R8.15). A replay of the log calls this, too.
    ///
    /// # Panics
    /// If it is not pending here.
    pub fn executed(
        &mut self,
        rpc: RpcId,
        at: Timestamp,
        end: LogEnd,
        origin: Origin<'_>,
    ) -> Option<(GateId, Vec<RpcId>)> {
        let known = self.transactions.get_mut(&rpc).expect("what is executed has proposed");
        assert!(matches!(known.phase, Phase::Pending(_)), "T1: {rpc} has an outcome");
        known.outcome_until = end;
        let is_without = known.proposal.class == Class::Coordinated && planted::is_on(Bug::CoordinatedWithoutGate);
        self.floor = self.floor.max(at);
        let gate = self.gates.pass((!is_without).then_some(rpc), &known.proposal.footprint, origin);
        let members = gate.iter().copied().collect();
        let gate = (!gate.is_empty()).then(|| self.gates.close(Some(rpc), gate));
        known.phase = Phase::Executed(Executed { at, gate, is_settled: false, told_gate: false });
        self.release(rpc);
        self.note_logged(end, rpc);
        gate.map(|gate| (gate, members))
    }

    /// It is pending no more: its keys are free.
    fn release(&mut self, rpc: RpcId) {
        let known = self.transactions.get_mut(&rpc).expect("what is released is known");
        let footprint = &known.proposal.footprint;
        let Keys::InLine(place) = known.keys else { unreachable!("{rpc} holds no keys") };
        self.pending.remove((place, rpc), footprint);
        self.released.push(rpc);
        self.pending.next_in_line((place, rpc), footprint, |next| self.work.add(Work::Look, next));
        known.keys = if known.outcome_until > self.synced { Keys::Fresh } else { Keys::Free };
        if let Keys::Fresh = known.keys {
            self.fresh.insert(footprint);
        }
    }

    /// Its place in the order is another one now: its final timestamp, or the first of all if its end is not sure.
    fn move_to(&mut self, rpc: RpcId, place: Timestamp) {
        let known = self.transactions.get_mut(&rpc).expect("what moves is known");
        let Keys::InLine(from) = known.keys else { unreachable!("{rpc} holds no keys") };
        known.keys = Keys::InLine(place);
        let (from, footprint): (Place, _) = ((from, rpc), &known.proposal.footprint);
        self.pending.move_to(from, place, footprint);
        self.pending.next_in_line(from, footprint, |next| self.work.add(Work::Look, next));
    }

    /// The transactions whose keys are free now: what waits for one of them may try again.
    pub fn take_released(&mut self) -> Vec<RpcId> {
        std::mem::take(&mut self.released)
    }

    /// A single-shard operation executes, or a check says no. `rpc`: the update that it is; `None`: a read. Returns the gate of its
    /// answer, if it is closed, and what the gate waits for, which is logged with an update (R8.15). A replay of the log calls this, too.
    pub fn pass(
        &mut self,
        rpc: Option<RpcId>,
        footprint: &Footprint,
        origin: Origin<'_>,
    ) -> Option<(GateId, Vec<RpcId>)> {
        let inherits = matches!(origin, Origin::Log { gate } if !gate.is_empty());
        if self.gates.are_all_open() && !inherits {
            return None;
        }
        let gate = self.gates.pass(None, footprint, origin);
        let members = gate.iter().copied().collect();
        (!gate.is_empty()).then(|| (self.gates.close(rpc, gate), members))
    }

    /// What the answer of an operation would wait for that executed now. Nothing changes.
    #[must_use]
    pub fn gate_of(&self, footprint: &Footprint) -> Vec<RpcId> {
        self.gates.inherited(footprint).into_iter().collect()
    }

    /// Whether it would wait for anything.
    #[must_use]
    pub fn is_gated(&self, footprint: &Footprint) -> bool {
        !self.gates.inherited(footprint).is_empty()
    }

    /// A gate for an answer that must wait as an operation would, and that nobody has to wait for (R8.16). `None`: it is open.
    pub fn wait_as(&mut self, footprint: &Footprint) -> Option<GateId> {
        let gate = self.gates.inherited(footprint);
        (!gate.is_empty()).then(|| self.gates.close(None, gate))
    }

    /// Whether its client may be told what the transaction comes to here as soon as the proposal is durable (R8.8 \[M\]): its
    /// keys are locked, so that it will find what it finds now, and all that it has seen is settled.
    #[must_use]
    pub fn may_tell_prepared(&self, rpc: RpcId) -> bool {
        let Some(known) = self.transactions.get(&rpc) else { return false };
        let is_prepared = known.proposal.class == Class::Coordinated && matches!(known.phase, Phase::Pending(_));
        let is_open = || self.gates.inherited(&known.proposal.footprint).is_empty();
        is_prepared && (is_open() || planted::is_on(Bug::PreparedUngated))
    }

    /// The gate of a transaction's own answer, if it is closed.
    #[must_use]
    pub fn gate_of_answer(&self, rpc: RpcId) -> Option<GateId> {
        match self.transactions.get(&rpc)?.phase {
            Phase::Executed(executed) => executed.gate,
            Phase::Pending(_) | Phase::Against(_) => None,
        }
    }

    /// Whether no operation of this shard alone has to look at anything here: nothing is pending or fresh, and all that was
    /// executed is settled.
    #[inline]
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.pending.is_empty() && self.fresh.is_empty() && self.gates.are_all_open()
    }

    /// How many transactions are known.
    #[must_use]
    pub fn count(&self) -> usize {
        self.transactions.len()
    }

    /// What was proposed under this id, or was recorded to be refused.
    #[must_use]
    pub fn proposal_of(&self, rpc: RpcId) -> Option<&Proposal> {
        self.transactions.get(&rpc).map(|known| &known.proposal)
    }

    /// What an operation of this shard alone must wait for before it executes (R8.3, R8.7). An update that has waited long can be
    /// proposed as an independent transaction of this shard alone: then nothing that comes later goes before it.
    #[must_use]
    pub fn blocked_by(&self, footprint: &Footprint) -> Option<RpcId> {
        self.pending.in_the_way(footprint).filter(|_| !planted::is_on(Bug::RunsAheadOfPending))
    }

    /// What a read of two rounds must wait for (R8.16, 0060): all that conflicts when the read comes. What is proposed later comes after the
    /// moment between the rounds.
    #[must_use]
    pub fn blocked_by_all(&self, footprint: &Footprint) -> BTreeSet<RpcId> {
        self.pending.all_in_the_way(footprint)
    }

    /// What an operation must wait for that looks at keys which it cannot name beforehand, as a listing does: everything that is
    /// pending and writes. What is proposed later need not be waited for. `None`: there are more than `most`.
    #[must_use]
    pub fn writers(&self, most: usize) -> Option<BTreeSet<RpcId>> {
        self.pending.writers(most)
    }

    /// Whether an update that executes now must not be answered before it is synced, because of distributed transactions (R8.7
    /// \[M\]). What overlaps with unsynced updates of this shard alone, and whether its gate is closed, the caller knows.
    #[must_use]
    pub fn overlaps(&self, footprint: &Footprint) -> bool {
        let is_fresh = self.fresh.overlaps(footprint) && !planted::is_on(Bug::FreshIsNoOverlap);
        is_fresh || self.pending.in_the_way(footprint).is_some()
    }

    /// What the client asked for under this id, if the transaction is known here (see [`Proposal::body`]).
    #[must_use]
    pub fn body_of(&self, rpc: RpcId) -> Option<u64> {
        self.transactions.get(&rpc).map(|known| known.proposal.body)
    }

    /// Whether the transaction is known here and has no outcome. A replay asks: of an entry that was copied to the end of the log
    /// the log may have both.
    #[must_use]
    pub fn is_pending(&self, rpc: RpcId) -> bool {
        self.transactions.get(&rpc).is_some_and(|known| matches!(known.phase, Phase::Pending(_)))
    }

    /// The step that was asked for last finds no room: the others go on, and it comes again after [`Self::take_up`].
    pub fn put_off(&mut self) {
        if let Some(rpc) = self.work.next_look()
            && let Some(known) = self.transactions.get_mut(&rpc)
        {
            known.is_put_off = true;
            self.work.remove(Work::Look, rpc);
            self.work.add(Work::PutOff, rpc);
            self.tell(rpc);
        }
    }

    /// Whether a step has found no room, and has not come again.
    #[must_use]
    pub fn has_put_off(&self) -> bool {
        self.work.first(Work::PutOff).is_some()
    }

    /// What was put off is looked at again.
    pub fn take_up(&mut self) {
        while let Some(rpc) = self.work.first(Work::PutOff) {
            self.work.remove(Work::PutOff, rpc);
            self.work.add(Work::Look, rpc);
            self.transactions.get_mut(&rpc).expect("what is put off is known").is_put_off = false;
        }
    }

    /// Everything without an outcome, and how often the others had time to speak since it is here ([`Self::ask_again`]).
    pub fn pending(&self) -> impl Iterator<Item = (RpcId, u32)> {
        let pending = self.transactions.iter().filter(|(_, known)| matches!(known.phase, Phase::Pending(_)));
        pending.map(|(&rpc, known)| (rpc, known.age))
    }

    /// The participants that have not voted on a transaction.
    #[must_use]
    pub fn silent(&self, rpc: RpcId) -> Vec<ShardId> {
        let peers = self.transactions.get(&rpc).into_iter().flat_map(|known| &known.peers);
        peers.filter(|peer| peer.voted.is_none() && peer.executed.is_none()).map(|peer| peer.shard).collect()
    }

    /// An entry is logged that says: nothing is executed above this before the entry is durable. Of several, the highest counts:
    /// an old one may be copied to the end of the log.
    pub fn ceiling_logged(&mut self, ceiling: Timestamp, end: LogEnd) {
        if ceiling > self.logged_ceiling.0 {
            self.logged_ceiling = (ceiling, end);
        }
    }

    /// The log is durable up to here: it is synced, and nothing of it is lost any more, also if every machine loses power. Words say
    /// only what is durable (R8.17 \[M\]), and nothing is executed or forgotten before.
    pub fn on_durable(&mut self, durable: LogEnd) {
        self.on_synced(durable);
        self.durable = self.durable.max(durable);
        let (ceiling, end) = self.logged_ceiling;
        if end <= self.durable && ceiling > self.ceiling {
            self.ceiling = ceiling;
            self.look_at_all();
        }
        for (_, rpc) in self.work.take(Work::NotDurable(LogEnd::START)..=Work::NotDurable(self.durable)) {
            self.work.add(Work::Look, rpc);
        }
        for (rpc, to, body) in self.work.take_nevers(self.durable) {
            self.tell_never(to, rpc, body);
        }
    }

    /// Whether something that was logged is not durable.
    #[must_use]
    pub fn waits_to_be_durable(&self) -> bool {
        self.work.of(Work::NotDurable(LogEnd::START)..=Work::NotDurable(LogEnd::MAX)).next().is_some()
    }

    /// The log is synced up to here: what an outcome has freed is free of it.
    pub fn on_synced(&mut self, synced: LogEnd) {
        if synced <= self.synced {
            return;
        }
        // What is not synced is not durable.
        let newly = Work::NotDurable(LogEnd(self.synced.0 + 1))..=Work::NotDurable(synced);
        let newly: Vec<_> = self.work.of(newly).collect();
        self.synced = synced;
        for (_, rpc) in newly {
            let Some(known) = self.transactions.get_mut(&rpc).filter(|known| known.outcome_until <= synced) else {
                continue;
            };
            match (known.keys, known.phase) {
                (Keys::Fresh, _) => {
                    known.keys = Keys::Free;
                    self.fresh.remove(&known.proposal.footprint);
                }
                (Keys::InLine(_), Phase::Against(_)) => self.release(rpc),
                (Keys::InLine(_) | Keys::Free, _) => {}
            }
        }
    }

    /// A new primary begins to serve with what the log says, all of which is durable before it says a word. It starts above the
    /// ceiling that it found, takes nothing as settled (R8.6), and votes again.
    pub fn begin_serving(&mut self, end: LogEnd) {
        drop(self.work.take_nevers(LogEnd::MAX)); // who asked an earlier term asks again
        self.on_durable(end);
        if !planted::is_on(Bug::CeilingIgnored) {
            self.floor = self.floor.max(self.ceiling).max(self.logged_ceiling.0);
        }
        for known in self.transactions.values_mut() {
            known.asks = true;
        }
        // A logged gate may name what was forgotten since, which had settled by then (R8.9). And what this one knew as settled in
        // an earlier term of its own, another primary may have waited for meanwhile.
        let is_settled = |rpc: &RpcId| self.transactions.get(rpc).is_none_or(Distributed::is_settled);
        for rpc in self.gates.waited_for().filter(is_settled).collect::<Vec<_>>() {
            self.settle(rpc);
        }
        self.look_at_all();
    }

    /// Whether another participant has spoken of a transaction whose request has not come yet: it is proposed there.
    #[must_use]
    pub fn is_spoken_of(&self, rpc: RpcId) -> bool {
        self.early.contains(rpc)
    }

    /// Another participant speaks. Returns what it asks about, if that is not known here: it is new (R8.11: record a conflict
    /// with the word's body and participants, and call [`Self::ended`]), or stale ([`Self::say_never`]).
    #[must_use = "a participant that asks waits for an answer"]
    pub fn on_word(&mut self, from: ShardId, word: &Word) -> Option<RpcId> {
        if let Said::Proposed(at) | Said::Executed { at, .. } = word.said
            && at > TIMESTAMP_MAX
        {
            return None;
        }
        let Some(known) = self.transactions.get_mut(&word.rpc) else {
            if word.asks {
                return Some(word.rpc);
            }
            if word.said != Said::Never {
                self.keep_early(from, word);
            }
            return None;
        };
        if known.proposal.body != word.body && !planted::is_on(Bug::BodiesUncompared) {
            // Its client has told them different things. What the other asks about never happens here, once it is sure that this
            // does not get lost.
            if word.asks && (known.proposed_until <= self.durable || planted::is_on(Bug::OtherBodyUnsynced)) {
                self.tell_never(from, word.rpc, word.body);
            }
            return None;
        }
        // A stranger is not heard.
        let peer = known.peers.iter_mut().find(|peer| peer.shard == from)?;
        match word.said {
            Said::Proposed(at) => peer.voted = Some(at),
            Said::Executed { at, recorded, .. } => {
                // T1: no honest participant says another timestamp than the one that follows from all votes. It is not believed.
                if matches!(known.phase, Phase::Executed(own) if own.at != at) {
                    self.contradicted += 1;
                    return None;
                }
                peer.executed = Some(at);
                peer.recorded |= recorded;
            }
            // It has lost what it said before, and knows no more than one that never says anything.
            Said::Against(_) if matches!(known.phase, Phase::Executed(_)) => {
                self.torn += u64::from(!peer.says_never);
                peer.says_never = true;
            }
            Said::Against(why) => (peer.against, peer.recorded) = (Some(why), true),
            Said::Never => peer.says_never = true,
        }
        let moves = known.final_timestamp().filter(|&at| matches!(known.keys, Keys::InLine(place) if place != at));
        self.work.add(Work::Look, word.rpc);
        if let Some(at) = moves {
            self.move_to(word.rpc, at);
        }
        self.on_behind(from, word.rpc, word.said, &word.behind);
        if word.asks {
            self.answer(from, word.rpc);
        }
        None
    }

    /// For the simulator and the search, where no participant lies.
    ///
    /// # Panics
    /// If another participant has executed a transaction at another timestamp, or is against what is executed here (T1).
    pub fn assert_invariants(&self) {
        assert_eq!(self.contradicted, 0, "T1: {} is told of other timestamps than its own", self.shard);
        assert_eq!(self.torn, 0, "T1: others are against what {} has executed", self.shard);
    }

    /// A participant is to hear that nothing is known of the transaction here, and nothing will be: its id is stale (R8.11). What says
    /// so ends at `until` in the log, and must be durable before.
    pub fn say_never(&mut self, to: ShardId, rpc: RpcId, body: u64, until: LogEnd) {
        let never = |until| Work::Never { to, body, until };
        // It may ask again before it can be answered.
        if self.work.of(never(LogEnd::START)..=never(LogEnd::MAX)).all(|(_, known)| known != rpc) {
            self.work.add(never(until), rpc);
        }
    }

    fn tell_never(&mut self, to: ShardId, rpc: RpcId, body: u64) {
        let (participants, behind) = (Vec::new(), Vec::new());
        self.words.push((to, Word { rpc, body, said: Said::Never, asks: false, participants, behind }));
    }

    /// The words that are to leave now, and for whom. Each is durable.
    pub fn take_words(&mut self) -> Vec<(ShardId, Word)> {
        std::mem::take(&mut self.words)
    }

    /// The gates that have opened, and the updates whose gates they were: the answers that waited for them leave.
    pub fn take_opened(&mut self) -> Vec<(GateId, Option<RpcId>)> {
        std::mem::take(&mut self.opened)
    }

    /// Whether a gate has opened.
    #[must_use]
    pub fn is_open(&self, gate: GateId) -> bool {
        self.gates.is_open(gate)
    }

    /// Whether nothing is pending, kept or waited for.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.transactions.is_empty()
            && self.pending.is_empty()
            && self.fresh.is_empty()
            && self.gates.are_all_open()
            && self.work.is_empty()
    }

    fn insert(&mut self, rpc: RpcId, proposal: Proposal, phase: Phase, end: LogEnd) {
        let is_own = |shard: &ShardId| *shard == self.shard;
        assert!(proposal.participants.iter().any(is_own), "{rpc} is none of {}", self.shard);
        let silent = |shard| Peer {
            shard,
            voted: None,
            executed: None,
            against: None,
            says_never: false,
            recorded: false,
            settled: false,
            behind: Vec::new(),
        };
        let others = proposal.participants.iter().copied().filter(|shard| !is_own(shard));
        let mut peers: Vec<_> = others.map(silent).collect();
        peers.sort_unstable_by_key(|peer| peer.shard);
        peers.dedup_by_key(|peer| peer.shard);
        let keys = match phase {
            Phase::Pending(at) => Keys::InLine(at),
            Phase::Executed(_) | Phase::Against(_) => Keys::Free,
        };
        let known = Distributed {
            keys,
            peers,
            proposal,
            phase,
            proposed_until: end,
            outcome_until: end,
            let_go_until: None,
            said: None,
            is_put_off: false,
            age: 0,
            asks: false,
        };
        let before = self.transactions.insert(rpc, known);
        assert!(before.is_none(), "E1: {rpc} was known");
        self.note_logged(end, rpc);
    }

    pub(crate) fn note_logged(&mut self, end: LogEnd, rpc: RpcId) {
        self.work.add(Work::Look, rpc);
        if end > self.durable {
            self.work.add(Work::NotDurable(end), rpc);
        }
    }

    fn keep_early(&mut self, from: ShardId, word: &Word) {
        let Word { rpc, body, said, asks, .. } = *word;
        self.early.note(rpc, |words| {
            words.retain(|(known, _)| *known != from);
            words.push((from, Word { rpc, body, said, asks, participants: Vec::new(), behind: Vec::new() }));
        });
    }

    /// Words whose requests never come go when they are old.
    pub(crate) fn age_early_words(&mut self) {
        self.early.age();
    }

    fn look_at_all(&mut self) {
        self.transactions.keys().for_each(|&rpc| self.work.add(Work::Look, rpc));
    }
}
