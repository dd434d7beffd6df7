//! Expiry of clients' leases (R4.6): who is asked about, and the floor below which clients' records go.

use kasha_exactly_once::{ExpiryFloorEntry, ScanCursor};
use kasha_log::{EntryKind, EntryOffset, GroupWriter, Log, Purpose, entry_bytes};
use kasha_machine::{Effects, Endpoint, Gate};
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{ClientId, ClusterTime, Epoch, LogEnd};
use kasha_wire::message::{self, LeaseInfo};

use crate::core::send::send;
use crate::shard::commit::Entries;
use crate::shard::site::Site;
use crate::shard::state::ShardState;
use crate::shard::term::Term;

/// Clients asked about at once.
const QUESTIONS_MAX: usize = 256;
/// Tracker states looked at in one housekeeping round.
const SCAN_MAX: u32 = 4096;

/// Clients whose records go once the floor's entry is synced (R4.6).
#[derive(Debug)]
struct PendingFloor {
    at: EntryOffset,
    end: LogEnd,
    floor: ClusterTime,
    clients: Vec<ClientId>,
}

/// What is known and asked of leases.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    questions: Vec<ClientId>,
    /// A question is under way, as far as is known.
    is_asking: bool,
    asked_older_than: ClusterTime,
    scan: ScanCursor,
    pending_floor: Option<PendingFloor>,
}

/// A floor that the log says. It is raised when that is synced (R4.6 \[M\]).
struct Said<'f>(ExpiryFloorEntry<'f>);

impl Entries for Said<'_> {
    type Places = EntryOffset;
    type Done = EntryOffset;

    fn bytes(&self, _: &[u8]) -> usize {
        entry_bytes(self.0.encoded_len())
    }

    fn write(&mut self, group: &mut GroupWriter<'_>, _: &[u8]) -> EntryOffset {
        let (at, payload) = group.entry(EntryKind::ExpiryFloor, self.0.encoded_len());
        self.0.encode_into(payload);
        at
    }

    fn apply(
        self,
        _: &mut ShardState,
        _: &mut Log,
        at: EntryOffset,
        _: LogEnd,
        _: &mut Vec<EntryOffset>,
    ) -> EntryOffset {
        at
    }
}

impl Leases {
    /// A logged floor that may not be synced yet, and where its entry ends.
    pub fn pending_floor(&self) -> Option<(ClusterTime, LogEnd)> {
        self.pending_floor.as_ref().map(|pending| (pending.floor, pending.end))
    }

    /// The coordinator is asked about this client: an update waits for the answer.
    pub fn ask_about(&mut self, client: ClientId) {
        if self.questions.len() < QUESTIONS_MAX && !self.questions.contains(&client) {
            self.questions.push(client);
        }
    }

    /// The role is lost: what a follower's replay would have done by now.
    pub fn settle_for_follower(self, log: &mut Log, state: &mut ShardState) {
        if let Some(pending) = self.pending_floor {
            hit(Probe::DeposedWithPendingFloor);
            let mut dead = Vec::new();
            state.raise_floor(pending.floor, pending.clients, pending.at, &mut dead);
            log.kill_all(&mut dead);
        }
    }

    /// The floor's entry is synced: now the expired clients' records may go (R4.6 \[M\]).
    pub fn settle_floor(&mut self, site: &mut Site<'_>, synced: LogEnd) {
        let is_settled = |pending: &mut PendingFloor| pending.end <= synced || planted::is_on(Bug::FloorSettledEarly);
        let Some(pending) = self.pending_floor.take_if(is_settled) else { return };
        let dead = &mut site.core.scratch.dead;
        dead.clear();
        site.state.raise_floor(pending.floor, pending.clients, pending.at, dead);
        site.copy.log.kill_all(dead);
    }

    /// Asks the coordinator about those for whom an update waits, unless a question is under way: it may be lost, and
    /// housekeeping asks in any case.
    #[inline]
    pub fn ask_at_once(&mut self, coordinator: Endpoint, out: &mut Effects) {
        if !self.questions.is_empty() && !std::mem::replace(&mut self.is_asking, true) {
            let clients = std::mem::take(&mut self.questions);
            send(coordinator, &message::LeaseQuery { clients }, Gate::Now, out);
        }
    }

    /// Asks the coordinator about those who have been silent for long.
    pub fn ask(&mut self, term: &Term, site: &mut Site<'_>, out: &mut Effects) {
        let Site { copy, state, core } = site;
        self.is_asking = false;
        let patience = core.options.client_lease_millis;
        let older_than = ClusterTime(core.cluster_time.0.saturating_sub(patience));
        let mut clients = std::mem::take(&mut self.questions);
        if self.pending_floor.is_none() && older_than > ClusterTime(0) {
            let idle = state.tracker.idle_candidates(older_than, &mut self.scan, SCAN_MAX);
            self.asked_older_than = older_than;
            if planted::is_on(Bug::ExpiryByClock) {
                return self.on_verdict(term.epoch, &mut copy.log, state, &idle, &[]);
            }
            clients.extend(idle.into_iter().take(QUESTIONS_MAX));
        }
        if !clients.is_empty() {
            send(core.coordinator.leader(), &message::LeaseQuery { clients }, Gate::Now, out);
        }
    }

    /// The coordinator's verdict on leases: the only ground for dropping a client's records (R4.6).
    pub fn on_verdict(
        &mut self,
        epoch: Epoch,
        log: &mut Log,
        state: &mut ShardState,
        expired: &[ClientId],
        alive: &[LeaseInfo],
    ) {
        self.is_asking = false;
        for info in alive {
            state.tracker.prove(info.client, info.expiry);
        }
        // The floor is no higher than needed: it also refuses old bodies of clients that are alive.
        let ended = |client| state.tracker.lease_expiry_of(client).filter(|&end| end < self.asked_older_than);
        let known: Vec<_> = expired.iter().copied().filter(|&client| ended(client).is_some()).collect();
        let Some(floor) = known.iter().filter_map(|&client| ended(client)).max() else { return };
        // The newest entry is the only one that lives: it must say all that the earlier ones said (F2).
        let floor = floor.max(state.tracker.floor().time());
        if self.pending_floor.is_some() {
            return;
        }
        let said = Said(ExpiryFloorEntry { floor, clients: &known });
        let Ok((end, at)) = state.commit_entries(log, (epoch, Purpose::Own), said, &mut Vec::new()) else {
            return;
        };
        hit(Probe::FloorLogged);
        self.pending_floor = Some(PendingFloor { at, end, floor, clients: known });
    }
}
