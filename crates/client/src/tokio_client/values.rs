//! What the outcomes of operations mean as values of programs. `None`: the outcome is not one of the operation.

use kasha_wire::outcome::Shape;
use kasha_wire::{DecodeError, Outcome};

use super::{Appended, Bounded, Conditional, Counter, Error, Exchanged, Rejection, Replaced, Value};

pub(super) type Convert<T> = fn(Outcome) -> Option<T>;

pub(super) fn version_of(outcome: Outcome) -> Option<u64> {
    match outcome {
        Outcome::Version(version) => Some(version),
        _ => None,
    }
}

pub(super) fn exists_of(outcome: Outcome) -> Option<bool> {
    match outcome {
        Outcome::Flags(flags) => flags.first().copied(),
        Outcome::NotFound => Some(false),
        _ => None,
    }
}

pub(super) fn deleted_of(outcome: Outcome) -> Option<Option<u64>> {
    match outcome {
        Outcome::Version(version) => Some(Some(version)),
        Outcome::NotFound => Some(None),
        _ => None,
    }
}

pub(super) fn counter_of(outcome: Outcome) -> Option<Counter> {
    match outcome {
        Outcome::Number(value, version) => Some(Counter { value, version }),
        _ => None,
    }
}

pub(super) fn bounded_of(outcome: Outcome) -> Option<Bounded> {
    match outcome {
        Outcome::Number(value, version) => Some(Bounded::Done(Counter { value, version })),
        Outcome::OutOfBounds(value, version) => {
            Some(Bounded::Rejected { value, version: (version != 0).then_some(version) })
        }
        _ => None,
    }
}

pub(super) fn appended_of(outcome: Outcome) -> Option<Appended> {
    match outcome {
        Outcome::Length(length, version) => Some(Appended { length, version }),
        _ => None,
    }
}

pub(super) fn replaced_of(outcome: Outcome) -> Option<Replaced> {
    match outcome {
        Outcome::Replaced(version, old) => {
            Some(Replaced { version, old: old.map(|(version, bytes)| Value { version, bytes }) })
        }
        _ => None,
    }
}

pub(super) fn exchanged_of(outcome: Outcome) -> Option<Exchanged> {
    match outcome {
        Outcome::NotReplaced(found) => Some(Exchanged::Failed(found.map(|(version, bytes)| Value { version, bytes }))),
        outcome => replaced_of(outcome).map(Exchanged::Done),
    }
}

/// What was deleted.
pub(super) fn taken_of(outcome: Outcome) -> Option<Option<Value>> {
    match outcome {
        Outcome::NotFound => Some(None),
        outcome => replaced_of(outcome).map(|replaced| replaced.old),
    }
}

pub(super) fn found(outcome: Outcome) -> Option<Option<Value>> {
    match outcome {
        Outcome::Value(version, bytes) => Some(Some(Value { version, bytes })),
        Outcome::NotFound => Some(None),
        _ => None,
    }
}

pub(super) fn conditional(outcome: Outcome) -> Option<Conditional> {
    match outcome {
        Outcome::Version(version) => Some(Conditional::Done(version)),
        Outcome::ConditionFailed(version) => Some(Conditional::Failed((version != 0).then_some(version))),
        Outcome::NotFound => Some(Conditional::Failed(None)),
        _ => None,
    }
}

pub(super) fn value_of<T>(shape: Shape, result: &[u8], convert: impl FnOnce(Outcome) -> Option<T>) -> Result<T, Error> {
    let outcome = Outcome::decode(shape, result).map_err(Error::Answer)?;
    match outcome {
        Outcome::Overflow(item) => Err(Error::Rejected(Rejection::Overflow(item))),
        Outcome::NotANumber(item) => Err(Error::Rejected(Rejection::NotANumber(item))),
        Outcome::TooLarge => Err(Error::Rejected(Rejection::TooLarge)),
        Outcome::OperationKeyMismatch => Err(Error::Rejected(Rejection::OperationKeyMismatch)),
        outcome => convert(outcome).ok_or(Error::Answer(DecodeError::Invalid("an outcome of this operation"))),
    }
}
