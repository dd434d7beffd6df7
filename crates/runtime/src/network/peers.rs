//! Peers that are dialled when there is something to send to them.
//!
//! A peer is at an address that the machine gave, or has a name. A dial of a named peer takes the newest answer that
//! there is and asks for a newer one, so that it neither waits for a name server nor depends on one: an answer that has
//! another address ends a dial that still waits for the old one. If there are several addresses, each is tried in turn;
//! the handshake says whether the peer is there.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kasha_machine::Endpoint;
use kasha_types::{ConnId, Tick};
use mio::net::TcpStream;

use super::Network;
use crate::connection::{Phase, Role};
use crate::framing::Framing;
use crate::limits::{BACKOFF, WRONG_PEERS_TOLD};
use crate::names::{Answer, Asked, Names};
use crate::{LoopHandle, handshake};

/// Someone who can be dialled.
#[derive(Debug)]
pub(super) struct Peer {
    /// Whom it must turn out to be.
    who: Endpoint,
    way: Way,
    connection: Option<ConnId>,
    /// Not dialled before.
    again_at: Tick,
    backoff: Duration,
    /// What the log says of others who were there.
    told: Vec<String>,
}

#[derive(Debug)]
enum Way {
    At(SocketAddr),
    Named(Named),
}

#[derive(Debug)]
struct Named {
    name: Arc<str>,
    /// The newest answer; a look-up that fails leaves it as it is.
    addresses: Vec<SocketAddr>,
    /// Whose turn it is.
    next: usize,
    /// An answer is under way.
    is_asked: bool,
    /// Why the last look-up failed.
    failed: Option<String>,
}

impl Named {
    fn address(&self) -> Option<SocketAddr> {
        self.addresses.get(self.next % self.addresses.len().max(1)).copied()
    }

    /// The address whose turn it was is not the peer's. Says whether the next one may be tried at once.
    fn turn(&mut self) -> bool {
        self.next = (self.next + 1) % self.addresses.len().max(1);
        self.next != 0
    }
}

impl Peer {
    fn new(who: Endpoint, way: Way, now: Tick) -> Self {
        Self { who, way, connection: None, again_at: now, backoff: BACKOFF.0, told: Vec::new() }
    }
}

impl Network {
    /// These peers are known by name from now on.
    pub(crate) fn name_peers(&mut self, now: Tick, names: Names, wake: LoopHandle) {
        let Names { resolver, of } = names;
        self.names = Some(Asked::new(resolver, wake));
        for (peer, name) in of {
            let named = Named { name, addresses: Vec::new(), next: 0, is_asked: false, failed: None };
            self.peers.insert(peer, Peer::new(peer, Way::Named(named), now));
        }
    }

    /// Where a peer is from now on. A connection to another address is given up. Whoever says where a peer is has news of
    /// the peer: the pause before the next dial is over.
    pub(crate) fn route(&mut self, now: Tick, to: Endpoint, who: Endpoint, address: SocketAddr) {
        let peer = self.peers.entry(to).or_insert_with(|| Peer::new(who, Way::At(address), now));
        match peer.way {
            Way::At(before) if before != address => {}
            Way::At(_) | Way::Named(_) => {
                (peer.again_at, peer.backoff) = (peer.again_at.min(now), BACKOFF.0);
                return;
            }
        }
        if let Some(id) = std::mem::replace(peer, Peer::new(who, Way::At(address), now)).connection {
            self.drop_connection(now, id);
            self.inbound.unreachable(now, to);
        }
    }

    /// Whom a peer must turn out to be: itself, or whom it stands for.
    pub(super) fn wanted(&self, peer: Endpoint) -> Endpoint {
        self.peers.get(&peer).map_or(peer, |known| known.who)
    }

    /// The connection to a peer; dials it if there is none. `None`: it has no address, or failed a moment ago.
    pub(super) fn connection_to(&mut self, now: Tick, to: Endpoint) -> Option<ConnId> {
        let peer = self.peers.get_mut(&to)?;
        if peer.connection.is_some() {
            return peer.connection;
        }
        if peer.again_at > now {
            return None;
        }
        let address = match &mut peer.way {
            Way::At(address) => *address,
            Way::Named(named) => {
                if !named.is_asked {
                    named.is_asked = self.names.as_ref().is_some_and(|asked| asked.ask(to, &named.name));
                }
                named.address()?
            }
        };
        self.stats.dialled += 1;
        let dialled = match self.may_dial().then(|| TcpStream::connect(address)) {
            None => {
                self.tell_refusal(now, "no file descriptor is left to dial a peer (K0408)");
                None
            }
            Some(Ok(stream)) => self.insert(now, stream, Role::Dialled(to), Framing::Frames),
            Some(Err(error)) => {
                tracing::debug!(?to, %address, %error, "cannot dial");
                None
            }
        };
        let Some(id) = dialled else {
            self.back_off(now, to, Phase::Greeting);
            self.inbound.unreachable(now, to);
            return None;
        };
        self.peers.get_mut(&to).expect("looked up above").connection = Some(id);
        let hello = handshake::hello(&self.identity, self.wanted(to));
        self.table.get(id).expect("just inserted").say(&hello);
        self.mark_dirty(id);
        Some(id)
    }

    /// Takes the answers for names that have come.
    pub(crate) fn take_answers(&mut self, now: Tick) {
        while let Some((to, answer)) = self.names.as_ref().and_then(Asked::next) {
            self.on_answer(now, to, answer);
        }
    }

    fn on_answer(&mut self, now: Tick, to: Endpoint, answer: Answer) {
        let Some(Peer { way: Way::Named(named), connection, .. }) = self.peers.get_mut(&to) else { return };
        named.is_asked = false;
        let connection = *connection;
        match answer {
            Ok(addresses) => {
                if named.failed.take().is_some() {
                    tracing::info!(peer = ?to, name = &*named.name, ?addresses, "the name has an address again");
                }
                if named.addresses == addresses {
                    return;
                }
                let dialled = named.address();
                (named.addresses, named.next) = (addresses, 0);
                let stands = dialled.is_none_or(|dialled| named.addresses.contains(&dialled));
                let Some(id) = connection.filter(|_| !stands) else { return };
                // Whoever has welcomed us is the peer, wherever else it is said to be.
                if self.table.get(id).is_some_and(|connection| connection.phase == Phase::Greeting) {
                    self.drop_connection(now, id);
                    let peer = self.peers.get_mut(&to).expect("looked up above");
                    (peer.again_at, peer.backoff) = (now, BACKOFF.0);
                }
            }
            Err(why) => {
                if named.failed.as_ref() != Some(&why) {
                    let known = named.addresses.len();
                    tracing::warn!(peer = ?to, known, "a name cannot be looked up, and is tried again: {why} (K0420)");
                    named.failed = Some(why);
                }
                if named.addresses.is_empty() {
                    self.back_off(now, to, Phase::Greeting);
                    self.inbound.unreachable(now, to);
                }
            }
        }
    }

    /// Takes a connection from its peer, without telling the machine.
    pub(super) fn detach(&mut self, to: Endpoint) -> Option<ConnId> {
        self.peers.get_mut(&to)?.connection.take()
    }

    /// The connection of a peer is lost, which was in this phase. Says whether it was its connection still.
    pub(super) fn lose_peer(&mut self, now: Tick, to: Endpoint, id: ConnId, was: Phase) -> bool {
        let is_its = self.peers.get(&to).is_some_and(|peer| peer.connection == Some(id));
        if is_its {
            self.detach(to);
            self.back_off(now, to, was);
        }
        is_its
    }

    /// A peer has welcomed us: its next loss begins with a short pause again.
    pub(super) fn reached(&mut self, to: Endpoint) {
        if let Some(peer) = self.peers.get_mut(&to) {
            peer.backoff = BACKOFF.0;
            peer.told.clear();
        }
    }

    /// Somebody else is where a peer should be: said once until the peer is reached, for it is dialled ten times a second.
    pub(super) fn tell_wrong_peer(&mut self, to: Endpoint, why: &str) {
        if let Some(peer) = self.peers.get_mut(&to)
            && peer.told.len() < WRONG_PEERS_TOLD
            && !peer.told.iter().any(|told| told == why)
        {
            peer.told.push(why.to_owned());
            tracing::warn!(peer = ?to, why, "not whom we wanted: closed");
        }
    }

    /// Pauses before the next dial. A peer that has not welcomed us may be at another of its addresses: those are tried
    /// without a pause, until it is the first one's turn again.
    fn back_off(&mut self, now: Tick, to: Endpoint, was: Phase) {
        let Some(peer) = self.peers.get_mut(&to) else { return };
        if let Way::Named(named) = &mut peer.way
            && was == Phase::Greeting
            && named.turn()
        {
            peer.again_at = now.after(BACKOFF.0);
            return;
        }
        peer.again_at = now.after(peer.backoff);
        peer.backoff = (peer.backoff * 2).min(BACKOFF.1);
    }
}
