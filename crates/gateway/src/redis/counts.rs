//! What a front says, and what it counts of it: plainly, for each command, and noted for others once a turn.

use kasha_machine::{Effect, Effects, Endpoint, Gate};
use kasha_types::{ConnId, CorePort, PortUse};

use crate::resp::{self, Protocol};

/// What a front has counted.
#[derive(Debug, Default)]
pub struct Counts {
    /// Connections that have said something.
    pub connections: u64,
    /// Commands that are over.
    pub commands: u64,
    /// Bytes of requests.
    pub bytes_in: u64,
    /// Bytes of replies.
    pub bytes_out: u64,
    /// Times that requests were begun: what a connection is told in one has a bound.
    pub round: u64,
    /// Nobody of the cluster answers, as its host has found.
    pub is_silent: bool,
}

impl Counts {
    /// Says this to a connection. Returns how many bytes that is.
    pub fn say(&mut self, to: ConnId, protocol: Protocol, replies: &[u8], out: &mut Effects) -> usize {
        let mark = out.mark();
        resp::write(replies, protocol, out.arena());
        let bytes = out.mark() - mark;
        self.bytes_out += bytes as u64;
        let head = out.span_from(mark);
        out.push(Effect::Send { to: Endpoint::Conn(to), head, tail: None, gate: Gate::Now });
        bytes
    }

    /// Notes it for whoever asks the node.
    pub fn note(&self, port: Option<&CorePort>) {
        if let Some(port) = port {
            port.note_commands(self.commands, self.bytes_in, self.bytes_out);
        }
    }

    /// What the whole port does. Without others that count, what this front does for its `clients`.
    pub fn of_port(&self, port: Option<&CorePort>, clients: usize) -> PortUse {
        self.note(port);
        match port {
            Some(port) => port.of_node(),
            None => PortUse {
                connections: clients as u64,
                accepted: self.connections,
                refused: 0,
                commands: self.commands,
                bytes_in: self.bytes_in,
                bytes_out: self.bytes_out,
            },
        }
    }
}
