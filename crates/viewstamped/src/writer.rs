//! The records of a member on the way to its files: in order, and one fsync at a time.
//!
//! While an fsync is under way, records wait. Those that append to the log become one record, and share one fsync; and a whole log takes
//! the place of all before it. So few wait, however long the disk stands still. A record says that everything before it was fsynced. So it is not written before that is true: else
//! what a loss of power has taken would pass for damage (R9.5).

use std::collections::VecDeque;

use crate::journal::{Journal, Step};
use crate::output::Record;
use crate::{MemberId, WriteNumber};

/// Writes what a [`crate::Replica`] wants written.
#[derive(Debug)]
pub struct Writer {
    journal: Journal,
    waiting: VecDeque<(WriteNumber, Record)>,
    /// What is left to do for the record that is being written.
    steps: VecDeque<Step>,
    /// The last write that this record holds.
    writing: Option<WriteNumber>,
    is_syncing: bool,
}

impl Writer {
    /// Goes on where [`crate::journal::read`] has ended.
    #[must_use]
    pub fn new(journal: Journal) -> Self {
        Self { journal, waiting: VecDeque::new(), steps: VecDeque::new(), writing: None, is_syncing: false }
    }

    /// Whose files these are.
    #[must_use]
    pub fn member(&self) -> MemberId {
        self.journal.member()
    }

    /// Files in which nothing was ever written become those of this member.
    pub fn become_member(&mut self, member: MemberId) {
        self.journal.become_member(member);
    }

    /// A record is to be written ([`crate::Output::Write`]).
    pub fn push(&mut self, number: WriteNumber, record: Record) {
        if let Record::Whole(_) = record {
            self.waiting.clear();
        }
        match (self.waiting.back_mut(), record) {
            (Some((last, Record::Appended { entries, .. })), Record::Appended { entries: more, .. }) => {
                *last = number;
                entries.extend(more);
            }
            (Some(_) | None, record) => self.waiting.push_back((number, record)),
        }
    }

    /// What stands beside the next record ([`Journal::set_note`]).
    pub fn set_note(&mut self, note: Vec<u8>) {
        self.journal.set_note(note);
    }

    /// What stood beside the last record that was read.
    #[must_use]
    pub fn note(&self) -> &[u8] {
        self.journal.note()
    }

    /// What is to be done next: writes, and one fsync behind them. Empty: there is nothing to do, or an fsync is under way.
    pub fn next_steps(&mut self) -> Vec<Step> {
        if self.is_syncing {
            return Vec::new();
        }
        if self.steps.is_empty() {
            if let Some((number, record)) = self.waiting.pop_front() {
                self.writing = Some(number);
                self.steps = self.journal.write(&record).into();
            } else if let Some(steps) = self.journal.tidy() {
                self.steps = steps.into();
            }
        }
        let fsync = self.steps.iter().position(|step| matches!(step, Step::Sync));
        self.is_syncing = fsync.is_some();
        fsync.map_or(Vec::new(), |fsync| self.steps.drain(..=fsync).collect())
    }

    /// The fsync is done. Returns the last write that is durable by that, if a record is ([`crate::Replica::on_durable`]).
    ///
    /// # Panics
    /// If none was under way.
    pub fn on_synced(&mut self) -> Option<WriteNumber> {
        assert!(std::mem::take(&mut self.is_syncing), "no fsync was under way");
        self.writing.take_if(|_| self.steps.is_empty())
    }

    /// Whether the log should be written anew ([`crate::Replica::write_anew`]).
    #[must_use]
    pub fn is_full(&self) -> bool {
        // A whole log is the first of those that wait.
        let begins_anew = matches!(self.waiting.front(), Some((_, Record::Whole(_))));
        self.journal.is_full() && !begins_anew
    }

    /// Records that wait for an fsync.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}
