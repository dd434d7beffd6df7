//! The usual changes of one key, by the names that people give them. Any other one is a row with terms and an end of its own.

use super::{Answer, Axes, Bounds, Condition, Ends, Lifetime, Terms, Update};

const OLD: Terms<'_> = Terms::NONE.answering(Answer::Old);

impl<'a> Update<'a> {
    /// Sets the key, to a value without end.
    #[must_use]
    #[inline]
    pub const fn put(key: &'a [u8], value: &'a [u8]) -> Self {
        Self::Put { key, axes: Axes::NONE, value }
    }

    /// Sets the key, if that is so.
    #[must_use]
    pub const fn put_if(key: &'a [u8], condition: Condition<'a>, value: &'a [u8]) -> Self {
        Self::Put { key, axes: Axes::with(Terms::only_if(condition)), value }
    }

    /// Sets the key, to a value that ends.
    #[must_use]
    pub const fn put_expiring(key: &'a [u8], lifetime: Lifetime, value: &'a [u8]) -> Self {
        Self::Put { key, axes: Axes { terms: Terms::NONE, ends: Ends::After(lifetime) }, value }
    }

    /// Sets the key, if it has no value, to one that ends.
    #[must_use]
    pub const fn put_if_absent_expiring(key: &'a [u8], lifetime: Lifetime, value: &'a [u8]) -> Self {
        Self::Put { key, axes: Axes { terms: Terms::only_if(Condition::ABSENT), ends: Ends::After(lifetime) }, value }
    }

    /// Sets the key, and tells what it had.
    #[must_use]
    pub const fn get_and_put(key: &'a [u8], value: &'a [u8]) -> Self {
        Self::Put { key, axes: Axes::with(OLD), value }
    }

    /// Adds to a counter.
    #[must_use]
    #[inline]
    pub const fn increment(key: &'a [u8], delta: i64) -> Self {
        Self::increment_within(key, delta, Bounds::NONE)
    }

    /// Adds to a counter, if the sum is within bounds.
    #[must_use]
    pub const fn increment_within(key: &'a [u8], delta: i64, bounds: Bounds) -> Self {
        Self::Increment { key, axes: Axes::NONE, delta, bounds }
    }

    /// Adds to a counter that ends so long after its first increment.
    #[must_use]
    pub const fn increment_expiring(key: &'a [u8], delta: i64, bounds: Bounds, lifetime: Lifetime) -> Self {
        Self::Increment { key, axes: Axes { terms: Terms::NONE, ends: Ends::AfterMade(lifetime) }, delta, bounds }
    }

    /// Adds bytes at a value's end.
    #[must_use]
    pub const fn append(key: &'a [u8], value: &'a [u8]) -> Self {
        Self::Append { key, axes: Axes::NONE, value }
    }

    /// Deletes the key.
    #[must_use]
    #[inline]
    pub const fn delete(key: &'a [u8]) -> Self {
        Self::Delete { key, terms: Terms::NONE }
    }

    /// Deletes the key, if that is so.
    #[must_use]
    pub const fn delete_if(key: &'a [u8], condition: Condition<'a>) -> Self {
        Self::Delete { key, terms: Terms::only_if(condition) }
    }

    /// Deletes the key, and tells what it had.
    #[must_use]
    pub const fn get_and_delete(key: &'a [u8]) -> Self {
        Self::Delete { key, terms: OLD }
    }

    /// Gives the value that is there another end.
    #[must_use]
    pub const fn expire(key: &'a [u8], lifetime: Lifetime) -> Self {
        Self::Keep { key, axes: Axes { terms: Terms::NONE, ends: Ends::After(lifetime) } }
    }

    /// The value that is there ends no more.
    #[must_use]
    pub const fn persist(key: &'a [u8]) -> Self {
        Self::Keep { key, axes: Axes { terms: Terms::NONE, ends: Ends::Never } }
    }
}
