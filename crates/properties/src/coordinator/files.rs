//! The log files of the coordinator up to format 4 after crashes and damage. A start finds a state that was once durable, or refuses.
//! No state that was told to anybody is lost silently, and nothing is invented.

use std::sync::OnceLock;

use arbitrary::{Arbitrary, Result, Unstructured};
use kasha_coordinator::{StartError, State};
use kasha_machine::FileName;
use kasha_types::Tick;

use super::common::{Files, MemoryDisk, World, options};
use crate::damage::Burst;
use crate::draw;
use crate::property::Property;

/// A busy coordinator's first file, and the second one, which the next start wrote.
const GOLDEN: &[u8] = include_bytes!("../../../coordinator/golden/log-v4.bin");
const MAGIC: &[u8] = b"KASHACRD";
pub(super) const HEADER_BYTES: usize = 24;
pub(super) const RECORD_HEAD_BYTES: usize = 16;

/// What becomes of a file.
#[derive(Debug)]
pub(super) enum Fate {
    Whole,
    /// The crash cut off what was last written; zeros may stand there.
    Torn {
        at: u32,
        zeros: bool,
    },
    Burst(Burst),
    Gone,
}

impl<'a> Arbitrary<'a> for Fate {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(match draw::weighted(u, &[2, 4, 4, 1])? {
            0 => Self::Whole,
            1 => Self::Torn { at: u.arbitrary()?, zeros: u.arbitrary()? },
            2 => Self::Burst(u.arbitrary()?),
            _ => Self::Gone,
        })
    }
}

impl Fate {
    /// The file, and the first place where it is another.
    pub(super) fn of(&self, file: &[u8]) -> Option<(Vec<u8>, usize)> {
        let mut left = file.to_vec();
        match self {
            Self::Whole => {}
            Self::Torn { at, zeros } => {
                left.truncate(*at as usize % (file.len() + 1));
                left.resize(if *zeros { file.len() } else { left.len() }, 0);
            }
            Self::Burst(burst) => drop(burst.apply(&mut left)),
            Self::Gone => return None,
        }
        let same = left.iter().zip(file).take_while(|(now, then)| now == then).count();
        Some((left, same))
    }
}

/// The files as they were, and all states that they ever stood for.
pub(super) struct Known {
    pub(super) first: Vec<u8>,
    pub(super) second: Vec<u8>,
    /// Ends of the first file's records, and the state that each of them left.
    pub(super) prefixes: Vec<(usize, State)>,
    pub(super) last: State,
}

pub(super) fn start(files: Files) -> std::result::Result<World, StartError> {
    let disk = MemoryDisk { durable: files, ..MemoryDisk::default() };
    World::try_new(options(3, 2, 1), disk, Tick(9_000_000_000))
}

fn state_of(files: Files) -> std::result::Result<State, StartError> {
    start(files).map(|world| world.coordinator.state().clone())
}

pub(super) fn one(file: u32, bytes: &[u8]) -> Files {
    Files::from([(FileName::Coordinator(file), bytes.to_vec())])
}

impl Known {
    pub(super) fn get() -> &'static Self {
        static KNOWN: OnceLock<Known> = OnceLock::new();
        KNOWN.get_or_init(|| {
            let second = GOLDEN.windows(MAGIC.len()).rposition(|bytes| bytes == MAGIC).expect("two files");
            let (first, second) = GOLDEN.split_at(second);
            let (mut prefixes, mut at) = (Vec::new(), HEADER_BYTES);
            while at < first.len() {
                let len = u32::from_le_bytes(first[at..at + 4].try_into().expect("four bytes")) as usize;
                at += RECORD_HEAD_BYTES + len;
                prefixes.push((at, state_of(one(1, &first[..at])).expect("a prefix")));
            }
            assert_eq!(at, first.len());
            let last = state_of(one(2, second)).expect("a snapshot");
            Self { first: first.to_vec(), second: second.to_vec(), prefixes, last }
        })
    }

    /// Whether the first file differs from these bytes, and not in its last record, which they hold.
    fn differs_before_the_last(&self, bytes: &[u8]) -> bool {
        let (last, _) = self.prefixes[self.prefixes.len() - 2];
        bytes.len() == self.first.len() && bytes[..last] != self.first[..last] && bytes[last..] == self.first[last..]
    }
}

/// See the module.
#[derive(Debug)]
pub struct CoordinatorFiles {
    first: Fate,
    second: Fate,
}

impl<'a> Arbitrary<'a> for CoordinatorFiles {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        // Most damage is worth a look by itself.
        let (first, second) = match draw::below(u, 3)? {
            0 => (u.arbitrary()?, Fate::Gone),
            1 => (Fate::Whole, u.arbitrary()?),
            _ => (u.arbitrary()?, u.arbitrary()?),
        };
        Ok(Self { first, second })
    }
}

impl Property for CoordinatorFiles {
    const NAME: &'static str = "coordinator_files";
    const INPUT_BYTES_MAX: usize = 24;

    fn hold(self) {
        let known = Known::get();
        let (first, second) = (self.first.of(&known.first), self.second.of(&known.second));
        let mut files = Files::new();
        for (number, file) in [(1, &first), (2, &second)] {
            if let Some((bytes, _)) = file {
                files.insert(FileName::Coordinator(number), bytes.clone());
            }
        }
        let second_is_whole = second.as_ref().is_some_and(|(bytes, _)| *bytes == known.second);
        let told = first.as_ref().map_or(0, |(_, same)| known.prefixes.partition_point(|(end, _)| end <= same));
        match state_of(files) {
            Ok(state) if second_is_whole => assert_eq!(state, known.last),
            Ok(state) => {
                // What was durable and damaged is not what a crash leaves, where a whole record stands behind it. Damage
                // that reaches into the last record leaves none, and cannot be told from a crash.
                let resumes = first.as_ref().is_some_and(|(bytes, _)| known.differs_before_the_last(bytes));
                assert!(!resumes, "durable records were dropped without a word");
                let found = known.prefixes.iter().position(|(_, prefix)| *prefix == state);
                match found {
                    Some(found) => assert_eq!(found + 1, told, "the state of all whole records, and of no other"),
                    None => assert!(told == 0 && second.is_none(), "a state that never was: {state:?}"),
                }
            }
            Err(error) => {
                assert!(!second_is_whole, "{error}");
                let first_is_torn = matches!(self.first, Fate::Whole | Fate::Torn { .. }) && told > 0;
                let second_is_torn = matches!(self.second, Fate::Gone | Fate::Torn { .. });
                assert!(!(first_is_torn && second_is_torn), "a crash leaves this, and it is refused: {error}");
            }
        }
    }

    fn seeds() -> Vec<Vec<u8>> {
        (0..20).map(|at: u8| vec![at % 3, 4, at.wrapping_mul(13), at, 0, 0, 8, at, 1, 0, 0, 1, 2]).collect()
    }
}
