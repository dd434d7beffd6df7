//! The specification of each operation on one key: a list of branches. A branch says what must hold of the key's
//! version, what the operation then does to the key, and what its result says.

use kasha_types::ClusterTime;
use kasha_types::limits::VALUE_BYTES_MAX;
use kasha_wire::operation::{Check, Lifetime};
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

    /// `then` if the value has this version, or, for version 0, if there is no value.
    fn if_version(version: u64, value: Option<&[u8]>, then: (Effect, Says)) -> Vec<Self> {
        let failed = |requires| Self::new(requires, Effect::Keep, Says::Failed);
        let (effect, says) = then;
        match value {
            None if version == 0 => Self::always(effect, says),
            Some(_) if version != 0 => {
                let met = Self::new(Requires::Version(version), effect, says);
                vec![met, failed(Requires::AnotherVersion(version))]
            }
            None | Some(_) => vec![failed(Requires::Nothing)],
        }
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
        Part::Read(Read::MultiGet { .. } | Read::Observe { .. } | Read::Scan { .. } | Read::ScanValues { .. }) => {
            unreachable!("a part has one key")
        }
        Part::Check(Check::HasVersion { version, .. }) => {
            Branch::if_version(version, value, (Effect::Keep, Says::OldVersion))
        }
        Part::Check(Check::HasValue { expected, .. }) if value == Some(expected) => {
            Branch::always(Effect::Keep, Says::OldVersion)
        }
        Part::Check(Check::HasValue { .. }) => Branch::always(Effect::Keep, Says::Failed),
        Part::Remove => {
            Branch::always(if value.is_some() { Effect::Remove } else { Effect::Keep }, Says::Flag(value.is_some()))
        }
    }
}

fn of_update(update: &Update<'_>, now: Option<&[u8]>) -> Vec<Branch> {
    let put_ending = |value: &[u8], ends| (Effect::Put(value.to_vec(), ends), Says::NewVersion);
    let put = |value: &[u8]| put_ending(value, Ends::Never);
    let found = |effect, says| match now {
        Some(_) => Branch::always(effect, says),
        None => Branch::always(Effect::Keep, Says::NotFound),
    };
    match *update {
        Update::Put { value, .. } => Branch::always(put(value).0, Says::NewVersion),
        Update::PutIfVersion { version, value, .. } => Branch::if_version(version, now, put(value)),
        Update::PutIfAbsent { value, .. } => Branch::if_version(0, now, put(value)),
        Update::Delete { .. } => found(Effect::Remove, Says::OldVersion),
        Update::DeleteIfVersion { version, .. } => match now {
            None if version == 0 => Branch::always(Effect::Keep, Says::NotFound),
            _ => Branch::if_version(version, now, (Effect::Remove, Says::OldVersion)),
        },
        Update::Increment { .. } | Update::IncrementWithin { .. } | Update::IncrementExpiring { .. } => {
            of_increment(update, now)
        }
        Update::PutExpiring { lifetime, value, .. } => {
            let (effect, says) = put_ending(value, Ends::After(lifetime));
            Branch::always(effect, says)
        }
        Update::PutIfAbsentExpiring { lifetime, value, .. } => {
            Branch::if_version(0, now, put_ending(value, Ends::After(lifetime)))
        }
        Update::Expire { lifetime, .. } => {
            let (effect, says) = put_ending(now.unwrap_or_default(), Ends::After(lifetime));
            found(effect, says)
        }
        Update::Persist { .. } => {
            let (effect, says) = put(now.unwrap_or_default());
            found(effect, says)
        }
        Update::Append { value, .. } => {
            let all = [now.unwrap_or_default(), value].concat();
            match all.len() {
                len if len > VALUE_BYTES_MAX => Branch::always(Effect::Keep, Says::TooLarge),
                len => Branch::always(Effect::Put(all, Ends::AsBefore), Says::Length(len as u64)),
            }
        }
        Update::GetAndPut { value, .. } => Branch::always(put(value).0, Says::Replaced(now.map(<[u8]>::to_vec))),
        Update::GetAndDelete { .. } => found(Effect::Remove, Says::Value(now.unwrap_or_default().to_vec())),
        Update::CompareAndPut { expected, value, .. } => match now {
            Some(now) if now == expected => Branch::always(put(value).0, Says::NewVersion),
            Some(_) | None => Branch::always(Effect::Keep, Says::Failed),
        },
        Update::MultiPut { .. }
        | Update::MultiDelete { .. }
        | Update::MultiIncrement { .. }
        | Update::Transaction { .. } => unreachable!("a part has one key"),
    }
}

fn of_increment(update: &Update<'_>, now: Option<&[u8]>) -> Vec<Branch> {
    let count = |sum: i64, ends| Branch::always(Effect::Put(sum.to_string().into_bytes(), ends), Says::Number(sum));
    match *update {
        Update::Increment { delta, .. } => match number(now).map(|before| before.checked_add(delta)) {
            Some(Some(sum)) => count(sum, Ends::AsBefore),
            Some(None) => Branch::always(Effect::Keep, Says::Overflow),
            None => Branch::always(Effect::Keep, Says::NotANumber),
        },
        Update::IncrementWithin { delta, bounds, .. } => match number(now) {
            Some(before) if before.checked_add(delta).is_none() => Branch::always(Effect::Keep, Says::Overflow),
            Some(before) => match within(before, delta, (bounds.least(), bounds.most())) {
                Some(sum) => count(sum, Ends::AsBefore),
                None => Branch::always(Effect::Keep, Says::OutOfBounds(before)),
            },
            None => Branch::always(Effect::Keep, Says::NotANumber),
        },
        Update::IncrementExpiring { key, delta, bounds, lifetime } => match now {
            Some(_) => of_increment(&Update::IncrementWithin { key, delta, bounds }, now),
            None => match within(0, delta, (bounds.least(), bounds.most())) {
                Some(sum) => count(sum, Ends::After(lifetime)),
                None => Branch::always(Effect::Keep, Says::OutOfBounds(0)),
            },
        },
        _ => unreachable!("no increment"),
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
    /// Whether a transaction of which a part says this changes nothing.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        match self {
            Self::Failed | Self::Overflow | Self::NotANumber | Self::OutOfBounds(_) | Self::TooLarge => true,
            Self::NewVersion
            | Self::OldVersion
            | Self::Number(_)
            | Self::Length(_)
            | Self::Value(_)
            | Self::Replaced(_)
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
        let (old, new) = match (self, told) {
            (Self::NewVersion, &Outcome::Version(new))
            | (Self::Number(_), &Outcome::Number(_, new))
            | (Self::Length(_), &Outcome::Length(_, new)) => (None, Some(new)),
            (Self::OldVersion, &Outcome::Version(old))
            | (Self::Value(_), &Outcome::Value(old, _))
            | (Self::Expiry, &Outcome::Expiry(old, _))
            | (Self::OutOfBounds(_), &Outcome::OutOfBounds(_, old))
            | (Self::Failed, &Outcome::ConditionFailed(old)) => (Some(old), None),
            (Self::Replaced(_), &Outcome::Replaced(new, ref was)) => (was.as_ref().map(|(old, _)| *old), Some(new)),
            _ => (None, None),
        };
        let ends = if let &Outcome::Expiry(_, ends) = told { ends } else { None };
        let says = self.clone().with((old.unwrap_or(0), ends), new.unwrap_or(0));
        (says == *told).then_some((old, new))
    }
}
