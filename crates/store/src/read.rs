//! Reads.

use kasha_log::Log;
use kasha_types::limits::RESULT_BYTES_MAX;
use kasha_types::planted::{self, Bug};
use kasha_types::{KeyHash, LogSlice, TableId};
use kasha_wire::operation::Items;
use kasha_wire::{OutcomeCode, Read};

use crate::Store;
use crate::entry::Found;

/// Version and length of a multi-get's item.
const ITEM_HEAD_BYTES: usize = 12;
/// Version, flag and length of an item that is observed.
const OBSERVED_HEAD_BYTES: usize = 13;

/// A read's result: bytes in the caller's buffer, then bytes in the log.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadResult {
    /// The buffer holds all of it.
    Whole,
    /// The buffer's bytes are followed by these.
    Tail(LogSlice),
    /// It would exceed the limit on results: ask for fewer keys.
    TooLarge,
}

impl Store {
    /// Executes a read. `hashes`: of its keys, in the order in which [`Read::for_each_key`] names them. `result` is cleared and gets the
    /// result bytes.
    ///
    /// # Panics
    /// If there are fewer hashes than keys, or the read is a listing ([`Store::scan`]) or a query ([`Store::query`]).
    pub fn read(
        &self,
        log: &Log,
        table: TableId,
        read: &Read<'_>,
        hashes: &[KeyHash],
        result: &mut Vec<u8>,
    ) -> ReadResult {
        result.clear();
        match *read {
            Read::Get { key } => match self.find(log, hashes[0], table, key) {
                Some(Found::Object(at, object)) => {
                    result.push(OutcomeCode::Done as u8);
                    result.extend_from_slice(&object.version.to_le_bytes());
                    if object.value.is_empty() {
                        return ReadResult::Whole; // its place may be the end of a segment, which names no byte
                    }
                    let offset = at.payload() + object.value_offset() as u64;
                    ReadResult::Tail(LogSlice { shard: log.shard(), offset, len: object.value.len() as u32 })
                }
                Some(Found::Tombstone(..)) | None => {
                    result.push(OutcomeCode::NotFound as u8);
                    ReadResult::Whole
                }
            },
            Read::Exists { key } => {
                let exists = matches!(self.find(log, hashes[0], table, key), Some(Found::Object(..)));
                result.extend_from_slice(&[OutcomeCode::Done as u8, u8::from(exists)]);
                ReadResult::Whole
            }
            Read::TimeToLive { key } => {
                self.tell_end(log, (hashes[0], table, key), result);
                ReadResult::Whole
            }
            Read::Scan { .. } | Read::ScanValues { .. } => unreachable!("Store::scan"),
            Read::Query { .. } => unreachable!("Store::query"),
            Read::MultiGet { keys: items } => {
                result.push(OutcomeCode::Done as u8);
                result.extend_from_slice(&items.count().to_le_bytes());
                for (number, item) in items.iter().enumerate() {
                    match self.find(log, hashes[number], table, item.key) {
                        Some(Found::Object(_, object)) => {
                            if result.len() + ITEM_HEAD_BYTES + object.value.len() > RESULT_BYTES_MAX {
                                return ReadResult::TooLarge;
                            }
                            result.extend_from_slice(&object.version.to_le_bytes());
                            result.extend_from_slice(&(object.value.len() as u32).to_le_bytes());
                            result.extend_from_slice(object.value);
                        }
                        Some(Found::Tombstone(..)) | None => {
                            result.extend_from_slice(&[0; ITEM_HEAD_BYTES]);
                        }
                    }
                }
                ReadResult::Whole
            }
            Read::Observe { keys: items } => self.observe(log, table, (items, hashes), result),
        }
    }

    fn observe(
        &self,
        log: &Log,
        table: TableId,
        (items, hashes): (Items<'_>, &[KeyHash]),
        result: &mut Vec<u8>,
    ) -> ReadResult {
        result.push(OutcomeCode::Done as u8);
        result.extend_from_slice(&items.count().to_le_bytes());
        for (number, item) in items.iter().enumerate() {
            let (version, value) = match self.find(log, hashes[number], table, item.key) {
                Some(Found::Object(_, object)) => (object.version, Some(object.value)),
                // R4.8: the next value gets a version above both.
                Some(Found::Tombstone(_, tombstone)) => (tombstone.version.max(self.floor_of(table)), None),
                None => (self.floor_of(table), None),
            };
            let is_told = value.is_some() || !planted::is_on(Bug::AbsenceUnversioned);
            let version = if is_told { version } else { 0 };
            let len = value.map_or(0, <[u8]>::len);
            if result.len() + OBSERVED_HEAD_BYTES + len > RESULT_BYTES_MAX {
                return ReadResult::TooLarge;
            }
            result.extend_from_slice(&version.to_le_bytes());
            result.push(u8::from(value.is_some()));
            result.extend_from_slice(&(len as u32).to_le_bytes());
            result.extend_from_slice(value.unwrap_or_default());
        }
        ReadResult::Whole
    }

    fn tell_end(&self, log: &Log, (hash, table, key): (KeyHash, TableId, &[u8]), result: &mut Vec<u8>) {
        let Some(Found::Object(_, object)) = self.find(log, hash, table, key) else {
            return result.push(OutcomeCode::NotFound as u8);
        };
        result.push(OutcomeCode::Done as u8);
        result.extend_from_slice(&object.version.to_le_bytes());
        result.extend_from_slice(&object.ends.map_or(0, |ends| ends.0).to_le_bytes());
    }
}
