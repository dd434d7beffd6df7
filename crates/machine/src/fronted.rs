//! A front over the session that it owns, as one machine (REDIS 1).
//!
//! A front serves connections that speak another protocol than Kasha's. It makes calls of what comes, and answers when
//! the session tells how they ended. Calls go down and completions come up as values. What comes on the front's own
//! connections goes to the front, everything else to the session. A front has no files and no gates: the session tells
//! an outcome when it is durable.

use kasha_types::{ConnId, LogSlice, Tick};

use crate::{Effects, Gate, Input, Machine, RequestsEnd};

/// Rounds of one turn in which a front makes calls that end at once. What is left goes on in the next turn.
const TURN_ROUNDS: usize = 8;

/// The upper half of [`Fronted`]: it serves connections with calls of a session `S`.
pub trait Front<S> {
    /// A request came in: its bytes, and whether these are all of them.
    fn on_request(&mut self, now: Tick, from: ConnId, request: (&[u8], bool), session: &mut S, out: &mut Effects);

    /// No more requests come on a connection that is open.
    fn on_requests_end(&mut self, now: Tick, from: ConnId, why: RequestsEnd<'_>, session: &mut S, out: &mut Effects);

    /// Too much of what was sent on a connection has not left, or it is little again: the other side reads too slowly.
    fn on_backlog(&mut self, of: ConnId, is_full: bool);

    /// A connection is closed; perhaps nothing had come on it.
    fn on_closed(&mut self, conn: ConnId, session: &mut S);

    /// The inputs of this turn are in, or more has completed: makes the calls that follow from it, before the session sends.
    fn begin(&mut self, _now: Tick, _session: &mut S, _out: &mut Effects) {}

    /// Takes what the session has completed, and answers. Says whether anything had completed, or waits for [`Self::begin`].
    fn collect(&mut self, now: Tick, session: &mut S, out: &mut Effects) -> bool;

    /// When [`Self::collect`] has something to do although nothing has completed.
    fn next_deadline(&self) -> Option<Tick> {
        None
    }

    /// Checks what must hold between turns.
    fn assert_invariants(&self, _session: &S) {}
}

/// A front and its session.
#[derive(Debug)]
pub struct Fronted<F, S> {
    front: F,
    session: S,
    /// The turn ended before everything that had completed was taken.
    is_due: bool,
}

impl<F: Front<S>, S: Machine> Fronted<F, S> {
    /// A front over this session.
    pub fn new(front: F, session: S) -> Self {
        Self { front, session, is_due: false }
    }

    /// The front.
    pub fn front(&self) -> &F {
        &self.front
    }

    /// The session.
    pub fn session(&self) -> &S {
        &self.session
    }

    /// Both, for whoever runs them.
    pub fn parts_mut(&mut self) -> (&mut F, &mut S) {
        (&mut self.front, &mut self.session)
    }
}

impl<F: Front<S>, S: Machine> Machine for Fronted<F, S> {
    fn step(&mut self, now: Tick, input: Input<'_>, out: &mut Effects) {
        let Self { front, session, .. } = self;
        match input {
            Input::Request { from, bytes, is_whole } => front.on_request(now, from, (bytes, is_whole), session, out),
            Input::RequestsEnd { from, why } => front.on_requests_end(now, from, why, session, out),
            Input::Backlog { of, is_full } => front.on_backlog(of, is_full),
            Input::Closed(conn) => front.on_closed(conn, session),
            Input::Frame { .. }
            | Input::Unreachable(_)
            | Input::Durable(_)
            | Input::LogsFlushed
            | Input::UnixTime(_)
            | Input::Tick => {
                session.step(now, input, out);
            }
        }
    }

    fn end_turn(&mut self, now: Tick, out: &mut Effects) {
        for _ in 0..TURN_ROUNDS {
            self.front.begin(now, &mut self.session, out);
            self.session.end_turn(now, out);
            self.is_due = self.front.collect(now, &mut self.session, out);
            if !self.is_due {
                return;
            }
        }
    }

    fn next_deadline(&self) -> Option<Tick> {
        let own = if self.is_due { Some(Tick(0)) } else { self.front.next_deadline() };
        own.into_iter().chain(self.session.next_deadline()).min()
    }

    fn is_open(&self, gate: Gate) -> bool {
        self.session.is_open(gate)
    }

    fn log_bytes(&self, slice: LogSlice) -> &[u8] {
        self.session.log_bytes(slice)
    }

    fn assert_invariants(&self) {
        self.session.assert_invariants();
        self.front.assert_invariants(&self.session);
    }
}
