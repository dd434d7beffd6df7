//! Updates: what each of them changes and answers, as a draft.
//!
//! [`Store::draft`] runs an update against the store and writes nothing. The draft has the changes, the result and its
//! size. [`Store::write`] then puts the changes into an open entry group and points the index at them. An operation
//! that fails (a condition, an overflow, a limit) drafts a result and no change; a transaction of which a part fails
//! drops the changes of the other parts too.
//!
//! Results depend only on the arguments and the objects touched (**R4.8**), so that a witness's replay gives the same
//! bytes. Clients, completion records and syncs are not known here.

use kasha_log::{EntryKind, EntryOffset, GroupWriter, Log, Part};
use kasha_types::limits::{TRANSACTION_BYTES_MAX, VALUE_BYTES_MAX};
use kasha_types::planted::{self, Bug};
use kasha_types::{ClusterTime, TableId};
use kasha_wire::operation::{self, Bounds, Check, Item, Items, Lifetime, PartOperation, Parts};
use kasha_wire::{OutcomeCode, Read, Update};

use crate::Store;
use crate::draft::{Change, Draft, Next, Prior, Seen, SpareDraft, Value};
use crate::entry::{ending, head};
use crate::graves::Grave;
use crate::number::Number;

/// An operation that is being drafted.
struct Run<'r, 'a> {
    store: &'r Store,
    log: &'r Log,
    table: TableId,
    /// What lifetimes count from.
    begun: ClusterTime,
    draft: Draft<'a>,
}

/// Why an item failed. The operation as a whole does nothing.
enum Failed {
    Overflow,
    NotANumber,
}

impl Store {
    /// What an update will change and answer. Nothing is written. Lifetimes count from when the update was `begun`.
    pub fn draft<'a>(
        &self,
        log: &Log,
        (table, begun): (TableId, ClusterTime),
        update: &Update<'a>,
        spare: SpareDraft,
    ) -> Draft<'a> {
        let mut run = Run { store: self, log, table, begun, draft: Draft::new(spare) };
        match *update {
            Update::Transaction { parts } => run.transaction(parts),
            _ => run.update(update),
        }
        run.draft
    }

    /// Writes a draft into an open group that has room for [`Draft::bytes`], and points the index at the new entries.
    ///
    /// `dead` gets the entries that they replace, to be killed once the group is committed.
    ///
    /// The store must be what it was when the draft was made.
    ///
    /// # Panics
    /// If a key that had an entry then leads to another one now.
    pub fn write(&mut self, group: &mut GroupWriter<'_>, draft: &mut Draft<'_>, dead: &mut Vec<EntryOffset>) {
        let here = group.log().segment_behind(group.log().end().offset);
        let (changes, made) = draft.pending();
        for number in 0..changes.len() {
            let (before, rest) = changes.split_at_mut(number);
            let change = &mut rest[0];
            let (old, old_ends) = change.replaces(before);
            change.oldest = match change.prior {
                Prior::None => here,
                Prior::Logged { oldest, .. } => oldest,
                Prior::Drafted { change, .. } => before[change].oldest,
            };
            change.at = match &change.next {
                Next::Withheld => continue,
                Next::Value(value) => write_object(group, change, value, made),
                Next::Nothing => {
                    let killed = group.log().segment_of(old.expect("what is deleted is there"));
                    let key = change.key.bytes(made);
                    let head = head(change.table, key, change.version, change.oldest, killed.0);
                    let at = group.entry_parts(EntryKind::Tombstone, &[Part::Bytes(&head), Part::Bytes(key)]);
                    let Change { hash, version, oldest, .. } = *change;
                    let grave = Grave { hash, version, oldest, killed };
                    self.graves.bury(group.log(), at, grave);
                    at
                }
            };
            match change.prior {
                Prior::Logged { at, bucket, .. } => self.point_from(bucket, change.hash, at, change.at),
                Prior::None | Prior::Drafted { .. } => self.point(change.hash, old, change.at),
            }
            let (was_object, is_object) = (change.prior.is_object(), matches!(change.next, Next::Value(_)));
            self.count(change.table, i64::from(is_object) - i64::from(was_object));
            self.expiries.add(change.at, change.ends);
            // The new entry names the oldest segment that a tombstone names, so that the tombstone is needed no more.
            if let Some(old) = old {
                self.graves.remove(old);
                self.expiries.remove(old, old_ends);
                dead.push(old);
            }
        }
    }
}

fn write_object(group: &mut GroupWriter<'_>, change: &Change<'_>, value: &Value<'_>, made: &[u8]) -> EntryOffset {
    let value_len = u32::try_from(value.len()).expect("a value is small");
    let key = change.key.bytes(made);
    let head = head(change.table, key, change.version, change.oldest, value_len);
    if let Some(ends) = change.ends {
        return write_ending(group, key, (&ending(head), &ends.0.to_le_bytes()), value, made);
    }
    let (head, key) = (Part::Bytes(&head), Part::Bytes(key));
    match *value {
        Value::Bytes(bytes) => group.entry_parts(EntryKind::Object, &[head, key, Part::Bytes(bytes)]),
        Value::Number(ref number) => group.entry_parts(EntryKind::Object, &[head, key, Part::Bytes(number.as_bytes())]),
        Value::Appended { offset, len, added } => {
            group.entry_parts(EntryKind::Object, &[head, key, Part::Log { offset, len }, Part::Bytes(added)])
        }
        Value::Made { from, len } => {
            let value = &made[from as usize..][..len as usize];
            group.entry_parts(EntryKind::Object, &[head, key, Part::Bytes(value)])
        }
    }
}

/// The same with a value that ends: apart, so that the values that do not pay nothing.
#[cold]
#[inline(never)]
fn write_ending(
    group: &mut GroupWriter<'_>,
    key: &[u8],
    (head, ends): (&[u8], &[u8]),
    value: &Value<'_>,
    made: &[u8],
) -> EntryOffset {
    let [first, second] = match *value {
        Value::Bytes(bytes) => [Part::Bytes(bytes), Part::Bytes(&[])],
        Value::Number(ref number) => [Part::Bytes(number.as_bytes()), Part::Bytes(&[])],
        Value::Appended { offset, len, added } => [Part::Log { offset, len }, Part::Bytes(added)],
        Value::Made { from, len } => [Part::Bytes(&made[from as usize..][..len as usize]), Part::Bytes(&[])],
    };
    group.entry_parts(EntryKind::Object, &[Part::Bytes(head), Part::Bytes(key), first, second, Part::Bytes(ends)])
}

impl<'r, 'a> Run<'r, 'a> {
    #[inline(always)]
    fn update(&mut self, update: &Update<'a>) {
        match *update {
            Update::Put { key, value } => self.put(key, value),
            Update::PutIfVersion { key, version, value } => self.put_if(key, version, value),
            Update::PutIfAbsent { key, value } => self.put_if(key, 0, value),
            Update::Delete { key } => self.delete(key, None),
            Update::DeleteIfVersion { key, version } => self.delete(key, Some(version)),
            Update::Increment { key, delta } => self.increment_one(key, delta),
            Update::IncrementWithin { key, delta, bounds } => self.increment_within(key, delta, bounds, None),
            Update::Append { key, value } => self.append(key, value),
            Update::GetAndPut { key, value } => self.get_and_put(key, value),
            Update::GetAndDelete { key } => self.get_and_delete(key),
            Update::CompareAndPut { key, expected, value } => self.compare_and_put(key, expected, value),
            Update::PutExpiring { key, lifetime, value } => self.put_expiring(key, lifetime, value),
            Update::PutIfAbsentExpiring { key, lifetime, value } => self.put_if_absent_expiring(key, lifetime, value),
            Update::IncrementExpiring { key, delta, bounds, lifetime } => {
                self.increment_within(key, delta, bounds, Some(lifetime));
            }
            Update::Expire { key, lifetime } => self.end_at(key, Some(lifetime.ends(self.begun))),
            Update::Persist { key } => self.end_at(key, None),
            Update::MultiPut { pairs: items } => self.multi_put(items),
            Update::MultiDelete { keys: items } => self.multi_delete(items),
            Update::MultiIncrement { deltas: items } => self.multi_increment(items),
            Update::Transaction { .. } => unreachable!("a part of a transaction is none"),
        }
    }

    fn see(&mut self, key: &[u8]) -> Seen<'r> {
        self.draft.see(self.store, self.log, self.table, key)
    }

    /// Gives a key its next value, without end. Returns the value's version.
    fn put_seen(&mut self, key: &'a [u8], seen: Seen<'r>, value: Value<'a>) -> u64 {
        self.put_ending(key, seen, value, None)
    }

    /// The same with a value that ends then.
    fn put_ending(&mut self, key: &'a [u8], seen: Seen<'r>, value: Value<'a>, ends: Option<ClusterTime>) -> u64 {
        let seen = match planted::is_on(Bug::VersionFromPosition) {
            true => seen.above(self.log.end().offset.0),
            false => seen,
        };
        self.draft.put(self.table, key, &seen, (value, ends))
    }

    fn put(&mut self, key: &'a [u8], value: &'a [u8]) {
        let seen = self.see(key);
        self.put_done(key, seen, value);
    }

    fn put_if(&mut self, key: &'a [u8], version: u64, value: &'a [u8]) {
        let seen = self.see(key);
        match seen.version() {
            current if current == version => self.put_done(key, seen, value),
            current => self.condition_failed(current),
        }
    }

    fn put_done(&mut self, key: &'a [u8], seen: Seen<'r>, value: &'a [u8]) {
        let version = self.put_seen(key, seen, Value::Bytes(value));
        self.done();
        self.tell(version);
    }

    fn put_expiring(&mut self, key: &'a [u8], lifetime: Lifetime, value: &'a [u8]) {
        let seen = self.see(key);
        self.put_expiring_done(key, seen, lifetime, value);
    }

    fn put_expiring_done(&mut self, key: &'a [u8], seen: Seen<'r>, lifetime: Lifetime, value: &'a [u8]) {
        let version = self.put_ending(key, seen, Value::Bytes(value), Some(lifetime.ends(self.begun)));
        self.done();
        self.tell(version);
    }

    fn put_if_absent_expiring(&mut self, key: &'a [u8], lifetime: Lifetime, value: &'a [u8]) {
        let seen = self.see(key);
        match seen.version() {
            0 => self.put_expiring_done(key, seen, lifetime, value),
            current => self.condition_failed(current),
        }
    }

    /// Gives the value that is there another end, or none.
    fn end_at(&mut self, key: &'a [u8], ends: Option<ClusterTime>) {
        let seen = self.see(key);
        if seen.value().is_none() {
            return self.draft.answer(OutcomeCode::NotFound);
        }
        let same = self.draft.appended(self.log, seen.value(), &[]);
        let version = self.put_ending(key, seen, same, ends);
        self.done();
        self.tell(version);
    }

    /// Deletes a key if it has a value. Returns the version that is deleted.
    fn remove(&mut self, key: &'a [u8], seen: Seen<'r>) -> Option<u64> {
        seen.value()?;
        self.draft.remove(self.table, key, &seen);
        Some(seen.version())
    }

    fn delete(&mut self, key: &'a [u8], only: Option<u64>) {
        let seen = self.see(key);
        let current = seen.version();
        if only.is_some_and(|version| version != current) {
            return self.condition_failed(current);
        }
        match self.remove(key, seen) {
            Some(version) => {
                self.done();
                self.tell(version);
            }
            None => self.draft.answer(OutcomeCode::NotFound),
        }
    }

    /// Adds to a counter. Returns its new value and version.
    fn increment(&mut self, key: &'a [u8], delta: i64) -> Result<(i64, u64), Failed> {
        let seen = self.see(key);
        let number = |current| self.draft.number(self.log, current);
        let old = seen.value().map_or(Some(0), number).ok_or(Failed::NotANumber)?;
        let new = old.checked_add(delta).ok_or(Failed::Overflow)?;
        Ok((new, self.put_ending(key, seen, Value::Number(Number::new(new)), seen.ends())))
    }

    fn increment_one(&mut self, key: &'a [u8], delta: i64) {
        match self.increment(key, delta) {
            Ok((value, version)) => {
                self.done();
                self.tell_number(value, version);
            }
            Err(failed) => self.failed(&failed),
        }
    }

    /// `lifetime`: of a counter that it makes; one that is there keeps its end.
    fn increment_within(&mut self, key: &'a [u8], delta: i64, bounds: Bounds, lifetime: Option<Lifetime>) {
        let seen = self.see(key);
        let number = |current| self.draft.number(self.log, current);
        let Some(old) = seen.value().map_or(Some(0), number) else { return self.failed(&Failed::NotANumber) };
        if old.checked_add(delta).is_none() {
            return self.failed(&Failed::Overflow);
        }
        match bounds.add(old, delta) {
            Some(new) => {
                let begins = lifetime.filter(|_| seen.value().is_none());
                let ends = begins.map_or(seen.ends(), |lifetime| Some(lifetime.ends(self.begun)));
                let version = self.put_ending(key, seen, Value::Number(Number::new(new)), ends);
                self.done();
                self.tell_number(new, version);
            }
            None => {
                self.draft.answer(OutcomeCode::OutOfBounds);
                self.tell_number(old, seen.version());
            }
        }
    }

    fn append(&mut self, key: &'a [u8], value: &'a [u8]) {
        let seen = self.see(key);
        let len = seen.value().map_or(0, |current| self.draft.pieces(self.log, current).map(<[u8]>::len).iter().sum());
        let total: usize = len + value.len();
        if total > VALUE_BYTES_MAX {
            return self.draft.answer(OutcomeCode::TooLarge);
        }
        let appended = self.draft.appended(self.log, seen.value(), value);
        let version = self.put_ending(key, seen, appended, seen.ends());
        self.done();
        self.tell(total as u64);
        self.tell(version);
    }

    fn get_and_put(&mut self, key: &'a [u8], value: &'a [u8]) {
        let seen = self.see(key);
        let version = self.put_seen(key, seen, Value::Bytes(value));
        self.done();
        self.tell(version);
        self.tell(seen.version());
        self.tell_value(&seen);
    }

    fn get_and_delete(&mut self, key: &'a [u8]) {
        let seen = self.see(key);
        match self.remove(key, seen) {
            Some(version) => {
                self.done();
                self.tell(version);
                self.tell_value(&seen);
            }
            None => self.draft.answer(OutcomeCode::NotFound),
        }
    }

    fn compare_and_put(&mut self, key: &'a [u8], expected: &[u8], value: &'a [u8]) {
        let seen = self.see(key);
        match self.has_value(&seen, expected) {
            true => self.put_done(key, seen, value),
            false => self.condition_failed(seen.version()),
        }
    }

    fn has_value(&self, seen: &Seen<'r>, expected: &[u8]) -> bool {
        seen.value().is_some_and(|current| {
            let [first, second] = self.draft.pieces(self.log, current);
            expected.strip_prefix(first) == Some(second)
        })
    }

    fn multi_put(&mut self, items: Items<'a>) {
        self.done_with(items);
        for Item { key, value, .. } in items.iter() {
            let seen = self.see(key);
            let version = self.put_seen(key, seen, Value::Bytes(value));
            self.tell(version);
        }
    }

    fn multi_delete(&mut self, items: Items<'a>) {
        self.done_with(items);
        for Item { key, .. } in items.iter() {
            let seen = self.see(key);
            let was_there = self.remove(key, seen).is_some();
            self.draft.answer_bytes(&[u8::from(was_there)]);
        }
    }

    fn multi_increment(&mut self, items: Items<'a>) {
        self.done_with(items);
        for (index, Item { key, delta, .. }) in (0u32..).zip(items.iter()) {
            match self.increment(key, delta) {
                Ok((value, version)) => self.tell_number(value, version),
                Err(failed) => {
                    self.draft.clear();
                    self.failed(&failed);
                    self.draft.answer_bytes(&index.to_le_bytes());
                    // What it waits for is judged by all its keys, as witnesses judge it (C1).
                    return items.iter().skip(index as usize + 1).for_each(|item| {
                        self.see(item.key);
                    });
                }
            }
        }
    }

    /// The parts run one after the other. The first that fails, or that makes the transaction too large, is all that is
    /// told, and nothing changes. The result counts twice: it may be kept under an operation key as well.
    #[cold]
    #[inline(never)]
    fn transaction(&mut self, parts: Parts<'a>) {
        self.draft.begin_parts(parts.count());
        for (number, part) in (0u32..).zip(parts.iter()) {
            self.draft.begin_part(part.operation.code());
            self.part(&part);
            if self.draft.bytes() + 2 * self.draft.result().len() > TRANSACTION_BYTES_MAX {
                self.draft.answer(OutcomeCode::TooLarge);
            }
            let is_done = match self.draft.end_part() {
                OutcomeCode::Done | OutcomeCode::NotFound => true,
                OutcomeCode::ConditionFailed
                | OutcomeCode::Overflow
                | OutcomeCode::NotANumber
                | OutcomeCode::OutOfBounds
                | OutcomeCode::TooLarge => planted::is_on(Bug::FailedPartPassed),
                OutcomeCode::Cancelled
                | OutcomeCode::OperationKeyMismatch
                | OutcomeCode::NotCommitted
                | OutcomeCode::Conflict
                | OutcomeCode::RefusedElsewhere
                | OutcomeCode::Prepared
                | OutcomeCode::Repeated => {
                    unreachable!("no part answers so")
                }
            };
            if !is_done {
                self.draft.fail_at_part(number);
                // What it waits for is judged by all its keys, as witnesses judge it (C1).
                return parts.iter().skip(number as usize + 1).for_each(|part| self.see_key_of(&part));
            }
        }
    }

    #[inline(never)]
    fn part(&mut self, part: &operation::Part<'a>) {
        self.table = part.table;
        match part.operation {
            PartOperation::Update(update) => self.update(&update),
            PartOperation::Read(Read::Get { key }) => {
                let seen = self.see(key);
                match seen.value() {
                    Some(_) => {
                        self.done();
                        self.tell(seen.version());
                        self.tell_value(&seen);
                    }
                    None => self.draft.answer(OutcomeCode::NotFound),
                }
            }
            PartOperation::Read(Read::Exists { key }) => {
                let exists = self.see(key).value().is_some();
                self.done();
                self.draft.answer_bytes(&[u8::from(exists)]);
            }
            PartOperation::Read(Read::TimeToLive { key }) => {
                let seen = self.see(key);
                match seen.value() {
                    Some(_) => {
                        self.done();
                        self.tell(seen.version());
                        self.tell(seen.ends().map_or(0, |ends| ends.0));
                    }
                    None => self.draft.answer(OutcomeCode::NotFound),
                }
            }
            PartOperation::Read(
                Read::MultiGet { .. } | Read::Observe { .. } | Read::Scan { .. } | Read::ScanValues { .. },
            ) => unreachable!("a part has one key"),
            PartOperation::Check(Check::HasVersion { key, version }) => {
                let seen = self.see(key);
                self.check(seen.version() == version, &seen);
            }
            PartOperation::Check(Check::HasValue { key, expected }) => {
                let seen = self.see(key);
                self.check(self.has_value(&seen, expected), &seen);
            }
        }
    }

    fn check(&mut self, holds: bool, seen: &Seen<'_>) {
        if holds {
            self.done();
            self.tell(seen.version());
        } else {
            self.condition_failed(seen.version());
        }
    }

    fn see_key_of(&mut self, part: &operation::Part<'a>) {
        self.table = part.table;
        self.see(part.operation.key());
    }

    fn tell_value(&mut self, seen: &Seen<'_>) {
        if let Some(current) = seen.value() {
            self.draft.answer_value(self.log, current);
        }
    }

    fn done(&mut self) {
        self.draft.answer(OutcomeCode::Done);
    }

    fn done_with(&mut self, items: Items<'_>) {
        self.done();
        self.draft.answer_bytes(&items.count().to_le_bytes());
    }

    fn tell(&mut self, number: u64) {
        self.draft.answer_bytes(&number.to_le_bytes());
    }

    fn tell_number(&mut self, value: i64, version: u64) {
        self.draft.answer_bytes(&value.to_le_bytes());
        self.tell(version);
    }

    fn condition_failed(&mut self, current: u64) {
        self.draft.answer(OutcomeCode::ConditionFailed);
        self.tell(current);
    }

    fn failed(&mut self, failed: &Failed) {
        self.draft.answer(match failed {
            Failed::Overflow => OutcomeCode::Overflow,
            Failed::NotANumber => OutcomeCode::NotANumber,
        });
    }
}
