//! Acknowledged outcomes (R2.1, R2.2, E3): a client acknowledges an update only when it can know the outcome.
//!
//! It knows the outcome if one attempt has promised it (see `promises`), if the update was refused for good, or if its
//! table is gone. Of a transaction over several shards it knows the outcome if all participants have said that they
//! executed it, or have prepared it (R8.8), or one of them why it does not happen. A client that mixes two attempts, takes a refusal for an outcome, or gives an id up, acknowledges too
//! much: its update may be lost, or run later.

use std::collections::BTreeSet;

use kasha_types::{AckedBelow, RpcId, Sequence, ShardId};
use kasha_wire::frame::Kind;
use kasha_wire::{Body, OutcomeCode, Refusal, Refused, RequestView, hot};

use crate::checkers::promises::{Promise, Promises};
use crate::configurations::Configurations;
use crate::probes::Probes;
use crate::world::{Sent, View, Watch};

/// Watches the acknowledgements of clients.
#[derive(Debug, Default)]
pub struct AcknowledgedOutcomes {
    promises: Promises,
    /// Updates that were promised, or refused for good.
    known: BTreeSet<RpcId>,
    /// Participants that have said that they executed a transaction, or prepared it.
    executed: BTreeSet<(RpcId, ShardId)>,
    violations: Vec<String>,
    checked: u64,
}

impl AcknowledgedOutcomes {
    /// Watches clients under these configurations.
    #[must_use]
    pub fn new(configurations: Configurations) -> Self {
        Self { promises: Promises::new(configurations), ..Self::default() }
    }

    /// A client sends this body: which updates does it acknowledge for the first time?
    fn on_body(&mut self, body: &Body<'_>) {
        let client = body.head.rpc.client;
        let before = self.promises.acknowledged.get(&client).copied().unwrap_or(AckedBelow(1));
        for sequence in (before.0..body.head.acknowledgement.0).map(Sequence) {
            let rpc = RpcId { client, sequence };
            let Some((shard, tables)) = self.promises.updates.get(&rpc) else { continue };
            self.checked += 1;
            let latest = self.promises.configurations.latest();
            // A client gives up what names a table that is gone.
            let has_tables = latest.is_none_or(|latest| tables.iter().all(|&table| latest.has_table(table)));
            if has_tables && !self.known.contains(&rpc) {
                self.violations.push(format!(
                    "acknowledged_outcomes: {rpc} of {shard} was acknowledged, but in no attempt was it called synced, or \
                     answered and accepted by all witnesses (R2.1, R2.2)"
                ));
            }
        }
    }
}

impl AcknowledgedOutcomes {
    fn on_promise(&mut self, promise: Promise) {
        match promise {
            Promise::Update(rpc) => _ = self.known.insert(rpc),
            Promise::Outcome(rpc, shard, OutcomeCode::Done | OutcomeCode::Prepared) => {
                self.executed.insert((rpc, shard));
                let mut participants = self.promises.participants[&rpc].iter();
                if participants.all(|&shard| self.executed.contains(&(rpc, shard))) {
                    self.known.insert(rpc);
                }
            }
            // Another participant's answer says why.
            Promise::Outcome(_, _, OutcomeCode::RefusedElsewhere) => {}
            Promise::Outcome(rpc, ..) => _ = self.known.insert(rpc),
        }
    }
}

/// Whether this refusal means that the outcome will never be known.
fn is_final(why: Refusal) -> bool {
    matches!(why, Refusal::LeaseExpired | Refusal::Stale | Refusal::Reused | Refusal::BadRequest)
}

impl Watch for AcknowledgedOutcomes {
    fn sent(&mut self, sent: &Sent<'_>, _view: &View<'_>) {
        match Kind::from_number(sent.kind) {
            Some(Kind::Request | Kind::Cancel) => {
                if let Ok(request) = RequestView::decode(sent.payload)
                    && let Ok(body) = Body::decode(request.body)
                {
                    self.on_body(&body);
                }
            }
            Some(Kind::Refuse) => {
                if let Ok(refused) = hot::decode_small::<Refused>(sent.payload)
                    && is_final(refused.why)
                {
                    self.known.insert(refused.rpc);
                }
            }
            _ => {}
        }
        if let Some(promise) = self.promises.take_in(sent) {
            self.on_promise(promise);
        }
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("claims checked: acknowledged", self.checked);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use kasha_types::{ClientId, ClusterTime, TableId};
    use kasha_wire::{BodyHead, Update};

    use super::*;
    use crate::checkers::records::tests::SHARD;

    const CLIENT: ClientId = ClientId(7);
    const FIRST: RpcId = RpcId { client: CLIENT, sequence: Sequence(1) };

    /// The number of violations that are found when the second update acknowledges the first.
    fn found(is_known: bool) -> usize {
        let mut watch = AcknowledgedOutcomes::default();
        watch.promises.updates.insert(FIRST, (SHARD, [TableId(1)].into()));
        watch.known.extend(is_known.then_some(FIRST));
        let head = BodyHead {
            rpc: RpcId { client: CLIENT, sequence: Sequence(2) },
            acknowledgement: AckedBelow(2),
            lease_expiry: ClusterTime(9),
            not_after: ClusterTime(0),
            begun: ClusterTime(0),
            table: TableId(1),
        };
        let mut bytes = Vec::new();
        Body::encode(&head, None, &Update::delete(b"k"), &mut bytes);
        watch.on_body(&Body::decode(&bytes).expect("a body"));
        watch.take_violations().len()
    }

    #[test]
    fn only_what_is_known_may_be_acknowledged() {
        assert_eq!((found(true), found(false)), (0, 1));
    }
}
