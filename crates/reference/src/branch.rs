//! The specification of each operation on one key: a list of branches. A branch says what must hold of the key's
//! version, what the operation then does to the key, and what its result says.

use kasha_types::ClusterTime;
use kasha_types::limits::VALUE_BYTES_MAX;
use kasha_wire::operation::{self, Answer, Bounds, Check, Condition, Lifetime, Terms};
use kasha_wire::{Outcome, Read, Update};

use crate::Part;

/// One possible course of an operation on a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The condition under which it happens.
    pub requires: Requires,
    /// The effect on the key.
    pub effect: Effect,
    /// What the operation's result says.
    pub says: Says,
}

/// A condition on the version of the key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requires {
    /// The branch has no condition.
    Nothing,
    /// The version is this one.
    Version(u64),
    /// The version is another one.
    AnotherVersion(u64),
}

/// The effect of an operation on a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The key does not change.
    Keep,
    /// The key has this value now, which ends as this says.
    Put(Vec<u8>, Ends),
    /// The key has no value now.
    Remove,
}

/// When a new value ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Never.
    Never,
    /// When the value before would have ended.
    AsBefore,
    /// So long after its update began.
    After(Lifetime),
}

/// The part of a result that is about one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Says {
    /// The version of the new value.
    NewVersion,
    /// The version of the value that was there.
    OldVersion,
    /// The sum, and its version.
    Number(i64),
    /// The new length, and its version.
    Length(u64),
    /// The value that was there, and its version.
    Value(Vec<u8>),
    /// The version of the new value, and the value that was there, if any, with its version.
    Replaced(Option<Vec<u8>>),
    /// The version of the value that was there, and again with the value.
    Deleted(Vec<u8>),
    /// The length of the value that was there, and its version.
    DeletedLength(u64),
    /// The condition failed: the value that was there, if any, with its version.
    NotReplaced(Option<Vec<u8>>),
    /// Whether there was a value.
    Flag(bool),
    /// The version of the value that was there, and when it ends.
    Expiry,
    /// The condition failed: the version of the value that was there, 0 if there was none.
    Failed,
    /// There was no value.
    NotFound,
    /// The sum does not fit.
    Overflow,
    /// The value is no number.
    NotANumber,
    /// The sum would be outside its bounds: the number as it is, and its version, 0 if there was no value.
    OutOfBounds(i64),
    /// The value would be too long.
    TooLarge,
}

impl Branch {
    fn new(requires: Requires, effect: Effect, says: Says) -> Self {
        Self { requires, effect, says }
    }

    fn always(effect: Effect, says: Says) -> Vec<Self> {
        vec![Self::new(Requires::Nothing, effect, says)]
    }

    /// `then` if the condition holds for this value. Version 0 is that of a key without a value.
    fn only_if(condition: Condition<'_>, value: Option<&[u8]>, then: (Effect, Says), failed: Says) -> Vec<Self> {
        let holds = match condition {
            Condition::Version(version) if version != 0 && value.is_some() => {
                let met = Self::new(Requires::Version(version), then.0, then.1);
                return vec![met, Self::new(Requires::AnotherVersion(version), Effect::Keep, failed)];
            }
            Condition::Version(version) => version == 0 && value.is_none(),
            Condition::Value(expected) => value == Some(expected),
            Condition::ShorterThan(bytes) => (value.map_or(0, <[u8]>::len) as u64) < bytes,
        };
        if holds { Self::always(then.0, then.1) } else { Self::always(Effect::Keep, failed) }
    }
}

/// The possible courses of an operation on a key with this value, the most effective first.
#[must_use]
pub fn branches(part: &Part<'_>, value: Option<&[u8]>) -> Vec<Branch> {
    match *part {
        Part::Update(ref update) => of_update(update, value),
        Part::Read(Read::Get { .. }) => match value {
            Some(value) => Branch::always(Effect::Keep, Says::Value(value.to_vec())),
            None => Branch::always(Effect::Keep, Says::NotFound),
        },
        Part::Read(Read::Exists { .. }) => Branch::always(Effect::Keep, Says::Flag(value.is_some())),
        Part::Read(Read::TimeToLive { .. }) => match value {
            Some(_) => Branch::always(Effect::Keep, Says::Expiry),
            None => Branch::always(Effect::Keep, Says::NotFound),
        },
        Part::Read(
            Read::MultiGet { .. }
            | Read::Observe { .. }
            | Read::Scan { .. }
            | Read::ScanValues { .. }
            | Read::Query { .. },
        ) => {
            unreachable!("a part has one key")
        }
        Part::Check(Check::Meets { condition, .. }) => {
            Branch::only_if(condition, value, (Effect::Keep, Says::OldVersion), Says::Failed)
        }
        Part::Remove => {
            Branch::always(if value.is_some() { Effect::Remove } else { Effect::Keep }, Says::Flag(value.is_some()))
        }
    }
}

fn of_update(update: &Update<'_>, now: Option<&[u8]>) -> Vec<Branch> {
    let found = |then: (Effect, Says)| if now.is_some() { then } else { (Effect::Keep, Says::NotFound) };
    let (terms, then) = match *update {
        Update::Put { axes, value, .. } => {
            (axes.terms, (Effect::Put(value.to_vec(), Ends::of(axes.ends, now, Ends::Never)), Says::NewVersion))
        }
        Update::Increment { axes, delta, bounds, .. } => {
            (axes.terms, of_increment((delta, bounds), Ends::of(axes.ends, now, Ends::AsBefore), now))
        }
        Update::Append { axes, value, .. } => {
            let all = [now.unwrap_or_default(), value].concat();
            let then = match all.len() {
                len if len > VALUE_BYTES_MAX => (Effect::Keep, Says::TooLarge),
                len => (Effect::Put(all, Ends::of(axes.ends, now, Ends::AsBefore)), Says::Length(len as u64)),
            };
            (axes.terms, then)
        }
        Update::Delete { terms, .. } => (terms, found((Effect::Remove, Says::OldVersion))),
        Update::Keep { axes, .. } => {
            let same = Effect::Put(now.unwrap_or_default().to_vec(), Ends::of(axes.ends, now, Ends::AsBefore));
            (axes.terms, found((same, Says::NewVersion)))
        }
        Update::MultiPut { .. }
        | Update::MultiDelete { .. }
        | Update::MultiIncrement { .. }
        | Update::Transaction { .. }
        | Update::Batch { .. } => unreachable!("a part has one key"),
    };
    let says = |says: Says| says.answering(terms.answer, now);
    let then = (then.0, says(then.1));
    match terms {
        Terms { condition: None, .. } => Branch::always(then.0, then.1),
        Terms { condition: Some(condition), .. } => Branch::only_if(condition, now, then, says(Says::Failed)),
    }
}

fn of_increment((delta, bounds): (i64, Bounds), ends: Ends, now: Option<&[u8]>) -> (Effect, Says) {
    let Some(before) = number(now) else { return (Effect::Keep, Says::NotANumber) };
    if before.checked_add(delta).is_none() {
        return (Effect::Keep, Says::Overflow);
    }
    match within(before, delta, (bounds.least(), bounds.most())) {
        Some(sum) => (Effect::Put(sum.to_string().into_bytes(), ends), Says::Number(sum)),
        None => (Effect::Keep, Says::OutOfBounds(before)),
    }
}

impl Ends {
    /// What a change says of the end of its value. `usual`: the end if it says nothing.
    fn of(told: operation::Ends, now: Option<&[u8]>, usual: Self) -> Self {
        match (told, now) {
            (operation::Ends::Usual, _) => usual,
            (operation::Ends::AfterMade(_), Some(_)) => Self::AsBefore,
            (operation::Ends::After(lifetime), _) | (operation::Ends::AfterMade(lifetime), None) => {
                Self::After(lifetime)
            }
            (operation::Ends::Never, _) => Self::Never,
        }
    }
}

/// Redis's numbers: canonical decimal. A key without a value counts as 0.
fn number(value: Option<&[u8]>) -> Option<i64> {
    let Some(bytes) = value else { return Some(0) };
    let text = std::str::from_utf8(bytes).ok()?;
    text.parse().ok().filter(|number: &i64| number.to_string() == text)
}

/// A sum that leaves the bounds on no side that it moves to.
fn within(before: i64, delta: i64, (least, most): (i64, i64)) -> Option<i64> {
    let sum = i128::from(before) + i128::from(delta);
    let is_too_much = delta > 0 && sum > i128::from(most);
    let is_too_little = delta < 0 && sum < i128::from(least);
    if is_too_much || is_too_little { None } else { i64::try_from(sum).ok() }
}

impl Says {
    /// The same for whom asks for this answer. `now`: the value that is there.
    fn answering(self, answer: Answer, now: Option<&[u8]>) -> Self {
        let (old, old_length) = (now.map(<[u8]>::to_vec), now.map_or(0, <[u8]>::len) as u64);
        match (answer, self) {
            (Answer::Usual, usual) => usual,
            (Answer::Old, Self::NewVersion | Self::Number(_) | Self::Length(_)) => Self::Replaced(old),
            (Answer::Old, Self::OldVersion) => Self::Deleted(old.unwrap_or_default()),
            (Answer::Old, Self::Failed) => Self::NotReplaced(old),
            (Answer::OldLength, Self::NewVersion | Self::Number(_) | Self::Length(_)) => Self::Length(old_length),
            (Answer::OldLength, Self::OldVersion) => Self::DeletedLength(old_length),
            (Answer::Old | Answer::OldLength, other) => other,
        }
    }

    /// Whether a transaction of which a part says this changes nothing.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        match self {
            Self::Failed
            | Self::NotReplaced(_)
            | Self::Overflow
            | Self::NotANumber
            | Self::OutOfBounds(_)
            | Self::TooLarge => true,
            Self::NewVersion
            | Self::OldVersion
            | Self::Number(_)
            | Self::Length(_)
            | Self::Value(_)
            | Self::Replaced(_)
            | Self::Deleted(_)
            | Self::DeletedLength(_)
            | Self::Flag(_)
            | Self::Expiry
            | Self::NotFound => false,
        }
    }

    /// The result, if the value before has version `old` and ends then, and the value after has version `new`.
    #[must_use]
    pub fn with(self, (old, ends): (u64, Option<ClusterTime>), new: u64) -> Outcome {
        match self {
            Self::NewVersion => Outcome::Version(new),
            Self::OldVersion => Outcome::Version(old),
            Self::Number(sum) => Outcome::Number(sum, new),
            Self::Length(length) => Outcome::Length(length, new),
            Self::Value(value) => Outcome::Value(old, value),
            Self::Replaced(value) => Outcome::Replaced(new, value.map(|value| (old, value))),
            Self::Deleted(value) => Outcome::Replaced(old, Some((old, value))),
            Self::DeletedLength(length) => Outcome::Length(length, old),
            Self::NotReplaced(value) => Outcome::NotReplaced(value.map(|value| (old, value))),
            Self::Flag(flag) => Outcome::Flags(vec![flag]),
            Self::Expiry => Outcome::Expiry(old, ends),
            Self::Failed => Outcome::ConditionFailed(old),
            Self::NotFound => Outcome::NotFound,
            Self::Overflow => Outcome::Overflow(0),
            Self::NotANumber => Outcome::NotANumber(0),
            Self::OutOfBounds(number) => Outcome::OutOfBounds(number, old),
            Self::TooLarge => Outcome::TooLarge,
        }
    }

    /// The versions of the values before and after that a result tells. `None`: the result does not match this branch.
    #[must_use]
    pub fn versions(&self, told: &Outcome) -> Option<(Option<u64>, Option<u64>)> {
        if let (Self::NotReplaced(_), Outcome::ConditionFailed(_)) = (self, told) {
            return Self::Failed.versions(told); // of a part that a transaction failed at
        }
        let (old, new) = match (self, told) {
            (Self::NewVersion, &Outcome::Version(new))
            | (Self::Number(_), &Outcome::Number(_, new))
            | (Self::Length(_), &Outcome::Length(_, new)) => (None, Some(new)),
            (Self::OldVersion, &Outcome::Version(old))
            | (Self::Value(_), &Outcome::Value(old, _))
            | (Self::Expiry, &Outcome::Expiry(old, _))
            | (Self::OutOfBounds(_), &Outcome::OutOfBounds(_, old))
            | (Self::Failed, &Outcome::ConditionFailed(old)) => (Some(old), None),
            (Self::Deleted(_), &Outcome::Replaced(old, _)) | (Self::DeletedLength(_), &Outcome::Length(_, old)) => {
                (Some(old), None)
            }
            (Self::NotReplaced(_), Outcome::NotReplaced(was)) => (was.as_ref().map(|(old, _)| *old), None),
            (Self::Replaced(_), &Outcome::Replaced(new, ref was)) => (was.as_ref().map(|(old, _)| *old), Some(new)),
            _ => (None, None),
        };
        let ends = if let &Outcome::Expiry(_, ends) = told { ends } else { None };
        let says = self.clone().with((old.unwrap_or(0), ends), new.unwrap_or(0));
        (says == *told).then_some((old, new))
    }
}
