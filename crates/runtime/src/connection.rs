//! One connection, and the table of all.

use kasha_machine::Endpoint;
use kasha_types::{ConnId, Tick};
use kasha_wire::{Message, WireVersion, frame};
use mio::net::TcpStream;

use crate::framing::Cutting;
use crate::limits::CONNECTION_SLOTS_MAX;
use crate::output::Output;

/// Which side made the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Accepted,
    Dialled(Endpoint),
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Accepted: waits for the Hello. Dialled: may be connecting still, and waits for the Welcome.
    Greeting,
    /// Frames, or lines, go to the machine.
    Up,
    /// Writes what is queued, ends its side, and reads the other's end unheard: a socket that is closed with unread
    /// input destroys its last words on their way.
    Closing {
        /// Whether our side was ended.
        ended: bool,
    },
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnId,
    pub(crate) stream: TcpStream,
    pub(crate) role: Role,
    pub(crate) phase: Phase,
    /// It speaks the Redis protocol, and counts apart.
    pub(crate) is_requester: bool,
    /// The version of the frames to it. `None`: what a peer speaks that we dial is not known before its Welcome.
    pub(crate) version: Option<WireVersion>,
    /// When the phase began, half a frame last grew, or output last left.
    pub(crate) moved: Tick,
    pub(crate) cutter: Cutting,
    pub(crate) output: Output,
    /// The list of connections to be read holds this one.
    pub(crate) queued: bool,
    /// The list of connections to be written holds this one.
    pub(crate) dirty: bool,
    /// An event said that the other side has ended: read until that is seen.
    pub(crate) ending: bool,
    /// Bytes of the frames to it that wait for their gates.
    pub(crate) held: usize,
    /// Not read until what waits for it, for its gate or for the socket, has become less.
    pub(crate) paused: bool,
    /// Not read until the machine wants more.
    pub(crate) unheard: bool,
    /// Of a requester: bytes of its replies that count among those of all.
    pub(crate) unread: usize,
    /// Of a requester: memory of its half request, which counts among those of all.
    pub(crate) half: usize,
}

impl Connection {
    /// Queues a message of the runtime's own.
    pub(crate) fn say(&mut self, message: &impl Message) {
        let out = self.output.tail();
        let begins = out.len();
        message.encode(out);
        let is_handshake = self.phase == Phase::Greeting;
        let version = self.version.filter(|_| !is_handshake).unwrap_or(WireVersion::HANDSHAKE);
        frame::restamp(&mut out[begins..], version);
    }

    /// Bytes that wait to be sent, gated or queued.
    pub(crate) fn backlog(&self) -> usize {
        self.held + self.output.len()
    }

    /// Whether we dial it, and the network has not made it yet.
    pub(crate) fn is_connecting(&self) -> bool {
        self.role != Role::Accepted && !self.output.opened()
    }

    /// The sender of this connection's frames, as the machine knows it.
    pub(crate) fn endpoint(&self) -> Endpoint {
        match self.role {
            Role::Accepted => Endpoint::Conn(self.id),
            Role::Dialled(peer) => peer,
        }
    }
}

/// Connections by id. The low bits of an id are its slot, the others count, so that no id is used twice.
#[derive(Debug, Default)]
pub(crate) struct Table {
    slots: Vec<Option<Connection>>,
    free: Vec<usize>,
    count: u64,
}

fn slot(id: ConnId) -> usize {
    usize::try_from(id.0 % CONNECTION_SLOTS_MAX as u64).expect("a slot")
}

impl Table {
    /// The id that the next connection will have; `None` if the table is full.
    pub(crate) fn next_id(&mut self) -> Option<ConnId> {
        if self.free.is_empty() {
            if self.slots.len() == CONNECTION_SLOTS_MAX {
                return None;
            }
            self.free.push(self.slots.len());
            self.slots.push(None);
        }
        let slot = *self.free.last().expect("ensured above");
        Some(ConnId((self.count + 1) * CONNECTION_SLOTS_MAX as u64 + slot as u64))
    }

    /// Adds a connection that has the id of [`Table::next_id`].
    pub(crate) fn insert(&mut self, connection: Connection) {
        let at = self.free.pop().expect("next_id was asked");
        assert_eq!(at, slot(connection.id), "the next id");
        self.count += 1;
        self.slots[at] = Some(connection);
    }

    pub(crate) fn get(&mut self, id: ConnId) -> Option<&mut Connection> {
        self.slots.get_mut(slot(id))?.as_mut().filter(|connection| connection.id == id)
    }

    pub(crate) fn remove(&mut self, id: ConnId) -> Option<Connection> {
        self.get(id)?;
        self.free.push(slot(id));
        self.slots[slot(id)].take()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.slots.iter().flatten()
    }
}
