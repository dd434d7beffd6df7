//! One thread, one machine: the loop that turns events into inputs and effects into system calls.
//!
//! A turn: wait; read what is ready and step the machine for each frame; feed completed commits, lost connections and
//! the clock; let the application act; perform the effects; write once per connection. Commits that hold at once are
//! fed back within the turn, so that what they gate leaves with it.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kasha_machine::turn::{self, Shell};
use kasha_machine::{Disk, Effect, Effects, Endpoint, FileName, Held, Input, Machine};
use kasha_types::{ConnId, LocalPosition, Tick, UnixMillis};
use mio::{Events, Poll, Token, Waker};

use crate::Clock;
use crate::FolderDisk;
use crate::files::StorageError;
use crate::handle::LoopHandle;
use crate::inbound::Inbound;
use crate::limits::{LINGER, TURN_COMMIT_ROUNDS, TURN_OUTPUT_BYTES};
use crate::network::Network;
use crate::options::LoopOptions;
use crate::stats::NetworkStats;
use crate::storage::Storage;
use crate::timer::Timer;

const WAKER: Token = Token(usize::MAX - 1);
const TIMER: Token = Token(usize::MAX - 2);

/// Events taken from the system at once.
const EVENTS: usize = 1024;

/// How often a loop that ends looks whether what it owes has left.
const DRAIN_LOOKS: Duration = Duration::from_millis(10);

/// What else runs on the loop's thread: what submits calls to a client session, for example.
pub trait Application<M> {
    /// Called once per turn, after its inputs and before its effects are performed.
    fn turn(&mut self, now: Tick, machine: &mut M, out: &mut Effects) -> Control;

    /// The latest time for the next turn, if the application needs one.
    fn next_wake(&self) -> Option<Tick> {
        None
    }
}

/// Whether the loop goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The loop goes on.
    Continue,
    /// The loop ends after this turn's effects.
    Exit,
}

/// No application beside the machine: servers run this.
#[derive(Clone, Copy, Debug, Default)]
pub struct Serve;

impl<M> Application<M> for Serve {
    fn turn(&mut self, _: Tick, _: &mut M, _: &mut Effects) -> Control {
        Control::Continue
    }
}

/// Why a loop ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// [`LoopHandle::stop`] was called.
    Requested,
    /// The application returned [`Control::Exit`].
    Application,
}

/// Why a loop ended badly. The process should end too.
#[derive(Debug, thiserror::Error)]
pub enum LoopError {
    /// A file effect failed (R5.4).
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The machine found that going on is unsafe or pointless ([`Effect::Stop`]).
    #[error("{0}")]
    Stopped(String),
    /// The coordinator does not want this process: its number is another's, for example.
    #[error("the coordinator refuses this process: {0}")]
    Refused(String),
    /// The machine could not be made from its files.
    #[error("cannot start: {0}")]
    Start(Box<dyn Error + Send + Sync>),
    /// The system refuses to wait for events.
    #[error("cannot {0}: {1}; the process may be out of file descriptors: raise its limit (ulimit -n) (K0408)")]
    System(&'static str, io::Error),
}

/// The loop of one machine.
#[derive(Debug)]
pub struct EventLoop<M> {
    poll: Poll,
    events: Events,
    timer: Timer,
    handle: LoopHandle,
    spin: Duration,
    network: Network,
    storage: Storage,
    machine: M,
    effects: Effects,
    held: Held,
    /// Whether the machine waits to be told what the clock on the wall shows.
    wants_clock: bool,
}

impl<M: Machine> EventLoop<M> {
    /// Makes a loop and its machine. `make` is given the machine's files (none without a data folder) and may push
    /// effects, which the first turn performs.
    ///
    /// # Errors
    /// If the system or the data folder refuses, or `make` does.
    pub fn new(
        options: LoopOptions,
        make: impl FnOnce(&dyn Disk, Tick, &mut Effects) -> Result<M, Box<dyn Error + Send + Sync>>,
    ) -> Result<Self, LoopError> {
        let LoopOptions {
            name,
            listen,
            identity,
            spin,
            data_dir,
            link_delay,
            faults,
            heap,
            names,
            trash,
            limits,
            port,
        } = options;
        let poll = Poll::new().map_err(|error| LoopError::System("make an event queue", error))?;
        let start = |error| LoopError::System("watch a socket", error);
        let waker = Arc::new(Waker::new(poll.registry(), WAKER).map_err(start)?);
        let timer = Timer::new(poll.registry(), TIMER).map_err(start)?;
        let registry = poll.registry().try_clone().map_err(start)?;
        let inbound = Inbound::new(link_delay, faults);
        let mut network = Network::new(registry, listen, identity, limits, inbound, heap, port).map_err(start)?;
        let disk = data_dir.as_deref().map_or_else(|| Ok(FolderDisk::none()), FolderDisk::open)?;
        let handle = LoopHandle { stop: Arc::new(AtomicBool::new(false)), waker };
        if let Some(names) = names {
            network.name_peers(Clock::now(), names, handle.clone());
        }
        let on_news = handle.clone();
        let storage = Storage::new(&name, data_dir, limits, trash, move || on_news.wake())?;
        let mut effects = Effects::new();
        let machine = make(&disk, Clock::now(), &mut effects).map_err(LoopError::Start)?;
        let (events, held) = (Events::with_capacity(EVENTS), Held::new());
        Ok(Self { poll, events, timer, handle, spin, network, storage, machine, effects, held, wants_clock: false })
    }

    /// A handle with which other threads stop or wake this loop.
    #[must_use]
    pub fn handle(&self) -> LoopHandle {
        self.handle.clone()
    }

    /// The machine, between runs.
    #[must_use]
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Counters of the connections.
    #[must_use]
    pub fn stats(&self) -> NetworkStats {
        self.network.stats
    }

    /// Turns so far.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.network.turns.count()
    }

    /// Runs until stopped.
    ///
    /// # Errors
    /// See [`LoopError`]. After an error nothing that waited for it has left, and the loop is not to be run again.
    pub fn run(&mut self, application: &mut impl Application<M>) -> Result<Exit, LoopError> {
        // The first turn does not wait: it performs what `make` wanted done, and the application may want to begin.
        self.poll(Some(Duration::ZERO))?;
        loop {
            if self.handle.stop.swap(false, Ordering::Acquire) {
                return Ok(Exit::Requested);
            }
            if self.turn(application)? == Control::Exit {
                self.drain()?;
                return Ok(Exit::Application);
            }
            let now = Clock::now();
            self.network.turns.end(now, self.effects.take_work());
            self.wait(now, application.next_wake())?;
        }
    }

    /// What programs of another protocol were told leaves before the loop ends (R10.5). What they say meanwhile is read and forgotten: a connection that
    /// ends with something unread may lose what was told.
    fn drain(&mut self) -> Result<(), LoopError> {
        let until = Clock::now().after(LINGER);
        loop {
            let now = Clock::now();
            self.network.receive(&mut |_, _| false);
            self.network.flush(now);
            if !self.network.owes_replies() || now >= until {
                return Ok(());
            }
            self.poll(Some(DRAIN_LOOKS))?;
            for event in &self.events {
                if !matches!(event.token(), WAKER | TIMER) {
                    self.network.on_event(event);
                }
            }
        }
    }

    fn turn(&mut self, application: &mut impl Application<M>) -> Result<Control, LoopError> {
        self.storage.begin_turn();
        self.storage.collect()?;
        let now = Clock::now();
        self.network.turns.begin(now);
        for event in &self.events {
            match event.token() {
                WAKER => {}
                TIMER => self.timer.fired(),
                _ => self.network.on_event(event),
            }
        }
        let Self { network, storage, machine, effects, wants_clock, .. } = self;
        while let Some(to) = storage.next_durable() {
            machine.step(now, Input::Durable(to), effects);
        }
        if storage.take_logs_flushed() {
            machine.step(now, Input::LogsFlushed, effects);
        }
        if std::mem::take(wants_clock)
            && let Ok(unix) = SystemTime::now().duration_since(UNIX_EPOCH)
        {
            let unix = UnixMillis(u64::try_from(unix.as_millis()).unwrap_or(u64::MAX));
            machine.step(now, Input::UnixTime(unix), effects);
        }
        network.take_answers(now);
        network.accept(now);
        let (mut load, mut frames) = (Load::default(), 0);
        let mut deliver = |now, input: Input<'_>| {
            frames += u32::from(matches!(input, Input::Frame { .. }));
            machine.step(now, input, effects);
            load.is_enough(effects)
        };
        network.receive(&mut deliver);
        if let Some(why) = network.is_refused() {
            return Err(LoopError::Refused(why.to_owned()));
        }
        let now = Clock::now();
        network.sweep(now);
        network.inbound.deliver_due(now, &mut deliver);
        network.turns.heard(now, frames);
        if self.machine.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.machine.step(now, Input::Tick, &mut self.effects);
        }
        let control = application.turn(now, &mut self.machine, &mut self.effects);
        self.perform(now)?;
        self.network.turns.closed(Clock::now());
        self.network.flush(now);
        let lost = self.network.take_lost();
        if !lost.is_empty() {
            self.held.forget(|to| matches!(to, Endpoint::Conn(id) if lost.contains(&id)));
        }
        Ok(control)
    }

    /// Performs the effects, and those of the commits that hold at once.
    fn perform(&mut self, now: Tick) -> Result<(), LoopError> {
        let Self { network, storage, machine, effects, held, wants_clock, .. } = self;
        for _ in 0..TURN_COMMIT_ROUNDS {
            let mut stopped = None;
            let mut shell = System { now, network, storage, wants_clock, stopped: &mut stopped };
            turn::finish(now, machine, effects, held, &mut shell);
            if let Some(why) = stopped {
                return Err(LoopError::Stopped(why));
            }
            storage.collect()?;
            if !storage.has_durable() {
                break;
            }
            while let Some(to) = storage.next_durable() {
                machine.step(now, Input::Durable(to), effects);
            }
        }
        Ok(())
    }

    /// Fills `events`: polls for a bounded time, then blocks until an event or a deadline.
    fn wait(&mut self, mut now: Tick, application: Option<Tick>) -> Result<(), LoopError> {
        let none = Some(Duration::ZERO);
        if self.network.has_work() || self.storage.has_news() || !self.effects.is_empty() {
            return self.poll(none);
        }
        let deadline = [application, self.machine.next_deadline(), self.network.next_deadline()];
        let deadline = deadline.into_iter().flatten().min();
        let spin_until = now.after(self.spin);
        loop {
            if deadline.is_some_and(|deadline| deadline <= now) {
                return self.poll(none);
            }
            if now >= spin_until {
                break;
            }
            self.poll(none)?;
            if !self.events.is_empty() {
                return Ok(());
            }
            now = Clock::now();
        }
        if let Some(deadline) = deadline {
            self.timer.arm(now, deadline).map_err(|error| LoopError::System("set a timer", error))?;
        }
        self.network.turns.slept();
        self.poll(None)
    }

    fn poll(&mut self, timeout: Option<Duration>) -> Result<(), LoopError> {
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                Err(LoopError::System("wait for events", error))
            }
            Ok(()) => Ok(()),
            Err(_) => {
                self.events.clear();
                Ok(())
            }
        }
    }
}

/// How much the effects of a turn will send: a small request can name a large value.
#[derive(Debug, Default)]
struct Load {
    seen: usize,
    tails: usize,
}

impl Load {
    fn is_enough(&mut self, effects: &Effects) -> bool {
        for effect in &effects.queue()[self.seen..] {
            if let Effect::Send { tail: Some(slice), .. } = effect {
                self.tails += slice.len as usize;
            }
        }
        self.seen = effects.queue().len();
        self.tails + effects.mark() > TURN_OUTPUT_BYTES
    }
}

/// The system, as a machine's effects see it.
struct System<'a> {
    now: Tick,
    network: &'a mut Network,
    storage: &'a mut Storage,
    wants_clock: &'a mut bool,
    stopped: &'a mut Option<String>,
}

impl System<'_> {
    /// Does something with files, and measures it.
    fn on_files(&mut self, act: impl FnOnce(&mut Storage)) {
        let from = Clock::now();
        act(self.storage);
        self.network.turns.used_files(from, Clock::now());
    }
}

impl Shell for System<'_> {
    fn send(&mut self, to: Endpoint, head: &[u8], tail: &[u8]) {
        // After a failure nothing leaves: it might tell of what does not hold (R5.4).
        if !self.storage.has_failed() && self.stopped.is_none() {
            self.network.send(self.now, to, head, tail);
        }
    }
    fn held(&mut self, to: Endpoint, bytes: usize) {
        self.network.held(self.now, to, bytes);
    }
    fn let_go(&mut self, to: Endpoint, bytes: usize) {
        self.network.let_go(self.now, to, bytes);
    }
    fn write(&mut self, file: FileName, offset: u64, bytes: &[u8]) {
        self.on_files(|storage| storage.write(file, offset, bytes));
    }
    fn replace(&mut self, file: FileName, bytes: &[u8]) {
        self.on_files(|storage| storage.replace(file, bytes));
    }
    fn truncate(&mut self, file: FileName, len: u64) {
        self.on_files(|storage| storage.truncate(file, len));
    }
    fn remove(&mut self, file: FileName) {
        self.on_files(|storage| storage.remove(file));
    }
    fn commit(&mut self, to: LocalPosition, fsync: bool) {
        self.storage.commit(to, fsync);
    }
    fn flush(&mut self) {
        self.on_files(Storage::flush);
    }
    fn flush_logs(&mut self) {
        self.storage.flush_logs();
    }
    fn read_clock(&mut self) {
        *self.wants_clock = true;
    }
    fn route(&mut self, to: Endpoint, address: SocketAddr) {
        self.network.route(self.now, to, to, address);
    }
    fn route_as(&mut self, to: Endpoint, who: Endpoint, address: SocketAddr) {
        self.network.route(self.now, to, who, address);
    }
    fn hear(&mut self, from: ConnId, more: bool) {
        self.network.hear(from, more);
    }
    fn disconnect(&mut self, to: Endpoint) {
        self.network.disconnect(self.now, to);
    }
    fn stop(&mut self, why: &str) {
        self.stopped.get_or_insert_with(|| why.to_owned());
    }
}
