//! The log's files.
//!
//! ```text
//! header   8 magic "KASHACRD" · 4 format version · 8 cluster id · 4 CRC32C of the 20 bytes before
//! record   4 length of the payload · 4 CRC32C of sequence and payload · 8 sequence · payload
//! ```
//!
//! The payload of the first record is a snapshot of the state. Every later payload is a batch of commands (a `u32`
//! count, then the commands). Sequences grow by one. A batch is written only when the batch before it is durable. So
//! after a crash at most the last record of the last file can be torn; a torn record is dropped. A bad record with a
//! good one behind it is damage, and is refused; so is a good record with an impossible command.
//!
//! A new file begins with a snapshot, at every start and when the last file is long. The old file is removed when the
//! new one is durable. So a file with a torn snapshot has an older file beside it, unless it is the first file of a
//! cluster, which had told nobody anything.

use kasha_machine::{Data, Disk, Effect, Effects, FileName};
use kasha_types::{ClusterId, LocalPosition};
use kasha_wire::{Reader, Wire};

use crate::limits::{COUNT_MAX, LOG_FILE_BYTES, PENDING_BYTES_MAX, RECORD_BYTES_MAX};
use crate::{Command, StartError, State};

/// Version of the layout above and of everything in it.
pub(crate) const FORMAT_VERSION: u32 = 4;

const MAGIC: [u8; 8] = *b"KASHACRD";
const HEADER_BYTES: usize = 24;
const RECORD_HEAD_BYTES: usize = 16;

/// What the files held.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) state: State,
    sequence: u64,
}

/// Every file that was found, and the state that they hold; `None` for a new cluster.
#[derive(Debug)]
pub(crate) struct Found {
    files: Vec<u32>,
    pub(crate) loaded: Option<Loaded>,
}

/// Reads the newest usable file.
pub(crate) fn load(disk: &dyn Disk, cluster: ClusterId) -> Result<Found, StartError> {
    let mut files: Vec<u32> = (disk.list().into_iter())
        .filter_map(|name| match name {
            FileName::Coordinator(number) => Some(number),
            FileName::Segment { .. }
            | FileName::Replica(_)
            | FileName::Witness { .. }
            | FileName::WitnessMode { .. }
            | FileName::Core
            | FileName::Told => None,
        })
        .collect();
    files.sort_unstable();
    if let Some(&file) = files.last().filter(|&&file| file == u32::MAX) {
        return Err(StartError::Damaged { file, offset: 0, what: "no file can have a greater number".into() });
    }
    for &file in files.iter().rev() {
        let bytes = disk.read(FileName::Coordinator(file)).map_err(|error| StartError::Read { file, error })?;
        if let Some(loaded) = read_file(file, cluster, &bytes.unwrap_or_default())? {
            return Ok(Found { files, loaded: Some(loaded) });
        }
    }
    // Only the first file of a new cluster has no older file beside it. Before that file was durable, nobody got an
    // answer.
    if let Some(&file) = files.last().filter(|&&file| file != 1) {
        return Err(StartError::Damaged { file, offset: 0, what: "no file begins with a whole snapshot".into() });
    }
    Ok(Found { files, loaded: None })
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
fn read_file(file: u32, cluster: ClusterId, bytes: &[u8]) -> Result<Option<Loaded>, StartError> {
    let damaged = |offset: usize, what: &str| StartError::Damaged { file, offset: offset as u64, what: what.into() };
    let whole =
        bytes.len() >= HEADER_BYTES && bytes[..8] == MAGIC && word(bytes, 20) == kasha_types::crc32c(&bytes[..20]);
    if whole && word(bytes, 8) != FORMAT_VERSION {
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
    let mut state: State = reader.take().map_err(|error| damaged(HEADER_BYTES, &error.to_string()))?;
    reader.finish().map_err(|error| damaged(HEADER_BYTES, &error.to_string()))?;
    state.check().map_err(|why| damaged(HEADER_BYTES, &why))?;
    // The header of the next file would name this cluster, and nobody could start from that file.
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
    Ok(Some(Loaded { state, sequence }))
}

/// Writes the log. One commit is in flight at a time.
#[derive(Debug)]
pub(crate) struct Log {
    file: u32,
    /// The offset of the next record.
    offset: u64,
    /// Bytes of batches in this file so far.
    batches: u64,
    sequence: u64,
    /// Commands that were decided and are not written yet.
    pending: Vec<u8>,
    pending_count: u32,
    written: LocalPosition,
    durable: LocalPosition,
    /// Files to remove when the commit in flight is durable.
    obsolete: Vec<u32>,
}

impl Log {
    /// Goes on behind the files that were found, with a new one: [`Self::begin_file`] is still to be called.
    pub(crate) fn start(found: Found, out: &mut Effects) -> Self {
        let fresh = found.loaded.is_none();
        let last = found.files.last().copied().unwrap_or(0);
        let mut log = Self {
            file: last,
            offset: 0,
            batches: 0,
            sequence: found.loaded.map_or(0, |loaded| loaded.sequence),
            pending: Vec::new(),
            pending_count: 0,
            written: LocalPosition(0),
            durable: LocalPosition(0),
            obsolete: found.files,
        };
        if fresh && last != 0 {
            // A file that a first start left torn: its number is used again, so that only file 1 can ever be without an
            // older file.
            log.obsolete.clear();
            log.file = 0;
            out.push(Effect::Truncate { file: FileName::Coordinator(last), len: 0 });
        }
        log
    }

    /// Adds a decided command to the next batch.
    pub(crate) fn append(&mut self, command: &Command) {
        command.put(&mut self.pending);
        self.pending_count += 1;
    }

    /// The commit after which our file holds every command so far.
    pub(crate) fn end(&self) -> LocalPosition {
        if self.pending_count > 0 { self.written.next() } else { self.written }
    }

    /// Whether too much waits for a stuck disk.
    pub(crate) fn is_backed_up(&self) -> bool {
        self.pending.len() > PENDING_BYTES_MAX
    }

    /// Our file holds everything up to this commit.
    pub(crate) fn on_durable(&mut self, position: LocalPosition, out: &mut Effects) {
        assert!(position <= self.written, "only what was written is durable");
        self.durable = self.durable.max(position);
        if self.durable == self.written {
            for file in self.obsolete.drain(..) {
                out.push(Effect::Remove { file: FileName::Coordinator(file) });
            }
        }
    }

    /// Writes what is pending, unless a commit is in flight. In that case the next `on_durable` writes it.
    pub(crate) fn flush(&mut self, state: &State, out: &mut Effects) {
        if self.durable < self.written || self.pending_count == 0 {
            return;
        }
        if self.batches >= LOG_FILE_BYTES {
            self.obsolete.push(self.file);
            return self.begin_file(state, out);
        }
        let mark = out.mark();
        let (count, pending) = (self.pending_count, &self.pending);
        let sequence = self.sequence + 1;
        put_record(out.arena(), sequence, |payload| {
            count.put(payload);
            payload.extend_from_slice(pending);
        });
        self.pending.clear();
        self.pending_count = 0;
        self.batches += (out.mark() - mark) as u64;
        self.write(mark, sequence, out);
    }

    /// Begins a new file with a snapshot of the decided state. It holds the pending commands too.
    pub(crate) fn begin_file(&mut self, state: &State, out: &mut Effects) {
        self.pending.clear();
        self.pending_count = 0;
        self.file = self.file.checked_add(1).expect("file numbers are exhausted");
        (self.offset, self.batches) = (0, 0);
        let mark = out.mark();
        out.arena().extend_from_slice(&header(state.configuration.cluster));
        let sequence = self.sequence + 1;
        put_record(out.arena(), sequence, |payload| state.put(payload));
        self.write(mark, sequence, out);
    }

    fn write(&mut self, mark: usize, sequence: u64, out: &mut Effects) {
        let span = out.span_from(mark);
        out.push(Effect::Write { file: FileName::Coordinator(self.file), offset: self.offset, data: Data::Span(span) });
        self.offset += u64::from(span.len);
        self.sequence = sequence;
        self.written = self.written.next();
        out.push(Effect::Commit { to: self.written, fsync: true });
    }
}

fn header(cluster: ClusterId) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    FORMAT_VERSION.put(&mut header);
    cluster.put(&mut header);
    let crc = kasha_types::crc32c(&header);
    crc.put(&mut header);
    header
}

fn put_record(out: &mut Vec<u8>, sequence: u64, payload: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 8]);
    sequence.put(out);
    payload(out);
    let len = out.len() - start - RECORD_HEAD_BYTES;
    assert!(len > 0 && len <= RECORD_BYTES_MAX, "a record of {len} bytes");
    let crc = kasha_types::crc32c(&out[start + 8..]);
    out[start..start + 4].copy_from_slice(&u32::try_from(len).expect("below the limit").to_le_bytes());
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
}
