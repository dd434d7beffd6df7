//! The parts of a state: two files of pages, as the disk and as the page cache has them, the member's memory, and what
//! a load may find.

use arrayvec::ArrayVec;

/// Number of files. They take turns.
pub const FILES: usize = 2;
/// Number of records that a file has room for.
pub const SLOTS: usize = 3;
/// Number of pages of a record.
pub const PAGES: usize = 2;
/// The greatest number of records that are ever written.
pub const RECORDS_MAX: usize = 14;
/// The greatest number of operations in a log, also in one that a load reads wrongly.
pub const LOG_MAX: usize = 8;

/// A record, from 0, in the order in which records were written.
pub type RecordIx = u8;

/// What a member has: what its file must say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Content {
    /// The view that it has entered.
    pub view: u8,
    /// The view whose log it has.
    pub log_view: u8,
    /// The operations of the log. Each has a number of its own.
    pub log: ArrayVec<u8, LOG_MAX>,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A file begins, with all that the member has.
    Snapshot(Content),
    /// An operation.
    Operation(u8),
    /// A view is entered.
    View(u8),
    /// The log of another view, which begins with so many operations of the log before. Only if a cut begins no file.
    Cut {
        /// The view that is entered.
        view: u8,
        /// The view whose log it is.
        log_view: u8,
        /// The operations that stay.
        kept: u8,
    },
}

/// A record. Its checksum continues that of the record before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// The record before it in its file; the first has none.
    pub after: Option<RecordIx>,
    /// The number of its file, which only grows.
    pub generation: u8,
    /// What it says.
    pub kind: Kind,
}

/// A page of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Page {
    /// Zeros.
    #[default]
    Zero,
    /// A part of this record.
    Part(RecordIx),
    /// It cannot be read any more.
    Rotten,
}

/// Both files, each with slots for records.
pub type Files = [[[Page; PAGES]; SLOTS]; FILES];

/// The memory of the member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Memory {
    /// All that it has.
    pub content: Content,
    /// The file that it writes.
    pub file: u8,
    /// The slot of the next record.
    pub next: u8,
    /// The last record.
    pub last: RecordIx,
    /// The number of the file.
    pub generation: u8,
}

/// What may still happen: the budgets of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Left {
    /// Operations.
    pub operations: u8,
    /// Views that are entered.
    pub views: u8,
    /// Logs of new views.
    pub cuts: u8,
    /// Kills of the process, also in a write.
    pub kills: u8,
    /// Losses of power.
    pub power_losses: u8,
    /// Pages that cannot be read any more.
    pub rot: u8,
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// What was written, by number.
    pub records: ArrayVec<Record, RECORDS_MAX>,
    /// The files on the disk.
    pub disk: Files,
    /// The files in the page cache.
    pub cache: Files,
    /// The log view in a place of its own. Only without R9.5.
    pub log_view_alone: u8,
    /// The memory of the member. `None`: it found its files damaged, and does nothing until it is repaired.
    pub memory: Option<Memory>,
    /// What the member had since its last acknowledgement. A load must find one of these.
    pub may_have: ArrayVec<Content, RECORDS_MAX>,
    /// A page is rotten.
    pub is_rotten: bool,
    /// A load found something else.
    pub wrong: bool,
    /// The budgets that are left.
    pub left: Left,
}

impl State {
    /// The memory of the member, which runs.
    pub fn memory_mut(&mut self) -> &mut Memory {
        self.memory.as_mut().expect("it runs")
    }

    /// Whether the page cache has something that the disk has not.
    pub fn is_dirty(&self) -> bool {
        self.disk != self.cache
    }

    /// What the member has changes. A load may find what it had before, too, until that is on the disk.
    pub fn note(&mut self) {
        let content = self.memory_mut().content.clone();
        if !self.may_have.contains(&content) {
            self.may_have.push(content);
        }
    }
}
