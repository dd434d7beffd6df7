//! Frames that leave, and what is said of those that arrive.

use kasha_machine::{Effect, Effects, Endpoint, Gate};
use kasha_wire::Message;

/// Whether a frame was expected by some part of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    Yes,
    No,
}

pub(super) fn send(to: Endpoint, mark: usize, out: &mut Effects) {
    let head = out.span_from(mark);
    out.push(Effect::Send { to, head, tail: None, gate: Gate::Now });
}

pub(super) fn send_message(to: Endpoint, message: &impl Message, out: &mut Effects) {
    let mark = out.mark();
    message.encode(out.arena());
    send(to, mark, out);
}
