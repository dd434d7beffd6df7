//! All connections of one loop: accepting, writing, closing, supervising. `peers` dials, `receive` reads.
//!
//! Every socket is registered once, edge triggered, for both directions. What may still be read without another event
//! stands in `ready`; what has output stands in `dirty`, and is written once at the end of the turn.

mod accepting;
mod peers;
mod receive;
mod requesters;
mod strangers;

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use kasha_machine::Endpoint;
use kasha_types::{ConnId, CorePort, Tick};
use kasha_wire::{WIRE_VERSION, message, plain};
use mio::event::Event;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustix::net::{self, sockopt};

use crate::HeapUse;
use crate::connection::{Connection, Phase, Role, Table};
use crate::framing::{Cutting, Framing, Listener};
use crate::inbound::Inbound;
use crate::limits::{
    ACCEPT_PAUSE, BACKLOG, DIALLED_TIMEOUT, GATHER_BYTES, LINGER, Limits, READ_BYTES, REFUSALS_MAX, REFUSALS_TOLD,
    SWEEP, TURN_ACCEPTS, USER_TIMEOUT,
};
use crate::names::Asked;
use crate::options::Identity;
use crate::stats::NetworkStats;
use crate::turns::Turns;
use accepting::Acceptor;
use peers::Peer;
use requesters::Requesters;
use strangers::{Speech, Strangers};

/// The token of all listening sockets; those of connections are their ids, which never come near.
pub(crate) const LISTENER: Token = Token(usize::MAX);

/// An address could not be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {error}; {} (K0201)", match error.kind() {
    ErrorKind::AddrInUse => "another process listens there: stop it, or choose another port (0 takes a free one)",
    ErrorKind::AddrNotAvailable => "this machine has no such address: use one of its own, or 0.0.0.0 for all",
    ErrorKind::PermissionDenied => "ports below 1024 need privileges: choose a higher one",
    _ => "check the address",
})]
pub struct ListenError {
    /// The address that was asked for.
    pub address: SocketAddr,
    /// The system's error, which the text tells too.
    pub error: io::Error,
}

/// Binds a listening socket for [`crate::LoopOptions`], and says where: port 0 takes a free one.
///
/// # Errors
/// If the address cannot be had; the text says what to do.
pub fn listen(address: SocketAddr) -> Result<(std::net::TcpListener, SocketAddr), ListenError> {
    let failed = |error| ListenError { address, error };
    let listener = bind(address).map_err(|error| failed(error.into()))?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// As the standard library does it, but for the backlog: where thousands connect at once, 128 places make most of them
/// wait for the kernel's next attempt, seconds later.
fn bind(address: SocketAddr) -> rustix::io::Result<std::net::TcpListener> {
    let family = if address.is_ipv4() { net::AddressFamily::INET } else { net::AddressFamily::INET6 };
    let socket = net::socket_with(family, net::SocketType::STREAM, net::SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, &address)?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

#[derive(Debug)]
pub(crate) struct Network {
    registry: Registry,
    listeners: Vec<(Acceptor, Framing)>,
    /// Whose turn it is, so that none starves another.
    next_listener: usize,
    accept_ready: bool,
    accept_again_at: Option<Tick>,
    /// As many are being closed as may be at once: nobody else is accepted until one of them is gone.
    is_crowded: bool,
    /// Those who were refused because there is no room, oldest first. Some may be gone.
    refused: VecDeque<ConnId>,
    identity: Identity,
    limits: Limits,
    table: Table,
    accepted: usize,
    /// Accepted connections of the Redis protocol, which are not among those.
    requesters: Requesters,
    dialled: usize,
    /// When the log last said that connections are refused.
    refusals_told: Option<Tick>,
    strangers: Strangers,
    peers: HashMap<Endpoint, Peer, FixedState>,
    /// Who looks up the names of peers, if any has a name.
    names: Option<Asked>,
    ready: VecDeque<ConnId>,
    dirty: Vec<ConnId>,
    lost: Vec<ConnId>,
    pub(crate) inbound: Inbound,
    scratch: Vec<u8>,
    sweep_at: Option<Tick>,
    pub(crate) stats: NetworkStats,
    /// Goodbyes of the coordinator's since it last said anything else, and the last one's reason.
    refusals: (u8, String, Option<Endpoint>),
    /// The loop's turns, and what its thread has allocated: for whoever asks.
    pub(crate) turns: Turns,
    heap: Option<fn() -> HeapUse>,
}

impl Network {
    pub(crate) fn new(
        registry: Registry,
        listen: Vec<Listener>,
        identity: Identity,
        limits: Limits,
        inbound: Inbound,
        heap: Option<fn() -> HeapUse>,
        port: Option<CorePort>,
    ) -> io::Result<Self> {
        let mut listeners = Vec::new();
        for Listener { socket, framing } in listen {
            listeners.push((Acceptor::new(socket, &registry)?, framing));
        }
        Ok(Self {
            registry,
            // A connection from before the registration gives no event.
            accept_ready: !listeners.is_empty(),
            listeners,
            next_listener: 0,
            accept_again_at: None,
            is_crowded: false,
            refused: VecDeque::new(),
            identity,
            limits,
            table: Table::default(),
            accepted: 0,
            requesters: Requesters::new(port),
            dialled: 0,
            refusals_told: None,
            strangers: Strangers::default(),
            peers: HashMap::default(),
            names: None,
            ready: VecDeque::new(),
            dirty: Vec::new(),
            lost: Vec::new(),
            inbound,
            scratch: vec![0; READ_BYTES],
            sweep_at: None,
            stats: NetworkStats::default(),
            refusals: (0, String::new(), None),
            turns: Turns::new(),
            heap,
        })
    }

    /// Whether there is something to do without another event.
    pub(crate) fn has_work(&self) -> bool {
        self.accept_ready || (!self.ready.is_empty() && !self.inbound.is_full())
    }

    /// When there will be something to do without another event.
    pub(crate) fn next_deadline(&self) -> Option<Tick> {
        [self.sweep_at, self.accept_again_at, self.inbound.next_due()].into_iter().flatten().min()
    }

    /// An event for the listener or a connection.
    pub(crate) fn on_event(&mut self, event: &Event) {
        if event.token() == LISTENER {
            self.accept_ready = true;
            return;
        }
        let id = ConnId(event.token().0 as u64);
        let Some(connection) = self.table.get(id) else { return };
        connection.ending |= event.is_read_closed() || event.is_error();
        // Every event of an edge-triggered socket says whether it is writable; it matters to a blocked one only.
        if event.is_writable() && connection.output.is_blocked() {
            connection.output.unblock();
            self.mark_dirty(id);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            self.mark_ready(id);
        }
    }

    /// Why the coordinator will never talk to this process, if that is so. One goodbye proves nothing: bits may have been
    /// flipped on the way.
    pub(crate) fn is_refused(&self) -> Option<&str> {
        let (times, reason, _) = &self.refusals;
        (*times >= REFUSALS_MAX).then_some(reason)
    }

    pub(crate) fn accept(&mut self, now: Tick) {
        if self.accept_again_at.is_some_and(|at| at <= now) {
            self.accept_again_at = None;
            self.accept_ready = true;
        }
        if !self.accept_ready {
            return;
        }
        let mut idle = 0;
        for _ in 0..TURN_ACCEPTS {
            if self.accepted >= self.accepted_max() + self.limits.told && !self.let_one_go(now) {
                (self.accept_ready, self.is_crowded) = (false, true);
                return;
            }
            let Some(&(ref listener, framing)) = self.listeners.get(self.next_listener) else { break };
            self.next_listener = (self.next_listener + 1) % self.listeners.len();
            let attempt = listener.accept();
            idle = idle_behind(idle, &attempt);
            match attempt {
                Ok(stream) => self.accept_one(now, stream, framing),
                Err(_) if idle == self.listeners.len() => {
                    self.accept_ready = false;
                    return;
                }
                Err(error) if is_passing(error.kind()) => {}
                Err(error) => {
                    self.tell_refusal(now, &format!("cannot accept connections: {error} (K0408)"));
                    self.accept_ready = false;
                    self.accept_again_at = Some(now.after(ACCEPT_PAUSE));
                    return;
                }
            }
        }
    }

    /// Peers beyond those that room is kept for have taken it from here.
    fn accepted_max(&self) -> usize {
        self.limits.connections.saturating_sub(self.dialled.saturating_sub(self.limits.dialled))
    }

    fn accept_one(&mut self, now: Tick, mut stream: TcpStream, framing: Framing) {
        self.stats.accepted += 1;
        if framing == Framing::Requests && self.requesters.open >= self.limits.requesters {
            self.stats.refused += 1;
            self.requesters.refused();
            // Redis' own words, by which drivers know that nothing was executed; a new socket has room for them.
            let _ = stream.write(b"-ERR max number of clients reached\r\n");
            let limit = self.limits.requesters;
            let reason = format!("{limit} connections of the Redis protocol are open, as many as may be (K0205)");
            return self.tell_refusal(now, &reason);
        }
        let limit = self.accepted_max();
        let Some(id) = self.insert(now, stream, Role::Accepted, framing) else { return };
        tracing::debug!(%id, "accepted");
        if self.accepted > limit {
            self.stats.refused += 1;
            let reason = match self.limits.has_descriptors {
                true => format!("{limit} connections are open, as many as may be: close some, or try later (K0205)"),
                false => format!(
                    "{limit} connections are open, as many as the server has file descriptors for: close some, or raise \
                     its limit of open files (ulimit -Hn) and start it again (K0408)"
                ),
            };
            self.tell_refusal(now, &reason);
            self.refuse(now, id, &plain::line(&reason));
            if self.refused.len() >= 2 * self.limits.told {
                let Self { refused, table, .. } = self;
                refused.retain(|&id| table.get(id).is_some());
            }
            self.refused.push_back(id);
        }
    }

    /// Ends the connection that was refused first: it has been told why, and whoever does not close must not keep others from
    /// being told. Says whether there was one.
    fn let_one_go(&mut self, now: Tick) -> bool {
        while let Some(id) = self.refused.pop_front() {
            // It may have been refused in this turn.
            self.flush_one(now, id);
            let mut scratch = std::mem::take(&mut self.scratch);
            if let Some(connection) = self.table.get(id) {
                // Input that was not read would make the system take back what it has sent.
                let _ = connection.stream.read(&mut scratch);
            }
            self.scratch = scratch;
            let before = self.accepted;
            self.drop_connection(now, id);
            if self.accepted < before {
                return true;
            }
        }
        false
    }

    /// Tells the operator that connections are refused, once in a while.
    fn tell_refusal(&mut self, now: Tick, reason: &str) {
        if self.refusals_told.is_none_or(|at| now.since(at) >= REFUSALS_TOLD) {
            self.refusals_told = Some(now);
            tracing::warn!("connections are refused, and this is told once a minute: {reason}");
        }
    }

    /// Whether there is a descriptor for one more dialled connection.
    fn may_dial(&self) -> bool {
        let Limits { connections, told, dialled, .. } = self.limits;
        self.dialled < dialled || self.dialled + self.accepted < connections + told + dialled
    }

    fn insert(&mut self, now: Tick, mut stream: TcpStream, role: Role, framing: Framing) -> Option<ConnId> {
        let id = self.table.next_id()?;
        let token = Token(usize::try_from(id.0).expect("64 bits"));
        if let Err(error) = self.registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE) {
            tracing::warn!(%error, "cannot watch a connection");
            return None;
        }
        let is_requester = framing == Framing::Requests;
        prepare(&stream, role, is_requester);
        match role {
            Role::Accepted if is_requester => self.requesters.opened(),
            Role::Accepted => self.accepted += 1,
            Role::Dialled(_) => self.dialled += 1,
        }
        self.table.insert(Connection {
            id,
            stream,
            role,
            is_requester,
            phase: match framing {
                Framing::Frames => Phase::Greeting,
                Framing::Requests => Phase::Up,
            },
            version: match (framing, role) {
                (Framing::Requests, _) => Some(WIRE_VERSION),
                (Framing::Frames, Role::Accepted) => None,
                (Framing::Frames, Role::Dialled(_)) => self.identity.versions.only(),
            },
            moved: now,
            cutter: Cutting::of(framing),
            output: crate::output::Output::default(),
            queued: false,
            dirty: false,
            ending: false,
            held: 0,
            paused: false,
            unheard: false,
            unread: 0,
            half: 0,
        });
        self.supervise(now);
        Some(id)
    }

    /// Queues a frame; the turn's end writes it.
    pub(crate) fn send(&mut self, now: Tick, to: Endpoint, head: &[u8], tail: &[u8]) {
        let id = match to {
            Endpoint::Conn(id) => Some(id),
            Endpoint::Core(_) | Endpoint::Coordinator | Endpoint::Member(_) | Endpoint::Seed(_) => {
                self.connection_to(now, to)
            }
        };
        let limits = self.limits;
        let Some(connection) = id.and_then(|id| self.table.get(id)) else {
            self.stats.frames_dropped += 1;
            return;
        };
        let connecting = connection.is_connecting();
        let output = &mut connection.output;
        let waits = connecting || connection.version.is_none();
        let full = waits && output.len() + head.len() + tail.len() > limits.dial_buffer_bytes;
        if full || matches!(connection.phase, Phase::Closing { .. }) {
            self.stats.frames_dropped += 1;
            return;
        }
        match connection.version {
            None => output.hold(head, tail),
            Some(version) if version != WIRE_VERSION => output.push_frame(version, head, tail),
            Some(_) if tail.len() >= GATHER_BYTES => output.gather(&mut connection.stream, head, tail),
            Some(_) => {
                output.push(head);
                output.push(tail);
            }
        }
        let (id, len) = (connection.id, output.len());
        self.stats.frames_sent += 1;
        self.mark_dirty(id);
        if len > limits.output_close_bytes {
            self.stats.overflowed += 1;
            tracing::warn!(%id, len, "closed: the other side does not read");
            self.drop_connection(now, id);
        }
    }

    /// Writes what the turn has queued, once per connection.
    pub(crate) fn flush(&mut self, now: Tick) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for id in dirty.drain(..) {
            if let Some(connection) = self.table.get(id) {
                connection.dirty = false;
                self.flush_one(now, id);
            }
        }
        // Closing a connection queues nothing on others.
        assert!(self.dirty.is_empty(), "nothing is queued while flushing");
        self.dirty = dirty;
    }

    fn flush_one(&mut self, now: Tick, id: ConnId) {
        let Some(connection) = self.table.get(id) else { return };
        match connection.output.flush(&mut connection.stream) {
            // What we say does not prolong the time for the other side's greeting.
            Ok(progress) if progress && connection.phase != Phase::Greeting => connection.moved = now,
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(%id, %error, "lost while writing");
                self.drop_connection(now, id);
                return;
            }
        }
        let left = connection.output.len();
        let blocked = connection.output.is_blocked();
        if left == 0 && connection.phase == (Phase::Closing { ended: false }) {
            connection.phase = Phase::Closing { ended: true };
            connection.moved = now;
            let _ = connection.stream.shutdown(Shutdown::Write);
        }
        self.balance(now, id);
        if blocked && left > 0 {
            self.supervise(now);
        }
    }

    /// The machine wants nothing more of a connection for now, or goes on with it.
    pub(crate) fn hear(&mut self, id: ConnId, more: bool) {
        let Some(connection) = self.table.get(id) else { return };
        connection.unheard = !more;
        if more {
            self.mark_ready(id);
        }
    }

    /// A frame waits for its gate: its bytes count as backlog.
    pub(crate) fn held(&mut self, now: Tick, to: Endpoint, bytes: usize) {
        let Endpoint::Conn(id) = to else { return };
        let Some(connection) = self.table.get(id) else { return };
        connection.held += bytes;
        self.balance(now, id);
    }

    /// A frame's gate is open: its bytes do not wait any more.
    pub(crate) fn let_go(&mut self, now: Tick, to: Endpoint, bytes: usize) {
        let Endpoint::Conn(id) = to else { return };
        let Some(connection) = self.table.get(id) else { return };
        connection.held -= bytes;
        self.balance(now, id);
    }

    /// The connections that were lost since the last call while frames to them waited for their gates.
    pub(crate) fn take_lost(&mut self) -> Vec<ConnId> {
        std::mem::take(&mut self.lost)
    }

    /// Closes a connection after what was sent on it has left.
    pub(crate) fn disconnect(&mut self, now: Tick, to: Endpoint) {
        let id = match to {
            Endpoint::Conn(id) => Some(id),
            peer => self.detach(peer),
        };
        if let Some(id) = id {
            self.close(now, id);
        }
    }

    /// Tells the other side why, and closes.
    fn goodbye(&mut self, now: Tick, id: ConnId, reason: &str) {
        let Some(connection) = self.table.get(id) else { return };
        if matches!(connection.phase, Phase::Closing { .. }) {
            return;
        }
        tracing::info!(%id, reason, "closing a connection");
        connection.say(&message::Goodbye { reason: reason.to_owned() });
        self.close(now, id);
    }

    /// Begins to close: nothing more is read from it or sent to it.
    fn close(&mut self, now: Tick, id: ConnId) {
        let Some(connection) = self.table.get(id) else { return };
        let was = connection.phase;
        if matches!(was, Phase::Closing { .. }) {
            return;
        }
        connection.phase = Phase::Closing { ended: false };
        connection.output.give_up_held();
        connection.moved = now;
        let role = connection.role;
        self.report(now, id, role, was);
        self.mark_dirty(id);
        self.mark_ready(id);
        self.supervise(now);
    }

    /// Forgets a connection at once.
    fn drop_connection(&mut self, now: Tick, id: ConnId) {
        let Some(mut connection) = self.table.remove(id) else { return };
        let _ = self.registry.deregister(&mut connection.stream);
        if connection.held > 0 {
            self.lost.push(id);
        }
        match connection.role {
            Role::Accepted if connection.is_requester => self.requesters.closed(&connection),
            Role::Accepted => self.accepted -= 1,
            Role::Dialled(_) => self.dialled -= 1,
        }
        self.accept_ready |= std::mem::take(&mut self.is_crowded);
        self.report(now, id, connection.role, connection.phase);
    }

    /// Tells the machine that a connection is lost, if it does not know.
    fn report(&mut self, now: Tick, id: ConnId, role: Role, was: Phase) {
        match (role, was) {
            (Role::Accepted, Phase::Up) => self.inbound.closed(now, id),
            (Role::Accepted, Phase::Greeting | Phase::Closing { .. }) => {}
            (Role::Dialled(peer), _) => {
                if self.lose_peer(now, peer, id, was) {
                    self.inbound.unreachable(now, peer);
                }
            }
        }
    }

    /// Looks at what does not move.
    pub(crate) fn sweep(&mut self, now: Tick) {
        if self.sweep_at.is_none_or(|at| at > now) {
            return;
        }
        self.sweep_at = None;
        let limits = self.limits;
        let (mut late, mut watched) = (Vec::new(), false);
        for connection in self.table.iter() {
            let limit: Option<Duration> = match connection.phase {
                Phase::Greeting if connection.is_connecting() => Some(limits.connect.min(limits.handshake)),
                Phase::Greeting => Some(limits.handshake),
                Phase::Closing { ended: true } => Some(LINGER),
                Phase::Closing { ended: false } => Some(limits.stall),
                Phase::Up if connection.cutter.holds_bytes() && !connection.paused && !connection.unheard => {
                    Some(limits.stall)
                }
                // A program of another protocol may take its time: what it is told has bounds.
                Phase::Up if connection.is_requester => None,
                Phase::Up if connection.output.is_blocked() && !connection.output.is_empty() => Some(limits.stall),
                Phase::Up => None,
            };
            watched |= limit.is_some();
            if limit.is_some_and(|limit| now.since(connection.moved) > limit) {
                late.push((connection.id, connection.role, connection.phase, connection.is_requester));
            }
        }
        if watched {
            self.supervise(now);
        }
        self.relieve(now);
        for (id, role, phase, is_requester) in late {
            self.stats.stalled += u64::from(!matches!(phase, Phase::Closing { ended: true }));
            match (role, phase) {
                (_, Phase::Up) if is_requester => {
                    let why = format!("half a request has come, and nothing more for {:?}", limits.stall);
                    self.give_up_half(now, id, &why);
                }
                (Role::Accepted, Phase::Greeting) => self.turn_away(now, id, &Speech::Nothing),
                (_, Phase::Up) => {
                    tracing::info!(%id, "closed: half a frame, or output that is not read, for {:?}", limits.stall);
                    self.drop_connection(now, id);
                }
                (Role::Dialled(_), Phase::Greeting) | (_, Phase::Closing { .. }) => self.drop_connection(now, id),
            }
        }
    }

    /// Many who do not read, each within its own limit, are too much together: closes those for whom most waits.
    fn relieve(&mut self, now: Tick) {
        let mut total: usize = self.table.iter().map(Connection::backlog).sum();
        while total > self.limits.backlog_total_bytes {
            let Some(most) = self.table.iter().max_by_key(|connection| connection.backlog()) else { return };
            let (id, backlog) = (most.id, most.backlog());
            tracing::warn!(%id, backlog, total, "closed: too much waits for all connections together");
            total -= backlog;
            self.stats.overflowed += 1;
            self.drop_connection(now, id);
        }
    }

    fn supervise(&mut self, now: Tick) {
        self.sweep_at.get_or_insert(now.after(SWEEP.min(self.limits.handshake).min(self.limits.stall)));
    }

    fn mark_dirty(&mut self, id: ConnId) {
        if let Some(connection) = self.table.get(id)
            && !connection.dirty
        {
            connection.dirty = true;
            self.dirty.push(id);
        }
    }

    fn mark_ready(&mut self, id: ConnId) {
        if let Some(connection) = self.table.get(id)
            && !connection.queued
        {
            connection.queued = true;
            self.ready.push_back(id);
        }
    }
}

/// The number of listeners in a row, up to this attempt, for which nobody waits. An attempt that failed in another way says nothing of
/// those who wait behind it.
fn idle_behind<T>(idle: usize, attempt: &io::Result<T>) -> usize {
    match attempt {
        Err(error) if error.kind() == ErrorKind::WouldBlock => idle + 1,
        Ok(_) | Err(_) => 0,
    }
}

/// Whether the next attempt may succeed.
fn is_passing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted)
}

/// Socket options; one that cannot be had costs speed or detection of dead peers only.
///
/// Programs of another protocol may let replies wait, and the system's time for what is not acknowledged counts then, too, although the
/// other side answers that it has no room. So they get none.
fn prepare(stream: &TcpStream, role: Role, is_requester: bool) {
    let timeout = match role {
        Role::Accepted => USER_TIMEOUT,
        Role::Dialled(_) => DIALLED_TIMEOUT,
    };
    let millis = u32::try_from(timeout.as_millis()).expect("small");
    let _ = stream.set_nodelay(true);
    if !is_requester {
        let _ = sockopt::set_tcp_user_timeout(stream, millis);
    }
    let _ = sockopt::set_tcp_keepidle(stream, USER_TIMEOUT);
    let _ = sockopt::set_tcp_keepintvl(stream, USER_TIMEOUT);
    let _ = sockopt::set_socket_keepalive(stream, true);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_whose_attempt_was_aborted_is_asked_again_before_the_next_event() {
        let attempts =
            [ErrorKind::WouldBlock, ErrorKind::ConnectionAborted, ErrorKind::WouldBlock, ErrorKind::Interrupted];
        let idle = |kinds: &[ErrorKind]| {
            kinds.iter().fold(0, |idle, &kind| idle_behind(idle, &io::Result::<()>::Err(kind.into())))
        };
        assert_eq!((1..=4).map(|count| idle(&attempts[..count])).collect::<Vec<_>>(), [1, 0, 1, 0]);
        assert_eq!(idle(&[ErrorKind::WouldBlock; 2]), 2, "for both of them nobody waits");
    }
}
