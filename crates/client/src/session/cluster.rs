//! The session's own errands: finding the cluster, keeping its configuration fresh, and holding a client id with its
//! lease. The coordinator may be away for a minute; nothing here stands in the way of a call meanwhile.

use std::time::Duration;

use kasha_machine::{Effect, Effects, Endpoint};
use kasha_types::{ClientId, ClusterId, ClusterTime, ConfigVersion, CoreId, Tick};
use kasha_wire::{Configuration, Message};

use super::call::{Kind, NEVER, Numbered, Stage};
use super::{Completion, Known, Session, WhyUnknown, send_message};
use crate::limits;

/// How long the coordinator may be silent before it is asked again.
const RETRY: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// What the session knows of the cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    id: Option<ClusterId>,
    pub(super) configuration: Option<Configuration>,
    lease: Lease,
    /// The greatest ClusterTime heard of, and when.
    time: (ClusterTime, Tick),
    /// Somebody wants a newer configuration.
    wanted: bool,
    /// The coordinator's own answer is wanted, newer or not.
    wanted_from_coordinator: bool,
    /// Not asked again before this.
    ask_at: Tick,
    /// Counts questions: whom to ask next.
    asked: usize,
}

#[derive(Debug)]
enum Lease {
    /// `OpenSession` is repeated until it is answered.
    Opening { nonce: Option<u64>, again_at: Tick, pause: Duration },
    /// `RenewLease` is sent at a third of the term, and then repeated.
    Held { expiry: ClusterTime, renew_at: Tick },
}

impl Cluster {
    pub(super) fn new(id: Option<ClusterId>, now: Tick) -> Self {
        Self {
            id,
            configuration: None,
            lease: Lease::Opening { nonce: None, again_at: now, pause: RETRY },
            time: (ClusterTime(0), now),
            wanted: true,
            wanted_from_coordinator: false,
            ask_at: now,
            asked: 0,
        }
    }

    pub(super) fn want_configuration(&mut self) {
        self.wanted = true;
    }

    /// The next seed is asked soon, but not in a tight circle.
    pub(super) fn on_seed_unreachable(&mut self, now: Tick) {
        if self.configuration.is_none() {
            self.ask_at = self.ask_at.min(now.after(limits::REFRESH_INTERVAL));
        }
    }

    /// When the session has something to do for itself.
    pub(super) fn next_errand(&self) -> Tick {
        let ask = if self.wanted { self.ask_at } else { NEVER };
        let lease = match self.lease {
            Lease::Opening { .. } if self.configuration.is_none() => NEVER,
            Lease::Opening { again_at, .. } => again_at,
            Lease::Held { renew_at, .. } => renew_at,
        };
        ask.min(lease)
    }

    /// What the cluster's time is by now, as far as we can know.
    pub(super) fn time(&self, now: Tick) -> ClusterTime {
        let (heard, at) = self.time;
        heard.after_millis(u64::try_from(now.since(at).as_millis()).unwrap_or(u64::MAX))
    }

    fn heard_time(&mut self, time: ClusterTime, now: Tick) {
        if time > self.time(now) {
            self.time = (time, now);
        }
    }

    /// When the lease of what is sent now ends, as far as we know.
    pub(super) fn lease_expiry(&self) -> ClusterTime {
        match self.lease {
            Lease::Held { expiry, .. } => expiry,
            Lease::Opening { .. } => ClusterTime(0),
        }
    }
}

impl Session {
    /// Does what is due for the session itself.
    pub(super) fn run_errands(&mut self, now: Tick, out: &mut Effects) {
        if self.cluster.wanted && self.cluster.ask_at <= now {
            self.ask_for_configuration(now, out);
        }
        if self.cluster.configuration.is_none() {
            return;
        }
        match &mut self.cluster.lease {
            Lease::Opening { nonce, again_at, pause } if *again_at <= now => {
                let nonce = *nonce.get_or_insert_with(|| self.rng.next_u64());
                *again_at = now.after(*pause);
                *pause = (*pause * 2).min(RETRY_MAX);
                send_message(Endpoint::Coordinator, &Message::OpenSession { nonce }, out);
            }
            Lease::Held { renew_at, .. } if *renew_at <= now => {
                *renew_at = now.after(RETRY_MAX);
                let client = self.numbered.as_ref().expect("a lease is a client's").client;
                send_message(Endpoint::Coordinator, &Message::RenewLease { client }, out);
            }
            Lease::Opening { .. } | Lease::Held { .. } => {}
        }
        self.start_table_requests(now, out);
    }

    fn ask_for_configuration(&mut self, now: Tick, out: &mut Effects) {
        let cluster = &mut self.cluster;
        cluster.asked += 1;
        let Some(configuration) = &cluster.configuration else {
            let seed = Endpoint::Seed((cluster.asked % self.options.seeds.len()) as u16);
            cluster.ask_at = now.after(RETRY);
            send_message(seed, &Message::GetConfiguration { have: ConfigVersion(0) }, out);
            return;
        };
        // A node tells while the coordinator is away; the coordinator when the nodes do not know yet.
        let alive: Vec<_> = configuration.nodes.iter().filter(|node| node.alive && !node.cores.is_empty()).collect();
        let have = configuration.version;
        let others = alive.len() + self.options.seeds.len();
        let other = match cluster.asked % others {
            index if index < alive.len() => Endpoint::Core(CoreId { node: alive[index].node, core: 0 }),
            index => Endpoint::Seed((index - alive.len()) as u16),
        };
        send_message(other, &Message::GetConfiguration { have }, out);
        let have = if cluster.wanted_from_coordinator { ConfigVersion(0) } else { have };
        send_message(Endpoint::Coordinator, &Message::GetConfiguration { have }, out);
        (cluster.wanted, cluster.wanted_from_coordinator) = (false, false);
        cluster.ask_at = now.after(limits::REFRESH_INTERVAL);
    }

    /// The call waits until the coordinator has said what is configured.
    pub(super) fn ask_coordinator(&mut self, slot: usize, now: Tick) {
        (self.cluster.wanted, self.cluster.wanted_from_coordinator) = (true, true);
        let call = &mut self.calls[slot];
        call.stage = Stage::ForCoordinator;
        call.resume = now.after(limits::ASK_COORDINATOR_INTERVAL);
        self.timers.arm(&mut self.calls, slot);
    }

    pub(super) fn on_configuration(
        &mut self,
        configuration: Configuration,
        from_coordinator: bool,
        now: Tick,
        out: &mut Effects,
    ) -> Known {
        if *self.cluster.id.get_or_insert(configuration.cluster) != configuration.cluster {
            return Known::No;
        }
        let is_newer = self.cluster.configuration.as_ref().is_none_or(|have| have.version < configuration.version);
        if is_newer {
            self.stats.configurations += 1;
            route_all(self.cluster.configuration.as_ref(), &configuration, out);
            if self.cluster.configuration.is_none() {
                self.cluster.wanted = self.cluster.wanted_from_coordinator;
            }
            self.cluster.configuration = Some(configuration);
        }
        for slot in self.calls.slots() {
            if self.calls[slot].kind == Kind::Free {
                continue;
            }
            match self.calls[slot].stage {
                Stage::Backoff { for_configuration: true } if is_newer => self.start(slot, now, out),
                Stage::InFlight(in_flight) if is_newer => {
                    let shard = self.configuration().and_then(|have| have.shard(in_flight.shard));
                    let is_same =
                        shard.is_some_and(|now| now.epoch == in_flight.epoch && now.primary == in_flight.primary.node);
                    if !is_same {
                        self.start(slot, now, out);
                    }
                }
                Stage::ForCoordinator => self.decide(slot, from_coordinator, now, out),
                Stage::Queued | Stage::Backoff { .. } | Stage::InFlight(_) => {}
            }
        }
        Known::Yes
    }

    /// A call that waited for the coordinator's word.
    fn decide(&mut self, slot: usize, from_coordinator: bool, now: Tick, out: &mut Effects) {
        match self.calls[slot].kind {
            Kind::Refresh if from_coordinator => self.end(slot, Completion::Refreshed),
            Kind::Update(_) | Kind::Read { .. } if !self.is_table_unknown(slot) => self.start(slot, now, out),
            Kind::Update(_) | Kind::Read { .. } if from_coordinator => self.end_as_unknown_table(slot),
            _ => {}
        }
    }

    pub(super) fn on_session_opened(
        &mut self,
        nonce: u64,
        client: ClientId,
        lease_expiry: ClusterTime,
        time: ClusterTime,
        now: Tick,
    ) -> Known {
        let is_ours = matches!(self.cluster.lease, Lease::Opening { nonce: Some(ours), .. } if ours == nonce);
        if !is_ours || client == ClientId(0) {
            return Known::No;
        }
        self.cluster.heard_time(time, now);
        self.numbered = Some(Numbered::new(client));
        self.table_sequence = 0;
        self.cluster.lease = Lease::Held { expiry: lease_expiry, renew_at: renew_at(lease_expiry, time, now) };
        Known::Yes
    }

    pub(super) fn on_lease_renewed(
        &mut self,
        client: ClientId,
        lease_expiry: ClusterTime,
        time: ClusterTime,
        now: Tick,
    ) -> Known {
        if self.client() != Some(client) {
            return Known::No;
        }
        self.cluster.heard_time(time, now);
        let expiry = self.cluster.lease_expiry().max(lease_expiry);
        self.cluster.lease = Lease::Held { expiry, renew_at: renew_at(lease_expiry, time, now) };
        Known::Yes
    }

    /// The saved results go with the lease: what is under way is unknown (R2.2). What was never sent goes on under the
    /// next client id.
    pub(super) fn on_lease_lost(&mut self, client: ClientId, now: Tick) -> Known {
        if self.client() != Some(client) {
            return Known::No;
        }
        self.stats.leases_lost += 1;
        self.numbered = None;
        self.cluster.lease = Lease::Opening { nonce: None, again_at: now, pause: RETRY };
        for slot in self.calls.slots() {
            match &mut self.calls[slot].kind {
                Kind::Update(update) => update.sequence = None,
                Kind::CreateTable | Kind::DropTable => {}
                Kind::Free | Kind::Read { .. } | Kind::Status { .. } | Kind::Refresh => continue,
            }
            if self.calls[slot].sent {
                self.end(slot, Completion::Unknown(WhyUnknown::LeaseLost));
            }
        }
        Known::Yes
    }
}

fn renew_at(expiry: ClusterTime, time: ClusterTime, now: Tick) -> Tick {
    let third = Duration::from_millis(expiry.0.saturating_sub(time.0) / 3);
    now.after(third.max(RETRY))
}

/// Tells the shell every address that is new.
fn route_all(old: Option<&Configuration>, new: &Configuration, out: &mut Effects) {
    if old.is_none_or(|old| old.coordinator != new.coordinator) {
        out.push(Effect::Route { to: Endpoint::Coordinator, address: new.coordinator });
    }
    for node in &new.nodes {
        for (index, &address) in node.cores.iter().enumerate() {
            let Ok(core) = u8::try_from(index) else { break };
            let core = CoreId { node: node.node, core };
            if old.and_then(|old| old.address_of(core)) != Some(address) {
                out.push(Effect::Route { to: Endpoint::Core(core), address });
            }
        }
    }
}
