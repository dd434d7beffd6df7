//! When a transaction is settled, and when it is forgotten (R8.4, R8.9).

use kasha_types::planted::{self, Bug};
use kasha_types::{LogEnd, RpcId};

use crate::record::{Distributed, Executed, Keys, Phase, Work};
use crate::{Behind, Participant};

impl Distributed {
    /// Every participant has executed it, and every gate has opened.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.phase, Phase::Executed(Executed { is_settled: true, .. }))
    }

    fn is_settled_everywhere(&self) -> bool {
        matches!(self.phase, Phase::Executed(executed) if executed.gate.is_none() || planted::is_on(Bug::SettledUngated))
            && self.peers.iter().all(|peer| peer.settled || peer.says_never)
    }
}

impl Participant {
    /// Its client has the result and says so, or its lease is over; the entry that says it ends here. Nothing happens if the
    /// transaction is not known: what is below an acknowledgement is no new request. After a replay, whose entries may have
    /// another order, the caller says again what acknowledgements and leases say.
    pub fn let_go(&mut self, rpc: RpcId, end: LogEnd) {
        if let Some(known) = self.transactions.get_mut(&rpc)
            && known.let_go_until.is_none()
        {
            known.let_go_until = Some(end);
            self.note_logged(end, rpc);
        }
    }

    pub(crate) fn settle_if_all_say_so(&mut self, rpc: RpcId) {
        let Some(known) = self.transactions.get_mut(&rpc) else { return };
        if known.is_settled() || !known.is_settled_everywhere() {
            return;
        }
        if let Phase::Executed(executed) = &mut known.phase {
            executed.is_settled = true;
        }
        let settled = Behind { rpc, body: known.proposal.body };
        self.settle(rpc);
        self.open_told_gates(settled);
    }

    pub(crate) fn settle(&mut self, rpc: RpcId) {
        let before = self.opened.len();
        self.gates.settle(rpc, &mut self.opened);
        for (_, owner) in &self.opened[before..] {
            let Some(owner) = owner else { continue };
            if let Some(known) = self.transactions.get_mut(owner)
                && let Phase::Executed(executed) = &mut known.phase
            {
                executed.gate = None;
                self.work.add(Work::Look, *owner);
            }
        }
    }

    /// A transaction that nobody needs any more (R8.9 \[M\]): its entries may die, if it is returned. Until then they must not,
    /// whatever acknowledgements and leases say.
    ///
    /// To be asked when there is no next step.
    pub fn next_forgotten(&mut self) -> Option<RpcId> {
        let rpc = self.work.first(Work::Forget)?;
        self.forgotten(rpc);
        Some(rpc)
    }

    pub(crate) fn is_done(&self, rpc: RpcId) -> bool {
        let Some(known) = self.transactions.get(&rpc) else { return false };
        let is_pending = matches!(known.phase, Phase::Pending(_));
        let is_over = !is_pending && known.outcome_until <= self.durable;
        let is_recorded = known.peers.iter().all(|peer| peer.recorded || peer.says_never);
        let is_settled = known.is_settled() || matches!(known.phase, Phase::Against(_));
        let is_let_go = known.let_go_until.is_some_and(|end| end <= self.durable);
        is_let_go
            && is_over
            && (is_recorded || planted::is_on(Bug::ForgottenUnrecorded))
            && (is_settled || planted::is_on(Bug::ForgottenUnsettled))
    }

    /// It was forgotten. A follower calls this when the log says so: what was forgotten had settled.
    pub fn forgotten(&mut self, rpc: RpcId) {
        if let Some(known) = self.transactions.remove(&rpc) {
            match known.keys {
                Keys::InLine(place) => self.pending.remove((place, rpc), &known.proposal.footprint),
                Keys::Fresh => self.fresh.remove(&known.proposal.footprint),
                Keys::Free => {}
            }
            let ends = [Some(known.outcome_until), Some(known.proposed_until), known.let_go_until];
            for end in ends.into_iter().flatten().filter(|end| *end > self.durable) {
                self.work.remove(Work::NotDurable(end), rpc);
            }
            if known.is_put_off {
                self.work.remove(Work::PutOff, rpc);
            }
            self.forget_told_gates(&known, rpc);
            if let Phase::Executed(_) = known.phase {
                self.open_told_gates(Behind { rpc, body: known.proposal.body }); // what is forgotten had settled
            }
        }
        [Work::Look, Work::Forget].into_iter().for_each(|work| self.work.remove(work, rpc));
        if !planted::is_on(Bug::ForgottenUnsettled) {
            self.settle(rpc);
        }
    }
}
