//! Values that end: calls that give a value a time to live, change it, and ask for it.
//!
//! A lifetime counts from when the update is sent for the first time, in the cluster's own clock. A value does not end before its
//! time by any node's clock; the guarantees say how late it may end, and what an outage of the coordinator does.

use std::time::Duration;

use kasha_wire::operation::{Bounds, Lifetime, OwnedOperation, PartOperation, PartsBuffer};
use kasha_wire::{Outcome, Read, Update};

use super::values::{conditional, deleted_of, version_of};
use super::{Bounded, Conditional, Counter, PartId, ReadCall, Table, Transaction, UpdateCall};
use crate::session::{TimeToLive, WhyNot};

/// Milliseconds, rounded up: nothing ends before the time that was asked for.
fn lifetime_of(time: Duration) -> Result<Lifetime, WhyNot> {
    let millis = u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    Lifetime::from_millis(millis).ok_or(WhyNot::Lifetime)
}

impl Table {
    /// Gives the key's value, if there is one, another time to live, counted from now. Returns the key's new version.
    pub fn expire(&self, key: impl AsRef<[u8]>, time: Duration) -> UpdateCall<Option<u64>> {
        match lifetime_of(time) {
            Ok(lifetime) => self.update(&Update::Expire { key: key.as_ref(), lifetime }, deleted_of),
            Err(why) => UpdateCall::new(self.clone(), Err(why), deleted_of),
        }
    }

    /// The key's value, if there is one, does not end any more. Returns the key's new version.
    pub fn persist(&self, key: impl AsRef<[u8]>) -> UpdateCall<Option<u64>> {
        self.update(&Update::Persist { key: key.as_ref() }, deleted_of)
    }

    /// When the key's value ends; `None`: the key has no value. A new client waits until the coordinator has told it the time, and
    /// fails at its deadline if the coordinator is down.
    pub fn time_to_live(&self, key: impl AsRef<[u8]>) -> ReadCall<Option<TimeToLive>> {
        self.read_left(&Read::TimeToLive { key: key.as_ref() })
    }
}

impl<T> UpdateCall<T> {
    /// The same update with a lifetime.
    fn ending(
        self,
        time: Duration,
        with: impl for<'a> FnOnce(Update<'a>, Lifetime) -> Result<OwnedOperation, WhyNot>,
    ) -> Self {
        let Self { table, operation, options, convert } = self;
        let operation = operation.and_then(|operation| {
            let update = operation.update().expect("an update's call has one");
            with(update, lifetime_of(time)?)
        });
        Self { table, operation, options, convert }
    }
}

impl UpdateCall<u64> {
    /// The value ends after this time, which counts from when the update is sent. A later put without this makes the key's value
    /// one without end.
    pub fn expires_in(self, time: Duration) -> Self {
        self.ending(time, |update, lifetime| match update {
            Update::Put { key, value } | Update::PutExpiring { key, value, .. } => {
                Ok((&Update::PutExpiring { key, lifetime, value }).into())
            }
            _ => Err(WhyNot::Lifetime),
        })
    }
}

impl UpdateCall<Conditional> {
    /// If the condition holds, the value ends after this time, which counts from when the update is sent. A deletion leaves no
    /// value, so that it cannot have this.
    pub fn expires_in(self, time: Duration) -> Self {
        let table = self.table.id();
        let mut call = self.ending(time, |update, lifetime| match update {
            Update::PutIfAbsent { key, value } | Update::PutIfAbsentExpiring { key, value, .. } => {
                Ok((&Update::PutIfAbsentExpiring { key, lifetime, value }).into())
            }
            Update::PutIfVersion { key, .. } | Update::CompareAndPut { key, .. } => {
                let mut parts = PartsBuffer::default();
                parts.push(table, &PartOperation::Update(update));
                parts.push(table, &PartOperation::Update(Update::Expire { key, lifetime }));
                Ok((&Update::Transaction { parts: parts.as_parts() }).into())
            }
            _ => Err(WhyNot::Lifetime),
        });
        call.convert = conditional_of_parts;
        call
    }
}

/// Of a condition and the end of the value that it lets be put, if they are two.
fn conditional_of_parts(outcome: Outcome) -> Option<Conditional> {
    match outcome {
        Outcome::Parts(mut parts) => conditional(parts.pop()?),
        Outcome::NotCommitted(0, failed) => conditional(*failed),
        outcome => conditional(outcome),
    }
}

/// A counter that begins with this increment ends after this time: the next increment begins a new one.
fn counting(update: Update<'_>, lifetime: Lifetime) -> Result<OwnedOperation, WhyNot> {
    let (key, delta, bounds) = match update {
        Update::Increment { key, delta } => (key, delta, Bounds::NONE),
        Update::IncrementWithin { key, delta, bounds } | Update::IncrementExpiring { key, delta, bounds, .. } => {
            (key, delta, bounds)
        }
        _ => return Err(WhyNot::Lifetime),
    };
    Ok((&Update::IncrementExpiring { key, delta, bounds, lifetime }).into())
}

impl UpdateCall<Counter> {
    /// If the counter begins with this increment, because the key had no value, the counter ends after this time, which counts from
    /// when the increment is sent: one count for each period. A counter that is there keeps its end.
    pub fn expires_in(self, time: Duration) -> Self {
        self.ending(time, counting)
    }
}

impl UpdateCall<Bounded> {
    /// As of an increment without bounds: a quota for each period.
    pub fn expires_in(self, time: Duration) -> Self {
        self.ending(time, counting)
    }
}

impl Transaction {
    fn until<'a>(
        &mut self,
        time: Duration,
        update: impl FnOnce(Lifetime) -> Update<'a>,
        without: Update<'a>,
    ) -> Update<'a> {
        match lifetime_of(time) {
            Ok(lifetime) => update(lifetime),
            Err(why) => {
                self.is_wrong(why);
                without
            }
        }
    }

    /// Sets the key to a value that ends after this time, which counts from when the transaction is sent. The result is the key's
    /// new version.
    pub fn put_expiring(
        &mut self,
        table: &Table,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        time: Duration,
    ) -> PartId<u64> {
        let (key, value) = (key.as_ref(), value.as_ref());
        let update =
            self.until(time, |lifetime| Update::PutExpiring { key, lifetime, value }, Update::Put { key, value });
        self.update(table, update, version_of)
    }

    /// Gives the key's value, if there is one, another time to live. The result is the key's new version.
    pub fn expire(&mut self, table: &Table, key: impl AsRef<[u8]>, time: Duration) -> PartId<Option<u64>> {
        let key = key.as_ref();
        let update = self.until(time, |lifetime| Update::Expire { key, lifetime }, Update::Persist { key });
        self.update(table, update, deleted_of)
    }

    /// The key's value, if there is one, does not end any more. The result is the key's new version.
    pub fn persist(&mut self, table: &Table, key: impl AsRef<[u8]>) -> PartId<Option<u64>> {
        let key = key.as_ref();
        self.update(table, Update::Persist { key }, deleted_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_never_shorter_than_what_was_asked_for() {
        let millis = |time| lifetime_of(time).map(Lifetime::millis);
        assert_eq!(millis(Duration::from_nanos(1)), Ok(1));
        assert_eq!(millis(Duration::from_micros(1500)), Ok(2));
        assert_eq!(millis(Duration::MAX), Ok(u64::MAX));
        assert_eq!(millis(Duration::ZERO), Err(WhyNot::Lifetime));
    }
}
