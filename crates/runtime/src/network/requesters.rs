//! Connections of the Redis protocol: how many there are, and what they can make a loop keep.
//!
//! Replies that nobody reads: their connection is read no further, and its machine is told to begin nothing more for it ([`Input::Backlog`]); the
//! connection stays, however long that lasts. If all of these together are too much, the same holds for everyone for whom more than
//! little waits. Each goes on when its own replies have left, so that nobody waits for another.
//!
//! Requests that do not end: if all of them together are too much, one of them is given up, and its connection is told so and
//! ends: what was not whole has not run (**R10.2**). Nobody waits for room, so that nobody can keep it from others.
//!
//! [`Input::Backlog`]: kasha_machine::Input::Backlog

use std::time::Duration;

use kasha_types::{ConnId, CorePort, Tick};

use super::Network;
use crate::connection::{Connection, Phase, Role};
use crate::framing::Cutting;

/// A half request that has not grown for so long is given up before one that grows.
const IDLE: Duration = Duration::from_secs(1);

/// Half requests below this are given up last: they are many if they are too much.
const SMALL: usize = 64 * 1024;

/// What a loop knows of these connections.
#[derive(Debug, Default)]
pub(super) struct Requesters {
    pub(super) open: usize,
    accepted: u64,
    refused: u64,
    /// Where that is noted, for whoever asks.
    port: Option<CorePort>,
    /// Bytes of replies that have not left.
    unread: usize,
    /// Memory of half requests.
    halves: usize,
}

impl Network {
    /// Whether replies have not left.
    pub(crate) fn owes_replies(&self) -> bool {
        self.requesters.unread > 0
    }
}

impl Requesters {
    pub(super) fn new(port: Option<CorePort>) -> Self {
        Self { port, ..Self::default() }
    }

    pub(super) fn opened(&mut self) {
        (self.open, self.accepted) = (self.open + 1, self.accepted + 1);
        self.note();
    }

    pub(super) fn refused(&mut self) {
        self.refused += 1;
        self.note();
    }

    pub(super) fn closed(&mut self, connection: &Connection) {
        self.open -= 1;
        self.unread -= connection.unread;
        self.halves -= connection.half;
        self.note();
    }

    fn note(&self) {
        if let Some(port) = &self.port {
            port.note_connections(self.open as u64, self.accepted, self.refused);
        }
    }
}

impl Network {
    /// Stops reading a connection for which too much waits, and begins again when half of it is gone.
    pub(super) fn balance(&mut self, now: Tick, id: ConnId) {
        let Self { limits, table, requesters, .. } = self;
        let Some(connection) = table.get(id) else { return };
        let backlog = connection.backlog();
        let mut most = limits.output_pause_bytes;
        if connection.is_requester {
            requesters.unread = requesters.unread + backlog - connection.unread;
            connection.unread = backlog;
            if requesters.unread > limits.replies_total_bytes {
                most = limits.replies_least_bytes;
            }
        }
        let was = connection.paused;
        if connection.role == Role::Accepted && backlog > most {
            connection.paused = true;
        } else if connection.paused && backlog <= most / 2 {
            connection.paused = false;
        }
        let is = connection.paused;
        if is != was && connection.is_requester && connection.phase == Phase::Up {
            self.inbound.backlog(now, id, is);
        }
        if was && !is {
            self.mark_ready(id);
        }
    }

    /// Counts what is kept of a request that has not ended. If all of them are too much, gives some up.
    pub(super) fn count_half(&mut self, now: Tick, id: ConnId) {
        let Some(connection) = self.table.get(id) else { return };
        let half = match &connection.cutter {
            Cutting::Requests(cutter) if cutter.holds_bytes() => cutter.bytes(),
            Cutting::Requests(_) | Cutting::Frames(_) | Cutting::Over => 0,
        };
        self.requesters.halves = self.requesters.halves + half - connection.half;
        connection.half = half;
        while self.requesters.halves > self.limits.halves_total_bytes {
            let order = |of: &&Connection| (of.half >= SMALL, now.since(of.moved) >= IDLE, of.half);
            let Some(most) = self.table.iter().max_by_key(order) else { return };
            let (id, half, why) =
                (most.id, most.half, "too much is kept of requests that have not ended, of all connections together");
            tracing::debug!(%id, half, why, "closing a connection");
            self.tell_refusal(now, why);
            self.stats.overflowed += 1;
            self.give_up_half(now, id, why);
        }
    }

    /// What came of a request does not count any more, and nothing more is taken.
    pub(super) fn give_up_half(&mut self, now: Tick, id: ConnId, why: &str) {
        let Some(connection) = self.table.get(id) else { return };
        let Cutting::Requests(cutter) = &mut connection.cutter else { return };
        cutter.give_up();
        self.requesters.halves -= std::mem::take(&mut connection.half);
        self.inbound.requests_are_over(now, id, why);
    }
}
