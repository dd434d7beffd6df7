//! One client of a cluster, as a deterministic state machine.
//!
//! It finds the cluster, holds a client id and its lease, numbers updates, sends each to the shard's primary and, where
//! the fast path exists, to its witnesses at once, and says what became of it. It refuses to know sockets, clocks and
//! what operations mean.
//!
//! Rules kept here: **R2.1** a body is frozen when it is numbered, and only words of one attempt count together;
//! **R2.2** executed, not executed and unknown are never blurred; **R6.1** an update is recorded on exactly the list's
//! witnesses or on none; **4** at most `OUTSTANDING_MAX` sequences are unacknowledged, and an id is acknowledged only
//! when its outcome is known, whoever still waits for it (pitfall 1). CURP 3.2.1, RIFL 3.
//!
//! `update → start_update → (target, number) → send_update → on_answer / on_recorded / on_synced → complete`; whatever
//! goes wrong ends in another `start`, or in a `pause` before it. `end_turn` runs the timers, then the session's own
//! errands (`cluster`), then what was queued.

mod call;
mod cluster;
mod completion;
mod reads;
mod stats;
mod tables;
mod timers;
mod updates;

pub use call::CallId;
pub use completion::{Completion, WhyFailed, WhyNot, WhyUnknown};
pub use stats::SessionStats;
#[cfg(feature = "tokio")]
pub(crate) use updates::{check_read, check_update};

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use kasha_machine::{Effect, Effects, Endpoint, Gate, Input, Machine, Rng};
use kasha_types::{ClientId, ClusterId, CoreId, LogSlice, TableId, Tick};
use kasha_wire::message::TableOutcome;
use kasha_wire::{Configuration, Kind as FrameKind, Message, Read, Update};

use crate::limits;
use call::{Calls, Kind, NEVER, Numbered, Stage};
use cluster::Cluster;
use timers::Timers;

/// How a session is to behave.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Addresses of some of the cluster's nodes, or of its coordinator; asked in turn for the configuration.
    pub seeds: Vec<SocketAddr>,
    /// The only cluster to talk to; `None`: the first that answers.
    pub cluster: Option<ClusterId>,
    /// Seeds nonces and jitter. Two sessions of one cluster must not share it.
    pub seed: u64,
    /// How long a call may take whose caller gives no deadline.
    pub deadline: Duration,
    /// The first attempt's patience; doubles with each silent attempt up to a second.
    pub attempt_timeout: Duration,
    /// `false`: every retry is a new request, as in clients that know no exactly-once. For demonstrations.
    pub exactly_once: bool,
    /// `false`: record on no witness, wait for the sync each time. For comparisons.
    pub fast_path: bool,
}

impl SessionOptions {
    /// The defaults: exactly once, with the fast path, 30 s to a deadline.
    #[must_use]
    pub fn new(seeds: Vec<SocketAddr>, seed: u64) -> Self {
        Self {
            seeds,
            cluster: None,
            seed,
            deadline: limits::DEADLINE,
            attempt_timeout: limits::ATTEMPT_TIMEOUT,
            exactly_once: true,
            fast_path: true,
        }
    }
}

/// What a caller may say of one update.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallOptions<'a> {
    /// When the caller wants to be told "unknown" rather than wait on; `None`: after the session's default.
    pub deadline: Option<Tick>,
    /// The caller's own idempotency key and its time to live in milliseconds (R4.9).
    pub operation_key: Option<(&'a [u8], u64)>,
    /// At the deadline cancel the update, so that the outcome is known (within a second more) if a shard answers.
    pub cancel_on_deadline: bool,
}

/// A client's protocol state.
#[derive(Debug)]
pub struct Session {
    options: SessionOptions,
    rng: Rng,
    cluster: Cluster,
    numbered: Option<Numbered>,
    calls: Calls,
    timers: Timers,
    /// Updates that wait for a client id or for room in its window, oldest first; ended ones are skipped.
    queued: VecDeque<CallId>,
    /// Table requests, the running one in front; ended ones are skipped.
    tables: VecDeque<CallId>,
    table_sequence: u64,
    completed: VecDeque<(CallId, Completion)>,
    resolved: VecDeque<(CallId, Completion)>,
    resolved_bytes: usize,
    spare: Vec<Vec<u8>>,
    /// Makes the ids of reads unlike another session's.
    salt: u64,
    stats: SessionStats,
}

impl Session {
    /// A session that is about to look for its cluster.
    ///
    /// # Panics
    /// Without a seed address.
    #[must_use]
    pub fn new(options: SessionOptions, now: Tick, out: &mut Effects) -> Self {
        assert!(!options.seeds.is_empty(), "a session needs somebody to ask");
        let mut rng = Rng::new(options.seed);
        for (index, &address) in options.seeds.iter().enumerate() {
            let index = u16::try_from(index).expect("a handful of seeds");
            out.push(Effect::Route { to: Endpoint::Seed(index), address });
        }
        Self {
            cluster: Cluster::new(options.cluster, now),
            numbered: None,
            calls: Calls::default(),
            timers: Timers::default(),
            queued: VecDeque::new(),
            tables: VecDeque::new(),
            table_sequence: 0,
            completed: VecDeque::new(),
            resolved: VecDeque::new(),
            resolved_bytes: 0,
            spare: Vec::new(),
            salt: rng.next_u64(),
            stats: SessionStats::default(),
            options,
            rng,
        }
    }

    /// Starts an update of keys of `table`.
    pub fn update(
        &mut self,
        now: Tick,
        table: TableId,
        update: &Update<'_>,
        options: &CallOptions<'_>,
        out: &mut Effects,
    ) -> CallId {
        self.new_update(now, table, update, options, out)
    }

    /// Starts a read of keys of `table`; `deadline` as in [`CallOptions`].
    pub fn read(
        &mut self,
        now: Tick,
        table: TableId,
        read: &Read<'_>,
        deadline: Option<Tick>,
        out: &mut Effects,
    ) -> CallId {
        self.new_read(now, table, read, deadline, out)
    }

    /// Creates a table.
    pub fn create_table(&mut self, now: Tick, name: &str, out: &mut Effects) -> CallId {
        self.new_table_call(Kind::CreateTable, now, name, out)
    }

    /// Drops a table with all it holds.
    pub fn drop_table(&mut self, now: Tick, name: &str, out: &mut Effects) -> CallId {
        self.new_table_call(Kind::DropTable, now, name, out)
    }

    /// Asks a core how it is.
    pub fn status(&mut self, now: Tick, core: CoreId, out: &mut Effects) -> CallId {
        let slot = self.insert(Kind::Status { core }, now, None, |_| ());
        self.start_status(slot, now, out);
        self.calls.id(slot)
    }

    /// Completes with [`Completion::Refreshed`] once the configuration is as new as the coordinator's.
    pub fn refresh(&mut self, now: Tick, out: &mut Effects) -> CallId {
        let _ = &out;
        let slot = self.insert(Kind::Refresh, now, None, |_| ());
        self.ask_coordinator(slot, now);
        self.calls.id(slot)
    }

    /// The caller no longer waits. What was sent is finished in the background, and only then acknowledged (pitfall 1);
    /// nobody is told. A call that has ended already is fine.
    pub fn abandon(&mut self, call: CallId) {
        if let Some(at) = self.resolved.iter().position(|(id, _)| *id == call) {
            self.forget_resolved(at);
        }
        let Some(slot) = self.calls.find(call) else { return };
        let must_finish = match self.calls[slot].kind {
            Kind::Update(_) | Kind::CreateTable | Kind::DropTable => self.calls[slot].sent,
            Kind::Read { .. } | Kind::Status { .. } | Kind::Refresh => false,
            Kind::Free => unreachable!("found"),
        };
        if must_finish {
            self.calls[slot].abandoned = true;
        } else {
            self.calls.remove(slot);
        }
    }

    /// What became of an update (or table request) after its deadline had passed: `None` while it is still not known.
    /// Told once.
    pub fn resolve(&mut self, call: CallId) -> Option<Completion> {
        if let Some(at) = self.resolved.iter().position(|(id, _)| *id == call) {
            return Some(self.forget_resolved(at));
        }
        match self.calls.find(call) {
            Some(_) => None,
            None => Some(Completion::Unknown(WhyUnknown::Forgotten)),
        }
    }

    /// The next call that ended, in order. Drain after every turn.
    pub fn poll_completed(&mut self) -> Option<(CallId, Completion)> {
        self.completed.pop_front()
    }

    /// Gives a result's buffer back, for the next result.
    pub fn recycle(&mut self, mut buffer: Vec<u8>) {
        const SPARE_MAX: usize = 64;
        if self.spare.len() < SPARE_MAX && buffer.capacity() <= limits::BUFFER_KEPT_BYTES {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// Whether the session has a configuration and a client id: updates leave at once.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.cluster.configuration.is_some() && self.numbered.is_some()
    }

    /// The newest configuration seen.
    #[must_use]
    pub fn configuration(&self) -> Option<&Configuration> {
        self.cluster.configuration.as_ref()
    }

    /// The present client id.
    #[must_use]
    pub fn client(&self) -> Option<ClientId> {
        self.numbered.as_ref().map(|numbered| numbered.client)
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> &SessionStats {
        &self.stats
    }

    /// Calls that have not ended, those that go on in the background included.
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

    /// The call is over; tells its caller, keeps the outcome, or does neither.
    fn end(&mut self, slot: usize, completion: Completion) {
        let id = self.calls.id(slot);
        let call = &self.calls[slot];
        let (detached, abandoned) = (call.detached, call.abandoned);
        if let Kind::Update(update) = call.kind
            && let Some(sequence) = update.sequence
        {
            self.numbered.as_mut().expect("a sequence has a client").finish(sequence);
        }
        self.calls.remove(slot);
        if abandoned {
            if let Completion::Executed { result, .. } = completion {
                self.recycle(result);
            }
        } else if detached {
            self.keep_resolved(id, completion);
        } else {
            self.completed.push_back((id, completion));
        }
    }

    /// Tells the caller that the outcome is unknown, and goes on finding out.
    fn detach(&mut self, slot: usize) {
        let id = self.calls.id(slot);
        let call = &mut self.calls[slot];
        call.detached = true;
        if !call.abandoned {
            self.stats.unknown += 1;
            self.completed.push_back((id, Completion::Unknown(WhyUnknown::DeadlinePassed)));
        }
        self.timers.arm(&mut self.calls, slot);
    }

    fn keep_resolved(&mut self, id: CallId, completion: Completion) {
        self.resolved_bytes += result_bytes(&completion);
        self.resolved.push_back((id, completion));
        while self.resolved.len() > limits::RESOLVED_MAX || self.resolved_bytes > limits::RESOLVED_BYTES_MAX {
            self.forget_resolved(0);
        }
    }

    fn forget_resolved(&mut self, at: usize) -> Completion {
        let (_, completion) = self.resolved.remove(at).expect("found");
        self.resolved_bytes -= result_bytes(&completion);
        completion
    }

    /// Sends the call's first attempt, or another.
    fn start(&mut self, slot: usize, now: Tick, out: &mut Effects) {
        match self.calls[slot].kind {
            Kind::Update(_) => self.start_update(slot, now, out),
            Kind::Read { .. } => self.start_read(slot, now, out),
            Kind::CreateTable | Kind::DropTable => self.send_table_request(slot, now, out),
            Kind::Status { .. } => self.start_status(slot, now, out),
            Kind::Refresh => self.ask_coordinator(slot, now),
            Kind::Free => unreachable!("only live calls are started"),
        }
    }

    /// Gives up on the running attempt; the next one comes after a pause that doubles, or, if it is of use, with a newer
    /// configuration.
    fn pause(&mut self, slot: usize, for_configuration: bool, now: Tick) {
        let refused = self.calls[slot].refused;
        let longest = limits::BACKOFF.saturating_mul(1 << refused.min(16)).min(limits::BACKOFF_MAX);
        let pause = self.jittered_below(longest);
        let call = &mut self.calls[slot];
        call.refused += 1;
        call.stage = Stage::Backoff { for_configuration };
        call.resume = now.after(pause);
        self.timers.arm(&mut self.calls, slot);
        if for_configuration {
            self.cluster.want_configuration();
        }
    }

    /// Between half of it and all.
    fn jittered_below(&mut self, longest: Duration) -> Duration {
        let nanos = u64::try_from(longest.as_nanos()).expect("short");
        Duration::from_nanos(self.rng.between(nanos / 2, nanos))
    }

    /// How long the attempt that is sent now may be silent.
    fn patience(&mut self, silent: u32) -> Duration {
        let patience =
            self.options.attempt_timeout.saturating_mul(1 << silent.min(16)).min(limits::ATTEMPT_TIMEOUT_MAX);
        patience.max(Duration::from_micros(1)) + self.jittered_below(patience) / 4
    }

    fn run_timers(&mut self, now: Tick, out: &mut Effects) {
        while let Some(slot) = self.timers.pop_due(&mut self.calls, now) {
            let id = self.calls.id(slot);
            let call = &self.calls[slot];
            if !call.detached && call.deadline <= now {
                self.on_deadline(slot, now, out);
            }
            if self.calls.find(id) != Some(slot) {
                continue;
            }
            if self.calls[slot].resume <= now {
                self.calls[slot].resume = NEVER;
                match self.calls[slot].stage {
                    Stage::InFlight(_) => self.on_silence(slot, now, out),
                    Stage::Backoff { .. } | Stage::ForCoordinator => self.start(slot, now, out),
                    Stage::Queued => {}
                }
            }
            if self.calls.find(id) == Some(slot) {
                assert!(self.calls[slot].wake() > now, "a call that was looked at waits for something later");
                self.timers.arm(&mut self.calls, slot);
            }
        }
    }

    fn on_deadline(&mut self, slot: usize, now: Tick, out: &mut Effects) {
        match self.calls[slot].kind {
            Kind::Update(_) => self.on_update_deadline(slot, now, out),
            Kind::CreateTable | Kind::DropTable if self.calls[slot].sent => self.detach(slot),
            Kind::CreateTable | Kind::DropTable => {
                self.end(slot, Completion::NotExecuted(WhyNot::DeadlineBeforeSend));
            }
            Kind::Read { .. } | Kind::Status { .. } | Kind::Refresh => {
                self.end(slot, Completion::ReadFailed(WhyFailed::DeadlinePassed));
            }
            Kind::Free => unreachable!("only live calls have deadlines"),
        }
    }

    /// The attempt got no word in time.
    fn on_silence(&mut self, slot: usize, now: Tick, out: &mut Effects) {
        match self.calls[slot].kind {
            Kind::Update(_) => self.on_update_silence(slot, now, out),
            Kind::Read { .. } | Kind::CreateTable | Kind::DropTable | Kind::Status { .. } | Kind::Refresh => {
                self.stats.timeouts += 1;
                self.calls[slot].silent += 1;
                self.cluster.want_configuration();
                self.start(slot, now, out);
            }
            Kind::Free => unreachable!("only live calls are in flight"),
        }
    }

    fn on_unreachable(&mut self, endpoint: Endpoint, now: Tick, out: &mut Effects) {
        match endpoint {
            Endpoint::Core(core) => {
                self.cluster.want_configuration();
                for slot in self.calls.slots() {
                    let Stage::InFlight(in_flight) = self.calls[slot].stage else { continue };
                    match self.calls[slot].kind {
                        Kind::Free => {}
                        _ if in_flight.primary == core => self.pause(slot, true, now),
                        Kind::Update(_) => self.on_witness_gone(slot, core, now, out),
                        _ => {}
                    }
                }
            }
            Endpoint::Seed(_) => self.cluster.on_seed_unreachable(now),
            Endpoint::Coordinator | Endpoint::Conn(_) => {}
        }
    }

    fn on_frame(&mut self, from: Endpoint, kind: u8, payload: &[u8], now: Tick, out: &mut Effects) {
        let handled = match (FrameKind::from_number(kind), from) {
            (Some(FrameKind::Answer), Endpoint::Core(_)) => self.on_answer(payload, now, out),
            (Some(FrameKind::Refuse), Endpoint::Core(_)) => self.on_refused(payload, now, out),
            (Some(FrameKind::Recorded), Endpoint::Core(core)) => self.on_recorded(core, payload, now, out),
            (Some(FrameKind::Synced), Endpoint::Core(_)) => self.on_synced(payload, now, out),
            (Some(FrameKind::ReadAnswer), Endpoint::Core(_)) => self.on_read_answer(payload),
            (Some(FrameKind::ReadRefuse), Endpoint::Core(_)) => self.on_read_refused(payload, now),
            (Some(FrameKind::Message), Endpoint::Core(_) | Endpoint::Coordinator | Endpoint::Seed(_)) => {
                Message::decode(payload).map(|message| self.on_message(from, message, now, out))
            }
            _ => Ok(Known::No),
        };
        match handled {
            Ok(Known::Yes) => {}
            Ok(Known::No) => self.stats.stray_frames += 1,
            Err(_) => self.stats.bad_frames += 1,
        }
    }

    fn on_message(&mut self, from: Endpoint, message: Message, now: Tick, out: &mut Effects) -> Known {
        let from_coordinator = from == Endpoint::Coordinator;
        match message {
            Message::ConfigurationIs { configuration } => {
                self.on_configuration(configuration, from_coordinator, now, out)
            }
            Message::SessionOpened { nonce, client, lease_expiry, cluster_time } if from_coordinator => {
                self.on_session_opened(nonce, client, lease_expiry, cluster_time, now)
            }
            Message::LeaseRenewed { client, lease_expiry, cluster_time } if from_coordinator => {
                self.on_lease_renewed(client, lease_expiry, cluster_time, now)
            }
            Message::LeaseLost { client } if from_coordinator => self.on_lease_lost(client, now),
            Message::TableAnswer { client, sequence, outcome } if from_coordinator => {
                self.on_table_answer(client, sequence, outcome)
            }
            Message::StatusIs { id, status } => self.on_status(from, id, status),
            _ => Known::No,
        }
    }
}

/// Whether a frame was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Yes,
    No,
}

fn result_bytes(completion: &Completion) -> usize {
    match completion {
        Completion::Executed { result, .. } | Completion::Read { result } => result.len(),
        Completion::Table(TableOutcome::Refused(why)) => why.len(),
        Completion::Table(_)
        | Completion::NotExecuted(_)
        | Completion::Unknown(_)
        | Completion::ReadFailed(_)
        | Completion::Status(_)
        | Completion::Refreshed => 0,
    }
}

fn send(to: Endpoint, mark: usize, out: &mut Effects) {
    let head = out.span_from(mark);
    out.push(Effect::Send { to, head, tail: None, gate: Gate::Now });
}

fn send_message(to: Endpoint, message: &Message, out: &mut Effects) {
    let mark = out.mark();
    message.encode(out.arena());
    send(to, mark, out);
}

impl Machine for Session {
    fn step(&mut self, now: Tick, input: Input<'_>, out: &mut Effects) {
        match input {
            Input::Frame { from, kind, payload } => self.on_frame(from, kind, payload, now, out),
            Input::Unreachable(endpoint) => self.on_unreachable(endpoint, now, out),
            Input::Closed(_) | Input::Durable(_) | Input::Tick => {}
        }
    }

    fn end_turn(&mut self, now: Tick, out: &mut Effects) {
        self.run_timers(now, out);
        self.run_errands(now, out);
        self.start_queued(now, out);
    }

    fn next_deadline(&self) -> Option<Tick> {
        let errand = self.cluster.next_errand();
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
            let call = &self.calls[slot];
            let Kind::Update(update) = call.kind else { continue };
            assert!(!call.detached || call.sent, "R2.2: what never left has a certain outcome");
            assert!(call.armed <= call.wake(), "a call that waits for a moment is armed");
            if let Some(sequence) = update.sequence {
                numbered_calls += 1;
                let numbered = self.numbered.as_ref().expect("a sequence has a client");
                assert_eq!(numbered.slot_of(numbered.client, sequence), Some(slot), "{sequence}");
                let acknowledgement = numbered.window.acknowledgement();
                assert!(sequence.0 >= acknowledgement.0, "pitfall 1: {sequence} is open but {acknowledgement}");
            }
        }
        let held = self.numbered.as_ref().map_or(0, |numbered| numbered.held().count());
        assert_eq!(held, numbered_calls, "every held sequence has its call");
    }
}
