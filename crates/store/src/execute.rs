//! Updates. All checks of an operation come out before its group is committed: it happens whole or not at all.

use kasha_log::{EntryKind, EntryOffset, GroupWriter, Part, entry_bytes};
use kasha_types::limits::VALUE_BYTES_MAX;
use kasha_types::planted::{self, Bug};
use kasha_types::{KeyHash, SegmentId, TableId, key_hash};
use kasha_wire::operation::{Item, Items};
use kasha_wire::{OutcomeCode, Update};

use crate::Store;
use crate::entry::{Found, HEAD_BYTES, head};

/// What became of the group that the update was executed in.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executed {
    /// Add the completion record and commit the group.
    Commit,
    /// An item failed after others had been written: drop the group, and record the result (an outcome that changed
    /// nothing) in a group of its own. The index is as it was.
    Discard,
}

/// Bytes of a decimal 64-bit number, sign included.
const NUMBER_BYTES_MAX: usize = 20;

/// What is known of a key, without borrowing the log.
struct Prior {
    at: EntryOffset,
    version: u64,
    oldest: SegmentId,
    /// Place and length of the value; `None`: deleted.
    value: Option<(u64, u32)>,
}

impl Prior {
    fn of(found: Found<'_>) -> Self {
        match found {
            Found::Object(at, object) => {
                let value = Some((at.payload() + object.value_offset() as u64, object.value.len() as u32));
                Self { at, version: object.version, oldest: object.oldest, value }
            }
            Found::Tombstone(at, tombstone) => {
                Self { at, version: tombstone.version, oldest: tombstone.oldest, value: None }
            }
        }
    }
}

/// One change of the index, so that a discarded group can be taken back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    hash: KeyHash,
    old: Option<EntryOffset>,
    new: EntryOffset,
    objects: i8,
}

/// What one execution has done so far.
struct Run<'r> {
    table: TableId,
    result: &'r mut Vec<u8>,
    dead: &'r mut Vec<EntryOffset>,
}

/// Why an item failed. The operation as a whole did nothing.
enum Failed {
    Overflow,
    NotANumber,
}

impl Store {
    /// Bytes of entries that an update needs at most; the completion record comes on top.
    #[must_use]
    pub fn bytes_needed(&self, log: &kasha_log::Log, table: TableId, update: &Update<'_>) -> usize {
        let object = |key: &[u8], value: usize| entry_bytes(HEAD_BYTES + key.len() + value);
        match *update {
            Update::Put { key, value }
            | Update::PutIfVersion { key, value, .. }
            | Update::PutIfAbsent { key, value } => object(key, value.len()),
            Update::Delete { key } | Update::DeleteIfVersion { key, .. } => object(key, 0),
            Update::Increment { key, .. } => object(key, NUMBER_BYTES_MAX),
            Update::Append { key, value } => {
                let old = match self.find(log, table, key) {
                    Some(Found::Object(_, object)) => object.value.len(),
                    Some(Found::Tombstone(..)) | None => 0,
                };
                object(key, (old + value.len()).min(VALUE_BYTES_MAX))
            }
            Update::MultiPut(items) => items.iter().map(|item| object(item.key, item.value.len())).sum(),
            Update::MultiDelete(items) => items.iter().map(|item| object(item.key, 0)).sum(),
            Update::MultiIncrement(items) => items.iter().map(|item| object(item.key, NUMBER_BYTES_MAX)).sum(),
        }
    }

    /// Executes an update into an open group that has room for [`Store::bytes_needed`].
    ///
    /// `result` is cleared and gets the result bytes; `dead` gets the entries that this update replaced, to be killed
    /// once the group is committed (empty when it is discarded).
    pub fn execute(
        &mut self,
        group: &mut GroupWriter<'_>,
        table: TableId,
        update: &Update<'_>,
        result: &mut Vec<u8>,
        dead: &mut Vec<EntryOffset>,
    ) -> Executed {
        result.clear();
        dead.clear();
        let mut run = Run { table, result, dead };
        match *update {
            Update::Put { key, value } => self.put(group, &mut run, key, value),
            Update::PutIfVersion { key, version, value } => {
                let current = self.current_version(group, table, key);
                if current == version {
                    self.put(group, &mut run, key, value);
                } else {
                    run.condition_failed(current);
                }
            }
            Update::PutIfAbsent { key, value } => match self.current_version(group, table, key) {
                0 => self.put(group, &mut run, key, value),
                current => run.condition_failed(current),
            },
            Update::Delete { key } => self.delete(group, &mut run, key, None),
            Update::DeleteIfVersion { key, version } => self.delete(group, &mut run, key, Some(version)),
            Update::Increment { key, delta } => match self.increment(group, &mut run, key, delta) {
                Ok((value, version, _)) => {
                    run.done();
                    run.result.extend_from_slice(&value.to_le_bytes());
                    run.result.extend_from_slice(&version.to_le_bytes());
                }
                Err(failed) => run.failed(&failed, None),
            },
            Update::Append { key, value } => self.append(group, &mut run, key, value),
            Update::MultiPut(items) => self.multi_put(group, &mut run, items),
            Update::MultiDelete(items) => self.multi_delete(group, &mut run, items),
            Update::MultiIncrement(items) => return self.multi_increment(group, &mut run, items),
        }
        Executed::Commit
    }

    fn prior(&self, group: &GroupWriter<'_>, table: TableId, key: &[u8]) -> Option<Prior> {
        self.find(group, table, key).map(Prior::of)
    }

    /// The version of a key's value; 0: it has none.
    fn current_version(&self, group: &GroupWriter<'_>, table: TableId, key: &[u8]) -> u64 {
        match self.find(group, table, key) {
            Some(Found::Object(_, object)) => object.version,
            Some(Found::Tombstone(..)) | None => 0,
        }
    }

    /// Writes a key's next object and points the index at it. Returns its version and what changed.
    fn write(
        &mut self,
        group: &mut GroupWriter<'_>,
        run: &mut Run<'_>,
        key: &[u8],
        prior: Option<&Prior>,
        parts: &[Part<'_>],
    ) -> (u64, Change) {
        // R4.8: whether this replica still has a key's tombstone, or another one let it go, must not show.
        let last = match prior {
            Some(Prior { version, value: Some(_), .. }) => *version,
            Some(Prior { version, value: None, .. }) => self.version_floor().max(*version),
            None => self.version_floor(),
        };
        let version = match planted::is_on(Bug::VersionFromPosition) {
            true => last.max(group.log().end().offset) + 1,
            false => last + 1,
        };
        let here = group.log().segment_of(group.log().end().offset);
        let oldest = prior.map_or(here, |prior| prior.oldest);
        let len = parts.iter().map(|part| match *part {
            Part::Bytes(bytes) => bytes.len() as u32,
            Part::Log { len, .. } => len,
        });
        let head = head(run.table, key, version, oldest, len.sum());
        // An append has the old value and the new part; everything else one part.
        let at = match *parts {
            [one] => group.entry_parts(EntryKind::Object, &[Part::Bytes(&head), Part::Bytes(key), one]),
            [old, new] => group.entry_parts(EntryKind::Object, &[Part::Bytes(&head), Part::Bytes(key), old, new]),
            _ => unreachable!("one part, or two"),
        };
        let hash = key_hash(run.table, key);
        let was_object = prior.is_some_and(|prior| prior.value.is_some());
        let old = prior.map(|prior| prior.at);
        self.point(hash, old, at);
        self.count(run.table, i64::from(!was_object));
        if was_object {
            run.dead.extend(old);
        }
        (version, Change { hash, old, new: at, objects: i8::from(!was_object) })
    }

    fn put(&mut self, group: &mut GroupWriter<'_>, run: &mut Run<'_>, key: &[u8], value: &[u8]) {
        let prior = self.prior(group, run.table, key);
        let (version, _) = self.write(group, run, key, prior.as_ref(), &[Part::Bytes(value)]);
        run.done();
        run.result.extend_from_slice(&version.to_le_bytes());
    }

    /// Writes a tombstone if the key has a value. Returns the version that was deleted.
    fn remove(&mut self, group: &mut GroupWriter<'_>, run: &mut Run<'_>, key: &[u8]) -> Option<u64> {
        let prior = self.prior(group, run.table, key).filter(|prior| prior.value.is_some())?;
        let killed = group.log().segment_of(prior.at.0);
        let head = head(run.table, key, prior.version + 1, prior.oldest, killed.0);
        let at = group.entry_parts(EntryKind::Tombstone, &[Part::Bytes(&head), Part::Bytes(key)]);
        let hash = key_hash(run.table, key);
        self.point(hash, Some(prior.at), at);
        self.bury_key((at, group.log().segment_of(at.0)), hash, prior.version + 1, prior.oldest, killed);
        self.count(run.table, -1);
        run.dead.push(prior.at);
        Some(prior.version)
    }

    fn delete(&mut self, group: &mut GroupWriter<'_>, run: &mut Run<'_>, key: &[u8], only: Option<u64>) {
        let current = self.current_version(group, run.table, key);
        if only.is_some_and(|version| version != current) {
            return run.condition_failed(current);
        }
        match self.remove(group, run, key) {
            Some(version) => {
                run.done();
                run.result.extend_from_slice(&version.to_le_bytes());
            }
            None => run.outcome(OutcomeCode::NotFound),
        }
    }

    fn increment(
        &mut self,
        group: &mut GroupWriter<'_>,
        run: &mut Run<'_>,
        key: &[u8],
        delta: i64,
    ) -> Result<(i64, u64, Change), Failed> {
        let found = self.find(group, run.table, key);
        let old = match found {
            Some(Found::Object(_, object)) => parse_number(object.value).ok_or(Failed::NotANumber)?,
            Some(Found::Tombstone(..)) | None => 0,
        };
        let prior = found.map(Prior::of);
        let new = old.checked_add(delta).ok_or(Failed::Overflow)?;
        let mut digits = [0; NUMBER_BYTES_MAX];
        let digits = format_number(new, &mut digits);
        let (version, change) = self.write(group, run, key, prior.as_ref(), &[Part::Bytes(digits)]);
        Ok((new, version, change))
    }

    fn append(&mut self, group: &mut GroupWriter<'_>, run: &mut Run<'_>, key: &[u8], value: &[u8]) {
        let prior = self.prior(group, run.table, key);
        let (offset, len) = prior.as_ref().and_then(|prior| prior.value).unwrap_or((0, 0));
        let total = len as usize + value.len();
        if total > VALUE_BYTES_MAX {
            return run.outcome(OutcomeCode::TooLarge);
        }
        let (version, _) = if len == 0 {
            self.write(group, run, key, prior.as_ref(), &[Part::Bytes(value)])
        } else {
            self.write(group, run, key, prior.as_ref(), &[Part::Log { offset, len }, Part::Bytes(value)])
        };
        run.done();
        run.result.extend_from_slice(&(total as u64).to_le_bytes());
        run.result.extend_from_slice(&version.to_le_bytes());
    }

    fn multi_put(&mut self, group: &mut GroupWriter<'_>, run: &mut Run<'_>, items: Items<'_>) {
        run.done();
        run.result.extend_from_slice(&items.count().to_le_bytes());
        for Item { key, value, .. } in items.iter() {
            let prior = self.prior(group, run.table, key);
            let (version, _) = self.write(group, run, key, prior.as_ref(), &[Part::Bytes(value)]);
            run.result.extend_from_slice(&version.to_le_bytes());
        }
    }

    fn multi_delete(&mut self, group: &mut GroupWriter<'_>, run: &mut Run<'_>, items: Items<'_>) {
        run.done();
        run.result.extend_from_slice(&items.count().to_le_bytes());
        for Item { key, .. } in items.iter() {
            let was_there = self.remove(group, run, key).is_some();
            run.result.push(u8::from(was_there));
        }
    }

    fn multi_increment(&mut self, group: &mut GroupWriter<'_>, run: &mut Run<'_>, items: Items<'_>) -> Executed {
        run.done();
        run.result.extend_from_slice(&items.count().to_le_bytes());
        self.changes.clear();
        for (index, Item { key, delta, .. }) in (0u32..).zip(items.iter()) {
            match self.increment(group, run, key, delta) {
                Ok((value, version, change)) => {
                    self.changes.push(change);
                    run.result.extend_from_slice(&value.to_le_bytes());
                    run.result.extend_from_slice(&version.to_le_bytes());
                }
                Err(failed) => {
                    self.take_back(run.table);
                    run.dead.clear();
                    run.failed(&failed, Some(index));
                    return Executed::Discard;
                }
            }
        }
        Executed::Commit
    }

    /// Takes back the index changes of a group that is discarded, newest first.
    fn take_back(&mut self, table: TableId) {
        while let Some(change) = self.changes.pop() {
            match change.old {
                Some(old) => self.index.replace(change.hash, old, |at| at == change.new),
                None => self.index.remove(change.hash, |at| at == change.new),
            };
            self.count(table, -i64::from(change.objects));
        }
    }
}

impl Run<'_> {
    fn outcome(&mut self, code: OutcomeCode) {
        self.result.clear();
        self.result.push(code as u8);
    }

    fn done(&mut self) {
        self.outcome(OutcomeCode::Done);
    }

    fn condition_failed(&mut self, current: u64) {
        self.outcome(OutcomeCode::ConditionFailed);
        self.result.extend_from_slice(&current.to_le_bytes());
    }

    fn failed(&mut self, failed: &Failed, index: Option<u32>) {
        self.outcome(match failed {
            Failed::Overflow => OutcomeCode::Overflow,
            Failed::NotANumber => OutcomeCode::NotANumber,
        });
        if let Some(index) = index {
            self.result.extend_from_slice(&index.to_le_bytes());
        }
    }
}

/// A decimal 64-bit number as Redis reads it: an optional minus, no leading zeros, no spaces.
fn parse_number(bytes: &[u8]) -> Option<i64> {
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let canonical = matches!(digits, [b'0'] | [b'1'..=b'9', ..]) && bytes != b"-0";
    if !canonical || bytes.len() > NUMBER_BYTES_MAX {
        return None;
    }
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

fn format_number(number: i64, buffer: &mut [u8; NUMBER_BYTES_MAX]) -> &[u8] {
    let mut at = buffer.len();
    let mut rest = number.unsigned_abs();
    loop {
        at -= 1;
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        at -= 1;
        buffer[at] = b'-';
    }
    &buffer[at..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_redis() {
        for number in [0, 1, -1, 10, i64::MAX, i64::MIN] {
            let mut buffer = [0; NUMBER_BYTES_MAX];
            let bytes = format_number(number, &mut buffer).to_vec();
            assert_eq!(bytes, number.to_string().into_bytes());
            assert_eq!(parse_number(&bytes), Some(number));
        }
        for bad in [&b""[..], b"-", b"-0", b"01", b" 1", b"+1", b"1 ", b"9223372036854775808", b"x"] {
            assert_eq!(parse_number(bad), None, "{bad:?}");
        }
    }
}
