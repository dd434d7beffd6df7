//! Round trips are counted (section 6): while the witness of a shard is away, an update takes two of them. The client
//! sends its request; and as soon as it is answered, the request for its sync. It waits for no timer in between, whatever
//! else its session waits for.
//!
//! A client learns only from silence that a witness is away. So what it sends within a while after its first record to that
//! witness is not judged.

use std::collections::BTreeMap;

use kasha_types::{RpcId, ShardId};
use kasha_wire::frame::Kind;
use kasha_wire::{AnswerView, Body, Refused, RequestView, SyncRequest, Synced, hot};

use crate::clock::{SimTime, millis};
use crate::configurations::{Configurations, Cores};
use crate::network::ProcessId;
use crate::probes::Probes;
use crate::sharer::{Away, Gone};
use crate::world::{Arrived, Sent, View, Watch};

/// The time in which a client notices that a witness is silent: three first waiting times.
const NOTICES: u64 = millis(200);
/// Between the arrival of an answer and the turn in which it is handled.
const SLACK: u64 = millis(5);

/// An update whose witness is away.
#[derive(Clone, Copy, Debug)]
struct Update {
    shard: ShardId,
    attempt: u32,
    /// When the last attempt was answered without being synced.
    answered: Option<SimTime>,
    round_trips: u32,
    /// Round trips that ran nothing.
    refused: u32,
}

/// Watches clients' updates.
#[derive(Debug)]
pub struct RoundTrips {
    configurations: Configurations,
    cores: Cores,
    away: Away,
    /// What is gone, and when each client sent its first record there.
    gone: Option<Gone>,
    first_records: BTreeMap<ProcessId, SimTime>,
    open: BTreeMap<(ProcessId, RpcId), Update>,
    counted: u64,
    violations: Vec<String>,
}

impl RoundTrips {
    /// Watches all clients. `away` says which node is gone.
    #[must_use]
    pub fn new(configurations: Configurations, cores: Cores, away: Away) -> Self {
        Self {
            configurations,
            cores,
            away,
            gone: None,
            first_records: BTreeMap::new(),
            open: BTreeMap::new(),
            counted: 0,
            violations: Vec::new(),
        }
    }

    /// Whether the node that is gone for this client is a witness of the shard, and nothing else.
    fn lacks_only_a_witness(&self, client: ProcessId, shard: ShardId, view: &View<'_>) -> bool {
        let Some(gone) =
            self.gone.filter(|gone| gone.only_for.is_none_or(|host| view.processes[client.0].host == host))
        else {
            return false;
        };
        let latest = self.configurations.latest();
        latest.as_ref().and_then(|latest| latest.shard(shard)).is_some_and(|shard| {
            let is_member = shard.members.iter().any(|member| member.node == gone.node);
            shard.witnesses.contains(&gone.node) && !is_member && shard.primary != gone.node
        })
    }

    fn on_request(&mut self, client: ProcessId, request: &RequestView<'_>, view: &View<'_>) {
        let Ok(body) = Body::decode(request.body) else { return };
        let (shard, attempt) = (request.envelope.shard, request.envelope.attempt);
        if body.participants().is_some() || !self.lacks_only_a_witness(client, shard, view) {
            return;
        }
        let first = *self.first_records.entry(client).or_insert(view.now);
        if view.now.0 - first.0 < NOTICES {
            return;
        }
        let new = Update { shard, attempt, answered: None, round_trips: 0, refused: 0 };
        let update = self.open.entry((client, body.head.rpc)).or_insert(new);
        update.round_trips += 1;
        if update.answered.is_some() {
            self.violations.push(format!(
                "round_trips: an update of {shard}, which lacks a witness, was answered and sent again as attempt {attempt}"
            ));
        }
        (update.attempt, update.answered) = (attempt, None);
    }

    /// What was answered, and whose sync was never asked for.
    fn find_unasked(&mut self, now: SimTime) {
        for update in self.open.values() {
            let waits = update.answered.map_or(0, |answered| now.0 - answered.0);
            if waits > SLACK {
                let (shard, micros) = (update.shard, waits / 1000);
                self.violations.push(format!(
                    "round_trips: an update of {shard}, which lacks a witness, was answered, and for {micros} µs its sync was not asked for"
                ));
            }
        }
    }

    fn on_sync(&mut self, client: ProcessId, rpc: RpcId, now: SimTime) {
        let Some(update) = self.open.get_mut(&(client, rpc)) else { return };
        update.round_trips += 1;
        // It waits for another answer now.
        let waited = update.answered.take().map_or(0, |answered| now.0 - answered.0);
        if waited > SLACK {
            let (shard, micros) = (update.shard, waited / 1000);
            self.violations.push(format!(
                "round_trips: an update of {shard}, which lacks a witness, waited {micros} µs between its answer and its sync"
            ));
        }
    }

    fn on_synced(&mut self, client: ProcessId, rpc: RpcId) {
        let Some(update) = self.open.remove(&(client, rpc)) else { return };
        self.counted += 1;
        let (shard, trips) = (update.shard, update.round_trips);
        if trips > 2 + update.refused {
            self.violations
                .push(format!("round_trips: an update of {shard}, which lacks a witness, took {trips} round trips"));
        }
    }
}

impl Watch for RoundTrips {
    fn arrived(&mut self, arrived: &Arrived<'_>, view: &View<'_>) {
        let client = arrived.at;
        match Kind::from_number(arrived.kind) {
            Some(Kind::Answer) => {
                let Ok(answer) = AnswerView::decode(arrived.payload) else { return };
                match self.open.get_mut(&(client, answer.rpc)) {
                    Some(_) if answer.synced => drop(self.open.remove(&(client, answer.rpc))),
                    Some(update) if update.attempt == answer.attempt => {
                        update.answered.get_or_insert(view.now);
                    }
                    Some(_) | None => {}
                }
            }
            Some(Kind::Refuse) => {
                if let Ok(refused) = hot::decode_small::<Refused>(arrived.payload)
                    && let Some(update) = self.open.get_mut(&(client, refused.rpc))
                {
                    (update.answered, update.refused) = (None, update.refused + 1);
                }
            }
            Some(Kind::Synced) => {
                if let Ok(synced) = hot::decode_small::<Synced>(arrived.payload) {
                    self.on_synced(client, synced.rpc);
                }
            }
            _ => {}
        }
    }

    fn sent(&mut self, sent: &Sent<'_>, view: &View<'_>) {
        if self.cores.core(sent.from).is_some() {
            return;
        }
        let gone = self.away.borrow().gone;
        if gone != self.gone {
            self.gone = gone;
            self.first_records.clear();
            self.find_unasked(view.now);
            self.open.clear();
        }
        if self.gone.is_none() {
            return;
        }
        match Kind::from_number(sent.kind) {
            Some(Kind::Request) => {
                if let Ok(request) = RequestView::decode(sent.payload) {
                    self.on_request(sent.from, &request, view);
                }
            }
            Some(Kind::Sync) => {
                if let Ok(sync) = hot::decode_small::<SyncRequest>(sent.payload) {
                    self.on_sync(sent.from, sync.rpc, view.now);
                }
            }
            _ => {}
        }
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("claims checked: round trips counted", self.counted);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}
