//! Splits an operation on several keys into parts of one key each, and its result into what it says about each key.

use kasha_types::TableId;
use kasha_wire::operation::{Check, PartOperation};
use kasha_wire::{Outcome, Read, Update};

/// The part of an operation that is about one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// An update of the key.
    Update(Update<'a>),
    /// A read of the key.
    Read(Read<'a>),
    /// A demand on the key.
    Check(Check<'a>),
    /// The key loses its value; the result says whether it had one (multi-delete).
    Remove,
}

impl<'a> From<PartOperation<'a>> for Part<'a> {
    fn from(operation: PartOperation<'a>) -> Self {
        match operation {
            PartOperation::Update(update) => Self::Update(update),
            PartOperation::Read(read) => Self::Read(read),
            PartOperation::Check(check) => Self::Check(check),
            // What a command does, another server says.
            PartOperation::Command(command) => panic!("the model knows no commands: {command}"),
        }
    }
}

/// The part of a result that is about one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// The result is unknown.
    Unknown,
    /// The same result as if the operation had been about this key only.
    Outcome(Outcome),
    /// The operation failed because of another key: nothing changed.
    FailedElsewhere,
}

/// The parts of an operation, one for each of its keys, in order. `table`: of the keys that name none themselves.
#[must_use]
pub fn parts_in<'a>(table: TableId, operation: &Part<'a>) -> Vec<(TableId, &'a [u8], Part<'a>)> {
    let Part::Update(Update::Transaction { parts: list } | Update::Batch { batch: list }) = *operation else {
        return parts(operation).into_iter().map(|(key, part)| (table, key, part)).collect();
    };
    list.iter().map(|part| (part.table, part.operation.first_key(), part.operation.into())).collect()
}

/// The same of an operation on one table, which no transaction is.
///
/// # Panics
/// If it is a transaction.
#[must_use]
pub fn parts<'a>(operation: &Part<'a>) -> Vec<(&'a [u8], Part<'a>)> {
    match *operation {
        Part::Update(Update::Transaction { .. } | Update::Batch { .. }) => panic!("its parts name their tables"),
        Part::Update(Update::MultiPut { pairs }) => {
            pairs.iter().map(|item| (item.key, Part::Update(Update::put(item.key, item.value)))).collect()
        }
        Part::Update(Update::MultiDelete { keys }) => keys.iter().map(|item| (item.key, Part::Remove)).collect(),
        Part::Update(Update::MultiIncrement { deltas }) => {
            deltas.iter().map(|item| (item.key, Part::Update(Update::increment(item.key, item.delta)))).collect()
        }
        Part::Read(Read::MultiGet { keys } | Read::Observe { keys }) => {
            keys.iter().map(|item| (item.key, Part::Read(Read::Get { key: item.key }))).collect()
        }
        // It is no operation on keys.
        Part::Read(Read::Scan { .. } | Read::ScanValues { .. }) => Vec::new(),
        Part::Read(Read::Query { queries }) => {
            queries.iter().map(|part| (part.operation.first_key(), part.operation.into())).collect()
        }
        Part::Update(update) => of_one_key(|each| update.for_each_key(TableId(0), each), *operation),
        Part::Read(read) => of_one_key(|each| read.for_each_key(TableId(0), each), *operation),
        Part::Check(_) | Part::Remove => unreachable!("a part of an operation is no operation"),
    }
}

fn of_one_key<'a>(
    for_each_key: impl FnOnce(&mut dyn FnMut(TableId, &'a [u8])),
    part: Part<'a>,
) -> Vec<(&'a [u8], Part<'a>)> {
    let mut parts = Vec::new();
    for_each_key(&mut |_, key| parts.push((key, part)));
    assert_eq!(parts.len(), 1, "{part:?} has one key");
    parts
}

/// What a result says about each of `count` keys. `None`: it is about another number of keys.
#[must_use]
pub fn split(outcome: Option<&Outcome>, count: usize) -> Option<Vec<Told>> {
    let failed_at = |at: u32, outcome: Outcome| {
        let told = |index| if index == at as usize { Told::Outcome(outcome.clone()) } else { Told::FailedElsewhere };
        (0..count).map(told).collect()
    };
    let told: Vec<Told> = match outcome {
        None => vec![Told::Unknown; count],
        Some(Outcome::Versions(all)) => all.iter().map(|&version| Told::Outcome(Outcome::Version(version))).collect(),
        Some(Outcome::Flags(all)) => all.iter().map(|&flag| Told::Outcome(Outcome::Flags(vec![flag]))).collect(),
        Some(Outcome::Numbers(all)) => {
            all.iter().map(|&(sum, version)| Told::Outcome(Outcome::Number(sum, version))).collect()
        }
        Some(Outcome::Values(all)) => {
            let value = |(version, value): &(u64, Vec<u8>)| Outcome::Value(*version, value.clone());
            all.iter().map(|found| Told::Outcome(found.as_ref().map_or(Outcome::NotFound, value))).collect()
        }
        // What an absent key's version is, the model does not know.
        Some(Outcome::Observed(all)) => {
            let value = |version: u64, value: &Vec<u8>| Outcome::Value(version, value.clone());
            let told = |(version, found): &(u64, Option<Vec<u8>>)| {
                found.as_ref().map_or(Outcome::NotFound, |found| value(*version, found))
            };
            all.iter().map(|each| Told::Outcome(told(each))).collect()
        }
        // A batch that ended early: the rest did not run.
        Some(Outcome::Parts(all)) if all.len() < count => {
            let ran = all.iter().cloned().map(Told::Outcome);
            ran.chain(std::iter::repeat_n(Told::FailedElsewhere, count - all.len())).collect()
        }
        Some(Outcome::Parts(all)) => all.iter().cloned().map(Told::Outcome).collect(),
        Some(&Outcome::Overflow(at)) => failed_at(at, Outcome::Overflow(0)),
        Some(&Outcome::NotANumber(at)) => failed_at(at, Outcome::NotANumber(0)),
        Some(one) => vec![Told::Outcome(one.clone())],
    };
    (told.len() == count).then_some(told)
}
