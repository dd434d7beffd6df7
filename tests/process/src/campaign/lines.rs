//! The history of transactions, in the format that `tests/cycles` reads (one line of JSON for each).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use super::book::{Book, Ended};

/// One step of a transaction, as `tests/cycles/history.go` has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Step {
    /// `read`, `append` or `write`.
    pub op: &'static str,
    /// The key of the step.
    pub key: String,
    /// The value that is written, or that was read of a register.
    pub value: String,
    /// The version of the value. 0: nobody was told.
    pub version: u64,
    /// What was read of a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<String>>,
}

impl Step {
    /// A read of a list: values with a space behind each.
    #[must_use]
    pub fn of_list(key: &str, text: &str) -> Self {
        let values = Some(text.split_whitespace().map(str::to_owned).collect());
        Self { op: "read", key: key.to_owned(), values, ..Self::default() }
    }
}

#[derive(Clone, Debug, Serialize)]
struct Line {
    client: u32,
    call: u64,
    #[serde(rename = "return")]
    told_at: u64,
    outcome: Ended,
    ops: Vec<Step>,
}

/// A history that is being written.
#[derive(Debug, Default)]
pub struct Lines {
    lines: Mutex<Vec<Line>>,
    /// Transactions that have not ended, by their calls. Nobody knows whether they happen.
    open: Mutex<BTreeMap<u64, Line>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lines {
    /// A transaction begins now, with these writes. Returns its call, which is also its name.
    pub fn begin(&self, client: u32, book: &Book, writes: Vec<Step>) -> u64 {
        let mut open = lock(&self.open);
        let call = book.now().max(open.keys().last().map_or(0, |last| last + 1));
        open.insert(call, Line { client, call, told_at: 0, outcome: Ended::Unknown, ops: writes });
        call
    }

    /// A transaction that has begun writes this.
    pub fn plans(&self, call: u64, writes: Vec<Step>) {
        lock(&self.open).entry(call).and_modify(|line| line.ops = writes);
    }

    /// A transaction ends now.
    pub fn write(&self, client: u32, book: &Book, call: u64, outcome: Ended, ops: Vec<Step>) {
        let told_at = if outcome == Ended::Executed { book.now().max(call) } else { 0 };
        // As `save` locks them, so that a line is always in one of the two.
        let mut lines = lock(&self.lines);
        lock(&self.open).remove(&call);
        lines.push(Line { client, call, told_at, outcome, ops });
    }

    /// Every key of a transaction that has ended.
    #[must_use]
    pub fn keys(&self) -> BTreeSet<String> {
        lock(&self.lines).iter().flat_map(|line| &line.ops).map(|step| step.key.clone()).collect()
    }

    /// Saves the history: all of it, or only what writes.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: &Path, with_reads: bool) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        let is_saved = |line: &&Line| with_reads || line.ops.iter().any(|step| step.op != "read");
        for line in lock(&self.lines).iter().chain(lock(&self.open).values()).filter(is_saved) {
            serde_json::to_writer(&mut file, line)?;
            file.write_all(b"\n")?;
        }
        file.flush()
    }
}
