//! Drafts: what an operation will change and answer, before anything is written.
//!
//! An operation reads the store through its draft, which shows it what the operation itself has changed so far, and adds changes
//! to the draft. The draft knows its size, so one entry group is opened that surely has room, and [`crate::Store::write`] cannot
//! fail. A draft that is dropped leaves no trace.

use hashbrown::HashTable;
use kasha_commands::ReplyWriter;
use kasha_log::{EntryOffset, IndexBucket, Log, entry_bytes};
use kasha_types::planted::{self, Bug};
use kasha_types::{ClusterTime, KeyHash, SegmentId, TableId, key_hash};
use kasha_wire::OutcomeCode;
use kasha_wire::outcome::Shape;

use crate::Store;
use crate::entry::{FLUSHED_BYTES, Found, HEAD_BYTES, Object, ends_bytes};
use crate::number::Number;

/// What one operation will change and answer.
#[derive(Debug)]
pub struct Draft<'a> {
    pub(crate) changes: Vec<NextEntry<'a>>,
    /// In a box, so that a draft is handed from stage to stage as a few words.
    more: Box<More>,
}

/// What a draft holds besides its changes.
#[derive(Debug, Default)]
struct More {
    result: Vec<u8>,
    /// Where the result begins of the part that runs; 0 if the operation has no parts.
    part_at: usize,
    /// Values that are made of others ([`Value::Made`]), and keys that the operation does not name ([`Key::Made`]).
    made: Vec<u8>,
    /// The last change of each key, among so many first changes: an operation on one key never needs it.
    last_of_key: HashTable<usize>,
    /// Tables that the operation has flushed, and the number of the change that does so last.
    flushed: Vec<(TableId, usize)>,
    indexed: usize,
    /// Of the changes' entries.
    bytes: usize,
    sees_absence: bool,
    /// It must be told synced, and on no fast path.
    is_synced: bool,
    hashes: Vec<KeyHash>,
    /// Of a batch that ends early: so many of the hashes are of the parts that run.
    ran: Option<usize>,
}

/// What the result of most parts takes: its shape and length, an outcome, a number and a version.
const PART_RESULT_BYTES: usize = 24;

/// Where an entry is that is not written yet.
const UNWRITTEN: EntryOffset = EntryOffset(u64::MAX);

/// Memory that is kept for the next result: most results are short, and a value of a megabyte is rare.
const RESULT_BYTES_KEPT: usize = 16 * 1024;

/// Before each part's result: its shape, and its length.
const PART_HEAD_BYTES: usize = 5;

/// The memory of a draft that is done with, for the next one.
#[derive(Debug, Default)]
pub struct SpareDraft {
    changes: Vec<NextEntry<'static>>,
    more: Option<Box<More>>,
}

/// The key of a change.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Key<'a> {
    /// The operation names it.
    Named(&'a [u8]),
    /// The draft keeps it: no operation names it, or what names it does not live for as long as the draft.
    Made { from: u32, len: u32 },
}

impl<'a> From<&'a [u8]> for Key<'a> {
    fn from(key: &'a [u8]) -> Self {
        Self::Named(key)
    }
}

impl Key<'_> {
    /// Its bytes. `made`: what its draft keeps.
    #[inline]
    pub fn bytes<'k>(&'k self, made: &'k [u8]) -> &'k [u8] {
        match *self {
            Self::Named(key) => key,
            Self::Made { from, len } => &made[from as usize..][..len as usize],
        }
    }

    fn len(self) -> usize {
        match self {
            Self::Named(key) => key.len(),
            Self::Made { len, .. } => len as usize,
        }
    }
}

/// A key's next entry.
#[derive(Debug)]
pub(crate) struct NextEntry<'a> {
    pub table: TableId,
    pub key: Key<'a>,
    pub hash: KeyHash,
    pub prior: Prior,
    pub version: u64,
    pub next: Next<'a>,
    /// When the value that it leaves ends.
    pub ends: Option<ClusterTime>,
    /// Where the entry is, once it is written.
    pub at: EntryOffset,
    /// First segment that may hold an older entry of the key, once this one is written.
    pub oldest: SegmentId,
}

impl NextEntry<'_> {
    fn is_of(&self, (hash, table, key): (KeyHash, TableId, &[u8]), made: &[u8]) -> bool {
        self.hash == hash && self.table == table && self.key.bytes(made) == key
    }
}

/// What a change leaves.
#[derive(Debug)]
pub(crate) enum Next<'a> {
    Value(Value<'a>),
    Nothing,
    /// No key of the table has a value: the change's version is that of the flush.
    Flush,
    /// It is not to be written after all ([`Draft::withhold`]).
    Withheld,
}

/// A value that is not written yet.
#[derive(Debug)]
pub(crate) enum Value<'a> {
    Bytes(&'a [u8]),
    Number(Number),
    /// A value in the log, and what is added to it.
    Appended {
        offset: u64,
        len: u32,
        added: &'a [u8],
    },
    /// A value that the draft keeps, because no entry and no argument holds it as a whole.
    Made {
        from: u32,
        len: u32,
    },
}

impl Value<'_> {
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Number(number) => number.as_bytes().len(),
            Self::Appended { len, added, .. } => *len as usize + added.len(),
            Self::Made { len, .. } => *len as usize,
        }
    }
}

/// A key's newest entry before a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prior {
    None,
    Logged {
        at: EntryOffset,
        /// Where the index leads there.
        bucket: IndexBucket,
        is: Was,
        oldest: SegmentId,
        ends: Option<ClusterTime>,
    },
    /// The change with this number in the same draft.
    Drafted {
        change: usize,
        is: Was,
    },
}

/// What a key's newest entry is before a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Was {
    Object,
    /// An object that a flush has ended.
    Flushed,
    Tombstone,
}

impl NextEntry<'_> {
    /// Where the entry is that it replaces, and when that one's value would have ended. `before`: the changes before it.
    pub fn replaces(&self, before: &[Self]) -> (Option<EntryOffset>, Option<ClusterTime>) {
        match self.prior {
            Prior::None => (None, None),
            Prior::Logged { at, ends, .. } => (Some(at), ends),
            Prior::Drafted { change, .. } => (Some(before[change].at), before[change].ends),
        }
    }
}

impl Prior {
    pub fn is_object(self) -> bool {
        self.is(Was::Object)
    }

    pub fn is_flushed(self) -> bool {
        self.is(Was::Flushed)
    }

    #[inline]
    fn is(self, was: Was) -> bool {
        match self {
            Self::None => false,
            Self::Logged { is, .. } | Self::Drafted { is, .. } => is == was,
        }
    }
}

/// What an operation sees of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'l> {
    hash: KeyHash,
    prior: Prior,
    /// The key's versions go on above it.
    last: u64,
    value: Option<Current<'l>>,
    ends: Option<ClusterTime>,
}

/// Where the value is that an operation sees.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Current<'l> {
    Logged {
        offset: u64,
        bytes: &'l [u8],
    },
    /// In the change with this number.
    Drafted(usize),
}

impl SpareDraft {
    /// What the last draft answered.
    #[must_use]
    pub fn result(&self) -> &[u8] {
        self.more.as_ref().map_or(&[], |more| &more.result)
    }
}

impl<'l> Seen<'l> {
    /// The version of the value; 0: there is none.
    pub fn version(&self) -> u64 {
        if self.value.is_some() { self.last } else { 0 }
    }

    pub fn value(&self) -> Option<Current<'l>> {
        self.value
    }

    /// When the value ends; `None`: never, or there is none.
    pub fn ends(&self) -> Option<ClusterTime> {
        self.ends
    }

    /// With versions that go on above this one, too.
    pub fn above(self, version: u64) -> Self {
        Self { last: self.last.max(version), ..self }
    }
}

impl<'a> Draft<'a> {
    pub(crate) fn new(spare: SpareDraft) -> Self {
        let mut more = spare.more.unwrap_or_default();
        more.result.clear();
        more.made.clear();
        more.last_of_key.clear();
        more.flushed.clear();
        more.hashes.clear();
        (more.part_at, more.indexed, more.bytes, more.ran) = (0, 0, 0, None);
        (more.sees_absence, more.is_synced) = (false, false);
        Self { changes: emptied(spare.changes), more }
    }

    /// One that changes nothing and answers this.
    #[must_use]
    pub fn answering(result: &[u8], spare: SpareDraft) -> Self {
        let mut draft = Self::new(spare);
        draft.more.result.extend_from_slice(result);
        draft
    }

    /// What the operation answers.
    #[must_use]
    pub fn result(&self) -> &[u8] {
        &self.more.result
    }

    /// Bytes of the entries that [`Store::write`] adds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.more.bytes
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Whether the result depends on a key that has no value, and so on the version floor (R4.8).
    #[must_use]
    pub fn sees_absence(&self) -> bool {
        self.more.sees_absence
    }

    /// The entries in the log that its changes replace.
    pub fn replaced(&self) -> impl Iterator<Item = EntryOffset> {
        self.to_be_written().filter_map(|change| match change.prior {
            Prior::Logged { at, .. } => Some(at),
            Prior::None | Prior::Drafted { .. } => None,
        })
    }

    /// The keys that it changes, and whether it deletes them; of a flush [`KeyHash::EVERYTHING`]. May hold duplicates.
    pub fn changed(&self) -> impl Iterator<Item = (KeyHash, bool)> {
        self.to_be_written().map(|change| (change.hash, matches!(change.next, Next::Nothing | Next::Flush)))
    }

    /// Its changes, to be written, and the values and keys that it keeps.
    pub(crate) fn pending(&mut self) -> (&mut [NextEntry<'a>], &[u8]) {
        (&mut self.changes, &self.more.made)
    }

    /// The hashes of all keys that the operation saw, in order: its footprint. May hold duplicates.
    #[must_use]
    pub fn footprint(&self) -> &[KeyHash] {
        &self.more.hashes
    }

    /// Whether parts of a batch do not run.
    #[must_use]
    pub fn is_early_end(&self) -> bool {
        self.more.ran.is_some()
    }

    /// The part of the footprint that it touches: of a batch that ends early, the keys of the parts that run.
    #[must_use]
    pub fn touched(&self) -> &[KeyHash] {
        &self.more.hashes[..self.more.ran.unwrap_or(self.more.hashes.len())]
    }

    /// Of the tables that are not there, nothing is written. The result stays: the changes were made when it was told.
    pub fn withhold(&mut self, is_there: impl Fn(TableId) -> bool) {
        for change in &mut self.changes {
            if !is_there(change.table) {
                change.next = Next::Withheld;
            }
        }
    }

    fn to_be_written(&self) -> impl Iterator<Item = &NextEntry<'a>> {
        self.changes.iter().filter(|change| !matches!(change.next, Next::Withheld))
    }

    /// Its memory, and the result in it.
    #[must_use]
    pub fn into_spare(self) -> SpareDraft {
        let Self { changes, mut more } = self;
        more.result.shrink_to(RESULT_BYTES_KEPT);
        more.made.shrink_to(RESULT_BYTES_KEPT);
        SpareDraft { changes: emptied(changes), more: Some(more) }
    }

    pub(crate) fn see<'l>(&mut self, store: &Store, log: &'l Log, table: TableId, key: &[u8]) -> Seen<'l> {
        let hash = key_hash(table, key);
        self.more.hashes.push(hash);
        // Most operations have one key.
        if !self.changes.is_empty()
            && let Some(number) = self.last_change(hash, table, key)
        {
            return self.see_drafted(store, (hash, table), number);
        }
        let found = store.find_with_bucket(log, hash, table, key);
        self.more.sees_absence |= !matches!(found, Some((Found::Object(..), _)));
        let nothing = |last, prior| Seen { hash, prior, last, value: None, ends: None };
        match found {
            // R4.8: whether this replica still has a key's tombstone, or another one let it go, must not show.
            None => nothing(self.floor_of(store, table), Prior::None),
            Some((Found::Tombstone(at, tombstone), bucket)) => {
                let prior = Prior::Logged { at, bucket, is: Was::Tombstone, oldest: tombstone.oldest, ends: None };
                nothing(tombstone.version.max(self.floor_of(store, table)), prior)
            }
            Some((Found::Object(at, object), bucket)) if self.is_flushed(store, at, &object) => {
                self.more.sees_absence = true;
                let Object { oldest, ends, .. } = object;
                nothing(self.floor_of(store, table), Prior::Logged { at, bucket, is: Was::Flushed, oldest, ends })
            }
            Some((Found::Object(at, object), bucket)) => {
                let ends = object.ends;
                let prior = Prior::Logged { at, bucket, is: Was::Object, oldest: object.oldest, ends };
                let offset = at.payload() + object.value_offset() as u64;
                let value = Some(Current::Logged { offset, bytes: object.value });
                Seen { hash, prior, last: object.version, value, ends }
            }
        }
    }

    /// What the operation sees of a key that it has changed: `number` is its last change.
    fn see_drafted<'l>(&mut self, store: &Store, (hash, table): (KeyHash, TableId), number: usize) -> Seen<'l> {
        let floor = self.floor_of(store, table);
        let change = &self.changes[number];
        let is = match change.next {
            Next::Value(_) if self.flush_of(table).is_some_and(|flush| flush > number) => Was::Flushed,
            Next::Value(_) => Was::Object,
            Next::Nothing | Next::Withheld => Was::Tombstone,
            Next::Flush => unreachable!("a flush changes no key"),
        };
        let (value, last) = match is {
            Was::Object => (Some(Current::Drafted(number)), change.version),
            Was::Flushed | Was::Tombstone => (None, change.version.max(floor)),
        };
        self.more.sees_absence |= value.is_none();
        let ends = change.ends.filter(|_| value.is_some());
        Seen { hash, prior: Prior::Drafted { change: number, is }, last, value, ends }
    }

    /// The number of the change that has flushed the table last.
    fn flush_of(&self, table: TableId) -> Option<usize> {
        self.more.flushed.iter().find(|(flushed, _)| *flushed == table).map(|&(_, number)| number)
    }

    /// Versions of the table's keys without a value go on above this (R4.8, R10.7).
    #[inline]
    fn floor_of(&self, store: &Store, table: TableId) -> u64 {
        let flushed = self.flush_of(table).map_or(0, |number| self.changes[number].version);
        store.floor_of(table).max(flushed)
    }

    /// Whether a flush has ended an object of the store, this operation's or one before.
    #[inline]
    fn is_flushed(&self, store: &Store, at: EntryOffset, object: &Object<'_>) -> bool {
        (store.has_flushed() | !self.more.flushed.is_empty())
            && (self.flush_of(object.table).is_some() || store.tables.is_flushed(object.table, object.version, at))
    }

    /// No key of the table has a value any more, and versions of its keys go on above all that were given (R10.7).
    pub(crate) fn flush(&mut self, store: &Store, log: &Log, table: TableId) {
        self.more.hashes.push(KeyHash::EVERYTHING);
        self.more.is_synced = true;
        let is_empty = store.keys_of(table) == 0 && !self.changes.iter().any(|change| change.table == table);
        if is_empty {
            return;
        }
        // Each entry raises a version by one at most, or to a place in the log by a flush: none is above the log's end, and none of this draft far.
        let drafted = self.changes.iter().map(|change| change.version);
        let version = drafted.fold(log.end().offset.0.max(self.floor_of(store, table)), u64::max);
        let (at, oldest) = (UNWRITTEN, SegmentId(u32::MAX));
        let (key, hash, prior, next) = (Key::Named(&[]), KeyHash::EVERYTHING, Prior::None, Next::Flush);
        self.more.flushed.retain(|(flushed, _)| *flushed != table);
        self.more.flushed.push((table, self.changes.len()));
        self.more.bytes += entry_bytes(FLUSHED_BYTES);
        self.changes.push(NextEntry { table, key, hash, prior, version, next, ends: None, at, oldest });
    }

    /// Whether it must be told when it is synced, and not before: no witness's copy may run to another end than was told (R10.17), or end what
    /// was not there when it was told (R10.11).
    #[must_use]
    pub fn is_told_synced(&self) -> bool {
        self.more.is_synced
    }

    /// Whether it flushes a table that has keys.
    #[must_use]
    pub fn flushes(&self) -> bool {
        !self.more.flushed.is_empty()
    }

    /// The last change of a key.
    fn last_change(&mut self, hash: KeyHash, table: TableId, key: &[u8]) -> Option<usize> {
        let (changes, More { last_of_key, indexed, made, .. }) = (&self.changes, &mut *self.more);
        for (number, change) in changes.iter().enumerate().skip(*indexed) {
            let key = (change.hash, change.table, change.key.bytes(made));
            match last_of_key.find_mut(change.hash.0, |&known| changes[known].is_of(key, made)) {
                Some(known) => *known = number,
                None => {
                    last_of_key.insert_unique(change.hash.0, number, |&known| changes[known].hash.0);
                }
            }
        }
        *indexed = changes.len();
        last_of_key.find(hash.0, |&known| changes[known].is_of((hash, table, key), made)).copied()
    }

    /// The value's bytes, in two pieces.
    pub(crate) fn pieces<'s>(&'s self, log: &'s Log, current: Current<'s>) -> [&'s [u8]; 2] {
        pieces_of(&self.changes, &self.more.made, log, current)
    }

    /// The value's number; `None`: the value is none.
    pub(crate) fn number(&self, log: &Log, current: Current<'_>) -> Option<i64> {
        match self.pieces(log, current) {
            [bytes, []] => Number::parse(bytes),
            pieces => Number::parse_pieces(pieces),
        }
    }

    /// The value with more at its end.
    pub(crate) fn appended(&mut self, log: &Log, current: Option<Current<'_>>, added: &'a [u8]) -> Value<'a> {
        match current {
            None | Some(Current::Logged { bytes: [], .. }) => Value::Bytes(added),
            Some(Current::Logged { offset, bytes }) => Value::Appended { offset, len: bytes.len() as u32, added },
            Some(current) => {
                let before = pieces_of(&self.changes, &self.more.made, log, current).concat();
                let made = &mut self.more.made;
                let from = made.len();
                made.extend_from_slice(&before);
                made.extend_from_slice(added);
                Value::Made { from: from as u32, len: (made.len() - from) as u32 }
            }
        }
    }

    /// Keeps a value that no argument holds.
    pub(crate) fn make_value(&mut self, value: &[u8]) -> Value<'a> {
        let from = self.more.made.len();
        self.more.made.extend_from_slice(value);
        Value::Made { from: from as u32, len: value.len() as u32 }
    }

    /// Keeps a key that the operation does not name.
    pub(crate) fn make_key(&mut self, key: &[u8]) -> Key<'a> {
        let from = self.more.made.len();
        self.more.made.extend_from_slice(key);
        Key::Made { from: from as u32, len: key.len() as u32 }
    }

    /// Gives a key its next value, and the value its end. Returns the value's version.
    pub(crate) fn put(
        &mut self,
        table: TableId,
        key: impl Into<Key<'a>>,
        seen: &Seen<'_>,
        (value, ends): (Value<'a>, Option<ClusterTime>),
    ) -> u64 {
        let key = key.into();
        self.more.bytes += entry_bytes(HEAD_BYTES + key.len() + value.len() + ends_bytes(ends));
        self.change(table, key, seen, (Next::Value(value), ends))
    }

    /// Deletes a key that has a value.
    pub(crate) fn remove(&mut self, table: TableId, key: impl Into<Key<'a>>, seen: &Seen<'_>) {
        let key = key.into();
        assert!(seen.value.is_some(), "there is something to delete");
        self.more.bytes += entry_bytes(HEAD_BYTES + key.len());
        self.change(table, key, seen, (Next::Nothing, None));
    }

    fn change(
        &mut self,
        table: TableId,
        key: Key<'a>,
        seen: &Seen<'_>,
        (next, ends): (Next<'a>, Option<ClusterTime>),
    ) -> u64 {
        let version = seen.last + 1;
        let Seen { hash, prior, .. } = *seen;
        let (at, oldest) = (UNWRITTEN, SegmentId(u32::MAX));
        self.changes.push(NextEntry { table, key, hash, prior, version, next, ends, at, oldest });
        version
    }

    /// The operation changes nothing after all.
    pub(crate) fn clear(&mut self) {
        self.changes.clear();
        self.more.last_of_key.clear();
        self.more.flushed.clear();
        (self.more.indexed, self.more.bytes) = (0, 0);
    }

    pub(crate) fn answer_bytes(&mut self, bytes: &[u8]) {
        self.more.result.extend_from_slice(bytes);
    }

    pub(crate) fn answer_value(&mut self, log: &Log, current: Current<'_>) {
        let More { result, made, .. } = &mut *self.more;
        for piece in pieces_of(&self.changes, made, log, current) {
            result.extend_from_slice(piece);
        }
    }

    /// Takes the items of a command's reply.
    pub(crate) fn replies(&mut self) -> ReplyWriter<'_> {
        ReplyWriter(&mut self.more.result)
    }

    /// Replies with a value.
    pub(crate) fn reply_value(&mut self, log: &Log, current: Current<'_>) {
        let More { result, made, .. } = &mut *self.more;
        ReplyWriter(result).bytes_in(pieces_of(&self.changes, made, log, current));
    }

    pub(crate) fn answer(&mut self, code: OutcomeCode) {
        self.more.result.truncate(self.more.part_at);
        self.more.result.push(code as u8);
    }

    /// The results of so many parts follow, each begun by [`Self::begin_part`].
    pub(crate) fn begin_parts(&mut self, count: u32) {
        self.more.result.reserve(PART_RESULT_BYTES * count as usize);
        self.answer(OutcomeCode::Done);
        self.answer_bytes(&count.to_le_bytes());
    }

    /// What is answered from now on is the next part's result, which has this shape.
    pub(crate) fn begin_part(&mut self, shape: Shape) {
        self.answer_bytes(&[shape as u8, 0, 0, 0, 0]);
        self.more.part_at = self.more.result.len();
    }

    /// The part that was begun last has its result. Says what came of the part.
    pub(crate) fn end_part(&mut self) -> OutcomeCode {
        let More { result, part_at, .. } = &mut *self.more;
        let len = u32::try_from(result.len() - *part_at).expect("a result is small");
        result[*part_at - size_of_val(&len)..*part_at].copy_from_slice(&len.to_le_bytes());
        OutcomeCode::from_number(result[*part_at]).expect("a part answers")
    }

    /// Says whether the parts that have run are fewer than there are.
    pub(crate) fn ends_early(&mut self, is_early: bool) {
        self.more.ran = is_early.then_some(self.more.hashes.len());
        self.more.is_synced |= is_early && !planted::is_on(Bug::EarlyEndFast);
    }

    /// Only so many parts count, whose results end there.
    pub(crate) fn end_before(&mut self, count: u32, end: usize) {
        self.more.result.truncate(end);
        self.more.result[1..1 + size_of_val(&count)].copy_from_slice(&count.to_le_bytes());
        self.more.part_at = 0;
    }

    /// The part that was begun last has failed: nothing changes, and its result is all that is told. Of a condition only the version is told,
    /// whatever the part asked for: a reason goes from shard to shard, and is kept (`REASON_BYTES_MAX`).
    pub(crate) fn fail_at_part(&mut self, number: u32) {
        self.clear();
        let More { result, part_at, .. } = &mut *self.more;
        if result[*part_at] == OutcomeCode::ConditionFailed as u8 {
            result[*part_at - PART_HEAD_BYTES] = Shape::Version as u8;
            result.truncate(*part_at + 1 + size_of::<u64>());
        }
        let mut told = vec![OutcomeCode::NotCommitted as u8];
        told.extend_from_slice(&number.to_le_bytes());
        told.push(result[*part_at - PART_HEAD_BYTES]);
        result.splice(..*part_at, told);
        *part_at = 0;
    }
}

fn pieces_of<'s>(changes: &'s [NextEntry<'_>], made: &'s [u8], log: &'s Log, current: Current<'s>) -> [&'s [u8]; 2] {
    match current {
        Current::Logged { bytes, .. } => [bytes, &[]],
        Current::Drafted(change) => match &changes[change].next {
            Next::Value(Value::Bytes(bytes)) => [bytes, &[]],
            Next::Value(Value::Number(number)) => [number.as_bytes(), &[]],
            Next::Value(Value::Appended { offset, len, added }) => [log.bytes(*offset, *len), added],
            Next::Value(Value::Made { from, len }) => [&made[*from as usize..][..*len as usize], &[]],
            Next::Nothing | Next::Withheld | Next::Flush => unreachable!("a deleted key has no value"),
        },
    }
}

/// The memory of these changes, for changes of another request: the standard library collects in place.
fn emptied<'b>(mut changes: Vec<NextEntry<'_>>) -> Vec<NextEntry<'b>> {
    changes.clear();
    changes.into_iter().map(|_| unreachable!("it is empty")).collect()
}
