//! The files of format 4, which an earlier version wrote. They are read once: the journal takes over what they hold.
//!
//! ```text
//! header   8 magic "KASHACRD" · 4 format version · 8 cluster id · 4 CRC32C of the 20 bytes before
//! record   4 length of the payload · 4 CRC32C of sequence and payload · 8 sequence · payload
//! ```
//!
//! The payload of the first record is a snapshot of the state. Every later payload is a batch of commands (a `u32`
//! count, then the commands). Sequences grow by one. A batch was written only when the batch before it was durable. So
//! after a crash at most the last record of the last file can be torn; a torn record is dropped. A bad record with a
//! good one behind it is damage, and is refused; so is a good record with an impossible command.
//!
//! A new file began with a snapshot. The old file was removed when the new one was durable. So a file with a torn snapshot
//! has an older file beside it, unless it is the first file of a cluster, which had told nobody anything.

use kasha_machine::{Disk, FileName};
use kasha_types::ClusterId;
use kasha_wire::Reader;

use crate::limits::{COUNT_MAX, RECORD_BYTES_MAX};
use crate::start_error::{FORMAT_BEFORE, Place, StartError};
use crate::{Command, State};

const MAGIC: [u8; 8] = *b"KASHACRD";
const HEADER_BYTES: usize = 24;
const RECORD_HEAD_BYTES: usize = 16;

/// The numbers of the files that are there, in order.
pub(crate) fn files(disk: &dyn Disk) -> Vec<u32> {
    let number = |name| match name {
        FileName::Coordinator(number) => Some(number),
        FileName::Segment { .. }
        | FileName::Replica(_)
        | FileName::Witness { .. }
        | FileName::WitnessMode { .. }
        | FileName::Core
        | FileName::Told
        | FileName::Journal(_) => None,
    };
    let mut files: Vec<u32> = disk.list().into_iter().filter_map(number).collect();
    files.sort_unstable();
    files
}

/// Reads the newest usable file. `None`: there is none, or a cluster was just being made.
pub(crate) fn load(disk: &dyn Disk, cluster: ClusterId) -> Result<Option<State>, StartError> {
    let files = files(disk);
    for &file in files.iter().rev() {
        let file = FileName::Coordinator(file);
        let bytes = disk.read(file).map_err(|error| StartError::Read { file, error })?;
        if let Some(state) = read_file(file, cluster, &bytes.unwrap_or_default())? {
            return Ok(Some(state));
        }
    }
    // Only the first file of a new cluster has no older file beside it. Before that file was durable, nobody got an
    // answer.
    match files.last() {
        Some(&file) if file != 1 => {
            let (file, at) = (FileName::Coordinator(file), Place::Byte(0));
            Err(StartError::Damaged { file, at, what: "no file begins with a whole snapshot".into() })
        }
        Some(_) | None => Ok(None),
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The record at `at`, if there is a complete one: its sequence and payload.
fn record_at(bytes: &[u8], at: usize) -> Option<(u64, &[u8])> {
    let head = bytes.get(at..at + RECORD_HEAD_BYTES)?;
    let len = word(head, 0) as usize;
    if len == 0 || len > RECORD_BYTES_MAX {
        return None;
    }
    let covered = bytes.get(at + 8..at + RECORD_HEAD_BYTES + len)?;
    (kasha_types::crc32c(covered) == word(head, 4)).then(|| (long(head, 8), &covered[8..]))
}

/// Whether a complete record with a plausible sequence above `low` begins anywhere from `from` on.
fn good_record_behind(bytes: &[u8], from: usize, low: u64) -> bool {
    /// Bytes that decode to a sequence this far ahead are no record, so the checksum need not be computed.
    const SEQUENCES_AHEAD: u64 = 1 << 32;
    (from..bytes.len().saturating_sub(RECORD_HEAD_BYTES)).any(|at| {
        let sequence = long(bytes, at + 8);
        sequence > low && sequence - low < SEQUENCES_AHEAD && record_at(bytes, at).is_some()
    })
}

/// The state in one file; `None` if its snapshot was never complete.
fn read_file(file: FileName, cluster: ClusterId, bytes: &[u8]) -> Result<Option<State>, StartError> {
    let damaged = |offset: usize, what: &str| {
        let at = Place::Byte(offset as u64);
        StartError::Damaged { file, at, what: what.into() }
    };
    let whole =
        bytes.len() >= HEADER_BYTES && bytes[..8] == MAGIC && word(bytes, 20) == kasha_types::crc32c(&bytes[..20]);
    if whole && word(bytes, 8) != FORMAT_BEFORE {
        return Err(StartError::Version { file, stored: word(bytes, 8) });
    }
    if whole && long(bytes, 12) != cluster.0 {
        return Err(StartError::OtherCluster { stored: ClusterId(long(bytes, 12)), given: cluster });
    }
    let Some((first, snapshot)) = record_at(bytes, HEADER_BYTES).filter(|_| whole) else {
        // A complete snapshot behind a bad header, or a batch behind a bad snapshot: both were durable once.
        if good_record_behind(bytes, 0, 0) {
            return Err(damaged(0, "a bad header or snapshot, with good records behind it"));
        }
        return Ok(None);
    };
    let mut reader = Reader::new(snapshot);
    let mut state = State::take_format4(&mut reader).map_err(|error| damaged(HEADER_BYTES, &error.to_string()))?;
    reader.finish().map_err(|error| damaged(HEADER_BYTES, &error.to_string()))?;
    state.check().map_err(|why| damaged(HEADER_BYTES, &why))?;
    if state.configuration.cluster != cluster {
        return Err(damaged(HEADER_BYTES, "a snapshot of another cluster"));
    }
    if first > COUNT_MAX {
        return Err(damaged(HEADER_BYTES, "a count is near its end: the sequence"));
    }
    let (mut sequence, mut at) = (first, HEADER_BYTES + RECORD_HEAD_BYTES + snapshot.len());
    while let Some((number, payload)) = record_at(bytes, at) {
        if number != sequence + 1 {
            return Err(damaged(at, "a record is missing before this one"));
        }
        let mut reader = Reader::new(payload);
        let commands: Vec<Command> = reader.take().map_err(|error| damaged(at, &error.to_string()))?;
        reader.finish().map_err(|error| damaged(at, &error.to_string()))?;
        commands.iter().try_for_each(|command| state.try_apply(command)).map_err(|why| damaged(at, &why))?;
        sequence = number;
        at += RECORD_HEAD_BYTES + payload.len();
    }
    if good_record_behind(bytes, at, sequence) {
        return Err(damaged(at, "a bad record, with good ones behind it"));
    }
    // The check runs once at the end, and not after each batch: it costs as much as a snapshot.
    state.check().map_err(|why| damaged(at, &why))?;
    Ok(Some(state))
}
