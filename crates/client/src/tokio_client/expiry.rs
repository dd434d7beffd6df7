//! Values that end: calls that give a value a time to live, change it, and ask for it.
//!
//! A lifetime counts from when the update is sent for the first time, in the cluster's own clock. A value does not end before its
//! time by any node's clock; the guarantees say how late it may end, and what an outage of the coordinator does.

use std::time::Duration;

use kasha_wire::operation::{Ends, Lifetime};
use kasha_wire::{Read, Update};

use super::values::{deleted_of, version_of};
use super::{Bounded, Conditional, Counter, Exchanged, PartId, ReadCall, Replaced, Table, Transaction, UpdateCall};
use crate::session::{TimeToLive, WhyNot, lifetime_of};

impl Table {
    /// Gives the key's value, if there is one, another time to live, counted from now. Returns the key's new version.
    pub fn expire(&self, key: impl AsRef<[u8]>, time: Duration) -> UpdateCall<Option<u64>> {
        match lifetime_of(time) {
            Ok(lifetime) => self.update(&Update::expire(key.as_ref(), lifetime), deleted_of),
            Err(why) => UpdateCall::new(self.clone(), Err(why), deleted_of),
        }
    }

    /// The key's value, if there is one, does not end any more. Returns the key's new version.
    pub fn persist(&self, key: impl AsRef<[u8]>) -> UpdateCall<Option<u64>> {
        self.update(&Update::persist(key.as_ref()), deleted_of)
    }

    /// When the key's value ends; `None`: the key has no value. A new client waits until the coordinator has told it the time, and
    /// fails at its deadline if the coordinator is down.
    pub fn time_to_live(&self, key: impl AsRef<[u8]>) -> ReadCall<Option<TimeToLive>> {
        self.read_left(&Read::TimeToLive { key: key.as_ref() })
    }
}

impl<T> UpdateCall<T> {
    /// The same update with a lifetime.
    fn ending(self, time: Duration, ends: fn(Lifetime) -> Ends) -> Self {
        let convert = self.convert;
        self.changed(convert, |update| update.with_ends(ends(lifetime_of(time)?)).ok_or(WhyNot::Lifetime))
    }
}

impl UpdateCall<u64> {
    /// The value ends after this time, which counts from when the update is sent. A later put without this makes the key's value
    /// one without end.
    pub fn expires_in(self, time: Duration) -> Self {
        self.ending(time, Ends::After)
    }
}

impl UpdateCall<Conditional> {
    /// If the condition holds, the value ends after this time, which counts from when the update is sent. A deletion leaves no
    /// value, so that it cannot have this.
    pub fn expires_in(self, time: Duration) -> Self {
        self.ending(time, Ends::After)
    }
}

impl UpdateCall<Replaced> {
    /// The new value ends after this time, which counts from when the update is sent.
    pub fn expires_in(self, time: Duration) -> Self {
        self.ending(time, Ends::After)
    }
}

impl UpdateCall<Exchanged> {
    /// If the condition holds, the new value ends after this time, which counts from when the update is sent.
    pub fn expires_in(self, time: Duration) -> Self {
        self.ending(time, Ends::After)
    }
}

impl UpdateCall<Counter> {
    /// If the counter begins with this increment, because the key had no value, the counter ends after this time, which counts from
    /// when the increment is sent: one count for each period. A counter that is there keeps its end.
    pub fn expires_in(self, time: Duration) -> Self {
        self.ending(time, Ends::AfterMade)
    }
}

impl UpdateCall<Bounded> {
    /// As of an increment without bounds: a quota for each period.
    pub fn expires_in(self, time: Duration) -> Self {
        self.ending(time, Ends::AfterMade)
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
        let update = self.until(time, |lifetime| Update::put_expiring(key, lifetime, value), Update::put(key, value));
        self.update(table, update, version_of)
    }

    /// Gives the key's value, if there is one, another time to live. The result is the key's new version.
    pub fn expire(&mut self, table: &Table, key: impl AsRef<[u8]>, time: Duration) -> PartId<Option<u64>> {
        let key = key.as_ref();
        let update = self.until(time, |lifetime| Update::expire(key, lifetime), Update::persist(key));
        self.update(table, update, deleted_of)
    }

    /// The key's value, if there is one, does not end any more. The result is the key's new version.
    pub fn persist(&mut self, table: &Table, key: impl AsRef<[u8]>) -> PartId<Option<u64>> {
        let key = key.as_ref();
        self.update(table, Update::persist(key), deleted_of)
    }
}
