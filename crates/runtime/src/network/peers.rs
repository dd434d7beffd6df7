//! Peers that are dialled when there is something to send to them.

use std::net::SocketAddr;
use std::time::Duration;

use kasha_machine::Endpoint;
use kasha_types::{ConnId, Tick};
use kasha_wire::Message;
use mio::net::TcpStream;

use super::Network;
use crate::connection::Role;
use crate::handshake;
use crate::limits::BACKOFF;

/// Someone who can be dialled.
#[derive(Debug)]
pub(super) struct Peer {
    address: SocketAddr,
    connection: Option<ConnId>,
    /// Not dialled before.
    again_at: Tick,
    backoff: Duration,
    /// What the log says of somebody else who was there.
    told: String,
}

impl Network {
    /// Where a peer is from now on. A connection to another address is given up. Whoever says where a peer is has news of
    /// the peer: the pause before the next dial is over.
    pub(crate) fn route(&mut self, now: Tick, to: Endpoint, address: SocketAddr) {
        let new = || Peer { address, connection: None, again_at: now, backoff: BACKOFF.0, told: String::new() };
        let peer = self.peers.entry(to).or_insert_with(new);
        if peer.address == address {
            (peer.again_at, peer.backoff) = (peer.again_at.min(now), BACKOFF.0);
            return;
        }
        if let Some(id) = std::mem::replace(peer, new()).connection {
            self.drop_connection(now, id);
            self.inbound.unreachable(now, to);
        }
    }

    /// The connection to a peer; dials it if there is none. `None`: it has no address, or failed a moment ago.
    pub(super) fn connection_to(&mut self, now: Tick, to: Endpoint) -> Option<ConnId> {
        let peer = self.peers.get(&to)?;
        if peer.connection.is_some() {
            return peer.connection;
        }
        if peer.again_at > now {
            return None;
        }
        let address = peer.address;
        self.stats.dialled += 1;
        let dialled = match self.may_dial().then(|| TcpStream::connect(address)) {
            None => {
                self.tell_refusal(now, "no file descriptor is left to dial a peer (K0408)");
                None
            }
            Some(Ok(stream)) => self.insert(now, stream, Role::Dialled(to)),
            Some(Err(error)) => {
                tracing::debug!(?to, %address, %error, "cannot dial");
                None
            }
        };
        let Some(id) = dialled else {
            self.back_off(now, to);
            self.inbound.unreachable(now, to);
            return None;
        };
        self.peers.get_mut(&to).expect("looked up above").connection = Some(id);
        let hello = handshake::hello(&self.identity, to);
        hello.encode(self.table.get(id).expect("just inserted").output.tail());
        self.mark_dirty(id);
        Some(id)
    }

    /// Takes a connection from its peer, without telling the machine.
    pub(super) fn detach(&mut self, to: Endpoint) -> Option<ConnId> {
        self.peers.get_mut(&to)?.connection.take()
    }

    /// The connection of a peer is lost. Says whether it was its connection still.
    pub(super) fn lose_peer(&mut self, now: Tick, to: Endpoint, id: ConnId) -> bool {
        let is_its = self.peers.get(&to).is_some_and(|peer| peer.connection == Some(id));
        if is_its {
            self.detach(to);
            self.back_off(now, to);
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
            && peer.told != why
        {
            peer.told = why.to_owned();
            tracing::warn!(peer = ?to, why, "not whom we wanted: closed");
        }
    }

    fn back_off(&mut self, now: Tick, to: Endpoint) {
        if let Some(peer) = self.peers.get_mut(&to) {
            peer.again_at = now.after(peer.backoff);
            peer.backoff = (peer.backoff * 2).min(BACKOFF.1);
        }
    }
}
