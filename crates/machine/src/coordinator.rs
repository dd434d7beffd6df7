//! Where a machine that needs the coordinator finds it. Only this knows how many members the coordinator's group has, and who leads.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use kasha_types::MemberId;

use crate::{Effect, Effects, Endpoint};

/// The links to the members of the coordinator's group. A member that is alone is [`Endpoint::Coordinator`], like the address that a
/// process was started with.
#[derive(Clone, Debug, Default)]
pub struct CoordinatorLinks {
    /// Where [`Endpoint::Coordinator`] is.
    address: Option<SocketAddr>,
    /// The members of a group of several.
    members: BTreeMap<MemberId, SocketAddr>,
    leader: Option<MemberId>,
}

impl CoordinatorLinks {
    /// Whoever leads, as far as is known: questions go there.
    #[must_use]
    pub fn leader(&self) -> Endpoint {
        self.leader.map_or(Endpoint::Coordinator, Endpoint::Member)
    }

    /// Everybody who may lead, or may do so soon: heartbeats go there (R9.9).
    pub fn all(&self) -> impl Iterator<Item = Endpoint> {
        let alone = self.members.is_empty().then_some(Endpoint::Coordinator);
        alone.into_iter().chain(self.members.keys().copied().map(Endpoint::Member))
    }

    /// Whether a frame from this endpoint is the coordinator's word: a member that does not lead says nothing.
    #[must_use]
    pub fn is_leader(&self, from: Endpoint) -> bool {
        matches!(from, Endpoint::Coordinator | Endpoint::Member(_))
    }

    /// The leader listens at this address, and these are the members. Tells the shell what is new.
    pub fn learn(
        &mut self,
        leader: SocketAddr,
        group: impl IntoIterator<Item = (MemberId, SocketAddr)>,
        out: &mut Effects,
    ) {
        let mut members: BTreeMap<MemberId, SocketAddr> = group.into_iter().collect();
        if members.len() < 2 {
            members.clear();
        }
        if members.is_empty() && self.address.replace(leader) != Some(leader) {
            out.push(Effect::Route { to: Endpoint::Coordinator, address: leader });
        }
        for (&member, &address) in &members {
            if self.members.get(&member) != Some(&address) {
                out.push(Effect::Route { to: Endpoint::Member(member), address });
            }
        }
        self.leader = members.iter().find(|(_, address)| **address == leader).map(|(member, _)| *member);
        self.members = members;
    }
}
