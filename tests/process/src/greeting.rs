//! The first frame of a client, for tests that speak to a port themselves.

use kasha_types::{ClusterId, Incarnation};
use kasha_wire::{Message, WireVersions, message};

/// A client's greeting to whichever cluster listens.
#[must_use]
pub fn hello() -> Vec<u8> {
    let mut bytes = Vec::new();
    message::Hello {
        versions: WireVersions::OURS,
        cluster: ClusterId(0),
        from: None,
        incarnation: Incarnation(0),
        to: None,
    }
    .encode(&mut bytes);
    bytes
}
