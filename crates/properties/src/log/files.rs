//! Segment files in any state, also with right checksums over wrong fields. A load accepts them, and the part that it
//! keeps is a log.

use arbitrary::{Arbitrary, Result, Unstructured};
use kasha_log::{GROUP_HEADER_BYTES, LoadReport, Log};
use kasha_types::SegmentId;

use super::common::{SEGMENT, SHARD, append, config, entries, files, fill, let_go, new_log, reseal};
use crate::damage::Damage;
use crate::draw;
use crate::property::Property;

/// A group's header, its first entry's and a little more.
const HEADERS_BYTES: usize = 72;

/// The number of a segment, and its file.
type Files = Vec<(SegmentId, Vec<u8>)>;

#[derive(Clone, Debug)]
enum Spoil {
    Remove {
        which: u8,
    },
    Rename {
        which: u8,
        id: SegmentId,
    },
    Copy {
        from: u8,
        to: u8,
    },
    Damage {
        which: u8,
        damage: Damage,
    },
    /// A change of a group, and a right checksum over it.
    Reseal {
        which: u8,
        group: u8,
        damage: Damage,
    },
    Noise {
        id: SegmentId,
        bytes: Vec<u8>,
    },
}

impl<'a> Arbitrary<'a> for Spoil {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let kind = draw::weighted(u, &[1, 1, 1, 3, 5, 1])?;
        let which = u.arbitrary()?;
        let id = |u: &mut Unstructured<'a>| {
            Ok(SegmentId(if u.arbitrary()? { u.int_in_range(0..=6)? } else { u.arbitrary()? }))
        };
        Ok(match kind {
            0 => Self::Remove { which },
            1 => Self::Rename { which, id: id(u)? },
            2 => Self::Copy { from: which, to: u.arbitrary()? },
            3 => Self::Damage { which, damage: u.arbitrary()? },
            4 => Self::Reseal { which, group: u.int_in_range(0..=30)?, damage: u.arbitrary()? },
            _ => Self::Noise { id: id(u)?, bytes: draw::bytes(u, 300)? },
        })
    }
}

impl Spoil {
    fn apply(&self, files: &mut Files) {
        let place = |which: u8, files: &Files| usize::from(which) % files.len();
        match self {
            Self::Noise { id, bytes } => files.push((*id, bytes.clone())),
            _ if files.is_empty() => {}
            Self::Remove { which } => drop(files.remove(place(*which, files))),
            Self::Rename { which, id } => {
                let at = place(*which, files);
                files[at].0 = *id;
            }
            Self::Copy { from, to } => {
                let (from, to) = (place(*from, files), place(*to, files));
                files[to].1 = files[from].1.clone();
            }
            Self::Damage { which, damage } => {
                let at = place(*which, files);
                damage.apply(&mut files[at].1);
            }
            Self::Reseal { which, group, damage } => {
                let at = place(*which, files);
                reseal_group(&mut files[at].1, usize::from(*group), damage);
            }
        }
    }
}

/// Changes a group of a file (it may grow or shrink), and makes its checksum right.
fn reseal_group(file: &mut Vec<u8>, which: usize, damage: &Damage) {
    let Some(range) = groups_of(file).into_iter().cycle().nth(which) else { return };
    // Most of what can be wrong stands in the header and in the first entry's.
    let mut group = file[range.start..range.end.min(range.start + HEADERS_BYTES)].to_vec();
    damage.apply(&mut group);
    group.extend_from_slice(&file[range.end.min(range.start + HEADERS_BYTES)..range.end]);
    if group.len() >= GROUP_HEADER_BYTES as usize {
        reseal(&mut group);
    }
    file.splice(range, group);
}

fn groups_of(file: &[u8]) -> Vec<std::ops::Range<usize>> {
    let (mut groups, mut at) = (Vec::new(), 0);
    while let Some(header) = file.get(at..at + GROUP_HEADER_BYTES as usize) {
        let payload = u32::from_le_bytes(header[4..8].try_into().expect("four bytes"));
        let end = at + header.len() + payload as usize;
        if end > file.len() {
            break;
        }
        groups.push(at..end);
        at = end;
    }
    groups
}

/// Three segments; or the same with a hole where the second of four was freed.
fn sample(holed: bool) -> Log {
    let mut log = new_log();
    if holed {
        let objects = fill(&mut log, 1, 4);
        let_go(&mut log, 1, SegmentId(1), &objects);
        log.free(SegmentId(1));
        append(&mut log, 2, &[b"the last"]);
    } else {
        fill(&mut log, 1, 3);
        append(&mut log, 2, &[b"in two", b"entries"]);
    }
    log
}

fn load(files: Files) -> (Log, LoadReport) {
    Log::load(SHARD, config(64), files.into_iter())
}

/// See the module.
#[derive(Debug)]
pub struct LogFiles {
    holed: bool,
    spoils: Vec<Spoil>,
}

impl<'a> Arbitrary<'a> for LogFiles {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(Self { holed: u.arbitrary()?, spoils: draw::until_empty(u, 6)? })
    }
}

impl Property for LogFiles {
    const NAME: &'static str = "log_files";
    const INPUT_BYTES_MAX: usize = 120;

    fn hold(self) {
        let original = sample(self.holed);
        let mut spoiled = files(&original);
        self.spoils.iter().for_each(|spoil| spoil.apply(&mut spoiled));
        let (mut log, report) = load(spoiled);
        assert_eq!(log.end(), report.valid_end);
        if self.spoils.is_empty() {
            assert_eq!((report.damage, report.torn_bytes), (None, 0));
            assert_eq!(entries(&log), entries(&original));
        }
        // What was kept is a log: it reads, loads again without a fault, and can be cut anywhere.
        let (again, second) = load(files(&log));
        assert!(second.damage.is_none() || report.damage.is_some(), "{second:?} after {report:?}");
        assert_eq!(second.torn_bytes, 0);
        if second.damage.is_none() {
            assert_eq!(entries(&again), entries(&log));
        }
        let ends: Vec<_> = log.groups().map(|group| group.end).collect();
        for end in ends.into_iter().rev() {
            log.truncate(end).expect("the end of a group");
            assert_eq!(log.end().offset, end);
        }
        assert!(log.segments().all(|(_, used)| used <= SEGMENT));
    }

    fn seeds() -> Vec<Vec<u8>> {
        // Every kind of spoil, in both logs.
        let one = |kind: u8, holed: u8| vec![holed, kind, 1, 3, 0, 200, 1, 0, 0, 5, 7, 9, 11, 13, 17, 19];
        (0..12).flat_map(|kind| [one(kind, 0), one(kind, 1)]).collect()
    }
}
