//! Streams of bytes between processes: connections of the Redis protocol, which the one who accepted them cuts into requests.
//!
//! A stream loses, doubles and reorders nothing: what would be lost is sent again, and comes late. It breaks when a process
//! dies or the hosts are cut off; then each side is told after a while, or never. What was sent before may arrive still. The bytes of
//! a send arrive in pieces of any length. A process that sends nothing at all has ended its side, and listens still. A process
//! that dialled gets each piece as the payload of a frame; an empty one says that the other side has closed the connection.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;

use kasha_machine::Endpoint;
use kasha_types::ConnId;
use kasha_wire::cutter::Verdict;
use kasha_wire::requests::{Cut, Request, RequestCutter};

use crate::clock::millis;
use crate::network::{ConnectionId, Frame, HostId, ProcessId, Way};
use crate::process::Inbound;
use crate::world::{What, World};

/// The longest time until whoever cannot send any more is told.
const NOTICED: u64 = millis(500);

/// Where requests are listened for, and the streams so far.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    listeners: BTreeSet<SocketAddr>,
    /// The unfinished request of each.
    cutters: BTreeMap<ConnectionId, RequestCutter>,
}

impl Streams {
    /// A connection was dialled: it is a stream if requests are listened for there.
    pub(crate) fn dialled(&mut self, connection: ConnectionId, address: SocketAddr) {
        if self.listeners.contains(&address) {
            self.cutters.insert(connection, Default::default());
        }
    }

    /// Whether anybody listens for requests.
    pub(crate) fn are_there(&self) -> bool {
        !self.listeners.is_empty()
    }

    /// Whether a connection is a stream.
    pub(crate) fn has(&self, connection: ConnectionId) -> bool {
        self.cutters.contains_key(&connection)
    }
}

impl World {
    /// A process listens for requests of the Redis protocol at another address, too.
    pub fn listen_for_requests(&mut self, id: ProcessId, address: SocketAddr) {
        assert!(self.by_address.insert(address, id).is_none(), "{address} is taken");
        self.streams.listeners.insert(address);
    }

    /// The hosts on which requests are listened for.
    pub(crate) fn hosts_of_fronts(&self) -> Vec<HostId> {
        self.streams.listeners.iter().map(|address| self.processes[self.by_address[address].0].host).collect()
    }

    /// Whoever accepted a stream closes it: the other side is told so, behind all that was sent.
    pub(crate) fn close_stream(&mut self, id: ConnectionId, by: ProcessId) {
        let state = self.network.connection(id);
        if self.streams.has(id) && state.dialer.process != by && !state.closed {
            self.send_text(by, id, &Rc::from(&b""[..]));
        }
    }

    /// Sends text, in pieces.
    pub(crate) fn send_text(&mut self, id: ProcessId, connection: ConnectionId, bytes: &Rc<[u8]>) {
        let state = self.network.connection(connection);
        let (way, other) = if state.dialer.process == id {
            (Way::ToAcceptor, state.acceptor)
        } else {
            (Way::ToDialer, state.dialer.process)
        };
        if state.closed {
            return;
        }
        let hosts = (self.processes[id.0].host, self.processes[other.0].host);
        if self.network.is_cut(hosts.0, hosts.1) {
            self.probes.hit("streams: broken by a cut");
            return self.break_off(connection, id);
        }
        let leaves = self.processes[id.0].busy_until;
        let mut rest = &bytes[..];
        loop {
            let most = rest.len() as u64;
            let len = if most > 1 && self.rng.chance(1, 3) { self.rng.between(1, most) } else { most };
            let (piece, others) = rest.split_at(usize::try_from(len).expect("a piece"));
            let at = self.network.carry_text(leaves, connection, way, &self.intensity);
            self.push(at, What::Arrive(Frame { connection, way, bytes: piece.into() }));
            rest = others;
            if rest.is_empty() {
                return;
            }
        }
    }

    /// Nothing gets through any more. The side that tried to send learns that, and the other one perhaps.
    fn break_off(&mut self, connection: ConnectionId, by: ProcessId) {
        self.close(connection, by);
        let state = self.network.connection(connection);
        let inbound = match state.accepted {
            Some((life, conn)) if life.process == by => Inbound::Closed(conn),
            Some(_) | None => Inbound::Unreachable(state.endpoint),
        };
        let (life, after) = (self.life(by), self.rng.between(millis(20), NOTICED));
        self.push(self.now.after(after), What::Inform(life, inbound, connection));
    }

    /// A piece of text has arrived: whoever has not heard of the connection's end gets it, or the requests that it completes.
    pub(crate) fn arrive_text(&mut self, id: ConnectionId, way: Way, bytes: &[u8]) {
        let connection = self.network.connection(id).clone();
        let (at, from) = match (way, connection.accepted) {
            (Way::ToDialer, _) => {
                let is_held = self.processes[connection.dialer.process.0].dialed.get(&connection.endpoint) == Some(&id);
                if !is_held || !self.lives(connection.dialer) {
                    return;
                }
                (connection.dialer.process, connection.endpoint)
            }
            (Way::ToAcceptor, Some((life, conn))) => {
                if !self.lives(life) || self.processes[life.process.0].accepted.get(&conn) != Some(&id) {
                    return self.close(id, connection.acceptor);
                }
                (life.process, Endpoint::Conn(conn))
            }
            (Way::ToAcceptor, None) => {
                if connection.closed || !self.processes[connection.acceptor.0].is_running() {
                    return self.close(id, connection.acceptor);
                }
                (connection.acceptor, Endpoint::Conn(self.accept(id)))
            }
        };
        self.digest.mix(at.0 as u64);
        self.digest.mix_bytes(bytes);
        let Endpoint::Conn(from) = from else {
            return self.deliver(at, Inbound::Bytes { from, bytes: bytes.into() });
        };
        for inbound in self.cut(id, from, bytes) {
            self.deliver(at, inbound);
        }
    }

    fn cut(&mut self, id: ConnectionId, from: ConnId, bytes: &[u8]) -> Vec<Inbound> {
        if bytes.is_empty() {
            self.probes.hit("streams: half closed");
            return vec![Inbound::RequestsEnd { from, why: None }];
        }
        let mut inbound = Vec::new();
        let cutter = self.streams.cutters.get_mut(&id).expect("a stream");
        _ = cutter.feed(bytes, |cut| {
            let whole =
                |request: Request<'_>, is_whole| Inbound::Request { from, bytes: request.bytes().into(), is_whole };
            inbound.push(match cut {
                Cut::Request(request) => whole(request, true),
                Cut::TooLarge(request) => whole(request, false),
                Cut::Bad(why) => Inbound::RequestsEnd { from, why: Some(why.to_string().into()) },
            });
            Verdict::Continue
        });
        inbound
    }
}
