//! Reasons for closing a connection, as text for the person who reads the other server's log: what happened, why, and
//! what to do. Each text has the code of its page in `docs/errors`.

use kasha_types::limits::{CORES_MAX, NODES_MAX};
use kasha_types::{Incarnation, NodeId};
use kasha_wire::{DecodeError, Level, Levels};

use crate::ledger::{Basis, Ledger};
use crate::memory::Loss;

/// The reason why the coordinator closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goodbye {
    /// The frame's kind is not that of a message.
    Kind(u8),
    /// The payload does not decode to a message for a coordinator.
    Payload(DecodeError),
    /// A heartbeat that contradicts itself.
    Heartbeat(NodeId),
    /// Another data folder has this node id.
    IdTaken(NodeId),
    /// A later process of the same node has been seen.
    Outdated(NodeId, Incarnation),
    /// A later start of a member's folder is committed.
    LaterStart(NodeId, Incarnation),
    /// Another process under the number of one that has been seen: its folder is an older copy.
    OlderCopy(NodeId),
    /// Two cores of one process disagree on the addresses.
    Addresses(NodeId),
    /// The cluster has as many nodes as it can have.
    TooManyNodes(NodeId),
    /// The coordinator has as many clients as it can have.
    TooManyClients,
    /// The process cannot work at the cluster's level (R7.6).
    Level(Levels, Level),
    /// A node's folder knows more than the coordinator's: it decides nothing (R9.13).
    MemoryLost(Loss),
}

impl Goodbye {
    /// What it follows from.
    pub(crate) fn basis(self, ledger: &Ledger) -> Basis {
        match self {
            // A level, or a start, is told when it is committed, and never falls.
            Self::Kind(_) | Self::Payload(_) | Self::Heartbeat(_) | Self::Level(..) | Self::LaterStart(..) => {
                Basis::NO_COMMAND
            }
            Self::IdTaken(_)
            | Self::Outdated(..)
            | Self::OlderCopy(_)
            | Self::Addresses(_)
            | Self::TooManyNodes(_)
            | Self::TooManyClients
            | Self::MemoryLost(_) => ledger.all_decided(),
        }
    }

    pub(crate) fn reason(self) -> String {
        match self {
            Self::Kind(kind) => {
                format!("a frame of kind {kind} is nothing for the coordinator: connect to a node (K0204)")
            }
            Self::Payload(DecodeError::OtherLink(name)) => {
                format!("a {name} message is nothing for the coordinator: connect to a node (K0204)")
            }
            Self::Payload(error) => {
                format!("a message that cannot be read ({error}): run the same version on both sides (K0206)")
            }
            Self::Heartbeat(node) => format!(
                "a heartbeat of {node} contradicts itself: number nodes from 1 and give each 1 to {CORES_MAX} cores \
                 (K0501)"
            ),
            Self::IdTaken(node) => format!(
                "node id {} is already used by another server: start this server with a node id that is free, or with \
                 the data folder that {node} was created with (K0502)",
                node.0
            ),
            Self::Outdated(node, newer) | Self::LaterStart(node, newer) => {
                format!(
                    "a newer process of {node} ({newer}) has taken over, so this one is out of date: stop it (K0503)"
                )
            }
            Self::OlderCopy(node) => format!(
                "the folder of {node} is an older copy: a process has been seen that counts as the same start of it, and knew \
                 more; what was promised since is not in it. Start {node} with its own folder, or a new node with an empty \
                 one (K0507)"
            ),
            Self::Addresses(node) => format!(
                "two cores of one process of {node} disagree on its addresses: restart it so that it registers anew (K0501)"
            ),
            Self::TooManyNodes(node) => {
                format!(
                    "{node} cannot join, since a cluster has at most {NODES_MAX} nodes: start it as one of these, with \
                     that one's data folder (K0504)"
                )
            }
            Self::TooManyClients => {
                "the cluster has as many client sessions as it can keep: close some, or wait for leases to end (K0505)"
                    .into()
            }
            Self::Level(levels, level) => format!(
                "this process can work at {levels}, and the cluster is at {level}: run a release of Kasha that can work at {level} (K0511)"
            ),
            Self::MemoryLost(loss) => format!(
                "this coordinator has lost its memory: {loss}. Its folder was lost, or is an older copy. So that no data is lost, it \
                 decides nothing: its own log says what to do (K0508)"
            ),
        }
    }
}
