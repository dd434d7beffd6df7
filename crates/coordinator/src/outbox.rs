//! What the coordinator says, and when it may leave.
//!
//! **D3** Whoever has something to say gets an [`Out`], which takes messages only together with what they follow from
//! ([`Basis`]). So nothing is said that waits for no commit by mistake.

use kasha_machine::{Effect, Effects, Endpoint, Gate, Span};
use kasha_types::planted::{self, Bug};
use kasha_wire::{Message, message};

use crate::ledger::{Basis, Ledger};
use crate::limits::FRAMES_HELD_MAX;

/// The effects of a turn, for those who send messages.
#[derive(Debug)]
pub(crate) struct Out<'a>(&'a mut Effects);

impl<'a> Out<'a> {
    pub(crate) fn new(effects: &'a mut Effects) -> Self {
        Self(effects)
    }

    /// Asks what the clock on the wall shows.
    pub(crate) fn read_clock(&mut self) {
        self.0.push(Effect::ReadClock);
    }

    /// Encodes a message once, for as many receivers as there are.
    pub(crate) fn encode(&mut self, message: &impl Message) -> Frame {
        let mark = self.0.mark();
        message.encode(self.0.arena());
        Frame(self.0.span_from(mark))
    }
}

/// An encoded message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame(Span);

impl Frame {
    /// Its length in bytes.
    pub(crate) fn len(self) -> usize {
        self.0.len as usize
    }
}

/// A goodbye that waits for a commit.
#[derive(Debug)]
struct Parting {
    to: Endpoint,
    reason: String,
    basis: Basis,
}

/// What waits to be said.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Frames that wait for a commit.
    held: u32,
    /// Connections that are closed when their goodbyes are committed.
    partings: Vec<Parting>,
}

impl Outbox {
    /// Sends a frame when its basis is committed. It is dropped if too many wait already.
    pub(crate) fn send(&mut self, to: Endpoint, frame: Frame, basis: Basis, out: &mut Out<'_>) {
        let gate = gate(basis);
        if gate != Gate::Now {
            if self.held >= FRAMES_HELD_MAX {
                return;
            }
            self.held += 1;
        }
        out.0.push(Effect::Send { to, head: frame.0, tail: None, gate });
    }

    /// Tells why, and closes the connection, when the basis is committed: a goodbye stops a process. If too many wait already, the
    /// connection is closed at once, and nothing is told: whoever connects again is told then.
    pub(crate) fn part(&mut self, to: Endpoint, reason: String, basis: Basis, out: &mut Out<'_>) {
        if gate(basis) == Gate::Now || planted::is_on(Bug::GoodbyeUngated) {
            let frame = out.encode(&message::Goodbye { reason });
            out.0.push(Effect::Send { to, head: frame.0, tail: None, gate: Gate::Now });
            out.0.push(Effect::Disconnect(to));
        } else if self.held < FRAMES_HELD_MAX {
            self.held += 1;
            self.partings.push(Parting { to, reason, basis });
        } else {
            out.0.push(Effect::Disconnect(to));
        }
    }

    /// Whether a goodbye to this endpoint waits: nothing that comes from there is heard any more.
    pub(crate) fn is_parting(&self, from: Endpoint) -> bool {
        self.partings.iter().any(|parting| parting.to == from)
    }

    /// The connection is closed.
    pub(crate) fn on_closed(&mut self, end: Endpoint) {
        self.partings.retain(|parting| parting.to != end);
    }

    /// The lead is lost: nobody is told what waits. Who asks again is told by the next leader.
    pub(crate) fn drop_held(&mut self) {
        *self = Self::default();
    }

    /// Something was committed: what waited for that leaves, here the goodbyes, and frames where they are held.
    pub(crate) fn on_committed(&mut self, ledger: &Ledger, out: &mut Out<'_>) {
        let (told, wait): (Vec<_>, Vec<_>) =
            (self.partings.drain(..)).partition(|parting| ledger.has_committed(parting.basis));
        self.held = u32::try_from(wait.len()).expect("limited");
        self.partings = wait;
        for Parting { to, reason, .. } in told {
            self.part(to, reason, Basis::NO_COMMAND, out);
        }
    }
}

fn gate(basis: Basis) -> Gate {
    if planted::is_on(Bug::ToldBeforePersisted) { Gate::Now } else { basis.gate() }
}
