//! The history: every call of a client and its answer, in the format that `tests/porcupine` reads (one line of JSON for
//! each operation).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kasha_client::{Conditional, Counter, Replaced, Value};
use kasha_wire::Outcome;
use serde::Serialize;

/// How an operation ended for its caller (R2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// The caller got an answer.
    Executed,
    /// The operation never happened, and never will.
    NotExecuted,
    /// The outcome is unknown.
    Unknown,
}

/// The answer to an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Told {
    /// `done`, `found`, `absent`, `failed` (the condition) or `mismatch` (of the operation key).
    pub got: &'static str,
    /// The key's version.
    pub version: u64,
    /// The counter after an increment.
    pub sum: i64,
    /// The value that was read, or deleted.
    pub text: String,
    /// About the value that a put replaced: nothing was told, `absent` or `found`.
    pub was: &'static str,
    /// The replaced value.
    pub old_text: String,
    /// The version of the replaced value.
    pub old_version: u64,
}

/// An operation on one key.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Asked {
    /// The task that made it.
    pub client: u32,
    /// `register` or `counter`.
    pub model: &'static str,
    /// The key of the operation.
    pub key: String,
    /// `get`, `put`, `delete` or `increment`.
    pub op: &'static str,
    /// The value to put.
    pub value: String,
    /// The condition of a put or of a delete: nothing, `absent`, `version` or `value`.
    #[serde(rename = "if")]
    pub condition: &'static str,
    /// The version of a condition.
    pub expected: u64,
    /// The value of a condition.
    pub expected_text: String,
    /// The number to add.
    pub delta: i64,
    /// The operation key.
    pub once: String,
    /// When the call began, in nanoseconds since the book was opened.
    pub call: u64,
}

/// One line of the history.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// The call.
    #[serde(flatten)]
    pub asked: Asked,
    /// When its caller was told. 0 if it was not told.
    #[serde(rename = "return")]
    pub told_at: u64,
    /// How the call ended.
    pub outcome: Ended,
    /// The answer to the call.
    #[serde(flatten)]
    pub told: Told,
}

/// A history that is being written.
#[derive(Debug)]
pub struct Book {
    opened: Instant,
    records: Mutex<Vec<Record>>,
    /// Operations that have not ended yet.
    open: Mutex<BTreeMap<u64, Asked>>,
    problems: Mutex<Vec<String>>,
    halves: Mutex<Vec<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for Book {
    fn default() -> Self {
        Self {
            opened: Instant::now(),
            records: Mutex::default(),
            open: Mutex::default(),
            problems: Mutex::default(),
            halves: Mutex::default(),
        }
    }
}

impl Book {
    /// Now, on the one clock of this history.
    ///
    /// # Panics
    /// After some centuries.
    #[must_use]
    pub fn now(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_nanos()).expect("centuries")
    }

    /// Writes down that an operation begins now. Its end is written with [`Book::write`].
    #[must_use]
    pub fn ask(&self, asked: Asked) -> Asked {
        let mut open = lock(&self.open);
        // The time is also the name of the operation, so no other may have the same.
        let call = self.now().max(open.keys().last().map_or(0, |last| last + 1));
        let asked = Asked { call, ..asked };
        open.insert(call, asked.clone());
        asked
    }

    /// Writes an operation down that ends now.
    pub fn write(&self, asked: Asked, outcome: Ended, told: Told) {
        let told_at = if outcome == Ended::Executed { self.now().max(asked.call) } else { 0 };
        lock(&self.open).remove(&asked.call);
        lock(&self.records).push(Record { asked, told_at, outcome, told });
    }

    /// Writes down that half of a transaction was seen, which nothing excuses.
    pub fn note_half(&self, what: String) {
        lock(&self.halves).push(what);
    }

    /// The halves that were seen.
    #[must_use]
    pub fn halves(&self) -> Vec<String> {
        lock(&self.halves).clone()
    }

    /// Writes down a problem that is an error whatever else is in the history.
    pub fn complain(&self, problem: String) {
        lock(&self.problems).push(problem);
    }

    /// Everything so far. An operation that has not ended is unknown.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        let open = lock(&self.open);
        let unknown =
            |asked: &Asked| Record { asked: asked.clone(), told_at: 0, outcome: Ended::Unknown, told: Told::default() };
        lock(&self.records).iter().cloned().chain(open.values().map(unknown)).collect()
    }

    /// The problems that are errors whatever else is in the history.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        lock(&self.problems).clone()
    }
}

/// Saves a history.
///
/// # Errors
/// If the file cannot be written.
pub fn save<'a>(records: impl Iterator<Item = &'a Record>, path: &Path) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for record in records {
        serde_json::to_writer(&mut file, record)?;
        file.write_all(b"\n")?;
    }
    file.flush()
}

impl Told {
    fn done(version: u64) -> Self {
        Self { got: "done", version, ..Self::default() }
    }

    /// The answer for an operation key that belongs to another request.
    #[must_use]
    pub fn mismatch() -> Self {
        Self { got: "mismatch", ..Self::default() }
    }

    fn absent() -> Self {
        Self { got: "absent", ..Self::default() }
    }

    fn failed(version: u64) -> Self {
        Self { got: "failed", version, ..Self::default() }
    }
}

impl From<u64> for Told {
    fn from(version: u64) -> Self {
        Self::done(version)
    }
}

impl From<Option<u64>> for Told {
    fn from(deleted: Option<u64>) -> Self {
        deleted.map_or_else(Self::absent, Self::done)
    }
}

impl From<Conditional> for Told {
    fn from(outcome: Conditional) -> Self {
        match outcome {
            Conditional::Done(version) => Self::done(version),
            Conditional::Failed(version) => Self::failed(version.unwrap_or(0)),
        }
    }
}

impl From<Counter> for Told {
    fn from(counter: Counter) -> Self {
        Self { sum: counter.value, ..Self::done(counter.version) }
    }
}

impl From<Option<Value>> for Told {
    fn from(value: Option<Value>) -> Self {
        value.map_or_else(Self::absent, Self::from)
    }
}

impl From<Value> for Told {
    fn from(Value { version, bytes }: Value) -> Self {
        Self { got: "found", version, text: name_of(&bytes), ..Self::default() }
    }
}

impl From<Replaced> for Told {
    fn from(Replaced { version, old }: Replaced) -> Self {
        let was = if old.is_some() { "found" } else { "absent" };
        let Value { version: old_version, bytes } = old.unwrap_or(Value { version: 0, bytes: Vec::new() });
        Self { was, old_text: name_of(&bytes), old_version, ..Self::done(version) }
    }
}

/// The name of a value, without its padding, which `load` looks at.
pub(super) fn name_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('.').to_owned()
}

/// An answer that came after its deadline. `None`: no operation of this load has such an answer.
#[must_use]
pub fn told_late(asked: &Asked, outcome: &Outcome) -> Option<Told> {
    Some(match *outcome {
        Outcome::Number(sum, version) => Told { sum, ..Told::done(version) },
        Outcome::NotFound if asked.condition.is_empty() => Told::absent(),
        Outcome::NotFound => Told::failed(0),
        Outcome::Version(version) => Told::done(version),
        Outcome::ConditionFailed(version) => Told::failed(version),
        Outcome::Value(version, ref bytes) => Value { version, bytes: bytes.clone() }.into(),
        Outcome::Replaced(version, ref old) => {
            let old = old.clone().map(|(version, bytes)| Value { version, bytes });
            Replaced { version, old }.into()
        }
        Outcome::OperationKeyMismatch => Told::mismatch(),
        _ => return None,
    })
}
