//! Rounds: whether this member still leads (R9.2 \[M\]).
//!
//! An answer to a question may be given only by a leader that led when the question came, or later. So the answer waits for a round
//! that *began* after the question: a quorum had then entered no later view, so no later leader had committed anything yet. A
//! round that was under way when the question came does not count. One round is under way at a time; the next takes all that came
//! meanwhile. Rounds need no fsync: they say what is, and promise nothing.
//!
//! A round carries what all are to remember (R9.4), what is committed, and the digest that a quorum agrees about (R9.11).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kasha_types::Tick;
use kasha_types::planted::{self, Bug};

use crate::message::Message;
use crate::output::Trouble;
use crate::replica::{Replica, Role};
use crate::{MemberId, Memory, OpNumber, Options, RoundNumber, State, View};

#[derive(Debug)]
struct UnderWay {
    round: RoundNumber,
    value: Vec<u8>,
    here: BTreeSet<MemberId>,
}

/// The rounds of a leader.
#[derive(Debug)]
pub(crate) struct Rounds {
    begun: RoundNumber,
    confirmed: RoundNumber,
    under_way: Option<UnderWay>,
    /// Since when somebody waits for a round that has not begun.
    asked_at: Option<Tick>,
    completed_at: Tick,
    /// What each other member said last of its state.
    digests: BTreeMap<MemberId, (OpNumber, u64)>,
    agreed: Option<(OpNumber, u64)>,
}

impl Rounds {
    pub fn new(now: Tick) -> Self {
        Self {
            begun: RoundNumber(0),
            confirmed: RoundNumber(0),
            under_way: None,
            asked_at: None,
            completed_at: now,
            digests: BTreeMap::new(),
            agreed: None,
        }
    }

    /// When the next round begins that somebody waits for; not while one is under way.
    pub fn begins_at(&self, options: &Options) -> Option<Tick> {
        self.asked_at.filter(|_| self.under_way.is_none()).map(|at| at.after(options.gather))
    }

    /// When a quorum answered last.
    pub fn completed_at(&self) -> Tick {
        self.completed_at
    }

    /// We stood still ourselves: that others were not heard meanwhile says nothing of them.
    pub fn excuse(&mut self, stall: Duration) {
        self.completed_at = self.completed_at.after(stall);
    }
}

impl<S: State, M: Memory> Replica<S, M> {
    /// A question has come: its answer waits for this round. `None`: this member does not lead.
    pub fn question(&mut self, now: Tick) -> Option<RoundNumber> {
        let is_alone = self.is_alone();
        let Role::Leads(lead) = &mut self.role else { return None };
        lead.rounds.asked_at.get_or_insert(now);
        let counts = lead.rounds.under_way.is_some() && planted::is_on(Bug::RoundUnderWayCounts);
        let next = RoundNumber(lead.rounds.begun.0 + u64::from(!counts));
        if is_alone && lead.rounds.under_way.is_none() {
            self.begin_round(now); // there is nobody to wait for, and no company to gather
        }
        Some(next)
    }

    /// Whether a quorum has answered a round of this view, and this member knows of all that was committed before it led: an
    /// operation of its own view is committed.
    #[must_use]
    pub fn is_confirmed(&self, round: RoundNumber) -> bool {
        let knows_all = |begin: OpNumber| begin <= self.committed_to;
        let round = if planted::is_on(Bug::AnsweredWithoutRound) { RoundNumber(0) } else { round };
        matches!(&self.role, Role::Leads(lead) if lead.rounds.confirmed >= round && knows_all(lead.begin))
    }

    /// Begins the next round, or says the one again that is under way.
    pub(crate) fn begin_round(&mut self, now: Tick) {
        let Role::Leads(lead) = &mut self.role else { return };
        let rounds = &mut lead.rounds;
        if rounds.under_way.is_none() {
            rounds.begun.0 += 1;
            rounds.asked_at = None;
            let (here, value) = (BTreeSet::from([self.me]), self.memory.ask(now));
            rounds.under_way = Some(UnderWay { round: rounds.begun, value, here });
        }
        let UnderWay { round, value, here, .. } = rounds.under_way.as_ref().expect("just begun");
        let (view, committed, agreed) = (self.view, self.committed_to, rounds.agreed);
        let message = Message::Round { view, round: *round, value: value.clone(), committed, agreed };
        let silent = lead.progress.keys().filter(|member| !here.contains(member));
        let silent: Vec<_> = silent.copied().collect();
        silent.into_iter().for_each(|to| self.send(to, message.clone()));
        self.complete_round(now);
    }

    pub(crate) fn on_round(
        &mut self,
        now: Tick,
        from: MemberId,
        view: View,
        round: RoundNumber,
        value: &[u8],
        committed: OpNumber,
        agreed: Option<(OpNumber, u64)>,
    ) {
        if !self.hears_leader(now, from, view) {
            return;
        }
        if !planted::is_on(Bug::RoundUnheard) {
            self.memory.hear(now, value);
        }
        let has_log = self.log_view == view;
        if has_log {
            self.commit_to(committed.min(self.log.end()));
        }
        if let Some((op, digest)) = agreed
            && self.digest_at(op).is_some_and(|own| own != digest)
            && !planted::is_on(Bug::StatesUncompared)
        {
            return self.stop(Trouble::Differs(op));
        }
        let digest = self.digest_at(committed).map(|digest| (committed, digest));
        let end = has_log.then(|| self.log.end());
        self.send(from, Message::RoundOk { view, round, end, digest });
        match has_log {
            true => self.ask_for_memory(now),
            false => self.ask_leader(now, view),
        }
    }

    fn digest_at(&self, op: OpNumber) -> Option<u64> {
        let found = self.digests.binary_search_by_key(&op, |(op, _)| *op).ok()?;
        Some(self.digests[found].1)
    }

    pub(crate) fn on_round_ok(
        &mut self,
        now: Tick,
        from: MemberId,
        view: View,
        round: RoundNumber,
        end: Option<OpNumber>,
        digest: Option<(OpNumber, u64)>,
    ) {
        if view != self.view {
            return;
        }
        let Role::Leads(lead) = &mut self.role else { return };
        let Some(progress) = lead.progress.get_mut(&from) else { return };
        // What was sent and is not there is sent again.
        progress.sent = end.map(|end| end.min(self.log.end())).max(progress.acknowledged);
        if let Some(under_way) = lead.rounds.under_way.as_mut().filter(|under_way| under_way.round == round) {
            under_way.here.insert(from);
        }
        if let Some((op, digest)) = digest {
            lead.rounds.digests.insert(from, (op, digest));
            self.agree(op, digest);
        }
        self.complete_round(now);
        self.gather_from(now, from);
        self.flush();
    }

    fn complete_round(&mut self, now: Tick) {
        let lists = self.lists();
        let Role::Leads(lead) = &mut self.role else { return };
        let is_quorum = |under_way: &mut UnderWay| lists.is_quorum(|member| under_way.here.contains(&member));
        let Some(done) = lead.rounds.under_way.take_if(is_quorum) else { return };
        lead.rounds.confirmed = done.round;
        lead.rounds.completed_at = now;
    }

    /// R9.11: a quorum may say the same of the state at an operation. Whoever differs stops, the leader too.
    fn agree(&mut self, op: OpNumber, digest: u64) {
        let (own, lists) = (self.digest_at(op), self.lists());
        let Role::Leads(lead) = &mut self.role else { return };
        let says = |member| match member == self.me {
            true => own == Some(digest),
            false => lead.rounds.digests.get(&member) == Some(&(op, digest)),
        };
        if !lists.is_quorum(says) {
            return;
        }
        lead.rounds.agreed = Some((op, digest));
        if own.is_some_and(|own| own != digest) && !planted::is_on(Bug::StatesUncompared) {
            self.stop(Trouble::Differs(op));
        }
    }
}
