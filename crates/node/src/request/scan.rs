//! One page of a listing of a table's keys.
//!
//! A listing is no snapshot: each key that has a value throughout comes once, and a key that comes or goes meanwhile may come or
//! not. What a page shows, values too, is durable: it leaves when everything is synced that was in the log. A page waits for what was
//! pending over several shards when it was asked for: somebody may have been told that it happened. All of a page is of one moment.

use kasha_log::{Enough, ScanPosition};
use kasha_types::limits::RESULT_BYTES_MAX;
use kasha_types::planted::{self, Bug};
use kasha_types::{KeyHash, TableId, key_hash, slot_of};
use kasha_wire::operation::ScanCursor;
use kasha_wire::{OutcomeCode, Refusal};

use crate::serving::Serving;
use crate::shard::expiry;
use crate::shard::site::Site;
use crate::shard::term::Term;

/// Entries of the index that a page looks at, of all tables: each may be a cache miss or two. Most pages of a small table beside
/// large ones are empty.
const ENTRIES_PER_PAGE: usize = 192;
/// The page is full with so many bytes of keys and values: beyond them goes the last value, and then only keys whose tags are the same,
/// which come together.
const PAGE_BYTES: usize = 64 * 1024;

/// What a page is of.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub table: TableId,
    pub from: ScanCursor,
    /// Keys; 0: none, only how many there are.
    pub most: u32,
    pub prefix: &'a [u8],
    pub shows: Shows,
}

/// What a page shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shows {
    Keys,
    Values,
}

/// A result that is being written.
struct Page {
    result: Vec<u8>,
    count: u32,
    shows: Shows,
    /// Of the keys, if somebody asks.
    hashes: Option<Vec<KeyHash>>,
}

impl Page {
    /// The outcome, where to go on, keys at the shard, and how many keys follow.
    const HEAD_BYTES: usize = 1 + 8 + 8 + 4;
    /// Version and length of a key.
    const KEY_HEAD_BYTES: usize = 8 + 2;
    /// Length of a value.
    const VALUE_HEAD_BYTES: usize = 4;

    fn begin(mut result: Vec<u8>, shows: Shows, hashes: Option<Vec<KeyHash>>) -> Self {
        result.clear();
        result.resize(Self::HEAD_BYTES, 0);
        Self { result, count: 0, shows, hashes }
    }

    /// Bytes of a key on the page.
    fn bytes_of(&self, key: &[u8], value: &[u8]) -> usize {
        let value_bytes = match self.shows {
            Shows::Keys => 0,
            Shows::Values => Self::VALUE_HEAD_BYTES + value.len(),
        };
        Self::KEY_HEAD_BYTES + key.len() + value_bytes
    }

    fn add(&mut self, table: TableId, version: u64, key: &[u8], value: &[u8]) {
        self.result.extend_from_slice(&version.to_le_bytes());
        self.result.extend_from_slice(&u16::try_from(key.len()).expect("a key is short").to_le_bytes());
        self.result.extend_from_slice(key);
        if self.shows == Shows::Values {
            self.result.extend_from_slice(&u32::try_from(value.len()).expect("a value is short").to_le_bytes());
            self.result.extend_from_slice(value);
        }
        self.count += 1;
        if let Some(hashes) = &mut self.hashes {
            hashes.push(key_hash(table, key));
        }
    }

    fn end(&mut self, next: Option<ScanCursor>, in_shard: u64) {
        self.result[0] = OutcomeCode::Done as u8;
        self.result[1..9].copy_from_slice(&next.map_or(0, ScanCursor::number).to_le_bytes());
        self.result[9..17].copy_from_slice(&in_shard.to_le_bytes());
        self.result[17..Self::HEAD_BYTES].copy_from_slice(&self.count.to_le_bytes());
    }
}

/// Puts a page into the scratch buffer as a read's result, and its keys into the scratch footprint.
pub(crate) fn scan(term: &Term, serving: &mut Serving, site: &mut Site<'_>, wanted: Wanted<'_>) -> Result<(), Refusal> {
    let Site { copy, state, core } = site;
    let Wanted { table, from, most, prefix, shows } = wanted;
    let configuration = core.configuration.clone().ok_or(Refusal::NotPrimary)?;
    let mut ours = configuration.tablets_of(table).filter(|tablet| tablet.shard == copy.shard).peekable();
    let first = ours.peek().map(|tablet| tablet.first);
    let tablet = ours.find(|tablet| (tablet.first..=tablet.last).contains(&from.slot)).ok_or(Refusal::WrongShard)?;
    let in_shard = if first == Some(tablet.first) { state.store.keys_of(table) } else { 0 };
    // The index has the keys of all our tablets.
    let is_only = first == Some(from.slot) && ours.next().is_none();
    let is_wanted =
        |key: &[u8]| key.starts_with(prefix) && (is_only || (from.slot..=tablet.last).contains(&slot_of(key)));
    let hashes = (!state.distributed.is_quiet()).then(Vec::new);
    let mut page = Page::begin(std::mem::take(&mut core.scratch.result), shows, hashes);
    let (now, mut due, mut left, mut before) = (core.counted.time(), Vec::new(), PAGE_BYTES, None);
    let next = match most {
        0 => None,
        _ => state.store.scan(&copy.log, table, ScanPosition(from.position), ENTRIES_PER_PAGE, |object| {
            if is_wanted(object.key) {
                let value = match before.replace(object.value) {
                    Some(before) if planted::is_on(Bug::ValueOfAnother) => before,
                    Some(_) | None => object.value,
                };
                left = left.saturating_sub(page.bytes_of(object.key, value));
                match object.ends {
                    Some(ends) if ends <= now => due.push((object.version, object.key.to_vec(), value.to_vec())),
                    Some(_) | None => page.add(table, object.version, object.key, value),
                }
            }
            if left == 0 || page.count as usize + due.len() >= most as usize { Enough::Yes } else { Enough::No }
        }),
    };
    if !due.is_empty() {
        // R5.2: what is left out is gone in the log. What cannot go now is still there.
        let at = (term.epoch, term.shipping.synced(), now);
        let keys = due.iter().map(|(_, key, _)| (table, &key[..]));
        expiry::note_seen(expiry::delete_due(&mut copy.log, state, core, &mut serving.conflicts, at, keys));
        let stay = due.iter().filter(|(_, key, _)| state.store.is_due(&copy.log, table, key, now));
        stay.for_each(|(version, key, value)| page.add(table, *version, key, value));
    }
    let next = match next {
        Some(ScanPosition(position)) if planted::is_on(Bug::CursorSkips) => {
            Some(ScanCursor { slot: from.slot, position: position.saturating_add(1 << 26) })
        }
        Some(position) => Some(ScanCursor { slot: from.slot, position: position.0 }),
        None => ScanCursor::behind(tablet.last),
    };
    if page.result.len() > RESULT_BYTES_MAX {
        core.scratch.result = page.result;
        return Err(Refusal::TooLarge);
    }
    page.end(next, in_shard);
    core.scratch.result = page.result;
    core.scratch.footprint.clear();
    core.scratch.footprint.extend(page.hashes.into_iter().flatten());
    Ok(())
}
