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
                // What comes late may begin before our base: all up to there is committed, and the same everywhere.
                let known = usize::try_from(self.base.0.saturating_sub(op.0)).ok()?;
                let keep = usize::try_from(op.0.saturating_sub(self.base.0)).ok()?;
                let kept = self.entries.iter().take(keep);
                (keep <= self.entries.len() && known <= piece.entries.len()).then(|| {
                    let entries = kept.chain(piece.entries.iter().skip(known)).cloned();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by seed 1407 of the faults: the member that got such a piece took itself for one that differs from the others.
    #[test]
    fn r9_5_a_piece_that_comes_late_may_begin_before_the_base() {
        let entry = |op: u64| Entry::Operation(vec![u8::try_from(op).expect("small")]);
        let mut log = Log::new(OpNumber(0), Lists::default(), (1..=7).map(entry));
        log.trim(OpNumber(5));
        let piece = |behind, end: u64| Piece {
            base: Base::Behind(OpNumber(behind)),
            entries: (behind + 1..=end).map(entry).collect(),
        };
        for behind in 0..=7 {
            let merged = log.with(&piece(behind, 11)).expect("it follows");
            assert_eq!((merged.base(), merged.end()), (OpNumber(5), OpNumber(11)));
            assert!(merged.entries().cloned().eq((6..=11).map(entry)));
        }
        assert_eq!(log.with(&piece(3, 4)), None, "all of it is committed");
        assert_eq!(log.with(&piece(8, 9)), None, "a gap");
    }
}
