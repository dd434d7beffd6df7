//! The disk of a member (R9.5): two files, of which one is written, and the other one is spent.
//!
//! ```text
//! header   8 magic "KASHAVSR" · 8 group · 8 member · 8 lap · 8 boot (0: unknown) · 4 CRC32C of the 40 bytes before
//! spent    8 mark "KASHAOLD" · zeros
//! record   4 length of the payload · 4 CRC32C of lap and payload · 4 chain · 8 fsynced up to · 4 CRC32C of the 20 bytes before · payload · 1 end mark
//! payload  a record of the log · a note of the user's own
//! ```
//!
//! A record continues the *chain* of its predecessor: the CRC32C of the predecessor's chain and its own checksum. The first continues the
//! checksum that the header ends with.
//! A new lap begins with [`Record::Whole`], in the other file, when a file is long, when a log is cut, and at each start. So the log view
//! and its log are one write, and no record of a former lap or of a log that was cut counts again. When it is fsynced, the file of the lap before is
//! marked as spent, with another fsync; only then is the new lap durable. Zeros come behind the mark when there is time. The header of the very first lap has an fsync of its own, between the zeros behind
//! it and its record: so wherever a part of that record stands, the header before it says that nothing was whole before. Files keep their size, so that an fsync waits for no journal of the file system.
//!
//! **Damaged is not missing.** What a crash leaves at the end of a file is dropped: it was never fsynced, so nobody was told. In the
//! boot that wrote the file nothing but a kill in the middle of a write can have happened, and that leaves zeros at the end of the record. Anything
//! else is damage. In another boot a bad record is damage if a record behind it says that it was fsynced. A spent file says that another one
//! was whole: if that one is gone, it is lost.

use std::fmt;

use kasha_types::{crc32c, crc32c_append};

use crate::MemberId;
use crate::codec::Codec;
use crate::output::{Record, Stored};

const MAGIC: [u8; 8] = *b"KASHAVSR";
/// A file of a lap before begins with this.
const SPENT: [u8; 8] = *b"KASHAOLD";
const HEADER_BYTES: usize = 44;
const HEAD_BYTES: usize = 24;
/// The last byte of a record. A write that was cut short has a zero there.
const END_MARK: u8 = 0xE5;
/// Laps stay below this number, so that code that adds to one need not care. Nobody writes as many.
const LAPS_MAX: u64 = 1 << 62;
/// See [`Owner::file_bytes`].
pub const FILE_BYTES: usize = 4 * 1024 * 1024;

/// One of the two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum File {
    /// That of the even laps.
    Even,
    /// That of the odd laps.
    Odd,
}

impl File {
    const BOTH: [Self; 2] = [Self::Even, Self::Odd];

    fn of(lap: u64) -> Self {
        if lap.is_multiple_of(2) { Self::Even } else { Self::Odd }
    }
}

/// What is to be done with the files, in this order. A record is durable when the last step for it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write this.
    Write {
        /// To which file.
        file: File,
        /// Where.
        offset: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// Everything before this reaches the platter before anything behind it.
    Sync,
}

/// Whose files these are, and in which boot of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The group.
    pub group: u64,
    /// The member.
    pub member: MemberId,
    /// The boot of the machine; 0: the machine does not tell.
    pub boot: u64,
    /// How long a file is from the beginning: [`FILE_BYTES`] is enough. A new lap begins when that is used up.
    pub file_bytes: usize,
}

/// Why the files cannot be used. Such a member neither votes nor counts as one that lacks anything, until its files are repaired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The files are another group's or another member's.
    Others {
        /// The group that the file names.
        group: u64,
        /// The member that the file names.
        member: MemberId,
        /// Which file.
        file: File,
    },
    /// A byte that was once fsynced is another one.
    Bytes {
        /// Which file.
        file: File,
        /// Where.
        offset: u64,
        /// What is there.
        what: &'static str,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Others { group, member, file } => write!(f, "the {file:?} file is of {member} of group {group:x}"),
            Self::Bytes { file, offset, what } => write!(f, "the {file:?} file is damaged at byte {offset}: {what}"),
        }
    }
}

impl std::error::Error for Damage {}

/// Writes the files of a member.
#[derive(Debug)]
pub struct Journal {
    owner: Owner,
    lap: u64,
    /// Where the next record begins.
    end: usize,
    /// Where the first record of this lap ends.
    whole_end: usize,
    chain: u32,
    /// What may be in each file, zeros and the mark of a spent file not counted.
    used: [usize; 2],
    /// Whether there may be more than zeros behind the beginning of each file, or too few.
    is_dirty: [bool; 2],
    /// What stands beside each record.
    note: Vec<u8>,
}

/// Reads both files, which may be missing. `None`: nothing was ever fsynced there.
///
/// # Errors
/// If they are damaged, or somebody else's.
pub fn read(owner: Owner, even: &[u8], odd: &[u8]) -> Result<(Option<Stored>, Journal), Damage> {
    let files = [even, odd];
    let used = files.map(|bytes| {
        let content = bytes.strip_prefix(&SPENT).unwrap_or(bytes);
        let last = content.iter().rposition(|byte| *byte != 0);
        last.map_or(0, |last| last + 1 + bytes.len() - content.len())
    });
    let mut laps = Vec::new();
    for (file, bytes) in File::BOTH.into_iter().zip(files) {
        if let Some(header) = Header::read(file, bytes, owner)? {
            laps.push((header.lap, header, file, bytes));
        }
    }
    laps.sort_by_key(|(lap, ..)| std::cmp::Reverse(*lap));
    let begun = laps.first().map_or(0, |(lap, ..)| *lap);
    let is_dirty = [0, 1].map(|file: usize| used[file] > 0 || files[file].len() < owner.file_bytes);
    let mut journal = Journal { owner, lap: 0, end: 0, whole_end: 0, chain: 0, used, is_dirty, note: Vec::new() };
    for (lap, header, file, bytes) in laps {
        if let Some((stored, note)) = header.records(file, bytes, owner.boot)? {
            journal.note = note;
            journal.lap = lap; // the next one is in the other file, where a lap may have been cut short
            return Ok((Some(stored), journal));
        }
    }
    // Only the first lap has none before it. Before it was durable nobody was told anything.
    let is_first = begun == 1 || (begun == 0 && used[File::Odd as usize] <= HEADER_BYTES);
    let is_any_spent = files.iter().any(|bytes| bytes.starts_with(&SPENT));
    if is_first && used[File::Even as usize] == 0 && !is_any_spent {
        return Ok((None, journal));
    }
    let file = match begun {
        0 if even.starts_with(&SPENT) || used[File::Even as usize] == 0 => File::Odd,
        _ => File::of(begun),
    };
    Err(Damage::Bytes { file, offset: 0, what: "no file begins with a whole record" })
}

/// Whose files these are, if one of them has a whole header.
#[must_use]
pub fn member_of(group: u64, even: &[u8], odd: &[u8]) -> Option<MemberId> {
    let named = |file, bytes: &[u8]| {
        let nobody = Owner { group, member: MemberId(0), boot: 0, file_bytes: 0 };
        match Header::read(file, bytes, nobody) {
            Err(Damage::Others { group: found, member, .. }) if found == group => Some(member),
            Ok(_) | Err(_) => None,
        }
    };
    named(File::Even, even).or_else(|| named(File::Odd, odd))
}

impl Journal {
    /// Whose files these are.
    #[must_use]
    pub fn member(&self) -> MemberId {
        self.owner.member
    }

    /// Files in which nothing was ever durable become those of this member.
    ///
    /// # Panics
    /// If something was durable.
    pub fn become_member(&mut self, member: MemberId) {
        assert_eq!((self.lap, self.end), (0, 0), "a journal keeps its member");
        self.owner.member = member;
    }

    /// What stands beside the last record.
    #[must_use]
    pub fn note(&self) -> &[u8] {
        &self.note
    }

    /// What is to stand beside each record from now on: what may be forgotten, and is worth no fsync of its own.
    pub fn set_note(&mut self, note: Vec<u8>) {
        self.note = note;
    }

    /// Whether a new lap should begin. A whole log that alone fills a file leaves room for as much again: else each record would begin a
    /// lap.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.end >= self.owner.file_bytes.max(2 * self.whole_end)
    }

    /// Which file holds what was read or written last.
    #[must_use]
    pub fn file(&self) -> File {
        File::of(self.lap)
    }

    /// The steps that write a record. The first record of a process is [`Record::Whole`].
    pub fn write(&mut self, record: &Record) -> Vec<Step> {
        let mut steps = Vec::new();
        if let Record::Whole(_) = record {
            self.begin_lap(&mut steps);
        }
        assert!(self.end > 0, "R9.5: a process begins a lap of its own");
        let file = File::of(self.lap);
        let (bytes, chain) = self.encode(record);
        let offset = self.end as u64;
        self.end += bytes.len();
        self.chain = chain;
        self.used[file as usize] = self.used[file as usize].max(self.end);
        self.is_dirty[file as usize] = true;
        match steps.last_mut() {
            // The header and its record are one write, but for the first lap.
            Some(Step::Write { bytes: header, .. }) => header.extend_from_slice(&bytes),
            Some(Step::Sync) | None => steps.push(Step::Write { file, offset, bytes }),
        }
        steps.push(Step::Sync);
        if let Record::Whole(_) = record {
            self.whole_end = self.end;
            // If this lap is lost or rots, the lap before it must not pass for the last one.
            steps.extend(self.mark(File::of(self.lap + 1)));
        }
        steps
    }

    /// The steps that make the file of the next lap ready, if it is not: when nothing else is to be written.
    pub fn tidy(&mut self) -> Option<[Step; 2]> {
        let file = File::of(self.lap + 1);
        let is_due = self.end > 0 && self.is_dirty[file as usize];
        is_due.then(|| self.zeros(file, SPENT.len()))
    }

    fn begin_lap(&mut self, steps: &mut Vec<Step>) {
        self.lap += 1;
        let file = File::of(self.lap);
        let header = Header { lap: self.lap, boot: self.owner.boot }.encode(self.owner);
        if self.lap == 1 {
            // A header that stands there stays until there is nothing but zeros behind it.
            steps.extend(self.zeros(file, HEADER_BYTES));
        } else if self.is_dirty[file as usize] {
            // There was no time, or a crash came: in this lap, or before the file of the lap before the last one was marked.
            steps.extend(self.mark(file));
            steps.extend(self.zeros(file, SPENT.len()));
        }
        self.chain = chain_of(&header);
        self.end = header.len();
        steps.push(Step::Write { file, offset: 0, bytes: header });
        if self.lap == 1 {
            steps.push(Step::Sync);
        }
    }

    /// Marks a file as a spent one: another one is whole. The mark is on the platter before anything else of the file changes, so that
    /// no part of a lap before passes for all of it.
    fn mark(&mut self, file: File) -> [Step; 2] {
        self.is_dirty[file as usize] = true;
        [Step::Write { file, offset: 0, bytes: SPENT.to_vec() }, Step::Sync]
    }

    /// Writes zeros from here on, and makes the file as long as it is to be.
    fn zeros(&mut self, file: File, from: usize) -> [Step; 2] {
        self.is_dirty[file as usize] = false;
        let used = std::mem::take(&mut self.used[file as usize]);
        let len = self.owner.file_bytes.max(used).max(HEADER_BYTES + 1);
        [Step::Write { file, offset: from as u64, bytes: vec![0; len - from] }, Step::Sync]
    }

    fn encode(&self, record: &Record) -> (Vec<u8>, u32) {
        let mut payload = Vec::new();
        record.put(&mut payload);
        payload.extend_from_slice(&self.note);
        let crc = checksum(self.lap, &payload);
        let chain = crc32c_append(self.chain, &crc.to_le_bytes());
        let mut bytes = Vec::with_capacity(HEAD_BYTES + payload.len() + 1);
        bytes.extend_from_slice(&u32::try_from(payload.len()).expect("a record is below 4 GiB").to_le_bytes());
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes.extend_from_slice(&chain.to_le_bytes());
        bytes.extend_from_slice(&(self.end as u64).to_le_bytes());
        let head = crc32c(&bytes);
        bytes.extend_from_slice(&head.to_le_bytes());
        bytes.append(&mut payload);
        bytes.push(END_MARK);
        (bytes, chain)
    }
}

/// What the first record continues: the checksum of a header. (The checksum of all of it, its own checksum included, is the same for every
/// header.)
fn chain_of(header: &[u8]) -> u32 {
    crc32c(&header[..HEADER_BYTES - 4])
}

fn checksum(lap: u64, payload: &[u8]) -> u32 {
    crc32c_append(crc32c(&lap.to_le_bytes()), payload)
}

struct Header {
    lap: u64,
    boot: u64,
}

/// What stands before the payload of a record.
struct Head {
    crc: u32,
    chain: u32,
    fsynced: u64,
    /// Where the payload ends, and the end mark stands.
    end: usize,
}

impl Header {
    fn encode(&self, owner: Owner) -> Vec<u8> {
        let mut header = MAGIC.to_vec();
        [owner.group, owner.member.0, self.lap, self.boot].iter().for_each(|number| number.put(&mut header));
        let crc = crc32c(&header);
        header.extend_from_slice(&crc.to_le_bytes());
        header
    }

    /// `None`: a file that is empty, is being zeroed, or whose first write was cut short. If it is rotten, no other file has a lap.
    fn read(file: File, bytes: &[u8], owner: Owner) -> Result<Option<Self>, Damage> {
        let Some(header) = bytes.get(..HEADER_BYTES) else { return Ok(None) };
        let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        if header[..8] != MAGIC || crc32c(&header[..40]).to_le_bytes() != header[40..] {
            return Ok(None);
        }
        if (word(8), word(16)) != (owner.group, owner.member.0) {
            return Err(Damage::Others { group: word(8), member: MemberId(word(16)), file });
        }
        let header = Self { lap: word(24), boot: word(32) };
        let damaged = |what| Err(Damage::Bytes { file, offset: 0, what });
        match header.lap {
            0 | LAPS_MAX.. => damaged("no lap has this number"),
            lap if File::of(lap) != file => damaged("the other file's bytes"),
            _ => Ok(Some(header)),
        }
    }

    /// The head of the record that begins there, if it is whole.
    fn head(bytes: &[u8], at: usize) -> Option<Head> {
        let head = bytes.get(at..at.checked_add(HEAD_BYTES)?)?;
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let fsynced = u64::from_le_bytes(head[12..20].try_into().expect("eight bytes"));
        let end = (at + HEAD_BYTES).checked_add(usize::try_from(word(0)).ok()?)?;
        let is_whole = word(0) > 0 && crc32c(&head[..20]) == word(20);
        is_whole.then_some(Head { crc: word(4), chain: word(8), fsynced, end })
    }

    /// The record that begins there, if it is whole; perhaps not of this chain.
    fn record<'a>(&self, bytes: &'a [u8], at: usize) -> Option<(Head, &'a [u8])> {
        let head = Self::head(bytes, at)?;
        let payload = bytes.get(at + HEAD_BYTES..head.end)?;
        (checksum(self.lap, payload) == head.crc).then_some((head, payload))
    }

    /// What the records of this file come to, and the note beside the last one. `None`: not even the first was ever whole.
    fn records(&self, file: File, bytes: &[u8], boot: u64) -> Result<Option<(Stored, Vec<u8>)>, Damage> {
        let damaged = |offset: usize, what| Damage::Bytes { file, offset: offset as u64, what };
        let (mut at, mut chain) = (HEADER_BYTES, chain_of(bytes));
        let (mut stored, mut last): (Option<Stored>, &[u8]) = (None, &[]);
        while let Some((head, payload)) = self.record(bytes, at) {
            chain = crc32c_append(chain, &head.crc.to_le_bytes());
            if head.chain != chain {
                return Err(damaged(at, "a record that does not follow its predecessor"));
            }
            let (record, note) = Record::decode(payload).map_err(|malformed| damaged(at, malformed.0))?;
            stored = match (stored, record) {
                (None, Record::Whole(stored)) => Some(stored),
                (Some(stored), record) => Some(stored.after(record).map_err(|why| damaged(at, why))?),
                (None, _) => return Err(damaged(at, "a lap that does not begin with a whole log")),
            };
            (at, last) = (head.end + 1, note);
        }
        if !self.may_end_at(bytes, at, boot) {
            return Err(damaged(at, "a bad record that was on the platter once"));
        }
        Ok(stored.map(|stored| (stored, last.to_vec())))
    }

    /// Whether what stands there may be what a crash has left.
    fn may_end_at(&self, bytes: &[u8], at: usize, boot: u64) -> bool {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some(last) = rest.iter().rposition(|byte| *byte != 0) else { return true };
        // A first start that was killed may have been killed again while it wrote zeros: then there are zeros before what is left.
        let is_first = self.lap == 1 && at == HEADER_BYTES;
        if self.boot != 0 && self.boot == boot && !is_first {
            // A kill in the middle of a write: the record begins, and its end is zeros.
            return last < HEAD_BYTES || Self::head(bytes, at).is_some_and(|head| at + last < head.end);
        }
        let is_behind = |from: usize| self.record(bytes, from).is_some_and(|(head, _)| head.fsynced > at as u64);
        !(at + 1..=at + last).any(is_behind)
    }
}
