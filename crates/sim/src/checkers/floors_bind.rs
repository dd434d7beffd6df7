//! Floors bind (R4.6): a witness that was told of an expiry floor accepts nothing more that the floor refuses.
//!
//! The witness was told when it answers the gc with the floor; before that it may not know the list. A request that
//! came earlier may be answered later. A witness that restarts has forgotten the floor, and is told again.

use std::collections::{BTreeMap, BTreeSet};

use kasha_types::{ClusterTime, ListVersion, RpcId, ShardId};
use kasha_wire::frame::Kind;
use kasha_wire::message::{Gc, GcDone};
use kasha_wire::{Body, Message, Recorded, RecordedVerdict, RequestView, hot};

use crate::network::ProcessId;
use crate::probes::Probes;
use crate::world::{Arrived, Sent, View, Watch};

/// A witness of one shard under one list. A transaction over several shards has one id at the witnesses of all of them.
type Instance = (ProcessId, ShardId, ListVersion);

/// Watches what witnesses are told, and their answers.
#[derive(Debug, Default)]
pub struct FloorsBind {
    floors: BTreeMap<Instance, ClusterTime>,
    /// The floors of gcs that are not answered, by round.
    named: BTreeMap<(ProcessId, ShardId, ListVersion, u64), ClusterTime>,
    /// Requests that came before any floor that refuses them.
    in_time: BTreeSet<(Instance, RpcId)>,
    /// Requests that came only after such a floor.
    late: BTreeSet<(Instance, RpcId)>,
    violations: Vec<String>,
    checked: u64,
}

impl FloorsBind {
    fn on_floor(&mut self, instance: Instance, floor: ClusterTime) {
        let known = self.floors.entry(instance).or_default();
        *known = floor.max(*known);
    }

    fn on_record(&mut self, instance: Instance, rpc: RpcId, lease: ClusterTime) {
        let is_refused = self.floors.get(&instance).is_some_and(|&floor| lease <= floor);
        let id = (instance, rpc);
        if !is_refused {
            self.in_time.insert(id);
        } else if !self.in_time.contains(&id) && self.late.insert(id) {
            self.checked += 1;
        }
    }

    fn on_accepted(&mut self, instance: Instance, rpc: RpcId) {
        if self.late.contains(&(instance, rpc)) {
            let (by, shard, list) = instance;
            self.violations.push(format!(
                "floors_bind: {by:?} accepted {rpc} for {shard} under {list}, though it had been told of a floor that refuses it (R4.6)"
            ));
        }
    }
}

impl Watch for FloorsBind {
    fn arrived(&mut self, arrived: &Arrived<'_>, _view: &View<'_>) {
        if arrived.kind == Kind::Record as u8 {
            if let Ok(request) = RequestView::decode(arrived.payload)
                && let Ok(body) = Body::decode(request.body)
            {
                let instance = (arrived.at, request.envelope.shard, request.envelope.list);
                self.on_record(instance, body.head.rpc, body.head.lease_expiry);
            }
        } else if let Some(Gc { shard, list, floor, round, .. }) = Message::from_frame(arrived.kind, arrived.payload) {
            self.named.insert((arrived.at, shard, list, round), floor);
        }
    }

    fn sent(&mut self, sent: &Sent<'_>, _view: &View<'_>) {
        if sent.kind == Kind::Recorded as u8
            && let Ok(recorded) = hot::decode_small::<Recorded>(sent.payload)
            && recorded.verdict == RecordedVerdict::Accepted
        {
            self.on_accepted((sent.from, recorded.shard, recorded.list), recorded.rpc);
        }
        if let Some(GcDone { shard, list, round, .. }) = sent.message()
            && let Some(floor) = self.named.remove(&(sent.from, shard, list, round))
        {
            self.on_floor((sent.from, shard, list), floor);
        }
    }

    fn started(&mut self, process: ProcessId, _view: &View<'_>) {
        self.floors.retain(|(of, ..), _| *of != process);
        self.named.retain(|(of, ..), _| *of != process);
        self.late.retain(|((of, ..), _)| *of != process);
        self.in_time.retain(|((of, ..), _)| *of != process);
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("claims checked: floors at witnesses", self.checked);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::records::tests::{RPC, SHARD};

    #[test]
    fn r4_6_what_a_floor_refuses_is_taken_only_if_it_came_before() {
        const LIST: ListVersion = ListVersion(1);
        let (mut watch, at) = (FloorsBind::default(), |process| (ProcessId(process), SHARD, LIST));
        for (process, lease) in [(1, 40), (2, 60)] {
            watch.on_floor(at(process), ClusterTime(50));
            watch.on_record(at(process), RPC, ClusterTime(lease));
        }
        watch.on_record(at(3), RPC, ClusterTime(40));
        watch.on_floor(at(3), ClusterTime(50));
        watch.on_record(at(3), RPC, ClusterTime(40));
        watch.on_accepted(at(2), RPC);
        watch.on_accepted(at(3), RPC);
        // Found by seed 27 of client_leases: the same transaction at the same process, as a witness of another shard.
        watch.on_accepted((ProcessId(1), ShardId(SHARD.0 + 1), LIST), RPC);
        assert_eq!(watch.take_violations(), Vec::<String>::new());
        watch.on_accepted(at(1), RPC);
        assert_eq!(watch.take_violations().len(), 1);
    }
}
