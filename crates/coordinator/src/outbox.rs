//! What the coordinator says, and when it may leave.
//!
//! **D3** Whoever has something to say gets an [`Out`], which takes messages only together with what they follow from
//! ([`Basis`]). So nothing is said that waits for no commit by mistake.

use kasha_machine::{Effect, Effects, Endpoint, Gate, Span};
use kasha_types::planted::{self, Bug};
use kasha_wire::{Message, message};

use crate::ledger::Basis;
use crate::limits::FRAMES_HELD_MAX;

/// The effects of a turn, for those who send messages.
#[derive(Debug)]
pub(crate) struct Out<'a>(&'a mut Effects);

impl<'a> Out<'a> {
    pub(crate) fn new(effects: &'a mut Effects) -> Self {
        Self(effects)
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

/// What waits to be said.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Frames that wait for a commit.
    held: u32,
}

impl Outbox {
    /// Sends a frame when its basis is committed. It is dropped if too many wait already.
    pub(crate) fn send(&mut self, to: Endpoint, frame: Frame, basis: Basis, out: &mut Out<'_>) {
        let gate = if planted::is_on(Bug::ToldBeforePersisted) { Gate::Now } else { basis.gate() };
        if gate != Gate::Now {
            if self.held >= FRAMES_HELD_MAX {
                return;
            }
            self.held += 1;
        }
        out.0.push(Effect::Send { to, head: frame.0, tail: None, gate });
    }

    /// Tells why, and closes the connection. This waits for no commit: the connection ends either way.
    pub(crate) fn part(&mut self, to: Endpoint, reason: String, out: &mut Out<'_>) {
        let frame = out.encode(&message::Goodbye { reason });
        self.send(to, frame, Basis::NO_COMMAND, out);
        out.0.push(Effect::Disconnect(to));
    }

    /// What waited for a commit leaves.
    pub(crate) fn on_committed(&mut self) {
        self.held = 0;
    }
}
