//! The log in memory: a state at its base, and the entries behind it.

use std::collections::VecDeque;

use crate::{Lists, OpNumber};

/// One place of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// An operation of the state.
    Operation(Vec<u8>),
    /// A leader begins. Members change only after one of the own view is committed (R9.6).
    Begin,
    /// The list of members from here on.
    Lists(Lists),
}

impl Entry {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Operation(bytes) => bytes.len() + 16,
            Self::Begin => 16,
            Self::Lists(lists) => 16 + lists.members.len() * 8,
        }
    }
}

/// Where a part of a log begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// Behind this operation, which whoever gets the part has committed.
    Behind(OpNumber),
    /// With a snapshot.
    Snapshot(Snapshot),
}

/// What is committed up to an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The last operation in it.
    pub op: OpNumber,
    /// The members at that operation.
    pub lists: Lists,
    /// The state.
    pub state: Vec<u8>,
}

/// A part of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it begins.
    pub base: Base,
    /// What stands behind that.
    pub entries: Vec<Entry>,
}

impl Piece {
    /// The last operation before the entries.
    #[must_use]
    pub fn base_op(&self) -> OpNumber {
        match &self.base {
            Base::Behind(op) => *op,
            Base::Snapshot(snapshot) => snapshot.op,
        }
    }

    /// The last operation.
    #[must_use]
    pub fn end(&self) -> OpNumber {
        OpNumber(self.base_op().0.saturating_add(self.entries.len() as u64))
    }
}

/// The entries behind a base.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Log {
    base: OpNumber,
    lists_at_base: Lists,
    entries: VecDeque<Entry>,
}

impl Log {
    pub fn new(base: OpNumber, lists_at_base: Lists, entries: impl IntoIterator<Item = Entry>) -> Self {
        Self { base, lists_at_base, entries: entries.into_iter().collect() }
    }

    pub fn base(&self) -> OpNumber {
        self.base
    }

    pub fn end(&self) -> OpNumber {
        OpNumber(self.base.0.saturating_add(self.entries.len() as u64))
    }

    pub fn push(&mut self, entry: Entry) -> OpNumber {
        self.entries.push_back(entry);
        self.end()
    }

    pub fn get(&self, op: OpNumber) -> Option<&Entry> {
        self.entries.get(usize::try_from(op.0.checked_sub(self.base.0 + 1)?).ok()?)
    }

    /// The list that is in force at the end. `committed`: what is known to be committed.
    pub fn lists(&self, committed: OpNumber) -> Lists {
        self.lists_at(self.end(), committed)
    }

    /// The list that is in force at an operation.
    pub fn lists_at(&self, op: OpNumber, committed: OpNumber) -> Lists {
        let upto = usize::try_from(op.0.saturating_sub(self.base.0)).expect("in memory");
        let newest = self.entries.iter().take(upto).enumerate().rev().find_map(|(index, entry)| match entry {
            Entry::Lists(lists) => Some((OpNumber(self.base.0 + 1 + index as u64), lists)),
            Entry::Operation(_) | Entry::Begin => None,
        });
        match newest {
            Some((at, lists)) => {
                let mut lists = lists.clone();
                if at <= committed {
                    lists.settle();
                }
                lists
            }
            None => self.lists_at_base.clone(),
        }
    }

    /// The place of the newest list, if it stands behind the base.
    pub fn changed_at(&self) -> Option<OpNumber> {
        let newest = self.entries.iter().rposition(|entry| matches!(entry, Entry::Lists(_)))?;
        Some(OpNumber(self.base.0 + 1 + newest as u64))
    }

    /// The entries behind `after`, as many as one message takes.
    pub fn behind(&self, after: OpNumber, bytes_max: usize) -> Option<Vec<Entry>> {
        let skip = usize::try_from(after.0.checked_sub(self.base.0)?).ok()?;
        let mut bytes = 0;
        let fits = |entry: &&Entry| {
            let is_first = bytes == 0;
            bytes += entry.bytes();
            is_first || bytes <= bytes_max
        };
        Some(self.entries.iter().skip(skip).take_while(fits).cloned().collect())
    }

    /// This log up to where the piece begins, and the piece. `None`: there is a gap between them.
    pub fn with(&self, piece: &Piece) -> Option<Self> {
        match &piece.base {
            Base::Snapshot(snapshot) => {
                Some(Self::new(snapshot.op, snapshot.lists.clone(), piece.entries.iter().cloned()))
            }
            Base::Behind(op) => {
                let keep = usize::try_from(op.0.checked_sub(self.base.0)?).ok()?;
                let kept = self.entries.iter().take(keep);
                (keep <= self.entries.len()).then(|| {
                    let entries = kept.chain(&piece.entries).cloned();
                    Self::new(self.base, self.lists_at_base.clone(), entries)
                })
            }
        }
    }

    /// Forgets entries up to here.
    pub fn trim(&mut self, to: OpNumber) {
        self.lists_at_base = self.lists_at(to, to);
        while self.base < to && self.entries.pop_front().is_some() {
            self.base = self.base.next();
        }
    }

    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }
}
