//! The server half of exactly-once: which updates of which clients have run, and where their records lie (RIFL 3, 5).
//!
//! `node` calls [`Tracker::look_up`] for every update before it runs, [`Tracker::complete`] when the change and the
//! completion record are appended, and [`Tracker::recover`] for every record while a log is replayed. For requests that
//! a witness held (replay, suspects) it uses the `_replayed` calls (R4.5). The tracker refuses to know what an update
//! does, which clients are expired (the coordinator decides that), and what time it is.
//!
//! Invariants:
//! - **E1** a sequence completes once; asserted.
//! - **E3**, R4.4: a record is live while its sequence is at or above its client's acknowledgement. A record never
//!   acknowledges itself: an acknowledgement above its own sequence is cut down to that sequence. So the record with
//!   the highest acknowledgement is always live, and each client with records keeps at least one.
//! - R4.3 state is created only by `prove`, `recover` and a witness's replay; the window bounds it.
//! - R4.6 clients are forgotten only in `forget_before`, and never while an update of theirs is in progress.
//!
//! A record that is reported dead may be cleaned only when the log is synced past the record or floor entry that killed
//! it. Records do not die when their tablet leaves (M1). They are copied, and die here by acknowledgement or floor.
//! Otherwise a client's last record could leave, and its acknowledgement would be forgotten at the next replay.

use std::fmt;

use kasha_types::limits::OUTSTANDING_MAX;
use kasha_types::planted::{self, Bug};
use kasha_types::{AckedBelow, BodyHash, ClientId, ClusterTime, RpcId};

use crate::clients::{Client, Clients};
use crate::outstanding::{Entry, Spares, State};
use crate::{ExpiryFloor, Place};

/// What exactly-once needs of an update's body. It never changes with a retry (R2.1), and is what a record keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The update's name.
    pub rpc: RpcId,
    /// Tells a retry from another update under a reused name.
    pub body_hash: BodyHash,
    /// Every sequence below has its result. A claim above the own sequence counts as the own sequence.
    pub acknowledgement: AckedBelow,
    /// When the client's lease ran out, as far as it knew when it built the body.
    pub lease_expiry: ClusterTime,
}

impl Request {
    fn acknowledged(&self) -> AckedBelow {
        AckedBelow(self.acknowledgement.0.min(self.rpc.sequence.0))
    }
}

/// What is known of an update.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookUp {
    /// Never ran here: run it.
    New,
    /// Runs; its answer will come. Drop this delivery, or say "later".
    InProgress,
    /// Ran: answer with the saved result, gated `Synced`.
    Completed(Place),
    /// The name belongs to an update with another body: an error of the client's.
    Reused,
    /// Acknowledged: the client has the result. To anyone else the outcome is *unknown* (R2.2).
    Stale,
    /// More than `OUTSTANDING_MAX` above the acknowledgement (R4.3). Nothing ran.
    WindowExceeded,
    /// The lease is over, and what this shard knew of the client may be forgotten (R4.6). The outcome is *unknown*;
    /// the refusal is gated `Synced`.
    LeaseExpired,
    /// Nothing is kept about this client: ask the coordinator for its lease, [`Tracker::prove`] it, look up again.
    LeaseUnproven,
}

/// Where the next slice of [`Tracker::idle_candidates`] goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanCursor(u32);

/// What is kept, and what was decided since the tracker was made. For metrics; nothing decides by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrackerStats {
    /// Clients with state.
    pub clients: u64,
    /// Live completion records.
    pub records: u64,
    /// Updates in progress.
    pub in_progress: u64,
    /// Heap bytes of the tracker itself, without the records.
    pub bytes: u64,
    /// Look-ups answered [`LookUp::New`].
    pub new: u64,
    /// Look-ups answered [`LookUp::InProgress`] or [`LookUp::Completed`].
    pub duplicates: u64,
    /// Look-ups answered [`LookUp::Reused`].
    pub reused: u64,
    /// Look-ups answered [`LookUp::Stale`].
    pub stale: u64,
    /// Look-ups answered [`LookUp::WindowExceeded`].
    pub window_exceeded: u64,
    /// Look-ups answered [`LookUp::LeaseExpired`].
    pub lease_expired: u64,
    /// Look-ups answered [`LookUp::LeaseUnproven`].
    pub lease_unproven: u64,
    /// Clients forgotten below the floor.
    pub clients_expired: u64,
}

/// Whose acknowledgements and leases to believe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The client itself.
    Client,
    /// A witness: requests come in any order, long after they were sent.
    Replay,
}

/// All clients of one shard.
pub struct Tracker {
    clients: Clients,
    spares: Spares,
    floor: ExpiryFloor,
    stats: TrackerStats,
}

impl Default for Tracker {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Tracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracker").field("floor", &self.floor).field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Tracker {
    /// A tracker that knows no client.
    #[must_use]
    pub fn new() -> Self {
        let (clients, spares) = (Clients::new(), Spares::default());
        Self { clients, spares, floor: ExpiryFloor::default(), stats: TrackerStats::default() }
    }

    /// What is known of an update that its client sent.
    pub fn look_up(&mut self, request: &Request) -> LookUp {
        let found = self.decide(request, Origin::Client);
        self.count(found);
        found
    }

    /// What is known of an update that a witness held: a replay, or a suspect (R4.5). Never answers
    /// [`LookUp::LeaseUnproven`] (the floor alone binds a replay, pitfall 5) nor [`LookUp::WindowExceeded`] (the
    /// acknowledgement that opened the window may not be in this log).
    pub fn look_up_replayed(&mut self, request: &Request) -> LookUp {
        let found = self.decide(request, Origin::Replay);
        self.count(found);
        found
    }

    fn decide(&self, request: &Request, origin: Origin) -> LookUp {
        let sequence = request.rpc.sequence;
        let client = self.clients.get(request.rpc.client);
        // Leases bind new updates only: whatever is known is answered first (pitfall 5).
        if let Some(client) = client {
            let is_ignored = planted::is_on(Bug::ReplayIgnoresAcknowledgement) || planted::is_on(Bug::StaleReplayed);
            if sequence.0 < client.acknowledged.0 && !(is_ignored && origin == Origin::Replay) {
                return LookUp::Stale;
            }
            if let Some(entry) = client.outstanding.find(sequence) {
                return match entry.state {
                    _ if entry.body_hash != request.body_hash && !planted::is_on(Bug::IdReuseAnswered) => {
                        LookUp::Reused
                    }
                    State::InProgress => LookUp::InProgress,
                    State::Completed(place) => LookUp::Completed(place),
                };
            }
        }
        let is_bound = origin == Origin::Client || !planted::is_on(Bug::FloorIgnoredInReplay);
        if self.floor.refuses(request.lease_expiry) && is_bound {
            return LookUp::LeaseExpired;
        }
        match origin {
            Origin::Replay => LookUp::New,
            Origin::Client => {
                let stored = client.map_or(AckedBelow(1), |client| client.acknowledged);
                let acknowledged = stored.max(request.acknowledged());
                let is_beyond = sequence.0 > acknowledged.0.saturating_add(OUTSTANDING_MAX);
                if is_beyond && !planted::is_on(Bug::WindowNotEnforced) {
                    return LookUp::WindowExceeded;
                }
                if client.is_some() { LookUp::New } else { LookUp::LeaseUnproven }
            }
        }
    }

    /// Takes in a client whose lease is proven: by the coordinator, or, for a transaction found pending in the log, by
    /// the primary that admitted it. A known client's lease is extended.
    pub fn prove(&mut self, client: ClientId, lease_expiry: ClusterTime) {
        let client = self.clients.get_or_create(client);
        client.lease_expiry = client.lease_expiry.max(lease_expiry);
    }

    /// Marks a new update as running, when its completion comes later than this turn: for transactions over several
    /// shards.
    ///
    /// # Panics
    /// If it was not just looked up as [`LookUp::New`], or its client was never proven.
    pub fn begin(&mut self, rpc: RpcId, body_hash: BodyHash) {
        let client = self.clients.get_mut(rpc.client).expect("R4.3: a client's lease is proven first");
        assert!(rpc.sequence.0 >= client.acknowledged.0, "E1: {rpc} is acknowledged and may have run");
        client
            .outstanding
            .insert(Entry { sequence: rpc.sequence, body_hash, state: State::InProgress }, &mut self.spares);
        self.stats.in_progress += 1;
    }

    /// The same for an update that a log says has begun, unless the log says more of it.
    pub fn recover_begun(&mut self, request: &Request) {
        let RpcId { client, sequence } = request.rpc;
        let client = self.clients.get_or_create(client);
        client.lease_expiry = client.lease_expiry.max(request.lease_expiry);
        if sequence.0 < client.acknowledged.0 || client.outstanding.find(sequence).is_some() {
            return;
        }
        let entry = Entry { sequence, body_hash: request.body_hash, state: State::InProgress };
        client.outstanding.insert(entry, &mut self.spares);
        self.stats.in_progress += 1;
    }

    /// An update that a log says has begun is over, or will never be asked about: nothing is kept of it if nothing is recorded.
    pub fn forget_begun(&mut self, rpc: RpcId) {
        let Some(client) = self.clients.get_mut(rpc.client) else { return };
        if client.outstanding.find(rpc.sequence).is_some_and(|entry| entry.state == State::InProgress) {
            client.outstanding.remove(rpc.sequence, &mut self.spares);
            self.stats.in_progress -= 1;
            if client.outstanding.iter().next().is_none() {
                self.clients.remove(rpc.client);
            }
        }
    }

    /// Whether an update that has begun, or was never heard of, is still to get a record: its client has not acknowledged it.
    #[must_use]
    pub fn awaits_record(&self, rpc: RpcId) -> bool {
        let Some(client) = self.clients.get(rpc.client) else { return true };
        match client.outstanding.find(rpc.sequence) {
            Some(entry) => entry.state == State::InProgress,
            None => rpc.sequence.0 >= client.acknowledged.0,
        }
    }

    /// Forgets a running update that was refused after all: refusals are never recorded (R4.2). For transactions over
    /// several shards.
    ///
    /// # Panics
    /// If it is not in progress.
    pub fn abandon(&mut self, rpc: RpcId) {
        let client = self.clients.get_mut(rpc.client).expect("the update is in progress");
        let state = client.outstanding.find(rpc.sequence).map(|entry| entry.state);
        assert_eq!(state, Some(State::InProgress), "{rpc} is in progress");
        client.outstanding.remove(rpc.sequence, &mut self.spares);
        self.stats.in_progress -= 1;
    }

    /// An update, new or in progress, has run, and its completion record lies at `place`. Its acknowledgement counts
    /// from here on; each record that dies by it is reported.
    ///
    /// # Panics
    /// If the update has completed before (E1), or its client was never proven (R4.3).
    pub fn complete(&mut self, request: &Request, place: Place, dead: impl FnMut(Place)) {
        assert!(self.clients.get(request.rpc.client).is_some(), "R4.3: a client's lease is proven first");
        self.record(request, request.acknowledged(), place, dead);
    }

    /// Like [`Self::complete`], for an update that a witness held. The record at `place` carries
    /// [`Self::acknowledgement_of`] its client, and the request's own acknowledgement is ignored: witnesses replay in
    /// any order, and a later request must not make an earlier one stale (R4.5, CURP C.1). Takes in an unknown client,
    /// whose lease the primary before had proven.
    ///
    /// # Panics
    /// If the update has completed before (E1).
    pub fn complete_replayed(&mut self, request: &Request, place: Place, dead: impl FnMut(Place)) {
        if planted::is_on(Bug::StaleReplayed) || planted::is_on(Bug::ReplayedTwice) {
            return self.recover(request, place, dead);
        }
        self.record(request, AckedBelow(1), place, dead);
    }

    fn record(&mut self, request: &Request, acknowledged: AckedBelow, place: Place, mut dead: impl FnMut(Place)) {
        let RpcId { client, sequence } = request.rpc;
        let client = self.clients.get_or_create(client);
        client.lease_expiry = client.lease_expiry.max(request.lease_expiry);
        raise(client, acknowledged, &mut self.spares, &mut self.stats, &mut dead);
        self.stats.records += 1;
        let state = State::Completed(place);
        match client.outstanding.find_mut(sequence) {
            None => {
                assert!(sequence.0 >= client.acknowledged.0, "E1: {} is acknowledged and may have run", request.rpc);
                let entry = Entry { sequence, body_hash: request.body_hash, state };
                client.outstanding.insert(entry, &mut self.spares);
            }
            Some(entry) => {
                assert_eq!(entry.state, State::InProgress, "E1: {} completes once", request.rpc);
                assert_eq!(entry.body_hash, request.body_hash, "{} completes with the body it began with", request.rpc);
                entry.state = state;
                self.stats.in_progress -= 1;
                if sequence.0 < client.acknowledged.0 {
                    client.outstanding.remove(sequence, &mut self.spares);
                    self.stats.records -= 1;
                    dead(place);
                }
            }
        }
    }

    /// Takes in a completion record found in a log that is replayed. Records may come twice (a copy beside its
    /// original) and in any order; of two copies the one with the greater place stays. Records already dead may or may
    /// not be among them. Dead ones are reported, this one included.
    pub fn recover(&mut self, request: &Request, place: Place, mut dead: impl FnMut(Place)) {
        let RpcId { client, sequence } = request.rpc;
        let client = self.clients.get_or_create(client);
        client.lease_expiry = client.lease_expiry.max(request.lease_expiry);
        raise(client, request.acknowledged(), &mut self.spares, &mut self.stats, &mut dead);
        let Some(entry) = client.outstanding.find_mut(sequence) else {
            if sequence.0 < client.acknowledged.0 {
                return dead(place);
            }
            let entry = Entry { sequence, body_hash: request.body_hash, state: State::Completed(place) };
            client.outstanding.insert(entry, &mut self.spares);
            self.stats.records += 1;
            return;
        };
        match entry.state {
            State::InProgress => {
                self.stats.in_progress -= 1;
                if sequence.0 < client.acknowledged.0 {
                    client.outstanding.remove(sequence, &mut self.spares);
                    return dead(place);
                }
                (entry.body_hash, entry.state) = (request.body_hash, State::Completed(place));
                self.stats.records += 1;
            }
            State::Completed(known) if known < place => {
                (entry.body_hash, entry.state) = (request.body_hash, State::Completed(place));
                dead(known);
            }
            State::Completed(known) if known > place => dead(place),
            State::Completed(_) => {}
        }
    }

    /// The acknowledgement that this shard's own log holds for a client; what a replayed update's record carries.
    #[must_use]
    pub fn acknowledgement_of(&self, client: ClientId) -> AckedBelow {
        self.clients.get(client).map_or(AckedBelow(1), |client| client.acknowledged)
    }

    /// The records that would die by this request's acknowledgement.
    pub fn acknowledged_by(&self, request: &Request) -> impl Iterator<Item = Place> {
        let client = self.clients.get(request.rpc.client);
        client.into_iter().flat_map(|client| client.outstanding.completed_below(request.acknowledged()))
    }

    /// The records that a client can acknowledge once this update is over. There are some if the update is the oldest that its client
    /// has not finished: all before it is acknowledged, or is completed here. (A body keeps the acknowledgement of the time when its
    /// client built it, R2.1.) If the client has unfinished updates at other shards, too, it can acknowledge fewer.
    pub fn held_up_by(&self, request: &Request) -> impl Iterator<Item = Place> {
        let client = self.clients.get(request.rpc.client);
        let client = client.filter(|client| {
            let acknowledged = client.acknowledged.max(request.acknowledged());
            client.outstanding.is_oldest(request.rpc.sequence, acknowledged)
        });
        client.into_iter().flat_map(|client| client.outstanding.completed_around(request.rpc.sequence))
    }

    /// Whether the record of `rpc` at `place` must be kept; for the cleaner.
    #[must_use]
    pub fn is_live(&self, rpc: RpcId, place: Place) -> bool {
        let client = self.clients.get(rpc.client);
        let entry = client.and_then(|client| client.outstanding.find(rpc.sequence));
        entry.is_some_and(|entry| entry.state == State::Completed(place))
    }

    /// The cleaner has copied a record. Says whether the copy is the record now; if not, it died meanwhile.
    #[must_use]
    pub fn relocate(&mut self, rpc: RpcId, from: Place, to: Place) -> bool {
        let client = self.clients.get_mut(rpc.client);
        match client.and_then(|client| client.outstanding.find_mut(rpc.sequence)) {
            Some(entry) if entry.state == State::Completed(from) => {
                entry.state = State::Completed(to);
                true
            }
            Some(_) | None => false,
        }
    }

    /// Leases up to here are over.
    #[must_use]
    pub fn floor(&self) -> ExpiryFloor {
        self.floor
    }

    /// From now on nothing runs that names a lease which ended by then (R4.6). Never goes down.
    pub fn raise_floor(&mut self, floor: ClusterTime) {
        self.floor.raise(floor);
    }

    /// Forgets what of a client is recorded before this place, where a floor's entry names the client (R4.6). What stands further on stays:
    /// it was under way then, or the client came back with a later lease before the entry was synced. So whoever replays the log says
    /// the same. A client of which nothing is left is forgotten.
    pub fn forget_before(&mut self, client: ClientId, place: Place, mut dead: impl FnMut(Place)) {
        let Some(known) = self.clients.get_mut(client) else { return };
        let is_before = |entry: &&Entry| matches!(entry.state, State::Completed(at) if at < place);
        let before: Vec<Entry> = known.outstanding.iter().filter(is_before).copied().collect();
        for entry in before {
            if let State::Completed(at) = entry.state {
                known.outstanding.remove(entry.sequence, &mut self.spares);
                self.stats.records -= 1;
                dead(at);
            }
        }
        self.without_record(client);
    }

    /// A client without a record is known as a replay knows it: not at all, or by what it has begun, with no acknowledgement (R4.4).
    /// What it had acknowledged, a floor refuses, or a record says again that stands further on in the log that is replayed.
    fn without_record(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if client.outstanding.iter().next().is_none() {
            self.clients.remove(id);
            self.stats.clients_expired += 1;
        } else if client.outstanding.iter().all(|entry| entry.state == State::InProgress) {
            client.acknowledged = AckedBelow(1);
        }
    }

    /// Whom to ask the coordinator about: clients whose last known lease ended before `older_than`, with nothing in
    /// progress. Looks at no more than `max` states, going on where `cursor` stands; after the last it starts over.
    #[must_use]
    pub fn idle_candidates(&self, older_than: ClusterTime, cursor: &mut ScanCursor, max: u32) -> Vec<ClientId> {
        let end = cursor.0.saturating_add(max).min(self.clients.slots());
        let slice = (cursor.0..end).filter_map(|slot| self.clients.at(slot));
        let idle = slice.filter(|client| client.lease_expiry < older_than && !client.outstanding.has_in_progress());
        let candidates = idle.map(|client| client.id).collect();
        cursor.0 = if end == self.clients.slots() { 0 } else { end };
        candidates
    }

    /// Where the record of a completed update is; `None` if it is not known here (any more).
    #[must_use]
    pub fn place_of(&self, rpc: RpcId) -> Option<Place> {
        match self.clients.get(rpc.client)?.outstanding.find(rpc.sequence)?.state {
            State::Completed(place) => Some(place),
            State::InProgress => None,
        }
    }

    /// The record at this place goes with its segment, which a later word of the log has freed: a replay that started
    /// from what was left may have found it again. Says whether it was live.
    pub fn forget(&mut self, rpc: RpcId, place: Place) -> bool {
        if !self.is_live(rpc, place) {
            return false;
        }
        let client = self.clients.get_mut(rpc.client).expect("it has a live record");
        client.outstanding.remove(rpc.sequence, &mut self.spares);
        self.stats.records -= 1;
        // What let this record go brings the client back, if it is not a floor: a newer record (R4.4), further on in the log.
        // The floor may have been replaced by a later one, which does not name the client any more.
        self.without_record(rpc.client);
        true
    }

    /// When the client's lease ends as far as this shard knows; `None`: it does not know the client.
    #[must_use]
    pub fn lease_expiry_of(&self, client: ClientId) -> Option<ClusterTime> {
        self.clients.get(client).map(|client| client.lease_expiry)
    }

    /// What is kept, and what was decided.
    #[must_use]
    pub fn stats(&self) -> TrackerStats {
        let bytes = (self.clients.bytes() + self.spares.bytes()) as u64;
        TrackerStats { clients: self.clients.len() as u64, bytes, ..self.stats }
    }

    fn count(&mut self, found: LookUp) {
        let counter = match found {
            LookUp::New => &mut self.stats.new,
            LookUp::InProgress | LookUp::Completed(_) => &mut self.stats.duplicates,
            LookUp::Reused => &mut self.stats.reused,
            LookUp::Stale => &mut self.stats.stale,
            LookUp::WindowExceeded => &mut self.stats.window_exceeded,
            LookUp::LeaseExpired => &mut self.stats.lease_expired,
            LookUp::LeaseUnproven => &mut self.stats.lease_unproven,
        };
        *counter += 1;
    }

    /// Checks every client; for tests and simulation.
    ///
    /// # Panics
    /// If an invariant of the module's header does not hold.
    pub fn assert_invariants(&self) {
        let (mut records, mut in_progress, mut clients) = (0, 0, 0);
        for client in (0..self.clients.slots()).filter_map(|slot| self.clients.at(slot)) {
            client.outstanding.assert_invariants();
            clients += 1;
            let mut own_records = 0;
            for entry in client.outstanding.iter() {
                match entry.state {
                    State::InProgress => in_progress += 1,
                    State::Completed(_) => {
                        own_records += 1;
                        assert!(entry.sequence.0 >= client.acknowledged.0, "E3: a dead record is not kept");
                    }
                }
            }
            let has_acknowledged = client.acknowledged > AckedBelow(1);
            assert!(own_records > 0 || !has_acknowledged, "R4.4: {} has lost its acknowledgement", client.id);
            records += own_records;
        }
        assert_eq!((self.stats.records, self.stats.in_progress), (records, in_progress));
        assert_eq!(self.clients.len(), clients);
    }
}

/// Raises a client's acknowledgement and frees the range below it.
fn raise(
    client: &mut Client,
    acknowledged: AckedBelow,
    spares: &mut Spares,
    stats: &mut TrackerStats,
    mut dead: impl FnMut(Place),
) {
    if acknowledged > client.acknowledged {
        client.acknowledged = acknowledged;
        let freed_below = AckedBelow(acknowledged.0 + u64::from(planted::is_on(Bug::RecordFreedEarly)));
        client.outstanding.free_below(freed_below, spares, |place| {
            stats.records -= 1;
            dead(place);
        });
    }
}
