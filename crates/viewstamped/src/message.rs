//! What members say to each other. Each message may be lost, doubled or late.

use crate::log::{Entry, Piece};
use crate::{MemberId, OpNumber, RoundNumber, View};

/// A question for a piece of what a member remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceAt {
    /// The key of the piece.
    pub behind: u64,
    /// All questions from the first piece to the last one have it, and no others of any process: an answer to who asked before teaches nothing.
    pub nonce: u64,
}

/// A message to another member. Who sent it, the transport says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The sender would lead this view. Nobody has promised anything.
    Wish {
        /// The view.
        view: View,
        /// The members that the sender hears: nobody supports a member that sends and does not hear (R9.8).
        heard: Vec<MemberId>,
    },
    /// The sender would follow into this view.
    Support {
        /// The view.
        view: View,
    },
    /// A quorum would follow: enter this view.
    Enter {
        /// The view, which the sender leads.
        view: View,
    },
    /// The sender has entered a view, has that on its disk, and takes nothing of earlier views any more.
    Vote {
        /// The view that it has entered.
        view: View,
        /// In which view its log was that of the leader.
        log_view: View,
        /// The end of its log.
        end: OpNumber,
        /// What it knows to be committed.
        committed: OpNumber,
        /// What it remembers of rounds ([`crate::Memory::recall`]).
        memory: Vec<u8>,
    },
    /// The sender knows of a later view.
    Newer {
        /// The view that it has entered.
        view: View,
    },
    /// The sender wants the log behind an operation that it has committed.
    GetLog {
        /// The view in which it asks.
        view: View,
        /// The operation.
        behind: OpNumber,
    },
    /// A part of a log. From the leader of a view it is that view's log.
    Log {
        /// The view in which it is said.
        view: View,
        /// The view of the log.
        log_view: View,
        /// The log, from the base that was asked for to its end.
        piece: Piece,
        /// What the sender knows to be committed.
        committed: OpNumber,
    },
    /// Operations of the leader.
    Prepare {
        /// The leader's view.
        view: View,
        /// The operation before the first of them.
        behind: OpNumber,
        /// The operations.
        entries: Vec<Entry>,
        /// What the leader knows to be committed.
        committed: OpNumber,
    },
    /// The sender has the log of this view up to here on its disk.
    Prepared {
        /// The leader's view.
        view: View,
        /// The last operation.
        end: OpNumber,
    },
    /// The leader asks whether it still leads, and tells what all are to remember.
    Round {
        /// The leader's view.
        view: View,
        /// The round.
        round: RoundNumber,
        /// What all are to remember ([`crate::Memory::ask`]).
        value: Vec<u8>,
        /// What the leader knows to be committed.
        committed: OpNumber,
        /// The digest of the state at an operation that a quorum agrees about (R9.11).
        agreed: Option<(OpNumber, u64)>,
    },
    /// The sender had entered no later view when the round came. Nothing is on its disk for that.
    RoundOk {
        /// The leader's view.
        view: View,
        /// The round.
        round: RoundNumber,
        /// The end of its log of this view; `None`: it lacks that log.
        end: Option<OpNumber>,
        /// The digest of its state at the operation that the round names as committed, if it has just that.
        digest: Option<(OpNumber, u64)>,
    },
    /// The sender wants what the receiver remembers ([`crate::Memory::piece`]): a leader that begins, or a member that lacks it.
    GetMemory {
        /// The view in which it asks.
        view: View,
        /// What it asks for.
        at: PieceAt,
    },
    /// A piece of what the sender remembers.
    Memory {
        /// The view in which it is said.
        view: View,
        /// What was asked for.
        at: PieceAt,
        /// The piece.
        piece: Vec<u8>,
        /// The key of the next piece; `None`: this is the last one.
        next: Option<u64>,
    },
    /// The leader of this view asks the receiver to lead the next one.
    Lead {
        /// The leader's view.
        view: View,
    },
}

impl Message {
    /// The view that it is about.
    #[must_use]
    pub fn view(&self) -> View {
        match self {
            Self::Wish { view, .. }
            | Self::Support { view }
            | Self::Enter { view }
            | Self::Vote { view, .. }
            | Self::Newer { view }
            | Self::GetLog { view, .. }
            | Self::Log { view, .. }
            | Self::Prepare { view, .. }
            | Self::Prepared { view, .. }
            | Self::Round { view, .. }
            | Self::RoundOk { view, .. }
            | Self::GetMemory { view, .. }
            | Self::Memory { view, .. }
            | Self::Lead { view } => *view,
        }
    }
}
