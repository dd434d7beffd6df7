//! A node has promised an epoch that this coordinator has not given out, or has given to somebody else (decision 0052).
//!
//! Epochs of a shard are promised only after a coordinator has committed them (0005, F2). So a process that is named primary of
//! an epoch, and has promised that epoch or a later one, proves that this coordinator's folder lacks what an earlier one
//! has committed: it is an older copy, or another one. A later epoch would not help: the members and lists that are
//! missing, too, decide which log is the greatest. So the shard is led no further: nobody is promoted and nothing is
//! given up, and the operator is told which folder to restore (K0430).
//!
//! That is kept in memory only. A coordinator that starts again is told again.

use kasha_types::{Epoch, NodeId};

/// What a node has promised that this coordinator knows nothing of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overtaken {
    /// The node.
    pub node: NodeId,
    /// The epoch whose primary the node was named.
    pub epoch: Epoch,
    /// The newest epoch that the node has promised.
    pub promised: Epoch,
}

impl std::fmt::Display for Overtaken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { node, epoch, promised } = self;
        write!(
            f,
            "{node} was named primary of {epoch}, but has promised {promised} before: the coordinator's folder is older than \
             what the nodes hold, or another one; this shard is led no further, and nothing is lost: stop the coordinator, and \
             start it with its newest folder (K0430)"
        )
    }
}
