//! A closed loop: each client has one operation under way, and sends the next one when it has the answer.
//!
//! The loop counts what clients saw: latencies, fast-path updates and retries.

use std::fmt::Write as _;
use std::time::Duration;

use hdrhistogram::Histogram;
use kasha_client::Path;
use kasha_client::session::{CallId, Completion, Locking, Session, WhyNot};
use kasha_machine::{Effects, Rng};
use kasha_runtime::{Application, Clock, Control};
use kasha_types::{TableId, Tick};
use kasha_wire::OutcomeCode;

use super::crowd::Crowd;
use super::keys::Keys;
use super::operation::{Asked, Operation};
use crate::limits::LATENCY_MAX_NANOS;

/// The operations that clients make.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) operation: Operation,
    pub(crate) keys: Keys,
    /// Other operations between these.
    pub(crate) beside: Option<Beside>,
    /// Of a hundred operations, how many read.
    pub(crate) reads: u64,
    /// The text before each key: a `{tag}` places all keys in one shard.
    pub(crate) prefix: String,
    /// Time between two operations; `None`: as fast as the answers come. An operation's latency counts from the time
    /// at which the operation was due.
    pub(crate) pace: Option<Duration>,
    /// Whether updates that find no memory are counted. Otherwise the first one fails the benchmark.
    pub(crate) counts_refusals: bool,
    /// When participants of transactions over several shards take locks.
    pub(crate) locking: Locking,
}

/// Operations of another kind, on keys of their own. The tally counts them apart, without their latencies.
#[derive(Clone, Debug)]
pub(crate) struct Beside {
    /// Of a thousand operations, how many.
    pub(crate) share: u64,
    pub(crate) operation: Operation,
    pub(crate) keys: Keys,
    pub(crate) prefix: &'static str,
}

impl Workload {
    /// Puts of this many bytes to these keys.
    pub(crate) fn puts(value_bytes: usize, keys: Keys) -> Self {
        Self::new(Operation::Put(value_bytes), keys, "key-")
    }

    /// Increments of these keys, which puts do not touch.
    pub(crate) fn increments(keys: Keys) -> Self {
        Self::new(Operation::Increment, keys, "counter-")
    }

    fn new(operation: Operation, keys: Keys, prefix: &str) -> Self {
        let (prefix, locking) = (prefix.to_owned(), Locking::WhenNeeded);
        Self { operation, keys, beside: None, reads: 0, prefix, pace: None, counts_refusals: false, locking }
    }
}

/// When clients stop.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    Operations(u64),
    Time(Duration),
}

/// What the clients saw.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// Latencies of updates and reads, in nanoseconds.
    pub(crate) latency: Histogram<u64>,
    pub(crate) updates: u64,
    pub(crate) reads: u64,
    /// Updates that were complete by their witnesses.
    pub(crate) fast: u64,
    /// Updates that took more than one attempt.
    pub(crate) retried: u64,
    /// Updates that found no memory, if the workload counts them.
    pub(crate) refused: u64,
    /// Operations of any kind that met others until their deadline, or until the load was over, and did not happen.
    pub(crate) conflicts: u64,
    /// Operations of [`Workload::beside`] that were done.
    pub(crate) beside: u64,
    /// Time from the first question to the last answer.
    pub(crate) elapsed: Duration,
    /// The longest time without any answer.
    pub(crate) longest_gap: Duration,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            latency: Histogram::new_with_bounds(1, LATENCY_MAX_NANOS, 3).expect("valid bounds"),
            updates: 0,
            reads: 0,
            fast: 0,
            retried: 0,
            refused: 0,
            conflicts: 0,
            beside: 0,
            elapsed: Duration::ZERO,
            longest_gap: Duration::ZERO,
        }
    }

    /// All operations that were done.
    pub(crate) fn operations(&self) -> u64 {
        self.updates + self.reads + self.beside
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.latency.add(&other.latency).expect("the same bounds");
        self.updates += other.updates;
        self.reads += other.reads;
        self.fast += other.fast;
        self.retried += other.retried;
        self.refused += other.refused;
        self.conflicts += other.conflicts;
        self.beside += other.beside;
        self.elapsed += other.elapsed;
        self.longest_gap = self.longest_gap.max(other.longest_gap);
    }
}

#[derive(Clone, Copy, Debug)]
struct UnderWay {
    call: CallId,
    sent: Tick,
    /// The number of its key.
    number: u64,
    /// It is of another kind than what is measured.
    is_beside: bool,
}

fn is_not_committed(result: &[u8]) -> bool {
    result.first() == Some(&(OutcomeCode::NotCommitted as u8))
}

/// The loop of some clients of a crowd.
#[derive(Debug)]
pub(crate) struct Load<'w> {
    table: TableId,
    workload: &'w Workload,
    rng: &'w mut Rng,
    limit: Limit,
    under_way: Vec<Option<UnderWay>>,
    value: Vec<u8>,
    key: String,
    sent: u64,
    began: Tick,
    last_answer: Tick,
    pub(crate) tally: Tally,
    /// The first operation that was not done.
    pub(crate) failure: Option<String>,
}

impl<'w> Load<'w> {
    pub(crate) fn new(table: TableId, clients: usize, workload: &'w Workload, limit: Limit, rng: &'w mut Rng) -> Self {
        let beside = workload.beside.as_ref().map_or(0, |beside| beside.operation.value_bytes());
        let value_bytes = workload.operation.value_bytes().max(beside);
        let now = Clock::now();
        Self {
            table,
            workload,
            rng,
            limit,
            under_way: vec![None; clients],
            value: vec![b'v'; value_bytes],
            key: String::new(),
            sent: 0,
            began: now,
            last_answer: now,
            tally: Tally::new(),
            failure: None,
        }
    }

    /// The number of the first key of [`Keys::Each`].
    pub(crate) fn starting_at(mut self, first: u64) -> Self {
        self.limit = match self.limit {
            Limit::Operations(operations) => Limit::Operations(operations + first),
            time @ Limit::Time(_) => time,
        };
        self.sent = first;
        self
    }

    fn is_over(&self, now: Tick) -> bool {
        self.failure.is_some()
            || match self.limit {
                Limit::Operations(operations) => self.sent >= operations,
                Limit::Time(time) => now.since(self.began) >= time,
            }
    }

    /// Stops the loop when the operations under way are answered.
    pub(crate) fn end(&mut self) {
        self.limit = Limit::Operations(0);
    }

    fn on_completed(&mut self, done: UnderWay, completion: Completion, session: &mut Session) {
        let UnderWay { sent, is_beside, .. } = done;
        let now = Clock::now();
        match completion {
            Completion::Executed { result, .. } | Completion::Read { result } if is_beside => {
                if result.first() != Some(&(OutcomeCode::Done as u8)) {
                    self.failure.get_or_insert_with(|| format!("beside others nothing changed: {result:?}"));
                }
                self.tally.beside += 1;
                self.tally.elapsed = now.since(self.began);
                return session.recycle(result);
            }
            // It met others until its deadline.
            Completion::NotExecuted(WhyNot::Conflict) => return self.note_conflict(now),
            Completion::Executed { result, .. } if self.is_interactive() && is_not_committed(&result) => {
                return self.note_conflict(now);
            }
            Completion::Executed { result, path, attempts } => {
                if !self.is_done(&result) {
                    self.failure.get_or_insert_with(|| format!("{:?} changed nothing: {result:?}", self.workload));
                }
                session.recycle(result);
                self.tally.updates += 1;
                self.tally.fast += u64::from(path == Path::Fast);
                self.tally.retried += u64::from(attempts > 1);
            }
            Completion::Read { result } => {
                session.recycle(result);
                self.tally.reads += 1;
            }
            Completion::NotExecuted(WhyNot::OutOfMemory) if self.workload.counts_refusals => {
                self.tally.refused += 1;
                return;
            }
            other => {
                self.failure.get_or_insert_with(|| format!("{other:?}"));
                return;
            }
        }
        let nanos = |since: Tick| u64::try_from(now.since(since).as_nanos()).unwrap_or(u64::MAX);
        self.tally.latency.saturating_record(nanos(sent));
        self.tally.longest_gap = self.tally.longest_gap.max(now.since(self.last_answer));
        self.last_answer = now;
        self.tally.elapsed = now.since(self.began);
    }

    fn note_conflict(&mut self, now: Tick) {
        self.tally.conflicts += 1;
        self.tally.elapsed = now.since(self.began);
    }

    fn is_interactive(&self) -> bool {
        matches!(self.workload.operation, Operation::Interactive { .. })
    }

    /// Whether an update did what it says. (Deletes may find nothing.)
    fn is_done(&self, result: &[u8]) -> bool {
        result.first() == Some(&(OutcomeCode::Done as u8)) || matches!(self.workload.operation, Operation::Delete)
    }

    fn send(&mut self, session: &mut Session, out: &mut Effects) -> UnderWay {
        let workload = self.workload;
        let beside = workload.beside.as_ref().filter(|beside| self.rng.chance(beside.share, 1000));
        let keys = beside.map_or(&workload.keys, |beside| &beside.keys);
        let (number, is_beside) = (keys.draw(self.sent, self.rng), beside.is_some());
        let is_read = !is_beside && workload.reads > 0 && self.rng.chance(workload.reads, 100);
        let due = self.due();
        let now = Clock::now();
        self.sent += 1;
        let operation = beside.map_or(workload.operation, |beside| beside.operation);
        let mut asked = self.asked(session, number, is_beside, out);
        let call = if is_read { asked.read() } else { asked.begin(operation) };
        UnderWay { call, sent: due.unwrap_or(now), number, is_beside }
    }

    fn asked<'a>(
        &'a mut self,
        session: &'a mut Session,
        number: u64,
        is_beside: bool,
        out: &'a mut Effects,
    ) -> Asked<'a> {
        let beside = self.workload.beside.as_ref().filter(|_| is_beside);
        let prefix = beside.map_or(self.workload.prefix.as_str(), |beside| beside.prefix);
        self.key.clear();
        write!(self.key, "{prefix}{number:08}").expect("a string takes it");
        Asked { session, out, table: self.table, key: &self.key, number, value: &self.value }
    }

    /// What an interactive transaction does next: it commits what it has read, or reads again what others have changed.
    fn next_step(
        &mut self,
        done: &UnderWay,
        completion: &Completion,
        session: &mut Session,
        out: &mut Effects,
    ) -> Option<CallId> {
        let operation = self.workload.operation;
        let Operation::Interactive { spread, value_bytes } = operation else { return None };
        if done.is_beside {
            return None;
        }
        match completion {
            Completion::Read { result } => {
                Some(self.asked(session, done.number, false, out).commit(spread, value_bytes, result))
            }
            Completion::Executed { result, .. } if is_not_committed(result) && !self.is_over(Clock::now()) => {
                Some(self.asked(session, done.number, false, out).begin(operation))
            }
            _ => None,
        }
    }

    /// When the next operation is due, if the load is paced.
    fn due(&self) -> Option<Tick> {
        let nanos = |pace: Duration| u64::try_from(pace.as_nanos()).unwrap_or(u64::MAX).saturating_mul(self.sent);
        self.workload.pace.map(|pace| self.began.after(Duration::from_nanos(nanos(pace))))
    }

    fn is_due(&self) -> bool {
        self.due().is_none_or(|due| due <= Clock::now())
    }
}

impl Application<Crowd> for Load<'_> {
    fn turn(&mut self, now: Tick, crowd: &mut Crowd, out: &mut Effects) -> Control {
        let mut busy = false;
        for (client, session) in crowd.sessions().iter_mut().take(self.under_way.len()).enumerate() {
            session.set_locking(self.workload.locking);
            while let Some((call, completion)) = session.poll_completed() {
                let Some(done) = self.under_way[client].take_if(|ours| ours.call == call) else { continue };
                match self.next_step(&done, &completion, session, out) {
                    Some(call) => self.under_way[client] = Some(UnderWay { call, ..done }),
                    None => self.on_completed(done, completion, session),
                }
            }
            if self.under_way[client].is_none() && !self.is_over(now) && self.is_due() {
                self.under_way[client] = Some(self.send(session, out));
            }
            busy |= self.under_way[client].is_some();
        }
        if busy || !self.is_over(now) { Control::Continue } else { Control::Exit }
    }

    fn next_wake(&self) -> Option<Tick> {
        self.due().filter(|_| self.under_way.iter().any(Option::is_none))
    }
}
