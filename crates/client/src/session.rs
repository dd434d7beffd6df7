//! One client of a cluster, as a deterministic state machine.
//!
//! It finds the cluster, holds a client id and its lease, and numbers updates. It sends each update to the shard's
//! primary and, where the fast path exists, to its witnesses at the same time. It reports the outcome of each call. It
//! refuses to know sockets, clocks and the meaning of operations.
//!
//! Rules kept here: **R2.1** a body is frozen when it is numbered, and only messages of one attempt count together;
//! **R2.2** executed, not executed and unknown are told apart; **R6.1** an update is recorded on exactly the list's
//! witnesses or on none; **section 4** at most `OUTSTANDING_MAX` sequences are unacknowledged, and an id is
//! acknowledged only when its outcome is known, even if no caller waits for it any more (pitfall 1). CURP 3.2.1, RIFL
//! 3.
//!
//! A call begins in `updates`, `reads` or `tables`. `route` says where it goes, `pace` when it is sent again, `silence`
//! who does not answer and how long others take, `replies` what the servers' messages mean, and `outcomes` which caller
//! is told. `end_turn` runs the timers, then the session's own tasks (`cluster`, `identities`), then queued calls.
//! What takes several calls is a value beside the session, which says what to ask for next: `listing`; `interactive`, `tries`.

mod advice;
mod attempt;
mod call;
mod calls;
mod check;
mod cluster;
mod completion;
mod contention;
mod dispatch;
mod distributed;
mod frames;
mod identities;
mod identity;
mod interactive;
mod lifetime;
mod listing;
mod options;
mod outcomes;
mod pace;
mod participant;
mod participants;
mod reads;
mod replies;
mod route;
mod silence;
mod snapshots;
mod stats;
mod tables;
mod target;
mod timers;
mod transaction;
mod tries;
mod two_phase;
mod updates;
mod wrong;

pub use call::CoreQuestion;
pub use calls::CallId;
pub use completion::{Completion, CoreAnswer, TimeToLive, WaitsFor, WhyFailed, WhyNot, WhyUnknown};
pub use interactive::{Commit, Conflict, Found, Interactive, NoCommit, ToCommit, number_in};
pub use lifetime::lifetime_of;
pub use listing::{Count, Cursor, Listing, NoCursor, Shows};
pub use options::{Again, CallOptions, Locking, Seeds, SessionOptions};
pub use stats::SessionStats;
pub use transaction::TransactionParts;
pub use tries::{BodyEnd, CommitEnd, Next, Tries};

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use kasha_machine::{Effect, Effects, Endpoint, Gate, Input, Machine, Rng};
use kasha_types::limits::OUTSTANDING_MAX;
use kasha_types::{ClientId, CoreId, LogSlice, Tick};
use kasha_wire::Configuration;

use crate::limits;
use call::{Caller, Kind, Stage};
use calls::Calls;
use cluster::Cluster;
use identities::Identities;
use identity::{Identity, Place};
use outcomes::Kept;
use participant::Participants;
use silence::Silence;
use snapshots::Snapshots;
use timers::Timers;

/// A client's protocol state.
#[derive(Debug)]
pub struct Session {
    options: SessionOptions,
    rng: Rng,
    cluster: Cluster,
    identities: Identities,
    calls: Calls,
    timers: Timers,
    /// Updates that wait for a client id or for room in its window: first those that have lost to others, who has waited longest before the
    /// others, then the rest as they came. Entries of ended calls are skipped.
    queued: VecDeque<CallId>,
    /// Updates to shards that hold up a client id, oldest first (R4.10). Entries of ended calls are skipped.
    held_back: BTreeMap<Place, VecDeque<CallId>>,
    /// Table requests; the first is running. Entries of ended calls are skipped.
    tables: VecDeque<CallId>,
    /// The client id under which the running table request was sent.
    table_client: Option<ClientId>,
    completed: VecDeque<(CallId, Completion)>,
    kept: Kept,
    snapshots: Snapshots,
    contention: contention::Contention,
    silence: Silence,
    /// Since when nobody has said anything, although a connection has ended or an attempt has waited in vain.
    unheard: Option<Tick>,
    spare: Vec<Vec<u8>>,
    /// Cancellations of calls that have ended, and for whom: nobody comes when it is their turn.
    farewells: Vec<(CoreId, Vec<u8>)>,
    /// Makes the ids of this session's reads different from those of other sessions.
    salt: u64,
    stats: SessionStats,
}

impl Session {
    /// A session that begins to look for its cluster.
    ///
    /// # Panics
    /// Without a seed address, or with a window of 0 or more than `OUTSTANDING_MAX`.
    #[must_use]
    pub fn new(options: SessionOptions, now: Tick, out: &mut Effects) -> Self {
        assert!(options.seeds.count() > 0, "a session needs somebody to ask");
        assert!((1..=OUTSTANDING_MAX).contains(&options.outstanding_max), "a window of {}", options.outstanding_max);
        let mut rng = Rng::new(options.seed);
        if let Seeds::At(addresses) = &options.seeds {
            for (index, &address) in addresses.iter().enumerate() {
                let index = u16::try_from(index).expect("a handful of seeds");
                out.push(Effect::Route { to: Endpoint::Seed(index), address });
            }
        }
        Self {
            cluster: Cluster::new(options.cluster, now),
            identities: Identities::opening(now),
            calls: Calls::default(),
            timers: Timers::default(),
            queued: VecDeque::new(),
            held_back: BTreeMap::new(),
            tables: VecDeque::new(),
            table_client: None,
            completed: VecDeque::new(),
            snapshots: Snapshots::default(),
            contention: contention::Contention::default(),
            silence: Silence::default(),
            unheard: None,
            kept: Kept::default(),
            spare: Vec::new(),
            farewells: Vec::new(),
            salt: rng.next_u64(),
            stats: SessionStats::default(),
            options,
            rng,
        }
    }

    /// Takes back the buffer of a result, to use it for a later result.
    pub fn recycle(&mut self, mut buffer: Vec<u8>) {
        const SPARE_MAX: usize = 64;
        if self.spare.len() < SPARE_MAX && buffer.capacity() <= limits::BUFFER_KEPT_BYTES {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// Changes when participants take locks, and forgets whom the session has met. For comparisons.
    pub fn set_locking(&mut self, locking: Locking) {
        if self.options.locking != locking {
            self.options.locking = locking;
            self.contention = contention::Contention::default();
        }
    }

    /// A random number, of the session's seed.
    pub fn draw(&mut self) -> u64 {
        self.rng.next_u64()
    }

    /// Whether the session has a configuration and a client id, so that updates can be sent at once.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.cluster.configuration.is_some() && self.client().is_some()
    }

    /// The members of the coordinator's group, if none of them leads as far as they say, and no configuration was seen.
    #[must_use]
    pub fn members_without_leader(&self) -> Option<Vec<SocketAddr>> {
        self.cluster.members_without_leader()
    }

    /// Since when nobody of the cluster has said anything: from when a connection has ended, or something was asked in vain. It proves nothing
    /// unless somebody is asked who must answer.
    #[must_use]
    pub fn unheard_since(&self) -> Option<Tick> {
        self.unheard
    }

    /// The newest configuration seen.
    #[must_use]
    pub fn configuration(&self) -> Option<&Configuration> {
        self.cluster.configuration.as_ref()
    }

    /// The client id under which the next update is numbered.
    #[must_use]
    pub fn client(&self) -> Option<ClientId> {
        self.identities.current().map(|identity| identity.client)
    }

    /// All client ids of the session (R4.10).
    pub fn clients(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.identities.all().iter().map(|identity| identity.client)
    }

    /// The session's counters.
    #[must_use]
    pub fn stats(&self) -> &SessionStats {
        &self.stats
    }

    /// Calls that have not ended, including those that go on in the background.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.calls.len()
    }

    fn insert(&mut self, kind: Kind, now: Tick, deadline: Option<Tick>, fill: impl FnOnce(&mut Vec<u8>)) -> usize {
        let deadline = deadline.unwrap_or_else(|| now.after(self.options.deadline));
        let slot = self.calls.insert(kind, deadline, fill);
        self.timers.arm(&mut self.calls, slot);
        slot
    }

    /// Sends the call's first attempt, or another.
    fn start(&mut self, slot: usize, now: Tick, out: &mut Effects) {
        match self.calls[slot].kind {
            Kind::Update(_) => self.start_update(slot, now, out),
            Kind::Read(read) => self.start_read(slot, read, now, out),
            Kind::Table(change) => self.send_table_request(slot, change, now, out),
            Kind::Status { core, question } => self.start_status(slot, core, question, now, out),
            Kind::Refresh => self.ask_coordinator(slot, now),
        }
    }
}

impl Machine for Session {
    fn step(&mut self, now: Tick, input: Input<'_>, out: &mut Effects) {
        match input {
            Input::Frame { from, kind, payload } => {
                self.on_frame(from, kind, payload, now, out);
                self.go_on_with_snapshots(now, out);
            }
            Input::Unreachable(endpoint) => self.on_unreachable(endpoint, now, out),
            Input::Closed(_) | Input::Durable(_) | Input::LogsFlushed | Input::UnixTime(_) | Input::Tick => {}
            Input::Request { .. } | Input::RequestsEnd { .. } | Input::Backlog { .. } => {
                unreachable!("requests of other protocols are for a front")
            }
        }
    }

    fn end_turn(&mut self, now: Tick, out: &mut Effects) {
        self.run_timers(now, out);
        self.say_farewells(out);
        self.go_on_with_snapshots(now, out);
        self.relieve_window(now);
        self.run_errands(now, out);
        self.start_queued(now, out);
    }

    fn next_deadline(&self) -> Option<Tick> {
        let errand = self.next_errand();
        Some(self.timers.next().map_or(errand, |timer| timer.min(errand)))
    }

    fn is_open(&self, gate: Gate) -> bool {
        gate == Gate::Now
    }

    fn log_bytes(&self, slice: LogSlice) -> &[u8] {
        unreachable!("a client has no log: {slice:?}")
    }

    fn assert_invariants(&self) {
        let mut numbered_calls = 0;
        for slot in self.calls.slots() {
            let Some(call) = self.calls.get(slot) else { continue };
            assert!(call.caller != Caller::WasToldUnknown || call.is_sent(), "R2.2: what never left has an outcome");
            assert!(self.calls.armed(slot) <= call.wake(), "a call that waits for a moment is armed");
            let is_in_flight = call.stage == Stage::InFlight;
            match &call.participants {
                Participants::One(attempt) => {
                    assert_eq!(attempt.is_some(), is_in_flight, "R2.1: an attempt is of a call in flight");
                }
                // What several have said counts while the call waits, too.
                several @ Participants::Several(_) => {
                    assert!(!is_in_flight || several.targets().next().is_some(), "R2.1: a call in flight has attempts");
                }
            }
            let Kind::Update(update) = call.kind else { continue };
            if let Some(rpc) = update.rpc {
                numbered_calls += 1;
                let identity = self.identities.of(rpc.client).expect("an id has a client");
                assert_eq!(identity.slot_of(rpc), Some(slot), "{rpc:?}");
                let acknowledgement = identity.window.acknowledgement();
                assert!(rpc.sequence.0 >= acknowledgement.0, "pitfall 1: {rpc:?} is open but {acknowledgement}");
            }
        }
        let held: u64 = self.identities.all().iter().map(Identity::open).sum();
        assert_eq!(held, numbered_calls, "every held sequence has its call");
    }
}
