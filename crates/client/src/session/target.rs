//! Whom an attempt is sent to.

use kasha_types::{CoreId, Epoch, ListVersion, ShardId};

use super::call::Witnesses;

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
