//! A cluster whose coordinator's members have nothing to do with its shard.
//!
//! Six nodes and one shard, f = 1: the primary, the backup and the witness are the first three nodes (the first placement goes
//! by number), and the members are in the processes of the others. So the process of any member may be killed, and
//! started again, and the shard has no part in it.

use anyhow::{Context, ensure};
use kasha_client::session::Session;
use kasha_runtime::EventLoop;
use kasha_types::{NodeId, TableId};

use crate::client::{Connect, create_table};
use crate::group::Group;
use crate::harness::{Arm, Clients, Run};
use crate::{ClusterSpec, limits};

const NODES: u16 = 6;
const FAULTS: u8 = 1;
/// The first one begins the cluster, and leads at first.
const MEMBERS: [NodeId; 3] = [NodeId(4), NodeId(5), NodeId(6)];
/// Clients that update without a pause.
pub(super) const CLIENTS: usize = 16;

/// The cluster, the crowd of its clients, and one client more, which puts values that end.
pub(super) struct Apart {
    pub(super) client: EventLoop<Session>,
    pub(super) table: TableId,
    pub(super) arm: Arm,
}

impl Apart {
    pub(super) fn start(run: &Run<'_>) -> anyhow::Result<Self> {
        run.say("starting");
        let spec = ClusterSpec { nodes: NODES, members: MEMBERS.into(), ..run.spec("apart", FAULTS) };
        let arm = Arm::start("members apart from the shard", spec, Clients::new(CLIENTS, true))?;
        let mut client = Connect::new("lifetimes", arm.children.seeds()).open()?;
        let table = create_table(&mut client, "lifetimes")?;
        let apart = Self { client, table, arm };
        apart.group().wait_until_all_follow(limits::START)?;
        Ok(apart)
    }

    pub(super) fn group(&self) -> Group {
        Group::of(&self.arm.children)
    }

    /// The node of the leader, whose process may be killed: no shard has a part there.
    pub(super) fn leader(&self) -> anyhow::Result<NodeId> {
        let leader = self.group().leader().context("nobody leads the coordinator's group")?;
        let is_part =
            |node: NodeId| {
                self.arm.configuration.shards.iter().any(|shard| {
                    shard.members.iter().any(|member| member.node == node) || shard.witnesses.contains(&node)
                })
            };
        ensure!(!is_part(leader), "a shard has a part at {leader}, which leads the coordinator's group");
        Ok(leader)
    }

    /// Starts killed processes again, and waits until the cluster is whole and all members follow one.
    pub(super) fn heal(&mut self) -> anyhow::Result<()> {
        self.arm.heal()?;
        self.group().wait_until_all_follow(limits::REPAIR)
    }
}
