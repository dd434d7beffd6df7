//! The client tracker (crate `exactly_once`; RIFL, R4.1 to R4.6) against a reference that never forgets a record and
//! recomputes everything from all of them.

use std::collections::{BTreeMap, BTreeSet};

use arbitrary::{Arbitrary, Result, Unstructured};
use kasha_exactly_once::{LookUp, Place, Request, ScanCursor, Tracker};
use kasha_types::limits::OUTSTANDING_MAX;
use kasha_types::{AckedBelow, BodyHash, ClientId, ClusterTime, RpcId, Sequence};

use crate::draw;
use crate::property::Property;

const STEPS_MAX: usize = 120;

/// One entry of the shard's log. Record `n` of the log is at place `n`.
#[derive(Clone, Debug)]
enum LogEntry {
    Record(Request),
    Floor(ClusterTime, Vec<ClientId>),
}

#[derive(Clone, Copy, Debug)]
struct Record {
    request: Request,
    place: Place,
}

#[derive(Default)]
struct ModelClient {
    lease_expiry: ClusterTime,
    records: BTreeMap<Sequence, Record>,
    /// The request, and whether it came from a witness.
    in_progress: BTreeMap<Sequence, (Request, bool)>,
}

impl ModelClient {
    fn acknowledged(&self) -> u64 {
        let claims = self.records.values().map(|it| it.request.acknowledgement.0.min(it.request.rpc.sequence.0));
        claims.max().unwrap_or(1).max(1)
    }

    fn live(&self) -> impl Iterator<Item = Record> {
        self.records.range(Sequence(self.acknowledged())..).map(|(_, record)| *record)
    }
}

#[derive(Default)]
struct Model {
    clients: BTreeMap<ClientId, ModelClient>,
    floor: ClusterTime,
}

impl Model {
    fn look_up(&self, request: &Request, replayed: bool) -> LookUp {
        let sequence = request.rpc.sequence;
        let client = self.clients.get(&request.rpc.client);
        let acknowledged = client.map_or(1, ModelClient::acknowledged);
        let record = client.and_then(|client| client.records.get(&sequence));
        let running = client.and_then(|client| client.in_progress.get(&sequence));
        let window_ends = acknowledged.max(request.acknowledgement.0.min(sequence.0)).saturating_add(OUTSTANDING_MAX);
        if sequence.0 < acknowledged && client.is_some() {
            LookUp::Stale
        } else if let Some(record) = record {
            let same = record.request.body_hash == request.body_hash;
            if same { LookUp::Completed(record.place) } else { LookUp::Reused }
        } else if let Some((running, _)) = running {
            if running.body_hash == request.body_hash { LookUp::InProgress } else { LookUp::Reused }
        } else if request.lease_expiry <= self.floor {
            LookUp::LeaseExpired
        } else if !replayed && sequence.0 > window_ends {
            LookUp::WindowExceeded
        } else if !replayed && client.is_none() {
            LookUp::LeaseUnproven
        } else {
            LookUp::New
        }
    }

    fn live(&self) -> BTreeSet<Place> {
        self.clients.values().flat_map(ModelClient::live).map(|record| record.place).collect()
    }
}

/// One of several, whatever their number.
#[derive(Clone, Copy, Debug, Arbitrary)]
struct Index(u16);

impl Index {
    fn index(self, len: usize) -> usize {
        usize::from(self.0) % len
    }
}

#[derive(Clone, Debug)]
enum Step {
    Deliver {
        request: Request,
        replayed: bool,
        at_once: bool,
    },
    Finish(Index),
    Abandon(Index),
    Prove(ClientId, ClusterTime),
    RaiseFloor(ClusterTime, Vec<ClientId>),
    Copy(Index),
    /// Rebuild from live records alone, in any order.
    RecoverLive(Vec<Index>),
    /// Rebuild from the log, from which the cleaner has taken some of the dead records.
    RecoverLog(u32),
}

fn request(u: &mut Unstructured<'_>) -> Result<Request> {
    let sequence = match draw::weighted(u, &[20, 1, 1])? {
        0 => u.int_in_range(1..=11)?,
        1 => u.int_in_range(500..=529)?,
        _ => u64::MAX,
    };
    let acknowledgement = match draw::below(u, 3)? {
        0 => u.int_in_range(1..=5)?,
        1 => u.int_in_range(1..=13)?,
        _ => u64::MAX,
    };
    Ok(Request {
        rpc: RpcId { client: client(u)?, sequence: Sequence(sequence) },
        body_hash: BodyHash(u64::from(draw::one_in(u, 20)?)),
        acknowledgement: AckedBelow(acknowledgement),
        lease_expiry: time(u)?,
    })
}

fn client(u: &mut Unstructured<'_>) -> Result<ClientId> {
    u.int_in_range(1..=3).map(ClientId)
}

fn time(u: &mut Unstructured<'_>) -> Result<ClusterTime> {
    u.int_in_range(0..=7).map(ClusterTime)
}

impl<'a> Arbitrary<'a> for Step {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(match draw::weighted(u, &[24, 4, 1, 4, 1, 4, 1, 1])? {
            0 => Self::Deliver { request: request(u)?, replayed: draw::one_in(u, 5)?, at_once: !draw::one_in(u, 3)? },
            1 => Self::Finish(u.arbitrary()?),
            2 => Self::Abandon(u.arbitrary()?),
            3 => Self::Prove(client(u)?, time(u)?),
            4 => Self::RaiseFloor(time(u)?, (0..draw::below(u, 3)?).map(|_| client(u)).collect::<Result<_>>()?),
            5 => Self::Copy(u.arbitrary()?),
            6 => Self::RecoverLive(draw::up_to(u, 20)?),
            _ => Self::RecoverLog(u.arbitrary()?),
        })
    }
}

#[derive(Default)]
struct World {
    tracker: Tracker,
    model: Model,
    log: Vec<LogEntry>,
    /// What was appended and not reported dead.
    live: BTreeSet<Place>,
}

impl World {
    fn append(&mut self, entry: LogEntry) -> Place {
        self.log.push(entry);
        Place(self.log.len() as u64 - 1)
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Deliver { request, replayed, at_once } => self.deliver(request, replayed, at_once),
            Step::Finish(index) => {
                if let Some((request, replayed)) = self.pick_in_progress(index) {
                    self.complete(request, replayed);
                }
            }
            Step::Abandon(index) => {
                if let Some((request, _)) = self.pick_in_progress(index) {
                    self.tracker.abandon(request.rpc);
                    let client = self.model.clients.get_mut(&request.rpc.client).expect("known");
                    client.in_progress.remove(&request.rpc.sequence);
                }
            }
            Step::Prove(client, lease_expiry) => self.prove(client, lease_expiry),
            Step::RaiseFloor(floor, clients) => self.raise_floor(floor, clients),
            Step::Copy(index) => self.copy(index),
            Step::RecoverLive(swaps) => self.recover_live(&swaps),
            Step::RecoverLog(keep) => self.recover_log(keep),
        }
        self.check();
    }

    fn deliver(&mut self, request: Request, replayed: bool, at_once: bool) {
        let expected = self.model.look_up(&request, replayed);
        let found = if replayed { self.tracker.look_up_replayed(&request) } else { self.tracker.look_up(&request) };
        assert_eq!(found, expected, "{request:?} replayed: {replayed}");
        if found != LookUp::New {
            return;
        }
        if at_once {
            return self.complete(request, replayed);
        }
        self.prove(request.rpc.client, request.lease_expiry);
        self.begin(request, replayed);
    }

    fn prove(&mut self, client: ClientId, lease_expiry: ClusterTime) {
        self.tracker.prove(client, lease_expiry);
        let client = self.model.clients.entry(client).or_default();
        client.lease_expiry = client.lease_expiry.max(lease_expiry);
    }

    fn begin(&mut self, request: Request, replayed: bool) {
        self.tracker.begin(request.rpc, request.body_hash);
        let client = self.model.clients.get_mut(&request.rpc.client).expect("proven");
        client.in_progress.insert(request.rpc.sequence, (request, replayed));
    }

    fn pick_in_progress(&self, index: Index) -> Option<(Request, bool)> {
        let running: Vec<_> = self.model.clients.values().flat_map(|client| client.in_progress.values()).collect();
        (!running.is_empty()).then(|| *running[index.index(running.len())])
    }

    fn complete(&mut self, request: Request, replayed: bool) {
        let RpcId { client, sequence } = request.rpc;
        let own = self.tracker.acknowledgement_of(client);
        let recorded = if replayed { Request { acknowledgement: own, ..request } } else { request };
        let place = self.append(LogEntry::Record(recorded));
        self.live.insert(place);
        let live = &mut self.live;
        let dead = |place| assert!(live.remove(&place), "{place:?} died twice");
        if replayed {
            self.tracker.complete_replayed(&request, place, dead);
        } else {
            self.tracker.complete(&request, place, dead);
        }
        let client = self.model.clients.entry(client).or_default();
        client.lease_expiry = client.lease_expiry.max(request.lease_expiry);
        client.in_progress.remove(&sequence);
        client.records.insert(sequence, Record { request: recorded, place });
    }

    fn raise_floor(&mut self, floor: ClusterTime, clients: Vec<ClientId>) {
        self.tracker.raise_floor(floor);
        self.model.floor = self.model.floor.max(floor);
        let idle = |id: &ClientId| self.model.clients.get(id).is_some_and(|client| client.in_progress.is_empty());
        let dropped: Vec<ClientId> = clients.into_iter().filter(idle).collect();
        for &client in &dropped {
            self.model.clients.remove(&client);
            let live = &mut self.live;
            let dead = |place| assert!(live.remove(&place), "{place:?} died twice");
            self.tracker.forget_before(client, Place(u64::MAX), dead);
        }
        self.append(LogEntry::Floor(floor, dropped));
    }

    /// What the cleaner does to a record, live or not.
    fn copy(&mut self, index: Index) {
        if self.log.is_empty() {
            return;
        }
        let from = Place(index.index(self.log.len()) as u64);
        let LogEntry::Record(request) = self.log[from.0 as usize].clone() else { return };
        if !self.tracker.is_live(request.rpc, from) {
            assert!(!self.live.contains(&from));
            return;
        }
        let to = self.append(LogEntry::Record(request));
        assert!(self.tracker.relocate(request.rpc, from, to));
        assert!(self.live.remove(&from) && self.live.insert(to));
        let client = self.model.clients.get_mut(&request.rpc.client).expect("known");
        client.records.get_mut(&request.rpc.sequence).expect("known").place = to;
    }

    fn recover_live(&mut self, swaps: &[Index]) {
        let live = self.model.clients.values().flat_map(ModelClient::live);
        let mut records: Vec<Record> = live.collect();
        for (position, swap) in swaps.iter().enumerate().take(records.len()) {
            let other = swap.index(records.len());
            records.swap(position, other);
        }
        self.tracker = Tracker::new();
        for Record { request, place } in &records {
            self.tracker.recover(request, *place, |place| panic!("{place:?} is live"));
        }
        self.tracker.raise_floor(self.model.floor);
        self.model_recovers(&records);
    }

    /// `keep` says of which dead records the cleaner has left a copy, by their places.
    fn recover_log(&mut self, keep: u32) {
        self.tracker = Tracker::new();
        let mut records = Vec::new();
        for (position, entry) in self.log.iter().enumerate() {
            let place = Place(position as u64);
            match entry {
                LogEntry::Record(_) if !self.live.contains(&place) && keep >> (position % 32) & 1 == 0 => {}
                LogEntry::Record(request) => {
                    records.push(Record { request: *request, place });
                    self.tracker.recover(request, place, |place| assert!(!self.live.contains(&place)));
                }
                LogEntry::Floor(floor, clients) => {
                    records.retain(|record| !clients.contains(&record.request.rpc.client));
                    for &client in clients {
                        self.tracker.forget_before(client, place, |place| assert!(!self.live.contains(&place)));
                    }
                    self.tracker.raise_floor(*floor);
                }
            }
        }
        self.model_recovers(&records);
    }

    /// Only what the log holds is left; what was pending is found in it too, and begins again.
    fn model_recovers(&mut self, records: &[Record]) {
        let mut pending = Vec::new();
        for client in self.model.clients.values_mut() {
            let acknowledged = client.acknowledged();
            let running = std::mem::take(&mut client.in_progress);
            pending.extend(running.into_values().filter(|(request, _)| request.rpc.sequence.0 >= acknowledged));
            client.lease_expiry = ClusterTime(0);
        }
        self.model.clients.retain(|_, client| !client.records.is_empty());
        for Record { request, .. } in records {
            let client = self.model.clients.get_mut(&request.rpc.client).expect("a client with records");
            client.lease_expiry = client.lease_expiry.max(request.lease_expiry);
        }
        for (request, replayed) in pending {
            self.prove(request.rpc.client, request.lease_expiry);
            self.begin(request, replayed);
        }
    }

    fn check(&self) {
        self.tracker.assert_invariants();
        assert_eq!(self.live, self.model.live());
        assert_eq!(self.tracker.floor().time(), self.model.floor);
        let stats = self.tracker.stats();
        assert_eq!((stats.clients, stats.records), (self.model.clients.len() as u64, self.live.len() as u64));
        for (id, client) in &self.model.clients {
            assert_eq!(self.tracker.acknowledgement_of(*id), AckedBelow(client.acknowledged()));
            for record in client.records.values() {
                let live = self.live.contains(&record.place);
                assert_eq!(self.tracker.is_live(record.request.rpc, record.place), live);
            }
        }
        let older_than = ClusterTime(5);
        let mut found = self.tracker.idle_candidates(older_than, &mut ScanCursor::default(), u32::MAX);
        found.sort();
        let idle =
            self.model.clients.iter().filter(|(_, it)| it.lease_expiry < older_than && it.in_progress.is_empty());
        assert!(idle.map(|(id, _)| *id).eq(found));
    }
}

/// See the module.
#[derive(Debug)]
pub struct TrackerHistory(Vec<Step>);

impl<'a> Arbitrary<'a> for TrackerHistory {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        draw::until_empty(u, STEPS_MAX).map(Self)
    }
}

impl Property for TrackerHistory {
    const NAME: &'static str = "tracker_history";
    const INPUT_BYTES_MAX: usize = 1000;

    fn hold(self) {
        let mut world = World::default();
        for step in self.0 {
            world.step(step);
        }
    }
}
