//! Who leads the coordinator's group, as its members say themselves.
//!
//! Each member is asked on a connection of its own, without a session: only the leader answers with the configuration, and
//! it has asked a majority before it does (R9.2). The others say in which view they are; views are counted up by elections.

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, bail};
use kasha_runtime::Clock;
use kasha_types::{NodeId, Tick, ViewNumber};
use kasha_wire::link::ToClient;
use kasha_wire::message::NotLeader;

use crate::children::Children;
use crate::harness::probe::Probe;

/// How long a member may take to answer. One that has just been killed refuses at once. A question that comes in the middle of an
/// election may have no answer, so the first ones are given up soon, and each later one is waited for longer.
const ANSWER: Duration = Duration::from_millis(500);
const FIRST_ANSWER: Duration = Duration::from_millis(20);
/// Between two questions to all.
const PAUSE: Duration = Duration::from_millis(5);

/// Some of the members: their nodes, and where they listen.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    members: Vec<(NodeId, SocketAddr)>,
}

impl Group {
    /// The members whose processes run.
    pub(crate) fn of(children: &Children) -> Self {
        Self { members: children.members() }
    }

    /// The others.
    pub(crate) fn without(mut self, node: NodeId) -> Self {
        self.members.retain(|(member, _)| *member != node);
        self
    }

    /// The nodes of these members.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.members.iter().map(|(node, _)| *node)
    }

    /// The node of the one that leads, if one does.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        self.leader_within(ANSWER)
    }

    fn leader_within(&self, patience: Duration) -> Option<NodeId> {
        let leads = |&(node, address): &(NodeId, SocketAddr)| match ask_within(address, patience) {
            Ok(ToClient::ConfigurationIs(_)) => Some(node),
            Ok(_) | Err(_) => None,
        };
        self.members.iter().find_map(leads)
    }

    /// Asks until one of them leads. Returns its node, and when it said so.
    pub(crate) fn wait_for_leader(&self, patience: Duration) -> anyhow::Result<(NodeId, Tick)> {
        let (deadline, mut answer) = (Clock::now().after(patience), FIRST_ANSWER);
        loop {
            let asked = Clock::now();
            if let Some(node) = self.leader_within(answer) {
                return Ok((node, Clock::now()));
            }
            if Clock::now().since(asked) >= answer {
                answer = (answer * 2).min(ANSWER);
            }
            if Clock::now() >= deadline {
                bail!("nobody leads the coordinator's group after {patience:?}");
            }
            sleep(PAUSE);
        }
    }

    /// Waits until one of them leads, and all others follow it in one view.
    pub(crate) fn wait_until_all_follow(&self, patience: Duration) -> anyhow::Result<()> {
        let deadline = Clock::now().after(patience);
        while !self.all_follow() {
            if Clock::now() >= deadline {
                bail!("not all members of the coordinator's group follow one of them after {patience:?}");
            }
            sleep(PAUSE);
        }
        Ok(())
    }

    fn all_follow(&self) -> bool {
        let (mut leaders, mut views) = (0, Vec::new());
        for &(_, address) in &self.members {
            match ask(address) {
                Ok(ToClient::ConfigurationIs(_)) => leaders += 1,
                Ok(ToClient::NotLeader(NotLeader { view, leader: Some(_), .. })) => views.push(view),
                Ok(_) | Err(_) => return false,
            }
        }
        leaders == 1 && views.iter().all(|view| *view == views[0])
    }

    /// The greatest view that any member tells of: it grows by one with each election, or more.
    pub(crate) fn view(&self) -> anyhow::Result<ViewNumber> {
        let told = self.members.iter().filter_map(|&(_, address)| match ask(address) {
            Ok(ToClient::NotLeader(told)) => Some(told.view),
            Ok(_) | Err(_) => None,
        });
        told.max().context("no member of the coordinator's group follows another one")
    }
}

fn ask(address: SocketAddr) -> anyhow::Result<ToClient> {
    ask_within(address, ANSWER)
}

fn ask_within(address: SocketAddr, patience: Duration) -> anyhow::Result<ToClient> {
    Probe::connect_within(address, patience)?.configuration()
}
