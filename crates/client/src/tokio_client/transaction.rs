//! Transactions: operations on keys of several tables, sent together, which take effect together or not at all.

use std::ops::{Bound, RangeBounds};

use kasha_wire::operation::{Bounds, Check, Condition, PartOperation};
use kasha_wire::{Outcome, Read, Update};

use super::values::{
    Convert, appended_of, counter_of, deleted_of, exists_of, found, replaced_of, taken_of, version_of,
};
use super::{Appended, Client, Counter, Replaced, Table, UpdateCall, Value};
use crate::session::{TransactionParts, WhyNot};

/// A transaction that is being put together: its parts run in this order, and each sees what the parts before it did.
///
/// Nothing is sent before [`Transaction::commit`]. Keys may be of any tables and shards. If all are of one shard, as keys with a
/// common `{tag}` are, the transaction takes one round trip. If not, it takes one if nobody else uses its keys. If a part can fail, it
/// takes locks at each shard, and may meet others until its deadline ([`WhyNot::Conflict`]). A transaction that reads and checks
/// only is recorded as well, so that its result is the same however often it is sent.
#[derive(Clone, Debug)]
#[must_use = "nothing is sent until it is committed"]
pub struct Transaction {
    client: Client,
    parts: TransactionParts,
}

/// The place of a part in its transaction, by which the part's result is found.
#[derive(Debug)]
pub struct PartId<T> {
    index: u32,
    convert: Convert<T>,
}

// Not derived: that would ask the same of the result.
impl<T> Clone for PartId<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for PartId<T> {}

/// What came of a transaction that was executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactionOutcome {
    /// All parts took effect at one moment.
    Committed(Results),
    /// A part failed, and nothing changed.
    NotCommitted(Failure),
}

/// The results of a transaction's parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Results(Vec<Outcome>);

/// The first part that failed. As an error, it is [`super::Error::NotCommitted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("part {part}: {why}")]
pub struct Failure {
    /// Its index, from 0, in the order in which the parts were added.
    pub part: usize,
    /// Why the part failed.
    pub why: WhyPartFailed,
}

/// Why a part of a transaction failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhyPartFailed {
    /// A check does not hold. The key's version when the part ran, if the key had a value.
    #[error("the check does not hold: {}", found_version(*.0))]
    Check(Option<u64>),
    /// The sum does not fit 64 bits.
    #[error("the sum does not fit 64 bits (K0331)")]
    Overflow,
    /// The sum would be outside its bounds: the number as it is.
    #[error("the sum would be outside its bounds: the number is {0}")]
    OutOfBounds(i64),
    /// The value is not a number.
    #[error("the value is no decimal 64-bit number (K0332)")]
    NotANumber,
    /// The value would be longer than a value may be, or the transaction would write and answer too much.
    #[error("the value would exceed its limit, or the transaction its own (K0333)")]
    TooLarge,
}

fn found_version(version: Option<u64>) -> String {
    version.map_or_else(|| "the key has no value".to_owned(), |version| format!("the key has version {version}"))
}

impl Client {
    /// An empty transaction.
    pub fn transaction(&self) -> Transaction {
        Transaction { client: self.clone(), parts: TransactionParts::default() }
    }
}

impl Transaction {
    fn push<T>(&mut self, table: &Table, operation: &PartOperation<'_>, convert: Convert<T>) -> PartId<T> {
        PartId { index: self.parts.push(table.id(), operation), convert }
    }

    /// It is never committed.
    pub(super) fn is_wrong(&mut self, why: WhyNot) {
        self.parts.is_wrong(why);
    }

    pub(super) fn update<T>(&mut self, table: &Table, update: Update<'_>, convert: Convert<T>) -> PartId<T> {
        self.push(table, &PartOperation::Update(update), convert)
    }

    /// Demands that the key has this version.
    pub fn check_version(&mut self, table: &Table, key: impl AsRef<[u8]>, version: u64) {
        let key = key.as_ref();
        self.push(
            table,
            &PartOperation::Check(Check::Meets { key, condition: Condition::Version(version) }),
            version_of,
        );
    }

    /// Demands that the key has exactly this value. The result is the key's version.
    pub fn check_value(&mut self, table: &Table, key: impl AsRef<[u8]>, expected: impl AsRef<[u8]>) -> PartId<u64> {
        let (key, expected) = (key.as_ref(), expected.as_ref());
        self.push(table, &PartOperation::Check(Check::Meets { key, condition: Condition::Value(expected) }), version_of)
    }

    /// Demands that the key has no value.
    pub fn check_absent(&mut self, table: &Table, key: impl AsRef<[u8]>) {
        self.check_version(table, key, 0);
    }

    /// The key's value, as the parts before leave it.
    pub fn get(&mut self, table: &Table, key: impl AsRef<[u8]>) -> PartId<Option<Value>> {
        let key = key.as_ref();
        self.push(table, &PartOperation::Read(Read::Get { key }), found)
    }

    /// Whether the key has a value.
    pub fn exists(&mut self, table: &Table, key: impl AsRef<[u8]>) -> PartId<bool> {
        let key = key.as_ref();
        self.push(table, &PartOperation::Read(Read::Exists { key }), exists_of)
    }

    /// Sets the key. The result is its new version.
    pub fn put(&mut self, table: &Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> PartId<u64> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.update(table, Update::put(key, value), version_of)
    }

    /// Deletes the key. The result is the version that was deleted; that there was none is no failure.
    pub fn delete(&mut self, table: &Table, key: impl AsRef<[u8]>) -> PartId<Option<u64>> {
        let key = key.as_ref();
        self.update(table, Update::delete(key), deleted_of)
    }

    /// Adds to the decimal number in the key; a missing key counts as 0.
    pub fn increment(&mut self, table: &Table, key: impl AsRef<[u8]>, delta: i64) -> PartId<Counter> {
        let key = key.as_ref();
        self.update(table, Update::increment(key, delta), counter_of)
    }

    /// The same, if the sum is in this range: if not, the transaction is not committed ([`WhyPartFailed::OutOfBounds`]). An increment
    /// that grows is held by the end of the range alone, one that falls by its beginning: `0..` for a wallet.
    pub fn increment_within(
        &mut self,
        table: &Table,
        key: impl AsRef<[u8]>,
        delta: i64,
        range: impl RangeBounds<i64>,
    ) -> PartId<Counter> {
        let key = key.as_ref();
        let bounds = bounds_of(&range).unwrap_or_else(|| {
            self.is_wrong(WhyNot::Bounds);
            Bounds::NONE
        });
        self.update(table, Update::increment_within(key, delta, bounds), counter_of)
    }

    /// Appends to the key's value; a missing key counts as empty.
    pub fn append(&mut self, table: &Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> PartId<Appended> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.update(table, Update::append(key, value), appended_of)
    }

    /// Sets the key. The result has the old value.
    pub fn get_and_put(&mut self, table: &Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> PartId<Replaced> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.update(table, Update::get_and_put(key, value), replaced_of)
    }

    /// Deletes the key. The result is the value that was deleted.
    pub fn get_and_delete(&mut self, table: &Table, key: impl AsRef<[u8]>) -> PartId<Option<Value>> {
        let key = key.as_ref();
        self.update(table, Update::get_and_delete(key), taken_of)
    }

    /// The transaction as one call, which takes the same options as every update, and is made when it is awaited.
    pub fn commit(self) -> UpdateCall<TransactionOutcome> {
        let (table, operation) = self.parts.operation();
        UpdateCall::new(Table::new(self.client, table), operation, outcome_of)
    }
}

impl TransactionOutcome {
    /// What a resolved outcome (`Resolved::Executed`) means, if it is one of a transaction.
    #[must_use]
    pub fn of(outcome: Outcome) -> Option<Self> {
        outcome_of(outcome)
    }
}

/// The least and the greatest number of a range; `None`: nothing is in it.
pub(super) fn bounds_of(range: &impl RangeBounds<i64>) -> Option<Bounds> {
    let least = match range.start_bound() {
        Bound::Included(&least) => least,
        Bound::Excluded(&below) => below.checked_add(1)?,
        Bound::Unbounded => i64::MIN,
    };
    let most = match range.end_bound() {
        Bound::Included(&most) => most,
        Bound::Excluded(&above) => above.checked_sub(1)?,
        Bound::Unbounded => i64::MAX,
    };
    Bounds::new(least, most)
}

fn outcome_of(outcome: Outcome) -> Option<TransactionOutcome> {
    let why = |outcome: &Outcome| {
        Some(match *outcome {
            Outcome::ConditionFailed(version) => WhyPartFailed::Check((version != 0).then_some(version)),
            Outcome::Overflow(_) => WhyPartFailed::Overflow,
            Outcome::OutOfBounds(value, _) => WhyPartFailed::OutOfBounds(value),
            Outcome::NotANumber(_) => WhyPartFailed::NotANumber,
            Outcome::TooLarge => WhyPartFailed::TooLarge,
            _ => return None,
        })
    };
    match outcome {
        Outcome::Parts(outcomes) => Some(TransactionOutcome::Committed(Results(outcomes))),
        Outcome::NotCommitted(part, outcome) => {
            Some(TransactionOutcome::NotCommitted(Failure { part: part as usize, why: why(&outcome)? }))
        }
        _ => None,
    }
}

impl Results {
    /// The result of a part.
    ///
    /// # Panics
    /// If the part is one of another transaction.
    #[must_use]
    pub fn of<T>(&self, part: PartId<T>) -> T {
        let outcome = self.0.get(part.index as usize).cloned();
        outcome.and_then(part.convert).expect("a part of this transaction")
    }

    /// All results, in the order of the parts.
    #[must_use]
    pub fn outcomes(&self) -> &[Outcome] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_two_bounds_or_none() {
        let bounds = |least, most| Bounds::new(least, most);
        assert_eq!(bounds_of(&(0..)), bounds(0, i64::MAX));
        assert_eq!(bounds_of(&(..=5)), bounds(i64::MIN, 5));
        assert_eq!(bounds_of(&(1..5)), bounds(1, 4));
        assert_eq!(bounds_of(&(..)), Some(Bounds::NONE));
        assert_eq!([bounds_of(&(5..5)), bounds_of(&(..i64::MIN))], [None, None], "no number is in them");
    }
}
