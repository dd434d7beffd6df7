//! A message as an effect.

use kasha_machine::{Effect, Effects, Endpoint, Gate};
use kasha_wire::Message;

/// Sends a message.
pub(crate) fn send(to: Endpoint, message: &impl Message, gate: Gate, out: &mut Effects) {
    let mark = out.mark();
    message.encode(out.arena());
    let head = out.span_from(mark);
    out.push(Effect::Send { to, head, tail: None, gate });
}
