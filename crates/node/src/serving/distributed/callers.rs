//! The clients of transactions over several shards: whom the outcome of each is told.

use std::collections::BTreeMap;

use kasha_distributed::GateId;
use kasha_machine::{Effect, Effects, Gate};
use kasha_types::{Epoch, RpcId, ShardId};
use kasha_wire::AnswerView;

use crate::request::Caller;
use crate::serving::waiting::{Waiting, WaitingAnswer};

/// What a transaction's client is told, and was.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// Its newest attempt hears the outcome.
    outcome: Option<Caller>,
    /// It was told that the transaction is prepared, and hears it if the transaction does not happen.
    end: Option<Caller>,
    /// It may have been told versions that the version floor decides: from there a key without a value gets its version (R4.8). The
    /// floor stays until the transaction is pending no more.
    holds_floor: bool,
}

impl Told {
    fn is_needed(&self) -> bool {
        self.outcome.is_some() || self.end.is_some() || self.holds_floor
    }
}

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    told: BTreeMap<RpcId, Told>,
}

impl Callers {
    /// A client waits for this transaction. Connections may deliver attempts out of order.
    pub fn wait_for(&mut self, rpc: RpcId, caller: Caller) {
        let known = self.told.entry(rpc).or_default().outcome.get_or_insert(caller);
        if known.envelope.attempt <= caller.envelope.attempt {
            *known = caller;
        }
    }

    /// A client waits for this transaction if it does not happen.
    pub fn wait_for_end(&mut self, rpc: RpcId, caller: Caller) {
        self.told.entry(rpc).or_default().end = Some(caller);
    }

    /// The client of this transaction may be told versions that the floor decides.
    pub(super) fn hold_floor(&mut self, rpc: RpcId) {
        self.told.entry(rpc).or_default().holds_floor = true;
    }

    /// Whether the floor stays for one of these.
    pub(super) fn is_floor_held(&mut self, is_pending: impl Fn(RpcId) -> bool) -> bool {
        let mut is_held = false;
        self.told.retain(|&rpc, told| {
            told.holds_floor = told.holds_floor && is_pending(rpc);
            is_held |= told.holds_floor;
            told.is_needed()
        });
        is_held
    }

    /// The transaction is decided.
    pub(super) fn decided(&mut self, rpc: RpcId, happens: bool) {
        let Some(told) = self.told.get_mut(&rpc) else { return };
        let end = told.end.take();
        if !told.is_needed() {
            self.told.remove(&rpc);
        }
        if let Some(caller) = end.filter(|_| !happens) {
            self.wait_for(rpc, caller);
        }
    }

    /// Nobody waits for this transaction any more.
    pub(super) fn forget(&mut self, rpc: RpcId) {
        self.told.remove(&rpc);
    }

    /// Answers the client of a transaction, if one waits: behind this gate, if there is one. `synced`: the result cannot be lost when
    /// it leaves.
    pub fn answer(
        &mut self,
        (shard, epoch, rpc): (ShardId, Epoch, RpcId),
        (result, synced): (&[u8], bool),
        (gate, when): (Option<(GateId, &mut Waiting)>, Gate),
        out: &mut Effects,
    ) {
        let Some(told) = self.told.get_mut(&rpc) else { return };
        let Some(caller) = told.outcome.take() else { return };
        if !told.is_needed() {
            self.told.remove(&rpc);
        }
        let view = AnswerView { rpc, epoch, attempt: caller.envelope.attempt, synced, shard, result };
        match gate {
            Some((gate, waiting)) => {
                let mut frame = Vec::new();
                view.encode(&[], &mut frame);
                // Without a place its client asks again.
                waiting.hold(gate, WaitingAnswer { to: caller.to, frame, when });
            }
            None => {
                let mark = out.mark();
                view.encode(&[], out.arena());
                let head = out.span_from(mark);
                out.push(Effect::Send { to: caller.to, head, tail: None, gate: when });
            }
        }
    }
}
