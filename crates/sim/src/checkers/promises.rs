//! What clients were promised, read from frames; shared by the checkers that hold the cluster to it.
//!
//! A promise is an update that a primary called synced, or that it answered while all witnesses of the list accepted
//! it, within one attempt (CURP 3.2.1, R2.1). Of a transaction over several shards each participant promises its own part so.

use std::collections::{BTreeMap, BTreeSet};

use kasha_types::{AckedBelow, ClientId, Epoch, ListVersion, NodeId, RpcId, ShardId, TableId};
use kasha_wire::frame::Kind;
use kasha_wire::{AnswerView, Body, OutcomeCode, Recorded, RecordedVerdict, RequestView, ShardConfig, Synced, hot};

use crate::configurations::Configurations;
use crate::world::Sent;

/// The answers to one attempt.
#[derive(Debug, Default)]
pub(crate) struct Attempt {
    pub(crate) list: ListVersion,
    pub(crate) answered: Option<Epoch>,
    pub(crate) accepted: BTreeSet<NodeId>,
}

/// All updates that were asked for, and the answers to them.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    pub(crate) configurations: Configurations,
    /// The shard of each, and the tables of its keys.
    pub(crate) updates: BTreeMap<RpcId, (ShardId, BTreeSet<TableId>)>,
    /// Of a transaction over several shards, each participant has its own.
    pub(crate) attempts: BTreeMap<(RpcId, ShardId, u32), Attempt>,
    pub(crate) acknowledged: BTreeMap<ClientId, AckedBelow>,
    /// The participants of transactions over several shards.
    pub(crate) participants: BTreeMap<RpcId, BTreeSet<ShardId>>,
}

/// What a frame promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// An update of one shard: its completion record stays.
    Update(RpcId),
    /// A participant's outcome of a transaction over several shards: that stays, and if it was executed, each participant
    /// keeps all that it takes to come to the same (R8.1). If it was prepared, the one that said so keeps its proposal.
    Outcome(RpcId, ShardId, OutcomeCode),
}

impl Promises {
    /// Begins without promises, under these configurations.
    pub(crate) fn new(configurations: Configurations) -> Self {
        Self { configurations, ..Self::default() }
    }

    /// Adds a frame. Returns what the frame promises.
    pub(crate) fn take_in(&mut self, sent: &Sent<'_>) -> Option<Promise> {
        match Kind::from_number(sent.kind) {
            Some(Kind::Request | Kind::Cancel) => {
                self.on_request(sent.payload);
                None
            }
            Some(Kind::Answer) => {
                let answer = AnswerView::decode(sent.payload).ok()?;
                if answer.synced {
                    if !self.participants.contains_key(&answer.rpc) {
                        return Some(Promise::Update(answer.rpc));
                    }
                    let code = OutcomeCode::from_number(*answer.result.first()?)?;
                    return Some(Promise::Outcome(answer.rpc, answer.shard, code));
                }
                let key = (answer.rpc, answer.shard, answer.attempt);
                self.attempts.get_mut(&key)?.answered = Some(answer.epoch);
                self.judge(key)
            }
            Some(Kind::Recorded) => {
                let recorded = hot::decode_small::<Recorded>(sent.payload).ok()?;
                let key = (recorded.rpc, recorded.shard, recorded.attempt);
                let attempt = self.attempts.get_mut(&key)?;
                if recorded.verdict != RecordedVerdict::Accepted || attempt.list != recorded.list {
                    return None;
                }
                attempt.accepted.insert(recorded.node);
                self.judge(key)
            }
            Some(Kind::Synced) => Some(Promise::Update(hot::decode_small::<Synced>(sent.payload).ok()?.rpc)),
            _ => None,
        }
    }

    fn on_request(&mut self, payload: &[u8]) {
        let Ok(request) = RequestView::decode(payload) else { return };
        let Ok(body) = Body::decode(request.body) else { return };
        let (rpc, envelope) = (body.head.rpc, request.envelope);
        if let Some(participants) = body.participants() {
            let all = || participants.iter().map(|(shard, _)| shard).collect();
            self.participants.entry(rpc).or_insert_with(all);
        }
        let mut tables = BTreeSet::new();
        body.for_each_key(|table, _, _| _ = tables.insert(table));
        self.updates.insert(rpc, (envelope.shard, tables));
        self.attempts.entry((rpc, envelope.shard, envelope.attempt)).or_default().list = envelope.list;
        let acknowledged = self.acknowledged.entry(rpc.client).or_insert(AckedBelow(1));
        *acknowledged = body.head.acknowledgement.max(*acknowledged);
    }

    /// Whether an attempt has its answer and every witness of its list.
    pub(crate) fn judge(&self, (rpc, shard, attempt): (RpcId, ShardId, u32)) -> Option<Promise> {
        let Attempt { list, answered, accepted } = self.attempts.get(&(rpc, shard, attempt))?;
        let is_whole = |config: &ShardConfig| {
            config.list == *list
                && !config.witnesses.is_empty()
                && config.witnesses.iter().all(|w| accepted.contains(w))
        };
        self.configurations.of_term(shard, (*answered)?).iter().any(|(_, config)| is_whole(config)).then(|| match self
            .participants
            .contains_key(&rpc)
        {
            true => Promise::Outcome(rpc, shard, OutcomeCode::Prepared),
            false => Promise::Update(rpc),
        })
    }

    /// Whether the client may still ask for the update: it has not acknowledged it.
    pub(crate) fn is_unacknowledged(&self, rpc: RpcId) -> bool {
        rpc.sequence.0 >= self.acknowledged.get(&rpc.client).map_or(0, |below| below.0)
    }
}
