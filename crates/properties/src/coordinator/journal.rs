//! The two files of the coordinator's journal after crashes and damage. A start finds a log that was once durable, or refuses.
//! Nothing that was told to anybody is lost silently, and nothing is invented (R9.5).

use std::sync::OnceLock;

use arbitrary::{Arbitrary, Result, Unstructured};
use kasha_coordinator::{Coordinator, StartError, State};
use kasha_types::ClusterId;

use super::common::{FIRST, Files, MemoryDisk, SECOND};
use super::files::Fate;
use crate::draw;
use crate::property::Property;

/// A busy coordinator's first lap, and the second one, which the next start began.
const GOLDEN: &[u8] = include_bytes!("../../../coordinator/golden/log-v5.bin");
const MAGIC: &[u8] = b"KASHAVSR";
const SPENT: &[u8] = b"KASHAOLD";
const HEADER_BYTES: usize = 44;
const RECORD_HEAD_BYTES: usize = 24;
/// Zeros behind the last record of a file.
const ZEROS: usize = 300;

/// One file as it was, and all states that it ever stood for.
pub(super) struct Lap {
    /// Without the zeros at its end.
    bytes: Vec<u8>,
    /// Where the payload of each record ends, and what the log came to then.
    prefixes: Vec<(usize, State)>,
}

impl Lap {
    fn of(bytes: &[u8]) -> Self {
        let (mut prefixes, mut at) = (Vec::new(), HEADER_BYTES);
        while at < bytes.len() {
            let len = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize;
            let end = at + RECORD_HEAD_BYTES + len;
            let files = Files::from([(FIRST, bytes[..end].to_vec())]);
            // A file is read where its lap belongs: the second lap is in the other one.
            let state = stored(files).or_else(|_| stored(Files::from([(SECOND, bytes[..end].to_vec())])));
            prefixes.push((end, state.expect("a prefix").expect("a whole record")));
            at = end + 1;
        }
        assert_eq!(at, bytes.len());
        Self { bytes: bytes.to_vec(), prefixes }
    }

    fn with_zeros(&self) -> Vec<u8> {
        [&self.bytes[..], &[0; ZEROS]].concat()
    }

    /// How many records a file has in front of the first byte that differs. End marks do not count.
    fn whole_in(&self, file: Option<&[u8]>) -> usize {
        let is_mark = |at| self.prefixes.binary_search_by_key(&at, |(end, _)| *end).is_ok();
        let bytes = self.bytes.iter().zip(file.unwrap_or_default()).enumerate();
        let same = bytes.take_while(|&(at, (then, now))| then == now || is_mark(at)).count();
        self.prefixes.partition_point(|(end, _)| *end <= same)
    }

    /// Whether a file has the last record, but not all records before it.
    fn has_only_the_end_in(&self, file: Option<&[u8]>) -> bool {
        let (last, _) = self.prefixes[self.prefixes.len() - 2];
        let end = file.and_then(|bytes| bytes.get(last + 1..self.bytes.len()));
        end == Some(&self.bytes[last + 1..]) && self.whole_in(file) < self.prefixes.len()
    }

    /// The payloads of all records.
    pub(super) fn payloads(&self) -> Vec<Vec<u8>> {
        let begins = std::iter::once(HEADER_BYTES).chain(self.prefixes.iter().map(|(end, _)| end + 1));
        let records = begins.zip(&self.prefixes);
        records.map(|(begin, (end, _))| self.bytes[begin + RECORD_HEAD_BYTES..*end].to_vec()).collect()
    }

    /// These payloads, if each that appends follows the one before it.
    pub(super) fn numbered(&self, payloads: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let (_, entries) = appended(&self.payloads()[1]).expect("the second record appends");
        let mut end = entries;
        let numbered = |payload: &Vec<u8>| {
            let mut payload = payload.clone();
            if let Some((count, _)) = appended(&payload) {
                payload[1..9].copy_from_slice(&end.to_le_bytes());
                end = end.wrapping_add(count);
            }
            payload
        };
        payloads.iter().map(numbered).collect()
    }

    /// Files of which one has this lap's header and these payloads, and the other one was never written.
    pub(super) fn sealed(&self, payloads: &[Vec<u8>]) -> Files {
        let mut file = self.bytes[..HEADER_BYTES].to_vec();
        let lap: [u8; 8] = file[24..32].try_into().expect("eight bytes");
        let mut chain = crc32c::crc32c(&file[..HEADER_BYTES - 4]);
        for payload in payloads {
            let fsynced = file.len() as u64;
            let crc = crc32c::crc32c_append(crc32c::crc32c(&lap), payload);
            chain = crc32c::crc32c_append(chain, &crc.to_le_bytes());
            let mut head = u32::try_from(payload.len()).expect("few bytes").to_le_bytes().to_vec();
            [crc, chain].iter().for_each(|word| head.extend_from_slice(&word.to_le_bytes()));
            head.extend_from_slice(&fsynced.to_le_bytes());
            head.extend_from_slice(&crc32c::crc32c(&head).to_le_bytes());
            file.extend([&head[..], payload, &[0xE5]].concat());
        }
        let is_odd = u64::from_le_bytes(lap) % 2 == 1;
        Files::from([(if is_odd { FIRST } else { SECOND }, file)])
    }
}

/// Of a record that appends: how many entries, and behind which operation.
fn appended(record: &[u8]) -> Option<(u64, u64)> {
    let number = |from| Some(u64::from_le_bytes(record.get(from..from + 8)?.try_into().expect("eight bytes")));
    if record.first() == Some(&2) { Some((number(9)?, number(1)?)) } else { None }
}

/// The record that appends one command, of any bytes, behind the operation 0.
pub(super) fn one_command(command: &[u8]) -> Vec<u8> {
    let mut record = vec![2];
    [0, 1_u64].iter().for_each(|number| record.extend_from_slice(&number.to_le_bytes()));
    record.push(1);
    record.extend_from_slice(&(command.len() as u64).to_le_bytes());
    record.extend_from_slice(command);
    record
}

fn stored(files: Files) -> std::result::Result<Option<State>, StartError> {
    Coordinator::stored(&MemoryDisk { durable: files, ..MemoryDisk::default() }, ClusterId(77))
}

/// Both laps.
pub(super) struct Known {
    pub(super) first: Lap,
    pub(super) second: Lap,
}

impl Known {
    pub(super) fn get() -> &'static Self {
        static KNOWN: OnceLock<Known> = OnceLock::new();
        KNOWN.get_or_init(|| {
            let second = GOLDEN.windows(MAGIC.len()).rposition(|bytes| bytes == MAGIC).expect("two laps");
            let (first, second) = GOLDEN.split_at(second);
            Self { first: Lap::of(first), second: Lap::of(second) }
        })
    }
}

/// When it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Arbitrary)]
enum Moment {
    /// In the first lap.
    First,
    /// When the first record of the second lap was written, and the first lap was not spent yet.
    Between,
    /// In the second lap.
    Second,
}

/// See the module.
#[derive(Debug)]
pub struct CoordinatorJournal {
    moment: Moment,
    odd: Fate,
    even: Fate,
}

impl<'a> Arbitrary<'a> for CoordinatorJournal {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let moment = u.arbitrary()?;
        // Most damage is worth a look by itself.
        let (odd, even) = match draw::below(u, 3)? {
            0 => (u.arbitrary()?, Fate::Whole),
            1 => (Fate::Whole, u.arbitrary()?),
            _ => (u.arbitrary()?, u.arbitrary()?),
        };
        Ok(Self { moment, odd, even })
    }
}

impl Property for CoordinatorJournal {
    const NAME: &'static str = "coordinator_journal";
    const INPUT_BYTES_MAX: usize = 24;

    fn hold(self) {
        let Known { first, second } = Known::get();
        let spent = [SPENT, &[0; ZEROS]].concat();
        let (odd, even) = match self.moment {
            Moment::First => (first.with_zeros(), spent),
            Moment::Between => (first.with_zeros(), second.with_zeros()[..=second.prefixes[0].0].to_vec()),
            Moment::Second => (spent, second.with_zeros()),
        };
        let left = |fate: &Fate, file: &[u8]| fate.of(file).map(|(bytes, _)| bytes);
        let (odd, even) = (left(&self.odd, &odd), left(&self.even, &even));
        let files = [(FIRST, &odd), (SECOND, &even)];
        let files = files.into_iter().filter_map(|(name, file)| Some((name, file.clone()?)));
        let found = stored(files.collect());

        let (odd, even) = (odd.as_deref(), even.as_deref());
        let (firsts, seconds) = (first.whole_in(odd), second.whole_in(even));
        let is_clean = |fate: &Fate| matches!(fate, Fate::Whole | Fate::Torn { .. });
        match found {
            Ok(Some(state)) => {
                let (lap, file, whole) = if seconds > 0 { (second, even, seconds) } else { (first, odd, firsts) };
                assert!(whole > 0, "a state that never was: {state:?}");
                assert_eq!(state, lap.prefixes[whole - 1].1, "the state of all whole records, and of no other");
                assert!(!lap.has_only_the_end_in(file), "durable records were dropped without a word");
            }
            Ok(None) => {
                let is_spent = |file: Option<&[u8]>| file.is_some_and(|bytes| bytes.starts_with(SPENT));
                assert!(firsts == 0 && seconds == 0, "a whole log is a new one");
                assert!(!is_spent(odd) && !is_spent(even), "a log that was lost is a new one");
                assert!(!first.has_only_the_end_in(odd) && !second.has_only_the_end_in(even), "damaged is not missing");
            }
            Err(error) => {
                assert!(seconds == 0 || !is_clean(&self.even), "a crash leaves this second lap: {error}");
                assert!(seconds > 0 || firsts == 0 || !is_clean(&self.odd), "a crash leaves this first lap: {error}");
                let is_first_start = self.moment == Moment::First && is_clean(&self.odd) && even.is_none();
                assert!(!is_first_start, "a crash of the first start leaves this: {error}");
            }
        }
    }

    fn seeds() -> Vec<Vec<u8>> {
        (0..60).map(|at: u8| vec![at, at, at, at % 3, 4, at.wrapping_mul(13), at, 0, 0, 8, at, 1, 0, 0, 1, 2]).collect()
    }
}
