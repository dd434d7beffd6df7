//! What a member wants done.

use std::collections::BTreeSet;

use kasha_types::Tick;

use crate::log::{Entry, Snapshot};
use crate::message::Message;
use crate::{MemberId, OpNumber, View, WriteNumber};

/// What a member wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send this. Whatever it follows from is on disk.
    Send {
        /// To whom.
        to: MemberId,
        /// What.
        message: Message,
    },
    /// Write this, and say when it is on the platter ([`crate::Replica::on_durable`]). Writes keep their order.
    Write {
        /// The number of the write.
        number: WriteNumber,
        /// What is written.
        record: Record,
    },
    /// This member leads from now on: it holds the quorum of its view change (R9.3).
    Leads {
        /// Its view.
        view: View,
        /// Since when.
        since: Tick,
        /// What the quorum remembers ([`crate::Memory::recall`]).
        memories: Vec<(MemberId, Vec<u8>)>,
    },
    /// This member leads no more. What waits for a round or for an operation of its view is dropped (R9.1).
    Deposed {
        /// The view that it led.
        view: View,
    },
    /// This member's state is not the one that a quorum has, or it cannot apply what the leader says: it takes no part any more (R9.11).
    Stops(Trouble),
}

/// Why a member takes no part any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Its state differs from that of a quorum.
    Differs(OpNumber),
    /// An operation is not permitted here.
    Refused(OpNumber, String),
    /// A snapshot cannot be read here.
    Unreadable(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Differs(op) => write!(f, "its state at {op} is not that of the others"),
            Self::Refused(op, why) => write!(f, "it cannot apply {op}, which the others have: {why}"),
            Self::Unreadable(why) => write!(f, "it cannot read the state of the others: {why}"),
        }
    }
}

/// What is written to the disk of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A view is entered.
    Entered(View),
    /// Entries of the log.
    Appended {
        /// The operation before the first of them.
        behind: OpNumber,
        /// The entries.
        entries: Vec<Entry>,
    },
    /// Everything up to here is committed. Nobody waits for this record.
    Committed(OpNumber),
    /// All of it anew: what stood on the disk before may go when this is durable.
    Whole(Stored),
}

/// What the disk of a member holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The last view that it has entered.
    pub view: View,
    /// The view whose leader had its log.
    pub log_view: View,
    /// The state at the base of the log. Only what is committed is in it (R9.5).
    pub snapshot: Snapshot,
    /// The log behind that.
    pub entries: Vec<Entry>,
    /// What is known to be committed.
    pub committed: OpNumber,
}

impl Stored {
    /// The members of the newest list, whether or not it is committed.
    #[must_use]
    pub fn newest_members(&self) -> &BTreeSet<MemberId> {
        let lists = self.entries.iter().rev().find_map(|entry| match entry {
            Entry::Lists(lists) => Some(lists),
            Entry::Begin | Entry::Operation(_) => None,
        });
        &lists.unwrap_or(&self.snapshot.lists).members
    }

    /// The disk of a first member of a group that begins, or of a newcomer, which knows of no member.
    #[must_use]
    pub fn new(lists: crate::Lists, state: Vec<u8>) -> Self {
        let op = OpNumber(0);
        Self {
            view: View::NONE,
            log_view: View::NONE,
            snapshot: Snapshot { op, lists, state },
            entries: Vec::new(),
            committed: op,
        }
    }

    /// The same disk after a record.
    ///
    /// # Errors
    /// If the record cannot stand there.
    pub fn after(mut self, record: Record) -> Result<Self, &'static str> {
        match record {
            Record::Entered(view) if view < self.view => return Err("a view before the last one"),
            Record::Entered(view) => self.view = view,
            Record::Appended { behind, .. } if behind != self.end() => return Err("entries that do not follow"),
            Record::Appended { entries, .. } => self.entries.extend(entries),
            Record::Committed(op) if op > self.end() => return Err("more is committed than there is"),
            Record::Committed(op) => self.committed = self.committed.max(op),
            Record::Whole(stored) => self = stored,
        }
        Ok(self)
    }

    /// The last operation. Numbers are as they were read, and may be impossible.
    fn end(&self) -> OpNumber {
        OpNumber(self.snapshot.op.0.saturating_add(self.entries.len() as u64))
    }
}
