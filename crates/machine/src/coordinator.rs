//! Where a machine that needs the coordinator finds it. Only this knows how many endpoints the coordinator has: one.

use std::net::SocketAddr;

use crate::{Effect, Effects, Endpoint};

/// The links to the coordinator.
#[derive(Clone, Copy, Debug, Default)]
pub struct CoordinatorLinks {
    address: Option<SocketAddr>,
}

impl CoordinatorLinks {
    /// Whoever leads: questions and reports go there.
    #[must_use]
    pub fn leader(&self) -> Endpoint {
        Endpoint::Coordinator
    }

    /// Whether a frame from this endpoint is the coordinator's word.
    #[must_use]
    pub fn is_leader(&self, from: Endpoint) -> bool {
        from == self.leader()
    }

    /// The coordinator listens at this address. Tells the shell, if that is new.
    pub fn learn(&mut self, address: SocketAddr, out: &mut Effects) {
        if self.address.replace(address) != Some(address) {
            out.push(Effect::Route { to: self.leader(), address });
        }
    }
}
