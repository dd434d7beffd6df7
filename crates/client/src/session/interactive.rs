//! Interactive transactions: a program reads, decides, writes, and then commits all of that at one moment (RIFL V-D, 0029).
//!
//! They are optimistic. Reads take no locks, and writes stay here until the commit, which is one exactly-once transaction:
//! every key that was read must still be what it was, and then the writes take effect together. If some key has changed, nothing
//! does.
//!
//! Nothing is sent from here. A program asks the session for what [`Interactive::seen`] does not know, and for [`ToCommit::operation`];
//! `tries` says whether it runs again.

use std::collections::BTreeMap;
use std::time::Duration;

use kasha_types::TableId;
use kasha_wire::operation::{Bounds, Check, Condition, OwnedOperation, PartOperation};
use kasha_wire::{Outcome, Update};

use super::lifetime::lifetime_of;
use super::transaction::TransactionParts;
use super::{WhyFailed, WhyNot};

type Key = (TableId, Vec<u8>);

/// A key's version and value, if it has one.
pub type Found = Option<(u64, Vec<u8>)>;

/// What an interactive transaction has read, and what it is going to write.
#[derive(Debug, Default)]
pub struct Interactive {
    keys: BTreeMap<Key, Entry>,
    /// Reads that were answered. One alone needs no check: all its keys were read at one moment.
    reads: u32,
}

/// What is known of a key.
#[derive(Clone, Debug, Default)]
struct Entry {
    read: Option<Found>,
    write: Option<Write>,
}

#[derive(Clone, Debug)]
enum Write {
    Put(Vec<u8>),
    /// A value that ends.
    Ending(Vec<u8>, Duration),
    /// What is added to the number that was read, and what that gives. The value keeps its end, which a put would not leave it.
    Add {
        total: i128,
        number: i64,
    },
    Delete,
}

/// What came of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Commit {
    /// What was read was so at one moment, at which all writes took effect.
    Committed,
    /// Somebody has changed what was read, and nothing was written.
    Conflict(Conflict),
}

/// A key that has changed since it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The table of the key.
    pub table: TableId,
    /// The key that has changed.
    pub key: Vec<u8>,
    /// The version that was read, if the key had a value.
    pub read: Option<u64>,
    /// The version at the commit, if the key had a value.
    pub found: Option<u64>,
}

/// Why a commit that was executed is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCommit {
    /// It would write too much, and nothing was written.
    TooLarge,
    /// The outcome is not one of a commit.
    Invalid,
}

/// A commit: what is to be sent, and what its outcome means.
#[derive(Clone, Debug)]
pub struct ToCommit {
    /// A transaction, with its table: the checks in the order of their keys, and behind them the writes in the order of theirs. `None`: there
    /// is nothing to check and nothing to write.
    pub operation: Option<(TableId, Result<OwnedOperation, WhyNot>)>,
    /// Whether anything is written.
    pub has_writes: bool,
    /// What the first parts check.
    checks: Vec<(Key, u64)>,
}

impl Interactive {
    fn entry(&mut self, table: TableId, key: &[u8]) -> &mut Entry {
        self.keys.entry((table, key.to_vec())).or_default()
    }

    /// What the transaction sees in a key that it has read or written. The value that it has written itself has version 0: it gets its
    /// version at the commit. `None`: the key is to be read.
    #[must_use]
    pub fn seen(&self, table: TableId, key: &[u8]) -> Option<Found> {
        let entry = self.keys.get(&(table, key.to_vec()))?;
        let own = |bytes| Some(Some((0, bytes)));
        match &entry.write {
            Some(Write::Put(value) | Write::Ending(value, _)) => own(value.clone()),
            Some(Write::Add { number, .. }) => own(number.to_string().into_bytes()),
            Some(Write::Delete) => Some(None),
            None => entry.read.clone(),
        }
    }

    /// A read of these keys was answered. What was read before stays.
    pub fn on_read<'k>(&mut self, table: TableId, found: impl IntoIterator<Item = (&'k [u8], Found)>) {
        self.reads += 1;
        for (key, found) in found {
            self.entry(table, key).read.get_or_insert(found);
        }
    }

    /// Sets the key, at the commit.
    pub fn put(&mut self, table: TableId, key: &[u8], value: &[u8]) {
        self.entry(table, key).write = Some(Write::Put(value.to_vec()));
    }

    /// Sets the key, at the commit, to a value that ends after this time, which counts from the commit.
    pub fn put_expiring(&mut self, table: TableId, key: &[u8], value: &[u8], time: Duration) {
        self.entry(table, key).write = Some(Write::Ending(value.to_vec(), time));
    }

    /// Deletes the key, at the commit.
    pub fn delete(&mut self, table: TableId, key: &[u8]) {
        self.entry(table, key).write = Some(Write::Delete);
    }

    /// Adds to the number in a key that was read or written, at the commit; a missing key counts as 0. Returns the sum; `None`: it would not
    /// be within the bounds, and nothing is added (0053).
    ///
    /// # Errors
    /// [`WhyFailed::NotANumber`] if the value is none.
    pub fn increment(
        &mut self,
        table: TableId,
        key: &[u8],
        delta: i64,
        bounds: Bounds,
    ) -> Result<Option<i64>, WhyFailed> {
        let value = self.seen(table, key).flatten();
        let number = value.map_or(Some(0), |(_, value)| number_in(&value)).ok_or(WhyFailed::NotANumber)?;
        let Some(sum) = bounds.add(number, delta) else { return Ok(None) };
        let entry = self.entry(table, key);
        entry.write = Some(match entry.write.take() {
            None => Write::Add { total: delta.into(), number: sum },
            Some(Write::Add { total, .. }) => Write::Add { total: total + i128::from(delta), number: sum },
            Some(Write::Put(_) | Write::Delete) => Write::Put(sum.to_string().into_bytes()),
            Some(Write::Ending(_, time)) => Write::Ending(sum.to_string().into_bytes(), time),
        });
        Ok(Some(sum))
    }

    /// The program came to an error: nothing is written. What it has read is still to be checked (0029).
    pub fn forget_writes(&mut self) {
        self.keys.values_mut().for_each(|entry| entry.write = None);
    }

    /// What checks all that was read, and writes what was written, at one moment.
    #[must_use]
    pub fn to_commit(&self) -> ToCommit {
        let (mut parts, mut checks) = (TransactionParts::default(), Vec::new());
        for (key, entry) in &self.keys {
            if let Some(read) = &entry.read {
                let version = read.as_ref().map_or(0, |(version, _)| *version);
                parts.push(
                    key.0,
                    &PartOperation::Check(Check::Meets { key: &key.1, condition: Condition::Version(version) }),
                );
                checks.push((key.clone(), version));
            }
        }
        let writes = self.keys.iter().filter_map(|(key, entry)| Some((key, entry.write.as_ref()?)));
        let mut has_writes = false;
        for ((table, key), write) in writes {
            has_writes = true;
            write.join(&mut parts, *table, key);
        }
        let is_needed = has_writes || self.reads > 1;
        ToCommit { operation: is_needed.then(|| parts.operation()), has_writes, checks }
    }
}

impl Write {
    fn join(&self, parts: &mut TransactionParts, table: TableId, key: &[u8]) {
        let mut push = |update| _ = parts.push(table, &PartOperation::Update(update));
        match self {
            Self::Put(value) => push(Update::put(key, value)),
            Self::Ending(value, time) => match lifetime_of(*time) {
                Ok(lifetime) => push(Update::put_expiring(key, lifetime, value)),
                Err(why) => parts.is_wrong(why),
            },
            Self::Add { total, .. } => {
                // The sum of what was added may not fit 64 bits, although each number on the way does: then it takes several parts, all
                // of one sign, so that what lies between is between numbers that fit.
                let mut left = *total;
                loop {
                    let delta = left.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
                    push(Update::increment(key, delta));
                    left -= i128::from(delta);
                    if left == 0 {
                        break;
                    }
                }
            }
            Self::Delete => push(Update::delete(key)),
        }
    }
}

impl ToCommit {
    /// What the outcome of the operation means.
    ///
    /// # Errors
    /// If it is no outcome of a commit, or the commit was too large.
    pub fn commit_of(&self, outcome: &Outcome) -> Result<Commit, NoCommit> {
        let (part, failed) = match outcome {
            Outcome::Parts(_) => return Ok(Commit::Committed),
            Outcome::NotCommitted(part, failed) => (*part, &**failed),
            _ => return Err(NoCommit::Invalid),
        };
        let given = |version: u64| (version != 0).then_some(version);
        match (failed, self.checks.get(part as usize)) {
            (Outcome::ConditionFailed(found), Some(((table, key), read))) => {
                let (table, key) = (*table, key.clone());
                Ok(Commit::Conflict(Conflict { table, key, read: given(*read), found: given(*found) }))
            }
            (Outcome::TooLarge, _) => Err(NoCommit::TooLarge),
            _ => Err(NoCommit::Invalid),
        }
    }
}

/// A counter's number: decimal, of 64 bits, without leading zeros.
#[must_use]
pub fn number_in(bytes: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(bytes).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == bytes).then_some(number)
}
