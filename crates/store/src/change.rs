//! A change of one key: its condition, its new value, when that ends, and its answer are axes, and every row of the table of
//! operations is a point of them. A further condition or answer is a further arm here, for all changes.

use kasha_types::ClusterTime;
use kasha_types::limits::VALUE_BYTES_MAX;
use kasha_types::planted::{self, Bug};
use kasha_wire::OutcomeCode;
use kasha_wire::operation::{Answer, Axes, Bounds, Condition, Ends, Terms};

use crate::draft::{Seen, Value};
use crate::number::Number;
use crate::run::Run;

/// A change of one key, by its axes.
#[derive(Clone, Copy)]
pub(crate) struct Change<'c, 'a> {
    pub key: &'a [u8],
    pub axes: &'c Axes<'a>,
    pub to: To<'a>,
}

/// What a change makes of a key's value.
#[derive(Clone, Copy)]
pub(crate) enum To<'a> {
    Value(&'a [u8]),
    /// What is there, a number, and this, within the bounds.
    Sum(i64, Bounds),
    /// What is there, and this behind it.
    Longer(&'a [u8]),
    Same,
    Nothing,
}

/// Why a counter stays as it is.
pub(crate) enum Failed {
    Overflow,
    NotANumber,
    /// The number as it is.
    OutOfBounds(i64),
}

impl<'r, 'a> Run<'r, 'a> {
    /// Changes one key, whatever the change is.
    #[inline(always)]
    pub fn change(&mut self, change: Change<'_, 'a>) {
        let seen = self.see(change.key);
        if change.axes.terms.condition.is_some() && !self.may_change(&seen, change.axes.terms) {
            return;
        }
        match change.to {
            To::Value(value) => self.leave(&change, &seen, Value::Bytes(value), None, None),
            To::Sum(delta, bounds) => match self.sum(&seen, delta, bounds) {
                Ok(sum) => {
                    let value = Value::Number(Number::new(sum));
                    self.leave(&change, &seen, value, seen.ends(), Some(sum.to_le_bytes()));
                }
                Err(failed) => self.failed(&failed, &seen),
            },
            To::Longer(more) => match self.longer(&seen, more) {
                Some((value, len)) => self.leave(&change, &seen, value, seen.ends(), Some(len.to_le_bytes())),
                None => self.draft.answer(OutcomeCode::TooLarge),
            },
            To::Same if seen.value().is_some() => {
                let same = self.draft.appended(self.log, seen.value(), &[]);
                self.leave(&change, &seen, same, seen.ends(), None);
            }
            To::Nothing if seen.value().is_some() => {
                self.draft.remove(self.table, change.key, &seen);
                self.changed(change.axes.terms.answer, None, seen.version(), &seen);
            }
            To::Same | To::Nothing => self.draft.answer(OutcomeCode::NotFound),
        }
    }

    /// Whether the condition holds; if not, that is the answer.
    #[cold]
    #[inline(never)]
    fn may_change(&mut self, seen: &Seen<'r>, terms: Terms<'_>) -> bool {
        let meets = terms.condition.is_none_or(|condition| self.meets(seen, condition));
        if !meets {
            self.condition_failed(seen, terms.answer);
        }
        meets
    }

    /// The change leaves this value. `usual`: when the value ends, if the change does not say. `told`: what the usual answer tells before the
    /// version.
    #[inline(always)]
    fn leave(
        &mut self,
        change: &Change<'_, 'a>,
        seen: &Seen<'r>,
        value: Value<'a>,
        usual: Option<ClusterTime>,
        told: Option<[u8; 8]>,
    ) {
        let ends = match change.axes.ends {
            Ends::Usual => usual,
            Ends::AfterMade(_) if seen.value().is_some() => seen.ends(),
            Ends::After(lifetime) | Ends::AfterMade(lifetime) => Some(lifetime.ends(self.moment.begun)),
            Ends::Never => None,
        };
        let version = self.put(change.key, *seen, value, ends);
        self.changed(change.axes.terms.answer, told, version, seen);
    }

    /// Gives a key its next value. Returns the value's version.
    pub fn put(&mut self, key: &'a [u8], seen: Seen<'r>, value: Value<'a>, ends: Option<ClusterTime>) -> u64 {
        let seen = match planted::is_on(Bug::VersionFromPosition) {
            true => seen.above(self.log.end().offset.0),
            false => seen,
        };
        self.draft.put(self.table, key, &seen, (value, ends))
    }

    /// Says that a change is done. `told`: what it tells before the version, if it is answered as usual.
    #[inline(always)]
    fn changed(&mut self, answer: Answer, told: Option<[u8; 8]>, version: u64, seen: &Seen<'r>) {
        self.done();
        if answer != Answer::Usual {
            return self.tell_otherwise(answer, version, seen);
        }
        if let Some(told) = told {
            self.draft.answer_bytes(&told);
        }
        self.tell(version);
    }

    #[cold]
    #[inline(never)]
    fn tell_otherwise(&mut self, answer: Answer, version: u64, seen: &Seen<'r>) {
        match answer {
            Answer::Usual => unreachable!("told by whoever makes the change"),
            Answer::Old => {
                self.tell(version);
                self.tell(seen.version());
                self.tell_value(seen);
            }
            Answer::OldLength => {
                self.tell(self.len(seen));
                self.tell(version);
            }
        }
    }

    pub fn condition_failed(&mut self, seen: &Seen<'_>, answer: Answer) {
        self.draft.answer(OutcomeCode::ConditionFailed);
        self.tell(seen.version());
        match answer {
            Answer::Usual | Answer::OldLength => {}
            Answer::Old => self.tell_value(seen),
        }
    }

    pub fn meets(&self, seen: &Seen<'r>, condition: Condition<'_>) -> bool {
        match condition {
            Condition::Version(version) => seen.version() == version,
            Condition::Value(expected) => seen.value().is_some_and(|current| {
                let [first, second] = self.draft.pieces(self.log, current);
                expected.strip_prefix(first) == Some(second)
            }),
            Condition::ShorterThan(bytes) => self.len(seen) < bytes,
        }
    }

    /// What a counter comes to.
    pub fn sum(&self, seen: &Seen<'r>, delta: i64, bounds: Bounds) -> Result<i64, Failed> {
        let number = |current| self.draft.number(self.log, current);
        let old = seen.value().map_or(Some(0), number).ok_or(Failed::NotANumber)?;
        let sum = old.checked_add(delta).ok_or(Failed::Overflow)?;
        bounds.add(old, delta).map(|_| sum).ok_or(Failed::OutOfBounds(old))
    }

    /// A value with more at its end, and the length that it has then. `None`: the value would be too long.
    fn longer(&mut self, seen: &Seen<'r>, more: &'a [u8]) -> Option<(Value<'a>, u64)> {
        let total = self.len(seen) + more.len() as u64;
        (total <= VALUE_BYTES_MAX as u64).then(|| (self.draft.appended(self.log, seen.value(), more), total))
    }

    /// Bytes of the value; 0 without one.
    fn len(&self, seen: &Seen<'r>) -> u64 {
        let pieces = |current| self.draft.pieces(self.log, current).map(<[u8]>::len);
        seen.value().map_or(0, |current| pieces(current).iter().sum::<usize>() as u64)
    }

    pub fn failed(&mut self, failed: &Failed, seen: &Seen<'_>) {
        match *failed {
            Failed::Overflow => self.draft.answer(OutcomeCode::Overflow),
            Failed::NotANumber => self.draft.answer(OutcomeCode::NotANumber),
            Failed::OutOfBounds(number) => {
                self.draft.answer(OutcomeCode::OutOfBounds);
                self.tell_number(number, seen.version());
            }
        }
    }
}
