//! Drafts, written: the entries of their changes, and where the index leads.

use kasha_log::{EntryKind, EntryOffset, GroupWriter, Part};

use crate::Store;
use crate::draft::{Draft, Next, NextEntry, Prior, Value};
use crate::entry::{Flushed, ending, head};
use crate::graves::Grave;

impl Store {
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
                Next::Flush => {
                    change.at = self.flush(group, change, dead);
                    continue;
                }
                Next::Value(value) => write_object(group, change, value, made),
                Next::Nothing => {
                    let killed = group.log().segment_of(old.expect("what is deleted is there"));
                    let key = change.key.bytes(made);
                    let head = head(change.table, key, change.version, change.oldest, killed.0);
                    let at = group.entry_parts(EntryKind::Tombstone, &[Part::Bytes(&head), Part::Bytes(key)]);
                    let NextEntry { hash, version, oldest, .. } = *change;
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
            if !was_object && change.prior.is_flushed() {
                self.tables.flushed_goes(change.table);
            }
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

impl Store {
    /// Writes a flush: what the table has by now is ended. Gives the place of its entry.
    #[cold]
    #[inline(never)]
    fn flush(
        &mut self,
        group: &mut GroupWriter<'_>,
        &NextEntry { table, version, .. }: &NextEntry<'_>,
        dead: &mut Vec<EntryOffset>,
    ) -> EntryOffset {
        let payload = Flushed { table, version }.encode();
        let at = group.entry_parts(EntryKind::TableFlushed, &[Part::Bytes(&payload)]);
        dead.extend(self.tables.flush(table, version, at));
        at
    }
}

fn write_object(group: &mut GroupWriter<'_>, change: &NextEntry<'_>, value: &Value<'_>, made: &[u8]) -> EntryOffset {
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
