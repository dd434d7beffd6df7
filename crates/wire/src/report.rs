//! What a core tells the coordinator with its heartbeats.

use kasha_types::{Epoch, ListVersion, NodeId, ShardId};

use crate::{DecodeError, Reader, Wire};

/// One thing a core wants the coordinator to commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// Steps 1–4 of a fail-over are done and synced: serve under a fresh witness list (step 5).
    Recovered {
        /// The shard that was recovered.
        shard: ShardId,
        /// The term whose primary reports.
        epoch: Epoch,
    },
    /// A joiner's copy is complete (R7.2).
    Copied {
        /// The shard of the copy.
        shard: ShardId,
        /// The term whose primary reports.
        epoch: Epoch,
        /// The joiner whose copy is complete.
        node: NodeId,
    },
    /// The list is refused, every answer gated, and everything synced (R6.2).
    ListClosed {
        /// The shard of the list.
        shard: ShardId,
        /// The term whose primary reports.
        epoch: Epoch,
        /// The list that is closed.
        list: ListVersion,
    },
    /// A member or witness has answered the primary nothing for its patience: the shard needs another one.
    Unanswered {
        /// The shard that needs another member or witness.
        shard: ShardId,
        /// The term whose primary reports.
        epoch: Epoch,
        /// The node that does not answer.
        node: NodeId,
    },
    /// The recovery has waited for long for a log or a witness that it cannot reach: another may.
    Stuck {
        /// The shard that is recovering.
        shard: ShardId,
        /// The term whose primary reports.
        epoch: Epoch,
    },
    /// The primary's process is asked to stop. The list is refused, every answer of the rest of the term is gated, and
    /// everything is synced: the list can be emptied, so that no recovery needs its witnesses (R7.7).
    Stopping {
        /// The shard of the list.
        shard: ShardId,
        /// The term whose primary reports.
        epoch: Epoch,
        /// The list that can be emptied.
        list: ListVersion,
    },
    /// The recovery has no whole log, and waits for a witness (R7.7).
    NeedsWitness {
        /// The shard that is recovering.
        shard: ShardId,
        /// The term whose primary reports.
        epoch: Epoch,
        /// Members that have not said in this term that their logs are not whole: one of them may need no witness.
        unheard_members: Vec<NodeId>,
        /// Witnesses that have not said in this term that they lost something.
        unheard_witnesses: Vec<NodeId>,
    },
    /// No log can be taken before these members have said what they hold (R5.5, R7.7).
    NeedsMembers {
        /// The shard that is recovering.
        shard: ShardId,
        /// The term whose primary reports.
        epoch: Epoch,
        /// Members that have said nothing in this term.
        unheard: Vec<NodeId>,
        /// Another member has said that it holds a complete copy, so that there is something to go on with.
        has_copy: bool,
    },
    /// This process is named primary of an epoch that its replica promised before, or of an older one. It must not begin that
    /// epoch ([0005](../../../docs/decisions/0005-an-epoch-is-begun-once.md)): whoever named it knows less than its file does.
    PromisedBefore {
        /// The shard of the replica.
        shard: ShardId,
        /// The epoch whose primary this process was named.
        epoch: Epoch,
        /// The newest epoch that the replica has promised.
        promised: Epoch,
    },
    /// A witness reports that its own instance of this list is damaged or gone: a recovery would wait in vain.
    WitnessLost {
        /// The shard of the list.
        shard: ShardId,
        /// The list whose instance is lost.
        list: ListVersion,
    },
}

impl Wire for Report {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Recovered { shard, epoch } => {
                out.push(0);
                shard.put(out);
                epoch.put(out);
            }
            Self::Copied { shard, epoch, node } => {
                out.push(1);
                shard.put(out);
                epoch.put(out);
                node.put(out);
            }
            Self::ListClosed { shard, epoch, list } => {
                out.push(2);
                shard.put(out);
                epoch.put(out);
                list.put(out);
            }
            Self::Unanswered { shard, epoch, node } => {
                out.push(3);
                shard.put(out);
                epoch.put(out);
                node.put(out);
            }
            Self::Stuck { shard, epoch } => {
                out.push(4);
                shard.put(out);
                epoch.put(out);
            }
            Self::WitnessLost { shard, list } => {
                out.push(5);
                shard.put(out);
                list.put(out);
            }
            Self::Stopping { shard, epoch, list } => {
                out.push(6);
                shard.put(out);
                epoch.put(out);
                list.put(out);
            }
            Self::NeedsWitness { shard, epoch, unheard_members, unheard_witnesses } => {
                out.push(7);
                shard.put(out);
                epoch.put(out);
                unheard_members.put(out);
                unheard_witnesses.put(out);
            }
            Self::NeedsMembers { shard, epoch, unheard, has_copy } => {
                out.push(8);
                shard.put(out);
                epoch.put(out);
                unheard.put(out);
                has_copy.put(out);
            }
            Self::PromisedBefore { shard, epoch, promised } => {
                out.push(9);
                shard.put(out);
                epoch.put(out);
                promised.put(out);
            }
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match from.take::<u8>()? {
            0 => Self::Recovered { shard: from.take()?, epoch: from.take()? },
            1 => Self::Copied { shard: from.take()?, epoch: from.take()?, node: from.take()? },
            2 => Self::ListClosed { shard: from.take()?, epoch: from.take()?, list: from.take()? },
            3 => Self::Unanswered { shard: from.take()?, epoch: from.take()?, node: from.take()? },
            4 => Self::Stuck { shard: from.take()?, epoch: from.take()? },
            5 => Self::WitnessLost { shard: from.take()?, list: from.take()? },
            6 => Self::Stopping { shard: from.take()?, epoch: from.take()?, list: from.take()? },
            7 => Self::NeedsWitness {
                shard: from.take()?,
                epoch: from.take()?,
                unheard_members: from.take()?,
                unheard_witnesses: from.take()?,
            },
            8 => Self::NeedsMembers {
                shard: from.take()?,
                epoch: from.take()?,
                unheard: from.take()?,
                has_copy: from.take()?,
            },
            9 => Self::PromisedBefore { shard: from.take()?, epoch: from.take()?, promised: from.take()? },
            _ => return Err(DecodeError::Invalid("a report")),
        })
    }
}
