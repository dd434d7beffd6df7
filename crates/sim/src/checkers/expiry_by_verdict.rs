//! Expiry by verdict (R4.6, R4.7): an expiry floor names only clients that the coordinator has called expired. A client
//! is told that its lease is over only when a floor that says so cannot be lost any more. A granted lease runs on
//! although the coordinator restarts.

use std::collections::{BTreeMap, BTreeSet};

use kasha_machine::FileName;
use kasha_types::{ClientId, ClusterTime, Epoch, RpcId, ShardId};
use kasha_wire::frame::Kind;
use kasha_wire::message::{LeaseLost, LeaseRenewed, LeaseVerdict, SessionOpened};
use kasha_wire::{Body, MemberState, Refusal, Refused, RequestView, hot};

use crate::checkers::records::{EXPIRY_FLOOR_ENTRY, entries_in, word};
use crate::clock::{SimTime, millis};
use crate::configurations::{Configurations, Cores};
use crate::network::ProcessId;
use crate::probes::Probes;
use crate::world::{Sent, View, Watch};

/// Watches expiry floors in the files of cores, and the clients that are told of them.
#[derive(Debug, Default)]
pub struct ExpiryByVerdict {
    configurations: Configurations,
    cores: Cores,
    expired: BTreeSet<ClientId>,
    /// A lease runs for its term from its grant, by any clock. By the world's clock, which may differ, at least half of
    /// it.
    runs_until: BTreeMap<ClientId, SimTime>,
    /// The greatest floor that each replica ever held.
    floors: BTreeMap<(ProcessId, ShardId), ClusterTime>,
    leases: BTreeMap<RpcId, ClusterTime>,
    violations: Vec<String>,
    named: u64,
    told: u64,
}

/// A floor entry's time and clients.
fn floor_in(entry: &[u8]) -> Option<(ClusterTime, Vec<ClientId>)> {
    let count = u16::from_le_bytes(entry.get(1..3)?.try_into().ok()?);
    let clients = (0..usize::from(count)).map(|index| word(entry, 11 + 8 * index).map(ClientId));
    Some((ClusterTime(word(entry, 3)?), clients.collect::<Option<_>>()?))
}

impl ExpiryByVerdict {
    /// Watches these cores under these configurations.
    #[must_use]
    pub fn new(configurations: Configurations, cores: Cores) -> Self {
        Self { configurations, cores, ..Self::default() }
    }

    fn on_floor(&mut self, by: ProcessId, shard: ShardId, floor: ClusterTime, clients: &[ClientId]) {
        let held = self.floors.entry((by, shard)).or_default();
        *held = floor.max(*held);
        self.named += clients.len() as u64;
        if let Some(client) = clients.iter().find(|client| !self.expired.contains(client)) {
            self.violations.push(format!(
                "expiry_by_verdict: a floor of {shard} names {client}, which the coordinator never called expired (R4.6)"
            ));
        }
    }

    fn on_granted(&mut self, client: ClientId, now: SimTime, (from, to): (ClusterTime, ClusterTime)) {
        self.runs_until.insert(client, now.after(millis(to.0.saturating_sub(from.0) / 2)));
    }

    fn on_over(&mut self, client: ClientId, now: SimTime) {
        if let Some(until) = self.runs_until.get(&client).filter(|&&until| now < until) {
            self.violations.push(format!(
                "expiry_by_verdict: the coordinator calls the lease of {client} over, which runs beyond {until} (R4.7)"
            ));
        }
    }

    /// In term `epoch` of a shard a client was told of a floor at or above this update's lease: a committed set of the term
    /// must hold such a floor. An update of several shards may be refused by any of them.
    fn on_told(&mut self, rpc: RpcId, (shard, epoch): (ShardId, Epoch)) {
        let Some(&lease) = self.leases.get(&rpc) else { return };
        let sets = self.configurations.of_term(shard, epoch);
        self.told += 1;
        let holds = |process| self.floors.get(&(process, shard)).is_some_and(|&floor| floor >= lease);
        let is_synced = sets.iter().any(|(configuration, config)| {
            let complete = config.members.iter().filter(|member| member.state == MemberState::Complete);
            complete.into_iter().all(|member| self.cores.host_of(configuration, member.node, shard).is_none_or(holds))
        });
        if !sets.is_empty() && !is_synced {
            self.violations.push(format!(
                "expiry_by_verdict: {rpc} was told that its lease is over, but in no committed set of {shard} {epoch} do all \
                 hold a floor that says so (R4.6)"
            ));
        }
    }
}

impl Watch for ExpiryByVerdict {
    fn sent(&mut self, sent: &Sent<'_>, view: &View<'_>) {
        match Kind::from_number(sent.kind) {
            Some(Kind::Request | Kind::Cancel) => {
                if let Ok(request) = RequestView::decode(sent.payload)
                    && let Ok(body) = Body::decode(request.body)
                {
                    self.leases.insert(body.head.rpc, body.head.lease_expiry);
                }
            }
            Some(Kind::Refuse) => {
                if let Ok(refused) = hot::decode_small::<Refused>(sent.payload)
                    && refused.why == Refusal::LeaseExpired
                {
                    self.on_told(refused.rpc, (refused.shard, refused.epoch));
                }
            }
            Some(Kind::Message) => {
                if let Some(SessionOpened { client, lease_expiry, cluster_time, .. }) = sent.message() {
                    self.on_granted(client, view.now, (cluster_time, lease_expiry));
                } else if let Some(LeaseRenewed { client, lease_expiry, cluster_time }) = sent.message() {
                    self.on_granted(client, view.now, (cluster_time, lease_expiry));
                } else if let Some(LeaseLost { client }) = sent.message() {
                    self.on_over(client, view.now);
                } else if let Some(LeaseVerdict { expired, .. }) = sent.message() {
                    expired.iter().for_each(|&client| self.on_over(client, view.now));
                    self.expired.extend(expired);
                }
            }
            _ => {}
        }
    }

    fn wrote(&mut self, by: ProcessId, file: FileName, offset: u64, len: usize, view: &View<'_>) {
        let FileName::Segment { shard, .. } = file else { return };
        let Some(content) = view.processes[by.0].disk.cached(file) else { return };
        let mut floors = Vec::new();
        entries_in(&content.read(offset, len), |kind, entry| {
            floors.extend((kind == EXPIRY_FLOOR_ENTRY).then(|| floor_in(entry)).flatten());
        });
        for (floor, clients) in floors {
            self.on_floor(by, shard, floor, &clients);
        }
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("claims checked: expired clients", self.named);
        probes.add("claims checked: lost leases", self.told);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::records::tests::{RPC, SHARD, three_cores};
    use crate::configurations::tests::{configuration, tell};

    #[test]
    fn only_a_verdict_expires_a_client() {
        let mut watch = ExpiryByVerdict::default();
        let mut entry = vec![1, 1, 0];
        entry.extend_from_slice(&50u64.to_le_bytes());
        entry.extend_from_slice(&7u64.to_le_bytes());
        let (floor, clients) = floor_in(&entry).expect("a floor");
        watch.on_floor(ProcessId(1), SHARD, floor, &clients);
        assert_eq!(watch.take_violations().len(), 1);
        watch.expired.insert(ClientId(7));
        watch.on_floor(ProcessId(1), SHARD, floor, &clients);
        assert_eq!(watch.take_violations(), Vec::<String>::new());
    }

    #[test]
    fn r4_7_a_lease_that_was_granted_runs() {
        let mut watch = ExpiryByVerdict::default();
        watch.on_granted(ClientId(7), SimTime(0), (ClusterTime(1000), ClusterTime(1100)));
        watch.on_over(ClientId(7), SimTime(millis(51)));
        watch.on_over(ClientId(8), SimTime(millis(49)));
        assert_eq!(watch.take_violations(), Vec::<String>::new());
        watch.on_over(ClientId(7), SimTime(millis(49)));
        assert_eq!(watch.take_violations().len(), 1);
    }

    #[test]
    fn a_lost_lease_is_told_when_every_member_holds_the_floor() {
        let mut watch = ExpiryByVerdict::new(Configurations::default(), three_cores());
        tell(&watch.configurations, &configuration(1, 1, 1));
        watch.leases.insert(RPC, ClusterTime(40));
        watch.on_floor(ProcessId(1), SHARD, ClusterTime(50), &[]);
        watch.on_told(RPC, (SHARD, Epoch(1)));
        assert_eq!(watch.take_violations().len(), 1, "the other member lacks it");
        watch.on_floor(ProcessId(2), SHARD, ClusterTime(50), &[]);
        watch.on_told(RPC, (SHARD, Epoch(1)));
        assert_eq!(watch.take_violations(), Vec::<String>::new());
    }
}
