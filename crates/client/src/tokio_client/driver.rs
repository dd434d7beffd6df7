//! The task that owns the session: takes commands from handles and frames from connections, ends each turn the way
//! every shell does, and tells callers what became of their calls.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kasha_machine::turn::{Shell, finish};
use kasha_machine::{Effects, Endpoint, FileName, Held, Input, Machine};
use kasha_types::{ClusterId, CoreId, LocalPosition, TableId, Tick};
use kasha_wire::{Configuration, FRAME_HEADER_BYTES, FrameHeader, Read, Update};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::connection::{Dial, Event};
use crate::session::{CallId, CallOptions, Completion, Session, SessionOptions, SessionStats};

/// Bytes that may wait for one connection; more are dropped, and sent again by the session.
const OUTPUT_BYTES_MAX: usize = 8 * 1024 * 1024;
const RECONNECT: Duration = Duration::from_millis(1);
const RECONNECT_MAX: Duration = Duration::from_millis(500);
/// Inputs of one turn.
const INPUTS_MAX: usize = 256;

/// An operation that crossed a channel.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) code: u8,
    pub(super) arguments: Vec<u8>,
}

/// Names a call before it has an id.
pub(super) type Ticket = u64;
pub(super) type Reply = oneshot::Sender<(CallId, Completion)>;

/// How an update is to be made.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    pub(super) deadline: Option<Duration>,
    pub(super) operation_key: Option<(Vec<u8>, u64)>,
    pub(super) cancel_on_deadline: bool,
}

/// What handles ask for.
#[derive(Debug)]
pub(super) enum Command {
    Call { ticket: Ticket, what: Ask, reply: Reply },
    Resolve { call: CallId, reply: oneshot::Sender<Completion> },
    Ready { reply: oneshot::Sender<()> },
    Configuration { reply: oneshot::Sender<Option<Configuration>> },
    Stats { reply: oneshot::Sender<SessionStats> },
}

/// The calls of a session, owned.
#[derive(Debug)]
pub(super) enum Ask {
    Update { table: TableId, operation: Operation, options: Options },
    Read { table: TableId, operation: Operation, deadline: Option<Duration> },
    CreateTable(String),
    DropTable(String),
    Status(CoreId),
    Refresh,
}

/// Connections by endpoint.
struct Links {
    routes: BTreeMap<Endpoint, SocketAddr>,
    links: BTreeMap<Endpoint, Link>,
    failures: BTreeMap<Endpoint, Failure>,
    cluster: Option<ClusterId>,
    count: u64,
    events: mpsc::Sender<Event>,
}

struct Link {
    number: u64,
    turn: Vec<u8>,
    output: mpsc::UnboundedSender<Vec<u8>>,
    queued: Arc<AtomicUsize>,
}

struct Failure {
    not_before: Instant,
    pause: Duration,
}

impl Links {
    fn dial(&mut self, to: Endpoint) -> Option<&mut Link> {
        if !self.links.contains_key(&to) {
            let address = *self.routes.get(&to)?;
            if self.failures.get(&to).is_some_and(|failure| failure.not_before > Instant::now()) {
                return None;
            }
            self.count += 1;
            let (number, (sender, output)) = (self.count, mpsc::unbounded_channel());
            let queued = Arc::new(AtomicUsize::new(0));
            let (events, cluster) = (self.events.clone(), self.cluster);
            let dial = Dial { to, link: number, address, cluster, output, queued: Arc::clone(&queued), events };
            tokio::spawn(dial.run());
            self.links.insert(to, Link { number, turn: Vec::new(), output: sender, queued });
        }
        self.links.get_mut(&to)
    }

    fn is_current(&self, endpoint: Endpoint, number: u64) -> bool {
        self.links.get(&endpoint).is_some_and(|link| link.number == number)
    }

    fn lost(&mut self, endpoint: Endpoint) {
        self.links.remove(&endpoint);
        let pause = self.failures.get(&endpoint).map_or(RECONNECT, |failure| (failure.pause * 2).min(RECONNECT_MAX));
        self.failures.insert(endpoint, Failure { not_before: Instant::now() + pause, pause });
    }

    /// One write per connection and turn.
    fn flush(&mut self) {
        for link in self.links.values_mut().filter(|link| !link.turn.is_empty()) {
            link.queued.fetch_add(link.turn.len(), Ordering::Relaxed);
            // A connection that has just ended reports itself.
            let _ = link.output.send(std::mem::take(&mut link.turn));
        }
    }
}

impl Shell for Links {
    fn send(&mut self, to: Endpoint, head: &[u8], tail: &[u8]) {
        let Some(link) = self.dial(to) else { return };
        let waiting = link.queued.load(Ordering::Relaxed) + link.turn.len();
        if waiting + head.len() + tail.len() <= OUTPUT_BYTES_MAX {
            link.turn.extend_from_slice(head);
            link.turn.extend_from_slice(tail);
        }
    }

    fn route(&mut self, to: Endpoint, address: SocketAddr) {
        if self.routes.insert(to, address).is_some_and(|before| before != address) {
            self.links.remove(&to);
            self.failures.remove(&to);
        }
    }

    fn disconnect(&mut self, to: Endpoint) {
        self.flush();
        self.links.remove(&to);
    }

    fn write(&mut self, file: FileName, _: u64, _: &[u8]) {
        unreachable!("a client has no files: {file:?}");
    }
    fn replace(&mut self, file: FileName, _: &[u8]) {
        unreachable!("a client has no files: {file:?}");
    }
    fn truncate(&mut self, file: FileName, _: u64) {
        unreachable!("a client has no files: {file:?}");
    }
    fn remove(&mut self, file: FileName) {
        unreachable!("a client has no files: {file:?}");
    }
    fn commit(&mut self, to: LocalPosition, _: bool) {
        unreachable!("a client has no files: {to:?}");
    }
    fn flush(&mut self) {
        unreachable!("a client has no files");
    }
    fn stop(&mut self, why: &str) {
        unreachable!("a session never stops its process: {why}");
    }
}

/// The task's state.
pub(super) struct Driver {
    session: Session,
    effects: Effects,
    held: Held,
    links: Links,
    started: Instant,
    commands: mpsc::Receiver<Command>,
    abandoned: mpsc::UnboundedReceiver<Ticket>,
    events: mpsc::Receiver<Event>,
    waiting: BTreeMap<CallId, (Ticket, Reply)>,
    tickets: BTreeMap<Ticket, CallId>,
    resolving: Vec<(CallId, oneshot::Sender<Completion>)>,
    ready: Vec<oneshot::Sender<()>>,
    /// The last connection's end, for the error of a failed start.
    problem: Arc<Mutex<String>>,
}

impl Driver {
    pub(super) fn new(
        options: SessionOptions,
        commands: mpsc::Receiver<Command>,
        abandoned: mpsc::UnboundedReceiver<Ticket>,
        problem: Arc<Mutex<String>>,
    ) -> Self {
        const EVENTS_MAX: usize = 1024;
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let mut effects = Effects::new();
        let cluster = options.cluster;
        let links = Links {
            routes: BTreeMap::new(),
            links: BTreeMap::new(),
            failures: BTreeMap::new(),
            cluster,
            count: 0,
            events: sender,
        };
        Self {
            session: Session::new(options, Tick(0), &mut effects),
            effects,
            held: Held::new(),
            links,
            started: Instant::now(),
            commands,
            abandoned,
            events,
            waiting: BTreeMap::new(),
            tickets: BTreeMap::new(),
            resolving: Vec::new(),
            ready: Vec::new(),
            problem,
        }
    }

    /// Runs until the last handle is gone.
    pub(super) async fn run(mut self) {
        loop {
            self.end_turn();
            let wake = self.session.next_deadline().map_or(u64::MAX / 2, |tick| tick.0.min(u64::MAX / 2));
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(command) => self.on_command(command),
                    None => return,
                },
                Some(event) = self.events.recv() => self.on_event(event),
                Some(ticket) = self.abandoned.recv() => self.on_abandoned(ticket),
                () = tokio::time::sleep_until(self.started + Duration::from_nanos(wake)) => {
                    let now = self.now();
                    self.session.step(now, Input::Tick, &mut self.effects);
                }
            }
            // What else has come already belongs to the same turn: one write per connection for all of it.
            for _ in 0..INPUTS_MAX {
                if let Ok(command) = self.commands.try_recv() {
                    self.on_command(command);
                } else if let Ok(event) = self.events.try_recv() {
                    self.on_event(event);
                } else {
                    break;
                }
            }
        }
    }

    fn now(&self) -> Tick {
        Tick(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn end_turn(&mut self) {
        let now = self.now();
        finish(now, &mut self.session, &mut self.effects, &mut self.held, &mut self.links);
        self.links.flush();
        self.links.cluster = self.links.cluster.or_else(|| self.session.configuration().map(|c| c.cluster));
        while let Some((call, completion)) = self.session.poll_completed() {
            let Some((ticket, reply)) = self.waiting.remove(&call) else { continue };
            self.tickets.remove(&ticket);
            if reply.send((call, completion)).is_err() {
                self.session.abandon(call);
            }
        }
        self.resolving.retain(|(_, reply)| !reply.is_closed());
        let mut at = 0;
        while at < self.resolving.len() {
            match self.session.resolve(self.resolving[at].0) {
                Some(completion) => {
                    let (_, reply) = self.resolving.swap_remove(at);
                    // Whoever asked may have left in this very moment.
                    let _ = reply.send(completion);
                }
                None => at += 1,
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
            Command::Resolve { call, reply } => self.resolving.push((call, reply)),
            Command::Ready { reply } => self.ready.push(reply),
            // Who asks may be gone; then nobody is told.
            Command::Configuration { reply } => drop(reply.send(self.session.configuration().cloned())),
            Command::Stats { reply } => drop(reply.send(self.session.stats().clone())),
        }
    }

    fn start(&mut self, what: Ask) -> CallId {
        let now = self.now();
        let (session, out) = (&mut self.session, &mut self.effects);
        match what {
            Ask::Update { table, operation, options } => {
                let update = Update::decode(operation.code, &operation.arguments).expect("encoded by a handle");
                let options = CallOptions {
                    deadline: options.deadline.map(|deadline| now.after(deadline)),
                    operation_key: options.operation_key.as_ref().map(|(key, ttl)| (key.as_slice(), *ttl)),
                    cancel_on_deadline: options.cancel_on_deadline,
                };
                session.update(now, table, &update, &options, out)
            }
            Ask::Read { table, operation, deadline } => {
                let read = Read::decode(operation.code, &operation.arguments).expect("encoded by a handle");
                session.read(now, table, &read, deadline.map(|deadline| now.after(deadline)), out)
            }
            Ask::CreateTable(name) => session.create_table(now, &name, out),
            Ask::DropTable(name) => session.drop_table(now, &name, out),
            Ask::Status(core) => session.status(now, core, out),
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
            Event::Frames { from, link, bytes } if self.links.is_current(from, link) => {
                self.links.failures.remove(&from);
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let header = FrameHeader::parse(rest).expect("checked").expect("whole");
                    let (frame, after) = rest.split_at(FRAME_HEADER_BYTES + header.payload_len);
                    let payload = &frame[FRAME_HEADER_BYTES..];
                    self.session.step(now, Input::Frame { from, kind: header.kind, payload }, &mut self.effects);
                    rest = after;
                }
            }
            Event::Gone { from, link, why } if self.links.is_current(from, link) => {
                *self.problem.lock().expect("nobody panics with it") = why;
                self.links.lost(from);
                self.session.step(now, Input::Unreachable(from), &mut self.effects);
            }
            Event::Frames { .. } | Event::Gone { .. } => {}
        }
    }
}
