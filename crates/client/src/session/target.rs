//! Whom an attempt is sent to.

use kasha_types::limits::FAULTS_MAX;
use kasha_types::{CoreId, Epoch, ListVersion, NodeId, ShardId};

/// The receivers of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) shard: ShardId,
    pub(super) epoch: Epoch,
    pub(super) primary: CoreId,
    pub(super) list: ListVersion,
    pub(super) witnesses: Witnesses,
}

/// The reason why an attempt cannot be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoTarget {
    NoConfiguration,
    UnknownTable,
    CrossShard,
    NotServing,
}

/// The witnesses of an attempt, in the order of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Witnesses {
    nodes: [NodeId; FAULTS_MAX as usize],
    count: u8,
}

impl Witnesses {
    pub(super) fn new(list: &[NodeId]) -> Self {
        let mut nodes = [NodeId(0); FAULTS_MAX as usize];
        nodes[..list.len()].copy_from_slice(list);
        Self { nodes, count: u8::try_from(list.len()).expect("at most f") }
    }

    pub(super) fn count(&self) -> u8 {
        self.count
    }

    pub(super) fn nodes(&self) -> &[NodeId] {
        &self.nodes[..usize::from(self.count)]
    }

    pub(super) fn number_of(&self, node: NodeId) -> Option<u8> {
        self.nodes().iter().position(|&n| n == node).and_then(|n| u8::try_from(n).ok())
    }
}
