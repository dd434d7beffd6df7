//! E1 and E3 through crashes: honest clients, a log that loses its unsynced tail, a witness that replays it in any
//! order, and a cleaner. The test aims at R4.4 and R4.5: if either is broken, an update runs twice or is lost.

use std::collections::{BTreeMap, BTreeSet};

use kasha_exactly_once::{ClientWindow, LookUp, Place, Request, Tracker};
use kasha_types::{BodyHash, ClientId, ClusterTime, RpcId, Sequence};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

const CLIENTS: usize = 2;
const LEASE: ClusterTime = ClusterTime(100);

#[derive(Clone, Debug)]
enum Step {
    /// A client makes an update; it goes to the witness too.
    Send(usize),
    /// The network delivers an update to the shard, for the first time or again. Finished if the client hears of it.
    Deliver(Index, bool),
    Sync,
    /// The cleaner drops what died under a synced entry.
    Clean,
    /// The unsynced tail is lost; the witness's requests are replayed from this one on, and synced.
    Crash(Index),
    /// The witness asks what became of a request.
    Suspect(Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..CLIENTS).prop_map(Step::Send),
        12 => (any::<Index>(), prop::bool::weighted(0.8)).prop_map(|(index, heard)| Step::Deliver(index, heard)),
        2 => Just(Step::Sync),
        2 => Just(Step::Clean),
        1 => any::<Index>().prop_map(Step::Crash),
        1 => any::<Index>().prop_map(Step::Suspect),
    ]
}

struct World {
    windows: [ClientWindow; CLIENTS],
    sent: Vec<Request>,
    finished: BTreeSet<RpcId>,
    witness: Vec<Request>,
    tracker: Tracker,
    /// Records that the log still holds, by place.
    log: BTreeMap<Place, Request>,
    /// Dead records, and the end of the log when they died.
    dead: BTreeMap<Place, u64>,
    end: u64,
    synced: u64,
    /// What has run, and the place of its first record: the state of the objects.
    ran: BTreeMap<RpcId, Place>,
}

impl World {
    fn new() -> Self {
        let mut tracker = Tracker::new();
        for client in 0..CLIENTS {
            tracker.prove(ClientId(client as u64), LEASE);
        }
        Self {
            windows: [ClientWindow::new(), ClientWindow::new()],
            sent: Vec::new(),
            finished: BTreeSet::new(),
            witness: Vec::new(),
            tracker,
            log: BTreeMap::new(),
            dead: BTreeMap::new(),
            end: 0,
            synced: 0,
            ran: BTreeMap::new(),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Send(client) => self.send(client),
            Step::Deliver(index, heard) => {
                if !self.sent.is_empty() {
                    let request = self.sent[index.index(self.sent.len())];
                    self.deliver(request, heard);
                }
            }
            Step::Sync => self.sync(),
            Step::Clean => {
                let cleaned: Vec<Place> =
                    self.dead.iter().filter(|(_, died)| **died <= self.synced).map(|(place, _)| *place).collect();
                for place in cleaned {
                    self.dead.remove(&place);
                    self.log.remove(&place);
                }
            }
            Step::Crash(first) => self.crash(first),
            Step::Suspect(index) => {
                if !self.witness.is_empty() {
                    let suspect = self.witness[index.index(self.witness.len())];
                    self.replay(suspect);
                }
            }
        }
        self.tracker.assert_invariants();
    }

    fn send(&mut self, client: usize) {
        let Some(assigned) = self.windows[client].assign() else { return };
        let request = Request {
            rpc: RpcId { client: ClientId(client as u64), sequence: assigned.sequence },
            body_hash: BodyHash(assigned.sequence.0),
            acknowledgement: assigned.acknowledgement,
            lease_expiry: LEASE,
        };
        self.sent.push(request);
        self.witness.push(request);
    }

    fn deliver(&mut self, request: Request, heard: bool) {
        let mut found = self.tracker.look_up(&request);
        if found == LookUp::LeaseUnproven {
            self.tracker.prove(request.rpc.client, LEASE);
            found = self.tracker.look_up(&request);
        }
        match found {
            LookUp::New => self.execute(request, false),
            LookUp::Completed(place) => assert_eq!(self.log[&place].rpc, request.rpc, "the saved result is its own"),
            LookUp::Stale => return assert!(self.finished.contains(&request.rpc), "E3: {} has no result", request.rpc),
            LookUp::InProgress
            | LookUp::Reused
            | LookUp::WindowExceeded
            | LookUp::LeaseExpired
            | LookUp::LeaseUnproven => panic!("{request:?} is {found:?}"),
        }
        // The witness has it, or it is synced: the client may complete.
        if heard && self.finished.insert(request.rpc) {
            self.windows[request.rpc.client.0 as usize].finish(request.rpc.sequence);
        }
    }

    fn execute(&mut self, request: Request, replayed: bool) {
        let place = Place(self.end);
        self.end += 1;
        assert_eq!(self.ran.insert(request.rpc, place), None, "E1: {} runs twice", request.rpc);
        let own = self.tracker.acknowledgement_of(request.rpc.client);
        let (dead, end) = (&mut self.dead, self.end);
        let report = |place| assert_eq!(dead.insert(place, end), None, "{place:?} died twice");
        if replayed {
            self.tracker.complete_replayed(&request, place, report);
            self.log.insert(place, Request { acknowledgement: own, ..request });
        } else {
            self.tracker.complete(&request, place, report);
            self.log.insert(place, request);
        }
    }

    fn replay(&mut self, request: Request) {
        match self.tracker.look_up_replayed(&request) {
            LookUp::New => self.execute(request, true),
            LookUp::Completed(place) => assert_eq!(self.log[&place].rpc, request.rpc),
            LookUp::Stale => assert!(self.ran.contains_key(&request.rpc), "R4.5: {} is lost", request.rpc),
            found => panic!("{request:?} is {found:?}"),
        }
    }

    fn sync(&mut self) {
        self.synced = self.end;
        // Its gc names what is in the log by now.
        self.witness.retain(|request| !self.ran.contains_key(&request.rpc));
    }

    fn crash(&mut self, first: Index) {
        let synced = self.synced;
        self.end = synced;
        self.log.retain(|place, _| place.0 < synced);
        self.ran.retain(|_, place| place.0 < synced);
        self.dead.clear();
        self.tracker = Tracker::new();
        for (place, request) in &self.log {
            self.tracker.recover(request, *place, |place| {
                self.dead.insert(place, synced);
            });
        }
        if !self.witness.is_empty() {
            let first = first.index(self.witness.len());
            self.witness.rotate_left(first);
            if first % 2 == 1 {
                self.witness.reverse();
            }
        }
        for request in self.witness.clone() {
            self.replay(request);
        }
        self.sync();
        for rpc in &self.finished {
            assert!(self.ran.contains_key(rpc), "D1: {rpc} was answered and is lost");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn e1_e3_hold_through_crashes_cleaning_and_replay(steps in vec(step(), 1..150), last in any::<Index>()) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        world.crash(last);
        for request in world.sent.clone() {
            world.deliver(request, true);
        }
        for (client, window) in world.windows.iter().enumerate() {
            let sent = world.sent.iter().filter(|request| request.rpc.client == ClientId(client as u64)).count();
            prop_assert_eq!(Sequence(window.acknowledgement().0), Sequence(sent as u64 + 1));
        }
    }
}
