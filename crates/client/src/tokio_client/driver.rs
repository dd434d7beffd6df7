//! The task that owns the session. It takes commands from handles and frames from connections, ends each turn as every
//! shell does, and tells callers how their calls ended.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use kasha_machine::turn::finish;
use kasha_machine::{Effects, Endpoint, Held, Input, Machine};
use kasha_types::limits::OPERATION_KEY_TTL_MILLIS;
use kasha_types::{CoreId, TableId, Tick};
use kasha_wire::link::Handshake;
use kasha_wire::operation::OwnedOperation;
use kasha_wire::{Configuration, FRAME_HEADER_BYTES, FrameHeader, Message};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::connection::{Event, SOMEBODY_ELSE};
use super::home::Home;
use super::links::Links;
use super::names::{Resolver, Way};
use crate::session::{
    Again, CallId, CallOptions, Completion, CoreQuestion, Session, SessionOptions, SessionStats, Tries,
};

/// The number of inputs that one turn takes from each queue.
const INPUTS_MAX: usize = 256;

/// A pause that nobody sees the end of.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A clock that goes on while the machine is suspended, where the system has one: what a session takes ClusterTime and its lease
/// for is right when a closed lid opens.
fn machine_time() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;
    Duration::try_from(clock_gettime(CLOCK)).expect("a machine's clock begins at 0")
}

/// The session's clock: what this shows is the machine's time since the session began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    started: Duration,
}

impl Clock {
    fn start() -> Self {
        Self { started: machine_time() }
    }

    pub(super) fn now(self) -> Tick {
        let elapsed = machine_time().saturating_sub(self.started);
        Tick(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Names a call that has no id yet.
pub(super) type Ticket = u64;
pub(super) type Reply = oneshot::Sender<Ended>;

/// How a call ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) call: CallId,
    pub(super) completion: Completion,
}

/// The options of one update, owned.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    pub(super) deadline: Option<Duration>,
    pub(super) operation_key: Option<Vec<u8>>,
    pub(super) operation_key_ttl: Option<Duration>,
    pub(super) cancel_on_deadline: bool,
    /// The tries of a caller that tries again by itself.
    pub(super) tries: Option<Arc<Mutex<Tries>>>,
}

/// How a call ended, kept with the handle that asks: a caller that stops waiting just when the outcome comes finds it there.
pub(super) type KeptEnd = Arc<OnceLock<Completion>>;

/// Who asks how a call ended.
#[derive(Debug)]
pub(super) struct Asks {
    pub(super) kept: KeptEnd,
    pub(super) wake: oneshot::Sender<()>,
}

/// The commands that handles send to the task.
#[derive(Debug)]
pub(super) enum Command {
    Call { ticket: Ticket, what: Ask, reply: Reply },
    Resolve { call: CallId, asks: Asks },
    Ready { reply: oneshot::Sender<()> },
    Configuration { reply: oneshot::Sender<Option<Configuration>> },
    Stats { reply: oneshot::Sender<SessionStats> },
}

/// The calls of a session, with owned arguments.
#[derive(Debug)]
pub(super) enum Ask {
    Update { table: TableId, operation: OwnedOperation, options: Options },
    Read { table: TableId, operation: OwnedOperation, deadline: Option<Duration> },
    CreateTable(String),
    DropTable(String),
    Status(CoreId, CoreQuestion),
    Refresh,
}

/// The task's state.
pub(super) struct Driver {
    session: Session,
    effects: Effects,
    held: Held,
    links: Links,
    pub(super) clock: Clock,
    home: Home,
    commands: mpsc::Receiver<Command>,
    abandoned: mpsc::Receiver<Ticket>,
    events: mpsc::Receiver<Event>,
    waiting: BTreeMap<CallId, (Ticket, Reply)>,
    tickets: BTreeMap<Ticket, CallId>,
    /// Callers that asked for the outcome of a call that is still open.
    resolving: BTreeMap<CallId, Vec<Asks>>,
    ready: Vec<oneshot::Sender<()>>,
    /// Why the last connection ended: for the error of a failed start.
    problem: Arc<Mutex<String>>,
}

impl Driver {
    pub(super) fn new(
        options: SessionOptions,
        ways: (Vec<Way>, Resolver),
        commands: mpsc::Receiver<Command>,
        abandoned: mpsc::Receiver<Ticket>,
        problem: Arc<Mutex<String>>,
    ) -> Self {
        const EVENTS_MAX: usize = 1024;
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let mut effects = Effects::new();
        let (seeds, resolver) = ways;
        let links = Links::new(seeds, resolver, options.cluster, sender);
        Self {
            session: Session::new(options, Tick(0), &mut effects),
            effects,
            held: Held::new(),
            links,
            clock: Clock::start(),
            home: Home::here(),
            commands,
            abandoned,
            events,
            waiting: BTreeMap::new(),
            tickets: BTreeMap::new(),
            resolving: BTreeMap::new(),
            ready: Vec::new(),
            problem,
        }
    }

    /// Runs until the last handle is gone, or this is a child of the process that made the session. Then it leaves all
    /// connections to its parent, and tells the child's callers that it has ended.
    pub(super) async fn run(mut self) {
        loop {
            if self.home.is_elsewhere() {
                return;
            }
            self.end_turn();
            let due = self.session.next_deadline().map_or(FAR, |tick| tick.since(self.now()).min(FAR));
            let wake = Instant::now() + due;
            let wake = self.links.look_at().map_or(wake, |look_at| look_at.min(wake));
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(command) => self.on_command(command),
                    None => return,
                },
                Some(event) = self.events.recv() => self.on_event(event),
                Some(ticket) = self.abandoned.recv() => self.on_abandoned(ticket),
                () = tokio::time::sleep_until(wake) => {
                    let now = self.now();
                    self.links.close_unused(Instant::now());
                    self.session.step(now, Input::Tick, &mut self.effects);
                }
            }
            self.take_inputs();
        }
    }

    /// Inputs that have arrived already belong to the same turn, so that there is one write per connection for all of
    /// them. No queue waits until another one is empty.
    fn take_inputs(&mut self) {
        for _ in 0..INPUTS_MAX {
            let command = self.commands.try_recv().map(|command| self.on_command(command));
            let event = self.events.try_recv().map(|event| self.on_event(event));
            let abandoned = self.abandoned.try_recv().map(|ticket| self.on_abandoned(ticket));
            if command.is_err() && event.is_err() && abandoned.is_err() {
                return;
            }
        }
    }

    fn now(&self) -> Tick {
        self.clock.now()
    }

    fn end_turn(&mut self) {
        let now = self.now();
        finish(now, &mut self.session, &mut self.effects, &mut self.held, &mut self.links);
        self.links.flush();
        self.links.cluster = self.links.cluster.or_else(|| self.session.configuration().map(|c| c.cluster));
        while let Some((call, completion)) = self.session.poll_completed() {
            let Some((ticket, reply)) = self.waiting.remove(&call) else { continue };
            self.tickets.remove(&ticket);
            if reply.send(Ended { call, completion }).is_err() {
                self.session.abandon(call);
            }
        }
        while let Some(call) = self.session.poll_resolvable() {
            for asks in self.resolving.remove(&call).into_iter().flatten() {
                self.resolve(call, asks);
            }
        }
        if self.session.configuration().is_some() {
            for reply in self.ready.drain(..) {
                let _ = reply.send(());
            }
        }
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Call { ticket, what, reply } => {
                if reply.is_closed() {
                    return;
                }
                let call = self.start(what);
                self.waiting.insert(call, (ticket, reply));
                self.tickets.insert(ticket, call);
            }
            Command::Resolve { call, asks } => self.resolve(call, asks),
            Command::Ready { reply } => self.ready.push(reply),
            // The caller may be gone. Then nobody is told.
            Command::Configuration { reply } => drop(reply.send(self.session.configuration().cloned())),
            Command::Stats { reply } => drop(reply.send(self.session.stats().clone())),
        }
    }

    /// Tells the outcome of a call, now or when the call has ended.
    fn resolve(&mut self, call: CallId, asks: Asks) {
        if asks.wake.is_closed() {
            return;
        }
        match self.session.resolve(call) {
            Some(completion) => {
                let _ = asks.kept.set(completion);
                // The caller may have left at this moment.
                let _ = asks.wake.send(());
            }
            None => {
                let waiting = self.resolving.entry(call).or_default();
                waiting.retain(|asks| !asks.wake.is_closed());
                waiting.push(asks);
            }
        }
    }

    fn start(&mut self, what: Ask) -> CallId {
        let now = self.now();
        let (session, out) = (&mut self.session, &mut self.effects);
        match what {
            Ask::Update { table, operation, options } => {
                let millis = |ttl: Duration| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
                let ttl = options.operation_key_ttl.map_or(OPERATION_KEY_TTL_MILLIS, millis);
                let again = options.tries.as_ref().map_or(Again::BySession, |tries| {
                    tries.lock().unwrap_or_else(PoisonError::into_inner).again(session, now)
                });
                let options = CallOptions {
                    again,
                    deadline: options.deadline.map(|deadline| now.after(deadline)),
                    operation_key: options.operation_key.as_deref().map(|key| (key, ttl)),
                    said: None,
                    cancel_on_deadline: options.cancel_on_deadline,
                };
                session.update_encoded(now, table, &operation, &options, out)
            }
            Ask::Read { table, operation, deadline } => {
                session.read_encoded(now, table, &operation, deadline.map(|deadline| now.after(deadline)), out)
            }
            Ask::CreateTable(name) => session.create_table(now, &name, out),
            Ask::DropTable(name) => session.drop_table(now, &name, out),
            Ask::Status(core, question) => session.ask_core(now, core, question, out),
            Ask::Refresh => session.refresh(now, out),
        }
    }

    fn on_abandoned(&mut self, ticket: Ticket) {
        if let Some(call) = self.tickets.remove(&ticket) {
            self.waiting.remove(&call);
            self.session.abandon(call);
        }
    }

    fn on_event(&mut self, event: Event) {
        let now = self.now();
        match event {
            Event::Welcomed { link, who, address } => {
                for to in self.links.welcomed(link, who, address) {
                    self.on_unreachable(now, to, format!("{address}: {SOMEBODY_ELSE}"));
                }
            }
            Event::Frames { link, bytes } => {
                let Some(from) = self.links.heard(link) else { return };
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let header = FrameHeader::parse(rest).expect("checked").expect("whole");
                    let (frame, after) = rest.split_at(FRAME_HEADER_BYTES + header.payload_len);
                    let payload = &frame[FRAME_HEADER_BYTES..];
                    rest = after;
                    if !Handshake::is_in(header.kind, payload) {
                        self.session.step(now, Input::Frame { from, kind: header.kind, payload }, &mut self.effects);
                    }
                }
                self.note_lack_of_leader();
            }
            Event::Gone { link, why, is_refused } => {
                for to in self.links.lost(link, is_refused) {
                    self.on_unreachable(now, to, why.clone());
                }
            }
        }
    }

    fn on_unreachable(&mut self, now: Tick, to: Endpoint, why: String) {
        *self.problem.lock().expect("nobody panics with it") = why;
        self.session.step(now, Input::Unreachable(to), &mut self.effects);
        self.note_lack_of_leader();
    }

    /// That says more than which addresses do not answer.
    fn note_lack_of_leader(&mut self) {
        if let Some(members) = self.session.members_without_leader() {
            let members: Vec<_> = members.iter().map(ToString::to_string).collect();
            let text = format!(
                "the coordinator's group has no leader: start a majority of its members, which are at {} (K0512)",
                members.join(", ")
            );
            *self.problem.lock().expect("nobody panics with it") = text;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Seeds;

    const CALLS: u64 = 2 * INPUTS_MAX as u64;

    struct Handles {
        commands: mpsc::Sender<Command>,
        abandoned: mpsc::Sender<Ticket>,
    }

    fn driver() -> (Driver, Handles) {
        let (commands, command_queue) = mpsc::channel(CALLS as usize);
        let (abandoned, abandoned_queue) = mpsc::channel(CALLS as usize);
        let options = SessionOptions::new(Seeds::Named(1), 1);
        let way = Way::parse("127.0.0.1:1").expect("an address");
        let driver =
            Driver::new(options, (vec![way], Resolver::default()), command_queue, abandoned_queue, Arc::default());
        (driver, Handles { commands, abandoned })
    }

    #[tokio::test]
    async fn dropped_futures_are_heard_as_fast_as_calls_are_made() {
        let (mut driver, handles) = driver();
        let mut answers = Vec::new();
        for ticket in 0..CALLS {
            let (reply, answer) = oneshot::channel();
            answers.push(answer);
            let command = Command::Call { ticket, what: Ask::Refresh, reply };
            handles.commands.try_send(command).expect("room");
        }
        for turn in 1..=2 {
            driver.take_inputs();
            assert_eq!(driver.session.outstanding(), turn * INPUTS_MAX);
        }
        drop(answers);
        for ticket in 0..CALLS {
            handles.abandoned.try_send(ticket).expect("room");
        }
        for turn in (0..2).rev() {
            driver.take_inputs();
            assert_eq!(driver.session.outstanding(), turn * INPUTS_MAX);
        }
    }

    #[tokio::test]
    async fn whoever_stopped_asking_what_became_of_a_call_is_forgotten() {
        let (mut driver, _handles) = driver();
        let call = driver.start(Ask::Refresh);
        let asks = || {
            let (wake, woken) = oneshot::channel();
            (Asks { kept: KeptEnd::default(), wake }, woken)
        };
        for _ in 0..100 {
            driver.on_command(Command::Resolve { call, asks: asks().0 });
            let (waits, answer) = asks();
            driver.on_command(Command::Resolve { call, asks: waits });
            assert_eq!(driver.resolving[&call].len(), 1);
            drop(answer);
        }
        driver.session.abandon(call);
        let (waits, woken) = asks();
        let kept = Arc::clone(&waits.kept);
        driver.on_command(Command::Resolve { call, asks: waits });
        drop(woken);
        let forgotten = Completion::Unknown(crate::session::WhyUnknown::Forgotten);
        assert_eq!(kept.get(), Some(&forgotten), "an ended call is answered at once, and its end is kept");
    }
}
